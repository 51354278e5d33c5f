/* libcublasLt.so.13 of the emulated GPU: bf16 products y = alpha W^T x + beta c + bias of
 * column-major matrices with fp32 sums, which are all that src/device/cuda/cublaslt.c asks for;
 * anything else is refused. Its algorithms differ in the order of sums, and by 1/8192 of a
 * result, a difference that often survives rounding to bf16, so that tests see it. The
 * heuristic's choice of algorithm depends on the number of columns that it is asked about. So a
 * program that asks separately for padded and unpadded steps gets different bits.
 * VITRINE_EMULATOR=cublaslt=... makes it fail (emulator.h). */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/cublaslt_api.h"
#include "emulator.h"

#if defined __x86_64__ && defined __GNUC__ && !defined __clang__
#define CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define CLONES
#endif
#define API __attribute__((visibility("default")))

enum { SUCCESS = 0, NOT_INITIALIZED = 1, INVALID = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };

struct lt_context {
    int alive;
};
struct lt_desc_st {
    int32_t compute, scale, transposed, epilogue;
    const void *bias; /* of y's type, one for each of its rows */
};
struct lt_layout_st {
    int32_t type;
    uint64_t rows, cols;
    int64_t stride;
};
struct lt_preference_st {
    uint64_t workspace;
};

#define DECLARE(type, member, symbol, params) API type lt_##member params __asm__(symbol);
CUBLASLT_FUNCTIONS(DECLARE)
#undef DECLARE

/* Returns 1 if VITRINE_EMULATOR has cublaslt=`what`, else 0. */
static int told(const char *what)
{
    const char *set = getenv("VITRINE_EMULATOR"), *at = set ? strstr(set, "cublaslt=") : NULL;
    size_t n = strlen(what);
    return at && strncmp(at + 9, what, n) == 0 && (at[9 + n] == 0 || at[9 + n] == ',');
}

static int refuse(int status, const char *why)
{
    fprintf(stderr, "emulator: cublasLt: %s\n", why);
    return status;
}

size_t lt_version(void) { return 130000; }

const char *lt_status_text(int status)
{
    return status == SUCCESS            ? "success"
           : status == NOT_INITIALIZED  ? "the library was not initialized"
           : status == EXECUTION_FAILED ? "the GPU program failed to execute"
           : status == NOT_SUPPORTED    ? "the functionality is not supported"
                                        : "an invalid value";
}

/* ---- objects ---- */

static int make(void *slot, size_t bytes)
{
    void *p = calloc(1, bytes);
    memcpy(slot, &p, sizeof p);
    return p ? SUCCESS : NOT_INITIALIZED;
}

int lt_create(lt_handle *h) { return told("broken") ? NOT_INITIALIZED : make(h, sizeof **h); }

int lt_destroy(lt_handle h)
{
    free(h);
    return SUCCESS;
}

int lt_desc_create(lt_desc *d, int compute, int scale)
{
    if (compute != LT_COMPUTE_32F || scale != LT_R_32F)
        return refuse(NOT_SUPPORTED, "a product that is not in fp32");
    return make(d, sizeof **d);
}

int lt_desc_destroy(lt_desc d)
{
    free(d);
    return SUCCESS;
}

int lt_desc_set(lt_desc d, int which, const void *value, size_t bytes)
{
    void *to = which == LT_DESC_TRANSA     ? (void *)&d->transposed
               : which == LT_DESC_EPILOGUE ? (void *)&d->epilogue
               : which == LT_DESC_BIAS     ? (void *)&d->bias
                                           : NULL;
    if (!to || bytes != (which == LT_DESC_BIAS ? sizeof d->bias : sizeof d->epilogue))
        return refuse(INVALID, "an attribute of a product that is not known here");
    memcpy(to, value, bytes);
    return SUCCESS;
}

int lt_layout_create(lt_layout *l, int type, uint64_t rows, uint64_t cols, int64_t stride)
{
    if ((type != LT_R_16BF && type != LT_R_32F) || rows == 0 || cols == 0 || stride < (int64_t)rows)
        return refuse(INVALID, "a matrix whose columns overlap, or of an unknown type");
    int status = make(l, sizeof **l);
    if (status == SUCCESS)
        **l = (struct lt_layout_st){type, rows, cols, stride};
    return status;
}

int lt_layout_destroy(lt_layout l)
{
    free(l);
    return SUCCESS;
}

int lt_preference_create(lt_preference *p) { return make(p, sizeof **p); }

int lt_preference_destroy(lt_preference p)
{
    free(p);
    return SUCCESS;
}

int lt_preference_set(lt_preference p, int which, const void *value, size_t bytes)
{
    if (which == LT_PREF_WORKSPACE && bytes == sizeof p->workspace)
        memcpy(&p->workspace, value, bytes);
    else if (which < LT_PREF_ALIGN_A || which > LT_PREF_ALIGN_D || bytes != sizeof(uint32_t))
        return refuse(INVALID, "a preference that is not known here");
    return SUCCESS;
}

/* ---- products ---- */

static int check(lt_desc d, lt_layout a, lt_layout b, lt_layout c, lt_layout y)
{
    if (d->transposed != LT_OP_T || a->type != LT_R_16BF || b->type != LT_R_16BF ||
        c->type != y->type || (d->epilogue != 0 && d->epilogue != LT_EPILOGUE_BIAS))
        return refuse(NOT_SUPPORTED, "a product of other types, orders or epilogues");
    if (d->epilogue == LT_EPILOGUE_BIAS && (!d->bias || (uintptr_t)d->bias % 16))
        return refuse(INVALID, "a bias whose address is not a multiple of 16");
    if (a->rows != b->rows || a->cols != y->rows || b->cols != y->cols || c->rows != y->rows ||
        c->cols != y->cols)
        return refuse(INVALID, "matrices whose sizes do not fit each other");
    return SUCCESS;
}

