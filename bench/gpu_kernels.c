/* The CUDA kernels alone, on the shapes of docs/performance.md: one JSON line a row, each with what
 * it read and computed by the op's own card. bench/gpu runs it and makes the table.
 *
 * A row is an op and a shape as text (ops/case_text.h), run on the implementation that a program
 * would take for it, and timed as ops/calls/on_cuda.h says: cold, in a graph, in a graph with PDL. `host`
 * is wall time of host code, median. `vitrine bench kernels --device cuda` runs any one of them by
 * hand, checks it, and runs the other implementations too.
 *
 *   gpu_kernels [--only SECTION,...] [--row REGEX] [--deterministic] [--tiny] [--list]
 *
 * --row takes the rows in whose names the extended regular expression matches. --list prints the
 * rows without a GPU. --tiny takes shapes that an emulated GPU can run, whose figures mean nothing.
 * The section `jit` compiles every kernel of the chosen sections anew, cache or not, and reports
 * the times. Exit status: 0, 1 when a row failed, 2 wrong usage, 77 without a GPU. */
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/stats.h"
#include "ops/calls/on_cuda.h"
#include "ops/case_text.h"
#include "ops/knobs.h"
#include "ops/sample/sample.h"

enum { COLD = 1 << ON_CUDA_COLD, GRAPH = 1 << ON_CUDA_GRAPH, PDL = 1 << ON_CUDA_PDL };
enum { SMALL = COLD | GRAPH | PDL, MOST_NUMBERS = 16 };
#define ARENA ((size_t)48 << 30)

typedef struct bench {
    on_cuda_gpu gpu;
    bool tiny, list, jit;
    const char *section;
    const regex_t *row; /* rows of other names are left out; NULL: none is */
    int32_t n_failed, n_compiled;
} bench;

/* Rows of a section: one for each number, which stands for %d in name and shape. */
typedef struct rows {
    const char *section, *name, *op, *shape;
    int32_t number[MOST_NUMBERS]; /* ends with 0 */
    int methods;                  /* up to `small_to`; beyond it COLD alone */
    int32_t small_to;
} rows;

#define PREFILL(h, n, len)                                              \
    {                                                                   \
        "prefill", "prefill " #h "/8 " #n " x %d", "attention_prefill", \
            "seqs=" #n ",q_len=%d,kv_len=%d,heads=" #h, {len}, COLD, 0  \
    }
#define DECODE(h, n, len, how)                                       \
    {                                                                \
        "decode", "decode " #h "/8 " #n " x %d", "attention_decode", \
            "seqs=" #n ",kv_len=%d,heads=" #h, {len}, how, 1 << 30   \
    }
#define FP8_PREFILL(n, len)                                                       \
    {                                                                             \
        "prefill", "prefill fp8 32/8 " #n " x %d", "attention_prefill",           \
            "seqs=" #n ",q_len=%d,kv_len=%d,heads=32,kv_type=fp8", {len}, COLD, 0 \
    }
#define FP8_DECODE(h, n, len, how)                                                \
    {                                                                             \
        "decode", "decode fp8 " #h "/8 " #n " x %d", "attention_decode",          \
            "seqs=" #n ",kv_len=%d,heads=" #h ",kv_type=fp8", {len}, how, 1 << 30 \
    }
/* `n` sequences whose lengths grow evenly from `first` to `last`, all their tokens new; and decodes of
 * such sequences. */
#define MIXED_PREFILL(h, n, first, by, last)                                                       \
    {                                                                                              \
        "prefill", "prefill " #h "/8 " #n " of %d to " #last, "attention_prefill",                 \
            "seqs=" #n ",q_len=%d,kv_len=%d,q_step=" #by ",step=" #by ",heads=" #h, {first}, COLD, \
            0                                                                                      \
    }
#define MIXED_DECODE(h, n, first, by, last)                                     \
    {                                                                           \
        "decode", "decode " #h "/8 " #n " of %d to " #last, "attention_decode", \
            "seqs=" #n ",kv_len=%d,step=" #by ",heads=" #h, {first}, COLD, 0    \
    }
/* `q` new tokens of one sequence behind `len` that the cache holds. */
#define CACHED(h, q, len, all)                                              \
    {                                                                       \
        "prefill", "prefill " #h "/8 %d behind " #len, "attention_prefill", \
            "seqs=1,q_len=%d,kv_len=" #all ",heads=" #h, {q}, COLD, 0       \
    }
