/*
 * blaslt.cpp - cublasLtMatmul and its descriptors.
 *
 * A product runs as work of its stream.  The algorithm that the heuristic gives remembers what it was asked for: types,
 * shapes, alignment and workspace; a product that does not keep to it is refused.  The workspace is overwritten.  GELU
 * is cuBLASLt's, by tanh.
 */
#include "regress/cudasim/gemm.h"
#include "regress/cudasim/sim.h"

#include <algorithm>
#include <cstring>

#include <cublasLt.h>

struct cublasLtContext
{
	int			device;
};

namespace sim
{

/* These lie in the opaque structs of cublasLt.h. */
struct Layout
{
	uint64_t	magic;
	uint64_t	rows,
				cols;
	int64_t		ld;
	int32_t		order;
	int32_t		batch_count;
	int64_t		batch_stride;
	uint32_t	type;
};

struct MatmulDesc
{
	uint64_t	magic;
	uint32_t	compute,
				scale;
	int32_t		trans_a,
				trans_b;
	uint32_t	epilogue;
	int32_t		bias_type;		/* -1: D's */
	int32_t		aux_type;		/* -1: D's */
	uint32_t	pointer_mode;
	void	   *bias;
	void	   *aux;
	int64_t		aux_ld;
};

struct Preference
{
	uint64_t	magic;
	uint64_t	workspace;
	uint32_t	align_a,
				align_b,
				align_c,
				align_d;
};

struct Algo
{
	uint64_t	magic;
	uint64_t	problem;		/* a hash of it */
	uint64_t	workspace;
	uint32_t	align_a,
				align_b,
				align_c,
				align_d;
};

static const uint64_t LAYOUT_MAGIC = 0x4c41594f5554ull,
			DESC_MAGIC = 0x4d41544d554cull,
			PREFERENCE_MAGIC = 0x50524546ull,
			ALGO_MAGIC = 0x414c474full;

static_assert(sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t), "a layout fits");
static_assert(sizeof(MatmulDesc) <= sizeof(cublasLtMatmulDescOpaque_t), "a description fits");
static_assert(sizeof(Preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t), "a preference fits");
static_assert(sizeof(Algo) <= sizeof(cublasLtMatmulAlgo_t), "an algorithm fits");

/* All there is to know of a product. */
struct Problem
{
	MatmulDesc	desc;
	Layout		a,
				b,
				c,
				d;
	size_t		m,
				n,
				k;
};

static Number
number_of(uint32_t type)
{
	return type == CUDA_R_32F ? Number::f32 : type == CUDA_R_16BF ? Number::bf16
		: type == CUDA_R_16F ? Number::f16 : Number::none;
}

static uint64_t
hash_problem(const Problem &p)
{
	uint64_t values[] = {p.m, p.n, p.k, p.a.type, p.b.type, p.c.type, p.d.type, (uint64_t) p.a.ld, (uint64_t) p.b.ld,
	(uint64_t) p.c.ld, (uint64_t) p.d.ld, (uint64_t) p.desc.trans_a, (uint64_t) p.desc.trans_b, p.desc.epilogue,
	p.desc.compute, (uint64_t) p.a.order, (uint64_t) p.b.order, (uint64_t) p.d.order};
	uint64_t hash = 14695981039346656037ull;

	for (uint64_t value : values)
		hash = (hash ^ value) * 1099511628211ull;
	return hash;
}

static cublasStatus_t
refuse(cublasStatus_t status, const char *why)
{
	complain("cublasLtMatmul: %s", why);
	return status;
}

static bool
layout_holds(const Layout &l)
{
	return l.ld >= (int64_t) (l.order == CUBLASLT_ORDER_COL ? l.rows : l.cols);
}

static bool
uses_aux(uint32_t epilogue)
{
	return (epilogue & 128) != 0;
}

static bool
uses_bias(uint32_t epilogue)
{
	return (epilogue & (4 | 16 | 256 | 512)) != 0;
}

