-- Every type that a feature or a target can have.

SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_train;
SET pg_train.report_epochs = off;

-- Each type carries the same number; a network of one layer learns it from any of them.
CREATE DOMAIN load_amount AS numeric(10, 3) CHECK (VALUE < 1000);
CREATE TABLE load_number AS
	SELECT (i % 200)::smallint AS int2, i % 200 AS int4, (i % 200)::bigint AS int8, (i % 200)::real AS float4, (i % 200)::float8 AS float8,
		(i % 200)::numeric / 1000 AS numeric, (i % 200)::load_amount AS domain, i % 200 >= 100 AS bool,
		ARRAY[i % 200, 1]::smallint[] AS int2s, ARRAY[i % 200, i % 3] AS int4s, ARRAY[i % 200, i % 3]::bigint[] AS int8s,
		ARRAY[i % 200, i % 3]::real[] AS float4s, ARRAY[i % 200, i % 3]::float8[] AS float8s, ARRAY[i % 200, i % 3]::numeric[] AS numerics,
		ARRAY[i % 200 >= 100, true] AS bools, ARRAY[[i % 200, 1], [2, i % 3]]::real[] AS matrix, set_byte('\x0001'::bytea, 0, i % 200) AS bytes,
		(i % 200)::float8 * 2 AS y
	FROM generate_series(1, 2000) i;
CREATE FUNCTION load_learn(feature text, OUT learned boolean, OUT scored_alike boolean, OUT encoder jsonb, OUT means int) LANGUAGE plpgsql AS $$
DECLARE
	trained float8;
	scored float8;
BEGIN
	trained = (SELECT metric_value FROM train_model('load ' || feature, 'load_number', 'y', ARRAY[feature], validation_source => 'load_number', epochs => 12,
		batch_size => 32, learning_rate => 0.05, architecture => '[{"linear": 8}, "relu"]'));
	scored = (SELECT value FROM evaluate_model('load ' || feature, 'load_number') WHERE metric = 'r2');
	learned = trained > 0.7;
	scored_alike = abs(trained - scored) < 0.0001;
	encoder = (SELECT v.encoders -> 0 FROM pgtrain.model_version v JOIN pgtrain.model m USING (model_id) WHERE m.name = 'load ' || feature);
	means = jsonb_array_length(encoder -> 'mean');
	encoder = encoder - 'mean' - 'stddev';
END $$;
SELECT l.* FROM unnest('{int2,int4,int8,float4,float8,numeric,domain,bool,int2s,int4s,int8s,float4s,float8s,numerics,bools,matrix,bytes}'::text[]) WITH ORDINALITY f (feature, o),
	load_learn(feature) l ORDER BY f.o;

-- Statistics are those of the column.
SELECT bool_and(abs((e.encoder -> 'mean' ->> 0)::float8 - s.mean) < 1e-4 AND abs((e.encoder -> 'stddev' ->> 0)::float8 - s.stddev) < 1e-4) AS right
FROM pgtrain.model_version v JOIN pgtrain.model m USING (model_id), jsonb_array_elements(v.encoders) e (encoder),
	LATERAL (SELECT avg(int4) AS mean, stddev_pop(int4) AS stddev FROM load_number) s
WHERE m.name IN ('load int2', 'load int4', 'load int8', 'load float4', 'load float8', 'load domain');

-- Large values with a small spread keep their digits: as float4 the times of a day of 2024 are only 675 different numbers.
CREATE TABLE load_time AS
	SELECT 1704067200 + i * 43 AS int4, 1704067200000000000 + i * 43 AS int8, 1704067200.0::float8 + i * 43 AS float8, 1704067200.0 + i * 43 AS numeric,
		(i * 43 % 120 < 60)::int AS y, 0.001 * i AS small
	FROM generate_series(1, 2000) i;
SELECT metric_value > 0.99 AS learned FROM train_model('load time int4', 'load_time', 'small', '{int4}', epochs => 30, batch_size => 64,
	architecture => '[{"linear": 8}, "relu"]', learning_rate => 0.01);
SELECT metric_value > 0.99 AS learned FROM train_model('load time float8', 'load_time', 'small', '{float8}', epochs => 30, batch_size => 64,
	architecture => '[{"linear": 8}, "relu"]', learning_rate => 0.01);
SELECT metric_value > 0.99 AS learned FROM train_model('load time numeric', 'load_time', 'small', '{numeric}', epochs => 30, batch_size => 64,
	architecture => '[{"linear": 8}, "relu"]', learning_rate => 0.01);
SELECT max(abs(predict('load time int4', r) - small)) < 0.2 AS int4, max(abs(predict('load time float8', r) - small)) < 0.2 AS float8,
	max(abs(predict('load time numeric', r) - small)) < 0.2 AS numeric FROM load_time r;
-- Also beyond what a double can tell apart: 43 ns in 50 years.
SELECT metric_value > 0.99 AS learned FROM train_model('load time', 'load_time', 'small', '{int8}', epochs => 30, batch_size => 64,
	architecture => '[{"linear": 8}, "relu"]', learning_rate => 0.01);
-- And as a target.
SELECT c.type, t.metric_value > 0.99 AS learned
FROM unnest('{int4,float8,numeric}'::text[]) c (type),
	train_model('load time', 'load_time', c.type, '{small}', task => 'regression', epochs => 30, batch_size => 64, architecture => '[{"linear": 8}, "relu"]', learning_rate => 0.01) t;
SELECT abs(predict('load time', r) - numeric) < 10000 AS near FROM load_time r OFFSET 1000 LIMIT 1;

