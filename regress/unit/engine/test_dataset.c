/*
 * test_dataset.c - rows in, splits, statistics, shuffling.
 */
#include "regress/unit/engine/common.h"

#include "engine/device_data.h"
#include "engine/shuffle.h"

static DatasetSpec
spec_of(double fraction, int stratify, uint64_t seed)
{
	return (DatasetSpec)
	{
		.standardize = 1,.stratify = stratify,.validation_fraction = fraction,.seed = seed
	};
}

/* Rows of one float with these class codes (nclasses > 0) or these targets. */
static Rows
rows_of_classes(const int32_t *classes, size_t rows, size_t nclasses)
{
	Rows		r = {.rows = rows,.width = 1,.nclasses = nclasses};
	size_t		i;

	r.x = malloc(rows * sizeof(float));
	r.targets = malloc(rows * 4);
	for (i = 0; i < rows; i++)
		r.x[i] = (float) i;
	memcpy(r.targets, classes, rows * 4);
	return r;
}

/* How often each number occurs, and in how many places two orders agree. */
static void
check_shuffle(size_t n)
{
	uint32_t   *from = malloc(n * sizeof(uint32_t)),
			   *a = malloc(n * sizeof(uint32_t)),
			   *b = malloc(n * sizeof(uint32_t));
	char	   *seen = calloc(1, n);
	size_t		i,
				same = 0,
				at_home = 0;

	for (i = 0; i < n; i++)
		from[i] = (uint32_t) i;
	shuffle(from, a, n, 1, 7);
	shuffle(NULL, b, n, 1, 7);
	CHECK(memcmp(a, b, n * sizeof(uint32_t)) == 0, "%zu: same seed, different order", n);
	shuffle(from, b, n, 2, 7);
	for (i = 0; i < n; i++)
	{
		REQUIRE(a[i] < n && !seen[a[i]]);
		seen[a[i]] = 1;
		at_home += a[i] == (uint32_t) i;
		same += a[i] == b[i];
	}
	/* the number of fixed points is Poisson with mean 1 */
	CHECK(at_home < 10, "%zu of %zu stayed", at_home, n);
	CHECK(same < 10, "%zu of %zu places agree between two seeds", same, n);
	free(from);
	free(a);
	free(b);
	free(seen);
}

TEST(shuffle_is_a_permutation_and_depends_on_its_seed)
{
	uint32_t	one = 7;

	check_shuffle(1000);
	/* through buckets */
	check_shuffle(100003);
	shuffle(NULL, &one, 0, 1, 1);
	CHECK(one == 7, "nothing was shuffled into %u", one);
	shuffle(NULL, &one, 1, 1, 1);
	CHECK(one == 0, "one number became %u", one);
}

/* Every number reaches every place equally often: chi-square with 49 degrees of freedom is below 100 but once in 40,000. */
TEST(shuffle_is_uniform)
{
	int			counts[8][8] = {{0}};
	uint32_t	a[8];
	double		chi = 0;
	int			round,
				i,
				j;

	for (round = 0; round < 8000; round++)
	{
		shuffle(NULL, a, 8, 5, round);
		for (i = 0; i < 8; i++)
			counts[i][a[i]]++;
	}
	for (i = 0; i < 8; i++)
		for (j = 0; j < 8; j++)
			chi += (counts[i][j] - 1000.0) * (counts[i][j] - 1000.0) / 1000;
	CHECK(chi < 100, "chi-square %g", chi);
}

/* The same through buckets, by tenths of the array: 81 degrees of freedom. */
TEST(large_shuffles_are_uniform)
{
	const size_t n = 50000;
	uint32_t   *a = malloc(n * sizeof(uint32_t));
	double		counts[10][10] = {{0}},
				chi = 0;
	size_t		i,
				j;
	int			round;

	for (round = 0; round < 20; round++)
	{
		shuffle(NULL, a, n, 6, round);
		for (i = 0; i < n; i++)
			counts[i * 10 / n][a[i] * 10ULL / n]++;
	}
	for (i = 0; i < 10; i++)
		for (j = 0; j < 10; j++)
			chi += (counts[i][j] - 10000) * (counts[i][j] - 10000) / 10000;
	CHECK(chi < 140, "chi-square %g", chi);
	free(a);
}

