/*
 * batch_rewrite.c - putting batch nodes into a finished plan.
 *
 * A node whose target list or quals have calls that can be batched is reduced to what those expressions are made of, and
 * a batch node above it works them out (batch_stages.c).  The new node has the target list of the old one, so that nothing
 * above changes.  Calls in arguments of aggregates and window functions become columns of what the aggregate reads.
 *
 * What stays as it is, and is right all the same: calls whose model comes from a column, conditions of outer joins, hash,
 * merge and index conditions, RETURNING, ON CONFLICT and MERGE actions, and nodes that deliver a single row.
 */
#include "postgres.h"

#include "access/parallel.h"
#include "executor/executor.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"

#include "extension/batch.h"
#include "extension/batch_calls.h"
#include "extension/batch_rewrite.h"
#include "extension/compat.h"

/* Set in jitFlags of a plan that has been rewritten as far as it can be; PostgreSQL uses the low bits only. */
#define PLAN_IS_REWRITTEN (1 << 30)

/* A batch of one row gains nothing. */
#define MIN_PLAN_ROWS 2

/* How a node is read by what is above it. */
typedef struct Reading
{
	bool		may_stop;		/* perhaps not to its end */
	bool		bounded;		/* up to a number of rows that is not known yet */
} Reading;

static Plan *Rewrite(Rewriter *rewriter, Plan *plan, Reading reading);

static bool
HasCalls(void *expressions, CallScope scope)
{
	return FindPredictCalls(expressions, scope) != NIL;
}

static bool
IsInnerJoin(const Plan *plan)
{
	return (IsA(plan, NestLoop) || IsA(plan, HashJoin) || IsA(plan, MergeJoin)) &&
		((const Join *) plan)->jointype == JOIN_INNER;
}

/* Cut a list of clauses before the first that has calls. */
static void
CutQuals(List *quals, List **before, List **from)
{
	ListCell   *lc;

	*before = NIL;
	*from = NIL;
	foreach(lc, quals)
	{
		if (*from == NIL && !HasCalls(lfirst(lc), CALLS_OF_ROWS))
			*before = lappend(*before, lfirst(lc));
		else
			*from = lappend(*from, lfirst(lc));
	}
}

/* The quals of a node that move up with the first call in them. */
static List *
TakeQuals(Plan *plan)
{
	List	   *before;
	List	   *from;

	/* The qual of a window node decides when it may stop. */
	if (IsA(plan, WindowAgg))
		return NIL;
	CutQuals(plan->qual, &before, &from);
	if (IsInnerJoin(plan))
	{
		Join	   *join = (Join *) plan;
		List	   *join_before;
		List	   *join_from;

		/* Both kinds of clauses mean the same here; those of the join come first. */
		CutQuals(join->joinqual, &join_before, &join_from);
		if (join_from != NIL)
		{
			from = list_concat(join_from, list_concat(before, from));
			before = NIL;
			join->joinqual = join_before;
			/* which may have been proven with a clause that is gone */
			join->inner_unique = false;
		}
	}
	plan->qual = before;
	return from;
}

/* Are there calls for enough rows?  How many pass the quals says nothing of how many come to them. */
static bool
HasCallsOfRows(Plan *plan)
{
	if (!PlanProjects(plan))
		return false;
	if (!IsA(plan, WindowAgg) && HasCalls(plan->qual, CALLS_OF_ROWS))
		return true;
	if (IsInnerJoin(plan) && HasCalls(((Join *) plan)->joinqual, CALLS_OF_ROWS))
		return true;
	return plan->plan_rows >= MIN_PLAN_ROWS && HasCalls(plan->targetlist, CALLS_OF_ROWS);
}

/* A reader of few rows lets a sort below keep no more than those, but can tell only nodes that it knows. */
static bool
HidesBound(const Plan *plan, Reading reading)
{
	return reading.bounded && IsA(plan, Result) && plan->lefttree != NULL &&
		(IsA(plan->lefttree, Sort) || IsA(plan->lefttree, IncrementalSort));
}

