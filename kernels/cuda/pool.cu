/*
 * pool.cu - max and average pooling of NHWC images.
 *
 * The backward passes gather: a pixel looks at the windows that hold it, in a fixed order, so nothing is added
 * atomically.
 */
#include "kernels/cuda/image.h"
#include "kernels/cuda/ops.h"

#define ARGMAX_NONE 255

static Status
check_pool(const Conv2dShape *s, DType dtype, const char *operation, Error *err)
{
	TRY(cuda_check_dtype(dtype, operation, err));
	if (s->c_in != s->c_out)
		return error_set(err, STATUS_INTERNAL, "%s cannot change %d channels to %d", operation, (int) s->c_in,
						 (int) s->c_out);
	/* A window that lies wholly in the padding has no maximum; PyTorch has the same rule. */
	if (s->pad_h > s->kernel_h / 2 || s->pad_w > s->kernel_w / 2)
		return error_set(err, STATUS_INVALID, "padding of %s must be at most half of the window", operation);
	return STATUS_OK;
}

static int
channels_aligned(const Conv2dShape *s, const void *x, const void *y, DType dtype)
{
	return s->c_in % 4 == 0 && aligned4(x, dtype) && aligned4(y, dtype);
}

/* Four bytes as load4() and store4() do it. */
DEVICE_INLINE void
load_bytes(const uint8_t *p, size_t i, size_t count, int aligned, int32_t v[4])
{
	if (aligned && count >= 4)
	{
		uchar4		u = *(const uchar4 *) (p + i);

		v[0] = u.x;
		v[1] = u.y;
		v[2] = u.z;
		v[3] = u.w;
	}
	else
	{
#pragma unroll
		for (int k = 0; k < 4; k++)
			v[k] = (size_t) k < count ? p[i + (size_t) k] : ARGMAX_NONE;
	}
}

DEVICE_INLINE void
store_bytes(uint8_t *p, size_t i, size_t count, int aligned, const int32_t v[4])
{
	if (aligned && count >= 4)
	{
		uchar4		u = {(uint8_t) v[0], (uint8_t) v[1], (uint8_t) v[2], (uint8_t) v[3]};

		*(uchar4 *) (p + i) = u;
	}
	else
	{
#pragma unroll
		for (int k = 0; k < 4; k++)
			if ((size_t) k < count)
				p[i + (size_t) k] = (uint8_t) v[k];
	}
}

template <DType D>
static __global__ void
maxpool_fwd_kernel(Conv2dShape s, size_t pixels, int aligned, int bytes_aligned, const void *x, int relu, void *y,
				   uint8_t *argmax)
{
	size_t		channels = (size_t) s.c_in,
				c = CHANNEL,
				count = c < channels ? channels - c : 0;

	for (size_t i = PIXEL_INDEX; count > 0 && i < pixels; i += PIXEL_COUNT)
	{
		Pixel		out = pixel_at(i, s.h_out, s.w_out);
		Window		v = window_at(&s, out.row, out.column);
		float		best[4];
		int32_t		arg[4],
					first = v.h0 * s.kernel_w + v.w0;

		load4<D>(x, input_at(&s, out.image, v.top + v.h0, v.left + v.w0) + c, count, aligned, best);
#pragma unroll
		for (int k = 0; k < 4; k++)
			arg[k] = first;
		for (int32_t kh = v.h0; kh < v.h1; kh++)
			for (int32_t kw = v.w0; kw < v.w1; kw++)
			{
				float		value[4];

				load4<D>(x, input_at(&s, out.image, v.top + kh, v.left + kw) + c, count, aligned, value);
#pragma unroll
				for (int k = 0; k < 4; k++)
					/* a NaN wins */
					if (value[k] > best[k] || value[k] != value[k])
					{
						best[k] = value[k];
						arg[k] = kh * s.kernel_w + kw;
					}
			}
#pragma unroll
		for (int k = 0; k < 4; k++)
			if (relu && best[k] <= 0.0f)
			{
				best[k] = 0.0f;
				arg[k] = ARGMAX_NONE;
			}
		store4<D>(y, i * channels + c, count, aligned, best);
		if (argmax != NULL)
			store_bytes(argmax, i * channels + c, count, bytes_aligned, arg);
	}
}

