/* Sampling, beyond what the parity test covers: the distribution of many draws against exact
 * probabilities, membership of top-k and top-p sets, penalties and the token pool. Every test runs
 * on every implementation that the machine supports. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/op_run.h"
#include "ops/cases.h"
#include "ops/sample/sample.h"
#include "ops/sample/sample_impls.h"

enum { DRAWS = 40000, VOCAB = 60 };

/* A sampling call of n rows over one vocabulary, with room for results. */
typedef struct bed {
    op_args a; /* holds the memory */
    sample_args args;
    vt_sample_row *row;
    const vt_sample_row *rows_at;
    int32_t *token, pool[4], *pool_at;
    float *logprob;
} bed;

static const vt_sample_row plain_row = {.temperature = 1,
                                        .top_p = 1,
                                        .repetition_penalty = 1,
                                        .n_top = -1,
                                        .pool_slot = -1,
                                        .target = -1,
                                        .pending_slot = -1,
                                        .seed = 20260917};

/* Every row has the same logits and a different position. */
static void bed_init(bed *b, int64_t rows, const float *logits, int64_t vocab, vt_sample_row like)
{
    memset(b, 0, sizeof *b);
    vt_arena *arena = &b->a.arena;
    vt_arena_init(arena, 0);
    vt_tensor *l = case_tensor_2d(arena, VT_F32, rows, vocab),
              *token = case_tensor_1d(arena, VT_I32, rows);
    vt_tensor *logprob = case_tensor_1d(arena, VT_F32, rows);
    b->row = vt_arena_alloc(arena, (size_t)rows, sizeof *b->row);
    assert_true(l && token && logprob && b->row);
    for (int64_t r = 0; r < rows; r++) {
        memcpy((float *)l->data + r * vocab, logits, (size_t)vocab * sizeof *logits);
        b->row[r] = like;
        b->row[r].position += (int32_t)r;
    }
    b->token = token->data;
    b->logprob = logprob->data;
    b->rows_at = b->row;
    b->pool_at = b->pool;
    b->args = (sample_args){
        .logits = l,
        .row = &b->rows_at,
        .token_pool = &b->pool_at,
        .token = token,
        .logprob = logprob,
        .top_id = case_tensor_2d(arena, VT_I32, rows, VT_MAX_TOP_LOGPROBS),
        .top_logprob = case_tensor_2d(arena, VT_F32, rows, VT_MAX_TOP_LOGPROBS)};
    b->a.args = &b->args;
}

static void bed_release(bed *b) { vt_arena_release(&b->a.arena); }

/* Calls test(impl, teams) for every implementation that runs here. */
static void for_each_impl(void **state, void (*test)(const vt_impl *, const op_teams *))
{
    for (const vt_impl *const *impl = sample_op.impls; *impl; impl++)
        if (op_may_run(*impl))
            test(*impl, *state);
}

static void random_logits(float *l, int64_t n, float spread, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++)
        l[i] = spread * case_normal(&seed);
}

/* ---- distribution ---- */

/* Probabilities of `row` over `l`, by the definition. */
static void exact(const float *l, int32_t n, const vt_sample_row *row, double *p)
{
    double max = -INFINITY, sum = 0;
    bool kept[VOCAB];
    for (int32_t i = 0; i < n; i++)
        max = fmax(max, l[i]);
    for (int32_t i = 0; i < n; i++) {
        p[i] = exp((l[i] - max) / row->temperature);
        int32_t better = 0;
        for (int32_t j = 0; j < n; j++)
            better += l[j] > l[i] || (l[j] == l[i] && j < i);
        kept[i] = row->top_k == 0 || better < row->top_k;
        sum += kept[i] ? p[i] : 0;
    }
    for (int32_t i = 0; i < n && row->top_p < 1;
         i++) { /* not a member if those before it already reach top_p */
        double before = 0;
        for (int32_t j = 0; j < n; j++)
            if (l[j] > l[i] || (l[j] == l[i] && j < i))
                before += p[j];
        kept[i] = kept[i] && (before == 0 || before < row->top_p * sum);
    }
    sum = 0;
    for (int32_t i = 0; i < n; i++) {
        if (!kept[i] || p[i] < row->min_p)
            p[i] = 0;
        sum += p[i];
    }
    for (int32_t i = 0; i < n; i++)
        p[i] /= sum;
}

