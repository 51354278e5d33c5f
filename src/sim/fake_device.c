/* The fake device (sim/fake_device.h).
 *
 *   kv[slot of p] = mix(kv[slot of p-1], token, kv[slot of some position before p])
 *
 * Reading one earlier position, chosen by a hash, stands for attention. Reading all of them would
 * make a step as slow as a real one, and over thousands of tokens a wrong page is soon read anyway.
 * With sequence state the hash of p is mixed with the state, which is one number for a sequence.
 * Sequences run in batch order. So a sequence that shares a page written in the same step finds it
 * written, as on a real device, where a layer stores all KV before any row attends. */
#include "sim/fake_device.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/random.h"

enum { IN_FLIGHT = 2 };

typedef struct fake_flight {
    const vt_step *step;
    int64_t begin_ns, end_ns;
    bool ran;  /* the forward pass */
    bool held; /* its rows wait for their masks */
} fake_flight;

typedef struct fake_device {
    vt_executor base;
    vt_fake_config config;
    uint64_t rng;
    uint64_t *kv[2]; /* [n_groups][n_pages * page_size]; of window pages in the second, if any */
    uint64_t *written_by; /* [n_pages * page_size] the step that wrote the slot last */
    uint64_t *page_by;    /* [n_pages] the step that wrote any slot of the page last */
    uint64_t *hash;       /* [max_tokens] the hashes of the step being run */
    uint64_t *state;      /* [n_states] */
    uint64_t *state_by;   /* [n_states] the step that wrote the slot last */
    int32_t *state_seq;   /* [n_states] and which of its sequences did */
    int32_t *token_pool;
    fake_flight flight[IN_FLIGHT];
    int32_t n_flight;
    int64_t busy_until_ns;
    bool lost;
    uint64_t n_waited, n_faults;        /* steps that ended, and launches and waits that failed */
    int32_t *token[IN_FLIGHT], *top_id; /* results: a step's may be read while the next one runs */
    float *logprob[IN_FLIGHT], *top_logprob;
    char violation[160];
} fake_device;

int64_t vt_fake_now(void *clock) { return ((vt_fake_clock *)clock)->now_ns; }

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t state = a ^ (b * UINT64_C(0x9e3779b97f4a7c15));
    return vt_random_next(&state);
}

/* ---- the fake model: shared by the device and the reference ---- */

static uint64_t position_hash(uint64_t before, int32_t token, int32_t position, uint64_t attended)
{
    return mix(mix(before, (uint64_t)(uint32_t)token), mix((uint64_t)position, attended));
}

/* The hash of a position in the second KV group, from that in the first. */
static uint64_t second_hash(uint64_t first, uint64_t before, int32_t position, uint64_t attended)
{
    return mix(first, position_hash(before, 1, position, attended));
}

/* The state behind a token, from the state before it. */
static uint64_t next_state(uint64_t before, int32_t token)
{
    return mix(before + 1, (uint64_t)(uint32_t)token);
}

static int32_t attended_position(uint64_t before, int32_t position)
{
    return (int32_t)(before % (uint64_t)position);
}

static int32_t windowed_position(uint64_t before, int32_t position)
{
    int32_t n = position < VT_FAKE_WINDOW ? position : VT_FAKE_WINDOW - 1;
    return position - 1 - (int32_t)(before % (uint64_t)n);
}

/* Counts the ids that a mask allows; the n-th of them, from 0, is in *nth. */
static int32_t count_allowed(const uint32_t *mask, int32_t vocab, int32_t n, int32_t *nth)
{
    int32_t count = 0;
    for (int32_t id = 0; id < vocab; id++)
        if (mask[id / 32] >> id % 32 & 1 && count++ == n)
            *nth = id;
    return count;
}