/* Shapes and types that do not go together, or that cuBLASLt does not have. */
static cublasStatus_t
check_problem(Problem *p)
{
	const MatmulDesc &desc = p->desc;
	bool row_major = p->a.order != CUBLASLT_ORDER_COL || p->b.order != CUBLASLT_ORDER_COL
				|| p->d.order != CUBLASLT_ORDER_COL;

	if (p->a.magic != LAYOUT_MAGIC || p->b.magic != LAYOUT_MAGIC || p->c.magic != LAYOUT_MAGIC || p->d.magic != LAYOUT_MAGIC
		|| desc.magic != DESC_MAGIC)
		return refuse(CUBLAS_STATUS_INVALID_VALUE, "a descriptor was not made or is destroyed");
	p->m = desc.trans_a == CUBLAS_OP_N ? p->a.rows : p->a.cols;
	p->k = desc.trans_a == CUBLAS_OP_N ? p->a.cols : p->a.rows;
	p->n = desc.trans_b == CUBLAS_OP_N ? p->b.cols : p->b.rows;
	if ((desc.trans_b == CUBLAS_OP_N ? p->b.rows : p->b.cols) != p->k || p->d.rows != p->m || p->d.cols != p->n
		|| p->c.rows != p->m || p->c.cols != p->n)
		return refuse(CUBLAS_STATUS_INVALID_VALUE, "the shapes do not go together");
	if (p->m == 0 || p->n == 0 || p->k == 0)
		return refuse(CUBLAS_STATUS_INVALID_VALUE, "a matrix is empty");
	if (!layout_holds(p->a) || !layout_holds(p->b) || !layout_holds(p->c) || !layout_holds(p->d))
		return refuse(CUBLAS_STATUS_INVALID_VALUE, "a leading dimension is too small");
	if (p->a.batch_count != 1 || p->b.batch_count != 1 || p->d.batch_count != 1)
		return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "the stand-in has no batches");
	if (p->a.type != p->b.type || p->c.type != p->d.type || number_of(p->a.type) == Number::none
		|| number_of(p->d.type) == Number::none || (p->d.type != CUDA_R_32F && p->d.type != p->a.type))
		return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "the types do not go together");
	if (desc.scale != CUDA_R_32F || (desc.compute != CUBLAS_COMPUTE_32F && desc.compute != CUBLAS_COMPUTE_32F_PEDANTIC
									 && desc.compute != CUBLAS_COMPUTE_32F_FAST_TF32
									 && desc.compute != CUBLAS_COMPUTE_32F_FAST_16BF))
		return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "the type of the computation");
	if (desc.compute != CUBLAS_COMPUTE_32F && desc.compute != CUBLAS_COMPUTE_32F_PEDANTIC && p->a.type != CUDA_R_32F)
		return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "fast fp32 is for fp32");
	if (desc.epilogue != CUBLASLT_EPILOGUE_DEFAULT && row_major && p->d.order != CUBLASLT_ORDER_COL)
		return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "an epilogue wants its output column by column");
	if (uses_bias(desc.epilogue) && desc.bias_type >= 0 && (uint32_t) desc.bias_type != p->d.type
		&& (uint32_t) desc.bias_type != CUDA_R_32F)
		return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "the type of the bias");
	if (uses_aux(desc.epilogue))
	{
		bool mask = (desc.epilogue & (2 | 8)) != 0;

		if (desc.aux_ld < (int64_t) p->m || desc.aux_ld % (mask ? 128 : 8) != 0)
			return refuse(CUBLAS_STATUS_INVALID_VALUE, "the leading dimension of the auxiliary matrix");
	}
	return CUBLAS_STATUS_SUCCESS;
}

