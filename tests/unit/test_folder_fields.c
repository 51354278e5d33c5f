/* A field of a model folder's JSON files that has a wrong type, length or value: the message names
 * the file and the field, and says what was found and what was expected. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files/map.h"
#include "model/load.h"

#include "common/read_config.h"

#define PLAIN "tests/golden/folders/ok_plain/"
#define OF(type, rest) "{\"model_type\": \"" type "\", \"num_hidden_layers\": 2, " SHAPE rest "}"
#define TYPE "\"type\": \"a.b."
#define MODULES(rest) "[{" TYPE "Transformer\", \"path\": \"\"}" rest "]"
#define POOLED MODULES(", {" TYPE "Pooling\", \"path\": \"1_Pooling\"}")

static char folder[] = "/tmp/vitrine_fields_XXXXXX";

static void path_of(const char *name, char out[200]) { snprintf(out, 200, "%s/%s", folder, name); }

static void put(const char *name, const void *bytes, size_t n)
{
    char path[200];
    path_of(name, path);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f) != 0)
        fail_msg("%s cannot be written", path);
}

static void drop(const char *name)
{
    char path[200];
    path_of(name, path);
    unlink(path);
}

static void copy(const char *name)
{
    char from[200];
    const void *bytes;
    size_t n;
    snprintf(from, sizeof from, PLAIN "%s", name);
    assert_int_equal(file_map(from, &bytes, &n, NULL), VT_OK);
    put(name, bytes, n);
    file_unmap(bytes, n);
}

static int make_folder(void **state)
{
    (void)state;
    char path[200];
    assert_non_null(mkdtemp(folder));
    path_of("1_Pooling", path);
    assert_int_equal(mkdir(path, 0700), 0);
    copy("config.json");
    copy("model.safetensors");
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    char path[200];
    drop("config.json");
    drop("model.safetensors");
    path_of("1_Pooling", path);
    rmdir(path);
    return rmdir(folder);
}

/* Loads the folder and ends the test unless that fails with the file's path and these words. */
static void expect_said(const char *name, const char *words)
{
    char path[200];
    vt_model *m;
    vt_err err = {0};
    path_of(name, path);
    if (vt_model_load(folder, &m, &err) == VT_OK)
        fail_msg("%s was taken; expected: %s", name, words);
    if (!strstr(err.message, path) || !strstr(err.message, words))
        fail_msg("\"%s\" lacks \"%s: ...%s\"", err.message, name, words);
}

static void test_folder_with_a_wrong_field_says_what_was_found_and_expected(void **state)
{
    (void)state;
    static const struct {
        const char *file, *text, *words;
    } row[] = {
        {"modules.json", "{}", "the file holds an object; an array of 1 to 16 modules was"},
        {"modules.json", "[]", "the file holds an array of 0; one of 1 to 16 modules was expected"},
        {"modules.json", "[{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}]",
         "the file holds an array of 17; one of 1 to 16 modules was expected"},
        {"modules.json", "[3]", "module 0 is a number; an object was expected"},
        {"modules.json", "[{}]", "\"type\" of module 0 is missing; a string was expected"},
        {"modules.json", "[{\"type\": 3}]", "\"type\" of module 0 is a number; a string was"},
        {"modules.json", "[{" TYPE "Transformer\", \"path\": []}]",
         "\"path\" of module 0 is an array; a string was expected"},
        {"modules.json", MODULES(""), "the Transformer alone; a Pooling module behind it was"},
        {"modules.json", MODULES(", {" TYPE "Pooling\"}"),
         "\"path\" of the Pooling module is missing; the name of a folder"},
        {"modules.json", MODULES(", {" TYPE "Pooling\", \"path\": \"../x\"}"),
         "\"path\" of the Pooling module is \"../x\"; the name of a folder"},
        {"tokenizer_config.json", "[]", "the file holds an array; an object was expected"},
        {"tokenizer_config.json", "{\"bos_token\": 3}",
         "\"bos_token\" is a number; a string or an object with \"content\" was expected"},
        {"tokenizer_config.json", "{\"eos_token\": {\"content\": [3]}}",
         "\"content\" of \"eos_token\" is an array; a string was expected"},
        {"tokenizer_config.json", "{\"eos_token\": {}}", "\"content\" of \"eos_token\" is missing"},
        {"tokenizer_config.json", "{\"add_bos_token\": \"yes\"}",
         "\"add_bos_token\" is a string; true or false was expected"},
        {"tokenizer_config.json", "{\"do_lower_case\": 1}", "\"do_lower_case\" is a number; true"},
        {"tokenizer_config.json", "{\"chat_template\": 3}",
         "\"chat_template\" is a number; a string or a list of named ones was expected"},
        {"tokenizer_config.json", "{\"chat_template\": [{\"name\": \"default\"}]}",
         "\"template\" of the \"chat_template\" that counts is missing; a list of objects"},
        {"generation_config.json", "[]", "the file holds an array; an object was expected"},
        {"generation_config.json", "{\"eos_token_id\": -1}",
         "\"eos_token_id\" is -1; a token id or a list of them was expected"},
        {"generation_config.json", "{\"eos_token_id\": [2, {}]}",
         "\"eos_token_id\" holds an object; a token id or a list of them was expected"},
        {"generation_config.json", "{\"temperature\": \"hot\"}",
         "\"temperature\" is a string; a number was expected"},
        {"generation_config.json", "{\"temperature\": -1}", "\"temperature\" is -1 (0 to 100"},
        {"generation_config.json", "{\"top_p\": 1.5}", "\"top_p\" is 1.5 (0 to 1 expected)"},
        {"generation_config.json", "{\"repetition_penalty\": 0}", "\"repetition_penalty\" is 0 ("},
        {"generation_config.json", "{\"do_sample\": \"no\"}",
         "\"do_sample\" is a string; true or false was expected"},
        {"generation_config.json", "{\"top_k\": 1.5}", "\"top_k\" is 1.5; a whole number of 32"},
        {"model.safetensors.index.json", "[]", "the file holds an array; an object was expected"},
        {"model.safetensors.index.json", "{}", "\"weight_map\" is missing; an object was expected"},
        {"model.safetensors.index.json", "{\"weight_map\": [1]}",
         "\"weight_map\" is an array; an object was expected"},
        {"model.safetensors.index.json", "{\"weight_map\": {\"t\": []}}",
         "\"weight_map\" has an array for t; the name of a file was expected"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        put(row[i].file, row[i].text, strlen(row[i].text));
        expect_said(row[i].file, row[i].words);
        drop(row[i].file);
    }
}

static void test_folder_with_a_wrong_pooling_says_what_was_found_and_expected(void **state)
{
    (void)state;
    static const struct {
        const char *file, *text, *words;
    } row[] = {
        {"1_Pooling/config.json", "[]", "the file holds an array; an object was expected"},
        {"1_Pooling/config.json", "{\"pooling_mode\": 3}",
         "\"pooling_mode\" is a number; a string"},
        {"1_Pooling/config.json", "{\"pooling_mode_cls_token\": 1}",
         "\"pooling_mode_cls_token\" is a number; true or false was expected"},
        {"1_Pooling/config.json", "{}", "0 pooling modes are set; 1 was expected"},
        {"config_sentence_transformers.json", "{\"prompts\": []}",
         "\"prompts\" is an array; an object was expected"},
        {"config_sentence_transformers.json", "{\"prompts\": {\"query\": 3}}",
         "\"query\" of \"prompts\" is a number; a string was expected"},
    };
    static const char fine[] = "{\"pooling_mode\": \"mean\"}";
    put("modules.json", POOLED, strlen(POOLED));
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        put("1_Pooling/config.json", fine, strlen(fine));
        put(row[i].file, row[i].text, strlen(row[i].text));
        expect_said(row[i].file, row[i].words);
        drop(row[i].file);
    }
    drop("1_Pooling/config.json");
    drop("modules.json");
}

