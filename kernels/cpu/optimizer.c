/*
 * optimizer.c - optimizer steps over a whole arena, and the gradient's norm.  Compiled once per instruction
 * set.
 */
#include "kernels/cpu/element.h"
#include "kernels/cpu/ops.h"

#include <math.h>

#define MEMORY_NS_PER_BYTE 0.1

/* A shadow of any type, or none: a constant where it is used. */
#define NO_SHADOW ((DType) -1)

#define SHADOW_SWITCH(shadow, dtype, constant, ...) \
	do { \
		if ((shadow) == NULL) \
		{ \
			const DType constant = NO_SHADOW; \
			__VA_ARGS__; \
		} \
		else \
			DTYPE_SWITCH(dtype, constant, __VA_ARGS__); \
	} while (0)

ALWAYS_INLINE void
store_shadow(void *shadow, size_t i, float p, const DType dtype)
{
	if (dtype != NO_SHADOW)
		store(shadow, i, p, dtype);
}

static Status
check_shadow(const void *shadow, DType dtype, Error *err)
{
	return shadow == NULL ? STATUS_OK : cpu_check_dtype(dtype, "a copy of the parameters", err);
}

Status
op_step_begin(Backend *be, StepState *state, float lr, uint64_t dropout_stream, Error *err)
{
	(void) be;
	(void) err;
	math_step_begin(state, lr, dropout_stream);
	return STATUS_OK;
}

Status
op_gradient_check(Backend *be, size_t n, const float *g, StepState *state, const GradientCheckArgs *args, Error *err)
{
	double		squares = 0;

	TRY(op_sum_squares(be, n, g, &squares, err));
	math_gradient_check(state, squares, args);
	return STATUS_OK;
}

ALWAYS_INLINE void
sgd_plain_loop(size_t lo, size_t hi, float *p, const float *g, const SgdCoefficients *c, void *shadow,
			   const DType dtype)
{
	const SgdCoefficients coefficients = *c;
	size_t		i;

	INDEPENDENT
	for (i = lo; i < hi; i++)
	{
		float		q = math_sgd_plain(p[i], g[i], &coefficients);

		p[i] = q;
		store_shadow(shadow, i, q, dtype);
	}
}

ALWAYS_INLINE void
sgd_momentum_loop(size_t lo, size_t hi, float *p, const float *g, float *buffer, const int first,
				  const SgdCoefficients *c, void *shadow, const DType dtype)
{
	const SgdCoefficients coefficients = *c;
	size_t		i;

	INDEPENDENT
	for (i = lo; i < hi; i++)
	{
		float		b = buffer[i],
					q = math_sgd_momentum(p[i], g[i], &b, first, &coefficients);

		buffer[i] = b;
		p[i] = q;
		store_shadow(shadow, i, q, dtype);
	}
}

ALWAYS_INLINE void
sgd_range(size_t lo, size_t hi, float *p, const float *g, float *buffer, const SgdCoefficients *c, void *shadow,
		  const DType dtype)
{
	if (buffer == NULL || c->momentum == 0.0f)
		sgd_plain_loop(lo, hi, p, g, c, shadow, dtype);
	else if (c->first)
		sgd_momentum_loop(lo, hi, p, g, buffer, 1, c, shadow, dtype);
	else
		sgd_momentum_loop(lo, hi, p, g, buffer, 0, c, shadow, dtype);
}

Status
op_sgd_step(Backend *be, size_t n, float *p, const float *g, float *momentum_buffer, const SgdArgs *args,
			const StepState *state, void *shadow, DType shadow_dtype, Error *err)
{
	int			nt = threads_for(be, (double) n * 20.0 * MEMORY_NS_PER_BYTE);
	SgdCoefficients c = math_sgd_coefficients(args, state);

	TRY(check_shadow(shadow, shadow_dtype, err));
	if (args->momentum != 0.0f && momentum_buffer == NULL)
		return error_set(err, STATUS_INTERNAL, "sgd with momentum needs a momentum buffer");
	if (state->skip)
		return STATUS_OK;
	PARALLEL(nt)
	{
		size_t		lo,
					hi;

		thread_range(n, 64, thread_index(), thread_count(), &lo, &hi);
		SHADOW_SWITCH(shadow, shadow_dtype, D, sgd_range(lo, hi, p, g, momentum_buffer, &c, shadow, D));
	}
	return STATUS_OK;
}

ALWAYS_INLINE void
adam_loop(size_t lo, size_t hi, float *p, const float *g, float *m, float *v, const AdamCoefficients *c,
		  void *shadow, const DType dtype)
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
		store_shadow(shadow, i, q, dtype);
	}
}

Status
op_adam_step(Backend *be, size_t n, float *p, const float *g, float *m, float *v, const AdamArgs *args,
			 const StepState *state, void *shadow, DType shadow_dtype, Error *err)
{
	int			nt = threads_for(be, (double) n * 30.0 * MEMORY_NS_PER_BYTE);
	AdamCoefficients c = math_adam_coefficients(args, state);

	TRY(check_shadow(shadow, shadow_dtype, err));
	if (state->skip)
		return STATUS_OK;
	PARALLEL(nt)
	{
		size_t		lo,
					hi;

		thread_range(n, 64, thread_index(), thread_count(), &lo, &hi);
		SHADOW_SWITCH(shadow, shadow_dtype, D, adam_loop(lo, hi, p, g, m, v, &c, shadow, D));
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