-- numeric: few digits and many, small and large, negative; read as the cast to double precision reads it.
CREATE TABLE load_numeric AS SELECT n, 0.5 AS y FROM unnest('{0,1,-1,0.1,-0.0001,123456789012345,12345678901234567890123456789,0.00000000000000000001,
	-99999999999999999999,1e30,1e-30,3.14159265358979323846264338327950288,1e-37,9999,10000,10001,0.00012,-123.4567,1e10,123456789.123456789}'::numeric[]) n;
SELECT version FROM train_model('load digits', 'load_numeric', 'y', validation_fraction => 0, epochs => 1, architecture => '[{"linear": 1}]');
SELECT r.n, predict('load digits', r) = predict('load digits', f) AS same FROM load_numeric r, LATERAL (SELECT r.n::float8) f ORDER BY r.n;

-- Targets of a classification: classes are sorted by value, and scored back as their type.
CREATE TYPE load_size AS ENUM ('small', 'medium', 'large');
CREATE DOMAIN load_word AS text;
CREATE TABLE load_label AS
	SELECT sin(i) AS a, (i % 3)::smallint AS int2, (i % 3 - 1) * 5000000000 AS int8, i % 3 = 0 AS bool, (ARRAY['b', 'a', 'B'])[i % 3 + 1] AS text,
		(ARRAY['x', 'yy', 'z'])[i % 3 + 1]::varchar(5) AS varchar, (ARRAY['x', 'yy', 'z'])[i % 3 + 1]::char(5) AS char,
		(ARRAY['large', 'small', 'medium'])[i % 3 + 1]::load_size AS enum, (ARRAY[10, 9.5, -1, 10.0, 9.50, -1.000])[i % 6 + 1] AS numeric,
		(ARRAY[10, 0.1, -1])[i % 3 + 1]::real AS float4, (ARRAY['', 'ü', 'o'])[i % 3 + 1]::load_word AS domain
	FROM generate_series(1, 90) i;
CREATE FUNCTION load_classes(target text, OUT version int, OUT known boolean) LANGUAGE plpgsql AS $$
BEGIN
	version = (SELECT t.version FROM train_model('load label', 'load_label', target, '{a}', task => 'classification', epochs => 1) t);
	EXECUTE format('SELECT bool_and(predict_class(''load label'', r) = ANY (SELECT DISTINCT %I::text FROM load_label)) FROM load_label r', target) INTO known;
END $$;
SELECT l.* FROM unnest('{int2,int8,bool,text,varchar,char,enum,numeric,float4,domain}'::text[]) WITH ORDINALITY c (type, o), load_classes(c.type) l ORDER BY c.o;
SELECT version, target, target_type, classes, loss FROM pgtrain.versions WHERE model = 'load label' ORDER BY version;

-- Images: bytea of three channels, as PyTorch lays them out.
CREATE TABLE load_image AS
	SELECT i % 2 = 1 AS bright_left,
		(SELECT decode(string_agg(lpad(to_hex(CASE WHEN (p % 8 < 4) = (i % 2 = 1) THEN 180 + (i * p) % 70 ELSE (i * p) % 90 END), 2, '0'), '' ORDER BY p), 'hex')
		 FROM generate_series(0, 191) p) AS pixels
	FROM generate_series(1, 200) i;
SELECT metric_value > 0.95 AS learned FROM train_model('load image', 'load_image', 'bright_left', '{pixels}', input_shape => '{3,8,8}', epochs => 5, batch_size => 16);
SELECT input_shape, architecture FROM pgtrain.versions WHERE model = 'load image';
SELECT avg((predict_class('load image', i) = bright_left::text)::int) > 0.95 AS scored FROM load_image i;
-- The same as floats
SELECT metric_value > 0.95 AS learned FROM train_model('load image', $$SELECT bright_left, (SELECT array_agg(get_byte(pixels, p)::real ORDER BY p) FROM generate_series(0, 191) p) AS pixels
	FROM load_image$$, 'bright_left', '{pixels}', input_shape => '{3,8,8}', epochs => 5, batch_size => 16);

-- Large values out of line, and several kinds of columns side by side
CREATE TABLE load_mixed AS
	SELECT i, (i % 2)::real AS a, decode(repeat(lpad(to_hex(i % 2 * 200), 2, '0'), 5000), 'hex') AS plain, array_fill((i % 2)::real, '{3000}') AS wide,
		i % 2 * 0.5 AS b, (i % 2 = 1) AS c, decode(repeat(lpad(to_hex(i % 2 * 100 + i % 7), 2, '0'), 16), 'hex') AS short, i % 2 = 0 AS y, repeat('unused', 5000) AS note
	FROM generate_series(1, 120) i;
ALTER TABLE load_mixed ALTER plain SET STORAGE EXTERNAL, ALTER wide SET STORAGE EXTERNAL;
INSERT INTO load_mixed SELECT * FROM load_mixed;
SELECT rows_used, train_loss < 0.1 AS learned FROM train_model('load mixed', 'load_mixed', 'y', '{a,plain,b,wide,c,short}', epochs => 10, batch_size => 16);
SELECT jsonb_path_query_array(encoders, '$[*].width') FROM pgtrain.model_version JOIN pgtrain.model m USING (model_id) WHERE m.name = 'load mixed';
SELECT bool_and(predict_class('load mixed', m) = y::text) AS scored FROM load_mixed m;

SELECT count(drop_model(name)) FROM pgtrain.models WHERE name LIKE 'load %';
DROP FUNCTION load_learn, load_classes;
DROP TABLE load_number, load_time, load_numeric, load_label, load_image, load_mixed;
DROP DOMAIN load_amount, load_word;
DROP TYPE load_size;
