/*
 * test_loss.c - losses and their gradients against the reference.
 */
#include "regress/unit/ops/device.h"
#include "regress/unit/ops/reference.h"

#include "kernels/philox.h"

static int
is_classification(LossKind kind)
{
	return kind == LOSS_CROSS_ENTROPY || kind == LOSS_BCE_WITH_LOGITS;
}

static void *
put_targets(const Device *d, LossKind kind, const double *targets, size_t n)
{
	int32_t    *classes = malloc(n * sizeof(int32_t));
	void	   *tensor;
	size_t		i;

	if (!is_classification(kind))
	{
		free(classes);
		return device_put(d, targets, n, DTYPE_F32);
	}
	for (i = 0; i < n; i++)
		classes[i] = (int32_t) targets[i];
	tensor = device_put_bytes(d, classes, n * sizeof(int32_t));
	free(classes);
	return tensor;
}

static void
loss(const Device *d, LossKind kind, size_t m, size_t c, double range)
{
	size_t		ntargets = is_classification(kind) ? m : m * c,
				i;
	double	   *logits = random_values(m * c, 1, -range, range, DTYPE_F32),
			   *targets = random_values(ntargets, 2, -2, 2, DTYPE_F32),
			   *dlogits = malloc(m * c * sizeof(double)),
				scale = 0.125;
	void	   *dev_logits = device_put(d, logits, m * c, DTYPE_F32),
			   *dev_targets,
			   *dev_d = device_new_unset(d, m * c, d->dtype),
			   *dev_sums;
	LossSums	sums,
				want,
				before = {1, 2, 3, 4, 5};

	for (i = 0; i < m && is_classification(kind); i++)
		targets[i] = philox_word(3, 0, i) % (kind == LOSS_BCE_WITH_LOGITS ? 2 : c);
	dev_targets = put_targets(d, kind, targets, ntargets);
	dev_sums = device_put_bytes(d, &before, sizeof(before));
	ref_loss(kind, m, c, logits, targets, scale, dlogits, &want);

	CHECK_OK(d, d->ops->loss(d->be, kind, m, c, dev_logits, dev_targets, (float) scale, NULL, dev_d, d->dtype,
							 dev_sums, err));
	/* gradients are differences of numbers below 1 (or the targets' size), times the scale */
	CHECK_TENSOR(d, "dlogits", dev_d, d->dtype, dlogits, m * c, rounding(d->dtype), 1e-6);
	device_read_bytes(d, dev_sums, &sums, sizeof(sums));
	/* each row's loss is good to fp32 */
	CHECK_CLOSE(sums.loss - before.loss, want.loss, 2e-6, 1e-6);
	CHECK_CLOSE(sums.correct - before.correct, want.correct, 0, 1e-9);
	CHECK_CLOSE(sums.squared_error - before.squared_error, want.squared_error, 2e-6, 1e-6);
	CHECK_CLOSE(sums.absolute_error - before.absolute_error, want.absolute_error, 2e-6, 1e-6);
	CHECK_CLOSE(sums.rows - before.rows, (double) m, 0, 1e-9);

	/* evaluation: sums alone */
	CHECK_OK(d, d->ops->loss(d->be, kind, m, c, dev_logits, dev_targets, (float) scale, NULL, NULL, d->dtype,
							 dev_sums, err));
	device_read_bytes(d, dev_sums, &sums, sizeof(sums));
	CHECK_CLOSE(sums.loss - before.loss, 2 * want.loss, 2e-6, 1e-6);
	device_free(d, dev_logits, m * c * sizeof(float));
	device_free(d, dev_targets, ntargets * 4);
	device_free(d, dev_d, m * c * test_dtype_bytes(d->dtype));
	device_free(d, dev_sums, sizeof(sums));
	free(logits);
	free(targets);
	free(dlogits);
}

static void
loss_all(const Device *d)
{
	static const size_t rows[] = {1, 5, 64, 131, 3001};
	static const size_t columns[] = {1, 2, 10, 17, 100};
	size_t		i,
				j;

	for (i = 0; i < 5; i++)
	{
		loss(d, LOSS_BCE_WITH_LOGITS, rows[i], 1, 4);
		loss(d, LOSS_BCE_WITH_LOGITS, rows[i], 1, 200);
		for (j = 0; j < 5; j++)
		{
			loss(d, LOSS_CROSS_ENTROPY, rows[i], columns[j], 4);
			loss(d, LOSS_CROSS_ENTROPY, rows[i], columns[j], 200);
			loss(d, LOSS_MSE, rows[i], columns[j], 3);
			loss(d, LOSS_SMOOTH_L1, rows[i], columns[j], 3);
		}
	}
}

