/*
 * winograd.c - 3 x 3 convolutions of stride 1 by Winograd's minimal filtering.  Compiled once per instruction set.
 *
 * F(4 x 4, 3 x 3) of Lavin and Gray, "Fast algorithms for convolutional neural networks" (2015): a tile of 4 x 4
 * outputs comes from 6 x 6 inputs by 36 multiplications for each pair of channels instead of 144.  With the
 * transforms B, G and A below,
 *
 *     y  = A' [ (G w G') . (B' d B) ] A		forward; the input's gradient likewise, with the kernel turned around
 *     dw = G' [ (B' d B) . (A dy A') ] G		summed over tiles
 *
 * and the products . over channels (or tiles) are 36 matrix products.  The points of interpolation are
 * 0, +-sqrt(1/2), +-sqrt(2) and infinity, whose rounding error is six times smaller than that of the usual
 * 0, +-1, +-2: about 6e-6 of the size of the result at most, 6e-7 in the mean.
 */
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/winograd.h"

#include <string.h>

#define OUT 4					/* outputs of a tile, in each direction */
#define IN 6					/* inputs of a tile */
#define POINTS (IN * IN)

/* sqrt(1/2) and sqrt(2) */
#define ROOT_HALF 0.70710678118654752f
#define ROOT_TWO 1.41421356237309505f

/*
 * Tiles that are transformed together: their transforms should stay in the second-level cache until they are
 * used, yet the more they are the less often weights are read again.
 */
#define BLOCK_BYTES ((size_t) 640 << 10)
#define BLOCK_TILES_MIN 12
#define BLOCK_TILES_MAX 96

/* One side of the convolution: the images that tiles are read from, or written to. */
typedef struct Tiling
{
	int32_t		h,				/* of the images with IN x IN tiles */
				w,
				top,			/* its padding */
				left,
				h_out,			/* of the images with OUT x OUT tiles */
				w_out;
	size_t		c_in,			/* channels of either */
				c_out;
	size_t		across,			/* tiles in a row of an image */
				tiles;			/* tiles of an image */
} Tiling;

static Tiling
tiling_of(int32_t h, int32_t w, int32_t top, int32_t left, int32_t h_out, int32_t w_out, int32_t c_in,
		  int32_t c_out)
{
	Tiling		t = {h, w, top, left, h_out, w_out, (size_t) c_in, (size_t) c_out, 0, 0};

	t.across = ((size_t) w_out + OUT - 1) / OUT;
	t.tiles = t.across * (((size_t) h_out + OUT - 1) / OUT);
	return t;
}

int
winograd_pays(const Conv2dShape *s)
{
	Tiling		t = tiling_of(s->h, s->w, s->pad_h, s->pad_w, s->h_out, s->w_out, s->c_in, s->c_out);
	double		outputs = (double) s->h_out * s->w_out,
				computed = (double) t.tiles * OUT * OUT;

	return s->kernel_h == 3 && s->kernel_w == 3 && s->stride_h == 1 && s->stride_w == 1
		&& s->pad_h <= 2 && s->pad_w <= 2
	/* the gradient of the input has the same form */
		&& s->h_out == s->h + 2 * s->pad_h - 2 && s->w_out == s->w + 2 * s->pad_w - 2
		&& s->c_in % VECTOR_FLOATS == 0 && s->c_out % VECTOR_FLOATS == 0 && s->c_in >= 16 && s->c_out >= 16
	/* Of the factor 4, the transforms and small products cost half where few outputs are wasted. */
		&& computed < 1.9 * outputs;
}

/* Floats between the transforms of two points; an odd number of cache lines, lest they compete for few sets. */
static size_t
point_stride(size_t tiles, size_t channels)
{
	size_t		lines = round_up(tiles * channels, 16) / 16;

	return (lines + 1 - lines % 2) * 16;
}

static size_t
block_tiles(const Tiling *t)
{
	size_t		tiles = BLOCK_BYTES / (POINTS * (t->c_in + t->c_out) * sizeof(float));

	tiles = tiles / TILE_ROWS * TILE_ROWS;
	return tiles < BLOCK_TILES_MIN ? BLOCK_TILES_MIN : (tiles > BLOCK_TILES_MAX ? BLOCK_TILES_MAX : tiles);
}

