-- A session keeps models at hand, and notices when they change: at once in its own transaction, and back when that
-- is rolled back; never in the middle of a query.

SET client_min_messages = warning;
SET pg_train.report_epochs = off;
CREATE EXTENSION IF NOT EXISTS pg_train;

CREATE TABLE predict_cache AS SELECT i AS x, 1.0 * i AS y FROM generate_series(1, 50) i;
SELECT version FROM train_model('predict cache', 'predict_cache', 'y', task => 'regression', epochs => 1, seed => 1);
SELECT version FROM train_model('predict cache', 'predict_cache', 'y', task => 'regression', epochs => 1, seed => 2);

-- Which version does the name stand for?
CREATE FUNCTION predict_which(model text) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(v::text, ',' ORDER BY v) FROM generate_series(1, 3) v
	WHERE CASE WHEN EXISTS (SELECT FROM pgtrain.versions s WHERE s.model = $1 AND s.version = v)
		THEN predict($1, '{7}'::real[]) = predict($1 || '@' || v, '{7}'::real[]) END
$$;
SELECT predict_which('predict cache');

BEGIN;
SELECT deploy_model('predict cache', 1);
SELECT predict_which('predict cache');
SAVEPOINT a;
SELECT deploy_model('predict cache', 2);
SELECT predict_which('predict cache');
ROLLBACK TO a;
SELECT predict_which('predict cache');
ROLLBACK;
SELECT predict_which('predict cache');

-- Trained in a transaction: there at once, and gone with it.
BEGIN;
SELECT version FROM train_model('predict cache', 'predict_cache', 'y', task => 'regression', epochs => 1, seed => 3);
SELECT predict_which('predict cache');
SAVEPOINT a;
SELECT version FROM train_model('predict new', 'predict_cache', 'y', task => 'regression', epochs => 1);
SELECT predict('predict new', '{7}'::real[]) IS NOT NULL AS there;
ROLLBACK TO a;
SELECT predict('predict new', '{7}'::real[]) IS NOT NULL AS there;
ROLLBACK;
SELECT predict_which('predict cache');
SELECT predict('predict cache@3', '{7}'::real[]);

-- A number that was rolled back comes again, with another network.
SELECT version FROM train_model('predict cache', 'predict_cache', 'y', task => 'regression', epochs => 1, seed => 4);
SELECT predict_which('predict cache');

-- Dropped and renamed
BEGIN;
SELECT drop_model('predict cache');
SELECT predict('predict cache', '{7}'::real[]);
ROLLBACK;
SELECT predict_which('predict cache');
SELECT rename_model('predict cache', 'predict other');
SELECT predict_which('predict other');
SELECT predict('predict cache', '{7}'::real[]);
SELECT rename_model('predict other', 'predict cache');

-- A prepared statement notices; a query that has begun goes on with what it began with.
PREPARE predict_now AS SELECT predict('predict cache', '{7}'::real[]) = predict('predict cache@1', '{7}'::real[]) AS first;
EXECUTE predict_now;
SELECT deploy_model('predict cache', 1);
EXECUTE predict_now;
DEALLOCATE predict_now;
BEGIN;
DECLARE c CURSOR FOR SELECT predict('predict cache', ARRAY[x]::real[]) = predict('predict cache@1', ARRAY[x]::real[]) AS first FROM predict_cache;
FETCH c;
SELECT deploy_model('predict cache', 2);
FETCH 3 FROM c;
SELECT predict_which('predict cache');
CLOSE c;
COMMIT;

-- In PL/pgSQL every statement is a query.
DO $$
DECLARE
	y float8;
BEGIN
	FOR v IN REVERSE 3..1 LOOP
		PERFORM deploy_model('predict cache', v);
		y := predict('predict cache', '{7}'::real[]);
		RAISE WARNING 'version % is %', v, y = predict('predict cache@' || v, '{7}'::real[]);
	END LOOP;
END
$$;

-- Nothing kept between queries, and the same answers
SET pg_train.model_cache_size = 0;
SELECT predict_which('predict cache');
SELECT v, bool_and(predict('predict cache@' || v, ARRAY[x]::real[]) IS NOT NULL) FROM generate_series(1, 3) v, predict_cache GROUP BY v ORDER BY v;
RESET pg_train.model_cache_size;
\set VERBOSITY sqlstate
SET pg_train.model_cache_size = '-1';
\set VERBOSITY default
SHOW pg_train.model_cache_size;

SELECT drop_model('predict cache');
DROP TABLE predict_cache;
DROP FUNCTION predict_which;
