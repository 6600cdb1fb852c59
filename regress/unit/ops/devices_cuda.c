/*
 * devices_cuda.c - the configurations of the CUDA backend on the CPU stand-in: the three orders of threads and streams,
 * convolutions by cuDNN and by own kernels, every type.  With TEST_DEVICE in the environment only those whose label has it:
 * "reverse, own, fp32".
 *
 * A device that is closed must have given back everything, and the stand-in must have had nothing to complain of.
 */
#include "regress/unit/ops/device.h"

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/dnn.h"
#include "regress/cudasim/cudasim.h"

static const struct
{
	CudasimOrder order;
	int			without_dnn;
	const char *label;
}			worlds[] = {
	{CUDASIM_FORWARD, 0, "forward, cuDNN"},
	{CUDASIM_FORWARD, 1, "forward, own"},
	{CUDASIM_REVERSE, 1, "reverse, own"},
	{CUDASIM_RANDOM, 1, "random, own"}
};

static const DType dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};

#define COUNT(array) ((int) (sizeof(array) / sizeof((array)[0])))
#define SEED 20

extern const BackendOps *pg_train_backend(void);

int
device_open(int i, Device *device)
{
	const char *only = getenv("TEST_DEVICE");
	OpenOptions options = {0};
	Error		err = {0};
	int			c;

	for (c = 0; c < COUNT(worlds) * COUNT(dtypes); c++)
	{
		int			w = c / COUNT(dtypes);

		device->dtype = dtypes[c % COUNT(dtypes)];
		snprintf(device->label, sizeof(device->label), "%s, %s", worlds[w].label, test_dtype_name(device->dtype));
		if ((only != NULL && strstr(device->label, only) == NULL) || i-- > 0)
			continue;
		cudasim_reset();
		/* so few that loops over more work than threads go round */
		cudasim_set_processors(1);
		cudasim_set_order(worlds[w].order, SEED);
		cuda_backend_without_dnn(worlds[w].without_dnn);
		device->ops = pg_train_backend();
		device->low_parameters = !worlds[w].without_dnn;
		if (device->ops->open(&options, &device->be, &err) != STATUS_OK)
		{
			CHECK(0, "cannot open the simulated device: %s", err.message);
			return 0;
		}
		return 1;
	}
	return 0;
}

void
device_close(Device *device)
{
	device->ops->close(device->be);
	CHECK(*cudasim_live_report() == '\0', "%s: left behind: %s", device->label, cudasim_live_report());
	CHECK(*cudasim_message() == '\0', "%s: the stand-in says: %s", device->label, cudasim_message());
}
