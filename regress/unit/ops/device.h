/*
 * device.h - running one test on every configuration of a backend.
 *
 * A test is a function over an open Device.  Which devices there are is said by devices_cpu.c (every
 * instruction set and several thread counts) or by its counterpart of another backend; nothing else here knows
 * a backend.  Values live on the host as doubles and on the device in the type under test.
 */
#ifndef PGT_TEST_DEVICE_H
#define PGT_TEST_DEVICE_H

#include "kernels/backend.h"
#include "regress/unit/test.h"

typedef struct Device
{
	const BackendOps *ops;
	Backend    *be;
	DType		dtype;			/* under test */
	char		label[96];		/* "avx2, 2 threads, bf16" */
	int			low_parameters; /* its library takes biases, and gives gradients of weights, in dtype */
} Device;

/* Open configuration i; 0 when there are no more.  A failure is reported and ends the list. */
extern int	device_open(int i, Device *device);
extern void device_close(Device *device);

/* Run a test on every device, in every type that it computes in. */
extern void for_each_device(void (*test) (const Device *d));

/*
 * Numbers in [low, high), rounded to dtype so that the reference sees what the device sees.  The same seed
 * gives the same numbers.  Freed by free().
 */
extern double *random_values(size_t n, uint64_t seed, double low, double high, DType dtype);
extern double round_to(double value, DType dtype);

/*
 * A tensor on the device.  Behind its last element lie guard bytes, which device_free and device_read check:
 * nothing may be written there.
 */
extern void *device_new(const Device *d, size_t n, DType dtype);
extern void *device_put(const Device *d, const double *values, size_t n, DType dtype);
/* Filled with a NaN, so that an element that is not written is found. */
extern void *device_new_unset(const Device *d, size_t n, DType dtype);
extern double *device_read(const Device *d, const void *tensor, size_t n, DType dtype);
extern void *device_put_bytes(const Device *d, const void *bytes, size_t n);
extern void device_read_bytes(const Device *d, const void *tensor, void *bytes, size_t n);
extern void device_free(const Device *d, void *tensor, size_t bytes);

extern size_t test_dtype_bytes(DType dtype);
extern const char *test_dtype_name(DType dtype);	/* "fp32", "bf16", "fp16" */

/* Report a Status that is not STATUS_OK. */
#define CHECK_OK(d, call) \
	do { \
		Error		check_error_ = {0}, \
				   *err = &check_error_; \
		Status		check_status_ = (call); \
		if (check_status_ != STATUS_OK) \
			test_fail(__FILE__, __LINE__, "%s: %s gave status %d: %s", (d)->label, #call, (int) check_status_, \
					  err->message); \
	} while (0)

#define CHECK_STATUS(d, status, call) \
	do { \
		Error		check_error_ = {0}, \
				   *err = &check_error_; \
		Status		check_status_ = (call); \
		if (check_status_ != (status)) \
			test_fail(__FILE__, __LINE__, "%s: %s gave status %d instead of %s", (d)->label, #call, \
					  (int) check_status_, #status); \
		else if (err->message[0] == '\0') \
			test_fail(__FILE__, __LINE__, "%s: %s failed without a message", (d)->label, #call); \
	} while (0)

/* |got - want| <= abs + rel |want| for every element; what names the tensor and the case. */
extern void check_values(const char *file, int line, const Device *d, const char *what,
						 const double *got, const double *want, size_t n, double rel, double abs);
/* Reads the tensor, compares, frees nothing. */
extern void check_tensor(const char *file, int line, const Device *d, const char *what,
						 const void *tensor, DType dtype, const double *want, size_t n, double rel, double abs);

#define CHECK_TENSOR(d, what, tensor, dtype, want, n, rel, abs) \
	check_tensor(__FILE__, __LINE__, d, what, tensor, dtype, want, n, rel, abs)

/*
 * Relative error that rounding a result to dtype adds: half a unit in the last place is 2^-9 of the value for
 * bf16, 2^-12 for fp16, and next to nothing beside the sums' own error for fp32.
 */
static inline double
rounding(DType dtype)
{
	return dtype == DTYPE_BF16 ? 1.0 / 256.0 : (dtype == DTYPE_F16 ? 1.0 / 2048.0 : 1e-6);
}

/*
 * Absolute error allowed to an fp32 sum of n products of numbers below 1 in size: a unit in the last place
 * (6e-8) for every doubling of the sum's random-walk size, with a factor for luck.
 */
static inline double
sum_error(size_t n)
{
	return 4e-7 * sqrt((double) n) + 1e-7;
}

#endif							/* PGT_TEST_DEVICE_H */
