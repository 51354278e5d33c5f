/* Lab flashinfer 05: rotary position embedding. In place with the cos/sin cache, the two ways to
 * pair elements, the schemes that stretch a context, and rope joined with the KV store. */
#include <math.h>

#include "base/err.h"
#include "lab/flashinfer/flashinfer.h"
#include "lab/kit/roofline.h"
#include "lab/kit/rows.h"
#include "model/rope_table.h"
#include "ops/rope/rope.h"

static int32_t tokens_of(const lab *l) { return l->emulated ? 32 : l->ordinal < 0 ? 512 : 16384; }

static void rope_shape(const lab *l, int32_t tokens, bool interleaved, char *out, size_t size)
{
    lab_heads h = lab_heads_32(l);
    snprintf(out, size, "tokens=%d,heads=%d,kv_heads=%d,head_dim=%d,interleaved=%d", tokens,
             h.heads, h.kv_heads, h.dim, interleaved);
}

static vt_status run_rope(lab *l, const char *impl, int32_t tokens, bool interleaved,
                          lab_kernel *out, vt_err *err)
{
    char shape[120];
    rope_shape(l, tokens, interleaved, shape, sizeof shape);
    return lab_run_shape(l, "rope", impl, out, err, "%s", shape);
}

/* ---- what is told about the op ---- */

static void tell_in_place(lab *l, const lab_kernel *k)
{
    lab_heads h = lab_heads_32(l);
    int32_t tokens = tokens_of(l), width = l->ordinal < 0 ? 4 : 2;
    double qk = (double)(h.heads + h.kv_heads) * h.dim * width;
    lab_item(l, "in_place",
             "q and k are slices of one [tokens, q | k | v] matrix. Every element is read and its "
             "rotated value is written to the same place: %.0f bytes a token, no second buffer. A "
             "pair is read whole before either of its elements is written, so nothing is "
             "overwritten too early",
             2 * qk);
    lab_item(
        l, "cos_sin_cache",
        "%d fp32 numbers a position, [cos | sin] of half a head's pairs each: %d bytes a token, "
        "%.1f %% of the bytes of the call (%d tokens, %.0f bytes). All heads of a token use "
        "the same row. The table is made once, on the host and in double: in fp32 the angle at "
        "position 100,000 would be off by 0.004 rad",
        h.dim, h.dim * 4, 100 * (double)h.dim * 4 * tokens / k->bytes, tokens, k->bytes);
}

static vt_status tell_access(lab *l, const lab_kernel *k, vt_err *err)
{
    lab_heads h = lab_heads_32(l);
    vt_target t;
    lab_call c;
    vt_cut half, pairs;
    char shape[120];
    int vector[2] = {0, 0};
    TRY(lab_target(l, &t, err));
    for (int i = 0; i < 2; i++) {
        vt_cut *cut = i ? &pairs : &half;
        snprintf(shape, sizeof shape, "tokens=1,heads=%d,kv_heads=%d,head_dim=%d,interleaved=%d",
                 h.heads, h.kv_heads, h.dim, i);
        TRY(lab_call_make(&t, "rope", shape, &c, err));
        if (lab_call_cut(&c, NULL, NULL, cut))
            vector[i] = cut->vector_bytes;
        lab_call_release(&c);
    }
    lab_item(
        l, "access_pattern",
        "half-split: element i goes with i + %d, so a head is two runs of %d elements, read in "
        "loads of %d bytes; interleaved: 2 i goes with 2 i + 1, one run, but a pair lies inside "
        "one vector and must be taken apart. Heads lie one after the other, so a token's q is "
        "one run of %d bytes. %s",
        h.dim / 2, h.dim / 2, vector[0], h.heads * h.dim * (l->ordinal < 0 ? 4 : 2), k->cut);
    return VT_OK;
}

static void put_form(lab *l, const char *name, const char *pairs, const lab_kernel *k)
{
    lab_cells(l, "%s|%s|%s|%f s|%f B/s|%.1e", name, pairs, k->impl, k->median_s, lab_bandwidth(k),
              k->error);
}

