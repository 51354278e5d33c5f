/* The web server: addresses, Unix sockets, options and TLS. */
#include "web_fixture.h"

#include <fcntl.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/stat.h>

/* ---- listening ---- */

static void test_web_listen_says_what_is_wrong(void **state)
{
    (void)state;
    site *s = site_start();
    vt_web *w = NULL;
    vt_err err = {0};
    int port = 0;
    assert_int_equal(vt_web_new(&s->o, &w, &err), VT_OK);
    assert_int_equal(vt_web_listen(w, "127.0.0.1", s->port, NULL, &err), VT_ERR_IO);
    assert_non_null(strstr(err.message, "127.0.0.1 port "));
    assert_non_null(strstr(err.message, "Address already in use"));
    assert_int_equal(vt_web_listen(w, "no.such.host.invalid", 0, NULL, &err), VT_ERR_IO);
    assert_non_null(strstr(err.message, "no.such.host.invalid"));
    assert_int_equal(vt_web_listen(w, "", 0, NULL, &err), VT_ERR_USAGE);
    assert_int_equal(vt_web_listen(w, "127.0.0.1", 65536, NULL, &err), VT_ERR_USAGE);
    assert_int_equal(vt_web_listen(w, "localhost", 0, &port, &err), VT_OK);
    assert_true(port > 0);
    vt_web_free(w);
    site_close(s);
}

static void test_web_ipv6(void **state)
{
    (void)state;
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) != 0) {
        close(fd);
        skip();
    }
    close(fd);
    site *s = site_new();
    assert_int_equal(vt_web_new(&s->o, &s->web, NULL), VT_OK);
    assert_int_equal(vt_web_listen(s->web, "::", 0, &s->port, NULL), VT_OK);
    pthread_create(&s->thread, NULL, run, s);
    fd = socket(AF_INET6, SOCK_STREAM, 0);
    a.sin6_port = htons((uint16_t)s->port);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    int four = dial(s); /* "::" serves IPv4 as well */
    say(fd, ECHO("6", "1"));
    expect(fd, 200, "6");
    say(four, ECHO("4", "1"));
    expect(four, 200, "4");
    close(fd);
    close(four);
    site_close(s);
}

static void test_web_unix_socket_replaces_a_stale_one_alone(void **state)
{
    (void)state;
    char name[] = "/tmp/vitrine-test-XXXXXX", path[64], other[64], deep[200];
    vt_err err = {0};
    vt_web *second = NULL;
    struct stat st;
    assert_non_null(mkdtemp(name));
    snprintf(path, sizeof path, "%s/socket", name);
    snprintf(other, sizeof other, "%s/file", name);
    snprintf(deep, sizeof deep, "%s/%0120d", name, 7);
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    int stale = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(stale, (struct sockaddr *)&a, sizeof a), 0);
    close(stale); /* the file stays */

    site *s = site_new();
    site_open(s, path);
    int fd = dial_unix(path);
    say(fd, ECHO("x", "1"));
    expect(fd, 200, "x");
    assert_int_equal(vt_web_new(&s->o, &second, NULL), VT_OK);
    assert_int_equal(vt_web_listen_unix(second, path, &err), VT_ERR_IO);
    assert_non_null(strstr(err.message, "another program listens"));
    close(open(other, O_CREAT | O_WRONLY, 0600));
    assert_int_equal(vt_web_listen_unix(second, other, &err), VT_ERR_IO);
    assert_non_null(strstr(err.message, "is no socket"));
    assert_int_equal(stat(other, &st), 0);
    assert_int_equal(vt_web_listen_unix(second, deep, &err), VT_ERR_USAGE);
    vt_web_free(second);
    assert_int_equal(stat(path, &st), 0); /* it was not the second's */
    close(fd);
    site_close(s);
    assert_int_equal(stat(path, &st), -1);
    unlink(other);
    rmdir(name);
}

