/*
 * ops.h - the operations of the CUDA backend, which backend.c puts into the table.
 */
#ifndef PGT_CUDA_OPS_H
#define PGT_CUDA_OPS_H

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C"
{
#endif

extern Status op_memory_free(Backend *be, size_t *bytes, Error *err);
extern Status op_alloc(Backend *be, size_t bytes, void **out, Error *err);
extern void op_free(Backend *be, void *ptr, size_t bytes);
extern Status op_copy_in(Backend *be, void *dst, const void *host, size_t bytes, Error *err);
extern Status op_copy_out(Backend *be, void *host, const void *src, size_t bytes, Error *err);
extern Status op_copy(Backend *be, void *dst, const void *src, size_t bytes, Error *err);
extern Status op_zero(Backend *be, void *dst, size_t bytes, Error *err);
extern Status op_sync(Backend *be, Error *err);
extern Status op_host_register(Backend *be, void *host, size_t bytes, Error *err);
extern void op_host_unregister(Backend *be, void *host);
extern Status op_graph_begin(Backend *be, Error *err);
extern Status op_graph_end(Backend *be, void **graph, Error *err);
extern Status op_graph_launch(Backend *be, void *graph, Error *err);
extern void op_graph_free(Backend *be, void *graph);
extern Status op_gather(Backend *be, const void *records, size_t record_bytes, const uint32_t *index, size_t n,
						const Segment *segments, int32_t nsegments, const float *scale, const float *offset,
						size_t width, void *x, DType dtype, Error *err);
extern Status op_gather_field(Backend *be, const void *records, size_t record_bytes, size_t field_offset,
							  const uint32_t *index, size_t n, void *y, Error *err);
extern Status op_linear_fwd(Backend *be, size_t m, size_t n, size_t k, const void *x, const void *w, const float *b,
							Activation act, void *y, DType dtype, DType out, Error *err);
extern Status op_linear_bwd_data(Backend *be, size_t m, size_t n, size_t k, const void *dy, const void *w, void *dx,
								 DType dtype, Error *err);
extern Status op_linear_bwd_weight(Backend *be, size_t m, size_t n, size_t k, const void *dy, const void *x,
								   float *dw, float *db, float beta, DType dtype, Error *err);
extern Status op_conv2d_fwd(Backend *be, const Conv2dShape *s, size_t n, const void *x, const void *w,
							const float *b, Activation act, void *y, DType dtype, Error *err);
extern Status op_conv2d_bwd_data(Backend *be, const Conv2dShape *s, size_t n, const void *dy, const void *w,
								 void *dx, DType dtype, Error *err);
extern Status op_conv2d_bwd_weight(Backend *be, const Conv2dShape *s, size_t n, const void *dy, const void *x,
								   float *dw, float *db, float beta, DType dtype, Error *err);
extern Status op_maxpool2d_fwd(Backend *be, const Conv2dShape *s, size_t n, const void *x, int32_t relu, void *y,
							   uint8_t *argmax, DType dtype, Error *err);
extern Status op_maxpool2d_bwd(Backend *be, const Conv2dShape *s, size_t n, const void *dy, const uint8_t *argmax,
							   void *dx, DType dtype, Error *err);
extern Status op_avgpool2d_fwd(Backend *be, const Conv2dShape *s, size_t n, const void *x, void *y, DType dtype,
							   Error *err);
extern Status op_avgpool2d_bwd(Backend *be, const Conv2dShape *s, size_t n, const void *dy, void *dx, DType dtype,
							   Error *err);
extern Status op_batchnorm_fwd_train(Backend *be, size_t m, size_t c, const void *x, const float *gamma,
									 const float *beta, float eps, float momentum, float *running_mean,
									 float *running_var, float *save_mean, float *save_invstd, void *y, DType dtype,
									 Error *err);
extern Status op_batchnorm_fwd_eval(Backend *be, size_t m, size_t c, const void *x, const float *gamma,
									const float *beta, float eps, const float *running_mean,
									const float *running_var, void *y, DType dtype, Error *err);
extern Status op_batchnorm_bwd(Backend *be, size_t m, size_t c, const void *dy, const void *x, const float *gamma,
							   const float *save_mean, const float *save_invstd, void *dx, float *dgamma,
							   float *dbeta, float accumulate, DType dtype, Error *err);
extern Status op_layernorm_fwd(Backend *be, size_t m, size_t d, const void *x, const float *gamma,
							   const float *beta, float eps, float *save_mean, float *save_invstd, void *y,
							   DType dtype, Error *err);
extern Status op_layernorm_bwd(Backend *be, size_t m, size_t d, const void *dy, const void *x, const float *gamma,
							   const float *save_mean, const float *save_invstd, void *dx, float *dgamma,
							   float *dbeta, float accumulate, DType dtype, Error *err);
extern Status op_act_fwd(Backend *be, Activation act, size_t n, const void *x, void *y, DType dtype, Error *err);
extern Status op_act_bwd(Backend *be, Activation act, size_t n, const void *dy, const void *saved, void *dx,
						 DType dtype, Error *err);
extern Status op_dropout(Backend *be, size_t n, float p, uint64_t seed, uint64_t stream, const StepState *state,
						 const void *x, void *y, DType dtype, Error *err);
extern Status op_add(Backend *be, size_t n, const void *a, const void *b, void *y, DType dtype, Error *err);
extern Status op_loss(Backend *be, LossKind kind, size_t m, size_t c, const float *logits, const void *targets,
					  float grad_scale, const StepState *state, void *dlogits, DType dtype, LossSums *sums,
					  Error *err);
extern Status op_step_begin(Backend *be, StepState *state, float lr, uint64_t dropout_stream, Error *err);
extern Status op_gradient_check(Backend *be, size_t n, const float *g, StepState *state,
								const GradientCheckArgs *args, Error *err);
extern Status op_sgd_step(Backend *be, size_t n, float *p, const float *g, float *momentum_buffer,
						  const SgdArgs *args, const StepState *state, void *shadow, DType shadow_dtype,
						  Error *err);
extern Status op_adam_step(Backend *be, size_t n, float *p, const float *g, float *m, float *v,
						   const AdamArgs *args, const StepState *state, void *shadow, DType shadow_dtype,
						   Error *err);
extern Status op_cast(Backend *be, size_t n, const float *x, void *y, DType dtype, Error *err);
extern Status op_sum_squares(Backend *be, size_t n, const float *x, double *result, Error *err);

#ifdef __cplusplus
}
#endif

#endif							/* PGT_CUDA_OPS_H */
