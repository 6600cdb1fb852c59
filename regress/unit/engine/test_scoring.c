/*
 * test_scoring.c - a program of its own, of the two archives that pg_train.so links and nothing else of the engine:
 * PyTorch's networks score as PyTorch scores them, without threads.
 */
#include <dirent.h>

#include "engine/model.h"
#include "regress/unit/engine/golden.h"
#include "regress/unit/engine/layers_text.h"
#include "regress/unit/test.h"

TEST_MAIN()

static Model *
golden_model(const Golden *g, size_t max_rows)
{
	Layers		l = layers_parse(g->layers);
	const float *values = g->initial;
	Model	   *model;
	Error		err = {0};
	int32_t		t;

	if (model_create(l.spec, l.n, g->input, max_rows, &model, &err) != STATUS_OK)
	{
		test_fail(__FILE__, __LINE__, "%s: %s", g->layers, err.message);
		return NULL;
	}
	for (t = 0; t < g->tensors; t++)
	{
		TensorHeader header = {.values = 0};

		CHECK(network_tensor(l.spec, l.n, g->input, t, &header, &err) == STATUS_OK, "%s", err.message);
		CHECK(strcmp(header.name, g->names[t]) == 0, "tensor %d is %s, in PyTorch %s", t, header.name, g->names[t]);
		CHECK(model_set_tensor(model, header.name, values, header.values, &err) == STATUS_OK, "%s", err.message);
		values += header.values;
	}
	return model;
}

TEST(scoring_is_that_of_pytorch)
{
	size_t		k,
				i,
				max_rows;

	for (k = 0; k < GOLDENS; k++)
		for (max_rows = 1; max_rows <= 16; max_rows += 5)
		{
			const Golden *g = goldens[k];
			Model	   *model = golden_model(g, max_rows);
			float	   *y = malloc(g->rows * g->outputs * sizeof(float));
			Error		err = {0};

			REQUIRE(model != NULL);
			CHECK(model_outputs(model) == g->outputs, "%d outputs", model_outputs(model));
			CHECK(model_forward(model, g->rows, g->x, y, &err) == STATUS_OK, "%s", err.message);
			/* fp32 against float64 over a handful of layers */
			for (i = 0; i < g->rows * g->outputs; i++)
				CHECK_CLOSE(y[i], g->eval_logits[i], 1e-4, 1e-5);
			free(y);
			model_free(model);
		}
}

TEST(scoring_starts_no_thread)
{
	DIR		   *dir;
	int			threads = 0;
	struct dirent *entry;
	Model	   *model = golden_model(&golden_cnn, 8);
	float		y[64];
	Error		err = {0};

	REQUIRE(model != NULL);
	CHECK(model_forward(model, golden_cnn.rows, golden_cnn.x, y, &err) == STATUS_OK, "%s", err.message);
	dir = opendir("/proc/self/task");
	REQUIRE(dir != NULL);
	while ((entry = readdir(dir)) != NULL)
		threads += entry->d_name[0] != '.';
	closedir(dir);
	CHECK(threads == 1, "%d threads", threads);
	model_free(model);
}
