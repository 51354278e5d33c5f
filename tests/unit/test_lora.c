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

#include "common/bound.h"
#include "common/engine_run.h"
#include "common/lora_run.h"
#include "engine/engine.h"
#include "exec/describe.h"
#include "model/load.h"
#include "model/lora/lora.h"

#define MODELS LORA_MODELS
#define LORA LORA_GOLDEN

typedef struct opened {
    vt_options *o;
    vt_model *m;
    vt_engine *e;
} opened;

/* An engine over `tp` ranks of a model under MODELS, with adapters NAME=PATH. */
static void open_ranks(opened *x, const char *model, const char *const *lora, const char *draft,
                       int32_t tp)
{
    char path[256];
    vt_err err;
    snprintf(path, sizeof path, MODELS "%s", model);
    assert_int_equal(vt_options_new(&x->o, NULL), VT_OK);
    engine_option(x->o, "model", path);
    engine_option(x->o, "device", "cpu");
    engine_option(x->o, "kv-dtype", "f32");
    engine_option_int(x->o, "threads", tp > 2 ? tp : 2);
    engine_option_int(x->o, "tp", tp);
    engine_option(x->o, "page-size", "4");
    engine_option(x->o, "token-budget", "16");
    engine_option(x->o, "max-context", "96"); /* Phi-3's factors for short contexts */
    engine_option(x->o, "max-running", "8");
    if (draft)
        engine_option(x->o, "draft", draft);
    for (; *lora; lora++)
        engine_option(x->o, "lora", *lora);
    if (vt_model_open(x->o, &x->m, &err) != VT_OK)
        fail_msg("%s", err.message);
    x->e = engine_open(x->m, x->o);
}

static void open_with(opened *x, const char *model, const char *const *lora, const char *draft)
{
    open_ranks(x, model, lora, draft, 1);
}

static void close_all(opened *x)
{
    vt_engine_free(x->e);
    vt_model_free(x->m);
    vt_options_free(x->o);
}

/* Scores the golden prompt on `tp` ranks, and answers it: *h. */
static void check_ranks(const char *model, const char *adapter, int32_t tp, lora_heard *h)
{
    char text[256], name[64];
    lora_golden g;
    opened x;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(adapter, "."), adapter);
    lora_read_golden(name, &g);
    snprintf(text, sizeof text, "a=" LORA "%s", adapter);
    open_ranks(&x, model, (const char *const[]){text, NULL}, NULL, tp);
    vt_request_params p = lora_ask(&g, "a", true, h);
    engine_submit(x.e, &p);
    engine_run(x.e);
    double worst = lora_worst(&g, h);
    print_message("%s, %s, %d ranks: log-probabilities within %.2g\n", model, adapter, tp, worst);
    assert_true(worst <= fp32_bound());
    close_all(&x);
}

