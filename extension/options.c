/*
 * options.c - the arguments of train_model, checked.
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "utils/array.h"
#include "utils/builtins.h"

#include "extension/catalog.h"
#include "extension/options.h"
#include "extension/suggest.h"
#include "loader/json.h"

#define MAX_COUNT 1000000

/* The arguments, in their order. */
typedef enum Argument
{
	ARG_MODEL,
	ARG_SOURCE,
	ARG_TARGET,
	ARG_FEATURES,
	ARG_TASK,
	ARG_ARCHITECTURE,
	ARG_INPUT_SHAPE,
	ARG_VALIDATION_FRACTION,
	ARG_VALIDATION_SOURCE,
	ARG_STRATIFY,
	ARG_EPOCHS,
	ARG_BATCH_SIZE,
	ARG_ACCUMULATION_STEPS,
	ARG_OPTIMIZER,
	ARG_LEARNING_RATE,
	ARG_MOMENTUM,
	ARG_NESTEROV,
	ARG_BETAS,
	ARG_EPS,
	ARG_WEIGHT_DECAY,
	ARG_MAX_GRAD_NORM,
	ARG_LOSS,
	ARG_AMP,
	ARG_DEVICE,
	ARG_NULL_POLICY,
	ARG_STANDARDIZE,
	ARG_SEED,
	NARGUMENTS
} Argument;

/* For the nullable ones NULL stands for a default that depends on other arguments or on the data. */
static const struct
{
	const char *name;
	bool		nullable;
}			arguments[NARGUMENTS] = {
	[ARG_MODEL] = {"model", false},
	[ARG_SOURCE] = {"source", false},
	[ARG_TARGET] = {"target", false},
	[ARG_FEATURES] = {"features", true},
	[ARG_TASK] = {"task", true},
	[ARG_ARCHITECTURE] = {"architecture", true},
	[ARG_INPUT_SHAPE] = {"input_shape", true},
	[ARG_VALIDATION_FRACTION] = {"validation_fraction", false},
	[ARG_VALIDATION_SOURCE] = {"validation_source", true},
	[ARG_STRATIFY] = {"stratify", false},
	[ARG_EPOCHS] = {"epochs", false},
	[ARG_BATCH_SIZE] = {"batch_size", false},
	[ARG_ACCUMULATION_STEPS] = {"accumulation_steps", false},
	[ARG_OPTIMIZER] = {"optimizer", false},
	[ARG_LEARNING_RATE] = {"learning_rate", false},
	[ARG_MOMENTUM] = {"momentum", true},
	[ARG_NESTEROV] = {"nesterov", true},
	[ARG_BETAS] = {"betas", true},
	[ARG_EPS] = {"eps", true},
	[ARG_WEIGHT_DECAY] = {"weight_decay", true},
	[ARG_MAX_GRAD_NORM] = {"max_grad_norm", true},
	[ARG_LOSS] = {"loss", true},
	[ARG_AMP] = {"amp", false},
	[ARG_DEVICE] = {"device", false},
	[ARG_NULL_POLICY] = {"null_policy", false},
	[ARG_STANDARDIZE] = {"standardize", false},
	[ARG_SEED] = {"seed", false},
};

static const char *const task_names[] = {"regression", "classification"};	/* [Task] */
static const char *const optimizer_names[] = {"sgd", "adam", "adamw"};	/* [OptimizerKind] */
static const char *const loss_names[] = {"cross_entropy", "bce_with_logits", "mse", "smooth_l1"};	/* [LossKind] */
static const char *const amp_names[] = {"off", "bf16", "fp16", "auto"}; /* [Amp] */
static const char *const null_policy_names[] = {"error", "skip"};	/* [NullPolicy] */
static const char *const device_names[] = {"auto", "cpu", "cuda"};	/* and cuda:N */

/* Which of names a text is; a list of them for the message where it is none. */
static int
ReadName(FunctionCallInfo fcinfo, Argument argument, const char *const *names, int nnames)
{
	char	   *given = text_to_cstring(PG_GETARG_TEXT_PP(argument));
	StringInfoData list;
	const char *nearest;

	initStringInfo(&list);
	for (int i = 0; i < nnames; i++)
	{
		if (strcmp(given, names[i]) == 0)
			return i;
		appendStringInfo(&list, "%s\"%s\"", i == 0 ? "" : i == nnames - 1 ? " or " : ", ", names[i]);
	}
	nearest = SuggestFrom(given, names, nnames);
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("%s must be %s, not \"%s\"", arguments[argument].name, list.data, given),
			 nearest != NULL ? errhint("Did you mean \"%s\"?", nearest) : 0));
}

