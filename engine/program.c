/*
 * program.c - layers to operations: fusion, buffers, and who shares memory with whom.
 */
#include "engine/program.h"

#include <stdlib.h>
#include <string.h>

#define BUFFER_ALIGNMENT 64

/* What the backward pass will read of a buffer's contents, which decides who may overwrite it. */
typedef enum SavedUse
{
	SAVED_NOTHING = 0,
	SAVED_SIGN,					/* relu: whether it is positive; dropout in place keeps that right, since what it
								 * zeroes gets no gradient anyway */
	SAVED_VALUE
} SavedUse;

typedef struct Planner
{
	Program    *program;
	const LayerSpec *layers;
	const LayerShape *shapes;
	const TensorList *tensors;
	size_t		max_rows;
	DType		dtype;
	bool		training;
	bool		fuse;
	bool		overflow;		/* a size did not fit */
} Planner;

static size_t
dtype_bytes(DType dtype)
{
	return dtype == DTYPE_F32 ? 4 : dtype == DTYPE_U8 ? 1 : 2;
}

static Op *
emit(Planner *p, OpKind kind, int32_t layer)
{
	Op		   *op = &p->program->ops[p->program->nops++];

	memset(op, 0, sizeof(*op));
	op->kind = kind;
	op->layer = layer;
	op->in = op->out = op->skip = op->argmax = op->save_mean = op->save_invstd = NO_BUFFER;
	op->dy = op->dact = op->dx = op->dskip = NO_BUFFER;
	op->tensor = p->tensors->first[layer];
	op->width = shape_elements(p->shapes[layer].in);
	return op;
}

static void
emit_activation(Planner *p, int32_t layer, Activation act)
{
	Program    *program = p->program;
	Op		   *last = program->nops > 0 ? &program->ops[program->nops - 1] : NULL;

	if (p->fuse && last != NULL)
	{
		/* the backward pass of gelu needs its input, which a fused one never stores */
		if (last->kind == OP_LINEAR && last->act == ACT_NONE && !(act == ACT_GELU && p->training))
		{
			last->act = act;
			return;
		}
		if (last->kind == OP_CONV2D && last->act == ACT_NONE && act == ACT_RELU)
		{
			last->act = act;
			return;
		}
		/* relu and maximum commute */
		if (last->kind == OP_MAXPOOL2D && act == ACT_RELU)
		{
			last->relu = 1;
			return;
		}
	}
	emit(p, OP_ACTIVATION, layer)->act = act;
}

static void
emit_maxpool(Planner *p, int32_t layer)
{
	Program    *program = p->program;
	Op		   *last = program->nops > 0 ? &program->ops[program->nops - 1] : NULL;
	int32_t		relu = 0;
	Op		   *op;

	if (p->fuse && last != NULL && last->act == ACT_RELU)
	{
		if (last->kind == OP_CONV2D)
		{
			last->act = ACT_NONE;
			relu = 1;
		}
		else if (last->kind == OP_ACTIVATION)
		{
			program->nops--;
			relu = 1;
		}
	}
	op = emit(p, OP_MAXPOOL2D, layer);
	op->relu = relu;
	op->conv = layer_conv_shape(&p->layers[layer], &p->shapes[layer]);
}

static void
emit_sequence(Planner *p, int32_t first, int32_t end)
{
	int32_t		i;

	for (i = first; i < end; i = layer_after(p->layers, i))
	{
		const LayerSpec *layer = &p->layers[i];
		const LayerShape *shape = &p->shapes[i];
		Op		   *op;

		switch ((LayerKind) layer->kind)
		{
			case LAYER_LINEAR:
				op = emit(p, OP_LINEAR, i);
				op->outputs = layer->out;
				op->has_bias = layer->bias != 0;
				break;
			case LAYER_CONV2D:
				op = emit(p, OP_CONV2D, i);
				op->conv = layer_conv_shape(layer, shape);
				op->has_bias = layer->bias != 0;
				break;
			case LAYER_MAXPOOL2D:
				emit_maxpool(p, i);
				break;
			case LAYER_AVGPOOL2D:
			case LAYER_GLOBAL_AVGPOOL:
				emit(p, OP_AVGPOOL2D, i)->conv = layer_conv_shape(layer, shape);
				break;
			case LAYER_FLATTEN:
				break;
			case LAYER_BATCHNORM:
				op = emit(p, OP_BATCHNORM, i);
				op->width = shape->in.channels;
				op->positions = shape_elements(shape->in) / op->width;
				if (op->positions == 1 && p->training)
					p->program->min_rows = 2;
				break;
			case LAYER_LAYERNORM:
				emit(p, OP_LAYERNORM, i);
				break;
			case LAYER_DROPOUT:
				if (p->training && layer->p > 0)
					emit(p, OP_DROPOUT, i);
				break;
			case LAYER_RELU:
				emit_activation(p, i, ACT_RELU);
				break;
			case LAYER_GELU:
				emit_activation(p, i, ACT_GELU);
				break;
			case LAYER_TANH:
				emit_activation(p, i, ACT_TANH);
				break;
			case LAYER_SIGMOID:
				emit_activation(p, i, ACT_SIGMOID);
				break;
			case LAYER_RESIDUAL:
				emit(p, OP_RESIDUAL_BEGIN, i);
				emit_sequence(p, i + 1, layer_after(p->layers, i));
				emit(p, OP_RESIDUAL_END, i);
				break;
		}
	}
}

