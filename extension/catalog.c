/*
 * catalog.c - the catalog of models: access as its owner, names, rights and references.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "extension/catalog.h"
#include "extension/compat.h"
#include "extension/suggest.h"

/* As in ANALYZE's lists: enough to find a misspelling in. */
#define MAX_SUGGESTIONS 10000

Oid
CatalogModelRelid(void)
{
	Oid			relid;

	relid = get_relname_relid("model", get_namespace_oid("pgtrain", false));
	if (!OidIsValid(relid))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("table pgtrain.model does not exist"),
				 errhint("Create extension pg_train again.")));
	return relid;
}

static Oid
CatalogOwner(void)
{
	Oid			relid = CatalogModelRelid();
	HeapTuple	tuple;
	Oid			owner;

	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for relation %u", relid);
	owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
	ReleaseSysCache(tuple);
	return owner;
}

void
CatalogBegin(CatalogScope *scope)
{
	Oid			owner = CatalogOwner();

	scope->caller = CurrentMemoryContext;
	GetUserIdAndSecContext(&scope->user, &scope->security_context);

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	SetUserIdAndSecContext(owner, scope->security_context | SECURITY_LOCAL_USERID_CHANGE);
	scope->guc_level = NewGUCNestLevel();
	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
}

void
CatalogEnd(CatalogScope *scope)
{
	AtEOXact_GUC(true, scope->guc_level);
	SetUserIdAndSecContext(scope->user, scope->security_context);
	if (SPI_finish() != SPI_OK_FINISH)
		elog(ERROR, "SPI_finish failed");
	MemoryContextSwitchTo(scope->caller);
}

uint64
CatalogExecute(const char *sql, bool read_only, int nargs, Oid *types, Datum *values, const char *nulls)
{
	int			result;

	result = SPI_execute_with_args(sql, nargs, types, values, nulls, read_only, 0);
	if (result < 0)
		elog(ERROR, "catalog statement failed: %s", SPI_result_code_string(result));
	return SPI_processed;
}

void
CatalogChanged(void)
{
	CacheInvalidateRelcacheByRelid(CatalogModelRelid());
	CommandCounterIncrement();
}

const char *
TaskName(Task task)
{
	switch (task)
	{
		case TASK_REGRESSION:
			return "regression";
		case TASK_CLASSIFICATION:
			return "classification";
	}
	elog(ERROR, "unknown task %d", (int) task);
}

const char *
LossName(LossKind loss)
{
	switch (loss)
	{
		case LOSS_CROSS_ENTROPY:
			return "cross_entropy";
		case LOSS_BCE_WITH_LOGITS:
			return "bce_with_logits";
		case LOSS_MSE:
			return "mse";
		case LOSS_SMOOTH_L1:
			return "smooth_l1";
	}
	elog(ERROR, "unknown loss %d", (int) loss);
}

void
CatalogCheckName(const char *name)
{
	if (name[0] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_NAME),
				 errmsg("model name must not be empty")));
	if (strlen(name) >= NAMEDATALEN)
		ereport(ERROR,
				(errcode(ERRCODE_NAME_TOO_LONG),
				 errmsg("model name \"%s\" is too long", name),
				 errdetail("A model name has at most %d bytes.", NAMEDATALEN - 1)));
	if (strchr(name, '@') != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_NAME),
				 errmsg("model name \"%s\" must not contain \"@\"", name),
				 errdetail("\"@\" separates a model's name from a version.")));
	for (const char *c = name; *c != '\0'; c++)
	{
		if ((unsigned char) *c < ' ' || *c == 0x7f)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_NAME),
					 errmsg("model name must not contain control characters")));
	}
}

char *
CatalogParseReference(const char *reference, int32 *version)
{
	const char *at = strchr(reference, '@');
	int64		number = 0;

	*version = 0;
	if (at == NULL)
		return pstrdup(reference);

	for (const char *c = at + 1; *c != '\0'; c++)
	{
		if (*c < '0' || *c > '9' || number > PG_INT32_MAX)
		{
			number = 0;
			break;
		}
		number = number * 10 + (*c - '0');
	}
	if (number < 1 || number > PG_INT32_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid version in \"%s\"", reference),
				 errhint("Write a model's version as name@1.")));
	*version = (int32) number;
	return pnstrdup(reference, at - reference);
}