/* Chi-square of DRAWS draws; cells expected less than 8 times are pooled. The bound is the 1 - 1e-5
 * quantile (Wilson and Hilferty's approximation); seeds are fixed, so a failure is a change of the
 * code. */
static void check_draws(const vt_impl *impl, const op_teams *teams, const vt_sample_row *row,
                        float spread)
{
    float l[VOCAB];
    double p[VOCAB], chi = 0, rest = 0, rest_seen = 0;
    int32_t seen[VOCAB] = {0}, cells = 0;
    random_logits(l, VOCAB, spread, 5);
    exact(l, VOCAB, row, p);
    bed b;
    bed_init(&b, DRAWS, l, VOCAB, *row);
    op_run(&sample_op, impl, &b.a, teams, 2);
    for (int32_t r = 0; r < DRAWS; r++) {
        assert_in_range(b.token[r], 0, VOCAB - 1);
        seen[b.token[r]]++;
    }
    for (int32_t i = 0; i < VOCAB; i++) {
        double want = p[i] * DRAWS;
        if (p[i] == 0)
            assert_int_equal(seen[i], 0); /* not a member: never drawn */
        if (want < 8) {
            rest += want;
            rest_seen += seen[i];
            continue;
        }
        chi += (seen[i] - want) * (seen[i] - want) / want;
        cells++;
    }
    if (rest >= 8) {
        chi += (rest_seen - rest) * (rest_seen - rest) / rest;
        cells++;
    }
    double k = cells - 1, z = 4.265, h = 2 / (9 * k);
    double bound = k * pow(1 - h + z * sqrt(h), 3);
    if (!(chi <= bound))
        fail_msg("%s: chi-square %.1f over %d cells, bound %.1f", impl->name, chi, cells, bound);
    bed_release(&b);
}

static void distribution(const vt_impl *impl, const op_teams *teams)
{
    vt_sample_row row = plain_row;
    check_draws(impl, teams, &row, 1.5f);
    row.temperature = 0.6f;
    check_draws(impl, teams, &row, 1.5f);
    row.temperature = 2;
    row.top_k = 7;
    check_draws(impl, teams, &row, 1.5f);
    row.top_k = 0;
    row.top_p = 0.7f;
    check_draws(impl, teams, &row, 1.5f);
    row.top_p = 1;
    row.min_p = 0.1f;
    check_draws(impl, teams, &row, 1.5f);
    row.top_k = 30;
    row.top_p = 0.9f;
    row.min_p = 0.02f;
    row.temperature = 1.1f;
    check_draws(impl, teams, &row, 1.2f);
}

static void test_draws_follow_the_exact_distribution(void **state)
{
    for_each_impl(state, distribution);
}

/* ---- membership ---- */

/* Draws until every member must have been seen: with 40 near-equal logits, the set of tokens drawn
 * is exactly the first `size` of the order. */
static void check_members(const vt_impl *impl, const op_teams *teams, const float *l,
                          const vt_sample_row *row, int32_t size)
{
    bed b;
    bed_init(&b, 4000, l, 40, *row);
    op_run(&sample_op, impl, &b.a, teams, 1);
    bool seen[40] = {0};
    for (int32_t r = 0; r < 4000; r++)
        seen[b.token[r]] = true;
    for (int32_t i = 0; i < 40; i++) {
        int32_t rank = 0;
        for (int32_t j = 0; j < 40; j++)
            rank += l[j] > l[i] || (l[j] == l[i] && j < i);
        assert_int_equal(seen[i], rank < size);
    }
    bed_release(&b);
}

