-- Scoring in batches: where a plan gets a batch node, what EXPLAIN says of it, and that results are those of one at a time.

SET client_min_messages = warning;
SET pg_train.report_epochs = off;
CREATE EXTENSION IF NOT EXISTS pg_train;
SET max_parallel_workers_per_gather = 0;
SET jit = off;

CREATE TABLE batch_row AS
	SELECT i AS id, ((i % 13) / 13.0)::real AS a, (i % 5)::real AS b, i % 3 AS k, 'note ' || i AS note, (2 * (i % 13) - (i % 5))::float8 AS y,
		(ARRAY['low', 'high', 'top'])[1 + (i % 13) / 5] AS class
	FROM generate_series(1, 3000) i;
CREATE TABLE batch_other AS SELECT id, a AS weight FROM batch_row WHERE id % 10 = 0;
ANALYZE batch_row, batch_other;
-- Networks whose sums are rounded alike one at a time and in batches
SELECT version FROM train_model('batch value', 'batch_row', 'y', task => 'regression', features => '{a,b}', architecture => '["flatten"]', epochs => 3);
SELECT version FROM train_model('batch class', 'batch_row', 'class', features => '{a,b}', architecture => '["flatten"]', epochs => 20);

-- Run a query with the setting on and off: is there a batch node, how many rows, and are they the same?
CREATE FUNCTION batch_compare(query text, OUT batched boolean, OUT rows bigint, OUT same boolean) LANGUAGE plpgsql AS $$
DECLARE
	line text;
	on_rows text[] := '{}';
	off_rows text[] := '{}';
BEGIN
	batched := false;
	SET LOCAL pg_train.batch_scoring = on;
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
		batched := batched OR line LIKE '%PredictBatch%';
	END LOOP;
	EXECUTE 'SELECT array_agg(q::text) FROM (' || query || ') q' INTO on_rows;
	SET LOCAL pg_train.batch_scoring = off;
	EXECUTE 'SELECT array_agg(q::text) FROM (' || query || ') q' INTO off_rows;
	rows := cardinality(on_rows);
	same := on_rows IS NOT DISTINCT FROM off_rows;
	SET LOCAL pg_train.batch_scoring = on;
END
$$;
-- What EXPLAIN (ANALYZE) says of batch nodes
CREATE FUNCTION batch_explain(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) ' || query LOOP
		IF line ~ '(PredictBatch|Calls|Model|Batch Size|Device|Batches|Rows Scored|Removed)' THEN
			RETURN NEXT regexp_replace(line, ' *\(actual.*', '');
		END IF;
	END LOOP;
END
$$;

-- The first statement of a session is batched already: the library is loaded while it is planned.
\c -
SET client_min_messages = warning;
SET pg_train.report_epochs = off;
SET max_parallel_workers_per_gather = 0;
SET jit = off;
EXPLAIN (COSTS OFF) SELECT id, predict('batch value', r) FROM batch_row r;
SHOW pg_train.batch_scoring;

-- Target lists, quals, both
EXPLAIN (COSTS OFF, VERBOSE) SELECT id, predict('batch value', r) AS y FROM batch_row r;
EXPLAIN (COSTS OFF, VERBOSE) SELECT id FROM batch_row r WHERE k = 1 AND predict_class('batch class', r) = 'top' AND length(note) > 6;
EXPLAIN (COSTS OFF, VERBOSE) SELECT id, predict('batch value', r) FROM batch_row r WHERE predict('batch value', r) > 5;
EXPLAIN (COSTS OFF) SELECT id FROM batch_row r WHERE predict('batch value', r) > 5 AND predict_class('batch class', r) = 'top' ORDER BY predict('batch value', r), id LIMIT 3;
SELECT batch_compare('SELECT id, predict(''batch value'', r) AS y FROM batch_row r');
SELECT batch_compare('SELECT id, predict_class(''batch class'', r) AS c, predict_proba(''batch class'', r) AS p FROM batch_row r');
SELECT batch_compare('SELECT id FROM batch_row r WHERE k = 1 AND predict_class(''batch class'', r) = ''top'' AND length(note) > 6');
SELECT batch_compare('SELECT id, predict(''batch value'', ARRAY[a, b]) AS y FROM batch_row r WHERE predict(''batch value'', r) > 5 ORDER BY 2, 1');
SELECT batch_compare('SELECT id, predict(''batch value'', q) AS y FROM (SELECT id, b * 2 AS b, a FROM batch_row r OFFSET 0) q');
SELECT batch_compare('SELECT id, predict(''batch value'', q) AS y FROM (SELECT id, b * 2 AS b, a FROM batch_row r) q');
SELECT batch_compare('SELECT predict(''batch value'', v) AS y FROM (VALUES (0.5, 1), (0.25, 2), (NULL, 3)) v (a, b)');
SELECT batch_compare('WITH w AS MATERIALIZED (SELECT id, a, b FROM batch_row) SELECT id, predict(''batch value'', w) AS y FROM w');

