/*
 * optimizer.cu - the step's state on the device, the gradients' norm, and optimizer steps over a whole arena.
 */
#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.h"

/* Blocks of the first stage of a sum; one block adds up their results. */
#define SUM_BLOCKS 512

static __global__ void
step_begin_kernel(StepState *state, float lr, uint64_t dropout_stream)
{
	math_step_begin(state, lr, dropout_stream);
}

Status
op_step_begin(Backend *be, StepState *state, float lr, uint64_t dropout_stream, Error *err)
{
	TRY(cuda_check_not_recording(be, "beginning a step", err));
	LAUNCH(step_begin_kernel, 1, 1, 0, be->stream, state, lr, dropout_stream);
	return cuda_launched("beginning a step", err);
}

/* partial[block] = the sum of the squares of the block's elements */
static __global__ void
squares_kernel(size_t n, int aligned, const float *x, double *partial)
{
	double		sum = 0;

	for (size_t i = THREAD_INDEX * 4; i < n; i += THREAD_COUNT * 4)
	{
		float		v[4];

		load4<DTYPE_F32>(x, i, n - i, aligned, v);
#pragma unroll
		for (int j = 0; j < 4; j++)
			sum += (double) v[j] * (double) v[j];
	}
	sum = block_sum(sum);
	if (threadIdx.x == 0)
		partial[blockIdx.x] = sum;
}

/* The sum of the partial sums, for a block of BLOCK threads. */
static __device__ double
total_of(int partials, const double *partial)
{
	double		sum = 0;

	for (int i = (int) threadIdx.x; i < partials; i += BLOCK)
		sum += partial[i];
	return block_sum(sum);
}

static __global__ void
gradient_check_kernel(int partials, const double *partial, StepState *state, GradientCheckArgs args)
{
	double		squares = total_of(partials, partial);

	if (threadIdx.x == 0)
		math_gradient_check(state, squares, &args);
}

static __global__ void
add_squares_kernel(int partials, const double *partial, double *result)
{
	double		squares = total_of(partials, partial);

	if (threadIdx.x == 0)
		*result += squares;
}

/* The first stage: partial (blocks) in workspace. */
static Status
squares(Backend *be, size_t n, const float *x, double **partial, int *blocks, Error *err)
{
	void	   *workspace;

	*blocks = (int) min_size(grid_for(be, ceil_div(n, 4 * BLOCK)), SUM_BLOCKS);
	TRY(cuda_workspace(be, WORKSPACE_REDUCE, SUM_BLOCKS * sizeof(double), &workspace, err));
	*partial = (double *) workspace;
	LAUNCH(squares_kernel, *blocks, BLOCK, 0, be->stream, n, aligned4(x, DTYPE_F32), x, *partial);
	return cuda_launched("sum of squares", err);
}

Status
op_gradient_check(Backend *be, size_t n, const float *g, StepState *state, const GradientCheckArgs *args,
				  Error *err)
{
	double	   *partial;
	int			blocks;

	TRY(squares(be, n, g, &partial, &blocks, err));
	LAUNCH(gradient_check_kernel, 1, BLOCK, 0, be->stream, blocks, partial, state, *args);
	return cuda_launched("checking the gradients", err);
}

Status
op_sum_squares(Backend *be, size_t n, const float *x, double *result, Error *err)
{
	double	   *partial;
	int			blocks;

	TRY(squares(be, n, x, &partial, &blocks, err));
	LAUNCH(add_squares_kernel, 1, BLOCK, 0, be->stream, blocks, partial, result);
	return cuda_launched("sum of squares", err);
}

/* Which of the arenas' accesses may be of four elements: all or none. */
static int
arenas_aligned(const float *p, const float *g, const float *m, const float *v, const void *shadow, DType dtype)
{
	return aligned4(p, DTYPE_F32) && aligned4(g, DTYPE_F32) && aligned4(m, DTYPE_F32) && aligned4(v, DTYPE_F32)
		&& aligned4(shadow, dtype);
}

