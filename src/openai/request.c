/* Reading a request body (openai/request.h).
 *
 *   1. Each member of the body is looked up in the table of fields: a number goes straight into
 *      the engine's parameters, everything else has a function of its own (fields.c).
 *   2. What several fields say together is settled: max_tokens, logprobs, echo, stream_options.
 *   3. The prompts are rendered and tokenised last, because they cost most. */
#include "openai/request.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/term/nearest.h"
#include "engine/chat.h"
#include "engine/request.h"
#include "model/model.h"
#include "openai/fields.h"
#include "text/template/template.h"
#include "text/tokenizer/tokenizer.h"

enum { MAX_PROMPT = 1 << 24, NATIVE_MAX_TOKENS = 128, OPENAI_MAX_TOKENS = 16 };
enum { MAX_ECHO = 64 << 20 };  /* bytes of prompts in one answer */
enum { MAX_SCORES = 1 << 22 }; /* log-probabilities of prompts: each takes some 60 bytes of JSON */

/* ---- the table ---- */

#define AT(member) offsetof(vt_request_params, member)
#define IN(member) offsetof(vt_openai_request, member)

static const field fields[] = {
    {"model", BOTH | EMBED | RANK | SCORE | GENERATE | TOKENS | IDS, READ,
     .read = field_read_model},
    {"messages", CHAT | TOKENS, READ, .read = field_read_prompt},
    {"prompt", TEXT | TOKENS, READ, .read = field_read_prompt},
    {"text", GENERATE, READ, .read = field_read_prompt},
    {"input", EMBED, READ, .read = field_read_prompt},
    {"query", RANK, READ, .read = field_read_query},
    {"documents", RANK | SCORE, READ, .read = field_read_documents},
    {"text_1", SCORE, READ, .read = field_read_query},
    {"text_2", SCORE, READ, .read = field_read_documents},
    {"queries", SCORE, READ, .read = field_read_query},
    {"items", SCORE, READ, .read = field_read_documents},
    {"data_1", SCORE, READ, .read = field_read_query},
    {"data_2", SCORE, READ, .read = field_read_documents},
    {"top_n", RANK, READ, .read = field_read_top_n},
    {"return_documents", RANK, FLAG, .at = IN(return_documents)},
    {"instruction", RANK | SCORE, READ, .read = field_read_instruction},
    {"max_tokens_per_doc", RANK | SCORE, READ, .read = field_read_max_document},
    {"truncate_prompt_tokens", RANK | SCORE, READ, .read = field_read_max_pair},
    {"use_activation", RANK | SCORE, READ, .read = field_read_activation},
    {"prompt_name", EMBED, READ, .read = field_read_prompt_name},
    {"encoding_format", EMBED, READ, .read = field_read_encoding},
    {"truncate", EMBED, READ, .read = field_read_truncate},
    {"dimensions", EMBED, INT, .at = AT(dimensions), .lo = 1, .hi = INT32_MAX},
    {"tokens", IDS, READ, .read = field_read_input_ids},
    {"input_ids", GENERATE, READ, .read = field_read_input_ids},
    {"sampling_params", GENERATE, READ, .read = field_read_sampling},
    {"max_tokens", BOTH, READ, .read = field_read_max_tokens},
    {"max_completion_tokens", CHAT, READ, .read = field_read_max_tokens},
    {"max_new_tokens", SAMPLING, READ, .read = field_read_max_tokens},
    {"min_tokens", BOTH, INT, .at = AT(min_tokens), .lo = 0, .hi = INT32_MAX},
    {"min_new_tokens", SAMPLING, INT, .at = AT(min_tokens), .lo = 0, .hi = INT32_MAX},
    {"n", BOTH | SAMPLING, INT, .at = AT(n), .lo = 1, .hi = VT_MAX_SAMPLES},
    {"temperature", BOTH, FLOAT, .at = AT(temperature), .lo = 0, .hi = 2},
    {"temperature", SAMPLING, FLOAT, .at = AT(temperature), .lo = 0, .hi = 100},
    {"top_p", BOTH | SAMPLING, FLOAT, .at = AT(top_p), .lo = 0, .hi = 1},
    {"top_k", BOTH | SAMPLING, READ, .read = field_read_top_k},
    {"min_p", BOTH | SAMPLING, FLOAT, .at = AT(min_p), .lo = 0, .hi = 1},
    {"presence_penalty", BOTH | SAMPLING, FLOAT, .at = AT(presence_penalty), .lo = -2, .hi = 2},
    {"frequency_penalty", BOTH | SAMPLING, FLOAT, .at = AT(frequency_penalty), .lo = -2, .hi = 2},
    {"repetition_penalty", BOTH | SAMPLING, FLOAT, .at = AT(repetition_penalty), .lo = 0.01,
     .hi = 100},
    {"seed", BOTH | SAMPLING, READ, .read = field_read_seed},
    {"sampling_seed", SAMPLING, READ, .read = field_read_seed},
    {"stop", BOTH | SAMPLING, READ, .read = field_read_stop},
    {"stop_token_ids", BOTH | SAMPLING, READ, .read = field_read_stop_ids},
    {"ignore_eos", BOTH | SAMPLING, BOOL, .at = AT(ignore_eos)},
    {"logit_bias", BOTH | SAMPLING, READ, .read = field_read_bias},
    {"allowed_token_ids", BOTH, READ, .read = field_read_allowed},
    {"logprobs", BOTH, READ, .read = field_read_logprobs},
    {"top_logprobs", CHAT, READ, .read = field_read_top_logprobs},
    {"prompt_logprobs", BOTH, READ, .read = field_read_prompt_logprobs},
    {"return_logprob", GENERATE, READ, .read = field_read_return_logprob},
    {"top_logprobs_num", GENERATE, READ, .read = field_read_top_logprobs},
    {"logprob_start_len", GENERATE, INT, .at = 0, .lo = -1, .hi = INT32_MAX},
    {"return_text_in_logprobs", GENERATE, FLAG, .at = IN(logprob_text)},
    {"echo", TEXT, FLAG, .at = IN(echo)},
    {"response_format", BOTH, READ, .read = field_read_response_format},
    {"structured_outputs", BOTH, READ, .read = field_read_structured},
    {"guided_json", BOTH, READ, .read = field_read_grammar},
    {"guided_regex", BOTH, READ, .read = field_read_grammar},
    {"guided_choice", BOTH, READ, .read = field_read_grammar},
    {"guided_grammar", BOTH, READ, .read = field_read_grammar},
    {"json_schema", SAMPLING, READ, .read = field_read_grammar},
    {"regex", BOTH | SAMPLING, READ, .read = field_read_grammar},
    {"ebnf", BOTH | SAMPLING, READ, .read = field_read_grammar},
    {"priority", BOTH | EMBED | RANK | SCORE | GENERATE, INT, .at = AT(priority),
     .lo = INT32_MIN / 2, .hi = INT32_MAX / 2},
    {"cache_salt", BOTH | EMBED | RANK | SCORE | GENERATE, READ, .read = field_read_salt},
    {"chat_template_kwargs", CHAT | TOKENS, READ, .read = field_read_kwargs},
    {"tools", CHAT | TOKENS, READ, .read = field_read_tools},
    {"tool_choice", CHAT, READ, .read = field_read_tool_choice},
    {"parallel_tool_calls", CHAT, READ, .read = field_read_parallel},
    {"separate_reasoning", CHAT, READ, .read = field_read_separate},
    {"reasoning_effort", CHAT, READ, .read = field_read_effort},
    {"thinking_token_budget", CHAT, READ, .read = field_read_budget},
    {"add_generation_prompt", CHAT | TOKENS, READ, .read = field_read_open_turn},
    {"add_special_tokens", TEXT | EMBED | TOKENS, READ, .read = field_read_add_bos},
    {"return_token_strs", TOKENS, FLAG, .at = IN(token_strings)},
    {"rid", GENERATE, READ, .read = field_read_rid},
    {"stream", BOTH | GENERATE, READ, .read = field_read_stream},
    {"stream_options", BOTH, READ, .read = field_read_stream_options},
    /* accepted with the values that ask for what is done anyway */
    {"add_special_tokens", CHAT, NEUTRAL, .only = "[false]"},
    {"background", GENERATE, NEUTRAL, .only = "[false]"},
    {"best_of", TEXT, NEUTRAL, .only = "[1]"},
    {"continue_final_message", CHAT | TOKENS, NEUTRAL, .only = "[false]"},
    {"echo", CHAT, NEUTRAL, .only = "[false]"},
    {"function_call", CHAT, NEUTRAL, .only = "[\"none\", \"auto\"]"},
    {"functions", CHAT, NEUTRAL, .only = "[[]]"},
    {"include_stop_str_in_output", BOTH, NEUTRAL, .only = "[false]"},
    {"length_penalty", BOTH, NEUTRAL, .only = "[1]"},
    {"log_metrics", GENERATE, NEUTRAL, .only = "[true]"},
    {"modalities", CHAT, NEUTRAL, .only = "[[\"text\"]]"},
    {"no_logs", GENERATE, NEUTRAL, .only = "[false]"},
    {"no_stop_trim", BOTH | SAMPLING, NEUTRAL, .only = "[false]"},
    {"return_bytes", GENERATE, NEUTRAL, .only = "[false]"},
    {"return_entropy", GENERATE, NEUTRAL, .only = "[false]"},
    {"return_hidden_states", BOTH | GENERATE, NEUTRAL, .only = "[false]"},
    {"service_tier", BOTH, NEUTRAL, .only = "[\"auto\", \"default\"]"},
    {"skip_special_tokens", BOTH | SAMPLING, NEUTRAL, .only = "[true]"},
    {"spaces_between_special_tokens", BOTH | SAMPLING, NEUTRAL, .only = "[true]"},
    {"store", BOTH, NEUTRAL, .only = "[false]"},
    {"stream_reasoning", CHAT, NEUTRAL, .only = "[false, true]"},
    {"suffix", TEXT, NEUTRAL, .only = "[\"\"]"},
    {"use_beam_search", BOTH, NEUTRAL, .only = "[false]"},
    {"verbosity", CHAT, NEUTRAL, .only = "[\"medium\"]"},
    /* notes for the sender's own books; they change no answer */
    {"user", BOTH | EMBED | RANK | SCORE, .kind = BOOKKEEPING},
    {"metadata", BOTH, .kind = BOOKKEEPING},
    {"safety_identifier", BOTH, .kind = BOOKKEEPING},
    {"prompt_cache_key", BOTH, .kind = BOOKKEEPING},
    {"prompt_cache_options", BOTH, .kind = BOOKKEEPING},
    {"prompt_cache_retention", BOTH, .kind = BOOKKEEPING},
};

