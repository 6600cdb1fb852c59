/*
 * test_streams.c - streams and events: nothing runs before it is waited for, and nothing is ordered that no event or stream
 * orders.
 */
#include "regress/unit/cudasim/planted.h"
#include "regress/unit/cudasim/sim_test.h"

#define N 256

typedef struct World
{
	cudaStream_t copy,
				compute;
	cudaEvent_t copied,
				computed;
	float	   *in,				/* pinned */
			   *out,			/* pinned */
			   *x,
			   *y;
} World;

static void
begin(World *w)
{
	sim_begin();
	CUDA_OK(cudaStreamCreateWithFlags(&w->copy, cudaStreamNonBlocking));
	CUDA_OK(cudaStreamCreateWithFlags(&w->compute, cudaStreamNonBlocking));
	CUDA_OK(cudaEventCreateWithFlags(&w->copied, cudaEventDisableTiming));
	CUDA_OK(cudaEventCreateWithFlags(&w->computed, cudaEventDisableTiming));
	CUDA_OK(cudaMallocHost((void **) &w->in, N * sizeof(float)));
	CUDA_OK(cudaMallocHost((void **) &w->out, N * sizeof(float)));
	w->x = sim_put(NULL, N);
	w->y = sim_put(NULL, N);
	for (int i = 0; i < N; i++)
	{
		w->in[i] = (float) i;
		w->out[i] = -1;
	}
}

static void
end(World *w)
{
	CUDA_OK(cudaFree(w->x));
	CUDA_OK(cudaFree(w->y));
	CUDA_OK(cudaFreeHost(w->in));
	CUDA_OK(cudaFreeHost(w->out));
	CUDA_OK(cudaEventDestroy(w->copied));
	CUDA_OK(cudaEventDestroy(w->computed));
	CUDA_OK(cudaStreamDestroy(w->copy));
	CUDA_OK(cudaStreamDestroy(w->compute));
	CHECK_NOTHING_LIVE();
}

static void
copy_in(World *w, cudaStream_t stream)
{
	CUDA_OK(cudaMemcpyAsync(w->x, w->in, N * sizeof(float), cudaMemcpyHostToDevice, stream));
}

static void
copy_out(World *w, const float *from, cudaStream_t stream)
{
	CUDA_OK(cudaMemcpyAsync(w->out, from, N * sizeof(float), cudaMemcpyDeviceToHost, stream));
}

TEST(pinned_results_are_there_after_a_wait_and_not_before)
{
	World		w;

	begin(&w);
	copy_in(&w, w.compute);
	start_double(w.y, w.x, N, w.compute);
	copy_out(&w, w.y, w.compute);
	CHECK(w.out[5] == -1, "a result before the wait: %g", w.out[5]);
	CUDA_OK(cudaStreamSynchronize(w.compute));
	CHECK(w.out[5] == 10, "%g", w.out[5]);
	end(&w);
}

TEST(a_staging_slot_reused_early_is_seen)
{
	World		w;

	for (int wait = 0; wait <= 1; wait++)
	{
		begin(&w);
		copy_in(&w, w.compute);
		CUDA_OK(cudaEventRecord(w.copied, w.compute));
		if (wait)
			CUDA_OK(cudaEventSynchronize(w.copied));
		w.in[5] = 1000;			/* the next batch */
		start_double(w.y, w.x, N, w.compute);
		copy_out(&w, w.y, w.compute);
		CUDA_OK(cudaStreamSynchronize(w.compute));
		CHECK(w.out[5] == (wait ? 10 : 2000), "wait %d: %g", wait, w.out[5]);
		end(&w);
	}
}

TEST(pageable_memory_is_read_at_the_call_and_written_at_its_return)
{
	World		w;
	float		host[N];

	begin(&w);
	for (int i = 0; i < N; i++)
		host[i] = 3;
	CUDA_OK(cudaMemcpyAsync(w.x, host, sizeof(host), cudaMemcpyHostToDevice, w.compute));
	host[0] = 4;
	start_double(w.y, w.x, N, w.compute);
	CUDA_OK(cudaMemcpyAsync(host, w.y, sizeof(host), cudaMemcpyDeviceToHost, w.compute));
	CHECK(host[0] == 6, "%g", host[0]);
	CHECK(cudasim_pageable_copies() == 2);
	end(&w);
}

/* A consumer that does not wait for the producer's stream. */
TEST(a_missing_event_between_streams_is_seen)
{
	World		w;

	for (int event = 0; event <= 1; event++)
	{
		int			wrong = 0;

		FOR_EACH_ORDER(order)
		{
			begin(&w);
			cudasim_set_order(order, 4);
			copy_in(&w, w.copy);
			CUDA_OK(cudaEventRecord(w.copied, w.copy));
			if (event)
				CUDA_OK(cudaStreamWaitEvent(w.compute, w.copied, 0));
			start_double(w.y, w.x, N, w.compute);
			copy_out(&w, w.y, w.compute);
			CUDA_OK(cudaStreamSynchronize(w.compute));
			wrong += w.out[5] != 10;
			end(&w);
		}
		CHECK(event ? wrong == 0 : wrong > 0, "event %d: %d of 3 orders are wrong", event, wrong);
	}
}

