/* The step budget pays for every byte and every entry: no builtin, operator or statement works for
 * long without being charged. Times are not measured; a hang ends in SIGALRM.
 *
 * Each case here ran for minutes to weeks while only the visited nodes were charged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "text/template/builtins.h"
#include "text/template/template.h"

enum { HANG_SECONDS = 60 };

typedef struct result {
    vt_status status;
    vt_err err;
    int64_t steps;
} result;

static result render(const char *source, const char *variables, vt_template_limits limits)
{
    result r = {0};
    vt_template *t = NULL;
    vt_buf out;
    vt_buf_init(&out, 0);
    limits.steps_taken = &r.steps;
    alarm(HANG_SECONDS);
    r.status = vt_template_parse("t.jinja", source, strlen(source), &t, &r.err);
    if (r.status == VT_OK)
        r.status = vt_template_render(t, variables, strlen(variables), &limits, &out, &r.err);
    alarm(0);
    vt_template_free(t);
    vt_buf_release(&out);
    return r;
}

/* Ends at the step limit of `max_steps`. */
static void expect_step_limit(const char *source, int64_t max_steps)
{
    result r = render(source, "{}", (vt_template_limits){.max_steps = max_steps});
    if (r.status != VT_ERR_MEMORY || !strstr(r.err.message, "steps"))
        fail_msg("%.100s: status %d after %lld steps: %s", source, r.status, (long long)r.steps,
                 r.err.message);
}

static char *repeated(const char *begin, const char *part, size_t n, const char *end)
{
    vt_buf b;
    size_t len;
    vt_buf_init(&b, 0);
    vt_buf_puts(&b, begin);
    for (size_t i = 0; i < n; i++)
        vt_buf_puts(&b, part);
    vt_buf_puts(&b, end);
    return vt_buf_detach(&b, &len);
}

/* ---- every builtin ---- */

/* Calls `name` in a loop without end: its work must use the budget up. Wrong types and arguments
 * may fail at once. The loop's own steps end a builtin of constant cost. */
static void expect_charged(const char *subject, const char *form, const char *name,
                           const char *args)
{
    static const char variables[] =
        "{% set s = 'x' * 1000000 %}{% set u = '\xc3\x9f\xce\xa3' * 250000 %}{% set b = ' ' * "
        "1000000 %}{% set l = range(100000)|list %}{% set ls = ['aB'] * 100000 %}"
        "{% set d = {'a': 1, 'b': s} %}"
        "{% for i in range(100000) %}{% for j in range(100000) %}{% set y = ";
    char call[200], source[1000];
    snprintf(call, sizeof call, form, subject, name, args);
    snprintf(source, sizeof source, "%s(%s)|length %%}{%% endfor %%}{%% endfor %%}", variables,
             call);
    /* the set-up takes about 400,000 steps */
    result r = render(source, "{}", (vt_template_limits){.max_steps = 600000});
    if (r.status == VT_OK || r.steps > 600000)
        fail_msg("%s: status %d after %lld steps", call, r.status, (long long)r.steps);
}

static void expect_table_charged(tpl_table table, const char *const *subjects, const char *form)
{
    static const char *const args[] = {"", "('x')", "(s)", "('x', 'y')", "(s, s)", "('length', s)"};
    for (size_t i = 0; i < table.n; i++)
        for (const char *const *subject = subjects; *subject; subject++)
            for (size_t a = 0; a < sizeof args / sizeof *args; a++)
                if (a > 0 || table.at[i].min == 0)
                    expect_charged(*subject, form, table.at[i].name,
                                   a == 0 && strchr(form, '.') ? "()" : args[a]);
}

static void test_template_filters_are_charged_for_what_they_scan(void **state)
{
    static const char *const subjects[] = {"s", "u", "b", "l", "ls", NULL};
    (void)state;
    expect_table_charged(tpl_value_filters, subjects, "%s|%s%s");
    expect_table_charged(tpl_sequence_filters, subjects + 3, "%s|%s%s");
    expect_table_charged(tpl_json_filters, subjects, "%s|%s%s");
}

