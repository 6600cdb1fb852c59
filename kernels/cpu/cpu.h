/*
 * cpu.h - what the files of the CPU backend share.
 *
 * Every file that lists PGT_ISA operations is compiled once per instruction set, with PGT_ISA set to its
 * name; ISA_NAME(f) is then f_sse2, f_avx2 or f_avx512.  backend.c picks one table when it is asked for.
 *
 * The whole backend is compiled twice: with OpenMP for the engine, and without it for scoring inside a
 * PostgreSQL backend, where there must be no threads.
 */
#ifndef PGT_CPU_H
#define PGT_CPU_H

#include <stddef.h>
#include <stdint.h>

#if defined(_OPENMP)
#include <omp.h>
#endif

#include "kernels/backend.h"

#define CPU_ALIGNMENT 64

/* Workspaces that may be in use at the same time; each grows at its first use for a shape and stays. */
typedef enum Workspace
{
	WORKSPACE_PACK_A,
	WORKSPACE_PACK_B,
	WORKSPACE_ACCUMULATE,
	WORKSPACE_IMAGE,
	WORKSPACE_REDUCE,
	WORKSPACE_COLUMNS,
	WORKSPACE_ONEDNN,
	WORKSPACE_COUNT
} Workspace;

struct Backend
{
	int			threads;
	const char *isa;
	struct
	{
		void	   *data;
		size_t		bytes;
	}			workspace[WORKSPACE_COUNT];
	struct Onednn *onednn;		/* NULL where oneDNN would not pay */
};

/* At least bytes of memory, aligned to CPU_ALIGNMENT, with undefined content. */
extern Status cpu_workspace(Backend *be, Workspace which, size_t bytes, void **out, Error *err);

/* Processors that this process may use: its affinity mask, and the quota of its control group. */
extern int	cpu_processors(void);

/*
 * Make cpu_backend() return the table of an instruction set ("sse2", "avx2", "avx512"; NULL: the best one),
 * for tests.  STATUS_UNSUPPORTED where this machine or build does not have it.
 */
extern Status cpu_backend_force_isa(const char *isa, Error *err);

/* Let oneDNN compute bf16 on any processor with AVX-512, where it emulates the instructions: for tests. */
extern void cpu_backend_emulate_bf16(int allow);

/* Table entries that do not depend on the instruction set: backend.c. */
extern Status cpu_count(int32_t *devices, Error *err);
extern Status cpu_open(const char *isa, int32_t threads, Backend **out, Error *err);
extern void cpu_close(Backend *be);
extern void cpu_info(const Backend *be, DeviceInfo *info);
extern Status cpu_memory_free(Backend *be, size_t *bytes, Error *err);
extern Status cpu_alloc(Backend *be, size_t bytes, void **out, Error *err);
extern void cpu_free(Backend *be, void *ptr, size_t bytes);
extern Status cpu_copy(Backend *be, void *dst, const void *src, size_t bytes, Error *err);
extern Status cpu_zero(Backend *be, void *dst, size_t bytes, Error *err);
extern Status cpu_sync(Backend *be, Error *err);

#define CPU_PASTE_(a, b) a##_##b
#define CPU_PASTE(a, b) CPU_PASTE_(a, b)
#define ISA_NAME(name) CPU_PASTE(name, PGT_ISA)

/* Before a block that nt threads run as a team. */
#if defined(_OPENMP)
#define CPU_PRAGMA_(x) _Pragma(#x)
#define PARALLEL(nt) CPU_PRAGMA_(omp parallel num_threads(nt) if ((nt) > 1))
#else
#define PARALLEL(nt) (void) (nt);
#endif

/* The calling thread's place in the team of the enclosing parallel region. */
static inline int
thread_index(void)
{
#if defined(_OPENMP)
	return omp_get_thread_num();
#else
	return 0;
#endif
}

static inline int
thread_count(void)
{
#if defined(_OPENMP)
	return omp_get_num_threads();
#else
	return 1;
#endif
}

/*
 * Threads for an amount of work: one, or all, since the OpenMP library ends and starts threads whenever the
 * size of its team changes.  ns is the caller's estimate for one thread; a team has to save more than it costs to
 * start and join, which is some microseconds.
 */
#define TEAM_NS 4000.0
#define TEAM_NS_PER_THREAD 500.0

static inline int
threads_for(const Backend *be, double ns)
{
	double		threads = be->threads,
				saved = ns - ns / threads;

	return saved > TEAM_NS + TEAM_NS_PER_THREAD * threads ? be->threads : 1;
}

/* The part of [0, n) of one of count threads, in multiples of unit. */
static inline void
thread_range(size_t n, size_t unit, int index, int count, size_t *lo, size_t *hi)
{
	size_t		units = (n + unit - 1) / unit;
	size_t		low = units * (size_t) index / (size_t) count * unit,
				high = units * ((size_t) index + 1) / (size_t) count * unit;

	*lo = low < n ? low : n;
	*hi = high < n ? high : n;
}

static inline size_t
round_up(size_t n, size_t unit)
{
	return (n + unit - 1) / unit * unit;
}

static inline size_t
min_size(size_t a, size_t b)
{
	return a < b ? a : b;
}

static inline int32_t
min_int(int32_t a, int32_t b)
{
	return a < b ? a : b;
}

static inline size_t
dtype_bytes(DType dtype)
{
	return dtype == DTYPE_BF16 || dtype == DTYPE_F16 ? 2 : (dtype == DTYPE_U8 ? 1 : 4);
}

/* The address of element i of a tensor of type dtype. */
static inline void *
element(void *base, DType dtype, size_t i)
{
	return (char *) base + i * dtype_bytes(dtype);
}

static inline const void *
const_element(const void *base, DType dtype, size_t i)
{
	return (const char *) base + i * dtype_bytes(dtype);
}

/* Refuse types that this backend does not compute in. */
extern Status cpu_check_dtype(DType dtype, const char *operation, Error *err);

#endif							/* PGT_CPU_H */
