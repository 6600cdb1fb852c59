/*
 * engine_process.c - one training engine beside this backend: its process, control socket and ring.
 *
 * The engine is started with posix_spawn and is not a PostgreSQL process: it has two descriptors of ours, its own
 * process group, so that signals to the backend's group are the backend's alone, and default signal handling.  It
 * ends by itself when the socket closes.  We still kill and reap it, so that nothing is left when a statement is.
 */
#include "postgres.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/ilist.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

#include "engine/ring.h"
#include "extension/compat.h"
#include "extension/engine_process.h"
#include "extension/report.h"
#include "extension/settings.h"

#define ENGINE_PROGRAM "pg_train_engine"

/* Descriptors that a spawned engine is given are first moved here, out of the way of their final places. */
#define FIRST_SPARE_FD 10

/* How long a process may take from closing its socket to its end, before it is killed. */
#define EXIT_GRACE_MS 5000
#define EXIT_POLL_MS 10

struct EngineProcess
{
	dlist_node	node;			/* in engines */
	MemoryContext context;		/* this struct and all that belongs to it */
	ResourceOwner owner;
	pid_t		pid;			/* 0: none */
	int			socket;			/* -1: none */
	int			ring_fd;		/* -1: none */
	int			reserved_fds;	/* reported to fd.c */
	void	   *ring;			/* NULL: none */
	Size		ring_bytes;
	bool		has_hello;
	EngineHello hello;

	/* The frame that is being received. */
	FrameHeader header;
	Size		received;		/* bytes of header and data so far */
	char	   *data;
	Size		data_size;
};

static dlist_head engines = DLIST_STATIC_INIT(engines);

static void
ReleaseOwned(ResourceReleasePhase phase, bool is_commit, bool is_top_level, void *arg)
{
	dlist_mutable_iter iter;

	if (phase != RESOURCE_RELEASE_BEFORE_LOCKS)
		return;
	dlist_foreach_modify(iter, &engines)
	{
		EngineProcess *engine = dlist_container(EngineProcess, node, iter.cur);

		if (engine->owner == CurrentResourceOwner)
			EngineRelease(engine);
	}
}

static void
ReleaseAtExit(int code, Datum arg)
{
	while (!dlist_is_empty(&engines))
		EngineRelease(dlist_container(EngineProcess, node, dlist_head_node(&engines)));
}

void
EngineProcessInit(void)
{
	RegisterResourceReleaseCallback(ReleaseOwned, NULL);
}