static void test_template_tests_are_charged_for_what_they_scan(void **state)
{
    static const char *const subjects[] = {"s", "u", "l", NULL};
    (void)state;
    for (size_t i = 0; i < tpl_tests.n; i++)
        for (const char *const *subject = subjects; *subject; subject++)
            if (tpl_tests.at[i].name[0] >= 'a') /* "==" and the like have no place behind `is` */
                expect_charged(*subject, "[%s is %s%s]", tpl_tests.at[i].name,
                               tpl_tests.at[i].min ? "(u)" : "");
}

static void test_template_methods_are_charged_for_what_they_scan(void **state)
{
    static const char *const text[] = {"s", "u", "b", NULL}, *const list[] = {"l", "ls", NULL},
                             *const dict[] = {"d", NULL};
    (void)state;
    expect_table_charged(tpl_str_methods, text, "[%s.%s%s]");
    expect_table_charged(tpl_list_methods, list, "[%s.%s%s]");
    expect_table_charged(tpl_dict_methods, dict, "[%s.%s%s]");
}

static void test_template_functions_and_operators_are_charged_for_what_they_scan(void **state)
{
    static const char *const forms[] = {
        "dict(ls)",
        "dict(d)",
        "[namespace(d)]",
        "strftime_now(s)",
        "strftime_now('%%Y')",
        "s ~ s",
        "s + s",
        "s == s[:-1]",
        "[s == s ~ '']",
        "[s in [s ~ '']]",
        "['xy' in s]",
        "[s < s]",
        "[l == l[:]]",
        "[l < l[:]]",
        "l + l",
        "l[::2]",
        "s[::2]",
        "u[1:]",
        "[u[-1]]",
        "{s: 1}",
        "[d[s]]",
        "[7 in l]",
        "[s in d]",
        "'%s' % s",
        "s % l",
        "[{(s, s): 1}]",
        "'{}'.format(s)",
        "s.format(1)",
        "l * 2",
        "[d == {'a': 1}]",
        "[1.5e300 ~ '']",
        "[2.5|round(300)]",
    };
    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        expect_charged(forms[i], "%s%s%s", "", "");
}

/* ---- what used to hang or crash ---- */

static void test_template_hash_of_nested_tuples_ends(void **state)
{
    static const char fat[] = "{% set ns = namespace(x=(1,)) %}{% for i in range(40) %}"
                              "{% set ns.x = (ns.x, ns.x) %}{% endfor %}";
    static const char *const uses[] = {
        "{{ ns.x in {1: 1} }}",   "{{ [ns.x]|unique|list|length }}",  "{{ {ns.x: 1}|length }}",
        "{{ {1: 2}.get(ns.x) }}", "{{ ns.x == (ns.x[0], ns.x[1]) }}", "{{ ns.x }}",
        "{{ {1: 2}[ns.x] }}"};
    (void)state;
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
        char source[300];
        snprintf(source, sizeof source, "%s%s", fat, uses[i]);
        result r = render(source, "{}", (vt_template_limits){0});
        assert_int_equal(r.status, VT_ERR_MEMORY);
    }
}

static void test_template_scans_in_a_loop_end(void **state)
{
    static const char *const sources[] = {
        "{% set x = 'a' * 50000000 %}{% for i in range(100000) %}{% if x.islower() %}{% endif %}"
        "{% endfor %}",
        "{% set x = 'a' * 50000000 %}{% for i in range(100000) %}{% if x is upper %}{% endif %}"
        "{% endfor %}",
        "{% set x = 'a' * 50000000 %}{% for i in range(100000) %}{% if {x: 1} %}{% endif %}"
        "{% endfor %}",
        "{% set x = 'a' * 50000000 %}{% set p = (x[1:],) * 50000 %}"
        "{% for i in range(100000) %}{% if x.startswith(p) %}{% endif %}{% endfor %}",
        "{{ ('a' * 4000000).rfind('b' ~ 'a' * 2000000) }}{{ ('a' * 4000000).rfind('a' * 1999999 ~ "
        "'b' ~ 'a' * 1999999) }}",
        "{{ ('\xc3\xa9' * 1000000).strip('\xc3\xa0' * 1000000 ~ '\xc3\xa9') }}",
        "{{ ('\xc3\xa9' * 1000000)|trim('\xc3\xa0' * 1000000 ~ '\xc3\xa9') }}",
    };
    (void)state;
    for (size_t i = 0; i < 4; i++)
        expect_step_limit(sources[i], 10000000);
    for (size_t i = 4; i < sizeof sources / sizeof *sources; i++)
        render(sources[i], "{}", (vt_template_limits){0}); /* a text or an error */
}

