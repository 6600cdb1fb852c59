/*
 * loss.c - losses with their gradients in one pass.  Compiled once per instruction set.
 */
#include "kernels/cpu/element.h"
#include "kernels/cpu/ops.h"

#include <math.h>
#include <string.h>

/* Estimate of the time for a logit, exponential included. */
#define LOSS_NS 1.0

/* Rows of binary cross entropy that are computed together. */
#define BCE_ROWS 64

typedef struct LossArgs
{
	size_t		c;
	const float *logits;		/* (m, c) */
	const void *targets;		/* (m) or (m, c) */
	float		grad_scale;
	void	   *dlogits;		/* (m, c) or NULL */
} LossArgs;

/* e (c) gets e^(x - max); returns their sum. */
ALWAYS_INLINE float
exp_row(size_t c, const float *x, float max, float *e)
{
	float		lane[16] = {0},
				sum = 0;
	size_t		i,
				j;

	for (i = 0; i + 16 <= c; i += 16)
		for (j = 0; j < 16; j++)
		{
			float		v = math_exp(x[i + j] - max);

			e[i + j] = v;
			lane[j] += v;
		}
	for (; i < c; i++)
	{
		e[i] = math_exp(x[i] - max);
		sum += e[i];
	}
	for (j = 0; j < 16; j++)
		sum += lane[j];
	return sum;
}

/* scratch is (c) */
ALWAYS_INLINE Status
cross_entropy_rows(size_t lo, size_t hi, const LossArgs *a, float *scratch, LossSums *sums,
				   const DType dtype, size_t *bad_row)
{
	const int32_t *target = a->targets;
	size_t		c = a->c,
				row,
				j;

	for (row = lo; row < hi; row++)
	{
		const float *x = a->logits + row * c;
		float		max = x[0],
					sum;
		size_t		best = 0;

		if (target[row] < 0 || (size_t) target[row] >= c)
		{
			*bad_row = row;
			return STATUS_INVALID;
		}
		for (j = 1; j < c; j++)
			if (x[j] > max)
			{
				max = x[j];
				best = j;
			}
		sum = exp_row(c, x, max, scratch);
		sums->loss += log((double) sum) + (double) max - (double) x[target[row]];
		/* A row with a NaN has no largest logit. */
		sums->correct += sum == sum && best == (size_t) target[row];
		if (a->dlogits != NULL)
		{
			float		factor = a->grad_scale / sum;
			void	   *d = element(a->dlogits, dtype, row * c);

			for (j = 0; j < c; j++)
				store(d, j, scratch[j] * factor, dtype);
			j = (size_t) target[row];
			store(d, j, scratch[j] * factor - a->grad_scale, dtype);
		}
	}
	return STATUS_OK;
}

ALWAYS_INLINE Status
bce_rows(size_t lo, size_t hi, const LossArgs *a, LossSums *sums, const DType dtype, size_t *bad_row)
{
	const int32_t *target = a->targets;
	size_t		row,
				j;

	for (row = lo; row < hi; row += BCE_ROWS)
	{
		size_t		count = min_size(BCE_ROWS, hi - row);
		float		x[BCE_ROWS] = {0},
					t[BCE_ROWS] = {0},
					loss[BCE_ROWS],
					grad[BCE_ROWS];
		int			bad = 0;

		memcpy(x, a->logits + row, count * sizeof(float));
		for (j = 0; j < count; j++)
		{
			bad |= (uint32_t) target[row + j] > 1;
			t[j] = (float) target[row + j];
		}
		if (bad)
		{
			while ((uint32_t) target[row] <= 1)
				row++;
			*bad_row = row;
			return STATUS_INVALID;
		}
		for (j = 0; j < BCE_ROWS; j++)
		{
			/* -log of the probability of the true class: softplus(-x) for class 1, softplus(x) for class 0 */
			float		toward = x[j] * (1.0f - 2.0f * t[j]);

			loss[j] = math_softplus(toward);
			grad[j] = a->grad_scale * (math_sigmoid(x[j]) - t[j]);
		}
		for (j = 0; j < count; j++)
		{
			sums->loss += (double) loss[j];
			sums->correct += x[j] == x[j] && (x[j] > 0.0f) == (t[j] > 0.0f);
		}
		if (a->dlogits != NULL)
			for (j = 0; j < count; j++)
				store(a->dlogits, row + j, grad[j], dtype);
	}
	return STATUS_OK;
}

