/*
 * encoder.h - one column of a row to the network's numbers.
 *
 * The same encoders serve training (a row of the source into a dataset record) and scoring (a row or an
 * array into the network's input), so that both see the same values.
 */
#ifndef PGT_ENCODER_H
#define PGT_ENCODER_H

#include "postgres.h"

#include "access/tupdesc.h"
#include "lib/stringinfo.h"
#include "utils/jsonb.h"

#include "engine/spec.h"

typedef enum EncoderKind
{
	ENCODER_NUMBER,				/* smallint .. numeric, bool: one float */
	ENCODER_ARRAY,				/* real[], float8[], int[] ... of fixed length: width floats */
	ENCODER_BYTES				/* bytea of fixed length: width uint8 */
} EncoderKind;

typedef struct ColumnEncoder
{
	char	   *column;			/* name in the source */
	Oid			type;
	Oid			element_type;	/* ENCODER_ARRAY */
	EncoderKind kind;
	int32		width;			/* elements; 0 until the first value of an array or bytea is seen */
	int32		record_offset;	/* training: bytes from the start of the record */
	int32		input_offset;	/* first element of the network's input it fills */
	double		shift;			/* training: subtracted in double before the value becomes a float, so that large
								 * values with a small spread keep their digits */
	double	   *mean;			/* scoring: [width]; the network sees (value - mean) / stddev */
	double	   *stddev;
} ColumnEncoder;

typedef struct EncoderSet
{
	int			ncolumns;
	ColumnEncoder *columns;		/* in the order of the features */
	int32		input_width;	/* sum of the widths */
} EncoderSet;

/* Can a column of this type be a feature?  Sets kind and element_type; false: not supported. */
extern bool EncoderForType(Oid type, EncoderKind *kind, Oid *element_type);

/*
 * Scoring: encode a value into x[width], standardised.  False: it cannot be, and ReportEncoding says why in an ERROR that
 * names the column.
 */
extern bool TryEncodeForScoring(const ColumnEncoder *encoder, Datum value, float *x);
extern void ReportEncoding(const ColumnEncoder *encoder, Datum value) pg_attribute_noreturn();

/* How the stored version keeps its encoders: [{"column": "x", "type": "double precision", "width": 1, "mean": [..], "stddev": [..]}] */
extern Jsonb *EncodersToJsonb(const EncoderSet *encoders);
extern EncoderSet *EncodersFromJsonb(Jsonb *stored);

#endif							/* PGT_ENCODER_H */
