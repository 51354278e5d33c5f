/* Web pages that may use the server, by the headers of their browser. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "server/http/sites.h"

static char why[400];

/* True if a request with these headers (NULL: none) passes. */
static bool passes(const server_sites *s, const char *host, const char *origin, const char *site)
{
    vt_http_header h[3];
    vt_http_request r = {.method = "POST", .path = "/", .header = h};
    if (host)
        h[r.n_headers++] = (vt_http_header){"host", host};
    if (origin)
        h[r.n_headers++] = (vt_http_header){"origin", origin};
    if (site)
        h[r.n_headers++] = (vt_http_header){"sec-fetch-site", site};
    why[0] = '\0';
    return server_sites_pass(s, &r, why, sizeof why);
}

static server_sites on_loopback(void)
{
    return (server_sites){.check_host = true, .scheme = "http", .host = "127.0.0.1"};
}

static void test_sites_host_that_is_not_ours_is_refused(void **state)
{
    (void)state;
    static const char *const good[] = {
        "localhost", "LOCALHOST:8000", "127.0.0.1",     "127.0.0.1:8000", "127.1.2.3:1",
        "[::1]",     "[::1]:8000",     "my-machine:80", "ai.example.com", "AI.example.com:443"};
    static const char *const bad[] = {"evil.example",
                                      "evil.example:8000",
                                      "127.0.0.1.evil.example",
                                      "localhost.evil.example",
                                      "localhost:8000.evil.example",
                                      "x.localhost",
                                      "128.0.0.1",
                                      "0.0.0.0",
                                      "127.1",
                                      "2130706433",
                                      "[::2]",
                                      "[::ffff:10.0.0.1]",
                                      "[::1",
                                      "[::1]x",
                                      "::1",
                                      "",
                                      ":8000",
                                      "[]",
                                      "my-machine.evil.example",
                                      "evil.ai.example.com",
                                      "ai.example.co"};
    const char *const allowed[] = {"ai.example.com"};
    server_sites s = on_loopback();
    s.host = "my-machine";
    s.allowed = allowed;
    s.n_allowed = 1;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(passes(&s, good[i], NULL, NULL));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (passes(&s, bad[i], NULL, NULL))
            fail_msg("Host '%s' passes", bad[i]);
        assert_non_null(strstr(why, "--allowed-host"));
    }
    assert_true(passes(&s, NULL, NULL, NULL)); /* HTTP/1.0: no browser */
    s.check_host = false;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_true(passes(&s, bad[i], NULL, NULL));
}

static void test_sites_host_of_an_ipv6_address_is_compared_without_its_brackets(void **state)
{
    (void)state;
    const char *const allowed[] = {"[fd00::2]:8443"};
    server_sites s = {.check_host = true, .scheme = "http", .host = "fd00::1", .allowed = allowed};
    assert_true(passes(&s, "[fd00::1]:8000", NULL, NULL));
    assert_false(passes(&s, "[fd00::2]", NULL, NULL));
    s.n_allowed = 1;
    assert_true(passes(&s, "[fd00::2]", "https://[fd00::2]:8443", NULL));
}

static void test_sites_origin_must_be_the_server(void **state)
{
    (void)state;
    static const char *const bad[] = {"http://evil.example",
                                      "null",
                                      "http://127.0.0.1:8001",
                                      "http://127.0.0.1",
                                      "https://127.0.0.1:8000",
                                      "http://localhost:8000",
                                      "127.0.0.1:8000",
                                      "http://127.0.0.1:8000/",
                                      "",
                                      "http://127.0.0.1:8000.evil.example",
                                      "file://127.0.0.1:8000",
                                      "file://"};
    server_sites s = on_loopback();
    for (int check = 0; check < 2; check++) {
        s.check_host = check;
        assert_true(passes(&s, "127.0.0.1:8000", "http://127.0.0.1:8000", NULL));
        assert_true(passes(&s, "127.0.0.1:8000", "HTTP://127.0.0.1:8000", "same-origin"));
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            if (passes(&s, "127.0.0.1:8000", bad[i], NULL))
                fail_msg("Origin '%s' passes", bad[i]);
            assert_non_null(strstr(why, "--cors-origin"));
            assert_false(passes(&s, NULL, bad[i], NULL));
        }
    }
    s.scheme = "https";
    assert_true(passes(&s, "127.0.0.1:8000", "https://127.0.0.1:8000", NULL));
    assert_false(passes(&s, "127.0.0.1:8000", "http://127.0.0.1:8000", NULL));
}