static vt_status tell_pairs(lab *l, const lab_kernel *half, vt_err *err)
{
    lab_heads h = lab_heads_32(l);
    lab_kernel pairs;
    char with[40];
    TRY(run_rope(l, NULL, tokens_of(l), true, &pairs, err));
    snprintf(with, sizeof with, "(i, i + %d)", h.dim / 2);
    lab_table(l, "interleaved_half_split", "the same angles, other partners",
              "form|pairs|runs as|>time|>bandwidth|>error");
    put_form(l, "half-split (Llama, Qwen)", with, half);
    put_form(l, "interleaved (GPT-J)", "(2 i, 2 i + 1)", &pairs);
    lab_turn_kernels(l, "interleaved", "card field", "rope", lab_over(half->bytes, pairs.bytes),
                     half, &pairs,
                     "the same bytes, so bytes promise no difference; but partners that lie beside "
                     "each other must be taken apart in registers (here: pair by pair)");
    return VT_OK;
}

/* ---- frequencies ---- */

enum { DIMS = 128, CONTEXT = 8192, FACTOR = 8, TEST_POSITION = 1000 };

static const vt_rope_params schemes[] = {
    {.base = 500000, .dims = DIMS, .scaling = VT_ROPE_PLAIN},
    {.base = 500000, .dims = DIMS, .scaling = VT_ROPE_LINEAR, .factor = FACTOR},
    {.base = 500000,
     .dims = DIMS,
     .scaling = VT_ROPE_LLAMA3,
     .factor = FACTOR,
     .low_freq_factor = 1,
     .high_freq_factor = 4,
     .original_context = CONTEXT},
    {.base = 500000,
     .dims = DIMS,
     .scaling = VT_ROPE_YARN,
     .factor = FACTOR,
     .original_context = CONTEXT,
     .beta_fast = 32,
     .beta_slow = 1,
     .yarn_truncate = true},
};

enum { SCHEMES = sizeof schemes / sizeof *schemes, LINEAR = 1, LLAMA3 = 2, YARN = 3 };

/* The angle a position turns pair i by, out of the table itself: its row of position 1. Where that
 * angle is so small that fp32 keeps few digits of it, the sine has them. */
static double angle_of(const float *row, int32_t i) { return atan2(row[DIMS / 2 + i], row[i]); }

/* The largest difference between the table's row of a far position and the angle of position 1
 * taken that often. */
static double far_error(const vt_rope_params *p, const float *one)
{
    float far_row[DIMS];
    double worst = 0;
    vt_rope_table(p, TEST_POSITION, 1, far_row);
    for (int32_t i = 0; i < DIMS / 2; i++) {
        double angle = angle_of(one, i) * TEST_POSITION, scale = hypot(one[i], one[DIMS / 2 + i]);
        worst = fmax(worst, fabs(far_row[i] - scale * cos(angle)));
        worst = fmax(worst, fabs(far_row[DIMS / 2 + i] - scale * sin(angle)));
    }
    return worst;
}

static void put_wave(lab *l, double angle) { lab_cell(l, "%.4g", 2 * M_PI / angle); }

