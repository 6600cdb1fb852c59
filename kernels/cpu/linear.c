/*
 * linear.c - the linear layer.  Compiled once per instruction set.
 */
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/ops.h"

#include <string.h>

/* Outputs up to which rows are dotted with the weights instead of tiled. */
#define DOT_OUTPUTS 2

/* Rows of dy that are summed in float before their sum is added in double. */
#define SUM_BLOCK 256

ALWAYS_INLINE float
dot(const void *x, const float *w, size_t k, const DType dtype)
{
	Vector		a = vector_set(0),
				b = vector_set(0);
	float		lanes[VECTOR_FLOATS],
				sum = 0;
	size_t		i = 0,
				j;

	if (dtype == DTYPE_F32)
	{
		const float *f = x;

		for (; i + 2 * VECTOR_FLOATS <= k; i += 2 * VECTOR_FLOATS)
		{
			a += vector_load(f + i) * vector_load(w + i);
			b += vector_load(f + i + VECTOR_FLOATS) * vector_load(w + i + VECTOR_FLOATS);
		}
	}
	a += b;
	for (; i < k; i++)
		sum += load(x, i, dtype) * w[i];
	vector_store(lanes, a);
	for (j = 0; j < VECTOR_FLOATS; j++)
		sum += lanes[j];
	return sum;
}

/* w (n, k) in fp32, y (rows, n) */
ALWAYS_INLINE void
dot_rows(size_t rows, size_t n, size_t k, const void *x, const float *w, const float *b, float *y,
		 const DType dtype)
{
	size_t		i,
				j;

	for (i = 0; i < rows; i++)
		for (j = 0; j < n; j++)
			y[i * n + j] = dot(const_element(x, dtype, i * k), w + j * k, k, dtype)
				+ (b != NULL ? b[j] : 0.0f);
}

static void
act_floats(Activation act, size_t n, float *y)
{
	size_t		i;

	switch (act)
	{
		case ACT_NONE:
			break;
		case ACT_RELU:
			for (i = 0; i < n; i++)
				y[i] = math_relu(y[i]);
			break;
		case ACT_GELU:
			for (i = 0; i < n; i++)
				y[i] = math_gelu(y[i]);
			break;
		case ACT_TANH:
			for (i = 0; i < n; i++)
				y[i] = math_tanh(y[i]);
			break;
		case ACT_SIGMOID:
			for (i = 0; i < n; i++)
				y[i] = math_sigmoid(y[i]);
			break;
	}
}

/* Few outputs: a tile would mostly compute columns that do not exist. */
static Status
linear_fwd_dot(Backend *be, size_t m, size_t n, size_t k, const void *x, const void *w, const float *b,
			   Activation act, void *y, DType dtype, DType out, Error *err)
{
	int			nt = threads_for(be, (double) m * (double) n * ((double) k * 0.1 + 5.0));
	const float *weights = w;
	void	   *workspace;

	if (dtype != DTYPE_F32)
	{
		float	   *converted;
		size_t		i;

		TRY(cpu_workspace(be, WORKSPACE_PACK_B, n * k * sizeof(float), &workspace, err));
		converted = workspace;
		DTYPE_SWITCH(dtype, D, for (i = 0; i < n * k; i++) converted[i] = load(w, i, D));
		weights = converted;
	}
	PARALLEL(nt)
	{
		float		sums[SUM_BLOCK * DOT_OUTPUTS];
		size_t		lo,
					hi,
					i,
					j;

		thread_range(m, 1, thread_index(), thread_count(), &lo, &hi);
		for (i = lo; i < hi; i += SUM_BLOCK)
		{
			size_t		rows = min_size(SUM_BLOCK, hi - i);

			DTYPE_SWITCH(dtype, D, dot_rows(rows, n, k, const_element(x, D, i * k), weights, b, sums, D));
			act_floats(act, rows * n, sums);
			DTYPE_SWITCH(out, D, for (j = 0; j < rows * n; j++) store(y, i * n + j, sums[j], D));
		}
	}
	return STATUS_OK;
}

/* Rows up to which weights are read where they lie: packing them for the tile would cost more than the product. */
#define FEW_ROWS 4