static int32_t choose(uint64_t hash, const vt_sample_row *row, int32_t position, int32_t last,
                      int32_t vocab)
{
    uint64_t h = mix(hash, (uint64_t)position);
    if (row->temperature > 0)
        h = mix(h, row->seed);
    if (row->context)
        h = mix(h, (uint64_t)last);
    if (row->mask) {
        int32_t id = -1, n = count_allowed(row->mask, vocab, -1, &id);
        if (n > 0)
            count_allowed(row->mask, vocab, (int32_t)(h % (uint64_t)n), &id);
        return id;
    }
    return (int32_t)(h % (uint64_t)vocab);
}

static float logprob_of(uint64_t hash, int32_t token)
{
    return -(float)(mix(hash, (uint64_t)token) >> 40) / (float)(1 << 20);
}

int32_t vt_fake_reference_constrained(const int32_t *prompt, int32_t n_prompt,
                                      const vt_sample_row *row, int32_t vocab, int32_t n,
                                      int32_t *out, float *logprob, float *score, uint64_t *scratch,
                                      bool stateful, int32_t n_groups, vt_constrained *rules)
{
    uint64_t state = 0, *second = scratch + n_prompt + n;
    vt_sample_row mine = *row;
    for (int32_t p = 0; p < n_prompt + n - 1; p++) {
        int32_t token = p < n_prompt ? prompt[p] : out[p - n_prompt];
        uint64_t before = p > 0 ? scratch[p - 1] : 0;
        uint64_t attended = p > 0 ? scratch[attended_position(before, p)] : 0;
        scratch[p] = position_hash(before, token, p, attended);
        uint64_t hash = scratch[p];
        if (n_groups > 1) {
            before = p > 0 ? second[p - 1] : 0;
            attended = p > 0 ? second[windowed_position(before, p)] : 0;
            hash = second[p] = second_hash(hash, before, p, attended);
        }
        state = next_state(state, token);
        hash = stateful ? mix(hash, state) : hash;
        if (p < n_prompt - 1) {
            score[p + 1] = logprob_of(hash, prompt[p + 1]);
        } else {
            int32_t at = p - n_prompt + 1;
            bool first = p == n_prompt - 1;
            if (rules && !first && !rules->rules.take(rules->rules.state, token))
                return at;
            if (rules && !vt_constrained_next(rules, 0))
                return at;
            mine.mask = rules ? vt_constrained_mask(rules, 0) : row->mask;
            out[at] = choose(hash, &mine, p + 1, token, vocab);
            logprob[at] = logprob_of(hash, out[at]);
        }
    }
    return n;
}

void vt_fake_reference(const int32_t *prompt, int32_t n_prompt, const vt_sample_row *row,
                       int32_t vocab, int32_t n, int32_t *out, float *logprob, float *score,
                       uint64_t *scratch, bool stateful)
{
    vt_fake_reference_constrained(prompt, n_prompt, row, vocab, n, out, logprob, score, scratch,
                                  stateful, 1, NULL);
}

/* ---- checking a batch ---- */

static void violate(fake_device *x, const char *what, int32_t where)
{
    if (!x->violation[0])
        snprintf(x->violation, sizeof x->violation, "%s (at %d)", what, where);
}

static void check_window_slot(fake_device *x, const vt_batch *b, int32_t s, int32_t t)
{
    int32_t pos = b->position[t], size = b->page_size,
            page = b->window_page_ids[b->page_start[s] + pos / size];
    if (page < 0 || page >= x->config.n_windows || b->window_slot[t] != page * size + pos % size)
        violate(x, "a token's slot is not in its window page", t);
}

