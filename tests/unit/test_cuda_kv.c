/* A growing KV cache on the emulated GPU (tests/emulator): new pages work like the first ones, and
 * when no more memory can be had the cache stays as it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include <dlfcn.h>

#include "exec/cuda_inside.h"
#include "model/load.h"

enum { PAGE = 16, N_PAGES = 8 * 4096, TOKENS = 40, SEQ_PAGES = 3 };

static cuda_executor *open_executor(vt_model **m, int32_t seqs)
{
    vt_executor_config config = {.limits = {.max_tokens = 64,
                                            .max_seqs = seqs,
                                            .max_rows = 4,
                                            .max_context = 256,
                                            .page_size = PAGE,
                                            .n_workers = 1},
                                 .n_pages = N_PAGES,
                                 .n_pool_slots = 2,
                                 .kv_dtype = VT_BF16,
                                 .n_threads = 1};
    vt_cuda_options options = {.graphs = true, .pdl = true};
    vt_executor *x;
    vt_err err = {0};
    if (vt_model_load("tests/golden/models/qwen3-fp8", m, &err) != VT_OK ||
        vt_executor_cuda_new(*m, &config, &options, &x, &err) != VT_OK)
        fail_msg("%s", err.message);
    return (cuda_executor *)x;
}

/* Asks for growth like the engine, until the cache does not grow any more. */
static int32_t settle(cuda_executor *x, int32_t n)
{
    const vt_kv_count taken = {.pages = n};
    int32_t before;
    do {
        before = x->base.pages(&x->base, taken).pages;
        while (atomic_load(&x->kv_growth) == KV_GROWING)
            usleep(200);
    } while (x->base.pages(&x->base, taken).pages > before);
    return before;
}

/* The log-probability of a prompt's next token, with its KV in these pages. */
static float score(cuda_executor *x, int32_t first_page)
{
    int32_t token[TOKENS], position[TOKENS], seq_of[TOKENS] = {0}, slot[TOKENS], page[SEQ_PAGES];
    const int32_t q_start[2] = {0, TOKENS}, page_start[2] = {0, SEQ_PAGES}, row[1] = {TOKENS - 1};
    vt_sample_row rows[1] = {
        {.top_p = 1, .repetition_penalty = 1, .pool_slot = -1, .target = 5, .pending_slot = -1}};
    vt_step_result result;
    vt_err err = {0};
    for (int32_t i = 0; i < TOKENS; i++) {
        token[i] = (i * 7 + 3) % 60;
        position[i] = i;
        page[i / PAGE] = first_page + i / PAGE;
        slot[i] = page[i / PAGE] * PAGE + i % PAGE;
    }
    vt_step step = {.id = x->launched + 1,
                    .batch = {.n_tokens = TOKENS,
                              .n_seqs = 1,
                              .n_rows = 1,
                              .n_pages = SEQ_PAGES,
                              .page_size = PAGE,
                              .token = token,
                              .position = position,
                              .seq_of = seq_of,
                              .slot = slot,
                              .q_start = q_start,
                              .kv_len = &q_start[1],
                              .page_start = page_start,
                              .page_ids = page,
                              .row_token = row},
                    .rows = rows};
    if (x->base.launch(&x->base, &step, &err) != VT_OK ||
        x->base.wait(&x->base, &result, &err) != VT_OK)
        fail_msg("%s", err.message);
    return result.logprob[0];
}

static void test_kv_when_pages_are_taken_then_more_are_made_ahead(void **state)
{
    (void)state;
    vt_model *m;
    cuda_executor *x = open_executor(&m, 2);
    int32_t first = settle(x, 0);
    assert_in_range(first, N_PAGES / 8, N_PAGES / 2);
    float want = score(x, 0);
    assert_true(want < 0 && want > -100);
    assert_true(settle(x, first - 1) > first);
    int32_t all = first;
    for (int i = 0; i < 10 && all < N_PAGES; i++)
        all = settle(x, all);
    assert_int_equal(all, N_PAGES);
    assert_int_equal(settle(x, all), N_PAGES);
    assert_true(score(x, first) == want);
    assert_true(score(x, N_PAGES - SEQ_PAGES) == want);
    assert_true(score(x, 0) == want);
    x->base.free(&x->base);
    vt_model_free(m);
}

static void test_kv_when_memory_ends_then_it_stays_as_it_is_and_grows_later(void **state)
{
    (void)state;
    vt_model *m;
    cuda_executor *x = open_executor(&m, 2);
    const cuda_driver *d = &x->cuda->driver;
    size_t left = 0, total = 0;
    cu_ptr rest = 0;
    int32_t first = settle(x, 0);
    float want = score(x, 0);
    assert_int_equal(d->mem_info(&left, &total), 0);
    assert_true(left > 6 << 20);
    assert_int_equal(d->mem_alloc(&rest, left - (3 << 20)), 0); /* one pool could grow, not two */
    assert_int_equal(settle(x, first), first);
    assert_int_equal(atomic_load(&x->kv_growth), KV_FULL);
    assert_int_equal(settle(x, first), first);
    assert_true(score(x, first - SEQ_PAGES) == want);
    assert_int_equal(d->mem_free(rest), 0);
    assert_int_equal(settle(x, first), first); /* not tried again at once */
    x->retry_ns = 0;                           /* a minute is over */
    assert_true(settle(x, first) > first);
    assert_true(score(x, first) == want);
    x->base.free(&x->base);
    vt_model_free(m);
}

