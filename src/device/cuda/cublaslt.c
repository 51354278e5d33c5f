/* cuBLASLt: opening the library, choosing an algorithm for each shape, launching (cublaslt.h).
 *
 * The library's matrices are column-major. Our row-major matrices, read as column-major ones, are
 * transposed, so the product that it computes is y^T = W x^T: A = W as [k, n], transposed; B = x as
 * [k, m]; D = y as [n, m].
 *
 * The activations of pairs are not left to the library, which does not offer them. The library
 * keeps one context object of its own for the device's primary context, which is also the context
 * that we use (vt_cuda_open). Its file has half a gigabyte; a process maps only what it runs. */
#include "device/cuda/cublaslt.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/knob.h"
#include "base/mem.h"
#include "device/cuda/cublaslt_api.h"

/* While kernels are collected, products are launched once to make the library load their kernels:
 * those for buckets of up to CUBLASLT_WARM tokens, which decode graphs may have, with at most
 * WARM_TOKENS tokens. Decode graphs are captured before any step; all other graphs are captured
 * after a step that ran without them and so loaded the kernels. */
enum { WARM_TOKENS = 16, MAX_ALGORITHMS = 4096 };

/* Everything that an algorithm depends on. The struct has no padding, since it is compared as
 * bytes. */
typedef struct shape_key {
    int64_t x_stride, c_stride, y_stride;
    int32_t bucket, n, k;
    int16_t f32, bias;
} shape_key;

typedef struct algorithm {
    shape_key key;
    bool there, launched;
    lt_algorithm algo;
} algorithm;

struct cublaslt {
    cublaslt_functions f;
    bool found, tried; /* the file has all functions; making the handles was tried */
    size_t version;
    lt_handle handle;
    lt_desc product, with_bias; /* transposed A, fp32 sums */
    lt_preference preference;
    char why[160]; /* why the library cannot be used, if version is 0 */
    algorithm *algorithm;
    int32_t n, capacity;
};

vt_status vt_cublaslt_use(cublaslt_use *use, vt_err *err)
{
    const char *want = vt_knob_text(&vt_knobs[VT_KNOB_CUBLASLT]);
    *use = CUBLASLT_FASTER;
    TRY(vt_knob_check(&vt_knobs[VT_KNOB_CUBLASLT], err));
    if (!want)
        return VT_OK;
    if (want[0] == '/' && !dlopen(want, RTLD_NOW | RTLD_LOCAL)) /* stays open */
        return vt_fail(err, VT_ERR_DEVICE, "VITRINE_CUBLASLT=%s cannot be opened: %s", want,
                       dlerror());
    if (want[0] != '/')
        *use = want[0] == '0' ? CUBLASLT_NEVER : CUBLASLT_ALL;
    return VT_OK;
}

/* ---- the library ---- */

static void *open_library(char *why, size_t size)
{
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12",
                                        "/usr/local/cuda/lib64/libcublasLt.so.13",
                                        "/usr/local/cuda/lib64/libcublasLt.so.12", NULL};
    const char *chosen = vt_knob_text(&vt_knobs[VT_KNOB_CUBLASLT]);
    void *library = NULL;
    if (chosen && chosen[0] == '/') {
        library = dlopen(chosen, RTLD_NOW | RTLD_LOCAL);
        if (!library)
            snprintf(why, size, "VITRINE_CUBLASLT=%s cannot be opened: %s", chosen, dlerror());
        return library;
    }
    for (const char *const *name = names; *name && !library; name++)
        library = dlopen(*name, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        snprintf(why, size, "libcublasLt.so.13 was not found");
    return library;
}

static bool find_functions(struct cublaslt *lt, void *library)
{
#define LT_FIND(type, member, symbol, params)                                \
    {                                                                        \
        void *at = dlsym(library, symbol);                                   \
        memcpy(&lt->f.member, &at, sizeof at);                               \
        if (!at) {                                                           \
            snprintf(lt->why, sizeof lt->why, "libcublasLt has no " symbol); \
            return false;                                                    \
        }                                                                    \
    }
    CUBLASLT_FUNCTIONS(LT_FIND)
#undef LT_FIND
    return true;
}

static int make_desc(const struct cublaslt *lt, lt_desc *d)
{
    const int32_t transposed = LT_OP_T;
    int code = lt->f.desc_create(d, LT_COMPUTE_32F, LT_R_32F);
    if (code == 0)
        code = lt->f.desc_set(*d, LT_DESC_TRANSA, &transposed, sizeof transposed);
    return code;
}

/* Makes the library's objects that live as long as the device. The device's context must be
 * current. */
