/*
 * session.c - the engine's side of the protocol.  Nothing that comes over the socket is trusted.
 */
#include "engine/session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "engine/dataset.h"
#include "engine/ring.h"
#include "engine/train.h"

#define MAX_RING_SLOTS 1024

typedef struct Session
{
	int			socket_fd;
	int			ring_fd;
	const OpenDevice *device;
	char	   *ring;			/* mapped read-only */
	size_t		ring_bytes;
	uint32_t	slots;
	size_t		slot_bytes;
	size_t		record_bytes;
	Dataset    *dataset;
	Trainer    *trainer;
	int64_t		parameters;
} Session;

static double
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double) t.tv_sec + 1e-9 * (double) t.tv_nsec;
}

/* The largest resident size of this program, in bytes.  getrusage() would count the process before exec, too. */
static int64_t
peak_rss(void)
{
	FILE	   *file = fopen("/proc/self/status", "r");
	char		line[256];
	long long	kilobytes = 0;

	if (file == NULL)
		return 0;
	while (fgets(line, sizeof(line), file) != NULL)
		if (sscanf(line, "VmHWM: %lld kB", &kilobytes) == 1)
			break;
	fclose(file);
	return (int64_t) kilobytes * 1024;
}

static Status
send_hello(Session *s, Error *err)
{
	EngineHello hello;

	memset(&hello, 0, sizeof(hello));
	hello.protocol_version = PROTOCOL_VERSION;
	hello.backend_abi_version = s->device->ops->abi_version;
	hello.trainspec_bytes = sizeof(TrainSpec) + sizeof(LayerSpec);
	hello.pid = getpid();
	s->device->ops->info(s->device->be, &hello.device);
	hello.fallback = s->device->fallback;
	return frame_send(s->socket_fd, MSG_HELLO, &hello, sizeof(hello), err);
}

/* Receive a frame; *data is the caller's to free. */
static Status
receive(Session *s, MessageType *type, void **data, size_t *bytes, Error *err)
{
	return frame_receive(s->socket_fd, type, data, bytes, err);
}

static Status
unexpected(MessageType type, const char *expected, Error *err)
{
	return error_set(err, STATUS_PROTOCOL, "message %d came where %s was expected", (int) type, expected);
}

static Status
bad_length(const char *message, size_t bytes, Error *err)
{
	return error_set(err, STATUS_PROTOCOL, "a %s message of %zu bytes is not valid", message, bytes);
}

static Status
map_ring(Session *s, Error *err)
{
	struct stat st;
	const RingHeader *header;

	if (fstat(s->ring_fd, &st) != 0)
		return error_set(err, STATUS_IO, "could not look at the ring: %s", strerror(errno));
	if (st.st_size < RING_PAGE_BYTES)
		return error_set(err, STATUS_PROTOCOL, "the ring has only %lld bytes", (long long) st.st_size);
	s->ring = mmap(NULL, st.st_size, PROT_READ, MAP_SHARED, s->ring_fd, 0);
	if (s->ring == MAP_FAILED)
	{
		s->ring = NULL;
		return error_set(err, STATUS_IO, "could not map the ring: %s", strerror(errno));
	}
	s->ring_bytes = st.st_size;
	header = (const RingHeader *) s->ring;
	s->slots = header->slots;
	s->slot_bytes = header->slot_bytes;
	if (header->magic != RING_MAGIC || s->slots < 1 || s->slots > MAX_RING_SLOTS ||
		s->slot_bytes == 0 || s->slot_bytes % RING_PAGE_BYTES != 0 ||
		s->slot_bytes > (s->ring_bytes - RING_PAGE_BYTES) / s->slots)
		return error_set(err, STATUS_PROTOCOL, "the ring's header is not valid");
	return STATUS_OK;
}

static Status
handle_load(Session *s, const void *data, size_t bytes, Error *err)
{
	const size_t fixed = sizeof(DatasetSpec) + sizeof(RecordLayout);
	const DatasetSpec *spec = data;
	const RecordLayout *layout = (const RecordLayout *) (spec + 1);

	if (bytes < fixed || layout->nsegments < 0 || layout->nsegments > MAX_SEGMENTS ||
		bytes != fixed + layout->nsegments * sizeof(Segment))
		return bad_length("LOAD", bytes, err);
	TRY(dataset_create(spec, layout, &s->dataset, err));
	s->record_bytes = layout->record_bytes;
	return map_ring(s, err);
}

static Status
handle_rows(Session *s, const void *data, size_t bytes, Error *err)
{
	const RowsMessage *message = data;

	if (bytes != sizeof(RowsMessage))
		return bad_length("ROWS", bytes, err);
	if (message->slot >= s->slots)
		return error_set(err, STATUS_PROTOCOL, "the ring has no slot %u", message->slot);
	if (message->rows > s->slot_bytes / s->record_bytes)
		return error_set(err, STATUS_PROTOCOL, "%u rows do not fit in a slot", message->rows);
	TRY(dataset_add(s->dataset, ring_slot(s->ring, s->slot_bytes, message->slot), message->rows, message->split, err));
	return frame_send(s->socket_fd, MSG_SLOT_FREE, &message->slot, sizeof(message->slot), err);
}

