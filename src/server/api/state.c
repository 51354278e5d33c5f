/* Tells of the server and its model: /model_info, /server_info, /v1/loads, /get_load, /version. The
 * shapes are SGLang's where routers read them; names that only concern what this engine does not
 * have are left out. */
#include <math.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "engine/end_reason.h"
#include "exec/executor.h"
#include "model/model.h"
#include "server/api/generation.h"
#include "text/template/template.h"

void server_version(vt_server *s, vt_exchange *x)
{
    vt_json w;
    (void)s;
    vt_json_object(&w);
    vt_json_string(&w, "version", vt_version());
    server_reply_json(x, 200, &w);
}

void server_model_info(vt_server *s, vt_exchange *x)
{
    const vt_model *m = s->model;
    vt_json w;
    vt_json_object(&w);
    vt_json_string(&w, "model_path", s->model_name);
    vt_json_string(&w, "tokenizer_path", s->model_name);
    vt_json_string(&w, "served_model_name", s->model_name);
    vt_json_bool(&w, "is_generation", true);
    vt_json_null(&w, "preferred_sampling_params");
    vt_json_string(&w, "weight_version", "default");
    vt_json_string(&w, "name", vt_model_name(m));
    vt_json_int(&w, "vocab_size", vt_model_vocab_size(m));
    vt_json_int(&w, "max_context", vt_model_max_context(m));
    vt_json_int(&w, "max_model_len", vt_engine_max_context(s->engine));
    vt_json_int(&w, "num_layers", m->arch.n_layers);
    vt_json_int(&w, "bos_token_id", vt_model_bos(m));
    vt_json_ints(&w, "eos_token_ids", m->eos, m->n_eos);
    vt_json_bool(&w, "has_tokenizer", m->tokenizer != NULL);
    vt_json_bool(&w, "has_image_understanding", false);
    vt_json_bool(&w, "has_audio_understanding", false);
    server_reply_json(x, 200, &w);
}

/* ---- /tokenizer_info ---- */

/* A member with the text of a token; null where the model has none. */
static void put_token(const vt_model *m, vt_json *w, const char *key, int32_t id)
{
    char *text = NULL;
    size_t len;
    if (id < 0 || vt_detokenize(m, &id, 1, &text, &len, NULL) != VT_OK)
        vt_json_null(w, key);
    else
        vt_json_string_n(w, key, text, len);
    vt_free(text);
}

/* vLLM's names, as far as clients that tokenise over HTTP (lm-eval) read them. */
void server_tokenizer_info(vt_server *s, vt_exchange *x)
{
    const vt_model *m = s->model;
    vt_json w;
    vt_json_object(&w);
    vt_json_string(&w, "tokenizer_class", "vitrine");
    vt_json_int(&w, "vocab_size", vt_model_vocab_size(m));
    vt_json_int(&w, "model_max_length", vt_model_max_context(m));
    vt_json_bool(&w, "add_bos_token", m->add_bos);
    put_token(m, &w, "bos_token", vt_model_bos(m));
    put_token(m, &w, "eos_token", m->n_eos > 0 ? m->eos[0] : -1);
    vt_json_null(&w, "pad_token");
    vt_json_string(&w, "chat_template",
                   m->chat_template ? vt_template_source(m->chat_template) : NULL);
    server_reply_json(x, 200, &w);
}

/* ---- /server_info ---- */

/* Options whose text may be told. A text that is not listed here may be a path, an address or a
 * secret, and is only said to be set. */
static bool is_telling(const vt_option *o)
{
    static const char *const keys[] = {"host", "served-model-name", "owned-by", "cors-origin",
                                       "allowed-host"};
    if (o->type != VT_OPTION_TEXT)
        return true;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(o->key, keys[i]) == 0)
            return true;
    return false;
}

