/*
 * test_training.c - the training loop: it learns, it repeats, and micro-batches add up.
 */
#include "regress/unit/engine/common.h"

#include "engine/optimizer.h"

#define CLASSES(outputs) TASK_CLASSIFICATION, LOSS_CROSS_ENTROPY, (outputs)
#define VALUE TASK_REGRESSION, LOSS_MSE, 1

static DatasetSpec
plain(double fraction)
{
	return (DatasetSpec)
	{
		.standardize = 1,.validation_fraction = fraction,.seed = 1
	};
}

/* Train; *last (may be NULL) is the last epoch's report.  Returns all parameters in one array; the caller frees. */
static float *
train(const Dataset *ds, const TrainSpec *spec, EpochReport *last, size_t *n, int64_t *steps)
{
	EpochReport report;
	Trainer    *t;
	Error		err = {0};
	float	   *values = NULL;
	int64_t		skipped;
	int32_t		i;

	*n = 0;
	if (trainer_create(test_ops(), test_backend(), ds, spec, &t, &err) != STATUS_OK)
	{
		test_fail(__FILE__, __LINE__, "trainer_create: %s", err.message);
		return calloc(1, sizeof(float));
	}
	for (i = 0; i < spec->epochs; i++)
		CHECK(trainer_epoch(t, &report, &err) == STATUS_OK, "epoch %d: %s", i + 1, err.message);
	if (last != NULL)
		*last = report;
	if (steps != NULL)
		CHECK(trainer_steps(t, steps, &skipped, &err) == STATUS_OK, "%s", err.message);
	for (i = 0; i < trainer_network(t)->tensors.count; i++)
	{
		size_t		count = trainer_network(t)->tensors.tensors[i].header.values;

		values = realloc(values, (*n + count) * sizeof(float));
		CHECK(network_get_tensor(trainer_network(t), i, values + *n, &err) == STATUS_OK, "%s", err.message);
		*n += count;
	}
	trainer_free(t);
	return values;
}

static void
check_same(const float *a, const float *b, size_t n, double rel, double abs, const char *what)
{
	size_t		i;

	for (i = 0; i < n; i++)
		CHECK(test_close(a[i], b[i], rel, abs), "%s: parameter %zu is %.9g and %.9g", what, i, a[i], b[i]);
}

/* A network that can learn a batch by heart brings its loss to nearly nothing. */
static void
check_overfit(const char *layers, RowShape input, size_t rows, DType dtype)
{
	Bench		b = bench_create(layers, input, LOSS_CROSS_ENTROPY, rows, dtype, 0);
	TrainSpec	spec = {
		.optimizer = OPTIMIZER_ADAM,.learning_rate = 0.01f,.beta1 = 0.9f,.beta2 = 0.999f,.eps = 1e-8f
	};
	double		first = bench_loss(&b, true),
				last = first;
	Optimizer	opt;
	Error		err;
	int			step;

	REQUIRE(optimizer_create(b.net, &spec, &opt, &err) == STATUS_OK);
	for (step = 0; step < 300; step++)
	{
		last = bench_loss(&b, true);
		CHECK(optimizer_begin(&opt, 0, &err) == STATUS_OK && optimizer_step(&opt, &err) == STATUS_OK, "%s", err.message);
	}
	CHECK(first > 0.5 && last < 0.01, "%s: loss %g, after 300 steps %g", layers, first, last);
	optimizer_free(&opt);
	bench_free(&b);
}

TEST(overfits_one_batch)
{
	check_overfit("linear:32 relu linear:32 relu linear:4", FLAT(6), 16, DTYPE_F32);
	check_overfit("linear:32 batchnorm relu linear:32 batchnorm relu linear:4", FLAT(6), 16, DTYPE_F32);
	check_overfit("linear:32 [ layernorm linear:32 gelu linear:32 ] [ linear:32 tanh ] linear:4", FLAT(6), 16, DTYPE_F32);
	check_overfit("conv2d:8,3,1,1 relu maxpool2d:2 conv2d:12,3,1,1 relu maxpool2d:2 flatten linear:24 relu linear:4",
				  IMAGE(2, 9, 8), 12, DTYPE_F32);
	check_overfit("conv2d:8,3,1,1 batchnorm relu [ conv2d:8,3,1,1 batchnorm relu conv2d:8,3,1,1 batchnorm ] relu avgpool2d:2 "
				  "global_avgpool linear:32 relu linear:4", IMAGE(2, 8, 8), 8, DTYPE_F32);
	check_overfit("conv2d:8,3,1,1 relu maxpool2d:2 flatten linear:24 relu linear:4", IMAGE(1, 8, 8), 8, DTYPE_BF16);
}

