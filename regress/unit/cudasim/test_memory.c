/*
 * test_memory.c - device memory: who may touch it, where it ends, what new memory holds, and what it costs.
 */
#include <signal.h>
#include <sys/wait.h>

#include "regress/unit/cudasim/planted.h"
#include "regress/unit/cudasim/sim_test.h"

/* Runs touch in a child and returns the signal that ended it. */
static int
signal_of(void (*touch) (float *), float *device)
{
	int			status = 0;
	pid_t		child = fork();

	if (child == 0)
	{
		touch(device);
		_exit(0);
	}
	waitpid(child, &status, 0);
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void
read_it(float *device)
{
	volatile float x = device[3];

	(void) x;
}

static void
write_it(float *device)
{
	device[3] = 1;
}

TEST(the_host_cannot_touch_device_memory)
{
	float	   *x;

	sim_begin();
	x = sim_put(NULL, 1024);
	CHECK(signal_of(read_it, x) == SIGSEGV);
	CHECK(signal_of(write_it, x) == SIGSEGV);
	/* not between two pieces of work, either */
	start_double(x, x, 1024, NULL);
	CUDA_OK(cudaDeviceSynchronize());
	CHECK(signal_of(read_it, x) == SIGSEGV);
	cudasim_set_protect(0);
	CHECK(signal_of(read_it, x) == 0);
	CUDA_OK(cudaFree(x));
}

TEST(new_memory_is_nan)
{
	float		y[4];
	float	   *x;

	sim_begin();
	x = sim_put(NULL, 4);
	sim_get(y, x, 4);
	for (int i = 0; i < 4; i++)
		CHECK(isnan(y[i]));
	CUDA_OK(cudaFree(x));
	/* and so is memory that has been used before */
	x = sim_put((float[]) {1, 2, 3, 4}, 4);
	CUDA_OK(cudaFree(x));
	x = sim_put(NULL, 4);
	sim_get(y, x, 4);
	CHECK(isnan(y[0]));
}

/* 999 floats end 4 bytes before the 256-byte boundary; a page further on nothing is mapped. */
TEST(a_kernel_that_writes_beyond_its_block_is_found)
{
	static const int extra[] = {0, 1, 40, 2000};

	for (int i = 0; i < 4; i++)
	{
		float	   *x,
				   *y;

		sim_begin();
		x = sim_put(NULL, 4096);
		y = sim_put(NULL, 999);
		start_double(y, x, 999 + extra[i], NULL);
		if (extra[i] == 0)
		{
			CUDA_OK(cudaDeviceSynchronize());
			CHECK_MESSAGE("");
			continue;
		}
		CHECK_CUDA(cudaErrorIllegalAddress, cudaDeviceSynchronize());
		CHECK_MESSAGE("double_kernel");
	}
}

TEST(a_kernel_that_writes_before_its_block_is_found)
{
	float	   *x,
			   *y;

	sim_begin();
	x = sim_put(NULL, 64);
	y = sim_put(NULL, 64);
	start_double(y, x, 64, NULL);
	CUDA_OK(cudaDeviceSynchronize());
	start_double(y - 4, x, 64, NULL);
	CHECK_CUDA(cudaErrorIllegalAddress, cudaDeviceSynchronize());
}

TEST(a_copy_beyond_a_block_is_refused)
{
	float		host[65] = {0};
	float	   *x;

	sim_begin();
	x = sim_put(NULL, 64);
	CUDA_OK(cudaMemcpy(x, host, 64 * sizeof(float), cudaMemcpyHostToDevice));
	CHECK_CUDA(cudaErrorInvalidValue, cudaMemcpy(x, host, 65 * sizeof(float), cudaMemcpyHostToDevice));
	CHECK_CUDA(cudaErrorInvalidValue, cudaMemcpy(host, x + 1, 64 * sizeof(float), cudaMemcpyDeviceToHost));
	CHECK_CUDA(cudaErrorInvalidValue, cudaMemcpy(x, host, 4, cudaMemcpyDeviceToHost));
	CHECK_CUDA(cudaErrorInvalidValue, cudaMemset(x, 0, 65 * sizeof(float)));
}

TEST(freed_memory_is_gone)
{
	float	   *x,
			   *y;

	sim_begin();
	x = sim_put(NULL, 64);
	y = sim_put(NULL, 64);
	CUDA_OK(cudaFree(x));
	CHECK_CUDA(cudaErrorInvalidValue, cudaFree(x));
	CHECK_CUDA(cudaErrorInvalidValue, cudaFree(y + 1));
	CHECK_CUDA(cudaErrorInvalidValue, cudaMemset(x, 0, 4));
	start_double(y, x, 64, NULL);
	CHECK_CUDA(cudaErrorIllegalAddress, cudaDeviceSynchronize());
	CHECK_MESSAGE("argument 2 of double_kernel");
	/* from there on all is lost */
	CHECK_CUDA(cudaErrorIllegalAddress, cudaMemset(y, 0, 4));
	CHECK_CUDA(cudaErrorIllegalAddress, cudaGetLastError());
	CHECK_CUDA(cudaErrorIllegalAddress, cudaGetLastError());
}

TEST(work_that_uses_memory_runs_before_it_is_freed)
{
	float	   *x,
			   *y;
	float		out[4];

	sim_begin();
	x = sim_put((float[]) {1, 2, 3, 4}, 4);
	y = sim_put(NULL, 4);
	start_double(y, x, 4, NULL);
	CUDA_OK(cudaFree(x));
	sim_get(out, y, 4);
	CHECK(out[3] == 8);
}

TEST(a_kernel_with_host_memory_is_found)
{
	float		host[64] = {0};
	float	   *pinned,
			   *y;

	sim_begin();
	y = sim_put(NULL, 64);
	CUDA_OK(cudaMallocHost((void **) &pinned, sizeof(host)));
	start_double(y, pinned, 64, NULL);
	CUDA_OK(cudaDeviceSynchronize());
	start_double(y, host, 64, NULL);
	CHECK_CUDA(cudaErrorIllegalAddress, cudaDeviceSynchronize());
}

TEST(a_kernel_with_memory_of_another_device_is_found)
{
	float	   *x;

	sim_begin();
	cudasim_set_devices(2);
	CUDA_OK(cudaSetDevice(1));
	x = sim_put(NULL, 64);
	CUDA_OK(cudaSetDevice(0));
	start_double(x, x, 64, NULL);
	CHECK_CUDA(cudaErrorIllegalAddress, cudaDeviceSynchronize());
	/* the other device goes on */
	CUDA_OK(cudaSetDevice(1));
	start_double(x, x, 64, NULL);
	CUDA_OK(cudaDeviceSynchronize());
	CHECK_CUDA(cudaErrorInvalidDevice, cudaSetDevice(2));
}

TEST(memory_runs_out_where_the_setting_says)
{
	size_t		available,
				total;
	void	   *a,
			   *b;

	sim_begin();
	cudasim_set_memory(1 << 20);
	CUDA_OK(cudaMalloc(&a, 700000));
	CHECK_CUDA(cudaErrorMemoryAllocation, cudaMalloc(&b, 700000));
	CHECK(b == NULL);
	CUDA_OK(cudaMemGetInfo(&available, &total));
	CHECK(total == 1 << 20 && available == (1 << 20) - 700000);
	CHECK_CUDA(cudaErrorMemoryAllocation, cudaMalloc(&b, (size_t) -1));
	CUDA_OK(cudaFree(a));
	CUDA_OK(cudaMalloc(&b, 700000));
	CUDA_OK(cudaFree(b));
	CHECK(cudasim_peak_bytes() == 700000);
	CHECK_NOTHING_LIVE();
}

TEST(a_reset_brings_a_lost_device_back_without_its_memory)
{
	float	   *x;

	sim_begin();
	x = sim_put(NULL, 64);
	cudasim_fail_call(1, cudaErrorIllegalAddress, 1);
	CHECK_CUDA(cudaErrorIllegalAddress, cudaMemset(x, 0, 4));
	CHECK_CUDA(cudaErrorIllegalAddress, cudaMemset(x, 0, 4));
	CUDA_OK(cudaDeviceReset());
	CHECK_NOTHING_LIVE();
	cudaGetLastError();
	CHECK_CUDA(cudaErrorInvalidValue, cudaMemset(x, 0, 4));
	x = sim_put(NULL, 64);
	CUDA_OK(cudaMemset(x, 0, 4));
	CUDA_OK(cudaFree(x));
}

TEST(registered_memory_is_pinned_until_it_is_not)
{
	char	   *page = aligned_alloc(4096, 8192);

	sim_begin();
	CUDA_OK(cudaHostRegister(page, 8192, cudaHostRegisterDefault));
	CHECK_CUDA(cudaErrorHostMemoryAlreadyRegistered, cudaHostRegister(page, 4096, cudaHostRegisterDefault));
	CHECK(cudasim_live(CUDASIM_REGISTRATION) == 1);
	CUDA_OK(cudaHostUnregister(page));
	CHECK_CUDA(cudaErrorHostMemoryNotRegistered, cudaHostUnregister(page));
	CHECK_NOTHING_LIVE();
	free(page);
}

TEST(the_kth_allocation_fails)
{
	void	   *p[4] = {0};
	int			n = 0;

	sim_begin();
	cudasim_fail_allocation(3);
	for (int i = 0; i < 4; i++)
		if (cudaMalloc(&p[i], 64) == cudaSuccess)
			n++;
		else
			CHECK(i == 2 && p[i] == NULL);
	CHECK(n == 3);
	CHECK(cudasim_fault_hit() != NULL && strcmp(cudasim_fault_hit(), "cudaMalloc") == 0);
	CHECK_CUDA(cudaErrorMemoryAllocation, cudaGetLastError());
	for (int i = 0; i < 4; i++)
		CUDA_OK(cudaFree(p[i]));
	CHECK_NOTHING_LIVE();
}

TEST(the_kth_call_fails_and_a_release_still_releases)
{
	void	   *p;

	sim_begin();
	CUDA_OK(cudaMalloc(&p, 64));
	cudasim_fail_call(2, cudaErrorECCUncorrectable, 0);
	CUDA_OK(cudaMemset(p, 0, 64));
	CHECK_CUDA(cudaErrorECCUncorrectable, cudaFree(p));
	CHECK_NOTHING_LIVE();
	CUDA_OK(cudaMalloc(&p, 64));
	cudasim_fail_call(1, cudaErrorECCUncorrectable, 1);
	CHECK_CUDA(cudaErrorECCUncorrectable, cudaMemset(p, 0, 64));
	CHECK_CUDA(cudaErrorECCUncorrectable, cudaMemset(p, 0, 64));
	CHECK_CUDA(cudaErrorECCUncorrectable, cudaFree(p));
	CHECK_NOTHING_LIVE();
}

TEST(a_machine_without_a_device_says_so)
{
	int			count = -1;

	sim_begin();
	cudasim_set_devices(0);
	CHECK_CUDA(cudaErrorNoDevice, cudaGetDeviceCount(&count));
	CHECK(count == 0);
	CHECK_CUDA(cudaErrorNoDevice, cudaSetDevice(0));
}

TEST(a_device_looks_like_an_h200)
{
	struct cudaDeviceProp p;
	int			value;

	sim_begin();
	CUDA_OK(cudaGetDeviceProperties(&p, 0));
	CHECK(p.major == 9 && p.minor == 0 && p.multiProcessorCount == 132 && p.warpSize == 32);
	CUDA_OK(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 0));
	CHECK(value == 9);
	cudasim_set_capability(8, 0);
	CUDA_OK(cudaGetDeviceProperties(&p, 0));
	CHECK(p.major == 8);
	CHECK_CUDA(cudaErrorInvalidDevice, cudaGetDeviceProperties(&p, 1));
}
