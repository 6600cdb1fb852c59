/*
 * network.c - a network on a device: memory, tensors in and out, forward pass.
 */
#include "engine/network.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/network_internal.h"
#include "engine/streams.h"
#include "kernels/philox.h"

static Status
arena_alloc(Network *net, size_t bytes, void *out, Error *err)
{
	void	   *memory;

	if (bytes == 0)
		return STATUS_OK;
	TRY(net->ops->alloc(net->be, bytes, &memory, err));
	*(void **) out = memory;
	return STATUS_OK;
}

static void
arena_free(Network *net, void *memory, size_t bytes)
{
	if (memory != NULL)
		net->ops->free(net->be, memory, bytes);
}

/*
 * Memory that training can have: all of the machine's for the CPU, since what others hold now they may give back,
 * what is free of another device's.
 */
static Status
memory_limit(const Network *net, double *have, Error *err)
{
	DeviceInfo	info;
	size_t		bytes;

	net->ops->info(net->be, &info);
	if (!info.asynchronous)
	{
		*have = (double) sysconf(_SC_PHYS_PAGES) * (double) sysconf(_SC_PAGESIZE);
		return STATUS_OK;
	}
	TRY(net->ops->memory_free(net->be, &bytes, err));
	*have = (double) bytes;
	return STATUS_OK;
}

/* Say so before the kernel kills the process for it.  Two optimizer states are counted in. */
static Status
check_memory(const Network *net, Error *err)
{
	double		parameters = 4 * sizeof(float) * (double) net->tensors.parameter_elements;
	double		activations = (double) net->program.arena_bytes;
	double		have,
				rows;

	TRY(memory_limit(net, &have, err));
	if (parameters + activations <= have)
		return STATUS_OK;
	error_set(err, STATUS_NO_MEMORY, "training needs %.0f MB, more than this machine's memory of %.0f MB",
			  (parameters + activations) / 1048576, have / 1048576);
	error_detail(err, "Parameters, gradients and optimizer state take %.0f MB, activations of a batch %.0f MB.",
				 parameters / 1048576, activations / 1048576);
	/* activations grow with the rows; a tenth is left for what the device needs besides */
	rows = floor((0.9 * have - parameters) / (activations / (double) net->max_rows)) - 1;
	if (rows >= 1)
		error_hint(err, "Use a batch_size of at most %.0f (with accumulation_steps for the same effective batch) or a smaller architecture.",
				   rows);
	else
		error_hint(err, "Use a smaller architecture.");
	return STATUS_NO_MEMORY;
}

static Status
network_build(Network *net, RowShape input, int flags, Error *err)
{
	size_t		parameter_bytes;
	RowShape	outputs;

	TRY(layers_analyse(net->layers, net->nlayers, input, net->shapes, &outputs, err));
	TRY(tensor_list_create(net->layers, net->nlayers, net->shapes, &net->tensors, err));
	TRY(program_create(net->layers, net->nlayers, input, net->shapes, &net->tensors, net->max_rows,
					   net->dtype, flags, &net->program, err));
	if (flags & PROGRAM_TRAINING)
		TRY(check_memory(net, err));
	parameter_bytes = net->tensors.parameter_elements * sizeof(float);
	TRY(arena_alloc(net, parameter_bytes, &net->parameters, err));
	if (flags & PROGRAM_TRAINING)
	{
		StepState	start = {.loss_scale = 1,.grad_multiplier = 1};

		TRY(arena_alloc(net, parameter_bytes, &net->gradients, err));
		TRY(arena_alloc(net, sizeof(start), &net->step, err));
		TRY(net->ops->copy_in(net->be, net->step, &start, sizeof(start), err));
	}
	if (net->dtype != DTYPE_F32)
		TRY(arena_alloc(net, parameter_bytes / 2, &net->shadow, err));
	TRY(arena_alloc(net, net->tensors.statistic_elements * sizeof(float), &net->statistics, err));
	return arena_alloc(net, net->program.arena_bytes, &net->activations, err);
}

