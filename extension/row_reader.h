/*
 * row_reader.h - composite values to the network's input.
 *
 * A reader remembers how the row type seen last binds to its model, and binds anew where another one comes or the
 * columns of its relation have changed.
 */
#ifndef PGT_ROW_READER_H
#define PGT_ROW_READER_H

#include "postgres.h"

#include "access/htup.h"

#include "extension/row_binding.h"

typedef struct RowReader
{
	const ModelVersion *version;
	MemoryContext parent;

	/* The row type seen last, and how it binds. */
	Oid			row_type;
	int32		row_typmod;
	uint64		row_generation; /* of relation_generation, when row_identifier was right */
	uint64		row_identifier;
	MemoryContext context;
	RowBinding *binding;		/* NULL: none seen */
	TupleDesc	desc;
	Datum	   *values;
	bool	   *nulls;
} RowReader;

/* The reader keeps what it needs below context. */
extern void RowReaderInit(RowReader *reader, const ModelVersion *version, MemoryContext context);

/* Is the type of row bound already?  Otherwise RowReaderBind has to come first, whose ERRORs tell what does not fit. */
extern bool RowReaderKnows(const RowReader *reader, HeapTupleHeader row);
extern void RowReaderBind(RowReader *reader, HeapTupleHeader row);

/* Fill x[input_width] from a row of the bound type. */
extern EncodedRow RowReaderEncode(RowReader *reader, HeapTupleHeader row, float *x);

#endif							/* PGT_ROW_READER_H */
