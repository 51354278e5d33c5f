/* Steps of several ranks (plan_ranks.h).
 *
 * All figures come from the cards: a rank's program has shards for weights, so that its calls'
 * costs are those of the rank, and a call that joins ranks tells the bytes that come over the link.
 */
#include "cli/plan_ranks.h"

#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/term/figure.h"
#include "device/hardware.h"
#include "exec/ranks.h"
#include "ops/comm.h"

/* The work of a layer of the shown rank, or of all that lies outside the layers. */
typedef struct told {
    int32_t n_joins; /* calls that join ranks */
    int64_t link_bytes;
    double work_s, joins_s; /* least times: of the other calls, and of those */
    double hidden_s;        /* of joins_s: at most, behind reading weights ahead */
} told;

static bool joins(const story_step *s, int32_t i)
{
    return story_step_program(s)->call[i].op->is & VT_OP_JOINS_RANKS;
}

/* ---- making ---- */

vt_status plan_ranks_make(plan_ranks *x, const vt_model *m, const vt_target *t, vt_dtype kv,
                          int32_t n, bool whole_experts, const char *link, int32_t max_tokens,
                          int32_t max_seqs, vt_err *err)
{
    bool gpus = t->device == VT_DEVICE_CUDA;
    *x = (plan_ranks){.whole_experts = whole_experts,
                      .link = gpus ? (strcmp(link, "host") == 0 ? "host" : "p2p") : "memory"};
    TRY(vt_ranks_check(m, n, whole_experts, err));
    if (gpus && n > COMM_GPU_RANKS)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "tp is %d, expected at most %d ranks on GPUs", n,
                       COMM_GPU_RANKS);
    TRY(vt_describe_ranks(m, t, kv, n, whole_experts, strcmp(x->link, "host") == 0, &x->of, err));
    for (int32_t r = 0; r < (gpus ? n : 1); r++, x->n_steps++)
        TRY(story_step_new(x->of->rank[r].program, max_tokens, max_seqs, &x->step[r], err));
    return VT_OK;
}

vt_status plan_ranks_set(plan_ranks *x, const story_seq *seq, int32_t n, vt_err *err)
{
    for (int32_t k = 0; k < x->n_steps; k++)
        TRY(story_step_set(x->step[k], seq, n, err));
    return VT_OK;
}

void plan_ranks_release(plan_ranks *x)
{
    for (int32_t r = 0; r < x->n_steps; r++)
        story_step_free(x->step[r]);
    vt_described_ranks_free(x->of);
    *x = (plan_ranks){0};
}

/* ---- counting ---- */

/* Bytes that the row of call i brings to its rank over the link. */
static int64_t link_bytes(const story_step *s, int32_t i)
{
    const vt_call *c = &story_step_program(s)->call[i];
    return vt_comm_link_bytes(c->op, story_step_impl(s, i), c->args, story_step_batch(s));
}

static double link_s(const plan_ranks *x, const story_step *s, int32_t i)
{
    return x->link_bytes_per_s > 0 ? (double)link_bytes(s, i) / x->link_bytes_per_s : 0;
}

double plan_ranks_link_s(const plan_ranks *x, int32_t i) { return link_s(x, x->step[x->shown], i); }

/* The least time of a call that costs this. */
static double least_s(const plan_ranks *x, const story_step *s, int32_t i, const vt_cost *cost,
                      const vt_roofs *r)
{
    story_bound bound;
    return fmax(story_floor_s(cost, r, &bound), link_s(x, s, i));
}

/* The work of a rank, or of all ranks of a CPU. */
typedef struct work {
    vt_cost cost;
    int64_t link_bytes;
    double least_s;
} work;

static work work_of(const plan_ranks *x, int32_t k, const vt_roofs *r)
{
    const story_step *s = x->step[k];
    work w = {0};
    for (int32_t i = 0; i < story_step_program(s)->n_calls; i++) {
        vt_cost cost, extra;
        if (!story_step_cost(s, i, &cost, &extra))
            continue;
        vt_cost_add(&w.cost, &cost);
        w.link_bytes += link_bytes(s, i);
        w.least_s += least_s(x, s, i, &cost, r);
    }
    return w;
}

/* Through the host's memory bytes go up and then down: one direction at a time. */
void plan_ranks_link(plan_ranks *x, const vt_roofs *r, const vt_hardware *named)
{
    const vt_hardware *sheet = named && named->peer_bytes_per_s > 0 ? named
                               : r->is_gpu                          ? vt_hardware_sheet(r->name)
                                                                    : NULL;
    if (strcmp(x->link, "host") == 0) {
        x->link_bytes_per_s = fmin(r->to_device_bytes_per_s, r->from_device_bytes_per_s);
        x->link_tag = r->mark[VT_ROOF_TO_DEVICE].tag;
    } else if (strcmp(x->link, "p2p") == 0 && sheet) {
        x->link_bytes_per_s = sheet->peer_bytes_per_s;
        x->link_tag = VT_ROOF_DATASHEET;
    }
}

