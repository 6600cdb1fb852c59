/*
 * prediction.c - what predict, predict_class and predict_proba return.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/array.h"
#include "utils/builtins.h"

#include "extension/classes.h"
#include "extension/prediction.h"

void
PredictionCheck(PredictionKind kind, const CachedModel *model)
{
	if (kind == PREDICT_VALUE)
	{
		if (model->nclasses > 0 && model->class_values == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_WRONG_OBJECT_TYPE),
					 errmsg("classes of model \"%s\" are not numbers", model->version->name),
					 errhint("Use predict_class for the label, or predict_proba for the probabilities.")));
	}
	else if (model->nclasses == 0)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("model \"%s\" is a regression and has no classes", model->version->name),
				 errhint("Use predict.")));
}

static Datum
Probabilities(const CachedModel *model, const float *outputs)
{
	Size		bytes = ARR_OVERHEAD_NONULLS(1) + sizeof(float4) * model->nclasses;
	ArrayType  *result = palloc0(bytes);

	SET_VARSIZE(result, bytes);
	result->ndim = 1;
	result->elemtype = FLOAT4OID;
	ARR_DIMS(result)[0] = model->nclasses;
	ARR_LBOUND(result)[0] = 1;
	ClassProbabilities(model->version, outputs, (float4 *) ARR_DATA_PTR(result));
	return PointerGetDatum(result);
}

Datum
PredictionDatum(PredictionKind kind, const CachedModel *model, const float *outputs)
{
	const ModelVersion *version = model->version;

	switch (kind)
	{
		case PREDICT_VALUE:
			if (model->nclasses > 0)
				return Float8GetDatum(model->class_values[MostProbableClass(version, outputs)]);
			return Float8GetDatum(outputs[0] * version->target_stddev + version->target_mean);
		case PREDICT_CLASS:
			return CStringGetTextDatum(version->classes[MostProbableClass(version, outputs)]);
		case PREDICT_PROBABILITIES:
			return Probabilities(model, outputs);
	}
	pg_unreachable();
}
