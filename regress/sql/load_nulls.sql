-- NULLs, values that are no numbers, and rows that do not fit.

SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_train;
SET pg_train.report_epochs = off;

CREATE TABLE load_null AS
	SELECT CASE WHEN i % 10 <> 1 THEN i END AS a, CASE WHEN i % 25 <> 0 THEN sin(i) END AS "b c", CASE WHEN i % 50 <> 1 THEN ARRAY[i, CASE WHEN i % 40 <> 2 THEN 1 END] END AS v,
		CASE WHEN i % 100 <> 7 THEN i % 2 END AS y
	FROM generate_series(1, 1000) i;
CREATE FUNCTION load_try(source text, features text[] = NULL, target text = 'y', null_policy text = 'error', OUT rows_used bigint, OUT rows_skipped bigint) LANGUAGE sql AS
	$$ SELECT rows_used, rows_skipped FROM train_model('load null', source, target, features, task => 'classification', null_policy => null_policy, epochs => 1) $$;

-- By default an error, that says where and how many.
SELECT * FROM load_try('load_null', '{a}');
SELECT * FROM load_try('load_null');
SELECT * FROM load_try('SELECT coalesce(a, 0) AS a, y FROM load_null');
SELECT * FROM load_try('SELECT coalesce(a, 0) AS a, y FROM load_null WHERE y IS NOT NULL');
DO $$ BEGIN EXECUTE (SELECT 'CREATE TABLE load_many AS SELECT i % 2 AS y, ' || string_agg(format('NULL::int AS c%s', n), ', ') || ' FROM generate_series(1, 3) i' FROM generate_series(1, 15) n); END $$;
SELECT * FROM load_try('load_many');

-- Rows are left out if asked for, and counted.
SELECT * FROM load_try('load_null', '{a}', null_policy => 'skip');
SELECT * FROM load_try('load_null', null_policy => 'skip'),
	(SELECT count(*) AS really FROM load_null WHERE a IS NOT NULL AND "b c" IS NOT NULL AND v IS NOT NULL AND array_position(v, NULL) IS NULL AND y IS NOT NULL) r;
SELECT rows_used, rows_skipped FROM train_model('load null', 'load_null', 'y', task => 'classification', null_policy => 'skip', epochs => 1, validation_source => 'load_null');
SELECT rows_used, rows_skipped FROM pgtrain.versions WHERE model = 'load null' ORDER BY version DESC LIMIT 1;
SELECT rows_used FROM train_model('load null', 'SELECT 1 AS a, y FROM load_null WHERE y IS NOT NULL', 'y', task => 'classification', epochs => 1, validation_source => 'load_null');

-- Nothing to train on
SELECT * FROM load_try('SELECT * FROM load_null WHERE false');
SELECT * FROM load_try('SELECT NULL::int AS a, 1 AS y FROM load_null', null_policy => 'skip');
SELECT rows_used FROM train_model('load null', 'SELECT 1 AS a, y FROM load_null WHERE y IS NOT NULL', 'y', task => 'classification', epochs => 1,
	validation_source => 'SELECT * FROM load_null WHERE false');
SELECT * FROM load_try('SELECT a, 1 AS y FROM load_null WHERE a IS NOT NULL');
SELECT * FROM load_try('SELECT 1 AS a, ''only'' AS y FROM load_null');
SELECT * FROM load_try('SELECT 1 AS a, i % 2 AS y FROM generate_series(1, 3) i');

-- Values that are not finite, or too large
SELECT * FROM load_try('SELECT CASE i WHEN 17 THEN ''NaN''::float8 ELSE i END::real AS x, i % 2 AS y FROM generate_series(1, 100) i');
SELECT * FROM load_try('SELECT i AS a, i AS b, CASE i WHEN 17 THEN ''Infinity''::float8 ELSE i END::float8 AS x, i % 2 AS y FROM generate_series(1, 100) i');
SELECT * FROM load_try('SELECT CASE i WHEN 17 THEN ''-Infinity''::numeric ELSE i END AS x, i % 2 AS y FROM generate_series(1, 100) i');
SELECT * FROM load_try('SELECT CASE i WHEN 17 THEN ''NaN''::numeric ELSE i END AS x, i % 2 AS y FROM generate_series(1, 100) i');
SELECT * FROM load_try('SELECT CASE i WHEN 17 THEN -1e300 ELSE i END::float8 AS x, i % 2 AS y FROM generate_series(1, 100) i');
SELECT * FROM load_try('SELECT CASE i WHEN 17 THEN 1e400 ELSE i END::numeric AS x, i % 2 AS y FROM generate_series(1, 100) i');
SELECT * FROM load_try('SELECT ARRAY[1, CASE i WHEN 17 THEN ''NaN''::float8 ELSE i END]::real[] AS x, i % 2 AS y FROM generate_series(1, 100) i');
SELECT * FROM load_try('SELECT ARRAY[1, CASE i WHEN 17 THEN 1e39 ELSE i END]::float8[] AS x, i % 2 AS y FROM generate_series(1, 100) i');
SELECT * FROM load_try('SELECT i AS x, CASE i WHEN 17 THEN ''NaN''::float8 ELSE i % 2 END::float8 AS y FROM generate_series(1, 100) i');
SELECT * FROM load_try('SELECT i AS x, CASE i WHEN 17 THEN ''NaN''::numeric ELSE i % 2 END AS y FROM generate_series(1, 100) i');
SELECT rows_used FROM train_model('load null', 'SELECT i AS x, CASE i WHEN 17 THEN ''Infinity''::float8 ELSE i END::real AS y FROM generate_series(1, 100) i', 'y');
SELECT rows_used FROM train_model('load null', 'SELECT i AS x, CASE i WHEN 17 THEN 1e39 ELSE i END::float8 AS y FROM generate_series(1, 100) i', 'y');

-- Lengths
SELECT * FROM load_try('SELECT array_fill(i::real, ARRAY[CASE i WHEN 17 THEN 3 ELSE 4 END]) AS x, i % 2 AS y FROM generate_series(1, 100) i');
SELECT * FROM load_try('SELECT decode(repeat(''00'', CASE i WHEN 17 THEN 5 ELSE 4 END), ''hex'') AS x, i % 2 AS y FROM generate_series(1, 100) i');
SELECT * FROM load_try('SELECT ''{}''::int[] AS x, i % 2 AS y FROM generate_series(1, 100) i');
SELECT * FROM load_try('SELECT CASE i WHEN 17 THEN '''' ELSE ''1'' END::bytea AS x, i % 2 AS y FROM generate_series(1, 100) i');
SELECT * FROM load_try('SELECT decode(repeat(''00'', 1000001), ''hex'') AS x, i % 2 AS y FROM generate_series(1, 2) i');

-- Labels
SELECT * FROM load_try('SELECT 1 AS x, i AS y FROM generate_series(1, 70000) i');
SELECT * FROM load_try('SELECT 1 AS x, i::text AS y FROM generate_series(1, 70000) i');
SELECT * FROM load_try('SELECT 1 AS x, repeat(''a'', 1025) AS y FROM generate_series(1, 10) i');
SELECT rows_used FROM train_model('load null', 'SELECT i AS x, i % 2 AS y FROM generate_series(1, 100) i', 'y', task => 'classification', epochs => 1,
	validation_source => 'SELECT i AS x, i % 3 AS y FROM generate_series(1, 100) i');

SELECT drop_model('load null');
DROP FUNCTION load_try;
DROP TABLE load_null, load_many;
