/*
 * layers_text.c - layers from a line of text, for tests.
 */
#include "regress/unit/engine/layers_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct
{
	const char *name;
	LayerKind	kind;
}			kinds[] = {
	{"linear", LAYER_LINEAR}, {"conv2d", LAYER_CONV2D}, {"maxpool2d", LAYER_MAXPOOL2D},
	{"avgpool2d", LAYER_AVGPOOL2D}, {"global_avgpool", LAYER_GLOBAL_AVGPOOL}, {"flatten", LAYER_FLATTEN},
	{"batchnorm", LAYER_BATCHNORM}, {"layernorm", LAYER_LAYERNORM}, {"dropout", LAYER_DROPOUT},
	{"relu", LAYER_RELU}, {"gelu", LAYER_GELU}, {"tanh", LAYER_TANH}, {"sigmoid", LAYER_SIGMOID},
};

static void
fail(const char *text)
{
	fprintf(stderr, "bad layers in a test: %s\n", text);
	exit(2);
}

/* "3" or "3x2" */
static void
parse_pair(const char **p, int32_t *h, int32_t *w)
{
	char	   *end;

	*h = *w = strtol(*p, &end, 10);
	if (*end == 'x')
		*w = strtol(end + 1, &end, 10);
	*p = *end == ',' ? end + 1 : end;
}

static void
parse_numbers(LayerSpec *layer, const char *p)
{
	char	   *end;

	layer->kernel_h = layer->kernel_w = layer->stride_h = layer->stride_w = 1;
	switch (layer->kind)
	{
		case LAYER_LINEAR:
			layer->out = strtol(p, NULL, 10);
			break;
		case LAYER_DROPOUT:
			layer->p = *p != '\0' ? strtof(p, NULL) : 0.5f;
			break;
		case LAYER_CONV2D:
			layer->out = strtol(p, &end, 10);
			p = *end == ',' ? end + 1 : end;
			parse_pair(&p, &layer->kernel_h, &layer->kernel_w);
			if (*p != '\0')
				parse_pair(&p, &layer->stride_h, &layer->stride_w);
			if (*p != '\0')
				parse_pair(&p, &layer->pad_h, &layer->pad_w);
			break;
		case LAYER_MAXPOOL2D:
		case LAYER_AVGPOOL2D:
			parse_pair(&p, &layer->kernel_h, &layer->kernel_w);
			layer->stride_h = layer->kernel_h;
			layer->stride_w = layer->kernel_w;
			if (*p != '\0')
				parse_pair(&p, &layer->stride_h, &layer->stride_w);
			if (*p != '\0')
				parse_pair(&p, &layer->pad_h, &layer->pad_w);
			break;
		default:
			break;
	}
}

static void
parse_layer(LayerSpec *layer, char *word)
{
	char	   *numbers = strchr(word, ':');
	size_t		length,
				i;

	if (numbers != NULL)
		*numbers++ = '\0';
	length = strlen(word);
	layer->bias = 1;
	layer->eps = 1e-5f;
	layer->momentum = 0.1f;
	if (length > 0 && word[length - 1] == '!')
	{
		word[length - 1] = '\0';
		layer->bias = 0;
	}
	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
	{
		if (strcmp(kinds[i].name, word) != 0)
			continue;
		layer->kind = kinds[i].kind;
		parse_numbers(layer, numbers != NULL ? numbers : "");
		return;
	}
	fail(word);
}

Layers
layers_parse(const char *text)
{
	Layers		l;
	char	   *copy = strdup(text),
			   *word,
			   *rest = copy;
	int32_t		block[16];
	int32_t		number[16] = {0};
	int32_t		depth = 0,
				i;

	memset(&l, 0, sizeof(l));
	while ((word = strtok_r(rest, " ", &rest)) != NULL)
	{
		LayerSpec  *layer = &l.spec[l.n];
		size_t		used = 0;

		if (strcmp(word, "]") == 0)
		{
			depth--;
			l.spec[block[depth]].span = l.n - block[depth] - 1;
			continue;
		}
		if (l.n == 64)
			fail(text);
		for (i = 0; i <= depth; i++)
			used += snprintf(layer->name + used, sizeof(layer->name) - used, "%s%d", i > 0 ? "." : "",
							 i < depth ? number[i] - 1 : number[i]);
		number[depth]++;
		if (strcmp(word, "[") == 0)
		{
			layer->kind = LAYER_RESIDUAL;
			block[depth++] = l.n;
			number[depth] = 0;
		}
		else
			parse_layer(layer, word);
		l.n++;
	}
	if (depth != 0)
		fail(text);
	free(copy);
	return l;
}
