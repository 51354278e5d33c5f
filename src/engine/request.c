/* Making a request (engine/request.h): every field is checked here, once, and copied into one
 * arena. */
#include "engine/request.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/random.h"
#include "device/nvtx.h"
#include "engine/end_reason.h"
#include "kv/radix.h"
#include "model/lora/lora.h"

/* ---- the struct ---- */

/* Up to where the first version of vt_request_params reached. */
enum { FIRST_SIZE = offsetof(vt_request_params, user) + sizeof(void *) };

static const vt_request_params defaults = {.struct_size = sizeof(vt_request_params),
                                           .max_tokens = 128,
                                           .n = 1,
                                           .top_p = 1,
                                           .repetition_penalty = 1,
                                           .logprobs = -1};

void vt_request_init_size(vt_request_params *p, size_t size)
{
    if (!p || size < sizeof p->struct_size)
        return;
    memset(p, 0, size); /* also fields of a later version than this one */
    memcpy(p, &defaults, size < sizeof defaults ? size : sizeof defaults);
    p->struct_size = size;
}

/* Refuses a newer struct whose further fields are not zero: we could not do what they ask. */
vt_status vt_req_complete(const vt_request_params *p, vt_request_params *whole, vt_err *err)
{
    size_t size = p->struct_size;
    if (size < FIRST_SIZE || size > 4096)
        return vt_fail(err, VT_ERR_USAGE,
                       "the request's struct_size is %zu, expected vt_request_init to set it",
                       size);
    for (size_t i = sizeof *whole; i < size; i++)
        if (((const char *)p)[i])
            return vt_fail(err, VT_ERR_USAGE,
                           "the request has a field that this version of the library (%s) does not "
                           "know",
                           vt_version());
    *whole = defaults;
    memcpy(whole, p, size < sizeof *whole ? size : sizeof *whole);
    whole->struct_size = sizeof *whole;
    return VT_OK;
}

/* ---- checking ---- */

/* Clients (litellm) know a prompt that is too long by these words and " is". */
static const char context_length[] = "this model's maximum context length";

vt_status vt_check_text_length(const vt_tokenizer *t, const char *text, size_t len,
                               const vt_prompt_limit *most, vt_err *err)
{
    if (!t || !most || most->tokens == 0 ||
        vt_tokenizer_least(t, text, len) <= (size_t)most->tokens)
        return VT_OK;
    return vt_fail(err, most->what ? VT_ERR_USAGE : VT_ERR_CONTEXT,
                   "the prompt has more than %d tokens; %s is %d tokens", most->tokens,
                   most->what ? most->what : context_length, most->tokens);
}

static vt_status check_prompt(const vt_request_params *p, const vt_req_limits *lim, vt_err *err)
{
    if (!p->prompt || p->n_prompt < 1)
        return vt_fail(err, VT_ERR_USAGE, "the prompt has no tokens, expected at least one");
    int64_t pool = (int64_t)lim->n_pages * lim->page_size;
    bool least_output = p->max_tokens > 0; /* room for one token, or none where it is only scored */
    if ((int64_t)p->n_prompt + least_output > lim->max_context)
        return vt_fail(err, VT_ERR_CONTEXT, "the prompt has %d tokens; %s is %d tokens%s",
                       p->n_prompt, context_length, lim->max_context,
                       least_output ? ", at least one of them for the answer" : "");
    if (p->n_prompt > pool)
        return vt_fail(err, VT_ERR_CONTEXT,
                       "the prompt has %d tokens; %s is %d tokens, but the KV cache holds %lld "
                       "(option kv-memory)",
                       p->n_prompt, context_length, lim->max_context, (long long)pool);
    for (int32_t i = 0; i < p->n_prompt; i++)
        if (p->prompt[i] < 0 || p->prompt[i] >= lim->vocab)
            return vt_fail(err, VT_ERR_USAGE, "prompt token %d is %d, expected 0 to %d", i,
                           p->prompt[i], lim->vocab - 1);
    return VT_OK;
}

