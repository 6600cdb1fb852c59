/*
 * tile.h - the register tile at the bottom of every matrix product and convolution.
 *
 * A tile is up to TILE_ROWS x TILE_COLUMNS of c = a b, held in registers while the sum runs over
 * segments x steps.  Element r of a at a step is a[r * a_row], b's TILE_COLUMNS floats are contiguous;
 * both pointers move by a stride a step, and by another from segment to segment, which is how a
 * convolution walks rows of an image without copying it.  b may be read up to TILE_COLUMNS (or one
 * vector, for a tile of one vector) beyond its first float, a only at the rows of the tile.
 */
#ifndef PGT_CPU_TILE_H
#define PGT_CPU_TILE_H

#include "kernels/cpu/simd.h"

#if defined(__AVX512F__)
#define TILE_ROWS 12
#else
#define TILE_ROWS 6
#endif
#define TILE_VECTORS 2
#define TILE_COLUMNS (TILE_VECTORS * VECTOR_FLOATS)

typedef struct TileInput
{
	const float *a;
	const float *b;
	size_t		segments;
	size_t		steps;			/* of a segment */
	ptrdiff_t	a_row,			/* strides, in floats */
				a_step,
				a_segment,
				b_step,
				b_segment;
} TileInput;

typedef struct TileOutput
{
	void	   *c;
	size_t		c_row;			/* elements from row to row */
	size_t		columns;		/* that exist, up to TILE_COLUMNS */
	DType		dtype;
	float		beta;			/* of c's old content; c is fp32 where it is not 0 */
	const float *bias;			/* (columns) or NULL */
	Activation	act;
} TileOutput;

/* Vectors that a tile of this many columns takes. */
ALWAYS_INLINE int
tile_vectors(size_t columns)
{
	return columns > VECTOR_FLOATS ? 2 : 1;
}

typedef void (*TileKernel) (const TileInput *in, const TileOutput *out);

#define tile_kernels ISA_NAME(tile_kernels)

/* [rows - 1][vectors - 1] */
extern const TileKernel tile_kernels[TILE_ROWS][TILE_VECTORS];

ALWAYS_INLINE void
tile_run(size_t rows, const TileInput *in, const TileOutput *out)
{
	tile_kernels[rows - 1][tile_vectors(out->columns) - 1] (in, out);
}

#endif							/* PGT_CPU_TILE_H */