static void tell_scaling(lab *l)
{
    static const int32_t shown[] = {0, 8, 16, 24, 28, 32, 36, 40, 48, 56, 63};
    float row[SCHEMES][DIMS];
    for (int s = 0; s < SCHEMES; s++) {
        vt_rope_table(&schemes[s], 1, 1, row[s]);
        double worst = far_error(&schemes[s], row[s]);
        lab_check(
            l, worst < 2e-4,
            "scheme %d: the cache's row of position %d against %d times the angle of position "
            "1: differs by %.1e, allowed 2e-4 (an fp32 angle taken %d times)",
            s, TEST_POSITION, TEST_POSITION, worst, TEST_POSITION);
    }
    lab_table(l, "scaling",
              "wave lengths in positions: base 500,000, 128 dimensions, 8,192 stretched 8 times",
              "pair|>plain|>turns in 8,192|>linear x8|>llama3 x8|>yarn x8|llama3 does");
    for (size_t k = 0; k < sizeof shown / sizeof *shown; k++) {
        int32_t i = shown[k];
        double plain = angle_of(row[0], i), llama3 = angle_of(row[LLAMA3], i) / plain;
        lab_cell(l, "%d", i);
        put_wave(l, plain);
        lab_cell(l, "%.3g", CONTEXT * plain / (2 * M_PI));
        for (int s = 1; s < SCHEMES; s++)
            put_wave(l, angle_of(row[s], i));
        lab_cell(l, "%s",
                 llama3 > 0.9999            ? "nothing: it turns often"
                 : llama3 < 1.0001 / FACTOR ? "divides by 8"
                                            : "a mean of the two");
    }
    double first = angle_of(row[LLAMA3], 0) / angle_of(row[0], 0),
           last = angle_of(row[LLAMA3], DIMS / 2 - 1) / angle_of(row[0], DIMS / 2 - 1),
           scale = hypot(row[YARN][0], row[YARN][DIMS / 2]);
    lab_check(l, fabs(first - 1) < 1e-6 && fabs(last * FACTOR - 1) < 1e-5,
              "llama3 leaves the fastest pair (times %.7f) and divides the slowest by %d (times "
              "%.7f)",
              first, FACTOR, last);
    lab_check(l, fabs(scale - (0.1 * log(FACTOR) + 1)) < 1e-6,
              "yarn multiplies cos and sin by 0.1 ln %d + 1 = %.6f; the table has %.6f", FACTOR,
              0.1 * log(FACTOR) + 1, scale);
    lab_item(
        l, "scaling_in_words",
        "a pair that turns many times within the trained context tells near positions apart and "
        "must stay; one that never completes a turn would reach angles that training never saw, "
        "so it is slowed by the factor. linear slows all, llama3 ramps over the wave length, "
        "yarn over the pair's index, and multiplies cos and sin by %.4f. All of it is in the "
        "table: the kernel and its bytes are the same",
        scale);
}

/* ---- rope joined with the KV store ---- */

static vt_status turn_store(lab *l, vt_err *err)
{
    lab_heads h = lab_heads_32(l);
    lab_kernel fused, rope, store;
    int32_t tokens = tokens_of(l);
    TRY(lab_run_shape(l, "rope_store", NULL, &fused, err,
                      "tokens=%d,heads=%d,kv_heads=%d,head_dim=%d,kv_type=%s,page=%d", tokens,
                      h.heads, h.kv_heads, h.dim, h.kv, h.page));
    TRY(run_rope(l, NULL, tokens, false, &rope, err));
    TRY(lab_run_shape(l, "kv_store", NULL, &store, err,
                      "tokens=%d,kv_heads=%d,head_dim=%d,kv_type=%s,page=%d", tokens, h.kv_heads,
                      h.dim, h.kv, h.page));
    double apart = rope.bytes + store.bytes;
    lab_turn(l, &(lab_knob){.name = "rope fused with store",
                            .where = "card rope_store",
                            .what = "rope_store",
                            .gain = lab_over(apart, fused.bytes),
                            .before_s = rope.median_s + store.median_s,
                            .before_noise = fmax(rope.noise, store.noise),
                            .after_s = fused.median_s,
                            .after_noise = fused.noise,
                            .why = "the rotated k goes straight to its page: it is not written to "
                                   "the activations and read again, and there is one launch or "
                                   "meeting less"});
    lab_item(l, "joined_with_store",
             "rope and kv_store apart move %f B, rope_store %f B: %.2fx by bytes. The engine "
             "uses the joined form",
             apart, fused.bytes, apart / fused.bytes);
    return VT_OK;
}

/* ---- hardware ---- */