enum { N_FIELDS = sizeof fields / sizeof *fields };

static const struct {
    unsigned where, inner; /* inner: the fields of an object inside the body */
} forms[VT_OPENAI_FORMS] = {
    [VT_OPENAI_CHAT] = {CHAT, 0},
    [VT_OPENAI_COMPLETIONS] = {TEXT, 0},
    [VT_OPENAI_GENERATE] = {GENERATE, SAMPLING},
    [VT_OPENAI_TOKENIZE] = {TOKENS, 0},
    [VT_OPENAI_DETOKENIZE] = {IDS, 0},
    [VT_OPENAI_EMBEDDINGS] = {EMBED, 0},
    [VT_OPENAI_RERANK] = {RANK, 0},
    [VT_OPENAI_SCORE] = {SCORE, 0},
};

static vt_status read_flag(reader *r, const field *f, const json_t *v, bool *out)
{
    if (!json_is_boolean(v))
        return field_refuse_bool(r, f->name, v);
    *out = json_is_true(v);
    return VT_OK;
}

static vt_status read_value(reader *r, const field *f, json_t *v)
{
    char *params = (char *)&r->r->p, *request = (char *)r->r;
    int32_t *number = (int32_t *)(void *)(params + f->at);
    if (strcmp(f->name, "logprob_start_len") == 0) /* the one whole number outside `p` */
        number = &r->r->logprob_start;
    switch (f->kind) {
    case FLOAT:
        return field_float(r, f, v, (float *)(void *)(params + f->at));
    case INT:
        return field_int(r, f->name, v, (int64_t)f->lo, (int64_t)f->hi, number);
    case BOOL:
        return read_flag(r, f, v, (bool *)(void *)(params + f->at));
    case FLAG:
        return read_flag(r, f, v, (bool *)(void *)(request + f->at));
    case READ:
        return f->read(r, f, v);
    case NEUTRAL:
        return field_read_neutral(r, f, v);
    case BOOKKEEPING:
        break;
    }
    return VT_OK;
}

