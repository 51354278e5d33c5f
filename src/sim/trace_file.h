/* A trace: a record of the requests that a service received, to be replayed.
 *
 * The format is Mooncake's (github.com/kvcache-ai/Mooncake), JSON lines:
 *
 *   {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, "a1"]}
 *    ms                  tokens                tokens                one for 512 input tokens
 *
 * Equal hash_ids stand for equal blocks of 512 prompt tokens, so that a prefix cache finds in the
 * replay what it would have found in the original. An id is a whole number or a string. hash_ids
 * may be left out: such a prompt shares nothing. */
#ifndef VT_SIM_TRACE_FILE_H
#define VT_SIM_TRACE_FILE_H

#include <stdint.h>

#include "vitrine.h"

enum { VT_TRACE_BLOCK = 512 };

typedef struct vt_trace_line {
    int64_t arrive_ns;
    int32_t input, output;      /* tokens; both at least 1: an output_length of 0 counts as 1 */
    int32_t first_hash, n_hash; /* its range of vt_trace_file.hash */
} vt_trace_line;

typedef struct vt_trace_file {
    vt_trace_line *line; /* [n], in order of arrival */
    int32_t n;
    int32_t n_left_out; /* requests after the first `max`: checked like the others, but not kept */
    /* How many of the kept requests have another number of hash_ids than blocks (blocks without an
     * id share nothing), and the line of the first of them, counted from 1. */
    int32_t n_odd;
    int32_t first_odd;
    uint64_t *hash; /* [n_hash] two are equal exactly if their ids are */
    int32_t n_hash;
} vt_trace_file;

/* Reads a trace and keeps its first `max` requests. Times are shifted to begin at 0. Messages name
 * the file (`name`), the line and the field. */
vt_status vt_trace_parse(const char *name, const char *text, size_t len, int32_t max,
                         vt_trace_file *out, vt_err *err);
void vt_trace_file_release(vt_trace_file *t);

#endif
