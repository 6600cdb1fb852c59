/*
 * dnn_run.cpp - what a graph of cuDNN operations computes: one convolution, forward with pointwise operations behind it,
 * or backward.
 *
 * A convolution is a matrix product over the windows of its input, written out image by image.
 */
#include "regress/cudasim/dnn.h"
#include "regress/cudasim/gemm.h"

#include <algorithm>
#include <cstring>

namespace sim
{

/* The parts of a convolution, whichever way it goes. */
struct Convolution
{
	Tensor		x,
				w,
				y;
	int64_t		pad[2],
				stride[2],
				dilation[2];
	float		alpha,
				beta;

	int64_t		outputs() const { return y.size[2] * y.size[3]; }
	int64_t		window() const { return w.size[1] * w.size[2] * w.size[3]; }
};

bool
tensor_of(const Descriptor &d, Tensor *t)
{
	int64_t type = d.integer(CUDNN_ATTR_TENSOR_DATA_TYPE);

	if (d.values.at(CUDNN_ATTR_TENSOR_DIMENSIONS).count != DIMENSIONS)
		return false;
	t->uid = d.integer(CUDNN_ATTR_TENSOR_UNIQUE_ID);
	t->type = type == CUDNN_DATA_FLOAT ? Number::f32 : type == CUDNN_DATA_BFLOAT16 ? Number::bf16
		: type == CUDNN_DATA_HALF ? Number::f16 : Number::none;
	t->alignment = d.integer(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
	t->is_virtual = d.has(CUDNN_ATTR_TENSOR_IS_VIRTUAL) && d.integer(CUDNN_ATTR_TENSOR_IS_VIRTUAL) != 0;
	for (int i = 0; i < DIMENSIONS; i++)
	{
		t->size[i] = d.integer(CUDNN_ATTR_TENSOR_DIMENSIONS, i);
		t->step[i] = d.integer(CUDNN_ATTR_TENSOR_STRIDES, i);
	}
	return t->type != Number::none;
}

static bool
convolution_of(const Descriptor &op, Convolution *c)
{
	const Descriptor *conv,
			   *x,
			   *w,
			   *y;

	switch (op.type)
	{
		case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
			conv = op.part(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC);
			x = op.part(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X);
			w = op.part(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W);
			y = op.part(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y);
			c->alpha = (float) op.real(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 1);
			c->beta = (float) op.real(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 0);
			break;
		case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
			conv = op.part(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC);
			x = op.part(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX);
			w = op.part(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W);
			y = op.part(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY);
			c->alpha = (float) op.real(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, 1);
			c->beta = (float) op.real(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, 0);
			break;
		case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
			conv = op.part(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC);
			x = op.part(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X);
			w = op.part(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW);
			y = op.part(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY);
			c->alpha = (float) op.real(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, 1);
			c->beta = (float) op.real(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, 0);
			break;
		default:
			return false;
	}
	if (!tensor_of(*x, &c->x) || !tensor_of(*w, &c->w) || !tensor_of(*y, &c->y)
		|| conv->integer(CUDNN_ATTR_CONVOLUTION_CONV_MODE) != CUDNN_CROSS_CORRELATION
		|| conv->integer(CUDNN_ATTR_CONVOLUTION_COMP_TYPE) != CUDNN_DATA_FLOAT)
		return false;
	for (int i = 0; i < 2; i++)
	{
		c->pad[i] = conv->integer(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, i);
		c->stride[i] = conv->integer(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, i);
		c->dilation[i] = conv->integer(CUDNN_ATTR_CONVOLUTION_DILATIONS, i);
	}
	return true;
}

struct Pointwise
{
	int64_t		mode;
	Tensor		x,
				b,
				y;
	bool		has_b;
	bool		propagate_nan;	/* through a ReLU, which else makes 0 of it */
};

static bool
pointwise_of(const Descriptor &op, Pointwise *p)
{
	if (op.type != CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)
		return false;
	const Descriptor &pw = *op.part(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);

	p->mode = pw.integer(CUDNN_ATTR_POINTWISE_MODE);
	p->propagate_nan = pw.has(2) && pw.integer(2) == 1;
	p->has_b = op.has(CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
	if (!tensor_of(*op.part(CUDNN_ATTR_OPERATION_POINTWISE_XDESC), &p->x)
		|| !tensor_of(*op.part(CUDNN_ATTR_OPERATION_POINTWISE_YDESC), &p->y)
		|| (p->has_b && !tensor_of(*op.part(CUDNN_ATTR_OPERATION_POINTWISE_BDESC), &p->b)))
		return false;
	return p->mode == CUDNN_POINTWISE_ADD ? p->has_b : p->mode == CUDNN_POINTWISE_RELU_FWD
		|| p->mode == CUDNN_POINTWISE_IDENTITY;
}

static const std::vector<std::shared_ptr<Descriptor>> &
operations(const Descriptor &graph)
{
	return graph.values.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).parts;
}

/* NHWC without gaps: what the engines for tensor cores, and the stand-in, take. */
static bool
is_nhwc(const Tensor &t)
{
	return t.step[1] == 1 && t.step[3] == t.size[1] && t.step[2] == t.step[3] * t.size[3]
		&& t.step[0] == t.step[2] * t.size[2];
}

cudnnStatus_t
graph_supported(const Descriptor &graph, std::string *why)
{
	const std::vector<std::shared_ptr<Descriptor>> &ops = operations(graph);
	Convolution c;
	Pointwise p;
	int64_t produced;

	*why = "the stand-in has no such graph: one convolution, and after a forward one additions and ReLUs";
	if (!convolution_of(*ops[0], &c))
		return CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN;
	if (ops.size() > 1 && ops[0]->type != CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)
		return CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN;
	produced = c.y.uid;
	for (size_t i = 1; i < ops.size(); i++)
	{
		if (!pointwise_of(*ops[i], &p) || p.x.uid != produced || !p.x.is_virtual)
			return CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN;
		produced = p.y.uid;
	}
	*why = "the stand-in has no groups of channels";
	if (c.x.size[1] != c.w.size[1])
		return CUDNN_STATUS_NOT_SUPPORTED_SHAPE;
	*why = "tensors of a convolution are NHWC";
	if (!is_nhwc(c.x) || !is_nhwc(c.w) || !is_nhwc(c.y))
		return CUDNN_STATUS_NOT_SUPPORTED_LAYOUT;
	/* seen with cuDNN 9.19: no plan has fp32 weight gradients, or an fp32 bias, of tensors of 16 bits */
	*why = "the tensors in memory are of different types";
	for (const Tensor &tensor : graph_tensors(graph))
		if (tensor.type != c.x.type)
			return CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE;
	why->clear();
	return CUDNN_STATUS_SUCCESS;
}

size_t
graph_workspace(const Descriptor &graph, int engine)
{
	Convolution c;

	return engine == ENGINE_TENSOR_CORES && convolution_of(*operations(graph)[0], &c) ? (size_t) c.w.count() * 4 : 0;
}

std::vector<Tensor>
graph_tensors(const Descriptor &graph)
{
	std::vector<Tensor> all;
	Convolution c;
	Pointwise p;

	for (auto &op : operations(graph))
		if (convolution_of(*op, &c))
			all.insert(all.end(), {c.x, c.w, c.y});
		else if (pointwise_of(*op, &p))
		{
			all.insert(all.end(), {p.x, p.y});
			if (p.has_b)
				all.push_back(p.b);
		}
	all.erase(std::remove_if(all.begin(), all.end(), [] (const Tensor &t) { return t.is_virtual; }), all.end());
	return all;
}

/* Call visit(window, position in x) for every element of the window of output (p, q) that lies inside the image. */
template <typename Visit> static void
for_each_in_window(const Convolution &c, int64_t p, int64_t q, Visit visit)
{
	for (int64_t r = 0; r < c.w.size[2]; r++)
		for (int64_t s = 0; s < c.w.size[3]; s++)
		{
			int64_t h = p * c.stride[0] - c.pad[0] + r * c.dilation[0],
						w = q * c.stride[1] - c.pad[1] + s * c.dilation[1];

			if (h < 0 || w < 0 || h >= c.x.size[2] || w >= c.x.size[3])
				continue;
			for (int64_t i = 0; i < c.w.size[1]; i++)
				visit((r * c.w.size[3] + s) * c.w.size[1] + i, h, w, i);
		}
}

/* The windows of image n, one a row: (outputs, window). */
static std::vector<float>
windows(const Convolution &c, int64_t n, const void *x)
{
	std::vector<float> rows((size_t) (c.outputs() * c.window()));

	for (int64_t p = 0; p < c.y.size[2]; p++)
		for (int64_t q = 0; q < c.y.size[3]; q++)
		{
			float *row = &rows[(size_t) ((p * c.y.size[3] + q) * c.window())];

			for_each_in_window(c, p, q, [&] (int64_t at, int64_t h, int64_t w, int64_t i)
							   { row[at] = load(c.x.type, x, c.x.at(n, i, h, w)); });
		}
	return rows;
}

/* alpha value + beta what is there */
static void
blend(const Convolution &c, Number type, void *p, size_t i, float value)
{
	store(type, p, i, c.alpha * value + (c.beta != 0 ? c.beta * load(type, p, i) : 0));
}

/* y (outputs, c_out) of an image; NHWC makes w (c_out, window) and y plain matrices. */
static void
forward(const Convolution &c, bool tf32, const void *x, const void *w, void *y)
{
	size_t out = (size_t) c.outputs(),
				channels = (size_t) c.y.size[1],
				window = (size_t) c.window();
	std::vector<float> product(out * channels);

	for (int64_t n = 0; n < c.x.size[0]; n++)
	{
		std::vector<float> rows = windows(c, n, x);

		gemm(channels, out, window, {w, c.w.type, window, 1}, {rows.data(), Number::f32, 1, window},
			 tf32 && c.w.type == Number::f32, product.data());
		for (size_t i = 0; i < product.size(); i++)
			blend(c, c.y.type, y, (size_t) n * product.size() + i, product[i]);
	}
}

static void
backward_data(const Convolution &c, bool tf32, const void *dy, const void *w, void *dx)
{
	size_t out = (size_t) c.outputs(),
				channels = (size_t) c.y.size[1],
				window = (size_t) c.window(),
				image = (size_t) (c.x.count() / c.x.size[0]);
	std::vector<float> rows(out * window);

	for (int64_t n = 0; n < c.x.size[0]; n++)
	{
		std::vector<float> sums(image);
		const char *dy_image = (const char *) dy + (size_t) n * out * channels * number_bytes(c.y.type);

		/* rows (outputs, window) = dy (outputs, c_out) w (c_out, window) */
		gemm(window, out, channels, {w, c.w.type, 1, window}, {dy_image, c.y.type, 1, channels},
			 tf32 && c.w.type == Number::f32, rows.data());
		for (int64_t p = 0; p < c.y.size[2]; p++)
			for (int64_t q = 0; q < c.y.size[3]; q++)
			{
				const float *row = &rows[(size_t) (p * c.y.size[3] + q) * window];

				for_each_in_window(c, p, q, [&] (int64_t at, int64_t h, int64_t v, int64_t i)
								   { sums[c.x.at(0, i, h, v)] += row[at]; });
			}
		for (size_t i = 0; i < image; i++)
			blend(c, c.x.type, dx, (size_t) n * image + i, sums[i]);
	}
}

static void
backward_filter(const Convolution &c, bool tf32, const void *dy, const void *x, void *dw)
{
	size_t out = (size_t) c.outputs(),
				channels = (size_t) c.y.size[1],
				window = (size_t) c.window();
	std::vector<float> sums(channels * window),
				part(channels * window);

	for (int64_t n = 0; n < c.x.size[0]; n++)
	{
		std::vector<float> rows = windows(c, n, x);
		const char *dy_image = (const char *) dy + (size_t) n * out * channels * number_bytes(c.y.type);

		/* part (c_out, window) = dy (outputs, c_out) transposed, rows (outputs, window) */
		gemm(window, channels, out, {rows.data(), Number::f32, 1, window}, {dy_image, c.y.type, channels, 1},
			 tf32 && c.y.type == Number::f32, part.data());
		for (size_t i = 0; i < sums.size(); i++)
			sums[i] += part[i];
	}
	for (size_t i = 0; i < sums.size(); i++)
		blend(c, c.w.type, dw, i, sums[i]);
}

/* b's sizes of 1 are broadcast. */
static void
pointwise(const Pointwise &p, const void *x, const void *b, void *y)
{
	for (int64_t n = 0; n < p.y.size[0]; n++)
		for (int64_t h = 0; h < p.y.size[2]; h++)
			for (int64_t w = 0; w < p.y.size[3]; w++)
				for (int64_t i = 0; i < p.y.size[1]; i++)
				{
					float v = load(p.x.type, x, p.x.at(n, i, h, w));

					if (p.mode == CUDNN_POINTWISE_ADD)
						v += load(p.b.type, b, p.b.at(p.b.size[0] == 1 ? 0 : n, p.b.size[1] == 1 ? 0 : i,
													  p.b.size[2] == 1 ? 0 : h, p.b.size[3] == 1 ? 0 : w));
					else if (p.mode == CUDNN_POINTWISE_RELU_FWD)
						v = p.propagate_nan && std::isnan(v) ? v : v > 0 ? v : 0;
					store(p.y.type, y, p.y.at(n, i, h, w), v);
				}
}

void
graph_run(const Descriptor &graph, int engine, const std::map<int64_t, void *> &pointers)
{
	std::map<int64_t, std::vector<char>> scratch;	/* of virtual tensors */
	bool tf32 = engine == ENGINE_TENSOR_CORES;
	auto data = [&] (const Tensor &t) -> void *
	{
		if (!t.is_virtual)
			return pointers.at(t.uid);
		std::vector<char> &bytes = scratch[t.uid];
		bytes.resize((size_t) t.count() * number_bytes(t.type));
		return bytes.data();
	};

	for (auto &op : operations(graph))
	{
		Convolution c;
		Pointwise p;

		if (pointwise_of(*op, &p))
			pointwise(p, data(p.x), p.has_b ? data(p.b) : nullptr, data(p.y));
		else if (convolution_of(*op, &c))
		{
			if (op->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)
				forward(c, tf32, data(c.x), data(c.w), data(c.y));
			else if (op->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR)
				backward_data(c, tf32, data(c.y), data(c.w), data(c.x));
			else
				backward_filter(c, tf32, data(c.y), data(c.x), data(c.w));
		}
	}
}

}								/* namespace sim */
