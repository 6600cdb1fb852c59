/*
 * tensors.c - the tensors of a network and their layouts.
 */
#include "engine/tensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model.h"

/* How many tensors a layer has. */
static int32_t
layer_tensors(const LayerSpec *layer)
{
	switch (layer->kind)
	{
		case LAYER_LINEAR:
		case LAYER_CONV2D:
			return layer->bias ? 2 : 1;
		case LAYER_BATCHNORM:
			return 4;
		case LAYER_LAYERNORM:
			return 2;
		default:
			return 0;
	}
}

/* Append a tensor of dims[ndim], of which the first is its rows. */
static Status
append(TensorList *list, const LayerSpec *layer, int32_t index, const char *suffix, bool trainable,
	   int32_t ndim, const int32_t *dims, Error *err)
{
	Tensor	   *t = &list->tensors[list->count];
	size_t	   *arena = trainable ? &list->parameter_elements : &list->statistic_elements;
	size_t		elements;
	int32_t		i;

	memset(t, 0, sizeof(*t));
	snprintf(t->header.name, sizeof(t->header.name), "%s.%s", layer->name, suffix);
	t->header.ndim = ndim;
	t->header.values = 1;
	for (i = 0; i < ndim; i++)
	{
		t->header.dims[i] = dims[i];
		if (__builtin_mul_overflow(t->header.values, (int64_t) dims[i], &t->header.values))
			return error_set(err, STATUS_INVALID, "layer %s (%s) has too many parameters",
							 layer->name, layer_kind_name(layer->kind));
	}
	t->layer = index;
	t->trainable = trainable;
	t->rows = dims[0];
	t->cols = t->header.values / dims[0];
	t->offset = *arena;
	/* an arena may hold at most 2^58 values, so that its bytes and those of several together are representable */
	elements = ((size_t) t->header.values + TENSOR_ALIGNMENT - 1) / TENSOR_ALIGNMENT * TENSOR_ALIGNMENT;
	if (__builtin_add_overflow(*arena, elements, arena) || *arena > (size_t) 1 << 58)
		return error_set(err, STATUS_INVALID, "the network has too many parameters");
	if (trainable)
		list->parameters += t->header.values;
	list->count++;
	return STATUS_OK;
}

/* torch.nn.init.kaiming_uniform_ with a = sqrt(5) comes to U(-1/sqrt(fan_in), 1/sqrt(fan_in)), weight and bias alike */
static void
init_uniform(Tensor *tensor, size_t fan_in)
{
	tensor->init_bound = (float) (1.0 / sqrt((double) fan_in));
}

static Status
append_layer(TensorList *list, const LayerSpec *layer, int32_t index, const LayerShape *shape, Error *err)
{
	Tensor	   *t = &list->tensors[list->count];
	int32_t		dims[MAX_TENSOR_DIMS];
	int32_t		i,
				ndim;

	switch (layer->kind)
	{
		case LAYER_LINEAR:
			dims[0] = layer->out;
			dims[1] = shape->in.channels;
			TRY(append(list, layer, index, "weight", true, 2, dims, err));
			t[0].col_order = shape->in_order;
			t[0].row_order = shape->out_order;
			init_uniform(&t[0], t[0].cols);
			if (layer->bias)
			{
				TRY(append(list, layer, index, "bias", true, 1, dims, err));
				t[1].row_order = shape->out_order;
				init_uniform(&t[1], t[0].cols);
			}
			break;
		case LAYER_CONV2D:
			dims[0] = layer->out;
			dims[1] = shape->in.channels;
			dims[2] = layer->kernel_h;
			dims[3] = layer->kernel_w;
			TRY(append(list, layer, index, "weight", true, 4, dims, err));
			/* (O, I, KH, KW) to (O, KH, KW, I): each row is an image of I channels */
			t[0].col_order = (FeatureOrder)
			{
				shape->in.channels, layer->kernel_h, layer->kernel_w
			};
			init_uniform(&t[0], t[0].cols);
			if (layer->bias)
			{
				TRY(append(list, layer, index, "bias", true, 1, dims, err));
				init_uniform(&t[1], t[0].cols);
			}
			break;
		case LAYER_BATCHNORM:
			dims[0] = shape->in.channels;
			TRY(append(list, layer, index, "weight", true, 1, dims, err));
			TRY(append(list, layer, index, "bias", true, 1, dims, err));
			TRY(append(list, layer, index, "running_mean", false, 1, dims, err));
			TRY(append(list, layer, index, "running_var", false, 1, dims, err));
			t[0].init_value = t[3].init_value = 1;
			for (i = 0; i < 4; i++)
				t[i].row_order = shape->in_order;
			break;
		case LAYER_LAYERNORM:
			dims[0] = shape->in.channels;
			dims[1] = shape->in.height;
			dims[2] = shape->in.width;
			ndim = shape_is_image(shape->in) ? 3 : 1;
			TRY(append(list, layer, index, "weight", true, ndim, dims, err));
			TRY(append(list, layer, index, "bias", true, ndim, dims, err));
			t[0].init_value = 1;
			for (i = 0; i < 2; i++)
			{
				/* one long row of elements */
				t[i].rows = t[i].header.values;
				t[i].cols = 1;
				t[i].row_order = ndim == 3 ? shape->in : shape->in_order;
			}
			break;
	}
	return STATUS_OK;
}

