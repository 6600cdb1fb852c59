/*
 * rows.c - rows of a source to fixed-width records in slots.
 *
 * A record holds the float features in their order, then the bytea features, then, aligned, the 4-byte target.  Runs
 * of columns of one type are encoded by one loop; nothing is allocated a row but what detoasting takes.
 */
#include "postgres.h"

#include <float.h>
#include <math.h>
#include <time.h>

#include "access/tupmacs.h"
#include "catalog/pg_type.h"
#include "common/int.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "engine/ring.h"
#include "extension/compat.h"
#include "loader/labels.h"
#include "loader/loader.h"
#include "loader/number.h"

/* A message with two doubles an input has to fit into a frame. */
#define MAX_INPUT_WIDTH 1000000

/* No float is out of range after a smaller shift. */
#define MAX_SHIFT 1e30

/* How often a source whose rows come slowly looks whether the sink is still there. */
#define CHECK_SINK_MS 100

/* Columns that an error about nulls names. */
#define MAX_NAMED_COLUMNS 10

typedef struct Column
{
	ColumnEncoder *encoder;
	Oid			type;			/* in this source, domains resolved */
	Oid			element_type;
	int			attribute;		/* in the slot */
	int64		nulls;
} Column;

/* Columns of one scalar type that are neighbours in the slot and in the record. */
typedef struct Run
{
	Oid			type;
	int			first;			/* in columns */
	int			count;
	int			attribute;
	int			record_offset;
} Run;

typedef struct Loader
{
	DestReceiver receiver;		/* first: the executor knows only this */
	Source	   *source;
	const LoadOptions *options;
	RowSink    *sink;
	LoadResult *result;
	int			natts;
	int			ncolumns;
	Column	   *columns;
	int			nruns;
	Run		   *runs;			/* once widths are known */
	float	   *shift4;			/* [column] */
	double	   *shift8;
	int			target_attribute;
	Oid			target_type;
	int64		target_nulls;
	TargetKind	kind;
	bool		ready;			/* layout and runs are set */
	bool		started;		/* the sink has the layout */
	bool		counting;		/* a null was found that is an error: the rest is only counted */
	bool		abandoned;
	char	   *slot;			/* the sink's; our own until it is started */
	Size		record_bytes;
	uint32		rows;			/* in slot */
	uint32		capacity;
	int64		seen;
	int64		null_rows;
	int64		checked_ms;		/* when the sink was */
	MemoryContext context;		/* the caller's */
	MemoryContext scratch;		/* what detoasting takes; reset a row */
	bool		needs_scratch;
} Loader;

bool
TargetTypeSupported(Oid type, TargetKind kind)
{
	if (kind == TARGET_LABEL)
		return LabelTypeSupported(type);
	type = getBaseType(type);
	return IsNumberType(type) && type != BOOLOID;
}

bool
TargetTypesMatch(Oid type, Oid other)
{
	return LabelTypesMatch(getBaseType(type), getBaseType(other));
}

/* Errors of a value */

static void pg_attribute_noreturn()
BadNumber(const Loader *loader, const char *column, double value)
{
	if (isfinite(value))
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("value of column \"%s\" is out of range in row %lld", column, (long long) loader->seen),
				 errdetail("%g is too large for a 4-byte float, which networks compute with.", value),
				 errhint("Scale the column in a SELECT, or take its logarithm.")));
	ereport(ERROR,
			(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
			 errmsg("value of column \"%s\" is not finite in row %lld", column, (long long) loader->seen),
			 errdetail("It is %s.", isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity"),
			 errhint("Leave such rows out, or replace the value, with a SELECT.")));
}

static void pg_attribute_noreturn()
WrongLength(const Loader *loader, const ColumnEncoder *encoder, int length)
{
	const char *unit = encoder->kind == ENCODER_BYTES ? "bytes" : "elements";

	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("column \"%s\" has %d %s in row %lld, not %d as before", encoder->column, length, unit,
					(long long) loader->seen, encoder->width),
			 errdetail("The length of a feature must be the same in all rows.")));
}

