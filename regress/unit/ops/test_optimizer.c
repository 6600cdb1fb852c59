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

/* A state on the device as a training has it before its first step, with a loss scale. */
static void *
new_state(const Device *d, float loss_scale)
{
	StepState	start = {.loss_scale = loss_scale};

	return device_put_bytes(d, &start, sizeof(start));
}

static StepState
begin_step(const Device *d, void *dev_state, float lr)
{
	StepState	state;

	CHECK_OK(d, d->ops->step_begin(d->be, dev_state, lr, 5, err));
	device_read_bytes(d, dev_state, &state, sizeof(state));
	return state;
}

static void
sgd(const Device *d, SgdArgs args, float loss_scale, int with_shadow)
{
	void	   *dev_state = new_state(d, loss_scale);
	int			step;
	double	   *p = random_values(PARAMETERS, 1, -1, 1, DTYPE_F32),
			   *buffer = calloc(PARAMETERS, sizeof(double));
	void	   *dev_p = device_put(d, p, PARAMETERS, DTYPE_F32),
			   *dev_buffer = args.momentum != 0 ? device_new_unset(d, PARAMETERS, DTYPE_F32) : NULL,
			   *shadow = with_shadow ? device_new_unset(d, PARAMETERS, d->dtype) : NULL;

	for (step = 1; step <= STEPS; step++)
	{
		double	   *g = random_values(PARAMETERS, 10 + (uint64_t) step, -1, 1, DTYPE_F32);
		StepState	state = begin_step(d, dev_state, 0.1f);
		void	   *dev_g = device_put(d, g, PARAMETERS, DTYPE_F32);

		CHECK(state.step == step && state.skip == 0 && state.lr == 0.1f && state.dropout_stream == 5,
			  "%s: step %lld began", d->label, (long long) state.step);
		ref_sgd_step(PARAMETERS, p, g, buffer, &args, &state);
		CHECK_OK(d, d->ops->sgd_step(d->be, PARAMETERS, dev_p, dev_g, dev_buffer, &args, dev_state, shadow,
									   d->dtype, err));
		/* a few roundings of numbers of size 1 a step */
		check_step(d, dev_p, p, shadow, 1e-6);
		device_free(d, dev_g, PARAMETERS * sizeof(float));
		free(g);
	}
	device_free(d, dev_p, PARAMETERS * sizeof(float));
	device_free(d, dev_buffer, PARAMETERS * sizeof(float));
	device_free(d, shadow, PARAMETERS * test_dtype_bytes(d->dtype));
	device_free(d, dev_state, sizeof(StepState));
	free(p);
	free(buffer);
}

static void
sgd_all(const Device *d)
{
	sgd(d, (SgdArgs) {0}, 1, 0);
	sgd(d, (SgdArgs) {.weight_decay = 0.01f}, 4, 1);
	sgd(d, (SgdArgs) {.momentum = 0.9f,.weight_decay = 0.01f}, 1, 0);
	sgd(d, (SgdArgs) {.momentum = 0.9f,.weight_decay = 0.01f,.nesterov = 1}, 4, 1);
}

TEST(sgd_steps_as_pytorch_does)
{
	for_each_device(sgd_all);
}

