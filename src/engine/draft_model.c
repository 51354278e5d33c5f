/* Drafts by a smaller model (engine/draft_model.h).
 *
 * Tried and rejected: ending a draft where the draft model holds its own guess for less likely than
 * 0.3, 0.5 or 0.7. With SmolLM2 in F32 and its Q4_1 file as the draft the guesses that this left
 * out mostly held: 52 to 68 tokens/s in place of 78 to 94 (docs/performance.md). */
#include "engine/draft_model.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/request.h"
#include "kv/pool.h"
#include "kv/radix.h"
#include "model/model.h"

enum { SHARERS = 64 /* tenants, by their first token, whose pages a head keeps */ };

/* The KV of one slot of the engine. It stays when the slot's sequence ends, because the next one of
 * the same tenant may begin with the same tokens, as the next turn of a chat does. */
typedef struct draft_slot {
    int32_t *page; /* [n_pages] */
    int32_t n_pages;
    /* Of a head: its first token here (0: it has none), and the one behind the last whose
     * hidden state is there; the pages that the tree has, and for whom (VT_NO_TENANT: none) */
    int32_t first, n_shown, n_in_tree, sharer;
    int32_t n_known;  /* tokens whose KV is in the pages: draft_model.token has which */
    int32_t state_at; /* tokens behind which the first of its states is, */
    int32_t n_states; /* and how many there are: each of the others is one token further */
    int32_t tenant;   /* whose they are, */
    uint64_t request; /* and of which sequence: one without a tenant shares with no other */
    int32_t index;
    uint64_t used;     /* the prepare that last used it, */
    uint64_t touched;  /* and when that or a learn was */
    int32_t n_wanted;  /* guesses that this prepare is to make; 0: none */
    int32_t n_guesses; /* made so far, in the sequence's tokens */
    const vt_seq *seq; /* whom they are for, */
    int32_t at;        /* and how many tokens it had */
} draft_slot;

typedef struct draft_model {
    vt_draft_model_config config;
    vt_model *model;
    vt_executor *executor;
    vt_radix tree;       /* of a head's pages; those of a model are never entered */
    int32_t *page_known; /* [n_pages] of a head: tokens at the page's front whose KV is there */
    int32_t *token;      /* [n_pages * page_size] the token whose KV a place of a page holds */
    /* [n_pages * (page_size + 1)][state_bytes] of a head; else NULL. The last of a page is that of
     * the token behind it, for the next page may have been another sequence's */
    char *state;
    draft_slot *slot; /* [max_seqs] */
    uint64_t n_prepares, n_touched;
    uint64_t step_id;
    bool failed;
    vt_arena arena; /* holds every array here but the pool's */
    /* The step being made; arrays as in vt_batch. */
    vt_step step;
    int32_t *in, *position, *seq_of, *kv_slot, *q_start, *kv_len, *page_start, *page_ids,
        *row_token, *state_from, *state_to;
    char *before; /* [max_tokens][state_bytes] */
    vt_sample_row *row;
    draft_slot **row_slot; /* [n_rows] whose guess a row makes */
    int32_t tokens_left;
} draft_model;

static int32_t page_size(const draft_model *d) { return d->config.limits.page_size; }

static bool is_head(const draft_model *d) { return d->config.state_bytes > 0; }

/* The place of a slot's token i. */
static int32_t place_of(const draft_model *d, const draft_slot *k, int32_t i)
{
    i -= k->first;
    return k->page[i / page_size(d)] * page_size(d) + i % page_size(d);
}

/* The place of the hidden state beside a slot's token i. */
static int32_t state_of(const draft_model *d, const draft_slot *k, int32_t i)
{
    i -= k->first;
    return k->page[i / page_size(d)] * (page_size(d) + 1) + i % page_size(d);
}

/* Copies a hidden state, of a head. */
static void copy_state(const draft_model *d, char *to, int32_t i, const char *from, int32_t k)
{
    size_t n = d->config.state_bytes;
    if (is_head(d))
        memcpy(to + (size_t)i * n, from + (size_t)k * n, n);
}

