/* /v1/rerank and /v1/score: pairs of texts, of which a model that ranks makes a score each.
 *
 * A classifier reads a pair as its tokenizer puts it. Qwen3-Reranker is asked in a chat whether the
 * document meets the query. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "model/model.h"
#include "openai/fields.h"
#include "openai/reply.h"
#include "text/tokenizer/tokenizer.h"

/* ---- fields ---- */

/* Keeps one side of the pairs, which has several names. */
static vt_status keep_side(reader *r, const char *name, const json_t *v, const json_t **side,
                           const char **side_name)
{
    if (*side)
        return vt_openai_refuse(r->e, 400, name, "%s and %s: give one of the two", name,
                                *side_name);
    *side = v;
    *side_name = name;
    return VT_OK;
}

vt_status field_read_query(reader *r, const field *f, json_t *v)
{
    return keep_side(r, f->name, v, &r->query, &r->query_name);
}

vt_status field_read_documents(reader *r, const field *f, json_t *v)
{
    return keep_side(r, f->name, v, &r->documents, &r->documents_name);
}

vt_status field_read_top_n(reader *r, const field *f, json_t *v)
{
    return field_int(r, f->name, v, 0, INT32_MAX, &r->r->top_n);
}

vt_status field_read_max_document(reader *r, const field *f, json_t *v)
{
    return field_int(r, f->name, v, 1, INT32_MAX, &r->max_document);
}

vt_status field_read_max_pair(reader *r, const field *f, json_t *v)
{
    r->cut = true;
    return field_int(r, f->name, v, -1, INT32_MAX, &r->max_pair);
}

vt_status field_read_instruction(reader *r, const field *f, json_t *v)
{
    if (r->m->ranker.out)
        return vt_openai_refuse(r->e, 400, f->name,
                                "instruction: %s has a classifier, which reads none",
                                vt_model_name(r->m));
    if (!json_is_string(v))
        return field_refuse(r, f->name, v, "a string");
    r->instruction = v;
    return VT_OK;
}

vt_status field_read_activation(reader *r, const field *f, json_t *v)
{
    if (!json_is_boolean(v))
        return field_refuse_bool(r, f->name, v);
    r->r->p.unscaled = json_is_false(v);
    return VT_OK;
}

/* ---- pairs ---- */

/* Returns text i of a field: a string for all i, or an entry of a list, which may be an object with
 * "text" alone. NULL: it is no text. */
static const json_t *text_at(const json_t *v, size_t i)
{
    const json_t *at = json_is_array(v) ? json_array_get(v, json_array_size(v) == 1 ? 0 : i) : v;
    if (json_object_size(at) == 1)
        at = json_object_get(at, "text");
    return json_is_string(at) ? at : NULL;
}

static size_t n_texts(const json_t *v) { return json_is_array(v) ? json_array_size(v) : 1; }

static vt_status add(const reader *r, const char *text, size_t len, unsigned flags, vt_ids *out,
                     vt_err *err)
{
    return vt_tokenizer_encode(r->m->tokenizer, text, len, flags, out, err);
}

/* Writes what Qwen3-Reranker is asked, up to the document. */
static void write_question(const reader *r, const json_t *query, vt_buf *text)
{
    static const char usual[] = "Given a web search query, retrieve relevant passages that answer "
                                "the query";
    const json_t *own = r->instruction;
    vt_buf_puts(text, "<Instruct>: ");
    vt_buf_add(text, own ? json_string_value(own) : usual,
               own ? json_string_length(own) : sizeof usual - 1);
    vt_buf_puts(text, "\n<Query>: ");
    vt_buf_add(text, json_string_value(query), json_string_length(query));
    vt_buf_puts(text, "\n<Document>: ");
}

static vt_status count_tokens(const reader *r, const char *text, size_t len, unsigned flags,
                              size_t *n, vt_err *err)
{
    vt_ids ids = {0};
    vt_status status = add(r, text, len, flags, &ids, err);
    *n = ids.n;
    vt_ids_release(&ids);
    return status;
}

/* Appends the chat in which Qwen3-Reranker is asked about a document. The document is cut so that
 * the whole has `most` tokens; 0: any number. */
