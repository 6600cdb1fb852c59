/*
 * onednn.c - bf16 matrix products and convolutions by oneDNN 2 or 3, through its C interface.
 *
 * oneDNN makes a primitive for a shape once; here it is kept, with the memory that it needs, as a plan.  Activations
 * stay as they are, NHWC.  Weights are reordered into the layout that the primitive prefers before each use, since
 * every step changes them, which costs little beside the product; gradients of weights the other way.
 */
#include "kernels/cpu/onednn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dnnl.h>

#define BUCKETS 128

/* Plans that are kept; a network has at most some hundreds. */
#define MAX_PLANS 2048

/* bf16 values that an AMX tile takes of a sum at a time */
#define AMX_STEP 32

typedef enum PlanKind
{
	PLAN_FORWARD,
	PLAN_BACKWARD_DATA,
	PLAN_BACKWARD_WEIGHT
} PlanKind;

/* What a plan is for; compared as memory, so zeroed before it is filled. */
typedef struct Problem
{
	int32_t		kind;			/* PlanKind */
	int32_t		convolution;	/* or linear: then only c_in and c_out count in shape */
	int32_t		bias;
	int32_t		out;			/* DType of the result of a forward pass */
	int32_t		accumulate;		/* PLAN_BACKWARD_WEIGHT: add to what is there */
	int64_t		rows;
	Conv2dShape shape;
} Problem;

typedef struct Plan
{
	struct Plan *next;
	Problem		problem;
	dnnl_primitive_t primitive; /* NULL: oneDNN has no fast one */
	dnnl_primitive_t reorder;	/* of weights before, or of their gradient after; NULL: the layouts are equal */
	dnnl_memory_t x,
				w,				/* in the primitive's layout */
				w_plain,
				b,
				y,
				scratchpad;
	size_t		scratchpad_bytes;
	void	   *packed;			/* w's memory where a reorder stands between */
	size_t		packed_bytes;
	float	   *bias_sum;		/* the gradient of the bias before it is added; (c_out) */
} Plan;

struct Onednn
{
	dnnl_engine_t engine;
	dnnl_stream_t stream;
	Plan	   *plans[BUCKETS];
	int			nplans;
};

/* Memory descriptors are structs in release 2, and objects that somebody has to free in release 3. */
#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t DescRef;
#define DESC_REF(desc) (desc)
#define describe_memory dnnl_memory_desc_create_with_tag
#define forget_memory(desc) dnnl_memory_desc_destroy(desc)
#define append_sum(ops) dnnl_post_ops_append_sum(ops, 1.0f, 0, dnnl_data_type_undef)
#else
typedef const dnnl_memory_desc_t *DescRef;
#define DESC_REF(desc) (&(desc))
#define describe_memory dnnl_memory_desc_init_by_tag
#define forget_memory(desc) ((void) (desc))
#define append_sum(ops) dnnl_post_ops_append_sum(ops, 1.0f)
#endif

/* The tensors of a problem as oneDNN describes them. */
typedef struct Descs
{
	dnnl_memory_desc_t x,
				w,				/* any layout */
				w_gradient,
				w_plain,		/* the backend's layout, in the type of the plan's kind */
				b,
				y;				/* the result, or its gradient */
	int			count;
} Descs;

#define CHECK_DNNL(call) \
	do { dnnl_status_t dnnl_status_ = (call); if (dnnl_status_ != dnnl_success) return dnnl_status_; } while (0)

static dnnl_status_t
describe(const Problem *p, Descs *d)
{
	const Conv2dShape *s = &p->shape;
	int			dims = p->convolution ? 4 : 2;
	dnnl_dims_t x = {p->rows, s->c_in, s->h, s->w},
				w = {s->c_out, s->c_in, s->kernel_h, s->kernel_w},
				y = {p->rows, s->c_out, s->h_out, s->w_out},
				b = {s->c_out};
	/* NHWC and OHWI are the same order of dimensions */
	dnnl_format_tag_t plain = p->convolution ? dnnl_acdb : dnnl_ab;
	dnnl_data_type_t y_type = p->kind == PLAN_FORWARD && p->out == DTYPE_F32 ? dnnl_f32 : dnnl_bf16,
				w_type = p->kind == PLAN_BACKWARD_WEIGHT ? dnnl_f32 : dnnl_bf16;

	CHECK_DNNL(describe_memory(&d->x, dims, x, dnnl_bf16, plain));
	d->count++;
	CHECK_DNNL(describe_memory(&d->w, dims, w, dnnl_bf16, dnnl_format_tag_any));
	d->count++;
	CHECK_DNNL(describe_memory(&d->w_gradient, dims, w, dnnl_f32, dnnl_format_tag_any));
	d->count++;
	CHECK_DNNL(describe_memory(&d->w_plain, dims, w, w_type, plain));
	d->count++;
	CHECK_DNNL(describe_memory(&d->b, 1, b, dnnl_f32, dnnl_a));
	d->count++;
	CHECK_DNNL(describe_memory(&d->y, dims, y, y_type, plain));
	d->count++;
	return dnnl_success;
}