static void test_web_options_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    vt_web_options o;
    vt_web *w = NULL;
    vt_err err = {0};
    vt_web_options_init(&o);
    assert_int_equal(vt_web_new(&o, &w, &err), VT_ERR_USAGE); /* no handler */
    o.handler = handle;
    o.idle_s = 0;
    assert_int_equal(vt_web_new(&o, &w, &err), VT_ERR_USAGE);
    o.idle_s = 1;
    o.cors_origin = "a\r\nX: y";
    assert_int_equal(vt_web_new(&o, &w, &err), VT_ERR_USAGE);
    o.cors_origin = NULL;
    o.tls_cert = "cert.pem";
    assert_int_equal(vt_web_new(&o, &w, &err), VT_ERR_USAGE);
    o.tls_cert = NULL;
    o.limits.line = 0;
    assert_int_equal(vt_web_new(&o, &w, &err), VT_ERR_USAGE);
    assert_null(w);
}

/* ---- TLS ---- */

/* A key and a certificate that it signs itself, as PEM files. */
static void write_pair(const char *cert_path, const char *key_path)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();
    X509_set_version(cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
    X509_gmtime_adj(X509_getm_notBefore(cert), -60);
    X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
    X509_set_pubkey(cert, key);
    X509_NAME *subject = X509_get_subject_name(cert);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)"test", -1, -1,
                               0);
    X509_set_issuer_name(cert, subject);
    assert_true(X509_sign(cert, key, EVP_sha256()) > 0);
    FILE *f = fopen(cert_path, "w");
    assert_int_equal(PEM_write_X509(f, cert), 1);
    fclose(f);
    f = fopen(key_path, "w");
    assert_int_equal(PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL), 1);
    fclose(f);
    X509_free(cert);
    EVP_PKEY_free(key);
}

typedef struct tls_files {
    char folder[32], cert[64], key[64], other[64], unused[64];
} tls_files;

static void make_files(tls_files *t)
{
    snprintf(t->folder, sizeof t->folder, "/tmp/vitrine-test-XXXXXX");
    assert_non_null(mkdtemp(t->folder));
    snprintf(t->cert, sizeof t->cert, "%s/cert.pem", t->folder);
    snprintf(t->key, sizeof t->key, "%s/key.pem", t->folder);
    snprintf(t->other, sizeof t->other, "%s/other.pem", t->folder);
    snprintf(t->unused, sizeof t->unused, "%s/unused.pem", t->folder);
    write_pair(t->unused, t->other);
    write_pair(t->cert, t->key);
}

static void remove_files(const tls_files *t)
{
    unlink(t->cert);
    unlink(t->key);
    unlink(t->other);
    unlink(t->unused);
    rmdir(t->folder);
}

static void tls_say(SSL *ssl, const char *text)
{
    assert_int_equal(SSL_write(ssl, text, (int)strlen(text)), (int)strlen(text));
}

/* Reads until the text `end` has come. */
static void tls_hear(SSL *ssl, char *text, size_t room, const char *end)
{
    size_t len = 0;
    text[0] = '\0';
    while (!strstr(text, end)) {
        int n = SSL_read(ssl, text + len, (int)(room - len - 1));
        if (n <= 0)
            fail_msg("the connection ended after: %s", text);
        len += (size_t)n;
        text[len] = '\0';
    }
}

