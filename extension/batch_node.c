/*
 * batch_node.c - the executor node that scores rows in batches.
 *
 * It collects rows of its child, keeping the columns that somebody above still needs, encodes the input of each call
 * while the row is at hand, runs one forward pass a call over the whole batch, and hands the rows on in their order with
 * the results as columns.  Qual and target list of the node see both.
 *
 * A row whose input is no good ends the batch before it: the rows before are handed on first, then the row begins the next
 * batch and raises its error.  So a query that stops before that row never sees the error, as with the scalar function.
 */
#include "postgres.h"

#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/extensible.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "extension/batch.h"
#include "extension/batch_calls.h"
#include "extension/batch_state.h"

static Node *CreateState(CustomScan *node);

static const CustomScanMethods scan_methods = {
	.CustomName = "PredictBatch",
	.CreateCustomScanState = CreateState
};

void
BatchNodeRegister(void)
{
	RegisterCustomScanMethods(&scan_methods);
}

bool
IsBatchNode(const Plan *plan)
{
	return plan != NULL && IsA(plan, CustomScan) && ((const CustomScan *) plan)->methods == &scan_methods;
}

/* custom_private: how many columns are kept, and how many rows will be asked for (0: unknown). */
CustomScan *
BatchNodeCreate(Plan *child, List *keep, List *found, int plan_node_id, bool in_workers)
{
	CustomScan *node = makeNode(CustomScan);
	Plan	   *plan = &node->scan.plan;
	ListCell   *lc;

	plan->startup_cost = child->startup_cost;
	plan->total_cost = child->total_cost;
	plan->plan_rows = child->plan_rows;
	plan->plan_width = child->plan_width;
	plan->parallel_safe = child->parallel_safe;
	plan->parallel_aware = in_workers;
	plan->plan_node_id = plan_node_id;
	plan->lefttree = child;
	/* Init plans belong to the topmost node that uses them. */
	plan->initPlan = child->initPlan;
	child->initPlan = NIL;
	plan->extParam = bms_copy(child->extParam);
	plan->allParam = bms_copy(child->allParam);

	foreach(lc, keep)
	{
		TargetEntry *column = list_nth(child->targetlist, lfirst_int(lc) - 1);
		Var		   *var = makeVarFromTargetEntry(OUTER_VAR, column);

		node->custom_scan_tlist = lappend(node->custom_scan_tlist,
										  makeTargetEntry((Expr *) var, list_length(node->custom_scan_tlist) + 1,
														  NULL, false));
	}
	foreach(lc, found)
		node->custom_scan_tlist = lappend(node->custom_scan_tlist,
										  makeTargetEntry(copyObject(lfirst(lc)),
														  list_length(node->custom_scan_tlist) + 1, NULL, false));
	node->custom_private = list_make2(makeInteger(list_length(keep)), makeInteger(0));
	node->methods = &scan_methods;
	return node;
}

void
BatchNodeBound(CustomScan *node, int64 rows)
{
	if (rows > 0 && rows < PG_INT32_MAX)
		lsecond(node->custom_private) = makeInteger((int) rows);
}

/* The query has ended: its memory goes by itself, the models are given back. */
static void
ReleaseModels(void *arg)
{
	BatchState *state = arg;

	for (int i = 0; i < state->ncalls; i++)
	{
		if (state->calls[i].model != NULL)
			ModelCacheRelease(state->calls[i].model);
		state->calls[i].model = NULL;
	}
}

static void
InitKept(BatchState *state, const List *tlist)
{
	state->kept = palloc(sizeof(AttrNumber) * (state->nkept + 1));
	state->kept_length = palloc(sizeof(int16) * (state->nkept + 1));
	state->kept_by_value = palloc(sizeof(bool) * (state->nkept + 1));
	state->all_by_value = true;
	for (int i = 0; i < state->nkept; i++)
	{
		const Var  *var = castNode(Var, ((TargetEntry *) list_nth(tlist, i))->expr);

		state->kept[i] = var->varattno;
		get_typlenbyval(var->vartype, &state->kept_length[i], &state->kept_by_value[i]);
		state->all_by_value &= state->kept_by_value[i];
		state->last_attribute = Max(state->last_attribute, var->varattno);
	}
}