/* B' applied to six vectors */
ALWAYS_INLINE void
transform_in(const Vector d[IN], Vector v[IN])
{
	const Vector two = vector_set(2),
				half = vector_set(0.5f),
				c = vector_set(2.5f);
	Vector		even1 = d[4] - two * d[2],
				odd1 = vector_set(ROOT_HALF) * (d[3] - two * d[1]),
				even2 = d[4] - half * d[2],
				odd2 = vector_set(ROOT_TWO) * (d[3] - half * d[1]);

	v[0] = d[0] - c * d[2] + d[4];
	v[1] = even1 + odd1;
	v[2] = even1 - odd1;
	v[3] = even2 + odd2;
	v[4] = even2 - odd2;
	v[5] = d[1] - c * d[3] + d[5];
}

/* A' applied to six vectors */
ALWAYS_INLINE void
transform_out(const Vector m[IN], Vector y[OUT])
{
	const Vector two = vector_set(2),
				half = vector_set(0.5f);
	Vector		sum1 = m[1] + m[2],
				sum2 = m[3] + m[4],
				odd1 = vector_set(ROOT_HALF) * (m[1] - m[2]),
				odd2 = vector_set(ROOT_TWO) * (m[3] - m[4]);

	y[0] = m[0] + sum1 + sum2;
	y[1] = odd1 + odd2;
	y[2] = half * sum1 + two * sum2;
	y[3] = half * odd1 + two * odd2 + m[5];
}

/* A applied to four vectors */
ALWAYS_INLINE void
transform_gradient(const Vector d[OUT], Vector z[IN])
{
	const Vector two = vector_set(2),
				half = vector_set(0.5f);
	Vector		even1 = d[0] + half * d[2],
				odd1 = vector_set(ROOT_HALF) * (d[1] + half * d[3]),
				even2 = d[0] + two * d[2],
				odd2 = vector_set(ROOT_TWO) * (d[1] + two * d[3]);

	z[0] = d[0];
	z[1] = even1 + odd1;
	z[2] = even1 - odd1;
	z[3] = even2 + odd2;
	z[4] = even2 - odd2;
	z[5] = d[3];
}

/* G applied to three vectors */
ALWAYS_INLINE void
transform_kernel(const Vector g[3], Vector u[IN])
{
	const Vector near = vector_set(-1.0f / 1.5f),
				far = vector_set(1.0f / 6.0f);
	Vector		even1 = near * (g[0] + vector_set(0.5f) * g[2]),
				odd1 = near * vector_set(ROOT_HALF) * g[1],
				even2 = far * (g[0] + vector_set(2) * g[2]),
				odd2 = far * vector_set(ROOT_TWO) * g[1];

	u[0] = g[0];
	u[1] = even1 + odd1;
	u[2] = even1 - odd1;
	u[3] = even2 + odd2;
	u[4] = even2 - odd2;
	u[5] = g[2];
}

/* G' applied to six vectors */
ALWAYS_INLINE void
transform_kernel_gradient(const Vector u[IN], Vector g[3])
{
	const Vector near = vector_set(-1.0f / 1.5f),
				far = vector_set(1.0f / 6.0f);
	Vector		sum1 = near * (u[1] + u[2]),
				sum2 = far * (u[3] + u[4]);

	g[0] = u[0] + sum1 + sum2;
	g[1] = near * vector_set(ROOT_HALF) * (u[1] - u[2]) + far * vector_set(ROOT_TWO) * (u[3] - u[4]);
	g[2] = vector_set(0.5f) * sum1 + vector_set(2) * sum2 + u[5];
}

/* Where a tile lies. */
typedef struct TilePlace
{
	size_t		image;
	int32_t		row,			/* its first output */
				column;
} TilePlace;

static TilePlace
place_of(const Tiling *t, size_t tile)
{
	TilePlace	p;
	size_t		inside = tile % t->tiles;

	p.image = tile / t->tiles;
	p.row = (int32_t) (inside / t->across) * OUT;
	p.column = (int32_t) (inside % t->across) * OUT;
	return p;
}

/* Zeros, which stand for the pixels outside an image; as many as the channels of the widest layer. */
static const float *
pixel_or_zeros(const float *image, int32_t h, int32_t w, int32_t row, int32_t column, size_t channels,
			   const float *zeros)
{
	if (row < 0 || column < 0 || row >= h || column >= w)
		return zeros;
	return image + ((size_t) row * (size_t) w + (size_t) column) * channels;
}

