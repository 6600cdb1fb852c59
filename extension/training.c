/*
 * training.c - one training run: the engine's side of train_model, from the first row to the last weight.
 */
#include "postgres.h"

#include <math.h>

#include "lib/stringinfo.h"
#include "utils/memutils.h"

#include "engine/ring.h"
#include "extension/catalog.h"
#include "extension/settings.h"
#include "extension/training.h"

struct TrainingRun
{
	RowSink		sink;			/* first: the loader knows only this */
	EngineProcess *engine;
	TrainingPrepare prepare;
	void	   *prepare_arg;
	int32		input_width;
	void	   *ring;
	Size		slot_bytes;
	uint32		free_slots;		/* bit i: slot i is ours */
	uint32		slot;			/* that the loader fills */
};

static void
SinkStart(RowSink *sink, const RecordLayout *layout, TargetKind kind)
{
	TrainingRun *run = (TrainingRun *) sink;
	DatasetSpec spec;

	memset(&spec, 0, sizeof(spec));
	run->prepare(run->prepare_arg, layout, kind, &spec);
	(void) EngineGetHello(run->engine);
	run->input_width = layout->input_width;
	run->slot_bytes = ring_slot_bytes(layout->record_bytes);
	run->ring = EngineCreateRing(run->engine, RING_SLOTS, run->slot_bytes);
	run->free_slots = (1U << RING_SLOTS) - 1;
	EngineSend(run->engine, MSG_LOAD, &spec, sizeof(spec),
			   layout, sizeof(RecordLayout) + layout->nsegments * sizeof(Segment));
}

/* Take back a slot that the engine is done with. */
static bool
ReceiveFreeSlot(TrainingRun *run, bool wait)
{
	EngineFrame frame;
	uint32		slot;

	if (!EngineReceive(run->engine, wait, &frame))
		return false;
	if (frame.type != MSG_SLOT_FREE || frame.length != sizeof(slot))
		EngineUnexpected(&frame);
	memcpy(&slot, frame.data, sizeof(slot));
	if (slot >= RING_SLOTS || (run->free_slots & (1U << slot)))
		EngineUnexpected(&frame);
	run->free_slots |= 1U << slot;
	return true;
}

static void *
SinkGetSlot(RowSink *sink, Size *bytes)
{
	TrainingRun *run = (TrainingRun *) sink;

	while (ReceiveFreeSlot(run, run->free_slots == 0))
		;
	run->slot = 0;
	while (!(run->free_slots & (1U << run->slot)))
		run->slot++;
	run->free_slots &= ~(1U << run->slot);
	*bytes = run->slot_bytes;
	return ring_slot(run->ring, run->slot_bytes, run->slot);
}

static void
SinkPutSlot(RowSink *sink, uint32 rows, uint32 split)
{
	TrainingRun *run = (TrainingRun *) sink;
	RowsMessage message = {run->slot, rows, split, 0};

	EngineSend(run->engine, MSG_ROWS, &message, sizeof(message), NULL, 0);
}

static void
SinkCheck(RowSink *sink)
{
	while (ReceiveFreeSlot((TrainingRun *) sink, false))
		;
}

TrainingRun *
TrainingStart(const char *device, TrainingPrepare prepare, void *arg)
{
	TrainingRun *run = palloc0(sizeof(TrainingRun));

	run->sink.start = SinkStart;
	run->sink.get_slot = SinkGetSlot;
	run->sink.put_slot = SinkPutSlot;
	run->sink.check = SinkCheck;
	run->prepare = prepare;
	run->prepare_arg = arg;
	run->engine = EngineStart(device);
	return run;
}

RowSink *
TrainingSink(TrainingRun *run)
{
	return &run->sink;
}

const EngineHello *
TrainingHello(TrainingRun *run)
{
	return EngineGetHello(run->engine);
}

DatasetStats
TrainingEndRows(TrainingRun *run, const LoadResult *loaded, double **mean, double **stddev)
{
	uint32		nclasses = loaded->nclasses;
	Size		width_bytes = sizeof(double) * run->input_width;
	DatasetStats stats;
	const char *data;
	EngineFrame frame;

	EngineSend(run->engine, MSG_END_ROWS, &nclasses, sizeof(nclasses),
			   loaded->class_codes, nclasses * sizeof(int32));
	/* Slots that are still under way come first. */
	do
		EngineReceive(run->engine, true, &frame);
	while (frame.type == MSG_SLOT_FREE);
	if (frame.type != MSG_LOADED || frame.length != sizeof(stats) + 2 * width_bytes)
		EngineUnexpected(&frame);
	data = frame.data;
	memcpy(&stats, data, sizeof(stats));
	if (stats.input_width != run->input_width)
		EngineUnexpected(&frame);
	*mean = palloc(width_bytes);
	*stddev = palloc(width_bytes);
	memcpy(*mean, data + sizeof(stats), width_bytes);
	memcpy(*stddev, data + sizeof(stats) + width_bytes, width_bytes);
	return stats;
}

