/* Steps whose kernels are stamped (device/cuda/stamps.h).
 *
 * A stamped step runs as it does otherwise: the same pieces as graphs, the same grids, neighbours
 * that overlap. Only its kernels are twins of the others', which write down when they began and
 * when they had waited for the kernel before them. So a step has the times of its calls without
 * being taken apart.
 *
 *   plain     | begin | upload |       graph of the piece        | results | end
 *   stamped   | begin | upload | E |   its stamped twin      | E | results | end    (E: an event)
 *
 * Twins of kernels are compiled at the start, and only where a story was asked for
 * (options.stamps): compiling takes twice as long then, the first time. Twins of graphs are
 * captured when a step that is to be stamped first needs them, before its begin: about 1 ms of the
 * host. At most MAX_STAMPED are kept; another takes the place of the one that was launched longest
 * ago. All write to the same words. Where a stamped step is still in flight when another begins,
 * the stream copies its stamps between the two; else they are copied when it has ended.
 *
 * When a call ran. It ends when the first kernel behind it sees that it may go on; where that one
 * is in another graph, or a library's, the last CTAs of its last kernel stamp their ends. Stamps
 * are on the device's own timer; the end of the step's last call is taken for the moment of the
 * event behind it, and all other times follow from the differences. A call runs from its
 * predecessor's end to its own, so that calls sum to the step. That it began earlier, beside the
 * end of its predecessor, is told apart: its first CTA stamps when it comes to an SM, which with
 * programmatic dependent launch is before it waits for its predecessor.
 *
 * Where options.ctas asks for it, every CTA of two steps is told apart: of the first step with
 * prompt tokens, whose times include what this costs (two stores a CTA), and of a decode step of
 * its own, which a story leaves out of all times. Their launches take rows of a table; a twin graph
 * whose launches have rows is launched once.
 *
 * A library's kernel has no stamps. It is taken to end when the next stamped kernel begins; several
 * in a row share that time in equal parts. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "exec/cuda_inside.h"

enum {
    NOTES_A_CALL = 4,
    MOST_CTAS = 1 << 17, /* of a step: 3 MiB of the device */
    MAPPED_DECODE = 2    /* which of the decode steps that are not stamped is mapped */
};

/* ---- its part of the device ---- */

static vt_status make_step(cuda_executor *x, stamped_step *s, vt_err *err)
{
    void *copy;
    TRY(vt_cuda_pinned(x->cuda, cuda_stamps_bytes(x->prog->n_calls), &copy, err));
    s->copy = copy;
    TRY(vt_cuda_check(x->cuda, x->cuda->driver.event_create(&s->copied, CU_EVENT_DEFAULT),
                      "making an event", err));
    s->stamps = (cuda_stamps){.with_ctas = x->options.ctas,
                              .at = x->stamped.places,
                              .max_notes = x->prog->n_calls * NOTES_A_CALL};
    s->stamps.note = vt_calloc((size_t)s->stamps.max_notes, sizeof *s->stamps.note);
    return s->stamps.note ? VT_OK : vt_fail(err, VT_ERR_MEMORY, "out of memory for stamps");
}

static vt_status make_places(cuda_executor *x, vt_err *err)
{
    stamped_steps *s = &x->stamped;
    TRY(vt_cuda_alloc(x->cuda, cuda_stamps_bytes(x->prog->n_calls), &s->places, err));
    TRY(vt_cuda_check(x->cuda, x->cuda->driver.stream_create(&s->stream, CU_STREAM_NON_BLOCKING, 0),
                      "making a stream", err));
    for (int i = 0; i < MAX_IN_FLIGHT; i++)
        TRY(make_step(x, &s->step[i], err));
    for (int i = 0; i < 2 && x->options.ctas; i++) {
        void *table;
        TRY(vt_cuda_alloc(x->cuda, cuda_stamps_table(MOST_CTAS), &table, err));
        s->mapped[i].table = (cuda_cta_table){.at = table, .most = MOST_CTAS};
    }
    return VT_OK;
}

