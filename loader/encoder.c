/*
 * encoder.c - types that can be features, encoding for scoring, and the stored form of encoders.
 *
 * Training encodes in rows.c, many values at a time; what a value means is the same here and there.
 */
#include "postgres.h"

#include <float.h>
#include <math.h>

#include "access/tupmacs.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/numeric.h"

#include "extension/compat.h"
#include "loader/encoder.h"
#include "loader/json.h"
#include "loader/number.h"

/* uint8 values reach the network as value / 255. */
#define BYTE_SCALE 255.0

/* Types of features, by the names that stored encoders have. */
static const struct
{
	const char *name;
	Oid			type;
}			feature_types[] = {
	{"smallint", INT2OID},
	{"integer", INT4OID},
	{"bigint", INT8OID},
	{"real", FLOAT4OID},
	{"double precision", FLOAT8OID},
	{"numeric", NUMERICOID},
	{"boolean", BOOLOID},
	{"bytea", BYTEAOID},
	{"smallint[]", INT2ARRAYOID},
	{"integer[]", INT4ARRAYOID},
	{"bigint[]", INT8ARRAYOID},
	{"real[]", FLOAT4ARRAYOID},
	{"double precision[]", FLOAT8ARRAYOID},
	{"numeric[]", NUMERICARRAYOID},
	{"boolean[]", BOOLARRAYOID}
};

bool
EncoderForType(Oid type, EncoderKind *kind, Oid *element_type)
{
	Oid			element;

	type = getBaseType(type);
	*element_type = InvalidOid;
	if (IsNumberType(type))
	{
		*kind = ENCODER_NUMBER;
		return true;
	}
	if (type == BYTEAOID)
	{
		*kind = ENCODER_BYTES;
		return true;
	}
	element = get_element_type(type);
	if (!OidIsValid(element) || !IsNumberType(getBaseType(element)))
		return false;
	*kind = ENCODER_ARRAY;
	*element_type = getBaseType(element);
	return true;
}

static inline bool
TryStandardise(const ColumnEncoder *encoder, int i, double value, float *x)
{
	double		standardised = (value - encoder->mean[i]) / encoder->stddev[i];

	/* Not by isfinite(x): a value may be beyond the range of float only after it is standardised. */
	if (!(fabs(standardised) <= FLT_MAX))
		return false;
	*x = (float) standardised;
	return true;
}

static bool
TryArray(const ColumnEncoder *encoder, ArrayType *array, float *x)
{
	int			n = ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));
	Oid			element = ARR_ELEMTYPE(array);
	Oid			type = IsNumberType(element) ? element : getBaseType(element);
	NumberStorage storage = NumberStorageOf(type);
	const char *data = ARR_DATA_PTR(array);

	if (n != encoder->width || array_contains_nulls(array))
		return false;
	if (type == FLOAT4OID)
	{
		const float4 *values = (const float4 *) data;

		for (int i = 0; i < n; i++)
			if (!TryStandardise(encoder, i, values[i], &x[i]))
				return false;
		return true;
	}
	for (int i = 0; i < n; i++)
	{
		if (!TryStandardise(encoder, i, NumberToDouble(type, fetch_att(data, storage.by_value, storage.length)), &x[i]))
			return false;
		data = att_addlength_pointer(data, storage.length, data);
		data = (const char *) att_align_nominal(data, storage.alignment);
	}
	return true;
}

static bool
TryBytes(const ColumnEncoder *encoder, const bytea *bytes, float *x)
{
	const uint8 *data = (const uint8 *) VARDATA_ANY(bytes);

	if (VARSIZE_ANY_EXHDR(bytes) != encoder->width)
		return false;
	for (int i = 0; i < encoder->width; i++)
		x[i] = data[i] * (float) (1 / BYTE_SCALE);
	return true;
}

bool
TryEncodeForScoring(const ColumnEncoder *encoder, Datum value, float *x)
{
	switch (encoder->kind)
	{
		case ENCODER_NUMBER:
			return TryStandardise(encoder, 0, NumberToDouble(encoder->type, value), x);
		case ENCODER_ARRAY:
			return TryArray(encoder, DatumGetArrayTypeP(value), x);
		case ENCODER_BYTES:
			return TryBytes(encoder, DatumGetByteaPP(value), x);
	}
	pg_unreachable();
}

void
ReportEncoding(const ColumnEncoder *encoder, Datum value)
{
	int			elements = encoder->width;

	if (encoder->kind == ENCODER_ARRAY)
		elements = ArrayGetNItems(ARR_NDIM(DatumGetArrayTypeP(value)), ARR_DIMS(DatumGetArrayTypeP(value)));
	else if (encoder->kind == ENCODER_BYTES)
		elements = VARSIZE_ANY_EXHDR(DatumGetByteaPP(value));
	if (elements != encoder->width)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("column \"%s\" has %d %s, but the model was trained on %d", encoder->column, elements,
						encoder->kind == ENCODER_BYTES ? "bytes" : "elements", encoder->width)));
	if (encoder->kind == ENCODER_ARRAY && array_contains_nulls(DatumGetArrayTypeP(value)))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("array of column \"%s\" contains nulls", encoder->column)));
	ereport(ERROR,
			(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
			 errmsg("value of column \"%s\" is not finite or too large", encoder->column)));
}

