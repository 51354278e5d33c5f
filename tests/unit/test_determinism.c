/* Determinism on the CPU, as docs/engine.md promises it: a request's tokens and log-probabilities
 * are bitwise the same alone and in any batch, whatever the chunking, the cache hits, the page
 * size, the number of threads, retraction, overlap, drafts, and whether layers with a sliding
 * window give back the pages behind it.
 *
 * First each request runs alone. Then random engines run random schedules of the requests. A
 * schedule is the order of the requests and the steps between their submissions. It decides, with
 * what earlier schedules left in the cache, what is in each batch: chunk sizes, mixes of decodes,
 * hits. VITRINE_DETERMINISM=n runs n schedules per engine. Some models run over ranks: with as many
 * ranks, the same holds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "common/engine_run.h"
#include "common/striped_rules.h"
#include "common/tiny_model.h"
#include "engine/engine.h"
#include "engine/options.h"
#include "exec/ranks.h"
#include "kv/cache.h"
#include "model/model.h"

#define MODELS "tests/golden/models/"

typedef struct model_case {
    const char *name;
    int32_t tp; /* ranks */
    bool plain; /* what is its own alone is tested by others of the list: one engine */
} model_case;

static const model_case models[] = {
    {"llama-quantised-Q8_0.gguf", 1},
    {"llama-quantised-Q4_K.gguf", 1},
    {"llama-gqa8-llama3-f32", 1},
    {"qwen2-gqa7", 1},
    {"mistral-gqa4-window", 1},
    {"gemma2-caps", 1},
    {"gemma3-windows", 1},
    {"qwen3-fp8", 1},
    {"gpt-oss-sinks", 1},
    {"glm4moe-groups", 1},
    {"deepseekv3-groups", 1}, /* latents: one pool a layer */
    {"exaone4-windows-nope", 1},
    {"ministral3-temper", 1},
    {"mixed", 1},             /* two groups of K and V: common/tiny_model.h */
    {"mixed_state", 1},       /* the same beside sequence state */
    {"dummy:hybrid-tiny", 1}, /* sequence state alone */
    {"lfm2moe-conv", 1},
    {"granite4moe-mamba", 1},
    {"nemotronh-experts", 1},
    {"dummy:qwen3.5-tiny", 1},
    {"dummy:gemma4-tiny", 1}, /* two groups, layers that share */
    {"gemma4-experts", 1},
    {"llama-gqa8-llama3-f32", 3},
    {"mixed", 2},
    {"qwen3moe-raw", 2},
    {"gpt-oss-sinks", 3},
    {"qwen35-delta", 2},         /* states of ranks in the prefix cache */
    {"kimi-linear-channels", 1}, /* states beside latents */
    {"deepseekv3-groups", 2},
    {"gemma4-experts", 2},
    {"hunyuan-rotated-norms", 1},
    {"mistral4-temper", 1},
    {"qwen3moe-norm-mixed", 1, true},
    {"granite-four-scales", 1, true},
    {"granite4-mamba", 1, true},
    {"smollm3-nope", 1, true},
    {"olmo2-whole-norms", 1, true},
    {"olmo3-windows-yarn", 1, true},
    {"phi3-longrope", 1, true},
    {"glm4-interleaved", 1, true},
    {"glm4moelite-latents", 1, true},
    {"deepseekv2-latents", 1, true},
    {"minimaxm2-whole-norms", 1, true},
    {"lfm2-conv", 1, true},
    {"qwen35moe-outer", 1, true},
    {"qwen3next-key-heads", 1, true},
    {"hunyuanmoe-shared", 1, true},
    {"gemma4-per-layer", 1, true},
    {"mistral3-nested", 1, true},
    {"qwen3vl-nested", 1, true},
    {"qwen3vlmoe-transposed", 1, true},
};

enum { REQUESTS = 12, SAMPLES = 2, TOKENS = 24, PROMPT = 150, FAMILIES = 3, STOPS = 60 };
#ifdef VT_SANITIZE
enum { ENGINES = 2, SCHEDULES = 6 };
#else
enum { ENGINES = 6, SCHEDULES = 10 }; /* more models, fewer schedules of each: each costs 9 CPU s */
#endif

