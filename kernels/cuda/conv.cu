/*
 * conv.cu - convolutions: by cuDNN, or as matrix products.
 *
 * A 1 x 1 convolution of stride 1 is a matrix product as it stands.  Others become one by writing the windows out, a
 * row each, where cuDNN is missing or has no plan; some images at a time, so that the windows do not fill the device.
 *
 * cuDNN wants all tensors of one type.  In low precision it gets the bias rounded, and gives dw rounded, as PyTorch's
 * autocast does; the accumulation over micro-batches is in fp32.
 */
#include "kernels/cuda/dnn.h"
#include "kernels/cuda/image.h"
#include "kernels/cuda/linear.h"
#include "kernels/cuda/ops.h"

/* Bytes of windows at a time, unless one image has more. */
#define COLUMNS_BYTES ((size_t) 64 << 20)

static size_t
taps_of(const Conv2dShape *s)
{
	return (size_t) s->kernel_h * (size_t) s->kernel_w;
}

/* Values of a window. */
static size_t
window_size(const Conv2dShape *s)
{
	return taps_of(s) * (size_t) s->c_in;
}

static size_t
pixels_out(const Conv2dShape *s)
{
	return (size_t) s->h_out * (size_t) s->w_out;
}

static size_t
image_in(const Conv2dShape *s)
{
	return (size_t) s->h * (size_t) s->w * (size_t) s->c_in;
}

static const void *
at(const void *base, DType dtype, size_t i)
{
	return (const char *) base + i * dtype_bytes(dtype);
}

static int
is_product(const Conv2dShape *s)
{
	return s->kernel_h == 1 && s->kernel_w == 1 && s->stride_h == 1 && s->stride_w == 1 && s->pad_h == 0
		&& s->pad_w == 0;
}

/* Images whose windows, in a type, are written out at a time. */
static size_t
images_at_a_time(const Conv2dShape *s, size_t n, DType dtype)
{
	size_t		bytes = pixels_out(s) * window_size(s) * dtype_bytes(dtype);

	return bytes >= COLUMNS_BYTES ? 1 : min_size(n, COLUMNS_BYTES / bytes);
}

/* columns (n h_out w_out, taps, c_in): every window of x, zeros where it lies in the padding */
template <DType D>
static __global__ void
windows_kernel(Conv2dShape s, size_t rows, int aligned, const void *x, void *columns)
{
	uint32_t	taps = (uint32_t) (s.kernel_h * s.kernel_w);
	size_t		channels = (size_t) s.c_in,
				c = CHANNEL,
				count = c < channels ? channels - c : 0;

	for (size_t i = PIXEL_INDEX; count > 0 && i < rows * taps; i += PIXEL_COUNT)
	{
		uint32_t	tap;
		Pixel		out = pixel_at(divide(i, taps, &tap), s.h_out, s.w_out);
		int32_t		row = out.row * s.stride_h - s.pad_h + (int32_t) tap / s.kernel_w,
					column = out.column * s.stride_w - s.pad_w + (int32_t) tap % s.kernel_w;
		float		v[4] = {0.0f, 0.0f, 0.0f, 0.0f};

		if (row >= 0 && row < s.h && column >= 0 && column < s.w)
			load4<D>(x, input_at(&s, out.image, row, column) + c, count, aligned, v);
		store4<D>(columns, i * channels + c, count, aligned, v);
	}
}

static Status
write_windows(Backend *be, const Conv2dShape *s, size_t n, const void *x, void *columns, DType dtype, Error *err)
{
	size_t		rows = n * pixels_out(s);
	dim3		block = column_block((size_t) s->c_in, 4);
	int			aligned = s->c_in % 4 == 0 && aligned4(x, dtype) && aligned4(columns, dtype);

	DTYPE_SWITCH(dtype, D, LAUNCH((windows_kernel<D>), pixel_grid(be, block, rows * taps_of(s), (size_t) s->c_in), block,
								  0, be->stream, *s, rows, aligned, x, columns));
	return cuda_launched("a convolution", err);
}

/* dx from the gradients of the windows: a pixel adds up what the windows that hold it have for it. */
template <DType D>
static __global__ void
gather_windows_kernel(Conv2dShape s, size_t pixels, int aligned, const float *columns, void *dx)
{
	size_t		channels = (size_t) s.c_in,
				taps = (size_t) (s.kernel_h * s.kernel_w),
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
				size_t		out = (in.image * (size_t) s.h_out + (size_t) row) * (size_t) s.w_out + (size_t) column,
							tap = (size_t) ((in.row + s.pad_h - row * s.stride_h) * s.kernel_w
											+ (in.column + s.pad_w - column * s.stride_w));
				float		v[4];

				load4<DTYPE_F32>(columns, (out * taps + tap) * channels + c, count, aligned, v);
#pragma unroll
				for (int k = 0; k < 4; k++)
					sum[k] += v[k];
			}
		store4<D>(dx, i * channels + c, count, aligned, sum);
	}
}

