/*
 * test_shapes.c - shape inference, its errors, and the layouts of tensors.
 */
#include "regress/unit/engine/common.h"

#include "engine/model.h"

static Status
infer(const char *text, RowShape input, LayerInfo *info, RowShape *out, Error *err)
{
	Layers		l = layers_parse(text);

	return network_infer_shapes(l.spec, l.n, input, info, out, err);
}

static void
check_error(const char *text, RowShape input, const char *message, const char *hint)
{
	LayerInfo	info[64];
	RowShape	out;
	Error		err = {0};
	Status		status = infer(text, input, info, &out, &err);

	CHECK(status == STATUS_INVALID, "%s: status %d", text, status);
	CHECK(strstr(err.message, message) != NULL, "%s: message \"%s\"", text, err.message);
	CHECK(strstr(err.hint, hint) != NULL, "%s: hint \"%s\"", text, err.hint);
}

TEST(shapes_and_parameters_of_the_reference_network)
{
	static const int32_t channels[] = {32, 32, 32, 64, 64, 64, 3136, 256, 256, 256, 10};
	static const int32_t height[] = {28, 28, 14, 14, 14, 7, 0, 0, 0, 0, 0};
	static const int64_t parameters[] = {320, 0, 0, 18496, 0, 0, 0, 803072, 0, 0, 2570};
	LayerInfo	info[64];
	RowShape	out;
	Error		err;
	int			i;

	REQUIRE(infer("conv2d:32,3,1,1 relu maxpool2d:2 conv2d:64,3,1,1 relu maxpool2d:2 flatten linear:256 relu dropout:0.5 linear:10",
				  IMAGE(1, 28, 28), info, &out, &err) == STATUS_OK);
	for (i = 0; i < 11; i++)
	{
		CHECK(info[i].out.channels == channels[i], "layer %d: %d channels", i, info[i].out.channels);
		CHECK(info[i].out.height == height[i] && info[i].out.width == height[i], "layer %d: height %d", i, info[i].out.height);
		CHECK(info[i].parameters == parameters[i], "layer %d: %lld parameters", i, (long long) info[i].parameters);
	}
	CHECK(out.channels == 10 && out.height == 0, "outputs %d", out.channels);
}

TEST(shapes_of_strides_padding_and_blocks)
{
	LayerInfo	info[64];
	RowShape	out;
	Error		err;

	REQUIRE(infer("conv2d:5,3x2,2x3,1x0 [ batchnorm [ layernorm ] conv2d:5,3,1,1 ] avgpool2d:2,1,1 global_avgpool flatten linear:2",
				  IMAGE(3, 11, 17), info, &out, &err) == STATUS_OK);
	CHECK(info[0].out.channels == 5 && info[0].out.height == 6 && info[0].out.width == 6, "conv2d: %d x %d",
		  info[0].out.height, info[0].out.width);
	CHECK(info[0].parameters == 5 * 3 * 6 + 5, "conv2d: %lld parameters", (long long) info[0].parameters);
	CHECK(info[2].parameters == 10, "batchnorm: %lld parameters", (long long) info[2].parameters);
	CHECK(info[4].parameters == 2 * 5 * 6 * 6, "layernorm: %lld parameters", (long long) info[4].parameters);
	CHECK(info[6].out.height == 7 && info[6].out.width == 7, "avgpool2d: %d x %d", info[6].out.height, info[6].out.width);
	CHECK(info[7].out.channels == 5 && info[7].out.height == 0, "global_avgpool: %d", info[7].out.channels);
}

