/*
 * test_cuda.c - the CUDA backend on the stand-in when something fails: memory that runs out at any allocation, and an error
 * in any call, end in a status with a message, and leave nothing behind.
 */
#include "regress/unit/ops/device.h"

#include <cuda_runtime_api.h>

#include "kernels/cuda/dnn.h"
#include "kernels/philox.h"
#include "regress/cudasim/cudasim.h"

#define ROWS 6
#define SIDE 8
#define CHANNELS 3
#define OUT_CHANNELS 4
#define CLASSES 5
#define PIXELS (ROWS * SIDE * SIDE)
#define FEATURES (SIDE * SIDE * OUT_CHANNELS)
#define CONV_WEIGHTS (OUT_CHANNELS * CHANNELS * 9)
#define LINEAR_WEIGHTS (CLASSES * FEATURES)
#define PARAMETERS (CONV_WEIGHTS + OUT_CHANNELS + LINEAR_WEIGHTS + CLASSES)
#define RING_BYTES 8192

/* Device memory of a little network: a convolution with ReLU, a linear layer, cross entropy, Adam. */
typedef struct Net
{
	float	   *x,
			   *hidden,
			   *d_hidden,
			   *logits,
			   *d_logits,
			   *p,
			   *g,
			   *m,
			   *v;
	int32_t    *targets;
	LossSums   *sums;
	StepState  *state;
} Net;

static const Conv2dShape conv = {CHANNELS, SIDE, SIDE, OUT_CHANNELS, 3, 3, 1, 1, 1, 1, SIDE, SIDE};
static const AdamArgs adam = {0.9f, 0.999f, 1e-8f, 0, 0};
static const GradientCheckArgs check = {1.0f, 0, 2.0f, 0.5f, 2000};

extern const BackendOps *pg_train_backend(void);

static const size_t sizes[] = {
	PIXELS * CHANNELS * 4, ROWS * FEATURES * 4, ROWS * FEATURES * 4, ROWS * CLASSES * 4, ROWS * CLASSES * 4,
	PARAMETERS * 4, PARAMETERS * 4, PARAMETERS * 4, PARAMETERS * 4, ROWS * 4, sizeof(LossSums), sizeof(StepState)
};

#define TENSORS (sizeof(sizes) / sizeof(sizes[0]))

static Status
net_alloc(const BackendOps *ops, Backend *be, void **tensors, Error *err)
{
	for (size_t i = 0; i < TENSORS; i++)
		TRY(ops->alloc(be, sizes[i], &tensors[i], err));
	return STATUS_OK;
}

static Status
net_fill(const BackendOps *ops, Backend *be, const Net *net, Error *err)
{
	float		x[PIXELS * CHANNELS],
				p[PARAMETERS];
	int32_t		targets[ROWS];
	StepState	state = {.loss_scale = 1, .grad_multiplier = 1};

	for (size_t i = 0; i < PIXELS * CHANNELS; i++)
		x[i] = philox_uniform(philox_word(1, 0, i)) - 0.5f;
	for (size_t i = 0; i < PARAMETERS; i++)
		p[i] = 0.2f * philox_uniform(philox_word(2, 0, i)) - 0.1f;
	for (int i = 0; i < ROWS; i++)
		targets[i] = i % CLASSES;
	TRY(ops->copy_in(be, net->x, x, sizeof(x), err));
	TRY(ops->copy_in(be, net->p, p, sizeof(p), err));
	TRY(ops->copy_in(be, net->targets, targets, sizeof(targets), err));
	return ops->copy_in(be, net->state, &state, sizeof(state), err);
}

/* Everything of a training step that may be recorded. */
static Status
net_step(const BackendOps *ops, Backend *be, const Net *net, Error *err)
{
	float	   *conv_w = net->p,
			   *conv_b = conv_w + CONV_WEIGHTS,
			   *linear_w = conv_b + OUT_CHANNELS,
			   *linear_b = linear_w + LINEAR_WEIGHTS,
			   *conv_dw = net->g,
			   *conv_db = conv_dw + CONV_WEIGHTS,
			   *linear_dw = conv_db + OUT_CHANNELS,
			   *linear_db = linear_dw + LINEAR_WEIGHTS;

	TRY(ops->conv2d_fwd(be, &conv, ROWS, net->x, conv_w, conv_b, ACT_RELU, net->hidden, DTYPE_F32, err));
	TRY(ops->linear_fwd(be, ROWS, CLASSES, FEATURES, net->hidden, linear_w, linear_b, ACT_NONE, net->logits, DTYPE_F32,
						DTYPE_F32, err));
	TRY(ops->loss(be, LOSS_CROSS_ENTROPY, ROWS, CLASSES, net->logits, net->targets, 1.0f / ROWS, net->state,
				  net->d_logits, DTYPE_F32, net->sums, err));
	TRY(ops->linear_bwd_weight(be, ROWS, CLASSES, FEATURES, net->d_logits, net->hidden, linear_dw, linear_db, 0,
							   DTYPE_F32, err));
	TRY(ops->linear_bwd_data(be, ROWS, CLASSES, FEATURES, net->d_logits, linear_w, net->d_hidden, DTYPE_F32, err));
	TRY(ops->act_bwd(be, ACT_RELU, ROWS * FEATURES, net->d_hidden, net->hidden, net->d_hidden, DTYPE_F32, err));
	TRY(ops->conv2d_bwd_weight(be, &conv, ROWS, net->d_hidden, net->x, conv_dw, conv_db, 0, DTYPE_F32, err));
	TRY(ops->gradient_check(be, PARAMETERS, net->g, net->state, &check, err));
	return ops->adam_step(be, PARAMETERS, net->p, net->g, net->m, net->v, &adam, net->state, NULL, DTYPE_F32, err);
}