static void test_sites_sec_fetch_site_is_a_second_test(void **state)
{
    (void)state;
    server_sites s = on_loopback();
    assert_true(passes(&s, "localhost", NULL, "none"));
    assert_true(passes(&s, "localhost", "http://localhost", "same-origin"));
    assert_false(passes(&s, "localhost", NULL, "cross-site"));
    assert_non_null(strstr(why, "--cors-origin"));
    assert_false(passes(&s, "localhost", "http://localhost", "same-site"));
}

/* A page behind a proxy, whether or not the proxy passes the browser's Host on. */
static void test_sites_page_behind_a_proxy_with_allowed_host(void **state)
{
    (void)state;
    const char *const allowed[] = {"other", "ai.example.com:8443"};
    server_sites s = on_loopback();
    s.allowed = allowed;
    s.n_allowed = 2;
    assert_true(passes(&s, "ai.example.com:8443", "https://ai.example.com:8443", "same-origin"));
    assert_true(passes(&s, "127.0.0.1:8000", "https://ai.example.com:8443", "same-origin"));
    assert_true(passes(&s, "127.0.0.1:8000", "http://other", NULL));
    assert_false(passes(&s, "127.0.0.1:8000", "https://ai.example.com", NULL));
    assert_false(passes(&s, "127.0.0.1:8000", "ftp://other", NULL));
    assert_false(passes(&s, "127.0.0.1:8000", "https://other", "cross-site"));
    assert_false(passes(&s, "127.0.0.1:8000", "https://x.other", NULL));
    assert_false(passes(&s, "127.0.0.1:8000", "null", NULL));
}

static void test_sites_cors_origin_lets_that_one_pass(void **state)
{
    (void)state;
    server_sites s = on_loopback();
    s.cors_origin = "https://good.example";
    assert_true(passes(&s, "localhost", "https://good.example", "cross-site"));
    assert_true(passes(&s, "localhost", "http://localhost", "same-origin"));
    assert_true(passes(&s, "localhost", NULL, NULL));
    assert_false(passes(&s, "localhost", "http://good.example", "cross-site"));
    assert_false(passes(&s, "localhost", "http://evil.example", "cross-site"));
    assert_false(passes(&s, "localhost", "http://evil.example", NULL));
    assert_false(passes(&s, "localhost", "null", "cross-site"));
    assert_false(passes(&s, "localhost", NULL, "cross-site")); /* a picture's address */
    assert_false(passes(&s, "evil.example", "https://good.example", "cross-site"));
    s.cors_origin = "*";
    assert_true(passes(&s, "localhost", "http://evil.example", "cross-site"));
    assert_true(passes(&s, "localhost", NULL, "cross-site"));
    assert_false(passes(&s, "evil.example", NULL, NULL));
}

static void test_sites_options_that_match_nothing_are_refused(void **state)
{
    (void)state;
    static const char *const hosts[] = {"http://a", "a/",  "*",    "*.a", "",     ":80",
                                        "a:",       "a:b", "a, b", "a b", "[::1", "::1"};
    static const char *const origins[] = {
        "a", "null", "https://", "://a", "https://a/", "https://*.a", "https://a, https://b", ""};
    vt_err err = {0};
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        server_sites s = {.scheme = "http", .allowed = &hosts[i], .n_allowed = 1};
        assert_int_equal(server_sites_check(&s, &err), VT_ERR_USAGE);
        assert_non_null(strstr(err.message, "--allowed-host '"));
    }
    for (size_t i = 0; i < sizeof origins / sizeof *origins; i++) {
        server_sites s = {.scheme = "http", .cors_origin = origins[i]};
        assert_int_equal(server_sites_check(&s, &err), VT_ERR_USAGE);
        assert_non_null(strstr(err.message, "--cors-origin '"));
    }
    const char *const good[] = {"a", "a.b:1", "[::1]:8"};
    server_sites s = {.scheme = "http", .allowed = good, .n_allowed = 3, .cors_origin = "*"};
    assert_int_equal(server_sites_check(&s, &err), VT_OK);
    s.cors_origin = "vscode-webview://x";
    assert_int_equal(server_sites_check(&s, &err), VT_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sites_host_that_is_not_ours_is_refused),
        cmocka_unit_test(test_sites_host_of_an_ipv6_address_is_compared_without_its_brackets),
        cmocka_unit_test(test_sites_origin_must_be_the_server),
        cmocka_unit_test(test_sites_sec_fetch_site_is_a_second_test),
        cmocka_unit_test(test_sites_page_behind_a_proxy_with_allowed_host),
        cmocka_unit_test(test_sites_cors_origin_lets_that_one_pass),
        cmocka_unit_test(test_sites_options_that_match_nothing_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
