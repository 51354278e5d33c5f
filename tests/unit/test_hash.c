/* SHA-256 and SHA-1 against the examples of FIPS 180-4 and of git. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fetch/hash.h"

static void expect(hash_kind kind, const char *text, size_t repeat, const char *want)
{
    hash_state s;
    char hex[HASH_HEX];
    hash_init(&s, kind);
    for (size_t i = 0; i < repeat; i++)
        hash_add(&s, text, strlen(text));
    hash_finish(&s, hex);
    assert_string_equal(hex, want);
}

static void test_hash_sha256_of_known_texts(void **state)
{
    (void)state;
    expect(HASH_SHA256, "", 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    expect(HASH_SHA256, "abc", 1,
           "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    expect(HASH_SHA256, "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
           "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    expect(HASH_SHA256, "aaaaaaaaaa", 100000,
           "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static void test_hash_sha1_of_known_texts(void **state)
{
    (void)state;
    expect(HASH_SHA1, "", 1, "da39a3ee5e6b4b0d3255bfef95601890afd80709");
    expect(HASH_SHA1, "abc", 1, "a9993e364706816aba3e25717850c26c9cd0d89d");
    expect(HASH_SHA1, "aaaaaaaaaa", 100000, "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
}

static void test_hash_file_as_git_blob_is_what_git_says(void **state)
{
    (void)state;
    char path[] = "/tmp/vitrine-hash-XXXXXX", hex[HASH_HEX];
    vt_err err;
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, "hello\n", 6) == 6);
    close(fd);
    assert_int_equal(hash_file(path, HASH_SHA1, true, hex, &err), VT_OK);
    assert_string_equal(hex, "ce013625030ba8dba906f756967f9e9ca394464a");
    unlink(path);
    assert_int_equal(hash_file(path, HASH_SHA1, true, hex, &err), VT_ERR_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hash_sha256_of_known_texts),
        cmocka_unit_test(test_hash_sha1_of_known_texts),
        cmocka_unit_test(test_hash_file_as_git_blob_is_what_git_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
