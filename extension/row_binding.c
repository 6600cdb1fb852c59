/*
 * row_binding.c - which columns of a row fill the network's input.
 */
#include "postgres.h"

#include <float.h>
#include <math.h>

#include "catalog/pg_type.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "extension/compat.h"
#include "extension/row_binding.h"
#include "extension/suggest.h"
#include "loader/number.h"

int
FindColumn(TupleDesc desc, const char *name)
{
	int			found = -1;

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(desc, i);

		if (attribute->attisdropped || strcmp(NameStr(attribute->attname), name) != 0)
			continue;
		if (found >= 0)
			ereport(ERROR,
					(errcode(ERRCODE_AMBIGUOUS_COLUMN),
					 errmsg("row has more than one column \"%s\"", name)));
		found = i;
	}
	return found;
}

const char *
NearestColumn(TupleDesc desc, const char *name)
{
	List	   *names = NIL;

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(desc, i);

		if (!attribute->attisdropped)
			names = lappend(names, NameStr(attribute->attname));
	}
	return SuggestName(name, names);
}

/* Are these the names that ROW(...) gives its columns? */
static bool
IsUnnamedRow(TupleDesc desc)
{
	if (desc->tdtypeid != RECORDOID)
		return false;
	for (int i = 0; i < desc->natts; i++)
	{
		char		name[16];

		snprintf(name, sizeof(name), "f%d", i + 1);
		if (strcmp(NameStr(TupleDescAttr(desc, i)->attname), name) != 0)
			return false;
	}
	return true;
}

static void pg_attribute_noreturn()
MissingColumn(const ModelVersion *version, TupleDesc desc, const char *name)
{
	const char *nearest;

	if (IsUnnamedRow(desc))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("row has no column \"%s\", which model \"%s\" needs", name, version->name),
				 errdetail("The columns of ROW(...) have no names."),
				 errhint("Pass a table row or a subquery's row, or an array of the features in order.")));
	nearest = NearestColumn(desc, name);
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_COLUMN),
			 errmsg("row has no column \"%s\", which model \"%s\" needs", name, version->name),
			 nearest == NULL ? 0 : errhint("Perhaps its column \"%s\" is meant: name it \"%s\" in a subquery.",
										   nearest, name)));
}

/* The stored encoder, for a column of the type that the row has. */
static ColumnEncoder
AdaptEncoder(const ModelVersion *version, const ColumnEncoder *stored, Form_pg_attribute attribute)
{
	ColumnEncoder encoder = *stored;

	encoder.type = getBaseType(attribute->atttypid);
	if (!EncoderForType(encoder.type, &encoder.kind, &encoder.element_type) || encoder.kind != stored->kind)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" is of type %s, but model \"%s\" was trained on type %s", stored->column,
						format_type_with_typemod(attribute->atttypid, attribute->atttypmod), version->name,
						format_type_be(stored->type))));
	return encoder;
}

/* Features that are worked on together, by vector instructions if the compiler is any good. */
#define BLOCK 8

static void
PrepareNumbers(RowBinding *binding)
{
	int			n = binding->ncolumns;

	for (int i = 0; i < n; i++)
		if (binding->encoders[i].kind != ENCODER_NUMBER || binding->encoders[i].type == NUMERICOID)
			return;
	binding->npadded = TYPEALIGN(BLOCK, n);
	binding->numbers = palloc0(sizeof(double) * binding->npadded);
	binding->mean = palloc0(sizeof(double) * binding->npadded);
	binding->stddev = palloc(sizeof(double) * binding->npadded);
	binding->standardised = palloc(sizeof(float) * binding->npadded);
	binding->stretch_end = palloc(sizeof(int) * n);
	for (int i = 0; i < binding->npadded; i++)
		binding->stddev[i] = 1;
	for (int i = n - 1; i >= 0; i--)
	{
		binding->mean[i] = binding->encoders[i].mean[0];
		binding->stddev[i] = binding->encoders[i].stddev[0];
		binding->stretch_end[i] = i + 1;
		if (i + 1 < n && binding->encoders[i].type == binding->encoders[i + 1].type)
			binding->stretch_end[i] = binding->stretch_end[i + 1];
	}
}

