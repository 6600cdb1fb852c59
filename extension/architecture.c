/*
 * architecture.c - networks as users write them, jsonb, and as the engine takes them, LayerSpec[].
 *
 * What a layer may be told is in one table.  Ranges that depend on shapes, and those of the floats, are checked by
 * network_infer_shapes.
 */
#include "postgres.h"

#include <limits.h>
#include <math.h>

#include "utils/builtins.h"
#include "utils/numeric.h"

#include "engine/model.h"
#include "extension/architecture.h"
#include "extension/compat.h"
#include "extension/suggest.h"
#include "loader/json.h"

#define NKINDS (LAYER_RESIDUAL + 1)
#define MAX_PARAMETERS 5

typedef enum ParameterType
{
	PARAMETER_COUNT,			/* an integer of at least 1 */
	PARAMETER_SIZE,				/* one integer of at least 1, or [height, width] */
	PARAMETER_PADDING,			/* the same, of at least 0 */
	PARAMETER_FLAG,
	PARAMETER_NUMBER
} ParameterType;

typedef struct Parameter
{
	const char *name;			/* NULL ends a list */
	ParameterType type;
	size_t		offset;			/* in LayerSpec; of the height, for the two types that are pairs */
	bool		required;
} Parameter;

#define OUT {"out", PARAMETER_COUNT, offsetof(LayerSpec, out), true}
#define KERNEL {"kernel", PARAMETER_SIZE, offsetof(LayerSpec, kernel_h), true}
#define STRIDE {"stride", PARAMETER_SIZE, offsetof(LayerSpec, stride_h), false}
#define PADDING {"padding", PARAMETER_PADDING, offsetof(LayerSpec, pad_h), false}
#define BIAS {"bias", PARAMETER_FLAG, offsetof(LayerSpec, bias), false}
#define EPS {"eps", PARAMETER_NUMBER, offsetof(LayerSpec, eps), false}

/* The first parameter of a kind with a short form, {"linear": 256}, is the one that it sets. */
typedef struct Kind
{
	bool		short_form;
	Parameter	parameters[MAX_PARAMETERS + 1];
} Kind;

static const Kind kinds[NKINDS] = {
	[LAYER_LINEAR] = {true, {OUT, BIAS}},
	[LAYER_CONV2D] = {false, {OUT, KERNEL, STRIDE, PADDING, BIAS}},
	[LAYER_MAXPOOL2D] = {true, {KERNEL, STRIDE, PADDING}},
	[LAYER_AVGPOOL2D] = {true, {KERNEL, STRIDE, PADDING}},
	[LAYER_BATCHNORM] = {false, {EPS, {"momentum", PARAMETER_NUMBER, offsetof(LayerSpec, momentum), false}}},
	[LAYER_LAYERNORM] = {false, {EPS}},
	[LAYER_DROPOUT] = {true, {{"p", PARAMETER_NUMBER, offsetof(LayerSpec, p), false}}},
};

/* The height of a pair is followed by its width. */
StaticAssertDecl(offsetof(LayerSpec, kernel_w) == offsetof(LayerSpec, kernel_h) + sizeof(int32_t) &&
				 offsetof(LayerSpec, stride_w) == offsetof(LayerSpec, stride_h) + sizeof(int32_t) &&
				 offsetof(LayerSpec, pad_w) == offsetof(LayerSpec, pad_h) + sizeof(int32_t),
				 "pairs of LayerSpec are not adjacent");

typedef struct LayerList
{
	LayerSpec  *layers;
	int32		n;
	int32		allocated;
} LayerList;

static void ParseLayers(LayerList *list, JsonbContainer *array, const char *path, const char *prefix, int depth);

static void pg_attribute_noreturn()
TooManyLayers(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
			 errmsg("architecture has too many layers"),
			 errdetail("A network has at most %d layers, the output layer and those of residual blocks included.",
					   MAX_LAYERS)));
}

