/* The frame of the labs: what a lab tells is in its result, items that are not told fail it,
 * predictions are read and graded, results are written and read back, pages keep to 100 columns. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/cache_dir.h"
#include "device/roofs/roofs.h"
#include "lab/kit/all_reduce.h"
#include "lab/kit/list.h"
#include "lab/kit/result.h"
#include "lab/kit/run.h"

static vt_status run_kernel(lab *l, vt_err *err)
{
    lab_kernel k;
    const char *rows[16];
    static const char shape[] = "tokens=16,hidden=512,vocab=1024";
    lab_kernel_ask ask = {.op = "embed", .shape = shape};
    double expected;
    vt_status status = lab_kernel_expect(l, &ask, &expected, err);
    if (status == VT_OK)
        status = lab_kernel_predict(l, "time of a call", &ask, "bytes over roofs", err);
    if (status == VT_OK)
        status = lab_kernel_run(l, &ask, &k, err);
    if (status != VT_OK)
        return status;
    assert_true(expected > 0 && expected == k.expected_s);
    assert_true(lab_kernel_rows(l, "embed", shape, rows, 16, err) >= 1);
    lab_outcome(l, "time of a call", k.median_s, false);
    lab_number(l, "time", k.median_s, VT_SECONDS, "measured", "of one call");
    lab_item(l, "why", "it moves %.0f bytes", k.bytes);
    lab_missing(l, "counters", "no counters are read");
    lab_table(l, "shapes", "one shape", lab_kernel_columns);
    lab_kernel_cells(l, &k);
    lab_kernel_card(l, "card", &k, "copies rows of a table", "none");
    l->busy = false; /* the verdicts below are of planted times */
    lab_turn(l, &(lab_knob){"a", "b", "c", 1.5, 2e-6, 0.01, 1e-6, 0.01, "half the bytes"});
    lab_turn(l, &(lab_knob){"d", "e", "f", NAN, 1e-6, 0.1, 1.05e-6, 0.1, "nothing changes"});
    lab_turn(l, &(lab_knob){"a knob whose name is rather long", "a place whose name is longer", "g",
                            1000, 123e-6, 4000, 123e-9, 0.01, "the machine was busy"});
    /* the difference between two runs, and one within the noise of 29 %: no verdicts */
    lab_turn(l, &(lab_knob){"e", "f", "g", NAN, 8.46e-6, 0.001, 8.36e-6, 0.001, "run to run"});
    lab_turn(l, &(lab_knob){"h", "i", "j", NAN, 226e-6, 0.29, 150e-6, 0.03, "noisy"});
    lab_turn(l, &(lab_knob){"k", "l", "m", NAN, 150e-6, 0.02, 226e-6, 0.02, "slower"});
    lab_turn(l, &(lab_knob){"n", "o", "p", NAN, 2e-6, 0.01, 1e-6, 0.01, "beside others", true});
    lab_finding(l, "planted", "one finding");
    lab_file(l, "x.txt", "a file");
    return VT_OK;
}

static vt_status run_forgets(lab *l, vt_err *err)
{
    (void)err;
    lab_item(l, "why", "because");
    return VT_OK;
}

static lab_def def = {.track = LAB_MINI_SGLANG,
                      .number = "99",
                      .name = "planted",
                      .goal = "nothing",
                      .about = {"A table is copied."},
                      .items = {{"time", "time of a call", true},
                                {"why", "why it takes so long", false},
                                {"counters", "stalls", true},
                                {"shapes", "time over shapes", false},
                                {"card", "the kernel", true}},
                      .knobs = {{"a knob whose", LAB_OFFERED}, {"", LAB_LOAD}},
                      .kernels = true,
                      .run = run_kernel};

static vt_options *options_with(const char *key, const char *value)
{
    vt_options *o;
    vt_err err;
    assert_int_equal(vt_options_new(&o, &err), VT_OK);
    vt_options_open_to(o, ~0u);
    if (key)
        assert_int_equal(vt_options_assign(o, vt_option_find(key, VT_FOR_LAB), value, "test", &err),
                         VT_OK);
    return o;
}