/* Batch nodes above a node for the calls in its own target list and quals. */
static Plan *
BatchAbove(Rewriter *rewriter, Plan *plan, Reading reading)
{
	List	   *quals;
	List	   *expressions;

	if (!HasCallsOfRows(plan) || HidesBound(plan, reading))
		return plan;
	/* Reading ahead must have no effects that reading on demand would not have had. */
	if (reading.may_stop && PlanIsVolatile(rewriter->stmt, plan))
		return plan;

	quals = TakeQuals(plan);
	expressions = PlanLeaves(rewriter->stmt, plan, list_make2(quals, plan->targetlist));
	/* The node's parent cannot wait for it any longer. */
	plan->async_capable = false;
	return BuildStages(rewriter, plan, linitial(expressions), lsecond(expressions));
}

/* Aggregates */

static bool
CollectOuter(Node *node, Bitmapset **attributes)
{
	if (node == NULL)
		return false;
	if (IsA(node, Var) && ((Var *) node)->varno == OUTER_VAR)
		*attributes = bms_add_member(*attributes, ((Var *) node)->varattno);
	return expression_tree_walker(node, CollectOuter, attributes);
}

static Bitmapset *
AddColumns(Bitmapset *attributes, int ncolumns, const AttrNumber *columns)
{
	for (int i = 0; i < ncolumns; i++)
		attributes = bms_add_member(attributes, columns[i]);
	return attributes;
}

/* The columns of its child that an aggregate or window node reads. */
static Bitmapset *
ColumnsRead(Plan *plan)
{
	Bitmapset  *attributes = NULL;

	CollectOuter((Node *) plan->targetlist, &attributes);
	CollectOuter((Node *) plan->qual, &attributes);
	if (IsA(plan, Agg))
	{
		const Agg  *agg = (const Agg *) plan;
		ListCell   *lc;

		attributes = AddColumns(attributes, agg->numCols, agg->grpColIdx);
		foreach(lc, agg->chain)
			attributes = AddColumns(attributes, ((Agg *) lfirst(lc))->numCols, ((Agg *) lfirst(lc))->grpColIdx);
	}
	else
	{
		WindowAgg  *window = (WindowAgg *) plan;

		attributes = AddColumns(attributes, window->partNumCols, window->partColIdx);
		attributes = AddColumns(attributes, window->ordNumCols, window->ordColIdx);
		CollectOuter(window->startOffset, &attributes);
		CollectOuter(window->endOffset, &attributes);
		CollectOuter((Node *) CompatRunCondition(window), &attributes);
	}
	return attributes;
}

/* An expression over a node's columns as one over what those are made of. */
static Node *
Substitute(Node *node, List *tlist)
{
	if (node == NULL)
		return NULL;
	if (IsA(node, Var) && ((Var *) node)->varno == OUTER_VAR)
		return (Node *) copyObject(((TargetEntry *) list_nth(tlist, ((Var *) node)->varattno - 1))->expr);
	return expression_tree_mutator(node, Substitute, tlist);
}

/* Can columns be added to a node without another one in between? */
static bool
TakesColumns(const Plan *plan)
{
	return PlanProjects(plan) && !IsA(plan, Gather) && !IsA(plan, GatherMerge) && !IsA(plan, ProjectSet);
}

/* A column that was read for scoring only need not be handed on. */
static void
DropUnread(Plan *child, const Bitmapset *read)
{
	ListCell   *lc;

	foreach(lc, child->targetlist)
	{
		TargetEntry *column = lfirst(lc);
		Expr	   *expr = column->expr;

		if (!bms_is_member(column->resno, read) && IsA(expr, Var))
		{
			column = flatCopyTargetEntry(column);
			column->expr = (Expr *) makeNullConst(exprType((Node *) expr), -1, exprCollation((Node *) expr));
			lfirst(lc) = column;
		}
	}
}

/*
 * Let an aggregate or window node read the results of calls in arguments as columns.  They are added to the child's target
 * list; where it takes none, the target list to be worked out above the child is returned.
 */
