/*
 * dnn_plan.h - building cuDNN's plan of a convolution, for an open device or for the description of one.
 */
#ifndef PGT_CUDA_DNN_PLAN_H
#define PGT_CUDA_DNN_PLAN_H

#include "kernels/cuda/dnn.h"
#include "kernels/cuda/dnn_library.h"

/* Of all tensors, in bytes. */
#define DNN_ALIGNMENT 16

/* Tensors of a plan have these numbers, by which the variant pack knows them. */
enum
{
	DNN_UID_X = 1,
	DNN_UID_W,
	DNN_UID_Y,
	DNN_UID_BIAS,
	DNN_UID_SUM,				/* virtual: the convolution */
	DNN_UID_BIASED				/* virtual: with its bias */
};

/* What a plan is made for. */
typedef struct DnnTarget
{
	const DnnLibrary *library;
	cudnnHandle_t handle;		/* an open device, or */
	cudnnBackendDescriptor_t properties;	/* a description of one */
	int32_t		tf32;
	size_t		workspace_limit;
} DnnTarget;

typedef struct DnnBuilt
{
	cudnnBackendDescriptor_t plan;	/* NULL: cuDNN has none */
	size_t		workspace_bytes;
} DnnBuilt;

/* Turn a failure of cuDNN into a Status; call is what failed. */
extern Status dnn_failed(const DnnLibrary *library, cudnnStatus_t status, const char *call, Error *err);
/* STATUS_OK with a plan or without one. */
extern Status dnn_build(const DnnTarget *target, const DnnConvolution *convolution, DnnBuilt *built, Error *err);

#endif							/* PGT_CUDA_DNN_PLAN_H */