static void
BeginBatch(CustomScanState *node, EState *estate, int eflags)
{
	BatchState *state = (BatchState *) node;
	CustomScan *plan = (CustomScan *) node->ss.ps.plan;
	MemoryContextCallback *release;

	/* Whoever wants to go back has put a Material node above. */
	outerPlanState(node) = ExecInitNode(outerPlan(plan), estate, eflags & ~(EXEC_FLAG_BACKWARD | EXEC_FLAG_MARK));
	/* A sort below, which LIMIT cannot see through this node, need keep no more rows than that. */
	state->bound = intVal(lsecond(plan->custom_private));
	if (state->bound > 0)
		ExecSetTupleBound(state->bound, outerPlanState(node));

	state->context = AllocSetContextCreate(estate->es_query_cxt, "pg_train batch node", ALLOCSET_SMALL_SIZES);
	state->batch_context = AllocSetContextCreate(state->context, "pg_train batch", ALLOCSET_DEFAULT_SIZES);
	state->work_bytes = (Size) work_mem * 1024;
	state->nkept = intVal(linitial(plan->custom_private));
	state->ncolumns = list_length(plan->custom_scan_tlist);
	InitKept(state, plan->custom_scan_tlist);

	state->ncalls = state->ncolumns - state->nkept;
	state->calls = palloc0(sizeof(BatchCall) * state->ncalls);
	for (int i = 0; i < state->ncalls; i++)
		BatchCallInit(state, &state->calls[i],
					  (Node *) ((TargetEntry *) list_nth(plan->custom_scan_tlist, state->nkept + i))->expr);
	release = MemoryContextAllocZero(state->context, sizeof(MemoryContextCallback));
	release->func = ReleaseModels;
	release->arg = state;
	MemoryContextRegisterResetCallback(state->context, release);

	state->limit = state->bound > 0 ? Min(state->bound, MAX_BATCH_ROWS) : MAX_BATCH_ROWS;
	state->target = Min(FIRST_BATCH_ROWS, state->limit);
}

/* Make room for as many rows as the next batch should have. */
static void
AllocateRows(BatchState *state)
{
	MemoryContext old = MemoryContextSwitchTo(state->context);
	int			rows = state->target;

	if (state->allocated > 0)
	{
		pfree(state->values);
		pfree(state->nulls);
	}
	state->values = palloc_extended(sizeof(Datum) * rows * state->ncolumns, MCXT_ALLOC_HUGE);
	state->nulls = palloc_extended(sizeof(bool) * rows * state->ncolumns, MCXT_ALLOC_HUGE);
	for (int i = 0; i < state->ncalls; i++)
	{
		if (state->allocated > 0)
			pfree(state->calls[i].places);
		state->calls[i].places = palloc(sizeof(int) * rows);
	}
	state->allocated = rows;
	MemoryContextSwitchTo(old);
}

/* Encode the inputs of all calls from a row of the child; false: the row has to begin a batch. */
static bool
EncodeRow(BatchState *state, TupleTableSlot *slot, int row)
{
	ExprContext *econtext = state->css.ss.ps.ps_ExprContext;
	MemoryContext old;
	int			i;

	ResetExprContext(econtext);
	econtext->ecxt_outertuple = slot;
	old = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);
	for (i = 0; i < state->ncalls; i++)
		if (!BatchCallEncode(state, &state->calls[i], slot, row))
			break;
	MemoryContextSwitchTo(old);
	if (i == state->ncalls)
		return true;

	while (--i >= 0)
		if (state->calls[i].places[row] >= 0)
			state->calls[i].rows--;
	return false;
}

static void
KeepColumns(BatchState *state, TupleTableSlot *slot, int row)
{
	Datum	   *values = state->values + (Size) row * state->ncolumns;
	bool	   *nulls = state->nulls + (Size) row * state->ncolumns;

	for (int i = 0; i < state->nkept; i++)
	{
		int			attribute = state->kept[i] - 1;

		values[i] = slot->tts_values[attribute];
		nulls[i] = slot->tts_isnull[attribute];
	}
	if (!state->all_by_value)
	{
		MemoryContext old = MemoryContextSwitchTo(state->batch_context);

		for (int i = 0; i < state->nkept; i++)
			if (!state->kept_by_value[i] && !nulls[i])
				values[i] = datumCopy(values[i], false, state->kept_length[i]);
		MemoryContextSwitchTo(old);
	}
}

