/*
 * stream.cpp - streams, events and copies.
 *
 * Work waits in its stream until something waits for it.  A first cudaEventQuery or cudaStreamQuery therefore always
 * says "not ready", the second one runs what it asks for.
 */
#include "regress/cudasim/sim.h"

#include <algorithm>
#include <csetjmp>
#include <csignal>
#include <cstring>
#include <unistd.h>

namespace sim
{

static bool device_mode;
static sigjmp_buf fault_exit;
static int running_device;
static const char *running_name;

bool
in_device_mode()
{
	return device_mode;
}

/* A fault of the running work ends it; one of the host is told and then takes its course. */
static void
on_fault(int signal, siginfo_t *info, void *context)
{
	(void) context;
	if (device_mode)
	{
		if (memory_open_at(info->si_addr))
			return;
		lose_device(running_device, cudaErrorIllegalAddress, "%s touched %s", running_name,
					memory_describe(info->si_addr).c_str());
		siglongjmp(fault_exit, 1);
	}
	if (memory_device(info->si_addr) >= 0)
		complain("the host touched device memory: %s", memory_describe(info->si_addr).c_str());
	::signal(signal, SIG_DFL);
}

void
faults_install()
{
	struct sigaction action = {};

	action.sa_sigaction = on_fault;
	action.sa_flags = SA_SIGINFO | SA_NODEFER;
	sigaction(SIGSEGV, &action, nullptr);
	sigaction(SIGBUS, &action, nullptr);
}

Step
execute(int device, const char *name, const Work &work)
{
	/* volatile: read after a jump back */
	volatile Step step = Step::done;
	volatile int open_before = state().device[device].open;

	running_device = device;
	running_name = name;
	memory_open(device);
	device_mode = true;
	if (sigsetjmp(fault_exit, 0) == 0)
		step = work();
	else
		kernel_abandon();
	device_mode = false;
	while (state().device[device].open > open_before)
		memory_close(device);
	return step;
}

CUstream_st *
stream_of(cudaStream_t stream)
{
	if (stream != nullptr && stream != cudaStreamLegacy && stream != cudaStreamPerThread)
		return stream;
	Device &d = state().device[current_device()];
	d.streams.insert(&d.legacy);
	return &d.legacy;
}

bool
stream_is_known(cudaStream_t stream)
{
	if (stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread)
		return true;
	for (Device &d : state().device)
		if (d.streams.count(stream) > 0)
			return true;
	return false;
}

cudaError_t
enqueue(CUstream_st *stream, const char *name, Work work, std::shared_ptr<Record> needs)
{
	State &s = state();

	if (stream->capture != nullptr)
	{
		if (stream->capture->invalid)
			return cudaErrorStreamCaptureInvalidated;
		capture_add(stream, name, std::move(work));
		return cudaSuccess;
	}
	/* the legacy stream waits for captured streams, which cannot be */
	if (stream->legacy)
		for (Capture *capture : s.captures)
			if (capture->origin->device == stream->device && capture->origin->blocking)
			{
				capture_invalidate(capture);
				return cudaErrorStreamCaptureImplicit;
			}
	stream->queue.push_back(Op{name, std::move(work), ++s.seq, std::move(needs)});
	return cudaSuccess;
}

/*
 * Run the next operation of the stream, or first one that it waits for.  False when nothing can be done now, since the
 * stream is empty or another process has to come first.
 */
static bool
advance(CUstream_st *stream)
{
	Device &d = state().device[stream->device];

	if (stream->queue.empty())
		return false;
	Op &op = stream->queue.front();
	if (op.needs != nullptr && !op.needs->done)
		return advance(op.needs->stream);
	if (stream->blocking)
		for (CUstream_st *other : d.streams)
			if (other != stream && other->blocking && (stream->legacy || other->legacy) && !other->queue.empty()
				&& other->queue.front().seq < op.seq)
				return advance(other);
	/* a lost device runs nothing more, but its waits end */
	if (d.sticky == cudaSuccess && execute(stream->device, op.name.c_str(), op.work) == Step::pending)
		return false;
	stream->queue.pop_front();
	return true;
}

/* Let other streams overtake, as far as the order that is tested wants it. */
static void
let_others_run(CUstream_st *stream)
{
	State &s = state();
	std::vector<CUstream_st *> others;

	if (s.order == CUDASIM_FORWARD)
		return;
	for (CUstream_st *other : s.device[stream->device].streams)
		if (other != stream && !other->queue.empty())
			others.push_back(other);
	while (!others.empty())
	{
		size_t i = s.order == CUDASIM_RANDOM ? s.random() % (others.size() + 1) : 0;

		if (i == others.size())
			return;
		if (!advance(others[i]) || others[i]->queue.empty())
			others.erase(others.begin() + i);
	}
}

cudaError_t
drain(CUstream_st *stream, const Record *until)
{
	State &s = state();
	Device &d = s.device[stream->device];
	double limit = now_ms() + s.hang_ms;

	memory_open(stream->device);
	while (until != nullptr ? !until->done : !stream->queue.empty())
	{
		let_others_run(stream);
		if (until != nullptr ? until->done : stream->queue.empty())
			break;
		if (advance(stream))
		{
			limit = now_ms() + s.hang_ms;
			continue;
		}
		if (now_ms() > limit)
		{
			lose_device(stream->device, cudaErrorLaunchTimeout, "a wait for %s has hung for %d ms",
						stream->queue.empty() ? "an event" : stream->queue.front().name.c_str(), s.hang_ms);
			break;
		}
		/* another rank, perhaps a thread of this process, has to do its part */
		memory_close(stream->device);
		s.lock.unlock();
		usleep(50);
		s.lock.lock();
		memory_open(stream->device);
	}
	memory_close(stream->device);
	return d.sticky;
}

cudaError_t
drain_device(int device)
{
	Device &d = state().device[device];
	std::vector<CUstream_st *> streams(d.streams.begin(), d.streams.end());
	cudaError_t error = d.sticky;

	for (CUstream_st *stream : streams)
		error = drain(stream);
	return error;
}

void
stream_drop(int device)
{
	for (CUstream_st *stream : state().device[device].streams)
		stream->queue.clear();
}

void
stream_reset()
{
	State &s = state();

	for (Device &d : s.device)
	{
		for (CUstream_st *stream : d.streams)
			if (!stream->legacy)
				delete stream;
		d.streams.clear();
		d.legacy.queue.clear();
	}
}

static cudaError_t
create_stream(cudaStream_t *out, bool blocking)
{
	State &s = state();

	if (out == nullptr)
		return cudaErrorInvalidValue;
	*out = new CUstream_st();
	(*out)->device = current_device();
	(*out)->blocking = blocking;
	s.device[current_device()].streams.insert(*out);
	s.live[CUDASIM_STREAM]++;
	return cudaSuccess;
}

static cudaError_t
create_event(cudaEvent_t *out, unsigned flags)
{
	if (out == nullptr || (flags & ~(unsigned) (cudaEventBlockingSync | cudaEventDisableTiming)) != 0)
		return cudaErrorInvalidValue;
	*out = new CUevent_st();
	(*out)->device = current_device();
	(*out)->timing = (flags & cudaEventDisableTiming) == 0;
	state().live[CUDASIM_EVENT]++;
	return cudaSuccess;
}

/* The record is done when the stream comes to it. */
static cudaError_t
record_event(CUevent_st *event, CUstream_st *stream)
{
	auto record = std::make_shared<Record>();

	if (event->device != stream->device)
		return cudaErrorInvalidResourceHandle;
	if (stream->capture != nullptr)
	{
		if (stream->capture->invalid)
			return cudaErrorStreamCaptureInvalidated;
		event->capture = stream->capture;
		event->tail = stream->tail;
		event->record = nullptr;
		return cudaSuccess;
	}
	record->stream = stream;
	event->capture = nullptr;
	event->record = record;
	return enqueue(stream, "an event", [record]
	{
		record->done = true;
		record->time_ms = now_ms();
		return Step::done;
	});
}

/* While capturing the wait becomes an edge, and the stream joins the capture. */
static cudaError_t
wait_event(CUstream_st *stream, CUevent_st *event)
{
	if (event->capture != nullptr)
	{
		std::vector<Capture *> &active = state().captures;

		if (std::find(active.begin(), active.end(), event->capture) == active.end())
			return cudaErrorCapturedEvent;
		if (stream->capture == nullptr)
		{
			if (stream->legacy)
				return cudaErrorStreamCaptureImplicit;
			stream->capture = event->capture;
			stream->tail.clear();
			event->capture->streams.push_back(stream);
		}
		else if (stream->capture != event->capture)
		{
			capture_invalidate(stream->capture);
			capture_invalidate(event->capture);
			return cudaErrorStreamCaptureMerge;
		}
		stream->tail.insert(stream->tail.end(), event->tail.begin(), event->tail.end());
		return cudaSuccess;
	}
	if (stream->capture != nullptr)
	{
		if (event->record == nullptr)
			return cudaSuccess;
		capture_invalidate(stream->capture);
		return cudaErrorStreamCaptureIsolation;
	}
	if (event->record == nullptr)
		return cudaSuccess;
	return enqueue(stream, "a wait for an event", [] { return Step::done; }, event->record);
}

/* A wait or query of a stream in capture ends the capture. */
static cudaError_t
no_capture(CUstream_st *stream)
{
	if (stream->capture == nullptr)
	{
		if (stream->legacy)
			for (Capture *capture : state().captures)
				if (capture->origin->blocking)
				{
					capture_invalidate(capture);
					return cudaErrorStreamCaptureImplicit;
				}
		return cudaSuccess;
	}
	capture_invalidate(stream->capture);
	return cudaErrorStreamCaptureUnsupported;
}

/* The direction that cudaMemcpyDefault means, and whether both ends are what the direction says. */
static cudaError_t
check_copy(void *dst, const void *src, size_t bytes, cudaMemcpyKind *kind)
{
	bool to_device = memory_device(dst) >= 0,
				from_device = memory_device(src) >= 0;

	if (*kind == cudaMemcpyDefault)
		*kind = to_device ? (from_device ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice)
			: (from_device ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost);
	if (*kind != cudaMemcpyHostToDevice && *kind != cudaMemcpyDeviceToHost && *kind != cudaMemcpyDeviceToDevice
		&& *kind != cudaMemcpyHostToHost)
		return cudaErrorInvalidMemcpyDirection;
	if (to_device != (*kind == cudaMemcpyHostToDevice || *kind == cudaMemcpyDeviceToDevice)
		|| from_device != (*kind == cudaMemcpyDeviceToHost || *kind == cudaMemcpyDeviceToDevice))
	{
		complain("a copy says the wrong direction");
		return cudaErrorInvalidValue;
	}
	if ((to_device && !memory_is_live(dst, bytes)) || (from_device && !memory_is_live(src, bytes)))
	{
		complain("a copy of %zu bytes leaves its block: %s", bytes,
				 memory_describe(to_device && !memory_is_live(dst, bytes) ? dst : src).c_str());
		return cudaErrorInvalidValue;
	}
	return cudaSuccess;
}

/* A copy inside a stream: memory of another device opens for it, too. */
static Work
copy_work(void *dst, const void *src, size_t bytes)
{
	return [=]
	{
		int to = memory_device(dst),
					from = memory_device(src);

		if (to >= 0)
			memory_open(to);
		if (from >= 0)
			memory_open(from);
		memmove(dst, src, bytes);
		if (from >= 0)
			memory_close(from);
		if (to >= 0)
			memory_close(to);
		return Step::done;
	};
}

/*
 * Pageable memory is read at the call, or written by the time it returns; pinned memory is read and written when the
 * stream comes to it.
 */
static cudaError_t
copy(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind, CUstream_st *stream)
{
	cudaError_t error = check_copy(dst, src, bytes, &kind);

	if (error != cudaSuccess)
		return error;
	if (bytes == 0)
		return cudaSuccess;
	if (kind == cudaMemcpyHostToDevice && !memory_is_pinned(src, bytes))
	{
		auto staged = std::make_shared<std::vector<char>>((const char *) src, (const char *) src + bytes);

		state().pageable_copies++;
		if (stream->capture != nullptr)
			return enqueue(stream, "a copy", copy_work(dst, src, bytes));
		return enqueue(stream, "a copy", [=] { memcpy(dst, staged->data(), bytes); return Step::done; });
	}
	error = enqueue(stream, "a copy", copy_work(dst, src, bytes));
	if (error == cudaSuccess && kind == cudaMemcpyDeviceToHost && !memory_is_pinned(dst, bytes))
	{
		state().pageable_copies++;
		if (stream->capture == nullptr)
			error = drain(stream);
	}
	return error;
}

}								/* namespace sim */

