/*
 * nccl.cpp - collectives between ranks that are processes or threads, over a file in shared memory.
 *
 * Data goes in chunks: each rank writes its own into its slot, and when all have, everyone reads all slots, in the order
 * of ranks.  A rank that has to wait gives its stream back (Step::pending); one whose peer has died waits until its
 * communicator is aborted, as a real one does, and says ncclRemoteError meanwhile.
 */
#include "regress/cudasim/numbers.h"
#include "regress/cudasim/sim.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <nccl.h>

namespace sim
{

static const int MAX_RANKS = 16;
static const size_t CHUNK = (size_t) 1 << 20;

enum RankState
{
	RANK_ABSENT,
	RANK_HERE,
	RANK_LEFT,					/* destroyed its communicator */
	RANK_ABORTED
};

/* A rank as the others see it. */
struct Rank
{
	std::atomic<int> state;
	std::atomic<int> pid;
	std::atomic<int> device;
	std::atomic<uint64_t> posted;	/* the last chunk written to its slot */
	std::atomic<uint64_t> consumed;	/* the last chunk it has read everywhere */
	uint64_t	signature;		/* of the collective that posted is of */
};

/* Begins the file; a slot of CHUNK bytes a rank follows. */
struct Segment
{
	std::atomic<int> joined;
	std::atomic<int> ranks;		/* as the first one said */
	Rank		rank[MAX_RANKS];
};

}								/* namespace sim */

struct ncclComm
{
	sim::Segment *segment;
	size_t		bytes;
	int			rank,
				ranks,
				device;
	bool		blocking;
	bool		ready;			/* all ranks have joined */
	bool		aborted;
	int			polls;			/* for which a call that does not block is still in progress */
	ncclResult_t failed;
	uint64_t	chunk;			/* of this rank's next one */
	double		looked_ms;		/* when peers were last looked at */
	std::string name;
};

