/*
 * batch_calls.h - calls of predict, predict_class and predict_proba in expressions of a finished plan: which of them can
 * be worked out for many rows at once, and putting a result in their place.
 *
 * A call that is reached for every row is taken as it is.  One that is reached under a condition only (an arm of CASE, a
 * later argument of COALESCE, AND or OR, an aggregate with FILTER) is taken as CASE WHEN condition THEN call END, and
 * stands in for the call only in the expression that it was found in: elsewhere it may have no value.
 */
#ifndef PGT_BATCH_CALLS_H
#define PGT_BATCH_CALLS_H

#include "postgres.h"

#include "nodes/plannodes.h"

#include "extension/prediction.h"

/* Watch for functions that change: from _PG_init. */
extern void BatchCallsInit(void);

/* Has this session met a scoring function, and does a plan depend on one?  Cheap; false for most statements. */
extern bool PlanUsesPredictions(const PlannedStmt *plan);

/* Is it a call of a scoring function whose model is known before the first row? */
extern bool IsPredictCall(const Node *node);
extern bool ContainsPredictCall(Node *node);

/* Of an IsPredictCall. */
extern PredictionKind PredictCallKind(const FuncExpr *call);
extern Expr *PredictCallModel(const FuncExpr *call);
extern Expr *PredictCallInput(const FuncExpr *call);

/* Where to look: in expressions of a node's own rows, or only in the arguments of aggregates and window functions. */
typedef enum CallScope
{
	CALLS_OF_ROWS,
	CALLS_OF_AGGREGATES
} CallScope;

/*
 * The innermost calls of an expression or a list of them that can be batched, each once: FuncExpr or guarded.  Calls that
 * take other calls' results come up when those are replaced.
 */
extern List *FindPredictCalls(Node *node, CallScope scope);

/* The parts of what FindPredictCalls found; no guard: NULL. */
extern FuncExpr *FoundCall(Node *found);
extern Expr *FoundGuard(Node *found);

/*
 * Replace calls by Vars (varno, first + position in found).  guarded: node is what the calls were found in, so that
 * guarded ones count, too.
 */
extern Node *ReplacePredictCalls(Node *node, List *found, CallScope scope, bool guarded, int varno, int first);

#endif							/* PGT_BATCH_CALLS_H */