/* v (POINTS, tiles, c_in): tiles first .. first + count - 1 of x */
static void
transform_inputs(const Tiling *t, const float *x, size_t first, size_t count, size_t stride,
				 const float *zeros, float *v)
{
	size_t		tile,
				c;
	int			i,
				j;

	for (tile = 0; tile < count; tile++)
	{
		TilePlace	p = place_of(t, first + tile);
		const float *image = x + p.image * (size_t) t->h * (size_t) t->w * t->c_in,
				   *pixel[IN][IN];

		for (i = 0; i < IN; i++)
			for (j = 0; j < IN; j++)
				pixel[i][j] = pixel_or_zeros(image, t->h, t->w, p.row - t->top + i, p.column - t->left + j,
											 t->c_in, zeros);
		for (c = 0; c < t->c_in; c += VECTOR_FLOATS)
		{
			Vector		columns[IN][IN];
			float	   *out = v + tile * t->c_in + c;

			for (j = 0; j < IN; j++)
			{
				Vector		d[IN],
							column[IN];

				for (i = 0; i < IN; i++)
					d[i] = vector_load(pixel[i][j] + c);
				transform_in(d, column);
				for (i = 0; i < IN; i++)
					columns[i][j] = column[i];
			}
			for (i = 0; i < IN; i++)
			{
				Vector		row[IN];

				transform_in(columns[i], row);
				for (j = 0; j < IN; j++)
					vector_store(out + (size_t) (i * IN + j) * stride, row[j]);
			}
		}
	}
}

/* y: tiles first .. first + count - 1, from their m (POINTS, tiles, c_out) */
static void
transform_outputs(const Tiling *t, const float *m, size_t first, size_t count, size_t stride, const float *bias,
				  Activation act, float *y)
{
	size_t		tile,
				c;
	int			i,
				j;

	for (tile = 0; tile < count; tile++)
	{
		TilePlace	p = place_of(t, first + tile);
		float	   *image = y + p.image * (size_t) t->h_out * (size_t) t->w_out * t->c_out;
		int			rows = min_int(OUT, t->h_out - p.row),
					columns = min_int(OUT, t->w_out - p.column);

		for (c = 0; c < t->c_out; c += VECTOR_FLOATS)
		{
			const float *in = m + tile * t->c_out + c;
			Vector		half[OUT][IN],
						b = bias != NULL ? vector_load(bias + c) : vector_set(0);

			for (j = 0; j < IN; j++)
			{
				Vector		column[IN],
							out[OUT];

				for (i = 0; i < IN; i++)
					column[i] = vector_load(in + (size_t) (i * IN + j) * stride);
				transform_out(column, out);
				for (i = 0; i < OUT; i++)
					half[i][j] = out[i];
			}
			for (i = 0; i < rows; i++)
			{
				Vector		row[OUT];
				float	   *to = image + ((size_t) (p.row + i) * (size_t) t->w_out + (size_t) p.column) * t->c_out + c;

				transform_out(half[i], row);
				for (j = 0; j < OUT; j++)
				{
					row[j] += b;
					if (act == ACT_RELU)
						row[j] = vector_relu(row[j]);
				}
				for (j = 0; j < columns; j++)
					vector_store(to + (size_t) j * t->c_out, row[j]);
			}
		}
	}
}

/* z (POINTS, tiles, c_out): tiles of dy; sum (c_out) += the tiles' values */
static void
transform_gradients(const Tiling *t, const float *dy, size_t first, size_t count, size_t stride,
					const float *zeros, float *z, float *sum)
{
	size_t		tile,
				c;
	int			i,
				j;

	for (tile = 0; tile < count; tile++)
	{
		TilePlace	p = place_of(t, first + tile);
		const float *image = dy + p.image * (size_t) t->h_out * (size_t) t->w_out * t->c_out,
				   *pixel[OUT][OUT];

		for (i = 0; i < OUT; i++)
			for (j = 0; j < OUT; j++)
				pixel[i][j] = pixel_or_zeros(image, t->h_out, t->w_out, p.row + i, p.column + j, t->c_out, zeros);
		for (c = 0; c < t->c_out; c += VECTOR_FLOATS)
		{
			Vector		columns[IN][OUT],
						total = vector_set(0);
			float	   *out = z + tile * t->c_out + c;

			for (j = 0; j < OUT; j++)
			{
				Vector		d[OUT],
							column[IN];

				for (i = 0; i < OUT; i++)
				{
					d[i] = vector_load(pixel[i][j] + c);
					total += d[i];
				}
				transform_gradient(d, column);
				for (i = 0; i < IN; i++)
					columns[i][j] = column[i];
			}
			vector_store(sum + c, vector_load(sum + c) + total);
			for (i = 0; i < IN; i++)
			{
				Vector		row[IN];

				transform_gradient(columns[i], row);
				for (j = 0; j < IN; j++)
					vector_store(out + (size_t) (i * IN + j) * stride, row[j]);
			}
		}
	}
}

