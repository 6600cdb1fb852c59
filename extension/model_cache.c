/*
 * model_cache.c - models ready to score, kept for the session.
 */
#include "postgres.h"

#include <limits.h>

#include "access/transam.h"
#include "access/xact.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "extension/classes.h"
#include "extension/model_cache.h"
#include "extension/stored_network.h"

/* Longest reference that is remembered: a name, "@" and a version. */
#define REFERENCE_SIZE (NAMEDATALEN + 12)

/* References that are remembered at most. */
#define MAX_NAMES 1000

typedef struct NameEntry
{
	char		reference[REFERENCE_SIZE];	/* hash key */
	ModelReference resolved;
} NameEntry;

uint64		model_catalog_generation = 1;
uint64		relation_generation = 1;

static int	model_cache_kb = 64 * 1024;

/* Networks, the one used last first. */
static dlist_head models = DLIST_STATIC_INIT(models);
static Size models_bytes = 0;

/* What references stand for; valid for names_generation only. */
static HTAB *names = NULL;
static MemoryContext names_context = NULL;
static uint64 names_generation = 0;

static Oid	model_relid = InvalidOid;	/* pgtrain.model, once it was asked for a model */

static void
RelationInvalidated(Datum arg, Oid relid)
{
	relation_generation++;
	if (!OidIsValid(relid) || relid == model_relid)
		model_catalog_generation++;
}

void
ModelCacheInit(void)
{
	DefineCustomIntVariable("pg_train.model_cache_size",
							"Memory that a session may keep for models that it has scored with.",
							"A model that a running query uses is kept in any case.",
							&model_cache_kb,
							64 * 1024, 0, MAX_KILOBYTES,
							PGC_USERSET, GUC_UNIT_KB,
							NULL, NULL, NULL);
	CacheRegisterRelcacheCallback(RelationInvalidated, (Datum) 0);
}

/* Names */

static void
ForgetNames(void)
{
	if (names_context != NULL)
		MemoryContextDelete(names_context);
	names_context = NULL;
	names = NULL;
}

static void
CreateNames(void)
{
	HASHCTL		control = {0};

	names_context = AllocSetContextCreate(TopMemoryContext, "pg_train model names", ALLOCSET_SMALL_SIZES);
	control.keysize = REFERENCE_SIZE;
	control.entrysize = sizeof(NameEntry);
	control.hcxt = names_context;
	names = hash_create("pg_train model names", 32, &control, HASH_ELEM | HASH_STRINGS | HASH_CONTEXT);
	names_generation = model_catalog_generation;
}

/*
 * A name is remembered as the newest state has it.  A query with an older snapshot, an open cursor for instance,
 * may have to see a former one.
 */
static bool
VisibleToActiveSnapshot(const ModelReference *resolved)
{
	TransactionId xmin = resolved->model_xmin;

	return !TransactionIdIsNormal(xmin) || TransactionIdIsCurrentTransactionId(xmin) ||
		!XidInMVCCSnapshot(xmin, GetActiveSnapshot());
}

static const ModelReference *
RememberedName(const char *reference)
{
	NameEntry  *entry;

	if (names == NULL)
		return NULL;
	if (names_generation != model_catalog_generation)
	{
		ForgetNames();
		return NULL;
	}
	if (strlen(reference) >= REFERENCE_SIZE)
		return NULL;
	entry = hash_search(names, reference, HASH_FIND, NULL);
	if (entry == NULL || !VisibleToActiveSnapshot(&entry->resolved))
		return NULL;
	return &entry->resolved;
}

static void
RememberName(const char *reference, const ModelReference *resolved, uint64 generation)
{
	ModelReference copy = *resolved;

	/* An answer that was overtaken while it was fetched serves its own query only. */
	if (generation != model_catalog_generation || strlen(reference) >= REFERENCE_SIZE)
		return;
	if (names == NULL)
		CreateNames();
	if (hash_get_num_entries(names) >= MAX_NAMES)
	{
		ForgetNames();
		CreateNames();
	}

	copy.name = MemoryContextStrdup(names_context, resolved->name);
	copy.grantees = MemoryContextAlloc(names_context, sizeof(Oid) * Max(resolved->ngrantees, 1));
	memcpy(copy.grantees, resolved->grantees, sizeof(Oid) * resolved->ngrantees);
	((NameEntry *) hash_search(names, reference, HASH_ENTER, NULL))->resolved = copy;
}

/* Networks */

static void
DropModel(CachedModel *model)
{
	dlist_delete(&model->lru);
	models_bytes -= model->bytes;
	MemoryContextDelete(model->context);
}

