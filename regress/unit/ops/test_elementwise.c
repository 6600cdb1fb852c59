/*
 * test_elementwise.c - activations, dropout, addition and conversion.
 */
#include "regress/unit/ops/device.h"
#include "regress/unit/ops/reference.h"

#include "kernels/math.h"
#include "kernels/philox.h"

static const size_t sizes[] = {1, 7, 64, 1000, 70001};

#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

static void
activation(const Device *d, Activation act, size_t n)
{
	double	   *x = random_values(n, 1, -6, 6, d->dtype),
			   *dy = random_values(n, 2, -1, 1, d->dtype),
			   *y = malloc(n * sizeof(double)),
			   *dx = malloc(n * sizeof(double)),
			   *saved = malloc(n * sizeof(double));
	void	   *dev_x = device_put(d, x, n, d->dtype),
			   *dev_dy = device_put(d, dy, n, d->dtype),
			   *dev_y = device_new_unset(d, n, d->dtype),
			   *dev_dx = device_new_unset(d, n, d->dtype),
			   *dev_saved;
	size_t		i,
				bytes = n * test_dtype_bytes(d->dtype);
	char		what[48];

	for (i = 0; i < n; i++)
	{
		y[i] = ref_act(act, x[i]);
		saved[i] = act == ACT_GELU ? x[i] : round_to(y[i], d->dtype);
		/* tanh and sigmoid: the slope as it follows from the output that was kept */
		dx[i] = dy[i] * (act == ACT_TANH ? 1 - saved[i] * saved[i]
						 : act == ACT_SIGMOID ? saved[i] * (1 - saved[i]) : ref_act_slope(act, x[i]));
	}
	dev_saved = device_put(d, saved, n, d->dtype);
	CHECK_OK(d, d->ops->act_fwd(d->be, act, n, dev_x, dev_y, d->dtype, err));
	/* four units in the last place; below 1e-7 the absolute size counts */
	snprintf(what, sizeof(what), "activation %d", (int) act);
	CHECK_TENSOR(d, what, dev_y, d->dtype, y, n, d->dtype == DTYPE_F32 ? 5e-7 : rounding(d->dtype), 1e-7);
	CHECK_OK(d, d->ops->act_bwd(d->be, act, n, dev_dy, dev_saved, dev_dx, d->dtype, err));
	snprintf(what, sizeof(what), "gradient of activation %d", (int) act);
	CHECK_TENSOR(d, what, dev_dx, d->dtype, dx, n, rounding(d->dtype), 5e-7);
	/* in place */
	CHECK_OK(d, d->ops->act_fwd(d->be, act, n, dev_x, dev_x, d->dtype, err));
	CHECK_TENSOR(d, "activation in place", dev_x, d->dtype, y, n, d->dtype == DTYPE_F32 ? 5e-7 : rounding(d->dtype), 1e-7);
	CHECK_OK(d, d->ops->act_bwd(d->be, act, n, dev_dy, dev_saved, dev_dy, d->dtype, err));
	CHECK_TENSOR(d, "gradient in place", dev_dy, d->dtype, dx, n, rounding(d->dtype), 5e-7);
	device_free(d, dev_x, bytes);
	device_free(d, dev_dy, bytes);
	device_free(d, dev_y, bytes);
	device_free(d, dev_dx, bytes);
	device_free(d, dev_saved, bytes);
	free(x);
	free(dy);
	free(y);
	free(dx);
	free(saved);
}

static void
activation_all(const Device *d)
{
	size_t		i;
	int			act;

	for (i = 0; i < SIZES; i++)
		for (act = ACT_NONE; act <= ACT_SIGMOID; act++)
			activation(d, (Activation) act, sizes[i]);
}

TEST(activations_and_their_gradients)
{
	for_each_device(activation_all);
}