static void
forget(Descs *d)
{
	dnnl_memory_desc_t *all[] = {&d->x, &d->w, &d->w_gradient, &d->w_plain, &d->b, &d->y};
	int			i;

	for (i = 0; i < d->count; i++)
		forget_memory(*all[i]);
}

/* A primitive descriptor of a kind; hint: of the forward pass, for the backward ones. */
static dnnl_status_t
describe_primitive(const Onednn *dnn, const Problem *p, PlanKind kind, const Descs *d, const_dnnl_primitive_attr_t attr,
				   const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *pd)
{
	const Conv2dShape *s = &p->shape;
	dnnl_dims_t stride = {s->stride_h, s->stride_w},
				dilation = {0, 0},
				pad = {s->pad_h, s->pad_w};
	DescRef		x = DESC_REF(d->x),
				w = DESC_REF(d->w),
				dw = DESC_REF(d->w_gradient),
				b = p->bias ? DESC_REF(d->b) : NULL,
				y = DESC_REF(d->y);

#if DNNL_VERSION_MAJOR >= 3
	if (p->convolution && kind == PLAN_FORWARD)
		return dnnl_convolution_forward_primitive_desc_create(pd, dnn->engine, dnnl_forward_training,
															  dnnl_convolution_direct, x, w, b, y, stride, dilation, pad, pad,
															  attr);
	if (p->convolution && kind == PLAN_BACKWARD_DATA)
		return dnnl_convolution_backward_data_primitive_desc_create(pd, dnn->engine, dnnl_convolution_direct, x, w, y,
																	stride, dilation, pad, pad, hint, attr);
	if (p->convolution)
		return dnnl_convolution_backward_weights_primitive_desc_create(pd, dnn->engine, dnnl_convolution_direct, x, dw, b,
																	   y, stride, dilation, pad, pad, hint, attr);
	if (kind == PLAN_FORWARD)
		return dnnl_inner_product_forward_primitive_desc_create(pd, dnn->engine, dnnl_forward_training, x, w, b, y, attr);
	if (kind == PLAN_BACKWARD_DATA)
		return dnnl_inner_product_backward_data_primitive_desc_create(pd, dnn->engine, x, w, y, hint, attr);
	return dnnl_inner_product_backward_weights_primitive_desc_create(pd, dnn->engine, x, dw, b, y, hint, attr);
#else
	if (p->convolution)
	{
		dnnl_convolution_desc_t op;

		if (kind == PLAN_FORWARD)
			CHECK_DNNL(dnnl_dilated_convolution_forward_desc_init(&op, dnnl_forward_training, dnnl_convolution_direct, x, w,
																  b, y, stride, dilation, pad, pad));
		else if (kind == PLAN_BACKWARD_DATA)
			CHECK_DNNL(dnnl_dilated_convolution_backward_data_desc_init(&op, dnnl_convolution_direct, x, w, y, stride,
																		dilation, pad, pad));
		else
			CHECK_DNNL(dnnl_dilated_convolution_backward_weights_desc_init(&op, dnnl_convolution_direct, x, dw, b, y, stride,
																		   dilation, pad, pad));
		return dnnl_primitive_desc_create(pd, &op, attr, dnn->engine, hint);
	}
	else
	{
		dnnl_inner_product_desc_t op;

		if (kind == PLAN_FORWARD)
			CHECK_DNNL(dnnl_inner_product_forward_desc_init(&op, dnnl_forward_training, x, w, b, y));
		else if (kind == PLAN_BACKWARD_DATA)
			CHECK_DNNL(dnnl_inner_product_backward_data_desc_init(&op, x, w, y));
		else
			CHECK_DNNL(dnnl_inner_product_backward_weights_desc_init(&op, x, dw, b, y));
		return dnnl_primitive_desc_create(pd, &op, attr, dnn->engine, hint);
	}
#endif
}