static Status
send_loaded(Session *s, Error *err)
{
	const DatasetView *view = dataset_view(s->dataset);
	size_t		width_bytes = view->input_width * sizeof(double),
				bytes = sizeof(DatasetStats) + 2 * width_bytes;
	char	   *frame;
	Status		status;

	frame = malloc(bytes);
	if (frame == NULL)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	memcpy(frame, &view->stats, sizeof(DatasetStats));
	memcpy(frame + sizeof(DatasetStats), view->mean, width_bytes);
	memcpy(frame + sizeof(DatasetStats) + width_bytes, view->stddev, width_bytes);
	status = frame_send(s->socket_fd, MSG_LOADED, frame, bytes, err);
	free(frame);
	return status;
}

static Status
handle_end_rows(Session *s, const void *data, size_t bytes, Error *err)
{
	const uint32_t *nclasses = data;

	if (bytes < sizeof(uint32_t) || (bytes - sizeof(uint32_t)) / sizeof(int32_t) != *nclasses ||
		bytes % sizeof(int32_t) != 0)
		return bad_length("END_ROWS", bytes, err);
	/* the ring has served */
	munmap(s->ring, s->ring_bytes);
	s->ring = NULL;
	TRY(dataset_finish(s->dataset, (const int32_t *) (nclasses + 1), *nclasses, err));
	return send_loaded(s, err);
}

static Status
handle_train(Session *s, const void *data, size_t bytes, TrainResult *result, Error *err)
{
	const TrainSpec *spec = data;
	double		start = now();
	int32_t		epochs;

	if (bytes < sizeof(TrainSpec) || spec->nlayers < 0 || spec->nlayers > MAX_LAYERS ||
		bytes != sizeof(TrainSpec) + spec->nlayers * sizeof(LayerSpec))
		return bad_length("TRAIN", bytes, err);
	epochs = spec->epochs;
	TRY(trainer_create(s->device->ops, s->device->be, s->dataset, spec, &s->trainer, err));
	memset(result, 0, sizeof(*result));
	while (epochs-- > 0)
	{
		TRY(trainer_epoch(s->trainer, &result->last, err));
		TRY(frame_send(s->socket_fd, MSG_EPOCH, &result->last, sizeof(EpochReport), err));
	}
	TRY(trainer_steps(s->trainer, &result->steps, &result->skipped_steps, err));
	result->seconds = now() - start;
	result->parameters = trainer_network(s->trainer)->tensors.parameters;
	return STATUS_OK;
}

static Status
send_tensor(Session *s, Network *net, int32_t i, Error *err)
{
	const TensorHeader *header = &net->tensors.tensors[i].header;
	size_t		bytes = header->values * sizeof(float),
				sent,
				piece;
	float	   *data;
	Status		status;

	TRY(frame_send(s->socket_fd, MSG_TENSOR, header, sizeof(*header), err));
	data = malloc(bytes);
	if (data == NULL)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	status = network_get_tensor(net, i, data, err);
	for (sent = 0; sent < bytes && status == STATUS_OK; sent += piece)
	{
		piece = bytes - sent < MAX_DATA_BYTES ? bytes - sent : MAX_DATA_BYTES;
		status = frame_send(s->socket_fd, MSG_DATA, (char *) data + sent, piece, err);
	}
	free(data);
	return status;
}

/* Handle frames of the loading phase up to and including the last one. */
static Status
load_rows(Session *s, Error *err)
{
	MessageType type = MSG_ERROR;

	while (type != MSG_END_ROWS)
	{
		void	   *data;
		size_t		bytes;
		Status		status;

		TRY(receive(s, &type, &data, &bytes, err));
		if (type == MSG_LOAD && s->dataset == NULL)
			status = handle_load(s, data, bytes, err);
		else if (type == MSG_ROWS && s->dataset != NULL)
			status = handle_rows(s, data, bytes, err);
		else if (type == MSG_END_ROWS && s->dataset != NULL)
			status = handle_end_rows(s, data, bytes, err);
		else
			status = unexpected(type, s->dataset == NULL ? "LOAD" : "ROWS or END_ROWS", err);
		free(data);
		TRY(status);
	}
	return STATUS_OK;
}

static Status
run(Session *s, void (*on_result) (void), Error *err)
{
	MessageType type;
	void	   *data;
	size_t		bytes;
	TrainResult result;
	Network    *net;
	Status		status;
	int32_t		i;

	TRY(send_hello(s, err));
	TRY(load_rows(s, err));
	TRY(receive(s, &type, &data, &bytes, err));
	status = type == MSG_TRAIN ? handle_train(s, data, bytes, &result, err) : unexpected(type, "TRAIN", err);
	free(data);
	TRY(status);
	net = trainer_network(s->trainer);
	for (i = 0; i < net->tensors.count; i++)
		TRY(send_tensor(s, net, i, err));
	result.peak_rss_bytes = peak_rss();
	if (on_result != NULL)
		on_result();
	return frame_send(s->socket_fd, MSG_RESULT, &result, sizeof(result), err);
}

Status
session_run(int socket_fd, int ring_fd, const OpenDevice *device, void (*on_result) (void), Error *err)
{
	Session		s = {.socket_fd = socket_fd,.ring_fd = ring_fd,.device = device};
	Status		status = run(&s, on_result, err);

	trainer_free(s.trainer);
	dataset_free(s.dataset);
	if (s.ring != NULL)
		munmap(s.ring, s.ring_bytes);
	return status;
}
