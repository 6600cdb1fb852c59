/*
 * pg_train.c - the module: settings, and nothing else.  No library is opened, no process and no thread started.
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/guc.h"

#include "extension/compat.h"
#include "extension/engine_process.h"
#include "extension/model_cache.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

void
_PG_init(void)
{
	EngineProcessInit();
	ModelCacheInit();
	CompatReservePrefix("pg_train");
}
