/*
 * devices.h - finding and opening the device that trains.
 *
 * The CPU backend is part of the program.  The CUDA backend is a shared object beside it, pg_train_cuda.so, which
 * is opened when it is asked for: a machine without NVIDIA's driver, or an installation without that file, has a
 * CPU to train on.
 */
#ifndef PGT_DEVICES_H
#define PGT_DEVICES_H

#include <stdbool.h>

#include "engine/protocol.h"

typedef struct OpenDevice
{
	const BackendOps *ops;
	Backend    *be;
	Error		fallback;		/* why "auto" took the CPU; STATUS_OK: it did not have to */
} OpenDevice;

/*
 * name: "auto" (the first GPU, or else the CPU), "cpu", "cuda" (the first GPU) or "cuda:N".  threads and tf32 as
 * OpenOptions has them.  STATUS_INVALID for another name, STATUS_UNSUPPORTED with the reason where the device cannot be
 * had.
 */
extern Status device_open(const char *name, int32_t threads, bool tf32, OpenDevice *out, Error *err);

/*
 * Send MSG_DEVICES: every device of this machine.  Each is opened for its description.
 */
extern Status devices_send(int socket_fd, Error *err);

#endif							/* PGT_DEVICES_H */
