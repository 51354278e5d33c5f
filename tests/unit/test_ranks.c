/* A rank of a tensor-parallel group is a narrowed layout, a KV cache with some of the heads and a
 * program with communication calls. Ranks run here on one thread, call by call; while one runs, the
 * memory of the others cannot be read or written, except for the registered buffers in calls that
 * join ranks. The logits must be those of one program with all weights, and the same bits on all
 * ranks. The shares of heads, blocks and vocabularies are compared with docs/ranks.md. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/bound.h"
#include "common/program_run.h"
#include "common/tiny_model.h"
#include "exec/ranks.h"
#include "model/load.h"

#define GOLDEN "tests/golden/models/"

enum { N = 24, PAGES = N / PROGRAM_PAGE, RANKS = 4 };

/* Ranks run here one after the other, call by call: none ever waits. */
static void meet_all(vt_comm *c)
{
    for (int32_t r = 0; r < c->n; r++)
        atomic_store(&c->flag[r].value, INT32_MAX);
}

static program_run make_rank(const vt_model *m, const vt_rank *is, vt_comm_rank *comm)
{
    vt_err err = {0};
    vt_layout *l;
    vt_kv_shape shape;
    if (vt_layout_make(m, &l, &err) != VT_OK)
        fail_msg("%s", err.message);
    vt_ranks_narrow(l, is);
    vt_ranks_kv_shape(m, VT_F32, is, &shape);
    program_run run = program_run_rank(l, &shape, N, VT_END_LOGITS, comm);
    for (int32_t s = 0; comm && s < VT_COMM_SLOTS; s++)
        comm->group->buffer[s][is->index] = run.p->buffer[s];
    return run;
}

/* Allows or forbids all access to what a rank owns: its weights, its KV and, unless it is a call in
 * which peers read the registered buffers, its activations. */
static void guard(const program_run *r, bool buffers, int allowed)
{
    assert_int_equal(mprotect(r->w->memory, (size_t)r->w->packed_bytes, allowed), 0);
    assert_int_equal(mprotect(r->kv.base, r->kv.bytes, allowed), 0);
    if (r->kv.state_bytes > 0)
        assert_int_equal(mprotect(r->kv.state_base, r->kv.state_bytes, allowed), 0);
    if (!buffers)
        assert_int_equal(mprotect(r->p->memory, r->p->activation_bytes, allowed), 0);
}

/* Runs n ranks in step. While one runs a call, what the others own cannot be touched. */
static void run(program_run *r, int32_t n)
{
    for (int32_t i = r->p->n_before; i < r->p->n_forward; i++) {
        bool joins = r->p->call[i].op->is & VT_OP_JOINS_RANKS;
        for (int32_t k = 0; k < n; k++) {
            for (int32_t other = 0; other < n; other++)
                if (other != k)
                    guard(&r[other], joins, PROT_NONE);
            program_run_call(&r[k], i);
            for (int32_t other = 0; other < n; other++)
                if (other != k)
                    guard(&r[other], joins, PROT_READ | PROT_WRITE);
        }
    }
}

static vt_model *load(const char *name)
{
    vt_model *m;
    vt_err err = {0};
    if (vt_model_load(name, &m, &err) != VT_OK)
        fail_msg("%s", err.message);
    return m;
}