static bool make_handles(struct cublaslt *lt)
{
    const int32_t add_bias = LT_EPILOGUE_BIAS;
    const uint64_t workspace = CUBLASLT_WORKSPACE;
    const uint32_t align = 16;
    int code = lt->f.create(&lt->handle);
    if (code == 0)
        code = make_desc(lt, &lt->product);
    if (code == 0)
        code = make_desc(lt, &lt->with_bias);
    if (code == 0)
        code = lt->f.desc_set(lt->with_bias, LT_DESC_EPILOGUE, &add_bias, sizeof add_bias);
    if (code == 0)
        code = lt->f.preference_create(&lt->preference);
    if (code == 0)
        code = lt->f.preference_set(lt->preference, LT_PREF_WORKSPACE, &workspace,
                                    sizeof workspace);
    for (int which = LT_PREF_ALIGN_A; code == 0 && which <= LT_PREF_ALIGN_D; which++)
        code = lt->f.preference_set(lt->preference, which, &align, sizeof align);
    if (code != 0)
        snprintf(lt->why, sizeof lt->why, "libcublasLt could not be started: %s",
                 lt->f.status_text(code));
    return code == 0;
}

void vt_cublaslt_preload(void)
{
    cublaslt_use use;
    char why[160];
    if (vt_cublaslt_use(&use, NULL) == VT_OK && use != CUBLASLT_NEVER)
        (void)open_library(why, sizeof why); /* stays open */
}

bool vt_cublaslt_find(vt_cuda *c, char *why, size_t size)
{
    if (!c->context || c->cublaslt_use == CUBLASLT_NEVER) {
        snprintf(why, size, c->context ? "VITRINE_CUBLASLT=0" : "there is no device");
        return false;
    }
    struct cublaslt *lt = c->cublaslt;
    if (!lt && (lt = c->cublaslt = vt_calloc(1, sizeof *lt))) {
        void *library = open_library(lt->why, sizeof lt->why);
        lt->found = library && find_functions(lt, library);
    }
    snprintf(why, size, "%s", lt ? lt->why : "out of memory");
    return lt && lt->found;
}

size_t vt_cublaslt_open(vt_cuda *c, char *why, size_t size)
{
    if (!vt_cublaslt_find(c, why, size))
        return 0;
    struct cublaslt *lt = c->cublaslt;
    if (!lt->tried && make_handles(lt))
        lt->version = lt->f.version();
    lt->tried = true;
    snprintf(why, size, "%s", lt->why);
    return lt->version;
}

void vt_cublaslt_close(vt_cuda *c)
{
    struct cublaslt *lt = c->cublaslt;
    if (!lt)
        return;
    if (lt->preference)
        lt->f.preference_destroy(lt->preference);
    if (lt->product)
        lt->f.desc_destroy(lt->product);
    if (lt->with_bias)
        lt->f.desc_destroy(lt->with_bias);
    if (lt->handle)
        lt->f.destroy(lt->handle);
    free(lt->algorithm);
    free(lt);
    c->cublaslt = NULL; /* the library stays open: cuda_api.h */
}

/* ---- a product ---- */

typedef struct layouts {
    lt_layout w, x, c, y;
} layouts;

static void layouts_release(const struct cublaslt *lt, layouts *l)
{
    lt_layout all[] = {l->w, l->x, l->c, l->y};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i])
            lt->f.layout_destroy(all[i]);
}

/* Describes the matrices of a product of `m` tokens. Without c its layout is that of y; nothing is
 * read through it, because beta is 0. */
static int layouts_make(const struct cublaslt *lt, const cublaslt_product *p, int32_t m, layouts *l)
{
    int type = p->f32 ? LT_R_32F : LT_R_16BF;
    uint64_t n = (uint64_t)p->n, k = (uint64_t)p->k, rows = (uint64_t)m;
    *l = (layouts){0};
    int code = lt->f.layout_create(&l->w, LT_R_16BF, k, n, p->k);
    if (code == 0)
        code = lt->f.layout_create(&l->x, LT_R_16BF, k, rows, p->x_stride);
    if (code == 0)
        code = lt->f.layout_create(&l->c, type, n, rows, p->c ? p->c_stride : p->y_stride);
    if (code == 0)
        code = lt->f.layout_create(&l->y, type, n, rows, p->y_stride);
    if (code != 0)
        layouts_release(lt, l);
    return code;
}

/* Returns what kind of product it is, with the address of its bias. NULL: that cannot be set. */
static lt_desc desc_of(const struct cublaslt *lt, const cublaslt_product *p)
{
    if (!p->bias)
        return lt->product;
    return lt->f.desc_set(lt->with_bias, LT_DESC_BIAS, &p->bias, sizeof p->bias) == 0
               ? lt->with_bias
               : NULL;
}

static int launch(const struct cublaslt *lt, const vt_cuda_lane *lane, const cublaslt_product *p,
                  void *workspace, int32_t m, const lt_algorithm *algo)
{
    layouts l;
    float beta = p->c ? 1 : 0;
    lt_desc desc = desc_of(lt, p);
    int code = desc ? layouts_make(lt, p, m, &l) : LT_NOT_SUPPORTED;
    if (code != 0)
        return code;
    code = lt->f.matmul(lt->handle, desc, &p->alpha, p->w, l.w, p->x, l.x, &beta,
                        p->c ? p->c : p->y, l.c, p->y, l.y, algo, workspace, CUBLASLT_WORKSPACE,
                        lane->stream);
    layouts_release(lt, &l);
    return code;
}