static const field *find_field(unsigned where, const char *name, size_t len)
{
    for (size_t i = 0; i < N_FIELDS; i++)
        if ((fields[i].where & where) && strncmp(fields[i].name, name, len) == 0 &&
            !fields[i].name[len])
            return &fields[i];
    return NULL;
}

static vt_status refuse_unknown(reader *r, unsigned where, const char *name)
{
    bool text = where == CHAT && strcmp(name, "prompt") == 0;
    if (text || (where == TEXT && strcmp(name, "messages") == 0))
        return vt_openai_refuse(r->e, 400, name, "%s: not supported here, but by %s", name,
                                text ? "/v1/completions" : "/v1/chat/completions");
    vt_nearest near = vt_nearest_begin(name);
    for (size_t i = 0; i < N_FIELDS; i++)
        if (fields[i].where & where)
            vt_nearest_try(&near, fields[i].name);
    return vt_openai_refuse_unknown(r->e, name, where == SAMPLING ? "sampling_params." : "", &near);
}

/* Reads the members of an object. A member that is null counts as not given. */
static vt_status read_members(reader *r, const json_t *object, unsigned where)
{
    const char *name;
    json_t *value;
    r->where = where;
    json_object_foreach((json_t *)(uintptr_t)object, name, value)
    {
        const field *f = find_field(where, name, strlen(name));
        if (json_is_null(value))
            continue;
        if (!f)
            return refuse_unknown(r, where, name);
        TRY(read_value(r, f, value));
    }
    return VT_OK;
}

/* Where a form has its prompt. */
static const char *const prompt_field[VT_OPENAI_FORMS] = {
    [VT_OPENAI_CHAT] = "messages",     [VT_OPENAI_COMPLETIONS] = "prompt",
    [VT_OPENAI_GENERATE] = "text",     [VT_OPENAI_TOKENIZE] = "prompt",
    [VT_OPENAI_DETOKENIZE] = "tokens", [VT_OPENAI_EMBEDDINGS] = "input",
    [VT_OPENAI_RERANK] = "documents",  [VT_OPENAI_SCORE] = "text_2",
};

const char *vt_openai_field_of(const char *sentence, vt_openai_form form)
{
    size_t n = strcspn(sentence, " :");
    unsigned where = forms[form].where | forms[form].inner;
    if (strncmp(sentence, "the prompt ", 11) == 0 || strncmp(sentence, "prompt ", 7) == 0)
        return prompt_field[form];
    if (form == VT_OPENAI_GENERATE && strncmp(sentence, "min_tokens ", 11) == 0)
        return "min_new_tokens";
    const field *f = find_field(where, sentence, n);
    return f ? f->name : NULL;
}

