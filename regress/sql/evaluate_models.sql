-- evaluate_model and confusion_matrix: scikit-learn's metrics, worked out again in SQL from the predictions.

SET client_min_messages = warning;
SET pg_train.report_epochs = off;
CREATE EXTENSION IF NOT EXISTS pg_train;

CREATE TABLE evaluate_row AS
	SELECT i AS id, sin(i) AS a, cos(i * 1.3) AS b,
		(CASE WHEN sin(i) + 0.4 * cos(i * 5.1) < -0.3 THEN 'low' WHEN sin(i) + 0.4 * cos(i * 5.1) < 0.4 THEN 'middle' ELSE 'high' END) AS label,
		(sin(i) + 0.5 * cos(i * 5.1) > 0)::int AS flag, 3 * sin(i) - cos(i * 1.3) + 0.2 * cos(i * 5.1) AS y
	FROM generate_series(1, 700) i;
SELECT version FROM train_model('evaluate label', 'evaluate_row', 'label', '{a,b}', epochs => 20, batch_size => 32);
SELECT version FROM train_model('evaluate flag', 'evaluate_row', 'flag', '{a,b}', task => 'classification', epochs => 5, batch_size => 32);
SELECT version FROM train_model('evaluate y', 'evaluate_row', 'y', '{a,b}', epochs => 10, batch_size => 32);

-- Three classes
CREATE TABLE evaluate_scored AS
	SELECT label AS actual, predict_class('evaluate label', r) AS predicted, predict_proba('evaluate label', r) AS p FROM evaluate_row r;
CREATE TABLE evaluate_class AS
	SELECT c.class, c.position, count(*) FILTER (WHERE s.actual = c.class) AS actual, count(*) FILTER (WHERE s.predicted = c.class) AS predicted,
		count(*) FILTER (WHERE s.actual = c.class AND s.predicted = c.class) AS correct
	FROM evaluate_scored s, pgtrain.versions v, unnest(v.classes) WITH ORDINALITY c (class, position)
	WHERE v.model = 'evaluate label' GROUP BY 1, 2;
WITH expected (metric, value) AS (
	SELECT 'accuracy', avg((actual = predicted)::int)::float8 FROM evaluate_scored
	UNION ALL SELECT 'balanced_accuracy', avg(correct / actual::float8) FROM evaluate_class
	UNION ALL SELECT 'precision_macro', avg(correct / predicted::float8) FROM evaluate_class
	UNION ALL SELECT 'recall_macro', avg(correct / actual::float8) FROM evaluate_class
	UNION ALL SELECT 'f1_macro', avg(2 * correct / (actual + predicted)::float8) FROM evaluate_class
	UNION ALL SELECT 'log_loss', avg(-ln(s.p[c.position])) FROM evaluate_scored s JOIN evaluate_class c ON c.class = s.actual)
SELECT metric, abs(e.value - m.value) < 1e-6 AS right
FROM evaluate_model('evaluate label', 'evaluate_row') WITH ORDINALITY m (metric, value, o) LEFT JOIN expected e USING (metric) ORDER BY o;
SELECT c.actual, c.predicted, c.count = (SELECT count(*) FROM evaluate_scored s WHERE s.actual = c.actual AND s.predicted = c.predicted) AS right
FROM confusion_matrix('evaluate label', 'evaluate_row') c WHERE c.actual = c.predicted;
SELECT sum(count) FROM confusion_matrix('evaluate label', 'SELECT a, b, label FROM evaluate_row WHERE id <= 300');

-- Two classes have a ROC curve.
WITH s AS (SELECT flag, (predict_proba('evaluate flag', r))[2] AS p FROM evaluate_row r)
SELECT abs((SELECT avg(CASE WHEN x.p > z.p THEN 1 WHEN x.p = z.p THEN 0.5 ELSE 0 END)
			FROM s x, s z WHERE x.flag = 1 AND z.flag = 0) - m.value) < 1e-9 AS right
FROM evaluate_model('evaluate flag', 'evaluate_row') m WHERE metric = 'roc_auc';
SELECT metric, value FROM evaluate_model('evaluate flag', 'SELECT * FROM evaluate_row WHERE flag = 1') WHERE metric = 'roc_auc';

