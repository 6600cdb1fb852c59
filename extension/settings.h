/*
 * settings.h - the settings of training.
 */
#ifndef PGT_SETTINGS_H
#define PGT_SETTINGS_H

#include "postgres.h"

extern int	cpu_threads;		/* pg_train.cpu_threads; 0: all processors */
extern bool report_epochs;		/* pg_train.report_epochs */
extern bool allow_tf32;			/* pg_train.allow_tf32 */
extern bool cuda_graphs;		/* pg_train.cuda_graphs */

#endif							/* PGT_SETTINGS_H */
