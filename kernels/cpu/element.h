/*
 * element.h - loops over the elements of tensors of every type that is computed in.
 *
 * An operation is written once as an always-inline function over a DType parameter, which DTYPE_SWITCH calls
 * with constants; the compiler vectorises each.
 */
#ifndef PGT_CPU_ELEMENT_H
#define PGT_CPU_ELEMENT_H

#include "kernels/cpu/cpu.h"
#include "kernels/math.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline, unused))

/* Before a loop whose iterations touch element i only, though its pointers may be equal. */
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

#define DTYPE_SWITCH(dtype, constant, ...) \
	do { \
		if ((dtype) == DTYPE_F32) \
		{ \
			const DType constant = DTYPE_F32; \
			__VA_ARGS__; \
		} \
		else if ((dtype) == DTYPE_BF16) \
		{ \
			const DType constant = DTYPE_BF16; \
			__VA_ARGS__; \
		} \
		else \
		{ \
			const DType constant = DTYPE_F16; \
			__VA_ARGS__; \
		} \
	} while (0)

ALWAYS_INLINE float
load(const void *x, size_t i, const DType dtype)
{
	if (dtype == DTYPE_F32)
		return ((const float *) x)[i];
	return dtype == DTYPE_BF16 ? bf16_to_float(((const bf16_t *) x)[i]) : f16_to_float(((const f16_t *) x)[i]);
}

ALWAYS_INLINE void
store(void *y, size_t i, float value, const DType dtype)
{
	if (dtype == DTYPE_F32)
		((float *) y)[i] = value;
	else if (dtype == DTYPE_BF16)
		((bf16_t *) y)[i] = float_to_bf16(value);
	else
		((f16_t *) y)[i] = float_to_f16(value);
}

#endif							/* PGT_CPU_ELEMENT_H */
