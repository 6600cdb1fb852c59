/*
 * kernels.c - times of the CPU backend's operations, for the layers of the three networks that this project is
 * measured by.
 *
 *     kernels [-t threads] [-i isa] [-b] [-c] [-s seconds] [filter]
 *
 * -b: in bf16.  -c: measure processor time, for one thread on a machine that others use as well.  Prints for every
 * operation the best and the median time of a call and what the best is in GFLOP/s or GB/s, and the sums over a
 * training step.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kernels/backend.h"
#include "kernels/cpu/cpu.h"

#define MAX_SAMPLES 1001

static const BackendOps *ops;
static Backend *be;
static Error error;
static DType dtype = DTYPE_F32;
static double step_best_ms,
			step_median_ms;
static double budget_seconds = 0.25;
static clockid_t measured_clock = CLOCK_MONOTONIC;
static const char *filter = "";

static double
now(clockid_t which)
{
	struct timespec t;

	clock_gettime(which, &t);
	return (double) t.tv_sec + 1e-9 * (double) t.tv_nsec;
}

static void *
tensor(size_t n)
{
	void	   *t;
	float	   *host = malloc(n * sizeof(float));
	size_t		i;
	unsigned	state = 12345;

	for (i = 0; i < n; i++)
	{
		state = state * 1664525 + 1013904223;
		host[i] = (float) (state >> 8) / 16777216.0f - 0.5f;
	}
	if (ops->alloc(be, n * sizeof(float), &t, &error) != STATUS_OK
		|| ops->cast(be, n, host, t, dtype, &error) != STATUS_OK)
	{
		fprintf(stderr, "%s\n", error.message);
		exit(1);
	}
	free(host);
	return t;
}

static int
compare(const void *a, const void *b)
{
	double		x = *(const double *) a,
				y = *(const double *) b;

	return (x > y) - (x < y);
}

static void
report(const char *name, double *samples, int n, double flops, double bytes)
{
	double		best,
				median;

	qsort(samples, (size_t) n, sizeof(double), compare);
	best = samples[0] * 1e3;
	median = samples[n / 2] * 1e3;
	step_best_ms += best;
	step_median_ms += median;
	printf("  %-34s %9.4f ms %9.4f ms", name, best, median);
	if (flops > 0)
		printf(" %8.1f GFLOP/s", flops / best * 1e-6);
	else if (bytes > 0)
		printf(" %8.1f GB/s", bytes / best * 1e-6);
	printf("\n");
}

/* Time a call; flops or bytes is what it does. */
#define TIME(name, flops, bytes, call) \
	do { \
		static double samples[MAX_SAMPLES]; \
		int			count = 0; \
		double		end; \
		if (strstr(name, filter) == NULL) \
			break; \
		if ((call) != STATUS_OK || (call) != STATUS_OK) \
		{ \
			printf("  %-34s %s\n", name, error.message); \
			break; \
		} \
		end = now(CLOCK_MONOTONIC) + budget_seconds; \
		do { \
			double		start = now(measured_clock); \
			(void) (call); \
			samples[count++] = now(measured_clock) - start; \
		} while (count < MAX_SAMPLES && (count < 5 || now(CLOCK_MONOTONIC) < end)); \
		report(name, samples, count, flops, bytes); \
	} while (0)

static void
linear(const char *name, size_t m, size_t n, size_t k, Activation act, int first)
{
	void	   *x = tensor(m * k),
			   *w = tensor(n * k),
			   *b = tensor(n),
			   *y = tensor(m * n),
			   *dw = tensor(n * k);
	double		flops = 2.0 * (double) m * (double) n * (double) k;
	char		label[64];

	snprintf(label, sizeof(label), "%s forward", name);
	TIME(label, flops, 0, ops->linear_fwd(be, m, n, k, x, w, b, act, y, dtype, dtype, &error));
	snprintf(label, sizeof(label), "%s backward weight", name);
	TIME(label, flops, 0, ops->linear_bwd_weight(be, m, n, k, y, x, dw, b, 0, dtype, &error));
	if (!first)
	{
		snprintf(label, sizeof(label), "%s backward data", name);
		TIME(label, flops, 0, ops->linear_bwd_data(be, m, n, k, y, w, x, dtype, &error));
	}
	if (act != ACT_NONE)
	{
		snprintf(label, sizeof(label), "%s relu backward", name);
		TIME(label, 0, 12.0 * (double) (m * n), ops->act_bwd(be, ACT_RELU, m * n, y, y, y, dtype, &error));
	}
	ops->free(be, x, m * k * 4);
	ops->free(be, w, n * k * 4);
	ops->free(be, b, n * 4);
	ops->free(be, y, m * n * 4);
	ops->free(be, dw, n * k * 4);
}

