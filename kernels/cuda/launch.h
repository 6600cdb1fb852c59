/*
 * launch.h - how a kernel is started, in words that the CPU stand-in (regress/cudasim) understands, too.
 *
 * A .cu file is CUDA for nvcc, and C++17 for a plain compiler with PGT_CUDASIM.  A template kernel has commas in its
 * name and stands in parentheses: LAUNCH((act_fwd_kernel<D>), grid, block, 0, be->stream, n, x, y).
 */
#ifndef PGT_CUDA_LAUNCH_H
#define PGT_CUDA_LAUNCH_H

#if defined(PGT_CUDASIM)

#include "regress/cudasim/device.h"

#define LAUNCH(kernel, grid, block, shared_bytes, stream, ...) \
	CUDASIM_LAUNCH(kernel, grid, block, shared_bytes, stream, __VA_ARGS__)
/* Shared memory whose size the launch gives. */
#define DYN_SHARED(type, name) CUDASIM_DYN_SHARED(type, name)

#else

#include <cuda_runtime.h>

#define LAUNCH(kernel, grid, block, shared_bytes, stream, ...) \
	kernel<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__)
#define DYN_SHARED(type, name) extern __shared__ type name[]

#endif

#endif							/* PGT_CUDA_LAUNCH_H */
