/*
 * simd.h - vectors of floats of the instruction set that is being compiled.
 */
#ifndef PGT_CPU_SIMD_H
#define PGT_CPU_SIMD_H

#include "kernels/cpu/element.h"

#if defined(__AVX512F__)
#define VECTOR_FLOATS 16
#elif defined(__AVX2__)
#define VECTOR_FLOATS 8
#else
#define VECTOR_FLOATS 4
#endif

typedef float Vector __attribute__((vector_size(VECTOR_FLOATS * sizeof(float))));
/* the same in memory, at any address */
typedef float VectorMemory __attribute__((vector_size(VECTOR_FLOATS * sizeof(float)), aligned(4), may_alias));

typedef int32_t VectorInt __attribute__((vector_size(VECTOR_FLOATS * sizeof(float))));

/* four floats, on every instruction set */
typedef float Quad __attribute__((vector_size(16)));
typedef int32_t QuadInt __attribute__((vector_size(16)));
typedef float QuadMemory __attribute__((vector_size(16), aligned(4), may_alias));

/* Elements of two vectors, by index as in __builtin_shufflevector. */
#if defined(__clang__)
#define PGT_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define PGT_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (QuadInt) {__VA_ARGS__})
#endif

ALWAYS_INLINE Vector
vector_load(const float *p)
{
	return *(const VectorMemory *) p;
}

ALWAYS_INLINE void
vector_store(float *p, Vector v)
{
	*(VectorMemory *) p = v;
}

ALWAYS_INLINE Vector
vector_set(float f)
{
	return f - (Vector) {0};
}

ALWAYS_INLINE Vector
vector_relu(Vector v)
{
	const Vector zero = {0};

	/* a comparison with NaN is false, so NaN stays */
	return (Vector) ((VectorInt) v & ~(VectorInt) (zero > v));
}

/* the same for tensors of either type, converted on the way; i is an element's index */
typedef uint16_t VectorHalf __attribute__((vector_size(VECTOR_FLOATS * sizeof(uint16_t))));
typedef uint16_t VectorHalfMemory __attribute__((vector_size(VECTOR_FLOATS * sizeof(uint16_t)), aligned(2), may_alias));
typedef uint32_t VectorBits __attribute__((vector_size(VECTOR_FLOATS * sizeof(float))));
typedef uint8_t VectorBytes __attribute__((vector_size(VECTOR_FLOATS)));
typedef uint8_t VectorBytesMemory __attribute__((vector_size(VECTOR_FLOATS), aligned(1), may_alias));

ALWAYS_INLINE Vector
vector_load_as(const void *x, size_t i, const DType dtype)
{
	if (dtype == DTYPE_F32)
		return vector_load((const float *) x + i);
	return (Vector) (__builtin_convertvector(*(const VectorHalfMemory *) ((const bf16_t *) x + i), VectorBits) << 16);
}

ALWAYS_INLINE void
vector_store_as(void *y, size_t i, Vector v, const DType dtype)
{
	if (dtype == DTYPE_F32)
		vector_store((float *) y + i, v);
	else
	{
		/* float_to_bf16() */
		VectorBits	u = (VectorBits) v,
					is_nan = (VectorBits) (v != v),
					rounded = (u + 0x7fffu + ((u >> 16) & 1)) >> 16,
					quiet = (u >> 16) | 0x40u;

		*(VectorHalfMemory *) ((bf16_t *) y + i) = __builtin_convertvector((is_nan & quiet) | (~is_nan & rounded),
																		   VectorHalf);
	}
}

ALWAYS_INLINE Vector
vector_select(VectorInt mask, Vector yes, Vector no)
{
	return (Vector) ((mask & (VectorInt) yes) | (~mask & (VectorInt) no));
}

ALWAYS_INLINE VectorInt
vector_select_int(VectorInt mask, VectorInt yes, VectorInt no)
{
	return (mask & yes) | (~mask & no);
}

ALWAYS_INLINE VectorInt
vector_load_bytes(const uint8_t *p)
{
	return __builtin_convertvector(*(const VectorBytesMemory *) p, VectorInt);
}

ALWAYS_INLINE void
vector_store_bytes(uint8_t *p, VectorInt v)
{
	*(VectorBytesMemory *) p = __builtin_convertvector(v, VectorBytes);
}

#endif							/* PGT_CPU_SIMD_H */