/* Decodes that verify guesses: q tokens each. */
#define DRAFTED(h, n, q, len, how)                                                       \
    {                                                                                    \
        "decode", "decode " #h "/8 " #n " x %d, " #q " tokens each", "attention_decode", \
            "seqs=" #n ",kv_len=%d,q_len=" #q ",heads=" #h, {len}, how, 1 << 30          \
    }
/* `pages` of 64 tokens in front of all sequences are the same. */
#define SHARED(h, n, len, pages, tokens)                                                 \
    {                                                                                    \
        "shared", "decode " #h "/8 " #n " x %d, " #tokens " shared", "attention_decode", \
            "seqs=" #n ",kv_len=%d,heads=" #h ",shared=" #pages, {len}, COLD, 0          \
    }
#define ROW(name_, op_, shape_)                                       \
    {                                                                 \
        "rows", name_ " %d", op_, shape_, {1, 256, 16384}, SMALL, 256 \
    }
#define LAYER(what, cols_, shape_)                                                               \
    {"gemm",                                                                                     \
     "linear " what " %d",                                                                       \
     "linear",                                                                                   \
     "tokens=%d,cols=" #cols_ "," shape_,                                                        \
     {256, 2048, 8192},                                                                          \
     COLD,                                                                                       \
     0},                                                                                         \
    {                                                                                            \
        "gemv", "linear " what " %d", "linear", "tokens=%d,cols=" #cols_ "," shape_, {1, 8, 64}, \
            SMALL, 1 << 30                                                                       \
    }
#define HEAD(what, cols_)                                                                \
    {"gemm",   "linear " what " head %d",                                                \
     "linear", "tokens=%d,cols=" #cols_ ",rows=151936,logits=1",                         \
     {256},    COLD,                                                                     \
     0},                                                                                 \
    {                                                                                    \
        "gemv", "linear " what " head %d", "linear",                                     \
            "tokens=%d,cols=" #cols_ ",rows=151936,logits=1", {1, 8, 64}, SMALL, 1 << 30 \
    }
#define QUANT(what, type_, cols_, shape_)                                                 \
    {                                                                                     \
        "quant", "linear " what " " type_ " %d", "linear",                                \
            "tokens=%d,type=" type_ ",cols=" #cols_ "," shape_, {1, 8, 64, 256}, SMALL, 1 \
    }
#define QUANT_8B(type_)                                                             \
    QUANT("8B qkv", type_, 4096, "rows=4096,rows2=1024,rows3=1024"),                \
        QUANT("8B o", type_, 4096, "rows=4096,residual=1"),                         \
        QUANT("8B gate+up", type_, 4096, "rows=12288,rows2=12288,epilogue=swiglu"), \
        QUANT("8B down", type_, 12288, "rows=4096,residual=1"),                     \
        QUANT("8B head", type_, 4096, "rows=151936,logits=1")
#define EXPERTS_OF(model, what, shape_)                                                \
    {                                                                                  \
        "experts", "experts " model " " what " %d", "moe_linear", "tokens=%d," shape_, \
            {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192}, SMALL, 64       \
    }
#define EXPERTS(what, shape_) \
    EXPERTS_OF("30B-A3B", what, "hidden=2048,ffn=768,experts=128,k=8," shape_)
#define BOTH(what, cols_, shape_)                                                                 \
    {"cublaslt",                                                                                  \
     "linear " what " %d own",                                                                    \
     "linear",                                                                                    \
     "tokens=%d,cols=" #cols_ "," shape_,                                                         \
     {32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096, 8192},                          \
     COLD | PDL,                                                                                  \
     256},                                                                                        \
    {                                                                                             \
        "cublaslt", "linear " what " %d cublasLt", "linear", "tokens=%d,cols=" #cols_ "," shape_, \
            {32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096, 8192}, COLD | PDL, 256   \
    }

