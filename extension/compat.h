/*
 * compat.h - what differs between the supported releases of PostgreSQL, 14 to 18.
 */
#ifndef PGT_COMPAT_H
#define PGT_COMPAT_H

#include "postgres.h"

#include "executor/executor.h"
#include "parser/analyze.h"
#include "utils/guc.h"

#if PG_VERSION_NUM < 140000
#error "pg_train needs PostgreSQL 14 or later"
#endif

/* Parse analysis of a statement without parameters. */
static inline Query *
CompatParseAnalyze(RawStmt *statement, const char *text)
{
#if PG_VERSION_NUM >= 150000
	return parse_analyze_fixedparams(statement, text, NULL, 0, NULL);
#else
	return parse_analyze(statement, text, NULL, 0, NULL);
#endif
}

/* Run a plan to its end. */
static inline void
CompatExecutorRun(QueryDesc *query)
{
#if PG_VERSION_NUM >= 180000
	ExecutorRun(query, ForwardScanDirection, 0);
#else
	ExecutorRun(query, ForwardScanDirection, 0, true);
#endif
}

/* Settings of a prefix that nobody declared are mistakes. */
static inline void
CompatReservePrefix(const char *prefix)
{
#if PG_VERSION_NUM >= 150000
	MarkGUCPrefixReserved(prefix);
#else
	EmitWarningsOnPlaceholders(prefix);
#endif
}

#endif							/* PGT_COMPAT_H */
