/*
 * gemm.h - the one matrix product under cuBLASLt's and cuDNN's stand-ins.
 */
#ifndef PGT_SIM_GEMM_H
#define PGT_SIM_GEMM_H

#include "regress/cudasim/numbers.h"

namespace sim
{

/* Element (row, column) lies at data[row * row_step + column * column_step]. */
struct Matrix
{
	const void *data;
	Number		type;
	size_t		row_step,
				column_step;
};

/* c (m, n), column by column without gaps, = a (m, k) b (k, n), summed in fp32. */
extern void gemm(size_t m, size_t n, size_t k, const Matrix &a, const Matrix &b, bool tf32, float *c);

}								/* namespace sim */

#endif							/* PGT_SIM_GEMM_H */
