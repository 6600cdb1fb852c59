/*
 * test_conv.c - convolution against the reference.
 */
#include "regress/unit/ops/device.h"
#include "regress/unit/ops/reference.h"

typedef struct ConvCase
{
	int			c_in,
				h,
				w,
				c_out,
				kernel_h,
				kernel_w,
				stride_h,
				stride_w,
				pad_h,
				pad_w;
	size_t		n;
} ConvCase;

static const ConvCase cases[] = {
	/* 1 x 1 */
	{1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1},
	{5, 4, 3, 7, 1, 1, 1, 1, 0, 0, 2},
	{17, 5, 5, 9, 1, 1, 2, 2, 0, 0, 3},
	/* few input channels */
	{1, 28, 28, 32, 3, 3, 1, 1, 1, 1, 3},
	{1, 9, 11, 33, 3, 3, 1, 1, 1, 1, 2},
	{2, 8, 7, 16, 5, 3, 1, 1, 2, 1, 2},
	{3, 13, 12, 16, 3, 3, 1, 1, 1, 1, 3},
	{3, 16, 16, 24, 7, 7, 2, 2, 3, 3, 2},
	{4, 7, 7, 5, 3, 3, 1, 1, 0, 0, 2},
	/* 3 x 3 of stride 1, even and odd sizes */
	{32, 14, 14, 64, 3, 3, 1, 1, 1, 1, 2},
	{16, 7, 7, 16, 3, 3, 1, 1, 1, 1, 3},
	{8, 5, 6, 40, 3, 3, 1, 1, 0, 0, 1},
	{19, 6, 9, 13, 3, 3, 1, 1, 1, 1, 2},
	{16, 8, 8, 17, 3, 3, 1, 1, 2, 2, 1},
	{16, 3, 3, 16, 3, 3, 1, 1, 0, 0, 2},
	{33, 4, 2, 8, 3, 3, 1, 1, 1, 1, 1},
	/* strides, also larger than the kernel; different ones for height and width */
	{8, 11, 11, 8, 3, 3, 2, 2, 1, 1, 2},
	{6, 10, 13, 11, 3, 5, 2, 3, 1, 2, 2},
	{5, 9, 9, 6, 2, 2, 3, 3, 0, 0, 2},
	{4, 9, 8, 6, 1, 2, 4, 3, 0, 1, 1},
	/* even kernels, padding beyond the kernel's half, an image that a window covers whole */
	{7, 6, 6, 10, 2, 2, 1, 1, 1, 1, 2},
	{3, 5, 5, 4, 4, 4, 2, 2, 3, 3, 1},
	{16, 4, 4, 20, 4, 4, 1, 1, 0, 0, 5},
	{2, 3, 3, 3, 3, 3, 1, 1, 2, 2, 2},
	{1, 30, 1, 4, 5, 1, 1, 1, 2, 0, 2}
};

#define CASES (sizeof(cases) / sizeof(cases[0]))

static Conv2dShape
shape_of(const ConvCase *c)
{
	return ref_conv_shape(c->c_in, c->h, c->w, c->c_out, c->kernel_h, c->kernel_w, c->stride_h, c->stride_w,
						  c->pad_h, c->pad_w);
}

static void
name_of(char *what, size_t size, const char *tensor, const ConvCase *c)
{
	snprintf(what, size, "%s of %zux(%d,%d,%d) -> %d, kernel %dx%d, stride %d,%d, padding %d,%d", tensor, c->n,
			 c->h, c->w, c->c_in, c->c_out, c->kernel_h, c->kernel_w, c->stride_h, c->stride_w, c->pad_h,
			 c->pad_w);
}

/*
 * A convolution may be computed by Winograd's F(4 x 4, 3 x 3), whose transforms with constants up to 8 magnify
 * rounding about tenfold over that of the plain sum.
 */
static double
conv_error(size_t terms)
{
	return 10 * sum_error(terms);
}

/* What a parameter of about 1 loses in a library that keeps it in dtype. */
static double
parameter_rounding(const Device *d)
{
	return d->low_parameters ? rounding(d->dtype) : 0;
}

