/*
 * stored_network.h - a stored version as a network that computes.
 */
#ifndef PGT_STORED_NETWORK_H
#define PGT_STORED_NETWORK_H

#include "postgres.h"

#include "engine/model.h"
#include "extension/catalog.h"

/* The layers of a version, output layer included, in the current context. */
extern LayerSpec *NetworkLayers(const ModelVersion *version, int32 *nlayers);

/* As many rows a call, up to rows, as keep input, activations and outputs in some 32 MB; at least one. */
extern int	NetworkBatchRows(const ModelVersion *version, int rows);

/* Build a version's network for at most max_rows rows a call and read its tensors.  It is freed with context. */
extern Model *NetworkLoad(const ModelReference *resolved, const ModelVersion *version, size_t max_rows,
						  MemoryContext context);

#endif							/* PGT_STORED_NETWORK_H */