vt_status vt_openai_refuse_submit(vt_openai_error *e, const vt_err *why, vt_openai_form form,
                                  const vt_openai_request *r, const vt_model *m)
{
    const char *name = why->status == VT_ERR_GRAMMAR   ? r->grammar_field
                       : why->status == VT_ERR_CONTEXT ? prompt_field[form]
                                                       : vt_openai_field_of(why->message, form);
    return vt_openai_refuse_as(e, why, m, name);
}

bool vt_openai_field_at(vt_openai_form form, size_t i, const char **name, const char **what)
{
    for (size_t k = 0; k < N_FIELDS; k++) {
        const field *f = &fields[k];
        if (!(f->where & (forms[form].where | forms[form].inner)) || i-- > 0)
            continue;
        *name = f->name;
        *what = f->kind == NEUTRAL       ? f->only
                : f->kind == BOOKKEEPING ? "accepted without effect"
                                         : "honoured";
        return true;
    }
    return false;
}

/* ---- what several fields say together ---- */

static vt_status settle_length(reader *r, const char *name)
{
    vt_request_params *p = &r->r->p;
    bool scores = r->r->echo || r->r->n_prompt_top >= 0 || r->where == SAMPLING;
    if (r->max_completion_tokens >= 0)
        p->max_tokens = r->max_completion_tokens;
    else if (r->max_tokens >= 0)
        p->max_tokens = r->max_tokens;
    else if (r->d->max_tokens > 0)
        p->max_tokens = r->d->max_tokens;
    else if (r->r->chat) /* the engine ends an answer where its context ends */
        p->max_tokens = vt_model_max_context(r->m);
    else
        p->max_tokens = r->where == SAMPLING ? NATIVE_MAX_TOKENS : OPENAI_MAX_TOKENS;
    if (p->max_tokens == 0 && !scores)
        return vt_openai_refuse(
            r->e, 400, name, "%s: expected at least 1; 0 goes with echo or prompt_logprobs", name);
    const char *least = r->where == SAMPLING ? "min_new_tokens" : "min_tokens";
    if (p->min_tokens > p->max_tokens)
        return vt_openai_refuse(r->e, 400, least, "%s: %d found, expected at most %s, which is %d",
                                least, p->min_tokens, name, p->max_tokens);
    return VT_OK;
}

static vt_status settle_logprobs(reader *r)
{
    vt_openai_request *q = r->r;
    const char *top = r->where == SAMPLING ? "top_logprobs_num" : "top_logprobs";
    if (r->top_logprobs > 0 && !r->want_logprobs)
        return vt_openai_refuse(r->e, 400, top, "%s: only allowed together with \"%s\": true", top,
                                r->where == SAMPLING ? "return_logprob" : "logprobs");
    if (r->want_logprobs)
        q->n_top = r->top_logprobs;
    if (r->where == SAMPLING && r->want_logprobs && q->logprob_start >= 0)
        q->n_prompt_top = q->n_top;
    if (q->stream && q->n_prompt_top >= 0 && r->where != SAMPLING)
        return vt_openai_refuse(r->e, 400, "prompt_logprobs",
                                "prompt_logprobs: not possible together with \"stream\": true");
    if (q->stream && q->echo && q->n_top >= 0)
        return vt_openai_refuse(r->e, 400, "echo",
                                "echo: with logprobs not possible together with \"stream\": true");
    /* the engine reports equally many alternatives for the prompt and the answer */
    q->p.prompt_logprobs = q->n_prompt_top >= 0 || (q->echo && q->n_top >= 0) ||
                           q->p.max_tokens == 0;
    q->p.logprobs = q->n_top > q->n_prompt_top ? q->n_top : q->n_prompt_top;
    return VT_OK;
}

/* Settles what "tool_choice" asks for. */
static vt_status settle_choice(reader *r)
{
    vt_openai_request *q = r->r;
    bool channels = q->call_form == VT_CALLS_HARMONY;
    if (q->grammar_field && channels)
        return vt_openai_refuse(r->e, 400, q->grammar_field,
                                "%s: not possible for %s, whose answers have channels",
                                q->grammar_field, vt_model_name(r->m));
    if ((r->must_call || r->allowed) && !q->tools)
        return vt_openai_refuse(r->e, 400, "tool_choice",
                                "tool_choice: only allowed together with tools");
    if (r->must_call && channels && r->max_thought > 0)
        return vt_openai_refuse(r->e, 400, "thinking_token_budget",
                                "thinking_token_budget: not possible for a forced call of %s",
                                vt_model_name(r->m));
    if (r->must_call) {
        q->named = r->function != NULL;
        return field_hold_calls(r, false);
    }
    if (q->calls && q->grammar_field)
        return vt_openai_refuse(r->e, 400, q->grammar_field,
                                "%s: not possible together with tools, unless tool_choice is none",
                                q->grammar_field);
    if (r->allowed)
        return field_hold_calls(r, true);
    for (size_t i = 0; q->calls && i < json_array_size(q->tools); i++) {
        const json_t *f = json_object_get(json_array_get(q->tools, i), "function");
        if (json_is_true(json_object_get(f, "strict")))
            return field_hold_calls(r, true);
    }
    return VT_OK;
}

