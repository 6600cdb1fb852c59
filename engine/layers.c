/*
 * layers.c - checking a list of layers and inferring shapes.
 */
#include "engine/layers.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model.h"

#define SHAPE_TEXT_SIZE 48

typedef struct Analysis
{
	const LayerSpec *layers;
	LayerShape *shapes;
	Error	   *err;
} Analysis;

static const FeatureOrder natural_order = {0, 0, 0};

static const char *const kind_names[] = {
	[LAYER_LINEAR] = "linear",
	[LAYER_CONV2D] = "conv2d",
	[LAYER_MAXPOOL2D] = "maxpool2d",
	[LAYER_AVGPOOL2D] = "avgpool2d",
	[LAYER_GLOBAL_AVGPOOL] = "global_avgpool",
	[LAYER_FLATTEN] = "flatten",
	[LAYER_BATCHNORM] = "batchnorm",
	[LAYER_LAYERNORM] = "layernorm",
	[LAYER_DROPOUT] = "dropout",
	[LAYER_RELU] = "relu",
	[LAYER_GELU] = "gelu",
	[LAYER_TANH] = "tanh",
	[LAYER_SIGMOID] = "sigmoid",
	[LAYER_RESIDUAL] = "residual",
};

const char *
layer_kind_name(LayerKind kind)
{
	if ((unsigned) kind >= sizeof(kind_names) / sizeof(kind_names[0]))
		return "unknown";
	return kind_names[kind];
}

/* "(1, 28, 28)" as (channels, height, width), or "(784)" */
static const char *
shape_text(char buffer[SHAPE_TEXT_SIZE], RowShape shape)
{
	if (shape_is_image(shape))
		snprintf(buffer, SHAPE_TEXT_SIZE, "(%d, %d, %d)", shape.channels, shape.height, shape.width);
	else
		snprintf(buffer, SHAPE_TEXT_SIZE, "(%d)", shape.channels);
	return buffer;
}

/* Report an error of one layer. */
static Status PGT_PRINTF(3, 4)
layer_error(const LayerSpec *layer, Error *err, const char *fmt,...)
{
	char		message[sizeof(err->message)];
	va_list		args;

	va_start(args, fmt);
	vsnprintf(message, sizeof(message), fmt, args);
	va_end(args);
	return error_set(err, STATUS_INVALID, "layer %s (%s): %.400s", layer->name, layer_kind_name(layer->kind), message);
}

/* Element counts of a row stay below 2^31, so that sizes in a layer never overflow. */
static bool
shape_fits(RowShape shape)
{
	int64_t		elements;

	if (!shape_is_image(shape))
		return true;
	return !__builtin_mul_overflow((int64_t) shape.channels * shape.height, (int64_t) shape.width, &elements) &&
		elements <= INT32_MAX;
}

static Status
need_image(const LayerSpec *layer, RowShape in, Error *err)
{
	char		text[SHAPE_TEXT_SIZE];

	if (shape_is_image(in))
		return STATUS_OK;
	layer_error(layer, err, "needs an image, but its input has the flat shape %s", shape_text(text, in));
	error_hint(err, "Set input_shape => '{channels,height,width}' if the features are an image, and put image layers before \"flatten\" and \"global_avgpool\".");
	return STATUS_INVALID;
}

static Status
check_window(const LayerSpec *layer, RowShape in, bool pooling, Error *err)
{
	char		text[SHAPE_TEXT_SIZE];

	if (layer->kernel_h < 1 || layer->kernel_w < 1)
		return layer_error(layer, err, "kernel must be at least 1, not (%d, %d)", layer->kernel_h, layer->kernel_w);
	if (layer->stride_h < 1 || layer->stride_w < 1)
		return layer_error(layer, err, "stride must be at least 1, not (%d, %d)", layer->stride_h, layer->stride_w);
	if (layer->pad_h < 0 || layer->pad_w < 0)
		return layer_error(layer, err, "padding must not be negative, but is (%d, %d)", layer->pad_h, layer->pad_w);
	if (pooling && (layer->pad_h > layer->kernel_h / 2 || layer->pad_w > layer->kernel_w / 2))
		return layer_error(layer, err, "padding (%d, %d) must be at most half of the kernel (%d, %d)",
						   layer->pad_h, layer->pad_w, layer->kernel_h, layer->kernel_w);
	if (layer->kind == LAYER_MAXPOOL2D && (int64_t) layer->kernel_h * layer->kernel_w >= 255)
	{
		/* positions inside the window are kept in a byte, of which 255 is taken */
		layer_error(layer, err, "kernel (%d, %d) is too large", layer->kernel_h, layer->kernel_w);
		error_hint(err, "A window may have at most 254 positions; \"global_avgpool\" takes whole images.");
		return STATUS_INVALID;
	}
	if (layer->kernel_h > in.height + 2 * (int64_t) layer->pad_h ||
		layer->kernel_w > in.width + 2 * (int64_t) layer->pad_w)
	{
		layer_error(layer, err, "kernel (%d, %d) is larger than the padded input, whose shape is %s",
					layer->kernel_h, layer->kernel_w, shape_text(text, in));
		error_hint(err, "Use a smaller kernel, more padding, or fewer pooling layers before this one.");
		return STATUS_INVALID;
	}
	return STATUS_OK;
}

