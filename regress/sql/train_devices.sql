-- Devices, precision and what a step does to gradients
SET pg_train.report_epochs = off;
CREATE TABLE devices_row AS
SELECT i AS id, sin(i * 1.7)::real AS a, cos(i * 0.9)::real AS b, CASE WHEN sin(i * 1.7) + cos(i * 0.9) > 0 THEN 1 ELSE 0 END AS y
FROM generate_series(1, 2000) i;

-- The CPU is always there; a GPU, or the reason why there is none
SELECT device, name LIKE 'cpu (%' AS named, memory > 1e8 AS memory, memory_free BETWEEN 1 AND memory AS free, compute_capability, reason
FROM train_devices() WHERE device = 'cpu';
SELECT (count(*) FILTER (WHERE device ~ '^cuda:[0-9]+$' AND name IS NOT NULL AND compute_capability IS NOT NULL) > 0)
	   <> (count(*) FILTER (WHERE device = 'cuda' AND reason IS NOT NULL) > 0) AS gpu_or_reason
FROM train_devices();

-- A device that is named is used or refused, never replaced
DO $$
DECLARE
	gpus int := (SELECT count(*) FROM train_devices() WHERE device LIKE 'cuda:%');
	trained text;
BEGIN
	SELECT t.device INTO trained FROM train_model('devices cuda', 'devices_row', 'y', features => '{a,b}', task => 'classification', device => 'cuda', epochs => 1) t;
	IF gpus = 0 OR trained LIKE 'cpu%' THEN
		RAISE EXCEPTION 'trained on % with % GPUs', trained, gpus;
	END IF;
EXCEPTION WHEN feature_not_supported THEN
	IF gpus > 0 THEN
		RAISE;
	END IF;
END $$;
DO $$
BEGIN
	PERFORM train_model('devices cuda', 'devices_row', 'y', features => '{a,b}', task => 'classification', device => 'cuda:200', epochs => 1);
	RAISE EXCEPTION 'trained on a 201st GPU';
EXCEPTION WHEN feature_not_supported OR invalid_parameter_value THEN
	NULL;
END $$;
SELECT device LIKE 'cpu (%' AS named FROM train_model('devices', 'devices_row', 'y', features => '{a,b}', task => 'classification', device => 'cpu', epochs => 1);

-- fp16 with loss scaling follows fp32
SELECT t.precision, t.steps + t.skipped_steps AS steps, t.skipped_steps < 20 AS few_skipped, metric_value > 0.9 AS learned
FROM train_model('devices', 'devices_row', 'y', features => '{a,b}', task => 'classification', device => 'cpu', amp => 'fp16', epochs => 5, batch_size => 100,
				 learning_rate => 0.01) t;
SELECT t.precision, t.steps, t.skipped_steps, metric_value > 0.9 AS learned
FROM train_model('devices', 'devices_row', 'y', features => '{a,b}', task => 'classification', device => 'cpu', epochs => 5, batch_size => 100,
				 learning_rate => 0.01) t;
SELECT version, precision, options ->> 'amp' AS amp, options ->> 'device' AS device FROM pgtrain.versions WHERE model = 'devices' ORDER BY version;

-- Clipped to next to nothing, gradients move nothing
SELECT train_loss > 0.3 AS high FROM train_model('devices clip', 'devices_row', 'y', features => '{a,b}', task => 'classification', optimizer => 'sgd', learning_rate => 1,
	max_grad_norm => 1e-6, epochs => 5, device => 'cpu');
SELECT train_loss < 0.3 AS low FROM train_model('devices clip', 'devices_row', 'y', features => '{a,b}', task => 'classification', optimizer => 'sgd', learning_rate => 1,
	max_grad_norm => 1, epochs => 5, device => 'cpu');
SELECT version, options ->> 'max_grad_norm' AS max_grad_norm FROM pgtrain.versions WHERE model = 'devices clip' ORDER BY version;
DROP TABLE devices_row;
