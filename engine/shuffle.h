/*
 * shuffle.h - uniformly random permutations from a seed.
 */
#ifndef PGT_SHUFFLE_H
#define PGT_SHUFFLE_H

#include <stddef.h>
#include <stdint.h>

/* Shuffle index[n] in place, n < 2^32: Fisher and Yates, every permutation equally likely. */
extern void shuffle(uint32_t *index, size_t n, uint64_t seed, uint64_t stream);

#endif							/* PGT_SHUFFLE_H */
