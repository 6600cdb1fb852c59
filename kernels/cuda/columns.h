/*
 * columns.h - blocks of threads over the columns of a matrix (m, c): neighbours in x take neighbouring columns, and y
 * takes different rows.
 */
#ifndef PGT_CUDA_COLUMNS_H
#define PGT_CUDA_COLUMNS_H

#include "kernels/cuda/reduce.h"

/* Parts into which rows are cut for the first stage of a sum over them. */
#define COLUMN_PARTS 256

/* Rows that a thread takes together, so that sums in double are rare. */
#define ROW_GROUP 8

/* Threads for columns in groups of each: a power of two of them up to a warp lies in x. */
static inline dim3
column_block(size_t columns, size_t each)
{
	unsigned	x = 1;

	while (x < WARP && x * each < columns)
		x *= 2;
	return dim3(x, BLOCK / x);
}

/* Blocks for that: x takes columns, y parts of the rows, about rows_each for a thread. */
static inline dim3
column_grid(const Backend *be, dim3 block, size_t rows, size_t columns, size_t each, size_t rows_each)
{
	size_t		x = ceil_div(columns, block.x * each),
				y = ceil_div(rows, (size_t) block.y * rows_each),
				most = ceil_div((size_t) be->multiprocessors * 8, x);

	return dim3((unsigned) x, (unsigned) min_size(y, min_size(most, COLUMN_PARTS)));
}

/* Rows [lo, hi) of part number of parts. */
DEVICE_INLINE void
rows_of_part(size_t rows, unsigned number, unsigned parts, size_t *lo, size_t *hi)
{
	*lo = rows * number / parts;
	*hi = rows * (number + 1) / parts;
}

/* Which pair of sums over rows there is to make. */
typedef enum ColumnSum
{
	COLUMN_SUM,					/* dy, and nothing */
	COLUMN_BATCHNORM,			/* dy, and dy (x - mean of the column) */
	COLUMN_LAYERNORM			/* dy, and dy (x - mean of the row) invstd of the row */
} ColumnSum;

/*
 * The first stage: partial (2, parts, c), sums of the rows of each part.  x, mean and invstd as the kind needs them.
 */
extern Status column_partials(Backend *be, ColumnSum kind, size_t m, size_t c, const void *dy, const void *x,
							  const float *mean, const float *invstd, double **partial, unsigned *parts, DType dtype,
							  size_t extra_bytes, Error *err);

/* The sum over parts of column j, for a block of column_block(c, 1), whose threads of y 0 get it. */
DEVICE_INLINE double
column_total(const double *partial, unsigned parts, size_t c, size_t j)
{
	__shared__ double slot[BLOCK];
	unsigned	at = threadIdx.y * blockDim.x + threadIdx.x;
	double		sum = 0;

	if (j < c)
		for (unsigned part = threadIdx.y; part < parts; part += blockDim.y)
			sum += partial[part * c + j];
	slot[at] = sum;
	__syncthreads();
	for (unsigned half = blockDim.y / 2; half > 0; half /= 2)
	{
		if (threadIdx.y < half)
			slot[at] += slot[at + half * blockDim.x];
		__syncthreads();
	}
	sum = slot[threadIdx.x];
	__syncthreads();
	return sum;
}

#endif							/* PGT_CUDA_COLUMNS_H */
