-- Sources: tables, views, SELECTs, run as the caller.

SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_train;
SET pg_train.report_epochs = off;

CREATE SCHEMA "Load Sources";
CREATE TABLE "Load Sources"."Rows" AS SELECT i AS id, sin(i) AS "A b", i % 2 AS y, 'note ' || i AS note FROM generate_series(1, 400) i;
CREATE VIEW load_view AS SELECT "A b" AS a, y FROM "Load Sources"."Rows" WHERE id <= 100;
CREATE MATERIALIZED VIEW load_matview AS SELECT * FROM load_view;
CREATE TABLE load_partitioned (a float8, y int) PARTITION BY RANGE (a);
CREATE TABLE load_negative PARTITION OF load_partitioned FOR VALUES FROM (MINVALUE) TO (0);
CREATE TABLE load_positive (y int, gone text, a float8 NOT NULL);
ALTER TABLE load_positive DROP COLUMN gone;
ALTER TABLE load_partitioned ATTACH PARTITION load_positive FOR VALUES FROM (0) TO (MAXVALUE);
INSERT INTO load_partitioned SELECT a, y FROM load_view;
CREATE TEMP TABLE load_temp AS SELECT * FROM load_view;

-- Names
CREATE FUNCTION load_rows(source text, features text[] = '{a}', target text = 'y') RETURNS bigint LANGUAGE sql AS
	$$ SELECT rows_used FROM train_model('load source', source, target, features, task => 'classification', epochs => 1, validation_fraction => 0) $$;
SELECT s, load_rows(s) FROM unnest(ARRAY['load_view', 'LOAD_VIEW', 'public.load_view', ' public . "load_view" ', 'load_matview', 'load_partitioned', 'load_positive',
	'load_temp', 'pg_temp.load_temp']) s;
SELECT load_rows('"Load Sources"."Rows"', '{"A b",id}');
SELECT load_rows(format('%I.public.load_view', current_database()));

-- SELECTs
SELECT load_rows('SELECT * FROM load_view');
SELECT load_rows(E' \n SELECT a, y FROM load_view -- all of them');
SELECT load_rows('SELECT a, y FROM load_view; ');
SELECT load_rows('SELECT a, y FROM load_view UNION ALL SELECT a, 1 - y FROM load_matview');
SELECT load_rows('WITH v AS (SELECT * FROM load_view) SELECT v.*, w.a AS b FROM v JOIN load_matview w USING (a)', '{a,b}');
SELECT load_rows('WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 50) SELECT n AS a, n % 2 AS y FROM n');
SELECT load_rows('TABLE load_view');
-- (and no validation where rows are so few)
SELECT load_rows('VALUES (1.5, 0), (2.5, 1), (3, 0), (3.5, 1)', '{column1}', 'column2');
SELECT load_rows('SELECT a, y FROM load_view ORDER BY random() LIMIT 60');
SELECT load_rows('SELECT DISTINCT ON (y, a) a, y FROM load_view ORDER BY y, a, y + 1');
SELECT load_rows('SELECT a AS "A", avg(a) OVER (ORDER BY a) AS mean, y FROM load_view', '{A,mean}');
SELECT load_rows('SELECT g.a, y FROM load_view, LATERAL (SELECT load_view.a + i AS a FROM generate_series(1, 3) i) g');

-- Columns that are not needed are neither computed nor read, and the order of features is the caller's.
SELECT load_rows('SELECT a, y, 1 / 0 AS broken FROM load_view');
SELECT version FROM train_model('load order', 'SELECT 1.0 * i AS p, i % 2 AS y, 2.0 * i AS q, i % 3 AS r FROM generate_series(1, 30) i', 'y', '{r,p,q}',
	task => 'classification', epochs => 1);
SELECT e ->> 'column' AS feature, round((e -> 'mean' ->> 0)::numeric / 5) AS mean
FROM pgtrain.model_version v JOIN pgtrain.model m USING (model_id), jsonb_array_elements(v.encoders) e WHERE m.name = 'load order';

-- Rows of this transaction and of this statement's snapshot
BEGIN;
INSERT INTO "Load Sources"."Rows" SELECT i, 0, i % 2 FROM generate_series(401, 500) i;
SELECT load_rows('SELECT "A b" AS a, y FROM "Load Sources"."Rows"');
ROLLBACK;
SELECT load_rows('SELECT "A b" AS a, y FROM "Load Sources"."Rows"');

