/* vitrine explain: prints the program for a batch, with what every call must move and compute, the
 * least time that this takes, and the time that it is expected to take.
 *
 * The program is the one of a device: of the hardware that --hardware names, whose figures come
 * from a table or a file; else of the device that the model would run on, whose roofs are measured.
 * The expected time needs the efficiency of each row on each class of shapes (story/predict.h).
 * Those of this machine are measured when they are needed first, and kept. Those of other hardware
 * are the ones in its file; nothing is expected of a GPU that only the table knows.
 *
 * With --tp the program is that of a rank (plan_ranks.h). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/term/figure.h"
#include "cli/cli.h"
#include "cli/plan_ranks.h"
#include "cli/models/model_name.h"
#include "device/hardware.h"
#include "device/roofs/roofs_cache.h"
#include "exec/cuda.h"
#include "exec/describe.h"
#include "exec/weights_cuda.h"
#include "kv/cache.h"
#include "model/lora/lora.h"
#include "model/model.h"
#include "story/cut.h"
#include "story/predict.h"

/* A call is bound by a roof of the device, or by the link between ranks. */
enum { BOUND_LINK = STORY_BOUNDS, BOUNDS };

/* One line of the table: a call, or all calls of a kind. */
typedef struct line {
    char *name;          /* the line's own */
    const vt_call *call; /* the first of them; NULL: the sum of all */
    const char *impl;
    int32_t n_calls;
    vt_cost cost, extra;
    double floor_s;
    double expected_s;       /* NAN: the efficiency of a call is not known; the sum: of no line */
    double by_bound[BOUNDS]; /* seconds of floor_s that each roof sets */
} line;

typedef struct explanation {
    story_seq seq; /* of each of n_seqs sequences */
    int32_t n_seqs;
    const vt_hardware *named; /* by --hardware; NULL: the device is this machine's */
    vt_hardware hardware;     /* what named points at */
    vt_efficiencies here;     /* of this machine */
    int32_t gpu;              /* -1: the program is a CPU's; its number, or 0 for a named GPU */
    size_t cublaslt;          /* the version of the library found on this machine; 0: none */
    vt_described described;
    plan_ranks ranks; /* instead of `described`, with --tp; of: NULL without it */
    story_step *plan;
    vt_roofs roofs;
    line *line; /* [n_lines] */
    int32_t n_lines;
    line total;
} explanation;

static const char *bound_of(const line *l)
{
    int best = 0;
    for (int i = 1; i < BOUNDS; i++)
        if (l->by_bound[i] > l->by_bound[best])
            best = i;
    return best == BOUND_LINK ? "link" : story_bound_name((story_bound)best);
}

static void line_add(line *l, const vt_cost *cost, const vt_cost *extra, double floor_s,
                     double expected_s, int bound)
{
    l->n_calls++;
    vt_cost_add(&l->cost, cost);
    vt_cost_add(&l->extra, extra);
    l->floor_s += floor_s;
    l->expected_s += expected_s;
    l->by_bound[bound] += floor_s;
}

static int64_t threads_wanted(const cli *c)
{
    int64_t n = vt_options_int(c->options, "threads");
    return n ? n : vt_cpu_get()->n_cores;
}

/* Takes batch and context from the options; by default the step is a decode. */
static vt_status read_shape(const cli *c, const vt_model *m, explanation *x, vt_err *err)
{
    int64_t prompt = vt_options_int(c->options, "prompt"),
            context = vt_options_int(c->options, "context");
    if (vt_model_bidirectional(m)) { /* a text is always computed whole */
        if (context > 0)
            return vt_fail(
                err, VT_ERR_USAGE,
                "--context: every token of %s sees its whole text, so none is in a cache "
                "before; expected --prompt alone",
                m->name);
        prompt = prompt ? prompt : m->arch.max_context < 256 ? m->arch.max_context : 256;
    } else if (prompt == 0 && !vt_options_given(c->options, "context"))
        context = m->arch.max_context > 512 ? 512 : m->arch.max_context - 1;
    int64_t q = prompt ? prompt : 1;
    if (q + context > m->arch.max_context)
        return vt_fail(err, VT_ERR_USAGE,
                       "--prompt and --context: %lld tokens, expected at most %d, %s's context",
                       (long long)(q + context), m->arch.max_context, m->name);
    x->n_seqs = (int32_t)vt_options_int(c->options, "batch");
    if (q * x->n_seqs > 1 << 22)
        return vt_fail(err, VT_ERR_USAGE,
                       "--prompt and --batch: %lld tokens in a step, expected at most %d",
                       (long long)(q * x->n_seqs), 1 << 22);
    x->seq = (story_seq){.q_len = (int32_t)q, .kv_len = (int32_t)(q + context), .n_rows = 1};
    return VT_OK;
}

