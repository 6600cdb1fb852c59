/*
 * dataset.c - taking rows in.
 */
#define _GNU_SOURCE
#include "engine/dataset.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/dataset_internal.h"
#include "engine/layers.h"

#define GROWTH_MIN_BYTES ((size_t) 4 << 20)
#define HUGE_PAGE_BYTES ((size_t) 2 << 20)

static Status
grow(Growing *g, size_t bytes, Error *err)
{
	size_t		want = g->bytes < GROWTH_MIN_BYTES ? GROWTH_MIN_BYTES : g->bytes + g->bytes / 2;
	void	   *data;

	if (bytes <= g->bytes)
		return STATUS_OK;
	if (want < bytes)
		want = bytes;
	want = (want + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
	if (g->data == NULL)
		data = mmap(NULL, want, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	else
		data = mremap(g->data, g->bytes, want, MREMAP_MAYMOVE);
	if (data == MAP_FAILED)
		return error_set(err, STATUS_NO_MEMORY, "out of memory for the dataset: %zu MB are not to be had", want >> 20);
	/* rows are read in random order, so translations matter; a kernel without huge pages does without */
	madvise(data, want, MADV_HUGEPAGE);
	g->data = data;
	g->bytes = want;
	return STATUS_OK;
}

static void
ungrow(Growing *g)
{
	if (g->data != NULL)
		munmap(g->data, g->bytes);
	g->data = NULL;
	g->bytes = 0;
}

size_t
dataset_place(const Dataset *ds, size_t i)
{
	size_t		plane = (size_t) ds->spec.input.height * ds->spec.input.width;

	return ds->permute ? (i % plane) * ds->spec.input.channels + i / plane : i;
}

static Status
bad_layout(Error *err, const char *what)
{
	return error_set(err, STATUS_PROTOCOL, "record layout is not valid: %s", what);
}

/* Every element of the input comes from exactly one place inside the record. */
static Status
check_layout(const DatasetSpec *spec, const RecordLayout *layout, Error *err)
{
	unsigned char *seen;
	int64_t		covered = 0;
	int32_t		i;
	Status		status = STATUS_OK;

	if (layout->record_bytes < 4 || layout->record_bytes % 4 != 0)
		return bad_layout(err, "record size");
	if (layout->target_offset < 0 || layout->target_offset % 4 != 0 || layout->target_offset > layout->record_bytes - 4)
		return bad_layout(err, "target offset");
	if (layout->nsegments < 1 || layout->nsegments > MAX_SEGMENTS)
		return bad_layout(err, "number of segments");
	if (layout->input_width < 1 || layout->input_width > layout->record_bytes)
		return bad_layout(err, "input width");
	if (spec->task != TASK_REGRESSION && spec->task != TASK_CLASSIFICATION)
		return error_set(err, STATUS_PROTOCOL, "task %d is unknown", spec->task);
	if (!(spec->validation_fraction >= 0 && spec->validation_fraction < 1))
		return error_set(err, STATUS_INVALID, "validation_fraction must be at least 0 and below 1, not %g",
						 spec->validation_fraction);
	if (spec->input.channels < 0 || spec->input.height < 0 || spec->input.width < 0 ||
		(spec->input.height == 0) != (spec->input.width == 0))
		return error_set(err, STATUS_PROTOCOL, "input shape is not valid");
	if (shape_is_image(spec->input) &&
		(__builtin_mul_overflow((int64_t) spec->input.channels * spec->input.height, (int64_t) spec->input.width, &covered) ||
		 covered != layout->input_width))
	{
		error_set(err, STATUS_INVALID, "input_shape (%d, %d, %d) does not fit the features, which have %d values a row",
				  spec->input.channels, spec->input.height, spec->input.width, layout->input_width);
		error_hint(err, "The product of input_shape must be the number of values.");
		return STATUS_INVALID;
	}
	seen = calloc(1, layout->input_width);
	if (seen == NULL)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	covered = 0;
	for (i = 0; i < layout->nsegments && status == STATUS_OK; i++)
	{
		const Segment *s = &layout->segments[i];
		int64_t		bytes = s->dtype == DTYPE_F32 ? 4 : 1;

		if ((s->dtype != DTYPE_F32 && s->dtype != DTYPE_U8) || s->width < 1 ||
			s->record_offset < 0 || s->record_offset % bytes != 0 ||
			s->record_offset + s->width * bytes > layout->record_bytes ||
			s->input_offset < 0 || (int64_t) s->input_offset + s->width > layout->input_width)
			status = bad_layout(err, "segment outside of the record");
		else if (memchr(seen + s->input_offset, 1, s->width) != NULL)
			status = bad_layout(err, "segments overlap");
		else
		{
			memset(seen + s->input_offset, 1, s->width);
			covered += s->width;
		}
	}
	free(seen);
	if (status == STATUS_OK && covered != layout->input_width)
		status = bad_layout(err, "segments do not cover the input");
	return status;
}

/* How records are kept: segments as they come, or one of all elements where they are permuted. */
static void
plan_records(Dataset *ds, const RecordLayout *layout)
{
	DatasetView *view = &ds->view;
	bool		u8 = true,
				f32 = true;
	int32_t		i;

	for (i = 0; i < layout->nsegments; i++)
	{
		const Segment *s = &layout->segments[i];

		ds->intakes[i] = (Intake)
		{
			s->dtype, s->width, s->record_offset, s->input_offset
		};
		u8 = u8 && s->dtype == DTYPE_U8;
		f32 = f32 && s->dtype == DTYPE_F32;
	}
	ds->permute = ds->spec.input.channels > 1 && (ds->spec.input.height > 1 || ds->spec.input.width > 1);
	ds->widen = ds->permute && !u8 && !f32;
	if (ds->permute)
	{
		ds->segments[0] = (Segment)
		{
			u8 ? DTYPE_U8 : DTYPE_F32, layout->input_width, 0, 0
		};
		view->nsegments = 1;
		/* a multiple of 4 */
		view->record_bytes = ((size_t) layout->input_width * (u8 ? 1 : 4) + 3) / 4 * 4;
	}
	else
	{
		memcpy(ds->segments, layout->segments, layout->nsegments * sizeof(Segment));
		view->nsegments = layout->nsegments;
		/* the target is kept apart; where it stands last it costs no room */
		view->record_bytes = layout->target_offset == layout->record_bytes - 4 ?
			layout->target_offset : layout->record_bytes;
		for (i = 0; i < layout->nsegments; i++)
		{
			const Segment *s = &layout->segments[i];
			size_t		end = (size_t) s->record_offset + (size_t) s->width * (s->dtype == DTYPE_F32 ? 4 : 1);

			/* a segment that reads the target, too */
			if (end > view->record_bytes)
				view->record_bytes = layout->record_bytes;
		}
	}
	view->segments = ds->segments;
}

Status
dataset_create(const DatasetSpec *spec, const RecordLayout *layout, Dataset **out, Error *err)
{
	Dataset    *ds;
	size_t		width;

	*out = NULL;
	TRY(check_layout(spec, layout, err));
	ds = calloc(1, sizeof(Dataset));
	if (ds == NULL)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	width = layout->input_width;
	ds->spec = *spec;
	ds->source_bytes = layout->record_bytes;
	ds->target_offset = layout->target_offset;
	ds->nintakes = layout->nsegments;
	ds->view.input_width = layout->input_width;
	ds->view.input = spec->input;
	ds->intakes = calloc(layout->nsegments, sizeof(Intake));
	ds->segments = calloc(layout->nsegments, sizeof(Segment));
	ds->origin = calloc(width, sizeof(float));
	ds->sum = calloc(width, sizeof(double));
	ds->sum_squares = calloc(width, sizeof(double));
	ds->scale = calloc(width, sizeof(float));
	ds->offset = calloc(width, sizeof(float));
	ds->mean = calloc(width, sizeof(double));
	ds->stddev = calloc(width, sizeof(double));
	if (ds->intakes == NULL || ds->segments == NULL || ds->origin == NULL || ds->sum == NULL ||
		ds->sum_squares == NULL || ds->scale == NULL || ds->offset == NULL || ds->mean == NULL || ds->stddev == NULL)
	{
		dataset_free(ds);
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	}
	plan_records(ds, layout);
	*out = ds;
	return STATUS_OK;
}

void
dataset_free(Dataset *ds)
{
	if (ds == NULL)
		return;
	ungrow(&ds->records);
	ungrow(&ds->targets);
	free(ds->intakes);
	free(ds->segments);
	free(ds->origin);
	free(ds->sum);
	free(ds->sum_squares);
	free(ds->scale);
	free(ds->offset);
	free(ds->mean);
	free(ds->stddev);
	free(ds->index);
	free(ds);
}

const DatasetView *
dataset_view(const Dataset *ds)
{
	return &ds->view;
}

/* Turn a record into one run of elements, channels last. */
static void
permute_record(const Dataset *ds, const char *from, char *to)
{
	size_t		channels = ds->spec.input.channels,
				plane = (size_t) ds->spec.input.height * ds->spec.input.width;
	bool		to_u8 = ds->segments[0].dtype == DTYPE_U8;
	int32_t		i;

	for (i = 0; i < ds->nintakes; i++)
	{
		const Intake *in = &ds->intakes[i];
		size_t		channel = in->input / plane,
					pixel = in->input % plane,
					j;

		for (j = 0; j < in->width; j++)
		{
			size_t		place = pixel * channels + channel;

			if (to_u8)
				to[place] = from[in->from + j];
			else if (in->dtype == DTYPE_U8)
			{
				float		value = (unsigned char) from[in->from + j];

				memcpy(to + 4 * place, &value, 4);
			}
			else
				memcpy(to + 4 * place, from + in->from + 4 * j, 4);
			if (++pixel == plane)
			{
				pixel = 0;
				channel++;
			}
		}
	}
}

void
dataset_sum_row(Dataset *ds, const char *kept, double sign)
{
	int32_t		i;

	for (i = 0; i < ds->view.nsegments; i++)
	{
		const Segment *s = &ds->segments[i];
		const float *values = (const float *) (kept + s->record_offset);
		const float *restrict origin = ds->origin + s->input_offset;
		double	   *restrict sum = ds->sum + s->input_offset;
		double	   *restrict sum_squares = ds->sum_squares + s->input_offset;
		int32_t		j;

		if (s->dtype != DTYPE_F32)
			continue;
		for (j = 0; j < s->width; j++)
		{
			double		d = (double) values[j] - (double) origin[j];

			sum[j] += sign * d;
			sum_squares[j] += sign * d * d;
		}
	}
}

static void
set_origin(Dataset *ds, const char *kept)
{
	int32_t		i;

	for (i = 0; i < ds->view.nsegments; i++)
	{
		const Segment *s = &ds->segments[i];

		if (s->dtype == DTYPE_F32)
			memcpy(ds->origin + s->input_offset, kept + s->record_offset, s->width * sizeof(float));
	}
}

Status
dataset_add(Dataset *ds, const void *records, size_t rows, SplitKind split, Error *err)
{
	DatasetView *view = &ds->view;
	const char *from = records;
	bool		sums = ds->spec.standardize && split == SPLIT_TRAIN;
	size_t		bytes;
	size_t		i;

	if (split != SPLIT_TRAIN && split != SPLIT_VALIDATION)
		return error_set(err, STATUS_PROTOCOL, "split %d is unknown", (int) split);
	if (split == SPLIT_VALIDATION && !ds->spec.external_validation)
		return error_set(err, STATUS_PROTOCOL, "validation rows came, but the dataset is to be split");
	if (split == SPLIT_TRAIN && ds->rows > ds->train_end)
		return error_set(err, STATUS_PROTOCOL, "training rows came after validation rows");
	if (rows == 0)
		return STATUS_OK;
	if (rows > UINT32_MAX - ds->rows)
	{
		error_set(err, STATUS_UNSUPPORTED, "the source has more than %u rows", UINT32_MAX);
		error_hint(err, "Train on a sample, for instance with TABLESAMPLE.");
		return STATUS_UNSUPPORTED;
	}
	if (__builtin_mul_overflow(ds->rows + rows, view->record_bytes, &bytes))
		return error_set(err, STATUS_NO_MEMORY, "the dataset does not fit in memory");
	TRY(grow(&ds->records, bytes, err));
	TRY(grow(&ds->targets, (ds->rows + rows) * 4, err));
	for (i = 0; i < rows; i++, from += ds->source_bytes)
	{
		char	   *kept = ds->records.data + (ds->rows + i) * view->record_bytes;

		if (ds->permute)
			permute_record(ds, from, kept);
		else
			memcpy(kept, from, view->record_bytes);
		memcpy(ds->targets.data + 4 * (ds->rows + i), from + ds->target_offset, 4);
		if (!sums)
			continue;
		if (ds->rows + i == 0)
			set_origin(ds, kept);
		dataset_sum_row(ds, kept, 1);
	}
	ds->rows += rows;
	if (split == SPLIT_TRAIN)
		ds->train_end = ds->rows;
	return STATUS_OK;
}