static LayerSpec *
AddLayer(LayerList *list, LayerKind kind, const char *prefix, int position)
{
	LayerSpec  *layer;

	if (list->n >= MAX_LAYERS)
		TooManyLayers();
	if (list->n == list->allocated)
	{
		list->allocated = Max(16, list->allocated * 2);
		list->layers = list->layers == NULL ? palloc(list->allocated * sizeof(LayerSpec)) :
			repalloc(list->layers, list->allocated * sizeof(LayerSpec));
	}
	layer = &list->layers[list->n++];
	memset(layer, 0, sizeof(LayerSpec));
	snprintf(layer->name, sizeof(layer->name), "%s%d", prefix, position);
	layer->kind = kind;
	switch (kind)
	{
		case LAYER_CONV2D:
			layer->stride_h = layer->stride_w = 1;
			layer->bias = 1;
			break;
		case LAYER_LINEAR:
			layer->bias = 1;
			break;
		case LAYER_BATCHNORM:
			layer->momentum = 0.1f;
			layer->eps = 1e-5f;
			break;
		case LAYER_LAYERNORM:
			layer->eps = 1e-5f;
			break;
		case LAYER_DROPOUT:
			layer->p = 0.5f;
			break;
		default:
			break;
	}
	return layer;
}

static const char *
JsonbTypeText(const JsonbValue *value)
{
	switch (value->type)
	{
		case jbvNull:
			return "null";
		case jbvString:
			return "a string";
		case jbvNumeric:
			return "a number";
		case jbvBool:
			return "a boolean";
		case jbvBinary:
			return JsonContainerIsArray(value->val.binary.data) ? "an array" : "an object";
		default:
			return "something else";
	}
}

static void pg_attribute_noreturn()
WrongType(const char *path, const char *expected, const JsonbValue *value)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("%s must be %s, not %s", path, expected, JsonbTypeText(value))));
}

static char *
StringValue(const JsonbValue *value)
{
	return pnstrdup(value->val.string.val, value->val.string.len);
}

static double
NumberValue(const JsonbValue *value)
{
	return DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow, NumericGetDatum(value->val.numeric)));
}

static int32
IntegerValue(const JsonbValue *value, const char *path, const char *expected, int32 min)
{
	double		number;

	if (value->type != jbvNumeric)
		WrongType(path, expected, value);
	number = NumberValue(value);
	if (number > PG_INT32_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s is too large", path)));
	if (!(number >= min) || number != rint(number))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be %s, not %s", path, expected, numeric_normalize(value->val.numeric))));
	return (int32) number;
}

/* An integer for both directions, or [height, width]. */
static void
ParsePair(int32 *pair, const JsonbValue *value, const char *path, int32 min)
{
	const char *expected = min == 0 ? "an integer of at least 0, or an array [height, width]" :
		"an integer of at least 1, or an array [height, width]";

	if (value->type == jbvBinary && JsonContainerIsArray(value->val.binary.data))
	{
		JsonbContainer *array = value->val.binary.data;

		if (JsonContainerSize(array) != 2)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("%s must be %s, not an array of %d elements", path, expected, (int) JsonContainerSize(array))));
		for (int i = 0; i < 2; i++)
			pair[i] = IntegerValue(getIthJsonbValueFromContainer(array, i), psprintf("%s[%d]", path, i),
								   min == 0 ? "an integer of at least 0" : "an integer of at least 1", min);
		return;
	}
	pair[0] = pair[1] = IntegerValue(value, path, expected, min);
}

static void
ParseParameter(LayerSpec *layer, const Parameter *parameter, const JsonbValue *value, const char *path)
{
	void	   *target = (char *) layer + parameter->offset;

	switch (parameter->type)
	{
		case PARAMETER_COUNT:
			*(int32 *) target = IntegerValue(value, path, "an integer of at least 1", 1);
			break;
		case PARAMETER_SIZE:
			ParsePair(target, value, path, 1);
			break;
		case PARAMETER_PADDING:
			ParsePair(target, value, path, 0);
			break;
		case PARAMETER_FLAG:
			if (value->type != jbvBool)
				WrongType(path, "true or false", value);
			*(int32 *) target = value->val.boolean;
			break;
		case PARAMETER_NUMBER:
			if (value->type != jbvNumeric)
				WrongType(path, "a number", value);
			*(float *) target = (float) NumberValue(value);
			break;
	}
}

