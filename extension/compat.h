/*
 * compat.h - what differs between the supported releases of PostgreSQL, 14 to 18.
 */
#ifndef PGT_COMPAT_H
#define PGT_COMPAT_H

#include "postgres.h"

#include "catalog/pg_proc.h"
#include "commands/explain.h"
#if PG_VERSION_NUM >= 180000
#include "commands/explain_format.h"
#include "commands/explain_state.h"
#endif
#include "executor/executor.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "parser/analyze.h"
#include "utils/acl.h"
#include "utils/guc.h"
#include "utils/tuplesort.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

#if PG_VERSION_NUM < 140000
#error "pg_train needs PostgreSQL 14 or later"
#endif

/* Release 18 has pg_noreturn instead, which stands before the declaration. */
#if PG_VERSION_NUM >= 180000
#define pg_attribute_noreturn() __attribute__((noreturn))
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

/* Let a set-returning function fill resultinfo's tuplestore. */
static inline void
CompatMaterializedSRF(FunctionCallInfo fcinfo)
{
#if PG_VERSION_NUM >= 150000
	InitMaterializedSRF(fcinfo, 0);
#else
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	MemoryContext old;
	TupleDesc	desc;

	if (rsinfo == NULL || !IsA(rsinfo, ReturnSetInfo) || !(rsinfo->allowedModes & SFRM_Materialize))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("set-valued function called in context that cannot accept a set")));
	old = MemoryContextSwitchTo(rsinfo->econtext->ecxt_per_query_memory);
	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	rsinfo->returnMode = SFRM_Materialize;
	rsinfo->setResult = tuplestore_begin_heap((rsinfo->allowedModes & SFRM_Materialize_Random) != 0, false, work_mem);
	rsinfo->setDesc = desc;
	MemoryContextSwitchTo(old);
#endif
}

/* Sort single values of a type, forward only. */
static inline Tuplesortstate *
CompatTuplesortBeginDatum(Oid type, Oid less, int memory_kb)
{
#if PG_VERSION_NUM >= 150000
	return tuplesort_begin_datum(type, less, InvalidOid, false, memory_kb, NULL, TUPLESORT_NONE);
#else
	return tuplesort_begin_datum(type, less, InvalidOid, false, memory_kb, NULL, false);
#endif
}

static inline bool
CompatTuplesortGetDatum(Tuplesortstate *state, Datum *value, bool *isnull)
{
#if PG_VERSION_NUM >= 160000
	return tuplesort_getdatum(state, true, false, value, isnull, NULL);
#else
	return tuplesort_getdatum(state, true, value, isnull, NULL);
#endif
}

/* May a role do that with a function? */
static inline AclResult
CompatFunctionAclCheck(Oid function, Oid role, AclMode mode)
{
#if PG_VERSION_NUM >= 160000
	return object_aclcheck(ProcedureRelationId, function, role, mode);
#else
	return pg_proc_aclcheck(function, role, mode);
#endif
}

/* The condition on which a window node stops early. */
static inline List *
CompatRunCondition(const WindowAgg *plan)
{
#if PG_VERSION_NUM >= 150000
	return plan->runCondition;
#else
	return NIL;
#endif
}

/* Is it neither OLD nor NEW of RETURNING? */
static inline bool
CompatIsCurrentRow(const Var *var)
{
#if PG_VERSION_NUM >= 180000
	return var->varreturningtype == VAR_RETURNING_DEFAULT;
#else
	return true;
#endif
}

#endif							/* PGT_COMPAT_H */
