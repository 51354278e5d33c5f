/* The pre-tokenizers' patterns in three engines: ours, Oniguruma, and PCRE2 with its JIT.
 *
 * apt-get install libonig-dev libpcre2-dev; make build/release/libvitrine_internal.a && gcc -O2
 *   -D_GNU_SOURCE -Iinclude -Isrc bench/micro/regex.c build/release/libvitrine_internal.a -lonig
 *   -lpcre2-8 -ljansson -lm -lpthread -o build/bench_regex
 * build/bench_regex GOLDENS/texts.bin TEXT...
 *
 * For each pattern: the number of texts of texts.bin (blocks of a 32-bit length and bytes) that an
 * engine cuts as ours does, and megabytes a second over TEXT, best of five passes, CPU time, one
 * core. Patterns are those of src/text/tokenizer/pre_names.c, one of each shape. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <oniguruma.h>
#include <pcre2.h>

#include "base/random.h"
#include "base/utf8.h"
#include "text/regex/regex.h"

#define SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WORDS(digits) \
    CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
static const struct {
    const char *name, *pattern;
} patterns[] = {
    {"gpt2", "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"},
    {"llama3", WORDS("\\p{N}{1,3}")},
    {"qwen2", WORDS("\\p{N}")},
    {"o200k",
     "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" CONTRACTION "?|[^\\r\\n\\p{L}\\p{N}]?" UPPER
     "+" LOWER "*" CONTRACTION "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES},
    {"kimi", "[\\p{Han}]+|[^\\r\\n\\p{L}\\p{N}]?[" UPPER "&&[^\\p{Han}]]*[" LOWER
             "&&[^\\p{Han}]]+" CONTRACTION "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES},
    {"deepseek-v3", "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}"
                    "\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" SPACES},
    {"bloom", " ?[^(\\s|[.,!?\xE2\x80\xA6\xE3\x80\x82\xEF\xBC\x8C\xE3\x80\x81\xE0\xA5\xA4\xDB\x94"
              "\xD8\x8C])]+"},
    {"glm4", "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
             "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES},
    {"bailingmoe", "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| "
                   "?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"},
    {"exaone-moe", CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|"
                               "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|"
                               "\\s+"},
    {"superbpe", "(?=(\\d{3})+(?!\\d))"},
    {"digits", "\\d{1,3}(?=(?:\\d{3})*\\b)"},
    {"deepseek-coder", "\\s?\\p{L}+"},
};
enum { N_PATTERNS = sizeof patterns / sizeof *patterns, OURS = 0, ONIG, PCRE, N_ENGINES };

typedef struct engine {
    vt_regex *ours;
    vt_regex_scratch scratch;
    regex_t *onig;
    OnigRegion *region;
    pcre2_code *pcre;
    pcre2_match_data *match;
} engine;

static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static char *read_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    char *bytes = NULL;
    if (f && fseek(f, 0, SEEK_END) == 0) {
        *n = (size_t)ftell(f);
        rewind(f);
        bytes = malloc(*n + 1);
        if (bytes && fread(bytes, 1, *n, f) != *n)
            bytes = NULL;
        fclose(f);
    }
    if (!bytes) {
        fprintf(stderr, "%s: cannot be read\n", path);
        exit(1);
    }
    return bytes;
}

/* False if the engine refuses the pattern. */
static bool compile(engine *e, int which, const char *pattern)
{
    size_t n = strlen(pattern), at;
    OnigErrorInfo info;
    int code;
    switch (which) {
    case OURS:
        return vt_regex_compile(pattern, n, &e->ours, NULL) == VT_OK;
    case ONIG:
        e->region = onig_region_new();
        return onig_new(&e->onig, (const OnigUChar *)pattern, (const OnigUChar *)pattern + n,
                        ONIG_OPTION_NONE, ONIG_ENCODING_UTF8, ONIG_SYNTAX_RUBY,
                        &info) == ONIG_NORMAL;
    default:
        e->pcre = pcre2_compile((PCRE2_SPTR)pattern, n, PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE,
                                &code, &at, NULL);
        if (!e->pcre || pcre2_jit_compile(e->pcre, PCRE2_JIT_COMPLETE) != 0)
            return false;
        e->match = pcre2_match_data_create(32, NULL);
        return true;
    }
}

