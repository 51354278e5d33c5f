/* The table of all knobs (knob_table.h), in three steps:
 *
 *   1. find the machines: the folders below ROOT/TRACK/results, and read all their results
 *   2. gather the rows: knobs of the same lab, name and place are one row, whatever the machine
 *   3. write: the table, the machines, the knobs that no result has */
#include "lab/report/knob_table.h"

#include <dirent.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "lab/kit/list.h"
#include "lab/kit/result.h"
#include "lab/report/inside.h"

/* name, how it is turned, the lab that turns it, parts of what results call it */
#define WANTED(name, how, lab, ...)   \
    {                                 \
        name, how, {__VA_ARGS__}, lab \
    }

const lab_wanted_knob lab_wanted_knobs[] = {
    WANTED("index: threads a row by its size", "variant rows-adaptive of embed", "mini-sglang 02",
           "rows-adaptive", "dynamic thread count"),
    WANTED("index: L2 hints", "variants rows-keep-y, rows-keep-table of embed", "mini-sglang 02",
           "rows-keep", "L2 hint"),
    WANTED("index: wider vectors", "variant rows-32b of embed", "mini-sglang 02", "rows-32b",
           "wider vectors"),
    WANTED("index: staging in shared memory", "variant rows-staged of embed", "mini-sglang 02",
           "rows-staged", "staging"),
    WANTED("index: warp shuffles", "variant rows-shuffle of embed", "mini-sglang 02",
           "rows-shuffle", "shuffle"),
    WANTED("store: sorted slots", "variant by-slot of kv_store, or sorted slots", "mini-sglang 03",
           "by-slot", "sorted"),
    WANTED("store: asynchronous copies", "variant async of kv_store", "mini-sglang 03", "async"),
    WANTED("store: K and V in two launches", "variant k-then-v of kv_store", "mini-sglang 03",
           "k-then-v", "two launches"),
    WANTED("store and norm side by side", "variant apart of rope_store", "mini-sglang 03",
           "next norm", "beside the norm"),
    WANTED("programmatic dependent launch", "VITRINE_CUDA_PDL", "mini-sglang 02",
           "VITRINE_CUDA_PDL"),
    WANTED("direct peer access, not a copied buffer", "needs tensor parallelism", "mini-sglang 05",
           "peer access"),
    WANTED("adaptive threshold between all-reduces", "needs tensor parallelism", "mini-sglang 05",
           "threshold"),
    WANTED("decode attention: number of splits", "variants whole, splits-2 ... splits-16",
           "flashinfer 03", "splits-", "split size"),
    WANTED("page size", "--page-size", "flashinfer 03", "--page-size"),
    WANTED("addition fused with the norm", "op add_rmsnorm, variant add-then-norm", "flashinfer 04",
           "fused add", "add-then-norm"),
    WANTED("rope fused with the store", "op rope_store, variant apart", "flashinfer 05",
           "rope fused", "joined store"),
    WANTED("sampling in the same graph", "VITRINE_CUDA_ONE_GRAPH", "mini-sglang 06",
           "VITRINE_CUDA_ONE_GRAPH"),
    WANTED("shared pages read once", "VITRINE_CUDA_SHARED", "flashinfer 03", "VITRINE_CUDA_SHARED"),
    WANTED("cuBLASLt", "VITRINE_CUBLASLT", "sglang 03", "CUBLASLT", "cublaslt"),
    WANTED("kernels of an older GPU", "VITRINE_CUDA_LEVEL", "sglang 03", "VITRINE_CUDA_LEVEL"),
    WANTED("instruction set", "VITRINE_ISA", "sglang 03", "VITRINE_ISA"),
    WANTED("token budget of a step", "--token-budget", "sglang 04", "--token-budget"),
    WANTED("CUDA graphs", "--no-graphs", "mini-sglang 06", "--no-graphs"),
    WANTED("overlap of scheduling and compute", "--no-overlap", "mini-sglang 06", "--no-overlap"),
    WANTED("prefix cache", "--no-prefix-cache", "sglang 02", "--no-prefix-cache"),
    WANTED("type of the KV cache", "--kv-dtype", "flashinfer 03", "--kv-dtype"),
    WANTED("sums in a fixed order", "--deterministic", "sglang 03", "--deterministic"),
    {0}};

enum { MAX_MACHINES = 12, MAX_ROWS = 2048 };

