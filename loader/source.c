/*
 * source.c - what rows come from: a table or view name, or a SELECT.
 *
 * Everything goes through parser, rewriter, planner and executor as the calling role, so that privileges, row
 * security, views, partitions and foreign tables are right by themselves.  A source only reads: a statement that
 * writes or locks rows is refused, since a training is no place to look for that.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/table.h"
#include "catalog/namespace.h"
#include "executor/executor.h"
#include "nodes/makefuncs.h"
#include "parser/parse_node.h"
#include "parser/parse_relation.h"
#include "parser/parser.h"
#include "rewrite/rewriteHandler.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/varlena.h"

#include "extension/compat.h"
#include "loader/loader.h"

struct Source
{
	const char *text;
	const char *option_name;
	RangeVar   *relation;		/* a name: the relation that it stood for; NULL: a SELECT */
	TupleDesc	desc;
	int		   *positions;		/* the columns of a SELECT that are in desc; NULL: all */
};

/* A name as in SQL, of up to three parts?  NIL: it is something else. */
static List *
SplitName(const char *text)
{
	char	   *copy = pstrdup(text);
	List	   *names;

	if (!SplitIdentifierString(copy, '.', &names) || list_length(names) > 3)
		return NIL;
	return names;
}

static RangeVar *
NamedRelation(List *names)
{
	List	   *strings = NIL;
	ListCell   *lc;

	foreach(lc, names)
		strings = lappend(strings, makeString(pstrdup(lfirst(lc))));
	return makeRangeVarFromNameList(strings);
}

static void pg_attribute_noreturn()
NoColumns(const Source *source)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("%s \"%s\" has no columns", source->option_name, source->text)));
}

/*
 * The columns of a relation.  Rights are checked when the source runs; that a column exists is no secret in
 * PostgreSQL.
 */
static void
OpenRelation(Source *source, List *names)
{
	Relation	relation = table_openrv(NamedRelation(names), AccessShareLock);
	TupleDesc	desc = RelationGetDescr(relation);
	int			n = 0;

	source->relation = makeRangeVar(get_namespace_name(RelationGetNamespace(relation)),
									pstrdup(RelationGetRelationName(relation)), -1);
	for (int i = 0; i < desc->natts; i++)
		n += !TupleDescAttr(desc, i)->attisdropped;
	source->desc = CreateTemplateTupleDesc(n);
	n = 0;
	for (int i = 0; i < desc->natts; i++)
		if (!TupleDescAttr(desc, i)->attisdropped)
			TupleDescCopyEntry(source->desc, ++n, desc, i + 1);
	/* The lock is kept, as a query would. */
	table_close(relation, NoLock);
	if (n == 0)
		NoColumns(source);
}

/* Errors in the source's text point into it, not into the statement that called train_model. */
static void
SourceErrorContext(void *arg)
{
	Source	   *source = arg;
	int			position = geterrposition();

	if (position > 0)
	{
		errposition(0);
		internalerrposition(position);
		internalerrquery(source->text);
	}
	else
		errcontext("%s \"%s\"", source->option_name, source->text);
}

static void pg_attribute_noreturn()
RefuseSource(Source *source, const char *why)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("%s must be the name of a table or view, or a SELECT", source->option_name),
			 errdetail("%s", why)));
}

/*
 * Parse and analyse a SELECT.  This is done once to see its columns and again when it is run, since in between
 * anything may happen to its tables, even in this transaction.
 */
static Query *
AnalyseQuery(Source *source)
{
	List	   *statements = pg_parse_query(source->text);
	RawStmt    *statement;
	Query	   *query;

	if (list_length(statements) != 1)
		RefuseSource(source, statements == NIL ? "It is empty." : "It is more than one statement.");
	statement = linitial_node(RawStmt, statements);
	if (!IsA(statement->stmt, SelectStmt))
		RefuseSource(source, "It is another statement.");
	query = CompatParseAnalyze(statement, source->text);

	/* SELECT INTO is analysed to a utility statement. */
	if (query->commandType != CMD_SELECT)
		RefuseSource(source, "SELECT INTO makes a table.");
	if (query->hasModifyingCTE)
		RefuseSource(source, "A statement inside WITH changes data.");
	if (query->rowMarks != NIL)
		RefuseSource(source, "FOR UPDATE and FOR SHARE lock rows, which training does not need.");
	return query;
}

Source *
SourceOpen(const char *text, const char *option_name)
{
	Source	   *source = palloc0(sizeof(Source));
	List	   *names;
	ErrorContextCallback context;

	source->text = pstrdup(text);
	source->option_name = pstrdup(option_name);
	names = SplitName(text);
	if (names != NIL)
	{
		OpenRelation(source, names);
		return source;
	}
	context.callback = SourceErrorContext;
	context.arg = source;
	context.previous = error_context_stack;
	error_context_stack = &context;
	source->desc = ExecCleanTypeFromTL(AnalyseQuery(source)->targetList);
	error_context_stack = context.previous;
	if (source->desc->natts == 0)
		NoColumns(source);
	return source;
}