/* Who brings scratch memory; sum: the result is added to what is there.  Whatever *attr is set to is the caller's. */
static dnnl_status_t
make_attributes(dnnl_scratchpad_mode_t scratchpad, int sum, dnnl_primitive_attr_t *attr)
{
	dnnl_post_ops_t ops;
	dnnl_status_t status;

	CHECK_DNNL(dnnl_primitive_attr_create(attr));
	CHECK_DNNL(dnnl_primitive_attr_set_scratchpad_mode(*attr, scratchpad));
	if (!sum)
		return dnnl_success;
	CHECK_DNNL(dnnl_post_ops_create(&ops));
	status = append_sum(ops);
	if (status == dnnl_success)
		status = dnnl_primitive_attr_set_post_ops(*attr, ops);
	dnnl_post_ops_destroy(ops);
	return status;
}

static dnnl_status_t
make_memory(const Onednn *dnn, DescRef desc, dnnl_memory_t *memory)
{
	return dnnl_memory_create(memory, desc, dnn->engine, DNNL_MEMORY_NONE);
}

/* Between the backend's layout of the weights, or of their gradient, and the primitive's. */
static dnnl_status_t
make_reorder(const Onednn *dnn, Plan *plan, DescRef plain, DescRef preferred)
{
	int			gradient = plan->problem.kind == PLAN_BACKWARD_WEIGHT;
	dnnl_primitive_attr_t attr = NULL;
	dnnl_primitive_desc_t pd = NULL;
	dnnl_status_t status;

	if (dnnl_memory_desc_equal(plain, preferred) && !plan->problem.accumulate)
		return dnnl_success;
	plan->packed_bytes = dnnl_memory_desc_get_size(preferred);
	/* a reorder rarely needs scratch memory */
	status = make_attributes(dnnl_scratchpad_mode_library, plan->problem.accumulate, &attr);
	if (status == dnnl_success)
		status = dnnl_reorder_primitive_desc_create(&pd, gradient ? preferred : plain, dnn->engine,
													gradient ? plain : preferred, dnn->engine, attr);
	if (status == dnnl_success)
		status = dnnl_primitive_create(&plan->reorder, pd);
	if (pd != NULL)
		dnnl_primitive_desc_destroy(pd);
	if (attr != NULL)
		dnnl_primitive_attr_destroy(attr);
	return status;
}

/* Everything of the plan that oneDNN makes, for the primitive descriptor pd. */
static dnnl_status_t
fill_plan(const Onednn *dnn, Plan *plan, const Descs *d, const_dnnl_primitive_desc_t pd)
{
	int			gradient = plan->problem.kind == PLAN_BACKWARD_WEIGHT;
	DescRef		preferred = dnnl_primitive_desc_query_md(pd, gradient ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0),
				scratchpad = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);

	CHECK_DNNL(make_reorder(dnn, plan, DESC_REF(d->w_plain), preferred));
	CHECK_DNNL(make_memory(dnn, preferred, &plan->w));
	CHECK_DNNL(make_memory(dnn, DESC_REF(d->w_plain), &plan->w_plain));
	CHECK_DNNL(make_memory(dnn, DESC_REF(d->x), &plan->x));
	CHECK_DNNL(make_memory(dnn, DESC_REF(d->b), &plan->b));
	CHECK_DNNL(make_memory(dnn, DESC_REF(d->y), &plan->y));
	CHECK_DNNL(make_memory(dnn, scratchpad, &plan->scratchpad));
	plan->scratchpad_bytes = dnnl_memory_desc_get_size(scratchpad);
	return dnnl_primitive_create(&plan->primitive, pd);
}

/* oneDNN's reference implementations are slower than ours. */
static int
is_fast(const_dnnl_primitive_desc_t pd)
{
	const char *name = NULL;

	return dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *) &name) == dnnl_success
		&& name != NULL && strncmp(name, "ref", 3) != 0;
}

