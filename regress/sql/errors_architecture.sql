-- An architecture that is wrong is refused with its position; one that does not fit, before a row is read.

SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_train;
SET pg_train.report_epochs = off;
CREATE TABLE errors_row AS SELECT i AS a, i * 2 AS b, i % 2 = 0 AS y, ARRAY[i, i, i, i] AS v, decode(repeat('00', 64), 'hex') AS image FROM generate_series(1, 30) i;
CREATE FUNCTION errors_network(architecture jsonb, features text[] = '{a,b}', input_shape int[] = NULL) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM train_model('errors network', 'errors_row', 'y', features, architecture => errors_network.architecture, input_shape => errors_network.input_shape, epochs => 1);
	RETURN (SELECT v.architecture FROM pgtrain.versions v WHERE model = 'errors network' ORDER BY version DESC LIMIT 1);
END $$;
\set SHOW_CONTEXT never

-- Form
SELECT errors_network('{}');
SELECT errors_network('"relu"');
SELECT errors_network('[]');
SELECT errors_network('[1]');
SELECT errors_network('["relu", null]');
SELECT errors_network('["relu", ["relu"]]');
SELECT errors_network('[{"linear": 8, "relu": {}}]');
SELECT errors_network('[{}]');

-- Layers and parameters
SELECT errors_network('["relu", "rellu"]');
SELECT errors_network('[{"dense": 8}]');
SELECT errors_network('[{"Linear": 8}]');
SELECT errors_network('["linear"]');
SELECT errors_network('["residual"]');
SELECT errors_network('[{"linear": {}}]');
SELECT errors_network('[{"linear": {"bias": true}}]');
SELECT errors_network('[{"linear": "8"}]');
SELECT errors_network('[{"linear": 0}]');
SELECT errors_network('[{"linear": 1.5}]');
SELECT errors_network('[{"linear": 1e10}]');
SELECT errors_network('[{"linear": {"out": 8, "bias": 1}}]');
SELECT errors_network('["relu", "relu", {"linear": 8}, {"conv2d": {"out": 8, "kernl": 3}}]');
SELECT errors_network('[{"conv2d": 8}]');
SELECT errors_network('[{"conv2d": {"out": 8}}]');
SELECT errors_network('[{"conv2d": {"out": 8, "kernel": [3]}}]');
SELECT errors_network('[{"conv2d": {"out": 8, "kernel": [3, 0]}}]');
SELECT errors_network('[{"conv2d": {"out": 8, "kernel": 3, "padding": -1}}]');
SELECT errors_network('[{"conv2d": {"out": 8, "kernel": 3, "padding": [1, "1"]}}]');
SELECT errors_network('[{"relu": {"slope": 0.1}}]');
SELECT errors_network('[{"relu": 1}]');
SELECT errors_network('[{"dropout": "half"}]');
SELECT errors_network('[{"dropout": {"p": 1}}]');
SELECT errors_network('[{"batchnorm": {"eps": 0}}]');
SELECT errors_network('[{"batchnorm": {"mometum": 0.1}}]');
SELECT errors_network('[{"layernorm": 3}]');
SELECT errors_network('[{"residual": []}]');
SELECT errors_network('[{"residual": "relu"}]');
SELECT errors_network('["relu", {"residual": ["relu", {"residual": [{"linear": {"outs": 2}}]}]}]');
SELECT errors_network('[{"residual": [{"residual": [{"residual": [{"residual": [{"residual": [{"residual": [{"residual": [{"residual": [{"residual": ["relu"]}]}]}]}]}]}]}]}]}]');
SELECT errors_network((SELECT jsonb_agg('relu'::text) FROM generate_series(1, 512)));
SELECT errors_network((SELECT jsonb_agg('relu'::text) FROM generate_series(1, 600)));

-- Shapes
SELECT errors_network('[{"conv2d": {"out": 8, "kernel": 3}}]');
SELECT errors_network('[{"residual": [{"linear": 3}]}]');
SELECT errors_network('["relu"]', '{image}', '{1,8,9}');
SELECT errors_network('["relu"]', '{a,b}', '{1,8,8}');
SELECT errors_network('["relu"]', '{v}', '{1,8,8}');
SELECT errors_network('["relu"]', '{image}', '{1,8,8}');
SELECT errors_network('[{"linear": 3}]', '{image}', '{1,8,8}');
SELECT errors_network('[{"conv2d": {"out": 8, "kernel": 9}}, "flatten"]', '{image}', '{1,8,8}');
SELECT errors_network('[{"maxpool2d": 2}, {"maxpool2d": 2}, {"maxpool2d": 2}, {"maxpool2d": 2}, "flatten"]', '{image}', '{1,8,8}');
SELECT errors_network('[{"linear": 2000000000}, {"linear": 2000000000}]');

-- Everything there is, written out as it is stored
SELECT jsonb_array_elements(errors_network('["flatten", {"linear": 4}, {"relu": {}}, {"linear": {"out": 4, "bias": false}}, "gelu", "batchnorm", {"batchnorm": {"eps": 1e-3, "momentum": 0.2}}, "tanh",
	{"layernorm": {"eps": 1e-6}}, "sigmoid", "dropout", {"dropout": 0.25}, {"dropout": {"p": 0}}, {"residual": [{"linear": 4}, {"residual": ["relu"]}, "layernorm"]}]')) AS layer;
SELECT jsonb_array_elements(errors_network('[{"conv2d": {"out": 2, "kernel": 3}}, {"conv2d": {"out": 2, "kernel": [3, 1], "stride": [1, 2], "padding": [1, 0], "bias": false}}, {"maxpool2d": 2},
	{"maxpool2d": {"kernel": 2, "stride": 1, "padding": 1}}, {"avgpool2d": [2, 1]}, {"avgpool2d": {"kernel": 2, "padding": 1}}, {"residual": [{"conv2d": {"out": 2, "kernel": 3, "padding": 1}}, "batchnorm"]},
	"global_avgpool"]', '{image}', '{1,8,8}')) AS layer;
SELECT layer, kind, settings FROM describe_model('errors network');

SELECT drop_model('errors network');
DROP FUNCTION errors_network;
DROP TABLE errors_row;
