/*
 * test_model.c - scoring: the forward pass alone is the trained network in evaluation mode.
 */
#include "regress/unit/engine/common.h"

#include "engine/model.h"

static Model *
model_of(Bench *b, size_t max_rows)
{
	Model	   *model;
	Error		err = {0};
	int32_t		t;

	if (model_create(b->net->layers, b->net->nlayers, b->input, max_rows, &model, &err) != STATUS_OK)
	{
		test_fail(__FILE__, __LINE__, "%s", err.message);
		return NULL;
	}
	for (t = 0; t < b->net->tensors.count; t++)
	{
		const TensorHeader *header = &b->net->tensors.tensors[t].header;
		float	   *values = bench_tensor(b, t);

		CHECK(model_set_tensor(model, header->name, values, header->values, &err) == STATUS_OK, "%s", err.message);
		free(values);
	}
	return model;
}

TEST(scoring_is_the_trained_network)
{
	static const char *const layers[] = {
		"conv2d:4,3,1,1 relu maxpool2d:2 [ conv2d:4,3,1,1 batchnorm gelu ] dropout:0.5 flatten linear:9 gelu dropout:0.5 linear:3",
		"conv2d:3,2 batchnorm tanh dropout:0.1 avgpool2d:2,1,1 global_avgpool layernorm linear:7 sigmoid batchnorm linear:2",
		"flatten [ dropout:0.3 ] [ linear:90 relu ] layernorm linear:4",
	};
	/* rows that fit, that need several rounds, and one at a time */
	static const size_t max_rows[] = {16, 5, 1};
	size_t		k,
				m,
				i;

	for (k = 0; k < sizeof(layers) / sizeof(layers[0]); k++)
	{
		Bench		b = bench_create(layers[k], IMAGE(3, 6, 5), LOSS_CROSS_ENTROPY, 13, DTYPE_F32, 0);
		float	   *expected = malloc(b.rows * b.outputs * sizeof(float));
		float	   *got = malloc(b.rows * b.outputs * sizeof(float));

		/* moves the running statistics away from where they start */
		bench_loss(&b, true);
		bench_eval(&b, expected);
		for (m = 0; m < 3; m++)
		{
			Model	   *model = model_of(&b, max_rows[m]);
			Error		err = {0};

			REQUIRE(model != NULL);
			CHECK(model_outputs(model) == (int32_t) b.outputs, "%d outputs", model_outputs(model));
			CHECK(model_bytes(model) > 4 * 50, "%zu bytes", model_bytes(model));
			CHECK(model_forward(model, b.rows, b.x, got, &err) == STATUS_OK, "%s", err.message);
			for (i = 0; i < b.rows * b.outputs; i++)
				CHECK_CLOSE(got[i], expected[i], 1e-4, 1e-5);
			model_free(model);
		}
		free(expected);
		free(got);
		bench_free(&b);
	}
}

TEST(models_check_their_tensors)
{
	Layers		l = layers_parse("linear:4 relu linear:2");
	Model	   *model;
	float		values[16] = {0};
	Error		err = {0};

	REQUIRE(model_create(l.spec, l.n, FLAT(3), 4, &model, &err) == STATUS_OK);
	CHECK(model_set_tensor(model, "0.weight", values, 12, &err) == STATUS_OK, "%s", err.message);
	CHECK(model_set_tensor(model, "0.weight", values, 11, &err) == STATUS_INVALID, "11 values for 12");
	CHECK(strstr(err.message, "\"0.weight\" has 11 values, expected 12") != NULL, "%s", err.message);
	CHECK(model_set_tensor(model, "1.weight", values, 12, &err) == STATUS_INVALID, "a tensor that is not there");
	model_free(model);
	CHECK(model_create(l.spec, l.n, FLAT(3), 0, &model, &err) == STATUS_INVALID, "no rows");
	model_free(NULL);
}

TEST(probabilities)
{
	float		two[] = {0, 0, 1, 3, -1000, 1000};
	float		one[] = {0, 1000, -1000, 2};

	logits_to_probabilities(two, 3, 2);
	CHECK_CLOSE(two[0], 0.5, 1e-6, 0);
	CHECK_CLOSE(two[2], 1 / (1 + exp(2)), 1e-6, 0);
	CHECK_CLOSE(two[3], 1 / (1 + exp(-2)), 1e-6, 0);
	CHECK(two[4] == 0 && two[5] == 1, "%g, %g", two[4], two[5]);
	logits_to_probabilities(one, 4, 1);
	CHECK(one[0] == 0.5f && one[1] == 1 && one[2] == 0, "%g, %g, %g", one[0], one[1], one[2]);
	CHECK_CLOSE(one[3], 1 / (1 + exp(-2)), 1e-6, 0);
}
