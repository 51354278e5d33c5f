/* The step budget is charged for every byte and every entry, so that no builtin, operator or
 * statement can work for long without charge. Times are not measured; a hang ends in SIGALRM.
 *
 * Each case here ran for minutes to weeks when only visited nodes were charged. */
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

enum { HANG_SECONDS = 600 };

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

#ifdef VT_SANITIZE /* its memmem looks at the whole rest of a text for every match */
enum { BYTES = 400000, ENTRIES = 20000 };
#else
enum { BYTES = 4000000, ENTRIES = 20000 };
#endif

/* Builtins whose work does not grow with the value: they need not charge. A new builtin that fails
 * the tests below either belongs here, or does not charge for the bytes that it scans. */
static const char *const constant[] = {
    /* filters */ "abs",
    "count",
    "d",
    "default",
    "first",
    "format",
    "last",
    "length",
    "round",
    "safe",
    "string",
    "items",
    "dictsort",
    /* tests */ "boolean",
    "callable",
    "defined",
    "divisibleby",
    "even",
    "false",
    "float",
    "integer",
    "iterable",
    "mapping",
    "none",
    "number",
    "odd",
    "sequence",
    "true",
    "undefined",
    "<",
    "<=",
    ">",
    ">=",
    "ge",
    "greaterthan",
    "gt",
    "le",
    "lessthan",
    "lt",
    "sameas",
    /* methods */ "copy",
    "get",
    "keys",
    "values",
};

static bool is_constant(const char *name)
{
    for (size_t i = 0; i < sizeof constant / sizeof *constant; i++)
        if (strcmp(constant[i], name) == 0)
            return true;
    return false;
}

/* A rendering that the test controls itself, with large values in its arena. */
typedef struct bench {
    vt_template *t;
    vt_err err;
    tpl_run r;
    tpl_value letters, spaces, same, list, words, dict, one;
} bench;

static tpl_value long_text(tpl_run *r, const char *piece, size_t n)
{
    tpl_text t = {0};
    tpl_value v = {0};
    assert_int_equal(tpl_text_fill(r, &t, piece, strlen(piece), (int64_t)n), VT_OK);
    assert_int_equal(tpl_text_value(r, &t, &v), VT_OK);
    return v;
}

static tpl_value long_list(tpl_run *r, tpl_value item, bool numbers)
{
    tpl_list *l = NULL;
    assert_int_equal(tpl_list_new(r, 0, &l), VT_OK);
    for (int i = 0; i < ENTRIES; i++)
        assert_int_equal(tpl_list_add(r, l, numbers ? tpl_int(i) : item), VT_OK);
    return tpl_of_list(TPL_LIST, l);
}

static void bench_init(bench *b)
{
    tpl_dict *d = NULL;
    *b = (bench){0};
    assert_int_equal(vt_template_parse("bench", "", 0, &b->t, &b->err), VT_OK);
    b->r = (tpl_run){.name = "bench", .t = b->t, .err = &b->err, .max_depth = 400};
    b->r.max_steps = b->r.steps_later = INT64_MAX / 2;
    vt_arena_init(&b->r.arena, TPL_MEMORY);
    b->letters = long_text(&b->r, "x", BYTES);
    b->same = long_text(&b->r, "x", BYTES);
    b->spaces = long_text(&b->r, " ", BYTES);
    b->one = long_text(&b->r, "x", 1);
    b->list = long_list(&b->r, b->one, true);
    b->words = long_list(&b->r, b->one, false);
    assert_int_equal(tpl_dict_new(&b->r, &d), VT_OK);
    for (int i = 0; i < ENTRIES; i++)
        assert_int_equal(tpl_dict_set(&b->r, d, tpl_int(i), b->one), VT_OK);
    b->dict = tpl_of_dict(d);
}

static void bench_release(bench *b)
{
    vt_arena_release(&b->r.arena);
    vt_template_free(b->t);
}

/* The most steps that the builtin takes from `self` with any of some arguments. */
static int64_t most_steps(bench *b, const tpl_builtin *f, tpl_value self)
{
    tpl_value name = {0};
    assert_int_equal(tpl_str_copy(&b->r, "length", 6, &name), VT_OK);
    tpl_value args[][2] = {
        {{0}},     {b->one},         {b->same},         {b->words},
        {b->list}, {b->one, b->one}, {b->same, b->one}, {name},
    };
    static const int32_t n_args[] = {0, 1, 1, 1, 1, 2, 2, 1};
    int64_t most = 0;
    for (size_t i = 0; i < sizeof n_args / sizeof *n_args; i++) {
        tpl_call call = {.pos = args[i], .n_pos = n_args[i]};
        tpl_value out;
        int64_t before = tpl_steps_taken(&b->r);
        alarm(HANG_SECONDS);
        vt_status status = tpl_apply(&b->r, f, "builtin", self, &call, &out);
        alarm(0);
        int64_t steps = tpl_steps_taken(&b->r) - before;
        if (status != VT_ERR_USAGE && steps > most) /* calls with wrong types do not count */
            most = steps;
    }
    return most;
}