typedef struct outcome {
    int32_t token[TOKENS], n;
    float logprob[TOKENS];
    bool ended;
} outcome;

typedef struct request {
    vt_request_params p;
    int32_t striped; /* the vocabulary, if rules say what may come (striped_rules.h); else 0 */
    int32_t prompt[PROMPT];
    outcome alone[SAMPLES], now[SAMPLES];
} request;

static uint64_t rng;

static int32_t between(int32_t lo, int32_t hi)
{
    return lo + (int32_t)(vt_random_next(&rng) % (uint64_t)(hi - lo + 1));
}

static void on_event(void *user, const vt_event *e)
{
    request *r = user;
    outcome *o = &r->now[e->sample];
    for (int32_t i = 0; i < e->n_tokens; i++) {
        bool allowed = !r->p.allowed;
        for (int32_t k = 0; !allowed && k < r->p.n_allowed; k++)
            allowed = r->p.allowed[k] == e->tokens[i];
        assert_true(allowed);
        if (r->striped)
            striped_check(o->n, e->tokens[i], r->striped);
        for (int32_t k = 0; o->n < r->p.min_tokens && k < r->p.n_stop_ids; k++)
            assert_int_not_equal(e->tokens[i], r->p.stop_ids[k]);
        o->token[o->n] = e->tokens[i];
        o->logprob[o->n++] = e->logprobs[i].logprob;
    }
    o->ended = e->finish == VT_FINISH_STOP || e->finish == VT_FINISH_LENGTH;
}

/* Requests whose prompts have common beginnings of every length: greedy and sampled, some with
 * penalties, some restricted to the tokens of their prompt or by rules. Some end at any of many
 * tokens, but not before min_tokens. */
static void write_requests(request *r, const vt_model *m)
{
    int32_t vocab = vt_model_vocab_size(m), most = m->arch.max_context - TOKENS;
    int32_t family[FAMILIES][PROMPT];
    static int32_t ends[STOPS];
    for (int32_t i = 0; i < STOPS; i++)
        ends[i] = 3 * i;
    for (int32_t f = 0; f < FAMILIES; f++)
        for (int32_t i = 0; i < PROMPT; i++)
            family[f][i] = between(0, vocab - 1);
    for (int32_t k = 0; k < REQUESTS; k++, r++) {
        vt_request_init(&r->p);
        r->p.n_prompt = between(1, PROMPT);
        r->p.n_prompt = r->p.n_prompt < most ? r->p.n_prompt : most;
        memcpy(r->prompt, family[k % FAMILIES], sizeof r->prompt);
        for (int32_t i = between(0, r->p.n_prompt); i < r->p.n_prompt; i++)
            r->prompt[i] = between(0, vocab - 1);
        r->p.prompt = r->prompt;
        r->p.max_tokens = between(1, TOKENS);
        r->p.temperature = k % 2 ? 0.9f : 0;
        r->p.top_p = k % 4 == 1 ? 0.8f : 1;
        r->p.presence_penalty = k % 3 ? 0 : 0.7f;
        r->p.repetition_penalty = k % 5 ? 1 : 1.2f;
        r->p.n = k % 6 == 5 ? SAMPLES : 1;
        r->p.allowed = k % 9 == 2 ? r->prompt : NULL;
        r->p.n_allowed = k % 9 == 2 ? r->p.n_prompt : 0;
        if (k == 11) { /* of two tokens three in a row come again: drafts */
            r->p.allowed = r->prompt;
            r->p.n_allowed = r->p.n_prompt < 2 ? r->p.n_prompt : 2;
            r->p.max_tokens = TOKENS;
        }
        r->striped = k % 6 == 4 ? vocab : 0;
        if (k == 3 || k == 7) {
            r->p.stop_ids = ends;
            r->p.n_stop_ids = STOPS;
            r->p.min_tokens = r->p.max_tokens / 2;
        }
        r->p.has_seed = true;
        r->p.seed = (uint64_t)k;
        r->p.logprobs = 0;
        r->p.callback = on_event;
        r->p.user = r;
    }
}

