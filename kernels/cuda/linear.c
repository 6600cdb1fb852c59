/*
 * linear.c - the linear layer.
 *
 * Bias and ReLU are fused into the product where that rounds as the operation says.  cuBLASLt wants a bias of the type of
 * its result, so a low-precision result with a bias goes through fp32 and an own kernel, as do other activations.
 */
#include "kernels/cuda/linear.h"
#include "kernels/cuda/ops.h"

static Status
check_linear(DType dtype, DType out, Error *err)
{
	TRY(cuda_check_dtype(dtype, "a linear layer", err));
	if (out != dtype && out != DTYPE_F32)
		return error_set(err, STATUS_UNSUPPORTED, "a linear layer cannot turn one low precision into another");
	return STATUS_OK;
}

Status
op_linear_fwd(Backend *be, size_t m, size_t n, size_t k, const void *x, const void *w, const float *b, Activation act,
			  void *y, DType dtype, DType out, Error *err)
{
	Product		product = {m, n, k, 0, 1, dtype, out, 0.0f, 0, 0};
	int			fused = (act == ACT_NONE || act == ACT_RELU) && (b == NULL || out == DTYPE_F32);
	void	   *sum = y;

	TRY(check_linear(dtype, out, err));
	if ((unsigned) act > ACT_SIGMOID)
		return error_set(err, STATUS_INTERNAL, "unknown activation %d", (int) act);
	if (fused)
	{
		product.relu = act == ACT_RELU;
		return matmul(be, &product, x, w, b, y, err);
	}
	if (out != DTYPE_F32)
	{
		product.out = DTYPE_F32;
		TRY(cuda_workspace(be, WORKSPACE_PRODUCT, m * n * sizeof(float), &sum, err));
	}
	TRY(matmul(be, &product, x, w, NULL, sum, err));
	return bias_act(be, m, n, sum, b, act, y, out, err);
}

Status
op_linear_bwd_data(Backend *be, size_t m, size_t n, size_t k, const void *dy, const void *w, void *dx, DType dtype,
				   Error *err)
{
	Product		product = {m, k, n, 0, 0, dtype, dtype, 0.0f, 0, 0};

	TRY(check_linear(dtype, dtype, err));
	return matmul(be, &product, dy, w, NULL, dx, err);
}

Status
op_linear_bwd_weight(Backend *be, size_t m, size_t n, size_t k, const void *dy, const void *x, float *dw, float *db,
					 float beta, DType dtype, Error *err)
{
	Product		product = {n, k, m, 1, 0, dtype, DTYPE_F32, beta, 0, 0};

	TRY(check_linear(dtype, dtype, err));
	/* A fused sum cannot add to what is there. */
	if (db != NULL && beta == 0.0f)
	{
		Status		status;

		product.sums = 1;
		status = matmul(be, &product, dy, x, db, dw, err);
		if (status != STATUS_UNSUPPORTED)
			return status;
		product.sums = 0;
	}
	TRY(matmul(be, &product, dy, x, NULL, dw, err));
	if (db != NULL)
		TRY(column_sums(be, m, n, dy, db, beta, dtype, err));
	return STATUS_OK;
}
