/*
 * test_golden.c - losses, gradients and optimizer steps against PyTorch, tensor by tensor.
 *
 * PyTorch's values were computed in float64, so what differs is our fp32 rounding over a handful of layers.
 */
#include "regress/unit/engine/common.h"
#include "regress/unit/engine/golden.h"

#include "engine/optimizer.h"

#define RELATIVE 2e-4
#define ABSOLUTE 2e-6

static Bench
golden_bench(const Golden *g)
{
	Bench		b = bench_create(g->layers, g->input, g->loss, g->rows, DTYPE_F32, 0);

	memcpy(b.x, g->x, g->rows * shape_elements(g->input) * sizeof(float));
	memcpy(b.targets, g->targets, g->rows * 4);
	return b;
}

static void
golden_set(Bench *b, const Golden *g)
{
	const float *values = g->initial;
	int32_t		t;
	Error		err;

	for (t = 0; t < g->tensors; t++)
	{
		CHECK(network_set_tensor(b->net, t, values, &err) == STATUS_OK, "%s", err.message);
		values += b->net->tensors.tensors[t].header.values;
	}
}

/* Compare all tensors, got by get, with expected ones that stand one after the other. */
static void
compare(Bench *b, const Golden *g, const char *what, const float *expected, float *(*get) (Bench *, int32_t), bool statistics)
{
	int32_t		t;

	for (t = 0; t < g->tensors; t++)
	{
		const Tensor *tensor = &b->net->tensors.tensors[t];
		int64_t		i;

		if (tensor->trainable || statistics)
		{
			float	   *values = get(b, t);

			for (i = 0; i < tensor->header.values; i++)
				CHECK(test_close(values[i], expected[i], RELATIVE, ABSOLUTE),
					  "%s: %s of %s[%d] is %.8g, PyTorch has %.8g", g->layers, what, tensor->header.name,
					  (int) i, values[i], expected[i]);
			free(values);
		}
		expected += tensor->header.values;
	}
}

TEST(tensors_are_named_as_in_pytorch)
{
	size_t		k;
	int32_t		t;

	for (k = 0; k < GOLDENS; k++)
	{
		Bench		b = golden_bench(goldens[k]);

		CHECK(b.net->tensors.count == goldens[k]->tensors, "%d tensors, PyTorch has %d", b.net->tensors.count,
			  goldens[k]->tensors);
		for (t = 0; t < goldens[k]->tensors && t < b.net->tensors.count; t++)
			CHECK(strcmp(b.net->tensors.tensors[t].header.name, goldens[k]->names[t]) == 0, "tensor %d is %s, in PyTorch %s",
				  t, b.net->tensors.tensors[t].header.name, goldens[k]->names[t]);
		bench_free(&b);
	}
}

TEST(loss_and_gradients_are_those_of_pytorch)
{
	size_t		k;

	for (k = 0; k < GOLDENS; k++)
	{
		Bench		b = golden_bench(goldens[k]);

		golden_set(&b, goldens[k]);
		CHECK_CLOSE(bench_loss(&b, true), goldens[k]->train_loss, 1e-5, 0);
		compare(&b, goldens[k], "gradient", goldens[k]->gradients, bench_gradient, false);
		bench_free(&b);
	}
}

TEST(evaluation_is_that_of_pytorch)
{
	size_t		k,
				i;

	for (k = 0; k < GOLDENS; k++)
	{
		const Golden *g = goldens[k];
		Bench		b = golden_bench(g);
		float	   *logits = malloc(g->rows * g->outputs * sizeof(float));

		golden_set(&b, g);
		bench_eval(&b, logits);
		for (i = 0; i < g->rows * g->outputs; i++)
			CHECK_CLOSE(logits[i], g->eval_logits[i], 1e-4, 1e-5);
		free(logits);
		bench_free(&b);
	}
}

static void
check_steps(const char *what, OptimizerKind kind, float lr, float weight_decay, const float *(*expected) (const Golden *))
{
	size_t		k;
	int			step;

	for (k = 0; k < GOLDENS; k++)
	{
		Bench		b = golden_bench(goldens[k]);
		TrainSpec	spec = {
			.optimizer = kind,.learning_rate = lr,.weight_decay = weight_decay,.momentum = 0.8f,.nesterov = 1,
			.beta1 = 0.85f,.beta2 = 0.97f,.eps = 1e-2f
		};
		Optimizer	opt;
		Error		err;

		golden_set(&b, goldens[k]);
		REQUIRE(optimizer_create(b.net, &spec, &opt, &err) == STATUS_OK);
		for (step = 0; step < 3; step++)
		{
			bench_loss(&b, true);
			CHECK(optimizer_begin(&opt, 0, &err) == STATUS_OK && optimizer_step(&opt, &err) == STATUS_OK, "%s", err.message);
		}
		compare(&b, goldens[k], what, expected(goldens[k]), bench_tensor, true);
		optimizer_free(&opt);
		bench_free(&b);
	}
}

static const float *
after_adam(const Golden *g)
{
	return g->after_adam;
}

static const float *
after_adamw(const Golden *g)
{
	return g->after_adamw;
}

static const float *
after_sgd(const Golden *g)
{
	return g->after_sgd;
}

/* Running statistics are compared, too: three training batches have moved them. */
TEST(adam_steps_are_those_of_pytorch)
{
	check_steps("after Adam", OPTIMIZER_ADAM, 0.02f, 0.03f, after_adam);
}

TEST(adamw_steps_are_those_of_pytorch)
{
	check_steps("after AdamW", OPTIMIZER_ADAMW, 0.02f, 0.2f, after_adamw);
}

TEST(sgd_steps_with_nesterov_are_those_of_pytorch)
{
	check_steps("after SGD", OPTIMIZER_SGD, 0.05f, 0.03f, after_sgd);
}