TEST(split_keeps_every_row_once)
{
	Rows		rows = rows_smooth(1003, 3);
	Dataset    *ds = dataset_from_rows(&rows, spec_of(0.1, 0, 4));
	const DatasetView *v = dataset_view(ds);
	char	   *seen = calloc(1, rows.rows);
	size_t		i;

	CHECK(v->train_rows == 903 && v->validation_rows == 100, "%zu and %zu rows", v->train_rows, v->validation_rows);
	for (i = 0; i < v->train_rows; i++)
		seen[v->train[i]]++;
	for (i = 0; i < v->validation_rows; i++)
		seen[v->validation[i]]++;
	for (i = 0; i < rows.rows; i++)
		CHECK(seen[i] == 1, "row %zu is there %d times", i, seen[i]);
	free(seen);
	dataset_free(ds);
	rows_free(&rows);
}

TEST(split_depends_on_the_seed)
{
	Rows		rows = rows_smooth(500, 2);
	Dataset    *a = dataset_from_rows(&rows, spec_of(0.2, 0, 1)),
			   *b = dataset_from_rows(&rows, spec_of(0.2, 0, 1)),
			   *c = dataset_from_rows(&rows, spec_of(0.2, 0, 2));

	CHECK(memcmp(dataset_view(a)->validation, dataset_view(b)->validation, 100 * sizeof(uint32_t)) == 0, "same seed");
	CHECK(memcmp(dataset_view(a)->validation, dataset_view(c)->validation, 100 * sizeof(uint32_t)) != 0, "another seed");
	dataset_free(a);
	dataset_free(b);
	dataset_free(c);
	rows_free(&rows);
}

/* 700, 200, 95 and 5 rows of four classes: a fifth of each is validated. */
TEST(stratified_split_takes_its_share_of_every_class)
{
	static const int sizes[] = {700, 200, 95, 5};
	static int32_t classes[1000];
	int			counts[4] = {0};
	Rows		rows;
	Dataset    *ds;
	const DatasetView *v;
	size_t		i;
	int			k,
				n = 0;

	for (k = 0; k < 4; k++)
		for (i = 0; i < (size_t) sizes[k]; i++)
			classes[n++] = k;
	rows = rows_of_classes(classes, 1000, 4);
	ds = dataset_from_rows(&rows, spec_of(0.2, 1, 9));
	v = dataset_view(ds);
	for (i = 0; i < v->validation_rows; i++)
		counts[classes[v->validation[i]]]++;
	for (k = 0; k < 4; k++)
		CHECK(counts[k] == sizes[k] / 5, "class %d: %d of %d rows", k, counts[k], sizes[k]);
	dataset_free(ds);
	rows_free(&rows);
}

