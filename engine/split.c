/*
 * split.c - finishing a dataset: final classes, training and validation rows, means and deviations.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/dataset.h"
#include "engine/dataset_internal.h"
#include "engine/shuffle.h"
#include "engine/streams.h"

/* A deviation this small beside the values' distance to the first one is rounding left over from subtraction. */
#define CONSTANT_VARIANCE 1e-13

static Status
no_memory(Error *err)
{
	return error_set(err, STATUS_NO_MEMORY, "out of memory");
}

static const char *
plural(size_t n)
{
	return n == 1 ? "" : "s";
}

/* Turn provisional codes into final ones and count the rows of each: counts[nclasses]. */
static Status
map_classes(Dataset *ds, const int32_t *codes, size_t nclasses, size_t *counts, Error *err)
{
	int32_t    *targets = (int32_t *) ds->targets.data;
	size_t		i;

	for (i = 0; i < nclasses; i++)
	{
		if (codes[i] < 0 || (size_t) codes[i] >= nclasses || counts[codes[i]]++ != 0)
			return error_set(err, STATUS_PROTOCOL, "class codes are not a permutation");
	}
	memset(counts, 0, nclasses * sizeof(size_t));
	for (i = 0; i < ds->rows; i++)
	{
		if (targets[i] < 0 || (size_t) targets[i] >= nclasses)
			return error_set(err, STATUS_PROTOCOL, "a row has class code %d, but there are %zu classes",
							 targets[i], nclasses);
		targets[i] = codes[targets[i]];
		counts[targets[i]]++;
	}
	return STATUS_OK;
}

/*
 * How many rows of each class are validated: quota[nclasses].  The shares are rounded by largest remainder, so
 * that the total is right, too; every class keeps a row to train on.
 */
static Status
stratified_quotas(const size_t *counts, size_t nclasses, double fraction, size_t total, size_t *quota, Error *err)
{
	double	   *remainder = malloc(nclasses * sizeof(double));
	size_t		given = 0,
				i;

	if (remainder == NULL)
		return no_memory(err);
	for (i = 0; i < nclasses; i++)
	{
		double		share = fraction * (double) counts[i];

		quota[i] = (size_t) share;
		remainder[i] = counts[i] > quota[i] + 1 ? share - (double) quota[i] : -1;
		given += quota[i];
	}
	while (given < total)
	{
		size_t		best = 0;

		for (i = 1; i < nclasses; i++)
			if (remainder[i] > remainder[best])
				best = i;
		if (remainder[best] < 0)
			break;				/* classes are too small to give more */
		remainder[best] = -1;
		quota[best]++;
		given++;
	}
	free(remainder);
	return STATUS_OK;
}

/* Mark validation_fraction of the rows: chosen[rows].  counts: rows a class, or NULL for a plain split. */
static Status
choose_validation(Dataset *ds, const size_t *counts, size_t nclasses, unsigned char *chosen, Error *err)
{
	double		fraction = ds->spec.validation_fraction;
	size_t		total = (size_t) llround(fraction * (double) ds->rows);
	const int32_t *classes = (const int32_t *) ds->targets.data;
	uint32_t   *order;
	size_t	   *quota = NULL;
	size_t		i;
	Status		status = STATUS_OK;

	order = malloc(ds->rows * sizeof(uint32_t));
	if (order == NULL)
		return no_memory(err);
	shuffle(NULL, order, ds->rows, ds->spec.seed, STREAM_SPLIT);
	if (counts != NULL)
	{
		quota = calloc(nclasses, sizeof(size_t));
		status = quota == NULL ? no_memory(err) : stratified_quotas(counts, nclasses, fraction, total, quota, err);
		for (i = 0; i < ds->rows && status == STATUS_OK; i++)
		{
			if (quota[classes[order[i]]] > 0)
			{
				quota[classes[order[i]]]--;
				chosen[order[i]] = 1;
			}
		}
	}
	else
	{
		for (i = 0; i < total; i++)
			chosen[order[i]] = 1;
	}
	free(quota);
	free(order);
	return status;
}

