/* The race detector of the emulated GPU: every kernel here runs twice, with RACY 1 and 0. With 1
 * the race must be reported, with the places of both accesses; with 0 nothing may be reported. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/emulated_kernel.h"

typedef struct params {
    emu_tensor_map map __attribute__((aligned(64)));
    char room[128 - sizeof(emu_tensor_map)];
    void *in, *out;
    uint32_t part; /* which kernel of a text with several runs: `p.part` */
} params;

enum { MOST_PARTS = 3 };

typedef struct launch {
    const char *text;
    uint32_t parts; /* launches, the later ones with programmatic overlap; 0: 1 */
    uint32_t ctas, threads, cluster, shared_bytes;
} launch;

static uint32_t memory[4096]; /* `in` and `out` of kernels */
static uint16_t matrix[64 * 64];

static int run_parts(const launch *l, bool racy)
{
    char text[8192];
    snprintf(text, sizeof text,
             "#define RACY %d\n"
             "struct Params { __align__(64) char map[128]; u32 *in, *out, part; };\n"
             "#line 1 \"test.cu\"\n%s",
             racy, l->text);
    emu_module *m = emulated_compile(text, "-arch=sm_90a");
    if (!m)
        fail_msg("%s", emu.message);
    memset(memory, 0, sizeof memory);
    int r = 0;
    for (uint32_t part = 0; r == 0 && part < (l->parts ? l->parts : 1); part++) {
        params p = {.map = {.magic = EMU_TENSOR_MAP,
                            .address = (uint64_t)(uintptr_t)matrix,
                            .rank = 2,
                            .dtype_bytes = 2,
                            .swizzle_bytes = 128,
                            .dim = {64, 64},
                            .stride = {128},
                            .box = {64, 64}},
                    .in = memory,
                    .out = memory + 2048,
                    .part = part};
        emu_launch e = {.module = m,
                        .name = "test",
                        .grid = {l->ctas ? l->ctas : 1, 1, 1},
                        .block = {l->threads, 1, 1},
                        .cluster = l->cluster,
                        .shared_bytes = l->shared_bytes,
                        .params = &p,
                        .params_bytes = sizeof p,
                        .sm_level = 90,
                        .overlaps = part > 0,
                        .stream = memory};
        emu.message[0] = 0;
        r = emu.run(&e, emu.message, sizeof emu.message);
    }
    emu.unload(m);
    return r;
}

/* With RACY=1 the launch must be reported with all of the words (separated by |), with 0 not. */
static void only_when_racy(const launch *l, const char *words)
{
    if (run_parts(l, true) == 0)
        fail_msg("ran, but should have said: %s", words);
    char copy[1024];
    snprintf(copy, sizeof copy, "a race|%s", words);
    for (char *save = NULL, *w = strtok_r(copy, "|", &save); w; w = strtok_r(NULL, "|", &save))
        if (!strstr(emu.message, w))
            fail_msg("said: %s\nbut not: %s", emu.message, w);
    if (run_parts(l, false) != 0)
        fail_msg("its twin, without the race: %s", emu.message);
}

#define KERNEL_HEAD "KERNEL test(const __grid_constant__ Params p) {\n  u32 i = threadIdx.x;\n"

/* ---- in a CTA ---- */

static void test_shared_memory_when_no_barrier_then_race(void **state)
{
    (void)state;
    only_when_racy(
        &(launch){.threads = 64,
                  .text = KERNEL_HEAD "  __shared__ u32 a[64];\n"
                                      "  a[i] = i;\n"
                                      "  if (!RACY) __syncthreads();\n"
                                      "  p.out[i] = a[i ^ 32];\n"
                                      "}"},
        "shared memory at |test.cu:6|test.cu:4|thread 0, |thread 32, |nothing orders the two");
}