static List *
PushArguments(Plan *plan, Reading reading, const PlannedStmt *stmt)
{
	Plan	   *child = outerPlan(plan);
	List	   *tlist = NIL;
	bool		direct;
	bool		any = false;
	List	   *found;
	ListCell   *lc;

	if (!(IsA(plan, Agg) || IsA(plan, WindowAgg)) || child == NULL || child->plan_rows < MIN_PLAN_ROWS)
		return NIL;
	if (reading.may_stop && PlanIsVolatile(stmt, child))
		return NIL;
	direct = TakesColumns(child);
	foreach(lc, child->targetlist)
	{
		TargetEntry *column = lfirst(lc);

		if (!direct)
			column = makeTargetEntry((Expr *) makeVarFromTargetEntry(OUTER_VAR, column), column->resno,
									 column->resname, column->resjunk);
		tlist = lappend(tlist, column);
	}

	/* Again for calls that take others' results. */
	while ((found = FindPredictCalls((Node *) list_make2(plan->targetlist, plan->qual), CALLS_OF_AGGREGATES)) != NIL)
	{
		List	   *base = list_copy(tlist);
		int			first = list_length(tlist) + 1;

		any = true;
		plan->targetlist = (List *) ReplacePredictCalls((Node *) plan->targetlist, found, CALLS_OF_AGGREGATES, false,
														OUTER_VAR, first);
		plan->qual = (List *) ReplacePredictCalls((Node *) plan->qual, found, CALLS_OF_AGGREGATES, false,
												  OUTER_VAR, first);
		foreach(lc, found)
			tlist = lappend(tlist, makeTargetEntry((Expr *) Substitute(lfirst(lc), base), list_length(tlist) + 1,
												   NULL, false));
	}
	if (!any)
		return NIL;
	if (!direct)
		return tlist;
	child->targetlist = tlist;
	DropUnread(child, ColumnsRead(plan));
	return NIL;
}

/* What reads in other ways than forward, once */

static Plan *
AddMaterial(Rewriter *rewriter, Plan *child)
{
	Material   *material = makeNode(Material);
	Plan	   *plan = &material->plan;
	ListCell   *lc;

	foreach(lc, child->targetlist)
	{
		TargetEntry *column = flatCopyTargetEntry(lfirst(lc));

		column->expr = (Expr *) makeVarFromTargetEntry(OUTER_VAR, column);
		plan->targetlist = lappend(plan->targetlist, column);
	}
	plan->startup_cost = child->startup_cost;
	plan->total_cost = child->total_cost;
	plan->plan_rows = child->plan_rows;
	plan->plan_width = child->plan_width;
	plan->parallel_safe = child->parallel_safe;
	plan->plan_node_id = rewriter->next_node_id++;
	plan->lefttree = child;
	plan->initPlan = child->initPlan;
	child->initPlan = NIL;
	plan->extParam = bms_copy(child->extParam);
	plan->allParam = bms_copy(child->allParam);
	return plan;
}

/* A merge join goes back in its inner input; a batch node, also one below a Result, cannot. */
static void
ServeMergeJoin(Rewriter *rewriter, MergeJoin *join)
{
	Plan	   *inner = innerPlan(join);

	if (join->skip_mark_restore)
		return;
	while (IsA(inner, Result) && inner->lefttree != NULL)
		inner = inner->lefttree;
	if (IsBatchNode(inner))
		innerPlan(join) = AddMaterial(rewriter, innerPlan(join));
}

static bool
ConstantRows(Node *node, int64 *rows)
{
	const Const *count = (const Const *) node;

	*rows = 0;
	if (node == NULL)
		return true;
	if (!IsA(node, Const) || count->constisnull)
		return false;
	*rows = DatumGetInt64(count->constvalue);
	return *rows >= 0;
}

/* No row beyond a constant LIMIT is read ahead. */
static void
ServeLimit(const Limit *limit)
{
	Plan	   *child = outerPlan(limit);
	int64		count;
	int64		offset;

	if (!IsBatchNode(child) || child->qual != NIL || limit->limitOption != LIMIT_OPTION_COUNT ||
		limit->limitCount == NULL || !ConstantRows(limit->limitCount, &count) || !ConstantRows(limit->limitOffset, &offset))
		return;
	if (count <= PG_INT64_MAX - offset)
		BatchNodeBound((CustomScan *) child, count + offset);
}

/* The tree */

static Reading
ReadingOfChild(const Plan *plan, Reading reading)
{
	switch (nodeTag(plan))
	{
		case T_Limit:
			{
				const Limit *limit = (const Limit *) plan;

				reading.may_stop = true;
				reading.bounded = limit->limitCount != NULL && !IsA(limit->limitCount, Const);
				return reading;
			}
			/* These read all before they deliver the first. */
		case T_Sort:
		case T_Hash:
			return (Reading) {0};
		case T_Agg:
			if (((const Agg *) plan)->aggstrategy != AGG_SORTED)
				return (Reading) {0};
			break;
		case T_ModifyTable:
			return (Reading) {0};
		default:
			break;
	}
	return reading;
}

