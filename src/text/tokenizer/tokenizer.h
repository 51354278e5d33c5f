/* Tokenizers: bytes of text to token ids and back, exactly as Hugging Face `tokenizers` does.
 *
 *   text -> split at special/added tokens -> normalise -> pre-tokenise -> model -> ids
 *
 * Immutable after loading and safe to share between threads. */
#ifndef VT_TEXT_TOKENIZER_H
#define VT_TEXT_TOKENIZER_H

#include "base/buf.h"
#include "base/err.h"
#include "files/gguf.h"

typedef struct vt_tokenizer vt_tokenizer;

/* From GGUF metadata (tokenizer.ggml.*). An unknown tokenizer.ggml.model or .pre is refused by
 * name. */
vt_status vt_tokenizer_from_gguf(const gguf_file *f, vt_tokenizer **out, vt_err *err);
/* From a tokenizer.json's text, with tokenizer_config.json's text beside it (may be NULL). `name`
 * is used in messages. */
vt_status vt_tokenizer_from_json(const char *name, const char *json, size_t len, const char *config,
                                 size_t config_len, vt_tokenizer **out, vt_err *err);
/* From a tiktoken file (each line a token in base64 and its rank), with tokenizer_config.json's
 * text (may be NULL) for the special tokens. The file does not name its pattern: the number of
 * ranks has to be that of a published encoding. */
vt_status vt_tokenizer_from_tiktoken(const char *name, const char *data, size_t len,
                                     const char *config, size_t config_len, vt_tokenizer **out,
                                     vt_err *err);
/* From BERT's vocab.txt, a token a line, with tokenizer_config.json's text (may be NULL). */
vt_status vt_tokenizer_from_vocab(const char *name, const char *data, size_t len,
                                  const char *config, size_t config_len, vt_tokenizer **out,
                                  vt_err *err);
/* 256 byte tokens, synthetic words up to `vocab`, and the ChatML markers <|im_start|> <|im_end|>
 * <|endoftext|> as the last three ids: for dummy models. */
vt_status vt_tokenizer_synthetic(int32_t vocab, vt_tokenizer **out, vt_err *err);
void vt_tokenizer_free(vt_tokenizer *t);

int32_t vt_tokenizer_vocab(const vt_tokenizer *t);
int32_t vt_tokenizer_bos(const vt_tokenizer *t); /* -1: none */
int32_t vt_tokenizer_eos(const vt_tokenizer *t);
bool vt_tokenizer_add_bos(const vt_tokenizer *t); /* the model's file wants BOS before a text */
/* Id of a token by its text as the vocabulary spells it; -1 if there is none. */
int32_t vt_tokenizer_find(const vt_tokenizer *t, const char *piece, size_t len);
bool vt_tokenizer_is_special(const vt_tokenizer *t, int32_t id);
/* The ids that end a completion: eos, eot, eom and their like. Writes at most max of them and
 * returns how many there are. */
int32_t vt_tokenizer_eos_ids(const vt_tokenizer *t, int32_t *ids, int32_t max);

/* Appends to a growing id list. flags (vitrine.h): VT_TOKENIZE_SPECIAL finds special tokens in the
 * text, else their spelling is text like any other; VT_TOKENIZE_ADD_BOS puts in front what the
 * model's file wants there (nothing, if vt_tokenizer_add_bos is false), VT_TOKENIZE_ADD_EOS behind
 * it what the file wants behind a whole text. Any bytes are accepted:
 * ill-formed UTF-8 becomes U+FFFD, as Python and Rust decode it, or goes byte by byte to the byte
 * tokens of a SentencePiece vocabulary from GGUF. On failure the list is as it was. */
typedef struct vt_ids {
    int32_t *id;
    size_t n, cap;
} vt_ids;
void vt_ids_release(vt_ids *ids);
vt_status vt_tokenizer_encode(const vt_tokenizer *t, const char *text, size_t len, unsigned flags,
                              vt_ids *out, vt_err *err);

/* Two texts as one prompt, with what the model's file puts around and between them. *second becomes
 * the place where the second text begins if it is of another type than the first, else 0. Where a
 * limit is given (above 0), the second text is cut: to `most_second` tokens, and so that the whole
 * has `most`. VT_ERR_UNSUPPORTED if the file does not say how pairs look. */
vt_status vt_tokenizer_encode_pair(const vt_tokenizer *t, const char *first, size_t first_len,
                                   const char *second, size_t second_len, int32_t most_second,
                                   int32_t most, vt_ids *out, int32_t *second_at, vt_err *err);

/* A number of tokens that encoding a text makes at least, told from its length without encoding
 * it; 0 where nothing is known. */
size_t vt_tokenizer_least(const vt_tokenizer *t, const char *text, size_t len);

/* Bytes [begin, end) of a text. */
typedef struct vt_text_range {
    size_t begin, end;
} vt_text_range;
/* The same, for a text of which some parts are literal, such as the contents of messages in a
 * rendered chat. In the `literal` ranges (sorted, not overlapping, within the text) the
 * spelling of a special token is text like any other, as it is everywhere without
 * VT_TOKENIZE_SPECIAL. A spelling that lies partly in such a range is no special token either.
 * Added tokens that are not special (runs of spaces, "<think>" in some files) are ordinary
 * vocabulary and are found everywhere. The text is still one text: words and merges may reach
 * across the borders of ranges, so ranges without such spellings change no id. */
vt_status vt_tokenizer_encode_literal(const vt_tokenizer *t, const char *text, size_t len,
                                      unsigned flags, const vt_text_range *literal,
                                      size_t n_literal, vt_ids *out, vt_err *err);

/* The bytes of one token as decoding would put them in the middle of a text (special tokens: their
 * text). Appends to buf. */
bool vt_tokenizer_piece(const vt_tokenizer *t, int32_t id, vt_buf *buf);
/* Whole-sequence decoding, as tokenizers.decode(skip_special_tokens=skip_special). */
vt_status vt_tokenizer_decode(const vt_tokenizer *t, const int32_t *ids, size_t n,
                              bool skip_special, vt_buf *out, vt_err *err);

/* Streaming: feed ids one by one, get whole UTF-8 characters only. The concatenation of all output,
 * finish included, equals vt_tokenizer_decode of all ids (skip_special = true). */
typedef struct vt_detok {
    const vt_tokenizer *tokenizer;
    char pending[256]; /* bytes of an unfinished character, or of a run of byte tokens */
    int32_t n_pending;
    bool begun; /* something was fed: a leading space is stripped once where the decoder does so */
    bool keep_special; /* false: special tokens are skipped */
    int32_t state[16]; /* of each decoder step */
} vt_detok;
void vt_detok_init(vt_detok *d, const vt_tokenizer *t);
bool vt_detok_feed(vt_detok *d, int32_t id, vt_buf *out);
bool vt_detok_finish(vt_detok *d,
                     vt_buf *out); /* what is left, as U+FFFD where it is no character */

#endif
