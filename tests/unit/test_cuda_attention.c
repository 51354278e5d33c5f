/* The split decode kernel on the emulated GPU: wide heads on a GPU with 99 KB of shared memory per
 * CTA; and NaNs, which must reach the output of their own head and no other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "common/emulated_gpu.h"
#include "ops/attention/attention_cuda.h"
#include "ops/cuda_impls.h"
#include "ops/knobs.h"

enum { PAGE = 16, HEADS = 4, KV_HEADS = 2, MOST_SEQS = 6, MOST_PAGES = 400, MOST_BUFFERS = 16 };

/* Decodes of equal length, none of which share pages. */
typedef struct scene {
    vt_cuda *cuda;
    vt_cuda_lane cuda_lane;
    vt_target target;
    vt_batch batch;
    int32_t n, kv_len[MOST_SEQS], q_start[MOST_SEQS + 1], page_start[MOST_SEQS + 1],
        page_ids[MOST_PAGES];
    int32_t head_dim, n_pages;
    uint16_t *q, *k, *v, *o; /* BF16; pools [pages, KV_HEADS, PAGE, head_dim] */
    void *on_gpu[MOST_BUFFERS];
    int n_on_gpu;
} scene;

static size_t pool_elems(const scene *s)
{
    return (size_t)s->n_pages * KV_HEADS * PAGE * (size_t)s->head_dim;
}

static size_t q_elems(const scene *s) { return (size_t)s->n * HEADS * (size_t)s->head_dim; }

static uint16_t *random_bf16(size_t n, uint64_t *state)
{
    uint16_t *x = malloc(n * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++)
        x[i] = vt_f32_to_bf16((float)(vt_random_next(state) >> 40) * 0x1p-23f - 1);
    return x;
}

static void scene_open(scene *s, const char *emulator, int32_t n, int32_t kv_len, int32_t head_dim)
{
    vt_err err = {0};
    uint64_t random = 7;
    *s = (scene){.n = n, .head_dim = head_dim};
    setenv("VITRINE_EMULATOR", emulator, 1);
    if (vt_cuda_open(0, &s->cuda, &err) != VT_OK || vt_cuda_enter(s->cuda, &err) != VT_OK)
        fail_msg("%s", err.message);
    s->cuda_lane = (vt_cuda_lane){.cuda = s->cuda};
    s->target = (vt_target){.device = VT_DEVICE_CUDA,
                            .limits = {.max_seqs = n, .max_context = kv_len, .page_size = PAGE},
                            .level = s->cuda->level,
                            .sm_count = s->cuda->sm_count,
                            .max_shared_bytes = s->cuda->max_shared_bytes};
    vt_target_turn_knobs(&s->target, 1);
    for (int32_t i = 0; i < n; i++) {
        s->kv_len[i] = kv_len;
        s->q_start[i + 1] = i + 1;
        s->page_start[i + 1] = (i + 1) * (int32_t)vt_ceil_div(kv_len, PAGE);
    }
    s->n_pages = s->page_start[n];
    assert_in_range(s->n_pages, 1, MOST_PAGES);
    for (int32_t i = 0; i < s->n_pages; i++)
        s->page_ids[i] = s->n_pages - 1 - i;
    s->q = random_bf16(q_elems(s), &random);
    s->o = random_bf16(q_elems(s), &random);
    s->k = random_bf16(pool_elems(s), &random);
    s->v = random_bf16(pool_elems(s), &random);
}

static void scene_close(scene *s)
{
    free(s->q);
    free(s->k);
    free(s->v);
    free(s->o);
    for (int i = 0; i < s->n_on_gpu; i++)
        vt_cuda_free(s->cuda, s->on_gpu[i]);
    vt_cuda_close(s->cuda);
}

static void *on_gpu(scene *s, const void *data, size_t bytes)
{
    void *p;
    vt_err err = {0};
    if (vt_cuda_alloc(s->cuda, bytes + 16, &p, &err) != VT_OK)
        fail_msg("%s", err.message);
    assert_true(s->n_on_gpu < MOST_BUFFERS);
    s->on_gpu[s->n_on_gpu++] = p;
    assert_int_equal(s->cuda->driver.fill8((cu_ptr)(uintptr_t)p, 0, bytes, NULL), 0);
    if (data)
        assert_int_equal(s->cuda->driver.copy_to_device((cu_ptr)(uintptr_t)p, data, bytes, NULL),
                         0);
    return p;
}

