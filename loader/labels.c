/*
 * labels.c - a dictionary of class labels, filled while rows are read.
 *
 * Labels are kept by what makes them equal: integers, bool, enums and floats by a 64-bit number, strings and numeric
 * by their text, without what does not count (trailing blanks of char(n), trailing zeros of numeric).
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/numeric.h"
#include "utils/typcache.h"

#include "extension/compat.h"
#include "loader/labels.h"
#include "loader/number.h"

/* A longer text is not a label. */
#define MAX_LABEL_BYTES 1024

typedef enum LabelFamily
{
	LABEL_NONE,
	LABEL_INTEGER,
	LABEL_BOOL,
	LABEL_ENUM,
	LABEL_FLOAT,
	LABEL_NUMERIC,
	LABEL_STRING
} LabelFamily;

typedef struct NumberLabel
{
	uint64		key;
	int32		code;
	char		status;
} NumberLabel;

#define SH_PREFIX numbers
#define SH_ELEMENT_TYPE NumberLabel
#define SH_KEY_TYPE uint64
#define SH_KEY key
#define SH_HASH_KEY(tb, key) murmurhash32((uint32) (key) ^ (uint32) ((key) >> 32))
#define SH_EQUAL(tb, a, b) ((a) == (b))
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

typedef struct TextKey
{
	const char *data;
	int			bytes;
} TextKey;

typedef struct TextLabel
{
	TextKey		key;
	int32		code;
	uint32		hash;
	char		status;
} TextLabel;

#define SH_PREFIX texts
#define SH_ELEMENT_TYPE TextLabel
#define SH_KEY_TYPE TextKey
#define SH_KEY key
#define SH_HASH_KEY(tb, key) hash_bytes((const unsigned char *) (key).data, (key).bytes)
#define SH_EQUAL(tb, a, b) ((a).bytes == (b).bytes && memcmp((a).data, (b).data, (a).bytes) == 0)
#define SH_STORE_HASH
#define SH_GET_HASH(tb, a) (a)->hash
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

typedef struct Label
{
	uint64		number;
	char	   *text;			/* strings and numeric */
	int			bytes;
} Label;

struct LabelSet
{
	MemoryContext context;
	LabelFamily family;
	Oid			type;
	const char *column;
	int			nlabels;
	int			allocated;
	Label	   *labels;			/* [code] */
	numbers_hash *numbers;
	texts_hash *texts;
};

static LabelFamily
FamilyOf(Oid type)
{
	switch (type)
	{
		case INT2OID:
		case INT4OID:
		case INT8OID:
			return LABEL_INTEGER;
		case BOOLOID:
			return LABEL_BOOL;
		case FLOAT4OID:
		case FLOAT8OID:
			return LABEL_FLOAT;
		case NUMERICOID:
			return LABEL_NUMERIC;
		case TEXTOID:
		case VARCHAROID:
		case BPCHAROID:
			return LABEL_STRING;
		default:
			return type_is_enum(type) ? LABEL_ENUM : LABEL_NONE;
	}
}

static bool
IsTextFamily(LabelFamily family)
{
	return family == LABEL_STRING || family == LABEL_NUMERIC;
}

bool
LabelTypeSupported(Oid type)
{
	return FamilyOf(getBaseType(type)) != LABEL_NONE;
}

LabelSet *
LabelSetCreate(Oid type, const char *column)
{
	LabelSet   *set = palloc0(sizeof(LabelSet));

	set->context = CurrentMemoryContext;
	set->type = getBaseType(type);
	set->family = FamilyOf(set->type);
	set->column = column;
	if (set->family == LABEL_NONE)
		elog(ERROR, "type %u is not a label's", type);
	if (IsTextFamily(set->family))
		set->texts = texts_create(set->context, 64, NULL);
	else
		set->numbers = numbers_create(set->context, 64, NULL);
	return set;
}

bool
LabelTypesMatch(Oid type, Oid other)
{
	return FamilyOf(type) == FamilyOf(other) && (FamilyOf(type) != LABEL_ENUM || type == other);
}

int
LabelSetCount(const LabelSet *set)
{
	return set->nlabels;
}

