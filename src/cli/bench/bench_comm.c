/* vitrine bench comm: the communication ops between ranks, by size, with the buffers that peers
 * read registered once, and with a copy into them. A rank is one thread of the CPU, or a GPU. */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/term/figure.h"
#include "cli/bench/bench.h"
#include "device/choose.h"
#include "device/cpu.h"
#include "ops/bench/comm_gpus.h"
#include "ops/bench/comm_measure.h"

/* Bytes of a rank's buffer; of an op that joins parts, of all ranks' together. */
static const int64_t sizes[] = {1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 8 << 20};

enum { N_SIZES = sizeof sizes / sizeof *sizes };

typedef struct comm_report {
    const cli *c;
    int32_t ranks, n_wrong;
    int64_t register_ns; /* of the last buffer that NCCL registered */
    comm_gpus *gpus;     /* NULL: ranks of the CPU */
    bool nccl;           /* beside the ops */
    vt_table table;
    vt_json json;
} comm_report;

/* Joined parts are logits, which are fp32 everywhere; sums on GPUs are of BF16. */
static int64_t element_bytes(const comm_report *k, const vt_op *op)
{
    return k->gpus && op->tolerance > 0 ? 2 : 4;
}

static bool is_nccl(const comm_result *r) { return strcmp(r->row, "nccl") == 0; }

/* NCCL may round every partial sum to BF16, of which a rank makes one less than there are ranks. */
static double tolerance_of(const comm_report *k, const vt_op *op, const comm_result *r)
{
    if (element_bytes(k, op) != 2)
        return op->tolerance;
    return COMM_BF16_TOLERANCE * (is_nccl(r) ? k->ranks - 1 : 1);
}

static void put_row(comm_report *k, int64_t bytes, comm_how how, const comm_result *r, bool wrong)
{
    vt_buf cell = {0};
    vt_text_bytes(&cell, (double)bytes);
    vt_table_cell(&k->table, "%s", cell.data ? cell.data : "");
    vt_buf_release(&cell);
    vt_table_cell(&k->table, "%s", comm_how_name[how]);
    vt_table_cell(&k->table, "%s", r->row);
    vt_table_cell(&k->table, "%.2f us", (double)r->best_ns * 1e-3);
    vt_table_cell(&k->table, "%.2f us", (double)r->median_ns * 1e-3);
    if (r->wait_ns >= 0)
        vt_table_cell(&k->table, "%.2f us", (double)r->wait_ns * 1e-3);
    else
        vt_table_cell(&k->table, "-");
    vt_table_cell(&k->table, "%.1f", (double)r->moved_bytes / (double)r->median_ns);
    vt_table_cell(&k->table, wrong ? "%.1e WRONG" : "%.1e", r->error);
    vt_table_cell(&k->table, r->agree ? "yes" : "NO");
}

static void put_json(comm_report *k, const vt_op *op, int64_t bytes, comm_how how,
                     const comm_result *r, bool wrong)
{
    vt_json *w = &k->json;
    char name[64];
    int64_t n = bytes / element_bytes(k, op), cols = comm_columns(op, n);
    snprintf(name, sizeof name, "ranks=%d %s=%lld n=%lld", k->ranks, op->fields[1].name,
             (long long)(n / cols), (long long)cols);
    vt_json_open(w, NULL, '{');
    vt_json_string(w, "op", op->name);
    vt_json_string(w, "case", name);
    vt_json_string(w, "implementation", r->row);
    vt_json_string(w, "device", k->gpus ? "cuda" : "cpu");
    vt_json_string(w, "gpu", k->gpus ? comm_gpus_name(k->gpus) : NULL);
    vt_json_string(w, "link", k->gpus ? comm_gpus_link(k->gpus) : NULL);
    vt_json_string(w, "method", comm_how_name[how]);
    vt_json_string(w, "library", is_nccl(r) ? comm_gpus_nccl(k->gpus) : NULL);
    if (r->register_ns > 0)
        vt_json_int(w, "register_ns", r->register_ns);
    vt_json_int(w, "ranks", k->ranks);
    if (!k->gpus)
        vt_json_int(w, "threads", 1);
    vt_json_int(w, "message_bytes", r->message_bytes);
    vt_json_int(w, "best_ns", r->best_ns);
    vt_json_int(w, "median_ns", r->median_ns);
    if (r->wait_ns >= 0)
        vt_json_int(w, "wait_ns", r->wait_ns);
    vt_json_fixed(w, "noise", r->noise, 4);
    vt_json_int(w, "bytes", r->moved_bytes);
    vt_json_fixed(w, "gb_per_s", (double)r->moved_bytes / (double)r->median_ns, 3);
    vt_json_real(w, "error", r->error);
    vt_json_real(w, "tolerance", tolerance_of(k, op, r));
    vt_json_bool(w, "ranks_agree", r->agree);
    vt_json_string(w, "wrong",
                   !wrong                     ? NULL
                   : !r->agree && !is_nccl(r) ? "ranks differ"
                                              : "beyond the tolerance");
    vt_json_close(w);
}

