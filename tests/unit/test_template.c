/* The template interpreter: the default model's chat template, limits, error messages.
 * test_template_golden.c tests equality with jinja2. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "text/template/template.h"

typedef struct result {
    vt_status status;
    vt_err err;
    vt_buf out;
} result;

static result render_with(const char *source, const char *variables, vt_template_limits limits)
{
    result r = {0};
    vt_template *t = NULL;
    vt_buf_init(&r.out, 0);
    r.status = vt_template_parse("t.jinja", source, strlen(source), &t, &r.err);
    if (r.status == VT_OK)
        r.status = vt_template_render(t, variables, strlen(variables), &limits, &r.out, &r.err);
    vt_template_free(t);
    return r;
}

static void expect(const char *source, const char *variables, const char *text)
{
    result r = render_with(source, variables, (vt_template_limits){0});
    if (r.status != VT_OK)
        fail_msg("%s", r.err.message);
    assert_string_equal(r.out.data ? r.out.data : "", text);
    vt_buf_release(&r.out);
}

/* Rendering must fail with this status, and the error's text must contain all of the message. */
static void expect_error(const char *source, const char *variables, vt_template_limits limits,
                         vt_status status, const char *message)
{
    result r = render_with(source, variables, limits);
    vt_buf_release(&r.out);
    assert_int_equal(r.status, status);
    assert_string_equal(r.err.message, message);
}

/* The template of the default model. */
static const char chatml[] =
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
    "Face<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% "
    "endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