static int32
AddLabel(LabelSet *set, uint64 number, char *text, int bytes)
{
	if (set->nlabels >= MAX_CLASSES)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("target column \"%s\" has more than %d distinct values", set->column, MAX_CLASSES),
				 set->family == LABEL_STRING || set->family == LABEL_ENUM ?
				 errhint("A classification learns to tell few classes apart: choose another target, or group its values.") :
				 errhint("Set task => 'regression' to predict a number.")));
	if (set->nlabels == set->allocated)
	{
		set->allocated = Max(64, set->allocated * 2);
		set->labels = set->labels == NULL ? MemoryContextAlloc(set->context, sizeof(Label) * set->allocated) :
			repalloc(set->labels, sizeof(Label) * set->allocated);
	}
	set->labels[set->nlabels] = (Label) {number, text, bytes};
	return set->nlabels++;
}

static uint64
NumberKey(LabelSet *set, Oid type, Datum value)
{
	double		number;
	uint64		bits;

	switch (type)
	{
		case INT2OID:
			return (uint64) (int64) DatumGetInt16(value);
		case INT4OID:
			return (uint64) (int64) DatumGetInt32(value);
		case INT8OID:
			return (uint64) DatumGetInt64(value);
		case BOOLOID:
			return DatumGetBool(value);
		case FLOAT4OID:
		case FLOAT8OID:
			number = NumberToDouble(type, value);
			if (!isfinite(number))
				ereport(ERROR,
						(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
						 errmsg("target column \"%s\" contains a value that is not finite", set->column)));
			if (number == 0)
				number = 0;		/* minus zero is no other class */
			memcpy(&bits, &number, sizeof(bits));
			return bits;
		default:
			return DatumGetObjectId(value);
	}
}

static int32
NumberCode(LabelSet *set, uint64 key, bool add)
{
	NumberLabel *label = numbers_lookup(set->numbers, key);
	int32		code;
	bool		found;

	if (label != NULL)
		return label->code;
	if (!add)
		return -1;
	code = AddLabel(set, key, NULL, 0);
	numbers_insert(set->numbers, key, &found)->code = code;
	return code;
}

/* The bytes that make a label; *copy is to be freed. */
static TextKey
LabelBytes(LabelSet *set, Oid type, Datum value, void **copy)
{
	TextKey		key;

	*copy = NULL;
	if (type == NUMERICOID)
	{
		Numeric		number = DatumGetNumeric(value);

		if (numeric_is_nan(number) || numeric_is_inf(number))
			ereport(ERROR,
					(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
					 errmsg("target column \"%s\" contains a value that is not finite", set->column)));
		key.data = *copy = numeric_normalize(number);
		key.bytes = strlen(key.data);
	}
	else
	{
		struct varlena *packed = PG_DETOAST_DATUM_PACKED(value);

		if ((Pointer) packed != DatumGetPointer(value))
			*copy = packed;
		key.data = VARDATA_ANY(packed);
		key.bytes = VARSIZE_ANY_EXHDR(packed);
		if (type == BPCHAROID)
			key.bytes = bpchartruelen(unconstify(char *, key.data), key.bytes);
	}
	if (key.bytes > MAX_LABEL_BYTES)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("target column \"%s\" contains a text of %d bytes", set->column, key.bytes),
				 errdetail("A class label has at most %d bytes.", MAX_LABEL_BYTES)));
	return key;
}

static int32
TextCode(LabelSet *set, Oid type, Datum value, bool add)
{
	void	   *copy;
	TextKey		key = LabelBytes(set, type, value, &copy);
	TextLabel  *label = texts_lookup(set->texts, key);
	int32		code = -1;

	if (label != NULL)
		code = label->code;
	else if (add)
	{
		char	   *text = MemoryContextAlloc(set->context, key.bytes + 1);
		bool		found;

		memcpy(text, key.data, key.bytes);
		text[key.bytes] = '\0';
		code = AddLabel(set, 0, text, key.bytes);
		key.data = text;
		texts_insert(set->texts, key, &found)->code = code;
	}
	if (copy != NULL)
		pfree(copy);
	return code;
}

