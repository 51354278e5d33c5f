/* include/vitrine.h on top of the model, text and engine layers: thin wrappers, and the place where
 * the text of options becomes the numbers of an engine. (vt_options_* are in options.c,
 * vt_render_chat and vt_encode_chat in chat.c, vt_model_free in model/, requests in request.c,
 * submit, step and the loop in engine.c, vt_engine_story in story/.)
 *
 * What "auto" means is decided here from the model, the device (device/choose.h says which) and the
 * machine:
 *   page-size 16, max-running 64, token-budget 512, kv-dtype f32 for F32 weights and else f16,
 *   kv-memory what max-running sequences of max-context can fill, at most an eighth of the memory,
 *   on CUDA page-size 64, max-running 256, token-budget 4096, kv-dtype bf16, kv-memory what is
 *   free; encoders on CUDA max-running 1,024, token-budget 16,384: two steps of short texts, of
 *   which one runs while the other is made, and kv-memory what two steps can fill
 *   max-context the model's, or what kv-memory holds, at most what auto_context says. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "device/gpus.h"
#include "engine/engine_inside.h"
#include "exec/cuda.h"
#include "exec/ranks.h"
#include "engine/draft_load.h"
#include "engine/options.h"
#include "engine/recording.h"
#include "kv/divide.h"
#include "model/load.h"
#include "model/lora/lora.h"
#include "model/pooled.h"
#include "ops/knobs.h"
#include "text/tokenizer/tokenizer.h"

enum {
    AUTO_PAGE_SIZE = 16,
    AUTO_RUNNING = 64,
    AUTO_BUDGET = 512,
    AUTO_PAGE_SIZE_CUDA = 64,
    AUTO_RUNNING_CUDA = 256,
    AUTO_BUDGET_CUDA = 4096,
    ENCODER_RUNNING_CUDA = 1024,
    ENCODER_BUDGET_CUDA = 16384,
    SCORE_ROWS_MIN = 16, /* rows of logits kept for scoring prompts, beside one per sequence */
    SCORE_ROWS_MAX = 256,
    SCORE_BYTES = 128 << 20,
    AUTO_CONTEXT = 256 << 10,    /* tokens */
    AUTO_ROPE_BYTES = 256 << 20, /* of the tables of rope's cosines and sines */
};

void vt_free(void *p) { free(p); }

/* ---- model and text ---- */

vt_status vt_model_open(const vt_options *o, vt_model **out, vt_err *err)
{
    TRY(vt_check_pointer(o, "vt_model_open: the options", err));
    TRY(vt_check_pointer(out, "vt_model_open: out", err));
    const vt_progress_hook *progress = vt_options_progress(o);
    vt_model *m;
    TRY(vt_progress_report(progress, "opening the model", 0, 1, err));
    TRY(vt_model_load(vt_options_get(o, "model"), &m, err));
    int32_t n_loras;
    const char *const *lora = vt_options_list(o, "lora", &n_loras);
    vt_status status = vt_lora_load(m, lora, n_loras, err);
    if (status == VT_OK)
        status = vt_progress_report(progress, "opening the model", 1, 1, err);
    if (status != VT_OK) {
        vt_model_free(m);
        return status;
    }
    *out = m;
    return VT_OK;
}

const char *vt_model_name(const vt_model *m) { return m ? m->name : NULL; }
int32_t vt_model_vocab_size(const vt_model *m) { return m ? m->arch.vocab : 0; }
int32_t vt_model_max_context(const vt_model *m) { return m ? m->arch.max_context : 0; }
int32_t vt_model_bos(const vt_model *m) { return m ? m->bos : -1; }

const int32_t *vt_model_eos(const vt_model *m, int32_t *n)
{
    *n = m ? m->n_eos : 0;
    return *n > 0 ? m->eos : NULL;
}

int32_t vt_model_find_token(const vt_model *m, const char *text, size_t len)
{
    return m && m->tokenizer && text ? vt_tokenizer_find(m->tokenizer, text, len) : -1;
}

bool vt_model_token_is_special(const vt_model *m, int32_t id)
{
    return m && m->tokenizer && id >= 0 && id < vt_tokenizer_vocab(m->tokenizer) &&
           vt_tokenizer_is_special(m->tokenizer, id);
}

static vt_status need_tokenizer(const vt_model *m, vt_err *err)
{
    TRY(vt_check_pointer(m, "the model", err));
    if (m->tokenizer)
        return VT_OK;
    return vt_fail(err, VT_ERR_MODEL, "%s has no tokenizer", m->name);
}