TEST(learns_classes_that_are_not_linear)
{
	Rows		rows = rows_two_classes(2000, 4);
	Dataset    *ds = dataset_from_rows(&rows, plain(0.2));
	TrainSpec  *spec = train_spec("linear:32 relu linear:32 relu linear:2", FLAT(4), CLASSES(2));
	EpochReport r;
	int64_t		steps;
	size_t		n;

	spec->epochs = 15;
	free(train(ds, spec, &r, &n, &steps));
	CHECK(r.epoch == 15 && r.epochs == 15 && r.train_rows == 1600 && r.validation_rows == 400, "rows %lld", (long long) r.train_rows);
	CHECK(steps == 15 * 50, "%lld steps", (long long) steps);
	CHECK(r.train_accuracy > 0.95 && r.validation_accuracy > 0.93, "accuracy %g, %g", r.train_accuracy, r.validation_accuracy);
	CHECK(r.train_loss < 0.15 && r.validation_loss < 0.25, "loss %g, %g", r.train_loss, r.validation_loss);
	CHECK(r.rows_per_second > 0 && r.seconds > 0 && r.seconds_left == 0, "%g rows/s", r.rows_per_second);
	free(spec);

	/* the same with one output */
	spec = train_spec("linear:32 relu linear:32 relu linear:1", FLAT(4), TASK_CLASSIFICATION, LOSS_BCE_WITH_LOGITS, 1);
	spec->epochs = 15;
	free(train(ds, spec, &r, &n, NULL));
	CHECK(r.validation_accuracy > 0.93, "accuracy %g", r.validation_accuracy);
	free(spec);
	dataset_free(ds);
	rows_free(&rows);
}

/* Errors are in the target's own units, whose deviation is about 10. */
TEST(learns_a_regression_and_reports_in_the_targets_units)
{
	Rows		rows = rows_smooth(2000, 3);
	Dataset    *ds = dataset_from_rows(&rows, plain(0.2));
	static const LossKind losses[] = {LOSS_MSE, LOSS_SMOOTH_L1};
	int			k;

	for (k = 0; k < 2; k++)
	{
		TrainSpec  *spec = train_spec("linear:32 tanh linear:1", FLAT(3), TASK_REGRESSION, losses[k], 1);
		EpochReport r;
		size_t		n;

		spec->epochs = 20;
		free(train(ds, spec, &r, &n, NULL));
		CHECK(r.validation_r2 > 0.98 && r.validation_r2 <= 1, "R2 %g", r.validation_r2);
		CHECK(r.validation_rmse > 0.01 && r.validation_rmse < 1.5, "RMSE %g", r.validation_rmse);
		CHECK(r.validation_mae > 0.01 && r.validation_mae < r.validation_rmse, "MAE %g", r.validation_mae);
		/* mean squared error in standardized units is the loss */
		if (losses[k] == LOSS_MSE)
			CHECK_CLOSE(r.validation_loss, pow(r.validation_rmse / dataset_view(ds)->stats.target_stddev, 2), 1e-4, 0);
		free(spec);
	}
	dataset_free(ds);
	rows_free(&rows);
}

TEST(same_seed_gives_the_same_bits)
{
	static const char *const layers[] = {
		"linear:33 relu dropout:0.3 linear:17 batchnorm tanh linear:2",
		"conv2d:5,3,1,1 batchnorm relu maxpool2d:2 flatten dropout:0.5 linear:2",
	};
	Rows		rows = rows_two_classes(700, 36);
	Dataset    *ds = dataset_from_rows(&rows, plain(0.1));
	int			k;

	for (k = 0; k < 2; k++)
	{
		TrainSpec  *spec = train_spec(layers[k], k == 0 ? FLAT(36) : IMAGE(1, 6, 6), CLASSES(2));
		size_t		n,
					m;
		float	   *a,
				   *b,
				   *c;

		spec->epochs = 2;
		a = train(ds, spec, NULL, &n, NULL);
		b = train(ds, spec, NULL, &m, NULL);
		spec->seed = 2;
		c = train(ds, spec, NULL, &m, NULL);
		CHECK(n == m && memcmp(a, b, n * sizeof(float)) == 0, "%s: a second run differs", layers[k]);
		CHECK(memcmp(a, c, n * sizeof(float)) != 0, "%s: another seed does not matter", layers[k]);
		free(a);
		free(b);
		free(c);
		free(spec);
	}
	dataset_free(ds);
	rows_free(&rows);
}

