/*
 * devices.c - finding and opening the device that trains.
 */
#define _GNU_SOURCE
#include "engine/devices.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CUDA_LIBRARY "pg_train_cuda.so"
#define MAX_DEVICES 256

/* The path of a file that lies beside this program. */
static Status
path_beside(const char *file, char *path, size_t size, Error *err)
{
	char		program[PATH_MAX];
	ssize_t		n = readlink("/proc/self/exe", program, sizeof(program) - 1);
	char	   *slash;

	if (n <= 0)
		return error_set(err, STATUS_IO, "the program's own path is not to be had");
	program[n] = '\0';
	slash = strrchr(program, '/');
	if (slash == NULL || (size_t) snprintf(path, size, "%.*s/%s", (int) (slash - program), program, file) >= size)
		return error_set(err, STATUS_IO, "the program's path is too long");
	return STATUS_OK;
}

/* The table of the CUDA backend.  Once opened, the library stays. */
static Status
cuda_backend(const BackendOps **ops, Error *err)
{
	const BackendOps *(*symbol) (void);
	char		path[PATH_MAX];
	void	   *library;

	TRY(path_beside(CUDA_LIBRARY, path, sizeof(path), err));
	if (access(path, F_OK) != 0)
	{
		error_set(err, STATUS_UNSUPPORTED, "this installation of pg_train has no CUDA backend");
		error_detail(err, "There is no file \"%s\".", path);
		error_hint(err, "Build pg_train where nvcc is, and install it again.");
		return STATUS_UNSUPPORTED;
	}
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (library == NULL)
	{
		const char *why = dlerror();

		error_set(err, STATUS_UNSUPPORTED, "could not load the CUDA backend");
		error_detail(err, "%s", why != NULL ? why : "The loader does not say why.");
		error_hint(err, "Install the CUDA libraries it was built with, or train on the CPU.");
		return STATUS_UNSUPPORTED;
	}
	*(void **) &symbol = dlsym(library, BACKEND_SYMBOL);
	*ops = symbol != NULL ? symbol() : NULL;
	if (*ops == NULL || (*ops)->abi_version != BACKEND_ABI_VERSION)
	{
		dlclose(library);
		error_set(err, STATUS_UNSUPPORTED, "the CUDA backend is of another build than the engine");
		error_hint(err, "Install pg_train again.");
		return STATUS_UNSUPPORTED;
	}
	return STATUS_OK;
}

static Status
open_cuda(int32_t ordinal, bool tf32, OpenDevice *out, Error *err)
{
	OpenOptions options = {.ordinal = ordinal,.tf32 = tf32};
	int32_t		devices;

	TRY(cuda_backend(&out->ops, err));
	TRY(out->ops->count(&devices, err));
	if (ordinal >= devices)
	{
		error_set(err, STATUS_INVALID, "there is no device \"cuda:%d\"", ordinal);
		error_detail(err, "This machine has %d GPU%s, numbered from 0.", devices, devices == 1 ? "" : "s");
		error_hint(err, "train_devices() lists the devices.");
		return STATUS_INVALID;
	}
	return out->ops->open(&options, &out->be, err);
}

static Status
open_cpu(int32_t threads, OpenDevice *out, Error *err)
{
	OpenOptions options = {.threads = threads};

	out->ops = cpu_backend();
	if (out->ops->abi_version != BACKEND_ABI_VERSION)
		return error_set(err, STATUS_INTERNAL, "the backend \"%s\" is of another build", out->ops->name);
	return out->ops->open(&options, &out->be, err);
}

/* The N of "cuda:N"; "cuda" is "cuda:0". */
static bool
parse_cuda(const char *name, int32_t *ordinal)
{
	char	   *end;
	long		value;

	*ordinal = 0;
	if (strcmp(name, "cuda") == 0)
		return true;
	if (strncmp(name, "cuda:", 5) != 0 || name[5] < '0' || name[5] > '9')
		return false;
	value = strtol(name + 5, &end, 10);
	*ordinal = (int32_t) value;
	return *end == '\0' && value < MAX_DEVICES;
}

Status
device_open(const char *name, int32_t threads, bool tf32, OpenDevice *out, Error *err)
{
	int32_t		ordinal;

	memset(out, 0, sizeof(*out));
	if (strcmp(name, "cpu") == 0)
		return open_cpu(threads, out, err);
	if (parse_cuda(name, &ordinal))
		return open_cuda(ordinal, tf32, out, err);
	if (strcmp(name, "auto") != 0)
	{
		error_set(err, STATUS_INVALID, "device \"%.64s\" is unknown", name);
		error_hint(err, "A device is \"auto\", \"cpu\", \"cuda\" or \"cuda:N\".");
		return STATUS_INVALID;
	}
	if (open_cuda(0, tf32, out, &out->fallback) == STATUS_OK)
		return STATUS_OK;
	return open_cpu(threads, out, err);
}

/* Describe the devices of a backend. */
static Status
list_devices(const BackendOps *ops, DeviceList *list, Error *err)
{
	int32_t		devices,
				i;

	TRY(ops->count(&devices, err));
	for (i = 0; i < devices && list->count < MAX_LISTED_DEVICES; i++)
	{
		OpenOptions options = {.ordinal = i};
		ListedDevice *device = &list->devices[list->count];
		Backend    *be;
		size_t		bytes = 0;

		TRY(ops->open(&options, &be, err));
		if (ops == cpu_backend())
			snprintf(device->name, sizeof(device->name), "cpu");
		else
			snprintf(device->name, sizeof(device->name), "%s:%d", ops->name, i);
		ops->info(be, &device->info);
		if (ops->memory_free(be, &bytes, err) != STATUS_OK)
			bytes = 0;
		device->memory_free_bytes = bytes;
		ops->close(be);
		list->count++;
	}
	return STATUS_OK;
}

Status
devices_send(int socket_fd, Error *err)
{
	DeviceList *list = calloc(1, sizeof(DeviceList));
	const BackendOps *ops;
	Status		status;

	if (list == NULL)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	status = list_devices(cpu_backend(), list, err);
	if (status == STATUS_OK)
	{
		if (cuda_backend(&ops, &list->no_cuda) == STATUS_OK)
			list_devices(ops, list, &list->no_cuda);
		status = frame_send(socket_fd, MSG_DEVICES, list, sizeof(*list), err);
	}
	free(list);
	return status;
}