/* Mean squared error, or smooth L1 with beta = 1. */
ALWAYS_INLINE Status
regression_rows(size_t lo, size_t hi, const LossArgs *a, const int smooth, LossSums *sums, const DType dtype)
{
	const float *target = a->targets;
	float		factor = a->grad_scale / (float) a->c;
	double		squared = 0,
				absolute = 0,
				loss = 0;
	size_t		i;

	for (i = lo * a->c; i < hi * a->c; i++)
	{
		float		d = a->logits[i] - target[i],
					ad = math_abs(d);

		squared += (double) d * (double) d;
		absolute += (double) ad;
		if (smooth)
			loss += (double) (ad < 1.0f ? 0.5f * d * d : ad - 0.5f);
		if (a->dlogits != NULL)
		{
			float		clipped = d > 1.0f ? 1.0f : (d < -1.0f ? -1.0f : d);

			store(a->dlogits, i, factor * (smooth ? clipped : 2.0f * d), dtype);
		}
	}
	sums->squared_error += squared;
	sums->absolute_error += absolute;
	sums->loss += (smooth ? loss : squared) / (double) a->c;
	return STATUS_OK;
}

static Status
loss_rows(LossKind kind, size_t lo, size_t hi, const LossArgs *a, float *scratch, LossSums *sums,
		  DType dtype, size_t *bad_row)
{
	Status		status = STATUS_OK;

	switch (kind)
	{
		case LOSS_CROSS_ENTROPY:
			DTYPE_SWITCH(dtype, D, status = cross_entropy_rows(lo, hi, a, scratch, sums, D, bad_row));
			break;
		case LOSS_BCE_WITH_LOGITS:
			DTYPE_SWITCH(dtype, D, status = bce_rows(lo, hi, a, sums, D, bad_row));
			break;
		case LOSS_MSE:
			DTYPE_SWITCH(dtype, D, status = regression_rows(lo, hi, a, 0, sums, D));
			break;
		case LOSS_SMOOTH_L1:
			DTYPE_SWITCH(dtype, D, status = regression_rows(lo, hi, a, 1, sums, D));
			break;
	}
	return status;
}

/* A thread's share of a loss, on its own cache lines. */
typedef struct LossPart
{
	LossSums	sums;
	size_t		bad_row;
	Status		status;
	char		padding[CPU_ALIGNMENT];
} LossPart;

Status
op_loss(Backend *be, LossKind kind, size_t m, size_t c, const float *logits, const void *targets,
		float grad_scale, const StepState *state, void *dlogits, DType dtype, LossSums *sums, Error *err)
{
	LossArgs	args = {c, logits, targets, grad_scale * (state == NULL ? 1.0f : state->loss_scale), dlogits};
	int			nt = threads_for(be, (double) m * (double) c * LOSS_NS);
	size_t		stride = round_up(c * sizeof(float), CPU_ALIGNMENT),
				parts = round_up(sizeof(LossPart) * (size_t) nt, CPU_ALIGNMENT);
	LossPart   *part;
	void	   *workspace;
	int			i;

	TRY(cpu_check_dtype(dtype, "loss", err));
	if ((unsigned) kind > LOSS_SMOOTH_L1)
		return error_set(err, STATUS_INTERNAL, "unknown loss %d", (int) kind);
	if (c == 0 || (kind == LOSS_BCE_WITH_LOGITS && c != 1))
		return error_set(err, STATUS_INTERNAL, "loss %d does not take %zu outputs", (int) kind, c);
	TRY(cpu_workspace(be, WORKSPACE_REDUCE, parts + stride * (size_t) nt, &workspace, err));
	part = workspace;
	memset(part, 0, parts);
	PARALLEL(nt)
	{
		int			t = thread_index();
		size_t		lo,
					hi;

		thread_range(m, 16, t, thread_count(), &lo, &hi);
		part[t].status = loss_rows(kind, lo, hi, &args,
								   (float *) ((char *) workspace + parts + stride * (size_t) t),
								   &part[t].sums, dtype, &part[t].bad_row);
	}
	for (i = 0; i < nt; i++)
		if (part[i].status != STATUS_OK)
			return error_set(err, STATUS_INVALID, "target %d of row %zu is not a class below %zu",
							 (int) ((const int32_t *) targets)[part[i].bad_row], part[i].bad_row,
							 kind == LOSS_BCE_WITH_LOGITS ? 2 : c);
	for (i = 0; i < nt; i++)
	{
		sums->loss += part[i].sums.loss;
		sums->correct += part[i].sums.correct;
		sums->squared_error += part[i].sums.squared_error;
		sums->absolute_error += part[i].sums.absolute_error;
	}
	sums->rows += (double) m;
	return STATUS_OK;
}
