/*
 * batch_workers.c - what parallel workers have scored, for EXPLAIN.
 *
 * A batch node below a Gather node has a place in the query's shared memory, where each worker leaves its counts when it
 * is done; the leader adds them to its own before that memory goes.
 */
#include "postgres.h"

#include "access/parallel.h"
#include "nodes/extensible.h"

#include "extension/batch_state.h"

struct BatchShared
{
	int			nworkers;
	BatchCounts counts[FLEXIBLE_ARRAY_MEMBER];
};

static void
AddCounts(BatchCounts *to, const BatchCounts *counts)
{
	to->batches += counts->batches;
	to->scored += counts->scored;
	INSTR_TIME_ADD(to->scoring, counts->scoring);
}

Size
BatchSharedSize(CustomScanState *node, ParallelContext *context)
{
	return offsetof(BatchShared, counts) + sizeof(BatchCounts) * context->nworkers;
}

void
BatchSharedInit(CustomScanState *node, ParallelContext *context, void *memory)
{
	BatchShared *shared = memory;

	memset(shared, 0, BatchSharedSize(node, context));
	shared->nworkers = context->nworkers;
	((BatchState *) node)->shared = shared;
}

/* The workers are started anew for a rescan: counts go on. */
void
BatchSharedReInit(CustomScanState *node, ParallelContext *context, void *memory)
{
}

void
BatchSharedAttach(CustomScanState *node, shm_toc *toc, void *memory)
{
	((BatchState *) node)->shared = memory;
}

void
BatchShutdown(CustomScanState *node)
{
	BatchState *state = (BatchState *) node;
	BatchShared *shared = state->shared;

	if (shared == NULL)
		return;
	if (IsParallelWorker())
		AddCounts(&shared->counts[ParallelWorkerNumber], &state->counts);
	else
		for (int i = 0; i < shared->nworkers; i++)
			AddCounts(&state->counts, &shared->counts[i]);
	state->shared = NULL;
}
