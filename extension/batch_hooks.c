/*
 * batch_hooks.c - where plans are rewritten: when they are made, or else when they are executed.
 *
 * The first statement of a session that scores loads this library while it is planned, too late for planner_hook.  It is
 * rewritten as it starts, on a copy since the plan may be kept for further executions.
 */
#include "postgres.h"

#include "executor/executor.h"
#include "optimizer/planner.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/plancache.h"

#include "extension/batch.h"
#include "extension/batch_calls.h"
#include "extension/compat.h"

bool		batch_scoring = true;

static planner_hook_type previous_planner = NULL;
static ExecutorStart_hook_type previous_start = NULL;

static PlannedStmt *
PlanInBatches(Query *query, const char *text, int cursor_options, ParamListInfo params)
{
	PlannedStmt *stmt;
	int			flags = 0;

	if (previous_planner != NULL)
		stmt = previous_planner(query, text, cursor_options, params);
	else
		stmt = standard_planner(query, text, cursor_options, params);
	if (!batch_scoring)
		return stmt;
	if (cursor_options & CURSOR_OPT_SCROLL)
		flags |= REWRITE_BACKWARD;
	/* This is how DECLARE CURSOR plans.  Without a word about scrolling, a cursor scrolls if its plan can. */
	if (cursor_options & CURSOR_OPT_FAST_PLAN)
		flags |= REWRITE_MAY_STOP | ((cursor_options & CURSOR_OPT_NO_SCROLL) ? 0 : REWRITE_BACKWARD_IF_ABLE);
	return BatchRewrite(stmt, flags);
}

static void
StartInBatches(QueryDesc *query, int eflags)
{
	if (batch_scoring)
	{
		MemoryContext old = MemoryContextSwitchTo(GetMemoryChunkContext(query));

		query->plannedstmt = BatchRewrite(query->plannedstmt,
										  REWRITE_COPY | ((eflags & EXEC_FLAG_BACKWARD) ? REWRITE_BACKWARD : 0));
		MemoryContextSwitchTo(old);
	}
	if (previous_start != NULL)
		previous_start(query, eflags);
	else
		standard_ExecutorStart(query, eflags);
}

/* Plans that are kept were made for the setting as it was. */
static void
AssignBatchScoring(bool value, void *extra)
{
	if (value != batch_scoring)
		ResetPlanCache();
}

void
BatchInit(void)
{
	DefineCustomBoolVariable("pg_train.batch_scoring",
							 "Lets predict, predict_class and predict_proba score many rows at a time.",
							 "Plans that call them are given a node that collects rows.",
							 &batch_scoring,
							 true,
							 PGC_USERSET, 0,
							 NULL, AssignBatchScoring, NULL);
	BatchCallsInit();
	BatchNodeRegister();
	previous_planner = planner_hook;
	planner_hook = PlanInBatches;
	previous_start = ExecutorStart_hook;
	ExecutorStart_hook = StartInBatches;
}
