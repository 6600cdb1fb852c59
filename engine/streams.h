/*
 * streams.h - which Philox stream serves what, so that no two purposes draw the same numbers from one seed.
 */
#ifndef PGT_STREAMS_H
#define PGT_STREAMS_H

#include <stdint.h>

#define STREAM_INIT(tensor) (((uint64_t) 1 << 56) | (uint64_t) (tensor))
#define STREAM_SPLIT ((uint64_t) 2 << 56)
#define STREAM_SHUFFLE(epoch) (((uint64_t) 3 << 56) | (uint64_t) (epoch))
/* a dropout layer's mask in one micro-batch of the run; layers are fewer than 2^10 */
#define STREAM_DROPOUT(micro_batch, layer) \
	(((uint64_t) 4 << 56) | ((uint64_t) (micro_batch) << 10) | (uint64_t) (layer))

#endif							/* PGT_STREAMS_H */
