/* What the two halves of the tokenizer.json loader share. */
#ifndef VT_TEXT_TOKENIZER_JSON_H
#define VT_TEXT_TOKENIZER_JSON_H

#include "files/json_flat.h"
#include "text/tokenizer/tokenizer_internal.h"

typedef struct json_loader {
    const char *name; /* of the file, for messages */
    json_doc *doc;
    vt_tokenizer *t;
    vt_err *err;
    int32_t n_model;   /* entries of model.vocab */
    int32_t max_added; /* highest id of an added token so far */
    vt_buf raw, joined;
} json_loader;

/* At most so many bytes of a string belong in a message. */
static inline int json_show(const json_node *s) { return s->len > 60 ? 60 : (int)s->len; }

/* "NAME: WHERE of type 'X' is not supported". */
vt_status json_refuse(json_loader *l, const char *where, const json_node *type);

vt_status json_load_normalizer(json_loader *l, const json_node *v, int depth);
vt_status json_load_pre_tokenizer(json_loader *l, const json_node *v, int depth);
vt_status json_load_decoder(json_loader *l, const json_node *v, int depth);
vt_status json_load_post_processor(json_loader *l, const json_node *v, int depth);

#endif
