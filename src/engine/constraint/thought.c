#include "engine/constraint/thought.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "text/tokenizer/tokenizer.h"

typedef enum phase { START, INSIDE, CLOSING, FREE, OUTSIDE } phase;

enum { MISSED = -1, MAX_CLOSE = 16, MAX_EOS = 16, RING = VT_DRAFT_MOST + 1 };

typedef struct place {
    phase phase;
    int32_t matched; /* bytes of the tag that is looked for; of CLOSING, tokens */
    int32_t thought; /* tokens so far */
    int32_t opened;  /* bytes of the grammar's opening; MISSED: it can come no more */
} place;

typedef struct thought {
    vt_thought_rules r;
    const char *opening; /* the grammar begins to hold behind it; NULL: behind the thought */
    bool at_start;       /* it counts at the beginning only */
    int32_t close[MAX_CLOSE], n_close;
    char open_tag[VT_THOUGHT_MAX_TAG], close_tag[VT_THOUGHT_MAX_TAG];
    int32_t open; /* the first token of the open tag, if no other text begins with it; -1 */
    int32_t eos[MAX_EOS], n_eos;
    place back[RING]; /* the last ones, a ring; the newest at `taken` */
    int32_t taken;    /* tokens */
    vt_matcher *m;    /* of what follows the thought; NULL: not begun */
    int32_t born;     /* `taken` when it began */
    bool hurried;     /* calls of the grammar that would take long are broken off */
    bool late;        /* as one of the last call was */
    vt_buf piece;
} thought;

static place *here(thought *s) { return &s->back[s->taken % RING]; }

/* Begins to follow the grammar behind n more tokens. */
static bool begin_grammar(thought *s, int32_t n)
{
    s->born = s->taken + n;
    s->m = vt_matcher_new(s->r.g, s->r.most - s->born);
    if (s->m)
        vt_matcher_hurry(s->m, s->hurried);
    return s->m != NULL;
}

static bool has_matcher(thought *s) { return s->m || begin_grammar(s, 0); }

/* Passes on an answer of the grammar's, and notes if it is none. */
static bool told(thought *s, bool answer)
{
    s->late = !answer && vt_matcher_is_late(s->m);
    return answer;
}

static bool take_token(thought *s, int32_t token)
{
    return has_matcher(s) && told(s, vt_matcher_take(s->m, token));
}

static phase behind_thought(const thought *s) { return s->opening ? FREE : OUTSIDE; }

/* True if what follows the thought holds from its first token on. */
static bool holds_at_once(const thought *s) { return s->r.g && !s->opening; }

static void forget_matcher(thought *s)
{
    vt_matcher_free(s->m);
    s->m = NULL;
}

static void allow(uint32_t *words, int32_t n_words, int32_t id)
{
    if (id >= 0 && id < 32 * n_words)
        words[id / 32] |= 1u << id % 32;
}

/* All tokens but those that would end the answer without its text. */
static vt_allowance allow_thought(const thought *s, uint32_t *words, int32_t n_words)
{
    if (!holds_at_once(s))
        return VT_ALLOW_ANY;
    for (int32_t id = 0; id < vt_tokenizer_vocab(s->r.t); id++)
        allow(words, n_words, id);
    for (int32_t i = 0; i < s->n_eos; i++)
        if (s->eos[i] < 32 * n_words)
            words[s->eos[i] / 32] &= ~(1u << s->eos[i] % 32);
    return VT_ALLOW_MASK;
}

/* All tokens but those that hold the opening and what the grammar does not allow behind it. */
static vt_allowance allow_free(thought *s, uint32_t *words, int32_t n_words)
{
    int32_t opened = here(s)->opened, n = (int32_t)strlen(s->opening);
    int32_t forbidden = 0;
    memset(words, 0xFF, (size_t)n_words * sizeof *words);
    if (opened > 0)
        forbidden = vt_grammar_forbid(s->r.g, s->hurried, s->opening + opened, n - opened, words,
                                      n_words);
    int32_t more = forbidden == VT_GRAMMAR_LATE || opened == MISSED
                       ? forbidden
                       : vt_grammar_forbid(s->r.g, s->hurried, s->opening, n, words, n_words);
    s->late = more == VT_GRAMMAR_LATE;
    return s->late ? VT_ALLOW_NOTHING : forbidden + more > 0 ? VT_ALLOW_MASK : VT_ALLOW_ANY;
}

