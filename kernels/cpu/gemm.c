/*
 * gemm.c - matrix products: blocking, packing and threads around the register tile.  Compiled once per
 * instruction set.
 *
 * The scheme is Goto's: a panel of b stays in the first-level cache while tiles of rows of a pass over it, a
 * block of a stays in the second.  a is read where it lies when its rows are contiguous.  Each thread owns a
 * rectangle of c and runs over all of k, so a result does not depend on the number of threads.
 */
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/ops.h"

/* Steps of k in a block, rows of a in a block, columns of b in a block. */
#define BLOCK_K 320
#define BLOCK_M 192
#define BLOCK_N 1024

/* Operations in a nanosecond of one thread, for the choice of the number of threads. */
#if VECTOR_FLOATS == 16
#define FLOPS_PER_NS 60.0
#elif VECTOR_FLOATS == 8
#define FLOPS_PER_NS 40.0
#else
#define FLOPS_PER_NS 10.0
#endif

ALWAYS_INLINE void
transpose_quads(const float *from, size_t from_row, float *to)
{
	Quad		a = *(const QuadMemory *) from,
				b = *(const QuadMemory *) (from + from_row),
				c = *(const QuadMemory *) (from + 2 * from_row),
				d = *(const QuadMemory *) (from + 3 * from_row);
	Quad		ab_low = PGT_SHUFFLE(a, b, 0, 4, 1, 5),
				ab_high = PGT_SHUFFLE(a, b, 2, 6, 3, 7),
				cd_low = PGT_SHUFFLE(c, d, 0, 4, 1, 5),
				cd_high = PGT_SHUFFLE(c, d, 2, 6, 3, 7);

	*(QuadMemory *) to = PGT_SHUFFLE(ab_low, cd_low, 0, 1, 4, 5);
	*(QuadMemory *) (to + TILE_COLUMNS) = PGT_SHUFFLE(ab_low, cd_low, 2, 3, 6, 7);
	*(QuadMemory *) (to + 2 * TILE_COLUMNS) = PGT_SHUFFLE(ab_high, cd_high, 0, 1, 4, 5);
	*(QuadMemory *) (to + 3 * TILE_COLUMNS) = PGT_SHUFFLE(ab_high, cd_high, 2, 3, 6, 7);
}

/* A panel whose source is contiguous along k. */
static void
pack_panel_transposed(const float *from, size_t column, size_t k, size_t columns, float *to)
{
	size_t		p,
				j;

	for (j = 0; j + 4 <= columns; j += 4)
	{
		const float *source = from + j * column;
		float	   *target = to + j;

		for (p = 0; p + 4 <= k; p += 4)
			transpose_quads(source + p, column, target + p * TILE_COLUMNS);
		for (; p < k; p++)
		{
			target[p * TILE_COLUMNS] = source[p];
			target[p * TILE_COLUMNS + 1] = source[column + p];
			target[p * TILE_COLUMNS + 2] = source[2 * column + p];
			target[p * TILE_COLUMNS + 3] = source[3 * column + p];
		}
	}
	for (; j < TILE_COLUMNS; j++)
		for (p = 0; p < k; p++)
			to[p * TILE_COLUMNS + j] = j < columns ? from[j * column + p] : 0.0f;
}

/* A panel whose source is contiguous along the columns. */
ALWAYS_INLINE void
pack_panel_rows(const void *from, size_t first, size_t row, size_t k, size_t columns, float *to,
				const DType dtype)
{
	size_t		p,
				j;

	for (p = 0; p < k; p++)
	{
		if (columns == TILE_COLUMNS)
			for (j = 0; j < TILE_COLUMNS; j++)
				to[j] = load(from, first + j, dtype);
		else
			for (j = 0; j < TILE_COLUMNS; j++)
				to[j] = j < columns ? load(from, first + j, dtype) : 0.0f;
		first += row;
		to += TILE_COLUMNS;
	}
}

/* A panel of a low-precision matrix whose source is contiguous along k. */
ALWAYS_INLINE void
pack_panel_columns(const void *from, size_t first, size_t column, size_t k, size_t columns, float *to,
				   const DType dtype)
{
	size_t		p,
				j;

	for (j = 0; j < TILE_COLUMNS; j++)
		for (p = 0; p < k; p++)
			to[p * TILE_COLUMNS + j] = j < columns ? load(from, first + j * column + p, dtype) : 0.0f;
}