static vt_status run_with(const char *key, const char *value, json_t **result, bool *failed,
                          vt_err *err)
{
    vt_options *o = options_with(key, value);
    lab_ask a = {.options = o,
                 .model = "none",
                 .folder = "/tmp",
                 .ordinal = -1,
                 .threads = 2,
                 .quick = true};
    vt_status status = lab_run(&a, &def, result, failed, err);
    vt_options_free(o);
    return status;
}

static void test_lab_tells_all_items(void **state)
{
    (void)state;
    json_t *r;
    bool failed;
    vt_err err = {0};
    vt_buf page = {0};
    vt_term term = {.width = 100};
    def.run = run_kernel;
    assert_int_equal(run_with(NULL, NULL, &r, &failed, &err), VT_OK);
    assert_false(failed);
    const json_t *checks = json_object_get(r, "checks");
    assert_int_equal(json_array_size(checks), 1);
    assert_true(json_is_true(json_object_get(json_array_get(checks, 0), "ok")));
    const json_t *knobs = json_object_get(r, "knobs");
    static const char *const later[] = {"no gain here", "no gain here", "loses", "not graded"};
    for (size_t i = 0; i < 4; i++)
        assert_string_equal(
            json_string_value(json_object_get(json_array_get(knobs, 3 + i), "verdict")), later[i]);
    assert_string_equal(json_string_value(json_object_get(json_array_get(knobs, 0), "verdict")),
                        "gains");
    assert_string_equal(json_string_value(json_object_get(json_array_get(knobs, 1), "verdict")),
                        "no gain here");
    lab_result_render(r, &term, &page);
    static const char *const words[] = {"1 PREDICT",
                                        "2 RUN",
                                        "3 CHECK",
                                        "4 PROFILE",
                                        "5 EXPLAIN",
                                        "6 CHANGE",
                                        "not measured here, because no counters are read",
                                        "1 of 1 checks hold",
                                        "2 RUN\n  took ",
                                        "1000.00x  1000.00x  no gain here",
                                        "123 us ± >99 %",
                                        "long (a place whose name is longer): the machine was busy",
                                        "operation",
                                        "one finding [planted]"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strstr(page.data, words[i]))
            fail_msg("no '%s' in:\n%s", words[i], page.data);
    for (const char *s = page.data; *s;) {
        size_t n = strcspn(s, "\n");
        assert_true(vt_text_width(s, n) <= 100);
        s += n + (s[n] == '\n');
    }
    vt_buf_release(&page);
    json_decref(r);
}

static void test_lab_when_an_item_is_not_told_then_fails(void **state)
{
    (void)state;
    json_t *r;
    bool failed;
    vt_err err = {0};
    def.run = run_forgets;
    assert_int_equal(run_with(NULL, NULL, &r, &failed, &err), VT_OK);
    assert_true(failed);
    assert_int_equal(json_array_size(json_object_get(r, "checks")), 4);
    json_decref(r);
}

static vt_status run_turns(lab *l, vt_err *err)
{
    TRY(run_kernel(l, err));
    lab_turn(l, &(lab_knob){"declared", "--x", "c", NAN, 2e-6, 0.01, 1e-6, 0.01, "declared"});
    return VT_OK;
}

