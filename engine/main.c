/*
 * main.c - pg_train_engine: the process that trains.
 *
 * A PostgreSQL backend starts it with the control socket as descriptor 3 and the ring as descriptor 4: see
 * protocol.h.  By hand: pg_train_engine --version.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/devices.h"
#include "engine/session.h"

#ifndef PG_TRAIN_VERSION
#define PG_TRAIN_VERSION "unknown"
#endif

#define MAX_THREADS 4096

/* What the watcher ends the process with; 0 once the result is on its way. */
static atomic_int hangup_status = 1;

static void
result_follows(void)
{
	atomic_store(&hangup_status, 0);
}

/* Wait for the other end to go, then end the process, whatever the other threads do. */
static void *
watch_socket(void *arg)
{
	(void) arg;
	for (;;)
	{
		struct pollfd p = {.fd = ENGINE_SOCKET_FD,.events = POLLRDHUP};

		if (poll(&p, 1, -1) < 0 && errno != EINTR)
			_exit(1);
		if (p.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL))
			_exit(atomic_load(&hangup_status));
	}
	return NULL;
}

static Status
start_watcher(Error *err)
{
	pthread_attr_t attributes;
	pthread_t	thread;
	int			rc;

	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, 128 * 1024);
	rc = pthread_create(&thread, &attributes, watch_socket, NULL);
	pthread_attr_destroy(&attributes);
	if (rc != 0)
		return error_set(err, STATUS_IO, "could not start a thread: %s", strerror(rc));
	return STATUS_OK;
}

/* Signal handlers and masks are inherited over exec. */
static void
reset_signals(void)
{
	sigset_t	none;
	int			i;

	for (i = 1; i < NSIG; i++)
		if (i != SIGKILL && i != SIGSTOP)
			signal(i, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* 0 to 2 open onto something, 3 and 4 as they are, nothing else. */
static void
tidy_descriptors(void)
{
	int			fd;

	do
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	while (fd >= 0 && fd <= 2);
	if (close_range(ENGINE_RING_FD + 1, ~0U, 0) != 0)
	{
		/* a kernel before 5.9 */
		long		max = sysconf(_SC_OPEN_MAX);

		for (fd = ENGINE_RING_FD + 1; fd < max; fd++)
			close(fd);
	}
}

/* When memory runs out, let the kernel take this process before any of PostgreSQL's. */
static void
volunteer_for_oom(void)
{
	int			fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	if (write(fd, "1000", 4) != 4)
	{
		/* not permitted: then it is as likely as any other */
	}
	close(fd);
}

static void
settle_process(void)
{
	/* signals to the backend's process group are the backend's; it ends us by closing the socket */
	setpgid(0, 0);
	/* a second line behind the watcher */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, "pg_train_engine");
	reset_signals();
	tidy_descriptors();
	volunteer_for_oom();
	/* large blocks stay with the process: giving them back makes every step fault them in again */
	mallopt(M_MMAP_MAX, 0);
	mallopt(M_TRIM_THRESHOLD, 1 << 30);
	mallopt(M_TOP_PAD, 16 << 20);
}

/* CPU threads by the environment variable PGT_THREADS; 0: all processors. */
static Status
thread_count(int32_t *threads, Error *err)
{
	const char *text = getenv("PGT_THREADS");
	char	   *end;
	long		value;

	*threads = 0;
	if (text == NULL || text[0] == '\0')
		return STATUS_OK;
	value = strtol(text, &end, 10);
	if (*end != '\0' || value < 0 || value > MAX_THREADS)
		return error_set(err, STATUS_INVALID, "PGT_THREADS is \"%.32s\", which is not a number from 0 to %d", text, MAX_THREADS);
	*threads = (int32_t) value;
	return STATUS_OK;
}

static Status
open_device(const char *name, bool tf32, OpenDevice *device, Error *err)
{
	int32_t		threads;

	TRY(thread_count(&threads, err));
	return device_open(name, threads, tf32, device, err);
}

static int
print_version(void)
{
	OpenDevice	device;
	DeviceInfo	info;
	Error		err;

	if (open_device("cpu", false, &device, &err) != STATUS_OK)
	{
		fprintf(stderr, "pg_train_engine: %s\n", err.message);
		return 1;
	}
	memset(&info, 0, sizeof(info));
	device.ops->info(device.be, &info);
	device.ops->close(device.be);
	printf("pg_train_engine %s\n", PG_TRAIN_VERSION);
	printf("protocol %d, backend interface %d\n", PROTOCOL_VERSION, BACKEND_ABI_VERSION);
	printf("device %s, threads %d, bf16 %s\n", info.name, info.threads, info.bf16 ? "native" : "emulated");
	printf("libraries %s\n", info.libraries[0] != '\0' ? info.libraries : "none");
	return 0;
}

typedef struct Arguments
{
	bool		version;
	bool		devices;
	const char *device;
	bool		tf32;
} Arguments;

static bool
parse_arguments(int argc, char **argv, Arguments *arguments)
{
	int			i;

	*arguments = (Arguments) {.device = "cpu"};
	for (i = 1; i < argc; i++)
	{
		if (strcmp(argv[i], "--version") == 0)
			arguments->version = true;
		else if (strcmp(argv[i], "--devices") == 0)
			arguments->devices = true;
		else if (strcmp(argv[i], "--tf32") == 0)
			arguments->tf32 = true;
		else if (strncmp(argv[i], "--device=", 9) == 0)
			arguments->device = argv[i] + 9;
		else
			return false;
	}
	return true;
}

static Status
serve(const Arguments *arguments, Error *err)
{
	OpenDevice	device;
	Status		status;

	TRY(start_watcher(err));
	if (arguments->devices)
	{
		result_follows();
		return devices_send(ENGINE_SOCKET_FD, err);
	}
	TRY(open_device(arguments->device, arguments->tf32, &device, err));
	status = session_run(ENGINE_SOCKET_FD, ENGINE_RING_FD, &device, result_follows, err);
	device.ops->close(device.be);
	return status;
}

int
main(int argc, char **argv)
{
	Arguments	arguments;
	struct stat st;
	Error		err;

	if (!parse_arguments(argc, argv, &arguments))
	{
		fprintf(stderr, "usage: pg_train_engine [--version | --devices | --device=NAME [--tf32]]\n");
		return 2;
	}
	if (arguments.version)
		return print_version();
	if (fstat(ENGINE_SOCKET_FD, &st) != 0 || !S_ISSOCK(st.st_mode))
	{
		fprintf(stderr, "pg_train_engine: descriptor %d is not a socket\n"
				"It is started by PostgreSQL, by train_model() of the extension pg_train.\n", ENGINE_SOCKET_FD);
		return 2;
	}
	settle_process();
	memset(&err, 0, sizeof(err));
	if (serve(&arguments, &err) == STATUS_OK)
		return 0;
	/* if the other end is gone there is nobody to tell */
	frame_send(ENGINE_SOCKET_FD, MSG_ERROR, &err, sizeof(err), NULL);
	return 1;
}
