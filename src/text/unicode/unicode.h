/* Unicode: properties, lower case, normal forms. The tables (unicode_tables.c) are generated from the
 * `tokenizers` package, so "is a letter" means what it means there. */
#ifndef VT_TEXT_UNICODE_H
#define VT_TEXT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/utf8.h"

/* General categories, in the generator's order; the first letter's groups are contiguous. */
enum {
    VT_U_LU,
    VT_U_LL,
    VT_U_LT,
    VT_U_LM,
    VT_U_LO,
    VT_U_MN,
    VT_U_MC,
    VT_U_ME,
    VT_U_ND,
    VT_U_NL,
    VT_U_NO,
    VT_U_PC,
    VT_U_PD,
    VT_U_PS,
    VT_U_PE,
    VT_U_PI,
    VT_U_PF,
    VT_U_PO,
    VT_U_SM,
    VT_U_SC,
    VT_U_SK,
    VT_U_SO,
    VT_U_ZS,
    VT_U_ZL,
    VT_U_ZP,
    VT_U_CC,
    VT_U_CF,
    VT_U_CS,
    VT_U_CO,
    VT_U_CN
};

enum {
    VT_U_SPACE = 1,         /* White_Space */
    VT_U_REGEX_WORD = 2,    /* \w of the regex engine ... */
    VT_U_CLASS_WORD = 2048, /* ... and inside brackets, where it has six characters fewer */
    VT_U_WORD = 4,          /* \w of the Whitespace pre-tokenizer and of single_word tokens */
    VT_U_NUMERIC = 8,       /* what the Digits pre-tokenizer cuts */
    VT_U_PUNCTUATION = 16,  /* what the Punctuation pre-tokenizer cuts */
    VT_U_ACCENT = 32,       /* what the StripAccents normalizer drops */
    VT_U_LOWER = 64,        /* has another lower case */
    VT_U_BERT_DROPS = 4096, /* what BertNormalizer's clean_text drops, */
    VT_U_BERT_MARK = 8192,  /* ... and its strip_accents, after NFD */
    VT_U_STABLE = 128       /* << vt_uform: stays as it is in that form, whatever precedes it */
};

/* How characters join into grapheme clusters (UAX 29), in the generator's order. Syllables of Hangul
 * are not in the table. */
typedef enum vt_ugrapheme {
    VT_UG_OTHER,
    VT_UG_CONTROL,
    VT_UG_EXTEND,
    VT_UG_EXTEND_ONLY, /* ... which no conjunct has inside */
    VT_UG_SPACING,
    VT_UG_PREPEND,
    VT_UG_PICTURE, /* Extended_Pictographic */
    VT_UG_L,
    VT_UG_V,
    VT_UG_T,
    VT_UG_CONSONANT, /* of Indic conjuncts, */
    VT_UG_LINKER,    /* ... and what joins two of them */
    VT_UG_ZWJ,
    VT_UG_LV,
    VT_UG_LVT
} vt_ugrapheme;

typedef enum vt_uform { VT_NFD, VT_NFC, VT_NFKD, VT_NFKC } vt_uform;

typedef struct vt_uprop {
    uint8_t category, ccc;
    uint16_t flags;
} vt_uprop;

typedef struct vt_uscript {
    const char *name;
    uint16_t first, n; /* in vt_uscript_range */
} vt_uscript;

typedef struct vt_udecomp {
    uint32_t code;
    uint16_t offset;
    uint8_t canon, compat;
} vt_udecomp;

extern const vt_uprop vt_uprop_record[];
extern const uint16_t vt_uprop_block[];
extern const uint8_t vt_uprop_index[][128];
extern const vt_uscript vt_uscripts[]; /* ends with a null name */
extern const uint32_t vt_uscript_range[][2];
extern const uint32_t vt_ulower[][2];
extern const int32_t vt_ulower_count;
extern const vt_udecomp vt_udecomps[];
extern const int32_t vt_udecomp_count;
extern const uint32_t vt_udecomp_pool[];
extern const uint32_t vt_ucompose[][3];
extern const int32_t vt_ucompose_count;
extern const uint32_t vt_ugraphemes[][3];
extern const int32_t vt_ugrapheme_count;

/* c < 0x110000 */
static inline vt_uprop vt_uprop_of(uint32_t c)
{
    return vt_uprop_record[vt_uprop_index[vt_uprop_block[c >> 7]][c & 127]];
}

/* Appends s (valid UTF-8) in a normal form. */
bool vt_unicode_normalize(vt_buf *out, const char *s, size_t n, vt_uform form);
/* True only if s (valid UTF-8) is in that form already. A cheap test: it may also say false of text
 * that is. */
bool vt_unicode_is_normal(const char *s, size_t n, vt_uform form);
/* Appends s in lower case, character by character, as Rust's char::to_lowercase does. */
bool vt_unicode_lower(vt_buf *out, const char *s, size_t n);
uint32_t vt_unicode_lower_of(uint32_t c);
/* Returns the bytes of the grapheme cluster that begins s (valid UTF-8, n > 0). Regional indicators
 * are clusters of one each, not of two. */
size_t vt_unicode_cluster(const char *s, size_t n);

#endif