/* Encoding: each returns false where a result is not finite. */

static inline bool
IsFinite(float value)
{
	uint32		bits;

	memcpy(&bits, &value, sizeof(bits));
	return (bits & 0x7f800000) != 0x7f800000;
}

static inline double
ShiftInt8(int64 value, double shift)
{
	int64		whole;
	int64		difference;

	/* Both may be large where their difference is small. */
	if (shift == 0 || fabs(shift) >= 9e18)
		return (double) value - shift;
	whole = (int64) shift;
	if (pg_sub_s64_overflow(value, whole, &difference))
		return (double) value - shift;
	return (double) difference - (shift - (double) whole);
}

static bool
EncodeFloat4Run(const Datum *values, const float *shift, float *x, int n)
{
	int			finite = 1;

	for (int i = 0; i < n; i++)
	{
		x[i] = DatumGetFloat4(values[i]) - shift[i];
		finite &= IsFinite(x[i]);
	}
	return finite;
}

#define ENCODE_RUN(expression) \
	for (int i = 0; i < n; i++) \
	{ \
		x[i] = (float) (expression); \
		finite &= IsFinite(x[i]); \
	} \
	break

static bool
EncodeRun(Oid type, const Datum *values, const double *shift, float *x, int n)
{
	int			finite = 1;

	switch (type)
	{
		case FLOAT8OID:
			ENCODE_RUN(DatumGetFloat8(values[i]) - shift[i]);
		case INT4OID:
			ENCODE_RUN(DatumGetInt32(values[i]) - shift[i]);
		case INT8OID:
			ENCODE_RUN(ShiftInt8(DatumGetInt64(values[i]), shift[i]));
		case INT2OID:
			ENCODE_RUN(DatumGetInt16(values[i]) - shift[i]);
		case BOOLOID:
			ENCODE_RUN(DatumGetBool(values[i]) - shift[i]);
		default:
			ENCODE_RUN(NumberToDouble(type, values[i]) - shift[i]);
	}
	return finite;
}

/* Find the value of a run that is not finite. */
static void pg_attribute_noreturn()
BadRun(Loader *loader, const Run *run, const Datum *values)
{
	for (int i = 0; i < run->count; i++)
	{
		Column	   *column = &loader->columns[run->first + i];
		double		value = NumberToDouble(run->type, values[run->attribute + i]);

		if (!isfinite(value) || !(fabs(value - column->encoder->shift) <= FLT_MAX))
			BadNumber(loader, column->encoder->column, value);
	}
	elog(ERROR, "no value of the run is out of range");
}

/* False: an element is NULL. */
static bool
EncodeArray(Loader *loader, Column *column, Datum value, float *x)
{
	ArrayType  *array = DatumGetArrayTypeP(value);
	int			n = ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));
	NumberStorage storage;
	const char *data = ARR_DATA_PTR(array);

	if (ARR_HASNULL(array) && array_contains_nulls(array))
		return false;
	if (n != column->encoder->width)
		WrongLength(loader, column->encoder, n);
	if (column->element_type == FLOAT4OID)
	{
		int			finite = 1;

		memcpy(x, data, n * sizeof(float));
		for (int i = 0; i < n; i++)
			finite &= IsFinite(x[i]);
		for (int i = 0; !finite && i < n; i++)
			if (!IsFinite(x[i]))
				BadNumber(loader, column->encoder->column, x[i]);
		return true;
	}
	storage = NumberStorageOf(column->element_type);
	for (int i = 0; i < n; i++)
	{
		double		number = NumberToDouble(column->element_type, fetch_att(data, storage.by_value, storage.length));

		x[i] = (float) number;
		if (!IsFinite(x[i]))
			BadNumber(loader, column->encoder->column, number);
		data = att_addlength_pointer(data, storage.length, data);
		data = (const char *) att_align_nominal(data, storage.alignment);
	}
	return true;
}

