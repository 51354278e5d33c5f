/* A set of custom_ids, each with the status code of its result. */
#ifndef VT_CLI_ID_SET_H
#define VT_CLI_ID_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct id_entry {
    char *id; /* NULL: the slot is free */
    int32_t http;
} id_entry;

/* Open addressing, at most half full; the strings belong to the set. Zeroed: empty. */
typedef struct id_set {
    id_entry *slot;
    size_t cap, n; /* cap is a power of two */
} id_set;

/* The entry of `id`, or NULL. Valid until the next id_set_add. */
id_entry *id_set_find(const id_set *s, const char *id);
/* Adds a copy of `id` where it is not there yet, and sets its code. */
vt_status id_set_put(id_set *s, const char *id, int32_t http, vt_err *err);
void id_set_release(id_set *s);

#endif
