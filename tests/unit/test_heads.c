/* Layers that attend in different ways: a model with K and V of two shapes, windows, two ropes and
 * none, and layers that read another's K and V (tiny_model "mixed"). Its logits on the CPU are
 * compared with a reference that keeps no cache: plain loops in double over the whole prompt.
 * test_cuda_logits.c compares the emulated GPU with the CPU on the same model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>

#include "base/quant.h"
#include "common/program_run.h"
#include "common/tiny_model.h"
#include "exec/executor.h"
#include "kv/cache.h"
#include "model/assemble.h"
#include "model/load.h"

enum { N = 60, PAGE = 4, PAGES = N / PAGE, COLS = 512 };

/* ---- the reference ---- */

typedef double row[COLS];

static double weight_at(const vt_tensor *w, int64_t i)
{
    float v;
    vt_dequant_row(w->dtype, (const char *)w->data + vt_dtype_row_bytes(w->dtype, i), &v, 1);
    return (double)v;
}

/* y = W x */
static void multiply(const vt_tensor *w, const double *x, double *y)
{
    for (int64_t r = 0; r < w->dim[0]; r++) {
        y[r] = 0;
        for (int64_t c = 0; c < w->dim[1]; c++)
            y[r] += weight_at(w, r * w->dim[1] + c) * x[c];
    }
}

static void norm(const vt_model *m, const vt_tensor *w, const double *x, double *y)
{
    double sum = 0;
    for (int64_t i = 0; i < w->dim[0]; i++)
        sum += x[i] * x[i];
    for (int64_t i = 0; i < w->dim[0]; i++)
        y[i] = x[i] * weight_at(w, i) / sqrt(sum / (double)w->dim[0] + (double)m->arch.norm_eps);
}

static void rotate(const vt_model *m, const vt_heads *h, int32_t heads, int32_t position, double *x)
{
    if (h->rope < 0)
        return;
    const vt_rope_params *r = &m->arch.rope[h->rope];
    for (int32_t k = 0; k < heads; k++)
        for (int32_t i = 0; i < r->dims / 2; i++) {
            double angle = position * pow(r->base, -2.0 * i / r->dims);
            double *a = &x[k * h->dim + i], *b = a + r->dims / 2, va = *a, vb = *b;
            *a = va * cos(angle) - vb * sin(angle);
            *b = va * sin(angle) + vb * cos(angle);
        }
}

/* o = what token t of one layer attends to. */
static void attend(const vt_model *m, const vt_heads *h, const double *q, row *k, row *v, int32_t t,
                   double *o)
{
    int32_t first = h->window && t >= h->window ? t - h->window + 1 : 0;
    for (int32_t head = 0; head < h->heads; head++) {
        int32_t at = head * h->dim, kv = head / (h->heads / h->kv_heads) * h->dim;
        double p[N], sum = 0;
        for (int32_t j = first; j <= t; j++) {
            double s = 0;
            for (int32_t i = 0; i < h->dim; i++)
                s += q[at + i] * k[j][kv + i];
            sum += p[j] = exp(s * (double)m->arch.attn_scale);
        }
        for (int32_t i = 0; i < h->dim; i++) {
            o[at + i] = 0;
            for (int32_t j = first; j <= t; j++)
                o[at + i] += p[j] / sum * v[j][kv + i];
        }
    }
}

static void feed_forward(const vt_layer *l, const double *x, double *y)
{
    row gate, up;
    multiply(l->weight[VT_ROLE_GATE], x, gate);
    multiply(l->weight[VT_ROLE_UP], x, up);
    for (int64_t i = 0; i < l->weight[VT_ROLE_GATE]->dim[0]; i++)
        gate[i] *= up[i] / (1 + exp(-gate[i]));
    multiply(l->weight[VT_ROLE_DOWN], gate, y);
}