static void
touch(Planner *p, int32_t buffer, int32_t moment)
{
	Buffer	   *b = &p->program->buffers[buffer];

	if (moment < b->first)
		b->first = moment;
	if (moment > b->last)
		b->last = moment;
}

/* A buffer of fixed plus per_row * max_rows elements, in use at a moment. */
static int32_t
add_buffer(Planner *p, size_t per_row, size_t fixed, DType dtype, int32_t moment)
{
	Buffer	   *b = &p->program->buffers[p->program->nbuffers];
	size_t		elements,
				bytes;

	memset(b, 0, sizeof(*b));
	if (__builtin_mul_overflow(per_row, p->max_rows, &elements) ||
		__builtin_add_overflow(elements, fixed, &elements) ||
		__builtin_mul_overflow(elements, dtype_bytes(dtype), &bytes) ||
		bytes > SIZE_MAX / 4)
	{
		p->overflow = true;
		bytes = 0;
	}
	b->bytes = (bytes + BUFFER_ALIGNMENT - 1) / BUFFER_ALIGNMENT * BUFFER_ALIGNMENT;
	b->first = b->last = moment;
	return p->program->nbuffers++;
}

/* May an operation write its output over this input, when it bears that the backward pass reads this much of it? */
static bool
may_overwrite(Planner *p, int32_t buffer, SavedUse bearable)
{
	Buffer	   *b = &p->program->buffers[buffer];

	return b->held == 0 && b->saved <= (int32_t) bearable;
}

static void
save(Planner *p, int32_t buffer, SavedUse use)
{
	Buffer	   *b = &p->program->buffers[buffer];

	if (p->training && b->saved < (int32_t) use)
		b->saved = use;
}

/* The value that flows from operation to operation. */
typedef struct Value
{
	int32_t		buffer;
	bool		needs_grad;		/* something that has parameters made it */
} Value;

