/*
 * batch_calls.c - finding calls that can be batched, and replacing them.
 *
 * The finder walks expressions in the order in which the executor evaluates them and keeps the conditions under which it
 * would come to a place.  Only kinds of nodes that are known to evaluate all of their arguments are walked through; a call
 * below any other stays as it is.
 */
#include "postgres.h"

#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"

#include "extension/batch_calls.h"

typedef struct Call
{
	FuncExpr   *call;
	bool		always;			/* reached for every row */
	bool		lost;			/* reached under a condition that cannot be worked out beforehand */
	List	   *conditions;		/* any of which reaches it */
} Call;

typedef struct Finder
{
	CallScope	scope;
	bool		inside;			/* an aggregate, where those are the scope */
	bool		opaque;			/* below a node of unknown ways */
	List	   *path;			/* conditions, in order, all of which lead here */
	List	   *calls;			/* of Call * */
} Finder;

static bool Find(Node *node, Finder *finder);

static bool
ContainsCallWalker(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsPredictCall(node))
		return true;
	return expression_tree_walker(node, ContainsCallWalker, context);
}

bool
ContainsPredictCall(Node *node)
{
	return ContainsCallWalker(node, NULL);
}

/* Is there anything that differs from row to row? */
static bool
ContainsColumn(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Var) || IsA(node, Aggref) || IsA(node, WindowFunc) || IsA(node, GroupingFunc))
		return true;
	return expression_tree_walker(node, ContainsColumn, context);
}

static bool
ContainsSubPlan(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, SubPlan) || IsA(node, AlternativeSubPlan))
		return true;
	return expression_tree_walker(node, ContainsSubPlan, context);
}

/* Is there a value that a node around the expression provides: that of CASE x, of a domain's check, of an array's element? */
static bool
ContainsForeignValue(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, CaseTestExpr) || IsA(node, CoerceToDomainValue))
		return true;
	if (IsA(node, CaseExpr) && ((CaseExpr *) node)->arg != NULL)
		return ContainsForeignValue((Node *) ((CaseExpr *) node)->arg, context);
	if (IsA(node, ArrayCoerceExpr))
		return ContainsForeignValue((Node *) ((ArrayCoerceExpr *) node)->arg, context);
	return expression_tree_walker(node, ContainsForeignValue, context);
}

/* May an expression be evaluated once more, and apart from its surroundings? */
static bool
IsMovable(Node *node)
{
	return !ContainsPredictCall(node) && !ContainsForeignValue(node, NULL) && !ContainsSubPlan(node, NULL) &&
		!contain_volatile_functions(node) && !expression_returns_set(node);
}

static Expr *
AllOf(List *conditions)
{
	return list_length(conditions) == 1 ? linitial(conditions) : makeBoolExpr(AND_EXPR, list_copy(conditions), -1);
}

static void
AddCall(Finder *finder, FuncExpr *expr)
{
	Call	   *call = NULL;
	ListCell   *lc;

	foreach(lc, finder->calls)
		if (equal(((Call *) lfirst(lc))->call, expr))
			call = lfirst(lc);
	if (call == NULL)
	{
		call = palloc0(sizeof(Call));
		call->call = expr;
		finder->calls = lappend(finder->calls, call);
	}

	if (finder->opaque)
		call->lost = true;
	else if (finder->path == NIL)
		call->always = true;
	else if (IsMovable((Node *) finder->path))
		call->conditions = lappend(call->conditions, AllOf(finder->path));
	else
		call->lost = true;
}

/* A call: those in its input come first, and it waits for their results. */
static void
FindCall(FuncExpr *expr, Finder *finder)
{
	Find((Node *) expr->args, finder);
	if (IsMovable((Node *) expr->args) && ContainsColumn((Node *) expr->args, NULL))
		AddCall(finder, expr);
}

static void
FindUnder(Node *node, Finder *finder, Expr *condition)
{
	List	   *path = finder->path;

	finder->path = lappend(list_copy(path), condition);
	Find(node, finder);
	finder->path = path;
}

static void
FindOpaque(Node *node, Finder *finder)
{
	bool		opaque = finder->opaque;

	finder->opaque = true;
	Find(node, finder);
	finder->opaque = opaque;
}

/*
 * A condition on CASE: that no arm before number arm is taken and, with taken, that this one is (the number of arms stands
 * for ELSE).
 */
