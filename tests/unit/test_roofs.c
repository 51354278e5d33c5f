/* Roofs: which samples are believed, what is kept in a file and read again, what hardware files
 * hold. Nothing here depends on how busy this machine is. */
#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "device/hardware.h"
#include "device/roofs/roofs.h"
#include "device/roofs/roofs_cache.h"
#include "device/roofs/roofs_sample.h"

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

/* ---- samples ---- */

/* Adds runs of one unit of work at these rates; a negative rate is a run that waited for a CPU for
 * a tenth of its time. */
static roof_samples samples_of(const double *rate, int n)
{
    roof_samples s = {0};
    for (int i = 0; i < n; i++) {
        double seconds = 1 / fabs(rate[i]);
        roof_samples_add(&s, 1, seconds, rate[i] < 0 ? (int64_t)(seconds * 1e8) : 0);
    }
    return s;
}

static void test_samples_are_believed_when_two_undisturbed_ones_are_near_the_best(void **state)
{
    (void)state;
    static const struct {
        double rate[4];
        int n;
        bool agree;
        double best;
    } row[] = {
        {{32.4, 31.9}, 2, true, 32.4},           /* 1.5 % apart */
        {{32.4, 31.3}, 2, false, 32.4},          /* 3.4 % apart */
        {{32.4}, 1, false, 32.4},                /* one run proves nothing */
        {{7.6, 19, 32.4, 11.2}, 4, false, 32.4}, /* a busy machine */
        {{7.6, 32.0, 19, 32.4}, 4, true, 32.4},  /* slow runs between do not matter */
        {{-32.4, -32.4, -32.4}, 3, false, 32.4}, /* agreement of disturbed runs is no proof */
        {{-32.4, 32.3, 32.2}, 3, true, 32.4},    /* a disturbed run may be the best */
        {{-40, 32.3, 32.2}, 3, false, 40},       /* the others are far below what was seen */
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        roof_samples s = samples_of(row[i].rate, row[i].n);
        if (roof_samples_agree(&s) != row[i].agree || fabs(s.best - row[i].best) > 1e-9)
            fail_msg("row %zu: agree %d, best %g", i, roof_samples_agree(&s), s.best);
    }
}

static void test_samples_when_delay_unknown_or_short_then_undisturbed(void **state)
{
    (void)state;
    roof_samples s = {0};
    roof_samples_add(&s, 100, 1, -1);       /* the kernel does not count */
    roof_samples_add(&s, 100, 1, 19000000); /* 1.9 % */
    assert_true(roof_samples_agree(&s));
    roof_samples_add(&s, 110, 1, 21000000); /* 2.1 % */
    assert_int_equal(s.n_disturbed, 1);
    roof_samples_add(&s, 1, 0, 0); /* no time, no rate */
    assert_int_equal(s.n, 2);
}

/* ---- figures ---- */

static void test_roof_better_keeps_the_best_and_its_mark(void **state)
{
    (void)state;
    vt_roofs r = {0};
    vt_roof_better(&r, VT_ROOF_COPY, 100, VT_ROOF_MEASURED, 7);
    vt_roof_better(&r, VT_ROOF_COPY, 90, VT_ROOF_MEASURED, 8);
    assert_true(r.copy_bytes_per_s == 100 && r.mark[VT_ROOF_COPY].when == 7);
    vt_roof_better(&r, VT_ROOF_COPY, 102, VT_ROOF_DISTURBED, 9); /* within 3 % */
    assert_true(r.copy_bytes_per_s == 100 && r.mark[VT_ROOF_COPY].tag == VT_ROOF_MEASURED);
    vt_roof_better(&r, VT_ROOF_COPY, 120, VT_ROOF_DISTURBED, 9); /* 100 cannot be the roof */
    assert_true(r.copy_bytes_per_s == 120 && r.mark[VT_ROOF_COPY].tag == VT_ROOF_DISTURBED);
    assert_true(vt_roofs_disturbed(&r));
    vt_roof_better(&r, VT_ROOF_MEETING, 2e-6, VT_ROOF_DISTURBED, 1);
    vt_roof_better(&r, VT_ROOF_MEETING, 1e-6, VT_ROOF_MEASURED, 2); /* a time: less is better */
    vt_roof_better(&r, VT_ROOF_MEETING, 3e-6, VT_ROOF_MEASURED, 3);
    assert_true(r.meeting_s == 1e-6 && r.mark[VT_ROOF_MEETING].when == 2);
}

