/*
 * batch_state.h - the batch node while a query runs: shared by its files.
 */
#ifndef PGT_BATCH_STATE_H
#define PGT_BATCH_STATE_H

#include "postgres.h"

#include "access/parallel.h"
#include "nodes/execnodes.h"
#include "portability/instr_time.h"

#include "extension/compat.h"
#include "extension/prediction.h"
#include "extension/row_reader.h"

/* Rows of a batch: few at first, since a reader may want no more, then more each time. */
#define FIRST_BATCH_ROWS 16
#define MAX_BATCH_ROWS 1024

/* Where a call's input comes from. */
typedef enum BatchInputKind
{
	INPUT_COLUMNS,				/* ROW(...) or a table's row: its columns one by one, no composite value is made */
	INPUT_RECORD,				/* any other composite value */
	INPUT_ARRAY					/* an array of features */
} BatchInputKind;

/* The input of INPUT_COLUMNS. */
typedef struct BatchColumns
{
	TupleDesc	desc;			/* of the row that the scalar function would be given */
	int			natts;
	AttrNumber *attributes;		/* [natts] column of the child's row; 0: worked out by expressions[] */
	ExprState **expressions;	/* [natts] NULL: a column of the child, or missing */
	bool		direct;			/* every feature is a column of the child: binding refers to its row */
	RowBinding *binding;
	Datum	   *values;			/* [natts], unless direct */
	bool	   *nulls;
} BatchColumns;

/* A call that the node works out. */
typedef struct BatchCall
{
	FuncExpr   *expr;
	PredictionKind kind;
	ExprState  *guard;			/* NULL: for every row */
	ExprState  *reference;		/* the model's name */
	ExprState  *input;			/* INPUT_RECORD, INPUT_ARRAY */
	BatchInputKind input_kind;
	BatchColumns columns;

	/* From the first row that is scored: */
	MemoryContext context;
	CachedModel *model;
	Oid			role;			/* who was asked whether it may use the model */
	RowReader	reader;
	Datum	   *class_texts;	/* PREDICT_CLASS: [nclasses] */
	int			allocated;		/* rows of x and y */
	float	   *x;				/* [allocated][input_width] */
	float	   *y;				/* [allocated][outputs] */

	/* Of the batch: */
	int			rows;			/* in x */
	int		   *places;			/* a row's place in x; -1: its result is NULL */
} BatchCall;

typedef struct BatchCounts
{
	int64		batches;
	int64		scored;			/* rows, for each call */
	instr_time	scoring;		/* time in forward passes */
} BatchCounts;

typedef struct BatchShared BatchShared;

typedef struct BatchState
{
	CustomScanState css;		/* first: the executor's view of this */
	MemoryContext context;		/* models are given back with it */
	MemoryContext batch_context;	/* of values in the batch */
	Size		work_bytes;		/* that a batch may take */

	/* Columns that go through: */
	int			nkept;
	AttrNumber *kept;			/* [nkept] columns of the child */
	int16	   *kept_length;
	bool	   *kept_by_value;
	bool		all_by_value;

	int			ncalls;
	BatchCall  *calls;
	AttrNumber	last_attribute; /* of the child's row that is read */

	/* The batch: */
	int			bound;			/* rows that are asked for in all; 0: unknown */
	int			collected;		/* of these */
	int			limit;			/* rows that one may have */
	int			target;			/* rows that the next one should have */
	int			ncolumns;		/* nkept + ncalls */
	int			allocated;		/* rows of values, nulls and places */
	Datum	   *values;			/* [allocated][ncolumns] */
	bool	   *nulls;
	int			rows;
	int			next;			/* row to be handed on */
	bool		ended;			/* the child has no more */
	TupleTableSlot *pending;	/* a row of the child that has to begin a batch, since it may end in an error */

	/* For EXPLAIN: */
	BatchCounts counts;
	BatchShared *shared;		/* NULL: not in a parallel plan */
} BatchState;

/* Prepare a call of the node: rights to the function are checked. */
extern void BatchCallInit(BatchState *state, BatchCall *call, Node *found);

/*
 * Encode the call's input from a row of the child as row number row of the batch.  False, where row is not 0: the
 * row may end in an ERROR, and would if it began a batch.
 */
extern bool BatchCallEncode(BatchState *state, BatchCall *call, TupleTableSlot *slot, int row);

/* Score the rows of the batch and set column of each. */
extern void BatchCallScore(BatchState *state, BatchCall *call, int column);

/* Counts of parallel workers: for CustomExecMethods. */
extern Size BatchSharedSize(CustomScanState *node, ParallelContext *context);
extern void BatchSharedInit(CustomScanState *node, ParallelContext *context, void *memory);
extern void BatchSharedReInit(CustomScanState *node, ParallelContext *context, void *memory);
extern void BatchSharedAttach(CustomScanState *node, shm_toc *toc, void *memory);
extern void BatchShutdown(CustomScanState *node);

/* The node's part of EXPLAIN. */
extern void BatchExplain(CustomScanState *node, List *ancestors, ExplainState *es);

#endif							/* PGT_BATCH_STATE_H */
