/*
 * norm.cu - batch norm and layer norm.
 *
 * Batch norm's statistics: each thread takes a group of rows, their mean and their squared deviations from it, and merges
 * that into its own in double (Chan, Golub and LeVeque), so that nothing cancels and memory is read once.  Threads, then
 * blocks are merged in the same way.  In layer norm a warp takes a row.
 */
#include "kernels/cuda/columns.h"
#include "kernels/cuda/ops.h"

#define ROWS_EACH 32

/* Statistics of one column over count rows. */
typedef struct Moments
{
	double		count,
				mean,
				m2;				/* sum of squared deviations from the mean */
} Moments;

DEVICE_INLINE void
merge(Moments *a, double count, double mean, double m2)
{
	double		total = a->count + count,
				delta = mean - a->mean;

	if (count == 0.0)
		return;
	a->mean += delta * (count / total);
	a->m2 += m2 + delta * delta * (a->count * count / total);
	a->count = total;
}

/* Merge the moments of a block's threads of the same column; those of y 0 get the result. */
static __device__ void
merge_block(Moments *mine)
{
	__shared__ double slot[3 * BLOCK];
	unsigned	at = threadIdx.y * blockDim.x + threadIdx.x;

	for (unsigned half = blockDim.y / 2; half > 0; half /= 2)
	{
		slot[at] = mine->count;
		slot[BLOCK + at] = mine->mean;
		slot[2 * BLOCK + at] = mine->m2;
		__syncthreads();
		if (threadIdx.y < half)
		{
			unsigned	other = at + half * blockDim.x;

			merge(mine, slot[other], slot[BLOCK + other], slot[2 * BLOCK + other]);
		}
		__syncthreads();
	}
}

/* partial (3, parts, c): count, mean and squared deviations of the part's rows */
template <DType D>
static __global__ void
moments_kernel(size_t m, size_t c, const void *x, double *partial)
{
	size_t		j = (size_t) blockIdx.x * blockDim.x + threadIdx.x,
				plane = (size_t) gridDim.y * c,
				lo,
				hi;
	Moments		mine = {0, 0, 0};

	rows_of_part(m, blockIdx.y, gridDim.y, &lo, &hi);
	for (size_t i = lo + threadIdx.y; j < c && i < hi; i += (size_t) blockDim.y * ROW_GROUP)
	{
		float		v[ROW_GROUP],
					sum = 0.0f,
					square = 0.0f,
					count = 0.0f,
					mean;

#pragma unroll
		for (int r = 0; r < ROW_GROUP; r++)
		{
			size_t		row = i + (size_t) r * blockDim.y;

			v[r] = row < hi ? load<D>(x, row * c + j) : 0.0f;
			count += row < hi ? 1.0f : 0.0f;
			sum += v[r];
		}
		mean = sum / count;
#pragma unroll
		for (int r = 0; r < ROW_GROUP; r++)
		{
			float		d = i + (size_t) r * blockDim.y < hi ? v[r] - mean : 0.0f;

			square += d * d;
		}
		merge(&mine, (double) count, (double) mean, (double) square);
	}
	merge_block(&mine);
	if (threadIdx.y == 0 && j < c)
	{
		partial[blockIdx.y * c + j] = mine.count;
		partial[plane + blockIdx.y * c + j] = mine.mean;
		partial[2 * plane + blockIdx.y * c + j] = mine.m2;
	}
}

typedef struct BatchStatistics
{
	float		eps,
				momentum;
	float	   *running_mean,	/* (c) each */
			   *running_var,
			   *save_mean,
			   *save_invstd;
} BatchStatistics;