/* clang-format off */
static const rows kRows[] = {
    PREFILL(32, 1, 2048), PREFILL(32, 1, 4096), PREFILL(32, 1, 8192), PREFILL(32, 8, 2048),
    PREFILL(32, 64, 256), PREFILL(16, 1, 4096), PREFILL(16, 1, 8192), PREFILL(16, 8, 2048),
    PREFILL(16, 64, 256), MIXED_PREFILL(32, 7, 146, 146, 1022),
    MIXED_PREFILL(16, 7, 146, 146, 1022), CACHED(32, 64, 8192, 8256), CACHED(16, 64, 8192, 8256), FP8_PREFILL(1, 8192), FP8_PREFILL(8, 2048), FP8_PREFILL(64, 256),
    DECODE(32, 1, 1024, SMALL), DECODE(32, 1, 4096, SMALL), DECODE(32, 1, 32768, SMALL),
    DECODE(32, 8, 4096, COLD), DECODE(32, 32, 4096, COLD), DECODE(32, 64, 2048, COLD),
    DECODE(32, 128, 1024, COLD), DECODE(32, 256, 512, COLD), DECODE(16, 1, 1024, SMALL),
    DECODE(16, 32, 4096, COLD), DECODE(16, 128, 1024, COLD), DECODE(16, 256, 512, COLD),
    DECODE(16, 256, 896, COLD), DECODE(40, 32, 4096, COLD), DECODE(40, 256, 512, COLD),
    DRAFTED(32, 1, 4, 4096, SMALL), DRAFTED(32, 8, 4, 4096, COLD), DRAFTED(32, 64, 8, 2048, COLD),
    MIXED_DECODE(32, 64, 100, 62, 4006), MIXED_DECODE(16, 64, 100, 62, 4006),
    FP8_DECODE(32, 1, 4096, SMALL), FP8_DECODE(32, 1, 32768, SMALL), FP8_DECODE(32, 32, 4096, COLD),
    FP8_DECODE(32, 64, 2048, COLD), FP8_DECODE(32, 256, 512, COLD), FP8_DECODE(16, 256, 512, COLD),
    FP8_DECODE(16, 32, 4096, COLD), FP8_DECODE(40, 256, 512, COLD),
    SHARED(32, 5, 8192, 126, 8064), SHARED(32, 8, 1024, 14, 896), SHARED(32, 8, 8192, 126, 8064),
    SHARED(32, 64, 512, 6, 384), SHARED(32, 64, 2048, 30, 1920), SHARED(32, 256, 1024, 14, 896),
    SHARED(16, 64, 2048, 30, 1920), SHARED(40, 64, 2048, 16, 1024),
    ROW("rmsnorm", "rmsnorm", "tokens=%d,hidden=4096"),
    ROW("add+rmsnorm", "add_rmsnorm", "tokens=%d,hidden=4096"),
    {"rows", "q-head norm 1", "rmsnorm", "tokens=32,hidden=128,in_place=1", {1}, SMALL, 256},
    {"rows", "q-head norm 256", "rmsnorm", "tokens=8192,hidden=128,in_place=1", {256}, SMALL, 256},
    {"rows", "q-head norm 16384", "rmsnorm", "tokens=524288,hidden=128,in_place=1", {16384}, COLD, 0},
    ROW("rope", "rope", "tokens=%d"),
    ROW("qk-norm+rope", "rope", "tokens=%d,norm=1"),
    {"rows", "qk-norm+rope+store %d", "rope_store", "tokens=%d,heads=32,kv_type=bf16,page=64,norm=1",
     {1, 256, 16384}, SMALL, 256},
    ROW("silu", "silu_mul", "tokens=%d"),
    ROW("index 4096", "embed", "tokens=%d,vocab=151936"),
    ROW("store", "kv_store", "tokens=%d"),
    ROW("store random", "kv_store", "tokens=%d,slots=random"),
    LAYER("0.6B qkv", 1024, "rows=2048,rows2=1024,rows3=1024"),
    LAYER("0.6B o", 2048, "rows=1024,residual=1"),
    LAYER("0.6B gate+up", 1024, "rows=3072,rows2=3072,epilogue=swiglu"),
    LAYER("0.6B down", 3072, "rows=1024,residual=1"),
    HEAD("0.6B", 1024),
    LAYER("8B qkv", 4096, "rows=4096,rows2=1024,rows3=1024"),
    LAYER("8B o", 4096, "rows=4096,residual=1"),
    LAYER("8B gate+up", 4096, "rows=12288,rows2=12288,epilogue=swiglu"),
    LAYER("8B down", 12288, "rows=4096,residual=1"),
    HEAD("8B", 4096),
    QUANT_8B("fp8"), QUANT_8B("q8_0"), QUANT_8B("q4_k"), QUANT_8B("q6_k"),
    EXPERTS("bf16", "type=bf16"), EXPERTS("fp8", "type=fp8,scales=blocks"),
    EXPERTS("q8_0", "type=q8_0"), EXPERTS("q4_k", "type=q4_k"),
    EXPERTS_OF("gpt-oss-20b", "mxfp4", "hidden=2880,ffn=2880,experts=32,k=4,type=mxfp4,activation=clamped,bias=1"),
    BOTH("0.6B qkv", 1024, "rows=4096"), BOTH("0.6B o", 2048, "rows=1024,residual=1"),
    BOTH("0.6B down", 3072, "rows=1024,residual=1"), BOTH("8B qkv", 4096, "rows=6144"),
    BOTH("8B o", 4096, "rows=4096,residual=1"), BOTH("8B gate+up", 4096, "rows=24576"),
    BOTH("8B down", 12288, "rows=4096,residual=1"), BOTH("14B qkv", 5120, "rows=7168"),
    BOTH("14B o", 5120, "rows=5120,residual=1"), BOTH("14B gate+up", 5120, "rows=34816"),
    BOTH("14B down", 17408, "rows=5120,residual=1"),
    {"plan", "plan decode 32/8 1 x %d", "attention_decode", "seqs=1,kv_len=%d", {4096}, 0, 0},
    {"plan", "plan decode 32/8 32 x %d", "attention_decode", "seqs=32,kv_len=%d", {4096}, 0, 0},
    {"plan", "plan decode 16/8 256 x %d", "attention_decode", "seqs=256,kv_len=%d,heads=16", {512}, 0, 0},
    {"plan", "plan decode 16/8 256 x %d, shared", "attention_decode",
     "seqs=256,kv_len=%d,heads=16,shared=30", {2048}, 0, 0},
    {"plan", "plan prefill 32/8 8 x %d", "attention_prefill", "seqs=8,q_len=%d,kv_len=%d", {2048}, 0, 0},
};
/* clang-format on */

