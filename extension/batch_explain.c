/*
 * batch_explain.c - what EXPLAIN says of a batch node.
 */
#include "postgres.h"

#include "nodes/extensible.h"
#include "utils/builtins.h"
#include "utils/ruleutils.h"

#include "extension/batch.h"
#include "extension/batch_calls.h"
#include "extension/batch_state.h"
#include "extension/compat.h"

static char *
ModelReferenceText(Expr *reference, List *context)
{
	if (IsA(reference, Const) && !((Const *) reference)->constisnull)
		return TextDatumGetCString(((Const *) reference)->constvalue);
	return deparse_expression((Node *) reference, context, false, false);
}

/* The call, with the condition on which it is evaluated. */
static char *
CallText(Node *found, List *context)
{
	char	   *call = deparse_expression((Node *) FoundCall(found), context, true, false);
	Expr	   *guard = FoundGuard(found);

	if (guard == NULL)
		return call;
	return psprintf("%s WHERE %s", call, deparse_expression((Node *) guard, context, true, false));
}

/* The models, with their versions once they are known; before that, as the calls have them. */
static List *
ModelNames(const BatchState *state, List *context)
{
	List	   *names = NIL;

	for (int i = 0; i < state->ncalls; i++)
	{
		const BatchCall *call = &state->calls[i];
		const char *name;
		bool		listed = false;
		ListCell   *lc;

		if (call->model != NULL)
			name = psprintf("%s@%d", call->model->version->name, call->model->version->version);
		else
			name = ModelReferenceText(PredictCallModel(call->expr), context);
		foreach(lc, names)
			listed |= strcmp(lfirst(lc), name) == 0;
		if (!listed)
			names = lappend(names, (char *) name);
	}
	return names;
}

void
BatchExplain(CustomScanState *node, List *ancestors, ExplainState *es)
{
	BatchState *state = (BatchState *) node;
	CustomScan *plan = (CustomScan *) node->ss.ps.plan;
	List	   *context = set_deparse_context_plan(es->deparse_cxt, node->ss.ps.plan, ancestors);

	if (es->verbose)
	{
		List	   *calls = NIL;

		for (int i = 0; i < state->ncalls; i++)
		{
			TargetEntry *column = list_nth(plan->custom_scan_tlist, state->nkept + i);

			calls = lappend(calls, CallText((Node *) column->expr, context));
		}
		ExplainPropertyList("Calls", calls, es);
	}
	else
		ExplainPropertyInteger("Calls", NULL, state->ncalls, es);
	ExplainPropertyList("Model", ModelNames(state, context), es);
	ExplainPropertyInteger("Batch Size", NULL, state->limit, es);
	ExplainPropertyText("Device", "cpu", es);
	if (!es->analyze)
		return;
	ExplainPropertyInteger("Batches", NULL, state->counts.batches, es);
	ExplainPropertyInteger("Rows Scored", NULL, state->counts.scored, es);
	if (es->timing)
		ExplainPropertyFloat("Scoring Time", "ms", INSTR_TIME_GET_MILLISEC(state->counts.scoring), 3, es);
}
