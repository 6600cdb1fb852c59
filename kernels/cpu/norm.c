/*
 * norm.c - batch norm and layer norm.  Compiled once per instruction set.
 *
 * Statistics are taken block by block of rows: two passes over a block while it is in the cache, then the
 * blocks' means and squared deviations are merged in double (Chan, Golub and LeVeque), so that nothing
 * cancels and memory is read once.
 */
#include "kernels/cpu/element.h"
#include "kernels/cpu/ops.h"

#include <math.h>
#include <string.h>

/* Estimate of the time for an element. */
#define NORM_NS 0.5

#define LANES 16

/* Rows of a block: some tens of kilobytes. */
static size_t
block_rows(size_t c)
{
	size_t		rows = 8192 / (c > 0 ? c : 1);

	return rows < 8 ? 8 : rows;
}

/* Running statistics of c columns, over count rows. */
typedef struct Moments
{
	size_t		count;
	double	   *mean;			/* (c) */
	double	   *m2;				/* (c), sum of squared deviations from the mean */
} Moments;

ALWAYS_INLINE void
block_moments(size_t rows, size_t c, const void *x, float *sum, float *square, const DType dtype)
{
	size_t		i,
				j;

	for (j = 0; j < c; j++)
		sum[j] = 0;
	for (i = 0; i < rows; i++)
		for (j = 0; j < c; j++)
			sum[j] += load(x, i * c + j, dtype);
	for (j = 0; j < c; j++)
	{
		sum[j] /= (float) rows;
		square[j] = 0;
	}
	for (i = 0; i < rows; i++)
		for (j = 0; j < c; j++)
		{
			float		d = load(x, i * c + j, dtype) - sum[j];

			square[j] += d * d;
		}
}

/* Add count_b rows with means mean_b and squared deviations m2_b. */
#define MERGE_MOMENTS(a, c, count_b, mean_b, m2_b) \
	do { \
		double		na = (double) (a)->count, \
					nb = (double) (count_b); \
		size_t		merge_j; \
		for (merge_j = 0; merge_j < (c); merge_j++) \
		{ \
			double		delta = (double) (mean_b)[merge_j] - (a)->mean[merge_j]; \
			(a)->mean[merge_j] += delta * (nb / (na + nb)); \
			(a)->m2[merge_j] += (double) (m2_b)[merge_j] + delta * delta * (na * nb / (na + nb)); \
		} \
		(a)->count += (count_b); \
	} while (0)

static void
rows_moments(size_t lo, size_t hi, size_t c, const void *x, float *scratch, Moments *moments, DType dtype)
{
	size_t		i;

	moments->count = 0;
	memset(moments->mean, 0, c * sizeof(double));
	memset(moments->m2, 0, c * sizeof(double));
	for (i = lo; i < hi; i += block_rows(c))
	{
		size_t		rows = min_size(block_rows(c), hi - i);

		DTYPE_SWITCH(dtype, D, block_moments(rows, c, const_element(x, D, i * c), scratch, scratch + c, D));
		MERGE_MOMENTS(moments, c, rows, scratch, scratch + c);
	}
}

/* y = (x - mean) a + b, column by column; the difference first, so that a large mean costs no accuracy. */
ALWAYS_INLINE void
affine_rows(size_t lo, size_t hi, size_t c, const void *x, const float *mean, const float *a, const float *b,
			void *y, const DType dtype)
{
	size_t		i,
				j;

	for (i = lo; i < hi; i++)
	{
		INDEPENDENT
		for (j = 0; j < c; j++)
			store(y, i * c + j, (load(x, i * c + j, dtype) - mean[j]) * a[j] + b[j], dtype);
	}
}

/* Per thread: two arrays of double and two of float, (c) each; then two of float for all. */
static size_t
moments_stride(size_t c)
{
	return round_up(c * (2 * sizeof(double) + 2 * sizeof(float)), CPU_ALIGNMENT);
}

