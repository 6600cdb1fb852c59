/*
 * client.c - the backend's side of the protocol, for tests.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "regress/unit/engine/client.h"

#define LEAKED_FD 20

#if defined(__SANITIZE_ADDRESS__)
#define MEMORY_LIMIT RLIM_INFINITY	/* the sanitizer maps terabytes */
#else
#define MEMORY_LIMIT ((rlim_t) 4 << 30)
#endif

static void
die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(2);
}

/* pg_train_engine in the folder of this program */
static const char *
engine_path(void)
{
	static char path[4096];
	ssize_t		n = readlink("/proc/self/exe", path, sizeof(path) - 32);

	if (n < 0)
		die("readlink");
	path[n] = '\0';
	strcpy(strrchr(path, '/') + 1, "pg_train_engine");
	return path;
}

Client
client_start(int leaked)
{
	Client		c = {.ring = NULL};
	int			pair[2];
	const char *path = engine_path();
	struct rlimit limit = {MEMORY_LIMIT, MEMORY_LIMIT};

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
		die("socketpair");
	c.fd = pair[0];
	c.ring_fd = memfd_create("ring", MFD_CLOEXEC);
	if (c.ring_fd < 0)
		die("memfd_create");
	c.pid = fork();
	if (c.pid < 0)
		die("fork");
	if (c.pid == 0)
	{
		int			s = fcntl(pair[1], F_DUPFD_CLOEXEC, 100),
					r = fcntl(c.ring_fd, F_DUPFD_CLOEXEC, 100);

		if (leaked >= 0)
			dup2(leaked, LEAKED_FD);
		dup2(s, ENGINE_SOCKET_FD);
		dup2(r, ENGINE_RING_FD);
		setrlimit(RLIMIT_AS, &limit);
		/* tests share the machine: threads that wait should not spin */
		setenv("OMP_WAIT_POLICY", "passive", 1);
		execl(path, path, (char *) NULL);
		_exit(127);
	}
	close(pair[1]);
	return c;
}

void
client_ring(Client *c, size_t record_bytes)
{
	RingHeader *header;

	c->slot_bytes = ring_slot_bytes(record_bytes);
	c->ring_size = ring_bytes(RING_SLOTS, c->slot_bytes);
	if (ftruncate(c->ring_fd, c->ring_size) != 0)
		die("ftruncate");
	c->ring = mmap(NULL, c->ring_size, PROT_READ | PROT_WRITE, MAP_SHARED, c->ring_fd, 0);
	if (c->ring == MAP_FAILED)
		die("mmap");
	header = c->ring;
	header->magic = RING_MAGIC;
	header->slots = RING_SLOTS;
	header->slot_bytes = c->slot_bytes;
}

bool
client_receive(Client *c, MessageType *type, void **data, size_t *bytes, int timeout_ms)
{
	struct pollfd p = {.fd = c->fd,.events = POLLIN};

	*data = NULL;
	return poll(&p, 1, timeout_ms) == 1 && frame_receive(c->fd, type, data, bytes, NULL) == STATUS_OK;
}

int
client_wait(Client *c, int timeout_ms)
{
	int			status,
				waited;

	for (waited = 0; waited <= timeout_ms; waited += 5)
	{
		if (waitpid(c->pid, &status, WNOHANG) == c->pid)
		{
			c->pid = 0;
			return status;
		}
		usleep(5000);
	}
	kill(c->pid, SIGKILL);
	waitpid(c->pid, &status, 0);
	c->pid = 0;
	return -1;
}

void
client_close(Client *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
	if (c->pid > 0)
		client_wait(c, 2000);
	close(c->ring_fd);
	if (c->ring != NULL)
		munmap(c->ring, c->ring_size);
	c->ring = NULL;
}