static void test_config_with_a_wrong_field_says_what_was_found_and_expected(void **state)
{
    (void)state;
#define FP8(block) \
    OF("llama",    \
       "\"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": " block "}")
#define SPARSE(rest)                                                   \
    OF("qwen3_moe", "\"num_experts\": 4, \"num_experts_per_tok\": 2, " \
                    "\"moe_intermediate_size\": 8, \"mlp_only_layers\": " rest)
    static const struct {
        const char *config, *words;
    } row[] = {
        {FP8("128"), "\"weight_block_size\" is a number; an array of 2 was expected"},
        {FP8("[128]"), "\"weight_block_size\" is an array of 1; an array of 2 was expected"},
        {FP8("[128, 64]"), "\"weight_block_size\" is [128, 64]; [128, 128], the only one"},
        {FP8("[128, \"128\"]"),
         "\"weight_block_size\" is [128, \"128\"]; [128, 128], the only one"},
        {FP8("[128, 128], \"activation_scheme\": \"token\""),
         "\"activation_scheme\" token is not supported (dynamic and static are)"},
        {FP8("[128, 128], \"activation_scheme\": true"), "\"activation_scheme\""},
        {OF("llama", "\"quantization_config\": \"fp8\""),
         "\"quantization_config\" is a string; an object was expected"},
        {OF("llama", "\"architectures\": \"LlamaForCausalLM\""),
         "\"architectures\" is a string; an array was expected"},
        {OF("llama", "\"architectures\": [3]"),
         "\"architectures\" holds a number in place 0; a string was expected"},
        {OF("llama", "\"rope_parameters\": [1]"),
         "\"rope_parameters\", or what it holds for a kind of layers, is an array; an object was"},
        {OF("gemma3_text", "\"rope_parameters\": {\"full_attention\": 3}"),
         "\"rope_parameters\", or what it holds for a kind of layers, is a number; an object was"},
        {SPARSE("3"), "\"mlp_only_layers\" is a number; an array was expected"},
        {SPARSE("[0.5]"), "\"mlp_only_layers\" holds 0.5 in place 0; a whole number from 0 to 1"},
        {SPARSE("[\"0\"]"), "\"mlp_only_layers\" holds \"0\" in place 0; a whole number from 0 to"},
        {OF("smollm3", "\"no_rope_layers\": [1, 2]"),
         "\"no_rope_layers\" holds 2 in place 1; a whole number from 0 to 1 was expected"},
        {OF("llama", "\"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4, "
                     "\"dynamic\": [1]}"),
         "\"dynamic\" is an array; an object was expected"},
        {OF("llama", "\"quantization_config\": {\"quant_method\": \"compressed-tensors\", "
                     "\"config_groups\": [1]}"),
         "\"config_groups\" is an array; an object was expected"},
        {OF("gemma4_text", "\"layer_types\": [\"sliding_attention\", \"full_attention\"], "
                           "\"sliding_window\": 8, \"per_layer_config\": [1]"),
         "\"per_layer_config\" is an array; an object was expected"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        expect_refused(row[i].config, row[i].words);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_folder_with_a_wrong_field_says_what_was_found_and_expected),
        cmocka_unit_test(test_folder_with_a_wrong_pooling_says_what_was_found_and_expected),
        cmocka_unit_test(test_config_with_a_wrong_field_says_what_was_found_and_expected),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
