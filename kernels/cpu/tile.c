/*
 * tile.c - the register tile.  Compiled once per instruction set.
 */
#include "kernels/cpu/tile.h"

/* Over rows and vectors of a tile, so that its sums live in registers. */
#define UNROLL _Pragma("GCC unroll 12")

ALWAYS_INLINE void
finish_row(const float *sum, const TileOutput *out, const Activation act, void *c, const DType dtype)
{
	float		row[TILE_COLUMNS];
	size_t		j;

	for (j = 0; j < TILE_COLUMNS; j++)
		row[j] = sum[j];
	if (out->bias != NULL)
		for (j = 0; j < out->columns; j++)
			row[j] += out->bias[j];
	if (out->beta != 0.0f)
		for (j = 0; j < out->columns; j++)
			row[j] += out->beta * load(c, j, dtype);
	for (j = 0; j < TILE_COLUMNS; j++)
		row[j] = math_act(act, row[j]);
	for (j = 0; j < out->columns; j++)
		store(c, j, row[j], dtype);
}

/* The general way out of the registers: any type, activation and number of columns. */
static __attribute__((noinline)) void
finish_tile(const float *sums, size_t rows, const TileOutput *out)
{
	size_t		r;

	for (r = 0; r < rows; r++)
	{
		const float *sum = sums + r * TILE_COLUMNS;
		void	   *c = element(out->c, out->dtype, r * out->c_row);

		switch (out->act)
		{
			case ACT_NONE:
				DTYPE_SWITCH(out->dtype, D, finish_row(sum, out, ACT_NONE, c, D));
				break;
			case ACT_RELU:
				DTYPE_SWITCH(out->dtype, D, finish_row(sum, out, ACT_RELU, c, D));
				break;
			case ACT_GELU:
				DTYPE_SWITCH(out->dtype, D, finish_row(sum, out, ACT_GELU, c, D));
				break;
			case ACT_TANH:
				DTYPE_SWITCH(out->dtype, D, finish_row(sum, out, ACT_TANH, c, D));
				break;
			case ACT_SIGMOID:
				DTYPE_SWITCH(out->dtype, D, finish_row(sum, out, ACT_SIGMOID, c, D));
				break;
		}
	}
}

ALWAYS_INLINE void
tile(const TileInput *in, const TileOutput *out, const int rows, const int vectors)
{
	Vector		sum[TILE_ROWS][TILE_VECTORS];
	const float *a = in->a,
			   *b = in->b;
	const ptrdiff_t a_row = in->a_row,
				a_step = in->a_step,
				b_step = in->b_step;
	size_t		segment,
				step;
	int			r,
				v;

	UNROLL for (r = 0; r < rows; r++)
		UNROLL for (v = 0; v < vectors; v++)
			sum[r][v] = vector_set(0);
	for (segment = 0; segment < in->segments; segment++)
	{
		const float *ap = a,
				   *bp = b;

		for (step = in->steps; step > 0; step--)
		{
			Vector		bv[TILE_VECTORS];

			UNROLL for (v = 0; v < vectors; v++)
				bv[v] = vector_load(bp + v * VECTOR_FLOATS);
			UNROLL for (r = 0; r < rows; r++)
			{
				Vector		av = vector_set(ap[r * a_row]);

				UNROLL for (v = 0; v < vectors; v++)
					sum[r][v] += av * bv[v];
			}
			ap += a_step;
			bp += b_step;
		}
		a += in->a_segment;
		b += in->b_segment;
	}
	if (out->dtype == DTYPE_F32 && out->act <= ACT_RELU
		&& out->columns == (size_t) vectors * VECTOR_FLOATS)
	{
		float	   *c = out->c;

		if (out->bias != NULL)
		{
			Vector		bias[TILE_VECTORS];

			UNROLL for (v = 0; v < vectors; v++)
				bias[v] = vector_load(out->bias + v * VECTOR_FLOATS);
			UNROLL for (r = 0; r < rows; r++)
				UNROLL for (v = 0; v < vectors; v++)
					sum[r][v] += bias[v];
		}
		if (out->beta != 0.0f)
		{
			Vector		beta = vector_set(out->beta);

			UNROLL for (r = 0; r < rows; r++)
				UNROLL for (v = 0; v < vectors; v++)
					sum[r][v] += beta * vector_load(c + (size_t) r * out->c_row + v * VECTOR_FLOATS);
		}
		if (out->act == ACT_RELU)
			UNROLL for (r = 0; r < rows; r++)
				UNROLL for (v = 0; v < vectors; v++)
					sum[r][v] = vector_relu(sum[r][v]);
		UNROLL for (r = 0; r < rows; r++)
			UNROLL for (v = 0; v < vectors; v++)
				vector_store(c + (size_t) r * out->c_row + v * VECTOR_FLOATS, sum[r][v]);
	}
	else
	{
		float		sums[TILE_ROWS * TILE_COLUMNS] __attribute__((aligned(64)));

		UNROLL for (r = 0; r < rows; r++)
			UNROLL for (v = 0; v < TILE_VECTORS; v++)
				vector_store(sums + r * TILE_COLUMNS + v * VECTOR_FLOATS, v < vectors ? sum[r][v] : vector_set(0));
		finish_tile(sums, (size_t) rows, out);
	}
}

#define TILE(rows) \
	static void tile_##rows##_1(const TileInput *in, const TileOutput *out) { tile(in, out, rows, 1); } \
	static void tile_##rows##_2(const TileInput *in, const TileOutput *out) { tile(in, out, rows, 2); }

TILE(1)
TILE(2)
TILE(3)
TILE(4)
TILE(5)
TILE(6)
#if TILE_ROWS == 12
TILE(7)
TILE(8)
TILE(9)
TILE(10)
TILE(11)
TILE(12)
#endif

#define TILES(rows) {tile_##rows##_1, tile_##rows##_2}

const TileKernel tile_kernels[TILE_ROWS][TILE_VECTORS] = {
	TILES(1), TILES(2), TILES(3), TILES(4), TILES(5), TILES(6),
#if TILE_ROWS == 12
	TILES(7), TILES(8), TILES(9), TILES(10), TILES(11), TILES(12),
#endif
};
