/*
 * labels.h - a dictionary of class labels, filled while rows are read.
 *
 * A label is a value of an integer type, bool, a string type, an enum, numeric or a float type.  It gets a
 * provisional code, in the order of appearance; when all are seen they are sorted.
 */
#ifndef PGT_LABELS_H
#define PGT_LABELS_H

#include "postgres.h"

/* More classes than these are a column that is no label. */
#define MAX_CLASSES 65536

typedef struct LabelSet LabelSet;

/* column: for messages.  Lives in the current context. */
extern LabelSet *LabelSetCreate(Oid type, const char *column);

extern bool LabelTypeSupported(Oid type);

/* May labels of one type be looked up among labels of the other?  Domains are resolved. */
extern bool LabelTypesMatch(Oid type, Oid other);

/* The code of a value of the given type; -1 where it has none and add is not set. */
extern int32 LabelSetCode(LabelSet *set, Oid type, Datum value, bool add);

extern int	LabelSetCount(const LabelSet *set);

/* The label of a code as a number: integer labels only. */
extern double LabelSetNumber(const LabelSet *set, int32 code);

/* Text form of a value, as a label has it. */
extern char *LabelText(Oid type, Datum value);

/* The labels, sorted, and for each code its place among them; both in the current context. */
extern void LabelSetSort(const LabelSet *set, char ***classes, int32 **places);

#endif							/* PGT_LABELS_H */
