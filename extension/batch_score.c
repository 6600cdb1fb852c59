/*
 * batch_score.c - one call of a batch node: its model, the input of its rows, and their scores.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/typcache.h"

#include "extension/batch_calls.h"
#include "extension/batch_state.h"
#include "extension/classes.h"
#include "extension/compat.h"
#include "extension/report.h"

/*
 * Rows that are scored at least.  The kernels sum in another order for very few rows; a score should not depend on how many
 * others are in its batch, though its last digits may differ from those of the scalar function.
 */
#define MIN_FORWARD_ROWS 8

static bool
LastAttribute(Node *node, AttrNumber *last)
{
	if (node == NULL)
		return false;
	if (IsA(node, Var) && ((Var *) node)->varno == OUTER_VAR)
		*last = Max(*last, ((Var *) node)->varattno);
	return expression_tree_walker(node, LastAttribute, last);
}

static void
CheckExecute(Oid function)
{
	AclResult	result = CompatFunctionAclCheck(function, GetUserId(), ACL_EXECUTE);

	if (result != ACLCHECK_OK)
		aclcheck_error(result, OBJECT_FUNCTION, get_func_name(function));
	InvokeFunctionExecuteHook(function);
}

/* The columns that the scalar function would see in ROW(...). */
static TupleDesc
RowExprDesc(const RowExpr *row)
{
	TupleDesc	desc;

	if (row->row_typeid != RECORDOID)
		return lookup_rowtype_tupdesc_copy(row->row_typeid, -1);
	desc = ExecTypeFromExprList(row->args);
	ExecTypeSetColNames(desc, row->colnames);
	return desc;
}

/* Can ROW(...) be taken column by column?  Not where its type has changed since it was parsed. */
static bool
FitsDesc(const RowExpr *row, TupleDesc desc)
{
	int			i = 0;
	ListCell   *lc;

	if (list_length(row->args) > desc->natts)
		return false;
	foreach(lc, row->args)
	{
		Form_pg_attribute attribute = TupleDescAttr(desc, i++);

		if (!attribute->attisdropped && exprType(lfirst(lc)) != attribute->atttypid)
			return false;
	}
	return true;
}

static bool
InitColumns(BatchState *state, BatchCall *call, const RowExpr *row)
{
	BatchColumns *columns = &call->columns;
	int			i = 0;
	ListCell   *lc;

	columns->desc = RowExprDesc(row);
	if (!FitsDesc(row, columns->desc))
		return false;
	columns->natts = columns->desc->natts;
	columns->attributes = palloc0(sizeof(AttrNumber) * columns->natts);
	columns->expressions = palloc0(sizeof(ExprState *) * columns->natts);
	columns->values = palloc0(sizeof(Datum) * columns->natts);
	columns->nulls = palloc(sizeof(bool) * columns->natts);
	memset(columns->nulls, true, sizeof(bool) * columns->natts);
	foreach(lc, row->args)
	{
		Expr	   *arg = lfirst(lc);

		if (IsA(arg, Var) && ((Var *) arg)->varattno > 0)
			columns->attributes[i] = ((Var *) arg)->varattno;
		else
			columns->expressions[i] = ExecInitExpr(arg, &state->css.ss.ps);
		i++;
	}
	return true;
}

void
BatchCallInit(BatchState *state, BatchCall *call, Node *found)
{
	PlanState  *parent = &state->css.ss.ps;
	Expr	   *guard = FoundGuard(found);
	Expr	   *input;

	call->expr = FoundCall(found);
	CheckExecute(call->expr->funcid);
	call->kind = PredictCallKind(call->expr);
	call->reference = ExecInitExpr(PredictCallModel(call->expr), parent);
	if (guard != NULL)
		call->guard = ExecInitExpr(guard, parent);
	input = PredictCallInput(call->expr);
	if (IsA(input, RowExpr) && InitColumns(state, call, (RowExpr *) input))
		call->input_kind = INPUT_COLUMNS;
	else
	{
		call->input_kind = exprType((Node *) input) == FLOAT4ARRAYOID ? INPUT_ARRAY : INPUT_RECORD;
		call->input = ExecInitExpr(input, parent);
	}
	LastAttribute(found, &state->last_attribute);
}

/*
 * Let the binding refer to the child's row if all features are columns of it, so that nothing is copied.  Columns that are
 * no features are not read then.
 */
