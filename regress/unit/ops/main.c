/*
 * main.c - the unit tests of the operations of a backend.
 */
#include "regress/unit/test.h"

TEST_MAIN()
