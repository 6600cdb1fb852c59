/*
 * conv.c - convolution of NHWC images.  Compiled once per instruction set.
 *
 * An image is copied once into a frame of zeros (its padding), as fp32.  Then the values that an output pixel
 * sees are kernel_h runs of kernel_w * c_in floats, and neighbouring outputs see them at a fixed distance: the
 * register tile multiplies them where they lie, with no im2col.  The gradient of the input is the same
 * convolution of dy with the kernel turned around, once for each phase of the stride.
 */
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/winograd.h"

#include <string.h>

/* Operations in a nanosecond of one thread, for the choice of the number of threads. */
#define FLOPS_PER_NS (2.0 * VECTOR_FLOATS)

static double
conv_ns(const Conv2dShape *s, size_t n)
{
	return 2.0 * (double) n * s->h_out * s->w_out * s->c_out * s->kernel_h * s->kernel_w * s->c_in
		/ FLOPS_PER_NS;
}

static Status
check_conv(const Conv2dShape *s, DType dtype, Error *err)
{
	TRY(cpu_check_dtype(dtype, "convolution", err));
	if (s->c_in < 1 || s->c_out < 1 || s->h < 1 || s->w < 1 || s->h_out < 1 || s->w_out < 1
		|| s->kernel_h < 1 || s->kernel_w < 1 || s->stride_h < 1 || s->stride_w < 1
		|| s->pad_h < 0 || s->pad_w < 0
		|| (s->h_out - 1) * s->stride_h + s->kernel_h > s->h + 2 * s->pad_h
		|| (s->w_out - 1) * s->stride_w + s->kernel_w > s->w + 2 * s->pad_w)
		return error_set(err, STATUS_INTERNAL, "the shape of a convolution is not valid");
	return STATUS_OK;
}

static size_t
image_in(const Conv2dShape *s)
{
	return (size_t) s->h * (size_t) s->w * (size_t) s->c_in;
}

static size_t
image_out(const Conv2dShape *s)
{
	return (size_t) s->h_out * (size_t) s->w_out * (size_t) s->c_out;
}

/* A frame: rows x columns pixels, into which an image is copied with its pixel (0, 0) at (top, left). */
typedef struct Frame
{
	int32_t		rows,
				columns,
				top,
				left;
} Frame;

/* The tile may read this many floats past a frame. */
#define FRAME_SLACK TILE_COLUMNS

static size_t
frame_bytes(const Frame *f, size_t channels)
{
	return round_up(((size_t) f->rows * (size_t) f->columns * channels + FRAME_SLACK) * sizeof(float),
					CPU_ALIGNMENT);
}

ALWAYS_INLINE void
copy_floats(const void *from, size_t first, size_t count, float *to, const DType dtype)
{
	size_t		i;

	if (dtype == DTYPE_F32)
		memcpy(to, (const float *) from + first, count * sizeof(float));
	else
		for (i = 0; i < count; i++)
			to[i] = load(from, first + i, dtype);
}

/* Fill the frame; what lies outside the image is 0, what lies outside the frame is left out. */
static void
fill_frame(const Frame *f, size_t channels, const void *image, int32_t h, int32_t w, DType dtype, float *frame)
{
	int32_t		row0 = f->top < 0 ? -f->top : 0,
				column0 = f->left < 0 ? -f->left : 0,
				columns = min_int(w, f->columns - f->left) - column0,
				r;
	size_t		row_floats = (size_t) f->columns * channels;

	for (r = 0; r < f->rows; r++)
	{
		float	   *to = frame + (size_t) r * row_floats;
		int32_t		source = r - f->top;
		size_t		before = (size_t) (f->left + column0) * channels,
					count = columns > 0 ? (size_t) columns * channels : 0;

		if (source < row0 || source >= h || count == 0)
		{
			memset(to, 0, row_floats * sizeof(float));
			continue;
		}
		memset(to, 0, before * sizeof(float));
		DTYPE_SWITCH(dtype, D, copy_floats(image, ((size_t) source * (size_t) w + (size_t) column0) * channels,
										   count, to + before, D));
		memset(to + before + count, 0, (row_floats - before - count) * sizeof(float));
	}
	memset(frame + (size_t) f->rows * row_floats, 0, FRAME_SLACK * sizeof(float));
}

