-- Scoring rows and arrays: how columns find their features, and what is said when they do not.

SET client_min_messages = warning;
SET pg_train.report_epochs = off;
CREATE EXTENSION IF NOT EXISTS pg_train;

CREATE TABLE predict_point AS
	SELECT i AS id, (i % 17) / 17.0::float8 AS a, i % 5 AS b, 3 * ((i % 17) / 17.0::float8) - 0.5 * (i % 5) + 1 AS y
	FROM generate_series(1, 200) i;
SELECT version FROM train_model('predict line', 'SELECT a, b, y FROM predict_point', 'y', architecture => '["flatten"]',
	standardize => false, epochs => 2);

-- A network of one linear layer can be worked out in SQL.
CREATE TABLE predict_weight AS SELECT w."values"[1] AS a, w."values"[2] AS b, c."values"[1] AS bias
	FROM model_weights('predict line') w, model_weights('predict line') c
	WHERE w.tensor = '1.weight' AND c.tensor = '1.bias';
CREATE FUNCTION predict_line(a float8, b float8) RETURNS float8 STABLE LANGUAGE sql AS
	'SELECT w.a * $1 + w.b * $2 + w.bias FROM predict_weight w';
SELECT count(*), bool_and(abs(predict('predict line', p) - predict_line(a, b)) < 1e-5) AS right
FROM predict_point p;
SELECT count(*), bool_and(abs(predict('predict line', ARRAY[a, b]::real[]) - predict_line(a, b)) < 1e-5) AS right
FROM predict_point;

-- Order, other columns and the exact numeric type do not matter.
SELECT bool_and(predict('predict line', p) = predict('predict line', q)) AS same
FROM predict_point p, LATERAL (SELECT 'x' AS x, p.b::bigint AS b, p.a AS a) q;
SELECT bool_and(predict('predict line', p) = predict('predict line', q)) AS same
FROM predict_point p, LATERAL (SELECT p.b::numeric AS b, p.a AS a, 1 AS z) q;
SELECT bool_and(predict('predict line', q) = predict('predict line', r)) AS same
FROM predict_point p, LATERAL (SELECT (p.b > 2) AS b, p.a::real AS a) q,
	LATERAL (SELECT (p.b > 2)::int::smallint AS b, p.a::real::float8 AS a) r;
CREATE DOMAIN predict_share AS float8 CHECK (VALUE >= 0);
SELECT bool_and(predict('predict line', p) = predict('predict line', q)) AS same
FROM predict_point p, LATERAL (SELECT p.a::predict_share AS a, p.b AS b) q;
SELECT predict('predict line', ARRAY[0.5, 2]) = predict('predict line', '{{0.5},{2}}'::real[]) AS same;

-- A row without a value has no prediction.
SELECT predict('predict line', q) FROM (SELECT NULL::float8 AS a, 1 AS b) q;
SELECT predict('predict line', ARRAY[0.5, NULL]);
SELECT predict(NULL, p) FROM predict_point p LIMIT 1;
SELECT p.id IS NULL AS no_row, predict('predict line', p) FROM (SELECT 1) one LEFT JOIN predict_point p ON false;

-- Mistakes
SELECT predict('predict line', q) FROM (SELECT 1.0 AS a, 2 AS bb) q;
SELECT predict('predict line', q) FROM (SELECT 1.0 AS a, 2 AS quantity) q;
SELECT predict('predict line', ROW(1.0, 2));
SELECT predict('predict line', q) FROM (SELECT 1.0 AS a, 'two'::text AS b) q;
SELECT predict('predict line', q) FROM (SELECT 1.0 AS a, ARRAY[2] AS b) q;
SELECT predict('predict line', q) FROM (SELECT 1.0 AS a, 2 AS b, 3 AS b) q;
SELECT predict('predict line', q) FROM (SELECT 'NaN'::float8 AS a, 2 AS b) q;
SELECT predict('predict line', q) FROM (SELECT 'infinity'::float8 AS a, 2 AS b) q;
SELECT predict('predict line', ARRAY['NaN', 1]::real[]);
SELECT predict('predict line', ARRAY[1]);
SELECT predict('predict line', '{}'::real[]);
SELECT predict('predict lin', ARRAY[1, 2]);
SELECT predict('nothing like it', ARRAY[1, 2]);
SELECT predict('predict line@2', ARRAY[1, 2]);
SELECT predict('predict line@', ARRAY[1, 2]);
SELECT predict('predict line@one', ARRAY[1, 2]);
SELECT predict('predict line@0', ARRAY[1, 2]);
SELECT predict('predict line@99999999999', ARRAY[1, 2]);
SELECT predict('', ARRAY[1, 2]);