static void
EncodeBytes(Loader *loader, Column *column, Datum value, char *x)
{
	struct varlena *bytes = PG_DETOAST_DATUM_PACKED(value);
	int			n = VARSIZE_ANY_EXHDR(bytes);

	if (n != column->encoder->width)
		WrongLength(loader, column->encoder, n);
	memcpy(x, VARDATA_ANY(bytes), n);
}

static float
EncodeTargetValue(Loader *loader, Datum value)
{
	double		shift = loader->result->target_shift;
	float		x;

	if (!EncodeRun(loader->target_type, &value, &shift, &x, 1))
		BadNumber(loader, loader->options->target, NumberToDouble(loader->target_type, value));
	return x;
}

/* Layout */

/* A first value that large values with a small spread are taken relative to. */
static double
ShiftOf(Oid type, Datum value)
{
	double		shift;

	if (type == BOOLOID || type == INT2OID)
		return 0;
	/* The low bits are dropped, so that it is exact as a double. */
	if (type == INT8OID)
		return (double) (DatumGetInt64(value) & ~INT64CONST(2047));
	shift = NumberToDouble(type, value);
	return fabs(shift) <= MAX_SHIFT ? shift : 0;
}

static int
FeatureWidth(const Column *column, Datum value)
{
	int			n;

	switch (column->encoder->kind)
	{
		case ENCODER_NUMBER:
			return 1;
		case ENCODER_BYTES:
			n = VARSIZE_ANY_EXHDR(PG_DETOAST_DATUM_PACKED(value));
			break;
		default:
			{
				ArrayType  *array = DatumGetArrayTypeP(value);

				n = ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));
				break;
			}
	}
	if (n == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("column \"%s\" is empty in the first row", column->encoder->column)));
	return n;
}

/* Widths and shifts by the first complete row, and the record's layout. */
static void
SetLayout(Loader *loader, const Datum *values)
{
	EncoderSet *set = loader->result->encoders;
	RecordLayout *layout;
	int64		width = 0;
	int			floats = 0;
	int			bytes = 0;
	int			float_offset = 0;
	int			byte_offset;

	for (int i = 0; i < loader->ncolumns; i++)
	{
		Column	   *column = &loader->columns[i];
		ColumnEncoder *encoder = column->encoder;
		Datum		value = values[column->attribute];

		encoder->width = FeatureWidth(column, value);
		if (encoder->kind == ENCODER_NUMBER && loader->options->shift)
			encoder->shift = ShiftOf(column->type, value);
		width += encoder->width;
		if (width > MAX_INPUT_WIDTH)
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("features have more than %d values in a row", MAX_INPUT_WIDTH)));
		encoder->input_offset = width - encoder->width;
		if (encoder->kind == ENCODER_BYTES)
			bytes += encoder->width;
		else
			floats += encoder->width;
	}
	set->input_width = width;

	layout = palloc0(sizeof(RecordLayout) + sizeof(Segment) * loader->ncolumns);
	layout->target_offset = floats * sizeof(float) + TYPEALIGN(sizeof(int32), bytes);
	layout->record_bytes = layout->target_offset + sizeof(int32);
	layout->input_width = width;
	byte_offset = floats * sizeof(float);
	for (int i = 0; i < loader->ncolumns; i++)
	{
		ColumnEncoder *encoder = loader->columns[i].encoder;
		bool		is_bytes = encoder->kind == ENCODER_BYTES;
		DType		dtype = is_bytes ? DTYPE_U8 : DTYPE_F32;
		int		   *offset = is_bytes ? &byte_offset : &float_offset;
		Segment    *segment;

		encoder->record_offset = *offset;
		*offset += encoder->width * (is_bytes ? 1 : sizeof(float));
		/* Neighbours of one type are one segment. */
		segment = layout->nsegments == 0 ? NULL : &layout->segments[layout->nsegments - 1];
		if (segment == NULL || segment->dtype != dtype)
		{
			segment = &layout->segments[layout->nsegments++];
			segment->dtype = dtype;
			segment->record_offset = encoder->record_offset;
			segment->input_offset = encoder->input_offset;
		}
		segment->width += encoder->width;
	}
	loader->result->layout = layout;
}