static int32
ReadCount(FunctionCallInfo fcinfo, Argument argument)
{
	int32		value = PG_GETARG_INT32(argument);

	if (value < 1 || value > MAX_COUNT)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be between 1 and %d, not %d", arguments[argument].name, MAX_COUNT, value)));
	return value;
}

/* A number; range says in words what is accepted. */
static double
CheckNumber(double value, bool valid, const char *name, const char *range)
{
	if (!valid)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be %s, not %g", name, range, value)));
	return value;
}

static char *
ReadText(FunctionCallInfo fcinfo, Argument argument)
{
	if (PG_ARGISNULL(argument))
		return NULL;
	return text_to_cstring(PG_GETARG_TEXT_PP(argument));
}

static List *
ReadFeatures(ArrayType *array, const char *target)
{
	List	   *features = NIL;
	Datum	   *elements;
	bool	   *nulls;
	int			n;

	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &elements, &nulls, &n);
	if (n == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("features must not be empty"),
				 errhint("Leave it out to train on every column but the target.")));
	for (int i = 0; i < n; i++)
	{
		char	   *name;
		ListCell   *lc;

		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("features must not contain nulls")));
		name = TextDatumGetCString(elements[i]);
		if (strcmp(name, target) == 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("column \"%s\" is the target and cannot be a feature", name)));
		foreach(lc, features)
			if (strcmp(lfirst(lc), name) == 0)
				ereport(ERROR,
						(errcode(ERRCODE_DUPLICATE_COLUMN),
						 errmsg("features has column \"%s\" twice", name)));
		features = lappend(features, name);
	}
	return features;
}

static RowShape
ReadInputShape(ArrayType *array)
{
	const int32 *sizes = (const int32 *) ARR_DATA_PTR(array);

	if (ARR_NDIM(array) != 1 || ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array)) != 3 || array_contains_nulls(array) ||
		sizes[0] < 1 || sizes[1] < 1 || sizes[2] < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("input_shape must be three positive integers, {channels,height,width}"),
				 errhint("For gray images of 28 x 28 pixels it is '{1,28,28}'.")));
	return (RowShape) {sizes[0], sizes[1], sizes[2]};
}

/* Whether there is such a device only the engine can tell. */
static char *
ReadDevice(FunctionCallInfo fcinfo)
{
	char	   *device = text_to_cstring(PG_GETARG_TEXT_PP(ARG_DEVICE));
	const char *ordinal = device + strlen("cuda:");

	if (strncmp(device, "cuda:", strlen("cuda:")) != 0)
		return pstrdup(device_names[ReadName(fcinfo, ARG_DEVICE, device_names, lengthof(device_names))]);
	if (*ordinal == '\0' || strspn(ordinal, "0123456789") != strlen(ordinal) || strlen(ordinal) > 3)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("device \"%s\" does not name a GPU", device),
				 errhint("GPUs are \"cuda:0\", \"cuda:1\" and so on: train_devices() lists them.")));
	return device;
}

/* An option of another optimizer must not be given. */
static void
RefuseForOptimizer(FunctionCallInfo fcinfo, Argument argument, OptimizerKind optimizer, const char *owners)
{
	if (!PG_ARGISNULL(argument))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s does not apply to optimizer \"%s\"", arguments[argument].name, optimizer_names[optimizer]),
				 errhint("It is an option of %s.", owners)));
}

static void
ReadSgd(TrainOptions *options, FunctionCallInfo fcinfo)
{
	RefuseForOptimizer(fcinfo, ARG_BETAS, options->optimizer, "\"adam\" and \"adamw\"");
	RefuseForOptimizer(fcinfo, ARG_EPS, options->optimizer, "\"adam\" and \"adamw\"");
	if (!PG_ARGISNULL(ARG_MOMENTUM))
	{
		options->momentum = PG_GETARG_FLOAT8(ARG_MOMENTUM);
		CheckNumber(options->momentum, options->momentum >= 0 && options->momentum < 1, "momentum",
					"at least 0 and below 1");
	}
	if (!PG_ARGISNULL(ARG_NESTEROV))
		options->nesterov = PG_GETARG_BOOL(ARG_NESTEROV);
	if (options->nesterov && options->momentum == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("nesterov needs a momentum above 0"),
				 errhint("Set momentum, for instance momentum => 0.9.")));
}

