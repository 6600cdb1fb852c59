/*
 * graph.cpp - capturing streams into graphs, and running those.
 *
 * A captured operation is a node behind the last nodes of its stream.  A graph runs its nodes in an order that its edges
 * allow: the one of the capture, or with the reverse and random orders of the tests another one.
 */
#include "regress/cudasim/sim.h"

#include <algorithm>

namespace sim
{

void
capture_invalidate(Capture *capture)
{
	capture->invalid = true;
}

/* What may not be done while a capture of this thread, or a global one of any thread, goes on. */
cudaError_t
capture_forbids()
{
	cudaError_t error = cudaSuccess;

	for (Capture *capture : state().captures)
		if (capture->mode == cudaStreamCaptureModeGlobal
			|| (capture->mode == cudaStreamCaptureModeThreadLocal && capture->thread == std::this_thread::get_id()))
		{
			capture_invalidate(capture);
			error = cudaErrorStreamCaptureUnsupported;
		}
	return error;
}

size_t
capture_add(CUstream_st *stream, const char *name, Work work)
{
	CUgraph_st *graph = stream->capture->graph;

	graph->nodes.push_back({name, std::move(work), stream->tail});
	stream->tail.assign(1, graph->nodes.size() - 1);
	return graph->nodes.size() - 1;
}

/* Every stream leaves the capture. */
static void
end_capture(Capture *capture)
{
	std::vector<Capture *> &all = state().captures;

	for (CUstream_st *stream : capture->streams)
	{
		stream->capture = nullptr;
		stream->tail.clear();
	}
	all.erase(std::remove(all.begin(), all.end(), capture), all.end());
	delete capture;
}

/* Whether all that other streams did in the capture comes before the origin's end. */
static bool
all_joined(const Capture *capture)
{
	const CUgraph_st *graph = capture->graph;
	std::vector<bool> seen(graph->nodes.size());
	std::vector<size_t> todo(capture->origin->tail);

	while (!todo.empty())
	{
		size_t node = todo.back();

		todo.pop_back();
		if (seen[node])
			continue;
		seen[node] = true;
		todo.insert(todo.end(), graph->nodes[node].after.begin(), graph->nodes[node].after.end());
	}
	for (CUstream_st *stream : capture->streams)
		for (size_t node : stream->tail)
			if (!seen[node])
				return false;
	return true;
}

/* All nodes, in an order that the edges allow. */
static std::vector<size_t>
node_order(const CUgraph_st &graph)
{
	State &s = state();
	std::vector<size_t> waits(graph.nodes.size()),
				free,
				sorted;

	for (size_t i = 0; i < graph.nodes.size(); i++)
		if ((waits[i] = graph.nodes[i].after.size()) == 0)
			free.push_back(i);
	while (!free.empty())
	{
		size_t pick = s.order == CUDASIM_FORWARD ? std::min_element(free.begin(), free.end()) - free.begin()
			: s.order == CUDASIM_REVERSE ? std::max_element(free.begin(), free.end()) - free.begin()
			: s.random() % free.size();
		size_t node = free[pick];

		free.erase(free.begin() + pick);
		sorted.push_back(node);
		for (size_t i = node + 1; i < graph.nodes.size(); i++)
			for (size_t before : graph.nodes[i].after)
				if (before == node && --waits[i] == 0)
					free.push_back(i);
	}
	return sorted;
}

/* Runs the nodes; one that has to wait is taken up again where it was. */
static Work
graph_work(const CUgraph_st &graph, int device)
{
	struct Progress
	{
		CUgraph_st graph;
		std::vector<size_t> order;
		size_t at;
	};
	auto progress = std::make_shared<Progress>(Progress{graph, node_order(graph), 0});

	return [progress, device]
	{
		while (progress->at < progress->order.size() && state().device[device].sticky == cudaSuccess)
		{
			if (progress->graph.nodes[progress->order[progress->at]].work() == Step::pending)
				return Step::pending;
			progress->at++;
		}
		return Step::done;
	};
}

void
graph_reset()
{
	while (!state().captures.empty())
	{
		Capture *capture = state().captures.back();

		delete capture->graph;
		end_capture(capture);
	}
}

}								/* namespace sim */