static dnnl_status_t
make_primitive(const Onednn *dnn, Plan *plan, const Descs *d)
{
	const Problem *p = &plan->problem;
	dnnl_primitive_attr_t attr = NULL;
	dnnl_primitive_desc_t forward = NULL,
				pd = NULL;
	dnnl_status_t status;

	status = make_attributes(dnnl_scratchpad_mode_user, 0, &attr);
	if (status == dnnl_success)
		status = describe_primitive(dnn, p, PLAN_FORWARD, d, attr, NULL, &forward);
	if (status == dnnl_success && p->kind != PLAN_FORWARD)
		status = describe_primitive(dnn, p, (PlanKind) p->kind, d, attr, forward, &pd);
	if (status == dnnl_success)
		status = is_fast(pd != NULL ? pd : forward) ? fill_plan(dnn, plan, d, pd != NULL ? pd : forward) : dnnl_unimplemented;
	if (pd != NULL)
		dnnl_primitive_desc_destroy(pd);
	if (forward != NULL)
		dnnl_primitive_desc_destroy(forward);
	if (attr != NULL)
		dnnl_primitive_attr_destroy(attr);
	return status;
}

static void
clear_plan(Backend *be, Plan *plan)
{
	dnnl_memory_t *const memories[] = {&plan->x, &plan->w, &plan->w_plain, &plan->b, &plan->y, &plan->scratchpad};
	size_t		i;

	for (i = 0; i < sizeof(memories) / sizeof(memories[0]); i++)
	{
		if (*memories[i] != NULL)
			dnnl_memory_destroy(*memories[i]);
		*memories[i] = NULL;
	}
	if (plan->primitive != NULL)
		dnnl_primitive_destroy(plan->primitive);
	if (plan->reorder != NULL)
		dnnl_primitive_destroy(plan->reorder);
	plan->primitive = plan->reorder = NULL;
	cpu_free(be, plan->packed, plan->packed_bytes);
	plan->packed = NULL;
	free(plan->bias_sum);
	plan->bias_sum = NULL;
}

static void
drop_plans(Backend *be, Onednn *dnn)
{
	int			i;

	for (i = 0; i < BUCKETS; i++)
		while (dnn->plans[i] != NULL)
		{
			Plan	   *plan = dnn->plans[i];

			dnn->plans[i] = plan->next;
			clear_plan(be, plan);
			free(plan);
		}
	dnn->nplans = 0;
}

static size_t
bucket_of(const Problem *p)
{
	const unsigned char *bytes = (const unsigned char *) p;
	uint32_t	hash = 2166136261u;
	size_t		i;

	/* FNV-1a */
	for (i = 0; i < sizeof(*p); i++)
		hash = (hash ^ bytes[i]) * 16777619u;
	return hash % BUCKETS;
}

/* The plan for a problem; made at its first use. */
static Status
get_plan(Backend *be, const Problem *p, Plan **out, Error *err)
{
	Onednn	   *dnn = be->onednn;
	Plan	  **bucket = &dnn->plans[bucket_of(p)],
			   *plan;
	Descs		descs = {.count = 0};
	dnnl_status_t made;
	Status		status = STATUS_OK;

	for (plan = *bucket; plan != NULL; plan = plan->next)
		if (memcmp(&plan->problem, p, sizeof(*p)) == 0)
		{
			*out = plan;
			return plan->primitive != NULL ? STATUS_OK : STATUS_UNSUPPORTED;
		}
	if (dnn->nplans >= MAX_PLANS)
		drop_plans(be, dnn);
	plan = calloc(1, sizeof(*plan));
	if (plan == NULL)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	plan->problem = *p;
	made = describe(p, &descs);
	if (made == dnnl_success)
		made = make_primitive(dnn, plan, &descs);
	forget(&descs);
	if (made == dnnl_success && plan->packed_bytes > 0)
		status = cpu_alloc(be, plan->packed_bytes, &plan->packed, err);
	if (made == dnnl_success && status == STATUS_OK && p->kind == PLAN_BACKWARD_WEIGHT && p->accumulate && p->bias)
	{
		plan->bias_sum = calloc((size_t) p->shape.c_out, sizeof(float));
		if (plan->bias_sum == NULL)
			status = error_set(err, STATUS_NO_MEMORY, "out of memory");
	}
	if (made == dnnl_out_of_memory)
		status = error_set(err, STATUS_NO_MEMORY, "out of memory");
	if (status != STATUS_OK)
	{
		clear_plan(be, plan);
		free(plan);
		return status;
	}
	/* what oneDNN cannot do is remembered, too */
	if (made != dnnl_success)
		clear_plan(be, plan);
	plan->next = *bucket;
	*bucket = plan;
	dnn->nplans++;
	*out = plan;
	return made == dnnl_success ? STATUS_OK : STATUS_UNSUPPORTED;
}

