/*
 * reference.h - every operation of kernels/backend.h once more, as plainly as it can be written, in double.
 *
 * Shapes and meanings are those of backend.h.
 */
#ifndef PGT_TEST_REFERENCE_H
#define PGT_TEST_REFERENCE_H

#include "kernels/backend.h"

extern double ref_act(Activation act, double x);
/* from the input x of the activation */
extern double ref_act_slope(Activation act, double x);

extern void ref_linear_fwd(size_t m, size_t n, size_t k, const double *x, const double *w, const double *b,
						   Activation act, double *y);
extern void ref_linear_bwd_data(size_t m, size_t n, size_t k, const double *dy, const double *w, double *dx);
/* dw, db: the plain sums, beta 0 */
extern void ref_linear_bwd_weight(size_t m, size_t n, size_t k, const double *dy, const double *x, double *dw,
								  double *db);

/* A shape with its output size filled in. */
extern Conv2dShape ref_conv_shape(int c_in, int h, int w, int c_out, int kernel_h, int kernel_w, int stride_h,
								  int stride_w, int pad_h, int pad_w);
extern size_t ref_in_size(const Conv2dShape *s, size_t n);
extern size_t ref_out_size(const Conv2dShape *s, size_t n);
extern size_t ref_weight_size(const Conv2dShape *s);

extern void ref_conv2d_fwd(const Conv2dShape *s, size_t n, const double *x, const double *w, const double *b,
						   Activation act, double *y);
extern void ref_conv2d_bwd(const Conv2dShape *s, size_t n, const double *dy, const double *x, const double *w,
						   double *dx, double *dw, double *db);

/* argmax as backend.h has it */
extern void ref_maxpool2d_fwd(const Conv2dShape *s, size_t n, const double *x, int relu, double *y,
							  uint8_t *argmax);
extern void ref_maxpool2d_bwd(const Conv2dShape *s, size_t n, const double *dy, const uint8_t *argmax,
							  double *dx);
extern void ref_avgpool2d_fwd(const Conv2dShape *s, size_t n, const double *x, double *y);
extern void ref_avgpool2d_bwd(const Conv2dShape *s, size_t n, const double *dy, double *dx);

/* mean and biased variance of each column */
extern void ref_column_moments(size_t m, size_t c, const double *x, double *mean, double *var);
/* normalisation of rows (by_column 0) or columns, with its gradients from dy */
extern void ref_norm(size_t m, size_t c, int by_column, const double *x, const double *gamma,
					 const double *beta, double eps, double *mean, double *invstd, double *y);
extern void ref_norm_bwd(size_t m, size_t c, int by_column, const double *x, const double *dy,
						 const double *gamma, const double *mean, const double *invstd, double *dx,
						 double *dgamma, double *dbeta);

/* targets as double; dlogits is the gradient for grad_scale */
extern void ref_loss(LossKind kind, size_t m, size_t c, const double *logits, const double *targets,
					 double grad_scale, double *dlogits, LossSums *sums);

extern void ref_sgd_step(size_t n, double *p, const double *g, double *buffer, const SgdArgs *a,
						 const StepState *s);
extern void ref_adam_step(size_t n, double *p, const double *g, double *m, double *v, const AdamArgs *a,
						  const StepState *s);

#endif							/* PGT_TEST_REFERENCE_H */
