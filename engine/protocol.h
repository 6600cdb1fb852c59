/*
 * protocol.h - the wire protocol between a backend and its engine.
 *
 * A SOCK_STREAM socketpair carries frames: a FrameHeader, then length bytes.  Both ends run on the same
 * machine and come from the same build; EngineHello refuses anything else.  The engine is started as
 *
 *     pg_train_engine --device=NAME [--tf32]
 *     pg_train_engine --devices           sends one frame, MSG_DEVICES with a DeviceList, and ends
 *
 * with the socket as descriptor 3 and the ring's memfd as descriptor 4.  NAME is as device_open() takes it.
 *
 * The ring's memfd is created empty and sized by the backend before MSG_LOAD, when the record's size is
 * known; the engine maps it then.  A run, B = backend, E = engine:
 *
 *     E  MSG_HELLO      EngineHello
 *     B  MSG_LOAD       DatasetSpec, RecordLayout with its segments
 *     B  MSG_ROWS       RowsMessage                     any number; a slot at a time, training rows before validation
 *                                                       rows
 *     E  MSG_SLOT_FREE  uint32 slot                     the slot may be filled again
 *     B  MSG_END_ROWS   uint32 nclasses, int32 code[]   regression: nclasses = 0.  code[i] is the final class of
 *                                                       provisional code i (labels are sorted when all are known)
 *     E  MSG_LOADED     DatasetStats, double mean[], double stddev[]
 *     B  MSG_TRAIN      TrainSpec with its layers
 *     E  MSG_EPOCH      EpochReport                     one an epoch
 *     E  MSG_TENSOR     TensorHeader                    one a tensor, in state_dict order, each followed by
 *     E  MSG_DATA       float[]                         as many pieces of at most MAX_DATA_BYTES as it takes
 *     E  MSG_RESULT     TrainResult                     the last frame; the engine then exits with status 0
 *
 * At any time the engine may send MSG_ERROR with an Error and exit.  To cancel, the backend closes the
 * socket, or shuts its sending side down: the engine's watcher thread ends the process at once.  So the
 * backend keeps the socket open until it has MSG_RESULT.
 */
#ifndef PGT_PROTOCOL_H
#define PGT_PROTOCOL_H

#include <stddef.h>
#include <stdint.h>

#include "engine/spec.h"

#define PROTOCOL_VERSION 2
#define ENGINE_SOCKET_FD 3
#define ENGINE_RING_FD 4
#define MAX_FRAME_BYTES ((uint32_t) 16 << 20)
#define MAX_DATA_BYTES ((uint32_t) 1 << 20)
#define MAX_TENSOR_DIMS 4
#define MAX_LISTED_DEVICES 33	/* the CPU and 32 GPUs */

typedef enum MessageType
{
	MSG_HELLO = 1,
	MSG_LOAD,
	MSG_ROWS,
	MSG_SLOT_FREE,
	MSG_END_ROWS,
	MSG_LOADED,
	MSG_TRAIN,
	MSG_EPOCH,
	MSG_TENSOR,
	MSG_DATA,
	MSG_RESULT,
	MSG_ERROR,
	MSG_DEVICES
} MessageType;

typedef struct FrameHeader
{
	uint32_t	type;			/* MessageType */
	uint32_t	length;			/* bytes that follow */
} FrameHeader;

typedef struct EngineHello
{
	uint32_t	protocol_version;
	uint32_t	backend_abi_version;
	uint32_t	trainspec_bytes;	/* sizeof(TrainSpec) + sizeof(LayerSpec): a build check */
	int32_t		pid;
	DeviceInfo	device;
	Error		fallback;		/* why "auto" took the CPU, or STATUS_OK */
} EngineHello;

typedef struct ListedDevice
{
	char		name[16];		/* as train_model's device option takes it */
	DeviceInfo	info;
	uint64_t	memory_free_bytes;
} ListedDevice;

typedef struct DeviceList
{
	int32_t		count;
	int32_t		padding;
	Error		no_cuda;		/* why no GPU is listed, or not all of them; or STATUS_OK */
	ListedDevice devices[MAX_LISTED_DEVICES];
} DeviceList;

typedef enum SplitKind
{
	SPLIT_TRAIN = 0,
	SPLIT_VALIDATION
} SplitKind;

typedef struct RowsMessage
{
	uint32_t	slot;
	uint32_t	rows;
	uint32_t	split;			/* SplitKind */
	uint32_t	padding;
} RowsMessage;

typedef struct TensorHeader
{
	char		name[LAYER_NAME_SIZE + 32]; /* "0.weight", "2.running_mean" */
	int32_t		ndim;
	int32_t		dims[MAX_TENSOR_DIMS];	/* PyTorch's shape and layout, row-major */
	int64_t		values;
} TensorHeader;

/* Blocking send and receive, for the engine and its tests; the extension has its own, that wait on a latch. */
extern Status frame_send(int fd, MessageType type, const void *data, size_t bytes, Error *err);
/* *data is malloc'ed (NULL when empty) and the caller's.  End of file is STATUS_IO. */
extern Status frame_receive(int fd, MessageType *type, void **data, size_t *bytes, Error *err);

#endif							/* PGT_PROTOCOL_H */
