/* vitrine tokenize: ids of a text, or the bytes of ids. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "cli/cli.h"
#include "cli/models/metadata.h"
#include "model/model.h"

/* A tokenizer, and what it belongs to: a model, or a tokenizer.json alone. */
typedef struct words {
    vt_model *model;
    vt_tokenizer *own; /* of a tokenizer.json; ours to free */
    const vt_tokenizer *tokenizer;
} words;

static bool is_tokenizer_json(const char *path)
{
    size_t n = strlen(path);
    return n >= 5 && strcmp(path + n - 5, ".json") == 0;
}

/* tokenizer_config.json beside tokenizer.json says which special tokens are BOS and EOS; it may be
 * absent. */
static vt_status open_json(const char *path, words *w, vt_err *err)
{
    vt_buf json = {0}, config = {0};
    char beside[4096];
    const char *slash = strrchr(path, '/');
    int n = snprintf(beside, sizeof beside, "%.*stokenizer_config.json",
                     slash ? (int)(slash - path) + 1 : 0, path);
    TRY(cli_read_file(path, &json, err));
    if (n < 0 || (size_t)n >= sizeof beside || cli_read_file(beside, &config, NULL) != VT_OK)
        config = (vt_buf){0};
    vt_status status = vt_tokenizer_from_json(path, json.data ? json.data : "", json.len,
                                              config.data, config.len, &w->own, err);
    w->tokenizer = w->own;
    vt_buf_release(&json);
    vt_buf_release(&config);
    return status;
}

static vt_status open_words(const cli *c, words *w, vt_err *err)
{
    const char *path = vt_options_get(c->options, "model");
    if (is_tokenizer_json(path))
        return open_json(path, w, err);
    TRY(cli_open_metadata(c, &w->model, err));
    w->tokenizer = w->model->tokenizer;
    if (!w->tokenizer)
        return vt_fail(err, VT_ERR_MODEL, "%s has no tokenizer", path);
    return VT_OK;
}

static int print_bytes(const cli *c, const vt_buf *text)
{
    if (c->json)
        return cli_print_json(
            json_pack("{s:o}", "text", cli_json_text(text->data ? text->data : "", text->len)));
    return cli_put_all(stdout, text->data ? text->data : "", text->len) ? CLI_DONE : CLI_FAILED;
}

static vt_status decode(const cli *c, const words *w, int *code, vt_err *err)
{
    int32_t *ids = NULL, n = 0;
    vt_buf text = {0};
    TRY(vt_parse_ids(vt_options_get(c->options, "decode"), "--decode", &ids, &n, err));
    vt_status status = VT_OK;
    for (int32_t i = 0; i < n && status == VT_OK; i++)
        if (ids[i] >= vt_tokenizer_vocab(w->tokenizer))
            status = vt_fail(err, VT_ERR_USAGE, "--decode: token %d found, expected ids below %d",
                             ids[i], vt_tokenizer_vocab(w->tokenizer));
    if (status == VT_OK)
        status = vt_tokenizer_decode(w->tokenizer, ids, (size_t)n, false, &text, err);
    if (status == VT_OK)
        *code = print_bytes(c, &text);
    vt_buf_release(&text);
    free(ids);
    return status;
}

static int print_ids(const cli *c, const vt_ids *ids)
{
    if (!c->json) {
        for (size_t i = 0; i < ids->n; i++)
            printf("%s%d", i ? "," : "", ids->id[i]);
        putchar('\n');
        return CLI_DONE;
    }
    json_t *list = json_array();
    for (size_t i = 0; i < ids->n; i++)
        json_array_append_new(list, json_integer(ids->id[i]));
    return cli_print_json(json_pack("{s:o}", "ids", list));
}

static vt_status encode(const cli *c, const words *w, int *code, vt_err *err)
{
    vt_buf text = {0};
    vt_ids ids = {0};
    unsigned flags = 0;
    if (vt_options_flag(c->options, "special"))
        flags |= VT_TOKENIZE_SPECIAL;
    if (vt_options_flag(c->options, "add-bos"))
        flags |= VT_TOKENIZE_ADD_BOS;
    TRY(cli_read_file("-", &text, err));
    vt_status status = vt_tokenizer_encode(w->tokenizer, text.data ? text.data : "", text.len,
                                           flags, &ids, err);
    if (status == VT_OK)
        *code = print_ids(c, &ids);
    vt_ids_release(&ids);
    vt_buf_release(&text);
    return status;
}

int cli_tokenize(cli *c)
{
    vt_err err = {0};
    words w = {0};
    int code = CLI_DONE;
    bool back = vt_options_given(c->options, "decode");
    vt_status status = VT_OK;
    if (back && (vt_options_flag(c->options, "special") || vt_options_flag(c->options, "add-bos")))
        status = vt_fail(&err, VT_ERR_USAGE,
                         "--decode: --special and --add-bos are for the other direction");
    if (status == VT_OK)
        status = open_words(c, &w, &err);
    if (status == VT_OK)
        status = back ? decode(c, &w, &code, &err) : encode(c, &w, &code, &err);
    vt_tokenizer_free(w.own);
    vt_model_free(w.model);
    return status == VT_OK ? code : cli_fail(&err);
}
