/*
 * train_model.c - the SQL function train_model.
 *
 * Everything that can be wrong with the call is found before an engine starts; what depends on the rows, at the
 * first one that tells.  The result is stored in the caller's transaction.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/parallel.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "engine/model.h"
#include "extension/architecture.h"
#include "extension/catalog.h"
#include "extension/features.h"
#include "extension/options.h"
#include "extension/report.h"
#include "extension/settings.h"
#include "extension/training.h"
#include "loader/loader.h"

/* train_model as it goes. */
typedef struct TrainJob
{
	TrainOptions options;
	Source	   *source;
	Source	   *validation;		/* or NULL */
	EncoderSet *encoders;
	Oid			target_type;
	TargetKind	target_kind;
	LayerSpec  *layers;			/* without the output layer; NULL: default, when the input is known */
	int32		nlayers;
	RowShape	input;
	LoadResult	loaded;
	double	   *mean;			/* [input_width] as the engine says */
	double	   *stddev;
	DatasetStats stats;
	Task		task;
	LossKind	loss;
	int32		outputs;
	DType		precision;
	DeviceInfo	device;
	double		seconds_loading;
	TrainingOutcome outcome;
} TrainJob;

static double
SecondsSince(instr_time start)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, start);
	return INSTR_TIME_GET_DOUBLE(now);
}

/* Would the network work on rows of this width?  Called as soon as the width is known. */
static void
CheckShapes(TrainJob *job, int32 input_width)
{
	RowShape	shape = job->options.input_shape;
	LayerSpec  *layers = palloc(sizeof(LayerSpec) * MAX_LAYERS);
	LayerInfo  *info = palloc(sizeof(LayerInfo) * MAX_LAYERS);
	int32		nlayers;
	RowShape	outputs;
	Error		err;

	if (shape.height > 0 && (int64) shape.channels * shape.height * shape.width != input_width)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("input_shape {%d,%d,%d} does not fit features of %d values", shape.channels, shape.height,
						shape.width, input_width),
				 errdetail("It stands for %lld values.",
						   (long long) ((int64) shape.channels * shape.height * shape.width))));
	job->input = shape.height > 0 ? shape : (RowShape) {input_width, 0, 0};
	if (job->layers == NULL)
		job->layers = ArchitectureDefault(job->input, &job->nlayers);

	/* How many outputs there will be makes no difference to what can be wrong. */
	memcpy(layers, job->layers, sizeof(LayerSpec) * job->nlayers);
	nlayers = job->nlayers;
	layers = ArchitectureAppendOutput(layers, &nlayers, 1);
	if (network_infer_shapes(layers, nlayers, job->input, info, &outputs, &err) != STATUS_OK)
		ReportError(&err);
	pfree(layers);
	pfree(info);
}

/* All that can be checked without reading a row. */
static void
Prepare(TrainJob *job)
{
	TrainOptions *options = &job->options;
	int			width;

	CatalogCheckTrain(options->model);
	if (options->architecture != NULL)
		job->layers = ArchitectureParse(options->architecture, &job->nlayers);
	job->source = SourceOpen(options->source, "source");
	job->target_kind = TargetChoose(SourceDesc(job->source), options, &job->target_type);
	if (job->target_kind != TARGET_UNDECIDED)
		OptionsCheckLoss(options, job->target_kind == TARGET_LABEL ? TASK_CLASSIFICATION : TASK_REGRESSION);
	job->encoders = FeaturesChoose(SourceDesc(job->source), options);
	if (options->validation_source != NULL)
	{
		job->validation = SourceOpen(options->validation_source, "validation_source");
		FeaturesCheckValidation(SourceDesc(job->validation), job->encoders, options->target, job->target_type,
								job->target_kind);
	}
	width = FeaturesKnownWidth(job->encoders);
	if (width > 0)
		CheckShapes(job, width);
}