/* What encoding needs of the layout: runs of scalar columns, their shifts. */
static void
PrepareRuns(Loader *loader)
{
	loader->record_bytes = loader->result->layout->record_bytes;
	loader->runs = palloc(sizeof(Run) * loader->ncolumns);
	loader->shift4 = palloc(sizeof(float) * loader->ncolumns);
	loader->shift8 = palloc(sizeof(double) * loader->ncolumns);
	for (int i = 0; i < loader->ncolumns; i++)
	{
		Column	   *column = &loader->columns[i];
		Run		   *run = loader->nruns == 0 ? NULL : &loader->runs[loader->nruns - 1];

		loader->shift8[i] = column->encoder->shift;
		loader->shift4[i] = (float) column->encoder->shift;
		if (column->encoder->kind != ENCODER_NUMBER)
			continue;
		if (run == NULL || run->type != column->type || run->first + run->count != i ||
			run->attribute + run->count != column->attribute)
		{
			run = &loader->runs[loader->nruns++];
			*run = (Run) {column->type, i, 0, column->attribute, column->encoder->record_offset};
		}
		run->count++;
	}
	loader->ready = true;
}

/* Slots */

static void
NextSlot(Loader *loader)
{
	Size		bytes;

	if (loader->rows > 0)
		loader->sink->put_slot(loader->sink, loader->rows, loader->options->split);
	loader->slot = loader->sink->get_slot(loader->sink, &bytes);
	loader->capacity = bytes / loader->record_bytes;
	loader->rows = 0;
}

/* Between two rows.  The clock is the coarse one, which costs a few nanoseconds. */
static void
CheckSink(Loader *loader)
{
	struct timespec now;
	int64		now_ms;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	now_ms = (int64) now.tv_sec * 1000 + now.tv_nsec / 1000000;
	if (now_ms - loader->checked_ms < CHECK_SINK_MS)
		return;
	loader->checked_ms = now_ms;
	loader->sink->check(loader->sink);
}

/* The target's kind is decided: start the sink, and hand over the rows that were held back until then. */
static void
StartSink(Loader *loader)
{
	char	   *held = loader->slot;
	uint32		rows = loader->rows;

	loader->result->target_kind = loader->kind;
	loader->sink->start(loader->sink, loader->result->layout, loader->kind);
	loader->started = true;
	loader->rows = 0;
	NextSlot(loader);
	if (held == NULL)
		return;
	for (uint32 done = 0; done < rows;)
	{
		uint32		n;

		if (loader->rows == loader->capacity)
			NextSlot(loader);
		n = Min(rows - done, loader->capacity - loader->rows);
		memcpy(loader->slot + loader->rows * loader->record_bytes, held + done * loader->record_bytes,
			   n * loader->record_bytes);
		loader->rows += n;
		done += n;
	}
	pfree(held);
}

/* Hold back the records of a target whose kind is not decided. */
static void
HoldRecords(Loader *loader)
{
	Size		bytes = ring_slot_bytes(loader->record_bytes);

	loader->slot = MemoryContextAllocHuge(loader->context, bytes);
	loader->capacity = bytes / loader->record_bytes;
}

/* Room for one more record. */
static char *
NextRecord(Loader *loader)
{
	if (loader->rows == loader->capacity && !loader->started)
	{
		if (loader->kind == TARGET_UNDECIDED && loader->slot == NULL)
			HoldRecords(loader);
		else
		{
			/* A slot full of few values: take them for labels. */
			if (loader->kind == TARGET_UNDECIDED)
				loader->kind = TARGET_LABEL;
			StartSink(loader);
		}
	}
	if (loader->rows == loader->capacity)
		NextSlot(loader);
	return loader->slot + loader->rows * loader->record_bytes;
}

