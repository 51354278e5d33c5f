/* Adapters: log-probabilities against PEFT's (tools/fixtures/make_lora.py), several adapters in one
 * step, prefixes kept apart, and folders that are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <math.h>

#include "common/engine_run.h"
#include "engine/engine.h"
#include "exec/describe.h"
#include "model/load.h"
#include "model/lora/lora.h"

#define MODELS "tests/golden/models/"
#define LORA "tests/golden/lora/"

enum { MOST = 64 };

typedef struct golden {
    int32_t n, ids[MOST];
    float logprob[MOST];
} golden;

static void read_golden(const char *name, golden *g)
{
    char path[256];
    snprintf(path, sizeof path, LORA "%s/golden.bin", name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(&g->n, sizeof g->n, 1, f), 1);
    assert_in_range(g->n, 2, MOST);
    assert_int_equal(fread(g->ids, sizeof *g->ids, (size_t)g->n, f), g->n);
    assert_int_equal(fread(g->logprob, sizeof *g->logprob, (size_t)g->n - 1, f), g->n - 1);
    fclose(f);
}

/* What a request was told. */
typedef struct heard {
    float score[MOST];
    int32_t token[MOST], n_scores, n_tokens, cached, finish;
} heard;

static void hear(void *user, const vt_event *e)
{
    heard *h = user;
    bool scores = e->completion_tokens == 0 && e->logprobs;
    for (int32_t i = 0; i < e->n_tokens; i++)
        if (scores)
            h->score[h->n_scores++] = e->logprobs[i].logprob;
        else
            h->token[h->n_tokens++] = e->tokens[i];
    h->cached = e->cached_tokens;
    h->finish = (int32_t)e->finish;
}

typedef struct opened {
    vt_options *o;
    vt_model *m;
    vt_engine *e;
} opened;

/* An engine of a model under MODELS with adapters NAME=PATH. */
static void open_with(opened *x, const char *model, const char *const *lora, const char *draft)
{
    char path[256];
    vt_err err;
    snprintf(path, sizeof path, MODELS "%s", model);
    assert_int_equal(vt_options_new(&x->o, NULL), VT_OK);
    engine_option(x->o, "model", path);
    engine_option(x->o, "device", "cpu");
    engine_option(x->o, "kv-dtype", "f32");
    engine_option(x->o, "threads", "2");
    engine_option(x->o, "page-size", "4");
    engine_option(x->o, "token-budget", "16");
    engine_option(x->o, "max-running", "8");
    if (draft)
        engine_option(x->o, "draft", draft);
    for (; *lora; lora++)
        engine_option(x->o, "lora", *lora);
    if (vt_model_open(x->o, &x->m, &err) != VT_OK)
        fail_msg("%s", err.message);
    x->e = engine_open(x->m, x->o);
}

static void close_all(opened *x)
{
    vt_engine_free(x->e);
    vt_model_free(x->m);
    vt_options_free(x->o);
}

static vt_request_params ask(const golden *g, const char *adapter, bool scores, heard *h)
{
    vt_request_params p;
    vt_request_init(&p);
    p.prompt = g->ids;
    p.n_prompt = g->n;
    p.max_tokens = 8;
    p.ignore_eos = true;
    p.prompt_logprobs = scores;
    p.logprobs = scores ? 0 : -1;
    p.adapter = adapter;
    p.callback = hear;
    p.user = h;
    *h = (heard){0};
    return p;
}

static void check_parity(const char *model, const char *adapter)
{
    char text[256];
    golden g;
    heard h;
    opened x;
    read_golden(adapter, &g);
    snprintf(text, sizeof text, "a=" LORA "%s", adapter);
    open_with(&x, model, (const char *const[]){text, NULL}, NULL);
    vt_request_params p = ask(&g, "a", true, &h);
    engine_submit(x.e, &p);
    engine_run(x.e);
    assert_int_equal(h.n_scores, g.n - 1);
    double worst = 0;
    for (int32_t i = 0; i < h.n_scores; i++)
        worst = fmax(worst, fabs((double)h.score[i] - (double)g.logprob[i]));
    print_message("%s, %s: log-probabilities within %.2g\n", model, adapter, worst);
    assert_true(worst <= 1e-4);
    close_all(&x);
}

static void test_log_probabilities_are_those_of_peft(void **state)
{
    (void)state;
    check_parity("llama-mha-llama3", "llama-all");
    check_parity("llama-mha-llama3", "llama-patterns");
    check_parity("granite-four-scales", "granite-all");
}

