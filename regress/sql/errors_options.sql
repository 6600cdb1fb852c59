-- Every wrong argument of train_model is refused at once, by name.

SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_train;
SET pg_train.report_epochs = off;

-- None of these trains: the source does not exist, which would be found later.
SELECT train_model(NULL, 'nothing', 'y');
SELECT train_model('errors', NULL, 'y');
SELECT train_model('errors', 'nothing', NULL);
SELECT train_model('errors', 'nothing', 'y', validation_fraction => NULL);
SELECT train_model('errors', 'nothing', 'y', stratify => NULL);
SELECT train_model('errors', 'nothing', 'y', epochs => NULL);
SELECT train_model('errors', 'nothing', 'y', optimizer => NULL);
SELECT train_model('errors', 'nothing', 'y', amp => NULL);
SELECT train_model('errors', 'nothing', 'y', seed => NULL);
SELECT train_model('errors', 'nothing', 'y', epoch => 3);

SELECT train_model('errors', 'nothing', 'y', features => '{}');
SELECT train_model('errors', 'nothing', 'y', features => '{a,NULL}');
SELECT train_model('errors', 'nothing', 'y', features => '{a,b,a}');
SELECT train_model('errors', 'nothing', 'y', features => '{a,y}');
SELECT train_model('errors', 'nothing', 'y', task => 'clasification');
SELECT train_model('errors', 'nothing', 'y', task => 'clustering');
SELECT train_model('errors', 'nothing', 'y', input_shape => '{28,28}');
SELECT train_model('errors', 'nothing', 'y', input_shape => '{1,28,0}');
SELECT train_model('errors', 'nothing', 'y', input_shape => '{1,28,NULL}');
SELECT train_model('errors', 'nothing', 'y', input_shape => '{}');
SELECT train_model('errors', 'nothing', 'y', validation_fraction => 1);
SELECT train_model('errors', 'nothing', 'y', validation_fraction => -0.1);
SELECT train_model('errors', 'nothing', 'y', validation_fraction => 'NaN');
SELECT train_model('errors', 'nothing', 'y', epochs => 0);
SELECT train_model('errors', 'nothing', 'y', batch_size => -1);
SELECT train_model('errors', 'nothing', 'y', batch_size => 1000001);
SELECT train_model('errors', 'nothing', 'y', accumulation_steps => 0);
SELECT train_model('errors', 'nothing', 'y', batch_size => 1000000, accumulation_steps => 1000000);
SELECT train_model('errors', 'nothing', 'y', optimizer => 'Adam');
SELECT train_model('errors', 'nothing', 'y', optimizer => 'rmsprop');
SELECT train_model('errors', 'nothing', 'y', learning_rate => 0);
SELECT train_model('errors', 'nothing', 'y', learning_rate => 'NaN');
SELECT train_model('errors', 'nothing', 'y', momentum => 0.9);
SELECT train_model('errors', 'nothing', 'y', optimizer => 'adamw', nesterov => true);
SELECT train_model('errors', 'nothing', 'y', optimizer => 'sgd', momentum => 1);
SELECT train_model('errors', 'nothing', 'y', optimizer => 'sgd', nesterov => true);
SELECT train_model('errors', 'nothing', 'y', optimizer => 'sgd', betas => '{0.9,0.99}');
SELECT train_model('errors', 'nothing', 'y', optimizer => 'sgd', eps => 1e-8);
SELECT train_model('errors', 'nothing', 'y', betas => '{0.9}');
SELECT train_model('errors', 'nothing', 'y', betas => '{0.9,1}');
SELECT train_model('errors', 'nothing', 'y', eps => 0);
SELECT train_model('errors', 'nothing', 'y', weight_decay => -1);
SELECT train_model('errors', 'nothing', 'y', max_grad_norm => 0);
SELECT train_model('errors', 'nothing', 'y', max_grad_norm => 'NaN');
SELECT train_model('errors', 'nothing', 'y', loss => 'cross-entropy');
SELECT train_model('errors', 'nothing', 'y', loss => 'hinge');
SELECT train_model('errors', 'nothing', 'y', loss => 'mse', task => 'classification');
SELECT train_model('errors', 'nothing', 'y', loss => 'cross_entropy', task => 'regression');
SELECT train_model('errors', 'nothing', 'y', amp => 'bf61');
SELECT train_model('errors', 'nothing', 'y', device => 'cuda:');
SELECT train_model('errors', 'nothing', 'y', device => 'cuda:one');
SELECT train_model('errors', 'nothing', 'y', device => 'cuda1');
SELECT train_model('errors', 'nothing', 'y', device => 'cpuu');
SELECT train_model('errors', 'nothing', 'y', device => 'tpu');
SELECT train_model('errors', 'nothing', 'y', null_policy => 'ignore');
SELECT train_model('errors', 'nothing', 'y', null_policy => 'skipp');