/* A knob that its lab does not declare fails the lab; by its name or its place it is found. */
static void test_lab_when_a_knob_is_not_declared_then_fails(void **state)
{
    (void)state;
    json_t *r;
    vt_err err = {0};
    const lab_def whole = def;
    for (int declared = 0; declared < 2; declared++) {
        bool failed = false, told = false;
        size_t i;
        json_t *c;
        def.run = run_turns;
        def.knobs[0] = declared ? (lab_knob_def){"", LAB_LOAD} : (lab_knob_def){"--y", LAB_LOAD};
        def.knobs[1] = (lab_knob_def){NULL};
        assert_int_equal(run_with(NULL, NULL, &r, &failed, &err), VT_OK);
        json_array_foreach(json_object_get(r, "checks"), i, c)
            told |= strstr(json_string_value(json_object_get(c, "text")),
                           "does not declare its knob 'declared' (--x)") != NULL;
        assert_int_equal(failed, !declared);
        assert_int_equal(told, !declared);
        json_decref(r);
    }
    def = whole;
    assert_ptr_equal(lab_knob_find(&def, "a knob whose name", "x"), &def.knobs[0]);
    assert_ptr_equal(lab_knob_find(&def, "x", "a knob whose place"), &def.knobs[0]);
    assert_ptr_equal(lab_knob_find(&def, "x", "y"), &def.knobs[1]);
}

/* One declaration of a lab's knob: whole, and its option is one that a run or a server takes. */
static void check_declaration(const lab_def *d, const lab_knob_def *k)
{
    char key[64];
    const char *turn = k->turn ? k->turn : "";
    bool good = (k->kind == LAB_RUNS) == (k->strength != NULL) &&
                (k->kind == LAB_OFFERED || !k->turn) && (k->kind != LAB_LOAD || !k->of);
    if (!good)
        fail_msg("%s %s: the declaration of '%s' is not whole", lab_track_name[d->track], d->number,
                 k->mark);
    if (strncmp(turn, "--", 2) != 0)
        return;
    snprintf(key, sizeof key, "%.*s", (int)strcspn(turn + 2, " "), turn + 2);
    if (!vt_option_find(key, VT_FOR_RUN | VT_FOR_SERVE | VT_FOR_ENGINE))
        fail_msg("%s %s: no verb has the option %s", lab_track_name[d->track], d->number, turn);
}

/* The committed results of two machines hold no knob that its lab does not declare. */
static void test_every_knob_of_committed_results_is_declared(void **state)
{
    static const char *const machine[] = {"h200", "epyc-2core"};
    int n = 0;
    (void)state;
    for (int t = 0; t < LAB_TRACKS; t++)
        for (const lab_def *const *d = lab_list_of((lab_track)t); *d; d++) {
            for (const lab_knob_def *k = (*d)->knobs; k->mark; k++)
                check_declaration(*d, k);
            for (int m = 0; m < 2; m++) {
                char folder[128];
                json_t *r, *knob;
                size_t i;
                vt_err err;
                snprintf(folder, sizeof folder, "labs/%s/results/%s", lab_track_name[t],
                         machine[m]);
                assert_int_equal(lab_result_read(folder, *d, &r, &err), VT_OK);
                json_array_foreach(json_object_get(r, "knobs"), i, knob)
                {
                    const char *name = json_string_value(json_object_get(knob, "name"));
                    n++;
                    if (!lab_knob_find(*d, name, json_string_value(json_object_get(knob, "where"))))
                        fail_msg("%s %s does not declare %s", lab_track_name[t], (*d)->number,
                                 name);
                }
                json_decref(r);
            }
        }
    assert_true(n > 100);
}

static vt_status run_cells(lab *l, vt_err *err)
{
    (void)err;
    lab_table(l, "shapes", "forms of cells", "name|>time|of|>share|>tokens|>rate|none");
    lab_cells(l, "a|b %s|%f s|%d of %zu|%f share", "x|y", 0.1, 7, (size_t)8, -0.25);
    lab_cells(l, "%f|%.3g G|%f B/s", 3.0, 1.5, NAN);
    return VT_OK;
}

