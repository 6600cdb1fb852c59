/*
 * features.h - which columns of a source are trained on, and what of its target.
 */
#ifndef PGT_FEATURES_H
#define PGT_FEATURES_H

#include "postgres.h"

#include "access/tupdesc.h"

#include "extension/options.h"
#include "loader/encoder.h"

/* The features of a source, in the order of the option features or of the columns.  ERROR names a column that cannot be one. */
extern EncoderSet *FeaturesChoose(TupleDesc desc, const TrainOptions *options);

/* How the target is to be read, by its type and the option task.  Sets its type. */
extern TargetKind TargetChoose(TupleDesc desc, const TrainOptions *options, Oid *type);

/* The input's width where the types alone tell it, else 0. */
extern int	FeaturesKnownWidth(const EncoderSet *encoders);

/* Does validation_source have the features and the target that source has? */
extern void FeaturesCheckValidation(TupleDesc desc, const EncoderSet *encoders, const char *target, Oid target_type,
									TargetKind kind);

#endif							/* PGT_FEATURES_H */
