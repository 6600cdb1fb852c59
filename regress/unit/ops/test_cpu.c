/*
 * test_cpu.c - what only the CPU backend promises.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE				/* sched_getaffinity */
#endif

#include "regress/unit/ops/device.h"
#include "regress/unit/ops/reference.h"

#include <malloc.h>
#include <sched.h>

#include "kernels/cpu/cpu.h"

TEST(cpu_opens_and_says_what_it_is)
{
	const BackendOps *ops = cpu_backend();
	Backend    *be = NULL;
	DeviceInfo	info;
	Error		err = {0};

	CHECK(ops->abi_version == BACKEND_ABI_VERSION);
	CHECK(strcmp(ops->name, "cpu") == 0);
	CHECK(ops->open(&(OpenOptions) {.threads = 1}, &be, &err) == STATUS_OK, "%s", err.message);
	REQUIRE(be != NULL);
	ops->info(be, &info);
	CHECK(strncmp(info.name, "cpu (", 5) == 0 && strstr(info.name, "1 thread)") != NULL, "it is called %s",
		  info.name);
	CHECK(info.threads == 1);
	ops->close(be);
	ops->close(NULL);

	CHECK(ops->open(&(OpenOptions) {.ordinal = 1}, &be, &err) == STATUS_INVALID && be == NULL);
	CHECK(strstr(err.message, "cpu device 1") != NULL, "the message is \"%s\"", err.message);
	CHECK(ops->open(&(OpenOptions) {.threads = -1}, &be, &err) == STATUS_INVALID && be == NULL);
	CHECK(cpu_backend_force_isa("mmx", &err) == STATUS_UNSUPPORTED);
}

TEST(cpu_uses_the_processors_of_its_affinity_mask)
{
	cpu_set_t	before,
				one;
	int			cpu;

	REQUIRE(sched_getaffinity(0, sizeof(before), &before) == 0);
	CHECK(cpu_processors() >= 1 && cpu_processors() <= CPU_COUNT(&before));
	for (cpu = 0; !CPU_ISSET(cpu, &before); cpu++)
		;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	REQUIRE(sched_setaffinity(0, sizeof(one), &one) == 0);
	CHECK(cpu_processors() == 1, "%d processors with an affinity mask of one", cpu_processors());
	sched_setaffinity(0, sizeof(before), &before);
}

/* One pass over operations that keep workspace. */
static void
work(const Device *d, const Conv2dShape *s, size_t n, void *const *t)
{
	size_t		in = ref_in_size(s, 1),
				out = ref_out_size(s, 1);

	CHECK_OK(d, d->ops->conv2d_fwd(d->be, s, n, t[0], t[1], NULL, ACT_RELU, t[2], d->dtype, err));
	CHECK_OK(d, d->ops->conv2d_bwd_weight(d->be, s, n, t[2], t[0], t[3], NULL, 0, d->dtype, err));
	CHECK_OK(d, d->ops->conv2d_bwd_data(d->be, s, n, t[2], t[1], t[0], d->dtype, err));
	CHECK_OK(d, d->ops->linear_fwd(d->be, n, 16, in, t[0], t[1], NULL, ACT_NONE, t[2], d->dtype, d->dtype, err));
	CHECK_OK(d, d->ops->linear_bwd_weight(d->be, n, 4, out, t[0], t[2], t[3], t[3], 0, d->dtype, err));
	CHECK_OK(d, d->ops->sum_squares(d->be, 64, t[3], t[4], err));
}

static void
work_all(const Device *d, const Conv2dShape *s, void *const *t)
{
	static const size_t rows[] = {9, 5, 1};
	int			i;

	for (i = 0; i < 3; i++)
		work(d, s, rows[i], t);
}

static size_t
held_bytes(void)
{
	struct mallinfo2 info = mallinfo2();

	return info.uordblks + info.hblkhd;
}

static void
allocates_once(const Device *d)
{
	Conv2dShape s = ref_conv_shape(16, 8, 8, 16, 3, 3, 1, 1, 1, 1);
	size_t		values = (size_t) 1 << 16,
				before;
	void	   *t[5];
	DeviceInfo	info;
	int			rounds,
				i;

	for (i = 0; i < 5; i++)
		t[i] = device_new(d, values, DTYPE_F32);
	/* a library has seen a shape when every thread of its team has, which some first do in a later call */
	d->ops->info(d->be, &info);
	rounds = info.libraries[0] != '\0' ? 40 : 1;
	for (i = 0; i < rounds; i++)
		work_all(d, &s, t);
	before = held_bytes();
	work_all(d, &s, t);
	CHECK(held_bytes() == before, "%s: a repeated call allocated memory", d->label);
	for (i = 0; i < 5; i++)
		device_free(d, t[i], values * sizeof(float));
}

TEST(cpu_allocates_nothing_after_the_first_call)
{
	for_each_device(allocates_once);
}

TEST(cpu_takes_the_best_instructions_unless_told)
{
	static const char *const isas[] = {"avx512", "avx2", "sse2"};
	const BackendOps *best = NULL;
	int			i;

	for (i = 0; i < 3 && best == NULL; i++)
		if (cpu_backend_force_isa(isas[i], NULL) == STATUS_OK)
			best = cpu_backend();
	cpu_backend_force_isa(NULL, NULL);
	CHECK(best != NULL && cpu_backend() == best);
}
