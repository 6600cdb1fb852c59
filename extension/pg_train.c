/*
 * pg_train.c - the module: settings and hooks, and nothing else.  No library is opened, no process and no thread started.
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/guc.h"

#include "extension/batch.h"
#include "extension/compat.h"
#include "extension/engine_process.h"
#include "extension/model_cache.h"
#include "extension/settings.h"

PG_MODULE_MAGIC;

#define MAX_CPU_THREADS 1024

int			cpu_threads = 0;
bool		report_epochs = true;
bool		allow_tf32 = false;
bool		cuda_graphs = true;

void		_PG_init(void);

void
_PG_init(void)
{
	DefineCustomIntVariable("pg_train.cpu_threads",
							"Threads that train on the CPU.",
							"0 takes all processors that the server may use.",
							&cpu_threads,
							0, 0, MAX_CPU_THREADS,
							PGC_USERSET, 0,
							NULL, NULL, NULL);
	DefineCustomBoolVariable("pg_train.report_epochs",
							 "Sends an INFO message for each epoch of a training.",
							 NULL,
							 &report_epochs,
							 true,
							 PGC_USERSET, 0,
							 NULL, NULL, NULL);
	DefineCustomBoolVariable("pg_train.allow_tf32",
							 "Lets GPUs compute fp32 products in TF32.",
							 "That is faster, with 10 bits of each factor's mantissa.",
							 &allow_tf32,
							 false,
							 PGC_USERSET, 0,
							 NULL, NULL, NULL);
	DefineCustomBoolVariable("pg_train.cuda_graphs",
							 "Records a training step on a GPU once and replays it.",
							 "Turned off, every operation is started by itself: slower, for looking for an error.",
							 &cuda_graphs,
							 true,
							 PGC_USERSET, 0,
							 NULL, NULL, NULL);
	EngineProcessInit();
	ModelCacheInit();
	BatchInit();
	CompatReservePrefix("pg_train");
}
