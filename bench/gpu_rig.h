/* What the rows of gpu_kernels.c are measured with: memory, timing, output.
 *
 *   one block of random bf16 --bump--> inputs      (read as f32, random bf16 pairs are as good)
 *   another block            --bump--> outputs, and operands that a kernel changes in place, which
 *                                      are copied from the first block before each timed run
 *
 * A section's function runs twice: first to note the kernels of its rows (`collecting`), then to
 * measure them; measure() tells the two apart and ends the row, which gives its memory back. */
#ifndef VT_BENCH_GPU_RIG_H
#define VT_BENCH_GPU_RIG_H

#include "device/cuda.h"
#include "ops/op.h"

enum { MAX_REPS = 64, MAX_BLOCKS = 16 };
enum { COLD = 1, GRAPH = 2, PDL = 4, SMALL = COLD | GRAPH | PDL };
enum { MODE_RUN, MODE_LIST, MODE_COMPILE };

typedef struct bench {
    vt_cuda *cuda;
    vt_cuda_lane lane;
    vt_lane op_lane;
    int mode;
    bool tiny, collecting, jit;
    int32_t reps, calls, launches;
    size_t in_bytes, out_bytes, workspace_bytes, flush_bytes;
    char *in, *out, *flush;
    size_t in_used, out_used;
    void *block[MAX_BLOCKS]; /* a row's own small arrays */
    int32_t n_blocks, n_failed;
    const char *section;
} bench;

/* One row: what to launch, and what must be restored before each cold run. */
typedef struct work {
    char name[96];
    const vt_op *op;
    const void *args;
    vt_cost cost;
    int methods;
    vt_status (*launch)(bench *b, const struct work *w, int32_t call);
    struct {
        void *to;
        const void *from;
        size_t bytes;
    } restore;
    const void *more; /* the launcher's own */
    void **rotate;    /* an address that differs from call to call: base + (call % n) stride */
    char *rotate_base;
    size_t rotate_stride;
    int32_t n_rotate;
} work;

/* Exits with the message unless status is VT_OK; a row's failure is a line, this is for ours. */
void rig_must(vt_status status, const vt_err *err);
void rig_check(bench *b, cu_result code, const char *what);
/* Opens the device and makes the two blocks; exits with 77 where there is none. */
void rig_open(bench *b);
void rig_close(bench *b);
static inline cu_ptr rig_address(const void *p) { return (cu_ptr)(uintptr_t)p; }
uint64_t rig_next64(uint64_t *state);

int32_t pick(const bench *b, int32_t full, int32_t tiny);
void *take_in(bench *b, size_t bytes);
void *take_out(bench *b, size_t bytes);
vt_tensor in_2d(bench *b, vt_dtype type, int64_t rows, int64_t cols);
vt_tensor out_2d(bench *b, vt_dtype type, int64_t rows, int64_t cols);
vt_tensor in_1d(bench *b, int64_t n); /* f32 */
/* An array of the row's own on the device. */
void *upload(bench *b, const void *from, size_t bytes);
void end_row(bench *b);

work row_of(const vt_op *op, const void *args, int methods);
void print_row(bench *b, const work *w, const char *method, double *us, int32_t n);
void measure(bench *b, work *w);

#endif