/* `v`, the field `name`, must be a finite number in [lo, hi]. */
static vt_status check_number(const char *name, double v, double lo, double hi, vt_err *err)
{
    if (isfinite(v) && v >= lo && v <= hi)
        return VT_OK;
    return vt_fail(err, VT_ERR_USAGE, "%s is %g, expected %g to %g", name, v, lo, hi);
}

/* A request is to rank exactly where the engine does. */
static vt_status check_rank(const vt_request_params *p, const vt_req_limits *lim, vt_err *err)
{
    bool ranks = lim->pooling == VT_POOLING_RANK;
    if (p->embed && p->rank != ranks)
        return vt_fail(err, VT_ERR_USAGE,
                       ranks ? "rank is false, and this engine scores pairs of texts alone (option "
                               "pooling): /v1/rerank and /v1/score take them"
                             : "rank is true, and this engine makes vectors (option pooling)");
    if (p->rank && p->dimensions != 0)
        return vt_fail(err, VT_ERR_USAGE, "dimensions: a score has none");
    int32_t most = p->rank && lim->n_types > 1 ? p->n_prompt - 1 : 0;
    if (p->second < 0 || p->second > most)
        return vt_fail(err, VT_ERR_USAGE, "second is %d, expected 0 to %d", p->second, most);
    return VT_OK;
}

/* A request is to embed exactly where the engine pools. */
static vt_status check_embed(const vt_request_params *p, const vt_req_limits *lim, vt_err *err)
{
    if (p->embed && lim->pooling == VT_POOLING_NONE)
        return vt_fail(err, VT_ERR_USAGE,
                       "no vectors are made here: this engine generates text; one with option "
                       "pooling embeds");
    if (!p->embed && lim->pooling != VT_POOLING_NONE)
        return vt_fail(err, VT_ERR_USAGE,
                       "no text is made here: this engine makes embeddings alone (option "
                       "pooling), which vitrine embed and /v1/embeddings give");
    if (!p->embed && (p->unscaled || p->dimensions != 0 || p->rank))
        return vt_fail(err, VT_ERR_USAGE, "unscaled, dimensions and rank: only allowed with embed");
    TRY(check_rank(p, lim, err));
    if (p->embed &&
        (p->n != 1 || p->prompt_logprobs || p->logprobs >= 0 || p->grammar || p->n_stop > 0))
        return vt_fail(err, VT_ERR_USAGE,
                       "embed: not possible with n, prompt_logprobs, logprobs, grammar or stop");
    int32_t most = vt_dense_out(lim->dense, lim->n_hidden);
    if (p->dimensions < 0 || p->dimensions > most)
        return vt_fail(err, VT_ERR_USAGE, "dimensions is %d, expected 0 (all) to %d", p->dimensions,
                       most);
    return VT_OK;
}

static vt_status check_sampling(const vt_request_params *p, const vt_req_limits *lim, vt_err *err)
{
    bool only_scored = (p->prompt_logprobs || p->embed) && p->max_tokens == 0;
    if (p->max_tokens < 1 && !only_scored)
        return vt_fail(err, VT_ERR_USAGE, "max_tokens is %d, expected at least 1", p->max_tokens);
    int32_t most = lim->max_queued < VT_MAX_SAMPLES ? lim->max_queued : VT_MAX_SAMPLES;
    TRY(check_number("n", p->n, 1, most, err));
    TRY(check_number("temperature", p->temperature, 0, 100, err));
    TRY(check_number("top_k", p->top_k, 0, INT32_MAX, err));
    TRY(check_number("top_p", p->top_p, 0, 1, err));
    TRY(check_number("min_p", p->min_p, 0, 1, err));
    TRY(check_number("repetition_penalty", p->repetition_penalty, 0.01f, 100, err));
    TRY(check_number("presence_penalty", p->presence_penalty, -100, 100, err));
    TRY(check_number("frequency_penalty", p->frequency_penalty, -100, 100, err));
    TRY(check_number("logprobs", p->logprobs, -1, VT_MAX_TOP_LOGPROBS, err));
    TRY(check_number("timeout_s", p->timeout_s, 0, 1e9, err));
    return check_number("min_tokens", p->min_tokens, 0, p->max_tokens, err);
}