static void
ReadAdam(TrainOptions *options, FunctionCallInfo fcinfo)
{
	RefuseForOptimizer(fcinfo, ARG_MOMENTUM, options->optimizer, "\"sgd\"");
	RefuseForOptimizer(fcinfo, ARG_NESTEROV, options->optimizer, "\"sgd\"");
	options->beta1 = 0.9;
	options->beta2 = 0.999;
	options->eps = 1e-8;
	if (!PG_ARGISNULL(ARG_BETAS))
	{
		ArrayType  *array = PG_GETARG_ARRAYTYPE_P(ARG_BETAS);
		const float8 *betas = (const float8 *) ARR_DATA_PTR(array);

		if (ARR_NDIM(array) != 1 || ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array)) != 2 ||
			array_contains_nulls(array) || !(betas[0] >= 0 && betas[0] < 1) || !(betas[1] >= 0 && betas[1] < 1))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("betas must be two numbers of at least 0 and below 1"),
					 errhint("The default is '{0.9,0.999}'.")));
		options->beta1 = betas[0];
		options->beta2 = betas[1];
	}
	if (!PG_ARGISNULL(ARG_EPS))
		options->eps = PG_GETARG_FLOAT8(ARG_EPS);
	CheckNumber(options->eps, options->eps > 0 && options->eps <= 1, "eps", "above 0 and at most 1");
}

static void
ReadOptimizer(TrainOptions *options, FunctionCallInfo fcinfo)
{
	options->optimizer = ReadName(fcinfo, ARG_OPTIMIZER, optimizer_names, lengthof(optimizer_names));
	options->learning_rate = PG_GETARG_FLOAT8(ARG_LEARNING_RATE);
	CheckNumber(options->learning_rate, options->learning_rate > 0 && options->learning_rate <= 1000, "learning_rate",
				"above 0 and at most 1000");
	if (options->optimizer == OPTIMIZER_SGD)
		ReadSgd(options, fcinfo);
	else
		ReadAdam(options, fcinfo);
	/* Defaults as in torch.optim. */
	options->weight_decay = options->optimizer == OPTIMIZER_ADAMW ? 0.01 : 0;
	if (!PG_ARGISNULL(ARG_WEIGHT_DECAY))
		options->weight_decay = PG_GETARG_FLOAT8(ARG_WEIGHT_DECAY);
	CheckNumber(options->weight_decay, options->weight_decay >= 0 && options->weight_decay <= 1000, "weight_decay",
				"between 0 and 1000");
	if (!PG_ARGISNULL(ARG_MAX_GRAD_NORM))
	{
		options->max_grad_norm = PG_GETARG_FLOAT8(ARG_MAX_GRAD_NORM);
		CheckNumber(options->max_grad_norm, options->max_grad_norm >= 1e-6 && options->max_grad_norm <= 1e6,
					"max_grad_norm", "between 1e-6 and 1e6");
	}
}

void
OptionsRead(TrainOptions *options, FunctionCallInfo fcinfo)
{
	if (PG_NARGS() != NARGUMENTS)
		elog(ERROR, "train_model has %d arguments instead of %d", PG_NARGS(), NARGUMENTS);
	for (int i = 0; i < NARGUMENTS; i++)
		if (PG_ARGISNULL(i) && !arguments[i].nullable)
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("%s must not be null", arguments[i].name)));

	memset(options, 0, sizeof(*options));
	options->model = ReadText(fcinfo, ARG_MODEL);
	options->source = ReadText(fcinfo, ARG_SOURCE);
	options->target = ReadText(fcinfo, ARG_TARGET);
	if (!PG_ARGISNULL(ARG_FEATURES))
		options->features = ReadFeatures(PG_GETARG_ARRAYTYPE_P(ARG_FEATURES), options->target);
	options->has_task = !PG_ARGISNULL(ARG_TASK);
	if (options->has_task)
		options->task = ReadName(fcinfo, ARG_TASK, task_names, lengthof(task_names));
	if (!PG_ARGISNULL(ARG_ARCHITECTURE))
		options->architecture = PG_GETARG_JSONB_P(ARG_ARCHITECTURE);
	if (!PG_ARGISNULL(ARG_INPUT_SHAPE))
		options->input_shape = ReadInputShape(PG_GETARG_ARRAYTYPE_P(ARG_INPUT_SHAPE));
	options->validation_fraction = PG_GETARG_FLOAT8(ARG_VALIDATION_FRACTION);
	CheckNumber(options->validation_fraction, options->validation_fraction >= 0 && options->validation_fraction < 1,
				"validation_fraction", "at least 0 and below 1");
	options->validation_source = ReadText(fcinfo, ARG_VALIDATION_SOURCE);
	options->stratify = PG_GETARG_BOOL(ARG_STRATIFY);
	options->epochs = ReadCount(fcinfo, ARG_EPOCHS);
	options->batch_size = ReadCount(fcinfo, ARG_BATCH_SIZE);
	options->accumulation_steps = ReadCount(fcinfo, ARG_ACCUMULATION_STEPS);
	if ((int64) options->batch_size * options->accumulation_steps > PG_INT32_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("batch_size times accumulation_steps must not be above %d", PG_INT32_MAX)));
	ReadOptimizer(options, fcinfo);
	options->has_loss = !PG_ARGISNULL(ARG_LOSS);
	if (options->has_loss)
		options->loss = ReadName(fcinfo, ARG_LOSS, loss_names, lengthof(loss_names));
	options->amp = ReadName(fcinfo, ARG_AMP, amp_names, lengthof(amp_names));
	options->device = ReadDevice(fcinfo);
	options->null_policy = ReadName(fcinfo, ARG_NULL_POLICY, null_policy_names, lengthof(null_policy_names));
	options->standardize = PG_GETARG_BOOL(ARG_STANDARDIZE);
	options->seed = PG_GETARG_INT64(ARG_SEED);
	if (options->has_task)
		OptionsCheckLoss(options, options->task);
}

