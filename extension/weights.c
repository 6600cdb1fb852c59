/*
 * weights.c - tensors of a version, in chunks of bytea.
 *
 * A chunk is far below the 1 GB that a value may have and small enough that writing and reading hold one of them
 * in memory beside the tensor.  Values are float32, little-endian, in PyTorch's layout.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "extension/catalog.h"
#include "extension/compat.h"

#define CHUNK_VALUES ((int64) 4 << 20)	/* 16 MB */

/* Copy float32 values between memory and their stored order of bytes. */
static void
CopyLittleEndian(void *to, const void *from, size_t values)
{
#ifdef WORDS_BIGENDIAN
	const char *source = from;
	char	   *target = to;

	for (size_t i = 0; i < values; i++)
	{
		uint32		word;

		memcpy(&word, source + i * sizeof(word), sizeof(word));
		word = pg_bswap32(word);
		memcpy(target + i * sizeof(word), &word, sizeof(word));
	}
#else
	memcpy(to, from, values * sizeof(float));
#endif
}

static Datum
ShapeArray(const TensorHeader *header)
{
	Datum		dims[MAX_TENSOR_DIMS];

	for (int i = 0; i < header->ndim; i++)
		dims[i] = Int32GetDatum(header->dims[i]);
	return PointerGetDatum(construct_array(dims, header->ndim, INT4OID, 4, true, TYPALIGN_INT));
}

void
CatalogWriteTensors(int64 model_id, int32 version, const List *tensors)
{
	Oid			types[] = {INT8OID, INT4OID, INT4OID, INT4OID, TEXTOID, INT4ARRAYOID, BYTEAOID};
	Datum		values[lengthof(types)];
	SPIPlanPtr	plan;
	bytea	   *buffer;
	int64		largest = 0;
	int			position = 0;
	MemoryContext per_chunk;
	ListCell   *lc;

	plan = SPI_prepare("INSERT INTO pgtrain.weight (model_id, version, position, chunk, tensor, shape, data)"
					   " VALUES ($1, $2, $3, $4, $5, $6, $7)",
					   lengthof(types), types);
	if (plan == NULL)
		elog(ERROR, "SPI_prepare failed: %s", SPI_result_code_string(SPI_result));

	foreach(lc, tensors)
		largest = Max(largest, ((StoredTensor *) lfirst(lc))->header.values);
	buffer = palloc(VARHDRSZ + sizeof(float) * Min(largest, CHUNK_VALUES));
	per_chunk = AllocSetContextCreate(CurrentMemoryContext, "pg_train chunk", ALLOCSET_SMALL_SIZES);

	foreach(lc, tensors)
	{
		const StoredTensor *tensor = lfirst(lc);
		int			chunk = 0;

		for (int64 done = 0; done < tensor->header.values; chunk++)
		{
			int64		count = Min(tensor->header.values - done, CHUNK_VALUES);
			MemoryContext old;
			int			result;

			CHECK_FOR_INTERRUPTS();
			CopyLittleEndian(VARDATA(buffer), tensor->data + done, count);
			SET_VARSIZE(buffer, VARHDRSZ + count * sizeof(float));

			old = MemoryContextSwitchTo(per_chunk);
			values[0] = Int64GetDatum(model_id);
			values[1] = Int32GetDatum(version);
			values[2] = Int32GetDatum(position);
			values[3] = Int32GetDatum(chunk);
			values[4] = CStringGetTextDatum(tensor->header.name);
			values[5] = ShapeArray(&tensor->header);
			values[6] = PointerGetDatum(buffer);
			result = SPI_execute_plan(plan, values, NULL, false, 0);
			if (result != SPI_OK_INSERT)
				elog(ERROR, "could not store weights: %s", SPI_result_code_string(result));
			MemoryContextSwitchTo(old);
			MemoryContextReset(per_chunk);
			done += count;
		}
		position++;
	}
	pfree(buffer);
	MemoryContextDelete(per_chunk);
	SPI_freeplan(plan);
}

