/*
 * test_linear.c - the linear layer against the reference.
 */
#include "regress/unit/ops/device.h"
#include "regress/unit/ops/reference.h"

typedef struct LinearCase
{
	size_t		m,
				n,
				k;
} LinearCase;

/* Tails of rows, columns and steps of every tile size; one row; one and two outputs; k beyond a block. */
static const LinearCase cases[] = {
	{1, 1, 1}, {1, 7, 13}, {1, 300, 5}, {13, 1, 64}, {301, 1, 37}, {29, 2, 33}, {5, 3, 2}, {6, 16, 8},
	{12, 32, 16}, {7, 17, 31}, {37, 23, 701}, {256, 10, 129}, {193, 65, 97}, {31, 64, 30}, {130, 130, 67},
	{3, 1100, 9}, {64, 64, 64}
};

#define CASES (sizeof(cases) / sizeof(cases[0]))

/*
 * What an activation may be off by where a library has stored its argument in the low-precision out, as PyTorch's modules
 * do, too: no activation here has a slope above 1.13, and relu of a rounded number is the rounded relu.
 */
static double
argument_error(const Device *d, size_t m, size_t n, size_t k, const double *x, const double *w, const double *b,
			   Activation act, DType out)
{
	DeviceInfo	info;
	double	   *argument,
				largest = 0;
	size_t		i;

	d->ops->info(d->be, &info);
	if (info.libraries[0] == '\0' || d->dtype != DTYPE_BF16 || out != DTYPE_BF16 || act == ACT_NONE || act == ACT_RELU)
		return 0;
	argument = malloc(m * n * sizeof(double));
	ref_linear_fwd(m, n, k, x, w, b, ACT_NONE, argument);
	for (i = 0; i < m * n; i++)
		largest = fmax(largest, fabs(argument[i]));
	free(argument);
	return 1.13 * rounding(out) * largest;
}

static void
forward(const Device *d, const LinearCase *l, Activation act, int with_bias, DType out)
{
	size_t		m = l->m,
				n = l->n,
				k = l->k;
	double	   *x = random_values(m * k, 1, -1, 1, d->dtype),
			   *w = random_values(n * k, 2, -1, 1, d->dtype),
			   *b = random_values(n, 3, -1, 1, DTYPE_F32),
			   *want = malloc(m * n * sizeof(double));
	void	   *dx = device_put(d, x, m * k, d->dtype),
			   *dw = device_put(d, w, n * k, d->dtype),
			   *db = device_put(d, b, n, DTYPE_F32),
			   *dy = device_new_unset(d, m * n, out);
	char		what[96];

	snprintf(what, sizeof(what), "y of %zu x %zu x %zu, activation %d", m, n, k, (int) act);
	ref_linear_fwd(m, n, k, x, w, with_bias ? b : NULL, act, want);
	CHECK_OK(d, d->ops->linear_fwd(d->be, m, n, k, dx, dw, with_bias ? db : NULL, act, dy, d->dtype, out, err));
	/* No activation here has a slope above 1.13, so the sum's error is not magnified. */
	CHECK_TENSOR(d, what, dy, out, want, m * n, rounding(out),
				 1.2 * sum_error(k) + argument_error(d, m, n, k, x, w, with_bias ? b : NULL, act, out));
	device_free(d, dx, m * k * test_dtype_bytes(d->dtype));
	device_free(d, dw, n * k * test_dtype_bytes(d->dtype));
	device_free(d, db, n * sizeof(float));
	device_free(d, dy, m * n * test_dtype_bytes(out));
	free(x);
	free(w);
	free(b);
	free(want);
}

static void
forward_all(const Device *d)
{
	size_t		i;
	int			act;

	for (i = 0; i < CASES; i++)
	{
		forward(d, &cases[i], ACT_NONE, 0, d->dtype);
		forward(d, &cases[i], ACT_RELU, 1, d->dtype);
	}
	for (act = ACT_NONE; act <= ACT_SIGMOID; act++)
	{
		forward(d, &(LinearCase) {19, 21, 50}, (Activation) act, 1, d->dtype);
		forward(d, &(LinearCase) {19, 2, 50}, (Activation) act, 1, DTYPE_F32);
		forward(d, &(LinearCase) {19, 64, 700}, (Activation) act, 1, DTYPE_F32);
	}
}

TEST(linear_forward_is_x_times_w_transposed_plus_bias)
{
	for_each_device(forward_all);
}