Status
network_create(const BackendOps *ops, Backend *be, const LayerSpec *layers, int32_t nlayers,
			   RowShape input, size_t max_rows, DType dtype, int flags,
			   Network **out, Error *err)
{
	Network    *net;
	Status		status;

	*out = NULL;
	if (nlayers < 1 || nlayers > MAX_LAYERS)
	{
		error_set(err, STATUS_INVALID, "a network of %d layers is not supported", nlayers);
		error_hint(err, "A network has 1 to %d layers.", MAX_LAYERS);
		return STATUS_INVALID;
	}
	net = calloc(1, sizeof(Network));
	if (net == NULL)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	net->ops = ops;
	net->be = be;
	net->nlayers = nlayers;
	net->max_rows = max_rows;
	net->dtype = dtype;
	net->layers = malloc(nlayers * sizeof(LayerSpec));
	net->shapes = calloc(nlayers, sizeof(LayerShape));
	if (net->layers == NULL || net->shapes == NULL)
		status = error_set(err, STATUS_NO_MEMORY, "out of memory");
	else
	{
		memcpy(net->layers, layers, nlayers * sizeof(LayerSpec));
		status = network_build(net, input, flags, err);
	}
	if (status != STATUS_OK)
	{
		network_free(net);
		return status;
	}
	*out = net;
	return STATUS_OK;
}

void
network_free(Network *net)
{
	size_t		parameter_bytes;

	if (net == NULL)
		return;
	parameter_bytes = net->tensors.parameter_elements * sizeof(float);
	arena_free(net, net->parameters, parameter_bytes);
	arena_free(net, net->gradients, parameter_bytes);
	arena_free(net, net->step, sizeof(StepState));
	arena_free(net, net->shadow, parameter_bytes / 2);
	arena_free(net, net->statistics, net->tensors.statistic_elements * sizeof(float));
	arena_free(net, net->activations, net->program.arena_bytes);
	program_free(&net->program);
	tensor_list_free(&net->tensors);
	free(net->shapes);
	free(net->layers);
	free(net);
}

uint64_t
network_dropout_stream(uint64_t micro_batch)
{
	return STREAM_DROPOUT(micro_batch, 0) - STREAM_DROPOUT(0, 0);
}

size_t
network_bytes(const Network *net)
{
	size_t		parameter_bytes = net->tensors.parameter_elements * sizeof(float);

	return parameter_bytes + (net->gradients != NULL ? parameter_bytes : 0) +
		(net->shadow != NULL ? parameter_bytes / 2 : 0) +
		net->tensors.statistic_elements * sizeof(float) + net->program.arena_bytes;
}

static float *
tensor_at(const Network *net, int32_t i)
{
	return net->tensors.tensors[i].trainable ? parameter_at(net, i) : statistic_at(net, i);
}

Status
network_set_tensor(Network *net, int32_t i, const float *data, Error *err)
{
	const Tensor *tensor = &net->tensors.tensors[i];
	size_t		values = tensor->header.values;
	float	   *ours = malloc(values * sizeof(float));
	Status		status;

	if (ours == NULL)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	tensor_import(tensor, data, ours);
	status = net->ops->copy_in(net->be, tensor_at(net, i), ours, values * sizeof(float), err);
	free(ours);
	if (status == STATUS_OK && tensor->trainable && net->shadow != NULL)
		status = net->ops->cast(net->be, values, parameter_at(net, i),
								(uint16_t *) net->shadow + tensor->offset, net->dtype, err);
	return status;
}

static Status
copy_tensor_out(Network *net, int32_t i, const float *from, float *data, Error *err)
{
	const Tensor *tensor = &net->tensors.tensors[i];
	float	   *ours = malloc(tensor->header.values * sizeof(float));
	Status		status;

	if (ours == NULL)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	status = net->ops->copy_out(net->be, ours, from, tensor->header.values * sizeof(float), err);
	if (status == STATUS_OK)
		tensor_export(tensor, ours, data);
	free(ours);
	return status;
}

Status
network_get_tensor(Network *net, int32_t i, float *data, Error *err)
{
	return copy_tensor_out(net, i, tensor_at(net, i), data, err);
}

Status
network_get_gradient(Network *net, int32_t i, float *data, Error *err)
{
	return copy_tensor_out(net, i, gradient_at(net, i), data, err);
}

/* Values are numbered in PyTorch's layout, so that they do not depend on ours. */
static void
init_values(const Tensor *tensor, uint64_t seed, uint64_t stream, float *data)
{
	size_t		values = tensor->header.values,
				i,
				j;
	uint32_t	words[4];

	if (tensor->init_bound == 0)
	{
		for (i = 0; i < values; i++)
			data[i] = tensor->init_value;
		return;
	}
	for (i = 0; i < values; i += 4)
	{
		philox_block(seed, stream, i / 4, words);
		for (j = 0; j < 4 && i + j < values; j++)
			data[i + j] = (2.0f * philox_uniform(words[j]) - 1.0f) * tensor->init_bound;
	}
}