double plan_ranks_choose(plan_ranks *x, const vt_roofs *r)
{
    double longest = 0;
    for (int32_t k = 0; k < x->n_steps; k++) {
        double s = work_of(x, k, r).least_s;
        if (s > longest) {
            longest = s;
            x->shown = k;
        }
    }
    return longest;
}

double plan_ranks_expected_s(const plan_ranks *x, int32_t i, const vt_roofs *r,
                             const vt_efficiencies *e)
{
    const story_step *s = x->step[x->shown];
    double measured = story_expected_s(s, i, r, e);
    if (isfinite(measured) || e->n == 0 || !story_step_impl(s, i) || !joins(s, i) ||
        !(link_s(x, s, i) > 0))
        return measured;
    return vt_roofs_launch_s(r, true) + link_s(x, s, i);
}

static double step_s(const plan_ranks *x, const story_step *s, const vt_roofs *r,
                     const vt_efficiencies *e, double share)
{
    double sum = 0;
    for (int32_t i = 0; i < story_step_program(s)->n_calls; i++) {
        vt_cost cost, extra;
        story_bound bound;
        if (!story_step_cost(s, i, &cost, &extra))
            continue;
        double expected = e ? story_expected_s(s, i, r, e) : NAN,
               link = x && joins(s, i) ? link_s(x, s, i) : 0;
        sum += isfinite(expected) ? expected : fmax(story_floor_s(&cost, r, &bound), link) / share;
    }
    return sum;
}

double plan_step_s(const story_step *s, const vt_roofs *r, const vt_efficiencies *e, double share)
{
    return step_s(NULL, s, r, e, share);
}

double plan_ranks_step_s(const plan_ranks *x, const vt_roofs *r, const vt_efficiencies *e,
                         double share)
{
    double longest = 0;
    for (int32_t k = 0; k < x->n_steps; k++)
        longest = fmax(longest, step_s(x, x->step[k], r, e, share));
    return longest;
}

/* Weights that are read between call i and the next one that joins ranks do not depend on what i
 * brings. A GPU could read them meanwhile, as many as its L2 holds. */
static double hidden_s(const story_step *s, int32_t i, double own_s, const vt_roofs *r)
{
    int64_t weights = 0;
    vt_cost cost, extra;
    for (int32_t k = i + 1; k < story_step_program(s)->n_calls && !joins(s, k); k++)
        if (story_step_cost(s, k, &cost, &extra))
            weights += cost.read.weights;
    if (!r->is_gpu)
        return 0;
    weights = weights < r->l2_size ? weights : r->l2_size;
    return fmin(own_s, (double)weights / vt_roofs_bandwidth(r));
}

static void add_call(told *t, const plan_ranks *x, int32_t i, const vt_roofs *r)
{
    const story_step *s = x->step[x->shown];
    vt_cost cost, extra;
    story_bound bound;
    if (!story_step_cost(s, i, &cost, &extra))
        return;
    if (!joins(s, i)) {
        t->work_s += story_floor_s(&cost, r, &bound);
        return;
    }
    double own_s = least_s(x, s, i, &cost, r);
    t->n_joins++;
    t->link_bytes += link_bytes(s, i);
    t->joins_s += own_s;
    t->hidden_s += hidden_s(s, i, own_s, r);
}

enum { EVERY_LAYER = -2 };

static told told_of(const plan_ranks *x, int32_t layer, const vt_roofs *r)
{
    const vt_program *p = story_step_program(x->step[x->shown]);
    told t = {0};
    for (int32_t i = 0; i < p->n_calls; i++)
        if (layer == EVERY_LAYER || p->call[i].layer == layer)
            add_call(&t, x, i, r);
    return t;
}

static int32_t n_layers(const plan_ranks *x)
{
    const vt_program *p = story_step_program(x->step[x->shown]);
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_calls; i++)
        n = p->call[i].layer >= n ? p->call[i].layer + 1 : n;
    return n;
}

/* ---- text ---- */

