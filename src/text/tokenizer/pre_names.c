/* tokenizer.ggml.pre: the pre-tokenizer that each name stands for.
 *
 * The names are those that llama.cpp's src/llama-vocab.cpp knows; the patterns are the ones that
 * the models' own tokenizer.json files carry, in the order their steps run. llama.cpp adapts some
 * of them to its regex library and loses details (categories inside classes, Unicode spaces,
 * possessive groups); we run the originals, with which the models were trained.
 */
#include <string.h>

#include "text/tokenizer/internal.h"

#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define WORDS(digits) \
    CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define NOT_HAN(set) "[" set "&&[^\\p{Han}]]"
#define CASED(digits, tail)                                                                     \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" tail "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER \
    "*" tail "|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES
#define PUNCT_WORD "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
#define DEEPSEEK \
    PUNCT_WORD "|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" SPACES
#define CJK "[\xE4\xB8\x80-\xE9\xBE\xA5\xE3\x81\x80-\xE3\x82\x9F\xE3\x82\xA0-\xE3\x83\xBF]+"
#define OLD_CJK "[\xE4\xB8\x80-\xE9\xBE\xA5\xE0\xA0\x80-\xE4\xB8\x80\xEA\xB0\x80-\xED\x9F\xBF]+"
#define BLOOM                                                                                      \
    " ?[^(\\s|[.,!?\xE2\x80\xA6\xE3\x80\x82\xEF\xBC\x8C\xE3\x80\x81\xE0\xA5\xA4\xDB\x94\xD8\x8C])" \
    "]+"

/* The letters of deepseek-llm's first models. */
#define DEEPSEEK_LETTERS                                                                          \
    "[A-Za-z\\u00b5\\u00c0-\\u00d6\\u00d8-\\u00f6\\u00f8-\\u01ba\\u01bc-\\u01bf\\u01c4-"          \
    "\\u0293\\u0295-\\u02af"                                                                      \
    "\\u0370-\\u0373\\u0376\\u0377\\u037b-\\u037d\\u037f\\u0386\\u0388-\\u038a\\u038c\\u038e-"    \
    "\\u03a1\\u03a3-\\u03f5"                                                                      \
    "\\u03f7-\\u0481\\u048a-\\u052f\\u0531-\\u0556\\u10a0-\\u10c5\\u13a0-\\u13f5\\u13f8-"         \
    "\\u13fd\\u1c90-\\u1cba"                                                                      \
    "\\u1cbd-\\u1cbf\\u1d00-\\u1d2b\\u1d6b-\\u1d77\\u1d79-\\u1d9a\\u1e00-\\u1f15\\u1f18-"         \
    "\\u1f1d\\u1f20-\\u1f45"                                                                      \
    "\\u1f48-\\u1f4d\\u1f50-\\u1f57\\u1f59\\u1f5b\\u1f5d\\u1f5f-\\u1f7d\\u1f80-\\u1fb4\\u1fb6-"   \
    "\\u1fbc\\u1fbe"                                                                              \
    "\\u1fc2-\\u1fc4\\u1fc6-\\u1fcc\\u1fd0-\\u1fd3\\u1fd6-\\u1fdb\\u1fe0-\\u1fec\\u1ff2-"         \
    "\\u1ff4\\u1ff6-\\u1ffc"                                                                      \
    "\\u2102\\u2107\\u210a-\\u2113\\u2115\\u2119-\\u211d\\u2124\\u2126\\u2128\\u212a-"            \
    "\\u212d\\u212f-\\u2134\\u2139"                                                               \
    "\\u213c-\\u213f\\u2145-\\u2149\\u214e\\u2183\\u2184\\u2c00-\\u2c7b\\u2c7e-\\u2ce4\\u2ceb-"   \
    "\\u2cee\\u2cf2\\u2cf3"                                                                       \
    "\\ua640-\\ua66d\\ua680-\\ua69b\\ua722-\\ua76f\\ua771-\\ua787\\ua78b-\\ua78e\\uab70-"         \
    "\\uabbf\\ufb00-\\ufb06"                                                                      \
    "\\ufb13-\\ufb17\\uff21-\\uff3a\\uff41-\\uff5a\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}\\x{" \
    "104d8}-\\x{104fb}"                                                                           \
    "\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}]"

enum {
    ADD_BOS = 1,
    IGNORE_MERGES = 2,
    NFC = 4,
    BYTES_REGEX = 8, /* the ByteLevel step cuts by GPT-2's pattern too */
    METASPACE = 16,  /* no byte-level alphabet: a space is U+2581, unknown ones are byte tokens */
    PLAIN = 32       /* no byte-level alphabet at all */
};

