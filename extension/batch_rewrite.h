/*
 * batch_rewrite.h - rewriting a plan: shared by its files.
 */
#ifndef PGT_BATCH_REWRITE_H
#define PGT_BATCH_REWRITE_H

#include "postgres.h"

#include "nodes/plannodes.h"

typedef struct Rewriter
{
	PlannedStmt *stmt;
	int			next_node_id;
	int			made;			/* batch nodes so far */
	int			gathers;		/* nodes above that run what is below them in parallel */
} Rewriter;

/* Is there anything volatile in a plan or below it? */
extern bool PlanIsVolatile(const PlannedStmt *stmt, Plan *plan);

/* Does the node work its target list out of what it has, rather than hand its child's columns on? */
extern bool PlanProjects(const Plan *plan);

/*
 * Reduce a projecting node's target list to the leaves of expressions that will be worked out above it: Vars, aggregates
 * and the like.  Returns the expressions over its new columns, as OUTER_VAR.  Whole rows that are scored become their columns.
 */
extern List *PlanLeaves(const PlannedStmt *stmt, Plan *plan, List *expressions);

/* Let the Vars of one varno name another and, unless map is NULL, map[attribute] there. */
extern Node *RenumberVars(Node *node, int from, int to, const int *map);

/*
 * The batch nodes that work out quals, in their order, and a target list over the columns of plan (OUTER_VAR).
 */
extern Plan *BuildStages(Rewriter *rewriter, Plan *plan, List *quals, List *tlist);

#endif							/* PGT_BATCH_REWRITE_H */
