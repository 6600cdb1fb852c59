/*
 * matmul.c - matrix products by cuBLASLt.
 *
 * cuBLASLt is asked for an algorithm at the first product of a shape; descriptors and algorithm are kept.  It thinks in
 * columns: a row-major matrix is its own transpose to it, so that c = a b is computed as c^T = b^T a^T.
 */
#include "kernels/cuda/linear.h"

#include <stdlib.h>
#include <string.h>

/* What NVIDIA advises for Hopper; only what the algorithm takes is allocated. */
#define MOST_WORKSPACE ((uint64_t) 32 << 20)

/* cuBLASLt asks how pointers are aligned, up to this. */
#define MOST_ALIGNMENT 256

/* Buckets of plans. */
#define BUCKETS 64

/* All that an algorithm depends on.  Compared as bytes, so it has no holes: see key_of(). */
typedef struct MatmulKey
{
	uint64_t	rows,
				columns,
				depth;
	int32_t		transpose_a,
				transpose_b,
				in,
				out,
				accumulate,		/* beta is 1 */
				epilogue;
	int32_t		align_a,
				align_b,
				align_c,
				reserved;
} MatmulKey;

typedef struct MatmulPlan
{
	MatmulKey	key;
	cublasLtMatmulDesc_t operation;
	cublasLtMatrixLayout_t a,
				b,
				c;
	cublasLtMatmulAlgo_t algorithm;
	size_t		workspace_bytes;
	int			missing;		/* cuBLASLt has no algorithm */
	struct MatmulPlan *next;
} MatmulPlan;

typedef struct MatmulPlans
{
	MatmulPlan *bucket[BUCKETS];
} MatmulPlans;

static Status
blas_failed(cublasStatus_t status, const char *call, Error *err)
{
	Status		ours = status == CUBLAS_STATUS_ALLOC_FAILED ? STATUS_NO_MEMORY : STATUS_DEVICE;

	error_set(err, ours, "a matrix product failed on the GPU: %s", cublasLtGetStatusString(status));
	error_detail(err, "%.*s gave %s.", (int) strcspn(call, "("), call, cublasLtGetStatusName(status));
	return ours;
}

#define BLAS_TRY(call) \
	do { \
		cublasStatus_t blas_try_ = (call); \
		if (blas_try_ != CUBLAS_STATUS_SUCCESS) \
			return blas_failed(blas_try_, #call, err); \
	} while (0)

Status
matmul_open(Backend *be, Error *err)
{
	be->matmul = calloc(1, sizeof(*be->matmul));
	if (be->matmul == NULL)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	BLAS_TRY(cublasLtCreate(&be->blas));
	return STATUS_OK;
}

static void
free_plan(MatmulPlan *plan)
{
	if (plan->operation != NULL)
		cublasLtMatmulDescDestroy(plan->operation);
	if (plan->a != NULL)
		cublasLtMatrixLayoutDestroy(plan->a);
	if (plan->b != NULL)
		cublasLtMatrixLayoutDestroy(plan->b);
	if (plan->c != NULL)
		cublasLtMatrixLayoutDestroy(plan->c);
	free(plan);
}

void
matmul_close(Backend *be)
{
	int			i;

	for (i = 0; be->matmul != NULL && i < BUCKETS; i++)
		while (be->matmul->bucket[i] != NULL)
		{
			MatmulPlan *plan = be->matmul->bucket[i];

			be->matmul->bucket[i] = plan->next;
			free_plan(plan);
		}
	free(be->matmul);
	be->matmul = NULL;
	if (be->blas != NULL)
		cublasLtDestroy(be->blas);
	be->blas = NULL;
}

static int32_t
alignment_of(const void *p)
{
	uintptr_t	lowest = (uintptr_t) p & (~(uintptr_t) p + 1);

	return lowest == 0 || lowest > MOST_ALIGNMENT ? MOST_ALIGNMENT : (int32_t) lowest;
}

static MatmulKey
key_of(const Product *p, const void *a, const void *b, const float *vector, const void *c)
{
	MatmulKey	key;

	memset(&key, 0, sizeof(key));
	key.rows = p->rows;
	key.columns = p->columns;
	key.depth = p->depth;
	key.transpose_a = p->transpose_a;
	key.transpose_b = p->transpose_b;
	key.in = (int32_t) p->in;
	key.out = (int32_t) p->out;
	key.accumulate = p->beta != 0.0f;
	/* In columns our a comes second. */
	if (p->sums)
		key.epilogue = CUBLASLT_EPILOGUE_BGRADB;
	else if (vector != NULL)
		key.epilogue = p->relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
	else
		key.epilogue = p->relu ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_DEFAULT;
	key.align_a = alignment_of(a);
	key.align_b = alignment_of(b);
	key.align_c = alignment_of(c);
	return key;
}

static MatmulPlan **
bucket_of(Backend *be, const MatmulKey *key)
{
	const unsigned char *byte = (const unsigned char *) key;
	uint32_t	hash = 2166136261u;
	size_t		i;

	for (i = 0; i < sizeof(*key); i++)
		hash = (hash ^ byte[i]) * 16777619u;
	return &be->matmul->bucket[hash % BUCKETS];
}

static cudaDataType_t
data_type(int32_t dtype)
{
	return dtype == DTYPE_F32 ? CUDA_R_32F : (dtype == DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_16F);
}

/* The layout of a row-major matrix (rows, columns), which has columns rows to cuBLASLt. */
static Status
make_layout(cublasLtMatrixLayout_t *layout, int32_t dtype, uint64_t rows, uint64_t columns, Error *err)
{
	BLAS_TRY(cublasLtMatrixLayoutCreate(layout, data_type(dtype), columns, rows, (int64_t) columns));
	return STATUS_OK;
}

static Status
choose_algorithm(Backend *be, MatmulPlan *plan, cublasLtMatmulPreference_t preference, Error *err)
{
	const MatmulKey *key = &plan->key;
	uint64_t	workspace = MOST_WORKSPACE;
	/* cuBLASLt's a is our b */
	uint32_t	align_a = (uint32_t) key->align_b,
				align_b = (uint32_t) key->align_a,
				align_c = (uint32_t) key->align_c;
	cublasLtMatmulHeuristicResult_t result;
	cublasStatus_t status;
	int			found = 0;

	BLAS_TRY(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
												  sizeof(workspace)));
	BLAS_TRY(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &align_a,
												  sizeof(align_a)));
	BLAS_TRY(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &align_b,
												  sizeof(align_b)));
	BLAS_TRY(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &align_c,
												  sizeof(align_c)));
	BLAS_TRY(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &align_c,
												  sizeof(align_c)));
	status = cublasLtMatmulAlgoGetHeuristic(be->blas, plan->operation, plan->a, plan->b, plan->c, plan->c, preference,
											1, &result, &found);
	if (status != CUBLAS_STATUS_NOT_SUPPORTED)
		BLAS_TRY(status);
	if (found < 1)
	{
		plan->missing = 1;
		return STATUS_OK;
	}
	plan->algorithm = result.algo;
	plan->workspace_bytes = result.workspaceSize;
	return STATUS_OK;
}

