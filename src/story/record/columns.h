/* Lists of a story.json that are written by column, each column on one line: 4,096 calls take 100
 * KB so, and three times as much as objects.
 *
 *   "calls": {"count": 3, "left_out": 0, "why": null, "tag": "measured",
 *             "columns": {"step": [7, 7, 8], "label": [0, 1, 0], "us": [1.2, 8.1, 1.3]}} */
#ifndef VT_STORY_COLUMNS_H
#define VT_STORY_COLUMNS_H

#include "base/json_write.h"

typedef struct story_column {
    const char *key;
    int digits;
} story_column;

/* The members that a list begins with. `why` says why it is empty, where it is. */
void story_open_list(vt_json *w, const char *key, int32_t count, int32_t left_out, const char *why);
/* One column; what is not finite becomes null. */
void story_put_column(vt_json *w, const char *key, const double *v, int32_t n, int digits);

/* A list of strings on one line, between these two. */
int story_open_line(vt_json *w, const char *key);
void story_close_line(vt_json *w, int indent);

#endif