vt_status vt_tokenize(const vt_model *m, const char *text, size_t len, unsigned flags,
                      int32_t **ids, size_t *n_ids, vt_err *err)
{
    TRY(need_tokenizer(m, err));
    TRY(vt_check_pointer(len > 0 ? text : "", "vt_tokenize: text", err));
    TRY(vt_check_pointer(ids, "vt_tokenize: ids", err));
    TRY(vt_check_pointer(n_ids, "vt_tokenize: n_ids", err));
    if (flags & ~(unsigned)(VT_TOKENIZE_SPECIAL | VT_TOKENIZE_ADD_BOS | VT_TOKENIZE_ADD_EOS))
        return vt_fail(err, VT_ERR_USAGE, "vt_tokenize: flags are 0x%x, expected 0 to 7", flags);
    vt_ids list = {0};
    vt_status status = vt_tokenizer_encode(m->tokenizer, text, len, flags, &list, err);
    if (status != VT_OK) {
        vt_ids_release(&list);
        return status;
    }
    *ids = list.id;
    *n_ids = list.n;
    return VT_OK;
}

/* Gives the buffer's bytes to the caller. */
static vt_status hand_over(vt_buf *b, char **text, size_t *len, vt_err *err)
{
    if (b->len == 0)
        vt_buf_add(b, "", 0); /* an empty text is a text too */
    size_t n;
    char *bytes = vt_buf_detach(b, &n);
    if (!bytes)
        return vt_fail(err, VT_ERR_MEMORY, "a text of more than %zu bytes, or out of memory",
                       b->max);
    *text = bytes;
    *len = n;
    return VT_OK;
}

vt_status vt_detokenize(const vt_model *m, const int32_t *ids, size_t n_ids, char **text,
                        size_t *len, vt_err *err)
{
    TRY(need_tokenizer(m, err));
    TRY(vt_check_pointer(n_ids > 0 ? (const void *)ids : "", "vt_detokenize: ids", err));
    TRY(vt_check_pointer(text, "vt_detokenize: text", err));
    TRY(vt_check_pointer(len, "vt_detokenize: len", err));
    for (size_t i = 0; i < n_ids; i++)
        if (ids[i] < 0 || ids[i] >= m->arch.vocab)
            return vt_fail(err, VT_ERR_USAGE, "token %zu is %d, expected 0 to %d", i, ids[i],
                           m->arch.vocab - 1);
    vt_buf out;
    vt_buf_init(&out, 0);
    vt_status status = vt_tokenizer_decode(m->tokenizer, ids, n_ids, false, &out, err);
    if (status == VT_OK)
        status = hand_over(&out, text, len, err);
    vt_buf_release(&out);
    return status;
}

/* ---- options to an engine ---- */

/* The numbers that an engine is made of. */
typedef struct sizes {
    int32_t page_size, max_context, max_running, budget, n_pages, score_rows;
    int32_t n_ranks, n_threads; /* threads of each rank */
    bool drafts;                /* its steps verify guesses */
    bool shows;                 /* and show their hidden states to a drafter */
    int32_t n_states;           /* state slots; 0: the model has no sequence state */
    int32_t n_guess_states;     /* how many of them are for the states behind guesses */
    int32_t n_windows,
        window; /* window pages, of layers that see so many tokens; 0: there are none */
    vt_pooling pooling;
    vt_dtype kv_dtype;
    size_t page_bytes;
    const vt_cuda_options *cuda; /* NULL: the CPU */
} sizes;

static int32_t option_or(const vt_options *o, const char *key, int64_t otherwise)
{
    int64_t v = vt_options_int(o, key);
    return (int32_t)(v > 0 ? v : otherwise);
}

static bool on_cuda(const vt_options *o) { return vt_options_cuda(o) >= 0; }

/* An error for kv-memory that the device, were it empty, does not have. */
static vt_status check_kv_memory(const vt_model *m, const sizes *s, int64_t bytes, vt_err *err)
{
    int64_t most = vt_cpu_get()->memory_bytes;
    if (s->cuda)
        return vt_executor_cuda_check_kv_bytes(m, s->cuda, s->max_context, bytes, err);
    if (bytes <= most)
        return VT_OK;
    return vt_fail(err, VT_ERR_MEMORY,
                   "kv-memory is %.2f GiB, but the machine has only %.2f GiB of memory",
                   (double)bytes / (1 << 30), (double)most / (1 << 30));
}

