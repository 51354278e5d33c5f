/* make build/release/libvitrine_internal.a
 * gcc -O2 -D_GNU_SOURCE -Iinclude -Isrc bench/micro/linear.c build/release/libvitrine_internal.a
 * -ljansson \
 *     -lm -ldl -lpthread -o build/bench_linear && build/bench_linear
 *
 * The linears of a forward pass, each shape at 1, 8, 64 and 512 tokens with every implementation
 * this machine has. A shape's weights exist once per layer, as in the model, so that a pass streams
 * them from where the model's would come. Each layer's call is timed on its own, the best of
 * several passes counts, and a pass is the sum of those: what others do on the machine mostly drops
 * out. Random weights and activations.
 *
 *   bench_linear [-t threads] [-i implementation] [-m model] [-n tokens]
 *
 * GB/s counts packed weight bytes once a pass, GFLOP/s 2 * tokens * rows * cols. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "ops/cases.h"
#include "ops/linear/linear.h"

typedef struct shape {
    const char *model, *name;
    vt_dtype dtype;
    int64_t rows[3], cols;
    linear_epilogue epilogue;
    int32_t layers;
} shape;

static const shape shapes[] = {
    {"smollm2-135m", "qkv", VT_Q4_1, {576, 192, 192}, 576, LINEAR_NONE, 30},
    {"smollm2-135m", "o", VT_Q4_1, {576}, 576, LINEAR_NONE, 30},
    {"smollm2-135m", "gate+up", VT_Q4_1, {1536, 1536}, 576, LINEAR_SWIGLU, 30},
    {"smollm2-135m", "down", VT_Q4_1, {576}, 1536, LINEAR_NONE, 30},
    {"smollm2-135m", "head", VT_Q8_0, {49152}, 576, LINEAR_NONE, 1},
    {"qwen3-0.6b", "qkv", VT_BF16, {2048, 1024, 1024}, 1024, LINEAR_NONE, 8},
    {"qwen3-0.6b", "o", VT_BF16, {1024}, 2048, LINEAR_NONE, 8},
    {"qwen3-0.6b", "gate+up", VT_BF16, {3072, 3072}, 1024, LINEAR_SWIGLU, 8},
    {"qwen3-0.6b", "down", VT_BF16, {1024}, 3072, LINEAR_NONE, 8},
    {"types", "Q8_0", VT_Q8_0, {2048}, 2048, LINEAR_NONE, 16},
    {"types", "Q4_0", VT_Q4_0, {2048}, 2048, LINEAR_NONE, 16},
    {"types", "Q5_0", VT_Q5_0, {2048}, 2048, LINEAR_NONE, 16},
    {"types", "Q5_1", VT_Q5_1, {2048}, 2048, LINEAR_NONE, 16},
    {"types", "Q4_K", VT_Q4_K, {2048}, 2048, LINEAR_NONE, 16},
    {"types", "Q5_K", VT_Q5_K, {2048}, 2048, LINEAR_NONE, 16},
    {"types", "Q6_K", VT_Q6_K, {2048}, 2048, LINEAR_NONE, 16},
    {"types", "F16", VT_F16, {2048}, 2048, LINEAR_NONE, 8},
    {"types", "F32", VT_F32, {2048}, 2048, LINEAR_NONE, 8},
};

typedef struct pass {
    const vt_impl *impl;
    vt_team *team;
    linear_args args;
    vt_weight *layer; /* [layers], the same random numbers in memory of their own */
    int32_t layers;
    atomic_int ticket[64];
    int64_t best_ns[64];
    void *shared;
} pass;

static void run_layers(void *arg, int32_t worker)
{
    pass *p = arg;
    vt_lane lane = {
        .team = p->team, .worker = worker, .n_workers = vt_team_size(p->team), .shared = p->shared};
    for (int32_t i = 0; i < p->layers; i++) {
        int64_t begin = vt_now_ns();
        vt_team_barrier(p->team, worker); /* no worker has begun when worker 0 takes the time */
        linear_args a = p->args;
        a.w = &p->layer[i];
        lane.ticket = &p->ticket[i];
        p->impl->run(&a, &lane);
        vt_team_barrier(p->team, worker);
        int64_t ns = vt_now_ns() - begin;
        if (worker == 0 && ns < p->best_ns[i])
            p->best_ns[i] = ns;
    }
}

static double best_seconds(pass *p)
{
    for (int32_t i = 0; i < p->layers; i++)
        p->best_ns[i] = INT64_MAX;
    int64_t begin = vt_now_ns();
    for (int i = 0; i < 5 || (vt_now_ns() - begin < 300000000 && i < 200); i++) {
        memset(p->ticket, 0, sizeof p->ticket);
        vt_team_run(p->team, run_layers, p);
    }
    int64_t sum = 0;
    for (int32_t i = 0; i < p->layers; i++)
        sum += p->best_ns[i];
    return (double)sum * 1e-9;
}

static void *need(void *p)
{
    if (!p) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return p;
}

/* One shape, one implementation, `tokens` tokens: a line of output; returns the seconds of a
 * pass. */
