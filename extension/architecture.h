/*
 * architecture.h - networks as users write them, jsonb, and as the engine takes them, LayerSpec[].
 */
#ifndef PGT_ARCHITECTURE_H
#define PGT_ARCHITECTURE_H

#include "postgres.h"

#include "utils/jsonb.h"

#include "engine/spec.h"

/*
 * Parse an architecture: an array of layers, each a name ("relu") or an object of one name and its parameters
 * ({"linear": 256}, {"conv2d": {"out": 32, "kernel": 3}}).  Errors name the position: architecture[3].conv2d.kernel.
 */
extern LayerSpec *ArchitectureParse(Jsonb *architecture, int32 *nlayers);

/* The other way, every parameter written out. */
extern Jsonb *ArchitectureToJsonb(const LayerSpec *layers, int32 nlayers);

/* What is trained where no architecture is given: layers without the output layer. */
extern LayerSpec *ArchitectureDefault(RowShape input, int32 *nlayers);

/* Append the output layer, {"linear": outputs}: returns layers, grown by one. */
extern LayerSpec *ArchitectureAppendOutput(LayerSpec *layers, int32 *nlayers, int32 outputs);

#endif							/* PGT_ARCHITECTURE_H */
