/*
 * reference.c - the operations in double precision.
 */
#include "regress/unit/ops/reference.h"

#include <math.h>
#include <string.h>

double
ref_act(Activation act, double x)
{
	switch (act)
	{
		case ACT_RELU:
			return x < 0 ? 0 : x;
		case ACT_GELU:
			return isinf(x) ? (x > 0 ? x : 0) : x * 0.5 * erfc(-x / sqrt(2.0));
		case ACT_TANH:
			return tanh(x);
		case ACT_SIGMOID:
			return 1 / (1 + exp(-x));
		case ACT_NONE:
			break;
	}
	return x;
}

double
ref_act_slope(Activation act, double x)
{
	double		y = ref_act(act, x);

	switch (act)
	{
		case ACT_RELU:
			return x > 0 ? 1 : 0;
		case ACT_GELU:
			return 0.5 * erfc(-x / sqrt(2.0)) + x * exp(-x * x / 2) / sqrt(2 * acos(-1.0));
		case ACT_TANH:
			return 1 - y * y;
		case ACT_SIGMOID:
			return y * (1 - y);
		case ACT_NONE:
			break;
	}
	return 1;
}

void
ref_linear_fwd(size_t m, size_t n, size_t k, const double *x, const double *w, const double *b, Activation act,
			   double *y)
{
	size_t		i,
				j,
				p;

	for (i = 0; i < m; i++)
		for (j = 0; j < n; j++)
		{
			double		sum = b != NULL ? b[j] : 0;

			for (p = 0; p < k; p++)
				sum += x[i * k + p] * w[j * k + p];
			y[i * n + j] = ref_act(act, sum);
		}
}

void
ref_linear_bwd_data(size_t m, size_t n, size_t k, const double *dy, const double *w, double *dx)
{
	size_t		i,
				j,
				p;

	for (i = 0; i < m; i++)
		for (p = 0; p < k; p++)
		{
			double		sum = 0;

			for (j = 0; j < n; j++)
				sum += dy[i * n + j] * w[j * k + p];
			dx[i * k + p] = sum;
		}
}

void
ref_linear_bwd_weight(size_t m, size_t n, size_t k, const double *dy, const double *x, double *dw, double *db)
{
	size_t		i,
				j,
				p;

	memset(dw, 0, n * k * sizeof(double));
	memset(db, 0, n * sizeof(double));
	for (i = 0; i < m; i++)
		for (j = 0; j < n; j++)
		{
			db[j] += dy[i * n + j];
			for (p = 0; p < k; p++)
				dw[j * k + p] += dy[i * n + j] * x[i * k + p];
		}
}

Conv2dShape
ref_conv_shape(int c_in, int h, int w, int c_out, int kernel_h, int kernel_w, int stride_h, int stride_w,
			   int pad_h, int pad_w)
{
	Conv2dShape s = {c_in, h, w, c_out, kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, 0, 0};

	s.h_out = (h + 2 * pad_h - kernel_h) / stride_h + 1;
	s.w_out = (w + 2 * pad_w - kernel_w) / stride_w + 1;
	return s;
}

size_t
ref_in_size(const Conv2dShape *s, size_t n)
{
	return n * (size_t) s->h * (size_t) s->w * (size_t) s->c_in;
}

size_t
ref_out_size(const Conv2dShape *s, size_t n)
{
	return n * (size_t) s->h_out * (size_t) s->w_out * (size_t) s->c_out;
}

size_t
ref_weight_size(const Conv2dShape *s)
{
	return (size_t) s->c_out * (size_t) s->kernel_h * (size_t) s->kernel_w * (size_t) s->c_in;
}

/* Index of a pixel's channel 0, or -1 where it lies in the padding. */
static long
pixel(const Conv2dShape *s, size_t image, int oh, int ow, int kh, int kw)
{
	long		ih = (long) oh * s->stride_h - s->pad_h + kh,
				iw = (long) ow * s->stride_w - s->pad_w + kw;

	if (ih < 0 || iw < 0 || ih >= s->h || iw >= s->w)
		return -1;
	return (((long) image * s->h + ih) * s->w + iw) * s->c_in;
}

