/*
 * shuffle.h - uniformly random permutations from a seed.
 */
#ifndef PGT_SHUFFLE_H
#define PGT_SHUFFLE_H

#include <stddef.h>
#include <stdint.h>

/*
 * to[n] becomes the numbers of from[n] in random order, every one of the orders equally likely.  from = NULL: the
 * numbers 0 to n - 1.  n < 2^32; the arrays do not overlap.
 */
extern void shuffle(const uint32_t *from, uint32_t *to, size_t n, uint64_t seed, uint64_t stream);

#endif							/* PGT_SHUFFLE_H */
