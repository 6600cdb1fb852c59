/*
 * test_gradients.c - the backward pass against central differences of the loss, through whole networks.
 */
#include "regress/unit/engine/common.h"

typedef struct GradientCase
{
	const char *layers;
	RowShape	input;
	LossKind	loss;
	size_t		rows;
} GradientCase;

/* The slope of the loss when a tensor moves along a direction. */
static double
slope(Bench *b, int32_t tensor, const float *values, const float *direction, double step)
{
	size_t		n = b->net->tensors.tensors[tensor].header.values,
				i;
	float	   *moved = calloc(n, sizeof(float));
	double		up,
				down;
	Error		err;

	for (i = 0; i < n; i++)
		moved[i] = (float) (values[i] + step * direction[i]);
	network_set_tensor(b->net, tensor, moved, &err);
	up = bench_loss(b, false);
	for (i = 0; i < n; i++)
		moved[i] = (float) (values[i] - step * direction[i]);
	network_set_tensor(b->net, tensor, moved, &err);
	down = bench_loss(b, false);
	network_set_tensor(b->net, tensor, values, &err);
	free(moved);
	return (up - down) / (2 * step);
}

static void
check_tensor(Bench *b, const GradientCase *c, int32_t tensor)
{
	size_t		n = b->net->tensors.tensors[tensor].header.values,
				i;
	float	   *values = bench_tensor(b, tensor),
			   *gradient = bench_gradient(b, tensor),
			   *direction = malloc(n * sizeof(float));
	double		norm = 0,
				scale;
	int			k;

	for (i = 0; i < n; i++)
		norm += (double) gradient[i] * gradient[i];
	norm = sqrt(norm);
	/* a bias before a batch norm has no influence: then both sides are rounding */
	scale = norm + 1e-3;
	for (k = 0; k < 5; k++)
	{
		/*
		 * The loss is exact to about 1e-7 of itself, so the slope to 1e-7 / step; the cubic term grows with the
		 * square of the step.  Where a relu or a maximum switches within a step the slope means nothing, and a
		 * smaller step has fewer of those: a right gradient agrees with one of them, a wrong one with none.
		 */
		static const double steps[] = {4e-3, 1e-3, 3e-4, 5e-5};
		double		expected = 0,
					length = 0,
					numeric = 0;
		bool		agrees = false;
		size_t		s;

		/* the gradient itself, two random directions, two single coordinates */
		for (i = 0; i < n; i++)
		{
			direction[i] = k == 0 ? gradient[i] / (float) (norm + 1e-12) :
				k <= 2 ? test_random(100 + k, i) :
				i == (size_t) ((test_random(200 + k, tensor) + 1) / 2 * n);
			length += (double) direction[i] * direction[i];
		}
		length = sqrt(length) + 1e-12;
		for (i = 0; i < n; i++)
		{
			direction[i] = (float) (direction[i] / length);
			expected += (double) direction[i] * gradient[i];
		}
		for (s = 0; s < sizeof(steps) / sizeof(steps[0]) && !agrees; s++)
		{
			numeric = slope(b, tensor, values, direction, steps[s]);
			/* 1 % of the gradient, and what a loss of about 1 in fp32 leaves of digits */
			agrees = fabs(numeric - expected) <= 0.01 * scale + 3e-4;
		}
		if (!agrees)
			test_fail(__FILE__, __LINE__, "%s, %zu rows: %s, direction %d: slope %g, gradient %g (norm %g)", c->layers, c->rows,
					  b->net->tensors.tensors[tensor].header.name, k, numeric, expected, norm);
	}
	free(values);
	free(gradient);
	free(direction);
}

static void
check_case(const GradientCase *c, int flags)
{
	Bench		b = bench_create(c->layers, c->input, c->loss, c->rows, DTYPE_F32, flags);
	double		loss = bench_loss(&b, true);
	double		total = 0;
	int32_t		t;

	CHECK(isfinite(loss), "%s: loss %g", c->layers, loss);
	for (t = 0; t < b.net->tensors.count; t++)
	{
		float	   *gradient;
		int64_t		i;

		if (!b.net->tensors.tensors[t].trainable)
			continue;
		gradient = bench_gradient(&b, t);
		for (i = 0; i < b.net->tensors.tensors[t].header.values; i++)
			total += fabs(gradient[i]);
		free(gradient);
	}
	CHECK(total > 1e-3, "%s: all gradients are zero", c->layers);
	for (t = 0; t < b.net->tensors.count; t++)
		if (b.net->tensors.tensors[t].trainable)
		{
			bench_loss(&b, true);
			check_tensor(&b, c, t);
		}
	bench_free(&b);
}

static void
check_cases(const GradientCase *cases, size_t n)
{
	size_t		i;

	for (i = 0; i < n; i++)
	{
		check_case(&cases[i], 0);
		check_case(&cases[i], PROGRAM_NO_FUSION);
	}
}

