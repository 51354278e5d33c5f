/* vitrine bench kernels [OP]: every implementation of every real-size case of every op, timed and
 * checked against the reference (ops/bench.h).
 *
 * The share of the roof is that of the binding one: least time over median time. Work whose bytes
 * fit into L2 and that is not run --cold never meets the memory roof, so only its arithmetic is
 * held against a roof. */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "cli/bench.h"
#include "device/cpu.h"
#include "device/roofs.h"
#include "ops/bench.h"

typedef struct kernels_report {
    const cli *c;
    vt_roofs roofs;
    bool cold;
    const vt_op *op; /* whose table is open; NULL: none */
    vt_table table;
    json_t *results;
    int32_t n_wrong;
} kernels_report;

/* Share of the binding roof; NAN where none applies. */
static double roof_share(const kernels_report *k, const bench_result *r, const char **roof)
{
    const vt_flops *f = &r->cost.flops;
    double fp32 = k->roofs.fp32_per_s > 0 ? (double)f->fp32 / k->roofs.fp32_per_s : 0;
    double int8 = k->roofs.int8_per_s > 0 ? (double)f->int8 / k->roofs.int8_per_s : 0;
    double memory = (double)vt_cost_bytes(&r->cost) / k->roofs.memory_bytes_per_s;
    bool near = !k->cold && vt_cost_bytes(&r->cost) <= vt_cpu_get()->l2_bytes * r->n_workers;
    double least = fp32 > int8 ? fp32 : int8;
    *roof = fp32 > int8 ? "fp32" : "int8";
    if (!near && memory > least) {
        least = memory;
        *roof = "memory";
    }
    return least > 0 ? least * 1e9 / (double)r->median_ns : NAN;
}

static void flush_table(kernels_report *k)
{
    if (!k->op)
        return;
    vt_buf b = {0};
    vt_text_ink(&b, &k->c->out, VT_INK_BOLD, k->op->name);
    vt_buf_printf(&b, "  %s\n", k->op->what);
    vt_table_finish(&k->table, &b, &k->c->out, 1);
    vt_buf_putc(&b, '\n');
    if (b.data)
        fwrite(b.data, 1, b.len, stdout);
    fflush(stdout);
    vt_buf_release(&b);
    k->op = NULL;
}

static void cell_time(vt_table *t, int64_t ns)
{
    vt_buf b = {0};
    vt_text_time(&b, (double)ns * 1e-9);
    vt_table_cell(t, "%s", b.data ? b.data : "");
    vt_buf_release(&b);
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
    cell_time(&k->table, r->best_ns);
    cell_time(&k->table, r->median_ns);
    vt_table_cell(&k->table, "%.1f", r->gb_per_s);
    vt_table_cell(&k->table, r->flops > 0 ? "%.1f" : "-", r->gflop_per_s);
    if (isnan(r->error))
        vt_table_cell(&k->table, "-");
    else
        vt_table_cell(&k->table, r->error <= r->op->tolerance ? "%.1e" : "%.1e WRONG", r->error);
    if (isfinite(share))
        vt_table_cell(&k->table, "%.0f %% %s", 100 * share, roof);
    else
        vt_table_cell(&k->table, "-");
}

static void put_json(kernels_report *k, const bench_result *r, double share, const char *roof)
{
    json_t *o = json_pack("{s:s, s:s, s:s, s:i, s:I, s:I, s:I, s:I}", "op", r->op->name, "case",
                          r->c->name, "implementation", r->impl->name, "threads", r->n_workers,
                          "best_ns", (json_int_t)r->best_ns, "median_ns", (json_int_t)r->median_ns,
                          "bytes", (json_int_t)r->bytes, "flops", (json_int_t)r->flops);
    json_object_set_new(o, "gb_per_s", cli_json_number(r->gb_per_s, 3));
    json_object_set_new(o, "gflop_per_s", cli_json_number(r->gflop_per_s, 3));
    json_object_set_new(o, "roof", isfinite(share) ? json_string(roof) : json_null());
    json_object_set_new(o, "roof_share", cli_json_number(share, 4));
    json_object_set_new(o, "error", cli_json_number(r->error, 12));
    json_object_set_new(o, "tolerance", cli_json_number(r->op->tolerance, 12));
    json_array_append_new(k->results, o);
}

static void report(void *user, const bench_result *r)
{
    kernels_report *k = user;
    const char *roof;
    double share = roof_share(k, r, &roof);
    if (r->error > r->op->tolerance)
        k->n_wrong++;
    if (k->results)
        put_json(k, r, share, roof);
    else
        put_row(k, r, share, roof);
    if (k->c->log.tty)
        cli_note(k->c, "%s, %s, %s", r->op->name, r->c->name, r->impl->name);
}

int cli_bench_kernels(cli *c)
{
    vt_err err = {0};
    vt_team *team = NULL;
    kernels_report k = {.c = c, .cold = vt_options_flag(c->options, "cold")};
    bench_options options = {.repetitions = (int32_t)vt_options_int(c->options, "reps"),
                             .cold = k.cold};
    int32_t threads = (int32_t)vt_options_int(c->options, "threads");
    threads = threads > 0 ? threads : vt_cpu_get()->n_cores;
    if (c->json)
        k.results = json_array();
    vt_status status = vt_roofs_get(threads, 0, &k.roofs, &err);
    if (status == VT_OK)
        status = vt_team_new(threads, &team, &err);
    if (status == VT_OK)
        status = bench_kernels(c->n_args > 0 ? c->arg[0] : NULL, team, vt_cpu_get()->level,
                               &options, report, &k, &err);
    vt_team_free(team);
    flush_table(&k);
    if (status != VT_OK) {
        json_decref(k.results);
        return cli_fail(&err);
    }
    int code = CLI_DONE;
    if (c->json) {
        json_t *o = cli_bench_json(c, "kernels", "");
        json_object_del(o, "model");
        json_object_set_new(o, "results", k.results);
        code = cli_print_json(o);
    }
    if (k.n_wrong == 0)
        return code;
    vt_fail(&err, VT_ERR_DEVICE, "%d results are further from the reference than their op allows",
            k.n_wrong);
    return cli_fail(&err);
}
