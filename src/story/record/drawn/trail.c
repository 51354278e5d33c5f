/* The trail and the ops' what-ifs (trail.h, docs/story-format.md).
 *
 * A measured point of the trail is the mean of up to SAMPLED steps of one kind, evenly taken from
 * those that the machine left alone and, on a GPU, that were not timed call by call: their time,
 * and the exact bytes and FLOPs of the sequences that were in them. A modelled point is the decode
 * step with each of its sequences several times. There each kind of op keeps the share of its roof
 * that was measured, as in `story whatif`; what lies outside of ops stays what it was. */
#include "story/record/drawn/trail.h"

#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/json_write.h"
#include "story/record/numbers.h"

enum {
    SAMPLED = 8,
    GROUPS = 16,    /* prefill; decodes of 1, 2, up to 4, up to 8 ... sequences */
    MOST_TIMES = 64 /* so often are the sequences of a decode step repeated at most */
};

/* ---- a decode step, otherwise ---- */

/* Floors of a step's ops, by the index of the first op of their kind in the phase; sums. */
typedef struct other_step {
    double *floor_s; /* [phase.n_ops] */
    double bytes, flops;
} other_step;

static int32_t first_of_kind(const phase *p, const char *kind)
{
    for (int32_t i = 0; i < p->n_ops; i++)
        if (!p->op[i].link && strcmp(p->op[i].kind, kind) == 0)
            return i;
    return -1;
}

int story_smaller_weights(vt_dtype from)
{
    const vt_dtype_info *t = vt_dtype_get(from);
    return t->bytes > t->block ? VT_FP8_E4M3 : 4 * t->bytes > 3 * t->block ? VT_Q4_0 : -1;
}

/* Bytes of a matrix in the next smaller type. */
static void shrink(const vt_call *c, vt_cost *cost, const char **type)
{
    const vt_weight *m = c->op->packs == VT_PACKS_MATRIX
                             ? vt_op_operand(c->op, c->args, VT_OPERAND_WEIGHT)
                             : NULL;
    int smaller = m ? story_smaller_weights(m->dtype) : -1;
    if (smaller < 0 || cost->read.weights == 0 ||
        m->cols % vt_dtype_get((vt_dtype)smaller)->block != 0)
        return;
    cost->read.weights = m->rows * vt_dtype_row_bytes((vt_dtype)smaller, m->cols);
    *type = vt_dtype_get((vt_dtype)smaller)->name;
}

static void cost_step(const story_input *in, const story_step *plan, phase *p, bool small,
                      other_step *out)
{
    const vt_program *program = story_step_program(plan);
    memset(out->floor_s, 0, (size_t)p->n_ops * sizeof *out->floor_s);
    out->bytes = out->flops = 0;
    for (int32_t i = 0; i < program->n_calls; i++) {
        vt_cost cost, extra;
        story_bound bound;
        int32_t at = first_of_kind(p, story_call_kind(&program->call[i]));
        if (at < 0 || !story_step_cost(plan, i, &cost, &extra))
            continue;
        if (small)
            shrink(&program->call[i], &cost, &p->op[at].small_type);
        out->floor_s[at] += story_floor_s(&cost, &in->roofs, &bound);
        out->bytes += (double)vt_cost_bytes(&cost);
        out->flops += (double)vt_cost_flops(&cost);
    }
}

/* Sets the step's sequences, each so many times. False: the engine has no room for them. */
static bool repeat_step(const story_input *in, const story_record *r, const step_record *s,
                        story_step *plan, int32_t times, story_seq *seq)
{
    const vt_limits *lim = &in->program->target.limits;
    int64_t n = (int64_t)s->n_seq * times, context = 0, tokens = 0;
    if (s->n_seq != s->n_seqs || n > lim->max_seqs)
        return false;
    for (int32_t i = 0; i < n; i++) {
        seq[i] = story_seq_of(r, &r->seq[s->first_seq + i % s->n_seq]);
        context += seq[i].kv_len;
        tokens += seq[i].q_len;
    }
    return tokens <= lim->max_tokens && context <= (int64_t)in->n_pages * lim->page_size &&
           story_step_set(plan, seq, (int32_t)n, NULL) == VT_OK;
}

/* The phase's first typical step. */
static const step_record *typical_step(const story_record *r, bool prefill)
{
    for (int32_t i = 0; i < r->n_steps; i++)
        if (r->step[i].typical && r->step[i].chosen && r->step[i].prefill == prefill)
            return &r->step[i];
    return NULL;
}

