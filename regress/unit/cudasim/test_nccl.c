/*
 * test_nccl.c - collectives between processes and between threads, and what happens when a rank dies.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include <nccl.h>

#include "regress/unit/cudasim/planted.h"
#include "regress/unit/cudasim/sim_test.h"

#define RANKS 3
/* more than a chunk */
#define COUNT 300000

#define NCCL_OK(call) \
	do { \
		ncclResult_t test_result_ = (call); \
		if (test_result_ != ncclSuccess) \
			test_fail(__FILE__, __LINE__, "%s gave \"%s\" (%s)", #call, ncclGetErrorString(test_result_), \
					  cudasim_message()); \
	} while (0)

static const struct timespec millisecond = {0, 1000000};

/* Poll until a call that does not block is over. */
static ncclResult_t
wait_for(ncclComm_t comm)
{
	ncclResult_t state = ncclInProgress;

	for (int i = 0; i < 5000 && state == ncclInProgress; i++)
	{
		if (ncclCommGetAsyncError(comm, &state) != ncclSuccess)
			return ncclInternalError;
		if (state == ncclInProgress)
			nanosleep(&millisecond, NULL);
	}
	return state;
}

/* A device of its own, and a communicator that is made without blocking. */
static ncclComm_t
join(ncclUniqueId id, int ranks, int rank)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	ncclComm_t	comm = NULL;

	config.blocking = 0;
	if (cudaSetDevice(rank) != cudaSuccess
		|| ncclCommInitRankConfig(&comm, ranks, id, rank, &config) != ncclInProgress || wait_for(comm) != ncclSuccess)
		return NULL;
	return comm;
}

/* Sums of rank + i % 100 over all ranks: 0 when right. */
static int
sum_up(ncclUniqueId id, int rank)
{
	ncclComm_t	comm = join(id, RANKS, rank);
	cudaStream_t stream;
	float	   *host = malloc(COUNT * sizeof(float)),
			   *device;
	int			wrong = comm == NULL;

	if (comm == NULL)
		return 1;
	for (int i = 0; i < COUNT; i++)
		host[i] = (float) (rank + i % 100);
	wrong |= cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess;
	wrong |= cudaMalloc((void **) &device, COUNT * sizeof(float)) != cudaSuccess;
	wrong |= cudaMemcpyAsync(device, host, COUNT * sizeof(float), cudaMemcpyHostToDevice, stream) != cudaSuccess;
	wrong |= ncclAllReduce(device, device, COUNT, ncclFloat, ncclSum, comm, stream) != ncclInProgress;
	wrong |= wait_for(comm) != ncclSuccess;
	/* then everyone gets the sums of the last rank, doubled by it */
	if (rank == RANKS - 1)
		start_double(device, device, COUNT, stream);
	wrong |= ncclBroadcast(device, device, COUNT, ncclFloat, RANKS - 1, comm, stream) != ncclInProgress;
	wrong |= wait_for(comm) != ncclSuccess;
	wrong |= cudaMemcpyAsync(host, device, COUNT * sizeof(float), cudaMemcpyDeviceToHost, stream) != cudaSuccess;
	wrong |= cudaStreamSynchronize(stream) != cudaSuccess;
	for (int i = 0; i < COUNT; i++)
		wrong |= host[i] != (float) (2 * (RANKS * (RANKS - 1) / 2 + RANKS * (i % 100)));
	wrong |= ncclCommDestroy(comm) != ncclSuccess;
	wrong |= cudaFree(device) != cudaSuccess || cudaStreamDestroy(stream) != cudaSuccess;
	free(host);
	return wrong;
}

TEST(processes_reduce_and_broadcast)
{
	ncclUniqueId id;
	pid_t		child[RANKS];

	sim_begin();
	cudasim_set_devices(RANKS);
	NCCL_OK(ncclGetUniqueId(&id));
	for (int r = 1; r < RANKS; r++)
		if ((child[r] = fork()) == 0)
			_exit(sum_up(id, r));
	CHECK(sum_up(id, 0) == 0, "%s", cudasim_message());
	for (int r = 1; r < RANKS; r++)
	{
		int			status = -1;

		waitpid(child[r], &status, 0);
		CHECK(status == 0, "rank %d ended with %x", r, status);
	}
	CHECK_NOTHING_LIVE();
	CHECK(access(id.internal, F_OK) != 0, "the shared file is left");
}

static ncclUniqueId thread_id;

static void *
rank_thread(void *rank)
{
	return (void *) (intptr_t) sum_up(thread_id, (int) (intptr_t) rank);
}

TEST(threads_reduce_and_broadcast)
{
	pthread_t	thread[RANKS];

	sim_begin();
	cudasim_set_devices(RANKS);
	NCCL_OK(ncclGetUniqueId(&thread_id));
	for (int r = 1; r < RANKS; r++)
		pthread_create(&thread[r], NULL, rank_thread, (void *) (intptr_t) r);
	CHECK(sum_up(thread_id, 0) == 0, "%s", cudasim_message());
	for (int r = 1; r < RANKS; r++)
	{
		void	   *wrong;

		pthread_join(thread[r], &wrong);
		CHECK(wrong == NULL, "rank %d", r);
	}
	CHECK_NOTHING_LIVE();
}

