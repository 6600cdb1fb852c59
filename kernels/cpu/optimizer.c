/*
 * optimizer.c - optimizer steps over a whole arena, and the gradient's norm.  Compiled once per instruction
 * set.
 */
#include "kernels/cpu/element.h"
#include "kernels/cpu/ops.h"

#include <math.h>

#define MEMORY_NS_PER_BYTE 0.1

/* A shadow of either type, or none: a constant where it is used. */
typedef enum Shadow
{
	SHADOW_NONE,
	SHADOW_F32,
	SHADOW_BF16
} Shadow;

ALWAYS_INLINE void
store_shadow(void *shadow, size_t i, float p, const Shadow kind)
{
	if (kind != SHADOW_NONE)
		store(shadow, i, p, kind == SHADOW_F32 ? DTYPE_F32 : DTYPE_BF16);
}

static Status
shadow_kind(const void *shadow, DType dtype, Shadow *kind, Error *err)
{
	*kind = SHADOW_NONE;
	if (shadow == NULL)
		return STATUS_OK;
	TRY(cpu_check_dtype(dtype, "a copy of the parameters", err));
	*kind = dtype == DTYPE_F32 ? SHADOW_F32 : SHADOW_BF16;
	return STATUS_OK;
}

ALWAYS_INLINE void
sgd_plain_loop(size_t lo, size_t hi, float *p, const float *g, const SgdArgs *a, void *shadow,
			   const Shadow kind)
{
	const SgdArgs args = *a;
	size_t		i;

	INDEPENDENT
	for (i = lo; i < hi; i++)
	{
		float		q = math_sgd_plain(p[i], g[i], &args);

		p[i] = q;
		store_shadow(shadow, i, q, kind);
	}
}

ALWAYS_INLINE void
sgd_momentum_loop(size_t lo, size_t hi, float *p, const float *g, float *buffer, const int first,
				  const SgdArgs *a, void *shadow, const Shadow kind)
{
	const SgdArgs args = *a;
	size_t		i;

	INDEPENDENT
	for (i = lo; i < hi; i++)
	{
		float		b = buffer[i],
					q = math_sgd_momentum(p[i], g[i], &b, first, &args);

		buffer[i] = b;
		p[i] = q;
		store_shadow(shadow, i, q, kind);
	}
}

ALWAYS_INLINE void
sgd_range(size_t lo, size_t hi, float *p, const float *g, float *buffer, const SgdArgs *a, void *shadow,
		  const Shadow kind)
{
	if (buffer == NULL || a->momentum == 0.0f)
		sgd_plain_loop(lo, hi, p, g, a, shadow, kind);
	else if (a->step <= 1)
		sgd_momentum_loop(lo, hi, p, g, buffer, 1, a, shadow, kind);
	else
		sgd_momentum_loop(lo, hi, p, g, buffer, 0, a, shadow, kind);
}

Status
op_sgd_step(Backend *be, size_t n, float *p, const float *g, float *momentum_buffer, const SgdArgs *args,
			void *shadow, DType shadow_dtype, Error *err)
{
	int			nt = threads_for(be, (double) n * 20.0 * MEMORY_NS_PER_BYTE);
	Shadow		kind;

	TRY(shadow_kind(shadow, shadow_dtype, &kind, err));
	if (args->momentum != 0.0f && momentum_buffer == NULL)
		return error_set(err, STATUS_INTERNAL, "sgd with momentum needs a momentum buffer");
	PARALLEL(nt)
	{
		size_t		lo,
					hi;

		thread_range(n, 64, thread_index(), thread_count(), &lo, &hi);
		switch (kind)
		{
			case SHADOW_NONE:
				sgd_range(lo, hi, p, g, momentum_buffer, args, shadow, SHADOW_NONE);
				break;
			case SHADOW_F32:
				sgd_range(lo, hi, p, g, momentum_buffer, args, shadow, SHADOW_F32);
				break;
			case SHADOW_BF16:
				sgd_range(lo, hi, p, g, momentum_buffer, args, shadow, SHADOW_BF16);
				break;
		}
	}
	return STATUS_OK;
}

ALWAYS_INLINE void
adam_loop(size_t lo, size_t hi, float *p, const float *g, float *m, float *v, const AdamCoefficients *c,
		  void *shadow, const Shadow kind)
{
	const AdamCoefficients coefficients = *c;
	size_t		i;

	INDEPENDENT
	for (i = lo; i < hi; i++)
	{
		float		m1 = m[i],
					v1 = v[i],
					q = math_adam(p[i], g[i], &m1, &v1, &coefficients);

		m[i] = m1;
		v[i] = v1;
		p[i] = q;
		store_shadow(shadow, i, q, kind);
	}
}

Status
op_adam_step(Backend *be, size_t n, float *p, const float *g, float *m, float *v, const AdamArgs *args,
			 void *shadow, DType shadow_dtype, Error *err)
{
	int			nt = threads_for(be, (double) n * 30.0 * MEMORY_NS_PER_BYTE);
	AdamCoefficients c = math_adam_coefficients(args);
	Shadow		kind;

	TRY(shadow_kind(shadow, shadow_dtype, &kind, err));
	PARALLEL(nt)
	{
		size_t		lo,
					hi;

		thread_range(n, 64, thread_index(), thread_count(), &lo, &hi);
		switch (kind)
		{
			case SHADOW_NONE:
				adam_loop(lo, hi, p, g, m, v, &c, shadow, SHADOW_NONE);
				break;
			case SHADOW_F32:
				adam_loop(lo, hi, p, g, m, v, &c, shadow, SHADOW_F32);
				break;
			case SHADOW_BF16:
				adam_loop(lo, hi, p, g, m, v, &c, shadow, SHADOW_BF16);
				break;
		}
	}
	return STATUS_OK;
}

/* Partial sums side by side, so that the loop is vector code with a fixed order. */
#define SUM_LANES 16

static double
sum_squares_range(size_t lo, size_t hi, const float *x)
{
	double		lane[SUM_LANES] = {0},
				sum = 0;
	size_t		i,
				j;

	for (i = lo; i + SUM_LANES <= hi; i += SUM_LANES)
		for (j = 0; j < SUM_LANES; j++)
			lane[j] += (double) x[i + j] * (double) x[i + j];
	for (; i < hi; i++)
		sum += (double) x[i] * (double) x[i];
	for (j = 0; j < SUM_LANES; j++)
		sum += lane[j];
	return sum;
}

Status
op_sum_squares(Backend *be, size_t n, const float *x, double *result, Error *err)
{
	int			nt = threads_for(be, (double) n * 4.0 * MEMORY_NS_PER_BYTE);
	double	   *partial,
				sum = 0;
	void	   *workspace;
	int			i;

	TRY(cpu_workspace(be, WORKSPACE_REDUCE, sizeof(double) * CPU_ALIGNMENT * (size_t) nt, &workspace, err));
	partial = workspace;
	PARALLEL(nt)
	{
		size_t		lo,
					hi;

		thread_range(n, 64, thread_index(), thread_count(), &lo, &hi);
		/* one cache line each */
		partial[thread_index() * CPU_ALIGNMENT] = sum_squares_range(lo, hi, x);
#pragma omp single
		nt = thread_count();
	}
	for (i = 0; i < nt; i++)
		sum += partial[i * CPU_ALIGNMENT];
	*result += sum;
	return STATUS_OK;
}
