/*
 * ring.h - the shared ring of batch slots between a backend and its engine.
 *
 * A memfd segment: one header page, then slots, each page-aligned.  The loader fills a slot with whole
 * records and says so on the control socket (MSG_ROWS); the engine gives the slot back with MSG_SLOT_FREE.
 * The socket orders the accesses, so the segment itself needs no locks.
 */
#ifndef PGT_RING_H
#define PGT_RING_H

#include <stddef.h>
#include <stdint.h>

#define RING_MAGIC 0x50475452	/* "PGTR" */
#define RING_PAGE_BYTES 4096
#define RING_SLOTS 8
#define RING_SLOT_BYTES ((size_t) 1 << 20)	/* at least; more where a record is large */
#define RING_MIN_RECORDS 4		/* records that a slot holds at least */

typedef struct RingHeader
{
	uint32_t	magic;
	uint32_t	slots;
	uint64_t	slot_bytes;		/* a multiple of RING_PAGE_BYTES */
} RingHeader;

static inline size_t
ring_slot_bytes(size_t record_bytes)
{
	size_t		bytes = record_bytes * RING_MIN_RECORDS;

	if (bytes < RING_SLOT_BYTES)
		bytes = RING_SLOT_BYTES;
	return (bytes + RING_PAGE_BYTES - 1) / RING_PAGE_BYTES * RING_PAGE_BYTES;
}

static inline size_t
ring_bytes(uint32_t slots, size_t slot_bytes)
{
	return RING_PAGE_BYTES + slots * slot_bytes;
}

static inline void *
ring_slot(void *ring, size_t slot_bytes, uint32_t slot)
{
	return (char *) ring + RING_PAGE_BYTES + slot * slot_bytes;
}

#endif							/* PGT_RING_H */
