/* Opening a draft model (engine/draft_load.h).
 *
 * Its KV gets at most a quarter of kv-memory, where that is given, else a sixteenth of the
 * machine's memory, or an eighth of what is free on the GPU beside its weights: a model that drafts
 * is small, and so is its KV. */
#include "engine/draft_load.h"

#include <string.h>

#include "base/err.h"
#include "device/cpu.h"
#include "engine/draft_model.h"
#include "exec/cuda.h"
#include "exec/ranks.h"
#include "kv/cache.h"
#include "model/eagle.h"
#include "model/load.h"
#include "text/tokenizer/tokenizer.h"

enum {
    FIRST_COMPARED = 5, /* the ids below are often reserved, and differ between releases */
    /* of a step of a head on a GPU: their hidden states come with the step, from pinned memory
     * that has room for the most */
    MOST_TOKENS = 1024
};

bool vt_draft_is_model(const char *value)
{
    return strcmp(value, "off") != 0 && strcmp(value, "lookup") != 0;
}

bool vt_draft_is_mtp(const char *value) { return strcmp(value, "mtp") == 0; }

/* An error unless both vocabularies spell each token alike, as far as both reach. */
static vt_status same_words(const vt_model *target, const vt_model *m, vt_err *err)
{
    int32_t a = vt_tokenizer_vocab(target->tokenizer), b = vt_tokenizer_vocab(m->tokenizer);
    vt_buf mine, theirs;
    vt_buf_init(&mine, 0);
    vt_buf_init(&theirs, 0);
    vt_status status = VT_OK;
    for (int32_t i = FIRST_COMPARED; i < a && i < b && status == VT_OK; i++) {
        vt_buf_clear(&mine);
        vt_buf_clear(&theirs);
        bool whole = vt_tokenizer_piece(target->tokenizer, i, &mine) &&
                     vt_tokenizer_piece(m->tokenizer, i, &theirs);
        if (!whole || mine.len != theirs.len || memcmp(mine.data, theirs.data, mine.len) != 0)
            status = vt_fail(err, VT_ERR_USAGE,
                             "draft: token %d is '%.*s' in %s and '%.*s' in %s; expected a model "
                             "with the same vocabulary",
                             i, (int)(theirs.len < 40 ? theirs.len : 40), theirs.data, m->name,
                             (int)(mine.len < 40 ? mine.len : 40), mine.data, target->name);
    }
    vt_buf_release(&mine);
    vt_buf_release(&theirs);
    return status;
}

static vt_status check_pair(const vt_model *target, const vt_model *m, vt_err *err)
{
    int32_t a = target->arch.vocab, b = m->eagle.is ? m->eagle.words : m->arch.vocab,
            apart = a > b ? a - b : b - a;
    if (!m->layer)
        return vt_fail(err, VT_ERR_MODEL, "draft: %s holds a vocabulary and no weights", m->name);
    if (vt_model_bidirectional(m))
        return vt_fail(err, VT_ERR_UNSUPPORTED, "draft: %s makes embeddings and no text", m->name);
    if (apart > a / 100)
        return vt_fail(err, VT_ERR_USAGE,
                       "draft: %s has %d tokens and %s %d; expected a model with the same "
                       "vocabulary",
                       m->name, b, target->name, a);
    return target->tokenizer && m->tokenizer ? same_words(target, m, err) : VT_OK;
}

/* Takes the state slots out of the memory, where the model has sequence state: up to half of it. */
static vt_status size_states(const vt_model *m, size_t slot, int64_t *bytes, vt_executor_config *c,
                             vt_err *err)
{
    if (slot == 0)
        return VT_OK;
    int64_t each = VT_DRAFT_MOST * (int64_t)slot, seqs = *bytes / 2 / each;
    seqs = seqs < c->limits.max_seqs ? seqs : c->limits.max_seqs;
    if (seqs < 1)
        return vt_fail(err, VT_ERR_MEMORY,
                       "draft: the states of %s for one sequence need %lld bytes, and the memory "
                       "for its KV and states is %lld; expected twice as much (kv-memory)",
                       m->name, (long long)each, (long long)*bytes);
    c->n_states = (int32_t)(VT_DRAFT_MOST * seqs);
    *bytes -= seqs * each;
    return VT_OK;
}

/* Returns the bytes of a hidden state that a head gets; 0: it is a model. */
static size_t state_bytes(const vt_model *m, const vt_options *o)
{
    size_t each = vt_options_cuda(o) < 0 ? sizeof(float) : sizeof(uint16_t);
    return vt_model_is_head(m) ? (size_t)m->arch.hidden * each : 0;
}

