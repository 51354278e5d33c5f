/* The block of a step that the CUDA executor makes, without a GPU: padded to a bucket it holds the
 * same step, and it fits into its place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/cuda_inside.h"
#include "exec/describe.h"
#include "model/load.h"
#include "ops/attention/attention_cuda.h"
#include "ops/knobs.h"

enum {
    MAX_TOKENS = 1500,
    MAX_SEQS = 40,
    MAX_ROWS = 2 * MAX_SEQS,
    MAX_PAGES = 4096,
    PAGE = 16,
    N_PAGES = 777
};

/* Arrays of a batch that the test fills. */
typedef struct step_arrays {
    vt_step step;
    int32_t token[MAX_TOKENS], position[MAX_TOKENS], seq_of[MAX_TOKENS], slot[MAX_TOKENS],
        q_start[MAX_SEQS + 1], kv_len[MAX_SEQS], page_start[MAX_SEQS + 1], page_ids[MAX_PAGES],
        row_token[MAX_TOKENS];
} step_arrays;

static uint32_t random_below(uint32_t *state, uint32_t n)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % n;
}

static void add_sequence(step_arrays *a, uint32_t *rng, int32_t q_len, bool drafted)
{
    vt_batch *b = &a->step.batch;
    int32_t s = b->n_seqs++, past = (int32_t)random_below(rng, 600);
    a->kv_len[s] = past + q_len;
    for (int32_t i = 0; i < q_len; i++) {
        int32_t t = b->n_tokens++;
        a->token[t] = (int32_t)random_below(rng, 50000);
        a->position[t] = past + i;
        a->seq_of[t] = s;
        a->slot[t] = (int32_t)random_below(rng, N_PAGES * PAGE);
    }
    int32_t n_pages = (past + q_len + PAGE - 1) / PAGE, common = 0;
    if (s > 0 && random_below(rng, 2)) { /* begins like one of those before it */
        int32_t other = (int32_t)random_below(rng, (uint32_t)s), from = a->page_start[other],
                least = a->page_start[other + 1] - from;
        least = least < n_pages ? least : n_pages;
        common = least > 0 ? (int32_t)random_below(rng, (uint32_t)least + 1) : 0;
        memcpy(a->page_ids + b->n_pages, a->page_ids + from, (size_t)common * 4);
    }
    for (int32_t p = common; p < n_pages; p++)
        a->page_ids[b->n_pages + p] = (int32_t)random_below(rng, N_PAGES);
    b->n_pages += n_pages;
    a->q_start[s + 1] = b->n_tokens;
    a->page_start[s + 1] = b->n_pages;
    int32_t rows = drafted ? q_len : random_below(rng, 4) > 0 || q_len == 1;
    for (int32_t i = b->n_tokens - rows; i < b->n_tokens; i++)
        a->row_token[b->n_rows++] = i;
}

static void make_step(step_arrays *a, uint32_t *rng)
{
    int32_t n_decode = (int32_t)random_below(rng, MAX_SEQS / 2 + 1),
            n_drafted = (int32_t)(random_below(rng, 2) * random_below(rng, 6)),
            n_prefill = (int32_t)random_below(rng, 4) + (n_decode + n_drafted == 0);
    memset(a, 0, sizeof *a);
    for (int32_t i = 0; i < n_decode; i++)
        add_sequence(a, rng, 1, false);
    a->step.batch.n_decode = n_decode;
    for (int32_t i = 0; i < n_drafted; i++)
        add_sequence(a, rng, 2 + (int32_t)random_below(rng, VT_DECODE_MOST - 1), true);
    a->step.batch.n_drafted = n_drafted;
    for (int32_t i = 0; i < n_prefill; i++)
        add_sequence(a, rng, 1 + (int32_t)random_below(rng, 300), false);
    vt_batch *b = &a->step.batch;
    b->token = a->token;
    b->position = a->position;
    b->seq_of = a->seq_of;
    b->slot = a->slot;
    b->q_start = a->q_start;
    b->kv_len = a->kv_len;
    b->page_start = a->page_start;
    b->page_ids = a->page_ids;
    b->page_size = PAGE;
    b->row_token = a->row_token;
}

/* The part of an executor that a step's block needs: the program of a model, described for a
 * GPU. */
typedef struct rig {
    cuda_executor x;
    vt_described d;
    vt_model *m;
} rig;