static Status
gather_windows(Backend *be, const Conv2dShape *s, size_t n, const float *columns, void *dx, DType dtype, Error *err)
{
	size_t		pixels = n * (size_t) s->h * (size_t) s->w;
	dim3		block = column_block((size_t) s->c_in, 4);
	int			aligned = s->c_in % 4 == 0 && aligned4(columns, DTYPE_F32) && aligned4(dx, dtype);

	DTYPE_SWITCH(dtype, D, LAUNCH((gather_windows_kernel<D>), pixel_grid(be, block, pixels, (size_t) s->c_in), block, 0,
								  be->stream, *s, pixels, aligned, columns, dx));
	return cuda_launched("a convolution", err);
}

/* dw (n) = beta dw + what cuDNN has computed */
template <DType D>
static __global__ void
accumulate_kernel(size_t n, int aligned, const void *computed, float *dw, float beta)
{
	for (size_t i = THREAD_INDEX * 4; i < n; i += THREAD_COUNT * 4)
	{
		float		v[4],
					w[4];

		load4<D>(computed, i, n - i, aligned, v);
		if (beta != 0.0f)
		{
			load4<DTYPE_F32>(dw, i, n - i, aligned, w);
#pragma unroll
			for (int k = 0; k < 4; k++)
				v[k] += beta * w[k];
		}
		store4<DTYPE_F32>(dw, i, n - i, aligned, v);
	}
}

static Status
accumulate(Backend *be, size_t n, const void *computed, float *dw, float beta, DType dtype, Error *err)
{
	int			aligned = aligned4(computed, dtype) && aligned4(dw, DTYPE_F32);

	DTYPE_SWITCH(dtype, D, LAUNCH((accumulate_kernel<D>), grid_for(be, ceil_div(n, 4 * BLOCK)), BLOCK, 0, be->stream, n,
								  aligned, computed, dw, beta));
	return cuda_launched("a convolution", err);
}

/* Filled as bytes are compared: no holes. */
static DnnConvolution
convolution_of(DnnOperation operation, const Conv2dShape *s, size_t n, DType dtype)
{
	DnnConvolution convolution;

	memset(&convolution, 0, sizeof(convolution));
	convolution.n = n;
	convolution.shape = *s;
	convolution.operation = operation;
	convolution.dtype = dtype;
	return convolution;
}

static Status
conv_fwd_windows(Backend *be, const Conv2dShape *s, size_t n, const void *x, const void *w, const float *b,
				 Activation act, void *y, DType dtype, Error *err)
{
	size_t		each = images_at_a_time(s, n, dtype),
				outputs = (size_t) s->c_out,
				i;
	void	   *columns;

	TRY(cuda_workspace(be, WORKSPACE_COLUMNS, each * pixels_out(s) * window_size(s) * dtype_bytes(dtype), &columns,
					   err));
	for (i = 0; i < n; i += each)
	{
		size_t		images = min_size(each, n - i),
					rows = images * pixels_out(s);

		TRY(write_windows(be, s, images, at(x, dtype, i * image_in(s)), columns, dtype, err));
		TRY(op_linear_fwd(be, rows, outputs, window_size(s), columns, w, b, act,
						  (void *) at(y, dtype, i * pixels_out(s) * outputs), dtype, dtype, err));
	}
	return STATUS_OK;
}

Status
op_conv2d_fwd(Backend *be, const Conv2dShape *s, size_t n, const void *x, const void *w, const float *b,
			  Activation act, void *y, DType dtype, Error *err)
{
	DnnConvolution convolution = convolution_of(DNN_FORWARD, s, n, dtype);
	DnnTensors	tensors = {x, w, y, b};
	struct DnnPlan *plan;

	TRY(cuda_check_dtype(dtype, "a convolution", err));
	if (act != ACT_NONE && act != ACT_RELU)
		return error_set(err, STATUS_INTERNAL, "a convolution cannot apply activation %d", (int) act);
	if (is_product(s))
		return op_linear_fwd(be, n * pixels_out(s), (size_t) s->c_out, (size_t) s->c_in, x, w, b, act, y, dtype, dtype,
							 err);
	convolution.bias = b != NULL;
	convolution.relu = act == ACT_RELU;
	if (b != NULL && dtype != DTYPE_F32)
	{
		void	   *rounded;

		TRY(cuda_workspace(be, WORKSPACE_REDUCE, (size_t) s->c_out * dtype_bytes(dtype), &rounded, err));
		tensors.b = rounded;
	}
	TRY(dnn_plan(be, &convolution, &tensors, &plan, err));
	if (plan == NULL)
		return conv_fwd_windows(be, s, n, x, w, b, act, y, dtype, err);
	if (tensors.b != b)
		TRY(op_cast(be, (size_t) s->c_out, b, (void *) tensors.b, dtype, err));
	return dnn_run(be, plan, &tensors, err);
}