/* Idempotent in its parts, and never fails: it runs while errors are handled. */
void
EngineRelease(EngineProcess *engine)
{
	dlist_delete(&engine->node);
	if (engine->socket >= 0)
		close(engine->socket);
	if (engine->ring != NULL)
		munmap(engine->ring, engine->ring_bytes);
	if (engine->ring_fd >= 0)
		close(engine->ring_fd);
	if (engine->pid > 0)
	{
		kill(engine->pid, SIGKILL);
		while (waitpid(engine->pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	while (engine->reserved_fds-- > 0)
		ReleaseExternalFD();
	MemoryContextDelete(engine->context);
}

/* An engine without any part yet, owned by the current resource owner and the backend's exit. */
static EngineProcess *
EngineAllocate(void)
{
	static bool exit_registered = false;
	MemoryContext context;
	EngineProcess *engine;

	if (!exit_registered)
	{
		before_shmem_exit(ReleaseAtExit, (Datum) 0);
		exit_registered = true;
	}
	context = AllocSetContextCreate(TopMemoryContext, "pg_train engine", ALLOCSET_SMALL_SIZES);
	engine = MemoryContextAllocZero(context, sizeof(EngineProcess));
	engine->context = context;
	engine->owner = CurrentResourceOwner;
	engine->socket = -1;
	engine->ring_fd = -1;
	dlist_push_head(&engines, &engine->node);
	return engine;
}

/* The engine's whole environment: what the server's says of libraries, and nothing else of it. */
static char **
EngineEnvironment(void)
{
	static const char *const inherited[] = {"LD_LIBRARY_PATH"};
	char	  **environment = palloc0(sizeof(char *) * (lengthof(inherited) + 8));
	int			n = 0;

	for (int i = 0; i < lengthof(inherited); i++)
	{
		const char *value = getenv(inherited[i]);

		if (value != NULL)
			environment[n++] = psprintf("%s=%s", inherited[i], value);
	}
	environment[n++] = "LC_ALL=C";
	environment[n++] = psprintf("PGT_THREADS=%d", cpu_threads);
	if (cpu_threads > 0)
		environment[n++] = psprintf("OMP_NUM_THREADS=%d", cpu_threads);
	environment[n++] = "OMP_DYNAMIC=false";
	/*
	 * Threads that wait look for work for some microseconds, which steps of small networks gain from, and then sleep:
	 * spinning as long as libgomp does by itself, they would take the processors from the server's other sessions.
	 */
	environment[n++] = "GOMP_SPINCOUNT=1000";
	return environment;
}

/* What the child does between fork and exec; returns an errno. */
static int
SetFileActions(posix_spawn_file_actions_t *actions, int child_socket, int child_ring)
{
	int			rc;

	/* Standard error stays the server's log. */
	if ((rc = posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null", O_RDWR, 0)) != 0 ||
		(rc = posix_spawn_file_actions_adddup2(actions, STDIN_FILENO, STDOUT_FILENO)) != 0 ||
		(rc = posix_spawn_file_actions_adddup2(actions, child_socket, ENGINE_SOCKET_FD)) != 0 ||
		(rc = posix_spawn_file_actions_adddup2(actions, child_ring, ENGINE_RING_FD)) != 0)
		return rc;
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 34)
	rc = posix_spawn_file_actions_addclosefrom_np(actions, ENGINE_RING_FD + 1);
#endif
	return rc;
}

static int
SetAttributes(posix_spawnattr_t *attributes)
{
	sigset_t	none;
	sigset_t	all;
	int			rc;

	sigemptyset(&none);
	sigfillset(&all);
	if ((rc = posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF |
									   POSIX_SPAWN_SETSIGMASK)) != 0 ||
		(rc = posix_spawnattr_setpgroup(attributes, 0)) != 0 ||
		(rc = posix_spawnattr_setsigdefault(attributes, &all)) != 0)
		return rc;
	return posix_spawnattr_setsigmask(attributes, &none);
}

static int
Spawn(pid_t *pid, const char *path, char **arguments, char **environment, int child_socket, int child_ring)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	int			rc;

	if ((rc = posix_spawn_file_actions_init(&actions)) != 0)
		return rc;
	if ((rc = posix_spawnattr_init(&attributes)) == 0)
	{
		if ((rc = SetFileActions(&actions, child_socket, child_ring)) == 0 &&
			(rc = SetAttributes(&attributes)) == 0)
			rc = posix_spawn(pid, path, &actions, &attributes, arguments, environment);
		posix_spawnattr_destroy(&attributes);
	}
	posix_spawn_file_actions_destroy(&actions);
	return rc;
}

/* Make socket, ring and process; returns an errno, and leaves in engine what was made. */
static int
EngineSpawn(EngineProcess *engine, const char *path, char **arguments, char **environment)
{
	int			sockets[2];
	int			child_socket;
	int			child_ring;
	int			rc = 0;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0)
		return errno;
	engine->socket = sockets[0];
	engine->ring_fd = memfd_create("pg_train ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	child_socket = engine->ring_fd < 0 ? -1 : fcntl(sockets[1], F_DUPFD_CLOEXEC, FIRST_SPARE_FD);
	child_ring = child_socket < 0 ? -1 : fcntl(engine->ring_fd, F_DUPFD_CLOEXEC, FIRST_SPARE_FD);
	if (child_ring < 0)
		rc = errno;
	else
		rc = Spawn(&engine->pid, path, arguments, environment, child_socket, child_ring);
	close(sockets[1]);
	if (child_socket >= 0)
		close(child_socket);
	if (child_ring >= 0)
		close(child_ring);
	if (rc != 0)
		engine->pid = 0;
	return rc;
}

static EngineProcess *
StartProgram(char **arguments)
{
	char	   *path = psprintf("%s/" ENGINE_PROGRAM, pkglib_path);
	char	  **environment = EngineEnvironment();
	EngineProcess *engine = EngineAllocate();
	int			rc;

	/* The socket and the ring's memfd. */
	while (engine->reserved_fds < 2)
	{
		if (!AcquireExternalFD())
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
					 errmsg("could not start training engine: too many files are open in this session")));
		engine->reserved_fds++;
	}
	rc = EngineSpawn(engine, path, arguments, environment);
	if (rc != 0)
	{
		errno = rc;
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not start training engine \"%s\": %m", path),
				 rc == ENOENT || rc == EACCES || rc == ENOEXEC ?
				 errhint("Install pg_train again: \"make install\" puts the engine beside the server's modules.") :
				 rc == EAGAIN || rc == ENOMEM || rc == EMFILE || rc == ENFILE ?
				 errhint("The server has reached a limit of processes, memory or open files.") : 0));
	}
	return engine;
}

