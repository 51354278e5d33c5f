/* gpu_ranks: the rows of the communication ops on several GPUs, over odd shapes.
 *
 *   gpu_ranks [--ranks N] [--link p2p|host|auto] [--op NAME] [--small] [--together]
 *
 * Each call is compared with the card's reference, and the bits of all ranks with each other
 * (ops/bench/comm_gpus.h) and of all rows of the op; one shape of every row runs as a graph of many
 * calls too, with programmatic launches where the GPU has them. --small leaves out the large
 * buffers: it is what compute-sanitizer and the emulated GPUs get. --together puts all ranks on the
 * first GPU. TAP; 77: not as many GPUs are here, or not so linked. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "ops/bench/comm_gpus.h"

enum { MOST_SHAPES = 16 };

typedef struct rig {
    comm_gpus *gpus;
    int32_t ranks;
    const char *link;
    const vt_op *only; /* NULL: all ops that join ranks */
    bool small, together;
    int32_t number, failed;
    uint64_t bits[MOST_SHAPES]; /* of the op's rows so far; 0: none took the shape */
} rig;

/* rows, columns. The first one is timed, so it has a graph. */
static const int64_t kShapes[][2] = {{1, 64},  {1, 1},   {3, 129},   {5, 7},   {1, 24},
                                     {7, 333}, {2, 576}, {33, 2048}, {1, 4096}};
static const int64_t kLarge[][2] = {{129, 5120}, {1024, 4096}, {77, 4097}};

/* Runs the row on one shape. Returns false, and says why, if a result is wrong. `ran` counts the
 * shapes that the row takes. */
static bool one_shape(rig *r, const vt_op *op, const vt_impl *row, const int64_t shape[2],
                      int32_t i, int32_t *ran)
{
    comm_result out;
    vt_err err = {0};
    bool gather = op->tolerance == 0, parts = op->refuses != NULL; /* each rank has one */
    comm_ask a = {.op = op,
                  .row = row->name,
                  .rows = shape[0],
                  .n = shape[1],
                  .residual = !parts && i % 2,
                  .how = i % 3 == 2 ? COMM_COPIED : COMM_REGISTERED,
                  .repetitions = i == 0 ? 1 : 0};
    if (parts && shape[1] < r->ranks)
        return true;
    vt_status status = comm_gpus_run(r->gpus, &a, &out, &err);
    if (status == VT_ERR_UNSUPPORTED)
        return true;
    *ran += 1;
    double allowed = gather ? 0 : COMM_BF16_TOLERANCE;
    bool same = status != VT_OK || r->bits[i] == 0 || r->bits[i] == out.bits;
    r->bits[i] = status == VT_OK ? out.bits : r->bits[i];
    if (!same)
        printf("# [%lld x %lld]: other bits than the rows before\n", (long long)shape[0],
               (long long)shape[1]);
    if (status == VT_OK && out.agree && out.error <= allowed)
        return same;
    if (status != VT_OK)
        printf("# [%lld x %lld]: %s\n", (long long)shape[0], (long long)shape[1], err.message);
    else
        printf("# [%lld x %lld]: error %g, %g allowed, ranks %s\n", (long long)shape[0],
               (long long)shape[1], out.error, allowed, out.agree ? "agree" : "differ");
    return false;
}

static void one_row(rig *r, const vt_op *op, const vt_impl *row)
{
    enum { SMALL = sizeof kShapes / sizeof *kShapes, LARGE = sizeof kLarge / sizeof *kLarge };
    int32_t ran = 0;
    bool good = true;
    for (int32_t i = 0; i < SMALL + (r->small ? 0 : LARGE); i++)
        good = one_shape(r, op, row, i < SMALL ? kShapes[i] : kLarge[i - SMALL], i, &ran) && good;
    r->failed += !good;
    printf("%s %d - %s %s, %d ranks over %s: %d shapes%s\n", good ? "ok" : "not ok", ++r->number,
           op->name, row->name, r->ranks, comm_gpus_link(r->gpus), ran,
           ran > 0 ? "" : " # SKIP the row takes none here");
    fflush(stdout);
}

static void run_all(rig *r)
{
    for (const vt_op *const *op = vt_ops; *op; op++) {
        if (r->only && r->only != *op)
            continue;
        memset(r->bits, 0, sizeof r->bits);
        for (const vt_impl *const *row = (*op)->impls; (*op)->is & VT_OP_JOINS_RANKS && *row; row++)
            if ((*row)->device == VT_DEVICE_CUDA)
                one_row(r, *op, *row);
    }
}

static bool read_number(const char *text, int32_t *out)
{
    char *end;
    *out = (int32_t)strtol(text, &end, 10);
    return end != text && *end == '\0';
}

static bool read_options(rig *r, char **argv)
{
    bool good = true;
    *r = (rig){.ranks = 2, .link = "auto"};
    for (argv++; *argv; argv++) {
        if (strcmp(*argv, "--small") == 0)
            r->small = true;
        else if (strcmp(*argv, "--together") == 0)
            r->together = true;
        else if (strcmp(*argv, "--ranks") == 0 && argv[1])
            good = read_number(*++argv, &r->ranks) && good;
        else if (strcmp(*argv, "--link") == 0 && argv[1])
            r->link = *++argv;
        else if (strcmp(*argv, "--op") == 0 && argv[1])
            good = (r->only = vt_op_find(*++argv)) != NULL && good;
        else
            return false;
    }
    return good && r->ranks >= 2 && r->ranks <= COMM_GPU_RANKS &&
           (strcmp(r->link, "p2p") == 0 || strcmp(r->link, "host") == 0 ||
            strcmp(r->link, "auto") == 0);
}

int main(int argc, char **argv)
{
    rig r;
    vt_err err = {0};
    int32_t gpu[COMM_GPU_RANKS];
    (void)argc;
    if (!read_options(&r, argv)) {
        fprintf(stderr,
                "gpu_ranks: expected [--ranks 2..%d] [--link p2p|host|auto] [--op NAME] [--small] "
                "[--together]\n",
                COMM_GPU_RANKS);
        return 2;
    }
    for (int32_t i = 0; i < COMM_GPU_RANKS; i++)
        gpu[i] = r.together ? 0 : i;
    vt_status status = comm_gpus_open(gpu, r.ranks, r.link, &r.gpus, &err);
    if (status != VT_OK) {
        printf("1..0 # skip %s\n", err.message);
        return 77;
    }
    printf("# %d x %s over %s\n", r.ranks, comm_gpus_name(r.gpus), comm_gpus_link(r.gpus));
    run_all(&r);
    printf("1..%d\n# passed %d, failed %d\n", r.number, r.number - r.failed, r.failed);
    comm_gpus_close(r.gpus);
    return r.failed != 0 || r.number == 0;
}