/* A folder of results, of all tracks. */
typedef struct machine {
    char name[72];
    json_t *result[LAB_TRACKS][REPORT_MAX_LABS]; /* NULL: not run */
    const json_t *of_machine;                    /* of its first result; NULL: it has none */
    int n_run, n_quick, n_disturbed;
} machine;

typedef struct row {
    const lab_def *def;
    int at;                         /* of the lab in its track */
    int nth;                        /* among knobs of this name and place in one result */
    const json_t *knob;             /* of the first machine that has it */
    const json_t *of[MAX_MACHINES]; /* NULL: this machine's result does not have it */
} row;

typedef struct knob_table {
    machine machine[MAX_MACHINES];
    int n_machines;
    row row[MAX_ROWS];
    int n_rows;
} knob_table;

/* ---- 1: the machines ---- */

static vt_status add_machine(knob_table *t, const char *name, vt_err *err)
{
    for (int i = 0; i < t->n_machines; i++)
        if (strcmp(t->machine[i].name, name) == 0)
            return VT_OK;
    if (t->n_machines == MAX_MACHINES)
        return vt_fail(err, VT_ERR_FORMAT, "results of more than %d machines", MAX_MACHINES);
    snprintf(t->machine[t->n_machines++].name, sizeof t->machine->name, "%.70s", name);
    return VT_OK;
}

/* A name that --machine would refuse is no machine. */
static int is_machine(const struct dirent *e) { return lab_machine_name_ok(e->d_name); }

static bool is_folder(const char *parent, const char *name)
{
    struct stat s;
    char path[PATH_MAX + 512];
    snprintf(path, sizeof path, "%s/%s", parent, name);
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

static vt_status find_machines(knob_table *t, const char *root, vt_err *err)
{
    for (int track = 0; track < LAB_TRACKS; track++) {
        struct dirent **found = NULL;
        char folder[PATH_MAX + 64];
        vt_status status = VT_OK;
        snprintf(folder, sizeof folder, "%s/%s/results", root, lab_track_name[track]);
        int n = scandir(folder, &found, is_machine, NULL);
        for (int i = 0; i < n; i++) {
            if (status == VT_OK && is_folder(folder, found[i]->d_name))
                status = add_machine(t, found[i]->d_name, err);
            free(found[i]);
        }
        free(found);
        TRY(status);
    }
    return VT_OK;
}

static vt_status read_machine(machine *m, const char *root, vt_err *err)
{
    for (int track = 0; track < LAB_TRACKS; track++) {
        char folder[PATH_MAX + 128];
        const lab_def *const *d = lab_list_of((lab_track)track);
        snprintf(folder, sizeof folder, "%s/%s/results/%s", root, lab_track_name[track], m->name);
        for (int i = 0; d[i] && i < REPORT_MAX_LABS; i++) {
            json_t **result = &m->result[track][i];
            TRY(lab_result_read(folder, d[i], result, err));
            if (!*result)
                continue;
            TRY(report_check_result(folder, d[i], *result, err));
            TRY(report_make_safe(*result, false, err));
            m->n_run++;
            m->n_quick += json_is_true(json_object_get(*result, "quick"));
            m->n_disturbed += strcmp(report_string(*result, "state"), "disturbed") == 0;
            if (!m->of_machine)
                m->of_machine = json_object_get(*result, "machine");
        }
    }
    return VT_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const machine *)a)->name, ((const machine *)b)->name);
}

static void release(machine *m)
{
    for (int t = 0; t < LAB_TRACKS; t++)
        for (int i = 0; i < REPORT_MAX_LABS; i++)
            json_decref(m->result[t][i]);
    *m = (machine){0};
}

/* Machines without a result have no column, but for the one that was asked for; nor has `local`
 * beside others. */
