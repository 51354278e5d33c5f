/* vitrine bench kernels [OP]: every implementation of every real-size case of every op, or of the
 * shapes that --shape gives, timed and checked against the reference (bench/bench.h), on the CPU or
 * on a GPU.
 *
 * The share of the roof is that of the binding one: least time over median time. On a CPU, work
 * whose bytes fit into L2 and that is not run cold never meets the memory roof, so only its
 * arithmetic is held against a roof; on a GPU that holds for every method but cold. An emulated GPU
 * checks results; its times mean nothing and are left out. */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/term/figure.h"
#include "cli/bench/bench.h"
#include "device/choose.h"
#include "device/cpu.h"
#include "device/cupti/stalls.h"
#include "device/roofs/roofs.h"
#include "ops/bench/bench.h"
#include "ops/bench/bench_counters.h"
#include "ops/bench/bench_lines.h"

enum { FLUSH = 256 << 20, EMULATED_FLUSH = 1 << 20 };

typedef struct kernels_report {
    const cli *c;
    vt_roofs roofs; /* all 0: not known */
    bool cold;
    int64_t l2_bytes;
    const vt_op *op; /* whose table is open; NULL: none */
    vt_table table;
    vt_buf counts; /* lines that follow the table */
    vt_json json;
    int32_t n_results, n_wrong;
} kernels_report;

/* The time of the longest part at its roof, in seconds, and that roof's name. */
static double least_time(const kernels_report *k, const bench_result *r, const char **roof)
{
    const vt_flops *f = &r->cost.flops;
    int64_t bytes = vt_cost_bytes(&r->cost);
    const vt_roofs *at = &k->roofs;
    const struct {
        const char *name;
        double work, per_s;
    } part[] = {
        {"fp32", (double)f->fp32, at->fp32_per_s},
        {"bf16", (double)f->bf16, at->bf16_per_s},
        {"fp8", (double)f->fp8, at->fp8_per_s},
        {"int8", (double)f->int8, at->int8_per_s},
        {"memory", k->cold || bytes > k->l2_bytes ? (double)bytes : 0, at->memory_bytes_per_s}};
    double least = 0;
    *roof = "fp32";
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        if (part[i].per_s > 0 && part[i].work / part[i].per_s > least) {
            least = part[i].work / part[i].per_s;
            *roof = part[i].name;
        }
    return least;
}

/* Share of the binding roof; NAN where none applies. */
static double roof_share(const kernels_report *k, const bench_result *r, const char **roof)
{
    double least = least_time(k, r, roof);
    return least > 0 && r->timed ? least * 1e9 / (double)r->median_ns : NAN;
}

static void flush_table(kernels_report *k)
{
    if (!k->op)
        return;
    vt_buf b = {0};
    vt_text_ink(&b, &k->c->out, VT_INK_BOLD, k->op->name);
    vt_buf_printf(&b, "  %s\n", k->op->what);
    vt_table_finish(&k->table, &b, &k->c->out, 1);
    if (k->counts.len > 0)
        vt_buf_printf(&b, "\n%s", k->counts.data);
    vt_buf_release(&k->counts);
    vt_buf_putc(&b, '\n');
    if (b.data)
        fwrite(b.data, 1, b.len, stdout);
    fflush(stdout);
    vt_buf_release(&b);
    k->op = NULL;
}

static void cell_time(vt_table *t, const bench_result *r, int64_t ns)
{
    if (!r->timed) {
        vt_table_cell(t, "n/a");
        return;
    }
    vt_buf b = {0};
    vt_text_time(&b, (double)ns * 1e-9);
    vt_table_cell(t, "%s", b.data ? b.data : "");
    vt_buf_release(&b);
}