static void put(comm_report *k, const vt_op *op, int64_t bytes, comm_how how, const comm_result *r)
{
    /* NCCL does not promise the same bits on all ranks. */
    bool wrong = (!r->agree && !is_nccl(r)) || !(r->error <= tolerance_of(k, op, r));
    if (r->register_ns > 0)
        k->register_ns = r->register_ns;
    k->n_wrong += wrong;
    if (k->c->json)
        put_json(k, op, bytes, how, r, wrong);
    else
        put_row(k, bytes, how, r, wrong);
}

/* NCCL on buffers that it knows nothing of, on registered ones, and with the copy into these. An
 * error ends NCCL's rows, and no others. */
static void bench_nccl(comm_report *k, const vt_op *op, int64_t bytes, int32_t reps)
{
    static const comm_how hows[] = {COMM_PLAIN, COMM_REGISTERED, COMM_COPIED};
    comm_ask ask = {
        .op = op, .nccl = true, .rows = 1, .n = bytes / element_bytes(k, op), .repetitions = reps};
    for (size_t i = 0; i < sizeof hows / sizeof *hows && k->nccl; i++) {
        comm_result r;
        vt_err err;
        ask.how = hows[i];
        vt_status status = comm_gpus_run(k->gpus, &ask, &r, &err);
        if (status == VT_OK)
            put(k, op, bytes, hows[i], &r);
        else if (status != VT_ERR_UNSUPPORTED) {
            k->nccl = false;
            cli_note(k->c, "%s; its other rows are left out", err.message);
        }
    }
}

/* Every row that can run the call, on registered buffers; the one that a program takes on copied
 * ones too. */
static vt_status bench_on_gpus(comm_report *k, const vt_op *op, int64_t bytes, int32_t reps,
                               vt_err *err)
{
    comm_result r;
    int64_t n = bytes / element_bytes(k, op), cols = comm_columns(op, n);
    comm_ask ask = {.op = op, .rows = n / cols, .n = cols, .repetitions = reps};
    for (const vt_impl *const *row = op->impls; *row; row++) {
        vt_err refused;
        ask.row = (*row)->name;
        if ((*row)->device != VT_DEVICE_CUDA)
            continue;
        vt_status status = comm_gpus_run(k->gpus, &ask, &r, &refused);
        if (status == VT_ERR_UNSUPPORTED) /* the row takes no buffer of this size */
            continue;
        if (status != VT_OK && err)
            *err = refused;
        TRY(status);
        put(k, op, bytes, COMM_REGISTERED, &r);
    }
    ask.row = NULL;
    ask.how = COMM_COPIED;
    TRY(comm_gpus_run(k->gpus, &ask, &r, err));
    put(k, op, bytes, COMM_COPIED, &r);
    bench_nccl(k, op, bytes, reps);
    return VT_OK;
}

static vt_status bench_op(comm_report *k, const vt_op *op, vt_err *err)
{
    int32_t reps = (int32_t)vt_options_int(k->c->options, "reps");
    vt_table_init(&k->table, "bytes|buffers|runs as|>best|>median|>waits|>GB/s|>error|ranks agree");
    for (int32_t i = 0; i < N_SIZES; i++) {
        if (k->gpus)
            TRY(bench_on_gpus(k, op, sizes[i], reps, err));
        for (int32_t how = 0; how < COMM_PLAIN && !k->gpus; how++) {
            comm_result r;
            TRY(comm_bench(op, k->ranks, sizes[i] / (int64_t)sizeof(float), (comm_how)how, reps, &r,
                           err));
            put(k, op, sizes[i], (comm_how)how, &r);
        }
    }
    return VT_OK;
}

