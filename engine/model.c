/*
 * model.c - what the extension needs of the engine: a network's shapes and tensors, and scoring.
 */
#include "engine/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/network.h"

struct Model
{
	const BackendOps *ops;
	Backend    *be;
	Network    *net;
	RowShape	input;
	size_t		max_rows;
};

Status
network_infer_shapes(const LayerSpec *layers, int32_t nlayers, RowShape input,
					 LayerInfo *info, RowShape *outputs, Error *err)
{
	LayerShape	shapes[MAX_LAYERS];
	TensorList	tensors;
	int32_t		i,
				t;

	TRY(layers_analyse(layers, nlayers, input, shapes, outputs, err));
	TRY(tensor_list_create(layers, nlayers, shapes, &tensors, err));
	for (i = 0; i < nlayers; i++)
	{
		info[i].out = shapes[i].out;
		info[i].parameters = 0;
		for (t = tensors.first[i]; t < tensors.first[i + 1]; t++)
			if (tensors.tensors[t].trainable)
				info[i].parameters += tensors.tensors[t].header.values;
	}
	tensor_list_free(&tensors);
	return STATUS_OK;
}

Status
network_tensor_count(const LayerSpec *layers, int32_t nlayers, RowShape input, int32_t *count, Error *err)
{
	LayerShape	shapes[MAX_LAYERS];
	RowShape	outputs;
	TensorList	tensors;

	TRY(layers_analyse(layers, nlayers, input, shapes, &outputs, err));
	TRY(tensor_list_create(layers, nlayers, shapes, &tensors, err));
	*count = tensors.count;
	tensor_list_free(&tensors);
	return STATUS_OK;
}

Status
network_tensor(const LayerSpec *layers, int32_t nlayers, RowShape input,
			   int32_t i, TensorHeader *tensor, Error *err)
{
	LayerShape	shapes[MAX_LAYERS];
	RowShape	outputs;
	TensorList	tensors;
	Status		status = STATUS_OK;

	TRY(layers_analyse(layers, nlayers, input, shapes, &outputs, err));
	TRY(tensor_list_create(layers, nlayers, shapes, &tensors, err));
	if (i < 0 || i >= tensors.count)
		status = error_set(err, STATUS_INVALID, "the network has %d tensors, there is no number %d", tensors.count, i);
	else
		*tensor = tensors.tensors[i].header;
	tensor_list_free(&tensors);
	return status;
}

Status
model_create(const LayerSpec *layers, int32_t nlayers, RowShape input, size_t max_rows,
			 Model **out, Error *err)
{
	Model	   *model;
	Status		status;

	*out = NULL;
	if (max_rows < 1)
		return error_set(err, STATUS_INVALID, "a model must score at least one row a call");
	model = calloc(1, sizeof(Model));
	if (model == NULL)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	model->ops = cpu_backend();
	model->input = input;
	model->max_rows = max_rows;
	status = model->ops->open(&(OpenOptions) {.threads = 1}, &model->be, err);
	if (status == STATUS_OK)
		status = network_create(model->ops, model->be, layers, nlayers, input, max_rows, DTYPE_F32, 0,
								&model->net, err);
	/* a tensor that is never set should not be random memory: statistics start as PyTorch's do */
	if (status == STATUS_OK)
		status = network_init(model->net, 0, err);
	if (status != STATUS_OK)
	{
		model_free(model);
		return status;
	}
	*out = model;
	return STATUS_OK;
}

void
model_free(Model *model)
{
	if (model == NULL)
		return;
	network_free(model->net);
	if (model->be != NULL)
		model->ops->close(model->be);
	free(model);
}

Status
model_set_tensor(Model *model, const char *name, const float *data, int64_t values, Error *err)
{
	int32_t		i = tensor_list_find(&model->net->tensors, name);
	int64_t		expected;

	if (i < 0)
		return error_set(err, STATUS_INVALID, "the model has no tensor \"%s\"", name);
	expected = model->net->tensors.tensors[i].header.values;
	if (values != expected)
		return error_set(err, STATUS_INVALID, "tensor \"%s\" has %lld values, expected %lld", name,
						 (long long) values, (long long) expected);
	return network_set_tensor(model->net, i, data, err);
}

/* (rows, C, H, W) to (rows, H, W, C) */
static void
channels_last(RowShape shape, size_t rows, const float *from, float *to)
{
	size_t		channels = shape.channels,
				plane = (size_t) shape.height * shape.width,
				r,
				c,
				p;

	for (r = 0; r < rows; r++)
	{
		for (p = 0; p < plane; p++)
			for (c = 0; c < channels; c++)
				to[p * channels + c] = from[c * plane + p];
		from += channels * plane;
		to += channels * plane;
	}
}

Status
model_forward(Model *model, size_t rows, const float *x, float *y, Error *err)
{
	const Program *program = &model->net->program;

	/* the scoring backend's memory is the process's own */
	while (rows > 0)
	{
		size_t		n = rows < model->max_rows ? rows : model->max_rows;
		float	   *input = network_input(model->net);

		if (shape_is_image(model->input) && model->input.channels > 1)
			channels_last(model->input, n, x, input);
		else
			memcpy(input, x, n * program->input_width * sizeof(float));
		TRY(network_eval(model->net, n, err));
		memcpy(y, network_logits(model->net), n * program->outputs * sizeof(float));
		x += n * program->input_width;
		y += n * program->outputs;
		rows -= n;
	}
	return STATUS_OK;
}

size_t
model_bytes(const Model *model)
{
	return sizeof(Model) + sizeof(Network) + model->net->nlayers * (sizeof(LayerSpec) + sizeof(LayerShape)) +
		network_bytes(model->net);
}

int32_t
model_outputs(const Model *model)
{
	return (int32_t) model->net->program.outputs;
}

void
logits_to_probabilities(float *y, size_t rows, size_t c)
{
	size_t		r,
				i;

	for (r = 0; r < rows; r++, y += c)
	{
		float		max = y[0],
					sum = 0;

		if (c == 1)
		{
			/* of the negative magnitude, which cannot overflow */
			float		e = expf(-fabsf(y[0]));

			y[0] = y[0] >= 0 ? 1 / (1 + e) : e / (1 + e);
			continue;
		}
		for (i = 1; i < c; i++)
			if (y[i] > max)
				max = y[i];
		for (i = 0; i < c; i++)
			sum += y[i] = expf(y[i] - max);
		for (i = 0; i < c; i++)
			y[i] /= sum;
	}
}
