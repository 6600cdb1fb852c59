/*
 * batch.h - scoring many rows at a time where a plan calls predict, predict_class or predict_proba.
 */
#ifndef PGT_BATCH_H
#define PGT_BATCH_H

#include "postgres.h"

#include "nodes/plannodes.h"

extern bool batch_scoring;		/* pg_train.batch_scoring */

/* Define the setting, install the hooks and register the executor node: from _PG_init. */
extern void BatchInit(void);

/* What else a rewritten plan has to do. */
typedef enum RewriteFlags
{
	REWRITE_COPY = 1,			/* the plan belongs to somebody else */
	REWRITE_BACKWARD = 2,		/* it has to run backward */
	REWRITE_BACKWARD_IF_ABLE = 4,	/* it has to if it could before */
	REWRITE_MAY_STOP = 8		/* it may be left before its last row */
} RewriteFlags;

/*
 * Put batch nodes into a plan where rows are scored; the plan itself where there is nothing to do, or where it was done
 * before.  Works in the current context.
 */
extern PlannedStmt *BatchRewrite(PlannedStmt *plan, int flags);

/*
 * A batch node over child: its columns are the child's columns at positions keep (from 1), then found, which are over
 * OUTER_VAR.  Target list and qual, over INDEX_VAR, are the caller's to set.  in_workers: it is below a Gather node.
 */
extern CustomScan *BatchNodeCreate(Plan *child, List *keep, List *found, int plan_node_id, bool in_workers);
extern bool IsBatchNode(const Plan *plan);

/* Its reader takes no more rows than that. */
extern void BatchNodeBound(CustomScan *node, int64 rows);

/* For _PG_init: let plans with batch nodes be read back in parallel workers. */
extern void BatchNodeRegister(void);

#endif							/* PGT_BATCH_H */
