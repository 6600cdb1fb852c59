/*
 * loader.h - a query's rows -> fixed-width records -> slots of the shared ring.
 *
 * The source runs as the calling role under the active snapshot through the executor, into the loader's
 * own DestReceiver.  The loader knows no device and no engine: it asks its sink for slots and hands them
 * over.
 */
#ifndef PGT_LOADER_H
#define PGT_LOADER_H

#include "postgres.h"

#include "access/tupdesc.h"
#include "tcop/dest.h"

#include "engine/spec.h"
#include "loader/encoder.h"

typedef enum NullPolicy
{
	NULLS_ARE_ERRORS,
	SKIP_NULLS
} NullPolicy;

/* What rows come from: a table or view name, or a SELECT.  Lives in the context it was opened in. */
typedef struct Source Source;

/* option_name is the argument that it came from, for messages.  The source's tables are locked as a query's are. */
extern Source *SourceOpen(const char *source, const char *option_name);
extern TupleDesc SourceDesc(const Source *source);	/* its output columns */

/*
 * Narrow a source to the columns at positions (in SourceDesc, from 0, ascending).  The others are then not fetched, and
 * rights to them not needed if the source is a table.
 */
extern void SourceSelect(Source *source, int ncolumns, const int *positions);

/* Run a source, once, and send its rows to dest. */
extern void SourceRun(Source *source, DestReceiver *dest);

typedef enum TargetKind
{
	TARGET_LABEL,				/* classification: integers, bool, strings, enums, numeric, floats */
	TARGET_VALUE,				/* regression: numbers */
	TARGET_UNDECIDED			/* integers: labels as long as there are at most MAX_INFERRED_CLASSES */
} TargetKind;

#define MAX_INFERRED_CLASSES 20

/* Can a column of this type be the target?  kind: TARGET_LABEL or TARGET_VALUE. */
extern bool TargetTypeSupported(Oid type, TargetKind kind);

/* Do labels of the two types compare? */
extern bool TargetTypesMatch(Oid type, Oid other);

/* Where full slots go.  Implemented by extension/training.c. */
typedef struct RowSink
{
	/*
	 * Called once, when the record's layout is known (at the first complete row, or later where the target's kind
	 * has to be seen), before the first slot is asked for.  kind is not TARGET_UNDECIDED.
	 */
	void		(*start) (struct RowSink *sink, const RecordLayout *layout, TargetKind kind);
	/* An empty slot; waits for one, interruptibly. */
	void	   *(*get_slot) (struct RowSink *sink, Size *bytes);
	/* Hands over the slot that get_slot gave last, holding rows records.  split: SplitKind. */
	void		(*put_slot) (struct RowSink *sink, uint32 rows, uint32 split);
	/* Called now and then between rows once started: fails where the other side has, instead of at the next slot. */
	void		(*check) (struct RowSink *sink);
} RowSink;

typedef struct LoadOptions
{
	const char *target;
	TargetKind	target_kind;
	NullPolicy	null_policy;
	bool		shift;			/* standardize is on: see ColumnEncoder.shift */
	uint32		split;			/* SplitKind */
} LoadOptions;

/* Zeroed but for encoders, which has columns and their types, before the first LoadRows. */
typedef struct LoadResult
{
	EncoderSet *encoders;		/* in: widths where they are known; out: widths, offsets, shifts */
	RecordLayout *layout;
	TargetKind	target_kind;	/* as decided */
	int64		rows_used;
	int64		rows_skipped;
	double		target_shift;	/* TARGET_VALUE: subtracted from every target, as ColumnEncoder.shift is */
	struct LabelSet *labels;	/* TARGET_LABEL */
	int			nclasses;		/* TARGET_LABEL, after FinishClasses: */
	char	  **classes;		/* labels, sorted: numbers by value, bool false before true, enums in their order, else text */
	int32	   *class_codes;	/* [provisional code] -> index in classes, for MSG_END_ROWS */
} LoadResult;

/*
 * Run the source and send every row to the sink.  A second call with the same result loads a validation source with
 * the encoders and classes of the first (a label unseen in training is an error).
 *
 * Returns false where an undecided target turned out to have too many values for labels when rows were already on
 * their way: the caller has to start over, with TARGET_VALUE, and a new sink and result.
 */
extern bool LoadRows(Source *source, const LoadOptions *options, RowSink *sink, LoadResult *result);

/* Sort the classes and fill class_codes: after the last LoadRows. */
extern void FinishClasses(LoadResult *result);

#endif							/* PGT_LOADER_H */
