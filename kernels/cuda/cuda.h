/*
 * cuda.h - what the files of the CUDA backend share: the open device, its workspaces, and errors.
 *
 * All work goes into one stream and is never waited for but in sync, copy_in and copy_out.  Host code is C where it
 * starts no kernel, kernels stand beside the operations that launch them.
 */
#ifndef PGT_CUDA_H
#define PGT_CUDA_H

#include <stddef.h>
#include <stdint.h>

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C"
{
#endif

#include "kernels/backend.h"

/* Workspaces that may be in use at the same time; each grows at its first use for a shape and stays. */
typedef enum Workspace
{
	WORKSPACE_LIBRARY,			/* cuBLASLt's and cuDNN's own */
	WORKSPACE_REDUCE,			/* partial sums between two kernels */
	WORKSPACE_PRODUCT,			/* a product in fp32 before its bias and activation */
	WORKSPACE_COLUMNS,			/* the windows of a convolution, one a row */
	WORKSPACE_COUNT
} Workspace;

/* Pinned memory through which copies of other host memory go. */
#define STAGING_SLOTS 4
#define STAGING_BYTES ((size_t) 1 << 20)

typedef struct StagingSlot
{
	cudaEvent_t used;			/* behind the last copy from or to the slot */
	int			busy;			/* used was recorded and has not been waited for */
} StagingSlot;

/* Memory that host_register has pinned. */
typedef struct PinnedRange
{
	char	   *start;
	size_t		bytes;
	struct PinnedRange *next;
} PinnedRange;

/* Memory that a recorded graph may still use. */
typedef struct Retired
{
	void	   *data;
	struct Retired *next;
} Retired;

/* What is wrong with a batch: pinned memory that kernels write and sync reads.  The first one stays until then. */
typedef struct DataError
{
	int32_t		set;
	int32_t		target;
	uint64_t	row;
	uint64_t	classes;
} DataError;

struct Backend
{
	int			ordinal;
	int			multiprocessors;
	int			compute_capability;
	int			tf32;
	size_t		memory_bytes;
	char		name[128];
	cudaStream_t stream;
	cudaEvent_t done;
	cudaError_t failed;			/* the error that the device met, for good */
	struct
	{
		void	   *data;
		size_t		bytes;
	}			workspace[WORKSPACE_COUNT];
	char	   *staging;		/* STAGING_SLOTS of STAGING_BYTES, then a DataError */
	StagingSlot slot[STAGING_SLOTS];
	int			next_slot;
	DataError  *data_error;
	PinnedRange *pinned;
	int			recording;		/* between graph_begin and graph_end */
	int			graphs;			/* that live */
	Retired    *retired;
	cublasLtHandle_t blas;
	struct MatmulPlans *matmul;	/* by shape: matmul.c */
	struct Dnn *dnn;			/* cuDNN, opened at the first convolution */
	int			dnn_missing;	/* it could not be opened: own kernels do its work */
};

/* At least bytes of memory with undefined content.  Fails while recording if it would have to grow. */
extern Status cuda_workspace(Backend *be, Workspace which, size_t bytes, void **out, Error *err);

/* Turn a failure of the CUDA runtime into a Status; call is what failed. */
extern Status cuda_failed(cudaError_t error, const char *call, Error *err);
/* The same after a launch. */
extern Status cuda_launched(const char *operation, Error *err);
extern Status cuda_check_dtype(DType dtype, const char *operation, Error *err);
/* Refuse what cannot be recorded. */
extern Status cuda_check_not_recording(const Backend *be, const char *operation, Error *err);

#define CUDA_TRY(call) \
	do { \
		cudaError_t cuda_try_ = (call); \
		if (cuda_try_ != cudaSuccess) \
			return cuda_failed(cuda_try_, #call, err); \
	} while (0)

static inline size_t
dtype_bytes(DType dtype)
{
	return dtype == DTYPE_BF16 || dtype == DTYPE_F16 ? 2 : (dtype == DTYPE_U8 ? 1 : 4);
}

static inline size_t
min_size(size_t a, size_t b)
{
	return a < b ? a : b;
}

static inline size_t
ceil_div(size_t n, size_t unit)
{
	return (n + unit - 1) / unit;
}

/* Blocks for a loop over n pieces of work of one block each: enough to fill the device, the rest is looped over. */
static inline unsigned
grid_for(const Backend *be, size_t n)
{
	size_t		most = (size_t) be->multiprocessors * 8;

	return (unsigned) (n < 1 ? 1 : min_size(n, most));
}

/* May groups of 4 elements at p be loaded and stored at once? */
static inline int
aligned4(const void *p, DType dtype)
{
	return ((uintptr_t) p % (4 * dtype_bytes(dtype))) == 0;
}

#ifdef __cplusplus
}
#endif

#endif							/* PGT_CUDA_H */
