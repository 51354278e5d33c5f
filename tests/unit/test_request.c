/* Making a request (engine/request.h): what is just allowed and what is just refused, and what of
 * the parameters becomes sampling rows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <math.h>

#include "engine/request.h"

enum { VOCAB = 300 };

static vt_tokenizer *tokenizer;
static const int32_t eos[] = {7, 299};
static const int32_t prompt[] = {1, 2, 3, 4};

static int open_tokenizer(void **state)
{
    (void)state;
    return vt_tokenizer_synthetic(512, &tokenizer, NULL) == VT_OK ? 0 : -1;
}

static int close_tokenizer(void **state)
{
    (void)state;
    vt_tokenizer_free(tokenizer);
    return 0;
}

static vt_req_limits limits(void)
{
    return (vt_req_limits){.vocab = VOCAB,
                           .max_context = 64,
                           .page_size = 4,
                           .n_pages = 100,
                           .max_queued = 8,
                           .eos = eos,
                           .n_eos = 2,
                           .tokenizer = tokenizer,
                           .seed = 5};
}

static vt_request_params plain(void)
{
    vt_request_params p;
    vt_request_init(&p);
    p.prompt = prompt;
    p.n_prompt = 4;
    p.max_tokens = 10;
    return p;
}

static vt_req *make(const vt_request_params *p)
{
    vt_req_limits lim = limits();
    vt_req *r = NULL;
    vt_err err = {0};
    if (vt_req_new(p, 1, 1000, &lim, &r, &err) != VT_OK)
        fail_msg("%s", err.message);
    return r;
}

static void refuse(const vt_request_params *p, const char *words)
{
    vt_req_limits lim = limits();
    vt_req *r = NULL;
    vt_err err = {0};
    assert_int_equal(vt_req_new(p, 1, 1000, &lim, &r, &err), VT_ERR_USAGE);
    if (!strstr(err.message, words))
        fail_msg("\"%s\" lacks \"%s\"", err.message, words);
}

static void
test_request_stop_when_of_the_most_bytes_then_taken_and_of_one_more_refused(void **state)
{
    (void)state;
    static char text[VT_MAX_STOP_BYTES + 2];
    const char *stop[] = {text};
    vt_request_params p = plain();
    memset(text, 'x', VT_MAX_STOP_BYTES);
    p.stop = stop;
    p.n_stop = 1;
    vt_req *r = make(&p);
    assert_int_equal(strlen(r->p.stop[0]), VT_MAX_STOP_BYTES);
    vt_req_free(r);
    text[VT_MAX_STOP_BYTES] = 'x';
    refuse(&p, "stop string 0 has more");
    text[0] = 0;
    refuse(&p, "stop string 0 has no bytes");
}

static void test_request_allowed_when_given_then_the_mask_has_these_bits(void **state)
{
    (void)state;
    static const int32_t allowed[] = {0, 30, 31, 32, 63, 64, 255, 299};
    vt_request_params p = plain();
    p.allowed = allowed;
    p.n_allowed = 8;
    vt_req *r = make(&p);
    for (int32_t id = 0, k = 0; id < VOCAB; id++) {
        bool in = k < 8 && allowed[k] == id;
        k += in;
        if ((r->mask[id / 32] >> id % 32 & 1) != in)
            fail_msg("id %d: expected %d", id, in);
    }
    assert_ptr_equal(r->seq[0].row.mask, r->mask);
    vt_req_free(r);
}

static bool forbids(const vt_req *r, int32_t id)
{
    for (int32_t i = 0; i < r->n_early_bias; i++)
        if (r->early_bias[i].id == id && r->early_bias[i].bias == -INFINITY)
            return true;
    return false;
}

/* Before min_tokens nothing ends the answer: neither the model's ends nor the request's own. */
static void test_request_min_tokens_when_given_then_every_end_is_forbidden_at_first(void **state)
{
    (void)state;
    static const int32_t stop_ids[] = {11, -3, VOCAB};
    static const vt_logit_bias bias[] = {{5, 2.5f}};
    vt_request_params p = plain();
    p.min_tokens = 3;
    p.stop_ids = stop_ids;
    p.n_stop_ids = 3;
    p.logit_bias = bias;
    p.n_logit_bias = 1;
    for (int ignore = 0; ignore < 2; ignore++) {
        p.ignore_eos = ignore;
        vt_req *r = make(&p);
        assert_int_equal(r->n_early_bias, ignore ? 2 : 4);
        assert_true(r->early_bias[0].id == 5 && r->early_bias[0].bias == 2.5f);
        assert_true(forbids(r, 11));
        assert_int_equal(forbids(r, 7), !ignore);
        assert_int_equal(forbids(r, 299), !ignore);
        assert_int_equal(r->seq[0].row.n_bias, 1);
        vt_req_free(r);
    }
    p.min_tokens = 11;
    refuse(&p, "min_tokens is 11, expected 0 to 10");
}