Status
op_batchnorm_fwd_train(Backend *be, size_t m, size_t c, const void *x, const float *gamma, const float *beta,
					   float eps, float momentum, float *running_mean, float *running_var,
					   float *save_mean, float *save_invstd, void *y, DType dtype, Error *err)
{
	int			nt = threads_for(be, (double) m * (double) c * NORM_NS);
	size_t		stride = moments_stride(c),
				j;
	void	   *workspace;
	float	   *a;

	TRY(cpu_check_dtype(dtype, "batch norm", err));
	if (m < 2)
		return error_set(err, STATUS_INVALID, "batch norm cannot train on a batch with one value per channel");
	TRY(cpu_workspace(be, WORKSPACE_REDUCE, stride * ((size_t) nt + 1), &workspace, err));
	a = (float *) ((char *) workspace + stride * (size_t) nt);
	PARALLEL(nt)
	{
		int			t = thread_index(),
					count = thread_count();
		Moments		mine;
		size_t		lo,
					hi;

		mine.mean = (double *) ((char *) workspace + stride * (size_t) t);
		mine.m2 = mine.mean + c;
		thread_range(m, 1, t, count, &lo, &hi);
		rows_moments(lo, hi, c, x, (float *) (mine.m2 + c), &mine, dtype);
#pragma omp barrier
#pragma omp single
		{
			Moments		all = mine;
			int			other;

			all.mean = workspace;
			all.m2 = all.mean + c;
			thread_range(m, 1, 0, count, &lo, &hi);
			all.count = hi - lo;
			for (other = 1; other < count; other++)
			{
				double	   *mean = (double *) ((char *) workspace + stride * (size_t) other);
				size_t		other_lo,
							other_hi;

				thread_range(m, 1, other, count, &other_lo, &other_hi);
				if (other_hi > other_lo)
					MERGE_MOMENTS(&all, c, other_hi - other_lo, mean, mean + c);
			}
			for (j = 0; j < c; j++)
			{
				double		var = all.m2[j] / (double) m,
							invstd = 1.0 / sqrt(var + (double) eps);

				save_mean[j] = (float) all.mean[j];
				save_invstd[j] = (float) invstd;
				running_mean[j] += momentum * (save_mean[j] - running_mean[j]);
				running_var[j] += momentum * ((float) (all.m2[j] / (double) (m - 1)) - running_var[j]);
				a[j] = (float) (gamma[j] * invstd);
			}
			thread_range(m, 1, t, count, &lo, &hi);
		}
		DTYPE_SWITCH(dtype, D, affine_rows(lo, hi, c, x, save_mean, a, beta, y, D));
	}
	return STATUS_OK;
}

Status
op_batchnorm_fwd_eval(Backend *be, size_t m, size_t c, const void *x, const float *gamma, const float *beta,
					  float eps, const float *running_mean, const float *running_var, void *y, DType dtype,
					  Error *err)
{
	int			nt = threads_for(be, (double) m * (double) c * NORM_NS * 0.5);
	size_t		j;
	void	   *workspace;
	float	   *a;

	TRY(cpu_check_dtype(dtype, "batch norm", err));
	TRY(cpu_workspace(be, WORKSPACE_REDUCE, c * sizeof(float), &workspace, err));
	a = workspace;
	for (j = 0; j < c; j++)
		a[j] = (float) (gamma[j] / sqrt((double) running_var[j] + (double) eps));
	PARALLEL(nt)
	{
		size_t		lo,
					hi;

		thread_range(m, 1, thread_index(), thread_count(), &lo, &hi);
		DTYPE_SWITCH(dtype, D, affine_rows(lo, hi, c, x, running_mean, a, beta, y, D));
	}
	return STATUS_OK;
}

/* sums[j] = sum of dy, sums[c + j] = sum of dy (x - mean), over a block's rows */
ALWAYS_INLINE void
block_gradient_sums(size_t rows, size_t c, const void *dy, const void *x, const float *mean, float *sums,
					const DType dtype)
{
	size_t		i,
				j;

	memset(sums, 0, 2 * c * sizeof(float));
	for (i = 0; i < rows; i++)
	{
		INDEPENDENT
		for (j = 0; j < c; j++)
		{
			float		d = load(dy, i * c + j, dtype);

			sums[j] += d;
			sums[c + j] += d * (load(x, i * c + j, dtype) - mean[j]);
		}
	}
}

static void
rows_gradient_sums(size_t lo, size_t hi, size_t c, const void *dy, const void *x, const float *mean,
				   float *scratch, double *sums, DType dtype)
{
	size_t		i,
				j;

	memset(sums, 0, 2 * c * sizeof(double));
	for (i = lo; i < hi; i += block_rows(c))
	{
		size_t		rows = min_size(block_rows(c), hi - i);

		DTYPE_SWITCH(dtype, D, block_gradient_sums(rows, c, const_element(dy, D, i * c),
												   const_element(x, D, i * c), mean, scratch, D));
		for (j = 0; j < 2 * c; j++)
			sums[j] += (double) scratch[j];
	}
}

/* dx = a dy + b (x - mean) + e, column by column */
ALWAYS_INLINE void
batchnorm_dx_rows(size_t lo, size_t hi, size_t c, const void *dy, const void *x, const float *mean,
				  const float *a, const float *b, const float *e, void *dx, const DType dtype)
{
	size_t		i,
				j;

	for (i = lo; i < hi; i++)
	{
		INDEPENDENT
		for (j = 0; j < c; j++)
			store(dx, i * c + j,
				  load(dy, i * c + j, dtype) * a[j]
				  + ((load(x, i * c + j, dtype) - mean[j]) * b[j] + e[j]), dtype);
	}
}