static void test_template_chatml_when_no_system_message_then_default_is_put_first(void **state)
{
    (void)state;
    expect(chatml,
           "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"add_generation_prompt\":true}",
           "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
           "Face<|im_end|>\n"
           "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

static void test_template_chatml_when_system_message_is_given_then_it_is_used(void **state)
{
    (void)state;
    expect(chatml,
           "{\"messages\":[{\"role\":\"system\",\"content\":\"Be "
           "brief.\"},{\"role\":\"user\",\"content\":\"Hi\"}]}",
           "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n");
}

/* jinja2's rule: what is at most `leeway` (5) longer than asked for stays whole. */
static void test_template_truncate_when_a_little_longer_then_it_stays_whole(void **state)
{
    (void)state;
    expect("{{ 'abcdefghij'|truncate(5) }}", "{}", "abcdefghij");
    expect("{{ 'abcdefghijk'|truncate(5) }}", "{}", "ab...");
    expect("{{ 'abcdef'|truncate(5, leeway=0) }}", "{}", "ab...");
    expect("{{ 'abcde'|truncate(5, leeway=0) }}", "{}", "abcde");
    expect("{{ 'one two three'|truncate(10, leeway=0) }}", "{}", "one...");
    expect("{{ 'one two three'|truncate(10, true, leeway=0) }}", "{}", "one two...");
}

static void test_template_render_when_called_again_then_the_template_is_unchanged(void **state)
{
    (void)state;
    static const char source[] = "{% set ns = namespace(n=0) %}{% for i in range(3) %}{% set ns.n "
                                 "= ns.n + i %}{% endfor %}{{ ns.n }}";
    vt_template *t = NULL;
    vt_err err = {0};
    assert_int_equal(vt_template_parse("t", source, strlen(source), &t, &err), VT_OK);
    for (int i = 0; i < 3; i++) {
        vt_buf out;
        vt_buf_init(&out, 0);
        assert_int_equal(vt_template_render(t, "{}", 2, NULL, &out, &err), VT_OK);
        assert_string_equal(out.data, "3");
        vt_buf_release(&out);
    }
    vt_template_free(t);
}

static void test_template_error_names_template_and_line(void **state)
{
    (void)state;
    vt_template_limits none = {0};
    expect_error("a\n{% if x %}\n", "{}", none, VT_ERR_FORMAT,
                 "t.jinja:2: found the end of the template where endif was expected");
    expect_error("a\nb\n{{ m.content.x }}", "{\"m\":{}}", none, VT_ERR_USAGE,
                 "t.jinja:3: 'dict object' has no attribute 'content'");
    expect_error("{{ 1 | nosuch }}", "{}", none, VT_ERR_UNSUPPORTED,
                 "t.jinja:1: there is no filter named 'nosuch'");
    expect_error("{% include 'x' %}", "{}", none, VT_ERR_UNSUPPORTED,
                 "t.jinja:1: the tag 'include' is not supported in chat templates");
    expect_error("\n{{ raise_exception('roles must alternate') }}", "{}", none, VT_ERR_USAGE,
                 "t.jinja:2: roles must alternate");
    expect_error("{{ x }}", "[1]", none, VT_ERR_USAGE,
                 "t.jinja: the variables are not a JSON object");
}

static void test_template_error_in_a_loop_names_the_message_and_its_role(void **state)
{
    (void)state;
    static const char messages[] = "{\"messages\": [{\"role\": \"system\", \"content\": \"\"},"
                                   " {\"role\": \"user\", \"content\": \"a\"},"
                                   " {\"role\": \"assistant\", \"content\": null}, 5]}";
    vt_template_limits none = {0};
    expect_error("{% for m in messages %}{{ 'x' + m.content }}{% endfor %}", messages, none,
                 VT_ERR_USAGE,
                 "t.jinja:1: can only concatenate str (not \"NoneType\") to str (at messages[2], "
                 "role 'assistant')");
    /* the loop's variable counts, not what else is a message; messages[1:] holds the same ones */
    expect_error("{% set first = messages[0] %}{% macro p(x) %}{{ '<' + x }}{% endmacro %}"
                 "{% for m in messages[1:] %}{% set before = messages[0] %}{% if true %}"
                 "{{ p(m.content) }}{% endif %}{% endfor %}",
                 messages, none, VT_ERR_USAGE,
                 "t.jinja:1: can only concatenate str (not \"NoneType\") to str (at messages[2], "
                 "role 'assistant')");
    expect_error("{% for m in messages %}{% if loop.last %}{{ m.a.b }}{% endif %}{% endfor %}",
                 messages, none, VT_ERR_USAGE, "t.jinja:1: 'int object' has no attribute 'a'");
    expect_error("{% set first = messages[2] %}{{ 'x' + first.content }}", messages, none,
                 VT_ERR_USAGE, "t.jinja:1: can only concatenate str (not \"NoneType\") to str");
}

static void test_template_limits_when_passed_then_rendering_fails(void **state)
{
    (void)state;
    expect_error("{% for i in range(1000) %}{% for j in range(1000) %}{% endfor %}{% endfor %}",
                 "{}", (vt_template_limits){.max_steps = 1000}, VT_ERR_MEMORY,
                 "t.jinja:1: the rendering takes more than 1000 steps");
    expect_error("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{}", (vt_template_limits){0},
                 VT_ERR_MEMORY, "t.jinja:1: calls and values are nested deeper than 400");
    expect_error("{% for i in range(100) %}0123456789{% endfor %}", "{}",
                 (vt_template_limits){.max_output = 100}, VT_ERR_MEMORY,
                 "t.jinja:1: the rendering writes more than 100 bytes");
    expect_error("{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = [ns.l] "
                 "%}{% endfor %}{{ ns.l }}",
                 "{}", (vt_template_limits){0}, VT_ERR_MEMORY,
                 "t.jinja:1: calls and values are nested deeper than 400");
}

static void test_template_memory_when_values_grow_without_end_then_rendering_fails(void **state)
{
    (void)state;
    result r = render_with("{{ 'x' * 1000000000 }}", "{}", (vt_template_limits){0});
    vt_buf_release(&r.out);
    assert_int_equal(r.status, VT_ERR_MEMORY);
}

/* `n` times `part` between `begin` and `end`. */
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

static void test_template_chain_of_elifs_when_long_then_it_is_not_deep(void **state)
{
    (void)state;
    char *source = repeated("{% if n == 1 %}a", "{% elif n == 2 %}b", 20000,
                            "{% else %}c{% endif %}");
    expect(source, "{\"n\": 3}", "c");
    free(source);
}

static void test_template_nesting_when_too_deep_then_parsing_fails(void **state)
{
    (void)state;
    static const struct {
        const char *begin, *part, *end;
    } deep[] = {
        {"{{ ", "(", " }}"},       {"{{ ", "[", " }}"},         {"{{ x", "()", " }}"},
        {"{{ x", "|upper", " }}"}, {"{{ x|upper", "()", " }}"}, {"{{ ", "not ", "x }}"},
        {"{{ ", "-", "x }}"},      {"{{ 1", " + 1", " }}"},     {"{{ x", ".y", " }}"},
        {"{{ x", "[0]", " }}"},    {"", "{% if x %}", ""},      {"{{ x", " if x else x", " }}"},
        {"{{ x", " or x", " }}"},  {"{% set ", "(", " %}"},
    };
    for (size_t i = 0; i < sizeof deep / sizeof *deep; i++) {
        char *source = repeated(deep[i].begin, deep[i].part, 50000, deep[i].end);
        result r = render_with(source, "{}", (vt_template_limits){0});
        if (r.status == VT_OK || !strstr(r.err.message, "deeper than 100"))
            fail_msg("%s: %s", deep[i].part, r.status == VT_OK ? "no failure" : r.err.message);
        vt_buf_release(&r.out);
        free(source);
    }
}

static void test_template_sandbox_when_lists_would_change_then_it_fails(void **state)
{
    (void)state;
    expect_error("{% set l = [1] %}{{ l.append(2) }}", "{}", (vt_template_limits){0}, VT_ERR_USAGE,
                 "t.jinja:1: access to attribute 'append' of 'list' object is unsafe.");
    expect_error("{{ ''.__class__.__mro__ }}", "{}", (vt_template_limits){0}, VT_ERR_USAGE,
                 "t.jinja:1: access to attribute '__class__' of 'str' object is unsafe.");
}

static void test_template_strftime_now_uses_the_given_clock(void **state)
{
    (void)state;
    result r = render_with("{{ strftime_now('%d %B %Y') }}", "{}",
                           (vt_template_limits){.now = 1719835200});
    assert_int_equal(r.status, VT_OK);
    assert_string_equal(r.out.data, "01 July 2024");
    vt_buf_release(&r.out);
}

static void test_template_integers_beyond_64_bits_are_refused(void **state)
{
    (void)state;
    expect_error("{{ 9223372036854775807 + 1 }}", "{}", (vt_template_limits){0}, VT_ERR_UNSUPPORTED,
                 "t.jinja:1: an integer passes 64 bits, which templates here do not have");
}

static void test_template_output_when_it_fails_then_nothing_is_appended(void **state)
{
    (void)state;
    result r = render_with("text {{ 1 // 0 }}", "{}", (vt_template_limits){0});
    assert_int_equal(r.status, VT_ERR_USAGE);
    assert_int_equal(r.out.len, 0);
    vt_buf_release(&r.out);
}

int main(void)
{
    setenv("TZ", "UTC", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_template_chatml_when_no_system_message_then_default_is_put_first),
        cmocka_unit_test(test_template_chatml_when_system_message_is_given_then_it_is_used),
        cmocka_unit_test(test_template_truncate_when_a_little_longer_then_it_stays_whole),
        cmocka_unit_test(test_template_render_when_called_again_then_the_template_is_unchanged),
        cmocka_unit_test(test_template_error_names_template_and_line),
        cmocka_unit_test(test_template_error_in_a_loop_names_the_message_and_its_role),
        cmocka_unit_test(test_template_limits_when_passed_then_rendering_fails),
        cmocka_unit_test(test_template_memory_when_values_grow_without_end_then_rendering_fails),
        cmocka_unit_test(test_template_chain_of_elifs_when_long_then_it_is_not_deep),
        cmocka_unit_test(test_template_nesting_when_too_deep_then_parsing_fails),
        cmocka_unit_test(test_template_sandbox_when_lists_would_change_then_it_fails),
        cmocka_unit_test(test_template_strftime_now_uses_the_given_clock),
        cmocka_unit_test(test_template_integers_beyond_64_bits_are_refused),
        cmocka_unit_test(test_template_output_when_it_fails_then_nothing_is_appended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
