-- What a model is made of: its layers and tensors, as PyTorch would name them.

SET client_min_messages = warning;
SET pg_train.report_epochs = off;
CREATE EXTENSION IF NOT EXISTS pg_train;

CREATE TABLE manage_image AS
	SELECT i % 3 AS label, decode(string_agg(lpad(to_hex((i * j * 37 + j) % 256), 2, '0'), ''), 'hex') AS pixels
	FROM generate_series(1, 60) i, generate_series(1, 64) j GROUP BY i;
SELECT version FROM train_model('manage image', 'manage_image', 'label', task => 'classification', input_shape => '{1,8,8}', epochs => 1,
	architecture => '[{"conv2d": {"out": 4, "kernel": 3, "padding": 1}}, {"batchnorm": {}}, "relu", {"maxpool2d": 2},
					  {"residual": [{"conv2d": {"out": 4, "kernel": 3, "padding": 1, "bias": false}}, "gelu"]},
					  "flatten", {"linear": 8}, {"layernorm": {}}, "tanh", {"dropout": 0.25}]');
SELECT * FROM describe_model('manage image');
SELECT tensor, shape, cardinality("values") AS "values" FROM model_weights('manage image');
SELECT (SELECT sum(parameters) FROM describe_model('manage image')) = v.parameters AS all_counted,
	(SELECT sum(cardinality("values")) FROM model_weights('manage image') WHERE tensor NOT LIKE '%running%') = v.parameters AS all_stored
FROM pgtrain.versions v WHERE v.model = 'manage image';

-- A tensor of more than one chunk comes back whole.
CREATE TABLE manage_wide AS SELECT array_agg((i * j % 10)::real ORDER BY j) AS v, i * 1.0::float8 AS y
	FROM generate_series(1, 8) i, generate_series(1, 2100) j GROUP BY i;
SELECT version FROM train_model('manage wide', 'manage_wide', 'y', epochs => 1, validation_fraction => 0, architecture => '[{"linear": 2100}, "relu"]');
SELECT w.tensor, count(*) AS chunks, sum(octet_length(w.data)) AS bytes FROM pgtrain.weight w
	JOIN pgtrain.model m USING (model_id) WHERE m.name = 'manage wide' GROUP BY w.position, w.tensor ORDER BY w.position;
SELECT tensor, shape, cardinality("values") AS "values" FROM model_weights('manage wide');
SELECT count(predict('manage wide', w)) FROM manage_wide w;

-- Damage is noticed.
BEGIN;
DELETE FROM pgtrain.weight w USING pgtrain.model m WHERE m.model_id = w.model_id AND m.name = 'manage wide' AND w.chunk = 1;
SELECT count(*) FROM model_weights('manage wide');
ROLLBACK;
BEGIN;
DELETE FROM pgtrain.weight w USING pgtrain.model m WHERE m.model_id = w.model_id AND m.name = 'manage image' AND w.position = 0;
SELECT predict_class('manage image', i) FROM manage_image i LIMIT 1;
ROLLBACK;
BEGIN;
UPDATE pgtrain.model_version v SET format = 999 FROM pgtrain.model m WHERE m.model_id = v.model_id AND m.name = 'manage image';
SELECT count(*) FROM describe_model('manage image');
ROLLBACK;

SELECT * FROM describe_model('manage imag');
SELECT * FROM model_weights('manage image@2');
SELECT drop_model('manage image'), drop_model('manage wide');
DROP TABLE manage_image, manage_wide;