-- Names
SELECT train_model('', 'nothing', 'y');
SELECT train_model('errors@1', 'nothing', 'y');
SELECT train_model('errors', 'nothing', 'y');

-- Columns
CREATE TABLE errors_row AS SELECT i AS amount, i::text AS note, now() AS at, i % 2 = 0 AS good, i::float8 AS price, i AS code, point(i, i) AS place FROM generate_series(1, 30) i;
SELECT train_model('errors', 'errors_row', 'god');
SELECT train_model('errors', 'errors_row', 'nothing_like_it');
SELECT train_model('errors', 'errors_row', 'good');
SELECT train_model('errors', 'errors_row', 'good', '{amuont}');
SELECT train_model('errors', 'errors_row', 'good', '{amount,at}');
SELECT train_model('errors', 'errors_row', 'at', '{amount}');
SELECT train_model('errors', 'errors_row', 'place', '{amount}');
SELECT train_model('errors', 'errors_row', 'note', '{amount}', task => 'regression');
SELECT train_model('errors', 'errors_row', 'good', '{amount}', task => 'regression');
SELECT train_model('errors', 'errors_row', 'good', '{amount}', loss => 'mse');
SELECT train_model('errors', 'errors_row', 'price', '{amount}', loss => 'bce_with_logits');
SELECT train_model('errors', 'errors_row', 'code', '{amount}', loss => 'bce_with_logits');
SELECT train_model('errors', 'SELECT good FROM errors_row', 'good');
SELECT train_model('errors', 'SELECT amount, code AS amount, good FROM errors_row', 'good');
SELECT train_model('errors', 'SELECT amount, good, price::int AS good FROM errors_row', 'good');
SELECT train_model('errors', 'errors_row', 'good', '{amount}', validation_source => 'errors_rows');
SELECT train_model('errors', 'errors_row', 'good', '{amount}', validation_source => 'SELECT good, amount AS amounts FROM errors_row');
SELECT train_model('errors', 'errors_row', 'good', '{amount}', validation_source => 'SELECT good, ''1'' AS amount FROM errors_row');
SELECT train_model('errors', 'errors_row', 'good', '{amount}', validation_source => 'SELECT amount FROM errors_row');
SELECT train_model('errors', 'errors_row', 'good', '{amount}', validation_source => 'SELECT amount, 1 AS good FROM errors_row');
SELECT train_model('errors', 'errors_row', 'price', '{amount}', validation_source => 'SELECT amount, ''1'' AS price FROM errors_row');

-- Where training cannot be
BEGIN READ ONLY;
SELECT train_model('errors', 'errors_row', 'good', '{amount}');
ROLLBACK;

-- Nothing was trained, and no engine is left.
SELECT count(*) FROM pgtrain.models WHERE name LIKE 'errors%';
SELECT pg_read_file(format('/proc/%s/task/%s/children', pg_backend_pid(), pg_backend_pid())) = '' AS childless;
DROP TABLE errors_row;
