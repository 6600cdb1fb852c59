/*
 * golden.h - networks, losses, gradients and optimizer steps computed by PyTorch: see regress/unit/golden.py.
 */
#ifndef PGT_TEST_GOLDEN_H
#define PGT_TEST_GOLDEN_H

#include "engine/spec.h"

typedef struct Golden
{
	const char *layers;
	RowShape	input;
	size_t		rows;
	LossKind	loss;
	int32_t		outputs;
	const char *const *names;	/* of the tensors */
	int32_t		tensors;
	double		train_loss;
	const float *x;
	const void *targets;
	/* all tensors one after the other */
	const float *initial;
	const float *eval_logits;	/* (rows, outputs) */
	const float *gradients;		/* 0 for running statistics */
	const float *after_adam;	/* three steps each */
	const float *after_adamw;
	const float *after_sgd;		/* nesterov */
} Golden;

#include "regress/unit/engine/golden_binary.h"
#include "regress/unit/engine/golden_cnn.h"
#include "regress/unit/engine/golden_mlp.h"
#include "regress/unit/engine/golden_regression.h"

static const Golden *const goldens[] = {&golden_mlp, &golden_cnn, &golden_regression, &golden_binary};

#define GOLDENS (sizeof(goldens) / sizeof(goldens[0]))

#endif							/* PGT_TEST_GOLDEN_H */