/* Names of the models that a role may use, for hints. */
static List *
UsableNames(Oid role, MemoryContext context)
{
	Oid			types[] = {OIDOID, INT4OID};
	Datum		values[] = {ObjectIdGetDatum(role), Int32GetDatum(MAX_SUGGESTIONS)};
	List	   *names = NIL;
	uint64		rows;
	MemoryContext old;

	rows = CatalogExecute("SELECT m.name FROM pgtrain.model m"
						  " WHERE pg_catalog.pg_has_role($1, m.owner, 'USAGE') OR EXISTS ("
						  "  SELECT FROM pgtrain.model_grant g WHERE g.model_id = m.model_id"
						  "   AND (g.grantee = 0 OR pg_catalog.pg_has_role($1, g.grantee, 'USAGE')))"
						  " ORDER BY m.name LIMIT $2",
						  true, lengthof(types), types, values, NULL);
	old = MemoryContextSwitchTo(context);
	for (uint64 i = 0; i < rows; i++)
	{
		char	   *name = SPI_getvalue(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1);

		names = lappend(names, name);
	}
	MemoryContextSwitchTo(old);
	return names;
}

static void pg_attribute_noreturn()
MissingModel(const char *name)
{
	CatalogScope scope;
	List	   *names;
	const char *nearest;

	CatalogBegin(&scope);
	names = UsableNames(scope.user, scope.caller);
	CatalogEnd(&scope);

	nearest = SuggestName(name, names);
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("model \"%s\" does not exist", name),
			 nearest != NULL ? errhint("Did you mean \"%s\"?", nearest) :
			 names == NIL ? errhint("Train one with train_model.") :
			 errhint("View pgtrain.models lists the models that you may use.")));
}

void
CatalogMissingVersion(const char *name, int64 model_id, int32 version)
{
	Oid			types[] = {INT8OID};
	Datum		values[] = {Int64GetDatum(model_id)};
	CatalogScope scope;
	char	   *versions = NULL;

	CatalogBegin(&scope);
	if (CatalogExecute("SELECT pg_catalog.string_agg(v.version::text, ', ' ORDER BY v.version) FROM ("
					   "  SELECT version FROM pgtrain.model_version WHERE model_id = $1"
					   "   ORDER BY version DESC LIMIT 10) v",
					   true, lengthof(types), types, values, NULL) == 1)
	{
		MemoryContext old = MemoryContextSwitchTo(scope.caller);

		versions = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
		MemoryContextSwitchTo(old);
	}
	CatalogEnd(&scope);

	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("model \"%s\" has no version %d", name, version),
			 versions == NULL ? 0 : errhint("Its latest versions: %s.", versions)));
}

/* Look name and version (0: the deployed one) up under the active snapshot; false: there is no such model. */
static bool
Lookup(const char *name, int32 version, ModelReference *found, MemoryContext context)
{
	Oid			types[] = {TEXTOID, INT4OID};
	Datum		values[] = {CStringGetTextDatum(name), Int32GetDatum(version)};
	HeapTuple	tuple;
	TupleDesc	desc;
	bool		isnull;
	Datum		grantees;

	memset(found, 0, sizeof(*found));
	if (CatalogExecute("SELECT m.model_id, m.owner::oid, m.deployed_version, m.xmin, v.version, v.xmin,"
					   " ARRAY(SELECT g.grantee::oid FROM pgtrain.model_grant g WHERE g.model_id = m.model_id)"
					   " FROM pgtrain.model m LEFT JOIN pgtrain.model_version v ON v.model_id = m.model_id"
					   "  AND v.version = CASE WHEN $2 > 0 THEN $2 ELSE m.deployed_version END"
					   " WHERE m.name = $1",
					   true, lengthof(types), types, values, NULL) == 0)
		return false;

	tuple = SPI_tuptable->vals[0];
	desc = SPI_tuptable->tupdesc;
	found->model_id = DatumGetInt64(SPI_getbinval(tuple, desc, 1, &isnull));
	found->owner = DatumGetObjectId(SPI_getbinval(tuple, desc, 2, &isnull));
	found->deployed_version = DatumGetInt32(SPI_getbinval(tuple, desc, 3, &isnull));
	found->model_xmin = DatumGetTransactionId(SPI_getbinval(tuple, desc, 4, &isnull));
	found->version = DatumGetInt32(SPI_getbinval(tuple, desc, 5, &isnull));
	if (isnull)
		found->version = 0;
	found->version_xmin = DatumGetTransactionId(SPI_getbinval(tuple, desc, 6, &isnull));
	if (isnull)
		found->version_xmin = InvalidTransactionId;

	grantees = SPI_getbinval(tuple, desc, 7, &isnull);
	if (!isnull)
	{
		ArrayType  *array = DatumGetArrayTypeP(grantees);

		found->ngrantees = ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));
		found->grantees = MemoryContextAlloc(context, sizeof(Oid) * Max(found->ngrantees, 1));
		if (found->ngrantees > 0)
			memcpy(found->grantees, ARR_DATA_PTR(array), sizeof(Oid) * found->ngrantees);
	}
	found->name = MemoryContextStrdup(context, name);
	return true;
}

