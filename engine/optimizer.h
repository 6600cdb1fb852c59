/*
 * optimizer.h - SGD, Adam and AdamW over the arenas of a network: one call a step.
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
	int64_t		step;			/* steps done */
} Optimizer;

extern Status optimizer_create(Network *net, const TrainSpec *spec, Optimizer *opt, Error *err);
extern void optimizer_free(Optimizer *opt);
/* Apply the network's gradients to its parameters, shadow included. */
extern Status optimizer_step(Optimizer *opt, Error *err);

#endif							/* PGT_OPTIMIZER_H */