static void
forward(const Device *d, const ConvCase *c, Activation act, int with_bias)
{
	Conv2dShape s = shape_of(c);
	size_t		in = ref_in_size(&s, c->n),
				out = ref_out_size(&s, c->n),
				weights = ref_weight_size(&s),
				channels = (size_t) s.c_out;
	double	   *x = random_values(in, 1, -1, 1, d->dtype),
			   *w = random_values(weights, 2, -1, 1, d->dtype),
			   *b = random_values(channels, 3, -1, 1, DTYPE_F32),
			   *want = malloc(out * sizeof(double));
	void	   *dev_x = device_put(d, x, in, d->dtype),
			   *dev_w = device_put(d, w, weights, d->dtype),
			   *dev_b = device_put(d, b, channels, DTYPE_F32),
			   *dev_y = device_new_unset(d, out, d->dtype);
	char		what[160];

	name_of(what, sizeof(what), "y", c);
	ref_conv2d_fwd(&s, c->n, x, w, with_bias ? b : NULL, act, want);
	CHECK_OK(d, d->ops->conv2d_fwd(d->be, &s, c->n, dev_x, dev_w, with_bias ? dev_b : NULL, act, dev_y,
								   d->dtype, err));
	CHECK_TENSOR(d, what, dev_y, d->dtype, want, out, rounding(d->dtype),
				 conv_error(weights / channels) + (with_bias ? parameter_rounding(d) : 0));
	device_free(d, dev_x, in * test_dtype_bytes(d->dtype));
	device_free(d, dev_w, weights * test_dtype_bytes(d->dtype));
	device_free(d, dev_b, channels * sizeof(float));
	device_free(d, dev_y, out * test_dtype_bytes(d->dtype));
	free(x);
	free(w);
	free(b);
	free(want);
}

static void
forward_all(const Device *d)
{
	size_t		i;

	for (i = 0; i < CASES; i++)
	{
		forward(d, &cases[i], ACT_NONE, 0);
		forward(d, &cases[i], i % 2 == 0 ? ACT_RELU : ACT_NONE, 1);
	}
}

TEST(conv2d_forward_is_the_plain_sum)
{
	for_each_device(forward_all);
}

static void
backward(const Device *d, const ConvCase *c, float beta, int with_bias)
{
	Conv2dShape s = shape_of(c);
	size_t		in = ref_in_size(&s, c->n),
				out = ref_out_size(&s, c->n),
				weights = ref_weight_size(&s),
				channels = (size_t) s.c_out,
				pixels = out / channels,
				i;
	double	   *x = random_values(in, 4, -1, 1, d->dtype),
			   *w = random_values(weights, 5, -1, 1, d->dtype),
			   *dy = random_values(out, 6, -1, 1, d->dtype),
			   *old_dw = random_values(weights, 7, -1, 1, DTYPE_F32),
			   *old_db = random_values(channels, 8, -1, 1, DTYPE_F32),
			   *want_dx = malloc(in * sizeof(double)),
			   *want_dw = malloc(weights * sizeof(double)),
			   *want_db = malloc(channels * sizeof(double));
	void	   *dev_x = device_put(d, x, in, d->dtype),
			   *dev_w = device_put(d, w, weights, d->dtype),
			   *dev_dy = device_put(d, dy, out, d->dtype),
			   *dev_dx = device_new_unset(d, in, d->dtype),
			   *dev_dw,
			   *dev_db;
	char		what[160];

	ref_conv2d_bwd(&s, c->n, dy, x, w, want_dx, want_dw, want_db);
	dev_dw = beta == 0 ? device_new_unset(d, weights, DTYPE_F32) : device_put(d, old_dw, weights, DTYPE_F32);
	dev_db = beta == 0 ? device_new_unset(d, channels, DTYPE_F32) : device_put(d, old_db, channels, DTYPE_F32);
	for (i = 0; i < weights && beta != 0; i++)
		want_dw[i] += (double) beta * old_dw[i];
	for (i = 0; i < channels && beta != 0; i++)
		want_db[i] += (double) beta * old_db[i];

	CHECK_OK(d, d->ops->conv2d_bwd_data(d->be, &s, c->n, dev_dy, dev_w, dev_dx, d->dtype, err));
	name_of(what, sizeof(what), "dx", c);
	CHECK_TENSOR(d, what, dev_dx, d->dtype, want_dx, in, rounding(d->dtype),
				 conv_error(weights / (size_t) s.c_in));

	CHECK_OK(d, d->ops->conv2d_bwd_weight(d->be, &s, c->n, dev_dy, dev_x, dev_dw, with_bias ? dev_db : NULL,
										  beta, d->dtype, err));
	name_of(what, sizeof(what), "dw", c);
	CHECK_TENSOR(d, what, dev_dw, DTYPE_F32, want_dw, weights, 1e-6 + parameter_rounding(d),
				 conv_error(pixels) + (double) beta * parameter_rounding(d));
	if (with_bias)
	{
		name_of(what, sizeof(what), "db", c);
		CHECK_TENSOR(d, what, dev_db, DTYPE_F32, want_db, channels, 1e-6, sum_error(pixels));
	}
	device_free(d, dev_x, in * test_dtype_bytes(d->dtype));
	device_free(d, dev_w, weights * test_dtype_bytes(d->dtype));
	device_free(d, dev_dy, out * test_dtype_bytes(d->dtype));
	device_free(d, dev_dx, in * test_dtype_bytes(d->dtype));
	device_free(d, dev_dw, weights * sizeof(float));
	device_free(d, dev_db, channels * sizeof(float));
	free(x);
	free(w);
	free(dy);
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
}