static vt_status encode_judged(const reader *r, const json_t *query, const json_t *document,
                               int32_t most, vt_ids *out, vt_err *err)
{
    static const char front[] =
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query "
        "and the Instruct provided. Note that the answer can only be \"yes\" or \"no\"."
        "<|im_end|>\n<|im_start|>user\n",
                      tail[] = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
    vt_buf text = {0};
    size_t n_question = 0, n_tail = 0, begin = 0;
    write_question(r, query, &text);
    vt_status status = text.failed
                           ? vt_fail(err, VT_ERR_MEMORY, "out of memory for a pair of texts")
                           : count_tokens(r, text.data, text.len, 0, &n_question, err);
    if (status == VT_OK)
        status = count_tokens(r, tail, sizeof tail - 1, VT_TOKENIZE_SPECIAL, &n_tail, err);
    if (status == VT_OK)
        status = add(r, front, sizeof front - 1, VT_TOKENIZE_SPECIAL, out, err);
    begin = out->n;
    if (status == VT_OK &&
        !vt_buf_add(&text, json_string_value(document), json_string_length(document)))
        status = vt_fail(err, VT_ERR_MEMORY, "out of memory for a pair of texts");
    if (status == VT_OK)
        status = add(r, text.data, text.len, 0, out, err);
    size_t around = begin + n_tail,
           room = most > 0 && (size_t)most > around ? (size_t)most - around : SIZE_MAX;
    if (r->max_document > 0 && n_question + (size_t)r->max_document < room)
        room = n_question + (size_t)r->max_document;
    if (out->n - begin > room)
        out->n = begin + room;
    if (status == VT_OK)
        status = add(r, tail, sizeof tail - 1, VT_TOKENIZE_SPECIAL, out, err);
    vt_buf_release(&text);
    return status;
}

static vt_status encode_pair(reader *r, const json_t *query, const json_t *document,
                             vt_openai_prompt *out)
{
    vt_ids ids = {0};
    vt_err why;
    int32_t limit = r->d->max_prompt, most = r->max_pair > 0 ? r->max_pair : limit;
    if (limit > 0 && most > limit)
        most = limit;
    most = r->cut ? most : 0;
    if (!r->m->tokenizer)
        return vt_openai_refuse(r->e, 400, r->documents_name, "%s: the model has no tokenizer",
                                r->documents_name);
    vt_status status = r->m->ranker.out
                           ? vt_tokenizer_encode_pair(r->m->tokenizer, json_string_value(query),
                                                      json_string_length(query),
                                                      json_string_value(document),
                                                      json_string_length(document), r->max_document,
                                                      most, &ids, &out->second, &why)
                           : encode_judged(r, query, document, most, &ids, &why);
    if (status != VT_OK) {
        vt_ids_release(&ids);
        return vt_openai_refuse_as(r->e, &why, r->m, r->documents_name);
    }
    out->text = vt_arena_strdup(&r->r->arena, json_string_value(document),
                                json_string_length(document));
    out->text_len = json_string_length(document);
    size_t n = ids.n;
    int32_t *copy = vt_arena_alloc(&r->r->arena, n + 1, sizeof *copy);
    if (copy && n > 0)
        memcpy(copy, ids.id, n * sizeof *copy);
    vt_ids_release(&ids);
    if (limit > 0 && n > (size_t)limit)
        return vt_openai_refuse(r->e, 400, r->documents_name,
                                "%s: a pair of texts has %zu tokens, expected at most %d; "
                                "truncate_prompt_tokens cuts the second text",
                                r->documents_name, n, limit);
    out->ids = copy;
    out->n = (int32_t)n;
    return copy && out->text ? VT_OK : field_no_memory(r);
}

/* Checks that the two sides fit: one text with one or several, or as many as there are. */
static vt_status check_sides(reader *r, bool rerank, size_t *n)
{
    const char *first = rerank ? "query" : "text_1", *second = rerank ? "documents" : "text_2";
    if (!r->query || !r->documents)
        return vt_openai_refuse(r->e, 400, r->query ? second : first, "%s: is needed",
                                r->query ? second : first);
    if (rerank && !json_is_string(r->query))
        return field_refuse(r, "query", r->query, "a string");
    if (rerank && !json_is_array(r->documents))
        return field_refuse(r, "documents", r->documents, "a list of texts");
    size_t n_first = n_texts(r->query),
           most = (size_t)(r->d->max_answers ? r->d->max_answers : VT_OPENAI_MAX_CHOICES);
    *n = n_texts(r->documents);
    if (*n == 0 || n_first == 0 || (n_first != 1 && n_first != *n))
        return vt_openai_refuse(r->e, 400, r->documents_name,
                                "%s: %zu texts for %zu of %s, expected one of %s, or as many",
                                r->documents_name, *n, n_first, r->query_name, r->query_name);
    if (*n > most)
        return vt_openai_refuse(r->e, 400, r->documents_name, "%s: %zu texts, expected at most %zu",
                                r->documents_name, *n, most);
    return VT_OK;
}