/* Gives up all pages from the n-th on, and what they held. */
static void cut(draft_model *d, draft_slot *k, int32_t n)
{
    if (k->n_pages > n)
        vt_radix_drop(&d->tree, k->page + n, k->n_pages - n);
    k->n_pages = k->n_pages < n ? k->n_pages : n;
    k->n_in_tree = k->n_in_tree < n ? k->n_in_tree : n;
    int32_t held = n > 0 ? k->first + n * page_size(d) : 0;
    if (k->n_known > held)
        k->n_known = held;
    if (k->n_shown > held)
        k->n_shown = held;
}

/* Returns true if q may use what the slot holds: how fast it is would tell a stranger what another
 * one had asked. */
static bool may_share(const draft_slot *k, const vt_seq *q)
{
    bool same = k->request == q->req->id && k->index == q->index;
    return same || (q->req->tenant != VT_NO_TENANT && k->tenant == q->req->tenant);
}

/* Returns true if a slot of the engine has state slots, or needs none. */
static bool has_states(const draft_model *d, int32_t slot)
{
    return d->config.n_states == 0 || slot < d->config.n_states / VT_DRAFT_MOST;
}

/* Returns how many of n tokens that the slot holds it can go on behind: all of them if it has their
 * state, else none. */
static int32_t with_state(const draft_model *d, const draft_slot *k, int32_t n)
{
    bool there = n >= k->state_at && n < k->state_at + k->n_states;
    return d->config.n_states == 0 || there ? n : 0;
}

static void take_over(draft_slot *k, const vt_seq *q)
{
    k->tenant = q->req->tenant;
    k->request = q->req->id;
    k->index = q->index;
}

/* Of a head: makes the slot q's, empty if it was another one's. A page depends on the tokens before
 * it, so sequences that begin with another token share none. */
static void take_over_states(draft_model *d, draft_slot *k, const vt_seq *q)
{
    char salt[VT_SALT_MAX];
    const vt_req *r = q->req;
    size_t n = (size_t)r->salt_len;
    if (k->request == r->id && k->index == q->index)
        return;
    cut(d, k, 0);
    vt_radix_leave(&d->tree, k->sharer);
    k->sharer = VT_NO_TENANT;
    if (r->tenant != VT_NO_TENANT && n + sizeof *q->token <= sizeof salt) {
        if (n > 0)
            memcpy(salt, r->p.cache_salt, n);
        memcpy(salt + n, q->token, sizeof *q->token);
        k->sharer = vt_radix_join(&d->tree, salt, (int32_t)(n + sizeof *q->token), r->adapter);
    }
    k->first = k->n_shown = k->n_known = k->at = 0;
    take_over(k, q);
}

/* Of a head: enters the slot's whole pages into the tree, up to token `last`: these are known, and
 * so is the hidden state behind them. */
static void enter_pages(draft_model *d, draft_slot *k, const vt_seq *q, int32_t last)
{
    int32_t size = page_size(d);
    if (k->first != 1 || k->sharer == VT_NO_TENANT)
        return;
    for (; (k->n_in_tree + 1) * size <= last && k->n_in_tree < k->n_pages; k->n_in_tree++) {
        int32_t i = k->n_in_tree, *page = &k->page[i],
                there = vt_radix_insert(&d->tree, k->sharer, i > 0 ? page[-1] : -1,
                                        q->token + 1 + (int64_t)i * size, size, *page, 0);
        if (there == *page)
            continue;
        vt_radix_hold(&d->tree, &there, 1);
        vt_radix_drop(&d->tree, page, 1);
        *page = there;
        int32_t known = 1 + i * size + d->page_known[there];
        if (d->page_known[there] < size && k->n_known > known)
            k->n_known = known;
    }
}