static void
AppendMetric(StringInfo text, const char *split, const char *name, double value)
{
	appendStringInfo(text, ", %s %s %.4f", split, name, value);
}

static void
AppendSplit(StringInfo text, Task task, const char *split, double accuracy, double r2)
{
	if (task == TASK_CLASSIFICATION)
		AppendMetric(text, split, "accuracy", accuracy);
	else
		AppendMetric(text, split, "r2", r2);
}

/* One message an epoch. */
static void
ReportEpoch(const EpochReport *report, Task task)
{
	StringInfoData text;

	if (!report_epochs)
		return;
	initStringInfo(&text);
	appendStringInfo(&text, "epoch %d/%d: train loss %.4f", report->epoch, report->epochs, report->train_loss);
	if (report->validation_rows > 0)
	{
		AppendMetric(&text, "validation", "loss", report->validation_loss);
		AppendSplit(&text, task, "validation", report->validation_accuracy, report->validation_r2);
	}
	else
		AppendSplit(&text, task, "train", report->train_accuracy, report->train_r2);
	appendStringInfo(&text, ", %.0f rows/s", report->rows_per_second);
	if (report->epoch < report->epochs)
		appendStringInfo(&text, ", %.0f s left", ceil(report->seconds_left));
	ereport(INFO, (errmsg_internal("%s", text.data)));
	pfree(text.data);
}

static void
ReceiveTensor(TrainingRun *run, const EngineFrame *frame, TrainingOutcome *outcome)
{
	StoredTensor *tensor = palloc(sizeof(StoredTensor));
	Size		bytes;
	Size		received = 0;

	if (frame->length != sizeof(TensorHeader))
		EngineUnexpected(frame);
	memcpy(&tensor->header, frame->data, sizeof(TensorHeader));
	if (tensor->header.values < 1 || tensor->header.values > MaxAllocHugeSize / sizeof(float))
		EngineUnexpected(frame);
	tensor->header.name[sizeof(tensor->header.name) - 1] = '\0';
	bytes = tensor->header.values * sizeof(float);
	tensor->data = palloc_extended(bytes, MCXT_ALLOC_HUGE);
	while (received < bytes)
	{
		EngineFrame piece;

		EngineReceive(run->engine, true, &piece);
		if (piece.type != MSG_DATA || piece.length == 0 || piece.length > bytes - received)
			EngineUnexpected(&piece);
		memcpy((char *) tensor->data + received, piece.data, piece.length);
		received += piece.length;
	}
	outcome->tensors = lappend(outcome->tensors, tensor);
}

void
TrainingTrain(TrainingRun *run, const TrainSpec *spec, TrainingOutcome *outcome)
{
	EngineFrame frame;

	memset(outcome, 0, sizeof(*outcome));
	EngineSend(run->engine, MSG_TRAIN, spec, sizeof(TrainSpec) + spec->nlayers * sizeof(LayerSpec), NULL, 0);
	for (;;)
	{
		EngineReceive(run->engine, true, &frame);
		if (frame.type == MSG_EPOCH && frame.length == sizeof(EpochReport))
		{
			EpochReport *report = palloc(sizeof(EpochReport));

			memcpy(report, frame.data, sizeof(EpochReport));
			outcome->epochs = lappend(outcome->epochs, report);
			ReportEpoch(report, spec->task);
		}
		else if (frame.type == MSG_TENSOR)
			ReceiveTensor(run, &frame, outcome);
		else if (frame.type == MSG_RESULT && frame.length == sizeof(TrainResult))
		{
			memcpy(&outcome->result, frame.data, sizeof(TrainResult));
			break;
		}
		else
			EngineUnexpected(&frame);
	}
	TrainingEnd(run);
}

void
TrainingEnd(TrainingRun *run)
{
	EngineRelease(run->engine);
	run->engine = NULL;
}