namespace sim
{

static char *
slot(const ncclComm *comm, int rank)
{
	return (char *) comm->segment + (sizeof(Segment) + 4095) / 4096 * 4096 + (size_t) rank * CHUNK;
}

static ncclResult_t
refuse(ncclResult_t status, const char *why)
{
	complain("NCCL: %s", why);
	return status;
}

/* Whether the process runs: neither gone nor waiting to be buried. */
static bool
is_alive(int pid)
{
	char path[40],
				text[512];
	FILE *file;
	const char *end;
	size_t n;

	if (pid == getpid())
		return true;
	if (kill(pid, 0) != 0 && errno == ESRCH)
		return false;
	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	file = fopen(path, "r");
	if (file == nullptr)
		return false;
	n = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	text[n] = '\0';
	end = strrchr(text, ')');
	return end == nullptr || (end[1] == ' ' && end[2] != 'Z' && end[2] != 'X');
}

/* Look for peers that have died or given up, at most once a ms. */
static void
look_at_peers(ncclComm *comm)
{
	double now = now_ms();

	if (comm->failed != ncclSuccess || now - comm->looked_ms < 1)
		return;
	comm->looked_ms = now;
	for (int r = 0; r < comm->ranks; r++)
	{
		Rank &peer = comm->segment->rank[r];
		int state = peer.state;

		if (r != comm->rank && (state == RANK_ABORTED || (state == RANK_HERE && !is_alive(peer.pid))))
		{
			comm->failed = ncclRemoteError;
			complain("NCCL: rank %d is gone", r);
			return;
		}
	}
}

/* Whether all ranks have joined; then the file's name is not needed any more. */
static bool
look_for_ranks(ncclComm *comm)
{
	if (comm->ready)
		return true;
	look_at_peers(comm);
	if (comm->failed != ncclSuccess || comm->segment->joined < comm->ranks)
		return false;
	for (int a = 0; a < comm->ranks; a++)
		for (int b = 0; b < a; b++)
			if (comm->segment->rank[a].device == comm->segment->rank[b].device)
			{
				comm->failed = refuse(ncclInvalidUsage, "two ranks have the same device");
				return false;
			}
	if (comm->rank == 0)
		unlink(comm->name.c_str());
	comm->ready = true;
	return true;
}

static size_t
type_bytes(ncclDataType_t type)
{
	switch (type)
	{
		case ncclInt8:
		case ncclUint8:
			return 1;
		case ncclFloat16:
		case ncclBfloat16:
			return 2;
		case ncclInt32:
		case ncclUint32:
		case ncclFloat32:
			return 4;
		case ncclInt64:
		case ncclUint64:
		case ncclFloat64:
			return 8;
		default:
			return 0;
	}
}

static double
read_element(ncclDataType_t type, const void *p, size_t i)
{
	switch (type)
	{
		case ncclFloat64:
			return ((const double *) p)[i];
		case ncclInt32:
			return ((const int32_t *) p)[i];
		case ncclInt64:
			return (double) ((const int64_t *) p)[i];
		default:
			return load(type == ncclFloat32 ? Number::f32 : type == ncclBfloat16 ? Number::bf16 : Number::f16, p, i);
	}
}

static void
write_element(ncclDataType_t type, void *p, size_t i, double value)
{
	switch (type)
	{
		case ncclFloat64:
			((double *) p)[i] = value;
			break;
		case ncclInt32:
			((int32_t *) p)[i] = (int32_t) value;
			break;
		case ncclInt64:
			((int64_t *) p)[i] = (int64_t) value;
			break;
		default:
			store(type == ncclFloat32 ? Number::f32 : type == ncclBfloat16 ? Number::bf16 : Number::f16, p, i,
				  (float) value);
	}
}

enum class Kind
{
	all_reduce,
	broadcast,
	all_gather
};

/* A collective, and how far it has come. */
struct Collective
{
	ncclComm   *comm;
	Kind		kind;
	const void *send;
	void	   *receive;
	size_t		count;
	ncclDataType_t type;
	ncclRedOp_t op;
	int			root;
	size_t		done;			/* elements */
	bool		posted;			/* the chunk at done is in the slot */
};

static uint64_t
signature(const Collective &c, size_t part)
{
	return ((((uint64_t) c.kind * 31 + c.type) * 31 + c.op) * 31 + (uint64_t) c.root) * 1000003 + c.count * 131 + part;
}

static double
reduce(ncclRedOp_t op, double a, double b)
{
	return op == ncclMax ? std::max(a, b) : op == ncclMin ? std::min(a, b) : a + b;
}

/* All slots are full: make this rank's part of the result of them. */
static void
take_chunk(const Collective &c, size_t n)
{
	const ncclComm *comm = c.comm;
	size_t bytes = type_bytes(c.type);
	char *to = (char *) c.receive + c.done * bytes;

	if (c.kind == Kind::broadcast)
		memcpy(to, slot(comm, c.root), n * bytes);
	else if (c.kind == Kind::all_gather)
		for (int r = 0; r < comm->ranks; r++)
			memcpy((char *) c.receive + ((size_t) r * c.count + c.done) * bytes, slot(comm, r), n * bytes);
	else
		for (size_t i = 0; i < n; i++)
		{
			double value = read_element(c.type, slot(comm, 0), i);

			for (int r = 1; r < comm->ranks; r++)
				value = reduce(c.op, value, read_element(c.type, slot(comm, r), i));
			write_element(c.type, to, i, c.op == ncclAvg ? value / comm->ranks : value);
		}
}

/* Whether all ranks have come as far as the chunk. */
static bool
all_at(const ncclComm *comm, std::atomic<uint64_t> Rank::*what, uint64_t chunk)
{
	for (int r = 0; r < comm->ranks; r++)
		if ((comm->segment->rank[r].*what).load(std::memory_order_acquire) < chunk)
			return false;
	return true;
}

static Step
run(Collective &c)
{
	ncclComm *comm = c.comm;
	Rank &mine = comm->segment->rank[comm->rank];
	size_t bytes = type_bytes(c.type);

	while (c.done < c.count)
	{
		size_t n = std::min(c.count - c.done, CHUNK / bytes);

		if (comm->aborted || comm->failed == ncclInvalidUsage)
			break;
		look_at_peers(comm);
		if (comm->failed != ncclSuccess)
			return Step::pending;
		if (!c.posted)
		{
			if (!all_at(comm, &Rank::consumed, comm->chunk))
				return Step::pending;
			comm->chunk++;
			memcpy(slot(comm, comm->rank), (const char *) c.send + c.done * bytes, n * bytes);
			mine.signature = signature(c, c.done);
			mine.posted.store(comm->chunk, std::memory_order_release);
			c.posted = true;
		}
		if (!all_at(comm, &Rank::posted, comm->chunk))
			return Step::pending;
		for (int r = 0; r < comm->ranks; r++)
			if (comm->segment->rank[r].signature != mine.signature)
			{
				comm->failed = ncclInvalidUsage;
				lose_device(comm->device, cudaErrorLaunchFailure, "ranks %d and %d are in different collectives",
							comm->rank, r);
				return Step::done;
			}
		take_chunk(c, n);
		mine.consumed.store(comm->chunk, std::memory_order_release);
		c.posted = false;
		c.done += n;
	}
	/* a graph may run it again */
	c.done = 0;
	c.posted = false;
	return Step::done;
}

static ncclResult_t
start(const char *name, ncclComm *comm, Kind kind, const void *send, void *receive, size_t count, ncclDataType_t type,
	  ncclRedOp_t op, int root, cudaStream_t stream)
{
	auto c = std::make_shared<Collective>(Collective{comm, kind, send, receive, count, type, op, root, 0, false});
	CUstream_st *where;

	if (comm == nullptr || type_bytes(type) == 0 || root < 0 || root >= comm->ranks)
		return refuse(ncclInvalidArgument, "a collective has an argument that is wrong");
	if (kind == Kind::all_reduce && (type_bytes(type) == 1 || type == ncclUint32 || type == ncclUint64 || op == ncclProd))
		return refuse(ncclInvalidArgument, "the stand-in has no such reduction");
	if (comm->failed != ncclSuccess)
		return comm->failed;
	if (!comm->ready || comm->polls > 0)
		return refuse(ncclInvalidUsage, "a collective while the communicator is still in progress");
	if (!stream_is_known(stream) || stream_of(stream)->device != comm->device)
		return refuse(ncclInvalidArgument, "the stream is of another device");
	if (count == 0)
		return ncclSuccess;
	where = stream_of(stream);
	if (enqueue(where, name, [=]
	{
		for (const void *pointer : {send, (const void *) receive})
			if (!memory_device_may_use(comm->device, pointer))
			{
				lose_device(comm->device, cudaErrorIllegalAddress, "%s was given %s", name,
							memory_describe(pointer).c_str());
				return Step::done;
			}
		return run(*c);
	}) != cudaSuccess)
		return ncclUnhandledCudaError;
	if (comm->blocking)
		return ncclSuccess;
	comm->polls = 1;
	return ncclInProgress;
}

/* Join the ranks of the file that the id names. */
static ncclResult_t
join(ncclComm *comm)
{
	size_t header = (sizeof(Segment) + 4095) / 4096 * 4096;
	int file = open(comm->name.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	Segment *segment;

	comm->bytes = header + (size_t) comm->ranks * CHUNK;
	if (file < 0)
		return refuse(ncclSystemError, "the shared file cannot be opened");
	if (ftruncate(file, (off_t) comm->bytes) != 0)
	{
		close(file);
		return refuse(ncclSystemError, "the shared file cannot grow");
	}
	segment = (Segment *) mmap(nullptr, comm->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	close(file);
	if (segment == MAP_FAILED)
		return refuse(ncclSystemError, "the shared file cannot be mapped");
	comm->segment = segment;
	segment->rank[comm->rank].pid = getpid();
	segment->rank[comm->rank].device = comm->device;
	if (segment->rank[comm->rank].state.exchange(RANK_HERE) != RANK_ABSENT)
		return refuse(ncclInvalidUsage, "a rank has joined twice");
	segment->joined++;
	return ncclSuccess;
}

static void
leave(ncclComm *comm, RankState state)
{
	if (comm->segment != nullptr)
	{
		comm->segment->rank[comm->rank].state = state;
		munmap(comm->segment, comm->bytes);
	}
	if (comm->rank == 0)
		unlink(comm->name.c_str());
	delete comm;
	sim::state().live[CUDASIM_NCCL_COMM]--;
}

}								/* namespace sim */

using namespace sim;

#define NCCL_CALL() \
	Call		call(__func__); \
	if (call.error != cudaSuccess) \
		return ncclUnhandledCudaError

extern "C"
{

ncclResult_t
ncclGetVersion(int *version)
{
	if (version == nullptr)
		return ncclInvalidArgument;
	*version = NCCL_VERSION_CODE;
	return ncclSuccess;
}

const char *
ncclGetErrorString(ncclResult_t result)
{
	static const char *const texts[] = {"no error", "unhandled cuda error", "unhandled system error", "internal error",
	"invalid argument", "invalid usage", "remote process exited or there was a network error", "NCCL operation in progress"};

	return (unsigned) result < sizeof(texts) / sizeof(texts[0]) ? texts[result] : "unknown result code";
}

const char *
ncclGetLastError(ncclComm_t comm)
{
	(void) comm;
	return cudasim_message();
}

ncclResult_t
ncclGetUniqueId(ncclUniqueId *id)
{
	static std::atomic<int> count;
	const char *folder = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";

	NCCL_CALL();
	if (id == nullptr)
		return ncclInvalidArgument;
	memset(id, 0, sizeof(*id));
	snprintf(id->internal, sizeof(id->internal), "%s/cudasim_nccl_%d_%d_%ld", folder, (int) getpid(), (int) count++,
			 (long) (now_ms() * 1000));
	return ncclSuccess;
}

ncclResult_t
ncclCommInitRankConfig(ncclComm_t *out, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config)
{
	ncclComm *comm;
	ncclResult_t status;
	double limit;

	NCCL_CALL();
	if (out == nullptr || ranks < 1 || ranks > MAX_RANKS || rank < 0 || rank >= ranks
		|| memchr(id.internal, '\0', sizeof(id.internal)) == nullptr || id.internal[0] != '/'
		|| (config != nullptr && config->size != sizeof(*config)))
		return refuse(ncclInvalidArgument, "a communicator has an argument that is wrong");
	*out = nullptr;
	if (allocation_fails(__func__))
		return ncclSystemError;
	comm = new ncclComm();
	state().live[CUDASIM_NCCL_COMM]++;
	comm->rank = rank;
	comm->ranks = ranks;
	comm->device = current_device();
	comm->blocking = config == nullptr || config->blocking == NCCL_CONFIG_UNDEF_INT || config->blocking != 0;
	comm->failed = ncclSuccess;
	comm->name = id.internal;
	if ((status = join(comm)) != ncclSuccess)
	{
		leave(comm, RANK_ABORTED);
		return status;
	}
	*out = comm;
	if (!comm->blocking)
	{
		comm->polls = 1;
		return ncclInProgress;
	}
	limit = now_ms() + state().hang_ms;
	while (!look_for_ranks(comm) && comm->failed == ncclSuccess)
	{
		if (now_ms() > limit)
			comm->failed = refuse(ncclSystemError, "not all ranks have come");
		state().lock.unlock();
		usleep(50);
		state().lock.lock();
	}
	return comm->failed;
}

ncclResult_t
ncclCommInitRank(ncclComm_t *out, int ranks, ncclUniqueId id, int rank)
{
	return ncclCommInitRankConfig(out, ranks, id, rank, nullptr);
}

/* A call that does not block is in progress at the first poll after it, at least. */
ncclResult_t
ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
	NCCL_CALL();
	if (comm == nullptr || error == nullptr)
		return ncclInvalidArgument;
	if (comm->ready)
		look_at_peers(comm);
	if (comm->polls > 0)
		comm->polls--, *error = ncclInProgress;
	else
		*error = look_for_ranks(comm) ? ncclSuccess : ncclInProgress;
	if (comm->failed != ncclSuccess)
		*error = comm->failed;
	return ncclSuccess;
}

ncclResult_t
ncclCommFinalize(ncclComm_t comm)
{
	NCCL_CALL();
	if (comm == nullptr)
		return ncclInvalidArgument;
	if (comm->blocking)
		return comm->failed;
	comm->polls = 1;
	return ncclInProgress;
}

ncclResult_t
ncclCommDestroy(ncclComm_t comm)
{
	Call call(__func__);

	if (comm == nullptr)
		return ncclInvalidArgument;
	drain_device(comm->device);
	leave(comm, RANK_LEFT);
	return call.error == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

/* What waits in a stream ends, without a result. */
ncclResult_t
ncclCommAbort(ncclComm_t comm)
{
	Call call(__func__);

	if (comm == nullptr)
		return ncclInvalidArgument;
	comm->aborted = true;
	drain_device(comm->device);
	leave(comm, RANK_ABORTED);
	return call.error == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t
ncclCommCount(const ncclComm_t comm, int *count)
{
	if (comm == nullptr || count == nullptr)
		return ncclInvalidArgument;
	*count = comm->ranks;
	return ncclSuccess;
}

ncclResult_t
ncclCommUserRank(const ncclComm_t comm, int *rank)
{
	if (comm == nullptr || rank == nullptr)
		return ncclInvalidArgument;
	*rank = comm->rank;
	return ncclSuccess;
}

ncclResult_t
ncclCommCuDevice(const ncclComm_t comm, int *device)
{
	if (comm == nullptr || device == nullptr)
		return ncclInvalidArgument;
	*device = comm->device;
	return ncclSuccess;
}

/* Calls inside a group begin at once here. */
ncclResult_t
ncclGroupStart(void)
{
	return ncclSuccess;
}

ncclResult_t
ncclGroupEnd(void)
{
	return ncclSuccess;
}

ncclResult_t
ncclAllReduce(const void *send, void *receive, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
			  cudaStream_t stream)
{
	NCCL_CALL();
	return start(__func__, comm, Kind::all_reduce, send, receive, count, type, op, 0, stream);
}

ncclResult_t
ncclBroadcast(const void *send, void *receive, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
			  cudaStream_t stream)
{
	NCCL_CALL();
	if (comm != nullptr && comm->rank != root)
		send = receive;			/* only the root's is read */
	return start(__func__, comm, Kind::broadcast, send, receive, count, type, ncclSum, root, stream);
}

ncclResult_t
ncclAllGather(const void *send, void *receive, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream)
{
	NCCL_CALL();
	return start(__func__, comm, Kind::all_gather, send, receive, count, type, ncclSum, 0, stream);
}

}								/* extern "C" */