/* Takes the state slots out of the memory for KV. */
static vt_status size_states(const vt_model *m, sizes *s, size_t slot, int64_t *bytes, vt_err *err)
{
    int64_t guesses = s->drafts ? vt_sched_guess_states(*bytes, slot, s->max_running) : 0,
            n = vt_sched_states(*bytes, slot, s->max_running) + guesses;
    if (n * (int64_t)slot + (s->page_bytes > 0) > *bytes)
        return vt_fail(err, VT_ERR_USAGE,
                       "kv-memory is %lld bytes, and the state of %d sequences of %s%s needs %lld "
                       "beside their pages (max-running sets how many)",
                       (long long)*bytes, s->max_running, m->name,
                       s->drafts ? ", with that behind guesses (draft)," : "",
                       (long long)n * (int64_t)slot);
    s->n_states = (int32_t)n;
    s->n_guess_states = (int32_t)guesses;
    *bytes -= n * (int64_t)slot;
    return VT_OK;
}

/* Returns what window pages would need; window 0: there shall be none. */
static vt_windows_need windows_need(const vt_model *m, const vt_options *o, const sizes *s)
{
    int32_t seen = vt_options_flag(o, "keep-window-kv") ? 0 : vt_kv_window(m);
    size_t window = vt_ranks_kv_window_page_bytes(m, s->kv_dtype, s->n_ranks, s->page_size);
    return (vt_windows_need){.page_size = s->page_size,
                             .window = seen,
                             .page_bytes = s->page_bytes - window,
                             .window_bytes = window,
                             .least = vt_sched_windows_least(seen, s->page_size),
                             .max_context = s->max_context,
                             .max_running = s->max_running,
                             .budget = s->budget};
}

/* A context longer than the pages becomes as long as they are, or is an error where it was asked
 * for. */
static vt_status fit_context(const vt_options *o, sizes *s, int64_t bytes, vt_err *err)
{
    if (s->n_pages >= vt_ceil_div(s->max_context, s->page_size))
        return VT_OK;
    if (vt_options_int(o, "max-context") > 0)
        return vt_fail(
            err, VT_ERR_USAGE, "max-context is %d tokens, and kv-memory of %lld MiB holds %lld",
            s->max_context, (long long)(bytes >> 20), (long long)s->n_pages * s->page_size);
    s->max_context = s->n_pages * s->page_size;
    return VT_OK;
}

/* The most state slots that an engine of these sizes has a use for. */
static int32_t most_states(const sizes *s)
{
    int32_t guessing = s->max_running < VT_SCHED_GUESSING ? s->max_running : VT_SCHED_GUESSING;
    return VT_SCHED_STATES * s->max_running + (s->drafts ? VT_DRAFT_MOST * guessing : 0);
}

/* The most pages that the running sequences fill. An encoder's texts are done with the step that
 * takes them, so they fill no more than the steps in flight, with a last page of each text that may
 * be empty but for a token. */
static int64_t most_pages(const vt_model *m, const sizes *s)
{
    int64_t each = vt_ceil_div(s->max_context, s->page_size), most = each * s->max_running,
            steps = VT_PLANS * vt_ceil_div(s->budget, s->page_size) + s->max_running;
    return vt_model_bidirectional(m) && steps < most ? steps : most;
}

static vt_status size_pages(const vt_model *m, const vt_options *o, sizes *s, vt_err *err)
{
    s->page_bytes = vt_ranks_kv_page_bytes(m, s->kv_dtype, s->n_ranks, s->page_size);
    size_t slot = vt_ranks_kv_slot_bytes(m, s->n_ranks);
    vt_windows_need need = windows_need(m, o, s);
    int64_t bytes = vt_options_int(o, "kv-memory");
    if (bytes > 0) {
        TRY(check_kv_memory(m, s, bytes, err));
    } else {
        bytes = vt_cpu_get()->memory_bytes / 8;
        if (s->cuda)
            TRY(vt_executor_cuda_kv_bytes(m, s->cuda, s->max_context, &bytes, err));
        int64_t kv = most_pages(m, s) * (int64_t)s->page_bytes,
                windows = need.window > 0 ? vt_windows_wanted(&need) : kv;
        int64_t wanted = (windows < kv ? windows : kv) + (int64_t)most_states(s) * (int64_t)slot;
        bytes = bytes < wanted ? bytes : wanted;
    }
    if (slot > 0)
        TRY(size_states(m, s, slot, &bytes, err));
    if (need.window > 0 && vt_windows_divide(&need, bytes, &s->n_pages, &s->n_windows)) {
        s->window = need.window;
        return fit_context(o, s, bytes, err);
    }
    /* a model without attention keeps nothing in pages */
    int64_t pages = s->page_bytes > 0 ? bytes / (int64_t)s->page_bytes : most_pages(m, s);
    if (pages < 1)
        return vt_fail(err, VT_ERR_USAGE,
                       "kv-memory is %lld bytes, and one page of %d tokens needs %zu",
                       (long long)bytes, s->page_size, s->page_bytes);
    /* slot numbers are int32_t, and a GPU has one page more, the padding page */
    int64_t limit = INT32_MAX / s->page_size - 1;
    s->n_pages = (int32_t)(pages < limit ? pages : limit);
    return fit_context(o, s, bytes, err);
}