using namespace sim;

#define KNOWN(stream) \
	if (!stream_is_known(stream)) \
		return result(cudaErrorInvalidResourceHandle)

extern "C"
{

cudaError_t
cudaStreamCreate(cudaStream_t *out)
{
	CUDART_CALL();
	return result(create_stream(out, true));
}

cudaError_t
cudaStreamCreateWithFlags(cudaStream_t *out, unsigned int flags)
{
	CUDART_CALL();
	if (flags > cudaStreamNonBlocking)
		return result(cudaErrorInvalidValue);
	return result(create_stream(out, flags != cudaStreamNonBlocking));
}

cudaError_t
cudaStreamCreateWithPriority(cudaStream_t *out, unsigned int flags, int priority)
{
	CUDART_CALL();
	(void) priority;
	if (flags > cudaStreamNonBlocking)
		return result(cudaErrorInvalidValue);
	return result(create_stream(out, flags != cudaStreamNonBlocking));
}

cudaError_t
cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	CUDART_CALL();
	if (least != nullptr)
		*least = 0;
	if (greatest != nullptr)
		*greatest = -5;
	return cudaSuccess;
}

cudaError_t
cudaStreamDestroy(cudaStream_t stream)
{
	Call call(__func__);
	State &s = state();

	if (stream == nullptr || !stream_is_known(stream))
		return result(cudaErrorInvalidResourceHandle);
	if (stream->capture != nullptr)
		capture_invalidate(stream->capture);
	drain(stream);
	for (Capture *capture : s.captures)
		capture->streams.erase(std::remove(capture->streams.begin(), capture->streams.end(), stream),
							   capture->streams.end());
	s.device[stream->device].streams.erase(stream);
	delete stream;
	s.live[CUDASIM_STREAM]--;
	return call.release();
}

