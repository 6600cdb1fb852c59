/*
 * test_kernels.c - kernels: indices, meetings of threads, and bugs that only an order of threads brings out.
 */
#include "regress/unit/cudasim/planted.h"
#include "regress/unit/cudasim/sim_test.h"

#define N 256

static void
ramp(float *x, int n)
{
	for (int i = 0; i < n; i++)
		x[i] = (float) (i % 17) - 3;
}

static float
total(const float *x, int n)
{
	float		sum = 0;

	for (int i = 0; i < n; i++)
		sum += x[i];
	return sum;
}

TEST(every_thread_of_every_block_runs_once)
{
	FOR_EACH_ORDER(order)
	{
		int			y[720],
				   *dev;

		sim_begin();
		cudasim_set_order(order, 5);
		CUDA_OK(cudaMalloc((void **) &dev, sizeof(y)));
		start_indices(dev, NULL);
		CUDA_OK(cudaMemcpy(y, dev, sizeof(y), cudaMemcpyDeviceToHost));
		for (int i = 0; i < 720; i++)
			CHECK(y[i] == i, "order %d: y[%d] is %d", order, i, y[i]);
		CUDA_OK(cudaFree(dev));
		CHECK(cudasim_kernels() == 1);
		CHECK_NOTHING_LIVE();
	}
}

TEST(threads_of_a_block_meet_at_barriers_and_in_shuffles)
{
	FOR_EACH_ORDER(order)
	{
		float		x[4 * N],
					sums[4];
		float	   *dev_x,
				   *dev_sums;

		sim_begin();
		cudasim_set_order(order, 7);
		ramp(x, 4 * N);
		dev_x = sim_put(x, 4 * N);
		dev_sums = sim_put(NULL, 4);
		start_row_sums(dev_sums, dev_x, 4, NULL);
		sim_get(sums, dev_sums, 4);
		for (int i = 0; i < 4; i++)
			CHECK(sums[i] == total(x + i * N, N), "order %d: %g", order, sums[i]);
		start_block_sum(dev_sums, dev_x, N, 1, NULL);
		sim_get(sums, dev_sums, 1);
		CHECK(sums[0] == total(x, N), "order %d: %g", order, sums[0]);
	}
}

TEST(a_missing_barrier_gives_a_wrong_sum_in_some_order)
{
	int			wrong = 0;

	FOR_EACH_ORDER(order)
	{
		float		x[N],
					sum = 0;
		float	   *dev_x,
				   *dev_sum;

		sim_begin();
		cudasim_set_order(order, 7);
		ramp(x, N);
		dev_x = sim_put(x, N);
		dev_sum = sim_put(NULL, 1);
		start_block_sum(dev_sum, dev_x, N, 0, NULL);
		sim_get(&sum, dev_sum, 1);
		wrong += sum != total(x, N);
	}
	CHECK(wrong >= 2, "%d of 3 orders gave a wrong sum", wrong);
}

TEST(ballots_and_votes_see_all_lanes)
{
	unsigned	y[2],
			   *dev;

	sim_begin();
	CUDA_OK(cudaMalloc((void **) &dev, sizeof(y)));
	start_ballot(dev, 64, NULL);
	CUDA_OK(cudaMemcpy(y, dev, sizeof(y), cudaMemcpyDeviceToHost));
	CHECK(y[0] == (0xaa | 1 << 9), "%x", y[0]);
	CHECK(y[1] == (0xaa | 1 << 8 | 1 << 9), "%x", y[1]);
}

TEST(atomics_lose_nothing)
{
	uint32_t	x[1000];
	unsigned	counts[4],
				want[4] = {0},
			   *dev_counts;
	uint32_t   *dev_x;

	sim_begin();
	cudasim_set_order(CUDASIM_RANDOM, 3);
	for (int i = 0; i < 1000; i++)
	{
		x[i] = (uint32_t) i * 2654435761u >> 7;
		want[x[i] & 3]++;
	}
	CUDA_OK(cudaMalloc((void **) &dev_x, sizeof(x)));
	CUDA_OK(cudaMalloc((void **) &dev_counts, sizeof(counts)));
	CUDA_OK(cudaMemcpy(dev_x, x, sizeof(x), cudaMemcpyHostToDevice));
	CUDA_OK(cudaMemset(dev_counts, 0, sizeof(counts)));
	start_histogram(dev_counts, dev_x, 1000, NULL);
	CUDA_OK(cudaMemcpy(counts, dev_counts, sizeof(counts), cudaMemcpyDeviceToHost));
	CHECK(memcmp(counts, want, sizeof(want)) == 0);
}

