/* libnccl.so.2 of the emulated GPU: sums, parts of sums and gathers of ranks that one thread speaks
 * for, which is all that src/device/cuda/nccl.c asks for; anything else is refused. A call computes
 * when the last rank's stream comes to it; until then a rank's result is NaNs. What would hang on
 * GPUs is refused: a call outside of a group, and a group that lacks a rank.
 * VITRINE_EMULATOR=nccl=... makes it fail (emulator.h). */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/nccl_api.h"
#include "emulator.h"

#define API __attribute__((visibility("default")))

enum { SUCCESS = 0, SYSTEM_ERROR = 2, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, MOST_RANKS = 8 };

int cuMemAlloc_v2(uint64_t *p, size_t bytes);
int cuMemFree_v2(uint64_t p);

#define DECLARE(type, member, symbol, params) API type emu_##member params __asm__(symbol);
NCCL_FUNCTIONS(DECLARE)
NCCL_OPTIONAL(DECLARE)
#undef DECLARE

typedef struct call {
    const void *x;
    void *y;
    size_t n; /* values of x */
    int type, gather, scatter;
} call;

/* The calls that a rank's stream has come to and its peers' have not. */
typedef struct queue {
    call *call;
    size_t first, n, room;
} queue;

typedef struct group {
    int n, left;
    queue came[MOST_RANKS];
    int told[MOST_RANKS]; /* calls of each rank in the present group of calls */
} group;

struct nccl_comm_st {
    group *g;
    int rank;
};

static int depth;         /* of groups of calls */
static group *called[64]; /* in the present one */
static size_t n_called;

static int is_set(const char *what)
{
    const char *set = getenv("VITRINE_EMULATOR"), *at = set ? strstr(set, "nccl=") : NULL;
    size_t n = strlen(what);
    return at && strncmp(at + 5, what, n) == 0 && (at[5 + n] == 0 || at[5 + n] == ',');
}

static int refuse(int status, const char *why)
{
    fprintf(stderr, "emulator: nccl: %s\n", why);
    return status;
}

int emu_get_version(int *version)
{
    *version = 22809;
    return SUCCESS;
}

const char *emu_error_text(int status)
{
    return status == SUCCESS         ? "no error"
           : status == SYSTEM_ERROR  ? "unhandled system error"
           : status == INVALID_USAGE ? "invalid usage"
                                     : "invalid argument";
}

/* ---- communicators, memory ---- */

int emu_init_all(nccl_comm *comms, int n, const int *devices)
{
    if (is_set("broken"))
        return SYSTEM_ERROR;
    if (n < 1 || n > MOST_RANKS)
        return refuse(INVALID_ARGUMENT, "a number of ranks that is not known here");
    for (int r = 0; r < n; r++)
        for (int k = 0; k < r; k++)
            if (devices[k] == devices[r])
                return refuse(INVALID_USAGE, "two ranks on one GPU");
    group *g = calloc(1, sizeof *g);
    g->n = g->left = n;
    for (int r = 0; r < n; r++) {
        comms[r] = calloc(1, sizeof *comms[r]);
        *comms[r] = (struct nccl_comm_st){g, r};
    }
    return SUCCESS;
}

int emu_destroy(nccl_comm c)
{
    group *g = c->g;
    free(g->came[c->rank].call);
    free(c);
    if (--g->left == 0)
        free(g);
    return SUCCESS;
}

int emu_mem_alloc(void **p, size_t bytes)
{
    uint64_t at = 0;
    if (cuMemAlloc_v2(&at, bytes) != 0)
        return SYSTEM_ERROR;
    *p = (void *)(uintptr_t)at;
    return SUCCESS;
}

int emu_mem_free(void *p) { return cuMemFree_v2((uintptr_t)p) == 0 ? SUCCESS : INVALID_ARGUMENT; }

/* ---- groups of calls ---- */

int emu_group_start(void)
{
    depth++;
    return SUCCESS;
}

static int count(nccl_comm c)
{
    if (depth == 0)
        return refuse(INVALID_USAGE,
                      "a call outside of a group waits for the other ranks for ever");
    if (n_called == sizeof called / sizeof *called)
        return refuse(INVALID_USAGE, "a group of more calls than are known here");
    called[n_called++] = c->g;
    c->g->told[c->rank]++;
    return SUCCESS;
}

int emu_group_end(void)
{
    int status = SUCCESS;
    if (depth == 0)
        return refuse(INVALID_USAGE, "the end of a group that was not begun");
    if (--depth > 0)
        return SUCCESS;
    for (size_t i = 0; i < n_called; i++)
        for (int r = 1; r < called[i]->n; r++)
            if (called[i]->told[r] != called[i]->told[0])
                status = INVALID_USAGE;
    for (size_t i = 0; i < n_called; i++)
        memset(called[i]->told, 0, sizeof called[i]->told);
    n_called = 0;
    return status == SUCCESS ? status : refuse(status, "a group that lacks a rank hangs");
}

