/*
 * catalog_version.c - versions of models: what one training run made, to the catalog and back.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/array.h"
#include "utils/builtins.h"

#include "extension/catalog.h"

/* Format of weights and encoders; raised when either changes. */
#define CATALOG_FORMAT 1

/* Parameters of a statement, added one by one. */
#define MAX_PARAMS 32

typedef struct Params
{
	int			n;
	Oid			types[MAX_PARAMS];
	Datum		values[MAX_PARAMS];
	char		nulls[MAX_PARAMS];
} Params;

static void
AddParam(Params *params, Oid type, Datum value)
{
	Assert(params->n < MAX_PARAMS);
	params->types[params->n] = type;
	params->values[params->n] = value;
	params->nulls[params->n] = ' ';
	params->n++;
}

static void
AddNull(Params *params, Oid type)
{
	AddParam(params, type, (Datum) 0);
	params->nulls[params->n - 1] = 'n';
}

static void
AddText(Params *params, const char *value)
{
	AddParam(params, TEXTOID, CStringGetTextDatum(value));
}

static Datum
IntArray(const int32 *values, int n)
{
	Datum	   *elements = palloc(sizeof(Datum) * n);

	for (int i = 0; i < n; i++)
		elements[i] = Int32GetDatum(values[i]);
	return PointerGetDatum(construct_array(elements, n, INT4OID, 4, true, TYPALIGN_INT));
}

static Datum
TextArray(char **values, int n)
{
	Datum	   *elements = palloc(sizeof(Datum) * n);

	for (int i = 0; i < n; i++)
		elements[i] = CStringGetTextDatum(values[i]);
	return PointerGetDatum(construct_array(elements, n, TEXTOID, -1, false, TYPALIGN_INT));
}

/*
 * Give the version its number.  The model's row is locked from here to the end of the transaction, so that
 * two sessions which train one name get two numbers.
 */
static void
TakeVersionNumber(ModelVersion *version, Oid role)
{
	Params		params = {0};
	HeapTuple	tuple;
	TupleDesc	desc;
	bool		isnull;

	AddText(&params, version->name);
	AddParam(&params, REGROLEOID, ObjectIdGetDatum(role));
	if (CatalogExecute("INSERT INTO pgtrain.model AS m (name, owner, deployed_version, last_version)"
					   " VALUES ($1, $2, 1, 1) ON CONFLICT (name) DO UPDATE"
					   " SET deployed_version = m.last_version + 1, last_version = m.last_version + 1"
					   " RETURNING model_id, owner::oid, last_version",
					   false, params.n, params.types, params.values, params.nulls) != 1)
		elog(ERROR, "could not store model \"%s\"", version->name);
	tuple = SPI_tuptable->vals[0];
	desc = SPI_tuptable->tupdesc;
	version->model_id = DatumGetInt64(SPI_getbinval(tuple, desc, 1, &isnull));
	version->version = DatumGetInt32(SPI_getbinval(tuple, desc, 3, &isnull));

	/* Somebody else may have made a model of this name since CatalogCheckTrain. */
	CatalogCheckOwner(role, DatumGetObjectId(SPI_getbinval(tuple, desc, 2, &isnull)), version->name);
}