/* Scoring's path for a few rows: a vector is 4, 8 or 16 floats wide. */
static void
forward_few(const Device *d)
{
	static const size_t widths[] = {3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 50, 300},
				outputs[] = {3, 4, 8, 15, 16, 17, 37, 130};
	/* bf16 takes the way of all other sizes */
	const size_t step = d->dtype == DTYPE_F32 ? 1 : 3;
	size_t		m,
				i,
				j,
				calls = 0;
	int			act;

	for (m = 1; m <= 5; m++)
		for (i = 0; i < sizeof(widths) / sizeof(widths[0]); i++)
			for (j = 0; j < sizeof(outputs) / sizeof(outputs[0]); j += step, calls++)
				forward(d, &(LinearCase) {m, outputs[j], widths[i]}, (Activation) (calls % (ACT_SIGMOID + 1)),
						calls / (ACT_SIGMOID + 1) % 2, d->dtype);
	/* enough work for several threads, of which the last has fewer outputs than a vector is wide */
	for (m = 1; m <= 4; m++)
		for (act = ACT_NONE; act <= ACT_SIGMOID; act++)
		{
			forward(d, &(LinearCase) {m, 523, 333}, (Activation) act, act % 2, d->dtype);
			forward(d, &(LinearCase) {m, 1025, 64}, (Activation) act, 1 - act % 2, d->dtype);
		}
}

TEST(linear_forward_of_a_few_rows)
{
	for_each_device(forward_few);
}

static void
backward(const Device *d, const LinearCase *l, float beta, int with_bias)
{
	size_t		m = l->m,
				n = l->n,
				k = l->k,
				i;
	double	   *dy = random_values(m * n, 4, -1, 1, d->dtype),
			   *x = random_values(m * k, 5, -1, 1, d->dtype),
			   *w = random_values(n * k, 6, -1, 1, d->dtype),
			   *old_dw = random_values(n * k, 7, -1, 1, DTYPE_F32),
			   *old_db = random_values(n, 8, -1, 1, DTYPE_F32),
			   *want_dx = malloc(m * k * sizeof(double)),
			   *want_dw = malloc(n * k * sizeof(double)),
			   *want_db = malloc(n * sizeof(double));
	void	   *ddy = device_put(d, dy, m * n, d->dtype),
			   *dev_x = device_put(d, x, m * k, d->dtype),
			   *dev_w = device_put(d, w, n * k, d->dtype),
			   *ddx = device_new_unset(d, m * k, d->dtype),
			   *ddw,
			   *ddb;
	char		what[96];

	ref_linear_bwd_data(m, n, k, dy, w, want_dx);
	ref_linear_bwd_weight(m, n, k, dy, x, want_dw, want_db);
	/* beta 0 must not read what was there before, not even a NaN */
	ddw = beta == 0 ? device_new_unset(d, n * k, DTYPE_F32) : device_put(d, old_dw, n * k, DTYPE_F32);
	ddb = beta == 0 ? device_new_unset(d, n, DTYPE_F32) : device_put(d, old_db, n, DTYPE_F32);
	for (i = 0; i < n * k && beta != 0; i++)
		want_dw[i] += (double) beta * old_dw[i];
	for (i = 0; i < n && beta != 0; i++)
		want_db[i] += (double) beta * old_db[i];

	CHECK_OK(d, d->ops->linear_bwd_data(d->be, m, n, k, ddy, dev_w, ddx, d->dtype, err));
	snprintf(what, sizeof(what), "dx of %zu x %zu x %zu", m, n, k);
	CHECK_TENSOR(d, what, ddx, d->dtype, want_dx, m * k, rounding(d->dtype), sum_error(n));

	CHECK_OK(d, d->ops->linear_bwd_weight(d->be, m, n, k, ddy, dev_x, ddw, with_bias ? ddb : NULL, beta,
										  d->dtype, err));
	snprintf(what, sizeof(what), "dw of %zu x %zu x %zu, beta %g", m, n, k, beta);
	CHECK_TENSOR(d, what, ddw, DTYPE_F32, want_dw, n * k, 1e-6, sum_error(m));
	if (with_bias)
	{
		snprintf(what, sizeof(what), "db of %zu x %zu x %zu, beta %g", m, n, k, beta);
		CHECK_TENSOR(d, what, ddb, DTYPE_F32, want_db, n, 1e-6, sum_error(m));
	}
	device_free(d, ddy, m * n * test_dtype_bytes(d->dtype));
	device_free(d, dev_x, m * k * test_dtype_bytes(d->dtype));
	device_free(d, dev_w, n * k * test_dtype_bytes(d->dtype));
	device_free(d, ddx, m * k * test_dtype_bytes(d->dtype));
	device_free(d, ddw, n * k * sizeof(float));
	device_free(d, ddb, n * sizeof(float));
	free(dy);
	free(x);
	free(w);
	free(old_dw);
	free(old_db);
	free(want_dx);
	free(want_dw);
	free(want_db);
}

