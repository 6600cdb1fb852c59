/*
 * pool.c - max and average pooling of NHWC images.  Compiled once per instruction set.
 *
 * The innermost loop runs over channels, which are contiguous.
 */
#include "kernels/cpu/element.h"
#include "kernels/cpu/ops.h"

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

ALWAYS_INLINE void
maxpool_fwd_window(const Conv2dShape *s, const Window *v, size_t c0, size_t count, const void *x,
				   const int relu, void *y, uint8_t *argmax, const DType dtype)
{
	float		best[CHANNEL_BLOCK];
	uint8_t		arg[CHANNEL_BLOCK];
	int32_t		kh,
				kw;
	size_t		c;

	for (c = 0; c < count; c++)
	{
		best[c] = -INFINITY;
		arg[c] = (uint8_t) (v->h0 * s->kernel_w + v->w0);
	}
	for (kh = v->h0; kh < v->h1; kh++)
		for (kw = v->w0; kw < v->w1; kw++)
		{
			size_t		at = window_element(s, v, kh, kw) + c0;
			uint8_t		tap = (uint8_t) (kh * s->kernel_w + kw);

			for (c = 0; c < count; c++)
			{
				float		value = load(x, at + c, dtype);
				/* a NaN wins */
				int			take = (value > best[c]) | (value != value);

				best[c] = take ? value : best[c];
				arg[c] = take ? tap : arg[c];
			}
		}
	for (c = 0; c < count; c++)
	{
		int			dead = relu && best[c] <= 0.0f;

		store(y, c0 + c, dead ? 0.0f : best[c], dtype);
		if (argmax != NULL)
			argmax[c0 + c] = dead ? ARGMAX_NONE : arg[c];
	}
}

ALWAYS_INLINE void
maxpool_fwd_image(const Conv2dShape *s, const void *x, const int relu, void *y, uint8_t *argmax,
				  const DType dtype)
{
	size_t		channels = (size_t) s->c_in,
				c0;
	int32_t		oh,
				ow;

	for (oh = 0; oh < s->h_out; oh++)
		for (ow = 0; ow < s->w_out; ow++)
		{
			Window		v = window_at(s, oh, ow);
			size_t		out = ((size_t) oh * (size_t) s->w_out + (size_t) ow) * channels;

			for (c0 = 0; c0 < channels; c0 += CHANNEL_BLOCK)
				maxpool_fwd_window(s, &v, c0, min_size(CHANNEL_BLOCK, channels - c0), x, relu,
								   element(y, dtype, out), argmax == NULL ? NULL : argmax + out, dtype);
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

			if (relu)
				DTYPE_SWITCH(dtype, D, maxpool_fwd_image(s, xi, 1, yi, ai, D));
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

/* Windows do not overlap: every element of dx that a window covers is written once. */
ALWAYS_INLINE void
maxpool_bwd_write(const Conv2dShape *s, const void *dy, const uint8_t *argmax, void *dx, const DType dtype)
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
					size_t		at = window_element(s, &v, kh, kw);
					uint8_t		tap = (uint8_t) (kh * s->kernel_w + kw);

					INDEPENDENT
					for (c = 0; c < channels; c++)
						store(dx, at + c, argmax[out + c] == tap ? load(dy, out + c, dtype) : 0.0f, dtype);
				}
		}
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