static Matrix
operand(const Layout &l, const void *data, int32_t transposed)
{
	size_t down = l.order == CUBLASLT_ORDER_COL ? 1 : (size_t) l.ld,
				right = l.order == CUBLASLT_ORDER_COL ? (size_t) l.ld : 1;

	return transposed != CUBLAS_OP_N ? Matrix{data, number_of(l.type), right, down}
		: Matrix{data, number_of(l.type), down, right};
}

static float
gelu(float x)
{
	return 0.5f * x * (1 + tanhf(0.797884561f * (x + 0.044715f * x * x * x)));
}

static float
gelu_slope(float x)
{
	float t = tanhf(0.797884561f * (x + 0.044715f * x * x * x));

	return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * 0.797884561f * (1 + 3 * 0.044715f * x * x);
}

/* Sums of a's rows or b's columns over k, into the bias. */
static void
input_gradient(const Problem &p, const Matrix &x, size_t count, bool along_rows)
{
	Number type = number_of(p.desc.bias_type >= 0 ? (uint32_t) p.desc.bias_type : p.d.type);

	for (size_t i = 0; i < count; i++)
	{
		float sum = 0;

		for (size_t q = 0; q < p.k; q++)
			sum += load(x.type, x.data, along_rows ? i * x.row_step + q * x.column_step
						: q * x.row_step + i * x.column_step);
		store(type, p.desc.bias, i, sum);
	}
}

/* What the epilogue makes of column j of alpha a b + beta c, in place. */
static void
epilogue_column(const Problem &p, size_t j, float *column)
{
	const MatmulDesc &desc = p.desc;
	uint32_t e = desc.epilogue;
	Number bias_type = number_of(desc.bias_type >= 0 ? (uint32_t) desc.bias_type : p.d.type);
	Number aux_type = number_of(desc.aux_type >= 0 ? (uint32_t) desc.aux_type : p.d.type);
	uint8_t *mask = (uint8_t *) desc.aux + j * (size_t) desc.aux_ld / 8;
	size_t aux = j * (size_t) desc.aux_ld;

	for (size_t i = 0; i < p.m; i++)
	{
		float v = column[i];

		if ((e & 4) != 0)
			v += load(bias_type, desc.bias, i);
		if ((e & 2) != 0)
		{
			bool on = v > 0;

			if (uses_aux(e))
				mask[i / 8] = (uint8_t) ((mask[i / 8] & ~(1 << i % 8)) | on << i % 8);
			v = 0.0f > v ? 0.0f : v;
		}
		if ((e & 8) != 0 && (mask[i / 8] >> i % 8 & 1) == 0)
			v = 0;
		if ((e & 32) != 0)
		{
			if (uses_aux(e))
				store(aux_type, desc.aux, aux + i, v);
			v = gelu(v);
		}
		if ((e & 64) != 0)
			v *= gelu_slope(load(aux_type, desc.aux, aux + i));
		column[i] = v;
	}
}

static void
run(const Problem &p, float alpha, const void *a, const void *b, float beta, const void *c, void *d)
{
	Matrix left = operand(p.a, a, p.desc.trans_a),
				right = operand(p.b, b, p.desc.trans_b),
				to = operand(p.d, d, CUBLAS_OP_N),
				from = operand(p.c, c, CUBLAS_OP_N);
	std::vector<float> product(p.m * p.n),
				gradient((p.desc.epilogue & 16) != 0 ? p.m : 0);

	gemm(p.m, p.n, p.k, left, right, p.desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32, product.data());
	for (size_t j = 0; j < p.n; j++)
	{
		float *column = &product[j * p.m];

		for (size_t i = 0; i < p.m; i++)
			column[i] = alpha * column[i]
				+ (beta != 0 ? beta * load(from.type, c, i * from.row_step + j * from.column_step) : 0);
		epilogue_column(p, j, column);
		for (size_t i = 0; i < p.m; i++)
			store(to.type, d, i * to.row_step + j * to.column_step, column[i]);
		for (size_t i = 0; i < gradient.size(); i++)
			gradient[i] += column[i];
	}
	for (size_t i = 0; i < gradient.size(); i++)
		store(number_of(p.desc.bias_type >= 0 ? (uint32_t) p.desc.bias_type : p.d.type), p.desc.bias, i, gradient[i]);
	if (p.desc.epilogue == CUBLASLT_EPILOGUE_BGRADA)
		input_gradient(p, left, p.m, true);
	if (p.desc.epilogue == CUBLASLT_EPILOGUE_BGRADB)
		input_gradient(p, right, p.n, false);
}

