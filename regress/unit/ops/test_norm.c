/*
 * test_norm.c - batch norm and layer norm against the reference.
 */
#include "regress/unit/ops/device.h"
#include "regress/unit/ops/reference.h"

typedef struct NormCase
{
	size_t		m,
				c;
	double		center;			/* the inputs lie around it */
} NormCase;

static const NormCase cases[] = {
	{2, 1, 0}, {3, 5, 0}, {64, 17, 1}, {257, 64, 0}, {1000, 3, -2}, {17, 1030, 0}, {4099, 33, 5}
};

#define CASES (sizeof(cases) / sizeof(cases[0]))

/*
 * Normalised values are of size 1; their error is that of the statistics and of the inputs' difference from a
 * mean of size center, some units in the last place of that.
 */
static double
norm_error(const NormCase *c)
{
	return 3e-6 * (1 + fabs(c->center));
}

typedef struct NormData
{
	double	   *x,
			   *dy,
			   *gamma,
			   *beta,
			   *mean,
			   *invstd,
			   *y,
			   *dx,
			   *dgamma,
			   *dbeta;
	void	   *dev_x,
			   *dev_dy,
			   *dev_gamma,
			   *dev_beta,
			   *dev_mean,
			   *dev_invstd,
			   *dev_y,
			   *dev_dx,
			   *dev_dgamma,
			   *dev_dbeta;
	size_t		groups;
} NormData;

static NormData
norm_data(const Device *d, const NormCase *k, int by_column)
{
	size_t		m = k->m,
				c = k->c,
				groups = by_column ? c : m;
	NormData	t;

	t.groups = groups;
	t.x = random_values(m * c, 1, k->center - 1, k->center + 1, d->dtype);
	t.dy = random_values(m * c, 2, -1, 1, d->dtype);
	t.gamma = random_values(c, 3, 0.5, 1.5, DTYPE_F32);
	t.beta = random_values(c, 4, -1, 1, DTYPE_F32);
	t.mean = malloc(groups * sizeof(double));
	t.invstd = malloc(groups * sizeof(double));
	t.y = malloc(m * c * sizeof(double));
	t.dx = malloc(m * c * sizeof(double));
	t.dgamma = malloc(c * sizeof(double));
	t.dbeta = malloc(c * sizeof(double));
	ref_norm(m, c, by_column, t.x, t.gamma, t.beta, 1e-5, t.mean, t.invstd, t.y);
	ref_norm_bwd(m, c, by_column, t.x, t.dy, t.gamma, t.mean, t.invstd, t.dx, t.dgamma, t.dbeta);
	t.dev_x = device_put(d, t.x, m * c, d->dtype);
	t.dev_dy = device_put(d, t.dy, m * c, d->dtype);
	t.dev_gamma = device_put(d, t.gamma, c, DTYPE_F32);
	t.dev_beta = device_put(d, t.beta, c, DTYPE_F32);
	t.dev_mean = device_new_unset(d, groups, DTYPE_F32);
	t.dev_invstd = device_new_unset(d, groups, DTYPE_F32);
	t.dev_y = device_new_unset(d, m * c, d->dtype);
	t.dev_dx = device_new_unset(d, m * c, d->dtype);
	t.dev_dgamma = device_new_unset(d, c, DTYPE_F32);
	t.dev_dbeta = device_new_unset(d, c, DTYPE_F32);
	return t;
}

static void
norm_free(const Device *d, const NormCase *k, NormData *t)
{
	size_t		values = k->m * k->c * test_dtype_bytes(d->dtype),
				channels = k->c * sizeof(float);

	device_free(d, t->dev_x, values);
	device_free(d, t->dev_dy, values);
	device_free(d, t->dev_gamma, channels);
	device_free(d, t->dev_beta, channels);
	device_free(d, t->dev_mean, t->groups * sizeof(float));
	device_free(d, t->dev_invstd, t->groups * sizeof(float));
	device_free(d, t->dev_y, values);
	device_free(d, t->dev_dx, values);
	device_free(d, t->dev_dgamma, channels);
	device_free(d, t->dev_dbeta, channels);
	free(t->x);
	free(t->dy);
	free(t->gamma);
	free(t->beta);
	free(t->mean);
	free(t->invstd);
	free(t->y);
	free(t->dx);
	free(t->dgamma);
	free(t->dbeta);
}