void
CatalogResolve(const char *reference, ModelReference *resolved)
{
	CatalogScope scope;
	ModelReference latest;
	int32		version;
	char	   *name = CatalogParseReference(reference, &version);
	bool		found;

	CatalogBegin(&scope);
	found = Lookup(name, version, resolved, scope.caller);
	if (found)
	{
		/*
		 * The active snapshot says which version the query sees, the same in all its workers.  Who may use it
		 * is asked of the newest state, as it is for privileges on tables; and only where that state agrees may
		 * the answer outlive the query.
		 */
		PushActiveSnapshot(GetCatalogSnapshot(CatalogModelRelid()));
		if (Lookup(name, version, &latest, scope.caller))
		{
			resolved->current = latest.model_id == resolved->model_id &&
				latest.version == resolved->version &&
				latest.version_xmin == resolved->version_xmin &&
				latest.model_xmin == resolved->model_xmin;
			if (latest.model_id == resolved->model_id)
			{
				resolved->owner = latest.owner;
				resolved->ngrantees = latest.ngrantees;
				resolved->grantees = latest.grantees;
			}
		}
		PopActiveSnapshot();
	}
	CatalogEnd(&scope);

	if (!found)
		MissingModel(name);
	if (resolved->version == 0)
	{
		CatalogCheckUse(resolved);
		CatalogMissingVersion(name, resolved->model_id, version > 0 ? version : resolved->deployed_version);
	}
}

void
CatalogCheckUse(const ModelReference *resolved)
{
	Oid			role = GetUserId();

	if (has_privs_of_role(role, resolved->owner))
		return;
	for (int i = 0; i < resolved->ngrantees; i++)
	{
		if (!OidIsValid(resolved->grantees[i]) || has_privs_of_role(role, resolved->grantees[i]))
			return;
	}
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied for model \"%s\"", resolved->name),
			 errhint("Its owner can let you use it with grant_model.")));
}

void
CatalogCheckOwner(Oid role, Oid owner, const char *name)
{
	if (!has_privs_of_role(role, owner))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be owner of model \"%s\"", name)));
}

void
CatalogCheckTrain(const char *name)
{
	CatalogScope scope;
	ModelReference existing;
	bool		found;

	CatalogCheckName(name);
	CatalogBegin(&scope);
	found = Lookup(name, 0, &existing, scope.caller);
	CatalogEnd(&scope);
	if (found)
		CatalogCheckOwner(GetUserId(), existing.owner, name);
}

void
CatalogLockModel(const char *name, bool change_key, OwnedModel *model)
{
	Oid			types[] = {TEXTOID};
	Datum		values[] = {CStringGetTextDatum(name)};
	CatalogScope scope;
	Oid			owner = InvalidOid;
	ModelReference seen;
	uint64		found;

	/* Rights first: only those who may change a model get to lock it. */
	CatalogBegin(&scope);
	found = Lookup(name, 0, &seen, scope.caller);
	CatalogEnd(&scope);
	if (!found)
		MissingModel(name);
	CatalogCheckOwner(GetUserId(), seen.owner, name);

	CatalogBegin(&scope);
	found = CatalogExecute(change_key ?
						   "SELECT model_id, deployed_version, owner::oid FROM pgtrain.model WHERE name = $1 FOR UPDATE" :
						   "SELECT model_id, deployed_version, owner::oid FROM pgtrain.model WHERE name = $1 FOR NO KEY UPDATE",
						   false, lengthof(types), types, values, NULL);
	if (found)
	{
		HeapTuple	tuple = SPI_tuptable->vals[0];
		TupleDesc	desc = SPI_tuptable->tupdesc;
		bool		isnull;

		model->model_id = DatumGetInt64(SPI_getbinval(tuple, desc, 1, &isnull));
		model->deployed_version = DatumGetInt32(SPI_getbinval(tuple, desc, 2, &isnull));
		owner = DatumGetObjectId(SPI_getbinval(tuple, desc, 3, &isnull));
	}
	CatalogEnd(&scope);
	if (!found)
		MissingModel(name);
	CatalogCheckOwner(GetUserId(), owner, name);
}