cudaError_t
cudaStreamSynchronize(cudaStream_t stream)
{
	cudaError_t error;

	CUDART_CALL();
	KNOWN(stream);
	if ((error = no_capture(stream_of(stream))) != cudaSuccess)
		return result(error);
	return result(drain(stream_of(stream)));
}

cudaError_t
cudaStreamQuery(cudaStream_t stream)
{
	CUstream_st *s;
	cudaError_t error;
	static std::map<CUstream_st *, uint64_t> asked;

	CUDART_CALL();
	KNOWN(stream);
	s = stream_of(stream);
	if ((error = no_capture(s)) != cudaSuccess)
		return result(error);
	if (s->queue.empty())
		return cudaSuccess;
	if (asked[s] != s->queue.front().seq)
	{
		asked[s] = s->queue.front().seq;
		return result(cudaErrorNotReady);
	}
	memory_open(s->device);
	while (advance(s))
		;
	memory_close(s->device);
	if (state().device[s->device].sticky != cudaSuccess)
		return result(state().device[s->device].sticky);
	return s->queue.empty() ? cudaSuccess : result(cudaErrorNotReady);
}

cudaError_t
cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
	CUDART_CALL();
	(void) flags;
	KNOWN(stream);
	if (event == nullptr)
		return result(cudaErrorInvalidResourceHandle);
	return result(wait_event(stream_of(stream), event));
}

