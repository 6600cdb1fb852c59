/*
 * test_dnn.c - cuDNN's graph API: convolutions against plain loops, and the error codes of misuse, which are those of
 * cuDNN 9.19.
 */
#include <stdbool.h>

#include <cudnn.h>

#include "regress/unit/cudasim/sim_test.h"

typedef cudnnBackendDescriptor_t Descriptor;

#define CHECK_DNN(want, call) \
	do { \
		cudnnStatus_t test_status_ = (call); \
		if (test_status_ != (want)) \
			test_fail(__FILE__, __LINE__, "%s gave %d, expected %d (%s)", #call, (int) test_status_, (int) (want), \
					  cudasim_message()); \
	} while (0)

#define DNN_OK(call) CHECK_DNN(CUDNN_STATUS_SUCCESS, call)
#define SET(d, attribute, type, count, values) \
	DNN_OK(cudnnBackendSetAttribute(d, CUDNN_ATTR_##attribute, CUDNN_TYPE_##type, count, values))
#define SET_PART(d, attribute, part) SET(d, attribute, BACKEND_DESCRIPTOR, 1, &(part))

/* x (BATCH, IN, SIZE, SIZE), w (OUT, IN, 3, 3), padding 1, stride 2 */
#define BATCH 2
#define IN 3
#define SIZE 7
#define OUT 5
#define OUT_SIZE 4
#define X_COUNT (BATCH * IN * SIZE * SIZE)
#define W_COUNT (OUT * IN * 9)
#define Y_COUNT (BATCH * OUT * OUT_SIZE * OUT_SIZE)

enum
{
	X = 1,
	W,
	Y,
	B,
	SUM,
	BIASED
};

static Descriptor made[64];
static int	nmade;
static cudnnHandle_t handle;

static Descriptor
new_descriptor(cudnnBackendDescriptorType_t type)
{
	Descriptor	d = NULL;

	DNN_OK(cudnnBackendCreateDescriptor(type, &d));
	made[nmade++] = d;
	return d;
}

static void
begin(void)
{
	sim_begin();
	nmade = 0;
	DNN_OK(cudnnCreate(&handle));
}

static void
end(void)
{
	while (nmade > 0)
		DNN_OK(cudnnBackendDestroyDescriptor(made[--nmade]));
	DNN_OK(cudnnDestroy(handle));
}

static Descriptor
unfinished_tensor(int64_t id, int64_t n, int64_t c, int64_t h, int64_t w, bool is_virtual)
{
	Descriptor	t = new_descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
	cudnnDataType_t type = CUDNN_DATA_FLOAT;
	int64_t		sizes[4] = {n, c, h, w},
				steps[4] = {c * h * w, 1, c * w, c},
				alignment = 16;

	SET(t, TENSOR_DATA_TYPE, DATA_TYPE, 1, &type);
	SET(t, TENSOR_DIMENSIONS, INT64, 4, sizes);
	SET(t, TENSOR_STRIDES, INT64, 4, steps);
	SET(t, TENSOR_UNIQUE_ID, INT64, 1, &id);
	SET(t, TENSOR_BYTE_ALIGNMENT, INT64, 1, &alignment);
	SET(t, TENSOR_IS_VIRTUAL, BOOLEAN, 1, &is_virtual);
	return t;
}

static Descriptor
tensor(int64_t id, int64_t n, int64_t c, int64_t h, int64_t w, bool is_virtual)
{
	Descriptor	t = unfinished_tensor(id, n, c, h, w, is_virtual);

	DNN_OK(cudnnBackendFinalize(t));
	return t;
}

static Descriptor
convolution(void)
{
	Descriptor	c = new_descriptor(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
	cudnnDataType_t type = CUDNN_DATA_FLOAT;
	cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
	int64_t		dimensions = 2,
				ones[2] = {1, 1},
				strides[2] = {2, 2};

	SET(c, CONVOLUTION_SPATIAL_DIMS, INT64, 1, &dimensions);
	SET(c, CONVOLUTION_COMP_TYPE, DATA_TYPE, 1, &type);
	SET(c, CONVOLUTION_CONV_MODE, CONVOLUTION_MODE, 1, &mode);
	SET(c, CONVOLUTION_PRE_PADDINGS, INT64, 2, ones);
	SET(c, CONVOLUTION_POST_PADDINGS, INT64, 2, ones);
	SET(c, CONVOLUTION_DILATIONS, INT64, 2, ones);
	SET(c, CONVOLUTION_FILTER_STRIDES, INT64, 2, strides);
	DNN_OK(cudnnBackendFinalize(c));
	return c;
}

static Descriptor
tensor_x(void)
{
	return tensor(X, BATCH, IN, SIZE, SIZE, false);
}

static Descriptor
tensor_w(void)
{
	return tensor(W, OUT, IN, 3, 3, false);
}

/* 0: forward, 1: of the data, 2: of the weights */
static Descriptor
operation(int which, Descriptor x, Descriptor w, Descriptor y)
{
	Descriptor	c = convolution(),
				op;
	float		alpha = 1,
				beta = 0;

	if (which == 0)
	{
		op = new_descriptor(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
		SET_PART(op, OPERATION_CONVOLUTION_FORWARD_CONV_DESC, c);
		SET_PART(op, OPERATION_CONVOLUTION_FORWARD_X, x);
		SET_PART(op, OPERATION_CONVOLUTION_FORWARD_W, w);
		SET_PART(op, OPERATION_CONVOLUTION_FORWARD_Y, y);
		SET(op, OPERATION_CONVOLUTION_FORWARD_ALPHA, FLOAT, 1, &alpha);
		SET(op, OPERATION_CONVOLUTION_FORWARD_BETA, FLOAT, 1, &beta);
	}
	else if (which == 1)
	{
		op = new_descriptor(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR);
		SET_PART(op, OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, c);
		SET_PART(op, OPERATION_CONVOLUTION_BWD_DATA_DX, x);
		SET_PART(op, OPERATION_CONVOLUTION_BWD_DATA_W, w);
		SET_PART(op, OPERATION_CONVOLUTION_BWD_DATA_DY, y);
	}
	else
	{
		op = new_descriptor(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR);
		SET_PART(op, OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, c);
		SET_PART(op, OPERATION_CONVOLUTION_BWD_FILTER_X, x);
		SET_PART(op, OPERATION_CONVOLUTION_BWD_FILTER_DW, w);
		SET_PART(op, OPERATION_CONVOLUTION_BWD_FILTER_DY, y);
	}
	DNN_OK(cudnnBackendFinalize(op));
	return op;
}

static Descriptor
pointwise(cudnnPointwiseMode_t mode, Descriptor x, Descriptor b, Descriptor y)
{
	Descriptor	p = new_descriptor(CUDNN_BACKEND_POINTWISE_DESCRIPTOR),
				op = new_descriptor(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
	cudnnDataType_t type = CUDNN_DATA_FLOAT;

	SET(p, POINTWISE_MODE, POINTWISE_MODE, 1, &mode);
	SET(p, POINTWISE_MATH_PREC, DATA_TYPE, 1, &type);
	DNN_OK(cudnnBackendFinalize(p));
	SET_PART(op, OPERATION_POINTWISE_PW_DESCRIPTOR, p);
	SET_PART(op, OPERATION_POINTWISE_XDESC, x);
	if (b != NULL)
		SET_PART(op, OPERATION_POINTWISE_BDESC, b);
	SET_PART(op, OPERATION_POINTWISE_YDESC, y);
	DNN_OK(cudnnBackendFinalize(op));
	return op;
}

/* A plan on the engine that rounds to TF32 (0) or does not (1). */
static Descriptor
plan(int count, Descriptor *ops, int engine)
{
	Descriptor	graph = new_descriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR),
				heuristic = new_descriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR),
				configs[2] = {new_descriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR),
				new_descriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)},
				plan = new_descriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR),
				described = new_descriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
	cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
	cudnnBackendNumericalNote_t note;
	int64_t		found = 0;

	SET(graph, OPERATIONGRAPH_OPS, BACKEND_DESCRIPTOR, count, ops);
	DNN_OK(cudnnBackendFinalize(graph));
	SET_PART(heuristic, ENGINEHEUR_OPERATION_GRAPH, graph);
	SET(heuristic, ENGINEHEUR_MODE, HEUR_MODE, 1, &mode);
	DNN_OK(cudnnBackendFinalize(heuristic));
	DNN_OK(cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &found,
									NULL));
	CHECK(found == 2);
	DNN_OK(cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 2, &found,
									configs));
	DNN_OK(cudnnBackendGetAttribute(configs[engine], CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
									&found, &described));
	DNN_OK(cudnnBackendGetAttribute(described, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, 1, &found,
									&note));
	CHECK(found == (engine == 0));
	SET_PART(plan, EXECUTION_PLAN_ENGINE_CONFIG, configs[engine]);
	DNN_OK(cudnnBackendFinalize(plan));
	return plan;
}