/* A 3 x 3 convolution with padding, followed by 2 x 2 max pooling with the activation. */
static void
conv(const char *name, size_t n, int c_in, int size, int c_out, int first)
{
	Conv2dShape s = {c_in, size, size, c_out, 3, 3, 1, 1, 1, 1, size, size},
				p = {c_out, size, size, c_out, 2, 2, 2, 2, 0, 0, size / 2, size / 2};
	size_t		in = n * (size_t) (size * size * c_in),
				out = n * (size_t) (size * size * c_out);
	void	   *x = tensor(in),
			   *w = tensor((size_t) (9 * c_in * c_out)),
			   *b = tensor((size_t) c_out),
			   *y = tensor(out),
			   *pooled = tensor(out / 4),
			   *argmax = tensor(out / 4);
	double		flops = 2.0 * (double) out * 9 * c_in;
	char		label[64];

	snprintf(label, sizeof(label), "%s forward", name);
	TIME(label, flops, 0, ops->conv2d_fwd(be, &s, n, x, w, b, ACT_NONE, y, dtype, &error));
	snprintf(label, sizeof(label), "%s pool forward", name);
	TIME(label, 0, 5.25 * (double) out, ops->maxpool2d_fwd(be, &p, n, y, 1, pooled, argmax, dtype, &error));
	snprintf(label, sizeof(label), "%s pool backward", name);
	TIME(label, 0, 5.25 * (double) out, ops->maxpool2d_bwd(be, &p, n, pooled, argmax, y, dtype, &error));
	snprintf(label, sizeof(label), "%s backward weight", name);
	TIME(label, flops, 0, ops->conv2d_bwd_weight(be, &s, n, y, x, w, b, 0, dtype, &error));
	if (!first)
	{
		snprintf(label, sizeof(label), "%s backward data", name);
		TIME(label, flops, 0, ops->conv2d_bwd_data(be, &s, n, y, w, x, dtype, &error));
	}
	ops->free(be, x, in * 4);
	ops->free(be, w, (size_t) (9 * c_in * c_out) * 4);
	ops->free(be, b, (size_t) c_out * 4);
	ops->free(be, y, out * 4);
	ops->free(be, pooled, out);
	ops->free(be, argmax, out);
}

static void
finish(const char *network, size_t parameters, LossKind kind, size_t m, size_t c)
{
	DType		saved = dtype;
	void	   *p,
			   *g,
			   *mm,
			   *v,
			   *logits,
			   *targets,
			   *sums;
	AdamArgs	args = {0.9f, 0.999f, 1e-8f, 0, 0};
	StepState	state = {.lr = 1e-3f,.loss_scale = 1,.grad_multiplier = 1,.step = 10};

	dtype = DTYPE_F32;
	p = tensor(parameters);
	g = tensor(parameters);
	mm = tensor(parameters);
	v = tensor(parameters);
	logits = tensor(m * c);
	targets = tensor(m * c);
	sums = tensor(64);
	ops->zero(be, targets, m * c * 4, &error);
	ops->zero(be, v, parameters * 4, &error);
	TIME("loss", 0, 8.0 * (double) (m * c),
		 ops->loss(be, kind, m, c, logits, targets, 1.0f / (float) m, NULL, logits, dtype, sums, &error));
	TIME("adam", 0, 28.0 * (double) parameters,
		 ops->adam_step(be, parameters, p, g, mm, v, &args, &state, NULL, DTYPE_F32, &error));
	dtype = saved;
	ops->free(be, p, parameters * 4);
	ops->free(be, g, parameters * 4);
	ops->free(be, mm, parameters * 4);
	ops->free(be, v, parameters * 4);
	ops->free(be, logits, m * c * 4);
	ops->free(be, targets, m * c * 4);
	ops->free(be, sums, 256);
	printf("  %-34s %9.4f ms %9.4f ms\n\n", network, step_best_ms, step_median_ms);
	step_best_ms = step_median_ms = 0;
}

static void
dropout(size_t n)
{
	void	   *x = tensor(n);

	TIME("dropout", 0, 8.0 * (double) n, ops->dropout(be, n, 0.5f, 1, 2, NULL, x, x, dtype, &error));
	TIME("dropout backward", 0, 8.0 * (double) n, ops->dropout(be, n, 0.5f, 1, 2, NULL, x, x, dtype, &error));
	ops->free(be, x, n * 4);
}

int
main(int argc, char **argv)
{
	DeviceInfo	info;
	int			threads = 0,
				option;

	while ((option = getopt(argc, argv, "t:i:bcs:")) != -1)
	{
		if (option == 't')
			threads = atoi(optarg);
		else if (option == 'b')
			dtype = DTYPE_BF16;
		else if (option == 'c')
			measured_clock = CLOCK_THREAD_CPUTIME_ID;
		else if (option == 's')
			budget_seconds = atof(optarg);
		else if (option != 'i' || cpu_backend_force_isa(optarg, &error) != STATUS_OK)
		{
			fprintf(stderr, "usage: %s [-t threads] [-i sse2|avx2|avx512] [-b] [-c] [-s seconds] [filter]\n%s\n", argv[0],
					error.message);
			return 2;
		}
	}
	if (optind < argc)
		filter = argv[optind];
	ops = cpu_backend();
	if (ops->open(&(OpenOptions) {.threads = threads}, &be, &error) != STATUS_OK)
	{
		fprintf(stderr, "%s\n", error.message);
		return 1;
	}
	ops->info(be, &info);
	printf("%s %s\n  %-34s %12s %12s\n", info.name, info.libraries, "", "best", "median");

	printf("CNN, batch 256\n");
	conv("conv1", 256, 1, 28, 32, 1);
	conv("conv2", 256, 32, 14, 64, 0);
	linear("fc1 3136-256", 256, 256, 3136, ACT_RELU, 0);
	dropout(256 * 256);
	linear("fc2 256-10", 256, 10, 256, ACT_NONE, 0);
	finish("training step", 824458, LOSS_CROSS_ENTROPY, 256, 10);

	printf("MLP 784-256-128-10, batch 256\n");
	linear("784-256", 256, 256, 784, ACT_RELU, 1);
	linear("256-128", 256, 128, 256, ACT_RELU, 0);
	linear("128-10", 256, 10, 128, ACT_NONE, 0);
	finish("training step", 235146, LOSS_CROSS_ENTROPY, 256, 10);

	printf("tabular 30-64-64-1, batch 1024\n");
	linear("30-64", 1024, 64, 30, ACT_RELU, 1);
	linear("64-64", 1024, 64, 64, ACT_RELU, 0);
	linear("64-1", 1024, 1, 64, ACT_NONE, 0);
	finish("training step", 6209, LOSS_BCE_WITH_LOGITS, 1024, 1);
	ops->close(be);
	return 0;
}
