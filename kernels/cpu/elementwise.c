/*
 * elementwise.c - activations, dropout, sums of tensors, conversion.  Compiled once per instruction set.
 */
#include "kernels/cpu/element.h"
#include "kernels/cpu/ops.h"

#include <string.h>

/* Estimates of the time for an element, to choose the number of threads. */
#define MEMORY_NS_PER_BYTE 0.1
#define TRANSCENDENTAL_NS 0.6
#define PHILOX_NS 1.0

static double
act_ns(Activation act, DType dtype)
{
	return 2.0 * MEMORY_NS_PER_BYTE * (double) dtype_bytes(dtype)
		+ (act == ACT_RELU || act == ACT_NONE ? 0.0 : TRANSCENDENTAL_NS);
}

ALWAYS_INLINE void
act_fwd_loop(const Activation act, size_t lo, size_t hi, const void *x, void *y, const DType dtype)
{
	size_t		i;

	INDEPENDENT
	for (i = lo; i < hi; i++)
		store(y, i, math_act(act, load(x, i, dtype)), dtype);
}

static void
act_fwd_range(Activation act, size_t lo, size_t hi, const void *x, void *y, DType dtype)
{
	switch (act)
	{
		case ACT_NONE:
			DTYPE_SWITCH(dtype, D, act_fwd_loop(ACT_NONE, lo, hi, x, y, D));
			break;
		case ACT_RELU:
			DTYPE_SWITCH(dtype, D, act_fwd_loop(ACT_RELU, lo, hi, x, y, D));
			break;
		case ACT_GELU:
			DTYPE_SWITCH(dtype, D, act_fwd_loop(ACT_GELU, lo, hi, x, y, D));
			break;
		case ACT_TANH:
			DTYPE_SWITCH(dtype, D, act_fwd_loop(ACT_TANH, lo, hi, x, y, D));
			break;
		case ACT_SIGMOID:
			DTYPE_SWITCH(dtype, D, act_fwd_loop(ACT_SIGMOID, lo, hi, x, y, D));
			break;
	}
}

Status
op_act_fwd(Backend *be, Activation act, size_t n, const void *x, void *y, DType dtype, Error *err)
{
	int			nt = threads_for(be, (double) n * act_ns(act, dtype));

	TRY(cpu_check_dtype(dtype, "activation", err));
	if ((unsigned) act > ACT_SIGMOID)
		return error_set(err, STATUS_INTERNAL, "unknown activation %d", (int) act);
	PARALLEL(nt)
	{
		size_t		lo,
					hi;

		thread_range(n, 64, thread_index(), thread_count(), &lo, &hi);
		act_fwd_range(act, lo, hi, x, y, dtype);
	}
	return STATUS_OK;
}

ALWAYS_INLINE void
act_bwd_loop(const Activation act, size_t lo, size_t hi, const void *dy, const void *saved, void *dx,
			 const DType dtype)
{
	size_t		i;

	INDEPENDENT
	for (i = lo; i < hi; i++)
		store(dx, i, math_act_grad(act, load(dy, i, dtype), load(saved, i, dtype)), dtype);
}

static void
act_bwd_range(Activation act, size_t lo, size_t hi, const void *dy, const void *saved, void *dx, DType dtype)
{
	switch (act)
	{
		case ACT_NONE:
			DTYPE_SWITCH(dtype, D, act_fwd_loop(ACT_NONE, lo, hi, dy, dx, D));
			break;
		case ACT_RELU:
			DTYPE_SWITCH(dtype, D, act_bwd_loop(ACT_RELU, lo, hi, dy, saved, dx, D));
			break;
		case ACT_GELU:
			DTYPE_SWITCH(dtype, D, act_bwd_loop(ACT_GELU, lo, hi, dy, saved, dx, D));
			break;
		case ACT_TANH:
			DTYPE_SWITCH(dtype, D, act_bwd_loop(ACT_TANH, lo, hi, dy, saved, dx, D));
			break;
		case ACT_SIGMOID:
			DTYPE_SWITCH(dtype, D, act_bwd_loop(ACT_SIGMOID, lo, hi, dy, saved, dx, D));
			break;
	}
}

Status
op_act_bwd(Backend *be, Activation act, size_t n, const void *dy, const void *saved, void *dx, DType dtype,
		   Error *err)
{
	int			nt = threads_for(be, (double) n * 1.5 * act_ns(act == ACT_GELU ? act : ACT_NONE, dtype));

	TRY(cpu_check_dtype(dtype, "activation", err));
	if ((unsigned) act > ACT_SIGMOID)
		return error_set(err, STATUS_INTERNAL, "unknown activation %d", (int) act);
	PARALLEL(nt)
	{
		size_t		lo,
					hi;

		thread_range(n, 64, thread_index(), thread_count(), &lo, &hi);
		act_bwd_range(act, lo, hi, dy, saved, dx, dtype);
	}
	return STATUS_OK;
}

/* Blocks of Philox computed together, one in a vector lane. */
#define PHILOX_LANES 16
#define PHILOX_WORDS (4 * PHILOX_LANES)