#define CHECK_CASES(...) \
	do { \
		const GradientCase cases_[] = {__VA_ARGS__}; \
		check_cases(cases_, sizeof(cases_) / sizeof(cases_[0])); \
	} while (0)

TEST(gradients_of_losses)
{
	CHECK_CASES({"linear:5 tanh linear:3", FLAT(4), LOSS_CROSS_ENTROPY, 9},
				{"linear:5 tanh linear:1", FLAT(4), LOSS_BCE_WITH_LOGITS, 9},
				{"linear:5 tanh linear:2", FLAT(4), LOSS_MSE, 9},
				{"linear:5 tanh linear:1", FLAT(4), LOSS_SMOOTH_L1, 9},
				{"linear:3", FLAT(1), LOSS_CROSS_ENTROPY, 1});
}

TEST(gradients_of_activations)
{
	CHECK_CASES({"linear:7 relu linear!:6 gelu linear:5 sigmoid linear:3", FLAT(5), LOSS_CROSS_ENTROPY, 8},
				{"linear:6 relu tanh relu sigmoid gelu gelu linear:2", FLAT(5), LOSS_MSE, 3},
				{"tanh linear:4 tanh tanh linear:2", FLAT(3), LOSS_MSE, 1},
				{"relu linear:4 relu relu linear:2", FLAT(3), LOSS_MSE, 6});
}

TEST(gradients_of_norms_on_flat_features)
{
	CHECK_CASES({"linear:6 batchnorm tanh linear:3", FLAT(4), LOSS_CROSS_ENTROPY, 7},
				{"batchnorm linear:6 batchnorm relu linear:2", FLAT(3), LOSS_MSE, 11},
				{"linear:6 layernorm tanh linear:3", FLAT(4), LOSS_CROSS_ENTROPY, 7},
				{"layernorm linear:5 layernorm gelu linear:1", FLAT(3), LOSS_MSE, 1});
}

TEST(gradients_of_dropout)
{
	CHECK_CASES({"linear:16 relu dropout:0.3 linear:12 tanh dropout:0.5 linear:3", FLAT(4), LOSS_CROSS_ENTROPY, 6},
				{"dropout:0.2 linear:9 gelu dropout:0.4 relu dropout:0.1 linear:2", FLAT(5), LOSS_MSE, 4});
}

TEST(gradients_of_convolutions)
{
	CHECK_CASES({"conv2d:3,3,1,1 tanh flatten linear:3", IMAGE(2, 5, 4), LOSS_CROSS_ENTROPY, 3},
				{"conv2d!:4,2x3,2x1,1x0 relu conv2d:3,1 flatten linear:2", IMAGE(3, 7, 5), LOSS_MSE, 1},
				{"conv2d:2,5,3,2 sigmoid global_avgpool linear:3", IMAGE(1, 11, 9), LOSS_CROSS_ENTROPY, 4});
}

TEST(gradients_of_pools)
{
	CHECK_CASES({"conv2d:3,3,1,1 relu maxpool2d:2 flatten linear:3", IMAGE(1, 7, 6), LOSS_CROSS_ENTROPY, 4},
				{"conv2d:3,3 maxpool2d:3x2,2x1,1x1 relu flatten linear:2", IMAGE(2, 8, 7), LOSS_MSE, 2},
				{"conv2d:3,3 tanh avgpool2d:3,2,1 conv2d:2,2 avgpool2d:2 flatten linear:2", IMAGE(2, 9, 10), LOSS_MSE, 2},
				{"maxpool2d:2 relu conv2d:3,2 relu global_avgpool linear:2", IMAGE(2, 8, 6), LOSS_MSE, 1},
				{"conv2d:4,3 relu avgpool2d:2 batchnorm relu maxpool2d:2,1 flatten linear:3", IMAGE(1, 9, 9), LOSS_CROSS_ENTROPY, 3});
}

TEST(gradients_of_norms_on_images)
{
	CHECK_CASES({"conv2d:4,3,1,1 batchnorm relu flatten linear:3", IMAGE(2, 4, 5), LOSS_CROSS_ENTROPY, 3},
				{"conv2d:4,3 batchnorm gelu global_avgpool linear:2", IMAGE(1, 5, 5), LOSS_MSE, 1},
				{"conv2d:3,2 layernorm tanh flatten linear:3", IMAGE(2, 4, 3), LOSS_CROSS_ENTROPY, 4},
				{"conv2d:3,2 flatten batchnorm tanh layernorm linear:3", IMAGE(2, 4, 3), LOSS_CROSS_ENTROPY, 6});
}

