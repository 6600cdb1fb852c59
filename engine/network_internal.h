/*
 * network_internal.h - places in a network's arenas, for network.c and backward.c.
 */
#ifndef PGT_NETWORK_INTERNAL_H
#define PGT_NETWORK_INTERNAL_H

#include "engine/network.h"

static inline void *
buffer_at(const Network *net, int32_t buffer)
{
	return buffer == NO_BUFFER ? NULL : net->activations + net->program.buffers[buffer].offset;
}

static inline float *
parameter_at(const Network *net, int32_t tensor)
{
	return net->parameters + net->tensors.tensors[tensor].offset;
}

static inline float *
gradient_at(const Network *net, int32_t tensor)
{
	return net->gradients + net->tensors.tensors[tensor].offset;
}

static inline float *
statistic_at(const Network *net, int32_t tensor)
{
	return net->statistics + net->tensors.tensors[tensor].offset;
}

/* The weight that a matrix product or convolution reads: the shadow in low precision. */
static inline const void *
weight_at(const Network *net, int32_t tensor)
{
	if (net->shadow != NULL)
		return (const uint16_t *) net->shadow + net->tensors.tensors[tensor].offset;
	return parameter_at(net, tensor);
}

#endif							/* PGT_NETWORK_INTERNAL_H */
