/*
 * score_source.h - run a source, score its rows in batches and hand each on with what it really was.
 */
#ifndef PGT_SCORE_SOURCE_H
#define PGT_SCORE_SOURCE_H

#include "postgres.h"

#include "extension/catalog.h"
#include "extension/classes.h"

typedef struct ScoredRow
{
	int			actual_class;	/* classification: code in the label map */
	double		actual_value;	/* regression */
	const float *output;		/* [outputs] logits, or the value before it is scaled back */
} ScoredRow;

typedef void (*ScoredRowVisitor) (void *arg, const ScoredRow *row);

typedef struct SourceScorer SourceScorer;

/* Load the model (rights are checked) and plan the source, in the current context. */
extern SourceScorer *SourceScorerCreate(const char *reference, const char *source);
extern const ModelVersion *SourceScorerVersion(const SourceScorer *scorer);
extern LabelMap *SourceScorerLabels(const SourceScorer *scorer);	/* classification */

/*
 * Score every row.  Rows without a target or with a NULL feature are left out, with a NOTICE that counts them; ERROR if
 * none is left.
 */
extern void SourceScorerRun(SourceScorer *scorer, ScoredRowVisitor visit, void *arg);

#endif							/* PGT_SCORE_SOURCE_H */
