/* All CTAs of a step (ctas.h).
 *
 *   SM 0   [ CTA 0      ][ CTA 4    ]
 *   SM 1   [ CTA 1   ][ CTA 5    ]          <- this SM is done first: here the tail begins
 *   SM 2   [ CTA 2       ][ CTA 6        ]
 *   SM 3                                    idle
 *          |  wave 1     |  wave 2       |
 *
 * A launch lasts from the begin of its first CTA to the end of its last one. With programmatic
 * dependent launch a CTA may begin before the launch in front of it has ended, and waits then. The
 * wave of a CTA is one more than that of the CTAs of the launch that had ended on its SM when it
 * began. The tail begins when the first SM that had a CTA has none left.
 *
 * A story tells one launch for each op and kernel, the one of median length, with the CTAs of it
 * as far as there is room. */
#include "story/record/watched/ctas.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "story/record/columns.h"
#include "story/record/numbers.h"
#include "story/record/phases.h"
#include "story/record/places.h"

enum {
    MAX_MAPS = 16,                /* of a step */
    MAP_CTAS = 1 << 11,           /* whose CTAs are told one by one; */
    STORY_CTAS = 3 << 12,         /* of all maps of a story */
    WAVES = 8,                    /* whose CTAs are counted apart */
    BINS = STORY_MAX_LANE / 2 - 1 /* of a step, in the lane */
};

/* A launch, summed up. */
typedef struct cta_map {
    const vt_cta_launch *of;
    const char *label, *kind, *op;
    int64_t begin_ns, end_ns;
    int32_t n; /* CTAs whose times are known */
    int32_t sms, waves, in_wave[WAVES];
    int64_t tail_ns; /* from the moment when the first SM is done */
    double busy_s;   /* of SMs with a CTA, in sum */
} cta_map;

static int by_sm(const void *a, const void *b)
{
    const vt_cta *x = a, *y = b;
    if (x->sm != y->sm)
        return x->sm < y->sm ? -1 : 1;
    return (x->begin_ns > y->begin_ns) - (x->begin_ns < y->begin_ns);
}

/* A CTA's end, and its place among the CTAs of its SM. */
typedef struct cta_end {
    int64_t at_ns;
    int32_t index;
} cta_end;

static int by_end(const void *a, const void *b)
{
    const cta_end *x = a, *y = b;
    return (x->at_ns > y->at_ns) - (x->at_ns < y->at_ns);
}

/* Room for the CTAs of a launch or of a step. */
typedef struct cta_room {
    vt_cta *cta;
    cta_end *end;
    int32_t *wave;
} cta_room;

/* The CTAs of one SM, which are in the order of their begins. */
static void add_sm(cta_map *m, const vt_cta *c, int32_t n, const cta_room *room)
{
    int64_t until = INT64_MIN;
    int32_t done = 0, ended = 0;
    for (int32_t i = 0; i < n; i++)
        room->end[i] = (cta_end){c[i].end_ns, i};
    qsort(room->end, (size_t)n, sizeof *room->end, by_end);
    memset(room->wave, 0, (size_t)n * sizeof *room->wave);
    for (int32_t i = 0; i < n; i++) {
        for (; ended < n && room->end[ended].at_ns <= c[i].begin_ns; ended++) {
            int32_t wave = room->wave[room->end[ended].index];
            done = wave > done ? wave : done;
        }
        room->wave[i] = done + 1;
        m->in_wave[done < WAVES ? done : WAVES - 1]++;
        m->waves = done + 1 > m->waves ? done + 1 : m->waves;
        int64_t from = c[i].begin_ns > until ? c[i].begin_ns : until;
        if (c[i].end_ns > from)
            m->busy_s += (double)(c[i].end_ns - from) * 1e-9;
        until = c[i].end_ns > until ? c[i].end_ns : until;
    }
    m->sms++;
    m->begin_ns = c[0].begin_ns < m->begin_ns ? c[0].begin_ns : m->begin_ns;
    m->end_ns = until > m->end_ns ? until : m->end_ns;
    m->tail_ns = until < m->tail_ns ? until : m->tail_ns;
}

