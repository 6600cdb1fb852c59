-- Versions and names: train, deploy, rename, drop, and what the views show.

SET client_min_messages = warning;
SET pg_train.report_epochs = off;
CREATE EXTENSION IF NOT EXISTS pg_train;

CREATE TABLE manage_row AS SELECT i AS x, i % 2 = 0 AS even FROM generate_series(1, 60) i;
SELECT version FROM train_model('manage', 'manage_row', 'even', epochs => 2);
SELECT version FROM train_model('manage', 'manage_row', 'even', epochs => 3);
SELECT name, owner = current_user::regrole AS mine, task, target, deployed_version, versions, granted_to FROM pgtrain.models WHERE name LIKE 'manage%';
SELECT version, deployed, task, loss, source, target, target_type, classes, features, input_shape, rows_used, rows_skipped,
	train_rows + validation_rows AS split_rows, "precision", seed, options -> 'epochs' AS epochs, created_by = current_user::regrole AS mine
FROM pgtrain.versions WHERE model = 'manage' ORDER BY version;
SELECT version, epoch, split, metric, value BETWEEN 0 AND 10 AS sensible FROM pgtrain.metrics WHERE model = 'manage'
ORDER BY version, epoch, split, metric;

-- The name stands for the version trained last, until another one is deployed.
SELECT deploy_model('manage', 1);
SELECT version, deployed FROM pgtrain.versions WHERE model = 'manage' ORDER BY version;
SELECT deploy_model('manage', 7);
SELECT deploy_model('manage', 0);
SELECT deploy_model('manag', 1);
SELECT deploy_model('manage@1', 1);

-- A version that is deployed stays.
SELECT drop_model('manage@1');
SELECT drop_model('manage@2');
SELECT drop_model('manage@2');
SELECT drop_model('manage@');
SELECT version, deployed FROM pgtrain.versions WHERE model = 'manage' ORDER BY version;
SELECT count(*) FROM pgtrain.metrics WHERE model = 'manage' AND version = 2;

-- Numbers are not used again.
SELECT version FROM train_model('manage', 'manage_row', 'even', epochs => 1);

-- Names
SELECT version FROM train_model('manage too', 'manage_row', 'even', epochs => 1);
SELECT rename_model('manage', 'manage too');
SELECT rename_model('manage', '');
SELECT rename_model('manage', 'manage@2');
SELECT rename_model('manage', E'man\nage');
SELECT rename_model('manage', repeat('m', 64));
SELECT rename_model('manage', repeat('m', 63));
SELECT rename_model('manages', 'm');
SELECT predict_class(repeat('m', 63) || '@1', ARRAY[2]) IS NOT NULL AS scored;
SELECT rename_model(repeat('m', 63), 'manage');
SELECT version FROM train_model('manage@4', 'manage_row', 'even', epochs => 1);
SELECT version FROM train_model('', 'manage_row', 'even', epochs => 1);

-- Nothing changes where nothing may be written.
BEGIN READ ONLY;
SELECT predict_class('manage', ARRAY[2]) IS NOT NULL AS scored;
SAVEPOINT a;
SELECT deploy_model('manage', 1);
ROLLBACK TO a;
SELECT drop_model('manage');
ROLLBACK TO a;
SELECT rename_model('manage', 'm');
ROLLBACK TO a;
SELECT grant_model('manage', 'public');
ROLLBACK TO a;
SELECT revoke_model('manage', 'public');
ROLLBACK;

-- All at once, and nothing is left behind
SELECT drop_model('manage'), drop_model('manage too');
SELECT drop_model('manage');
SELECT name FROM pgtrain.models WHERE name LIKE 'manage%';
SELECT count(*) FROM pgtrain.weight w WHERE NOT EXISTS (SELECT FROM pgtrain.model m WHERE m.model_id = w.model_id);
SELECT count(*) FROM pgtrain.epoch_metric e WHERE NOT EXISTS (SELECT FROM pgtrain.model m WHERE m.model_id = e.model_id);
DROP TABLE manage_row;

-- Everything of the extension that can have a comment has one.
SELECT pg_describe_object(d.classid, d.objid, 0) AS without_comment
FROM pg_depend d JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e'
WHERE e.extname = 'pg_train' AND d.classid IN ('pg_proc'::regclass, 'pg_namespace'::regclass, 'pg_class'::regclass)
	AND NOT (d.classid = 'pg_class'::regclass AND (SELECT relkind = 'S' FROM pg_class c WHERE c.oid = d.objid))
	AND obj_description(d.objid, (SELECT relname FROM pg_class c WHERE c.oid = d.classid)) IS NULL
ORDER BY 1;