static void write_options(vt_json *w, const vt_options *options)
{
    int32_t n;
    const vt_option *o = vt_option_table(&n);
    vt_json_open(w, "options", '{');
    for (int32_t i = 0; i < n; i++) {
        const char *value = vt_options_get(options, o[i].id ? o[i].id : o[i].key);
        if (!(o[i].verbs & VT_FOR_SERVE))
            continue;
        if (!value || is_telling(&o[i]))
            vt_json_string(w, o[i].key, value);
        else
            vt_json_string(w, o[i].key, "(set)");
    }
    vt_json_close(w);
}

static void write_stats(vt_json *w, const vt_engine_stats *e)
{
    vt_json_open(w, "stats", '{');
    vt_json_int(w, "running", e->n_running);
    vt_json_int(w, "waiting", e->n_waiting);
    vt_json_int(w, "requests", (int64_t)e->requests);
    vt_json_open(w, "finished", '{');
    for (int i = VT_FINISH_STOP; i <= VT_FINISH_ERROR; i++)
        vt_json_int(w, vt_finish_name((vt_finish)i), (int64_t)e->finished[i]);
    vt_json_close(w);
    vt_json_int(w, "pages_used", e->pages_held);
    vt_json_int(w, "pages_cached", e->pages_cached);
    vt_json_int(w, "pages_free", e->pages_free);
    vt_json_int(w, "steps", (int64_t)e->sched.steps);
    vt_json_int(w, "prefill_tokens", (int64_t)e->sched.prefill_tokens);
    vt_json_int(w, "decode_tokens", (int64_t)e->sched.decode_tokens);
    vt_json_int(w, "output_tokens", (int64_t)e->output_tokens);
    vt_json_int(w, "retractions", (int64_t)e->sched.retracted);
    vt_json_int(w, "cache_lookup_tokens", (int64_t)e->cache.lookup_tokens);
    vt_json_int(w, "cache_hit_tokens", (int64_t)(e->cache.hit_tokens + e->cache.copied_tokens));
    vt_json_fixed(w, "schedule_s", (double)e->schedule_ns * 1e-9, 6);
    vt_json_fixed(w, "device_s", (double)e->device_ns * 1e-9, 6);
    vt_json_fixed(w, "publish_s", (double)e->publish_ns * 1e-9, 6);
    vt_json_close(w);
}

/* Returns how many ranks the model runs over. */
static int32_t tp_size(const vt_server *s)
{
    const vt_executor *x = vt_engine_executor(s->engine);
    return x->ranks ? x->ranks(x, NULL, 0) : 1;
}

void server_info(vt_server *s, vt_exchange *x)
{
    const vt_limits *limits = &vt_engine_scheduler(s->engine)->config.limits;
    vt_engine_stats e;
    vt_json w;
    char device[64];
    vt_engine_copy_stats(s->engine, &e);
    vt_options_device(s->options, device, sizeof device);
    vt_json_object(&w);
    vt_json_string(&w, "version", vt_version());
    vt_json_string(&w, "status", s->draining ? "draining" : "ready");
    vt_json_string(&w, "model_path", s->model_name);
    vt_json_string(&w, "served_model_name", s->model_name);
    vt_json_string(&w, "model_id", s->model_name);
    vt_json_int(&w, "tp_size", tp_size(s));
    vt_json_int(&w, "dp_size", 1);
    vt_json_int(&w, "pp_size", 1);
    vt_json_string(&w, "device", device);
    vt_json_int(&w, "context_length", vt_engine_max_context(s->engine));
    vt_json_int(&w, "max_running_requests", limits->max_seqs);
    vt_json_int(&w, "max_total_num_tokens", (int64_t)e.pages * e.page_size);
    vt_json_int(&w, "chunked_prefill_size", limits->max_tokens);
    vt_json_int(&w, "page_size", e.page_size);
    vt_json_int(&w, "num_pages", e.pages);
    vt_json_real(&w, "weights_bytes",
                 vt_executor_value(vt_engine_executor(s->engine), "packed_bytes", NAN));
    vt_json_real(&w, "kv_bytes", vt_executor_value(vt_engine_executor(s->engine), "kv_bytes", NAN));
    vt_json_real(&w, "kv_page_bytes",
                 vt_executor_value(vt_engine_executor(s->engine), "kv_page_bytes", NAN));
    vt_json_int(&w, "window_pages", vt_engine_scheduler(s->engine)->config.n_windows);
    vt_json_real(&w, "window_page_bytes",
                 vt_executor_value(vt_engine_executor(s->engine), "kv_window_page_bytes", 0));
    vt_json_int(&w, "started", s->started_s);
    vt_json_fixed(&w, "uptime_s", (double)(vt_now_ns() - s->ready_ns) * 1e-9, 3);
    vt_json_bool(&w, "needs_key", s->keys.n > 0);
    vt_json_bool(&w, "needs_admin_key", s->admin_keys.n > 0);
    write_options(&w, s->options);
    write_stats(&w, &e);
    server_reply_json(x, 200, &w);
}

