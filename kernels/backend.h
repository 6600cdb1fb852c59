/*
 * backend.h - the one table of operations behind which every device lives.
 *
 * A backend is a table of functions, BackendOps, and an open device, Backend.  The engine calls the
 * table and knows no device.  Backends:
 *
 *   kernels/cpu    plain C, vectorised, AVX2/AVX-512 chosen at run time; compiled with OpenMP for the
 *                  engine and without it for scoring inside a PostgreSQL backend; oneDNN on top in the
 *                  engine for what it does faster
 *   kernels/cuda   a shared object that the engine opens with dlopen
 *
 * Conventions
 *   - Every pointer to tensor data is a device pointer of that backend, every size is in elements
 *     unless the name says bytes.  A shape comment stands beside each pointer.
 *   - Images are NHWC: a row of the batch is (H, W, C).  Convolution weights are (O, KH, KW, I), linear
 *     weights (N, K) as in PyTorch.  The engine converts from and to PyTorch's layouts at the border.
 *   - Activations and their gradients are of the type the call names (DTYPE_F32, DTYPE_BF16 or DTYPE_F16); a
 *     low-precision operation takes low-precision weights w.  Sums are fp32 or better.  Biases, norm
 *     parameters, parameter gradients and optimizer state are always fp32.
 *   - Gradient outputs dw, db, dgamma, dbeta are scaled by beta (0: overwritten, 1: added to), which is
 *     how micro-batches accumulate.  db may be NULL.
 *   - Results depend on the inputs and the number of threads only: reductions have a fixed order.
 *   - Output buffers never overlap input buffers unless the operation says "may alias".
 *   - A device may work behind the calls, in the order they came: results, and errors that lie in the data, are
 *     there after sync or copy_out.  An error that the device met stays until it is closed.
 *   - An operation may keep plans and workspace inside the Backend, made at its first call for a shape (for a
 *     library: for a shape and a number of rows); after that it allocates nothing.
 *   - n, m or rows may be smaller from call to call (the ragged last batch), down to 1.
 */
#ifndef PGT_BACKEND_H
#define PGT_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/error.h"

/* Raised whenever BackendOps or a struct that it takes changes. */
#define BACKEND_ABI_VERSION 2

/* The symbol by which a backend in a shared object is found: const BackendOps *pg_train_backend(void). */
#define BACKEND_SYMBOL "pg_train_backend"

typedef enum DType
{
	DTYPE_F32 = 0,
	DTYPE_BF16 = 1,
	DTYPE_F16 = 2,
	DTYPE_U8 = 3,
	DTYPE_I32 = 4
} DType;

typedef enum Activation
{
	ACT_NONE = 0,
	ACT_RELU,
	ACT_GELU,					/* exact, by erf, as torch.nn.GELU() */
	ACT_TANH,
	ACT_SIGMOID
} Activation;

typedef enum LossKind
{
	LOSS_CROSS_ENTROPY = 0,		/* logits (M, C), targets int32 (M) */
	LOSS_BCE_WITH_LOGITS,		/* logits (M, 1), targets int32 (M), 0 or 1 */
	LOSS_MSE,					/* outputs (M, C), targets float (M, C) */
	LOSS_SMOOTH_L1				/* the same, with beta = 1 */
} LossKind;

/* Geometry of a convolution or a pooling: x is (n, h, w, c_in), y is (n, h_out, w_out, c_out). */
typedef struct Conv2dShape
{
	int32_t		c_in,
				h,
				w;
	int32_t		c_out;			/* pooling: equal to c_in */
	int32_t		kernel_h,
				kernel_w;
	int32_t		stride_h,
				stride_w;
	int32_t		pad_h,
				pad_w;
	int32_t		h_out,
				w_out;
} Conv2dShape;

/* A run of columns of one type inside a dataset record. */
typedef struct Segment
{
	int32_t		dtype;			/* DTYPE_F32 or DTYPE_U8 */
	int32_t		width;			/* values */
	int32_t		record_offset;	/* bytes from the start of the record */
	int32_t		input_offset;	/* first element of the network's input it fills */
} Segment;

/* Sums over the rows seen since they were zeroed; lives in device memory, copied out once an epoch. */
typedef struct LossSums
{
	double		loss;			/* sum over rows of the row's loss */
	double		correct;		/* classification: rows whose argmax (or sign) is right */
	double		squared_error;	/* regression: sum of (output - target)^2 */
	double		absolute_error; /* regression: sum of |output - target| */
	double		rows;
} LossSums;

/*
 * What changes from one optimizer step to the next, in device memory, so that the host need not wait for a
 * step, and a recorded one can be replayed.  step_begin and gradient_check write it, other operations read it.
 */