/* buffer and shadow may be NULL. */
template <DType D>
static __global__ void
sgd_kernel(size_t n, int aligned, float *p, const float *g, float *buffer, SgdArgs args, const StepState *state,
		   void *shadow)
{
	SgdCoefficients c = math_sgd_coefficients(&args, state);

	if (state->skip)
		return;
	for (size_t i = THREAD_INDEX * 4; i < n; i += THREAD_COUNT * 4)
	{
		float		q[4],
					d[4],
					b[4] = {0.0f, 0.0f, 0.0f, 0.0f};

		load4<DTYPE_F32>(p, i, n - i, aligned, q);
		load4<DTYPE_F32>(g, i, n - i, aligned, d);
		if (buffer == NULL)
		{
#pragma unroll
			for (int j = 0; j < 4; j++)
				q[j] = math_sgd_plain(q[j], d[j], &c);
		}
		else
		{
			if (!c.first)
				load4<DTYPE_F32>(buffer, i, n - i, aligned, b);
#pragma unroll
			for (int j = 0; j < 4; j++)
				q[j] = math_sgd_momentum(q[j], d[j], &b[j], c.first, &c);
			store4<DTYPE_F32>(buffer, i, n - i, aligned, b);
		}
		store4<DTYPE_F32>(p, i, n - i, aligned, q);
		if (shadow != NULL)
			store4<D>(shadow, i, n - i, aligned, q);
	}
}

Status
op_sgd_step(Backend *be, size_t n, float *p, const float *g, float *momentum_buffer, const SgdArgs *args,
			const StepState *state, void *shadow, DType shadow_dtype, Error *err)
{
	DType		dtype = shadow != NULL ? shadow_dtype : DTYPE_F32;
	float	   *buffer = args->momentum != 0.0f ? momentum_buffer : NULL;
	int			aligned = arenas_aligned(p, g, buffer, NULL, shadow, dtype);

	TRY(cuda_check_dtype(dtype, "a copy of the parameters", err));
	if (args->momentum != 0.0f && momentum_buffer == NULL)
		return error_set(err, STATUS_INTERNAL, "sgd with momentum needs a momentum buffer");
	if (n == 0)
		return STATUS_OK;
	DTYPE_SWITCH(dtype, D, LAUNCH((sgd_kernel<D>), grid_for(be, ceil_div(n, 4 * BLOCK)), BLOCK, 0, be->stream, n,
								  aligned, p, g, buffer, *args, state, shadow));
	return cuda_launched("sgd", err);
}

/* What a step of Adam has in common for all elements: two powers in double, so once a block. */
static __device__ AdamCoefficients
adam_coefficients(const AdamArgs *args, const StepState *state)
{
	__shared__ AdamCoefficients c;

	if (threadIdx.x == 0)
		c = math_adam_coefficients(args, state);
	__syncthreads();
	return c;
}

template <DType D>
static __global__ void
adam_kernel(size_t n, int aligned, float *p, const float *g, float *m, float *v, AdamArgs args,
			const StepState *state, void *shadow)
{
	if (state->skip)
		return;

	AdamCoefficients c = adam_coefficients(&args, state);

	for (size_t i = THREAD_INDEX * 4; i < n; i += THREAD_COUNT * 4)
	{
		float		q[4],
					d[4],
					m1[4],
					v1[4];

		load4<DTYPE_F32>(p, i, n - i, aligned, q);
		load4<DTYPE_F32>(g, i, n - i, aligned, d);
		load4<DTYPE_F32>(m, i, n - i, aligned, m1);
		load4<DTYPE_F32>(v, i, n - i, aligned, v1);
#pragma unroll
		for (int j = 0; j < 4; j++)
			q[j] = math_adam(q[j], d[j], &m1[j], &v1[j], &c);
		store4<DTYPE_F32>(m, i, n - i, aligned, m1);
		store4<DTYPE_F32>(v, i, n - i, aligned, v1);
		store4<DTYPE_F32>(p, i, n - i, aligned, q);
		if (shadow != NULL)
			store4<D>(shadow, i, n - i, aligned, q);
	}
}

Status
op_adam_step(Backend *be, size_t n, float *p, const float *g, float *m, float *v, const AdamArgs *args,
			 const StepState *state, void *shadow, DType shadow_dtype, Error *err)
{
	DType		dtype = shadow != NULL ? shadow_dtype : DTYPE_F32;
	int			aligned = arenas_aligned(p, g, m, v, shadow, dtype);

	TRY(cuda_check_dtype(dtype, "a copy of the parameters", err));
	if (n == 0)
		return STATUS_OK;
	DTYPE_SWITCH(dtype, D, LAUNCH((adam_kernel<D>), grid_for(be, ceil_div(n, 4 * BLOCK)), BLOCK, 0, be->stream, n,
								  aligned, p, g, m, v, *args, state, shadow));
	return cuda_launched("adam", err);
}
