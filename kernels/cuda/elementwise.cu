/*
 * elementwise.cu - activations, bias, dropout, sums of tensors, conversion.
 */
#include "kernels/cuda/element.h"
#include "kernels/cuda/linear.h"
#include "kernels/cuda/ops.h"

/* Blocks for n elements in groups of four, a thread each. */
static unsigned
grid_of(const Backend *be, size_t n)
{
	return grid_for(be, ceil_div(n, 4 * BLOCK));
}

template <DType D>
static __global__ void
act_fwd_kernel(Activation act, size_t n, int aligned, const void *x, void *y)
{
	for (size_t i = THREAD_INDEX * 4; i < n; i += THREAD_COUNT * 4)
	{
		float		v[4];

		load4<D>(x, i, n - i, aligned, v);
#pragma unroll
		for (int j = 0; j < 4; j++)
			v[j] = math_act(act, v[j]);
		store4<D>(y, i, n - i, aligned, v);
	}
}

Status
op_act_fwd(Backend *be, Activation act, size_t n, const void *x, void *y, DType dtype, Error *err)
{
	int			aligned = aligned4(x, dtype) && aligned4(y, dtype);

	TRY(cuda_check_dtype(dtype, "activation", err));
	if ((unsigned) act > ACT_SIGMOID)
		return error_set(err, STATUS_INTERNAL, "unknown activation %d", (int) act);
	if (n == 0)
		return STATUS_OK;
	DTYPE_SWITCH(dtype, D, LAUNCH((act_fwd_kernel<D>), grid_of(be, n), BLOCK, 0, be->stream, act, n, aligned, x, y));
	return cuda_launched("activation", err);
}

template <DType D>
static __global__ void
act_bwd_kernel(Activation act, size_t n, int aligned, const void *dy, const void *saved, void *dx)
{
	for (size_t i = THREAD_INDEX * 4; i < n; i += THREAD_COUNT * 4)
	{
		float		v[4],
					s[4] = {0.0f, 0.0f, 0.0f, 0.0f};

		load4<D>(dy, i, n - i, aligned, v);
		if (act != ACT_NONE)
			load4<D>(saved, i, n - i, aligned, s);
#pragma unroll
		for (int j = 0; j < 4; j++)
			v[j] = math_act_grad(act, v[j], s[j]);
		store4<D>(dx, i, n - i, aligned, v);
	}
}

Status
op_act_bwd(Backend *be, Activation act, size_t n, const void *dy, const void *saved, void *dx, DType dtype,
		   Error *err)
{
	int			aligned = aligned4(dy, dtype) && aligned4(saved, dtype) && aligned4(dx, dtype);

	TRY(cuda_check_dtype(dtype, "activation", err));
	if ((unsigned) act > ACT_SIGMOID)
		return error_set(err, STATUS_INTERNAL, "unknown activation %d", (int) act);
	if (n == 0)
		return STATUS_OK;
	DTYPE_SWITCH(dtype, D, LAUNCH((act_bwd_kernel<D>), grid_of(be, n), BLOCK, 0, be->stream, act, n, aligned, dy,
								  saved, dx));
	return cuda_launched("activation", err);
}

/* y = act(x + b), a row of n after the other; x is fp32 and may be y. */
template <DType D>
static __global__ void
bias_act_kernel(Activation act, size_t total, uint32_t n, int aligned, const float *x, const float *b, void *y)
{
	for (size_t i = THREAD_INDEX * 4; i < total; i += THREAD_COUNT * 4)
	{
		float		v[4];
		uint32_t	column;

		load4<DTYPE_F32>(x, i, total - i, aligned, v);
		divide(i, n, &column);
#pragma unroll
		for (int j = 0; j < 4; j++)
		{
			v[j] = math_act(act, v[j] + (b != NULL ? b[column] : 0.0f));
			column = column + 1 < n ? column + 1 : 0;
		}
		store4<D>(y, i, total - i, aligned, v);
	}
}

