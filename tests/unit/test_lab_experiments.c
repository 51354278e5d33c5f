/* Small parts of the experiments: what bytes promise for a batch, the noise of a load, and whether
 * another program used the machine. */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "lab/experiments/experiments.h"

static void test_a_batch_reads_the_weights_once(void **state)
{
    (void)state;
    const lab_server_memory m = {.weights = 1e8, .kv = 1e9, .kv_token = 1000};
    assert_float_equal(lab_step_bytes(&m, 4, 100), 1e8 + 4 * 100 * 1000.0, 1);
    assert_float_equal(lab_batch_gain(&m, 1, 100), 1, 1e-9);
    /* without KV the promise is n; with much KV it goes towards 1 */
    assert_float_equal(lab_batch_gain(&m, 8, 0), 8, 1e-9);
    double some = lab_batch_gain(&m, 8, 1000), much = lab_batch_gain(&m, 8, 1e7);
    assert_true(some < 8 && some > much && much > 1 && much < 1.1);
}

/* A GPU's pool of 130 GB that grows from an eighth: 28 layers, 8 KV heads of 128, BF16. */
static void test_kv_of_a_token_does_not_depend_on_how_far_the_pool_has_grown(void **state)
{
    (void)state;
    const double token = 28 * 8 * 128 * 2 * 2.0;
    for (int grown = 1; grown <= 8; grown++) {
        lab_server_memory m;
        json_t *info = json_pack("{s:f, s:f, s:f, s:i, s:i}", "weights_bytes", 1.2e9, "kv_bytes",
                                 token * 16 * 71112, "kv_page_bytes", token * 16, "page_size", 16,
                                 "max_total_num_tokens", 16 * 71112 / 8 * grown);
        lab_server_memory_read(info, &m);
        assert_float_equal(m.kv_token, token, 1e-6);
        assert_float_equal(lab_step_bytes(&m, 8, 1000), 1.2e9 + 8 * 1000 * token, 1);
        json_decref(info);
    }
}

static void test_noise_is_half_of_the_spread_between_two_halves(void **state)
{
    (void)state;
    vt_load_result r[4] = {0};
    const int64_t took_ns[4] = {1000, 3000, 2000, 4000}; /* means of the halves: 2000 and 3000 */
    for (int i = 0; i < 4; i++)
        r[i] = (vt_load_result){
            .end = VT_LOAD_OK, .due_ns = 1, .begin_ns = 1, .end_ns = 1 + took_ns[i]};
    lab_answers a = {.result = r, .n = 4};
    assert_float_equal(lab_answers_noise(&a), 500.0 / 2500, 1e-9);
    r[3].end = VT_LOAD_TIMEOUT; /* counts as none */
    assert_float_equal(lab_answers_noise(&a), 0, 1e-9);
    a.n = 1;
    assert_true(isnan(lab_answers_noise(&a)));
}

static void spin(double s)
{
    int64_t end = vt_now_ns() + (int64_t)(s * 1e9);
    while (vt_now_ns() < end)
        ;
}

/* A child that nobody counts as the server is another program. */
static void test_another_program_is_noticed(void **state)
{
    (void)state;
    lab_busy b;
    lab_server s = {.pid = getpid()};
    lab_busy_begin(&b, &s);
    if (b.all_s < 0)
        skip(); /* /proc/stat is not of the CPUs that this process may use */
    pid_t child = fork();
    if (child == 0) {
        for (;;)
            spin(1);
    }
    bool noticed = false;
    for (int i = 0; i < 9000 && !noticed; i++) {
        usleep(100000);
        noticed = lab_busy_end(&b, &s);
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_true(noticed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_batch_reads_the_weights_once),
        cmocka_unit_test(test_kv_of_a_token_does_not_depend_on_how_far_the_pool_has_grown),
        cmocka_unit_test(test_noise_is_half_of_the_spread_between_two_halves),
        cmocka_unit_test(test_another_program_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
