/*
 * gather.c - rows of a dataset to a batch.  Compiled once per instruction set.
 */
#include "kernels/cpu/element.h"
#include "kernels/cpu/ops.h"

#include <string.h>

/* Estimates: a cache miss for each record, and the time for a value. */
#define RECORD_NS 60.0
#define VALUE_NS 0.3

/* Records ahead of the current one that are asked for. */
#define PREFETCH_DISTANCE 8

ALWAYS_INLINE void
gather_u8(const uint8_t *values, size_t width, const float *scale, const float *offset, void *x,
		  const DType dtype)
{
	size_t		j;

	if (scale == NULL)
		for (j = 0; j < width; j++)
			store(x, j, (float) values[j] * (1.0f / 255.0f), dtype);
	else
		for (j = 0; j < width; j++)
			store(x, j, (float) values[j] * scale[j] + offset[j], dtype);
}

ALWAYS_INLINE void
gather_f32(const float *values, size_t width, const float *scale, const float *offset, void *x,
		   const DType dtype)
{
	size_t		j;

	if (scale == NULL)
		for (j = 0; j < width; j++)
			store(x, j, values[j], dtype);
	else
		for (j = 0; j < width; j++)
			store(x, j, values[j] * scale[j] + offset[j], dtype);
}

ALWAYS_INLINE void
gather_rows(const char *records, size_t record_bytes, const uint32_t *index, size_t lo, size_t hi, size_t n,
			const Segment *segments, int32_t nsegments, const float *scale, const float *offset,
			size_t width, void *x, const DType dtype)
{
	size_t		i;
	int32_t		s;

	for (i = lo; i < hi; i++)
	{
		const char *record = records + index[i] * record_bytes;

		if (i + PREFETCH_DISTANCE < n)
			__builtin_prefetch(records + index[i + PREFETCH_DISTANCE] * record_bytes);
		for (s = 0; s < nsegments; s++)
		{
			const Segment *segment = &segments[s];
			size_t		first = (size_t) segment->input_offset;
			const void *values = record + segment->record_offset;
			void	   *out = element(x, dtype, i * width + first);
			const float *a = scale == NULL ? NULL : scale + first,
					   *b = scale == NULL ? NULL : offset + first;

			if (segment->dtype == DTYPE_U8)
				gather_u8(values, (size_t) segment->width, a, b, out, dtype);
			else
				gather_f32(values, (size_t) segment->width, a, b, out, dtype);
		}
	}
}

Status
op_gather(Backend *be, const void *records, size_t record_bytes, const uint32_t *index, size_t n,
		  const Segment *segments, int32_t nsegments, const float *scale, const float *offset,
		  size_t width, void *x, DType dtype, Error *err)
{
	int			nt = threads_for(be, (double) n * (RECORD_NS + VALUE_NS * (double) width));
	int32_t		s;

	TRY(cpu_check_dtype(dtype, "gathering a batch", err));
	for (s = 0; s < nsegments; s++)
	{
		if (segments[s].dtype != DTYPE_F32 && segments[s].dtype != DTYPE_U8)
			return error_set(err, STATUS_UNSUPPORTED, "a dataset column cannot have data type %d",
							 (int) segments[s].dtype);
		/* Records are read as floats where they lie. */
		if (segments[s].dtype == DTYPE_F32
			&& (segments[s].record_offset % sizeof(float) != 0 || record_bytes % sizeof(float) != 0))
			return error_set(err, STATUS_INTERNAL, "a float column of a dataset record is not aligned");
	}
	PARALLEL(nt)
	{
		size_t		lo,
					hi;

		thread_range(n, 4, thread_index(), thread_count(), &lo, &hi);
		DTYPE_SWITCH(dtype, D, gather_rows(records, record_bytes, index, lo, hi, n, segments, nsegments,
										   scale, offset, width, x, D));
	}
	return STATUS_OK;
}

Status
op_gather_field(Backend *be, const void *records, size_t record_bytes, size_t field_offset,
				const uint32_t *index, size_t n, void *y, Error *err)
{
	const char *fields = (const char *) records + field_offset;
	int			nt = threads_for(be, (double) n * 5.0);

	(void) err;
	PARALLEL(nt)
	{
		size_t		lo,
					hi,
					i;

		thread_range(n, 16, thread_index(), thread_count(), &lo, &hi);
		for (i = lo; i < hi; i++)
			memcpy((char *) y + i * 4, fields + index[i] * record_bytes, 4);
	}
	return STATUS_OK;
}