/* Compares n ranks with one program that has all weights. `name`: a tiny model, or a path. */
static void compare(const char *name, int32_t n, bool whole_experts)
{
    vt_model *m = strpbrk(name, "/:") ? load(name) : tiny_model(name);
    for (int32_t i = 0; i < m->arch.n_layers; i++)
        if (n > m->layer[i].head.heads || /* a rank has a head at least, or a group of them */
            (m->arch.mamba.groups > 1 && n > m->arch.mamba.groups)) {
            vt_model_free(m);
            return;
        }
    int32_t id[N], position[N], seq_of[N] = {0}, slot[N], row[N], page[PAGES];
    for (int32_t i = 0; i < PAGES; i++)
        page[i] = PAGES - 1 - i;
    for (int32_t i = 0; i < N; i++) {
        id[i] = (i * 97 + 31) % m->arch.vocab;
        position[i] = row[i] = i;
        slot[i] = page[i / PROGRAM_PAGE] * PROGRAM_PAGE + i % PROGRAM_PAGE;
    }
    int32_t q_start[2] = {0, N}, kv_len[1] = {N}, page_start[2] = {0, PAGES}, from[1] = {-1},
            to[1] = {0};
    vt_batch batch = {.n_tokens = N,
                      .n_seqs = 1,
                      .n_rows = N,
                      .n_pages = PAGES,
                      .page_size = PROGRAM_PAGE,
                      .token = id,
                      .position = position,
                      .seq_of = seq_of,
                      .slot = slot,
                      .q_start = q_start,
                      .kv_len = kv_len,
                      .page_start = page_start,
                      .page_ids = page,
                      .row_token = row,
                      .state_from = from,
                      .state_to = to};
    vt_err err = {0};
    vt_comm *comm;
    vt_rank alone = {0, 1};
    program_run whole = make_rank(m, &alone, NULL), part[RANKS];
    vt_comm_rank of[RANKS];
    program_run_bind(&whole, &batch);
    run(&whole, 1);
    if (vt_ranks_check(m, n, whole_experts, &err) != VT_OK || vt_comm_new(n, &comm, &err) != VT_OK)
        fail_msg("%s", err.message);
    meet_all(comm);
    size_t kv = 0;
    for (int32_t r = 0; r < n; r++) {
        of[r] = (vt_comm_rank){.group = comm, .rank = r};
        part[r] = make_rank(m, &(vt_rank){r, n, whole_experts}, &of[r]);
        program_run_bind(&part[r], &batch);
        kv += part[r].kv.bytes;
    }
    assert_true(kv >= whole.kv.bytes); /* more where KV heads are replicated */
    run(part, n);
    const float *want = whole.p->logits->data, *first = part[0].p->logits->data;
    double worst = 0;
    for (int32_t r = 0; r < n; r++) {
        const float *got = part[r].p->logits->data;
        assert_memory_equal(got, first, (size_t)N * (size_t)m->arch.vocab * sizeof *got);
        for (int64_t i = 0; i < (int64_t)N * m->arch.vocab; i++)
            worst = fmax(worst, fabs((double)got[i] - (double)want[i]));
    }
    for (int32_t r = 0; r < n; r++)
        program_run_free(&part[r]);
    if (!(worst <= fp32_bound()))
        fail_msg("%s: over %d ranks a logit is off by %g", name, n, worst);
    vt_comm_free(comm);
    program_run_free(&whole);
    vt_model_free(m);
}

/* A rank that touches what another owns ends the program. */
static void test_rank_that_reads_anothers_kv_when_guarded_then_dies(void **state)
{
    (void)state;
    vt_model *m = tiny_model("llama");
    vt_comm_rank *comm[RANKS] = {0};
    program_run r[2];
    for (int32_t k = 0; k < 2; k++)
        r[k] = make_rank(m, &(vt_rank){k, 2}, comm[k]);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL); /* not cmocka's */
        guard(&r[1], false, PROT_NONE);
        r[0].kv.k[0].data = r[1].kv.k[0].data;
        *(volatile char *)r[0].kv.k[0].data;
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    for (int32_t k = 0; k < 2; k++)
        program_run_free(&r[k]);
    vt_model_free(m);
}

static void test_ranks_when_guarded_then_they_add_up_to_the_whole(void **state)
{
    (void)state;
    static const char *const models[] = {
        "llama",
        "qwen3",              /* norms of q and k */
        "mixed",              /* heads of two shapes; q alone in some layers */
        "gemma3",             /* norms after blocks */
        "qwen3moe",           /* experts */
        "qwen3moe-quantised", /* in blocks of 32 */
        "gpt-oss",            /* sinks; biases of experts */
        GOLDEN "gpt-oss-sinks",
        "mixed_state",        /* channels of a short convolution */
        "dummy:qwen3.5-tiny", /* heads of a delta rule; a gate beside q */
        GOLDEN "qwen35-delta",
        GOLDEN "qwen35-delta-BF16.gguf", /* tiled heads */
        GOLDEN "qwen35moe-outer-BF16.gguf",
        GOLDEN "qwen3next-key-heads", /* key head by key head in the file */
        GOLDEN "kimi-linear-channels",
        GOLDEN "kimi-linear-channels-BF16.gguf",
        GOLDEN "granite4-mamba", /* state spaces: heads of one group, their norm divided */
        GOLDEN "granite4moe-mamba-BF16.gguf",
        GOLDEN "nemotronh-mamba", /* whole groups */
        "mamba-fp8",              /* scales of blocks: two ranks cut them, four have 2 heads each */
        "mamba-fp8-groups",
        GOLDEN "nemotronh-experts-BF16.gguf",
        GOLDEN "deepseekv2-latents",
        GOLDEN "deepseekv3-groups",
        GOLDEN "glm4moelite-latents",
        GOLDEN "gemma2-caps",
        GOLDEN "gemma4-per-layer",
        GOLDEN "gemma4-experts",    /* norms between the experts and their sum */
        GOLDEN "olmo2-whole-norms", /* norms over all heads; KV heads have copies */
        GOLDEN "olmo3-windows-yarn",
        GOLDEN "minimaxm2-whole-norms",
    };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        for (int32_t n = 2; n <= RANKS; n++)
            compare(models[i], n, false);
}

