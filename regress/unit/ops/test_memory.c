/*
 * test_memory.c - memory of a device, and gathering batches from a dataset in it.
 */
#include "regress/unit/ops/device.h"

#include "kernels/philox.h"

static void
memory(const Device *d)
{
	/* around the size from which memory is mapped */
	static const size_t sizes[] = {0, 1, 63, 64, 4097, ((size_t) 2 << 20) - 1, (size_t) 2 << 20, 5000001};
	size_t		i,
				j;

	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
	{
		size_t		n = sizes[i],
					bad = 0;
		unsigned char *host = malloc(n + 1),
				   *back = malloc(n + 1);
		void	   *a = NULL,
				   *b = NULL;

		CHECK_OK(d, d->ops->alloc(d->be, n, &a, err));
		CHECK_OK(d, d->ops->alloc(d->be, n, &b, err));
		REQUIRE(a != NULL && b != NULL && a != b);
		CHECK((uintptr_t) a % 64 == 0, "%s: %zu bytes at %p are not aligned", d->label, n, a);
		memset(back, 1, n);
		CHECK_OK(d, d->ops->copy_out(d->be, back, a, n, err));
		CHECK_OK(d, d->ops->sync(d->be, err));
		for (j = 0; j < n; j++)
			bad += back[j] != 0;
		CHECK(bad == 0, "%s: %zu of %zu new bytes are not 0", d->label, bad, n);
		for (j = 0; j < n; j++)
			host[j] = (unsigned char) (j * 7 + 1);
		CHECK_OK(d, d->ops->copy_in(d->be, a, host, n, err));
		CHECK_OK(d, d->ops->copy(d->be, b, a, n, err));
		CHECK_OK(d, d->ops->copy_out(d->be, back, b, n, err));
		CHECK_OK(d, d->ops->sync(d->be, err));
		CHECK(memcmp(host, back, n) == 0, "%s: %zu bytes came back changed", d->label, n);
		CHECK_OK(d, d->ops->zero(d->be, b, n, err));
		CHECK_OK(d, d->ops->copy_out(d->be, back, b, n, err));
		CHECK_OK(d, d->ops->sync(d->be, err));
		for (j = 0, bad = 0; j < n; j++)
			bad += back[j] != 0;
		CHECK(bad == 0, "%s: %zu of %zu bytes are not 0", d->label, bad, n);
		d->ops->free(d->be, a, n);
		d->ops->free(d->be, b, n);
		free(host);
		free(back);
	}
	d->ops->free(d->be, NULL, 0);
}

TEST(memory_is_zeroed_aligned_and_keeps_what_is_copied)
{
	for_each_device(memory);
}

static void
no_memory(const Device *d)
{
	void	   *p = &p;

	CHECK_STATUS(d, STATUS_NO_MEMORY, d->ops->alloc(d->be, (size_t) 1 << 60, &p, err));
	CHECK(p == NULL);
	CHECK_STATUS(d, STATUS_NO_MEMORY, d->ops->alloc(d->be, SIZE_MAX, &p, err));
}

TEST(memory_that_is_not_there_is_refused)
{
	for_each_device(no_memory);
}

/* Records of two float columns, 19 bytes, padding, a float column and the target. */
#define RECORDS 57
#define RECORD_BYTES 36
#define INPUTS 22
#define TARGET_OFFSET 32

static const Segment segments[] = {
	{DTYPE_F32, 2, 0, 0},
	{DTYPE_U8, 19, 8, 3},
	{DTYPE_F32, 1, 28, 2}
};

static void
gather(const Device *d)
{
	unsigned char records[RECORDS * RECORD_BYTES];
	double		scale[INPUTS],
				offset[INPUTS];
	void	   *dev_records,
			   *dev_scale,
			   *dev_offset;
	static const size_t counts[] = {1, 3, 40, 5000};
	size_t		i,
				j,
				k;
	int			scaled;

	for (i = 0; i < sizeof(records); i++)
		records[i] = (unsigned char) philox_word(1, 0, i);
	for (i = 0; i < RECORDS; i++)
		for (j = 0; j < RECORD_BYTES; j += j == 4 ? 24 : 4)
		{
			float		f = philox_uniform(philox_word(2, i, j)) * 4 - 2;

			memcpy(records + i * RECORD_BYTES + j, &f, sizeof(f));
		}
	for (j = 0; j < INPUTS; j++)
	{
		scale[j] = round_to(0.01 + 0.1 * (double) j, DTYPE_F32);
		offset[j] = round_to(1 - 0.2 * (double) j, DTYPE_F32);
	}
	dev_records = device_put_bytes(d, records, sizeof(records));
	dev_scale = device_put(d, scale, INPUTS, DTYPE_F32);
	dev_offset = device_put(d, offset, INPUTS, DTYPE_F32);
	for (k = 0; k < 4; k++)
		for (scaled = 0; scaled <= 1; scaled++)
		{
			size_t		n = counts[k];
			uint32_t   *index = malloc(n * sizeof(uint32_t));
			double	   *want = malloc(n * INPUTS * sizeof(double)),
					   *field = malloc(n * sizeof(double));
			void	   *dev_index,
					   *dev_x = device_new_unset(d, n * INPUTS, d->dtype),
					   *dev_y = device_new_unset(d, n, DTYPE_F32);

			for (i = 0; i < n; i++)
			{
				const unsigned char *record;
				float		f;

				index[i] = philox_word(3, k, i) % RECORDS;
				record = records + index[i] * RECORD_BYTES;
				for (j = 0; j < INPUTS; j++)
				{
					double	   *x = &want[i * INPUTS + j];

					if (j >= 3)
						*x = record[8 + j - 3] * (scaled ? 1.0 : 1.0 / 255);
					else
					{
						memcpy(&f, record + (j == 2 ? 28 : 4 * j), sizeof(f));
						*x = (double) f;
					}
					if (scaled)
						*x = *x * scale[j] + offset[j];
				}
				memcpy(&f, record + TARGET_OFFSET, sizeof(f));
				field[i] = (double) f;
			}
			dev_index = device_put_bytes(d, index, n * sizeof(uint32_t));
			CHECK_OK(d, d->ops->gather(d->be, dev_records, RECORD_BYTES, dev_index, n, segments, 3,
									   scaled ? dev_scale : NULL, scaled ? dev_offset : NULL, INPUTS, dev_x,
									   d->dtype, err));
			/* a product of a byte and a scale near 1, then a sum that may cancel */
			CHECK_TENSOR(d, "x", dev_x, d->dtype, want, n * INPUTS, rounding(d->dtype), scaled ? 1e-4 : 0);
			CHECK_OK(d, d->ops->gather_field(d->be, dev_records, RECORD_BYTES, TARGET_OFFSET, dev_index, n, dev_y,
											 err));
			CHECK_TENSOR(d, "field", dev_y, DTYPE_F32, field, n, 0, 0);
			device_free(d, dev_index, n * sizeof(uint32_t));
			device_free(d, dev_x, n * INPUTS * test_dtype_bytes(d->dtype));
			device_free(d, dev_y, n * sizeof(float));
			free(index);
			free(want);
			free(field);
		}
	device_free(d, dev_records, sizeof(records));
	device_free(d, dev_scale, INPUTS * sizeof(float));
	device_free(d, dev_offset, INPUTS * sizeof(float));
}

TEST(gather_decodes_the_records_that_the_index_names)
{
	for_each_device(gather);
}
