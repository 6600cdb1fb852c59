/*
 * graph.c - recording a sequence of operations, and replaying it.
 */
#include "kernels/cuda/memory.h"
#include "kernels/cuda/ops.h"

Status
op_graph_begin(Backend *be, Error *err)
{
	TRY(cuda_check_not_recording(be, "a recording", err));
	CUDA_TRY(cudaStreamBeginCapture(be->stream, cudaStreamCaptureModeThreadLocal));
	be->recording = 1;
	return STATUS_OK;
}

Status
op_graph_end(Backend *be, void **graph, Error *err)
{
	cudaGraph_t recorded = NULL;
	cudaGraphExec_t executable = NULL;
	cudaError_t error;

	*graph = NULL;
	if (!be->recording)
		return error_set(err, STATUS_INTERNAL, "nothing is being recorded");
	be->recording = 0;
	error = cudaStreamEndCapture(be->stream, &recorded);
	if (error != cudaSuccess)
	{
		if (recorded != NULL)
			cudaGraphDestroy(recorded);
		return cuda_failed(error, "cudaStreamEndCapture", err);
	}
	error = cudaGraphInstantiate(&executable, recorded, 0);
	cudaGraphDestroy(recorded);
	if (error != cudaSuccess)
		return cuda_failed(error, "cudaGraphInstantiate", err);
	be->graphs++;
	*graph = executable;
	return STATUS_OK;
}

Status
op_graph_launch(Backend *be, void *graph, Error *err)
{
	CUDA_TRY(cudaGraphLaunch((cudaGraphExec_t) graph, be->stream));
	return STATUS_OK;
}

void
op_graph_free(Backend *be, void *graph)
{
	if (graph == NULL)
		return;
	/* It may still be running. */
	(void) cuda_wait_for_stream(be, NULL);
	if (cudaGraphExecDestroy((cudaGraphExec_t) graph) != cudaSuccess)
		(void) cudaGetLastError();
	if (--be->graphs == 0)
		memory_free_retired(be);
}