static Frame
input_frame(const Conv2dShape *s)
{
	Frame		f;

	f.rows = (s->h_out - 1) * s->stride_h + s->kernel_h;
	f.columns = (s->w_out - 1) * s->stride_w + s->kernel_w;
	f.top = s->pad_h;
	f.left = s->pad_w;
	return f;
}

/* The floats of packed weights: (panels, steps, TILE_COLUMNS) */
static size_t
panel_floats(size_t steps, size_t columns)
{
	return round_up(columns, TILE_COLUMNS) * steps;
}

#if defined(HAVE_ONEDNN)
static Status
conv2d_fwd_onednn(Backend *be, const Conv2dShape *s, size_t n, const void *x, const void *w, const float *b,
				  Activation act, void *y, Error *err)
{
	TRY(onednn_conv2d_fwd(be, s, n, x, w, b, y, err));
	return act == ACT_NONE ? STATUS_OK : op_act_fwd(be, act, n * image_out(s), y, y, DTYPE_BF16, err);
}
#endif

Status
op_conv2d_fwd(Backend *be, const Conv2dShape *s, size_t n, const void *x, const void *w, const float *b,
			  Activation act, void *y, DType dtype, Error *err)
{
	size_t		c_in = (size_t) s->c_in,
				c_out = (size_t) s->c_out,
				run = (size_t) s->kernel_w * c_in,
				steps = (size_t) s->kernel_h * run;
	Frame		frame = input_frame(s);
	size_t		bytes = frame_bytes(&frame, c_in);
	int			nt = threads_for(be, conv_ns(s, n));
	Matrix		weights = {w, 1, steps, dtype};
	void	   *workspace;
	float	   *packed;

	TRY(check_conv(s, dtype, err));
	if (act != ACT_NONE && act != ACT_RELU)
		return error_set(err, STATUS_INTERNAL, "a convolution cannot apply activation %d", (int) act);
	ONEDNN_FIRST(be, dtype, conv2d_fwd_onednn(be, s, n, x, w, b, act, y, err));
	if (dtype == DTYPE_F32 && winograd_pays(s))
		return winograd_fwd(be, nt, s, n, x, w, b, act, y, err);
	TRY(cpu_workspace(be, WORKSPACE_IMAGE, bytes * (size_t) nt, &workspace, err));
	TRY(cpu_workspace(be, WORKSPACE_PACK_B, panel_floats(steps, c_out) * sizeof(float), (void **) &packed, err));
	PARALLEL(nt)
	{
		float	   *image = (float *) ((char *) workspace + bytes * (size_t) thread_index());
		size_t		lo,
					hi,
					unit,
					filled = SIZE_MAX,
					rows = (size_t) s->h_out,
					tiles = tile_count((size_t) s->w_out);

		thread_range(c_out, TILE_COLUMNS, thread_index(), thread_count(), &lo, &hi);
		if (lo < hi)
			gemm_pack_b(&weights, 0, steps, lo, hi - lo, packed + lo * steps);
#pragma omp barrier
		/* A unit is a row of an output image. */
		thread_range(n * rows, 1, thread_index(), thread_count(), &lo, &hi);
		for (unit = lo; unit < hi;)
		{
			size_t		i = unit / rows,
						first = unit % rows,
						last = min_size(rows, first + (hi - unit)),
						oh,
						j,
						t;
			TileInput	in = {
				.segments = (size_t) s->kernel_h,
				.steps = run,
				.a_row = (ptrdiff_t) (s->stride_w * s->c_in),
				.a_step = 1,
				.a_segment = (ptrdiff_t) (frame.columns * s->c_in),
				.b_step = TILE_COLUMNS,
				.b_segment = (ptrdiff_t) (run * TILE_COLUMNS),
			};
			TileOutput	out = {.c_row = c_out,.dtype = dtype,.beta = 0.0f,.act = act};

			if (filled != i)
				fill_frame(&frame, c_in, const_element(x, dtype, i * image_in(s)), s->h, s->w, dtype, image);
			filled = i;
			for (j = 0; j < c_out; j += TILE_COLUMNS)
			{
				in.b = packed + j * steps;
				out.columns = min_size(TILE_COLUMNS, c_out - j);
				out.bias = b == NULL ? NULL : b + j;
				for (oh = first; oh < last; oh++)
					for (t = 0; t < tiles; t++)
					{
						size_t		ow = even_cut((size_t) s->w_out, t, tiles),
									next = even_cut((size_t) s->w_out, t + 1, tiles);

						in.a = image + (oh * (size_t) s->stride_h * (size_t) frame.columns
										+ ow * (size_t) s->stride_w) * c_in;
						out.c = element(y, dtype, i * image_out(s) + (oh * (size_t) s->w_out + ow) * c_out + j);
						tile_run(next - ow, &in, &out);
					}
			}
			unit += last - first;
		}
	}
	return STATUS_OK;
}