static void membership(const vt_impl *impl, const op_teams *teams)
{
    float equal[40], near[40];
    for (int32_t i = 0; i < 40; i++) {
        equal[i] = 1.25f;
        near[i] = 1 + 0.001f * (float)((i * 7) % 40);
    }
    vt_sample_row row = plain_row;
    for (int32_t k = 1; k <= 40; k += 13) {
        row.top_k = k;
        check_members(impl, teams, equal, &row, k); /* ties: lower ids first */
        check_members(impl, teams, near, &row, k);
    }
    row.top_k = 0;
    row.top_p = 0.5f; /* exactly 20 of 40 equal ids: the smallest set that reaches p */
    check_members(impl, teams, equal, &row, 20);
    row.top_p = 0.5f + 0x1p-20f;
    check_members(impl, teams, equal, &row, 21);
    row.top_p = 0;
    check_members(impl, teams, near, &row, 1);
    row.top_p = 1;
    row.min_p = 1; /* only ids as likely as the best */
    check_members(impl, teams, equal, &row, 40);
    check_members(impl, teams, near, &row, 1);
    row.min_p = 0;
    row.top_k = 8; /* top-p works on the ids that top-k keeps: 6 of 8 equal ones make 0.75 */
    row.top_p = 0.75f;
    check_members(impl, teams, equal, &row, 6);
}

static void test_top_k_and_top_p_keep_exactly_their_set(void **state)
{
    for_each_impl(state, membership);
}

/* ---- single rows ---- */

static int32_t sample_one_row(const vt_impl *impl, const op_teams *teams, const float *l, int64_t n,
                              const vt_sample_row *row, float *logprob)
{
    bed b;
    bed_init(&b, 1, l, n, *row);
    op_run(&sample_op, impl, &b.a, teams, 1);
    int32_t token = b.token[0];
    if (logprob)
        *logprob = b.logprob[0];
    bed_release(&b);
    return token;
}

static void greedy(const vt_impl *impl, const op_teams *teams)
{
    vt_sample_row row = plain_row;
    row.temperature = 0;
    float l[100];
    for (int32_t at = 0; at < 97; at += 16) {
        random_logits(l, 100, 1, 3);
        l[at] = l[at + 2] = l[99] = 9; /* the lowest of equals */
        assert_int_equal(sample_one_row(impl, teams, l, 100, &row, NULL), at);
    }
    random_logits(l, 100, 1, 3);
    l[41] = NAN;
    assert_int_equal(sample_one_row(impl, teams, l, 100, &row, NULL), -1);
    row.temperature = 1;
    assert_int_equal(sample_one_row(impl, teams, l, 100, &row, NULL), -1);
    for (int32_t i = 0; i < 100; i++)
        l[i] = -INFINITY;
    assert_int_equal(sample_one_row(impl, teams, l, 100, &row, NULL), -1);
    l[77] = -3; /* all others are masked out */
    assert_int_equal(sample_one_row(impl, teams, l, 100, &row, NULL), 77);
}

static void test_greedy_takes_the_lowest_of_equals_and_refuses_nan(void **state)
{
    for_each_impl(state, greedy);
}

static void penalties(const vt_impl *impl, const op_teams *teams)
{
    float l[8] = {4, 3.5f, 3, -1, 0, 0, 0, 0}, logprob;
    int32_t context[] = {5, 0, 1, 1}; /* prompt 5 0, output 1 1 */
    vt_sample_row row = plain_row;
    row.temperature = 0;
    row.context = context;
    row.n_prompt = 2;
    row.n_context = 4;
    row.repetition_penalty = 2; /* 0: 2, 1: 1.75, so 2 wins with 3 */
    assert_int_equal(sample_one_row(impl, teams, l, 8, &row, NULL), 2);
    row.repetition_penalty = 1;
    row.presence_penalty = 0.6f; /* only output counts: 1 falls to 2.9 */
    row.n_top = 0;
    assert_int_equal(sample_one_row(impl, teams, l, 8, &row, &logprob), 0);
    double sum = 0, adjusted[8] = {4, 2.9, 3, -1, 0, 0, 0, 0};
    for (int i = 0; i < 8; i++)
        sum += exp(adjusted[i]);
    assert_float_equal(logprob, 4 - log(sum), 1e-5);
    row.presence_penalty = 0;
    row.frequency_penalty = -0.3f; /* negative: 1, seen twice, rises to 4.1 */
    assert_int_equal(sample_one_row(impl, teams, l, 8, &row, NULL), 1);
    vt_logit_bias bias[] = {{3, 100}, {1, -100}};
    row.bias = bias;
    row.n_bias = 2;
    assert_int_equal(sample_one_row(impl, teams, l, 8, &row, NULL), 3);
}

