/*
 * training.h - one training run: the engine's side of train_model, from the first row to the last weight.
 */
#ifndef PGT_TRAINING_H
#define PGT_TRAINING_H

#include "postgres.h"

#include "nodes/pg_list.h"

#include "extension/engine_process.h"
#include "loader/loader.h"

typedef struct TrainingRun TrainingRun;

/* Called when the record's layout and the target's kind are known: checks them, and fills the dataset's spec. */
typedef void (*TrainingPrepare) (void *arg, const RecordLayout *layout, TargetKind kind, DatasetSpec *spec);

/* Start an engine.  The run lives in the current context. */
extern TrainingRun *TrainingStart(const char *device, TrainingPrepare prepare, void *arg);

/* Where LoadRows sends its rows. */
extern RowSink *TrainingSink(TrainingRun *run);

/* What the engine runs on. */
extern const EngineHello *TrainingHello(TrainingRun *run);

/* No more rows: returns the statistics, and the inputs' means and deviations [input_width]. */
extern DatasetStats TrainingEndRows(TrainingRun *run, const LoadResult *loaded, double **mean, double **stddev);

/* What came of it, in the current context. */
typedef struct TrainingOutcome
{
	TrainResult result;
	List	   *epochs;			/* of EpochReport * */
	List	   *tensors;		/* of StoredTensor * */
} TrainingOutcome;

/* Train, with a message an epoch, and end the engine. */
extern void TrainingTrain(TrainingRun *run, const TrainSpec *spec, TrainingOutcome *outcome);

/* End the engine; the run is over. */
extern void TrainingEnd(TrainingRun *run);

#endif							/* PGT_TRAINING_H */
