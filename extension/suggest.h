/*
 * suggest.h - the name that was probably meant, for hints.
 */
#ifndef PGT_SUGGEST_H
#define PGT_SUGGEST_H

#include "postgres.h"

#include "nodes/pg_list.h"

/* The one of names (of char *) that is most like given; NULL if none is like it. */
extern const char *SuggestName(const char *given, const List *names);

/* The same for an array, as the tables of options and layers are. */
extern const char *SuggestFrom(const char *given, const char *const *names, int nnames);

#endif							/* PGT_SUGGEST_H */
