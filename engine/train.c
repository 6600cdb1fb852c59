/*
 * train.c - the training loop.
 */
#define _GNU_SOURCE
#include "engine/train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/optimizer.h"
#include "engine/shuffle.h"
#include "engine/streams.h"

struct Trainer
{
	const BackendOps *ops;
	Backend    *be;
	const DatasetView *data;
	Network    *net;
	Optimizer	optimizer;
	Task		task;
	LossKind	loss;
	uint64_t	seed;
	int32_t		epochs;
	int32_t		epoch;			/* epochs done */
	size_t		batch_size;		/* rows of a micro-batch */
	size_t		accumulation_steps;
	size_t		micro_batches;	/* of an epoch */
	uint64_t	micro_batch;	/* micro-batches done in the run */
	double		seconds;		/* of the epochs done */

	/* device memory */
	uint32_t   *train_index;	/* [train_rows]: this epoch's order */
	uint32_t   *validation_index;	/* [validation_rows] */
	void	   *targets;		/* of a micro-batch, 4 bytes a row */
	float	   *scale,			/* [input_width], or NULL */
			   *offset;
	LossSums   *sums;
	size_t		max_rows;

	uint32_t   *order;			/* host: the order while it is drawn */
};

static double
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double) t.tv_sec + 1e-9 * (double) t.tv_nsec;
}

size_t
micro_batch_count(size_t n, size_t batch, size_t min_rows)
{
	size_t		count = n / batch,
				rest = n % batch;

	return count + (rest > 0 && (rest >= min_rows || count == 0));
}

/* Rows of micro-batch i of an epoch. */
static size_t
micro_batch_rows(const Trainer *t, size_t i)
{
	return i + 1 < t->micro_batches ? t->batch_size : t->data->train_rows - i * t->batch_size;
}

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