/* A list of n entries: 0 to most of them, and there if n > 0. */
static vt_status check_list(const char *name, const void *list, int32_t n, int32_t most,
                            const char *entries, vt_err *err)
{
    if (n < 0 || n > most)
        return vt_fail(err, VT_ERR_USAGE, "%s has %d %s, expected at most %d", name, n, entries,
                       most);
    if (n > 0 && !list)
        return vt_fail(err, VT_ERR_USAGE, "%s has %d %s and no array of them", name, n, entries);
    return VT_OK;
}

static vt_status check_allowed(const vt_request_params *p, const vt_req_limits *lim, vt_err *err)
{
    if (!p->allowed && p->n_allowed == 0)
        return VT_OK;
    if (!p->allowed || p->n_allowed < 1 || p->n_allowed > VT_MAX_ALLOWED)
        return vt_fail(err, VT_ERR_USAGE, "allowed has %d ids%s, expected 1 to %d", p->n_allowed,
                       p->allowed ? "" : " and no array of them", VT_MAX_ALLOWED);
    for (int32_t i = 0; i < p->n_allowed; i++)
        if (p->allowed[i] < 0 || p->allowed[i] >= lim->vocab)
            return vt_fail(err, VT_ERR_USAGE, "allowed id %d is %d, expected 0 to %d", i,
                           p->allowed[i], lim->vocab - 1);
    return VT_OK;
}

static vt_status check_stops(const vt_request_params *p, const vt_req_limits *lim, vt_err *err)
{
    TRY(check_list("stop", p->stop, p->n_stop, VT_MAX_STOPS, "strings", err));
    if (p->n_stop > 0 && !lim->tokenizer)
        return vt_fail(err, VT_ERR_USAGE, "stop strings need a model with a tokenizer");
    for (int32_t i = 0; i < p->n_stop; i++) {
        if (!p->stop[i])
            return vt_fail(err, VT_ERR_USAGE, "stop string %d is NULL", i);
        size_t len = strnlen(p->stop[i], VT_MAX_STOP_BYTES + 1);
        if (len == 0 || len > VT_MAX_STOP_BYTES)
            return vt_fail(err, VT_ERR_USAGE, "stop string %d has %s, expected 1 to %d bytes", i,
                           len == 0 ? "no bytes" : "more", VT_MAX_STOP_BYTES);
    }
    return check_list("stop_ids", p->stop_ids, p->n_stop_ids, VT_MAX_STOP_IDS, "ids", err);
}

static vt_status check_lists(const vt_request_params *p, const vt_req_limits *lim, vt_err *err)
{
    TRY(check_stops(p, lim, err));
    TRY(check_list("logit_bias", p->logit_bias, p->n_logit_bias, VT_MAX_LOGIT_BIAS, "entries",
                   err));
    for (int32_t i = 0; i < p->n_logit_bias; i++) {
        const vt_logit_bias *b = &p->logit_bias[i];
        if (b->id < 0 || b->id >= lim->vocab || !(b->bias < INFINITY))
            return vt_fail(err, VT_ERR_USAGE,
                           "logit_bias entry %d is id %d, bias %g, expected an id of 0 to %d and a "
                           "number below infinity",
                           i, b->id, (double)b->bias, lim->vocab - 1);
    }
    int32_t n_early = p->n_logit_bias + p->n_stop_ids + lim->n_eos;
    if (p->min_tokens > 0 && n_early > VT_MAX_LOGIT_BIAS)
        return vt_fail(
            err, VT_ERR_USAGE,
            "with min_tokens, logit_bias and the end tokens have %d entries, expected at "
            "most %d together",
            n_early, VT_MAX_LOGIT_BIAS);
    TRY(check_allowed(p, lim, err));
    if (p->cache_salt && strnlen(p->cache_salt, VT_SALT_MAX + 1) > VT_SALT_MAX)
        return vt_fail(err, VT_ERR_USAGE, "cache_salt has more than %d bytes", VT_SALT_MAX);
    return VT_OK;
}