static dnnl_status_t
execute(Onednn *dnn, dnnl_primitive_t primitive, int nargs, const dnnl_exec_arg_t *args)
{
	CHECK_DNNL(dnnl_primitive_execute(primitive, dnn->stream, nargs, args));
	return dnnl_stream_wait(dnn->stream);
}

static dnnl_status_t
reorder_weights(Onednn *dnn, Plan *plan, dnnl_memory_t from, dnnl_memory_t to)
{
	dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};

	return execute(dnn, plan->reorder, 2, args);
}

/* Run a plan.  x, w, b, y: the tensors or, backwards, their gradients. */
static dnnl_status_t
run_plan(Onednn *dnn, Plan *plan, void *x, void *w, void *b, void *y, void *scratchpad)
{
	static const int roles[][4] = {
		[PLAN_FORWARD] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS},
		[PLAN_BACKWARD_DATA] = {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST, 0},
		[PLAN_BACKWARD_WEIGHT] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_BIAS},
	};
	const Problem *p = &plan->problem;
	const int  *role = roles[p->kind];
	dnnl_exec_arg_t args[] = {
		{role[0], plan->x}, {role[1], plan->w}, {role[2], plan->y},
		{DNNL_ARG_SCRATCHPAD, plan->scratchpad}, {role[3], plan->b}
	};
	int32_t		i;

	CHECK_DNNL(dnnl_memory_set_data_handle(plan->x, x));
	CHECK_DNNL(dnnl_memory_set_data_handle(plan->w_plain, w));
	CHECK_DNNL(dnnl_memory_set_data_handle(plan->w, plan->packed != NULL ? plan->packed : w));
	CHECK_DNNL(dnnl_memory_set_data_handle(plan->y, y));
	CHECK_DNNL(dnnl_memory_set_data_handle(plan->scratchpad, scratchpad));
	if (p->bias)
		CHECK_DNNL(dnnl_memory_set_data_handle(plan->b, plan->bias_sum != NULL ? plan->bias_sum : b));
	if (plan->reorder != NULL && p->kind != PLAN_BACKWARD_WEIGHT)
		CHECK_DNNL(reorder_weights(dnn, plan, plan->w_plain, plan->w));
	CHECK_DNNL(execute(dnn, plan->primitive, p->bias ? 5 : 4, args));
	if (plan->reorder != NULL && p->kind == PLAN_BACKWARD_WEIGHT)
		CHECK_DNNL(reorder_weights(dnn, plan, plan->w, plan->w_plain));
	if (plan->bias_sum != NULL)
		for (i = 0; i < p->shape.c_out; i++)
			((float *) b)[i] += plan->bias_sum[i];
	return dnnl_success;
}

static Status
run(Backend *be, const Problem *p, const void *x, const void *w, const void *b, const void *y, Error *err)
{
	Plan	   *plan = NULL;
	void	   *scratchpad;
	dnnl_status_t ran;

	TRY(get_plan(be, p, &plan, err));
	TRY(cpu_workspace(be, WORKSPACE_ONEDNN, plan->scratchpad_bytes, &scratchpad, err));
	/* oneDNN's interface knows no const; what is input stays as it is */
	ran = run_plan(be->onednn, plan, (void *) x, (void *) w, (void *) b, (void *) y, scratchpad);
	if (ran == dnnl_out_of_memory)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	if (ran != dnnl_success)
		return error_set(err, STATUS_DEVICE, "oneDNN failed with status %d", (int) ran);
	return STATUS_OK;
}

static void
linear_problem(Problem *p, PlanKind kind, size_t m, size_t n, size_t k)
{
	memset(p, 0, sizeof(*p));
	p->kind = kind;
	p->out = DTYPE_BF16;
	p->rows = (int64_t) m;
	p->shape.c_in = (int32_t) k;
	p->shape.c_out = (int32_t) n;
}