/* The layout of the records is known: see TrainingPrepare. */
static void
PrepareDataset(void *arg, const RecordLayout *layout, TargetKind kind, DatasetSpec *spec)
{
	TrainJob   *job = arg;

	CheckShapes(job, layout->input_width);
	job->task = kind == TARGET_LABEL ? TASK_CLASSIFICATION : TASK_REGRESSION;
	spec->task = job->task;
	spec->standardize = job->options.standardize;
	spec->stratify = job->options.stratify && job->task == TASK_CLASSIFICATION;
	spec->external_validation = job->validation != NULL;
	spec->validation_fraction = job->validation != NULL ? 0 : job->options.validation_fraction;
	spec->seed = (uint64) job->options.seed;
	spec->input = job->input;
}

static void
ReportInferredTask(const TrainJob *job)
{
	if (job->target_kind != TARGET_UNDECIDED)
		return;
	if (job->task == TASK_CLASSIFICATION)
		ereport(NOTICE,
				(errmsg("column \"%s\" has %d distinct integers: training a classification", job->options.target,
						job->loaded.nclasses),
				 errhint("Set task => 'regression' to predict a number.")));
	else
		ereport(NOTICE,
				(errmsg("column \"%s\" has more than %d distinct integers: training a regression",
						job->options.target, MAX_INFERRED_CLASSES),
				 errhint("Set task => 'classification' to predict a class.")));
}

/* Load the rows of both sources, starting over once if the target turns out to be no label. */
static TrainingRun *
Load(TrainJob *job)
{
	LoadOptions load = {
		.target = job->options.target,
		.target_kind = job->target_kind,
		.null_policy = job->options.null_policy,
		.shift = job->options.standardize,
		.split = SPLIT_TRAIN
	};
	TrainingRun *run;

	for (;;)
	{
		EncoderSet *encoders = palloc(sizeof(EncoderSet));

		/* Loading completes the encoders. */
		*encoders = *job->encoders;
		encoders->columns = palloc(sizeof(ColumnEncoder) * encoders->ncolumns);
		memcpy(encoders->columns, job->encoders->columns, sizeof(ColumnEncoder) * encoders->ncolumns);
		memset(&job->loaded, 0, sizeof(job->loaded));
		job->loaded.encoders = encoders;

		run = TrainingStart(job->options.device, PrepareDataset, job);
		if (LoadRows(job->source, &load, TrainingSink(run), &job->loaded))
			break;
		TrainingEnd(run);
		load.target_kind = TARGET_VALUE;
		job->source = SourceOpen(job->options.source, "source");
	}
	if (job->validation != NULL)
	{
		load.split = SPLIT_VALIDATION;
		LoadRows(job->validation, &load, TrainingSink(run), &job->loaded);
	}
	job->encoders = job->loaded.encoders;
	return run;
}

static void
ChooseLoss(TrainJob *job)
{
	const TrainOptions *options = &job->options;

	OptionsCheckLoss(options, job->task);
	if (job->task == TASK_REGRESSION)
	{
		job->loss = options->has_loss ? options->loss : LOSS_MSE;
		job->outputs = 1;
		return;
	}
	FinishClasses(&job->loaded);
	if (job->loaded.nclasses < 2)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("column \"%s\" has only one class, \"%s\"", options->target, job->loaded.classes[0]),
				 errdetail("A classification needs at least two.")));
	if (options->has_loss)
		job->loss = options->loss;
	else
		job->loss = job->loaded.nclasses == 2 ? LOSS_BCE_WITH_LOGITS : LOSS_CROSS_ENTROPY;
	if (job->loss == LOSS_BCE_WITH_LOGITS && job->loaded.nclasses > 2)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("loss \"bce_with_logits\" needs two classes, but column \"%s\" has %d", options->target,
						job->loaded.nclasses),
				 errhint("Use \"cross_entropy\".")));
	job->outputs = job->loss == LOSS_BCE_WITH_LOGITS ? 1 : job->loaded.nclasses;
}

static const char *
PrecisionName(DType precision)
{
	return precision == DTYPE_BF16 ? "bf16" : precision == DTYPE_F16 ? "fp16" : "fp32";
}

static void
ChooseDevice(TrainJob *job, TrainingRun *run)
{
	const EngineHello *hello = TrainingHello(run);

	job->device = hello->device;
	if (hello->fallback.status != STATUS_OK)
		ereport(NOTICE,
				(errmsg("training on the CPU: %s", hello->fallback.message),
				 hello->fallback.detail[0] != '\0' ? errdetail("%s", hello->fallback.detail) : 0));
}

