/*
 * planted.h - kernels that are right and their twins with one planted bug: what the stand-in has to tell apart.
 */
#ifndef PGT_TEST_PLANTED_H
#define PGT_TEST_PLANTED_H

#include <stdint.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C"
{
#endif

/* y = 2 x; grid-stride, no meetings */
extern void start_double(float *y, const float *x, int n, cudaStream_t stream);
/* *sum = sum of x (n), n a power of 2 up to 1024, in shared memory; synced 0 leaves out the barriers */
extern void start_block_sum(float *sum, const float *x, int n, int synced, cudaStream_t stream);
/* sums (rows) of x (rows, 256), by shuffles and a static array, all in one block of 256 threads a row */
extern void start_row_sums(float *sums, const float *x, int rows, cudaStream_t stream);
/* y = x backwards (n), by way of dynamic shared memory of the given bytes */
extern void start_reverse(float *y, const float *x, int n, size_t shared_bytes, cudaStream_t stream);
/* a shuffle of all lanes by half of them only, or by all */
extern void start_shuffle(float *y, int divergent, cudaStream_t stream);
/* a shuffle that reads a lane outside of its mask */
extern void start_shuffle_from_outside(float *y, cudaStream_t stream);
/* __syncthreads by threads below limit only, or in two branches */
extern void start_barrier(float *y, int threads, int limit, cudaStream_t stream);
extern void start_two_barriers(float *y, cudaStream_t stream);
/* y[i] = index inside the grid, from a grid and blocks of three dimensions */
extern void start_indices(int *y, cudaStream_t stream);
/* counts (4): how often each value of x & 3 occurs, by atomics */
extern void start_histogram(unsigned *counts, const uint32_t *x, int n, cudaStream_t stream);
/* ballots (warps), and votes */
extern void start_ballot(unsigned *y, int threads, cudaStream_t stream);
/* y = what a shared array holds that nobody wrote */
extern void start_unset_shared(float *y, cudaStream_t stream);
extern void start_config(int grid, int block, cudaStream_t stream);
extern const void *reverse_kernel_address(void);

#ifdef __cplusplus
}
#endif

#endif							/* PGT_TEST_PLANTED_H */
