/* The description of the CPU, as far as it can be tested on one machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "device/cpu.h"

static char root[] = "/tmp/vitrine-cpu-XXXXXX";

/* Makes a file of the control group, or none if text is NULL. */
static void put(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", root, name);
    unlink(path);
    if (!text)
        return;
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    fclose(f);
}

static void test_cpu_quota_when_limited_then_whole_cpus(void **state)
{
    (void)state;
    static const struct {
        const char *v2, *quota, *period;
        int32_t want;
    } cases[] = {
        {NULL, NULL, NULL, 0},
        {"max 100000\n", NULL, NULL, 0},
        {"200000 100000\n", NULL, NULL, 2},
        {"150000 100000\n", NULL, NULL, 2},
        {"5000 100000\n", NULL, NULL, 1},
        {"200000 0\n", NULL, NULL, 0},
        {"\n", NULL, NULL, 0},
        {"9000000000000000000 1\n", NULL, NULL, 0},
        {NULL, "-1\n", "100000\n", 0},
        {NULL, "400000\n", "100000\n", 4},
        {NULL, "400000\n", NULL, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put("cpu.max", cases[i].v2);
        put("cpu/cpu.cfs_quota_us", cases[i].quota);
        put("cpu/cpu.cfs_period_us", cases[i].period);
        if (vt_cpu_quota(root) != cases[i].want)
            fail_msg("case %zu: %d CPUs, expected %d", i, vt_cpu_quota(root), cases[i].want);
    }
}

static void test_cpu_get_when_read_then_every_count_is_positive(void **state)
{
    (void)state;
    const vt_cpu *c = vt_cpu_get();
    assert_true(c->n_cpus >= 1 && c->n_cores >= 1 && c->n_cores <= c->n_cpus && c->n_nodes >= 1);
    assert_true(c->memory_bytes > 0 && c->model[0] != '\0');
}

static int setup(void **state)
{
    char path[256];
    (void)state;
    if (!mkdtemp(root))
        return -1;
    snprintf(path, sizeof path, "%s/cpu", root);
    return mkdir(path, 0700);
}

static int teardown(void **state)
{
    char path[256];
    (void)state;
    put("cpu.max", NULL);
    put("cpu/cpu.cfs_quota_us", NULL);
    put("cpu/cpu.cfs_period_us", NULL);
    snprintf(path, sizeof path, "%s/cpu", root);
    return rmdir(path) == 0 ? rmdir(root) : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cpu_quota_when_limited_then_whole_cpus),
        cmocka_unit_test(test_cpu_get_when_read_then_every_count_is_positive),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
