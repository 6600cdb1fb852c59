/*
 * dnn_descriptor.cpp - descriptors of cuDNN's graph API.
 *
 * Rules and error codes were taken down from cuDNN 9.19: what is set must be known to the type of descriptor, of the right
 * type and count; nothing is set after a descriptor is finalised or read before; a descriptor is copied into the one that
 * it is set in, and only when that one is finalised must it have been finalised itself.
 */
#include "regress/cudasim/dnn.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

struct cudnnContext
{
	int			device;
	cudaStream_t stream;
};

namespace sim
{

static const uint64_t HANDLE_MAGIC = 0x444e4e44ull;

/* What a cudnnBackendDescriptor_t points to. */
struct Handle
{
	uint64_t	magic;
	std::shared_ptr<Descriptor> descriptor;
};

static thread_local char last_message[256];

static cudnnStatus_t
refuse(cudnnStatus_t status, const std::string &why)
{
	snprintf(last_message, sizeof(last_message), "%s", why.c_str());
	complain("cuDNN, status %d: %s", (int) status, why.c_str());
	return status;
}

/* An attribute that a descriptor has. */
struct Rule
{
	cudnnBackendDescriptorType_t descriptor;
	int			attribute;
	cudnnBackendAttributeType_t type;
	int			least,
				most;			/* elements */
	bool		required;
};

#define PART CUDNN_TYPE_BACKEND_DESCRIPTOR
#define INT CUDNN_TYPE_INT64

static const Rule rules[] = {
	{CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 1, true},
	{CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DIMENSIONS, INT, 1, 8, true},
	{CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_STRIDES, INT, 1, 8, true},
	{CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_UNIQUE_ID, INT, 1, 1, true},
	{CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, INT, 1, 1, true},
	{CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, 1, false},
	{CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, 1, false},

	{CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, INT, 1, 1, true},
	{CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 1, true},
	{CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, 1, true},
	{CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, INT, 1, 6, true},
	{CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, INT, 1, 6, true},
	{CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_DILATIONS, INT, 1, 6, true},
	{CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, INT, 1, 6, true},

#define CONVOLUTION(type, conv, first, second, third, alpha, beta) \
	{type, conv, PART, 1, 1, true}, \
	{type, first, PART, 1, 1, true}, \
	{type, second, PART, 1, 1, true}, \
	{type, third, PART, 1, 1, true}, \
	{type, alpha, CUDNN_TYPE_FLOAT, 1, 1, false}, \
	{type, beta, CUDNN_TYPE_FLOAT, 1, 1, false}
	CONVOLUTION(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
				CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
				CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
				CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA),
	CONVOLUTION(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
				CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
				CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
				CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA),
	CONVOLUTION(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
				CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
				CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
				CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA),
#undef CONVOLUTION

	{CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, 1, true},
	{CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, 1, true},
	{CUDNN_BACKEND_POINTWISE_DESCRIPTOR, 2 /* CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, deprecated */ ,
		(cudnnBackendAttributeType_t) 10 /* CUDNN_TYPE_NAN_PROPOGATION */ , 1, 1, false},
	{CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, CUDNN_TYPE_FLOAT, 1, 1, false},
	{CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, CUDNN_TYPE_FLOAT, 1, 1, false},
	{CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, CUDNN_TYPE_FLOAT, 1, 1, false},
	{CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, PART, 1, 1, true},
	{CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, PART, 1, 1, true},
	{CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, PART, 1, 1, false},
	{CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, PART, 1, 1, true},

	{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_OPS, PART, 1, 64, true},
	{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, 1, false},
	{CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, 1, 1 << 20, true},
	{CUDNN_BACKEND_ENGINE_DESCRIPTOR, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, PART, 1, 1, true},
	{CUDNN_BACKEND_ENGINE_DESCRIPTOR, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, INT, 1, 1, true},
	{CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, CUDNN_ATTR_ENGINECFG_ENGINE, PART, 1, 1, true},
	{CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, PART, 1, 1, true},
	{CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, 1, true},
	{CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, PART, 1, 1, false},
	{CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, PART, 1, 1, true},
	{CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, 1, false},
	{CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, PART, 1, 1, false},
	{CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, INT, 1, 64, false},
	{CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 1, 64, false},
	{CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, 1, false},
};

static const Rule *
find_rule(cudnnBackendDescriptorType_t descriptor, int attribute)
{
	for (const Rule &rule : rules)
		if (rule.descriptor == descriptor && rule.attribute == attribute)
			return &rule;
	return nullptr;
}

static size_t
size_of(cudnnBackendAttributeType_t type)
{
	switch (type)
	{
		case CUDNN_TYPE_INT64:
		case CUDNN_TYPE_DOUBLE:
		case CUDNN_TYPE_VOID_PTR:
		case CUDNN_TYPE_HANDLE:
		case CUDNN_TYPE_BACKEND_DESCRIPTOR:
			return 8;
		case CUDNN_TYPE_BOOLEAN:
		case CUDNN_TYPE_CHAR:
			return 1;
		default:
			return 4;
	}
}

int64_t
Descriptor::integer(int attribute, size_t i) const
{
	const Value &value = values.at(attribute);
	int64_t wide = 0;
	size_t size = size_of(value.type);

	memcpy(&wide, value.bytes.data() + i * size, size);
	return wide;
}

double
Descriptor::real(int attribute, double otherwise) const
{
	double wide;
	float narrow;

	if (!has(attribute))
		return otherwise;
	const Value &value = values.at(attribute);
	if (value.type == CUDNN_TYPE_DOUBLE)
	{
		memcpy(&wide, value.bytes.data(), sizeof(wide));
		return wide;
	}
	memcpy(&narrow, value.bytes.data(), sizeof(narrow));
	return narrow;
}

std::vector<int64_t>
Descriptor::integers(int attribute) const
{
	std::vector<int64_t> all;

	for (int64_t i = 0; i < values.at(attribute).count; i++)
		all.push_back(integer(attribute, (size_t) i));
	return all;
}

static Handle *
handle_of(cudnnBackendDescriptor_t descriptor)
{
	Handle *handle = (Handle *) descriptor;

	return handle != nullptr && handle->magic == HANDLE_MAGIC ? handle : nullptr;
}

/* What a finalised tensor has to be. */
static cudnnStatus_t
check_tensor(const Descriptor &d)
{
	std::vector<int64_t> sizes = d.integers(CUDNN_ATTR_TENSOR_DIMENSIONS),
				steps = d.integers(CUDNN_ATTR_TENSOR_STRIDES);
	int64_t type = d.integer(CUDNN_ATTR_TENSOR_DATA_TYPE),
				alignment = d.integer(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT),
				element = type == CUDNN_DATA_FLOAT || type == CUDNN_DATA_INT32 ? 4 : 2;

	if (sizes.size() != steps.size())
		return refuse(CUDNN_STATUS_BAD_PARAM, "a tensor has another number of sizes than of strides");
	for (int64_t size : sizes)
		if (size < 1)
			return refuse(CUDNN_STATUS_BAD_PARAM, "a size of a tensor is not positive");
	if (alignment < 1 || alignment % element != 0)
		return refuse(CUDNN_STATUS_BAD_PARAM, "the alignment of a tensor does not fit its type");
	return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t
check_convolution(const Descriptor &d)
{
	static const int per_dimension[] = {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS,
	CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES};
	int64_t dimensions = d.integer(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS);

	for (int attribute : per_dimension)
		if (d.values.at(attribute).count != dimensions)
			return refuse(CUDNN_STATUS_BAD_PARAM, "a convolution's paddings, strides or dilations do not fit its dimensions");
	return CUDNN_STATUS_SUCCESS;
}

/* Output size of a convolution, in each dimension. */
static cudnnStatus_t
check_convolution_shapes(const Descriptor &conv, const Descriptor &x, const Descriptor &w, const Descriptor &y)
{
	std::vector<int64_t> xs = x.integers(CUDNN_ATTR_TENSOR_DIMENSIONS),
				ws = w.integers(CUDNN_ATTR_TENSOR_DIMENSIONS),
				ys = y.integers(CUDNN_ATTR_TENSOR_DIMENSIONS);
	int64_t dimensions = conv.integer(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS);

	if ((int64_t) xs.size() != dimensions + 2 || ws.size() != xs.size() || ys.size() != xs.size() || xs[0] != ys[0]
		|| ws[0] != ys[1] || xs[1] % ws[1] != 0)
		return refuse(CUDNN_STATUS_BAD_PARAM, "the shapes of a convolution's tensors do not go together");
	for (int64_t i = 0; i < dimensions; i++)
	{
		int64_t padded = xs[i + 2] + conv.integer(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, i)
			+ conv.integer(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, i),
					window = (ws[i + 2] - 1) * conv.integer(CUDNN_ATTR_CONVOLUTION_DILATIONS, i) + 1;

		if (padded < window || (padded - window) / conv.integer(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, i) + 1 != ys[i + 2])
			return refuse(CUDNN_STATUS_BAD_PARAM, "the output of a convolution has another size");
	}
	return CUDNN_STATUS_SUCCESS;
}

/* What has to hold when a descriptor is finalised, beyond that everything is there. */
static cudnnStatus_t
check_complete(Descriptor *d)
{
	std::string why;
	cudnnStatus_t status;

	switch (d->type)
	{
		case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
			return check_tensor(*d);
		case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
			return check_convolution(*d);
		case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
			return check_convolution_shapes(*d->part(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC),
											*d->part(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X),
											*d->part(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W),
											*d->part(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y));
		case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
			return check_convolution_shapes(*d->part(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC),
											*d->part(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX),
											*d->part(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W),
											*d->part(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY));
		case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
			return check_convolution_shapes(*d->part(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC),
											*d->part(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X),
											*d->part(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW),
											*d->part(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY));
		case CUDNN_BACKEND_ENGINE_DESCRIPTOR:
			d->engine = (int) d->integer(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
			d->graph = d->values.at(CUDNN_ATTR_ENGINE_OPERATION_GRAPH).parts[0];
			return d->engine >= 0 && d->engine < ENGINES ? CUDNN_STATUS_SUCCESS
				: refuse(CUDNN_STATUS_BAD_PARAM, "there is no such engine");
		case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR:
			d->engine = d->part(CUDNN_ATTR_ENGINECFG_ENGINE)->engine;
			d->graph = d->part(CUDNN_ATTR_ENGINECFG_ENGINE)->graph;
			return CUDNN_STATUS_SUCCESS;
		case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
			d->engine = d->part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->engine;
			d->graph = d->part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->graph;
			status = graph_supported(*d->graph, &why);
			return status == CUDNN_STATUS_SUCCESS ? status : refuse(status, why);
		default:
			return CUDNN_STATUS_SUCCESS;
	}
}

static cudnnStatus_t
finalize(Descriptor *d)
{
	if (d->finalized)
		return refuse(CUDNN_STATUS_BAD_PARAM, "a descriptor is finalised twice");
	for (const Rule &rule : rules)
	{
		if (rule.descriptor != d->type)
			continue;
		if (rule.required && !d->has(rule.attribute))
			return refuse(d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR ? CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED
						  : CUDNN_STATUS_BAD_PARAM, "attribute " + std::to_string(rule.attribute) + " is missing");
		if (d->has(rule.attribute))
			for (auto &part : d->values[rule.attribute].parts)
				if (!part->finalized)
					return refuse(CUDNN_STATUS_BAD_PARAM, "attribute " + std::to_string(rule.attribute)
								  + " was set before it was finalised");
	}
	cudnnStatus_t status = check_complete(d);
	d->finalized = status == CUDNN_STATUS_SUCCESS;
	return status;
}

static cudnnStatus_t
set(Descriptor *d, int attribute, cudnnBackendAttributeType_t type, int64_t count, const void *elements)
{
	const Rule *rule = find_rule(d->type, attribute);
	Value value;

	if (d->finalized)
		return refuse(CUDNN_STATUS_BAD_PARAM, "attribute " + std::to_string(attribute) + " is set after finalising");
	if (rule == nullptr)
		return refuse(CUDNN_STATUS_BAD_PARAM, "a descriptor has no attribute " + std::to_string(attribute));
	/* the factors of operations may be double, too */
	if (type != rule->type && !(rule->type == CUDNN_TYPE_FLOAT && type == CUDNN_TYPE_DOUBLE))
		return refuse(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "attribute " + std::to_string(attribute) + " is of another type");
	if (count < rule->least || count > rule->most || elements == nullptr)
		return refuse(CUDNN_STATUS_BAD_PARAM, "attribute " + std::to_string(attribute) + " has another number of elements");
	value.type = type;
	value.count = count;
	if (type == PART)
		for (int64_t i = 0; i < count; i++)
		{
			Handle *part = handle_of(((cudnnBackendDescriptor_t *) elements)[i]);

			if (part == nullptr)
				return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "attribute " + std::to_string(attribute)
							  + " is no descriptor");
			if (attribute == CUDNN_ATTR_OPERATIONGRAPH_OPS && !part->descriptor->finalized)
				return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "an operation of a graph is not finalised");
			value.parts.push_back(std::make_shared<Descriptor>(*part->descriptor));
		}
	else
		value.bytes.assign((const char *) elements, (const char *) elements + count * size_of(type));
	d->values[attribute] = value;
	return CUDNN_STATUS_SUCCESS;
}

/* Fill the caller's configurations, as many as there are: none for a graph that cuDNN has no engine for. */
static cudnnStatus_t
heuristic_results(const Descriptor &d, int64_t wanted, int64_t *count, cudnnBackendDescriptor_t *out)
{
	const std::shared_ptr<Descriptor> &graph = d.values.at(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH).parts[0];
	std::string why;
	int engines = graph_supported(*graph, &why) == CUDNN_STATUS_SUCCESS ? ENGINES : 0;

	if (wanted == 0 || out == nullptr)
	{
		if (count != nullptr)
			*count = engines;
		return CUDNN_STATUS_SUCCESS;
	}
	for (int i = 0; i < std::min<int64_t>(wanted, engines); i++)
	{
		Handle *handle = handle_of(out[i]);

		if (handle == nullptr || handle->descriptor->type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)
			return refuse(CUDNN_STATUS_BAD_PARAM, "results need descriptors of configurations");
		handle->descriptor->engine = i;
		handle->descriptor->graph = graph;
		handle->descriptor->finalized = true;
	}
	if (count != nullptr)
		*count = std::min<int64_t>(wanted, engines);
	return CUDNN_STATUS_SUCCESS;
}

/* What is not set but follows: of plans, configurations and engines. */
static cudnnStatus_t
get_derived(const Descriptor &d, int attribute, cudnnBackendAttributeType_t type, int64_t wanted, int64_t *count,
			void *elements, bool *found)
{
	int64_t number;

	*found = true;
	switch (attribute)
	{
		case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
		case CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE:
			if (type != INT)
				return CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE;
			number = (int64_t) graph_workspace(*d.graph, d.engine);
			memcpy(elements, &number, sizeof(number));
			break;
		case CUDNN_ATTR_ENGINECFG_ENGINE:
			{
				Handle *handle = handle_of(elements != nullptr ? *(cudnnBackendDescriptor_t *) elements : nullptr);

				if (handle == nullptr || handle->descriptor->type != CUDNN_BACKEND_ENGINE_DESCRIPTOR)
					return refuse(CUDNN_STATUS_BAD_PARAM, "an engine needs the descriptor of an engine");
				handle->descriptor->engine = d.engine;
				handle->descriptor->graph = d.graph;
				handle->descriptor->finalized = true;
				break;
			}
		case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
			if (type != CUDNN_TYPE_NUMERICAL_NOTE)
				return CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE;
			if (d.engine == ENGINE_TENSOR_CORES)
			{
				if (wanted > 0 && elements != nullptr)
					*(cudnnBackendNumericalNote_t *) elements = CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
				if (count != nullptr)
					*count = 1;
			}
			else if (count != nullptr)
				*count = 0;
			return CUDNN_STATUS_SUCCESS;
		case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE:
			if (type != CUDNN_TYPE_BEHAVIOR_NOTE)
				return CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE;
			if (count != nullptr)
				*count = 0;
			return CUDNN_STATUS_SUCCESS;
		case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
			number = d.engine;
			memcpy(elements, &number, sizeof(number));
			break;
		default:
			*found = false;
			return CUDNN_STATUS_SUCCESS;
	}
	if (count != nullptr)
		*count = 1;
	return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t
get(const Descriptor &d, int attribute, cudnnBackendAttributeType_t type, int64_t wanted, int64_t *count, void *elements)
{
	cudnnStatus_t status;
	bool found;

	if (!d.finalized)
		return refuse(CUDNN_STATUS_NOT_INITIALIZED, "attribute " + std::to_string(attribute)
					  + " is read before its descriptor is finalised");
	if (attribute == CUDNN_ATTR_ENGINEHEUR_RESULTS && d.type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)
		return heuristic_results(d, wanted, count, (cudnnBackendDescriptor_t *) elements);
	status = get_derived(d, attribute, type, wanted, count, elements, &found);
	if (found)
		return status;
	if (!d.has(attribute) || d.values.at(attribute).type == PART)
		return refuse(CUDNN_STATUS_BAD_PARAM, "attribute " + std::to_string(attribute) + " cannot be read");
	const Value &value = d.values.at(attribute);
	if (value.type != type)
		return refuse(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "attribute " + std::to_string(attribute) + " is of another type");
	if (elements != nullptr)
		memcpy(elements, value.bytes.data(), std::min(wanted, value.count) * size_of(type));
	if (count != nullptr)
		*count = value.count;
	return CUDNN_STATUS_SUCCESS;
}

/* The pointers of a variant pack by their tensors' ids, checked against what the plan needs. */
static cudnnStatus_t
collect_pointers(const Descriptor &plan, const Descriptor &pack, std::map<int64_t, void *> *pointers, void **workspace)
{
	size_t bytes = graph_workspace(*plan.graph, plan.engine);

	if (!pack.has(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS) || !pack.has(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)
		|| pack.values.at(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS).count
		!= pack.values.at(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).count)
		return refuse(CUDNN_STATUS_BAD_PARAM, "a variant pack needs as many ids as pointers");
	for (int64_t i = 0; i < pack.values.at(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS).count; i++)
		(*pointers)[pack.integer(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, i)]
			= (void *) pack.integer(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, i);
	for (const Tensor &tensor : graph_tensors(*plan.graph))
	{
		auto found = pointers->find(tensor.uid);

		if (found == pointers->end())
			return refuse(CUDNN_STATUS_BAD_PARAM, "a variant pack lacks the pointer of tensor " + std::to_string(tensor.uid));
		if (found->second == nullptr)
			return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "tensor " + std::to_string(tensor.uid) + " is a null pointer");
		if ((uintptr_t) found->second % tensor.alignment != 0)
			return refuse(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, "tensor " + std::to_string(tensor.uid)
						  + " is less aligned than it says");
	}
	*workspace = pack.has(CUDNN_ATTR_VARIANT_PACK_WORKSPACE)
		? (void *) pack.integer(CUDNN_ATTR_VARIANT_PACK_WORKSPACE) : nullptr;
	if (bytes > 0 && *workspace == nullptr)
		return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the plan needs a workspace");
	return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t
run_plan(cudnnHandle_t handle, const std::shared_ptr<Descriptor> &plan, const Descriptor &pack)
{
	std::map<int64_t, void *> pointers;
	void *workspace;
	size_t bytes = graph_workspace(*plan->graph, plan->engine);
	cudnnStatus_t status = collect_pointers(*plan, pack, &pointers, &workspace);
	CUstream_st *stream;
	int device = handle->device;

	if (status != CUDNN_STATUS_SUCCESS)
		return status;
	if (!stream_is_known(handle->stream) || stream_of(handle->stream)->device != device)
		return refuse(CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH, "the stream is of another device");
	stream = stream_of(handle->stream);
	return enqueue(stream, "cudnnBackendExecute", [=]
	{
		std::vector<void *> used;

		for (const Tensor &tensor : graph_tensors(*plan->graph))
			used.push_back(pointers.at(tensor.uid));
		if (bytes > 0)
			used.push_back(workspace);
		for (void *pointer : used)
			if (!memory_device_may_use(device, pointer))
			{
				lose_device(device, cudaErrorIllegalAddress, "cudnnBackendExecute was given %s",
							memory_describe(pointer).c_str());
				return Step::done;
			}
		graph_run(*plan->graph, plan->engine, pointers);
		if (bytes > 0)
			memory_poison(workspace, bytes);
		return Step::done;
	}) == cudaSuccess ? CUDNN_STATUS_SUCCESS : refuse(CUDNN_STATUS_EXECUTION_FAILED_CUDART, "the stream takes no work");
}

}								/* namespace sim */

using namespace sim;

#define CUDNN_CALL() \
	Call		call(__func__); \
	if (call.error != cudaSuccess) \
		return refuse(CUDNN_STATUS_EXECUTION_FAILED_CUDART, "the device is lost")

extern "C"
{

cudnnStatus_t
cudnnCreate(cudnnHandle_t *out)
{
	CUDNN_CALL();
	if (out == nullptr)
		return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
	if (state().devices == 0)
		return refuse(CUDNN_STATUS_NOT_INITIALIZED, "there is no device");
	if (allocation_fails(__func__))
		return refuse(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "no memory for a handle");
	*out = new cudnnContext{current_device(), nullptr};
	state().live[CUDASIM_CUDNN_HANDLE]++;
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnDestroy(cudnnHandle_t handle)
{
	Call call(__func__);

	if (handle == nullptr)
		return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
	delete handle;
	state().live[CUDASIM_CUDNN_HANDLE]--;
	return call.error == cudaSuccess ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED_CUDART;
}

cudnnStatus_t
cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
	CUDNN_CALL();
	if (handle == nullptr)
		return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
	if (!stream_is_known(stream))
		return refuse(CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH, "there is no such stream");
	handle->stream = stream;
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnGetStream(cudnnHandle_t handle, cudaStream_t *stream)
{
	CUDNN_CALL();
	if (handle == nullptr || stream == nullptr)
		return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
	*stream = handle->stream;
	return CUDNN_STATUS_SUCCESS;
}

size_t
cudnnGetVersion(void)
{
	return CUDNN_VERSION;
}

size_t
cudnnGetCudartVersion(void)
{
	return CUDART_VERSION;
}

const char *
cudnnGetErrorString(cudnnStatus_t status)
{
	switch (CUDNN_STATUS_CATEGORY(status))
	{
		case 0:
			return "CUDNN_STATUS_SUCCESS";
		case 1000:
			return "CUDNN_STATUS_NOT_INITIALIZED";
		case 2000:
			return "CUDNN_STATUS_BAD_PARAM";
		case 3000:
			return "CUDNN_STATUS_NOT_SUPPORTED";
		case 4000:
			return "CUDNN_STATUS_INTERNAL_ERROR";
		default:
			return "CUDNN_STATUS_EXECUTION_FAILED";
	}
}

void
cudnnGetLastErrorString(char *message, size_t size)
{
	snprintf(message, size, "%s", last_message);
	last_message[0] = '\0';
}

cudnnStatus_t
cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out)
{
	CUDNN_CALL();
	if (out == nullptr)
		return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
	if (std::none_of(std::begin(rules), std::end(rules), [=] (const Rule &rule) { return rule.descriptor == type; }))
		return refuse(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "there is no such type of descriptor");
	if (allocation_fails(__func__))
		return refuse(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "no memory for a descriptor");
	Handle *handle = new Handle{HANDLE_MAGIC, std::make_shared<Descriptor>()};
	handle->descriptor->type = type;
	*out = handle;
	state().live[CUDASIM_CUDNN_DESCRIPTOR]++;
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor)
{
	Call call(__func__);
	Handle *handle = handle_of(descriptor);

	if (handle == nullptr)
		return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "there is no such descriptor");
	handle->magic = 0;
	delete handle;
	state().live[CUDASIM_CUDNN_DESCRIPTOR]--;
	return call.error == cudaSuccess ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED_CUDART;
}

cudnnStatus_t
cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t attribute,
						 cudnnBackendAttributeType_t type, int64_t count, const void *elements)
{
	CUDNN_CALL();
	if (handle_of(descriptor) == nullptr)
		return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "there is no such descriptor");
	return set(handle_of(descriptor)->descriptor.get(), attribute, type, count, elements);
}

