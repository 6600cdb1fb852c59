/*
 * evaluate.c - how good a model is: evaluate_model, confusion_matrix.
 *
 * Metrics have the names and the values of scikit-learn's functions on predict_class and predict_proba.  A row
 * whose class the model has never seen counts as an error: its class takes part in the averages over classes with
 * a recall of 0, and its probability is 0.
 */
#include "postgres.h"

#include <float.h>
#include <math.h>

#include "catalog/pg_operator_d.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/float.h"
#include "utils/hsearch.h"
#include "utils/tuplesort.h"

#include "extension/compat.h"
#include "extension/score_source.h"

/* sklearn.metrics.top_k_accuracy_score with its usual k, where there are more classes than that. */
#define TOP_K 5

static void
PutMetric(ReturnSetInfo *rsinfo, const char *metric, double value)
{
	Datum		values[2] = {CStringGetTextDatum(metric), Float8GetDatum(value)};
	bool		nulls[2] = {false, isnan(value)};

	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/* Classification */

typedef struct ClassCounts
{
	int64		actual;
	int64		predicted;
	int64		correct;
} ClassCounts;

typedef struct ClassMetrics
{
	const ModelVersion *version;
	int			allocated;
	ClassCounts *counts;		/* [allocated] by code; unseen classes behind the model's */
	int			ncodes;
	int64		rows;
	int64		top_k;			/* rows whose class is among the TOP_K most probable */
	double		log_loss;
	float	   *p;				/* [nclasses] */
	Tuplesortstate *scores;		/* two classes: (bits of the second's probability, is it the second) */
	bool		unseen;
} ClassMetrics;

static void
CountClass(ClassMetrics *metrics, int code)
{
	if (code >= metrics->allocated)
	{
		int			allocated = Max(code + 1, 2 * metrics->allocated);

		metrics->counts = repalloc(metrics->counts, sizeof(ClassCounts) * allocated);
		memset(metrics->counts + metrics->allocated, 0,
			   sizeof(ClassCounts) * (allocated - metrics->allocated));
		metrics->allocated = allocated;
	}
	metrics->ncodes = Max(metrics->ncodes, code + 1);
	metrics->counts[code].actual++;
}

static bool
AmongTopK(const float *p, int nclasses, int code)
{
	int			better = 0;

	for (int i = 0; i < nclasses; i++)
		better += p[i] > p[code];
	return better < TOP_K;
}

/*
 * Probabilities are not negative, so their bits sort as they do.  With the label below them a score is one integer, which
 * sorts fast and spills to disk beyond work_mem.
 */
static void
PutScore(ClassMetrics *metrics, float p, bool positive)
{
	uint32		bits;

	memcpy(&bits, &p, sizeof(bits));
	tuplesort_putdatum(metrics->scores, Int64GetDatum(((int64) bits << 1) | (positive ? 1 : 0)), false);
}

static void
AddClassified(void *arg, const ScoredRow *row)
{
	ClassMetrics *metrics = arg;
	const ModelVersion *version = metrics->version;
	int			predicted = MostProbableClass(version, row->output);
	int			actual = row->actual_class;
	double		p = 0.0;

	CountClass(metrics, actual);
	metrics->counts[predicted].predicted++;
	if (predicted == actual)
		metrics->counts[actual].correct++;
	metrics->rows++;

	if (actual < version->nclasses)
	{
		ClassProbabilities(version, row->output, metrics->p);
		p = metrics->p[actual];
		if (version->nclasses > TOP_K && AmongTopK(metrics->p, version->nclasses, actual))
			metrics->top_k++;
		if (metrics->scores != NULL)
			PutScore(metrics, metrics->p[1], actual == 1);
	}
	else
		metrics->unseen = true;
	/* clipped as in sklearn.metrics.log_loss for float32 */
	metrics->log_loss -= log(Min(Max(p, FLT_EPSILON), 1.0 - FLT_EPSILON));
}

/* Area under the ROC curve, ties counting half; NaN unless rows of both classes, and only those, were seen. */
static double
RocAuc(ClassMetrics *metrics)
{
	double		positives = metrics->counts[1].actual;
	double		negatives = metrics->counts[0].actual;
	double		negatives_below = 0;
	double		tied_positives = 0;
	double		tied_negatives = 0;
	double		area = 0;
	int64		tied = -1;
	Datum		value;
	bool		isnull;

	if (metrics->unseen || positives == 0 || negatives == 0)
		return get_float8_nan();
	tuplesort_performsort(metrics->scores);
	while (CompatTuplesortGetDatum(metrics->scores, &value, &isnull))
	{
		int64		score = DatumGetInt64(value);

		CHECK_FOR_INTERRUPTS();
		if (score >> 1 != tied)
		{
			area += tied_positives * (negatives_below + tied_negatives / 2);
			negatives_below += tied_negatives;
			tied_positives = tied_negatives = 0;
			tied = score >> 1;
		}
		if (score & 1)
			tied_positives++;
		else
			tied_negatives++;
	}
	area += tied_positives * (negatives_below + tied_negatives / 2);
	return area / (positives * negatives);
}

static double
Ratio(double numerator, double denominator)
{
	return denominator > 0 ? numerator / denominator : 0;
}

static void
PutClassMetrics(ReturnSetInfo *rsinfo, ClassMetrics *metrics)
{
	double		correct = 0;
	double		precisions = 0;
	double		recalls = 0;
	double		f1s = 0;
	int			present = 0;	/* classes that occur */
	int			involved = 0;	/* or were predicted */

	for (int i = 0; i < metrics->ncodes; i++)
	{
		const ClassCounts *c = &metrics->counts[i];

		if (c->actual == 0 && c->predicted == 0)
			continue;
		involved++;
		present += c->actual > 0;
		correct += c->correct;
		precisions += Ratio(c->correct, c->predicted);
		recalls += Ratio(c->correct, c->actual);
		f1s += 2.0 * c->correct / (c->actual + c->predicted);
	}
	PutMetric(rsinfo, "accuracy", correct / metrics->rows);
	PutMetric(rsinfo, "balanced_accuracy", recalls / present);
	PutMetric(rsinfo, "precision_macro", precisions / involved);
	PutMetric(rsinfo, "recall_macro", recalls / involved);
	PutMetric(rsinfo, "f1_macro", f1s / involved);
	PutMetric(rsinfo, "log_loss", metrics->log_loss / metrics->rows);
	if (metrics->scores != NULL)
		PutMetric(rsinfo, "roc_auc", RocAuc(metrics));
	if (metrics->version->nclasses > TOP_K)
		PutMetric(rsinfo, "top_5_accuracy", (double) metrics->top_k / metrics->rows);
}

static void
EvaluateClasses(SourceScorer *scorer, ReturnSetInfo *rsinfo)
{
	ClassMetrics metrics = {0};

	metrics.version = SourceScorerVersion(scorer);
	metrics.allocated = metrics.ncodes = metrics.version->nclasses;
	metrics.counts = palloc0(sizeof(ClassCounts) * metrics.allocated);
	metrics.p = palloc(sizeof(float) * metrics.version->nclasses);
	if (metrics.version->nclasses == 2)
		metrics.scores = CompatTuplesortBeginDatum(INT8OID, Int8LessOperator, work_mem);
	SourceScorerRun(scorer, AddClassified, &metrics);
	PutClassMetrics(rsinfo, &metrics);
	if (metrics.scores != NULL)
		tuplesort_end(metrics.scores);
}

/* Regression */

typedef struct ValueMetrics
{
	const ModelVersion *version;
	int64		rows;
	double		mean;			/* of the target so far */
	double		squares;		/* sum of its squared deviations from the mean (Welford) */
	double		squared_error;
	double		absolute_error;
} ValueMetrics;

static void
AddValue(void *arg, const ScoredRow *row)
{
	ValueMetrics *metrics = arg;
	double		predicted = row->output[0] * metrics->version->target_stddev + metrics->version->target_mean;
	double		error = predicted - row->actual_value;
	double		deviation = row->actual_value - metrics->mean;

	metrics->rows++;
	metrics->mean += deviation / metrics->rows;
	metrics->squares += deviation * (row->actual_value - metrics->mean);
	metrics->squared_error += error * error;
	metrics->absolute_error += fabs(error);
}

static void
EvaluateValues(SourceScorer *scorer, ReturnSetInfo *rsinfo)
{
	ValueMetrics metrics = {0};
	double		r2;

	metrics.version = SourceScorerVersion(scorer);
	SourceScorerRun(scorer, AddValue, &metrics);
	/* as in sklearn.metrics.r2_score: not defined for one row, and finite for a target that does not vary */
	if (metrics.rows < 2)
		r2 = get_float8_nan();
	else if (metrics.squares == 0)
		r2 = metrics.squared_error == 0 ? 1.0 : 0.0;
	else
		r2 = 1.0 - metrics.squared_error / metrics.squares;
	PutMetric(rsinfo, "r2", r2);
	PutMetric(rsinfo, "rmse", sqrt(metrics.squared_error / metrics.rows));
	PutMetric(rsinfo, "mae", metrics.absolute_error / metrics.rows);
}

PG_FUNCTION_INFO_V1(pgt_evaluate_model);
Datum
pgt_evaluate_model(PG_FUNCTION_ARGS)
{
	char	   *reference = text_to_cstring(PG_GETARG_TEXT_PP(0));
	char	   *source = text_to_cstring(PG_GETARG_TEXT_PP(1));
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	SourceScorer *scorer;

	CompatMaterializedSRF(fcinfo);
	scorer = SourceScorerCreate(reference, source);
	if (SourceScorerVersion(scorer)->task == TASK_CLASSIFICATION)
		EvaluateClasses(scorer, rsinfo);
	else
		EvaluateValues(scorer, rsinfo);
	return (Datum) 0;
}

/* Confusion matrix: only the pairs that occur are kept, since their number is the square of the classes. */

typedef struct Pair
{
	int			actual;
	int			predicted;
} Pair;

typedef struct PairCount
{
	Pair		pair;			/* hash key */
	int64		count;
} PairCount;

typedef struct Confusion
{
	const ModelVersion *version;
	HTAB	   *pairs;
} Confusion;

static void
AddPair(void *arg, const ScoredRow *row)
{
	Confusion  *confusion = arg;
	Pair		pair = {row->actual_class, MostProbableClass(confusion->version, row->output)};
	bool		found;
	PairCount  *entry = hash_search(confusion->pairs, &pair, HASH_ENTER, &found);

	if (!found)
		entry->count = 0;
	entry->count++;
}

static int
ComparePairs(const void *a, const void *b)
{
	const Pair *x = &((const PairCount *) a)->pair;
	const Pair *y = &((const PairCount *) b)->pair;

	if (x->actual != y->actual)
		return x->actual < y->actual ? -1 : 1;
	return x->predicted < y->predicted ? -1 : x->predicted > y->predicted;
}

PG_FUNCTION_INFO_V1(pgt_confusion_matrix);
Datum
pgt_confusion_matrix(PG_FUNCTION_ARGS)
{
	char	   *reference = text_to_cstring(PG_GETARG_TEXT_PP(0));
	char	   *source = text_to_cstring(PG_GETARG_TEXT_PP(1));
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	SourceScorer *scorer;
	Confusion	confusion;
	HASHCTL		control = {0};
	HASH_SEQ_STATUS scan;
	PairCount  *entry;
	PairCount  *sorted;
	int			npairs = 0;

	CompatMaterializedSRF(fcinfo);
	scorer = SourceScorerCreate(reference, source);
	confusion.version = SourceScorerVersion(scorer);
	if (confusion.version->task != TASK_CLASSIFICATION)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("model \"%s\" is a regression and has no classes", confusion.version->name),
				 errhint("Use evaluate_model.")));
	control.keysize = sizeof(Pair);
	control.entrysize = sizeof(PairCount);
	control.hcxt = CurrentMemoryContext;
	confusion.pairs = hash_create("pg_train confusion matrix", 256, &control,
								  HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	SourceScorerRun(scorer, AddPair, &confusion);

	sorted = palloc(sizeof(PairCount) * hash_get_num_entries(confusion.pairs));
	hash_seq_init(&scan, confusion.pairs);
	while ((entry = hash_seq_search(&scan)) != NULL)
		sorted[npairs++] = *entry;
	qsort(sorted, npairs, sizeof(PairCount), ComparePairs);
	for (int i = 0; i < npairs; i++)
	{
		const char *actual = LabelMapLabel(SourceScorerLabels(scorer), sorted[i].pair.actual);
		Datum		values[3] = {CStringGetTextDatum(actual),
			CStringGetTextDatum(confusion.version->classes[sorted[i].pair.predicted]),
		Int64GetDatum(sorted[i].count)};
		bool		nulls[3] = {false};

		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