static void
plan_forward(Planner *p)
{
	Program    *program = p->program;
	Value		skips[MAX_RESIDUAL_DEPTH + 1];
	int32_t		depth = 0;
	Value		value;
	int32_t		i;

	value.buffer = program->input = add_buffer(p, program->input_width, 0, p->dtype, 0);
	value.needs_grad = false;
	program->buffers[value.buffer].held++;	/* the caller's */
	for (i = 0; i < program->nops; i++)
	{
		Op		   *op = &program->ops[i];
		int32_t		moment = i + 1;
		bool		below = value.needs_grad;	/* dx is needed */
		size_t		out_width = 0;	/* of a new output buffer; 0: in place */
		SavedUse	saved_out = SAVED_NOTHING;

		op->in = value.buffer;
		touch(p, op->in, moment);
		switch (op->kind)
		{
			case OP_LINEAR:
			case OP_CONV2D:
				save(p, op->in, SAVED_VALUE);
				value.needs_grad = true;
				out_width = op->kind == OP_LINEAR ? op->outputs :
					(size_t) op->conv.h_out * op->conv.w_out * op->conv.c_out;
				saved_out = op->act == ACT_NONE ? SAVED_NOTHING : op->act == ACT_RELU ? SAVED_SIGN : SAVED_VALUE;
				break;
			case OP_MAXPOOL2D:
			case OP_AVGPOOL2D:
				out_width = (size_t) op->conv.h_out * op->conv.w_out * op->conv.c_out;
				if (op->kind == OP_MAXPOOL2D && p->training)
					op->argmax = add_buffer(p, out_width, 0, DTYPE_U8, moment);
				break;
			case OP_BATCHNORM:
			case OP_LAYERNORM:
				save(p, op->in, SAVED_VALUE);
				value.needs_grad = true;
				out_width = shape_elements(p->shapes[op->layer].out);
				if (p->training || op->kind == OP_LAYERNORM)
				{
					bool		batch = op->kind == OP_BATCHNORM;

					op->save_mean = add_buffer(p, !batch, batch ? op->width : 0, DTYPE_F32, moment);
					op->save_invstd = add_buffer(p, !batch, batch ? op->width : 0, DTYPE_F32, moment);
				}
				break;
			case OP_ACTIVATION:
				if (op->act == ACT_GELU)
					save(p, op->in, SAVED_VALUE);
				else
					saved_out = op->act == ACT_RELU ? SAVED_SIGN : SAVED_VALUE;
				if (!may_overwrite(p, op->in, op->act == ACT_RELU ? SAVED_SIGN : SAVED_NOTHING))
					out_width = op->width;
				break;
			case OP_DROPOUT:
				if (!may_overwrite(p, op->in, SAVED_SIGN))
					out_width = op->width;
				break;
			case OP_RESIDUAL_BEGIN:
				skips[depth++] = value;
				program->buffers[value.buffer].held++;
				break;
			case OP_RESIDUAL_END:
				op->skip = skips[--depth].buffer;
				touch(p, op->skip, moment);
				value.needs_grad |= skips[depth].needs_grad;
				if (!may_overwrite(p, op->in, SAVED_NOTHING))
					out_width = op->width;
				program->buffers[op->skip].held--;
				break;
		}
		op->out = op->in;
		if (out_width > 0)
		{
			op->fp32_out = op->kind == OP_LINEAR && i == program->nops - 1;
			op->out = add_buffer(p, out_width, 0, op->fp32_out ? DTYPE_F32 : p->dtype, moment);
		}
		save(p, op->out, saved_out);
		value.buffer = op->out;
		/* while planning, dx tells plan_backward that it is wanted */
		op->backward = value.needs_grad;
		op->dx = below ? 0 : NO_BUFFER;
	}
	program->logits = value.buffer;
	touch(p, program->logits, program->nops + 1);
}

/* A buffer of the size of x for its gradient. */
static int32_t
gradient_of(Planner *p, size_t width, int32_t moment)
{
	return add_buffer(p, width, 0, p->dtype, moment);
}

static void
plan_backward(Planner *p)
{
	Program    *program = p->program;
	int32_t		skips[MAX_RESIDUAL_DEPTH + 1];
	int32_t		depth = 0;
	int32_t		moment = program->nops + 1;
	int32_t		gradient = add_buffer(p, program->outputs, 0, p->dtype, moment);
	int32_t		i;

	program->dlogits = gradient;
	for (i = program->nops - 1; i >= 0 && program->ops[i].backward; i--)
	{
		Op		   *op = &program->ops[i];
		bool		want_dx = op->dx != NO_BUFFER;

		/* two moments: with the weight's gradient done, dx may take the memory of x */
		moment += 2;
		op->dx = NO_BUFFER;
		op->dy = gradient;
		touch(p, gradient, moment);
		switch (op->kind)
		{
			case OP_LINEAR:
			case OP_CONV2D:
				op->dact = gradient;
				if (op->act != ACT_NONE)
				{
					touch(p, op->out, moment);
					if (!may_overwrite(p, gradient, SAVED_NOTHING))
						op->dact = gradient_of(p, op->kind == OP_LINEAR ? op->outputs :
											   (size_t) op->conv.h_out * op->conv.w_out * op->conv.c_out, moment);
				}
				touch(p, op->in, moment);
				touch(p, op->dact, moment + 1);
				if (want_dx)
					op->dx = gradient_of(p, op->width, moment + 1);
				break;
			case OP_MAXPOOL2D:
				touch(p, op->argmax, moment);
				op->dx = gradient_of(p, op->width, moment);
				break;
			case OP_AVGPOOL2D:
				op->dx = gradient_of(p, op->width, moment);
				break;
			case OP_BATCHNORM:
			case OP_LAYERNORM:
				touch(p, op->in, moment);
				touch(p, op->save_mean, moment);
				touch(p, op->save_invstd, moment);
				if (want_dx)
					op->dx = gradient_of(p, shape_elements(p->shapes[op->layer].in), moment);
				break;
			case OP_ACTIVATION:
				touch(p, op->act == ACT_GELU ? op->in : op->out, moment);
				op->dx = may_overwrite(p, gradient, SAVED_NOTHING) ? gradient : gradient_of(p, op->width, moment);
				break;
			case OP_DROPOUT:
				op->dx = may_overwrite(p, gradient, SAVED_NOTHING) ? gradient : gradient_of(p, op->width, moment);
				break;
			case OP_RESIDUAL_END:
				/* goes through the block as it is, and around it */
				op->dx = gradient;
				skips[depth++] = gradient;
				program->buffers[gradient].held++;
				break;
			case OP_RESIDUAL_BEGIN:
				op->dskip = skips[--depth];
				touch(p, op->dskip, moment);
				program->buffers[op->dskip].held--;
				if (may_overwrite(p, gradient, SAVED_NOTHING))
					op->dx = gradient;
				else if (may_overwrite(p, op->dskip, SAVED_NOTHING))
					op->dx = op->dskip;
				else
					op->dx = gradient_of(p, op->width, moment);
				break;
		}
		gradient = op->dx;
	}
}

