/*
 * train.c - the training loop.
 */
#define _GNU_SOURCE
#include "engine/train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/device_data.h"
#include "engine/optimizer.h"
#include "engine/shuffle.h"
#include "engine/streams.h"
#include "engine/train_spec.h"

/* How often the host looks at results where that means waiting for the device. */
#define LOOK_EVERY_STEPS 64

/* Below it loss scaling has found no scale at which gradients are finite. */
#define SMALLEST_LOSS_SCALE 1e-6f

struct Trainer
{
	const BackendOps *ops;
	Backend    *be;
	const DatasetView *data;
	DeviceData	device_data;
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
	int64_t		steps;			/* optimizer steps, skipped ones included */
	int64_t		look_every;		/* steps */
	double		seconds;		/* of the epochs done */

	/*
	 * A step over a whole group of whole micro-batches, recorded.  Its rows are those of group_index.  The first such
	 * step runs as it is: what the device prepares at the first call for a shape cannot be recorded.
	 */
	bool		record;			/* the device can */
	bool		prepared;
	void	   *graph;

	/* device memory */
	uint32_t   *train_index;	/* [train_rows]: this epoch's order */
	uint32_t   *validation_index;	/* [validation_rows] */
	uint32_t   *group_index;	/* [accumulation_steps * batch_size], or NULL */
	void	   *targets;		/* of a micro-batch, 4 bytes a row */
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
	DeviceInfo	info;
	int32_t		min_rows;

	t->batch_size = (size_t) spec->batch_size < data->train_rows ? (size_t) spec->batch_size : data->train_rows;
	/* room for a last single row */
	t->max_rows = t->batch_size + 1;
	t->ops->info(t->be, &info);
	t->look_every = info.asynchronous ? LOOK_EVERY_STEPS : 1;
	TRY(device_data_create(t->ops, t->be, data, &t->device_data, err));
	TRY(network_create(t->ops, t->be, spec->layers, spec->nlayers, spec->input, t->max_rows,
					   (DType) spec->precision, PROGRAM_TRAINING, &t->net, err));
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
	/* where there is a whole group to record */
	t->record = t->ops->graph_begin != NULL && !spec->eager
		&& t->accumulation_steps * t->batch_size <= data->train_rows;
	if (t->record)
		TRY(device_alloc(t, t->accumulation_steps * t->batch_size * sizeof(uint32_t), NULL, &t->group_index, err));
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
	TRY(train_spec_check(dataset_view(ds), spec, err));
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
	if (t == NULL)
		return;
	if (t->graph != NULL)
		t->ops->graph_free(t->be, t->graph);
	device_free(t, t->train_index, t->data->train_rows * sizeof(uint32_t));
	device_free(t, t->validation_index, t->data->validation_rows * sizeof(uint32_t));
	device_free(t, t->targets, t->max_rows * 4);
	device_free(t, t->group_index, t->accumulation_steps * t->batch_size * sizeof(uint32_t));
	device_free(t, t->sums, sizeof(LossSums));
	if (t->optimizer.net != NULL)
		optimizer_free(&t->optimizer);
	network_free(t->net);
	device_data_free(&t->device_data);
	free(t->order);
	free(t);
}

Network *
trainer_network(Trainer *t)
{
	return t->net;
}

static Status
read_step(Trainer *t, StepState *step, Error *err)
{
	TRY(t->ops->sync(t->be, err));
	return t->ops->copy_out(t->be, step, t->net->step, sizeof(StepState), err);
}

Status
trainer_steps(Trainer *t, int64_t *steps, int64_t *skipped, Error *err)
{
	StepState	step;

	TRY(read_step(t, &step, err));
	*steps = step.step;
	*skipped = step.skipped;
	return STATUS_OK;
}

/* Inputs and targets of some rows, into the network and targets. */
static Status
gather_batch(Trainer *t, const uint32_t *index, size_t rows, Error *err)
{
	return device_data_gather(&t->device_data, index, rows, network_input(t->net), t->net->dtype, t->targets, err);
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
			  (long long) t->steps);
	error_hint(err, "Use a smaller learning_rate%s%s.",
			   t->data->scale == NULL ? ", or standardize => true if the features are large" : "",
			   t->net->dtype == DTYPE_F16 ? ", or amp => 'bf16', which has the range of fp32" : "");
	return STATUS_NONFINITE;
}