static rig *new_rig(const char *model, bool deterministic, const vt_limits *limits)
{
    rig *r = calloc(1, sizeof *r);
    vt_err err = {0};
    assert_non_null(r);
    vt_target t = vt_target_named(vt_hardware_find("h200", NULL), limits);
    t.sm_count = 20;
    vt_target_turn_knobs(&t, 1);
    t.deterministic = deterministic;
    if (vt_model_load(model, &r->m, &err) != VT_OK ||
        vt_describe(r->m, &t, VT_BF16, &r->d, &err) != VT_OK)
        fail_msg("%s", err.message);
    cuda_executor *x = &r->x;
    x->prog = r->d.program;
    x->config.limits = *limits;
    x->config.n_pages = N_PAGES;
    x->kv.first_page = 1;
    x->graph_tokens = GRAPH_TOKENS;
    x->tail_bytes = cuda_step_tail_bytes(x, limits->max_rows);
    for (int32_t i = 0, n = 0; i < x->prog->n_plans; i++)
        x->side_part[i] = x->prog->plan[i].plan->most_side_bytes ? n++ : -1;
    return r;
}

static void free_rig(rig *r)
{
    vt_described_release(&r->d);
    vt_model_free(r->m);
    free(r);
}

static vt_limits step_limits(void)
{
    return (vt_limits){.max_tokens = MAX_TOKENS,
                       .max_seqs = MAX_SEQS,
                       .max_rows = MAX_ROWS,
                       .max_context = 1024,
                       .page_size = PAGE,
                       .decode_tokens = VT_DECODE_MOST};
}

static rig *step_rig(bool deterministic)
{
    vt_limits limits = step_limits();
    return new_rig("dummy:qwen3-0.6b", deterministic, &limits);
}

static vt_size largest_size(const cuda_executor *x)
{
    const vt_limits *lim = &x->config.limits;
    return (vt_size){.tokens = lim->max_tokens,
                     .seqs = lim->max_seqs,
                     .rows = lim->max_rows,
                     .decodes = lim->max_seqs,
                     .prefills = lim->max_seqs,
                     .copies = lim->max_seqs};
}

/* The index of the program's plan of this name; -1: none. */
static int32_t plan_of(const cuda_executor *x, const char *name)
{
    for (int32_t i = 0; i < x->prog->n_plans; i++)
        if (strcmp(x->prog->plan[i].plan->name, name) == 0)
            return i;
    return -1;
}

/* The index of a plan that must exist. */
static int32_t must_plan(const cuda_executor *x, const char *name)
{
    int32_t i = plan_of(x, name);
    if (i < 0)
        fail_msg("the program has no plan '%s'", name);
    return i;
}

/* The plan of decode attention; deterministic programs have another one. */
static int32_t decode_plan(const cuda_executor *x)
{
    return must_plan(x, x->prog->target.deterministic ? "chunks in tiles of 64 or 128 rows"
                                                      : "KV ranges");
}

static const int32_t *at(const char *block, size_t offset)
{
    return (const int32_t *)(block + offset);
}

static void expect_equal(const char *a, size_t a_at, const char *b, size_t b_at, int32_t n)
{
    if (n > 0)
        assert_memory_equal(a + a_at, b + b_at, (size_t)n * 4);
}

/* Items [0, n) are the same, and the rest of the padded plan is empty or belongs to padding. */
static void expect_same_plan(const char *plain, size_t plain_at, int32_t n_plain,
                             const char *padded, size_t padded_at, int32_t n_padded, int32_t ints,
                             int32_t n_seqs)
{
    int32_t n = 0;
    while (n < n_plain && at(plain, plain_at)[n * ints] >= 0)
        n++;
    assert_true(n <= n_padded);
    expect_equal(plain, plain_at, padded, padded_at, n * ints);
    for (int32_t i = n; i < n_padded; i++) {
        int32_t seq = at(padded, padded_at)[i * ints];
        assert_true(seq == -1 || seq >= n_seqs);
    }
}

/* Every sequence of [first, last) has an item. */
static void expect_padding_planned(const int32_t *plan, int32_t n_items, int32_t ints,
                                   int32_t first, int32_t last)
{
    for (int32_t seq = first; seq < last; seq++) {
        int32_t i = 0;
        while (i < n_items && plan[i * ints] != seq)
            i++;
        assert_true(i < n_items);
    }
}

static int32_t n_shared;  /* compared items that have several sequences */
static int32_t n_several; /* compared steps that are a decode bucket of several tokens each */
static int32_t n_left;    /* those of several that are none: other rows would run in a bucket */