/* Steps one by one, then as often by a graph; the loss of the last one comes back. */
static Status
net_train(const BackendOps *ops, Backend *be, const Net *net, void **graph, double *loss, Error *err)
{
	LossSums	sums;

	TRY(net_fill(ops, be, net, err));
	for (int step = 0; step < 4; step++)
	{
		TRY(ops->step_begin(be, net->state, 0.01f, 0, err));
		TRY(ops->zero(be, net->sums, sizeof(LossSums), err));
		if (step == 2)
		{
			Status		status;

			TRY(ops->graph_begin(be, err));
			status = net_step(ops, be, net, err);
			/* a recording that failed has to be ended, too */
			if (ops->graph_end(be, graph, status == STATUS_OK ? err : NULL) != STATUS_OK || status != STATUS_OK)
				return status != STATUS_OK ? status : (Status) err->status;
		}
		if (step >= 2)
			TRY(ops->graph_launch(be, *graph, err));
		else
			TRY(net_step(ops, be, net, err));
	}
	TRY(ops->copy_out(be, &sums, net->sums, sizeof(sums), err));
	TRY(ops->sync(be, err));
	*loss = sums.loss;
	return STATUS_OK;
}

/* All of it, from open to close; whatever fails, everything is given back. */
static Status
run_all(double *loss, Error *err)
{
	const BackendOps *ops = pg_train_backend();
	OpenOptions options = {0};
	Backend    *be = NULL;
	void	   *tensors[TENSORS] = {0},
			   *graph = NULL,
			   *ring = aligned_alloc(4096, RING_BYTES);
	int			registered = 0;
	Status		status = ops->open(&options, &be, err);

	if (status == STATUS_OK)
	{
		/* a failure to pin does no harm */
		registered = ops->host_register(be, ring, RING_BYTES, NULL) == STATUS_OK;
		status = net_alloc(ops, be, tensors, err);
		if (status == STATUS_OK)
		{
			Net			net = {
				tensors[0], tensors[1], tensors[2], tensors[3], tensors[4], tensors[5], tensors[6], tensors[7], tensors[8],
				tensors[9], tensors[10], tensors[11]
			};

			status = net_train(ops, be, &net, &graph, loss, err);
		}
		if (graph != NULL)
			ops->graph_free(be, graph);
		for (size_t i = 0; i < TENSORS; i++)
			ops->free(be, tensors[i], sizes[i]);
		if (registered)
			ops->host_unregister(be, ring);
		ops->close(be);
	}
	free(ring);
	return status;
}

static void
begin(int without_dnn)
{
	cudasim_reset();
	cudasim_set_quiet(1);
	cudasim_set_processors(1);
	cuda_backend_without_dnn(without_dnn);
}

TEST(a_recorded_step_does_what_its_operations_do)
{
	for (int without_dnn = 0; without_dnn <= 1; without_dnn++)
	{
		double		loss[3] = {0};

		for (int order = CUDASIM_FORWARD; order <= CUDASIM_RANDOM; order++)
		{
			Error		err = {0};

			begin(without_dnn);
			cudasim_set_order(order, 9);
			CHECK(run_all(&loss[order], &err) == STATUS_OK, "order %d: %s", order, err.message);
			CHECK(*cudasim_live_report() == '\0', "left behind: %s", cudasim_live_report());
			CHECK(*cudasim_message() == '\0', "the stand-in says: %s", cudasim_message());
		}
		CHECK(loss[0] > 0 && loss[0] == loss[1] && loss[0] == loss[2], "losses %.9g, %.9g, %.9g", loss[0], loss[1],
			  loss[2]);
	}
}

