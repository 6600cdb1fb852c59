/*
 * main.c - the tests of the CPU stand-in for CUDA: for all that it claims to find there is a planted bug that it
 * finds, and a correct twin that it leaves alone.
 */
#include "regress/unit/test.h"

TEST_MAIN()
