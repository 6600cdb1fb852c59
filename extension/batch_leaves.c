/*
 * batch_leaves.c - what a plan node has to deliver once its expressions are worked out above it.
 */
#include "postgres.h"

#include "access/table.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "parser/parsetree.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/typcache.h"

#include "extension/batch_calls.h"
#include "extension/batch_rewrite.h"

typedef struct Leaves
{
	List	   *tlist;			/* found so far */
	Index		scanrelid;		/* of a scan, whose rows can be taken column by column; else 0 */
	const RangeTblEntry *rte;
} Leaves;

bool
PlanProjects(const Plan *plan)
{
	switch (nodeTag(plan))
	{
		case T_SeqScan:
		case T_SampleScan:
		case T_IndexScan:
		case T_IndexOnlyScan:
		case T_BitmapHeapScan:
		case T_TidScan:
		case T_TidRangeScan:
		case T_SubqueryScan:
		case T_FunctionScan:
		case T_TableFuncScan:
		case T_ValuesScan:
		case T_CteScan:
		case T_NamedTuplestoreScan:
		case T_WorkTableScan:
		case T_NestLoop:
		case T_MergeJoin:
		case T_HashJoin:
		case T_Agg:
		case T_Group:
		case T_WindowAgg:
		case T_Gather:
		case T_GatherMerge:
		case T_ProjectSet:
			return true;
		case T_Result:
			return plan->lefttree != NULL;
		case T_ForeignScan:
			/* Not one that changes rows over there. */
			return ((const ForeignScan *) plan)->operation == CMD_SELECT;
		default:
			return false;
	}
}

static bool
IsTableScan(const Plan *plan)
{
	switch (nodeTag(plan))
	{
		case T_SeqScan:
		case T_SampleScan:
		case T_IndexScan:
		case T_BitmapHeapScan:
		case T_TidScan:
		case T_TidRangeScan:
			return true;
		default:
			return false;
	}
}

static Node *
DroppedColumn(void)
{
	return (Node *) makeNullConst(INT4OID, -1, InvalidOid);
}

static RowExpr *
MakeRow(List *args, Oid type, List *names)
{
	RowExpr    *row = makeNode(RowExpr);

	row->args = args;
	row->row_typeid = type;
	row->row_format = COERCE_IMPLICIT_CAST;
	row->colnames = names;
	row->location = -1;
	return row;
}

/*
 * The row of a table as ROW(...) of its columns; converted: to the row type of a table that it is a partition or a child
 * of.  NULL: a column has another type there.
 */
static RowExpr *
TableRow(const Leaves *leaves, Oid type, bool converted)
{
	TupleDesc	desc = lookup_rowtype_tupdesc_noerror(type, -1, true);
	List	   *args = NIL;
	bool		same = true;

	if (desc == NULL)
		return NULL;
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(desc, i);
		AttrNumber	column = i + 1;

		if (!attribute->attisdropped && converted)
		{
			column = get_attnum(leaves->rte->relid, NameStr(attribute->attname));
			same &= column > 0 && get_atttype(leaves->rte->relid, column) == attribute->atttypid;
		}
		if (attribute->attisdropped)
			args = lappend(args, DroppedColumn());
		else
			args = lappend(args, makeVar(leaves->scanrelid, column, attribute->atttypid, attribute->atttypmod,
										 attribute->attcollation, 0));
	}
	ReleaseTupleDesc(desc);
	return same ? MakeRow(args, type, NIL) : NULL;
}

/* The row of a subquery that is read through its own node. */
static RowExpr *
SubqueryRow(const Leaves *leaves, const SubqueryScan *scan)
{
	List	   *args = NIL;
	ListCell   *lc;

	foreach(lc, scan->subplan->targetlist)
	{
		TargetEntry *column = lfirst(lc);

		if (!column->resjunk)
			args = lappend(args, makeVarFromTargetEntry(leaves->scanrelid, column));
	}
	if (list_length(args) != list_length(leaves->rte->eref->colnames))
		return NULL;
	return MakeRow(args, RECORDOID, copyObject(leaves->rte->eref->colnames));
}

/* The same for a WITH query or VALUES. */
static RowExpr *
ListedRow(const Leaves *leaves)
{
	const RangeTblEntry *rte = leaves->rte;
	List	   *args = NIL;

	if (list_length(rte->coltypes) != list_length(rte->eref->colnames))
		return NULL;
	for (int i = 0; i < list_length(rte->coltypes); i++)
		args = lappend(args, makeVar(leaves->scanrelid, i + 1, list_nth_oid(rte->coltypes, i),
									 list_nth_int(rte->coltypmods, i), list_nth_oid(rte->colcollations, i), 0));
	return MakeRow(args, RECORDOID, copyObject(rte->eref->colnames));
}

/* What a call is given, as ROW(...) of columns of the scan; NULL: it is something else. */
static RowExpr *
ExpandRow(const Leaves *leaves, const Plan *plan, Node *input)
{
	bool		converted = IsA(input, ConvertRowtypeExpr);
	Oid			type = exprType(input);
	Var		   *row;

	while (IsA(input, ConvertRowtypeExpr))
		input = (Node *) ((ConvertRowtypeExpr *) input)->arg;
	row = (Var *) input;
	if (leaves->scanrelid == 0 || !IsA(row, Var) || row->varno != leaves->scanrelid || row->varattno != 0)
		return NULL;
	if (IsTableScan(plan))
		return type != RECORDOID ? TableRow(leaves, type, converted) : NULL;
	if (type != RECORDOID)
		return NULL;
	if (IsA(plan, SubqueryScan))
		return SubqueryRow(leaves, (const SubqueryScan *) plan);
	return ListedRow(leaves);
}