/* Keeps what the slot holds of q's tokens but the last, which is computed again for its logits. */
static void keep_common(draft_model *d, draft_slot *k, const vt_seq *q)
{
    int32_t most = q->n_tokens - 1 < k->n_known ? q->n_tokens - 1 : k->n_known, n = 0;
    if (may_share(k, q))
        while (n < most && d->token[place_of(d, k, n)] == q->token[n])
            n++;
    k->n_known = with_state(d, k, n);
    take_over(k, q);
}

/* The pages that the executor has memory for by now. It comes before any page is taken: at first
 * the pool counts pages that have none yet. */
static void count_pages(draft_model *d)
{
    vt_pool *pool = &d->tree.pool;
    vt_kv_count taken = {.pages = pool->n_pages - pool->n_free};
    if (d->executor->pages)
        vt_pool_resize(pool, d->executor->pages(d->executor, taken).pages);
}

/* The slot that was not used in this prepare, holds pages, and was used the longest time ago. Not
 * `own`. */
static draft_slot *idle_slot(const draft_model *d, const draft_slot *own)
{
    draft_slot *best = NULL;
    for (int32_t i = 0; i < d->config.limits.max_seqs; i++) {
        draft_slot *k = &d->slot[i];
        if (k != own && k->used < d->n_prepares && k->n_pages > 0 &&
            (!best || k->touched < best->touched))
            best = k;
    }
    return best;
}

/* Gives a slot pages for the tokens up to the n-th, taking them from idle slots when none are
 * free. */
static bool take_pages(draft_model *d, draft_slot *k, int32_t n)
{
    int32_t want = (n - k->first + page_size(d) - 1) / page_size(d);
    while (k->n_pages < want) {
        if (vt_radix_take(&d->tree, 1, &k->page[k->n_pages], VT_EVICT_GROW) == VT_OK) {
            d->page_known[k->page[k->n_pages++]] = 0;
            continue;
        }
        draft_slot *idle = idle_slot(d, k);
        if (!idle)
            return false;
        cut(d, idle, 0);
    }
    return true;
}

/* Copies the hidden states of the first n tokens behind the slot's pages into a page of its own:
 * from page `from`, or (-1) the one state behind the slot's last page. */
static bool copy_page(draft_model *d, draft_slot *k, const vt_seq *q, int32_t from, int32_t n)
{
    int32_t size = page_size(d), whole = k->n_pages,
            source = from >= 0 ? from * (size + 1)
                               : k->page[whole > 0 ? whole - 1 : 0] * (size + 1) + size;
    if (from < 0 && (whole == 0 || n > 1))
        return false;
    if (from >= 0)
        vt_radix_hold(&d->tree, &from, 1);
    bool taken = take_pages(d, k, k->first + whole * size + n);
    for (int32_t i = 0; i < n && taken; i++) {
        copy_state(d, d->state, k->page[whole] * (size + 1) + i, d->state, source + i);
        d->token[k->page[whole] * size + i] = q->token[k->first + whole * size + i];
    }
    if (from >= 0)
        vt_radix_drop(&d->tree, &from, 1);
    return taken;
}

/* Of a head: gives an empty slot what the tree has of q's tokens up to `n`, whose hidden states q's
 * steps do not show, since the engine's prefix cache had them. False: it does not have all. */
static bool adopt(draft_model *d, draft_slot *k, const vt_seq *q, int32_t n)
{
    int32_t size = page_size(d);
    if (n == 0 || k->sharer == VT_NO_TENANT)
        return false;
    vt_radix_match m = vt_radix_find(&d->tree, k->sharer, q->token + 1, n, UINT64_MAX, k->page);
    int32_t whole = m.n_pages * size, part = m.copy_from >= 0 ? m.copy_tokens : 0;
    if (whole + part + 1 < n)
        return false;
    vt_radix_hold(&d->tree, k->page, m.n_pages);
    k->n_pages = k->n_in_tree = m.n_pages;
    k->first = 1;
    if (n > whole && !copy_page(d, k, q, part > 0 ? m.copy_from : -1, n - whole)) {
        cut(d, k, 0);
        return false;
    }
    k->n_known = 1;
    for (int32_t i = 0; i < m.n_pages && k->n_known == 1 + i * size; i++)
        k->n_known += d->page_known[k->page[i]];
    k->at = k->n_known;
    k->n_shown = n + 1;
    return true;
}