/* Ranks have whole experts, in uneven numbers; shared ones and dense layers are in parts. */
static void test_whole_experts_when_guarded_then_they_add_up_to_the_whole(void **state)
{
    (void)state;
    static const char *const models[] = {
        "qwen3moe",
        "qwen3moe-quantised",
        "gpt-oss", /* biases of experts, which their rank adds */
        GOLDEN "qwen3vlmoe-transposed",
        GOLDEN "gpt-oss-sinks",
        GOLDEN "glm4moe-groups", /* a shared expert */
        GOLDEN "qwen35moe-outer-BF16.gguf",
        GOLDEN "nemotronh-experts", /* without gates */
        GOLDEN "deepseekv3-groups",
        GOLDEN "gemma4-experts", /* factors of experts */
    };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        for (int32_t n = 2; n <= 3; n++) /* one has three experts */
            compare(models[i], n, true);
}

/* For every size, unit and number of ranks: the parts follow each other, cover all, are cut at
 * units, and differ by one unit at most. */
static void test_parts_when_sizes_do_not_divide_then_cover_the_whole(void **state)
{
    (void)state;
    for (int64_t n = 1; n <= 70; n++)
        for (int64_t unit = 1; unit <= 32; unit *= 2)
            for (int32_t ranks = 1; ranks <= 9; ranks++) {
                int64_t at = 0, least = INT64_MAX, most = 0;
                for (int32_t r = 0; r < ranks; r++) {
                    vt_range p = vt_rank_part(n, unit, &(vt_rank){r, ranks});
                    assert_int_equal(p.begin, at);
                    at += p.n;
                    assert_true(at % unit == 0 || at == n);
                    least = p.n < least ? p.n : least;
                    most = p.n > most ? p.n : most;
                }
                assert_int_equal(at, n);
                assert_true(vt_ceil_div(most, unit) - vt_ceil_div(least, unit) <= 1);
            }
}

/* Returns entry `role` of layer 0 in a rank's layout. */
static vt_layout_entry entry_in(const vt_model *m, int32_t rank, int32_t n, bool whole_experts,
                                vt_role role)
{
    vt_err err = {0};
    vt_layout *l;
    vt_layout_entry e = {0};
    if (vt_ranks_check(m, n, whole_experts, &err) != VT_OK || vt_layout_make(m, &l, &err) != VT_OK)
        fail_msg("%s", err.message);
    vt_ranks_narrow(l, &(vt_rank){rank, n, whole_experts});
    for (int32_t i = l->n - 1; i >= 0; i--)
        if (l->entry[i].role == role && l->entry[i].layer <= 0)
            e = l->entry[i];
    vt_layout_free(l);
    return e;
}

static vt_layout_entry entry_of(const vt_model *m, int32_t rank, int32_t n, vt_role role)
{
    return entry_in(m, rank, n, false, role);
}