/* The transform of one vector of kernels: u[point * stride], w's taps lie tap_stride apart. */
ALWAYS_INLINE void
transform_kernels(const float *w, size_t tap_stride, int turned, float *u, size_t stride)
{
	Vector		columns[IN][3];
	int			i,
				j;

	for (j = 0; j < 3; j++)
	{
		Vector		g[3],
					column[IN];

		for (i = 0; i < 3; i++)
			g[i] = vector_load(w + (size_t) (turned ? (2 - i) * 3 + 2 - j : i * 3 + j) * tap_stride);
		transform_kernel(g, column);
		for (i = 0; i < IN; i++)
			columns[i][j] = column[i];
	}
	for (i = 0; i < IN; i++)
	{
		Vector		row[IN];

		transform_kernel(columns[i], row);
		for (j = 0; j < IN; j++)
			vector_store(u + (size_t) (i * IN + j) * stride, row[j]);
	}
}

/*
 * Weights w (c_out, 3, 3, c_in) of panel [o, o + columns) for the forward product: u (POINTS, panels, c_in,
 * TILE_COLUMNS).  scratch is (POINTS, TILE_COLUMNS, c_in).
 */
static void
pack_forward(const Tiling *t, const float *w, size_t o, float *scratch, float *u, size_t stride)
{
	size_t		columns = min_size(TILE_COLUMNS, t->c_out - o),
				j,
				c;
	int			point;

	for (j = 0; j < columns; j++)
		for (c = 0; c < t->c_in; c += VECTOR_FLOATS)
			transform_kernels(w + (o + j) * 9 * t->c_in + c, t->c_in, 0, scratch + j * t->c_in + c,
							  TILE_COLUMNS * t->c_in);
	for (point = 0; point < POINTS; point++)
	{
		Matrix		transposed = {scratch + (size_t) point * TILE_COLUMNS * t->c_in, 1, t->c_in, DTYPE_F32};

		gemm_pack_b(&transposed, 0, t->c_in, 0, columns, u + (size_t) point * stride + o * t->c_in);
	}
}

/*
 * The same for the gradient of the input, where t->c_in are the channels of dy and t->c_out those of x: panel
 * [o, o + columns) of u (POINTS, panels, c_in, TILE_COLUMNS) from w (c_in, 3, 3, c_out) turned around.
 */
static void
pack_turned(const Tiling *t, const float *w, size_t o, float *u, size_t stride)
{
	size_t		columns = min_size(TILE_COLUMNS, t->c_out - o),
				c,
				j;
	int			point;

	for (c = 0; c < t->c_in; c++)
		for (j = 0; j < TILE_COLUMNS; j += VECTOR_FLOATS)
		{
			float	   *to = u + o * t->c_in + c * TILE_COLUMNS + j;

			if (j < columns)
				transform_kernels(w + c * 9 * t->c_out + o + j, t->c_out, 1, to, stride);
			else
				for (point = 0; point < POINTS; point++)
					vector_store(to + (size_t) point * stride, vector_set(0));
		}
}

/* m = v u for each point, over count tiles */
static void
multiply_points(const Tiling *t, const float *v, size_t v_stride, const float *u, size_t u_stride, float *m,
				size_t m_stride, size_t count)
{
	size_t		rows = tile_count(count),
				point,
				o,
				r;

	for (point = 0; point < POINTS; point++)
		for (o = 0; o < t->c_out; o += TILE_COLUMNS)
		{
			TileInput	in = {
				.b = u + point * u_stride + o * t->c_in,
				.segments = 1,
				.steps = t->c_in,
				.a_row = (ptrdiff_t) t->c_in,
				.a_step = 1,
				.b_step = TILE_COLUMNS,
			};
			TileOutput	out = {
				.c_row = t->c_out,.columns = min_size(TILE_COLUMNS, t->c_out - o),.dtype = DTYPE_F32
			};

			for (r = 0; r < rows; r++)
			{
				size_t		i = even_cut(count, r, rows),
							next = even_cut(count, r + 1, rows);

				in.a = v + point * v_stride + i * t->c_in;
				out.c = m + point * m_stride + i * t->c_out + o;
				tile_run(next - i, &in, &out);
			}
		}
}

