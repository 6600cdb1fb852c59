/*
 * train.h - the training loop: epochs over a dataset.
 *
 * An epoch visits every training row once, in an order drawn from (seed, epoch), in micro-batches of
 * batch_size.  accumulation_steps of them make a group, after which the optimizer steps; the gradient is the
 * mean over all rows of the group, so that any way to cut the same rows into micro-batches gives the same
 * update, up to rounding.  The last micro-batch of an epoch and the last group may be smaller.
 *
 * Batch norm cannot take the variance of a single value (PyTorch refuses such a batch).  Where a network has a
 * batch norm over flat features, or over images of one pixel, a last micro-batch of a single row is therefore
 * joined to the one before.
 */
#ifndef PGT_TRAIN_H
#define PGT_TRAIN_H

#include "engine/dataset.h"
#include "engine/network.h"

typedef struct Trainer Trainer;

/* Checks everything in the spec; nothing of it is kept.  The dataset must be finished and outlive the trainer. */
extern Status trainer_create(const BackendOps *ops, Backend *be, const Dataset *ds, const TrainSpec *spec,
							 Trainer **out, Error *err);
extern void trainer_free(Trainer *t);

/* The next epoch, validation included. */
extern Status trainer_epoch(Trainer *t, EpochReport *report, Error *err);
extern Network *trainer_network(Trainer *t);
/* Optimizer steps done, and steps skipped since gradients were not finite in fp16. */
extern Status trainer_steps(Trainer *t, int64_t *steps, int64_t *skipped, Error *err);

/* How n rows are cut into micro-batches: all of batch rows but the last, which has from min_rows rows on. */
extern size_t micro_batch_count(size_t n, size_t batch, size_t min_rows);

#endif							/* PGT_TRAIN_H */