/* Orders what the call's warps did by its share, the largest first; -1 ends the list. */
static void order_stalls(const double stalled[VT_STALLS], int order[VT_STALLS + 1])
{
    int n = 0;
    for (int i = 0; i < VT_STALLS; i++) {
        int at = n;
        if (!isfinite(stalled[i]))
            continue;
        for (; at > 0 && stalled[order[at - 1]] < stalled[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
        n++;
    }
    order[n] = -1;
}

static void put_share(vt_buf *b, const char *name, double share)
{
    if (isfinite(share))
        vt_buf_printf(b, ", %s %.1f %%", name, 100 * share);
}

/* Adds a line of counters and one of waits. */
static void put_counts(kernels_report *k, const bench_result *r)
{
    enum { TOLD = 4 };
    const double *v = r->counts->vital;
    int order[VT_STALLS + 1];
    vt_buf *b = &k->counts;
    vt_text_printf(b, "   %s, %s: %f B from and to memory, %.3f of the least", r->c->name,
                   r->impl->name, v[VT_VITAL_DRAM_READ] + v[VT_VITAL_DRAM_WRITTEN],
                   (v[VT_VITAL_DRAM_READ] + v[VT_VITAL_DRAM_WRITTEN]) / (double)r->bytes);
    put_share(b, "memory", v[VT_VITAL_DRAM]);
    put_share(b, "tensor cores", v[VT_VITAL_TENSOR]);
    put_share(b, "SMs", v[VT_VITAL_SM]);
    put_share(b, "occupancy", v[VT_VITAL_WARPS]);
    put_share(b, "L2 hits", v[VT_VITAL_L2_HIT]);
    vt_buf_puts(b, "\n");
    order_stalls(r->counts->stalled, order);
    for (int i = 0; i < TOLD && order[i] >= 0 && r->counts->stalled[order[i]] >= 0.005; i++)
        vt_buf_printf(b, "%s%.0f %% of its warps' cycles a warp %s (%s)", i ? "; " : "      ",
                      100 * r->counts->stalled[order[i]], vt_stalls[order[i]].meaning,
                      vt_stalls[order[i]].name);
    vt_buf_puts(b, "\n");
}

/* Shares of a line's samples; NAN for reasons that none of them has. */
static void line_shares(const bench_line *l, double out[VT_STALLS])
{
    for (int i = 0; i < VT_STALLS; i++)
        out[i] = l->stalled[i] > 0 ? (double)l->stalled[i] / (double)l->samples : NAN;
}

/* Adds the lines with the most samples, each with what warps did there. */
static void put_lines(kernels_report *k, const bench_result *r)
{
    enum { TOLD = 3 };
    const bench_lines *s = r->lines;
    vt_buf *b = &k->counts;
    double all = (double)(s->samples + s->other), share[VT_STALLS];
    int order[VT_STALLS + 1];
    vt_text_printf(b, "   %s, %s: %llu samples of the program counter in %d calls", r->c->name,
                   r->impl->name, (unsigned long long)(s->samples + s->other), s->n_calls);
    if (all > 0)
        vt_buf_printf(b, ", %.1f %% of them at a line of a source", 100 * (double)s->placed / all);
    if (s->other > 0)
        vt_buf_printf(b, ", %.1f %% in a library's kernels", 100 * (double)s->other / all);
    if (s->totals.dropped > 0 || !s->totals.whole)
        vt_buf_printf(b, "; the hardware lost %llu%s", (unsigned long long)s->totals.dropped,
                      s->totals.whole ? "" : ", and not all were handed over");
    vt_buf_puts(b, "\n");
    for (int32_t i = 0; i < s->n; i++) {
        const bench_line *l = &s->line[i];
        vt_buf_printf(b, "     %5.1f %%  %s:%d  %.*s\n             ",
                      100 * (double)l->samples / all, l->file, l->line, l->text_bytes,
                      l->text ? l->text : "");
        line_shares(l, share);
        order_stalls(share, order);
        for (int j = 0; j < TOLD && order[j] >= 0 && share[order[j]] >= 0.005; j++)
            vt_buf_printf(b, "%s%.0f %% %s (%s)", j ? "; " : "", 100 * share[order[j]],
                          vt_stalls[order[j]].meaning, vt_stalls[order[j]].name);
        vt_buf_puts(b, "\n");
    }
}

static void put_waits_json(vt_json *w, const double share[VT_STALLS])
{
    int order[VT_STALLS + 1];
    vt_json_open(w, "waits", '[');
    order_stalls(share, order);
    for (int i = 0; order[i] >= 0; i++) {
        vt_json_open(w, NULL, '{');
        vt_json_string(w, "reason", vt_stalls[order[i]].name);
        vt_json_fixed(w, "share", share[order[i]], 4);
        vt_json_string(w, "meaning", vt_stalls[order[i]].meaning);
        vt_json_close(w);
    }
    vt_json_close(w);
}

static void put_counts_json(vt_json *w, const bench_counts *c)
{
    vt_json_open(w, "counters", '{');
    for (int i = 0; i < VT_VITALS; i++)
        if (i < VT_VITAL_STALLED || i >= VT_VITAL_STALLED + VT_STALLS)
            vt_json_real(w, vt_vitals[i].key, c->vital[i]);
    put_waits_json(w, c->stalled);
    vt_json_close(w);
}

static void put_lines_json(vt_json *w, const bench_lines *s)
{
    double share[VT_STALLS];
    char text[160];
    vt_json_open(w, "samples", '{');
    vt_json_int(w, "calls", s->n_calls);
    vt_json_int(w, "own", (int64_t)s->samples);
    vt_json_int(w, "of_libraries", (int64_t)s->other);
    vt_json_int(w, "at_a_line", (int64_t)s->placed);
    vt_json_int(w, "lost", (int64_t)s->totals.dropped);
    vt_json_bool(w, "whole", s->totals.whole);
    vt_json_open(w, "lines", '[');
    for (int32_t i = 0; i < s->n; i++) {
        const bench_line *l = &s->line[i];
        vt_json_open(w, NULL, '{');
        vt_json_string(w, "file", l->file);
        vt_json_int(w, "line", l->line);
        snprintf(text, sizeof text, "%.*s", l->text_bytes, l->text ? l->text : "");
        vt_json_string(w, "text", l->text ? text : NULL);
        vt_json_int(w, "samples", (int64_t)l->samples);
        line_shares(l, share);
        put_waits_json(w, share);
        vt_json_close(w);
    }
    vt_json_close(w);
    vt_json_close(w);
}

static void put_row(kernels_report *k, const bench_result *r, double share, const char *roof)
{
    if (k->op != r->op) {
        flush_table(k);
        vt_table_init(&k->table, "case|runs as|>best|>median|>GB/s|>GFLOP/s|>error|of roof");
        k->op = r->op;
    }
    vt_table_cell(&k->table, "%s", r->c->name);
    vt_table_cell(&k->table, "%s", r->impl->name);
    cell_time(&k->table, r, r->best_ns);
    cell_time(&k->table, r, r->median_ns);
    vt_table_cell(&k->table, r->timed ? "%.1f" : "n/a", r->gb_per_s);
    vt_table_cell(&k->table, !r->timed ? "n/a" : r->flops > 0 ? "%.1f" : "-", r->gflop_per_s);
    if (isnan(r->error))
        vt_table_cell(&k->table, "-");
    else
        vt_table_cell(&k->table, r->wrong ? "%.1e WRONG" : "%.1e", r->error);
    if (isfinite(share))
        vt_table_cell(&k->table, "%.0f %% %s", 100 * share, roof);
    else
        vt_table_cell(&k->table, "-");
    if (r->counts)
        put_counts(k, r);
    if (r->lines)
        put_lines(k, r);
}

/* The kernels that one call launches, by the names and parameters they were compiled with. */
static void put_kernels(vt_json *w, const bench_result *r)
{
    vt_json_open(w, "kernels", '[');
    for (int32_t i = 0; r->cuda && i < r->cuda->n_kernels; i++)
        vt_json_string(w, NULL, vt_jit_name(r->cuda->gpu->cuda->jit, r->cuda->kernel[i]));
    vt_json_close(w);
}

static void put_number(vt_json *w, const char *key, bool there, double v, int digits)
{
    if (there)
        vt_json_fixed(w, key, v, digits);
    else
        vt_json_null(w, key);
}

static void put_json(kernels_report *k, const bench_result *r, double share, const char *roof)
{
    vt_json *w = &k->json;
    vt_json_open(w, NULL, '{');
    vt_json_string(w, "op", r->op->name);
    vt_json_string(w, "case", r->c->name);
    vt_json_string(w, "implementation", r->impl->name);
    vt_json_string(w, "device", r->cuda ? "cuda" : "cpu");
    vt_json_string(w, "method", r->method);
    put_number(w, "threads", !r->cuda, r->n_workers, 0);
    put_number(w, "best_ns", r->timed, (double)r->best_ns, 0);
    put_number(w, "median_ns", r->timed, (double)r->median_ns, 0);
    vt_json_int(w, "bytes", r->bytes);
    vt_json_int(w, "flops", r->flops);
    put_number(w, "gb_per_s", r->timed, r->gb_per_s, 3);
    put_number(w, "gflop_per_s", r->timed, r->gflop_per_s, 3);
    put_number(w, "tflop_per_s", r->timed, r->gflop_per_s * 1e-3, 3);
    vt_json_string(w, "roof", isfinite(share) ? roof : NULL);
    put_number(w, "roof_share", isfinite(share), share, 4);
    vt_json_real(w, "error", r->error);
    vt_json_real(w, "tolerance", r->allowed);
    vt_json_string(w, "wrong", r->wrong ? (r->why[0] ? r->why : "beyond the tolerance") : NULL);
    put_kernels(w, r);
    if (r->counts)
        put_counts_json(w, r->counts);
    if (r->lines)
        put_lines_json(w, r->lines);
    vt_json_close(w);
}

static void report(void *user, const bench_result *r)
{
    kernels_report *k = user;
    const char *roof;
    double share = roof_share(k, r, &roof);
    k->n_results++;
    k->n_wrong += r->wrong;
    if (k->c->json)
        put_json(k, r, share, roof);
    else
        put_row(k, r, share, roof);
    if (k->c->log.tty)
        cli_note(k->c, "%s, %s, %s", r->op->name, r->c->name, r->impl->name);
}

static vt_status read_method(const cli *c, bool gpu, bench_options *o, vt_err *err)
{
    const char *method = vt_options_get(c->options, "method");
    if (strcmp(method, "auto") == 0)
        method = gpu || vt_options_flag(c->options, "cold") ? "cold" : "warm";
    for (int i = 0; i < ON_CUDA_METHODS; i++)
        if (strcmp(method, on_cuda_method_name[i]) == 0)
            o->method = (on_cuda_method)i;
    o->cold = o->method == ON_CUDA_COLD;
    if (!gpu && vt_options_flag(c->options, "counters"))
        return vt_fail(err, VT_ERR_USAGE, "--counters reads a GPU's counters: add --device cuda");
    if (!gpu && vt_options_flag(c->options, "lines"))
        return vt_fail(err, VT_ERR_USAGE, "--lines samples a GPU's kernels: add --device cuda");
    if (!gpu && o->method != ON_CUDA_COLD && o->method != ON_CUDA_WARM)
        return vt_fail(err, VT_ERR_USAGE, "--method %s: expected warm or cold on a CPU", method);
    return VT_OK;
}

static vt_status bench_cpu(kernels_report *k, const bench_options *o, vt_err *err)
{
    const cli *c = k->c;
    vt_team *team = NULL;
    int32_t threads = (int32_t)vt_options_int(c->options, "threads");
    threads = threads > 0 ? threads : vt_cpu_get()->n_cores;
    k->l2_bytes = vt_cpu_get()->l2_bytes * threads;
    vt_status status = vt_roofs_get(threads, 0, &k->roofs, err);
    if (status == VT_OK)
        status = vt_team_new(threads, &team, err);
    if (status == VT_OK)
        status = bench_kernels(c->n_args > 0 ? c->arg[0] : NULL, team, vt_cpu_get()->level, o,
                               report, k, err);
    vt_team_free(team);
    return status;
}

/* Emulated: a small flush is as good. Its memory is the host's. */
static vt_status open_gpu(int32_t ordinal, on_cuda_gpu *gpu, vt_err *err)
{
    on_cuda_options o = {.library = true, .always = true, .flush_bytes = EMULATED_FLUSH};
    TRY(on_cuda_open(ordinal, &o, gpu, err));
    if (gpu->emulated)
        return VT_OK;
    on_cuda_close(gpu);
    o.flush_bytes = FLUSH;
    return on_cuda_open(ordinal, &o, gpu, err);
}

static vt_status bench_gpu(kernels_report *k, int32_t ordinal, bench_options *o, vt_err *err)
{
    on_cuda_gpu gpu;
    const cli *c = k->c;
    TRY(open_gpu(ordinal, &gpu, err));
    k->l2_bytes = gpu.cuda->l2_bytes;
    vt_status status = VT_OK;
    if (!gpu.emulated)
        status = vt_roofs_cuda(ordinal, 0, false, &k->roofs, err);
    if (status == VT_OK && vt_options_flag(c->options, "counters"))
        status = vt_ranges_open(gpu.cuda, BENCH_COUNT_RUNS, &o->counters, err);
    if (status == VT_OK && vt_options_flag(c->options, "lines"))
        status = vt_pc_open(gpu.cuda, &o->pc, err);
    vt_jit_set_lines(gpu.cuda->jit, o->pc != NULL);
    if (status == VT_OK)
        status = bench_kernels_cuda(c->n_args > 0 ? c->arg[0] : NULL, &gpu, o, report, k, err);
    flush_table(k);
    vt_ranges_close(o->counters);
    vt_pc_close(o->pc);
    on_cuda_close(&gpu);
    return status;
}

static int print_results(kernels_report *k)
{
    vt_json w;
    vt_json_close(&k->json);
    cli_bench_begin(&w, k->c, "kernels", NULL);
    vt_json_take(&w, "results", &k->json);
    return cli_object_print(&w);
}

int cli_bench_kernels(cli *c)
{
    vt_err err = {0};
    int32_t ordinal = vt_device_choose(vt_options_get(c->options, "kernels-device"), NULL);
    kernels_report k = {.c = c};
    bench_options o = {.repetitions = (int32_t)vt_options_int(c->options, "reps"),
                       .variants = vt_options_flag(c->options, "variants"),
                       .impl = vt_options_get(c->options, "impl"),
                       .shape = vt_options_get(c->options, "shape")};
    vt_status status = read_method(c, ordinal >= 0, &o, &err);
    k.cold = o.cold;
    vt_json_line(&k.json);
    vt_json_open(&k.json, NULL, '[');
    if (status == VT_OK)
        status = ordinal >= 0 ? bench_gpu(&k, ordinal, &o, &err) : bench_cpu(&k, &o, &err);
    flush_table(&k);
    if (status == VT_OK && k.n_results == 0)
        status = vt_fail(&err, VT_ERR_USAGE, "no implementation here%s%s takes these cases",
                         o.impl ? " named " : "", o.impl ? o.impl : "");
    int code = status == VT_OK && c->json ? print_results(&k) : CLI_DONE;
    vt_json_release(&k.json);
    if (status != VT_OK)
        return cli_fail(&err);
    if (k.n_wrong == 0)
        return code;
    vt_fail(&err, VT_ERR_DEVICE, "%d results are further from the reference than their op allows",
            k.n_wrong);
    return cli_fail(&err);
}