/* Too many values for labels: the records that are held back have codes, which become values. */
static void
TurnIntoValues(Loader *loader)
{
	LoadResult *result = loader->result;

	loader->kind = TARGET_VALUE;
	result->target_shift = loader->options->shift ? LabelSetNumber(result->labels, 0) : 0;
	for (uint32 i = 0; i < loader->rows; i++)
	{
		char	   *target = loader->slot + i * loader->record_bytes + result->layout->target_offset;
		int32		code;
		float		value;

		memcpy(&code, target, sizeof(code));
		value = (float) (LabelSetNumber(result->labels, code) - result->target_shift);
		memcpy(target, &value, sizeof(value));
	}
	result->labels = NULL;
}

/* Rows */

static void pg_attribute_noreturn()
UnknownLabel(const Loader *loader, Datum value)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("class \"%s\" of column \"%s\" does not occur in source", LabelText(loader->target_type, value),
					loader->options->target),
			 errdetail("It was found in row %lld of validation_source.", (long long) loader->seen)));
}

/* False: nothing more is wanted of the source. */
static bool
EncodeTarget(Loader *loader, Datum value, char *target)
{
	float		number;
	int32		code;

	if (loader->kind != TARGET_VALUE)
	{
		bool		add = loader->options->split == 0;

		code = LabelSetCode(loader->result->labels, loader->target_type, value, add);
		if (code < 0)
			UnknownLabel(loader, value);
		if (loader->options->target_kind != TARGET_UNDECIDED || !add ||
			LabelSetCount(loader->result->labels) <= MAX_INFERRED_CLASSES)
		{
			memcpy(target, &code, sizeof(code));
			return true;
		}
		if (loader->started)
		{
			loader->abandoned = true;
			return false;
		}
		TurnIntoValues(loader);
	}
	number = EncodeTargetValue(loader, value);
	memcpy(target, &number, sizeof(number));
	return true;
}

static bool
HasNullElement(const Column *column, Datum value)
{
	return column->encoder->kind == ENCODER_ARRAY && array_contains_nulls(DatumGetArrayTypeP(value));
}

/* Count the NULLs of a row, where there are any. */
static void
CountNulls(Loader *loader, const Datum *values, const bool *isnull)
{
	bool		any = false;

	for (int i = 0; i < loader->ncolumns; i++)
	{
		Column	   *column = &loader->columns[i];

		if (isnull[column->attribute] || HasNullElement(column, values[column->attribute]))
		{
			column->nulls++;
			any = true;
		}
	}
	if (isnull[loader->target_attribute])
	{
		loader->target_nulls++;
		any = true;
	}
	if (!any)
		return;
	loader->null_rows++;
	/* The statement will fail: what is left to do is to say how many rows are concerned. */
	if (loader->options->null_policy == NULLS_ARE_ERRORS)
		loader->counting = true;
}

static bool
AnyNullElement(const Loader *loader, const Datum *values)
{
	for (int i = 0; i < loader->ncolumns; i++)
		if (HasNullElement(&loader->columns[i], values[loader->columns[i].attribute]))
			return true;
	return false;
}

/* Encode a row that has no NULL but, maybe, inside arrays: then false. */
static bool
EncodeFeatures(Loader *loader, const Datum *values, char *record)
{
	for (int i = 0; i < loader->nruns; i++)
	{
		const Run  *run = &loader->runs[i];
		float	   *x = (float *) (record + run->record_offset);
		bool		finite;

		if (run->type == FLOAT4OID)
			finite = EncodeFloat4Run(values + run->attribute, loader->shift4 + run->first, x, run->count);
		else
			finite = EncodeRun(run->type, values + run->attribute, loader->shift8 + run->first, x, run->count);
		if (!finite)
			BadRun(loader, run, values);
	}
	for (int i = 0; i < loader->ncolumns; i++)
	{
		Column	   *column = &loader->columns[i];
		char	   *x = record + column->encoder->record_offset;

		if (column->encoder->kind == ENCODER_BYTES)
			EncodeBytes(loader, column, values[column->attribute], x);
		else if (column->encoder->kind == ENCODER_ARRAY &&
				 !EncodeArray(loader, column, values[column->attribute], (float *) x))
			return false;
	}
	return true;
}

