/*
 * dnn_plan.c - building cuDNN's plan of a convolution.
 *
 * An operation graph is described to cuDNN, its heuristics name engines, and the first one that fits becomes the plan.
 * Left out are engines that do not repeat their results, and those that compute with less than the types say.
 */
#include "kernels/cuda/dnn_plan.h"

#include <string.h>

/* Engines that are looked at in each of the heuristics' modes. */
#define MOST_ENGINES 16

/* Notes of an engine about its arithmetic. */
#define MOST_NOTES 32

/* Descriptors of a graph: tensors, convolution, operations, and the graph. */
#define MOST_DESCRIPTORS 24

/* Everything that is made on the way to a plan, destroyed at its end. */
typedef struct Builder
{
	const DnnLibrary *library;
	cudnnBackendDescriptor_t made[MOST_DESCRIPTORS];
	int			count;
	cudnnBackendDescriptor_t operation[3];
	int			operations;
} Builder;

Status
dnn_failed(const DnnLibrary *library, cudnnStatus_t status, const char *call, Error *err)
{
	Status		ours = status == CUDNN_STATUS_ALLOC_FAILED ? STATUS_NO_MEMORY : STATUS_DEVICE;
	char		reason[256] = "";

	library->GetLastErrorString(reason, sizeof(reason));
	error_set(err, ours, "a convolution failed on the GPU: %s", library->GetErrorString(status));
	error_detail(err, "%.*s failed: %s", (int) strcspn(call, "("), call, reason);
	return ours;
}

