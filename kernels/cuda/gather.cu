/*
 * gather.cu - rows of a dataset to a batch.  Images stay bytes until here.
 */
#include "kernels/cuda/element.h"
#include "kernels/cuda/ops.h"

/* Segments that one launch takes among its arguments. */
#define SEGMENTS 64

typedef struct GatherArgs
{
	const char *records;
	size_t		record_bytes;
	const uint32_t *index;		/* (n) */
	size_t		n;
	const float *scale;			/* (width), or NULL with offset */
	const float *offset;
	size_t		width;
	void	   *x;				/* (n, width) */
	int			bytes4,			/* four bytes or */
				floats4,		/* floats of any record may be loaded at once, */
				store4;			/* and four elements of any row of x stored */
	Segment		segment[SEGMENTS];
} GatherArgs;

/* Values j .. j + 3 of a segment, of which count exist. */
DEVICE_INLINE void
load_values(const GatherArgs *a, const Segment *segment, const char *values, uint32_t j, uint32_t count, float v[4])
{
	if (segment->dtype != DTYPE_U8)
		load4<DTYPE_F32>(values, j, count, a->floats4 && segment->record_offset % sizeof(float4) == 0, v);
	else if (a->bytes4 && segment->record_offset % sizeof(uchar4) == 0 && count >= 4)
	{
		uchar4		u = *(const uchar4 *) (values + j);

		v[0] = (float) u.x;
		v[1] = (float) u.y;
		v[2] = (float) u.z;
		v[3] = (float) u.w;
	}
	else
	{
#pragma unroll
		for (uint32_t i = 0; i < 4; i++)
			v[i] = i < count ? (float) ((const uint8_t *) values)[j + i] : 0.0f;
	}
}

/* blockIdx.y is the segment; a thread takes four values of a record. */
template <DType D>
static __global__ void
gather_kernel(const __grid_constant__ GatherArgs a)
{
	const Segment *segment = &a.segment[blockIdx.y];
	uint32_t	width = (uint32_t) segment->width,
				groups = (width + 3) / 4,
				first = (uint32_t) segment->input_offset;

	for (size_t i = THREAD_INDEX; i < a.n * groups; i += THREAD_COUNT)
	{
		uint32_t	j,
					count;
		size_t		row = divide(i, groups, &j);
		float		v[4];

		j *= 4;
		count = width - j < 4 ? width - j : 4;
		load_values(&a, segment, a.records + a.index[row] * a.record_bytes + segment->record_offset, j, count, v);
#pragma unroll
		for (uint32_t k = 0; k < 4; k++)
		{
			if (a.scale == NULL)
				v[k] *= segment->dtype == DTYPE_U8 ? 1.0f / 255.0f : 1.0f;
			else if (k < count)
				v[k] = v[k] * a.scale[first + j + k] + a.offset[first + j + k];
		}
		store4<D>(a.x, row * a.width + first + j, count, a.store4 && first % 4 == 0, v);
	}
}

Status
op_gather(Backend *be, const void *records, size_t record_bytes, const uint32_t *index, size_t n,
		  const Segment *segments, int32_t nsegments, const float *scale, const float *offset, size_t width, void *x,
		  DType dtype, Error *err)
{
	GatherArgs	a = {};
	int32_t		s;

	TRY(cuda_check_dtype(dtype, "gathering a batch", err));
	a.records = (const char *) records;
	a.record_bytes = record_bytes;
	a.index = index;
	a.n = n;
	a.scale = scale;
	a.offset = offset;
	a.width = width;
	a.x = x;
	a.bytes4 = (uintptr_t) records % 4 == 0 && record_bytes % 4 == 0;
	a.floats4 = (uintptr_t) records % sizeof(float4) == 0 && record_bytes % sizeof(float4) == 0;
	a.store4 = aligned4(x, dtype) && width % 4 == 0;
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
	for (s = 0; s < nsegments && n > 0; s += SEGMENTS)
	{
		int32_t		count = nsegments - s < SEGMENTS ? nsegments - s : SEGMENTS,
					widest = 1,
					i;

		for (i = 0; i < count; i++)
		{
			a.segment[i] = segments[s + i];
			widest = segments[s + i].width > widest ? segments[s + i].width : widest;
		}
		DTYPE_SWITCH(dtype, D, LAUNCH((gather_kernel<D>),
									  dim3(grid_for(be, ceil_div(n * ceil_div((size_t) widest, 4), BLOCK)),
										   (unsigned) count), BLOCK, 0, be->stream, a));
		TRY(cuda_launched("gathering a batch", err));
	}
	return STATUS_OK;
}

static __global__ void
gather_field_kernel(const char *fields, size_t record_bytes, int aligned, const uint32_t *index, size_t n,
					uint32_t *y)
{
	for (size_t i = THREAD_INDEX; i < n; i += THREAD_COUNT)
	{
		const char *field = fields + index[i] * record_bytes;

		if (aligned)
			y[i] = *(const uint32_t *) field;
		else
		{
			const uint8_t *byte = (const uint8_t *) field;

			y[i] = byte[0] | (uint32_t) byte[1] << 8 | (uint32_t) byte[2] << 16 | (uint32_t) byte[3] << 24;
		}
	}
}

Status
op_gather_field(Backend *be, const void *records, size_t record_bytes, size_t field_offset, const uint32_t *index,
				size_t n, void *y, Error *err)
{
	const char *fields = (const char *) records + field_offset;

	if (n == 0)
		return STATUS_OK;
	LAUNCH(gather_field_kernel, grid_for(be, ceil_div(n, BLOCK)), BLOCK, 0, be->stream, fields, record_bytes,
		   (uintptr_t) fields % 4 == 0 && record_bytes % 4 == 0, index, n, (uint32_t *) y);
	return cuda_launched("gathering a column", err);
}
