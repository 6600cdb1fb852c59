/*
 * client.h - the backend's side of the protocol, for tests: starts the engine program that lies beside the test.
 */
#ifndef PGT_TEST_CLIENT_H
#define PGT_TEST_CLIENT_H

#include <stdbool.h>
#include <sys/types.h>

#include "engine/protocol.h"
#include "engine/ring.h"

typedef struct Client
{
	int			fd;				/* of the control socket */
	int			ring_fd;
	pid_t		pid;
	void	   *ring;			/* mapped by client_ring */
	size_t		ring_size;
	size_t		slot_bytes;
} Client;

/* Start the engine, with leaked (-1: none) as descriptor 20 in it. */
extern Client client_start(int leaked);
/* Size and map the ring for records of this size. */
extern void client_ring(Client *c, size_t record_bytes);
/* Receive a frame within timeout_ms; false: the other end has closed, or time is up.  The caller frees data. */
extern bool client_receive(Client *c, MessageType *type, void **data, size_t *bytes, int timeout_ms);
/* Wait for the engine to end by itself.  Returns its wait status, or -1 (and kills it) when it has not. */
extern int	client_wait(Client *c, int timeout_ms);
extern void client_close(Client *c);

#endif							/* PGT_TEST_CLIENT_H */