#define DNN_TRY(call) \
	do { \
		cudnnStatus_t dnn_try_ = (call); \
		if (dnn_try_ != CUDNN_STATUS_SUCCESS) \
			return dnn_failed(b->library, dnn_try_, #call, err); \
	} while (0)

#define SET(descriptor, attribute, type, count, values) \
	DNN_TRY(b->library->BackendSetAttribute(descriptor, attribute, type, count, values))

static Status
make(Builder *b, cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out, Error *err)
{
	if (b->count == MOST_DESCRIPTORS)
		return error_set(err, STATUS_INTERNAL, "too many descriptors for a convolution");
	DNN_TRY(b->library->BackendCreateDescriptor(type, out));
	b->made[b->count++] = *out;
	return STATUS_OK;
}

static cudnnDataType_t
data_type(DType dtype)
{
	return dtype == DTYPE_F32 ? CUDNN_DATA_FLOAT : (dtype == DTYPE_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF);
}

/* A tensor (n, h, w, c) in memory, which cuDNN names in the order n, c, h, w. */
static Status
make_tensor(Builder *b, int64_t uid, DType dtype, size_t n, int32_t h, int32_t w, int32_t c,
			cudnnBackendDescriptor_t *out, Error *err)
{
	int64_t		dims[4] = {(int64_t) n, c, h, w},
				strides[4] = {(int64_t) h * w * c, 1, (int64_t) w * c, c},
				alignment = DNN_ALIGNMENT;
	cudnnDataType_t type = data_type(dtype);
	bool		is_virtual = uid >= DNN_UID_SUM;

	TRY(make(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR, out, err));
	SET(*out, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
	SET(*out, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims);
	SET(*out, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
	SET(*out, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
	SET(*out, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
	SET(*out, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
	DNN_TRY(b->library->BackendFinalize(*out));
	return STATUS_OK;
}

static Status
make_geometry(Builder *b, const Conv2dShape *s, cudnnBackendDescriptor_t *out, Error *err)
{
	cudnnDataType_t compute = CUDNN_DATA_FLOAT;
	cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
	int64_t		dims = 2,
				pads[2] = {s->pad_h, s->pad_w},
				strides[2] = {s->stride_h, s->stride_w},
				dilations[2] = {1, 1};

	TRY(make(b, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, out, err));
	SET(*out, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &dims);
	SET(*out, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
	SET(*out, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
	SET(*out, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pads);
	SET(*out, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pads);
	SET(*out, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilations);
	SET(*out, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, strides);
	DNN_TRY(b->library->BackendFinalize(*out));
	return STATUS_OK;
}

/* How cuDNN calls the operation's descriptor, and in it the geometry, the tensors, and the factors. */
typedef struct OperationNames
{
	cudnnBackendDescriptorType_t type;
	cudnnBackendAttributeName_t geometry,
				x,
				w,
				y,
				alpha,
				beta;
} OperationNames;

static const OperationNames operation_names[] = {
	[DNN_FORWARD] = {
		CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
		CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
		CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
		CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
		CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
		CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
		CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA
	},
	[DNN_BACKWARD_DATA] = {
		CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
		CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
		CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
		CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
		CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
		CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
		CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA
	},
	[DNN_BACKWARD_WEIGHT] = {
		CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
		CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
		CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
		CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
		CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
		CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
		CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA
	}
};

static Status
add_convolution(Builder *b, const DnnConvolution *c, cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t w,
				cudnnBackendDescriptor_t y, Error *err)
{
	const OperationNames *names = &operation_names[c->operation];
	cudnnBackendDescriptor_t geometry,
				operation;
	float		alpha = 1.0f,
				beta = 0.0f;

	TRY(make_geometry(b, &c->shape, &geometry, err));
	TRY(make(b, names->type, &operation, err));
	SET(operation, names->geometry, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &geometry);
	SET(operation, names->x, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x);
	SET(operation, names->w, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &w);
	SET(operation, names->y, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y);
	SET(operation, names->alpha, CUDNN_TYPE_FLOAT, 1, &alpha);
	SET(operation, names->beta, CUDNN_TYPE_FLOAT, 1, &beta);
	DNN_TRY(b->library->BackendFinalize(operation));
	b->operation[b->operations++] = operation;
	return STATUS_OK;
}

/* y = x + second, or y = relu(x) where second is NULL */
static Status
add_pointwise(Builder *b, cudnnPointwiseMode_t mode, cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t second,
			  cudnnBackendDescriptor_t y, Error *err)
{
	cudnnBackendDescriptor_t pointwise,
				operation;
	cudnnDataType_t compute = CUDNN_DATA_FLOAT;
	cudnnNanPropagation_t nan = CUDNN_PROPAGATE_NAN;

	TRY(make(b, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, &pointwise, err));
	SET(pointwise, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
	SET(pointwise, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute);
	if (second == NULL)
		SET(pointwise, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, 1, &nan);
	DNN_TRY(b->library->BackendFinalize(pointwise));
	TRY(make(b, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, &operation, err));
	SET(operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &pointwise);
	SET(operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x);
	if (second != NULL)
		SET(operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &second);
	SET(operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y);
	DNN_TRY(b->library->BackendFinalize(operation));
	b->operation[b->operations++] = operation;
	return STATUS_OK;
}

/* A tensor of y's shape: y itself, or on the way to it. */
static Status
make_y(Builder *b, const DnnConvolution *c, int64_t uid, DType dtype, cudnnBackendDescriptor_t *out, Error *err)
{
	return make_tensor(b, uid, dtype, c->n, c->shape.h_out, c->shape.w_out, c->shape.c_out, out, err);
}

/* Describe the convolution and what is fused to it. */
static Status
add_operations(Builder *b, const DnnConvolution *c, Error *err)
{
	const Conv2dShape *s = &c->shape;
	DType		dtype = (DType) c->dtype;
	int			bias = c->operation == DNN_FORWARD && c->bias,
				relu = c->operation == DNN_FORWARD && c->relu;
	cudnnBackendDescriptor_t x,
				w,
				y,
				sum,
				b_tensor,
				biased;

	TRY(make_tensor(b, DNN_UID_X, dtype, c->n, s->h, s->w, s->c_in, &x, err));
	TRY(make_tensor(b, DNN_UID_W, dtype, (size_t) s->c_out, s->kernel_h, s->kernel_w, s->c_in, &w, err));
	TRY(make_y(b, c, DNN_UID_Y, dtype, &y, err));
	if (!bias && !relu)
		return add_convolution(b, c, x, w, y, err);
	TRY(make_y(b, c, DNN_UID_SUM, DTYPE_F32, &sum, err));
	TRY(add_convolution(b, c, x, w, sum, err));
	biased = sum;
	if (bias)
	{
		TRY(make_tensor(b, DNN_UID_BIAS, dtype, 1, 1, 1, s->c_out, &b_tensor, err));
		biased = y;
		if (relu)
			TRY(make_y(b, c, DNN_UID_BIASED, DTYPE_F32, &biased, err));
		TRY(add_pointwise(b, CUDNN_POINTWISE_ADD, sum, b_tensor, biased, err));
	}
	if (relu)
		TRY(add_pointwise(b, CUDNN_POINTWISE_RELU_FWD, biased, NULL, y, err));
	return STATUS_OK;
}

/* Does the engine of a configuration compute as exactly as the types promise, and the same each time? */
static int
engine_fits(const DnnLibrary *library, const DnnTarget *target, DType dtype, cudnnBackendDescriptor_t config)
{
	cudnnBackendDescriptor_t engine = NULL;
	cudnnBackendNumericalNote_t notes[MOST_NOTES];
	int64_t		got = 0,
				i;
	int			fits = 0;

	if (library->BackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) != CUDNN_STATUS_SUCCESS)
		return 0;
	if (library->BackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &got,
									 &engine) == CUDNN_STATUS_SUCCESS
		&& library->BackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, MOST_NOTES,
										&got, notes) == CUDNN_STATUS_SUCCESS)
	{
		fits = 1;
		for (i = 0; i < got && i < MOST_NOTES; i++)
			switch (notes[i])
			{
				case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
				case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
				case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13:
					fits = 0;
					break;
				case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
				case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
					/* fp32 on tensor cores is TF32 */
					if (dtype == DTYPE_F32 && !target->tf32)
						fits = 0;
					break;
				default:
					break;
			}
	}
	library->BackendDestroyDescriptor(engine);
	return fits;
}

/* A finalized plan of a configuration, or NULL. */
static cudnnBackendDescriptor_t
plan_of(const DnnTarget *target, cudnnBackendDescriptor_t config, size_t *workspace_bytes)
{
	const DnnLibrary *library = target->library;
	cudnnBackendDescriptor_t plan = NULL;
	cudnnHandle_t handle = target->handle;
	cudnnBackendDescriptor_t properties = target->properties;
	int64_t		workspace = 0,
				got;

	if (library->BackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan) != CUDNN_STATUS_SUCCESS)
		return NULL;
	if (library->BackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
									 &config) == CUDNN_STATUS_SUCCESS
		&& (handle != NULL
			? library->BackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle)
			: library->BackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR,
										   1, &properties)) == CUDNN_STATUS_SUCCESS
		&& library->BackendFinalize(plan) == CUDNN_STATUS_SUCCESS
		&& library->BackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &got,
										&workspace) == CUDNN_STATUS_SUCCESS
		&& workspace >= 0 && (size_t) workspace <= target->workspace_limit)
	{
		*workspace_bytes = (size_t) workspace;
		return plan;
	}
	library->BackendDestroyDescriptor(plan);
	return NULL;
}

/* The first of the engines that a mode of the heuristics names and that fits. */
static Status
ask_heuristics(Builder *b, const DnnTarget *target, DType dtype, cudnnBackendDescriptor_t graph,
			   cudnnBackendHeurMode_t mode, DnnBuilt *built, Error *err)
{
	const DnnLibrary *library = b->library;
	cudnnBackendDescriptor_t heuristics,
				config[MOST_ENGINES] = {NULL},
				properties = target->properties;
	int64_t		got = 0;
	int			i;

	TRY(make(b, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristics, err));
	SET(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
	SET(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
	if (target->handle == NULL)
		SET(heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &properties);
	/* A graph that no engine supports ends here: not an error, but no plan. */
	if (library->BackendFinalize(heuristics) != CUDNN_STATUS_SUCCESS)
		return STATUS_OK;
	for (i = 0; i < MOST_ENGINES; i++)
		if (library->BackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &config[i]) != CUDNN_STATUS_SUCCESS)
			break;
	if (i == MOST_ENGINES
		&& library->BackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
										MOST_ENGINES, &got, config) != CUDNN_STATUS_SUCCESS)
		got = 0;
	for (i = 0; built->plan == NULL && i < got && i < MOST_ENGINES; i++)
		if (engine_fits(library, target, dtype, config[i]))
			built->plan = plan_of(target, config[i], &built->workspace_bytes);
	for (i = 0; i < MOST_ENGINES && config[i] != NULL; i++)
		library->BackendDestroyDescriptor(config[i]);
	return STATUS_OK;
}

static Status
build(Builder *b, const DnnTarget *target, const DnnConvolution *convolution, DnnBuilt *built, Error *err)
{
	static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
	cudnnHandle_t handle = target->handle;
	cudnnBackendDescriptor_t graph;
	int			i;

	TRY(add_operations(b, convolution, err));
	TRY(make(b, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, &graph, err));
	SET(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, b->operations, b->operation);
	if (handle != NULL)
		SET(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
	if (b->library->BackendFinalize(graph) != CUDNN_STATUS_SUCCESS)
		return STATUS_OK;
	for (i = 0; built->plan == NULL && i < 2; i++)
		TRY(ask_heuristics(b, target, (DType) convolution->dtype, graph, modes[i], built, err));
	return STATUS_OK;
}

Status
dnn_build(const DnnTarget *target, const DnnConvolution *convolution, DnnBuilt *built, Error *err)
{
	Builder		b = {target->library, {NULL}, 0, {NULL}, 0};
	Status		status;

	built->plan = NULL;
	built->workspace_bytes = 0;
	status = build(&b, target, convolution, built, err);
	while (b.count > 0)
		b.library->BackendDestroyDescriptor(b.made[--b.count]);
	return status;
}
