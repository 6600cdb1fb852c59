/*
 * spec.h - what is to be trained: plain structs that the extension fills, the control socket carries and
 * the engine obeys.  No pointers, fixed sizes, same machine: they cross the socket as they are.
 */
#ifndef PGT_SPEC_H
#define PGT_SPEC_H

#include <stdint.h>

#include "kernels/backend.h"

#define MAX_LAYERS 512
#define LAYER_NAME_SIZE 48
#define MAX_RESIDUAL_DEPTH 8

typedef enum LayerKind
{
	LAYER_LINEAR = 0,
	LAYER_CONV2D,
	LAYER_MAXPOOL2D,
	LAYER_AVGPOOL2D,
	LAYER_GLOBAL_AVGPOOL,
	LAYER_FLATTEN,
	LAYER_BATCHNORM,			/* 1d on flat features, 2d on images */
	LAYER_LAYERNORM,			/* over all of a row's elements */
	LAYER_DROPOUT,
	LAYER_RELU,
	LAYER_GELU,
	LAYER_TANH,
	LAYER_SIGMOID,
	LAYER_RESIDUAL				/* the next span layers are its body; their output is added to its input */
} LayerKind;

typedef struct LayerSpec
{
	char		name[LAYER_NAME_SIZE];	/* state_dict prefix: "3", inside a residual block "3.0" */
	int32_t		kind;			/* LayerKind */
	int32_t		out;			/* linear: features; conv2d: channels */
	int32_t		kernel_h,
				kernel_w;
	int32_t		stride_h,
				stride_w;
	int32_t		pad_h,
				pad_w;
	int32_t		bias;			/* linear, conv2d: 1 with bias (the default) */
	int32_t		span;			/* residual: layers in its body, nested ones counted */
	float		p;				/* dropout */
	float		eps;			/* norms: 1e-5 */
	float		momentum;		/* batchnorm: 0.1 */
} LayerSpec;

/* The shape of one row of an activation.  Flat features: channels = features, height = width = 0. */
typedef struct RowShape
{
	int32_t		channels,
				height,
				width;
} RowShape;

/* What describe_model shows of a layer. */
typedef struct LayerInfo
{
	RowShape	out;
	int64_t		parameters;		/* trainable values */
} LayerInfo;

typedef enum Task
{
	TASK_REGRESSION = 0,
	TASK_CLASSIFICATION
} Task;

typedef enum OptimizerKind
{
	OPTIMIZER_SGD = 0,
	OPTIMIZER_ADAM,
	OPTIMIZER_ADAMW
} OptimizerKind;

#define MAX_SEGMENTS 1664		/* one a column at most */

/* A dataset record: feature segments, then the 4-byte target.  Sent before the first row. */
typedef struct RecordLayout
{
	int32_t		record_bytes;	/* a multiple of 4 */
	int32_t		target_offset;	/* int32 class code or float */
	int32_t		input_width;	/* elements of the network's input */
	int32_t		nsegments;
	Segment		segments[];
} RecordLayout;

/*
 * How the dataset is to be split and normalised.  Means and deviations of float inputs are taken over the
 * training rows; uint8 inputs are scaled by 1/255 and left alone.
 */
typedef struct DatasetSpec
{
	int32_t		task;			/* Task */
	int32_t		standardize;	/* float inputs, and a regression's target */
	int32_t		stratify;		/* split each class by validation_fraction */
	int32_t		external_validation;	/* rows of SPLIT_VALIDATION came; do not split */
	double		validation_fraction;	/* 0: none */
	uint64_t	seed;
	RowShape	input;			/* as TrainSpec.input: images of several channels arrive channels first, as PyTorch has
								 * them, and are stored channels last */
	int32_t		padding;
} DatasetSpec;

typedef struct TrainSpec
{
	int32_t		task;			/* Task */
	int32_t		loss;			/* LossKind */
	int32_t		optimizer;		/* OptimizerKind */
	int32_t		precision;		/* DType of activations: DTYPE_F32, DTYPE_BF16 or DTYPE_F16 */
	int32_t		epochs;
	int32_t		batch_size;		/* rows of a micro-batch */
	int32_t		accumulation_steps;
	int32_t		nesterov;
	int32_t		eager;			/* 1: do not record and replay steps where the device could */
	float		learning_rate;
	float		momentum;
	float		weight_decay;
	float		beta1,
				beta2,
				eps;
	float		max_grad_norm;	/* 0: gradients are not clipped */
	uint64_t	seed;
	RowShape	input;
	int32_t		outputs;		/* width of the last layer */
	int32_t		nlayers;
	LayerSpec	layers[];
} TrainSpec;

typedef struct EpochReport
{
	int32_t		epoch;			/* from 1 */
	int32_t		epochs;
	int64_t		train_rows,
				validation_rows;	/* 0: the validation fields are not set */
	double		train_loss;		/* mean over rows, in training mode */
	double		validation_loss;
	double		train_accuracy, /* classification */
				validation_accuracy;
	double		train_r2,		/* regression, in the target's own units */
				train_rmse,
				train_mae,
				validation_r2,
				validation_rmse,
				validation_mae;
	double		seconds;		/* this epoch, validation included */
	double		rows_per_second;	/* training rows over training seconds */
	double		seconds_left;	/* estimate for the remaining epochs */
} EpochReport;

/* What scoring must know of the dataset; followed by double mean[input_width], stddev[input_width]. */
typedef struct DatasetStats
{
	int64_t		train_rows,
				validation_rows;
	double		target_mean,	/* 0 and 1 unless a regression is standardised */
				target_stddev;
	int32_t		input_width;	/* uint8 inputs: mean 0, stddev 255; not standardised: 0 and 1 */
	int32_t		padding;
} DatasetStats;

typedef struct TrainResult
{
	EpochReport last;
	int64_t		steps;			/* optimizer steps */
	int64_t		skipped_steps;	/* left out, since gradients were not finite in fp16 */
	double		seconds;		/* training, without loading */
	int64_t		peak_rss_bytes; /* of the engine */
	int64_t		parameters;
} TrainResult;

#endif							/* PGT_SPEC_H */
