/*
 * dataset.h - the rows to train on, in memory, with what is known of them.
 *
 * Rows come in slots of whole records and are kept as they are (uint8 stays uint8), except that the target
 * goes to an array of its own and images of several channels are turned channels last.  When all have come,
 * dataset_finish splits them and takes means and deviations over the training rows.
 *
 * The rows live in host memory, which is the CPU backend's device memory.
 */
#ifndef PGT_DATASET_H
#define PGT_DATASET_H

#include <stdbool.h>

#include "engine/protocol.h"
#include "engine/spec.h"

typedef struct Dataset Dataset;

/* Checks spec and layout; layout is copied. */
extern Status dataset_create(const DatasetSpec *spec, const RecordLayout *layout, Dataset **out, Error *err);
extern void dataset_free(Dataset *ds);

/* Append rows records; training rows come before validation rows. */
extern Status dataset_add(Dataset *ds, const void *records, size_t rows, SplitKind split, Error *err);
/*
 * No more rows.  Classification: codes[nclasses] maps the class codes of the records to the final ones.
 * Regression: nclasses = 0.
 */
extern Status dataset_finish(Dataset *ds, const int32_t *codes, size_t nclasses, Error *err);

/* What training reads, after dataset_finish. */
typedef struct DatasetView
{
	const void *records;		/* record_bytes each */
	size_t		record_bytes;
	const Segment *segments;
	int32_t		nsegments;
	int32_t		input_width;
	const float *scale;			/* [input_width], in the order of the network's memory; NULL: as gather has it */
	const float *offset;
	const void *targets;		/* int32 classes, or standardised floats; one a row */
	const uint32_t *train;		/* row numbers */
	size_t		train_rows;
	const uint32_t *validation;
	size_t		validation_rows;
	size_t		nclasses;
	double		train_target_squares;	/* sum of (target - mean)^2 over the rows of the split, standardised */
	double		validation_target_squares;
	DatasetStats stats;
	const double *mean;			/* [input_width], in the order of the records */
	const double *stddev;
	RowShape	input;			/* as the rows were laid out */
} DatasetView;

extern const DatasetView *dataset_view(const Dataset *ds);

#endif							/* PGT_DATASET_H */