#define ON_GPU(s, array, n) on_gpu(s, array, (size_t)(n) * sizeof *(array))

/* s->o = the row's result, from this variant of its kernel; -1: from the one that the batch needs.
 */
static void scene_run(scene *s, const vt_impl *impl, int32_t variant)
{
    int32_t n = s->n, width = HEADS * s->head_dim;
    vt_batch host = {.n_tokens = n,
                     .n_seqs = n,
                     .n_decode = n,
                     .n_pages = s->n_pages,
                     .page_size = PAGE,
                     .q_start = s->q_start,
                     .kv_len = s->kv_len,
                     .page_start = s->page_start,
                     .page_ids = s->page_ids},
             device = host;
    device.q_start = ON_GPU(s, s->q_start, n + 1);
    device.kv_len = ON_GPU(s, s->kv_len, n);
    device.page_start = ON_GPU(s, s->page_start, n + 1);
    device.page_ids = ON_GPU(s, s->page_ids, s->n_pages);
    void *o = ON_GPU(s, s->o, q_elems(s));
    vt_tensor q = vt_tensor_2d(ON_GPU(s, s->q, q_elems(s)), VT_BF16, n, width),
              out = vt_tensor_2d(o, VT_BF16, n, width),
              k = {.dtype = VT_BF16,
                   .rank = 4,
                   .dim = {s->n_pages, KV_HEADS, PAGE, s->head_dim},
                   .row_stride = s->head_dim},
              v = k;
    k.data = ON_GPU(s, s->k, pool_elems(s));
    v.data = ON_GPU(s, s->v, pool_elems(s));
    attention_args a = {.batch = &device,
                        .q = &q,
                        .k_pool = &k,
                        .v_pool = &v,
                        .o = &out,
                        .heads = HEADS,
                        .kv_heads = KV_HEADS,
                        .head_dim = s->head_dim,
                        .scale = 1 / sqrtf((float)s->head_dim),
                        .k_scale = 1,
                        .v_scale = 1};
    vt_size size = {.tokens = n, .seqs = n, .rows = n, .decodes = n};
    const vt_target *t = &s->target;
    int32_t items = impl->plan->items(&a, t, &size, &host);
    size_t bytes = impl->plan->bytes(&a, t, &size, items);
    void *plan = calloc(1, bytes);
    assert_non_null(plan);
    assert_true(impl->plan->fill(&a, t, &size, &host, items, plan, NULL) <= items);
    vt_lane lane = {.target = t,
                    .size = &size,
                    .plan = on_gpu(s, plan, bytes),
                    .items = items,
                    .variant = variant < 0 ? vt_plan_variant(impl->plan, &a, t, &size, &host)
                                           : variant,
                    .workspace_bytes = impl->workspace(&a, t),
                    .cuda = &s->cuda_lane};
    lane.workspace = on_gpu(s, NULL, lane.workspace_bytes);
    lane.tickets = on_gpu(s, NULL, (size_t)impl->tickets(&a, t) * sizeof(uint32_t));
    if (impl->run(&a, &lane) != VT_OK)
        fail_msg("%s", s->cuda_lane.err.message);
    assert_int_equal(s->cuda->driver.copy_to_host(s->o, (cu_ptr)(uintptr_t)o, q_elems(s) * 2, NULL),
                     0);
    assert_int_equal(s->cuda->driver.stream_sync(NULL), 0);
    free(plan);
}

static const uint16_t *key_at(const scene *s, const uint16_t *pool, int32_t seq, int32_t j,
                              int32_t head)
{
    int32_t page = s->page_ids[s->page_start[seq] + j / PAGE];
    return pool +
           ((size_t)(page * KV_HEADS + head) * PAGE + (size_t)(j % PAGE)) * (size_t)s->head_dim;
}