/*
 * One dimension of the gradient of the input.  A pixel at position x has the phase (x + pad) mod stride; it
 * gets dy[q - t] w[phase + stride t] for t = 0 .. taps - 1, with q = (x + pad) / stride.
 */
typedef struct Phase
{
	int32_t		taps;
	int32_t		first;			/* the first pixel of this phase, or the size where there is none */
} Phase;

static Phase
phase_of(int32_t phase, int32_t kernel, int32_t stride, int32_t pad)
{
	Phase		p;

	p.taps = phase < kernel ? (kernel - phase + stride - 1) / stride : 0;
	p.first = ((phase - pad) % stride + stride) % stride;
	return p;
}

/* Rows (or columns) of dy that some pixel of dx may ask for: [*low, *high]; they may lie outside dy. */
static void
gradient_reach(int32_t size, int32_t kernel, int32_t stride, int32_t pad, int32_t *low, int32_t *high)
{
	int32_t		x;

	*low = 0;
	*high = 0;
	for (x = 0; x < size; x++)
	{
		Phase		p = phase_of((x + pad) % stride, kernel, stride, pad);
		int32_t		q = (x + pad) / stride;

		if (p.taps == 0)
			continue;
		*low = min_int(*low, q - (p.taps - 1));
		*high = q > *high ? q : *high;
	}
}

/*
 * The weights of one phase, for the tile: step (th, tw, c_out) and column c_in.  w is (c_out, kh, kw, c_in); taps
 * come in falling order, so that dy is read in rising order.
 */
ALWAYS_INLINE void
pack_phase(const Conv2dShape *s, const void *w, int32_t phase_h, int32_t phase_w, Phase ph, Phase pw,
		   float *packed, const DType dtype)
{
	size_t		c_in = (size_t) s->c_in,
				c_out = (size_t) s->c_out,
				j,
				c,
				o;
	int32_t		th,
				tw;

	for (j = 0; j < c_in; j += TILE_COLUMNS)
		for (th = ph.taps - 1; th >= 0; th--)
			for (tw = pw.taps - 1; tw >= 0; tw--)
				for (o = 0; o < c_out; o++)
				{
					size_t		from = ((o * (size_t) s->kernel_h + (size_t) (phase_h + s->stride_h * th))
										* (size_t) s->kernel_w + (size_t) (phase_w + s->stride_w * tw)) * c_in + j,
								columns = min_size(TILE_COLUMNS, c_in - j);

					for (c = 0; c < columns; c++)
						packed[c] = load(w, from + c, dtype);
					for (; c < TILE_COLUMNS; c++)
						packed[c] = 0;
					packed += TILE_COLUMNS;
				}
}