/* An op's time in another step: what it took, times the change of its floor. What was paid once is
 * no part of that. */
static double otherwise_s(const phase *p, const op_sum *o, double before_s, double after_s)
{
    double s = o->s / p->n_timed, once = o->once.excess_s / p->n_timed;
    return before_s > 0 ? (s - once) * after_s / before_s : s - once;
}

typedef struct modelling {
    const step_record *step;
    story_seq *seq; /* [limits.max_seqs] */
    other_step before, after;
} modelling;

/* Gets the phase's typical step, as it was. *m: its step is NULL where there is none. */
static vt_status begin_model(const story_input *in, story_record *r, story_step *plan, phase *p,
                             modelling *m, vt_err *err)
{
    size_t ops = (size_t)p->n_ops + 1, seqs = (size_t)in->program->target.limits.max_seqs + 1;
    *m = (modelling){.seq = vt_arena_alloc(&r->arena, seqs, sizeof *m->seq),
                     .before.floor_s = vt_arena_alloc(&r->arena, ops, sizeof(double)),
                     .after.floor_s = vt_arena_alloc(&r->arena, ops, sizeof(double))};
    if (!m->seq || !m->before.floor_s || !m->after.floor_s)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a story");
    /* of a busy machine's times nothing follows for another step */
    const step_record *s = p->n_timed > 0 && !phase_too_few(p) ? typical_step(r, p->name[0] == 'p')
                                                               : NULL;
    if (!s || !repeat_step(in, r, s, plan, 1, m->seq))
        return VT_OK;
    m->step = s;
    cost_step(in, plan, p, false, &m->before);
    return VT_OK;
}

vt_status story_model_ops(const story_input *in, story_record *r, story_step *plan,
                          phase phases[STORY_PHASES], vt_err *err)
{
    for (int k = 0; k < STORY_PHASES; k++) {
        modelling m;
        phase *p = &phases[k];
        for (int32_t i = 0; i < p->n_ops; i++)
            p->op[i].if_twice_s = p->op[i].if_small_s = NAN;
        TRY(begin_model(in, r, plan, p, &m, err));
        if (!m.step)
            continue;
        cost_step(in, plan, p, true, &m.after);
        for (int32_t i = 0; i < p->n_ops; i++) {
            int32_t at = first_of_kind(p, p->op[i].kind);
            p->op[i].small_type = at >= 0 ? p->op[at].small_type : NULL;
            if (p->op[i].small_type && !p->op[i].link)
                p->op[i].if_small_s = otherwise_s(p, &p->op[i], m.before.floor_s[at],
                                                  m.after.floor_s[at]);
        }
        if (k == STORY_PREFILL || !repeat_step(in, r, m.step, plan, 2, m.seq))
            continue;
        cost_step(in, plan, p, false, &m.after);
        for (int32_t i = 0; i < p->n_ops; i++) {
            int32_t at = first_of_kind(p, p->op[i].kind);
            if (at >= 0 && !p->op[i].link)
                p->op[i].if_twice_s = otherwise_s(p, &p->op[i], m.before.floor_s[at],
                                                  m.after.floor_s[at]);
        }
    }
    return VT_OK;
}

/* ---- the trail ---- */

typedef struct trail_group {
    int best, n,
        taken; /* the quality of its steps that count, how many have it, how many are in: */
    double seqs, tokens, s, bytes, flops, floor_s;
} trail_group;

/* Prefill is group 0; decodes of up to 2^i sequences are group i + 1. -1: decodes with a chunk. */
static int group_of(const step_record *s)
{
    int g = 1;
    if (s->prefill)
        return 0;
    if (step_has_chunk(s) || s->n_seqs < 1)
        return -1;
    while (g + 1 < GROUPS && 1 << (g - 1) < s->n_seqs)
        g++;
    return g;
}

/* Undisturbed steps count most, and of these those that nothing timed. */
static int quality_of(const step_record *s)
{
    return (step_is_disturbed(s) ? 0 : 2) + (step_is_timed(s) ? 0 : 1);
}

static void add_step(const story_input *in, const story_record *r, const step_record *s,
                     story_step *plan, trail_group *g)
{
    if (!story_bind_step(r, s, plan))
        return;
    for (int32_t i = 0; i < story_step_program(plan)->n_calls; i++) {
        vt_cost cost, extra;
        story_bound bound;
        if (!story_step_cost(plan, i, &cost, &extra))
            continue;
        g->bytes += (double)vt_cost_bytes(&cost);
        g->flops += (double)vt_cost_flops(&cost);
        g->floor_s += story_floor_s(&cost, &in->roofs, &bound);
    }
    g->taken++;
    g->seqs += s->n_seqs;
    g->tokens += s->n_tokens;
    g->s += span_s(s->device);
}