static void print_table(comm_report *k, const vt_op *op)
{
    vt_buf b = {0};
    vt_text_ink(&b, &k->c->out, VT_INK_BOLD, op->name);
    if (k->gpus)
        vt_buf_printf(&b, "  %s: %d ranks on %s, link %s\n", op->what, k->ranks,
                      comm_gpus_name(k->gpus), comm_gpus_link(k->gpus));
    else
        vt_buf_printf(&b, "  %s: %d ranks of 1 thread\n", op->what, k->ranks);
    vt_table_finish(&k->table, &b, &k->c->out, 1);
    if (k->register_ns > 0) {
        vt_text_printf(&b, "nccl %s, without NVLink multicast, registers a buffer in %f s, once\n",
                       comm_gpus_nccl(k->gpus), (double)k->register_ns * 1e-9);
    }
    vt_buf_putc(&b, '\n');
    if (b.data)
        fwrite(b.data, 1, b.len, stdout);
    vt_buf_release(&b);
}

/* Opens the GPUs that option device names, if it names any. */
static vt_status open_gpus(comm_report *k, vt_err *err)
{
    const char *device = vt_options_get(k->c->options, "comm-device");
    const char *link = vt_options_get(k->c->options, "tp-link");
    int32_t gpu[COMM_GPU_RANKS];
    if (strcmp(device, "cpu") == 0)
        return strcmp(link, "auto") == 0
                   ? VT_OK
                   : vt_fail(err, VT_ERR_USAGE,
                             "tp-link is %s, which is for ranks on GPUs; those of a CPU share its "
                             "memory",
                             link);
    if (k->ranks > COMM_GPU_RANKS)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "tp is %d, expected at most %d ranks on GPUs",
                       k->ranks, COMM_GPU_RANKS);
    TRY(vt_device_gpus(device, k->ranks, gpu, err));
    for (int32_t r = 1; r < k->ranks; r++)
        if (gpu[r] == gpu[0]) {
            cli_note(k->c, "two ranks are on one GPU: times say nothing about links");
            break;
        }
    TRY(comm_gpus_open(gpu, k->ranks, link, &k->gpus, err));
    vt_err why;
    k->nccl = comm_gpus_add_nccl(k->gpus, &why) == VT_OK;
    if (!k->nccl)
        cli_note(k->c, "%s; its rows are left out", why.message);
    return VT_OK;
}

/* Says which forms the sums of programs take. */
static void print_limits(const comm_gpus *gpus)
{
    vt_buf b = {0};
    vt_comm_limits limits = comm_gpus_limits(gpus);
    vt_buf_puts(&b, "programs take, by bytes: ");
    vt_comm_limits_tell(&b, &limits);
    if (b.data)
        puts(b.data);
    vt_buf_release(&b);
}

static void put_limits(vt_json *w, const comm_gpus *gpus)
{
    vt_comm_limits limits = comm_gpus_limits(gpus);
    vt_comm_limits_put(w, "limits", &limits);
}

int cli_bench_comm(cli *c)
{
    vt_err err = {0};
    comm_report k = {.c = c, .ranks = (int32_t)vt_options_int(c->options, "comm-tp")};
    vt_status status = open_gpus(&k, &err);
    vt_json w;
    if (!k.gpus && k.ranks > vt_cpu_get()->n_cpus)
        cli_note(
            c, "%d ranks share %d CPUs: they wait for each other's turns, and the times are those",
            k.ranks, vt_cpu_get()->n_cpus);
    vt_json_line(&k.json);
    vt_json_open(&k.json, NULL, '[');
    for (const vt_op *const *op = vt_ops; *op && status == VT_OK; op++) {
        if (!((*op)->is & VT_OP_JOINS_RANKS))
            continue;
        status = bench_op(&k, *op, &err);
        if (!c->json && status == VT_OK)
            print_table(&k, *op);
        else
            vt_buf_release(&k.table.text);
    }
    vt_json_close(&k.json);
    if (k.gpus && !c->json && status == VT_OK)
        print_limits(k.gpus);
    int code = CLI_DONE;
    if (status == VT_OK && c->json) {
        cli_bench_begin(&w, c, "comm", NULL);
        vt_json_take(&w, "results", &k.json);
        if (k.gpus)
            put_limits(&w, k.gpus);
        code = cli_object_print(&w);
    }
    vt_json_release(&k.json);
    comm_gpus_close(k.gpus);
    if (status == VT_OK && k.n_wrong > 0)
        status = vt_fail(
            &err, VT_ERR_DEVICE,
            "%d results differ between ranks, or from the reference by more than their "
            "op allows",
            k.n_wrong);
    return status == VT_OK ? code : cli_fail(&err);
}
