/*
 * loss.cu - losses with their gradients in one pass.
 *
 * Blocks leave their sums in workspace, one block adds them up.  A target that is no class is noted in pinned memory,
 * where sync finds it.
 */
#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.h"

/* Blocks of the first stage. */
#define LOSS_BLOCKS 512

#define NO_ROW UINT64_MAX

typedef struct LossArgs
{
	size_t		m,
				c;
	const float *logits;		/* (m, c) */
	const void *targets;		/* (m) or (m, c) */
	float		grad_scale;
	const StepState *state;		/* or NULL */
	void	   *dlogits;		/* (m, c) or NULL */
} LossArgs;

/* A thread's, then a block's share. */
typedef struct LossPart
{
	double		loss,
				correct,
				squared_error,
				absolute_error;
	uint64_t	bad_row;		/* the first one, or NO_ROW */
} LossPart;

DEVICE_INLINE float
scale_of(const LossArgs *a)
{
	return a->grad_scale * (a->state != NULL ? a->state->loss_scale : 1.0f);
}

/* The smallest of a block's values; every thread gets it. */
static __device__ uint64_t
block_min(uint64_t v)
{
	__shared__ uint64_t slot[BLOCK / WARP];
	uint64_t	least = NO_ROW;

	for (int lanes = WARP / 2; lanes > 0; lanes /= 2)
	{
		uint64_t	other = __shfl_xor_sync(ALL_LANES, v, lanes);

		v = other < v ? other : v;
	}
	if (threadIdx.x % WARP == 0)
		slot[threadIdx.x / WARP] = v;
	__syncthreads();
	for (int i = 0; i < BLOCK / WARP; i++)
		least = slot[i] < least ? slot[i] : least;
	__syncthreads();
	return least;
}

/* The block's share from those of its threads; thread 0 has it. */
static __device__ LossPart
block_part(const LossPart *mine)
{
	LossPart	part;

	part.loss = block_sum(mine->loss);
	part.correct = block_sum(mine->correct);
	part.squared_error = block_sum(mine->squared_error);
	part.absolute_error = block_sum(mine->absolute_error);
	part.bad_row = block_min(mine->bad_row);
	return part;
}

/* A warp takes a row at a time, a lane every 32nd logit. */
template <DType D>
static __global__ void
cross_entropy_kernel(LossArgs a, LossPart *parts)
{
	const int32_t *targets = (const int32_t *) a.targets;
	size_t		c = a.c,
				lane = threadIdx.x % WARP;
	float		scale = scale_of(&a);
	LossPart	mine = {0, 0, 0, 0, NO_ROW};

	for (size_t row = THREAD_INDEX / WARP; row < a.m; row += THREAD_COUNT / WARP)
	{
		const float *x = a.logits + row * c;
		int32_t		target = targets[row];
		float		max = lane < c ? x[lane] : -INFINITY,
					sum = 0.0f,
					factor;
		size_t		best = lane;

		if (target < 0 || (size_t) target >= c)
		{
			mine.bad_row = row < mine.bad_row ? row : mine.bad_row;
			continue;
		}
		for (size_t j = lane + WARP; j < c; j += WARP)
			if (x[j] > max)
			{
				max = x[j];
				best = j;
			}
		/* the first of several equal ones */
		for (int lanes = WARP / 2; lanes > 0; lanes /= 2)
		{
			float		other = __shfl_xor_sync(ALL_LANES, max, lanes);
			size_t		other_best = __shfl_xor_sync(ALL_LANES, best, lanes);

			if (other > max || (other == max && other_best < best))
			{
				max = other;
				best = other_best;
			}
		}
		/* A NaN may have left lanes of different opinions, but shows in the sum. */
		for (size_t j = lane; j < c; j += WARP)
			sum += math_exp(x[j] - max);
		sum = warp_sum(sum);
		if (lane == 0)
		{
			mine.loss += log((double) sum) + (double) max - (double) x[target];
			/* A row with a NaN has no largest logit. */
			mine.correct += sum == sum && best == (size_t) target;
		}
		if (a.dlogits == NULL)
			continue;
		factor = scale / sum;
		for (size_t j = lane; j < c; j += WARP)
			store<D>(a.dlogits, row * c + j, math_exp(x[j] - max) * factor - (j == (size_t) target ? scale : 0.0f));
	}
	mine = block_part(&mine);
	if (threadIdx.x == 0)
		parts[blockIdx.x] = mine;
}

template <DType D>
static __global__ void
bce_kernel(LossArgs a, LossPart *parts)
{
	const int32_t *targets = (const int32_t *) a.targets;
	float		scale = scale_of(&a);
	LossPart	mine = {0, 0, 0, 0, NO_ROW};

	for (size_t row = THREAD_INDEX; row < a.m; row += THREAD_COUNT)
	{
		float		x = a.logits[row],
					t = (float) targets[row];

		if ((uint32_t) targets[row] > 1)
		{
			mine.bad_row = row < mine.bad_row ? row : mine.bad_row;
			continue;
		}
		/* -log of the probability of the true class: softplus(-x) for class 1, softplus(x) for class 0 */
		mine.loss += (double) math_softplus(x * (1.0f - 2.0f * t));
		mine.correct += x == x && (x > 0.0f) == (t > 0.0f);
		if (a.dlogits != NULL)
			store<D>(a.dlogits, row, scale * (math_sigmoid(x) - t));
	}
	mine = block_part(&mine);
	if (threadIdx.x == 0)
		parts[blockIdx.x] = mine;
}