static void
adam(const Device *d, AdamArgs args, float loss_scale, int with_shadow)
{
	const float lr = 0.01f;
	void	   *dev_state = new_state(d, loss_scale);
	int			step;
	double	   *p = random_values(PARAMETERS, 1, -1, 1, DTYPE_F32),
			   *m = calloc(PARAMETERS, sizeof(double)),
			   *v = calloc(PARAMETERS, sizeof(double));
	void	   *dev_p = device_put(d, p, PARAMETERS, DTYPE_F32),
			   *dev_m = device_put(d, m, PARAMETERS, DTYPE_F32),
			   *dev_v = device_put(d, v, PARAMETERS, DTYPE_F32),
			   *shadow = with_shadow ? device_new_unset(d, PARAMETERS, d->dtype) : NULL;

	for (step = 1; step <= STEPS; step++)
	{
		double	   *g = random_values(PARAMETERS, 10 + (uint64_t) step, -1, 1, DTYPE_F32);
		StepState	state = begin_step(d, dev_state, lr);
		void	   *dev_g;

		/* a parameter without gradient does not move */
		g[17] = 0;
		dev_g = device_put(d, g, PARAMETERS, DTYPE_F32);
		ref_adam_step(PARAMETERS, p, g, m, v, &args, &state);
		CHECK_OK(d, d->ops->adam_step(d->be, PARAMETERS, dev_p, dev_g, dev_m, dev_v, &args, dev_state, shadow,
										d->dtype, err));
		/* a step is of the size of the learning rate; its relative error is some 1e-6 */
		check_step(d, dev_p, p, shadow, 5e-7 + 1e-5 * (double) lr);
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
	device_free(d, dev_state, sizeof(StepState));
	free(p);
	free(m);
	free(v);
}

static void
adam_all(const Device *d)
{
	AdamArgs	args = {.beta1 = 0.9f,.beta2 = 0.999f,.eps = 1e-8f};

	adam(d, args, 1, 0);
	args.weight_decay = 0.1f;
	adam(d, args, 4, 1);
	args.decoupled = 1;
	adam(d, args, 1, 1);
}

TEST(adam_and_adamw_step_as_pytorch_does)
{
	for_each_device(adam_all);
}

static StepState
check_gradients(const Device *d, void *dev_state, double gradient, GradientCheckArgs args)
{
	StepState	state;
	double		g[PARAMETERS];
	void	   *dev_g;
	size_t		i;

	for (i = 0; i < PARAMETERS; i++)
		g[i] = i == PARAMETERS / 2 ? gradient : 0.5;
	dev_g = device_put(d, g, PARAMETERS, DTYPE_F32);
	begin_step(d, dev_state, 0.1f);
	CHECK_OK(d, d->ops->gradient_check(d->be, PARAMETERS, dev_g, dev_state, &args, err));
	device_read_bytes(d, dev_state, &state, sizeof(state));
	device_free(d, dev_g, PARAMETERS * sizeof(float));
	return state;
}

/* torch.nn.utils.clip_grad_norm_ on unscaled gradients */
static void
clipping(const Device *d)
{
	void	   *dev_state = new_state(d, 8);
	double		norm = 0.5 * sqrt(PARAMETERS) / 8;
	StepState	state;

	state = check_gradients(d, dev_state, 0.5, (GradientCheckArgs) {.max_grad_norm = 2});
	CHECK_CLOSE(state.grad_norm, norm, 1e-6, 0);
	CHECK_CLOSE(state.grad_multiplier, 2 / (norm + 1e-6) / 8, 1e-6, 0);
	CHECK(state.skip == 0 && state.step == 1 && state.loss_scale == 8);
	state = check_gradients(d, dev_state, 0.5, (GradientCheckArgs) {.max_grad_norm = (float) norm * 1.01f});
	CHECK_CLOSE(state.grad_multiplier, 1.0 / 8, 0, 0);
	state = check_gradients(d, dev_state, 0.5, (GradientCheckArgs) {0});
	CHECK_CLOSE(state.grad_multiplier, 1.0 / 8, 0, 0);
	/* without loss scaling nothing is skipped, and the weights show it */
	state = check_gradients(d, dev_state, INFINITY, (GradientCheckArgs) {0});
	CHECK(state.skip == 0 && state.step == 4 && !isfinite(state.grad_norm));
	device_free(d, dev_state, sizeof(StepState));
}

TEST(gradients_are_clipped_by_their_norm)
{
	for_each_device(clipping);
}

/* torch.amp.GradScaler */
static void
scaling(const Device *d)
{
	GradientCheckArgs args = {.dynamic_scale = 1,.growth_factor = 2,.backoff_factor = 0.5f,.growth_interval = 3};
	float		host_p[4] = {1, 2, 3, 4};
	void	   *dev_state = new_state(d, 16),
			   *dev_p = device_put_bytes(d, host_p, sizeof(host_p));
	StepState	state;

	state = check_gradients(d, dev_state, 1, args);
	CHECK(state.loss_scale == 16 && state.good_steps == 1 && state.step == 1 && state.grad_multiplier == 1.0f / 16);
	state = check_gradients(d, dev_state, NAN, args);
	CHECK(state.loss_scale == 8 && state.good_steps == 0 && state.step == 1 && state.skipped == 1 && state.skip == 1);
	CHECK_OK(d, d->ops->sgd_step(d->be, 4, dev_p, dev_p, NULL, &(SgdArgs) {0}, dev_state, NULL, DTYPE_F32, err));
	CHECK_OK(d, d->ops->adam_step(d->be, 4, dev_p, dev_p, dev_p, dev_p, &(AdamArgs) {0}, dev_state, NULL, DTYPE_F32, err));
	device_read_bytes(d, dev_p, host_p, sizeof(host_p));
	CHECK(host_p[0] == 1 && host_p[3] == 4, "%s: a skipped step moved a parameter to %g", d->label, host_p[0]);
	state = check_gradients(d, dev_state, INFINITY, args);
	CHECK(state.loss_scale == 4 && state.skipped == 2);
	check_gradients(d, dev_state, 1, args);
	state = check_gradients(d, dev_state, 1, args);
	CHECK(state.loss_scale == 4 && state.good_steps == 2 && state.skip == 0);
	state = check_gradients(d, dev_state, 1, args);
	CHECK(state.loss_scale == 8 && state.good_steps == 0 && state.step == 4 && state.grad_multiplier == 1.0f / 4);
	device_free(d, dev_state, sizeof(StepState));
	device_free(d, dev_p, sizeof(host_p));
}

TEST(loss_scale_follows_the_gradients)
{
	for_each_device(scaling);
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
