#include "engine/constraint/grammar.h"

#include <string.h>

#include "base/err.h"
#include "engine/constraint/thought.h"
#include "engine/engine_inside.h"
#include "model/model.h"

static vt_allowance mask(void *state, uint32_t *words, int32_t n_words)
{
    return vt_matcher_mask(state, words, n_words) ? VT_ALLOW_MASK : VT_ALLOW_NOTHING;
}

static bool take(void *state, int32_t token) { return vt_matcher_take(state, token); }

static void undo(void *state, int32_t n) { vt_matcher_undo(state, n); }

static void release(void *state) { vt_matcher_free(state); }

static bool is_too_large(void *state) { return vt_matcher_is_too_large(state); }

static void hurry(void *state, bool on) { vt_matcher_hurry(state, on); }

static bool is_late(void *state) { return vt_matcher_is_late(state); }

static int64_t n_new(void *state)
{
    vt_matcher_cost cost = vt_matcher_spent(state);
    return cost.n - cost.n_cached;
}

_Static_assert((int)VT_DRAFT_MOST <= (int)VT_MATCHER_BACK, "guesses can be taken back");

typedef struct making {
    vt_grammar *g;
    int32_t most;             /* tokens of an answer */
    vt_thought_rules thought; /* t is NULL: none is looked for */
} making;

static bool make(void *user, int32_t sample, vt_constraint *out)
{
    const making *m = user;
    (void)sample;
    if (m->thought.t)
        return vt_thought_new(&m->thought, out);
    vt_matcher *matcher = vt_matcher_new(m->g, m->most);
    *out = (vt_constraint){.state = matcher,
                           .mask = mask,
                           .take = take,
                           .undo = undo,
                           .free = release,
                           .is_too_large = is_too_large,
                           .n_new = n_new,
                           .hurry = hurry,
                           .is_late = is_late};
    return matcher != NULL;
}

static bool is_long_tag(const char *tag)
{
    return tag && (!*tag || strlen(tag) >= VT_THOUGHT_MAX_TAG);
}

/* Makes the status of a compilation that of a request: a wrong text is a wrong grammar. */
static vt_status blame(vt_status status, vt_err *err)
{
    if (status != VT_ERR_USAGE)
        return status;
    if (err)
        err->status = VT_ERR_GRAMMAR;
    return VT_ERR_GRAMMAR;
}

/* Finds or compiles; *out is NULL for a request without a grammar. */
static vt_status find(vt_engine *e, const vt_request_params *p, vt_grammar **out, vt_err *err)
{
    *out = NULL;
    if (p->grammar_kind < VT_GRAMMAR_FREE || p->grammar_kind > VT_GRAMMAR_CALLS)
        return vt_fail(err, VT_ERR_USAGE, "grammar_kind is %d, expected 0 to %d", p->grammar_kind,
                       VT_GRAMMAR_CALLS);
    if (p->thought < VT_THOUGHT_NONE || p->thought > VT_THOUGHT_BEGUN || p->max_thought < 0 ||
        (p->max_thought > 0 && p->thought == VT_THOUGHT_NONE))
        return vt_fail(err, VT_ERR_USAGE,
                       "max_thought is %d with thought %d, expected 0 or more with thought 1 or 2",
                       p->max_thought, p->thought);
    if (is_long_tag(p->thought_open) || is_long_tag(p->thought_close))
        return vt_fail(err, VT_ERR_USAGE,
                       "thought_open and thought_close: expected 1 to %d bytes each",
                       VT_THOUGHT_MAX_TAG - 1);
    if (p->max_thought > 0 && !e->grammars)
        return vt_fail(err, VT_ERR_USAGE,
                       "max_thought: the model has no tokenizer, which it needs");
    if (p->grammar_kind == VT_GRAMMAR_FREE)
        return VT_OK;
    if (!p->grammar && p->grammar_kind != VT_GRAMMAR_JSON_OBJECT)
        return vt_fail(err, VT_ERR_USAGE, "grammar is NULL, expected a text for grammar_kind %d",
                       p->grammar_kind);
    if (!e->grammars)
        return vt_fail(err, VT_ERR_USAGE, "grammar: the model has no tokenizer, which it needs");
    const char *text = p->grammar ? p->grammar : "";
    return blame(vt_grammar_store_get(e->grammars, (vt_grammar_kind)p->grammar_kind, text,
                                      strlen(text), out, err),
                 err);
}

