/*
 * score_source.c - run a source, score its rows in batches.
 */
#include "postgres.h"

#include <math.h>

#include "executor/tuptable.h"
#include "miscadmin.h"
#include "tcop/dest.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "extension/report.h"
#include "extension/row_binding.h"
#include "extension/score_source.h"
#include "extension/stored_network.h"
#include "loader/labels.h"
#include "loader/loader.h"
#include "loader/number.h"

#define MAX_BATCH_ROWS 256

struct SourceScorer
{
	DestReceiver receiver;		/* first: the executor's view of this */
	ModelVersion *version;
	Model	   *model;
	Source	   *source;
	RowBinding *binding;
	int			target;			/* index of the target's column */
	Oid			target_type;
	int			nneeded;		/* leading attributes of a row that have to be read */
	LabelMap   *labels;
	MemoryContext per_row;

	ScoredRowVisitor visit;
	void	   *arg;

	int			max_rows;
	int			rows;			/* in the batch */
	float	   *input;			/* [max_rows][input_width] */
	float	   *output;			/* [max_rows][outputs] */
	ScoredRow  *batch;			/* [max_rows] */

	int64		scored;
	int64		without_target;
	int64		without_feature;
};

static void
BindTarget(SourceScorer *scorer, TupleDesc desc)
{
	const ModelVersion *version = scorer->version;
	Form_pg_attribute attribute;

	scorer->target = FindColumn(desc, version->target);
	if (scorer->target < 0)
	{
		const char *nearest = NearestColumn(desc, version->target);

		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("source has no column \"%s\", the target of model \"%s\"", version->target, version->name),
				 nearest == NULL ? 0 : errhint("Perhaps its column \"%s\" is meant: name it \"%s\" in a SELECT.",
											   nearest, version->target)));
	}
	attribute = TupleDescAttr(desc, scorer->target);
	scorer->target_type = getBaseType(attribute->atttypid);
	if (version->task == TASK_CLASSIFICATION)
		scorer->labels = LabelMapCreate(version, attribute->atttypid);
	else if (!IsNumberType(scorer->target_type))
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("target \"%s\" of a regression must be a number, not of type %s", version->target,
						format_type_with_typemod(attribute->atttypid, attribute->atttypmod))));
}

SourceScorer *
SourceScorerCreate(const char *reference, const char *source)
{
	SourceScorer *scorer = palloc0(sizeof(SourceScorer));
	ModelReference resolved;
	TupleDesc	desc;

	CatalogResolve(reference, &resolved);
	CatalogCheckUse(&resolved);
	scorer->version = CatalogReadVersion(&resolved);

	scorer->source = SourceOpen(source, "source");
	desc = SourceDesc(scorer->source);
	scorer->binding = RowBindingCreate(scorer->version, desc);
	BindTarget(scorer, desc);
	scorer->nneeded = Max(scorer->binding->nneeded, scorer->target + 1);

	scorer->max_rows = NetworkBatchRows(scorer->version, MAX_BATCH_ROWS);
	scorer->model = NetworkLoad(&resolved, scorer->version, scorer->max_rows, CurrentMemoryContext);
	scorer->input = palloc_extended(sizeof(float) * scorer->max_rows * scorer->binding->input_width,
									MCXT_ALLOC_HUGE);
	scorer->output = palloc_extended(sizeof(float) * scorer->max_rows * scorer->version->outputs, MCXT_ALLOC_HUGE);
	scorer->batch = palloc(sizeof(ScoredRow) * scorer->max_rows);
	scorer->per_row = AllocSetContextCreate(CurrentMemoryContext, "pg_train evaluated row", ALLOCSET_DEFAULT_SIZES);
	return scorer;
}

const ModelVersion *
SourceScorerVersion(const SourceScorer *scorer)
{
	return scorer->version;
}

LabelMap *
SourceScorerLabels(const SourceScorer *scorer)
{
	return scorer->labels;
}

static void
ScoreBatch(SourceScorer *scorer)
{
	Error		err;

	CHECK_FOR_INTERRUPTS();
	if (model_forward(scorer->model, scorer->rows, scorer->input, scorer->output, &err) != STATUS_OK)
		ReportError(&err);
	for (int i = 0; i < scorer->rows; i++)
	{
		scorer->batch[i].output = scorer->output + (Size) i * scorer->version->outputs;
		scorer->visit(scorer->arg, &scorer->batch[i]);
	}
	scorer->scored += scorer->rows;
	scorer->rows = 0;
}

static void
EncodeTarget(SourceScorer *scorer, Datum value, ScoredRow *row)
{
	if (scorer->version->task == TASK_CLASSIFICATION)
		row->actual_class = LabelMapCode(scorer->labels, value);
	else
	{
		row->actual_value = NumberToDouble(scorer->target_type, value);
		if (!isfinite(row->actual_value))
			ereport(ERROR,
					(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
					 errmsg("target \"%s\" is not finite", scorer->version->target)));
	}
}

static bool
ReceiveRow(TupleTableSlot *slot, DestReceiver *self)
{
	SourceScorer *scorer = (SourceScorer *) self;
	MemoryContext old;

	slot_getsomeattrs(slot, scorer->nneeded);
	if (slot->tts_isnull[scorer->target])
	{
		scorer->without_target++;
		return true;
	}

	old = MemoryContextSwitchTo(scorer->per_row);
	if (RowBindingEncode(scorer->binding, slot->tts_values, slot->tts_isnull,
						 scorer->input + (Size) scorer->rows * scorer->binding->input_width))
	{
		EncodeTarget(scorer, slot->tts_values[scorer->target], &scorer->batch[scorer->rows]);
		scorer->rows++;
	}
	else
		scorer->without_feature++;
	MemoryContextSwitchTo(old);
	MemoryContextReset(scorer->per_row);

	if (scorer->rows == scorer->max_rows)
		ScoreBatch(scorer);
	return true;
}

static void
StartupReceiver(DestReceiver *self, int operation, TupleDesc desc)
{
}

static void
ShutdownReceiver(DestReceiver *self)
{
}

void
SourceScorerRun(SourceScorer *scorer, ScoredRowVisitor visit, void *arg)
{
	int64		skipped;

	scorer->visit = visit;
	scorer->arg = arg;
	scorer->receiver.receiveSlot = ReceiveRow;
	scorer->receiver.rStartup = StartupReceiver;
	scorer->receiver.rShutdown = ShutdownReceiver;
	scorer->receiver.rDestroy = ShutdownReceiver;
	scorer->receiver.mydest = DestNone;
	SourceRun(scorer->source, &scorer->receiver);
	if (scorer->rows > 0)
		ScoreBatch(scorer);

	skipped = scorer->without_target + scorer->without_feature;
	if (scorer->scored == 0)
		ereport(ERROR,
				(errcode(ERRCODE_NO_DATA_FOUND),
				 errmsg("source has no rows to evaluate model \"%s\" on", scorer->version->name),
				 skipped == 0 ? 0 :
				 errdetail("Null targets: %lld; null features: %lld.",
						   (long long) scorer->without_target, (long long) scorer->without_feature)));
	if (skipped > 0)
		ereport(NOTICE,
				(errmsg_plural("%lld row left out", "%lld rows left out", skipped, (long long) skipped),
				 errdetail("Null targets: %lld; null features: %lld.",
						   (long long) scorer->without_target, (long long) scorer->without_feature)));
}
