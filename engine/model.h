/*
 * model.h - a network for scoring: shape checks and the forward pass, without engine, threads or PostgreSQL.
 *
 * This is the part of the engine that pg_train.so links.  Memory comes from malloc; a Model is freed by
 * model_free, which the extension ties to a memory context.
 */
#ifndef PGT_MODEL_H
#define PGT_MODEL_H

#include "engine/protocol.h"
#include "engine/spec.h"

typedef struct Model Model;

/*
 * Infer the shape and the number of parameters of every layer, and check the network: info[nlayers].
 * An error names the layer ("layer 3 (conv2d): ...").  outputs: width of the network's output row.
 */
extern Status network_infer_shapes(const LayerSpec *layers, int32_t nlayers, RowShape input,
								   LayerInfo *info, RowShape *outputs, Error *err);

/* "linear", "conv2d", ...: the name that architecture uses */
extern const char *layer_kind_name(LayerKind kind);

/* The i-th tensor of the network's state_dict, 0 <= i < network_tensor_count. */
extern Status network_tensor_count(const LayerSpec *layers, int32_t nlayers, RowShape input,
								   int32_t *count, Error *err);
extern Status network_tensor(const LayerSpec *layers, int32_t nlayers, RowShape input,
							 int32_t i, TensorHeader *tensor, Error *err);

/* Build for at most max_rows rows a call. */
extern Status model_create(const LayerSpec *layers, int32_t nlayers, RowShape input, size_t max_rows,
						   Model **out, Error *err);
/* Set a tensor by its state_dict name from PyTorch's layout; values is checked against the shape. */
extern Status model_set_tensor(Model *model, const char *name, const float *data, int64_t values, Error *err);
/* x (rows, input) as the dataset has it (images channels first), standardised; y (rows, outputs): the logits. */
extern Status model_forward(Model *model, size_t rows, const float *x, float *y, Error *err);
extern size_t model_bytes(const Model *model);	/* memory it holds */
extern int32_t model_outputs(const Model *model);
extern void model_free(Model *model);

/* In place: logits to probabilities, softmax over c, or sigmoid where c is 1 (then p(class 1)). */
extern void logits_to_probabilities(float *y, size_t rows, size_t c);

#endif							/* PGT_MODEL_H */