/* Finds the device that is described. */
static vt_status choose_device(const cli *c, explanation *x, vt_err *err)
{
    const char *name = vt_options_get(c->options, "hardware"),
               *device = vt_options_typed(c->options, "device")
                             ? vt_options_get(c->options, "device")
                             : "auto";
    bool cpu = strcmp(device, "cpu") == 0, cuda = strncmp(device, "cuda", 4) == 0;
    int32_t one;
    TRY(vt_options_gpus(c->options, 1, &one, err));
    x->gpu = vt_options_cuda(c->options);
    if (strcmp(name, "this") == 0)
        return VT_OK;
    TRY(vt_hardware_open(name, cpu, &x->hardware, err));
    x->named = &x->hardware;
    if (cpu && !x->named->is_cpu)
        return vt_fail(err, VT_ERR_USAGE, "--hardware: %s is a GPU, and --device is cpu",
                       x->named->roofs.name);
    if (cuda && x->named->is_cpu)
        return vt_fail(err, VT_ERR_USAGE, "--hardware: %s has no GPU, and --device is %s", name,
                       device);
    x->gpu = x->named->is_cpu ? -1 : 0;
    return VT_OK;
}

static vt_status make_target(const cli *c, const vt_model *m, const vt_limits *limits,
                             explanation *x, vt_target *target, vt_err *err)
{
    vt_err why;
    if (x->named) {
        *target = vt_target_named(x->named, limits);
    } else if (x->gpu < 0) {
        *target = vt_target_cpu(vt_cpu_get()->level, limits);
    } else if (vt_target_here(m, x->gpu, limits, target, &x->cublaslt, &why) != VT_OK) {
        return vt_fail(err, why.status,
                       "%s (--hardware, such as h200, describes a GPU that need not be here)",
                       why.message);
    }
    return vt_options_backends(c->options, target->device, target->backend, &target->n_backends,
                               err);
}

enum { ROOM_TOKENS = 8192, ROOM_SEQS = 256 };

static vt_status describe_one(explanation *x, const vt_model *m, const vt_target *target,
                              vt_dtype kv, const story_seq *seqs, vt_err *err)
{
    TRY(vt_describe(m, target, kv, &x->described, err));
    TRY(story_step_new(x->described.program, seqs[0].q_len * x->n_seqs, x->n_seqs, &x->plan, err));
    return story_step_set(x->plan, seqs, x->n_seqs, err);
}

static bool whole_experts(const cli *c)
{
    return vt_options_flag(c->options, "enable-expert-parallel");
}

static vt_status describe_ranks(const cli *c, explanation *x, const vt_model *m,
                                const vt_target *target, vt_dtype kv, const story_seq *seqs,
                                vt_err *err)
{
    TRY(plan_ranks_make(&x->ranks, m, target, kv, (int32_t)vt_options_int(c->options, "tp"),
                        whole_experts(c), vt_options_get(c->options, "tp-link"),
                        seqs[0].q_len * x->n_seqs, x->n_seqs, err));
    return plan_ranks_set(&x->ranks, seqs, x->n_seqs, err);
}

/* The description of the device whose calls are the lines. */
static const vt_described *described_of(const explanation *x)
{
    return x->ranks.of ? &x->ranks.of->rank[x->ranks.shown] : &x->described;
}

/* An error where --tp-link is given for nothing. */
static vt_status check_link(const cli *c, const explanation *x, vt_err *err)
{
    const char *link = vt_options_get(c->options, "tp-link");
    if (strcmp(link, "auto") == 0 || (x->gpu >= 0 && vt_options_int(c->options, "tp") > 1))
        return VT_OK;
    return vt_fail(err, VT_ERR_USAGE, "tp-link is %s, which is for several ranks on GPUs; %s", link,
                   x->gpu >= 0 ? "tp is 1" : "ranks of a CPU share its memory");
}

