/*
 * test_graphs.c - capturing streams into graphs: what a graph does, and what may not be done meanwhile.
 */
#include "regress/unit/cudasim/planted.h"
#include "regress/unit/cudasim/sim_test.h"

#define N 64

static cudaStream_t stream,
			other;
static float *x,
		   *y,
		   *z;

static void
begin(void)
{
	float		ones[N];

	sim_begin();
	for (int i = 0; i < N; i++)
		ones[i] = 1;
	CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	CUDA_OK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
	x = sim_put(ones, N);
	y = sim_put(NULL, N);
	z = sim_put(NULL, N);
}

static float
first_of(const float *tensor)
{
	float		value;

	CUDA_OK(cudaStreamSynchronize(stream));
	sim_get(&value, tensor, 1);
	return value;
}

static void
end(void)
{
	CUDA_OK(cudaFree(x));
	CUDA_OK(cudaFree(y));
	CUDA_OK(cudaFree(z));
	CUDA_OK(cudaStreamDestroy(stream));
	CUDA_OK(cudaStreamDestroy(other));
	CHECK_NOTHING_LIVE();
}

TEST(a_graph_runs_when_it_is_launched_and_each_time)
{
	cudaGraph_t graph;
	cudaGraphExec_t exec;

	begin();
	CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
	start_double(x, x, N, stream);
	start_double(x, x, N, stream);
	CUDA_OK(cudaStreamEndCapture(stream, &graph));
	CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
	CUDA_OK(cudaGraphDestroy(graph));
	CHECK(first_of(x) == 1, "%g", first_of(x));
	CUDA_OK(cudaGraphLaunch(exec, stream));
	CUDA_OK(cudaGraphLaunch(exec, stream));
	CHECK(first_of(x) == 16, "%g", first_of(x));
	CHECK(cudasim_live(CUDASIM_GRAPH_EXEC) == 1);
	CUDA_OK(cudaGraphExecDestroy(exec));
	end();
}

/* y = 2 x in another stream, z = 2 y: right only when the streams are joined. */
TEST(a_graph_keeps_the_order_that_events_gave_and_no_other)
{
	for (int waited = 0; waited <= 1; waited++)
	{
		int			wrong = 0;

		FOR_EACH_ORDER(order)
		{
			cudaGraph_t graph;
			cudaGraphExec_t exec;
			cudaEvent_t forked,
						joined;

			begin();
			cudasim_set_order(order, 11);
			CUDA_OK(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming));
			CUDA_OK(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming));
			CUDA_OK(cudaMemset(y, 0, N * sizeof(float)));
			CUDA_OK(cudaDeviceSynchronize());
			CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
			CUDA_OK(cudaEventRecord(forked, stream));
			CUDA_OK(cudaStreamWaitEvent(other, forked, 0));
			start_double(y, x, N, other);
			CUDA_OK(cudaEventRecord(joined, other));
			if (waited)
				CUDA_OK(cudaStreamWaitEvent(stream, joined, 0));
			start_double(z, y, N, stream);
			if (!waited)
				CUDA_OK(cudaStreamWaitEvent(stream, joined, 0));
			CUDA_OK(cudaStreamEndCapture(stream, &graph));
			CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
			CUDA_OK(cudaGraphLaunch(exec, stream));
			wrong += first_of(z) != 4;
			CUDA_OK(cudaGraphExecDestroy(exec));
			CUDA_OK(cudaGraphDestroy(graph));
			CUDA_OK(cudaEventDestroy(forked));
			CUDA_OK(cudaEventDestroy(joined));
			end();
		}
		CHECK(waited ? wrong == 0 : wrong > 0, "waited %d: %d of 3 orders are wrong", waited, wrong);
	}
}

TEST(a_stream_that_is_not_joined_spoils_the_capture)
{
	cudaGraph_t graph;
	cudaEvent_t forked;

	begin();
	CUDA_OK(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming));
	CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
	CUDA_OK(cudaEventRecord(forked, stream));
	CUDA_OK(cudaStreamWaitEvent(other, forked, 0));
	start_double(y, x, N, other);
	CHECK_CUDA(cudaErrorStreamCaptureUnjoined, cudaStreamEndCapture(stream, &graph));
	CHECK(graph == NULL);
	CUDA_OK(cudaEventDestroy(forked));
	end();
}