static void pg_attribute_noreturn()
UnknownParameter(const Kind *kind, const char *layer_path, const char *name, const char *layer_name)
{
	const char *names[MAX_PARAMETERS];
	const char *nearest;
	StringInfoData list;
	int			n;

	initStringInfo(&list);
	for (n = 0; n < MAX_PARAMETERS && kind->parameters[n].name != NULL; n++)
	{
		names[n] = kind->parameters[n].name;
		appendStringInfo(&list, "%s%s", n > 0 ? ", " : "", names[n]);
	}
	nearest = SuggestFrom(name, names, n);
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("%s.%s: unknown parameter of layer \"%s\"", layer_path, name, layer_name),
			 nearest != NULL ? errhint("Did you mean \"%s\"?", nearest) :
			 n > 0 ? errhint("Its parameters are: %s.", list.data) :
			 errhint("It has no parameters.")));
}

/* The parameters of a layer, as an object. */
static void
ParseParameters(LayerSpec *layer, const Kind *kind, JsonbContainer *object, const char *path, uint32 *given)
{
	JsonbIterator *iterator = JsonbIteratorInit(object);
	JsonbValue	key;
	JsonbValue	value;

	JsonbIteratorNext(&iterator, &key, true);
	while (JsonbIteratorNext(&iterator, &key, true) == WJB_KEY)
	{
		char	   *name = StringValue(&key);
		int			i = 0;

		JsonbIteratorNext(&iterator, &value, true);
		while (kind->parameters[i].name != NULL && strcmp(kind->parameters[i].name, name) != 0)
			i++;
		if (kind->parameters[i].name == NULL)
			UnknownParameter(kind, path, name, layer_kind_name(layer->kind));
		ParseParameter(layer, &kind->parameters[i], &value, psprintf("%s.%s", path, name));
		*given |= 1 << i;
	}
}

/* Defaults that depend on other parameters, and parameters that must be given. */
static void
CompleteLayer(LayerSpec *layer, const Kind *kind, uint32 given, const char *path)
{
	for (int i = 0; i < MAX_PARAMETERS && kind->parameters[i].name != NULL; i++)
		if (kind->parameters[i].required && !(given & (1 << i)))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("%s needs the parameter \"%s\"", path, kind->parameters[i].name),
					 kind->short_form ?
					 errhint("Write it as {\"%s\": 2} or {\"%s\": {\"%s\": 2}}.", layer_kind_name(layer->kind),
							 layer_kind_name(layer->kind), kind->parameters[i].name) :
					 errhint("Write it as {\"%s\": {\"out\": 32, \"kernel\": 3}}.", layer_kind_name(layer->kind))));
	if ((layer->kind == LAYER_MAXPOOL2D || layer->kind == LAYER_AVGPOOL2D) && layer->stride_h == 0)
	{
		layer->stride_h = layer->kernel_h;
		layer->stride_w = layer->kernel_w;
	}
}

static LayerKind
KindByName(const char *name, const char *path)
{
	const char *names[NKINDS];
	const char *nearest;
	StringInfoData list;

	initStringInfo(&list);
	for (int i = 0; i < NKINDS; i++)
	{
		names[i] = layer_kind_name(i);
		if (strcmp(names[i], name) == 0)
			return i;
		appendStringInfo(&list, "%s%s", i > 0 ? ", " : "", names[i]);
	}
	nearest = SuggestFrom(name, names, NKINDS);
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("%s: unknown layer \"%s\"", path, name),
			 nearest != NULL ? errhint("Did you mean \"%s\"?", nearest) :
			 errhint("Layers are: %s.", list.data)));
}

static void
ParseResidual(LayerList *list, int32 index, const JsonbValue *value, const char *path, int depth)
{
	char	   *prefix;

	if (value->type != jbvBinary || !JsonContainerIsArray(value->val.binary.data))
		WrongType(path, "an array of layers", value);
	if (depth >= MAX_RESIDUAL_DEPTH)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("%s: residual blocks are nested more than %d deep", path, MAX_RESIDUAL_DEPTH)));
	prefix = psprintf("%s.", list->layers[index].name);
	ParseLayers(list, value->val.binary.data, path, prefix, depth + 1);
	list->layers[index].span = list->n - index - 1;
}

