/*
 * state.cpp - settings, faults asked for, counters, and what the tests are told.
 */
#include "regress/cudasim/sim.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace sim
{

static thread_local cudaError_t last_error;

/* A number in the environment. */
static long long
environment(const char *name, long long otherwise)
{
	const char *text = getenv(name);

	return text != nullptr && *text != '\0' ? atoll(text) : otherwise;
}

static void
read_settings(State *s)
{
	const char *order = getenv("CUDASIM_ORDER");

	s->devices = (int) environment("CUDASIM_DEVICES", 1);
	s->order = order == nullptr || *order == 'f' ? CUDASIM_FORWARD
		: *order == 'r' && order[1] == 'e' ? CUDASIM_REVERSE : CUDASIM_RANDOM;
	s->random.seed((uint64_t) environment("CUDASIM_SEED", 1));
	s->memory = (size_t) environment("CUDASIM_MEMORY", 16ll << 30);
	s->protect = environment("CUDASIM_PROTECT", 1) != 0;
	s->quiet = environment("CUDASIM_QUIET", 0) != 0;
	s->hang_ms = (int) environment("CUDASIM_HANG_MS", 20000);
	s->major = 9;
	s->minor = 0;
	s->processors = 132;
	for (int i = 0; i < 16; i++)
	{
		s->device[i].legacy.device = i;
		s->device[i].legacy.blocking = true;
		s->device[i].legacy.legacy = true;
	}
}

State &
state()
{
	static State *s = []
	{
		State *fresh = new State();

		read_settings(fresh);
		faults_install();
		return fresh;
	}();

	return *s;
}

int &
current_device()
{
	static thread_local int device;

	return device;
}

double
now_ms()
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e3 + t.tv_nsec * 1e-6;
}

static void
note(const char *fmt, va_list args)
{
	State &s = state();
	char text[1024];

	vsnprintf(text, sizeof(text), fmt, args);
	if (!s.message.empty())
		s.message += '\n';
	s.message += text;
	if (!s.quiet)
		fprintf(stderr, "cudasim: %s\n", text);
}

void
complain(const char *fmt,...)
{
	va_list args;

	va_start(args, fmt);
	note(fmt, args);
	va_end(args);
}

void
lose_device(int device, cudaError_t error, const char *fmt,...)
{
	va_list args;

	va_start(args, fmt);
	note(fmt, args);
	va_end(args);
	if (state().device[device].sticky == cudaSuccess)
		state().device[device].sticky = error;
}

cudaError_t
result(cudaError_t error)
{
	if (error != cudaSuccess)
		last_error = error;
	return error;
}

Call::Call(const char *name)
	: guard(state().lock)
{
	State &s = state();

	if (in_device_mode())
	{
		error = cudaErrorNotPermitted;	/* a host function in a stream must not call CUDA */
		complain("%s was called by a host function in a stream", name);
		return;
	}
	s.calls++;
	if (s.fail_call > 0 && --s.fail_call == 0)
	{
		s.fault_hit = name;
		injected = true;
		error = (cudaError_t) s.fail_error;
		if (s.fail_sticky)
			s.device[current_device()].sticky = error;
	}
	else if (current_device() < s.devices)
		error = s.device[current_device()].sticky;
}

bool
allocation_fails(const char *name)
{
	State &s = state();

	s.allocations++;
	if (s.fail_allocation > 0 && --s.fail_allocation == 0)
	{
		s.fault_hit = name;
		return true;
	}
	return false;
}

static const char *const kind_names[CUDASIM_KINDS] = {
	"device memory", "pinned memory", "registered memory", "streams", "events", "graphs", "executable graphs",
	"cuBLASLt handles", "cuBLASLt descriptors", "cuDNN handles", "cuDNN descriptors", "NCCL communicators"
};

}								/* namespace sim */

using namespace sim;

extern "C"
{

void
cudasim_reset(void)
{
	State &s = state();
	std::lock_guard<std::recursive_mutex> guard(s.lock);

	graph_reset();
	stream_reset();
	memory_reset();
	for (Device &d : s.device)
		d.sticky = cudaSuccess;
	s.fail_allocation = s.fail_call = 0;
	s.fault_hit.clear();
	s.calls = s.allocations = s.kernels = s.pageable_copies = 0;
	memset(s.live, 0, sizeof(s.live));
	s.peak_bytes = 0;
	s.message.clear();
	s.max_dynamic_shared.clear();
	last_error = cudaSuccess;
	current_device() = 0;
	read_settings(&s);
}

void
cudasim_set_devices(int count)
{
	state().devices = count;
}

void
cudasim_set_order(CudasimOrder order, uint64_t seed)
{
	state().order = order;
	state().random.seed(seed);
}

void
cudasim_set_memory(size_t bytes)
{
	state().memory = bytes;
}

void
cudasim_set_capability(int major, int minor)
{
	state().major = major;
	state().minor = minor;
}

void
cudasim_set_processors(int count)
{
	state().processors = count;
}

void
cudasim_set_protect(int protect)
{
	state().protect = protect != 0;
	memory_protect_all();
}

void
cudasim_set_quiet(int quiet)
{
	state().quiet = quiet != 0;
}

void
cudasim_set_hang_ms(int ms)
{
	state().hang_ms = ms;
}

void
cudasim_fail_allocation(long k)
{
	state().fail_allocation = k;
	state().fault_hit.clear();
}

void
cudasim_fail_call(long k, int error, int sticky)
{
	state().fail_call = k;
	state().fail_error = error;
	state().fail_sticky = sticky != 0;
	state().fault_hit.clear();
}

const char *
cudasim_fault_hit(void)
{
	return state().fault_hit.empty() ? nullptr : state().fault_hit.c_str();
}

long
cudasim_calls(void)
{
	return state().calls;
}

long
cudasim_allocations(void)
{
	return state().allocations;
}

long
cudasim_kernels(void)
{
	return state().kernels;
}

long
cudasim_pageable_copies(void)
{
	return state().pageable_copies;
}

long
cudasim_live(CudasimKind kind)
{
	return state().live[kind];
}

size_t
cudasim_live_bytes(void)
{
	size_t bytes = 0;

	for (Device &d : state().device)
		bytes += d.used;
	return bytes;
}

size_t
cudasim_peak_bytes(void)
{
	return state().peak_bytes;
}

const char *
cudasim_live_report(void)
{
	State &s = state();

	s.report.clear();
	for (int kind = 0; kind < CUDASIM_KINDS; kind++)
		if (s.live[kind] != 0)
			s.report += (s.report.empty() ? "" : ", ") + std::to_string(s.live[kind]) + " " + kind_names[kind];
	return s.report.c_str();
}

const char *
cudasim_message(void)
{
	return state().message.c_str();
}

int
cudasim_check_fences(void)
{
	bool whole = true;

	for (int i = 0; i < 16; i++)
		whole &= memory_check_fences(i, "the program");
	return whole;
}

cudaError_t
cudaGetLastError(void)
{
	State &s = state();
	std::lock_guard<std::recursive_mutex> guard(s.lock);
	cudaError_t error = s.device[current_device()].sticky;

	if (error == cudaSuccess)
		error = last_error;
	last_error = cudaSuccess;
	return error;
}

cudaError_t
cudaPeekAtLastError(void)
{
	State &s = state();
	std::lock_guard<std::recursive_mutex> guard(s.lock);
	cudaError_t error = s.device[current_device()].sticky;

	return error != cudaSuccess ? error : last_error;
}

}								/* extern "C" */
