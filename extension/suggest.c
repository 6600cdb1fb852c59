/*
 * suggest.c - the name that was probably meant, for hints.
 */
#include "postgres.h"

#include "utils/varlena.h"

#include "extension/suggest.h"

/* More edits than these are another word, and so are edits of half of the name or more. */
#define MAX_EDITS 3
/* Nobody misspells more; and the cost is quadratic. */
#define MAX_NAME_BYTES 255

typedef struct Nearest
{
	const char *name;
	int			edits;			/* that candidates must stay below */
} Nearest;

static void
Consider(Nearest *nearest, const char *given, const char *candidate)
{
	int			given_bytes = strlen(given);
	int			bytes = strlen(candidate);
	int			edits;

	if (given_bytes > MAX_NAME_BYTES || bytes > MAX_NAME_BYTES)
		return;
	/* Another case is no edit at all, but not the same name either. */
	if (pg_strcasecmp(given, candidate) == 0)
		edits = 0;
	else
	{
		if (nearest->edits == 0)
			return;
		edits = varstr_levenshtein_less_equal(given, given_bytes, candidate, bytes, 1, 1, 1, nearest->edits - 1, true);
	}
	if (edits < nearest->edits && edits * 2 <= Max(given_bytes, bytes))
	{
		nearest->name = candidate;
		nearest->edits = edits;
	}
}

const char *
SuggestName(const char *given, const List *names)
{
	Nearest		nearest = {NULL, MAX_EDITS + 1};
	ListCell   *lc;

	foreach(lc, names)
		Consider(&nearest, given, lfirst(lc));
	return nearest.name;
}

const char *
SuggestFrom(const char *given, const char *const *names, int nnames)
{
	Nearest		nearest = {NULL, MAX_EDITS + 1};

	for (int i = 0; i < nnames; i++)
		Consider(&nearest, given, names[i]);
	return nearest.name;
}