/* A layer with parameters: an object of one key. */
static void
ParseLayerObject(LayerList *list, JsonbContainer *object, const char *path, const char *prefix, int position, int depth)
{
	JsonbIterator *iterator = JsonbIteratorInit(object);
	JsonbValue	key;
	JsonbValue	value;
	const Kind *kind;
	LayerKind	layer_kind;
	LayerSpec  *layer;
	uint32		given = 0;

	if (JsonContainerSize(object) != 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must have one key, the layer's name, but has %d", path, (int) JsonContainerSize(object)),
				 errhint("Write each layer as an element of its own, as in [{\"linear\": 64}, \"relu\"].")));
	JsonbIteratorNext(&iterator, &key, true);
	JsonbIteratorNext(&iterator, &key, true);
	JsonbIteratorNext(&iterator, &value, true);
	layer_kind = KindByName(StringValue(&key), path);
	kind = &kinds[layer_kind];
	layer = AddLayer(list, layer_kind, prefix, position);
	path = psprintf("%s.%s", path, layer_kind_name(layer_kind));

	if (layer_kind == LAYER_RESIDUAL)
	{
		ParseResidual(list, list->n - 1, &value, path, depth);
		return;
	}
	if (value.type == jbvBinary && JsonContainerIsObject(value.val.binary.data))
		ParseParameters(layer, kind, value.val.binary.data, path, &given);
	else if (kind->short_form)
	{
		ParseParameter(layer, &kind->parameters[0], &value, path);
		given |= 1;
	}
	else
		WrongType(path, "an object of parameters", &value);
	CompleteLayer(layer, kind, given, path);
}

static void
ParseLayers(LayerList *list, JsonbContainer *array, const char *path, const char *prefix, int depth)
{
	int			n = JsonContainerSize(array);

	if (n == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s has no layers", path),
				 depth == 0 ? errhint("Leave it out to train a network of default layers.") : 0));
	for (int i = 0; i < n; i++)
	{
		JsonbValue *element = getIthJsonbValueFromContainer(array, i);
		char	   *element_path = psprintf("%s[%d]", path, i);

		if (element->type == jbvString)
		{
			LayerKind	kind = KindByName(StringValue(element), element_path);
			LayerSpec  *layer = AddLayer(list, kind, prefix, i);

			if (kind == LAYER_RESIDUAL)
				ereport(ERROR,
						(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						 errmsg("%s: layer \"residual\" needs layers", element_path),
						 errhint("Write it as {\"residual\": [{\"linear\": 64}, \"relu\"]}.")));
			CompleteLayer(layer, &kinds[kind], 0, psprintf("%s.%s", element_path, layer_kind_name(kind)));
		}
		else if (element->type == jbvBinary && JsonContainerIsObject(element->val.binary.data))
			ParseLayerObject(list, element->val.binary.data, element_path, prefix, i, depth);
		else
			WrongType(element_path, "the name of a layer or an object of one", element);
	}
}

LayerSpec *
ArchitectureParse(Jsonb *architecture, int32 *nlayers)
{
	LayerList	list = {0};

	if (!JB_ROOT_IS_ARRAY(architecture) || JB_ROOT_IS_SCALAR(architecture))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("architecture must be an array of layers"),
				 errhint("Write it as [{\"linear\": 64}, \"relu\"].")));
	ParseLayers(&list, &architecture->root, "architecture", "", 0);
	*nlayers = list.n;
	return list.layers;
}

static void
PushParameter(JsonbParseState **state, const LayerSpec *layer, const Parameter *parameter)
{
	const void *source = (const char *) layer + parameter->offset;
	const int32 *integers = source;

	JsonPushKey(state, parameter->name);
	switch (parameter->type)
	{
		case PARAMETER_COUNT:
			JsonPushInteger(state, WJB_VALUE, integers[0]);
			break;
		case PARAMETER_SIZE:
		case PARAMETER_PADDING:
			if (integers[0] == integers[1])
			{
				JsonPushInteger(state, WJB_VALUE, integers[0]);
				break;
			}
			pushJsonbValue(state, WJB_BEGIN_ARRAY, NULL);
			JsonPushInteger(state, WJB_ELEM, integers[0]);
			JsonPushInteger(state, WJB_ELEM, integers[1]);
			pushJsonbValue(state, WJB_END_ARRAY, NULL);
			break;
		case PARAMETER_FLAG:
			JsonPushBool(state, WJB_VALUE, integers[0] != 0);
			break;
		case PARAMETER_NUMBER:
			JsonPushFloat(state, WJB_VALUE, *(const float *) source);
			break;
	}
}

