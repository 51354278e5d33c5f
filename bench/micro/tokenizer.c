/* make build/release/libvitrine_internal.a && gcc -O2 -D_GNU_SOURCE -Iinclude -Isrc
 * bench/micro/tokenizer.c
 *   build/release/libvitrine_internal.a -ljansson -lm -lpthread -o build/bench_tokenizer
 * build/bench_tokenizer FILE.gguf|tokenizer.json|FILE.tiktoken TEXT...
 *
 * Load time, and megabytes a second of encoding and decoding each text whole, on one core. Time is
 * the process's CPU time, the best of nine passes: what others do on the machine mostly drops out.
 * bench/peers/hf_tokenizers.py runs this beside Hugging Face's tokenizers on the same texts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "text/tokenizer/tokenizer.h"

enum { PASSES = 9 };

static double cpu_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static char *read_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    char *bytes = NULL;
    if (f && fseek(f, 0, SEEK_END) == 0) {
        long size = ftell(f);
        rewind(f);
        bytes = malloc((size_t)size + 1);
        if (bytes && fread(bytes, 1, (size_t)size, f) != (size_t)size)
            bytes = NULL;
        *n = (size_t)size;
    }
    if (f)
        fclose(f);
    if (!bytes) {
        fprintf(stderr, "%s: cannot be read\n", path);
        exit(1);
    }
    return bytes;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

static vt_status load(const char *path, vt_tokenizer **t, vt_err *err)
{
    if (ends_with(path, ".gguf")) {
        gguf_file *f;
        TRY(gguf_open(path, &f, err));
        vt_status status = vt_tokenizer_from_gguf(f, t, err);
        gguf_close(f);
        return status;
    }
    size_t n;
    char *bytes = read_file(path, &n);
    vt_status status = ends_with(path, ".json")
                           ? vt_tokenizer_from_json(path, bytes, n, NULL, 0, t, err)
                           : vt_tokenizer_from_tiktoken(path, bytes, n, NULL, 0, t, err);
    free(bytes);
    return status;
}

static int bench(const vt_tokenizer *t, const char *path, vt_err *err)
{
    size_t n, n_ids = 0;
    char *text = read_file(path, &n);
    double encode = 1e30, decode = 1e30;
    for (int pass = 0; pass < PASSES; pass++) {
        vt_ids ids = {0};
        vt_buf back;
        vt_buf_init(&back, 0);
        double start = cpu_ms();
        if (vt_tokenizer_encode(t, text, n, 0, &ids, err) != VT_OK)
            return 1;
        double middle = cpu_ms();
        if (vt_tokenizer_decode(t, ids.id, ids.n, false, &back, err) != VT_OK)
            return 1;
        double end = cpu_ms();
        encode = middle - start < encode ? middle - start : encode;
        decode = end - middle < decode ? end - middle : decode;
        n_ids = ids.n;
        vt_buf_release(&back);
        vt_ids_release(&ids);
    }
    printf("%s: %zu bytes, %zu ids, encode %.1f MB/s, decode %.1f MB/s\n", path, n, n_ids,
           (double)n / encode / 1e3, (double)n / decode / 1e3);
    free(text);
    return 0;
}

int main(int argc, char **argv)
{
    vt_tokenizer *t = NULL;
    vt_err err = {0};
    if (argc < 3) {
        fprintf(stderr, "usage: bench_tokenizer TOKENIZER TEXT...\n");
        return 2;
    }
    double best = 1e30;
    for (int pass = 0; pass < 3; pass++) {
        vt_tokenizer_free(t);
        t = NULL;
        double start = cpu_ms();
        if (load(argv[1], &t, &err) != VT_OK) {
            fprintf(stderr, "%s\n", err.message);
            return 1;
        }
        double took = cpu_ms() - start;
        best = took < best ? took : best;
    }
    printf("%s: %d tokens, loaded in %.1f ms\n", argv[1], vt_tokenizer_vocab(t), best);
    int failed = 0;
    for (int i = 2; i < argc; i++)
        failed |= bench(t, argv[i], &err);
    if (failed)
        fprintf(stderr, "%s\n", err.message);
    vt_tokenizer_free(t);
    return failed;
}