Status
op_batchnorm_bwd(Backend *be, size_t m, size_t c, const void *dy, const void *x, const float *gamma,
				 const float *save_mean, const float *save_invstd, void *dx, float *dgamma, float *dbeta,
				 float accumulate, DType dtype, Error *err)
{
	int			nt = threads_for(be, (double) m * (double) c * NORM_NS);
	size_t		stride = moments_stride(c),
				j;
	void	   *workspace;
	float	   *a,
			   *b,
			   *e;

	TRY(cpu_check_dtype(dtype, "batch norm", err));
	TRY(cpu_workspace(be, WORKSPACE_REDUCE, stride * ((size_t) nt + 1), &workspace, err));
	a = (float *) ((char *) workspace + stride * (size_t) nt);
	b = a + c;
	e = b + c;
	PARALLEL(nt)
	{
		int			t = thread_index(),
					count = thread_count();
		double	   *sums = (double *) ((char *) workspace + stride * (size_t) t);
		size_t		lo,
					hi;

		thread_range(m, 1, t, count, &lo, &hi);
		rows_gradient_sums(lo, hi, c, dy, x, save_mean, (float *) (sums + 2 * c), sums, dtype);
#pragma omp barrier
#pragma omp single
		for (j = 0; j < c; j++)
		{
			double		sum = 0,
						dot = 0,
						invstd = save_invstd[j];
			int			other;

			for (other = 0; other < count; other++)
			{
				const double *part = (const double *) ((char *) workspace + stride * (size_t) other);

				sum += part[j];
				dot += part[c + j];
			}
			/* dx = gamma invstd (dy - mean(dy) - xhat mean(dy xhat)), xhat = (x - mean) invstd */
			a[j] = (float) (gamma[j] * invstd);
			b[j] = (float) (-gamma[j] * invstd * invstd * invstd * dot / (double) m);
			e[j] = (float) (-gamma[j] * invstd * sum / (double) m);
			dgamma[j] = (float) (dot * invstd) + (accumulate == 0.0f ? 0.0f : accumulate * dgamma[j]);
			dbeta[j] = (float) sum + (accumulate == 0.0f ? 0.0f : accumulate * dbeta[j]);
		}
		if (dx != NULL)
			DTYPE_SWITCH(dtype, D, batchnorm_dx_rows(lo, hi, c, dy, x, save_mean, a, b, e, dx, D));
	}
	return STATUS_OK;
}

ALWAYS_INLINE float
sum_lanes(const float *lane)
{
	float		sum = 0;
	int			j;

	for (j = 0; j < LANES; j++)
		sum += lane[j];
	return sum;
}

ALWAYS_INLINE float
row_sum(size_t d, const void *x, const DType dtype)
{
	float		lane[LANES] = {0};
	size_t		i,
				j;

	for (i = 0; i + LANES <= d; i += LANES)
		for (j = 0; j < LANES; j++)
			lane[j] += load(x, i + j, dtype);
	for (j = 0; i + j < d; j++)
		lane[j] += load(x, i + j, dtype);
	return sum_lanes(lane);
}

ALWAYS_INLINE float
row_square_deviation(size_t d, const void *x, float mean, const DType dtype)
{
	float		lane[LANES] = {0};
	size_t		i,
				j;

	for (i = 0; i + LANES <= d; i += LANES)
		for (j = 0; j < LANES; j++)
		{
			float		v = load(x, i + j, dtype) - mean;

			lane[j] += v * v;
		}
	for (j = 0; i + j < d; j++)
	{
		float		v = load(x, i + j, dtype) - mean;

		lane[j] += v * v;
	}
	return sum_lanes(lane);
}

ALWAYS_INLINE void
layernorm_fwd_rows(size_t lo, size_t hi, size_t d, const void *x, const float *gamma, const float *beta,
				   float eps, float *save_mean, float *save_invstd, void *y, const DType dtype)
{
	size_t		i,
				j;

	for (i = lo; i < hi; i++)
	{
		const void *row = const_element(x, dtype, i * d);
		void	   *out = element(y, dtype, i * d);
		float		mean = row_sum(d, row, dtype) / (float) d,
					var = row_square_deviation(d, row, mean, dtype) / (float) d,
					invstd = 1.0f / math_sqrt(var + eps);

		save_mean[i] = mean;
		save_invstd[i] = invstd;
		INDEPENDENT
		for (j = 0; j < d; j++)
			store(out, j, (load(row, j, dtype) - mean) * invstd * gamma[j] + beta[j], dtype);
	}
}