static void
BindColumns(BatchCall *call)
{
	BatchColumns *columns = &call->columns;

	columns->binding = RowBindingCreate(call->model->version, columns->desc);
	columns->direct = true;
	for (int i = 0; i < columns->natts; i++)
		if (columns->expressions[i] != NULL && !IsA(columns->expressions[i]->expr, Const))
			columns->direct = false;
	for (int i = 0; i < columns->binding->ncolumns; i++)
		if (columns->attributes[columns->binding->attributes[i]] == 0)
			columns->direct = false;
	for (int i = 0; columns->direct && i < columns->binding->ncolumns; i++)
		columns->binding->attributes[i] = columns->attributes[columns->binding->attributes[i]] - 1;
}

/* The classes as values to be returned. */
static Datum *
ClassTexts(const CachedModel *model)
{
	Datum	   *texts = palloc(sizeof(Datum) * model->nclasses);

	for (int i = 0; i < model->nclasses; i++)
		texts[i] = CStringGetTextDatum(model->version->classes[i]);
	return texts;
}

/* Rows of a batch that work_mem allows, with the models known so far. */
static int
RowsInWorkMem(const BatchState *state)
{
	Size		row = (sizeof(Datum) + sizeof(bool)) * state->ncolumns;

	for (int i = 0; i < state->ncalls; i++)
	{
		const CachedModel *model = state->calls[i].model;

		if (model != NULL)
			row += sizeof(float) * (model->version->encoders->input_width + model->version->outputs);
	}
	return Max(1, Min(MAX_BATCH_ROWS, state->work_bytes / row));
}

/* Find the model, on behalf of the current role. */
static void
AcquireModel(BatchState *state, BatchCall *call, const char *reference)
{
	CachedModel *before = call->model;
	const ModelVersion *version;
	MemoryContext old;

	call->model = NULL;
	if (before != NULL)
	{
		ModelCacheRelease(before);
		MemoryContextDelete(call->context);
	}
	call->context = AllocSetContextCreate(state->context, "pg_train scoring model", ALLOCSET_SMALL_SIZES);
	call->model = ModelCacheAcquire(reference, Max(state->limit, MIN_FORWARD_ROWS));
	call->role = GetUserId();
	version = call->model->version;
	PredictionCheck(call->kind, call->model);

	state->limit = Min(state->limit, RowsInWorkMem(state));
	state->target = Min(state->target, state->limit);
	old = MemoryContextSwitchTo(call->context);
	RowReaderInit(&call->reader, version, call->context);
	if (call->input_kind == INPUT_COLUMNS)
		BindColumns(call);
	if (call->kind == PREDICT_CLASS)
		call->class_texts = ClassTexts(call->model);
	call->allocated = Max(state->limit, MIN_FORWARD_ROWS);
	call->x = palloc_extended(sizeof(float) * call->allocated * version->encoders->input_width, MCXT_ALLOC_HUGE);
	call->y = palloc_extended(sizeof(float) * call->allocated * version->outputs, MCXT_ALLOC_HUGE);
	MemoryContextSwitchTo(old);
}

/* Fill columns->values from the child's row. */
static void
EvaluateColumns(BatchColumns *columns, TupleTableSlot *slot, ExprContext *econtext)
{
	for (int i = 0; i < columns->natts; i++)
	{
		AttrNumber	attribute = columns->attributes[i];

		if (attribute > 0)
		{
			columns->values[i] = slot->tts_values[attribute - 1];
			columns->nulls[i] = slot->tts_isnull[attribute - 1];
		}
		else if (columns->expressions[i] != NULL)
			columns->values[i] = ExecEvalExpr(columns->expressions[i], econtext, &columns->nulls[i]);
	}
}

/*
 * Work out the arguments of the scalar function, in its order.  False: one of them is NULL, or the guard does not hold.
 */
static bool
EvaluateArguments(BatchCall *call, TupleTableSlot *slot, ExprContext *econtext, Datum *reference, Datum *input)
{
	bool		isnull;

	if (call->guard != NULL && (!DatumGetBool(ExecEvalExpr(call->guard, econtext, &isnull)) || isnull))
		return false;
	/* It is the same for all rows. */
	isnull = false;
	if (call->model == NULL)
		*reference = ExecEvalExpr(call->reference, econtext, &isnull);
	*input = (Datum) 0;
	if (call->input_kind == INPUT_COLUMNS)
	{
		if (!call->columns.direct)
			EvaluateColumns(&call->columns, slot, econtext);
	}
	else
	{
		bool		input_isnull;

		*input = ExecEvalExpr(call->input, econtext, &input_isnull);
		isnull |= input_isnull;
	}
	return !isnull;
}

