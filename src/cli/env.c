/* vitrine env: what this machine offers. Everything is looked up or tried when the verb runs. Roofs
 * are measured each time, and the best ever measured is kept: a roof is a maximum. */
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "cli/cli.h"
#include "device/cpu.h"
#include "device/cuda/cublaslt.h"
#include "device/cuda/cuda.h"
#include "device/cuda/jit.h"
#include "device/hardware.h"
#include "device/roofs/roofs_cache.h"
#include "lab/env/env.h"
#include "model/load.h"
#include "ops/bench/comm_measure.h"
#include "ops/comm_params.h"
#include "version.h"

static int32_t threads_wanted(const cli *c)
{
    int64_t n = vt_options_int(c->options, "threads");
    return n ? (int32_t)n : vt_cpu_get()->n_cores;
}

/* ---- text ---- */

static void heading(vt_buf *b, const vt_term *term, const char *name)
{
    if (b->len)
        vt_buf_putc(b, '\n');
    vt_text_ink(b, term, VT_INK_BOLD, name);
    vt_buf_putc(b, '\n');
}

static void put_cpu(vt_buf *b, const vt_term *term, const lab_env *e)
{
    const vt_cpu *cpu = vt_cpu_get();
    char text[256];
    heading(b, term, "CPU");
    lab_env_line(b, term, "model", cpu->model);
    snprintf(text, sizeof text, "%d CPUs for this process, %d cores, %d NUMA node%s", cpu->n_cpus,
             cpu->n_cores, cpu->n_nodes, cpu->n_nodes == 1 ? "" : "s");
    lab_env_line(b, term, "cores", text);
    snprintf(text, sizeof text, "L1d %lld KiB and L2 %lld KiB a core, L3 %lld MiB",
             (long long)cpu->l1d_bytes >> 10, (long long)cpu->l2_bytes >> 10,
             (long long)cpu->l3_bytes >> 20);
    lab_env_line(b, term, "caches", text);
    snprintf(text, sizeof text, "%.1f GiB", (double)cpu->memory_bytes / (1 << 30));
    lab_env_line(b, term, "memory", text);
    snprintf(text, sizeof text, "%s%s%s%s", vt_isa_name(cpu->level),
             cpu->level == cpu->best ? "" : " (VITRINE_ISA; ",
             cpu->level == cpu->best ? "" : vt_isa_name(cpu->best),
             cpu->level == cpu->best ? " (the best it has)" : " is the best it has)");
    lab_env_line(b, term, "instructions", text);
    lab_env_put_nodes(b, term, e);
}

/* "60.4 GB/s over 64.0 MiB, measured 2026-11-22 (avx512 fma)". On a machine without the unit there
 * is no line. */
static void put_roof(vt_buf *b, const vt_term *term, const vt_roofs *r, vt_roof_kind kind,
                     const vt_hardware *sheet)
{
    vt_buf text = {0};
    double v = vt_roof_get(r, kind);
    const vt_roof_row *row = &vt_roof_rows[kind];
    const int64_t *set = vt_roof_working_set((vt_roofs *)(uintptr_t)r, kind);
    time_t when = (time_t)r->mark[kind].when;
    struct tm utc;
    char date[16] = "";
    if (v <= 0)
        return;
    if (row->unit)
        vt_text_rate(&text, v, row->unit);
    else
        vt_text_time(&text, v);
    if (set)
        vt_buf_printf(&text, " over %.1f MiB", (double)*set / (1 << 20));
    if (when > 0 && gmtime_r(&when, &utc) && strftime(date, sizeof date, " %Y-%m-%d", &utc) == 0)
        date[0] = '\0';
    vt_buf_printf(&text, ", %s%s", vt_roof_tag_name[r->mark[kind].tag], date);
    if (vt_roof_how(r, kind))
        vt_buf_printf(&text, " (%s)", vt_roof_how(r, kind));
    if (sheet && vt_roof_get(&sheet->roofs, kind) > 0) {
        vt_buf_puts(&text, "; data sheet: ");
        vt_text_rate(&text, vt_roof_get(&sheet->roofs, kind), row->unit);
    }
    lab_env_line(b, term, row->name, text.data ? text.data : "");
    vt_buf_release(&text);
}