/* One layer over all tokens; k and v are of all layers. */
static void layer_of(const vt_model *m, int32_t i, row *x, row (*k)[N], row (*v)[N])
{
    const vt_layer *l = &m->layer[i];
    row h, q, o, y;
    for (int32_t t = 0; t < N; t++) {
        norm(m, l->weight[VT_ROLE_ATTN_NORM], x[t], h);
        if (l->kv_of == i) {
            multiply(l->weight[VT_ROLE_K], h, k[i][t]);
            multiply(l->weight[VT_ROLE_V], h, v[i][t]);
            rotate(m, &l->head, l->head.kv_heads, t, k[i][t]);
        }
        multiply(l->weight[VT_ROLE_Q], h, q);
        rotate(m, &l->head, l->head.heads, t, q);
        attend(m, &l->head, q, k[l->kv_of], v[l->kv_of], t, o);
        multiply(l->weight[VT_ROLE_O], o, y);
        for (int32_t c = 0; c < m->arch.hidden; c++)
            x[t][c] += y[c];
        norm(m, l->weight[VT_ROLE_FFN_NORM], x[t], h);
        feed_forward(l, h, y);
        for (int32_t c = 0; c < m->arch.hidden; c++)
            x[t][c] += y[c];
    }
}

/* Logits of every token, and if wanted its hidden states. */
static void reference(const vt_model *m, const int32_t *id, double *logits /* [N, vocab] */,
                      double *hidden /* [N, hidden] or NULL */)
{
    row *x = calloc(N, sizeof *x), h;
    row(*k)[N] = calloc((size_t)m->arch.n_layers, sizeof *k);
    row(*v)[N] = calloc((size_t)m->arch.n_layers, sizeof *v);
    assert_true(x && k && v);
    for (int32_t t = 0; t < N; t++)
        for (int32_t c = 0; c < m->arch.hidden; c++)
            x[t][c] = weight_at(m->embed, (int64_t)id[t] * m->arch.hidden + c);
    for (int32_t i = 0; i < m->arch.n_layers; i++)
        layer_of(m, i, x, k, v);
    for (int32_t t = 0; t < N; t++) {
        norm(m, m->final_norm, x[t], h);
        if (hidden)
            memcpy(hidden + (int64_t)t * m->arch.hidden, h,
                   (size_t)m->arch.hidden * sizeof *hidden);
        multiply(m->head, h, logits + (int64_t)t * m->arch.vocab);
    }
    free(x);
    free(k);
    free(v);
}

/* ---- the program ---- */

/* Runs tokens [begin, end) as one step. Returns the largest error of their logits, relative to the
 * row's largest value. */
static double run_chunk(vt_executor *x, const int32_t *id, int32_t begin, int32_t end,
                        const double *want, int32_t vocab)
{
    int32_t n = end - begin, position[N], seq_of[N] = {0}, slot[N], page[PAGES], row_token[N];
    vt_sample_row rows[N];
    for (int32_t i = 0; i < PAGES; i++)
        page[i] = (i * 7 + 3) % PAGES; /* not in order: a wrong page shows */
    for (int32_t i = 0; i < n; i++) {
        position[i] = begin + i;
        slot[i] = page[position[i] / PAGE] * PAGE + position[i] % PAGE;
        row_token[i] = i;
        rows[i] = (vt_sample_row){.top_p = 1,
                                  .repetition_penalty = 1,
                                  .n_top = -1,
                                  .pool_slot = -1,
                                  .target = -1,
                                  .pending_slot = -1};
    }
    int32_t q_start[2] = {0, n}, kv_len[1] = {end}, page_start[2] = {0, (end + PAGE - 1) / PAGE};
    vt_step step = {.id = (uint64_t)begin + 1,
                    .rows = rows,
                    .batch = {.n_tokens = n,
                              .n_seqs = 1,
                              .n_decode = n == 1,
                              .n_rows = n,
                              .n_pages = page_start[1],
                              .page_size = PAGE,
                              .token = id + begin,
                              .position = position,
                              .seq_of = seq_of,
                              .slot = slot,
                              .q_start = q_start,
                              .kv_len = kv_len,
                              .page_start = page_start,
                              .page_ids = page,
                              .row_token = row_token}};
    vt_step_result result;
    vt_err err = {0};
    if (x->launch(x, &step, &err) != VT_OK || x->wait(x, &result, &err) != VT_OK)
        fail_msg("%s", err.message);
    const float *got = x->program(x)->logits->data;
    double worst = 0;
    for (int32_t i = 0; i < n; i++) {
        double peak = 0, error = 0;
        for (int32_t c = 0; c < vocab; c++) {
            double w = want[(int64_t)(begin + i) * vocab + c];
            error = fmax(error, fabs((double)got[(int64_t)i * vocab + c] - w));
            peak = fmax(peak, fabs(w));
        }
        worst = fmax(worst, error / peak);
    }
    return worst;
}