/* The longest context that is taken without being asked for. Rope tables are filled for all of it
 * when a model is loaded, and a small file can claim any length. Models of public shapes stay below
 * both limits, except those made for a million tokens. */
static int32_t auto_context(const vt_arch *a)
{
    int64_t row = 0;
    for (int32_t i = 0; i < a->n_ropes; i++)
        row += (int64_t)sizeof(float) * a->rope[i].dims;
    int64_t most = row > 0 ? AUTO_ROPE_BYTES / row : AUTO_CONTEXT;
    most = most < AUTO_CONTEXT ? most : AUTO_CONTEXT;
    return a->max_context < most ? a->max_context : (int32_t)most;
}

/* Reads tp and threads: the ranks divide the threads. */
static vt_status size_ranks(const vt_options *o, sizes *s, vt_err *err)
{
    int32_t threads = option_or(o, "threads", 0);
    s->n_ranks = option_or(o, "tp", 1);
    if (threads % s->n_ranks != 0)
        return vt_fail(err, VT_ERR_USAGE,
                       "threads is %d, which %d ranks (tp) cannot divide; expected a multiple",
                       threads, s->n_ranks);
    threads = threads > 0 ? threads : vt_cpu_get()->n_cores;
    s->n_threads = threads > s->n_ranks ? threads / s->n_ranks : 1;
    return VT_OK;
}

/* A model whose tokens see those behind them needs each text in one step. */
static vt_status fit_whole(const vt_model *m, const vt_options *o, sizes *s, vt_err *err)
{
    if (!vt_model_bidirectional(m) || s->max_context <= s->budget)
        return VT_OK;
    if (vt_options_int(o, "max-context") > 0)
        return vt_fail(err, VT_ERR_USAGE,
                       "max-context is %d and token-budget %d: %s computes a text in one step, so "
                       "the budget must be as large",
                       s->max_context, s->budget, m->name);
    s->max_context = s->budget;
    return VT_OK;
}

static int32_t auto_running(const vt_model *m, bool cuda)
{
    return !cuda                       ? AUTO_RUNNING
           : vt_model_bidirectional(m) ? ENCODER_RUNNING_CUDA
                                       : AUTO_RUNNING_CUDA;
}

/* The budget holds a token of each running sequence, and a whole text where it must. An encoder's
 * is no larger than what all of its texts can have. */
static int32_t auto_budget(const vt_model *m, const sizes *s, bool cuda)
{
    int64_t budget = cuda ? AUTO_BUDGET_CUDA : AUTO_BUDGET;
    if (vt_model_bidirectional(m)) {
        int64_t most = (int64_t)s->max_running * s->max_context;
        budget = cuda ? ENCODER_BUDGET_CUDA : budget;
        budget = budget < most ? budget : most;
        budget = budget > s->max_context ? budget : s->max_context;
    }
    return (int32_t)(s->max_running > budget ? s->max_running : budget);
}

static vt_status choose_sizes(const vt_model *m, const vt_options *o, sizes *s, vt_err *err)
{
    bool cuda = on_cuda(o);
    TRY(size_ranks(o, s, err));
    s->page_size = option_or(o, "page-size", cuda ? AUTO_PAGE_SIZE_CUDA : AUTO_PAGE_SIZE);
    s->max_context = option_or(o, "max-context", auto_context(&m->arch));
    if (s->max_context > m->arch.max_context)
        return vt_fail(err, VT_ERR_USAGE, "max-context is %d, and %s was made for at most %d",
                       s->max_context, m->name, m->arch.max_context);
    s->max_running = option_or(o, "max-running", auto_running(m, cuda));
    s->budget = option_or(o, "token-budget", auto_budget(m, s, cuda));
    TRY(fit_whole(m, o, s, err));
    s->kv_dtype = vt_options_kv_dtype(o, vt_model_dtype(m));
    int64_t rows = SCORE_BYTES / ((int64_t)m->arch.vocab * 4);
    s->score_rows = (int32_t)(rows < SCORE_ROWS_MIN   ? SCORE_ROWS_MIN
                              : rows < SCORE_ROWS_MAX ? rows
                                                      : SCORE_ROWS_MAX);
    const char *pooling = vt_options_get(o, "pooling");
    s->pooling = strcmp(pooling, "auto") == 0 ? m->pooled.how : vt_pooling_of(pooling);
    if (s->pooling != VT_POOLING_NONE) /* each token has a row where all are pooled */
        s->score_rows = s->pooling == VT_POOLING_MEAN ? s->budget : 0;
    vt_rank_head rank = vt_rank_head_of(m);
    if (s->pooling == VT_POOLING_RANK && !rank.m)
        return vt_fail(err, VT_ERR_USAGE,
                       "pooling is rank, and %s has no classification head, nor is it a Qwen3 with "
                       "tokens \"yes\" and \"no\"",
                       m->name);
    if (s->pooling == VT_POOLING_RANK)
        TRY(vt_rank_keep_weights(&rank, err));
    return size_pages(m, o, s, err);
}