/*
 * What is emulated is slower than fp32.  bf16 then gains nothing over fp32; fp16, which must be asked for by name, shows how
 * a training goes with its range.
 */
static void
ChoosePrecision(TrainJob *job)
{
	Amp			amp = job->options.amp;

	job->precision = DTYPE_F32;
	if ((amp == AMP_BF16 || amp == AMP_AUTO) && job->device.bf16)
		job->precision = DTYPE_BF16;
	else if (amp == AMP_FP16 || (amp == AMP_AUTO && job->device.f16))
		job->precision = DTYPE_F16;
	if (amp == AMP_BF16 && !job->device.bf16)
		ereport(NOTICE,
				(errmsg("training in fp32: this processor has no instructions for bf16"),
				 errdetail("Emulated they would only be slower. The device is %s.", job->device.name)));
	else if (amp == AMP_FP16 && !job->device.f16)
		ereport(NOTICE,
				(errmsg("training in emulated fp16, which is slower than fp32: this processor has no instructions for it"),
				 errhint("amp => 'auto' takes what the device is fast with.")));
}

/* Means and deviations into the encoders; what loading subtracted from the values is added to the means. */
static void
FinishEncoders(TrainJob *job)
{
	for (int i = 0; i < job->encoders->ncolumns; i++)
	{
		ColumnEncoder *encoder = &job->encoders->columns[i];

		encoder->mean = job->mean + encoder->input_offset;
		encoder->stddev = job->stddev + encoder->input_offset;
		for (int j = 0; j < encoder->width; j++)
			encoder->mean[j] += encoder->shift;
	}
}

static void
Train(TrainJob *job, TrainingRun *run)
{
	const TrainOptions *options = &job->options;
	TrainSpec  *spec;

	job->layers = ArchitectureAppendOutput(job->layers, &job->nlayers, job->outputs);
	spec = palloc0(sizeof(TrainSpec) + sizeof(LayerSpec) * job->nlayers);
	spec->task = job->task;
	spec->loss = job->loss;
	spec->optimizer = options->optimizer;
	spec->precision = job->precision;
	spec->eager = !cuda_graphs;
	spec->max_grad_norm = (float) options->max_grad_norm;
	spec->epochs = options->epochs;
	spec->batch_size = options->batch_size;
	spec->accumulation_steps = options->accumulation_steps;
	spec->nesterov = options->nesterov;
	spec->learning_rate = (float) options->learning_rate;
	spec->momentum = (float) options->momentum;
	spec->weight_decay = (float) options->weight_decay;
	spec->beta1 = (float) options->beta1;
	spec->beta2 = (float) options->beta2;
	spec->eps = (float) options->eps;
	spec->seed = (uint64) options->seed;
	spec->input = job->input;
	spec->outputs = job->outputs;
	spec->nlayers = job->nlayers;
	memcpy(spec->layers, job->layers, sizeof(LayerSpec) * job->nlayers);
	TrainingTrain(run, spec, &job->outcome);
}

static ModelVersion *
Save(TrainJob *job)
{
	ModelVersion *version = palloc0(sizeof(ModelVersion));
	const TrainOptions *options = &job->options;

	version->name = options->model;
	version->task = job->task;
	version->loss = job->loss;
	version->source = options->source;
	version->target = options->target;
	version->target_type = job->target_type;
	version->nclasses = job->loaded.nclasses;
	version->classes = job->loaded.classes;
	version->encoders = job->encoders;
	version->input = job->input;
	version->architecture = ArchitectureToJsonb(job->layers, job->nlayers);
	version->outputs = job->outputs;
	version->target_mean = job->stats.target_mean + job->loaded.target_shift;
	version->target_stddev = job->stats.target_stddev;
	version->rows_used = job->loaded.rows_used;
	version->rows_skipped = job->loaded.rows_skipped;
	version->train_rows = job->stats.train_rows;
	version->validation_rows = job->stats.validation_rows;
	version->device = job->device.name;
	version->precision = unconstify(char *, PrecisionName(job->precision));
	version->libraries = job->device.libraries;
	version->seed = options->seed;
	version->seconds_loading = job->seconds_loading;
	version->seconds_training = job->outcome.result.seconds;
	version->parameters = job->outcome.result.parameters;
	version->epochs = job->outcome.epochs;
	version->tensors = job->outcome.tensors;
	version->options = OptionsToJsonb(options, job->task, job->loss, version->precision);
	CatalogSaveVersion(version);
	return version;
}