static void expect_same_step(cuda_executor *x, const step_arrays *a, char *plain, char *padded)
{
    const vt_batch *b = &a->step.batch;
    x->options.graphs = false;
    step_shape s = cuda_step_shape(x, b);
    step_layout l = cuda_step_layout(x, &s);
    size_t end;
    assert_int_equal(cuda_step_fill(x, &a->step, &s, plain, &end, NULL), VT_OK);
    x->options.graphs = true;
    step_shape g = cuda_step_shape(x, b);
    step_layout m = cuda_step_layout(x, &g);
    assert_int_equal(cuda_step_fill(x, &a->step, &g, padded, &end, NULL), VT_OK);
    assert_true(end <= x->step_bytes);
    assert_int_equal(s.size.tokens, b->n_tokens);
    assert_false(s.decode || s.body || s.tail);
    assert_true(g.size.tokens >= b->n_tokens && g.size.rows >= b->n_rows &&
                g.size.seqs >= b->n_seqs);
    assert_int_equal(g.size.pad_seqs, g.decode ? g.size.seqs - b->n_seqs : 0);
    const size_t per_token[][2] = {
        {l.token, m.token}, {l.position, m.position}, {l.seq_of, m.seq_of}, {l.slot, m.slot}};
    for (size_t i = 0; i < 4; i++)
        expect_equal(plain, per_token[i][0], padded, per_token[i][1], b->n_tokens);
    for (int32_t t = 0; t < b->n_tokens; t++) /* the device's first page is for padding */
        assert_int_equal(at(padded, m.slot)[t], b->slot[t] + PAGE);
    for (int32_t p = 0; p < b->n_pages; p++)
        assert_int_equal(at(padded, m.page_ids)[p], b->page_ids[p] + 1);
    for (int32_t t = b->n_tokens; t < g.size.tokens; t++)
        assert_int_equal(at(padded, m.slot)[t], 0);
    expect_equal(plain, l.q_start, padded, m.q_start, b->n_seqs + 1);
    expect_equal(plain, l.kv_len, padded, m.kv_len, b->n_seqs);
    expect_equal(plain, l.page_start, padded, m.page_start, b->n_seqs + 1);
    expect_equal(plain, l.page_ids, padded, m.page_ids, b->n_pages);
    expect_equal(plain, l.row_token, padded, m.row_token, b->n_rows);
    for (int32_t r = b->n_rows; r < g.size.rows; r++)
        assert_in_range(at(padded, m.row_token)[r], 0, g.size.tokens - 1);
    int32_t d = decode_plan(x), p = must_plan(x, "tiles of 128 rows"),
            decodes = b->n_decode + b->n_drafted;
    assert_int_equal(s.used[d], decodes > 0);
    assert_int_equal(g.used[d], s.used[d]);
    assert_int_equal(s.used[p], decodes < b->n_seqs);
    bool alone = decodes == b->n_seqs && b->n_rows <= MAX_ROWS;
    assert_true(b->n_drafted == 0 ? g.decode == alone : !g.decode || alone);
    if (g.decode) /* the same rows run as without padding */
        assert_int_equal(vt_padded_tokens(g.size.tokens), vt_padded_tokens(b->n_tokens));
    n_left += alone && !g.decode;
    assert_int_equal(g.size.decode_tokens > 1, b->n_drafted > 0);
    assert_int_equal(g.size.decode_tokens, s.size.decode_tokens);
    n_several += g.decode && b->n_drafted > 0;
    assert_int_equal(g.used[p], s.used[p]);
    expect_same_plan(plain, l.plan[d], s.items[d], padded, m.plan[d], g.items[d], DECODE_ITEM_INTS,
                     b->n_seqs);
    const int32_t *item = at(plain, l.plan[d]);
    bool may = x->prog->plan[d].plan->shared != NULL;
    assert_int_equal(s.variant[d], may && s.used[d] && item[6] > 0); /* shared items come first */
    assert_int_equal(g.variant[d], s.variant[d]);
    for (int32_t i = 0; may && i < s.items[d] && item[i * 8] >= 0; i++)
        if (item[i * 8 + 6] > 0) { /* several sequences, which the table after the items lists */
            size_t first = (size_t)item[i * 8] * DECODE_MEMBER_INTS * 4;
            expect_equal(plain, l.plan[d] + (size_t)s.items[d] * 32 + first, padded,
                         m.plan[d] + (size_t)g.items[d] * 32 + first,
                         3 + DECODE_MEMBER_INTS * (item[i * 8 + 6] - 1));
            n_shared++;
        }
    if (g.decode) /* padding sequences have their items too */
        expect_padding_planned(at(padded, m.plan[d]), g.items[d], DECODE_ITEM_INTS, b->n_seqs,
                               g.size.seqs);
    expect_same_plan(plain, l.plan[p], s.items[p], padded, m.plan[p], g.items[p], PREFILL_ITEM_INTS,
                     b->n_seqs);
    for (int32_t q = b->n_seqs; g.decode && q < g.size.seqs; q++) {
        assert_int_equal(at(padded, m.kv_len)[q], 1);
        assert_int_equal(at(padded, m.q_start)[q + 1], b->n_tokens + q - b->n_seqs + 1);
        assert_int_equal(at(padded, m.row_token)[b->n_rows + q - b->n_seqs],
                         at(padded, m.q_start)[q]);
        assert_int_equal(at(padded, m.page_ids)[at(padded, m.page_start)[q]], 0);
    }
}

