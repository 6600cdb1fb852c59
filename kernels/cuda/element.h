/*
 * element.h - how kernels load and store elements of tensors of any type.
 *
 * A kernel is a template over a DType; DTYPE_SWITCH launches the right one.  Work goes in groups of four elements, which
 * are 16 bytes of fp32 or 8 of the other types, and one block of Philox.
 */
#ifndef PGT_CUDA_ELEMENT_H
#define PGT_CUDA_ELEMENT_H

#include "kernels/cuda/launch.h"

#include "kernels/cuda/cuda.h"

#include "kernels/math.h"

#define DTYPE_SWITCH(dtype, constant, ...) \
	do { \
		if ((dtype) == DTYPE_F32) \
		{ \
			constexpr DType constant = DTYPE_F32; \
			__VA_ARGS__; \
		} \
		else if ((dtype) == DTYPE_BF16) \
		{ \
			constexpr DType constant = DTYPE_BF16; \
			__VA_ARGS__; \
		} \
		else \
		{ \
			constexpr DType constant = DTYPE_F16; \
			__VA_ARGS__; \
		} \
	} while (0)

#define DEVICE_INLINE static __device__ __forceinline__

/* Threads of a block where nothing speaks for another number. */
#define BLOCK 256

/* The calling thread's number in the grid, and the number of threads, for loops over more work than threads. */
#define THREAD_INDEX ((size_t) blockIdx.x * blockDim.x + threadIdx.x)
#define THREAD_COUNT ((size_t) gridDim.x * blockDim.x)

/* A low-precision number to float and back; the instructions where there are some. */
template <DType D>
DEVICE_INLINE float
from_bits(uint16_t bits)
{
	if (D == DTYPE_BF16)
		return bf16_to_float(bits);
#if defined(__CUDA_ARCH__)
	float		value;

	asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
	return value;
#else
	return f16_to_float(bits);
#endif
}

template <DType D>
DEVICE_INLINE uint16_t
to_bits(float value)
{
#if defined(__CUDA_ARCH__)
	uint16_t	bits;

	if (D == DTYPE_F16)
		asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
	else
	{
		uint32_t	pair;

		asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(0.0f), "f"(value));
		bits = (uint16_t) pair;
	}
	return bits;
#else
	return D == DTYPE_F16 ? float_to_f16(value) : float_to_bf16(value);
#endif
}

template <DType D>
DEVICE_INLINE float
load(const void *x, size_t i)
{
	if (D == DTYPE_F32)
		return ((const float *) x)[i];
	return from_bits<D>(((const uint16_t *) x)[i]);
}

template <DType D>
DEVICE_INLINE void
store(void *y, size_t i, float value)
{
	if (D == DTYPE_F32)
		((float *) y)[i] = value;
	else
		((uint16_t *) y)[i] = to_bits<D>(value);
}

/*
 * Elements i .. i + 3, of which only the first count exist; the others are read as 0 and not written.  aligned: the
 * address of element 0 and i allow one access, see aligned4().
 */
template <DType D>
DEVICE_INLINE void
load4(const void *x, size_t i, size_t count, int aligned, float v[4])
{
	if (aligned && count >= 4)
	{
		if (D == DTYPE_F32)
		{
			float4		f = *(const float4 *) ((const float *) x + i);

			v[0] = f.x;
			v[1] = f.y;
			v[2] = f.z;
			v[3] = f.w;
		}
		else
		{
			ushort4		h = *(const ushort4 *) ((const uint16_t *) x + i);

			v[0] = from_bits<D>(h.x);
			v[1] = from_bits<D>(h.y);
			v[2] = from_bits<D>(h.z);
			v[3] = from_bits<D>(h.w);
		}
	}
	else
	{
#pragma unroll
		for (int j = 0; j < 4; j++)
			v[j] = (size_t) j < count ? load<D>(x, i + (size_t) j) : 0.0f;
	}
}

template <DType D>
DEVICE_INLINE void
store4(void *y, size_t i, size_t count, int aligned, const float v[4])
{
	if (aligned && count >= 4)
	{
		if (D == DTYPE_F32)
		{
			float4		f = {v[0], v[1], v[2], v[3]};

			*(float4 *) ((float *) y + i) = f;
		}
		else
		{
			ushort4		h = {to_bits<D>(v[0]), to_bits<D>(v[1]), to_bits<D>(v[2]), to_bits<D>(v[3])};

			*(ushort4 *) ((uint16_t *) y + i) = h;
		}
	}
	else
	{
#pragma unroll
		for (int j = 0; j < 4; j++)
			if ((size_t) j < count)
				store<D>(y, i + (size_t) j, v[j]);
	}
}

/* p / d and p % d; in 32 bits where they do, which is several times as fast. */
DEVICE_INLINE size_t
divide(size_t p, uint32_t d, uint32_t *rest)
{
	if ((p >> 32) == 0)
	{
		uint32_t	q = (uint32_t) p / d;

		*rest = (uint32_t) p - q * d;
		return q;
	}
	*rest = (uint32_t) (p % d);
	return p / d;
}

#endif							/* PGT_CUDA_ELEMENT_H */