cudaError_t
cudaDeviceSynchronize(void)
{
	cudaError_t error;

	CUDART_CALL();
	if ((error = capture_forbids()) != cudaSuccess)
		return result(error);
	error = drain_device(current_device());
	memory_check_fences(current_device(), "work of the device");
	return result(error != cudaSuccess ? error : state().device[current_device()].sticky);
}

/* The function runs when the stream comes to it, without access to device memory, and may not call CUDA. */
cudaError_t
cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data)
{
	CUDART_CALL();
	KNOWN(stream);
	if (function == nullptr)
		return result(cudaErrorInvalidValue);
	return result(enqueue(stream_of(stream), "a host function", [=]
	{
		function(data);
		return Step::done;
	}));
}

cudaError_t
cudaEventCreate(cudaEvent_t *out)
{
	CUDART_CALL();
	return result(create_event(out, cudaEventDefault));
}

cudaError_t
cudaEventCreateWithFlags(cudaEvent_t *out, unsigned int flags)
{
	CUDART_CALL();
	return result(create_event(out, flags));
}

cudaError_t
cudaEventDestroy(cudaEvent_t event)
{
	Call call(__func__);

	if (event == nullptr)
		return result(cudaErrorInvalidResourceHandle);
	delete event;
	state().live[CUDASIM_EVENT]--;
	return call.release();
}

