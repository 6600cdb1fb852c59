/*
 * dnn.c - running convolutions by cuDNN: plans are made at the first convolution of a shape, and kept.
 */
#include "kernels/cuda/dnn_plan.h"

#include <stdlib.h>
#include <string.h>

/* Plans that want more are left out. */
#define WORKSPACE_LIMIT ((size_t) 1 << 30)

/* Tensors that one convolution has at most. */
#define MOST_TENSORS 4

typedef struct DnnPlan
{
	DnnConvolution key;
	DnnBuilt	built;
	struct DnnPlan *next;
} DnnPlan;

typedef struct Dnn
{
	const DnnLibrary *library;
	cudnnHandle_t handle;
	DnnPlan    *plans;
} Dnn;

static int	without_dnn;

void
cuda_backend_without_dnn(int without)
{
	without_dnn = without;
}

size_t
dnn_version(void)
{
	const DnnLibrary *library = without_dnn ? NULL : dnn_library();

	return library == NULL ? 0 : library->GetVersion();
}

/* Open cuDNN for the device, or note that it is missing. */
static Status
open_dnn(Backend *be, Error *err)
{
	const DnnLibrary *library = without_dnn ? NULL : dnn_library();
	cudnnStatus_t status;
	Dnn		   *dnn;

	if (library == NULL)
	{
		be->dnn_missing = 1;
		return STATUS_OK;
	}
	TRY(cuda_check_not_recording(be, "the first convolution", err));
	dnn = calloc(1, sizeof(*dnn));
	if (dnn == NULL)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	dnn->library = library;
	status = library->Create(&dnn->handle);
	if (status != CUDNN_STATUS_SUCCESS)
	{
		free(dnn);
		return dnn_failed(library, status, "cudnnCreate", err);
	}
	be->dnn = dnn;
	status = library->SetStream(dnn->handle, be->stream);
	if (status != CUDNN_STATUS_SUCCESS)
	{
		dnn_close(be);
		return dnn_failed(library, status, "cudnnSetStream", err);
	}
	return STATUS_OK;
}

void
dnn_close(Backend *be)
{
	Dnn		   *dnn = be->dnn;

	if (dnn == NULL)
		return;
	while (dnn->plans != NULL)
	{
		DnnPlan    *plan = dnn->plans;

		dnn->plans = plan->next;
		if (plan->built.plan != NULL)
			dnn->library->BackendDestroyDescriptor(plan->built.plan);
		free(plan);
	}
	dnn->library->Destroy(dnn->handle);
	free(dnn);
	be->dnn = NULL;
}

static int
is_aligned(const void *p)
{
	return (uintptr_t) p % DNN_ALIGNMENT == 0;
}

Status
dnn_plan(Backend *be, const DnnConvolution *convolution, const DnnTensors *tensors, DnnPlan **out, Error *err)
{
	DnnPlan    *plan;
	DnnTarget	target = {NULL, NULL, NULL, be->tf32, WORKSPACE_LIMIT};
	Status		status;

	*out = NULL;
	if (be->dnn == NULL && !be->dnn_missing)
		TRY(open_dnn(be, err));
	if (be->dnn == NULL || !is_aligned(tensors->x) || !is_aligned(tensors->w) || !is_aligned(tensors->y)
		|| !is_aligned(tensors->b))
		return STATUS_OK;
	for (plan = be->dnn->plans; plan != NULL; plan = plan->next)
		if (memcmp(&plan->key, convolution, sizeof(*convolution)) == 0)
		{
			*out = plan->built.plan != NULL ? plan : NULL;
			return STATUS_OK;
		}
	TRY(cuda_check_not_recording(be, "a convolution of a new shape", err));
	plan = calloc(1, sizeof(*plan));
	if (plan == NULL)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	plan->key = *convolution;
	target.library = be->dnn->library;
	target.handle = be->dnn->handle;
	status = dnn_build(&target, convolution, &plan->built, err);
	if (status != STATUS_OK)
	{
		free(plan);
		return status;
	}
	plan->next = be->dnn->plans;
	be->dnn->plans = plan;
	*out = plan->built.plan != NULL ? plan : NULL;
	return STATUS_OK;
}

static cudnnStatus_t
fill_variant_pack(const DnnLibrary *library, cudnnBackendDescriptor_t pack, const DnnTensors *tensors, void *workspace)
{
	int64_t		uid[MOST_TENSORS] = {DNN_UID_X, DNN_UID_W, DNN_UID_Y, DNN_UID_BIAS};
	void	   *data[MOST_TENSORS] = {(void *) tensors->x, (void *) tensors->w, (void *) tensors->y, (void *) tensors->b};
	int64_t		count = tensors->b != NULL ? 4 : 3;
	cudnnStatus_t status;

	status = library->BackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, uid);
	if (status == CUDNN_STATUS_SUCCESS)
		status = library->BackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count,
											  data);
	if (status == CUDNN_STATUS_SUCCESS)
		status = library->BackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
											  &workspace);
	if (status == CUDNN_STATUS_SUCCESS)
		status = library->BackendFinalize(pack);
	return status;
}

Status
dnn_run(Backend *be, DnnPlan *plan, const DnnTensors *tensors, Error *err)
{
	const DnnLibrary *library = be->dnn->library;
	cudnnBackendDescriptor_t pack = NULL;
	cudnnStatus_t status;
	void	   *workspace;

	TRY(cuda_workspace(be, WORKSPACE_LIBRARY, plan->built.workspace_bytes, &workspace, err));
	status = library->BackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
	if (status == CUDNN_STATUS_SUCCESS)
		status = fill_variant_pack(library, pack, tensors, workspace);
	if (status == CUDNN_STATUS_SUCCESS)
		status = library->BackendExecute(be->dnn->handle, plan->built.plan, pack);
	if (pack != NULL)
		library->BackendDestroyDescriptor(pack);
	return status == CUDNN_STATUS_SUCCESS ? STATUS_OK : dnn_failed(library, status, "cudnnBackendExecute", err);
}