/* Copies the CTAs of a launch whose times are known; returns how many. */
static int32_t known_ctas(const vt_cta_launch *l, vt_cta *out)
{
    int32_t n = 0;
    for (int32_t i = 0; i < l->n; i++)
        if (l->cta[i].end_ns > 0)
            out[n++] = l->cta[i];
    return n;
}

static void sum_up(cta_map *m, const cta_room *room)
{
    m->n = known_ctas(m->of, room->cta);
    m->begin_ns = m->tail_ns = INT64_MAX;
    m->end_ns = INT64_MIN;
    qsort(room->cta, (size_t)m->n, sizeof *room->cta, by_sm);
    for (int32_t i = 0, n; i < m->n; i += n) {
        for (n = 1; i + n < m->n && room->cta[i + n].sm == room->cta[i].sm;)
            n++;
        add_sm(m, room->cta + i, n, room);
    }
    m->tail_ns = m->n > 0 ? m->end_ns - m->tail_ns : 0;
}

/* ---- which launches are told ---- */

static int by_length(const void *a, const void *b)
{
    const cta_map *x = a, *y = b;
    int64_t m = x->end_ns - x->begin_ns, n = y->end_ns - y->begin_ns;
    return m != n ? (m > n) - (m < n) : (x->begin_ns > y->begin_ns) - (x->begin_ns < y->begin_ns);
}

static int by_begin(const void *a, const void *b)
{
    const cta_map *x = a, *y = b;
    return (x->begin_ns > y->begin_ns) - (x->begin_ns < y->begin_ns);
}

/* Puts the launches that are like `all[0]`, and have CTAs, into `out`; the others stay. */
static int32_t take_alike(cta_map *all, int32_t *n_all, cta_map *out)
{
    const cta_map first = all[0];
    int32_t n = 0, left = 0;
    for (int32_t i = 0; i < *n_all; i++)
        if (all[i].of->kernel == first.of->kernel && strcmp(all[i].kind, first.kind) == 0)
            out[n++] = all[i];
        else
            all[left++] = all[i];
    *n_all = left;
    return n;
}

/* Chooses a launch for each op and kernel of a step. Returns how many. `all`: room for two lists of
 * its launches. */
static int32_t choose(const vt_cta_step *s, const story_step *plan, const cta_room *room,
                      cta_map *all, cta_map out[MAX_MAPS])
{
    const vt_program *p = story_step_program(plan);
    int32_t n = 0, n_out = 0;
    cta_map *alike = all + s->n_launches;
    for (int32_t i = 0; i < s->n_launches; i++) {
        const vt_cta_launch *l = &s->launch[i];
        if (l->call < 0 || l->call >= p->n_calls)
            continue;
        const vt_call *c = &p->call[l->call];
        cta_map m = {.of = l, .label = c->label, .kind = story_call_kind(c), .op = c->op->name};
        sum_up(&m, room);
        if (m.n > 0)
            all[n++] = m;
    }
    while (n > 0 && n_out < MAX_MAPS) {
        int32_t k = take_alike(all, &n, alike);
        qsort(alike, (size_t)k, sizeof *alike, by_length);
        out[n_out++] = alike[k / 2];
    }
    qsort(out, (size_t)n_out, sizeof *out, by_begin);
    return n_out;
}

/* ---- writing ---- */

/* The CTAs of a launch, in the order of blockIdx: SM, begin and end from the launch's begin on. */
static void put_columns(vt_json *w, const cta_map *m, double *v)
{
    static const char *const key[] = {"sm", "begin_ns", "end_ns"};
    vt_json_open(w, "columns", '{');
    for (int c = 0; c < 3; c++) {
        int32_t n = 0;
        for (int32_t i = 0; i < m->of->n; i++) {
            const vt_cta *a = &m->of->cta[i];
            if (a->end_ns > 0)
                v[n++] = c == 0   ? a->sm
                         : c == 1 ? (double)(a->begin_ns - m->begin_ns)
                                  : (double)(a->end_ns - m->begin_ns);
        }
        story_put_column(w, key[c], v, n, 0);
    }
    vt_json_close(w);
}

