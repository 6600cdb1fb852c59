/*
 * catalog.h - models as they are stored: tables of schema pgtrain, written and read as the extension's owner.
 */
#ifndef PGT_CATALOG_H
#define PGT_CATALOG_H

#include "postgres.h"

#include "nodes/pg_list.h"
#include "utils/jsonb.h"

#include "engine/protocol.h"
#include "loader/encoder.h"

/* One tensor of a state_dict. */
typedef struct StoredTensor
{
	TensorHeader header;
	float	   *data;			/* header.values, MCXT_ALLOC_HUGE */
} StoredTensor;

/* Everything a version is.  Strings and arrays live in the context it was made in. */
typedef struct ModelVersion
{
	int64		model_id;
	char	   *name;			/* the model's */
	int32		version;
	Task		task;
	LossKind	loss;
	char	   *source;			/* as the user gave it */
	char	   *target;			/* column */
	Oid			target_type;
	int			nclasses;
	char	  **classes;		/* labels in their text form, in the order of the outputs */
	EncoderSet *encoders;
	RowShape	input;
	Jsonb	   *architecture;	/* output layer included */
	int32		outputs;
	double		target_mean,	/* regression: output * stddev + mean */
				target_stddev;
	Jsonb	   *options;		/* every argument of train_model, as used */
	int64		rows_used,
				rows_skipped,
				train_rows,
				validation_rows;
	char	   *device;			/* "cpu (AVX2, 2 threads)" */
	char	   *precision;		/* "fp32" or "bf16" */
	char	   *libraries;
	int64		seed;
	double		seconds_loading,
				seconds_training;
	int64		parameters;
	List	   *epochs;			/* of EpochReport * */
	List	   *tensors;		/* of StoredTensor *, in state_dict order */
} ModelVersion;

/* Before training: may the caller train this model?  ERROR if it exists and is somebody else's, or the name is not valid. */
extern void CatalogCheckTrain(const char *name);

/* Store a new version of version->name (making the model if there is none), deploy it; sets model_id and version. */
extern void CatalogSaveVersion(ModelVersion *version);

/*
 * Resolve 'name' (the deployed version) or 'name@version' and read it, with its tensors, into the current
 * context.  Checks the caller's rights.  A name that does not exist is an ERROR that hints at the nearest one.
 */
extern ModelVersion *CatalogLoadVersion(const char *reference, bool with_tensors);

#endif							/* PGT_CATALOG_H */