static void
WriteVersion(const ModelVersion *version, Oid role)
{
	Params		params = {0};

	AddParam(&params, INT8OID, Int64GetDatum(version->model_id));
	AddParam(&params, INT4OID, Int32GetDatum(version->version));
	AddParam(&params, INT4OID, Int32GetDatum(CATALOG_FORMAT));
	AddParam(&params, REGROLEOID, ObjectIdGetDatum(role));
	AddText(&params, TaskName(version->task));
	AddText(&params, LossName(version->loss));
	AddText(&params, version->source);
	AddText(&params, version->target);
	AddText(&params, format_type_extended(version->target_type, -1, FORMAT_TYPE_FORCE_QUALIFY));
	if (version->task == TASK_CLASSIFICATION)
		AddParam(&params, TEXTARRAYOID, TextArray(version->classes, version->nclasses));
	else
		AddNull(&params, TEXTARRAYOID);
	AddParam(&params, JSONBOID, JsonbPGetDatum(EncodersToJsonb(version->encoders)));
	if (version->input.height > 0)
	{
		int32		shape[3] = {version->input.channels, version->input.height, version->input.width};

		AddParam(&params, INT4ARRAYOID, IntArray(shape, 3));
	}
	else
		AddNull(&params, INT4ARRAYOID);
	AddParam(&params, JSONBOID, JsonbPGetDatum(version->architecture));
	AddParam(&params, INT4OID, Int32GetDatum(version->outputs));
	AddParam(&params, FLOAT8OID, Float8GetDatum(version->target_mean));
	AddParam(&params, FLOAT8OID, Float8GetDatum(version->target_stddev));
	AddParam(&params, JSONBOID, JsonbPGetDatum(version->options));
	AddParam(&params, INT8OID, Int64GetDatum(version->rows_used));
	AddParam(&params, INT8OID, Int64GetDatum(version->rows_skipped));
	AddParam(&params, INT8OID, Int64GetDatum(version->train_rows));
	AddParam(&params, INT8OID, Int64GetDatum(version->validation_rows));
	AddText(&params, version->device);
	AddText(&params, version->precision);
	AddText(&params, version->libraries);
	AddParam(&params, INT8OID, Int64GetDatum(version->seed));
	AddParam(&params, FLOAT8OID, Float8GetDatum(version->seconds_loading));
	AddParam(&params, FLOAT8OID, Float8GetDatum(version->seconds_training));
	AddParam(&params, INT8OID, Int64GetDatum(version->parameters));

	CatalogExecute("INSERT INTO pgtrain.model_version (model_id, version, format, created_by, task, loss,"
				   " source, target, target_type, classes, encoders, input_shape, architecture, outputs,"
				   " target_mean, target_stddev, options, rows_used, rows_skipped, train_rows, validation_rows,"
				   " device, precision, libraries, seed, seconds_loading, seconds_training, parameters)"
				   " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18,"
				   " $19, $20, $21, $22, $23, $24, $25, $26, $27, $28)",
				   false, params.n, params.types, params.values, params.nulls);
}

/* The rows of pgtrain.epoch_metric to be, column by column. */
typedef struct MetricRows
{
	ArrayBuildState *epoch;
	ArrayBuildState *split;
	ArrayBuildState *metric;
	ArrayBuildState *value;
} MetricRows;

static void
AddMetric(MetricRows *rows, int32 epoch, const char *split, const char *metric, double value)
{
	MemoryContext context = CurrentMemoryContext;

	rows->epoch = accumArrayResult(rows->epoch, Int32GetDatum(epoch), false, INT4OID, context);
	rows->split = accumArrayResult(rows->split, CStringGetTextDatum(split), false, TEXTOID, context);
	rows->metric = accumArrayResult(rows->metric, CStringGetTextDatum(metric), false, TEXTOID, context);
	rows->value = accumArrayResult(rows->value, Float8GetDatum(value), false, FLOAT8OID, context);
}

static void
WriteMetrics(const ModelVersion *version)
{
	MetricRows	rows = {0};
	Params		params = {0};
	MemoryContext context = CurrentMemoryContext;
	ListCell   *lc;

	if (version->epochs == NIL)
		return;
	foreach(lc, version->epochs)
	{
		const EpochReport *report = lfirst(lc);
		bool		validated = report->validation_rows > 0;

		AddMetric(&rows, report->epoch, "train", "loss", report->train_loss);
		if (validated)
			AddMetric(&rows, report->epoch, "validation", "loss", report->validation_loss);
		if (version->task == TASK_CLASSIFICATION)
		{
			AddMetric(&rows, report->epoch, "train", "accuracy", report->train_accuracy);
			if (validated)
				AddMetric(&rows, report->epoch, "validation", "accuracy", report->validation_accuracy);
			continue;
		}
		AddMetric(&rows, report->epoch, "train", "r2", report->train_r2);
		AddMetric(&rows, report->epoch, "train", "rmse", report->train_rmse);
		AddMetric(&rows, report->epoch, "train", "mae", report->train_mae);
		if (validated)
		{
			AddMetric(&rows, report->epoch, "validation", "r2", report->validation_r2);
			AddMetric(&rows, report->epoch, "validation", "rmse", report->validation_rmse);
			AddMetric(&rows, report->epoch, "validation", "mae", report->validation_mae);
		}
	}

	AddParam(&params, INT8OID, Int64GetDatum(version->model_id));
	AddParam(&params, INT4OID, Int32GetDatum(version->version));
	AddParam(&params, INT4ARRAYOID, makeArrayResult(rows.epoch, context));
	AddParam(&params, TEXTARRAYOID, makeArrayResult(rows.split, context));
	AddParam(&params, TEXTARRAYOID, makeArrayResult(rows.metric, context));
	AddParam(&params, FLOAT8ARRAYOID, makeArrayResult(rows.value, context));
	/* Several arrays side by side are parsed for the bare name only. */
	CatalogExecute("INSERT INTO pgtrain.epoch_metric (model_id, version, epoch, split, metric, value)"
				   " SELECT $1, $2, u.* FROM ROWS FROM (pg_catalog.unnest($3),"
				   " pg_catalog.unnest($4), pg_catalog.unnest($5), pg_catalog.unnest($6)) u",
				   false, params.n, params.types, params.values, params.nulls);
}