static void test_shared_memory_when_read_late_then_race(void **state)
{
    (void)state;
    only_when_racy(&(launch){.threads = 64,
                             .text = KERNEL_HEAD "  __shared__ u32 a[64];\n"
                                                 "  for (int k = 0; k < 3; k++) {\n"
                                                 "    a[i] = i;\n"
                                                 "    __syncthreads();\n"
                                                 "    p.out[i] = a[i ^ 32];\n"
                                                 "    if (!RACY) __syncthreads();\n"
                                                 "  }\n"
                                                 "}"},
                   "test.cu:5|test.cu:7");
}

/* 2-byte writes of neighbours are no race; those that overlap are. */
static void test_shared_memory_when_neighbours_write_halves_then_no_race(void **state)
{
    (void)state;
    only_when_racy(&(launch){.threads = 32,
                             .text = KERNEL_HEAD "  __shared__ u16 a[64];\n"
                                                 "  a[i] = i;\n"
                                                 "  if (RACY && i == 7) *(u32 *)&a[8] = 1;\n"
                                                 "}"},
                   "was written by CTA (0, 0, 0), thread");
}

static void test_lanes_when_only_a_shuffle_is_between_then_race(void **state)
{
    (void)state;
    only_when_racy(&(launch){.threads = 32,
                             .text = KERNEL_HEAD "  __shared__ u32 a[32];\n"
                                                 "  a[i] = i;\n"
                                                 "  u32 v = __shfl_xor_sync(~0u, i, 1);\n"
                                                 "  if (!RACY) __syncwarp();\n"
                                                 "  p.out[i] = a[v];\n"
                                                 "}"},
                   "test.cu:7|test.cu:4");
}

static void test_named_barrier_when_of_other_warps_then_race(void **state)
{
    (void)state;
    only_when_racy(&(launch){.threads = 128,
                             .text = KERNEL_HEAD "  __shared__ u32 a[128];\n"
                                                 "  a[i] = i;\n"
                                                 "  if (RACY) named_barrier(1 + i / 64, 64);\n"
                                                 "  else named_barrier(1 + i / 32 % 2, 64);\n"
                                                 "  p.out[i] = a[i ^ 64];\n"
                                                 "}"},
                   "test.cu:7|test.cu:4");
}

/* Producers only arrive at the barrier, so it does not order their later writes. */
static void test_barrier_arrival_when_written_after_it_then_race(void **state)
{
    (void)state;
    only_when_racy(&(launch){.threads = 64,
                             .text = KERNEL_HEAD
                             "  __shared__ u32 a[32];\n"
                             "  if (i < 32) {\n"
                             "    if (!RACY) a[i] = i;\n"
                             "    asm volatile(\"bar.arrive 1, 64;\" ::: \"memory\");\n"
                             "    if (RACY) a[i] = i;\n"
                             "  } else {\n"
                             "    asm volatile(\"bar.sync 1, 64;\" ::: \"memory\");\n"
                             "    p.out[i] = a[i - 32];\n"
                             "  }\n"
                             "}"},
                   "shared memory at |test.cu:7|test.cu:10");
}

static void test_atomics_when_mixed_with_plain_reads_then_race(void **state)
{
    (void)state;
    only_when_racy(&(launch){.threads = 64,
                             .text = KERNEL_HEAD "  __shared__ u32 n;\n"
                                                 "  if (i == 0) n = 0;\n"
                                                 "  __syncthreads();\n"
                                                 "  atomicAdd(&n, 1u);\n"
                                                 "  if (!RACY) __syncthreads();\n"
                                                 "  p.out[i] = n;\n"
                                                 "}"},
                   "atomically|test.cu:6|test.cu:8");
}

/* ---- cp.async ---- */

static const char *const copy_text = KERNEL_HEAD
    "  __shared__ __align__(16) u32 a[64 * 4];\n"
    "  copy_async16(shared_address(a + 4 * i), p.in + 4 * i, 16);\n"
    "  copy_async_commit();\n"
    "  if (WAITS) copy_async_wait<0>();\n"
    "  if (MEETS) __syncthreads();\n"
    "  p.out[i] = a[4 * ((i + STEP) % 64)];\n"
    "  copy_async_wait<0>();\n"
    "}";