/* The part of both that is the same once tiling and packing are settled. */
static Status
winograd_run(Backend *be, int nt, const Tiling *t, size_t n, const float *x, const float *w, int turned,
			 const float *bias, Activation act, float *y, Error *err)
{
	size_t		block = block_tiles(t),
				v_stride = point_stride(block, t->c_in),
				m_stride = point_stride(block, t->c_out),
				u_stride = round_up(t->c_out, TILE_COLUMNS) * t->c_in,
				scratch_floats = POINTS * TILE_COLUMNS * t->c_in,
				thread_floats = POINTS * (v_stride + m_stride);
	void	   *workspace;
	float	   *u,
			   *blocks,
			   *zeros;

	if (thread_floats < scratch_floats)
		thread_floats = scratch_floats;
	TRY(cpu_workspace(be, WORKSPACE_PACK_B, POINTS * u_stride * sizeof(float), &workspace, err));
	u = workspace;
	TRY(cpu_workspace(be, WORKSPACE_IMAGE, (thread_floats * (size_t) nt + t->c_in) * sizeof(float), &workspace,
					  err));
	zeros = workspace;
	blocks = zeros + t->c_in;
	memset(zeros, 0, t->c_in * sizeof(float));
	PARALLEL(nt)
	{
		float	   *v = blocks + thread_floats * (size_t) thread_index(),
				   *m = v + POINTS * v_stride;
		size_t		lo,
					hi,
					i;

		thread_range(t->c_out, TILE_COLUMNS, thread_index(), thread_count(), &lo, &hi);
		for (i = lo; i < hi; i += TILE_COLUMNS)
			if (turned)
				pack_turned(t, w, i, u, u_stride);
			else
				pack_forward(t, w, i, v, u, u_stride);
#pragma omp barrier
		thread_range(n * t->tiles, 1, thread_index(), thread_count(), &lo, &hi);
		for (i = lo; i < hi; i += block)
		{
			size_t		count = min_size(block, hi - i);

			transform_inputs(t, x, i, count, v_stride, zeros, v);
			multiply_points(t, v, v_stride, u, u_stride, m, m_stride, count);
			transform_outputs(t, m, i, count, m_stride, bias, act, y);
		}
	}
	return STATUS_OK;
}

Status
winograd_fwd(Backend *be, int nt, const Conv2dShape *s, size_t n, const float *x, const float *w,
			 const float *b, Activation act, float *y, Error *err)
{
	Tiling		t = tiling_of(s->h, s->w, s->pad_h, s->pad_w, s->h_out, s->w_out, s->c_in, s->c_out);

	return winograd_run(be, nt, &t, n, x, w, 0, b, act, y, err);
}

Status
winograd_bwd_data(Backend *be, int nt, const Conv2dShape *s, size_t n, const float *dy, const float *w,
				  float *dx, Error *err)
{
	/* A convolution of dy, with the padding that gives the size of x back. */
	Tiling		t = tiling_of(s->h_out, s->w_out, 2 - s->pad_h, 2 - s->pad_w, s->h, s->w, s->c_out, s->c_in);

	return winograd_run(be, nt, &t, n, dy, w, 1, NULL, ACT_NONE, dx, err);
}

/* du (POINTS, c_out, c_in) += z' v over count tiles; first: overwritten */
static void
multiply_gradients(const Tiling *t, const float *z, size_t z_stride, const float *v, size_t v_stride, float *du,
				   size_t count, int first)
{
	size_t		rows = tile_count(t->c_out),
				point,
				c,
				r;

	for (point = 0; point < POINTS; point++)
		for (c = 0; c < t->c_in; c += TILE_COLUMNS)
		{
			TileInput	in = {
				.b = v + point * v_stride + c,
				.segments = 1,
				.steps = count,
				.a_row = 1,
				.a_step = (ptrdiff_t) t->c_out,
				.b_step = (ptrdiff_t) t->c_in,
			};
			TileOutput	out = {
				.c_row = t->c_in,
				.columns = min_size(TILE_COLUMNS, t->c_in - c),
				.dtype = DTYPE_F32,
				.beta = first ? 0.0f : 1.0f,
			};

			for (r = 0; r < rows; r++)
			{
				size_t		o = even_cut(t->c_out, r, rows),
							next = even_cut(t->c_out, r + 1, rows);

				in.a = z + point * z_stride + o;
				out.c = du + (point * t->c_out + o) * t->c_in + c;
				tile_run(next - o, &in, &out);
			}
		}
}