void
gemm_pack_b(const Matrix *b, size_t p, size_t k, size_t j, size_t n, float *packed)
{
	size_t		done;

	for (done = 0; done < n; done += TILE_COLUMNS)
	{
		size_t		columns = min_size(TILE_COLUMNS, n - done),
					first = p * b->row + (j + done) * b->column;

		if (b->column == 1)
			DTYPE_SWITCH(b->dtype, D, pack_panel_rows(b->data, first, b->row, k, columns, packed, D));
		else if (b->dtype == DTYPE_F32)
			pack_panel_transposed((const float *) b->data + first, b->column, k, columns, packed);
		else
			DTYPE_SWITCH(b->dtype, D, pack_panel_columns(b->data, first, b->column, k, columns, packed, D));
		packed += k * TILE_COLUMNS;
	}
}

/* Rows [i, i + rows) of a from column p on, as the tile wants them. */
typedef struct ViewA
{
	const float *data;
	ptrdiff_t	row,
				step;
} ViewA;

/* (k, rows): the source is contiguous along the rows */
ALWAYS_INLINE void
pack_a_columns(const void *from, size_t first, size_t column, size_t k, size_t rows, float *to,
			   const DType dtype)
{
	size_t		p,
				r;

	for (p = 0; p < k; p++)
	{
		if (rows == TILE_ROWS)
			for (r = 0; r < TILE_ROWS; r++)
				to[r] = load(from, first + r, dtype);
		else
			for (r = 0; r < rows; r++)
				to[r] = load(from, first + r, dtype);
		first += column;
		to += rows;
	}
}

/* (rows, k): low precision converted */
ALWAYS_INLINE void
pack_a_rows(const void *from, size_t first, size_t row, size_t k, size_t rows, float *to, const DType dtype)
{
	size_t		p,
				r;

	for (r = 0; r < rows; r++)
		for (p = 0; p < k; p++)
			to[r * k + p] = load(from, first + r * row + p, dtype);
}

/* One product, as its threads share it. */
typedef struct Gemm
{
	size_t		m,
				n,
				k;
	Matrix		a,
				b;
	TileOutput	out;
	size_t		block_k;
	int			direct_a,
				direct_b;
	int			threads_m,
				threads_n;
	float	   *packed_a;		/* (threads, BLOCK_M, block_k) */
	float	   *packed_b;		/* (threads, BLOCK_N, block_k) */
} Gemm;

static ViewA
view_a(const Gemm *g, size_t p, size_t k, size_t i, size_t rows, float *packed)
{
	ViewA		view;
	size_t		first = i * g->a.row + p * g->a.column;

	if (g->direct_a)
		view = (ViewA) {(const float *) g->a.data + first, (ptrdiff_t) g->a.row, (ptrdiff_t) g->a.column};
	else if (g->a.row == 1)
	{
		DTYPE_SWITCH(g->a.dtype, D, pack_a_columns(g->a.data, first, g->a.column, k, rows, packed, D));
		view = (ViewA) {packed, 1, (ptrdiff_t) rows};
	}
	else
	{
		DTYPE_SWITCH(g->a.dtype, D, pack_a_rows(g->a.data, first, g->a.row, k, rows, packed, D));
		view = (ViewA) {packed, (ptrdiff_t) k, 1};
	}
	return view;
}

/* Rows [i0, i1) times the packed or direct panels of columns [j0, j1), for steps [p, p + k). */
static void
gemm_block(const Gemm *g, size_t p, size_t k, size_t i0, size_t i1, size_t j0, size_t j1,
		   float *packed_a, const float *packed_b)
{
	size_t		tiles = tile_count(i1 - i0),
				j,
				t;
	ViewA		view[BLOCK_M + 1];
	TileInput	in = {.segments = 1,.steps = k,.a_segment = 0,.b_segment = 0};
	TileOutput	out = g->out;

	for (t = 0; t < tiles; t++)
	{
		size_t		i = i0 + even_cut(i1 - i0, t, tiles),
					next = i0 + even_cut(i1 - i0, t + 1, tiles);

		view[t] = view_a(g, p, k, i, next - i, packed_a + (i - i0) * k);
	}
	/* Only the first block scales the old content, only the last one finishes. */
	if (p > 0)
		out.beta = 1.0f;
	if (p + k < g->k)
	{
		out.bias = NULL;
		out.act = ACT_NONE;
	}
	for (j = j0; j < j1; j += TILE_COLUMNS)
	{
		out.columns = min_size(TILE_COLUMNS, j1 - j);
		out.bias = out.bias == NULL ? NULL : g->out.bias + j;
		if (g->direct_b && out.columns == TILE_COLUMNS)
		{
			in.b = (const float *) g->b.data + p * g->b.row + j;
			in.b_step = (ptrdiff_t) g->b.row;
		}
		else
		{
			in.b = packed_b + (g->direct_b ? 0 : (j - j0) * k);
			in.b_step = TILE_COLUMNS;
		}
		for (t = 0; t < tiles; t++)
		{
			size_t		i = i0 + even_cut(i1 - i0, t, tiles),
						next = i0 + even_cut(i1 - i0, t + 1, tiles);

			in.a = view[t].data;
			in.a_row = view[t].row;
			in.a_step = view[t].step;
			out.c = element(g->out.c, g->out.dtype, i * g->out.c_row + j);
			tile_run(next - i, &in, &out);
		}
	}
}