static void test_template_strip_set_of_many_letters_costs_one_look_a_letter(void **state)
{
    (void)state;
    result r = render("{{ ('a' * 1000000).strip('b' * 1000000 ~ 'a') }}", "{}",
                      (vt_template_limits){0});
    assert_int_equal(r.status, VT_OK);
    assert_true(r.steps < 400000);
}

static void test_template_many_variables_end(void **state)
{
    (void)state;
    vt_buf b;
    size_t len;
    vt_buf_init(&b, 0);
    for (int i = 0; i < 40000; i++)
        vt_buf_printf(&b, "{%% set v%d=1 %%}", i);
    vt_buf_puts(&b, "{% for i in range(100000) %}{% for j in range(1000) %}{{ v0 }}{% endfor %}"
                    "{% endfor %}");
    char *source = vt_buf_detach(&b, &len);
    expect_step_limit(source, 10000000);
    free(source);
}

static void test_template_macro_with_too_many_names_is_refused(void **state)
{
    (void)state;
    vt_buf b;
    size_t len;
    vt_buf_init(&b, 0);
    vt_buf_puts(&b, "{% macro m(");
    for (int i = 0; i < 8167; i++)
        vt_buf_printf(&b, "%sp%d", i ? "," : "", i);
    vt_buf_puts(&b, ") %}{{ p0 }}{% endmacro %}");
    char *source = vt_buf_detach(&b, &len);
    result r = render(source, "{}", (vt_template_limits){0});
    assert_int_equal(r.status, VT_ERR_FORMAT);
    assert_string_equal(r.err.message, "t.jinja:1: a macro has more than 255 parameters");
    free(source);
    vt_buf_init(&b, 0);
    vt_buf_puts(&b, "{{ dict(");
    for (int i = 0; i < 256; i++)
        vt_buf_printf(&b, "%sk%d=1", i ? "," : "", i);
    vt_buf_puts(&b, ") }}");
    source = vt_buf_detach(&b, &len);
    r = render(source, "{}", (vt_template_limits){0});
    assert_string_equal(r.err.message, "t.jinja:1: a call has more than 255 keyword arguments");
    free(source);
}

static void test_template_keywords_of_a_mapping_end(void **state)
{
    (void)state;
    result r = render("{% macro m(a=1, b=2, c=3, d=4) %}{{ kwargs|length }}{% endmacro %}"
                      "{% set ns = namespace(d={}) %}{% for i in range(1500) %}"
                      "{% set ns.d = dict(ns.d, **{'k' ~ i: 1}) %}{% endfor %}"
                      "{% for i in range(100000) %}{{ m(**ns.d) }}{% endfor %}",
                      "{}", (vt_template_limits){0});
    assert_int_equal(r.status, VT_ERR_MEMORY); /* steps or values, whichever ends first */
}

static void test_template_name_of_a_megabyte_is_undefined_without_a_crash(void **state)
{
    (void)state;
    char *source = repeated("{{ ", "a", 1000000, " }}");
    result r = render(source, "{}", (vt_template_limits){0});
    assert_int_equal(r.status, VT_OK); /* undefined: an empty text */
    free(source);
}

static void test_template_variables_of_many_containers_are_refused(void **state)
{
    (void)state;
    char *variables = repeated("{\"l\": [", "{},", 1100000, "1]}");
    result r = render("{{ l|length }}", variables, (vt_template_limits){0});
    assert_int_equal(r.status, VT_ERR_USAGE);
    assert_string_equal(r.err.message,
                        "t.jinja: the variables hold more than a million objects and lists");
    free(variables);
}