bool vt_engine_must_compile(vt_engine *e, const vt_request_params *p)
{
    const char *text = p->grammar ? p->grammar : "";
    return p->grammar_kind > VT_GRAMMAR_FREE && p->grammar_kind <= VT_GRAMMAR_CALLS &&
           e->grammars &&
           !vt_grammar_store_has(e->grammars, (vt_grammar_kind)p->grammar_kind, text, strlen(text));
}

/* Returns how many tokens an answer has at most. */
static int32_t most_tokens(vt_engine *e, const vt_request_params *p)
{
    int32_t room = vt_engine_max_context(e) - p->n_prompt;
    return p->max_tokens < room ? p->max_tokens : room;
}

/* Makes the first mask. Where it takes too much whatever max_tokens is, that is remembered. */
static vt_status begin(vt_engine *e, const vt_request_params *p, vt_grammar *g, int32_t most,
                       vt_err *err)
{
    vt_err why = {0};
    const char *text = p->grammar ? p->grammar : "";
    if (vt_grammar_begin(g, most, &why) == VT_OK)
        return VT_OK;
    if (vt_grammar_is_hopeless(g))
        vt_grammar_store_refuse(e->grammars, (vt_grammar_kind)p->grammar_kind, text, strlen(text),
                                &why);
    return blame(vt_fail(err, why.status, "%s", why.message), err);
}

vt_status vt_engine_prepare(vt_engine *e, const vt_request_params *p, vt_grammar **out, vt_err *err)
{
    vt_request_params whole;
    vt_grammar *g;
    bool at_start;
    TRY(vt_req_complete(p, &whole, err));
    TRY(find(e, &whole, &g, err));
    int32_t most = most_tokens(e, &whole);
    bool begins = g && most > 0 && !vt_grammar_opening(g, &at_start);
    vt_status status = begins ? begin(e, &whole, g, most, err) : VT_OK;
    if (status != VT_OK)
        vt_grammar_unref(g);
    else
        *out = g;
    return status;
}

vt_status engine_submit_grammar(vt_engine *e, const vt_request_params *p, vt_request_id *id,
                                vt_err *err)
{
    vt_request_params whole;
    vt_grammar *g;
    TRY(vt_req_complete(p, &whole, err));
    TRY(find(e, &whole, &g, err));
    vt_status status = vt_engine_submit_prepared(e, p, g, id, err);
    vt_grammar_unref(g); /* each answer has its own reference */
    return status;
}

vt_status vt_engine_submit_prepared(vt_engine *e, const vt_request_params *p, vt_grammar *g,
                                    vt_request_id *id, vt_err *err)
{
    vt_request_params whole;
    TRY(vt_req_complete(p, &whole, err));
    if (!g && whole.max_thought == 0)
        return vt_engine_submit_constrained(e, p, NULL, id, err);
    whole.grammar = NULL;
    whole.grammar_kind = VT_GRAMMAR_FREE;
    if (g) {
        whole.ignore_eos = false;
        whole.min_tokens = 0;
    }
    int32_t most = most_tokens(e, &whole);
    making m = {g,
                most,
                {.g = g,
                 .inside = whole.thought == VT_THOUGHT_BEGUN,
                 .most = most,
                 .budget = whole.max_thought,
                 .open = whole.thought_open,
                 .close = whole.thought_close}};
    bool at_start;
    m.thought.none = whole.thought == VT_THOUGHT_NONE;
    if (!m.thought.none || (g && vt_grammar_opening(g, &at_start)))
        m.thought.t = e->model->tokenizer;
    const vt_constraint_maker maker = {.user = &m, .make = make};
    return vt_engine_submit_constrained(e, &whole, &maker, id, err);
}

vt_grammar_store_stats vt_engine_grammar_stats(vt_engine *e)
{
    return e->grammars ? vt_grammar_store_look(e->grammars) : (vt_grammar_store_stats){0};
}
