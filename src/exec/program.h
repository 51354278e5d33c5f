/* The program: a forward pass as a flat list of op calls.
 *
 *   embed
 *   per layer: rmsnorm, linear qkv, rope, kv_store, attention_decode, attention_prefill,
 *             linear o, rmsnorm, linear gate+up, linear down
 *   rmsnorm of the wanted rows, linear head | sample
 *
 * Built once from the architecture description with symbolic sizes; binding a batch sets the sizes.
 * The list can be printed, costed without running, run by the CPU team, launched on a stream or
 * captured into a graph. Fusion is a rewriting of the list. Every call's args point into the
 * program (tensors, batch), so binding touches a dozen tensors and no call. */
#ifndef VT_EXEC_PROGRAM_H
#define VT_EXEC_PROGRAM_H

#include "exec/weights.h"
#include "kv/cache.h"
#include "ops/op.h"
#include "ops/sample/sample.h"

typedef enum vt_when { VT_WHEN_ALWAYS, VT_WHEN_DECODE, VT_WHEN_PREFILL, VT_WHEN_ROWS } vt_when;

typedef struct vt_call {
    const vt_op *op;
    const vt_impl *impl;
    void *args;     /* the op's own struct, in the program's arena */
    char label[40]; /* "L07.linear.qkv" */
    int16_t layer;  /* -1: outside the layers */
    uint8_t when;   /* vt_when: skipped where the batch has nothing for it */
} vt_call;

typedef struct vt_program_config {
    vt_device_kind device;
    vt_isa isa;
    vt_dtype activation; /* F32 on CPU, BF16 on CUDA */
    vt_limits limits;
} vt_program_config;

typedef struct vt_program {
    vt_arena arena;
    vt_program_config config;
    vt_batch batch;                  /* the bound batch */
    const vt_sample_row *sample_row; /* the bound sampling rows */
    int32_t *token_pool;
    vt_call *call;
    int32_t n_calls, n_forward;   /* [n_forward, n_calls) is the sampling part */
    struct vt_symbolic *symbolic; /* tensors whose dim[0] follows the batch */
    int32_t n_symbolic;
    int32_t *tokens;   /* [max_tokens] resolved ids, filled by the executor */
    vt_tensor *logits; /* [rows, vocab] fp32 */
    vt_tensor *token, *logprob, *top_id, *top_logprob; /* results of sampling */
    size_t shared_bytes;                               /* the largest workspace of any call */
    size_t activation_bytes;
    void *memory;
} vt_program;

/* On the CPU the program brings its activations' memory. On CUDA their data are offsets until the
 * caller places them in activation_bytes of device memory (vt_program_place, once). kv may be NULL
 * for a program that is only costed (explain): it has no memory then and must not run. */
vt_status vt_program_build(const vt_model *m, const vt_weights *w, const vt_kv_cache *kv,
                           const vt_program_config *config, vt_program **out, vt_err *err);
void vt_program_place(vt_program *p, void *memory);
void vt_program_free(vt_program *p);
/* Sets sizes; the arrays of `batch` and `rows` are borrowed until the next bind. */
void vt_program_bind(vt_program *p, const vt_batch *batch, const vt_sample_row *rows);
/* False where the bound batch has nothing for this call. */
bool vt_call_active(const vt_program *p, const vt_call *c);

#endif