/* Returns whether more rows are wanted. */
static bool
LoadRow(Loader *loader, const Datum *values, const bool *isnull)
{
	char	   *record;

	if (loader->counting || memchr(isnull, true, loader->natts) != NULL)
	{
		CountNulls(loader, values, isnull);
		return true;
	}
	if (!loader->ready)
	{
		if (AnyNullElement(loader, values))
		{
			CountNulls(loader, values, isnull);
			return true;
		}
		MemoryContextSwitchTo(loader->context);
		if (loader->result->layout == NULL)
		{
			SetLayout(loader, values);
			if (loader->kind == TARGET_VALUE && loader->options->shift)
				loader->result->target_shift = ShiftOf(loader->target_type, values[loader->target_attribute]);
		}
		PrepareRuns(loader);
	}
	MemoryContextSwitchTo(loader->context);
	record = NextRecord(loader);
	MemoryContextSwitchTo(loader->scratch);
	if (!EncodeFeatures(loader, values, record))
	{
		CountNulls(loader, values, isnull);
		return true;
	}
	if (!EncodeTarget(loader, values[loader->target_attribute], record + loader->result->layout->target_offset))
		return false;
	loader->rows++;
	return true;
}

static bool
ReceiveRow(TupleTableSlot *slot, DestReceiver *self)
{
	Loader	   *loader = (Loader *) self;
	MemoryContext old = MemoryContextSwitchTo(loader->scratch);
	bool		more;

	if (loader->started)
		CheckSink(loader);
	slot_getallattrs(slot);
	loader->seen++;
	more = LoadRow(loader, slot->tts_values, slot->tts_isnull);
	MemoryContextSwitchTo(old);
	if (loader->needs_scratch)
		MemoryContextReset(loader->scratch);
	return more;
}

static void
StartupReceiver(DestReceiver *self, int operation, TupleDesc desc)
{
}

static void
EndReceiver(DestReceiver *self)
{
}

/* The columns of a source */

static int
FindColumn(const Loader *loader, TupleDesc desc, const char *name)
{
	for (int i = 0; i < desc->natts; i++)
		if (strcmp(NameStr(TupleDescAttr(desc, i)->attname), name) == 0)
			return i;
	elog(ERROR, "source has no column \"%s\"", name);
}

/* Narrow the source to the columns that are needed, and find them. */
static void
BindColumns(Loader *loader)
{
	EncoderSet *set = loader->result->encoders;
	TupleDesc	desc = SourceDesc(loader->source);
	bool	   *needed = palloc0(sizeof(bool) * desc->natts);
	int		   *positions = palloc(sizeof(int) * desc->natts);
	int			n = 0;

	for (int i = 0; i < set->ncolumns; i++)
		needed[FindColumn(loader, desc, set->columns[i].column)] = true;
	needed[FindColumn(loader, desc, loader->options->target)] = true;
	for (int i = 0; i < desc->natts; i++)
		if (needed[i])
			positions[n++] = i;
	SourceSelect(loader->source, n, positions);

	desc = SourceDesc(loader->source);
	loader->natts = n;
	loader->ncolumns = set->ncolumns;
	loader->columns = palloc0(sizeof(Column) * set->ncolumns);
	for (int i = 0; i < set->ncolumns; i++)
	{
		Column	   *column = &loader->columns[i];
		EncoderKind kind;

		column->encoder = &set->columns[i];
		column->attribute = FindColumn(loader, desc, column->encoder->column);
		column->type = getBaseType(TupleDescAttr(desc, column->attribute)->atttypid);
		if (!EncoderForType(column->type, &kind, &column->element_type) || kind != column->encoder->kind)
			elog(ERROR, "column \"%s\" is of another type", column->encoder->column);
		if (kind != ENCODER_NUMBER || column->type == NUMERICOID)
			loader->needs_scratch = true;
	}
	loader->target_attribute = FindColumn(loader, desc, loader->options->target);
	loader->target_type = getBaseType(TupleDescAttr(desc, loader->target_attribute)->atttypid);
	if (get_typlen(loader->target_type) < 0)
		loader->needs_scratch = true;
}