EngineProcess *
EngineStart(const char *device)
{
	char	   *arguments[] = {ENGINE_PROGRAM, psprintf("--device=%s", device), allow_tf32 ? "--tf32" : NULL, NULL};

	return StartProgram(arguments);
}

EngineProcess *
EngineStartListing(void)
{
	char	   *arguments[] = {ENGINE_PROGRAM, "--devices", NULL};

	return StartProgram(arguments);
}

/* Wait for the socket, or for something else to do. */
static void
EngineWait(EngineProcess *engine, int events, long timeout_ms)
{
	int			rc;

	CHECK_FOR_INTERRUPTS();
	rc = WaitLatchOrSocket(MyLatch, WL_LATCH_SET | WL_EXIT_ON_PM_DEATH | events,
						   engine->socket, timeout_ms, PG_WAIT_EXTENSION);
	if (rc & WL_LATCH_SET)
		ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

/* The engine closed its end: say how it ended. */
static void pg_attribute_noreturn()
EngineDied(EngineProcess *engine)
{
	int			status = 0;
	pid_t		reaped = 0;

	for (int waited_ms = 0; waited_ms < EXIT_GRACE_MS; waited_ms += EXIT_POLL_MS)
	{
		reaped = waitpid(engine->pid, &status, WNOHANG);
		if (reaped != 0 && !(reaped < 0 && errno == EINTR))
			break;
		EngineWait(engine, WL_TIMEOUT, EXIT_POLL_MS);
	}
	if (reaped == 0)
		ereport(ERROR,
				(errcode(ERRCODE_SYSTEM_ERROR),
				 errmsg("training engine closed its connection but did not end")));
	engine->pid = 0;
	if (reaped > 0 && WIFSIGNALED(status))
		ereport(ERROR,
				(errcode(ERRCODE_SYSTEM_ERROR),
				 errmsg("training engine was terminated by signal %d: %s", WTERMSIG(status), pg_strsignal(WTERMSIG(status))),
				 errdetail("Only this statement is affected."),
				 WTERMSIG(status) == SIGKILL ?
				 errhint("The system may have run out of memory: its log tells. Train on fewer rows or columns, or a smaller network.") :
				 errhint("The server's log may tell more.")));
	ereport(ERROR,
			(errcode(ERRCODE_SYSTEM_ERROR),
			 errmsg("training engine exited with code %d before it was done", reaped > 0 ? WEXITSTATUS(status) : -1),
			 errdetail("Only this statement is affected."),
			 errhint("The server's log may tell more, for instance which library is missing.")));
}

/* Receive into the frame at hand; false: nothing is there. */
static bool
ReceiveBytes(EngineProcess *engine, void *target, Size bytes)
{
	ssize_t		n;

	do
		n = recv(engine->socket, target, bytes, MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n > 0)
	{
		engine->received += n;
		return true;
	}
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		return false;
	if (n < 0 && errno != ECONNRESET)
		ereport(ERROR,
				(errcode(ERRCODE_SYSTEM_ERROR),
				 errmsg("could not receive from training engine: %m")));
	EngineDied(engine);
}

/* Make room for the data of the frame whose header has come. */
static void
PrepareData(EngineProcess *engine)
{
	if (engine->header.length > MAX_FRAME_BYTES)
		ereport(ERROR,
				(errcode(ERRCODE_PROTOCOL_VIOLATION),
				 errmsg("training engine sent a message of %u bytes", engine->header.length)));
	if (engine->data_size >= engine->header.length)
		return;
	if (engine->data != NULL)
		pfree(engine->data);
	engine->data = NULL;
	engine->data = MemoryContextAlloc(engine->context, engine->header.length);
	engine->data_size = engine->header.length;
}

static void pg_attribute_noreturn()
RaiseEngineError(const EngineFrame *frame)
{
	if (frame->length != sizeof(Error))
		EngineUnexpected(frame);
	ReportError((const Error *) frame->data);
}

bool
EngineReceive(EngineProcess *engine, bool wait, EngineFrame *frame)
{
	for (;;)
	{
		bool		progress;

		if (engine->received < sizeof(FrameHeader))
			progress = ReceiveBytes(engine, (char *) &engine->header + engine->received,
									sizeof(FrameHeader) - engine->received);
		else
		{
			Size		have = engine->received - sizeof(FrameHeader);

			if (have == 0)
				PrepareData(engine);
			if (have == engine->header.length)
				break;
			progress = ReceiveBytes(engine, engine->data + have, engine->header.length - have);
		}
		if (progress)
			continue;
		if (!wait)
			return false;
		EngineWait(engine, WL_SOCKET_READABLE, -1);
	}
	engine->received = 0;
	frame->type = engine->header.type;
	frame->length = engine->header.length;
	frame->data = engine->data;
	if (frame->type == MSG_ERROR)
		RaiseEngineError(frame);
	return true;
}

void
EngineUnexpected(const EngineFrame *frame)
{
	ereport(ERROR,
			(errcode(ERRCODE_PROTOCOL_VIOLATION),
			 errmsg("training engine sent an unexpected message %d of %u bytes", (int) frame->type, frame->length)));
}

const void *
EngineExpect(EngineProcess *engine, MessageType type, Size length)
{
	EngineFrame frame;

	EngineReceive(engine, true, &frame);
	if (frame.type != type || frame.length != length)
		EngineUnexpected(&frame);
	return frame.data;
}

/* The engine does not take what we send.  It may have said why before it closed. */
static void pg_attribute_noreturn()
EngineLost(EngineProcess *engine)
{
	EngineFrame frame;

	while (EngineReceive(engine, true, &frame))
		;
	pg_unreachable();
}

void
EngineSend(EngineProcess *engine, MessageType type, const void *data, Size bytes, const void *more, Size more_bytes)
{
	FrameHeader header = {type, (uint32) (bytes + more_bytes)};
	struct iovec pieces[] = {
		{&header, sizeof(header)},
		{unconstify(void *, data), bytes},
		{unconstify(void *, more), more_bytes}
	};
	struct msghdr message = {.msg_iov = pieces,.msg_iovlen = lengthof(pieces)};

	if (bytes + more_bytes > MAX_FRAME_BYTES)
		elog(ERROR, "message %d to the training engine has %zu bytes", (int) type, bytes + more_bytes);
	while (message.msg_iovlen > 0)
	{
		ssize_t		n = sendmsg(engine->socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0)
		{
			if (errno == EAGAIN || errno == EWOULDBLOCK)
				EngineWait(engine, WL_SOCKET_WRITEABLE, -1);
			else if (errno == EPIPE || errno == ECONNRESET)
				EngineLost(engine);
			else if (errno != EINTR)
				ereport(ERROR,
						(errcode(ERRCODE_SYSTEM_ERROR),
						 errmsg("could not send to training engine: %m")));
			continue;
		}
		while (message.msg_iovlen > 0 && (Size) n >= message.msg_iov->iov_len)
		{
			n -= message.msg_iov->iov_len;
			message.msg_iov++;
			message.msg_iovlen--;
		}
		if (message.msg_iovlen > 0)
		{
			message.msg_iov->iov_base = (char *) message.msg_iov->iov_base + n;
			message.msg_iov->iov_len -= n;
		}
	}
}

const EngineHello *
EngineGetHello(EngineProcess *engine)
{
	EngineHello hello;

	if (engine->has_hello)
		return &engine->hello;
	hello = *(const EngineHello *) EngineExpect(engine, MSG_HELLO, sizeof(EngineHello));
	if (hello.protocol_version != PROTOCOL_VERSION || hello.backend_abi_version != BACKEND_ABI_VERSION ||
		hello.trainspec_bytes != sizeof(TrainSpec) + sizeof(LayerSpec))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("training engine is of another build than the module pg_train"),
				 errdetail("The engine speaks protocol %u with interface %u, the module protocol %d with interface %d.",
						   hello.protocol_version, hello.backend_abi_version, PROTOCOL_VERSION, BACKEND_ABI_VERSION),
				 errhint("Install pg_train again, and reconnect.")));
	hello.device.name[sizeof(hello.device.name) - 1] = '\0';
	hello.device.libraries[sizeof(hello.device.libraries) - 1] = '\0';
	hello.fallback.message[sizeof(hello.fallback.message) - 1] = '\0';
	hello.fallback.detail[sizeof(hello.fallback.detail) - 1] = '\0';
	engine->hello = hello;
	engine->has_hello = true;
	return &engine->hello;
}