/* Encode the input into x, or raise the ERROR that it has if raise is set. */
static EncodedRow
EncodeInput(BatchCall *call, TupleTableSlot *slot, Datum input, float *x, bool raise)
{
	EncodedRow	result = ROW_INVALID;

	switch (call->input_kind)
	{
		case INPUT_COLUMNS:
			{
				const BatchColumns *columns = &call->columns;
				const Datum *values = columns->direct ? slot->tts_values : columns->values;
				const bool *nulls = columns->direct ? slot->tts_isnull : columns->nulls;

				result = RowBindingTryEncode(columns->binding, values, nulls, x);
				if (result == ROW_INVALID && raise)
					RowBindingReport(columns->binding, values, nulls);
				break;
			}
		case INPUT_RECORD:
			{
				HeapTupleHeader row = DatumGetHeapTupleHeader(input);

				if (!RowReaderKnows(&call->reader, row))
				{
					if (!raise)
						return ROW_INVALID;
					RowReaderBind(&call->reader, row);
				}
				result = RowReaderEncode(&call->reader, row, x);
				if (result == ROW_INVALID && raise)
					RowBindingReport(call->reader.binding, call->reader.values, call->reader.nulls);
				break;
			}
		case INPUT_ARRAY:
			{
				ArrayType  *array = DatumGetArrayTypeP(input);

				result = FeatureArrayTryEncode(call->model->version, array, x);
				if (result == ROW_INVALID && raise)
					FeatureArrayReport(call->model->version, array);
				break;
			}
	}
	return result;
}

bool
BatchCallEncode(BatchState *state, BatchCall *call, TupleTableSlot *slot, int row)
{
	ExprContext *econtext = state->css.ss.ps.ps_ExprContext;
	Datum		reference = (Datum) 0;
	Datum		input;
	bool		isnull;

	call->places[row] = -1;
	if (!EvaluateArguments(call, slot, econtext, &reference, &input))
		return true;
	if (unlikely(call->model == NULL || call->role != GetUserId()))
	{
		if (row > 0)
			return false;
		if (call->model != NULL)
			reference = ExecEvalExpr(call->reference, econtext, &isnull);
		AcquireModel(state, call, TextDatumGetCString(reference));
		/* What the columns are bound to decides how they are read. */
		if (call->input_kind == INPUT_COLUMNS && !call->columns.direct)
			EvaluateColumns(&call->columns, slot, econtext);
	}
	switch (EncodeInput(call, slot, input, call->x + (Size) call->rows * call->model->version->encoders->input_width,
						row == 0))
	{
		case ROW_ENCODED:
			call->places[row] = call->rows++;
			return true;
		case ROW_HAS_NULL:
			return true;
		case ROW_INVALID:
			return false;
	}
	pg_unreachable();
}

static Datum
ResultDatum(const BatchCall *call, int place)
{
	const ModelVersion *version = call->model->version;
	const float *outputs = call->y + (Size) place * version->outputs;

	if (call->kind == PREDICT_CLASS)
		return call->class_texts[MostProbableClass(version, outputs)];
	return PredictionDatum(call->kind, call->model, outputs);
}

/* The forward pass over x, in turns so that a large network can be interrupted. */
static void
Forward(BatchCall *call)
{
	const ModelVersion *version = call->model->version;
	Size		width = version->encoders->input_width;
	int			rows = Min(Max(call->rows, MIN_FORWARD_ROWS), call->allocated);
	Error		err;

	memset(call->x + call->rows * width, 0, sizeof(float) * (rows - call->rows) * width);
	for (int done = 0; done < rows; done += call->model->max_rows)
	{
		CHECK_FOR_INTERRUPTS();
		if (model_forward(call->model->model, Min(call->model->max_rows, rows - done),
						  call->x + done * width, call->y + (Size) done * version->outputs, &err) != STATUS_OK)
			ReportError(&err);
	}
}

void
BatchCallScore(BatchState *state, BatchCall *call, int column)
{
	if (call->rows > 0)
		Forward(call);
	for (int row = 0; row < state->rows; row++)
	{
		Size		at = (Size) row * state->ncolumns + column;
		int			place = call->places[row];

		state->nulls[at] = place < 0;
		state->values[at] = place < 0 ? (Datum) 0 : ResultDatum(call, place);
	}
	state->counts.scored += call->rows;
	call->rows = 0;
}
