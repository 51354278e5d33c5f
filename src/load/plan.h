/* A load generator asks for this: sessions of one or more turns, with lengths and texts.
 *
 * A session is one chat: turn k sends all turns before it. Most loads have sessions of one turn.
 * Texts are made when they are sent, from the seed: the same plan always asks the same. */
#ifndef VT_LOAD_PLAN_H
#define VT_LOAD_PLAN_H

#include "base/buf.h"
#include "sim/trace_file.h"

typedef struct vt_load_turn {
    int32_t input, output; /* tokens of the new text, roughly; most tokens of the answer */
    const char *text;      /* [text_len] a message of a dataset; NULL: random words */
    size_t text_len;
} vt_load_turn;

typedef struct vt_load_session {
    int32_t first_turn, n_turns;
    int64_t due_ns;             /* after the beginning; of traces */
    int32_t first_hash, n_hash; /* of traces: the range of plan->trace->hash that it begins with */
} vt_load_session;

typedef struct vt_load_plan {
    vt_load_session *session; /* [n] */
    int32_t n;
    vt_load_turn *turn; /* [n_turns] */
    int32_t n_turns;
    int32_t shared, groups; /* tokens that are put in front of every session of a group */
    bool ids;               /* prompts are token ids below `vocab`, not words */
    int32_t vocab;
    uint64_t seed;
    const vt_trace_file *trace; /* borrowed; NULL: none */

    int32_t cap, turn_cap;
    struct json_t *dataset; /* holds the texts of turns */
} vt_load_plan;

void vt_load_plan_release(vt_load_plan *p);
/* A session of `turns` turns with random text. */
vt_status vt_load_plan_add(vt_load_plan *p, int32_t input, int32_t output, int32_t turns,
                           vt_err *err);
/* The sessions of a trace, which must stay until the plan is released. */
vt_status vt_load_plan_trace(vt_load_plan *p, const vt_trace_file *trace, vt_err *err);
/* Conversations: a JSON list of them, or JSON lines. A conversation has ShareGPT's form,
 * {"conversations": [{"from": "human", "value": "..."}, ...]}, or OpenAI's,
 * {"messages": [{"role": "user", "content": "..."}, ...]}. Up to `max` sessions are taken, with at
 * most `turns` of the user's messages each. Where `output` is 0, the length of the recorded reply
 * decides, at four bytes a token. A conversation without a message of the user's is left out. */
vt_status vt_load_plan_dataset(vt_load_plan *p, const char *name, const char *text, size_t len,
                               int32_t max, int32_t turns, int32_t output, vt_err *err);

/* Appends what the sessions of one group have in common: words, or ids as int32_t. */
void vt_load_plan_prefix(const vt_load_plan *p, int32_t session, vt_buf *out);
/* Appends the new text of a turn: words, or ids as int32_t. */
void vt_load_plan_text(const vt_load_plan *p, int32_t session, int32_t turn, vt_buf *out);

#endif
