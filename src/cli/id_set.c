#include "cli/id_set.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/random.h"

/* The slot that holds `id`, or the free one where it would go. The ids are a stranger's, so the
 * hash begins with a secret. */
static id_entry *place(const id_set *s, const char *id)
{
    uint64_t h = vt_mix64(vt_fnv1a(vt_hash_seed(), id, strlen(id)));
    size_t i = (size_t)h & (s->cap - 1);
    while (s->slot[i].id && strcmp(s->slot[i].id, id) != 0)
        i = (i + 1) & (s->cap - 1);
    return &s->slot[i];
}

id_entry *id_set_find(const id_set *s, const char *id)
{
    id_entry *e = s->cap > 0 ? place(s, id) : NULL;
    return e && e->id ? e : NULL;
}

static bool grow(id_set *s)
{
    id_set grown = {.cap = s->cap ? 2 * s->cap : 1024, .n = s->n};
    grown.slot = vt_calloc(grown.cap, sizeof *grown.slot);
    if (!grown.slot)
        return false;
    for (size_t i = 0; i < s->cap; i++)
        if (s->slot[i].id)
            *place(&grown, s->slot[i].id) = s->slot[i];
    free(s->slot);
    *s = grown;
    return true;
}

vt_status id_set_put(id_set *s, const char *id, int32_t http, vt_err *err)
{
    if (2 * s->n >= s->cap && !grow(s))
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for %zu ids", s->n);
    id_entry *e = place(s, id);
    e->http = http;
    if (e->id)
        return VT_OK;
    e->id = strdup(id);
    s->n += e->id != NULL;
    return e->id ? VT_OK : vt_fail(err, VT_ERR_MEMORY, "out of memory for %zu ids", s->n);
}

void id_set_release(id_set *s)
{
    for (size_t i = 0; i < s->cap; i++)
        free(s->slot[i].id);
    free(s->slot);
    *s = (id_set){0};
}