-- 1 is 1, also as numeric or boolean.
SELECT count(DISTINCT value) AS values FROM (
	SELECT value FROM evaluate_model('evaluate flag', 'evaluate_row') WHERE metric = 'accuracy'
	UNION ALL SELECT value FROM evaluate_model('evaluate flag', 'SELECT a, b, flag::numeric(5, 2) FROM evaluate_row') WHERE metric = 'accuracy'
	UNION ALL SELECT value FROM evaluate_model('evaluate flag', 'SELECT a, b, flag::float8 FROM evaluate_row') WHERE metric = 'accuracy'
	UNION ALL SELECT value FROM evaluate_model('evaluate flag', 'SELECT a, b, flag = 1 AS flag FROM evaluate_row') WHERE metric = 'accuracy'
	UNION ALL SELECT value FROM evaluate_model('evaluate flag', 'SELECT a, b, flag::text FROM evaluate_row') WHERE metric = 'accuracy') v;

-- Regression
WITH s AS (SELECT y, predict('evaluate y', r) AS p FROM evaluate_row r), m AS (SELECT avg(y) AS mean FROM s), expected (metric, value) AS (
	SELECT 'r2', 1 - sum((y - p) ^ 2) / sum((y - mean) ^ 2) FROM s, m
	UNION ALL SELECT 'rmse', sqrt(avg((y - p) ^ 2)) FROM s
	UNION ALL SELECT 'mae', avg(abs(y - p)) FROM s)
SELECT metric, abs(e.value - m.value) < 1e-5 AS right
FROM evaluate_model('evaluate y', 'evaluate_row') WITH ORDINALITY m (metric, value, o) LEFT JOIN expected e USING (metric) ORDER BY o;
SELECT metric, value FROM evaluate_model('evaluate y', 'SELECT * FROM evaluate_row WHERE id = 1') WHERE metric = 'r2';

-- Classes that the model has never seen are errors.
SELECT * FROM (SELECT actual, predicted IN ('low', 'middle', 'high') AS known, sum(count)
	FROM confusion_matrix('evaluate label', 'SELECT a, b, CASE WHEN id > 690 THEN ''strange'' ELSE label END AS label FROM evaluate_row') GROUP BY 1, 2) c
WHERE actual = 'strange';
SELECT m.value = (SELECT avg((predicted = actual)::int)::float8 FROM
	(SELECT CASE WHEN id > 690 THEN 'strange' ELSE label END AS actual, predict_class('evaluate label', r) AS predicted FROM evaluate_row r) s) AS right
FROM evaluate_model('evaluate label', 'SELECT a, b, CASE WHEN id > 690 THEN ''strange'' ELSE label END AS label FROM evaluate_row') m WHERE metric = 'accuracy';

-- Rows with nothing to compare are left out, and it is said.
SET client_min_messages = notice;
SELECT sum(count) FROM confusion_matrix('evaluate label', 'SELECT a, b, CASE WHEN id > 10 THEN label END AS label FROM evaluate_row');
SELECT sum(count) FROM confusion_matrix('evaluate label', 'SELECT CASE WHEN id > 1 THEN a END AS a, b, label FROM evaluate_row');
SET client_min_messages = warning;

-- Mistakes
SELECT * FROM evaluate_model('evaluate label', 'SELECT a, b, NULL::text AS label FROM evaluate_row');
SELECT * FROM evaluate_model('evaluate label', 'SELECT * FROM evaluate_row WHERE false');
SELECT * FROM evaluate_model('evaluate label', 'SELECT a, b, label AS lable FROM evaluate_row');
SELECT * FROM evaluate_model('evaluate label', 'SELECT a, label FROM evaluate_row');
SELECT * FROM evaluate_model('evaluate label', 'SELECT a, b::text, label FROM evaluate_row');
SELECT * FROM evaluate_model('evaluate label', 'SELECT ''NaN''::float8 AS a, b, label FROM evaluate_row');
SELECT * FROM evaluate_model('evaluate y', 'SELECT a, b, label AS y FROM evaluate_row');
SELECT * FROM evaluate_model('evaluate y', 'SELECT a, b, ''NaN''::float8 AS y FROM evaluate_row');
SELECT * FROM evaluate_model('evaluate labels', 'evaluate_row');
SELECT * FROM evaluate_model('evaluate label', 'evaluate_rows');
SELECT * FROM confusion_matrix('evaluate y', 'evaluate_row');

SELECT drop_model('evaluate label'), drop_model('evaluate flag'), drop_model('evaluate y');
DROP TABLE evaluate_class, evaluate_scored;
DROP TABLE evaluate_row;