static void check_seq(fake_device *x, const vt_batch *b, int32_t s)
{
    int32_t begin = b->q_start[s], end = b->q_start[s + 1], size = b->page_size;
    bool drafted = s >= b->n_decode && s < b->n_decode + b->n_drafted;
    if (end <= begin || (s < b->n_decode && end != begin + 1))
        violate(x, "a sequence brings no token, or a decode several", s);
    if (drafted && (end < begin + 2 || end > begin + VT_DECODE_MOST))
        violate(x, "a decode with drafts brings one token, or more than VT_DECODE_MOST", s);
    if ((b->page_start[s + 1] - b->page_start[s]) * size < b->kv_len[s])
        violate(x, "a sequence has fewer pages than positions", s);
    for (int32_t t = begin; t < end; t++) {
        int32_t pos = b->position[t], page = b->page_ids[b->page_start[s] + pos / size];
        if (pos != b->kv_len[s] - (end - t) || b->seq_of[t] != s)
            violate(x, "a token has the wrong position or sequence", t);
        if (page < 0 || page >= x->config.n_pages || b->slot[t] != page * size + pos % size)
            violate(x, "a token's slot is not in its page", t);
        if (x->config.n_windows > 0)
            check_window_slot(x, b, s, t);
    }
}

/* Notes that a sequence writes a state slot, which no other token of the step may do. */
static void note_state(fake_device *x, const vt_step *step, int32_t s, int32_t slot)
{
    if (slot >= x->config.n_states || x->state_by[slot] == step->id) {
        violate(x, "a state slot is not there, or is written twice", s);
        return;
    }
    x->state_by[slot] = step->id;
    x->state_seq[slot] = s;
}

/* Checks that the states behind all tokens of a sequence with guesses are kept, and none of
 * others. */
static void check_behind(fake_device *x, const vt_batch *b, int32_t s)
{
    bool drafted = s >= b->n_decode && s < b->n_decode + b->n_drafted;
    for (int32_t t = b->q_start[s]; t < b->q_start[s + 1]; t++) {
        bool kept = b->state_behind && b->state_behind[t] >= 0;
        if (kept != (drafted && t + 1 < b->q_start[s + 1]))
            violate(x, "the state behind a token is kept, or is not", t);
    }
}

/* Checks that every sequence has state slots, that it begins with zeros where it begins, and that
 * no slot which a sequence writes is read or written by another one. */
static void check_states(fake_device *x, const vt_step *step)
{
    const vt_batch *b = &step->batch;
    int32_t n = x->config.n_states;
    if ((n > 0) != (b->state_from && b->state_to)) {
        violate(x, "state slots and the model do not fit", n);
        return;
    }
    for (int32_t s = 0; n > 0 && s < b->n_seqs; s++) {
        int32_t from = b->state_from[s], to = b->state_to[s];
        if (from >= n || to < 0 || to >= n || (from < 0) != (b->position[b->q_start[s]] == 0)) {
            violate(x, "a sequence's state slots are wrong", s);
            return;
        }
        note_state(x, step, s, to);
        for (int32_t t = b->q_start[s]; b->state_behind && t < b->q_start[s + 1]; t++)
            if (b->state_behind[t] >= 0)
                note_state(x, step, s, b->state_behind[t]);
        check_behind(x, b, s);
    }
    for (int32_t s = 0; n > 0 && s < b->n_seqs; s++) {
        int32_t from = b->state_from[s];
        if (from >= 0 && x->state_by[from] == step->id && x->state_seq[from] != s)
            violate(x, "a sequence reads a state slot that another one writes", s);
    }
}

static void check_batch(fake_device *x, const vt_step *step)
{
    const vt_batch *b = &step->batch;
    const vt_limits *lim = &x->config.limits;
    if ((x->config.n_windows > 0) != (b->window_slot && b->window_page_ids && b->window_copies)) {
        violate(x, "window pages and the model do not fit", x->config.n_windows);
        return;
    }
    if (b->n_tokens < 1 || b->n_tokens > lim->max_tokens || b->n_seqs > lim->max_seqs ||
        b->n_rows > lim->max_rows || b->q_start[b->n_seqs] != b->n_tokens ||
        b->page_start[b->n_seqs] != b->n_pages)
        violate(x, "a batch is empty, beyond its limits, or does not add up", b->n_tokens);
    for (int32_t s = 0; s < b->n_seqs; s++)
        check_seq(x, b, s);
    check_states(x, step);
    for (int32_t r = 0; r < b->n_rows; r++)
        if (b->row_token[r] < 0 || b->row_token[r] >= b->n_tokens ||
            (r > 0 && b->row_token[r] <= b->row_token[r - 1]))
            violate(x, "rows are not ascending tokens", r);
    for (int32_t i = 0; i < step->batch.n_copies; i++)
        if (step->batch.copies[i].n_tokens < 1 || step->batch.copies[i].n_tokens >= b->page_size ||
            step->batch.copies[i].from == step->batch.copies[i].to)
            violate(x, "a page copy is empty, whole or onto itself", i);
}