static vt_policy policy_of(const vt_options *o)
{
    const char *name = vt_options_get(o, "policy");
    return strcmp(name, "lpm") == 0        ? VT_POLICY_LPM
           : strcmp(name, "priority") == 0 ? VT_POLICY_PRIORITY
                                           : VT_POLICY_FCFS;
}

static bool whole_experts(const vt_options *o)
{
    return vt_options_flag(o, "enable-expert-parallel");
}

static vt_status make_executor(const vt_model *m, const vt_options *o, const sizes *s,
                               const vt_limits *limits, vt_cuda_options *cuda, vt_executor **out,
                               vt_err *err)
{
    vt_executor_config config = {.limits = *limits,
                                 .n_pages = s->n_pages,
                                 .n_pool_slots = s->max_running,
                                 .n_states = s->n_states,
                                 .n_windows = s->n_windows,
                                 .kv_dtype = s->kv_dtype,
                                 .end = s->pooling ? VT_END_POOLED : VT_END_LOGITS,
                                 .states = s->shows ? VT_STATES_TOKENS : VT_STATES_NONE,
                                 .n_ranks = s->n_ranks,
                                 .whole_experts = whole_experts(o),
                                 .n_threads = s->n_threads,
                                 .async = !vt_options_flag(o, "no-overlap"),
                                 .progress = vt_options_progress(o)};
    TRY(vt_options_backends(o, on_cuda(o) ? VT_DEVICE_CUDA : VT_DEVICE_CPU, config.backend,
                            &config.n_backends, err));
    if (!on_cuda(o)) {
        if (vt_options_flag(o, "no-graphs"))
            return vt_fail(err, VT_ERR_USAGE,
                           "no-graphs is for --device cuda; a CPU has no graphs");
        return vt_executor_cpu_new(m, &config, out, err);
    }
    vt_cuda_options options = *cuda;
    cuda->device = NULL; /* the executor owns them now */
    memset(cuda->peer, 0, sizeof cuda->peer);
    return vt_executor_cuda_new(m, &config, &options, out, err);
}

/* An error for a tp-link that nothing would use. */
static vt_status check_link(const vt_options *o, int32_t n_ranks, bool on_gpus, vt_err *err)
{
    const char *link = vt_options_get(o, "tp-link");
    if (strcmp(link, "auto") == 0 || (n_ranks > 1 && on_gpus))
        return VT_OK;
    return vt_fail(err, VT_ERR_USAGE, "tp-link is %s, which is for several ranks on GPUs; %s", link,
                   on_gpus ? "tp is 1" : "ranks of a CPU share its memory");
}

/* Decides how the ranks of open GPUs meet, and tells where they cannot reach each other. */
static vt_status choose_link(const vt_options *o, vt_cuda_options *cuda, vt_err *err)
{
    int32_t from, to;
    TRY(vt_executor_cuda_link(cuda, vt_options_get(o, "tp-link"), &from, &to, err));
    if (from >= 0)
        vt_notice_tell(vt_options_notice(o),
                       "cuda:%d cannot access the memory of cuda:%d: the ranks meet through the "
                       "host's memory (tp-link host), which is slower",
                       from, to);
    return VT_OK;
}

/* Tells where other GPUs of this machine are better linked than those of the ranks. */
static void advise_gpus(const vt_options *o, const vt_cuda_options *cuda)
{
    vt_buf text = {0};
    vt_gpus *g = cuda->n_ranks > 1 ? malloc(sizeof *g) : NULL;
    if (!g)
        return;
    vt_gpus_read("", g);
    vt_gpu_advise(g, cuda->gpu, cuda->n_ranks, &text);
    if (text.len > 0 && !text.failed)
        vt_notice_tell(vt_options_notice(o), "%s", text.data);
    vt_buf_release(&text);
    free(g);
}

/* An error where counters are asked for that no story would show. */
static vt_status check_counters(const vt_options *o, bool on_gpu, vt_err *err)
{
    if (!vt_options_flag(o, "story-counters"))
        return VT_OK;
    if (!vt_options_given(o, "story"))
        return vt_fail(err, VT_ERR_USAGE, "story-counters needs story, which shows the counters");
    if (!on_gpu)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "story-counters reads a GPU's counters, and the device is cpu; a story of a "
                       "CPU has its events where the machine gives them (vitrine env)");
    return VT_OK;
}