static void submit(vt_engine *e, request *r)
{
    memset(r->now, 0, sizeof r->now);
    if (r->striped)
        striped_submit(e, &r->p, r->striped);
    else
        engine_submit(e, &r->p);
}

static void run_alone(const vt_model *m, vt_options *o, request *r)
{
    engine_option_int(o, "threads", vt_options_int(o, "tp"));
    engine_option_int(o, "max-running", 1);
    engine_option_int(o, "token-budget", 512);
    engine_option_int(o, "page-size", 16);
    engine_option_flag(o, "no-overlap", true);
    engine_option_flag(o, "no-prefix-cache", true);
    engine_option_flag(o, "keep-window-kv", true);
    vt_engine *e = engine_open(m, o);
    for (int32_t k = 0; k < REQUESTS; k++) {
        submit(e, &r[k]);
        engine_run(e);
        memcpy(r[k].alone, r[k].now, sizeof r[k].alone);
        for (int32_t i = 0; i < r[k].p.n; i++)
            assert_true(r[k].alone[i].ended);
    }
    vt_engine_free(e);
}

static void random_options(vt_options *o, const vt_model *m)
{
    static const int32_t page_sizes[] = {1, 4, 16, 32, 64};
    int32_t running = between(1, 8);
    int32_t tp = (int32_t)vt_options_int(o, "tp");
    engine_option_int(o, "threads", between(1, 3) * tp);
    engine_option_int(o, "max-running", running);
    engine_option_int(o, "token-budget", running + (between(0, 4) ? between(8, 300) : 0));
    engine_option_int(o, "page-size", page_sizes[between(0, 4)]);
    vt_dtype kv = vt_model_dtype(m) == VT_F32 ? VT_F32 : VT_F16;
    size_t token_bytes = vt_ranks_kv_page_bytes(m, kv, tp, 1);
    int64_t kv_bytes = between(1, 3) * 256 * (int64_t)token_bytes; /* few sequences: retraction */
    size_t slot = vt_ranks_kv_slot_bytes(m, tp);
    bool draft = between(0, 1);
    if (slot > 0) /* room for the longest request, of 174 tokens, beside the slots */
        kv_bytes = engine_state_memory(between(256, 264) * (int64_t)token_bytes, slot, running,
                                       running, draft);
    engine_option_int(o, "kv-memory", kv_bytes < 65536 ? 65536 : kv_bytes);
    engine_option_flag(o, "keep-window-kv", false);
    engine_option_flag(o, "no-overlap", between(0, 2) == 0);
    engine_option_flag(o, "no-prefix-cache", between(0, 3) == 0);
    assert_int_equal(vt_options_set(o, "draft", draft ? "lookup" : "off", NULL), VT_OK);
}

/* Submits a random choice of the requests with random numbers of steps between, and compares. */
static void run_schedule(vt_engine *e, request *r, const char *model, int32_t engine,
                         int32_t schedule)
{
    bool chosen[REQUESTS];
    int32_t first = between(0, REQUESTS - 1);
    for (int32_t i = 0; i < REQUESTS; i++) {
        request *q = &r[(first + 5 * i) % REQUESTS];
        chosen[q - r] = between(0, 2) == 0;
        if (!chosen[q - r])
            continue;
        submit(e, q);
        for (int32_t n = between(0, 1) * between(0, 6); n > 0; n--)
            engine_step(e);
    }
    engine_run(e);
    for (int32_t k = 0; k < REQUESTS; k++)
        for (int32_t i = 0; chosen[k] && i < r[k].p.n; i++)
            if (memcmp(&r[k].now[i], &r[k].alone[i], sizeof(outcome)) != 0)
                fail_msg("%s, engine %d, schedule %d: request %d sample %d is not what it is alone",
                         model, engine, schedule, k, i);
}

