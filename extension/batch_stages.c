/*
 * batch_stages.c - the batch nodes above a plan node.
 *
 * One batch node works out the calls that need no other call's result.  Quals come first and keep their order, since a
 * later one may rely on an earlier one or must not see rows that it hides: a node takes the first qual, with its calls,
 * and those after it that need no further call; what is left goes to another node above.  So do calls whose input needs
 * results of this one.
 */
#include "postgres.h"

#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"

#include "extension/batch.h"
#include "extension/batch_calls.h"
#include "extension/batch_rewrite.h"

/* Stands for a result while the columns of a node are not settled; no varno of PostgreSQL's. */
#define RESULT_VAR (-77)

static bool
CollectAttributes(Node *node, Bitmapset **attributes)
{
	if (node == NULL)
		return false;
	if (IsA(node, Var) && ((Var *) node)->varno == OUTER_VAR)
		*attributes = bms_add_member(*attributes, ((Var *) node)->varattno);
	return expression_tree_walker(node, CollectAttributes, attributes);
}

/* Those of found that have a value for every row. */
static List *
Unguarded(List *found)
{
	List	   *result = NIL;
	ListCell   *lc;

	foreach(lc, found)
		if (FoundGuard(lfirst(lc)) == NULL)
			result = lappend(result, lfirst(lc));
	return result;
}

/* Split quals after the first that needs calls other than those: the first one is always taken. */
static void
SplitQuals(List *quals, List *found, List **taken, List **left)
{
	ListCell   *lc;

	*taken = NIL;
	*left = NIL;
	foreach(lc, quals)
	{
		if (*left != NIL ||
			(*taken != NIL && list_difference(FindPredictCalls(lfirst(lc), CALLS_OF_ROWS), found) != NIL))
			*left = lappend(*left, lfirst(lc));
		else
			*taken = lappend(*taken, lfirst(lc));
	}
}

static List *
ReplaceInList(List *list, List *found, bool guarded)
{
	return (List *) ReplacePredictCalls((Node *) list, found, CALLS_OF_ROWS, guarded, RESULT_VAR, 1);
}

/* Target list that hands on all columns of a batch node. */
static List *
AllColumns(const CustomScan *node)
{
	List	   *tlist = NIL;
	ListCell   *lc;

	foreach(lc, node->custom_scan_tlist)
	{
		TargetEntry *column = lfirst(lc);

		tlist = lappend(tlist, makeTargetEntry((Expr *) makeVarFromTargetEntry(INDEX_VAR, column), column->resno,
											   NULL, false));
	}
	return tlist;
}

Plan *
BuildStages(Rewriter *rewriter, Plan *plan, List *quals, List *tlist)
{
	for (;;)
	{
		List	   *found;
		List	   *taken = NIL;
		List	   *left = NIL;
		List	   *keep = NIL;
		Bitmapset  *attributes = NULL;
		int		   *map = palloc0(sizeof(int) * (list_length(plan->targetlist) + 1));
		int		   *result_map;
		List	   *expressions;
		CustomScan *node;
		bool		last;

		if (quals != NIL)
		{
			found = FindPredictCalls(linitial(quals), CALLS_OF_ROWS);
			SplitQuals(quals, Unguarded(found), &taken, &left);
			linitial(taken) = ReplacePredictCalls(linitial(taken), found, CALLS_OF_ROWS, true, RESULT_VAR, 1);
		}
		else
		{
			found = FindPredictCalls((Node *) tlist, CALLS_OF_ROWS);
			tlist = ReplaceInList(tlist, found, true);
		}
		/* A result is used wherever its call stands. */
		taken = ReplaceInList(taken, found, false);
		left = ReplaceInList(left, found, false);
		tlist = ReplaceInList(tlist, found, false);
		last = left == NIL && FindPredictCalls((Node *) tlist, CALLS_OF_ROWS) == NIL;

		expressions = list_make3(taken, left, tlist);
		CollectAttributes((Node *) expressions, &attributes);
		for (int i = -1; (i = bms_next_member(attributes, i)) >= 0;)
		{
			keep = lappend_int(keep, i);
			map[i] = list_length(keep);
		}
		node = BatchNodeCreate(plan, keep, found, rewriter->next_node_id++, rewriter->gathers > 0);
		rewriter->made++;

		result_map = palloc0(sizeof(int) * (list_length(found) + 1));
		for (int i = 1; i <= list_length(found); i++)
			result_map[i] = list_length(keep) + i;
		expressions = (List *) RenumberVars((Node *) expressions, OUTER_VAR, INDEX_VAR, map);
		expressions = (List *) RenumberVars((Node *) expressions, RESULT_VAR, INDEX_VAR, result_map);
		node->scan.plan.qual = linitial(expressions);
		if (last)
		{
			node->scan.plan.targetlist = lthird(expressions);
			return &node->scan.plan;
		}
		node->scan.plan.targetlist = AllColumns(node);
		quals = (List *) RenumberVars(lsecond(expressions), INDEX_VAR, OUTER_VAR, NULL);
		tlist = (List *) RenumberVars(lthird(expressions), INDEX_VAR, OUTER_VAR, NULL);
		plan = &node->scan.plan;
	}
}
