/* Steps of llama.cpp, or of ik_llama.cpp (-DIK), over llama.h alone; bench/peers/llama.cpp.sh builds and runs it.
 *
 *   llama_steps time MODEL THREADS PROMPT GEN BATCH    what llama-bench -fa 1 and llama-batched-bench -fa on measure: random tokens,
 *                                                      2,048 a batch and 512 a step, KV in F16; the prompts and a token are
 *                                                      computed once before. Prints JSON
 *   llama_steps logits MODEL THREADS IDS OUT [exact]   the logits behind each of IDS (1,2,3), fp32, into OUT; exact: KV in F32,
 *                                                      no flash attention, and weights as the file has them
 *
 * OVERRIDE=KEY=VALUE,... sets metadata of the file: numbers, or words. ik_llama.cpp repacks weights as with -rtr 1. */
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "llama.h"
#ifndef IK
#include "ggml-cpu.h"
#endif

struct steps {
    llama_model *model = nullptr;
    llama_context *ctx = nullptr;
    llama_batch batch;
    int vocab = 0;
};

#ifndef VERSION
#define VERSION ""
#endif

static double now()
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

static void only_errors(ggml_log_level level, const char *text, void *)
{
    static bool on;
    if (level != GGML_LOG_LEVEL_CONT)
        on = level >= GGML_LOG_LEVEL_ERROR;
    if (on)
        fputs(text, stderr);
}

static std::vector<llama_model_kv_override> overrides()
{
    std::vector<llama_model_kv_override> out;
    std::string all = getenv("OVERRIDE") ? getenv("OVERRIDE") : "";
    for (size_t at = 0; at < all.size();) {
        size_t end = std::min(all.find(',', at), all.size()), equals = all.find('=', at);
        std::string value = all.substr(equals + 1, end - equals - 1);
        llama_model_kv_override o = {};
        snprintf(o.key, sizeof o.key, "%s", all.substr(at, equals - at).c_str());
        if (value.find_first_not_of("0123456789") == std::string::npos) {
            o.tag = LLAMA_KV_OVERRIDE_TYPE_INT;
            o.val_i64 = atoll(value.c_str());
        } else {
            o.tag = LLAMA_KV_OVERRIDE_TYPE_STR;
            snprintf(o.val_str, sizeof o.val_str, "%s", value.c_str());
        }
        out.push_back(o);
        at = end + 1;
    }
    if (!out.empty())
        out.push_back({}); /* an empty key ends the list */
    return out;
}

static steps start(const char *path, int threads, int context, int sequences, bool exact)
{
    steps s;
    std::vector<llama_model_kv_override> over = overrides();
    llama_log_set(only_errors, nullptr);
    llama_backend_init();
    llama_model_params mp = llama_model_default_params();
    mp.n_gpu_layers = 0;
    mp.kv_overrides = over.empty() ? nullptr : over.data();
#ifdef IK
    mp.repack_tensors = !exact; /* llama-bench -rtr 1 */
    mp.flash_attn = !exact;
#else
    mp.use_extra_bufts = !exact;
#endif
    s.model = llama_model_load_from_file(path, mp);
    if (!s.model)
        exit(1);
    llama_context_params cp = llama_context_default_params();
    cp.n_ctx = (uint32_t)context;
    cp.n_batch = 2048;
    cp.n_ubatch = 512;
    cp.n_seq_max = (uint32_t)sequences;
    cp.n_threads = cp.n_threads_batch = threads;
    if (exact)
        cp.type_k = cp.type_v = GGML_TYPE_F32;
#ifdef IK
    cp.flash_attn = !exact;
#else
    cp.flash_attn_type = exact ? LLAMA_FLASH_ATTN_TYPE_DISABLED : LLAMA_FLASH_ATTN_TYPE_ENABLED;
    cp.kv_unified = sequences > 1;
#endif
    s.ctx = llama_init_from_model(s.model, cp);
    if (!s.ctx)
        exit(1);
#ifndef IK
    ggml_threadpool_params tp = ggml_threadpool_params_default(threads);
    llama_attach_threadpool(s.ctx, ggml_threadpool_new(&tp), nullptr);
#endif
    s.vocab = llama_vocab_n_tokens(llama_model_get_vocab(s.model));
    s.batch = llama_batch_init(2048, 0, 1);
    s.batch.n_tokens = 0;
    return s;
}

static void run(steps &s)
{
    if (llama_decode(s.ctx, s.batch) != 0)
        exit(2);
    llama_synchronize(s.ctx);
    s.batch.n_tokens = 0;
}

static void add(steps &s, int token, int position, int sequence, bool logits)
{
    int i = s.batch.n_tokens++;
    s.batch.token[i] = token;
    s.batch.pos[i] = position;
    s.batch.n_seq_id[i] = 1;
    s.batch.seq_id[i][0] = sequence;
    s.batch.logits[i] = logits;
    if (s.batch.n_tokens == 2048)
        run(s);
}

static void prompts(steps &s, int length, int sequences)
{
    for (int q = 0; q < sequences; q++)
        for (int i = 0; i < length; i++)
            add(s, rand() % s.vocab, i, q, i == length - 1);
    if (s.batch.n_tokens > 0)
        run(s);
}

static void forget(steps &s)
{
#ifdef IK
    llama_kv_cache_clear(s.ctx);
#else
    llama_memory_clear(llama_get_memory(s.ctx), true);
#endif
}

static int measure(char **v)
{
    int threads = atoi(v[1]), prompt = atoi(v[2]), gen = atoi(v[3]), batch = atoi(v[4]);
    steps s = start(v[0], threads, (prompt + gen) * batch + 256, batch, false);
    prompts(s, prompt, batch);
    add(s, 1, prompt, 0, true);
    run(s);
    forget(s);
    double t0 = now();
    prompts(s, prompt, batch);
    double t1 = now();
    for (int i = 0; i < gen; i++) {
        for (int q = 0; q < batch; q++)
            add(s, rand() % s.vocab, prompt + i, q, true);
        run(s);
    }
    double t2 = now();
    printf("{\"prefill_tokens_per_s\": %.2f, \"decode_tokens_per_s\": %.2f, \"commit\": \"%s\"}\n", prompt * batch / (t1 - t0),
           gen * batch / (t2 - t1), VERSION);
    return 0;
}

static int logits(char **v, bool exact)
{
    std::vector<int> ids;
    for (char *at = v[2]; *at;) {
        ids.push_back((int)strtol(at, &at, 10));
        at += *at == ',';
    }
    steps s = start(v[0], atoi(v[1]), (int)ids.size() + 256, 1, exact);
    FILE *out = fopen(v[3], "wb");
    if (!out || ids.empty() || ids.size() > 2047)
        return 1;
    for (size_t i = 0; i < ids.size(); i++)
        add(s, ids[i], (int)i, 0, true);
    run(s);
    for (size_t i = 0; i < ids.size(); i++)
        fwrite(llama_get_logits_ith(s.ctx, (int)i), sizeof(float), (size_t)s.vocab, out);
    return fclose(out) != 0;
}

int main(int n, char **v)
{
    if (n == 7 && strcmp(v[1], "time") == 0)
        return measure(v + 2);
    if ((n == 6 || n == 7) && strcmp(v[1], "logits") == 0)
        return logits(v + 2, n == 7);
    fputs("llama_steps time MODEL THREADS PROMPT GEN BATCH | logits MODEL THREADS IDS OUT [exact]\n", stderr);
    return 2;
}