/* An error where counters over time cannot be sampled, or nobody would see them. The GPU has one
 * set of counters, which either is read in steps of its own or is sampled (CUPTI's answer to both
 * is that the hardware is busy). */
static vt_status check_lanes(const vt_options *o, bool on_gpu, vt_err *err)
{
    if (!vt_options_flag(o, "story-lanes"))
        return VT_OK;
    if (!vt_options_given(o, "story") && !vt_options_given(o, "story-dir"))
        return vt_fail(err, VT_ERR_USAGE,
                       "story-lanes needs story or story-dir, whose stories show the lanes");
    if (vt_options_flag(o, "story-counters"))
        return vt_fail(err, VT_ERR_USAGE,
                       "story-lanes and story-counters read the same counters of the GPU; ask for "
                       "one of them in a run");
    if (!on_gpu)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "story-lanes samples a GPU's counters, and the device is cpu");
    return VT_OK;
}

/* An error where kernels cannot be recorded or sampled, or nobody would see it. CUPTI does one of
 * its services in a process. */
static vt_status check_kernels(const vt_options *o, const char *name, bool on_gpu, vt_err *err)
{
    static const char *const other[] = {"story-counters", "story-lanes", "story-activity"};
    if (!vt_options_flag(o, name))
        return VT_OK;
    if (!vt_options_given(o, "story"))
        return vt_fail(err, VT_ERR_USAGE, "%s needs story, which shows what it sees", name);
    for (int i = 0; i < 3; i++)
        if (strcmp(other[i], name) != 0 && vt_options_flag(o, other[i]))
            return vt_fail(err, VT_ERR_USAGE,
                           "%s and %s both watch the GPU through CUPTI; ask for one of them in a "
                           "run",
                           name, other[i]);
    if (!on_gpu)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "%s watches a GPU's kernels, and the device is cpu",
                       name);
    return VT_OK;
}

/* Stamps of CTAs need nothing of CUPTI, so they go with all that does. */
static vt_status check_ctas(const vt_options *o, bool on_gpu, int32_t n_ranks, vt_err *err)
{
    if (!vt_options_flag(o, "story-ctas"))
        return VT_OK;
    if (!vt_options_given(o, "story"))
        return vt_fail(err, VT_ERR_USAGE, "story-ctas needs story, which shows what it sees");
    if (!on_gpu)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "story-ctas stamps a GPU's kernels, and the device is cpu");
    if (n_ranks > 1)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "story-ctas stamps the kernels of one GPU, and tp is %d", n_ranks);
    return VT_OK;
}

/* Refuses what sees a GPU's kernels rank by rank where ranks share a GPU. Ranks wait for each
 * other's kernels: where they shared an H200, a run whose program counter was sampled did not end;
 * and one GPU has one set of counters, which would count both ranks' kernels in a call of one. */
static vt_status check_shared(const vt_options *o, const vt_cuda_options *cuda, vt_err *err)
{
    static const struct {
        const char *name, *does;
    } alone[] = {{"story-lines", "samples"}, {"story-counters", "counts on"}};
    for (int i = 0; i < 2; i++)
        for (int32_t r = 1; r < cuda->n_ranks && vt_options_flag(o, alone[i].name); r++)
            for (int32_t p = 0; p < r; p++)
                if (cuda->gpu[p] == cuda->gpu[r])
                    return vt_fail(err, VT_ERR_UNSUPPORTED,
                                   "%s %s ranks that have a GPU each, and ranks %d and %d share "
                                   "cuda:%d",
                                   alone[i].name, alone[i].does, p, r, cuda->gpu[r]);
    return VT_OK;
}

