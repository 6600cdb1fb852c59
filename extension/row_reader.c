/*
 * row_reader.c - composite values to the network's input.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "utils/memutils.h"
#include "utils/typcache.h"

#include "extension/compat.h"
#include "extension/model_cache.h"
#include "extension/row_reader.h"

void
RowReaderInit(RowReader *reader, const ModelVersion *version, MemoryContext context)
{
	memset(reader, 0, sizeof(RowReader));
	reader->version = version;
	reader->parent = context;
}

bool
RowReaderKnows(const RowReader *reader, HeapTupleHeader row)
{
	return reader->binding != NULL &&
		reader->row_type == HeapTupleHeaderGetTypeId(row) &&
		reader->row_typmod == HeapTupleHeaderGetTypMod(row) &&
		reader->row_generation == relation_generation;
}

void
RowReaderBind(RowReader *reader, HeapTupleHeader row)
{
	Oid			type = HeapTupleHeaderGetTypeId(row);
	int32		typmod = HeapTupleHeaderGetTypMod(row);
	uint64		generation = relation_generation;
	uint64		identifier = assign_record_type_identifier(type, typmod);
	MemoryContext old;
	TupleDesc	desc;

	/* A relation has changed, but not this row type? */
	if (reader->binding != NULL && reader->row_type == type && reader->row_typmod == typmod &&
		reader->row_identifier == identifier)
	{
		reader->row_generation = generation;
		return;
	}

	reader->binding = NULL;
	if (reader->context == NULL)
		reader->context = AllocSetContextCreate(reader->parent, "pg_train binding", ALLOCSET_SMALL_SIZES);
	else
		MemoryContextReset(reader->context);
	old = MemoryContextSwitchTo(reader->context);
	desc = lookup_rowtype_tupdesc(type, typmod);
	/* with the constraints come what heap_deform_tuple checks a row against and defaults for short rows */
	reader->desc = CreateTupleDescCopyConstr(desc);
	ReleaseTupleDesc(desc);
	reader->binding = RowBindingCreate(reader->version, reader->desc);
	reader->values = palloc(sizeof(Datum) * reader->desc->natts);
	reader->nulls = palloc(sizeof(bool) * reader->desc->natts);
	MemoryContextSwitchTo(old);

	reader->row_type = type;
	reader->row_typmod = typmod;
	reader->row_identifier = identifier;
	reader->row_generation = generation;
}

EncodedRow
RowReaderEncode(RowReader *reader, HeapTupleHeader row, float *x)
{
	HeapTupleData tuple;

	tuple.t_len = HeapTupleHeaderGetDatumLength(row);
	ItemPointerSetInvalid(&tuple.t_self);
	tuple.t_tableOid = InvalidOid;
	tuple.t_data = row;
	heap_deform_tuple(&tuple, reader->desc, reader->values, reader->nulls);
	return RowBindingTryEncode(reader->binding, reader->values, reader->nulls, x);
}
