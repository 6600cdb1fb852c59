/*
 * device.h - what a .cu file needs so that g++ compiles it as C++ for the stand-in.
 *
 * kernels/cuda/launch.h maps its LAUNCH and DYN_SHARED to CUDASIM_LAUNCH and CUDASIM_DYN_SHARED.  A thread of a kernel
 * is a fiber (regress/cudasim/kernel.cpp).  Threads of a warp meet in the *_sync functions, those of a block in
 * __syncthreads; each notes the line it is called from, and meeting at different lines is an error.
 */
#ifndef PGT_CUDASIM_DEVICE_H
#define PGT_CUDASIM_DEVICE_H

#if defined(__CUDACC__)
#error "device.h takes nvcc's place; it is not for nvcc"
#endif

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <utility>

#include <cuda_runtime.h>

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __constant__
#undef __forceinline__
#undef __launch_bounds__
#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
/* In a section of its own, which is filled with NaN before a block runs. */
#define __shared__ static __attribute__((section("cudasim_shared")))

namespace cudasim
{

enum class Meeting
{
	block,
	shuffle,
	ballot,
	sync
};

/* Of the thread that runs. */
struct Place
{
	uint3		thread;
	int			lane;
};

extern const Place *place;
extern uint3 block_index;
extern dim3 block_size, grid_size;
extern char *dynamic_shared;

extern void meet_block(int line);
/* The value that source, a lane, gave; for a ballot the mask of lanes that gave something but 0. */
extern uint64_t meet_warp(Meeting what, unsigned mask, uint64_t value, int source, int line);
extern cudaError_t launch(const char *name, const void *kernel, dim3 grid, dim3 block, size_t shared,
						  cudaStream_t stream, std::function<void()> thread, const void *const *pointers, int count);

template <typename T> const void *
as_pointer(T *p)
{
	return (const void *) p;
}

template <typename T> const void *
as_pointer(const T &)
{
	return nullptr;
}

/* Arguments are converted and copied now, as a real launch does. */
template <typename... Parameters, typename... Arguments> void
start(const char *name, void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
	  Arguments &&...arguments)
{
	std::tuple<Parameters...> copied(static_cast<Parameters>(arguments)...);
	const void *pointers[] = {as_pointer(static_cast<Parameters>(arguments))..., nullptr};

	launch(name, (const void *) kernel, grid, block, shared, stream, [kernel, copied] { std::apply(kernel, copied); },
		   pointers, (int) sizeof...(Parameters));
}

template <typename T> T
shuffle(unsigned mask, T value, int source, int line)
{
	uint64_t	bits = 0;
	T			got;

	static_assert(sizeof(T) <= sizeof(bits), "shuffles move at most 8 bytes");
	memcpy(&bits, &value, sizeof(value));
	bits = meet_warp(Meeting::shuffle, mask, bits, source, line);
	memcpy(&got, &bits, sizeof(got));
	return got;
}

}								/* namespace cudasim */

/* A template kernel has commas in its name: give it in parentheses, or by a pointer. */
#define CUDASIM_LAUNCH(kernel, grid, block, shared, stream, ...) \
	cudasim::start(#kernel, kernel, dim3(grid), dim3(block), (shared), (stream), __VA_ARGS__)
#define CUDASIM_DYN_SHARED(type, name) type *name = reinterpret_cast<type *>(cudasim::dynamic_shared)

#define threadIdx (cudasim::place->thread)
#define blockIdx (cudasim::block_index)
#define blockDim (cudasim::block_size)
#define gridDim (cudasim::grid_size)
#define warpSize 32

static inline void
__syncthreads(int line = __builtin_LINE())
{
	cudasim::meet_block(line);
}

static inline void
__syncwarp(unsigned mask = 0xffffffffu, int line = __builtin_LINE())
{
	cudasim::meet_warp(cudasim::Meeting::sync, mask, 0, cudasim::place->lane, line);
}

/* width splits a warp into parts of that many lanes, a power of 2. */
template <typename T> static inline T
__shfl_sync(unsigned mask, T value, int source, int width = 32, int line = __builtin_LINE())
{
	int			first = cudasim::place->lane & ~(width - 1);

	return cudasim::shuffle(mask, value, first + (source & (width - 1)), line);
}

template <typename T> static inline T
__shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, int line = __builtin_LINE())
{
	int			lane = cudasim::place->lane,
				source = lane ^ lanes;

	return cudasim::shuffle(mask, value, (source ^ lane) < width ? source : lane, line);
}