RowBinding *
RowBindingCreate(const ModelVersion *version, TupleDesc desc)
{
	const EncoderSet *set = version->encoders;
	RowBinding *binding = palloc0(sizeof(RowBinding));

	binding->ncolumns = set->ncolumns;
	binding->input_width = set->input_width;
	binding->attributes = palloc(sizeof(int) * set->ncolumns);
	binding->encoders = palloc(sizeof(ColumnEncoder) * set->ncolumns);
	for (int i = 0; i < set->ncolumns; i++)
	{
		const ColumnEncoder *stored = &set->columns[i];
		int			attribute = FindColumn(desc, stored->column);

		if (attribute < 0)
			MissingColumn(version, desc, stored->column);
		binding->attributes[i] = attribute;
		binding->encoders[i] = AdaptEncoder(version, stored, TupleDescAttr(desc, attribute));
		binding->nneeded = Max(binding->nneeded, attribute + 1);
	}
	PrepareNumbers(binding);
	return binding;
}

/* The value of feature i as it is encoded; false: it is NULL, or an array with a NULL. */
static inline bool
FeatureValue(const RowBinding *binding, int i, const Datum *values, const bool *nulls, Datum *value)
{
	ArrayType  *array;

	if (nulls[binding->attributes[i]])
		return false;
	*value = values[binding->attributes[i]];
	if (binding->encoders[i].kind != ENCODER_ARRAY)
		return true;
	array = DatumGetArrayTypeP(*value);
	*value = PointerGetDatum(array);
	return !(ARR_HASNULL(array) && array_contains_nulls(array));
}

/* The features as numbers, a stretch of equal types at a time; false: one is NULL. */
static bool
GatherNumbers(const RowBinding *binding, const Datum *values, const bool *nulls)
{
	const int  *attributes = binding->attributes;
	double	   *numbers = binding->numbers;
	int			n = binding->ncolumns;
	bool		isnull = false;

	for (int i = 0; i < n; i++)
		isnull |= nulls[attributes[i]];
	if (isnull)
		return false;
	for (int i = 0; i < n;)
	{
		Oid			type = binding->encoders[i].type;
		int			end = binding->stretch_end[i];

		switch (type)
		{
			case FLOAT4OID:
				for (; i < end; i++)
					numbers[i] = DatumGetFloat4(values[attributes[i]]);
				break;
			case FLOAT8OID:
				for (; i < end; i++)
					numbers[i] = DatumGetFloat8(values[attributes[i]]);
				break;
			case INT4OID:
				for (; i < end; i++)
					numbers[i] = DatumGetInt32(values[attributes[i]]);
				break;
			default:
				for (; i < end; i++)
					numbers[i] = NumberToDouble(type, values[attributes[i]]);
		}
	}
	return true;
}

/* The same as TryEncodeForScoring on each; false: perhaps one cannot be encoded. */
static bool
StandardiseNumbers(const RowBinding *binding, float *x)
{
	int			valid = 1;

	for (int i = 0; i < binding->npadded; i += BLOCK)
	{
		const double *restrict numbers = binding->numbers + i;
		const double *restrict mean = binding->mean + i;
		const double *restrict stddev = binding->stddev + i;
		float	   *restrict standardised = binding->standardised + i;

		for (int j = 0; j < BLOCK; j++)
			standardised[j] = (float) ((numbers[j] - mean[j]) / stddev[j]);
		for (int j = 0; j < BLOCK; j++)
			valid &= fabsf(standardised[j]) < FLT_MAX;
	}
	memcpy(x, binding->standardised, sizeof(float) * binding->ncolumns);
	return valid;
}

EncodedRow
RowBindingTryEncode(const RowBinding *binding, const Datum *values, const bool *nulls, float *x)
{
	if (binding->numbers != NULL && GatherNumbers(binding, values, nulls) && StandardiseNumbers(binding, x))
		return ROW_ENCODED;

	/* In order: which feature is the first to be NULL or invalid decides. */
	for (int i = 0; i < binding->ncolumns; i++)
	{
		const ColumnEncoder *encoder = &binding->encoders[i];
		Datum		value;

		if (!FeatureValue(binding, i, values, nulls, &value))
			return ROW_HAS_NULL;
		if (!TryEncodeForScoring(encoder, value, x + encoder->input_offset))
			return ROW_INVALID;
	}
	return ROW_ENCODED;
}