cudnnStatus_t
cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor, cudnnBackendAttributeName_t attribute,
						 cudnnBackendAttributeType_t type, int64_t wanted, int64_t *count, void *elements)
{
	CUDNN_CALL();
	if (handle_of(descriptor) == nullptr)
		return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "there is no such descriptor");
	return get(*handle_of(descriptor)->descriptor, attribute, type, wanted, count, elements);
}

cudnnStatus_t
cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor)
{
	CUDNN_CALL();
	if (handle_of(descriptor) == nullptr)
		return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "there is no such descriptor");
	return finalize(handle_of(descriptor)->descriptor.get());
}

cudnnStatus_t
cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack)
{
	CUDNN_CALL();
	if (handle == nullptr || handle_of(plan) == nullptr || handle_of(pack) == nullptr)
		return refuse(CUDNN_STATUS_BAD_PARAM, "an argument is missing");
	Descriptor *p = handle_of(plan)->descriptor.get(),
			   *v = handle_of(pack)->descriptor.get();
	if (p->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR || v->type != CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR
		|| !p->finalized || !v->finalized)
		return refuse(CUDNN_STATUS_BAD_PARAM, "plan or variant pack are not finalised, or something else");
	return run_plan(handle, handle_of(plan)->descriptor, *v);
}

}								/* extern "C" */
