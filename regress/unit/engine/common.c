/*
 * common.c - small networks and datasets for the engine's tests.
 */
#include "regress/unit/engine/common.h"

#include "kernels/philox.h"

/* Linked into the program that runs these tests on the CUDA backend, on the stand-in for CUDA. */
extern const BackendOps *pg_train_backend(void) __attribute__((weak));

const BackendOps *
test_ops(void)
{
	return pg_train_backend != NULL ? pg_train_backend() : cpu_backend();
}

Backend *
test_backend(void)
{
	static Backend *be;
	Error		err;

	if (be == NULL && test_ops()->open(&(OpenOptions) {.threads = 2}, &be, &err) != STATUS_OK)
	{
		fprintf(stderr, "no backend: %s\n", err.message);
		exit(2);
	}
	return be;
}

float
test_random(uint64_t seed, uint64_t index)
{
	return 2 * philox_uniform(philox_word(seed, 0, index)) - 1;
}

static void
must(Status status, const Error *err)
{
	if (status == STATUS_OK)
		return;
	fprintf(stderr, "unexpected error: %s\n", err->message);
	exit(2);
}

static size_t
target_width(const Bench *b)
{
	return b->loss == LOSS_MSE || b->loss == LOSS_SMOOTH_L1 ? b->outputs : 1;
}

Bench
bench_create(const char *text, RowShape input, LossKind loss, size_t rows, DType dtype, int flags)
{
	Layers		l = layers_parse(text);
	Bench		b = {.input = input,.loss = loss,.rows = rows};
	size_t		width = shape_elements(input),
				i;
	Error		err;

	must(network_create(test_ops(), test_backend(), l.spec, l.n, input, rows, dtype, PROGRAM_TRAINING | flags,
						&b.net, &err), &err);
	must(network_init(b.net, 7, &err), &err);
	b.outputs = b.net->program.outputs;
	b.x = malloc(rows * width * sizeof(float));
	for (i = 0; i < rows * width; i++)
		b.x[i] = 1.5f * test_random(11, i);
	b.targets = malloc(rows * target_width(&b) * 4);
	for (i = 0; i < rows * target_width(&b); i++)
	{
		if (loss == LOSS_CROSS_ENTROPY)
			((int32_t *) b.targets)[i] = (int32_t) ((test_random(13, i) + 1) / 2 * b.outputs);
		else if (loss == LOSS_BCE_WITH_LOGITS)
			((int32_t *) b.targets)[i] = test_random(13, i) > 0;
		else
			((float *) b.targets)[i] = 2 * test_random(13, i);
	}
	must(test_ops()->alloc(test_backend(), sizeof(LossSums), (void **) &b.sums, &err), &err);
	must(test_ops()->alloc(test_backend(), rows * target_width(&b) * 4, &b.device_targets, &err), &err);
	return b;
}

void
bench_free(Bench *b)
{
	test_ops()->free(test_backend(), b->sums, sizeof(LossSums));
	test_ops()->free(test_backend(), b->device_targets, b->rows * target_width(b) * 4);
	network_free(b->net);
	free(b->x);
	free(b->targets);
}

void
bench_put_input(Bench *b)
{
	size_t		channels = b->input.channels,
				plane = shape_elements(b->input) / channels,
				width = channels * plane,
				r,
				c,
				p;
	float	   *ours = malloc(b->rows * width * sizeof(float));
	void	   *device_ours;
	Error		err;

	for (r = 0; r < b->rows; r++)
		for (c = 0; c < channels; c++)
			for (p = 0; p < plane; p++)
				ours[r * width + p * channels + c] = b->x[r * width + c * plane + p];
	if (b->net->dtype == DTYPE_F32)
		must(test_ops()->copy_in(test_backend(), network_input(b->net), ours, b->rows * width * sizeof(float), &err), &err);
	else
	{
		must(test_ops()->alloc(test_backend(), b->rows * width * sizeof(float), &device_ours, &err), &err);
		must(test_ops()->copy_in(test_backend(), device_ours, ours, b->rows * width * sizeof(float), &err), &err);
		must(test_ops()->cast(test_backend(), b->rows * width, device_ours, network_input(b->net), b->net->dtype, &err), &err);
		test_ops()->free(test_backend(), device_ours, b->rows * width * sizeof(float));
	}
	free(ours);
}

double
bench_loss(Bench *b, bool backward)
{
	LossSums	sums;
	Error		err;
	const BackendOps *ops = test_ops();

	bench_put_input(b);
	must(ops->copy_in(test_backend(), b->device_targets, b->targets, b->rows * target_width(b) * 4, &err), &err);
	must(ops->zero(test_backend(), b->sums, sizeof(LossSums), &err), &err);
	must(network_forward(b->net, b->rows, 3, 5, &err), &err);
	must(ops->loss(test_backend(), b->loss, b->rows, b->outputs, network_logits(b->net), b->device_targets,
				   1.0f / b->rows, NULL, backward ? network_dlogits(b->net) : NULL, b->net->dtype, b->sums, &err), &err);
	if (backward)
		must(network_backward(b->net, b->rows, 3, 5, 0, &err), &err);
	must(ops->copy_out(test_backend(), &sums, b->sums, sizeof(sums), &err), &err);
	return sums.loss / sums.rows;
}