/* Mean squared error, or smooth L1 with beta = 1. */
template <DType D>
static __global__ void
regression_kernel(LossArgs a, int smooth, LossPart *parts)
{
	const float *targets = (const float *) a.targets;
	float		factor = scale_of(&a) / (float) a.c;
	LossPart	mine = {0, 0, 0, 0, NO_ROW};

	for (size_t i = THREAD_INDEX; i < a.m * a.c; i += THREAD_COUNT)
	{
		float		d = a.logits[i] - targets[i],
					size = math_abs(d);

		mine.squared_error += (double) d * (double) d;
		mine.absolute_error += (double) size;
		if (smooth)
			mine.loss += (double) (size < 1.0f ? 0.5f * d * d : size - 0.5f);
		if (a.dlogits != NULL)
		{
			float		clipped = d > 1.0f ? 1.0f : (d < -1.0f ? -1.0f : d);

			store<D>(a.dlogits, i, factor * (smooth ? clipped : 2.0f * d));
		}
	}
	mine = block_part(&mine);
	if (threadIdx.x == 0)
	{
		mine.loss = (smooth ? mine.loss : mine.squared_error) / (double) a.c;
		parts[blockIdx.x] = mine;
	}
}

/* A batch with a bad target is noted, and not counted. */
static __global__ void
loss_sums_kernel(int blocks, const LossPart *parts, double rows, const void *targets, uint64_t classes,
				 LossSums *sums, DataError *error)
{
	LossPart	mine = {0, 0, 0, 0, NO_ROW};

	for (int i = (int) threadIdx.x; i < blocks; i += BLOCK)
	{
		mine.loss += parts[i].loss;
		mine.correct += parts[i].correct;
		mine.squared_error += parts[i].squared_error;
		mine.absolute_error += parts[i].absolute_error;
		mine.bad_row = parts[i].bad_row < mine.bad_row ? parts[i].bad_row : mine.bad_row;
	}
	mine = block_part(&mine);
	if (threadIdx.x != 0)
		return;
	if (mine.bad_row == NO_ROW)
	{
		sums->loss += mine.loss;
		sums->correct += mine.correct;
		sums->squared_error += mine.squared_error;
		sums->absolute_error += mine.absolute_error;
		sums->rows += rows;
	}
	else if (!error->set)
	{
		error->target = ((const int32_t *) targets)[mine.bad_row];
		error->row = mine.bad_row;
		error->classes = classes;
		error->set = 1;
	}
}

Status
op_loss(Backend *be, LossKind kind, size_t m, size_t c, const float *logits, const void *targets, float grad_scale,
		const StepState *state, void *dlogits, DType dtype, LossSums *sums, Error *err)
{
	LossArgs	args = {m, c, logits, targets, grad_scale, state, dlogits};
	size_t		work = kind == LOSS_CROSS_ENTROPY ? m * WARP : m * c;
	unsigned	blocks = (unsigned) min_size(grid_for(be, ceil_div(work, BLOCK)), LOSS_BLOCKS);
	LossPart   *parts;
	void	   *workspace;

	TRY(cuda_check_dtype(dtype, "loss", err));
	if ((unsigned) kind > LOSS_SMOOTH_L1)
		return error_set(err, STATUS_INTERNAL, "unknown loss %d", (int) kind);
	if (c == 0 || (kind == LOSS_BCE_WITH_LOGITS && c != 1))
		return error_set(err, STATUS_INTERNAL, "loss %d does not take %zu outputs", (int) kind, c);
	TRY(cuda_workspace(be, WORKSPACE_REDUCE, LOSS_BLOCKS * sizeof(LossPart), &workspace, err));
	parts = (LossPart *) workspace;
	switch (kind)
	{
		case LOSS_CROSS_ENTROPY:
			DTYPE_SWITCH(dtype, D, LAUNCH((cross_entropy_kernel<D>), blocks, BLOCK, 0, be->stream, args, parts));
			break;
		case LOSS_BCE_WITH_LOGITS:
			DTYPE_SWITCH(dtype, D, LAUNCH((bce_kernel<D>), blocks, BLOCK, 0, be->stream, args, parts));
			break;
		case LOSS_MSE:
		case LOSS_SMOOTH_L1:
			DTYPE_SWITCH(dtype, D, LAUNCH((regression_kernel<D>), blocks, BLOCK, 0, be->stream, args,
										  kind == LOSS_SMOOTH_L1, parts));
			break;
	}
	TRY(cuda_launched("loss", err));
	LAUNCH(loss_sums_kernel, 1, BLOCK, 0, be->stream, (int) blocks, parts, (double) m, targets,
		   (uint64_t) (kind == LOSS_BCE_WITH_LOGITS ? 2 : c), sums, be->data_error);
	return cuda_launched("loss", err);
}
