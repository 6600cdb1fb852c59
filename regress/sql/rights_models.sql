-- Who may do what: a model's owner everything, others score with it once it was granted to them.

SET client_min_messages = warning;
SET pg_train.report_epochs = off;
CREATE EXTENSION IF NOT EXISTS pg_train;

CREATE ROLE regress_train_owner;
CREATE ROLE regress_train_owners IN ROLE regress_train_owner;
CREATE ROLE regress_train_team;
CREATE ROLE regress_train_member IN ROLE regress_train_team;
CREATE ROLE regress_train_stranger;
CREATE TABLE rights_row AS SELECT i AS x, i * 2.0::float8 AS y FROM generate_series(1, 50) i;
GRANT SELECT ON rights_row TO PUBLIC;

SET ROLE regress_train_owner;
SELECT version FROM train_model('rights', 'rights_row', 'y', task => 'regression', epochs => 1);
SELECT version FROM train_model('rights', 'rights_row', 'y', task => 'regression', epochs => 1);
SELECT name, owner, versions, granted_to FROM pgtrain.models WHERE name = 'rights';
RESET ROLE;

-- What a role may do with the model, in letters: score (as row, array and class), evaluate, see it in the views; then train,
-- deploy, rename, drop a version, drop, grant, revoke.
CREATE FUNCTION rights_tried(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	state text;
BEGIN
	EXECUTE statement;
	RAISE EXCEPTION USING errcode = 'ZZ001';
EXCEPTION
	WHEN SQLSTATE 'ZZ001' THEN RETURN 'yes';
	WHEN insufficient_privilege THEN RETURN 'no';
END
$$;
CREATE FUNCTION rights_of(role text) RETURNS TABLE (score text, evaluate text, describe text, weights text, seen bigint, train text, deploy text,
	rename text, drop_version text, drop text, "grant" text, revoke text) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('SET ROLE %I', role);
	score := rights_tried($q$ SELECT predict('rights', r), predict('rights@1', '{1}'::real[]) FROM rights_row r $q$);
	evaluate := rights_tried($q$ SELECT * FROM evaluate_model('rights', 'rights_row') $q$);
	describe := rights_tried($q$ SELECT * FROM describe_model('rights') $q$);
	weights := rights_tried($q$ SELECT * FROM model_weights('rights@1') $q$);
	SELECT (SELECT count(*) FROM pgtrain.models WHERE name = 'rights') + (SELECT count(*) FROM pgtrain.versions WHERE model = 'rights')
		+ (SELECT least(count(*), 1) FROM pgtrain.metrics WHERE model = 'rights') INTO seen;
	train := rights_tried($q$ SELECT train_model('rights', 'rights_row', 'y', task => 'regression', epochs => 1) $q$);
	deploy := rights_tried($q$ SELECT deploy_model('rights', 1) $q$);
	rename := rights_tried($q$ SELECT rename_model('rights', 'rights taken') $q$);
	drop_version := rights_tried($q$ SELECT drop_model('rights@1') $q$);
	drop := rights_tried($q$ SELECT drop_model('rights') $q$);
	"grant" := rights_tried($q$ SELECT grant_model('rights', 'public') $q$);
	revoke := rights_tried($q$ SELECT revoke_model('rights', 'public') $q$);
	RESET ROLE;
	RETURN NEXT;
END
$$;
\set roles 'unnest(''{regress_train_owner,regress_train_owners,regress_train_team,regress_train_member,regress_train_stranger}''::text[]) WITH ORDINALITY r (role, o)'

SELECT role, t.* FROM :roles, rights_of(role) t ORDER BY o;
SELECT t.* FROM rights_of(current_user) t;

SET ROLE regress_train_owner;
SELECT grant_model('rights', 'regress_train_team');
SELECT granted_to FROM pgtrain.models WHERE name = 'rights';
RESET ROLE;
SELECT role, t.* FROM :roles, rights_of(role) t ORDER BY o;

SET ROLE regress_train_owner;
SELECT revoke_model('rights', 'regress_train_team');
SELECT grant_model('rights', 'public');
SELECT grant_model('rights', 'public');
SELECT granted_to FROM pgtrain.models WHERE name = 'rights';
RESET ROLE;
SELECT role, t.* FROM :roles, rights_of(role) t ORDER BY o;

SET ROLE regress_train_owner;
SELECT revoke_model('rights', 'public');
SELECT granted_to FROM pgtrain.models WHERE name = 'rights';
RESET ROLE;
SELECT role, score, seen FROM :roles, rights_of(role) t ORDER BY o;

-- What is said. A name is suggested to those only who may know it.
SET ROLE regress_train_stranger;
SELECT predict('rights', '{1}'::real[]);
SELECT predict('rights@9', '{1}'::real[]);
SELECT predict('right', '{1}'::real[]);
SELECT deploy_model('rights', 1);
SELECT train_model('rights', 'rights_row', 'y', task => 'regression', epochs => 1);
SET ROLE regress_train_owner;
SELECT predict('right', '{1}'::real[]);
SELECT grant_model('rights', 'regress_train_nobody');
SELECT revoke_model('rights', 'regress_train_nobody');
SELECT grant_model('right', 'public');

-- Rights end with the next statement, also where the model is at hand.
SELECT grant_model('rights', 'regress_train_stranger');
SET ROLE regress_train_stranger;
PREPARE rights_score AS SELECT predict('rights', '{1}'::real[]) IS NOT NULL AS scored;
EXECUTE rights_score;
SET ROLE regress_train_owner;
SELECT revoke_model('rights', 'regress_train_stranger');
SET ROLE regress_train_stranger;
EXECUTE rights_score;
DEALLOCATE rights_score;
RESET ROLE;
GRANT regress_train_owner TO regress_train_stranger;
SELECT score, "grant" FROM rights_of('regress_train_stranger');
REVOKE regress_train_owner FROM regress_train_stranger;
SELECT score, "grant" FROM rights_of('regress_train_stranger');

-- One expression, two roles
DO $$
DECLARE
	role text;
	y float8;
BEGIN
	FOREACH role IN ARRAY '{regress_train_owner,regress_train_stranger}'::text[] LOOP
		EXECUTE format('SET ROLE %I', role);
		BEGIN
			y := predict('rights', '{1}'::real[]);
			RAISE WARNING '% may score', role;
		EXCEPTION WHEN insufficient_privilege THEN
			RAISE WARNING '% may not score', role;
		END;
	END LOOP;
END
$$;
RESET ROLE;

-- A view scores as who asks; a SECURITY DEFINER function as who owns it.
CREATE VIEW rights_view AS SELECT predict('rights', '{1}'::real[]) IS NOT NULL AS scored;
GRANT SELECT ON rights_view TO PUBLIC;
CREATE FUNCTION rights_as_owner() RETURNS boolean LANGUAGE sql SECURITY DEFINER AS $$ SELECT predict('rights', '{1}'::real[]) IS NOT NULL $$;
ALTER FUNCTION rights_as_owner() OWNER TO regress_train_owner;
SET ROLE regress_train_stranger;
SELECT * FROM rights_view;
SELECT rights_as_owner();

-- The catalog's tables are closed, and its owner's search path is not the caller's.
SELECT count(*) FROM pgtrain.model;
SELECT count(*) FROM pgtrain.usable_model;
INSERT INTO pgtrain.model_grant VALUES (1, 'regress_train_stranger');
CREATE TABLE pgtrain.mine (x int);
SELECT nspacl::text ~ '=U/' AS usage, nspacl::text ~ '[^a-z]=U*C' AS creates FROM pg_namespace WHERE nspname = 'pgtrain';
RESET ROLE;
CREATE SCHEMA rights_trap;
GRANT ALL ON SCHEMA rights_trap TO regress_train_owner;
SET ROLE regress_train_owner;
CREATE FUNCTION rights_trap.pg_has_role(oid, oid, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'caught as %', current_user; END $$;
CREATE FUNCTION rights_trap.trapped(int, int) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'caught as %', current_user; END $$;
CREATE OPERATOR rights_trap.= (FUNCTION = rights_trap.trapped, LEFTARG = int, RIGHTARG = int);
SET search_path = rights_trap, public, pg_catalog;
SELECT predict('right', '{1}'::real[]);
SELECT predict('rights', '{1}'::real[]) IS NOT NULL AS scored;
SELECT deploy_model('rights', 1);
SHOW search_path;
RESET search_path;
RESET ROLE;

-- The source is read as who evaluates.
CREATE TABLE rights_secret AS SELECT * FROM rights_row;
SET ROLE regress_train_owner;
SELECT * FROM evaluate_model('rights', 'rights_secret');
RESET ROLE;

DROP SCHEMA rights_trap CASCADE;
DROP VIEW rights_view;
DROP FUNCTION rights_as_owner, rights_tried, rights_of;
SELECT drop_model('rights');
DROP TABLE rights_row, rights_secret;
DROP ROLE regress_train_owner, regress_train_owners, regress_train_team, regress_train_member, regress_train_stranger;