static void find_groups(const story_input *in, const story_record *r, story_step *plan,
                        trail_group group[GROUPS])
{
    int32_t seen[GROUPS] = {0};
    for (int32_t i = 0; i < r->n_steps; i++) {
        const step_record *s = &r->step[i];
        int g = s->chosen ? group_of(s) : -1;
        if (g < 0 || quality_of(s) < group[g].best)
            continue;
        group[g].n = quality_of(s) > group[g].best ? 1 : group[g].n + 1;
        group[g].best = quality_of(s);
    }
    for (int32_t i = 0; i < r->n_steps; i++) {
        const step_record *s = &r->step[i];
        int g = s->chosen ? group_of(s) : -1;
        if (g < 0 || quality_of(s) != group[g].best)
            continue;
        int32_t k = seen[g]++, n = group[g].n < SAMPLED ? group[g].n : SAMPLED;
        if ((int64_t)k * n / group[g].n != (int64_t)(k + 1) * n / group[g].n)
            add_step(in, r, s, plan, &group[g]);
    }
}

static void put_point(vt_json *w, const char *name, int32_t steps, const trail_group *g,
                      const char *tag)
{
    double n = g->taken;
    vt_json_open(w, NULL, '{');
    vt_json_string(w, "phase", name);
    vt_json_real(w, "sequences", g->seqs / n);
    vt_json_real(w, "tokens", g->tokens / n);
    vt_json_int(w, "steps", steps);
    put_us(w, "step_us", g->s / n, tag);
    vt_json_tagged(w, "bytes", g->bytes / n, 0, "derived");
    vt_json_tagged(w, "flops", g->flops / n, 0, "derived");
    put_us(w, "floor_us", g->floor_s / n, "derived");
    vt_json_close(w);
}

/* Decodes of more sequences than any step had. */
static vt_status put_modelled(vt_json *w, const story_input *in, story_record *r, story_step *plan,
                              phase *p, const trail_group group[GROUPS], vt_err *err)
{
    modelling m;
    TRY(begin_model(in, r, plan, p, &m, err));
    if (!m.step || step_has_chunk(m.step))
        return VT_OK;
    double timed_s = p->timed_s / p->n_timed, plain = phase_step_s(p) / timed_s;
    for (int32_t times = 2; times <= MOST_TIMES; times *= 2) {
        step_record more = *m.step;
        more.n_seqs = more.n_decode = m.step->n_seqs * times;
        int g = group_of(&more);
        if (!repeat_step(in, r, m.step, plan, times, m.seq))
            break;
        if (group[g].taken)
            continue;
        cost_step(in, plan, p, false, &m.after);
        trail_group x = {.taken = 1,
                         .seqs = more.n_seqs,
                         .tokens = (double)m.step->n_tokens * times,
                         .s = timed_s - p->ops_s / p->n_timed,
                         .bytes = m.after.bytes,
                         .flops = m.after.flops};
        for (int32_t i = 0; i < p->n_ops; i++) {
            int32_t at = p->op[i].link ? -1 : first_of_kind(p, p->op[i].kind);
            x.s += at < 0 ? p->op[i].s / p->n_timed
                          : otherwise_s(p, &p->op[i], m.before.floor_s[at], m.after.floor_s[at]);
            x.floor_s += at == i ? m.after.floor_s[at] : 0;
        }
        x.s *= isfinite(plain) ? plain : 1;
        put_point(w, "decode", 0, &x, modelled);
    }
    return VT_OK;
}

vt_status story_put_trail(vt_json *w, const story_input *in, story_record *r, story_step *plan,
                          phase phases[STORY_PHASES], vt_err *err)
{
    trail_group group[GROUPS] = {{0}};
    find_groups(in, r, plan, group);
    vt_json_open(w, "trail", '[');
    for (int g = 0; g < GROUPS; g++)
        if (group[g].taken)
            put_point(w, g == 0 ? "prefill" : "decode", group[g].n, &group[g], measured);
    TRY(put_modelled(w, in, r, plan, &phases[STORY_DECODE], group, err));
    vt_json_close(w);
    return VT_OK;
}
