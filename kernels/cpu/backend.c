/*
 * backend.c - opening the CPU backend, its memory, and the choice of an instruction set.
 */
#include "kernels/cpu/onednn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

extern const BackendOps cpu_ops_sse2;
#if defined(PGT_HAVE_X86)
extern const BackendOps cpu_ops_avx2;
extern const BackendOps cpu_ops_avx512;
#endif

/* Allocations from here on are mapped on their own, aligned to huge pages. */
#define HUGE_PAGE_BYTES ((size_t) 2 << 20)

typedef struct IsaTable
{
	const char *isa;
	const char *label;
	const BackendOps *ops;
} IsaTable;

/* Best first. */
static const IsaTable isa_tables[] = {
#if defined(PGT_HAVE_X86)
	{"avx512", "AVX-512", &cpu_ops_avx512},
	{"avx2", "AVX2", &cpu_ops_avx2},
	{"sse2", "SSE2", &cpu_ops_sse2},
#else
	{"sse2", "generic", &cpu_ops_sse2},
#endif
};

#define ISA_TABLES (sizeof(isa_tables) / sizeof(isa_tables[0]))

static const BackendOps *forced_ops;
static int	emulate_bf16;

static int
isa_supported(const char *isa)
{
#if defined(PGT_HAVE_X86)
	__builtin_cpu_init();
	if (strcmp(isa, "avx512") == 0)
		return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
			&& __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
			&& __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
	if (strcmp(isa, "avx2") == 0)
		return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
	return strcmp(isa, "sse2") == 0;
}

const BackendOps *
cpu_backend(void)
{
	size_t		i;

	if (forced_ops != NULL)
		return forced_ops;
	for (i = 0; i + 1 < ISA_TABLES; i++)
		if (isa_supported(isa_tables[i].isa))
			break;
	return isa_tables[i].ops;
}

Status
cpu_backend_force_isa(const char *isa, Error *err)
{
	size_t		i;

	if (isa == NULL)
	{
		forced_ops = NULL;
		return STATUS_OK;
	}
	for (i = 0; i < ISA_TABLES; i++)
		if (strcmp(isa, isa_tables[i].isa) == 0 && isa_supported(isa))
		{
			forced_ops = isa_tables[i].ops;
			return STATUS_OK;
		}
	return error_set(err, STATUS_UNSUPPORTED, "this processor or build has no \"%s\" instructions", isa);
}

void
cpu_backend_emulate_bf16(int allow)
{
	emulate_bf16 = allow;
}

Status
cpu_open(const char *isa, int32_t threads, Backend **out, Error *err)
{
	Backend    *be;
#if defined(HAVE_ONEDNN)
	Status		status;
#endif

	if (threads < 0 || threads > 4096)
		return error_set(err, STATUS_INVALID, "cannot use %d threads", (int) threads);
	be = calloc(1, sizeof(*be));
	if (be == NULL)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	be->isa = isa;
#if defined(_OPENMP)
	be->threads = threads > 0 ? threads : cpu_processors();
	/* A smaller team than asked for would change the order of sums. */
	omp_set_dynamic(0);
	omp_set_num_threads(be->threads);
#else
	be->threads = 1;
#endif
#if defined(HAVE_ONEDNN)
	status = onednn_open(be->isa, emulate_bf16, &be->onednn, err);
	if (status != STATUS_OK)
	{
		free(be);
		return status;
	}
#endif
	*out = be;
	return STATUS_OK;
}

void
cpu_close(Backend *be)
{
	int			i;

	if (be == NULL)
		return;
#if defined(HAVE_ONEDNN)
	onednn_close(be, be->onednn);
#endif
	for (i = 0; i < WORKSPACE_COUNT; i++)
		cpu_free(be, be->workspace[i].data, be->workspace[i].bytes);
	free(be);
}

void
cpu_info(const Backend *be, DeviceInfo *info)
{
	const char *label = "";
	size_t		i;

	for (i = 0; i < ISA_TABLES; i++)
		if (strcmp(be->isa, isa_tables[i].isa) == 0)
			label = isa_tables[i].label;
	memset(info, 0, sizeof(*info));
	snprintf(info->name, sizeof(info->name), "cpu (%s, %d thread%s)", label, be->threads,
			 be->threads == 1 ? "" : "s");
	info->threads = be->threads;
#if defined(HAVE_ONEDNN)
	if (be->onednn != NULL)
	{
		onednn_version(info->libraries, sizeof(info->libraries));
		info->bf16 = 1;
	}
#endif
}