/* 9 query heads and 3 KV heads of 64: first and number of the heads of each rank. */
static void test_smollm2_heads_over_two_to_four_ranks(void **state)
{
    (void)state;
    static const int32_t want[3][4][4] = {
        {{0, 6, 0, 2}, {6, 3, 2, 1}},
        {{0, 3, 0, 1}, {3, 3, 1, 1}, {6, 3, 2, 1}},
        {{0, 2, 0, 1}, {2, 1, 0, 1}, {3, 3, 1, 1}, {6, 3, 2, 1}},
    };
    vt_model *m = load("dummy:smollm2-135m");
    for (int32_t n = 2; n <= 4; n++)
        for (int32_t r = 0; r < n; r++) {
            const int32_t *w = want[n - 2][r];
            vt_layout_entry qkv = entry_of(m, r, n, VT_ROLE_QKV), o = entry_of(m, r, n, VT_ROLE_O);
            for (int32_t part = 0; part < 3; part++) {
                assert_int_equal(qkv.part[part].row, w[part ? 2 : 0] * 64);
                assert_int_equal(qkv.part[part].rows, w[part ? 3 : 1] * 64);
            }
            assert_int_equal(o.part[0].col, w[0] * 64);
            assert_int_equal(o.part[0].cols, w[1] * 64);
        }
    vt_model_free(m);
}

/* A block of Q4_K is the columns of 4 heads of SmolLM2 in o, and a KV head has 3 of them: no cut
 * between its 3 KV heads lies between two blocks. */
static void test_heads_when_blocks_of_o_hold_several_then_kv_heads_stay_together(void **state)
{
    (void)state;
    vt_err err = {0};
    vt_model *m = load("dummy:smollm2-135m");
    assert_int_equal(vt_ranks_check(m, 2, false, &err), VT_OK);
    for (int32_t i = 0; i < m->arch.n_layers; i++) {
        vt_tensor *o = vt_arena_alloc(&m->arena, 1, sizeof *o);
        assert_non_null(o);
        *o = *m->layer[i].weight[VT_ROLE_O];
        o->dtype = VT_Q4_K;
        m->layer[i].weight[VT_ROLE_O] = o;
    }
    assert_int_equal(vt_ranks_check(m, 2, false, &err), VT_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "for rank"));
    vt_model_free(m);
}

/* Sixteen K heads and 32 V heads over three ranks, V heads in two tiles of 16: rank 1 has V heads
 * 11 to 21, whose K heads are 11 to 15 and then 0 to 5, and every weight of the layer follows. */
static void test_delta_heads_when_tiled_then_k_heads_follow_their_v_heads(void **state)
{
    (void)state;
    enum { DIM = 128, KEYS = 16 * DIM, PARTS = 6 };
    static const int64_t want[PARTS][2] = {{11 * DIM, 5 * DIM},
                                           {0, 6 * DIM},
                                           {KEYS + 11 * DIM, 5 * DIM},
                                           {KEYS, 6 * DIM},
                                           {2 * KEYS + 11 * DIM, 11 * DIM},
                                           {11 * DIM, 11 * DIM}};
    vt_model *m = load("dummy:qwen3.5-4b");
    m->arch.delta.tiled = true;
    vt_layout_entry in = entry_of(m, 1, 3, VT_ROLE_DELTA_IN),
                    gates = entry_of(m, 1, 3, VT_ROLE_DELTA_BA),
                    taps = entry_of(m, 1, 3, VT_ROLE_DELTA_CONV),
                    out = entry_of(m, 1, 3, VT_ROLE_DELTA_OUT),
                    norm = entry_of(m, 1, 3, VT_ROLE_DELTA_NORM);
    assert_int_equal(in.n_parts, PARTS);
    assert_int_equal(taps.n_parts, PARTS - 1); /* z passes no convolution */
    for (int32_t i = 0; i < PARTS; i++) {
        assert_int_equal(in.part[i].row, want[i][0]);
        assert_int_equal(in.part[i].rows, want[i][1]);
        if (i < taps.n_parts)
            assert_int_equal(taps.part[i].row, want[i][0]);
    }
    assert_int_equal(gates.part[1].row, 11);
    assert_int_equal(gates.part[1].rows, 11);
    assert_int_equal(out.part[0].col, 11 * DIM);
    assert_int_equal(out.part[0].cols, 11 * DIM);
    assert_int_equal(norm.part[0].rows, DIM); /* the norm is one for all heads */
    vt_model_free(m);
}

/* Kimi delta attention over two ranks: each has half of the rows of q, k, v, b and of what decays
 * and gates are made by, and all of what these are made from. */