/* The next batch overwrites what is still read: only seen when the copy stream runs ahead. */
TEST(a_missing_event_back_to_the_copies_is_seen)
{
	World		w;

	for (int event = 0; event <= 1; event++)
	{
		int			wrong = 0;

		FOR_EACH_ORDER(order)
		{
			float	   *next;

			begin(&w);
			cudasim_set_order(order, 4);
			CUDA_OK(cudaMallocHost((void **) &next, N * sizeof(float)));
			for (int i = 0; i < N; i++)
				next[i] = 1000;
			copy_in(&w, w.copy);
			CUDA_OK(cudaEventRecord(w.copied, w.copy));
			CUDA_OK(cudaStreamWaitEvent(w.compute, w.copied, 0));
			start_double(w.y, w.x, N, w.compute);
			CUDA_OK(cudaEventRecord(w.computed, w.compute));
			if (event)
				CUDA_OK(cudaStreamWaitEvent(w.copy, w.computed, 0));
			CUDA_OK(cudaMemcpyAsync(w.x, next, N * sizeof(float), cudaMemcpyHostToDevice, w.copy));
			copy_out(&w, w.y, w.compute);
			CUDA_OK(cudaStreamSynchronize(w.compute));
			CUDA_OK(cudaStreamSynchronize(w.copy));
			wrong += w.out[5] != 10;
			CUDA_OK(cudaFreeHost(next));
			end(&w);
		}
		CHECK(event ? wrong == 0 : wrong > 0, "event %d: %d of 3 orders are wrong", event, wrong);
	}
}

TEST(a_query_says_not_ready_first_and_makes_progress)
{
	World		w;

	begin(&w);
	copy_in(&w, w.compute);
	CUDA_OK(cudaEventRecord(w.copied, w.compute));
	start_double(w.y, w.x, N, w.compute);
	copy_out(&w, w.y, w.compute);
	CHECK_CUDA(cudaErrorNotReady, cudaEventQuery(w.copied));
	CHECK_CUDA(cudaErrorNotReady, cudaGetLastError());
	CUDA_OK(cudaEventQuery(w.copied));
	CHECK(w.out[5] == -1);
	CHECK_CUDA(cudaErrorNotReady, cudaStreamQuery(w.compute));
	CUDA_OK(cudaStreamQuery(w.compute));
	CHECK(w.out[5] == 10);
	cudaGetLastError();
	end(&w);
}

TEST(the_default_stream_waits_for_blocking_streams_only)
{
	for (int blocking = 0; blocking <= 1; blocking++)
	{
		World		w;
		cudaStream_t stream;

		begin(&w);
		CUDA_OK(cudaStreamCreateWithFlags(&stream, blocking ? cudaStreamDefault : cudaStreamNonBlocking));
		copy_in(&w, stream);
		start_double(w.y, w.x, N, NULL);
		copy_out(&w, w.y, NULL);
		CUDA_OK(cudaStreamSynchronize(NULL));
		CHECK(blocking ? w.out[5] == 10 : w.out[5] != 10, "blocking %d: %g", blocking, w.out[5]);
		CUDA_OK(cudaStreamDestroy(stream));
		end(&w);
	}
}

TEST(events_time_the_work_between_them)
{
	World		w;
	cudaEvent_t start,
				stop;
	float		ms = -1;

	begin(&w);
	CUDA_OK(cudaEventCreate(&start));
	CUDA_OK(cudaEventCreate(&stop));
	CUDA_OK(cudaEventRecord(start, w.compute));
	start_double(w.y, w.x, N, w.compute);
	CUDA_OK(cudaEventRecord(stop, w.compute));
	CHECK_CUDA(cudaErrorNotReady, cudaEventElapsedTime(&ms, start, stop));
	CUDA_OK(cudaEventSynchronize(stop));
	CUDA_OK(cudaEventElapsedTime(&ms, start, stop));
	CHECK(ms >= 0);
	CHECK_CUDA(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&ms, start, w.copied));
	CUDA_OK(cudaEventDestroy(start));
	CUDA_OK(cudaEventDestroy(stop));
	end(&w);
}

static void
note_host_call(void *data)
{
	*(int *) data += 1;
}

TEST(a_host_function_runs_when_its_stream_comes_to_it)
{
	World		w;
	int			calls = 0;

	begin(&w);
	CUDA_OK(cudaLaunchHostFunc(w.compute, note_host_call, &calls));
	CHECK(calls == 0);
	CUDA_OK(cudaStreamSynchronize(w.compute));
	CHECK(calls == 1);
	end(&w);
}

static void
call_cuda(void *data)
{
	*(cudaError_t *) data = cudaDeviceSynchronize();
}

TEST(a_host_function_that_calls_cuda_is_found)
{
	World		w;
	cudaError_t error = cudaSuccess;

	begin(&w);
	CUDA_OK(cudaLaunchHostFunc(w.compute, call_cuda, &error));
	CUDA_OK(cudaStreamSynchronize(w.compute));
	CHECK(error == cudaErrorNotPermitted);
	CHECK_MESSAGE("was called by a host function");
	end(&w);
}

TEST(objects_not_given_back_are_counted)
{
	World		w;

	begin(&w);
	CHECK(cudasim_live(CUDASIM_STREAM) == 2 && cudasim_live(CUDASIM_EVENT) == 2);
	CHECK(cudasim_live(CUDASIM_DEVICE_MEMORY) == 2 && cudasim_live(CUDASIM_PINNED_MEMORY) == 2);
	CHECK(strcmp(cudasim_live_report(), "2 device memory, 2 pinned memory, 2 streams, 2 events") == 0, "%s",
		  cudasim_live_report());
	end(&w);
}
