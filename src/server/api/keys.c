#include "server/api/keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/plain_file.h"

static vt_status add_key(server_keys *k, const char *text, size_t len, const char *from,
                         vt_err *err)
{
    while (len > 0 && strchr(" \t\r\n", text[len - 1]))
        len--;
    while (len > 0 && strchr(" \t", *text))
        text++, len--;
    if (len == 0)
        return VT_OK;
    for (size_t i = 0; i < len; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return vt_fail(err, VT_ERR_FORMAT,
                           "%s: a key holds a character that is not printable ASCII", from);
    if (len > SERVER_MAX_KEY)
        return vt_fail(err, VT_ERR_FORMAT, "%s: a key of %zu bytes, expected at most %d", from, len,
                       SERVER_MAX_KEY);
    char key[SERVER_MAX_KEY + 1] = {0};
    memcpy(key, text, len);
    if (server_keys_find(k, key) >= 0) /* once in a file and once in the variable */
        return VT_OK;
    if (k->n == SERVER_MAX_KEYS)
        return vt_fail(err, VT_ERR_FORMAT, "%s: more than %d keys", from, SERVER_MAX_KEYS);
    void *more = realloc(k->key, (size_t)(k->n + 1) * sizeof *k->key);
    if (!more)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for keys");
    k->key = more;
    memcpy(k->key[k->n++], key, sizeof key);
    return VT_OK;
}

static vt_status read_keys(server_keys *k, FILE *f, const char *path, vt_err *err)
{
    char line[SERVER_MAX_KEY + 64];
    struct stat st;
    if (fstat(fileno(f), &st) != 0 || !S_ISREG(st.st_mode))
        return vt_fail(err, VT_ERR_IO, "%s: is not a file", path);
    if (st.st_mode & S_IRWXO)
        return vt_fail(
            err, VT_ERR_USAGE,
            "%s: everybody on this machine may read the keys; expected mode 0600 or 0640", path);
    int32_t before = k->n;
    while (fgets(line, sizeof line, f)) {
        if (!strchr(line, '\n') && !feof(f))
            return vt_fail(err, VT_ERR_FORMAT, "%s: a line is longer than a key can be (%d bytes)",
                           path, SERVER_MAX_KEY);
        if (line[strspn(line, " \t")] != '#')
            TRY(add_key(k, line, strlen(line), path, err));
    }
    return k->n > before ? VT_OK : vt_fail(err, VT_ERR_FORMAT, "%s: holds no key", path);
}

static vt_status read_file(server_keys *k, const char *path, vt_err *err)
{
    FILE *f = NULL;
    TRY(vt_open_to_read(path, &f, err));
    vt_status status = read_keys(k, f, path, err);
    fclose(f);
    return status;
}

static vt_status read_variable(server_keys *k, const char *name, const char *list, vt_err *err)
{
    if (!list[strspn(list, " \t\r\n,")])
        return vt_fail(err, VT_ERR_USAGE, "%s is set but holds no key; unset it to do without",
                       name);
    while (*list) {
        size_t len = strcspn(list, ",");
        TRY(add_key(k, list, len, name, err));
        list += len + (list[len] == ',');
    }
    return VT_OK;
}

vt_status server_keys_load(server_keys *k, const char *path, const char *variable, vt_err *err)
{
    const char *list = variable ? getenv(variable) : NULL;
    if (path && !*path)
        return vt_fail(err, VT_ERR_USAGE, "the name of a key file is empty, expected a file");
    if (path)
        TRY(read_file(k, path, err));
    return list ? read_variable(k, variable, list, err) : VT_OK;
}

void server_keys_release(server_keys *k)
{
    if (k->key)
        explicit_bzero(k->key, (size_t)k->n * sizeof *k->key);
    free(k->key);
    *k = (server_keys){0};
}

vt_status server_key_sets_load(server_key_sets *k, const vt_options *o, vt_err *err)
{
    TRY(server_keys_load(&k->users, vt_options_get(o, "api-key-file"), "VITRINE_API_KEY", err));
    return server_keys_load(&k->admins, vt_options_get(o, "admin-key-file"), "VITRINE_ADMIN_KEY",
                            err);
}

void server_key_sets_release(server_key_sets *k)
{
    server_keys_release(&k->users);
    server_keys_release(&k->admins);
}

int32_t server_keys_find(const server_keys *k, const char *presented)
{
    char padded[SERVER_MAX_KEY + 1] = {0};
    size_t len = presented ? strnlen(presented, sizeof padded) : 0;
    bool usable = len > 0 && len < sizeof padded;
    int32_t found = -1;
    if (usable)
        memcpy(padded, presented, len);
    for (int32_t i = 0; i < k->n; i++) {
        volatile unsigned char differ = 0;
        for (size_t b = 0; b < sizeof padded; b++)
            differ |= (unsigned char)(padded[b] ^ k->key[i][b]);
        found = differ == 0 ? i : found;
    }
    return usable ? found : -1;
}
