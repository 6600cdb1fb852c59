-- demo.sql - train a convolutional network on Fashion-MNIST and score with it; run by scripts/demo.sh with psql, on
-- tables fashion_train and fashion_test (id int, label int, pixels bytea).

\set ON_ERROR_STOP on
\set QUIET on
\pset footer off
SET client_min_messages = 'info';

\echo
\echo 'Training: 60,000 images of 28 x 28, five epochs'
\echo
\o /dev/null
SELECT * FROM train_model('fashion', 'fashion_train', 'label', features => '{pixels}', input_shape => '{1,28,28}',
	architecture => '[{"conv2d": {"out": 32, "kernel": 3, "padding": 1}}, "relu", {"maxpool2d": 2},
					  {"conv2d": {"out": 64, "kernel": 3, "padding": 1}}, "relu", {"maxpool2d": 2},
					  "flatten", {"linear": 256}, "relu", {"dropout": 0.5}]',
	epochs => 5, batch_size => 256, amp => 'bf16')
\gset trained_
\o
\echo
\echo 'What came of it'
\echo
\x on
SELECT :'trained_model' AS model, :trained_version AS version, :trained_rows_used AS rows_used,
	:trained_epochs AS epochs, round(:trained_train_loss::numeric, 4) AS train_loss,
	round(:trained_validation_loss::numeric, 4) AS validation_loss, :'trained_metric' AS metric,
	round(:trained_metric_value::numeric, 4) AS metric_value, :'trained_device' AS device,
	:'trained_precision' AS precision, round(:trained_seconds_loading::numeric, 2) AS seconds_loading,
	round(:trained_seconds_training::numeric, 2) AS seconds_training,
	round(:trained_rows_per_second::numeric) AS rows_per_second;
\x off

\echo 'Its layers'
\echo
SELECT layer, kind, output_shape, parameters FROM describe_model('fashion');

\echo 'On 10,000 images that it has not seen'
\echo
SELECT metric, round(value::numeric, 4) AS value FROM evaluate_model('fashion', 'fashion_test');

\echo 'What was taken for what (rows: what it is, columns: what was predicted)'
\echo
SELECT c.name AS actual,
	sum(m.count) FILTER (WHERE m.predicted = '0') AS "T-shirt",
	sum(m.count) FILTER (WHERE m.predicted = '1') AS "trouser",
	sum(m.count) FILTER (WHERE m.predicted = '2') AS "pullover",
	sum(m.count) FILTER (WHERE m.predicted = '3') AS "dress",
	sum(m.count) FILTER (WHERE m.predicted = '4') AS "coat",
	sum(m.count) FILTER (WHERE m.predicted = '5') AS "sandal",
	sum(m.count) FILTER (WHERE m.predicted = '6') AS "shirt",
	sum(m.count) FILTER (WHERE m.predicted = '7') AS "sneaker",
	sum(m.count) FILTER (WHERE m.predicted = '8') AS "bag",
	sum(m.count) FILTER (WHERE m.predicted = '9') AS "boot"
FROM confusion_matrix('fashion', 'fashion_test') m JOIN fashion_class c ON c.label = m.actual::int
GROUP BY c.label, c.name
ORDER BY c.label;

\echo 'A few rows scored'
\echo
SELECT t.id, a.name AS actual, p.name AS predicted, round(s.probability::numeric, 3) AS probability
FROM fashion_test t
	CROSS JOIN LATERAL (SELECT predict('fashion', t)::int AS label) y
	CROSS JOIN LATERAL (SELECT max(q) AS probability FROM unnest(predict_proba('fashion', t)) q) s
	JOIN fashion_class a ON a.label = t.label
	JOIN fashion_class p ON p.label = y.label
WHERE t.id <= 8
ORDER BY t.id;