int lt_heuristic(lt_handle h, lt_desc d, lt_layout a, lt_layout b, lt_layout c, lt_layout y,
                 lt_preference p, int most, lt_choice *choices, int *n)
{
    (void)h;
    int status = check(d, a, b, c, y);
    *n = 0;
    if (status != SUCCESS || told("none") || most < 1)
        return status;
    memset(choices, 0, sizeof *choices);
    choices->algo.data[0] = 1 + b->cols / 8 % 3; /* parts of a sum */
    choices->workspace = p->workspace < 4096 ? p->workspace : 4096;
    *n = 1;
    return SUCCESS;
}

typedef struct product {
    const uint16_t *a, *b;
    const void *c, *bias; /* bias NULL: there is none */
    void *y, *workspace;
    int64_t stride_a, stride_b, stride_c, stride_y;
    uint64_t n, m, k, parts;
    size_t workspace_bytes;
    int f32;
    float alpha, beta;
} product;

static float from_bf16(uint16_t v)
{
    uint32_t bits = (uint32_t)v << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint16_t to_bf16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return 0x7fff;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Sixteen columns of a row, at any alignment. */
typedef uint16_t short16 __attribute__((vector_size(32), aligned(2), may_alias));
typedef uint32_t word16 __attribute__((vector_size(64)));
typedef float float16 __attribute__((vector_size(64)));

__attribute__((always_inline)) static inline float16 sixteen(const uint16_t *p)
{
    word16 bits = __builtin_convertvector(*(const short16 *)p, word16) << 16;
    return (float16)bits;
}

/* a[0, n) . b[0, n), in sixteen sums: the products are most of what the emulated GPU computes. */
CLONES static float dot(const uint16_t *a, const uint16_t *b, uint64_t n)
{
    float16 sums = {0};
    uint64_t k = 0;
    float sum = 0;
    for (; k + 16 <= n; k += 16)
        sums += sixteen(a + k) * sixteen(b + k);
    for (; k < n; k++)
        sum += from_bf16(a[k]) * from_bf16(b[k]);
    for (int i = 0; i < 16; i++)
        sum += sums[i];
    return sum;
}

static float sum_of(const product *p, uint64_t row, uint64_t col)
{
    const uint16_t *a = p->a + (int64_t)row * p->stride_a, *b = p->b + (int64_t)col * p->stride_b;
    float whole = 0;
    for (uint64_t i = 0; i < p->parts; i++) {
        uint64_t from = i * p->k / p->parts, to = (i + 1) * p->k / p->parts;
        whole += dot(a + from, b + from, to - from);
    }
    return whole * (1 + (float)p->parts / 8192);
}

static float value_at(const void *of, int64_t at, int f32)
{
    return f32 ? ((const float *)of)[at] : from_bf16(((const uint16_t *)of)[at]);
}

static int run(const void *params)
{
    const product *p = params;
    memset(p->workspace, 0xff, p->workspace_bytes);
    for (uint64_t t = 0; t < p->m; t++)
        for (uint64_t j = 0; j < p->n; j++) {
            int64_t at = (int64_t)t * p->stride_y + (int64_t)j,
                    c = (int64_t)t * p->stride_c + (int64_t)j;
            float v = p->alpha * sum_of(p, j, t);
            if (p->beta != 0)
                v += p->beta * value_at(p->c, c, p->f32);
            if (p->bias)
                v += value_at(p->bias, (int64_t)j, p->f32);
            if (p->f32)
                ((float *)p->y)[at] = v;
            else
                ((uint16_t *)p->y)[at] = to_bf16(v);
        }
    return 0;
}

int lt_matmul(lt_handle h, lt_desc d, const void *alpha, const void *a, lt_layout la, const void *b,
              lt_layout lb, const void *beta, const void *c, lt_layout lc, void *y, lt_layout ly,
              const lt_algorithm *algo, void *workspace, size_t workspace_bytes,
              struct cu_stream_st *s)
{
    (void)h;
    int status = check(d, la, lb, lc, ly);
    if (status != SUCCESS || told("failing"))
        return status != SUCCESS ? status : EXECUTION_FAILED;
    if (((uintptr_t)a | (uintptr_t)b | (uintptr_t)c | (uintptr_t)y | (uintptr_t)workspace) % 16)
        return refuse(INVALID, "an address that is not a multiple of 16");
    if (algo->data[0] < 1 || algo->data[0] > 3 || workspace_bytes < 4096)
        return refuse(INVALID, "an algorithm that the heuristic did not give");
    product p = {.a = a,
                 .b = b,
                 .c = c,
                 .bias = d->epilogue == LT_EPILOGUE_BIAS ? d->bias : NULL,
                 .y = y,
                 .workspace = workspace,
                 .workspace_bytes = 4096,
                 .stride_a = la->stride,
                 .stride_b = lb->stride,
                 .stride_c = lc->stride,
                 .stride_y = ly->stride,
                 .n = ly->rows,
                 .m = ly->cols,
                 .k = la->rows,
                 .parts = algo->data[0],
                 .f32 = ly->type == LT_R_32F};
    memcpy(&p.alpha, alpha, sizeof p.alpha);
    memcpy(&p.beta, beta, sizeof p.beta);
    return emu_submit(s, run, &p, sizeof p) == 0 ? SUCCESS : EXECUTION_FAILED;
}
