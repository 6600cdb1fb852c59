/*
 * error.h - how the engine and the kernels report failure.
 *
 * A function that can fail returns a Status and fills an Error owned by its caller.  Nothing below
 * extension/ prints, exits or aborts; extension/report.c turns an Error into ereport().
 */
#ifndef PGT_ERROR_H
#define PGT_ERROR_H

#include <stdint.h>

/* PostgreSQL's c.h has a macro of the same name and value. */
#undef STATUS_OK

typedef enum Status
{
	STATUS_OK = 0,
	STATUS_INVALID,				/* an argument, option or shape that the user chose is wrong */
	STATUS_NO_MEMORY,			/* host or device memory ran out */
	STATUS_NONFINITE,			/* a loss or gradient became inf or nan */
	STATUS_DEVICE,				/* the device or its library failed */
	STATUS_UNSUPPORTED,			/* this device or build cannot do it */
	STATUS_IO,					/* the control socket or the ring failed */
	STATUS_PROTOCOL,			/* a peer sent what it must not */
	STATUS_INTERNAL				/* a defect of ours */
} Status;

/* A plain struct: it crosses the control socket as it is. */
typedef struct Error
{
	int32_t		status;			/* Status */
	char		message[512];	/* lower case, no period */
	char		detail[512];	/* whole sentences, or empty */
	char		hint[512];		/* whole sentences, or empty */
} Error;

#if defined(__GNUC__)
#define PGT_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define PGT_PRINTF(f, a)
#endif

/* Fill err (may be NULL) and return status, so that "return error_set(err, STATUS_X, ...)" reads well. */
extern Status error_set(Error *err, Status status, const char *fmt,...) PGT_PRINTF(3, 4);
extern void error_detail(Error *err, const char *fmt,...) PGT_PRINTF(2, 3);
extern void error_hint(Error *err, const char *fmt,...) PGT_PRINTF(2, 3);
extern void error_clear(Error *err);

/* Hand a failure on to the caller. */
#define TRY(call) \
	do { Status try_status_ = (call); if (try_status_ != STATUS_OK) return try_status_; } while (0)

#endif							/* PGT_ERROR_H */