/* A '|' of an argument divides nothing, and a number keeps all of its digits. */
static void test_lab_cells_are_texts_and_numbers_by_their_forms(void **state)
{
    (void)state;
    json_t *r, *rows;
    bool failed;
    vt_err err = {0};
    static const char *const text[] = {"a",     "b x|y", "100 ms", "7 of 8",
                                       "-25 %", "3",     "1.5 G",  "n/a"},
                             *const unit[] = {NULL, NULL, "s", NULL, "share", "", NULL, "B/s"};
    def.run = run_cells;
    assert_int_equal(run_with(NULL, NULL, &r, &failed, &err), VT_OK);
    rows = json_object_get(json_object_get(json_object_get(r, "items"), "shapes"), "rows");
    assert_int_equal(json_array_size(rows), 2);
    for (size_t i = 0; i < 8; i++) {
        const json_t *c = json_array_get(json_array_get(rows, i / 7), i % 7),
                     *u = json_object_get(c, "unit");
        assert_string_equal(json_string_value(json_object_get(c, "text")), text[i]);
        assert_true(unit[i] ? u && strcmp(json_string_value(u), unit[i]) == 0 : !u);
    }
    const json_t *first = json_array_get(rows, 0);
    assert_true(json_number_value(json_object_get(json_array_get(first, 2), "value")) == 0.1);
    assert_true(json_number_value(json_object_get(json_array_get(first, 4), "value")) == -0.25);
    json_decref(r);
}

static vt_status run_asks_late(lab *l, vt_err *err)
{
    lab_kernel k;
    lab_kernel_ask ask = {.op = "embed", .shape = "tokens=16,hidden=512,vocab=1024"};
    for (int i = 0; i < 5; i++)
        lab_item(l, l->def->items[i].key, "told");
    vt_status status = lab_kernel_run(l, &ask, &k, err);
    return status == VT_OK ? lab_kernel_predict(l, "time", &ask, "bytes over roofs", err) : status;
}

static void test_lab_when_it_predicts_after_a_run_then_fails(void **state)
{
    (void)state;
    json_t *r;
    bool failed;
    vt_err err = {0};
    def.run = run_asks_late;
    assert_int_equal(run_with(NULL, NULL, &r, &failed, &err), VT_OK);
    assert_true(failed);
    const json_t *checks = json_object_get(r, "checks");
    assert_int_equal(json_array_size(checks), 2);
    assert_non_null(strstr(json_string_value(json_object_get(json_array_get(checks, 1), "text")),
                           "prediction"));
    json_decref(r);
}

static void test_lab_reads_a_prediction(void **state)
{
    (void)state;
    json_t *r;
    bool failed;
    vt_err err = {0};
    def.run = run_kernel;
    assert_int_equal(run_with("predict", "1.5us", &r, &failed, &err), VT_OK);
    const json_t *p = json_array_get(json_object_get(r, "predictions"), 0);
    assert_true(fabs(json_number_value(json_object_get(p, "reader")) - 1.5e-6) < 1e-12);
    assert_non_null(json_object_get(p, "reader_grade"));
    json_decref(r);
    assert_int_equal(run_with("predict", "soon", &r, &failed, &err), VT_ERR_USAGE);
    assert_non_null(strstr(err.message, "--predict: 'soon'"));
}

static vt_status run_counts(lab *l, vt_err *err)
{
    (void)err;
    for (int i = 0; i < 5; i++)
        lab_item(l, l->def->items[i].key, "told");
    lab_predict(l, "kernels that work", 15, VT_COUNT, "all");
    lab_predict(l, "time", 1, VT_SECONDS, "one");
    lab_outcome(l, "kernels that work", 15, true);
    lab_outcome(l, "time", 1, true);
    return VT_OK;
}

static void test_lab_grades_a_count_on_a_busy_machine_too(void **state)
{
    (void)state;
    json_t *r;
    bool failed;
    vt_err err = {0};
    def.run = run_counts;
    assert_int_equal(run_with("predict", "14", &r, &failed, &err), VT_OK);
    const json_t *list = json_object_get(r, "predictions"), *count = json_array_get(list, 0);
    assert_string_equal(json_string_value(json_object_get(count, "grade")), "within 20 %");
    assert_string_equal(json_string_value(json_object_get(count, "reader_grade")), "within 20 %");
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, 1), "grade")),
                        vt_roofs_sanitized() ? "not graded: a sanitized build"
                                             : "not graded: the machine was busy");
    json_decref(r);
}