static double bench(const shape *s, const vt_impl *impl, vt_team *team, int64_t tokens,
                    const vt_weight *w, double *pack_s)
{
    vt_arena arena;
    vt_arena_init(&arena, 0);
    uint64_t rng = 1;
    pass p = {.impl = impl, .team = team, .layers = s->layers};
    int64_t out = s->epilogue == LINEAR_NONE ? w->rows : w->rows / 2;
    p.args = (linear_args){.w = w, .epilogue = s->epilogue, .scale = 1};
    p.args.x = need(case_fill(&arena, case_tensor_2d(&arena, VT_F32, tokens, s->cols), 0, 1, &rng));
    p.args.y = need(case_tensor_2d(&arena, VT_F32, tokens, out));
    p.layer = need(vt_arena_alloc(&arena, (size_t)s->layers, sizeof *p.layer));
    size_t bytes = impl->pack_bytes ? impl->pack_bytes(w) : 0;
    int64_t stored = w->rows * vt_dtype_row_bytes(w->dtype, w->cols);
    char *packed = bytes ? need(vt_pages_alloc(bytes * (size_t)s->layers)) : NULL;
    *pack_s = 0;
    for (int32_t i = 0; i < s->layers; i++) {
        p.layer[i] = *w;
        if (!bytes)
            continue;
        p.layer[i].packed = packed + bytes * (size_t)i;
        p.layer[i].packed_bytes = bytes;
        int64_t begin = vt_now_ns();
        vt_pack_all(impl, w, p.layer[i].packed);
        *pack_s += (double)(vt_now_ns() - begin) * 1e-9;
    }
    vt_limits limits = {.max_tokens = (int32_t)tokens, .n_workers = vt_team_size(team)};
    size_t shared = impl->workspace ? impl->workspace(&p.args, &limits) : 64;
    p.shared = need(vt_aligned_alloc(VT_CACHE_LINE, shared));
    double sec = best_seconds(&p), calls = s->layers;
    printf("%-12s %-8s %-5s %-10s %4d tokens %9.1f us a call %7.1f GB/s %8.1f GFLOP/s", s->model,
           s->name, vt_dtype_get(s->dtype)->name, impl->name, (int)tokens, sec / calls * 1e6,
           (double)(bytes ? (int64_t)bytes : stored) * calls / sec * 1e-9,
           2.0 * (double)(tokens * w->rows * w->cols) * calls / sec * 1e-9);
    if (bytes && tokens == 1)
        printf("  pack %.0f Mweights/s", (double)(w->rows * w->cols) * calls / *pack_s * 1e-6);
    printf("\n");
    fflush(stdout);
    free(p.shared);
    vt_pages_free(packed, bytes * (size_t)s->layers);
    vt_arena_release(&arena);
    return sec;
}

int main(int argc, char **argv)
{
    static const int64_t counts[] = {1, 8, 64, 512};
    const char *only_impl = NULL, *only_model = NULL;
    int threads = vt_cpu_get()->n_cpus, opt;
    int64_t only_tokens = 0;
    while ((opt = getopt(argc, argv, "t:i:m:n:")) != -1) {
        if (opt == 't')
            threads = (int)strtol(optarg, NULL, 10);
        else if (opt == 'i')
            only_impl = optarg;
        else if (opt == 'm')
            only_model = optarg;
        else if (opt == 'n')
            only_tokens = strtol(optarg, NULL, 10);
        else
            return 2;
    }
    vt_team *team;
    vt_err err;
    if (vt_team_new(threads, &team, &err) != VT_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    printf("%s, %d threads\n", vt_cpu_get()->model, threads);
    double model_s[8][8] = {{0}}; /* [implementation][count]: passes of smollm2-135m */
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const shape *s = &shapes[i];
        if (only_model && strcmp(only_model, s->model) != 0)
            continue;
        vt_arena arena;
        vt_arena_init(&arena, 0);
        uint64_t rng = 2;
        int32_t n_parts = 1 + (s->rows[1] > 0) + (s->rows[2] > 0);
        vt_weight *w = need(case_weight(&arena, s->dtype, n_parts, s->rows, s->cols,
                                        s->epilogue != LINEAR_NONE, &rng));
        linear_args probe = {.w = w};
        for (int k = 0; linear_op.impls[k]; k++) {
            const vt_impl *impl = linear_op.impls[k];
            bool runs = impl->isa == VT_ISA_PORTABLE || impl->isa <= vt_cpu_get()->best;
            if (!runs || (only_impl && strcmp(only_impl, impl->name) != 0) ||
                (impl->supports && !impl->supports(&probe)))
                continue;
            for (int c = 0; c < 4; c++) {
                double pack_s;
                bool slow = impl->isa == VT_ISA_PORTABLE && counts[c] > 8;
                if (slow || (only_tokens && only_tokens != counts[c]))
                    continue;
                double sec = bench(s, impl, team, counts[c], w, &pack_s);
                if (strcmp(s->model, "smollm2-135m") == 0)
                    model_s[k][c] += sec;
            }
        }
        vt_arena_release(&arena);
    }
    for (int k = 0; linear_op.impls[k]; k++)
        for (int c = 0; c < 4; c++)
            if (model_s[k][c] > 0)
                printf("smollm2-135m all linears %-10s %4d tokens %8.3f ms, %8.1f tokens/s\n",
                       linear_op.impls[k]->name, (int)counts[c], model_s[k][c] * 1e3,
                       (double)counts[c] / model_s[k][c]);
    vt_team_free(team);
    return 0;
}
