/*
 * engine_process.h - one training engine beside this backend: its process, control socket and ring.
 *
 * An engine belongs to the resource owner that was current when it was started, so that it ends with the
 * statement, the transaction or the subtransaction, however that ends; and to the backend's exit.
 */
#ifndef PGT_ENGINE_PROCESS_H
#define PGT_ENGINE_PROCESS_H

#include "postgres.h"

#include "engine/protocol.h"
#include "extension/compat.h"

typedef struct EngineProcess EngineProcess;

/* A frame that came; data is valid until the next one is received. */
typedef struct EngineFrame
{
	MessageType type;
	uint32		length;
	const char *data;
} EngineFrame;

/* Register for the end of resource owners: from _PG_init. */
extern void EngineProcessInit(void);

/* Start an engine.  It opens its device, "auto", "cpu", "cuda" or "cuda:N", while the caller goes on. */
extern EngineProcess *EngineStart(const char *device);
/* Start one that sends MSG_DEVICES and ends. */
extern EngineProcess *EngineStartListing(void);

/* What the engine says of itself; waits until it has. */
extern const EngineHello *EngineGetHello(EngineProcess *engine);

/* Size and map the ring of slots of slot_bytes each, before MSG_LOAD. */
extern void *EngineCreateRing(EngineProcess *engine, uint32 slots, Size slot_bytes);

/* Send a frame whose data is in up to two pieces. */
extern void EngineSend(EngineProcess *engine, MessageType type, const void *data, Size bytes,
					   const void *more, Size more_bytes);

/*
 * Receive the next frame.  With wait unset, false means that none is there yet.  MSG_ERROR and the end of the
 * engine are raised.
 */
extern bool EngineReceive(EngineProcess *engine, bool wait, EngineFrame *frame);

/* The same for a frame of a known type and length. */
extern const void *EngineExpect(EngineProcess *engine, MessageType type, Size length);

/* A frame came that does not belong here. */
extern void EngineUnexpected(const EngineFrame *frame) pg_attribute_noreturn();

/* End the engine, whatever it does. */
extern void EngineRelease(EngineProcess *engine);

#endif							/* PGT_ENGINE_PROCESS_H */