/* Fill the index of training and validation rows, each in the order in which they came. */
static Status
split_rows(Dataset *ds, const size_t *counts, size_t nclasses, Error *err)
{
	DatasetView *view = &ds->view;
	bool		external = ds->spec.external_validation;
	bool		fraction = !external && ds->spec.validation_fraction > 0;
	unsigned char *chosen;
	uint32_t   *train;
	uint32_t   *validation;
	size_t		n = 0,
				i;
	Status		status = STATUS_OK;

	ds->index = malloc(ds->rows * sizeof(uint32_t));
	chosen = calloc(1, ds->rows);
	if (ds->index == NULL || chosen == NULL)
		status = no_memory(err);
	else if (fraction)
		status = choose_validation(ds, ds->spec.stratify ? counts : NULL, nclasses, chosen, err);
	else if (external)
		memset(chosen + ds->train_end, 1, ds->rows - ds->train_end);
	if (status == STATUS_OK)
	{
		for (i = 0; i < ds->rows; i++)
			n += chosen[i];
		train = ds->index;
		validation = ds->index + (ds->rows - n);
		view->train = train;
		view->train_rows = ds->rows - n;
		view->validation = validation;
		view->validation_rows = n;
		for (i = 0; i < ds->rows; i++)
		{
			if (chosen[i])
				*validation++ = (uint32_t) i;
			else
				*train++ = (uint32_t) i;
		}
		if (view->train_rows == 0)
		{
			status = error_set(err, STATUS_INVALID, external ? "the source has no rows" :
							   "no row is left for training: validation_fraction %g takes %s",
							   ds->spec.validation_fraction, ds->rows == 1 ? "the only one" : "all of them");
			error_hint(err, external ? "Check the source's conditions." : "Use a smaller validation_fraction, or more rows.");
		}
		else if (view->validation_rows == 0 && fraction)
		{
			status = error_set(err, STATUS_INVALID, "no row is left for validation: validation_fraction %g of %zu row%s is less than one",
							   ds->spec.validation_fraction, ds->rows, plural(ds->rows));
			if (ds->spec.stratify && counts != NULL)
				error_detail(err, "The split is stratified, and every class keeps a row for training.");
			error_hint(err, "Use a larger validation_fraction, more rows, or validation_fraction => 0 for none.");
		}
		else if (view->validation_rows == 0 && external)
		{
			status = error_set(err, STATUS_INVALID, "the validation source has no rows");
			error_hint(err, "Leave validation_source out to take validation rows from the training source.");
		}
	}
	free(chosen);
	return status;
}

/* Every class needs a row to learn it from. */
static Status
check_classes(const Dataset *ds, size_t *counts, size_t nclasses, Error *err)
{
	const int32_t *classes = (const int32_t *) ds->targets.data;
	size_t		i;

	memset(counts, 0, nclasses * sizeof(size_t));
	for (i = 0; i < ds->view.train_rows; i++)
		counts[classes[ds->view.train[i]]]++;
	for (i = 0; i < nclasses; i++)
	{
		if (counts[i] > 0)
			continue;
		error_set(err, STATUS_INVALID, "class number %zu of %zu has no row in the training split", i + 1, nclasses);
		error_detail(err, "Classes are numbered in the order of their labels.");
		error_hint(err, ds->spec.external_validation ? "Labels of the validation source must occur in the training source, too." :
				   "Use stratify => true, a smaller validation_fraction, or more rows of that class.");
		return STATUS_INVALID;
	}
	return STATUS_OK;
}

/* Means and deviations of the inputs over the training rows, and what gather makes of them. */
static Status
finish_inputs(Dataset *ds, Error *err)
{
	DatasetView *view = &ds->view;
	double		n = (double) view->train_rows;
	bool		standardize = ds->spec.standardize != 0;
	bool		floats = false;
	size_t		i;
	int32_t		k;

	if (standardize && !ds->spec.external_validation)
	{
		for (i = 0; i < view->validation_rows; i++)
			dataset_sum_row(ds, ds->records.data + view->validation[i] * view->record_bytes, -1);
	}
	for (k = 0; k < ds->nintakes; k++)
	{
		const Intake *in = &ds->intakes[k];

		floats = floats || in->dtype == DTYPE_F32;
		for (i = in->input; i < in->input + in->width; i++)
		{
			size_t		place = dataset_place(ds, i);
			double		mean = 0,
						stddev = in->dtype == DTYPE_U8 ? 255 : 1;

			if (standardize && in->dtype == DTYPE_F32)
			{
				double		shift = ds->sum[place] / n,
							squares = ds->sum_squares[place] / n,
							variance = squares - shift * shift;

				if (!isfinite(squares))
				{
					error_set(err, STATUS_INVALID, "input %zu has values that are not finite or too large to standardize", i + 1);
					error_hint(err, "Inputs are numbered in the order of the features.");
					return STATUS_INVALID;
				}
				mean = ds->origin[place] + shift;
				if (variance > CONSTANT_VARIANCE * squares && variance > 0)
					stddev = sqrt(variance);
			}
			ds->mean[i] = mean;
			ds->stddev[i] = stddev;
			ds->scale[place] = (float) (1 / stddev);
			ds->offset[place] = (float) (-mean / stddev);
			if (!isfinite(ds->scale[place]) || !isfinite(ds->offset[place]))
			{
				/* a spread below what a float can be divided by: as good as constant */
				ds->stddev[i] = 1;
				ds->scale[place] = 1;
				ds->offset[place] = (float) -mean;
			}
		}
	}
	view->mean = ds->mean;
	view->stddev = ds->stddev;
	if ((standardize && floats) || ds->widen)
	{
		view->scale = ds->scale;
		view->offset = ds->offset;
	}
	return STATUS_OK;
}

