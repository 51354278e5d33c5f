/* Stories with numbers that no machine measures, in every form: 1e300, -1e308 and 1e15, as each
 * number of real stories in turn and as all of them. The stories are those of the golden pages and
 * one that an engine tells now, which has what the newest version has. Lists are cut, so that a
 * case costs little. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "../fuzz/story_forms.h"
#include "common/engine_run.h"
#include "common/tiny_model.h"

enum { LIST = 8, MAX_PATHS = 512, PATH = 160, OP = 64 };

static const double hostile[] = {1e300, -1e308, 1e15};

/* The members that hold numbers, "phases[].ops[].time_us"; elements of a list count as one. */
typedef struct paths {
    char text[MAX_PATHS][PATH];
    int32_t n;
} paths;

static void note(paths *p, const char *path)
{
    for (int32_t i = 0; i < p->n; i++)
        if (strcmp(p->text[i], path) == 0)
            return;
    assert_true(p->n < MAX_PATHS);
    snprintf(p->text[p->n++], PATH, "%s", path);
}

/* Calls itself for all values below. Notes where numbers are; sets those of `only` to `value`, or
 * all where it is "". */
static void walk(json_t *v, const char *path, paths *found, const char *only, double value)
{
    char below[PATH];
    const char *key;
    json_t *each;
    size_t i;
    if (json_is_number(v) && found)
        note(found, path);
    json_object_foreach(v, key, each)
    {
        assert_true(snprintf(below, PATH, "%s%s%s", path, *path ? "." : "", key) < PATH);
        if (json_is_number(each) && only && (!*only || strcmp(below, only) == 0))
            json_object_set_new(v, key, json_real(value));
        else
            walk(each, below, found, only, value);
    }
    json_array_foreach(v, i, each)
    {
        assert_true(snprintf(below, PATH, "%s[]", path) < PATH);
        if (json_is_number(each) && only && (!*only || strcmp(below, only) == 0))
            json_array_set_new(v, i, json_real(value));
        else
            walk(each, below, found, only, value);
    }
}

static void cut_lists(json_t *v)
{
    const char *key;
    json_t *each;
    size_t i;
    while (json_array_size(v) > LIST)
        json_array_remove(v, json_array_size(v) - 1);
    json_object_foreach(v, key, each) cut_lists(each);
    json_array_foreach(v, i, each) cut_lists(each);
}

/* What to show of a story: an op that it has, and a number that is a token and a step. */
typedef struct what {
    char op[OP];
    int64_t number;
} what;

static what what_of(const json_t *story)
{
    what w = {.op = "linear.qkv", .number = 1};
    const json_t *calls = json_object_get(story, "calls");
    const char *label = json_string_value(json_array_get(json_object_get(calls, "labels"), 2));
    const json_t *steps = json_object_get(json_object_get(story, "steps"), "columns");
    const json_t *id = json_array_get(json_object_get(steps, "id"), 1);
    if (label && strchr(label, '.') && label[0] == 'L')
        snprintf(w.op, OP, "%s", strchr(label, '.') + 1);
    if (json_is_number(id))
        w.number = (int64_t)json_number_value(id);
    return w;
}

static void check(const json_t *story, const what *w, int32_t width)
{
    size_t len;
    char *text = json_dumps(story, JSON_COMPACT);
    assert_non_null(text);
    len = strlen(text);
    check_story_forms(text, len, width, w->number, w->op);
    free(text);
}

/* Says if member i is tried alone at hostile value v: at 1e300 and at one of the other two, and in
 * the slow builds at one of the three. VITRINE_EVERY=n: only every n-th member, for a sample. */
static bool is_tried(int32_t i, size_t v)
{
    const char *text = getenv("VITRINE_EVERY");
    long every = text ? strtol(text, NULL, 10) : 0;
    if (every > 0 && i % every != 0)
        return false;
#ifdef VT_SANITIZE
    return (size_t)(i % 3) == v;
#else
    return v == 0 || (size_t)(i % 2) == v - 1;
#endif
}

/* Checks the story with all its numbers at a value, but for the version, and with one member
 * alone. */
static void try_numbers(json_t *story)
{
    static paths p;
    p.n = 0;
    cut_lists(story);
    what w = what_of(story);
    walk(story, "", &p, NULL, 0);
    assert_true(p.n > 100);
    for (size_t v = 0; v < sizeof hostile / sizeof *hostile; v++)
        for (int32_t i = -1; i < p.n; i++) {
            if (i >= 0 && !is_tried(i, v))
                continue;
            json_t *copy = json_deep_copy(story);
            assert_non_null(copy);
            walk(copy, "", NULL, i < 0 ? "" : p.text[i], hostile[v]);
            json_object_set(copy, "version", json_object_get(story, "version"));
            check(copy, &w, i % 2 ? VT_TERM_WIDTH : 80);
            json_decref(copy);
        }
}