-- Arrays and bytes have the length of training.
CREATE TABLE predict_wide AS
	SELECT ARRAY[i % 3, i % 7, 1]::float8[] AS v, decode(lpad(to_hex(i), 4, '0'), 'hex') AS image, (i % 3) * 1.0::float8 AS y
	FROM generate_series(1, 100) i;
SELECT version FROM train_model('predict wide', 'predict_wide', 'y', task => 'regression', architecture => '["flatten"]', epochs => 1);
SELECT count(predict('predict wide', w)) FROM predict_wide w;
SELECT bool_and(abs(predict('predict wide', w) - predict('predict wide', (v::real[] || ARRAY[get_byte(image, 0), get_byte(image, 1)]::real[]))) < 1e-5) AS same
FROM predict_wide w;
SELECT bool_and(predict('predict wide', w) = predict('predict wide', q)) AS same
FROM predict_wide w, LATERAL (SELECT w.v::int[] AS v, w.image) q;
SELECT predict('predict wide', q) FROM (SELECT ARRAY[1, 2]::float8[] AS v, '\x0001'::bytea AS image) q;
SELECT predict('predict wide', q) FROM (SELECT ARRAY[1, 2, 3]::float8[] AS v, '\x000102'::bytea AS image) q;
SELECT predict('predict wide', q) FROM (SELECT ARRAY[1, NULL, 3]::float8[] AS v, '\x0001'::bytea AS image) q;
SELECT predict('predict wide', ARRAY[1, 2, 3]);

-- A prepared statement follows its table.
CREATE TABLE predict_row (a float8, b int);
INSERT INTO predict_row VALUES (0.5, 2);
PREPARE predict_again AS SELECT abs(predict('predict line', r) - predict_line(0.5, 2)) < 1e-5 AS right FROM predict_row r;
EXECUTE predict_again;
ALTER TABLE predict_row ADD note text DEFAULT 'none';
EXECUTE predict_again;
ALTER TABLE predict_row ALTER b TYPE bigint;
EXECUTE predict_again;
ALTER TABLE predict_row DROP a;
EXECUTE predict_again;
ALTER TABLE predict_row ADD a real DEFAULT 0.5;
EXECUTE predict_again;
ALTER TABLE predict_row RENAME a TO aa;
EXECUTE predict_again;
DEALLOCATE predict_again;

-- Rows of parallel workers are scored as any others.
SELECT bool_and(proparallel = 's') AS parallel_safe, bool_and(provolatile = 's') AS stable
FROM pg_proc WHERE proname IN ('predict', 'predict_class', 'predict_proba') AND probin LIKE '%pg_train';
SELECT count(set_config(name, 'on', false)) FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query');
SELECT count(*), bool_and(abs(predict('predict line', p) - predict_line(a, b)) < 1e-5) AS right
FROM predict_point p;
SELECT count(set_config(name, 'off', false)) FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query');

-- In a function, in a view
DO $$
DECLARE
	r predict_point;
	wrong int := 0;
BEGIN
	FOR r IN SELECT * FROM predict_point LOOP
		IF abs(predict('predict line', r) - predict_line(r.a, r.b)) > 1e-5 THEN
			wrong := wrong + 1;
		END IF;
	END LOOP;
	RAISE WARNING '% rows are wrong', wrong;
END
$$;
CREATE VIEW predict_view AS SELECT id, predict('predict line', p) AS y FROM predict_point p;
SELECT count(y) FROM predict_view;

SELECT drop_model('predict line'), drop_model('predict wide');
DROP VIEW predict_view;
DROP FUNCTION predict_line;
DROP TABLE predict_point, predict_wide, predict_row, predict_weight;
DROP DOMAIN predict_share;