typedef struct ResultRow
{
	int			n;
	Datum		values[18];
	bool		nulls[18];
} ResultRow;

static void
AddResult(ResultRow *row, Datum value)
{
	row->values[row->n++] = value;
}

static void
AddNullableResult(ResultRow *row, Datum value, bool isnull)
{
	row->nulls[row->n] = isnull;
	AddResult(row, value);
}

static Datum
MakeResult(const TrainJob *job, const ModelVersion *version, FunctionCallInfo fcinfo)
{
	const EpochReport *last = &job->outcome.result.last;
	bool		validated = last->validation_rows > 0;
	double		seconds = job->outcome.result.seconds;
	double		metric;
	TupleDesc	desc;
	ResultRow	row = {0};

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "train_model does not return a row");
	if (job->task == TASK_CLASSIFICATION)
		metric = validated ? last->validation_accuracy : last->train_accuracy;
	else
		metric = validated ? last->validation_r2 : last->train_r2;

	AddResult(&row, CStringGetTextDatum(version->name));
	AddResult(&row, Int32GetDatum(version->version));
	AddResult(&row, Int64GetDatum(version->rows_used));
	AddResult(&row, Int64GetDatum(version->rows_skipped));
	AddResult(&row, Int32GetDatum(job->options.epochs));
	AddResult(&row, Float8GetDatum(last->train_loss));
	AddNullableResult(&row, Float8GetDatum(last->validation_loss), !validated);
	AddResult(&row, CStringGetTextDatum(job->task == TASK_CLASSIFICATION ? "accuracy" : "r2"));
	AddResult(&row, Float8GetDatum(metric));
	AddResult(&row, CStringGetTextDatum(version->device));
	AddResult(&row, CStringGetTextDatum(version->precision));
	AddResult(&row, Int32GetDatum(job->options.batch_size * job->options.accumulation_steps));
	AddResult(&row, Int64GetDatum(job->outcome.result.steps));
	AddResult(&row, Int64GetDatum(job->outcome.result.skipped_steps));
	AddResult(&row, Float8GetDatum(job->seconds_loading));
	AddResult(&row, Float8GetDatum(seconds));
	AddNullableResult(&row, Float8GetDatum(version->train_rows * (double) job->options.epochs / seconds), seconds <= 0);
	if (row.n != desc->natts)
		elog(ERROR, "train_model returns %d columns instead of %d", row.n, desc->natts);
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), row.values, row.nulls));
}

PG_FUNCTION_INFO_V1(pgt_train_model);

Datum
pgt_train_model(PG_FUNCTION_ARGS)
{
	TrainJob   *job = palloc0(sizeof(TrainJob));
	MemoryContext context;
	MemoryContext old;
	TrainingRun *run;
	ModelVersion *version;
	instr_time	start;
	Datum		result;

	PreventCommandDuringRecovery("train_model()");
	PreventCommandIfParallelMode("train_model()");
	PreventCommandIfReadOnly("train_model()");

	context = AllocSetContextCreate(CurrentMemoryContext, "pg_train training", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);
	OptionsRead(&job->options, fcinfo);
	Prepare(job);

	INSTR_TIME_SET_CURRENT(start);
	run = Load(job);
	ChooseLoss(job);
	ReportInferredTask(job);
	ChooseDevice(job, run);
	ChoosePrecision(job);
	job->stats = TrainingEndRows(run, &job->loaded, &job->mean, &job->stddev);
	job->seconds_loading = SecondsSince(start);
	FinishEncoders(job);
	Train(job, run);
	version = Save(job);
	MemoryContextSwitchTo(old);
	result = MakeResult(job, version, fcinfo);
	MemoryContextDelete(context);
	pfree(job);
	PG_RETURN_DATUM(result);
}