vt_status cuda_stamped_start(cuda_executor *x, vt_err *err)
{
    vt_err why = {0};
    snprintf(x->stamped.why_not, sizeof x->stamped.why_not,
             "kernels are stamped where --story or --story-dir is given");
    if (!x->options.stamps || x->options.untimed)
        return VT_OK;
    vt_status status = vt_cuda_stamps_check(&x->lane, &why);
    if (status != VT_OK && status != VT_ERR_UNSUPPORTED) {
        if (err)
            *err = why;
        return status;
    }
    snprintf(x->stamped.why_not, sizeof x->stamped.why_not, "%.191s", why.message);
    x->stamped.on = status == VT_OK;
    x->stamped.max_graphs = MAX_STAMPED;
    return x->stamped.on ? make_places(x, err) : VT_OK;
}

static void release_graph(cuda_executor *x, stamped_graph *g, bool live)
{
    if (live)
        cuda_graph_release(x->cuda, &g->is.graph);
    free(g->note);
    *g = (stamped_graph){0};
}

static void free_maps(stamped_steps *s)
{
    for (int i = 0; i < 2; i++) {
        free(s->mapped[i].launch);
        free(s->mapped[i].cta);
    }
}

void cuda_stamped_release(cuda_executor *x, bool live)
{
    stamped_steps *s = &x->stamped;
    for (int32_t i = 0; i < s->n_graphs; i++)
        release_graph(x, &s->graph[i], live);
    for (int i = 0; i < MAX_IN_FLIGHT; i++) {
        if (live && s->step[i].copied)
            x->cuda->driver.event_destroy(s->step[i].copied);
        if (live)
            vt_cuda_pinned_free(x->cuda, s->step[i].copy);
        free(s->step[i].stamps.note);
    }
    if (live && s->stream)
        x->cuda->driver.stream_destroy(s->stream);
    if (live)
        vt_cuda_free(x->cuda, s->places);
    for (int i = 0; i < 2 && live; i++)
        vt_cuda_free(x->cuda, s->mapped[i].table.at);
    free_maps(s);
    *s = (stamped_steps){0};
}

void cuda_stamped_collect(cuda_executor *x)
{
    if (x->stamped.on)
        x->lane.stamps = &x->stamped.step[0].stamps;
}

void cuda_stamped_end(cuda_executor *x) { x->lane.stamps = NULL; }

/* ---- launching ---- */

static vt_status copy_places(cuda_executor *x, stamped_step *s, cu_stream stream, vt_err *err)
{
    s->pending = false;
    return vt_cuda_check(x->cuda,
                         x->cuda->driver.copy_to_host(s->copy, cuda_address(x->stamped.places),
                                                      cuda_stamps_bytes(x->prog->n_calls), stream),
                         "reading stamps", err);
}

/* Has the stream copy what a step before stamped, and clear the places. */
static vt_status empty_places(cuda_executor *x)
{
    const cuda_driver *d = &x->cuda->driver;
    for (int i = 0; i < MAX_IN_FLIGHT; i++) {
        stamped_step *s = &x->stamped.step[i];
        if (s->pending && s->number < x->launched && s->number >= x->waited) {
            TRY(copy_places(x, s, x->lane.stream, NULL));
            TRY(vt_cuda_check(x->cuda, d->event_record(s->copied, x->lane.stream),
                              "recording an event", NULL));
        }
        s->pending = false; /* of a step that failed */
    }
    return vt_cuda_check(x->cuda,
                         d->fill8(cuda_address(x->stamped.places), 0,
                                  cuda_stamps_bytes(x->prog->n_calls), x->lane.stream),
                         "clearing stamps", NULL);
}

bool cuda_stamped_begin(cuda_executor *x)
{
    stamped_step *s = &x->stamped.step[x->launched % MAX_IN_FLIGHT];
    if (!x->stamped.on || empty_places(x) != VT_OK)
        return false;
    s->pending = true;
    s->number = x->launched;
    s->stamps.n_notes = 0;
    s->stamps.ctas = NULL;
    x->stamped.prepare_ns = 0;
    x->lane.stamps = &s->stamps;
    return true;
}

/* The step that is being launched, if its CTAs are told apart; else 0. */
static uint64_t mapped_now(const cuda_executor *x)
{
    return x->lane.stamps->ctas ? x->launched + 1 : 0;
}