typedef struct StepState
{
	float		lr;
	float		loss_scale;		/* what dlogits are multiplied by; 1 but in fp16 */
	float		grad_multiplier;	/* what the optimizer multiplies gradients by: clipping, unscaling */
	int32_t		skip;			/* 1: the gradients are not finite, the optimizer leaves everything as it is */
	int32_t		good_steps;		/* since the loss scale last changed */
	int32_t		reserved;
	uint64_t	dropout_stream; /* added to the streams of the step's dropout masks */
	int64_t		step;			/* optimizer steps, this one included; from 1 */
	int64_t		skipped;		/* steps left out; not in step */
	double		grad_norm;		/* of the gradients last checked, unscaled, before clipping */
} StepState;

/* Dynamic loss scaling as torch.amp.GradScaler does it, and clipping as torch.nn.utils.clip_grad_norm_. */
typedef struct GradientCheckArgs
{
	float		max_grad_norm;	/* 0: no clipping */
	int32_t		dynamic_scale;	/* 1: a gradient that is not finite skips the step and shrinks loss_scale */
	float		growth_factor,
				backoff_factor;
	int32_t		growth_interval;	/* good steps before loss_scale grows */
} GradientCheckArgs;

typedef struct SgdArgs
{
	float		momentum,
				weight_decay;	/* added to the gradient, as torch.optim.SGD does */
	int32_t		nesterov;
} SgdArgs;

typedef struct AdamArgs
{
	float		beta1,
				beta2,
				eps,
				weight_decay;
	int32_t		decoupled;		/* 1: AdamW, 0: L2 added to the gradient */
} AdamArgs;

typedef struct OpenOptions
{
	int32_t		ordinal;		/* of the device, from 0 */
	int32_t		threads;		/* CPU threads, 0 for the number of processors this process may use */
	int32_t		tf32;			/* 1: fp32 products may be computed in TF32 where the device has it */
} OpenOptions;

typedef struct Backend Backend; /* an open device; private to its backend */

/* What an open device says of itself. */
typedef struct DeviceInfo
{
	char		name[128];		/* "cpu (AVX2, 2 threads)" */
	char		libraries[256]; /* "oneDNN 2.6.3" or "" */
	int32_t		threads;
	int32_t		bf16;			/* 1: bf16 is native here, 0: DTYPE_BF16 works, emulated and slow */
	int32_t		f16;			/* the same for fp16 */
	int32_t		asynchronous;	/* 1: works behind the calls, so that looking at results costs a wait */
	int32_t		compute_capability; /* of a GPU: 90 for 9.0; else 0 */
	int32_t		reserved;
	uint64_t	memory_bytes;	/* of the device */
} DeviceInfo;

