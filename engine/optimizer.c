/*
 * optimizer.c - optimizer state and steps.
 */
#include "engine/optimizer.h"

#include <string.h>

/* Dynamic loss scaling, as torch.amp.GradScaler begins. */
#define SCALE_START 65536.0f
#define SCALE_GROWTH 2.0f
#define SCALE_BACKOFF 0.5f
#define SCALE_GROWTH_INTERVAL 2000

static size_t
state_bytes(const Optimizer *opt)
{
	return opt->net->tensors.parameter_elements * sizeof(float);
}

Status
optimizer_create(Network *net, const TrainSpec *spec, Optimizer *opt, Error *err)
{
	Status		status = STATUS_OK;
	void	   *state;

	memset(opt, 0, sizeof(*opt));
	opt->net = net;
	opt->kind = spec->optimizer;
	opt->learning_rate = spec->learning_rate;
	opt->sgd.weight_decay = opt->adam.weight_decay = spec->weight_decay;
	opt->sgd.momentum = spec->momentum;
	opt->sgd.nesterov = spec->nesterov;
	opt->adam.beta1 = spec->beta1;
	opt->adam.beta2 = spec->beta2;
	opt->adam.eps = spec->eps;
	opt->adam.decoupled = spec->optimizer == OPTIMIZER_ADAMW;
	opt->check_args = (GradientCheckArgs)
	{
		.max_grad_norm = spec->max_grad_norm,
		.dynamic_scale = net->dtype == DTYPE_F16,
		.growth_factor = SCALE_GROWTH,
		.backoff_factor = SCALE_BACKOFF,
		.growth_interval = SCALE_GROWTH_INTERVAL
	};
	opt->check = opt->check_args.dynamic_scale || spec->max_grad_norm > 0;
	if (opt->check_args.dynamic_scale)
	{
		StepState	start = {.loss_scale = SCALE_START,.grad_multiplier = 1 / SCALE_START};

		status = net->ops->copy_in(net->be, net->step, &start, sizeof(start), err);
	}
	if (status == STATUS_OK && (opt->kind != OPTIMIZER_SGD || spec->momentum > 0))
	{
		status = net->ops->alloc(net->be, state_bytes(opt), &state, err);
		if (status == STATUS_OK)
			opt->first = state;
	}
	if (status == STATUS_OK && opt->kind != OPTIMIZER_SGD)
	{
		status = net->ops->alloc(net->be, state_bytes(opt), &state, err);
		if (status == STATUS_OK)
			opt->second = state;
	}
	if (status != STATUS_OK)
		optimizer_free(opt);
	return status;
}

void
optimizer_free(Optimizer *opt)
{
	if (opt->first != NULL)
		opt->net->ops->free(opt->net->be, opt->first, state_bytes(opt));
	if (opt->second != NULL)
		opt->net->ops->free(opt->net->be, opt->second, state_bytes(opt));
	memset(opt, 0, sizeof(*opt));
}

Status
optimizer_begin(Optimizer *opt, uint64_t micro_batch, Error *err)
{
	return opt->net->ops->step_begin(opt->net->be, opt->net->step, opt->learning_rate,
									 network_dropout_stream(micro_batch), err);
}

Status
optimizer_step(Optimizer *opt, Error *err)
{
	Network    *net = opt->net;
	size_t		n = net->tensors.parameter_elements;

	if (opt->check)
		TRY(net->ops->gradient_check(net->be, n, net->gradients, net->step, &opt->check_args, err));
	if (opt->kind == OPTIMIZER_SGD)
		return net->ops->sgd_step(net->be, n, net->parameters, net->gradients, opt->first, &opt->sgd, net->step,
								  net->shadow, net->dtype, err);
	return net->ops->adam_step(net->be, n, net->parameters, net->gradients, opt->first, opt->second, &opt->adam,
							   net->step, net->shadow, net->dtype, err);
}