static bool find(engine *e, int which, const char *s, size_t n, size_t from, size_t *start,
                 size_t *end)
{
    const OnigUChar *u = (const OnigUChar *)s;
    switch (which) {
    case OURS:
        return vt_regex_find(e->ours, &e->scratch, s, n, from, start, end) == 1;
    case ONIG: {
        int at = onig_search(e->onig, u, u + n, u + from, u + n, e->region, ONIG_OPTION_NONE);
        if (at < 0)
            return false;
        *start = (size_t)e->region->beg[0];
        *end = (size_t)e->region->end[0];
        return true;
    }
    default:
        if (pcre2_jit_match(e->pcre, (PCRE2_SPTR)s, n, from, 0, e->match, NULL) < 1)
            return false;
        *start = pcre2_get_ovector_pointer(e->match)[0];
        *end = pcre2_get_ovector_pointer(e->match)[1];
        return true;
    }
}

/* Cuts a text whole; a hash of the cuts. */
static uint64_t cut(engine *e, int which, const char *s, size_t n)
{
    uint64_t hash = VT_FNV_OFFSET;
    size_t span[2], from = 0;
    vt_regex_scratch_begin(&e->scratch, n);
    while (from <= n && find(e, which, s, n, from, &span[0], &span[1])) {
        hash = vt_fnv1a(hash, span, sizeof span);
        from = span[1];
        if (span[0] == span[1])
            do
                from++;
            while (from < n && (s[from] & 0xC0) == 0x80);
    }
    return hash;
}

static void release(engine *e)
{
    vt_regex_free(e->ours);
    vt_regex_scratch_release(&e->scratch);
    if (e->onig)
        onig_free(e->onig);
    if (e->region)
        onig_region_free(e->region, 1);
    pcre2_match_data_free(e->match);
    pcre2_code_free(e->pcre);
}

static void bench(const char *name, const char *pattern, const char *texts, size_t n_texts,
                  char **paths, int n_paths)
{
    engine e = {0};
    bool known[N_ENGINES];
    size_t equal[N_ENGINES] = {0}, count = 0;
    for (int k = 0; k < N_ENGINES; k++)
        known[k] = compile(&e, k, pattern);
    for (size_t at = 0; at + 4 <= n_texts; count++) {
        uint32_t len;
        memcpy(&len, texts + at, 4);
        at += 4;
        vt_buf text;
        vt_buf_init(&text, 0);
        vt_utf8_add_lossy(&text, texts + at, len);
        uint64_t want = cut(&e, OURS, text.data, text.len);
        for (int k = 1; k < N_ENGINES; k++)
            equal[k] += known[k] && cut(&e, k, text.data, text.len) == want;
        vt_buf_release(&text);
        at += len;
    }
    printf("%-15s", name);
    for (int k = 1; k < N_ENGINES; k++)
        known[k] ? printf("  %3zu of %zu", equal[k], count) : printf("  refused   ");
    for (int i = 0; i < n_paths; i++) {
        size_t n;
        char *text = read_file(paths[i], &n);
        printf("  |");
        for (int k = 0; k < N_ENGINES; k++) {
            double best = 1e30;
            for (int pass = 0; known[k] && pass < 5; pass++) {
                double begin = cpu_s();
                cut(&e, k, text, n);
                double took = cpu_s() - begin;
                best = took < best ? took : best;
            }
            known[k] ? printf(" %6.1f", (double)n / best * 1e-6) : printf("      -");
        }
        free(text);
    }
    printf("\n");
    release(&e);
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: bench_regex texts.bin TEXT...\n");
        return 2;
    }
    OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
    size_t n;
    char version[64], *texts = read_file(argv[1], &n);
    onig_initialize(encodings, 1);
    pcre2_config(PCRE2_CONFIG_VERSION, version);
    printf("Oniguruma %s, PCRE2 %s; texts cut as ours does | MB/s of ours, Oniguruma, PCRE2 JIT\n",
           onig_version(), version);
    for (int i = 0; i < N_PATTERNS; i++)
        bench(patterns[i].name, patterns[i].pattern, texts, n, argv + 2, argc - 2);
    onig_end();
    free(texts);
    return 0;
}