Status
network_init(Network *net, uint64_t seed, Error *err)
{
	int32_t		i;

	for (i = 0; i < net->tensors.count; i++)
	{
		const Tensor *tensor = &net->tensors.tensors[i];
		float	   *data = malloc(tensor->header.values * sizeof(float));
		Status		status;

		if (data == NULL)
			return error_set(err, STATUS_NO_MEMORY, "out of memory");
		init_values(tensor, seed, STREAM_INIT(i), data);
		status = network_set_tensor(net, i, data, err);
		free(data);
		if (status != STATUS_OK)
			return status;
	}
	return STATUS_OK;
}

void *
network_input(Network *net)
{
	return buffer_at(net, net->program.input);
}

float *
network_logits(Network *net)
{
	return buffer_at(net, net->program.logits);
}

void *
network_dlogits(Network *net)
{
	return buffer_at(net, net->program.dlogits);
}

static size_t
dtype_size(DType dtype)
{
	return dtype == DTYPE_F32 ? 4 : 2;
}

static Status
forward_op(Network *net, const Op *op, size_t rows, bool training, uint64_t seed, uint64_t micro_batch, Error *err)
{
	const BackendOps *ops = net->ops;
	Backend    *be = net->be;
	DType		dtype = net->dtype;
	const LayerSpec *layer = &net->layers[op->layer];
	const void *x = buffer_at(net, op->in);
	void	   *y = buffer_at(net, op->out);
	const float *bias = op->has_bias ? parameter_at(net, op->tensor + 1) : NULL;

	switch (op->kind)
	{
		case OP_LINEAR:
			return ops->linear_fwd(be, rows, op->outputs, op->width, x, weight_at(net, op->tensor), bias, op->act,
								   y, dtype, op->fp32_out ? DTYPE_F32 : dtype, err);
		case OP_CONV2D:
			return ops->conv2d_fwd(be, &op->conv, rows, x, weight_at(net, op->tensor), bias, op->act, y, dtype, err);
		case OP_MAXPOOL2D:
			return ops->maxpool2d_fwd(be, &op->conv, rows, x, op->relu, y,
									  training ? buffer_at(net, op->argmax) : NULL, dtype, err);
		case OP_AVGPOOL2D:
			return ops->avgpool2d_fwd(be, &op->conv, rows, x, y, dtype, err);
		case OP_BATCHNORM:
			if (training)
				return ops->batchnorm_fwd_train(be, rows * op->positions, op->width, x,
												parameter_at(net, op->tensor), parameter_at(net, op->tensor + 1),
												layer->eps, layer->momentum,
												statistic_at(net, op->tensor + 2), statistic_at(net, op->tensor + 3),
												buffer_at(net, op->save_mean), buffer_at(net, op->save_invstd),
												y, dtype, err);
			return ops->batchnorm_fwd_eval(be, rows * op->positions, op->width, x,
										   parameter_at(net, op->tensor), parameter_at(net, op->tensor + 1),
										   layer->eps, statistic_at(net, op->tensor + 2),
										   statistic_at(net, op->tensor + 3), y, dtype, err);
		case OP_LAYERNORM:
			return ops->layernorm_fwd(be, rows, op->width, x, parameter_at(net, op->tensor),
									  parameter_at(net, op->tensor + 1), layer->eps,
									  buffer_at(net, op->save_mean), buffer_at(net, op->save_invstd),
									  y, dtype, err);
		case OP_ACTIVATION:
			return ops->act_fwd(be, op->act, rows * op->width, x, y, dtype, err);
		case OP_DROPOUT:
			if (training)
				return ops->dropout(be, rows * op->width, layer->p, seed, STREAM_DROPOUT(micro_batch, op->layer),
									net->step, x, y, dtype, err);
			return x == y ? STATUS_OK : ops->copy(be, y, x, rows * op->width * dtype_size(dtype), err);
		case OP_RESIDUAL_BEGIN:
			return STATUS_OK;
		case OP_RESIDUAL_END:
			return ops->add(be, rows * op->width, x, buffer_at(net, op->skip), y, dtype, err);
	}
	return error_set(err, STATUS_INTERNAL, "operation %d is unknown", (int) op->kind);
}

static Status
run_forward(Network *net, size_t rows, bool training, uint64_t seed, uint64_t micro_batch, Error *err)
{
	int32_t		i;

	for (i = 0; i < net->program.nops; i++)
		TRY(forward_op(net, &net->program.ops[i], rows, training, seed, micro_batch, err));
	return STATUS_OK;
}

Status
network_eval(Network *net, size_t rows, Error *err)
{
	return run_forward(net, rows, false, 0, 0, err);
}

Status
network_forward(Network *net, size_t rows, uint64_t seed, uint64_t micro_batch, Error *err)
{
	return run_forward(net, rows, true, seed, micro_batch, err);
}