/* Every figure, and for each size of weights that a story or explain needed its rate. */
static void put_all_roofs(vt_buf *b, const vt_term *term, const vt_roofs *r,
                          const vt_hardware *sheet)
{
    enum { MOST = 16 };
    vt_roofs weights[MOST];
    for (int i = 0; i < VT_ROOFS; i++)
        put_roof(b, term, r, (vt_roof_kind)i, sheet);
    int32_t n = roofs_cache_weights(r, weights, MOST);
    for (int32_t i = 0; i < n; i++)
        put_roof(b, term, &weights[i], VT_ROOF_WEIGHTS, NULL);
    if (vt_roofs_disturbed(r))
        lab_env_line(b, term, "disturbed",
                     "other programs used this machine meanwhile: such a figure may "
                     "be too low; it is kept for a minute, and is measured again when "
                     "it is needed later or by the next vitrine env");
}

static void put_roofs(vt_buf *b, const vt_term *term, const vt_roofs *r)
{
    char title[128];
    snprintf(title, sizeof title, "Roofs with %d thread%s%s", r->threads,
             r->threads == 1 ? "" : "s",
             vt_roofs_sanitized() ? " (a sanitized build: they say nothing of the machine)" : "");
    heading(b, term, title);
    put_all_roofs(b, term, r, NULL);
}

static void put_gpu_roofs(vt_buf *b, const vt_term *term, bool emulated)
{
    vt_roofs r;
    vt_err err;
    heading(b, term,
            emulated ? "Roofs of the GPU (it is emulated: these times mean nothing)"
                     : "Roofs of the GPU");
    if (vt_roofs_cuda(0, 0, true, &r, &err) != VT_OK) {
        lab_env_line(b, term, "none", err.message);
        return;
    }
    put_all_roofs(b, term, &r, vt_hardware_sheet(r.name));
}

static void put_cublaslt(vt_buf *b, const vt_term *term, vt_cuda *gpu)
{
    char why[160], text[256];
    size_t v = vt_cublaslt_open(gpu, why, sizeof why);
    if (v == 0)
        snprintf(text, sizeof text, "not used: %s; products run on kernels of our own", why);
    else if (gpu->level < 90)
        snprintf(text, sizeof text, "%zu.%zu.%zu, not used at level %d", v / 10000, v / 100 % 100,
                 v % 100, gpu->level);
    else
        snprintf(text, sizeof text,
                 "%zu.%zu.%zu, used where it was measured to be faster (VITRINE_CUBLASLT=0: never)",
                 v / 10000, v / 100 % 100, v % 100);
    lab_env_line(b, term, "cuBLASLt", text);
}

/* Finds where models run without --device, and in *why what keeps "auto" from the GPU (VT_OK:
 * nothing does). */
static void default_device(const vt_options *o, char *device, size_t size, vt_err *why)
{
    *why = (vt_err){0};
    vt_options_device(o, device, size);
    if (strcmp(vt_options_get(o, "device"), "auto") == 0 && vt_options_cuda(o) < 0)
        vt_cuda_usable(0, why);
}

static void put_used(vt_buf *b, const vt_term *term, const vt_options *o)
{
    char device[16];
    vt_err why;
    vt_buf text = {0};
    default_device(o, device, sizeof device, &why);
    if (why.status != VT_OK)
        vt_buf_printf(&text, "only with --device cuda: %s", why.message);
    else if (vt_options_given(o, "device"))
        vt_buf_printf(&text, "VITRINE_DEVICE: models run on %s", device);
    else
        vt_buf_puts(&text, "models run on it, unless --device says otherwise");
    lab_env_line(b, term, "use", text.data ? text.data : "");
    vt_buf_release(&text);
}