/* Asks the library for its first choice of an algorithm for a bucket full of tokens. */
static bool choose(const struct cublaslt *lt, const cublaslt_product *p, lt_algorithm *out)
{
    layouts l;
    lt_choice choice;
    int n = 0;
    lt_desc desc = desc_of(lt, p);
    if (!desc || layouts_make(lt, p, p->bucket, &l) != 0)
        return false;
    memset(&choice, 0, sizeof choice);
    int code = lt->f.heuristic(lt->handle, desc, l.w, l.x, l.c, l.y, lt->preference, 1, &choice,
                               &n);
    layouts_release(lt, &l);
    *out = choice.algo;
    return code == 0 && n > 0 && choice.state == 0 && choice.workspace <= CUBLASLT_WORKSPACE;
}

void vt_cublaslt_prepare(vt_cuda *c)
{
    enum { ANY = 1024 };
    cublaslt_product p = {
        .x_stride = ANY, .y_stride = ANY, .m = ANY, .n = ANY, .k = ANY, .bucket = ANY, .alpha = 1};
    lt_algorithm algo;
    char why[160];
    if (vt_cuda_enter(c, NULL) == VT_OK && vt_cublaslt_open(c, why, sizeof why) > 0)
        choose(c->cublaslt, &p, &algo);
}

int32_t vt_cublaslt_algorithms(const vt_cuda *c) { return c->cublaslt ? c->cublaslt->n : 0; }

/* The entry of the product's shape and bucket; a new one asks the library. NULL: no room. */
static algorithm *find(struct cublaslt *lt, const cublaslt_product *p)
{
    shape_key key = {.x_stride = p->x_stride,
                     .c_stride = p->c ? p->c_stride : 0,
                     .y_stride = p->y_stride,
                     .bucket = p->bucket,
                     .n = p->n,
                     .k = p->k,
                     .f32 = p->f32,
                     .bias = p->bias != NULL};
    for (int32_t i = 0; i < lt->n; i++)
        if (memcmp(&lt->algorithm[i].key, &key, sizeof key) == 0)
            return &lt->algorithm[i];
    if (lt->n == lt->capacity) {
        int32_t more = lt->capacity ? 2 * lt->capacity : 64;
        algorithm *grown = more > MAX_ALGORITHMS
                               ? NULL
                               : realloc(lt->algorithm, (size_t)more * sizeof *grown);
        if (!grown)
            return NULL;
        lt->algorithm = grown;
        lt->capacity = more;
    }
    algorithm *a = &lt->algorithm[lt->n++];
    memset(a, 0, sizeof *a);
    a->key = key;
    a->there = choose(lt, p, &a->algo);
    return a;
}

static vt_status run_failed(vt_cuda_lane *lane, const struct cublaslt *lt,
                            const cublaslt_product *p, int code)
{
    vt_err err;
    vt_fail(&err, VT_ERR_DEVICE,
            "cublasLtMatmul of %d tokens by [%d, %d] failed: %s (%d); VITRINE_CUBLASLT=0 runs "
            "without the library",
            p->m, p->n, p->k, lt->f.status_text(code), code);
    if (lane->err.status == VT_OK)
        lane->err = err;
    return err.status;
}

vt_status vt_cublaslt_run(vt_cuda_lane *lane, const cublaslt_product *p, void *workspace, bool *ran)
{
    char why[160];
    *ran = false;
    if ((lane->collect && (lane->own || p->bucket > CUBLASLT_WARM)) ||
        !vt_cublaslt_open(lane->cuda, why, sizeof why))
        return VT_OK;
    struct cublaslt *lt = lane->cuda->cublaslt;
    algorithm *a = find(lt, p);
    if (!a || !a->there)
        return VT_OK;
    bool first = !a->launched;
    if (lane->collect && !first)
        return VT_OK;
    int32_t m = lane->collect && p->m > WARM_TOKENS ? WARM_TOKENS : p->m;
    int code = launch(lt, lane, p, workspace, m, &a->algo);
    a->launched = true;
    if (first && code != 0) {
        a->there = false; /* no error: our own kernel runs, now and later */
        return VT_OK;
    }
    if (code != 0)
        return run_failed(lane, lt, p, code);
    if (lane->collect)
        return VT_OK; /* *ran stays false: our own kernel is noted too, some bucket may need it */
    *ran = true;
    return vt_cuda_launched(lane, &JIT_SPEC("", "cublasLt", {"rows", p->n}, {"cols", p->k},
                                            {"tokens", p->bucket}, {"bias", p->bias != NULL},
                                            {"residual", p->c != NULL}, {"out_f32", p->f32}));
}