static stamped_graph *find(cuda_executor *x, const step_piece *p)
{
    stamped_steps *s = &x->stamped;
    uint64_t mapped = mapped_now(x);
    for (int32_t i = 0; i < s->n_graphs; i++)
        if (s->graph[i].mapped == mapped && memcmp(&s->graph[i].is.piece, p, sizeof *p) == 0)
            return &s->graph[i];
    return NULL;
}

/* A place for a graph, if need be that of the one that was launched longest ago; NULL: a step in
 * flight may run it. */
static stamped_graph *make_place(cuda_executor *x)
{
    stamped_steps *s = &x->stamped;
    if (s->n_graphs < s->max_graphs)
        return &s->graph[s->n_graphs++];
    stamped_graph *oldest = &s->graph[0];
    for (int32_t i = 1; i < s->n_graphs; i++)
        if (s->graph[i].is.used < oldest->is.used)
            oldest = &s->graph[i];
    if (oldest->is.used >= x->waited)
        return NULL;
    x->graph_nodes -= oldest->is.graph.n_nodes;
    release_graph(x, oldest, true);
    return oldest;
}

/* Captures the piece with notes of its own. */
static vt_status capture(cuda_executor *x, const step_piece *p, stamped_graph *g)
{
    cuda_stamps *step = x->lane.stamps;
    cuda_stamps notes = {.at = step->at,
                         .max_notes = step->max_notes,
                         .with_ctas = step->with_ctas,
                         .ctas = step->ctas};
    notes.note = vt_calloc((size_t)notes.max_notes, sizeof *notes.note);
    *g = (stamped_graph){
        .is = {.piece = *p, .used = x->launched}, .note = notes.note, .mapped = mapped_now(x)};
    if (!g->note)
        return VT_ERR_MEMORY;
    int32_t n = x->lane.n_launches;
    x->lane.stamps = &notes;
    vt_status status = cuda_graph_capture_piece(x, p, &g->is.graph, NULL);
    x->lane.stamps = step;
    x->lane.n_launches = n;
    g->n_notes = notes.n_notes;
    return status;
}

void cuda_stamped_prepare(cuda_executor *x, const step_shape *s)
{
    step_piece piece[MAX_PIECES];
    int64_t begin = vt_now_ns();
    bool full = x->stamped.n_graphs == x->stamped.max_graphs; /* else graphs that are made stay */
    int32_t n = cuda_graph_cut(x, s, piece);
    for (int32_t i = 0; i < n && x->launched >= x->capture_from; i++) {
        if (!cuda_graph_may_be(s, &piece[i]) || find(x, &piece[i]))
            continue;
        stamped_graph *g = make_place(x);
        if (!g)
            continue;
        if (capture(x, &piece[i], g) == VT_OK) {
            x->graph_nodes += g->is.graph.n_nodes;
            continue;
        }
        release_graph(x, g, true);
        *g = x->stamped.graph[--x->stamped.n_graphs];
        x->stamped.graph[x->stamped.n_graphs] = (stamped_graph){0};
        x->capture_from = x->launched + (uint64_t)x->retry_steps;
    }
    x->stamped.prepare_ns = full ? vt_now_ns() - begin : 0;
}

vt_status cuda_stamped_run(cuda_executor *x, const step_shape *s, const step_piece *p,
                           int32_t *graphs, vt_err *err)
{
    stamped_graph *g = cuda_graph_may_be(s, p) ? find(x, p) : NULL;
    cuda_stamps *step = x->lane.stamps;
    if (!g)
        return cuda_run_calls(x, p->begin, p->end, err);
    int32_t room = step->max_notes - step->n_notes, n = g->n_notes < room ? g->n_notes : room;
    memcpy(step->note + step->n_notes, g->note, (size_t)n * sizeof *g->note);
    step->n_notes += n;
    g->is.used = x->launched;
    (*graphs)++;
    return cuda_graph_launch(&x->lane, &g->is.graph, err);
}

/* ---- reading ---- */

const cuda_stamps *cuda_stamped_oldest(const cuda_executor *x)
{
    return &x->stamped.step[x->waited % MAX_IN_FLIGHT].stamps;
}