Status
op_maxpool2d_fwd(Backend *be, const Conv2dShape *s, size_t n, const void *x, int32_t relu, void *y, uint8_t *argmax,
				 DType dtype, Error *err)
{
	size_t		pixels = n * (size_t) s->h_out * (size_t) s->w_out;
	dim3		block = column_block((size_t) s->c_in, 4);

	TRY(check_pool(s, dtype, "max pooling", err));
	if (argmax != NULL && s->kernel_h * s->kernel_w > ARGMAX_NONE)
		return error_set(err, STATUS_UNSUPPORTED, "max pooling with a window of more than %d elements is not supported",
						 ARGMAX_NONE);
	DTYPE_SWITCH(dtype, D, LAUNCH((maxpool_fwd_kernel<D>), pixel_grid(be, block, pixels, (size_t) s->c_in), block, 0,
								  be->stream, *s, pixels, channels_aligned(s, x, y, dtype),
								  s->c_in % 4 == 0 && (uintptr_t) argmax % 4 == 0, x, relu, y, argmax));
	return cuda_launched("max pooling", err);
}

template <DType D>
static __global__ void
maxpool_bwd_kernel(Conv2dShape s, size_t pixels, int aligned, int bytes_aligned, const void *dy,
				   const uint8_t *argmax, void *dx)
{
	size_t		channels = (size_t) s.c_in,
				c = CHANNEL,
				count = c < channels ? channels - c : 0;

	for (size_t i = PIXEL_INDEX; count > 0 && i < pixels; i += PIXEL_COUNT)
	{
		Pixel		in = pixel_at(i, s.h, s.w);
		float		sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
		int32_t		row,
					row_last,
					column_first,
					column_last;

		outputs_over(in.row, s.pad_h, s.kernel_h, s.stride_h, s.h_out, &row, &row_last);
		outputs_over(in.column, s.pad_w, s.kernel_w, s.stride_w, s.w_out, &column_first, &column_last);
		for (; row <= row_last; row++)
			for (int32_t column = column_first; column <= column_last; column++)
			{
				size_t		out = ((in.image * (size_t) s.h_out + (size_t) row) * (size_t) s.w_out + (size_t) column)
					* channels + c;
				int32_t		tap = (in.row + s.pad_h - row * s.stride_h) * s.kernel_w
					+ (in.column + s.pad_w - column * s.stride_w),
							arg[4];
				float		d[4];

				load_bytes(argmax, out, count, bytes_aligned, arg);
				load4<D>(dy, out, count, aligned, d);
#pragma unroll
				for (int k = 0; k < 4; k++)
					sum[k] += arg[k] == tap ? d[k] : 0.0f;
			}
		store4<D>(dx, i * channels + c, count, aligned, sum);
	}
}

Status
op_maxpool2d_bwd(Backend *be, const Conv2dShape *s, size_t n, const void *dy, const uint8_t *argmax, void *dx,
				 DType dtype, Error *err)
{
	size_t		pixels = n * (size_t) s->h * (size_t) s->w;
	dim3		block = column_block((size_t) s->c_in, 4);

	TRY(check_pool(s, dtype, "max pooling", err));
	DTYPE_SWITCH(dtype, D, LAUNCH((maxpool_bwd_kernel<D>), pixel_grid(be, block, pixels, (size_t) s->c_in), block, 0,
								  be->stream, *s, pixels, channels_aligned(s, dy, dx, dtype),
								  s->c_in % 4 == 0 && (uintptr_t) argmax % 4 == 0, dy, argmax, dx));
	return cuda_launched("max pooling", err);
}