/* Files of these families have the rows of q and k in another order than the adapter's. */
static void test_log_probabilities_are_the_same_on_gguf_files(void **state)
{
    (void)state;
    check_parity("llama-mha-llama3-BF16.gguf", "llama-all");
    check_parity("llama-mha-llama3-BF16.gguf", "llama-patterns");
    check_parity("granite-four-scales-BF16.gguf", "granite-all");
}

static const char *const both[] = {"a=" LORA "llama-all", "b=" LORA "llama-patterns", NULL};

/* Two adapters and none in the same steps, with chunks and drafts: bit by bit as each is alone. */
static void test_requests_of_several_adapters_beside_each_other_are_as_alone(void **state)
{
    (void)state;
    static const char *const name[] = {"a", NULL, "b", "a", "b", NULL};
    enum { N = sizeof name / sizeof *name };
    for (int drafts = 0; drafts < 2; drafts++) {
        golden g[N];
        heard alone[N], together[N];
        opened x;
        for (int i = 0; i < N; i++) {
            read_golden(i % 2 ? "llama-all" : "llama-patterns", &g[i]);
            g[i].n -= 3 * i;
        }
        open_with(&x, "llama-mha-llama3", both, drafts ? "lookup" : NULL);
        for (int i = 0; i < N; i++) {
            vt_request_params p = ask(&g[i], name[i], true, &alone[i]);
            engine_submit(x.e, &p);
            engine_run(x.e);
            vt_engine_flush_cache(x.e);
        }
        for (int i = 0; i < N; i++) {
            vt_request_params p = ask(&g[i], name[i], true, &together[i]);
            engine_submit(x.e, &p);
        }
        engine_run(x.e);
        for (int i = 0; i < N; i++) {
            assert_int_equal(together[i].n_tokens, 8);
            assert_memory_equal(together[i].token, alone[i].token, sizeof alone[i].token);
            assert_memory_equal(together[i].score, alone[i].score, sizeof alone[i].score);
        }
        assert_memory_not_equal(alone[0].score, alone[4].score, 8 * sizeof(float));
        close_all(&x);
    }
}

static int32_t cached_tokens(opened *x, const golden *g, const char *adapter)
{
    heard h;
    vt_request_params p = ask(g, adapter, false, &h);
    engine_submit(x->e, &p);
    engine_run(x->e);
    return h.cached;
}

static void test_adapters_share_no_prefixes(void **state)
{
    (void)state;
    golden g;
    opened x;
    read_golden("llama-all", &g);
    open_with(&x, "llama-mha-llama3", both, NULL);
    assert_int_equal(cached_tokens(&x, &g, "a"), 0);
    assert_int_equal(cached_tokens(&x, &g, "b"), 0);
    assert_int_equal(cached_tokens(&x, &g, NULL), 0);
    assert_true(cached_tokens(&x, &g, "a") > 30);
    assert_true(cached_tokens(&x, &g, "b") > 30);
    assert_true(cached_tokens(&x, &g, NULL) > 30);
    close_all(&x);
}

static void test_unknown_adapters_are_refused(void **state)
{
    (void)state;
    golden g;
    heard h;
    opened x;
    vt_err err;
    read_golden("llama-all", &g);
    open_with(&x, "llama-mha-llama3", both, NULL);
    vt_request_params p = ask(&g, "c", false, &h);
    assert_int_equal(vt_engine_submit(x.e, &p, NULL, &err), VT_ERR_USAGE);
    assert_non_null(strstr(err.message, "adapter is 'c'"));
    close_all(&x);
}

static int32_t calls_of(const char *model, const char *const *lora, int32_t n, const char *op)
{
    vt_limits limits = {.max_tokens = 64,
                        .max_seqs = 4,
                        .max_rows = 4,
                        .max_context = 128,
                        .page_size = 16,
                        .n_workers = 1};
    vt_target t = vt_target_cpu(VT_ISA_PORTABLE, &limits);
    vt_model *m;
    vt_described d;
    int32_t found = 0;
    assert_int_equal(vt_model_load(model, &m, NULL), VT_OK);
    assert_int_equal(vt_lora_load(m, lora, n, NULL), VT_OK);
    assert_int_equal(vt_describe(m, &t, VT_F32, &d, NULL), VT_OK);
    for (int32_t i = 0; i < d.program->n_calls; i++)
        found += !op || strcmp(d.program->call[i].op->name, op) == 0;
    vt_described_release(&d);
    vt_model_free(m);
    return found;
}

/* llama-patterns has parts for q, v, up and down of two layers: gate and up come apart for it. */
static void test_programs_have_calls_for_the_parts_alone(void **state)
{
    (void)state;
    int32_t plain = calls_of(MODELS "llama-mha-llama3", NULL, 0, NULL);
    assert_int_equal(calls_of(MODELS "llama-mha-llama3", NULL, 0, "lora"), 0);
    assert_int_equal(calls_of(MODELS "llama-mha-llama3", both + 1, 1, "lora"), 2 * 4);
    assert_int_equal(calls_of(MODELS "llama-mha-llama3", both + 1, 1, NULL), plain + 2 * (4 + 2));
}