/* The executor's configuration, with as many pages as `bytes` hold. */
static vt_status configure(const vt_model *m, const vt_options *o, const vt_limits *limits,
                           int64_t bytes, vt_executor_config *c, vt_err *err)
{
    *c = (vt_executor_config){.limits = *limits,
                              .n_pool_slots = limits->max_seqs,
                              .kv_dtype = vt_options_kv_dtype(o, vt_model_dtype(m)),
                              .end = VT_END_LOGITS,
                              .n_ranks = 1,
                              .n_threads = limits->n_workers,
                              .progress = vt_options_progress(o)};
    vt_limits *lim = &c->limits;
    lim->max_rows = lim->max_seqs;
    lim->decode_tokens = 1;
    if (!m->eagle.is && m->arch.max_context < lim->max_context)
        lim->max_context = m->arch.max_context; /* such heads were trained on short texts */
    vt_kv_shape shape;
    vt_kv_shape_of(m, c->kv_dtype, &shape);
    TRY(size_states(m, vt_kv_slot_bytes(&shape), &bytes, c, err));
    if (vt_model_is_head(m))
        c->states = m->eagle.is ? VT_STATES_STREAM : VT_STATES_ROWS;
    if (vt_model_is_head(m) && vt_options_cuda(o) >= 0 && lim->max_tokens > MOST_TOKENS)
        lim->max_tokens = MOST_TOKENS;
    int64_t page = (int64_t)vt_ranks_kv_page_bytes(m, c->kv_dtype, 1, lim->page_size) +
                   (int64_t)state_bytes(m, o) * (lim->page_size + 1),
            most = (int64_t)((lim->max_context + lim->page_size - 1) / lim->page_size) *
                   lim->max_seqs,
            pages = bytes / page;
    pages = pages < most ? pages : most;
    if (pages < 1)
        return vt_fail(err, VT_ERR_MEMORY, "draft: no memory for the KV of %s", m->name);
    int64_t numbered = INT32_MAX / lim->page_size - 1;
    c->n_pages = (int32_t)(pages < numbered ? pages : numbered);
    return VT_OK;
}

static vt_status make_executor(const vt_model *m, const vt_options *o, const vt_limits *limits,
                               vt_executor_config *config, vt_executor **out, vt_err *err)
{
    int64_t given = vt_options_int(o, "kv-memory") / 4;
    if (vt_options_cuda(o) < 0) {
        TRY(configure(m, o, limits, given > 0 ? given : vt_cpu_get()->memory_bytes / 16, config,
                      err));
        return vt_executor_cpu_new(m, config, out, err);
    }
    vt_cuda_options cuda = {.untimed = true};
    vt_cuda_options_init(&cuda);
    cuda.graphs = !vt_options_flag(o, "no-graphs");
    int64_t ranks = vt_options_int(o, "tp");
    TRY(vt_options_gpus(o, ranks > 1 ? (int32_t)ranks : 1, cuda.gpu, err));
    cuda.ordinal = cuda.gpu[0];
    vt_status status = vt_executor_cuda_open(m, &cuda, err);
    int64_t bytes = 0;
    if (status == VT_OK && given <= 0)
        status = vt_executor_cuda_kv_bytes(m, &cuda, limits->max_context, &bytes, err);
    if (status == VT_OK)
        status = configure(m, o, limits, given > 0 ? given : bytes / 8, config, err);
    if (status != VT_OK) {
        vt_cuda_options_close(&cuda);
        return status;
    }
    return vt_executor_cuda_new(m, config, &cuda, out, err);
}

/* Loads what `draft` names and fits it to the model. */
static vt_status load(const vt_model *target, const vt_options *o, vt_model **out, vt_aux *aux,
                      vt_err *err)
{
    vt_model *m;
    vt_err why;
    const char *draft = vt_options_get(o, "draft");
    vt_status status = vt_draft_is_mtp(draft) ? vt_model_load_mtp(target, &m, &why)
                                              : vt_model_load_drafter(draft, &m, &why);
    if (status != VT_OK)
        return vt_fail(err, status, "draft: %s (expected off, lookup, mtp or a model)",
                       why.message);
    if (m->eagle.is)
        status = model_eagle_fit(m, target, aux, err);
    if (status == VT_OK && m->embed == target->embed && vt_options_cuda(o) < 0)
        status = vt_model_host_weights(target, err); /* the head is made first */
    if (status == VT_OK)
        status = check_pair(target, m, err);
    if (status == VT_OK)
        *out = m;
    else
        vt_model_free(m);
    return status;
}

vt_status vt_draft_load(const vt_model *target, const vt_options *o, const vt_limits *limits,
                        int32_t n_threads, vt_drafter *out, vt_aux *aux, vt_err *err)
{
    vt_model *m = NULL;
    vt_executor *x;
    vt_executor_config config;
    vt_limits lim = *limits;
    lim.n_workers = n_threads;
    TRY(load(target, o, &m, aux, err));
    vt_status status = make_executor(m, o, &lim, &config, &x, err);
    if (status != VT_OK) {
        vt_model_free(m);
        return status;
    }
    vt_draft_model_config c = {.limits = config.limits,
                               .n_pages = config.n_pages,
                               .n_states = config.n_states,
                               .state_bytes = state_bytes(m, o),
                               .vocab = m->eagle.is ? m->eagle.words : m->arch.vocab,
                               .word = m->eagle.word,
                               .stream = m->eagle.is,
                               .target_vocab = target->arch.vocab,
                               .notice = *vt_options_notice(o)};
    return vt_draft_model_new(&c, m, x, out, err);
}
