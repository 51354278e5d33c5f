/* The two halves of the tokenizer.json loader share this. */
#ifndef VT_TEXT_TOKENIZER_FROM_JSON_H
#define VT_TEXT_TOKENIZER_FROM_JSON_H

#include "files/json_flat.h"
#include "text/tokenizer/internal.h"

typedef struct tok_json {
    const char *name; /* of the file, for messages */
    vt_flat_doc *doc;
    vt_tokenizer *t;
    vt_err *err;
    int32_t n_model;   /* entries of model.vocab */
    int32_t max_added; /* highest id of an added token so far */
    vt_buf raw, joined;
} tok_json;

/* Returns how many bytes of a string a message shows: at most 60. */
static inline int tok_json_show(const vt_flat_node *s) { return s->len > 60 ? 60 : (int)s->len; }

/* "NAME: WHERE of type 'X' is not supported". */
vt_status tok_json_refuse(tok_json *l, const char *where, const vt_flat_node *type);

vt_status tok_json_normalizer(tok_json *l, const vt_flat_node *v, int depth);
vt_status tok_json_pre_tokenizer(tok_json *l, const vt_flat_node *v, int depth);
vt_status tok_json_decoder(tok_json *l, const vt_flat_node *v, int depth);
vt_status tok_json_post_processor(tok_json *l, const vt_flat_node *v, int depth);

#endif
