/* Taking a look (live_look.h). What runs while the engine is held touches every page a few times
 * and copies arrays; everything else is done afterwards. */
#include "server/watch/live_look.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"

/* A longer time than this between two looks begins a new sum of held times. */
static const int64_t pause_ns = 10000000000;

/* A ring, and how many of its events earlier looks read. */
typedef struct live_ring {
    const vt_trace_ring *ring;
    uint64_t seen;
} live_ring;

/* A look copies this out of the engine: the newest events of its rings, at most LIVE_EVENTS of
 * each. Steps are those with prompt tokens and their sequences, then the others, then the sequences
 * of these. */
struct live_copy {
    live_ring requests, tokens, prompt_steps, steps, seqs;
    vt_request_event *request, *token; /* [LIVE_EVENTS] */
    vt_step_event *step;               /* [3 * LIVE_EVENTS] */
    uint64_t n_request, n_token, n_step;
    vt_radix_nodes nodes;
    int32_t *tally; /* [LIVE_CELLS] pages of the sequence that is being counted */
    int32_t *most;  /* [LIVE_CELLS] pages of the owner so far */
};

/* ---- making and freeing ---- */

vt_status live_look_new(vt_engine *e, live_look **out, vt_err *err)
{
    vt_source source;
    const vt_sched_config *sc = &vt_engine_scheduler(e)->config;
    live_look *k = vt_calloc(1, sizeof *k);
    struct live_copy *c = vt_calloc(1, sizeof *c);
    if (k) {
        k->copy = c;
        k->times = live_times_new();
    }
    vt_status status = VT_OK;
    if (!k || !c || !k->times || !(c->request = vt_calloc(LIVE_EVENTS, sizeof *c->request)) ||
        !(c->token = vt_calloc(LIVE_EVENTS, sizeof *c->token)) ||
        !(c->step = vt_calloc(3 * LIVE_EVENTS, sizeof *c->step)) ||
        !(c->tally = vt_calloc(LIVE_CELLS, sizeof *c->tally)) ||
        !(c->most = vt_calloc(LIVE_CELLS, sizeof *c->most)))
        status = vt_fail(err, VT_ERR_MEMORY, "out of memory for the live page");
    if (status == VT_OK)
        status = vt_radix_nodes_init(&c->nodes, sc->n_pages, err);
    if (status != VT_OK) {
        if (!k)
            free(c);
        live_look_free(k);
        return status;
    }
    if (vt_engine_sources(e, &source, 1) > 0) {
        c->requests.ring = source.requests;
        c->tokens.ring = source.tokens;
        c->prompt_steps.ring = source.prompt_steps;
        c->steps.ring = source.steps;
        c->seqs.ring = source.seqs;
    }
    k->engine = e;
    k->max_running = sc->limits.max_seqs;
    k->step_tokens = sc->limits.max_tokens;
    *out = k;
    return VT_OK;
}

void live_look_free(live_look *k)
{
    struct live_copy *c = k ? k->copy : NULL;
    if (c) {
        free(c->request);
        free(c->token);
        free(c->step);
        free(c->tally);
        free(c->most);
        vt_radix_nodes_release(&c->nodes);
    }
    free(c);
    if (k)
        free(k->times);
    free(k);
}

/* ---- while the engine is held ---- */

/* Returns how many events of the ring are new and are to be copied. */
static uint64_t count_new(live_ring *r)
{
    uint64_t written = atomic_load_explicit(&r->ring->written, memory_order_acquire),
             n = written - r->seen;
    r->seen = written;
    return n < LIVE_EVENTS ? n : LIVE_EVENTS;
}

static void copy_rings(struct live_copy *c)
{
    uint64_t newest = 0;
    c->n_request = vt_trace_copy(c->requests.ring, c->request, count_new(&c->requests));
    c->n_token = vt_trace_copy_tokens(c->tokens.ring, c->token, count_new(&c->tokens));
    c->n_step = vt_trace_copy(c->prompt_steps.ring, c->step, count_new(&c->prompt_steps));
    c->n_step += vt_trace_copy(c->steps.ring, c->step + c->n_step, count_new(&c->steps));
    for (uint64_t i = 0; i < c->n_step; i++)
        newest = c->step[i].step > newest ? c->step[i].step : newest;
    c->n_step += vt_trace_copy_seqs(c->seqs.ring, newest, c->step + c->n_step, count_new(&c->seqs));
}