/* The end of a source */

static void
AppendNulls(StringInfo text, int *named, const char *column, int64 nulls)
{
	if (nulls == 0)
		return;
	if ((*named)++ < MAX_NAMED_COLUMNS)
		appendStringInfo(text, "%scolumn \"%s\" in %lld", text->len > 0 ? ", " : "", column, (long long) nulls);
}

static void pg_attribute_noreturn()
NullsFound(const Loader *loader, const char *source_name)
{
	StringInfoData text;
	int			named = 0;

	initStringInfo(&text);
	for (int i = 0; i < loader->ncolumns; i++)
		AppendNulls(&text, &named, loader->columns[i].encoder->column, loader->columns[i].nulls);
	AppendNulls(&text, &named, loader->options->target, loader->target_nulls);
	if (named > MAX_NAMED_COLUMNS)
		appendStringInfo(&text, " and %d other columns", named - MAX_NAMED_COLUMNS);
	ereport(ERROR,
			(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
			 errmsg("%s has nulls: %s of %lld rows", source_name, text.data, (long long) loader->seen),
			 errhint("Set null_policy => 'skip' to leave such rows out, or replace the nulls with coalesce() in a SELECT.")));
}

static void
CheckRows(const Loader *loader, const char *source_name)
{
	if (loader->counting)
		NullsFound(loader, source_name);
	if (loader->seen == 0)
		ereport(ERROR,
				(errcode(ERRCODE_NO_DATA_FOUND),
				 errmsg("%s has no rows", source_name)));
	if (loader->seen == loader->null_rows)
		ereport(ERROR,
				(errcode(ERRCODE_NO_DATA_FOUND),
				 errmsg("%s has no rows without nulls", source_name),
				 errdetail("All of its %lld rows were skipped.", (long long) loader->seen)));
}

bool
LoadRows(Source *source, const LoadOptions *options, RowSink *sink, LoadResult *result)
{
	Loader	   *loader = palloc0(sizeof(Loader));
	const char *source_name = options->split == 0 ? "source" : "validation_source";

	loader->receiver.receiveSlot = ReceiveRow;
	loader->receiver.rStartup = StartupReceiver;
	loader->receiver.rShutdown = EndReceiver;
	loader->receiver.rDestroy = EndReceiver;
	loader->receiver.mydest = DestNone;
	loader->context = CurrentMemoryContext;
	loader->source = source;
	loader->options = options;
	loader->sink = sink;
	loader->result = result;
	loader->kind = options->split == 0 ? options->target_kind : result->target_kind;
	loader->started = options->split != 0;
	loader->scratch = AllocSetContextCreate(CurrentMemoryContext, "pg_train row", ALLOCSET_DEFAULT_SIZES);
	BindColumns(loader);
	if (loader->kind != TARGET_VALUE && result->labels == NULL)
		result->labels = LabelSetCreate(loader->target_type, options->target);

	SourceRun(source, &loader->receiver);
	if (loader->abandoned)
		return false;
	CheckRows(loader, source_name);
	if (!loader->started)
	{
		if (loader->kind == TARGET_UNDECIDED)
			loader->kind = TARGET_LABEL;
		StartSink(loader);
	}
	if (loader->rows > 0)
		sink->put_slot(sink, loader->rows, options->split);
	result->rows_used += loader->seen - loader->null_rows;
	result->rows_skipped += loader->null_rows;
	MemoryContextDelete(loader->scratch);
	return true;
}

void
FinishClasses(LoadResult *result)
{
	result->nclasses = LabelSetCount(result->labels);
	LabelSetSort(result->labels, &result->classes, &result->class_codes);
}