/* Some joins stop at the first match. */
static Reading
ReadingOfInner(const Plan *plan, Reading reading)
{
	if (IsA(plan, NestLoop))
	{
		const Join *join = (const Join *) plan;

		reading.may_stop |= join->inner_unique || join->jointype == JOIN_SEMI || join->jointype == JOIN_ANTI;
	}
	return reading;
}

static void
RewriteList(Rewriter *rewriter, List *plans, Reading reading)
{
	ListCell   *lc;

	foreach(lc, plans)
		lfirst(lc) = Rewrite(rewriter, lfirst(lc), reading);
}

static Plan *
Rewrite(Rewriter *rewriter, Plan *plan, Reading reading)
{
	Reading		below;
	List	   *arguments;

	if (plan == NULL)
		return NULL;
	check_stack_depth();
	below = ReadingOfChild(plan, reading);
	arguments = PushArguments(plan, below, rewriter->stmt);

	switch (nodeTag(plan))
	{
		case T_Append:
			RewriteList(rewriter, ((Append *) plan)->appendplans, below);
			break;
		case T_MergeAppend:
			RewriteList(rewriter, ((MergeAppend *) plan)->mergeplans, below);
			break;
		case T_SubqueryScan:
			((SubqueryScan *) plan)->subplan = Rewrite(rewriter, ((SubqueryScan *) plan)->subplan, below);
			break;
		case T_ForeignScan:		/* what is below only checks rows again */
		case T_CustomScan:		/* somebody else's */
		case T_BitmapHeapScan:	/* index conditions */
			break;
		case T_Gather:
		case T_GatherMerge:
			rewriter->gathers++;
			plan->lefttree = Rewrite(rewriter, plan->lefttree, below);
			rewriter->gathers--;
			break;
		default:
			plan->lefttree = Rewrite(rewriter, plan->lefttree, below);
			plan->righttree = Rewrite(rewriter, plan->righttree, ReadingOfInner(plan, below));
			break;
	}
	if (arguments != NIL)
		outerPlan(plan) = BuildStages(rewriter, outerPlan(plan), NIL, arguments);
	if (IsA(plan, MergeJoin))
		ServeMergeJoin(rewriter, (MergeJoin *) plan);
	if (IsA(plan, Limit))
		ServeLimit((Limit *) plan);
	return BatchAbove(rewriter, plan, reading);
}

/* Children of any node. */
static List *
Children(const Plan *plan)
{
	List	   *children = NIL;

	switch (nodeTag(plan))
	{
		case T_Append:
			children = list_copy(((const Append *) plan)->appendplans);
			break;
		case T_MergeAppend:
			children = list_copy(((const MergeAppend *) plan)->mergeplans);
			break;
		case T_BitmapAnd:
			children = list_copy(((const BitmapAnd *) plan)->bitmapplans);
			break;
		case T_BitmapOr:
			children = list_copy(((const BitmapOr *) plan)->bitmapplans);
			break;
		case T_SubqueryScan:
			children = list_make1(((const SubqueryScan *) plan)->subplan);
			break;
		case T_CustomScan:
			children = list_copy(((const CustomScan *) plan)->custom_plans);
			break;
		default:
			break;
	}
	if (plan->lefttree != NULL)
		children = lappend(children, plan->lefttree);
	if (plan->righttree != NULL)
		children = lappend(children, plan->righttree);
	return children;
}

static int
LargestNodeId(const Plan *plan)
{
	int			largest = plan->plan_node_id;
	ListCell   *lc;

	foreach(lc, Children(plan))
		largest = Max(largest, LargestNodeId(lfirst(lc)));
	return largest;
}

static bool
SubPlanIsVolatile(Node *node, const PlannedStmt *stmt)
{
	if (node == NULL)
		return false;
	if (IsA(node, SubPlan))
	{
		Plan	   *plan = list_nth(stmt->subplans, ((SubPlan *) node)->plan_id - 1);

		if (plan != NULL && PlanIsVolatile(stmt, plan))
			return true;
	}
	return expression_tree_walker(node, SubPlanIsVolatile, (void *) stmt);
}