/* The gradients of the parameters: overwritten by the first call, doubled by a second that accumulates. */
static void
check_parameter_gradients(const Device *d, const NormCase *k, NormData *t, double times)
{
	size_t		j;
	double	   *want = malloc(k->c * sizeof(double));

	for (j = 0; j < k->c; j++)
		want[j] = times * t->dgamma[j];
	CHECK_TENSOR(d, "dgamma", t->dev_dgamma, DTYPE_F32, want, k->c, 1e-5, times * (norm_error(k) + sum_error(k->m)) * 2);
	for (j = 0; j < k->c; j++)
		want[j] = times * t->dbeta[j];
	CHECK_TENSOR(d, "dbeta", t->dev_dbeta, DTYPE_F32, want, k->c, 1e-6, times * sum_error(k->m));
	free(want);
}

static void
batch_norm(const Device *d, const NormCase *k)
{
	size_t		m = k->m,
				c = k->c,
				j;
	NormData	t = norm_data(d, k, 1);
	double	   *running_mean = random_values(c, 5, -1, 1, DTYPE_F32),
			   *running_var = random_values(c, 6, 0.5, 2, DTYPE_F32),
			   *want = malloc(m * c * sizeof(double));
	void	   *dev_running_mean = device_put(d, running_mean, c, DTYPE_F32),
			   *dev_running_var = device_put(d, running_var, c, DTYPE_F32);

	/* in evaluation the running statistics normalise */
	for (j = 0; j < m * c; j++)
		want[j] = (t.x[j] - running_mean[j % c]) / sqrt(running_var[j % c] + 1e-5) * t.gamma[j % c] + t.beta[j % c];
	CHECK_OK(d, d->ops->batchnorm_fwd_eval(d->be, m, c, t.dev_x, t.dev_gamma, t.dev_beta, 1e-5f, dev_running_mean,
										   dev_running_var, t.dev_y, d->dtype, err));
	CHECK_TENSOR(d, "y in evaluation", t.dev_y, d->dtype, want, m * c, rounding(d->dtype), norm_error(k));

	CHECK_OK(d, d->ops->batchnorm_fwd_train(d->be, m, c, t.dev_x, t.dev_gamma, t.dev_beta, 1e-5f, 0.1f,
											dev_running_mean, dev_running_var, t.dev_mean, t.dev_invstd, t.dev_y,
											d->dtype, err));
	CHECK_TENSOR(d, "y", t.dev_y, d->dtype, t.y, m * c, rounding(d->dtype) + 1e-5, norm_error(k));
	CHECK_TENSOR(d, "saved mean", t.dev_mean, DTYPE_F32, t.mean, c, 1e-6, 1e-6);
	CHECK_TENSOR(d, "saved 1 / deviation", t.dev_invstd, DTYPE_F32, t.invstd, c, 1e-5, 0);
	for (j = 0; j < c; j++)
	{
		double		var = (1 / (t.invstd[j] * t.invstd[j]) - 1e-5) * (double) m / (double) (m - 1);

		running_mean[j] += 0.1 * (t.mean[j] - running_mean[j]);
		running_var[j] += 0.1 * (var - running_var[j]);
	}
	CHECK_TENSOR(d, "running mean", dev_running_mean, DTYPE_F32, running_mean, c, 1e-6, 1e-6);
	CHECK_TENSOR(d, "running variance", dev_running_var, DTYPE_F32, running_var, c, 1e-5, 1e-6);

	CHECK_OK(d, d->ops->batchnorm_bwd(d->be, m, c, t.dev_dy, t.dev_x, t.dev_gamma, t.dev_mean, t.dev_invstd,
									  t.dev_dx, t.dev_dgamma, t.dev_dbeta, 0, d->dtype, err));
	/* With few rows in a column they may lie close together: then 1 / deviation magnifies what is left of dx. */
	CHECK_TENSOR(d, "dx", t.dev_dx, d->dtype, t.dx, m * c, rounding(d->dtype) + 1e-5,
				 m > 16 ? 4 * norm_error(k) : 2e-3);
	check_parameter_gradients(d, k, &t, 1);
	CHECK_OK(d, d->ops->batchnorm_bwd(d->be, m, c, t.dev_dy, t.dev_x, t.dev_gamma, t.dev_mean, t.dev_invstd,
									  NULL, t.dev_dgamma, t.dev_dbeta, 1, d->dtype, err));
	check_parameter_gradients(d, k, &t, 2);
	device_free(d, dev_running_mean, c * sizeof(float));
	device_free(d, dev_running_var, c * sizeof(float));
	free(running_mean);
	free(running_var);
	free(want);
	norm_free(d, k, &t);
}