/* ---- output ---- */

static void must(vt_status status, const vt_err *err)
{
    if (status == VT_OK)
        return;
    fprintf(stderr, "gpu_kernels: %s\n", err->message);
    exit(1);
}

/* `ran`: the row of the card, "" where none is. */
static void print_row(const bench *b, const char *name, const char *method, const on_cuda_times *t,
                      const vt_cost *c, const char *ran)
{
    double bytes = (double)vt_cost_bytes(c), flops = (double)vt_cost_flops(c);
    printf("{\"section\": \"%s\", \"row\": \"%s\", \"method\": \"%s\", \"us\": %.3f, \"us_min\": "
           "%.3f, \"us_max\": %.3f, \"n\": %d, \"ran\": \"%s\", \"bytes\": %.0f, \"flops\": %.0f, "
           "\"gb_per_s\": "
           "%.1f, \"tflop_per_s\": %.2f%s}\n",
           b->section, name, method, t->us, t->us_min, t->us_max, t->n, ran, bytes, flops,
           t->us > 0 ? bytes / t->us * 1e-3 : 0, t->us > 0 ? flops / t->us * 1e-6 : 0,
           b->tiny ? ", \"tiny\": true" : "");
    fflush(stdout);
}

static void print_failure(bench *b, const char *name, const char *method, const char *why)
{
    b->n_failed++;
    printf("{\"section\": \"%s\", \"row\": \"%s\", \"method\": \"%s\", \"error\": \"", b->section,
           name, method);
    for (const char *p = why; *p; p++)
        putchar(*p == '"' || *p == '\\' || (unsigned char)*p < ' ' ? ' ' : *p);
    printf("\"}\n");
    fflush(stdout);
}

/* ---- one row ---- */

static bool wanted(const bench *b, const char *name)
{
    return !b->row || regexec(b->row, name, 0, NULL, 0) == 0;
}

/* Settings of a request, for rows of the sampling section. */
typedef struct sampling_kind {
    const char *name;
    float temperature, top_p;
    int32_t top_k, n_top;
    int32_t allowed; /* n: every n-th id is allowed; 0: no mask */
} sampling_kind;