static void test_web_tls_round_trip(void **state)
{
    (void)state;
    tls_files t;
    make_files(&t);
    site *s = site_new();
    s->o.tls_cert = t.cert;
    s->o.tls_key = t.key;
    site_open(s, NULL);
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL *ssl = SSL_new(context);
    int fd = dial(s);
    char text[4096];
    SSL_set_fd(ssl, fd);
    SSL_set_alpn_protos(ssl, (const unsigned char *)"\x02h2\x08http/1.1", 12);
    assert_int_equal(SSL_connect(ssl), 1);
    assert_true(SSL_version(ssl) >= TLS1_2_VERSION);
    const unsigned char *protocol;
    unsigned int len;
    SSL_get0_alpn_selected(ssl, &protocol, &len);
    assert_int_equal(len, 8);
    for (int i = 0; i < 2; i++) {
        tls_say(ssl, ECHO("hello", "5"));
        tls_hear(ssl, text, sizeof text, "hello");
    }
    tls_say(ssl, "GET /stream HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    tls_hear(ssl, text, sizeof text, "three\r\n0\r\n\r\n");
    assert_int_equal(SSL_read(ssl, text, 1), 0);
    assert_int_equal(SSL_get_error(ssl, 0), SSL_ERROR_ZERO_RETURN); /* a clean end */
    SSL_free(ssl);
    close(fd);

    ssl = SSL_new(context);
    fd = dial(s);
    SSL_set_fd(ssl, fd);
    assert_int_equal(SSL_connect(ssl), 1);
    tls_say(ssl, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for(&s->began);
    SSL_shutdown(ssl);
    wait_for(&s->gone);
    SSL_free(ssl);
    close(fd);
    SSL_CTX_free(context);
    site_close(s);
    remove_files(&t);
}

static void test_web_tls_refuses_old_versions_and_plain_text(void **state)
{
    (void)state;
    tls_files t;
    make_files(&t);
    site *s = site_new();
    s->o.tls_cert = t.cert;
    s->o.tls_key = t.key;
    site_open(s, NULL);
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_security_level(context, 0);
    SSL_CTX_set_max_proto_version(context, TLS1_1_VERSION);
    SSL *ssl = SSL_new(context);
    int fd = dial(s);
    SSL_set_fd(ssl, fd);
    assert_true(SSL_connect(ssl) != 1);
    SSL_free(ssl);
    close(fd);
    SSL_CTX_free(context);
    fd = dial(s);
    say(fd, ECHO("x", "1"));
    char text[512];
    size_t n = 0;
    while (n + 1 < sizeof text && next_byte(fd, text + n))
        n++;
    text[n] = '\0';
    assert_ptr_equal(strstr(text, "HTTP/1.1 400 "), text);
    assert_non_null(strstr(text, "\r\n\r\nThe client speaks plain HTTP, but this port TLS: "));
    close(fd);
    site_close(s);
    remove_files(&t);
}

static void refuse_files(const char *cert, const char *key, const char *named, const char *says)
{
    vt_web_options o;
    vt_web *w = NULL;
    vt_err err = {0};
    vt_web_options_init(&o);
    o.handler = handle;
    o.tls_cert = cert;
    o.tls_key = key;
    assert_int_not_equal(vt_web_new(&o, &w, &err), VT_OK);
    assert_non_null(strstr(err.message, named));
    assert_non_null(strstr(err.message, says));
}

static void test_web_tls_files_that_are_wrong_are_named(void **state)
{
    (void)state;
    tls_files t;
    make_files(&t);
    refuse_files("/no/cert.pem", t.key, "/no/cert.pem", "No such file");
    refuse_files(t.cert, "/no/key.pem", "/no/key.pem", "No such file");
    refuse_files(t.key, t.key, t.key, "certificate");
    refuse_files(t.cert, t.cert, t.cert, "private key");
    refuse_files(t.cert, t.other, t.other, "does not belong to the certificate");
    remove_files(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_web_listen_says_what_is_wrong),
        cmocka_unit_test(test_web_ipv6),
        cmocka_unit_test(test_web_unix_socket_replaces_a_stale_one_alone),
        cmocka_unit_test(test_web_options_that_make_no_sense_are_refused),
        cmocka_unit_test(test_web_tls_round_trip),
        cmocka_unit_test(test_web_tls_refuses_old_versions_and_plain_text),
        cmocka_unit_test(test_web_tls_files_that_are_wrong_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