static void test_logits_of_mixed_layers_equal_a_plain_reference(void **state)
{
    (void)state;
    static const int32_t chunk[] = {N, 13, 1};
    vt_model *m = tiny_model("mixed");
    vt_executor *x;
    vt_err err = {0};
    int32_t id[N], vocab = m->arch.vocab;
    double *want = malloc((size_t)(N * vocab) * sizeof *want);
    assert_non_null(want);
    for (int32_t i = 0; i < N; i++)
        id[i] = (i * 97 + 31) % vocab;
    reference(m, id, want, NULL);
    vt_executor_config config = {.limits = {.max_tokens = N,
                                            .max_seqs = 1,
                                            .max_rows = N,
                                            .max_context = N,
                                            .page_size = PAGE,
                                            .n_workers = 2},
                                 .n_pages = PAGES,
                                 .n_pool_slots = 1,
                                 .kv_dtype = VT_F32,
                                 .n_threads = 2};
    if (vt_executor_cpu_new(m, &config, &x, &err) != VT_OK)
        fail_msg("%s", err.message);
    for (size_t c = 0; c < sizeof chunk / sizeof *chunk; c++)
        for (int32_t at = 0; at < N; at += chunk[c]) {
            int32_t end = at + chunk[c] < N ? at + chunk[c] : N;
            double worst = run_chunk(x, id, at, end, want, vocab);
            if (!(worst <= 1e-4))
                fail_msg("tokens %d to %d: relative error %.3g, 1e-4 allowed", at, end, worst);
        }
    x->free(x);
    free(want);
    vt_model_free(m);
}

/* A program that ends in sums of hidden states has no head; the rows may be any tokens. */
static void test_hidden_states_equal_a_plain_reference(void **state)
{
    (void)state;
    enum { PAGES_8 = (N + PROGRAM_PAGE - 1) / PROGRAM_PAGE };
    vt_model *m = tiny_model("mixed");
    vt_err err = {0};
    vt_layout *l;
    vt_kv_shape shape;
    int32_t id[N], position[N], seq_of[N] = {0}, page[PAGES_8], at[] = {5, N - 1};
    int32_t hidden = m->arch.hidden;
    double *logits = malloc((size_t)(N * m->arch.vocab) * sizeof *logits),
           *want = malloc((size_t)(N * hidden) * sizeof *want);
    assert_true(logits && want);
    for (int32_t i = 0; i < PAGES_8; i++)
        page[i] = i;
    for (int32_t i = 0; i < N; i++) {
        id[i] = (i * 53 + 7) % m->arch.vocab;
        position[i] = i;
    }
    reference(m, id, logits, want);
    assert_int_equal(vt_layout_make(m, &l, &err), VT_OK);
    vt_kv_shape_of(m, VT_F32, &shape);
    program_run r = program_run_new(l, &shape, N, VT_END_POOLED);
    int32_t q_start[2] = {0, N}, kv_len[1] = {N}, page_start[2] = {0, PAGES_8};
    vt_batch batch = {.n_tokens = N,
                      .n_seqs = 1,
                      .n_rows = 2,
                      .n_pages = PAGES_8,
                      .page_size = PROGRAM_PAGE,
                      .token = id,
                      .position = position,
                      .seq_of = seq_of,
                      .slot = position,
                      .q_start = q_start,
                      .kv_len = kv_len,
                      .page_start = page_start,
                      .page_ids = page,
                      .row_token = at};
    program_run_bind(&r, &batch);
    for (int32_t i = 0; i < r.p->n_calls; i++)
        program_run_call(&r, i);
    assert_null(r.p->logits);
    assert_string_equal(r.p->call[r.p->n_calls - 1].label, "segment_sum");
    const float *got = r.p->hidden->data;
    for (int32_t k = 0; k < 2; k++)
        for (int32_t c = 0; c < hidden; c++)
            assert_float_equal(got[k * hidden + c], want[at[k] * hidden + c], 1e-4);
    got = r.p->states->data; /* both rows are of one sequence */
    for (int32_t c = 0; c < hidden; c++)
        assert_float_equal(got[c], want[at[0] * hidden + c] + want[at[1] * hidden + c], 2e-4);
    program_run_free(&r);
    free(logits);
    free(want);
    vt_model_free(m);
}

