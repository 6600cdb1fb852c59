/*
 * session.h - one run over the control socket: rows in, training, weights out.  protocol.h tells the frames.
 */
#ifndef PGT_SESSION_H
#define PGT_SESSION_H

#include "engine/devices.h"

/*
 * Run to MSG_RESULT.  on_result, where not NULL, is called right before that last frame is sent: the other end may
 * close as soon as it has it.  A failure is returned, not sent.
 */
extern Status session_run(int socket_fd, int ring_fd, const OpenDevice *device, void (*on_result) (void), Error *err);

#endif							/* PGT_SESSION_H */
