/*
 * processors.c - how many processors this process may use.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE				/* sched_getaffinity */
#endif

#include "kernels/cpu/cpu.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Processors in this process' affinity mask, at least 1. */
static int
affinity_processors(void)
{
	long		online = sysconf(_SC_NPROCESSORS_ONLN);
	int			count = 0;

#if defined(__linux__)
	cpu_set_t	set;

	/* It fails where the machine has more processors than the set: then all of them count. */
	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		count = CPU_COUNT(&set);
#endif
	if (count < 1)
		count = online > 0 && online <= 4096 ? (int) online : 1;
	return count;
}

#if defined(__linux__)
/* The limit in a cgroup's cpu.max ("quota period", or "max period") as processors, rounded up; 0: no limit. */
static int
quota_processors(const char *path)
{
	FILE	   *file = fopen(path, "re");
	long long	quota,
				period;
	int			fields;

	if (file == NULL)
		return 0;
	fields = fscanf(file, "%lld %lld", &quota, &period);
	fclose(file);
	if (fields != 2 || quota <= 0 || period <= 0)
		return 0;
	return (int) ((quota + period - 1) / period);
}

/* The smallest quota on the way from this process' control group (version 2) up to the root; 0: no limit. */
static int
cgroup_processors(void)
{
	char		line[3072],
				group[3072] = "",
				path[4096];
	FILE	   *file = fopen("/proc/self/cgroup", "re");
	int			best = 0;

	if (file == NULL)
		return 0;
	while (fgets(line, sizeof(line), file) != NULL)
		if (strncmp(line, "0::", 3) == 0)
		{
			line[strcspn(line, "\n")] = '\0';
			strcpy(group, line + 3);
		}
	fclose(file);
	if (group[0] != '/')
		return 0;
	for (;;)
	{
		char	   *slash = strrchr(group, '/');
		int			count;

		snprintf(path, sizeof(path), "/sys/fs/cgroup%s/cpu.max", strcmp(group, "/") == 0 ? "" : group);
		count = quota_processors(path);
		if (count > 0 && (best == 0 || count < best))
			best = count;
		if (slash == NULL || group[1] == '\0')
			return best;
		/* Next the parent; the last one is "/", where a container sees its own limit. */
		slash[slash == group] = '\0';
	}
}
#endif

int
cpu_processors(void)
{
	int			count = affinity_processors();

#if defined(__linux__)
	int			quota = cgroup_processors();

	if (quota > 0 && quota < count)
		count = quota;
#endif
	return count;
}
