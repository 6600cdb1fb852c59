/*
 * backend.c - the CUDA backend's table; finding, opening and closing devices, and what their failures mean.
 */
#include "kernels/cuda/dnn.h"
#include "kernels/cuda/linear.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/ops.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The oldest device for which kernels are compiled, and which has bf16: Ampere. */
#define LEAST_CAPABILITY 80

Status
cuda_failed(cudaError_t error, const char *call, Error *err)
{
	/* Otherwise the next launch would report it once more. */
	(void) cudaGetLastError();
	error_set(err, error == cudaErrorMemoryAllocation ? STATUS_NO_MEMORY : STATUS_DEVICE, "the GPU failed: %s",
			  cudaGetErrorString(error));
	error_detail(err, "%.*s gave %s (%d).", (int) strcspn(call, "("), call, cudaGetErrorName(error), (int) error);
	return error == cudaErrorMemoryAllocation ? STATUS_NO_MEMORY : STATUS_DEVICE;
}

Status
cuda_launched(const char *operation, Error *err)
{
	cudaError_t error = cudaGetLastError();

	return error == cudaSuccess ? STATUS_OK : cuda_failed(error, operation, err);
}

Status
cuda_check_dtype(DType dtype, const char *operation, Error *err)
{
	static const char *const names[] = {"float32", "bfloat16", "float16", "uint8", "int32"};

	if (dtype == DTYPE_F32 || dtype == DTYPE_BF16 || dtype == DTYPE_F16)
		return STATUS_OK;
	if ((unsigned) dtype > DTYPE_I32)
		return error_set(err, STATUS_INTERNAL, "%s: unknown data type %d", operation, (int) dtype);
	return error_set(err, STATUS_UNSUPPORTED, "%s is not supported in %s on the GPU", operation, names[dtype]);
}

Status
cuda_check_not_recording(const Backend *be, const char *operation, Error *err)
{
	if (be->recording)
		return error_set(err, STATUS_INTERNAL, "%s cannot be recorded", operation);
	return STATUS_OK;
}

/* Why there is no device that could be used. */
static Status
no_device(cudaError_t error, Error *err)
{
	int			driver = 0,
				runtime = 0;

	(void) cudaGetLastError();
	cudaDriverGetVersion(&driver);
	cudaRuntimeGetVersion(&runtime);
	switch (error)
	{
		case cudaErrorInsufficientDriver:
			if (driver == 0)
				return error_set(err, STATUS_UNSUPPORTED, "there is no NVIDIA driver");
			error_set(err, STATUS_UNSUPPORTED, "the NVIDIA driver is too old");
			error_detail(err, "The driver supports CUDA %d.%d, but CUDA %d.%d is needed.", driver / 1000,
						 driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
			return STATUS_UNSUPPORTED;
		case cudaErrorStubLibrary:
			return error_set(err, STATUS_UNSUPPORTED, "there is no NVIDIA driver, only the stub library of the CUDA toolkit");
		case cudaSuccess:
		case cudaErrorNoDevice:
			return error_set(err, STATUS_UNSUPPORTED, "there is no NVIDIA GPU that this process may use");
		default:
			error_set(err, STATUS_UNSUPPORTED, "the NVIDIA driver does not work: %s", cudaGetErrorString(error));
			error_detail(err, "%s gave %s (%d).", "cudaGetDeviceCount", cudaGetErrorName(error), (int) error);
			return STATUS_UNSUPPORTED;
	}
}

static Status
count_devices(int32_t *devices, Error *err)
{
	int			count = 0;
	cudaError_t error = cudaGetDeviceCount(&count);

	*devices = 0;
	if (error != cudaSuccess || count == 0)
		return no_device(error, err);
	*devices = count;
	return STATUS_OK;
}

/* What a device must have, and what the backend needs to know of it. */
static Status
examine_device(Backend *be, Error *err)
{
	struct cudaDeviceProp properties;

	CUDA_TRY(cudaGetDeviceProperties(&properties, be->ordinal));
	be->compute_capability = properties.major * 10 + properties.minor;
	be->multiprocessors = properties.multiProcessorCount;
	be->memory_bytes = properties.totalGlobalMem;
	snprintf(be->name, sizeof(be->name), "%.*s", (int) sizeof(be->name) - 1, properties.name);
	if (be->compute_capability < LEAST_CAPABILITY)
		return error_set(err, STATUS_UNSUPPORTED, "GPU %d (%s) has compute capability %d.%d, at least %d.%d is needed",
						 be->ordinal, be->name, properties.major, properties.minor, LEAST_CAPABILITY / 10,
						 LEAST_CAPABILITY % 10);
	return STATUS_OK;
}

static void
close_device(Backend *be)
{
	if (be == NULL)
		return;
	cudaSetDevice(be->ordinal);
	if (be->done != NULL)
		(void) cuda_wait_for_stream(be, NULL);
	dnn_close(be);
	matmul_close(be);
	memory_close(be);
	if (be->done != NULL)
		cudaEventDestroy(be->done);
	if (be->stream != NULL)
		cudaStreamDestroy(be->stream);
	(void) cudaGetLastError();
	free(be);
}

/* Everything that an open device has; what was made before a failure is closed by the caller. */
static Status
set_up(Backend *be, Error *err)
{
	CUDA_TRY(cudaSetDevice(be->ordinal));
	TRY(examine_device(be, err));
	CUDA_TRY(cudaStreamCreateWithFlags(&be->stream, cudaStreamNonBlocking));
	CUDA_TRY(cudaEventCreateWithFlags(&be->done, cudaEventDisableTiming));
	TRY(memory_open(be, err));
	return matmul_open(be, err);
}

static Status
open_device(const OpenOptions *options, Backend **out, Error *err)
{
	int32_t		devices;
	Backend    *be;
	Status		status;

	*out = NULL;
	TRY(count_devices(&devices, err));
	if (options->ordinal < 0 || options->ordinal >= devices)
		return error_set(err, STATUS_INVALID, "there is no GPU %d, only %d GPU%s from 0 on", (int) options->ordinal,
						 (int) devices, devices == 1 ? "" : "s");
	be = calloc(1, sizeof(*be));
	if (be == NULL)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	be->ordinal = options->ordinal;
	be->tf32 = options->tf32;
	status = set_up(be, err);
	if (status != STATUS_OK)
	{
		close_device(be);
		return status;
	}
	*out = be;
	return STATUS_OK;
}

/* Version of NCCL, 0 where there is none. */
static int
nccl_version(void)
{
	void	   *library = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_LOCAL);
	int			(*get) (int *);
	int			version = 0;

	if (library == NULL)
		return 0;
	*(void **) &get = dlsym(library, "ncclGetVersion");
	if (get != NULL && get(&version) != 0)
		version = 0;
	dlclose(library);
	return version;
}