TEST(conv2d_backward_gives_the_gradients_of_x_w_and_b)
{
	for_each_device(backward_all);
}

static void
fewer_rows(const Device *d)
{
	ConvCase	c = {16, 10, 10, 16, 3, 3, 1, 1, 1, 1, 7};

	/* what was made for 7 images must serve 1 and then 7 again */
	forward(d, &c, ACT_RELU, 1);
	c.n = 1;
	forward(d, &c, ACT_RELU, 1);
	backward(d, &c, 1, 1);
	c.n = 7;
	forward(d, &c, ACT_RELU, 1);
	backward(d, &c, 0, 1);
}

TEST(conv2d_takes_batches_of_changing_size)
{
	for_each_device(fewer_rows);
}

static void
nan_passes(const Device *d)
{
	Conv2dShape s = ref_conv_shape(16, 8, 8, 16, 3, 3, 1, 1, 1, 1);
	size_t		in = ref_in_size(&s, 1),
				out = ref_out_size(&s, 1),
				weights = ref_weight_size(&s),
				seen = 0,
				i;
	double	   *x = random_values(in, 1, -1, 1, d->dtype),
			   *w = random_values(weights, 2, 0.5, 1, d->dtype),
			   *y;
	void	   *dev_x,
			   *dev_w = device_put(d, w, weights, d->dtype),
			   *dev_y = device_new(d, out, d->dtype);

	x[(3 * 8 + 5) * 16 + 2] = NAN;
	dev_x = device_put(d, x, in, d->dtype);
	CHECK_OK(d, d->ops->conv2d_fwd(d->be, &s, 1, dev_x, dev_w, NULL, ACT_RELU, dev_y, d->dtype, err));
	y = device_read(d, dev_y, out, d->dtype);
	for (i = 0; i < out; i++)
	{
		size_t		oh = i / (8 * 16),
					ow = i / 16 % 8;
		int			sees = oh >= 2 && oh <= 4 && ow >= 4 && ow <= 6;

		/* Winograd spreads it over the tile that holds it, so more may be NaN, never less. */
		CHECK(!sees || isnan(y[i]), "%s: y(%zu, %zu) is %g", d->label, oh, ow, y[i]);
		seen += isnan(y[i]);
	}
	CHECK(seen < out, "%s: all of y is NaN", d->label);
	device_free(d, dev_x, in * test_dtype_bytes(d->dtype));
	device_free(d, dev_w, weights * test_dtype_bytes(d->dtype));
	device_free(d, dev_y, out * test_dtype_bytes(d->dtype));
	free(x);
	free(w);
	free(y);
}

TEST(conv2d_with_relu_does_not_hide_a_nan)
{
	for_each_device(nan_passes);
}

static void
repeats(const Device *d)
{
	Conv2dShape s = ref_conv_shape(16, 9, 9, 24, 3, 3, 1, 1, 1, 1);
	size_t		n = 11,
				in = ref_in_size(&s, n),
				out = ref_out_size(&s, n),
				bytes = ref_weight_size(&s) * sizeof(float);
	double	   *x = random_values(in, 1, -1, 1, d->dtype),
			   *dy = random_values(out, 2, -1, 1, d->dtype);
	void	   *dev_x = device_put(d, x, in, d->dtype),
			   *dev_dy = device_put(d, dy, out, d->dtype),
			   *dw = device_new(d, ref_weight_size(&s), DTYPE_F32),
			   *db = device_new(d, (size_t) s.c_out, DTYPE_F32),
			   *first = malloc(bytes),
			   *again = malloc(bytes);
	int			i;

	for (i = 0; i < 5; i++)
	{
		CHECK_OK(d, d->ops->conv2d_bwd_weight(d->be, &s, n, dev_dy, dev_x, dw, db, 0, d->dtype, err));
		device_read_bytes(d, dw, i == 0 ? first : again, bytes);
		CHECK(i == 0 || memcmp(first, again, bytes) == 0, "%s: run %d differs from the first", d->label, i);
	}
	device_free(d, dev_x, in * test_dtype_bytes(d->dtype));
	device_free(d, dev_dy, out * test_dtype_bytes(d->dtype));
	device_free(d, dw, bytes);
	device_free(d, db, (size_t) s.c_out * sizeof(float));
	free(x);
	free(dy);
	free(first);
	free(again);
}

TEST(conv2d_gradients_repeat_bit_for_bit)
{
	for_each_device(repeats);
}