static void expect_group(const vt_kv_group *got, vt_kv_group want)
{
    assert_int_equal(got->n_layers, want.n_layers);
    assert_int_equal(got->kv_heads, want.kv_heads);
    assert_int_equal(got->head_dim, want.head_dim);
    assert_int_equal(got->v_in_k, want.v_in_k);
}

/* Layers 0 and 2, and 1, 3 and 4, are groups; 2 and 4 store nothing. */
static void test_kv_shape_of_mixed_layers_has_two_groups(void **state)
{
    (void)state;
    static const int32_t pool[] = {0, 1, 0, 2, 1};
    vt_model *m = tiny_model("mixed");
    vt_kv_shape s;
    vt_kv_shape_of(m, VT_F16, &s);
    assert_int_equal(s.n_groups, 2);
    expect_group(&s.group[0], (vt_kv_group){1, 2, 64, false, false});
    expect_group(&s.group[1], (vt_kv_group){2, 4, 32, false, false});
    for (int32_t i = 0; i < 5; i++)
        assert_int_equal(vt_kv_pool_of(m, i), pool[i]);
    assert_int_equal(vt_kv_page_bytes(&s, 16), 3 * 2 * 128 * 16 * 2);
    vt_model_free(m);
}

/* Latent attention has one pool a layer; V lies in K's rows: 6 numbers with rope, 18 of V. */
static void test_kv_shape_when_layers_keep_nothing_then_no_group_is_theirs_alone(void **state)
{
    (void)state;
    vt_model *m = tiny_model("mixed_state"); /* the first layer has a state, and no window */
    vt_kv_shape s;
    vt_kv_shape_of(m, VT_F16, &s);
    for (int32_t g = 0; g < s.n_groups; g++)
        assert_true(s.group[g].n_layers > 0);
    for (int32_t i = 0; i < m->arch.n_layers; i++)
        assert_int_equal(m->layer[i].kv_group, m->layer[m->layer[i].kv_of].kv_group);
    vt_model_free(m);
}

static void test_kv_shape_of_latents_has_one_pool_for_a_layer(void **state)
{
    (void)state;
    vt_model *m;
    vt_err err = {0};
    vt_kv_shape s;
    vt_kv_cache c;
    if (vt_model_load("tests/golden/models/deepseekv3-groups", &m, &err) != VT_OK)
        fail_msg("%s", err.message);
    int32_t layers = m->arch.n_layers, each = 6 + 18;
    vt_kv_shape_of(m, VT_F16, &s);
    assert_int_equal(s.n_groups, 1);
    expect_group(&s.group[0], (vt_kv_group){layers, 1, each, true, false});
    assert_int_equal(vt_kv_page_bytes(&s, PAGE), layers * each * PAGE * 2);
    assert_int_equal(vt_kv_cache_init_cpu(&c, &s, PAGES, 0, PAGE, &err), VT_OK);
    for (int32_t i = 0; i < layers; i++) {
        assert_int_equal(vt_kv_pool_of(m, i), i);
        assert_ptr_equal(c.v[i].data, c.k[i].data);
        assert_true(i == 0 || c.k[i].data != c.k[i - 1].data);
    }
    vt_kv_cache_release(&c);
    vt_model_free(m);
}

/* A cache of FP8 has scales of K and of V, and a latent is both. */
static void test_latents_when_the_cache_is_fp8_then_refused_by_name(void **state)
{
    (void)state;
    vt_model *m;
    vt_executor *x = NULL;
    vt_err err = {0};
    if (vt_model_load("tests/golden/models/deepseekv3-groups", &m, &err) != VT_OK)
        fail_msg("%s", err.message);
    vt_executor_config config = {.limits = {.max_tokens = N,
                                            .max_seqs = 1,
                                            .max_rows = N,
                                            .max_context = N,
                                            .page_size = PAGE,
                                            .n_workers = 1},
                                 .n_pages = PAGES,
                                 .n_pool_slots = 1,
                                 .kv_dtype = VT_FP8_E4M3,
                                 .n_threads = 1};
    assert_int_equal(vt_executor_cpu_new(m, &config, &x, &err), VT_ERR_UNSUPPORTED);
    assert_string_equal(err.message,
                        "deepseekv3-groups: layer 0 attends to latents (MLA), which a KV cache of "
                        "FP8 does not hold; kv-dtype can be f16, bf16 or f32");
    assert_null(x);
    vt_model_free(m);
}