static vt_status make_plan(const cli *c, const vt_model *m, explanation *x, vt_err *err)
{
    bool gpu = x->gpu >= 0;
    vt_dtype kv = vt_kv_choose_dtype(vt_options_get(c->options, "kv-dtype"), gpu,
                                     vt_model_dtype(m));
    int32_t tokens = x->seq.q_len * x->n_seqs;
    /* an engine's limits, or more: so that the rows of other sizes are known too */
    vt_limits limits = {.max_tokens = tokens > ROOM_TOKENS ? tokens : ROOM_TOKENS,
                        .max_seqs = x->n_seqs > ROOM_SEQS ? x->n_seqs : ROOM_SEQS,
                        .max_rows = x->n_seqs > ROOM_SEQS ? x->n_seqs : ROOM_SEQS,
                        .max_context = m->arch.max_context,
                        .page_size = gpu ? 64 : 16,
                        .n_workers = 1};
    vt_target target;
    TRY(check_link(c, x, err));
    TRY(vt_ranks_check(m, (int32_t)vt_options_int(c->options, "tp"), whole_experts(c), err));
    TRY(make_target(c, m, &limits, x, &target, err));
    if (gpu)
        TRY(vt_executor_cuda_check_kv(kv, err));
    story_seq *seqs = calloc((size_t)x->n_seqs, sizeof *seqs);
    if (!seqs)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for %d sequences", x->n_seqs);
    for (int32_t i = 0; i < x->n_seqs; i++) {
        seqs[i] = x->seq;
        seqs[i].adapter = m->lora ? 1 + i % m->lora->n : 0; /* in turn */
    }
    int32_t tp = (int32_t)vt_options_int(c->options, "tp");
    vt_status status = tp > 1 ? describe_ranks(c, x, m, &target, kv, seqs, err)
                              : describe_one(x, m, &target, kv, seqs, err);
    free(seqs);
    return status;
}

static vt_status get_roofs(const cli *c, const vt_model *m, explanation *x, vt_err *err)
{
    if (x->named) {
        x->roofs = x->named->roofs;
        return VT_OK;
    }
    if (x->gpu < 0)
        return vt_roofs_get((int32_t)threads_wanted(c), m->weight_bytes, &x->roofs, err);
    size_t weights = vt_cuda_weights_bytes(m, m->arch.max_context, &(vt_rank){0, 1});
    return vt_roofs_cuda(x->gpu, (int64_t)weights, false, &x->roofs, err);
}

static void on_measuring(void *user, const char *what)
{
    const cli *c = user;
    if (c->log.tty && !c->quiet)
        fprintf(stderr, "\rmeasuring %.80s\033[K", what);
}

static const vt_efficiencies *efficiencies_of(const explanation *x)
{
    return x->named ? &x->named->efficiencies : &x->here;
}

/* Reads this machine's efficiencies and measures those that are not known yet. */
static vt_status get_efficiencies(cli *c, explanation *x, vt_err *err)
{
    if (x->named)
        return VT_OK;
    vt_efficiencies_read(&x->here, x->roofs.key);
    vt_status status = story_measure_rows(x->plan, &x->roofs, x->gpu, &x->here, on_measuring, c,
                                          err);
    if (c->log.tty && !c->quiet)
        fputs("\r\033[K", stderr);
    vt_efficiencies_write(&x->here, x->roofs.key);
    return status;
}

/* The line that a call belongs to: its own with `all`, else the one of its kind and row. NULL: out
 * of memory. */
static line *line_of(explanation *x, const vt_call *call, const char *impl, bool all)
{
    const char *name = all ? call->label : story_call_kind(call);
    for (int32_t i = 0; !all && i < x->n_lines; i++)
        if (strcmp(x->line[i].name, name) == 0 && x->line[i].impl == impl)
            return &x->line[i];
    line *l = &x->line[x->n_lines];
    l->name = strdup(name);
    l->call = call;
    l->impl = impl;
    x->n_lines += l->name != NULL;
    return l->name ? l : NULL;
}

static bool add_call(explanation *x, int32_t i, bool all)
{
    const vt_call *call = &story_step_program(x->plan)->call[i];
    line *l = line_of(x, call, story_step_impl(x->plan, i)->name, all);
    vt_cost cost = {0}, extra = {0};
    story_bound roof;
    story_step_cost(x->plan, i, &cost, &extra);
    double floor_s = story_floor_s(&cost, &x->roofs, &roof),
           link_s = x->ranks.of ? plan_ranks_link_s(&x->ranks, i) : 0,
           expected_s = x->ranks.of
                            ? plan_ranks_expected_s(&x->ranks, i, &x->roofs, efficiencies_of(x))
                            : story_expected_s(x->plan, i, &x->roofs, efficiencies_of(x));
    int bound = link_s > floor_s ? BOUND_LINK : (int)roof;
    floor_s = fmax(floor_s, link_s);
    if (l)
        line_add(l, &cost, &extra, floor_s, expected_s, bound);
    line_add(&x->total, &cost, &extra, floor_s, 0, bound);
    return l != NULL;
}