/* Merge the parts, move the running statistics, and leave gamma invstd in a (c). */
static __global__ void
batch_statistics_kernel(unsigned parts, size_t m, size_t c, const double *partial, const float *gamma,
						BatchStatistics s, float *a)
{
	size_t		j = (size_t) blockIdx.x * blockDim.x + threadIdx.x,
				plane = (size_t) parts * c;
	Moments		all = {0, 0, 0};

	if (j < c)
		for (unsigned part = threadIdx.y; part < parts; part += blockDim.y)
			merge(&all, partial[part * c + j], partial[plane + part * c + j], partial[2 * plane + part * c + j]);
	merge_block(&all);
	if (threadIdx.y == 0 && j < c)
	{
		double		invstd = 1.0 / sqrt(all.m2 / (double) m + (double) s.eps);

		s.save_mean[j] = (float) all.mean;
		s.save_invstd[j] = (float) invstd;
		s.running_mean[j] += s.momentum * (s.save_mean[j] - s.running_mean[j]);
		s.running_var[j] += s.momentum * ((float) (all.m2 / (double) (m - 1)) - s.running_var[j]);
		a[j] = (float) (gamma[j] * invstd);
	}
}

/*
 * y = (x - mean) a + b, column by column; the difference first, so that a large mean costs no accuracy.  A thread keeps
 * four columns and goes through rows.
 */
template <DType D>
static __global__ void
affine_kernel(size_t m, size_t c, int aligned, const void *x, const float *mean, const float *a, const float *b,
			  void *y)
{
	size_t		j = ((size_t) blockIdx.x * blockDim.x + threadIdx.x) * 4,
				count = j < c ? c - j : 0;
	float		column_mean[4],
				factor[4],
				shift[4];

	if (count == 0)
		return;
	load4<DTYPE_F32>(mean, j, count, 0, column_mean);
	load4<DTYPE_F32>(a, j, count, 0, factor);
	load4<DTYPE_F32>(b, j, count, 0, shift);
	for (size_t i = (size_t) blockIdx.y * blockDim.y + threadIdx.y; i < m; i += (size_t) gridDim.y * blockDim.y)
	{
		float		v[4];

		load4<D>(x, i * c + j, count, aligned, v);
#pragma unroll
		for (int k = 0; k < 4; k++)
			v[k] = (v[k] - column_mean[k]) * factor[k] + shift[k];
		store4<D>(y, i * c + j, count, aligned, v);
	}
}

static Status
affine(Backend *be, size_t m, size_t c, const void *x, const float *mean, const float *a, const float *b, void *y,
	   DType dtype, Error *err)
{
	dim3		block = column_block(c, 4),
				grid = column_grid(be, block, m, c, 4, 4);
	int			aligned = c % 4 == 0 && aligned4(x, dtype) && aligned4(y, dtype);

	DTYPE_SWITCH(dtype, D, LAUNCH((affine_kernel<D>), grid, block, 0, be->stream, m, c, aligned, x, mean, a, b, y));
	return cuda_launched("batch norm", err);
}

Status
op_batchnorm_fwd_train(Backend *be, size_t m, size_t c, const void *x, const float *gamma, const float *beta,
					   float eps, float momentum, float *running_mean, float *running_var, float *save_mean,
					   float *save_invstd, void *y, DType dtype, Error *err)
{
	dim3		block = column_block(c, 1),
				grid = column_grid(be, block, m, c, 1, ROWS_EACH);
	BatchStatistics statistics = {eps, momentum, running_mean, running_var, save_mean, save_invstd};
	void	   *workspace;
	double	   *partial;
	float	   *a;

	TRY(cuda_check_dtype(dtype, "batch norm", err));
	if (m < 2)
		return error_set(err, STATUS_INVALID, "batch norm cannot train on a batch with one value per channel");
	TRY(cuda_workspace(be, WORKSPACE_REDUCE, 3 * grid.y * c * sizeof(double) + c * sizeof(float), &workspace, err));
	partial = (double *) workspace;
	a = (float *) (partial + 3 * (size_t) grid.y * c);
	DTYPE_SWITCH(dtype, D, LAUNCH((moments_kernel<D>), grid, block, 0, be->stream, m, c, x, partial));
	TRY(cuda_launched("batch norm", err));
	LAUNCH(batch_statistics_kernel, (unsigned) ceil_div(c, block.x), block, 0, be->stream, grid.y, m, c, partial,
		   gamma, statistics, a);
	TRY(cuda_launched("batch norm", err));
	return affine(be, m, c, x, save_mean, a, beta, y, dtype, err);
}

