/* The kernels that a model needs, and those that the cache has (jit_kernels.h). */
#include "lab/kit/jit_kernels.h"

#include <stdlib.h>
#include <string.h>

#include "base/cache_dir.h"
#include "base/err.h"
#include "base/mem.h"
#include "exec/cuda.h"
#include "lab/kit/devices.h"
#include "lab/kit/rows.h"
#include "model/load.h"

/* Where there is no GPU the labs compile for this one. */
#define NO_GPU_ARCH "sm_90a"
enum { NO_GPU_LEVEL = 90, NO_GPU_SMS = 132 };

vt_status lab_jit_ask(lab *l, jit_ask *out, vt_err *err)
{
    *out = (jit_ask){.model = "dummy:qwen3-0.6b",
                     .kv = VT_BF16,
                     .page_size = 64,
                     .max_context = 4096,
                     .max_seqs = 256,
                     .arch = NO_GPU_ARCH,
                     .level = NO_GPU_LEVEL};
    if (l->ordinal < 0)
        return VT_OK;
    on_cuda_gpu *gpu;
    TRY(lab_gpu(l, &gpu, err));
    out->arch = gpu->cuda->arch; /* open until the lab ends */
    out->level = gpu->cuda->level;
    out->model = l->model;
    return VT_OK;
}

vt_status lab_jit_model(const jit_ask *ask, vt_cuda **out, vt_err *err)
{
    vt_limits limits = {.max_tokens = 512,
                        .max_seqs = ask->max_seqs,
                        .max_rows = ask->max_seqs,
                        .max_context = ask->max_context,
                        .page_size = ask->page_size};
    vt_model *model;
    TRY(vt_model_load(ask->model, &model, err));
    vt_status status = vt_executor_cuda_collect(model, &limits, ask->kv, ask->arch, ask->level,
                                                false, out, err);
    vt_model_free(model);
    return status;
}

/* Notes the kernels of the row that a program takes for this call. */
static vt_status note(vt_cuda_lane *lane, const vt_target *t, const char *op, const char *shape,
                      vt_size size, vt_err *err)
{
    static char plan[1 << 16]; /* rows compute addresses in it; nothing is read */
    lab_call c;
    TRY(lab_call_make(t, op, shape, &c, err));
    const vt_impl *row = lab_call_row(&c, NULL, &size);
    vt_lane l = {.target = &c.target, .size = &size, .plan = plan, .items = 1, .cuda = lane};
    vt_status status = row ? row->run(c.args, &l)
                           : vt_fail(err, VT_ERR_UNSUPPORTED, "no row of %s takes %s", op, shape);
    if (status != VT_OK && row && err)
        *err = lane->err;
    lab_call_release(&c);
    return status;
}

vt_status lab_jit_track(const jit_ask *ask, vt_cuda **out, vt_err *err)
{
    char attention[120], store[120];
    vt_target t = {.device = VT_DEVICE_CUDA,
                   .limits = {.max_tokens = 512,
                              .max_seqs = ask->max_seqs,
                              .max_rows = ask->max_seqs,
                              .max_context = ask->max_context},
                   .level = ask->level,
                   .sm_count = NO_GPU_SMS,
                   .max_shared_bytes = ask->level >= 90 ? 227 << 10 : 163 << 10};
    vt_size prefill = {.tokens = 512, .seqs = 1, .rows = 1, .prefills = 1},
            decode = {.tokens = 32, .seqs = 32, .rows = 32, .decodes = 32};
    const char *kv = ask->kv == VT_FP8_E4M3 ? "fp8" : "bf16";
    snprintf(attention, sizeof attention, "kv_len=2,heads=16,kv_heads=8,page=%d,kv_type=%s",
             ask->page_size, kv);
    snprintf(store, sizeof store, "heads=16,kv_heads=8,norm=1,page=%d,kv_type=%s", ask->page_size,
             kv);
    TRY(vt_cuda_offline(ask->arch, ask->level, NO_GPU_SMS, out, err));
    vt_cuda_lane lane = {.cuda = *out, .collect = true, .pdl = ask->level >= 90};
    vt_status status = note(&lane, &t, "attention_prefill", attention, prefill, err);
    if (status == VT_OK)
        status = note(&lane, &t, "attention_decode", attention, decode, err);
    if (status == VT_OK)
        status = note(&lane, &t, "rmsnorm", "hidden=1024", decode, err);
    if (status == VT_OK)
        status = note(&lane, &t, "add_rmsnorm", "hidden=1024", decode, err);
    if (status == VT_OK)
        status = note(&lane, &t, "rope_store", store, decode, err);
    if (status != VT_OK)
        vt_cuda_close(*out);
    return status;
}

