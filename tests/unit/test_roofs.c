/* Roofs are measured once, kept in a file and read again; a broken file is measured again. */
#include <dirent.h>
#include <math.h>
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

#include "device/hardware.h"
#include "device/roofs.h"
#include "device/roofs_cache.h"

static char folder[] = "/tmp/vitrine-roofs-XXXXXX";

/* The one file in the cache folder. */
static void roofs_file(char *path, size_t size)
{
    DIR *d = opendir(folder);
    assert_non_null(d);
    path[0] = '\0';
    for (struct dirent *e; (e = readdir(d));)
        if (strncmp(e->d_name, "roofs-", 6) == 0) {
            assert_string_equal(path, "");
            assert_non_null(strstr(e->d_name, ".json"));
            snprintf(path, size, "%s/%s", folder, e->d_name);
        }
    closedir(d);
    assert_string_not_equal(path, "");
}

static void test_roofs_get_when_measured_then_positive_and_kept(void **state)
{
    (void)state;
    vt_roofs a, b;
    vt_err err;
    char path[512];
    assert_int_equal(vt_roofs_get(1, 4 << 20, &a, &err), VT_OK);
    assert_true(a.measured);
    assert_int_equal(a.threads, 1);
    assert_true(a.memory_bytes_per_s > 0 && isfinite(a.memory_bytes_per_s));
    assert_true(a.near_bytes_per_s > 0 && isfinite(a.near_bytes_per_s));
    assert_true(a.fp32_per_s > 0 && isfinite(a.fp32_per_s));
    assert_true(a.int8_per_s > 0 && isfinite(a.int8_per_s));
    assert_non_null(a.fp32_how);
    assert_true((a.bf16_per_s > 0) == (a.bf16_how != NULL));
    assert_true(a.far_bytes >= 64 << 20);
    roofs_file(path, sizeof path);
    assert_int_equal(vt_roofs_get(1, 4 << 20, &b, &err),
                     VT_OK); /* from the file: equal to its digits */
    assert_float_equal((float)(b.memory_bytes_per_s / a.memory_bytes_per_s), 1, 1e-4f);
    assert_float_equal((float)(b.near_bytes_per_s / a.near_bytes_per_s), 1, 1e-4f);
    assert_float_equal((float)(b.fp32_per_s / a.fp32_per_s), 1, 1e-4f);
}

/* If another user guesses the name of the temporary file and makes a link with it, the link must
 * not be followed. Only their owner can read the folders. */