static int64_t
workspace_of(Descriptor p)
{
	int64_t		bytes = -1,
				count;

	DNN_OK(cudnnBackendGetAttribute(p, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count, &bytes));
	return bytes;
}

static Descriptor
pack(int count, int64_t *ids, void **pointers, void *workspace)
{
	Descriptor	v = new_descriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);

	SET(v, VARIANT_PACK_UNIQUE_IDS, INT64, count, ids);
	SET(v, VARIANT_PACK_DATA_POINTERS, VOID_PTR, count, pointers);
	SET(v, VARIANT_PACK_WORKSPACE, VOID_PTR, 1, &workspace);
	DNN_OK(cudnnBackendFinalize(v));
	return v;
}

static void
fill(float *values, int n, int seed)
{
	for (int i = 0; i < n; i++)
		values[i] = (float) ((i * 37 + seed * 11) % 23 - 11) / 8 + 0.0003f * (float) (i % 5);
}

/* Calls visit for every product of the convolution: positions in x, w and y. */
static void
for_each_product(void (*visit) (double *x, double *w, double *y), double *x, double *w, double *y)
{
	for (int n = 0; n < BATCH; n++)
		for (int p = 0; p < OUT_SIZE; p++)
			for (int q = 0; q < OUT_SIZE; q++)
				for (int o = 0; o < OUT; o++)
					for (int r = 0; r < 3; r++)
						for (int s = 0; s < 3; s++)
							for (int i = 0; i < IN; i++)
							{
								int			h = 2 * p - 1 + r,
											v = 2 * q - 1 + s;

								if (h >= 0 && v >= 0 && h < SIZE && v < SIZE)
									visit(&x[((n * SIZE + h) * SIZE + v) * IN + i], &w[((o * 3 + r) * 3 + s) * IN + i],
										  &y[((n * OUT_SIZE + p) * OUT_SIZE + q) * OUT + o]);
							}
}