static void put_ranks(const plan_ranks *x, vt_buf *b, const vt_term *term, const vt_roofs *r)
{
    vt_table t;
    vt_table_init(&t, "rank|>weights|>KV|>FLOP, in GFLOP|>over its link|>least");
    for (int32_t k = 0; k < x->n_steps; k++) {
        vt_buf cell[4] = {{0}};
        work w = work_of(x, k, r);
        vt_text_bytes(&cell[0], (double)(w.cost.read.weights + w.cost.write.weights));
        vt_text_bytes(&cell[1], (double)(w.cost.read.kv + w.cost.write.kv));
        vt_text_bytes(&cell[2], (double)w.link_bytes);
        vt_text_time(&cell[3], w.least_s);
        vt_table_cell(&t, "%d%s", k, k == x->shown ? " (above)" : "");
        vt_table_cell(&t, "%s", cell[0].data ? cell[0].data : "");
        vt_table_cell(&t, "%s", cell[1].data ? cell[1].data : "");
        vt_table_cell(&t, "%.3f", (double)vt_cost_flops(&w.cost) * 1e-9);
        vt_table_cell(&t, "%s", cell[2].data ? cell[2].data : "");
        vt_table_cell(&t, "%s", cell[3].data ? cell[3].data : "");
        for (int c = 0; c < 4; c++)
            vt_buf_release(&cell[c]);
    }
    vt_buf_putc(b, '\n');
    vt_table_finish(&t, b, term, 0);
}

static void put_told(vt_table *t, const char *name, const told *v)
{
    vt_buf cell[4] = {{0}};
    double all = v->work_s + v->joins_s;
    vt_text_time(&cell[0], v->work_s);
    vt_text_time(&cell[1], v->joins_s);
    vt_text_bytes(&cell[2], (double)v->link_bytes);
    vt_text_time(&cell[3], v->hidden_s);
    vt_table_cell(t, "%s", name);
    vt_table_cell(t, "%s", cell[0].data ? cell[0].data : "");
    vt_table_cell(t, "%d", v->n_joins);
    vt_table_cell(t, "%s", cell[2].data ? cell[2].data : "");
    vt_table_cell(t, "%s", cell[1].data ? cell[1].data : "");
    vt_table_cell(t, "%.1f %%", all > 0 ? 100 * v->joins_s / all : 0);
    vt_table_cell(t, "%s", cell[3].data ? cell[3].data : "");
    for (int c = 0; c < 4; c++)
        vt_buf_release(&cell[c]);
}

static bool alike(const told *a, const told *b)
{
    return a->n_joins == b->n_joins && a->link_bytes == b->link_bytes &&
           fabs(a->work_s - b->work_s) < 1e-12 && fabs(a->joins_s - b->joins_s) < 1e-12;
}

/* Layers that are alike share a line. */
static void put_layers(const plan_ranks *x, vt_buf *b, const vt_term *term, const vt_roofs *r)
{
    char name[32];
    vt_table t;
    told outside = told_of(x, -1, r), all = told_of(x, EVERY_LAYER, r);
    vt_table_init(&t, "each of|>other calls|>meetings|>over the link|>least|>share|>hidden");
    for (int32_t first = 0, i = 0, n = n_layers(x); first < n; first = i) {
        told one = told_of(x, first, r), next = one;
        for (i = first; i < n && alike(&one, &next); next = told_of(x, ++i, r))
            ;
        snprintf(name, sizeof name, i == first + 1 ? "L%02d" : "L%02d..L%02d", first, i - 1);
        put_told(&t, name, &one);
    }
    put_told(&t, "outside of layers", &outside);
    put_told(&t, "sum", &all);
    vt_buf_putc(b, '\n');
    vt_table_finish(&t, b, term, 0);
}

void plan_ranks_put(const plan_ranks *x, vt_buf *b, const vt_term *term, const vt_roofs *r)
{
    vt_buf text = {0};
    told all = told_of(x, EVERY_LAYER, r);
    bool gpus = x->n_steps > 1;
    if (gpus)
        put_ranks(x, b, term, r);
    put_layers(x, b, term, r);
    if (!gpus)
        vt_buf_printf(&text,
                      "%d ranks share this CPU: costs are those of all together, and a meeting "
                      "hides behind nothing.",
                      x->of->n);
    else if (x->link_bytes_per_s > 0)
        vt_text_printf(&text,
                       "%d GPUs meet by %s at %f B/s a direction [%s]. The step takes at least "
                       "%f s with its meetings. `hidden`: as much of them as could pass while "
                       "weights of the next calls are read ahead into the L2; the step is then "
                       "%f s at least.",
                       x->of->n, x->link, x->link_bytes_per_s, vt_roof_tag_name[x->link_tag],
                       all.work_s + all.joins_s, all.work_s + all.joins_s - all.hidden_s);
    else
        vt_buf_printf(&text,
                      "%d GPUs meet by %s, whose rate is not known here: the meetings' least "
                      "times are those of their launch and memory alone.",
                      x->of->n, x->link);
    vt_text_wrap(b, text.data ? text.data : "", 0, term->width);
    vt_buf_putc(b, '\n');
    vt_buf_release(&text);
}

/* ---- JSON ---- */