static void test_step_when_padded_then_it_holds_the_same_step(void **state)
{
    (void)state;
    uint32_t rng = 5;
    step_arrays *a = malloc(sizeof *a);
    for (int deterministic = 0; deterministic < 2; deterministic++) {
        rig *r = step_rig(deterministic);
        cuda_executor *x = &r->x;
        vt_size largest = largest_size(x);
        step_shape most = cuda_step_of_size(x, &largest);
        x->step_bytes = cuda_step_layout(x, &most).page_ids + (MAX_PAGES + MAX_SEQS) * 4;
        char *plain = malloc(x->step_bytes), *padded = malloc(x->step_bytes);
        assert_true(a && plain && padded);
        for (int i = 0; i < 400; i++) {
            make_step(a, &rng);
            expect_same_step(x, a, plain, padded);
        }
        free(plain);
        free(padded);
        assert_int_equal(x->shared_items > 0, !deterministic);
        free_rig(r);
    }
    free(a);
    assert_true(n_shared > 100 && n_several > 20 && n_left > 0);
}

/* A graph of the instance without code for shared pages must not run a step that shares some. */
static void test_graph_key_when_a_plan_needs_another_variant_then_it_differs(void **state)
{
    (void)state;
    rig *r = step_rig(false);
    step_shape own = cuda_step_decode(&r->x, 8), shared = own;
    step_piece a[MAX_PIECES], b[MAX_PIECES];
    shared.variant[decode_plan(&r->x)] = 1;
    assert_int_equal(cuda_graph_cut(&r->x, &own, a), 2);
    assert_int_equal(cuda_graph_cut(&r->x, &own, b), 2);
    assert_memory_equal(a, b, 2 * sizeof *a);
    assert_int_equal(cuda_graph_cut(&r->x, &shared, b), 2);
    assert_memory_not_equal(&a[0], &b[0], sizeof *a); /* layers and head */
    assert_memory_equal(&a[1], &b[1], sizeof *a);     /* sampling */
    free_rig(r);
}

/* Every plan of some step with room for one item less than it needs. */
static void test_fill_when_a_plan_has_too_little_room_then_it_is_named(void **state)
{
    (void)state;
    uint32_t rng = 9;
    step_arrays *a = malloc(sizeof *a);
    assert_non_null(a);
    for (int deterministic = 0; deterministic < 2; deterministic++) {
        rig *r = step_rig(deterministic);
        cuda_executor *x = &r->x;
        vt_size largest = largest_size(x);
        step_shape most = cuda_step_of_size(x, &largest);
        char *block = malloc(cuda_step_layout(x, &most).page_ids + (MAX_PAGES + MAX_SEQS) * 4);
        const int32_t plan[] = {decode_plan(x), must_plan(x, "tiles of 128 rows")};
        assert_non_null(block);
        x->options.graphs = false;
        for (int k = 0; k < 2; k++) {
            step_shape s;
            vt_err err = {0};
            size_t end;
            do {
                make_step(a, &rng);
                s = cuda_step_shape(x, &a->step.batch);
            } while (!s.used[plan[k]]);
            s.items[plan[k]] = 0;
            assert_int_equal(cuda_step_fill(x, &a->step, &s, block, &end, &err), VT_ERR_DEVICE);
            assert_non_null(strstr(err.message, x->prog->plan[plan[k]].plan->name));
        }
        free(block);
        free_rig(r);
    }
    free(a);
}

/* A captured graph reads fixed addresses: those of rows may not move with the tokens, nor the
 * other way round. */
