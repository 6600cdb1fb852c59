/*
 * backward.c - the backward pass of a network.
 */
#include "engine/network.h"
#include "engine/network_internal.h"
#include "engine/streams.h"

/* The gradient behind the activation that a linear or conv2d operation has done on its output. */
static Status
backward_epilogue(Network *net, const Op *op, size_t values, Error *err)
{
	if (op->act == ACT_NONE)
		return STATUS_OK;
	return net->ops->act_bwd(net->be, op->act, values, buffer_at(net, op->dy), buffer_at(net, op->out),
							 buffer_at(net, op->dact), net->dtype, err);
}

static Status
backward_op(Network *net, const Op *op, size_t rows, uint64_t seed, uint64_t micro_batch, float beta, Error *err)
{
	const BackendOps *ops = net->ops;
	Backend    *be = net->be;
	DType		dtype = net->dtype;
	const LayerSpec *layer = &net->layers[op->layer];
	const void *x = buffer_at(net, op->in),
			   *dy = buffer_at(net, op->dy),
			   *dact = buffer_at(net, op->dact);
	void	   *dx = buffer_at(net, op->dx);
	float	   *dbias = op->has_bias ? gradient_at(net, op->tensor + 1) : NULL;

	switch (op->kind)
	{
		case OP_LINEAR:
			TRY(backward_epilogue(net, op, rows * op->outputs, err));
			TRY(ops->linear_bwd_weight(be, rows, op->outputs, op->width, dact, x, gradient_at(net, op->tensor), dbias,
									   beta, dtype, err));
			if (dx == NULL)
				return STATUS_OK;
			return ops->linear_bwd_data(be, rows, op->outputs, op->width, dact, weight_at(net, op->tensor), dx,
										dtype, err);
		case OP_CONV2D:
			TRY(backward_epilogue(net, op, rows * op->conv.h_out * op->conv.w_out * op->conv.c_out, err));
			TRY(ops->conv2d_bwd_weight(be, &op->conv, rows, dact, x, gradient_at(net, op->tensor), dbias, beta,
									   dtype, err));
			if (dx == NULL)
				return STATUS_OK;
			return ops->conv2d_bwd_data(be, &op->conv, rows, dact, weight_at(net, op->tensor), dx, dtype, err);
		case OP_MAXPOOL2D:
			return ops->maxpool2d_bwd(be, &op->conv, rows, dy, buffer_at(net, op->argmax), dx, dtype, err);
		case OP_AVGPOOL2D:
			return ops->avgpool2d_bwd(be, &op->conv, rows, dy, dx, dtype, err);
		case OP_BATCHNORM:
			return ops->batchnorm_bwd(be, rows * op->positions, op->width, dy, x, parameter_at(net, op->tensor),
									  buffer_at(net, op->save_mean), buffer_at(net, op->save_invstd), dx,
									  gradient_at(net, op->tensor), gradient_at(net, op->tensor + 1), beta,
									  dtype, err);
		case OP_LAYERNORM:
			return ops->layernorm_bwd(be, rows, op->width, dy, x, parameter_at(net, op->tensor),
									  buffer_at(net, op->save_mean), buffer_at(net, op->save_invstd), dx,
									  gradient_at(net, op->tensor), gradient_at(net, op->tensor + 1), beta,
									  dtype, err);
		case OP_ACTIVATION:
			return ops->act_bwd(be, op->act, rows * op->width, dy, op->act == ACT_GELU ? x : buffer_at(net, op->out),
								dx, dtype, err);
		case OP_DROPOUT:
			return ops->dropout(be, rows * op->width, layer->p, seed, STREAM_DROPOUT(micro_batch, op->layer),
								net->step, dy, dx, dtype, err);
		case OP_RESIDUAL_BEGIN:
			return ops->add(be, rows * op->width, dy, buffer_at(net, op->dskip), dx, dtype, err);
		case OP_RESIDUAL_END:
			return STATUS_OK;
	}
	return error_set(err, STATUS_INTERNAL, "operation %d is unknown", (int) op->kind);
}

Status
network_backward(Network *net, size_t rows, uint64_t seed, uint64_t micro_batch, float beta, Error *err)
{
	int32_t		i;

	for (i = net->program.nops - 1; i >= 0 && net->program.ops[i].backward; i--)
		TRY(backward_op(net, &net->program.ops[i], rows, seed, micro_batch, beta, err));
	return STATUS_OK;
}
