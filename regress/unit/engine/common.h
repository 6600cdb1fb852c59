/*
 * common.h - small networks and datasets for the engine's tests.
 */
#ifndef PGT_TEST_ENGINE_COMMON_H
#define PGT_TEST_ENGINE_COMMON_H

#include "engine/dataset.h"
#include "engine/network.h"
#include "engine/train.h"
#include "regress/unit/engine/layers_text.h"
#include "regress/unit/test.h"

#define FLAT(features) ((RowShape) {(features), 0, 0})
#define IMAGE(c, h, w) ((RowShape) {(c), (h), (w)})

/* The open CPU backend that all tests share. */
extern const BackendOps *test_ops(void);
extern Backend *test_backend(void);

/* Deterministic numbers: uniform in [-1, 1). */
extern float test_random(uint64_t seed, uint64_t index);

/* A network with a batch of data, for gradients. */
typedef struct Bench
{
	Network    *net;
	RowShape	input;
	LossKind	loss;
	size_t		rows,
				outputs;
	float	   *x;				/* (rows, input), images channels first */
	void	   *targets;		/* int32 or float (rows, outputs) */
	LossSums   *sums;			/* device */
	void	   *device_targets;
} Bench;

extern Bench bench_create(const char *layers, RowShape input, LossKind loss, size_t rows, DType dtype, int flags);
extern void bench_free(Bench *b);
/* The mean loss over the batch in training mode; with backward, the gradients of it are left in the network. */
extern double bench_loss(Bench *b, bool backward);
/* Logits in evaluation mode: (rows, outputs). */
extern void bench_eval(Bench *b, float *logits);
extern void bench_put_input(Bench *b);

/* Values of a tensor by its name; the caller frees. */
extern float *bench_tensor(Bench *b, int32_t i);
extern float *bench_gradient(Bench *b, int32_t i);

/* A finished dataset of float inputs.  targets: int32 classes (nclasses > 0) or floats. */
typedef struct Rows
{
	size_t		rows,
				width;
	float	   *x;
	void	   *targets;
	size_t		nclasses;
} Rows;

extern Dataset *dataset_from_rows(const Rows *rows, DatasetSpec spec);
/* Rows whose class is the sign of a few products: learnable, not linearly. */
extern Rows rows_two_classes(size_t rows, size_t width);
/* Rows whose target is a smooth function of the inputs, with mean 50 and a deviation of about 10. */
extern Rows rows_smooth(size_t rows, size_t width);
extern void rows_free(Rows *rows);

/* A TrainSpec with sensible values and these layers; the caller frees. */
extern TrainSpec *train_spec(const char *layers, RowShape input, Task task, LossKind loss, int32_t outputs);

#endif							/* PGT_TEST_ENGINE_COMMON_H */
