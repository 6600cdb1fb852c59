/*
 * gemm.h - matrix products over the register tile, of any strides.
 */
#ifndef PGT_CPU_GEMM_H
#define PGT_CPU_GEMM_H

#include "kernels/cpu/tile.h"

#define gemm ISA_NAME(gemm)
#define gemm_pack_b ISA_NAME(gemm_pack_b)

/* Element (i, j) is at data[i * row + j * column]; one of the strides is 1. */
typedef struct Matrix
{
	const void *data;
	size_t		row,
				column;
	DType		dtype;
} Matrix;

/*
 * c (m, n) = act(a (m, k) b (k, n) + bias) + beta c, in out->c; out->columns is ignored.  A beta other than 0
 * excludes an activation.
 */
extern Status gemm(Backend *be, size_t m, size_t n, size_t k, const Matrix *a, const Matrix *b,
				   const TileOutput *out, Error *err);

/*
 * Rows [p, p + k) and columns [j, j + n) of b as panels of TILE_COLUMNS columns, (panels, k, TILE_COLUMNS);
 * the last one is filled up with zeros.
 */
extern void gemm_pack_b(const Matrix *b, size_t p, size_t k, size_t j, size_t n, float *packed);

/* The row of a tensor where part i of count begins, when its rows are cut as evenly as possible. */
ALWAYS_INLINE size_t
even_cut(size_t rows, size_t i, size_t count)
{
	return rows * i / count;
}

ALWAYS_INLINE size_t
tile_count(size_t rows)
{
	return (rows + TILE_ROWS - 1) / TILE_ROWS;
}

#endif							/* PGT_CPU_GEMM_H */