/* The sum's expected time: that of the lines which have one. */
static void sum_expected(explanation *x)
{
    x->total.expected_s = NAN;
    for (int32_t i = 0; i < x->n_lines; i++)
        if (isfinite(x->line[i].expected_s))
            x->total.expected_s = (isnan(x->total.expected_s) ? 0 : x->total.expected_s) +
                                  x->line[i].expected_s;
}

static vt_status cost_calls(explanation *x, bool all, vt_err *err)
{
    const vt_program *p = story_step_program(x->plan);
    x->line = calloc((size_t)p->n_calls, sizeof *x->line);
    if (!x->line)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for %d calls", p->n_calls);
    for (int32_t i = 0; i < p->n_calls; i++) {
        if (!story_step_impl(x->plan, i))
            continue;
        if (!add_call(x, i, all))
            return vt_fail(err, VT_ERR_MEMORY, "out of memory for the name of %s",
                           p->call[i].label);
    }
    sum_expected(x);
    return VT_OK;
}

/* ---- text ---- */

/* "reads 4.25 TB/s [measured], fp32 67 TOP/s [datasheet]"; of this machine only other tags than
 * measured are told. */
static void put_tag(vt_buf *b, const vt_roofs *r, vt_roof_kind kind)
{
    vt_roof_tag tag = r->mark[kind].tag;
    if (!r->measured || tag == VT_ROOF_DISTURBED)
        vt_buf_printf(b, " [%s]", vt_roof_tag_name[tag]);
}

static void put_roofs(vt_buf *b, const vt_roofs *r, bool fp8)
{
    static const vt_roof_kind unit[] = {VT_ROOF_FP32, VT_ROOF_BF16, VT_ROOF_INT8, VT_ROOF_FP8};
    vt_buf_printf(b, "%s", r->name);
    if (r->measured && r->threads == 0)
        vt_buf_printf(b, ", %s (measured)", r->level);
    else if (r->threads > 0)
        vt_buf_printf(b, ", %s, %d thread%s%s", r->level, r->threads, vt_text_s(r->threads),
                      r->measured ? " (measured; vitrine env measures again)" : "");
    vt_text_printf(b, ": reads %f B/s", vt_roofs_bandwidth(r));
    put_tag(b, r, r->near_bytes_per_s > 0 ? VT_ROOF_WEIGHTS : VT_ROOF_MEMORY);
    for (int i = 0; i < (fp8 ? 4 : 3); i++)
        if (vt_roof_get(r, unit[i]) > 0) {
            vt_buf_printf(b, ", %s ", vt_roof_rows[unit[i]].name);
            vt_text_rate(b, vt_roof_get(r, unit[i]), "OP");
            put_tag(b, r, unit[i]);
        }
}

/* "Kernels of level 90, 132 SMs, cuBLASLt 13.1.0." */
static void put_gpu(vt_buf *b, const explanation *x)
{
    const vt_target *t = &described_of(x)->program->target;
    if (x->named)
        vt_buf_printf(b, " (%s)", x->named->source);
    vt_buf_printf(b, ". The program is for kernels of level %d on %d SMs, ", t->level, t->sm_count);
    if (x->named)
        vt_buf_puts(b,
                    t->cublaslt ? "and assumes that cuBLASLt is installed." : "without cuBLASLt.");
    else if (x->cublaslt)
        vt_buf_printf(b, "with cuBLASLt %zu.%zu.%zu.", x->cublaslt / 10000, x->cublaslt / 100 % 100,
                      x->cublaslt % 100);
    else
        vt_buf_puts(b, "without cuBLASLt.");
}

static void cell_text(vt_table *t, void (*put)(vt_buf *, double), double v)
{
    vt_buf cell = {0};
    put(&cell, v);
    vt_table_cell(t, "%s", cell.data ? cell.data : "");
    vt_buf_release(&cell);
}

static void put_flops(vt_buf *b, double v)
{
    static const char *const unit[] = {"", " k", " M", " G", " T"};
    int i = 0;
    for (; v >= 999.5 && i < 4; i++)
        v /= 1000;
    vt_buf_printf(b, "%.*f%s", v >= 99.95 || i == 0 ? 0 : v >= 9.995 ? 1 : 2, v, unit[i]);
}

