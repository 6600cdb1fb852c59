/*
 * memory.cpp - device and pinned memory.
 *
 * Every block of device memory has pages of its own in one large reserved range, never used twice, with pages nobody
 * may touch on both sides.  A block ends as near to the next page as its alignment allows; what is left around it
 * is filled with a pattern.  So an access beyond a block either faults or leaves a trace, an access to freed memory
 * faults, and, since all blocks are closed while no work of the device runs, so does the host's touch.  New memory
 * holds NaN.
 */
#include "regress/cudasim/sim.h"

#include <algorithm>
#include <cstring>
#include <sys/mman.h>

namespace sim
{

static const size_t PAGE = 4096;
static const size_t ALIGNMENT = 256;	/* what cudaMalloc promises */
static const size_t RANGE = (size_t) 1 << 38;	/* a device */
static const unsigned char FENCE = 0xA5;

static char *range_base[16];
static size_t range_top[16];

static size_t
round_up(size_t n, size_t to)
{
	return (n + to - 1) / to * to;
}

/* Not initialised: NaN as float, bf16 or fp16, -1 as an index. */
void
memory_poison(void *ptr, size_t bytes)
{
	memset(ptr, 0xFF, bytes);
}

/* The block that holds ptr or begins or ends there. */
static Block *
find(int device, const void *ptr, char **start)
{
	std::map<char *, Block> &blocks = state().device[device].blocks;
	auto after = blocks.upper_bound((char *) ptr);

	if (after == blocks.begin())
		return nullptr;
	--after;
	if ((const char *) ptr > after->first + after->second.bytes)
		return nullptr;
	*start = after->first;
	return &after->second;
}

int
memory_device(const void *ptr)
{
	for (int i = 0; i < 16; i++)
		if (range_base[i] != nullptr && (const char *) ptr >= range_base[i] && (const char *) ptr < range_base[i] + RANGE)
			return i;
	return -1;
}

bool
memory_is_live(const void *ptr, size_t bytes)
{
	int device = memory_device(ptr);
	char *start;
	Block *block = device >= 0 ? find(device, ptr, &start) : nullptr;

	return block != nullptr && bytes <= block->bytes - (size_t) ((const char *) ptr - start);
}

static bool
within(const std::map<char *, size_t> &ranges, const void *ptr, size_t bytes)
{
	auto after = ranges.upper_bound((char *) ptr);

	if (after == ranges.begin())
		return false;
	--after;
	return (const char *) ptr + bytes <= after->first + after->second;
}

bool
memory_is_pinned(const void *ptr, size_t bytes)
{
	return within(state().pinned, ptr, bytes) || within(state().registered, ptr, bytes);
}

bool
memory_device_may_use(int device, const void *ptr)
{
	int owner = memory_device(ptr);

	return owner == device ? memory_is_live(ptr, 0) : owner < 0 && memory_is_pinned(ptr, 0);
}

std::string
memory_describe(const void *ptr)
{
	int device = memory_device(ptr);
	char text[160];
	const char *where = "not memory of a device";
	std::map<char *, Block> &blocks = state().device[device < 0 ? 0 : device].blocks;

	if (device >= 0)
	{
		auto after = blocks.upper_bound((char *) ptr);

		where = "freed, or outside of every block";
		if (after != blocks.begin())
		{
			--after;
			if ((const char *) ptr < after->second.pages + after->second.pages_bytes + PAGE)
			{
				snprintf(text, sizeof(text), "%p, byte %td of a block of %zu bytes", ptr, (const char *) ptr - after->first,
						 after->second.bytes);
				return text;
			}
		}
	}
	snprintf(text, sizeof(text), "%p, %s", ptr, where);
	return text;
}

static void
protect(const Block &block, int protection)
{
	mprotect(block.pages, block.pages_bytes, protection);
}

/*
 * While a device is open its blocks open one by one, when work first touches them: opening all of them would cost more
 * than most work does.
 */
void
memory_open(int device)
{
	state().device[device].open++;
}

void
memory_close(int device)
{
	Device &d = state().device[device];

	if (--d.open > 0)
		return;
	for (char *start : d.opened)
		if (state().protect && d.blocks.count(start) > 0)
			protect(d.blocks[start], PROT_NONE);
	d.opened.clear();
}

/* Work touched ptr: true when it lies in a block that may be, and now is, open. */
bool
memory_open_at(const void *ptr)
{
	int device = memory_device(ptr);
	Device &d = state().device[device < 0 ? 0 : device];
	auto after = d.blocks.upper_bound((char *) ptr);

	if (device < 0 || d.open == 0)
		return false;
	/* a block's first page may begin before it */
	for (int i = 0; i < 2; i++)
	{
		if (after != d.blocks.end() && (char *) ptr >= after->second.pages
			&& (char *) ptr < after->second.pages + after->second.pages_bytes)
		{
			if (std::find(d.opened.begin(), d.opened.end(), after->first) != d.opened.end())
				return false;
			protect(after->second, PROT_READ | PROT_WRITE);
			d.opened.push_back(after->first);
			return true;
		}
		if (after == d.blocks.begin())
			return false;
		--after;
	}
	return false;
}

/* After the setting has changed. */
void
memory_protect_all()
{
	for (Device &d : state().device)
		for (auto &b : d.blocks)
			protect(b.second, state().protect ? PROT_NONE : PROT_READ | PROT_WRITE);
}

/* Where the pattern is broken, or NULL. */
static const char *
broken_fence(const char *start, const char *end)
{
	for (const char *p = start; p < end; p++)
		if ((unsigned char) *p != FENCE)
			return p;
	return nullptr;
}

/* The block is open. */
static bool
check_block(char *start, const Block &block, const char *after)
{
	const char *broken = broken_fence(block.pages, start);

	if (broken == nullptr)
		broken = broken_fence(start + block.bytes, block.pages + block.pages_bytes);
	if (broken == nullptr)
		return true;
	lose_device(block.device, cudaErrorIllegalAddress, "%s wrote outside of its memory, at %s", after,
				memory_describe(broken).c_str());
	memset(block.pages, FENCE, start - block.pages);
	memset(start + block.bytes, FENCE, block.pages + block.pages_bytes - (start + block.bytes));
	return false;
}

bool
memory_check_fences(int device, const char *after)
{
	Device &d = state().device[device];
	bool whole = true;

	for (auto &b : d.blocks)
	{
		protect(b.second, PROT_READ | PROT_WRITE);
		whole &= check_block(b.first, b.second, after);
	}
	d.open++;
	for (auto &b : d.blocks)
		d.opened.push_back(b.first);
	memory_close(device);
	return whole;
}

/* Only what the work has touched can be broken. */
void
memory_check_touched(int device, const char *after)
{
	Device &d = state().device[device];

	if (state().protect)
		for (char *start : d.opened)
			check_block(start, d.blocks[start], after);
	else
		for (auto &b : d.blocks)
			check_block(b.first, b.second, after);
}

/* One block of device memory, NULL when there is not enough. */
static char *
allocate(int device, size_t bytes)
{
	State &s = state();
	Device &d = s.device[device];
	Block block;
	char *start;

	if (bytes > s.memory || d.used > s.memory - bytes)
		return nullptr;
	if (range_base[device] == nullptr)
	{
		void *base = mmap(nullptr, RANGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (base == MAP_FAILED)
			return nullptr;
		range_base[device] = (char *) base;
		range_top[device] = PAGE;
	}
	block.bytes = bytes;
	block.device = device;
	block.pages_bytes = round_up(bytes, PAGE);
	block.pages = range_base[device] + range_top[device];
	if (block.pages_bytes + PAGE > RANGE - range_top[device])
		return nullptr;
	range_top[device] += block.pages_bytes + PAGE;
	start = block.pages + block.pages_bytes - round_up(bytes, ALIGNMENT);
	if (bytes >= (size_t) 4 << 20)
		madvise(block.pages, block.pages_bytes, MADV_HUGEPAGE);
	protect(block, PROT_READ | PROT_WRITE);
	memset(block.pages, FENCE, start - block.pages);
	memory_poison(start, bytes);
	memset(start + bytes, FENCE, block.pages + block.pages_bytes - (start + bytes));
	if (s.protect)
		protect(block, PROT_NONE);
	d.blocks[start] = block;
	d.used += bytes;
	s.peak_bytes = std::max(s.peak_bytes, cudasim_live_bytes());
	s.live[CUDASIM_DEVICE_MEMORY]++;
	return start;
}

static void
give_back(char *start)
{
	State &s = state();
	Device &d = s.device[memory_device(start)];
	Block block = d.blocks[start];

	protect(block, PROT_READ | PROT_WRITE);
	check_block(start, block, "something");
	madvise(block.pages, block.pages_bytes, MADV_DONTNEED);
	protect(block, PROT_NONE);
	d.blocks.erase(start);
	d.used -= block.bytes;
	s.live[CUDASIM_DEVICE_MEMORY]--;
}

void
memory_reset_device(int device)
{
	Device &d = state().device[device];

	while (!d.blocks.empty())
		give_back(d.blocks.begin()->first);
}

void
memory_reset()
{
	State &s = state();

	for (int i = 0; i < 16; i++)
		memory_reset_device(i);
	for (auto &p : s.pinned)
		munmap(p.first, round_up(p.second, PAGE));
	s.pinned.clear();
	s.registered.clear();
}

/* Pinned memory in pages of its own, so that what lies beyond faults. */
static cudaError_t
allocate_pinned(const char *name, void **out, size_t bytes)
{
	State &s = state();
	cudaError_t error;
	void *pages;

	if (out == nullptr)
		return cudaErrorInvalidValue;
	*out = nullptr;
	if ((error = capture_forbids()) != cudaSuccess || bytes == 0)
		return error;
	if (allocation_fails(name))
		return cudaErrorMemoryAllocation;
	pages = mmap(nullptr, round_up(bytes, PAGE), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (pages == MAP_FAILED)
		return cudaErrorMemoryAllocation;
	memory_poison(pages, bytes);
	s.pinned[(char *) pages] = bytes;
	s.live[CUDASIM_PINNED_MEMORY]++;
	*out = pages;
	return cudaSuccess;
}

/* All devices: a stream of any may still read host memory. */
static cudaError_t
drain_all()
{
	cudaError_t error = cudaSuccess;

	for (int i = 0; i < state().devices && error == cudaSuccess; i++)
		error = drain_device(i);
	return error;
}

}								/* namespace sim */

using namespace sim;

extern "C"
{

cudaError_t
cudaMalloc(void **out, size_t bytes)
{
	cudaError_t error;

	CUDART_CALL();
	if (out == nullptr)
		return result(cudaErrorInvalidValue);
	if ((error = capture_forbids()) != cudaSuccess)
		return result(error);
	*out = nullptr;
	if (bytes == 0)
		return cudaSuccess;
	if (allocation_fails(__func__))
		return result(cudaErrorMemoryAllocation);
	*out = allocate(current_device(), bytes);
	return *out != nullptr ? cudaSuccess : result(cudaErrorMemoryAllocation);
}

cudaError_t
cudaFree(void *ptr)
{
	Call call(__func__);
	cudaError_t error;
	int device;

	if (ptr == nullptr)
		return call.release();
	if ((error = capture_forbids()) != cudaSuccess)
		return result(error);
	device = memory_device(ptr);
	if (device < 0 || state().device[device].blocks.count((char *) ptr) == 0)
	{
		complain("cudaFree of %s", memory_describe(ptr).c_str());
		return result(cudaErrorInvalidValue);
	}
	error = drain_device(device);
	give_back((char *) ptr);
	return error != cudaSuccess ? result(error) : call.release();
}

/* The block is there at once, and not only when the stream comes to it. */
cudaError_t
cudaMallocAsync(void **out, size_t bytes, cudaStream_t stream)
{
	CUDART_CALL();
	(void) stream;
	if (out == nullptr)
		return result(cudaErrorInvalidValue);
	*out = nullptr;
	if (bytes == 0)
		return cudaSuccess;
	if (allocation_fails(__func__))
		return result(cudaErrorMemoryAllocation);
	*out = allocate(current_device(), bytes);
	return *out != nullptr ? cudaSuccess : result(cudaErrorMemoryAllocation);
}

/* The stand-in waits for the stream. */
cudaError_t
cudaFreeAsync(void *ptr, cudaStream_t stream)
{
	Call call(__func__);
	cudaError_t error;
	int device = memory_device(ptr);

	if (device < 0 || state().device[device].blocks.count((char *) ptr) == 0)
	{
		complain("cudaFreeAsync of %s", memory_describe(ptr).c_str());
		return result(cudaErrorInvalidValue);
	}
	error = drain(stream_of(stream));
	give_back((char *) ptr);
	return error != cudaSuccess ? result(error) : call.release();
}

cudaError_t
cudaMallocHost(void **out, size_t bytes)
{
	CUDART_CALL();
	return result(allocate_pinned(__func__, out, bytes));
}

cudaError_t
cudaHostAlloc(void **out, size_t bytes, unsigned int flags)
{
	CUDART_CALL();
	if ((flags & ~(unsigned) (cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined)) != 0)
		return result(cudaErrorInvalidValue);
	return result(allocate_pinned(__func__, out, bytes));
}

cudaError_t
cudaFreeHost(void *ptr)
{
	State &s = state();
	Call call(__func__);
	cudaError_t error;

	if (ptr == nullptr)
		return call.release();
	auto found = s.pinned.find((char *) ptr);
	if (found == s.pinned.end())
		return result(cudaErrorInvalidValue);
	if ((error = capture_forbids()) != cudaSuccess)
		return result(error);
	error = drain_all();
	munmap(ptr, round_up(found->second, PAGE));
	s.pinned.erase(found);
	s.live[CUDASIM_PINNED_MEMORY]--;
	return error != cudaSuccess ? result(error) : call.release();
}

cudaError_t
cudaHostRegister(void *ptr, size_t bytes, unsigned int flags)
{
	State &s = state();
	cudaError_t error;

	CUDART_CALL();
	(void) flags;
	if (ptr == nullptr || bytes == 0)
		return result(cudaErrorInvalidValue);
	if ((error = capture_forbids()) != cudaSuccess)
		return result(error);
	if (memory_is_pinned(ptr, 0) || memory_is_pinned((char *) ptr + bytes - 1, 0))
		return result(cudaErrorHostMemoryAlreadyRegistered);
	if (allocation_fails(__func__))
		return result(cudaErrorMemoryAllocation);
	s.registered[(char *) ptr] = bytes;
	s.live[CUDASIM_REGISTRATION]++;
	return cudaSuccess;
}

cudaError_t
cudaHostUnregister(void *ptr)
{
	State &s = state();
	Call call(__func__);
	cudaError_t error = cudaSuccess;

	auto found = s.registered.find((char *) ptr);
	if (found == s.registered.end())
		return result(cudaErrorHostMemoryNotRegistered);
	error = drain_all();
	s.registered.erase(found);
	s.live[CUDASIM_REGISTRATION]--;
	return error != cudaSuccess ? result(error) : call.release();
}

cudaError_t
cudaHostGetDevicePointer(void **out, void *host, unsigned int flags)
{
	CUDART_CALL();
	if (out == nullptr || flags != 0 || !memory_is_pinned(host, 0))
		return result(cudaErrorInvalidValue);
	*out = host;
	return cudaSuccess;
}

cudaError_t
cudaMemGetInfo(size_t *free, size_t *total)
{
	State &s = state();
	size_t used = s.device[current_device()].used;

	CUDART_CALL();
	if (free == nullptr || total == nullptr)
		return result(cudaErrorInvalidValue);
	*total = s.memory;
	*free = used < s.memory ? s.memory - used : 0;
	return cudaSuccess;
}

cudaError_t
cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *ptr)
{
	int device = memory_device(ptr);

	CUDART_CALL();
	if (attributes == nullptr)
		return result(cudaErrorInvalidValue);
	memset(attributes, 0, sizeof(*attributes));
	attributes->device = -2;
	if (device >= 0 && memory_is_live(ptr, 0))
	{
		attributes->type = cudaMemoryTypeDevice;
		attributes->device = device;
		attributes->devicePointer = (void *) ptr;
	}
	else if (memory_is_pinned(ptr, 0))
	{
		attributes->type = cudaMemoryTypeHost;
		attributes->device = current_device();
		attributes->devicePointer = attributes->hostPointer = (void *) ptr;
	}
	else
		attributes->type = cudaMemoryTypeUnregistered;
	return cudaSuccess;
}

}								/* extern "C" */