void
bench_eval(Bench *b, float *logits)
{
	Error		err;

	bench_put_input(b);
	must(network_eval(b->net, b->rows, &err), &err);
	must(test_ops()->copy_out(test_backend(), logits, network_logits(b->net), b->rows * b->outputs * sizeof(float), &err), &err);
}

float *
bench_tensor(Bench *b, int32_t i)
{
	float	   *data = malloc(b->net->tensors.tensors[i].header.values * sizeof(float));
	Error		err;

	must(network_get_tensor(b->net, i, data, &err), &err);
	return data;
}

float *
bench_gradient(Bench *b, int32_t i)
{
	float	   *data = malloc(b->net->tensors.tensors[i].header.values * sizeof(float));
	Error		err;

	must(network_get_gradient(b->net, i, data, &err), &err);
	return data;
}

/* width floats, then the target */
static RecordLayout *
float_layout(size_t width)
{
	RecordLayout *layout = calloc(1, sizeof(RecordLayout) + sizeof(Segment));

	layout->record_bytes = (int32_t) (4 * width + 4);
	layout->target_offset = (int32_t) (4 * width);
	layout->input_width = (int32_t) width;
	layout->nsegments = 1;
	layout->segments[0] = (Segment)
	{
		DTYPE_F32, (int32_t) width, 0, 0
	};
	return layout;
}

Dataset *
dataset_from_rows(const Rows *rows, DatasetSpec spec)
{
	RecordLayout *layout = float_layout(rows->width);
	size_t		bytes = layout->record_bytes,
				i;
	char	   *records = malloc(rows->rows * bytes);
	int32_t    *codes = malloc((rows->nclasses + 1) * sizeof(int32_t));
	Dataset    *ds;
	Error		err;

	for (i = 0; i < rows->rows; i++)
	{
		memcpy(records + i * bytes, rows->x + i * rows->width, bytes - 4);
		memcpy(records + i * bytes + bytes - 4, (char *) rows->targets + 4 * i, 4);
	}
	for (i = 0; i < rows->nclasses; i++)
		codes[i] = (int32_t) i;
	spec.task = rows->nclasses > 0 ? TASK_CLASSIFICATION : TASK_REGRESSION;
	must(dataset_create(&spec, layout, &ds, &err), &err);
	must(dataset_add(ds, records, rows->rows, SPLIT_TRAIN, &err), &err);
	must(dataset_finish(ds, codes, rows->nclasses, &err), &err);
	free(records);
	free(codes);
	free(layout);
	return ds;
}

static Rows
rows_random(size_t rows, size_t width)
{
	Rows		r = {.rows = rows,.width = width};
	size_t		i;

	r.x = malloc(rows * width * sizeof(float));
	r.targets = malloc(rows * 4);
	for (i = 0; i < rows * width; i++)
		r.x[i] = 3 * test_random(17, i) + 1;
	return r;
}

Rows
rows_two_classes(size_t rows, size_t width)
{
	Rows		r = rows_random(rows, width);
	size_t		i;

	r.nclasses = 2;
	for (i = 0; i < rows; i++)
	{
		const float *x = r.x + i * width;

		((int32_t *) r.targets)[i] = (x[0] - 1) * (x[1] - 1) > 0;
	}
	return r;
}

Rows
rows_smooth(size_t rows, size_t width)
{
	Rows		r = rows_random(rows, width);
	size_t		i;

	for (i = 0; i < rows; i++)
	{
		const float *x = r.x + i * width;

		((float *) r.targets)[i] = 50 + 5 * (x[0] - 1) + 4 * sinf(x[1]);
	}
	return r;
}

void
rows_free(Rows *rows)
{
	free(rows->x);
	free(rows->targets);
}

TrainSpec *
train_spec(const char *text, RowShape input, Task task, LossKind loss, int32_t outputs)
{
	Layers		l = layers_parse(text);
	TrainSpec  *spec = calloc(1, sizeof(TrainSpec) + l.n * sizeof(LayerSpec));

	spec->task = task;
	spec->loss = loss;
	spec->optimizer = OPTIMIZER_ADAM;
	spec->epochs = 1;
	spec->batch_size = 32;
	spec->accumulation_steps = 1;
	spec->learning_rate = 0.01f;
	spec->beta1 = 0.9f;
	spec->beta2 = 0.999f;
	spec->eps = 1e-8f;
	spec->seed = 1;
	spec->input = input;
	spec->outputs = outputs;
	spec->nlayers = l.n;
	memcpy(spec->layers, l.spec, l.n * sizeof(LayerSpec));
	return spec;
}