cudaError_t
cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
	CUDART_CALL();
	KNOWN(stream);
	if (event == nullptr)
		return result(cudaErrorInvalidResourceHandle);
	return result(record_event(event, stream_of(stream)));
}

cudaError_t
cudaEventQuery(cudaEvent_t event)
{
	cudaError_t error;

	CUDART_CALL();
	if (event == nullptr)
		return result(cudaErrorInvalidResourceHandle);
	if (event->capture != nullptr)
		return result(cudaErrorCapturedEvent);
	if ((error = capture_forbids()) != cudaSuccess)
		return result(error);
	if (event->record == nullptr || event->record->done)
		return cudaSuccess;
	if (event->record->queries++ == 0)
		return result(cudaErrorNotReady);
	Device &d = state().device[event->device];
	memory_open(event->device);
	let_others_run(event->record->stream);
	while (!event->record->done && advance(event->record->stream))
		;
	memory_close(event->device);
	if (d.sticky != cudaSuccess)
		return result(d.sticky);
	return event->record->done ? cudaSuccess : result(cudaErrorNotReady);
}

cudaError_t
cudaEventSynchronize(cudaEvent_t event)
{
	CUDART_CALL();
	if (event == nullptr)
		return result(cudaErrorInvalidResourceHandle);
	if (event->capture != nullptr)
		return result(cudaErrorCapturedEvent);
	if (event->record == nullptr || event->record->done)
		return cudaSuccess;
	return result(drain(event->record->stream, event->record.get()));
}

cudaError_t
cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
	CUDART_CALL();
	if (ms == nullptr)
		return result(cudaErrorInvalidValue);
	if (start == nullptr || end == nullptr || start->record == nullptr || end->record == nullptr || !start->timing
		|| !end->timing)
		return result(cudaErrorInvalidResourceHandle);
	if (!start->record->done || !end->record->done)
		return result(cudaErrorNotReady);
	*ms = (float) (end->record->time_ms - start->record->time_ms);
	return cudaSuccess;
}

cudaError_t
cudaMemcpyAsync(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream)
{
	CUDART_CALL();
	KNOWN(stream);
	return result(copy(dst, src, bytes, kind, stream_of(stream)));
}

cudaError_t
cudaMemcpy(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind)
{
	cudaError_t error;

	CUDART_CALL();
	if ((error = capture_forbids()) != cudaSuccess || (error = no_capture(stream_of(nullptr))) != cudaSuccess)
		return result(error);
	error = copy(dst, src, bytes, kind, stream_of(nullptr));
	return result(error != cudaSuccess ? error : drain(stream_of(nullptr)));
}

cudaError_t
cudaMemcpyPeerAsync(void *dst, int dst_device, const void *src, int src_device, size_t bytes, cudaStream_t stream)
{
	CUDART_CALL();
	KNOWN(stream);
	if (memory_device(dst) != dst_device || memory_device(src) != src_device)
		return result(cudaErrorInvalidValue);
	return result(copy(dst, src, bytes, cudaMemcpyDeviceToDevice, stream_of(stream)));
}

cudaError_t
cudaMemsetAsync(void *dst, int value, size_t bytes, cudaStream_t stream)
{
	CUDART_CALL();
	KNOWN(stream);
	if (bytes == 0)
		return cudaSuccess;
	if (!memory_is_live(dst, bytes) && !memory_is_pinned(dst, bytes))
	{
		complain("cudaMemset of %zu bytes leaves its block: %s", bytes, memory_describe(dst).c_str());
		return result(cudaErrorInvalidValue);
	}
	return result(enqueue(stream_of(stream), "cudaMemset", [=] { memset(dst, value, bytes); return Step::done; }));
}

cudaError_t
cudaMemset(void *dst, int value, size_t bytes)
{
	return cudaMemsetAsync(dst, value, bytes, nullptr);
}

}								/* extern "C" */