/* Means and deviations are those of the training rows alone, far from zero and for constant columns, too. */
TEST(statistics_are_of_the_training_rows)
{
	size_t		n = 2000,
				i,
				j;
	Rows		rows = {.rows = n,.width = 4};
	Dataset    *ds;
	const DatasetView *v;

	rows.x = malloc(n * 4 * sizeof(float));
	rows.targets = malloc(n * sizeof(float));
	for (i = 0; i < n; i++)
	{
		rows.x[4 * i] = test_random(1, i);
		rows.x[4 * i + 1] = 1e6f + 4 * test_random(2, i);
		rows.x[4 * i + 2] = 0.1f;
		rows.x[4 * i + 3] = 1e-3f * test_random(3, i) - 5e-4f;
		((float *) rows.targets)[i] = 200 + 30 * test_random(4, i);
	}
	ds = dataset_from_rows(&rows, spec_of(0.25, 0, 3));
	v = dataset_view(ds);
	for (j = 0; j < 4; j++)
	{
		double		mean = 0,
					squares = 0;

		for (i = 0; i < v->train_rows; i++)
			mean += rows.x[4 * v->train[i] + j];
		mean /= v->train_rows;
		for (i = 0; i < v->train_rows; i++)
			squares += (rows.x[4 * v->train[i] + j] - mean) * (rows.x[4 * v->train[i] + j] - mean);
		CHECK_CLOSE(v->mean[j], mean, 1e-12, 1e-12);
		CHECK_CLOSE(v->stddev[j], j == 2 ? 1 : sqrt(squares / v->train_rows), 1e-9, 0);
		CHECK_CLOSE(v->scale[j], 1 / v->stddev[j], 1e-6, 0);
		CHECK_CLOSE(v->offset[j], -v->mean[j] / v->stddev[j], 1e-6, 0);
	}
	{
		double		sum = 0,
					squares = 0;

		for (i = 0; i < v->train_rows; i++)
		{
			double		t = ((const float *) v->targets)[v->train[i]];

			sum += t;
			squares += t * t;
		}
		CHECK_CLOSE(sum / v->train_rows, 0, 0, 1e-6);
		CHECK_CLOSE(squares / v->train_rows, 1, 1e-5, 0);
		CHECK_CLOSE(v->train_target_squares, squares, 1e-5, 0);
		CHECK_CLOSE(((const float *) v->targets)[7] * v->stats.target_stddev + v->stats.target_mean,
					((float *) rows.targets)[7], 1e-6, 0);
	}
	dataset_free(ds);
	rows_free(&rows);
}

TEST(nothing_is_standardized_unless_asked)
{
	Rows		rows = rows_smooth(100, 3);
	DatasetSpec spec = spec_of(0, 0, 1);
	Dataset    *ds;
	const DatasetView *v;

	spec.standardize = 0;
	ds = dataset_from_rows(&rows, spec);
	v = dataset_view(ds);
	CHECK(v->scale == NULL && v->offset == NULL, "scales");
	CHECK(v->mean[1] == 0 && v->stddev[1] == 1, "mean %g, deviation %g", v->mean[1], v->stddev[1]);
	CHECK(v->stats.target_mean == 0 && v->stats.target_stddev == 1, "target");
	CHECK(((const float *) v->targets)[5] == ((float *) rows.targets)[5], "target changed");
	dataset_free(ds);
	rows_free(&rows);
}

/* A layout of nsegments segments {dtype, width, record_offset, input_offset}. */
static RecordLayout *
layout_of(int32_t record_bytes, int32_t target_offset, int32_t width, int32_t nsegments, const Segment *segments)
{
	RecordLayout *layout = calloc(1, sizeof(RecordLayout) + nsegments * sizeof(Segment));

	layout->record_bytes = record_bytes;
	layout->target_offset = target_offset;
	layout->input_width = width;
	layout->nsegments = nsegments;
	memcpy(layout->segments, segments, nsegments * sizeof(Segment));
	return layout;
}

/* What gather makes of a row: the network's input. */
static void
gather_row(const DatasetView *v, uint32_t row, float *x)
{
	const BackendOps *ops = test_ops();
	Backend    *be = test_backend();
	size_t		bytes = (size_t) v->input_width * sizeof(float);
	DeviceData	data;
	void	   *index,
			   *input,
			   *target;
	Error		err;

	REQUIRE(device_data_create(ops, be, v, &data, &err) == STATUS_OK);
	REQUIRE(ops->alloc(be, sizeof(row), &index, &err) == STATUS_OK);
	REQUIRE(ops->alloc(be, bytes, &input, &err) == STATUS_OK);
	REQUIRE(ops->alloc(be, 4, &target, &err) == STATUS_OK);
	CHECK(ops->copy_in(be, index, &row, sizeof(row), &err) == STATUS_OK, "%s", err.message);
	CHECK(device_data_gather(&data, index, 1, input, DTYPE_F32, target, &err) == STATUS_OK, "%s", err.message);
	CHECK(ops->copy_out(be, x, input, bytes, &err) == STATUS_OK, "%s", err.message);
	CHECK(ops->sync(be, &err) == STATUS_OK, "%s", err.message);
	ops->free(be, index, sizeof(row));
	ops->free(be, input, bytes);
	ops->free(be, target, 4);
	device_data_free(&data);
}