/* 4 x 64 rows are 256 rows, also where the last group and the last micro-batch are smaller. */
TEST(accumulation_is_exact)
{
	static const size_t sizes[] = {1024, 1024 + 256 + 64 + 30, 256 + 3, 70};
	size_t		k;

	for (k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++)
	{
		Rows		rows = rows_smooth(sizes[k], 5);
		Dataset    *ds = dataset_from_rows(&rows, plain(0));
		TrainSpec  *spec = train_spec("linear:16 tanh linear:1", FLAT(5), VALUE);
		EpochReport whole_report,
					report;
		int64_t		whole_steps,
					steps;
		size_t		n;
		float	   *whole,
				   *pieces;

		/* plain SGD: Adam would blow rounding up where a gradient is nearly nothing */
		spec->optimizer = OPTIMIZER_SGD;
		spec->learning_rate = 0.1f;
		spec->epochs = 2;
		spec->batch_size = 256;
		whole = train(ds, spec, &whole_report, &n, &whole_steps);
		spec->batch_size = 64;
		spec->accumulation_steps = 4;
		pieces = train(ds, spec, &report, &n, &steps);
		CHECK(steps == whole_steps, "%lld and %lld steps", (long long) steps, (long long) whole_steps);
		check_same(pieces, whole, n, 1e-5, 1e-6, "4 x 64");
		CHECK_CLOSE(report.train_loss, whole_report.train_loss, 1e-5, 0);
		free(whole);
		free(pieces);
		free(spec);
		dataset_free(ds);
		rows_free(&rows);
	}
}

TEST(micro_batches_cover_an_epoch)
{
	CHECK(micro_batch_count(100, 25, 1) == 4, "%zu", micro_batch_count(100, 25, 1));
	CHECK(micro_batch_count(101, 25, 1) == 5, "%zu", micro_batch_count(101, 25, 1));
	CHECK(micro_batch_count(101, 25, 2) == 4, "%zu", micro_batch_count(101, 25, 2));
	CHECK(micro_batch_count(102, 25, 2) == 5, "%zu", micro_batch_count(102, 25, 2));
	CHECK(micro_batch_count(1, 1, 1) == 1, "%zu", micro_batch_count(1, 1, 1));
}

/* 33 rows in batches of 32: the last one would be a single row, whose variance is not defined. */
TEST(batch_norm_never_sees_a_single_row)
{
	Rows		rows = rows_smooth(33, 3);
	Dataset    *ds = dataset_from_rows(&rows, plain(0));
	TrainSpec  *spec = train_spec("linear:8 batchnorm relu linear:1", FLAT(3), VALUE);
	EpochReport r;
	int64_t		steps;
	size_t		n,
				i;
	float	   *values;
	Trainer    *t;
	Error		err = {0};

	spec->epochs = 3;
	values = train(ds, spec, &r, &n, &steps);
	CHECK(steps == 3 && r.train_rows == 33 && isfinite(r.train_loss), "%lld steps", (long long) steps);
	for (i = 0; i < n; i++)
		CHECK(isfinite(values[i]), "parameter %zu is %g", i, values[i]);
	free(values);
	spec->batch_size = 1;
	CHECK(trainer_create(test_ops(), test_backend(), ds, spec, &t, &err) == STATUS_INVALID, "batch_size 1 was accepted");
	CHECK(strstr(err.message, "batch norm") != NULL && strstr(err.hint, "batch_size of at least 2") != NULL, "%s", err.message);
	free(spec);

	/* images have many values a row */
	dataset_free(ds);
	rows_free(&rows);
	rows = rows_smooth(33, 9);
	ds = dataset_from_rows(&rows, plain(0));
	spec = train_spec("conv2d:4,2 batchnorm relu flatten linear:1", IMAGE(1, 3, 3), VALUE);
	spec->batch_size = 1;
	free(train(ds, spec, &r, &n, &steps));
	CHECK(steps == 33 && isfinite(r.train_loss), "%lld steps, loss %g", (long long) steps, r.train_loss);
	free(spec);
	dataset_free(ds);
	rows_free(&rows);
}

TEST(batches_larger_than_the_dataset)
{
	Rows		rows = rows_smooth(1, 2);
	Dataset    *ds = dataset_from_rows(&rows, plain(0));
	TrainSpec  *spec = train_spec("linear:4 relu linear:1", FLAT(2), VALUE);
	EpochReport r;
	size_t		n;

	spec->batch_size = 2147483647;
	spec->accumulation_steps = 2147483647;
	free(train(ds, spec, &r, &n, NULL));
	CHECK(r.train_rows == 1 && isfinite(r.train_loss), "loss %g", r.train_loss);
	free(spec);
	dataset_free(ds);
	rows_free(&rows);
}

