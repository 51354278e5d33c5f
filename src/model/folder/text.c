#include "model/folder/text.h"

#include <stdio.h>
#include <sys/stat.h>

#include "files/json_flat.h"
#include "files/map.h"
#include "text/template/template.h"
#include "text/tokenizer/tokenizer.h"

enum { MAX_CONFIG = 16 << 20, MAX_TOKENIZER = 256 << 20, MAX_TEMPLATE = 4 << 20 };

typedef struct text_loader {
    vt_model *m;
    const char *folder;
    vt_err *err;
} text_loader;

/* Writes folder/name to `out`; true if that file exists. */
static bool has_file(const text_loader *l, const char *name, char *out, size_t size)
{
    struct stat st;
    return (size_t)snprintf(out, size, "%s/%s", l->folder, name) < size && stat(out, &st) == 0;
}

/* From the first of these files; a SentencePiece tokenizer.model is refused by its line. */
static vt_status load_tokenizer(text_loader *l, const void *config, size_t config_len)
{
    char path[4096];
    const void *text;
    size_t len, i = 0;
    static const struct {
        const char *file;
        vt_status (*read)(const char *, const char *, size_t, const char *, size_t, vt_tokenizer **,
                          vt_err *);
    } form[] = {{"tokenizer.json", vt_tokenizer_from_json},
                {"tokenizer.model", vt_tokenizer_from_tiktoken},
                {"tiktoken.model", vt_tokenizer_from_tiktoken},
                {"vocab.txt", vt_tokenizer_from_vocab}};
    while (i < sizeof form / sizeof *form && !has_file(l, form[i].file, path, sizeof path))
        i++;
    if (i == sizeof form / sizeof *form)
        return VT_OK;
    TRY(file_map(path, &text, &len, l->err));
    vt_status status = len > MAX_TOKENIZER
                           ? vt_fail(l->err, VT_ERR_FORMAT, "%s: %zu bytes (at most %d allowed)",
                                     path, len, MAX_TOKENIZER)
                           : form[i].read(path, text, len, config, config_len, &l->m->tokenizer,
                                          l->err);
    file_unmap(text, len);
    return status;
}

/* A template file takes precedence over the template in tokenizer_config.json, as in
 * transformers. */
static vt_status load_template_file(text_loader *l, const char *path)
{
    const void *text;
    size_t len;
    TRY(file_map(path, &text, &len, l->err));
    vt_status status = len > MAX_TEMPLATE
                           ? vt_fail(l->err, VT_ERR_FORMAT, "%s: %zu bytes (at most %d allowed)",
                                     path, len, MAX_TEMPLATE)
                           : vt_template_parse(path, text, len, &l->m->chat_template, l->err);
    file_unmap(text, len);
    return status;
}

/* "chat_template" is a string, or a list of {"name", "template"} of which "default" is taken, else
 * the first. */
static vt_status load_template_value(text_loader *l, const char *path, const vt_flat_doc *doc,
                                     const vt_flat_node *value)
{
    const vt_flat_node *chosen = value;
    if (value->type != VT_FLAT_ARRAY && value->type != VT_FLAT_STRING)
        return vt_fail(l->err, VT_ERR_FORMAT,
                       "%s: \"chat_template\" is %s; a string or a list of named ones was expected",
                       path, vt_flat_kind(value));
    if (value->type == VT_FLAT_ARRAY) {
        chosen = vt_flat_get(doc, vt_flat_first(value), "template");
        for (const vt_flat_node *entry = vt_flat_first(value); entry;
             entry = vt_flat_after(doc, value, entry))
            if (vt_flat_is(vt_flat_get(doc, entry, "name"), "default"))
                chosen = vt_flat_get(doc, entry, "template");
    }
    if (!chosen || chosen->type != VT_FLAT_STRING)
        return vt_fail(l->err, VT_ERR_FORMAT,
                       "%s: \"template\" of the \"chat_template\" that counts is %s; a list of "
                       "objects with \"name\" and \"template\" was expected",
                       path, vt_flat_kind(chosen));
    return vt_template_parse(path, chosen->s, chosen->len, &l->m->chat_template, l->err);
}