/* Settles which reasoning is taken out of the answer, and what may be asked of it. */
static vt_status settle_thoughts(reader *r, const char *template)
{
    vt_openai_request *q = r->r;
    vt_thought_form form = vt_thought_form_of(template);
    if (r->effort && !form)
        return vt_openai_refuse(r->e, 400, "reasoning_effort",
                                "reasoning_effort: the chat template of %s has no reasoning",
                                vt_model_name(r->m));
    if (r->unsplit && form == VT_THOUGHTS_HARMONY)
        return vt_openai_refuse(r->e, 400, "separate_reasoning",
                                "separate_reasoning: false is not possible where reasoning is a "
                                "channel of its own, as for %s",
                                vt_model_name(r->m));
    q->thoughts = q->chat && !r->unsplit ? form : VT_THOUGHTS_NONE;
    if (r->max_thought > 0 && !q->thoughts)
        return vt_openai_refuse(r->e, 400, "thinking_token_budget",
                                "thinking_token_budget: the chat template of %s has no reasoning, "
                                "or separate_reasoning is false",
                                vt_model_name(r->m));
    return VT_OK;
}

/* The ids of the calls in a conversation, as members of an object; NULL: out of memory. */
static json_t *ids_of_calls(const json_t *messages)
{
    json_t *ids = json_object();
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *calls = json_object_get(json_array_get(messages, i), "tool_calls");
        for (size_t k = 0; k < json_array_size(calls); k++) {
            const json_t *id = json_object_get(json_array_get(calls, k), "id");
            if (json_is_string(id))
                json_object_set_new(ids, json_string_value(id), json_true());
        }
    }
    return ids;
}

/* The source of the model's chat template; NULL: it has none. */
static const char *template_of(const vt_model *m)
{
    return m->chat_template ? vt_template_source(m->chat_template) : NULL;
}

/* Settles into which parts the answer is to be taken apart. */
static vt_status settle_answer(reader *r)
{
    vt_openai_request *q = r->r;
    const char *template = template_of(r->m);
    TRY(settle_thoughts(r, template));
    q->call_form = r->d->call_form ? r->d->call_form : vt_call_form_of(template);
    if (r->tools && json_array_size(r->tools) > 0) {
        TRY(vt_openai_check_tools(r->tools, r->e));
        q->tools = json_incref(r->tools);
        q->call_ids = ids_of_calls(r->messages);
        if (!q->call_form && !r->no_calls)
            return vt_openai_refuse(r->e, 400, "tools",
                                    "tools: the chat template of %s asks for no form of calls that "
                                    "is known here; option tool-parser can choose one",
                                    vt_model_name(r->m));
        q->calls = !r->no_calls;
        q->single_call = r->single_call && q->calls;
    }
    q->p.special_text = q->chat && (vt_call_form_is_special(q->call_form, q->calls) ||
                                    vt_thought_tags_of(q->thoughts).special);
    return settle_choice(r);
}

static vt_status settle(reader *r)
{
    if (r->has_stream_options && !r->r->stream)
        return vt_openai_refuse(r->e, 400, "stream_options",
                                "stream_options: only allowed together with \"stream\": true");
    TRY(settle_length(r, r->where == SAMPLING            ? "max_new_tokens"
                         : r->max_completion_tokens >= 0 ? "max_completion_tokens"
                                                         : "max_tokens"));
    return settle_logprobs(r);
}

/* ---- the prompts ---- */

/* Returns how many ids a prompt may have, whatever the context holds. */
static size_t max_ids(const reader *r)
{
    return r->where & (TOKENS | IDS) ? VT_OPENAI_MAX_CONVERTED : MAX_PROMPT;
}

/* Copies the ids that an encoder made into the request's arena, and frees them. */
static vt_status take_ids(reader *r, int32_t *ids, size_t n, const char *param,
                          vt_openai_prompt *out)
{
    size_t most = max_ids(r);
    int32_t *copy = n <= most ? vt_arena_alloc(&r->r->arena, n + 1, sizeof *copy) : NULL;
    if (copy && n > 0)
        memcpy(copy, ids, n * sizeof *copy);
    vt_free(ids);
    if (n > most)
        return vt_openai_refuse(r->e, 400, param, "%s: %zu tokens, expected at most %zu", param, n,
                                most);
    out->ids = copy;
    out->n = (int32_t)n;
    return copy ? VT_OK : field_no_memory(r);
}

/* SmolLM3's template shows functions only under names of its own, of which chat_template_kwargs may
 * have one. */
static bool set_xml_tools(const reader *r, json_t *variables)
{
    const char *source = vt_template_source(r->m->chat_template);
    if (!source || !strstr(source, "xml_tools") || json_object_get(variables, "xml_tools") ||
        json_object_get(variables, "python_tools"))
        return true;
    json_t *list = json_array();
    bool ok = list != NULL;
    for (size_t i = 0; ok && i < json_array_size(r->r->tools); i++)
        ok = json_array_append(list, json_object_get(json_array_get(r->r->tools, i), "function")) ==
             0;
    return json_object_set_new(variables, "xml_tools", list) == 0 && ok;
}

