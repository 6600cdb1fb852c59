/*
 * layers.h - what the engine works out about a list of layers: shapes, and the order of flat features.
 *
 * Images are stored channels last (H, W, C).  PyTorch's flatten numbers their elements channels first (C, H,
 * W), ours just keeps the memory as it is.  So flat features may stand in another order in memory than
 * PyTorch counts them; that order is tracked here, and the tensors of the layers that see such features are
 * permuted once, at the border (tensors.h), instead of transposing every batch.
 */
#ifndef PGT_LAYERS_H
#define PGT_LAYERS_H

#include <stdbool.h>

#include "engine/spec.h"

/*
 * Order of flat features in memory: those of a flattened image of this shape, channels last; channels = 0:
 * as PyTorch counts them.
 */
typedef RowShape FeatureOrder;

typedef struct LayerShape
{
	RowShape	in,
				out;
	FeatureOrder in_order,
				out_order;
} LayerShape;

static inline bool
shape_is_image(RowShape shape)
{
	return shape.height > 0;
}

static inline size_t
shape_elements(RowShape shape)
{
	return shape_is_image(shape) ? (size_t) shape.channels * shape.height * shape.width : (size_t) shape.channels;
}

static inline bool
shape_equal(RowShape a, RowShape b)
{
	return a.channels == b.channels && a.height == b.height && a.width == b.width;
}

/* Layers after layer i at the same depth start here. */
static inline int32_t
layer_after(const LayerSpec *layers, int32_t i)
{
	return i + 1 + (layers[i].kind == LAYER_RESIDUAL ? layers[i].span : 0);
}

/* Check the layers and work out shapes[nlayers] and the shape of the network's output. */
extern Status layers_analyse(const LayerSpec *layers, int32_t nlayers, RowShape input,
							 LayerShape *shapes, RowShape *outputs, Error *err);
/* A network that computes must end in a linear layer, whose outputs are the logits. */
extern Status layers_check_end(const LayerSpec *layers, int32_t nlayers, Error *err);
/* Geometry of a convolution or pooling layer that layers_analyse has accepted. */
extern Conv2dShape layer_conv_shape(const LayerSpec *layer, const LayerShape *shape);

#endif							/* PGT_LAYERS_H */