static void
gemm_rectangle(const Gemm *g, size_t i0, size_t i1, size_t j0, size_t j1, float *packed_a, float *packed_b)
{
	size_t		p,
				j,
				i;

	for (p = 0; p < g->k; p += g->block_k)
	{
		size_t		k = min_size(g->block_k, g->k - p);

		for (j = j0; j < j1; j += BLOCK_N)
		{
			size_t		end = min_size(j + BLOCK_N, j1),
						full = (end - j) / TILE_COLUMNS * TILE_COLUMNS;

			if (!g->direct_b)
				gemm_pack_b(&g->b, p, k, j, end - j, packed_b);
			else if (j + full < end)
				gemm_pack_b(&g->b, p, k, j + full, end - j - full, packed_b);
			for (i = i0; i < i1; i += BLOCK_M)
				gemm_block(g, p, k, i, min_size(i + BLOCK_M, i1), j, end, packed_a, packed_b);
		}
	}
}

/*
 * Cut c into threads_m x threads_n rectangles: the cut with the least work for the busiest thread, where
 * packing b, which every row of rectangles does again, counts as PACK_ROWS rows of the product.
 */
#define PACK_ROWS 8

static void
choose_grid(Gemm *g, int nt)
{
	double		best = 0;
	int			tn;

	g->threads_m = 1;
	g->threads_n = nt;
	for (tn = 1; tn <= nt; tn++)
	{
		int			tm = nt / tn;
		double		rows = (double) round_up((g->m + (size_t) tm - 1) / (size_t) tm, TILE_ROWS / 2),
					columns = (double) round_up((g->n + (size_t) tn - 1) / (size_t) tn, VECTOR_FLOATS),
					cost = (rows + PACK_ROWS) * columns;

		if (tm * tn != nt)
			continue;
		if (best == 0 || cost < best)
		{
			best = cost;
			g->threads_m = tm;
			g->threads_n = tn;
		}
	}
}

Status
gemm(Backend *be, size_t m, size_t n, size_t k, const Matrix *a, const Matrix *b, const TileOutput *out,
	 Error *err)
{
	Gemm		g = {.m = m,.n = n,.k = k,.a = *a,.b = *b,.out = *out};
	int			nt = threads_for(be, 2.0 * (double) m * (double) round_up(n, VECTOR_FLOATS) * (double) k
								 / FLOPS_PER_NS);
	size_t		blocks = (k + BLOCK_K - 1) / BLOCK_K,
				bytes_a,
				bytes_b;
	void	   *workspace;

	/* Sums over blocks of k pass through c, which must hold them in full. */
	if (out->dtype != DTYPE_F32)
		blocks = 1;
	g.block_k = (k + blocks - 1) / blocks;
	g.direct_a = a->dtype == DTYPE_F32 && (a->column == 1 || a->column <= 64);
	g.direct_b = b->dtype == DTYPE_F32 && b->column == 1 && b->row <= 256 && m <= 128;
	choose_grid(&g, nt);
	bytes_a = round_up(BLOCK_M * g.block_k * sizeof(float), CPU_ALIGNMENT);
	bytes_b = round_up(round_up(min_size(n, BLOCK_N), TILE_COLUMNS) * g.block_k * sizeof(float), CPU_ALIGNMENT);
	TRY(cpu_workspace(be, WORKSPACE_PACK_A, g.direct_a ? CPU_ALIGNMENT : bytes_a * (size_t) nt, &workspace, err));
	g.packed_a = workspace;
	TRY(cpu_workspace(be, WORKSPACE_PACK_B, bytes_b * (size_t) nt, &workspace, err));
	g.packed_b = workspace;
	PARALLEL(nt)
	{
		int			t;

		/* A team is never larger than asked for; one that is smaller shares the rectangles. */
		for (t = thread_index(); t < nt; t += thread_count())
		{
			size_t		i0,
						i1,
						j0,
						j1;

			thread_range(m, 1, t / g.threads_n, g.threads_m, &i0, &i1);
			thread_range(n, VECTOR_FLOATS, t % g.threads_n, g.threads_n, &j0, &j1);
			if (i0 < i1 && j0 < j1)
				gemm_rectangle(&g, i0, i1, j0, j1,
							   g.direct_a ? NULL : g.packed_a + bytes_a / sizeof(float) * (size_t) t,
							   g.packed_b + bytes_b / sizeof(float) * (size_t) t);
		}
	}
	return STATUS_OK;
}
