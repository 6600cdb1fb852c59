/*
 * columns.cu - sums over the rows of a matrix: gradients of biases and of norms' parameters.
 *
 * A block leaves the sums of its part of the rows in workspace, in double; a second kernel adds the parts up.
 */
#include "kernels/cuda/columns.h"
#include "kernels/cuda/linear.h"

/* Rows for a thread, where there are so many. */
#define ROWS_EACH 32

template <DType D, ColumnSum K>
static __global__ void
column_partials_kernel(size_t m, size_t c, const void *dy, const void *x, const float *mean, const float *invstd,
					   double *partial)
{
	DYN_SHARED(double, slot);	/* (2, BLOCK) */
	size_t		j = (size_t) blockIdx.x * blockDim.x + threadIdx.x,
				lo,
				hi;
	unsigned	at = threadIdx.y * blockDim.x + threadIdx.x;
	double		sum = 0,
				dot = 0;

	rows_of_part(m, blockIdx.y, gridDim.y, &lo, &hi);
	if (j < c)
	{
		float		column_mean = K == COLUMN_BATCHNORM ? mean[j] : 0.0f;

		for (size_t i = lo + threadIdx.y; i < hi; i += (size_t) blockDim.y * ROW_GROUP)
		{
			float		group_sum = 0.0f,
						group_dot = 0.0f;

#pragma unroll
			for (int r = 0; r < ROW_GROUP; r++)
			{
				size_t		row = i + (size_t) r * blockDim.y;
				int			inside = row < hi;
				float		d = inside ? load<D>(dy, row * c + j) : 0.0f;

				group_sum += d;
				if (K == COLUMN_BATCHNORM)
					group_dot += inside ? d * (load<D>(x, row * c + j) - column_mean) : 0.0f;
				else if (K == COLUMN_LAYERNORM)
					group_dot += inside ? d * ((load<D>(x, row * c + j) - mean[row]) * invstd[row]) : 0.0f;
			}
			sum += (double) group_sum;
			dot += (double) group_dot;
		}
	}
	slot[at] = sum;
	slot[BLOCK + at] = dot;
	__syncthreads();
	for (unsigned half = blockDim.y / 2; half > 0; half /= 2)
	{
		if (threadIdx.y < half)
		{
			slot[at] += slot[at + half * blockDim.x];
			slot[BLOCK + at] += slot[BLOCK + at + half * blockDim.x];
		}
		__syncthreads();
	}
	if (threadIdx.y == 0 && j < c)
	{
		partial[(size_t) blockIdx.y * c + j] = slot[at];
		if (K != COLUMN_SUM)
			partial[((size_t) gridDim.y + blockIdx.y) * c + j] = slot[BLOCK + at];
	}
}

template <ColumnSum K>
static void
launch_partials(Backend *be, dim3 grid, dim3 block, size_t m, size_t c, const void *dy, const void *x,
				const float *mean, const float *invstd, double *partial, DType dtype)
{
	DTYPE_SWITCH(dtype, D, LAUNCH((column_partials_kernel<D, K>), grid, block, 2 * BLOCK * sizeof(double), be->stream,
								  m, c, dy, x, mean, invstd, partial));
}

Status
column_partials(Backend *be, ColumnSum kind, size_t m, size_t c, const void *dy, const void *x, const float *mean,
				const float *invstd, double **partial, unsigned *parts, DType dtype, size_t extra_bytes, Error *err)
{
	dim3		block = column_block(c, 1),
				grid = column_grid(be, block, m, c, 1, ROWS_EACH);
	void	   *workspace;

	*parts = grid.y;
	TRY(cuda_workspace(be, WORKSPACE_REDUCE, 2 * grid.y * c * sizeof(double) + extra_bytes, &workspace, err));
	*partial = (double *) workspace;
	switch (kind)
	{
		case COLUMN_SUM:
			launch_partials<COLUMN_SUM>(be, grid, block, m, c, dy, x, mean, invstd, *partial, dtype);
			break;
		case COLUMN_BATCHNORM:
			launch_partials<COLUMN_BATCHNORM>(be, grid, block, m, c, dy, x, mean, invstd, *partial, dtype);
			break;
		case COLUMN_LAYERNORM:
			launch_partials<COLUMN_LAYERNORM>(be, grid, block, m, c, dy, x, mean, invstd, *partial, dtype);
			break;
	}
	return cuda_launched("column sums", err);
}

static __global__ void
column_sums_kernel(unsigned parts, size_t c, const double *partial, float *db, float beta)
{
	size_t		j = (size_t) blockIdx.x * blockDim.x + threadIdx.x;
	double		sum = column_total(partial, parts, c, j);

	if (threadIdx.y == 0 && j < c)
		db[j] = (float) sum + (beta == 0.0f ? 0.0f : beta * db[j]);
}

Status
column_sums(Backend *be, size_t m, size_t n, const void *dy, float *db, float beta, DType dtype, Error *err)
{
	dim3		block = column_block(n, 1);
	double	   *partial;
	unsigned	parts;

	TRY(column_partials(be, COLUMN_SUM, m, n, dy, NULL, NULL, NULL, &partial, &parts, dtype, 0, err));
	LAUNCH(column_sums_kernel, (unsigned) ceil_div(n, block.x), block, 0, be->stream, parts, n, partial, db, beta);
	return cuda_launched("column sums", err);
}