static void
conv_problem(Problem *p, PlanKind kind, const Conv2dShape *s, size_t n)
{
	memset(p, 0, sizeof(*p));
	p->kind = kind;
	p->convolution = 1;
	p->out = DTYPE_BF16;
	p->rows = (int64_t) n;
	p->shape = *s;
}

Status
onednn_linear_fwd(Backend *be, size_t m, size_t n, size_t k, const void *x, const void *w, const float *b,
				  void *y, DType out, Error *err)
{
	Problem		p;

	linear_problem(&p, PLAN_FORWARD, m, n, k);
	p.out = out;
	p.bias = b != NULL;
	return run(be, &p, x, w, b, y, err);
}

Status
onednn_linear_bwd_data(Backend *be, size_t m, size_t n, size_t k, const void *dy, const void *w, void *dx, Error *err)
{
	Problem		p;

	/* Release 2.6.3 on AMX gives NaN for some sums of another length that several threads share. */
	if (n % AMX_STEP != 0)
		return STATUS_UNSUPPORTED;
	linear_problem(&p, PLAN_BACKWARD_DATA, m, n, k);
	return run(be, &p, dx, w, NULL, dy, err);
}

Status
onednn_linear_bwd_weight(Backend *be, size_t m, size_t n, size_t k, const void *dy, const void *x, float *dw,
						 float *db, float beta, Error *err)
{
	Problem		p;

	if (beta != 0.0f && beta != 1.0f)
		return STATUS_UNSUPPORTED;
	linear_problem(&p, PLAN_BACKWARD_WEIGHT, m, n, k);
	p.bias = db != NULL;
	p.accumulate = beta == 1.0f;
	return run(be, &p, x, dw, db, dy, err);
}

Status
onednn_conv2d_fwd(Backend *be, const Conv2dShape *s, size_t n, const void *x, const void *w, const float *b,
				  void *y, Error *err)
{
	Problem		p;

	conv_problem(&p, PLAN_FORWARD, s, n);
	p.bias = b != NULL;
	return run(be, &p, x, w, b, y, err);
}

Status
onednn_conv2d_bwd_data(Backend *be, const Conv2dShape *s, size_t n, const void *dy, const void *w, void *dx, Error *err)
{
	Problem		p;

	conv_problem(&p, PLAN_BACKWARD_DATA, s, n);
	return run(be, &p, dx, w, NULL, dy, err);
}

Status
onednn_conv2d_bwd_weight(Backend *be, const Conv2dShape *s, size_t n, const void *dy, const void *x, float *dw,
						 float *db, float beta, Error *err)
{
	Problem		p;

	if (beta != 0.0f && beta != 1.0f)
		return STATUS_UNSUPPORTED;
	conv_problem(&p, PLAN_BACKWARD_WEIGHT, s, n);
	p.bias = db != NULL;
	p.accumulate = beta == 1.0f;
	return run(be, &p, x, dw, db, dy, err);
}

Status
onednn_open(const char *isa, int emulated, Onednn **out, Error *err)
{
	/* each value has the bits of those that it includes */
	unsigned	needed = emulated ? dnnl_cpu_isa_avx512_core : dnnl_cpu_isa_avx512_core_bf16;
	Onednn	   *dnn;

	*out = NULL;
	if (strcmp(isa, "avx512") != 0 || ((unsigned) dnnl_get_effective_cpu_isa() & needed) != needed)
		return STATUS_OK;
	dnn = calloc(1, sizeof(*dnn));
	if (dnn == NULL)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	if (dnnl_engine_create(&dnn->engine, dnnl_cpu, 0) != dnnl_success
		|| dnnl_stream_create(&dnn->stream, dnn->engine, dnnl_stream_default_flags) != dnnl_success)
	{
		if (dnn->engine != NULL)
			dnnl_engine_destroy(dnn->engine);
		free(dnn);
		return error_set(err, STATUS_DEVICE, "oneDNN could not be started");
	}
	*out = dnn;
	return STATUS_OK;
}

void
onednn_close(Backend *be, Onednn *dnn)
{
	if (dnn == NULL)
		return;
	drop_plans(be, dnn);
	dnnl_stream_destroy(dnn->stream);
	dnnl_engine_destroy(dnn->engine);
	free(dnn);
}

void
onednn_version(char *text, size_t bytes)
{
	const dnnl_version_t *version = dnnl_version();

	snprintf(text, bytes, "oneDNN %d.%d.%d", version->major, version->minor, version->patch);
}
