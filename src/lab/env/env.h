/* Tells what this machine offers and what it lacks: vitrine env, and the labs' check_env.
 *
 *     lab_env *e;
 *     TRY(lab_env_look(options, &e, err));
 *     TRY(lab_env_try(e, progress, user, err));   // runs one small case of every op; optional
 *     lab_env_put_links(&buf, &term, e);          // a part as text ...
 *     lab_env_write(&json, e);                    // ... or everything as members of a JSON object
 *     lab_env_free(e);
 *
 * Everything is looked up or tried when it is asked for. Texts have no heading and at most
 * term->width columns, so that a lab can take one as a drawing. Look before anything opens a GPU:
 * its free memory and its users are then those of others. */
#ifndef VT_LAB_ENV_ENV_H
#define VT_LAB_ENV_ENV_H

#include "base/json_write.h"
#include "base/term/term.h"
#include "device/cpu.h"
#include "device/cuda/jit.h"
#include "device/gpus.h"
#include "device/probe.h"
#include "device/tool.h"
#include "device/topology.h"
#include "engine/options.h"
#include "ops/calls/try.h"

enum {
    LAB_ENV_CARDS = 0
#define VT_CARD(name) +1
#include "ops/cards.h"
#undef VT_CARD
};

enum {
    LAB_ENV_LIBRARIES = 8,
    LAB_ENV_ADVICE = 24,
    /* each op on the CPU and on a GPU, and rows with a library */
    LAB_ENV_TRIES = 2 * LAB_ENV_CARDS + LAB_ENV_LIBRARIES,
    LAB_ENV_TIERS = 5,
    LAB_ENV_TOOL_MS = 5000 /* for `nsys --version`, which starts slowly */
};

typedef enum lab_env_tool { LAB_ENV_NVCC, LAB_ENV_NSYS, LAB_ENV_NCU, LAB_ENV_TOOLS } lab_env_tool;

/* Something that is missing or wrong here, and what to do about it. */
typedef struct lab_env_advice {
    char seen[640], action[320];
    bool blocks; /* a device that this machine has cannot be used */
} lab_env_advice;

typedef struct lab_env_library {
    const vt_probe_library *library;
    bool there;
    char found[256]; /* its path, or why it is not there */
} lab_env_library;

/* One way of looking at what the hardware did. */
typedef struct lab_env_tier {
    const char *what; /* it sees */
    bool allowed;     /* by this machine, to this process */
    bool read;        /* by this program */
    char why[640];    /* what stands against it, or who reads it */
} lab_env_tier;

typedef struct lab_env {
    vt_topology topology;
    vt_gpus gpus;
    /* The GPU that a model would run on, as the engine opens it. */
    int32_t ordinal; /* N of --device cuda:N; 0 where none is named */
    bool driver;     /* libcuda opens */
    vt_err gpu_err;  /* why no model can run on it; VT_OK: one can */
    bool gpu;        /* gpu_err is VT_OK */
    bool emulated;   /* its times mean nothing */
    bool wanted;     /* a GPU is on the bus or known to the driver, or --device asks for one */
    char gpu_name[96], arch[16]; /* arch: what kernels are compiled for: "sm_90a"; "": no GPU */
    int32_t level;               /* 80, 90; 0: no GPU */
    /* where models run */
    char option[16], runs_on[16]; /* --device as it is set, and what it comes to: "cuda:0" */
    /* programs and libraries */
    lab_env_library library[LAB_ENV_LIBRARIES];
    int32_t n_libraries;
    bool nvrtc; /* kernels can be compiled */
    int32_t nvrtc_major, nvrtc_minor;
    char nvrtc_path[256];
    vt_err nvrtc_err;
    vt_tool tool[LAB_ENV_TOOLS];
    /* profiling */
    bool perf;
    bool counted[VT_COUNTERS];          /* each event of a CPU's worker, */
    char counted_why[VT_COUNTERS][256]; /* and why not */
    bool controllers; /* bytes of memory controllers can be read; `uncore` says of how many */
    bool slots;       /* top-down slots can be counted; `topdown` says where they are told */
    char uncore[320], topdown[256];
    lab_env_tier cpu_tier[LAB_ENV_TIERS], gpu_tier[LAB_ENV_TIERS]; /* T0 to T4 */
    char perf_why[256], counters_why[256];
    vt_allowed counters;
    /* the cache of compiled kernels */
    char cubin_folder[1200];
    jit_cached *cached; /* [n_cached] */
    int32_t n_cached;
    vt_err cache_err; /* it cannot be used */
    int32_t n_models; /* entries of the folder with models; -1: there is none */
    /* the model that the labs run on a CPU, as --model or VITRINE_MODEL say; and whether it is
     * here, or needs no file */
    char lab_model[256];
    bool has_lab_model;
    /* lab_env_try */
    vt_try attempt[LAB_ENV_TRIES];
    int32_t n_attempts, n_failed;
    bool tried;
    /* lab_env_look and lab_env_try fill these */
    lab_env_advice advice[LAB_ENV_ADVICE];
    int32_t n_advice;
} lab_env;