/* Signed overflow would end these under UBSan. */
static void test_template_extreme_integers_are_answered_or_refused(void **state)
{
    static const char *const sources[] = {
        "{{ (-9223372036854775807 - 1)|round(-1) }}",
        "{{ (-9223372036854775807 - 1)|round(-19) }}",
        "{{ 9223372036854775807|round(-9223372036854775807) }}",
        "{{ range(-9223372036854775807, 9223372036854775807, 9223372036854775806)[::3] }}",
        "{{ range(9223372036854775806, 9223372036854775807)[::9223372036854775807] }}",
        "{{ 'abc'[-9223372036854775807:9223372036854775807:9223372036854775807] }}",
        "{{ 'abc'[::-9223372036854775807] }}",
        "{{ 'abc'.find('a', -9223372036854775807 - 1, -9223372036854775807 - 1) }}",
        "{{ [1].index(1, -9223372036854775807 - 1) }}",
        "{{ (-9223372036854775807 - 1)|abs }}",
        "{{ (-9223372036854775807 - 1) // -1 }}",
        "{{ '%d' % (-9223372036854775807 - 1) }}",
        "{{ 'a' * -9223372036854775807 }}",
        "{{ 'x'|indent(-9223372036854775807) }}",
        "{{ 'abcdefghij'|truncate(9223372036854775807, leeway=9223372036854775807) }}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        result r = render(sources[i], "{}", (vt_template_limits){0});
        if (r.status != VT_OK && !r.err.message[0])
            fail_msg("%s: no message", sources[i]);
    }
}

/* ---- stopping ---- */

static bool stop_at_third(void *context) { return ++*(int *)context >= 3; }

static void test_template_rendering_when_stopped_then_it_is_cancelled(void **state)
{
    (void)state;
    int asked = 0;
    result r = render("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}"
                      "{% endfor %}",
                      "{}", (vt_template_limits){.stop = stop_at_third, .stop_context = &asked});
    assert_int_equal(r.status, VT_ERR_CANCELLED);
    assert_int_equal(asked, 3);
    assert_true(r.steps < 4 * TPL_LOOK_EVERY);
    asked = 0; /* inside a generator, whose errors otherwise wait */
    r = render("{% set l = range(100000)|list %}{% set g = l|map('string') %}", "{}",
               (vt_template_limits){.stop = stop_at_third, .stop_context = &asked});
    assert_int_equal(r.status, VT_ERR_CANCELLED);
}

/* ---- what is left out ---- */

static void test_template_builtins_that_are_left_out_are_named(void **state)
{
    static const struct {
        const char *source, *message;
    } cases[] = {
        {"{{ 1|filesizeformat }}", "t.jinja:1: there is no filter named 'filesizeformat'"},
        {"{{ 'a'|wordwrap(5) }}", "t.jinja:1: there is no filter named 'wordwrap'"},
        {"{{ 1 is escaped }}", "t.jinja:1: there is no test named 'escaped'"},
        {"{{ 'a'.ljust(5) }}", "t.jinja:1: 'ljust' of a 'str' is not supported"},
        {"{{ cycler('a') }}", "t.jinja:1: 'cycler' is undefined"},
        {"{% print 1 %}", "t.jinja:1: the tag 'print' is not supported in chat templates"},
        {"{{ '%o' % 8 }}", "t.jinja:1: 'o' in a % format is not supported"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(render(cases[i].source, "{}", (vt_template_limits){0}).err.message,
                            cases[i].message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_template_filters_are_charged_for_what_they_scan),
        cmocka_unit_test(test_template_tests_are_charged_for_what_they_scan),
        cmocka_unit_test(test_template_methods_are_charged_for_what_they_scan),
        cmocka_unit_test(test_template_functions_and_operators_are_charged_for_what_they_scan),
        cmocka_unit_test(test_template_hash_of_nested_tuples_ends),
        cmocka_unit_test(test_template_scans_in_a_loop_end),
        cmocka_unit_test(test_template_strip_set_of_many_letters_costs_one_look_a_letter),
        cmocka_unit_test(test_template_many_variables_end),
        cmocka_unit_test(test_template_macro_with_too_many_names_is_refused),
        cmocka_unit_test(test_template_keywords_of_a_mapping_end),
        cmocka_unit_test(test_template_name_of_a_megabyte_is_undefined_without_a_crash),
        cmocka_unit_test(test_template_variables_of_many_containers_are_refused),
        cmocka_unit_test(test_template_extreme_integers_are_answered_or_refused),
        cmocka_unit_test(test_template_rendering_when_stopped_then_it_is_cancelled),
        cmocka_unit_test(test_template_builtins_that_are_left_out_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