Status
op_layernorm_fwd(Backend *be, size_t m, size_t d, const void *x, const float *gamma, const float *beta,
				 float eps, float *save_mean, float *save_invstd, void *y, DType dtype, Error *err)
{
	int			nt = threads_for(be, (double) m * (double) d * NORM_NS);

	TRY(cpu_check_dtype(dtype, "layer norm", err));
	PARALLEL(nt)
	{
		size_t		lo,
					hi;

		thread_range(m, 1, thread_index(), thread_count(), &lo, &hi);
		DTYPE_SWITCH(dtype, D, layernorm_fwd_rows(lo, hi, d, x, gamma, beta, eps, save_mean, save_invstd, y, D));
	}
	return STATUS_OK;
}

/* Rows whose contributions to dgamma and dbeta are summed in float before they are added in double. */
#define LAYERNORM_BLOCK 64

/* partial (2 d) += what rows lo .. hi - 1 add to dgamma and dbeta; dx of these rows is written. */
ALWAYS_INLINE void
layernorm_bwd_rows(size_t lo, size_t hi, size_t d, const void *dy, const void *x, const float *gamma,
				   const float *save_mean, const float *save_invstd, void *dx, float *partial,
				   const DType dtype)
{
	size_t		i,
				j,
				l;

	for (i = lo; i < hi; i++)
	{
		const void *g = const_element(dy, dtype, i * d),
				   *row = const_element(x, dtype, i * d);
		float		mean = save_mean[i],
					invstd = save_invstd[i],
					sum_lane[LANES] = {0},
					dot_lane[LANES] = {0};
		float		sum,
					dot;

		INDEPENDENT
		for (j = 0; j < d; j++)
		{
			float		v = load(g, j, dtype);

			partial[j] += v * ((load(row, j, dtype) - mean) * invstd);
			partial[d + j] += v;
		}
		if (dx == NULL)
			continue;
		for (j = 0; j + LANES <= d; j += LANES)
			for (l = 0; l < LANES; l++)
			{
				float		v = load(g, j + l, dtype) * gamma[j + l];

				sum_lane[l] += v;
				dot_lane[l] += v * ((load(row, j + l, dtype) - mean) * invstd);
			}
		for (l = 0; j + l < d; l++)
		{
			float		v = load(g, j + l, dtype) * gamma[j + l];

			sum_lane[l] += v;
			dot_lane[l] += v * ((load(row, j + l, dtype) - mean) * invstd);
		}
		sum = sum_lanes(sum_lane) / (float) d;
		dot = sum_lanes(dot_lane) / (float) d;
		INDEPENDENT
		for (j = 0; j < d; j++)
		{
			float		xhat = (load(row, j, dtype) - mean) * invstd,
						v = load(g, j, dtype) * gamma[j];

			store(dx, i * d + j, (v - sum - xhat * dot) * invstd, dtype);
		}
	}
}

Status
op_layernorm_bwd(Backend *be, size_t m, size_t d, const void *dy, const void *x, const float *gamma,
				 const float *save_mean, const float *save_invstd, void *dx, float *dgamma, float *dbeta,
				 float accumulate, DType dtype, Error *err)
{
	int			nt = threads_for(be, (double) m * (double) d * NORM_NS * 2.0);
	/* a thread's sums in double, and those of its current block */
	size_t		stride = round_up(2 * d * (sizeof(double) + sizeof(float)), CPU_ALIGNMENT),
				j;
	void	   *workspace;

	TRY(cpu_check_dtype(dtype, "layer norm", err));
	TRY(cpu_workspace(be, WORKSPACE_REDUCE, stride * (size_t) nt, &workspace, err));
	PARALLEL(nt)
	{
		int			t = thread_index(),
					count = thread_count();
		double	   *sums = (double *) ((char *) workspace + stride * (size_t) t);
		float	   *partial = (float *) (sums + 2 * d);
		size_t		lo,
					hi,
					i,
					k;

		thread_range(m, 1, t, count, &lo, &hi);
		memset(sums, 0, 2 * d * sizeof(double));
		for (i = lo; i < hi; i += LAYERNORM_BLOCK)
		{
			memset(partial, 0, 2 * d * sizeof(float));
			DTYPE_SWITCH(dtype, D, layernorm_bwd_rows(i, min_size(i + LAYERNORM_BLOCK, hi), d, dy, x, gamma,
													  save_mean, save_invstd, dx, partial, D));
			for (k = 0; k < 2 * d; k++)
				sums[k] += (double) partial[k];
		}
#pragma omp barrier
#pragma omp single
		for (j = 0; j < d; j++)
		{
			double		sum_gamma = 0,
						sum_beta = 0;
			int			other;

			for (other = 0; other < count; other++)
			{
				const double *part = (const double *) ((char *) workspace + stride * (size_t) other);

				sum_gamma += part[j];
				sum_beta += part[d + j];
			}
			dgamma[j] = (float) sum_gamma + (accumulate == 0.0f ? 0.0f : accumulate * dgamma[j]);
			dbeta[j] = (float) sum_beta + (accumulate == 0.0f ? 0.0f : accumulate * dbeta[j]);
		}
	}
	return STATUS_OK;
}
