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
	return binding;
}

bool
RowBindingEncode(const RowBinding *binding, const Datum *values, const bool *nulls, float *x)
{
	for (int i = 0; i < binding->ncolumns; i++)
	{
		const ColumnEncoder *encoder = &binding->encoders[i];
		Datum		value = values[binding->attributes[i]];

		if (nulls[binding->attributes[i]])
			return false;
		if (encoder->kind == ENCODER_ARRAY)
		{
			ArrayType  *array = DatumGetArrayTypeP(value);

			if (ARR_HASNULL(array) && array_contains_nulls(array))
				return false;
			value = PointerGetDatum(array);
		}
		EncodeForScoring(encoder, value, x + encoder->input_offset);
	}
	return true;
}

void
EncodeArray(const EncoderSet *encoders, const float4 *features, float *x)
{
	for (int i = 0; i < encoders->ncolumns; i++)
	{
		const ColumnEncoder *encoder = &encoders->columns[i];
		bool		finite = true;

		for (int j = encoder->input_offset; j < encoder->input_offset + encoder->width; j++)
		{
			int			k = j - encoder->input_offset;

			x[j] = (float) ((features[j] - encoder->mean[k]) / encoder->stddev[k]);
			finite &= fabsf(x[j]) <= FLT_MAX;
		}
		if (!finite)
			ereport(ERROR,
					(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
					 errmsg("value of column \"%s\" is not finite or too large", encoder->column)));
	}
}
