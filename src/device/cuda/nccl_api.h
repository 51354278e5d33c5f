/* The parts of nccl.h that we use, in our own declarations. The numbers are those of NCCL 2;
 * tests/unit/test_cuda_abi.c checks them where NVIDIA's header is installed. */
#ifndef VT_DEVICE_CUDA_NCCL_API_H
#define VT_DEVICE_CUDA_NCCL_API_H

#include <stddef.h>

struct cu_stream_st; /* cuda_api.h; streams of CUDA's runtime and driver are the same */
typedef struct nccl_comm_st *nccl_comm;
typedef struct nccl_window_st *nccl_window;

enum { NCCL_F32 = 7, NCCL_BF16 = 9, NCCL_SUM = 0, NCCL_WINDOW_SYMMETRIC = 1 };

/* Every function used: F(result, member, "symbol", parameters). Status 0 is success. */
#define NCCL_FUNCTIONS(F)                                                                        \
    F(int, get_version, "ncclGetVersion", (int *version))                                        \
    F(const char *, error_text, "ncclGetErrorString", (int status))                              \
    F(int, init_all, "ncclCommInitAll", (nccl_comm * comms, int n, const int *devices))          \
    F(int, destroy, "ncclCommDestroy", (nccl_comm c))                                            \
    F(int, group_start, "ncclGroupStart", (void))                                                \
    F(int, group_end, "ncclGroupEnd", (void))                                                    \
    F(int, sum, "ncclAllReduce",                                                                 \
      (const void *x, void *y, size_t n, int type, int op, nccl_comm c, struct cu_stream_st *s)) \
    F(int, scatter, "ncclReduceScatter",                                                         \
      (const void *x, void *y, size_t n_each, int type, int op, nccl_comm c,                     \
       struct cu_stream_st *s))                                                                  \
    F(int, gather, "ncclAllGather",                                                              \
      (const void *x, void *y, size_t n_each, int type, nccl_comm c, struct cu_stream_st *s))    \
    F(int, mem_alloc, "ncclMemAlloc", (void **p, size_t bytes))                                  \
    F(int, mem_free, "ncclMemFree", (void *p))

/* Functions that came with NCCL 2.27: a member is NULL if the library lacks the function. */
#define NCCL_OPTIONAL(F)                                                    \
    F(int, window_register, "ncclCommWindowRegister",                       \
      (nccl_comm c, void *p, size_t bytes, nccl_window *window, int flags)) \
    F(int, window_deregister, "ncclCommWindowDeregister", (nccl_comm c, nccl_window window))

typedef struct nccl_functions {
#define NCCL_MEMBER(type, member, symbol, params) type(*member) params;
    NCCL_FUNCTIONS(NCCL_MEMBER)
    NCCL_OPTIONAL(NCCL_MEMBER)
#undef NCCL_MEMBER
} nccl_functions;

#endif
