/*
 * memory.c - memory of the device, copies, and waiting.
 *
 * Host memory that is not pinned goes through pinned staging slots, so that a copy never makes the driver wait behind
 * our back; whoever waits polls an event, so that other threads of the process are not held up.
 */
#include "kernels/cuda/memory.h"
#include "kernels/cuda/ops.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A copy from pinned memory up to this size is staged, too: the host goes on instead of waiting for the stream. */
#define STAGE_UP_TO ((size_t) 64 << 10)

/* A wait looks all the time at first, then ever less often. */
#define SPIN_NS 100000
#define FIRST_NAP_NS 20000
#define LONGEST_NAP_NS 500000

Status
memory_open(Backend *be, Error *err)
{
	int			i;

	CUDA_TRY(cudaHostAlloc((void **) &be->staging, STAGING_SLOTS * STAGING_BYTES + sizeof(DataError),
						   cudaHostAllocDefault));
	be->data_error = (DataError *) (be->staging + STAGING_SLOTS * STAGING_BYTES);
	memset(be->data_error, 0, sizeof(*be->data_error));
	for (i = 0; i < STAGING_SLOTS; i++)
		CUDA_TRY(cudaEventCreateWithFlags(&be->slot[i].used, cudaEventDisableTiming));
	return STATUS_OK;
}

void
memory_close(Backend *be)
{
	int			i;

	memory_free_retired(be);
	for (i = 0; i < WORKSPACE_COUNT; i++)
		cudaFree(be->workspace[i].data);
	while (be->pinned != NULL)
		op_host_unregister(be, be->pinned->start);
	for (i = 0; i < STAGING_SLOTS; i++)
		if (be->slot[i].used != NULL)
			cudaEventDestroy(be->slot[i].used);
	if (be->staging != NULL)
		cudaFreeHost(be->staging);
}

static int64_t
now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t) t.tv_sec * 1000000000 + t.tv_nsec;
}

static Status
wait_for(Backend *be, cudaEvent_t event, Error *err)
{
	struct timespec nap = {0, FIRST_NAP_NS};
	int64_t		start = 0;
	cudaError_t error;

	if (be->failed != cudaSuccess)
		return cuda_failed(be->failed, "an earlier call", err);
	while ((error = cudaEventQuery(event)) == cudaErrorNotReady)
	{
		if (start == 0)
			start = now_ns();
		else if (now_ns() - start > SPIN_NS)
		{
			nanosleep(&nap, NULL);
			nap.tv_nsec = nap.tv_nsec * 2 < LONGEST_NAP_NS ? nap.tv_nsec * 2 : LONGEST_NAP_NS;
		}
	}
	/* "Not ready" counts as an error that the next launch would report. */
	if (start != 0)
		(void) cudaGetLastError();
	if (error == cudaSuccess)
		return STATUS_OK;
	be->failed = error;
	return cuda_failed(error, "cudaEventQuery", err);
}

Status
cuda_wait_for_stream(Backend *be, Error *err)
{
	CUDA_TRY(cudaEventRecord(be->done, be->stream));
	return wait_for(be, be->done, err);
}

/* What kernels have found in the data since the last time; the stream has been waited for. */
static Status
check_data(Backend *be, Error *err)
{
	volatile DataError *found = be->data_error;

	if (!found->set)
		return STATUS_OK;
	found->set = 0;
	return error_set(err, STATUS_INVALID, "target %d of row %zu is not a class below %zu", (int) found->target,
					 (size_t) found->row, (size_t) found->classes);
}

Status
op_sync(Backend *be, Error *err)
{
	TRY(cuda_check_not_recording(be, "waiting", err));
	TRY(cuda_wait_for_stream(be, err));
	return check_data(be, err);
}

Status
op_memory_free(Backend *be, size_t *bytes, Error *err)
{
	size_t		total;

	(void) be;
	*bytes = 0;
	CUDA_TRY(cudaMemGetInfo(bytes, &total));
	return STATUS_OK;
}

