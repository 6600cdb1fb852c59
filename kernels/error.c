/*
 * error.c - filling an Error record.
 */
#include "kernels/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void
error_clear(Error *err)
{
	if (err == NULL)
		return;
	err->status = STATUS_OK;
	err->message[0] = err->detail[0] = err->hint[0] = '\0';
}

Status
error_set(Error *err, Status status, const char *fmt,...)
{
	if (err != NULL)
	{
		va_list		args;

		error_clear(err);
		err->status = status;
		va_start(args, fmt);
		vsnprintf(err->message, sizeof(err->message), fmt, args);
		va_end(args);
	}
	return status;
}

void
error_detail(Error *err, const char *fmt,...)
{
	if (err != NULL)
	{
		va_list		args;

		va_start(args, fmt);
		vsnprintf(err->detail, sizeof(err->detail), fmt, args);
		va_end(args);
	}
}

void
error_hint(Error *err, const char *fmt,...)
{
	if (err != NULL)
	{
		va_list		args;

		va_start(args, fmt);
		vsnprintf(err->hint, sizeof(err->hint), fmt, args);
		va_end(args);
	}
}