-- Aggregates and windows read results as columns of their input.
EXPLAIN (COSTS OFF, VERBOSE) SELECT count(*) FILTER (WHERE predict_class('batch class', r) = 'top'), avg(predict('batch value', r)) FROM batch_row r;
EXPLAIN (COSTS OFF) SELECT predict_class('batch class', r), count(*) FROM batch_row r GROUP BY 1;
EXPLAIN (COSTS OFF, VERBOSE) SELECT sum(predict('batch value', r)) FILTER (WHERE k = 1) FROM batch_row r;
SELECT batch_compare('SELECT count(*) FILTER (WHERE predict_class(''batch class'', r) = ''top''), avg(predict(''batch value'', r)) FROM batch_row r');
SELECT batch_compare('SELECT predict_class(''batch class'', r) AS c, count(*), max(predict(''batch value'', r)) FROM batch_row r GROUP BY 1 ORDER BY 1');
SELECT batch_compare('SELECT k, sum(predict(''batch value'', r)) FILTER (WHERE b > 2) FROM batch_row r GROUP BY k ORDER BY k');
SELECT batch_compare('SELECT id, rank() OVER (ORDER BY predict(''batch value'', r)), lag(predict(''batch value'', r)) OVER (ORDER BY id) FROM batch_row r ORDER BY id');
SELECT batch_compare('SELECT k, predict(''batch value'', ARRAY[avg(a), avg(b)]::real[]) FROM batch_row GROUP BY k ORDER BY k');

-- Calls that are not reached for every row are worked out where they are.
EXPLAIN (COSTS OFF, VERBOSE) SELECT id, CASE WHEN k = 1 THEN predict('batch value', r) ELSE 0 END FROM batch_row r;
SELECT batch_compare('SELECT id, CASE k WHEN 0 THEN predict(''batch value'', r) WHEN 1 THEN b ELSE predict(''batch value'', ARRAY[1 / (k - 1), b]::real[]) END AS y FROM batch_row r');
SELECT batch_compare('SELECT id, coalesce(nullif(a, 0), predict(''batch value'', r)) AS y FROM batch_row r WHERE k = 0 OR predict(''batch value'', ARRAY[1 / k, b]::real[]) > 0');
SELECT batch_compare('SELECT id, predict(''batch value'', ARRAY[predict(''batch value'', r), b]::real[]) AS y FROM batch_row r');

-- Joins: the row's columns go through them one by one.
EXPLAIN (COSTS OFF, VERBOSE) SELECT o.weight, predict('batch value', r) FROM batch_row r JOIN batch_other o USING (id);
SELECT batch_compare('SELECT r.id, o.weight, predict(''batch value'', r) AS y FROM batch_row r JOIN batch_other o USING (id) ORDER BY 1');
SELECT batch_compare('SELECT r.id, predict(''batch value'', ARRAY[o.weight, r.b]) AS y FROM batch_row r LEFT JOIN batch_other o USING (id) ORDER BY 1');
SELECT batch_compare('SELECT r.id FROM batch_row r JOIN batch_other o ON r.id = o.id AND predict(''batch value'', ARRAY[o.weight, r.b]) > 3 ORDER BY 1');
SELECT batch_compare('SELECT o.id, predict(''batch value'', r) IS NULL AS none FROM batch_other o LEFT JOIN batch_row r ON r.id = o.id AND r.k = 1 ORDER BY 1');

-- One row, a model from a column, a volatile input, nothing to score: as ever
EXPLAIN (COSTS OFF) SELECT predict('batch value', ARRAY[1, 2]);
EXPLAIN (COSTS OFF) SELECT predict(m, r) FROM batch_row r, (VALUES ('batch value'), ('batch value@1')) v (m);
EXPLAIN (COSTS OFF) SELECT predict('batch value', ARRAY[random(), b]::real[]) FROM batch_row r;
SELECT batch_compare('SELECT id, predict(m, r) AS y FROM batch_row r, (VALUES (''batch value''), (''batch value@1'')) v (m) ORDER BY id, m');
SELECT count(predict(NULL, r)), count(predict('batch value', NULL::batch_row)) FROM batch_row r;
SELECT predict('no such model', r) FROM batch_row r WHERE id < 0;