static bool
aligned(const void *p, size_t to)
{
	return (uintptr_t) p % to == 0;
}

/* A field that an attribute sets or gets. */
template <typename T> static cublasStatus_t
move(bool set, T *field, void *buffer, size_t bytes)
{
	if (buffer == nullptr || bytes != sizeof(T))
		return CUBLAS_STATUS_INVALID_VALUE;
	if (set)
		memcpy(field, buffer, sizeof(T));
	else
		memcpy(buffer, field, sizeof(T));
	return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t
layout_attribute(bool set, Layout *l, cublasLtMatrixLayoutAttribute_t attribute, void *buffer, size_t bytes)
{
	if (l == nullptr || l->magic != LAYOUT_MAGIC)
		return CUBLAS_STATUS_INVALID_VALUE;
	switch (attribute)
	{
		case CUBLASLT_MATRIX_LAYOUT_TYPE:
			return move(set, &l->type, buffer, bytes);
		case CUBLASLT_MATRIX_LAYOUT_ORDER:
			return move(set, &l->order, buffer, bytes);
		case CUBLASLT_MATRIX_LAYOUT_ROWS:
			return move(set, &l->rows, buffer, bytes);
		case CUBLASLT_MATRIX_LAYOUT_COLS:
			return move(set, &l->cols, buffer, bytes);
		case CUBLASLT_MATRIX_LAYOUT_LD:
			return move(set, &l->ld, buffer, bytes);
		case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
			return move(set, &l->batch_count, buffer, bytes);
		case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
			return move(set, &l->batch_stride, buffer, bytes);
		default:
			return refuse(CUBLAS_STATUS_INVALID_VALUE, "an attribute of a layout that the stand-in does not know");
	}
}

static cublasStatus_t
desc_attribute(bool set, MatmulDesc *d, cublasLtMatmulDescAttributes_t attribute, void *buffer, size_t bytes)
{
	if (d == nullptr || d->magic != DESC_MAGIC)
		return CUBLAS_STATUS_INVALID_VALUE;
	switch (attribute)
	{
		case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
			return move(set, &d->compute, buffer, bytes);
		case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
			return move(set, &d->scale, buffer, bytes);
		case CUBLASLT_MATMUL_DESC_POINTER_MODE:
			return move(set, &d->pointer_mode, buffer, bytes);
		case CUBLASLT_MATMUL_DESC_TRANSA:
			return move(set, &d->trans_a, buffer, bytes);
		case CUBLASLT_MATMUL_DESC_TRANSB:
			return move(set, &d->trans_b, buffer, bytes);
		case CUBLASLT_MATMUL_DESC_EPILOGUE:
			return move(set, &d->epilogue, buffer, bytes);
		case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
			return move(set, &d->bias, buffer, bytes);
		case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
			return move(set, &d->bias_type, buffer, bytes);
		case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
			return move(set, &d->aux, buffer, bytes);
		case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
			return move(set, &d->aux_ld, buffer, bytes);
		case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
			return move(set, &d->aux_type, buffer, bytes);
		default:
			return refuse(CUBLAS_STATUS_INVALID_VALUE, "an attribute of a product that the stand-in does not know");
	}
}

static cublasStatus_t
preference_attribute(bool set, Preference *p, cublasLtMatmulPreferenceAttributes_t attribute, void *buffer, size_t bytes)
{
	if (p == nullptr || p->magic != PREFERENCE_MAGIC)
		return CUBLAS_STATUS_INVALID_VALUE;
	switch (attribute)
	{
		case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
			return move(set, &p->workspace, buffer, bytes);
		case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
			return move(set, &p->align_a, buffer, bytes);
		case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
			return move(set, &p->align_b, buffer, bytes);
		case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
			return move(set, &p->align_c, buffer, bytes);
		case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
			return move(set, &p->align_d, buffer, bytes);
		default:
			return refuse(CUBLAS_STATUS_INVALID_VALUE, "a preference that the stand-in does not know");
	}
}

/* A descriptor on the heap, counted. */
template <typename T> static T *
descriptor_new()
{
	T *made = new T();

	memset(made, 0, sizeof(T));
	state().live[CUDASIM_CUBLAS_DESCRIPTOR]++;
	return made;
}

template <typename T, typename Own> static cublasStatus_t
descriptor_free(T *opaque, uint64_t magic)
{
	Own *own = (Own *) opaque;

	if (own == nullptr)
		return CUBLAS_STATUS_SUCCESS;
	if (own->magic != magic)
		return refuse(CUBLAS_STATUS_INVALID_VALUE, "a descriptor was destroyed twice");
	own->magic = 0;
	delete opaque;
	state().live[CUDASIM_CUBLAS_DESCRIPTOR]--;
	return CUBLAS_STATUS_SUCCESS;
}

}								/* namespace sim */

