/* Sessions and their texts (load/plan.h). */
#include "load/plan.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/random.h"

enum { MAX_SESSIONS = 1 << 22, MAX_TURNS = 1 << 24 };

void vt_load_plan_release(vt_load_plan *p)
{
    free(p->session);
    free(p->turn);
    json_decref(p->dataset);
    *p = (vt_load_plan){0};
}

/* Makes room for one more element of `size` bytes; doubles. */
static bool grow(void **array, int32_t n, int32_t *cap, int32_t max, size_t size)
{
    if (n < *cap)
        return true;
    if (n >= max)
        return false;
    int32_t more = *cap ? 2 * *cap : 256;
    void *bigger = realloc(*array, (size_t)more * size);
    if (!bigger)
        return false;
    *array = bigger;
    *cap = more;
    return true;
}

static vt_status add_session(vt_load_plan *p, vt_err *err)
{
    if (!grow((void **)&p->session, p->n, &p->cap, MAX_SESSIONS, sizeof *p->session))
        return vt_fail(err, VT_ERR_MEMORY, "more requests than fit: %d", p->n);
    p->session[p->n++] = (vt_load_session){.first_turn = p->n_turns};
    return VT_OK;
}

/* A turn of the last session. */
static vt_status add_turn(vt_load_plan *p, vt_load_turn turn, vt_err *err)
{
    if (!grow((void **)&p->turn, p->n_turns, &p->turn_cap, MAX_TURNS, sizeof *p->turn))
        return vt_fail(err, VT_ERR_MEMORY, "more turns than fit: %d", p->n_turns);
    p->turn[p->n_turns++] = turn;
    p->session[p->n - 1].n_turns++;
    return VT_OK;
}

vt_status vt_load_plan_add(vt_load_plan *p, int32_t input, int32_t output, int32_t turns,
                           vt_err *err)
{
    TRY(add_session(p, err));
    for (int32_t i = 0; i < turns; i++)
        TRY(add_turn(p, (vt_load_turn){.input = input, .output = output}, err));
    return VT_OK;
}

vt_status vt_load_plan_trace(vt_load_plan *p, const vt_trace_file *trace, vt_err *err)
{
    p->trace = trace;
    for (int32_t i = 0; i < trace->n; i++) {
        const vt_trace_line *line = &trace->line[i];
        TRY(vt_load_plan_add(p, line->input, line->output, 1, err));
        vt_load_session *s = &p->session[p->n - 1];
        s->due_ns = line->arrive_ns;
        s->first_hash = line->first_hash;
        s->n_hash = line->n_hash;
    }
    return VT_OK;
}

/* ---- datasets ---- */

typedef struct message {
    bool user, assistant;
    const char *text;
    size_t len;
} message;

static message read_message(const json_t *j)
{
    const char *who = json_string_value(json_object_get(j, "from"));
    const json_t *text = json_object_get(j, "value");
    if (!who) {
        who = json_string_value(json_object_get(j, "role"));
        text = json_object_get(j, "content");
    }
    message m = {0};
    if (!who || !json_is_string(text) || json_string_length(text) == 0)
        return m;
    m.user = strcmp(who, "human") == 0 || strcmp(who, "user") == 0;
    m.assistant = strcmp(who, "gpt") == 0 || strcmp(who, "assistant") == 0;
    m.text = json_string_value(text);
    m.len = json_string_length(text);
    return m;
}

static int32_t tokens_of(size_t bytes)
{
    return bytes < 4 ? 1 : bytes / 4 > INT32_MAX ? INT32_MAX : (int32_t)(bytes / 4);
}

static vt_status add_conversation(vt_load_plan *p, const json_t *j, int32_t turns, int32_t output,
                                  vt_err *err)
{
    const json_t *list = json_object_get(j, "conversations");
    list = list ? list : json_object_get(j, "messages");
    int32_t n = 0;
    for (size_t i = 0; i < json_array_size(list) && n < turns; i++) {
        message m = read_message(json_array_get(list, i)), reply = {0};
        if (!m.user)
            continue;
        if (i + 1 < json_array_size(list))
            reply = read_message(json_array_get(list, i + 1));
        if (n++ == 0)
            TRY(add_session(p, err));
        int32_t tokens = output ? output : reply.assistant ? tokens_of(reply.len) : 128;
        TRY(add_turn(
            p,
            (vt_load_turn){
                .input = tokens_of(m.len), .output = tokens, .text = m.text, .text_len = m.len},
            err));
    }
    return VT_OK;
}