static void check_parity(const char *model, const char *adapter)
{
    lora_heard h;
    check_ranks(model, adapter, 1, &h);
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

/* Adapters as llama.cpp's converter writes them: rows of q and k are in the order of GGUF files,
 * whatever the model's file is. */
static void test_log_probabilities_are_the_same_of_gguf_adapters(void **state)
{
    (void)state;
    check_parity("llama-mha-llama3", "llama-all.gguf");
    check_parity("llama-mha-llama3-BF16.gguf", "llama-all.gguf");
    check_parity("granite-four-scales", "granite-all.gguf");
    check_parity("granite-four-scales-BF16.gguf", "granite-all.gguf");
}

/* q, k and v, and gate and up, are one module each (tools/fixtures/make_lora_fused.py). */
static void test_log_probabilities_of_fused_projections_are_those_of_merged_weights(void **state)
{
    (void)state;
    check_parity("phi3-longrope", "phi3-fused");
    check_parity("phi3-longrope-BF16.gguf", "phi3-fused");
}

/* Column-parallel matrices cut B, row-parallel ones A. */
static void test_ranks_give_the_tokens_of_one(void **state)
{
    (void)state;
    static const char *const row[][2] = {{"llama-mha-llama3", "llama-all"},
                                         {"llama-mha-llama3-BF16.gguf", "llama-patterns"},
                                         {"granite-four-scales", "granite-all"},
                                         {"phi3-longrope", "phi3-fused"}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        lora_heard one, many;
        check_ranks(row[i][0], row[i][1], 1, &one);
        int32_t most = strstr(row[i][0], "phi3") ? 2 : 3; /* it has two query heads */
        for (int32_t tp = 2; tp <= most; tp++) {
            check_ranks(row[i][0], row[i][1], tp, &many);
            assert_memory_equal(many.token, one.token, sizeof one.token);
        }
    }
}

static const char *const both[] = {"a=" LORA "llama-all", "b=" LORA "llama-patterns", NULL};

/* Two adapters and none in the same steps, with chunks and drafts. */
static void test_requests_of_several_adapters_beside_each_other_are_as_alone(void **state)
{
    (void)state;
    static const char *const name[] = {"a", NULL, "b", "a", "b", NULL};
    for (int drafts = 0; drafts < 2; drafts++) {
        opened x;
        open_with(&x, "llama-mha-llama3", both, drafts ? "lookup" : NULL);
        lora_compare_alone(x.e, name, sizeof name / sizeof *name);
        close_all(&x);
    }
}

static void test_an_adapter_changes_scores(void **state)
{
    (void)state;
    static const char *const name[] = {NULL, "a", "b"};
    lora_golden g;
    lora_heard h[3];
    opened x;
    lora_read_golden("llama-all", &g);
    open_with(&x, "llama-mha-llama3", both, NULL);
    for (int i = 0; i < 3; i++) {
        vt_request_params p = lora_ask(&g, name[i], true, &h[i]);
        engine_submit(x.e, &p);
        engine_run(x.e);
    }
    assert_memory_not_equal(h[0].score, h[1].score, 8 * sizeof(float));
    assert_memory_not_equal(h[0].score, h[2].score, 8 * sizeof(float));
    assert_memory_not_equal(h[1].score, h[2].score, 8 * sizeof(float));
    close_all(&x);
}

static int32_t cached_tokens(opened *x, const lora_golden *g, const char *adapter)
{
    lora_heard h;
    vt_request_params p = lora_ask(g, adapter, false, &h);
    engine_submit(x->e, &p);
    engine_run(x->e);
    return h.cached;
}

static void test_adapters_share_no_prefixes(void **state)
{
    (void)state;
    lora_golden g;
    opened x;
    lora_read_golden("llama-all", &g);
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
    lora_golden g;
    lora_heard h;
    opened x;
    vt_err err;
    lora_read_golden("llama-all", &g);
    open_with(&x, "llama-mha-llama3", both, NULL);
    vt_request_params p = lora_ask(&g, "c", false, &h);
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

/* llama-patterns has parts for q, v, up and down of two layers: a call for q and v, one for up, for
 * which the activation comes apart, and one for down. */
static void test_programs_have_calls_for_the_parts_alone(void **state)
{
    (void)state;
    int32_t plain = calls_of(MODELS "llama-mha-llama3", NULL, 0, NULL);
    assert_int_equal(calls_of(MODELS "llama-mha-llama3", NULL, 0, "lora"), 0);
    assert_int_equal(calls_of(MODELS "llama-mha-llama3", both + 1, 1, "lora"), 2 * 3);
    assert_int_equal(calls_of(MODELS "llama-mha-llama3", both + 1, 1, NULL), plain + 2 * (3 + 1));
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
        {"\"peft_type\": \"LORA\"", "\"peft_type\": \"LOHA\"", "\"peft_type\" is \"LOHA\""},
        {"\"use_dora\": false", "\"use_dora\": true", "\"use_dora\" is true"},
        {"\"bias\": \"none\"", "\"bias\": \"all\"", "\"bias\" is \"all\""},
        {"\"fan_in_fan_out\": false", "\"fan_in_fan_out\": true", "\"fan_in_fan_out\" is true"},
        {"\"modules_to_save\": null", "\"modules_to_save\": [\"lm_head\"]",
         "\"modules_to_save\" is an array"},
        {"\"lora_bias\": false", "\"lora_bias\": true", "\"lora_bias\" is true"},
        {"\"kasa_config\": null", "\"something_new\": 1", "\"something_new\" is 1, and"},
        {"\"init_lora_weights\": true", "\"init_lora_weights\": \"pissa\"",
         "\"init_lora_weights\" is \"pissa\"; true"},
        {"\"init_lora_weights\": true", "\"init_lora_weights\": 3",
         "\"init_lora_weights\" is 3; true"},
        {"\"r\": 3", "\"r\": 0", "\"r\" is 0; a whole rank"},
        {"\"r\": 3", "\"r\": 513", "\"r\" is 513; a whole rank"},
        {"\"r\": 3", "\"r\": 4", "3 rows of"},
        {"\"lora_alpha\": 5", "\"lora_alpha\": \"5\"", "lora_alpha"},
        {"\"rank_pattern\": {}", "\"rank_pattern\": {\"q.*\": 3}", "regular expressions"},
        {"\"rank_pattern\": {}", "\"rank_pattern\": {\"q_proj\": 2}", "q_proj"},
        {"\"alpha_pattern\": {}", "\"alpha_pattern\": {\"q_proj\": \"x\"}",
         "\"q_proj\" of \"alpha_pattern\" is \"x\"; a number"},
        {"\"alpha_pattern\": {}", "\"alpha_pattern\": [1]",
         "\"alpha_pattern\" is an array; an object was expected"},
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

/* ---- GGUF files ---- */

static vt_status load_gguf(const void *bytes, size_t n, vt_err *err)
{
    char text[160];
    put("adapter_model.safetensors", bytes, n); /* the name says nothing */
    snprintf(text, sizeof text, "a=%s/adapter_model.safetensors", folder);
    const char *texts[] = {text};
    return load(texts, 1, err);
}

static char *gguf_bytes(size_t *n)
{
    char *bytes = malloc(1 << 16);
    FILE *f = fopen(LORA "llama-all.gguf", "rb");
    assert_non_null(bytes);
    assert_non_null(f);
    *n = fread(bytes, 1, 1 << 16, f);
    fclose(f);
    return bytes;
}

/* `from` becomes `to` of equal length where it first stands behind `after`. */
static void test_wrong_gguf_adapters_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *after, *from, *to, *says;
    } row[] = {
        {"general.type", "adapter", "adaptor", "general.type is \"adaptor\""},
        {"adapter.type", "lora", "loha", "adapter.type is \"loha\""},
        {"general.architecture", "llama", "qwen2", "general.architecture is \"qwen2\""},
        {"", "adapter.lora.alpha", "adapter.lora.alpho", "adapter.lora.alpha"},
        {"", "blk.0.attn_q.weight.lora_a", "blk.0.attn_r.weight.lora_a", "blk.0.attn_r"},
        {"", "blk.0.attn_q.weight.lora_a", "blk.7.attn_q.weight.lora_a", "blk.7.attn_q"},
        {"", "blk.0.ffn_down.weight.lora_a", "blk.0.ffn_exps.weight.lora_a", "adapters of experts"},
        {"", "blk.0.attn_v.weight.lora_b", "blk.0.attn_v.weight.lora_c", "lora_c"},
        {"", "blk.0.attn_v.weight.lora_b", "blk.0.attn_q.weight.lora_b", "blk.0.attn_q"},
        {"", "blk.0.attn_k.weight.lora_a", "blk.0.ffn_up.weight..lora_a", "blk.0.ffn_up"},
    };
    size_t n;
    vt_err err;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char *bytes = gguf_bytes(&n);
        char *at = memmem(bytes, n, row[i].after, strlen(row[i].after));
        assert_non_null(at);
        at += strlen(row[i].after);
        at = memmem(at, (size_t)(bytes + n - at), row[i].from, strlen(row[i].from));
        assert_non_null(at);
        memcpy(at, row[i].to, strlen(row[i].from));
        assert_int_not_equal(load_gguf(bytes, n, &err), VT_OK);
        if (!strstr(err.message, row[i].says))
            fail_msg("'%s' does not say '%s'", err.message, row[i].says);
        free(bytes);
    }
}

