/*
 * shuffle.c - random permutations over Philox.
 *
 * The shuffle of Fisher and Yates touches memory at random, which costs a cache miss a number where the numbers are
 * many.  So large arrays are first dealt to buckets at random, then every bucket, which fits in a cache, is shuffled:
 * C. R. Rao (1961) and M. Sandelius (1962) showed that this, too, makes all orders equally likely.
 */
#include "engine/shuffle.h"

#include <string.h>

#include "kernels/philox.h"

#define BUCKETS 256
#define DIRECT_NUMBERS 32768	/* up to so many, a single bucket does */
#define DEAL_BLOCK ((uint64_t) 1 << 40) /* where the numbers that deal start, apart from those that shuffle */

typedef struct Words
{
	uint64_t	seed,
				stream,
				block;
	uint32_t	word[4];
	int			used;
} Words;

static inline uint32_t
next_word(Words *w)
{
	if (w->used == 4)
	{
		philox_block(w->seed, w->stream, w->block++, w->word);
		w->used = 0;
	}
	return w->word[w->used++];
}

/* Uniform in [0, n), without modulo bias: Lemire, "Fast random integer generation in an interval" (2019). */
static inline uint32_t
below(Words *w, uint32_t n)
{
	uint64_t	product = (uint64_t) next_word(w) * n;

	if ((uint32_t) product < n)
	{
		uint32_t	threshold = -n % n;

		while ((uint32_t) product < threshold)
			product = (uint64_t) next_word(w) * n;
	}
	return (uint32_t) (product >> 32);
}

static void
fisher_yates(uint32_t *index, size_t n, Words *w)
{
	size_t		i;

	for (i = n; i > 1; i--)
	{
		uint32_t	j = below(w, (uint32_t) i),
					swap = index[i - 1];

		index[i - 1] = index[j];
		index[j] = swap;
	}
}

/* The buckets of numbers 16 block to 16 block + 15. */
static inline void
deal(uint64_t seed, uint64_t stream, size_t block, uint8_t bucket[16])
{
	uint32_t	word[4];

	philox_block(seed, stream, DEAL_BLOCK + block, word);
	memcpy(bucket, word, sizeof(word));
}

void
shuffle(const uint32_t *from, uint32_t *to, size_t n, uint64_t seed, uint64_t stream)
{
	Words		w = {.seed = seed,.stream = stream,.used = 4};
	size_t		start[BUCKETS + 1] = {0},
				next[BUCKETS];
	uint8_t		bucket[16];
	size_t		i;

	if (n <= DIRECT_NUMBERS)
	{
		for (i = 0; i < n; i++)
			to[i] = from != NULL ? from[i] : (uint32_t) i;
		fisher_yates(to, n, &w);
		return;
	}
	for (i = 0; i < n; i++)
	{
		if (i % 16 == 0)
			deal(seed, stream, i / 16, bucket);
		start[bucket[i % 16] + 1]++;
	}
	for (i = 0; i < BUCKETS; i++)
	{
		next[i] = start[i];
		start[i + 1] += start[i];
	}
	for (i = 0; i < n; i++)
	{
		if (i % 16 == 0)
			deal(seed, stream, i / 16, bucket);
		to[next[bucket[i % 16]]++] = from != NULL ? from[i] : (uint32_t) i;
	}
	for (i = 0; i < BUCKETS; i++)
		fisher_yates(to + start[i], start[i + 1] - start[i], &w);
}