/* Runs a kernel that has to fail, and returns what the device says. */
#define CHECK_LAUNCH_FAILS(error, words, start) \
	do { \
		float	   *y; \
		sim_begin(); \
		y = sim_put(NULL, 64); \
		start; \
		CHECK_CUDA(error, cudaDeviceSynchronize()); \
		CHECK_MESSAGE(words); \
	} while (0)

#define CHECK_LAUNCH_WORKS(start) \
	do { \
		float	   *y; \
		sim_begin(); \
		y = sim_put(NULL, 64); \
		start; \
		CUDA_OK(cudaDeviceSynchronize()); \
		CHECK_MESSAGE(""); \
		CUDA_OK(cudaFree(y)); \
	} while (0)

TEST(a_shuffle_in_a_divergent_branch_is_an_error)
{
	CHECK_LAUNCH_FAILS(cudaErrorLaunchFailure, "names lanes that ended", start_shuffle(y, 1, NULL));
	CHECK_LAUNCH_WORKS(start_shuffle(y, 0, NULL));
}

TEST(a_shuffle_from_a_lane_outside_of_its_mask_is_an_error)
{
	CHECK_LAUNCH_FAILS(cudaErrorLaunchFailure, "does not take part", start_shuffle_from_outside(y, NULL));
}

TEST(a_barrier_that_some_threads_do_not_reach_is_an_error)
{
	CHECK_LAUNCH_FAILS(cudaErrorLaunchFailure, "not reached by all", start_barrier(y, 64, 50, NULL));
	CHECK_LAUNCH_WORKS(start_barrier(y, 64, 64, NULL));
}

TEST(barriers_in_two_branches_are_an_error)
{
	CHECK_LAUNCH_FAILS(cudaErrorLaunchFailure, "in different places", start_two_barriers(y, NULL));
}

TEST(shared_memory_that_nobody_wrote_is_nan)
{
	float		y[32];
	float	   *dev;

	sim_begin();
	dev = sim_put(NULL, 32);
	start_unset_shared(dev, NULL);
	sim_get(y, dev, 32);
	CHECK(y[15] == 1 && isnan(y[16]));
}

TEST(dynamic_shared_memory_ends_where_the_launch_says)
{
	float		x[300],
				y[300];
	float	   *dev_x,
			   *dev_y;

	sim_begin();
	ramp(x, 300);
	dev_x = sim_put(x, 300);
	dev_y = sim_put(NULL, 300);
	start_reverse(dev_y, dev_x, 300, 300 * sizeof(float), NULL);
	sim_get(y, dev_y, 300);
	CHECK(y[0] == x[299] && y[299] == x[0]);
	start_reverse(dev_y, dev_x, 300, 200 * sizeof(float), NULL);
	CHECK_CUDA(cudaErrorIllegalAddress, cudaDeviceSynchronize());
}

TEST(much_dynamic_shared_memory_has_to_be_asked_for)
{
	float	   *x;

	sim_begin();
	x = sim_put(NULL, 128);
	start_reverse(x + 64, x, 64, 60000, NULL);
	CHECK_CUDA(cudaErrorInvalidValue, cudaGetLastError());
	CUDA_OK(cudaFuncSetAttribute(reverse_kernel_address(), cudaFuncAttributeMaxDynamicSharedMemorySize, 60000));
	start_reverse(x + 64, x, 64, 60000, NULL);
	CUDA_OK(cudaGetLastError());
	CHECK_CUDA(cudaErrorInvalidValue,
			   cudaFuncSetAttribute(reverse_kernel_address(), cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 20));
}

TEST(a_grid_or_block_that_no_device_takes_is_an_error)
{
	sim_begin();
	start_config(0, 32, NULL);
	CHECK_CUDA(cudaErrorInvalidConfiguration, cudaGetLastError());
	start_config(1, 1025, NULL);
	CHECK_CUDA(cudaErrorInvalidConfiguration, cudaGetLastError());
	CUDA_OK(cudaGetLastError());
	start_config(1, 1024, NULL);
	CUDA_OK(cudaDeviceSynchronize());
}
