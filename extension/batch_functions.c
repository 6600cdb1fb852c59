/*
 * batch_functions.c - which functions score, and what the planner is told about them.
 *
 * The scoring functions name pgt_predict_support as their support function.  The planner asks it while it simplifies a
 * call, so that this library is loaded, and its hooks are in place, before even the first such statement of a session is
 * executed.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_language_d.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type_d.h"
#include "fmgr.h"
#include "nodes/makefuncs.h"
#include "nodes/pathnodes.h"
#include "nodes/supportnodes.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "extension/batch.h"
#include "extension/batch_calls.h"
#include "extension/compat.h"

/* What scoring a row costs in a batch, in units of cpu_operator_cost: an estimate for a small network. */
#define BATCHED_COST 100

/* A function that the planner has asked about. */
typedef struct ScoringFunction
{
	Oid			oid;
	uint32		hash;			/* of its entry in the cache of pg_proc */
	bool		known;			/* what follows is right */
	bool		batchable;
	PredictionKind kind;
} ScoringFunction;

static ScoringFunction *functions = NULL;
static int	nfunctions = 0;

static void
FunctionInvalidated(Datum arg, int cache, uint32 hash)
{
	for (int i = 0; i < nfunctions; i++)
		if (hash == 0 || functions[i].hash == hash)
			functions[i].known = false;
}

void
BatchCallsInit(void)
{
	CacheRegisterSyscacheCallback(PROCOID, FunctionInvalidated, (Datum) 0);
}

/* Which of our functions is it? */
static bool
KindOfSymbol(const char *symbol, PredictionKind *kind)
{
	static const struct
	{
		const char *symbol;
		PredictionKind kind;
	}			symbols[] = {
		{"pgt_predict_row", PREDICT_VALUE},
		{"pgt_predict_array", PREDICT_VALUE},
		{"pgt_predict_class_row", PREDICT_CLASS},
		{"pgt_predict_class_array", PREDICT_CLASS},
		{"pgt_predict_proba_row", PREDICT_PROBABILITIES},
		{"pgt_predict_proba_array", PREDICT_PROBABILITIES}
	};

	for (int i = 0; i < lengthof(symbols); i++)
	{
		if (strcmp(symbols[i].symbol, symbol) == 0)
		{
			*kind = symbols[i].kind;
			return true;
		}
	}
	return false;
}

/*
 * Read anew what a function is.  One that must run through a wrapper (SECURITY DEFINER, SET, a hook) stays as it is, and
 * so does one that was made VOLATILE.
 */
static void
LearnFunction(ScoringFunction *function)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function->oid));
	Form_pg_proc proc;
	bool		isnull;
	bool		no_settings;
	Datum		symbol;

	function->batchable = false;
	function->known = true;
	if (!HeapTupleIsValid(tuple))
		return;
	proc = (Form_pg_proc) GETSTRUCT(tuple);
	symbol = SysCacheGetAttr(PROCOID, tuple, Anum_pg_proc_prosrc, &isnull);
	SysCacheGetAttr(PROCOID, tuple, Anum_pg_proc_proconfig, &no_settings);
	if (!isnull && proc->prolang == ClanguageId && !proc->prosecdef && no_settings && proc->proisstrict &&
		proc->provolatile != PROVOLATILE_VOLATILE && !FmgrHookIsNeeded(function->oid))
	{
		char	   *name = TextDatumGetCString(symbol);

		function->batchable = KindOfSymbol(name, &function->kind);
		pfree(name);
	}
	ReleaseSysCache(tuple);
}

static void
RememberFunction(Oid oid)
{
	for (int i = 0; i < nfunctions; i++)
		if (functions[i].oid == oid)
			return;
	if (functions == NULL)
		functions = MemoryContextAlloc(TopMemoryContext, sizeof(ScoringFunction));
	else
		functions = repalloc(functions, sizeof(ScoringFunction) * (nfunctions + 1));
	functions[nfunctions].oid = oid;
	functions[nfunctions].hash = GetSysCacheHashValue1(PROCOID, ObjectIdGetDatum(oid));
	functions[nfunctions].known = false;
	nfunctions++;
}

static const ScoringFunction *
FindFunction(Oid oid)
{
	for (int i = 0; i < nfunctions; i++)
	{
		if (functions[i].oid != oid)
			continue;
		if (!functions[i].known)
			LearnFunction(&functions[i]);
		return functions[i].batchable ? &functions[i] : NULL;
	}
	return NULL;
}

bool
PlanUsesPredictions(const PlannedStmt *plan)
{
	ListCell   *lc;

	if (nfunctions == 0)
		return false;
	/* The planner notes the functions that a plan calls. */
	foreach(lc, plan->invalItems)
	{
		const PlanInvalItem *item = lfirst(lc);

		for (int i = 0; item->cacheId == PROCOID && i < nfunctions; i++)
			if (functions[i].hash == item->hashValue)
				return true;
	}
	return false;
}

bool
IsPredictCall(const Node *node)
{
	const FuncExpr *call = (const FuncExpr *) node;
	const Node *model;

	if (!IsA(node, FuncExpr) || call->funcretset || list_length(call->args) != 2 || FindFunction(call->funcid) == NULL)
		return false;
	model = linitial(call->args);
	return IsA(model, Const) || (IsA(model, Param) && ((const Param *) model)->paramkind == PARAM_EXTERN);
}

