/*
 * predict.c - scoring a row: predict, predict_class, predict_proba.
 *
 * A call site holds the models that it has scored with until its query ends, so that a model deployed meanwhile
 * does not change results midway, and remembers how a row type's columns bind to them.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "extension/compat.h"
#include "extension/model_cache.h"
#include "extension/prediction.h"
#include "extension/report.h"
#include "extension/row_reader.h"

/* Models that a call site holds at once; more only where the model's name comes from a column. */
#define MAX_SITE_MODELS 8

typedef struct SiteModel
{
	MemoryContext context;		/* of this and of what the reader keeps */
	CachedModel *model;
	int			reference_length;
	char	   *reference;
	RowReader	reader;
} SiteModel;

/* What tells a snapshot from another one of the same transaction. */
typedef struct SnapshotMark
{
	TransactionId xmax;
	uint32		xcnt;
	int32		subxcnt;
	CommandId	curcid;
} SnapshotMark;

typedef struct Site
{
	MemoryContext context;
	MemoryContextCallback release;
	uint64		generation;		/* of model_catalog_generation */
	Oid			role;
	SnapshotMark snapshot;
	SiteModel  *current;
	int			oldest;			/* in models, where all are taken */
	SiteModel  *models[MAX_SITE_MODELS];
	CachedModel *held[MAX_SITE_MODELS]; /* theirs, for when the memory of models is gone already */
} Site;

static void
ReleaseSiteModel(Site *site, int i)
{
	SiteModel  *model = site->models[i];

	if (model == NULL)
		return;
	site->models[i] = NULL;
	site->held[i] = NULL;
	if (site->current == model)
		site->current = NULL;
	ModelCacheRelease(model->model);
	MemoryContextDelete(model->context);
}

/* The query has ended: its memory goes by itself, the models are given back. */
static void
ReleaseSite(void *arg)
{
	Site	   *site = arg;

	for (int i = 0; i < MAX_SITE_MODELS; i++)
	{
		if (site->held[i] != NULL)
			ModelCacheRelease(site->held[i]);
		site->held[i] = NULL;
	}
}

static Site *
CreateSite(FmgrInfo *flinfo)
{
	MemoryContext context;
	Site	   *site;

	context = AllocSetContextCreate(flinfo->fn_mcxt, "pg_train scoring", ALLOCSET_SMALL_SIZES);
	site = MemoryContextAllocZero(context, sizeof(Site));
	site->context = context;
	site->release.func = ReleaseSite;
	site->release.arg = site;
	MemoryContextRegisterResetCallback(context, &site->release);
	flinfo->fn_extra = site;
	return site;
}

static SnapshotMark
MarkSnapshot(void)
{
	Snapshot	snapshot = GetActiveSnapshot();

	return (SnapshotMark) {snapshot->xmax, snapshot->xcnt, snapshot->subxcnt, snapshot->curcid};
}

static bool
SameSnapshot(SnapshotMark a, SnapshotMark b)
{
	return a.xmax == b.xmax && a.xcnt == b.xcnt && a.subxcnt == b.subxcnt && a.curcid == b.curcid;
}

static bool
IsReference(const SiteModel *model, const text *reference)
{
	return model->reference_length == VARSIZE_ANY_EXHDR(reference) &&
		memcmp(model->reference, VARDATA_ANY(reference), model->reference_length) == 0;
}

static SiteModel *
AddSiteModel(Site *site, const text *reference)
{
	char	   *name = text_to_cstring(reference);
	MemoryContext context;
	SiteModel  *model;
	int			i;

	for (i = 0; i < MAX_SITE_MODELS && site->models[i] != NULL; i++)
		;
	if (i == MAX_SITE_MODELS)
	{
		i = site->oldest;
		site->oldest = (site->oldest + 1) % MAX_SITE_MODELS;
		ReleaseSiteModel(site, i);
	}

	context = AllocSetContextCreate(site->context, "pg_train scoring model", ALLOCSET_SMALL_SIZES);
	model = MemoryContextAllocZero(context, sizeof(SiteModel));
	model->context = context;
	model->reference = MemoryContextStrdup(context, name);
	model->reference_length = strlen(name);
	model->model = ModelCacheAcquire(name, 1);
	RowReaderInit(&model->reader, model->model->version, context);
	site->models[i] = model;
	site->held[i] = model->model;
	pfree(name);
	return model;
}

/*
 * Anything but another row for the model used last: the first call, another model, another role, or news about
 * the catalog.  News count from the next snapshot on, which is the next statement: an expression of PL/pgSQL keeps
 * its call site over many of them.
 */