/* ---- folders that are refused ---- */

static char folder[64];

static void put(const char *name, const void *bytes, size_t n)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

/* A file of the adapter llama-all; its bytes are the caller's. */
static char *file_of(const char *name, size_t *n)
{
    char path[160];
    snprintf(path, sizeof path, LORA "llama-all/%s", name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    char *bytes = malloc(1 << 16);
    assert_non_null(bytes);
    *n = fread(bytes, 1, (1 << 16) - 1, f);
    bytes[*n] = '\0';
    fclose(f);
    return bytes;
}

static vt_status load(const char *const *texts, int32_t n, vt_err *err)
{
    vt_model *m;
    assert_int_equal(vt_model_load(MODELS "llama-mha-llama3", &m, NULL), VT_OK);
    vt_status status = vt_lora_load(m, texts, n, err);
    assert_true((status == VT_OK) == (m->lora != NULL));
    vt_model_free(m);
    return status;
}

static vt_status load_folder(vt_err *err)
{
    char text[80];
    snprintf(text, sizeof text, "a=%s", folder);
    const char *texts[] = {text};
    return load(texts, 1, err);
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/vitrine-lora-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    static const char *const name[] = {"adapter_config.json", "adapter_model.safetensors"};
    for (int i = 0; i < 2; i++) {
        char path[160];
        snprintf(path, sizeof path, "%s/%s", folder, name[i]);
        unlink(path);
    }
    return rmdir(folder);
}

static void test_wrong_configurations_are_refused_by_the_field(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *says;
    } row[] = {
        {"\"peft_type\": \"LORA\"", "\"peft_type\": \"LOHA\"", "peft_type is \"LOHA\""},
        {"\"use_dora\": false", "\"use_dora\": true", "use_dora is set"},
        {"\"bias\": \"none\"", "\"bias\": \"all\"", "bias is \"all\""},
        {"\"fan_in_fan_out\": false", "\"fan_in_fan_out\": true", "fan_in_fan_out is set"},
        {"\"modules_to_save\": null", "\"modules_to_save\": [\"lm_head\"]",
         "modules_to_save is set"},
        {"\"lora_bias\": false", "\"lora_bias\": true", "lora_bias is set"},
        {"\"kasa_config\": null", "\"something_new\": 1", "something_new is set"},
        {"\"init_lora_weights\": true", "\"init_lora_weights\": \"pissa\"", "\"pissa\""},
        {"\"r\": 3", "\"r\": 0", "r is 0"},
        {"\"r\": 3", "\"r\": 513", "r is 513"},
        {"\"r\": 3", "\"r\": 4", "3 rows of"},
        {"\"lora_alpha\": 5", "\"lora_alpha\": \"5\"", "lora_alpha"},
        {"\"rank_pattern\": {}", "\"rank_pattern\": {\"q.*\": 3}", "regular expressions"},
        {"\"rank_pattern\": {}", "\"rank_pattern\": {\"q_proj\": 2}", "q_proj"},
        {"\"alpha_pattern\": {}", "\"alpha_pattern\": {\"q_proj\": \"x\"}", "alpha_pattern"},
    };
    size_t n_config, n_weights;
    char *config = file_of("adapter_config.json", &n_config),
         *weights = file_of("adapter_model.safetensors", &n_weights);
    put("adapter_model.safetensors", weights, n_weights);
    put("adapter_config.json", config, n_config);
    vt_err err;
    if (load_folder(&err) != VT_OK)
        fail_msg("%s", err.message);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char *text = malloc(n_config + 200), *at = strstr(config, row[i].from);
        assert_non_null(text);
        if (!at)
            fail_msg("%s is not in the file", row[i].from);
        int n = snprintf(text, n_config + 200, "%.*s%s%s", (int)(at - config), config, row[i].to,
                         at + strlen(row[i].from));
        put("adapter_config.json", text, (size_t)n);
        assert_int_not_equal(load_folder(&err), VT_OK);
        if (!strstr(err.message, row[i].says))
            fail_msg("'%s' does not say '%s'", err.message, row[i].says);
        free(text);
    }
    free(config);
    free(weights);
}

/* A change of one byte of the header, or an end at any place: an error or an adapter, and no harm
 * (under ASan). */