static void test_layout_when_one_part_changes_then_the_other_stays(void **state)
{
    (void)state;
    rig *r = step_rig(false);
    cuda_executor *x = &r->x;
    vt_size largest = largest_size(x);
    step_shape a = cuda_step_decode(x, 8), b = cuda_step_of_size(x, &largest);
    int32_t rows = must_plan(x, "sampling rows");
    b.size.rows = a.size.rows;
    step_layout la = cuda_step_layout(x, &a), lb = cuda_step_layout(x, &b);
    assert_int_equal(la.row_token, lb.row_token);
    assert_int_equal(la.plan[rows], lb.plan[rows]);
    assert_int_equal(la.begin, lb.begin);
    b = a;
    b.size.rows = x->config.limits.max_rows;
    lb = cuda_step_layout(x, &b);
    assert_int_equal(lb.begin, 0);
    assert_int_equal(la.token, lb.token);
    for (int32_t i = 0; i < x->prog->n_plans; i++)
        if (i != rows)
            assert_int_equal(la.plan[i], lb.plan[i]);
    assert_true(la.plan[rows] < la.token && la.plan[decode_plan(x)] > la.page_start);
    assert_int_equal(la.token, x->tail_bytes);
    free_rig(r);
}

/* Kernels and the order of their sums change at these numbers of tokens: linear_cuda.c. */
static void test_shape_when_padded_then_no_border_of_a_linear_is_crossed(void **state)
{
    (void)state;
    rig *r = step_rig(false);
    cuda_executor *x = &r->x;
    int32_t q_start[2] = {0, 0}, kv_len[1] = {0};
    x->options.graphs = true;
    for (int32_t n = 2; n <= MAX_TOKENS; n++) {
        q_start[1] = kv_len[0] = n;
        vt_batch b = {.n_tokens = n, .n_seqs = 1, .q_start = q_start, .kv_len = kv_len};
        int32_t p = cuda_step_shape(x, &b).size.tokens;
        assert_in_range(p, n, n + 63);
        assert_int_equal(p <= 16, n <= 16);
        assert_int_equal(p <= 32, n <= 32);
        assert_int_equal(vt_padded_tokens(p), vt_padded_tokens(n));
        if (n > GRAPH_TOKENS)
            assert_int_equal(p, n);
    }
    for (int32_t n = 1; n <= 256; n++) {
        int32_t p = cuda_step_bucket(n, 256);
        assert_true(p >= n);
        assert_int_equal(p <= 16, n <= 16);
        assert_int_equal(p <= 32, n <= 32);
        assert_int_equal(vt_padded_tokens(p), vt_padded_tokens(n));
    }
    assert_int_equal(cuda_step_bucket(5, 6), 6);
    assert_int_equal(cuda_step_bucket(7, 6), 0);
    assert_int_equal(cuda_step_bucket(257, 300), 0);
    free_rig(r);
}

/* A batch of decodes, and with `more` a prompt of ten tokens after them. */
static vt_batch batch_of(int32_t n_decode, bool more, int32_t *q_start, const int32_t *kv_len)
{
    for (int32_t s = 0; s <= n_decode; s++)
        q_start[s] = s;
    q_start[n_decode + 1] = n_decode + 10;
    return (vt_batch){.n_tokens = n_decode + 10 * more,
                      .n_seqs = n_decode + more,
                      .n_decode = n_decode,
                      .n_rows = n_decode + more,
                      .page_size = PAGE,
                      .q_start = q_start,
                      .kv_len = kv_len};
}

/* The bucket's decodes decide which kernel runs, the batch's decodes which items there are. */
static void test_shape_when_padded_then_its_kernel_has_code_for_the_plan(void **state)
{
    (void)state;
    static const int32_t most[] = {1, 3, 4, 5, 7, 40, 300};
    static const int32_t kv_len[302];
    int32_t q_start[303];
    for (size_t m = 0; m < sizeof most / sizeof *most; m++) {
        vt_limits limits = step_limits();
        limits.max_seqs = most[m];
        limits.max_rows = most[m] + 8;
        rig *r = new_rig("dummy:smollm2-135m", false, &limits);
        cuda_executor *x = &r->x;
        const vt_program_plan *plan = &x->prog->plan[decode_plan(x)];
        attention_plan_config c = attention_plan_config_of(plan->args, &x->prog->target, NULL, 0);
        for (int32_t n = 1; n <= most[m]; n++)
            for (int graphs = 0; graphs < 2; graphs++)
                for (int more = 0; more < 2 && n + more <= most[m]; more++) {
                    vt_batch b = batch_of(n, more, q_start, kv_len);
                    x->options.graphs = graphs;
                    step_shape s = cuda_step_shape(x, &b);
                    assert_true(s.size.decodes >= n && (graphs || s.size.decodes == n));
                    assert_int_equal(attention_may_share(&c, s.size.decodes),
                                     attention_may_share(&c, n));
                    assert_int_equal(attention_may_share(&c, n), n > ATTENTION_FEW);
                }
        free_rig(r);
    }
}