static void set_sampling(sample_args *a, const sampling_kind *k, vt_arena *arena)
{
    int64_t n = a->logits->dim[0], words = vt_ceil_div(a->logits->dim[1], 32);
    uint32_t *mask = k->allowed ? vt_arena_alloc(arena, (size_t)(n * words), 4) : NULL;
    for (int64_t i = 0; mask && i < n * words * 32; i += k->allowed)
        mask[i / 32] |= 1u << i % 32;
    for (int64_t i = 0; i < n; i++) {
        vt_sample_row *row = (vt_sample_row *)(uintptr_t) & (*a->row)[i];
        row->temperature = k->temperature;
        row->top_p = k->top_p;
        row->top_k = k->top_k;
        row->n_top = k->n_top;
        row->mask = mask ? mask + i * words : NULL;
    }
}

static void time_methods(bench *b, on_cuda *c, const char *name, int methods)
{
    vt_cost cost = on_cuda_cost(c);
    for (int m = 0; m < ON_CUDA_METHODS; m++) {
        on_cuda_times t;
        vt_err err = {0};
        if (!(methods & 1 << m))
            continue;
        if (on_cuda_time(c, (on_cuda_method)m, b->tiny, &t, &err) == VT_OK)
            print_row(b, name, on_cuda_method_name[m], &t, &cost, c->impl->name);
        else
            print_failure(b, name, on_cuda_method_name[m], err.message);
    }
}

/* The host's part of a step: filling the plan of the row that was taken. */
static void time_plan(bench *b, const on_cuda *c, const char *name)
{
    enum { REPS = 51 };
    double us[REPS];
    const vt_host_plan *p = c->impl->plan;
    size_t bytes = p ? p->bytes(c->args, &c->target, &c->size, c->items) : 0;
    void *out = calloc(bytes + 16, 1);
    for (int32_t i = -3; p && out && i < REPS; i++) {
        int64_t begin = vt_now_ns();
        p->fill(c->args, &c->target, &c->size, c->batch, c->items, out, NULL);
        us[i < 0 ? 0 : i] = (double)(vt_now_ns() - begin) * 1e-3;
    }
    on_cuda_times t = {
        .us = vt_median(us, REPS), .us_min = us[0], .us_max = us[REPS - 1], .n = REPS};
    print_row(b, name, "host", &t, &(vt_cost){0}, c->impl->name);
    free(out);
}

/* Methods 0: the plan alone. */
static vt_status run_call(bench *b, const char *name, const vt_op *op, void *args, int methods,
                          vt_err *err)
{
    static on_cuda c;
    TRY(on_cuda_round(op, args, err));
    TRY(on_cuda_make(&c, &b->gpu, op, args, NULL, err));
    const vt_impl *impl = on_cuda_choice(&c);
    vt_status status = impl ? on_cuda_take(&c, impl, err)
                            : vt_fail(err, VT_ERR_UNSUPPORTED, "%s: no row takes it", op->name);
    if (status == VT_OK && methods)
        status = on_cuda_run(&c, err);
    if (status == VT_OK && methods && !b->jit)
        time_methods(b, &c, name, methods);
    else if (status == VT_OK && !b->jit)
        time_plan(b, &c, name);
    on_cuda_release(&c);
    return status;
}

static void run_shape(bench *b, const char *name, const char *op_name, const char *shape,
                      int methods, const sampling_kind *kind)
{
    const vt_op *op = vt_op_find(op_name);
    vt_case text;
    vt_tensor *output[VT_MAX_OUTPUTS];
    int32_t n_outputs;
    vt_arena arena;
    vt_err err = {0};
    if (!wanted(b, name))
        return;
    if (b->list) {
        printf("%s\t%s\n", b->section, name);
        return;
    }
    must(vt_case_from_text(op, shape, &text, &err), &err);
    vt_arena_init(&arena, ARENA);
    void *args = op->make_args(&text, 42, &arena, output, &n_outputs);
    vt_status status = VT_OK;
    if (!args)
        status = vt_fail(&err, VT_ERR_MEMORY, "out of host memory");
    else if (kind)
        set_sampling(args, kind, &arena);
    if (status == VT_OK)
        status = run_call(b, name, op, args, methods, &err);
    if (status != VT_OK)
        print_failure(b, name, "", err.message);
    vt_arena_release(&arena);
}