using namespace sim;

/* A lost device makes every call fail. */
#define CUBLAS_CALL() \
	Call		call(__func__); \
	if (call.error != cudaSuccess) \
		return CUBLAS_STATUS_EXECUTION_FAILED

extern "C"
{

cublasStatus_t
cublasLtCreate(cublasLtHandle_t *out)
{
	CUBLAS_CALL();
	if (out == nullptr)
		return CUBLAS_STATUS_INVALID_VALUE;
	if (allocation_fails(__func__))
		return CUBLAS_STATUS_ALLOC_FAILED;
	*out = new cublasLtContext{current_device()};
	state().live[CUDASIM_CUBLAS_HANDLE]++;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtDestroy(cublasLtHandle_t handle)
{
	Call call(__func__);

	if (handle == nullptr)
		return CUBLAS_STATUS_NOT_INITIALIZED;
	delete handle;
	state().live[CUDASIM_CUBLAS_HANDLE]--;
	return call.error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

size_t
cublasLtGetVersion(void)
{
	return CUBLAS_VERSION;
}

const char *
cublasLtGetStatusName(cublasStatus_t status)
{
	switch (status)
	{
		case CUBLAS_STATUS_SUCCESS:
			return "CUBLAS_STATUS_SUCCESS";
		case CUBLAS_STATUS_NOT_INITIALIZED:
			return "CUBLAS_STATUS_NOT_INITIALIZED";
		case CUBLAS_STATUS_ALLOC_FAILED:
			return "CUBLAS_STATUS_ALLOC_FAILED";
		case CUBLAS_STATUS_INVALID_VALUE:
			return "CUBLAS_STATUS_INVALID_VALUE";
		case CUBLAS_STATUS_EXECUTION_FAILED:
			return "CUBLAS_STATUS_EXECUTION_FAILED";
		case CUBLAS_STATUS_NOT_SUPPORTED:
			return "CUBLAS_STATUS_NOT_SUPPORTED";
		default:
			return "CUBLAS_STATUS_INTERNAL_ERROR";
	}
}

const char *
cublasLtGetStatusString(cublasStatus_t status)
{
	return cublasLtGetStatusName(status);
}

cublasStatus_t
cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows, uint64_t cols, int64_t ld)
{
	CUBLAS_CALL();
	if (out == nullptr)
		return CUBLAS_STATUS_INVALID_VALUE;
	if (allocation_fails(__func__))
		return CUBLAS_STATUS_ALLOC_FAILED;
	*out = descriptor_new<cublasLtMatrixLayoutOpaque_t>();
	Layout *l = (Layout *) *out;
	*l = Layout{LAYOUT_MAGIC, rows, cols, ld, CUBLASLT_ORDER_COL, 1, 0, (uint32_t) type};
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
	Call call(__func__);

	return descriptor_free<cublasLtMatrixLayoutOpaque_t, Layout>(layout, LAYOUT_MAGIC);
}

cublasStatus_t
cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute,
								 const void *buffer, size_t bytes)
{
	CUBLAS_CALL();
	return layout_attribute(true, (Layout *) layout, attribute, (void *) buffer, bytes);
}

cublasStatus_t
cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute, cudaDataType_t scale)
{
	CUBLAS_CALL();
	if (out == nullptr)
		return CUBLAS_STATUS_INVALID_VALUE;
	if (allocation_fails(__func__))
		return CUBLAS_STATUS_ALLOC_FAILED;
	*out = descriptor_new<cublasLtMatmulDescOpaque_t>();
	MatmulDesc *d = (MatmulDesc *) *out;
	d->magic = DESC_MAGIC;
	d->compute = compute;
	d->scale = scale;
	d->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
	d->bias_type = d->aux_type = -1;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
	Call call(__func__);

	return descriptor_free<cublasLtMatmulDescOpaque_t, MatmulDesc>(desc, DESC_MAGIC);
}