/* Finds the number of the request's adapter. */
static vt_status find_adapter(const vt_request_params *p, const vt_req_limits *lim, int32_t *out,
                              vt_err *err)
{
    *out = p->adapter && lim->adapted ? vt_lora_find(lim->adapted, p->adapter) : 0;
    if (p->adapter && *out == 0)
        return vt_fail(err, VT_ERR_USAGE,
                       "adapter is '%.80s', expected the name of one that option lora gave",
                       p->adapter);
    return VT_OK;
}

/* ---- copying ---- */

static void *copy(vt_arena *a, const void *from, int32_t n, size_t size)
{
    void *to = vt_arena_alloc(a, n > 0 ? (size_t)n : 1, size);
    if (to && n > 0)
        memcpy(to, from, (size_t)n * size);
    return to;
}

static uint32_t *mask_of(vt_arena *a, const int32_t *id, int32_t n, int32_t vocab)
{
    uint32_t *mask = vt_arena_alloc(a, (size_t)vt_ceil_div(vocab, 32), sizeof *mask);
    for (int32_t i = 0; mask && i < n; i++)
        mask[id[i] / 32] |= 1u << id[i] % 32;
    return mask;
}

static vt_logit_bias *make_early_bias(vt_req *r, const vt_req_limits *lim);

static bool copy_params(vt_req *r, const vt_request_params *p, const vt_req_limits *lim)
{
    r->p = *p;
    r->p.allowed = NULL;
    r->p.adapter = NULL;                                          /* its number is known by now */
    r->p.grammar = r->p.thought_open = r->p.thought_close = NULL; /* compiled by now */
    const char **stop = vt_arena_alloc(&r->arena, (size_t)p->n_stop + 1, sizeof *stop);
    r->mask = p->allowed ? mask_of(&r->arena, p->allowed, p->n_allowed, lim->vocab) : NULL;
    bool ok = stop != NULL && !p->allowed == !r->mask;
    for (int32_t i = 0; ok && i < p->n_stop; i++) {
        stop[i] = vt_arena_strdup(&r->arena, p->stop[i], strlen(p->stop[i]));
        ok = stop[i] != NULL;
    }
    r->p.stop = stop;
    r->p.stop_ids = copy(&r->arena, p->stop_ids, p->n_stop_ids, sizeof *p->stop_ids);
    r->p.logit_bias = copy(&r->arena, p->logit_bias, p->n_logit_bias, sizeof *p->logit_bias);
    r->salt_len = p->cache_salt ? (int32_t)strlen(p->cache_salt) : 0;
    r->p.cache_salt = vt_arena_strdup(&r->arena, p->cache_salt ? p->cache_salt : "",
                                      (size_t)r->salt_len);
    r->seq = vt_arena_alloc(&r->arena, (size_t)p->n, sizeof *r->seq);
    ok = ok && r->p.stop_ids && r->p.logit_bias && r->p.cache_salt && r->seq;
    if (ok && p->min_tokens > 0)
        ok = (r->early_bias = make_early_bias(r, lim)) != NULL;
    return ok;
}

/* The biases of a request's first min_tokens tokens: its own, and -infinity for every token that
 * would end it. NULL: out of memory. */