int emu_window_register(nccl_comm c, void *p, size_t bytes, nccl_window *window, int flags)
{
    if (is_set("failing") || !p || bytes % 4096 != 0 || flags != NCCL_WINDOW_SYMMETRIC)
        return refuse(INVALID_ARGUMENT, "a window that is not known here");
    *window = malloc(1);
    return count(c);
}

int emu_window_deregister(nccl_comm c, nccl_window window)
{
    (void)c;
    free(window);
    return SUCCESS;
}

/* ---- collectives ---- */

static size_t bytes_of(int type) { return type == NCCL_BF16 ? 2 : 4; }

static float value(const call *c, size_t i)
{
    uint32_t bits;
    float f;
    if (c->type == NCCL_F32)
        return ((const float *)c->x)[i];
    bits = (uint32_t)((const uint16_t *)c->x)[i] << 16;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static void put(const call *c, size_t i, float f)
{
    uint32_t bits;
    if (c->type == NCCL_F32) {
        ((float *)c->y)[i] = f;
        return;
    }
    memcpy(&bits, &f, sizeof bits);
    ((uint16_t *)c->y)[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void compute(const call *of, int n)
{
    size_t each = of[0].n * bytes_of(of[0].type);
    for (int r = 0; r < n; r++) {
        for (int k = 0; k < n && of[r].gather; k++)
            memcpy((char *)of[r].y + (size_t)k * each, of[k].x, each);
        size_t part = of[r].scatter ? of[r].n / (size_t)n : of[r].n,
               first = of[r].scatter ? (size_t)r * part : 0;
        for (size_t i = 0; i < part && !of[r].gather; i++) {
            float sum = is_set("wrong") ? 1 : 0;
            for (int k = 0; k < n; k++)
                sum += value(&of[k], first + i);
            put(&of[r], i, sum);
        }
    }
}

typedef struct arrival {
    nccl_comm c;
    call call;
} arrival;

static int arrive(const void *params)
{
    arrival a = *(const arrival *)params;
    group *g = a.c->g;
    queue *q = &g->came[a.c->rank];
    call of[MOST_RANKS];
    memset(a.call.y, 0xff,
           a.call.n * bytes_of(a.call.type) * (size_t)(a.call.gather ? g->n : 1) /
               (size_t)(a.call.scatter ? g->n : 1));
    if (q->n == q->room) {
        q->room = 2 * q->room + 64;
        q->call = realloc(q->call, q->room * sizeof *q->call);
    }
    q->call[q->n++] = a.call;
    for (int r = 0; r < g->n; r++) {
        if (g->came[r].first == g->came[r].n)
            return 0;
        of[r] = g->came[r].call[g->came[r].first];
    }
    for (int r = 0; r < g->n; r++) {
        queue *k = &g->came[r];
        if (++k->first == k->n)
            k->first = k->n = 0;
        if (of[r].n != of[0].n || of[r].type != of[0].type || of[r].gather != of[0].gather ||
            of[r].scatter != of[0].scatter)
            return refuse(719, "ranks that make different calls");
    }
    compute(of, g->n);
    return 0;
}

static int submit(nccl_comm c, const call *what, struct cu_stream_st *s)
{
    arrival a = {c, *what};
    if (what->type != NCCL_F32 && what->type != NCCL_BF16)
        return refuse(INVALID_ARGUMENT, "a type that is not known here");
    int status = count(c);
    if (status != SUCCESS)
        return status;
    return emu_submit(s, arrive, &a, sizeof a) == 0 ? SUCCESS : SYSTEM_ERROR;
}

int emu_sum(const void *x, void *y, size_t n, int type, int op, nccl_comm c, struct cu_stream_st *s)
{
    if (op != NCCL_SUM)
        return refuse(INVALID_ARGUMENT, "another operation than the sum");
    return submit(c, &(call){x, y, n, type, 0, 0}, s);
}

int emu_scatter(const void *x, void *y, size_t n_each, int type, int op, nccl_comm c,
                struct cu_stream_st *s)
{
    if (op != NCCL_SUM)
        return refuse(INVALID_ARGUMENT, "another operation than the sum");
    return submit(c, &(call){x, y, n_each * (size_t)c->g->n, type, 0, 1}, s);
}

int emu_gather(const void *x, void *y, size_t n_each, int type, nccl_comm c, struct cu_stream_st *s)
{
    return submit(c, &(call){x, y, n_each, type, 1, 0}, s);
}
