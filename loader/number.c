/*
 * number.c - values of PostgreSQL's numeric types as doubles.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "utils/builtins.h"

#include "extension/compat.h"
#include "loader/number.h"

/*
 * The form of numeric on disk, as numeric.c has it.  It has not changed since release 9.1 and cannot, since
 * pg_upgrade keeps tables.  A 16-bit header that holds sign, scale and weight (or only sign and scale, and the weight
 * in a second one) is followed by 16-bit digits of base 10000, the most significant first.
 */
#define NUMERIC_SIGN_MASK 0xC000
#define NUMERIC_IS_NEGATIVE 0x4000
#define NUMERIC_IS_SHORT 0x8000
#define NUMERIC_IS_SPECIAL 0xC000
#define NUMERIC_SHORT_NEGATIVE 0x2000
#define NUMERIC_SHORT_WEIGHT_SIGN 0x0040
#define NUMERIC_SHORT_WEIGHT 0x003F
#define NUMERIC_BASE 10000

/* Digits whose number stays below 10^16, and powers of ten that are exact as doubles. */
#define FAST_DIGITS 4
#define FAST_SCALE 5

static const double powers[FAST_SCALE + 1] = {1, 1e4, 1e8, 1e12, 1e16, 1e20};

bool
IsNumberType(Oid type)
{
	switch (type)
	{
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case FLOAT4OID:
		case FLOAT8OID:
		case NUMERICOID:
		case BOOLOID:
			return true;
		default:
			return false;
	}
}

NumberStorage
NumberStorageOf(Oid type)
{
	switch (type)
	{
		case INT2OID:
			return (NumberStorage) {sizeof(int16), true, TYPALIGN_SHORT};
		case INT4OID:
		case FLOAT4OID:
			return (NumberStorage) {sizeof(int32), true, TYPALIGN_INT};
		case INT8OID:
		case FLOAT8OID:
			return (NumberStorage) {sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE};
		case NUMERICOID:
			return (NumberStorage) {-1, false, TYPALIGN_INT};
		case BOOLOID:
			return (NumberStorage) {sizeof(bool), true, TYPALIGN_CHAR};
		default:
			elog(ERROR, "type %u is not a number", type);
	}
}

static inline uint16
ReadUint16(const char *from)
{
	uint16		value;

	/* A numeric with a short varlena header is not aligned. */
	memcpy(&value, from, sizeof(value));
	return value;
}

/*
 * Few digits, which is the rule, are exact as an integer and scaled by an exact power of ten: one rounding each.
 * The rest goes the way of the cast to double precision, through text.
 */
double
NumericToDouble(Numeric value)
{
	struct varlena *original = (struct varlena *) value;
	struct varlena *packed = original;
	const char *data;
	int			bytes;
	uint16		header;
	int			weight;
	int			ndigits;
	bool		negative;
	double		result;

	if (VARATT_IS_EXTERNAL(packed) || VARATT_IS_COMPRESSED(packed))
		packed = PG_DETOAST_DATUM_PACKED(PointerGetDatum(original));
	data = VARDATA_ANY(packed);
	bytes = VARSIZE_ANY_EXHDR(packed);
	header = ReadUint16(data);

	if ((header & NUMERIC_SIGN_MASK) == NUMERIC_IS_SHORT)
	{
		negative = (header & NUMERIC_SHORT_NEGATIVE) != 0;
		weight = (header & NUMERIC_SHORT_WEIGHT) |
			((header & NUMERIC_SHORT_WEIGHT_SIGN) ? ~NUMERIC_SHORT_WEIGHT : 0);
		data += sizeof(uint16);
		bytes -= sizeof(uint16);
	}
	else if ((header & NUMERIC_SIGN_MASK) != NUMERIC_IS_SPECIAL)
	{
		negative = (header & NUMERIC_SIGN_MASK) == NUMERIC_IS_NEGATIVE;
		weight = (int16) ReadUint16(data + sizeof(uint16));
		data += 2 * sizeof(uint16);
		bytes -= 2 * sizeof(uint16);
	}
	else
	{
		/* NaN or infinity */
		negative = false;
		weight = 0;
		bytes = PG_INT32_MAX;
	}
	ndigits = bytes / (int) sizeof(uint16);

	if (ndigits == 0)
		result = 0;
	else if (ndigits <= FAST_DIGITS && abs(weight - (ndigits - 1)) <= FAST_SCALE)
	{
		int			scale = weight - (ndigits - 1);
		int64		integer = 0;

		for (int i = 0; i < ndigits; i++)
			integer = integer * NUMERIC_BASE + (int16) ReadUint16(data + i * sizeof(uint16));
		result = scale >= 0 ? integer * powers[scale] : integer / powers[-scale];
		if (negative)
			result = -result;
	}
	else
		result = DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow, PointerGetDatum(packed)));

	if (packed != original)
		pfree(packed);
	return result;
}

double
NumberToDouble(Oid type, Datum value)
{
	switch (type)
	{
		case INT2OID:
			return DatumGetInt16(value);
		case INT4OID:
			return DatumGetInt32(value);
		case INT8OID:
			return (double) DatumGetInt64(value);
		case FLOAT4OID:
			return DatumGetFloat4(value);
		case FLOAT8OID:
			return DatumGetFloat8(value);
		case NUMERICOID:
			return NumericToDouble((Numeric) DatumGetPointer(value));
		case BOOLOID:
			return DatumGetBool(value);
		default:
			elog(ERROR, "type %u is not a number", type);
	}
}
