/*
 * image.h - windows over NHWC images.
 *
 * Threads of a block lie as in columns.h: x takes channels, in groups of four, and y takes pixels.
 */
#ifndef PGT_CUDA_IMAGE_H
#define PGT_CUDA_IMAGE_H

#include "kernels/cuda/columns.h"

/* The thread's first channel, and how many of its four exist. */
#define CHANNEL (((size_t) blockIdx.y * blockDim.x + threadIdx.x) * 4)

/* The thread's number among those that take pixels, and their number. */
#define PIXEL_INDEX ((size_t) blockIdx.x * blockDim.y + threadIdx.y)
#define PIXEL_COUNT ((size_t) gridDim.x * blockDim.y)

/* Blocks for pixels of so many channels. */
static inline dim3
pixel_grid(const Backend *be, dim3 block, size_t pixels, size_t channels)
{
	return dim3(grid_for(be, ceil_div(pixels, block.y)), (unsigned) ceil_div(channels, (size_t) block.x * 4));
}

/* A pixel of an image. */
typedef struct Pixel
{
	size_t		image;
	int32_t		row,
				column;
} Pixel;

DEVICE_INLINE Pixel
pixel_at(size_t index, int32_t height, int32_t width)
{
	uint32_t	row,
				column;
	size_t		rest = divide(index, (uint32_t) width, &column),
				image = divide(rest, (uint32_t) height, &row);
	Pixel		pixel = {image, (int32_t) row, (int32_t) column};

	return pixel;
}

/* Index of channel 0 of a pixel of the input. */
DEVICE_INLINE size_t
input_at(const Conv2dShape *s, size_t image, int32_t row, int32_t column)
{
	return ((image * (size_t) s->h + (size_t) row) * (size_t) s->w + (size_t) column) * (size_t) s->c_in;
}

/* The part of a window that lies inside the image: taps h0 .. h1 - 1 and w0 .. w1 - 1. */
typedef struct Window
{
	int32_t		top,			/* of the window, may be negative */
				left,
				h0,
				h1,
				w0,
				w1;
} Window;

DEVICE_INLINE Window
window_at(const Conv2dShape *s, int32_t row, int32_t column)
{
	Window		v;

	v.top = row * s->stride_h - s->pad_h;
	v.left = column * s->stride_w - s->pad_w;
	v.h0 = v.top < 0 ? -v.top : 0;
	v.w0 = v.left < 0 ? -v.left : 0;
	v.h1 = s->h - v.top < s->kernel_h ? s->h - v.top : s->kernel_h;
	v.w1 = s->w - v.left < s->kernel_w ? s->w - v.left : s->kernel_w;
	return v;
}

/* The outputs first .. last whose windows hold a pixel, along one side. */
DEVICE_INLINE void
outputs_over(int32_t at, int32_t pad, int32_t kernel, int32_t stride, int32_t outputs, int32_t *first, int32_t *last)
{
	int32_t		end = at + pad,
				begin = end - kernel + 1;

	*first = begin <= 0 ? 0 : (begin + stride - 1) / stride;
	*last = end / stride < outputs - 1 ? end / stride : outputs - 1;
}

#endif							/* PGT_CUDA_IMAGE_H */