static vt_status read_machines(const vt_options *o, knob_table *t, vt_err *err)
{
    char root[PATH_MAX];
    const char *asked = vt_options_given(o, "machine") ? vt_options_get(o, "machine") : "";
    int n = 0, named = 0;
    TRY(lab_root(o, root, sizeof root, err));
    if (*asked && !lab_machine_name_ok(asked))
        return lab_machine_name_refused(asked, err);
    TRY(find_machines(t, root, err));
    if (*asked)
        TRY(add_machine(t, asked, err));
    for (int i = 0; i < t->n_machines; i++) {
        TRY(read_machine(&t->machine[i], root, err));
        named += t->machine[i].n_run > 0 && strcmp(t->machine[i].name, "local") != 0;
    }
    for (int i = 0; i < t->n_machines; i++) {
        machine *m = &t->machine[i];
        bool is_asked = strcmp(m->name, asked) == 0, local = strcmp(m->name, "local") == 0;
        if (is_asked || (m->n_run > 0 && (!local || named == 0))) {
            if (n != i) {
                t->machine[n] = *m;
                *m = (machine){0};
            }
            n++;
        } else
            release(m);
    }
    t->n_machines = n;
    qsort(t->machine, (size_t)n, sizeof *t->machine, by_name);
    return VT_OK;
}

/* ---- 2: the rows ---- */

static bool same_knob(const json_t *a, const json_t *b)
{
    return strcmp(report_string(a, "name"), report_string(b, "name")) == 0 &&
           strcmp(report_string(a, "where"), report_string(b, "where")) == 0;
}

static row *row_of(knob_table *t, const lab_def *d, int at, const json_t *knob, int nth)
{
    for (int i = 0; i < t->n_rows; i++) {
        row *r = &t->row[i];
        if (r->def == d && r->nth == nth && same_knob(r->knob, knob))
            return r;
    }
    if (t->n_rows == MAX_ROWS)
        return NULL;
    row *r = &t->row[t->n_rows++];
    *r = (row){.def = d, .at = at, .nth = nth, .knob = knob};
    return r;
}

static vt_status gather_lab(knob_table *t, const lab_def *d, int at, vt_err *err)
{
    for (int m = 0; m < t->n_machines; m++) {
        size_t i, k;
        json_t *knob;
        const json_t *list = json_object_get(t->machine[m].result[d->track][at], "knobs");
        json_array_foreach((json_t *)(uintptr_t)list, i, knob)
        {
            int nth = 0;
            for (k = 0; k < i; k++)
                nth += same_knob(json_array_get(list, k), knob);
            row *r = row_of(t, d, at, knob, nth);
            if (!r)
                return vt_fail(err, VT_ERR_FORMAT, "results with more than %d knobs", MAX_ROWS);
            r->of[m] = knob;
        }
    }
    return VT_OK;
}

static vt_status gather(knob_table *t, vt_err *err)
{
    for (int track = 0; track < LAB_TRACKS; track++) {
        const lab_def *const *d = lab_list_of((lab_track)track);
        for (int i = 0; d[i] && i < REPORT_MAX_LABS; i++)
            TRY(gather_lab(t, d[i], i, err));
    }
    return VT_OK;
}

/* ---- 3: writing ---- */

static bool is_measured(const json_t *knob)
{
    return isfinite(report_number(knob, "gain")) &&
           strcmp(report_string(knob, "verdict"), "not measured") != 0;
}

static void put_expected(const json_t *knob, vt_buf *b)
{
    double v = report_number(knob, "expected");
    if (isfinite(v))
        vt_text_figure(b, v, VT_RATIO);
    else
        vt_buf_puts(b, "bytes promise none");
}

/* One text where all machines expect the same, else one a machine. */
static void expected_cell(const knob_table *t, const row *r, vt_buf *b)
{
    vt_buf first = {0}, all = {0};
    bool differ = false;
    for (int m = 0; m < t->n_machines; m++) {
        vt_buf one = {0};
        if (!r->of[m])
            continue;
        put_expected(r->of[m], &one);
        vt_buf_printf(&all, "%s%s on %s", all.len ? ", " : "", one.data ? one.data : "",
                      t->machine[m].name);
        if (!first.len)
            vt_buf_puts(&first, one.data ? one.data : "");
        else
            differ |= strcmp(first.data, one.data ? one.data : "") != 0;
        vt_buf_release(&one);
    }
    vt_buf_puts(b, differ ? all.data : first.len ? first.data : "");
    vt_buf_release(&first);
    vt_buf_release(&all);
}