typedef struct BackendOps
{
	uint32_t	abi_version;	/* BACKEND_ABI_VERSION of the build */
	const char *name;			/* "cpu", "cuda" */

	/* Devices there are; STATUS_UNSUPPORTED with the reason where none is usable. */
	Status		(*count) (int32_t *devices, Error *err);
	Status		(*open) (const OpenOptions *options, Backend **out, Error *err);
	void		(*close) (Backend *be);
	void		(*info) (const Backend *be, DeviceInfo *info);

	/* Memory.  alloc returns zeroed memory, aligned to 64 bytes or better. */
	Status		(*memory_free) (Backend *be, size_t *bytes, Error *err);	/* what alloc can still give, about */
	Status		(*alloc) (Backend *be, size_t bytes, void **out, Error *err);
	void		(*free) (Backend *be, void *ptr, size_t bytes);
	Status		(*copy_in) (Backend *be, void *dst, const void *host, size_t bytes, Error *err);
	Status		(*copy_out) (Backend *be, void *host, const void *src, size_t bytes, Error *err);
	Status		(*copy) (Backend *be, void *dst, const void *src, size_t bytes, Error *err);
	Status		(*zero) (Backend *be, void *dst, size_t bytes, Error *err);
	Status		(*sync) (Backend *be, Error *err);	/* wait until all that was issued is done */

	/*
	 * Pin host memory that copy_in and copy_out will use, for speed; NULL where there is nothing to gain.  A
	 * failure does no harm.
	 */
	Status		(*host_register) (Backend *be, void *host, size_t bytes, Error *err);
	void		(*host_unregister) (Backend *be, void *host);

	/*
	 * Record what is called between begin and end instead of doing it, and replay that with one call; all four
	 * NULL where a device gains nothing.  Every operation recorded must have run once before with the same
	 * shapes.  graph_end frees what was recorded when it fails, and *graph is then NULL.
	 */
	Status		(*graph_begin) (Backend *be, Error *err);
	Status		(*graph_end) (Backend *be, void **graph, Error *err);
	Status		(*graph_launch) (Backend *be, void *graph, Error *err);
	void		(*graph_free) (Backend *be, void *graph);

	/*
	 * Gather records by index and decode them to x (n, width): x = value * scale[j] + offset[j].  scale and
	 * offset are (width), or both NULL: then uint8 values are scaled by 1/255 and floats are taken as they
	 * are.
	 */
	Status		(*gather) (Backend *be, const void *records, size_t record_bytes,
						   const uint32_t *index /* (n) */ , size_t n,
						   const Segment *segments, int32_t nsegments,
						   const float *scale, const float *offset, size_t width,
						   void *x /* (n, width) */ , DType dtype, Error *err);
	/* Gather one 4-byte field (int32 or float) of the records: y (n). */
	Status		(*gather_field) (Backend *be, const void *records, size_t record_bytes, size_t field_offset,
								 const uint32_t *index /* (n) */ , size_t n, void *y /* (n) */ , Error *err);

	/* y = act(x w^T + b).  out may be DTYPE_F32 while dtype is lower: the logits.  b may be NULL. */
	Status		(*linear_fwd) (Backend *be, size_t m, size_t n, size_t k,
							   const void *x /* (m, k) dtype */ , const void *w /* (n, k) dtype */ ,
							   const float *b /* (n) */ , Activation act,
							   void *y /* (m, n) out */ , DType dtype, DType out, Error *err);
	/* dx = dy w */
	Status		(*linear_bwd_data) (Backend *be, size_t m, size_t n, size_t k,
									const void *dy /* (m, n) */ , const void *w /* (n, k) */ ,
									void *dx /* (m, k) */ , DType dtype, Error *err);
	/* dw = beta dw + dy^T x, db = beta db + column sums of dy */
	Status		(*linear_bwd_weight) (Backend *be, size_t m, size_t n, size_t k,
									  const void *dy /* (m, n) */ , const void *x /* (m, k) */ ,
									  float *dw /* (n, k) */ , float *db /* (n) */ , float beta,
									  DType dtype, Error *err);

	/* Convolution; act is ACT_NONE or ACT_RELU. */
	Status		(*conv2d_fwd) (Backend *be, const Conv2dShape *s, size_t n,
							   const void *x /* (n, h, w, c_in) */ , const void *w /* (c_out, kh, kw, c_in) */ ,
							   const float *b /* (c_out) or NULL */ , Activation act,
							   void *y /* (n, h_out, w_out, c_out) */ , DType dtype, Error *err);
	Status		(*conv2d_bwd_data) (Backend *be, const Conv2dShape *s, size_t n,
									const void *dy, const void *w, void *dx, DType dtype, Error *err);
	Status		(*conv2d_bwd_weight) (Backend *be, const Conv2dShape *s, size_t n,
									  const void *dy, const void *x, float *dw, float *db, float beta,
									  DType dtype, Error *err);

	/*
	 * Max pooling; padding counts as minus infinity.  argmax holds the position inside the window (below
	 * 255), or 255 where relu is set and the maximum is not positive: then y is 0 and no gradient flows.
	 * argmax may be NULL in evaluation.  dx is overwritten (zero where nothing flows).
	 */
	Status		(*maxpool2d_fwd) (Backend *be, const Conv2dShape *s, size_t n, const void *x, int32_t relu,
								  void *y, uint8_t *argmax /* (n, h_out, w_out, c) */ , DType dtype, Error *err);
	Status		(*maxpool2d_bwd) (Backend *be, const Conv2dShape *s, size_t n, const void *dy,
								  const uint8_t *argmax, void *dx, DType dtype, Error *err);
	/* Average pooling; padding counts as zeros in the mean, as torch.nn.AvgPool2d does. */
	Status		(*avgpool2d_fwd) (Backend *be, const Conv2dShape *s, size_t n, const void *x, void *y,
								  DType dtype, Error *err);
	Status		(*avgpool2d_bwd) (Backend *be, const Conv2dShape *s, size_t n, const void *dy, void *dx,
								  DType dtype, Error *err);

	/*
	 * Batch norm over the rows of x (m, c); an image batch has m = n h w.  Training uses the batch's
	 * statistics (biased variance) and moves the running ones (unbiased variance) by momentum.
	 */
	Status		(*batchnorm_fwd_train) (Backend *be, size_t m, size_t c, const void *x,
										const float *gamma, const float *beta, float eps, float momentum,
										float *running_mean, float *running_var,
										float *save_mean, float *save_invstd, void *y, DType dtype, Error *err);
	Status		(*batchnorm_fwd_eval) (Backend *be, size_t m, size_t c, const void *x,
									   const float *gamma, const float *beta, float eps,
									   const float *running_mean, const float *running_var,
									   void *y, DType dtype, Error *err);
	/* dx may be NULL: only the parameters' gradients are wanted. */
	Status		(*batchnorm_bwd) (Backend *be, size_t m, size_t c, const void *dy, const void *x,
								  const float *gamma, const float *save_mean, const float *save_invstd,
								  void *dx, float *dgamma, float *dbeta, float accumulate,
								  DType dtype, Error *err);

	/* Layer norm over the columns of x (m, d); save_mean, save_invstd are (m). */
	Status		(*layernorm_fwd) (Backend *be, size_t m, size_t d, const void *x,
								  const float *gamma, const float *beta, float eps,
								  float *save_mean, float *save_invstd, void *y, DType dtype, Error *err);
	Status		(*layernorm_bwd) (Backend *be, size_t m, size_t d, const void *dy, const void *x,
								  const float *gamma, const float *save_mean, const float *save_invstd,
								  void *dx, float *dgamma, float *dbeta, float accumulate,
								  DType dtype, Error *err);

	/* y = act(x).  May alias. */
	Status		(*act_fwd) (Backend *be, Activation act, size_t n, const void *x, void *y, DType dtype,
							Error *err);
	/*
	 * dx = dy act'(x).  saved is the activation's output y for ACT_RELU, ACT_TANH and ACT_SIGMOID, its input x
	 * for ACT_GELU.  dx may alias dy.
	 */
	Status		(*act_bwd) (Backend *be, Activation act, size_t n, const void *dy, const void *saved,
							void *dx, DType dtype, Error *err);

	/*
	 * Dropout: y = x mask / (1 - p), where element i of the batch is kept by the i-th 32-bit word of
	 * Philox4x32-10 under (seed, stream + state->dropout_stream): kernels/philox.h.  The backward pass is the
	 * same call on the gradient.  state may be NULL: 0.  May alias.
	 */
	Status		(*dropout) (Backend *be, size_t n, float p, uint64_t seed, uint64_t stream, const StepState *state,
							const void *x, void *y, DType dtype, Error *err);

	/* y = a + b, element by element.  May alias. */
	Status		(*add) (Backend *be, size_t n, const void *a, const void *b, void *y, DType dtype, Error *err);

	/*
	 * Loss and its gradient in one pass.  Adds to *sums.  dlogits = grad_scale * loss_scale * d(sum of row
	 * losses)/d(logits), of type dtype, or NULL in evaluation; loss_scale is the state's, or 1 where state is
	 * NULL.  MSE and smooth L1 average over the C outputs of a row.  A target that is no class is
	 * STATUS_INVALID.
	 */
	Status		(*loss) (Backend *be, LossKind kind, size_t m, size_t c, const float *logits /* (m, c) */ ,
						 const void *targets, float grad_scale, const StepState *state,
						 void *dlogits /* (m, c) */ , DType dtype, LossSums *sums, Error *err);

	/*
	 * Begin an optimizer step: step goes up by one, lr and dropout_stream are set, grad_multiplier becomes
	 * 1 / loss_scale and skip 0.  Never recorded.
	 */
	Status		(*step_begin) (Backend *be, StepState *state, float lr, uint64_t dropout_stream, Error *err);
	/*
	 * Look at the gradients before the optimizer takes them: sets grad_norm and grad_multiplier = 1 /
	 * loss_scale, times max_grad_norm / (grad_norm + 1e-6) where that is below 1.  With dynamic_scale a norm that
	 * is not finite sets skip, takes step back, counts skipped and multiplies loss_scale by backoff_factor;
	 * after growth_interval good steps loss_scale grows by growth_factor.
	 */
	Status		(*gradient_check) (Backend *be, size_t n, const float *g, StepState *state,
								   const GradientCheckArgs *args, Error *err);
	/*
	 * Optimizer steps over a whole arena, with the state's lr, step and grad_multiplier; nothing happens where
	 * skip is set.  Step 1 of SGD sets the momentum buffer to the gradient.  shadow, where not NULL, gets p in low
	 * precision.
	 */
	Status		(*sgd_step) (Backend *be, size_t n, float *p, const float *g, float *momentum_buffer /* or NULL */ ,
							 const SgdArgs *args, const StepState *state, void *shadow, DType shadow_dtype,
							 Error *err);
	Status		(*adam_step) (Backend *be, size_t n, float *p, const float *g, float *m, float *v,
							  const AdamArgs *args, const StepState *state, void *shadow, DType shadow_dtype,
							  Error *err);
	/* Convert fp32 to dtype. */
	Status		(*cast) (Backend *be, size_t n, const float *x, void *y, DType dtype, Error *err);
	/* *result (device) += sum of squares of x; inf or nan where x has one. */
	Status		(*sum_squares) (Backend *be, size_t n, const float *x, double *result, Error *err);
} BackendOps;

/* The CPU backend.  The engine's build uses OpenMP and oneDNN, the build inside pg_train.so neither. */
extern const BackendOps *cpu_backend(void);

#endif							/* PGT_BACKEND_H */
