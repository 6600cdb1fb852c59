/*
 * shuffle.c - Fisher-Yates over Philox.
 */
#include "engine/shuffle.h"

#include "kernels/philox.h"

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

void
shuffle(uint32_t *index, size_t n, uint64_t seed, uint64_t stream)
{
	Words		w = {.seed = seed, .stream = stream, .used = 4};
	size_t		i;

	for (i = n; i > 1; i--)
	{
		uint32_t	j = below(&w, (uint32_t) i),
					swap = index[i - 1];

		index[i - 1] = index[j];
		index[j] = swap;
	}
}
