/*
 * test_blaslt.c - cublasLtMatmul: products and epilogues against plain loops, and what it refuses.
 */
#include <cublasLt.h>

#include "regress/unit/cudasim/sim_test.h"

#define CHECK_BLAS(want, call) \
	do { \
		cublasStatus_t test_status_ = (call); \
		if (test_status_ != (want)) \
			test_fail(__FILE__, __LINE__, "%s gave %s, expected %s (%s)", #call, cublasLtGetStatusName(test_status_), \
					  #want, cudasim_message()); \
	} while (0)

#define BLAS_OK(call) CHECK_BLAS(CUBLAS_STATUS_SUCCESS, call)

/* D (M, N) = op(A) (M, K) op(B) (K, N), column by column */
#define M 37
#define N 11
#define K 19
#define AUX_LD 128

typedef struct Product
{
	cublasLtHandle_t handle;
	cublasLtMatmulDesc_t desc;
	cublasLtMatrixLayout_t a,
				b,
				d;
	cublasLtMatmulPreference_t preference;
	cublasLtMatmulHeuristicResult_t algo;
	int			found;
	size_t		workspace_bytes;
	float	   *dev_a,
			   *dev_b,
			   *dev_d,
			   *dev_bias,
			   *dev_workspace;
	void	   *dev_aux;
	float		host_a[M * K],	/* as op(A) is read */
				host_b[K * N],
				bias[M];
} Product;

static void
begin(Product *p, int trans_a, int trans_b, cublasComputeType_t compute)
{
	int32_t		ta = trans_a ? CUBLAS_OP_T : CUBLAS_OP_N,
				tb = trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;

	sim_begin();
	memset(p, 0, sizeof(*p));
	for (int i = 0; i < M * K; i++)
		p->host_a[i] = (float) ((i * 7) % 13 - 6) / 8 + 0.0001f * (float) (i % 3);
	for (int i = 0; i < K * N; i++)
		p->host_b[i] = (float) ((i * 5) % 11 - 5) / 8;
	for (int i = 0; i < M; i++)
		p->bias[i] = (float) (i % 5) - 2;
	BLAS_OK(cublasLtCreate(&p->handle));
	BLAS_OK(cublasLtMatmulDescCreate(&p->desc, compute, CUDA_R_32F));
	BLAS_OK(cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof(ta)));
	BLAS_OK(cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof(tb)));
	BLAS_OK(cublasLtMatrixLayoutCreate(&p->a, CUDA_R_32F, trans_a ? K : M, trans_a ? M : K, trans_a ? K : M));
	BLAS_OK(cublasLtMatrixLayoutCreate(&p->b, CUDA_R_32F, trans_b ? N : K, trans_b ? K : N, trans_b ? N : K));
	BLAS_OK(cublasLtMatrixLayoutCreate(&p->d, CUDA_R_32F, M, N, M));
	BLAS_OK(cublasLtMatmulPreferenceCreate(&p->preference));
	p->workspace_bytes = 1024;
	BLAS_OK(cublasLtMatmulPreferenceSetAttribute(p->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
												 &p->workspace_bytes, sizeof(p->workspace_bytes)));
	p->dev_a = sim_put(p->host_a, M * K);
	p->dev_b = sim_put(p->host_b, K * N);
	p->dev_d = sim_put(NULL, M * N);
	p->dev_bias = sim_put(p->bias, M);
	CUDA_OK(cudaMalloc(&p->dev_aux, AUX_LD * N * sizeof(float)));
	CUDA_OK(cudaMalloc((void **) &p->dev_workspace, p->workspace_bytes));
}

static void
set_epilogue(Product *p, uint32_t epilogue)
{
	int64_t		aux_ld = AUX_LD;

	BLAS_OK(cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue)));
	BLAS_OK(cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p->dev_bias, sizeof(void *)));
	BLAS_OK(cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &p->dev_aux,
										   sizeof(void *)));
	BLAS_OK(cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &aux_ld, sizeof(aux_ld)));
}

static cublasStatus_t
find(Product *p)
{
	return cublasLtMatmulAlgoGetHeuristic(p->handle, p->desc, p->a, p->b, p->d, p->d, p->preference, 1, &p->algo,
										  &p->found);
}

static cublasStatus_t
run(Product *p, float alpha, float beta)
{
	return cublasLtMatmul(p->handle, p->desc, &alpha, p->dev_a, p->a, p->dev_b, p->b, &beta, p->dev_d, p->d, p->dev_d,
						  p->d, &p->algo.algo, p->dev_workspace, p->workspace_bytes, NULL);
}