/* Set a tensor's name and shape from its first chunk. */
static void
ReadHeader(TensorHeader *header, HeapTuple tuple, TupleDesc desc)
{
	bool		isnull;
	char	   *name = SPI_getvalue(tuple, desc, 2);
	ArrayType  *shape = DatumGetArrayTypeP(SPI_getbinval(tuple, desc, 3, &isnull));
	int			ndim = ArrayGetNItems(ARR_NDIM(shape), ARR_DIMS(shape));

	memset(header, 0, sizeof(*header));
	strlcpy(header->name, name, sizeof(header->name));
	if (ndim > MAX_TENSOR_DIMS || ARR_HASNULL(shape))
		elog(ERROR, "shape of tensor \"%s\" is not valid", name);
	header->ndim = ndim;
	header->values = 1;
	for (int i = 0; i < ndim; i++)
	{
		header->dims[i] = ((const int32 *) ARR_DATA_PTR(shape))[i];
		if (header->dims[i] < 1 || header->values > (int64) (MaxAllocHugeSize / sizeof(float)) / header->dims[i])
			elog(ERROR, "shape of tensor \"%s\" is not valid", name);
		header->values *= header->dims[i];
	}
}

void
CatalogReadTensors(const ModelReference *resolved, TensorVisitor visit, void *arg)
{
	Oid			types[] = {INT8OID, INT4OID};
	Datum		params[] = {Int64GetDatum(resolved->model_id), Int32GetDatum(resolved->version)};
	CatalogScope scope;
	SPITupleTable *rows;
	uint64		nrows;
	TensorHeader header = {0};
	int32		position = -1;
	float	   *data = NULL;
	int64		have = 0;

	CatalogBegin(&scope);
	/* The rows hold pointers to the chunks, which are fetched one by one below. */
	nrows = CatalogExecute("SELECT position, tensor, shape, data FROM pgtrain.weight"
						   " WHERE model_id = $1 AND version = $2 ORDER BY position, chunk",
						   true, lengthof(types), types, params, NULL);
	rows = SPI_tuptable;

	for (uint64 i = 0; i < nrows; i++)
	{
		HeapTuple	tuple = rows->vals[i];
		bool		isnull;
		int32		row_position = DatumGetInt32(SPI_getbinval(tuple, rows->tupdesc, 1, &isnull));
		Datum		stored = SPI_getbinval(tuple, rows->tupdesc, 4, &isnull);
		bytea	   *chunk;
		int64		count;

		CHECK_FOR_INTERRUPTS();
		if (row_position != position)
		{
			if (have != header.values)
				break;
			position = row_position;
			ReadHeader(&header, tuple, rows->tupdesc);
			if (data != NULL)
				pfree(data);
			data = palloc_extended(sizeof(float) * header.values, MCXT_ALLOC_HUGE);
			have = 0;
		}
		chunk = DatumGetByteaPP(stored);
		count = VARSIZE_ANY_EXHDR(chunk) / sizeof(float);
		if (VARSIZE_ANY_EXHDR(chunk) % sizeof(float) != 0 || count > header.values - have)
		{
			have = -1;
			break;
		}
		CopyLittleEndian(data + have, VARDATA_ANY(chunk), count);
		have += count;
		if ((Pointer) chunk != DatumGetPointer(stored))
			pfree(chunk);

		if (have == header.values)
		{
			MemoryContext old = MemoryContextSwitchTo(scope.caller);

			visit(arg, &header, data);
			MemoryContextSwitchTo(old);
		}
	}
	if (have != header.values)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("weights of model \"%s\", version %d, are damaged", resolved->name, resolved->version),
				 errdetail("Tensor \"%s\" does not have the %lld values of its shape.",
						   header.name, (long long) header.values)));
	CatalogEnd(&scope);
}