/* philox_block() for PHILOX_LANES consecutive blocks: words[4 * lane + word] */
static void
philox_lanes(uint64_t seed, uint64_t stream, uint64_t block, uint32_t *words)
{
	uint32_t	c0[PHILOX_LANES],
				c1[PHILOX_LANES],
				c2[PHILOX_LANES],
				c3[PHILOX_LANES],
				k0 = (uint32_t) seed,
				k1 = (uint32_t) (seed >> 32);
	int			i,
				round;

	for (i = 0; i < PHILOX_LANES; i++)
	{
		c0[i] = (uint32_t) (block + (uint64_t) i);
		c1[i] = (uint32_t) ((block + (uint64_t) i) >> 32);
		c2[i] = (uint32_t) stream;
		c3[i] = (uint32_t) (stream >> 32);
	}
	for (round = 0; round < PHILOX_ROUNDS; round++)
	{
		for (i = 0; i < PHILOX_LANES; i++)
		{
			uint64_t	p0 = (uint64_t) PHILOX_M0 * c0[i],
						p1 = (uint64_t) PHILOX_M1 * c2[i];

			c0[i] = (uint32_t) (p1 >> 32) ^ c1[i] ^ k0;
			c1[i] = (uint32_t) p1;
			c2[i] = (uint32_t) (p0 >> 32) ^ c3[i] ^ k1;
			c3[i] = (uint32_t) p0;
		}
		k0 += PHILOX_W0;
		k1 += PHILOX_W1;
	}
	for (i = 0; i < PHILOX_LANES; i++)
	{
		words[4 * i + 0] = c0[i];
		words[4 * i + 1] = c1[i];
		words[4 * i + 2] = c2[i];
		words[4 * i + 3] = c3[i];
	}
}

/* lo is a multiple of PHILOX_WORDS */
ALWAYS_INLINE void
dropout_range(size_t lo, size_t hi, uint32_t threshold, float scale, uint64_t seed, uint64_t stream,
			  const void *x, void *y, const DType dtype)
{
	uint32_t	words[PHILOX_WORDS];
	size_t		i,
				j;

	for (i = lo; i < hi; i += PHILOX_WORDS)
	{
		size_t		count = min_size(PHILOX_WORDS, hi - i);

		philox_lanes(seed, stream, i / 4, words);
		/* A product, not a selection: a dropped NaN or infinity must still be seen. */
		if (count == PHILOX_WORDS)
		{
			INDEPENDENT
			for (j = 0; j < PHILOX_WORDS; j++)
				store(y, i + j, load(x, i + j, dtype) * (words[j] >= threshold ? scale : 0.0f), dtype);
		}
		else
			for (j = 0; j < count; j++)
				store(y, i + j, load(x, i + j, dtype) * (words[j] >= threshold ? scale : 0.0f), dtype);
	}
}

Status
op_dropout(Backend *be, size_t n, float p, uint64_t seed, uint64_t stream, const StepState *state,
		   const void *x, void *y, DType dtype, Error *err)
{
	uint32_t	threshold = philox_threshold(p);
	float		scale = 1.0f / (1.0f - p);
	int			nt = threads_for(be, (double) n * PHILOX_NS);

	TRY(cpu_check_dtype(dtype, "dropout", err));
	if (!(p >= 0.0f && p < 1.0f))
		return error_set(err, STATUS_INVALID, "dropout probability %g is not in [0, 1)", p);
	if (state != NULL)
		stream += state->dropout_stream;
	PARALLEL(nt)
	{
		size_t		lo,
					hi;

		thread_range(n, PHILOX_WORDS, thread_index(), thread_count(), &lo, &hi);
		DTYPE_SWITCH(dtype, D, dropout_range(lo, hi, threshold, scale, seed, stream, x, y, D));
	}
	return STATUS_OK;
}

ALWAYS_INLINE void
add_range(size_t lo, size_t hi, const void *a, const void *b, void *y, const DType dtype)
{
	size_t		i;

	INDEPENDENT
	for (i = lo; i < hi; i++)
		store(y, i, load(a, i, dtype) + load(b, i, dtype), dtype);
}

Status
op_add(Backend *be, size_t n, const void *a, const void *b, void *y, DType dtype, Error *err)
{
	int			nt = threads_for(be, (double) (n * 3 * dtype_bytes(dtype)) * MEMORY_NS_PER_BYTE);

	TRY(cpu_check_dtype(dtype, "addition", err));
	PARALLEL(nt)
	{
		size_t		lo,
					hi;

		thread_range(n, 64, thread_index(), thread_count(), &lo, &hi);
		DTYPE_SWITCH(dtype, D, add_range(lo, hi, a, b, y, D));
	}
	return STATUS_OK;
}

ALWAYS_INLINE void
cast_range(size_t lo, size_t hi, const float *x, void *y, const DType dtype)
{
	size_t		i;

	INDEPENDENT
	for (i = lo; i < hi; i++)
		store(y, i, x[i], dtype);
}

Status
op_cast(Backend *be, size_t n, const float *x, void *y, DType dtype, Error *err)
{
	int			nt = threads_for(be, (double) n * 6.0 * MEMORY_NS_PER_BYTE);

	TRY(cpu_check_dtype(dtype, "conversion", err));
	PARALLEL(nt)
	{
		size_t		lo,
					hi;

		thread_range(n, 64, thread_index(), thread_count(), &lo, &hi);
		DTYPE_SWITCH(dtype, D, cast_range(lo, hi, x, y, D));
	}
	return STATUS_OK;
}