/* Waits until the step's stamps are in its copy. */
static vt_status fetch(cuda_executor *x, stamped_step *s, vt_err *err)
{
    const cuda_driver *d = &x->cuda->driver;
    if (!s->pending)
        return vt_cuda_check(x->cuda, d->event_sync(s->copied), "reading stamps", err);
    TRY(copy_places(x, s, x->stamped.stream, err));
    return vt_cuda_check(x->cuda, d->stream_sync(x->stamped.stream), "reading stamps", err);
}

/* A call as its stamps tell it; end 0: its last kernel has none. */
typedef struct raw_call {
    int32_t call;
    uint64_t begin, end; /* begin UINT64_MAX: no kernel of it has stamps */
    uint64_t waited;     /* 0: none was noted */
} raw_call;

/* Joins the launches of each call. A launch without a stamp of its end ended when the next one had
 * waited for it. Returns how many calls there are. */
static int32_t join(const stamped_step *s, raw_call *out, int32_t most)
{
    int32_t n = 0, n_notes = s->stamps.n_notes;
    const cuda_stamp_note *note = s->stamps.note;
    cuda_stamp at, next = n_notes > 0 ? cuda_stamps_read(s->copy, &note[0]) : (cuda_stamp){0};
    for (int32_t i = 0; i < n_notes; i++) {
        at = next;
        next = i + 1 < n_notes ? cuda_stamps_read(s->copy, &note[i + 1]) : (cuda_stamp){0};
        if (n == 0 || out[n - 1].call != note[i].call) {
            if (n == most)
                break;
            out[n++] = (raw_call){.call = note[i].call, .begin = UINT64_MAX};
        }
        raw_call *c = &out[n - 1];
        if (at.begin && at.begin < c->begin)
            c->begin = at.begin;
        c->waited += at.waited;
        c->end = !at.begin ? 0 : at.end ? at.end : next.before;
    }
    return n;
}

/* Puts the calls on the host's clock, by one moment that both know, which the step keeps. */
static void place(stamped_step *s, const raw_call *raw, int32_t n, int64_t uploaded_ns,
                  int64_t ran_ns, stamped_call *out)
{
    int32_t first = 0;
    while (first < n && raw[first].begin == UINT64_MAX)
        first++;
    bool last = n > 0 && raw[n - 1].end > 0; /* else the last kernel is a library's */
    uint64_t timer = last ? raw[n - 1].end : first < n ? raw[first].begin : 0;
    int64_t host = last ? ran_ns : uploaded_ns;
    s->host_ns = host;
    s->timer_ns = (int64_t)timer;
    for (int32_t i = 0; i < n; i++)
        out[i] = (stamped_call){
            .call = raw[i].call,
            .begin_ns = raw[i].begin == UINT64_MAX ? INT64_MAX
                                                   : host + (int64_t)(raw[i].begin - timer),
            .wait_ns = raw[i].waited ? (int64_t)raw[i].waited : -1,
            .end_ns = raw[i].end ? host + (int64_t)(raw[i].end - timer) : INT64_MAX};
}

/* Gives calls that end in a library's kernel the time up to the next stamped one, in equal
 * parts. */
static void settle(stamped_call *c, int32_t n, int64_t uploaded_ns, int64_t ran_ns)
{
    for (int32_t i = 0; i < n; i++) {
        int32_t next = i;
        while (next < n && c[next].end_ns == INT64_MAX)
            next++;
        int64_t from = i > 0 && c[i - 1].end_ns > uploaded_ns ? c[i - 1].end_ns : uploaded_ns;
        int64_t to = next < n ? c[next].begin_ns : ran_ns;
        if (next > i)
            c[i].end_ns = to > from ? from + (to - from) / (next - i) : from;
    }
}

vt_status cuda_stamped_read(cuda_executor *x, int64_t uploaded_ns, int64_t ran_ns,
                            stamped_call *out, int32_t most, int32_t *n, vt_err *err)
{
    stamped_step *s = &x->stamped.step[x->waited % MAX_IN_FLIGHT];
    TRY(fetch(x, s, err));
    raw_call *raw = vt_calloc((size_t)most, sizeof *raw);
    if (!raw)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the stamps of %d calls", most);
    *n = join(s, raw, most);
    place(s, raw, *n, uploaded_ns, ran_ns, out);
    settle(out, *n, uploaded_ns, ran_ns);
    free(raw);
    return VT_OK;
}