/* The first GPU, or why there is none. */
static void put_gpu(vt_buf *b, const vt_term *term, const vt_options *o, const lab_env *e)
{
    vt_err err;
    vt_cuda *gpu;
    char text[256];
    heading(b, term, "GPU");
    if (vt_cuda_open(0, &gpu, &err) != VT_OK) {
        lab_env_line(b, term, "none", err.message);
        return;
    }
    lab_env_line(b, term, "model", gpu->name);
    snprintf(text, sizeof text, "compute capability %d.%d, %d multiprocessors, L2 %d MiB, %.1f GiB",
             gpu->cc_major, gpu->cc_minor, gpu->sm_count, gpu->l2_bytes >> 20,
             (double)gpu->total_bytes / (1 << 30));
    lab_env_line(b, term, "size", text);
    snprintf(text, sizeof text, "%d (kernels for sm_%d and up), built for %s", gpu->level,
             gpu->level, gpu->arch);
    lab_env_line(b, term, "level", text);
    snprintf(text, sizeof text, "%d.%d", gpu->driver_version / 1000,
             gpu->driver_version % 1000 / 10);
    lab_env_line(b, term, "CUDA driver", text);
    put_cublaslt(b, term, gpu);
    vt_cuda_close(gpu);
    vt_buf state = {0};
    cli_gpu_state(&state, 0);
    lab_env_line(b, term, "now", state.data ? state.data : "");
    vt_buf_release(&state);
    put_used(b, term, o);
    put_gpu_roofs(b, term, e->emulated);
}

static void put_caches(vt_buf *b, const vt_term *term, const lab_env *e)
{
    char path[4096];
    vt_err err;
    heading(b, term, "Caches");
    lab_env_line(b, term, "models",
                 vt_cache_dir(path, sizeof path, &err) == VT_OK ? path : err.message);
    lab_env_put_cache(b, term, e);
}

/* ---- sums over ranks ---- */

/* The limits of the forms of sums on the first GPUs, for a number of them and a link. */
typedef struct sums {
    int32_t n;
    const char *link;
    vt_comm_limits limits;
} sums;

enum { MOST_SUMS = 6 }; /* of 2, 4 and 8 GPUs, over both links */

/* Returns how many there are; those through the host only where they were measured. */
static int32_t find_sums(const lab_env *e, sums out[MOST_SUMS])
{
    static const int32_t gpu[COMM_GPU_RANKS] = {0, 1, 2, 3, 4, 5, 6, 7};
    vt_cuda *first;
    int32_t at = 0, most = vt_gpus_counted(&e->gpus);
    int seen = 0; /* by the driver: fewer where CUDA_VISIBLE_DEVICES says so */
    if (most < 2 || vt_cuda_open(0, &first, NULL) != VT_OK)
        return 0;
    if (first->driver.device_count(&seen) == 0 && seen < most)
        most = seen;
    for (int32_t n = 2; n <= most && n <= COMM_GPU_RANKS; n *= 2)
        for (int host = 0; host < 2; host++) {
            sums s = {.n = n, .link = host ? "host" : "p2p"};
            const comm_set set = {first, gpu, n, host != 0};
            if (vt_comm_limits_get(&set, false, &s.limits) || !host)
                out[at++] = s;
        }
    vt_cuda_close(first);
    return at;
}

static void put_sums(vt_buf *b, const vt_term *term, const lab_env *e)
{
    sums s[MOST_SUMS];
    int32_t n = find_sums(e, s);
    if (n > 0)
        heading(b, term, "Sums over ranks, by GPUs and link (an engine's first use measures them)");
    for (int32_t i = 0; i < n; i++) {
        vt_buf text = {0};
        char name[16];
        snprintf(name, sizeof name, "%d, %s", s[i].n, s[i].link);
        vt_comm_limits_tell(&text, &s[i].limits);
        lab_env_line(b, term, name, text.data ? text.data : "");
        vt_buf_release(&text);
    }
}

static void write_sums(vt_json *w, const lab_env *e)
{
    sums s[MOST_SUMS];
    int32_t n = find_sums(e, s);
    vt_json_open(w, "rank_sums", '[');
    for (int32_t i = 0; i < n; i++) {
        vt_json_open(w, NULL, '{');
        vt_json_int(w, "gpus", s[i].n);
        vt_json_string(w, "link", s[i].link);
        vt_comm_limits_put(w, "limits", &s[i].limits);
        vt_json_close(w);
    }
    vt_json_close(w);
}