static Status
allocate(size_t bytes, void **out, Error *err)
{
	cudaError_t error = cudaMalloc(out, bytes > 0 ? bytes : 1);
	size_t		available = 0,
				total = 0;

	if (error == cudaSuccess)
		return STATUS_OK;
	*out = NULL;
	if (error != cudaErrorMemoryAllocation)
		return cuda_failed(error, "cudaMalloc", err);
	(void) cudaGetLastError();
	cudaMemGetInfo(&available, &total);
	error_set(err, STATUS_NO_MEMORY, "out of memory on the GPU: cannot allocate %zu bytes", bytes);
	error_detail(err, "%zu of %zu bytes are free.", available, total);
	return STATUS_NO_MEMORY;
}

Status
op_alloc(Backend *be, size_t bytes, void **out, Error *err)
{
	*out = NULL;
	TRY(cuda_check_not_recording(be, "an allocation", err));
	TRY(allocate(bytes, out, err));
	if (bytes > 0)
	{
		cudaError_t error = cudaMemsetAsync(*out, 0, bytes, be->stream);

		if (error != cudaSuccess)
		{
			cudaFree(*out);
			*out = NULL;
			return cuda_failed(error, "cudaMemsetAsync", err);
		}
	}
	return STATUS_OK;
}

void
op_free(Backend *be, void *ptr, size_t bytes)
{
	(void) be;
	(void) bytes;
	if (ptr != NULL && cudaFree(ptr) != cudaSuccess)
		(void) cudaGetLastError();
}

Status
cuda_workspace(Backend *be, Workspace which, size_t bytes, void **out, Error *err)
{
	if (bytes > be->workspace[which].bytes || be->workspace[which].data == NULL)
	{
		void	   *data,
				   *old = be->workspace[which].data;

		TRY(cuda_check_not_recording(be, "an operation that has not run before", err));
		if (old != NULL && be->graphs > 0)
		{
			Retired    *retired = malloc(sizeof(*retired));

			if (retired == NULL)
				return error_set(err, STATUS_NO_MEMORY, "out of memory");
			retired->data = old;
			retired->next = be->retired;
			be->retired = retired;
		}
		else
			cudaFree(old);
		be->workspace[which].data = NULL;
		be->workspace[which].bytes = 0;
		TRY(allocate(bytes, &data, err));
		be->workspace[which].data = data;
		be->workspace[which].bytes = bytes;
	}
	*out = be->workspace[which].data;
	return STATUS_OK;
}

void
memory_free_retired(Backend *be)
{
	while (be->retired != NULL)
	{
		Retired    *retired = be->retired;

		be->retired = retired->next;
		cudaFree(retired->data);
		free(retired);
	}
}

static int
is_pinned(const Backend *be, const void *host, size_t bytes)
{
	const char *start = host;
	const PinnedRange *range;

	for (range = be->pinned; range != NULL; range = range->next)
		if (start >= range->start && start + bytes <= range->start + range->bytes)
			return 1;
	return 0;
}

static Status
wait_for_slot(Backend *be, StagingSlot *slot, Error *err)
{
	if (slot->busy)
		TRY(wait_for(be, slot->used, err));
	slot->busy = 0;
	return STATUS_OK;
}

/* Host memory is behind the copy that was just issued from or to a slot. */
static Status
mark_slot(Backend *be, StagingSlot *slot, Error *err)
{
	CUDA_TRY(cudaEventRecord(slot->used, be->stream));
	slot->busy = 1;
	return STATUS_OK;
}

