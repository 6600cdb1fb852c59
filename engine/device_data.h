/*
 * device_data.h - a dataset as a device reads it: in the device's memory, gathered into batches.
 *
 * On the CPU that is where the rows lie already.  Another device gets a copy of them.
 */
#ifndef PGT_DEVICE_DATA_H
#define PGT_DEVICE_DATA_H

#include <stdbool.h>

#include "engine/dataset.h"

typedef struct DeviceData
{
	const BackendOps *ops;
	Backend    *be;
	const DatasetView *view;
	bool		copied;			/* records and targets are ours */
	size_t		rows;

	/* device memory */
	void	   *records;
	void	   *targets;
	float	   *scale;			/* [input_width], or NULL */
	float	   *offset;
} DeviceData;

/* view must outlive it.  After a failure the memory is given back. */
extern Status device_data_create(const BackendOps *ops, Backend *be, const DatasetView *view, DeviceData *data,
								 Error *err);
extern void device_data_free(DeviceData *data);

/* Inputs and targets of some rows: index (rows), x (rows, input_width), targets (rows), all on the device. */
extern Status device_data_gather(const DeviceData *data, const uint32_t *index, size_t rows, void *x, DType dtype,
								 void *targets, Error *err);

#endif							/* PGT_DEVICE_DATA_H */
