/* TLS of the web server: OpenSSL under libevent's bufferevents (server/http/web.h). */
#include "server/http/web_inside.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <event2/bufferevent_ssl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "base/err.h"
#include "base/plain_file.h"

/* A key that is encrypted cannot be used: there may be nobody to ask for its password. */
static int no_password(char *text, int size, int writing, void *user)
{
    (void)text, (void)size, (void)writing, (void)user;
    return 0;
}

/* "http/1.1" where the client offers a choice; one that offers other protocols alone goes on
 * without. */
static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                           const unsigned char *in, unsigned int in_len, void *arg)
{
    (void)ssl, (void)arg;
    static const unsigned char ours[] = "\x08http/1.1";
    unsigned char *chosen;
    if (SSL_select_next_proto(&chosen, out_len, ours, sizeof ours - 1, in, in_len) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_NOACK;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

static vt_status fail_file(const char *path, const char *expected, vt_err *err)
{
    unsigned long code = ERR_peek_last_error();
    const char *reason = code ? ERR_reason_error_string(code) : NULL;
    vt_status status = access(path, R_OK) != 0
                           ? vt_fail(err, VT_ERR_IO, "%s: %s", path, strerror(errno))
                           : vt_fail(err, VT_ERR_FORMAT, "%s: no %s could be read (%s)", path,
                                     expected, reason ? reason : "unknown error");
    ERR_clear_error();
    return status;
}

/* Fails if OpenSSL would wait for a writer of this path, or cannot open it. */
static vt_status check_openable(const char *path, vt_err *err)
{
    FILE *f = NULL;
    TRY(vt_open_to_read(path, &f, err));
    fclose(f);
    return VT_OK;
}

static vt_status load_files(SSL_CTX *tls, const char *cert, const char *key, vt_err *err)
{
    TRY(check_openable(cert, err));
    TRY(check_openable(key, err));
    ERR_clear_error();
    SSL_CTX_set_default_passwd_cb(tls, no_password);
    if (SSL_CTX_use_certificate_chain_file(tls, cert) != 1)
        return fail_file(cert, "certificate in PEM form", err);
    if (SSL_CTX_use_PrivateKey_file(tls, key, SSL_FILETYPE_PEM) != 1) {
        if (ERR_GET_REASON(ERR_peek_last_error()) == X509_R_KEY_VALUES_MISMATCH) {
            ERR_clear_error();
            return vt_fail(err, VT_ERR_FORMAT, "%s: the key does not belong to the certificate %s",
                           key, cert);
        }
        return fail_file(key, "private key in PEM form without a password", err);
    }
    return VT_OK;
}

vt_status web_tls_new(const char *cert, const char *key, struct ssl_ctx_st **out, vt_err *err)
{
    SSL_CTX *tls = SSL_CTX_new(TLS_server_method());
    if (!tls)
        return vt_fail(err, VT_ERR_MEMORY, "no memory for TLS");
    SSL_CTX_set_min_proto_version(tls, TLS1_2_VERSION);
    SSL_CTX_set_options(tls, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION |
                                 SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_mode(tls, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                              SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_session_cache_mode(tls, SSL_SESS_CACHE_OFF); /* tickets resume sessions */
    SSL_CTX_set_alpn_select_cb(tls, choose_protocol, NULL);
    vt_status status = load_files(tls, cert, key, err);
    if (status != VT_OK) {
        SSL_CTX_free(tls);
        return status;
    }
    *out = tls;
    return VT_OK;
}

void web_tls_free(struct ssl_ctx_st *tls) { SSL_CTX_free(tls); }

struct bufferevent *web_tls_bufferevent(vt_web *w, int fd, struct ssl_st **ssl)
{
    SSL *s = SSL_new(w->tls);
    if (!s) {
        close(fd);
        return NULL;
    }
    struct bufferevent *bev = bufferevent_openssl_socket_new(
        w->base, fd, s, BUFFEREVENT_SSL_ACCEPTING, BEV_OPT_CLOSE_ON_FREE);
    if (!bev) /* no memory; libevent frees s and closes fd in some of these cases, later */
        return NULL;
    bufferevent_openssl_set_allow_dirty_shutdown(bev, 1);
    *ssl = s;
    return bev;
}

bool web_tls_met_http(struct bufferevent *bev)
{
    unsigned long code;
    bool http = false;
    while ((code = bufferevent_get_openssl_error(bev)) != 0)
        http |= ERR_GET_REASON((int64_t)code) == SSL_R_HTTP_REQUEST;
    return http;
}

void web_tls_close_notify(struct ssl_st *ssl)
{
    SSL_shutdown(ssl);
    ERR_clear_error();
}