/* Small numbers in place of the shape's, for an emulated GPU. */
static void shrink(char *shape, size_t size)
{
    static const struct {
        const char *field;
        int32_t most;
    } limit[] = {{"tokens", 5}, {"seqs", 3},    {"q_len", 70},  {"kv_len", 70},  {"cols", 256},
                 {"rows", 160}, {"rows2", 160}, {"rows3", 160}, {"n", 256},      {"vocab", 1000},
                 {"step", 62},  {"q_step", 7},  {"ffn", 256},   {"hidden", 256}, {"experts", 4},
                 {"k", 2},      {"shared", 1}};
    char out[256] = "";
    size_t at = 0;
    for (char *p = strtok(shape, ","); p; p = strtok(NULL, ",")) {
        char *equals = strchr(p, '=');
        int32_t value = (int32_t)strtol(equals + 1, NULL, 10);
        *equals = 0;
        char *text = equals + 1, few[16];
        for (size_t i = 0; i < sizeof limit / sizeof *limit; i++)
            if (strcmp(limit[i].field, p) == 0 && value > limit[i].most) {
                snprintf(few, sizeof few, "%d", limit[i].most);
                text = few;
            }
        at += (size_t)snprintf(out + at, sizeof out - at, "%s%s=%s", at ? "," : "", p, text);
    }
    snprintf(shape, size, "%s", out);
}

/* %d of name and shape, twice at most. */
static void run_number(bench *b, const rows *r, int32_t n)
{
    char name[96], shape[256];
    int methods = n <= r->small_to || !r->methods ? r->methods : COLD;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(name, sizeof name, r->name, n);
    snprintf(shape, sizeof shape, r->shape, n, n);
#pragma GCC diagnostic pop
    if (b->tiny)
        shrink(shape, sizeof shape);
    run_shape(b, name, r->op, shape, methods, NULL);
}

static void run_rows(bench *b, const rows *r)
{
    bool there = b->gpu.target.cublaslt;
    for (int32_t i = 0; i < MOST_NUMBERS && r->number[i]; i++) {
        bool library = strstr(r->name, "cublasLt") != NULL;
        if (library && !there && !b->list)
            continue;
        b->gpu.target.cublaslt = there && strcmp(b->section, "cublaslt") != 0;
        b->gpu.target.cublaslt |= b->gpu.target.cublaslt_all = library && there;
        run_number(b, r, r->number[i]);
        b->gpu.target.cublaslt = there;
        b->gpu.target.cublaslt_all = false;
        if (strcmp(b->section, "shared") != 0)
            continue;
        rows apart = *r;
        char name[96];
        snprintf(name, sizeof name, "%s, apart", r->name);
        apart.name = name;
        vt_target_turn_knobs(&b->gpu.target, 0); /* each sequence reads them for itself */
        run_number(b, &apart, r->number[i]);
        vt_target_turn_knobs(&b->gpu.target, 1);
    }
}

static void run_sampling(bench *b)
{
    /* At temperature 0.6 a nucleus of 0.9 has tens of thousands of ids, at 0.06 a dozen. */
    static const int32_t n[] = {1, 32, 256};
    static const sampling_kind kind[] = {{"sample", 0.6f, 0.9f, 50, -1, 0},
                                         {"greedy", 0, 1, 0, -1, 0},
                                         {"sample sharp top-p", 0.06f, 0.9f, 0, -1, 0},
                                         {"sample flat top-p", 0.6f, 0.9f, 0, -1, 0},
                                         {"sample all", 0.6f, 1, 0, -1, 0},
                                         {"log-probabilities", 0, 1, 0, 5, 0},
                                         {"sample allowed half", 0.6f, 0.9f, 50, -1, 2},
                                         {"sample allowed few", 0.6f, 0.9f, 50, -1, 10000},
                                         {"greedy allowed few", 0, 1, 0, -1, 10000}};
    for (size_t k = 0; k < sizeof kind / sizeof *kind; k++)
        for (size_t i = 0; i < sizeof n / sizeof *n; i++) {
            char name[96], shape[96];
            snprintf(name, sizeof name, "%s %d", kind[k].name, n[i]);
            snprintf(shape, sizeof shape, "rows=%d,vocab=%d,kind=plain,spread=10",
                     b->tiny && n[i] > 3 ? 3 : n[i], b->tiny ? 1000 : 151936);
            run_shape(b, name, "sample", shape, SMALL, &kind[k]);
        }
}

/* ---- the floor and the copy roof ---- */