-- Batches grow, end at LIMIT, and fit work_mem.
SELECT batch_explain('SELECT id, predict(''batch value'', r) FROM batch_row r');
SELECT batch_explain('SELECT id, predict(''batch value'', r) FROM batch_row r LIMIT 20');
SELECT batch_explain('SELECT id FROM batch_row r WHERE predict_class(''batch class'', r) = ''no class'' LIMIT 2');
CREATE TABLE batch_wide AS SELECT i AS id, array_fill(i % 10, ARRAY[200])::real[] AS v, (i % 10)::float8 AS y FROM generate_series(1, 500) i;
SELECT version FROM train_model('batch wide', 'batch_wide', 'y', features => '{v}', architecture => '["flatten"]', epochs => 1);
SET work_mem = '64kB';
SELECT batch_explain('SELECT id, predict(''batch wide'', r) FROM batch_wide r');
SELECT batch_explain('SELECT id, v, v AS w, predict(''batch wide'', v) FROM batch_wide r');
SELECT batch_compare('SELECT id, v, predict(''batch wide'', r) AS y FROM batch_wide r');
RESET work_mem;
SELECT id, predict('batch value', r) IS NOT NULL AS scored FROM batch_row r ORDER BY a DESC, id LIMIT 3;

-- A row that cannot be scored fails when it is its turn, and not before.
CREATE TABLE batch_bad AS SELECT id, a, CASE WHEN id = 30 THEN 'infinity' ELSE b END AS b FROM batch_row WHERE id <= 100 ORDER BY id;
SELECT count(y) FROM (SELECT predict('batch value', r) AS y FROM batch_bad r LIMIT 29) q;
SELECT count(y) FROM (SELECT predict('batch value', r) AS y FROM batch_bad r LIMIT 30) q;
SELECT count(predict('batch value', r)) FROM batch_bad r WHERE id <> 30;
SELECT count(*) FROM batch_bad r WHERE predict('batch value', r) IS NULL;
SELECT count(CASE WHEN b < 100 THEN predict('batch value', r) END) FROM batch_bad r;
SELECT predict_proba('batch value', r) FROM batch_bad r;
SELECT predict('batch class', r) FROM batch_bad r;
SELECT predict('batch value', q) FROM (SELECT a, note FROM batch_row OFFSET 0) q;
SELECT predict('batch value', ARRAY[a]) FROM batch_bad;
BEGIN;
DECLARE c CURSOR FOR SELECT id, predict('batch value', r) IS NOT NULL AS scored FROM batch_bad r;
MOVE 28 FROM c;
FETCH 1 FROM c;
FETCH 1 FROM c;
ROLLBACK;

-- Cursors go back, and hold.
BEGIN;
DECLARE c CURSOR FOR SELECT id, predict('batch value', r) IS NOT NULL AS scored FROM batch_row r;
FETCH 2 FROM c;
FETCH BACKWARD 1 FROM c;
FETCH ABSOLUTE 2000 FROM c;
DECLARE s SCROLL CURSOR FOR SELECT id, predict('batch value', r) IS NOT NULL AS scored FROM batch_row r WHERE id > 2990 ORDER BY id;
FETCH LAST FROM s;
FETCH PRIOR FROM s;
DECLARE n NO SCROLL CURSOR WITH HOLD FOR SELECT id, predict('batch value', r) IS NOT NULL AS scored FROM batch_row r WHERE id > 2990 ORDER BY id;
FETCH 1 FROM n;
COMMIT;
FETCH 1 FROM n;
CLOSE n;

-- Writing
CREATE TABLE batch_score AS SELECT id, predict('batch value', r) AS y FROM batch_row r;
SELECT count(*), bool_and(s.y = predict('batch value', ARRAY[r.a, r.b])) AS same FROM batch_score s JOIN batch_row r USING (id);
INSERT INTO batch_score SELECT -id, predict('batch value', r) FROM batch_row r;
UPDATE batch_row SET y = predict('batch value', batch_row) WHERE predict_class('batch class', batch_row) = 'top';
SELECT count(*) > 0 AS some, bool_and(r.y = s.y) AS same FROM batch_row r JOIN batch_score s USING (id) WHERE predict_class('batch class', r) = 'top';
DELETE FROM batch_score s USING batch_row r WHERE r.id = s.id AND predict('batch value', r) > 5;
SELECT count(*) FROM batch_score s JOIN batch_row r USING (id) WHERE predict('batch value', r) > 5;

-- Prepared statements follow the setting, and take the model from a parameter.
PREPARE batch_prepared(text) AS SELECT id, predict($1, r) FROM batch_row r;
SET plan_cache_mode = force_generic_plan;
EXPLAIN (COSTS OFF) EXECUTE batch_prepared('batch value');
SET pg_train.batch_scoring = off;
EXPLAIN (COSTS OFF) EXECUTE batch_prepared('batch value');
SET pg_train.batch_scoring = on;
EXPLAIN (COSTS OFF) EXECUTE batch_prepared('batch value');
RESET plan_cache_mode;
DEALLOCATE batch_prepared;

