/*
 * devices_cpu.c - the configurations of the CPU backend: every instruction set of this machine, one thread and
 * several, fp32, bf16 and fp16.  With TEST_DEVICE in the environment only those whose label has it: "avx2, 1 threads".
 */
#include "regress/unit/ops/device.h"

#include "kernels/cpu/cpu.h"

static const struct
{
	const char *isa;
	int			emulate_bf16;	/* oneDNN, also on a processor that would leave it alone */
	const char *label;
}			isas[] = {
	{"sse2", 0, "sse2"}, {"avx2", 0, "avx2"}, {"avx512", 0, "avx512"}, {"avx512", 1, "avx512 with oneDNN"}
};

/* An odd number, and more than some shapes have rows. */
static const int thread_counts[] = {1, 2, 5};

static const DType dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};

#define COUNT(array) ((int) (sizeof(array) / sizeof((array)[0])))

int
device_open(int i, Device *device)
{
	const char *only = getenv("TEST_DEVICE");
	Status		status;
	Error		err = {0};
	int			c;

	for (c = 0; c < COUNT(isas) * COUNT(thread_counts) * COUNT(dtypes); c++)
	{
		int			a = c / COUNT(dtypes) / COUNT(thread_counts),
					threads = thread_counts[c / COUNT(dtypes) % COUNT(thread_counts)];

		device->dtype = dtypes[c % COUNT(dtypes)];
		snprintf(device->label, sizeof(device->label), "%s, %d threads, %s", isas[a].label, threads,
				 test_dtype_name(device->dtype));
		if ((only != NULL && strstr(device->label, only) == NULL)
			|| cpu_backend_force_isa(isas[a].isa, NULL) != STATUS_OK)
			continue;
		if (i-- > 0)
			continue;
		device->ops = cpu_backend();
		cpu_backend_force_isa(NULL, NULL);
		cpu_backend_emulate_bf16(isas[a].emulate_bf16);
		status = device->ops->open(&(OpenOptions) {.threads = threads}, &device->be, &err);
		cpu_backend_emulate_bf16(0);
		if (status != STATUS_OK)
		{
			CHECK(0, "cannot open the cpu: %s", err.message);
			return 0;
		}
		return 1;
	}
	cpu_backend_force_isa(NULL, NULL);
	return 0;
}

void
device_close(Device *device)
{
	device->ops->close(device->be);
}