typedef struct LeafContext
{
	Leaves	   *leaves;
	const Plan *plan;
} LeafContext;

/* The column of the node that has a leaf; one is added for a new leaf. */
static Node *
LeafVar(Leaves *leaves, Node *leaf)
{
	TargetEntry *column = NULL;
	ListCell   *lc;

	foreach(lc, leaves->tlist)
	{
		column = lfirst(lc);
		if (equal(column->expr, leaf))
			return (Node *) makeVarFromTargetEntry(OUTER_VAR, column);
	}
	column = makeTargetEntry(copyObject((Expr *) leaf), list_length(leaves->tlist) + 1, NULL, false);
	leaves->tlist = lappend(leaves->tlist, column);
	return (Node *) makeVarFromTargetEntry(OUTER_VAR, column);
}

static Node *
ReplaceLeaves(Node *node, LeafContext *context)
{
	if (node == NULL)
		return NULL;
	if (IsPredictCall(node))
	{
		FuncExpr   *call = (FuncExpr *) node;
		RowExpr    *row = ExpandRow(context->leaves, context->plan, (Node *) PredictCallInput(call));

		if (row != NULL)
		{
			FuncExpr   *expanded = makeNode(FuncExpr);

			*expanded = *call;
			expanded->args = list_make2(PredictCallModel(call), row);
			node = (Node *) expanded;
		}
	}
	switch (nodeTag(node))
	{
		case T_Var:
		case T_Aggref:
		case T_WindowFunc:
		case T_GroupingFunc:
			return LeafVar(context->leaves, node);
		case T_FuncExpr:
			if (((FuncExpr *) node)->funcretset)
				return LeafVar(context->leaves, node);
			break;
		case T_OpExpr:
			if (((OpExpr *) node)->opretset)
				return LeafVar(context->leaves, node);
			break;
		default:
			break;
	}
	return expression_tree_mutator(node, ReplaceLeaves, context);
}

typedef struct Renumbering
{
	int			from;
	int			to;
	const int  *map;
} Renumbering;

static Node *
Renumber(Node *node, Renumbering *renumbering)
{
	if (node == NULL)
		return NULL;
	if (IsA(node, Var) && ((Var *) node)->varno == renumbering->from)
	{
		Var		   *var = copyObject((Var *) node);

		var->varno = renumbering->to;
		if (renumbering->map != NULL)
			var->varattno = renumbering->map[var->varattno];
		return (Node *) var;
	}
	return expression_tree_mutator(node, Renumber, renumbering);
}

Node *
RenumberVars(Node *node, int from, int to, const int *map)
{
	Renumbering renumbering = {from, to, map};

	return Renumber(node, &renumbering);
}

/* All columns of a table, so that its scan hands on its own row; NIL: that is not possible. */
static List *
PhysicalColumns(const Leaves *leaves)
{
	Relation	relation = table_open(leaves->rte->relid, NoLock);
	TupleDesc	desc = RelationGetDescr(relation);
	List	   *tlist = NIL;

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(desc, i);

		if (attribute->attisdropped || attribute->atthasmissing)
		{
			tlist = NIL;
			break;
		}
		tlist = lappend(tlist, makeTargetEntry((Expr *) makeVar(leaves->scanrelid, i + 1, attribute->atttypid,
																attribute->atttypmod, attribute->attcollation, 0),
											   i + 1, NULL, false));
	}
	table_close(relation, NoLock);
	return tlist;
}

/* Where all leaves are ordinary columns of a table, deliver the table's row as it is. */
static List *
UsePhysicalColumns(Leaves *leaves, List *expressions)
{
	int		   *map = palloc0(sizeof(int) * (list_length(leaves->tlist) + 1));
	List	   *physical;
	ListCell   *lc;

	foreach(lc, leaves->tlist)
	{
		TargetEntry *column = lfirst(lc);
		Var		   *var = (Var *) column->expr;

		if (!IsA(var, Var) || var->varattno <= 0)
			return expressions;
		map[column->resno] = var->varattno;
	}
	physical = PhysicalColumns(leaves);
	if (physical == NIL)
		return expressions;
	leaves->tlist = physical;
	return (List *) RenumberVars((Node *) expressions, OUTER_VAR, OUTER_VAR, map);
}

List *
PlanLeaves(const PlannedStmt *stmt, Plan *plan, List *expressions)
{
	Leaves		leaves = {0};
	LeafContext context = {&leaves, plan};

	if (IsTableScan(plan) || IsA(plan, SubqueryScan) || IsA(plan, CteScan) || IsA(plan, ValuesScan))
	{
		leaves.scanrelid = ((Scan *) plan)->scanrelid;
		leaves.rte = rt_fetch(leaves.scanrelid, stmt->rtable);
	}
	expressions = (List *) ReplaceLeaves((Node *) expressions, &context);
	if (IsTableScan(plan))
		expressions = UsePhysicalColumns(&leaves, expressions);
	plan->targetlist = leaves.tlist;
	return expressions;
}
