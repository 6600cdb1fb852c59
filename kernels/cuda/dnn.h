/*
 * dnn.h - convolutions by cuDNN.
 *
 * cuDNN is opened at the first convolution and may be missing: then, and where it has no plan for a shape, conv.cu does
 * the work.  All tensors of a convolution are of one type, also the bias and dw: cuDNN has no plans with fp32 among lower
 * precision.
 */
#ifndef PGT_CUDA_DNN_H
#define PGT_CUDA_DNN_H

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C"
{
#endif

struct DnnPlan;

typedef enum DnnOperation
{
	DNN_FORWARD,				/* y = act(x * w + b) */
	DNN_BACKWARD_DATA,			/* dx from dy and w */
	DNN_BACKWARD_WEIGHT			/* dw from dy and x */
} DnnOperation;

/* A convolution, without its tensors; all that a plan depends on. */
typedef struct DnnConvolution
{
	uint64_t	n;
	Conv2dShape shape;
	int32_t		operation;		/* DnnOperation */
	int32_t		dtype;
	int32_t		bias,			/* forward: b is added */
				relu;			/* forward: and negative sums are zeroed */
} DnnConvolution;

/* x, w, y or their gradients as the operation has them; b or NULL */
typedef struct DnnTensors
{
	const void *x,
			   *w,
			   *y,
			   *b;
} DnnTensors;

/* *plan is the plan for a convolution with these tensors, or NULL: own kernels have to do it. */
extern Status dnn_plan(Backend *be, const DnnConvolution *convolution, const DnnTensors *tensors,
					   struct DnnPlan **plan, Error *err);
extern Status dnn_run(Backend *be, struct DnnPlan *plan, const DnnTensors *tensors, Error *err);
extern void dnn_close(Backend *be);

/* cuDNN's version, 0 where it is missing. */
extern size_t dnn_version(void);

/* Do as if cuDNN were missing, for tests. */
extern void cuda_backend_without_dnn(int without);

#ifdef __cplusplus
}
#endif

#endif							/* PGT_CUDA_DNN_H */