static Status
fill_plan(Backend *be, MatmulPlan *plan, Error *err)
{
	const MatmulKey *key = &plan->key;
	int			tf32 = be->tf32 && key->in == DTYPE_F32;
	int32_t		transpose = CUBLAS_OP_T;
	uint32_t	epilogue = (uint32_t) key->epilogue;
	cublasLtMatmulPreference_t preference;
	Status		status;

	BLAS_TRY(cublasLtMatmulDescCreate(&plan->operation, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
									  CUDA_R_32F));
	/* In columns our b comes first. */
	if (key->transpose_b)
		BLAS_TRY(cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_TRANSA, &transpose,
												sizeof(transpose)));
	if (key->transpose_a)
		BLAS_TRY(cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_TRANSB, &transpose,
												sizeof(transpose)));
	BLAS_TRY(cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
											sizeof(epilogue)));
	TRY(make_layout(&plan->a, key->in, key->transpose_b ? key->columns : key->depth,
					key->transpose_b ? key->depth : key->columns, err));
	TRY(make_layout(&plan->b, key->in, key->transpose_a ? key->depth : key->rows,
					key->transpose_a ? key->rows : key->depth, err));
	TRY(make_layout(&plan->c, key->out, key->rows, key->columns, err));
	BLAS_TRY(cublasLtMatmulPreferenceCreate(&preference));
	status = choose_algorithm(be, plan, preference, err);
	cublasLtMatmulPreferenceDestroy(preference);
	return status;
}

/* The plan for a key, made where there is none yet. */
static Status
find_plan(Backend *be, const MatmulKey *key, MatmulPlan **out, Error *err)
{
	MatmulPlan **bucket = bucket_of(be, key),
			   *plan;
	Status		status;

	for (plan = *bucket; plan != NULL; plan = plan->next)
		if (memcmp(&plan->key, key, sizeof(*key)) == 0)
		{
			*out = plan;
			return STATUS_OK;
		}
	TRY(cuda_check_not_recording(be, "a matrix product of a new shape", err));
	plan = calloc(1, sizeof(*plan));
	if (plan == NULL)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	plan->key = *key;
	status = fill_plan(be, plan, err);
	if (status != STATUS_OK)
	{
		free_plan(plan);
		return status;
	}
	plan->next = *bucket;
	*bucket = plan;
	*out = plan;
	return STATUS_OK;
}

Status
matmul(Backend *be, const Product *product, const void *a, const void *b, const float *vector, void *c, Error *err)
{
	MatmulKey	key = key_of(product, a, b, vector, c);
	MatmulPlan *plan = NULL;
	void	   *workspace;
	float		alpha = 1.0f,
				beta = product->beta;

	TRY(find_plan(be, &key, &plan, err));
	if (plan->missing && product->sums)
		return STATUS_UNSUPPORTED;
	if (plan->missing)
		return blas_failed(CUBLAS_STATUS_NOT_SUPPORTED, "cublasLtMatmulAlgoGetHeuristic", err);
	TRY(cuda_workspace(be, WORKSPACE_LIBRARY, plan->workspace_bytes, &workspace, err));
	if (vector != NULL)
		BLAS_TRY(cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &vector,
												sizeof(vector)));
	BLAS_TRY(cublasLtMatmul(be->blas, plan->operation, &alpha, b, plan->a, a, plan->b, &beta, c, plan->c, c, plan->c,
							&plan->algorithm, workspace, plan->workspace_bytes, be->stream));
	return STATUS_OK;
}
