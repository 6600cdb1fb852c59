/*
 * tensors.h - the tensors of a network: names and shapes as in the state_dict of a PyTorch nn.Sequential,
 * places in the network's arenas, and the conversion between PyTorch's layouts and ours.
 *
 * num_batches_tracked of batch norms is left out: it only serves momentum=None, which there is none of here.
 * PyTorch's load_state_dict takes the rest (it fills in num_batches_tracked for state_dicts of older versions, or
 * with strict=False).
 */
#ifndef PGT_TENSORS_H
#define PGT_TENSORS_H

#include "engine/layers.h"
#include "engine/protocol.h"

/* Tensors start at multiples of this many elements: 64 bytes also in the bf16 shadow. */
#define TENSOR_ALIGNMENT 32

typedef struct Tensor
{
	TensorHeader header;
	int32_t		layer;
	bool		trainable;		/* false: a running statistic */
	size_t		offset;			/* elements from the start of its arena */
	size_t		rows,			/* PyTorch's shape seen as a matrix: rows are outputs or channels */
				cols;
	FeatureOrder row_order,		/* how rows and columns stand in memory; channels = 0: as in PyTorch */
				col_order;
	float		init_bound;		/* initial values: U(-bound, bound), or init_value where bound is 0 */
	float		init_value;
} Tensor;

typedef struct TensorList
{
	Tensor	   *tensors;
	int32_t		count;
	int32_t	   *first;			/* [nlayers + 1]: first tensor of a layer */
	size_t		parameter_elements; /* size of the arena of trainable tensors, alignment included */
	size_t		statistic_elements; /* the same for running statistics */
	int64_t		parameters;		/* trainable values */
} TensorList;

/* shapes come from layers_analyse. */
extern Status tensor_list_create(const LayerSpec *layers, int32_t nlayers, const LayerShape *shapes,
								 TensorList *list, Error *err);
extern void tensor_list_free(TensorList *list);
extern int32_t tensor_list_find(const TensorList *list, const char *name);	/* -1: there is none */

/* Convert values[header.values] between PyTorch's layout and ours. */
extern void tensor_import(const Tensor *tensor, const float *pytorch, float *ours);
extern void tensor_export(const Tensor *tensor, const float *ours, float *pytorch);

#endif							/* PGT_TENSORS_H */