static void test_penalties_and_bias_apply_in_order(void **state)
{
    for_each_impl(state, penalties);
}

/* The mask leaves three of 70 ids, each in another word; the best of all is not among them. */
static void masks(const vt_impl *impl, const op_teams *teams)
{
    float l[70], logprob;
    uint32_t mask[3] = {1u << 31, 1, 0xffffffe0u}; /* 31, 32 and 69, and bits beyond the end */
    int32_t context[] = {40, 31};
    vt_sample_row row = plain_row;
    random_logits(l, 70, 1, 3);
    l[31] = 2, l[32] = 1, l[69] = 2, l[40] = 50;
    l[7] = NAN; /* masked, so it has no effect */
    row.mask = mask;
    row.n_top = 5;
    row.temperature = 0;
    double sum = 2 * exp(2) + exp(1);
    assert_int_equal(sample_one_row(impl, teams, l, 70, &row, &logprob), 31);
    assert_float_equal(logprob, 2 - log(sum), 1e-5);
    row.target = 32; /* scoring counts only ids that are left */
    assert_int_equal(sample_one_row(impl, teams, l, 70, &row, &logprob), 32);
    assert_float_equal(logprob, 1 - log(sum), 1e-5);
    row.target = 40;
    assert_int_equal(sample_one_row(impl, teams, l, 70, &row, &logprob), 40);
    assert_true(logprob == -INFINITY);
    row.target = -1;
    vt_logit_bias bias[] = {{40, 100}, {32, 1.5f}}; /* a bias cannot unmask 40; it raises 32 */
    row.bias = bias;
    row.n_bias = 2;
    assert_int_equal(sample_one_row(impl, teams, l, 70, &row, &logprob), 32);
    row.n_bias = 0;
    row.context = context;
    row.n_context = 2;
    row.presence_penalty = 1;
    assert_int_equal(sample_one_row(impl, teams, l, 70, &row, NULL), 69);
    row.presence_penalty = 0;

    bed b;
    bool seen[70] = {0};
    row.temperature = 1.5f;
    row.top_k = 2; /* 31 and 69: only ids that are left have ranks */
    bed_init(&b, 400, l, 70, row);
    op_run(&sample_op, impl, &b.a, teams, 2);
    for (int32_t r = 0; r < 400; r++)
        seen[b.token[r]] = true;
    for (int32_t id = 0; id < 70; id++)
        assert_int_equal(seen[id], id == 31 || id == 69);
    const int32_t *top_id = b.args.top_id->data;
    const float *top = b.args.top_logprob->data;
    assert_true(top_id[0] == 31 && top_id[1] == 69 && top_id[2] == 32);
    assert_true(isfinite(top[2]) && top_id[3] == -1 && top_id[4] == -1);
    bed_release(&b);
}

static void test_mask_leaves_only_its_ids(void **state) { for_each_impl(state, masks); }

static void masked_out(const vt_impl *impl, const op_teams *teams)
{
    float l[70];
    uint32_t nothing[3] = {0, 0, 0xffffffc0u}, hopeless[3] = {1u << 9, 1u << 9, 0};
    vt_sample_row row = plain_row;
    random_logits(l, 70, 1, 3);
    for (int sampled = 0; sampled < 2; sampled++) {
        row.temperature = (float)sampled;
        l[9] = l[41] = -INFINITY;
        row.mask = nothing;
        assert_int_equal(sample_one_row(impl, teams, l, 70, &row, NULL), -1);
        row.mask = hopeless;
        assert_int_equal(sample_one_row(impl, teams, l, 70, &row, NULL), -1);
        l[41] = NAN;
        assert_int_equal(sample_one_row(impl, teams, l, 70, &row, NULL), -1);
        l[41] = -1000;
        assert_int_equal(sample_one_row(impl, teams, l, 70, &row, NULL), 41);
    }
}

static void test_mask_when_nothing_is_left_then_no_token(void **state)
{
    for_each_impl(state, masked_out);
}

