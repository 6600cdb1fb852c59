-- Training is part of its transaction, and leaves nothing behind however it ends.

SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_train;
SET pg_train.report_epochs = off;
CREATE TABLE train_row AS SELECT sin(i) AS a, i % 2 = 0 AS y FROM generate_series(1, 200) i;

-- No engine process, no shared memory of one
CREATE FUNCTION train_leftovers() RETURNS text LANGUAGE sql AS $$
	SELECT concat_ws(', ', CASE WHEN pg_read_file(format('/proc/%s/task/%s/children', pg_backend_pid(), pg_backend_pid())) <> '' THEN 'a process' END,
		CASE WHEN pg_read_file(format('/proc/%s/maps', pg_backend_pid())) LIKE '%pg_train ring%' THEN 'a mapping' END) $$;
SELECT version FROM train_model('train transaction', 'train_row', 'y', epochs => 1);
SELECT train_leftovers();

-- Visible here at once, gone after a rollback
BEGIN;
SELECT version FROM train_model('train transaction', 'train_row', 'y', epochs => 1);
SELECT deployed_version FROM pgtrain.models WHERE name = 'train transaction';
SELECT predict_class('train transaction@2', r) IS NOT NULL AS scored FROM train_row r LIMIT 1;
ROLLBACK;
SELECT deployed_version FROM pgtrain.models WHERE name = 'train transaction';
BEGIN;
SAVEPOINT s;
SELECT version FROM train_model('train savepoint', 'train_row', 'y', epochs => 1);
ROLLBACK TO s;
SELECT count(*) FROM pgtrain.models WHERE name = 'train savepoint';
SELECT version FROM train_model('train savepoint', 'train_row', 'y', epochs => 1);
COMMIT;
SELECT count(*) FROM pgtrain.models WHERE name = 'train savepoint';

-- A transaction that failed has no engine any more, even before it is rolled back.
CREATE FUNCTION train_fail_at(n int, i int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	IF i = n THEN
		RAISE 'row % fails', n USING HINT = train_leftovers();
	END IF;
	RETURN i;
END $$;
BEGIN;
SELECT version FROM train_model('train failed', 'SELECT train_fail_at(30000, i) AS a, i % 2 AS y FROM generate_series(1, 200000) i', 'y', task => 'classification');
ROLLBACK;
SELECT train_leftovers();

-- Exception blocks: an error of the engine, of a row, of the source, a timeout while loading and while training
CREATE FUNCTION train_try(source text, learning_rate float8 = 0.001, optimizer text = 'adam', epochs int = 1, task text = 'classification') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	message text;
BEGIN
	BEGIN
		PERFORM train_model('train failed', source, 'y', task => train_try.task, learning_rate => train_try.learning_rate, optimizer => train_try.optimizer, epochs => train_try.epochs,
			architecture => '[{"linear": 64}, "relu"]', batch_size => 16);
		RETURN 'trained';
	EXCEPTION WHEN OTHERS OR query_canceled THEN
		GET STACKED DIAGNOSTICS message = MESSAGE_TEXT;
	END;
	RETURN concat_ws('; left: ', message, nullif(train_leftovers(), ''));
END $$;
SELECT regexp_replace(train_try('SELECT i AS a, 1e6 * cos(i) AS y FROM generate_series(1, 500) i', epochs => 50, optimizer => 'sgd', learning_rate => 1000, task => 'regression'), 'epoch \d+ at step \d+', 'epoch N at step N');
SELECT train_try('SELECT CASE WHEN i = 100000 THEN ''NaN''::float8 ELSE i END AS a, i % 2 AS y FROM generate_series(1, 200000) i');
SELECT train_try('SELECT train_fail_at(100000, i) AS a, i % 2 AS y FROM generate_series(1, 200000) i');
SET statement_timeout = '500ms';
SELECT train_try('SELECT i AS a, i % 2 AS y FROM generate_series(1, 1000) i WHERE pg_sleep(0.01) IS NOT NULL');
SELECT train_try('SELECT i AS a, i % 2 AS y FROM generate_series(1, 20000) i', epochs => 1000000);
RESET statement_timeout;
SELECT train_try('train_row');

-- A source that trains: each training has its own engine.
CREATE FUNCTION train_inside() RETURNS float8 LANGUAGE plpgsql AS $$
BEGIN
	BEGIN
		PERFORM train_model('train inside', 'train_row', 'yy');
	EXCEPTION WHEN undefined_column THEN
		NULL;
	END;
	RETURN (SELECT train_loss FROM train_model('train inside', 'train_row', 'y', epochs => 1));
END $$;
SELECT version FROM train_model('train outside', 'SELECT a, y, (SELECT train_inside()) AS loss FROM train_row', 'y', epochs => 1);
SELECT name FROM pgtrain.models WHERE name ~ 'side$' ORDER BY 1;
SELECT train_leftovers();

-- Threads are a setting, and part of the device.
SET pg_train.cpu_threads = 1;
SELECT device ~ '1 thread' AS one FROM train_model('train threads', 'train_row', 'y', epochs => 1);
SET pg_train.cpu_threads = -1;
-- release 14 knows no reserved prefixes
DO $$
BEGIN
	SET pg_train.nothing = 1;
	ASSERT current_setting('server_version_num')::int < 150000, 'a setting that nobody declared was accepted';
EXCEPTION WHEN invalid_name THEN
	NULL;
END $$;
RESET pg_train.cpu_threads;

-- bf16 where the processor has it, else fp32
SELECT "precision" IN ('bf16', 'fp32') AS sensible FROM train_model('train bf16', 'train_row', 'y', amp => 'bf16', epochs => 1);
SELECT v.precision = t.precision AS stored FROM train_model('train bf16', 'train_row', 'y', amp => 'auto', epochs => 1) t, pgtrain.versions v WHERE v.model = 'train bf16' AND v.version = 1;

SELECT count(drop_model(name)) FROM pgtrain.models WHERE name LIKE 'train %';
DROP FUNCTION train_leftovers, train_fail_at, train_try, train_inside;
DROP TABLE train_row;