/* "1.24x, noise 3.1 %: 4.10 us to 3.31 us", or why there is no figure. */
static void measured_cell(const machine *m, const row *r, const json_t *knob, vt_buf *b)
{
    const json_t *result = m->result[r->def->track][r->at];
    const char *state = report_string(result, "state");
    if (!result) {
        vt_buf_printf(b, "not measured, because the lab was not run: `vitrine lab %s %s`",
                      lab_track_name[r->def->track], r->def->number);
        return;
    }
    if (!knob) {
        vt_buf_printf(b, "not measured, because this lab turns no such knob on this %s",
                      strcmp(report_string(m->of_machine, "device"), "cuda") == 0 ? "GPU" : "CPU");
        return;
    }
    if (!is_measured(knob)) {
        vt_buf_puts(b, "not measured, because ");
        if (strcmp(state, "emulated") == 0)
            vt_buf_puts(b, "the times of an emulated GPU mean nothing");
        else
            report_cell(b, report_string(knob, "why"));
        return;
    }
    vt_text_printf(b, "%f ratio, noise %f share: %f s to %f s", report_number(knob, "gain"),
                   report_noise(knob), report_number(knob, "before_s"),
                   report_number(knob, "after_s"));
    if (strcmp(state, "disturbed") == 0)
        vt_buf_puts(b, " (disturbed)");
}

static void verdict_of(const json_t *knob, vt_buf *b)
{
    vt_buf_puts(b, "**");
    report_verdict(knob, b);
    vt_buf_puts(b, "**: ");
    report_cell(b, report_string(knob, "why"));
}

static bool same_text(const vt_buf *a, const vt_buf *b)
{
    return a->len == b->len && a->len > 0 && memcmp(a->data, b->data, a->len) == 0;
}

/* The machines with this verdict and this reason are named together. Why a machine has none stands
 * in its own column. */
static void verdict_cell(const knob_table *t, const row *r, vt_buf *b)
{
    vt_buf text[MAX_MACHINES] = {{0}};
    bool said[MAX_MACHINES] = {false};
    int n = 0;
    for (int m = 0; m < t->n_machines; m++)
        if (r->of[m] && is_measured(r->of[m]))
            verdict_of(r->of[m], &text[m]);
    for (int m = 0; m < t->n_machines; m++) {
        if (!text[m].len || said[m])
            continue;
        vt_buf_puts(b, n++ ? "; " : "");
        for (int k = m; k < t->n_machines && t->n_machines > 1; k++)
            if (same_text(&text[m], &text[k])) {
                vt_buf_printf(b, "%s%s", k > m ? ", " : "", t->machine[k].name);
                said[k] = true;
            }
        vt_buf_printf(b, "%s%s", t->n_machines > 1 ? ": " : "", text[m].data);
    }
    vt_buf_puts(b, n ? "" : "not measured anywhere");
    for (int m = 0; m < t->n_machines; m++)
        vt_buf_release(&text[m]);
}

static void put_row(const knob_table *t, const row *r, vt_buf *b)
{
    vt_buf_puts(b, "| ");
    report_cell(b, report_string(r->knob, "name"));
    vt_buf_puts(b, ": ");
    report_cell(b, report_string(r->knob, "what"));
    vt_buf_printf(b, " | `%s %s` | ", lab_track_name[r->def->track], r->def->number);
    report_cell(b, report_string(r->knob, "where"));
    vt_buf_puts(b, " | ");
    expected_cell(t, r, b);
    for (int m = 0; m < t->n_machines; m++) {
        vt_buf_puts(b, " | ");
        measured_cell(&t->machine[m], r, r->of[m], b);
    }
    vt_buf_puts(b, " | ");
    verdict_cell(t, r, b);
    vt_buf_puts(b, " |\n");
}

static void put_table(const knob_table *t, vt_buf *b)
{
    if (t->n_rows == 0) {
        vt_buf_puts(b, "No result has a knob yet: `vitrine lab all` makes results.\n\n");
        return;
    }
    vt_buf_puts(b, "| knob, and what was timed | lab | where it lives | expected gain, from bytes "
                   "before the run |");
    for (int m = 0; m < t->n_machines; m++)
        vt_buf_printf(b, " measured on %s |", t->machine[m].name);
    vt_buf_puts(b, " verdict and why |\n|---|---|---|---|");
    for (int m = 0; m < t->n_machines; m++)
        vt_buf_puts(b, "---|");
    vt_buf_puts(b, "---|\n");
    for (int i = 0; i < t->n_rows; i++)
        put_row(t, &t->row[i], b);
    vt_buf_putc(b, '\n');
}