int32_t lab_jit_new(vt_jit *a, vt_jit *b, int32_t *first)
{
    int32_t n = 0;
    *first = -1;
    for (int32_t i = 0; i < vt_jit_count(a); i++) {
        char key[40];
        int32_t k = 0;
        snprintf(key, sizeof key, "%s", vt_jit_key(a, i));
        while (k < vt_jit_count(b) && strcmp(key, vt_jit_key(b, k)) != 0)
            k++;
        if (k == vt_jit_count(b)) {
            *first = *first < 0 ? i : *first;
            n++;
        }
    }
    return n;
}

/* ---- the cache's files ---- */

/* A line of vt_jit_list. */
static bool read_line(const char *line, jit_file *f)
{
    long long bytes;
    *f = (jit_file){0};
    if (sscanf(line, "%255s %15s nvrtc %d.%d %d regs %d B spilled %lf ms %lld B %15s", f->name,
               f->arch, &f->nvrtc_major, &f->nvrtc_minor, &f->registers, &f->spill_bytes,
               &f->compile_ms, &bytes, f->key) != 9)
        return false;
    f->bytes = bytes;
    return true;
}

static int by_name(const void *a, const void *b)
{
    const jit_file *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : strcmp(x->key, y->key);
}

vt_status lab_jit_files(jit_file **out, int32_t *n, vt_err *err)
{
    vt_buf text = {0};
    size_t lines = 0;
    *out = NULL;
    *n = 0;
    vt_status status = vt_jit_list(&text, err);
    for (size_t i = 0; status == VT_OK && i < text.len; i++)
        lines += text.data[i] == '\n';
    if (status == VT_OK && lines > 0 && !(*out = vt_calloc(lines, sizeof **out)))
        status = vt_fail(err, VT_ERR_MEMORY, "out of memory for %zu files of the cache", lines);
    for (const char *p = text.data; status == VT_OK && lines > 0 && p && *p; p++) {
        *n += read_line(p, &(*out)[*n]);
        p = strchr(p, '\n');
        if (!p)
            break;
    }
    vt_buf_release(&text);
    if (*n > 0)
        qsort(*out, (size_t)*n, sizeof **out, by_name);
    return status;
}

/* The files from `first` on whose kernel has the same name: how many. */
static int32_t same_kernel(const jit_file *file, int32_t first, int32_t n)
{
    size_t len = strcspn(file[first].name, "<");
    int32_t k = first;
    while (k < n && strncmp(file[k].name, file[first].name, len) == 0 &&
           strcspn(file[k].name, "<") == len)
        k++;
    return k - first;
}

static void put_tree(const jit_file *file, int32_t n, vt_buf *out)
{
    enum { NAME = 26, INSTANCE = 88 };
    char folder[1200] = "the cache";
    vt_cache_path("cubin", folder, sizeof folder, NULL);
    vt_buf_printf(out, "%.95s\n", folder);
    for (int32_t i = 0; i < n;) {
        int32_t k = same_kernel(file, i, n);
        bool last = i + k == n;
        double ms = 0, bytes = 0;
        size_t begin = out->len;
        for (int32_t j = i; j < i + k; j++) {
            ms += file[j].compile_ms;
            bytes += (double)file[j].bytes;
        }
        vt_buf_printf(out, "%s %.*s", last ? "└──" : "├──", (int)strcspn(file[i].name, "<"),
                      file[i].name);
        vt_text_pad(out, begin, NAME);
        vt_text_printf(out, "%3d file%s  %f B, compiled in %f s\n%s └── %s-%d.%d.cubin  %.*s%s\n",
                       k, k == 1 ? ", " : "s,", bytes, ms * 1e-3, last ? "   " : "│  ", file[i].key,
                       file[i].nvrtc_major, file[i].nvrtc_minor, INSTANCE - 40, file[i].name,
                       strlen(file[i].name) > INSTANCE - 40 ? "..." : "");
        i += k;
    }
    if (n == 0)
        vt_buf_puts(out, "└── (empty: nothing was compiled for this user yet)\n");
}

vt_status lab_jit_draw(lab *l, const char *key, const char *title, vt_err *err)
{
    vt_buf tree = {0};
    jit_file *file;
    int32_t n;
    TRY(lab_jit_files(&file, &n, err));
    put_tree(file, n, &tree);
    lab_drawing(l, key, title, &tree);
    vt_buf_release(&tree);
    free(file);
    return VT_OK;
}
