/* The tokenizer of dummy models: a byte-level vocabulary made by rule.
 *
 *   0..255            the bytes
 *   256..vocab-4      " w256", " w257", ...: words that decode to readable text; encoding never
 *                     gives them
 *   the last three    <|im_start|> <|im_end|> <|endoftext|>
 *
 * A text is encoded as its bytes: random weights do not care, and the length of any prompt is known
 * beforehand.
 */
#include <stdio.h>

#include "text/tokenizer/internal.h"

static vt_status fill(vt_tokenizer *t, int32_t size, vt_err *err)
{
    static const char *const marker[3] = {"<|im_start|>", "<|im_end|>", "<|endoftext|>"};
    TRY(tok_add_bytes(t, false, false, err));
    TRY(vocab_reserve(&t->vocab, (size_t)size, (size_t)size * 8, 0, err));
    for (int32_t id = 0; id < size; id++) {
        char text[24];
        int n;
        if (id < 256) {
            n = vt_utf8_put(tok_byte_char((unsigned char)id), text);
        } else if (id < size - 3) {
            n = snprintf(text, sizeof text, "\xC4\xA0w%d", id);
        } else {
            n = snprintf(text, sizeof text, "%s", marker[id - (size - 3)]);
            added_token a = {.id = id, .special = true, .content = text, .len = (size_t)n};
            TRY(tok_add_added(t, &a, err));
        }
        TRY(tok_set_piece(t, id, text, (size_t)n, id < 256 ? PIECE_MODEL : 0, err));
    }
    t->dec[t->n_dec++] = (dec_step){.kind = DEC_BYTES};
    t->eos = size - 2;
    return tok_finish(t, err);
}

vt_status vt_tokenizer_synthetic(int32_t size, vt_tokenizer **out, vt_err *err)
{
    if (size < 259)
        return vt_fail(err, VT_ERR_MODEL,
                       "a dummy model's vocabulary of %d has no room for 256 bytes and 3 markers",
                       size);
    vt_tokenizer *t;
    TRY(tok_new(&t, err));
    vt_status status = fill(t, size, err);
    if (status != VT_OK) {
        vt_tokenizer_free(t);
        return status;
    }
    *out = t;
    return VT_OK;
}