/* The pending token counts as output, and the chosen one lands in its slot. */
static void pool(const vt_impl *impl, const op_teams *teams)
{
    float l[4] = {3, 2.9f, 0, 0};
    int32_t context[] = {3};
    vt_sample_row row = plain_row;
    row.temperature = 0;
    row.presence_penalty = 1;
    row.context = context;
    row.n_prompt = 1;
    row.n_context = 1;
    row.pending_slot = row.pool_slot = 2;
    bed b;
    bed_init(&b, 1, l, 4, row);
    b.pool[2] = 0;
    op_run(&sample_op, impl, &b.a, teams, 1);
    assert_int_equal(b.token[0], 1);
    assert_int_equal(b.pool[2], 1);
    bed_release(&b);
    row.context = NULL; /* only the pending token is known */
    row.n_prompt = row.n_context = 0;
    bed_init(&b, 1, l, 4, row);
    b.pool[2] = 0;
    op_run(&sample_op, impl, &b.a, teams, 1);
    assert_int_equal(b.token[0], 1);
    bed_release(&b);
}

static void test_pending_token_is_penalised_and_pool_is_written(void **state)
{
    for_each_impl(state, pool);
}

/* Random123's known answer for philox4x32-10 with counter and key 0. */
static void test_philox_matches_its_published_vector(void **state)
{
    (void)state;
    assert_true(sample_uniform(0, 0) == (float)(0x6627e8d5u >> 8) * 0x1p-24f);
    double sum = 0;
    for (uint64_t i = 0; i < 10000; i++) {
        float u = sample_uniform(9, i);
        assert_true(u >= 0 && u < 1);
        sum += (double)u;
    }
    assert_float_equal(sum / 10000, 0.5, 0.01);
    assert_true(sample_uniform(1, 5) != sample_uniform(5, 1));
}

/* By hand: what is more than 0 is divided by the repetition penalty and what is less multiplied, so
 * that both become less likely; presence counts once and frequency each time, of the answer alone.
 * (The reference and the rows share this function: parity does not see it.) */
static void test_sample_penalties_are_those_of_the_formula(void **state)
{
    (void)state;
    const int32_t context[] = {0, 1, 2, 1, 4, 4, 4, 99}; /* 3 of the prompt; an id of no token */
    const vt_logit_bias bias[] = {{5, -1.5f}, {99, 7}};
    const uint32_t mask[] = {0x7f}; /* 7 is not allowed */
    float logits[] = {2, -2, 0, 3, 8, 1, 6, 9};
    const float want[] = {1,     -4 - 0.5f - 0.25f, 0,        3, 4 - 0.5f - 3 * 0.25f,
                          -0.5f, 3 - 0.5f - 0.25f,  -INFINITY};
    int32_t seen[8], pool[] = {-7, 6};
    vt_sample_row row = plain_row;
    row.repetition_penalty = 2;
    row.presence_penalty = 0.5f;
    row.frequency_penalty = 0.25f;
    row.context = context;
    row.n_prompt = 3;
    row.n_context = 8;
    row.pending_slot = 1; /* and a token that is still in flight: 6 */
    row.bias = bias;
    row.n_bias = 2;
    row.mask = mask;
    sample_adjust(logits, 8, &row, pool, seen);
    for (int i = 0; i < 8; i++)
        if (logits[i] != want[i])
            fail_msg("id %d: %g, expected %g", i, (double)logits[i], (double)want[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox_matches_its_published_vector),
        cmocka_unit_test(test_draws_follow_the_exact_distribution),
        cmocka_unit_test(test_top_k_and_top_p_keep_exactly_their_set),
        cmocka_unit_test(test_greedy_takes_the_lowest_of_equals_and_refuses_nan),
        cmocka_unit_test(test_penalties_and_bias_apply_in_order),
        cmocka_unit_test(test_sample_penalties_are_those_of_the_formula),
        cmocka_unit_test(test_mask_leaves_only_its_ids),
        cmocka_unit_test(test_mask_when_nothing_is_left_then_no_token),
        cmocka_unit_test(test_pending_token_is_penalised_and_pool_is_written),
    };
    return cmocka_run_group_tests(tests, op_teams_setup, op_teams_teardown);
}
