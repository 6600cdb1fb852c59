/*
 * memory.h - memory of the device, copies, and waiting.
 */
#ifndef PGT_CUDA_MEMORY_H
#define PGT_CUDA_MEMORY_H

#include "kernels/cuda/cuda.h"

extern Status memory_open(Backend *be, Error *err);
extern void memory_close(Backend *be);

/* Wait until all that was issued so far is done. */
extern Status cuda_wait_for_stream(Backend *be, Error *err);

/* Free what graphs might have used; there are none any more. */
extern void memory_free_retired(Backend *be);

#endif							/* PGT_CUDA_MEMORY_H */
