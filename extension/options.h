/*
 * options.h - the arguments of train_model, checked.
 */
#ifndef PGT_OPTIONS_H
#define PGT_OPTIONS_H

#include "postgres.h"

#include "fmgr.h"
#include "nodes/pg_list.h"
#include "utils/jsonb.h"

#include "engine/spec.h"
#include "loader/loader.h"

typedef enum Amp
{
	AMP_OFF,
	AMP_BF16,
	AMP_FP16,
	AMP_AUTO					/* bf16 where the device computes with it, else fp16 where it does */
} Amp;

typedef struct TrainOptions
{
	char	   *model;
	char	   *source;
	char	   *target;
	List	   *features;		/* of char *; NIL: every column but the target */
	bool		has_task;
	Task		task;
	Jsonb	   *architecture;	/* NULL: default */
	RowShape	input_shape;	/* height 0: none */
	double		validation_fraction;
	char	   *validation_source;	/* or NULL */
	bool		stratify;
	int32		epochs;
	int32		batch_size;
	int32		accumulation_steps;
	OptimizerKind optimizer;
	double		learning_rate;
	double		momentum;		/* sgd */
	bool		nesterov;
	double		beta1,			/* adam, adamw */
				beta2,
				eps;
	double		weight_decay;
	bool		has_loss;
	LossKind	loss;
	double		max_grad_norm;	/* 0: no clipping */
	Amp			amp;
	char	   *device;			/* as the engine's --device takes it */
	NullPolicy	null_policy;
	bool		standardize;
	int64		seed;
} TrainOptions;

/* Read the arguments of a call of train_model.  ERROR for each that is not valid by itself or beside the others. */
extern void OptionsRead(TrainOptions *options, FunctionCallInfo fcinfo);

/* The loss is known when the target is: ERROR where it does not belong to the task. */
extern void OptionsCheckLoss(const TrainOptions *options, Task task);

/* What is stored with the version: every argument, as used. */
extern Jsonb *OptionsToJsonb(const TrainOptions *options, Task task, LossKind loss, const char *precision);

#endif							/* PGT_OPTIONS_H */