static void test_copy_when_not_waited_for_then_race(void **state)
{
    (void)state;
    char text[2048];
    snprintf(text, sizeof text, "#define WAITS !RACY\n#define MEETS 0\n#define STEP 0\n%s",
             copy_text);
    only_when_racy(&(launch){.threads = 64, .text = text}, "which no thread has waited for");
    snprintf(text, sizeof text, "#define WAITS 1\n#define MEETS !RACY\n#define STEP 1\n%s",
             copy_text);
    only_when_racy(&(launch){.threads = 64, .text = text}, "nothing orders the two");
}

static void test_ring_when_a_stage_is_filled_before_all_have_read_it_then_race(void **state)
{
    (void)state;
    only_when_racy(
        &(launch){.threads = 64,
                  .text = KERNEL_HEAD
                  "  __shared__ __align__(16) u32 ring[2][64 * 4];\n"
                  "  u32 sum = 0;\n"
                  "  for (int k = 0; k < 2; k++) {\n"
                  "    copy_async16(shared_address(ring[k] + 4 * i), p.in + 4 * i, 16);\n"
                  "    copy_async_commit();\n"
                  "  }\n"
                  "  for (int k = 0; k < 6; k++) {\n"
                  "    copy_async_wait<1>();\n"
                  "    __syncthreads();\n"
                  "    sum += ring[k % 2][4 * (i ^ 33)];\n"
                  "    if (!RACY) __syncthreads();\n"
                  "    copy_async16(shared_address(ring[k % 2] + 4 * i), p.in + 4 * i, 16);\n"
                  "    copy_async_commit();\n"
                  "  }\n"
                  "  copy_async_wait<0>();\n"
                  "  p.out[i] = sum;\n"
                  "}"},
        "test.cu:12|which no thread has waited for");
}

/* ---- TMA, mbarriers, wgmma ---- */

#define TILE_HEAD                                                \
    KERNEL_HEAD                                                  \
    "  extern __shared__ __align__(1024) u8 d[];\n"              \
    "  __shared__ u64 full, empty;\n"                            \
    "  const cu_tensor_map *m = (const cu_tensor_map *)p.map;\n" \
    "  if (i == 0) { barrier_init(&full, 1); barrier_init(&empty, 1); barrier_init_done(); }\n"

static void test_mbarrier_when_nothing_is_between_it_and_its_init_then_race(void **state)
{
    (void)state;
    only_when_racy(&(launch){.threads = 64,
                             .shared_bytes = 8192,
                             .text = TILE_HEAD "  if (!RACY) __syncthreads();\n"
                                               "  if (i == 32) barrier_arrive(&full);\n"
                                               "}"},
                   "updates atomically 8 bytes");
}

static void test_tma_when_read_without_its_mbarrier_then_race(void **state)
{
    (void)state;
    only_when_racy(&(launch){.threads = 64,
                             .shared_bytes = 8192,
                             .text = TILE_HEAD "  __syncthreads();\n"
                                               "  if (i == 0) {\n"
                                               "    barrier_expect(&full, 8192);\n"
                                               "    tma_load_2d(m, &full, d, 0, 0);\n"
                                               "  }\n"
                                               "  if (!RACY || i < 32) barrier_wait(&full, 0);\n"
                                               "  p.out[i] = d[i];\n"
                                               "}"},
                   "has TMA write 16 bytes, |test.cu:13");
}