/* The layers from first up to end, as an array. */
static JsonbValue *
PushLayers(JsonbParseState **state, const LayerSpec *layers, int32 first, int32 end)
{
	pushJsonbValue(state, WJB_BEGIN_ARRAY, NULL);
	for (int32 i = first; i < end; i++)
	{
		const LayerSpec *layer = &layers[i];
		const Kind *kind = &kinds[layer->kind];

		if (layer->kind != LAYER_RESIDUAL && kind->parameters[0].name == NULL)
		{
			JsonPushText(state, WJB_ELEM, layer_kind_name(layer->kind));
			continue;
		}
		pushJsonbValue(state, WJB_BEGIN_OBJECT, NULL);
		JsonPushKey(state, layer_kind_name(layer->kind));
		if (layer->kind == LAYER_RESIDUAL)
		{
			PushLayers(state, layers, i + 1, i + 1 + layer->span);
			i += layer->span;
		}
		else
		{
			pushJsonbValue(state, WJB_BEGIN_OBJECT, NULL);
			for (const Parameter *parameter = kind->parameters; parameter->name != NULL; parameter++)
				PushParameter(state, layer, parameter);
			pushJsonbValue(state, WJB_END_OBJECT, NULL);
		}
		pushJsonbValue(state, WJB_END_OBJECT, NULL);
	}
	return pushJsonbValue(state, WJB_END_ARRAY, NULL);
}

Jsonb *
ArchitectureToJsonb(const LayerSpec *layers, int32 nlayers)
{
	JsonbParseState *state = NULL;

	return JsonbValueToJsonb(PushLayers(&state, layers, 0, nlayers));
}

/* The number that the next layer of the outermost list has. */
static int
NextPosition(const LayerSpec *layers, int32 nlayers)
{
	int			position = 0;

	for (int32 i = 0; i < nlayers; i++)
	{
		if (layers[i].kind == LAYER_RESIDUAL)
			i += layers[i].span;
		position++;
	}
	return position;
}

static void
AddConvolution(LayerList *list, int32 channels, int32 *height, int32 *width)
{
	LayerSpec  *layer = AddLayer(list, LAYER_CONV2D, "", list->n);

	layer->out = channels;
	layer->kernel_h = layer->kernel_w = 3;
	layer->pad_h = layer->pad_w = 1;
	AddLayer(list, LAYER_RELU, "", list->n);
	if (*height < 4 || *width < 4)
		return;
	layer = AddLayer(list, LAYER_MAXPOOL2D, "", list->n);
	layer->kernel_h = layer->kernel_w = 2;
	layer->stride_h = layer->stride_w = 2;
	*height /= 2;
	*width /= 2;
}

LayerSpec *
ArchitectureDefault(RowShape input, int32 *nlayers)
{
	LayerList	list = {0};

	if (input.height > 0)
	{
		AddConvolution(&list, 32, &input.height, &input.width);
		AddConvolution(&list, 64, &input.height, &input.width);
		AddLayer(&list, LAYER_FLATTEN, "", list.n);
	}
	else
	{
		AddLayer(&list, LAYER_LINEAR, "", list.n)->out = 128;
		AddLayer(&list, LAYER_RELU, "", list.n);
	}
	AddLayer(&list, LAYER_LINEAR, "", list.n)->out = input.height > 0 ? 128 : 64;
	AddLayer(&list, LAYER_RELU, "", list.n);
	*nlayers = list.n;
	return list.layers;
}

LayerSpec *
ArchitectureAppendOutput(LayerSpec *layers, int32 *nlayers, int32 outputs)
{
	LayerSpec  *output;

	if (*nlayers >= MAX_LAYERS)
		TooManyLayers();
	layers = repalloc(layers, sizeof(LayerSpec) * (*nlayers + 1));
	output = &layers[*nlayers];
	memset(output, 0, sizeof(LayerSpec));
	snprintf(output->name, sizeof(output->name), "%d", NextPosition(layers, *nlayers));
	output->kind = LAYER_LINEAR;
	output->out = outputs;
	output->bias = 1;
	(*nlayers)++;
	return layers;
}