static void test_roofs_launch_is_the_shortest_undisturbed_one(void **state)
{
    (void)state;
    vt_roofs r = {.meeting_s = 3e-7};
    assert_true(vt_roofs_launch_s(&r, true) == 3e-7);
    r.mark[VT_ROOF_MEETING].tag = VT_ROOF_DISTURBED; /* too long to be a least time */
    assert_true(vt_roofs_launch_s(&r, true) == 0);
    r = (vt_roofs){.kernel_s = 2e-6, .kernel_pdl_s = 1e-6};
    assert_true(vt_roofs_launch_s(&r, true) == 1e-6 && vt_roofs_launch_s(&r, false) == 2e-6);
}

/* ---- measuring and keeping ---- */

static void test_roofs_get_when_measured_then_every_figure_has_a_tag(void **state)
{
    (void)state;
    vt_roofs a;
    vt_err err;
    char path[512];
    assert_int_equal(vt_roofs_get(1, 4 << 20, &a, &err), VT_OK);
    assert_true(a.measured);
    assert_int_equal(a.threads, 1);
    for (int i = 0; i < VT_ROOFS; i++) {
        double v = vt_roof_get(&a, (vt_roof_kind)i);
        vt_roof_tag tag = a.mark[i].tag;
        assert_true(v >= 0 && isfinite(v));
        assert_int_equal(v > 0, tag == VT_ROOF_MEASURED || tag == VT_ROOF_DISTURBED);
        assert_int_equal(v > 0, a.mark[i].when > 0);
    }
    assert_true(a.memory_bytes_per_s > 0 && a.near_bytes_per_s > 0 && a.copy_bytes_per_s > 0);
    assert_true(a.fp32_per_s > 0 && a.int8_per_s > 0);
    assert_non_null(a.fp32_how);
    assert_true((a.bf16_per_s > 0) == (a.bf16_how != NULL));
    assert_true(a.meeting_s == 0 && a.kernel_s == 0); /* one thread meets nobody */
    assert_true(a.far_bytes == roofs_far_bytes(vt_cpu_get()) && a.near_bytes == 4 << 20);
    roofs_file(path, sizeof path);
}

static void test_roofs_far_passes_exceed_all_caches_several_times(void **state)
{
    (void)state;
    enum { M = 1 << 20 };
    static const struct {
        int64_t l2, l3, memory; /* MiB */
        int32_t cores, l3s;
        int64_t far;
    } row[] = {
        {1, 32, 65536, 2, 1, 256},    /* a virtual machine in one core complex */
        {1, 32, 65536, 32, 2, 512},   /* two core complexes have two caches */
        {2, 300, 262144, 16, 1, 768}, /* the cache of a whole host: the maximum */
        {1, 0, 65536, 8, 1, 128},     /* no L3 */
        {4, 0, 65536, 8, 1, 256},     /* no L3, and large L2s */
        {1, 32, 1600, 2, 1, 200},     /* an eighth of the memory */
        {1, 32, 512, 2, 1, 128},      /* the minimum */
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        vt_cpu c = {.n_cores = row[i].cores,
                    .n_l3 = row[i].l3s,
                    .l2_bytes = row[i].l2 * M,
                    .l3_bytes = row[i].l3 * M,
                    .memory_bytes = row[i].memory * M};
        assert_int_equal(roofs_far_bytes(&c), row[i].far * M);
    }
}