/* ---- running a step ---- */

static int32_t resolve(fake_device *x, int32_t id) { return id >= 0 ? id : x->token_pool[-1 - id]; }

/* The second KV group's number of the token t of sequence s, and its logits. */
static void run_second(fake_device *x, const vt_batch *b, int32_t s, int32_t t)
{
    bool apart = x->config.n_windows > 0;
    const int32_t *pages = (apart ? b->window_page_ids : b->page_ids) + b->page_start[s];
    int32_t p = b->position[t], size = b->page_size;
    uint64_t before = 0, attended = 0;
    if (p > 0) {
        before = x->kv[1][(int64_t)pages[(p - 1) / size] * size + (p - 1) % size];
        int32_t a = windowed_position(before, p);
        attended = x->kv[1][(int64_t)pages[a / size] * size + a % size];
    }
    x->hash[t] = second_hash(x->hash[t], before, p, attended);
    x->kv[1][apart ? b->window_slot[t] : b->slot[t]] = x->hash[t];
}

static void run_seq(fake_device *x, const vt_step *step, int32_t s)
{
    const vt_batch *b = &step->batch;
    const int32_t *pages = b->page_ids + b->page_start[s];
    int32_t size = b->page_size, from = x->config.n_states > 0 ? b->state_from[s] : -1;
    uint64_t state = from >= 0 ? x->state[from] : 0;
    for (int32_t t = b->q_start[s]; t < b->q_start[s + 1]; t++) {
        int32_t p = b->position[t], a;
        uint64_t before = 0, attended = 0;
        if (p > 0) {
            before = x->kv[0][(int64_t)pages[(p - 1) / size] * size + (p - 1) % size];
            a = attended_position(before, p);
            attended = x->kv[0][(int64_t)pages[a / size] * size + a % size];
        }
        x->hash[t] = position_hash(before, resolve(x, b->token[t]), p, attended);
        if (x->written_by[b->slot[t]] == step->id)
            violate(x, "a slot is written twice in a step", t);
        x->written_by[b->slot[t]] = x->page_by[b->slot[t] / size] = step->id;
        x->kv[0][b->slot[t]] = x->hash[t];
        if (x->config.n_groups > 1)
            run_second(x, b, s, t);
        if (x->config.n_states > 0) {
            state = next_state(state, resolve(x, b->token[t]));
            x->hash[t] = mix(x->hash[t], state);
            if (b->state_behind && b->state_behind[t] >= 0)
                x->state[b->state_behind[t]] = state;
        }
    }
    if (x->config.n_states > 0)
        x->state[b->state_to[s]] = state;
}

/* Checks that a decode attends to no KV that its own step writes, except that of its own tokens: a
 * device may read a decode's KV before it stores the KV of the step. */
static void check_decode(fake_device *x, const vt_step *step, int32_t s)
{
    const vt_batch *b = &step->batch;
    int32_t size = b->page_size;
    for (int32_t p = 0; p < b->kv_len[s] - (b->q_start[s + 1] - b->q_start[s]); p++) {
        int32_t page = b->page_ids[b->page_start[s] + p / size];
        if (x->page_by[page] != step->id)
            p += size - 1 - p % size;
        else if (x->written_by[(int64_t)page * size + p % size] == step->id)
            violate(x, "a decode attends to KV of its own step", s);
    }
}

