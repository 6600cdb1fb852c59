/*
 * main.c - the program of the engine's unit tests.
 */
#include "regress/unit/engine/common.h"

TEST_MAIN()