static live_running running_of(const vt_seq *q)
{
    return (live_running){.request = q->req->id,
                          .sample = q->index,
                          .n_prompt = q->n_prompt,
                          .n_computed = q->n_computed,
                          .n_output = vt_seq_output(q),
                          .n_pages = q->n_pages,
                          .n_cached = q->cached_tokens,
                          .n_most = q->max_len - q->n_prompt};
}

/* Adds a sequence's pages to the map: its request owns a cell in which no other sequence has more
 * pages. */
static void map_sequence(live_look *k, const vt_seq *q)
{
    struct live_copy *c = k->copy;
    for (int32_t i = 0; i < q->n_pages; i++)
        c->tally[q->page[i] / k->pages_per_cell]++;
    for (int32_t i = 0; i < q->n_pages; i++) {
        int32_t cell = q->page[i] / k->pages_per_cell;
        if (c->tally[cell] > c->most[cell]) {
            c->most[cell] = c->tally[cell];
            k->cell[cell].owner = q->req->id;
        }
        c->tally[cell] = 0;
    }
}

static void copy_pages(live_look *k, const vt_sched *s)
{
    const vt_radix *r = &s->radix;
    const vt_pool *pool = &r->pool;
    struct live_copy *c = k->copy;
    k->pages_per_cell = pool->n_pages > 0 ? (pool->n_pages + LIVE_CELLS - 1) / LIVE_CELLS : 1;
    k->n_cells = (pool->n_pages + k->pages_per_cell - 1) / k->pages_per_cell;
    memset(k->cell, 0, sizeof k->cell);
    memset(c->most, 0, LIVE_CELLS * sizeof *c->most);
    vt_radix_nodes_copy(&c->nodes, r);
    for (int32_t i = 0; i < s->n_running; i++)
        map_sequence(k, s->running[i]);
}

/* Pages that the scheduler asks for before it admits a sequence (scheduler_plan.c, "Admission"). */
static bool lacks_pages(const vt_sched *s, const vt_seq *q)
{
    int32_t pages = q->n_tokens / s->radix.page_size + 1 + s->n_running;
    return pages > vt_radix_available(&s->radix);
}

static live_queued queued_of(const vt_sched *s, int32_t at, int64_t now_ns)
{
    const vt_seq *q = s->queue[at];
    live_queued out = {.request = q->req->id,
                       .wait_ns = now_ns - q->req->arrive_ns,
                       .sample = q->index,
                       .n_tokens = q->n_tokens};
    if (s->n_free_slots == 0)
        out.why = LIVE_BATCH_FULL;
    else if (q->n_retracted > 0)
        out.why = LIVE_RETRACTED;
    else if (at > 0 && lacks_pages(s, s->queue[0]))
        out.why = LIVE_BEHIND;
    else if (lacks_pages(s, q))
        out.why = LIVE_NO_PAGES;
    return out;
}

static void copy_sequences(live_look *k, const vt_sched *s)
{
    k->n_running = s->n_running < LIVE_RUNNING ? s->n_running : LIVE_RUNNING;
    k->n_queued = s->n_queue < LIVE_QUEUED ? s->n_queue : LIVE_QUEUED;
    for (int32_t i = 0; i < k->n_running; i++)
        k->running[i] = running_of(s->running[i]);
    for (int32_t i = 0; i < k->n_queued; i++)
        k->queued[i] = queued_of(s, i, k->at_ns);
}

/* ---- afterwards ---- */

static void count_cells(live_look *k)
{
    const vt_radix_nodes *n = &k->copy->nodes;
    for (int32_t p = 0; p < n->n_pages; p++) {
        live_cell *c = &k->cell[p / k->pages_per_cell];
        c->n_used += n->refs[p] > 0;
        c->n_shared += n->refs[p] > 1;
        c->n_cached += n->refs[p] == 0 && n->in_tree[p];
    }
}