static void
activation_limits(const Device *d)
{
	/* what fp16 can hold is less */
	const double large = d->dtype == DTYPE_F16 ? 60000 : 1e30,
				small = d->dtype == DTYPE_F16 ? 0x1p-14 : 1e-30;
	const double x[] = {NAN, INFINITY, -INFINITY, large, -large, 100, -100, 0, -0.0, 88.5, -88.5, small, NAN};
	/* tanh, sigmoid and GELU at infinity, and that a NaN stays one */
	const double relu[] = {NAN, INFINITY, 0, large, 0, 100, 0, 0, 0, 88.5, 0, small, NAN},
				gelu[] = {NAN, INFINITY, 0, large, 0, 100, 0, 0, 0, 88.5, 0, small / 2, NAN},
				tanh_[] = {NAN, 1, -1, 1, -1, 1, -1, 0, 0, 1, -1, small, NAN},
				sigmoid[] = {NAN, 1, 0, 1, 0, 1, 0, 0.5, 0.5, 1, 0, 0.5, NAN};
	const double *const want[] = {x, relu, gelu, tanh_, sigmoid};
	size_t		n = sizeof(x) / sizeof(x[0]),
				bytes = n * test_dtype_bytes(d->dtype);
	int			act;

	for (act = ACT_NONE; act <= ACT_SIGMOID; act++)
	{
		void	   *dev_x = device_put(d, x, n, d->dtype),
				   *dev_y = device_new(d, n, d->dtype);
		char		what[48];

		snprintf(what, sizeof(what), "activation %d", act);
		CHECK_OK(d, d->ops->act_fwd(d->be, (Activation) act, n, dev_x, dev_y, d->dtype, err));
		CHECK_TENSOR(d, what, dev_y, d->dtype, want[act], n, rounding(d->dtype), 1e-37);
		device_free(d, dev_x, bytes);
		device_free(d, dev_y, bytes);
	}
}

TEST(activations_at_infinity_and_nan)
{
	for_each_device(activation_limits);
}

/* Largest relative error of f over many floats of [low, high), in units of 2^-24. */
static double
worst_ulps(float (*f) (float), double (*exact) (double), double low, double high)
{
	double		worst = 0;
	int			i,
				steps = 200000;

	for (i = 0; i < steps; i++)
	{
		float		x = (float) (low + (high - low) * i / steps);
		double		want = exact(x),
					error = fabs((double) f(x) - want) / fabs(want) * 16777216;

		if (want != 0 && error > worst)
			worst = error;
	}
	return worst;
}

static float
f_exp(float x)
{
	return math_exp(x);
}

static float
f_tanh(float x)
{
	return math_tanh(x);
}

static float
f_sigmoid(float x)
{
	return math_sigmoid(x);
}

static double
exact_sigmoid(double x)
{
	return 1 / (1 + exp(-x));
}

static float
f_cdf(float x)
{
	return math_normal_cdf(x);
}

static double
exact_cdf(double x)
{
	return erfc(-x / sqrt(2.0)) / 2;
}

static float
f_softplus(float x)
{
	return math_softplus(x);
}

static double
exact_softplus(double x)
{
	return log1p(exp(-fabs(x))) + (x > 0 ? x : 0);
}

TEST(math_functions_are_good_to_a_few_ulps)
{
	double		ulps;

	ulps = worst_ulps(f_exp, exp, -87, 88.7);
	CHECK(ulps < 4, "exp is off by %g ulps", ulps);
	ulps = worst_ulps(f_tanh, tanh, -12, 12);
	CHECK(ulps < 5, "tanh is off by %g ulps", ulps);
	ulps = worst_ulps(f_sigmoid, exact_sigmoid, -80, 20);
	CHECK(ulps < 6, "sigmoid is off by %g ulps", ulps);
	/* x * x / 2 is rounded before the exponential: below -3 that shows */
	ulps = worst_ulps(f_cdf, exact_cdf, -3, 6);
	CHECK(ulps < 20, "the normal distribution is off by %g ulps", ulps);
	ulps = worst_ulps(f_cdf, exact_cdf, -10, -3);
	CHECK(ulps < 100, "the normal distribution's tail is off by %g ulps", ulps);
	ulps = worst_ulps(f_softplus, exact_softplus, -80, 80);
	CHECK(ulps < 6, "softplus is off by %g ulps", ulps);
}