template <DType D>
static __global__ void
avgpool_fwd_kernel(Conv2dShape s, size_t pixels, int aligned, const void *x, void *y)
{
	size_t		channels = (size_t) s.c_in,
				c = CHANNEL,
				count = c < channels ? channels - c : 0;
	float		factor = 1.0f / (float) (s.kernel_h * s.kernel_w);

	for (size_t i = PIXEL_INDEX; count > 0 && i < pixels; i += PIXEL_COUNT)
	{
		Pixel		out = pixel_at(i, s.h_out, s.w_out);
		Window		v = window_at(&s, out.row, out.column);
		float		sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};

		for (int32_t kh = v.h0; kh < v.h1; kh++)
			for (int32_t kw = v.w0; kw < v.w1; kw++)
			{
				float		value[4];

				load4<D>(x, input_at(&s, out.image, v.top + kh, v.left + kw) + c, count, aligned, value);
#pragma unroll
				for (int k = 0; k < 4; k++)
					sum[k] += value[k];
			}
#pragma unroll
		for (int k = 0; k < 4; k++)
			sum[k] *= factor;
		store4<D>(y, i * channels + c, count, aligned, sum);
	}
}

Status
op_avgpool2d_fwd(Backend *be, const Conv2dShape *s, size_t n, const void *x, void *y, DType dtype, Error *err)
{
	size_t		pixels = n * (size_t) s->h_out * (size_t) s->w_out;
	dim3		block = column_block((size_t) s->c_in, 4);

	TRY(check_pool(s, dtype, "average pooling", err));
	DTYPE_SWITCH(dtype, D, LAUNCH((avgpool_fwd_kernel<D>), pixel_grid(be, block, pixels, (size_t) s->c_in), block, 0,
								  be->stream, *s, pixels, channels_aligned(s, x, y, dtype), x, y));
	return cuda_launched("average pooling", err);
}

template <DType D>
static __global__ void
avgpool_bwd_kernel(Conv2dShape s, size_t pixels, int aligned, const void *dy, void *dx)
{
	size_t		channels = (size_t) s.c_in,
				c = CHANNEL,
				count = c < channels ? channels - c : 0;
	float		factor = 1.0f / (float) (s.kernel_h * s.kernel_w);

	for (size_t i = PIXEL_INDEX; count > 0 && i < pixels; i += PIXEL_COUNT)
	{
		Pixel		in = pixel_at(i, s.h, s.w);
		float		sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
		int32_t		row,
					row_last,
					column_first,
					column_last;

		outputs_over(in.row, s.pad_h, s.kernel_h, s.stride_h, s.h_out, &row, &row_last);
		outputs_over(in.column, s.pad_w, s.kernel_w, s.stride_w, s.w_out, &column_first, &column_last);
		for (; row <= row_last; row++)
			for (int32_t column = column_first; column <= column_last; column++)
			{
				float		d[4];

				load4<D>(dy, ((in.image * (size_t) s.h_out + (size_t) row) * (size_t) s.w_out + (size_t) column)
						 * channels + c, count, aligned, d);
#pragma unroll
				for (int k = 0; k < 4; k++)
					sum[k] += d[k];
			}
#pragma unroll
		for (int k = 0; k < 4; k++)
			sum[k] *= factor;
		store4<D>(dx, i * channels + c, count, aligned, sum);
	}
}

Status
op_avgpool2d_bwd(Backend *be, const Conv2dShape *s, size_t n, const void *dy, void *dx, DType dtype, Error *err)
{
	size_t		pixels = n * (size_t) s->h * (size_t) s->w;
	dim3		block = column_block((size_t) s->c_in, 4);

	TRY(check_pool(s, dtype, "average pooling", err));
	DTYPE_SWITCH(dtype, D, LAUNCH((avgpool_bwd_kernel<D>), pixel_grid(be, block, pixels, (size_t) s->c_in), block, 0,
								  be->stream, *s, pixels, channels_aligned(s, dy, dx, dtype), dy, dx));
	return cuda_launched("average pooling", err);
}