/* Forward and backward passes over the micro-batches [first, first + n), and the optimizer; index is their rows. */
static Status
run_group(Trainer *t, const uint32_t *index, size_t first, size_t n, size_t group_rows, Error *err)
{
	float		grad_scale = (float) (1.0 / (double) group_rows);
	size_t		i;

	for (i = 0; i < n; i++)
	{
		size_t		rows = micro_batch_rows(t, first + i);

		TRY(gather_batch(t, index, rows, err));
		TRY(network_forward(t->net, rows, t->seed, i, err));
		TRY(t->ops->loss(t->be, t->loss, rows, t->net->program.outputs, network_logits(t->net), t->targets, grad_scale,
						 t->net->step, network_dlogits(t->net), t->net->dtype, t->sums, err));
		TRY(network_backward(t->net, rows, t->seed, i, i == 0 ? 0 : 1, err));
		index += rows;
	}
	return optimizer_step(&t->optimizer, err);
}

static Status
record_group(Trainer *t, size_t first, size_t n, size_t group_rows, Error *err)
{
	void	   *graph = NULL;
	Status		status;

	TRY(t->ops->graph_begin(t->be, err));
	status = run_group(t, t->group_index, first, n, group_rows, err);
	if (t->ops->graph_end(t->be, &graph, status == STATUS_OK ? err : NULL) != STATUS_OK && status == STATUS_OK)
		status = err != NULL ? (Status) err->status : STATUS_DEVICE;
	if (status == STATUS_OK)
		t->graph = graph;
	else if (graph != NULL)
		t->ops->graph_free(t->be, graph);
	return status;
}

/* run_group() for a group that is like all others but its rows: recorded once, then replayed. */
static Status
replay_group(Trainer *t, const uint32_t *index, size_t first, size_t n, size_t group_rows, Error *err)
{
	TRY(t->ops->copy(t->be, t->group_index, index, group_rows * sizeof(uint32_t), err));
	if (!t->prepared)
	{
		t->prepared = true;
		return run_group(t, t->group_index, first, n, group_rows, err);
	}
	if (t->graph == NULL)
		TRY(record_group(t, first, n, group_rows, err));
	return t->ops->graph_launch(t->be, t->graph, err);
}

/* One optimizer step over the micro-batches [first, first + n). */
static Status
train_group(Trainer *t, size_t first, size_t n, Error *err)
{
	const uint32_t *index = t->train_index + first * t->batch_size;
	size_t		group_rows = 0,
				i;
	bool		whole;

	for (i = first; i < first + n; i++)
		group_rows += micro_batch_rows(t, i);
	whole = n == t->accumulation_steps && group_rows == n * t->batch_size;
	TRY(optimizer_begin(&t->optimizer, t->micro_batch, err));
	if (t->record && whole)
		TRY(replay_group(t, index, first, n, group_rows, err));
	else
		TRY(run_group(t, index, first, n, group_rows, err));
	t->micro_batch += n;
	t->steps++;
	return STATUS_OK;
}

static Status
train_pass(Trainer *t, LossSums *sums, Error *err)
{
	size_t		i;
	int64_t		looked = t->steps;

	shuffle(t->data->train, t->order, t->data->train_rows, t->seed, STREAM_SHUFFLE(t->epoch));
	TRY(t->ops->copy_in(t->be, t->train_index, t->order, t->data->train_rows * sizeof(uint32_t), err));
	TRY(t->ops->zero(t->be, t->sums, sizeof(LossSums), err));
	for (i = 0; i < t->micro_batches; i += t->accumulation_steps)
	{
		size_t		left = t->micro_batches - i;

		TRY(train_group(t, i, left < t->accumulation_steps ? left : t->accumulation_steps, err));

		if (t->steps < looked + t->look_every)
			continue;
		looked = t->steps;
		TRY(read_sums(t, sums, err));
		if (!isfinite(sums->loss))
			return nonfinite(t, "the loss", err);
	}
	TRY(read_sums(t, sums, err));
	return isfinite(sums->loss) ? STATUS_OK : nonfinite(t, "the loss", err);
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
						 NULL, NULL, t->net->dtype, t->sums, err));
	}
	return read_sums(t, sums, err);
}

/* A step may ruin the weights after its own loss was still good. */
static Status
check_weights(Trainer *t, Error *err)
{
	/* borrows the first of the sums */
	double		squares;
	StepState	step;

	TRY(t->ops->zero(t->be, t->sums, sizeof(LossSums), err));
	TRY(t->ops->sum_squares(t->be, t->net->tensors.parameter_elements, t->net->parameters, &t->sums->loss, err));
	TRY(t->ops->sync(t->be, err));
	TRY(t->ops->copy_out(t->be, &squares, &t->sums->loss, sizeof(squares), err));
	if (!isfinite(squares))
		return nonfinite(t, "a weight", err);
	TRY(read_step(t, &step, err));
	return step.loss_scale >= SMALLEST_LOSS_SCALE ? STATUS_OK : nonfinite(t, "a gradient", err);
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