/* ---- a step of the draft model ---- */

static void begin_step(draft_model *d)
{
    vt_batch *b = &d->step.batch;
    b->n_tokens = b->n_seqs = b->n_decode = b->n_rows = b->n_pages = 0;
    d->tokens_left = d->config.limits.max_tokens;
}

/* Lists the states of a slot's next n tokens. The step that computes what it does not know begins
 * its states anew; each further one adds a state. */
static void add_states(draft_model *d, draft_slot *k, int32_t s, int32_t n)
{
    if (d->config.n_states == 0)
        return;
    int32_t first = (int32_t)(k - d->slot) * VT_DRAFT_MOST, known = k->n_known;
    d->state_from[s] = known == 0 ? -1 : first + known - k->state_at;
    if (k->n_guesses == 0) {
        k->state_at = known + n;
        k->n_states = 0;
    }
    d->state_to[s] = first + k->n_states++;
}

/* A head with a vocabulary of its own has other ids for what the settings name, and for draws: its
 * guess is the token that it holds for the likeliest. */
static void choose_likeliest(vt_sample_row *row)
{
    row->temperature = 0;
    row->repetition_penalty = 1;
    row->presence_penalty = row->frequency_penalty = 0;
    row->context = NULL;
    row->n_context = row->n_prompt = row->n_bias = 0;
    row->pending_slot = -1;
}

/* Notes in the pages that the KV of tokens [begin, end) is in them. */
static void note_known(draft_model *d, const draft_slot *k, int32_t begin, int32_t end)
{
    int32_t size = page_size(d);
    for (int32_t i = (begin - k->first) / size; i * size < end - k->first; i++) {
        int32_t n = end - k->first - i * size, *known = &d->page_known[k->page[i]];
        n = n < size ? n : size;
        *known = *known > n ? *known : n;
    }
}

/* Adds the next n tokens of a slot to the step, and a row if they are all that q has so far. */
static void add_tokens(draft_model *d, draft_slot *k, int32_t n)
{
    vt_batch *b = &d->step.batch;
    const vt_seq *q = k->seq;
    int32_t s = b->n_seqs++, end = k->n_known + n, length = k->at + k->n_guesses;
    add_states(d, k, s, n);
    for (int32_t i = k->n_known; i < end; i++) {
        int32_t t = b->n_tokens++, place = place_of(d, k, i);
        d->in[t] = d->token[place] = q->token[i];
        d->position[t] = i - k->first;
        copy_state(d, d->before, t, d->state, is_head(d) ? state_of(d, k, i) : 0);
        d->seq_of[t] = s;
        d->kv_slot[t] = place;
    }
    int32_t n_pages = (end - k->first + page_size(d) - 1) / page_size(d);
    memcpy(d->page_ids + b->n_pages, k->page, (size_t)n_pages * sizeof *k->page);
    b->n_pages += n_pages;
    b->n_decode += n == 1 && b->n_decode == s;
    k->n_known = end;
    if (is_head(d) && k->n_guesses == 0)
        note_known(d, k, end - n, end);
    d->kv_len[s] = end - k->first;
    d->q_start[s + 1] = b->n_tokens;
    d->page_start[s + 1] = b->n_pages;
    d->tokens_left -= n;
    if (end < length)
        return;
    vt_sample_row *row = &d->row[b->n_rows];
    vt_seq_choose_at(q, length, row);
    row->n_context = length;
    row->mask = NULL; /* what is not allowed is dropped when the guesses are taken */
    row->n_top = -1;
    if (d->config.word)
        choose_likeliest(row);
    if (d->config.vocab < d->config.target_vocab)
        row->n_bias = 0; /* it may name tokens that the draft model does not have */
    d->row_slot[b->n_rows] = k;
    d->row_token[b->n_rows++] = b->n_tokens - 1;
}