/* The sums of the lanes of VECTOR_FLOATS vectors. */
ALWAYS_INLINE void
lane_sums(const Vector *v, float *sums)
{
	size_t		r,
				i;

	for (r = 0; r < VECTOR_FLOATS; r += 4)
	{
		Quad		q[4],
					ab,
					cd;

		for (i = 0; i < 4; i++)
		{
			union
			{
				Vector		v;
				Quad		q[VECTOR_FLOATS / 4];
			}			parts = {v[r + i]};
			size_t		p;

			q[i] = parts.q[0];
			for (p = 1; p < VECTOR_FLOATS / 4; p++)
				q[i] += parts.q[p];
		}
		ab = PGT_SHUFFLE(q[0], q[1], 0, 4, 1, 5) + PGT_SHUFFLE(q[0], q[1], 2, 6, 3, 7);
		cd = PGT_SHUFFLE(q[2], q[3], 0, 4, 1, 5) + PGT_SHUFFLE(q[2], q[3], 2, 6, 3, 7);
		*(QuadMemory *) (sums + r) = PGT_SHUFFLE(ab, cd, 0, 1, 4, 5) + PGT_SHUFFLE(ab, cd, 2, 3, 6, 7);
	}
}

/* y (n) = x (k) w (n, k)^T + b, for k >= VECTOR_FLOATS */
static void
one_row(size_t n, size_t k, const float *x, const float *w, const float *b, float *y)
{
	size_t		rest = k % VECTOR_FLOATS,
				i,
				j,
				r;
	float		last[VECTOR_FLOATS] = {0};
	Vector		x_last;

	/* the rest is read as the end of a whole vector, where the lanes before it count for nothing */
	memcpy(last + VECTOR_FLOATS - rest, x + k - rest, rest * sizeof(float));
	x_last = vector_load(last);
	for (j = 0; j + VECTOR_FLOATS <= n; j += VECTOR_FLOATS)
	{
		const float *rows = w + j * k;
		Vector		sum[VECTOR_FLOATS];

		for (r = 0; r < VECTOR_FLOATS; r++)
			sum[r] = rest > 0 ? x_last * vector_load(rows + (r + 1) * k - VECTOR_FLOATS) : vector_set(0);
		for (i = 0; i + VECTOR_FLOATS <= k; i += VECTOR_FLOATS)
		{
			Vector		v = vector_load(x + i);

			for (r = 0; r < VECTOR_FLOATS; r++)
				sum[r] += v * vector_load(rows + r * k + i);
		}
		lane_sums(sum, y + j);
	}
	for (; j < n; j++)
		y[j] = dot(x, w + j * k, k, DTYPE_F32);
	if (b != NULL)
		for (j = 0; j < n; j++)
			y[j] += b[j];
}

/* Few rows, as in scoring one at a time. */
static void
linear_fwd_few(Backend *be, size_t m, size_t n, size_t k, const float *x, const float *w, const float *b,
			   Activation act, float *y)
{
	int			nt = threads_for(be, (double) m * (double) n * ((double) k * 0.1 + 2.0));

	PARALLEL(nt)
	{
		size_t		lo,
					hi,
					i;

		thread_range(n, VECTOR_FLOATS, thread_index(), thread_count(), &lo, &hi);
		for (i = 0; i < m && lo < hi; i++)
		{
			one_row(hi - lo, k, x + i * k, w + lo * k, b == NULL ? NULL : b + lo, y + i * n + lo);
			act_floats(act, hi - lo, y + i * n + lo);
		}
	}
}

#if defined(HAVE_ONEDNN)
static Status
linear_fwd_onednn(Backend *be, size_t m, size_t n, size_t k, const void *x, const void *w, const float *b,
				  Activation act, void *y, DType out, Error *err)
{
	TRY(onednn_linear_fwd(be, m, n, k, x, w, b, y, out, err));
	return act == ACT_NONE ? STATUS_OK : op_act_fwd(be, act, m * n, y, y, out, err);
}
#endif