/* Bytes and floats in one record, target in the middle, segments out of order. */
TEST(records_may_mix_types)
{
	static const Segment segments[] = {{DTYPE_F32, 2, 8, 3}, {DTYPE_U8, 3, 1, 0}};
	RecordLayout *layout = layout_of(16, 4, 5, 2, segments);
	DatasetSpec spec = {.task = TASK_CLASSIFICATION,.standardize = 1};
	Dataset    *ds;
	unsigned char records[4 * 16];
	static const int32_t codes[] = {1, 0};
	float		x[5];
	Error		err = {0};
	int			i;

	for (i = 0; i < 4; i++)
	{
		int32_t		target = i % 2;
		float		floats[2] = {(float) i, 100.0f + (float) (i * i)};

		memset(records + 16 * i, 10 * i, 16);
		memcpy(records + 16 * i + 4, &target, 4);
		memcpy(records + 16 * i + 8, floats, 8);
	}
	REQUIRE(dataset_create(&spec, layout, &ds, &err) == STATUS_OK);
	CHECK(dataset_add(ds, records, 3, SPLIT_TRAIN, &err) == STATUS_OK, "%s", err.message);
	CHECK(dataset_add(ds, records + 48, 1, SPLIT_TRAIN, &err) == STATUS_OK, "%s", err.message);
	CHECK(dataset_finish(ds, codes, 2, &err) == STATUS_OK, "%s", err.message);
	gather_row(dataset_view(ds), 2, x);
	CHECK_CLOSE(x[0], 20.0 / 255, 1e-6, 0);
	CHECK_CLOSE(x[2], 20.0 / 255, 1e-6, 0);
	CHECK_CLOSE(x[3], (2 - 1.5) / sqrt(1.25), 1e-6, 0);
	CHECK_CLOSE(dataset_view(ds)->mean[4], 103.5, 1e-12, 0);
	CHECK(dataset_view(ds)->mean[0] == 0 && dataset_view(ds)->stddev[0] == 255, "uint8 is scaled, not standardized");
	/* provisional 0 is final 1 */
	CHECK(((const int32_t *) dataset_view(ds)->targets)[0] == 1 && ((const int32_t *) dataset_view(ds)->targets)[3] == 0, "classes");
	dataset_free(ds);
	free(layout);
}

/* An image of two channels arrives channels first and is stored channels last, from one column or from two. */
TEST(images_are_turned_channels_last)
{
	static const Segment one[] = {{DTYPE_U8, 12, 0, 0}};
	static const Segment two[] = {{DTYPE_F32, 6, 0, 6}, {DTYPE_U8, 6, 24, 0}};
	DatasetSpec spec = {.task = TASK_REGRESSION,.standardize = 0,.input = IMAGE(2, 2, 3)};
	RecordLayout *layout = layout_of(16, 12, 12, 1, one);
	unsigned char bytes[32];
	float		x[12];
	float		target = 3;
	Dataset    *ds;
	Error		err = {0};
	int			i;

	for (i = 0; i < 12; i++)
		bytes[i] = i;
	memcpy(bytes + 12, &target, 4);
	REQUIRE(dataset_create(&spec, layout, &ds, &err) == STATUS_OK);
	CHECK(dataset_add(ds, bytes, 1, SPLIT_TRAIN, &err) == STATUS_OK && dataset_finish(ds, NULL, 0, &err) == STATUS_OK, "%s", err.message);
	gather_row(dataset_view(ds), 0, x);
	for (i = 0; i < 12; i++)
		CHECK_CLOSE(x[i], (i % 2 * 6 + i / 2) / 255.0, 1e-6, 1e-9);
	dataset_free(ds);
	free(layout);

	/* channel 0 in bytes, channel 1 in floats: kept as floats, standardized alike */
	spec.standardize = 1;
	layout = layout_of(36, 32, 12, 2, two);
	REQUIRE(dataset_create(&spec, layout, &ds, &err) == STATUS_OK);
	for (i = 0; i < 2; i++)
	{
		char		record[36];
		float		floats[6];
		int			j;

		for (j = 0; j < 6; j++)
		{
			record[24 + j] = (char) (60 * i + j);
			floats[j] = (float) (j * 10 + 4 * i);
		}
		memcpy(record, floats, 24);
		memcpy(record + 32, &target, 4);
		CHECK(dataset_add(ds, record, 1, SPLIT_TRAIN, &err) == STATUS_OK, "%s", err.message);
	}
	CHECK(dataset_finish(ds, NULL, 0, &err) == STATUS_OK, "%s", err.message);
	gather_row(dataset_view(ds), 1, x);
	for (i = 0; i < 6; i++)
	{
		CHECK_CLOSE(x[2 * i], (60 + i) / 255.0, 1e-6, 0);
		CHECK_CLOSE(x[2 * i + 1], 1, 1e-6, 0);
		CHECK_CLOSE(dataset_view(ds)->mean[6 + i], i * 10 + 2, 1e-12, 0);
		CHECK(dataset_view(ds)->stddev[i] == 255, "deviation of byte %d: %g", i, dataset_view(ds)->stddev[i]);
	}
	dataset_free(ds);
	free(layout);
}