static void test_tma_when_a_stage_is_filled_before_it_is_handed_back_then_race(void **state)
{
    (void)state;
    only_when_racy(
        &(launch){
            .threads = 64,
            .shared_bytes = 8192,
            .text = TILE_HEAD
            "  __syncthreads();\n"
            "  for (int k = 0; k < 4; k++) {\n"
            "    if (i == 0) {\n"
            "      if (k > 0) barrier_wait(&empty, (k + 1) & 1);\n"
            "      barrier_expect(&full, 8192);\n"
            "      tma_load_2d(m, &full, d, 0, 0);\n"
            "    }\n"
            "    barrier_wait(&full, k & 1);\n"
            "    p.out[i] = d[i];\n"
            "    if (!RACY) __syncthreads();\n" /* without this, warp 1's reads are not ordered */
            "    else __syncwarp();\n"
            "    if (i == 31) barrier_arrive(&empty);\n"
            "  }\n"
            "}"},
        "written by TMA|test.cu:15|thread 32, ");
}

/* Multiplies a 64 x 64 matrix, which threads have written, by itself. */
#define MULTIPLY                                                           \
    "  u32 a = shared_address(d);\n"                                       \
    "  float acc[32];\n"                                                   \
    "  wgmma_fence();\n"                                                   \
    "  for (int k = 0; k < 4; k++)\n"                                      \
    "    wgmma_m64n64k16_ss(acc, smem_descriptor(a + k * 32, 16, 1024),\n" \
    "                       smem_descriptor(a + k * 32, 16, 1024), k);\n"  \
    "  wgmma_commit();\n"

static void test_wgmma_when_writes_are_not_fenced_then_race(void **state)
{
    (void)state;
    only_when_racy(&(launch){.threads = 128,
                             .shared_bytes = 8192,
                             .text = TILE_HEAD
                             "  for (int k = 0; k < 16; k++) ((u32 *)d)[k * 128 + i] = 0;\n"
                             "  if (!RACY) fence_async_shared();\n"
                             "  __syncthreads();\n" MULTIPLY "  WGMMA_WAIT(0);\n"
                             "  if (acc[0] != 0.f) p.out[i] = 1;\n"
                             "}"},
                   "has TMA or wgmma read|no fence.proxy.async is between them");
}

static void test_wgmma_when_its_operand_is_overwritten_before_the_wait_then_race(void **state)
{
    (void)state;
    only_when_racy(&(launch){.threads = 128,
                             .shared_bytes = 8192,
                             .text = TILE_HEAD
                             "  for (int k = 0; k < 16; k++) ((u32 *)d)[k * 128 + i] = 0;\n"
                             "  fence_async_shared();\n"
                             "  __syncthreads();\n" MULTIPLY "  if (!RACY) WGMMA_WAIT(0);\n"
                             "  __syncthreads();\n"
                             "  ((u32 *)d)[i] = 1;\n"
                             "  WGMMA_WAIT(0);\n"
                             "}"},
                   "writes 4 bytes|was read by TMA or wgmma");
}

static void test_tma_store_when_its_source_is_not_fenced_or_overwritten_then_race(void **state)
{
    (void)state;
    static const char *const body = "  for (int k = 0; k < 32; k++) ((u32 *)d)[k * 64 + i] = 0;\n"
                                    "  if (FENCED) fence_async_shared();\n"
                                    "  __syncthreads();\n"
                                    "  if (i == 0) {\n"
                                    "    tma_store_2d(m, d, 0, 0);\n"
                                    "    tma_store_commit();\n"
                                    "    if (LEFT) tma_store_wait_read();\n"
                                    "  }\n"
                                    "  __syncthreads();\n"
                                    "  ((u32 *)d)[i] = 1;\n"
                                    "  if (i == 0) tma_store_wait_all();\n"
                                    "}";
    char text[2048];
    snprintf(text, sizeof text, "#define FENCED !RACY\n#define LEFT 1\n%s%s", TILE_HEAD, body);
    only_when_racy(&(launch){.threads = 64, .shared_bytes = 8192, .text = text},
                   "no fence.proxy.async is between them");
    snprintf(text, sizeof text, "#define FENCED 1\n#define LEFT !RACY\n%s%s", TILE_HEAD, body);
    only_when_racy(&(launch){.threads = 64, .shared_bytes = 8192, .text = text},
                   "which no thread has waited for");
}

