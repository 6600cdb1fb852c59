/*
 * cudasim.h - control of the CPU stand-in for CUDA: what a test sets before, and asks after.
 *
 * libcudasim.a defines those calls of the CUDA runtime, cuBLASLt, the cuDNN graph API and NCCL that the CUDA
 * backend uses, against NVIDIA's own headers.  Programs are linked with it in place of NVIDIA's libraries and their
 * .cu files are compiled by g++ (regress/cudasim/device.h).  docs/gpu.md tells what it finds and what it cannot.
 */
#ifndef PGT_CUDASIM_H
#define PGT_CUDASIM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C"
{
#endif

/*
 * In which order the threads of a block and the blocks of a grid run, and how streams overtake each other where
 * nothing orders them: forward only what is waited for runs; reverse, all other streams run ahead of it; random,
 * they are mixed by the seed.
 */
typedef enum CudasimOrder
{
	CUDASIM_FORWARD = 0,
	CUDASIM_REVERSE,
	CUDASIM_RANDOM
} CudasimOrder;

/* Things that a program must give back. */
typedef enum CudasimKind
{
	CUDASIM_DEVICE_MEMORY = 0,
	CUDASIM_PINNED_MEMORY,
	CUDASIM_REGISTRATION,
	CUDASIM_STREAM,
	CUDASIM_EVENT,
	CUDASIM_GRAPH,
	CUDASIM_GRAPH_EXEC,
	CUDASIM_CUBLAS_HANDLE,
	CUDASIM_CUBLAS_DESCRIPTOR,
	CUDASIM_CUDNN_HANDLE,
	CUDASIM_CUDNN_DESCRIPTOR,
	CUDASIM_NCCL_COMM,
	CUDASIM_KINDS
} CudasimKind;

/*
 * Forget everything: memory, streams, errors, faults and counters.  Settings go back to the environment's:
 * CUDASIM_DEVICES (1), CUDASIM_ORDER (forward, reverse, random), CUDASIM_SEED (1), CUDASIM_MEMORY (bytes a device,
 * 16 GiB), CUDASIM_PROTECT (1), CUDASIM_QUIET (0: what is found is also printed on stderr).
 */
extern void cudasim_reset(void);

extern void cudasim_set_devices(int count); /* 0: as a machine without a GPU */
extern void cudasim_set_order(CudasimOrder order, uint64_t seed);
extern void cudasim_set_memory(size_t bytes);	/* of each device */
extern void cudasim_set_capability(int major, int minor);
extern void cudasim_set_processors(int count);	/* 132 */
/* 0: device memory stays open to the host, which is faster where much memory is in use. */
extern void cudasim_set_protect(int protect);
extern void cudasim_set_quiet(int quiet);
/* After this time without progress a wait fails instead of hanging. */
extern void cudasim_set_hang_ms(int ms);

/* The k-th allocation from now, device or pinned, fails for lack of memory; 0: none. */
extern void cudasim_fail_allocation(long k);
/*
 * The k-th call from now of any library fails: cudart's with this cudaError_t, the others with their general
 * failure.  A call that gives something back does so all the same.  With sticky the device is lost from there on.
 */
extern void cudasim_fail_call(long k, int error, int sticky);
/* Whether the fault that was asked for last has happened, and in which call. */
extern const char *cudasim_fault_hit(void);
extern long cudasim_calls(void);	/* since the reset */
extern long cudasim_allocations(void);
extern long cudasim_kernels(void);	/* that have run */
extern long cudasim_pageable_copies(void);

extern long cudasim_live(CudasimKind kind);
extern size_t cudasim_live_bytes(void); /* of device memory */
extern size_t cudasim_peak_bytes(void);
/* Everything that is live, as text, "" when nothing is. */
extern const char *cudasim_live_report(void);

/* Errors that no status can tell or that need explaining: "" when there was none since the reset. */
extern const char *cudasim_message(void);
/* Look at all fences now; 0 when one was overwritten, with a message. */
extern int	cudasim_check_fences(void);

#ifdef __cplusplus
}
#endif

#endif							/* PGT_CUDASIM_H */
