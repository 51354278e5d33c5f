/* Any bytes as a tokenizer and a text. Loading fails with a message or gives a tokenizer that
 * encodes any text, finds its own ids in range, and decodes them the same streamed and whole.
 *
 *   first byte 'j': u16 length, a tokenizer.json of that length, then the text
 *   first byte 't': u16 length, a tiktoken file of that length, then the text
 *   first byte 'g': a GGUF file; the text is its last 200 bytes
 *   else:           a text for the synthetic tokenizer */
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer/tokenizer.h"
#include "text/unicode/unicode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
    if (!ok)
        abort();
}

static void decode_both_ways(const vt_tokenizer *t, const vt_ids *ids)
{
    vt_buf whole, stream;
    vt_detok d;
    vt_buf_init(&whole, 0);
    vt_buf_init(&stream, 0);
    vt_detok_init(&d, t);
    require(vt_tokenizer_decode(t, ids->id, ids->n, true, &whole, NULL) == VT_OK);
    for (size_t i = 0; i <= ids->n; i++) {
        size_t from = stream.len;
        require(i < ids->n ? vt_detok_feed(&d, ids->id[i], &stream) : vt_detok_finish(&d, &stream));
        require(stream.len == from ||
                vt_utf8_valid(stream.data + from, stream.len - from) == stream.len - from);
    }
    require(whole.len == stream.len &&
            (!whole.len || memcmp(whole.data, stream.data, whole.len) == 0));
    vt_buf_release(&whole);
    vt_buf_release(&stream);
}

static void exercise(const vt_tokenizer *t, const char *text, size_t n)
{
    for (unsigned flags = 0; flags < 4; flags++) {
        vt_ids ids = {0};
        vt_err err = {0};
        vt_status status = vt_tokenizer_encode(t, text, n, flags, &ids, &err);
        require(status == VT_OK || err.message[0]);
        for (size_t i = 0; i < ids.n; i++)
            require(ids.id[i] >= 0 && ids.id[i] < vt_tokenizer_vocab(t));
        decode_both_ways(t, &ids);
        vt_ids_release(&ids);
    }
    vt_ids every = {0};
    vt_buf piece;
    vt_buf_init(&piece, 0);
    every.n = (size_t)vt_tokenizer_vocab(t) < 2000 ? (size_t)vt_tokenizer_vocab(t) : 2000;
    every.id = malloc((every.n + 1) * sizeof *every.id);
    for (size_t i = 0; every.id && i < every.n; i++) {
        every.id[i] = (int32_t)i;
        require(vt_tokenizer_piece(t, (int32_t)i, &piece));
    }
    if (every.id)
        decode_both_ways(t, &every);
    vt_buf_release(&piece);
    vt_ids_release(&every);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    vt_tokenizer *t = NULL;
    vt_err err = {0};
    const char *text = (const char *)data;
    size_t n = size;
    vt_status status;
    if (size >= 3 && (data[0] == 'j' || data[0] == 't')) {
        size_t len = data[1] | (size_t)data[2] << 8;
        len = len < size - 3 ? len : size - 3;
        const char *file = text + 3;
        text = file + len;
        n = size - 3 - len;
        status = data[0] == 'j'
                     ? vt_tokenizer_from_json("fuzz", file, len, file, len, &t, &err)
                     : vt_tokenizer_from_tiktoken("fuzz", file, len, file, len, &t, &err);
    } else if (size >= 1 && data[0] == 'g') {
        gguf_file *f;
        if (gguf_open_bytes("fuzz", data + 1, size - 1, &f, &err) != VT_OK)
            return 0;
        status = vt_tokenizer_from_gguf(f, &t, &err);
        gguf_close(f);
        n = size < 200 ? size : 200;
        text += size - n;
    } else {
        status = vt_tokenizer_synthetic(500, &t, &err);
    }
    require(status == VT_OK ? t != NULL : err.message[0] != 0);
    if (t)
        exercise(t, text, n);
    vt_tokenizer_free(t);
    return 0;
}