/* Runs the step and takes its guesses in. Returns false if the device failed. */
static bool run_step(draft_model *d, int64_t *ns)
{
    vt_executor *x = d->executor;
    vt_step_result r;
    vt_err err = {0};
    d->step.id = ++d->step_id;
    if (x->launch(x, &d->step, &err) != VT_OK || x->wait(x, &r, &err) != VT_OK) {
        vt_notice_tell(&d->config.notice, "the draft model failed, and drafts end: %s",
                       err.message);
        d->failed = true;
        return false;
    }
    *ns += r.end_ns - r.begin_ns;
    for (int32_t i = 0; i < d->step.batch.n_rows; i++) {
        draft_slot *k = d->row_slot[i];
        int32_t at = k->at + k->n_guesses, token = r.token[i];
        if (d->config.word && token >= 0)
            token = d->config.word[token];
        if (token < 0 || token >= d->config.target_vocab) {
            k->n_wanted = k->n_guesses;
            continue;
        }
        k->seq->token[at] = token;
        k->n_guesses++;
        if (k->n_guesses < k->n_wanted)
            copy_state(d, d->state, is_head(d) ? state_of(d, k, at) : 0, r.hidden,
                       d->config.stream ? d->row_token[i] : i);
    }
    return true;
}

/* ---- the drafter ---- */

/* Prepares a slot for a sequence that wants guesses. */
static void take_ask(draft_model *d, const vt_drafted *ask)
{
    vt_seq *q = ask->seq;
    draft_slot *k = &d->slot[q->slot];
    k->used = d->n_prepares;
    k->touched = ++d->n_touched;
    k->seq = q;
    k->at = q->n_tokens;
    k->n_wanted = k->n_guesses = 0;
    if (is_head(d)) {
        take_over_states(d, k, q);
        if (k->n_shown < q->n_tokens)
            return; /* it was not shown what this needs */
        /* those behind are of guesses that did not hold */
        k->n_shown = q->n_tokens;
    }
    if (q->n_tokens + ask->n > d->config.limits.max_context || !has_states(d, q->slot))
        return;
    if (!is_head(d))
        keep_common(d, k, q);
    for (int32_t i = k->n_known; i < q->n_tokens; i++)
        if (q->token[i] >= d->config.vocab)
            return; /* the draft model does not have this token */
    if (take_pages(d, k, q->n_tokens + ask->n))
        k->n_wanted = ask->n;
}

/* The first step: what each sequence has that its slot does not hold, sequences with one token
 * first, as a batch has its decodes. One that has more than fit makes no guess this time. */
static void add_known(draft_model *d, const vt_drafted *ask, int32_t n, bool single)
{
    for (int32_t i = 0; i < n; i++) {
        draft_slot *k = &d->slot[ask[i].seq->slot];
        int32_t left = k->at - k->n_known;
        bool waits = ask[i].seq->n_pending > 0 && left <= d->config.limits.max_tokens;
        if (k->n_wanted == 0 || (left == 1) != single || waits)
            continue;
        if (left > d->tokens_left || ask[i].seq->n_pending > 0)
            k->n_wanted = 0;
        left = left < d->tokens_left ? left : d->tokens_left;
        if (left > 0)
            add_tokens(d, k, left);
    }
}

