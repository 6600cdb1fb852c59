/*
 * predict.c - scoring a row: predict, predict_class, predict_proba.
 *
 * A call site holds the models that it has scored with until its query ends, so that a model deployed meanwhile
 * does not change results midway, and remembers how a row type's columns bind to them.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/typcache.h"

#include "extension/classes.h"
#include "extension/compat.h"
#include "extension/model_cache.h"
#include "extension/report.h"
#include "extension/row_binding.h"

/* Models that a call site holds at once; more only where the model's name comes from a column. */
#define MAX_SITE_MODELS 8

typedef struct SiteModel
{
	MemoryContext context;		/* of this and of the binding */
	CachedModel *model;
	int			reference_length;
	char	   *reference;

	/* The row type seen last, and how it binds. */
	Oid			row_type;
	int32		row_typmod;
	uint64		row_generation; /* of relation_generation, when row_identifier was right */
	uint64		row_identifier;
	MemoryContext binding_context;
	RowBinding *binding;
	TupleDesc	desc;
	Datum	   *values;
	bool	   *nulls;
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
	model->model = ModelCacheAcquire(name);
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

static void
BindRow(SiteModel *model, Oid type, int32 typmod)
{
	uint64		generation = relation_generation;
	uint64		identifier = assign_record_type_identifier(type, typmod);
	MemoryContext old;
	TupleDesc	desc;

	/* A relation has changed, but not this row type? */
	if (model->binding != NULL && model->row_type == type && model->row_typmod == typmod &&
		model->row_identifier == identifier)
	{
		model->row_generation = generation;
		return;
	}

	model->binding = NULL;
	if (model->binding_context == NULL)
		model->binding_context = AllocSetContextCreate(model->context, "pg_train binding", ALLOCSET_SMALL_SIZES);
	else
		MemoryContextReset(model->binding_context);
	old = MemoryContextSwitchTo(model->binding_context);
	desc = lookup_rowtype_tupdesc(type, typmod);
	/* with the constraints come what heap_deform_tuple checks a row against and defaults for short rows */
	model->desc = CreateTupleDescCopyConstr(desc);
	ReleaseTupleDesc(desc);
	model->binding = RowBindingCreate(model->model->version, model->desc);
	model->values = palloc(sizeof(Datum) * model->desc->natts);
	model->nulls = palloc(sizeof(bool) * model->desc->natts);
	MemoryContextSwitchTo(old);

	model->row_type = type;
	model->row_typmod = typmod;
	model->row_identifier = identifier;
	model->row_generation = generation;
}

/* Run the network on a row; NULL: a feature is NULL. */
static const float *
ForwardRow(FunctionCallInfo fcinfo, SiteModel *model)
{
	HeapTupleHeader row = PG_GETARG_HEAPTUPLEHEADER(1);
	Oid			type = HeapTupleHeaderGetTypeId(row);
	int32		typmod = HeapTupleHeaderGetTypMod(row);
	CachedModel *cached = model->model;
	HeapTupleData tuple;
	Error		err;

	if (unlikely(model->binding == NULL || model->row_type != type || model->row_typmod != typmod ||
				 model->row_generation != relation_generation))
		BindRow(model, type, typmod);

	tuple.t_len = HeapTupleHeaderGetDatumLength(row);
	ItemPointerSetInvalid(&tuple.t_self);
	tuple.t_tableOid = InvalidOid;
	tuple.t_data = row;
	heap_deform_tuple(&tuple, model->desc, model->values, model->nulls);

	if (!RowBindingEncode(model->binding, model->values, model->nulls, cached->input))
		return NULL;
	if (model_forward(cached->model, 1, cached->input, cached->output, &err) != STATUS_OK)
		ReportError(&err);
	return cached->output;
}

static void pg_attribute_noreturn()
WrongArrayLength(const ModelVersion *version, int length)
{
	StringInfoData features;

	initStringInfo(&features);
	for (int i = 0; i < version->encoders->ncolumns; i++)
	{
		const ColumnEncoder *column = &version->encoders->columns[i];

		if (features.len > 1000)
		{
			appendStringInfoString(&features, ", ...");
			break;
		}
		appendStringInfo(&features, "%s\"%s\"", i > 0 ? ", " : "", column->column);
		if (column->kind != ENCODER_NUMBER)
			appendStringInfo(&features, " (%d values)", column->width);
	}
	ereport(ERROR,
			(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
			 errmsg("array has %d elements, but model \"%s\" takes %d",
					length, version->name, version->encoders->input_width),
			 errdetail("Its features are, in this order: %s.", features.data)));
}

/* The same on an array. */
static const float *
ForwardArray(FunctionCallInfo fcinfo, SiteModel *model)
{
	ArrayType  *array = PG_GETARG_ARRAYTYPE_P(1);
	CachedModel *cached = model->model;
	const EncoderSet *encoders = cached->version->encoders;
	int			length = ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));
	Error		err;

	if (length != encoders->input_width)
		WrongArrayLength(cached->version, length);
	if (ARR_HASNULL(array) && array_contains_nulls(array))
		return NULL;
	EncodeArray(encoders, (const float4 *) ARR_DATA_PTR(array), cached->input);
	if (model_forward(cached->model, 1, cached->input, cached->output, &err) != STATUS_OK)
		ReportError(&err);
	return cached->output;
}