/* ---- clusters, and CTAs of a grid ---- */

static void test_cluster_when_peers_do_not_meet_then_race(void **state)
{
    (void)state;
    only_when_racy(&(launch){.ctas = 2,
                             .threads = 32,
                             .cluster = 2,
                             .text = KERNEL_HEAD
                             "  __shared__ __align__(16) float a[32 * 4];\n"
                             "  a[4 * i] = i;\n"
                             "  if (!RACY) cluster_sync<2>(); else __syncwarp();\n"
                             "  p.out[blockIdx.x * 32 + i] = (u32)load_peer16(a + 4 * i, "
                             "1 - blockIdx.x).x;\n"
                             "  cluster_sync<2>();\n"
                             "}"},
                   "of CTA");
}

static void test_ctas_when_they_write_the_same_then_race(void **state)
{
    (void)state;
    only_when_racy(&(launch){.ctas = 3,
                             .threads = 32,
                             .text = KERNEL_HEAD "  if (i == 5) {\n"
                                                 "    if (RACY) p.out[7] = 1;\n"
                                                 "    else atomicAdd(&p.out[7], 1u);\n"
                                                 "  }\n"
                                                 "}"},
                   "CTA (1, 0, 0), thread 5, test.cu:4|global memory at|"
                   "was written by CTA (0, 0, 0), thread 5, test.cu:4");
}

/* "The last CTA merges", which last_of of ptx.cuh does: with and without its fences. */
static void test_ticket_when_there_is_no_fence_then_race(void **state)
{
    (void)state;
    static const char *const body = KERNEL_HEAD
        "  __shared__ u32 drawn;\n"
        "  p.out[blockIdx.x * 32 + i] = 1;\n"
        "  if (BEFORE) __threadfence();\n"
        "  __syncthreads();\n"
        "  if (i == 0) {\n"
        "    drawn = atomicAdd(p.in, 1u);\n"
        "    if (drawn == 3) *p.in = 0;\n"
        "  }\n"
        "  __syncthreads();\n"
        "  if (drawn != 3) return;\n"
        "  if (BEHIND) __threadfence();\n"
        "  u32 sum = 0;\n"
        "  for (int k = 0; k < 4; k++) sum += p.out[k * 32 + i];\n"
        "  p.out[i] = sum;\n"
        "}";
    char text[2048];
    snprintf(text, sizeof text, "#define BEFORE !RACY\n#define BEHIND 1\n%s", body);
    only_when_racy(&(launch){.ctas = 4, .threads = 32, .text = text},
                   "CTA (3, 0, 0), |was written by CTA (0, 0, 0), ");
    snprintf(text, sizeof text, "#define BEFORE 1\n#define BEHIND !RACY\n%s", body);
    only_when_racy(&(launch){.ctas = 4, .threads = 32, .text = text}, "CTA (3, 0, 0), ");
}

static void test_last_of_when_something_is_written_after_it_then_race(void **state)
{
    (void)state;
    static const char *const name[] = {"last_of", "last_of_acq_rel"};
    for (int k = 0; k < 2; k++) {
        char text[2048];
        snprintf(text, sizeof text, "#define LAST_OF %s\n%s", name[k],
                 KERNEL_HEAD "  u32 *mine = p.out + blockIdx.x * 64;\n"
                             "  mine[i] = 1;\n"
                             "  if (!LAST_OF(p.in, 4)) { if (RACY) mine[i] = 2; return; }\n"
                             "  u32 sum = 0;\n"
                             "  for (int k = 0; k < 4; k++) sum += p.out[k * 64 + (i ^ 32)];\n"
                             "  p.in[64 + i] = sum;\n"
                             "}");
        only_when_racy(&(launch){.ctas = 4, .threads = 64, .text = text}, "test.cu:8|test.cu:6");
    }
}