TEST(validation_rows_may_come_on_their_own)
{
	static const Segment segments[] = {{DTYPE_F32, 1, 0, 0}};
	RecordLayout *layout = layout_of(8, 4, 1, 1, segments);
	DatasetSpec spec = {.task = TASK_REGRESSION,.standardize = 1,.external_validation = 1};
	static const float train[] = {1, 10, 3, 30, 5, 50},
				validation[] = {100, 1000};
	Dataset    *ds;
	Error		err = {0};

	REQUIRE(dataset_create(&spec, layout, &ds, &err) == STATUS_OK);
	CHECK(dataset_add(ds, train, 3, SPLIT_TRAIN, &err) == STATUS_OK, "%s", err.message);
	CHECK(dataset_add(ds, validation, 1, SPLIT_VALIDATION, &err) == STATUS_OK, "%s", err.message);
	CHECK(dataset_add(ds, train, 1, SPLIT_TRAIN, &err) == STATUS_PROTOCOL, "training rows after validation rows");
	CHECK(dataset_finish(ds, NULL, 0, &err) == STATUS_OK, "%s", err.message);
	CHECK(dataset_view(ds)->train_rows == 3 && dataset_view(ds)->validation_rows == 1 && dataset_view(ds)->validation[0] == 3, "split");
	CHECK_CLOSE(dataset_view(ds)->mean[0], 3, 1e-12, 0);
	CHECK_CLOSE(dataset_view(ds)->stats.target_mean, 30, 1e-12, 0);
	dataset_free(ds);
	free(layout);
}

/* finish() of rows with these classes fails with a message and a hint. */
static void
check_finish_error(const int32_t *classes, size_t rows, size_t nclasses, DatasetSpec spec, const char *message, const char *hint)
{
	static const Segment segments[] = {{DTYPE_F32, 1, 0, 0}};
	static const int32_t codes[] = {0, 1, 2, 3, 4, 5};
	RecordLayout *layout = layout_of(8, 4, 1, 1, segments);
	Dataset    *ds;
	Error		err = {0};
	size_t		i;

	spec.task = TASK_CLASSIFICATION;
	REQUIRE(dataset_create(&spec, layout, &ds, &err) == STATUS_OK);
	for (i = 0; i < rows; i++)
	{
		int32_t		record[2] = {0, classes[i]};

		CHECK(dataset_add(ds, record, 1, SPLIT_TRAIN, &err) == STATUS_OK, "%s", err.message);
	}
	CHECK(dataset_finish(ds, codes, nclasses, &err) != STATUS_OK, "no error, expected \"%s\"", message);
	CHECK(strstr(err.message, message) != NULL, "message \"%s\"", err.message);
	CHECK(strstr(err.hint, hint) != NULL, "hint \"%s\"", err.hint);
	dataset_free(ds);
	free(layout);
}