static bool
ExpressionsAreVolatile(const PlannedStmt *stmt, void *expressions)
{
	return contain_volatile_functions(expressions) || SubPlanIsVolatile(expressions, stmt);
}

bool
PlanIsVolatile(const PlannedStmt *stmt, Plan *plan)
{
	ListCell   *lc;

	if (ExpressionsAreVolatile(stmt, plan->targetlist) || ExpressionsAreVolatile(stmt, plan->qual))
		return true;
	switch (nodeTag(plan))
	{
		case T_NestLoop:
		case T_MergeJoin:
		case T_HashJoin:
			if (ExpressionsAreVolatile(stmt, ((Join *) plan)->joinqual))
				return true;
			break;
		case T_FunctionScan:
			foreach(lc, ((FunctionScan *) plan)->functions)
				if (ExpressionsAreVolatile(stmt, ((RangeTblFunction *) lfirst(lc))->funcexpr))
					return true;
			break;
		case T_ValuesScan:
			if (ExpressionsAreVolatile(stmt, ((ValuesScan *) plan)->values_lists))
				return true;
			break;
		case T_CteScan:
			{
				Plan	   *cte = list_nth(stmt->subplans, ((CteScan *) plan)->ctePlanId - 1);

				if (cte != NULL && PlanIsVolatile(stmt, cte))
					return true;
				break;
			}
		case T_TableFuncScan:
		case T_ForeignScan:
		case T_CustomScan:
			/* Not looked into. */
			return !IsBatchNode(plan);
		default:
			break;
	}
	foreach(lc, Children(plan))
		if (PlanIsVolatile(stmt, lfirst(lc)))
			return true;
	return false;
}

/* Is there a call that can be batched?  Cheaper than copying the plan first. */
static bool
WorthRewriting(Plan *plan)
{
	ListCell   *lc;

	if (HasCallsOfRows(plan))
		return true;
	if ((IsA(plan, Agg) || IsA(plan, WindowAgg)) && outerPlan(plan) != NULL &&
		outerPlan(plan)->plan_rows >= MIN_PLAN_ROWS &&
		(HasCalls(plan->targetlist, CALLS_OF_AGGREGATES) || HasCalls(plan->qual, CALLS_OF_AGGREGATES)))
		return true;
	foreach(lc, Children(plan))
		if (WorthRewriting(lfirst(lc)))
			return true;
	return false;
}

PlannedStmt *
BatchRewrite(PlannedStmt *stmt, int flags)
{
	Rewriter	rewriter = {0};
	bool		backward = (flags & REWRITE_BACKWARD) != 0;
	bool		worth = false;
	Reading		reading = {.may_stop = (flags & REWRITE_MAY_STOP) != 0};
	ListCell   *lc;

	/* Workers get the plan rewritten. */
	if (IsParallelWorker() || stmt->commandType == CMD_UTILITY || stmt->planTree == NULL ||
		(stmt->jitFlags & PLAN_IS_REWRITTEN) || !PlanUsesPredictions(stmt))
		return stmt;
	worth = WorthRewriting(stmt->planTree);
	rewriter.next_node_id = LargestNodeId(stmt->planTree) + 1;
	foreach(lc, stmt->subplans)
	{
		Plan	   *subplan = lfirst(lc);

		if (subplan == NULL)
			continue;
		worth |= WorthRewriting(subplan);
		rewriter.next_node_id = Max(rewriter.next_node_id, LargestNodeId(subplan) + 1);
	}
	if (!worth)
		return stmt;

	if (flags & REWRITE_COPY)
		stmt = copyObject(stmt);
	stmt->jitFlags |= PLAN_IS_REWRITTEN;
	rewriter.stmt = stmt;
	if ((flags & REWRITE_BACKWARD_IF_ABLE) && stmt->rowMarks == NIL && ExecSupportsBackwardScan(stmt->planTree))
		backward = true;
	stmt->planTree = Rewrite(&rewriter, stmt->planTree, reading);
	reading.may_stop = true;
	RewriteList(&rewriter, stmt->subplans, reading);
	if (rewriter.made > 0 && backward && !ExecSupportsBackwardScan(stmt->planTree))
		stmt->planTree = AddMaterial(&rewriter, stmt->planTree);
	return stmt;
}
