/* The files of on_cuda share this.
 *
 *   on_cuda.c           the GPU, memory, plans, runs
 *   on_cuda_args.c      the args on the device
 *   on_cuda_compare.c   rounding to values that a GPU holds exactly; comparing outputs
 *   on_cuda_margin.c    memory with margins, and whether a run left them alone
 *   on_cuda_time.c      timing */
#ifndef VT_OPS_CALLS_ON_CUDA_INSIDE_H
#define VT_OPS_CALLS_ON_CUDA_INSIDE_H

#include "base/err.h"
#include "ops/calls/on_cuda.h"

/* Bytes that fill an operand before a run: NaN as a float, no token id as an integer. */
enum { ON_CUDA_INT_PATTERN = 0x5a, ON_CUDA_FLOAT_PATTERN = 0xff };

/* Bytes beyond what a row asked for: wide loads may read them. */
enum { ON_CUDA_SLACK = 256 };

static inline cu_ptr address(const void *p) { return (cu_ptr)(uintptr_t)p; }

static inline bool is_integer(vt_dtype t) { return t >= VT_I8; }
static inline int64_t cols_of(const vt_tensor *t) { return t->dim[t->rank - 1]; }

static inline int64_t rows_of(const vt_tensor *t)
{
    return t->rank == 1 ? 1 : cols_of(t) == 0 ? 0 : vt_tensor_elems(t) / cols_of(t);
}

/* The distance between rows in elements: in a slice it is more than the number of columns. */
static inline int64_t stride_of(const vt_tensor *t)
{
    return t->rank == 2 && !vt_dtype_quantised(t->dtype) ? t->row_stride : cols_of(t);
}

static inline char *host_row(const vt_tensor *t, int64_t row)
{
    return (char *)t->data + row * vt_dtype_row_bytes(t->dtype, stride_of(t));
}

static inline void **member(void *args, const vt_operand *o)
{
    return (void **)((char *)args + o->offset);
}

static inline int32_t count_of(const void *args, const vt_operand *o)
{
    return *(const int32_t *)((const char *)args + o->count);
}

static inline vt_status no_memory(const on_cuda *c, vt_err *err)
{
    return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", c->op->name);
}

/* Device memory of a call: margin | bytes | margin. */
typedef struct on_cuda_block {
    void *base; /* the first margin */
    size_t bytes;
    uint64_t sum; /* of what must stay as it is: see on_cuda_margin.c */
} on_cuda_block;

/* Waits until everything on the stream has run. */
vt_status on_cuda_wait(on_cuda_gpu *g, const char *what, vt_err *err);
/* Allocates device memory for the call; on_cuda_release frees it. */
vt_status on_cuda_new_block(on_cuda *c, size_t bytes, void **out, vt_err *err);
/* Copies to the device and waits. */
vt_status on_cuda_upload(on_cuda *c, void *to, const void *from, size_t bytes, vt_err *err);
/* Fills device memory on the stream, and does not wait. */
vt_status on_cuda_fill(on_cuda *c, void *p, int pattern, size_t bytes, vt_err *err);
on_cuda_twin *on_cuda_twin_of(const on_cuda *c, const vt_tensor *host);

#endif
