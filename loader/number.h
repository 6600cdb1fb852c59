/*
 * number.h - values of PostgreSQL's numeric types as doubles.
 */
#ifndef PGT_NUMBER_H
#define PGT_NUMBER_H

#include "postgres.h"

#include "utils/numeric.h"

/* smallint, int, bigint, real, double precision, numeric or bool? */
extern bool IsNumberType(Oid type);

/* How such a type is stored in an array: as in pg_type, without looking there. */
typedef struct NumberStorage
{
	int16		length;
	bool		by_value;
	char		alignment;
} NumberStorage;

extern NumberStorage NumberStorageOf(Oid type);

/* A value of such a type, and not NULL.  A numeric too large for a double becomes infinity. */
extern double NumberToDouble(Oid type, Datum value);

extern double NumericToDouble(Numeric value);

#endif							/* PGT_NUMBER_H */