TEST(a_loss_that_is_not_finite_is_an_error_that_says_where)
{
	Rows		rows = rows_smooth(200, 3);
	DatasetSpec data = plain(0);
	Dataset    *ds;
	TrainSpec  *spec = train_spec("linear:8 relu linear:1", FLAT(3), VALUE);
	EpochReport r;
	Trainer    *t;
	Error		err = {0};
	Status		status = STATUS_OK;
	int			i;

	data.standardize = 0;
	ds = dataset_from_rows(&rows, data);
	spec->optimizer = OPTIMIZER_SGD;
	spec->learning_rate = 1e6f;
	spec->epochs = 20;
	REQUIRE(trainer_create(test_ops(), test_backend(), ds, spec, &t, &err) == STATUS_OK);
	for (i = 0; i < 20 && status == STATUS_OK; i++)
		status = trainer_epoch(t, &r, &err);
	CHECK(status == STATUS_NONFINITE, "status %d", status);
	CHECK(strstr(err.message, "not finite in epoch 1 at step ") != NULL, "%s", err.message);
	CHECK(strstr(err.hint, "smaller learning_rate") != NULL && strstr(err.hint, "standardize") != NULL, "%s", err.hint);
	trainer_free(t);
	free(spec);
	dataset_free(ds);
	rows_free(&rows);
}

