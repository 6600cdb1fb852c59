/*
 * classes.c - the classes of a model.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/lsyscache.h"

#include "engine/model.h"
#include "extension/classes.h"
#include "loader/labels.h"
#include "loader/number.h"

typedef struct LabelEntry
{
	const char *label;			/* hash key */
	int			code;
} LabelEntry;

struct LabelMap
{
	MemoryContext context;
	HTAB	   *codes;
	Oid			type;			/* of the column */
	double	   *class_values;
	int			nclasses;
	int			size;
	int			allocated;
	const char **labels;		/* [size] */
};

double *
ClassValues(const ModelVersion *version)
{
	double	   *values;
	Oid			type;

	if (!OidIsValid(version->target_type))
		return NULL;
	type = getBaseType(version->target_type);
	if (!IsNumberType(type))
		return NULL;

	values = palloc(sizeof(double) * version->nclasses);
	for (int i = 0; i < version->nclasses; i++)
	{
		if (type == BOOLOID)
		{
			bool		value;

			if (!parse_bool(version->classes[i], &value))
				elog(ERROR, "class \"%s\" of model \"%s\" is no boolean", version->classes[i], version->name);
			values[i] = value ? 1.0 : 0.0;
		}
		else
			values[i] = DatumGetFloat8(DirectFunctionCall1(float8in, CStringGetDatum(version->classes[i])));
	}
	return values;
}

int
MostProbableClass(const ModelVersion *version, const float *logits)
{
	int			best = 0;

	if (version->outputs == 1)
		return logits[0] > 0.0f ? 1 : 0;
	for (int i = 1; i < version->outputs; i++)
		if (logits[i] > logits[best])
			best = i;
	return best;
}

void
ClassProbabilities(const ModelVersion *version, const float *logits, float *p)
{
	if (version->outputs == 1)
	{
		p[1] = logits[0];
		logits_to_probabilities(&p[1], 1, 1);
		p[0] = 1.0f - p[1];
		return;
	}
	memcpy(p, logits, sizeof(float) * version->nclasses);
	logits_to_probabilities(p, 1, version->nclasses);
}

static uint32
HashLabel(const void *key, Size keysize)
{
	const char *label = *(const char *const *) key;

	return hash_bytes((const unsigned char *) label, strlen(label));
}

static int
CompareLabels(const void *a, const void *b, Size keysize)
{
	return strcmp(*(const char *const *) a, *(const char *const *) b);
}

static int
AddLabel(LabelMap *map, const char *label)
{
	if (map->size == map->allocated)
	{
		map->allocated *= 2;
		map->labels = repalloc(map->labels, sizeof(char *) * map->allocated);
	}
	map->labels[map->size] = label;
	return map->size++;
}

LabelMap *
LabelMapCreate(const ModelVersion *version, Oid type)
{
	LabelMap   *map = palloc0(sizeof(LabelMap));
	HASHCTL		control = {0};
	map->context = CurrentMemoryContext;
	map->type = getBaseType(type);
	map->class_values = ClassValues(version);
	map->nclasses = version->nclasses;
	map->allocated = Max(2 * version->nclasses, 16);
	map->labels = palloc(sizeof(char *) * map->allocated);

	control.keysize = sizeof(char *);
	control.entrysize = sizeof(LabelEntry);
	control.hash = HashLabel;
	control.match = CompareLabels;
	control.hcxt = CurrentMemoryContext;
	map->codes = hash_create("pg_train labels", 2 * version->nclasses, &control,
							 HASH_ELEM | HASH_FUNCTION | HASH_COMPARE | HASH_CONTEXT);
	for (int i = 0; i < version->nclasses; i++)
	{
		LabelEntry *entry = hash_search(map->codes, &version->classes[i], HASH_ENTER, NULL);

		entry->code = AddLabel(map, version->classes[i]);
	}
	return map;
}

/* The class of a number whose text differs from the label's: 1.0 for 1. */
static int
ClassOfNumber(const LabelMap *map, Datum value)
{
	double		number;

	if (map->class_values == NULL || !IsNumberType(map->type))
		return -1;
	number = NumberToDouble(map->type, value);
	for (int i = 0; i < map->nclasses; i++)
		if (map->class_values[i] == number)
			return i;
	return -1;
}

int
LabelMapCode(LabelMap *map, Datum value)
{
	char	   *label = LabelText(map->type, value);
	LabelEntry *entry;
	const char *copy;
	int			code;

	entry = hash_search(map->codes, &label, HASH_FIND, NULL);
	if (entry != NULL)
		return entry->code;

	copy = MemoryContextStrdup(map->context, label);
	code = ClassOfNumber(map, value);
	if (code < 0)
		code = AddLabel(map, copy);
	entry = hash_search(map->codes, &copy, HASH_ENTER, NULL);
	entry->code = code;
	return code;
}

int
LabelMapSize(const LabelMap *map)
{
	return map->size;
}

const char *
LabelMapLabel(const LabelMap *map, int code)
{
	return map->labels[code];
}