static void test_broken_weights_do_no_harm(void **state)
{
    (void)state;
    size_t n_config, n;
    char *config = file_of("adapter_config.json", &n_config),
         *weights = file_of("adapter_model.safetensors", &n);
    vt_err err;
    put("adapter_config.json", config, n_config);
    for (size_t i = 0; i < 2048; i += 7) {
        char old = weights[i];
        weights[i] = (char)(old ^ (1 << i % 8));
        put("adapter_model.safetensors", weights, n);
        vt_status status = load_folder(&err);
        assert_true(status == VT_OK || err.message[0]);
        weights[i] = old;
    }
    for (size_t end = 0; end < n; end += 977) {
        put("adapter_model.safetensors", weights, end);
        assert_int_not_equal(load_folder(&err), VT_OK);
    }
    free(config);
    free(weights);
}

static void test_tensors_of_other_modules_are_refused_by_name(void **state)
{
    (void)state;
    static const char *const to[] = {"self_attn.r_proj.lora_A", "self_attn.q_proj.lora_C",
                                     "self_attn.o_proj.lora_A"};
    size_t n_config, n;
    char *config = file_of("adapter_config.json", &n_config);
    vt_err err;
    put("adapter_config.json", config, n_config);
    for (size_t i = 0; i < sizeof to / sizeof *to; i++) {
        char *weights = file_of("adapter_model.safetensors", &n);
        char *at = memmem(weights, n, "self_attn.q_proj.lora_A", 23);
        assert_non_null(at);
        memcpy(at, to[i], 23);
        put("adapter_model.safetensors", weights, n);
        assert_int_not_equal(load_folder(&err), VT_OK);
        if (!strstr(err.message, i < 2 ? to[i] : "self_attn.o_proj"))
            fail_msg("'%s' does not name %s", err.message, to[i]);
        free(weights);
    }
    free(config);
}

static void test_wrong_names_are_refused(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {
        {"llama-all", "NAME=PATH"},
        {"=x", "NAME=PATH"},
        {"a=", "NAME=PATH"},
        {"a b=" LORA "llama-all", "blanks"},
        {"llama-mha-llama3=" LORA "llama-all", "own name"},
        {"a=" LORA "no-such", "no-such"},
        {"a=" LORA "granite-all", "granite-all"},
    };
    vt_err err;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_not_equal(load(wrong[i], 1, &err), VT_OK);
        if (!strstr(err.message, wrong[i][1]))
            fail_msg("'%s' does not say '%s'", err.message, wrong[i][1]);
    }
    const char *twice[] = {both[0], both[0]}, *many[VT_LORA_MOST + 1];
    assert_int_equal(load(twice, 2, &err), VT_ERR_USAGE);
    assert_non_null(strstr(err.message, "two adapters"));
    for (int i = 0; i <= VT_LORA_MOST; i++)
        many[i] = both[0];
    assert_int_equal(load(many, VT_LORA_MOST + 1, &err), VT_ERR_USAGE);
    assert_non_null(strstr(err.message, "at most 32"));
}

/* Ranks and embeddings have no adapters. */
static void test_what_cannot_have_adapters_says_so(void **state)
{
    (void)state;
    static const char *const option[][2] = {{"tp", "2"}, {"pooling", "mean"}};
    for (int i = 0; i < 2; i++) {
        opened x = {0};
        vt_err err;
        assert_int_equal(vt_options_new(&x.o, NULL), VT_OK);
        engine_option(x.o, "model", MODELS "granite-four-scales");
        engine_option(x.o, "device", "cpu");
        engine_option(x.o, "threads", "2");
        engine_option(x.o, "lora", "a=" LORA "granite-all");
        engine_option(x.o, option[i][0], option[i][1]);
        assert_int_equal(vt_model_open(x.o, &x.m, NULL), VT_OK);
        assert_int_equal(vt_engine_new(x.m, x.o, &x.e, &err), VT_ERR_UNSUPPORTED);
        assert_non_null(strstr(err.message, "lora"));
        vt_model_free(x.m);
        vt_options_free(x.o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_log_probabilities_are_those_of_peft),
        cmocka_unit_test(test_log_probabilities_are_the_same_on_gguf_files),
        cmocka_unit_test(test_requests_of_several_adapters_beside_each_other_are_as_alone),
        cmocka_unit_test(test_adapters_share_no_prefixes),
        cmocka_unit_test(test_unknown_adapters_are_refused),
        cmocka_unit_test(test_programs_have_calls_for_the_parts_alone),
        cmocka_unit_test_setup_teardown(test_wrong_configurations_are_refused_by_the_field,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_broken_weights_do_no_harm, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_tensors_of_other_modules_are_refused_by_name,
                                        make_folder, remove_folder),
        cmocka_unit_test(test_wrong_names_are_refused),
        cmocka_unit_test(test_what_cannot_have_adapters_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
