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

#include "tcop/dest.h"

#include "engine/spec.h"
#include "loader/encoder.h"

typedef enum NullPolicy
{
	NULLS_ARE_ERRORS,
	SKIP_NULLS
} NullPolicy;

/* A planned source: a table or view name, or a SELECT.  Lives in the context it was opened in. */
typedef struct Source Source;

extern Source *SourceOpen(const char *source, const char *option_name);
extern TupleDesc SourceDesc(const Source *source);	/* its output columns */
/* Run it to its end, once, into any receiver: LoadRows brings its own, evaluation another. */
extern void SourceRun(Source *source, DestReceiver *receiver);

typedef enum TargetKind
{
	TARGET_LABEL,				/* classification: any type with a text form; classes are sorted */
	TARGET_VALUE				/* regression */
} TargetKind;

/* Where full slots go.  Implemented by extension/engine_process.c. */
typedef struct RowSink
{
	/* Called once, when the record's layout is known (at the first complete row), before the first slot is asked for. */
	void		(*start) (struct RowSink *sink, const RecordLayout *layout);
	/* An empty slot; waits for one, interruptibly. */
	void	   *(*get_slot) (struct RowSink *sink, size_t *bytes);
	/* Hands over the slot that get_slot gave last, holding rows records.  split: SplitKind. */
	void		(*put_slot) (struct RowSink *sink, uint32 rows, uint32 split);
} RowSink;

typedef struct LoadOptions
{
	const char *target;
	TargetKind	target_kind;
	List	   *features;		/* of char *, in order; NIL: every column but the target */
	NullPolicy	null_policy;
	bool		shift;			/* standardize is on: see ColumnEncoder.shift */
} LoadOptions;

typedef struct LoadResult
{
	EncoderSet *encoders;		/* widths and offsets set, mean and stddev not yet */
	int64		rows_used;
	int64		rows_skipped;
	int			nclasses;		/* TARGET_LABEL: */
	char	  **classes;		/* labels, sorted: numbers by value, bool false before true, enums in their order, else text */
	int32	   *class_codes;	/* [provisional code] -> index in classes, for MSG_END_ROWS */
	Oid			target_type;
	int32		target_typmod;
} LoadResult;

/*
 * Run the source and send every row to the sink, tagged with split.  A second call with the same result
 * loads a validation source with the encoders and classes of the first (a label unseen in training is an error).
 */
extern void LoadRows(Source *source, const LoadOptions *options, uint32 split, RowSink *sink, LoadResult *result);

/* Sort the classes and fill class_codes: after the last LoadRows. */
extern void FinishClasses(LoadResult *result);

#endif							/* PGT_LOADER_H */
