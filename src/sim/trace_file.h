/* A trace: requests that arrived somewhere, to be replayed.
 *
 * The format is Mooncake's (github.com/kvcache-ai/Mooncake), JSON lines:
 *
 *   {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, "a1"]}
 *    ms                  tokens                tokens                one for each 512 tokens of
 *    input
 *
 * Equal hash_ids stand for equal blocks of 512 prompt tokens, so a prefix cache finds in the replay
 * what it would have found. An id is a whole number or a string. hash_ids may be left out: such a
 * prompt shares nothing. */
#ifndef VT_SIM_TRACE_FILE_H
#define VT_SIM_TRACE_FILE_H

#include <stdint.h>

#include "vitrine.h"

enum { VT_TRACE_BLOCK = 512 };

typedef struct vt_trace_line {
    int64_t arrive_ns;
    int32_t input, output;      /* tokens; both at least 1: an output_length of 0 counts as 1 */
    int32_t first_hash, n_hash; /* in vt_trace_file.hash */
} vt_trace_line;

typedef struct vt_trace_file {
    vt_trace_line *line; /* [n], by time of arrival */
    int32_t n;
    int32_t n_left_out; /* requests behind the first `max`: checked like the others, not kept */
    int32_t n_odd;      /* kept requests whose number of hash_ids is not that of their blocks: */
    int32_t first_odd;  /* blocks without an id share nothing. The line of the first, from 1 */
    uint64_t *hash;     /* [n_hash] equal where the ids are */
    int32_t n_hash;
} vt_trace_file;

/* Keeps the first `max` requests. `name` is used in messages, which name the line and the field.
 * Times are shifted to begin at 0. */
vt_status vt_trace_parse(const char *name, const char *text, size_t len, int32_t max,
                         vt_trace_file *out, vt_err *err);
void vt_trace_file_release(vt_trace_file *t);

#endif
