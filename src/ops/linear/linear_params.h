/* Parameters of linear's kernels that need no tensor map. The host's code and the kernels include
 * this file. */
#ifndef VT_OPS_LINEAR_LINEAR_PARAMS_H
#define VT_OPS_LINEAR_LINEAR_PARAMS_H

#ifndef VT_KERNEL
#include "ops/params_host.h"
#endif

/* linear_small.cu, linear_normed.cu, linear_ordered.cu, linear_any.cu, linear_quant.cu */
typedef struct linear_params {
    const uint16_t *x;
    const void *w;            /* BF16 rows, or quantised tiles */
    const float *bias;        /* linear_any.cu: may be NULL */
    const uint16_t *residual; /* linear_any.cu: may be NULL; may be y */
    void *y;
    int32_t x_stride, y_stride, residual_stride, n_tokens;
    int32_t rows;      /* outputs; for a pair their number after the activation */
    float scale, eps;  /* eps: where the kernel makes the norm */
    const float *norm; /* linear_normed.cu, linear_ordered.cu, linear_quant.cu: [cols] */
} linear_params;

/* gemm_sm80.cu */
typedef struct gemm_sm80_params {
    const uint16_t *x, *w;
    const float *bias;
    const uint16_t *residual;
    void *y;
    float *partial;    /* [SPLIT][tiles][256 threads][accumulators] */
    uint32_t *tickets; /* [tiles] */
    int32_t x_stride, y_stride, residual_stride, n_tokens, rows;
    float scale;
} gemm_sm80_params;

/* linear_bias.cu */
typedef struct linear_bias_params {
    const float *from;
    uint16_t *to;
    int32_t n;
} linear_bias_params;

/* quant_panel.cu */
typedef struct quant_panel_params {
    const uint8_t *w[2]; /* the first tiles of gate and of up */
    uint16_t *out;
    int32_t rows;
} quant_panel_params;

/* fp8_rows.cu */
typedef struct fp8_rows_params {
    const uint16_t *x;
    uint8_t *out;
    float *scale;
    int32_t x_stride, n_tokens, padded; /* padded: tokens of a row of scales */
} fp8_rows_params;

/* The rings of linear_ordered.cu in shared memory: a slot has ORDERED_CHUNK columns of some rows of
 * the weight and of some tokens. */
enum { ORDERED_CHUNK = 64 };
#define ORDERED_SLOT_BYTES(rows, tokens) (((rows) + (tokens)) * ORDERED_CHUNK * 2)
/* A normed row of linear_ordered.cu: rows begin in different banks. */
#define ORDERED_NORMED_BYTES(cols) ((cols)*2 + 16)
/* The elements of a row of linear_norm_rows.cuh: lines of 128 bytes, and `pad` elements more. */
enum { NORM_PAD = 32 };
#define NORM_ROW(cols, pad) (((cols) + 63) / 64 * 64 + (pad))

#endif