static void
add_forward(double *x, double *w, double *y)
{
	*y += *x * *w;
}

static void
add_data(double *x, double *w, double *y)
{
	*x += *y * *w;
}

static void
add_weight(double *x, double *w, double *y)
{
	*w += *x * *y;
}

static void
widen(double *to, const float *from, int n)
{
	for (int i = 0; i < n; i++)
		to[i] = (double) from[i];
}

TEST(convolutions_and_their_gradients_are_right)
{
	static void (*const add[3]) (double *, double *, double *) = {add_forward, add_data, add_weight};
	static const int counts[3] = {X_COUNT, W_COUNT, Y_COUNT},
				result[3] = {2, 0, 1};

	for (int which = 0; which < 3; which++)
		for (int engine = 0; engine < 2; engine++)
		{
			float		host[3][X_COUNT + W_COUNT + Y_COUNT],
						got[X_COUNT];
			double		want[3][X_COUNT + W_COUNT + Y_COUNT];
			int64_t		ids[3] = {X, W, Y};
			void	   *pointers[3],
					   *workspace = NULL;
			Descriptor	op,
						p;
			int			out = result[which],
						equal = 0;

			begin();
			op = operation(which, tensor_x(), tensor_w(), tensor(Y, BATCH, OUT, OUT_SIZE, OUT_SIZE, false));
			p = plan(1, &op, engine);
			for (int i = 0; i < 3; i++)
			{
				fill(host[i], counts[i], i);
				widen(want[i], host[i], counts[i]);
				pointers[i] = sim_put(i == out ? NULL : host[i], counts[i]);
			}
			memset(want[out], 0, counts[out] * sizeof(double));
			for_each_product(add[which], want[0], want[1], want[2]);
			if (workspace_of(p) > 0)
				CUDA_OK(cudaMalloc(&workspace, workspace_of(p)));
			DNN_OK(cudnnBackendExecute(handle, p, pack(3, ids, pointers, workspace)));
			sim_get(got, pointers[out], counts[out]);
			for (int i = 0; i < counts[out]; i++)
			{
				CHECK_CLOSE(got[i], want[out][i], engine == 0 ? 2e-3 : 1e-5, engine == 0 ? 5e-3 : 1e-5);
				equal += fabs((double) got[i] - want[out][i]) < 1e-5;
			}
			CHECK(engine == 1 || equal < counts[out], "tensor cores have not rounded");
			for (int i = 0; i < 3; i++)
				CUDA_OK(cudaFree(pointers[i]));
			CUDA_OK(cudaFree(workspace));
			end();
			CHECK_NOTHING_LIVE();
		}
}

