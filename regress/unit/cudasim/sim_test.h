/*
 * sim_test.h - what the tests of the stand-in share.
 */
#ifndef PGT_TEST_SIM_TEST_H
#define PGT_TEST_SIM_TEST_H

#include <cuda_runtime_api.h>

#include "regress/cudasim/cudasim.h"
#include "regress/unit/test.h"

#define CHECK_CUDA(want, call) \
	do { \
		cudaError_t test_error_ = (call); \
		if (test_error_ != (want)) \
			test_fail(__FILE__, __LINE__, "%s gave %s, expected %s (%s)", #call, cudaGetErrorName(test_error_), #want, \
					  cudasim_message()); \
	} while (0)

#define CUDA_OK(call) CHECK_CUDA(cudaSuccess, call)

/* The last message has the words. */
#define CHECK_MESSAGE(words) \
	CHECK(strstr(cudasim_message(), words) != NULL, "the message is \"%s\"", cudasim_message())

/* A test's own world: nothing is printed, nothing is left. */
static inline void
sim_begin(void)
{
	cudasim_reset();
	cudasim_set_quiet(1);
}

#define CHECK_NOTHING_LIVE() \
	CHECK(*cudasim_live_report() == '\0', "left: %s", cudasim_live_report())

#define FOR_EACH_ORDER(order) \
	for (int order = CUDASIM_FORWARD; order <= CUDASIM_RANDOM; order++)

/* Device memory with floats in it, and back. */
static inline float *
sim_put(const float *values, int n)
{
	float	   *device = NULL;

	CUDA_OK(cudaMalloc((void **) &device, n * sizeof(float)));
	if (values != NULL)
		CUDA_OK(cudaMemcpy(device, values, n * sizeof(float), cudaMemcpyHostToDevice));
	return device;
}

static inline void
sim_get(float *values, const float *device, int n)
{
	CUDA_OK(cudaMemcpy(values, device, n * sizeof(float), cudaMemcpyDeviceToHost));
}

#endif							/* PGT_TEST_SIM_TEST_H */