typedef enum subject { TEXT = 1, LIST = 2, DICT = 4 } subject;

static void expect_charged(tpl_table table, unsigned subjects)
{
    for (size_t i = 0; i < table.n; i++) {
        bench b;
        bool charged = is_constant(table.at[i].name);
        if (charged)
            continue;
        bench_init(&b);
        if (subjects & TEXT)
            charged = most_steps(&b, &table.at[i], b.letters) >= BYTES / 64 ||
                      most_steps(&b, &table.at[i], b.spaces) >= BYTES / 64;
        if (!charged && (subjects & LIST))
            charged = most_steps(&b, &table.at[i], b.list) >= ENTRIES ||
                      most_steps(&b, &table.at[i], b.words) >= ENTRIES;
        if (!charged && (subjects & DICT))
            charged = most_steps(&b, &table.at[i], b.dict) >= ENTRIES;
        bench_release(&b);
        if (!charged)
            fail_msg("'%s' is not charged for a value of %d bytes or %d entries", table.at[i].name,
                     BYTES, ENTRIES);
    }
}

static void test_template_builtins_are_charged_for_what_they_scan(void **state)
{
    (void)state;
    expect_charged(tpl_value_filters, TEXT);
    expect_charged(tpl_sequence_filters, LIST);
    expect_charged(tpl_json_filters, TEXT);
    expect_charged(tpl_tests, TEXT | LIST);
    expect_charged(tpl_str_methods, TEXT);
    expect_charged(tpl_list_methods, LIST);
    expect_charged(tpl_dict_methods, DICT);
}

static void test_template_operators_are_charged_for_what_they_scan(void **state)
{
    bench b;
    bool holds;
    tpl_value out, pair;
    int order;
    (void)state;
    bench_init(&b);
    tpl_run *r = &b.r;
#define CHARGES(call, least)                                 \
    do {                                                     \
        int64_t before = tpl_steps_taken(r);                 \
        assert_int_equal((call), VT_OK);                     \
        assert_true(tpl_steps_taken(r) - before >= (least)); \
    } while (0)
    CHARGES(tpl_equal(r, b.letters, b.same, &holds), BYTES / 64);
    CHARGES(tpl_equal(r, b.list, long_list(r, b.one, true), &holds), ENTRIES);
    CHARGES(tpl_equal(r, b.dict, b.dict, &holds), ENTRIES);
    CHARGES(tpl_order(r, b.letters, b.same, "<", &order), BYTES / 64);
    CHARGES(tpl_order(r, b.words, long_list(r, b.one, false), "<", &order), ENTRIES);
    CHARGES(tpl_contains(r, tpl_int(-1), b.list, &holds), ENTRIES);
    CHARGES(tpl_contains(r, long_text(r, "y", 2), b.letters, &holds), BYTES / 64);
    CHARGES(tpl_hashable(r, b.letters, &holds), BYTES / 64);
    assert_int_equal(tpl_pair(r, b.letters, b.letters, &pair), VT_OK);
    CHARGES(tpl_hashable(r, pair, &holds), 2 * BYTES / 64);
    CHARGES(tpl_binary(r, TPL_OP_ADD, b.letters, b.same, &out), 2 * BYTES / 64);
    CHARGES(tpl_binary(r, TPL_OP_ADD, b.list, b.list, &out), 2 * ENTRIES);
    CHARGES(tpl_binary(r, TPL_OP_MUL, b.list, tpl_int(2), &out), 2 * ENTRIES);
    CHARGES(tpl_slice(r, b.letters, tpl_none(), tpl_none(), tpl_int(2), &out), BYTES / 64);
    CHARGES(tpl_slice(r, b.list, tpl_none(), tpl_none(), tpl_int(-1), &out), ENTRIES);
    CHARGES(tpl_to_str(r, b.list, &out), ENTRIES);
#undef CHARGES
    bench_release(&b);
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
    assert_string_equal(r.err.message, "t.jinja: the variables: the JSON has so many values that "
                                       "they would take more than 256 MiB");
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
    asked = 0; /* inside a generator, whose errors are otherwise delayed */
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
        cmocka_unit_test(test_template_builtins_are_charged_for_what_they_scan),
        cmocka_unit_test(test_template_operators_are_charged_for_what_they_scan),
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
