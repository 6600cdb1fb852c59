/*
 * prediction.h - what predict, predict_class and predict_proba return for a network's outputs.
 */
#ifndef PGT_PREDICTION_H
#define PGT_PREDICTION_H

#include "postgres.h"

#include "extension/model_cache.h"

typedef enum PredictionKind
{
	PREDICT_VALUE,				/* predict: float8 */
	PREDICT_CLASS,				/* predict_class: text */
	PREDICT_PROBABILITIES		/* predict_proba: real[] */
} PredictionKind;

/* ERROR where the model has no such prediction. */
extern void PredictionCheck(PredictionKind kind, const CachedModel *model);

/* The prediction for outputs[version->outputs], in the current context. */
extern Datum PredictionDatum(PredictionKind kind, const CachedModel *model, const float *outputs);

#endif							/* PGT_PREDICTION_H */