void
CatalogSaveVersion(ModelVersion *version)
{
	CatalogScope scope;

	CatalogCheckName(version->name);
	CatalogBegin(&scope);
	TakeVersionNumber(version, scope.user);
	WriteVersion(version, scope.user);
	WriteMetrics(version);
	CatalogWriteTensors(version->model_id, version->version, version->tensors);
	CatalogEnd(&scope);
	CatalogChanged();
}

/* Reading: the columns of a row by the position in the statement below. */
typedef struct RowReader
{
	HeapTuple	tuple;
	TupleDesc	desc;
	bool		isnull;			/* of the value read last */
} RowReader;

static Datum
ReadColumn(RowReader *reader, int column)
{
	return SPI_getbinval(reader->tuple, reader->desc, column, &reader->isnull);
}

static char *
ReadText(RowReader *reader, int column)
{
	return SPI_getvalue(reader->tuple, reader->desc, column);
}

static Jsonb *
ReadJsonb(RowReader *reader, int column)
{
	return DatumGetJsonbPCopy(ReadColumn(reader, column));
}

static Task
TaskByName(const char *name)
{
	for (Task task = TASK_REGRESSION; task <= TASK_CLASSIFICATION; task++)
		if (strcmp(name, TaskName(task)) == 0)
			return task;
	elog(ERROR, "unknown task \"%s\"", name);
}

static LossKind
LossByName(const char *name)
{
	for (LossKind loss = LOSS_CROSS_ENTROPY; loss <= LOSS_SMOOTH_L1; loss++)
		if (strcmp(name, LossName(loss)) == 0)
			return loss;
	elog(ERROR, "unknown loss \"%s\"", name);
}

static void
ReadClasses(ModelVersion *version, Datum stored)
{
	Datum	   *elements;
	bool	   *nulls;

	deconstruct_array(DatumGetArrayTypeP(stored), TEXTOID, -1, false, TYPALIGN_INT,
					  &elements, &nulls, &version->nclasses);
	version->classes = palloc(sizeof(char *) * version->nclasses);
	for (int i = 0; i < version->nclasses; i++)
	{
		if (nulls[i])
			elog(ERROR, "class %d of model \"%s\" is null", i, version->name);
		version->classes[i] = TextDatumGetCString(elements[i]);
	}
}

static RowShape
ReadInputShape(Datum stored, const char *name)
{
	ArrayType  *array = DatumGetArrayTypeP(stored);
	const int32 *dims = (const int32 *) ARR_DATA_PTR(array);

	if (ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array)) != 3 || ARR_HASNULL(array))
		elog(ERROR, "input shape of model \"%s\" is not an image's", name);
	return (RowShape) {dims[0], dims[1], dims[2]};
}