/* The pixels of one phase in one image of dx; frame holds dy, its row 0 is dy's row low_h. */
static void
phase_gradient(const Conv2dShape *s, const Frame *f, const float *frame, Phase ph, Phase pw,
			   const float *packed, void *dx, DType dtype)
{
	size_t		c_in = (size_t) s->c_in,
				steps = (size_t) (ph.taps * pw.taps * s->c_out),
				count,
				tiles,
				j,
				t;
	int32_t		x;
	TileInput	in = {
		.segments = steps > 0 ? (size_t) ph.taps : 0,
		.steps = (size_t) (pw.taps * s->c_out),
		.a_row = s->c_out,
		.a_step = 1,
		.a_segment = (ptrdiff_t) (f->columns * s->c_out),
		.b_step = TILE_COLUMNS,
		.b_segment = (ptrdiff_t) (pw.taps * s->c_out * TILE_COLUMNS),
	};
	TileOutput	out = {
		.c_row = (size_t) s->stride_w * c_in,.dtype = dtype,.beta = 0.0f,.bias = NULL,.act = ACT_NONE
	};

	if (pw.first >= s->w)
		return;
	count = (size_t) ((s->w - pw.first + s->stride_w - 1) / s->stride_w);
	tiles = tile_count(count);
	for (j = 0; j < c_in; j += TILE_COLUMNS)
	{
		in.b = packed + j * steps;
		out.columns = min_size(TILE_COLUMNS, c_in - j);
		for (x = ph.first; x < s->h; x += s->stride_h)
		{
			ptrdiff_t	row = (x + s->pad_h) / s->stride_h - (ph.taps - 1) + f->top,
						column = (pw.first + s->pad_w) / s->stride_w - (pw.taps - 1) + f->left;

			for (t = 0; t < tiles; t++)
			{
				size_t		i = even_cut(count, t, tiles),
							next = even_cut(count, t + 1, tiles);

				/* A phase without taps has no steps either: in.a is not read. */
				in.a = in.segments == 0 ? frame
					: frame + (row * f->columns + column + (ptrdiff_t) i) * s->c_out;
				out.c = element(dx, dtype, ((size_t) x * (size_t) s->w + (size_t) pw.first
											+ i * (size_t) s->stride_w) * c_in + j);
				tile_run(next - i, &in, &out);
			}
		}
	}
}

Status
op_conv2d_bwd_data(Backend *be, const Conv2dShape *s, size_t n, const void *dy, const void *w, void *dx,
				   DType dtype, Error *err)
{
	size_t		c_out = (size_t) s->c_out,
				phase_stride,
				bytes;
	int32_t		phases,
				low_h,
				high_h,
				low_w,
				high_w;
	int			nt = threads_for(be, conv_ns(s, n));
	Frame		frame;
	void	   *workspace;
	float	   *packed;

	TRY(check_conv(s, dtype, err));
	ONEDNN_FIRST(be, dtype, onednn_conv2d_bwd_data(be, s, n, dy, w, dx, err));
	if (dtype == DTYPE_F32 && winograd_pays(s))
		return winograd_bwd_data(be, nt, s, n, dy, w, dx, err);
	phases = s->stride_h * s->stride_w;
	gradient_reach(s->h, s->kernel_h, s->stride_h, s->pad_h, &low_h, &high_h);
	gradient_reach(s->w, s->kernel_w, s->stride_w, s->pad_w, &low_w, &high_w);
	frame = (Frame) {high_h - low_h + 1, high_w - low_w + 1, -low_h, -low_w};
	bytes = frame_bytes(&frame, c_out);
	phase_stride = panel_floats((size_t) (phase_of(0, s->kernel_h, s->stride_h, s->pad_h).taps
										  * phase_of(0, s->kernel_w, s->stride_w, s->pad_w).taps) * c_out,
								(size_t) s->c_in);
	TRY(cpu_workspace(be, WORKSPACE_IMAGE, bytes * (size_t) nt, &workspace, err));
	TRY(cpu_workspace(be, WORKSPACE_PACK_B, phase_stride * (size_t) phases * sizeof(float), (void **) &packed,
					  err));
	PARALLEL(nt)
	{
		float	   *image = (float *) ((char *) workspace + bytes * (size_t) thread_index());
		size_t		lo,
					hi,
					i;
		int32_t		p;

		thread_range((size_t) phases, 1, thread_index(), thread_count(), &lo, &hi);
		for (p = (int32_t) lo; p < (int32_t) hi; p++)
		{
			int32_t		phase_h = p / s->stride_w,
						phase_w = p % s->stride_w;

			DTYPE_SWITCH(dtype, D, pack_phase(s, w, phase_h, phase_w,
											  phase_of(phase_h, s->kernel_h, s->stride_h, s->pad_h),
											  phase_of(phase_w, s->kernel_w, s->stride_w, s->pad_w),
											  packed + phase_stride * (size_t) p, D));
		}
#pragma omp barrier
		thread_range(n, 1, thread_index(), thread_count(), &lo, &hi);
		for (i = lo; i < hi; i++)
		{
			fill_frame(&frame, c_out, const_element(dy, dtype, i * image_out(s)), s->h_out, s->w_out, dtype,
					   image);
			for (p = 0; p < phases; p++)
			{
				Phase		ph = phase_of(p / s->stride_w, s->kernel_h, s->stride_h, s->pad_h),
							pw = phase_of(p % s->stride_w, s->kernel_w, s->stride_w, s->pad_w);

				phase_gradient(s, &frame, image, ph, pw, packed + phase_stride * (size_t) p,
							   element(dx, dtype, i * image_in(s)), dtype);
			}
		}
	}
	return STATUS_OK;
}