static void run_row(fake_device *x, const vt_step *step, int32_t r, int32_t *token, float *logprob)
{
    const vt_sample_row *row = &step->rows[r];
    int32_t t = step->batch.row_token[r];
    uint64_t hash = x->hash[t];
    if (row->target >= 0) {
        token[r] = row->target;
    } else {
        int32_t last = 0;
        if (row->context)
            last = row->pending_slot >= 0 ? x->token_pool[row->pending_slot]
                                          : row->context[row->n_context - 1];
        token[r] = choose(hash, row, row->position, last, x->config.vocab);
    }
    logprob[r] = logprob_of(hash, token[r]);
    if (row->position != step->batch.position[t] + 1)
        violate(x, "a row chooses for another position than the next", r);
}

static void run_forward(fake_device *x, fake_flight *f)
{
    const vt_step *step = f->step;
    f->ran = true;
    if (x->config.hollow)
        return;
    check_batch(x, step);
    if (x->violation[0])
        return;
    int64_t size = step->batch.page_size;
    for (int32_t g = 0; g < 2 && x->kv[g]; g++) {
        bool apart = g == 1 && x->config.n_windows > 0;
        const vt_page_copy *c = apart ? step->batch.window_copies : step->batch.copies;
        for (int32_t i = 0; i < step->batch.n_copies; i++, c++)
            memcpy(x->kv[g] + c->to * size, x->kv[g] + c->from * size,
                   (size_t)c->n_tokens * sizeof *x->kv[g]);
    }
    for (int32_t s = 0; s < step->batch.n_seqs; s++)
        run_seq(x, step, s);
    for (int32_t s = 0; s < step->batch.n_decode + step->batch.n_drafted; s++)
        check_decode(x, step, s);
}

static void run_rows(fake_device *x, const vt_step *step, int32_t *token, float *logprob)
{
    if (x->config.hollow) {
        memset(token, 0, (size_t)step->batch.n_rows * sizeof *token);
        return;
    }
    for (int32_t r = 0; r < step->batch.n_rows && !x->violation[0]; r++)
        run_row(x, step, r, token, logprob);
    for (int32_t r = 0; r < step->batch.n_rows; r++)
        if (step->rows[r].pool_slot >= 0)
            x->token_pool[step->rows[r].pool_slot] = token[r];
}

static bool roll(fake_device *x, int32_t ppm)
{
    x->rng = mix(x->rng, 1);
    return (int32_t)(x->rng % 1000000) < ppm;
}

static bool fails(fake_device *x)
{
    bool now = x->lost || roll(x, x->config.fault_ppm);
    x->n_faults += now;
    x->lost = now && x->config.n_renewals;
    return now;
}

static int64_t cost_of(const fake_device *x, const vt_step *step)
{
    if (x->config.cost_ns)
        return x->config.cost_ns(x->config.user, step);
    return 100000 + 1000 * (int64_t)step->batch.n_tokens;
}

static vt_status fake_launch(vt_executor *base, const vt_step *step, vt_err *err)
{
    fake_device *x = (fake_device *)base;
    if (x->n_flight == IN_FLIGHT) {
        violate(x, "three steps in flight", (int32_t)step->id);
        return vt_fail(err, VT_ERR_DEVICE, "three steps in flight");
    }
    if (fails(x))
        return vt_fail(err, VT_ERR_DEVICE, "the fake device failed to launch step %llu",
                       (unsigned long long)step->id);
    int64_t now = x->config.clock ? x->config.clock->now_ns : 0;
    fake_flight *f = &x->flight[x->n_flight];
    f->step = step;
    f->ran = false;
    f->held = step->held;
    f->begin_ns = now > x->busy_until_ns ? now : x->busy_until_ns;
    f->end_ns = x->busy_until_ns = f->begin_ns + cost_of(x, step);
    x->n_flight++;
    if (x->n_flight == 1 && !x->config.hollow && roll(x, 500000)) /* run now, else at the wait */
        run_forward(x, f);
    return VT_OK;
}

