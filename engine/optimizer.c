/*
 * optimizer.c - optimizer state and steps.
 */
#include "engine/optimizer.h"

#include <string.h>

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
	opt->sgd.lr = opt->adam.lr = spec->learning_rate;
	opt->sgd.weight_decay = opt->adam.weight_decay = spec->weight_decay;
	opt->sgd.momentum = spec->momentum;
	opt->sgd.nesterov = spec->nesterov;
	opt->adam.beta1 = spec->beta1;
	opt->adam.beta2 = spec->beta2;
	opt->adam.eps = spec->eps;
	opt->adam.decoupled = spec->optimizer == OPTIMIZER_ADAMW;
	if (opt->kind != OPTIMIZER_SGD || spec->momentum > 0)
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
optimizer_step(Optimizer *opt, Error *err)
{
	Network    *net = opt->net;
	size_t		n = net->tensors.parameter_elements;

	opt->step++;
	if (opt->kind == OPTIMIZER_SGD)
	{
		opt->sgd.step = opt->step;
		return net->ops->sgd_step(net->be, n, net->parameters, net->gradients, opt->first, &opt->sgd,
								  net->shadow, net->dtype, err);
	}
	opt->adam.step = opt->step;
	return net->ops->adam_step(net->be, n, net->parameters, net->gradients, opt->first, opt->second, &opt->adam,
							   net->shadow, net->dtype, err);
}