using namespace sim;

extern "C"
{

cudaError_t
cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
	State &s = state();
	Capture *capture;

	CUDART_CALL();
	if (!stream_is_known(stream))
		return result(cudaErrorInvalidResourceHandle);
	if (stream == nullptr || stream == cudaStreamLegacy)
		return result(cudaErrorStreamCaptureUnsupported);
	if (stream->capture != nullptr)
		return result(cudaErrorIllegalState);
	capture = new Capture();
	capture->graph = new CUgraph_st();
	capture->graph->device = stream->device;
	capture->origin = stream;
	capture->mode = mode;
	capture->thread = std::this_thread::get_id();
	capture->streams.push_back(stream);
	stream->capture = capture;
	s.captures.push_back(capture);
	return cudaSuccess;
}

cudaError_t
cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out)
{
	Call call(__func__);
	Capture *capture;
	cudaError_t error;

	if (out == nullptr)
		return result(cudaErrorInvalidValue);
	*out = nullptr;
	if (stream == nullptr || !stream_is_known(stream) || stream->capture == nullptr)
		return result(cudaErrorIllegalState);
	capture = stream->capture;
	error = call.error != cudaSuccess ? call.error : capture->invalid ? cudaErrorStreamCaptureInvalidated
		: capture->origin != stream ? cudaErrorStreamCaptureUnmatched
		: !all_joined(capture) ? cudaErrorStreamCaptureUnjoined : cudaSuccess;
	if (error == cudaSuccess)
	{
		*out = capture->graph;
		state().live[CUDASIM_GRAPH]++;
	}
	else
		delete capture->graph;
	end_capture(capture);
	return result(error);
}

cudaError_t
cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
	CUDART_CALL();
	if (!stream_is_known(stream) || status == nullptr)
		return result(cudaErrorInvalidValue);
	*status = stream == nullptr || stream->capture == nullptr ? cudaStreamCaptureStatusNone
		: stream->capture->invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
	return cudaSuccess;
}

cudaError_t
cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
	CUDART_CALL();
	(void) flags;
	if (out == nullptr || graph == nullptr)
		return result(cudaErrorInvalidValue);
	*out = new CUgraphExec_st{*graph};
	state().live[CUDASIM_GRAPH_EXEC]++;
	return cudaSuccess;
}

cudaError_t
cudaGraphInstantiateWithFlags(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
	return cudaGraphInstantiate(out, graph, flags);
}

cudaError_t
cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream)
{
	CUDART_CALL();
	return result(exec != nullptr && stream_is_known(stream) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t
cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
	CUDART_CALL();
	if (exec == nullptr)
		return result(cudaErrorInvalidValue);
	if (!stream_is_known(stream))
		return result(cudaErrorInvalidResourceHandle);
	CUstream_st *s = stream_of(stream);
	return result(enqueue(s, "a graph", graph_work(exec->graph, s->device)));
}

cudaError_t
cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
	CUDART_CALL();
	if (graph == nullptr || count == nullptr || nodes != nullptr)
		return result(cudaErrorInvalidValue);
	*count = graph->nodes.size();
	return cudaSuccess;
}

cudaError_t
cudaGraphDestroy(cudaGraph_t graph)
{
	Call call(__func__);

	if (graph == nullptr)
		return result(cudaErrorInvalidValue);
	delete graph;
	state().live[CUDASIM_GRAPH]--;
	return call.release();
}

cudaError_t
cudaGraphExecDestroy(cudaGraphExec_t exec)
{
	Call call(__func__);

	if (exec == nullptr)
		return result(cudaErrorInvalidValue);
	delete exec;
	state().live[CUDASIM_GRAPH_EXEC]--;
	return call.release();
}

}								/* extern "C" */