/* Drop models that no query uses, the one not used for longest first, until the rest fits. */
static void
MakeRoom(void)
{
	dlist_node *node = models.head.prev;

	while (models_bytes > (Size) model_cache_kb * 1024 && node != NULL && node != &models.head)
	{
		CachedModel *model = dlist_container(CachedModel, lru, node);

		node = node->prev;
		if (model->pins == 0)
			DropModel(model);
	}
}

static CachedModel *
FindModel(const ModelReference *resolved)
{
	dlist_iter	iter;

	dlist_foreach(iter, &models)
	{
		CachedModel *model = dlist_container(CachedModel, lru, iter.cur);

		if (model->version->model_id == resolved->model_id && model->version->version == resolved->version &&
			model->version_xmin == resolved->version_xmin && model->relid == model_relid)
			return model;
	}
	return NULL;
}

/* A newer version takes the place of older ones.  Whoever still scores with one of those by number loads it again. */
static void
DropOlderVersions(const CachedModel *newer)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &models)
	{
		CachedModel *model = dlist_container(CachedModel, lru, iter.cur);

		if (model->pins == 0 && model->relid == newer->relid && model->version->model_id == newer->version->model_id &&
			model->version->version < newer->version->version)
			DropModel(model);
	}
}

/* Give a model the network for so many rows a call, in place of the one that it may have. */
static void
LoadNetwork(CachedModel *model, const ModelReference *resolved, int rows)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "pg_train network", ALLOCSET_SMALL_SIZES);
	Model	   *network;

	rows = NetworkBatchRows(model->version, rows);
	network = NetworkLoad(resolved, model->version, rows, context);
	if (model->network_context != NULL)
		MemoryContextDelete(model->network_context);
	MemoryContextSetParent(context, model->context);
	model->network_context = context;
	model->model = network;
	model->max_rows = rows;
}

/* Let a model take so many rows a call, which it was loaded for fewer of. */
static void
EnlargeModel(CachedModel *model, const ModelReference *resolved, int rows)
{
	size_t		before = model_bytes(model->model);
	Size		more;

	if (NetworkBatchRows(model->version, rows) <= model->max_rows)
		return;
	LoadNetwork(model, resolved, rows);
	more = model_bytes(model->model) - before;
	model->bytes += more;
	models_bytes += more;
}

static CachedModel *
LoadModel(const ModelReference *resolved, int rows)
{
	MemoryContext context;
	MemoryContext old;
	CachedModel *model;

	/* Freed with the caller's context if anything below fails. */
	context = AllocSetContextCreate(CurrentMemoryContext, "pg_train model", ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(context);
	model = palloc0(sizeof(CachedModel));
	model->context = context;
	model->version = CatalogReadVersion(resolved);
	model->version_xmin = resolved->version_xmin;
	model->relid = model_relid;
	LoadNetwork(model, resolved, rows);
	model->input = palloc_extended(sizeof(float) * model->version->encoders->input_width,
								   MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	model->output = palloc0(sizeof(float) * model->version->outputs);
	if (model->version->task == TASK_CLASSIFICATION)
	{
		model->nclasses = model->version->nclasses;
		model->class_values = ClassValues(model->version);
	}
	MemoryContextSetIdentifier(context, model->version->name);
	MemoryContextSwitchTo(old);

	model->bytes = model_bytes(model->model) + MemoryContextMemAllocated(context, true);
	DropOlderVersions(model);
	MemoryContextSetParent(context, TopMemoryContext);
	dlist_push_head(&models, &model->lru);
	models_bytes += model->bytes;
	return model;
}

CachedModel *
ModelCacheAcquire(const char *reference, int rows)
{
	const ModelReference *resolved;
	ModelReference fresh;
	CachedModel *model;

	/* What others have committed counts from now on, also where this statement has locked no table yet. */
	model_relid = CatalogModelRelid();
	AcceptInvalidationMessages();

	resolved = RememberedName(reference);
	if (resolved == NULL)
	{
		uint64		generation = model_catalog_generation;

		CatalogResolve(reference, &fresh);
		if (fresh.current)
			RememberName(reference, &fresh, generation);
		resolved = &fresh;
	}
	CatalogCheckUse(resolved);

	model = FindModel(resolved);
	if (model == NULL)
		model = LoadModel(resolved, rows);
	else if (rows > model->max_rows)
		EnlargeModel(model, resolved, rows);
	model->pins++;
	dlist_move_head(&models, &model->lru);
	MakeRoom();
	return model;
}

void
ModelCacheRelease(CachedModel *model)
{
	Assert(model->pins > 0);
	model->pins--;
	MakeRoom();
}
