-- Scoring with classifiers: labels, numbers and probabilities.

SET client_min_messages = warning;
SET pg_train.report_epochs = off;
CREATE EXTENSION IF NOT EXISTS pg_train;

CREATE TYPE predict_mood AS ENUM ('sad', 'fine', 'happy');
CREATE TABLE predict_item AS
	SELECT i AS id, x, -x AS z,
		(CASE WHEN x < -0.4 THEN 10 WHEN x < 0.4 THEN 2 ELSE 30 END) AS number,
		(CASE WHEN x < -0.4 THEN 'low' WHEN x < 0.4 THEN 'middle' ELSE 'high' END) AS label,
		(CASE WHEN x < -0.4 THEN 'sad' WHEN x < 0.4 THEN 'fine' ELSE 'happy' END)::predict_mood AS mood,
		x > 0 AS positive
	FROM (SELECT i, ((i % 100 - 49.5) / 50.0)::real AS x FROM generate_series(1, 400) i) s;

SELECT version FROM train_model('predict number', 'predict_item', 'number', '{x,z}', task => 'classification', epochs => 20, batch_size => 32, learning_rate => 0.01);
SELECT version FROM train_model('predict label', 'predict_item', 'label', '{x,z}', epochs => 20, batch_size => 32, learning_rate => 0.01);
SELECT version FROM train_model('predict mood', 'predict_item', 'mood', '{x,z}', epochs => 20, batch_size => 32, learning_rate => 0.01);
SELECT version FROM train_model('predict positive', 'predict_item', 'positive', '{x,z}', epochs => 20, batch_size => 32, learning_rate => 0.01);
SELECT version FROM train_model('predict value', 'predict_item', 'x', '{z}', epochs => 1);
SELECT model, target_type, classes FROM pgtrain.versions WHERE model LIKE 'predict %' ORDER BY model;

-- Numbers come back as numbers, all classes as their labels.
SELECT avg((predict('predict number', p) = number)::int) > 0.95 AS good,
	bool_and(predict('predict number', p)::text = predict_class('predict number', p)) AS same FROM predict_item p;
SELECT avg((predict_class('predict label', p) = label)::int) > 0.95 AS good FROM predict_item p;
SELECT avg((predict_class('predict mood', p)::predict_mood = mood)::int) > 0.95 AS good FROM predict_item p;
SELECT avg((predict('predict positive', p)::int = positive::int)::int) > 0.95 AS good,
	bool_and(predict_class('predict positive', p)::boolean = (predict('predict positive', p) = 1)) AS same
FROM predict_item p;
SELECT predict('predict label', p) FROM predict_item p LIMIT 1;
SELECT predict('predict mood', ARRAY[0, 0]);

-- Probabilities: one a class, in their order, and the largest is the class.
SELECT bool_and(cardinality(q) = cardinality(v.classes)) AS one_each,
	bool_and(abs((SELECT sum(u) FROM unnest(q) u) - 1) < 1e-5) AS sum_is_one,
	bool_and(predict_class(v.model, p) =
			 v.classes[(SELECT o FROM unnest(q) WITH ORDINALITY u (u, o) ORDER BY u DESC, o LIMIT 1)]) AS largest
FROM pgtrain.versions v, predict_item p, predict_proba(v.model, p) q
WHERE v.model IN ('predict number', 'predict label', 'predict mood', 'predict positive');
SELECT bool_and(predict_proba('predict label', p) = predict_proba('predict label', ARRAY[x, z])) AS same,
	bool_and(predict_class('predict label', p) = predict_class('predict label', ARRAY[x, z])) AS same_class
FROM predict_item p;

-- A feature that is NULL leaves nothing to say.
SELECT predict_class('predict label', q), predict_proba('predict label', q) FROM (SELECT NULL::float8 AS x, 1 AS z) q;
SELECT predict_class('predict label', ARRAY[NULL, 1]), predict_proba('predict label', ARRAY[1, NULL]);

-- A regression has no classes.
SELECT predict_class('predict value', p) FROM predict_item p LIMIT 1;
SELECT predict_proba('predict value', p) FROM predict_item p LIMIT 1;
SELECT predict_proba('predict value', ARRAY[1]);

-- The model's name may come from the row; more models than a call keeps at hand are looked up again.
SELECT m, bool_and(predict_class(m, p) IS NOT NULL)
FROM unnest('{predict label,predict number,predict mood,predict positive}'::text[]) m, predict_item p GROUP BY m ORDER BY m;
SELECT count(predict_class(m, p)) FROM predict_item p,
	unnest('{predict label,predict number,predict mood,predict positive,predict label@1,predict number@1,predict mood@1,predict positive@1}'::text[]
		|| '{predict label@01,predict number@01}') m;

-- An enum may go; its labels stay with the model.
SELECT predict_class('predict mood', ARRAY[0.9, -0.9]) AS before;
ALTER TABLE predict_item DROP mood;
DROP TYPE predict_mood;
SELECT deploy_model('predict mood', 1);
SELECT predict_class('predict mood', ARRAY[0.9, -0.9]) AS after;

SELECT drop_model(m) FROM unnest('{predict number,predict label,predict mood,predict positive,predict value}'::text[]) m;
DROP TABLE predict_item;