/* Opens the GPU and says how it runs; does nothing where the engine runs on the CPU. */
static vt_status open_device(const vt_model *m, const vt_options *o, vt_cuda_options *cuda,
                             vt_err *err)
{
    int32_t n_ranks = option_or(o, "tp", 1);
    *cuda = (vt_cuda_options){.ordinal = vt_options_cuda(o)};
    TRY(vt_ranks_check(m, n_ranks, whole_experts(o), err));
    TRY(check_link(o, n_ranks, cuda->ordinal >= 0, err));
    TRY(check_counters(o, cuda->ordinal >= 0, err));
    TRY(check_lanes(o, cuda->ordinal >= 0, err));
    TRY(check_kernels(o, "story-activity", cuda->ordinal >= 0, err));
    TRY(check_kernels(o, "story-lines", cuda->ordinal >= 0, err));
    TRY(check_ctas(o, cuda->ordinal >= 0, n_ranks, err));
    if (cuda->ordinal < 0)
        return VT_OK;
    TRY(vt_knob_check_all(err));
    vt_cuda_options_init(cuda);
    if (n_ranks > COMM_GPU_RANKS)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "tp is %d, expected at most %d ranks on GPUs",
                       n_ranks, COMM_GPU_RANKS);
    cuda->n_ranks = n_ranks;
    cuda->whole_experts = whole_experts(o);
    TRY(vt_options_gpus(o, n_ranks, cuda->gpu, err));
    TRY(check_shared(o, cuda, err));
    for (int32_t r = 1; r < n_ranks; r++)
        if (cuda->gpu[r] == cuda->gpu[r - 1])
            vt_notice_tell(
                vt_options_notice(o),
                "ranks %d and %d share cuda:%d: good for tests, and slower than one rank", r - 1, r,
                cuda->gpu[r]);
    cuda->ordinal = cuda->gpu[0];
    cuda->brief = option_or(o, "max-running", 0) == 1;
    cuda->graphs = !vt_options_flag(o, "no-graphs");
    cuda->deterministic = vt_options_flag(o, "deterministic");
    cuda->story = vt_options_given(o, "story");
    cuda->counters = cuda->story && vt_options_flag(o, "story-counters");
    cuda->lanes = vt_options_flag(o, "story-lanes");
    cuda->activity = cuda->story && vt_options_flag(o, "story-activity");
    cuda->ctas = cuda->story && vt_options_flag(o, "story-ctas");
    cuda->lines = cuda->story && vt_options_flag(o, "story-lines");
    cuda->stamps = cuda->story || vt_options_given(o, "story-dir");
    vt_err refused;
    if (vt_jit_check_cache(&refused) != VT_OK)
        vt_notice_tell(vt_options_notice(o), "%s; kernels are compiled again each time",
                       refused.message);
    TRY(vt_executor_cuda_open(m, cuda, err));
    advise_gpus(o, cuda);
    return choose_link(o, cuda, err);
}

/* An error if an engine of these sizes cannot verify guesses. */
static vt_status check_drafts(const sizes *s, const char *draft, vt_err *err)
{
    if (s->pooling != VT_POOLING_NONE)
        return vt_fail(err, VT_ERR_USAGE,
                       "draft is %s, and an engine with pooling chooses no tokens to guess", draft);
    return VT_OK;
}

static vt_limits limits_of(const sizes *s)
{
    return (vt_limits){.max_tokens = s->budget,
                       .max_seqs = s->max_running,
                       .max_rows = s->max_running + s->score_rows,
                       .max_context = s->max_context,
                       .page_size = s->page_size,
                       .n_workers = s->n_threads};
}

/* Replaces *m by a model that computes `aux` too. It is *m in all else, whose arrays it has, and
 * *own is to be freed. */
static vt_status add_aux(const vt_model **m, const vt_aux *aux, vt_model **own, vt_err *err)
{
    vt_model *with = malloc(sizeof *with);
    if (!with)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for an engine");
    *with = **m;
    with->aux = *aux;
    *m = *own = with;
    return VT_OK;
}

/* Opens the draft model, if one is named. On a GPU it takes its memory before the KV of the engine
 * is sized. */
static vt_status open_draft_model(const vt_model **m, vt_model **own, const vt_options *o, sizes *s,
                                  vt_drafter *drafter, vt_err *err)
{
    vt_aux aux = {.in = NULL};
    if (!vt_draft_is_model(vt_options_get(o, "draft")))
        return VT_OK;
    vt_limits limits = limits_of(s);
    TRY(vt_draft_load(*m, o, &limits, s->n_threads * s->n_ranks, drafter, &aux, err));
    vt_status status = aux.in ? add_aux(m, &aux, own, err) : VT_OK;
    if (status == VT_OK && s->cuda)
        status = choose_sizes(*m, o, s, err);
    if (status != VT_OK)
        vt_drafter_free(drafter);
    return status;
}

/* Says at the start why a GPU cannot be sampled: a server may run for days before somebody looks at
 * a story. */
static void tell_of_lanes(const vt_options *o, const vt_executor *x)
{
    vt_source from[COMM_GPU_RANKS];
    int32_t n = x->sources ? x->sources(x, from, COMM_GPU_RANKS) : 0;
    for (int32_t i = 0; i < n && i < COMM_GPU_RANKS; i++)
        if (from[i].no_pm)
            vt_notice_tell(vt_options_notice(o), "story-lanes: no lanes of %s: %s", from[i].name,
                           from[i].no_pm);
}

