/*
 * train_spec.h - refusing a specification that cannot be trained.
 */
#ifndef PGT_TRAIN_SPEC_H
#define PGT_TRAIN_SPEC_H

#include "engine/dataset.h"

/* Everything in the spec by itself, and beside the dataset; nothing in it is trusted. */
extern Status train_spec_check(const DatasetView *data, const TrainSpec *spec, Error *err);

#endif							/* PGT_TRAIN_SPEC_H */