static __global__ void
eval_factor_kernel(size_t c, const float *gamma, const float *running_var, float eps, float *a)
{
	for (size_t j = THREAD_INDEX; j < c; j += THREAD_COUNT)
		a[j] = (float) (gamma[j] / sqrt((double) running_var[j] + (double) eps));
}

Status
op_batchnorm_fwd_eval(Backend *be, size_t m, size_t c, const void *x, const float *gamma, const float *beta,
					  float eps, const float *running_mean, const float *running_var, void *y, DType dtype,
					  Error *err)
{
	void	   *a;

	TRY(cuda_check_dtype(dtype, "batch norm", err));
	TRY(cuda_workspace(be, WORKSPACE_REDUCE, c * sizeof(float), &a, err));
	LAUNCH(eval_factor_kernel, grid_for(be, ceil_div(c, BLOCK)), BLOCK, 0, be->stream, c, gamma, running_var, eps,
		   (float *) a);
	TRY(cuda_launched("batch norm", err));
	return affine(be, m, c, x, running_mean, (const float *) a, beta, y, dtype, err);
}

/*
 * The parameters' gradients from the parts' sums, and what dx = a dy + b (x - mean) + e needs: (3, c) in coefficients.
 * dx = gamma invstd (dy - mean(dy) - xhat mean(dy xhat)), xhat = (x - mean) invstd
 */
static __global__ void
batchnorm_gradients_kernel(unsigned parts, size_t m, size_t c, const double *partial, const float *gamma,
						   const float *save_invstd, float *dgamma, float *dbeta, float accumulate,
						   float *coefficients)
{
	size_t		j = (size_t) blockIdx.x * blockDim.x + threadIdx.x;
	double		sum = column_total(partial, parts, c, j),
				dot = column_total(partial + (size_t) parts * c, parts, c, j);

	if (threadIdx.y == 0 && j < c)
	{
		double		invstd = (double) save_invstd[j],
					g = (double) gamma[j];

		coefficients[j] = (float) (g * invstd);
		coefficients[c + j] = (float) (-g * invstd * invstd * invstd * dot / (double) m);
		coefficients[2 * c + j] = (float) (-g * invstd * sum / (double) m);
		dgamma[j] = (float) (dot * invstd) + (accumulate == 0.0f ? 0.0f : accumulate * dgamma[j]);
		dbeta[j] = (float) sum + (accumulate == 0.0f ? 0.0f : accumulate * dbeta[j]);
	}
}

template <DType D>
static __global__ void
batchnorm_dx_kernel(size_t m, size_t c, int aligned, const void *dy, const void *x, const float *mean,
					const float *coefficients, void *dx)
{
	size_t		j = ((size_t) blockIdx.x * blockDim.x + threadIdx.x) * 4,
				count = j < c ? c - j : 0;
	float		column_mean[4],
				a[4],
				b[4],
				e[4];

	if (count == 0)
		return;
	load4<DTYPE_F32>(mean, j, count, 0, column_mean);
	load4<DTYPE_F32>(coefficients, j, count, 0, a);
	load4<DTYPE_F32>(coefficients + c, j, count, 0, b);
	load4<DTYPE_F32>(coefficients + 2 * c, j, count, 0, e);
	for (size_t i = (size_t) blockIdx.y * blockDim.y + threadIdx.y; i < m; i += (size_t) gridDim.y * blockDim.y)
	{
		float		v[4],
					d[4];

		load4<D>(x, i * c + j, count, aligned, v);
		load4<D>(dy, i * c + j, count, aligned, d);
#pragma unroll
		for (int k = 0; k < 4; k++)
			d[k] = d[k] * a[k] + ((v[k] - column_mean[k]) * b[k] + e[k]);
		store4<D>(dx, i * c + j, count, aligned, d);
	}
}