TEST(gradients_through_residual_blocks)
{
	CHECK_CASES({"linear:6 [ linear:6 tanh ] linear:3", FLAT(4), LOSS_CROSS_ENTROPY, 5},
				{"linear:6 relu [ linear:4 relu [ linear:4 tanh linear:4 ] relu linear:6 ] relu linear:2", FLAT(3), LOSS_MSE, 5},
				{"[ linear:4 ] linear:2", FLAT(4), LOSS_MSE, 1},
				{"[ relu ] linear:3 [ tanh ] [ dropout:0.5 ] linear:2", FLAT(4), LOSS_MSE, 4},
				{"linear:5 [ [ [ linear:5 ] relu ] tanh ] linear:2", FLAT(4), LOSS_MSE, 4},
				{"conv2d:4,3,1,1 [ batchnorm relu conv2d:4,3,1,1 batchnorm relu conv2d:4,1 ] relu maxpool2d:2 flatten linear:3",
				IMAGE(2, 6, 5), LOSS_CROSS_ENTROPY, 3},
				{"conv2d:3,2 flatten [ linear:12 ] [ layernorm [ linear:5 tanh linear:12 relu ] ] linear:3",
				IMAGE(2, 3, 3), LOSS_CROSS_ENTROPY, 4},
				{"conv2d:3,2 relu [ maxpool2d:3,1,1 ] [ avgpool2d:3,1,1 ] flatten [ dropout:0.2 ] linear:2",
				IMAGE(2, 4, 4), LOSS_MSE, 3});
}

/* Fused and unfused programs do the same arithmetic; only the order of passes over memory differs. */
TEST(fusion_does_not_change_results)
{
	static const char *const layers[] = {
		"conv2d:4,3,1,1 relu maxpool2d:2 conv2d:5,3 maxpool2d:2 relu flatten linear:8 relu dropout:0.5 linear:3",
		"conv2d:4,3,1,1 relu conv2d:4,3,1,1 relu [ relu maxpool2d:3,1,1 ] flatten linear:6 tanh linear:7 sigmoid linear:3",
		"conv2d:4,3,1,1 gelu maxpool2d:2 relu flatten linear:9 gelu linear:3",
	};
	size_t		k;

	for (k = 0; k < sizeof(layers) / sizeof(layers[0]); k++)
	{
		Bench		fused = bench_create(layers[k], IMAGE(2, 10, 9), LOSS_CROSS_ENTROPY, 6, DTYPE_F32, 0);
		Bench		plain = bench_create(layers[k], IMAGE(2, 10, 9), LOSS_CROSS_ENTROPY, 6, DTYPE_F32, PROGRAM_NO_FUSION);
		int32_t		t;

		CHECK(fused.net->program.nops < plain.net->program.nops, "%s: nothing was fused", layers[k]);
		CHECK_CLOSE(bench_loss(&fused, true), bench_loss(&plain, true), 1e-6, 0);
		for (t = 0; t < fused.net->tensors.count; t++)
		{
			float	   *a = bench_gradient(&fused, t),
					   *b = bench_gradient(&plain, t);
			int64_t		i;

			for (i = 0; i < fused.net->tensors.tensors[t].header.values; i++)
				CHECK_CLOSE(a[i], b[i], 1e-4, 1e-6);
			free(a);
			free(b);
		}
		bench_free(&fused);
		bench_free(&plain);
	}
}

/* bf16 keeps 8 bits: the loss agrees to about 1 %, gradients in direction. */
TEST(bf16_follows_fp32)
{
	static const char *const layers[] = {
		"conv2d:8,3,1,1 relu maxpool2d:2 conv2d:8,3 batchnorm relu flatten linear:16 relu linear:4",
		"conv2d:8,3,1,1 layernorm gelu [ conv2d:8,3,1,1 tanh ] avgpool2d:2 flatten linear:4",
	};
	size_t		k;

	for (k = 0; k < sizeof(layers) / sizeof(layers[0]); k++)
	{
		Bench		low = bench_create(layers[k], IMAGE(2, 8, 8), LOSS_CROSS_ENTROPY, 16, DTYPE_BF16, 0);
		Bench		full = bench_create(layers[k], IMAGE(2, 8, 8), LOSS_CROSS_ENTROPY, 16, DTYPE_F32, 0);
		int32_t		t;

		CHECK_CLOSE(bench_loss(&low, true), bench_loss(&full, true), 0.02, 0);
		for (t = 0; t < full.net->tensors.count; t++)
		{
			float	   *a = bench_gradient(&low, t),
					   *b = bench_gradient(&full, t);
			double		dot = 0,
						aa = 0,
						bb = 0;
			int64_t		i;

			if (full.net->tensors.tensors[t].trainable)
			{
				for (i = 0; i < full.net->tensors.tensors[t].header.values; i++)
				{
					dot += (double) a[i] * b[i];
					aa += (double) a[i] * a[i];
					bb += (double) b[i] * b[i];
				}
				/* what stands before a batch norm gets a gradient of nearly nothing */
				if (bb > 1e-8)
					CHECK(dot / sqrt(aa * bb) > 0.97, "%s: %s: cosine %g", layers[k],
						  full.net->tensors.tensors[t].header.name, dot / sqrt(aa * bb));
			}
			free(a);
			free(b);
		}
		bench_free(&low);
		bench_free(&full);
	}
}