Status
tensor_list_create(const LayerSpec *layers, int32_t nlayers, const LayerShape *shapes,
				   TensorList *list, Error *err)
{
	int32_t		i,
				total = 0;
	Status		status = STATUS_OK;

	memset(list, 0, sizeof(*list));
	for (i = 0; i < nlayers; i++)
		total += layer_tensors(&layers[i]);
	list->tensors = calloc(total > 0 ? total : 1, sizeof(Tensor));
	list->first = calloc(nlayers + 1, sizeof(int32_t));
	if (list->tensors == NULL || list->first == NULL)
	{
		tensor_list_free(list);
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	}
	for (i = 0; i < nlayers && status == STATUS_OK; i++)
	{
		list->first[i] = list->count;
		status = append_layer(list, &layers[i], i, &shapes[i], err);
	}
	list->first[nlayers] = list->count;
	if (status != STATUS_OK)
		tensor_list_free(list);
	return status;
}

void
tensor_list_free(TensorList *list)
{
	free(list->tensors);
	free(list->first);
	memset(list, 0, sizeof(*list));
}

int32_t
tensor_list_find(const TensorList *list, const char *name)
{
	int32_t		i;

	for (i = 0; i < list->count; i++)
		if (strcmp(list->tensors[i].header.name, name) == 0)
			return i;
	return -1;
}

/* Where element i of a row or column stands in memory under an order. */
static inline size_t
place(FeatureOrder order, size_t i)
{
	size_t		plane = (size_t) order.height * order.width;

	return order.channels == 0 ? i : (i % plane) * order.channels + i / plane;
}

static void
convert(const Tensor *tensor, const float *from, float *to, bool import)
{
	FeatureOrder order = tensor->col_order;
	size_t		cols = tensor->cols,
				r,
				c,
				p;

	for (r = 0; r < tensor->rows; r++)
	{
		size_t		inner = place(tensor->row_order, r) * cols,
					outer = r * cols;
		const float *src = from + (import ? outer : inner);
		float	   *dst = to + (import ? inner : outer);
		size_t		plane = (size_t) order.height * order.width;

		if (order.channels == 0)
			memcpy(dst, src, cols * sizeof(float));
		else if (import)
		{
			for (p = 0; p < plane; p++)
				for (c = 0; c < (size_t) order.channels; c++)
					dst[p * order.channels + c] = src[c * plane + p];
		}
		else
		{
			for (c = 0; c < (size_t) order.channels; c++)
				for (p = 0; p < plane; p++)
					dst[c * plane + p] = src[p * order.channels + c];
		}
	}
}

void
tensor_import(const Tensor *tensor, const float *pytorch, float *ours)
{
	convert(tensor, pytorch, ours, true);
}

void
tensor_export(const Tensor *tensor, const float *ours, float *pytorch)
{
	convert(tensor, ours, pytorch, false);
}
