/*
 * layers_text.h - layers from a line of text, for tests.
 */
#ifndef PGT_TEST_LAYERS_TEXT_H
#define PGT_TEST_LAYERS_TEXT_H

#include "engine/spec.h"

/* Layers from a line of text: "conv2d:4,3,1,1 relu [ batchnorm linear!:5 ] maxpool2d:2 dropout:0.5". */
typedef struct Layers
{
	LayerSpec	spec[64];
	int32_t		n;
} Layers;

/*
 * kind[:numbers].  conv2d:out,kernel[,stride[,padding]], pools: kernel[,stride[,padding]], linear:out, dropout:p; "!" after
 * the kind: without bias; "[" ... "]": a residual block.  A kernel or padding of the form 3x2 is height x width.
 */
extern Layers layers_parse(const char *text);

#endif							/* PGT_TEST_LAYERS_TEXT_H */
