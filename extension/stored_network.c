/*
 * stored_network.c - a stored version as a network that computes.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "extension/architecture.h"
#include "extension/stored_network.h"
#include "extension/report.h"

#define MAX_BATCH_BYTES ((Size) 32 << 20)

/* Ties a Model, which malloc made, to a memory context. */
typedef struct ModelOwner
{
	MemoryContextCallback callback;
	Model	   *model;
} ModelOwner;

typedef struct TensorTarget
{
	Model	   *model;
	int32		count;
} TensorTarget;

LayerSpec *
NetworkLayers(const ModelVersion *version, int32 *nlayers)
{
	LayerSpec  *layers;

	layers = ArchitectureParse(version->architecture, nlayers);
	return layers;
}

int
NetworkBatchRows(const ModelVersion *version, int rows)
{
	int32		nlayers;
	LayerSpec  *layers;
	LayerInfo  *info;
	RowShape	outputs;
	Size		row_bytes = sizeof(float) * version->encoders->input_width;
	Error		err;

	if (rows == 1)
		return 1;
	layers = NetworkLayers(version, &nlayers);
	info = palloc(sizeof(LayerInfo) * nlayers);
	if (network_infer_shapes(layers, nlayers, version->input, info, &outputs, &err) != STATUS_OK)
		ReportError(&err);
	for (int i = 0; i < nlayers; i++)
	{
		RowShape	out = info[i].out;

		row_bytes += sizeof(float) * out.channels * (out.height > 0 ? (Size) out.height * out.width : 1);
	}
	pfree(layers);
	pfree(info);
	return (int) Max(1, Min(rows, MAX_BATCH_BYTES / row_bytes));
}

static void
FreeModel(void *arg)
{
	ModelOwner *owner = arg;

	model_free(owner->model);
	owner->model = NULL;
}

static void
SetTensor(void *arg, const TensorHeader *header, const float *data)
{
	TensorTarget *target = arg;
	Error		err;

	if (model_set_tensor(target->model, header->name, data, header->values, &err) != STATUS_OK)
		ReportError(&err);
	target->count++;
}

Model *
NetworkLoad(const ModelReference *resolved, const ModelVersion *version, size_t max_rows, MemoryContext context)
{
	ModelOwner *owner = MemoryContextAllocZero(context, sizeof(ModelOwner));
	TensorTarget target = {0};
	LayerSpec  *layers;
	int32		nlayers;
	int32		ntensors;
	Error		err;

	layers = NetworkLayers(version, &nlayers);
	if (network_tensor_count(layers, nlayers, version->input, &ntensors, &err) != STATUS_OK)
		ReportError(&err);

	owner->callback.func = FreeModel;
	owner->callback.arg = owner;
	MemoryContextRegisterResetCallback(context, &owner->callback);
	if (model_create(layers, nlayers, version->input, max_rows, &owner->model, &err) != STATUS_OK)
		ReportError(&err);
	if (model_outputs(owner->model) != version->outputs)
		elog(ERROR, "network of model \"%s\" has %d outputs instead of %d",
			 version->name, model_outputs(owner->model), version->outputs);

	target.model = owner->model;
	CatalogReadTensors(resolved, SetTensor, &target);
	if (target.count != ntensors)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("weights of model \"%s\", version %d, are damaged", resolved->name, resolved->version),
				 errdetail("There are %d tensors instead of %d.", target.count, ntensors)));
	pfree(layers);
	return owner->model;
}
