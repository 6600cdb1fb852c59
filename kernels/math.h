/*
 * math.h - the math of one element, shared by the CPU and CUDA backends.
 *
 * Everything here is free of branches and library calls, so that a compiler turns a plain loop over it into
 * vector code.  NaN goes in, NaN comes out.
 */
#ifndef PGT_MATH_H
#define PGT_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/backend.h"
#include "kernels/philox.h"

typedef uint16_t bf16_t;
typedef uint16_t f16_t;

PGT_INLINE float
float_from_bits(uint32_t bits)
{
	float		f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

PGT_INLINE uint32_t
float_bits(float f)
{
	uint32_t	bits;

	memcpy(&bits, &f, sizeof(bits));
	return bits;
}

PGT_INLINE float
bf16_to_float(bf16_t x)
{
	return float_from_bits((uint32_t) x << 16);
}

/* Round to nearest even; a NaN stays a (quiet) NaN. */
PGT_INLINE bf16_t
float_to_bf16(float f)
{
	uint32_t	u = float_bits(f);
	uint32_t	rounded = (u + 0x7fffu + ((u >> 16) & 1)) >> 16;
	uint32_t	nan = (u >> 16) | 0x40u;

	return (bf16_t) (f != f ? nan : rounded);
}

/*
 * Moved up by 13 bits, a half is a float 2^112 times too small, subnormal numbers included; infinity and NaN need the
 * whole exponent.
 */
PGT_INLINE float
f16_to_float(f16_t x)
{
	uint32_t	magnitude = (uint32_t) (x & 0x7fffu) << 13;
	uint32_t	finite = float_bits(float_from_bits(magnitude) * 5192296858534827628530496329220096.0f);
	uint32_t	special = magnitude | 0x7f800000u;

	return float_from_bits((magnitude >= 0x0f800000u ? special : finite) | (uint32_t) (x & 0x8000u) << 16);
}

/*
 * Round to nearest even; infinity from 65520 on; a NaN stays a (quiet) NaN.  Below 2^-14 a half counts in units
 * of 2^-24, as a float near 0.5 does.
 */
PGT_INLINE f16_t
float_to_f16(float f)
{
	uint32_t	u = float_bits(f),
				a = u & 0x7fffffffu,
				normal = (a + 0xfffu + ((a >> 13) & 1) - 0x38000000u) >> 13,
				subnormal = float_bits(float_from_bits(a) + 0.5f) - 0x3f000000u,
				h = a < 0x38800000u ? subnormal : normal;

	h = a >= 0x47800000u ? 0x7c00u : h;
	h = a > 0x7f800000u ? 0x7e00u : h;
	return (f16_t) (h | (u >> 16 & 0x8000u));
}

/*
 * e^x, within 2 ulp; 0 below -104, infinity above 88.73.  x = n ln 2 + r, and 2^n is applied in two halves so
 * that neither overflows.  Adding and subtracting 1.5 * 2^23 rounds to an integer, which then also stands in
 * the low bits.
 */
PGT_INLINE float
math_exp(float x)
{
	const float magic = 12582912.0f;
	float		shifted,
				n,
				r,
				p;
	int32_t		e,
				half;

	x = x < -104.0f ? -104.0f : x;
	x = x > 89.0f ? 89.0f : x;
	shifted = x * 1.44269504f + magic;
	n = shifted - magic;
	r = x - n * 0.693359375f;
	r = r - n * -2.12194440e-4f;
	p = 1.3901282863e-3f;
	p = p * r + 8.3631449191e-3f;
	p = p * r + 4.1666853451e-2f;
	p = p * r + 1.6666577293e-1f;
	p = p * r + 0.5f;
	p = p * (r * r) + r + 1.0f;
	e = (int32_t) (float_bits(shifted) - float_bits(magic));
	half = e >> 1;
	return p * float_from_bits(((uint32_t) half + 127u) << 23)
		* float_from_bits(((uint32_t) (e - half) + 127u) << 23);
}

PGT_INLINE float
math_sqrt(float x)
{
#if defined(__CUDA_ARCH__)
	return sqrtf(x);
#else
	return __builtin_sqrtf(x);
#endif
}

PGT_INLINE float
math_abs(float x)
{
	return float_from_bits(float_bits(x) & 0x7fffffffu);
}

/* x with the sign of s */
PGT_INLINE float
math_copysign(float x, float s)
{
	return float_from_bits((float_bits(x) & 0x7fffffffu) | (float_bits(s) & 0x80000000u));
}

PGT_INLINE float
math_sigmoid(float x)
{
	return 1.0f / (1.0f + math_exp(-x));
}

/* Within 2 ulp: an odd polynomial near 0, where the exponential would cancel. */
PGT_INLINE float
math_tanh(float x)
{
	float		a = math_abs(x),
				s = x * x,
				near,
				far;

	near = -6.0969365416e-3f;
	near = near * s + 2.0997353557e-2f;
	near = near * s - 5.3850952476e-2f;
	near = near * s + 1.3332770075e-1f;
	near = near * s - 3.3333328948e-1f;
	near = near * s * x + x;
	far = math_copysign(1.0f - 2.0f / (math_exp(2.0f * a) + 1.0f), x);
	return a < 0.625f ? near : far;
}

/* log(1 + e), 0 <= e <= 1, as 2 atanh(e / (2 + e)) */
PGT_INLINE float
math_log1p_unit(float e)
{
	float		s = e / (2.0f + e),
				q = s * s,
				p;

	p = 1.1616743184e-1f;
	p = p * q + 1.0852275634e-1f;
	p = p * q + 1.4296248765e-1f;
	p = p * q + 1.9999851635e-1f;
	p = p * q + 3.3333333665e-1f;
	return 2.0f * (p * q * s + s);
}

/* log(1 + e^x) without overflow */
PGT_INLINE float
math_softplus(float x)
{
	float		positive = x < 0.0f ? 0.0f : x;

	return positive + math_log1p_unit(math_exp(-math_abs(x)));
}

/*
 * The normal distribution function, 0.5 (1 + erf(x / sqrt 2)), by erfc(t) = w e^(-t^2) P(w) with
 * w = 1 / (1 + 0.4 t), so that the lower tail does not cancel.
 */
PGT_INLINE float
math_normal_cdf(float x)
{
	float		t = math_abs(x) * 0.707106781f,
				w = 1.0f / (1.0f + 0.4f * t),
				p,
				tail;

	p = 4.1253332049e-2f;
	p = p * w - 1.4032062888e-1f;
	p = p * w + 8.3990104496e-2f;
	p = p * w + 8.7961196899e-2f;
	p = p * w + 7.9758599401e-2f;
	p = p * w + 1.9339233637e-1f;
	p = p * w + 2.0188780129e-1f;
	p = p * w + 2.2644308209e-1f;
	p = p * w + 2.2563423216e-1f;
	tail = 0.5f * w * p * math_exp(-0.5f * x * x);
	return x < 0.0f ? tail : 1.0f - tail;
}

PGT_INLINE float
math_gelu(float x)
{
	/* the product would be -inf * 0 */
	float		finite = x < -1e30f ? -1e30f : x;

	return finite * math_normal_cdf(x);
}

PGT_INLINE float
math_gelu_grad(float x)
{
	float		finite = x < -1e30f ? -1e30f : (x > 1e30f ? 1e30f : x);

	return math_normal_cdf(x) + finite * 0.398942280f * math_exp(-0.5f * x * x);
}

PGT_INLINE float
math_relu(float x)
{
	return 0.0f > x ? 0.0f : x;
}

/* act is a constant where this is called, so that one case remains. */
PGT_INLINE float
math_act(Activation act, float x)
{
	switch (act)
	{
		case ACT_RELU:
			return math_relu(x);
		case ACT_GELU:
			return math_gelu(x);
		case ACT_TANH:
			return math_tanh(x);
		case ACT_SIGMOID:
			return math_sigmoid(x);
		case ACT_NONE:
			break;
	}
	return x;
}

/* dy act'(x), from what the forward pass saved: see act_bwd in backend.h. */
PGT_INLINE float
math_act_grad(Activation act, float dy, float saved)
{
	switch (act)
	{
		case ACT_RELU:
			return saved <= 0.0f ? 0.0f : dy;
		case ACT_GELU:
			return dy * math_gelu_grad(saved);
		case ACT_TANH:
			return dy * (1.0f - saved * saved);
		case ACT_SIGMOID:
			return dy * (saved * (1.0f - saved));
		case ACT_NONE:
			break;
	}
	return dy;
}

/* step_begin: see backend.h. */
PGT_INLINE void
math_step_begin(StepState *s, float lr, uint64_t dropout_stream)
{
	s->lr = lr;
	s->dropout_stream = dropout_stream;
	s->grad_multiplier = 1.0f / s->loss_scale;
	s->skip = 0;
	s->step++;
}

/* gradient_check, from the sum of the squares of the gradients as they are, scaled: see backend.h. */
PGT_INLINE void
math_gradient_check(StepState *s, double squares, const GradientCheckArgs *a)
{
	double		scale = (double) s->loss_scale,
				norm = sqrt(squares) / scale,
				clip = (double) a->max_grad_norm / (norm + 1e-6);

	s->grad_norm = norm;
	s->grad_multiplier = (float) ((a->max_grad_norm > 0.0f && !(clip > 1.0) ? clip : 1.0) / scale);
	if (!a->dynamic_scale)
		return;
	if (!(norm - norm == 0.0))
	{
		s->skip = 1;
		s->step--;
		s->skipped++;
		s->loss_scale *= a->backoff_factor;
		s->good_steps = 0;
	}
	else if (++s->good_steps >= a->growth_interval)
	{
		/* as PyTorch: not beyond what fp32 can hold */
		float		grown = s->loss_scale * a->growth_factor;

		s->loss_scale = grown - grown == 0.0f ? grown : s->loss_scale;
		s->good_steps = 0;
	}
}

/* What an SGD step needs that does not depend on the element. */
typedef struct SgdCoefficients
{
	float		lr,
				grad_multiplier,
				momentum,
				weight_decay;
	int32_t		nesterov;
	int32_t		first;			/* step 1 */
} SgdCoefficients;

PGT_INLINE SgdCoefficients
math_sgd_coefficients(const SgdArgs *a, const StepState *s)
{
	SgdCoefficients c;

	c.lr = s->lr;
	c.grad_multiplier = s->grad_multiplier;
	c.momentum = a->momentum;
	c.weight_decay = a->weight_decay;
	c.nesterov = a->nesterov;
	c.first = s->step <= 1;
	return c;
}

/* One parameter's SGD step, without and with momentum; first is c->first.  Returns the new parameter. */
PGT_INLINE float
math_sgd_plain(float p, float g, const SgdCoefficients *c)
{
	return p - c->lr * (g * c->grad_multiplier + c->weight_decay * p);
}

PGT_INLINE float
math_sgd_momentum(float p, float g, float *buffer, int first, const SgdCoefficients *c)
{
	float		d = g * c->grad_multiplier + c->weight_decay * p,
				b = first ? d : c->momentum * *buffer + d;

	*buffer = b;
	return p - c->lr * (c->nesterov ? d + c->momentum * b : b);
}

/* The same for Adam. */
typedef struct AdamCoefficients
{
	float		grad_multiplier,
				beta2,
				one_minus_beta1,
				one_minus_beta2,
				step_size,		/* lr / (1 - beta1^step) */
				inv_sqrt_bias2, /* 1 / sqrt(1 - beta2^step) */
				eps,
				l2,				/* added to the gradient: Adam */
				shrink;			/* p is multiplied by it first: AdamW */
} AdamCoefficients;

PGT_INLINE AdamCoefficients
math_adam_coefficients(const AdamArgs *a, const StepState *s)
{
	double		beta1 = (double) a->beta1,
				beta2 = (double) a->beta2,
				step = (double) s->step;
	AdamCoefficients c;

	c.grad_multiplier = s->grad_multiplier;
	c.beta2 = a->beta2;
	c.one_minus_beta1 = (float) (1.0 - beta1);
	c.one_minus_beta2 = (float) (1.0 - beta2);
	c.step_size = (float) ((double) s->lr / (1.0 - pow(beta1, step)));
	c.inv_sqrt_bias2 = (float) (1.0 / sqrt(1.0 - pow(beta2, step)));
	c.eps = a->eps;
	c.l2 = a->decoupled ? 0.0f : a->weight_decay;
	c.shrink = a->decoupled ? (float) (1.0 - (double) s->lr * (double) a->weight_decay) : 1.0f;
	return c;
}

/* One parameter's Adam step, PyTorch's order of operations.  Returns the new parameter. */
PGT_INLINE float
math_adam(float p, float g, float *m, float *v, const AdamCoefficients *c)
{
	float		m1,
				v1;

	g = g * c->grad_multiplier + c->l2 * p;
	m1 = *m + c->one_minus_beta1 * (g - *m);
	v1 = c->beta2 * *v + c->one_minus_beta2 * g * g;
	*m = m1;
	*v = v1;
	return p * c->shrink - c->step_size * m1 / (math_sqrt(v1) * c->inv_sqrt_bias2 + c->eps);
}

#endif							/* PGT_MATH_H */
