/*
 * test_optimizer.c - optimizer steps against the reference, and the gradient's norm.
 */
#include "regress/unit/ops/device.h"
#include "regress/unit/ops/reference.h"

/* Enough for several threads, and not a multiple of a vector. */
#define PARAMETERS 40003
#define STEPS 5

/* shadow_dtype of d where shadow is set */
static void
check_step(const Device *d, const void *p, const double *want, const void *shadow, double error)
{
	double	   *got = device_read(d, p, PARAMETERS, DTYPE_F32);
	size_t		i;

	check_values(__FILE__, __LINE__, d, "parameters", got, want, PARAMETERS, 0, error);
	if (shadow != NULL)
	{
		for (i = 0; i < PARAMETERS; i++)
			got[i] = round_to(got[i], d->dtype);
		check_tensor(__FILE__, __LINE__, d, "shadow", shadow, d->dtype, got, PARAMETERS, 0, 0);
	}
	free(got);
}

static void
sgd(const Device *d, SgdArgs args, int with_shadow)
{
	double	   *p = random_values(PARAMETERS, 1, -1, 1, DTYPE_F32),
			   *buffer = calloc(PARAMETERS, sizeof(double));
	void	   *dev_p = device_put(d, p, PARAMETERS, DTYPE_F32),
			   *dev_buffer = args.momentum != 0 ? device_new_unset(d, PARAMETERS, DTYPE_F32) : NULL,
			   *shadow = with_shadow ? device_new_unset(d, PARAMETERS, d->dtype) : NULL;

	for (args.step = 1; args.step <= STEPS; args.step++)
	{
		double	   *g = random_values(PARAMETERS, 10 + (uint64_t) args.step, -1, 1, DTYPE_F32);
		void	   *dev_g = device_put(d, g, PARAMETERS, DTYPE_F32);

		ref_sgd_step(PARAMETERS, p, g, buffer, &args);
		CHECK_OK(d, d->ops->sgd_step(d->be, PARAMETERS, dev_p, dev_g, dev_buffer, &args, shadow, d->dtype, err));
		/* a few roundings of numbers of size 1 a step */
		check_step(d, dev_p, p, shadow, 1e-6);
		device_free(d, dev_g, PARAMETERS * sizeof(float));
		free(g);
	}
	device_free(d, dev_p, PARAMETERS * sizeof(float));
	device_free(d, dev_buffer, PARAMETERS * sizeof(float));
	device_free(d, shadow, PARAMETERS * test_dtype_bytes(d->dtype));
	free(p);
	free(buffer);
}

static void
sgd_all(const Device *d)
{
	sgd(d, (SgdArgs) {.lr = 0.1f}, 0);
	sgd(d, (SgdArgs) {.lr = 0.1f,.weight_decay = 0.01f}, 1);
	sgd(d, (SgdArgs) {.lr = 0.1f,.momentum = 0.9f,.weight_decay = 0.01f}, 0);
	sgd(d, (SgdArgs) {.lr = 0.1f,.momentum = 0.9f,.weight_decay = 0.01f,.nesterov = 1}, 1);
}

TEST(sgd_steps_as_pytorch_does)
{
	for_each_device(sgd_all);
}

static void
adam(const Device *d, AdamArgs args, int with_shadow)
{
	double	   *p = random_values(PARAMETERS, 1, -1, 1, DTYPE_F32),
			   *m = calloc(PARAMETERS, sizeof(double)),
			   *v = calloc(PARAMETERS, sizeof(double));
	void	   *dev_p = device_put(d, p, PARAMETERS, DTYPE_F32),
			   *dev_m = device_put(d, m, PARAMETERS, DTYPE_F32),
			   *dev_v = device_put(d, v, PARAMETERS, DTYPE_F32),
			   *shadow = with_shadow ? device_new_unset(d, PARAMETERS, d->dtype) : NULL;

	for (args.step = 1; args.step <= STEPS; args.step++)
	{
		double	   *g = random_values(PARAMETERS, 10 + (uint64_t) args.step, -1, 1, DTYPE_F32);
		void	   *dev_g;

		/* a parameter without gradient does not move */
		g[17] = 0;
		dev_g = device_put(d, g, PARAMETERS, DTYPE_F32);
		ref_adam_step(PARAMETERS, p, g, m, v, &args);
		CHECK_OK(d, d->ops->adam_step(d->be, PARAMETERS, dev_p, dev_g, dev_m, dev_v, &args, shadow, d->dtype, err));
		/* a step is of the size of the learning rate; its relative error is some 1e-6 */
		check_step(d, dev_p, p, shadow, 5e-7 + 1e-5 * (double) args.lr);
		device_free(d, dev_g, PARAMETERS * sizeof(float));
		free(g);
	}
	/* m and v are sums of numbers below 1 */
	CHECK_TENSOR(d, "m", dev_m, DTYPE_F32, m, PARAMETERS, 1e-5, 1e-7);
	CHECK_TENSOR(d, "v", dev_v, DTYPE_F32, v, PARAMETERS, 1e-5, 1e-9);
	device_free(d, dev_p, PARAMETERS * sizeof(float));
	device_free(d, dev_m, PARAMETERS * sizeof(float));
	device_free(d, dev_v, PARAMETERS * sizeof(float));
	device_free(d, shadow, PARAMETERS * test_dtype_bytes(d->dtype));
	free(p);
	free(m);
	free(v);
}

static void
adam_all(const Device *d)
{
	AdamArgs	args = {.lr = 0.01f,.beta1 = 0.9f,.beta2 = 0.999f,.eps = 1e-8f};

	adam(d, args, 0);
	args.weight_decay = 0.1f;
	adam(d, args, 1);
	args.decoupled = 1;
	adam(d, args, 1);
}

TEST(adam_and_adamw_step_as_pytorch_does)
{
	for_each_device(adam_all);
}

static void
sum_squares(const Device *d)
{
	static const size_t sizes[] = {1, 15, 16, 1000, 300007};
	static const double bad[] = {NAN, INFINITY, -INFINITY};
	size_t		k,
				i;
	int			b;

	for (k = 0; k < 5; k++)
	{
		size_t		n = sizes[k];
		double	   *x = random_values(n, 1, -1, 1, DTYPE_F32),
					want = 100,
					got = 100;
		void	   *dev_x = device_put(d, x, n, DTYPE_F32),
				   *dev_sum = device_put_bytes(d, &want, sizeof(want));

		for (i = 0; i < n; i++)
			want += x[i] * x[i];
		CHECK_OK(d, d->ops->sum_squares(d->be, n, dev_x, dev_sum, err));
		device_read_bytes(d, dev_sum, &got, sizeof(got));
		/* added in double, or in fp32 over short runs */
		CHECK_CLOSE(got, want, 1e-7, 0);
		device_free(d, dev_x, n * sizeof(float));
		for (b = 0; b < 3; b++)
		{
			x[n * 2 / 3] = bad[b];
			dev_x = device_put(d, x, n, DTYPE_F32);
			want = 0;
			CHECK_OK(d, d->ops->copy_in(d->be, dev_sum, &want, sizeof(want), err));
			CHECK_OK(d, d->ops->sum_squares(d->be, n, dev_x, dev_sum, err));
			device_read_bytes(d, dev_sum, &got, sizeof(got));
			CHECK(!isfinite(got), "%s: the sum of squares with %g is %g", d->label, bad[b], got);
			device_free(d, dev_x, n * sizeof(float));
		}
		device_free(d, dev_sum, sizeof(double));
		free(x);
	}
}

TEST(sum_of_squares_adds_up_and_shows_nan_and_infinity)
{
	for_each_device(sum_squares);
}