/* A JSON list, or JSON lines put into one. */
static json_t *load_list(const char *text, size_t len, json_error_t *why)
{
    json_t *list = json_loadb(text, len, 0, why);
    if (json_is_array(list))
        return list;
    if (json_is_object(list)) { /* a file of one line */
        json_t *one = json_array();
        json_array_append_new(one, list);
        return one;
    }
    json_decref(list);
    list = json_array();
    size_t at = 0;
    for (int line = 1; at < len; line++) {
        const char *lf = memchr(text + at, '\n', len - at);
        size_t n = lf ? (size_t)(lf - (text + at)) : len - at;
        if (n > strspn(text + at, " \t\r") || text[at] > ' ') {
            json_t *j = json_loadb(text + at, n, 0, why);
            why->line = line;
            if (!json_is_object(j)) {
                json_decref(j);
                json_decref(list);
                return NULL;
            }
            json_array_append_new(list, j);
        }
        at += n + 1;
    }
    return list;
}

vt_status vt_load_plan_dataset(vt_load_plan *p, const char *name, const char *text, size_t len,
                               int32_t max, int32_t turns, int32_t output, vt_err *err)
{
    json_error_t why = {0};
    p->dataset = load_list(text, len, &why);
    if (!p->dataset)
        return vt_fail(err, VT_ERR_FORMAT,
                       "%s: line %d: %s; expected a JSON list of conversations, or one a line",
                       name, why.line, why.text[0] ? why.text : "no object");
    for (size_t i = 0; i < json_array_size(p->dataset) && p->n < max; i++)
        TRY(add_conversation(p, json_array_get(p->dataset, i), turns, output, err));
    return p->n ? VT_OK
                : vt_fail(err, VT_ERR_FORMAT,
                          "%s: no message of a user in it; expected conversations or messages",
                          name);
}

/* ---- texts ---- */

/* Words that most vocabularies have as one token with the space before it. */
static const char *const words[] = {
    "the",   "of",    "and",     "to",    "in",    "is",     "that",    "for",   "it",
    "as",    "was",   "with",    "be",    "by",    "on",     "not",     "he",    "this",
    "are",   "or",    "his",     "from",  "at",    "which",  "but",     "have",  "an",
    "had",   "they",  "you",     "were",  "their", "one",    "all",     "we",    "can",
    "her",   "has",   "there",   "been",  "if",    "more",   "when",    "will",  "would",
    "who",   "so",    "no",      "she",   "other", "its",    "may",     "these", "what",
    "them",  "than",  "some",    "him",   "time",  "into",   "only",    "do",    "such",
    "my",    "new",   "about",   "out",   "also",  "two",    "any",     "up",    "first",
    "could", "our",   "then",    "most",  "see",   "me",     "should",  "after", "said",
    "your",  "very",  "between", "made",  "many",  "over",   "like",    "those", "did",
    "now",   "even",  "well",    "where", "must",  "people", "through", "how",   "same",
    "work",  "being", "because", "man",   "life",  "before", "each",    "much",  "under",
    "years", "way",   "great",   "state", "both",  "use",    "upon",    "own",   "used",
    "world", "part",  "water",   "found", "long",  "little", "good",    "day",   "here",
    "still", "every"};

enum { N_WORDS = sizeof words / sizeof *words };

static void add_tokens(const vt_load_plan *p, uint64_t rng, int32_t n, vt_buf *out)
{
    for (int32_t i = 0; i < n; i++) {
        uint64_t r = vt_random_next(&rng);
        if (p->ids) {
            int32_t id = (int32_t)(r % (uint64_t)p->vocab);
            vt_buf_add(out, &id, sizeof id);
        } else {
            const char *word = words[r % N_WORDS];
            if (out->len)
                vt_buf_putc(out, ' ');
            vt_buf_puts(out, word);
        }
    }
}

void vt_load_plan_prefix(const vt_load_plan *p, int32_t session, vt_buf *out)
{
    uint64_t group = (uint64_t)(session % (p->groups > 0 ? p->groups : 1));
    add_tokens(p, vt_mix64(p->seed ^ vt_mix64(group + 1)), p->shared, out);
}

void vt_load_plan_text(const vt_load_plan *p, int32_t session, int32_t turn, vt_buf *out)
{
    const vt_load_session *s = &p->session[session];
    const vt_load_turn *t = &p->turn[s->first_turn + turn];
    if (t->text) {
        vt_buf_add(out, t->text, t->text_len);
        return;
    }
    int32_t left = t->input;
    for (int32_t i = 0; p->trace && i < s->n_hash && left > 0; i++) {
        int32_t n = left < VT_TRACE_BLOCK ? left : VT_TRACE_BLOCK;
        add_tokens(p, vt_mix64(p->trace->hash[s->first_hash + i]), n, out);
        left -= n;
    }
    uint64_t where = (uint64_t)session << 32 | (uint32_t)turn;
    add_tokens(p, vt_mix64(p->seed + 0x5851f42d4c957f2dULL) ^ vt_mix64(where), left, out);
}