static void test_channel_decays_over_ranks_keep_the_narrow_products_whole(void **state)
{
    (void)state;
    enum { HALF = 16 * 128, PARTS = 6 };
    static const int64_t want[PARTS][2] = {{HALF, HALF}, {HALF, HALF}, {HALF, HALF},
                                           {0, 128},     {0, 128},     {16, 16}};
    vt_model *m = load("dummy:kimi-linear-48b-a3b");
    vt_layout_entry in = entry_of(m, 1, 2, VT_ROLE_KDA_IN),
                    taps = entry_of(m, 1, 2, VT_ROLE_KDA_CONV),
                    bias = entry_of(m, 1, 2, VT_ROLE_KDA_DT),
                    decay = entry_of(m, 1, 2, VT_ROLE_KDA_DECAY),
                    gate = entry_of(m, 1, 2, VT_ROLE_KDA_G_B),
                    norm = entry_of(m, 1, 2, VT_ROLE_KDA_NORM),
                    out = entry_of(m, 1, 2, VT_ROLE_KDA_OUT);
    assert_int_equal(in.n_parts, PARTS);
    assert_int_equal(taps.n_parts, 3);
    for (int32_t i = 0; i < PARTS; i++) {
        assert_int_equal(in.part[i].row, want[i][0]);
        assert_int_equal(in.part[i].rows, want[i][1]);
        if (i < taps.n_parts)
            assert_int_equal(taps.part[i].row, HALF);
    }
    assert_int_equal(bias.part[0].row, HALF);
    assert_int_equal(decay.part[0].row, 16);
    assert_int_equal(gate.part[0].row, HALF);
    assert_int_equal(gate.part[0].cols, 128);
    assert_int_equal(norm.part[0].rows, 128);
    assert_int_equal(out.part[0].col, HALF);
    size_t one = 20 * 4 * (3 * 3 * 4096 + 32 * 128 * 128); /* of 20 layers */
    assert_int_equal(vt_ranks_kv_slot_bytes(m, 1), one);
    assert_int_equal(vt_ranks_kv_slot_bytes(m, 2), one);
    vt_model_free(m);
}

/* The state slots of all ranks are one model's where heads divide, and more where K heads have
 * copies. */
static void test_state_slots_over_ranks_add_up(void **state)
{
    (void)state;
    vt_model *m = load("dummy:qwen3.5-4b");
    size_t one = vt_ranks_kv_slot_bytes(m, 1), layers = 24;
    assert_int_equal(one, layers * 4 * (3 * 2 * 2048 + 3 * 4096 + 32 * 128 * 128));
    assert_int_equal(vt_ranks_kv_slot_bytes(m, 2), one);
    m->arch.delta.tiled = true; /* both ranks have all K heads */
    assert_int_equal(vt_ranks_kv_slot_bytes(m, 2), one + layers * 4 * 3 * 2 * 2048);
    vt_model_free(m);
}

/* 128 experts over three ranks: 43, 43 and 42, each with all its rows and columns. */
static void test_whole_experts_when_they_do_not_divide_then_the_first_ranks_have_more(void **state)
{
    (void)state;
    static const int32_t first[] = {0, 43, 86}, count[] = {43, 43, 42};
    static const vt_role role[] = {VT_ROLE_EXPERT_GATE_UP, VT_ROLE_EXPERT_DOWN};
    vt_model *m = load("dummy:qwen3-30b-a3b");
    for (int32_t r = 0; r < 3; r++)
        for (int32_t i = 0; i < 2; i++) {
            vt_layout_entry e = entry_in(m, r, 3, true, role[i]);
            assert_int_equal(e.matrix, first[r]);
            assert_int_equal(vt_layout_matrices(&e), count[r]);
            assert_int_equal(e.part[0].rows, i == 0 ? 768 : 2048);
            assert_int_equal(e.part[0].cols, i == 0 ? 2048 : 768);
        }
    vt_model_free(m);
}

static void test_whole_experts_when_there_are_none_for_a_rank_then_refused_by_name(void **state)
{
    (void)state;
    vt_err err = {0};
    vt_model *m = load("dummy:qwen3-30b-a3b");
    assert_int_equal(vt_ranks_check(m, 1, true, &err), VT_ERR_USAGE);
    assert_non_null(strstr(err.message, "tp is 1"));
    m->arch.n_experts = 3;
    assert_int_equal(vt_ranks_check(m, 4, true, &err), VT_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "has 3 experts: there is none for rank 3"));
    vt_model_free(m);
    m = load("dummy:smollm2-135m");
    assert_int_equal(vt_ranks_check(m, 2, true, &err), VT_ERR_USAGE);
    assert_non_null(strstr(err.message, "has 0 experts"));
    vt_model_free(m);
}