static void put_map(vt_json *w, const story_source *from, const cta_map *m, int64_t step_ns,
                    int32_t *room_left, double *v)
{
    double s = (double)(m->end_ns - m->begin_ns) * 1e-9, sms = from->is.device.sm_count;
    bool told = m->n <= MAP_CTAS && m->n <= *room_left;
    vt_json_open(w, NULL, '{');
    vt_json_string(w, "label", m->label);
    vt_json_string(w, "kind", m->kind);
    vt_json_string(w, "op", m->op);
    vt_json_string(w, "kernel",
                   m->of->kernel < from->is.n_kernels ? from->kernel[m->of->kernel].name : "");
    vt_json_int(w, "ctas", m->of->n);
    vt_json_int(w, "not_known", m->of->n - m->n);
    vt_json_int(w, "sms", m->sms);
    vt_json_int(w, "waves", m->waves);
    vt_json_open(w, "in_wave", '[');
    for (int32_t k = 0; k < m->waves && k < WAVES; k++)
        vt_json_int(w, NULL, m->in_wave[k]);
    vt_json_close(w);
    put_us(w, "begin_us", (double)(m->begin_ns - step_ns) * 1e-9, measured);
    put_us(w, "time_us", s, measured);
    put_us(w, "tail_us", (double)m->tail_ns * 1e-9, measured);
    vt_json_tagged(w, "busy", s > 0 && sms > 0 ? m->busy_s / s / sms : NAN, 4, measured);
    if (told)
        put_columns(w, m, v);
    else
        vt_json_null(w, "columns");
    *room_left -= told ? m->n : 0;
    vt_json_close(w);
}

static const step_record *step_of(const story_record *r, const vt_cta_step *s)
{
    const step_record *step = story_find_step(r, s->step);
    return step && step->chosen ? step : NULL;
}

static void put_step(vt_json *w, const story_source *from, const vt_cta_step *s,
                     const step_record *step, const cta_map *map, int32_t n_maps,
                     int32_t *room_left, double *v)
{
    int32_t libraries = 0, ctas = 0;
    for (int32_t i = 0; i < s->n_launches; i++) {
        libraries += s->launch[i].library;
        ctas += s->launch[i].n;
    }
    vt_json_open(w, NULL, '{');
    vt_json_int(w, "step", (int64_t)s->step);
    vt_json_string(w, "phase", s->prompt ? "prefill" : "decode");
    vt_json_int(w, "launches", s->n_launches);
    vt_json_int(w, "of_libraries", libraries);
    vt_json_int(w, "left_out", s->left_out);
    vt_json_int(w, "ctas", ctas);
    vt_json_open(w, "maps", '[');
    for (int32_t i = 0; i < n_maps; i++)
        put_map(w, from, &map[i], step->device.begin_ns, room_left, v);
    vt_json_close(w);
    vt_json_close(w);
}

/* Returns the most CTAs of a step. */
static int32_t most_ctas(const vt_cta_facts *f)
{
    int32_t most = 0;
    for (int32_t k = 0; k < f->n; k++) {
        int32_t n = 0;
        for (int32_t i = 0; i < f->step[k].n_launches; i++)
            n += f->step[k].launch[i].n;
        most = n > most ? n : most;
    }
    return most;
}

static vt_status make_room(story_record *r, const vt_cta_facts *f, cta_room *out, vt_err *err)
{
    size_t n = (size_t)most_ctas(f) + 1;
    out->cta = vt_arena_alloc(&r->arena, n, sizeof *out->cta);
    out->end = vt_arena_alloc(&r->arena, n, sizeof *out->end);
    out->wave = vt_arena_alloc(&r->arena, n, sizeof *out->wave);
    return out->cta && out->end && out->wave
               ? VT_OK
               : vt_fail(err, VT_ERR_MEMORY, "out of memory for a story's CTAs");
}

