/* The answer of /v1/embeddings. */
#include <string.h>

#include "base/err.h"
#include "openai/reply.h"

/* Appends the base64 of n bytes (RFC 4648). */
static void put_base64(vt_buf *out, const unsigned char *p, size_t n)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        size_t left = n - i;
        uint32_t v = (uint32_t)p[i] << 16 | (left > 1 ? (uint32_t)p[i + 1] << 8 : 0) |
                     (left > 2 ? (uint32_t)p[i + 2] : 0);
        char four[4] = {digit[v >> 18], digit[v >> 12 & 63], left > 1 ? digit[v >> 6 & 63] : '=',
                        left > 2 ? digit[v & 63] : '='};
        vt_buf_add(out, four, sizeof four);
    }
}

static void write_base64(const vt_buf *vector, vt_json *w)
{
    vt_buf text = {0};
    put_base64(&text, (const unsigned char *)vector->data, vector->len);
    vt_json_string_n(w, "embedding", text.data ? text.data : "", text.len);
    w->out->failed = w->out->failed || text.failed;
    vt_buf_release(&text);
}

void vt_openai_vector_write(const vt_buf *vector, vt_json *w, const char *key)
{
    float v;
    vt_json_open(w, key, '[');
    for (size_t i = 0; i < vector->len; i += sizeof v) {
        memcpy(&v, vector->data + i, sizeof v);
        vt_json_float(w, NULL, v);
    }
    vt_json_close(w);
}

void vt_openai_embeddings_write(const vt_openai_reply *reply, const vt_openai_request *request,
                                vt_json *w, const char *key)
{
    vt_json_open(w, key, '{');
    vt_json_string(w, "object", "list");
    vt_json_open(w, "data", '[');
    for (int32_t i = 0; i < reply->n; i++) {
        vt_json_open(w, NULL, '{');
        vt_json_string(w, "object", "embedding");
        vt_json_int(w, "index", i);
        if (request->base64)
            write_base64(&reply->choice[i].vector, w);
        else
            vt_openai_vector_write(&reply->choice[i].vector, w, "embedding");
        vt_json_close(w);
    }
    vt_json_close(w);
    vt_json_string(w, "model", reply->model);
    vt_json_open(w, "usage", '{');
    vt_json_int(w, "prompt_tokens", reply->prompt_tokens);
    vt_json_int(w, "total_tokens", reply->prompt_tokens);
    vt_json_close(w);
    vt_json_close(w);
}