static void table_line(vt_table *t, const line *l, const line *total, bool sum)
{
    vt_table_cell(t, "%s", sum ? "sum" : l->name);
    vt_table_cell(t, "%s", sum ? "" : l->impl);
    vt_table_cell(t, "%d", l->n_calls);
    cell_text(t, vt_text_bytes, (double)(l->cost.read.weights + l->cost.write.weights));
    cell_text(t, vt_text_bytes, (double)(l->cost.read.kv + l->cost.write.kv));
    cell_text(t, vt_text_bytes, (double)(l->cost.read.activations + l->cost.write.activations));
    cell_text(t, put_flops, (double)vt_cost_flops(&l->cost));
    cell_text(t, vt_text_time, l->floor_s);
    if (isfinite(total->expected_s)) /* both columns are too many for 100 cells */
        cell_text(t, vt_text_time, l->expected_s);
    else
        vt_table_cell(t, "%.1f %%", total->floor_s > 0 ? 100 * l->floor_s / total->floor_s : 0);
    vt_table_cell(t, "%s", bound_of(l));
}

/* ---- which row runs which size, and how it cuts its work ---- */

/* The figures by which a call's row is chosen. */
static const char *size_unit(const vt_call *call)
{
    return call->when == VT_WHEN_ROWS ? "row" : call->when == VT_WHEN_DECODE ? "sequence" : "token";
}

/* "up to 64 tokens: small; up to 256: gemm_split; above: cublaslt" */
static void put_choices(vt_buf *b, const vt_call *call)
{
    for (int32_t i = 0; i < call->n_choices; i++) {
        const vt_choice *choice = &call->choice[i];
        if (i + 1 < call->n_choices)
            vt_buf_printf(b, "%sup to %d%s%s%s: %s", i ? "; " : "", choice->upto, i ? "" : " ",
                          i ? "" : size_unit(call), i ? "" : vt_text_s(choice->upto),
                          choice->impl->name);
        else
            vt_buf_printf(b, "; above: %s", choice->impl->name);
    }
}

/* Returns true if an earlier line has the same kind and row; all layers are alike. */
static bool told_before(const explanation *x, int32_t i)
{
    for (int32_t k = 0; k < i; k++)
        if (x->line[k].impl == x->line[i].impl &&
            strcmp(story_call_kind(x->line[k].call), story_call_kind(x->line[i].call)) == 0)
            return true;
    return false;
}

/* A line under the table: its heading once, a call's kind, text. */
static void put_note(vt_buf *b, const vt_term *term, const char *heading, bool *first,
                     const vt_call *call, const vt_buf *text)
{
    enum { COLUMN = 26 };
    if (*first)
        vt_buf_printf(b, "\n%s\n", heading);
    *first = false;
    size_t start = b->len;
    vt_buf_printf(b, "  %s", story_call_kind(call));
    vt_text_pad(b, start, COLUMN);
    vt_text_wrap(b, text->data ? text->data : "", COLUMN, term->width);
    vt_buf_putc(b, '\n');
}

/* The rows by size of each kind that has several. */
static void put_all_choices(vt_buf *b, const vt_term *term, const explanation *x)
{
    bool first = true;
    for (int32_t i = 0; i < x->n_lines; i++) {
        vt_buf text = {0};
        if (x->line[i].call->n_choices < 2 || told_before(x, i))
            continue;
        put_choices(&text, x->line[i].call);
        put_note(b, term, "What an op runs as depends on the size of the step:", &first,
                 x->line[i].call, &text);
        vt_buf_release(&text);
    }
}

/* Writes how each row cuts this step, where it says so. */
static void put_all_cuts(vt_buf *b, const vt_term *term, const explanation *x)
{
    const vt_program *p = story_step_program(x->plan);
    bool first = true;
    for (int32_t i = 0; i < x->n_lines; i++) {
        const vt_call *call = x->line[i].call;
        int32_t at = (int32_t)(call - p->call);
        vt_cut cut;
        vt_buf text = {0};
        if (told_before(x, i) || !story_cut_of(x->plan, at, &cut))
            continue;
        vt_buf_puts(&text, story_step_impl(x->plan, at)->name);
        story_put_cut(&text, &cut);
        put_note(b, term, "How the rows cut this step:", &first, call, &text);
        vt_buf_release(&text);
    }
}