-- Parallel plans: all rows come from workers, of which there is one class.
BEGIN;
SET LOCAL parallel_setup_cost = 0;
SET LOCAL parallel_tuple_cost = 0;
SET LOCAL min_parallel_table_scan_size = 0;
SET LOCAL max_parallel_workers_per_gather = 2;
SET LOCAL parallel_leader_participation = off;
CREATE FUNCTION load_in_worker() RETURNS boolean LANGUAGE plpgsql PARALLEL SAFE AS
	$$ BEGIN RETURN pg_backend_pid() <> current_setting('load.leader')::int; END $$;
SELECT set_config('load.leader', pg_backend_pid()::text, true) <> '' AS set;
SELECT load_rows('SELECT id AS a, load_in_worker() AS y FROM "Load Sources"."Rows"');
ROLLBACK;

-- A prepared statement, a function, a cursor
PREPARE load_prepared (text) AS SELECT rows_used FROM train_model('load source', $1, 'y', '{a}', task => 'classification', epochs => 1);
EXECUTE load_prepared('load_view');
EXECUTE load_prepared('SELECT * FROM load_view LIMIT 50');

-- Rights: the caller's, column by column and row by row
CREATE ROLE regress_load;
GRANT USAGE ON SCHEMA "Load Sources" TO regress_load;
SET ROLE regress_load;
SELECT load_rows('"Load Sources"."Rows"', '{"A b"}');
SELECT load_rows('SELECT "A b", y FROM "Load Sources"."Rows"', '{"A b"}');
RESET ROLE;
GRANT SELECT ("A b", y, id) ON "Load Sources"."Rows" TO regress_load;
SELECT drop_model('load source');
SET ROLE regress_load;
SELECT load_rows('"Load Sources"."Rows"', '{"A b"}');
SELECT load_rows('"Load Sources"."Rows"', '{"A b",note}');
SELECT load_rows('"Load Sources"."Rows"', NULL);
SELECT load_rows('load_view');
RESET ROLE;
ALTER TABLE "Load Sources"."Rows" ENABLE ROW LEVEL SECURITY;
CREATE POLICY load_policy ON "Load Sources"."Rows" TO regress_load USING (id % 4 < 2);
SET ROLE regress_load;
SELECT load_rows('"Load Sources"."Rows"', '{"A b"}');
SELECT load_rows('SELECT "A b", y FROM "Load Sources"."Rows" WHERE id > 200', '{"A b"}');
RESET ROLE;
SELECT load_rows('"Load Sources"."Rows"', '{"A b"}');
-- A view reads with its owner's rights.
GRANT SELECT ON load_view TO regress_load;
DROP POLICY load_policy ON "Load Sources"."Rows";
REVOKE ALL ON "Load Sources"."Rows" FROM regress_load;
SET ROLE regress_load;
SELECT load_rows('load_view');
RESET ROLE;

-- What is no source
SELECT load_rows('load_vieww');
SELECT load_rows('nowhere.load_view');
SELECT load_rows('a.b.c.d');
SELECT load_rows('');
SELECT load_rows('SELECT a, y FROM load_view; SELECT 1');
SELECT load_rows('SELECT a, y FRM load_view');
SELECT load_rows('SELECT a, z FROM load_view');
SELECT load_rows('SELECT a, y INTO load_into FROM load_view');
SELECT load_rows('SELECT a, y FROM load_temp FOR UPDATE');
SELECT load_rows('WITH d AS (DELETE FROM load_temp RETURNING *) SELECT * FROM d');
SELECT load_rows('DELETE FROM load_temp RETURNING *');
SELECT load_rows('EXPLAIN SELECT * FROM load_view');
SELECT load_rows('SELECT $1::float8 AS a, 1 AS y');
SELECT load_rows('SELECT a / (a - a) AS a, y FROM load_view');
SELECT load_rows('SELECT FROM load_view');
SELECT count(*) FROM load_temp;

SELECT count(drop_model(name)) FROM pgtrain.models WHERE name LIKE 'load %';
DROP FUNCTION load_rows;
DROP MATERIALIZED VIEW load_matview;
DROP VIEW load_view;
DROP TABLE load_partitioned;
DROP SCHEMA "Load Sources" CASCADE;
DROP ROLE regress_load;