/* An empty pair of events (bytes 0), a copy on the device, or one from pinned memory. */
static void copy_row(bench *b, const char *name, size_t bytes, bool from_host)
{
    enum { REPS = 30 };
    const cuda_driver *d = b->gpu.cuda ? &b->gpu.cuda->driver : NULL;
    cu_stream stream = b->gpu.lane.stream;
    double us[REPS];
    void *from = NULL, *to = NULL;
    cu_event mark[2] = {0};
    vt_err err = {0};
    if (!wanted(b, name))
        return;
    if (b->list) {
        printf("%s\t%s\n", b->section, name);
        return;
    }
    must(vt_cuda_alloc(b->gpu.cuda, bytes + 16, &to, &err), &err);
    must(from_host ? vt_cuda_pinned(b->gpu.cuda, bytes + 16, &from, &err)
                   : vt_cuda_alloc(b->gpu.cuda, bytes + 16, &from, &err),
         &err);
    if (from_host)
        memset(from, 0x5a, bytes);
    cu_ptr src = (cu_ptr)(uintptr_t)from, dst = (cu_ptr)(uintptr_t)to;
    int32_t reps = b->tiny ? 3 : REPS;
    for (int i = 0; i < 2; i++)
        must(vt_cuda_check(b->gpu.cuda, d->event_create(&mark[i], CU_EVENT_DEFAULT), "event", &err),
             &err);
    for (int32_t i = -3; i < reps; i++) {
        float ms = 0;
        d->fill8((cu_ptr)(uintptr_t)b->gpu.flush, (unsigned char)i, b->gpu.flush_bytes, stream);
        d->event_record(mark[0], stream);
        if (bytes && from_host)
            d->copy_to_device(dst, from, bytes, stream);
        else if (bytes)
            d->copy_device(dst, src, bytes, stream);
        d->event_record(mark[1], stream);
        must(vt_cuda_check(b->gpu.cuda, d->stream_sync(stream), name, &err), &err);
        d->event_elapsed(&ms, mark[0], mark[1]);
        us[i < 0 ? 0 : i] = (double)ms * 1e3;
    }
    on_cuda_times t = {.us = vt_median(us, (size_t)reps), .n = reps};
    t.us_min = us[0]; /* the median sorts */
    t.us_max = us[reps - 1];
    vt_cost cost = {.read = {.activations = (int64_t)bytes},
                    .write = {.activations = from_host ? 0 : (int64_t)bytes}};
    print_row(b, name, "cold", &t, &cost, "");
    for (int i = 0; i < 2; i++)
        d->event_destroy(mark[i]);
    from_host ? vt_cuda_pinned_free(b->gpu.cuda, from) : vt_cuda_free(b->gpu.cuda, from);
    vt_cuda_free(b->gpu.cuda, to);
}

static void run_roof(bench *b)
{
    size_t mib = (size_t)1 << 20;
    copy_row(b, "floor: an empty pair of events", 0, false);
    copy_row(b, "copy 512 MiB", b->tiny ? mib : 512 * mib, false);
    copy_row(b, "copy 256 MiB from pinned memory", b->tiny ? mib : 256 * mib, true);
}

/* ---- sections ---- */

static const char *const kSections[] = {"roof", "prefill", "decode", "shared",  "rows", "sampling",
                                        "gemm", "gemv",    "quant",  "experts", "plan", "cublaslt"};
enum { N_SECTIONS = sizeof kSections / sizeof *kSections };

static void run_section(bench *b, const char *section)
{
    b->section = section;
    if (strcmp(section, "roof") == 0 && !b->jit)
        run_roof(b);
    if (strcmp(section, "sampling") == 0)
        run_sampling(b);
    for (size_t i = 0; i < sizeof kRows / sizeof *kRows; i++)
        if (strcmp(kRows[i].section, section) == 0 && (!b->jit || kRows[i].methods))
            run_rows(b, &kRows[i]);
}

/* Returns true if `name` is one of the words of "a,b,c"; NULL: all. */
static bool in_list(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = list; p && *p; p += strcspn(p, ","), p += *p == ',')
        if (strcspn(p, ",") == n && strncmp(p, name, n) == 0)
            return true;
    return !list;
}

static bool known_list(const char *list)
{
    for (const char *p = list; p && *p; p += strcspn(p, ","), p += *p == ',') {
        size_t n = strcspn(p, ",");
        bool known = n == 3 && strncmp(p, "jit", 3) == 0;
        for (int i = 0; i < N_SECTIONS; i++)
            known = known || (n == strlen(kSections[i]) && strncmp(p, kSections[i], n) == 0);
        if (!known) {
            fprintf(stderr, "gpu_kernels: --only: '%.*s' found, expected some of jit", (int)n, p);
            for (int i = 0; i < N_SECTIONS; i++)
                fprintf(stderr, ", %s", kSections[i]);
            fputc('\n', stderr);
            return false;
        }
    }
    return true;
}

