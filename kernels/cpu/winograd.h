/*
 * winograd.h - 3 x 3 convolutions of stride 1 by Winograd's method.
 */
#ifndef PGT_CPU_WINOGRAD_H
#define PGT_CPU_WINOGRAD_H

#include "kernels/cpu/simd.h"

#define winograd_pays ISA_NAME(winograd_pays)
#define winograd_fwd ISA_NAME(winograd_fwd)
#define winograd_bwd_data ISA_NAME(winograd_bwd_data)
#define winograd_bwd_weight ISA_NAME(winograd_bwd_weight)

/* Does it apply to this fp32 convolution, with fewer operations than the plain sum? */
extern int	winograd_pays(const Conv2dShape *s);

/* The operations of BackendOps, in fp32; nt threads. */
extern Status winograd_fwd(Backend *be, int nt, const Conv2dShape *s, size_t n, const float *x, const float *w,
						   const float *b, Activation act, float *y, Error *err);
extern Status winograd_bwd_data(Backend *be, int nt, const Conv2dShape *s, size_t n, const float *dy,
								const float *w, float *dx, Error *err);
extern Status winograd_bwd_weight(Backend *be, int nt, const Conv2dShape *s, size_t n, const float *dy,
								  const float *x, float *dw, float *db, float beta, Error *err);

#endif							/* PGT_CPU_WINOGRAD_H */
