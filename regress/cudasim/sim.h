/*
 * sim.h - what the files of the stand-in share.
 *
 * One lock guards everything; a call of any library begins with a Call, which takes it.  Work for a device is a
 * Work put into a stream by enqueue() and run much later by advance(), in "device mode": then, and only then, is
 * device memory accessible, and a fault becomes an error of the device.
 */
#ifndef PGT_SIM_H
#define PGT_SIM_H

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <cuda_runtime_api.h>

#include "regress/cudasim/cudasim.h"

namespace sim
{

enum class Step
{
	done,
	pending						/* waits for another process or thread: try again */
};

/* Runs again from the start each time a graph is launched. */
using Work = std::function<Step()>;

/* A recorded event: done when the stream has come to it. */
struct Record
{
	CUstream_st *stream;
	bool		done = false;
	double		time_ms = 0;
	int			queries = 0;
};

struct Op
{
	std::string name;
	Work		work;
	uint64_t	seq;
	std::shared_ptr<Record> needs;	/* must be done before */
};

struct Capture;

}								/* namespace sim */

struct CUstream_st
{
	int			device;
	bool		blocking;		/* ordered with the legacy default stream */
	bool		legacy = false;
	std::deque<sim::Op> queue;
	sim::Capture *capture = nullptr;
	std::vector<size_t> tail;	/* while capturing: the nodes that the next one follows */
};

struct CUevent_st
{
	int			device;
	bool		timing;
	std::shared_ptr<sim::Record> record;
	sim::Capture *capture = nullptr;
	std::vector<size_t> tail;
};

struct CUgraph_st
{
	struct Node
	{
		std::string name;
		sim::Work	work;
		std::vector<size_t> after;
	};
	std::vector<Node> nodes;
	int			device = 0;
};

struct CUgraphExec_st
{
	CUgraph_st	graph;
};

namespace sim
{

struct Capture
{
	CUgraph_st *graph;
	CUstream_st *origin;
	cudaStreamCaptureMode mode;
	std::thread::id thread;
	std::vector<CUstream_st *> streams;
	bool		invalid = false;
};

struct Block
{
	size_t		bytes;			/* asked for */
	char	   *pages;			/* the pages it lies in */
	size_t		pages_bytes;
	int			device;
};

struct Device
{
	size_t		used = 0;
	cudaError_t sticky = cudaSuccess;
	CUstream_st legacy;
	std::set<CUstream_st *> streams;	/* legacy included, when it has been used */
	std::map<char *, Block> blocks;
	int			open = 0;		/* depth of memory_open */
	std::vector<char *> opened; /* blocks that are */
};

struct State
{
	std::recursive_mutex lock;
	/* settings */
	int			devices;
	CudasimOrder order;
	size_t		memory;
	int			major,
				minor,
				processors;
	bool		protect,
				quiet;
	int			hang_ms;
	std::mt19937_64 random;
	/* faults */
	long		fail_allocation,
				fail_call;
	int			fail_error;
	bool		fail_sticky;
	std::string fault_hit;
	/* counters */
	long		calls,
				allocations,
				kernels,
				pageable_copies;
	long		live[CUDASIM_KINDS];
	size_t		peak_bytes;
	std::string message,
				report;
	/* objects */
	uint64_t	seq;
	Device		device[16];
	std::map<char *, size_t> pinned,
				registered;
	std::map<const void *, int> max_dynamic_shared;
	std::vector<Capture *> captures;
};

extern State & state();
extern int &current_device();
extern double now_ms();

/* Note (and print) what was found. */
extern void complain(const char *fmt,...) __attribute__((format(printf, 1, 2)));
/* The running or coming work of the device fails for good. */
extern void lose_device(int device, cudaError_t error, const char *fmt,...) __attribute__((format(printf, 3, 4)));

/* Remember the error for cudaGetLastError and hand it on. */
extern cudaError_t result(cudaError_t error);

/*
 * A call of a library: holds the lock, counts, and says whether the call has to fail.  A release goes on all the
 * same and returns release().
 */
class Call
{
public:
	explicit Call(const char *name);
	/* cudaSuccess, or what the call has to return */
	cudaError_t error = cudaSuccess;
	/* the error was asked for, and is not the device's own */
	bool		injected = false;
	cudaError_t release() const { return result(error); }

private:
	std::unique_lock<std::recursive_mutex> guard;
};

#define CUDART_CALL() \
	sim::Call	call(__func__); \
	if (call.error != cudaSuccess) \
		return sim::result(call.error)

/* Whether the allocation that is about to be made has to fail. */
extern bool allocation_fails(const char *name);

/* memory.cpp */
extern int	memory_device(const void *ptr); /* -1: not device memory */
extern bool memory_is_live(const void *ptr, size_t bytes);
extern bool memory_is_pinned(const void *ptr, size_t bytes);
/* An address that a kernel may be given: live device memory of the device, or pinned. */
extern bool memory_device_may_use(int device, const void *ptr);
extern void memory_open(int device);
extern void memory_close(int device);
extern bool memory_open_at(const void *ptr);
extern bool memory_check_fences(int device, const char *after);
extern void memory_check_touched(int device, const char *after);
extern void memory_protect_all();
extern void memory_reset_device(int device);
extern void memory_reset();
extern std::string memory_describe(const void *ptr);
extern void memory_poison(void *ptr, size_t bytes);

/* stream.cpp */
extern CUstream_st *stream_of(cudaStream_t stream);
extern bool stream_is_known(cudaStream_t stream);
/* Put work into the stream, or into the graph that is being captured from it. */
extern cudaError_t enqueue(CUstream_st *stream, const char *name, Work work, std::shared_ptr<Record> needs = nullptr);
/* Run the stream until it is empty, or until the record is done. */
extern cudaError_t drain(CUstream_st *stream, const Record *until = nullptr);
extern cudaError_t drain_device(int device);
/* In device mode: a fault ends the work and loses the device. */
extern Step execute(int device, const char *name, const Work &work);
extern bool in_device_mode();
extern void stream_reset();
/* Forget the work of a device. */
extern void stream_drop(int device);

/* graph.cpp */
/* Not allowed while a capture of this thread forbids it: then the capture is lost. */
extern cudaError_t capture_forbids();
extern void capture_invalidate(Capture *capture);
extern size_t capture_add(CUstream_st *stream, const char *name, Work work);
extern void graph_reset();

/* fault.cpp: SIGSEGV */
extern void faults_install();
/* kernel.cpp */
extern void kernel_abandon();

}								/* namespace sim */

#endif							/* PGT_SIM_H */
