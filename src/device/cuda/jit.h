/* The JIT: kernel text + template parameters -> cubin, through a cache on disk.
 *
 *   src/ops/<op>/<file>.cu  is embedded in the binary as text. A kernel in it is an extern "C"
 *                           function whose template parameters are macros: `hidden=1024` arrives as
 *                           -DHIDDEN=1024.
 *   jit_spec                names one instance; printed as  rmsnorm<hidden=1024,threads=128,pdl=1>
 *   vt_jit_want             notes that an instance is needed (cheap, idempotent)
 *   vt_jit_compile          compiles all that is noted and not in the cache, in parallel
 *
 * Cache: one file per instance in $VITRINE_CACHE/cubin (or ~/.cache/vitrine/cubin), named by a
 * 128-bit hash of the text with its headers, the options and the architecture, and by NVRTC's
 * version. Time stamps are never compared. No lock is needed, because a file is written under a
 * temporary name and then renamed. A broken file is compiled again. */
#ifndef VT_DEVICE_CUDA_JIT_H
#define VT_DEVICE_CUDA_JIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buf.h"
#include "vitrine.h"

enum { JIT_MAX_PARAMS = 20, JIT_NAME_MAX = 256, JIT_MAX_TEXTS = 4 };

/* A template parameter that is 1 for an instance with stamps (stamp.cuh): its parameter struct has
 * the address of the launch's places behind it (cuda_stamped_params). It is 2 for an instance that
 * fills a table of CTAs too. */
#define JIT_STAMPED "stamped"

typedef struct jit_param {
    const char *name; /* lower case; static storage */
    int32_t value;
} jit_param;

typedef struct jit_spec {
    const char *source;              /* file name of the embedded text: "rmsnorm.cu"; "": a
                                        library's, which has a name and nothing to compile */
    const char *kernel;              /* its extern "C" entry */
    jit_param param[JIT_MAX_PARAMS]; /* ends at the first without a name */
} jit_spec;

/* JIT_SPEC("rmsnorm.cu", "rmsnorm", {"hidden", 1024}, {"threads", 128}) */
#define JIT_SPEC(file, entry, ...) \
    ((jit_spec){.source = (file), .kernel = (entry), .param = {__VA_ARGS__}})

typedef struct jit_cubin {
    const void *bytes; /* owned by the vt_jit; NULL: a library's kernel */
    size_t size;
    int32_t registers, spill_bytes, shared_bytes; /* as ptxas reported */
    double compile_ms;                            /* when it was compiled, perhaps long ago */
    bool cached;                                  /* came from the disk in this process */
    const char *log; /* compiler's output of this process; NULL if cached */
} jit_cubin;

typedef struct vt_jit vt_jit;

/* arch: "sm_90a", "sm_80": always a real architecture. NVRTC is opened when something must be
 * compiled. */
vt_status vt_jit_new(const char *arch, vt_jit **out, vt_err *err);
void vt_jit_free(vt_jit *j);
/* Makes a text that is not embedded known to this JIT. Its name is no embedded text's: "./x.cu" or
 * "folder/x.cu", because embedded ones have no slash. Name and text are borrowed. At most
 * JIT_MAX_TEXTS. */
vt_status vt_jit_add_text(vt_jit *j, const char *name, const char *text, vt_err *err);
/* Sets whether the disk is read and written; it is when made. (Off for tests of the compiler's
 * output.) */
void vt_jit_set_cache(vt_jit *j, bool on);

/* Sets whether cubins say which line of a text each instruction is of, by NVRTC's -lineinfo; not
 * when made. Set it before the first compile. */
void vt_jit_set_lines(vt_jit *j, bool on);

/* Index of the instance, the same for an equal spec; -1 when out of memory. One thread. */
int32_t vt_jit_want(vt_jit *j, const jit_spec *spec);
int32_t vt_jit_count(const vt_jit *j);
const char *vt_jit_name(const vt_jit *j, int32_t index); /* "rmsnorm<hidden=1024,...>" */
const char *vt_jit_kernel(const vt_jit *j, int32_t index);
/* NULL until compiled. */
const jit_cubin *vt_jit_get(const vt_jit *j, int32_t index);

/* Called from any compiling thread, one call at a time. False stops: VT_ERR_CANCELLED. */
typedef bool (*jit_progress)(void *user, int32_t done, int32_t total, const char *name, double ms,
                             bool cached);
/* Compiles everything that is wanted and not compiled yet. n_threads 0: as many threads as CPUs, at
 * most 16. On failure the message contains the first line of the compiler's error. */
vt_status vt_jit_compile(vt_jit *j, int32_t n_threads, jit_progress progress, void *user,
                         vt_err *err);

/* Takes from the cache what is wanted and there, and compiles nothing. Returns how many instances
 * are ready then. */
vt_status vt_jit_read_cache(vt_jit *j, int32_t *n_ready, vt_err *err);
/* The 32 hex digits under which the cache keeps the instance; "": a library's kernel. The text is
 * valid until the next call of vt_jit_want. */
const char *vt_jit_key(vt_jit *j, int32_t index);

/* The cache as a person sees it: one line an instance (name, arch, NVRTC, registers, spills, ms,
 * bytes). */
vt_status vt_jit_list(vt_buf *out, vt_err *err);
/* The flags of every compile for `arch`, in their order: "-arch=sm_90a -std=c++17 ...". Each
 * template parameter adds -DNAME=VALUE. */
vt_status vt_jit_flags(const char *arch, vt_buf *out, vt_err *err);

/* A kernel in the cache. */
typedef struct jit_cached {
    char name[JIT_NAME_MAX], arch[16]; /* name: "rmsnorm<hidden=1024,...>" */
    int32_t nvrtc_major, nvrtc_minor, registers, spill_bytes;
    double compile_ms;
    uint64_t bytes;
    char key[33]; /* the beginning of its file's name */
} jit_cached;

/* Every kernel in the cache, by name; free(*out). A cache that is not there yet has none. */
vt_status vt_jit_cached(jit_cached **out, int32_t *n, vt_err *err);
/* Checks that the cache's folder can be used: VT_ERR_IO says why not (it belongs to another user,
 * or others may write to it). Kernels are then compiled each time. */
vt_status vt_jit_check_cache(vt_err *err);
/* Copies every valid cubin file to or from a folder. *n: how many. */
vt_status vt_jit_export(const char *dir, int32_t *n, vt_err *err);
vt_status vt_jit_import(const char *dir, int32_t *n, vt_err *err);

/* The embedded texts, NULL name ends (made by tools/embed-kernels). */
typedef struct jit_text {
    const char *name, *text;
    uint64_t size;
} jit_text;
extern const jit_text vt_kernel_texts[] __attribute__((visibility("hidden")));
const jit_text *jit_find_text(const char *name);
/* A line of an embedded text, without its indent, and its bytes; NULL: there is none. */
const char *jit_find_line(const char *file, int32_t line, int32_t *bytes);

#endif
