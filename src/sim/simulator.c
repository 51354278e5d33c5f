/* The simulator (sim/simulator.h).
 *
 *   script (from the seed): requests with arrival times, aborts     expectation: vt_fake_reference
 *        │ submit and abort at times of the fake clock                  ▲ compare, token by token
 *        ▼                                                              │
 *   vt_engine_step ── scheduler, radix tree ── fake device ── events ───┘
 *
 * The clock moves only when the fake device works or when nothing is left to do, so a run of
 * thousands of requests takes milliseconds, and its result never depends on the machine. */
#include "sim/simulator.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/random.h"
#include "engine/engine.h"
#include "sim/fake_device.h"

enum {
    VOCAB = 64,
    EOS_A = 7,
    EOS_B = 23,
    FAMILIES = 6, /* prompts begin with one of these shared prefixes */
    PREFIX_MAX = 96,
    TAIL_MAX = 40,
    OUTPUT_MAX = 60,
    PROMPT_MAX = PREFIX_MAX + TAIL_MAX,
    SAMPLES_MAX = 4
};

typedef struct completion {
    int32_t expected[OUTPUT_MAX + 1]; /* the tokens that it gets alone, with the one that ends it */
    float logprob[OUTPUT_MAX + 1];
    int32_t n_expected;
    vt_finish expected_finish; /* how it ends if nothing disturbs it */
    int32_t n_got;
    vt_finish finish;
} completion;

typedef struct script {
    struct sim *sim;
    vt_request_params p;
    int32_t prompt[PROMPT_MAX], stop_id;
    int64_t arrive_ns, abort_ns; /* abort_ns INT64_MAX: it is never aborted */
    vt_request_id id;            /* 0: not submitted, or refused */
    bool submitted, aborted, timed, ruled;
    float score[PROMPT_MAX]; /* the expected log-probabilities of its prompt tokens */
    int32_t n_scored;
    uint64_t arrive_step, wait_bound; /* fcfs: by then it must have a token or have ended */
    completion done[SAMPLES_MAX];
} script;

typedef struct sim {
    uint64_t seed, rng, steps;
    vt_fake_clock clock;
    vt_engine_config config;
    vt_fake_config device;
    vt_executor *executor;
    vt_engine *engine;
    int32_t family[FAMILIES][PREFIX_MAX];
    script *script;
    int32_t n, next; /* scripts in order of arrival; the next to submit */
    int32_t n_open;  /* submitted and not ended */
    uint64_t n_ruled_out;
    int32_t eos[2];
    bool faulty;
    int32_t right_percent; /* of the drafter's guesses; 0: there is no drafter */
    char failure[400];
} sim;

static int32_t between(sim *s, int32_t lo, int32_t hi) /* both inclusive */
{
    return lo + (int32_t)(vt_random_next(&s->rng) % (uint64_t)(hi - lo + 1));
}

static bool chance(sim *s, int32_t percent) { return between(s, 0, 99) < percent; }