/* Fails only when out of memory: what is missing is part of the answer. Takes up to a few seconds
 * where other programs are slow to tell their version. */
vt_status lab_env_look(const vt_options *o, lab_env **out, vt_err *err);
void lab_env_free(lab_env *e);
/* Tries every op on the CPU and, where --device allows it, on the
 * GPU; progress (may be NULL) is of
 * compiling. Failures are in e->attempt; the call itself fails only where no worker can be made. */
vt_status lab_env_try(lab_env *e, int32_t threads, jit_progress progress, void *user, vt_err *err);
/* Nothing blocks and nothing that was tried failed. */
bool lab_env_ready(const lab_env *e);
/* Fills e->advice again; the two functions above call it. */
void lab_env_judge(lab_env *e);
/* Fill e->gpu_tier of an open GPU; then e->cpu_tier, and e->gpu_tier where there was none. */
void lab_env_gpu_tiers(lab_env *e, struct vt_cuda *c);
void lab_env_cpu_tiers(lab_env *e);
/* Returns true if the library of this name (device/probe.h) is here. */
bool lab_env_has(const lab_env *e, const char *library);

/* ---- as text ---- */

/* "  name     value", the value from column 16 on and wrapped. */
void lab_env_line(vt_buf *b, const vt_term *term, const char *name, const char *value);
/* Takes a line's value from a buffer, and releases it. */
void lab_env_line_of(vt_buf *b, const vt_term *term, const char *name, vt_buf *value);

void lab_env_put_nodes(vt_buf *b, const vt_term *term, const lab_env *e); /* sockets and nodes */
void lab_env_put_gpus(vt_buf *b, const vt_term *term, const lab_env *e);  /* memory and users */
/* Matrix, legend, groups to prefer, crossings to avoid. Nothing where fewer than two GPUs are. */
void lab_env_put_links(vt_buf *b, const vt_term *term, const lab_env *e);
void lab_env_put_compiler(vt_buf *b, const vt_term *term, const lab_env *e);
void lab_env_put_needs(vt_buf *b, const vt_term *term, const lab_env *e); /* of each op */
/* The cache as a tree, or a sentence where it is empty. */
void lab_env_put_cache(vt_buf *b, const vt_term *term, const lab_env *e);
/* The tree alone. `all`: every kernel with its template parameters; else one branch for each name,
 * with the names of its parameters. */
void lab_env_put_kernels(vt_buf *b, const vt_term *term, const char *folder, const jit_cached *c,
                         int32_t n, bool all);
void lab_env_put_libraries(vt_buf *b, const vt_term *term, const lab_env *e);
void lab_env_put_tiers(vt_buf *b, const vt_term *term, const lab_env *e);
void lab_env_put_profiling(vt_buf *b, const vt_term *term, const lab_env *e);
void lab_env_put_tries(vt_buf *b, const vt_term *term, const lab_env *e);
void lab_env_put_advice(vt_buf *b, const vt_term *term, const lab_env *e);
/* "environment is READY for CPU and GPU 0", or what is missing; one paragraph. */
void lab_env_put_ready(vt_buf *b, const vt_term *term, const lab_env *e);
/* Two sentences: what makes the JIT compile, and what makes a cached kernel useless. */
extern const char lab_env_jit_trigger[], lab_env_jit_invalid[];

/* ---- as JSON: members of an open object ---- */

void lab_env_write_tiers(vt_json *w, const lab_env *e);

void lab_env_write(vt_json *w, const lab_env *e);
/* "kernels": [...] */
void lab_env_write_cache(vt_json *w, const jit_cached *c, int32_t n);

#endif
