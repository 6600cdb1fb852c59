/*
 * network.h - a network on a device: parameters, gradients and activations in one arena each, forward and
 * backward pass.
 *
 * The network talks to its device through BackendOps only.  In bf16 and fp16 activations are of that type and
 * operations read a shadow of the parameters in it; logits, losses, norm statistics, gradients and the parameters proper stay
 * fp32, as under torch.autocast.
 */
#ifndef PGT_NETWORK_H
#define PGT_NETWORK_H

#include "engine/program.h"

typedef struct Network
{
	const BackendOps *ops;
	Backend    *be;
	LayerSpec  *layers;
	int32_t		nlayers;
	LayerShape *shapes;
	TensorList	tensors;
	Program		program;
	size_t		max_rows;
	DType		dtype;			/* of activations */
	float	   *parameters;		/* device, tensors.parameter_elements */
	float	   *gradients;		/* the same; NULL: made for scoring */
	void	   *shadow;			/* the same, in dtype; NULL in fp32 */
	float	   *statistics;		/* device, tensors.statistic_elements; NULL: no batch norm */
	char	   *activations;	/* device, program.arena_bytes */
	StepState  *step;			/* device; NULL: made for scoring */
} Network;

/* Batches have at most max_rows rows.  flags: ProgramFlags. */
extern Status network_create(const BackendOps *ops, Backend *be, const LayerSpec *layers, int32_t nlayers,
							 RowShape input, size_t max_rows, DType dtype, int flags,
							 Network **out, Error *err);
extern void network_free(Network *net);

/* PyTorch's default initial values, from the seed. */
extern Status network_init(Network *net, uint64_t seed, Error *err);
/* Set or read tensor i of the state_dict; data has PyTorch's layout. */
extern Status network_set_tensor(Network *net, int32_t i, const float *data, Error *err);
extern Status network_get_tensor(Network *net, int32_t i, float *data, Error *err);
extern Status network_get_gradient(Network *net, int32_t i, float *data, Error *err);

/* Device memory, max_rows rows: where the caller puts x (dtype, images channels last) and finds the logits. */
extern void *network_input(Network *net);	/* (rows, input_width) dtype */
extern float *network_logits(Network *net); /* (rows, outputs) fp32 */
extern void *network_dlogits(Network *net); /* (rows, outputs) dtype */

/* Evaluation: running statistics, no dropout. */
extern Status network_eval(Network *net, size_t rows, Error *err);
/*
 * Training; seed and micro_batch choose the dropout masks, micro_batch counted from that of the step's
 * dropout_stream.
 */
extern Status network_forward(Network *net, size_t rows, uint64_t seed, uint64_t micro_batch, Error *err);
/*
 * After network_forward of the same rows, with dlogits filled: gradients = beta gradients + those of this
 * batch.
 */
extern Status network_backward(Network *net, size_t rows, uint64_t seed, uint64_t micro_batch, float beta,
							   Error *err);
/* The stream that a step whose first micro-batch is micro_batch gives to step_begin. */
extern uint64_t network_dropout_stream(uint64_t micro_batch);
/* Device memory it holds, activations included. */
extern size_t network_bytes(const Network *net);

#endif							/* PGT_NETWORK_H */
