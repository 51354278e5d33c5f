#include "striped_rules.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

typedef struct striped {
    int32_t n, vocab; /* tokens taken */
} striped;

static bool allowed(int32_t n, int32_t token, int32_t vocab)
{
    return n % 4 == 3 ? token == (n * 7 + 2) % vocab : token % 3 == n % 3;
}

static vt_allowance stripe_mask(void *state, uint32_t *words, int32_t n_words)
{
    const striped *s = state;
    for (int32_t id = 0; id < s->vocab && id < 32 * n_words; id++)
        if (allowed(s->n, id, s->vocab))
            words[id / 32] |= 1u << id % 32;
    return VT_ALLOW_MASK;
}

static bool stripe_take(void *state, int32_t token)
{
    striped *s = state;
    if (!allowed(s->n, token, s->vocab))
        return false;
    s->n++;
    return true;
}

static void stripe_undo(void *state, int32_t n) { ((striped *)state)->n -= n; }

static bool make(void *user, int32_t sample, vt_constraint *out)
{
    striped *s = calloc(1, sizeof *s);
    (void)sample;
    assert_non_null(s);
    s->vocab = *(const int32_t *)user;
    *out = (vt_constraint){
        .state = s, .mask = stripe_mask, .take = stripe_take, .undo = stripe_undo, .free = free};
    return true;
}

void striped_submit(vt_engine *e, const vt_request_params *p, int32_t vocab)
{
    vt_err err;
    const vt_constraint_maker maker = {.user = &vocab, .make = make};
    if (vt_engine_submit_constrained(e, p, &maker, NULL, &err) != VT_OK)
        fail_msg("%s", err.message);
}

void striped_check(int32_t n, int32_t token, int32_t vocab)
{
    if (!allowed(n, token, vocab))
        fail_msg("token %d of the answer is %d, which the rules do not allow", n, token);
}
