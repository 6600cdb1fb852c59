/*
 * train_spec.c - refusing a specification that cannot be trained.
 */
#include "engine/train_spec.h"

#include <math.h>

#include "engine/layers.h"

static Status
bad_value(Error *err, const char *name, double value, const char *must)
{
	return error_set(err, STATUS_INVALID, "%s must be %s, not %g", name, must, value);
}

static Status
check_optimizer(const TrainSpec *spec, Error *err)
{
	if (spec->optimizer != OPTIMIZER_SGD && spec->optimizer != OPTIMIZER_ADAM && spec->optimizer != OPTIMIZER_ADAMW)
		return error_set(err, STATUS_PROTOCOL, "optimizer %d is unknown", spec->optimizer);
	if (!(spec->learning_rate > 0 && isfinite(spec->learning_rate)))
		return bad_value(err, "learning_rate", spec->learning_rate, "positive");
	if (!(spec->weight_decay >= 0 && isfinite(spec->weight_decay)))
		return bad_value(err, "weight_decay", spec->weight_decay, "at least 0");
	if (spec->optimizer == OPTIMIZER_SGD)
	{
		if (!(spec->momentum >= 0 && isfinite(spec->momentum)))
			return bad_value(err, "momentum", spec->momentum, "at least 0");
		if (spec->nesterov && spec->momentum == 0)
			return error_set(err, STATUS_INVALID, "nesterov needs a momentum above 0");
		return STATUS_OK;
	}
	if (!(spec->beta1 >= 0 && spec->beta1 < 1))
		return bad_value(err, "beta1", spec->beta1, "at least 0 and below 1");
	if (!(spec->beta2 >= 0 && spec->beta2 < 1))
		return bad_value(err, "beta2", spec->beta2, "at least 0 and below 1");
	if (!(spec->eps > 0 && isfinite(spec->eps)))
		return bad_value(err, "eps", spec->eps, "positive");
	return STATUS_OK;
}

Status
train_spec_check(const DatasetView *data, const TrainSpec *spec, Error *err)
{
	bool		classes = spec->task == TASK_CLASSIFICATION;
	int64_t		want;

	if (spec->epochs < 1)
		return bad_value(err, "epochs", spec->epochs, "at least 1");
	if (spec->batch_size < 1)
		return bad_value(err, "batch_size", spec->batch_size, "at least 1");
	if (spec->accumulation_steps < 1)
		return bad_value(err, "accumulation_steps", spec->accumulation_steps, "at least 1");
	if (!(spec->max_grad_norm >= 0 && isfinite(spec->max_grad_norm)))
		return bad_value(err, "max_grad_norm", spec->max_grad_norm, "at least 0");
	if (spec->precision != DTYPE_F32 && spec->precision != DTYPE_BF16 && spec->precision != DTYPE_F16)
		return error_set(err, STATUS_PROTOCOL, "precision %d is unknown", spec->precision);
	TRY(check_optimizer(spec, err));
	if (classes != (data->nclasses > 0))
		return error_set(err, STATUS_PROTOCOL, "the dataset was loaded for another task");
	switch (spec->loss)
	{
		case LOSS_CROSS_ENTROPY:
			want = classes ? (int64_t) data->nclasses : -1;
			break;
		case LOSS_BCE_WITH_LOGITS:
			want = classes && data->nclasses == 2 ? 1 : -1;
			break;
		case LOSS_MSE:
		case LOSS_SMOOTH_L1:
			want = classes ? -1 : 1;
			break;
		default:
			return error_set(err, STATUS_PROTOCOL, "loss %d is unknown", spec->loss);
	}
	if (want < 0)
	{
		error_set(err, STATUS_INVALID, "the loss does not fit the task");
		error_hint(err, "Classification takes cross entropy, or binary cross entropy when there are two classes; regression takes mse or smooth_l1.");
		return STATUS_INVALID;
	}
	if (spec->outputs != want)
		return error_set(err, STATUS_INVALID, "the network has %d output%s, the loss needs %lld", spec->outputs,
						 spec->outputs == 1 ? "" : "s", (long long) want);
	if (spec->input.channels < 1 || spec->input.height < 0 || spec->input.width < 0 ||
		(int64_t) shape_elements(spec->input) != data->input_width)
	{
		error_set(err, STATUS_INVALID, "input shape (%d, %d, %d) does not fit the features, which have %d values a row",
				  spec->input.channels, spec->input.height, spec->input.width, data->input_width);
		error_hint(err, "The product of input_shape must be the number of values.");
		return STATUS_INVALID;
	}
	/* images of several channels were turned channels last when they came */
	if (shape_is_image(spec->input) && spec->input.channels > 1 && !shape_equal(spec->input, data->input))
		return error_set(err, STATUS_PROTOCOL, "the dataset was loaded for input shape (%d, %d, %d), not (%d, %d, %d)",
						 data->input.channels, data->input.height, data->input.width,
						 spec->input.channels, spec->input.height, spec->input.width);
	return STATUS_OK;
}
