/* The option table and its store: what is accepted, what is refused and how the refusal reads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/options.h"

static void must_fail(const char *key, const char *value, vt_status want, const char *part)
{
    vt_options *o = NULL;
    vt_err err = {0};
    assert_int_equal(vt_options_new(&o, &err), VT_OK);
    assert_int_equal(vt_options_set(o, key, value, &err), want);
    if (!strstr(err.message, part))
        fail_msg("message '%s' lacks '%s'", err.message, part);
    vt_options_free(o);
}

/* A row is found by its id, or by its key where it has none. */
static void test_table_when_two_rows_share_a_key_then_their_ids_differ(void **state)
{
    int32_t n;
    const vt_option *t = vt_option_table(&n);
    (void)state;
    for (int32_t i = 0; i < n; i++)
        for (int32_t k = 0; k < i; k++)
            if (strcmp(t[i].id ? t[i].id : t[i].key, t[k].id ? t[k].id : t[k].key) == 0)
                fail_msg("two rows are found as %s", t[i].id ? t[i].id : t[i].key);
}

static void test_options_new_when_untouched_then_defaults(void **state)
{
    (void)state;
    vt_options *o = NULL;
    assert_int_equal(vt_options_new(&o, NULL), VT_OK);
    assert_string_equal(vt_options_get(o, "model"), "smollm2-135m");
    assert_int_equal(vt_options_int(o, "threads"), 0); /* auto */
    assert_int_equal(vt_options_int(o, "max-queued"), 1024);
    assert_false(vt_options_flag(o, "quiet"));
    assert_false(vt_options_given(o, "threads"));
    assert_null(vt_options_get(o, "no-such-key"));
    vt_options_free(o);
}

static void test_options_set_when_valid_then_typed(void **state)
{
    (void)state;
    vt_options *o = NULL;
    assert_int_equal(vt_options_new(&o, NULL), VT_OK);
    assert_int_equal(vt_options_set(o, "threads", "3", NULL), VT_OK);
    assert_int_equal(vt_options_set(o, "kv-memory", "2G", NULL), VT_OK);
    assert_int_equal(vt_options_set(o, "policy", "lpm", NULL), VT_OK);
    assert_int_equal(vt_options_set(o, "quiet", "Yes", NULL), VT_OK);
    assert_int_equal(vt_options_set(o, "device", "cuda:12", NULL), VT_OK);
    assert_string_equal(vt_options_get(o, "device"), "cuda:12");
    assert_int_equal(vt_options_set(o, "device", "cuda:3,0,12", NULL), VT_OK);
    assert_int_equal(vt_options_set(o, "device", "cuda:3,", NULL), VT_ERR_USAGE);
    assert_int_equal(vt_options_set(o, "device", "cuda:,3", NULL), VT_ERR_USAGE);
    assert_int_equal(vt_options_set(o, "device", "cuda:1,2,3,4,5,6,7,8,9", NULL), VT_ERR_USAGE);
    assert_int_equal(vt_options_int(o, "threads"), 3);
    assert_int_equal(vt_options_int(o, "kv-memory"), INT64_C(2) << 30);
    assert_int_equal(vt_options_set(o, "kv-memory", "18.5G", NULL), VT_OK);
    assert_int_equal(vt_options_int(o, "kv-memory"), INT64_C(37) << 29);
    assert_int_equal(vt_options_set(o, "kv-memory", "0.25MiB", NULL), VT_OK);
    assert_int_equal(vt_options_int(o, "kv-memory"), 1 << 18);
    assert_int_equal(vt_options_set(o, "seed", "9007199254740992", NULL), VT_OK);
    assert_int_equal(vt_options_int(o, "seed"), INT64_C(1) << 53);
    assert_int_equal(vt_options_set(o, "seed", "random", NULL), VT_OK);
    assert_string_not_equal(vt_options_get(o, "seed"), "random");
    assert_in_range(vt_options_int(o, "seed"), 0, INT64_C(1) << 53);
    assert_string_equal(vt_options_get(o, "policy"), "lpm");
    assert_string_equal(vt_options_get(o, "quiet"), "true");
    assert_true(vt_options_given(o, "threads"));
    assert_int_equal(vt_options_set(o, "threads", "4", NULL), VT_OK); /* the last one counts */
    assert_int_equal(vt_options_int(o, "threads"), 4);
    vt_options_free(o);
}

static void test_options_set_when_wrong_then_named(void **state)
{
    (void)state;
    must_fail("threads", "0", VT_ERR_USAGE,
              "option threads: '0' found, expected a whole number from 1 to 1024");
    must_fail("threads", "two", VT_ERR_USAGE, "or auto");
    must_fail("threads", "2x", VT_ERR_USAGE, "'2x'");
    must_fail("threads", "99999999999999999999", VT_ERR_USAGE, "whole number");
    must_fail("threads", "", VT_ERR_USAGE, "whole number");
    must_fail("kv-memory", "4Q", VT_ERR_USAGE, "512M");
    must_fail("kv-memory", "1000T", VT_ERR_USAGE, "at most 1000000000000000 bytes");
    must_fail("kv-memory", "1K", VT_ERR_USAGE, "at least 65536 bytes");
    must_fail("kv-memory", "1048576.5", VT_ERR_USAGE, "4.5G");
    must_fail("kv-memory", "9223372036854775807T", VT_ERR_USAGE, "4.5G");
    must_fail("seed", "9007199254740993", VT_ERR_USAGE, "or random");
    must_fail("kv-memory", "9999999T", VT_ERR_USAGE, "bytes");
    must_fail("policy", "random", VT_ERR_USAGE, "fcfs|lpm|priority");
    must_fail("policy", "fcfs|lpm", VT_ERR_USAGE, "fcfs|lpm|priority");
    must_fail("quiet", "maybe", VT_ERR_USAGE, "true or false");
    must_fail("max-queued", "auto", VT_ERR_USAGE, "whole number");
}