TEST(bf16_rounds_to_nearest_even)
{
	CHECK(float_to_bf16(1.0f) == 0x3f80);
	CHECK(float_to_bf16(1.00390625f) == 0x3f80, "a tie goes to even, down");
	CHECK(float_to_bf16(1.01171875f) == 0x3f82, "a tie goes to even, up");
	CHECK(float_to_bf16(1.0039064f) == 0x3f81, "just above a tie");
	CHECK(float_to_bf16(-1.0f) == 0xbf80);
	CHECK(float_to_bf16(INFINITY) == 0x7f80);
	CHECK(float_to_bf16(3.4e38f) == 0x7f80, "beyond the largest bf16 is infinity");
	CHECK(isnan(bf16_to_float(float_to_bf16(NAN))));
	/* a NaN whose upper half alone would be an infinity */
	CHECK(isnan(bf16_to_float(float_to_bf16(float_from_bits(0x7f800001)))));
	CHECK(isnan(bf16_to_float(float_to_bf16(float_from_bits(0xffffffff)))));
}

/* The vectors published with Random123 for philox4x32-10. */
TEST(philox_gives_the_published_numbers)
{
	static const uint32_t want[3][4] = {
		{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
		{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
		{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}
	};
	static const uint64_t seed[] = {0, UINT64_MAX, 0x299f31d0a4093822},
				stream[] = {0, UINT64_MAX, 0x0370734413198a2e},
				block[] = {0, UINT64_MAX, 0x85a308d3243f6a88};
	uint32_t	out[4];
	int			i;

	for (i = 0; i < 3; i++)
	{
		philox_block(seed[i], stream[i], block[i], out);
		CHECK(memcmp(out, want[i], sizeof(out)) == 0, "block %d is %08x %08x %08x %08x", i, out[0], out[1], out[2],
			  out[3]);
	}
	CHECK(philox_uniform(0xffffffff) < 1.0f);
	CHECK(philox_threshold(0) == 0 && philox_threshold(0.5f) == 0x80000000);
}

static void
dropout(const Device *d)
{
	static const float probabilities[] = {0.0f, 0.1f, 0.5f, 0.9f};
	uint64_t	seed = 0x123456789abcdef,
				stream = 0xfedcba987654321;
	StepState	state = {.dropout_stream = 77};
	void	   *dev_state = device_put_bytes(d, &state, sizeof(state));
	size_t		i,
				k,
				p;

	for (k = 0; k < SIZES; k++)
		for (p = 0; p < 4; p++)
		{
			size_t		n = sizes[k],
						bytes = n * test_dtype_bytes(d->dtype),
						kept = 0;
			float		prob = probabilities[p];
			double	   *x = random_values(n, 1, 0.5, 1, d->dtype),
					   *want = malloc(n * sizeof(double));
			void	   *dev_x = device_put(d, x, n, d->dtype),
					   *dev_y = device_new_unset(d, n, d->dtype);

			for (i = 0; i < n; i++)
			{
				int			keep = philox_word(seed, stream, i) >= philox_threshold(prob);

				want[i] = keep ? x[i] / (1 - (double) prob) : 0;
				kept += (size_t) keep;
			}
			CHECK_OK(d, d->ops->dropout(d->be, n, prob, seed, stream, NULL, dev_x, dev_y, d->dtype, err));
			CHECK_TENSOR(d, "dropout", dev_y, d->dtype, want, n, rounding(d->dtype), 0);
			CHECK_OK(d, d->ops->dropout(d->be, n, prob, seed, stream - 77, dev_state, dev_x, dev_x, d->dtype, err));
			CHECK_TENSOR(d, "dropout in place", dev_x, d->dtype, want, n, rounding(d->dtype), 0);
			/* 70001 trials: six standard deviations are below 0.012 */
			if (n > 10000)
				CHECK(fabs((double) kept / (double) n - (1 - (double) prob)) < 0.012, "%zu of %zu kept at p = %g",
					  kept, n, prob);
			device_free(d, dev_x, bytes);
			device_free(d, dev_y, bytes);
			free(x);
			free(want);
		}
	device_free(d, dev_state, sizeof(state));
}

TEST(dropout_keeps_what_philox_says)
{
	for_each_device(dropout);
}

static void
dropout_nan(const Device *d)
{
	double		x[40],
			   *y;
	void	   *dev;
	int			i;

	for (i = 0; i < 40; i++)
		x[i] = NAN;
	dev = device_put(d, x, 40, d->dtype);
	CHECK_OK(d, d->ops->dropout(d->be, 40, 0.5f, 1, 2, NULL, dev, dev, d->dtype, err));
	y = device_read(d, dev, 40, d->dtype);
	for (i = 0; i < 40; i++)
		CHECK(isnan(y[i]), "%s: y[%d] is %g", d->label, i, y[i]);
	CHECK_STATUS(d, STATUS_INVALID, d->ops->dropout(d->be, 40, 1.0f, 1, 2, NULL, dev, dev, d->dtype, err));
	CHECK_STATUS(d, STATUS_INVALID, d->ops->dropout(d->be, 40, NAN, 1, 2, NULL, dev, dev, d->dtype, err));
	device_free(d, dev, 40 * test_dtype_bytes(d->dtype));
	free(y);
}

TEST(dropout_does_not_hide_a_nan)
{
	for_each_device(dropout_nan);
}

static void
add_and_cast(const Device *d)
{
	size_t		k,
				i;

	for (k = 0; k < SIZES; k++)
	{
		size_t		n = sizes[k],
					bytes = n * test_dtype_bytes(d->dtype);
		double	   *a = random_values(n, 1, -1, 1, d->dtype),
				   *b = random_values(n, 2, -1, 1, d->dtype),
				   *f = random_values(n, 3, -1, 1, DTYPE_F32),
				   *want = malloc(n * sizeof(double));
		void	   *dev_a = device_put(d, a, n, d->dtype),
				   *dev_b = device_put(d, b, n, d->dtype),
				   *dev_f = device_put(d, f, n, DTYPE_F32),
				   *dev_y = device_new_unset(d, n, d->dtype);

		for (i = 0; i < n; i++)
			want[i] = round_to(a[i] + b[i], d->dtype);
		CHECK_OK(d, d->ops->add(d->be, n, dev_a, dev_b, dev_y, d->dtype, err));
		CHECK_TENSOR(d, "sum", dev_y, d->dtype, want, n, 0, 0);
		CHECK_OK(d, d->ops->add(d->be, n, dev_a, dev_b, dev_b, d->dtype, err));
		CHECK_TENSOR(d, "sum in place", dev_b, d->dtype, want, n, 0, 0);
		for (i = 0; i < n; i++)
			want[i] = round_to(f[i], d->dtype);
		CHECK_OK(d, d->ops->cast(d->be, n, dev_f, dev_y, d->dtype, err));
		CHECK_TENSOR(d, "conversion", dev_y, d->dtype, want, n, 0, 0);
		device_free(d, dev_a, bytes);
		device_free(d, dev_b, bytes);
		device_free(d, dev_f, n * sizeof(float));
		device_free(d, dev_y, bytes);
		free(a);
		free(b);
		free(f);
		free(want);
	}
}

TEST(addition_and_conversion_are_exact)
{
	for_each_device(add_and_cast);
}

static void
unsupported(const Device *d)
{
	static const DType types[] = {DTYPE_U8, DTYPE_I32};
	Conv2dShape s = ref_conv_shape(1, 2, 2, 1, 1, 1, 1, 1, 0, 0);
	float		host[64] = {0};
	void	   *t = device_put_bytes(d, host, sizeof(host));
	int			i;

	for (i = 0; i < 2; i++)
	{
		CHECK_STATUS(d, STATUS_UNSUPPORTED, d->ops->act_fwd(d->be, ACT_RELU, 1, t, t, types[i], err));
		CHECK_STATUS(d, STATUS_UNSUPPORTED, d->ops->act_bwd(d->be, ACT_RELU, 1, t, t, t, types[i], err));
		CHECK_STATUS(d, STATUS_UNSUPPORTED, d->ops->add(d->be, 1, t, t, t, types[i], err));
		CHECK_STATUS(d, STATUS_UNSUPPORTED, d->ops->cast(d->be, 1, t, t, types[i], err));
		CHECK_STATUS(d, STATUS_UNSUPPORTED, d->ops->dropout(d->be, 1, 0.5f, 1, 1, NULL, t, t, types[i], err));
		CHECK_STATUS(d, STATUS_UNSUPPORTED,
					 d->ops->linear_fwd(d->be, 1, 1, 1, t, t, NULL, ACT_NONE, t, types[i], DTYPE_F32, err));
		CHECK_STATUS(d, STATUS_UNSUPPORTED,
					 d->ops->linear_fwd(d->be, 1, 1, 1, t, t, NULL, ACT_NONE, t, DTYPE_F32, types[i], err));
		CHECK_STATUS(d, STATUS_UNSUPPORTED, d->ops->linear_bwd_data(d->be, 1, 1, 1, t, t, t, types[i], err));
		CHECK_STATUS(d, STATUS_UNSUPPORTED,
					 d->ops->linear_bwd_weight(d->be, 1, 1, 1, t, t, t, NULL, 0, types[i], err));
		CHECK_STATUS(d, STATUS_UNSUPPORTED,
					 d->ops->conv2d_fwd(d->be, &s, 1, t, t, NULL, ACT_NONE, t, types[i], err));
		CHECK_STATUS(d, STATUS_UNSUPPORTED, d->ops->conv2d_bwd_data(d->be, &s, 1, t, t, t, types[i], err));
		CHECK_STATUS(d, STATUS_UNSUPPORTED,
					 d->ops->conv2d_bwd_weight(d->be, &s, 1, t, t, t, NULL, 0, types[i], err));
		CHECK_STATUS(d, STATUS_UNSUPPORTED, d->ops->maxpool2d_fwd(d->be, &s, 1, t, 0, t, NULL, types[i], err));
		CHECK_STATUS(d, STATUS_UNSUPPORTED, d->ops->maxpool2d_bwd(d->be, &s, 1, t, t, t, types[i], err));
		CHECK_STATUS(d, STATUS_UNSUPPORTED, d->ops->avgpool2d_fwd(d->be, &s, 1, t, t, types[i], err));
		CHECK_STATUS(d, STATUS_UNSUPPORTED, d->ops->avgpool2d_bwd(d->be, &s, 1, t, t, types[i], err));
		CHECK_STATUS(d, STATUS_UNSUPPORTED,
					 d->ops->batchnorm_fwd_train(d->be, 2, 1, t, t, t, 1, 1, t, t, t, t, t, types[i], err));
		CHECK_STATUS(d, STATUS_UNSUPPORTED,
					 d->ops->batchnorm_fwd_eval(d->be, 2, 1, t, t, t, 1, t, t, t, types[i], err));
		CHECK_STATUS(d, STATUS_UNSUPPORTED,
					 d->ops->batchnorm_bwd(d->be, 2, 1, t, t, t, t, t, t, t, t, 0, types[i], err));
		CHECK_STATUS(d, STATUS_UNSUPPORTED, d->ops->layernorm_fwd(d->be, 2, 1, t, t, t, 1, t, t, t, types[i], err));
		CHECK_STATUS(d, STATUS_UNSUPPORTED,
					 d->ops->layernorm_bwd(d->be, 2, 1, t, t, t, t, t, t, t, t, 0, types[i], err));
		CHECK_STATUS(d, STATUS_UNSUPPORTED,
					 d->ops->loss(d->be, LOSS_MSE, 1, 1, t, t, 1, NULL, t, types[i], t, err));
		CHECK_STATUS(d, STATUS_UNSUPPORTED,
					 d->ops->gather(d->be, t, 4, t, 1, NULL, 0, NULL, NULL, 1, t, types[i], err));
		CHECK_STATUS(d, STATUS_UNSUPPORTED,
					 d->ops->sgd_step(d->be, 1, t, t, NULL, &(SgdArgs) {0}, t, t, types[i], err));
		CHECK_STATUS(d, STATUS_UNSUPPORTED,
					 d->ops->adam_step(d->be, 1, t, t, t, t, &(AdamArgs) {0}, t, t, types[i], err));
	}
	device_free(d, t, sizeof(host));
}

TEST(types_that_are_not_computed_in_are_refused)
{
	for_each_device(unsupported);
}