Status
bias_act(Backend *be, size_t m, size_t n, const float *x, const float *b, Activation act, void *y, DType dtype,
		 Error *err)
{
	int			aligned = aligned4(x, DTYPE_F32) && aligned4(y, dtype);

	DTYPE_SWITCH(dtype, D, LAUNCH((bias_act_kernel<D>), grid_of(be, m * n), BLOCK, 0, be->stream, act, m * n,
								  (uint32_t) n, aligned, x, b, y));
	return cuda_launched("adding a bias", err);
}

template <DType D>
static __global__ void
dropout_kernel(size_t n, int aligned, uint32_t threshold, float scale, uint64_t seed, uint64_t stream,
			   const StepState *state, const void *x, void *y)
{
	if (state != NULL)
		stream += state->dropout_stream;
	for (size_t i = THREAD_INDEX * 4; i < n; i += THREAD_COUNT * 4)
	{
		uint32_t	words[4];
		float		v[4];

		load4<D>(x, i, n - i, aligned, v);
		philox_block(seed, stream, i / 4, words);
		/* A product, not a selection: a dropped NaN or infinity must still be seen. */
#pragma unroll
		for (int j = 0; j < 4; j++)
			v[j] *= words[j] >= threshold ? scale : 0.0f;
		store4<D>(y, i, n - i, aligned, v);
	}
}

Status
op_dropout(Backend *be, size_t n, float p, uint64_t seed, uint64_t stream, const StepState *state, const void *x,
		   void *y, DType dtype, Error *err)
{
	int			aligned = aligned4(x, dtype) && aligned4(y, dtype);

	TRY(cuda_check_dtype(dtype, "dropout", err));
	if (!(p >= 0.0f && p < 1.0f))
		return error_set(err, STATUS_INVALID, "dropout probability %g is not in [0, 1)", (double) p);
	if (n == 0)
		return STATUS_OK;
	DTYPE_SWITCH(dtype, D, LAUNCH((dropout_kernel<D>), grid_of(be, n), BLOCK, 0, be->stream, n, aligned,
								  philox_threshold(p), 1.0f / (1.0f - p), seed, stream, state, x, y));
	return cuda_launched("dropout", err);
}

template <DType D>
static __global__ void
add_kernel(size_t n, int aligned, const void *a, const void *b, void *y)
{
	for (size_t i = THREAD_INDEX * 4; i < n; i += THREAD_COUNT * 4)
	{
		float		v[4],
					w[4];

		load4<D>(a, i, n - i, aligned, v);
		load4<D>(b, i, n - i, aligned, w);
#pragma unroll
		for (int j = 0; j < 4; j++)
			v[j] += w[j];
		store4<D>(y, i, n - i, aligned, v);
	}
}

Status
op_add(Backend *be, size_t n, const void *a, const void *b, void *y, DType dtype, Error *err)
{
	int			aligned = aligned4(a, dtype) && aligned4(b, dtype) && aligned4(y, dtype);

	TRY(cuda_check_dtype(dtype, "addition", err));
	if (n == 0)
		return STATUS_OK;
	DTYPE_SWITCH(dtype, D, LAUNCH((add_kernel<D>), grid_of(be, n), BLOCK, 0, be->stream, n, aligned, a, b, y));
	return cuda_launched("addition", err);
}

template <DType D>
static __global__ void
cast_kernel(size_t n, int aligned, const float *x, void *y)
{
	for (size_t i = THREAD_INDEX * 4; i < n; i += THREAD_COUNT * 4)
	{
		float		v[4];

		load4<DTYPE_F32>(x, i, n - i, aligned, v);
		store4<D>(y, i, n - i, aligned, v);
	}
}

Status
op_cast(Backend *be, size_t n, const float *x, void *y, DType dtype, Error *err)
{
	int			aligned = aligned4(x, DTYPE_F32) && aligned4(y, dtype);

	TRY(cuda_check_dtype(dtype, "conversion", err));
	if (n == 0)
		return STATUS_OK;
	DTYPE_SWITCH(dtype, D, LAUNCH((cast_kernel<D>), grid_of(be, n), BLOCK, 0, be->stream, n, aligned, x, y));
	return cuda_launched("conversion", err);
}