/* A shell sums up what this machine's third-level caches hold. */
static void test_roofs_far_passes_exceed_the_caches_of_this_machine(void **state)
{
    (void)state;
    const vt_cpu *cpu = vt_cpu_get();
    int caches = 0;
    int64_t kib = 0, memory = sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGESIZE);
    FILE *f = popen("cd /sys/devices/system/cpu; for d in cpu*/cache/index3; do"
                    " [ ! -e $d/size ] || echo $(cat $d/shared_cpu_list $d/size); done"
                    " | sort -u | awk '{s += $2} END {print NR, s + 0}'",
                    "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%d %" SCNd64, &caches, &kib), 2);
    pclose(f);
    if (cpu->n_cpus < sysconf(_SC_NPROCESSORS_ONLN)) { /* some of the caches may be others' */
        assert_in_range(cpu->n_l3, 1, caches > 0 ? caches : 1);
        return;
    }
    assert_int_equal(cpu->n_l3, caches > 0 ? caches : 1);
    int64_t least = 8 * kib << 10;
    least = least < memory / 8 ? least : memory / 8;
    least = least < 768 << 20 ? least : 768 << 20;
    assert_true(roofs_far_bytes(cpu) >= least && roofs_far_bytes(cpu) >= 128 << 20);
}

/* Plants a file with every figure of this machine, one of them disturbed `age` seconds ago. */
static vt_roofs plant(int64_t working_set, vt_roof_kind disturbed, int64_t age)
{
    vt_roofs r;
    assert_int_equal(vt_roofs_get(1, working_set, &r, NULL), VT_OK);
    for (int i = 0; i < VT_ROOFS; i++)
        if (vt_roof_get(&r, (vt_roof_kind)i) > 0) /* far more than any machine reaches */
            vt_roof_set(&r, (vt_roof_kind)i, 1e17 + i * 1e15,
                        i == (int)disturbed ? VT_ROOF_DISTURBED : VT_ROOF_MEASURED,
                        i == (int)disturbed ? (int64_t)time(NULL) - age : 1000 + i);
    roofs_cache_write(r.key, &r);
    return r;
}

static void
test_roofs_get_when_a_figure_was_disturbed_then_only_that_is_measured_again(void **state)
{
    (void)state;
    vt_roofs a = plant(4 << 20, VT_ROOF_COPY, 3600), b;
    assert_int_equal(vt_roofs_get(1, 4 << 20, &b, NULL), VT_OK);
    for (int i = 0; i < VT_ROOFS; i++) {
        if (i == VT_ROOF_COPY)
            continue;
        assert_true(vt_roof_get(&a, (vt_roof_kind)i) == vt_roof_get(&b, (vt_roof_kind)i));
        assert_int_equal(a.mark[i].when, b.mark[i].when);
    }
    assert_true(b.copy_bytes_per_s > 0 && b.copy_bytes_per_s < 1e15); /* not the planted one */
    assert_true(b.mark[VT_ROOF_COPY].when > 1000000);
}

static void test_roofs_get_when_the_limit_is_longer_then_a_disturbed_figure_is_kept(void **state)
{
    (void)state;
    vt_roofs a = plant(4 << 20, VT_ROOF_COPY, 3600), b;
    setenv("VITRINE_DISTURBED_LIMIT", "7200", 1);
    vt_status status = vt_roofs_get(1, 4 << 20, &b, NULL);
    unsetenv("VITRINE_DISTURBED_LIMIT");
    assert_int_equal(status, VT_OK);
    assert_true(a.copy_bytes_per_s == b.copy_bytes_per_s);
    assert_int_equal(a.mark[VT_ROOF_COPY].when, b.mark[VT_ROOF_COPY].when);
}