/* After a failure: a status of one of the kinds, a message, and nothing left. */
static void
check_failure(const char *what, long k, Status status, const Error *err)
{
	const char *where = cudasim_fault_hit();

	CHECK(status == STATUS_OK || err->message[0] != '\0', "%s %ld (%s): no message", what, k, where);
	CHECK(*cudasim_live_report() == '\0', "%s %ld (%s), status %d: left behind: %s", what, k, where, (int) status,
		  cudasim_live_report());
	CHECK(cudasim_live_bytes() == 0);
}

TEST(any_allocation_may_fail)
{
	for (int without_dnn = 0; without_dnn <= 1; without_dnn++)
	{
		long		k;
		int			failed = 0;

		for (k = 1; k < 10000; k++)
		{
			Error		err = {0};
			double		loss;
			Status		status;

			begin(without_dnn);
			cudasim_fail_allocation(k);
			status = run_all(&loss, &err);
			if (cudasim_fault_hit() == NULL)
				break;
			check_failure("allocation", k, status, &err);
			/* of device memory it is told as what it is */
			if (strcmp(cudasim_fault_hit(), "cudaMalloc") == 0)
				CHECK(status == STATUS_NO_MEMORY, "allocation %ld (%s) gave status %d: %s", k, cudasim_fault_hit(),
					  (int) status, err.message);
			failed += status != STATUS_OK;
		}
		CHECK(failed >= 10 && k < 10000, "%d of %ld allocations had to succeed", failed, k);
	}
}

/* sticky: the device is lost from there on, as after an illegal access. */
static void
fail_calls(int error, int sticky, int without_dnn)
{
	long		k;
	int			failed = 0;

	for (k = 1; k < 10000; k++)
	{
		Error		err = {0};
		double		loss;
		Status		status;

		begin(without_dnn);
		cudasim_fail_call(k, error, sticky);
		status = run_all(&loss, &err);
		if (cudasim_fault_hit() == NULL)
			break;
		check_failure(sticky ? "lost at call" : "call", k, status, &err);
		failed += status != STATUS_OK;
	}
	CHECK(failed >= 50 && k < 10000, "%d of %ld calls had to succeed", failed, k);
}

TEST(any_call_may_fail)
{
	fail_calls(cudaErrorUnknown, 0, 0);
	fail_calls(cudaErrorUnknown, 0, 1);
}

TEST(the_device_may_be_lost_at_any_call)
{
	fail_calls(cudaErrorECCUncorrectable, 1, 0);
	fail_calls(cudaErrorIllegalAddress, 1, 1);
}

TEST(a_machine_without_a_device_is_refused_with_the_reason)
{
	const BackendOps *ops = pg_train_backend();
	OpenOptions options = {0};
	Backend    *be = NULL;
	Error		err = {0};
	int32_t		devices = -1;

	begin(0);
	cudasim_set_devices(0);
	CHECK(ops->count(&devices, &err) == STATUS_UNSUPPORTED && err.message[0] != '\0');
	CHECK(ops->open(&options, &be, &err) != STATUS_OK && be == NULL);
	begin(0);
	cudasim_set_devices(2);
	CHECK(ops->count(&devices, &err) == STATUS_OK && devices == 2);
	options.ordinal = 2;
	CHECK(ops->open(&options, &be, &err) != STATUS_OK && be == NULL);
}

/* y = x w^T of numbers that TF32 cannot hold. */
static float
one_product(int tf32)
{
	const BackendOps *ops = pg_train_backend();
	OpenOptions options = {.tf32 = tf32};
	float		x[64],
				w[64],
				y = NAN;
	void	   *dev_x,
			   *dev_w,
			   *dev_y;
	Backend    *be;
	Error		err = {0};

	for (int i = 0; i < 64; i++)
	{
		x[i] = 1.0f + 0x1p-12f;
		w[i] = 1.0f;
	}
	begin(0);
	if (ops->open(&options, &be, &err) != STATUS_OK)
		return NAN;
	if (ops->alloc(be, sizeof(x), &dev_x, &err) == STATUS_OK && ops->alloc(be, sizeof(w), &dev_w, &err) == STATUS_OK
		&& ops->alloc(be, sizeof(y), &dev_y, &err) == STATUS_OK
		&& ops->copy_in(be, dev_x, x, sizeof(x), &err) == STATUS_OK
		&& ops->copy_in(be, dev_w, w, sizeof(w), &err) == STATUS_OK
		&& ops->linear_fwd(be, 1, 1, 64, dev_x, dev_w, NULL, ACT_NONE, dev_y, DTYPE_F32, DTYPE_F32, &err) == STATUS_OK
		&& ops->copy_out(be, &y, dev_y, sizeof(y), &err) == STATUS_OK)
		ops->sync(be, &err);
	ops->close(be);
	return y;
}

TEST(fp32_is_rounded_to_tf32_only_where_that_was_allowed)
{
	CHECK(one_product(0) == 64.015625f, "%.9g", (double) one_product(0));
	CHECK(one_product(1) == 64.0f, "%.9g", (double) one_product(1));
}
