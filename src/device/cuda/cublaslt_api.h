/* The parts of cublasLt.h that we use, in our own declarations. The numbers and layouts are those
 * of cuBLAS 12 and 13; tests/unit/test_cuda_abi.c checks them where NVIDIA's header is
 * installed. */
#ifndef VT_DEVICE_CUDA_CUBLASLT_API_H
#define VT_DEVICE_CUDA_CUBLASLT_API_H

#include <stddef.h>
#include <stdint.h>

struct cu_stream_st; /* cuda_api.h; streams of CUDA's runtime and driver are the same */
typedef struct lt_context *lt_handle;
typedef struct lt_desc_st *lt_desc;
typedef struct lt_layout_st *lt_layout;
typedef struct lt_preference_st *lt_preference;

typedef struct lt_algorithm {
    uint64_t data[8];
} lt_algorithm;

typedef struct lt_choice {
    lt_algorithm algo;
    size_t workspace;
    int state; /* 0: usable */
    float waves;
    int reserved[4];
} lt_choice;

enum {
    LT_R_32F = 0,
    LT_R_16BF = 14,
    LT_COMPUTE_32F = 68,
    LT_OP_T = 1,
    LT_NOT_SUPPORTED = 15, /* a status */
    LT_DESC_TRANSA = 3,
    LT_DESC_EPILOGUE = 7,
    LT_DESC_BIAS = 8, /* its address */
    LT_EPILOGUE_BIAS = 4,
    LT_PREF_WORKSPACE = 1,
    LT_PREF_ALIGN_A = 5, /* B, C and D follow */
    LT_PREF_ALIGN_D = 8
};

/* Every function used: F(result, member, "symbol", parameters). Status 0 is success. */
#define CUBLASLT_FUNCTIONS(F)                                                                 \
    F(size_t, version, "cublasLtGetVersion", (void))                                          \
    F(const char *, status_text, "cublasLtGetStatusString", (int status))                     \
    F(int, create, "cublasLtCreate", (lt_handle * h))                                         \
    F(int, destroy, "cublasLtDestroy", (lt_handle h))                                         \
    F(int, desc_create, "cublasLtMatmulDescCreate", (lt_desc * d, int compute, int scale))    \
    F(int, desc_destroy, "cublasLtMatmulDescDestroy", (lt_desc d))                            \
    F(int, desc_set, "cublasLtMatmulDescSetAttribute",                                        \
      (lt_desc d, int which, const void *value, size_t bytes))                                \
    F(int, layout_create, "cublasLtMatrixLayoutCreate",                                       \
      (lt_layout * l, int type, uint64_t rows, uint64_t cols, int64_t stride))                \
    F(int, layout_destroy, "cublasLtMatrixLayoutDestroy", (lt_layout l))                      \
    F(int, preference_create, "cublasLtMatmulPreferenceCreate", (lt_preference * p))          \
    F(int, preference_destroy, "cublasLtMatmulPreferenceDestroy", (lt_preference p))          \
    F(int, preference_set, "cublasLtMatmulPreferenceSetAttribute",                            \
      (lt_preference p, int which, const void *value, size_t bytes))                          \
    F(int, heuristic, "cublasLtMatmulAlgoGetHeuristic",                                       \
      (lt_handle h, lt_desc d, lt_layout a, lt_layout b, lt_layout c, lt_layout y,            \
       lt_preference p, int most, lt_choice *choices, int *n))                                \
    F(int, matmul, "cublasLtMatmul",                                                          \
      (lt_handle h, lt_desc d, const void *alpha, const void *a, lt_layout la, const void *b, \
       lt_layout lb, const void *beta, const void *c, lt_layout lc, void *y, lt_layout ly,    \
       const lt_algorithm *algo, void *workspace, size_t workspace_bytes, struct cu_stream_st *s))

typedef struct cublaslt_functions {
#define CUBLASLT_MEMBER(type, member, symbol, params) type(*member) params;
    CUBLASLT_FUNCTIONS(CUBLASLT_MEMBER)
#undef CUBLASLT_MEMBER
} cublaslt_functions;

#endif
