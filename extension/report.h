/*
 * report.h - failures of engine and kernels as PostgreSQL's errors.
 */
#ifndef PGT_REPORT_H
#define PGT_REPORT_H

#include "postgres.h"

#include "extension/compat.h"
#include "kernels/error.h"

/* Raise err, which a function of the engine filled or the control socket brought. */
extern void ReportError(const Error *err) pg_attribute_noreturn();

#endif							/* PGT_REPORT_H */