/* Writes what lab/env/env.h tells, part by part. */
static void put_rest(vt_buf *b, const vt_term *term, const lab_env *e)
{
    if (e->gpus.n > 0) {
        heading(b, term, "GPUs, their memory and their users before this program opened one");
        lab_env_put_gpus(b, term, e);
    }
    if (vt_gpus_counted(&e->gpus) > 1) {
        heading(b, term, "Links between GPUs, and groups for tensor parallelism");
        lab_env_put_links(b, term, e);
    }
    put_sums(b, term, e);
    heading(b, term, "Libraries, loaded only where they are needed");
    lab_env_put_libraries(b, term, e);
    heading(b, term, "Compiling GPU kernels");
    lab_env_put_compiler(b, term, e);
    heading(b, term, "Ops and what their kernels need");
    lab_env_put_needs(b, term, e);
    heading(b, term, "Profiling");
    lab_env_put_profiling(b, term, e);
    put_caches(b, term, e);
    if (e->tried) {
        heading(b, term,
                e->emulated ? "Every op tried on one small case against its reference (the GPU is "
                              "emulated)"
                            : "Every op tried on one small case against its reference");
        lab_env_put_tries(b, term, e);
    }
    heading(b, term, "What to do");
    lab_env_put_advice(b, term, e);
    vt_buf_putc(b, '\n');
    lab_env_put_ready(b, term, e);
}

/* ---- JSON ---- */

/* The data sheet's figures beside the measured ones; null for a GPU that is not in the table. */
static void write_sheet(vt_json *w, const vt_hardware *sheet)
{
    if (!sheet) {
        vt_json_null(w, "data_sheet");
        return;
    }
    vt_json_open(w, "data_sheet", '{');
    for (int i = 0; i < VT_ROOFS; i++)
        if (vt_roof_get(&sheet->roofs, (vt_roof_kind)i) > 0)
            vt_json_real(w, vt_roof_rows[i].key, vt_roof_get(&sheet->roofs, (vt_roof_kind)i));
    vt_json_close(w);
}

/* Roofs and efficiencies, in the form that --hardware FILE reads on another machine. */
static void write_roofs(vt_json *w, const vt_roofs *r)
{
    enum { MOST = 16 };
    vt_roofs weights[MOST];
    vt_efficiencies e = {0};
    int32_t n = roofs_cache_weights(r, weights, MOST);
    vt_json_open(w, "roofs", '{');
    vt_json_int(w, "threads", r->threads);
    roofs_put_figures(w, "figures", r);
    vt_json_open(w, "weights", '[');
    for (int32_t i = 0; i < n; i++) {
        vt_json_open(w, NULL, '{');
        vt_json_int(w, "working_set_bytes", weights[i].near_bytes);
        vt_json_real(w, "bytes_per_s", weights[i].near_bytes_per_s);
        roofs_put_date(w, "date", weights[i].mark[VT_ROOF_WEIGHTS].when);
        vt_json_string(w, "tag", vt_roof_tag_name[weights[i].mark[VT_ROOF_WEIGHTS].tag]);
        vt_json_close(w);
    }
    vt_json_close(w);
    if (r->threads == 0)
        write_sheet(w, vt_hardware_sheet(r->name));
    vt_efficiencies_read(&e, r->key);
    vt_efficiencies_put(w, "efficiencies", &e);
    vt_efficiencies_release(&e);
    vt_json_close(w);
}

/* The GPU, with its roofs. */
static void write_gpu(vt_json *w)
{
    vt_roofs r;
    vt_err err;
    if (!cli_gpu_open(w, "gpu", 0))
        return;
    bool there = vt_roofs_cuda(0, 0, true, &r, &err) == VT_OK;
    vt_json_string(w, "roofs_missing", there ? NULL : err.message);
    if (there)
        write_roofs(w, &r);
    else
        vt_json_null(w, "roofs");
    vt_json_close(w);
}

static void write_default_device(vt_json *w, const vt_options *o)
{
    char device[16];
    vt_err why;
    default_device(o, device, sizeof device, &why);
    vt_json_open(w, "device", '{');
    vt_json_string(w, "option", vt_options_get(o, "device"));
    vt_json_string(w, "runs_on", device);
    vt_json_string(w, "why_not_cuda", why.status == VT_OK ? NULL : why.message);
    vt_json_close(w);
}

