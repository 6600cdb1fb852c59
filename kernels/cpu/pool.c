/*
 * pool.c - max and average pooling of NHWC images.  Compiled once per instruction set.
 *
 * The innermost loop runs over channels, which are contiguous.
 */
#include "kernels/cpu/ops.h"
#include "kernels/cpu/simd.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* Estimate of the time for an element of a window. */
#define POOL_NS 0.15

/* Channels that a window is reduced for at a time. */
#define CHANNEL_BLOCK 64

#define ARGMAX_NONE 255

/* The part of a window that lies inside the image. */
typedef struct Window
{
	int32_t		top,			/* of the window, may be negative */
				left,
				h0,				/* kernel rows h0 .. h1 - 1 are inside */
				h1,
				w0,
				w1;
} Window;

static Window
window_at(const Conv2dShape *s, int32_t oh, int32_t ow)
{
	Window		v;

	v.top = oh * s->stride_h - s->pad_h;
	v.left = ow * s->stride_w - s->pad_w;
	v.h0 = v.top < 0 ? -v.top : 0;
	v.w0 = v.left < 0 ? -v.left : 0;
	v.h1 = s->h - v.top < s->kernel_h ? s->h - v.top : s->kernel_h;
	v.w1 = s->w - v.left < s->kernel_w ? s->w - v.left : s->kernel_w;
	return v;
}

static size_t
image_in(const Conv2dShape *s)
{
	return (size_t) s->h * (size_t) s->w * (size_t) s->c_in;
}

static size_t
image_out(const Conv2dShape *s)
{
	return (size_t) s->h_out * (size_t) s->w_out * (size_t) s->c_in;
}

/* Index of channel 0 of the window's element (kh, kw) in the image. */
static inline size_t
window_element(const Conv2dShape *s, const Window *v, int32_t kh, int32_t kw)
{
	return ((size_t) (v->top + kh) * (size_t) s->w + (size_t) (v->left + kw)) * (size_t) s->c_in;
}

static double
pool_ns(const Conv2dShape *s, size_t n)
{
	return (double) n * (double) image_out(s) * s->kernel_h * s->kernel_w * POOL_NS;
}

static Status
check_pool(const Conv2dShape *s, DType dtype, const char *operation, Error *err)
{
	TRY(cpu_check_dtype(dtype, operation, err));
	if (s->c_in != s->c_out)
		return error_set(err, STATUS_INTERNAL, "%s cannot change %d channels to %d", operation, (int) s->c_in,
						 (int) s->c_out);
	/* A window that lies wholly in the padding has no maximum; PyTorch has the same rule. */
	if (s->pad_h > s->kernel_h / 2 || s->pad_w > s->kernel_w / 2)
		return error_set(err, STATUS_INVALID, "padding of %s must be at most half of the window", operation);
	return STATUS_OK;
}

/*
 * One vector of channels of a window, of which rows x columns elements from tap first_tap on lie inside the image.
 * The sizes are constants for the usual window.
 */
ALWAYS_INLINE void
maxpool_fwd_vector(const void *x, size_t at, size_t row, size_t channels, const int32_t rows,
				   const int32_t columns, const int32_t first_tap, const int32_t kernel_w, const int relu,
				   void *y, uint8_t *argmax, size_t out, const DType dtype)
{
	Vector		best = vector_load_as(x, at, dtype);
	VectorInt	arg = (VectorInt) {0} + first_tap;
	int32_t		kh,
				kw;

	for (kh = 0; kh < rows; kh++)
		for (kw = 0; kw < columns; kw++)
		{
			Vector		value = vector_load_as(x, at + (size_t) kh * row + (size_t) kw * channels, dtype);
			/* a NaN wins */
			VectorInt	take = (VectorInt) (value > best) | (VectorInt) (value != value);

			best = vector_select(take, value, best);
			if (argmax != NULL)
				arg = vector_select_int(take, (VectorInt) {0} + (first_tap + kh * kernel_w + kw), arg);
		}
	if (relu)
	{
		VectorInt	dead = (VectorInt) (best <= (Vector) {0});

		best = (Vector) (~dead & (VectorInt) best);
		arg = dead | arg;		/* all bits set: ARGMAX_NONE once it is a byte */
	}
	vector_store_as(y, out, best, dtype);
	if (argmax != NULL)
		vector_store_bytes(argmax + out, arg);
}