static void refused(const vt_model *m, const char *want)
{
    vt_err err = {0};
    assert_int_equal(arch_check(m, &err), VT_ERR_MODEL);
    if (!strstr(err.message, want))
        fail_msg("\"%s\" does not say \"%s\"", err.message, want);
}

static void test_layers_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    vt_model *m = tiny_model("mixed");
    m->layer[4].kv_of = 2;
    refused(m, "layer 4 cannot read the keys and values of layer 2");
    m->layer[4].kv_of = 0;
    refused(m, "layer 4 cannot read the keys and values of layer 0");
    m->layer[2].kv_of = 3;
    refused(m, "layer whose keys and values are read is 3 (0 to 2 allowed)");
    m->layer[1].head.rope = 2;
    refused(m, "rope of a layer is 2 (-1 to 1 allowed)");
    m->layer[0].head.kv_heads = 3;
    refused(m,
            "4 heads (num_attention_heads, attention.head_count) are not a multiple of 3 KV heads");
    vt_model_free(m);
}

/* Each number that may be wrong is named by its key of config.json and that of GGUF files. */
static void test_numbers_out_of_range_are_named_by_their_keys(void **state)
{
    (void)state;
    vt_model *m = tiny_model("mixed");
    vt_arch *a = &m->arch, good = *a;
    vt_heads head = m->layer[0].head;
    struct {
        int32_t *number, value;
        const char *want;
    } row[] = {
        {&a->n_layers, 0, "(num_hidden_layers, block_count) is 0 (1 to "},
        {&a->hidden, 0, "(hidden_size, embedding_length) is 0 (1 to "},
        {&a->ffn, 0, "(intermediate_size, feed_forward_length) is 0 (1 to "},
        {&a->max_context, 0, "(max_position_embeddings, context_length) is 0 (1 to "},
        {&a->n_types, 3, "(type_vocab_size, rows of token_types.weight) is 3 (0 to 2 "},
        {&m->layer[0].head.heads, 0, "(num_attention_heads, attention.head_count) is 0 (1 to "},
        {&m->layer[0].head.dim, 5, "(head_dim, attention.key_length) is 5 (an even number"},
        {&a->rope[0].dims, 3, "(partial_rotary_factor, rope.dimension_count)"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        *row[i].number = row[i].value;
        refused(m, row[i].want);
        *a = good;
        m->layer[0].head = head;
    }
    a->rope[0].base = 1;
    refused(m, "(rope_theta, rope.freq_base) is 1 (more than 1 expected)");
    *a = good;
    a->n_experts = 4;
    a->n_experts_used = 5;
    a->expert_ffn = 8;
    refused(m, "(num_experts_per_tok, expert_used_count) is 5 (1 to 4 allowed)");
    a->n_experts_used = 2;
    a->expert_groups = 3;
    a->expert_groups_used = 1;
    refused(m, "3 groups (n_group, expert_group_count), of which a token keeps 1");
    *a = good;
    a->logit_scale = 0;
    refused(m, "(logits_scaling, logit_scale) is 0");
    *a = good;
    vt_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_out_of_range_are_named_by_their_keys),
        cmocka_unit_test(test_logits_of_mixed_layers_equal_a_plain_reference),
        cmocka_unit_test(test_hidden_states_equal_a_plain_reference),
        cmocka_unit_test(test_kv_shape_of_mixed_layers_has_two_groups),
        cmocka_unit_test(test_kv_shape_when_layers_keep_nothing_then_no_group_is_theirs_alone),
        cmocka_unit_test(test_kv_shape_of_latents_has_one_pool_for_a_layer),
        cmocka_unit_test(test_latents_when_the_cache_is_fp8_then_refused_by_name),
        cmocka_unit_test(test_layers_that_make_no_sense_are_refused),
    };
    return cmocka_run_group_tests_name("heads", tests, NULL, NULL);
}