/* Steps in order; ByteLevel follows unless the flags or an @bytes among the steps say otherwise. A
 * pattern is a Split with behaviour Isolated; the others are named. */
#define DIGITS "@digits"           /* Digits, each on its own */
#define DIGIT_RUNS "@digit-runs"   /* Digits, together */
#define PUNCTUATION "@punctuation" /* Punctuation, Contiguous */
#define BYTES "@bytes"             /* ByteLevel with GPT-2's pattern, here */
#define NO_SPACE "@no-space"       /* Split \s+, Removed */

typedef struct pre_name {
    const char *names; /* separated by spaces */
    unsigned flags;
    const char *step[6];
} pre_name;

static const pre_name table[] = {
    {"default", BYTES_REGEX, {"[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}},
    {"gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert "
     "jina-v1-en jina-v2-code "
     "roberta-bpe exaone4 jais trillion granite-docling",
     BYTES_REGEX,
     {0}},
    {"mpt olmo", BYTES_REGEX | NFC, {0}},
    {"smollm starcoder refact command-r codeshell exaone minerva-7b mellum2",
     BYTES_REGEX,
     {DIGITS}},
    {"llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
     ADD_BOS | IGNORE_MERGES,
     {WORDS("\\p{N}{1,3}")}},
    {"dbrx smaug-bpe chatglm-bpe", 0, {WORDS("\\p{N}{1,3}")}},
    {"glm4 glm5", IGNORE_MERGES, {WORDS("\\p{N}{1,3}")}},
    {"minicpm5", IGNORE_MERGES, {"\\p{N}{1,3}", WORDS("\\p{N}+")}},
    {"jais-2",
     0,
     {CONTRACTION
      "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
      "\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{128}(?!\\S)|\\s{64}(?!\\S)|\\s{32}(?!\\S)|\\s{16}(?!\\S)"
      "|\\s{8}(?!\\S)|"
      "\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s{1}"}},
    {"deepseek-llm",
     0,
     {"[\r\n]", "\\s?" DEEPSEEK_LETTERS "+",
      "\\s?[!-/:-~\\uff01-\\uff0f\\uff1a-\\uff5e\\u2018-\\u201f\\u3000-\\u3002]+", "\\s+$", OLD_CJK,
      DIGITS}},
    {"deepseek-coder", 0, {"[\r\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", OLD_CJK, DIGITS}},
    {"deepseek-v3 hunyuan-dense joyai-llm hy_v4", 0, {"\\p{N}{1,3}", CJK, DEEPSEEK}},
    {"spark2_5",
     0,
     {"\\p{N}{1,3}", CJK,
      PUNCT_WORD
      "|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+|[\\r\\n]|\\s+(?!\\S)|\\s+",
      "\\p{N}"}},
    {"youtu",
     IGNORE_MERGES,
     {"[\\uac00-\\ud7a3\\u3131-\\u318e]+|["
      "\\uff01\\u2026\\u201c\\u201d\\u2018\\u2019\\u2014\\uff1a\\uff1b\\uff0c"
      "\\u3001-\\u303f\\ufe30-\\ufe4f]+|[\\u3105-\\u312f]+|" CJK,
      CASED("\\p{N}", CONTRACTION "?")}},
    {"falcon", 0, {PUNCTUATION, BYTES, DIGIT_RUNS, "[0-9][0-9][0-9]"}},
    {"qwen2", NFC, {WORDS("\\p{N}")}},
    {"stablelm2 hunyuan solar-open grok-2 deepseek-r1-qwen kormo f2llmv2 megrez",
     0,
     {WORDS("\\p{N}")}},
    {"qwen35",
     0,
     {CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| "
                  "?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES}},
    {"ufakzeka",
     0,
     {"[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES}},
    {"laguna", 0, {"[^\\n]+|[\\n]+", WORDS("\\p{N}")}},
    {"seed-coder",
     0,
     {CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" SPACES}},
    {"bailingmoe bailingmoe2 llada-moe",
     0,
     {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| "
      "?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|"
      "\\s+(?!\\S)|\\s+"}},
    {"exaone-moe",
     0,
     {CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}| "
                  "?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|"
                  "\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}},
    {"poro-chat bloom gpt3-finnish", 0, {BLOOM}},
    {"viking", 0, {BLOOM, DIGITS}},
    {"tekken", ADD_BOS | IGNORE_MERGES, {CASED("\\p{N}", "")}},
    {"gpt-4o llama4 kanana2 talkie minimax-m2", 0, {CASED("\\p{N}{1,3}", CONTRACTION "?")}},
    {"granite-embed-multi-97m", IGNORE_MERGES, {CASED("\\p{N}{1,3}", CONTRACTION "?")}},
    {"tiny_aya cohere2moe",
     0,
     {"\\d{1,3}(?=(?:\\d{3})*\\b)", CASED("\\p{N}{1,3}", CONTRACTION "?")}},
    {"kimi-k2",
     0,
     {"[\\p{Han}]+|[^\\r\\n\\p{L}\\p{N}]?" NOT_HAN(UPPER) "*" NOT_HAN(
         LOWER) "+" CONTRACTION
                "?|[^\\r\\n\\p{L}\\p{N}]?" NOT_HAN(UPPER) "+" NOT_HAN(
                    LOWER) "*" CONTRACTION "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES}},
    {"superbpe", 0, {"\\p{N}+", "(?=(\\d{3})+(?!\\d))"}},
    {"afmoe",
     0,
     {"\\p{N}{1,3}(?=(?:\\p{N}{3})*(?!\\p{N}))",
      "[\\u4e00-\\u9fff\\u3400-\\u4dbf\\uf900-\\ufaff\\u3040-\\u309f\\u30a0-\\u30ff\\uff65-"
      "\\uff9f\\u2f00-\\u2fdf"
      "\\u0e40-\\u0e7f\\u0e80-\\u0eff\\u1780-\\u17ff\\u1000-\\u109f\\uaa60-\\uaa7f\\ua9e0-"
      "\\ua9ff\\uac00-\\ud7af"
      "\\u1100-\\u11ff]+",
      DEEPSEEK}},
    {"chameleon",
     ADD_BOS,
     {"<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", "([\\t\\n]|    |  )", DIGITS,
      "[\\p{P}!-/:-@\\[-`{-~]", GPT2}},
    {"gemma4 granite-embed-multi-311m sarvam-moe", METASPACE, {0}},
    {"whitespace", PLAIN, {NO_SPACE}},
};

static vt_status add_step(vt_tokenizer *t, const char *step, vt_err *err)
{
    static const struct {
        const char *name;
        pre_step step;
    } named[] = {{DIGITS, {.kind = PRE_DIGITS, .behaviour = SPLIT_ISOLATED}},
                 {DIGIT_RUNS, {.kind = PRE_DIGIT_RUNS, .behaviour = SPLIT_CONTIGUOUS}},
                 {PUNCTUATION, {.kind = PRE_PUNCTUATION, .behaviour = SPLIT_CONTIGUOUS}}};
    if (strcmp(step, BYTES) == 0)
        return tok_add_bytes(t, false, true, err);
    if (strcmp(step, NO_SPACE) == 0)
        return tok_add_split(t, "\\s+", SPLIT_REMOVED, false, err);
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        if (strcmp(step, named[i].name) == 0) {
            t->pre[t->n_pre++] = named[i].step;
            return VT_OK;
        }
    return tok_add_split(t, step, SPLIT_ISOLATED, false, err);
}

static vt_status apply(vt_tokenizer *t, const pre_name *p, bool *add_bos, vt_err *err)
{
    *add_bos = p->flags & ADD_BOS;
    t->ignore_merges = p->flags & IGNORE_MERGES;
    if (p->flags & NFC)
        t->norm[t->n_norm++] = (norm_step){.kind = NORM_FORM, .form = VT_NFC};
    if (p->flags & METASPACE) {
        t->norm[t->n_norm++] = (norm_step){.kind = NORM_REPLACE,
                                           .pattern = " ",
                                           .pattern_len = 1,
                                           .content = "\xE2\x96\x81",
                                           .content_len = 3};
        t->byte_fallback = t->fuse_unk = true;
        *add_bos = true;
    }
    for (int k = 0; k < 6 && p->step[k]; k++)
        TRY(add_step(t, p->step[k], err));
    if (t->byte_level || (p->flags & (METASPACE | PLAIN)))
        return VT_OK;
    return tok_add_bytes(t, false, p->flags & BYTES_REGEX, err);
}

vt_status tok_apply_pre_name(vt_tokenizer *t, const char *path, const char *name, size_t len,
                             bool *add_bos, vt_err *err)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        for (const char *s = table[i].names; *s;) {
            size_t n = strcspn(s, " ");
            if (n == len && memcmp(s, name, n) == 0)
                return apply(t, &table[i], add_bos, err);
            s += n + (s[n] == ' ');
        }
    return vt_fail(err, VT_ERR_UNSUPPORTED,
                   "%s: tokenizer.ggml.pre is '%.*s', a pre-tokenizer that is not known", path,
                   (int)(len > 64 ? 64 : len), name);
}