static void test_tokens_when_schedules_differ_then_bitwise_the_same(void **state)
{
    (void)state;
    const char *env = getenv("VITRINE_DETERMINISM");
    int32_t n = env ? (int32_t)strtol(env, NULL, 10) : SCHEDULES, total = 0;
    uint64_t retracted = 0, hits = 0, copied = 0, drafted = 0, accepted = 0;
    uint64_t state_retracted = 0, state_hits = 0, snapshots = 0, state_accepted = 0;
    uint64_t window_hits = 0, window_retracted = 0, windows_evicted = 0;
    for (size_t k = 0; k < sizeof models / sizeof models[0]; k++) {
        char path[200];
        vt_options *o;
        vt_model *m;
        vt_err err;
        request r[REQUESTS] = {0};
        rng = k + 1;
        const char *name = models[k].name;
        bool dummy = strncmp(name, "dummy:", 6) == 0;
        snprintf(path, sizeof path, "%s%s", dummy ? "" : MODELS, name);
        assert_int_equal(vt_options_new(&o, &err), VT_OK);
        assert_int_equal(vt_options_set(o, "model", path, &err), VT_OK);
        engine_option_int(o, "tp", models[k].tp);
        if (strncmp(name, "mixed", 5) == 0)
            m = tiny_model(name);
        else if (vt_model_open(o, &m, &err) != VT_OK)
            fail_msg("%s", err.message);
        write_requests(r, m);
        run_alone(m, o, r);
        int32_t engines = models[k].plain ? 1 : models[k].tp > 1 ? 2 : ENGINES;
        for (int32_t i = 0; i < engines; i++) {
            random_options(o, m);
            vt_engine *e = engine_open(m, o);
            for (int32_t s = 0; s < n; s++, total++)
                run_schedule(e, r, name, i, s);
            vt_engine_stats st;
            vt_engine_copy_stats(e, &st);
            if (st.cache.kept_states > 0) {
                state_retracted += st.sched.retracted;
                state_hits += st.cache.hit_tokens;
                snapshots += st.cache.kept_states;
                state_accepted += st.sched.draft_accepted;
            }
            if (vt_engine_scheduler(e)->config.n_windows > 0) {
                window_hits += st.cache.hit_tokens;
                window_retracted += st.sched.retracted;
                windows_evicted += st.cache.evicted_windows;
            }
            retracted += st.sched.retracted;
            hits += st.cache.hit_tokens;
            copied += st.cache.copied_tokens;
            drafted += st.sched.draft_tokens;
            accepted += st.sched.draft_accepted;
            vt_engine_free(e);
        }
        vt_model_free(m);
        vt_options_free(o);
    }
    print_message(
        "%d schedules, %llu retractions, %llu tokens hit, %llu copied, %llu of %llu drafts "
        "right\n",
        total, (unsigned long long)retracted, (unsigned long long)hits, (unsigned long long)copied,
        (unsigned long long)accepted, (unsigned long long)drafted);
    print_message("with sequence state: %llu snapshots, %llu tokens hit, %llu retractions, %llu "
                  "drafts right\n",
                  (unsigned long long)snapshots, (unsigned long long)state_hits,
                  (unsigned long long)state_retracted, (unsigned long long)state_accepted);
    print_message("with window pages: %llu evicted, %llu tokens hit, %llu retractions\n",
                  (unsigned long long)windows_evicted, (unsigned long long)window_hits,
                  (unsigned long long)window_retracted);
    assert_true(hits > 0 && copied > 0);
    assert_true(window_hits > 0 && windows_evicted > 0);
    assert_true(state_hits > 0);
    assert_true(retracted > 0 || total < 1000); /* a short run under sanitizers may have none */
#ifndef VT_SANITIZE                             /* too few schedules there */
    assert_true((state_retracted > 0 && state_accepted > 0) || total < 1000);
    assert_true(retracted > 0 && accepted > 0 && accepted < drafted);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens_when_schedules_differ_then_bitwise_the_same)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