static void
PushDoubles(JsonbParseState **state, const char *key, const double *numbers, int n)
{
	JsonPushKey(state, key);
	pushJsonbValue(state, WJB_BEGIN_ARRAY, NULL);
	for (int i = 0; i < n; i++)
		JsonPushDouble(state, WJB_ELEM, numbers[i]);
	pushJsonbValue(state, WJB_END_ARRAY, NULL);
}

static const char *
FeatureTypeName(const ColumnEncoder *encoder)
{
	/* Arrays of domains are stored as arrays of what those are. */
	Oid			type = encoder->kind == ENCODER_ARRAY ? get_array_type(encoder->element_type) : encoder->type;

	for (int i = 0; i < lengthof(feature_types); i++)
		if (feature_types[i].type == type)
			return feature_types[i].name;
	elog(ERROR, "type %u of column \"%s\" is not a feature's", encoder->type, encoder->column);
}

Jsonb *
EncodersToJsonb(const EncoderSet *encoders)
{
	JsonbParseState *state = NULL;

	pushJsonbValue(&state, WJB_BEGIN_ARRAY, NULL);
	for (int i = 0; i < encoders->ncolumns; i++)
	{
		const ColumnEncoder *encoder = &encoders->columns[i];

		pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
		JsonPushKey(&state, "column");
		JsonPushText(&state, WJB_VALUE, encoder->column);
		JsonPushKey(&state, "type");
		JsonPushText(&state, WJB_VALUE, FeatureTypeName(encoder));
		JsonPushKey(&state, "width");
		JsonPushInteger(&state, WJB_VALUE, encoder->width);
		/* Bytes have none of their own. */
		if (encoder->kind != ENCODER_BYTES)
		{
			PushDoubles(&state, "mean", encoder->mean, encoder->width);
			PushDoubles(&state, "stddev", encoder->stddev, encoder->width);
		}
		pushJsonbValue(&state, WJB_END_OBJECT, NULL);
	}
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_ARRAY, NULL));
}

static void pg_attribute_noreturn()
DamagedEncoders(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("stored encoders of the model are damaged")));
}

static JsonbValue *
NeedKey(JsonbContainer *object, const char *key, enum jbvType type)
{
	JsonbValue *value = getKeyJsonValueFromContainer(object, key, strlen(key), NULL);

	if (value == NULL || value->type != type)
		DamagedEncoders();
	return value;
}

static double
JsonbNumber(const JsonbValue *value)
{
	if (value == NULL || value->type != jbvNumeric)
		DamagedEncoders();
	return DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow, NumericGetDatum(value->val.numeric)));
}

static double *
ReadDoubles(JsonbContainer *object, const char *key, int n)
{
	JsonbContainer *array = NeedKey(object, key, jbvBinary)->val.binary.data;
	double	   *numbers = palloc(sizeof(double) * n);

	if (!JsonContainerIsArray(array) || JsonContainerSize(array) != n)
		DamagedEncoders();
	for (int i = 0; i < n; i++)
		numbers[i] = JsonbNumber(getIthJsonbValueFromContainer(array, i));
	return numbers;
}

static void
ReadEncoder(JsonbContainer *object, ColumnEncoder *encoder)
{
	JsonbValue *column = NeedKey(object, "column", jbvString);
	JsonbValue *type = NeedKey(object, "type", jbvString);
	char	   *type_name = pnstrdup(type->val.string.val, type->val.string.len);

	encoder->column = pnstrdup(column->val.string.val, column->val.string.len);
	for (int i = 0; i < lengthof(feature_types); i++)
		if (strcmp(feature_types[i].name, type_name) == 0)
			encoder->type = feature_types[i].type;
	if (!OidIsValid(encoder->type) || !EncoderForType(encoder->type, &encoder->kind, &encoder->element_type))
		DamagedEncoders();
	encoder->width = (int32) JsonbNumber(NeedKey(object, "width", jbvNumeric));
	if (encoder->width < 1)
		DamagedEncoders();
	if (encoder->kind != ENCODER_BYTES)
	{
		encoder->mean = ReadDoubles(object, "mean", encoder->width);
		encoder->stddev = ReadDoubles(object, "stddev", encoder->width);
		return;
	}
	encoder->mean = palloc0(sizeof(double) * encoder->width);
	encoder->stddev = palloc(sizeof(double) * encoder->width);
	for (int i = 0; i < encoder->width; i++)
		encoder->stddev[i] = BYTE_SCALE;
}

EncoderSet *
EncodersFromJsonb(Jsonb *stored)
{
	EncoderSet *set = palloc0(sizeof(EncoderSet));

	if (!JB_ROOT_IS_ARRAY(stored))
		DamagedEncoders();
	set->ncolumns = JB_ROOT_COUNT(stored);
	set->columns = palloc0(sizeof(ColumnEncoder) * set->ncolumns);
	for (int i = 0; i < set->ncolumns; i++)
	{
		JsonbValue *element = getIthJsonbValueFromContainer(&stored->root, i);

		if (element->type != jbvBinary || !JsonContainerIsObject(element->val.binary.data))
			DamagedEncoders();
		ReadEncoder(element->val.binary.data, &set->columns[i]);
		set->columns[i].input_offset = set->input_width;
		set->input_width += set->columns[i].width;
	}
	return set;
}