/* The output of a window operation: floor((size + 2 padding - kernel) / stride) + 1. */
static Status
window_shape(const LayerSpec *layer, RowShape in, int32_t channels, RowShape *out, Error *err)
{
	int64_t		h = (in.height + 2 * (int64_t) layer->pad_h - layer->kernel_h) / layer->stride_h + 1,
				w = (in.width + 2 * (int64_t) layer->pad_w - layer->kernel_w) / layer->stride_w + 1;

	if (h > INT32_MAX || w > INT32_MAX)
		return layer_error(layer, err, "its output is too large");
	*out = (RowShape)
	{
		channels, (int32_t) h, (int32_t) w
	};
	if (!shape_fits(*out))
		return layer_error(layer, err, "its output is too large");
	return STATUS_OK;
}

static Status analyse_sequence(Analysis *a, int32_t first, int32_t end, int depth, RowShape shape,
							   FeatureOrder order, FeatureOrder required, RowShape *out);

static Status
analyse_residual(Analysis *a, int32_t i, int depth, const LayerShape *shape)
{
	const LayerSpec *layer = &a->layers[i];
	char		in_text[SHAPE_TEXT_SIZE],
				out_text[SHAPE_TEXT_SIZE];
	RowShape	out;

	if (depth >= MAX_RESIDUAL_DEPTH)
		return layer_error(layer, a->err, "residual blocks are nested more than %d deep", MAX_RESIDUAL_DEPTH);
	/* body and input are added element by element, so they must be in one order */
	TRY(analyse_sequence(a, i + 1, i + 1 + layer->span, depth + 1, shape->in, shape->in_order, shape->in_order, &out));
	if (!shape_equal(out, shape->in))
	{
		layer_error(layer, a->err, "its layers turn the shape %s into %s, which cannot be added to the input",
					shape_text(in_text, shape->in), shape_text(out_text, out));
		error_hint(a->err, "The layers of a residual block must keep the shape: with stride 1, the input's number of channels or features, and padding of half the kernel.");
		return STATUS_INVALID;
	}
	return STATUS_OK;
}

/* Check one layer; shape->in and in_order are set, out and out_order are to be. */
static Status
analyse_layer(Analysis *a, int32_t i, int depth, FeatureOrder linear_order, LayerShape *shape)
{
	const LayerSpec *layer = &a->layers[i];
	Error	   *err = a->err;
	char		text[SHAPE_TEXT_SIZE];

	shape->out = shape->in;
	shape->out_order = shape->in_order;
	switch ((LayerKind) layer->kind)
	{
		case LAYER_LINEAR:
			if (shape_is_image(shape->in))
			{
				layer_error(layer, err, "needs flat input, but its input has the shape %s", shape_text(text, shape->in));
				error_hint(err, "Add \"flatten\" or \"global_avgpool\" before it.");
				return STATUS_INVALID;
			}
			if (layer->out < 1)
				return layer_error(layer, err, "the number of outputs must be at least 1, not %d", layer->out);
			shape->out = (RowShape)
			{
				layer->out, 0, 0
			};
			/* an order that has not the layer's size is reported as the block's wrong shape */
			shape->out_order = shape_elements(linear_order) == (size_t) layer->out ? linear_order : natural_order;
			return STATUS_OK;
		case LAYER_CONV2D:
			TRY(need_image(layer, shape->in, err));
			if (layer->out < 1)
				return layer_error(layer, err, "the number of output channels must be at least 1, not %d", layer->out);
			TRY(check_window(layer, shape->in, false, err));
			return window_shape(layer, shape->in, layer->out, &shape->out, err);
		case LAYER_MAXPOOL2D:
		case LAYER_AVGPOOL2D:
			TRY(need_image(layer, shape->in, err));
			TRY(check_window(layer, shape->in, true, err));
			return window_shape(layer, shape->in, shape->in.channels, &shape->out, err);
		case LAYER_GLOBAL_AVGPOOL:
			TRY(need_image(layer, shape->in, err));
			shape->out = (RowShape)
			{
				shape->in.channels, 0, 0
			};
			return STATUS_OK;
		case LAYER_FLATTEN:
			if (!shape_is_image(shape->in))
				return STATUS_OK;
			shape->out = (RowShape)
			{
				(int32_t) shape_elements(shape->in), 0, 0
			};
			/* channels first and last are the same where there is one channel, or one pixel */
			if (shape->in.channels > 1 && (shape->in.height > 1 || shape->in.width > 1))
				shape->out_order = shape->in;
			return STATUS_OK;
		case LAYER_BATCHNORM:
			if (!(layer->momentum >= 0 && layer->momentum <= 1))
				return layer_error(layer, err, "momentum must be between 0 and 1, not %g", layer->momentum);
			/* FALLTHROUGH */
		case LAYER_LAYERNORM:
			if (!(layer->eps > 0 && layer->eps <= 1))
				return layer_error(layer, err, "eps must be above 0 and at most 1, not %g", layer->eps);
			return STATUS_OK;
		case LAYER_DROPOUT:
			if (!(layer->p >= 0 && layer->p < 1))
				return layer_error(layer, err, "p must be at least 0 and below 1, not %g", layer->p);
			return STATUS_OK;
		case LAYER_RELU:
		case LAYER_GELU:
		case LAYER_TANH:
		case LAYER_SIGMOID:
			return STATUS_OK;
		case LAYER_RESIDUAL:
			return analyse_residual(a, i, depth, shape);
	}
	return error_set(err, STATUS_INVALID, "layer %s: kind %d is unknown", layer->name, layer->kind);
}

