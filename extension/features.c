/*
 * features.c - which columns of a source are trained on, and what of its target.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "extension/features.h"
#include "extension/row_binding.h"
#include "loader/number.h"

/* The column of that name, which has to be there. */
static Form_pg_attribute
NeedColumn(TupleDesc desc, const char *name, const char *option)
{
	Form_pg_attribute found = NULL;
	const char *nearest;

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(desc, i);

		if (strcmp(NameStr(attribute->attname), name) != 0)
			continue;
		if (found != NULL)
			ereport(ERROR,
					(errcode(ERRCODE_AMBIGUOUS_COLUMN),
					 errmsg("%s has more than one column \"%s\"", option, name),
					 errhint("Give them different names in the SELECT.")));
		found = attribute;
	}
	if (found != NULL)
		return found;
	nearest = NearestColumn(desc, name);
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_COLUMN),
			 errmsg("column \"%s\" does not exist in %s", name, option),
			 nearest != NULL ? errhint("Did you mean \"%s\"?", nearest) : 0));
}

static char *
TypeText(Form_pg_attribute attribute)
{
	return format_type_with_typemod(attribute->atttypid, attribute->atttypmod);
}

/* named: the column was asked for by the option features. */
static void
InitEncoder(ColumnEncoder *encoder, Form_pg_attribute attribute, bool named)
{
	const char *name = NameStr(attribute->attname);

	encoder->column = pstrdup(name);
	encoder->type = getBaseType(attribute->atttypid);
	if (!EncoderForType(encoder->type, &encoder->kind, &encoder->element_type))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("column \"%s\" of type %s cannot be a feature", name, TypeText(attribute)),
				 errdetail("Features are numbers, booleans, arrays of these, and bytea."),
				 named ? errhint("Leave it out, or turn it into numbers in a SELECT.") :
				 errhint("Name the columns to train on with features => '{...}', or turn it into numbers in a SELECT.")));
	encoder->width = encoder->kind == ENCODER_NUMBER ? 1 : 0;
}

EncoderSet *
FeaturesChoose(TupleDesc desc, const TrainOptions *options)
{
	EncoderSet *set = palloc0(sizeof(EncoderSet));
	int			max = options->features != NIL ? list_length(options->features) : desc->natts;
	ListCell   *lc;

	set->columns = palloc0(sizeof(ColumnEncoder) * max);
	foreach(lc, options->features)
	{
		InitEncoder(&set->columns[set->ncolumns], NeedColumn(desc, lfirst(lc), "source"), true);
		set->ncolumns++;
	}
	for (int i = 0; options->features == NIL && i < desc->natts; i++)
	{
		const char *name = NameStr(TupleDescAttr(desc, i)->attname);

		if (strcmp(name, options->target) == 0)
			continue;
		/* Looked up by name, so that a second one of the name is found. */
		InitEncoder(&set->columns[set->ncolumns], NeedColumn(desc, name, "source"), false);
		set->ncolumns++;
	}
	if (set->ncolumns == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("source has no column besides the target \"%s\"", options->target)));
	return set;
}

int
FeaturesKnownWidth(const EncoderSet *encoders)
{
	int			width = 0;

	for (int i = 0; i < encoders->ncolumns; i++)
	{
		if (encoders->columns[i].width == 0)
			return 0;
		width += encoders->columns[i].width;
	}
	return width;
}

TargetKind
TargetChoose(TupleDesc desc, const TrainOptions *options, Oid *type)
{
	Form_pg_attribute attribute = NeedColumn(desc, options->target, "source");
	bool		value;
	bool		label;

	*type = getBaseType(attribute->atttypid);
	value = TargetTypeSupported(*type, TARGET_VALUE);
	label = TargetTypeSupported(*type, TARGET_LABEL);
	if (!value && !label)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("column \"%s\" of type %s cannot be the target", options->target, TypeText(attribute)),
				 errdetail("A target is a number, a boolean, a text or an enum."),
				 errhint("Cast it in a SELECT.")));
	if (options->has_task)
	{
		if (options->task == TASK_REGRESSION && !value)
			ereport(ERROR,
					(errcode(ERRCODE_DATATYPE_MISMATCH),
					 errmsg("column \"%s\" of type %s cannot be the target of a regression", options->target,
							TypeText(attribute)),
					 errhint("Set task => 'classification', or cast the column to a number in a SELECT.")));
		return options->task == TASK_REGRESSION ? TARGET_VALUE : TARGET_LABEL;
	}
	if (!value)
		return TARGET_LABEL;
	switch (*type)
	{
		case INT2OID:
		case INT4OID:
		case INT8OID:
			/* A loss belongs to one task. */
			if (options->has_loss)
				return options->loss == LOSS_CROSS_ENTROPY || options->loss == LOSS_BCE_WITH_LOGITS ?
					TARGET_LABEL : TARGET_VALUE;
			return TARGET_UNDECIDED;
		default:
			return TARGET_VALUE;
	}
}

void
FeaturesCheckValidation(TupleDesc desc, const EncoderSet *encoders, const char *target, Oid target_type,
						TargetKind kind)
{
	Form_pg_attribute attribute;
	Oid			type;

	for (int i = 0; i < encoders->ncolumns; i++)
	{
		const ColumnEncoder *encoder = &encoders->columns[i];
		EncoderKind encoder_kind;
		Oid			element_type;

		attribute = NeedColumn(desc, encoder->column, "validation_source");
		if (!EncoderForType(attribute->atttypid, &encoder_kind, &element_type) || encoder_kind != encoder->kind)
			ereport(ERROR,
					(errcode(ERRCODE_DATATYPE_MISMATCH),
					 errmsg("column \"%s\" is of type %s in validation_source, but of type %s in source",
							encoder->column, TypeText(attribute), format_type_be(encoder->type))));
	}

	attribute = NeedColumn(desc, target, "validation_source");
	type = getBaseType(attribute->atttypid);
	if (kind == TARGET_VALUE ? TargetTypeSupported(type, TARGET_VALUE) : TargetTypesMatch(target_type, type))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_DATATYPE_MISMATCH),
			 errmsg("column \"%s\" is of type %s in validation_source, but of type %s in source", target,
					TypeText(attribute), format_type_be(target_type))));
}