Status
op_copy_in(Backend *be, void *dst, const void *host, size_t bytes, Error *err)
{
	size_t		done;

	TRY(cuda_check_not_recording(be, "a copy from the host", err));
	if (bytes > STAGE_UP_TO && is_pinned(be, host, bytes))
	{
		CUDA_TRY(cudaMemcpyAsync(dst, host, bytes, cudaMemcpyHostToDevice, be->stream));
		return cuda_wait_for_stream(be, err);
	}
	for (done = 0; done < bytes; done += STAGING_BYTES)
	{
		int			i = be->next_slot;
		char	   *stage = be->staging + (size_t) i * STAGING_BYTES;
		size_t		size = min_size(bytes - done, STAGING_BYTES);

		be->next_slot = (i + 1) % STAGING_SLOTS;
		TRY(wait_for_slot(be, &be->slot[i], err));
		memcpy(stage, (const char *) host + done, size);
		CUDA_TRY(cudaMemcpyAsync((char *) dst + done, stage, size, cudaMemcpyHostToDevice, be->stream));
		TRY(mark_slot(be, &be->slot[i], err));
	}
	return STATUS_OK;
}

/* All slots are kept busy: piece number issued is on its way while an earlier one is taken out. */
static Status
copy_out_staged(Backend *be, char *host, const char *src, size_t bytes, Error *err)
{
	size_t		pieces = ceil_div(bytes, STAGING_BYTES),
				issued = 0,
				taken;

	for (taken = 0; taken < pieces; taken++)
	{
		size_t		at = taken * STAGING_BYTES;

		for (; issued < pieces && issued < taken + STAGING_SLOTS; issued++)
		{
			size_t		from = issued * STAGING_BYTES;
			StagingSlot *slot = &be->slot[issued % STAGING_SLOTS];

			TRY(wait_for_slot(be, slot, err));
			CUDA_TRY(cudaMemcpyAsync(be->staging + issued % STAGING_SLOTS * STAGING_BYTES, src + from,
									 min_size(bytes - from, STAGING_BYTES), cudaMemcpyDeviceToHost, be->stream));
			TRY(mark_slot(be, slot, err));
		}
		TRY(wait_for_slot(be, &be->slot[taken % STAGING_SLOTS], err));
		memcpy(host + at, be->staging + taken % STAGING_SLOTS * STAGING_BYTES, min_size(bytes - at, STAGING_BYTES));
	}
	return STATUS_OK;
}

Status
op_copy_out(Backend *be, void *host, const void *src, size_t bytes, Error *err)
{
	TRY(cuda_check_not_recording(be, "a copy to the host", err));
	if (bytes > STAGE_UP_TO && is_pinned(be, host, bytes))
	{
		CUDA_TRY(cudaMemcpyAsync(host, src, bytes, cudaMemcpyDeviceToHost, be->stream));
		TRY(cuda_wait_for_stream(be, err));
	}
	else
		TRY(copy_out_staged(be, host, src, bytes, err));
	return check_data(be, err);
}

Status
op_copy(Backend *be, void *dst, const void *src, size_t bytes, Error *err)
{
	if (bytes > 0)
		CUDA_TRY(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice, be->stream));
	return STATUS_OK;
}

Status
op_zero(Backend *be, void *dst, size_t bytes, Error *err)
{
	if (bytes > 0)
		CUDA_TRY(cudaMemsetAsync(dst, 0, bytes, be->stream));
	return STATUS_OK;
}

Status
op_host_register(Backend *be, void *host, size_t bytes, Error *err)
{
	PinnedRange *range = malloc(sizeof(*range));
	cudaError_t error;

	if (range == NULL)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	error = cudaHostRegister(host, bytes, cudaHostRegisterDefault);
	if (error != cudaSuccess)
	{
		free(range);
		return cuda_failed(error, "cudaHostRegister", err);
	}
	range->start = host;
	range->bytes = bytes;
	range->next = be->pinned;
	be->pinned = range;
	return STATUS_OK;
}

void
op_host_unregister(Backend *be, void *host)
{
	PinnedRange **link;

	for (link = &be->pinned; *link != NULL; link = &(*link)->next)
		if ((*link)->start == (char *) host)
		{
			PinnedRange *range = *link;

			*link = range->next;
			free(range);
			if (cudaHostUnregister(host) != cudaSuccess)
				(void) cudaGetLastError();
			return;
		}
}