/* Any call may fail in the middle of growing, when some of the 2 * layers pools have grown. */
static void test_kv_when_a_growth_is_refused_midway_then_it_is_taken_back(void **state)
{
    (void)state;
    enum { CREATE_MAP_OPEN = 3 };
    vt_model *m;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void (*refuse)(uint64_t) = NULL;
    size_t (*left_over)(void) = NULL;
    *(void **)&refuse = dlsym(driver, "emu_refuse");
    *(void **)&left_over = dlsym(driver, "emu_left_over");
    assert_true(refuse && left_over);
    for (uint64_t n = 1; n <= 2 * CREATE_MAP_OPEN; n++) {
        cuda_executor *x = open_executor(&m, 2);
        size_t before = 0, after = 0, total = 0;
        int32_t first = settle(x, 0);
        float want = score(x, 0);
        assert_int_equal(x->cuda->driver.mem_info(&before, &total), 0);
        refuse(n);
        assert_int_equal(settle(x, first), first);
        assert_int_equal(atomic_load(&x->kv_growth), KV_FULL);
        cuda_kv_join(x);
        assert_int_equal(x->cuda->driver.mem_info(&after, &total), 0);
        assert_int_equal(after, before);
        assert_true(score(x, first - SEQ_PAGES) == want);
        x->base.free(&x->base);
        vt_model_free(m);
        assert_int_equal(left_over(), 0);
    }
}

/* The emulated device's memory is this process's. */
static bool same_page(const cuda_executor *x, int32_t a, int32_t b)
{
    size_t bytes = vt_kv_pool_page_bytes(&x->kv.shape, 0, PAGE);
    const char *k = x->kv.k[0].data;
    return memcmp(k + (size_t)(a + 1) * bytes, k + (size_t)(b + 1) * bytes, bytes) == 0;
}

/* As many copies as a step can admit sequences, because each of them may copy a page. */
static void test_copies_when_every_sequence_has_one_then_all_are_made(void **state)
{
    (void)state;
    enum { MANY = 1500 };
    static vt_page_copy copy[MANY];
    vt_model *m;
    vt_err err = {0};
    vt_step_result result;
    cuda_executor *x = open_executor(&m, MANY);
    assert_true(settle(x, 0) > MANY + 9);
    (void)score(x, 0);
    assert_false(same_page(x, 0, 5));
    for (int32_t i = 0; i < MANY; i++) /* the last ones are the prompt's, into pages 5, 6, 7 */
        copy[i] = (vt_page_copy){i < MANY - SEQ_PAGES ? 8 : i - (MANY - SEQ_PAGES),
                                 i < MANY - SEQ_PAGES ? 9 + i : 5 + i - (MANY - SEQ_PAGES), PAGE};
    vt_step step = {.id = x->launched + 1, .batch = {.copies = copy, .n_copies = MANY}};
    if (x->base.launch(&x->base, &step, &err) != VT_OK ||
        x->base.wait(&x->base, &result, &err) != VT_OK)
        fail_msg("%s", err.message);
    for (int32_t page = 0; page < SEQ_PAGES; page++)
        assert_true(same_page(x, page, 5 + page));
    step.batch.n_copies = MANY + 1;
    assert_int_equal(x->base.launch(&x->base, &step, &err), VT_ERR_USAGE);
    x->base.free(&x->base);
    vt_model_free(m);
}

/* Loads the emulator's libraries before any others: the loader then finds the loaded library by its
 * name. */
static int open_emulator(void **state)
{
    (void)state;
    char path[1024], file[1100];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    assert_true(n > 0);
    path[n] = 0;
    *strrchr(path, '/') = 0;
    setenv("VITRINE_EMULATOR", "memory=192", 1);
    snprintf(file, sizeof file, "%s/../emulator/libnvrtc.so.13", path);
    setenv("VITRINE_NVRTC", file, 1);
    snprintf(file, sizeof file, "%s/../../emulator-cache", path); /* no GPU can run its kernels */
    setenv("VITRINE_CACHE", file, 1);
    snprintf(file, sizeof file, "%s/../emulator/libcuda.so.1", path);
    if (!dlopen(file, RTLD_NOW | RTLD_LOCAL))
        fail_msg("%s", dlerror());
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kv_when_pages_are_taken_then_more_are_made_ahead),
        cmocka_unit_test(test_kv_when_memory_ends_then_it_stays_as_it_is_and_grows_later),
        cmocka_unit_test(test_kv_when_a_growth_is_refused_midway_then_it_is_taken_back),
        cmocka_unit_test(test_copies_when_every_sequence_has_one_then_all_are_made),
    };
    return cmocka_run_group_tests(tests, open_emulator, NULL);
}