#define FOR_EACH_OUTPUT(s, n) \
	for (i = 0; i < (n); i++) \
		for (oh = 0; oh < (s)->h_out; oh++) \
			for (ow = 0; ow < (s)->w_out; ow++) \
				for (o = 0; o < (s)->c_out; o++)

#define FOR_EACH_TAP(s) \
	for (kh = 0; kh < (s)->kernel_h; kh++) \
		for (kw = 0; kw < (s)->kernel_w; kw++)

#define OUTPUT(s) (((i * (size_t) (s)->h_out + (size_t) oh) * (size_t) (s)->w_out + (size_t) ow) \
				   * (size_t) (s)->c_out + (size_t) o)

void
ref_conv2d_fwd(const Conv2dShape *s, size_t n, const double *x, const double *w, const double *b,
			   Activation act, double *y)
{
	size_t		i;
	int			oh,
				ow,
				o,
				kh,
				kw,
				c;

	FOR_EACH_OUTPUT(s, n)
	{
		double		sum = b != NULL ? b[o] : 0;

		FOR_EACH_TAP(s)
		{
			long		at = pixel(s, i, oh, ow, kh, kw);

			for (c = 0; at >= 0 && c < s->c_in; c++)
				sum += x[at + c] * w[((o * s->kernel_h + kh) * s->kernel_w + kw) * s->c_in + c];
		}
		y[OUTPUT(s)] = ref_act(act, sum);
	}
}

void
ref_conv2d_bwd(const Conv2dShape *s, size_t n, const double *dy, const double *x, const double *w, double *dx,
			   double *dw, double *db)
{
	size_t		i;
	int			oh,
				ow,
				o,
				kh,
				kw,
				c;

	memset(dx, 0, ref_in_size(s, n) * sizeof(double));
	memset(dw, 0, ref_weight_size(s) * sizeof(double));
	memset(db, 0, (size_t) s->c_out * sizeof(double));
	FOR_EACH_OUTPUT(s, n)
	{
		double		g = dy[OUTPUT(s)];

		db[o] += g;
		FOR_EACH_TAP(s)
		{
			long		at = pixel(s, i, oh, ow, kh, kw);

			for (c = 0; at >= 0 && c < s->c_in; c++)
			{
				int			weight = ((o * s->kernel_h + kh) * s->kernel_w + kw) * s->c_in + c;

				dx[at + c] += g * w[weight];
				dw[weight] += g * x[at + c];
			}
		}
	}
}

void
ref_maxpool2d_fwd(const Conv2dShape *s, size_t n, const double *x, int relu, double *y, uint8_t *argmax)
{
	size_t		i;
	int			oh,
				ow,
				o,
				kh,
				kw;

	FOR_EACH_OUTPUT(s, n)
	{
		double		best = -INFINITY;
		int			arg = -1;

		FOR_EACH_TAP(s)
		{
			long		at = pixel(s, i, oh, ow, kh, kw);

			if (at >= 0 && (arg < 0 || x[at + o] > best || isnan(x[at + o])))
			{
				best = x[at + o];
				arg = kh * s->kernel_w + kw;
			}
		}
		if (relu && best <= 0)
		{
			best = 0;
			arg = 255;
		}
		y[OUTPUT(s)] = best;
		argmax[OUTPUT(s)] = (uint8_t) arg;
	}
}

void
ref_maxpool2d_bwd(const Conv2dShape *s, size_t n, const double *dy, const uint8_t *argmax, double *dx)
{
	size_t		i;
	int			oh,
				ow,
				o;

	memset(dx, 0, ref_in_size(s, n) * sizeof(double));
	FOR_EACH_OUTPUT(s, n)
	{
		int			arg = argmax[OUTPUT(s)];

		if (arg != 255)
			dx[pixel(s, i, oh, ow, arg / s->kernel_w, arg % s->kernel_w) + o] += dy[OUTPUT(s)];
	}
}