static void
backward_all(const Device *d)
{
	size_t		i;

	for (i = 0; i < CASES; i++)
		backward(d, &cases[i], i % 2 == 0 ? 0.0f : 1.0f, i % 3 != 0);
	/* sums over more rows than a block of k, and a beta that is neither 0 nor 1 */
	backward(d, &(LinearCase) {1031, 11, 18}, 0.0f, 1);
	backward(d, &(LinearCase) {1031, 11, 18}, 0.5f, 1);
}

TEST(linear_backward_gives_the_gradients_of_x_w_and_b)
{
	for_each_device(backward_all);
}

/* A NaN or infinity anywhere in x must come out at the end: a loss that is not finite has to be seen. */
static void
nan_of(const Device *d, size_t m, size_t n, size_t k, size_t at)
{
	size_t		i;
	double	   *x = random_values(m * k, 1, -1, 1, d->dtype),
			   *w = random_values(n * k, 2, -1, 1, d->dtype),
			   *y;
	void	   *dx,
			   *dw = device_put(d, w, n * k, d->dtype),
			   *dy = device_new(d, m * n, d->dtype);

	x[3 * k + at] = NAN;
	dx = device_put(d, x, m * k, d->dtype);
	CHECK_OK(d, d->ops->linear_fwd(d->be, m, n, k, dx, dw, NULL, ACT_RELU, dy, d->dtype, d->dtype, err));
	y = device_read(d, dy, m * n, d->dtype);
	for (i = 0; i < m * n; i++)
		CHECK(!isnan(y[i]) == (i / n != 3), "%s: %zu x %zu x %zu: y[%zu] is %g", d->label, m, n, k, i, y[i]);
	device_free(d, dx, m * k * test_dtype_bytes(d->dtype));
	device_free(d, dw, n * k * test_dtype_bytes(d->dtype));
	device_free(d, dy, m * n * test_dtype_bytes(d->dtype));
	free(x);
	free(w);
	free(y);
}

static void
nan_passes(const Device *d)
{
	nan_of(d, 9, 20, 40, 7);
	/* few rows, few outputs; among whole vectors and in the rest behind them */
	nan_of(d, 4, 20, 40, 7);
	nan_of(d, 4, 37, 43, 42);
	nan_of(d, 9, 2, 43, 42);
}

TEST(linear_with_relu_does_not_hide_a_nan)
{
	for_each_device(nan_passes);
}

static void
repeats(const Device *d)
{
	size_t		m = 300,
				n = 70,
				k = 90,
				bytes = n * k * sizeof(float);
	double	   *x = random_values(m * k, 1, -1, 1, d->dtype),
			   *dy = random_values(m * n, 2, -1, 1, d->dtype);
	void	   *dev_x = device_put(d, x, m * k, d->dtype),
			   *dev_dy = device_put(d, dy, m * n, d->dtype),
			   *dw = device_new(d, n * k, DTYPE_F32),
			   *first = malloc(bytes),
			   *again = malloc(bytes);
	int			i;

	for (i = 0; i < 5; i++)
	{
		CHECK_OK(d, d->ops->linear_bwd_weight(d->be, m, n, k, dev_dy, dev_x, dw, NULL, 0, d->dtype, err));
		device_read_bytes(d, dw, i == 0 ? first : again, bytes);
		CHECK(i == 0 || memcmp(first, again, bytes) == 0, "%s: run %d differs from the first", d->label, i);
	}
	device_free(d, dev_x, m * k * test_dtype_bytes(d->dtype));
	device_free(d, dev_dy, m * n * test_dtype_bytes(d->dtype));
	device_free(d, dw, bytes);
	free(x);
	free(dy);
	free(first);
	free(again);
}

TEST(linear_gradients_repeat_bit_for_bit)
{
	for_each_device(repeats);
}