/* The same for one channel. */
ALWAYS_INLINE void
maxpool_fwd_channel(const void *x, size_t at, size_t row, size_t channels, int32_t rows, int32_t columns,
					int32_t first_tap, int32_t kernel_w, const int relu, void *y, uint8_t *argmax, size_t out,
					const DType dtype)
{
	float		best = load(x, at, dtype);
	int32_t		arg = first_tap,
				kh,
				kw;

	for (kh = 0; kh < rows; kh++)
		for (kw = 0; kw < columns; kw++)
		{
			float		value = load(x, at + (size_t) kh * row + (size_t) kw * channels, dtype);

			if (value > best || value != value)
			{
				best = value;
				arg = first_tap + kh * kernel_w + kw;
			}
		}
	if (relu && best <= 0.0f)
	{
		best = 0.0f;
		arg = ARGMAX_NONE;
	}
	store(y, out, best, dtype);
	if (argmax != NULL)
		argmax[out] = (uint8_t) arg;
}

ALWAYS_INLINE void
maxpool_fwd_image(const Conv2dShape *s, const void *x, const int relu, void *y, uint8_t *argmax,
				  const DType dtype)
{
	size_t		channels = (size_t) s->c_in,
				row = (size_t) s->w * channels,
				vectors = channels / VECTOR_FLOATS * VECTOR_FLOATS,
				out = 0,
				c;
	int32_t		oh,
				ow;

	for (oh = 0; oh < s->h_out; oh++)
		for (ow = 0; ow < s->w_out; ow++)
		{
			Window		v = window_at(s, oh, ow);
			size_t		at = window_element(s, &v, v.h0, v.w0);
			int32_t		first = v.h0 * s->kernel_w + v.w0,
						rows = v.h1 - v.h0,
						columns = v.w1 - v.w0;

			if (s->kernel_h == 2 && s->kernel_w == 2 && rows == 2 && columns == 2)
				for (c = 0; c < vectors; c += VECTOR_FLOATS)
					maxpool_fwd_vector(x, at + c, row, channels, 2, 2, 0, 2, relu, y, argmax, out + c, dtype);
			else
				for (c = 0; c < vectors; c += VECTOR_FLOATS)
					maxpool_fwd_vector(x, at + c, row, channels, rows, columns, first, s->kernel_w, relu, y, argmax,
									   out + c, dtype);
			for (; c < channels; c++)
				maxpool_fwd_channel(x, at + c, row, channels, rows, columns, first, s->kernel_w, relu, y, argmax,
									out + c, dtype);
			out += channels;
		}
}

Status
op_maxpool2d_fwd(Backend *be, const Conv2dShape *s, size_t n, const void *x, int32_t relu, void *y,
				 uint8_t *argmax, DType dtype, Error *err)
{
	int			nt = threads_for(be, pool_ns(s, n));

	TRY(check_pool(s, dtype, "max pooling", err));
	if (argmax != NULL && s->kernel_h * s->kernel_w > ARGMAX_NONE)
		return error_set(err, STATUS_UNSUPPORTED, "max pooling with a window of more than %d elements is not supported",
						 ARGMAX_NONE);
	PARALLEL(nt)
	{
		size_t		lo,
					hi,
					i;

		thread_range(n, 1, thread_index(), thread_count(), &lo, &hi);
		for (i = lo; i < hi; i++)
		{
			const void *xi = const_element(x, dtype, i * image_in(s));
			void	   *yi = element(y, dtype, i * image_out(s));
			uint8_t    *ai = argmax == NULL ? NULL : argmax + i * image_out(s);

			if (relu && argmax != NULL)
				DTYPE_SWITCH(dtype, D, maxpool_fwd_image(s, xi, 1, yi, ai, D));
			else if (relu)
				DTYPE_SWITCH(dtype, D, maxpool_fwd_image(s, xi, 1, yi, NULL, D));
			else
				DTYPE_SWITCH(dtype, D, maxpool_fwd_image(s, xi, 0, yi, ai, D));
		}
	}
	return STATUS_OK;
}