PredictionKind
PredictCallKind(const FuncExpr *call)
{
	const ScoringFunction *function;

	/* A parallel worker gets a plan that it has not made. */
	RememberFunction(call->funcid);
	function = FindFunction(call->funcid);
	if (function == NULL)
		elog(ERROR, "function %u is no longer one that scores", call->funcid);
	return function->kind;
}

Expr *
PredictCallModel(const FuncExpr *call)
{
	return linitial(call->args);
}

Expr *
PredictCallInput(const FuncExpr *call)
{
	return lsecond(call->args);
}

/* Is a relation on a side of an outer join that may have no row?  inside: on one already. */
static bool
IsNullable(Node *jointree, int varno, bool inside)
{
	ListCell   *lc;

	if (jointree == NULL)
		return false;
	if (IsA(jointree, RangeTblRef))
		return inside && ((RangeTblRef *) jointree)->rtindex == varno;
	if (IsA(jointree, FromExpr))
	{
		foreach(lc, ((FromExpr *) jointree)->fromlist)
			if (IsNullable(lfirst(lc), varno, inside))
				return true;
		return false;
	}
	else
	{
		JoinExpr   *join = castNode(JoinExpr, jointree);

		return IsNullable(join->larg, varno, inside || join->jointype == JOIN_RIGHT || join->jointype == JOIN_FULL) ||
			IsNullable(join->rarg, varno, inside || join->jointype == JOIN_LEFT || join->jointype == JOIN_FULL ||
					   join->jointype == JOIN_ANTI);
	}
}

/*
 * A table's row as ROW(...) of its columns, which then go through joins one by one: no composite value is made and taken
 * apart for each row above them.  NULL: it is something else, or may be missing as a whole.
 */
static RowExpr *
ExpandTableRow(PlannerInfo *root, Node *input)
{
	Var		   *row = (Var *) input;
	RangeTblEntry *rte;
	RowExpr    *expanded;
	TupleDesc	desc;

	if (root == NULL || !IsA(input, Var) || row->varattno != 0 || row->varlevelsup != 0 || row->varno <= 0 ||
		row->varno > list_length(root->parse->rtable) || row->vartype == RECORDOID || !CompatIsCurrentRow(row))
		return NULL;
	rte = rt_fetch(row->varno, root->parse->rtable);
	if (rte->rtekind != RTE_RELATION || IsNullable((Node *) root->parse->jointree, row->varno, false))
		return NULL;
	desc = lookup_rowtype_tupdesc_noerror(row->vartype, -1, true);
	if (desc == NULL)
		return NULL;

	expanded = makeNode(RowExpr);
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(desc, i);
		Node	   *column;

		if (attribute->attisdropped)
			column = (Node *) makeNullConst(INT4OID, -1, InvalidOid);
		else
			column = (Node *) makeVar(row->varno, i + 1, attribute->atttypid, attribute->atttypmod,
									  attribute->attcollation, 0);
		expanded->args = lappend(expanded->args, column);
	}
	ReleaseTupleDesc(desc);
	expanded->row_typeid = row->vartype;
	expanded->row_format = COERCE_IMPLICIT_CAST;
	expanded->location = -1;
	return expanded;
}

/* Above the scan of a single table the row is expanded when the plan is rewritten, at no cost for what is not batched. */
static bool
HasJoin(const FromExpr *jointree)
{
	return list_length(jointree->fromlist) != 1 || !IsA(linitial(jointree->fromlist), RangeTblRef);
}

/* Simplify a call, where there are joins. */
static Node *
SimplifyCall(PlannerInfo *root, FuncExpr *call)
{
	RowExpr    *row;
	FuncExpr   *simplified;

	RememberFunction(call->funcid);
	if (!batch_scoring || root == NULL || !IsPredictCall((Node *) call) || !HasJoin(root->parse->jointree))
		return NULL;
	row = ExpandTableRow(root, (Node *) PredictCallInput(call));
	if (row == NULL)
		return NULL;
	simplified = makeNode(FuncExpr);
	*simplified = *call;
	simplified->args = list_make2(PredictCallModel(call), row);
	return (Node *) simplified;
}

PG_FUNCTION_INFO_V1(pgt_predict_support);

Datum
pgt_predict_support(PG_FUNCTION_ARGS)
{
	Node	   *request = (Node *) PG_GETARG_POINTER(0);

	if (IsA(request, SupportRequestSimplify))
	{
		SupportRequestSimplify *simplify = (SupportRequestSimplify *) request;

		PG_RETURN_POINTER(SimplifyCall(simplify->root, simplify->fcall));
	}
	if (IsA(request, SupportRequestCost) && batch_scoring)
	{
		SupportRequestCost *cost = (SupportRequestCost *) request;

		if (cost->node != NULL && IsA(cost->node, FuncExpr) && IsPredictCall(cost->node))
		{
			cost->startup = 0;
			cost->per_tuple = BATCHED_COST * cpu_operator_cost;
			PG_RETURN_POINTER(cost);
		}
	}
	PG_RETURN_POINTER(NULL);
}
