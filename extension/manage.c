/*
 * manage.c - deploy_model, drop_model, rename_model, grant_model, revoke_model: for a model's owner.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"

#include "extension/catalog.h"

/* Run one change of the catalog as its owner; returns the number of rows. */
static uint64
Change(const char *sql, int nargs, Oid *types, Datum *values)
{
	CatalogScope scope;
	uint64		rows;

	CatalogBegin(&scope);
	rows = CatalogExecute(sql, false, nargs, types, values, NULL);
	CatalogEnd(&scope);
	return rows;
}

PG_FUNCTION_INFO_V1(pgt_deploy_model);
Datum
pgt_deploy_model(PG_FUNCTION_ARGS)
{
	char	   *name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	int32		version = PG_GETARG_INT32(1);
	Oid			types[] = {INT8OID, INT4OID};
	Datum		values[lengthof(types)];
	OwnedModel	model;

	PreventCommandIfReadOnly("deploy_model()");
	CatalogLockModel(name, false, &model);
	values[0] = Int64GetDatum(model.model_id);
	values[1] = Int32GetDatum(version);
	if (Change("UPDATE pgtrain.model m SET deployed_version = $2 WHERE m.model_id = $1 AND EXISTS ("
			   " SELECT FROM pgtrain.model_version v WHERE v.model_id = $1 AND v.version = $2)",
			   lengthof(types), types, values) == 0)
		CatalogMissingVersion(name, model.model_id, version);
	CatalogChanged();
	PG_RETURN_VOID();
}

static void
DropVersion(const char *name, int32 version)
{
	Oid			types[] = {INT8OID, INT4OID};
	Datum		values[lengthof(types)];
	OwnedModel	model;

	CatalogLockModel(name, false, &model);
	if (version == model.deployed_version)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot drop version %d of model \"%s\" because it is deployed", version, name),
				 errhint("Deploy another version with deploy_model first, or drop the whole model.")));
	values[0] = Int64GetDatum(model.model_id);
	values[1] = Int32GetDatum(version);
	if (Change("DELETE FROM pgtrain.model_version WHERE model_id = $1 AND version = $2",
			   lengthof(types), types, values) == 0)
		CatalogMissingVersion(name, model.model_id, version);
}

static void
DropWholeModel(const char *name)
{
	Oid			types[] = {INT8OID};
	Datum		values[lengthof(types)];
	OwnedModel	model;

	CatalogLockModel(name, true, &model);
	values[0] = Int64GetDatum(model.model_id);
	/* Versions, weights, metrics and grants go with it. */
	(void) Change("DELETE FROM pgtrain.model WHERE model_id = $1", lengthof(types), types, values);
}

PG_FUNCTION_INFO_V1(pgt_drop_model);
Datum
pgt_drop_model(PG_FUNCTION_ARGS)
{
	int32		version;
	char	   *name = CatalogParseReference(text_to_cstring(PG_GETARG_TEXT_PP(0)), &version);

	PreventCommandIfReadOnly("drop_model()");
	if (version > 0)
		DropVersion(name, version);
	else
		DropWholeModel(name);
	CatalogChanged();
	PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(pgt_rename_model);
Datum
pgt_rename_model(PG_FUNCTION_ARGS)
{
	char	   *name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	char	   *new_name = text_to_cstring(PG_GETARG_TEXT_PP(1));
	Oid			types[] = {INT8OID, TEXTOID};
	Datum		values[lengthof(types)];
	OwnedModel	model;

	PreventCommandIfReadOnly("rename_model()");
	CatalogCheckName(new_name);
	CatalogLockModel(name, true, &model);
	values[0] = Int64GetDatum(model.model_id);
	values[1] = CStringGetTextDatum(new_name);
	/* Where another session takes the name at the same time, the unique index has the last word. */
	if (Change("UPDATE pgtrain.model SET name = $2 WHERE model_id = $1"
			   " AND NOT EXISTS (SELECT FROM pgtrain.model o WHERE o.name = $2)",
			   lengthof(types), types, values) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("model \"%s\" already exists", new_name)));
	CatalogChanged();
	PG_RETURN_VOID();
}

/* InvalidOid: everybody. */
static Oid
GranteeByName(const char *role)
{
	if (strcmp(role, "public") == 0)
		return InvalidOid;
	return get_role_oid(role, false);
}

PG_FUNCTION_INFO_V1(pgt_grant_model);
Datum
pgt_grant_model(PG_FUNCTION_ARGS)
{
	char	   *name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	Oid			grantee = GranteeByName(text_to_cstring(PG_GETARG_TEXT_PP(1)));
	Oid			types[] = {INT8OID, REGROLEOID};
	Datum		values[lengthof(types)];
	OwnedModel	model;

	PreventCommandIfReadOnly("grant_model()");
	CatalogLockModel(name, false, &model);
	values[0] = Int64GetDatum(model.model_id);
	values[1] = ObjectIdGetDatum(grantee);
	/* DROP ROLE does not know of us: forget grants to roles that are gone. */
	(void) Change("DELETE FROM pgtrain.model_grant g WHERE g.model_id = $1 AND g.grantee <> 0"
				  " AND NOT EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.oid = g.grantee)",
				  1, types, values);
	(void) Change("INSERT INTO pgtrain.model_grant (model_id, grantee) VALUES ($1, $2) ON CONFLICT DO NOTHING",
				  lengthof(types), types, values);
	CatalogChanged();
	PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(pgt_revoke_model);
Datum
pgt_revoke_model(PG_FUNCTION_ARGS)
{
	char	   *name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	Oid			grantee = GranteeByName(text_to_cstring(PG_GETARG_TEXT_PP(1)));
	Oid			types[] = {INT8OID, REGROLEOID};
	Datum		values[lengthof(types)];
	OwnedModel	model;

	PreventCommandIfReadOnly("revoke_model()");
	CatalogLockModel(name, false, &model);
	values[0] = Int64GetDatum(model.model_id);
	values[1] = ObjectIdGetDatum(grantee);
	(void) Change("DELETE FROM pgtrain.model_grant WHERE model_id = $1 AND grantee = $2",
				  lengthof(types), types, values);
	CatalogChanged();
	PG_RETURN_VOID();
}