static bool on_compiled(void *user, int32_t done, int32_t total, const char *name, double ms,
                        bool cached)
{
    bench *b = user;
    (void)done, (void)total;
    b->n_compiled += !cached;
    if (!cached && b->jit)
        printf("{\"section\": \"jit\", \"row\": \"%s\", \"method\": \"host\", \"us\": %.0f}\n",
               name, ms * 1e3);
    return true;
}

/* Compiles what the sections run, each kernel anew. `only` is "jit" alone: of every section. */
static void run_jit(bench *b, const char *only)
{
    bool all = strcmp(only, "jit") == 0;
    int64_t begin = vt_now_ns();
    b->jit = true;
    vt_jit_set_cache(b->gpu.cuda->jit, false);
    for (int i = 0; i < N_SECTIONS; i++)
        if (all || in_list(only, kSections[i]))
            run_section(b, kSections[i]);
    vt_jit_set_cache(b->gpu.cuda->jit, true);
    b->jit = false;
    printf("{\"section\": \"jit\", \"row\": \"jit: all %d kernels\", \"method\": \"host\", \"us\": "
           "%.0f}\n",
           b->n_compiled, (double)(vt_now_ns() - begin) * 1e-3);
    fflush(stdout);
}

static void print_machine(const bench *b)
{
    int sm_khz = 0, memory_khz = 0;
    const vt_cuda *c = b->gpu.cuda;
    c->driver.device_attribute(&sm_khz, CU_ATTR_CLOCK_KHZ, c->device);
    c->driver.device_attribute(&memory_khz, CU_ATTR_MEMORY_CLOCK_KHZ, c->device);
    printf("{\"machine\": \"%s\", \"arch\": \"%s\", \"level\": %d, \"sms\": %d, \"driver\": %d, "
           "\"sm_mhz\": %d, \"memory_mhz\": %d, \"l2_bytes\": %d, \"flush_bytes\": %zu}\n",
           c->name, c->arch, c->level, c->sm_count, c->driver_version, sm_khz / 1000,
           memory_khz / 1000, c->l2_bytes, b->gpu.flush_bytes);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static bench b;
    vt_err err = {0};
    const char *only = NULL;
    regex_t row;
    on_cuda_options o = {.library = true, .always = true};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
            only = argv[++i];
        } else if (strcmp(argv[i], "--row") == 0 && i + 1 < argc && !b.row) {
            if (regcomp(&row, argv[++i], REG_EXTENDED | REG_NOSUB) != 0) {
                fprintf(stderr, "gpu_kernels: --row: '%s' is no regular expression\n", argv[i]);
                return 2;
            }
            b.row = &row;
        } else if (strcmp(argv[i], "--tiny") == 0) {
            b.tiny = true;
        } else if (strcmp(argv[i], "--deterministic") == 0) {
            o.deterministic = true;
        } else if (strcmp(argv[i], "--list") == 0) {
            b.list = true;
        } else {
            fprintf(stderr,
                    "usage: gpu_kernels [--only SECTION,...] [--row REGEX] [--deterministic] "
                    "[--tiny] [--list]\n");
            return 2;
        }
    }
    if (!known_list(only))
        return 2;
    o.flush_bytes = (size_t)(b.tiny ? 1 : 256) << 20;
    if (!b.list && on_cuda_open(0, &o, &b.gpu, &err) != VT_OK) {
        printf("{\"skip\": \"no GPU\"}\n");
        fprintf(stderr, "gpu_kernels: %s\n", err.message);
        return 77;
    }
    b.gpu.target.cublaslt_all = false; /* where it was measured to be faster */
    b.gpu.progress = on_compiled;
    b.gpu.progress_user = &b;
    if (!b.list)
        print_machine(&b);
    if (only && in_list(only, "jit") && !b.list)
        run_jit(&b, only);
    for (int i = 0; i < N_SECTIONS; i++)
        if (in_list(only, kSections[i]))
            run_section(&b, kSections[i]);
    on_cuda_close(&b.gpu);
    if (b.row)
        regfree(&row);
    return b.n_failed != 0;
}
