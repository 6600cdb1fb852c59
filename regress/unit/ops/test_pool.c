/*
 * test_pool.c - pooling against the reference.
 */
#include "regress/unit/ops/device.h"
#include "regress/unit/ops/reference.h"

typedef struct PoolCase
{
	int			c,
				h,
				w,
				kernel_h,
				kernel_w,
				stride_h,
				stride_w,
				pad_h,
				pad_w;
	size_t		n;
} PoolCase;

static const PoolCase cases[] = {
	{32, 28, 28, 2, 2, 2, 2, 0, 0, 3},
	{64, 14, 14, 2, 2, 2, 2, 0, 0, 2},
	{1, 1, 1, 1, 1, 1, 1, 0, 0, 1},
	{7, 5, 5, 2, 2, 2, 2, 0, 0, 2},	/* a row and a column are left over */
	{3, 9, 8, 3, 3, 2, 2, 1, 1, 2}, /* windows overlap, padding */
	{70, 6, 7, 3, 2, 1, 1, 1, 1, 2},
	{130, 4, 4, 2, 2, 3, 3, 0, 0, 1},	/* gaps between windows */
	{5, 7, 7, 7, 7, 1, 1, 0, 0, 3}, /* one window */
	{16, 6, 6, 2, 3, 2, 3, 0, 0, 5},
	{9, 8, 4, 4, 2, 2, 1, 2, 1, 2}
};

#define CASES (sizeof(cases) / sizeof(cases[0]))

static Conv2dShape
shape_of(const PoolCase *c)
{
	return ref_conv_shape(c->c, c->h, c->w, c->c, c->kernel_h, c->kernel_w, c->stride_h, c->stride_w, c->pad_h,
						  c->pad_w);
}

static void
max_pool(const Device *d, const PoolCase *c, int relu)
{
	Conv2dShape s = shape_of(c);
	size_t		in = ref_in_size(&s, c->n),
				out = ref_out_size(&s, c->n),
				i;
	double	   *x = random_values(in, 1, -1, relu ? 0.5 : 1, d->dtype),
			   *dy = random_values(out, 2, -1, 1, d->dtype),
			   *want_y = malloc(out * sizeof(double)),
			   *want_dx = malloc(in * sizeof(double));
	uint8_t    *want_arg = malloc(out),
			   *arg = malloc(out);
	void	   *dev_x,
			   *dev_dy = device_put(d, dy, out, d->dtype),
			   *dev_y = device_new_unset(d, out, d->dtype),
			   *dev_y2 = device_new_unset(d, out, d->dtype),
			   *dev_dx = device_new_unset(d, in, d->dtype),
			   *dev_arg = device_new(d, out, DTYPE_U8);

	/* equal values, of which the first is taken */
	for (i = 0; i + 3 < in; i += 17)
		x[i + 3] = x[i];
	/* a channel of only negative values, and infinities */
	for (i = 0; i < in; i += (size_t) c->c)
		x[i] = round_to(-1 - fabs(x[i]), d->dtype);
	x[in / 2] = INFINITY;
	x[in / 3] = -INFINITY;
	dev_x = device_put(d, x, in, d->dtype);
	ref_maxpool2d_fwd(&s, c->n, x, relu, want_y, want_arg);
	CHECK_OK(d, d->ops->maxpool2d_fwd(d->be, &s, c->n, dev_x, relu, dev_y, dev_arg, d->dtype, err));
	/* A maximum is one of its inputs: exact. */
	CHECK_TENSOR(d, "y", dev_y, d->dtype, want_y, out, 0, 0);
	device_read_bytes(d, dev_arg, arg, out);
	for (i = 0; i < out; i++)
		CHECK(arg[i] == want_arg[i], "%s: argmax[%zu] is %d, expected %d (window %dx%d, relu %d)", d->label, i,
			  arg[i], want_arg[i], c->kernel_h, c->kernel_w, relu);
	CHECK_OK(d, d->ops->maxpool2d_fwd(d->be, &s, c->n, dev_x, relu, dev_y2, NULL, d->dtype, err));
	CHECK_TENSOR(d, "y without argmax", dev_y2, d->dtype, want_y, out, 0, 0);

	ref_maxpool2d_bwd(&s, c->n, dy, want_arg, want_dx);
	CHECK_OK(d, d->ops->maxpool2d_bwd(d->be, &s, c->n, dev_dy, dev_arg, dev_dx, d->dtype, err));
	/* sums of a few numbers below 1 where windows overlap */
	CHECK_TENSOR(d, "dx", dev_dx, d->dtype, want_dx, in, rounding(d->dtype), 1e-6);
	device_free(d, dev_x, in * test_dtype_bytes(d->dtype));
	device_free(d, dev_dy, out * test_dtype_bytes(d->dtype));
	device_free(d, dev_y, out * test_dtype_bytes(d->dtype));
	device_free(d, dev_y2, out * test_dtype_bytes(d->dtype));
	device_free(d, dev_dx, in * test_dtype_bytes(d->dtype));
	device_free(d, dev_arg, out);
	free(x);
	free(dy);
	free(want_y);
	free(want_dx);
	free(want_arg);
	free(arg);
}

static void
max_pool_all(const Device *d)
{
	size_t		i;

	for (i = 0; i < CASES; i++)
	{
		max_pool(d, &cases[i], 0);
		max_pool(d, &cases[i], 1);
	}
}