static void
end(Product *p)
{
	BLAS_OK(cublasLtMatmulPreferenceDestroy(p->preference));
	BLAS_OK(cublasLtMatrixLayoutDestroy(p->a));
	BLAS_OK(cublasLtMatrixLayoutDestroy(p->b));
	BLAS_OK(cublasLtMatrixLayoutDestroy(p->d));
	BLAS_OK(cublasLtMatmulDescDestroy(p->desc));
	BLAS_OK(cublasLtDestroy(p->handle));
	CUDA_OK(cudaFree(p->dev_a));
	CUDA_OK(cudaFree(p->dev_b));
	CUDA_OK(cudaFree(p->dev_d));
	CUDA_OK(cudaFree(p->dev_bias));
	CUDA_OK(cudaFree(p->dev_aux));
	CUDA_OK(cudaFree(p->dev_workspace));
	CHECK_NOTHING_LIVE();
}

/* Element of the product without epilogue. */
static double
product_at(const Product *p, int trans_a, int trans_b, int i, int j)
{
	double		sum = 0;

	for (int q = 0; q < K; q++)
		sum += (double) p->host_a[trans_a ? i * K + q : q * M + i] * (double) p->host_b[trans_b ? q * N + j : j * K + q];
	return sum;
}

TEST(products_of_all_transposes_are_right)
{
	for (int t = 0; t < 4; t++)
	{
		Product		p;
		float		d[M * N];

		begin(&p, t & 1, t >> 1, CUBLAS_COMPUTE_32F);
		BLAS_OK(find(&p));
		CHECK(p.found == 1 && p.algo.workspaceSize <= p.workspace_bytes);
		BLAS_OK(run(&p, 2, 0));
		BLAS_OK(run(&p, 1, 1));
		sim_get(d, p.dev_d, M * N);
		for (int j = 0; j < N; j++)
			for (int i = 0; i < M; i++)
				CHECK_CLOSE(d[j * M + i], 3 * product_at(&p, t & 1, t >> 1, i, j), 1e-5, 1e-5);
		end(&p);
	}
}

TEST(tf32_rounds_what_fp32_does_not)
{
	Product		p;
	float		exact[M * N],
				rounded[M * N];
	int			same = 0;

	begin(&p, 0, 0, CUBLAS_COMPUTE_32F);
	BLAS_OK(find(&p));
	BLAS_OK(run(&p, 1, 0));
	sim_get(exact, p.dev_d, M * N);
	end(&p);
	begin(&p, 0, 0, CUBLAS_COMPUTE_32F_FAST_TF32);
	BLAS_OK(find(&p));
	BLAS_OK(run(&p, 1, 0));
	sim_get(rounded, p.dev_d, M * N);
	end(&p);
	for (int i = 0; i < M * N; i++)
	{
		CHECK_CLOSE(rounded[i], (double) exact[i], 2e-3, 2e-3);
		same += rounded[i] == exact[i];
	}
	CHECK(same < M * N / 2, "%d of %d are equal", same, M * N);
}

/* Runs with an epilogue and checks every element against want. */
static void
check_epilogue(uint32_t epilogue, double (*want) (const Product *p, double v, int i))
{
	Product		p;
	float		d[M * N];

	begin(&p, 0, 0, CUBLAS_COMPUTE_32F);
	set_epilogue(&p, epilogue);
	BLAS_OK(find(&p));
	BLAS_OK(run(&p, 1, 0));
	sim_get(d, p.dev_d, M * N);
	for (int j = 0; j < N; j++)
		for (int i = 0; i < M; i++)
			CHECK_CLOSE(d[j * M + i], want(&p, product_at(&p, 0, 0, i, j), i), 1e-5, 1e-5);
	end(&p);
}

static double
with_bias(const Product *p, double v, int i)
{
	return v + (double) p->bias[i];
}

static double
relu(const Product *p, double v, int i)
{
	(void) p;
	(void) i;
	return v > 0 ? v : 0;
}

static double
relu_bias(const Product *p, double v, int i)
{
	return relu(p, with_bias(p, v, i), i);
}

/* cuBLASLt's GELU is the one by tanh */
static double
gelu_bias(const Product *p, double v, int i)
{
	double		x = with_bias(p, v, i);

	return 0.5 * x * (1 + tanh(0.7978845608 * (x + 0.044715 * x * x * x)));
}

TEST(epilogues_add_the_bias_and_activate)
{
	check_epilogue(CUBLASLT_EPILOGUE_BIAS, with_bias);
	check_epilogue(CUBLASLT_EPILOGUE_RELU, relu);
	check_epilogue(CUBLASLT_EPILOGUE_RELU_BIAS, relu_bias);
	check_epilogue(CUBLASLT_EPILOGUE_RELU_AUX_BIAS, relu_bias);
	check_epilogue(CUBLASLT_EPILOGUE_GELU_BIAS, gelu_bias);
	check_epilogue(CUBLASLT_EPILOGUE_GELU_AUX_BIAS, gelu_bias);
}