/* dw of output channel o from the threads' du, in their order */
static void
finish_weights(const Tiling *t, const float *du, size_t thread_floats, int threads, size_t o, float *dw,
			   float beta)
{
	size_t		c;
	int			i,
				j,
				thread;

	for (c = 0; c < t->c_in; c += VECTOR_FLOATS)
	{
		Vector		columns[3][IN];
		float	   *to = dw + o * 9 * t->c_in + c;

		for (j = 0; j < IN; j++)
		{
			Vector		column[IN],
						g[3];

			for (i = 0; i < IN; i++)
			{
				const float *from = du + ((size_t) (i * IN + j) * t->c_out + o) * t->c_in + c;

				column[i] = vector_load(from);
				for (thread = 1; thread < threads; thread++)
					column[i] += vector_load(from + (size_t) thread * thread_floats);
			}
			transform_kernel_gradient(column, g);
			for (i = 0; i < 3; i++)
				columns[i][j] = g[i];
		}
		for (i = 0; i < 3; i++)
		{
			Vector		row[3];

			transform_kernel_gradient(columns[i], row);
			for (j = 0; j < 3; j++)
			{
				float	   *at = to + (size_t) (i * 3 + j) * t->c_in;

				vector_store(at, beta == 0.0f ? row[j] : row[j] + vector_set(beta) * vector_load(at));
			}
		}
	}
}

Status
winograd_bwd_weight(Backend *be, int nt, const Conv2dShape *s, size_t n, const float *dy, const float *x,
					float *dw, float *db, float beta, Error *err)
{
	Tiling		t = tiling_of(s->h, s->w, s->pad_h, s->pad_w, s->h_out, s->w_out, s->c_in, s->c_out);
	size_t		block = block_tiles(&t),
				v_stride = point_stride(block, t.c_in),
				z_stride = point_stride(block, t.c_out),
				widest = t.c_in > t.c_out ? t.c_in : t.c_out,
	/* the tile reads a whole panel of columns of the last tile's v */
				v_floats = POINTS * v_stride + TILE_COLUMNS,
				z_floats = POINTS * z_stride,
				du_floats = POINTS * t.c_out * t.c_in,
				sum_floats = round_up(3 * t.c_out, 16),
				thread_floats = round_up(v_floats + z_floats + du_floats + sum_floats, 16),
				zero_floats = round_up(widest, 16);
	void	   *workspace;
	float	   *zeros,
			   *threads;

	TRY(cpu_workspace(be, WORKSPACE_IMAGE, (thread_floats * (size_t) nt + zero_floats) * sizeof(float),
					  &workspace, err));
	zeros = workspace;
	threads = zeros + zero_floats;
	memset(zeros, 0, zero_floats * sizeof(float));
	PARALLEL(nt)
	{
		/* du comes first: finish_weights steps from thread to thread. */
		float	   *du = threads + thread_floats * (size_t) thread_index(),
				   *sum = du + du_floats,
				   *z = sum + sum_floats,
				   *v = z + z_floats;
		double	   *total = (double *) sum;
		size_t		lo,
					hi,
					i,
					j;

		sum += 2 * t.c_out;
		memset(total, 0, t.c_out * sizeof(double));
		memset(v + POINTS * v_stride, 0, TILE_COLUMNS * sizeof(float));
		thread_range(n * t.tiles, 1, thread_index(), thread_count(), &lo, &hi);
		if (lo == hi)
			memset(du, 0, du_floats * sizeof(float));
		for (i = lo; i < hi; i += block)
		{
			size_t		count = min_size(block, hi - i);

			memset(sum, 0, t.c_out * sizeof(float));
			transform_inputs(&t, x, i, count, v_stride, zeros, v);
			transform_gradients(&t, dy, i, count, z_stride, zeros, z, sum);
			multiply_gradients(&t, z, z_stride, v, v_stride, du, count, i == lo);
			for (j = 0; j < t.c_out; j++)
				total[j] += (double) sum[j];
		}
#pragma omp barrier
		thread_range(t.c_out, 1, thread_index(), thread_count(), &lo, &hi);
		for (i = lo; i < hi; i++)
		{
			finish_weights(&t, threads, thread_floats, thread_count(), i, dw, beta);
			if (db != NULL)
			{
				double		bias = 0;

				for (j = 0; j < (size_t) thread_count(); j++)
					bias += ((const double *) (threads + thread_floats * j + du_floats))[i];
				db[i] = (float) bias + (beta == 0.0f ? 0.0f : beta * db[i]);
			}
		}
	}
	return STATUS_OK;
}