TEST(maxpool_takes_the_first_largest_and_sends_its_gradient_back)
{
	for_each_device(max_pool_all);
}

static void
max_pool_nan(const Device *d)
{
	size_t		k;
	int			relu;

	for (k = 0; k < CASES; k++)
		for (relu = 0; relu <= 1; relu++)
		{
			Conv2dShape s = shape_of(&cases[k]);
			size_t		n = cases[k].n,
						in = ref_in_size(&s, n),
						out = ref_out_size(&s, n),
						i;
			double	   *x = random_values(in, 1, -1, 1, d->dtype),
					   *want = malloc(out * sizeof(double));
			uint8_t    *arg = malloc(out);
			void	   *dev_x,
					   *dev_y = device_new(d, out, d->dtype),
					   *dev_arg = device_new(d, out, DTYPE_U8);

			for (i = 0; i < in; i += 5)
				x[i] = NAN;
			ref_maxpool2d_fwd(&s, n, x, relu, want, arg);
			dev_x = device_put(d, x, in, d->dtype);
			CHECK_OK(d, d->ops->maxpool2d_fwd(d->be, &s, n, dev_x, relu, dev_y, dev_arg, d->dtype, err));
			CHECK_TENSOR(d, "y with NaNs", dev_y, d->dtype, want, out, 0, 0);
			device_free(d, dev_x, in * test_dtype_bytes(d->dtype));
			device_free(d, dev_y, out * test_dtype_bytes(d->dtype));
			device_free(d, dev_arg, out);
			free(x);
			free(want);
			free(arg);
		}
}

TEST(maxpool_of_a_nan_is_nan)
{
	for_each_device(max_pool_nan);
}

static void
average_pool(const Device *d)
{
	size_t		k;

	for (k = 0; k < CASES; k++)
	{
		Conv2dShape s = shape_of(&cases[k]);
		size_t		n = cases[k].n,
					in = ref_in_size(&s, n),
					out = ref_out_size(&s, n);
		double	   *x = random_values(in, 1, -1, 1, d->dtype),
				   *dy = random_values(out, 2, -1, 1, d->dtype),
				   *want_y = malloc(out * sizeof(double)),
				   *want_dx = malloc(in * sizeof(double));
		void	   *dev_x = device_put(d, x, in, d->dtype),
				   *dev_dy = device_put(d, dy, out, d->dtype),
				   *dev_y = device_new_unset(d, out, d->dtype),
				   *dev_dx = device_new_unset(d, in, d->dtype);

		ref_avgpool2d_fwd(&s, n, x, want_y);
		ref_avgpool2d_bwd(&s, n, dy, want_dx);
		CHECK_OK(d, d->ops->avgpool2d_fwd(d->be, &s, n, dev_x, dev_y, d->dtype, err));
		CHECK_TENSOR(d, "y", dev_y, d->dtype, want_y, out, rounding(d->dtype), 1e-6);
		CHECK_OK(d, d->ops->avgpool2d_bwd(d->be, &s, n, dev_dy, dev_dx, d->dtype, err));
		CHECK_TENSOR(d, "dx", dev_dx, d->dtype, want_dx, in, rounding(d->dtype), 1e-6);
		device_free(d, dev_x, in * test_dtype_bytes(d->dtype));
		device_free(d, dev_dy, out * test_dtype_bytes(d->dtype));
		device_free(d, dev_y, out * test_dtype_bytes(d->dtype));
		device_free(d, dev_dx, in * test_dtype_bytes(d->dtype));
		free(x);
		free(dy);
		free(want_y);
		free(want_dx);
	}
}

TEST(avgpool_is_the_mean_with_padding_counted)
{
	for_each_device(average_pool);
}

static void
large_window(const Device *d)
{
	Conv2dShape s = ref_conv_shape(2, 20, 20, 2, 16, 16, 1, 1, 0, 0);
	size_t		in = ref_in_size(&s, 1),
				out = ref_out_size(&s, 1);
	double	   *x = random_values(in, 1, -1, 1, d->dtype),
			   *want = malloc(out * sizeof(double));
	uint8_t    *arg = malloc(out);
	void	   *dev_x = device_put(d, x, in, d->dtype),
			   *dev_y = device_new(d, out, d->dtype),
			   *dev_arg = device_new(d, out, DTYPE_U8);

	/* 256 positions do not fit a byte beside 255, which says "none" */
	CHECK_STATUS(d, STATUS_UNSUPPORTED,
				 d->ops->maxpool2d_fwd(d->be, &s, 1, dev_x, 0, dev_y, dev_arg, d->dtype, err));
	ref_maxpool2d_fwd(&s, 1, x, 0, want, arg);
	CHECK_OK(d, d->ops->maxpool2d_fwd(d->be, &s, 1, dev_x, 0, dev_y, NULL, d->dtype, err));
	CHECK_TENSOR(d, "y", dev_y, d->dtype, want, out, 0, 0);
	device_free(d, dev_x, in * test_dtype_bytes(d->dtype));
	device_free(d, dev_y, out * test_dtype_bytes(d->dtype));
	device_free(d, dev_arg, out);
	free(x);
	free(want);
	free(arg);
}

TEST(maxpool_refuses_to_record_a_window_of_256)
{
	for_each_device(large_window);
}