/* A norm over all heads has on each rank the part of its heads; of the ranks with copies of a KV
 * head one counts it. */
static void test_norms_over_all_heads_follow_the_heads(void **state)
{
    (void)state;
    vt_model *m = load(GOLDEN "olmo2-whole-norms");
    const vt_layer *l = &m->layer[0];
    int32_t dim = l->head.dim;
    for (int32_t n = 2; n <= l->head.heads; n++) {
        int64_t q = 0, counted = 0;
        for (int32_t r = 0; r < n; r++) {
            vt_rank is = {r, n};
            vt_layout_part norm[2] = {entry_of(m, r, n, VT_ROLE_Q_NORM).part[0],
                                      entry_of(m, r, n, VT_ROLE_K_NORM).part[0]};
            vt_layout_entry qkv = entry_of(m, r, n, VT_ROLE_QKV);
            for (int32_t i = 0; i < 2; i++) {
                assert_int_equal(norm[i].row, qkv.part[i].row);
                assert_int_equal(norm[i].rows, qkv.part[i].rows);
            }
            q += norm[0].rows;
            counted += vt_ranks_counts_kv(m, 0, &is) ? norm[1].rows : 0;
        }
        assert_int_equal(q, (int64_t)l->head.heads * dim);
        assert_int_equal(counted, (int64_t)l->head.kv_heads * dim);
    }
    vt_model_free(m);
}

/* Q4_K has blocks of 256 columns: the columns of o and of down are cut between them, or the model
 * is refused by name. */
static void test_cuts_when_quantised_then_lie_between_blocks(void **state)
{
    (void)state;
    vt_err err = {0};
    vt_model *m = load(GOLDEN "llama-quantised-Q4_K.gguf");
    for (int32_t n = 2; n <= 9; n++) {
        if (vt_ranks_check(m, n, false, &err) != VT_OK) {
            assert_non_null(strstr(err.message, "tp is"));
            assert_non_null(strstr(err.message, "for rank"));
            continue;
        }
        for (int32_t r = 0; r < n; r++) {
            vt_layout_entry e[2] = {entry_of(m, r, n, VT_ROLE_O), entry_of(m, r, n, VT_ROLE_DOWN)};
            for (int32_t i = 0; i < 2; i++) {
                int64_t block = vt_dtype_get(e[i].part[0].tensor->dtype)->block;
                assert_int_equal(e[i].part[0].col % block, 0);
                assert_int_equal(e[i].part[0].cols % block, 0);
            }
        }
    }
    assert_int_equal(vt_ranks_check(m, 64, false, &err), VT_ERR_UNSUPPORTED);
    vt_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_when_guarded_then_they_add_up_to_the_whole),
        cmocka_unit_test(test_whole_experts_when_guarded_then_they_add_up_to_the_whole),
        cmocka_unit_test(test_whole_experts_when_they_do_not_divide_then_the_first_ranks_have_more),
        cmocka_unit_test(test_whole_experts_when_there_are_none_for_a_rank_then_refused_by_name),
        cmocka_unit_test(test_rank_that_reads_anothers_kv_when_guarded_then_dies),
        cmocka_unit_test(test_parts_when_sizes_do_not_divide_then_cover_the_whole),
        cmocka_unit_test(test_smollm2_heads_over_two_to_four_ranks),
        cmocka_unit_test(test_heads_when_blocks_of_o_hold_several_then_kv_heads_stay_together),
        cmocka_unit_test(test_delta_heads_when_tiled_then_k_heads_follow_their_v_heads),
        cmocka_unit_test(test_channel_decays_over_ranks_keep_the_narrow_products_whole),
        cmocka_unit_test(test_state_slots_over_ranks_add_up),
        cmocka_unit_test(test_norms_over_all_heads_follow_the_heads),
        cmocka_unit_test(test_cuts_when_quantised_then_lie_between_blocks),
    };
    return cmocka_run_group_tests_name("ranks", tests, NULL, NULL);
}