/* By step; a step before its sequences. */
static int step_first(const void *a, const void *b)
{
    const vt_step_event *x = a, *y = b;
    if (x->step != y->step)
        return (x->step > y->step) - (x->step < y->step);
    return (x->kind == VT_STEP_SEQ) - (y->kind == VT_STEP_SEQ);
}

static void read_steps(live_look *k)
{
    const struct live_copy *c = k->copy;
    live_step *now = NULL;
    qsort(c->step, c->n_step, sizeof *c->step, step_first);
    for (uint64_t i = 0; i < c->n_step; i++) {
        const vt_step_event *e = &c->step[i];
        if (e->kind == VT_STEP_RAN) {
            live_times_step(k->times, &e->ran);
            now = &k->step[k->n_steps++ % LIVE_STEPS];
            now->id = e->step;
            now->begin_ns = e->ran.begin_ns;
            now->end_ns = e->ran.end_ns;
            now->n_tokens = e->ran.n_tokens;
            now->n_decode = e->ran.n_decode;
            now->n_seqs = e->ran.n_seqs;
            now->n_listed = 0;
        } else if (e->kind == VT_STEP_PART) {
            k->part[k->n_parts++ % LIVE_PARTS] = (live_part){
                .part = e->part.part, .begin_ns = e->part.begin_ns, .end_ns = e->part.end_ns};
        } else if (e->kind == VT_STEP_SEQ && now && now->id == e->step &&
                   now->n_listed < LIVE_STEP_SEQS) {
            now->request[now->n_listed] = e->seq.request;
            now->q_len[now->n_listed] = e->seq.q_len;
            now->kv_len[now->n_listed++] = e->seq.kv_len;
        }
    }
}

/* Tells the times of tokens: the end of the step that made them. Of a step that is not among the
 * copied ones it is not known, and the look's own time is taken. */
static void read_tokens(live_look *k)
{
    struct live_copy *c = k->copy;
    uint64_t at = 0;
    for (uint64_t i = 0; i < c->n_token; i++) {
        vt_req_token *t = &c->token[i].token;
        while (at < c->n_step && (c->step[at].step < t->step || c->step[at].kind != VT_STEP_RAN))
            at++;
        t->at_ns = at < c->n_step && c->step[at].step == t->step ? c->step[at].ran.end_ns
                                                                 : k->at_ns;
        live_times_request(k->times, &c->token[i]);
    }
}

/* A sequence that nothing keeps may still have to wait for tokens of a step. */
static void find_budget(live_look *k)
{
    const live_step *last = k->n_steps > 0 ? &k->step[(k->n_steps - 1) % LIVE_STEPS] : NULL;
    if (!last || last->n_tokens < k->step_tokens)
        return;
    for (int32_t i = 0; i < k->n_queued; i++)
        if (k->queued[i].why == LIVE_SOON)
            k->queued[i].why = LIVE_BUDGET;
}

vt_status live_look_take(live_look *k, vt_err *err)
{
    struct live_copy *c = k->copy;
    TRY(vt_engine_hold(k->engine, err));
    const vt_sched *s = vt_engine_scheduler(k->engine);
    int64_t now_ns = vt_now_ns();
    if (now_ns - k->at_ns > pause_ns) {
        k->first_ns = now_ns;
        k->held_sum_ns = 0;
    }
    k->at_ns = now_ns;
    copy_rings(c);
    copy_sequences(k, s);
    copy_pages(k, s);
    int64_t released_ns = vt_now_ns();
    vt_engine_release(k->engine);
    k->held_ns = released_ns - k->at_ns;
    k->held_sum_ns += k->held_ns;
    vt_engine_copy_stats(k->engine, &k->stats);
    for (uint64_t i = 0; i < c->n_request; i++)
        live_times_request(k->times, &c->request[i]);
    k->told_steps = k->n_steps;
    k->told_parts = k->n_parts;
    read_steps(k);
    read_tokens(k);
    find_budget(k);
    count_cells(k);
    k->n_runs = vt_radix_runs(&c->nodes, -1, k->run, LIVE_RUNS, &k->all_runs, &k->tree_pages);
    live_times_tell(k->times, k->at_ns, k);
    return VT_OK;
}