static void
device_info(const Backend *be, DeviceInfo *info)
{
	int			driver = 0,
				runtime = 0,
				blas = (int) cublasLtGetVersion(),
				dnn = (int) dnn_version(),
				nccl = nccl_version();
	char	   *out = info->libraries;
	size_t		size = sizeof(info->libraries),
				length;

	memset(info, 0, sizeof(*info));
	snprintf(info->name, sizeof(info->name), "%s", be->name);
	cudaDriverGetVersion(&driver);
	cudaRuntimeGetVersion(&runtime);
	length = (size_t) snprintf(out, size, "driver for CUDA %d.%d, CUDA %d.%d, cuBLAS %d.%d.%d", driver / 1000,
							   driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10, blas / 10000, blas / 100 % 100,
							   blas % 100);
	if (dnn > 0)
		length += (size_t) snprintf(out + length, size - length, ", cuDNN %d.%d.%d", dnn / 10000, dnn / 100 % 100,
									dnn % 100);
	if (nccl > 0)
		snprintf(out + length, size - length, ", NCCL %d.%d.%d", nccl / 10000, nccl / 100 % 100, nccl % 100);
	info->bf16 = 1;
	info->f16 = 1;
	info->asynchronous = 1;
	info->compute_capability = be->compute_capability;
	info->memory_bytes = be->memory_bytes;
}

static const BackendOps cuda_ops = {
	.abi_version = BACKEND_ABI_VERSION,
	.name = "cuda",
	.count = count_devices,
	.open = open_device,
	.close = close_device,
	.info = device_info,
	.memory_free = op_memory_free,
	.alloc = op_alloc,
	.free = op_free,
	.copy_in = op_copy_in,
	.copy_out = op_copy_out,
	.copy = op_copy,
	.zero = op_zero,
	.sync = op_sync,
	.host_register = op_host_register,
	.host_unregister = op_host_unregister,
	.graph_begin = op_graph_begin,
	.graph_end = op_graph_end,
	.graph_launch = op_graph_launch,
	.graph_free = op_graph_free,
	.gather = op_gather,
	.gather_field = op_gather_field,
	.linear_fwd = op_linear_fwd,
	.linear_bwd_data = op_linear_bwd_data,
	.linear_bwd_weight = op_linear_bwd_weight,
	.conv2d_fwd = op_conv2d_fwd,
	.conv2d_bwd_data = op_conv2d_bwd_data,
	.conv2d_bwd_weight = op_conv2d_bwd_weight,
	.maxpool2d_fwd = op_maxpool2d_fwd,
	.maxpool2d_bwd = op_maxpool2d_bwd,
	.avgpool2d_fwd = op_avgpool2d_fwd,
	.avgpool2d_bwd = op_avgpool2d_bwd,
	.batchnorm_fwd_train = op_batchnorm_fwd_train,
	.batchnorm_fwd_eval = op_batchnorm_fwd_eval,
	.batchnorm_bwd = op_batchnorm_bwd,
	.layernorm_fwd = op_layernorm_fwd,
	.layernorm_bwd = op_layernorm_bwd,
	.act_fwd = op_act_fwd,
	.act_bwd = op_act_bwd,
	.dropout = op_dropout,
	.add = op_add,
	.loss = op_loss,
	.step_begin = op_step_begin,
	.gradient_check = op_gradient_check,
	.sgd_step = op_sgd_step,
	.adam_step = op_adam_step,
	.cast = op_cast,
	.sum_squares = op_sum_squares,
};

/* The one symbol that the library shows. */
extern __attribute__((visibility("default"))) const BackendOps *pg_train_backend(void);

const BackendOps *
pg_train_backend(void)
{
	return &cuda_ops;
}