void
ref_avgpool2d_fwd(const Conv2dShape *s, size_t n, const double *x, double *y)
{
	size_t		i;
	int			oh,
				ow,
				o,
				kh,
				kw;

	FOR_EACH_OUTPUT(s, n)
	{
		double		sum = 0;

		FOR_EACH_TAP(s)
		{
			long		at = pixel(s, i, oh, ow, kh, kw);

			if (at >= 0)
				sum += x[at + o];
		}
		y[OUTPUT(s)] = sum / (s->kernel_h * s->kernel_w);
	}
}

void
ref_avgpool2d_bwd(const Conv2dShape *s, size_t n, const double *dy, double *dx)
{
	size_t		i;
	int			oh,
				ow,
				o,
				kh,
				kw;

	memset(dx, 0, ref_in_size(s, n) * sizeof(double));
	FOR_EACH_OUTPUT(s, n)
		FOR_EACH_TAP(s)
		{
			long		at = pixel(s, i, oh, ow, kh, kw);

			if (at >= 0)
				dx[at + o] += dy[OUTPUT(s)] / (s->kernel_h * s->kernel_w);
		}
}

void
ref_column_moments(size_t m, size_t c, const double *x, double *mean, double *var)
{
	size_t		i,
				j;

	for (j = 0; j < c; j++)
	{
		mean[j] = var[j] = 0;
		for (i = 0; i < m; i++)
			mean[j] += x[i * c + j] / (double) m;
		for (i = 0; i < m; i++)
			var[j] += (x[i * c + j] - mean[j]) * (x[i * c + j] - mean[j]) / (double) m;
	}
}

/*
 * Normalisation groups: by columns a group is one column over m rows, by rows it is one row over c columns.
 * Element e of group g; gamma and beta go with the column in both.
 */
#define GROUPS(m, c, by_column) ((by_column) ? (c) : (m))
#define GROUP_SIZE(m, c, by_column) ((by_column) ? (m) : (c))
#define AT(c, by_column, g, e) ((by_column) ? (e) * (c) + (g) : (g) * (c) + (e))
#define COLUMN(by_column, g, e) ((by_column) ? (g) : (e))

void
ref_norm(size_t m, size_t c, int by_column, const double *x, const double *gamma, const double *beta, double eps,
		 double *mean, double *invstd, double *y)
{
	size_t		size = GROUP_SIZE(m, c, by_column),
				g,
				e;

	for (g = 0; g < GROUPS(m, c, by_column); g++)
	{
		double		var = 0;

		mean[g] = 0;
		for (e = 0; e < size; e++)
			mean[g] += x[AT(c, by_column, g, e)] / (double) size;
		for (e = 0; e < size; e++)
			var += pow(x[AT(c, by_column, g, e)] - mean[g], 2) / (double) size;
		invstd[g] = 1 / sqrt(var + eps);
		for (e = 0; e < size; e++)
			y[AT(c, by_column, g, e)] = (x[AT(c, by_column, g, e)] - mean[g]) * invstd[g]
				* gamma[COLUMN(by_column, g, e)] + beta[COLUMN(by_column, g, e)];
	}
}

void
ref_norm_bwd(size_t m, size_t c, int by_column, const double *x, const double *dy, const double *gamma,
			 const double *mean, const double *invstd, double *dx, double *dgamma, double *dbeta)
{
	size_t		size = GROUP_SIZE(m, c, by_column),
				g,
				e;

	memset(dgamma, 0, c * sizeof(double));
	memset(dbeta, 0, c * sizeof(double));
	for (g = 0; g < GROUPS(m, c, by_column); g++)
	{
		double		sum = 0,
					dot = 0;

		for (e = 0; e < size; e++)
		{
			size_t		at = AT(c, by_column, g, e),
						column = COLUMN(by_column, g, e);
			double		xhat = (x[at] - mean[g]) * invstd[g];

			sum += dy[at] * gamma[column];
			dot += dy[at] * gamma[column] * xhat;
			dgamma[column] += dy[at] * xhat;
			dbeta[column] += dy[at];
		}
		for (e = 0; e < size; e++)
		{
			size_t		at = AT(c, by_column, g, e);
			double		xhat = (x[at] - mean[g]) * invstd[g];

			dx[at] = invstd[g] * (dy[at] * gamma[COLUMN(by_column, g, e)] - sum / (double) size
								  - xhat * dot / (double) size);
		}
	}
}

