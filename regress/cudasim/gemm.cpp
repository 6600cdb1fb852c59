/*
 * gemm.cpp - a matrix product that is fast enough for tests: operands packed as fp32, a tile of the result in registers.
 */
#include "regress/cudasim/gemm.h"

#include <algorithm>
#include <vector>

#if defined(__x86_64__)
#define FOR_EACH_ISA __attribute__((target_clones("default", "arch=haswell", "arch=skylake-avx512")))
#else
#define FOR_EACH_ISA
#endif

namespace sim
{

static const size_t ROWS = 64;	/* of a tile */
static const size_t COLUMNS = 4;

static const size_t DEPTH = 64; /* summed at once, so that errors grow as slowly as they do on a GPU */

/* c (ROWS, COLUMNS) += a (k, ROWS) b (k, COLUMNS) */
FOR_EACH_ISA static void
tile(size_t k, const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c)
{
	float sum[COLUMNS][ROWS] = {};

	for (size_t p = 0; p < k; p++)
		for (size_t j = 0; j < COLUMNS; j++)
			for (size_t i = 0; i < ROWS; i++)
				sum[j][i] += a[p * ROWS + i] * b[p * COLUMNS + j];
	for (size_t j = 0; j < COLUMNS; j++)
		for (size_t i = 0; i < ROWS; i++)
			c[j * ROWS + i] += sum[j][i];
}

/* Groups of width rows, k by k, with zeros where there are no more rows. */
static std::vector<float>
pack(const Matrix &x, size_t rows, size_t k, size_t width, bool tf32)
{
	std::vector<float> packed((rows + width - 1) / width * width * k);

	for (size_t r = 0; r < rows; r++)
	{
		float *to = &packed[r / width * width * k + r % width];

		for (size_t p = 0; p < k; p++)
		{
			float value = load(x.type, x.data, r * x.row_step + p * x.column_step);

			to[p * width] = tf32 && x.type == Number::f32 ? round_tf32(value) : value;
		}
	}
	return packed;
}

void
gemm(size_t m, size_t n, size_t k, const Matrix &a, const Matrix &b, bool tf32, float *c)
{
	Matrix turned = {b.data, b.type, b.column_step, b.row_step};
	std::vector<float> left = pack(a, m, k, ROWS, tf32),
				right = pack(turned, n, k, COLUMNS, tf32);
	float part[COLUMNS * ROWS];

	for (size_t j = 0; j < n; j += COLUMNS)
		for (size_t i = 0; i < m; i += ROWS)
		{
			memset(part, 0, sizeof(part));
			for (size_t p = 0; p < k; p += DEPTH)
				tile(std::min(DEPTH, k - p), left.data() + i * k + p * ROWS, right.data() + j * k + p * COLUMNS, part);
			for (size_t column = 0; column < std::min(COLUMNS, n - j); column++)
				memcpy(c + (j + column) * m + i, part + column * ROWS, std::min(ROWS, m - i) * sizeof(float));
		}
}

}								/* namespace sim */