/* On a busy machine each run would measure for 3 s otherwise. */
static void test_roofs_get_when_disturbed_a_moment_ago_then_measured_again_if_asked(void **state)
{
    (void)state;
    static const vt_roof_kind kinds[] = {VT_ROOF_COPY, VT_ROOF_WEIGHTS};
    for (size_t i = 0; i < 2; i++) {
        vt_roof_kind kind = kinds[i];
        vt_roofs a = plant(4 << 20, kind, 0), b;
        assert_int_equal(vt_roofs_get(1, 4 << 20, &b, NULL), VT_OK);
        assert_true(vt_roof_get(&a, kind) == vt_roof_get(&b, kind));
        assert_int_equal(b.mark[kind].tag, VT_ROOF_DISTURBED);
        vt_roofs weights[4];
        assert_int_equal(roofs_cache_weights(&a, weights, 4), 1);
        assert_int_equal(weights[0].mark[VT_ROOF_WEIGHTS].tag, a.mark[VT_ROOF_WEIGHTS].tag);
        assert_int_equal(vt_roofs_again(1, 4 << 20, &b, NULL), VT_OK);
        if (kind == VT_ROOF_COPY)
            assert_true(b.copy_bytes_per_s < 1e15); /* not the planted one */
    }
}

static void test_roofs_memory_now_replaces_a_lower_figure_only(void **state)
{
    (void)state;
    double now = 0;
    vt_roofs planted = plant(4 << 20, VT_ROOF_COPY, 3600), after = {0};
    assert_int_equal(vt_roofs_memory_now(1, &now, NULL), VT_OK);
    assert_true(now > 0 && now < 1e15); /* not the planted one */
    roofs_cache_read(planted.key, &after, 4 << 20);
    assert_true(after.memory_bytes_per_s == planted.memory_bytes_per_s);
    vt_roof_set(&planted, VT_ROOF_MEMORY, 1, VT_ROOF_MEASURED, 1000); /* of a very busy machine */
    roofs_cache_write(planted.key, &planted);
    assert_int_equal(vt_roofs_memory_now(1, &now, NULL), VT_OK);
    roofs_cache_read(planted.key, &after, 4 << 20);
    bool disturbed = after.memory_bytes_per_s == 1; /* such a figure does not replace another */
    assert_true(disturbed || fabs(after.memory_bytes_per_s / now - 1) < 1e-6);
    assert_true(after.near_bytes_per_s == planted.near_bytes_per_s); /* and the rest stays */
}

