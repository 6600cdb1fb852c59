/*
 * kernel.cpp - running the threads of a kernel.
 *
 * The blocks of a grid run one after another.  Inside a block a thread runs, in the order that is tested, until it ends or
 * has to meet others; it only keeps a fiber of its own while it waits.  A kernel without meetings is thus a plain loop.
 * Lanes that have met run on before threads that have not started, so that warps drift apart as far as they can.
 */
#include "regress/cudasim/device.h"
#include "regress/cudasim/fiber.h"
#include "regress/cudasim/sim.h"

#include <algorithm>
#include <sys/mman.h>

#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim
#undef warpSize

extern "C" char __start_cudasim_shared[] __attribute__((weak)),
			__stop_cudasim_shared[] __attribute__((weak));

namespace cudasim
{
const Place *place;
uint3 block_index;
dim3 block_size,
			grid_size;
char *dynamic_shared;
}

namespace sim
{

using cudasim::Meeting;

static const int MAX_THREADS = 1024;
static const int WARP = 32;
static const size_t SHARED_DEFAULT = 48 * 1024;
static const size_t SHARED_LIMIT = 227 * 1024;
/* Filling shared memory with NaN costs more than small blocks do: only the first blocks of a launch get it. */
static const long POISONED_BLOCKS = 16;

enum class At
{
	start,
	running,
	ready,
	block,
	warp,
	end
};

struct Thread
{
	cudasim::Place place;
	At			at;
	Meeting		meeting;
	unsigned	mask;
	int			line;
	int			source;
	uint64_t	value;
	Fiber	   *fiber;
};

static Thread threads[MAX_THREADS];
static unsigned arrived[MAX_THREADS / WARP];	/* lanes of each warp that wait for others of it */
static int	count;				/* threads of a block */
static int	order[MAX_THREADS]; /* in which they start */
static int	started,
			ended,
			at_block;
static int	ready[MAX_THREADS]; /* a stack: the last one goes on first */
static int	nready;
static Thread *running;
static Thread *next;			/* to run by the fiber that is switched to */
static const std::function<void()> *body;
static const char *kernel_name;
static int	kernel_device;
static Fiber scheduler;			/* the stack of execute() */
static Fiber *own_fiber;		/* that runs now */
static Fiber *free_fibers;
static std::vector<Fiber *> all_fibers;
static bool failed;
static char *shared_end;

/* Fibers in the middle of an abandoned kernel never go on: forget them, but not their stacks. */
void
kernel_abandon()
{
	free_fibers = nullptr;
	all_fibers.clear();
}

static void
fail(const char *what, const Thread *t)
{
	const uint3 &b = cudasim::block_index;

	lose_device(kernel_device, cudaErrorLaunchFailure, "%s, line %d: %s (thread %u,%u,%u of block %u,%u,%u)",
				kernel_name, t->line, what, t->place.thread.x, t->place.thread.y, t->place.thread.z, b.x, b.y, b.z);
	failed = true;
}

static void run_threads();

static Fiber *
take_fiber()
{
	Fiber *fiber = free_fibers;

	if (fiber != nullptr)
		free_fibers = fiber->next_free;
	else
	{
		fiber = fiber_new(run_threads);
		all_fibers.push_back(fiber);
	}
	return fiber;
}

static void
make_ready(Thread *t)
{
	t->at = At::ready;
	ready[nready++] = (int) (t - threads);
}

/* The lanes of a warp that exist. */
static unsigned
lanes_of(int warp)
{
	int lanes = std::min(WARP, count - warp * WARP);

	return lanes == WARP ? 0xffffffffu : (1u << lanes) - 1;
}

/* All threads are at the barrier: they go on, the first in order first. */
static void
release_block()
{
	int line = threads[0].line;

	for (int i = 1; i < count; i++)
		if (threads[i].line != line)
		{
			fail(("__syncthreads in different places, here and in line " + std::to_string(line)).c_str(), &threads[i]);
			return;
		}
	at_block = 0;
	if (state().order == CUDASIM_RANDOM)
		std::shuffle(order, order + count, state().random);
	for (int i = count; i-- > 0;)
		make_ready(&threads[order[i]]);
}

/* The lanes of the mask have met: give each what it asked for. */
static void
release_lanes(Thread *first, unsigned mask)
{
	uint64_t values[WARP];
	uint64_t ballot = 0;
	int lanes[WARP],
				n = 0;
	bool backwards = state().order == CUDASIM_REVERSE;

	for (int lane = 0; lane < WARP; lane++)
		if (mask & (1u << lane))
		{
			values[lane] = first[lane].value;
			ballot |= (uint64_t) (first[lane].value != 0) << lane;
			lanes[n++] = lane;
		}
	for (int i = 0; i < n; i++)
	{
		Thread *t = &first[lanes[i]];

		if (t->meeting == Meeting::ballot)
			t->value = ballot;
		else if (t->meeting == Meeting::shuffle)
		{
			if (t->source < 0 || t->source >= WARP || !(mask & (1u << t->source)))
			{
				fail("a shuffle reads a lane that does not take part", t);
				return;
			}
			t->value = values[t->source];
		}
	}
	if (state().order == CUDASIM_RANDOM)
		std::shuffle(lanes, lanes + n, state().random);
	/* the last one made ready goes on first */
	for (int i = 0; i < n; i++)
		make_ready(&first[lanes[backwards ? i : n - 1 - i]]);
}

/* A lane has come to a meeting: true when it was the last one. */
static bool
lanes_meet(Thread *t)
{
	int warp = (int) (t - threads) / WARP;
	Thread *first = &threads[warp * WARP];
	unsigned mask = t->mask & lanes_of(warp);

	if (!(mask & (1u << t->place.lane)))
	{
		fail("a lane is not in the mask that it gives", t);
		return false;
	}
	arrived[warp] |= 1u << t->place.lane;
	if ((arrived[warp] & mask) != mask)
		return false;
	for (unsigned rest = mask; rest != 0; rest &= rest - 1)
	{
		const Thread *other = &first[__builtin_ctz(rest)];

		if (other->mask != t->mask || other->meeting != t->meeting || other->line != t->line)
		{
			fail(("lanes of a warp meet in different places, here and in line " + std::to_string(other->line)).c_str(), t);
			return false;
		}
	}
	arrived[warp] &= ~mask;
	release_lanes(first, mask);
	return true;
}

/* Nothing can run: say why. */
static void
explain_deadlock()
{
	for (int i = 0; i < count; i++)
		if (threads[i].at == At::warp)
		{
			fail("a *_sync function names lanes that ended or wait elsewhere", &threads[i]);
			return;
		}
	for (int i = 0; i < count; i++)
		if (threads[i].at == At::block)
		{
			fail("__syncthreads is not reached by all threads of the block", &threads[i]);
			return;
		}
}

/*
 * Who goes on.  NULL: nobody, the block is done or has failed.  A thread that has not started yet needs a fiber.
 */
static Thread *
choose()
{
	if (!failed && at_block == count)
		release_block();
	if (failed)
		return nullptr;
	if (nready > 0 && (started == count || state().order != CUDASIM_RANDOM || state().random() % 4 != 0))
		return &threads[ready[--nready]];
	if (started < count)
		return &threads[order[started++]];
	if (ended < count)
		explain_deadlock();
	return nullptr;
}

/* Go on with the thread from the fiber that waits or ends. */
static void
go_on(Thread *t)
{
	Fiber *from = own_fiber,
			   *to;

	if (t == nullptr)
		to = &scheduler;
	else
	{
		if (t->at == At::start)
			t->fiber = take_fiber();
		to = t->fiber;
	}
	next = t;
	own_fiber = to;
	if (to != from)
		fiber_switch(from, to);
	/* back again */
	if (own_fiber != &scheduler)
	{
		running = next;
		running->at = At::running;
		cudasim::place = &running->place;
	}
}

/* What a fiber does: run a thread to its end, then the next. */
static void
run_threads()
{
	running = next;
	for (;;)
	{
		Fiber *mine = own_fiber;
		Thread *t;

		running->at = At::running;
		running->fiber = mine;
		cudasim::place = &running->place;
		(*body)();
		running->at = At::end;
		ended++;
		t = choose();
		if (t != nullptr && t->at == At::start)
		{
			running = t;		/* on the same fiber */
			continue;
		}
		mine->next_free = free_fibers;
		free_fibers = mine;
		go_on(t);
	}
}

/* The running thread waits. */
static void
wait()
{
	go_on(choose());
}

static void
run_block()
{
	State &s = state();

	started = ended = at_block = nready = 0;
	memset(arrived, 0, sizeof(arrived));
	for (int i = 0; i < count; i++)
		threads[i].at = At::start;
	if (s.order == CUDASIM_RANDOM)
		std::shuffle(order, order + count, s.random);
	own_fiber = &scheduler;
	go_on(choose());
}

/* Shared memory ends at a page that nobody may touch. */
static void
prepare_shared(size_t bytes)
{
	static char *base;
	size_t size = (SHARED_LIMIT + 4095) / 4096 * 4096;

	if (base == nullptr)
	{
		base = (char *) mmap(nullptr, size + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		mprotect(base + size, 4096, PROT_NONE);
		shared_end = base + size;
	}
	cudasim::dynamic_shared = shared_end - (bytes + 127) / 128 * 128;
}

static Step
run_grid(int device, const char *name, dim3 grid, dim3 block, size_t shared, const std::function<void()> &thread)
{
	State &s = state();
	long blocks = (long) grid.x * grid.y * grid.z;
	std::vector<long> block_order;

	kernel_name = name;
	kernel_device = device;
	body = &thread;
	failed = false;
	count = (int) (block.x * block.y * block.z);
	cudasim::block_size = block;
	cudasim::grid_size = grid;
	for (int i = 0; i < count; i++)
	{
		threads[i].place.thread = {i % block.x, i / block.x % block.y, i / (block.x * block.y)};
		threads[i].place.lane = i % WARP;
		order[i] = s.order == CUDASIM_REVERSE ? count - 1 - i : i;
	}
	prepare_shared(shared);
	if (s.order == CUDASIM_RANDOM)
	{
		block_order.resize(blocks);
		for (long i = 0; i < blocks; i++)
			block_order[i] = i;
		std::shuffle(block_order.begin(), block_order.end(), s.random);
	}
	for (long i = 0; i < blocks && !failed; i++)
	{
		long b = s.order == CUDASIM_FORWARD ? i : s.order == CUDASIM_REVERSE ? blocks - 1 - i : block_order[i];

		cudasim::block_index = {(unsigned) (b % grid.x), (unsigned) (b / grid.x % grid.y), (unsigned) (b / grid.x / grid.y)};
		if (i < POISONED_BLOCKS)
		{
			memory_poison(cudasim::dynamic_shared, shared_end - cudasim::dynamic_shared);
			if (__start_cudasim_shared != nullptr)
				memory_poison(__start_cudasim_shared, __stop_cudasim_shared - __start_cudasim_shared);
		}
		run_block();
	}
	if (failed)
		kernel_abandon();
	s.kernels++;
	memory_check_touched(device, name);
	return Step::done;
}

}								/* namespace sim */

namespace cudasim
{

using namespace sim;

void
meet_block(int line)
{
	running->at = At::block;
	running->line = line;
	at_block++;
	wait();
}

uint64_t
meet_warp(Meeting what, unsigned mask, uint64_t value, int source, int line)
{
	Thread *t = running;

	t->at = At::warp;
	t->meeting = what;
	t->mask = mask;
	t->value = value;
	t->source = source;
	t->line = line;
	lanes_meet(t);
	wait();
	return t->value;
}

/* What a launch checks at once; what the pointers are worth is seen when the kernel runs. */
cudaError_t
launch(const char *name, const void *kernel, dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
	   std::function<void()> thread, const void *const *pointers, int npointers)
{
	Call call("a launch");
	State &s = state();
	auto limit = s.max_dynamic_shared.find(kernel);
	std::vector<const void *> used(pointers, pointers + npointers);
	CUstream_st *where;
	int device;

	if (call.error != cudaSuccess)
		return result(call.error);
	if (!stream_is_known(stream))
		return result(cudaErrorInvalidResourceHandle);
	if (grid.x == 0 || grid.y == 0 || grid.z == 0 || block.x == 0 || block.y == 0 || block.z == 0 || grid.x > 2147483647u
		|| grid.y > 65535 || grid.z > 65535 || block.z > 64 || (uint64_t) block.x * block.y * block.z > MAX_THREADS)
	{
		complain("%s was launched with grid %u,%u,%u and block %u,%u,%u", name, grid.x, grid.y, grid.z, block.x, block.y,
				 block.z);
		return result(cudaErrorInvalidConfiguration);
	}
	if (shared > (limit != s.max_dynamic_shared.end() ? (size_t) limit->second : SHARED_DEFAULT))
	{
		complain("%s was launched with %zu bytes of shared memory, more than it may have", name, shared);
		return result(cudaErrorInvalidValue);
	}
	where = stream_of(stream);
	device = where->device;
	return result(enqueue(where, name, [=]
	{
		for (int i = 0; i < npointers; i++)
			if (used[i] != nullptr && !memory_device_may_use(device, used[i]))
			{
				lose_device(device, cudaErrorIllegalAddress, "argument %d of %s is %s", i + 1, name,
							memory_describe(used[i]).c_str());
				return Step::done;
			}
		return run_grid(device, name, grid, block, shared, thread);
	}));
}

}								/* namespace cudasim */

using namespace sim;

extern "C"
{

cudaError_t
cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value)
{
	CUDART_CALL();
	if (function == nullptr)
		return result(cudaErrorInvalidDeviceFunction);
	if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize)
	{
		if (value < 0 || (size_t) value > SHARED_LIMIT)
			return result(cudaErrorInvalidValue);
		state().max_dynamic_shared[function] = value;
	}
	else if (attribute != cudaFuncAttributePreferredSharedMemoryCarveout)
		return result(cudaErrorInvalidValue);
	return cudaSuccess;
}

}								/* extern "C" */