-- A query ends with the version that it began with, and the next has the new one.
BEGIN;
DECLARE c CURSOR FOR SELECT predict('batch value', r) = predict('batch value@1', r) AS first FROM batch_row r;
FETCH 1 FROM c;
SELECT version FROM train_model('batch value', 'batch_row', 'y', task => 'regression', features => '{a,b}', architecture => '["flatten"]', epochs => 1, seed => 2);
MOVE 2000 FROM c;
FETCH 1 FROM c;
CLOSE c;
SELECT count(*) FROM batch_row r WHERE predict('batch value', r) = predict('batch value@2', r);
ROLLBACK;

-- Who may execute the function and use the model
CREATE ROLE batch_reader;
GRANT SELECT ON batch_row TO batch_reader;
SET ROLE batch_reader;
SELECT count(predict('batch value', r)) FROM batch_row r;
RESET ROLE;
SELECT grant_model('batch value', 'batch_reader');
SET ROLE batch_reader;
SELECT count(predict('batch value', r)) FROM batch_row r;
RESET ROLE;
REVOKE EXECUTE ON FUNCTION predict(text, record) FROM PUBLIC;
SET ROLE batch_reader;
SELECT count(predict('batch value', r)) FROM batch_row r;
EXPLAIN (COSTS OFF) SELECT id, predict('batch value', r) FROM batch_row r;
RESET ROLE;
GRANT EXECUTE ON FUNCTION predict(text, record) TO PUBLIC;

-- Row security and security barriers keep their order: nothing is scored, nor told by an error, that a policy hides.
ALTER TABLE batch_bad ENABLE ROW LEVEL SECURITY;
CREATE POLICY batch_policy ON batch_bad USING (id < 30);
GRANT SELECT ON batch_bad TO batch_reader;
CREATE VIEW batch_view WITH (security_barrier) AS SELECT * FROM batch_bad WHERE id < 25;
GRANT SELECT ON batch_view TO batch_reader;
SET ROLE batch_reader;
SELECT count(*) FROM batch_bad r WHERE predict('batch value', r) IS NOT NULL;
SELECT count(*) FROM batch_view r WHERE predict('batch value', r) IS NOT NULL;
EXPLAIN (COSTS OFF) SELECT count(*) FROM batch_bad r WHERE predict('batch value', r) IS NOT NULL;
RESET ROLE;

-- A function with settings of its own runs through its wrapper.
ALTER FUNCTION predict(text, record) SET work_mem = '1MB';
EXPLAIN (COSTS OFF) SELECT id, predict('batch value', r) FROM batch_row r;
ALTER FUNCTION predict(text, record) RESET work_mem;
EXPLAIN (COSTS OFF) SELECT id, predict('batch value', r) FROM batch_row r;

-- In parallel workers
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET max_parallel_workers_per_gather = 2;
EXPLAIN (COSTS OFF) SELECT sum(predict('batch value', r)) FROM batch_row r;
SELECT batch_compare('SELECT count(*), round(sum(predict(''batch value'', r))::numeric, 3) FROM batch_row r WHERE predict(''batch value'', r) > 0');
SELECT count(*) FROM batch_explain('SELECT sum(predict(''batch value'', r)) FROM batch_row r') line WHERE line ~ 'Rows Scored: 3000$';
RESET parallel_setup_cost;
RESET parallel_tuple_cost;
RESET min_parallel_table_scan_size;
SET max_parallel_workers_per_gather = 0;

-- Reading ahead calls no volatile function for a row that is not asked for.
CREATE SEQUENCE batch_calls;
SELECT id, predict('batch value', q) IS NOT NULL AS scored FROM (SELECT nextval('batch_calls') AS n, * FROM batch_row OFFSET 0) q LIMIT 2;
SELECT last_value FROM batch_calls;

-- Rescans and mark and restore
SELECT batch_compare('SELECT o.id, (SELECT sum(predict(''batch value'', r)) FROM batch_row r WHERE r.id BETWEEN o.id AND o.id + 40) FROM batch_other o WHERE o.id < 200 ORDER BY 1');
SET enable_hashjoin = off;
SET enable_nestloop = off;
SELECT batch_compare('SELECT count(*), round(sum(p.y - q.y)::numeric, 3) FROM (SELECT k, predict(''batch value'', r) AS y FROM batch_row r WHERE id <= 60 ORDER BY k OFFSET 0) p JOIN (SELECT k, predict(''batch value'', r) AS y FROM batch_row r WHERE id <= 90 ORDER BY k OFFSET 0) q USING (k)');
RESET enable_hashjoin;
RESET enable_nestloop;

SET pg_train.batch_scoring = 'perhaps';

SELECT drop_model('batch value'), drop_model('batch class'), drop_model('batch wide');
DROP VIEW batch_view;
DROP TABLE batch_row, batch_other, batch_bad, batch_score, batch_wide;
DROP SEQUENCE batch_calls;
DROP FUNCTION batch_compare, batch_explain;
DROP ROLE batch_reader;
