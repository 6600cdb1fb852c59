/*
 * optimizer.h - SGD, Adam and AdamW over the arenas of a network, gradient clipping and loss scaling before them.
 */
#ifndef PGT_OPTIMIZER_H
#define PGT_OPTIMIZER_H

#include "engine/network.h"

typedef struct Optimizer
{
	Network    *net;
	OptimizerKind kind;
	SgdArgs		sgd;
	AdamArgs	adam;
	float	   *first;			/* device: momentum, or Adam's first moment; NULL: SGD without momentum */
	float	   *second;			/* device: Adam's second moment */
	bool		check;			/* gradients are checked before a step: clipping or fp16 */
	GradientCheckArgs check_args;
	float		learning_rate;
} Optimizer;

extern Status optimizer_create(Network *net, const TrainSpec *spec, Optimizer *opt, Error *err);
extern void optimizer_free(Optimizer *opt);
/* Begin a step whose first micro-batch is micro_batch: before its forward passes. */
extern Status optimizer_begin(Optimizer *opt, uint64_t micro_batch, Error *err);
/* Apply the network's gradients to its parameters, shadow included; may be recorded. */
extern Status optimizer_step(Optimizer *opt, Error *err);

#endif							/* PGT_OPTIMIZER_H */