void
RowBindingReport(const RowBinding *binding, const Datum *values, const bool *nulls)
{
	float	   *x = palloc_extended(sizeof(float) * binding->input_width, MCXT_ALLOC_HUGE);

	for (int i = 0; i < binding->ncolumns; i++)
	{
		const ColumnEncoder *encoder = &binding->encoders[i];
		Datum		value;

		if (FeatureValue(binding, i, values, nulls, &value) && !TryEncodeForScoring(encoder, value, x))
			ReportEncoding(encoder, value);
	}
	elog(ERROR, "row has no value that cannot be encoded");
}

bool
RowBindingEncode(const RowBinding *binding, const Datum *values, const bool *nulls, float *x)
{
	EncodedRow	result = RowBindingTryEncode(binding, values, nulls, x);

	if (result == ROW_INVALID)
		RowBindingReport(binding, values, nulls);
	return result == ROW_ENCODED;
}

static void pg_attribute_noreturn()
WrongArrayLength(const ModelVersion *version, int length)
{
	StringInfoData features;

	initStringInfo(&features);
	for (int i = 0; i < version->encoders->ncolumns; i++)
	{
		const ColumnEncoder *column = &version->encoders->columns[i];

		if (features.len > 1000)
		{
			appendStringInfoString(&features, ", ...");
			break;
		}
		appendStringInfo(&features, "%s\"%s\"", i > 0 ? ", " : "", column->column);
		if (column->kind != ENCODER_NUMBER)
			appendStringInfo(&features, " (%d values)", column->width);
	}
	ereport(ERROR,
			(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
			 errmsg("array has %d elements, but model \"%s\" takes %d",
					length, version->name, version->encoders->input_width),
			 errdetail("Its features are, in this order: %s.", features.data)));
}

/* Encode the features of one column; false: one of them is not finite or too large. */
static bool
TryEncodeFeatures(const ColumnEncoder *encoder, const float4 *features, float *x)
{
	bool		finite = true;

	for (int i = 0; i < encoder->width; i++)
	{
		x[i] = (float) ((features[i] - encoder->mean[i]) / encoder->stddev[i]);
		finite &= fabsf(x[i]) <= FLT_MAX;
	}
	return finite;
}

EncodedRow
FeatureArrayTryEncode(const ModelVersion *version, ArrayType *array, float *x)
{
	const EncoderSet *encoders = version->encoders;
	const float4 *features = (const float4 *) ARR_DATA_PTR(array);

	if (ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array)) != encoders->input_width)
		return ROW_INVALID;
	if (ARR_HASNULL(array) && array_contains_nulls(array))
		return ROW_HAS_NULL;
	for (int i = 0; i < encoders->ncolumns; i++)
	{
		const ColumnEncoder *encoder = &encoders->columns[i];

		if (!TryEncodeFeatures(encoder, features + encoder->input_offset, x + encoder->input_offset))
			return ROW_INVALID;
	}
	return ROW_ENCODED;
}

void
FeatureArrayReport(const ModelVersion *version, ArrayType *array)
{
	const EncoderSet *encoders = version->encoders;
	const float4 *features = (const float4 *) ARR_DATA_PTR(array);
	int			length = ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));
	float	   *x = palloc_extended(sizeof(float) * encoders->input_width, MCXT_ALLOC_HUGE);

	if (length != encoders->input_width)
		WrongArrayLength(version, length);
	for (int i = 0; i < encoders->ncolumns; i++)
	{
		const ColumnEncoder *encoder = &encoders->columns[i];

		if (!TryEncodeFeatures(encoder, features + encoder->input_offset, x))
			ereport(ERROR,
					(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
					 errmsg("value of column \"%s\" is not finite or too large", encoder->column)));
	}
	elog(ERROR, "array has no feature that cannot be encoded");
}
