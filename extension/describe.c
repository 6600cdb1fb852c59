/*
 * describe.c - what a model is made of: describe_model, model_weights.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"

#include "extension/catalog.h"
#include "extension/compat.h"
#include "extension/report.h"
#include "extension/stored_network.h"

static Datum
IntArray(const int32 *values, int n)
{
	Datum		elements[MAX_TENSOR_DIMS];

	Assert(n <= MAX_TENSOR_DIMS);
	for (int i = 0; i < n; i++)
		elements[i] = Int32GetDatum(values[i]);
	return PointerGetDatum(construct_array(elements, n, INT4OID, 4, true, TYPALIGN_INT));
}

/* {channels, height, width} of an image, {features} otherwise */
static Datum
ShapeDatum(RowShape shape)
{
	int32		dims[3] = {shape.channels, shape.height, shape.width};

	return IntArray(dims, shape.height > 0 ? 3 : 1);
}

static void
AppendSeparator(StringInfo json)
{
	if (json->len > 1)
		appendStringInfoString(json, ", ");
}

static void
AppendInt(StringInfo json, const char *name, int32 value)
{
	AppendSeparator(json);
	appendStringInfo(json, "\"%s\": %d", name, value);
}

static void
AppendFloat(StringInfo json, const char *name, float value)
{
	AppendSeparator(json);
	appendStringInfo(json, "\"%s\": %s", name, DatumGetCString(DirectFunctionCall1(float4out, Float4GetDatum(value))));
}

/* One number where both directions agree, as users mostly write it. */
static void
AppendPair(StringInfo json, const char *name, int32 vertical, int32 horizontal)
{
	AppendSeparator(json);
	if (vertical == horizontal)
		appendStringInfo(json, "\"%s\": %d", name, vertical);
	else
		appendStringInfo(json, "\"%s\": [%d, %d]", name, vertical, horizontal);
}

static Datum
LayerSettings(const LayerSpec *layer)
{
	StringInfoData json;

	initStringInfo(&json);
	appendStringInfoChar(&json, '{');
	switch ((LayerKind) layer->kind)
	{
		case LAYER_LINEAR:
			AppendInt(&json, "out", layer->out);
			break;
		case LAYER_CONV2D:
			AppendInt(&json, "out", layer->out);
			/* FALLTHROUGH */
		case LAYER_MAXPOOL2D:
		case LAYER_AVGPOOL2D:
			AppendPair(&json, "kernel", layer->kernel_h, layer->kernel_w);
			AppendPair(&json, "stride", layer->stride_h, layer->stride_w);
			AppendPair(&json, "padding", layer->pad_h, layer->pad_w);
			break;
		case LAYER_BATCHNORM:
			AppendFloat(&json, "eps", layer->eps);
			AppendFloat(&json, "momentum", layer->momentum);
			break;
		case LAYER_LAYERNORM:
			AppendFloat(&json, "eps", layer->eps);
			break;
		case LAYER_DROPOUT:
			AppendFloat(&json, "p", layer->p);
			break;
		case LAYER_RESIDUAL:
			AppendInt(&json, "layers", layer->span);
			break;
		case LAYER_GLOBAL_AVGPOOL:
		case LAYER_FLATTEN:
		case LAYER_RELU:
		case LAYER_GELU:
		case LAYER_TANH:
		case LAYER_SIGMOID:
			break;
	}
	if ((layer->kind == LAYER_LINEAR || layer->kind == LAYER_CONV2D) && !layer->bias)
	{
		AppendSeparator(&json);
		appendStringInfoString(&json, "\"bias\": false");
	}
	appendStringInfoChar(&json, '}');
	return DirectFunctionCall1(jsonb_in, CStringGetDatum(json.data));
}

PG_FUNCTION_INFO_V1(pgt_describe_model);
Datum
pgt_describe_model(PG_FUNCTION_ARGS)
{
	char	   *reference = text_to_cstring(PG_GETARG_TEXT_PP(0));
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	ModelVersion *version;
	LayerSpec  *layers;
	LayerInfo  *info;
	RowShape	outputs;
	int32		nlayers;
	Error		err;

	CompatMaterializedSRF(fcinfo);
	version = CatalogLoadVersion(reference, false);
	layers = NetworkLayers(version, &nlayers);
	info = palloc(sizeof(LayerInfo) * nlayers);
	if (network_infer_shapes(layers, nlayers, version->input, info, &outputs, &err) != STATUS_OK)
		ReportError(&err);

	for (int i = 0; i < nlayers; i++)
	{
		Datum		values[5];
		bool		nulls[5] = {false};

		values[0] = CStringGetTextDatum(layers[i].name);
		values[1] = CStringGetTextDatum(layer_kind_name(layers[i].kind));
		values[2] = ShapeDatum(info[i].out);
		values[3] = Int64GetDatum(info[i].parameters);
		values[4] = LayerSettings(&layers[i]);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}

static void
PutTensor(void *arg, const TensorHeader *header, const float *data)
{
	ReturnSetInfo *rsinfo = arg;
	Size		bytes = ARR_OVERHEAD_NONULLS(1) + sizeof(float4) * header->values;
	ArrayType  *array;
	Datum		values[3];
	bool		nulls[3] = {false};

	if (!AllocSizeIsValid(bytes))
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("tensor \"%s\" is too large for an array", header->name)));
	array = palloc0(bytes);
	SET_VARSIZE(array, bytes);
	array->ndim = 1;
	array->elemtype = FLOAT4OID;
	ARR_DIMS(array)[0] = header->values;
	ARR_LBOUND(array)[0] = 1;
	memcpy(ARR_DATA_PTR(array), data, sizeof(float4) * header->values);

	values[0] = CStringGetTextDatum(header->name);
	values[1] = IntArray(header->dims, header->ndim);
	values[2] = PointerGetDatum(array);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	pfree(array);
}

PG_FUNCTION_INFO_V1(pgt_model_weights);
Datum
pgt_model_weights(PG_FUNCTION_ARGS)
{
	char	   *reference = text_to_cstring(PG_GETARG_TEXT_PP(0));
	ModelReference resolved;

	CompatMaterializedSRF(fcinfo);
	CatalogResolve(reference, &resolved);
	CatalogCheckUse(&resolved);
	CatalogReadTensors(&resolved, PutTensor, fcinfo->resultinfo);
	return (Datum) 0;
}