static void test_broken_gguf_adapters_do_no_harm(void **state)
{
    (void)state;
    size_t n;
    vt_err err;
    char *bytes = gguf_bytes(&n);
    if (load_gguf(bytes, n, &err) != VT_OK)
        fail_msg("%s", err.message);
    for (size_t i = 0; i < 3000; i += 7) {
        char old = bytes[i];
        bytes[i] = (char)(old ^ (1 << i % 8));
        vt_status status = load_gguf(bytes, n, &err);
        assert_true(status == VT_OK || err.message[0]);
        bytes[i] = old;
    }
    for (size_t end = 0; end < n; end += 977)
        assert_int_not_equal(load_gguf(bytes, end, &err), VT_OK);
    free(bytes);
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

static void test_embeddings_have_no_adapters(void **state)
{
    (void)state;
    opened x = {0};
    vt_err err;
    assert_int_equal(vt_options_new(&x.o, NULL), VT_OK);
    engine_option(x.o, "model", MODELS "granite-four-scales");
    engine_option(x.o, "device", "cpu");
    engine_option(x.o, "threads", "2");
    engine_option(x.o, "lora", "a=" LORA "granite-all");
    engine_option(x.o, "pooling", "mean");
    assert_int_equal(vt_model_open(x.o, &x.m, NULL), VT_OK);
    assert_int_equal(vt_engine_new(x.m, x.o, &x.e, &err), VT_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "lora"));
    vt_model_free(x.m);
    vt_options_free(x.o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_log_probabilities_are_those_of_peft),
        cmocka_unit_test(test_log_probabilities_are_the_same_on_gguf_files),
        cmocka_unit_test(test_log_probabilities_are_the_same_of_gguf_adapters),
        cmocka_unit_test(test_log_probabilities_of_fused_projections_are_those_of_merged_weights),
        cmocka_unit_test(test_ranks_give_the_tokens_of_one),
        cmocka_unit_test(test_requests_of_several_adapters_beside_each_other_are_as_alone),
        cmocka_unit_test(test_an_adapter_changes_scores),
        cmocka_unit_test(test_adapters_share_no_prefixes),
        cmocka_unit_test(test_unknown_adapters_are_refused),
        cmocka_unit_test(test_programs_have_calls_for_the_parts_alone),
        cmocka_unit_test_setup_teardown(test_wrong_configurations_are_refused_by_the_field,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_broken_weights_do_no_harm, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_tensors_of_other_modules_are_refused_by_name,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_wrong_gguf_adapters_are_refused_by_name, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(test_broken_gguf_adapters_do_no_harm, make_folder,
                                        remove_folder),
        cmocka_unit_test(test_wrong_names_are_refused),
        cmocka_unit_test(test_embeddings_have_no_adapters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