int32
LabelSetCode(LabelSet *set, Oid type, Datum value, bool add)
{
	if (IsTextFamily(set->family))
		return TextCode(set, type, value, add);
	return NumberCode(set, NumberKey(set, type, value), add);
}

double
LabelSetNumber(const LabelSet *set, int32 code)
{
	Assert(set->family == LABEL_INTEGER);
	return (double) (int64) set->labels[code].number;
}

char *
LabelText(Oid type, Datum value)
{
	Oid			output;
	bool		is_varlena;
	char	   *text;

	type = getBaseType(type);
	if (type == BOOLOID)
		return pstrdup(DatumGetBool(value) ? "true" : "false");
	if (type == NUMERICOID)
		return numeric_normalize(DatumGetNumeric(value));
	getTypeOutputInfo(type, &output, &is_varlena);
	text = OidOutputFunctionCall(output, value);
	if (type == BPCHAROID)
		text[bpchartruelen(text, strlen(text))] = '\0';
	return text;
}

static char *
NumberLabelText(const LabelSet *set, uint64 number)
{
	double		value;

	switch (set->family)
	{
		case LABEL_INTEGER:
			return psprintf(INT64_FORMAT, (int64) number);
		case LABEL_BOOL:
			return pstrdup(number ? "true" : "false");
		case LABEL_FLOAT:
			memcpy(&value, &number, sizeof(value));
			/* In the type's own digits: a real 0.1 is no 0.10000000149011612. */
			return set->type == FLOAT4OID ? LabelText(FLOAT4OID, Float4GetDatum((float4) value)) :
				LabelText(FLOAT8OID, Float8GetDatum(value));
		default:
			return LabelText(set->type, ObjectIdGetDatum((Oid) number));
	}
}

typedef struct SortLabel
{
	int32		code;
	Datum		value;			/* for compare */
} SortLabel;

typedef struct SortContext
{
	const LabelSet *set;
	FmgrInfo   *compare;		/* enums and numeric: of their type */
} SortContext;

static int
CompareLabels(const void *a, const void *b, void *arg)
{
	const SortContext *context = arg;
	const SortLabel *left = a;
	const SortLabel *right = b;
	const Label *l = &context->set->labels[left->code];
	const Label *r = &context->set->labels[right->code];
	double		x;
	double		y;

	switch (context->set->family)
	{
		case LABEL_STRING:
			return strcmp(l->text, r->text);
		case LABEL_ENUM:
		case LABEL_NUMERIC:
			return DatumGetInt32(FunctionCall2(context->compare, left->value, right->value));
		case LABEL_FLOAT:
			memcpy(&x, &l->number, sizeof(x));
			memcpy(&y, &r->number, sizeof(y));
			return (x > y) - (x < y);
		default:
			return ((int64) l->number > (int64) r->number) - ((int64) l->number < (int64) r->number);
	}
}

void
LabelSetSort(const LabelSet *set, char ***classes, int32 **places)
{
	SortLabel  *sorted = palloc(sizeof(SortLabel) * set->nlabels);
	SortContext context = {set, NULL};

	if (set->family == LABEL_ENUM || set->family == LABEL_NUMERIC)
		context.compare = &lookup_type_cache(set->type, TYPECACHE_CMP_PROC_FINFO)->cmp_proc_finfo;
	for (int i = 0; i < set->nlabels; i++)
	{
		sorted[i].code = i;
		if (set->family == LABEL_NUMERIC)
			sorted[i].value = DirectFunctionCall3(numeric_in, CStringGetDatum(set->labels[i].text),
												  ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1));
		else
			sorted[i].value = ObjectIdGetDatum((Oid) set->labels[i].number);
	}
	qsort_arg(sorted, set->nlabels, sizeof(SortLabel), CompareLabels, &context);

	*classes = palloc(sizeof(char *) * set->nlabels);
	*places = palloc(sizeof(int32) * set->nlabels);
	for (int i = 0; i < set->nlabels; i++)
	{
		const Label *label = &set->labels[sorted[i].code];

		(*places)[sorted[i].code] = i;
		(*classes)[i] = IsTextFamily(set->family) ? pstrdup(label->text) : NumberLabelText(set, label->number);
	}
	pfree(sorted);
}