/* Sum of squared distances to the mean, of the targets of some rows. */
static double
target_squares(const float *targets, const uint32_t *rows, size_t n, double *mean)
{
	double		sum = 0,
				squares = 0;
	size_t		i;

	for (i = 0; i < n; i++)
		sum += targets[rows[i]];
	*mean = n > 0 ? sum / (double) n : 0;
	for (i = 0; i < n; i++)
	{
		double		d = targets[rows[i]] - *mean;

		squares += d * d;
	}
	return squares;
}

static Status
finish_target(Dataset *ds, Error *err)
{
	DatasetView *view = &ds->view;
	float	   *targets = (float *) ds->targets.data;
	double		mean,
				stddev = 1,
				squares = target_squares(targets, view->train, view->train_rows, &mean);
	size_t		i;

	if (!isfinite(squares))
	{
		error_set(err, STATUS_INVALID, "the target has values that are not finite");
		error_hint(err, "Leave such rows out of the source.");
		return STATUS_INVALID;
	}
	if (ds->spec.standardize)
	{
		if (squares > 0)
			stddev = sqrt(squares / (double) view->train_rows);
		for (i = 0; i < ds->rows; i++)
			targets[i] = (float) ((targets[i] - mean) / stddev);
		view->stats.target_mean = mean;
		view->stats.target_stddev = stddev;
	}
	view->train_target_squares = target_squares(targets, view->train, view->train_rows, &mean);
	view->validation_target_squares = target_squares(targets, view->validation, view->validation_rows, &mean);
	return STATUS_OK;
}

static Status
finish_rows(Dataset *ds, const int32_t *codes, size_t nclasses, size_t *counts, Error *err)
{
	DatasetView *view = &ds->view;

	if (ds->spec.task == TASK_CLASSIFICATION)
		TRY(map_classes(ds, codes, nclasses, counts, err));
	TRY(split_rows(ds, ds->spec.task == TASK_CLASSIFICATION ? counts : NULL, nclasses, err));
	if (ds->spec.task == TASK_CLASSIFICATION)
		TRY(check_classes(ds, counts, nclasses, err));
	TRY(finish_inputs(ds, err));
	view->stats.target_stddev = 1;
	if (ds->spec.task == TASK_REGRESSION)
		TRY(finish_target(ds, err));
	view->records = ds->records.data;
	view->targets = ds->targets.data;
	view->nclasses = nclasses;
	view->stats.train_rows = (int64_t) view->train_rows;
	view->stats.validation_rows = (int64_t) view->validation_rows;
	view->stats.input_width = view->input_width;
	return STATUS_OK;
}

Status
dataset_finish(Dataset *ds, const int32_t *codes, size_t nclasses, Error *err)
{
	size_t	   *counts;
	Status		status;

	if (ds->rows == 0)
	{
		error_set(err, STATUS_INVALID, "the source has no rows");
		error_hint(err, "Check the source's conditions, and null_policy => 'skip' if rows with NULLs were left out.");
		return STATUS_INVALID;
	}
	if (ds->spec.task == TASK_REGRESSION && nclasses != 0)
		return error_set(err, STATUS_PROTOCOL, "a regression has no classes, but %zu came", nclasses);
	if (ds->spec.task == TASK_CLASSIFICATION && nclasses < 2)
	{
		error_set(err, STATUS_INVALID, "the target has only %zu class%s", nclasses, nclasses == 1 ? "" : "es");
		error_hint(err, "Classification needs at least two classes; a numeric target can be learned with task => 'regression'.");
		return STATUS_INVALID;
	}
	counts = calloc(nclasses + 1, sizeof(size_t));
	if (counts == NULL)
		return no_memory(err);
	status = finish_rows(ds, codes, nclasses, counts, err);
	free(counts);
	return status;
}