static void test_roofs_cache_when_written_then_no_link_is_followed(void **state)
{
    (void)state;
    char dir[] = "/tmp/vitrine-roofs-XXXXXX", victim[256], link[400], text[16] = "", clean[300];
    char inner[256];
    struct stat st;
    vt_roofs r = {.name = "this", .level = "avx2", .far_bytes = 1, .near_bytes = 5};
    assert_non_null(mkdtemp(dir));
    snprintf(inner, sizeof inner, "%s/inner", dir);
    setenv("VITRINE_CACHE", inner, 1);
    roofs_cache_write("first", &r);
    assert_int_equal(stat(inner, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    snprintf(victim, sizeof victim, "%s/victim", dir);
    FILE *f = fopen(victim, "w");
    assert_non_null(f);
    fputs("mine", f);
    fclose(f);
    snprintf(link, sizeof link, "%s/roofs-key.json.%ld", inner, (long)getpid());
    assert_int_equal(symlink(victim, link), 0);
    roofs_cache_write("key", &r);
    f = fopen(victim, "r");
    assert_non_null(f);
    assert_non_null(fgets(text, sizeof text, f));
    fclose(f);
    assert_string_equal(text, "mine");
    setenv("VITRINE_CACHE", folder, 1);
    snprintf(clean, sizeof clean, "rm -r %s", dir);
    assert_int_equal(system(clean), 0);
}

/* What was measured for one working set stays when another one is measured. A file of another
 * version may mean other things by its names, and is not read. */
static void test_roofs_cache_keeps_other_working_sets_and_reads_its_own_version_only(void **state)
{
    (void)state;
    char dir[] = "/tmp/vitrine-roofs-XXXXXX", path[300], text[2000] = "", clean[300];
    vt_roofs r = {.name = "this", .level = "avx2", .far_bytes = 9, .memory_bytes_per_s = 1e9};
    vt_roofs none = {.far_bytes = -1};
    assert_non_null(mkdtemp(dir));
    setenv("VITRINE_CACHE", dir, 1);
    for (int64_t set = 5; set <= 7; set++) {
        r.near_bytes = set;
        r.near_bytes_per_s = (double)set * 1e9;
        roofs_cache_write("k", &r);
    }
    for (int64_t set = 5; set <= 7; set++) {
        vt_roofs got = {0};
        roofs_cache_read("k", &got, set);
        assert_true(got.near_bytes_per_s == (double)set * 1e9 && got.memory_bytes_per_s == 1e9);
    }
    snprintf(path, sizeof path, "%s/roofs-k.json", dir);
    FILE *f = fopen(path, "r+");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof text - 1, f);
    char *version = strstr(text, "\"version\": 1");
    assert_non_null(version);
    version[strlen("\"version\": ")] = '2';
    rewind(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    fclose(f);
    roofs_cache_read("k", &none, 5);
    assert_int_equal(none.far_bytes, -1);
    setenv("VITRINE_CACHE", folder, 1);
    snprintf(clean, sizeof clean, "rm -r %s", dir);
    assert_int_equal(system(clean), 0);
}

static void test_roofs_get_when_new_working_set_then_rest_kept(void **state)
{
    (void)state;
    vt_roofs a, b;
    assert_int_equal(vt_roofs_get(1, 4 << 20, &a, NULL), VT_OK);
    assert_int_equal(vt_roofs_get(1, 2 << 20, &b, NULL), VT_OK);
    assert_true(b.memory_bytes_per_s == a.memory_bytes_per_s);
    assert_int_equal(b.near_bytes, 2 << 20);
    assert_true(vt_roofs_bandwidth(&b) == b.near_bytes_per_s);
    assert_int_equal(vt_roofs_get(1, 0, &b, NULL), VT_OK);
    assert_true(vt_roofs_bandwidth(&b) == b.memory_bytes_per_s);
}

static void test_roofs_get_when_file_broken_then_measured_again(void **state)
{
    (void)state;
    char path[512];
    vt_roofs r;
    roofs_file(path, sizeof path);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("{\"version\": 1, \"memory_bytes_per_s\": \"fast\"", f);
    fclose(f);
    assert_int_equal(vt_roofs_get(1, 0, &r, NULL), VT_OK);
    assert_true(r.memory_bytes_per_s > 0);
}

static void test_roofs_named_when_unknown_then_listed(void **state)
{
    (void)state;
    vt_err err;
    const vt_hardware *h200 = vt_hardware_find("H200", &err),
                      *a100 = vt_hardware_find("a100-80gb-sxm", &err);
    assert_non_null(h200);
    assert_false(h200->roofs.measured);
    assert_true(h200->roofs.memory_bytes_per_s > 4e12 && h200->roofs.memory_bytes_per_s < 4.9e12);
    assert_non_null(a100);
    assert_int_equal(a100->kernel_level, 80);
    assert_null(vt_hardware_find("abacus", &err));
    assert_int_equal(err.status, VT_ERR_USAGE);
    assert_non_null(strstr(err.message, "'abacus' is not in the table, expected this, h200,"));
}

static int setup(void **state)
{
    (void)state;
    return mkdtemp(folder) && setenv("VITRINE_CACHE", folder, 1) == 0 && vt_cpu_init(NULL) == VT_OK
               ? 0
               : -1;
}

static int teardown(void **state)
{
    (void)state;
    char path[512];
    roofs_file(path, sizeof path);
    return unlink(path) == 0 && rmdir(folder) == 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_roofs_get_when_measured_then_positive_and_kept),
        cmocka_unit_test(test_roofs_cache_when_written_then_no_link_is_followed),
        cmocka_unit_test(test_roofs_cache_keeps_other_working_sets_and_reads_its_own_version_only),
        cmocka_unit_test(test_roofs_get_when_new_working_set_then_rest_kept),
        cmocka_unit_test(test_roofs_get_when_file_broken_then_measured_again),
        cmocka_unit_test(test_roofs_named_when_unknown_then_listed),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
