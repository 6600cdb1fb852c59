/*
 * program.h - a list of layers turned into the operations that run, with all their memory planned.
 *
 * A program is a flat list of operations.  Layers that cost nothing (flatten) are gone, neighbours that the
 * backend can do in one pass are fused (linear + relu, conv2d + relu, relu + maxpool2d), element-wise
 * operations work in place where nobody needs their input again.  Every array an operation reads or writes is
 * a Buffer with a first and a last moment of use, forward and backward pass on one time line; buffers whose
 * times do not overlap share memory.
 *
 * Fusion does not change results in fp32.  In bf16, tanh, sigmoid and gelu are taken of the unrounded sum.
 */
#ifndef PGT_PROGRAM_H
#define PGT_PROGRAM_H

#include "engine/layers.h"
#include "engine/tensors.h"

typedef enum OpKind
{
	OP_LINEAR,
	OP_CONV2D,
	OP_MAXPOOL2D,
	OP_AVGPOOL2D,
	OP_BATCHNORM,
	OP_LAYERNORM,
	OP_ACTIVATION,
	OP_DROPOUT,
	OP_RESIDUAL_BEGIN,			/* forward: nothing; backward: adds the two gradients of the block's input */
	OP_RESIDUAL_END				/* adds the block's input to its output */
} OpKind;

#define NO_BUFFER (-1)

typedef struct Op
{
	OpKind		kind;
	int32_t		layer;			/* index of the layer it came from */
	Activation	act;			/* linear, conv2d: done on the output; OP_ACTIVATION */
	int32_t		relu;			/* maxpool2d */
	Conv2dShape conv;			/* conv2d and pools */
	size_t		width;			/* linear: inputs; norms: channels or elements; else elements of the input's row */
	size_t		outputs;		/* linear: outputs */
	size_t		positions;		/* batchnorm: pixels, so that a batch has rows * positions samples */
	int32_t		tensor;			/* first of the layer's tensors: weight; then bias, running statistics */
	bool		has_bias;
	bool		fp32_out;		/* linear: the logits */

	/* buffers, forward */
	int32_t		in,
				out;			/* may be the same */
	int32_t		skip;			/* residual end: the block's input */
	int32_t		argmax;			/* maxpool2d in training */
	int32_t		save_mean,		/* norms; batchnorm only in training */
				save_invstd;

	/* backward; dx is NO_BUFFER where nothing below has parameters */
	bool		backward;		/* takes part at all */
	int32_t		dy,
				dact,			/* linear, conv2d with an activation: dy behind it; may be dy */
				dx,				/* may be dy */
				dskip;			/* residual begin: the gradient that came around the block */
} Op;

typedef struct Buffer
{
	size_t		bytes;
	size_t		offset;			/* in the activation arena */
	int32_t		first,			/* moments of use */
				last;
	int32_t		held;			/* while planning: residual blocks that still need the contents */
	int32_t		saved;			/* while planning: what the backward pass will read, SavedUse */
} Buffer;

typedef struct Program
{
	Op		   *ops;
	int32_t		nops;
	Buffer	   *buffers;
	int32_t		nbuffers;
	size_t		arena_bytes;
	size_t		input_width;
	size_t		outputs;
	int32_t		input;			/* buffers */
	int32_t		logits;
	int32_t		dlogits;		/* training */
	int32_t		min_rows;		/* training: 2 where batch norm would see a single value a channel */
} Program;

typedef enum ProgramFlags
{
	PROGRAM_TRAINING = 1,		/* with a backward pass */
	PROGRAM_NO_FUSION = 2,		/* a layer an operation: tests compare */
} ProgramFlags;

/* shapes come from layers_analyse, tensors from tensor_list_create; dtype: of the activations. */
extern Status program_create(const LayerSpec *layers, int32_t nlayers, RowShape input, const LayerShape *shapes,
							 const TensorList *tensors, size_t max_rows, DType dtype, int flags,
							 Program *program, Error *err);
extern void program_free(Program *program);

#endif							/* PGT_PROGRAM_H */