Status
op_batchnorm_bwd(Backend *be, size_t m, size_t c, const void *dy, const void *x, const float *gamma,
				 const float *save_mean, const float *save_invstd, void *dx, float *dgamma, float *dbeta,
				 float accumulate, DType dtype, Error *err)
{
	dim3		block = column_block(c, 1);
	double	   *partial;
	float	   *coefficients;
	unsigned	parts;

	TRY(cuda_check_dtype(dtype, "batch norm", err));
	TRY(column_partials(be, COLUMN_BATCHNORM, m, c, dy, x, save_mean, NULL, &partial, &parts, dtype,
						3 * c * sizeof(float), err));
	coefficients = (float *) (partial + 2 * (size_t) parts * c);
	LAUNCH(batchnorm_gradients_kernel, (unsigned) ceil_div(c, block.x), block, 0, be->stream, parts, m, c, partial,
		   gamma, save_invstd, dgamma, dbeta, accumulate, coefficients);
	TRY(cuda_launched("batch norm", err));
	if (dx != NULL)
	{
		int			aligned = c % 4 == 0 && aligned4(dy, dtype) && aligned4(x, dtype) && aligned4(dx, dtype);

		block = column_block(c, 4);
		DTYPE_SWITCH(dtype, D, LAUNCH((batchnorm_dx_kernel<D>), column_grid(be, block, m, c, 4, 4), block, 0,
									  be->stream, m, c, aligned, dy, x, save_mean, coefficients, dx));
		TRY(cuda_launched("batch norm", err));
	}
	return STATUS_OK;
}

template <DType D>
static __global__ void
layernorm_fwd_kernel(size_t m, size_t d, int aligned, const void *x, const float *gamma, const float *beta, float eps,
					 float *save_mean, float *save_invstd, void *y)
{
	size_t		lane = threadIdx.x % WARP;

	for (size_t i = THREAD_INDEX / WARP; i < m; i += THREAD_COUNT / WARP)
	{
		float		sum = 0.0f,
					square = 0.0f,
					mean,
					invstd,
					v[4];

		for (size_t j = lane * 4; j < d; j += WARP * 4)
		{
			load4<D>(x, i * d + j, d - j, aligned, v);
			sum += (v[0] + v[1]) + (v[2] + v[3]);
		}
		mean = warp_sum(sum) / (float) d;
		for (size_t j = lane * 4; j < d; j += WARP * 4)
		{
			load4<D>(x, i * d + j, d - j, aligned, v);
#pragma unroll
			for (int k = 0; k < 4; k++)
			{
				float		deviation = j + (size_t) k < d ? v[k] - mean : 0.0f;

				square += deviation * deviation;
			}
		}
		invstd = 1.0f / math_sqrt(warp_sum(square) / (float) d + eps);
		if (lane == 0)
		{
			save_mean[i] = mean;
			save_invstd[i] = invstd;
		}
		for (size_t j = lane * 4; j < d; j += WARP * 4)
		{
			load4<D>(x, i * d + j, d - j, aligned, v);
#pragma unroll
			for (int k = 0; k < 4; k++)
				if (j + (size_t) k < d)
					v[k] = (v[k] - mean) * invstd * gamma[j + (size_t) k] + beta[j + (size_t) k];
			store4<D>(y, i * d + j, d - j, aligned, v);
		}
	}
}

Status
op_layernorm_fwd(Backend *be, size_t m, size_t d, const void *x, const float *gamma, const float *beta, float eps,
				 float *save_mean, float *save_invstd, void *y, DType dtype, Error *err)
{
	int			aligned = d % 4 == 0 && aligned4(x, dtype) && aligned4(y, dtype);

	TRY(cuda_check_dtype(dtype, "layer norm", err));
	DTYPE_SWITCH(dtype, D, LAUNCH((layernorm_fwd_kernel<D>), grid_for(be, ceil_div(m, BLOCK / WARP)), BLOCK, 0,
								  be->stream, m, d, aligned, x, gamma, beta, eps, save_mean, save_invstd, y));
	return cuda_launched("layer norm", err);
}