/* Fails unless what is read of tokenizer_config.json, here or by a tokenizer, has its type. What is
 * null or missing has a default. */
static vt_status check_text_config(text_loader *l, const char *path, const vt_flat_doc *doc)
{
    static const char *const tokens[] = {"bos_token", "eos_token"}, *const truths[] = {
                                                                        "add_bos_token",
                                                                        "add_eos_token",
                                                                        "do_lower_case",
                                                                        "strip_accents",
                                                                        "tokenize_chinese_chars"};
    const vt_flat_node *v = doc->node;
    if (v->type != VT_FLAT_OBJECT)
        return vt_fail(l->err, VT_ERR_FORMAT, "%s: the file holds %s; an object was expected", path,
                       vt_flat_kind(v));
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        v = vt_flat_get(doc, doc->node, tokens[i]);
        const vt_flat_node *content = v && v->type == VT_FLAT_OBJECT
                                          ? vt_flat_get(doc, v, "content")
                                          : v;
        if (v && v != content && (!content || content->type != VT_FLAT_STRING))
            return vt_fail(l->err, VT_ERR_FORMAT,
                           "%s: \"content\" of \"%s\" is %s; a string was expected", path,
                           tokens[i], vt_flat_kind(content));
        if (v && content->type != VT_FLAT_STRING)
            return vt_fail(l->err, VT_ERR_FORMAT,
                           "%s: \"%s\" is %s; a string or an object with \"content\" was expected",
                           path, tokens[i], vt_flat_kind(v));
    }
    for (size_t i = 0; i < sizeof truths / sizeof *truths; i++) {
        v = vt_flat_get(doc, doc->node, truths[i]);
        if (v && v->type != VT_FLAT_TRUE && v->type != VT_FLAT_FALSE)
            return vt_fail(l->err, VT_ERR_FORMAT, "%s: \"%s\" is %s; true or false was expected",
                           path, truths[i], vt_flat_kind(v));
    }
    return VT_OK;
}

/* Loads the template beside the file, or that of the file. */
static vt_status load_template(text_loader *l, const char *path, const vt_flat_doc *doc)
{
    char file[4096];
    if (has_file(l, "chat_template.jinja", file, sizeof file))
        return load_template_file(l, file);
    const vt_flat_node *value = vt_flat_get(doc, doc->node, "chat_template");
    return value ? load_template_value(l, path, doc, value) : VT_OK;
}

static vt_status load_text_config(text_loader *l, const char *path, const void *text, size_t len)
{
    vt_flat_doc doc;
    if (len > MAX_CONFIG)
        return vt_fail(l->err, VT_ERR_FORMAT, "%s: %zu bytes (at most %d allowed)", path, len,
                       MAX_CONFIG);
    TRY(vt_flat_parse(path, text, len, &doc, l->err));
    vt_status status = check_text_config(l, path, &doc);
    status = status == VT_OK ? load_tokenizer(l, text, len) : status;
    status = status == VT_OK ? load_template(l, path, &doc) : status;
    vt_flat_release(&doc);
    return status;
}

vt_status model_load_text(vt_model *m, const char *folder, vt_err *err)
{
    text_loader loader = {m, folder, err}, *l = &loader;
    char path[4096], file[4096];
    const void *text;
    size_t len;
    if (!has_file(l, "tokenizer_config.json", path, sizeof path)) {
        TRY(load_tokenizer(l, NULL, 0));
        return has_file(l, "chat_template.jinja", file, sizeof file) ? load_template_file(l, file)
                                                                     : VT_OK;
    }
    TRY(file_map(path, &text, &len, l->err));
    vt_status status = load_text_config(l, path, text, len);
    file_unmap(text, len);
    return status;
}