static SiteModel *
FindSiteModel(FmgrInfo *flinfo, const text *reference)
{
	Site	   *site = flinfo->fn_extra;
	Oid			role = GetUserId();
	SnapshotMark snapshot = MarkSnapshot();

	if (site == NULL)
		site = CreateSite(flinfo);

	if (site->role != role ||
		(site->generation != model_catalog_generation && !SameSnapshot(site->snapshot, snapshot)))
	{
		for (int i = 0; i < MAX_SITE_MODELS; i++)
			ReleaseSiteModel(site, i);
	}
	site->role = role;
	site->snapshot = snapshot;
	site->generation = model_catalog_generation;
	site->current = NULL;

	for (int i = 0; i < MAX_SITE_MODELS && site->current == NULL; i++)
	{
		if (site->models[i] != NULL && IsReference(site->models[i], reference))
			site->current = site->models[i];
	}
	if (site->current == NULL)
		site->current = AddSiteModel(site, reference);
	return site->current;
}

static inline SiteModel *
GetSiteModel(FunctionCallInfo fcinfo)
{
	const text *reference = PG_GETARG_TEXT_PP(0);
	Site	   *site = fcinfo->flinfo->fn_extra;

	if (likely(site != NULL && site->current != NULL && site->generation == model_catalog_generation &&
			   site->role == GetUserId() && IsReference(site->current, reference)))
		return site->current;
	return FindSiteModel(fcinfo->flinfo, reference);
}

/* Run the network on a row; NULL: a feature is NULL. */
static const float *
ForwardRow(FunctionCallInfo fcinfo, SiteModel *model)
{
	HeapTupleHeader row = PG_GETARG_HEAPTUPLEHEADER(1);
	CachedModel *cached = model->model;
	RowReader  *reader = &model->reader;
	Error		err;

	if (unlikely(!RowReaderKnows(reader, row)))
		RowReaderBind(reader, row);
	switch (RowReaderEncode(reader, row, cached->input))
	{
		case ROW_ENCODED:
			break;
		case ROW_HAS_NULL:
			return NULL;
		case ROW_INVALID:
			RowBindingReport(reader->binding, reader->values, reader->nulls);
	}
	if (model_forward(cached->model, 1, cached->input, cached->output, &err) != STATUS_OK)
		ReportError(&err);
	return cached->output;
}

/* The same on an array. */
static const float *
ForwardArray(FunctionCallInfo fcinfo, SiteModel *model)
{
	ArrayType  *array = PG_GETARG_ARRAYTYPE_P(1);
	CachedModel *cached = model->model;
	Error		err;

	switch (FeatureArrayTryEncode(cached->version, array, cached->input))
	{
		case ROW_ENCODED:
			break;
		case ROW_HAS_NULL:
			return NULL;
		case ROW_INVALID:
			FeatureArrayReport(cached->version, array);
	}
	if (model_forward(cached->model, 1, cached->input, cached->output, &err) != STATUS_OK)
		ReportError(&err);
	return cached->output;
}

typedef const float *(*ForwardFunction) (FunctionCallInfo fcinfo, SiteModel *model);

static inline Datum
Predict(FunctionCallInfo fcinfo, PredictionKind kind, ForwardFunction forward)
{
	SiteModel  *model = GetSiteModel(fcinfo);
	const float *outputs;

	PredictionCheck(kind, model->model);
	outputs = forward(fcinfo, model);
	if (outputs == NULL)
		PG_RETURN_NULL();
	return PredictionDatum(kind, model->model, outputs);
}

PG_FUNCTION_INFO_V1(pgt_predict_row);
PG_FUNCTION_INFO_V1(pgt_predict_array);
PG_FUNCTION_INFO_V1(pgt_predict_class_row);
PG_FUNCTION_INFO_V1(pgt_predict_class_array);
PG_FUNCTION_INFO_V1(pgt_predict_proba_row);
PG_FUNCTION_INFO_V1(pgt_predict_proba_array);

Datum
pgt_predict_row(PG_FUNCTION_ARGS)
{
	return Predict(fcinfo, PREDICT_VALUE, ForwardRow);
}

Datum
pgt_predict_array(PG_FUNCTION_ARGS)
{
	return Predict(fcinfo, PREDICT_VALUE, ForwardArray);
}

Datum
pgt_predict_class_row(PG_FUNCTION_ARGS)
{
	return Predict(fcinfo, PREDICT_CLASS, ForwardRow);
}

Datum
pgt_predict_class_array(PG_FUNCTION_ARGS)
{
	return Predict(fcinfo, PREDICT_CLASS, ForwardArray);
}

Datum
pgt_predict_proba_row(PG_FUNCTION_ARGS)
{
	return Predict(fcinfo, PREDICT_PROBABILITIES, ForwardRow);
}

Datum
pgt_predict_proba_array(PG_FUNCTION_ARGS)
{
	return Predict(fcinfo, PREDICT_PROBABILITIES, ForwardArray);
}