/* Give the memfd its size and its pages: a page that cannot be had later would be a SIGBUS. */
static int
AllocateRing(int fd, Size bytes)
{
	int			rc;

	if (ftruncate(fd, bytes) != 0)
		return errno;
	do
	{
		CHECK_FOR_INTERRUPTS();
		rc = posix_fallocate(fd, 0, bytes);
	} while (rc == EINTR);
	if (rc == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
		rc = errno;
	return rc;
}

void *
EngineCreateRing(EngineProcess *engine, uint32 slots, Size slot_bytes)
{
	Size		bytes = ring_bytes(slots, slot_bytes);
	RingHeader *header;
	void	   *ring;
	int			rc;

	Assert(engine->ring == NULL);
	rc = AllocateRing(engine->ring_fd, bytes);
	if (rc != 0)
	{
		errno = rc;
		ereport(ERROR,
				(errcode(rc == ENOSPC || rc == ENOMEM ? ERRCODE_OUT_OF_MEMORY : ERRCODE_SYSTEM_ERROR),
				 errmsg("could not allocate %zu bytes to share with the training engine: %m", bytes)));
	}
	ring = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, engine->ring_fd, 0);
	rc = errno;
	if (ring == MAP_FAILED)
		ereport(ERROR,
				(errcode(rc == ENOMEM ? ERRCODE_OUT_OF_MEMORY : ERRCODE_SYSTEM_ERROR),
				 errmsg("could not map %zu bytes to share with the training engine: %m", bytes)));
	engine->ring = ring;
	engine->ring_bytes = bytes;
	header = ring;
	header->magic = RING_MAGIC;
	header->slots = slots;
	header->slot_bytes = slot_bytes;
	return ring;
}