/* All CTAs read memory that the last one then overwrites. */
static void test_ticket_when_many_have_read_then_the_last_may_write(void **state)
{
    (void)state;
    only_when_racy(&(launch){.ctas = 5,
                             .threads = 32,
                             .text = KERNEL_HEAD
                             "  p.out[blockIdx.x * 32 + i] = p.in[64 + i];\n"
                             "  bool last = RACY ? blockIdx.x == 4 : last_of(p.in, 5);\n"
                             "  if (last) p.in[64 + i] = 1;\n"
                             "}"},
                   "was read by several CTAs");
}

/* ---- kernels that overlap ---- */

static void test_overlap_when_read_before_the_wait_then_race(void **state)
{
    (void)state;
    only_when_racy(&(launch){.parts = 2,
                             .ctas = 2,
                             .threads = 32,
                             .text = KERNEL_HEAD "  u32 at = blockIdx.x * 32 + i;\n"
                                                 "  pdl_go();\n"
                                                 "  if (!RACY) pdl_wait();\n"
                                                 "  if (p.part == 0) p.out[at] = at;\n"
                                                 "  else p.in[at] = p.out[at];\n"
                                                 "}"},
                   "test.cu:7: a race: it reads 4 bytes|was written by kernel test, 1 before it, "
                   "CTA (0, 0, 0), thread 0, test.cu:6, and no griddepcontrol.wait");
}

static void test_overlap_when_overwritten_before_the_wait_then_race(void **state)
{
    (void)state;
    only_when_racy(&(launch){.parts = 2,
                             .ctas = 4,
                             .threads = 32,
                             .text = KERNEL_HEAD
                             "  pdl_go();\n"
                             "  if (!RACY || p.part == 0) pdl_wait();\n"
                             "  u32 sum = p.in[64];\n"
                             "  if (p.part == 1 && blockIdx.x == 3 && i == 0)\n"
                             "    p.in[i] = sum;\n"
                             "  if (p.part == 0) p.out[blockIdx.x * 32 + i] = p.in[i];\n"
                             "}"},
                   "was read by kernel test, 1 before it");
}

/* griddepcontrol.wait by one thread orders the others after a barrier; weights may be read
 * before. */
static void test_overlap_when_one_thread_waits_for_all_then_a_barrier_tells(void **state)
{
    (void)state;
    only_when_racy(&(launch){.parts = 2,
                             .threads = 64,
                             .text = KERNEL_HEAD "  u32 weight = p.in[i];\n"
                                                 "  if (i == 0) pdl_wait();\n"
                                                 "  if (!RACY) __syncthreads();\n"
                                                 "  p.out[i] += weight;\n"
                                                 "  pdl_go();\n"
                                                 "}"},
                   "no griddepcontrol.wait is between them");
}

/* The last kernel begins when the CTAs of the second allow it. The first may still run then, unless
 * those CTAs have waited for it. */
static void test_overlap_when_the_one_between_lets_go_too_early_then_race(void **state)
{
    (void)state;
    only_when_racy(&(launch){.parts = 3,
                             .threads = 32,
                             .text = KERNEL_HEAD "  if (p.part == 0) p.out[i] = i;\n"
                                                 "  if (p.part == 1 && RACY) pdl_go();\n"
                                                 "  if (p.part == 1) pdl_wait();\n"
                                                 "  if (p.part == 1 && !RACY) pdl_go();\n"
                                                 "  if (p.part == 2) p.in[i] = p.out[i];\n"
                                                 "}"},
                   "was written by kernel test, 2 before it");
}

/* Loads whose values are thrown away may race if the kernel declares that. */
static void test_loads_when_discarded_then_no_race(void **state)
{
    (void)state;
    only_when_racy(&(launch){.threads = 64,
                             .text = KERNEL_HEAD "  p.out[i] = 0;\n"
                                                 "  LOADS_ARE_DISCARDED(!RACY);\n"
                                                 "  u32 v = p.out[i ^ 32];\n"
                                                 "  LOADS_ARE_DISCARDED(false);\n"
                                                 "  if (v == 77) p.in[i] = v;\n"
                                                 "}"},
                   "test.cu:5");
}