static vt_status fake_sample(vt_executor *base, vt_err *err)
{
    fake_device *x = (fake_device *)base;
    if (x->n_flight != 1 || !x->flight[0].held) {
        violate(x, "sampling of a step that is not held, or not the only one", x->n_flight);
        return vt_fail(err, VT_ERR_USAGE, "no step is held");
    }
    if (fails(x))
        return vt_fail(err, VT_ERR_DEVICE, "the fake device failed to sample");
    x->flight[0].held = false;
    return VT_OK;
}

/* Returns how many tokens have room in a KV group's pages. */
static int64_t kv_slots(const fake_device *x, int32_t group)
{
    bool apart = group == 1 && x->config.n_windows > 0;
    return (int64_t)(apart ? x->config.n_windows : x->config.n_pages) * x->config.limits.page_size;
}

static void scramble(fake_device *x)
{
    for (int32_t g = 0; g < 2 && x->kv[g] && !x->config.hollow; g++)
        for (int64_t i = 0, n = kv_slots(x, g); i < n; i++)
            x->kv[g][i] = mix(x->kv[g][i], 0xbad);
    for (int32_t i = 0; i < x->config.n_states; i++)
        x->state[i] = mix(x->state[i], 0xbad);
}

static bool fake_lost(vt_executor *base) { return ((const fake_device *)base)->lost; }

/* KV and token pool are lost too. */
static vt_status fake_renew(vt_executor *base, vt_err *err)
{
    fake_device *x = (fake_device *)base;
    if (*x->config.n_renewals == 0)
        return vt_fail(err, VT_ERR_DEVICE, "the fake device is gone for good");
    --*x->config.n_renewals;
    x->lost = false;
    scramble(x);
    memset(x->token_pool, 0xff, (size_t)x->config.n_pool_slots * sizeof *x->token_pool);
    return VT_OK;
}

static vt_status fake_wait(vt_executor *base, vt_step_result *out, vt_err *err)
{
    fake_device *x = (fake_device *)base;
    if (x->n_flight == 0)
        return vt_fail(err, VT_ERR_USAGE, "no step is in flight");
    fake_flight f = x->flight[0];
    uint64_t id = f.step->id;
    int32_t *token = x->token[id % IN_FLIGHT];
    float *logprob = x->logprob[id % IN_FLIGHT];
    if (!f.ran)
        run_forward(x, &f);
    if (!f.held) /* else it is dropped */
        run_rows(x, f.step, token, logprob);
    x->flight[0] = x->flight[1];
    x->n_flight--;
    if (x->config.clock && x->config.clock->now_ns < f.end_ns)
        x->config.clock->now_ns = f.end_ns;
    x->n_waited++;
    if (fails(x)) {
        scramble(x);
        return vt_fail(err, VT_ERR_DEVICE, "the fake device lost step %llu",
                       (unsigned long long)id);
    }
    if (x->violation[0])
        return vt_fail(err, VT_ERR_DEVICE, "step %llu: %s", (unsigned long long)id, x->violation);
    *out = (vt_step_result){.id = id,
                            .token = token,
                            .logprob = logprob,
                            .top_id = x->top_id,
                            .top_logprob = x->top_logprob,
                            .begin_ns = f.begin_ns,
                            .end_ns = f.end_ns};
    return VT_OK;
}

static void fake_free(vt_executor *base)
{
    fake_device *x = (fake_device *)base;
    free(x->kv[0]);
    free(x->kv[1]);
    free(x->written_by);
    free(x->page_by);
    free(x->hash);
    free(x->state);
    free(x->state_by);
    free(x->state_seq);
    free(x->token_pool);
    free(x->top_id);
    free(x->top_logprob);
    for (int i = 0; i < IN_FLIGHT; i++) {
        free(x->token[i]);
        free(x->logprob[i]);
    }
    free(x);
}

static const vt_program *fake_program(const vt_executor *base)
{
    (void)base;
    return NULL;
}

