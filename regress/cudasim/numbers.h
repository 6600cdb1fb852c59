/*
 * numbers.h - elements of tensors as the libraries' stand-ins read, round and write them.
 */
#ifndef PGT_SIM_NUMBERS_H
#define PGT_SIM_NUMBERS_H

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace sim
{

enum class Number
{
	none,
	f32,
	bf16,
	f16
};

static inline size_t
number_bytes(Number type)
{
	return type == Number::f32 ? 4 : 2;
}

static inline uint32_t
bits_of(float value)
{
	uint32_t	bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static inline float
float_of(uint32_t bits)
{
	float		value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

/* Keep that many bits of the fraction, ties to even; NaN stays NaN. */
static inline float
round_fraction(float value, int kept)
{
	uint32_t	bits = bits_of(value);
	int			dropped = 23 - kept;

	if (std::isnan(value))
		return float_of(bits | 0x400000u);
	bits += (1u << (dropped - 1)) - 1 + ((bits >> dropped) & 1);
	return float_of(bits & ~((1u << dropped) - 1));
}

/* TF32 is what tensor cores make of fp32: 10 bits of fraction. */
static inline float
round_tf32(float value)
{
	return round_fraction(value, 10);
}

static inline float
half_to_float(uint16_t half)
{
	uint32_t	sign = (uint32_t) (half & 0x8000) << 16,
				fraction = half & 0x3ff;
	int			exponent = (half >> 10) & 0x1f;

	if (exponent == 31)
		return float_of(sign | 0x7f800000u | fraction << 13);
	if (exponent == 0)
		return float_of(sign | bits_of((float) fraction * 0x1p-24f));
	return float_of(sign | (uint32_t) (exponent + 112) << 23 | fraction << 13);
}

static inline uint16_t
float_to_half(float value)
{
	uint16_t	sign = (uint16_t) ((bits_of(value) >> 16) & 0x8000);
	float		size = std::fabs(value);

	if (std::isnan(value))
		return sign | 0x7e00;
	if (size < 0x1p-14f)		/* subnormal: a multiple of 2^-24 */
		return sign | (uint16_t) std::nearbyint(size * 0x1p24f);
	size = round_fraction(size, 10);
	if (size >= 65536.0f)
		return sign | 0x7c00;
	return sign | (uint16_t) ((bits_of(size) - 0x38000000u) >> 13);
}

static inline float
load(Number type, const void *p, size_t i)
{
	if (type == Number::f32)
		return ((const float *) p)[i];
	if (type == Number::bf16)
		return float_of((uint32_t) ((const uint16_t *) p)[i] << 16);
	return half_to_float(((const uint16_t *) p)[i]);
}

static inline void
store(Number type, void *p, size_t i, float value)
{
	if (type == Number::f32)
		((float *) p)[i] = value;
	else if (type == Number::bf16)
		((uint16_t *) p)[i] = (uint16_t) (bits_of(round_fraction(value, 7)) >> 16);
	else
		((uint16_t *) p)[i] = float_to_half(value);
}

}								/* namespace sim */

#endif							/* PGT_SIM_NUMBERS_H */