/* " without linear.head, sample": the lines that have no expected time, each kind once. */
static void put_without(vt_buf *b, const explanation *x)
{
    const char *before = " without ";
    for (int32_t i = 0; i < x->n_lines; i++) {
        if (isfinite(x->line[i].expected_s) || told_before(x, i))
            continue;
        vt_buf_printf(b, "%s%s", before, story_call_kind(x->line[i].call));
        before = ", ";
    }
}

/* Writes what the step is expected to take, or why nothing is expected. */
static void put_expected(vt_buf *b, const vt_term *term, const explanation *x, int32_t tokens)
{
    vt_buf text = {0};
    if (isfinite(x->total.expected_s)) {
        vt_text_printf(&text, "It is expected to take %f s", x->total.expected_s);
        put_without(&text, x);
        vt_buf_printf(&text,
                      ": %.0f tokens/s. [modelled: the launch of each call, and its work at the "
                      "efficiency that its row was measured to have alone]",
                      tokens / x->total.expected_s);
    } else if (x->named && x->named->efficiencies.n == 0)
        vt_buf_printf(&text,
                      "What %s would really take is not known: no efficiencies were measured on "
                      "one. vitrine env --json there has them once vitrine explain ran there, and "
                      "--hardware FILE reads them.",
                      x->roofs.name);
    else
        vt_buf_puts(&text, "What it would really take is not known: the efficiencies of its calls "
                           "are not.");
    vt_text_wrap(b, text.data ? text.data : "", 0, term->width);
    vt_buf_putc(b, '\n');
    if (vt_roofs_disturbed(&x->roofs))
        vt_text_wrap(
            b,
            "Roofs tagged disturbed were measured while other programs used this machine: the "
            "least times may be too long. vitrine env measures them again, and lists them.\n",
            0, term->width);
    vt_buf_release(&text);
}

/* Returns the bytes of a state slot, of all ranks together. */
static int64_t slot_bytes(const explanation *x)
{
    int64_t bytes = (int64_t)vt_kv_slot_bytes(&described_of(x)->kv.shape);
    if (!x->ranks.of)
        return bytes;
    bytes = 0;
    for (int32_t r = 0; r < x->ranks.of->n; r++)
        bytes += (int64_t)vt_kv_slot_bytes(&x->ranks.of->rank[r].kv.shape);
    return bytes;
}

/* Writes what a sequence keeps beside its pages; nothing where layers carry no state. */
static void put_state(vt_buf *b, const vt_term *term, const explanation *x)
{
    const vt_kv_shape *s = &described_of(x)->kv.shape;
    vt_buf text = {0};
    if (s->n_state_layers == 0)
        return;
    vt_text_printf(
        &text,
        "%d layers keep a state in place of KV: a slot takes %f B%s, however long the sequence is. "
        "Each sequence has one, and so has each snapshot in the prefix cache.",
        s->n_state_layers, (double)slot_bytes(x), x->ranks.of ? " on all ranks together" : "");
    vt_buf_putc(b, '\n');
    vt_text_wrap(b, text.data ? text.data : "", 0, term->width);
    vt_buf_putc(b, '\n');
    vt_buf_release(&text);
}

/* Writes what a token's keys and values take in layers that read all of them and in those with a
 * sliding window; nothing where no layer has one. */
static void put_windows(vt_buf *b, const vt_term *term, const vt_model *m, const explanation *x)
{
    const vt_kv_shape *s = &x->described.kv.shape;
    int32_t all = vt_kv_layers(s), windowed = 0, window = vt_kv_window(m);
    double bytes = (double)vt_kv_page_bytes(s, 1),
           in_window = (double)vt_kv_window_page_bytes(s, 1);
    vt_buf text = {0};
    for (int32_t g = 0; g < s->n_groups; g++)
        windowed += s->group[g].windowed ? s->group[g].n_layers : 0;
    if (windowed == 0 || window == 0)
        return;
    vt_text_printf(&text,
                   "KV: a token takes %f B in %d layer%s that keep%s all tokens, and %f B in %d "
                   "with a window of %d tokens, which keep %s.",
                   bytes - in_window, all - windowed, vt_text_s(all - windowed),
                   all - windowed == 1 ? "s" : "", in_window, windowed, window,
                   x->gpu >= 0 ? "all of them too on a GPU" : "the last ones alone");
    vt_buf_putc(b, '\n');
    vt_text_wrap(b, text.data ? text.data : "", 0, term->width);
    vt_buf_putc(b, '\n');
    vt_buf_release(&text);
}

