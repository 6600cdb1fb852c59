/*
 * ops.c - the table of one instruction set.  Compiled once per instruction set.
 */
#include "kernels/cpu/ops.h"

#define CPU_STRING_(x) #x
#define CPU_STRING(x) CPU_STRING_(x)

static Status
open_device(const OpenOptions *options, Backend **out, Error *err)
{
	*out = NULL;
	if (options->ordinal != 0)
		return error_set(err, STATUS_INVALID, "there is no cpu device %d, only device 0", (int) options->ordinal);
	return cpu_open(CPU_STRING(PGT_ISA), options->threads, out, err);
}

static Status
copy_in(Backend *be, void *dst, const void *host, size_t bytes, Error *err)
{
	return cpu_copy(be, dst, host, bytes, err);
}

static Status
copy_out(Backend *be, void *host, const void *src, size_t bytes, Error *err)
{
	return cpu_copy(be, host, src, bytes, err);
}

const BackendOps ISA_NAME(cpu_ops) = {
	.abi_version = BACKEND_ABI_VERSION,
	.name = "cpu",
	.count = cpu_count,
	.open = open_device,
	.close = cpu_close,
	.info = cpu_info,
	.memory_free = cpu_memory_free,
	.alloc = cpu_alloc,
	.free = cpu_free,
	.copy_in = copy_in,
	.copy_out = copy_out,
	.copy = cpu_copy,
	.zero = cpu_zero,
	.sync = cpu_sync,
	.gather = op_gather,
	.gather_field = op_gather_field,
	.linear_fwd = op_linear_fwd,
	.linear_bwd_data = op_linear_bwd_data,
	.linear_bwd_weight = op_linear_bwd_weight,
	.conv2d_fwd = op_conv2d_fwd,
	.conv2d_bwd_data = op_conv2d_bwd_data,
	.conv2d_bwd_weight = op_conv2d_bwd_weight,
	.maxpool2d_fwd = op_maxpool2d_fwd,
	.maxpool2d_bwd = op_maxpool2d_bwd,
	.avgpool2d_fwd = op_avgpool2d_fwd,
	.avgpool2d_bwd = op_avgpool2d_bwd,
	.batchnorm_fwd_train = op_batchnorm_fwd_train,
	.batchnorm_fwd_eval = op_batchnorm_fwd_eval,
	.batchnorm_bwd = op_batchnorm_bwd,
	.layernorm_fwd = op_layernorm_fwd,
	.layernorm_bwd = op_layernorm_bwd,
	.act_fwd = op_act_fwd,
	.act_bwd = op_act_bwd,
	.dropout = op_dropout,
	.add = op_add,
	.loss = op_loss,
	.step_begin = op_step_begin,
	.gradient_check = op_gradient_check,
	.sgd_step = op_sgd_step,
	.adam_step = op_adam_step,
	.cast = op_cast,
	.sum_squares = op_sum_squares,
};