static void test_options_set_when_key_unknown_then_nearest(void **state)
{
    (void)state;
    must_fail("thraeds", "2", VT_ERR_USAGE, "did you mean threads?");
    must_fail("page_size", "2", VT_ERR_USAGE, "did you mean page-size?");
    must_fail("colour-of-the-sky", "2", VT_ERR_USAGE, "unknown");
    must_fail("temperature", "1", VT_ERR_USAGE, "belongs to a request");
}

static void test_options_set_when_more_ranks_than_there_can_be_then_refused(void **state)
{
    (void)state;
    must_fail("tp", "65", VT_ERR_USAGE, "1 to 64");
}

static void test_options_env_twin_when_set_then_default(void **state)
{
    (void)state;
    vt_options *o = NULL;
    vt_err err;
    setenv("VITRINE_TOKEN_BUDGET", "96", 1);
    assert_int_equal(vt_options_new(&o, &err), VT_OK);
    assert_int_equal(vt_options_int(o, "token-budget"), 96);
    vt_options_free(o);
    o = NULL;
    setenv("VITRINE_TOKEN_BUDGET", "none", 1);
    assert_int_equal(vt_options_new(&o, &err), VT_ERR_USAGE);
    assert_null(o);
    assert_non_null(strstr(err.message, "VITRINE_TOKEN_BUDGET: 'none' found"));
    unsetenv("VITRINE_TOKEN_BUDGET");
}

static void test_options_repeatable_when_given_twice_then_both(void **state)
{
    (void)state;
    vt_options *o = NULL;
    const vt_option *stop = vt_option_find("stop", VT_FOR_RUN);
    assert_int_equal(vt_options_new(&o, NULL), VT_OK);
    assert_int_equal(vt_options_assign(o, stop, "one", "--stop", NULL), VT_OK);
    assert_int_equal(vt_options_assign(o, stop, "two", "--stop", NULL), VT_OK);
    int32_t n = 0;
    const char *const *list = vt_options_list(o, "stop", &n);
    assert_int_equal(n, 2);
    assert_string_equal(list[0], "one");
    assert_string_equal(list[1], "two");
    for (int32_t i = 2; i < 64; i++)
        assert_int_equal(vt_options_assign(o, stop, "more", "--stop", NULL), VT_OK);
    assert_int_equal(vt_options_assign(o, stop, "more", "--stop", NULL), VT_ERR_USAGE);
    vt_options_free(o);
}

static void test_parse_ids_when_odd_then_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"",   ",",          "1,",  "1,,2", "1;2",
                                      "-1", "2147483648", "1 2", "0x10"};
    vt_err err;
    int32_t *ids = NULL, n = 0;
    assert_int_equal(vt_parse_ids("1, 22 ,333", "--tokens", &ids, &n, &err), VT_OK);
    assert_int_equal(n, 3);
    assert_int_equal(ids[1], 22);
    assert_int_equal(ids[2], 333);
    free(ids);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(vt_parse_ids(bad[i], "--tokens", &ids, &n, &err), VT_ERR_USAGE);
}

/* Every default is a value that its own row accepts; no verb has a key or a letter twice; every id
 * occurs once. */
static void test_option_table_when_read_then_consistent(void **state)
{
    (void)state;
    int32_t n;
    const vt_option *t = vt_option_table(&n);
    vt_options *o = NULL;
    assert_int_equal(vt_options_new(&o, NULL), VT_OK);
    for (int32_t i = 0; i < n; i++) {
        vt_err err = {0};
        if (t[i].fallback && vt_options_assign(o, &t[i], t[i].fallback, t[i].key, &err) != VT_OK)
            fail_msg("%s", err.message);
        assert_true((t[i].type == VT_OPTION_FLAG) == (t[i].value_name == NULL));
        assert_non_null(t[i].help);
        assert_true(t[i].verbs != 0);
        for (int32_t j = 0; j < i; j++) {
            const char *a = t[i].id ? t[i].id : t[i].key, *b = t[j].id ? t[j].id : t[j].key;
            bool together = t[i].verbs & t[j].verbs;
            assert_string_not_equal(a, b);
            assert_false(together && strcmp(t[i].key, t[j].key) == 0);
            assert_false(together && t[i].letter && t[i].letter == t[j].letter);
        }
    }
    vt_options_free(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table_when_two_rows_share_a_key_then_their_ids_differ),
        cmocka_unit_test(test_options_new_when_untouched_then_defaults),
        cmocka_unit_test(test_options_set_when_valid_then_typed),
        cmocka_unit_test(test_options_set_when_wrong_then_named),
        cmocka_unit_test(test_options_set_when_key_unknown_then_nearest),
        cmocka_unit_test(test_options_set_when_more_ranks_than_there_can_be_then_refused),
        cmocka_unit_test(test_options_env_twin_when_set_then_default),
        cmocka_unit_test(test_options_repeatable_when_given_twice_then_both),
        cmocka_unit_test(test_parse_ids_when_odd_then_refused),
        cmocka_unit_test(test_option_table_when_read_then_consistent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
