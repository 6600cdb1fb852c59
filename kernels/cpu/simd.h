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

/* the same for tensors of every type, converted on the way; i is an element's index */
typedef uint16_t VectorHalf __attribute__((vector_size(VECTOR_FLOATS * sizeof(uint16_t))));
typedef uint16_t VectorHalfMemory __attribute__((vector_size(VECTOR_FLOATS * sizeof(uint16_t)), aligned(2), may_alias));
typedef uint32_t VectorBits __attribute__((vector_size(VECTOR_FLOATS * sizeof(float))));
typedef uint8_t VectorBytes __attribute__((vector_size(VECTOR_FLOATS)));
typedef uint8_t VectorBytesMemory __attribute__((vector_size(VECTOR_FLOATS), aligned(1), may_alias));

/* f16_to_float() */
ALWAYS_INLINE Vector
vector_from_f16(VectorBits x)
{
	VectorBits	magnitude = (x & 0x7fffu) << 13,
				finite = (VectorBits) ((Vector) magnitude * 5192296858534827628530496329220096.0f),
				is_special = (VectorBits) (magnitude >= 0x0f800000u);

	return (Vector) ((is_special & (magnitude | 0x7f800000u)) | (~is_special & finite) | (x & 0x8000u) << 16);
}

/* float_to_bf16() */
ALWAYS_INLINE VectorBits
vector_to_bf16(Vector v)
{
	VectorBits	u = (VectorBits) v,
				is_nan = (VectorBits) (v != v),
				rounded = (u + 0x7fffu + ((u >> 16) & 1)) >> 16,
				quiet = (u >> 16) | 0x40u;

	return (is_nan & quiet) | (~is_nan & rounded);
}

/* float_to_f16() */
ALWAYS_INLINE VectorBits
vector_to_f16(Vector v)
{
	VectorBits	u = (VectorBits) v,
				a = u & 0x7fffffffu,
				normal = (a + 0xfffu + ((a >> 13) & 1) - 0x38000000u) >> 13,
				subnormal = (VectorBits) ((Vector) a + 0.5f) - 0x3f000000u,
				is_small = (VectorBits) (a < 0x38800000u),
				is_large = (VectorBits) (a >= 0x47800000u),
				is_nan = (VectorBits) (a > 0x7f800000u),
				h = (is_small & subnormal) | (~is_small & normal);

	h = (is_large & 0x7c00u) | (~is_large & h);
	h = (is_nan & 0x7e00u) | (~is_nan & h);
	return h | (u >> 16 & 0x8000u);
}

ALWAYS_INLINE Vector
vector_load_as(const void *x, size_t i, const DType dtype)
{
	VectorBits	bits;

	if (dtype == DTYPE_F32)
		return vector_load((const float *) x + i);
	bits = __builtin_convertvector(*(const VectorHalfMemory *) ((const bf16_t *) x + i), VectorBits);
	if (dtype == DTYPE_BF16)
		return (Vector) (bits << 16);
	return vector_from_f16(bits);
}

ALWAYS_INLINE void
vector_store_as(void *y, size_t i, Vector v, const DType dtype)
{
	if (dtype == DTYPE_F32)
		vector_store((float *) y + i, v);
	else
		*(VectorHalfMemory *) ((uint16_t *) y + i) =
			__builtin_convertvector(dtype == DTYPE_BF16 ? vector_to_bf16(v) : vector_to_f16(v), VectorHalf);
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