static void test_request_timeout_counts_seconds_from_its_arrival(void **state)
{
    (void)state;
    vt_request_params p = plain();
    vt_req *r = make(&p);
    assert_true(r->deadline_ns == INT64_MAX);
    vt_req_free(r);
    p.timeout_s = 2.5;
    r = make(&p);
    assert_true(r->deadline_ns == 1000 + INT64_C(2500000000));
    vt_req_free(r);
}

/* Each penalty alone is enough for the row to look at the text. */
static void test_request_penalties_when_one_is_set_then_the_row_has_its_context(void **state)
{
    (void)state;
    for (int which = 0; which < 4; which++) {
        vt_request_params p = plain();
        p.repetition_penalty = which == 1 ? 1.1f : 1;
        p.presence_penalty = which == 2 ? 0.5f : 0;
        p.frequency_penalty = which == 3 ? 0.5f : 0;
        vt_req *r = make(&p);
        assert_int_equal(r->seq[0].row.context != NULL, which > 0);
        vt_req_free(r);
    }
}

static void test_request_seeds_of_samples_differ_and_the_first_is_as_given(void **state)
{
    (void)state;
    vt_request_params p = plain();
    p.n = 3;
    p.has_seed = true;
    p.seed = 42;
    vt_req *r = make(&p), *again = make(&p);
    assert_true(r->seq[0].row.seed == 42);
    assert_true(r->seq[1].row.seed != 42 && r->seq[2].row.seed != 42);
    assert_true(r->seq[1].row.seed != r->seq[2].row.seed);
    for (int i = 0; i < 3; i++)
        assert_true(r->seq[i].row.seed == again->seq[i].row.seed);
    vt_req_free(r);
    vt_req_free(again);
}

static void test_request_length_is_bounded_by_context_and_pool(void **state)
{
    (void)state;
    vt_req_limits lim = limits();
    vt_request_params p = plain();
    vt_req *r;
    p.max_tokens = 1000;
    assert_int_equal(vt_req_new(&p, 1, 0, &lim, &r, NULL), VT_OK);
    assert_int_equal(r->seq[0].max_len, 64);
    vt_req_free(r);
    lim.n_pages = 5; /* 20 tokens; the last one's KV is never needed */
    assert_int_equal(vt_req_new(&p, 1, 0, &lim, &r, NULL), VT_OK);
    assert_int_equal(r->seq[0].max_len, 21);
    vt_req_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            test_request_stop_when_of_the_most_bytes_then_taken_and_of_one_more_refused),
        cmocka_unit_test(test_request_allowed_when_given_then_the_mask_has_these_bits),
        cmocka_unit_test(test_request_min_tokens_when_given_then_every_end_is_forbidden_at_first),
        cmocka_unit_test(test_request_timeout_counts_seconds_from_its_arrival),
        cmocka_unit_test(test_request_penalties_when_one_is_set_then_the_row_has_its_context),
        cmocka_unit_test(test_request_seeds_of_samples_differ_and_the_first_is_as_given),
        cmocka_unit_test(test_request_length_is_bounded_by_context_and_pool),
    };
    return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}