static int
compare_buffers(const void *a, const void *b)
{
	const Buffer *x = *(Buffer *const *) a,
			   *y = *(Buffer *const *) b;

	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? 1 : -1;
	return x < y ? -1 : x > y;
}

static int
compare_offsets(const void *a, const void *b)
{
	const Buffer *x = *(Buffer *const *) a,
			   *y = *(Buffer *const *) b;

	return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/*
 * Give every buffer its offset: the largest first, each at the lowest place where it meets no buffer that is
 * in use at the same time.
 */
static Status
place_buffers(Program *program, Error *err)
{
	int32_t		n = program->nbuffers,
				i,
				j;
	Buffer	  **order = calloc(2 * (size_t) n, sizeof(Buffer *)),
			  **near = order + n;

	if (order == NULL)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	for (i = 0; i < n; i++)
		order[i] = &program->buffers[i];
	qsort(order, n, sizeof(Buffer *), compare_buffers);
	program->arena_bytes = 0;
	for (i = 0; i < n; i++)
	{
		Buffer	   *b = order[i];
		int32_t		nnear = 0;
		size_t		offset = 0;

		for (j = 0; j < i; j++)
			if (order[j]->first <= b->last && b->first <= order[j]->last)
				near[nnear++] = order[j];
		qsort(near, nnear, sizeof(Buffer *), compare_offsets);
		for (j = 0; j < nnear; j++)
		{
			if (near[j]->offset >= offset && near[j]->offset - offset >= b->bytes)
				break;
			if (near[j]->offset + near[j]->bytes > offset)
				offset = near[j]->offset + near[j]->bytes;
		}
		b->offset = offset;
		if (__builtin_add_overflow(offset, b->bytes, &offset) || offset > SIZE_MAX / 4)
		{
			free(order);
			return error_set(err, STATUS_NO_MEMORY, "the activations of one batch do not fit in memory");
		}
		if (offset > program->arena_bytes)
			program->arena_bytes = offset;
	}
	free(order);
	return STATUS_OK;
}

Status
program_create(const LayerSpec *layers, int32_t nlayers, RowShape input, const LayerShape *shapes,
			   const TensorList *tensors, size_t max_rows, DType dtype, int flags,
			   Program *program, Error *err)
{
	Planner		p = {
		.program = program,
		.layers = layers,
		.shapes = shapes,
		.tensors = tensors,
		.max_rows = max_rows,
		.dtype = dtype,
		.training = (flags & PROGRAM_TRAINING) != 0,
		.fuse = (flags & PROGRAM_NO_FUSION) == 0
	};
	Status		status;

	memset(program, 0, sizeof(*program));
	TRY(layers_check_end(layers, nlayers, err));
	/* a layer is at most two operations, an operation makes at most six buffers */
	program->ops = calloc(2 * (size_t) nlayers, sizeof(Op));
	program->buffers = calloc(12 * (size_t) nlayers + 2, sizeof(Buffer));
	if (program->ops == NULL || program->buffers == NULL)
	{
		program_free(program);
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	}
	program->input_width = shape_elements(input);
	program->min_rows = 1;
	program->dlogits = NO_BUFFER;
	emit_sequence(&p, 0, nlayers);
	program->outputs = program->ops[program->nops - 1].outputs;
	plan_forward(&p);
	if (p.training)
		plan_backward(&p);
	if (p.overflow)
	{
		status = error_set(err, STATUS_NO_MEMORY, "the activations of one batch do not fit in memory");
		error_hint(err, "Use a smaller batch_size.");
	}
	else
		status = place_buffers(program, err);
	if (status != STATUS_OK)
		program_free(program);
	return status;
}

void
program_free(Program *program)
{
	free(program->ops);
	free(program->buffers);
	memset(program, 0, sizeof(*program));
}
