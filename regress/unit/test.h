/*
 * test.h - a small framework for the unit tests of engine and kernels.
 *
 * A test program is one or more files of TEST() functions, one of which also says TEST_MAIN().  Tests run in
 * the order they stand, every one prints a TAP line, and the program fails when one of them does.  Arguments
 * select: a test runs when its name contains one of them.
 *
 *     TEST(relu_keeps_nan)
 *     {
 *         CHECK(isnan(y[0]), "y[0] is %g", y[0]);
 *         CHECK_CLOSE(y[1], 2.0, 1e-6, 0);
 *     }
 *     TEST_MAIN()
 *
 * A failed check is reported with its place and the test goes on, so that one run shows all; after
 * TEST_MAX_REPORTS failures in a test the rest are only counted.  REQUIRE ends the test instead.
 */
#ifndef PGT_TEST_H
#define PGT_TEST_H

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEST_MAX_REPORTS 10

typedef struct TestCase
{
	const char *name;
	void		(*run) (void);
	struct TestCase *next;
} TestCase;

extern void test_register(TestCase *test);
/* Count a failure of the running test and say where. */
extern void test_fail(const char *file, int line, const char *fmt,...) __attribute__((format(printf, 3, 4)));
/* The running test cannot be done here: it counts as passed, with the reason beside it. */
extern void test_skip(const char *reason);
extern int	test_main(int argc, char **argv);

#define TEST(test_name) \
	static void test_case_##test_name(void); \
	__attribute__((constructor)) static void \
	test_register_##test_name(void) \
	{ \
		static TestCase test = {#test_name, test_case_##test_name, NULL}; \
		test_register(&test); \
	} \
	static void test_case_##test_name(void)

/* CHECK(condition) or CHECK(condition, "format", ...) */
#define CHECK(...) TEST_CHECK_PICK_(__VA_ARGS__, f, f, f, f, f, f, f, f, f, f, plain)(__VA_ARGS__)
#define TEST_CHECK_PICK_(a, b, c, d, e, f, g, h, i, j, k, which, ...) TEST_CHECK_##which##_
#define TEST_CHECK_plain_(cond) \
	do { if (!(cond)) test_fail(__FILE__, __LINE__, "%s", #cond); } while (0)
#define TEST_CHECK_f_(cond, ...) \
	do { if (!(cond)) test_fail(__FILE__, __LINE__, __VA_ARGS__); } while (0)

/* As CHECK, but the test ends here when the condition does not hold. */
#define REQUIRE(cond) \
	do { if (!(cond)) { test_fail(__FILE__, __LINE__, "%s", #cond); return; } } while (0)

/* |a - b| <= abs + rel * |b|; NaN is close to NaN only, an infinity to itself only. */
static inline int
test_close(double a, double b, double rel, double abs_)
{
	if (isnan(a) || isnan(b))
		return isnan(a) && isnan(b);
	if (isinf(a) || isinf(b))
		return a == b;
	return fabs(a - b) <= abs_ + rel * fabs(b);
}

#define CHECK_CLOSE(a, b, rel, abs_) \
	do { \
		double		test_a_ = (a), \
					test_b_ = (b); \
		if (!test_close(test_a_, test_b_, (rel), (abs_))) \
			test_fail(__FILE__, __LINE__, "%s is %.9g, expected %.9g (%s), off by %.3g", \
					  #a, test_a_, test_b_, #b, fabs(test_a_ - test_b_)); \
	} while (0)

/*
 * Threads that wait should sleep: where other programs want the processors, too, those that spin keep the one they wait
 * for from running.  OpenMP reads its environment before main() runs, so the program starts over.
 */
static inline void
test_wait_passively(char **argv)
{
	if (getenv("OMP_WAIT_POLICY") != NULL)
		return;
	setenv("OMP_WAIT_POLICY", "passive", 1);
	execv("/proc/self/exe", argv);
}

#define SKIP(reason) do { test_skip(reason); return; } while (0)

/* The framework's own functions and main(): once in a program. */
#define TEST_MAIN() \
	static TestCase *test_first, **test_end = &test_first; \
	static const char *test_skipped; \
	static long test_failures; \
	void \
	test_register(TestCase *test) \
	{ \
		*test_end = test; \
		test_end = &test->next; \
	} \
	void \
	test_fail(const char *file, int line, const char *fmt,...) \
	{ \
		va_list		args; \
		if (test_failures++ >= TEST_MAX_REPORTS) \
			return; \
		printf("# %s:%d: ", file, line); \
		va_start(args, fmt); \
		vprintf(fmt, args); \
		va_end(args); \
		printf("\n"); \
	} \
	void \
	test_skip(const char *reason) \
	{ \
		test_skipped = reason; \
	} \
	static int \
	test_selected(const char *name, int argc, char **argv) \
	{ \
		int			i; \
		for (i = 1; i < argc; i++) \
			if (strstr(name, argv[i]) != NULL) \
				return 1; \
		return argc < 2; \
	} \
	int \
	test_main(int argc, char **argv) \
	{ \
		TestCase   *test; \
		int			number = 0, \
					failed = 0; \
		setvbuf(stdout, NULL, _IOLBF, 0); \
		for (test = test_first; test != NULL; test = test->next) \
		{ \
			if (!test_selected(test->name, argc, argv)) \
				continue; \
			test_failures = 0; \
			test_skipped = NULL; \
			test->run(); \
			if (test_failures > TEST_MAX_REPORTS) \
				printf("# %ld failed checks in all\n", test_failures); \
			failed += test_failures > 0; \
			printf("%sok %d - %s", test_failures > 0 ? "not " : "", ++number, test->name); \
			if (test_skipped != NULL && test_failures == 0) \
				printf(" # SKIP %s", test_skipped); \
			printf("\n"); \
		} \
		printf("1..%d\n", number); \
		return failed > 0 || number == 0; \
	} \
	int \
	main(int argc, char **argv) \
	{ \
		test_wait_passively(argv); \
		return test_main(argc, argv); \
	}

#endif							/* PGT_TEST_H */