/* Adds what other fields than messages say to the template's variables. */
static bool set_variables(reader *r, json_t *variables)
{
    bool ok = true;
    if (r->r->tools && !r->no_calls)
        ok = json_object_set(variables, "tools", r->r->tools) == 0 && set_xml_tools(r, variables);
    if (ok && r->effort) {
        bool thinks = strcmp(r->effort, "none") != 0;
        ok = json_object_set_new(variables, "enable_thinking", json_boolean(thinks)) == 0 &&
             json_object_set_new(variables, "thinking", json_boolean(thinks)) == 0 &&
             json_object_set_new(variables, "reasoning_effort", json_string(r->effort)) == 0;
    }
    return ok;
}

/* Returns true if a special token ends the part of a prompt that a template writes behind the last
 * message: those of the tags do not. */
static bool is_border(const vt_model *m, int32_t id, const vt_thought_tags *tags)
{
    vt_buf piece;
    if (!vt_tokenizer_is_special(m->tokenizer, id))
        return false;
    vt_buf_init(&piece, 0);
    bool known = vt_tokenizer_piece(m->tokenizer, id, &piece) && piece.len > 0 &&
                 (strstr(tags->open, piece.data) || strstr(tags->close, piece.data));
    vt_buf_release(&piece);
    return !known;
}

/* Returns true if a prompt opens a thought for the answer: <think> without an end stands behind its
 * last special token, where only the template writes. */
static bool ends_thinking(const vt_model *m, vt_thought_form form, const int32_t *ids, size_t n)
{
    enum { MOST = 64 };
    const vt_thought_tags tags = vt_thought_tags_of(form);
    size_t begin = n;
    vt_buf text;
    vt_buf_init(&text, 0);
    while (begin > 0 && n - begin < MOST && !is_border(m, ids[begin - 1], &tags))
        begin--;
    bool inside = vt_tokenizer_decode(m->tokenizer, ids + begin, n - begin, false, &text, NULL) ==
                      VT_OK &&
                  text.len > 0 && vt_text_ends_thinking(form, text.data, text.len);
    vt_buf_release(&text);
    return inside;
}

static vt_status encode_chat(reader *r, vt_openai_prompt *out)
{
    int32_t *ids = NULL;
    size_t n = 0;
    vt_err why;
    json_t *variables = vt_openai_template_variables(r->messages, r->kwargs, template_of(r->m),
                                                     r->e);
    if (!variables)
        return VT_ERR_USAGE;
    if (!set_variables(r, variables)) {
        json_decref(variables);
        return field_no_memory(r);
    }
    unsigned flags = (r->open_turn ? VT_CHAT_OPEN_TURN : 0) |
                     (r->d->literal_content ? VT_CHAT_LITERAL : 0);
    vt_status status = vt_chat_encode(r->m, variables, flags, r->d->limits, &r->most, &ids, &n,
                                      &r->r->p.rendered_ns, &why);
    json_decref(variables);
    if (status != VT_OK)
        return vt_openai_refuse_as(r->e, &why, r->m, "messages");
    if (r->r->thoughts) {
        const vt_thought_tags tags = vt_thought_tags_of(r->r->thoughts);
        r->r->began_inside = ends_thinking(r->m, r->r->thoughts, ids, n);
        /* the grammar of a forced call with channels has the reasoning in it */
        bool forced = r->must_call && r->r->call_form == VT_CALLS_HARMONY;
        r->r->p.thought = r->r->began_inside ? VT_THOUGHT_BEGUN
                          : forced           ? VT_THOUGHT_NONE
                                             : VT_THOUGHT_MAYBE;
        r->r->p.thought_open = tags.open;
        r->r->p.thought_close = tags.close;
    }
    r->r->p.max_thought = r->max_thought;
    return take_ids(r, ids, n, "messages", out);
}

/* Keeps what the answer repeats: the text as it was given, or the text of the ids. */
static vt_status keep_text(reader *r, const char *param, const char *text, size_t len,
                           vt_openai_prompt *out)
{
    char *made = NULL;
    vt_err why;
    if (!r->r->echo)
        return VT_OK;
    if (!text && vt_detokenize(r->m, out->ids, (size_t)out->n, &made, &len, &why) != VT_OK)
        return vt_openai_refuse_as(r->e, &why, r->m, param);
    out->text = vt_arena_strdup(&r->r->arena, text ? text : made, len);
    out->text_len = len;
    vt_free(made);
    return out->text ? VT_OK : field_no_memory(r);
}

