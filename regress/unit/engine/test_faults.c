/*
 * test_faults.c - memory that runs out at every single allocation: an error each time, and nothing left behind.
 */
#include "regress/unit/engine/common.h"

static const BackendOps *real_ops;
static long allocations,			/* so far */
			fail_at,				/* this one fails; 0: none */
			held;					/* blocks not freed */

static Status
counting_alloc(Backend *be, size_t bytes, void **out, Error *err)
{
	if (++allocations == fail_at)
	{
		*out = NULL;
		return error_set(err, STATUS_NO_MEMORY, "out of memory: allocation %ld", allocations);
	}
	held++;
	return real_ops->alloc(be, bytes, out, err);
}

static void
counting_free(Backend *be, void *ptr, size_t bytes)
{
	held--;
	real_ops->free(be, ptr, bytes);
}

/* Create a trainer and run two epochs, allocation k failing. */
static Status
train_with_fault(const BackendOps *ops, const Dataset *ds, const TrainSpec *spec, long k, Error *err)
{
	EpochReport report;
	Trainer    *t;
	Status		status;
	int			epoch;

	allocations = 0;
	fail_at = k;
	status = trainer_create(ops, test_backend(), ds, spec, &t, err);
	for (epoch = 0; epoch < 2 && status == STATUS_OK; epoch++)
		status = trainer_epoch(t, &report, err);
	trainer_free(t);
	fail_at = 0;
	return status;
}

TEST(every_failing_allocation_is_a_clean_error)
{
	Rows		rows = rows_two_classes(100, 8);
	DatasetSpec data = {.standardize = 1,.validation_fraction = 0.2,.seed = 1};
	Dataset    *ds = dataset_from_rows(&rows, data);
	TrainSpec  *spec = train_spec("flatten linear:6 batchnorm relu [ layernorm linear:6 gelu ] dropout:0.5 linear:2", FLAT(8),
								  TASK_CLASSIFICATION, LOSS_CROSS_ENTROPY, 2);
	BackendOps	ops = *test_ops();
	Error		err;
	long		k,
				total;
	static const DType precisions[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
	int			i;

	real_ops = test_ops();
	ops.alloc = counting_alloc;
	ops.free = counting_free;
	for (i = 0; i < 3; i++)
	{
		spec->precision = precisions[i];
		held = 0;
		CHECK(train_with_fault(&ops, ds, spec, 0, &err) == STATUS_OK, "%s", err.message);
		CHECK(held == 0, "%ld blocks are left", held);
		total = allocations;
		CHECK(total >= 9, "only %ld allocations", total);
		for (k = 1; k <= total; k++)
		{
			memset(&err, 0, sizeof(err));
			held = 0;
			CHECK(train_with_fault(&ops, ds, spec, k, &err) == STATUS_NO_MEMORY, "allocation %ld: no error", k);
			CHECK(strstr(err.message, "out of memory") != NULL, "%s", err.message);
			CHECK(held == 0, "allocation %ld: %ld blocks are left", k, held);
		}
	}
	free(spec);
	dataset_free(ds);
	rows_free(&rows);
}

/* After the first step no step allocates: memory and speed stay level. */
TEST(training_steps_allocate_nothing)
{
	Rows		rows = rows_two_classes(500, 36);
	DatasetSpec data = {.standardize = 1,.validation_fraction = 0.2,.seed = 1};
	Dataset    *ds = dataset_from_rows(&rows, data);
	TrainSpec  *spec = train_spec("conv2d:4,3,1,1 batchnorm relu maxpool2d:2 [ conv2d:4,3,1,1 relu ] flatten linear:9 gelu dropout:0.1 linear:2",
								  IMAGE(1, 6, 6), TASK_CLASSIFICATION, LOSS_CROSS_ENTROPY, 2);
	BackendOps	ops = *test_ops();
	EpochReport report;
	Trainer    *t;
	Error		err = {0};

	real_ops = test_ops();
	ops.alloc = counting_alloc;
	ops.free = counting_free;
	REQUIRE(trainer_create(&ops, test_backend(), ds, spec, &t, &err) == STATUS_OK);
	allocations = 0;
	CHECK(trainer_epoch(t, &report, &err) == STATUS_OK && trainer_epoch(t, &report, &err) == STATUS_OK, "%s", err.message);
	CHECK(allocations == 0, "%ld allocations in two epochs", allocations);
	trainer_free(t);
	free(spec);
	dataset_free(ds);
	rows_free(&rows);
}
