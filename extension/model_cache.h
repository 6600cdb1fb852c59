/*
 * model_cache.h - models ready to score, kept for the session.
 *
 * What is stored of a version never changes, so a loaded network stays right for as long as it is kept, and is
 * dropped only to make room.  What a name stands for and who may use it does change: that is remembered beside the
 * networks until an invalidation of pgtrain.model arrives.
 */
#ifndef PGT_MODEL_CACHE_H
#define PGT_MODEL_CACHE_H

#include "postgres.h"

#include "lib/ilist.h"

#include "engine/model.h"
#include "extension/catalog.h"

typedef struct CachedModel
{
	ModelVersion *version;		/* without tensors */
	Model	   *model;
	int			max_rows;		/* what model takes at once; more are scored in turns */
	float	   *input;			/* [encoders->input_width] scratch */
	float	   *output;			/* [outputs] scratch */
	int			nclasses;		/* 0: regression */
	double	   *class_values;	/* [nclasses] classes as numbers; NULL: they are none */

	/* private to model_cache.c */
	dlist_node	lru;
	TransactionId version_xmin;
	Oid			relid;			/* pgtrain.model */
	MemoryContext context;
	MemoryContext network_context;	/* of model, below context */
	Size		bytes;
	int			pins;
} CachedModel;

/*
 * Raised when anything that the catalog says may have changed, and when the columns of any relation may have.
 * Whoever keeps an answer compares these with what they were when it was given.
 */
extern uint64 model_catalog_generation;
extern uint64 relation_generation;

/* Define the setting and register for invalidations: from _PG_init. */
extern void ModelCacheInit(void);

/*
 * The model of a reference, as the active snapshot sees it, for up to rows rows a call or as many as fit bounded memory.
 * ERROR if there is none or the current role may not use it.  The caller holds it until ModelCacheRelease, which may be
 * called from a memory context's callback.
 */
extern CachedModel *ModelCacheAcquire(const char *reference, int rows);
extern void ModelCacheRelease(CachedModel *model);

#endif							/* PGT_MODEL_CACHE_H */