/* The ids of a text to embed, behind the model's prompt. */
static vt_status embed_text(const reader *r, const char *text, size_t len, unsigned flags,
                            int32_t **ids, size_t *n, vt_err *err)
{
    const char *before = r->before ? r->before : vt_model_prompt(r->m, NULL);
    vt_buf whole = {0};
    vt_buf_add(&whole, before, strlen(before));
    vt_status status = vt_buf_add(&whole, text, len) && !whole.failed
                           ? vt_tokenize(r->m, whole.data ? whole.data : "", whole.len, flags, ids,
                                         n, err)
                           : vt_fail(err, VT_ERR_MEMORY, "out of memory for a text");
    vt_buf_release(&whole);
    return status;
}

/* Cuts a text to embed to what the context holds, if the request asks for it. A special token that
 * ends all texts (EOS, [SEP]) stays. Returns how many tokens are left. */
static size_t truncate_ids(const reader *r, int32_t *ids, size_t n)
{
    size_t most = r->truncate && r->most.tokens > 0 ? (size_t)r->most.tokens : n;
    if (n > most && vt_tokenizer_is_special(r->m->tokenizer, ids[n - 1]))
        ids[most - 1] = ids[n - 1];
    return n > most ? most : n;
}

/* A string or a list of token ids, whichever of the two `ids_only` and the value say. */
static vt_status encode_text(reader *r, const char *param, const json_t *v, bool ids_only,
                             vt_openai_prompt *out)
{
    int32_t *ids = NULL;
    size_t n = 0;
    vt_err why;
    if (json_is_array(v)) {
        if (r->before)
            return vt_openai_refuse(r->e, 400, "prompt_name",
                                    "prompt_name: stands in front of texts, not of token ids");
        TRY(field_ids(r, param, v, max_ids(r), &out->ids, &out->n));
        return keep_text(r, param, NULL, 0, out);
    }
    if (!json_is_string(v) || ids_only)
        return field_refuse(r, param, v,
                            ids_only ? "a list of token ids, or a list of these"
                                     : "a string, a list of token ids, or a list of these");
    const char *text = json_string_value(v);
    size_t len = json_string_length(v);
    vt_status status = r->truncate
                           ? VT_OK
                           : vt_check_text_length(r->m->tokenizer, text, len, &r->most, &why);
    unsigned around = VT_TOKENIZE_ADD_BOS | (r->r->p.embed ? VT_TOKENIZE_ADD_EOS : 0);
    around = r->add_bos ? around : 0;
    if (status == VT_OK)
        status = r->r->p.embed ? embed_text(r, text, len, around, &ids, &n, &why)
                               : vt_tokenize(r->m, text, len, around, &ids, &n, &why);
    if (status != VT_OK)
        return vt_openai_refuse_as(r->e, &why, r->m, param);
    TRY(take_ids(r, ids, truncate_ids(r, ids, n), param, out));
    out->bos = r->add_bos && out->n > 0 && out->ids[0] == r->m->bos && r->m->add_bos;
    return keep_text(r, param, text, len, out);
}

/* Where the prompts stand in the body. */
static vt_status find_prompts(reader *r, vt_openai_form form, const char **param, const json_t **v)
{
    bool native = form == VT_OPENAI_GENERATE;
    const char *text = prompt_field[form];
    const char *ids = form == VT_OPENAI_DETOKENIZE ? "tokens" : "input_ids";
    const json_t *other = form == VT_OPENAI_TOKENIZE ? r->messages : r->input_ids;
    if (form == VT_OPENAI_DETOKENIZE || (native && !r->prompt && r->input_ids)) {
        *param = ids;
        *v = r->input_ids;
        return VT_OK;
    }
    if ((native || form == VT_OPENAI_TOKENIZE) && r->prompt && other)
        return vt_openai_refuse(r->e, 400, text, "%s and %s: give one of the two", text,
                                native ? ids : "messages");
    if (native && json_is_array(r->prompt) && !json_is_string(json_array_get(r->prompt, 0)))
        return vt_openai_refuse_value(r->e, text, json_array_get(r->prompt, 0), "a string", "%s[0]",
                                      text);
    *param = text;
    *v = r->prompt;
    return VT_OK;
}

/* A body of 16 MiB could ask for an answer of many gigabytes. */
static vt_status check_scores(reader *r, const char *param)
{
    int64_t tokens = 0, each = 1 + (r->r->p.logprobs > 0 ? r->r->p.logprobs : 0);
    for (int32_t i = 0; r->r->p.prompt_logprobs && i < r->r->n_prompts; i++)
        tokens += r->r->prompt[i].n;
    if (tokens * each <= MAX_SCORES)
        return VT_OK;
    return vt_openai_refuse(r->e, 400, param,
                            "%s: %lld log-probabilities of prompt tokens, expected at most %d",
                            param, (long long)(tokens * each), MAX_SCORES);
}

/* So could the prompts themselves, which stand in each of n answers. */
static vt_status check_echo(reader *r)
{
    int64_t bytes = 0;
    for (int32_t i = 0; r->r->echo && i < r->r->n_prompts; i++)
        bytes += (int64_t)r->r->prompt[i].text_len * r->r->p.n;
    if (bytes <= MAX_ECHO)
        return VT_OK;
    return vt_openai_refuse(r->e, 400, "echo",
                            "echo: the answers would repeat %lld MiB of prompts, expected at most "
                            "%d",
                            (long long)(bytes >> 20), MAX_ECHO >> 20);
}