Status
op_linear_fwd(Backend *be, size_t m, size_t n, size_t k, const void *x, const void *w, const float *b,
			  Activation act, void *y, DType dtype, DType out, Error *err)
{
	Matrix		xm = {x, k, 1, dtype},
				wt = {w, 1, k, dtype};
	TileOutput	output = {.c = y,.c_row = n,.dtype = out,.beta = 0.0f,.bias = b,.act = act};

	TRY(cpu_check_dtype(dtype, "linear", err));
	TRY(cpu_check_dtype(out, "linear", err));
	if ((unsigned) act > ACT_SIGMOID)
		return error_set(err, STATUS_INTERNAL, "unknown activation %d", (int) act);
	ONEDNN_FIRST(be, dtype, linear_fwd_onednn(be, m, n, k, x, w, b, act, y, out, err));
	if (n <= DOT_OUTPUTS)
		return linear_fwd_dot(be, m, n, k, x, w, b, act, y, dtype, out, err);
	if (m <= FEW_ROWS && k >= VECTOR_FLOATS && dtype == DTYPE_F32 && out == DTYPE_F32)
	{
		linear_fwd_few(be, m, n, k, x, w, b, act, y);
		return STATUS_OK;
	}
	return gemm(be, m, n, k, &xm, &wt, &output, err);
}

Status
op_linear_bwd_data(Backend *be, size_t m, size_t n, size_t k, const void *dy, const void *w, void *dx,
				   DType dtype, Error *err)
{
	Matrix		dym = {dy, n, 1, dtype},
				wm = {w, k, 1, dtype};
	TileOutput	output = {.c = dx,.c_row = k,.dtype = dtype,.beta = 0.0f,.bias = NULL,.act = ACT_NONE};

	TRY(cpu_check_dtype(dtype, "linear", err));
	ONEDNN_FIRST(be, dtype, onednn_linear_bwd_data(be, m, n, k, dy, w, dx, err));
	return gemm(be, m, k, n, &dym, &wm, &output, err);
}

/* Columns that bias_gradient sums at a time. */
#define BIAS_COLUMNS 64

ALWAYS_INLINE void
bias_block(size_t rows, size_t n, size_t columns, const void *dy, float *sum, const DType dtype)
{
	size_t		i,
				j;

	for (j = 0; j < BIAS_COLUMNS; j++)
		sum[j] = 0;
	if (columns == BIAS_COLUMNS)
		for (i = 0; i < rows; i++)
			for (j = 0; j < BIAS_COLUMNS; j++)
				sum[j] += load(dy, i * n + j, dtype);
	else
		for (i = 0; i < rows; i++)
			for (j = 0; j < columns; j++)
				sum[j] += load(dy, i * n + j, dtype);
}

/* db = beta db + column sums of dy (m, n), in double over blocks of rows */
static void
bias_gradient(Backend *be, size_t m, size_t n, const void *dy, float *db, float beta, DType dtype)
{
	size_t		groups = (n + BIAS_COLUMNS - 1) / BIAS_COLUMNS;
	int			nt = groups > 1 ? threads_for(be, (double) m * (double) n * 0.15) : 1;

	PARALLEL(nt)
	{
		size_t		lo,
					hi,
					i,
					j,
					first;

		thread_range(n, BIAS_COLUMNS, thread_index(), thread_count(), &lo, &hi);
		for (first = lo; first < hi; first += BIAS_COLUMNS)
		{
			size_t		columns = min_size(BIAS_COLUMNS, hi - first);
			double		total[BIAS_COLUMNS] = {0};
			float		sum[BIAS_COLUMNS];

			for (i = 0; i < m; i += SUM_BLOCK)
			{
				DTYPE_SWITCH(dtype, D, bias_block(min_size(SUM_BLOCK, m - i), n, columns,
												  const_element(dy, D, i * n + first), sum, D));
				for (j = 0; j < BIAS_COLUMNS; j++)
					total[j] += (double) sum[j];
			}
			for (j = 0; j < columns; j++)
				db[first + j] = (float) total[j] + (beta == 0.0f ? 0.0f : beta * db[first + j]);
		}
	}
}

Status
op_linear_bwd_weight(Backend *be, size_t m, size_t n, size_t k, const void *dy, const void *x, float *dw,
					 float *db, float beta, DType dtype, Error *err)
{
	Matrix		dyt = {dy, 1, n, dtype},
				xm = {x, k, 1, dtype};
	TileOutput	output = {.c = dw,.c_row = k,.dtype = DTYPE_F32,.beta = beta,.bias = NULL,.act = ACT_NONE};

	TRY(cpu_check_dtype(dtype, "linear", err));
	ONEDNN_FIRST(be, dtype, onednn_linear_bwd_weight(be, m, n, k, dy, x, dw, db, beta, err));
	if (db != NULL)
		bias_gradient(be, m, n, dy, db, beta, dtype);
	return gemm(be, n, k, m, &dyt, &xm, &output, err);
}