static int print_text(const cli *c, const vt_model *m, const explanation *x)
{
    vt_buf b = {0}, roofs = {0};
    vt_table t;
    int32_t tokens = x->seq.q_len * x->n_seqs;
    vt_buf_printf(&b, "%s (%s): %d sequence%s, %d new token%s each, context %d\n", m->name,
                  m->quant, x->n_seqs, x->n_seqs == 1 ? "" : "s", x->seq.q_len,
                  x->seq.q_len == 1 ? "" : "s", x->seq.kv_len);
    put_roofs(&roofs, &x->roofs, x->total.cost.flops.fp8 > 0);
    if (x->gpu >= 0)
        put_gpu(&roofs, x);
    else if (x->named)
        vt_buf_printf(&roofs, " (%s)", x->named->source);
    vt_text_wrap(&b, roofs.data ? roofs.data : "", 2, c->out.width);
    vt_buf_puts(&b, "\n\n");
    vt_table_init(&t, isfinite(x->total.expected_s)
                          ? "op|runs as|>calls|>weights|>KV|>act.|>FLOP|>least|>expected|bound"
                          : "op|runs as|>calls|>weights|>KV|>act.|>FLOP|>least|>share|bound");
    for (int32_t i = 0; i < x->n_lines; i++)
        table_line(&t, &x->line[i], &x->total, false);
    table_line(&t, &x->total, &x->total, true);
    vt_table_finish(&t, &b, &c->out, 0);
    if (x->ranks.of)
        plan_ranks_put(&x->ranks, &b, &c->out, &x->roofs);
    put_all_choices(&b, &c->out, x);
    if (vt_options_flag(c->options, "all"))
        put_all_cuts(&b, &c->out, x);
    put_windows(&b, &c->out, m, x);
    put_state(&b, &c->out, x);
    if (vt_cost_bytes(&x->total.extra) > 0) {
        vt_text_printf(
            &b,
            "\nBeyond that the implementations move %f B of their own (copies, partial results).\n",
            (double)vt_cost_bytes(&x->total.extra));
    }
    vt_text_printf(&b, "%s%f s: %.0f tokens/s.\n",
                   vt_roofs_disturbed(&x->roofs)
                       ? "\nAt these roofs, some of them disturbed, the step takes at least "
                       : "\nNo machine with these roofs does the step in less than ",
                   x->total.floor_s, x->total.floor_s > 0 ? tokens / x->total.floor_s : 0);
    put_expected(&b, &c->out, x, tokens);
    vt_buf_release(&roofs);
    return cli_text_print(&b);
}

/* ---- JSON ---- */

static void write_traffic(vt_json *w, const char *key, const vt_traffic *t)
{
    vt_json_open(w, key, '{');
    vt_json_int(w, "weights", t->weights);
    vt_json_int(w, "kv", t->kv);
    vt_json_int(w, "activations", t->activations);
    vt_json_close(w);
}

/* The rows that run the call by size, [{"up_to", "impl"}]; the last one has no limit. */
static void write_choices(vt_json *w, const vt_call *call)
{
    vt_json_open(w, "choices", '[');
    for (int32_t i = 0; i < call->n_choices; i++) {
        vt_json_open(w, NULL, '{');
        if (i + 1 < call->n_choices)
            vt_json_int(w, "up_to", call->choice[i].upto);
        else
            vt_json_null(w, "up_to");
        vt_json_string(w, "impl", call->choice[i].impl->name);
        vt_json_close(w);
    }
    vt_json_close(w);
}

static void write_line(vt_json *w, const char *key, const line *l)
{
    const vt_flops *f = &l->cost.flops;
    vt_json_open(w, key, '{');
    vt_json_string(w, "name", l->name ? l->name : "sum");
    vt_json_string(w, "impl", l->impl ? l->impl : "");
    vt_json_int(w, "calls", l->n_calls);
    write_traffic(w, "read_bytes", &l->cost.read);
    write_traffic(w, "write_bytes", &l->cost.write);
    vt_json_int(w, "extra_bytes", vt_cost_bytes(&l->extra));
    vt_json_open(w, "flops", '{');
    vt_json_int(w, "fp32", f->fp32);
    vt_json_int(w, "bf16", f->bf16);
    vt_json_int(w, "fp8", f->fp8);
    vt_json_int(w, "int8", f->int8);
    vt_json_close(w);
    vt_json_fixed(w, "least_us", l->floor_s * 1e6, 3);
    vt_json_tagged(w, "expected_us", l->expected_s * 1e6, 3, "modelled");
    vt_json_string(w, "bound", bound_of(l));
    if (l->call)
        write_choices(w, l->call);
    vt_json_close(w);
}