typedef const float *(*ForwardFunction) (FunctionCallInfo fcinfo, SiteModel *model);

static void
NeedClasses(const CachedModel *model)
{
	if (model->nclasses == 0)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("model \"%s\" is a regression and has no classes", model->version->name),
				 errhint("Use predict.")));
}

static inline Datum
Predict(FunctionCallInfo fcinfo, ForwardFunction forward)
{
	SiteModel  *site_model = GetSiteModel(fcinfo);
	const CachedModel *model = site_model->model;
	const float *output;

	if (model->nclasses > 0 && model->class_values == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("classes of model \"%s\" are not numbers", model->version->name),
				 errhint("Use predict_class for the label, or predict_proba for the probabilities.")));

	output = forward(fcinfo, site_model);
	if (output == NULL)
		PG_RETURN_NULL();
	if (model->nclasses > 0)
		PG_RETURN_FLOAT8(model->class_values[MostProbableClass(model->version, output)]);
	PG_RETURN_FLOAT8(output[0] * model->version->target_stddev + model->version->target_mean);
}

static inline Datum
PredictClass(FunctionCallInfo fcinfo, ForwardFunction forward)
{
	SiteModel  *site_model = GetSiteModel(fcinfo);
	const CachedModel *model = site_model->model;
	const float *output;

	NeedClasses(model);
	output = forward(fcinfo, site_model);
	if (output == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(model->version->classes[MostProbableClass(model->version, output)]));
}

static inline Datum
PredictProba(FunctionCallInfo fcinfo, ForwardFunction forward)
{
	SiteModel  *site_model = GetSiteModel(fcinfo);
	const CachedModel *model = site_model->model;
	const float *output;
	ArrayType  *result;
	float4	   *p;
	Size		bytes;

	NeedClasses(model);
	output = forward(fcinfo, site_model);
	if (output == NULL)
		PG_RETURN_NULL();

	bytes = ARR_OVERHEAD_NONULLS(1) + sizeof(float4) * model->nclasses;
	result = palloc0(bytes);
	SET_VARSIZE(result, bytes);
	result->ndim = 1;
	result->elemtype = FLOAT4OID;
	ARR_DIMS(result)[0] = model->nclasses;
	ARR_LBOUND(result)[0] = 1;
	p = (float4 *) ARR_DATA_PTR(result);
	ClassProbabilities(model->version, output, p);
	PG_RETURN_ARRAYTYPE_P(result);
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
	return Predict(fcinfo, ForwardRow);
}

Datum
pgt_predict_array(PG_FUNCTION_ARGS)
{
	return Predict(fcinfo, ForwardArray);
}

Datum
pgt_predict_class_row(PG_FUNCTION_ARGS)
{
	return PredictClass(fcinfo, ForwardRow);
}

Datum
pgt_predict_class_array(PG_FUNCTION_ARGS)
{
	return PredictClass(fcinfo, ForwardArray);
}

Datum
pgt_predict_proba_row(PG_FUNCTION_ARGS)
{
	return PredictProba(fcinfo, ForwardRow);
}

Datum
pgt_predict_proba_array(PG_FUNCTION_ARGS)
{
	return PredictProba(fcinfo, ForwardArray);
}