static double
log_sum_exp(size_t c, const double *x)
{
	double		max = x[0],
				sum = 0;
	size_t		j;

	for (j = 1; j < c; j++)
		max = x[j] > max ? x[j] : max;
	for (j = 0; j < c; j++)
		sum += exp(x[j] - max);
	return max + log(sum);
}

void
ref_loss(LossKind kind, size_t m, size_t c, const double *logits, const double *targets, double grad_scale,
		 double *dlogits, LossSums *sums)
{
	size_t		i,
				j;

	memset(sums, 0, sizeof(*sums));
	sums->rows = (double) m;
	for (i = 0; i < m; i++)
	{
		const double *x = logits + i * c;
		double	   *d = dlogits + i * c;

		if (kind == LOSS_CROSS_ENTROPY)
		{
			double		total = log_sum_exp(c, x);
			size_t		target = (size_t) targets[i],
						best = 0;

			for (j = 0; j < c; j++)
			{
				best = x[j] > x[best] ? j : best;
				d[j] = grad_scale * (exp(x[j] - total) - (j == target));
			}
			sums->loss += total - x[target];
			sums->correct += best == target;
		}
		else if (kind == LOSS_BCE_WITH_LOGITS)
		{
			double		pair[2] = {0, x[0]};

			sums->loss += log_sum_exp(2, pair) - targets[i] * x[0];
			sums->correct += (x[0] > 0) == (targets[i] > 0);
			d[0] = grad_scale * (1 / (1 + exp(-x[0])) - targets[i]);
		}
		else
			for (j = 0; j < c; j++)
			{
				double		e = x[j] - targets[i * c + j],
							size = fabs(e);

				sums->squared_error += e * e;
				sums->absolute_error += size;
				if (kind == LOSS_MSE)
				{
					sums->loss += e * e / (double) c;
					d[j] = grad_scale * 2 * e / (double) c;
				}
				else
				{
					sums->loss += (size < 1 ? e * e / 2 : size - 0.5) / (double) c;
					d[j] = grad_scale * (size < 1 ? e : (e > 0 ? 1 : -1)) / (double) c;
				}
			}
	}
}

/* torch.optim.SGD */
void
ref_sgd_step(size_t n, double *p, const double *g, double *buffer, const SgdArgs *a, const StepState *s)
{
	size_t		i;

	for (i = 0; i < n; i++)
	{
		double		d = g[i] * (double) s->grad_multiplier + (double) a->weight_decay * p[i];

		if (a->momentum != 0)
		{
			buffer[i] = s->step == 1 ? d : (double) a->momentum * buffer[i] + d;
			d = a->nesterov ? d + (double) a->momentum * buffer[i] : buffer[i];
		}
		p[i] -= (double) s->lr * d;
	}
}

/* torch.optim.Adam and AdamW */
void
ref_adam_step(size_t n, double *p, const double *g, double *m, double *v, const AdamArgs *a, const StepState *s)
{
	double		b1 = a->beta1,
				b2 = a->beta2;
	size_t		i;

	for (i = 0; i < n; i++)
	{
		double		d = g[i] * (double) s->grad_multiplier;

		if (a->decoupled)
			p[i] *= 1 - (double) s->lr * (double) a->weight_decay;
		else
			d += (double) a->weight_decay * p[i];
		m[i] = b1 * m[i] + (1 - b1) * d;
		v[i] = b2 * v[i] + (1 - b2) * d * d;
		p[i] -= (double) s->lr * (m[i] / (1 - pow(b1, (double) s->step)))
			/ (sqrt(v[i] / (1 - pow(b2, (double) s->step))) + (double) a->eps);
	}
}