vt_status story_put_ctas(vt_json *w, const story_input *in, story_record *r, story_step *plan,
                         vt_err *err)
{
    const story_source *from = story_find_source(in, VT_SOURCE_STREAM);
    const vt_cta_facts *f = from ? from->is.ctas : NULL;
    int32_t left = STORY_CTAS;
    cta_room room;
    if (!f) {
        vt_json_null(w, "ctas");
        return VT_OK;
    }
    TRY(make_room(r, f, &room, err));
    double *v = vt_arena_alloc(&r->arena, MAP_CTAS, sizeof *v);
    vt_json_open(w, "ctas", '{');
    vt_json_string(w, "why", from->is.no_ctas);
    vt_json_int(w, "sms", from->is.device.sm_count);
    vt_json_open(w, "steps", '[');
    for (int32_t k = 0; k < f->n && v; k++) {
        const vt_cta_step *s = &f->step[k];
        const step_record *step = step_of(r, s);
        cta_map map[MAX_MAPS],
            *all = vt_arena_alloc(&r->arena, 2 * (size_t)s->n_launches + 1, sizeof *all);
        if (!step || !all || !story_bind_step(r, step, plan))
            continue;
        int32_t n = choose(s, plan, &room, all, map);
        put_step(w, from, s, step, map, n, &left, v);
    }
    vt_json_close(w);
    vt_json_close(w);
    return v ? VT_OK : vt_fail(err, VT_ERR_MEMORY, "out of memory for a story's CTAs");
}

/* ---- the lane ---- */

/* Adds to each bin for how many seconds SMs had a CTA in it. */
static void add_busy(double bin[BINS], double begin, double width, double from, double to)
{
    int32_t first = (int32_t)((from - begin) / width), last = (int32_t)((to - begin) / width);
    for (int32_t i = first < 0 ? 0 : first; i <= last && i < BINS; i++)
        bin[i] += fmax(0, fmin(to, begin + (i + 1) * width) - fmax(from, begin + i * width));
}

/* The bins of a step's time: what share of the SMs had a CTA in each. */
static void fill_bins(const vt_cta_step *s, const step_record *step, int32_t sms,
                      const cta_room *room, double bin[BINS])
{
    double begin = (double)step->device.begin_ns,
           width = (double)(step->device.end_ns - step->device.begin_ns) / BINS;
    int32_t n = 0;
    memset(bin, 0, BINS * sizeof *bin);
    for (int32_t i = 0; i < s->n_launches; i++)
        n += known_ctas(&s->launch[i], room->cta + n);
    qsort(room->cta, (size_t)n, sizeof *room->cta, by_sm);
    int64_t until = INT64_MIN;
    for (int32_t i = 0; i < n && width > 0; i++) {
        const vt_cta *c = &room->cta[i];
        if (i == 0 || c->sm != c[-1].sm)
            until = INT64_MIN;
        int64_t from = c->begin_ns > until ? c->begin_ns : until;
        if (c->end_ns > from)
            add_busy(bin, begin, width, (double)from, (double)c->end_ns);
        until = c->end_ns > until ? c->end_ns : until;
    }
    for (int32_t i = 0; i < BINS; i++)
        bin[i] = width > 0 && sms > 0 ? bin[i] / width / sms : NAN;
}

vt_status story_put_cta_lane(vt_json *w, const story_input *in, story_record *r, vt_err *err)
{
    const story_source *from = story_find_source(in, VT_SOURCE_STREAM);
    const vt_cta_facts *f = from ? from->is.ctas : NULL;
    double at[2 * (BINS + 1)], value[2 * (BINS + 1)];
    int32_t n = 0;
    cta_room room;
    if (!f || f->n == 0)
        return VT_OK;
    TRY(make_room(r, f, &room, err));
    for (int32_t k = 0; k < f->n; k++) {
        const step_record *s = step_of(r, &f->step[k]);
        if (!s)
            continue;
        double begin = (double)(s->device.begin_ns - story_origin(r)) * 1e-6,
               ms = span_s(s->device) * 1e3;
        fill_bins(&f->step[k], s, from->is.device.sm_count, &room, value + n);
        for (int32_t i = 0; i <= BINS; i++)
            at[n + i] = begin + ms * i / BINS;
        n += BINS + 1;
        value[n - 1] = NAN; /* behind the step nothing is known */
    }
    if (n == 0)
        return VT_OK;
    vt_json_open(w, NULL, '{');
    vt_json_string(w, "name", "SM busy");
    vt_json_string(w, "what",
                   "SMs with a CTA of this program's kernels, in the steps whose "
                   "CTAs were stamped");
    story_put_column(w, "begin_ms", at, n, 5);
    story_put_column(w, "values", value, n, 4);
    vt_json_string(w, "tag", measured);
    vt_json_close(w);
    return VT_OK;
}