template <typename T> static inline T
__shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, int line = __builtin_LINE())
{
	int			lane = cudasim::place->lane,
				source = lane + (int) delta;

	return cudasim::shuffle(mask, value, source < (lane & ~(width - 1)) + width ? source : lane, line);
}

template <typename T> static inline T
__shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, int line = __builtin_LINE())
{
	int			lane = cudasim::place->lane,
				source = lane - (int) delta;

	return cudasim::shuffle(mask, value, source >= (lane & ~(width - 1)) ? source : lane, line);
}

static inline unsigned
__ballot_sync(unsigned mask, int predicate, int line = __builtin_LINE())
{
	return (unsigned) cudasim::meet_warp(cudasim::Meeting::ballot, mask, predicate != 0, 0, line);
}

static inline int
__any_sync(unsigned mask, int predicate, int line = __builtin_LINE())
{
	return __ballot_sync(mask, predicate, line) != 0;
}

static inline int
__all_sync(unsigned mask, int predicate, int line = __builtin_LINE())
{
	return __ballot_sync(mask, !predicate, line) == 0;
}

static inline void
__threadfence()
{
}

static inline void
__threadfence_block()
{
}

/* One thread runs at a time, so a plain access is atomic. */
template <typename T, typename U> static inline T
atomicAdd(T *p, U value)
{
	T			old = *p;

	*p = old + (T) value;
	return old;
}

template <typename T, typename U> static inline T
atomicMax(T *p, U value)
{
	T			old = *p;

	if ((T) value > old)
		*p = (T) value;
	return old;
}

template <typename T, typename U> static inline T
atomicMin(T *p, U value)
{
	T			old = *p;

	if ((T) value < old)
		*p = (T) value;
	return old;
}

template <typename T, typename U> static inline T
atomicOr(T *p, U value)
{
	T			old = *p;

	*p = old | (T) value;
	return old;
}

template <typename T, typename U> static inline T
atomicExch(T *p, U value)
{
	T			old = *p;

	*p = (T) value;
	return old;
}

template <typename T, typename U, typename V> static inline T
atomicCAS(T *p, U expected, V value)
{
	T			old = *p;

	if (old == (T) expected)
		*p = (T) value;
	return old;
}

template <typename T> static inline T
__ldg(const T *p)
{
	return *p;
}

template <typename T> static inline T
__ldcs(const T *p)
{
	return *p;
}

template <typename T> static inline void
__stcs(T *p, T value)
{
	*p = value;
}

static inline unsigned
__float_as_uint(float x)
{
	unsigned	bits;

	memcpy(&bits, &x, sizeof(bits));
	return bits;
}

static inline int
__float_as_int(float x)
{
	return (int) __float_as_uint(x);
}

static inline float
__uint_as_float(unsigned bits)
{
	float		x;

	memcpy(&x, &bits, sizeof(x));
	return x;
}

static inline float
__int_as_float(int bits)
{
	return __uint_as_float((unsigned) bits);
}

static inline unsigned
__umulhi(unsigned a, unsigned b)
{
	return (unsigned) (((uint64_t) a * b) >> 32);
}

static inline int
__popc(unsigned x)
{
	return __builtin_popcount(x);
}

static inline int
__ffs(int x)
{
	return __builtin_ffs(x);
}

static inline int
__clz(int x)
{
	return x == 0 ? 32 : __builtin_clz((unsigned) x);
}

/* Approximate on a GPU, exact here; glibc has functions of these names that it does not export. */
#define __expf(x) expf(x)
#define __exp10f(x) exp10f(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __powf(x, y) powf(x, y)
#define __fdividef(x, y) ((x) / (y))
#define __fsqrt_rn(x) sqrtf(x)
#define __frsqrt_rn(x) (1.0f / sqrtf(x))
#define __frcp_rn(x) (1.0f / (x))
#define __fmaf_rn(x, y, z) fmaf(x, y, z)
#define __fadd_rn(x, y) ((x) + (y))
#define __fmul_rn(x, y) ((x) * (y))
#define __fdiv_rn(x, y) ((x) / (y))
#define __fsub_rn(x, y) ((x) - (y))

#endif							/* PGT_CUDASIM_DEVICE_H */