static Expr *
ReachesArm(const CaseExpr *expr, int arm, bool taken)
{
	CaseExpr   *condition;

	if (expr->arg == NULL && arm == 0 && taken)
		return linitial_node(CaseWhen, expr->args)->expr;
	condition = makeNode(CaseExpr);
	condition->casetype = BOOLOID;
	condition->arg = expr->arg;
	condition->location = -1;
	for (int i = 0; i < list_length(expr->args) && i < arm + taken; i++)
	{
		CaseWhen   *when = makeNode(CaseWhen);

		when->expr = ((CaseWhen *) list_nth(expr->args, i))->expr;
		when->result = (Expr *) makeBoolConst(i == arm, false);
		when->location = -1;
		condition->args = lappend(condition->args, when);
	}
	condition->defresult = (Expr *) makeBoolConst(!taken || arm == list_length(expr->args), false);
	return (Expr *) condition;
}

static void
FindInCase(CaseExpr *expr, Finder *finder)
{
	int			arms = list_length(expr->args);

	Find((Node *) expr->arg, finder);
	for (int i = 0; i < arms; i++)
	{
		CaseWhen   *when = list_nth(expr->args, i);

		if (i == 0)
			Find((Node *) when->expr, finder);
		else
			FindUnder((Node *) when->expr, finder, ReachesArm(expr, i, false));
		FindUnder((Node *) when->result, finder, ReachesArm(expr, i, true));
	}
	FindUnder((Node *) expr->defresult, finder, ReachesArm(expr, arms, true));
}

static Expr *
BoolTest(Expr *arg, BoolTestType type)
{
	BooleanTest *test = makeNode(BooleanTest);

	test->arg = arg;
	test->booltesttype = type;
	test->location = -1;
	return (Expr *) test;
}

/* What lets the executor go on from one argument of AND, OR or COALESCE to the next. */
static Expr *
GoesOn(Node *expr, Expr *arg)
{
	if (IsA(expr, BoolExpr))
		return BoolTest(arg, ((BoolExpr *) expr)->boolop == AND_EXPR ? IS_NOT_FALSE : IS_NOT_TRUE);
	else
	{
		NullTest   *test = makeNode(NullTest);

		test->arg = arg;
		test->nulltesttype = IS_NULL;
		test->location = -1;
		return (Expr *) test;
	}
}

static void
FindInSequence(Node *expr, List *args, Finder *finder)
{
	List	   *path = finder->path;
	ListCell   *lc;

	foreach(lc, args)
	{
		Find(lfirst(lc), finder);
		finder->path = lappend(list_copy(finder->path), GoesOn(expr, lfirst(lc)));
	}
	finder->path = path;
}

/* Arguments are evaluated for each input row, whatever surrounds the aggregate: under its filter, if it has one. */
static void
FindInAggregate(List *args, Expr *filter, Finder *finder)
{
	Finder		inner = {.scope = finder->scope, .inside = true, .calls = finder->calls};

	Find((Node *) filter, &inner);
	if (filter != NULL)
		FindUnder((Node *) args, &inner, BoolTest(filter, IS_TRUE));
	else
		Find((Node *) args, &inner);
	finder->calls = inner.calls;
}

static bool
EvaluatesAllArguments(const Node *node)
{
	switch (nodeTag(node))
	{
		case T_List:
		case T_TargetEntry:
		case T_FuncExpr:
		case T_OpExpr:
		case T_DistinctExpr:
		case T_NullIfExpr:
		case T_ScalarArrayOpExpr:
		case T_RelabelType:
		case T_CoerceViaIO:
		case T_ConvertRowtypeExpr:
		case T_CollateExpr:
		case T_FieldSelect:
		case T_ArrayExpr:
		case T_RowExpr:
		case T_MinMaxExpr:
		case T_NullTest:
		case T_BooleanTest:
		case T_CoerceToDomain:
			return true;
		default:
			return false;
	}
}

static bool
Find(Node *node, Finder *finder)
{
	if (node == NULL)
		return false;
	switch (nodeTag(node))
	{
		case T_CaseExpr:
			FindInCase((CaseExpr *) node, finder);
			return false;
		case T_CoalesceExpr:
			FindInSequence(node, ((CoalesceExpr *) node)->args, finder);
			return false;
		case T_BoolExpr:
			if (((BoolExpr *) node)->boolop != NOT_EXPR)
			{
				FindInSequence(node, ((BoolExpr *) node)->args, finder);
				return false;
			}
			break;
		case T_Aggref:
			if (finder->scope == CALLS_OF_AGGREGATES && !finder->inside)
				FindInAggregate(((Aggref *) node)->args, ((Aggref *) node)->aggfilter, finder);
			return false;
		case T_WindowFunc:
			if (finder->scope == CALLS_OF_AGGREGATES && !finder->inside)
				FindInAggregate(((WindowFunc *) node)->args, ((WindowFunc *) node)->aggfilter, finder);
			return false;
		case T_SubPlan:
			/* Its parameters are evaluated when it is come to. */
			Find((Node *) ((SubPlan *) node)->args, finder);
			FindOpaque(((SubPlan *) node)->testexpr, finder);
			return false;
		case T_SubscriptingRef:
			{
				SubscriptingRef *ref = (SubscriptingRef *) node;

				/* Subscripts of NULL are not evaluated. */
				Find((Node *) ref->refexpr, finder);
				FindOpaque((Node *) ref->refupperindexpr, finder);
				FindOpaque((Node *) ref->reflowerindexpr, finder);
				FindOpaque((Node *) ref->refassgnexpr, finder);
				return false;
			}
		case T_FuncExpr:
			if ((finder->scope == CALLS_OF_ROWS || finder->inside) && IsPredictCall(node))
			{
				FindCall((FuncExpr *) node, finder);
				return false;
			}
			break;
		default:
			break;
	}
	if (IsA(node, BoolExpr) || EvaluatesAllArguments(node))
		return expression_tree_walker(node, Find, finder);
	else
	{
		bool		opaque = finder->opaque;

		finder->opaque = true;
		expression_tree_walker(node, Find, finder);
		finder->opaque = opaque;
		return false;
	}
}