TEST(shape_errors_name_layer_and_remedy)
{
	check_error("conv2d:4,3 linear:3", IMAGE(1, 9, 9), "layer 1 (linear): needs flat input, but its input has the shape (4, 7, 7)",
				"\"flatten\"");
	check_error("linear:4 conv2d:4,3", FLAT(9), "layer 1 (conv2d): needs an image, but its input has the flat shape (4)",
				"input_shape");
	check_error("maxpool2d:2", FLAT(9), "layer 0 (maxpool2d)", "input_shape");
	check_error("conv2d:4,5", IMAGE(1, 4, 9), "kernel (5, 5) is larger than the padded input, whose shape is (1, 4, 9)", "smaller kernel");
	check_error("maxpool2d:2,2,2", IMAGE(1, 9, 9), "at most half of the kernel", "");
	check_error("maxpool2d:16", IMAGE(1, 40, 40), "too large", "global_avgpool");
	check_error("linear:8 [ relu linear:7 ] linear:2", FLAT(4), "layer 1 (residual): its layers turn the shape (8) into (7)", "keep the shape");
	check_error("linear:8 [ relu [ conv2d:1,1 ] ] linear:2", FLAT(4), "layer 1.1.0 (conv2d)", "input_shape");
	check_error("linear:0", FLAT(4), "at least 1", "");
	check_error("dropout:1 linear:2", FLAT(4), "p must be at least 0 and below 1", "");
	check_error("conv2d:4,3,0", IMAGE(1, 9, 9), "stride must be at least 1", "");
	check_error("conv2d:4,3,1,-1", IMAGE(1, 9, 9), "padding must not be negative", "");
	check_error("[ [ [ [ [ [ [ [ [ relu ] ] ] ] ] ] ] ] ] linear:1", FLAT(4), "nested more than 8 deep", "");
	check_error("relu", (RowShape) {0, 0, 0}, "input shape", "");
	check_error("relu", (RowShape) {3, 4, 0}, "input shape", "");
	check_error("conv2d:2000000000,1 conv2d:2,1", IMAGE(1, 3, 3), "too large", "");
	check_error("conv2d:2,3,1,2147483647", IMAGE(1, 3, 3), "too large", "");
	check_error("linear:2000000000 linear:2000000000", FLAT(4), "too many parameters", "");
	check_error("flatten", IMAGE(2000000000, 3, 3), "too large", "");
}

TEST(a_network_ends_in_a_linear_layer)
{
	Layers		l = layers_parse("linear:4 relu");
	Network    *net = NULL;
	Model	   *model = NULL;
	Error		err = {0};

	CHECK(network_create(test_ops(), test_backend(), l.spec, l.n, FLAT(3), 4, DTYPE_F32, PROGRAM_TRAINING, &net, &err) == STATUS_INVALID,
		  "accepted");
	CHECK(strstr(err.message, "layer 1 (relu): a network must end in a linear layer") != NULL, "%s", err.message);
	CHECK(net == NULL, "made all the same");
	CHECK(model_create(l.spec, l.n, FLAT(3), 4, &model, &err) == STATUS_INVALID && model == NULL, "accepted for scoring");
}

TEST(tensor_lists_agree)
{
	Layers		l = layers_parse("conv2d:4,3 batchnorm [ conv2d!:4,1 ] layernorm flatten linear:3");
	static const char *const names[] = {
		"0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var", "2.0.weight",
		"3.weight", "3.bias", "5.weight", "5.bias"
	};
	static const int32_t ndim[] = {4, 1, 1, 1, 1, 1, 4, 3, 3, 2, 1};
	TensorHeader header;
	int32_t		count = 0,
				i;
	Error		err = {0};

	REQUIRE(network_tensor_count(l.spec, l.n, IMAGE(2, 6, 5), &count, &err) == STATUS_OK);
	CHECK(count == 11, "%d tensors", count);
	for (i = 0; i < 11; i++)
	{
		REQUIRE(network_tensor(l.spec, l.n, IMAGE(2, 6, 5), i, &header, &err) == STATUS_OK);
		CHECK(strcmp(header.name, names[i]) == 0, "%s", header.name);
		CHECK(header.ndim == ndim[i], "%s has %d dimensions", header.name, header.ndim);
	}
	REQUIRE(network_tensor(l.spec, l.n, IMAGE(2, 6, 5), 9, &header, &err) == STATUS_OK);
	CHECK(header.dims[0] == 3 && header.dims[1] == 48 && header.values == 144, "5.weight is (%d, %d)", header.dims[0], header.dims[1]);
	REQUIRE(network_tensor(l.spec, l.n, IMAGE(2, 6, 5), 7, &header, &err) == STATUS_OK);
	CHECK(header.dims[0] == 4 && header.dims[1] == 4 && header.dims[2] == 3, "3.weight is (%d, %d, %d)",
		  header.dims[0], header.dims[1], header.dims[2]);
	CHECK(network_tensor(l.spec, l.n, IMAGE(2, 6, 5), 11, &header, &err) == STATUS_INVALID, "tensor 11");
	CHECK(network_tensor(l.spec, l.n, IMAGE(2, 6, 5), -1, &header, &err) == STATUS_INVALID, "tensor -1");
}