/* Read a version's row into the current context, from inside a catalog scope. */
static ModelVersion *
ReadVersion(const ModelReference *resolved, RowReader *row)
{
	ModelVersion *version = palloc0(sizeof(ModelVersion));
	int32		format = DatumGetInt32(ReadColumn(row, 1));
	Datum		value;

	if (format != CATALOG_FORMAT)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("version %d of model \"%s\" is stored in format %d", resolved->version, resolved->name, format),
				 errdetail("This pg_train reads format %d.", CATALOG_FORMAT)));

	version->model_id = resolved->model_id;
	version->name = pstrdup(resolved->name);
	version->version = resolved->version;
	version->task = TaskByName(ReadText(row, 2));
	version->loss = LossByName(ReadText(row, 3));
	version->source = ReadText(row, 4);
	version->target = ReadText(row, 5);
	/* The type may be gone, an enum for instance: scoring goes by the labels' text. */
	value = ReadColumn(row, 6);
	version->target_type = row->isnull ? InvalidOid : DatumGetObjectId(value);
	value = ReadColumn(row, 7);
	if (!row->isnull)
		ReadClasses(version, value);
	version->encoders = EncodersFromJsonb(ReadJsonb(row, 8));
	value = ReadColumn(row, 9);
	if (row->isnull)
		version->input = (RowShape) {version->encoders->input_width, 0, 0};
	else
		version->input = ReadInputShape(value, resolved->name);
	version->architecture = ReadJsonb(row, 10);
	version->outputs = DatumGetInt32(ReadColumn(row, 11));
	version->target_mean = DatumGetFloat8(ReadColumn(row, 12));
	version->target_stddev = DatumGetFloat8(ReadColumn(row, 13));
	version->options = ReadJsonb(row, 14);
	version->rows_used = DatumGetInt64(ReadColumn(row, 15));
	version->rows_skipped = DatumGetInt64(ReadColumn(row, 16));
	version->train_rows = DatumGetInt64(ReadColumn(row, 17));
	version->validation_rows = DatumGetInt64(ReadColumn(row, 18));
	version->device = ReadText(row, 19);
	version->precision = ReadText(row, 20);
	version->libraries = ReadText(row, 21);
	version->seed = DatumGetInt64(ReadColumn(row, 22));
	version->seconds_loading = DatumGetFloat8(ReadColumn(row, 23));
	version->seconds_training = DatumGetFloat8(ReadColumn(row, 24));
	version->parameters = DatumGetInt64(ReadColumn(row, 25));
	return version;
}

ModelVersion *
CatalogReadVersion(const ModelReference *resolved)
{
	Params		params = {0};
	CatalogScope scope;
	ModelVersion *version;
	RowReader	row;
	MemoryContext old;

	AddParam(&params, INT8OID, Int64GetDatum(resolved->model_id));
	AddParam(&params, INT4OID, Int32GetDatum(resolved->version));
	CatalogBegin(&scope);
	if (CatalogExecute("SELECT format, task, loss, source, target, pg_catalog.to_regtype(target_type)::oid,"
					   " classes, encoders, input_shape, architecture, outputs, target_mean, target_stddev, options, rows_used, rows_skipped,"
					   " train_rows, validation_rows, device, precision, libraries, seed, seconds_loading,"
					   " seconds_training, parameters"
					   " FROM pgtrain.model_version WHERE model_id = $1 AND version = $2",
					   true, params.n, params.types, params.values, params.nulls) != 1)
		elog(ERROR, "version %d of model \"%s\" is gone", resolved->version, resolved->name);
	row.tuple = SPI_tuptable->vals[0];
	row.desc = SPI_tuptable->tupdesc;
	old = MemoryContextSwitchTo(scope.caller);
	version = ReadVersion(resolved, &row);
	MemoryContextSwitchTo(old);
	CatalogEnd(&scope);
	return version;
}

static void
KeepTensor(void *arg, const TensorHeader *header, const float *data)
{
	ModelVersion *version = arg;
	StoredTensor *tensor = palloc(sizeof(StoredTensor));

	tensor->header = *header;
	tensor->data = palloc_extended(sizeof(float) * header->values, MCXT_ALLOC_HUGE);
	memcpy(tensor->data, data, sizeof(float) * header->values);
	version->tensors = lappend(version->tensors, tensor);
}

ModelVersion *
CatalogLoadVersion(const char *reference, bool with_tensors)
{
	ModelReference resolved;
	ModelVersion *version;

	CatalogResolve(reference, &resolved);
	CatalogCheckUse(&resolved);
	version = CatalogReadVersion(&resolved);
	if (with_tensors)
		CatalogReadTensors(&resolved, KeepTensor, version);
	return version;
}