static void test_roofs_again_when_the_file_is_better_then_it_stays(void **state)
{
    (void)state;
    vt_roofs a = plant(4 << 20, VT_ROOFS, 0), b;
    assert_int_equal(vt_roofs_again(1, 4 << 20, &b, NULL), VT_OK);
    assert_true(b.memory_bytes_per_s == a.memory_bytes_per_s);
    assert_int_equal(b.mark[VT_ROOF_MEMORY].when, 1000 + VT_ROOF_MEMORY);
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

/* A program that has better instructions measures again. */
static void test_roofs_cache_when_a_figure_was_measured_otherwise_then_it_is_not_read(void **state)
{
    (void)state;
    char dir[] = "/tmp/vitrine-roofs-XXXXXX", clean[300];
    vt_roofs r = {.name = "this", .level = "avx2", .fp32_how = "fma", .int8_how = "maddubs"};
    vt_roofs same = r, other = r;
    other.int8_how = "vnni";
    assert_non_null(mkdtemp(dir));
    setenv("VITRINE_CACHE", dir, 1);
    vt_roof_set(&r, VT_ROOF_FP32, 2e9, VT_ROOF_MEASURED, 1);
    vt_roof_set(&r, VT_ROOF_INT8, 3e9, VT_ROOF_MEASURED, 1);
    roofs_cache_write("k", &r);
    roofs_cache_read("k", &same, 0);
    roofs_cache_read("k", &other, 0);
    assert_true(same.fp32_per_s == 2e9 && same.int8_per_s == 3e9);
    assert_true(other.fp32_per_s == 2e9 && other.int8_per_s == 0);
    setenv("VITRINE_CACHE", folder, 1);
    snprintf(clean, sizeof clean, "rm -r %s", dir);
    assert_int_equal(system(clean), 0);
}

/* Figures of one working set stay when another one is measured. A file of another version may mean
 * other things by its names, and is not read. */
static void test_roofs_cache_keeps_other_working_sets_and_reads_its_own_version_only(void **state)
{
    (void)state;
    char dir[] = "/tmp/vitrine-roofs-XXXXXX", path[300], text[2000] = "", clean[300];
    vt_roofs r = {.name = "this", .level = "avx2", .far_bytes = 9};
    vt_roofs none = {.far_bytes = -1};
    assert_non_null(mkdtemp(dir));
    setenv("VITRINE_CACHE", dir, 1);
    vt_roof_set(&r, VT_ROOF_MEMORY, 1e9, VT_ROOF_MEASURED, 1);
    for (int64_t set = 5; set <= 7; set++) {
        r.near_bytes = set;
        vt_roof_set(&r, VT_ROOF_WEIGHTS, (double)set * 1e9, VT_ROOF_MEASURED, 1);
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
    char *version = strstr(text, "\"version\": 4");
    assert_non_null(version);
    version[strlen("\"version\": ")] = '1';
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
    vt_roofs a = plant(4 << 20, VT_ROOFS, 0), b;
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
    assert_int_equal(h200->roofs.mark[VT_ROOF_MEMORY].tag, VT_ROOF_MEASURED);
    assert_int_equal(h200->roofs.mark[VT_ROOF_FP8].tag, VT_ROOF_DATASHEET);
    assert_non_null(a100);
    assert_int_equal(a100->kernel_level, 80);
    assert_null(vt_hardware_find("abacus", &err));
    assert_int_equal(err.status, VT_ERR_USAGE);
    assert_non_null(strstr(err.message, "'abacus' is not in the table, expected this, h200,"));
}

/* ---- hardware files ---- */

#define FIGURES                                                                                   \
    "\"figures\": {\"memory_bytes_per_s\": {\"value\": 2e11, \"working_set_bytes\": 99, "         \
    "\"date\": \"2026-01-02T03:04:05Z\", \"tag\": \"measured\"}, \"fp32_per_s\": "                \
    "{\"value\": 1e12, \"working_set_bytes\": null, \"date\": null, \"tag\": \"disturbed\"}, "    \
    "\"meeting_us\": {\"value\": 0.5, \"tag\": \"measured\"}}, \"efficiencies\": "                \
    "{\"linear x y\": {\"us\": 5, \"bytes\": 1, \"activation_bytes\": 2, \"fp32\": 3, \"bf16\": " \
    "0, \"int8\": 0}, \"bad\": {\"us\": -1}}"
#define CPU                                                                             \
    "\"cpu\": {\"model\": \"A \\u001b[31m CPU\", \"cores\": 8, \"l2_bytes\": 1048576, " \
    "\"l3_bytes\": 33554432, \"memory_bytes\": 8589934592, \"level\": \"amx\"}, "       \
    "\"roofs\": {\"threads\": 4, " FIGURES "}"
#define GPU                                                                            \
    "\"gpu\": {\"name\": \"A GPU\", \"memory_bytes\": 8e10, \"level\": 80, "           \
    "\"multiprocessors\": 108, \"max_shared_bytes\": 166912, \"l2_bytes\": 41943040, " \
    "\"roofs\": {\"threads\": 0, " FIGURES "}}"

static void test_hardware_file_when_of_a_cpu_then_its_figures_with_their_marks(void **state)
{
    (void)state;
    static const char text[] = "{" CPU ", \"gpu\": null}";
    vt_hardware h;
    vt_err err;
    assert_int_equal(vt_hardware_parse("f", text, strlen(text), false, &h, &err), VT_OK);
    assert_true(h.is_cpu && h.isa == VT_ISA_AMX && !h.roofs.measured && !h.roofs.is_gpu);
    assert_true(h.roofs.memory_bytes_per_s == 2e11 && h.roofs.far_bytes == 99);
    assert_int_equal(h.roofs.mark[VT_ROOF_MEMORY].when, 1767323045);
    assert_int_equal(h.roofs.mark[VT_ROOF_FP32].tag, VT_ROOF_DISTURBED);
    assert_true(fabs(h.roofs.meeting_s - 5e-7) < 1e-12);
    assert_true(h.roofs.l2_size == 4 << 20 && h.roofs.l3_size == 32 << 20);
    assert_null(strchr(h.roofs.name, 27));
    assert_int_equal(h.efficiencies.n, 1);
    assert_true(vt_efficiency_find(&h.efficiencies, "linear x y")->fp32 == 3);
    vt_hardware_release(&h);
}

static void test_hardware_file_when_of_a_gpu_then_the_gpu_unless_the_cpu_is_asked_for(void **state)
{
    (void)state;
    static const char text[] = "{" CPU ", " GPU "}";
    vt_hardware h;
    assert_int_equal(vt_hardware_parse("f", text, strlen(text), false, &h, NULL), VT_OK);
    assert_true(!h.is_cpu && h.roofs.is_gpu && h.kernel_level == 80 && h.sm_count == 108);
    assert_string_equal(h.roofs.name, "A GPU");
    vt_hardware_release(&h);
    assert_int_equal(vt_hardware_parse("f", text, strlen(text), true, &h, NULL), VT_OK);
    assert_true(h.is_cpu);
    vt_hardware_release(&h);
}

/* Every bad file is one sentence that names the file and the member. */
static void test_hardware_file_when_bad_then_one_sentence(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } row[] = {
        {"", "not valid JSON"},
        {"[]", "an object was expected"},
        {"{}", "no members cpu and roofs"},
        {"{\"cpu\": {\"model\": 5}, \"roofs\": {}}", "model"},
        {"{\"cpu\": {\"model\": \"x\"}, \"roofs\": {}}", "memory_bytes_per_s"},
        {"{\"gpu\": {\"name\": \"x\", \"roofs\": {" FIGURES "}}}", "memory_bytes"},
        {"{\"gpu\": {\"name\": \"x\", \"memory_bytes\": 1e99, \"roofs\": {" FIGURES "}}}", "1e+99"},
        {"{\"gpu\": {\"name\": \"x\", \"memory_bytes\": 1e10, \"level\": 85, "
         "\"multiprocessors\": 1, \"max_shared_bytes\": 65536, \"l2_bytes\": 1, \"roofs\": "
         "{" FIGURES "}}}",
         "85"},
        {"{\"gpu\": {\"name\": \"x\", \"memory_bytes\": 1e10, \"level\": 80, "
         "\"multiprocessors\": 0, \"roofs\": {" FIGURES "}}}",
         "multiprocessors"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        vt_hardware h;
        vt_err err = {0};
        assert_int_not_equal(
            vt_hardware_parse("that file", row[i].text, strlen(row[i].text), false, &h, &err),
            VT_OK);
        if (!strstr(err.message, row[i].says) || !strstr(err.message, "that file"))
            fail_msg("row %zu: %s", i, err.message);
    }
}

/* ---- efficiencies ---- */

static void
test_efficiencies_when_written_then_the_steady_and_the_young_are_read_again(void **state)
{
    (void)state;
    vt_efficiencies e = {0}, back = {0};
    char path[512];
    vt_efficiency x = {.seconds = 1e-6, .bytes = 8, .activations = 7, .int8 = 6, .steady = true};
    assert_true(vt_efficiency_add(&e, "b", &x) && vt_efficiency_add(&e, "a", &x));
    x.steady = false;
    x.when = (int64_t)time(NULL) - 3600;
    assert_true(vt_efficiency_add(&e, "c", &x));
    x.when = (int64_t)time(NULL) - 1;
    assert_true(vt_efficiency_add(&e, "d", &x));
    x.steady = true;
    x.when = 10;
    x.seconds = 2e-6;
    assert_true(vt_efficiency_add(&e, "b", &x));
    assert_int_equal(e.n, 4);
    vt_efficiencies_write(&e, "some machine");
    vt_efficiencies_read(&back, "some machine");
    assert_int_equal(back.n, 3);
    assert_false(vt_efficiency_find(&back, "d")->steady);
    assert_true(vt_efficiency_find(&back, "a")->steady);
    assert_true(vt_efficiency_find(&back, "b")->seconds == 2e-6);
    assert_int_equal(vt_efficiency_find(&back, "b")->when, 10);
    assert_null(vt_efficiency_find(&back, "c"));
    vt_efficiencies_release(&e);
    vt_efficiencies_release(&back);
    vt_efficiencies_read(&back, "another machine");
    assert_int_equal(back.n, 0);
    snprintf(path, sizeof path, "%s/efficiency-some-machine.json", folder);
    assert_int_equal(unlink(path), 0);
}

static void test_efficiencies_when_full_then_no_more(void **state)
{
    (void)state;
    vt_efficiencies e = {0};
    char key[32];
    const vt_efficiency x = {.seconds = 1};
    for (int i = 0; i < VT_MAX_EFFICIENCIES; i++) {
        snprintf(key, sizeof key, "%d", i);
        assert_true(vt_efficiency_add(&e, key, &x));
    }
    assert_false(vt_efficiency_add(&e, "one more", &x));
    assert_int_equal(e.n, VT_MAX_EFFICIENCIES);
    vt_efficiencies_release(&e);
}

static int setup(void **state)
{
    (void)state;
    unsetenv("VITRINE_DISTURBED_LIMIT");
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
        cmocka_unit_test(test_samples_are_believed_when_two_undisturbed_ones_are_near_the_best),
        cmocka_unit_test(test_samples_when_delay_unknown_or_short_then_undisturbed),
        cmocka_unit_test(test_roof_better_keeps_the_best_and_its_mark),
        cmocka_unit_test(test_roofs_launch_is_the_shortest_undisturbed_one),
        cmocka_unit_test(test_roofs_get_when_measured_then_every_figure_has_a_tag),
        cmocka_unit_test(test_roofs_far_passes_exceed_all_caches_several_times),
        cmocka_unit_test(test_roofs_far_passes_exceed_the_caches_of_this_machine),
        cmocka_unit_test(
            test_roofs_get_when_a_figure_was_disturbed_then_only_that_is_measured_again),
        cmocka_unit_test(test_roofs_get_when_the_limit_is_longer_then_a_disturbed_figure_is_kept),
        cmocka_unit_test(test_roofs_get_when_disturbed_a_moment_ago_then_measured_again_if_asked),
        cmocka_unit_test(test_roofs_memory_now_replaces_a_lower_figure_only),
        cmocka_unit_test(test_roofs_again_when_the_file_is_better_then_it_stays),
        cmocka_unit_test(test_roofs_cache_when_written_then_no_link_is_followed),
        cmocka_unit_test(test_roofs_cache_when_a_figure_was_measured_otherwise_then_it_is_not_read),
        cmocka_unit_test(test_roofs_cache_keeps_other_working_sets_and_reads_its_own_version_only),
        cmocka_unit_test(test_roofs_get_when_new_working_set_then_rest_kept),
        cmocka_unit_test(test_roofs_get_when_file_broken_then_measured_again),
        cmocka_unit_test(test_roofs_named_when_unknown_then_listed),
        cmocka_unit_test(test_hardware_file_when_of_a_cpu_then_its_figures_with_their_marks),
        cmocka_unit_test(test_hardware_file_when_of_a_gpu_then_the_gpu_unless_the_cpu_is_asked_for),
        cmocka_unit_test(test_hardware_file_when_bad_then_one_sentence),
        cmocka_unit_test(
            test_efficiencies_when_written_then_the_steady_and_the_young_are_read_again),
        cmocka_unit_test(test_efficiencies_when_full_then_no_more),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
