/*
 * dataset_internal.h - for dataset.c, which takes rows in, and split.c, which does the rest.
 */
#ifndef PGT_DATASET_INTERNAL_H
#define PGT_DATASET_INTERNAL_H

#include "engine/dataset.h"

/* Memory that grows by remapping: pages move, bytes are not copied. */
typedef struct Growing
{
	char	   *data;
	size_t		bytes;			/* mapped */
} Growing;

/* How one run of a record's elements comes in. */
typedef struct Intake
{
	int32_t		dtype;
	size_t		width;
	size_t		from;			/* bytes from the start of the record */
	size_t		input;			/* first element of the network's input, in the order of the records */
} Intake;

struct Dataset
{
	DatasetSpec spec;
	size_t		source_bytes;	/* of a record as it comes */
	size_t		target_offset;
	Intake	   *intakes;
	int32_t		nintakes;
	bool		permute;		/* channels first to last */
	bool		widen;			/* uint8 to float, since the record mixes types and must be permuted */
	Segment    *segments;		/* of a record as it is kept */

	Growing		records,
				targets;
	size_t		rows;
	size_t		train_end;		/* rows before are SPLIT_TRAIN */

	/*
	 * Sums over the training rows as they arrive, of each float's difference to its first value: that keeps
	 * digits where a column is far from zero, and a constant column has a deviation of exactly zero.  Rows that the
	 * split takes away later are subtracted.  The other way, a pass over all training rows after the split, is a
	 * wait at the end; here the sums are taken while the engine would wait for the next slot anyway.
	 */
	float	   *origin;			/* [input_width] */
	double	   *sum;
	double	   *sum_squares;

	float	   *scale;
	float	   *offset;
	double	   *mean;
	double	   *stddev;
	uint32_t   *index;			/* training rows, then validation rows */
	DatasetView view;
};

/* Add the values of a record as it is kept to the sums, or take them away. */
extern void dataset_sum_row(Dataset *ds, const char *kept, double sign);
/* Where element i of the records' order stands in the order of the network's memory. */
extern size_t dataset_place(const Dataset *ds, size_t i);

#endif							/* PGT_DATASET_INTERNAL_H */