/* One head's output in double. */
static void want_head(const scene *s, int32_t seq, int32_t h, double *out)
{
    const uint16_t *q = s->q + (size_t)(seq * HEADS + h) * (size_t)s->head_dim;
    double total = 0;
    memset(out, 0, (size_t)s->head_dim * sizeof *out);
    for (int32_t j = 0; j < s->kv_len[seq]; j++) {
        int32_t kv_head = h / (HEADS / KV_HEADS);
        const uint16_t *k = key_at(s, s->k, seq, j, kv_head), *v = key_at(s, s->v, seq, j, kv_head);
        double score = 0;
        for (int32_t d = 0; d < s->head_dim; d++)
            score += (double)vt_bf16_to_f32(q[d]) * (double)vt_bf16_to_f32(k[d]);
        double weight = exp(score / sqrt(s->head_dim));
        total += weight;
        for (int32_t d = 0; d < s->head_dim; d++)
            out[d] += weight * (double)vt_bf16_to_f32(v[d]);
    }
    for (int32_t d = 0; d < s->head_dim; d++)
        out[d] /= total;
}

/* nan_head: the head of sequence 0 that is NaN; -1: none. */
static void check(const scene *s, int32_t nan_head)
{
    double *want = malloc((size_t)s->head_dim * sizeof *want);
    assert_non_null(want);
    for (int32_t seq = 0; seq < s->n; seq++)
        for (int32_t h = 0; h < HEADS; h++) {
            const uint16_t *o = s->o + (size_t)(seq * HEADS + h) * (size_t)s->head_dim;
            want_head(s, seq, h, want);
            for (int32_t d = 0; d < s->head_dim; d++) {
                double got = (double)vt_bf16_to_f32(o[d]);
                bool nan = seq == 0 && h == nan_head;
                if (nan ? !isnan(got) : !(fabs(got - want[d]) <= 0.01 * (1 + fabs(want[d]))))
                    fail_msg("sequence %d, head %d, %d: %g in place of %g", seq, h, d, got,
                             nan ? NAN : want[d]);
            }
        }
    free(want);
}

static void run_and_check(const char *emulator, int32_t n, int32_t kv_len, int32_t head_dim,
                          int32_t nan_head)
{
    scene s;
    scene_open(&s, emulator, n, kv_len, head_dim);
    if (nan_head >= 0)
        s.q[nan_head * head_dim + 3] = 0x7fc0;
    scene_run(&s, &attention_decode_split, -1);
    check(&s, nan_head);
    scene_close(&s);
}

/* 86 gives a CTA 99 KB: rings of 256 dimensions fit for two warps, but not for four. */
static void test_decode_of_wide_heads_fits_99_kb(void **state)
{
    (void)state;
    run_and_check("cc=86,memory=64", 1, 300, 256, -1);
    run_and_check("cc=86,memory=64", MOST_SEQS, 200, 256, -1);
    run_and_check("cc=80,memory=64", MOST_SEQS, 200, 256, -1);
}

/* A sequence with one range, whose CTA writes the result, and one with several, which the last CTA
 * merges. */
static void test_decode_keeps_a_nan_in_the_head_it_came_into(void **state)
{
    (void)state;
    run_and_check("cc=80,memory=64", MOST_SEQS, 20, 64, 1);
    run_and_check("cc=80,memory=64", 1, 600, 64, 1);
    run_and_check("cc=90,memory=64", 2, 20, 128, 3);
}

/* A batch that shares no pages may run either instance of the kernel: whole sequences, and ranges
 * that the last CTA merges. */
static void test_decode_has_the_same_bits_with_and_without_code_for_shared_pages(void **state)
{
    (void)state;
    static const int32_t lengths[] = {60, 1000};
    for (int i = 0; i < 2; i++) {
        scene a, b;
        scene_open(&a, "cc=90,memory=64", MOST_SEQS, lengths[i], 64);
        scene_run(&a, &attention_decode_split, 0);
        scene_open(&b, "cc=90,memory=64", MOST_SEQS, lengths[i], 64);
        scene_run(&b, &attention_decode_split, 1);
        assert_int_not_equal(vt_jit_count(b.cuda->jit), 0);
        assert_memory_equal(a.o, b.o, q_elems(&a) * sizeof *a.o);
        scene_close(&b);
        scene_close(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode_of_wide_heads_fits_99_kb),
        cmocka_unit_test(test_decode_keeps_a_nan_in_the_head_it_came_into),
        cmocka_unit_test(test_decode_has_the_same_bits_with_and_without_code_for_shared_pages),
    };
    return cmocka_run_group_tests(tests, emulated_gpu_open, NULL);
}