/* *own: a model that was made for the engine, and is to be freed after it; NULL: none was. */
static vt_status new_engine(const vt_model *m, const vt_options *o, vt_cuda_options *cuda,
                            vt_model **own, vt_engine **out, vt_err *err)
{
    const char *draft = vt_options_get(o, "draft");
    bool lookup = strcmp(draft, "lookup") == 0, drafts = lookup || vt_draft_is_model(draft),
         whole = vt_model_bidirectional(m);
    sizes s = {.cuda = cuda->device ? cuda : NULL, .drafts = drafts};
    TRY(choose_sizes(m, o, &s, err));
    if (drafts)
        TRY(check_drafts(&s, draft, err));
    vt_drafter drafter = lookup ? vt_draft_lookup : (vt_drafter){0};
    TRY(open_draft_model(&m, own, o, &s, &drafter, err));
    s.shows = drafter.learn != NULL;
    vt_limits limits = limits_of(&s);
    static_assert(1 + VT_DRAFT_MOST <= VT_DECODE_MOST, "a decode and its guesses");
    /* on a GPU, decodes of several tokens need kernels that only --draft compiles */
    bool forced = drafts || (s.n_states == 0 && cuda->ordinal < 0);
    limits.decode_tokens = drafts || forced ? 1 + VT_DRAFT_MOST : 1;
    vt_engine_config c = {
        .sched = {.limits = limits,
                  .n_pages = s.n_pages,
                  .n_states = s.n_states,
                  .n_guess_states = s.n_guess_states,
                  .state_interval = (int32_t)vt_round_up(
                      (size_t)vt_options_int(o, "state-interval"), (size_t)s.page_size),
                  .n_windows = s.n_windows,
                  .window = s.window,
                  .max_queued = (int32_t)vt_options_int(o, "max-queued"),
                  .policy = policy_of(o),
                  .prefix_cache = !whole && !vt_options_flag(o, "no-prefix-cache"),
                  .whole = whole,
                  .types = m->arch.n_types > 1,
                  .adapters = m->lora != NULL,
                  .eos = m->eos,
                  .n_eos = m->n_eos,
                  .target_gap_ns = vt_options_int(o, "target-gap") * 1000000,
                  .forced = forced,
                  .n_hidden = m->aux.in ? (int32_t)m->aux.in->dim[0] : m->arch.hidden,
                  .drafter = drafter},
        .request = {.vocab = m->arch.vocab,
                    .max_context = s.max_context,
                    .tokenizer = m->tokenizer,
                    .seed = (uint64_t)vt_options_int(o, "seed"),
                    .lookup = lookup,
                    .pooling = s.pooling,
                    .unscaled = m->pooled.unscaled,
                    .n_hidden = m->arch.hidden,
                    .dense = &m->pooled,
                    .n_types = m->arch.n_types,
                    .adapted = m->lora ? m : NULL},
        .overlap = !vt_options_flag(o, "no-overlap"),
        .notice = *vt_options_notice(o)};
    if (s.pooling == VT_POOLING_RANK)
        c.request.rank = vt_rank_head_of(m);
    vt_executor *x;
    vt_engine *e;
    vt_status made = make_executor(m, o, &s, &limits, cuda, &x, err);
    if (made != VT_OK) {
        vt_drafter_free(&drafter);
        return made;
    }
    if (vt_options_flag(o, "story-lanes"))
        tell_of_lanes(o, x);
    TRY(vt_engine_create(&c, x, &e, err));
    e->model = m;
    *out = e;
    return VT_OK;
}

vt_status vt_engine_new(const vt_model *m, const vt_options *o, vt_engine **out, vt_err *err)
{
    TRY(vt_check_pointer(m, "vt_engine_new: the model", err));
    TRY(vt_check_pointer(o, "vt_engine_new: the options", err));
    TRY(vt_check_pointer(out, "vt_engine_new: out", err));
    if (!m->layer)
        return vt_fail(err, VT_ERR_MODEL, "%s holds a vocabulary and no weights", m->name);
    vt_cuda_options cuda;
    vt_status status = open_device(m, o, &cuda, err);
    vt_model *own = NULL;
    if (status == VT_OK)
        status = new_engine(m, o, &cuda, &own, out, err);
    if (status == VT_OK)
        (*out)->own_model = own;
    else
        free(own);
    vt_cuda_options_close(&cuda);
    return vt_options_device_failed(o, status, err);
}

vt_status vt_engine_recording(vt_engine *e, vt_recording *out, vt_err *err)
{
    if (!e->model)
        return vt_fail(err, VT_ERR_USAGE, "the engine runs no model: it has no story");
    *out = (vt_recording){.model = e->model,
                          .executor = e->executor,
                          .program = e->executor->program(e->executor),
                          .n_pages = e->config.sched.n_pages,
                          .n_windows = e->config.sched.n_windows,
                          .window = e->config.sched.window};
    return VT_OK;
}