vt_status vt_openai_encode_pairs(reader *r, vt_openai_form form)
{
    size_t n = 0;
    TRY(check_sides(r, form == VT_OPENAI_RERANK, &n));
    r->r->prompt = vt_arena_alloc(&r->r->arena, n, sizeof *r->r->prompt);
    if (!r->r->prompt)
        return field_no_memory(r);
    r->r->n_prompts = (int32_t)n;
    for (size_t i = 0; i < n; i++) {
        const json_t *query = text_at(r->query, i), *document = text_at(r->documents, i);
        const char *name = query ? r->documents_name : r->query_name;
        if (!query || !document)
            return vt_openai_refuse(r->e, 400, name,
                                    "%s: entry %zu is neither a string nor {\"text\": string}",
                                    name, i);
        TRY(encode_pair(r, query, document, &r->r->prompt[i]));
    }
    vt_openai_request_select(r->r, 0);
    return VT_OK;
}

/* ---- answers ---- */

static float score_of(const vt_openai_reply *reply, int32_t i)
{
    float score = 0;
    if (reply->choice[i].vector.len >= sizeof score)
        memcpy(&score, reply->choice[i].vector.data, sizeof score);
    return score;
}

static void write_id(const vt_openai_reply *reply, const char *kind, vt_json *w)
{
    char id[VT_OPENAI_MAX_ID + 32];
    const char *dash = strchr(reply->id, '-');
    snprintf(id, sizeof id, "%s-%s", kind, dash ? dash + 1 : reply->id);
    vt_json_string(w, "id", id);
}

static void write_usage(const vt_openai_reply *reply, vt_json *w)
{
    vt_json_open(w, "usage", '{');
    vt_json_int(w, "prompt_tokens", reply->prompt_tokens);
    vt_json_int(w, "total_tokens", reply->prompt_tokens);
    vt_json_close(w);
}

void vt_openai_scores_write(const vt_openai_reply *reply, vt_json *w)
{
    vt_json_open(w, NULL, '{');
    write_id(reply, "score", w);
    vt_json_string(w, "object", "list");
    vt_json_int(w, "created", reply->created);
    vt_json_string(w, "model", reply->model);
    vt_json_open(w, "data", '[');
    for (int32_t i = 0; i < reply->n; i++) {
        vt_json_open(w, NULL, '{');
        vt_json_int(w, "index", i);
        vt_json_string(w, "object", "score");
        vt_json_float(w, "score", score_of(reply, i));
        vt_json_close(w);
    }
    vt_json_close(w);
    write_usage(reply, w);
    vt_json_close(w);
}

/* A document and its score, to sort. */
typedef struct ranked {
    float score;
    int32_t index;
} ranked;

/* The higher score first, of equals the earlier document. */
static int by_score(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->score != y->score)
        return x->score < y->score ? 1 : -1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static void write_ranked(const vt_openai_request *request, const ranked *one, bool documents,
                         vt_json *w)
{
    const vt_openai_prompt *p = &request->prompt[one->index];
    vt_json_open(w, NULL, '{');
    vt_json_int(w, "index", one->index);
    if (documents) {
        vt_json_open(w, "document", '{');
        vt_json_string_n(w, "text", p->text, p->text_len);
        vt_json_close(w);
    }
    vt_json_float(w, "relevance_score", one->score);
    vt_json_close(w);
}

void vt_openai_ranks_write(const vt_openai_reply *reply, const vt_openai_request *request,
                           bool documents, vt_json *w)
{
    int32_t n = reply->n, top = request->top_n > 0 && request->top_n < n ? request->top_n : n;
    ranked *all = vt_calloc((size_t)n, sizeof *all);
    vt_json_open(w, NULL, '{');
    write_id(reply, "rerank", w);
    vt_json_string(w, "model", reply->model);
    write_usage(reply, w);
    vt_json_open(w, "results", '[');
    for (int32_t i = 0; all && i < n; i++)
        all[i] = (ranked){score_of(reply, i), i};
    if (all)
        qsort(all, (size_t)n, sizeof *all, by_score);
    for (int32_t i = 0; all && i < top; i++)
        write_ranked(request, &all[i], documents, w);
    w->out->failed = w->out->failed || !all;
    vt_json_close(w);
    vt_json_close(w);
    free(all);
}
