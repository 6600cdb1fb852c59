/*
 * philox.h - Philox4x32-10, the counter-based random numbers of Salmon et al., "Parallel random numbers:
 * as easy as 1, 2, 3" (SC 2011).
 *
 * A number is a pure function of (seed, stream, index), so every device and every thread count draws the
 * same ones.  The key is the seed, the counter is (index / 4, stream), and word index % 4 of the block is
 * the number.  Streams are the caller's to assign; they never overlap.
 */
#ifndef PGT_PHILOX_H
#define PGT_PHILOX_H

#include <stdint.h>

#if defined(__CUDACC__)
#define PGT_INLINE static __host__ __device__ __forceinline__
#elif defined(__GNUC__)
#define PGT_INLINE static inline __attribute__((always_inline, unused))
#else
#define PGT_INLINE static inline
#endif

#define PHILOX_ROUNDS 10
#define PHILOX_M0 0xD2511F53u
#define PHILOX_M1 0xCD9E8D57u
#define PHILOX_W0 0x9E3779B9u
#define PHILOX_W1 0xBB67AE85u

/* The four words of block (seed, stream, block), in place of the counter. */
PGT_INLINE void
philox_block(uint64_t seed, uint64_t stream, uint64_t block, uint32_t out[4])
{
	uint32_t	c0 = (uint32_t) block,
				c1 = (uint32_t) (block >> 32),
				c2 = (uint32_t) stream,
				c3 = (uint32_t) (stream >> 32),
				k0 = (uint32_t) seed,
				k1 = (uint32_t) (seed >> 32);
	int			round;

	for (round = 0; round < PHILOX_ROUNDS; round++)
	{
		uint64_t	p0 = (uint64_t) PHILOX_M0 * c0,
					p1 = (uint64_t) PHILOX_M1 * c2;

		c0 = (uint32_t) (p1 >> 32) ^ c1 ^ k0;
		c1 = (uint32_t) p1;
		c2 = (uint32_t) (p0 >> 32) ^ c3 ^ k1;
		c3 = (uint32_t) p0;
		k0 += PHILOX_W0;
		k1 += PHILOX_W1;
	}
	out[0] = c0;
	out[1] = c1;
	out[2] = c2;
	out[3] = c3;
}

/* The index-th word under (seed, stream). */
PGT_INLINE uint32_t
philox_word(uint64_t seed, uint64_t stream, uint64_t index)
{
	uint32_t	out[4];

	philox_block(seed, stream, index / 4, out);
	return out[index % 4];
}

/* A word as a uniform number in [0, 1), of 24 bits so that it never rounds up to 1. */
PGT_INLINE float
philox_uniform(uint32_t word)
{
	return (float) (word >> 8) * (1.0f / 16777216.0f);
}

/* Dropout keeps an element whose word is not below this: with probability 1 - p, 0 <= p < 1. */
PGT_INLINE uint32_t
philox_threshold(float p)
{
	double		t = (double) p * 4294967296.0;

	return t >= 4294967295.0 ? 4294967295u : (uint32_t) t;
}

#endif							/* PGT_PHILOX_H */