/* dx (h, w, c) in fp32 += what flows back from an image's outputs */
ALWAYS_INLINE void
maxpool_bwd_add(const Conv2dShape *s, const void *dy, const uint8_t *argmax, float *dx, const DType dtype)
{
	size_t		channels = (size_t) s->c_in,
				c;
	int32_t		oh,
				ow,
				kh,
				kw;

	for (oh = 0; oh < s->h_out; oh++)
		for (ow = 0; ow < s->w_out; ow++)
		{
			Window		v = window_at(s, oh, ow);
			size_t		out = ((size_t) oh * (size_t) s->w_out + (size_t) ow) * channels;

			for (kh = v.h0; kh < v.h1; kh++)
				for (kw = v.w0; kw < v.w1; kw++)
				{
					float	   *d = dx + window_element(s, &v, kh, kw);
					uint8_t		tap = (uint8_t) (kh * s->kernel_w + kw);

					INDEPENDENT
					for (c = 0; c < channels; c++)
						d[c] += argmax[out + c] == tap ? load(dy, out + c, dtype) : 0.0f;
				}
		}
}

/* dx of tap (kh, kw) of every window in a row of outputs */
ALWAYS_INLINE void
maxpool_bwd_tap(size_t out, size_t count, size_t channels, size_t step, const void *dy, const uint8_t *argmax,
				int32_t tap, void *dx, size_t at, const DType dtype)
{
	size_t		vectors = channels / VECTOR_FLOATS * VECTOR_FLOATS,
				i,
				c;

	for (i = 0; i < count; i++)
	{
		for (c = 0; c < vectors; c += VECTOR_FLOATS)
		{
			VectorInt	hit = (VectorInt) (vector_load_bytes(argmax + out + c) == (VectorInt) {0} + tap);

			vector_store_as(dx, at + c, (Vector) (hit & (VectorInt) vector_load_as(dy, out + c, dtype)), dtype);
		}
		for (; c < channels; c++)
			store(dx, at + c, argmax[out + c] == tap ? load(dy, out + c, dtype) : 0.0f, dtype);
		out += channels;
		at += step;
	}
}

/* Windows do not overlap and cover everything: each element of dx is written once, row by row. */
ALWAYS_INLINE void
maxpool_bwd_write(const Conv2dShape *s, const void *dy, const uint8_t *argmax, void *dx, const DType dtype)
{
	size_t		channels = (size_t) s->c_in,
				columns = (size_t) s->w_out;
	int32_t		oh,
				kh,
				kw;

	for (oh = 0; oh < s->h_out; oh++)
		for (kh = 0; kh < s->kernel_h; kh++)
			for (kw = 0; kw < s->kernel_w; kw++)
				maxpool_bwd_tap((size_t) oh * columns * channels, columns, channels,
								(size_t) s->kernel_w * channels, dy, argmax, kh * s->kernel_w + kw, dx,
								((size_t) (oh * s->kernel_h + kh) * (size_t) s->w + (size_t) kw) * channels, dtype);
}

/* Do the windows cover every element of the image exactly once? */
static int
windows_tile(const Conv2dShape *s)
{
	return s->kernel_h == s->stride_h && s->kernel_w == s->stride_w && s->pad_h == 0 && s->pad_w == 0
		&& s->h_out * s->stride_h == s->h && s->w_out * s->stride_w == s->w;
}

ALWAYS_INLINE void
store_image(size_t count, const float *from, void *to, const DType dtype)
{
	size_t		i;

	for (i = 0; i < count; i++)
		store(to, i, from[i], dtype);
}

Status
op_maxpool2d_bwd(Backend *be, const Conv2dShape *s, size_t n, const void *dy, const uint8_t *argmax, void *dx,
				 DType dtype, Error *err)
{
	int			nt = threads_for(be, pool_ns(s, n));
	int			tile = windows_tile(s);
	size_t		scratch_bytes = round_up(image_in(s) * sizeof(float), CPU_ALIGNMENT);
	void	   *workspace;

	TRY(check_pool(s, dtype, "max pooling", err));
	TRY(cpu_workspace(be, WORKSPACE_IMAGE, scratch_bytes * (size_t) nt, &workspace, err));
	PARALLEL(nt)
	{
		float	   *scratch = (float *) ((char *) workspace + scratch_bytes * (size_t) thread_index());
		size_t		lo,
					hi,
					i;

		thread_range(n, 1, thread_index(), thread_count(), &lo, &hi);
		for (i = lo; i < hi; i++)
		{
			const void *dyi = const_element(dy, dtype, i * image_out(s));
			const uint8_t *ai = argmax + i * image_out(s);
			void	   *dxi = element(dx, dtype, i * image_in(s));

			if (tile)
			{
				DTYPE_SWITCH(dtype, D, maxpool_bwd_write(s, dyi, ai, dxi, D));
				continue;
			}
			memset(scratch, 0, image_in(s) * sizeof(float));
			DTYPE_SWITCH(dtype, D, maxpool_bwd_add(s, dyi, ai, scratch, D));
			DTYPE_SWITCH(dtype, D, store_image(image_in(s), scratch, dxi, D));
		}
	}
	return STATUS_OK;
}