static Status
conv_bwd_data_windows(Backend *be, const Conv2dShape *s, size_t n, const void *dy, const void *w, void *dx,
					  DType dtype, Error *err)
{
	size_t		each = images_at_a_time(s, n, DTYPE_F32),
				outputs = (size_t) s->c_out,
				i;
	void	   *columns;

	TRY(cuda_workspace(be, WORKSPACE_COLUMNS, each * pixels_out(s) * window_size(s) * sizeof(float), &columns, err));
	for (i = 0; i < n; i += each)
	{
		size_t		images = min_size(each, n - i);
		Product		product = {images * pixels_out(s), window_size(s), outputs, 0, 0, dtype, DTYPE_F32, 0.0f, 0, 0};

		TRY(matmul(be, &product, at(dy, dtype, i * pixels_out(s) * outputs), w, NULL, columns, err));
		TRY(gather_windows(be, s, images, (const float *) columns, (void *) at(dx, dtype, i * image_in(s)), dtype,
						   err));
	}
	return STATUS_OK;
}

Status
op_conv2d_bwd_data(Backend *be, const Conv2dShape *s, size_t n, const void *dy, const void *w, void *dx, DType dtype,
				   Error *err)
{
	DnnConvolution convolution = convolution_of(DNN_BACKWARD_DATA, s, n, dtype);
	DnnTensors	tensors = {dx, w, dy, NULL};
	struct DnnPlan *plan;

	TRY(cuda_check_dtype(dtype, "a convolution", err));
	if (is_product(s))
		return op_linear_bwd_data(be, n * pixels_out(s), (size_t) s->c_out, (size_t) s->c_in, dy, w, dx, dtype, err);
	TRY(dnn_plan(be, &convolution, &tensors, &plan, err));
	if (plan == NULL)
		return conv_bwd_data_windows(be, s, n, dy, w, dx, dtype, err);
	return dnn_run(be, plan, &tensors, err);
}

static Status
conv_bwd_weight_windows(Backend *be, const Conv2dShape *s, size_t n, const void *dy, const void *x, float *dw,
						float beta, DType dtype, Error *err)
{
	size_t		each = images_at_a_time(s, n, dtype),
				outputs = (size_t) s->c_out,
				i;
	void	   *columns;

	TRY(cuda_workspace(be, WORKSPACE_COLUMNS, each * pixels_out(s) * window_size(s) * dtype_bytes(dtype), &columns,
					   err));
	for (i = 0; i < n; i += each)
	{
		size_t		images = min_size(each, n - i);

		TRY(write_windows(be, s, images, at(x, dtype, i * image_in(s)), columns, dtype, err));
		TRY(op_linear_bwd_weight(be, images * pixels_out(s), outputs, window_size(s),
								 at(dy, dtype, i * pixels_out(s) * outputs), columns, dw, NULL, i == 0 ? beta : 1.0f,
								 dtype, err));
	}
	return STATUS_OK;
}

Status
op_conv2d_bwd_weight(Backend *be, const Conv2dShape *s, size_t n, const void *dy, const void *x, float *dw, float *db,
					 float beta, DType dtype, Error *err)
{
	DnnConvolution convolution = convolution_of(DNN_BACKWARD_WEIGHT, s, n, dtype);
	size_t		weights = (size_t) s->c_out * window_size(s);
	DnnTensors	tensors = {x, dw, dy, NULL};
	struct DnnPlan *plan;
	void	   *computed;

	TRY(cuda_check_dtype(dtype, "a convolution", err));
	if (is_product(s))
		return op_linear_bwd_weight(be, n * pixels_out(s), (size_t) s->c_out, (size_t) s->c_in, dy, x, dw, db, beta,
									dtype, err);
	if (dtype != DTYPE_F32 || beta != 0.0f)
	{
		TRY(cuda_workspace(be, WORKSPACE_PRODUCT, weights * dtype_bytes(dtype), &computed, err));
		tensors.w = computed;
	}
	TRY(dnn_plan(be, &convolution, &tensors, &plan, err));
	if (plan == NULL)
		TRY(conv_bwd_weight_windows(be, s, n, dy, x, dw, beta, dtype, err));
	else
	{
		TRY(dnn_run(be, plan, &tensors, err));
		if (tensors.w != dw)
			TRY(accumulate(be, weights, tensors.w, dw, beta, dtype, err));
	}
	if (db != NULL)
		TRY(column_sums(be, n * pixels_out(s), (size_t) s->c_out, dy, db, beta, dtype, err));
	return STATUS_OK;
}
