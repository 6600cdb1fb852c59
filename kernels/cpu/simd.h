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

#endif							/* PGT_CPU_SIMD_H */
