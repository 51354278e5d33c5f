/* vitrine bench comm: the communication ops between ranks of the CPU, by size, with the buffers
 * that peers read registered once, and with a copy into them. A rank is one thread. */
#include <math.h>

#include "base/err.h"
#include "cli/bench/bench.h"
#include "device/cpu.h"
#include "ops/bench/comm_bench.h"

/* Bytes of a rank's buffer; of an op that joins parts, of all ranks' together. */
static const int64_t sizes[] = {1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 8 << 20};

enum { N_SIZES = sizeof sizes / sizeof *sizes };

typedef struct comm_report {
    const cli *c;
    int32_t ranks, n_wrong;
    vt_table table;
    vt_buf results; /* with --json: [{...}, ...] */
    vt_json json;
} comm_report;

static void put_row(comm_report *k, int64_t bytes, comm_how how, const comm_result *r, bool wrong)
{
    vt_buf cell = {0};
    vt_text_bytes(&cell, (double)bytes);
    vt_table_cell(&k->table, "%s", cell.data ? cell.data : "");
    vt_buf_release(&cell);
    vt_table_cell(&k->table, "%s", comm_how_name[how]);
    vt_table_cell(&k->table, "%s", r->impl->name);
    vt_table_cell(&k->table, "%.2f us", (double)r->best_ns * 1e-3);
    vt_table_cell(&k->table, "%.2f us", (double)r->median_ns * 1e-3);
    vt_table_cell(&k->table, "%.1f", (double)r->moved_bytes / (double)r->median_ns);
    vt_table_cell(&k->table, wrong ? "%.1e WRONG" : "%.1e", r->error);
    vt_table_cell(&k->table, r->agree ? "yes" : "NO");
}

static void put_json(comm_report *k, const vt_op *op, int64_t bytes, comm_how how,
                     const comm_result *r, bool wrong)
{
    vt_json *w = &k->json;
    char name[64];
    snprintf(name, sizeof name, "ranks=%d %s=1 n=%lld", k->ranks, op->fields[1].name,
             (long long)(bytes / (int64_t)sizeof(float)));
    vt_json_open(w, NULL, '{');
    vt_json_string(w, "op", op->name);
    vt_json_string(w, "case", name);
    vt_json_string(w, "implementation", r->impl->name);
    vt_json_string(w, "device", "cpu");
    vt_json_string(w, "method", comm_how_name[how]);
    vt_json_int(w, "ranks", k->ranks);
    vt_json_int(w, "threads", 1);
    vt_json_int(w, "message_bytes", r->message_bytes);
    vt_json_int(w, "best_ns", r->best_ns);
    vt_json_int(w, "median_ns", r->median_ns);
    vt_json_fixed(w, "noise", r->noise, 4);
    vt_json_int(w, "bytes", r->moved_bytes);
    vt_json_fixed(w, "gb_per_s", (double)r->moved_bytes / (double)r->median_ns, 3);
    vt_json_real(w, "error", r->error);
    vt_json_real(w, "tolerance", op->tolerance);
    vt_json_bool(w, "ranks_agree", r->agree);
    vt_json_string(w, "wrong", !r->agree ? "ranks differ" : wrong ? "beyond the tolerance" : NULL);
    vt_json_close(w);
}

static vt_status bench_op(comm_report *k, const vt_op *op, vt_err *err)
{
    int32_t reps = (int32_t)vt_options_int(k->c->options, "reps");
    vt_table_init(&k->table, "bytes|buffers|runs as|>best|>median|>GB/s|>error|ranks agree");
    for (int32_t i = 0; i < N_SIZES; i++)
        for (int32_t how = 0; how < COMM_HOWS; how++) {
            comm_result r;
            TRY(comm_bench(op, k->ranks, sizes[i] / (int64_t)sizeof(float), (comm_how)how, reps, &r,
                           err));
            bool wrong = !r.agree || !(r.error <= op->tolerance);
            k->n_wrong += wrong;
            if (k->c->json)
                put_json(k, op, sizes[i], (comm_how)how, &r, wrong);
            else
                put_row(k, sizes[i], (comm_how)how, &r, wrong);
        }
    return VT_OK;
}

static void print_table(comm_report *k, const vt_op *op)
{
    vt_buf b = {0};
    vt_text_ink(&b, &k->c->out, VT_INK_BOLD, op->name);
    vt_buf_printf(&b, "  %s: %d ranks of 1 thread\n", op->what, k->ranks);
    vt_table_finish(&k->table, &b, &k->c->out, 1);
    vt_buf_putc(&b, '\n');
    if (b.data)
        fwrite(b.data, 1, b.len, stdout);
    vt_buf_release(&b);
}

int cli_bench_comm(cli *c)
{
    vt_err err = {0};
    comm_report k = {.c = c, .ranks = (int32_t)vt_options_int(c->options, "comm-tp")};
    vt_status status = VT_OK;
    vt_buf b = {0};
    vt_json w;
    if (k.ranks > vt_cpu_get()->n_cpus)
        cli_note(
            c, "%d ranks share %d CPUs: they wait for each other's turns, and the times are those",
            k.ranks, vt_cpu_get()->n_cpus);
    vt_json_begin(&k.json, &k.results, -1);
    vt_json_open(&k.json, NULL, '[');
    for (const vt_op *const *op = vt_ops; *op && status == VT_OK; op++) {
        if (!((*op)->is & VT_OP_JOINS_RANKS))
            continue;
        status = bench_op(&k, *op, &err);
        if (!c->json)
            print_table(&k, *op);
    }
    vt_json_close(&k.json);
    int code = CLI_DONE;
    if (status == VT_OK && c->json) {
        cli_bench_begin(&w, &b, c, "comm", NULL);
        if (vt_json_end(&k.json))
            vt_json_raw(&w, "results", k.results.data, k.results.len);
        else
            b.failed = true;
        code = cli_object_print(&w);
    }
    vt_buf_release(&k.results);
    if (status == VT_OK && k.n_wrong > 0)
        status = vt_fail(
            &err, VT_ERR_DEVICE,
            "%d results differ between ranks, or from the reference by more than their "
            "op allows",
            k.n_wrong);
    return status == VT_OK ? code : cli_fail(&err);
}