/* ---- all CTAs of a step ---- */

bool cuda_ctas_want(cuda_executor *x, const vt_step *step, bool timed)
{
    stamped_steps *s = &x->stamped;
    const vt_batch *b = &step->batch;
    bool prompt = b->n_tokens > b->n_decode;
    if (!s->on || !s->mapped[!prompt].table.at || s->mapped[!prompt].number || b->n_tokens == 0)
        return false;
    return prompt ? timed : !timed && ++s->n_decodes == MAPPED_DECODE;
}

void cuda_ctas_begin(cuda_executor *x, bool prompt)
{
    mapped_step *m = &x->stamped.mapped[!prompt];
    m->number = x->launched + 1;
    x->lane.stamps->ctas = &m->table;
}

/* Copies the rows that are taken to the host. */
static vt_status fetch_rows(cuda_executor *x, const cuda_cta_table *t, uint64_t *out, vt_err *err)
{
    const cuda_driver *d = &x->cuda->driver;
    if (t->n == 0)
        return VT_OK;
    TRY(vt_cuda_check(
        x->cuda,
        d->copy_to_host(out, cuda_address(t->at), cuda_stamps_table(t->n), x->stamped.stream),
        "reading stamps of CTAs", err));
    return vt_cuda_check(x->cuda, d->stream_sync(x->stamped.stream), "reading stamps of CTAs", err);
}

/* Puts the CTAs on the host's clock, and finds those of each launch. */
static void sort_rows(const stamped_step *s, mapped_step *m, const uint64_t *row)
{
    for (int32_t i = 0; i < m->table.n; i++, row += STAMP_CTA_WORDS) {
        int64_t begin = (int64_t)row[STAMP_CTA_BEGAN], end = (int64_t)row[STAMP_CTA_ENDED];
        bool known = row[STAMP_CTA_SM] > 0 && begin > 0 && end >= begin;
        if (known)
            m->cta[i] = (vt_cta){.begin_ns = s->host_ns + (begin - s->timer_ns),
                                 .end_ns = s->host_ns + (end - s->timer_ns),
                                 .sm = (int32_t)(row[STAMP_CTA_SM] - 1)};
    }
    for (int32_t i = 0; i < s->stamps.n_notes; i++) {
        const cuda_stamp_note *n = &s->stamps.note[i];
        m->launch[i] = (vt_cta_launch){.call = n->call,
                                       .kernel = n->kernel,
                                       .library = n->library,
                                       .n = n->n_ctas,
                                       .cta = m->cta + n->cta};
    }
}

vt_status cuda_ctas_read(cuda_executor *x, uint64_t step, bool prompt, vt_err *err)
{
    stamped_steps *all = &x->stamped;
    mapped_step *m = &all->mapped[!prompt];
    stamped_step *s = &all->step[x->waited % MAX_IN_FLIGHT];
    if (m->number != x->waited + 1 || m->launch)
        return VT_OK;
    size_t n = (size_t)m->table.n + 1;
    uint64_t *row = vt_calloc(n * STAMP_CTA_WORDS, sizeof *row);
    m->launch = vt_calloc((size_t)s->stamps.n_notes + 1, sizeof *m->launch);
    m->cta = vt_calloc(n, sizeof *m->cta);
    vt_status status = row && m->launch && m->cta
                           ? fetch_rows(x, &m->table, row, err)
                           : vt_fail(err, VT_ERR_MEMORY, "out of memory for %zu CTAs", n);
    if (status == VT_OK) {
        sort_rows(s, m, row);
        all->ctas.step[all->ctas.n++] = (vt_cta_step){.step = step,
                                                      .prompt = prompt,
                                                      .n_launches = s->stamps.n_notes,
                                                      .launch = m->launch,
                                                      .left_out = m->table.n_left_out};
    }
    free(row);
    return status;
}

void cuda_ctas_tell(const cuda_executor *x, vt_source *out)
{
    const stamped_steps *s = &x->stamped;
    if (!x->options.ctas)
        return;
    out->ctas = &s->ctas;
    out->no_ctas = !s->on       ? s->why_not
                   : !s->ctas.n ? "no step was left whose CTAs could be stamped"
                                : NULL;
}