static vt_allowance mask(void *state, uint32_t *words, int32_t n_words)
{
    thought *s = state;
    const place *p = here(s);
    s->late = false;
    if (p->phase == INSIDE)
        return allow_thought(s, words, n_words);
    if (p->phase == CLOSING) {
        allow(words, n_words, s->close[p->matched]);
        return VT_ALLOW_MASK;
    }
    if (!s->r.g)
        return VT_ALLOW_ANY;
    if (p->phase == FREE || (p->phase == START && s->opening))
        return allow_free(s, words, n_words);
    bool some = has_matcher(s) && told(s, vt_matcher_mask(s->m, words, n_words));
    if (p->phase == START && s->open >= 0 && !s->late) {
        allow(words, n_words, s->open);
        some = true;
    }
    return some ? VT_ALLOW_MASK : VT_ALLOW_NOTHING;
}

static bool is_too_large(void *state)
{
    const thought *s = state;
    return s->m && vt_matcher_is_too_large(s->m);
}

/* Looks for a tag in the bytes of a token; the bytes behind it are *rest. */
static bool find_tag(const thought *s, const char *tag, int32_t *matched, size_t *rest)
{
    for (size_t i = 0; i < s->piece.len; i++) {
        char c = s->piece.data[i];
        *matched = c == tag[*matched] ? *matched + 1 : c == tag[0];
        if (!tag[*matched]) {
            *rest = i + 1;
            return true;
        }
    }
    return false;
}

static bool is_blank(const vt_buf *b, size_t from)
{
    while (from < b->len && strchr(" \n\r\t", b->data[from]))
        from++;
    return from == b->len;
}

/* A token of the thought. False: </think> and text that no grammar saw share the token. */
static bool think(thought *s, place *p)
{
    size_t rest = 0;
    p->thought++;
    if (find_tag(s, s->close_tag, &p->matched, &rest)) {
        p->phase = behind_thought(s);
        p->opened = 0;
        return !holds_at_once(s) || is_blank(&s->piece, rest);
    }
    if (s->r.budget > 0 && p->thought >= s->r.budget) {
        p->phase = CLOSING;
        p->matched = 0;
    }
    return true;
}

/* Looks for the opening in the bytes of a token. False: what follows it there the grammar does not
 * allow. */
static bool look_for_opening(thought *s, place *p)
{
    int32_t n = (int32_t)strlen(s->opening);
    for (size_t i = 0; i < s->piece.len && p->opened != MISSED; i++) {
        char c = s->piece.data[i];
        bool blank = p->opened == 0 && strchr(" \n\r\t", c);
        bool restarts = c == s->opening[0] && (!s->at_start || p->opened == 0);
        p->opened = c == s->opening[p->opened] ? p->opened + 1 : restarts;
        if (s->at_start && p->opened == 0 && !blank)
            p->opened = MISSED;
        if (p->opened != n)
            continue;
        forget_matcher(s);
        p->phase = OUTSIDE;
        return begin_grammar(s, 1) && told(s, vt_matcher_begin(s->m, s->piece.data + i + 1,
                                                               (int32_t)(s->piece.len - i - 1)));
    }
    return true;
}

/* The first tokens, until they are <think> or something else. */
static bool begin(thought *s, place *p, int32_t token)
{
    size_t rest = 0;
    if (holds_at_once(s) && token == s->open) {
        forget_matcher(s);
        *p = (place){.phase = INSIDE, .thought = 1};
        return true;
    }
    if (holds_at_once(s)) {
        p->phase = OUTSIDE;
        return take_token(s, token);
    }
    int32_t before = p->matched;
    p->thought++;
    if (find_tag(s, s->open_tag, &p->matched, &rest)) {
        p->phase = INSIDE;
        p->matched = 0;
    } else if (before == 0 && is_blank(&s->piece, 0)) {
        p->matched = 0;
    } else if (p->matched != before + (int32_t)s->piece.len) {
        p->phase = behind_thought(s);
    }
    return p->phase == INSIDE || !s->opening || look_for_opening(s, p);
}

static bool take(void *state, int32_t token)
{
    thought *s = state;
    place next = *here(s);
    bool ok = true;
    s->late = false;
    vt_buf_clear(&s->piece);
    (void)vt_tokenizer_piece(s->r.t, token, &s->piece);
    if (s->piece.failed)
        return false;
    switch (next.phase) {
    case START:
        ok = begin(s, &next, token);
        break;
    case INSIDE:
        ok = think(s, &next);
        break;
    case CLOSING:
        ok = token == s->close[next.matched];
        if (++next.matched == s->n_close)
            next.phase = behind_thought(s);
        next.opened = 0;
        break;
    case FREE:
        ok = look_for_opening(s, &next);
        break;
    case OUTSIDE:
        ok = !s->r.g || take_token(s, token);
    }
    if (!ok)
        return false;
    s->taken++;
    *here(s) = next;
    return true;
}