TEST(losses_and_their_gradients)
{
	for_each_device(loss_all);
}

static void
loss_nan(const Device *d)
{
	static const double bad[] = {NAN, INFINITY, -INFINITY};
	int			kind,
				b;

	for (kind = LOSS_CROSS_ENTROPY; kind <= LOSS_SMOOTH_L1; kind++)
		for (b = 0; b < 3; b++)
		{
			size_t		m = 9,
						c = kind == LOSS_BCE_WITH_LOGITS ? 1 : 4;
			double	   *logits = random_values(m * c, 1, -1, 1, DTYPE_F32),
						targets[64] = {0};
			void	   *dev_logits,
					   *dev_targets = put_targets(d, (LossKind) kind, targets, is_classification(kind) ? m : m * c),
					   *dev_d = device_new(d, m * c, d->dtype),
					   *dev_sums;
			LossSums	sums = {0};

			/* class 0 is right: an infinite logit of class 1 makes an infinite loss, minus infinity a finite one */
			logits[5 * c + (kind == LOSS_CROSS_ENTROPY ? 1 : 0)] = bad[b];
			dev_logits = device_put(d, logits, m * c, DTYPE_F32);
			dev_sums = device_put_bytes(d, &sums, sizeof(sums));
			CHECK_OK(d, d->ops->loss(d->be, (LossKind) kind, m, c, dev_logits, dev_targets, 1, NULL, dev_d, d->dtype,
									 dev_sums, err));
			device_read_bytes(d, dev_sums, &sums, sizeof(sums));
			if (is_classification(kind) && bad[b] < 0)
				CHECK(isfinite(sums.loss), "%s: loss %d of %g is %g", d->label, kind, bad[b], sums.loss);
			else
				CHECK(!isfinite(sums.loss), "%s: loss %d of %g is %g", d->label, kind, bad[b], sums.loss);
			CHECK(sums.correct <= 9, "%s: %g rows are right", d->label, sums.correct);
			device_free(d, dev_logits, m * c * sizeof(float));
			device_free(d, dev_targets, (is_classification(kind) ? m : m * c) * 4);
			device_free(d, dev_d, m * c * test_dtype_bytes(d->dtype));
			device_free(d, dev_sums, sizeof(sums));
			free(logits);
		}
}

TEST(a_logit_that_is_not_finite_shows_in_the_loss)
{
	for_each_device(loss_nan);
}

/* A device that works behind the calls refuses when it is waited for. */
#define CHECK_REFUSED(d, call) \
	CHECK_STATUS(d, STATUS_INVALID, refused_late(d, call, err))

static Status
refused_late(const Device *d, Status status, Error *err)
{
	return status != STATUS_OK ? status : d->ops->sync(d->be, err);
}

static void
bad_target(const Device *d)
{
	static const int32_t targets[] = {0, 1, 2, 3, 1, -1};
	float		logits[18] = {0};
	LossSums	sums = {0};
	void	   *dev_logits = device_put_bytes(d, logits, sizeof(logits)),
			   *dev_targets = device_put_bytes(d, targets, sizeof(targets)),
			   *dev_sums = device_put_bytes(d, &sums, sizeof(sums));

	CHECK_REFUSED(d, d->ops->loss(d->be, LOSS_CROSS_ENTROPY, 4, 3, dev_logits, dev_targets, 1, NULL, NULL, d->dtype,
								  dev_sums, err));
	CHECK_REFUSED(d, d->ops->loss(d->be, LOSS_CROSS_ENTROPY, 1, 3, dev_logits, (int32_t *) dev_targets + 5, 1, NULL,
								  NULL, d->dtype, dev_sums, err));
	CHECK_REFUSED(d, d->ops->loss(d->be, LOSS_BCE_WITH_LOGITS, 3, 1, dev_logits, dev_targets, 1, NULL, NULL, d->dtype,
								  dev_sums, err));
	device_read_bytes(d, dev_sums, &sums, sizeof(sums));
	CHECK(sums.rows == 0 && sums.loss == 0, "%s: a refused batch was counted", d->label);
	device_free(d, dev_logits, sizeof(logits));
	device_free(d, dev_targets, sizeof(targets));
	device_free(d, dev_sums, sizeof(sums));
}

TEST(a_target_that_is_no_class_is_refused)
{
	for_each_device(bad_target);
}