static vt_logit_bias *make_early_bias(vt_req *r, const vt_req_limits *lim)
{
    int32_t n = r->p.n_logit_bias, n_eos = r->p.ignore_eos ? 0 : lim->n_eos;
    vt_logit_bias *bias = vt_arena_alloc(&r->arena, (size_t)(n + n_eos + r->p.n_stop_ids) + 1,
                                         sizeof *bias);
    if (!bias)
        return NULL;
    memcpy(bias, r->p.logit_bias, (size_t)n * sizeof *bias);
    for (int32_t i = 0; i < n_eos; i++)
        if (lim->eos[i] >= 0 && lim->eos[i] < lim->vocab)
            bias[n++] = (vt_logit_bias){lim->eos[i], -INFINITY};
    for (int32_t i = 0; i < r->p.n_stop_ids; i++)
        if (r->p.stop_ids[i] >= 0 && r->p.stop_ids[i] < lim->vocab)
            bias[n++] = (vt_logit_bias){r->p.stop_ids[i], -INFINITY};
    r->n_early_bias = n;
    return bias;
}

/* The seed of further completions, or of a request without one: splitmix64's step and output. */
static uint64_t derive_seed(uint64_t x) { return vt_random_next(&x); }

static vt_sample_row sample_row(const vt_seq *s, const vt_request_params *p, uint64_t seed)
{
    bool penalties = p->repetition_penalty != 1 || p->presence_penalty != 0 ||
                     p->frequency_penalty != 0;
    return (vt_sample_row){.temperature = p->temperature,
                           .top_p = p->top_p,
                           .min_p = p->min_p,
                           .repetition_penalty = p->repetition_penalty,
                           .presence_penalty = p->presence_penalty,
                           .frequency_penalty = p->frequency_penalty,
                           .top_k = p->top_k,
                           .n_top = p->logprobs,
                           .seed = s->index == 0 ? seed : derive_seed(seed + (uint64_t)s->index),
                           .pool_slot = -1,
                           .target = -1,
                           .context = penalties ? s->token : NULL,
                           .n_prompt = s->n_prompt,
                           .pending_slot = -1,
                           .bias = p->logit_bias,
                           .n_bias = p->n_logit_bias,
                           .mask = s->req->mask};
}

static vt_status make_seq(vt_req *r, int32_t index, int32_t max_len, const vt_req_limits *lim,
                          vt_err *err)
{
    vt_seq *s = &r->seq[index];
    *s = (vt_seq){.req = r,
                  .index = index,
                  .n_prompt = r->p.n_prompt,
                  .n_tokens = r->p.n_prompt,
                  .max_len = max_len,
                  .slot = -1,
                  .left_page = -1,
                  .state_to = -1,
                  .state_from = -1};
    s->token = vt_arena_alloc(&r->arena, (size_t)max_len, sizeof *s->token);
    size_t pages = (size_t)vt_ceil_div(max_len, lim->page_size) + 1;
    s->page = vt_arena_alloc(&r->arena, pages, sizeof *s->page);
    if (lim->windows)
        s->window_page = vt_arena_alloc(&r->arena, pages, sizeof *s->window_page);
    bool indexed = !lim->lookup || vt_draft_lookup_init(&s->drafting, max_len, &r->arena);
    if (!s->token || !s->page || (lim->windows && !s->window_page) || !indexed)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a request of %d tokens", max_len);
    memcpy(s->token, r->p.prompt, (size_t)r->p.n_prompt * sizeof *s->token);
    uint64_t seed = r->p.has_seed ? r->p.seed : derive_seed(lim->seed ^ derive_seed(r->id));
    s->row = sample_row(s, &r->p, seed);
    if (index == 0 && r->p.prompt_logprobs)
        s->score_end = s->n_prompt - 1;
    if (r->p.embed) {
        r->p.unscaled = r->p.unscaled || (lim->unscaled && !r->p.rank);
        s->embedding = vt_embedding_new(lim->pooling, lim->n_hidden, lim->dense, &lim->rank, &r->p,
                                        &r->arena);
        if (!s->embedding)
            return vt_fail(err, VT_ERR_MEMORY, "out of memory for a request to embed");
        s->n_scored = s->n_score_done = s->embedding->first;
        s->score_end = s->embedding->end;
    }
    return vt_stream_init(&s->stream, lim->tokenizer, r->p.stop, r->p.n_stop, r->p.min_tokens,
                          r->p.special_text, err);
}

