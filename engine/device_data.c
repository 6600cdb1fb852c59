/*
 * device_data.c - a dataset as a device reads it.
 */
#include "engine/device_data.h"

#include <string.h>

/* Rows go to a device in pieces of this size, so that a driver that stages them needs little memory. */
#define PIECE_BYTES ((size_t) 64 << 20)

static Status
put(DeviceData *data, const void *host, size_t bytes, void *out, Error *err)
{
	void	   *memory;
	size_t		done,
				piece;

	TRY(data->ops->alloc(data->be, bytes, &memory, err));
	*(void **) out = memory;
	for (done = 0; done < bytes; done += piece)
	{
		piece = bytes - done < PIECE_BYTES ? bytes - done : PIECE_BYTES;
		TRY(data->ops->copy_in(data->be, (char *) memory + done, (const char *) host + done, piece, err));
	}
	return STATUS_OK;
}

/* Say what is missing before an allocation fails in the middle. */
static Status
check_memory(const DeviceData *data, Error *err)
{
	double		need = (double) data->rows * (double) (data->view->record_bytes + 4);
	size_t		have;

	TRY(data->ops->memory_free(data->be, &have, err));
	if (need <= (double) have)
		return STATUS_OK;
	error_set(err, STATUS_NO_MEMORY, "the dataset needs %.0f MB of the device's memory, of which %.0f MB are free",
			  need / 1048576, (double) have / 1048576);
	error_detail(err, "It has %zu rows of %zu bytes.", data->rows, data->view->record_bytes + 4);
	error_hint(err, "Train on a sample, on a device with more memory, or with device => 'cpu'.");
	return STATUS_NO_MEMORY;
}

static Status
copy_rows(DeviceData *data, Error *err)
{
	TRY(check_memory(data, err));
	data->copied = true;
	TRY(put(data, data->view->records, data->rows * data->view->record_bytes, &data->records, err));
	return put(data, data->view->targets, data->rows * 4, &data->targets, err);
}

static Status
build(DeviceData *data, Error *err)
{
	const DatasetView *view = data->view;
	size_t		width_bytes = (size_t) view->input_width * sizeof(float);
	DeviceInfo	info;

	data->ops->info(data->be, &info);
	if (info.asynchronous)
		TRY(copy_rows(data, err));
	else
	{
		data->records = (void *) view->records;
		data->targets = (void *) view->targets;
	}
	if (view->scale == NULL)
		return STATUS_OK;
	TRY(put(data, view->scale, width_bytes, &data->scale, err));
	return put(data, view->offset, width_bytes, &data->offset, err);
}

Status
device_data_create(const BackendOps *ops, Backend *be, const DatasetView *view, DeviceData *data, Error *err)
{
	Status		status;

	memset(data, 0, sizeof(*data));
	data->ops = ops;
	data->be = be;
	data->view = view;
	data->rows = view->train_rows + view->validation_rows;
	status = build(data, err);
	if (status != STATUS_OK)
		device_data_free(data);
	return status;
}

static void
release(DeviceData *data, void *memory, size_t bytes)
{
	if (memory != NULL)
		data->ops->free(data->be, memory, bytes);
}

void
device_data_free(DeviceData *data)
{
	size_t		width_bytes;

	if (data->view == NULL)
		return;
	width_bytes = (size_t) data->view->input_width * sizeof(float);
	if (data->copied)
	{
		release(data, data->records, data->rows * data->view->record_bytes);
		release(data, data->targets, data->rows * 4);
	}
	release(data, data->scale, width_bytes);
	release(data, data->offset, width_bytes);
	memset(data, 0, sizeof(*data));
}

Status
device_data_gather(const DeviceData *data, const uint32_t *index, size_t rows, void *x, DType dtype, void *targets,
				   Error *err)
{
	const DatasetView *view = data->view;

	TRY(data->ops->gather(data->be, data->records, view->record_bytes, index, rows, view->segments, view->nsegments,
						  data->scale, data->offset, view->input_width, x, dtype, err));
	return data->ops->gather_field(data->be, data->targets, 4, 0, index, rows, targets, err);
}
