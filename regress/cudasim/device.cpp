/*
 * device.cpp - which devices there are, what they are like, and the names of errors.
 */
#include "regress/cudasim/sim.h"

#include <cstdio>
#include <cstring>

using namespace sim;

static const int SHARED_OPTIN = 227 * 1024;
static const int L2_BYTES = 60 << 20;

/* A device can only be lost from the first call on, which a machine without one refuses. */
static cudaError_t
check_device(int device)
{
	if (state().devices == 0)
		return cudaErrorNoDevice;
	return device >= 0 && device < state().devices ? cudaSuccess : cudaErrorInvalidDevice;
}

extern "C"
{

cudaError_t
cudaGetDeviceCount(int *count)
{
	CUDART_CALL();
	if (count == nullptr)
		return result(cudaErrorInvalidValue);
	*count = state().devices;
	return result(state().devices > 0 ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t
cudaSetDevice(int device)
{
	Call call(__func__);
	cudaError_t error;

	/* one may leave a device that is lost */
	if (call.injected)
		return result(call.error);
	if ((error = check_device(device)) != cudaSuccess)
		return result(error);
	current_device() = device;
	return result(state().device[device].sticky);
}

cudaError_t
cudaGetDevice(int *device)
{
	CUDART_CALL();
	*device = current_device();
	return cudaSuccess;
}

cudaError_t
cudaInitDevice(int device, unsigned int device_flags, unsigned int flags)
{
	CUDART_CALL();
	(void) device_flags;
	(void) flags;
	return result(check_device(device));
}

cudaError_t
cudaSetDeviceFlags(unsigned int flags)
{
	CUDART_CALL();
	return result((flags & ~(unsigned) cudaDeviceMask) == 0 ? cudaSuccess : cudaErrorInvalidValue);
}

/* Forgets the device's work and memory; an error that has stuck is gone, too. */
cudaError_t
cudaDeviceReset(void)
{
	Call call(__func__);

	if (call.injected)
		return result(call.error);
	stream_drop(current_device());
	memory_reset_device(current_device());
	state().device[current_device()].sticky = cudaSuccess;
	return cudaSuccess;
}

cudaError_t
cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
	cudaError_t error;

	CUDART_CALL();
	if (p == nullptr)
		return result(cudaErrorInvalidValue);
	if ((error = check_device(device)) != cudaSuccess)
		return result(error);
	memset(p, 0, sizeof(*p));
	snprintf(p->name, sizeof(p->name), "cudasim %d.%d", state().major, state().minor);
	p->totalGlobalMem = state().memory;
	p->sharedMemPerBlock = 48 * 1024;
	p->sharedMemPerBlockOptin = SHARED_OPTIN;
	p->sharedMemPerMultiprocessor = 228 * 1024;
	p->regsPerBlock = p->regsPerMultiprocessor = 65536;
	p->warpSize = 32;
	p->maxThreadsPerBlock = 1024;
	p->maxThreadsPerMultiProcessor = 2048;
	p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
	p->maxThreadsDim[2] = 64;
	p->maxGridSize[0] = 2147483647;
	p->maxGridSize[1] = p->maxGridSize[2] = 65535;
	p->major = state().major;
	p->minor = state().minor;
	p->multiProcessorCount = state().processors;
	p->l2CacheSize = L2_BYTES;
	p->memoryBusWidth = 6144;
	p->asyncEngineCount = 3;
	p->concurrentKernels = 1;
	p->canMapHostMemory = 1;
	p->unifiedAddressing = 1;
	p->managedMemory = 1;
	p->hostRegisterSupported = 1;
	p->pciBusID = device + 1;
	return cudaSuccess;
}

cudaError_t
cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
	cudaError_t error;

	CUDART_CALL();
	if (value == nullptr)
		return result(cudaErrorInvalidValue);
	if ((error = check_device(device)) != cudaSuccess)
		return result(error);
	switch (attribute)
	{
		case cudaDevAttrComputeCapabilityMajor:
			*value = state().major;
			break;
		case cudaDevAttrComputeCapabilityMinor:
			*value = state().minor;
			break;
		case cudaDevAttrMultiProcessorCount:
			*value = state().processors;
			break;
		case cudaDevAttrMaxThreadsPerBlock:
			*value = 1024;
			break;
		case cudaDevAttrMaxThreadsPerMultiProcessor:
			*value = 2048;
			break;
		case cudaDevAttrWarpSize:
			*value = 32;
			break;
		case cudaDevAttrMaxSharedMemoryPerBlock:
			*value = 48 * 1024;
			break;
		case cudaDevAttrMaxSharedMemoryPerBlockOptin:
			*value = SHARED_OPTIN;
			break;
		case cudaDevAttrL2CacheSize:
			*value = L2_BYTES;
			break;
		case cudaDevAttrMemoryPoolsSupported:
		case cudaDevAttrHostRegisterSupported:
		case cudaDevAttrUnifiedAddressing:
		case cudaDevAttrCanMapHostMemory:
			*value = 1;
			break;
		default:
			complain("cudaDeviceGetAttribute: the stand-in does not know attribute %d", (int) attribute);
			return result(cudaErrorInvalidValue);
	}
	return cudaSuccess;
}

cudaError_t
cudaDeviceGetPCIBusId(char *id, int length, int device)
{
	cudaError_t error;

	CUDART_CALL();
	if ((error = check_device(device)) != cudaSuccess)
		return result(error);
	snprintf(id, length, "0000:%02x:00.0", device + 1);
	return cudaSuccess;
}

cudaError_t
cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
	cudaError_t error;

	CUDART_CALL();
	if ((error = check_device(device)) != cudaSuccess || (error = check_device(peer)) != cudaSuccess)
		return result(error);
	*can = 0;
	return cudaSuccess;
}