TEST(datasets_that_cannot_be_trained_on)
{
	static const int32_t classes[] = {0, 1, 0, 1, 2, 0};
	DatasetSpec external = spec_of(0, 0, 1);

	external.external_validation = 1;
	check_finish_error(classes, 0, 2, spec_of(0.1, 0, 1), "the source has no rows", "conditions");
	check_finish_error(classes, 1, 1, spec_of(0, 0, 1), "only 1 class", "regression");
	check_finish_error(classes, 4, 2, spec_of(0.1, 0, 1), "no row is left for validation", "larger validation_fraction");
	check_finish_error(classes, 4, 2, spec_of(0.9, 0, 1), "no row is left for training", "smaller validation_fraction");
	check_finish_error(classes, 4, 3, spec_of(0, 0, 1), "class number 3 of 3 has no row", "stratify");
	check_finish_error(classes, 4, 2, external, "the validation source has no rows", "validation_source");
	/* a row with a class that does not exist */
	check_finish_error(classes, 6, 2, spec_of(0, 0, 1), "class code 2", "");
}

TEST(layouts_are_checked)
{
	static const struct
	{
		int32_t		record_bytes,
					target_offset,
					width;
		Segment		segment;
	}			bad[] = {
		{10, 4, 1, {DTYPE_F32, 1, 0, 0}},	/* not a multiple of 4 */
		{8, 8, 1, {DTYPE_F32, 1, 0, 0}},	/* target outside */
		{8, -4, 1, {DTYPE_F32, 1, 0, 0}},
		{8, 2, 1, {DTYPE_F32, 1, 0, 0}},	/* target not aligned */
		{8, 4, 2, {DTYPE_F32, 1, 0, 0}},	/* an element that no segment fills */
		{8, 4, 1, {DTYPE_F32, 1, 8, 0}},	/* segment outside */
		{8, 4, 1, {DTYPE_F32, 1, -4, 0}},
		{8, 4, 1, {DTYPE_F32, 1, 2, 0}},	/* float not aligned */
		{8, 4, 1, {DTYPE_F32, 2, 0, 0}},	/* wider than the input */
		{8, 4, 1, {DTYPE_F32, 1, 0, 1}},
		{8, 4, 1, {DTYPE_F32, 1, 0, -1}},
		{8, 4, 1, {DTYPE_I32, 1, 0, 0}},	/* not a type of inputs */
		{8, 4, 1, {DTYPE_F32, 0, 0, 0}},
		{8, 4, 1, {DTYPE_F32, 2147483647, 0, 0}},
		{8, 4, 2147483647, {DTYPE_F32, 1, 0, 0}},
	};
	DatasetSpec spec = {.task = TASK_REGRESSION};
	Dataset    *ds;
	Error		err = {0};
	size_t		i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
	{
		RecordLayout *layout = layout_of(bad[i].record_bytes, bad[i].target_offset, bad[i].width, 1, &bad[i].segment);

		CHECK(dataset_create(&spec, layout, &ds, &err) == STATUS_PROTOCOL && ds == NULL, "layout %zu was accepted", i);
		dataset_free(ds);
		free(layout);
	}
}

/* More rows than the first mapping holds: what came first is still there. */
TEST(datasets_grow)
{
	size_t		n = 300000,
				i;
	Rows		rows = rows_smooth(n, 8);
	Dataset    *ds = dataset_from_rows(&rows, spec_of(0.1, 0, 1));
	const DatasetView *v = dataset_view(ds);
	const float *kept = v->records;

	CHECK(v->record_bytes == 32, "%zu bytes a row", v->record_bytes);
	for (i = 0; i < n * 8; i += 997)
		CHECK(kept[i] == rows.x[i], "value %zu is %g, was %g", i, kept[i], rows.x[i]);
	dataset_free(ds);
	rows_free(&rows);
}