/* ---- loads ---- */

static double token_usage(const vt_engine_stats *e)
{
    return e->pages > 0 ? (double)e->pages_held / e->pages : 0;
}

static void write_load(vt_json *w, const vt_server *s, const vt_engine_stats *e)
{
    uint64_t hits = e->cache.hit_tokens + e->cache.copied_tokens;
    vt_json_open(w, NULL, '{');
    vt_json_int(w, "dp_rank", 0);
    vt_json_int(w, "num_running_reqs", e->n_running);
    vt_json_int(w, "num_waiting_reqs", e->n_waiting);
    vt_json_int(w, "num_total_reqs", e->n_running + e->n_waiting);
    vt_json_int(w, "num_used_tokens", (int64_t)e->pages_held * e->page_size);
    vt_json_int(w, "max_total_num_tokens", (int64_t)e->pages * e->page_size);
    vt_json_real(w, "token_usage", token_usage(e));
    vt_json_real(w, "cache_hit_rate",
                 e->cache.lookup_tokens ? (double)hits / (double)e->cache.lookup_tokens : 0);
    vt_json_int(w, "max_running_requests", vt_engine_scheduler(s->engine)->config.limits.max_seqs);
    vt_json_close(w);
}

void server_loads(vt_server *s, vt_exchange *x)
{
    vt_engine_stats e;
    vt_json w;
    vt_engine_copy_stats(s->engine, &e);
    vt_json_object(&w);
    vt_json_fixed(&w, "timestamp", (double)time(NULL), 0);
    vt_json_string(&w, "version", vt_version());
    vt_json_int(&w, "dp_rank_count", 1);
    vt_json_open(&w, "loads", '[');
    write_load(&w, s, &e);
    vt_json_close(&w);
    vt_json_open(&w, "aggregate", '{');
    vt_json_int(&w, "total_running_reqs", e.n_running);
    vt_json_int(&w, "total_waiting_reqs", e.n_waiting);
    vt_json_int(&w, "total_reqs", e.n_running + e.n_waiting);
    vt_json_real(&w, "avg_token_usage", token_usage(&e));
    vt_json_close(&w);
    server_reply_json(x, 200, &w);
}

/* The older form: a list with one object a rank. */
void server_load(vt_server *s, vt_exchange *x)
{
    vt_engine_stats e;
    vt_json w;
    vt_engine_copy_stats(s->engine, &e);
    vt_json_line(&w);
    vt_json_open(&w, NULL, '[');
    vt_json_open(&w, NULL, '{');
    vt_json_int(&w, "dp_rank", 0);
    vt_json_int(&w, "num_reqs", e.n_running + e.n_waiting);
    vt_json_int(&w, "num_waiting_reqs", e.n_waiting);
    vt_json_int(&w, "num_tokens", (int64_t)e.pages_held * e.page_size);
    vt_json_close(&w);
    vt_json_close(&w);
    server_reply_json(x, 200, &w);
}