/* The facts of the GPU that decide which rows are chosen. */
static void write_gpu(vt_json *w, const explanation *x)
{
    const vt_target *t = &described_of(x)->program->target;
    vt_json_open(w, "gpu", '{');
    vt_json_bool(w, "is_here", !x->named);
    vt_json_int(w, "kernel_level", t->level);
    vt_json_int(w, "multiprocessors", t->sm_count);
    vt_json_bool(w, "cublaslt", t->cublaslt);
    vt_json_close(w);
}

static void write_hardware(vt_json *w, const explanation *x)
{
    const vt_roofs *r = &x->roofs;
    vt_json_open(w, "hardware", '{');
    vt_json_string(w, "name", r->name);
    vt_json_string(w, "level", r->level);
    vt_json_int(w, "threads", r->threads);
    vt_json_bool(w, "measured", r->measured);
    vt_json_fixed(w, "read_bytes_per_s", vt_roofs_bandwidth(r), 0);
    roofs_put_figures(w, "figures", r);
    if (x->gpu >= 0)
        write_gpu(w, x);
    else
        vt_json_null(w, "gpu");
    vt_json_close(w);
}

/* Writes what a sequence keeps beside its pages, {"layers", "slot_bytes"}; null: nothing. */
static void write_state(vt_json *w, const explanation *x)
{
    const vt_kv_shape *s = &described_of(x)->kv.shape;
    if (s->n_state_layers == 0) {
        vt_json_null(w, "state");
        return;
    }
    vt_json_open(w, "state", '{');
    vt_json_int(w, "layers", s->n_state_layers);
    vt_json_int(w, "slot_bytes", slot_bytes(x));
    vt_json_close(w);
}

static int print_object(const vt_model *m, const explanation *x)
{
    vt_json w;
    vt_json_object(&w);
    vt_json_string(&w, "model", m->name);
    vt_json_string(&w, "quant", m->quant);
    vt_json_open(&w, "batch", '{');
    vt_json_int(&w, "sequences", x->n_seqs);
    vt_json_int(&w, "new_tokens", x->seq.q_len);
    vt_json_int(&w, "context", x->seq.kv_len);
    vt_json_close(&w);
    write_state(&w, x);
    write_hardware(&w, x);
    vt_json_open(&w, "calls", '[');
    for (int32_t i = 0; i < x->n_lines; i++)
        write_line(&w, NULL, &x->line[i]);
    vt_json_close(&w);
    write_line(&w, "total", &x->total);
    if (x->ranks.of)
        plan_ranks_write(&x->ranks, &w, &x->roofs);
    return cli_object_print(&w);
}

int cli_explain(cli *c)
{
    vt_err err = {0};
    vt_model *m = NULL;
    explanation x = {0};
    cli_tell_model(c);
    vt_status status = vt_model_open(c->options, &m, &err);
    if (status == VT_OK)
        status = choose_device(c, &x, &err);
    if (status == VT_OK)
        status = read_shape(c, m, &x, &err);
    if (status == VT_OK)
        status = make_plan(c, m, &x, &err);
    if (status == VT_OK)
        status = get_roofs(c, m, &x, &err);
    if (status == VT_OK && x.ranks.of) {
        plan_ranks_link(&x.ranks, &x.roofs, x.named);
        plan_ranks_choose(&x.ranks, &x.roofs);
        x.plan = x.ranks.step[x.ranks.shown];
    }
    if (status == VT_OK)
        status = get_efficiencies(c, &x, &err);
    if (status == VT_OK)
        status = cost_calls(&x, vt_options_flag(c->options, "all"), &err);
    if (m && !x.named)
        status = vt_options_device_failed(c->options, status, &err);
    int code = status != VT_OK ? cli_fail(&err)
               : c->json       ? print_object(m, &x)
                               : print_text(c, m, &x);
    for (int32_t i = 0; i < x.n_lines; i++)
        free(x.line[i].name);
    free(x.line);
    vt_efficiencies_release(&x.here);
    vt_hardware_release(&x.hardware);
    if (!x.ranks.of)
        story_step_free(x.plan);
    plan_ranks_release(&x.ranks);
    vt_described_release(&x.described);
    vt_model_free(m);
    return code;
}