void
OptionsCheckLoss(const TrainOptions *options, Task task)
{
	bool		classifies = options->loss == LOSS_CROSS_ENTROPY || options->loss == LOSS_BCE_WITH_LOGITS;

	if (!options->has_loss || classifies == (task == TASK_CLASSIFICATION))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("loss \"%s\" does not apply to a %s", loss_names[options->loss], task_names[task]),
			 task == TASK_CLASSIFICATION ?
			 errhint("Use \"cross_entropy\" or \"bce_with_logits\", or set task => 'regression'.") :
			 errhint("Use \"mse\" or \"smooth_l1\", or set task => 'classification'.")));
}

static void
PushText(JsonbParseState **state, const char *key, const char *text)
{
	JsonPushKey(state, key);
	if (text != NULL)
		JsonPushText(state, WJB_VALUE, text);
	else
		JsonPushNull(state, WJB_VALUE);
}

static void
PushInteger(JsonbParseState **state, const char *key, int64 number)
{
	JsonPushKey(state, key);
	JsonPushInteger(state, WJB_VALUE, number);
}

static void
PushDouble(JsonbParseState **state, const char *key, double number)
{
	JsonPushKey(state, key);
	JsonPushDouble(state, WJB_VALUE, number);
}

static void
PushBool(JsonbParseState **state, const char *key, bool flag)
{
	JsonPushKey(state, key);
	JsonPushBool(state, WJB_VALUE, flag);
}

/* Source, target, features, architecture and input shape have columns of their own in the catalog. */
Jsonb *
OptionsToJsonb(const TrainOptions *options, Task task, LossKind loss, const char *precision)
{
	JsonbParseState *state = NULL;

	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	PushText(&state, "task", task_names[task]);
	PushText(&state, "loss", loss_names[loss]);
	PushText(&state, "validation_source", options->validation_source);
	if (options->validation_source == NULL)
	{
		PushDouble(&state, "validation_fraction", options->validation_fraction);
		if (task == TASK_CLASSIFICATION)
			PushBool(&state, "stratify", options->stratify);
	}
	PushInteger(&state, "epochs", options->epochs);
	PushInteger(&state, "batch_size", options->batch_size);
	PushInteger(&state, "accumulation_steps", options->accumulation_steps);
	PushText(&state, "optimizer", optimizer_names[options->optimizer]);
	PushDouble(&state, "learning_rate", options->learning_rate);
	if (options->optimizer == OPTIMIZER_SGD)
	{
		PushDouble(&state, "momentum", options->momentum);
		PushBool(&state, "nesterov", options->nesterov);
	}
	else
	{
		JsonPushKey(&state, "betas");
		pushJsonbValue(&state, WJB_BEGIN_ARRAY, NULL);
		JsonPushDouble(&state, WJB_ELEM, options->beta1);
		JsonPushDouble(&state, WJB_ELEM, options->beta2);
		pushJsonbValue(&state, WJB_END_ARRAY, NULL);
		PushDouble(&state, "eps", options->eps);
	}
	PushDouble(&state, "weight_decay", options->weight_decay);
	if (options->max_grad_norm > 0)
		PushDouble(&state, "max_grad_norm", options->max_grad_norm);
	PushText(&state, "amp", amp_names[options->amp]);
	PushText(&state, "device", options->device);
	PushText(&state, "precision", precision);
	PushText(&state, "null_policy", null_policy_names[options->null_policy]);
	PushBool(&state, "standardize", options->standardize);
	PushInteger(&state, "seed", options->seed);
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
}