static void put_machines(const knob_table *t, vt_buf *b)
{
    vt_buf_puts(b, "## The machines\n\n");
    if (t->n_machines == 0) {
        vt_buf_puts(b, "none has results yet\n\n");
        return;
    }
    vt_buf_puts(b, "| machine | what it is | device | results |\n|---|---|---|---|\n");
    for (int i = 0; i < t->n_machines; i++) {
        const machine *m = &t->machine[i];
        const char *device = report_string(m->of_machine, "device");
        vt_buf_printf(b, "| %s | ", m->name);
        report_cell(b, m->of_machine ? report_string(m->of_machine, "name") : "not known");
        vt_buf_puts(b, " | ");
        report_cell(b, device);
        if (strcmp(device, "cpu") == 0) {
            vt_buf_puts(b, ", ");
            report_cell(b, report_string(m->of_machine, "level"));
            vt_buf_printf(b, ", %.0f threads", report_number(m->of_machine, "threads"));
        }
        vt_buf_printf(b, " | %d labs, %d of them in the quick form, %d disturbed |\n", m->n_run,
                      m->n_quick, m->n_disturbed);
    }
    vt_buf_putc(b, '\n');
}

static bool has(const knob_table *t, const lab_wanted_knob *w)
{
    for (int i = 0; i < t->n_rows; i++)
        for (size_t k = 0; k < sizeof w->mark / sizeof *w->mark && w->mark[k]; k++)
            if (strstr(report_string(t->row[i].knob, "name"), w->mark[k]) ||
                strstr(report_string(t->row[i].knob, "where"), w->mark[k]))
                return true;
    return false;
}

static void put_missing(const knob_table *t, vt_buf *b)
{
    int n = 0;
    vt_buf_puts(b, "## Knobs that no result has\n\n");
    for (const lab_wanted_knob *w = lab_wanted_knobs; w->name; w++) {
        if (has(t, w))
            continue;
        vt_buf_puts(b, n++ ? "" : "| knob | where it lives | its lab |\n|---|---|---|\n");
        vt_buf_printf(b, "| %s | %s | `vitrine lab %s` |\n", w->name, w->where, w->lab);
    }
    vt_buf_puts(b, n ? "" : "none: each knob that the labs offer was turned somewhere\n");
}

static void put_page(const knob_table *t, vt_buf *b)
{
    vt_buf_puts(
        b, "# Knobs, and what they bring\n\n"
           "Each lab turns something and times it before and after. This page has every knob of "
           "the results of these machines; `vitrine lab knobs` writes it.\n\n"
           "- A gain is the time before over the time after: above 1 the knob makes it faster.\n"
           "- The expected gain was computed before the run, from the bytes that each side moves; "
           "\"bytes promise none\" where both move the same, or where bytes do not tell.\n"
           "- The noise is two standard deviations of the difference, from the spread between "
           "repetitions of both sides. A gain within "
           "it is no gain.\n"
           "- *disturbed*: other programs used the machine meanwhile.\n\n");
    put_table(t, b);
    put_machines(t, b);
    put_missing(t, b);
}

vt_status lab_knob_table(const vt_options *o, vt_buf *out, vt_err *err)
{
    knob_table *t = calloc(1, sizeof *t);
    if (!t)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the table of knobs");
    vt_status status = read_machines(o, t, err);
    if (status == VT_OK)
        status = gather(t, err);
    if (status == VT_OK)
        put_page(t, out);
    for (int i = 0; i < MAX_MACHINES; i++)
        release(&t->machine[i]);
    free(t);
    return status;
}

vt_status lab_knob_table_of(const lab_def *d, json_t *first, json_t *second, vt_buf *out,
                            vt_err *err)
{
    json_t *const result[2] = {first, second};
    knob_table *t = calloc(1, sizeof *t);
    int at = 0;
    if (!t)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the table of knobs");
    while (lab_list_of(d->track)[at] != d)
        at++;
    for (int i = 0; i < 2; i++) {
        machine *m = &t->machine[t->n_machines++];
        snprintf(m->name, sizeof m->name, i ? "second" : "first");
        m->result[d->track][at] = json_incref(result[i]);
        m->of_machine = json_object_get(result[i], "machine");
        m->n_run = result[i] != NULL;
    }
    vt_status status = gather(t, err);
    if (status == VT_OK)
        put_page(t, out);
    for (int i = 0; i < 2; i++)
        release(&t->machine[i]);
    free(t);
    return status;
}
