/* Any bytes as a hub's listing: files whose paths stay in their folder and whose sizes are sane, or
 * a message. The first byte chooses what is asked for. */
#include <stdlib.h>
#include <string.h>

#include "fetch/fetch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const fetch_list *l)
{
    static const char folder[] = "/cache/org/name/";
    if (l->n < 1)
        abort();
    for (int32_t i = 0; i < l->n; i++) {
        const fetch_file *f = &l->file[i];
        if (strncmp(f->path, folder, sizeof folder - 1) != 0 || strstr(f->path, "/.") ||
            strstr(f->path, "//") || strncmp(f->url, "https://hub/", 12) != 0)
            abort();
        if (f->size < -1 || f->size > FETCH_MAX_BYTES)
            abort();
        if ((*f->sha256 && strlen(f->sha256) != 64) || (*f->git_sha1 && strlen(f->git_sha1) != 40))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const repo[] = {"org/name", "org/name/a.gguf",
                                       "org/name/m-00001-of-00002.gguf"};
    fetch_list l;
    vt_err err = {0};
    if (size == 0)
        return 0;
    if (fetch_hub_parse("https://hub", repo[data[0] % 3], "/cache", (const char *)data + 1,
                        size - 1, &l, &err) == VT_OK) {
        check(&l);
        fetch_list_release(&l);
    } else if (!err.message[0]) {
        abort();
    }
    return 0;
}