TEST(a_bias_and_a_relu_are_fused_behind_a_convolution)
{
	float		x[X_COUNT],
				w[W_COUNT],
				b[OUT],
				got[Y_COUNT];
	double		wide_x[X_COUNT],
				wide_w[W_COUNT],
				want[Y_COUNT] = {0};
	int64_t		ids[4] = {X, W, B, Y};
	void	   *pointers[4];
	Descriptor	sum,
				biased,
				ops[3];
	int			cut = 0;

	begin();
	sum = tensor(SUM, BATCH, OUT, OUT_SIZE, OUT_SIZE, true);
	biased = tensor(BIASED, BATCH, OUT, OUT_SIZE, OUT_SIZE, true);
	ops[0] = operation(0, tensor_x(), tensor_w(), sum);
	ops[1] = pointwise(CUDNN_POINTWISE_ADD, sum, tensor(B, 1, OUT, 1, 1, false), biased);
	ops[2] = pointwise(CUDNN_POINTWISE_RELU_FWD, biased, NULL, tensor(Y, BATCH, OUT, OUT_SIZE, OUT_SIZE, false));
	fill(x, X_COUNT, 0);
	fill(w, W_COUNT, 1);
	fill(b, OUT, 2);
	widen(wide_x, x, X_COUNT);
	widen(wide_w, w, W_COUNT);
	for_each_product(add_forward, wide_x, wide_w, want);
	pointers[0] = sim_put(x, X_COUNT);
	pointers[1] = sim_put(w, W_COUNT);
	pointers[2] = sim_put(b, OUT);
	pointers[3] = sim_put(NULL, Y_COUNT);
	DNN_OK(cudnnBackendExecute(handle, plan(3, ops, 1), pack(4, ids, pointers, NULL)));
	sim_get(got, pointers[3], Y_COUNT);
	for (int i = 0; i < Y_COUNT; i++)
	{
		double		v = want[i] + (double) b[i % OUT];

		CHECK_CLOSE(got[i], v > 0 ? v : 0, 1e-5, 1e-5);
		cut += v <= 0;
	}
	CHECK(cut > 0 && cut < Y_COUNT);
	end();
}

TEST(descriptors_refuse_what_cudnn_refuses)
{
	Descriptor	t;
	cudnnDataType_t type = CUDNN_DATA_FLOAT;
	int64_t		id = 5,
				count,
				sizes[4] = {1, 2, 3, 4},
				steps[4] = {24, 1, 8, 2};

	begin();
	t = new_descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
	CHECK_DNN(CUDNN_STATUS_BAD_PARAM, cudnnBackendFinalize(t));
	CHECK_DNN(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE,
			  cudnnBackendSetAttribute(t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_INT64, 1, &id));
	CHECK_DNN(CUDNN_STATUS_BAD_PARAM,
			  cudnnBackendSetAttribute(t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 2, &type));
	CHECK_DNN(CUDNN_STATUS_BAD_PARAM,
			  cudnnBackendSetAttribute(t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, NULL));
	CHECK_DNN(CUDNN_STATUS_BAD_PARAM,
			  cudnnBackendSetAttribute(t, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type));
	CHECK_DNN(CUDNN_STATUS_BAD_PARAM_NULL_POINTER,
			  cudnnBackendSetAttribute(NULL, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type));
	SET(t, TENSOR_DATA_TYPE, DATA_TYPE, 1, &type);
	SET(t, TENSOR_DIMENSIONS, INT64, 4, sizes);
	SET(t, TENSOR_STRIDES, INT64, 3, steps);
	SET(t, TENSOR_UNIQUE_ID, INT64, 1, &id);
	CHECK_DNN(CUDNN_STATUS_BAD_PARAM, cudnnBackendFinalize(t));
	SET(t, TENSOR_STRIDES, INT64, 4, steps);
	CHECK_DNN(CUDNN_STATUS_BAD_PARAM, cudnnBackendFinalize(t));	/* no alignment */
	id = 16;
	SET(t, TENSOR_BYTE_ALIGNMENT, INT64, 1, &id);
	CHECK_DNN(CUDNN_STATUS_NOT_INITIALIZED,
			  cudnnBackendGetAttribute(t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &count, &id));
	DNN_OK(cudnnBackendFinalize(t));
	DNN_OK(cudnnBackendGetAttribute(t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &count, &id));
	CHECK(id == 5 && count == 1);
	CHECK_DNN(CUDNN_STATUS_BAD_PARAM, cudnnBackendFinalize(t));
	CHECK_DNN(CUDNN_STATUS_BAD_PARAM,
			  cudnnBackendSetAttribute(t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id));
	end();
}