static void undo(void *state, int32_t n)
{
    thought *s = state;
    if (n <= 0 || n > s->taken)
        return;
    s->taken -= n;
    if (s->m && s->taken < s->born)
        forget_matcher(s);
    else if (s->m)
        vt_matcher_undo(s->m, n);
}

static void release(void *state)
{
    thought *s = state;
    forget_matcher(s);
    vt_grammar_unref(s->r.g);
    vt_buf_release(&s->piece);
    free(s);
}

static void hurry(void *state, bool on)
{
    thought *s = state;
    s->hurried = on;
    if (s->m)
        vt_matcher_hurry(s->m, on);
}

static bool is_late(void *state) { return ((const thought *)state)->late; }

static int64_t n_new(void *state)
{
    const thought *s = state;
    vt_matcher_cost cost = s->m ? vt_matcher_spent(s->m) : (vt_matcher_cost){0};
    return cost.n - cost.n_cached;
}

/* Sets the tags, and the token that opens a thought. */
static bool set_tags(thought *s)
{
    const char *open = s->r.open ? s->r.open : "<think>";
    const char *close = s->r.close ? s->r.close : "</think>";
    vt_ids ids = {0};
    vt_err err;
    s->r.open = s->r.close = NULL; /* they are only borrowed */
    snprintf(s->open_tag, sizeof s->open_tag, "%s", open);
    snprintf(s->close_tag, sizeof s->close_tag, "%s", close);
    s->open = vt_tokenizer_find(s->r.t, s->open_tag, strlen(s->open_tag));
    if (s->open >= 0)
        return true;
    bool ok = vt_tokenizer_encode(s->r.t, s->open_tag, strlen(s->open_tag), VT_TOKENIZE_SPECIAL,
                                  &ids, &err) == VT_OK;
    if (ok && ids.n > 0 && vt_tokenizer_is_special(s->r.t, ids.id[0]))
        s->open = ids.id[0];
    vt_ids_release(&ids);
    return ok;
}

/* The tokens that close a thought; false: more than MAX_CLOSE, or out of memory. Templates write
 * line breaks around tags that are text. */
static bool find_close(thought *s)
{
    char text[VT_THOUGHT_MAX_TAG + 8];
    int32_t id = vt_tokenizer_find(s->r.t, s->close_tag, strlen(s->close_tag));
    bool special = s->close_tag[0] != '<' || s->close_tag[1] != '/' ||
                   (id >= 0 && vt_tokenizer_is_special(s->r.t, id));
    vt_ids ids = {0};
    vt_err err;
    int n = snprintf(text, sizeof text, special ? "%s" : "\n%s\n\n", s->close_tag);
    bool ok = vt_tokenizer_encode(s->r.t, text, (size_t)n, VT_TOKENIZE_SPECIAL, &ids, &err) ==
                  VT_OK &&
              ids.n > 0 && ids.n <= MAX_CLOSE;
    s->n_close = ok ? (int32_t)ids.n : 0;
    if (ok)
        memcpy(s->close, ids.id, ids.n * sizeof *ids.id);
    vt_ids_release(&ids);
    return ok;
}

bool vt_thought_new(const vt_thought_rules *rules, vt_constraint *out)
{
    thought *s = vt_calloc(1, sizeof *s);
    if (!s)
        return false;
    s->r = *rules;
    if (s->r.g)
        vt_grammar_ref(s->r.g);
    s->opening = s->r.g ? vt_grammar_opening(s->r.g, &s->at_start) : NULL;
    s->back[0].phase = rules->inside ? INSIDE : rules->none ? behind_thought(s) : START;
    s->n_eos = vt_tokenizer_eos_ids(rules->t, s->eos, MAX_EOS);
    s->n_eos = s->n_eos < MAX_EOS ? s->n_eos : MAX_EOS;
    if (!set_tags(s) || !find_close(s)) {
        release(s);
        return false;
    }
    *out = (vt_constraint){.state = s,
                           .mask = mask,
                           .take = take,
                           .undo = undo,
                           .free = release,
                           .is_too_large = is_too_large,
                           .n_new = n_new,
                           .hurry = hurry,
                           .is_late = is_late};
    return true;
}
