/*
 * onednn.h - bf16 matrix products and convolutions by oneDNN, on processors that have instructions for them.
 *
 * Each function is the operation of the same name in BackendOps for DTYPE_BF16, but for activations: oneDNN's would
 * hide a NaN.  STATUS_UNSUPPORTED, with err untouched, says that oneDNN has no fast way for this shape: the caller then
 * uses the backend's own.
 */
#ifndef PGT_CPU_ONEDNN_H
#define PGT_CPU_ONEDNN_H

#include "kernels/cpu/cpu.h"

#if defined(HAVE_ONEDNN)

typedef struct Onednn Onednn;

/*
 * *out is NULL where oneDNN would not pay: the instruction set isa ("avx512", ...) or the processor has no bf16.
 * With emulated, AVX-512 alone will do: for tests.
 */
extern Status onednn_open(const char *isa, int emulated, Onednn **out, Error *err);
extern void onednn_close(Backend *be, Onednn *dnn);

/* "oneDNN 3.7.1" */
extern void onednn_version(char *text, size_t bytes);

extern Status onednn_linear_fwd(Backend *be, size_t m, size_t n, size_t k, const void *x, const void *w,
								const float *b, void *y, DType out, Error *err);
extern Status onednn_linear_bwd_data(Backend *be, size_t m, size_t n, size_t k, const void *dy, const void *w,
									 void *dx, Error *err);
extern Status onednn_linear_bwd_weight(Backend *be, size_t m, size_t n, size_t k, const void *dy, const void *x,
									   float *dw, float *db, float beta, Error *err);
extern Status onednn_conv2d_fwd(Backend *be, const Conv2dShape *s, size_t n, const void *x, const void *w,
								const float *b, void *y, Error *err);
extern Status onednn_conv2d_bwd_data(Backend *be, const Conv2dShape *s, size_t n, const void *dy, const void *w,
									 void *dx, Error *err);
extern Status onednn_conv2d_bwd_weight(Backend *be, const Conv2dShape *s, size_t n, const void *dy, const void *x,
									   float *dw, float *db, float beta, Error *err);

/* At the head of an operation: let oneDNN do it, and return, where it can. */
#define ONEDNN_FIRST(be, dtype, call) \
	do { \
		if ((dtype) == DTYPE_BF16 && (be)->onednn != NULL) \
		{ \
			Status		onednn_status_ = (call); \
			if (onednn_status_ != STATUS_UNSUPPORTED) \
				return onednn_status_; \
		} \
	} while (0)

#else

#define ONEDNN_FIRST(be, dtype, call) ((void) 0)

#endif

#endif							/* PGT_CPU_ONEDNN_H */
