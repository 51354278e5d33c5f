#include "grammar_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "grammar_vocab.h"

vt_tokenizer *tokenizer;
vt_grammar_vocab *vocab;

int grammar_set_up(void **state)
{
    (void)state;
    vt_err err;
    tokenizer = grammar_test_tokenizer();
    return tokenizer && vt_grammar_vocab_new(tokenizer, INT32_MAX, &vocab, &err) == VT_OK ? 0 : 1;
}

int grammar_tear_down(void **state)
{
    (void)state;
    vt_grammar_vocab_free(vocab);
    vt_tokenizer_free(tokenizer);
    return 0;
}

vt_grammar *compile(vt_grammar_kind kind, const char *text)
{
    vt_grammar *g = NULL;
    vt_err err;
    if (vt_grammar_compile(vocab, kind, text, strlen(text), &g, &err) != VT_OK)
        fail_msg("%s: %s", text, err.message);
    return g;
}

/* Single bytes are tokens 0 .. 255. */
bool accepts(vt_grammar *g, const char *text)
{
    vt_matcher *m = vt_matcher_new(g, 0);
    bool ok = true;
    for (const char *p = text; ok && *p; p++)
        ok = vt_matcher_take(m, (unsigned char)*p);
    ok = ok && vt_matcher_accepts(m);
    vt_matcher_free(m);
    return ok;
}