static void fail(sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void fail(sim *s, const char *fmt, ...)
{
    if (s->failure[0])
        return;
    va_list args;
    va_start(args, fmt);
    vsnprintf(s->failure, sizeof s->failure, fmt, args);
    va_end(args);
}

/* ---- a constraint ---- */

/* Rules whose masks follow from all tokens taken so far: a token too many, too few or wrongly
 * undone shows in every later mask. */
typedef struct rules {
    uint64_t at[OUTPUT_MAX + VT_DRAFT_MOST + 1]; /* [n + 1] hashes of the tokens before */
    int32_t n, n_hurried;
    bool hurried, late;
} rules;

/* Some calls in a hurry are broken off. */
static bool breaks_off(rules *u)
{
    u->late = u->hurried && (u->at[u->n] + (uint64_t)++u->n_hurried * 7) % 32 == 0;
    return u->late;
}

static vt_allowance allowed(const rules *u, uint32_t *words, int32_t n_words)
{
    uint64_t h = u->at[u->n];
    if (u->n > 0 && h % 64 == 0)
        return VT_ALLOW_NOTHING;
    if (h % 4 == 0)
        return VT_ALLOW_ANY;
    if (h % 4 == 1) { /* one token, which is certain */
        words[h / 128 % (VOCAB / 32)] |= 1u << h / 4 % 32;
        return VT_ALLOW_MASK;
    }
    for (int32_t i = 0; i < n_words; i++)
        words[i] = (uint32_t)vt_random_next(&h);
    words[0] |= 1;
    return VT_ALLOW_MASK;
}

static vt_allowance rules_mask(void *state, uint32_t *words, int32_t n_words)
{
    return breaks_off(state) ? VT_ALLOW_NOTHING : allowed(state, words, n_words);
}

static bool rules_take(void *state, int32_t token)
{
    rules *u = state;
    uint32_t words[VOCAB / 32] = {0};
    if (breaks_off(u))
        return false;
    vt_allowance allow = allowed(u, words, VOCAB / 32);
    if (allow == VT_ALLOW_MASK && !(words[token / 32] >> token % 32 & 1))
        return false;
    uint64_t h = u->at[u->n] ^ (uint64_t)(token + 1);
    u->at[++u->n] = vt_random_next(&h);
    return true;
}

static void rules_undo(void *state, int32_t n) { ((rules *)state)->n -= n; }
static void rules_hurry(void *state, bool on) { ((rules *)state)->hurried = on; }
static bool rules_is_late(void *state) { return ((const rules *)state)->late; }

static bool rules_make(void *user, int32_t sample, vt_constraint *out)
{
    rules *u = vt_calloc(1, sizeof *u);
    if (!u)
        return false;
    u->at[0] = *(const uint64_t *)user + (uint64_t)sample;
    *out = (vt_constraint){.state = u,
                           .mask = rules_mask,
                           .take = rules_take,
                           .undo = rules_undo,
                           .free = free,
                           .hurry = rules_hurry,
                           .is_late = rules_is_late};
    return true;
}

/* ---- what should happen ---- */

static bool ends(const sim *s, const script *r, int32_t token)
{
    bool stop = r->p.n_stop_ids > 0 && token == r->stop_id;
    return stop || (!r->p.ignore_eos && (token == s->eos[0] || token == s->eos[1]));
}

/* Computes what a request should get. Seeds and lengths are taken from the engine's own checked
 * copy of the request. */
static void expect(sim *s, script *r)
{
    vt_req *made;
    vt_err err;
    uint64_t scratch[2 * (PROMPT_MAX + OUTPUT_MAX)];
    vt_req_limits limits = s->config.request;
    limits.page_size = s->config.sched.limits.page_size;
    limits.n_pages = s->config.sched.n_pages;
    limits.max_queued = s->config.sched.max_queued;
    if (vt_req_new(&r->p, r->id, 0, &limits, &made, &err) != VT_OK) {
        fail(s, "a request that was taken is refused: %s", err.message);
        return;
    }
    const vt_constraint_maker maker = {.user = &r->p.seed, .make = rules_make};
    if (r->ruled && vt_req_constrain(made, &maker, VOCAB, &err) != VT_OK)
        fail(s, "a constraint that was taken is refused: %s", err.message);
    for (int32_t i = 0; i < r->p.n; i++) {
        completion *c = &r->done[i];
        const vt_seq *q = &made->seq[i];
        if (q->constrained)
            rules_hurry(q->constrained->rules.state, false);
        int32_t most = q->max_len - q->n_prompt;
        int32_t n = vt_fake_reference_constrained(
            r->prompt, r->p.n_prompt, &q->row, VOCAB, most, c->expected, c->logprob, r->score,
            scratch, s->device.n_states > 0, s->device.n_groups, q->constrained);
        c->expected_finish = VT_FINISH_LENGTH;
        while (c->n_expected < n && c->expected_finish == VT_FINISH_LENGTH)
            if (ends(s, r, c->expected[c->n_expected++]))
                c->expected_finish = VT_FINISH_STOP;
        if (n < most && c->expected_finish == VT_FINISH_LENGTH)
            c->expected_finish = VT_FINISH_ERROR; /* its constraint allows nothing there */
    }
    vt_req_free(made);
}

/* ---- what happens ---- */

static void on_scores(sim *s, script *r, const vt_event *e)
{
    for (int32_t i = 0; i < e->n_tokens; i++) {
        int32_t p = ++r->n_scored;
        if (p >= r->p.n_prompt || e->tokens[i] != r->prompt[p] || e->logprobs[i].id != r->prompt[p])
            fail(s, "request %llu: score %d is of another token", (unsigned long long)e->request,
                 p);
        else if (memcmp(&e->logprobs[i].logprob, &r->score[p], sizeof(float)) != 0)
            fail(s, "request %llu: score %d differs", (unsigned long long)e->request, p);
    }
}

static void on_tokens(sim *s, script *r, completion *c, const vt_event *e)
{
    unsigned long long id = (unsigned long long)e->request;
    for (int32_t i = 0; i < e->n_tokens; i++, c->n_got++) {
        if (c->n_got >= c->n_expected)
            fail(s, "request %llu: a token after the end", id);
        else if (e->tokens[i] != c->expected[c->n_got])
            fail(s, "request %llu sample %d: token %d is %d, alone it is %d", id, e->sample,
                 c->n_got, e->tokens[i], c->expected[c->n_got]);
        else if (r->p.logprobs >= 0 &&
                 memcmp(&e->logprobs[i].logprob, &c->logprob[c->n_got], sizeof(float)) != 0)
            fail(s, "request %llu sample %d: log-probability %d differs", id, e->sample, c->n_got);
        if (s->failure[0])
            return;
    }
    if (e->completion_tokens != c->n_got)
        fail(s, "request %llu: %d completion tokens said, %d given", id, e->completion_tokens,
             c->n_got);
}

static void on_end(sim *s, script *r, completion *c, const vt_event *e)
{
    unsigned long long id = (unsigned long long)e->request;
    bool ruled_out = e->finish == VT_FINISH_ERROR && c->expected_finish == VT_FINISH_ERROR &&
                     !r->timed && !s->faulty;
    bool whole = e->finish == VT_FINISH_STOP || e->finish == VT_FINISH_LENGTH || ruled_out;
    if (c->finish != VT_FINISH_NONE)
        fail(s, "request %llu sample %d ended twice", id, e->sample);
    else if (whole && (e->finish != c->expected_finish || c->n_got != c->n_expected))
        fail(s, "request %llu sample %d ended with reason %d after %d tokens, expected %d after %d",
             id, e->sample, e->finish, c->n_got, c->expected_finish, c->n_expected);
    else if (whole && e->sample == 0 && r->p.prompt_logprobs && r->n_scored != r->p.n_prompt - 1)
        fail(s, "request %llu: %d scores of %d", id, r->n_scored, r->p.n_prompt - 1);
    else if (e->finish == VT_FINISH_ABORT && !r->aborted)
        fail(s, "request %llu ended with abort, and no one aborted it", id);
    else if (e->finish == VT_FINISH_ERROR && !r->timed && !s->faulty && !ruled_out)
        fail(s, "request %llu failed: %s", id, e->error);
    s->n_ruled_out += ruled_out;
    c->finish = e->finish;
    s->n_open--;
}

static void on_event(void *user, const vt_event *e)
{
    script *r = user;
    sim *s = r->sim;
    if (e->request != r->id || e->sample < 0 || e->sample >= r->p.n) {
        fail(s, "an event of request %llu came to request %llu", (unsigned long long)e->request,
             (unsigned long long)r->id);
        return;
    }
    completion *c = &r->done[e->sample];
    if (c->finish != VT_FINISH_NONE)
        fail(s, "request %llu sample %d: an event after the end", (unsigned long long)e->request,
             e->sample);
    bool scores = e->finish == VT_FINISH_NONE && e->completion_tokens == 0;
    if (scores)
        on_scores(s, r, e);
    else
        on_tokens(s, r, c, e);
    if (e->finish != VT_FINISH_NONE)
        on_end(s, r, c, e);
}

/* A drafter that knows the right tokens and guesses wrong as often as the seed says. */
static int32_t draft(void *user, vt_seq *q, int32_t *out, int32_t max)
{
    const sim *s = user;
    const script *r = q->req->p.user;
    const completion *c = &r->done[q->index];
    int32_t at = q->n_tokens + q->n_pending - q->n_prompt, n = 0;
    uint64_t state = s->seed ^ (q->req->id << 20) ^ ((uint64_t)q->index << 12) ^ (uint64_t)at;
    int32_t most = (int32_t)(vt_random_next(&state) % (VT_DRAFT_MOST + 1));
    for (; n < max && n < most && at + n < c->n_expected; n++) {
        bool right = (int32_t)(vt_random_next(&state) % 100) < s->right_percent;
        out[n] = right ? c->expected[at + n] : (int32_t)(vt_random_next(&state) % VOCAB);
    }
    return n;
}

/* ---- the script ---- */

static void write_prompt(sim *s, script *r)
{
    int32_t family = between(s, 0, FAMILIES - 1), shared = between(s, 0, PREFIX_MAX);
    memcpy(r->prompt, s->family[family], (size_t)shared * sizeof *r->prompt);
    r->p.prompt = r->prompt;
    r->p.n_prompt = shared + between(s, shared > 0 ? 0 : 1, TAIL_MAX);
    for (int32_t i = shared; i < r->p.n_prompt; i++)
        r->prompt[i] = between(s, 0, VOCAB - 1);
}

static void write_request(sim *s, script *r, int64_t arrive_ns)
{
    static const char *const salts[] = {NULL, NULL, NULL, "tenant a", "tenant b"};
    vt_request_init(&r->p);
    r->sim = s;
    write_prompt(s, r);
    r->p.prompt_logprobs = chance(s, 10);
    r->p.max_tokens = between(s, r->p.prompt_logprobs ? 0 : 1, OUTPUT_MAX);
    r->p.n = chance(s, 15) ? between(s, 2, SAMPLES_MAX) : 1;
    r->p.temperature = chance(s, 50) ? 1 : 0;
    r->p.has_seed = chance(s, 50);
    r->p.seed = vt_random_next(&s->rng);
    r->p.presence_penalty = chance(s, 20) ? 0.5f : 0;
    r->p.ignore_eos = chance(s, 30);
    r->stop_id = between(s, 0, VOCAB - 1);
    r->p.stop_ids = &r->stop_id;
    r->p.n_stop_ids = chance(s, 30);
    r->p.logprobs = chance(s, 30) ? between(s, 0, 3) : -1;
    r->p.priority = between(s, -2, 2);
    r->p.cache_salt = salts[between(s, 0, 4)];
    r->ruled = chance(s, 20);
    r->timed = chance(s, 5);
    r->p.timeout_s = r->timed ? between(s, 1, 20000) * 1e-6 : 0;
    r->p.callback = on_event;
    r->p.user = r;
    r->arrive_ns = arrive_ns;
    r->abort_ns = chance(s, 10) ? arrive_ns + between(s, 0, 20000) * INT64_C(1000) : INT64_MAX;
}

static void write_script(sim *s)
{
    for (int32_t f = 0; f < FAMILIES; f++)
        for (int32_t i = 0; i < PREFIX_MAX; i++) /* family f shares 16 f tokens with 0 */
            s->family[f][i] = f > 0 && i < 16 * f ? s->family[0][i] : between(s, 0, VOCAB - 1);
    int64_t at = 0, gap_us = between(s, 1, 3000);
    for (int32_t i = 0; i < s->n; i++) {
        at += chance(s, 30) ? 0 : between(s, 0, (int32_t)gap_us) * INT64_C(1000);
        write_request(s, &s->script[i], at);
    }
}

/* A quarter of the seeds run a model with sequence state, from no slot to spare to three for each
 * sequence. Half of these draft, with slots for one guess to all of them. */
static void vary_states(sim *s)
{
    vt_sched_config *c = &s->config.sched;
    int32_t seqs = c->limits.max_seqs;
    c->state_interval = (int32_t)(s->seed / 8 % 5) * 2 * c->limits.page_size;
    if (s->seed / 2 % 4 != 0)
        return;
    c->n_states = seqs + (int32_t)(s->seed / 8 % (uint64_t)(2 * seqs + 1));
    c->n_guess_states = s->right_percent > 0 ? between(s, 1, VT_DRAFT_MOST * seqs) : 0;
    c->n_states += c->n_guess_states;
}

static vt_status make_engine(sim *s, vt_err *err)
{
    static const int32_t page_sizes[] = {1, 2, 4, 8, 16};
    vt_limits lim = {.page_size = page_sizes[between(s, 0, 4)],
                     .max_context = PROMPT_MAX + OUTPUT_MAX};
    lim.max_seqs = between(s, 1, 12);
    lim.max_tokens = lim.max_seqs + between(s, 0, 80);
    lim.max_rows = lim.max_seqs + between(s, 0, 40);
    int32_t longest = (PROMPT_MAX + OUTPUT_MAX) / lim.page_size + 1;
    s->faulty = chance(s, 25);
    s->eos[0] = EOS_A;
    s->eos[1] = EOS_B;
    s->config = (vt_engine_config){
        .sched = {.limits = lim,
                  .n_pages = between(s, longest / 2, longest * 5),
                  .max_queued = between(s, SAMPLES_MAX, 200),
                  .policy = (vt_policy)between(s, 0, 2),
                  .prefix_cache = chance(s, 85),
                  .eos = s->eos,
                  .n_eos = 2},
        .request = {.vocab = VOCAB, .max_context = lim.max_context, .seed = s->seed},
        .overlap = chance(s, 70),
        .now = vt_fake_now,
        .alone = true,
        .clock = &s->clock};
    s->right_percent = s->seed % 2 ? (int32_t)(s->seed % 101) : 0; /* half of the seeds draft */
    if (s->seed % 3 == 0)
        s->config.sched.target_gap_ns = 90000 + (int64_t)(s->seed % 7) * 10000;
    if (s->right_percent > 0)
        s->config.sched.drafter = (vt_drafter){.user = s, .draft = draft};
    vary_states(s);
    s->config.sched.forced = (s->config.sched.n_states == 0 ||
                              s->config.sched.n_guess_states > 0) &&
                             s->seed % 3 != 1;
    s->device = (vt_fake_config){.limits = lim,
                                 .n_states = s->config.sched.n_states,
                                 .n_groups = s->seed % 5 < 2 ? 2 : 1,
                                 .n_pages = s->config.sched.n_pages,
                                 .n_pool_slots = lim.max_seqs,
                                 .vocab = VOCAB,
                                 .seed = s->seed,
                                 .fault_ppm = s->faulty ? between(s, 500, 20000) : 0,
                                 .clock = &s->clock};
    if (s->device.n_groups > 1 && s->seed % 5 == 0) { /* from as few window pages as can be */
        int32_t least = vt_sched_windows_least(VT_FAKE_WINDOW, lim.page_size);
        s->config.sched.window = VT_FAKE_WINDOW;
        s->config.sched.n_windows = s->device.n_windows = between(s, least,
                                                                  least * (1 + lim.max_seqs));
    }
    TRY(vt_fake_device_new(&s->device, &s->executor, err));
    return vt_engine_create(&s->config, s->executor, &s->engine, err);
}

/* ---- running it ---- */

/* An upper bound for the steps that all open requests can take, since each step advances the oldest
 * one. */
static uint64_t work_ahead(const sim *s)
{
    uint64_t work = 0;
    for (int32_t i = 0; i < s->next; i++)
        for (int32_t k = 0; s->script[i].id != 0 && k < s->script[i].p.n; k++)
            if (s->script[i].done[k].finish == VT_FINISH_NONE)
                work += (uint64_t)(s->script[i].p.n_prompt + s->script[i].p.max_tokens);
    return work;
}

static void submit(sim *s, script *r)
{
    vt_err err;
    const vt_constraint_maker maker = {.user = &r->p.seed, .make = rules_make};
    vt_status status = vt_engine_submit_constrained(s->engine, &r->p, r->ruled ? &maker : NULL,
                                                    &r->id, &err);
    s->next++;
    int64_t pool = (int64_t)s->config.sched.n_pages * s->config.sched.limits.page_size;
    bool too_long = r->p.n_prompt > pool;
    if (status == VT_OK) {
        s->n_open += r->p.n;
        expect(s, r);
        r->arrive_step = s->steps;
        r->wait_bound = s->steps + 100 + 4 * work_ahead(s);
    } else if (status != VT_ERR_BUSY && !(status == VT_ERR_CONTEXT && too_long)) {
        fail(s, "a request was refused: %s", err.message);
    }
}

static void check_waits(sim *s)
{
    if (s->config.sched.policy != VT_POLICY_FCFS || s->faulty)
        return;
    for (int32_t i = 0; i < s->next; i++) {
        const script *r = &s->script[i];
        const completion *c = &r->done[0];
        bool waits = r->id != 0 && c->finish == VT_FINISH_NONE && c->n_got == 0 && r->n_scored == 0;
        if (waits && s->steps > r->wait_bound)
            fail(s, "request %llu has waited since step %llu", (unsigned long long)r->id,
                 (unsigned long long)r->arrive_step);
    }
}

static void one_step(sim *s)
{
    for (int32_t i = 0; i < s->next; i++) {
        script *r = &s->script[i];
        if (r->id != 0 && !r->aborted && r->abort_ns <= s->clock.now_ns) {
            r->aborted = true;
            vt_engine_abort(s->engine, r->id);
        }
    }
    bool idle = false;
    vt_err err;
    vt_status status = vt_engine_step(s->engine, &idle, &err);
    s->steps++;
    if (vt_fake_violation(s->executor)[0])
        fail(s, "the batch broke its contract: %s", vt_fake_violation(s->executor));
    else if (status != VT_OK && !(s->faulty && status == VT_ERR_DEVICE))
        fail(s, "the step failed: %s", err.message);
    else if (vt_sched_check(vt_engine_scheduler(s->engine), &err) != VT_OK)
        fail(s, "%s", err.message);
    if (s->steps % 64 == 0)
        check_waits(s);
    if (idle && s->n_open > 0)
        fail(s, "the engine is idle and %d completions are open", s->n_open);
    if (idle && s->next < s->n && s->clock.now_ns < s->script[s->next].arrive_ns)
        s->clock.now_ns = s->script[s->next].arrive_ns;
}

static void check_end(sim *s)
{
    const vt_sched *sched = vt_engine_scheduler(s->engine);
    const vt_pool *pool = &sched->radix.pool;
    if (pool->n_held != 0 || pool->n_free + pool->n_cached != pool->n_pages)
        fail(s, "in the end %d pages are held", pool->n_held);
    if (sched->radix.states.n_held != 0)
        fail(s, "in the end %d state slots are held", sched->radix.states.n_held);
    if (sched->radix.windows.n_held != 0)
        fail(s, "in the end %d window pages are held", sched->radix.windows.n_held);
    if (sched->n_running > 0 || sched->n_queue > 0 ||
        sched->n_free_slots != sched->config.limits.max_seqs)
        fail(s, "in the end something runs or waits");
    for (int32_t i = 0; i < sched->radix.n_tenants; i++)
        if (sched->radix.tenant[i].live && sched->radix.tenant[i].users != 0)
            fail(s, "in the end tenant %d has users", i);
}

static void add_report(const sim *s, vt_sim_report *report)
{
    vt_engine_stats st;
    vt_engine_copy_stats(s->engine, &st);
    report->steps += s->steps;
    report->requests += st.requests;
    for (int i = 0; i <= VT_FINISH_ERROR; i++) {
        report->finished[i] += st.finished[i];
        report->completions += st.finished[i];
    }
    report->tokens += st.output_tokens;
    report->retracted += st.sched.retracted;
    report->faults += st.sched.faults;
    report->draft_tokens += st.sched.draft_tokens;
    report->ruled_out += s->n_ruled_out;
    report->draft_accepted += st.sched.draft_accepted;
    if (s->config.sched.n_states > 0)
        report->state_accepted += st.sched.draft_accepted;
    report->forced_tokens += st.sched.forced_tokens;
    report->late_masks += st.sched.late_masks;
    report->hit_tokens += st.cache.hit_tokens;
    report->copied_tokens += st.cache.copied_tokens;
    if (s->config.sched.n_states > 0) {
        report->state_hit_tokens += st.cache.hit_tokens;
        report->state_retracted += st.sched.retracted;
    }
    if (s->config.sched.n_windows > 0) {
        report->window_hit_tokens += st.cache.hit_tokens;
        report->window_retracted += st.sched.retracted;
    }
    report->evicted_windows += st.cache.evicted_windows;
    report->kept_states += st.cache.kept_states;
    report->evicted_states += st.cache.evicted_states;
    report->evicted_pages += st.cache.evicted_pages[VT_EVICT_ADMIT] +
                             st.cache.evicted_pages[VT_EVICT_GROW];
    for (int32_t i = 0; i < s->n; i++)
        report->aborts += s->script[i].aborted;
    report->simulated_ns += s->clock.now_ns;
}

static vt_status run(sim *s, vt_sim_report *report, vt_err *err)
{
    TRY(make_engine(s, err));
    write_script(s);
    while (!s->failure[0] && (s->next < s->n || s->n_open > 0)) {
        while (s->next < s->n && s->script[s->next].arrive_ns <= s->clock.now_ns)
            submit(s, &s->script[s->next]);
        one_step(s);
        if (s->steps > 200000)
            fail(s, "no end after %llu steps", (unsigned long long)s->steps);
    }
    bool idle = false;
    while (!s->failure[0] && !idle) /* finish the steps that are still in flight */
        if (vt_engine_step(s->engine, &idle, NULL) != VT_OK && !s->faulty)
            fail(s, "the step failed after the last end");
    if (!s->failure[0])
        check_end(s);
    add_report(s, report);
    if (!s->failure[0])
        return VT_OK;
    return vt_fail(err, VT_ERR_FORMAT, "seed %llu, step %llu: %s", (unsigned long long)s->seed,
                   (unsigned long long)s->steps, s->failure);
}

vt_status vt_sim_run(uint64_t seed, int32_t n_requests, vt_sim_report *report, vt_err *err)
{
    sim s = {.seed = seed, .rng = seed * 0x2545f4914f6cdd1du + 1, .n = n_requests};
    s.script = vt_calloc((size_t)n_requests, sizeof *s.script);
    if (!s.script)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a simulation of %d requests",
                       n_requests);
    vt_status status = run(&s, report, err);
    vt_engine_free(s.engine);
    free(s.script);
    return status;
}