/* Rank 1 of 2, a process that joins and is killed when the other has joined, too; returns that one's communicator. */
static ncclComm_t
join_with_one_that_dies(pid_t *child)
{
	ncclUniqueId id;
	ncclComm_t	comm;
	int			joined[2];
	char		byte = 0;

	NCCL_OK(ncclGetUniqueId(&id));
	if (pipe(joined) != 0)
		return NULL;
	if ((*child = fork()) == 0)
	{
		if (join(id, 2, 1) == NULL || read(joined[0], &byte, 1) != 1)
			_exit(1);
		raise(SIGKILL);
	}
	comm = join(id, 2, 0);
	if (write(joined[1], &byte, 1) != 1)
		comm = NULL;
	close(joined[0]);
	close(joined[1]);
	return comm;
}

TEST(a_dead_rank_is_an_error_and_an_abort_ends_the_wait)
{
	ncclComm_t	comm;
	cudaStream_t stream;
	cudaEvent_t event;
	float	   *x;
	ncclResult_t state = ncclSuccess;
	pid_t		child;
	int			polls = 0;

	sim_begin();
	cudasim_set_devices(2);
	comm = join_with_one_that_dies(&child);
	REQUIRE(comm != NULL);
	x = sim_put(NULL, 64);
	CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	CUDA_OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
	CHECK(ncclAllReduce(x, x, 64, ncclFloat, ncclSum, comm, stream) == ncclInProgress);
	CUDA_OK(cudaEventRecord(event, stream));
	while (polls++ < 2000 && cudaEventQuery(event) == cudaErrorNotReady
		   && ncclCommGetAsyncError(comm, &state) == ncclSuccess && (state == ncclSuccess || state == ncclInProgress))
		nanosleep(&millisecond, NULL);
	CHECK(state == ncclRemoteError, "state %d after %d polls", (int) state, polls);
	CHECK_CUDA(cudaErrorNotReady, cudaEventQuery(event));
	NCCL_OK(ncclCommAbort(comm));
	cudaGetLastError();
	CUDA_OK(cudaEventSynchronize(event));
	CUDA_OK(cudaEventDestroy(event));
	CUDA_OK(cudaStreamDestroy(stream));
	CUDA_OK(cudaFree(x));
	waitpid(child, NULL, 0);
	CHECK_NOTHING_LIVE();
}

/* What the backend must not do: wait without looking. */
TEST(a_wait_for_a_dead_rank_hangs_and_is_found)
{
	ncclComm_t	comm;
	float	   *x;
	pid_t		child;

	sim_begin();
	cudasim_set_devices(2);
	cudasim_set_hang_ms(100);
	comm = join_with_one_that_dies(&child);
	REQUIRE(comm != NULL);
	x = sim_put(NULL, 64);
	CHECK(ncclAllReduce(x, x, 64, ncclFloat, ncclSum, comm, NULL) == ncclInProgress);
	CHECK_CUDA(cudaErrorLaunchTimeout, cudaStreamSynchronize(NULL));
	CHECK_MESSAGE("hung");
	waitpid(child, NULL, 0);
	ncclCommAbort(comm);
}

TEST(a_communicator_is_not_used_before_it_is_ready)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	ncclUniqueId id;
	ncclComm_t	comm;
	float	   *x;

	sim_begin();
	config.blocking = 0;
	NCCL_OK(ncclGetUniqueId(&id));
	x = sim_put(NULL, 64);
	CHECK(ncclCommInitRankConfig(&comm, 1, id, 0, &config) == ncclInProgress);
	CHECK(ncclAllReduce(x, x, 64, ncclFloat, ncclSum, comm, NULL) == ncclInvalidUsage);
	CHECK(wait_for(comm) == ncclSuccess);
	CHECK(ncclAllReduce(x, x, 64, ncclFloat, ncclSum, comm, NULL) == ncclInProgress);
	CHECK(wait_for(comm) == ncclSuccess);
	CUDA_OK(cudaFree(x));
	NCCL_OK(ncclCommDestroy(comm));
	CHECK_NOTHING_LIVE();
}

static void *
join_on_device_0(void *rank)
{
	ncclComm_t	comm = NULL;
	ncclResult_t result = ncclCommInitRank(&comm, 2, thread_id, (int) (intptr_t) rank);

	if (comm != NULL)
		ncclCommAbort(comm);
	return (void *) (intptr_t) result;
}

TEST(one_device_cannot_be_two_ranks)
{
	pthread_t	thread;
	void	   *other;

	sim_begin();
	NCCL_OK(ncclGetUniqueId(&thread_id));
	pthread_create(&thread, NULL, join_on_device_0, (void *) 1);
	CHECK(join_on_device_0((void *) 0) != (void *) ncclSuccess);
	pthread_join(thread, &other);
	CHECK(other != (void *) ncclSuccess);
	CHECK_NOTHING_LIVE();
}
