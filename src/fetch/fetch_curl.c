/* libcurl, loaded when something is fetched. It stays loaded: unloading a library that has started
 * threads or registered exit handlers is not safe, and a process fetches once. */
#include "fetch/fetch_curl.h"

#include <dlfcn.h>
#include <string.h>

#include "base/buf.h"

static bool load(void *library, const char *name,
                 void *function /* pointer to a function pointer */)
{
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

vt_status curl_open(curl_api *api, vt_err *err)
{
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};
    enum { GLOBAL_ALL = 3 };
    curl_api a = {0};
    for (size_t i = 0; i < sizeof names / sizeof *names && !a.library; i++)
        a.library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!a.library)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "fetching needs libcurl, which is not here: install libcurl4 (libcurl.so.4 "
                       "was looked for)");
    void *l = a.library;
    bool ok = load(l, "curl_global_init", &a.global_init) &&
              load(l, "curl_easy_init", &a.easy_init) &&
              load(l, "curl_easy_cleanup", &a.easy_cleanup) &&
              load(l, "curl_easy_setopt", &a.easy_setopt) &&
              load(l, "curl_easy_getinfo", &a.easy_getinfo) &&
              load(l, "curl_easy_perform", &a.easy_perform) &&
              load(l, "curl_easy_strerror", &a.easy_strerror) &&
              load(l, "curl_slist_append", &a.slist_append) &&
              load(l, "curl_slist_free_all", &a.slist_free_all) &&
              load(l, "curl_multi_init", &a.multi_init) &&
              load(l, "curl_multi_cleanup", &a.multi_cleanup) &&
              load(l, "curl_multi_add_handle", &a.multi_add_handle) &&
              load(l, "curl_multi_remove_handle", &a.multi_remove_handle) &&
              load(l, "curl_multi_perform", &a.multi_perform) &&
              load(l, "curl_multi_wait", &a.multi_wait) &&
              load(l, "curl_multi_info_read", &a.multi_info_read);
    if (!ok || a.global_init(GLOBAL_ALL) != 0)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "the libcurl that is here lacks functions or cannot be started");
    *api = a;
    return VT_OK;
}

void curl_prepare(const curl_api *api, curl_easy *easy, const char *url, struct curl_list *headers,
                  char *error_text)
{
    long redirects = strncmp(url, "https:", 6) == 0 ? CURL_HTTPS : CURL_HTTP | CURL_HTTPS;
    api->easy_setopt(easy, CURL_URL, url);
    api->easy_setopt(easy, CURL_PROTOCOLS, (long)(CURL_HTTP | CURL_HTTPS));
    api->easy_setopt(easy, CURL_REDIR_PROTOCOLS, redirects);
    api->easy_setopt(easy, CURL_FOLLOWLOCATION, 1L);
    api->easy_setopt(easy, CURL_MAXREDIRS, 10L);
    api->easy_setopt(easy, CURL_NOSIGNAL, 1L);
    api->easy_setopt(easy, CURL_CONNECTTIMEOUT, 30L);
    api->easy_setopt(easy, CURL_LOW_SPEED_LIMIT, 1L); /* not a byte in half a minute: broken */
    api->easy_setopt(easy, CURL_LOW_SPEED_TIME, 30L);
    api->easy_setopt(easy, CURL_USERAGENT, "vitrine");
    api->easy_setopt(easy, CURL_ERRORBUFFER, error_text);
    if (headers)
        api->easy_setopt(easy, CURL_HTTPHEADER, headers);
}

struct curl_list *curl_headers(const curl_api *api, const char *token)
{
    vt_buf line;
    struct curl_list *headers = NULL;
    if (!token || !*token)
        return NULL;
    vt_buf_init(&line, 8192);
    if (vt_buf_printf(&line, "Authorization: Bearer %s", token) && !strpbrk(token, "\r\n"))
        headers = api->slist_append(NULL, line.data);
    vt_buf_release(&line);
    return headers;
}
