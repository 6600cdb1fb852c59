/*
 * planted.cu - the kernels of planted.h.
 */
#include "regress/cudasim/device.h"
#include "regress/unit/cudasim/planted.h"

__global__ static void
double_kernel(float *y, const float *x, int n)
{
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		y[i] = 2 * x[i];
}

template <bool SYNCED> __global__ void
block_sum_kernel(float *sum, const float *x, int n)
{
	CUDASIM_DYN_SHARED(float, part);
	int			t = threadIdx.x;

	part[t] = x[t];
	if (SYNCED)
		__syncthreads();
	for (int half = n / 2; half > 0; half /= 2)
	{
		if (t < half)
			part[t] += part[t + half];
		if (SYNCED)
			__syncthreads();
	}
	if (t == 0)
		*sum = part[0];
}

__device__ static float
warp_sum(float x)
{
	for (int lanes = 16; lanes > 0; lanes /= 2)
		x += __shfl_xor_sync(0xffffffffu, x, lanes);
	return x;
}

template <typename T> __global__ void
row_sums_kernel(T *sums, const T *x)
{
	__shared__ T part[8];
	int			lane = threadIdx.x % 32,
				warp = threadIdx.x / 32;
	T			sum = warp_sum(x[blockIdx.x * blockDim.x + threadIdx.x]);

	if (lane == 0)
		part[warp] = sum;
	__syncthreads();
	if (warp == 0)
	{
		sum = warp_sum(lane < 8 ? part[lane] : 0);
		if (lane == 0)
			sums[blockIdx.x] = sum;
	}
}

__global__ static void
reverse_kernel(float *y, const float *x, int n)
{
	CUDASIM_DYN_SHARED(float, staged);

	for (int i = threadIdx.x; i < n; i += blockDim.x)
		staged[i] = x[i];
	__syncthreads();
	for (int i = threadIdx.x; i < n; i += blockDim.x)
		y[i] = staged[n - 1 - i];
}

__global__ static void
shuffle_kernel(float *y, int divergent)
{
	float		x = threadIdx.x;

	if (!divergent || threadIdx.x < 16)
		x = __shfl_xor_sync(0xffffffffu, x, 1);
	y[threadIdx.x] = x;
}

__global__ static void
shuffle_from_outside_kernel(float *y)
{
	float		x = threadIdx.x;

	if (threadIdx.x < 16)
		x = __shfl_xor_sync(0x0000ffffu, x, 16);
	y[threadIdx.x] = x;
}

__global__ static void
barrier_kernel(float *y, int limit)
{
	if ((int) threadIdx.x >= limit)
		return;
	__syncthreads();
	y[threadIdx.x] = 1;
}

__global__ static void
two_barriers_kernel(float *y)
{
	if (threadIdx.x < 32)
		__syncthreads();
	else
	{
		y[threadIdx.x] = 0;
		__syncthreads();
	}
	y[threadIdx.x] = 1;
}

__global__ static void
indices_kernel(int *y)
{
	int			block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x,
				thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x,
				i = block * blockDim.x * blockDim.y * blockDim.z + thread;

	y[i] = i;
}

__global__ static void
histogram_kernel(unsigned *counts, const uint32_t *x, int n)
{
	__shared__ unsigned part[4];

	if (threadIdx.x < 4)
		part[threadIdx.x] = 0;
	__syncthreads();
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		atomicAdd(&part[x[i] & 3], 1);
	__syncthreads();
	if (threadIdx.x < 4)
		atomicAdd(&counts[threadIdx.x], part[threadIdx.x]);
}

__global__ static void
ballot_kernel(unsigned *y)
{
	unsigned	odd = __ballot_sync(0xffffffffu, threadIdx.x & 1);
	int			any = __any_sync(0xffffffffu, threadIdx.x == 40),
				all = __all_sync(0xffffffffu, threadIdx.x < 64);

	if (threadIdx.x % 32 == 0)
		y[threadIdx.x / 32] = (odd & 0xff) | any << 8 | all << 9;
}

__global__ static void
unset_shared_kernel(float *y)
{
	__shared__ float part[32];

	if (threadIdx.x < 16)
		part[threadIdx.x] = 1;
	__syncthreads();
	y[threadIdx.x] = part[threadIdx.x];
}

extern "C"
{

void
start_double(float *y, const float *x, int n, cudaStream_t stream)
{
	CUDASIM_LAUNCH(double_kernel, 4, 128, 0, stream, y, x, n);
}

void
start_block_sum(float *sum, const float *x, int n, int synced, cudaStream_t stream)
{
	if (synced)
		CUDASIM_LAUNCH(block_sum_kernel<true>, 1, n, n * sizeof(float), stream, sum, x, n);
	else
		CUDASIM_LAUNCH(block_sum_kernel<false>, 1, n, n * sizeof(float), stream, sum, x, n);
}

void
start_row_sums(float *sums, const float *x, int rows, cudaStream_t stream)
{
	CUDASIM_LAUNCH(row_sums_kernel<float>, rows, 256, 0, stream, sums, x);
}

void
start_reverse(float *y, const float *x, int n, size_t shared_bytes, cudaStream_t stream)
{
	CUDASIM_LAUNCH(reverse_kernel, 1, 64, shared_bytes, stream, y, x, n);
}

void
start_shuffle(float *y, int divergent, cudaStream_t stream)
{
	CUDASIM_LAUNCH(shuffle_kernel, 1, 32, 0, stream, y, divergent);
}

void
start_shuffle_from_outside(float *y, cudaStream_t stream)
{
	CUDASIM_LAUNCH(shuffle_from_outside_kernel, 1, 32, 0, stream, y);
}

void
start_barrier(float *y, int threads, int limit, cudaStream_t stream)
{
	CUDASIM_LAUNCH(barrier_kernel, 1, threads, 0, stream, y, limit);
}

void
start_two_barriers(float *y, cudaStream_t stream)
{
	CUDASIM_LAUNCH(two_barriers_kernel, 1, 64, 0, stream, y);
}

void
start_indices(int *y, cudaStream_t stream)
{
	CUDASIM_LAUNCH(indices_kernel, dim3(3, 2, 2), dim3(4, 3, 5), 0, stream, y);
}

void
start_histogram(unsigned *counts, const uint32_t *x, int n, cudaStream_t stream)
{
	CUDASIM_LAUNCH(histogram_kernel, 8, 64, 0, stream, counts, x, n);
}

void
start_ballot(unsigned *y, int threads, cudaStream_t stream)
{
	CUDASIM_LAUNCH(ballot_kernel, 1, threads, 0, stream, y);
}

void
start_unset_shared(float *y, cudaStream_t stream)
{
	CUDASIM_LAUNCH(unset_shared_kernel, 1, 32, 0, stream, y);
}

void
start_config(int grid, int block, cudaStream_t stream)
{
	CUDASIM_LAUNCH(double_kernel, grid, block, 0, stream, nullptr, nullptr, 0);
}

const void *
reverse_kernel_address(void)
{
	return (const void *) reverse_kernel;
}

}								/* extern "C" */