static vt_status sweep(lab *l, const lab_kernel *first, vt_err *err)
{
    static const int32_t quick[] = {1, 32, 0}, full[] = {1, 32, 128, 2048, 0},
                         swept[] = {1, 2, 8, 32, 128, 256, 1024, 2048, 4096, 0}, small[] = {1, 0};
    const int32_t *tokens = lab_sizes(l, small, quick, full, swept);
    lab_runs r = {.n = 1};
    roofline_roof roof = lab_roof(l, false);
    r.k[0] = *first;
    snprintf(r.name[0], sizeof r.name[0], "%d tokens", tokens_of(l));
    for (int i = 0; tokens[i] && r.n < LAB_MAX_RUNS; i++, r.n++) {
        TRY(run_rope(l, NULL, tokens[i], false, &r.k[r.n], err));
        snprintf(r.name[r.n], sizeof r.name[0], "%d token%s", tokens[i], vt_text_s(tokens[i]));
    }
    lab_tell_runs(l, &r, "sizes", "call", false);
    lab_tell_roofline(l, &r, "roofline", &roof);
    return VT_OK;
}

/* ---- the lab ---- */

static vt_status run(lab *l, vt_err *err)
{
    static const char what[] = "time of the largest rope";
    lab_kernel k;
    char shape[120];
    rope_shape(l, tokens_of(l), false, shape, sizeof shape);
    TRY(lab_kernel_predict(l, what, &(lab_kernel_ask){.op = "rope", .shape = shape},
                           "q and k read and written and the cos/sin rows, over the measured roof "
                           "of where they lie, and a launch or a meeting",
                           err));
    TRY(run_rope(l, NULL, tokens_of(l), false, &k, err));
    lab_outcome(l, what, k.median_s, !l->emulated && k.disturbed);
    tell_in_place(l, &k);
    TRY(tell_pairs(l, &k, err));
    tell_scaling(l);
    TRY(turn_store(l, err));
    TRY(sweep(l, &k, err));
    lab_figure(l, "bandwidth", lab_bandwidth(&k), VT_BYTES_PER_S,
               "q and k read and written, cos/sin rows read");
    lab_copy_share(l, "copy_share", &k);
    TRY(tell_access(l, &k, err));
    lab_tell_occupancy(l, "occupancy", &k);
    lab_kernel_card(l, "explanation", &k, "pairs of q and k are rotated by their position's angles",
                    "join it with the KV store, or with the norm of q and k in front of it");
    return VT_OK;
}

const lab_def lab_flashinfer_rope = {
    .track = LAB_FLASHINFER,
    .number = "05",
    .name = "profile_rope",
    .goal = "You can say how rope turns pairs in place, why its cost is bytes alone, and what "
            "llama3 and yarn change.",
    .about =
        {"q and k of many tokens are rotated in place, 32 query and 8 KV heads.",
         "Each element is read and written once; a cos/sin row of the token is read with them.",
         "Then the other pairing, the tables of four scaling schemes, and the joined KV store "
         "follow."},
    .alias = {"05_profile_rope.py"},
    .knobs = {{"interleaved", LAB_LOAD},
              {"rope fused", LAB_RUNS, "rope_store", NULL,
               "rope is fused with the store of K and V"}},
    .items = {{"in_place", "in place", false},
              {"cos_sin_cache", "the cos/sin cache", false},
              {"interleaved_half_split", "interleaved against half-split", false},
              {"scaling", "llama3 and yarn scaling, as tables of frequencies", false},
              {"scaling_in_words", "what the schemes do", false},
              {"joined_with_store", "joined with the KV store", false},
              {"sizes", "several numbers of tokens", false},
              {"bandwidth", "bandwidth", true},
              {"copy_share", "its share of the roof", true},
              {"access_pattern", "access pattern", true},
              {"occupancy", "occupancy and its limiter", true},
              {"roofline", "position on the roofline", true},
              {"explanation", "operation, execution, hardware, bottleneck, opportunity", true}},
    .kernels = true,
    .run = run,
};