/* Returns how many tokens prompt and answer may have together, and what ends an answer there. */
static int32_t longest(const vt_request_params *p, const vt_req_limits *lim, uint8_t *end)
{
    int64_t len = (int64_t)p->n_prompt + p->max_tokens;
    int64_t pool = (int64_t)lim->n_pages * lim->page_size +
                   1; /* the last token's KV is not needed */
    *end = p->max_tokens == 0 ? VT_END_PROMPT : VT_END_MAX_TOKENS;
    if (len > lim->max_context) {
        len = lim->max_context;
        *end = VT_END_CONTEXT;
    }
    if (len > pool) {
        len = pool;
        *end = VT_END_KV_CACHE;
    }
    return (int32_t)len;
}

vt_status vt_req_new(const vt_request_params *given, vt_request_id id, int64_t now_ns,
                     const vt_req_limits *lim, vt_req **out, vt_err *err)
{
    vt_request_params whole, *p = &whole;
    TRY(vt_req_complete(given, &whole, err));
    TRY(check_embed(p, lim, err));
    if (p->embed)
        p->max_tokens = p->min_tokens = 0;
    TRY(check_sampling(p, lim, err));
    TRY(check_prompt(p, lim, err));
    TRY(check_lists(p, lim, err));
    int32_t adapter;
    TRY(find_adapter(p, lim, &adapter, err));
    vt_req *r = vt_calloc(1, sizeof *r);
    if (!r)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a request");
    vt_arena_init(&r->arena, 0);
    r->id = id;
    r->arrive_ns = now_ns;
    r->deadline_ns = p->timeout_s > 0 ? now_ns + (int64_t)(p->timeout_s * 1e9) : INT64_MAX;
    r->tenant = VT_NO_TENANT;
    r->adapter = adapter;
    vt_status status = copy_params(r, p, lim)
                           ? VT_OK
                           : vt_fail(err, VT_ERR_MEMORY, "out of memory for a request");
    int32_t len = longest(p, lim, &r->full);
    for (; status == VT_OK && r->n_live < p->n; r->n_live++)
        status = make_seq(r, r->n_live, len, lim, err);
    if (status != VT_OK) {
        vt_req_free(r);
        return status;
    }
    r->p.prompt = r->seq[0].token; /* the caller's array is only borrowed */
    *out = r;
    return VT_OK;
}

static vt_status constrain(vt_seq *q, const vt_constraint_maker *maker, int32_t vocab, vt_err *err)
{
    vt_arena *a = &q->req->arena;
    vt_constrained *c = vt_arena_alloc(a, 1, sizeof *c);
    int32_t n_words = (int32_t)vt_ceil_div(vocab, 32);
    uint32_t *mask = vt_arena_alloc(a, (1 + VT_DRAFT_MOST) * (size_t)n_words, sizeof *mask);
    vt_constraint rules = {0};
    if (!c || !mask || !maker->make(maker->user, q->index, &rules))
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the constraint of a request");
    *c = (vt_constrained){
        .rules = rules, .mask = mask, .n_words = n_words, .allowed = q->req->mask};
    q->constrained = c;
    if (!vt_constrained_begin(c))
        return vt_fail(err, VT_ERR_GRAMMAR, "%s", vt_end_sentence(c->end));
    return VT_OK;
}

vt_status vt_req_constrain(vt_req *r, const vt_constraint_maker *maker, int32_t vocab, vt_err *err)
{
    for (int32_t i = 0; i < r->p.n; i++)
        TRY(constrain(&r->seq[i], maker, vocab, err));
    return VT_OK;
}

void vt_req_free(vt_req *r)
{
    if (!r)
        return;
    for (int32_t i = 0; r->seq && i < r->p.n; i++) {
        vt_stream_release(&r->seq[i].stream);
        vt_embedding_release(r->seq[i].embedding);
        vt_constrained *c = r->seq[i].constrained;
        if (c && c->rules.free)
            c->rules.free(c->rules.state);
    }
    vt_nvtx_end(r->range);
    vt_arena_release(&r->arena);
    free(r);
}