static void
batch_norm_all(const Device *d)
{
	size_t		i;

	for (i = 0; i < CASES; i++)
		batch_norm(d, &cases[i]);
}

TEST(batchnorm_normalises_columns_and_moves_running_statistics)
{
	for_each_device(batch_norm_all);
}

static void
batch_norm_one_row(const Device *d)
{
	NormCase	k = {1, 4, 0};
	NormData	t = norm_data(d, &k, 1);

	CHECK_STATUS(d, STATUS_INVALID,
				 d->ops->batchnorm_fwd_train(d->be, 1, 4, t.dev_x, t.dev_gamma, t.dev_beta, 1e-5f, 0.1f, t.dev_mean,
											 t.dev_invstd, t.dev_dgamma, t.dev_dbeta, t.dev_y, d->dtype, err));
	norm_free(d, &k, &t);
}

TEST(batchnorm_refuses_to_train_on_one_row)
{
	for_each_device(batch_norm_one_row);
}

static void
layer_norm(const Device *d, const NormCase *k)
{
	size_t		m = k->m,
				c = k->c;
	NormData	t = norm_data(d, k, 0);

	CHECK_OK(d, d->ops->layernorm_fwd(d->be, m, c, t.dev_x, t.dev_gamma, t.dev_beta, 1e-5f, t.dev_mean,
									  t.dev_invstd, t.dev_y, d->dtype, err));
	/* Rows of few values may lie close together: then 1 / deviation magnifies all that follows. */
	CHECK_TENSOR(d, "y", t.dev_y, d->dtype, t.y, m * c, rounding(d->dtype) + 1e-5, c > 16 ? norm_error(k) : 1e-4);
	CHECK_TENSOR(d, "saved mean", t.dev_mean, DTYPE_F32, t.mean, m, 1e-6, 1e-6);
	CHECK_TENSOR(d, "saved 1 / deviation", t.dev_invstd, DTYPE_F32, t.invstd, m, c > 16 ? 1e-5 : 1e-4, 0);
	CHECK_OK(d, d->ops->layernorm_bwd(d->be, m, c, t.dev_dy, t.dev_x, t.dev_gamma, t.dev_mean, t.dev_invstd,
									  t.dev_dx, t.dev_dgamma, t.dev_dbeta, 0, d->dtype, err));
	CHECK_TENSOR(d, "dx", t.dev_dx, d->dtype, t.dx, m * c, rounding(d->dtype) + 1e-5,
				 c > 16 ? 4 * norm_error(k) : 2e-3);
	check_parameter_gradients(d, k, &t, 1);
	CHECK_OK(d, d->ops->layernorm_bwd(d->be, m, c, t.dev_dy, t.dev_x, t.dev_gamma, t.dev_mean, t.dev_invstd,
									  NULL, t.dev_dgamma, t.dev_dbeta, 1, d->dtype, err));
	check_parameter_gradients(d, k, &t, 2);
	norm_free(d, k, &t);
}

static void
layer_norm_all(const Device *d)
{
	size_t		i;

	for (i = 0; i < CASES; i++)
		layer_norm(d, &cases[i]);
	layer_norm(d, &(NormCase) {1, 50, 0});
}

TEST(layernorm_normalises_rows)
{
	for_each_device(layer_norm_all);
}
