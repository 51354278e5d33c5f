/* Every case of tests/golden/templates/ renders as jinja2 rendered it, or fails where jinja2
 * failed.
 *
 * The files are made by tools/fixtures/make_templates.py:
 *   {"common": variables of all cases, "sets": {name: variables},
 *    "cases": [{"t": template or "f": file, "s": set, "x": more variables, "o": output or "e":
 * error}]} VITRINE_TEMPLATE_CASES names one more such file, for long runs of random cases. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/template/template.h"

#define FOLDER "tests/golden/templates/"
enum { NOW = 1719835200 }; /* the clock of the goldens: 2024-07-01 12:00 UTC */

static json_t *load(const char *path)
{
    json_error_t e;
    json_t *root = json_load_file(path, JSON_ALLOW_NUL, &e);
    if (!root)
        fail_msg("%s: %s", path, e.text);
    return root;
}

/* The case's own source, or that of the file it names. */
static char *source_of(const json_t *c)
{
    const char *text = json_string_value(json_object_get(c, "t"));
    if (text)
        return strdup(text);
    char path[256], *source = NULL;
    size_t len = 0;
    snprintf(path, sizeof path, FOLDER "%s", json_string_value(json_object_get(c, "f")));
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_true(getdelim(&source, &len, '\0', f) > 0);
    fclose(f);
    return source;
}

static char *variables_of(const json_t *root, const json_t *c)
{
    json_t *v = json_object();
    const char *set = json_string_value(json_object_get(c, "s"));
    json_object_update(v, json_object_get(root, "common"));
    if (set)
        json_object_update(v, json_object_get(json_object_get(root, "sets"), set));
    if (json_object_get(c, "x"))
        json_object_update(v, json_object_get(c, "x"));
    char *text = json_dumps(v, 0);
    json_decref(v);
    return text;
}

/* Renders one case; 1 if it is not as expected (and says so). */
static int run_case(const char *file, size_t number, const json_t *root, const json_t *c)
{
    const json_t *o = json_object_get(c, "o");
    const char *expected = json_string_value(o);
    char *source = source_of(c), *vars = variables_of(root, c);
    vt_template *t = NULL;
    vt_template_limits limits = {.now = NOW};
    vt_err err = {0};
    vt_buf out;
    vt_buf_init(&out, 0);
    vt_status s = vt_template_parse("case", source, strlen(source), &t, &err);
    if (s == VT_OK)
        s = vt_template_render(t, vars, strlen(vars), &limits, &out, &err);
    const char *got = out.data ? out.data : "";
    int bad = expected ? s != VT_OK || out.len != json_string_length(o) ||
                             memcmp(got, expected, out.len) != 0
                       : s == VT_OK;
    if (bad)
        fprintf(stderr,
                "%s case %zu\n  template  %s\n  variables %s\n  expected  %s\n  got       %s\n",
                file, number, source, getenv("VITRINE_TEMPLATE_QUIET") ? "" : vars,
                expected ? expected : json_string_value(json_object_get(c, "e")),
                s == VT_OK ? got : err.message);
    vt_buf_release(&out);
    vt_template_free(t);
    free(source);
    free(vars);
    return bad;
}

static void run_file(const char *path)
{
    json_t *root = load(path), *cases = json_object_get(root, "cases");
    assert_true(json_array_size(cases) > 0);
    int bad = 0;
    for (size_t i = 0; i < json_array_size(cases); i++)
        bad += run_case(path, i, root, json_array_get(cases, i));
    print_message("%s: %zu cases, %d differ\n", path, json_array_size(cases), bad);
    json_decref(root);
    assert_int_equal(bad, 0);
}

static void test_template_families_render_as_jinja2(void **state)
{
    (void)state;
    run_file(FOLDER "families.json");
}

static void test_template_expressions_render_as_jinja2(void **state)
{
    (void)state;
    run_file(FOLDER "expressions.json");
}

static void test_template_random_cases_render_as_jinja2(void **state)
{
    (void)state;
    run_file(FOLDER "random.json");
}

static void test_template_cases_of_the_environment_render_as_jinja2(void **state)
{
    (void)state;
    if (!getenv("VITRINE_TEMPLATE_CASES"))
        skip();
    run_file(getenv("VITRINE_TEMPLATE_CASES"));
}

int main(void)
{
    setenv("TZ", "UTC", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_template_families_render_as_jinja2),
        cmocka_unit_test(test_template_expressions_render_as_jinja2),
        cmocka_unit_test(test_template_random_cases_render_as_jinja2),
        cmocka_unit_test(test_template_cases_of_the_environment_render_as_jinja2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