/* dw (c_out, kh, kw c_in) += of one image; first: overwritten */
static void
weight_gradient(const Conv2dShape *s, const Frame *f, const float *x, const float *dy, float *dw, int first)
{
	size_t		c_out = (size_t) s->c_out,
				run = (size_t) (s->kernel_w * s->c_in),
				steps = (size_t) s->kernel_h * run,
				tiles = tile_count(c_out),
				t,
				j;
	int32_t		kh;
	TileInput	in = {
		.segments = (size_t) s->h_out,
		.steps = (size_t) s->w_out,
		.a_row = 1,
		.a_step = s->c_out,
		.a_segment = (ptrdiff_t) (s->w_out * s->c_out),
		.b_step = (ptrdiff_t) (s->stride_w * s->c_in),
		.b_segment = (ptrdiff_t) (s->stride_h * f->columns * s->c_in),
	};
	TileOutput	out = {
		.c_row = steps,.dtype = DTYPE_F32,.beta = first ? 0.0f : 1.0f,.bias = NULL,.act = ACT_NONE
	};

	for (t = 0; t < tiles; t++)
	{
		size_t		o = even_cut(c_out, t, tiles),
					next = even_cut(c_out, t + 1, tiles);

		in.a = dy + o;
		for (kh = 0; kh < s->kernel_h; kh++)
			for (j = 0; j < run; j += TILE_COLUMNS)
			{
				in.b = x + (size_t) kh * (size_t) (f->columns * s->c_in) + j;
				out.columns = min_size(TILE_COLUMNS, run - j);
				out.c = dw + o * steps + (size_t) kh * run + j;
				tile_run(next - o, &in, &out);
			}
	}
}

/*
 * The same with the roles exchanged, for few input channels: dw (kh, kw c_in, c_out), vectors along c_out.
 */
static void
weight_gradient_transposed(const Conv2dShape *s, const Frame *f, const float *x, const float *dy, float *dw,
						   int first)
{
	size_t		c_out = (size_t) s->c_out,
				run = (size_t) (s->kernel_w * s->c_in),
				tiles = tile_count(run),
				t,
				j;
	int32_t		kh;
	TileInput	in = {
		.segments = (size_t) s->h_out,
		.steps = (size_t) s->w_out,
		.a_row = 1,
		.a_step = (ptrdiff_t) (s->stride_w * s->c_in),
		.a_segment = (ptrdiff_t) (s->stride_h * f->columns * s->c_in),
		.b_step = s->c_out,
		.b_segment = (ptrdiff_t) (s->w_out * s->c_out),
	};
	TileOutput	out = {
		.c_row = c_out,.dtype = DTYPE_F32,.beta = first ? 0.0f : 1.0f,.bias = NULL,.act = ACT_NONE
	};

	for (kh = 0; kh < s->kernel_h; kh++)
		for (j = 0; j < c_out; j += TILE_COLUMNS)
		{
			in.b = dy + j;
			out.columns = min_size(TILE_COLUMNS, c_out - j);
			for (t = 0; t < tiles; t++)
			{
				size_t		r = even_cut(run, t, tiles),
							next = even_cut(run, t + 1, tiles);

				in.a = x + (size_t) kh * (size_t) (f->columns * s->c_in) + r;
				out.c = dw + ((size_t) kh * run + r) * c_out + j;
				tile_run(next - r, &in, &out);
			}
		}
}

/* total (c_out) += column sums of one image of dy (pixels, c_out) */
static void
add_bias_gradient(size_t pixels, size_t c_out, const float *dy, float *sum, double *total)
{
	size_t		i,
				j;

	memset(sum, 0, c_out * sizeof(float));
	for (i = 0; i < pixels; i++)
	{
		INDEPENDENT
		for (j = 0; j < c_out; j++)
			sum[j] += dy[i * c_out + j];
	}
	for (j = 0; j < c_out; j++)
		total[j] += (double) sum[j];
}