static Node *
GuardedCall(FuncExpr *call, List *conditions)
{
	CaseExpr   *guarded = makeNode(CaseExpr);
	CaseWhen   *when = makeNode(CaseWhen);

	when->expr = list_length(conditions) == 1 ? linitial(conditions) : makeBoolExpr(OR_EXPR, conditions, -1);
	when->result = (Expr *) call;
	when->location = -1;
	guarded->casetype = call->funcresulttype;
	guarded->casecollid = call->funccollid;
	guarded->args = list_make1(when);
	guarded->defresult = (Expr *) makeNullConst(call->funcresulttype, -1, call->funccollid);
	guarded->location = -1;
	return (Node *) guarded;
}

List *
FindPredictCalls(Node *node, CallScope scope)
{
	Finder		finder = {.scope = scope};
	List	   *found = NIL;
	ListCell   *lc;

	Find(node, &finder);
	foreach(lc, finder.calls)
	{
		Call	   *call = lfirst(lc);

		if (call->always)
			found = lappend(found, call->call);
		else if (!call->lost)
			found = lappend(found, GuardedCall(call->call, call->conditions));
	}
	return found;
}

FuncExpr *
FoundCall(Node *found)
{
	if (IsA(found, CaseExpr))
		found = (Node *) linitial_node(CaseWhen, ((CaseExpr *) found)->args)->result;
	return castNode(FuncExpr, found);
}

Expr *
FoundGuard(Node *found)
{
	return IsA(found, CaseExpr) ? linitial_node(CaseWhen, ((CaseExpr *) found)->args)->expr : NULL;
}

typedef struct Replacer
{
	List	   *found;
	CallScope	scope;
	bool		guarded;
	int			varno;
	int			first;
} Replacer;

static Node *Replace(Node *node, Replacer *replacer);

/* An aggregate is where the guards of CALLS_OF_AGGREGATES come from. */
static Node *
ReplaceInAggregate(Node *node, Replacer *replacer)
{
	Replacer	inner = *replacer;
	Node	   *copy = copyObject(node);

	inner.guarded = true;
	inner.scope = CALLS_OF_ROWS;
	if (IsA(copy, Aggref))
	{
		Aggref	   *aggref = (Aggref *) copy;

		aggref->args = (List *) Replace((Node *) aggref->args, &inner);
		aggref->aggfilter = (Expr *) Replace((Node *) aggref->aggfilter, &inner);
	}
	else
	{
		WindowFunc *function = (WindowFunc *) copy;

		function->args = (List *) Replace((Node *) function->args, &inner);
		function->aggfilter = (Expr *) Replace((Node *) function->aggfilter, &inner);
	}
	return copy;
}

static Node *
Replace(Node *node, Replacer *replacer)
{
	if (node == NULL)
		return NULL;
	if (IsA(node, Aggref) || IsA(node, WindowFunc))
		return replacer->scope == CALLS_OF_AGGREGATES ? ReplaceInAggregate(node, replacer) : copyObject(node);
	if (replacer->scope == CALLS_OF_ROWS && IsPredictCall(node))
	{
		for (int i = 0; i < list_length(replacer->found); i++)
		{
			Node	   *found = list_nth(replacer->found, i);

			if ((replacer->guarded || FoundGuard(found) == NULL) && equal(FoundCall(found), node))
				return (Node *) makeVar(replacer->varno, replacer->first + i, exprType(node), exprTypmod(node),
										exprCollation(node), 0);
		}
	}
	return expression_tree_mutator(node, Replace, replacer);
}

Node *
ReplacePredictCalls(Node *node, List *found, CallScope scope, bool guarded, int varno, int first)
{
	Replacer	replacer = {found, scope, guarded, varno, first};

	return Replace(node, &replacer);
}