TEST(specs_are_checked)
{
	Rows		rows = rows_smooth(20, 3);
	Dataset    *ds = dataset_from_rows(&rows, plain(0));
	TrainSpec  *good = train_spec("linear:1", FLAT(3), VALUE);
	size_t		bytes = sizeof(TrainSpec) + sizeof(LayerSpec);
	TrainSpec  *bad = malloc(bytes);
	Trainer    *t;
	Error		err;

#define CHECK_BAD(change, text) \
	do { \
		memcpy(bad, good, bytes); \
		bad->change; \
		error_clear(&err); \
		CHECK(trainer_create(test_ops(), test_backend(), ds, bad, &t, &err) != STATUS_OK && t == NULL, "%s was accepted", #change); \
		CHECK(strstr(err.message, text) != NULL, "%s: %s", #change, err.message); \
	} while (0)

	REQUIRE(trainer_create(test_ops(), test_backend(), ds, good, &t, &err) == STATUS_OK);
	trainer_free(t);
	CHECK_BAD(epochs = 0, "epochs must be at least 1");
	CHECK_BAD(batch_size = -5, "batch_size must be at least 1");
	CHECK_BAD(accumulation_steps = 0, "accumulation_steps");
	CHECK_BAD(learning_rate = 0, "learning_rate must be positive");
	CHECK_BAD(learning_rate = NAN, "learning_rate must be positive");
	CHECK_BAD(learning_rate = INFINITY, "learning_rate must be positive");
	CHECK_BAD(weight_decay = -1, "weight_decay");
	CHECK_BAD(beta1 = 1, "beta1");
	CHECK_BAD(beta2 = -0.1f, "beta2");
	CHECK_BAD(eps = 0, "eps");
	CHECK_BAD(optimizer = 17, "optimizer 17 is unknown");
	CHECK_BAD(loss = 17, "loss 17 is unknown");
	CHECK_BAD(loss = LOSS_CROSS_ENTROPY, "the loss does not fit the task");
	CHECK_BAD(task = TASK_CLASSIFICATION, "another task");
	CHECK_BAD(outputs = 2, "2 outputs");
	CHECK_BAD(layers[0].out = 2, "2 outputs");
	CHECK_BAD(input = FLAT(4), "does not fit the features");
	CHECK_BAD(input = IMAGE(3, 1, 0), "does not fit the features");
	CHECK_BAD(input = IMAGE(3, 1, 1), "loaded for input shape");
	CHECK_BAD(nlayers = 0, "0 layers");
	CHECK_BAD(layers[0].kind = 99, "kind 99");
	memcpy(bad, good, bytes);
	bad->optimizer = OPTIMIZER_SGD;
	bad->nesterov = 1;
	CHECK(trainer_create(test_ops(), test_backend(), ds, bad, &t, &err) != STATUS_OK, "nesterov without momentum");
	free(good);
	free(bad);
	dataset_free(ds);
	rows_free(&rows);
}

/*
 * fp16 learns what fp32 learns.  The loss scale begins too high for these gradients (rows far from the mean, weights
 * that make large logits), so that steps must be skipped until it has come down.
 */
TEST(fp16_skips_steps_until_the_loss_scale_fits)
{
	Rows		rows = rows_two_classes(2000, 8);
	Dataset    *ds = dataset_from_rows(&rows, plain(0.2));
	TrainSpec  *spec = train_spec("linear:32 relu linear:32 relu linear:2", FLAT(8), TASK_CLASSIFICATION,
								  LOSS_CROSS_ENTROPY, 2);
	EpochReport report[2];
	Trainer    *t;
	Error		err = {0};
	int64_t		steps,
				skipped;
	int			half,
				epoch;

	for (half = 0; half < 2; half++)
	{
		StepState	large = {.loss_scale = 0x1p30f};

		spec->precision = half ? DTYPE_F16 : DTYPE_F32;
		REQUIRE(trainer_create(test_ops(), test_backend(), ds, spec, &t, &err) == STATUS_OK);
		if (half)
			CHECK(test_ops()->copy_in(test_backend(), trainer_network(t)->step, &large, sizeof(large), &err) == STATUS_OK);
		for (epoch = 0; epoch < 3; epoch++)
			CHECK(trainer_epoch(t, &report[half], &err) == STATUS_OK, "%s", err.message);
		CHECK(trainer_steps(t, &steps, &skipped, &err) == STATUS_OK);
		CHECK(half ? skipped > 0 && skipped < 30 : skipped == 0, "%lld steps were skipped", (long long) skipped);
		CHECK(steps + skipped == 3 * ((report[half].train_rows + spec->batch_size - 1) / spec->batch_size),
			  "%lld steps and %lld skipped", (long long) steps, (long long) skipped);
		trainer_free(t);
	}
	CHECK_CLOSE(report[1].validation_accuracy, report[0].validation_accuracy, 0, 0.02);
	free(spec);
	dataset_free(ds);
	rows_free(&rows);
}

/* Gradients of any size move the weights by learning_rate times max_grad_norm a step at most. */
TEST(max_grad_norm_bounds_a_step)
{
	Rows		rows = rows_smooth(300, 3);
	Dataset    *ds = dataset_from_rows(&rows, plain(0));
	TrainSpec  *spec = train_spec("linear:8 tanh linear:1", FLAT(3), VALUE);
	size_t		n,
				i;
	float	   *before,
			   *after;
	double		moved = 0;

	spec->optimizer = OPTIMIZER_SGD;
	spec->learning_rate = 1e-20f;
	spec->epochs = 1;
	spec->batch_size = 300;
	before = train(ds, spec, NULL, &n, NULL);
	spec->learning_rate = 0.5f;
	spec->max_grad_norm = 0.01f;
	after = train(ds, spec, NULL, &n, NULL);
	for (i = 0; i < n; i++)
		moved += ((double) after[i] - before[i]) * ((double) after[i] - before[i]);
	/* the gradient's norm is above 0.01 at the start, so that the step has just this length */
	CHECK_CLOSE(sqrt(moved), 0.5 * 0.01, 1e-3, 0);
	free(before);
	free(after);
	free(spec);
	dataset_free(ds);
	rows_free(&rows);
}

/* 2^54 weights: refused by arithmetic, before the kernel is asked for memory. */
TEST(networks_larger_than_memory_are_refused)
{
	static const char *const layers[] = {"linear:134217728 relu linear:134217728 relu linear:1", "linear:100000000 linear:1"};
	Rows		rows = rows_smooth(4000, 3);
	Dataset    *ds = dataset_from_rows(&rows, plain(0));
	int			k;

	for (k = 0; k < 2; k++)
	{
		TrainSpec  *spec = train_spec(layers[k], FLAT(3), VALUE);
		Trainer    *t;
		Error		err = {0};

		spec->batch_size = 4000;
		CHECK(trainer_create(test_ops(), test_backend(), ds, spec, &t, &err) == STATUS_NO_MEMORY && t == NULL, "%s", err.message);
		/* no batch_size saves the first network; the second one fits with a few rows a batch */
		CHECK(strstr(err.hint, "smaller architecture") != NULL, "%s: %s", err.message, err.hint);
		CHECK((strstr(err.hint, "batch_size of at most") != NULL) == (k == 1), "%s: %s", err.message, err.hint);
		free(spec);
	}
	dataset_free(ds);
	rows_free(&rows);
}
