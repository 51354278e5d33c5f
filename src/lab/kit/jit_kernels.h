/* The kernels that a model needs, and those that the cache of compiled kernels has: for the labs
 * about the JIT. Needs no GPU; compiling needs NVRTC (device/cuda/jit.h). */
#ifndef VT_LAB_KIT_JIT_KERNELS_H
#define VT_LAB_KIT_JIT_KERNELS_H

#include "device/cuda/cuda.h"
#include "lab/kit/lab.h"

/* A start of the engine decides this about its kernels. */
typedef struct jit_ask {
    const char *model; /* "dummy:qwen3-0.6b" */
    vt_dtype kv;
    int32_t page_size, max_context, max_seqs;
    const char *arch; /* "sm_90a" */
    int32_t level;    /* 80 or 90 */
} jit_ask;

/* The ask of a start with the defaults: for the lab's GPU, or for an H200 where there is none. The
 * model is the lab's if it has a GPU, else the one that labs take on a GPU. */
vt_status lab_jit_ask(lab *l, jit_ask *out, vt_err *err);
/* Names all kernels of such a start: (*out)->jit has them. vt_cuda_close it. */
vt_status lab_jit_model(const jit_ask *ask, vt_cuda **out, vt_err *err);
/* Names the kernels of this track for the heads of Qwen3-0.6B: attention, norms, rope with the KV
 * store. vt_cuda_close it. */
vt_status lab_jit_track(const jit_ask *ask, vt_cuda **out, vt_err *err);
/* Returns how many kernels of `a` have a key that none of `b` has. `first`: the index of one; -1:
 * none. */
int32_t lab_jit_new(vt_jit *a, vt_jit *b, int32_t *first);

/* A file of the cache. */
typedef struct jit_file {
    char name[JIT_NAME_MAX], arch[16], key[16]; /* key: its first 12 digits */
    int nvrtc_major, nvrtc_minor, registers, spill_bytes;
    double compile_ms;
    int64_t bytes;
} jit_file;

/* Reads the cache's list. *out is malloc'ed; NULL where it is empty. */
vt_status lab_jit_files(jit_file **out, int32_t *n, vt_err *err);
/* lab_drawing of the cache as a tree: its folder, the kernels by name, how many instances each has,
 * their bytes and what compiling them took. */
vt_status lab_jit_draw(lab *l, const char *key, const char *title, vt_err *err);

#endif