/* One stream without rings: the steps' fake times are in the engine's ring already, and there are
 * no calls. */
static int32_t fake_sources(const vt_executor *base, vt_source *out, int32_t max)
{
    if (max > 0)
        *out = (vt_source){.name = "rank 0",
                           .kind = VT_SOURCE_STREAM,
                           .device = {.level = "fake"},
                           .clock_error_ns = 0,
                           .event_ns = NAN,
                           .read_ns = NAN,
                           .owner = base};
    return 1;
}

static int32_t fake_report(const vt_executor *base, vt_report *out, int32_t max)
{
    const fake_device *x = (const fake_device *)base;
    const vt_report all[] = {{"steps", (double)x->n_waited, "", NULL},
                             {"faults", (double)x->n_faults, "", NULL}};
    enum { ALL = sizeof all / sizeof *all };
    for (int32_t i = 0; i < ALL && i < max; i++)
        out[i] = all[i];
    return ALL;
}

const char *vt_fake_violation(const vt_executor *x) { return ((const fake_device *)x)->violation; }

static bool reserve(fake_device *x)
{
    const vt_fake_config *c = &x->config;
    size_t rows = (size_t)c->limits.max_rows, tokens = (size_t)c->limits.max_tokens;
    size_t slots = c->hollow ? 1 : (size_t)c->n_pages * (size_t)c->limits.page_size;
    bool two = c->n_groups > 1;
    x->kv[0] = vt_calloc(slots, sizeof *x->kv[0]);
    x->kv[1] = two ? vt_calloc(c->hollow ? 1 : (size_t)kv_slots(x, 1), sizeof *x->kv[1]) : NULL;
    x->written_by = vt_calloc(slots, sizeof *x->written_by);
    x->page_by = vt_calloc((size_t)c->n_pages, sizeof *x->page_by);
    x->hash = vt_calloc(tokens, sizeof *x->hash);
    size_t states = (size_t)c->n_states + 1;
    x->state = vt_calloc(states, sizeof *x->state);
    x->state_by = vt_calloc(states, sizeof *x->state_by);
    x->state_seq = vt_calloc(states, sizeof *x->state_seq);
    x->token_pool = vt_calloc((size_t)c->n_pool_slots, sizeof *x->token_pool);
    x->top_id = vt_calloc(rows * VT_MAX_TOP_LOGPROBS, sizeof *x->top_id);
    x->top_logprob = vt_calloc(rows * VT_MAX_TOP_LOGPROBS, sizeof *x->top_logprob);
    bool ok = x->kv[0] && (!two || x->kv[1]) && x->written_by && x->page_by && x->hash &&
              x->state && x->state_by && x->state_seq && x->token_pool && x->top_id &&
              x->top_logprob;
    for (int i = 0; i < IN_FLIGHT; i++) {
        x->token[i] = vt_calloc(rows, sizeof *x->token[i]);
        x->logprob[i] = vt_calloc(rows, sizeof *x->logprob[i]);
        ok = ok && x->token[i] && x->logprob[i];
    }
    return ok;
}

vt_status vt_fake_device_new(const vt_fake_config *c, vt_executor **out, vt_err *err)
{
    fake_device *x = vt_calloc(1, sizeof *x);
    if (!x)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a fake device");
    x->config = *c;
    x->rng = mix(c->seed, 0xfa4e);
    x->base = (vt_executor){.name = "fake",
                            .launch = fake_launch,
                            .sample = fake_sample,
                            .wait = fake_wait,
                            .free = fake_free,
                            .lost = fake_lost,
                            .renew = fake_renew,
                            .program = fake_program,
                            .sources = fake_sources,
                            .report = fake_report,
                            .n_pool_slots = c->n_pool_slots};
    if (!reserve(x)) {
        fake_free(&x->base);
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a fake device of %d pages",
                       c->n_pages);
    }
    scramble(x);
    *out = &x->base;
    return VT_OK;
}