ALWAYS_INLINE void
avgpool_fwd_image(const Conv2dShape *s, const void *x, void *y, const DType dtype)
{
	float		factor = 1.0f / (float) (s->kernel_h * s->kernel_w);
	size_t		channels = (size_t) s->c_in,
				c0,
				c;
	int32_t		oh,
				ow,
				kh,
				kw;

	for (oh = 0; oh < s->h_out; oh++)
		for (ow = 0; ow < s->w_out; ow++)
		{
			Window		v = window_at(s, oh, ow);
			size_t		out = ((size_t) oh * (size_t) s->w_out + (size_t) ow) * channels;

			for (c0 = 0; c0 < channels; c0 += CHANNEL_BLOCK)
			{
				size_t		count = min_size(CHANNEL_BLOCK, channels - c0);
				float		sum[CHANNEL_BLOCK] = {0};

				for (kh = v.h0; kh < v.h1; kh++)
					for (kw = v.w0; kw < v.w1; kw++)
					{
						size_t		at = window_element(s, &v, kh, kw) + c0;

						for (c = 0; c < count; c++)
							sum[c] += load(x, at + c, dtype);
					}
				for (c = 0; c < count; c++)
					store(y, out + c0 + c, sum[c] * factor, dtype);
			}
		}
}

Status
op_avgpool2d_fwd(Backend *be, const Conv2dShape *s, size_t n, const void *x, void *y, DType dtype, Error *err)
{
	int			nt = threads_for(be, pool_ns(s, n));

	TRY(check_pool(s, dtype, "average pooling", err));
	PARALLEL(nt)
	{
		size_t		lo,
					hi,
					i;

		thread_range(n, 1, thread_index(), thread_count(), &lo, &hi);
		for (i = lo; i < hi; i++)
			DTYPE_SWITCH(dtype, D, avgpool_fwd_image(s, const_element(x, D, i * image_in(s)),
													 element(y, D, i * image_out(s)), D));
	}
	return STATUS_OK;
}

ALWAYS_INLINE void
avgpool_bwd_add(const Conv2dShape *s, const void *dy, float *dx, const DType dtype)
{
	float		factor = 1.0f / (float) (s->kernel_h * s->kernel_w);
	size_t		channels = (size_t) s->c_in,
				c;
	int32_t		oh,
				ow,
				kh,
				kw;

	for (oh = 0; oh < s->h_out; oh++)
		for (ow = 0; ow < s->w_out; ow++)
		{
			Window		v = window_at(s, oh, ow);
			size_t		out = ((size_t) oh * (size_t) s->w_out + (size_t) ow) * channels;

			for (kh = v.h0; kh < v.h1; kh++)
				for (kw = v.w0; kw < v.w1; kw++)
				{
					float	   *d = dx + window_element(s, &v, kh, kw);

					INDEPENDENT
					for (c = 0; c < channels; c++)
						d[c] += load(dy, out + c, dtype) * factor;
				}
		}
}

Status
op_avgpool2d_bwd(Backend *be, const Conv2dShape *s, size_t n, const void *dy, void *dx, DType dtype, Error *err)
{
	int			nt = threads_for(be, pool_ns(s, n));
	size_t		scratch_bytes = round_up(image_in(s) * sizeof(float), CPU_ALIGNMENT);
	void	   *workspace;

	TRY(check_pool(s, dtype, "average pooling", err));
	TRY(cpu_workspace(be, WORKSPACE_IMAGE, scratch_bytes * (size_t) nt, &workspace, err));
	PARALLEL(nt)
	{
		float	   *scratch = (float *) ((char *) workspace + scratch_bytes * (size_t) thread_index());
		size_t		lo,
					hi,
					i;

		thread_range(n, 1, thread_index(), thread_count(), &lo, &hi);
		for (i = lo; i < hi; i++)
		{
			memset(scratch, 0, image_in(s) * sizeof(float));
			DTYPE_SWITCH(dtype, D, avgpool_bwd_add(s, const_element(dy, D, i * image_out(s)),
												   scratch, D));
			DTYPE_SWITCH(dtype, D, store_image(image_in(s), scratch, element(dx, D, i * image_in(s)), D));
		}
	}
	return STATUS_OK;
}
