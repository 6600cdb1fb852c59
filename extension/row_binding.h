/*
 * row_binding.h - which columns of a row fill the network's input: found by name, once for a row type.
 */
#ifndef PGT_ROW_BINDING_H
#define PGT_ROW_BINDING_H

#include "postgres.h"

#include "access/tupdesc.h"
#include "utils/array.h"

#include "extension/catalog.h"

typedef struct RowBinding
{
	int			ncolumns;
	int		   *attributes;		/* [ncolumns] index of the feature's column in the row */
	ColumnEncoder *encoders;	/* [ncolumns] as stored, with the types that the row has */
	int			nneeded;		/* leading attributes of the row that have to be read */
	int			input_width;

	/* Where all features are plain numbers, which are encoded together; else numbers is NULL. */
	int			npadded;		/* ncolumns, rounded up for vector instructions */
	double	   *numbers;		/* [npadded] scratch */
	double	   *mean;			/* [npadded] */
	double	   *stddev;			/* [npadded] */
	float	   *standardised;	/* [npadded] scratch */
	int		   *stretch_end;	/* [ncolumns] index after the features of the same type from here on */
} RowBinding;

/*
 * Bind the features of a version to the columns of desc, in the current context.  ERROR for a column that is
 * missing or cannot be converted.  The binding refers to the version.
 */
extern RowBinding *RowBindingCreate(const ModelVersion *version, TupleDesc desc);

typedef enum EncodedRow
{
	ROW_ENCODED,
	ROW_HAS_NULL,				/* a feature is NULL: no score */
	ROW_INVALID					/* a feature cannot be encoded: the Report function says why */
} EncodedRow;

/* Fill x[input_width] from the columns of a row. */
extern EncodedRow RowBindingTryEncode(const RowBinding *binding, const Datum *values, const bool *nulls, float *x);
extern void RowBindingReport(const RowBinding *binding, const Datum *values, const bool *nulls) pg_attribute_noreturn();

/* The same, but ERROR for an invalid row.  False: a feature is NULL. */
extern bool RowBindingEncode(const RowBinding *binding, const Datum *values, const bool *nulls, float *x);

/* Fill x from an array of all features of a version, in order. */
extern EncodedRow FeatureArrayTryEncode(const ModelVersion *version, ArrayType *array, float *x);
extern void FeatureArrayReport(const ModelVersion *version, ArrayType *array) pg_attribute_noreturn();

/* Index of the column of that name, or -1; ERROR if there are several. */
extern int	FindColumn(TupleDesc desc, const char *name);

/* The name in desc that a wrong one was probably meant to be, or NULL. */
extern const char *NearestColumn(TupleDesc desc, const char *name);

#endif							/* PGT_ROW_BINDING_H */