/* Does what is forbidden while a stream is captured. */
#define CHECK_SPOILS(mode, error, call) \
	do { \
		cudaGraph_t graph; \
		begin(); \
		CUDA_OK(cudaStreamBeginCapture(stream, mode)); \
		start_double(y, x, N, stream); \
		CHECK_CUDA(error, call); \
		CHECK_CUDA(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(stream, &graph)); \
		CHECK(graph == NULL); \
		/* afterwards all works again */ \
		start_double(y, x, N, stream); \
		CHECK(first_of(y) == 2); \
		end(); \
	} while (0)

TEST(waits_and_allocations_spoil_a_capture)
{
	void	   *p;
	float		host;

	CHECK_SPOILS(cudaStreamCaptureModeThreadLocal, cudaErrorStreamCaptureUnsupported, cudaStreamSynchronize(stream));
	CHECK_SPOILS(cudaStreamCaptureModeThreadLocal, cudaErrorStreamCaptureUnsupported, cudaStreamQuery(stream));
	CHECK_SPOILS(cudaStreamCaptureModeThreadLocal, cudaErrorStreamCaptureUnsupported, cudaDeviceSynchronize());
	CHECK_SPOILS(cudaStreamCaptureModeGlobal, cudaErrorStreamCaptureUnsupported, cudaMalloc(&p, 64));
	CHECK_SPOILS(cudaStreamCaptureModeGlobal, cudaErrorStreamCaptureUnsupported, cudaFree(z));
	CHECK_SPOILS(cudaStreamCaptureModeThreadLocal, cudaErrorStreamCaptureUnsupported, cudaMallocHost(&p, 64));
	CHECK_SPOILS(cudaStreamCaptureModeThreadLocal, cudaErrorStreamCaptureUnsupported,
				 cudaMemcpy(&host, x, 4, cudaMemcpyDeviceToHost));
}

TEST(a_relaxed_capture_allows_allocations)
{
	cudaGraph_t graph;
	void	   *p;

	begin();
	CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
	CUDA_OK(cudaMalloc(&p, 64));
	CUDA_OK(cudaStreamEndCapture(stream, &graph));
	CUDA_OK(cudaGraphDestroy(graph));
	CUDA_OK(cudaFree(p));
	end();
}

TEST(captured_work_cannot_wait_for_what_was_not_captured)
{
	cudaGraph_t graph;
	cudaEvent_t event;

	begin();
	CUDA_OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
	CUDA_OK(cudaEventRecord(event, other));
	CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
	CHECK_CUDA(cudaErrorStreamCaptureIsolation, cudaStreamWaitEvent(stream, event, 0));
	CHECK_CUDA(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(stream, &graph));
	CUDA_OK(cudaEventDestroy(event));
	end();
}

TEST(an_event_of_a_capture_cannot_be_waited_for)
{
	cudaGraph_t graph;
	cudaEvent_t event;

	begin();
	CUDA_OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
	CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
	start_double(y, x, N, stream);
	CUDA_OK(cudaEventRecord(event, stream));
	CUDA_OK(cudaStreamEndCapture(stream, &graph));
	CHECK_CUDA(cudaErrorCapturedEvent, cudaEventQuery(event));
	CHECK_CUDA(cudaErrorCapturedEvent, cudaEventSynchronize(event));
	CUDA_OK(cudaGraphDestroy(graph));
	CUDA_OK(cudaEventDestroy(event));
	end();
}

TEST(captures_begin_and_end_where_they_may)
{
	cudaGraph_t graph;
	enum cudaStreamCaptureStatus status;

	begin();
	CHECK_CUDA(cudaErrorStreamCaptureUnsupported, cudaStreamBeginCapture(NULL, cudaStreamCaptureModeThreadLocal));
	CHECK_CUDA(cudaErrorIllegalState, cudaStreamEndCapture(stream, &graph));
	CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
	CUDA_OK(cudaStreamIsCapturing(stream, &status));
	CHECK(status == cudaStreamCaptureStatusActive);
	CHECK_CUDA(cudaErrorIllegalState, cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
	CUDA_OK(cudaStreamEndCapture(stream, &graph));
	CUDA_OK(cudaGraphDestroy(graph));
	end();
}