/* Two writers of the same value, each for its own readers. */
static void test_stores_when_equal_then_no_race(void **state)
{
    (void)state;
    only_when_racy(&(launch){.threads = 64,
                             .text = KERNEL_HEAD "  __shared__ u32 a[32];\n"
                                                 "  STORES_ARE_EQUAL(!RACY);\n"
                                                 "  a[i % 32] = 0;\n"
                                                 "  STORES_ARE_EQUAL(false);\n"
                                                 "  __syncwarp();\n"
                                                 "  p.out[i] = a[(i + 1) % 32];\n"
                                                 "}"},
                   "test.cu:5");
    only_when_racy(&(launch){.threads = 64,
                             .text = KERNEL_HEAD "  __shared__ u32 a[32];\n"
                                                 "  STORES_ARE_EQUAL(true);\n"
                                                 "  if (!RACY || i < 32) a[i % 32] = 0;\n"
                                                 "  STORES_ARE_EQUAL(false);\n"
                                                 "  __syncwarp();\n"
                                                 "  p.out[i] = a[(i + 1) % 32];\n"
                                                 "}"},
                   "test.cu:5|test.cu:8");
}

int main(void)
{
    setenv("VITRINE_EMULATOR", "race", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared_memory_when_no_barrier_then_race),
        cmocka_unit_test(test_shared_memory_when_read_late_then_race),
        cmocka_unit_test(test_shared_memory_when_neighbours_write_halves_then_no_race),
        cmocka_unit_test(test_lanes_when_only_a_shuffle_is_between_then_race),
        cmocka_unit_test(test_named_barrier_when_of_other_warps_then_race),
        cmocka_unit_test(test_barrier_arrival_when_written_after_it_then_race),
        cmocka_unit_test(test_atomics_when_mixed_with_plain_reads_then_race),
        cmocka_unit_test(test_copy_when_not_waited_for_then_race),
        cmocka_unit_test(test_ring_when_a_stage_is_filled_before_all_have_read_it_then_race),
        cmocka_unit_test(test_mbarrier_when_nothing_is_between_it_and_its_init_then_race),
        cmocka_unit_test(test_tma_when_read_without_its_mbarrier_then_race),
        cmocka_unit_test(test_tma_when_a_stage_is_filled_before_it_is_handed_back_then_race),
        cmocka_unit_test(test_wgmma_when_writes_are_not_fenced_then_race),
        cmocka_unit_test(test_wgmma_when_its_operand_is_overwritten_before_the_wait_then_race),
        cmocka_unit_test(test_tma_store_when_its_source_is_not_fenced_or_overwritten_then_race),
        cmocka_unit_test(test_cluster_when_peers_do_not_meet_then_race),
        cmocka_unit_test(test_ctas_when_they_write_the_same_then_race),
        cmocka_unit_test(test_ticket_when_there_is_no_fence_then_race),
        cmocka_unit_test(test_last_of_when_something_is_written_after_it_then_race),
        cmocka_unit_test(test_ticket_when_many_have_read_then_the_last_may_write),
        cmocka_unit_test(test_overlap_when_read_before_the_wait_then_race),
        cmocka_unit_test(test_overlap_when_overwritten_before_the_wait_then_race),
        cmocka_unit_test(test_overlap_when_one_thread_waits_for_all_then_a_barrier_tells),
        cmocka_unit_test(test_overlap_when_the_one_between_lets_go_too_early_then_race),
        cmocka_unit_test(test_loads_when_discarded_then_no_race),
        cmocka_unit_test(test_stores_when_equal_then_no_race),
    };
    return cmocka_run_group_tests(tests, emulated_kernels_open, NULL);
}