static void
CollectRows(BatchState *state)
{
	int			row = 0;
	int			target = state->target;

	if (state->bound > 0)
		target = Min(target, Max(state->bound - state->collected, 1));
	while (row < target)
	{
		TupleTableSlot *slot = state->pending;

		if (slot == NULL)
			slot = ExecProcNode(outerPlanState(state));
		state->pending = NULL;
		if (TupIsNull(slot))
		{
			state->ended = true;
			break;
		}
		slot_getsomeattrs(slot, state->last_attribute);
		if (!EncodeRow(state, slot, row))
		{
			state->pending = slot;
			break;
		}
		KeepColumns(state, slot, row);
		row++;
		/* Columns may be wide. */
		if (MemoryContextMemAllocated(state->batch_context, false) > state->work_bytes)
			break;
	}
	state->rows = row;
	state->collected += row;
}

static void
FillBatch(BatchState *state)
{
	MemoryContext old;
	instr_time	start;
	instr_time	end;

	ExecClearTuple(state->css.ss.ss_ScanTupleSlot);
	MemoryContextReset(state->batch_context);
	state->rows = 0;
	state->next = 0;
	for (int i = 0; i < state->ncalls; i++)
		state->calls[i].rows = 0;
	if (state->ended)
		return;
	if (state->target > state->allocated)
		AllocateRows(state);
	CollectRows(state);
	if (state->rows == 0)
		return;

	INSTR_TIME_SET_CURRENT(start);
	old = MemoryContextSwitchTo(state->batch_context);
	for (int i = 0; i < state->ncalls; i++)
		BatchCallScore(state, &state->calls[i], state->nkept + i);
	MemoryContextSwitchTo(old);
	INSTR_TIME_SET_CURRENT(end);
	INSTR_TIME_ACCUM_DIFF(state->counts.scoring, end, start);
	state->counts.batches++;
	state->target = Min(2 * state->target, state->limit);
}

static TupleTableSlot *
ExecBatch(CustomScanState *node)
{
	BatchState *state = (BatchState *) node;
	ExprContext *econtext = node->ss.ps.ps_ExprContext;
	TupleTableSlot *slot = node->ss.ss_ScanTupleSlot;

	for (;;)
	{
		Size		at;

		CHECK_FOR_INTERRUPTS();
		if (state->next >= state->rows)
		{
			FillBatch(state);
			if (state->rows == 0)
				return NULL;
		}
		at = (Size) state->next++ * state->ncolumns;
		ExecClearTuple(slot);
		memcpy(slot->tts_values, state->values + at, sizeof(Datum) * state->ncolumns);
		memcpy(slot->tts_isnull, state->nulls + at, sizeof(bool) * state->ncolumns);
		ExecStoreVirtualTuple(slot);

		ResetExprContext(econtext);
		econtext->ecxt_scantuple = slot;
		if (node->ss.ps.qual != NULL && !ExecQual(node->ss.ps.qual, econtext))
			InstrCountFiltered1(node, 1);
		else if (node->ss.ps.ps_ProjInfo != NULL)
			return ExecProject(node->ss.ps.ps_ProjInfo);
		else
			return slot;
	}
}

static void
EndBatch(CustomScanState *node)
{
	ExecEndNode(outerPlanState(node));
}

static void
ReScanBatch(CustomScanState *node)
{
	BatchState *state = (BatchState *) node;

	ExecClearTuple(node->ss.ss_ScanTupleSlot);
	state->rows = 0;
	state->next = 0;
	state->ended = false;
	state->collected = 0;
	state->pending = NULL;
	state->target = Min(FIRST_BATCH_ROWS, state->limit);
	if (outerPlanState(node)->chgParam == NULL)
		ExecReScan(outerPlanState(node));
}

static const CustomExecMethods exec_methods = {
	.CustomName = "PredictBatch",
	.BeginCustomScan = BeginBatch,
	.ExecCustomScan = ExecBatch,
	.EndCustomScan = EndBatch,
	.ReScanCustomScan = ReScanBatch,
	.EstimateDSMCustomScan = BatchSharedSize,
	.InitializeDSMCustomScan = BatchSharedInit,
	.ReInitializeDSMCustomScan = BatchSharedReInit,
	.InitializeWorkerCustomScan = BatchSharedAttach,
	.ShutdownCustomScan = BatchShutdown,
	.ExplainCustomScan = BatchExplain
};

static Node *
CreateState(CustomScan *node)
{
	BatchState *state = (BatchState *) newNode(sizeof(BatchState), T_CustomScanState);

	state->css.methods = &exec_methods;
	return (Node *) state;
}