template <DType D>
static __global__ void
layernorm_dx_kernel(size_t m, size_t d, int aligned, const void *dy, const void *x, const float *gamma,
					const float *save_mean, const float *save_invstd, void *dx)
{
	size_t		lane = threadIdx.x % WARP;

	for (size_t i = THREAD_INDEX / WARP; i < m; i += THREAD_COUNT / WARP)
	{
		float		mean = save_mean[i],
					invstd = save_invstd[i],
					sum = 0.0f,
					dot = 0.0f,
					v[4],
					g[4];

		for (size_t j = lane * 4; j < d; j += WARP * 4)
		{
			load4<D>(x, i * d + j, d - j, aligned, v);
			load4<D>(dy, i * d + j, d - j, aligned, g);
#pragma unroll
			for (int k = 0; k < 4; k++)
				if (j + (size_t) k < d)
				{
					float		w = g[k] * gamma[j + (size_t) k];

					sum += w;
					dot += w * ((v[k] - mean) * invstd);
				}
		}
		sum = warp_sum(sum) / (float) d;
		dot = warp_sum(dot) / (float) d;
		for (size_t j = lane * 4; j < d; j += WARP * 4)
		{
			load4<D>(x, i * d + j, d - j, aligned, v);
			load4<D>(dy, i * d + j, d - j, aligned, g);
#pragma unroll
			for (int k = 0; k < 4; k++)
				if (j + (size_t) k < d)
					v[k] = (g[k] * gamma[j + (size_t) k] - sum - (v[k] - mean) * invstd * dot) * invstd;
			store4<D>(dx, i * d + j, d - j, aligned, v);
		}
	}
}

static __global__ void
layernorm_gradients_kernel(unsigned parts, size_t d, const double *partial, float *dgamma, float *dbeta,
						   float accumulate)
{
	size_t		j = (size_t) blockIdx.x * blockDim.x + threadIdx.x;
	double		sum = column_total(partial, parts, d, j),
				dot = column_total(partial + (size_t) parts * d, parts, d, j);

	if (threadIdx.y == 0 && j < d)
	{
		dgamma[j] = (float) dot + (accumulate == 0.0f ? 0.0f : accumulate * dgamma[j]);
		dbeta[j] = (float) sum + (accumulate == 0.0f ? 0.0f : accumulate * dbeta[j]);
	}
}

Status
op_layernorm_bwd(Backend *be, size_t m, size_t d, const void *dy, const void *x, const float *gamma,
				 const float *save_mean, const float *save_invstd, void *dx, float *dgamma, float *dbeta,
				 float accumulate, DType dtype, Error *err)
{
	dim3		block = column_block(d, 1);
	double	   *partial;
	unsigned	parts;

	TRY(cuda_check_dtype(dtype, "layer norm", err));
	TRY(column_partials(be, COLUMN_LAYERNORM, m, d, dy, x, save_mean, save_invstd, &partial, &parts, dtype, 0, err));
	LAUNCH(layernorm_gradients_kernel, (unsigned) ceil_div(d, block.x), block, 0, be->stream, parts, d, partial,
		   dgamma, dbeta, accumulate);
	TRY(cuda_launched("layer norm", err));
	if (dx != NULL)
	{
		int			aligned = d % 4 == 0 && aligned4(dy, dtype) && aligned4(x, dtype) && aligned4(dx, dtype);

		DTYPE_SWITCH(dtype, D, LAUNCH((layernorm_dx_kernel<D>), grid_for(be, ceil_div(m, BLOCK / WARP)), BLOCK, 0,
									  be->stream, m, d, aligned, dy, x, gamma, save_mean, save_invstd, dx));
		TRY(cuda_launched("layer norm", err));
	}
	return STATUS_OK;
}
