/*
 * classes.h - the classes of a model: from outputs to classes and probabilities, from labels to classes.
 */
#ifndef PGT_CLASSES_H
#define PGT_CLASSES_H

#include "postgres.h"

#include "extension/catalog.h"

/* [nclasses] the classes as numbers, where the target was a number or boolean; else NULL. */
extern double *ClassValues(const ModelVersion *version);

/* A classifier of two classes may have one output: the logit of the second. */
extern int	MostProbableClass(const ModelVersion *version, const float *logits);
extern void ClassProbabilities(const ModelVersion *version, const float *logits, float *p);	/* p[nclasses] */

/* Labels of a column, as codes: the model's classes, then those that it has never seen, as they come. */
typedef struct LabelMap LabelMap;

extern LabelMap *LabelMapCreate(const ModelVersion *version, Oid type);
extern int	LabelMapCode(LabelMap *map, Datum value);
extern int	LabelMapSize(const LabelMap *map);
extern const char *LabelMapLabel(const LabelMap *map, int code);

#endif							/* PGT_CLASSES_H */
