-- train_model: what comes back, what is stored, and what it learns.

SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_train;
SET pg_train.report_epochs = off;
RESET client_min_messages;

CREATE TABLE train_row AS
	SELECT i AS id, sin(i)::real AS a, cos(i * 1.7)::real AS b,
		CASE WHEN sin(i) + cos(i * 1.7) > 0.3 THEN 'yes' WHEN sin(i) + cos(i * 1.7) < -0.3 THEN 'no' ELSE 'perhaps' END AS answer,
		(sin(i) + cos(i * 1.7) > 0)::int AS flag, 100 + 3 * sin(i) - 2 * cos(i * 1.7) AS y, (i * 37) % 101 AS code
	FROM generate_series(1, 2000) i;

-- A classification of three classes, a default network
SELECT model, version, rows_used, rows_skipped, epochs, train_loss BETWEEN 0 AND 0.4 AS learned, validation_loss BETWEEN 0 AND 0.4 AS generalised,
	metric, metric_value > 0.9 AS good, device LIKE 'cpu%' AS on_cpu, "precision", effective_batch_size,
	seconds_loading > 0 AS loaded, seconds_training > 0 AS trained, rows_per_second > 0 AS counted
FROM train_model('train answer', 'train_row', 'answer', '{a,b}', epochs => 15, batch_size => 32);
SELECT task, loss, source, target, target_type, classes, features, input_shape, architecture, parameters, options, rows_used, rows_skipped,
	train_rows, validation_rows, seed
FROM pgtrain.versions WHERE model = 'train answer';
SELECT count(*), count(DISTINCT epoch) FROM pgtrain.metrics WHERE model = 'train answer';
SELECT avg((predict_class('train answer', r) = answer)::int) > 0.9 AS good FROM train_row r;

-- A regression
SELECT metric, metric_value > 0.97 AS good FROM train_model('train y', 'train_row', 'y', '{a,b}', epochs => 20, batch_size => 32);
SELECT sqrt(avg((predict('train y', r) - y) ^ 2)) < 0.5 AS good FROM train_row r;
SELECT task, loss, classes, architecture FROM pgtrain.versions WHERE model = 'train y';

-- Integers: few values are classes, many are numbers, and task decides otherwise.
SELECT metric FROM train_model('train int', 'train_row', 'flag', '{a,b}', epochs => 1);
SELECT metric FROM train_model('train int', 'train_row', 'code', '{a,b}', epochs => 1);
SELECT metric FROM train_model('train int', 'train_row', 'flag', '{a,b}', task => 'regression', epochs => 1);
SELECT metric FROM train_model('train int', 'train_row', 'code', '{a,b}', task => 'classification', epochs => 1);
SELECT version, task, loss, cardinality(classes) AS classes, classes[1:3] AS first FROM pgtrain.versions WHERE model = 'train int' ORDER BY version;

-- Where rows are already on their way when a 21st value comes, loading starts over.
CREATE TABLE train_sorted AS SELECT i AS a, CASE WHEN i <= 150000 THEN i % 5 ELSE i END AS y FROM generate_series(1, 150100) i;
SELECT metric, rows_used FROM train_model('train sorted', 'train_sorted', 'y', epochs => 1, batch_size => 4096, validation_fraction => 0);
-- And values that are held back become numbers.
SELECT metric, metric_value > 0.9 AS good FROM train_model('train sorted', 'SELECT 1700000000 + 10 * i AS y, i AS a FROM generate_series(1, 300) i', 'y',
	epochs => 60, batch_size => 16);
SELECT abs(predict('train sorted', r) - (1700000000 + 10 * 150)) < 200 AS near FROM (SELECT 150 AS a) r;

-- Two classes have one output, or two if asked for.
SELECT version FROM train_model('train loss', 'train_row', 'flag', '{a,b}', task => 'classification', epochs => 1);
SELECT version FROM train_model('train loss', 'train_row', 'flag', '{a,b}', loss => 'cross_entropy', epochs => 1);
SELECT version FROM train_model('train loss', 'train_row', 'flag', '{a,b}', loss => 'bce_with_logits', epochs => 1);
SELECT version FROM train_model('train loss', 'train_row', 'flag', '{a,b}', loss => 'smooth_l1', epochs => 1);
SELECT version, task, loss, architecture -> -1 AS output FROM pgtrain.versions WHERE model = 'train loss' ORDER BY version;

-- Optimizers
SELECT metric_value > 0.9 AS good FROM train_model('train sgd', 'train_row', 'flag', '{a,b}', task => 'classification', epochs => 10, batch_size => 32,
	optimizer => 'sgd', learning_rate => 0.05, momentum => 0.9, nesterov => true, weight_decay => 0.0001);
SELECT options - '{task,loss,seed,precision}'::text[] FROM pgtrain.versions WHERE model = 'train sgd';
SELECT metric_value > 0.9 AS good FROM train_model('train adamw', 'train_row', 'flag', '{a,b}', task => 'classification', epochs => 10, batch_size => 32,
	optimizer => 'adamw', betas => '{0.8,0.99}', eps => 1e-7, weight_decay => 0.1, accumulation_steps => 2, stratify => false, standardize => false);
SELECT options - '{task,loss,seed,precision}'::text[] FROM pgtrain.versions WHERE model = 'train adamw';

-- The same seed gives the same weights, bit for bit; another one does not.
SELECT version FROM train_model('train seed', 'train_row', 'y', '{a,b}', epochs => 2, seed => 7);
SELECT version FROM train_model('train seed', 'train_row', 'y', '{a,b}', epochs => 2, seed => 7);
SELECT version FROM train_model('train seed', 'train_row', 'y', '{a,b}', epochs => 2, seed => -8);
SELECT count(*) AS tensors, bool_and(x."values" = y."values") AS same, bool_or(x."values" = z."values") AS same_with_another_seed
FROM model_weights('train seed@1') x JOIN model_weights('train seed@2') y USING (tensor) JOIN model_weights('train seed@3') z USING (tensor);

-- Validation: none, or a source of its own
SELECT validation_loss, metric, metric_value BETWEEN 0 AND 1 AS sensible
FROM train_model('train validation', 'train_row', 'flag', '{a,b}', task => 'classification', epochs => 1, validation_fraction => 0);
SELECT rows_used, validation_loss > 0 AS validated FROM train_model('train validation', 'SELECT * FROM train_row WHERE id <= 1500', 'answer', '{a,b}', epochs => 1,
	validation_source => 'SELECT a, b, answer FROM train_row WHERE id > 1500');
SELECT train_rows, validation_rows, options -> 'validation_source' AS validation_source, options -> 'validation_fraction' AS fraction
FROM pgtrain.versions WHERE model = 'train validation' ORDER BY version;
SELECT count(*) FROM pgtrain.metrics WHERE model = 'train validation' AND version = 1 AND split = 'validation';

-- An epoch is told with INFO.
SET pg_train.report_epochs = on;
\set VERBOSITY sqlstate
DO $$
BEGIN
	PERFORM train_model('train info', 'train_row', 'flag', '{a,b}', task => 'classification', epochs => 1);
END $$;
\set VERBOSITY default
SET pg_train.report_epochs = off;

SELECT count(drop_model(name)) FROM pgtrain.models WHERE name LIKE 'train %';
DROP TABLE train_row, train_sorted;