cudaError_t
cudaDriverGetVersion(int *version)
{
	CUDART_CALL();
	*version = state().devices > 0 ? CUDART_VERSION : 0;
	return cudaSuccess;
}

cudaError_t
cudaRuntimeGetVersion(int *version)
{
	CUDART_CALL();
	*version = CUDART_VERSION;
	return cudaSuccess;
}

#define NAMED_ERRORS(NAME) \
	NAME(cudaSuccess, "no error") \
	NAME(cudaErrorInvalidValue, "invalid argument") \
	NAME(cudaErrorMemoryAllocation, "out of memory") \
	NAME(cudaErrorInitializationError, "initialization error") \
	NAME(cudaErrorInvalidConfiguration, "invalid configuration argument") \
	NAME(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy") \
	NAME(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version") \
	NAME(cudaErrorInvalidDeviceFunction, "invalid device function") \
	NAME(cudaErrorNoDevice, "no CUDA-capable device is detected") \
	NAME(cudaErrorInvalidDevice, "invalid device ordinal") \
	NAME(cudaErrorInvalidResourceHandle, "invalid resource handle") \
	NAME(cudaErrorIllegalState, "the operation cannot be performed in the present state") \
	NAME(cudaErrorNotReady, "device not ready") \
	NAME(cudaErrorIllegalAddress, "an illegal memory access was encountered") \
	NAME(cudaErrorLaunchOutOfResources, "too many resources requested for launch") \
	NAME(cudaErrorLaunchTimeout, "the launch timed out and was terminated") \
	NAME(cudaErrorLaunchFailure, "unspecified launch failure") \
	NAME(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered") \
	NAME(cudaErrorHostMemoryAlreadyRegistered, "part or all of the requested memory range is already mapped") \
	NAME(cudaErrorHostMemoryNotRegistered, "pointer does not correspond to a registered memory region") \
	NAME(cudaErrorNotPermitted, "operation not permitted") \
	NAME(cudaErrorNotSupported, "operation not supported") \
	NAME(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing") \
	NAME(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture") \
	NAME(cudaErrorStreamCaptureMerge, "operation would result in a merge of separate capture sequences") \
	NAME(cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began") \
	NAME(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work") \
	NAME(cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream") \
	NAME(cudaErrorStreamCaptureImplicit, "operation would make the legacy stream depend on a capturing blocking stream") \
	NAME(cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a capturing stream") \
	NAME(cudaErrorUnknown, "unknown error")

const char *
cudaGetErrorName(cudaError_t error)
{
	switch (error)
	{
#define NAME(code, text) case code: return #code;
			NAMED_ERRORS(NAME)
#undef NAME
		default:
			return "unrecognized error code";
	}
}

const char *
cudaGetErrorString(cudaError_t error)
{
	switch (error)
	{
#define NAME(code, text) case code: return text;
			NAMED_ERRORS(NAME)
#undef NAME
		default:
			return "unrecognized error code";
	}
}

}								/* extern "C" */