static int64_t prepare(void *user, const vt_drafted *ask, int32_t n)
{
    draft_model *d = user;
    int64_t ns = 0;
    if (d->failed)
        return 0;
    d->n_prepares++;
    count_pages(d);
    for (int32_t i = 0; i < n; i++)
        take_ask(d, &ask[i]);
    begin_step(d);
    add_known(d, ask, n, true);
    add_known(d, ask, n, false);
    while (d->step.batch.n_tokens > 0 && run_step(d, &ns)) {
        begin_step(d);
        for (int32_t i = 0; i < n; i++) {
            draft_slot *k = &d->slot[ask[i].seq->slot];
            if (k->n_guesses > 0 && k->n_guesses < k->n_wanted)
                add_tokens(d, k, 1);
        }
    }
    return ns;
}

static int32_t draft(void *user, struct vt_seq *q, int32_t *out, int32_t max)
{
    const draft_model *d = user;
    const draft_slot *k = &d->slot[q->slot];
    if (d->failed || k->seq != q || k->at != q->n_tokens || k->used != d->n_prepares)
        return 0;
    if (q->n_pending > 0)
        return k->n_wanted > 0 ? -1 : 0;
    (void)out; /* they are there: prepare wrote them behind the sequence's tokens */
    return k->n_guesses < max ? k->n_guesses : max;
}

/* Keeps the hidden states of q's tokens, each for the token behind it. */
static void learn(void *user, const vt_seq *q, int32_t from, int32_t n, const void *states)
{
    draft_model *d = user;
    draft_slot *k = &d->slot[q->slot];
    if (d->failed || from + n >= d->config.limits.max_context)
        return;
    count_pages(d);
    take_over_states(d, k, q);
    if (k->n_known > k->at)
        k->n_known = k->at; /* it was computed with hidden states of its own */
    if (k->first == 0 || from < k->first - 1 || from + 1 > k->n_shown) {
        cut(d, k, 0);
        if (!adopt(d, k, q, from))
            k->first = k->n_known = k->at = from + 1;
    }
    k->touched = ++d->n_touched;
    k->n_shown = take_pages(d, k, from + n + 1) ? from + n + 1 : 0;
    if (k->n_shown == 0) {
        cut(d, k, 0);
        k->first = 0;
        return;
    }
    if (k->n_known > k->n_shown)
        k->n_known = k->n_shown;
    for (int32_t i = 0; i < n; i++) {
        int32_t to = state_of(d, k, from + i + 1), on = from + i + 1 - k->first;
        copy_state(d, d->state, to, states, i);
        if (on > 0 && on % page_size(d) == 0) /* the page before has it as well */
            copy_state(d, d->state, state_of(d, k, from + i) + 1, states, i);
    }
    for (int32_t i = from < k->first ? k->first : from; i < from + n; i++)
        d->token[place_of(d, k, i)] = q->token[i];
    d->token[place_of(d, k, from + n)] = -1; /* what this step chose is not taken in yet */
    int32_t last = from + n < q->n_prompt ? from + n - 1 : q->n_prompt - 1;
    enter_pages(d, k, q, last > from ? last : from);
}

static size_t states_size(const draft_model *d)
{
    return (size_t)d->config.n_pages * (size_t)(page_size(d) + 1) * d->config.state_bytes;
}

static void free_model(void *user)
{
    draft_model *d = user;
    d->executor->free(d->executor);
    vt_model_free(d->model);
    vt_pages_free(d->state, states_size(d));
    vt_radix_release(&d->tree);
    vt_arena_release(&d->arena);
    free(d);
}