cublasStatus_t
cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const void *buffer,
							   size_t bytes)
{
	CUBLAS_CALL();
	return desc_attribute(true, (MatmulDesc *) desc, attribute, (void *) buffer, bytes);
}

cublasStatus_t
cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
	CUBLAS_CALL();
	if (out == nullptr)
		return CUBLAS_STATUS_INVALID_VALUE;
	if (allocation_fails(__func__))
		return CUBLAS_STATUS_ALLOC_FAILED;
	*out = descriptor_new<cublasLtMatmulPreferenceOpaque_t>();
	Preference *p = (Preference *) *out;
	*p = Preference{PREFERENCE_MAGIC, 0, 256, 256, 256, 256};
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
	Call call(__func__);

	return descriptor_free<cublasLtMatmulPreferenceOpaque_t, Preference>(preference, PREFERENCE_MAGIC);
}

cublasStatus_t
cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
									 const void *buffer, size_t bytes)
{
	CUBLAS_CALL();
	return preference_attribute(true, (Preference *) preference, attribute, (void *) buffer, bytes);
}

cublasStatus_t
cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
							   cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
							   cublasLtMatmulPreference_t preference, int requested,
							   cublasLtMatmulHeuristicResult_t *results, int *returned)
{
	Preference *pref = (Preference *) preference;
	Problem p;
	cublasStatus_t status;
	Algo algo;

	CUBLAS_CALL();
	if (handle == nullptr)
		return CUBLAS_STATUS_NOT_INITIALIZED;
	if (desc == nullptr || a == nullptr || b == nullptr || c == nullptr || d == nullptr || pref == nullptr
		|| pref->magic != PREFERENCE_MAGIC || requested <= 0 || results == nullptr || returned == nullptr)
		return CUBLAS_STATUS_INVALID_VALUE;
	*returned = 0;
	p = Problem{*(MatmulDesc *) desc, *(Layout *) a, *(Layout *) b, *(Layout *) c, *(Layout *) d, 0, 0, 0};
	if ((status = check_problem(&p)) != CUBLAS_STATUS_SUCCESS)
		return status;
	algo = Algo{ALGO_MAGIC, hash_problem(p), std::min<uint64_t>(pref->workspace, 4 * p.m * p.n), pref->align_a,
	pref->align_b, pref->align_c, pref->align_d};
	memset(results, 0, sizeof(*results));
	memcpy(&results->algo, &algo, sizeof(algo));
	results->workspaceSize = algo.workspace;
	results->state = CUBLAS_STATUS_SUCCESS;
	*returned = 1;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
			   cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,
			   const void *c, cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,
			   const cublasLtMatmulAlgo_t *algo_given, void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
	Problem p;
	Algo algo;
	float scale,
				keep;
	cublasStatus_t status;
	CUstream_st *where;

	CUBLAS_CALL();
	if (handle == nullptr)
		return CUBLAS_STATUS_NOT_INITIALIZED;
	if (desc == nullptr || a_layout == nullptr || b_layout == nullptr || c_layout == nullptr || d_layout == nullptr
		|| alpha == nullptr || beta == nullptr || a == nullptr || b == nullptr || d == nullptr)
		return refuse(CUBLAS_STATUS_INVALID_VALUE, "an argument is missing");
	if (!stream_is_known(stream) || stream_of(stream)->device != handle->device)
		return refuse(CUBLAS_STATUS_INVALID_VALUE, "the stream is of another device");
	p = Problem{*(MatmulDesc *) desc, *(Layout *) a_layout, *(Layout *) b_layout, *(Layout *) c_layout,
	*(Layout *) d_layout, 0, 0, 0};
	if ((status = check_problem(&p)) != CUBLAS_STATUS_SUCCESS)
		return status;
	if (p.desc.pointer_mode != CUBLASLT_POINTER_MODE_HOST)
		return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "alpha and beta on the device");
	if (uses_bias(p.desc.epilogue) && p.desc.bias == nullptr)
		return refuse(CUBLAS_STATUS_INVALID_VALUE, "the bias pointer is missing");
	if (uses_aux(p.desc.epilogue) && (p.desc.aux == nullptr || !aligned(p.desc.aux, 16)))
		return refuse(CUBLAS_STATUS_INVALID_VALUE, "the auxiliary pointer is missing or not aligned");
	scale = *(const float *) alpha;
	keep = *(const float *) beta;
	if (keep != 0 && c == nullptr)
		return refuse(CUBLAS_STATUS_INVALID_VALUE, "C is missing");
	if (algo_given != nullptr)
	{
		memcpy(&algo, algo_given, sizeof(algo));
		if (algo.magic != ALGO_MAGIC)
			return refuse(CUBLAS_STATUS_INVALID_VALUE, "the algorithm is not from the heuristic");
		if (algo.problem != hash_problem(p))
			return refuse(CUBLAS_STATUS_INVALID_VALUE, "the algorithm is for another product");
		if (workspace_bytes < algo.workspace || (algo.workspace > 0 && workspace == nullptr))
			return refuse(CUBLAS_STATUS_INVALID_VALUE, "the workspace is too small");
		if (!aligned(a, algo.align_a) || !aligned(b, algo.align_b) || !aligned(d, algo.align_d)
			|| (keep != 0 && !aligned(c, algo.align_c)))
			return refuse(CUBLAS_STATUS_INVALID_VALUE, "a matrix is less aligned than the algorithm was told");
	}
	else
		algo.workspace = std::min<size_t>(workspace_bytes, 4 * p.m * p.n);
	if (algo.workspace > 0 && !aligned(workspace, 16))
		return refuse(CUBLAS_STATUS_INVALID_VALUE, "the workspace is not aligned");
	where = stream_of(stream);
	return enqueue(where, "cublasLtMatmul", [=]
	{
		const void *used[] = {a, b, keep != 0 ? c : d, d, algo.workspace > 0 ? workspace : d,
		uses_bias(p.desc.epilogue) ? p.desc.bias : d, uses_aux(p.desc.epilogue) ? p.desc.aux : d};

		for (const void *pointer : used)
			if (!memory_device_may_use(where->device, pointer))
			{
				lose_device(where->device, cudaErrorIllegalAddress, "cublasLtMatmul was given %s",
							memory_describe(pointer).c_str());
				return Step::done;
			}
		run(p, scale, a, b, keep, c, d);
		if (algo.workspace > 0)
			memory_poison(workspace, algo.workspace);
		return Step::done;
	}) == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}								/* extern "C" */