TupleDesc
SourceDesc(const Source *source)
{
	return source->desc;
}

void
SourceSelect(Source *source, int ncolumns, const int *positions)
{
	TupleDesc	desc = CreateTemplateTupleDesc(ncolumns);

	Assert(source->positions == NULL);
	for (int i = 0; i < ncolumns; i++)
		TupleDescCopyEntry(desc, i + 1, source->desc, positions[i] + 1);
	source->desc = desc;
	source->positions = palloc(sizeof(int) * ncolumns);
	memcpy(source->positions, positions, sizeof(int) * ncolumns);
}

/* The column of a SELECT at a position; columns that it only sorts by are not counted. */
static TargetEntry *
ColumnAt(const Query *query, int position)
{
	ListCell   *lc;

	foreach(lc, query->targetList)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, lc);

		if (!entry->resjunk && position-- == 0)
			return entry;
	}
	return NULL;
}

/* SELECT the columns of desc FROM (the query): the planner drops what is not asked for. */
static Query *
NarrowQuery(Source *source, Query *query)
{
	Query	   *outer = makeNode(Query);
	ParseState *pstate = make_parsestate(NULL);
	RangeTblRef *reference = makeNode(RangeTblRef);

	reference->rtindex = addRangeTableEntryForSubquery(pstate, query, makeAlias("source", NIL), false, true)->p_rtindex;
	outer->commandType = CMD_SELECT;
	outer->querySource = QSRC_ORIGINAL;
	outer->canSetTag = true;
	outer->rtable = pstate->p_rtable;
	outer->jointree = makeFromExpr(list_make1(reference), NULL);
	free_parsestate(pstate);
	for (int i = 0; i < source->desc->natts; i++)
	{
		TargetEntry *entry = ColumnAt(query, source->positions[i]);

		if (entry != NULL)
			outer->targetList =
				lappend(outer->targetList,
						makeTargetEntry((Expr *) makeVarFromTargetEntry(reference->rtindex, entry),
										i + 1, pstrdup(entry->resname), false));
	}
	return outer;
}

/* SELECT the columns of desc FROM the relation. */
static Query *
RelationQuery(Source *source)
{
	SelectStmt *select = makeNode(SelectStmt);
	RawStmt    *statement = makeNode(RawStmt);

	for (int i = 0; i < source->desc->natts; i++)
	{
		ColumnRef  *column = makeNode(ColumnRef);
		ResTarget  *target = makeNode(ResTarget);

		column->fields = list_make1(makeString(pstrdup(NameStr(TupleDescAttr(source->desc, i)->attname))));
		column->location = -1;
		target->val = (Node *) column;
		target->location = -1;
		select->targetList = lappend(select->targetList, target);
	}
	select->fromClause = list_make1(copyObject(source->relation));
	statement->stmt = (Node *) select;
	return CompatParseAnalyze(statement, source->text);
}

static Query *
SourceQuery(Source *source)
{
	Query	   *query;
	TupleDesc	desc;
	bool		same;

	if (source->relation != NULL)
		query = RelationQuery(source);
	else
	{
		query = AnalyseQuery(source);
		if (source->positions != NULL)
			query = NarrowQuery(source, query);
	}
	desc = ExecCleanTypeFromTL(query->targetList);
	same = desc->natts == source->desc->natts;
	for (int i = 0; same && i < desc->natts; i++)
		same = TupleDescAttr(desc, i)->atttypid == TupleDescAttr(source->desc, i)->atttypid;
	if (!same)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("columns of %s changed while the statement ran", source->option_name)));
	return query;
}

static void
RunPlan(PlannedStmt *plan, const char *text, DestReceiver *dest)
{
	QueryDesc  *query = CreateQueryDesc(plan, text, GetActiveSnapshot(), InvalidSnapshot, dest, NULL, NULL, 0);

	ExecutorStart(query, 0);
	CompatExecutorRun(query);
	ExecutorFinish(query);
	ExecutorEnd(query);
	FreeQueryDesc(query);
}

void
SourceRun(Source *source, DestReceiver *dest)
{
	ErrorContextCallback context;
	Query	   *query;
	PlannedStmt *plan;
	int			guc_level;

	/* An error inside the query of the user is told with it; a table's name says nothing more. */
	context.callback = SourceErrorContext;
	context.arg = source;
	context.previous = error_context_stack;
	if (source->relation == NULL)
		error_context_stack = &context;

	query = SourceQuery(source);
	PushCopiedSnapshot(GetActiveSnapshot());
	/* A scan that starts in the middle of a table would make the next run see another order. */
	guc_level = NewGUCNestLevel();
	(void) set_config_option("synchronize_seqscans", "off", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	plan = pg_plan_query(linitial_node(Query, QueryRewrite(query)), source->text, CURSOR_OPT_PARALLEL_OK, NULL);
	RunPlan(plan, source->text, dest);
	AtEOXact_GUC(true, guc_level);
	PopActiveSnapshot();
	error_context_stack = context.previous;
}