static void write_cpu(vt_json *w, const vt_cpu *cpu)
{
    vt_json_open(w, "cpu", '{');
    vt_json_string(w, "model", cpu->model);
    vt_json_int(w, "cpus", cpu->n_cpus);
    vt_json_int(w, "cores", cpu->n_cores);
    vt_json_int(w, "numa_nodes", cpu->n_nodes);
    vt_json_int(w, "l1d_bytes", cpu->l1d_bytes);
    vt_json_int(w, "l2_bytes", cpu->l2_bytes);
    vt_json_int(w, "l3_bytes", cpu->l3_bytes);
    vt_json_int(w, "memory_bytes", cpu->memory_bytes);
    vt_json_string(w, "level", vt_isa_name(cpu->level));
    vt_json_string(w, "best_level", vt_isa_name(cpu->best));
    vt_json_close(w);
}

static int print_object(const vt_options *o, const vt_roofs *r, const lab_env *e)
{
    char cache[4096];
    vt_json w;
    vt_json_object(&w);
    vt_json_string(&w, "version", vt_version());
    vt_json_string(&w, "commit", VT_COMMIT);
    write_cpu(&w, vt_cpu_get());
    write_roofs(&w, r);
    write_gpu(&w);
    write_default_device(&w, o);
    lab_env_write(&w, e);
    write_sums(&w, e);
    vt_json_string(&w, "models", vt_cache_dir(cache, sizeof cache, NULL) == VT_OK ? cache : NULL);
    return cli_object_print(&w);
}

/* "3 kernels copied to DIR", or {"copied": 3}. */
static int print_moved(const cli *c, const char *verb, const char *key, int32_t n,
                       const char *folder)
{
    if (c->json) {
        vt_json w;
        vt_json_object(&w);
        vt_json_int(&w, key, n);
        return cli_object_print(&w);
    }
    printf("%d kernel%s %s %s\n", n, n == 1 ? "" : "s", verb, folder);
    return CLI_DONE;
}

/* vitrine env --jit: the cubin cache; --export and --import move it. */
static int jit_cache(const cli *c, const char *export_to, const char *import_from)
{
    vt_err err = {0};
    int32_t n = 0;
    if (*export_to && vt_jit_export(export_to, &n, &err) != VT_OK)
        return cli_fail(&err);
    if (*export_to)
        print_moved(c, "copied to", "copied", n, export_to);
    if (*import_from && vt_jit_import(import_from, &n, &err) != VT_OK)
        return cli_fail(&err);
    if (*import_from)
        print_moved(c, "taken from", "taken", n, import_from);
    if (*export_to || *import_from)
        return CLI_DONE;
    return cli_put_kernels(c);
}

static int print_text(const cli *c, const vt_roofs *r, const lab_env *e)
{
    vt_buf b = {0};
    put_cpu(&b, &c->out, e);
    put_roofs(&b, &c->out, r);
    put_gpu(&b, &c->out, c->options, e);
    put_rest(&b, &c->out, e);
    return cli_text_print(&b);
}

int cli_env(cli *c)
{
    const char *export_to = vt_options_get(c->options, "export");
    const char *import_from = vt_options_get(c->options, "import");
    if (vt_options_flag(c->options, "jit") || *export_to || *import_from)
        return jit_cache(c, export_to, import_from);
    vt_err err = {0};
    vt_roofs r;
    lab_env *e;
    bool try = vt_options_flag(c->options, "try");
    if (lab_env_look(c->options, &e, &err) != VT_OK) /* before anything opens a GPU */
        return cli_fail(&err);
    if (c->log.tty)
        cli_note(c, "measuring roofs: one to six seconds");
    vt_status status = vt_roofs_again(threads_wanted(c), 0, &r, &err);
    if (status == VT_OK && try && c->log.tty)
        cli_note(c, "trying every op: a few seconds, more where kernels must be compiled");
    if (status == VT_OK && try)
        status = lab_env_try(e, threads_wanted(c), NULL, NULL, &err);
    int code = status != VT_OK ? cli_fail(&err)
               : c->json       ? print_object(c->options, &r, e)
                               : print_text(c, &r, e);
    if (code == CLI_DONE && e->n_failed > 0)
        code = CLI_FAILED;
    lab_env_free(e);
    return code;
}
