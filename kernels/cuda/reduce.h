/*
 * reduce.h - sums over the threads of a warp or a block, always in the same order.
 */
#ifndef PGT_CUDA_REDUCE_H
#define PGT_CUDA_REDUCE_H

#include "kernels/cuda/element.h"

#define WARP 32
#define ALL_LANES 0xffffffffu

/* Every lane gets the sum. */
DEVICE_INLINE float
warp_sum(float v)
{
#pragma unroll
	for (int lanes = WARP / 2; lanes > 0; lanes /= 2)
		v += __shfl_xor_sync(ALL_LANES, v, lanes);
	return v;
}

DEVICE_INLINE double
warp_sum(double v)
{
#pragma unroll
	for (int lanes = WARP / 2; lanes > 0; lanes /= 2)
		v += __shfl_xor_sync(ALL_LANES, v, lanes);
	return v;
}

/* Every thread of a block of BLOCK gets the sum. */
DEVICE_INLINE double
block_sum(double v)
{
	__shared__ double slot[BLOCK / WARP];
	double		sum = 0;

	v = warp_sum(v);
	if (threadIdx.x % WARP == 0)
		slot[threadIdx.x / WARP] = v;
	__syncthreads();
	for (int i = 0; i < BLOCK / WARP; i++)
		sum += slot[i];
	__syncthreads();
	return sum;
}

#endif							/* PGT_CUDA_REDUCE_H */
