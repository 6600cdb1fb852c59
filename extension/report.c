/*
 * report.c - failures of engine and kernels as PostgreSQL's errors.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"

#include "extension/report.h"

static int
StatusErrcode(int32_t status)
{
	switch ((Status) status)
	{
		case STATUS_INVALID:
			return ERRCODE_INVALID_PARAMETER_VALUE;
		case STATUS_NO_MEMORY:
			return ERRCODE_OUT_OF_MEMORY;
		case STATUS_NONFINITE:
			return ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE;
		case STATUS_DEVICE:
			return ERRCODE_EXTERNAL_ROUTINE_EXCEPTION;
		case STATUS_UNSUPPORTED:
			return ERRCODE_FEATURE_NOT_SUPPORTED;
		case STATUS_IO:
			return ERRCODE_IO_ERROR;
		case STATUS_PROTOCOL:
			return ERRCODE_PROTOCOL_VIOLATION;
		case STATUS_OK:
		case STATUS_INTERNAL:
			break;
	}
	return ERRCODE_INTERNAL_ERROR;
}

/* Text from another process: ended, and never invalid in the server's encoding. */
static char *
CleanText(const char *text, size_t size)
{
	char	   *clean = pnstrdup(text, strnlen(text, size));

	if (!pg_verifymbstr(clean, strlen(clean), true))
		for (char *c = clean; *c != '\0'; c++)
			if (IS_HIGHBIT_SET(*c))
				*c = '?';
	return clean;
}

void
ReportError(const Error *err)
{
	char	   *message = CleanText(err->message, sizeof(err->message));
	char	   *detail = CleanText(err->detail, sizeof(err->detail));
	char	   *hint = CleanText(err->hint, sizeof(err->hint));

	ereport(ERROR,
			(errcode(StatusErrcode(err->status)),
			 errmsg("%s", message[0] != '\0' ? message : "training engine failed without a message"),
			 detail[0] != '\0' ? errdetail("%s", detail) : 0,
			 hint[0] != '\0' ? errhint("%s", hint) : 0));
}
