/*
 * device.c - tensors of the tests on a device.
 */
#include "regress/unit/ops/device.h"

#include "kernels/math.h"
#include "kernels/philox.h"

#define GUARD_BYTES 256
#define GUARD 0xA5

/* A sanitized program stops at the first access to a guard, where others only see what was written there. */
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define GUARD_CLOSE(guard) ASAN_POISON_MEMORY_REGION(guard, GUARD_BYTES)
#define GUARD_OPEN(guard) ASAN_UNPOISON_MEMORY_REGION(guard, GUARD_BYTES)
#else
#define GUARD_CLOSE(guard) ((void) (guard))
#define GUARD_OPEN(guard) ((void) (guard))
#endif

size_t
test_dtype_bytes(DType dtype)
{
	return dtype == DTYPE_BF16 || dtype == DTYPE_F16 ? 2 : (dtype == DTYPE_U8 ? 1 : 4);
}

const char *
test_dtype_name(DType dtype)
{
	return dtype == DTYPE_BF16 ? "bf16" : (dtype == DTYPE_F16 ? "fp16" : "fp32");
}

void
for_each_device(void (*test) (const Device *d))
{
	Device		device = {0};
	int			i;

	for (i = 0; device_open(i, &device); i++)
	{
		test(&device);
		device_close(&device);
	}
	CHECK(i > 0, "there is no device");
}

double
round_to(double value, DType dtype)
{
	if (dtype == DTYPE_BF16)
		return bf16_to_float(float_to_bf16((float) value));
	return dtype == DTYPE_F16 ? (double) f16_to_float(float_to_f16((float) value)) : (double) (float) value;
}

double *
random_values(size_t n, uint64_t seed, double low, double high, DType dtype)
{
	double	   *values = malloc((n + 1) * sizeof(double));
	size_t		i;

	for (i = 0; i < n; i++)
		values[i] = round_to(low + (high - low) * philox_uniform(philox_word(seed, 0, i)), dtype);
	return values;
}

void *
device_put_bytes(const Device *d, const void *bytes, size_t n)
{
	unsigned char guard[GUARD_BYTES];
	void	   *tensor = NULL;

	memset(guard, GUARD, sizeof(guard));
	CHECK_OK(d, d->ops->alloc(d->be, n + GUARD_BYTES, &tensor, err));
	if (tensor == NULL)
		abort();
	if (bytes != NULL)
		CHECK_OK(d, d->ops->copy_in(d->be, tensor, bytes, n, err));
	CHECK_OK(d, d->ops->copy_in(d->be, (char *) tensor + n, guard, GUARD_BYTES, err));
	GUARD_CLOSE((char *) tensor + n);
	return tensor;
}

static void
check_guard(const Device *d, const void *tensor, size_t bytes)
{
	unsigned char guard[GUARD_BYTES];
	size_t		i;

	GUARD_OPEN((const char *) tensor + bytes);
	CHECK_OK(d, d->ops->copy_out(d->be, guard, (const char *) tensor + bytes, GUARD_BYTES, err));
	CHECK_OK(d, d->ops->sync(d->be, err));
	GUARD_CLOSE((const char *) tensor + bytes);
	for (i = 0; i < GUARD_BYTES; i++)
		if (guard[i] != GUARD)
		{
			CHECK(0, "%s: byte %zu behind a tensor of %zu bytes was written", d->label, i, bytes);
			return;
		}
}

void
device_read_bytes(const Device *d, const void *tensor, void *bytes, size_t n)
{
	CHECK_OK(d, d->ops->copy_out(d->be, bytes, tensor, n, err));
	CHECK_OK(d, d->ops->sync(d->be, err));
	check_guard(d, tensor, n);
}

void
device_free(const Device *d, void *tensor, size_t bytes)
{
	if (tensor == NULL)
		return;
	check_guard(d, tensor, bytes);
	GUARD_OPEN((char *) tensor + bytes);
	d->ops->free(d->be, tensor, bytes + GUARD_BYTES);
}

void *
device_new(const Device *d, size_t n, DType dtype)
{
	return device_put_bytes(d, NULL, n * test_dtype_bytes(dtype));
}

void *
device_put(const Device *d, const double *values, size_t n, DType dtype)
{
	size_t		bytes = n * test_dtype_bytes(dtype),
				i;
	void	   *host = malloc(bytes + 1),
			   *tensor;

	for (i = 0; i < n; i++)
		if (dtype == DTYPE_BF16)
			((bf16_t *) host)[i] = float_to_bf16((float) values[i]);
		else if (dtype == DTYPE_F16)
			((f16_t *) host)[i] = float_to_f16((float) values[i]);
		else
			((float *) host)[i] = (float) values[i];
	tensor = device_put_bytes(d, host, bytes);
	free(host);
	return tensor;
}

void *
device_new_unset(const Device *d, size_t n, DType dtype)
{
	double	   *values = malloc((n + 1) * sizeof(double));
	size_t		i;
	void	   *tensor;

	for (i = 0; i < n; i++)
		values[i] = NAN;
	tensor = device_put(d, values, n, dtype);
	free(values);
	return tensor;
}

double *
device_read(const Device *d, const void *tensor, size_t n, DType dtype)
{
	size_t		bytes = n * test_dtype_bytes(dtype),
				i;
	void	   *host = malloc(bytes + 1);
	double	   *values = malloc((n + 1) * sizeof(double));

	device_read_bytes(d, tensor, host, bytes);
	for (i = 0; i < n; i++)
		if (dtype == DTYPE_BF16)
			values[i] = bf16_to_float(((bf16_t *) host)[i]);
		else if (dtype == DTYPE_F16)
			values[i] = f16_to_float(((f16_t *) host)[i]);
		else
			values[i] = ((float *) host)[i];
	free(host);
	return values;
}

void
check_values(const char *file, int line, const Device *d, const char *what, const double *got,
			 const double *want, size_t n, double rel, double abs)
{
	size_t		i,
				bad = 0,
				first = 0;

	for (i = 0; i < n; i++)
		if (!test_close(got[i], want[i], rel, abs) && bad++ == 0)
			first = i;
	if (bad > 0)
		test_fail(file, line, "%s: %s: %zu of %zu values are off, the first is [%zu] = %.9g, expected %.9g", d->label,
				  what, bad, n, first, got[first], want[first]);
}

void
check_tensor(const char *file, int line, const Device *d, const char *what, const void *tensor, DType dtype,
			 const double *want, size_t n, double rel, double abs)
{
	double	   *got = device_read(d, tensor, n, dtype);

	check_values(file, line, d, what, got, want, n, rel, abs);
	free(got);
}