static Status
check_spec(const DatasetView *data, const TrainSpec *spec, Error *err)
{
	bool		classes = spec->task == TASK_CLASSIFICATION;
	int64_t		want;

	if (spec->epochs < 1)
		return bad_value(err, "epochs", spec->epochs, "at least 1");
	if (spec->batch_size < 1)
		return bad_value(err, "batch_size", spec->batch_size, "at least 1");
	if (spec->accumulation_steps < 1)
		return bad_value(err, "accumulation_steps", spec->accumulation_steps, "at least 1");
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

static Status
device_alloc(Trainer *t, size_t bytes, const void *initial, void *out, Error *err)
{
	void	   *memory;

	TRY(t->ops->alloc(t->be, bytes, &memory, err));
	*(void **) out = memory;
	return initial == NULL ? STATUS_OK : t->ops->copy_in(t->be, memory, initial, bytes, err);
}

static void
device_free(Trainer *t, void *memory, size_t bytes)
{
	if (memory != NULL)
		t->ops->free(t->be, memory, bytes);
}

static Status
trainer_build(Trainer *t, const TrainSpec *spec, Error *err)
{
	const DatasetView *data = t->data;
	size_t		width_bytes = (size_t) data->input_width * sizeof(float);
	int32_t		min_rows;

	t->batch_size = (size_t) spec->batch_size < data->train_rows ? (size_t) spec->batch_size : data->train_rows;
	/* room for a last single row */
	t->max_rows = t->batch_size + 1;
	TRY(network_create(t->ops, t->be, spec->layers, spec->nlayers, spec->input, t->max_rows,
					   spec->bf16 ? DTYPE_BF16 : DTYPE_F32, PROGRAM_TRAINING, &t->net, err));
	if (t->net->program.outputs != (size_t) spec->outputs)
		return error_set(err, STATUS_PROTOCOL, "the last layer has %zu outputs, not %d",
						 t->net->program.outputs, spec->outputs);
	min_rows = t->net->program.min_rows;
	if (t->batch_size < (size_t) min_rows)
	{
		if (data->train_rows == 1)
			error_set(err, STATUS_INVALID, "batch norm cannot train on a single row");
		else
			error_set(err, STATUS_INVALID, "batch norm cannot train with batch_size 1");
		error_detail(err, "The variance of a single value is not defined.");
		error_hint(err, "Use a batch_size of at least 2, or \"layernorm\".");
		return STATUS_INVALID;
	}
	t->micro_batches = micro_batch_count(data->train_rows, t->batch_size, min_rows);
	TRY(network_init(t->net, spec->seed, err));
	TRY(optimizer_create(t->net, spec, &t->optimizer, err));
	TRY(device_alloc(t, data->train_rows * sizeof(uint32_t), NULL, &t->train_index, err));
	if (data->validation_rows > 0)
		TRY(device_alloc(t, data->validation_rows * sizeof(uint32_t), data->validation, &t->validation_index, err));
	TRY(device_alloc(t, t->max_rows * 4, NULL, &t->targets, err));
	if (data->scale != NULL)
	{
		TRY(device_alloc(t, width_bytes, data->scale, &t->scale, err));
		TRY(device_alloc(t, width_bytes, data->offset, &t->offset, err));
	}
	TRY(device_alloc(t, sizeof(LossSums), NULL, &t->sums, err));
	t->order = malloc(data->train_rows * sizeof(uint32_t));
	if (t->order == NULL)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	return STATUS_OK;
}

Status
trainer_create(const BackendOps *ops, Backend *be, const Dataset *ds, const TrainSpec *spec,
			   Trainer **out, Error *err)
{
	Trainer    *t;
	Status		status;

	*out = NULL;
	TRY(check_spec(dataset_view(ds), spec, err));
	t = calloc(1, sizeof(Trainer));
	if (t == NULL)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	t->ops = ops;
	t->be = be;
	t->data = dataset_view(ds);
	t->task = spec->task;
	t->loss = spec->loss;
	t->seed = spec->seed;
	t->epochs = spec->epochs;
	t->accumulation_steps = spec->accumulation_steps;
	status = trainer_build(t, spec, err);
	if (status != STATUS_OK)
	{
		trainer_free(t);
		return status;
	}
	*out = t;
	return STATUS_OK;
}

void
trainer_free(Trainer *t)
{
	size_t		width_bytes;

	if (t == NULL)
		return;
	width_bytes = (size_t) t->data->input_width * sizeof(float);
	device_free(t, t->train_index, t->data->train_rows * sizeof(uint32_t));
	device_free(t, t->validation_index, t->data->validation_rows * sizeof(uint32_t));
	device_free(t, t->targets, t->max_rows * 4);
	device_free(t, t->scale, width_bytes);
	device_free(t, t->offset, width_bytes);
	device_free(t, t->sums, sizeof(LossSums));
	if (t->optimizer.net != NULL)
		optimizer_free(&t->optimizer);
	network_free(t->net);
	free(t->order);
	free(t);
}

Network *
trainer_network(Trainer *t)
{
	return t->net;
}

int64_t
trainer_steps(const Trainer *t)
{
	return t->optimizer.step;
}

/* Inputs and targets of some rows, into the network and targets. */
static Status
gather_batch(Trainer *t, const uint32_t *index, size_t rows, Error *err)
{
	const DatasetView *d = t->data;

	TRY(t->ops->gather(t->be, d->records, d->record_bytes, index, rows, d->segments, d->nsegments,
					   t->scale, t->offset, d->input_width, network_input(t->net), t->net->dtype, err));
	return t->ops->gather_field(t->be, d->targets, 4, 0, index, rows, t->targets, err);
}

static Status
read_sums(Trainer *t, LossSums *sums, Error *err)
{
	TRY(t->ops->sync(t->be, err));
	return t->ops->copy_out(t->be, sums, t->sums, sizeof(LossSums), err);
}

static Status
nonfinite(Trainer *t, const char *what, Error *err)
{
	error_set(err, STATUS_NONFINITE, "%s became not finite in epoch %d at step %lld", what, t->epoch + 1,
			  (long long) t->optimizer.step);
	error_hint(err, "Use a smaller learning_rate%s.",
			   t->data->scale == NULL ? ", or standardize => true if the features are large" : "");
	return STATUS_NONFINITE;
}

/* One optimizer step over the micro-batches [first, first + n). */
static Status
train_group(Trainer *t, size_t first, size_t n, Error *err)
{
	size_t		outputs = t->net->program.outputs,
				start = first * t->batch_size,
				group_rows = 0,
				i;
	float		grad_scale;

	for (i = first; i < first + n; i++)
		group_rows += micro_batch_rows(t, i);
	grad_scale = (float) (1.0 / (double) group_rows);
	for (i = first; i < first + n; i++)
	{
		size_t		rows = micro_batch_rows(t, i);

		TRY(gather_batch(t, t->train_index + start, rows, err));
		TRY(network_forward(t->net, rows, t->seed, t->micro_batch, err));
		TRY(t->ops->loss(t->be, t->loss, rows, outputs, network_logits(t->net), t->targets, grad_scale,
						 network_dlogits(t->net), t->net->dtype, t->sums, err));
		TRY(network_backward(t->net, rows, t->seed, t->micro_batch, i == first ? 0 : 1, err));
		t->micro_batch++;
		start += rows;
	}
	return optimizer_step(&t->optimizer, err);
}

static Status
train_pass(Trainer *t, LossSums *sums, Error *err)
{
	size_t		i;

	shuffle(t->data->train, t->order, t->data->train_rows, t->seed, STREAM_SHUFFLE(t->epoch));
	TRY(t->ops->copy_in(t->be, t->train_index, t->order, t->data->train_rows * sizeof(uint32_t), err));
	TRY(t->ops->zero(t->be, t->sums, sizeof(LossSums), err));
	for (i = 0; i < t->micro_batches; i += t->accumulation_steps)
	{
		size_t		left = t->micro_batches - i;

		TRY(train_group(t, i, left < t->accumulation_steps ? left : t->accumulation_steps, err));

		/* 40 bytes: costs nothing where the device's memory is ours */
		TRY(read_sums(t, sums, err));
		if (!isfinite(sums->loss))
			return nonfinite(t, "the loss", err);
	}
	return STATUS_OK;
}

static Status
validation_pass(Trainer *t, LossSums *sums, Error *err)
{
	size_t		i;

	TRY(t->ops->zero(t->be, t->sums, sizeof(LossSums), err));
	for (i = 0; i < t->data->validation_rows; i += t->batch_size)
	{
		size_t		left = t->data->validation_rows - i,
					rows = left < t->batch_size ? left : t->batch_size;

		TRY(gather_batch(t, t->validation_index + i, rows, err));
		TRY(network_eval(t->net, rows, err));
		TRY(t->ops->loss(t->be, t->loss, rows, t->net->program.outputs, network_logits(t->net), t->targets, 0,
						 NULL, t->net->dtype, t->sums, err));
	}
	return read_sums(t, sums, err);
}

/* A step may ruin the weights after its own loss was still good. */
static Status
check_weights(Trainer *t, Error *err)
{
	/* borrows the first of the sums */
	double		squares;

	TRY(t->ops->zero(t->be, t->sums, sizeof(LossSums), err));
	TRY(t->ops->sum_squares(t->be, t->net->tensors.parameter_elements, t->net->parameters, &t->sums->loss, err));
	TRY(t->ops->sync(t->be, err));
	TRY(t->ops->copy_out(t->be, &squares, &t->sums->loss, sizeof(squares), err));
	return isfinite(squares) ? STATUS_OK : nonfinite(t, "a weight", err);
}

static double
r2(double squared_error, double squares)
{
	/* as sklearn.metrics.r2_score: a constant target is either met or not */
	if (squares <= 0)
		return squared_error <= 0 ? 1 : 0;
	return 1 - squared_error / squares;
}

/* Means over rows; regression errors in the target's own units. */
static void
report_regression(const LossSums *sums, double squares, double stddev, double *r, double *rmse, double *mae)
{
	*r = r2(sums->squared_error, squares);
	*rmse = sqrt(sums->squared_error / sums->rows) * stddev;
	*mae = sums->absolute_error / sums->rows * stddev;
}

Status
trainer_epoch(Trainer *t, EpochReport *report, Error *err)
{
	const DatasetView *d = t->data;
	double		start = now(),
				trained;
	LossSums	sums;

	memset(report, 0, sizeof(*report));
	TRY(train_pass(t, &sums, err));
	trained = now();
	TRY(check_weights(t, err));
	report->epoch = t->epoch + 1;
	report->epochs = t->epochs;
	report->train_rows = (int64_t) d->train_rows;
	report->train_loss = sums.loss / sums.rows;
	if (t->task == TASK_CLASSIFICATION)
		report->train_accuracy = sums.correct / sums.rows;
	else
		report_regression(&sums, d->train_target_squares, d->stats.target_stddev,
						  &report->train_r2, &report->train_rmse, &report->train_mae);
	if (d->validation_rows > 0)
	{
		TRY(validation_pass(t, &sums, err));
		if (!isfinite(sums.loss))
			return nonfinite(t, "the validation loss", err);
		report->validation_rows = (int64_t) d->validation_rows;
		report->validation_loss = sums.loss / sums.rows;
		if (t->task == TASK_CLASSIFICATION)
			report->validation_accuracy = sums.correct / sums.rows;
		else
			report_regression(&sums, d->validation_target_squares, d->stats.target_stddev,
							  &report->validation_r2, &report->validation_rmse, &report->validation_mae);
	}
	t->epoch++;
	report->seconds = now() - start;
	t->seconds += report->seconds;
	report->rows_per_second = (double) d->train_rows / fmax(trained - start, 1e-9);
	report->seconds_left = t->seconds / t->epoch * (t->epochs - t->epoch);
	return STATUS_OK;
}
