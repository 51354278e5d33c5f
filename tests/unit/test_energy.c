/* Reading the energy counters of CPU packages from a folder of the test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "device/energy.h"

typedef struct folder {
    char path[64];
} folder;

static int setup(void **state)
{
    folder *f = calloc(1, sizeof *f);
    if (!f)
        return -1;
    snprintf(f->path, sizeof f->path, "/tmp/vitrine_energy_XXXXXX");
    *state = f;
    return mkdtemp(f->path) ? 0 : -1;
}

static int teardown(void **state)
{
    folder *f = *state;
    char command[96];
    snprintf(command, sizeof command, "rm -r %s", f->path);
    int rc = system(command);
    free(f);
    return rc;
}

static void put(const folder *f, const char *zone, const char *file, const char *text)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", f->path, zone);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/%s/%s", f->path, zone, file);
    FILE *to = fopen(path, "w");
    assert_non_null(to);
    fputs(text, to);
    fclose(to);
}

static void put_package(const folder *f, const char *zone, const char *name, const char *uj)
{
    put(f, zone, "name", name);
    put(f, zone, "energy_uj", uj);
    put(f, zone, "max_energy_range_uj", "1000000\n");
}

/* Two packages; their parts and the whole board are not counted beside them. */
static void test_energy_sums_packages_alone(void **state)
{
    folder *f = *state;
    vt_energy e;
    put_package(f, "intel-rapl:0", "package-0\n", "5000\n");
    put_package(f, "intel-rapl:0:0", "core\n", "5000\n");
    put_package(f, "intel-rapl:1", "package-1\n", "7000\n");
    put_package(f, "intel-rapl:2", "psys\n", "9000\n");
    vt_energy_open(f->path, &e);
    assert_int_equal(e.n, 2);
    assert_int_equal(vt_energy_read_mj(&e), 0);
    put(f, "intel-rapl:0", "energy_uj", "25000\n");
    put(f, "intel-rapl:1", "energy_uj", "10500\n");
    put(f, "intel-rapl:2", "energy_uj", "99000\n");
    assert_int_equal(vt_energy_read_mj(&e), 23);
    vt_energy_close(&e);
    assert_int_equal(vt_energy_read_mj(&e), -1);
}

static void test_energy_when_a_counter_turns_then_goes_on(void **state)
{
    folder *f = *state;
    vt_energy e;
    put_package(f, "intel-rapl:0", "package-0\n", "990000\n");
    vt_energy_open(f->path, &e);
    put(f, "intel-rapl:0", "energy_uj", "15000\n");
    assert_int_equal(vt_energy_read_mj(&e), 25);
    put(f, "intel-rapl:0", "energy_uj", "gone\n");
    assert_int_equal(vt_energy_read_mj(&e), -1);
    vt_energy_close(&e);
}

static void test_energy_without_counters_says_why(void **state)
{
    folder *f = *state;
    vt_energy e;
    vt_energy_open("/nowhere", &e);
    assert_int_equal(e.n, 0);
    assert_string_equal(e.why, "/nowhere names no package: this machine offers no counter");
    /* one of two packages has no number: half a machine's energy is none */
    put_package(f, "intel-rapl:0", "package-0\n", "1\n");
    put_package(f, "intel-rapl:1", "package-1\n", "?\n");
    vt_energy_open(f->path, &e);
    assert_int_equal(e.n, 0);
    assert_non_null(strstr(e.why, "intel-rapl:1/energy_uj: no number could be read"));
    put_package(f, "intel-rapl:1", "package-1\n", "1\n");
    put(f, "intel-rapl:1", "max_energy_range_uj", "0\n");
    vt_energy_open(f->path, &e);
    assert_int_equal(e.n, 0);
    char path[96];
    snprintf(path, sizeof path, "%s/intel-rapl:1/energy_uj", f->path);
    unlink(path);
    vt_energy_open(f->path, &e);
    assert_non_null(strstr(e.why, "No such file"));
}

int main(void)
{
#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_energy_sums_packages_alone),
        TEST(test_energy_when_a_counter_turns_then_goes_on),
        TEST(test_energy_without_counters_says_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