TEST(operations_of_unfinished_or_wrong_tensors_are_refused)
{
	Descriptor	op,
				c,
				x,
				w,
				y,
				graph;

	begin();
	op = new_descriptor(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
	c = convolution();
	x = unfinished_tensor(X, BATCH, IN, SIZE, SIZE, false);
	w = tensor_w();
	y = tensor(Y, BATCH, OUT, OUT_SIZE + 1, OUT_SIZE, false);
	SET_PART(op, OPERATION_CONVOLUTION_FORWARD_X, x);
	SET_PART(op, OPERATION_CONVOLUTION_FORWARD_W, w);
	SET_PART(op, OPERATION_CONVOLUTION_FORWARD_Y, y);
	CHECK_DNN(CUDNN_STATUS_BAD_PARAM, cudnnBackendFinalize(op));
	SET_PART(op, OPERATION_CONVOLUTION_FORWARD_CONV_DESC, c);
	DNN_OK(cudnnBackendFinalize(x));
	/* a copy was taken when it was set */
	CHECK_DNN(CUDNN_STATUS_BAD_PARAM, cudnnBackendFinalize(op));
	SET_PART(op, OPERATION_CONVOLUTION_FORWARD_X, x);
	CHECK_DNN(CUDNN_STATUS_BAD_PARAM, cudnnBackendFinalize(op));	/* y is of another size */
	graph = new_descriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
	CHECK_DNN(CUDNN_STATUS_BAD_PARAM, cudnnBackendFinalize(graph));
	CHECK_DNN(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED,
			  cudnnBackendSetAttribute(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &op));
	CHECK_DNN(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED,
			  cudnnBackendFinalize(new_descriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)));
	end();
}

TEST(a_plan_refuses_a_pack_that_lacks_something)
{
	int64_t		ids[3] = {X, W, Y};
	void	   *pointers[3],
			   *workspace;
	Descriptor	op,
				p,
				v;

	begin();
	op = operation(0, tensor_x(), tensor_w(), tensor(Y, BATCH, OUT, OUT_SIZE, OUT_SIZE, false));
	p = plan(1, &op, 0);
	pointers[0] = sim_put(NULL, X_COUNT);
	pointers[1] = sim_put(NULL, W_COUNT);
	pointers[2] = sim_put(NULL, Y_COUNT);
	CUDA_OK(cudaMalloc(&workspace, workspace_of(p)));
	v = new_descriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
	CHECK_DNN(CUDNN_STATUS_BAD_PARAM, cudnnBackendExecute(handle, p, v));
	CHECK_DNN(CUDNN_STATUS_BAD_PARAM, cudnnBackendExecute(handle, p, pack(2, ids, pointers, workspace)));
	CHECK_DNN(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, cudnnBackendExecute(handle, p, pack(3, ids, pointers, NULL)));
	pointers[2] = (char *) pointers[2] + 4;
	CHECK_DNN(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
			  cudnnBackendExecute(handle, p, pack(3, ids, pointers, workspace)));
	pointers[2] = (char *) pointers[2] - 4;
	DNN_OK(cudnnBackendExecute(handle, p, pack(3, ids, pointers, workspace)));
	CUDA_OK(cudaDeviceSynchronize());
	end();
}

TEST(a_graph_that_cudnn_does_not_have_gets_no_engine)
{
	Descriptor	ops[2],
				graph,
				heuristic;
	cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
	int64_t		found = -1;

	begin();
	ops[0] = operation(1, tensor_x(), tensor_w(), tensor(Y, BATCH, OUT, OUT_SIZE, OUT_SIZE, false));
	ops[1] = pointwise(CUDNN_POINTWISE_RELU_FWD, tensor_x(), NULL, tensor(B, BATCH, IN, SIZE, SIZE, false));
	graph = new_descriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
	SET(graph, OPERATIONGRAPH_OPS, BACKEND_DESCRIPTOR, 2, ops);
	DNN_OK(cudnnBackendFinalize(graph));
	heuristic = new_descriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
	SET_PART(heuristic, ENGINEHEUR_OPERATION_GRAPH, graph);
	SET(heuristic, ENGINEHEUR_MODE, HEUR_MODE, 1, &mode);
	DNN_OK(cudnnBackendFinalize(heuristic));
	DNN_OK(cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &found,
									NULL));
	CHECK(found == 0, "%d engines", (int) found);
	end();
}

TEST(cudnn_needs_a_device)
{
	sim_begin();
	cudasim_set_devices(0);
	CHECK_DNN(CUDNN_STATUS_NOT_INITIALIZED, cudnnCreate(&handle));
	CHECK_NOTHING_LIVE();
}