Status
cpu_alloc(Backend *be, size_t bytes, void **out, Error *err)
{
	(void) be;
	*out = NULL;
	if (bytes < HUGE_PAGE_BYTES)
	{
		size_t		size = bytes > 0 ? bytes : 1;
		void	   *data;

		if (posix_memalign(&data, CPU_ALIGNMENT, size) != 0)
			return error_set(err, STATUS_NO_MEMORY, "out of memory: cannot allocate %zu bytes", bytes);
		memset(data, 0, size);
		*out = data;
	}
	else if (bytes > SIZE_MAX - 2 * HUGE_PAGE_BYTES)
		return error_set(err, STATUS_NO_MEMORY, "out of memory: cannot allocate %zu bytes", bytes);
	else
	{
		/* Map one huge page more than needed, then give back what lies outside the aligned part. */
		size_t		size = round_up(bytes, HUGE_PAGE_BYTES);
		char	   *map = mmap(NULL, size + HUGE_PAGE_BYTES, PROT_READ | PROT_WRITE,
							   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		char	   *data;
		size_t		before;

		if (map == MAP_FAILED)
			return error_set(err, STATUS_NO_MEMORY, "out of memory: cannot allocate %zu bytes", bytes);
		data = (char *) round_up((size_t) map, HUGE_PAGE_BYTES);
		before = (size_t) (data - map);
		if (before > 0)
			munmap(map, before);
		if (before < HUGE_PAGE_BYTES)
			munmap(data + size, HUGE_PAGE_BYTES - before);
		/* Only a hint: without huge pages it is slower, not wrong. */
		madvise(data, size, MADV_HUGEPAGE);
		*out = data;
	}
	return STATUS_OK;
}

void
cpu_free(Backend *be, void *ptr, size_t bytes)
{
	(void) be;
	if (ptr == NULL)
		return;
	if (bytes < HUGE_PAGE_BYTES)
		free(ptr);
	else
		munmap(ptr, round_up(bytes, HUGE_PAGE_BYTES));
}

Status
cpu_workspace(Backend *be, Workspace which, size_t bytes, void **out, Error *err)
{
	if (bytes > be->workspace[which].bytes || be->workspace[which].data == NULL)
	{
		void	   *data;

		TRY(cpu_alloc(be, bytes, &data, err));
		cpu_free(be, be->workspace[which].data, be->workspace[which].bytes);
		be->workspace[which].data = data;
		be->workspace[which].bytes = bytes;
	}
	*out = be->workspace[which].data;
	return STATUS_OK;
}

Status
cpu_copy(Backend *be, void *dst, const void *src, size_t bytes, Error *err)
{
	(void) be;
	(void) err;
	if (bytes > 0)
		memmove(dst, src, bytes);
	return STATUS_OK;
}

Status
cpu_zero(Backend *be, void *dst, size_t bytes, Error *err)
{
	(void) err;
	if (bytes > 0)
	{
		/* about 10 bytes a nanosecond */
		int			nt = threads_for(be, (double) bytes / 10.0);

	PARALLEL(nt)
		{
			size_t		lo,
						hi;

			thread_range(bytes, 4096, thread_index(), thread_count(), &lo, &hi);
			if (hi > lo)
				memset((char *) dst + lo, 0, hi - lo);
		}
	}
	return STATUS_OK;
}

/* The machine's, less what other programs hold now. */
Status
cpu_memory_free(Backend *be, size_t *bytes, Error *err)
{
	FILE	   *file = fopen("/proc/meminfo", "r");
	char		line[128];
	unsigned long long kilobytes;

	(void) be;
	(void) err;
	*bytes = (size_t) sysconf(_SC_AVPHYS_PAGES) * (size_t) sysconf(_SC_PAGESIZE);
	if (file == NULL)
		return STATUS_OK;
	while (fgets(line, sizeof(line), file) != NULL)
		if (sscanf(line, "MemAvailable: %llu kB", &kilobytes) == 1)
			*bytes = (size_t) kilobytes * 1024;
	fclose(file);
	return STATUS_OK;
}

Status
cpu_count(int32_t *devices, Error *err)
{
	(void) err;
	*devices = 1;
	return STATUS_OK;
}

Status
cpu_sync(Backend *be, Error *err)
{
	(void) be;
	(void) err;
	return STATUS_OK;
}

Status
cpu_check_dtype(DType dtype, const char *operation, Error *err)
{
	static const char *const names[] = {"float32", "bfloat16", "float16", "uint8", "int32"};

	if (dtype == DTYPE_F32 || dtype == DTYPE_BF16 || dtype == DTYPE_F16)
		return STATUS_OK;
	if ((unsigned) dtype > DTYPE_I32)
		return error_set(err, STATUS_INTERNAL, "%s: unknown data type %d", operation, (int) dtype);
	return error_set(err, STATUS_UNSUPPORTED, "%s is not supported in %s on the cpu", operation,
					 names[dtype]);
}