/* Forward with a mask, then its gradient: what was cut off gets none, and the bias gets the sums. */
TEST(the_gradient_of_relu_uses_the_mask_of_the_forward_pass)
{
	Product		p;
	float		d[M * N],
				db[M];

	begin(&p, 0, 0, CUBLAS_COMPUTE_32F);
	set_epilogue(&p, CUBLASLT_EPILOGUE_RELU_AUX_BIAS);
	BLAS_OK(find(&p));
	BLAS_OK(run(&p, 1, 0));
	set_epilogue(&p, CUBLASLT_EPILOGUE_DRELU_BGRAD);
	BLAS_OK(find(&p));
	BLAS_OK(run(&p, 1, 0));
	sim_get(d, p.dev_d, M * N);
	sim_get(db, p.dev_bias, M);
	for (int i = 0; i < M; i++)
	{
		double		sum = 0;

		for (int j = 0; j < N; j++)
		{
			double		v = product_at(&p, 0, 0, i, j),
						want = v + (double) p.bias[i] > 0 ? v : 0;

			CHECK_CLOSE(d[j * M + i], want, 1e-5, 1e-5);
			sum += want;
		}
		CHECK_CLOSE(db[i], sum, 1e-5, 1e-4);
	}
	end(&p);
}

TEST(bgradb_sums_the_columns_of_b)
{
	Product		p;
	float		db[N];

	begin(&p, 0, 0, CUBLAS_COMPUTE_32F);
	set_epilogue(&p, CUBLASLT_EPILOGUE_BGRADB);
	BLAS_OK(find(&p));
	BLAS_OK(run(&p, 1, 0));
	sim_get(db, p.dev_bias, N);
	for (int j = 0; j < N; j++)
	{
		double		sum = 0;

		for (int q = 0; q < K; q++)
			sum += (double) p.host_b[j * K + q];
		CHECK_CLOSE(db[j], sum, 1e-5, 1e-5);
	}
	end(&p);
}

TEST(a_product_that_breaks_its_word_is_refused)
{
	Product		p;
	uint32_t	epilogue = CUBLASLT_EPILOGUE_RELU_AUX;
	int64_t		odd_ld = 100;
	size_t		bytes;

	begin(&p, 0, 0, CUBLAS_COMPUTE_32F);
	BLAS_OK(find(&p));
	/* less aligned than the preference said */
	p.dev_d++;
	CHECK_BLAS(CUBLAS_STATUS_INVALID_VALUE, run(&p, 1, 0));
	p.dev_d--;
	/* a workspace that is too small */
	bytes = p.workspace_bytes;
	p.workspace_bytes = 16;
	CHECK_BLAS(CUBLAS_STATUS_INVALID_VALUE, run(&p, 1, 0));
	p.workspace_bytes = bytes;
	/* an algorithm for another product */
	BLAS_OK(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue)));
	CHECK_BLAS(CUBLAS_STATUS_INVALID_VALUE, run(&p, 1, 0));
	/* no mask, then one with an odd leading dimension */
	set_epilogue(&p, epilogue);
	BLAS_OK(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &odd_ld, sizeof(odd_ld)));
	CHECK_BLAS(CUBLAS_STATUS_INVALID_VALUE, find(&p));
	end(&p);
}

TEST(shapes_and_types_that_do_not_fit_are_refused)
{
	Product		p;
	uint64_t	rows = K + 1;
	uint32_t	type = CUDA_R_16BF;

	begin(&p, 0, 0, CUBLAS_COMPUTE_32F);
	BLAS_OK(cublasLtMatrixLayoutSetAttribute(p.b, CUBLASLT_MATRIX_LAYOUT_ROWS, &rows, sizeof(rows)));
	CHECK_BLAS(CUBLAS_STATUS_INVALID_VALUE, find(&p));
	rows = K;
	BLAS_OK(cublasLtMatrixLayoutSetAttribute(p.b, CUBLASLT_MATRIX_LAYOUT_ROWS, &rows, sizeof(rows)));
	BLAS_OK(cublasLtMatrixLayoutSetAttribute(p.b, CUBLASLT_MATRIX_LAYOUT_TYPE, &type, sizeof(type)));
	CHECK_BLAS(CUBLAS_STATUS_NOT_SUPPORTED, find(&p));
	end(&p);
}

TEST(a_product_runs_when_its_stream_does_and_spoils_its_workspace)
{
	Product		p;
	float		before[1],
				used[1];

	begin(&p, 0, 0, CUBLAS_COMPUTE_32F);
	BLAS_OK(find(&p));
	CUDA_OK(cudaMemset(p.dev_workspace, 0, p.workspace_bytes));
	CUDA_OK(cudaMemset(p.dev_d, 0, M * N * sizeof(float)));
	BLAS_OK(run(&p, 1, 0));
	CHECK(cudasim_live(CUDASIM_CUBLAS_DESCRIPTOR) == 5);
	sim_get(before, p.dev_d, 1);
	sim_get(used, p.dev_workspace, 1);
	CHECK(before[0] != 0 && isnan(used[0]));
	/* a matrix that is freed before the product comes to it */
	CUDA_OK(cudaFree(p.dev_bias));
	p.dev_bias = NULL;
	end(&p);
}