static vt_status encode_prompts(reader *r, vt_openai_form form)
{
    const char *param = "messages";
    const json_t *v = NULL;
    bool lists = form == VT_OPENAI_GENERATE || form == VT_OPENAI_COMPLETIONS ||
                 form == VT_OPENAI_EMBEDDINGS;
    if (!r->r->chat)
        TRY(find_prompts(r, form, &param, &v));
    const json_t *first = json_array_get(v, 0);
    bool ids = r->input_ids && v == r->input_ids;
    bool list = lists && (json_is_string(first) || json_is_array(first));
    size_t n = list ? json_array_size(v) : 1;
    int32_t most = r->d->max_answers ? r->d->max_answers : VT_OPENAI_MAX_CHOICES;
    if (n > (size_t)most || n * (size_t)r->r->p.n > (size_t)most)
        return vt_openai_refuse(r->e, 400, param,
                                "%s: %zu prompts with n %d each, expected at most %d answers",
                                param, n, r->r->p.n, most);
    r->r->prompt = vt_arena_alloc(&r->r->arena, n, sizeof *r->r->prompt);
    if (!r->r->prompt)
        return field_no_memory(r);
    r->r->list = list;
    r->r->n_prompts = (int32_t)n;
    for (size_t i = 0; i < n; i++)
        TRY(r->r->chat
                ? encode_chat(r, &r->r->prompt[i])
                : encode_text(r, param, list ? json_array_get(v, i) : v, ids, &r->r->prompt[i]));
    vt_openai_request_select(r->r, 0);
    TRY(check_echo(r));
    return check_scores(r, param);
}

void vt_openai_request_select(vt_openai_request *r, int32_t prompt)
{
    r->p.second = r->prompt[prompt].second;
    r->p.prompt = r->prompt[prompt].ids;
    r->p.n_prompt = r->prompt[prompt].n;
}

/* ---- the whole ---- */

void vt_openai_defaults_init(vt_openai_defaults *d)
{
    *d = (vt_openai_defaults){.temperature = 1, .top_p = 1, .literal_content = true};
}

static void set_defaults(vt_openai_request *r, const vt_model *m, const vt_openai_defaults *d)
{
    r->n_top = r->n_prompt_top = r->logprob_start = -1;
    r->model_name = d->model_name ? d->model_name : vt_model_name(m);
    vt_arena_init(&r->arena, 0);
    vt_request_init(&r->p);
    r->p.temperature = d->temperature;
    r->p.top_p = d->top_p;
    r->p.min_p = d->min_p;
    r->p.top_k = d->top_k;
    r->p.ignore_eos = d->ignore_eos;
    r->reasoning_names = d->reasoning_names ? d->reasoning_names : VT_REASONING_CONTENT;
    r->p.has_seed = d->has_seed;
    r->p.seed = d->seed;
}

vt_status vt_openai_request_read_as(const json_t *body, vt_openai_form form, const vt_model *m,
                                    const vt_openai_defaults *d, vt_openai_request *out,
                                    vt_openai_error *e)
{
    reader r = {.m = m,
                .d = d,
                .r = out,
                .e = e,
                .max_tokens = -1,
                .max_completion_tokens = -1,
                .open_turn = true,
                .add_bos = true};
    r.most = form == VT_OPENAI_TOKENIZE
                 ? (vt_prompt_limit){VT_OPENAI_MAX_CONVERTED, "the limit of /tokenize"}
                 : (vt_prompt_limit){d->max_prompt, NULL};
    *out = (vt_openai_request){.chat = form == VT_OPENAI_CHAT};
    set_defaults(out, m, d);
    out->p.rank = form == VT_OPENAI_RERANK || form == VT_OPENAI_SCORE;
    out->p.embed = form == VT_OPENAI_EMBEDDINGS || out->p.rank;
    out->return_documents = true;
    if (!json_is_object(body))
        return vt_openai_refuse(e, 400, NULL, "the request is not a JSON object");
    TRY(read_members(&r, body, forms[form].where));
    if (forms[form].inner)
        TRY(read_members(&r, r.sampling, forms[form].inner));
    if (form == VT_OPENAI_TOKENIZE && r.messages && !r.prompt)
        out->chat = true;
    if (form <= VT_OPENAI_GENERATE)
        TRY(settle(&r));
    if (form == VT_OPENAI_CHAT || form == VT_OPENAI_TOKENIZE)
        TRY(settle_answer(&r));
    return out->p.rank ? vt_openai_encode_pairs(&r, form) : encode_prompts(&r, form);
}

vt_status vt_openai_request_read(const json_t *body, bool chat, const vt_model *m,
                                 const vt_openai_defaults *d, vt_openai_request *out,
                                 vt_openai_error *e)
{
    return vt_openai_request_read_as(body, chat ? VT_OPENAI_CHAT : VT_OPENAI_COMPLETIONS, m, d, out,
                                     e);
}

void vt_openai_request_release(vt_openai_request *r)
{
    json_decref(r->tools);
    json_decref(r->call_ids);
    vt_arena_release(&r->arena);
    *r = (vt_openai_request){0};
}