/* Returns true if an earlier call of the step has the kind of call i. */
static bool told_before(const story_step *s, int32_t i)
{
    const vt_program *p = story_step_program(s);
    for (int32_t k = 0; k < i; k++)
        if (story_step_impl(s, k) &&
            strcmp(story_call_kind(&p->call[k]), story_call_kind(&p->call[i])) == 0)
            return true;
    return false;
}

/* Writes the work of each kind of call, so that the shards of a kind can be added up. */
static void write_kinds(vt_json *j, const story_step *s)
{
    const vt_program *p = story_step_program(s);
    vt_json_open(j, "kinds", '{');
    for (int32_t i = 0; i < p->n_calls; i++) {
        const char *kind = story_call_kind(&p->call[i]);
        vt_cost sum = {0}, cost, extra;
        if (!story_step_impl(s, i) || told_before(s, i))
            continue;
        for (int32_t k = i; k < p->n_calls; k++)
            if (strcmp(story_call_kind(&p->call[k]), kind) == 0 &&
                story_step_cost(s, k, &cost, &extra))
                vt_cost_add(&sum, &cost);
        vt_json_open(j, kind, '{');
        vt_json_int(j, "weight_bytes", sum.read.weights + sum.write.weights);
        vt_json_int(j, "kv_bytes", sum.read.kv + sum.write.kv);
        vt_json_int(j, "flops", vt_cost_flops(&sum));
        vt_json_close(j);
    }
    vt_json_close(j);
}

static void write_rank(vt_json *j, const plan_ranks *x, int32_t k, const vt_roofs *r)
{
    work w = work_of(x, k, r);
    vt_json_open(j, NULL, '{');
    vt_json_bool(j, "shown", k == x->shown);
    vt_json_int(j, "weight_bytes", w.cost.read.weights + w.cost.write.weights);
    vt_json_int(j, "kv_bytes", w.cost.read.kv + w.cost.write.kv);
    vt_json_int(j, "activation_bytes", w.cost.read.activations + w.cost.write.activations);
    vt_json_int(j, "flops", vt_cost_flops(&w.cost));
    vt_json_int(j, "link_bytes", w.link_bytes);
    vt_json_fixed(j, "least_us", w.least_s * 1e6, 3);
    write_kinds(j, x->step[k]);
    vt_json_close(j);
}

static void write_told(vt_json *w, const char *key, int32_t layer, const told *t)
{
    vt_json_open(w, key, '{');
    if (!key && layer >= 0)
        vt_json_int(w, "layer", layer);
    else if (!key)
        vt_json_null(w, "layer");
    vt_json_int(w, "meetings", t->n_joins);
    vt_json_int(w, "link_bytes", t->link_bytes);
    vt_json_fixed(w, "other_least_us", t->work_s * 1e6, 3);
    vt_json_fixed(w, "least_us", t->joins_s * 1e6, 3);
    vt_json_fixed(w, "hidden_us", t->hidden_s * 1e6, 3);
    vt_json_close(w);
}

/* Each call that joins ranks, with what its row brings over the link. */
static void write_meetings(vt_json *w, const plan_ranks *x, const vt_roofs *r)
{
    const story_step *s = x->step[x->shown];
    const vt_program *p = story_step_program(s);
    vt_json_open(w, "meetings", '[');
    for (int32_t i = 0; i < p->n_calls; i++) {
        vt_cost cost, extra;
        if (!joins(s, i) || !story_step_cost(s, i, &cost, &extra))
            continue;
        vt_json_open(w, NULL, '{');
        vt_json_string(w, "label", p->call[i].label);
        vt_json_string(w, "op", p->call[i].op->name);
        vt_json_string(w, "impl", story_step_impl(s, i)->name);
        vt_json_int(w, "link_bytes", link_bytes(s, i));
        vt_json_fixed(w, "least_us", least_s(x, s, i, &cost, r) * 1e6, 3);
        vt_json_close(w);
    }
    vt_json_close(w);
}

void plan_ranks_write(const plan_ranks *x, vt_json *w, const vt_roofs *r)
{
    told all = told_of(x, EVERY_LAYER, r);
    vt_json_int(w, "tp", x->of->n);
    vt_json_bool(w, "expert_parallel", x->whole_experts);
    vt_json_string(w, "link", x->link);
    vt_json_quantity(w, "link_rate", x->link_bytes_per_s > 0 ? x->link_bytes_per_s : NAN, "B/s",
                     vt_roof_tag_name[x->link_tag]);
    vt_json_open(w, "ranks", '[');
    for (int32_t k = 0; k < x->n_steps; k++)
        write_rank(w, x, k, r);
    vt_json_close(w);
    write_told(w, "communication", 0, &all);
    vt_json_open(w, "layers", '[');
    for (int32_t i = -1; i < n_layers(x); i++) {
        told t = told_of(x, i, r);
        write_told(w, NULL, i, &t);
    }
    vt_json_close(w);
    write_meetings(w, x, r);
}