static void try_file(const char *path)
{
    json_error_t why;
    json_t *story = json_load_file(path, 0, &why);
    if (!story)
        fail_msg("%s: %s", path, why.text);
    try_numbers(story);
    json_decref(story);
}

static void test_numbers_of_a_cpu_story(void **state)
{
    (void)state;
    try_file("tests/golden/stories/cpu.json");
}

static void test_numbers_of_a_gpu_story(void **state)
{
    (void)state;
    try_file("tests/golden/stories/gpu.json");
}

static void test_numbers_of_a_recording(void **state)
{
    (void)state;
    try_file("tests/golden/stories/batch.json");
}

/* A story of the newest version, whose typical steps name implementations. */
static json_t *tell(void)
{
    static const int32_t prompt[] = {5, 6, 7, 8, 9, 10, 11};
    vt_model *m = tiny_model("llama");
    vt_options *o;
    char *json = NULL;
    size_t len = 0;
    vt_err err;
    vt_request_params p;
    assert_int_equal(vt_options_new(&o, NULL), VT_OK);
    engine_option(o, "device", "cpu");
    engine_option_int(o, "threads", 1);
    vt_engine *e = engine_open(m, o);
    vt_request_init(&p);
    p.prompt = prompt;
    p.n_prompt = 7;
    p.max_tokens = 40;
    p.ignore_eos = true;
    engine_submit(e, &p);
    engine_run(e);
    if (vt_engine_story(e, 0, &json, &len, &err) != VT_OK)
        fail_msg("%s", err.message);
    json_t *story = json_loadb(json, len, 0, NULL);
    assert_non_null(story);
    assert_true(json_is_object(json_object_get(story, "typical")));
    vt_free(json);
    vt_engine_free(e);
    vt_options_free(o);
    vt_model_free(m);
    return story;
}

static void test_numbers_of_a_new_story(void **state)
{
    (void)state;
    json_t *story = tell();
    try_numbers(story);
    json_decref(story);
}

/* A typical phase without its column of implementations does not show another phase's, nor what
 * the stack held. */
static void test_op_when_a_phase_names_no_implementations(void **state)
{
    (void)state;
    static const char text[] =
        "{\"schema\": \"vitrine.story\", \"version\": 1, \"phases\": [],"
        " \"calls\": {\"labels\": [\"L00.linear.qkv\"], \"layers\": [0], \"columns\": {}},"
        " \"typical\": {\"impls\": [\"avx-other\"], \"phases\": ["
        "  {\"name\": \"prefill\", \"columns\": {\"us\": [1], \"impl\": [0]}},"
        "  {\"name\": \"decode\", \"columns\": {\"us\": [1]}}]}}";
    story_level level = {.kind = STORY_LEVEL_OP, .op = "linear.qkv"};
    vt_term term = {.width = 100};
    vt_buf out = {0};
    vt_err err = {0};
    if (story_render_level("s", text, strlen(text), &level, &term, &out, &err) != VT_OK)
        fail_msg("%s", err.message);
    const char *prefill = strstr(out.data, "prefill"), *decode = strstr(out.data, "decode");
    assert_non_null(prefill);
    assert_non_null(decode);
    assert_non_null(strstr(prefill, "1 call on avx-other: 1.00 us"));
    assert_null(strstr(decode, "avx-other"));
    assert_non_null(strstr(decode, "1 call: 1.00 us"));
    vt_buf_release(&out);
}

/* Names of a story are text in Markdown, whatever they hold. */
static void test_markdown_when_names_hold_markup(void **state)
{
    (void)state;
    static const char text[] =
        "{\"schema\": \"vitrine.story\", \"version\": 1, \"model\": {\"name\": \"<b>m</b>\"},"
        " \"phases\": [{\"name\": \"decode\", \"steps\": 9, \"step_us\": 5, \"ops\":"
        " [{\"kind\": \"a|<script src=x></script>[x](y)\", \"impl\": \"i&`\", \"time_us\": 4}]}]}";
    story_file f = {"s.json", text, strlen(text)};
    story_diff_options o = {.markdown = true};
    vt_term term = {.width = 100};
    vt_buf out = {0};
    vt_err err = {0};
    if (story_diff(&f, &f, &o, &term, &out, &err) != VT_OK)
        fail_msg("%s", err.message);
    assert_non_null(
        strstr(out.data, "| a&#124;&#60;script src=x&#62;&#60;/script&#62;&#91;x](y) "));
    assert_null(strpbrk(out.data, "<>`["));
    vt_buf_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_of_a_cpu_story),
        cmocka_unit_test(test_numbers_of_a_gpu_story),
        cmocka_unit_test(test_numbers_of_a_recording),
        cmocka_unit_test(test_numbers_of_a_new_story),
        cmocka_unit_test(test_op_when_a_phase_names_no_implementations),
        cmocka_unit_test(test_markdown_when_names_hold_markup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
