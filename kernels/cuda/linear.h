/*
 * linear.h - matrix products and what goes with them, for the linear layer and for convolutions by columns.
 */
#ifndef PGT_CUDA_LINEAR_H
#define PGT_CUDA_LINEAR_H

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C"
{
#endif

/*
 * A product of row-major matrices, c (rows, columns) = beta c + op(a) op(b), where op transposes or not; a is
 * (rows, depth) or, transposed, (depth, rows), b is (depth, columns) or (columns, depth).
 */
typedef struct Product
{
	size_t		rows,
				columns,
				depth;
	int32_t		transpose_a,
				transpose_b;
	DType		in,				/* of a and b */
				out;			/* of c */
	float		beta;			/* 0 or 1 */
	int32_t		relu;			/* negative results are zeroed */
	int32_t		sums;			/* the sums of the rows of op(a) are wanted, too */
} Product;

/*
 * vector is a bias (columns) to add, fp32 as out must be then, or NULL.  With sums it is where they go (rows) instead, and
 * STATUS_UNSUPPORTED says that they must be made otherwise: then nothing was done.
 */
extern Status matmul(Backend *be, const Product *product, const void *a, const void *b, const float *vector, void *c,
					 Error *err);
extern Status matmul_open(Backend *be, Error *err);
extern void matmul_close(Backend *be);

/* y (m, n) = act(x (m, n) + b (n)); x may be y where dtype is DTYPE_F32.  b may be NULL. */
extern Status bias_act(Backend *be, size_t m, size_t n, const float *x, const float *b, Activation act, void *y,
					   DType dtype, Error *err);
/* db (n) = beta db + column sums of dy (m, n) */
extern Status column_sums(Backend *be, size_t m, size_t n, const void *dy, float *db, float beta, DType dtype,
						  Error *err);

#ifdef __cplusplus
}
#endif

#endif							/* PGT_CUDA_LINEAR_H */