Status
op_conv2d_bwd_weight(Backend *be, const Conv2dShape *s, size_t n, const void *dy, const void *x, float *dw,
					 float *db, float beta, DType dtype, Error *err)
{
	size_t		c_in = (size_t) s->c_in,
				c_out = (size_t) s->c_out,
				pixels = (size_t) s->h_out * (size_t) s->w_out,
				steps = (size_t) s->kernel_h * (size_t) s->kernel_w * c_in,
				weights = steps * c_out;
	Frame		frame = input_frame(s),
				dy_frame = {s->h_out, s->w_out, 0, 0};
	/* Vectors run along kernel_w * c_in, unless that is short. */
	int			transposed = s->kernel_w * s->c_in < VECTOR_FLOATS;
	/* Whole tiles never read beyond an image of dy, so it can stay where it is. */
	int			copy_dy = dtype != DTYPE_F32 || (transposed && c_out % TILE_COLUMNS != 0);
	int			nt = threads_for(be, conv_ns(s, n)),
				parts = nt;
	size_t		x_bytes = frame_bytes(&frame, c_in),
				dy_bytes = copy_dy ? frame_bytes(&dy_frame, c_out) : 0,
				dw_bytes = round_up(weights * sizeof(float), CPU_ALIGNMENT),
				db_bytes = round_up(c_out * (sizeof(double) + sizeof(float)), CPU_ALIGNMENT),
				bytes = x_bytes + dy_bytes + dw_bytes + db_bytes;
	void	   *workspace;

	TRY(check_conv(s, dtype, err));
	ONEDNN_FIRST(be, dtype, onednn_conv2d_bwd_weight(be, s, n, dy, x, dw, db, beta, err));
	if (dtype == DTYPE_F32 && winograd_pays(s))
		return winograd_bwd_weight(be, nt, s, n, dy, x, dw, db, beta, err);
	TRY(cpu_workspace(be, WORKSPACE_IMAGE, bytes * (size_t) nt, &workspace, err));
	PARALLEL(nt)
	{
		char	   *mine = (char *) workspace + bytes * (size_t) thread_index();
		float	   *x_image = (float *) mine,
				   *dy_copy = (float *) (mine + x_bytes),
				   *my_dw = (float *) (mine + x_bytes + dy_bytes);
		double	   *my_db = (double *) (mine + x_bytes + dy_bytes + dw_bytes);
		size_t		lo,
					hi,
					i,
					j,
					t;

		thread_range(n, 1, thread_index(), thread_count(), &lo, &hi);
		memset(my_db, 0, c_out * sizeof(double));
		if (lo == hi)
			memset(my_dw, 0, weights * sizeof(float));
		for (i = lo; i < hi; i++)
		{
			const float *dy_image = dy_copy;

			fill_frame(&frame, c_in, const_element(x, dtype, i * image_in(s)), s->h, s->w, dtype, x_image);
			if (copy_dy)
				fill_frame(&dy_frame, c_out, const_element(dy, dtype, i * image_out(s)), s->h_out, s->w_out,
						   dtype, dy_copy);
			else
				dy_image = (const float *) dy + i * image_out(s);
			if (db != NULL)
				add_bias_gradient(pixels, c_out, dy_image, (float *) (my_db + c_out), my_db);
			if (transposed)
				weight_gradient_transposed(s, &frame, x_image, dy_image, my_dw, i == lo);
			else
				weight_gradient(s, &frame, x_image, dy_image, my_dw, i == lo);
		}
#pragma omp barrier
#pragma omp single
		parts = thread_count();
		/* The threads' sums are added in their order. */
		thread_range(weights, 16, thread_index(), thread_count(), &lo, &hi);
		for (i = lo; i < hi; i++)
		{
			size_t		from = transposed ? i % steps * c_out + i / steps : i;
			float		sum = 0;

			for (t = 0; t < (size_t) parts; t++)
				sum += ((const float *) ((char *) workspace + bytes * t + x_bytes + dy_bytes))[from];
			dw[i] = sum + (beta == 0.0f ? 0.0f : beta * dw[i]);
		}
		if (db != NULL && thread_index() == 0)
			for (j = 0; j < c_out; j++)
			{
				double		sum = 0;

				for (t = 0; t < (size_t) parts; t++)
					sum += ((const double *) ((char *) workspace + bytes * t + x_bytes + dy_bytes + dw_bytes))[j];
				db[j] = (float) sum + (beta == 0.0f ? 0.0f : beta * db[j]);
			}
	}
	return STATUS_OK;
}