/* Side data beyond its limit is refused before a byte of it is copied. */
static void test_side_data_when_it_is_more_than_its_plan_allows_then_refused(void **state)
{
    (void)state;
    rig *r = step_rig(false);
    cuda_executor *x = &r->x;
    const vt_program_plan *rows = &x->prog->plan[must_plan(x, "sampling rows")];
    size_t most = rows->plan->most_side_bytes(rows->args, &x->prog->target);
    vt_sample_row row = {.repetition_penalty = 1,
                         .n_bias = (int32_t)(most / sizeof(vt_logit_bias)) + 1,
                         .pending_slot = -1};
    vt_step step = {.id = 7, .batch = {.n_rows = 1}, .rows = &row};
    step_shape s = cuda_step_of_size(x, &(vt_size){.rows = 1});
    result_slot slot = {0};
    vt_err err = {0};
    char want[128];
    vt_program_bind(x->prog, &step.batch, &s.size, step.rows);
    assert_int_equal(cuda_step_upload_side(x, &step, &s, true, &slot, &err), VT_ERR_USAGE);
    snprintf(want, sizeof want, "step 7 brings %zu bytes of sampling rows, expected at most %zu",
             (size_t)row.n_bias * sizeof(vt_logit_bias), most);
    assert_string_equal(err.message, want);
    assert_true(slot.side[true] == NULL && slot.side_bytes[true] == 0);
    vt_page_copy copy[MAX_SEQS + 1] = {{0}};
    step.batch = (vt_batch){.n_copies = MAX_SEQS + 1, .copies = copy};
    s = cuda_step_of_size(x, &(vt_size){.copies = MAX_SEQS + 1});
    assert_int_equal(cuda_step_upload_side(x, &step, &s, false, &slot, &err), VT_ERR_USAGE);
    assert_non_null(strstr(err.message, "bytes of page copies, expected at most"));
    free_rig(r);
}

/* The attention of all layers is planned once: there is one plan for each kind of host work, for
 * any number of layers. */
static void test_plans_when_calls_have_equal_work_then_they_share_one(void **state)
{
    (void)state;
    rig *r = step_rig(false);
    const vt_program *p = r->x.prog;
    int32_t decodes = 0;
    assert_int_equal(p->n_plans, 4); /* page copies, decode, prefill, sampling */
    for (int32_t i = 0; i < p->n_plans; i++)
        for (int32_t k = i + 1; k < p->n_plans; k++)
            assert_true(p->plan[i].plan != p->plan[k].plan || p->plan[i].key != p->plan[k].key);
    for (int32_t i = 0; i < p->n_calls; i++)
        for (int32_t k = 0; k < p->call[i].n_choices; k++) {
            const vt_host_plan *want = p->call[i].choice[k].impl->plan;
            int16_t plan = p->call[i].plan[k];
            assert_int_equal(plan >= 0, want != NULL);
            if (plan < 0)
                continue;
            assert_ptr_equal(p->plan[plan].plan, want);
            assert_int_equal(p->plan[plan].when, p->call[i].when);
            if (want->key)
                assert_true(p->plan[plan].key == want->key(p->call[i].args));
            decodes += plan == decode_plan(&r->x);
        }
    assert_int_equal(decodes, r->m->arch.n_layers);
    free_rig(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_step_when_padded_then_it_holds_the_same_step),
        cmocka_unit_test(test_graph_key_when_a_plan_needs_another_variant_then_it_differs),
        cmocka_unit_test(test_fill_when_a_plan_has_too_little_room_then_it_is_named),
        cmocka_unit_test(test_layout_when_one_part_changes_then_the_other_stays),
        cmocka_unit_test(test_shape_when_padded_then_no_border_of_a_linear_is_crossed),
        cmocka_unit_test(test_shape_when_padded_then_its_kernel_has_code_for_the_plan),
        cmocka_unit_test(test_side_data_when_it_is_more_than_its_plan_allows_then_refused),
        cmocka_unit_test(test_plans_when_calls_have_equal_work_then_they_share_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