static void test_all_reduce_counts_meetings_and_bytes(void **state)
{
    (void)state;
    lab_link link = {.per_s = 1e9, .copy_per_s = 1e30, .meeting_s = 1e-6};
    double mb = 1e6, from = lab_two_shot_from(&link, 4);
    assert_true(lab_all_reduce_s(&link, LAB_ONE_SHOT, 1, mb) == 0);
    assert_true(fabs(lab_all_reduce_s(&link, LAB_ONE_SHOT, 4, mb) - (2e-6 + 3e-3)) < 1e-12);
    assert_true(fabs(lab_all_reduce_s(&link, LAB_TWO_SHOT, 4, mb) - (3e-6 + 1.5e-3)) < 1e-12);
    assert_true(fabs(lab_all_reduce_s(&link, LAB_RING, 4, mb) - (6e-6 + 1.5e-3)) < 1e-12);
    assert_true(fabs(lab_all_reduce_s(&link, LAB_ONE_SHOT, 4, from) /
                         lab_all_reduce_s(&link, LAB_TWO_SHOT, 4, from) -
                     1) < 1e-9);
    assert_true(isinf(lab_two_shot_from(&link, 2)));
}

static void test_grades(void **state)
{
    (void)state;
    assert_string_equal(lab_grade(1, 1.19), "within 20 %");
    assert_string_equal(lab_grade(1.19, 1), "within 20 %");
    assert_string_equal(lab_grade(1, 1.9), "within 2x");
    assert_string_equal(lab_grade(1, 0.4), "off by more");
}

static void test_results_are_written_and_read_back(void **state)
{
    (void)state;
    json_t *r, *back;
    bool failed;
    vt_err err = {0};
    char root[] = "/tmp/vitrine-lab-XXXXXX", folder[256];
    assert_non_null(mkdtemp(root));
    def.run = run_kernel;
    assert_int_equal(run_with(NULL, NULL, &r, &failed, &err), VT_OK);
    vt_options *o = options_with("results", root);
    assert_int_equal(lab_results_folder(o, LAB_MINI_SGLANG, folder, sizeof folder, &err), VT_OK);
    assert_int_equal(lab_result_read(folder, &def, &back, &err), VT_OK);
    assert_null(back);
    assert_int_equal(access(folder, F_OK), -1); /* asking for the folder does not make it */
    assert_int_equal(vt_make_folders(folder, &err), VT_OK);
    assert_int_equal(lab_result_write(r, &def, folder, &err), VT_OK);
    assert_int_equal(lab_result_read(folder, &def, &back, &err), VT_OK);
    assert_string_equal(json_string_value(json_object_get(back, "name")), "planted");
    json_decref(back);
    json_decref(r);
    vt_options_free(o);
    o = options_with("machine", "../x");
    assert_int_equal(lab_results_folder(o, LAB_SGLANG, folder, sizeof folder, &err), VT_ERR_USAGE);
    vt_options_free(o);
    char command[300];
    snprintf(command, sizeof command, "rm -rf %s", root);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lab_tells_all_items),
        cmocka_unit_test(test_lab_when_an_item_is_not_told_then_fails),
        cmocka_unit_test(test_lab_when_a_knob_is_not_declared_then_fails),
        cmocka_unit_test(test_every_knob_of_committed_results_is_declared),
        cmocka_unit_test(test_lab_cells_are_texts_and_numbers_by_their_forms),
        cmocka_unit_test(test_lab_when_it_predicts_after_a_run_then_fails),
        cmocka_unit_test(test_lab_reads_a_prediction),
        cmocka_unit_test(test_lab_grades_a_count_on_a_busy_machine_too),
        cmocka_unit_test(test_all_reduce_counts_meetings_and_bytes),
        cmocka_unit_test(test_grades),
        cmocka_unit_test(test_results_are_written_and_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
