/*
 * dnn.h - what the two halves of cuDNN's stand-in share: descriptors (dnn_descriptor.cpp) and what they compute
 * (dnn_run.cpp).
 */
#ifndef PGT_SIM_DNN_H
#define PGT_SIM_DNN_H

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <cudnn.h>

#include "regress/cudasim/numbers.h"
#include "regress/cudasim/sim.h"

namespace sim
{

struct Descriptor;

struct Value
{
	cudnnBackendAttributeType_t type;
	int64_t		count;
	std::vector<char> bytes;
	/* where type is that of a descriptor: as it was when it was set */
	std::vector<std::shared_ptr<Descriptor>> parts;
};

struct Descriptor
{
	cudnnBackendDescriptorType_t type;
	bool		finalized = false;
	std::map<int, Value> values;
	int			engine = 0;		/* of a configuration and of an engine, see ENGINE_* */
	std::shared_ptr<Descriptor> graph;	/* the same */

	bool		has(int attribute) const { return values.count(attribute) > 0; }
	const Descriptor *part(int attribute, size_t i = 0) const { return values.at(attribute).parts[i].get(); }
	int64_t		integer(int attribute, size_t i = 0) const;
	double		real(int attribute, double otherwise) const;
	std::vector<int64_t> integers(int attribute) const;
};

/* The engines: one rounds fp32 to TF32 and wants a workspace, the other does neither. */
enum Engine
{
	ENGINE_TENSOR_CORES,
	ENGINE_PLAIN,
	ENGINES
};

static const int DIMENSIONS = 4;

/* A tensor of four dimensions: batch, channels, height, width. */
struct Tensor
{
	int64_t		uid;
	Number		type;
	int64_t		alignment;
	bool		is_virtual;
	int64_t		size[DIMENSIONS],
				step[DIMENSIONS];

	int64_t		count() const { return size[0] * size[1] * size[2] * size[3]; }
	size_t		at(int64_t n, int64_t c, int64_t h, int64_t w) const
	{
		return (size_t) (n * step[0] + c * step[1] + h * step[2] + w * step[3]);
	}
};

extern bool tensor_of(const Descriptor &d, Tensor *out);

/* dnn_run.cpp: CUDNN_STATUS_SUCCESS when the stand-in can compute the graph, or why not. */
extern cudnnStatus_t graph_supported(const Descriptor &graph, std::string *why);
extern size_t graph_workspace(const Descriptor &graph, int engine);
/* The tensors that a variant pack must give. */
extern std::vector<Tensor> graph_tensors(const Descriptor &graph);
extern void graph_run(const Descriptor &graph, int engine, const std::map<int64_t, void *> &pointers);

}								/* namespace sim */

#endif							/* PGT_SIM_DNN_H */