/* What is set is what is read, whatever the layout inside. */
TEST(state_dict_round_trip)
{
	Bench		b = bench_create("conv2d:4,3x2 batchnorm conv2d:3,2,1,1 layernorm flatten batchnorm layernorm "
								 "[ linear:60 batchnorm ] linear:3",
								 IMAGE(2, 5, 5), LOSS_CROSS_ENTROPY, 3, DTYPE_F32, 0);
	int32_t		t;
	int64_t		i;
	Error		err;

	for (t = 0; t < b.net->tensors.count; t++)
	{
		int64_t		n = b.net->tensors.tensors[t].header.values;
		float	   *values = malloc(n * sizeof(float)),
				   *back;

		for (i = 0; i < n; i++)
			values[i] = test_random(t, i);
		CHECK(network_set_tensor(b.net, t, values, &err) == STATUS_OK, "%s", err.message);
		back = bench_tensor(&b, t);
		CHECK(memcmp(values, back, n * sizeof(float)) == 0, "%s changed", b.net->tensors.tensors[t].header.name);
		free(values);
		free(back);
	}
	bench_free(&b);
}

/* torch.nn.Linear and Conv2d: U(-1/sqrt(fan_in), 1/sqrt(fan_in)); norms 1, 0, 0, 1. */
TEST(initial_values_follow_pytorch)
{
	Bench		b = bench_create("conv2d:64,3 batchnorm flatten linear:50 linear:2", IMAGE(3, 5, 5), LOSS_CROSS_ENTROPY, 2, DTYPE_F32, 0);
	static const double fan_in[] = {27, 27, 0, 0, 0, 0, 576, 576, 50, 50};
	static const double constant[] = {0, 0, 1, 0, 0, 1, 0, 0, 0, 0};
	int32_t		t;
	int64_t		i;

	for (t = 0; t < b.net->tensors.count; t++)
	{
		const TensorHeader *header = &b.net->tensors.tensors[t].header;
		float	   *values = bench_tensor(&b, t);
		double		sum = 0,
					squares = 0,
					bound = fan_in[t] > 0 ? 1 / sqrt(fan_in[t]) : 0;

		for (i = 0; i < header->values; i++)
		{
			sum += values[i];
			squares += values[i] * values[i];
			if (fan_in[t] > 0)
				CHECK(fabsf(values[i]) <= bound * 1.000001, "%s: %g beyond %g", header->name, values[i], bound);
			else
				CHECK(values[i] == constant[t], "%s: %g", header->name, values[i]);
		}
		/* mean within 4, variance within 5 standard errors of a uniform distribution's */
		if (fan_in[t] > 0 && header->values > 1000)
		{
			CHECK(fabs(sum / header->values) < 4 * bound / sqrt(3.0 * header->values), "%s: mean %g", header->name, sum / header->values);
			CHECK_CLOSE(squares / header->values, bound * bound / 3, 5 * sqrt(0.8 / header->values), 0);
		}
		free(values);
	}
	bench_free(&b);
}