/*
 * Analyse the layers of a block.  Its output comes out in the required order where a linear layer in it can
 * choose one: the last one of the block does.  Without a linear layer the input's order stays, which is what
 * residual blocks require.
 */
static Status
analyse_sequence(Analysis *a, int32_t first, int32_t end, int depth, RowShape shape,
				 FeatureOrder order, FeatureOrder required, RowShape *out)
{
	int32_t		i,
				last_linear = -1;

	for (i = first; i < end; i = layer_after(a->layers, i))
	{
		const LayerSpec *layer = &a->layers[i];

		if (memchr(layer->name, '\0', sizeof(layer->name)) == NULL)
			return error_set(a->err, STATUS_PROTOCOL, "the name of layer number %d is too long", i);
		if (layer->kind == LAYER_LINEAR)
			last_linear = i;
		if (layer->kind == LAYER_RESIDUAL && (layer->span < 1 || layer->span > end - i - 1))
			return layer_error(layer, a->err, layer->span == 0 ? "has no layers" : "has more layers than there are");
	}
	for (i = first; i < end; i = layer_after(a->layers, i))
	{
		LayerShape *s = &a->shapes[i];

		s->in = shape;
		s->in_order = order;
		TRY(analyse_layer(a, i, depth, i == last_linear ? required : natural_order, s));
		shape = s->out;
		order = s->out_order;
	}
	*out = shape;
	return STATUS_OK;
}

Status
layers_analyse(const LayerSpec *layers, int32_t nlayers, RowShape input,
			   LayerShape *shapes, RowShape *outputs, Error *err)
{
	Analysis	a = {layers, shapes, err};

	if (nlayers < 1 || nlayers > MAX_LAYERS)
	{
		error_set(err, STATUS_INVALID, "a network of %d layers is not supported", nlayers);
		error_hint(err, "A network has 1 to %d layers.", MAX_LAYERS);
		return STATUS_INVALID;
	}
	if (input.channels < 1 || input.height < 0 || input.width < 0 || (input.height == 0) != (input.width == 0))
		return error_set(err, STATUS_INVALID, "input shape (%d, %d, %d) is not valid",
						 input.channels, input.height, input.width);
	if (!shape_fits(input))
		return error_set(err, STATUS_INVALID, "input shape (%d, %d, %d) is too large",
						 input.channels, input.height, input.width);
	return analyse_sequence(&a, 0, nlayers, 0, input, natural_order, natural_order, outputs);
}

Status
layers_check_end(const LayerSpec *layers, int32_t nlayers, Error *err)
{
	int32_t		i,
				last = 0;

	for (i = 0; i < nlayers; i = layer_after(layers, i))
		last = i;
	if (layers[last].kind == LAYER_LINEAR)
		return STATUS_OK;
	return layer_error(&layers[last], err, "a network must end in a linear layer");
}

Conv2dShape
layer_conv_shape(const LayerSpec *layer, const LayerShape *shape)
{
	Conv2dShape s = {
		.c_in = shape->in.channels,
		.h = shape->in.height,
		.w = shape->in.width,
		.c_out = shape->out.channels,
		.kernel_h = layer->kernel_h,
		.kernel_w = layer->kernel_w,
		.stride_h = layer->stride_h,
		.stride_w = layer->stride_w,
		.pad_h = layer->pad_h,
		.pad_w = layer->pad_w,
		.h_out = shape->out.height,
		.w_out = shape->out.width
	};

	/* one window over the whole image */
	if (layer->kind == LAYER_GLOBAL_AVGPOOL)
	{
		s.kernel_h = s.h;
		s.kernel_w = s.w;
		s.stride_h = s.stride_w = 1;
		s.pad_h = s.pad_w = 0;
		s.h_out = s.w_out = 1;
	}
	return s;
}