static bool make_step(draft_model *d)
{
    const vt_limits *lim = &d->config.limits;
    size_t tokens = (size_t)lim->max_tokens, seqs = (size_t)lim->max_seqs,
           pages = (size_t)vt_ceil_div(lim->max_context, lim->page_size) * seqs;
    vt_arena *a = &d->arena;
    d->in = vt_arena_alloc(a, tokens, sizeof *d->in);
    d->position = vt_arena_alloc(a, tokens, sizeof *d->position);
    d->seq_of = vt_arena_alloc(a, tokens, sizeof *d->seq_of);
    d->kv_slot = vt_arena_alloc(a, tokens, sizeof *d->kv_slot);
    d->q_start = vt_arena_alloc(a, seqs + 1, sizeof *d->q_start);
    d->kv_len = vt_arena_alloc(a, seqs, sizeof *d->kv_len);
    d->page_start = vt_arena_alloc(a, seqs + 1, sizeof *d->page_start);
    d->page_ids = vt_arena_alloc(a, pages, sizeof *d->page_ids);
    d->row_token = vt_arena_alloc(a, seqs, sizeof *d->row_token);
    d->row = vt_arena_alloc(a, seqs, sizeof *d->row);
    d->row_slot = vt_arena_alloc(a, seqs, sizeof *d->row_slot);
    d->state_from = vt_arena_alloc(a, seqs, sizeof *d->state_from);
    d->state_to = vt_arena_alloc(a, seqs, sizeof *d->state_to);
    d->step = (vt_step){.rows = d->row,
                        .batch = {.page_size = lim->page_size,
                                  .token = d->in,
                                  .position = d->position,
                                  .seq_of = d->seq_of,
                                  .slot = d->kv_slot,
                                  .q_start = d->q_start,
                                  .kv_len = d->kv_len,
                                  .page_start = d->page_start,
                                  .page_ids = d->page_ids,
                                  .row_token = d->row_token}};
    d->before = is_head(d) ? vt_arena_alloc(a, tokens, d->config.state_bytes) : NULL;
    d->step.batch.hidden = d->before;
    if (d->config.n_states > 0) {
        d->step.batch.state_from = d->state_from;
        d->step.batch.state_to = d->state_to;
    }
    return d->in && d->position && d->seq_of && d->kv_slot && d->q_start && d->kv_len &&
           d->page_start && d->page_ids && d->row_token && d->row && d->row_slot && d->state_from &&
           d->state_to && (!is_head(d) || d->before);
}

static bool make_slots(draft_model *d)
{
    const vt_limits *lim = &d->config.limits;
    size_t each = (size_t)vt_ceil_div(lim->max_context, lim->page_size);
    d->slot = vt_arena_alloc(&d->arena, (size_t)lim->max_seqs, sizeof *d->slot);
    d->token = vt_arena_alloc(&d->arena, (size_t)d->config.n_pages * (size_t)lim->page_size,
                              sizeof *d->token);
    d->page_known = vt_arena_alloc(&d->arena, (size_t)d->config.n_pages, sizeof *d->page_known);
    int32_t *page = vt_arena_alloc(&d->arena, each * (size_t)lim->max_seqs, sizeof *page);
    for (int32_t i = 0; d->slot && page && i < lim->max_seqs; i++) {
        d->slot[i].page = page + (size_t)i * each;
        d->slot[i].sharer = VT_NO_TENANT;
    }
    if (is_head(d)) /* the system provides each page of it when it is first written */
        d->state = vt_pages_alloc(states_size(d));
    return d->slot && d->token && d->page_known && page && (!is_head(d) || d->state);
}

vt_status vt_draft_model_new(const vt_draft_model_config *c, vt_model *m, vt_executor *x,
                             vt_drafter *out, vt_err *err)
{
    draft_model *d = vt_calloc(1, sizeof *d);
    if (!d) {
        x->free(x);
        vt_model_free(m);
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a draft model");
    }
    d->config = *c;
    d->executor = x;
    d->model = m;
    vt_arena_init(&d->arena, 0);
    vt_status status = vt_radix_init(&d->tree, c->n_pages, c->limits.page_size, SHARERS, err);
    if (status == VT_OK && !(make_slots(d) && make_step(d)))
        status = vt_fail(err, VT_ERR_MEMORY, "out of memory for a draft model of %d sequences",
                         c->limits.max_seqs);
    if (status != VT_OK) {
        free_model(d);
        return status;
    }
    *out = (vt_drafter){.user = d,
                        .draft = draft,
                        .prepare = prepare,
                        .learn = is_head(d) ? learn : NULL,
                        .free = free_model};
    return VT_OK;
}
