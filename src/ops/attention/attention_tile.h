/* The register tile of attention's two products: C[rows][cols] += A[rows][k] B[k][cols], B as fp32
 * in scratch, or as 16 bits there or in a pool, which are converted as they are loaded. */
#ifndef VT_OPS_ATTENTION_TILE_H
#define VT_OPS_ATTENTION_TILE_H

#include "ops/simd_any.h"
#include "ops/attention/attention_halves.h"

/* A call for each number of rows and each type, so that both are constants where they are used. */
#define FOR_FEW_ROWS(rows, call, ...) \
    do {                              \
        switch (rows) {               \
        case 1:                       \
            call(1, __VA_ARGS__);     \
            break;                    \
        case 2:                       \
            call(2, __VA_ARGS__);     \
            break;                    \
        default:                      \
            call(3, __VA_ARGS__);     \
        }                             \
    } while (0)
#define FOR_ROWS(rows, call, ...)                  \
    do {                                           \
        if ((rows) <= 3)                           \
            FOR_FEW_ROWS(rows, call, __VA_ARGS__); \
        else if ((rows) == 4)                      \
            call(4, __VA_ARGS__);                  \
        else if ((rows) == 5)                      \
            call(5, __VA_ARGS__);                  \
        else                                       \
            call(TILE_ROWS, __VA_ARGS__);          \
    } while (0)

/* The types that a product reads: FP8 becomes F16 before. */
#define FOR_WIDE_TYPE(type, call) \
    do {                          \
        switch (type) {           \
        case VT_F16:              \
            call(VT_F16);         \
            break;                \
        case VT_BF16:             \
            call(VT_BF16);        \
            break;                \
        default:                  \
            call(VT_F32);         \
        }                         \
    } while (0)
#define FOR_KV_TYPE(type, call)        \
    do {                               \
        if ((type) == VT_FP8_E4M3)     \
            call(VT_FP8_E4M3);         \
        else                           \
            FOR_WIDE_TYPE(type, call); \
    } while (0)

/* Starts loading a cache line into the second-level cache. */
#define PREFETCH(p) __builtin_prefetch(p, 0, 2)

/* ---- the register tile ---- */

/* Up to WIDE_ROWS rows take tiles of WIDE_VECS vectors, so that enough sums run beside each other.
 */
enum { WIDE_ROWS = TILE_VECS < 4 ? 3 : 0, WIDE_VECS = TILE_VECS < 4 ? 4 : TILE_VECS };

/* A matrix: rows `stride` elements apart in scratch, or rows of a pool where they lie. */
typedef struct matrix {
    const void *data;
    vt_dtype dtype;
    int64_t stride;
    const int64_t *row;   /* where each row begins, in elements; NULL: `stride` apart */
    const int64_t *ahead; /* rows that are loaded ahead while these are read; NULL: none */
} matrix;

static inline __attribute__((always_inline)) int64_t matrix_row(matrix m, int64_t k)
{
    return m.row ? m.row[k] : k * m.stride;
}

/* Starts loading the cache lines that begin in these bytes. */
static inline __attribute__((always_inline)) void prefetch_lines(const void *data, int64_t at,
                                                                 int bytes)
{
    if (bytes < VT_CACHE_LINE && at % VT_CACHE_LINE >= bytes)
        return;
    for (int i = 0; i < bytes; i += VT_CACHE_LINE)
        PREFETCH((const char *)data + at + i);
}

/* C[rows][vecs * VF] = C * scale[row] + A[rows][k0..k1) B[k0..k1)[col ...]; scale NULL: C starts at
 * 0. rows, vecs and the kind of B are constants at every call, so that acc lives in registers. */
static inline __attribute__((always_inline)) void matmul_tile(int rows, int vecs, const float *a,
                                                              int64_t lda, matrix b, int64_t col,
                                                              int k0, int k1, float *c, int64_t ldc,
                                                              const float *scale)
{
    vf acc[TILE_ROWS][WIDE_VECS];
    const int size = b.dtype == VT_F32 ? 4 : 2;
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < vecs; j++)
            acc[r][j] = scale ? vf_mul(vf_load(c + r * ldc + j * VF), vf_set1(scale[r]))
                              : vf_zero();
    for (int k = k0; k < k1; k++) {
        vf row[WIDE_VECS];
        int64_t at = matrix_row(b, k) + col;
        for (int j = 0; j < vecs; j++)
            row[j] = vf_load_any(b.data, b.dtype, at + j * VF, VF);
        if (b.ahead)
            prefetch_lines(b.data, (b.ahead[k] + col) * size, vecs * VF * size);
        for (int r = 0; r < rows; r++) {
            vf x = vf_set1(a[r * lda + k]);
            for (int j = 0; j < vecs; j++)
                acc[r][j] = vf_fma(x, row[j], acc[r][j]);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < vecs; j++)
            vf_store(c + r * ldc + j * VF, acc[r][j]);
}

/* The same for any number of columns; column j of the result reads column col + j of B. */
static inline __attribute__((always_inline)) void matmul_cols(int rows, int cols, const float *a,
                                                              int64_t lda, matrix b, int64_t col,
                                                              int k0, int k1, float *c, int64_t ldc,
                                                              const float *scale)
{
    int j = 0;
    for (; rows <= WIDE_ROWS && cols - j >= WIDE_VECS * VF; j += WIDE_VECS * VF)
        FOR_FEW_ROWS(rows, matmul_tile, WIDE_VECS, a, lda, b, col + j, k0, k1, c + j, ldc, scale);
    for (; cols - j >= TILE_VECS * VF; j += TILE_VECS * VF)
        FOR_ROWS(rows, matmul_tile, TILE_VECS, a, lda, b, col + j, k0, k1, c + j, ldc, scale);
    for (; cols - j >= VF; j += VF)
        FOR_ROWS(rows, matmul_tile, 1, a, lda, b, col + j, k0, k1, c + j, ldc, scale);
}

static void matmul(int rows, int cols, const float *a, int64_t lda, const float *b, int64_t ldb,
                   int k0, int k1, float *c, int64_t ldc, const float *scale)
{
    matrix right = {b, VT_F32, ldb, NULL, NULL};
    matmul_cols(rows, cols, a, lda, right, 0, k0, k1, c, ldc, scale);
}

/* B of any type but FP8: in scratch, or where it lies. */
#define MATMUL(type)                                                    \
    do {                                                                \
        b.dtype = type;                                                 \
        matmul_cols(rows, cols, a, lda, b, col, k0, k1, c, ldc, scale); \
    } while (0)
static void matmul_packed(int rows, int cols, const float *a, int64_t lda, matrix b, int64_t col,
                          int k0, int k1, float *c, int64_t ldc, const float *scale)
{
    b.row = b.ahead = NULL;
    FOR_WIDE_TYPE(b.dtype, MATMUL);
}
static void matmul_pool(int rows, int cols, const float *a, int64_t lda, matrix b, int64_t col,
                        int k0, int k1, float *c, int64_t ldc, const float *scale)
{
    FOR_WIDE_TYPE(b.dtype, MATMUL);
}
#undef MATMUL

#endif
