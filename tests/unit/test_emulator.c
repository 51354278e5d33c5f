/* The emulated GPU itself, without the driver: its NVRTC compiles small kernels, whose results are
 * compared with plain loops; faulty kernels must be refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

#include "common/emulated_kernel.h"

typedef struct params {
    emu_tensor_map map __attribute__((aligned(64)));
    char room[128 - sizeof(emu_tensor_map)];
    void *in, *out;
    int n;
} params;

static const char *const params_text =
    "struct Params { __align__(64) char map[128]; u32 *in, *out; int n; };\n";

typedef struct launch {
    const char *text;
    uint32_t ctas, threads, cluster, shared_bytes;
    int level;
    params *p;
} launch;

static int run_on(const launch *l, uint64_t order)
{
    char text[8192];
    snprintf(text, sizeof text, "%s#line 1 \"test.cu\"\n%s", params_text, l->text);
    emu_module *m = emulated_compile(text, "-arch=sm_90a");
    if (!m)
        return -2;
    emu_launch e = {.module = m,
                    .name = "test",
                    .grid = {l->ctas, 1, 1},
                    .block = {l->threads, 1, 1},
                    .cluster = l->cluster,
                    .shared_bytes = l->shared_bytes,
                    .params = l->p,
                    .params_bytes = sizeof *l->p,
                    .sm_level = l->level ? l->level : 90,
                    .order = order};
    int r = emu.run(&e, emu.message, sizeof emu.message);
    emu.unload(m);
    return r;
}

static void must_run(const launch *l)
{
    for (uint64_t order = 0; order < 3; order++)
        if (run_on(l, order) != 0)
            fail_msg("order %d: %s", (int)order, emu.message);
}

static void must_fail(const launch *l, const char *words)
{
    if (run_on(l, 0) == 0)
        fail_msg("ran, but should have said: %s", words);
    if (!strstr(emu.message, words))
        fail_msg("said: %s\nbut not: %s", emu.message, words);
}

static float bf16_to_float(uint16_t v)
{
    uint32_t u = (uint32_t)v << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* Small integers: exact in bf16, and their sums in fp32. */
static uint16_t small_bf16(uint32_t i)
{
    float f = (float)((int)(i * 2654435761u >> 24) % 9 - 4);
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return (uint16_t)(u >> 16);
}

/* ---- lanes ---- */

static void test_shuffles_when_some_lanes_have_exited_then_the_rest_meet(void **state)
{
    (void)state;
    uint32_t out[128] = {0};
    params p = {.out = out};
    must_run(&(launch){
        .ctas = 1,
        .threads = 64,
        .p = &p,
        .text =
            "KERNEL test(const __grid_constant__ Params p) {\n"
            "  u32 i = threadIdx.x;\n"
            "  if (i >= 48) return;\n"
            "  u32 sum = i;\n"
            "  for (int d = 8; d; d >>= 1) sum += __shfl_xor_sync(0xffffu << (i & 16), sum, d);\n"
            "  p.out[i] = sum;\n"
            "  p.out[64 + i] = __shfl_up_sync(~0u, i, 1) + (__ballot_sync(~0u, i & 1) == (i < 32 ? "
            "0xaaaaaaaa : 0xaaaa) ? 0 : 1000);\n"
            "}"});
    for (uint32_t i = 0; i < 48; i++) {
        assert_int_equal(out[i], i / 16 * 16 * 16 + 120);
        assert_int_equal(out[64 + i], i % 32 ? i - 1 : i);
    }
}

static void test_lanes_when_they_call_different_shuffles_then_error(void **state)
{
    (void)state;
    uint32_t out[32];
    params p = {.out = out};
    must_fail(&(launch){.ctas = 1,
                        .threads = 32,
                        .p = &p,
                        .text = "KERNEL test(const __grid_constant__ Params p) {\n"
                                "  u32 i = threadIdx.x;\n"
                                "  if (i < 16)\n"
                                "    p.out[i] = __shfl_sync(~0u, i, 0);\n"
                                "  else\n"
                                "    p.out[i] = __shfl_sync(~0u, i, 1);\n"
                                "}"},
              "diverged");
}

/* ---- CTAs ---- */

static void test_barriers_when_warps_come_late_then_shared_memory_is_whole(void **state)
{
    (void)state;
    uint32_t out[4 * 256], in[4] = {0};
    params p = {.out = out, .in = in};
    must_run(&(launch){
        .ctas = 4,
        .threads = 256,
        .shared_bytes = 1024,
        .p = &p,
        .text = "KERNEL test(const __grid_constant__ Params p) {\n"
                "  extern __shared__ __align__(16) u32 dynamic[];\n"
                "  __shared__ u32 a[256], *which;\n"
                "  u32 i = threadIdx.x;\n"
                "  a[i] = i;\n"
                "  dynamic[i] = 2 * i;\n"
                "  if (i == 0) which = p.out + blockIdx.x * 256;\n"
                "  __syncthreads();\n"
                "  which[i] = a[255 - i] + dynamic[i ^ 1] + (last_of(p.in, 4) ? 10000 : 0);\n"
                "}"});
    for (uint32_t i = 0; i < 1024; i++)
        assert_int_equal(out[i], 255 - i % 256 + 2 * ((i % 256) ^ 1) + (i >= 768 ? 10000 : 0));
    assert_int_equal(in[0], 0);
}

static void test_barrier_when_a_lane_is_elsewhere_then_error(void **state)
{
    (void)state;
    params p = {0};
    must_fail(&(launch){.ctas = 1,
                        .threads = 64,
                        .p = &p,
                        .text = "KERNEL test(const __grid_constant__ Params p) {\n"
                                "  if (threadIdx.x < 40)\n"
                                "    __syncthreads();\n"
                                "  else\n"
                                "    __syncwarp(0xffffffff);\n"
                                "}"},
              "threads 0 to 39, test.cu:3: wait for barrier 0");
}

/* g++ 12 ignores a section named in a template: all such variables once lay at offset 0. */
static void test_shared_memory_when_of_templates_then_each_instance_has_its_own(void **state)
{
    (void)state;
    uint32_t out[32] = {0};
    params p = {.out = out};
    must_run(&(launch){
        .ctas = 1,
        .threads = 32,
        .shared_bytes = 128,
        .p = &p,
        .text =
            "template <int n> __forceinline__ u32 *own() { __shared__ u32 a[32 * n]; return a; }\n"
            "template <class T> struct Room { static T *of() { static __shared__ T b[32]; return "
            "b; } };\n"
            "KERNEL test(const __grid_constant__ Params p) {\n"
            "  extern __shared__ u32 dynamic[];\n"
            "  __shared__ u32 plain[32];\n"
            "  u32 i = threadIdx.x;\n"
            "  plain[i] = 1; own<1>()[i] = 10; own<2>()[i] = own<2>()[32 + i] = 100;\n"
            "  Room<u16>::of()[i] = 1000; Room<float>::of()[i] = 10000; dynamic[i] = 100000;\n"
            "  p.out[i] = plain[i] + own<1>()[i] + own<2>()[i] + Room<u16>::of()[i] +\n"
            "    (u32)Room<float>::of()[i] + dynamic[i];\n"
            "}"});
    for (uint32_t i = 0; i < 32; i++)
        assert_int_equal(out[i], 111111);
}

static void test_shared_memory_when_not_written_then_nan(void **state)
{
    (void)state;
    float out[2] = {0};
    params p = {.out = out};
    must_run(&(launch){.ctas = 1,
                       .threads = 1,
                       .shared_bytes = 16,
                       .p = &p,
                       .text = "KERNEL test(const __grid_constant__ Params p) {\n"
                               "  extern __shared__ float d[];\n"
                               "  __shared__ float s;\n"
                               "  ((float *)p.out)[0] = d[3];\n"
                               "  ((float *)p.out)[1] = s;\n"
                               "}"});
    assert_true(out[0] != out[0] && out[1] != out[1]);
}

#if !VT_SANITIZE
static void test_shared_memory_when_written_behind_its_end_then_error(void **state)
{
    (void)state;
    params p = {.n = 16};
    must_fail(&(launch){.ctas = 1,
                        .threads = 1,
                        .shared_bytes = 64,
                        .p = &p,
                        .text = "KERNEL test(const __grid_constant__ Params p) {\n"
                                "  extern __shared__ float d[];\n"
                                "  d[p.n] = 1.f;\n"
                                "}"},
              "wrote beyond its 64 bytes");
}
#endif

static void test_copies_when_beyond_shared_memory_then_error(void **state)
{
    (void)state;
    uint32_t in[64];
    params p = {.in = in};
    must_fail(&(launch){.ctas = 1,
                        .threads = 32,
                        .shared_bytes = 256,
                        .p = &p,
                        .text = "KERNEL test(const __grid_constant__ Params p) {\n"
                                "  extern __shared__ __align__(16) u8 d[];\n"
                                "  copy_async16(shared_address(d) + threadIdx.x * 16, p.in, 16);\n"
                                "}"},
              "16 bytes at shared address 256");
}

static void test_copies_when_not_waited_for_then_not_there(void **state)
{
    (void)state;
    uint32_t in[4] = {1, 2, 3, 4}, out[2];
    params p = {.in = in, .out = out};
    launch l = {.ctas = 1,
                .threads = 1,
                .shared_bytes = 64,
                .p = &p,
                .text = "KERNEL test(const __grid_constant__ Params p) {\n"
                        "  extern __shared__ __align__(16) u32 d[];\n"
                        "  copy_async16(shared_address(d), p.in, 16);\n"
                        "  copy_async_commit();\n"
                        "  copy_async16(shared_address(d + 4), p.in, 8);\n"
                        "  copy_async_commit();\n"
                        "  copy_async_wait<1>();\n"
                        "  p.out[0] = d[1] == 2 && d[7] == ~0u;\n"
                        "  copy_async_wait<0>();\n"
                        "  p.out[1] = d[5] == 2 && d[6] == 0;\n"
                        "}"};
    assert_int_equal(run_on(&l, 0), 0);
    assert_int_equal(out[0], 1);
    assert_int_equal(out[1], 1);
}

/* ---- tensor cores ---- */

static void test_mma_when_fed_by_ldmatrix_then_as_plain_loops(void **state)
{
    (void)state;
    uint16_t in[16 * 16 + 16 * 16]; /* A [16][16], B [k 16][n 16] */
    float out[16 * 16];
    for (uint32_t i = 0; i < 512; i++)
        in[i] = small_bf16(i);
    params p = {.in = in, .out = out};
    must_run(&(launch){
        .ctas = 1,
        .threads = 32,
        .shared_bytes = 1024,
        .p = &p,
        .level = 80,
        .text = "KERNEL test(const __grid_constant__ Params p) {\n"
                "  extern __shared__ __align__(16) u16 d[];\n"
                "  for (int i = threadIdx.x; i < 512; i += 32) d[i] = ((u16 *)p.in)[i];\n"
                "  __syncwarp();\n"
                "  int lane = threadIdx.x, g = lane / 4, t = lane % 4;\n"
                "  frag4 a = load_matrix4(shared_address(d + lane % 16 * 16 + lane / 16 * 8));\n"
                "  frag4 b = load_matrix4_transposed(shared_address(d + 256 + (lane / 8 % 2 * 8 + "
                "lane % 8) * 16 + lane / 16 * 8));\n"
                "  for (int n = 0; n < 2; n++) {\n"
                "    float c[4] = {1.f, 1.f, 1.f, 1.f};\n"
                "    mma_bf16(c, a.r[0], a.r[1], a.r[2], a.r[3], b.r[2 * n], b.r[2 * n + 1]);\n"
                "    for (int e = 0; e < 4; e++) ((float *)p.out)[(g + e / 2 * 8) * 16 + n * 8 + 2 "
                "* t + e % 2] = c[e];\n"
                "  }\n"
                "}"});
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++) {
            float want = 1;
            for (int k = 0; k < 16; k++)
                want += bf16_to_float(in[i * 16 + k]) * bf16_to_float(in[256 + k * 16 + j]);
            if (out[i * 16 + j] != want)
                fail_msg("(%d, %d): %g, wanted %g", i, j, (double)out[i * 16 + j], (double)want);
        }
}

/* A bf16 matrix [rows][cols] in memory, as boxes of [box_rows][64] with 128-byte swizzle. */
static void map_matrix(params *p, const void *base, uint64_t rows, uint64_t cols, uint16_t box_rows)
{
    p->map = (emu_tensor_map){.magic = EMU_TENSOR_MAP,
                              .address = (uint64_t)(uintptr_t)base,
                              .rank = 2,
                              .dtype_bytes = 2,
                              .swizzle_bytes = 128,
                              .dim = {cols, rows},
                              .stride = {cols * 2},
                              .box = {64, box_rows}};
}

static const char *const wgmma_text =
    "KERNEL test(const __grid_constant__ Params p) {\n"
    "  extern __shared__ __align__(1024) u8 d[];\n"
    "  __shared__ u64 full;\n"
    "  const cu_tensor_map *m = (const cu_tensor_map *)p.map;\n"
    "  if (threadIdx.x == 0) {\n"
    "    barrier_init(&full, 1);\n"
    "    barrier_init_done();\n"
    "  }\n"
    "  __syncthreads();\n"
    "  if (threadIdx.x == 0) {\n"
    "    barrier_expect(&full, 3 * 8192);\n"
    "    for (int i = 0; i < 3; i++) tma_load_2d(m, &full, d + i * 8192, 0, i * 64);\n"
    "  }\n"
    "  barrier_wait(&full, 0);\n"
    "  u32 a = shared_address(d), b = a + 8192;\n"
    "  float acc[64];\n"
    "  wgmma_fence();\n"
    "  for (int k = 0; k < 4; k++)\n"
    "    wgmma_m64n128k16_ss(acc, smem_descriptor(a + k * 32, 16, 1024), smem_descriptor(b + k * "
    "32, 16, 1024), k);\n"
    "  wgmma_commit();\n"
    "  WGMMA_WAIT(0);\n"
    "  int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4;\n"
    "  for (int i = 0; i < 64; i++)\n"
    "    ((float *)p.out)[(row + i / 2 % 2 * 8) * 128 + i / 4 * 8 + lane % 4 * 2 + i % 2] = "
    "acc[i];\n"
    "  wgmma_fence();\n" /* P = A from registers, times the first B tile as [k 64][n 64] */
    "  float o[32];\n"
    "  for (int k = 0; k < 4; k++) {\n"
    "    u32 r[4];\n"
    "    for (int e = 0; e < 4; e++) {\n"
    "      int i = row + e % 2 * 8, j = k * 16 + lane % 4 * 2 + e / 2 * 8;\n"
    "      r[e] = *(u32 *)((u16 *)p.in + i * 64 + j);\n"
    "    }\n"
    "    wgmma_m64n64k16_rs_t(o, r, smem_descriptor(b + k * 2048, 8192, 1024), k);\n"
    "  }\n"
    "  wgmma_commit();\n"
    "  WGMMA_WAIT(0);\n"
    "  for (int i = 0; i < 32; i++)\n"
    "    ((float *)p.out)[64 * 128 + (row + i / 2 % 2 * 8) * 64 + i / 4 * 8 + lane % 4 * 2 + i % "
    "2] = o[i];\n"
    "}";

static void test_wgmma_when_fed_by_tma_then_as_plain_loops(void **state)
{
    (void)state;
    static uint16_t in[192 * 64]; /* A [64][64], B [128][64] */
    static float out[64 * 128 + 64 * 64];
    for (uint32_t i = 0; i < 192 * 64; i++)
        in[i] = small_bf16(i);
    params p = {.in = in, .out = out};
    map_matrix(&p, in, 192, 64, 64);
    must_run(&(launch){
        .ctas = 1, .threads = 128, .shared_bytes = 3 * 8192, .p = &p, .text = wgmma_text});
    for (int i = 0; i < 64; i++)
        for (int j = 0; j < 192; j++) {
            float want = 0, got = j < 128 ? out[i * 128 + j] : out[64 * 128 + i * 64 + j - 128];
            for (int k = 0; k < 64; k++)
                want += bf16_to_float(in[i * 64 + k]) *
                        bf16_to_float(j < 128 ? in[(64 + j) * 64 + k]
                                              : in[(64 + k) * 64 + j - 128]);
            if (got != want)
                fail_msg("(%d, %d): %g, wanted %g", i, j, (double)got, (double)want);
        }
}

/* One stage is used for sixteen tiles. One thread of each warpgroup releases it. That is allowed,
 * because its wait for the wgmma covers all four warps. */
static const char *const pipeline_text =
    "KERNEL test(const __grid_constant__ Params p) {\n"
    "  extern __shared__ __align__(1024) u8 d[];\n"
    "  __shared__ u64 full, empty;\n"
    "  const cu_tensor_map *m = (const cu_tensor_map *)p.map;\n"
    "  if (threadIdx.x == 0) {\n"
    "    barrier_init(&full, 1);\n"
    "    barrier_init(&empty, 1);\n"
    "    barrier_init_done();\n"
    "  }\n"
    "  __syncthreads();\n"
    "  if (threadIdx.x == 128)\n"
    "    for (int i = 0; i < 16; i++) {\n"
    "      barrier_wait(&empty, (i + 1) & 1);\n"
    "      barrier_expect(&full, 8192);\n"
    "      tma_load_2d(m, &full, d, 0, i * 64);\n"
    "    }\n"
    "  if (threadIdx.x >= 128) return;\n"
    "  float acc[32];\n"
    "  for (int i = 0; i < 16; i++) {\n"
    "    barrier_wait(&full, i & 1);\n"
    "    u32 a = shared_address(d);\n"
    "    wgmma_fence();\n"
    "    for (int k = 0; k < 4; k++)\n"
    "      wgmma_m64n64k16_ss(acc, smem_descriptor(a + k * 32, 16, 1024),\n"
    "                         smem_descriptor(a + k * 32, 16, 1024), i + k);\n"
    "    wgmma_commit();\n"
    "    WGMMA_WAIT(0);\n"
    "    if (threadIdx.x == 0) barrier_arrive(&empty);\n"
    "  }\n"
    "  int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4;\n"
    "  for (int i = 0; i < 32; i++)\n"
    "    ((float *)p.out)[(row + i / 2 % 2 * 8) * 64 + i / 4 * 8 + lane % 4 * 2 + i % 2] = "
    "acc[i];\n"
    "}";

static void test_wgmma_when_one_thread_hands_the_stage_back_then_sums_are_whole(void **state)
{
    (void)state;
    static uint16_t in[16 * 64 * 64];
    static float out[64 * 64];
    for (uint32_t i = 0; i < 16 * 64 * 64; i++)
        in[i] = small_bf16(i);
    params p = {.in = in, .out = out};
    map_matrix(&p, in, 16 * 64, 64, 64);
    must_run(
        &(launch){.ctas = 1, .threads = 160, .shared_bytes = 8192, .p = &p, .text = pipeline_text});
    for (int i = 0; i < 64; i++)
        for (int j = 0; j < 64; j++) {
            float want = 0;
            for (int t = 0; t < 16; t++)
                for (int k = 0; k < 64; k++)
                    want += bf16_to_float(in[(t * 64 + i) * 64 + k]) *
                            bf16_to_float(in[(t * 64 + j) * 64 + k]);
            if (out[i * 64 + j] != want)
                fail_msg("(%d, %d): %g, wanted %g", i, j, (double)out[i * 64 + j], (double)want);
        }
}

static void test_tma_when_a_box_leaves_the_tensor_then_zeros_and_nothing_written(void **state)
{
    (void)state;
    static uint16_t in[20 * 72], out[20 * 72];
    for (uint32_t i = 0; i < 20 * 72; i++) {
        in[i] = (uint16_t)(i + 1);
        out[i] = 7;
    }
    params p = {.in = in, .out = out};
    map_matrix(&p, in, 20, 72, 16);
    must_run(
        &(launch){.ctas = 1,
                  .threads = 32,
                  .shared_bytes = 2048,
                  .p = &p,
                  .text = "struct Map { u64 magic, address, rest[14]; };\n"
                          "KERNEL test(const __grid_constant__ Params p) {\n"
                          "  extern __shared__ __align__(1024) u8 d[];\n"
                          "  __shared__ u64 full;\n"
                          "  __shared__ __align__(64) Map out;\n"
                          "  const cu_tensor_map *m = (const cu_tensor_map *)p.map;\n"
                          "  if (threadIdx.x) return;\n"
                          "  barrier_init(&full, 1);\n"
                          "  barrier_expect(&full, 2048);\n"
                          "  tma_load_2d(m, &full, d, 48, 10);\n"
                          "  barrier_wait(&full, 0);\n"
                          "  out = *(const Map *)m;\n"
                          "  out.address = (u64)p.out;\n"
                          "  u16 *v = (u16 *)d;\n"
                          "  bool zeros = v[24 ^ 0] == 0 && v[10 * 64 + (0 ^ 2) * 8] == 0;\n"
                          "  for (int i = 0; i < 1024; i++) v[i]++;\n"
                          "  fence_async_shared();\n"
                          "  tma_store_2d((const cu_tensor_map *)&out, d, zeros ? 48 : 0, 10);\n"
                          "  tma_store_commit();\n"
                          "  tma_store_wait_all();\n"
                          "}"});
    for (uint32_t i = 0; i < 20 * 72; i++)
        assert_int_equal(out[i], i / 72 >= 10 && i % 72 >= 48 ? i + 2 : 7);
}

/* ---- clusters ---- */

static void test_clusters_when_they_read_their_peers_then_all_is_seen(void **state)
{
    (void)state;
    float out[8 * 4];
    params p = {.out = out};
    must_run(&(launch){.ctas = 8,
                       .threads = 64,
                       .cluster = 4,
                       .p = &p,
                       .text = "KERNEL test(const __grid_constant__ Params p) {\n"
                               "  __shared__ __align__(16) float mine[64];\n"
                               "  mine[threadIdx.x] = blockIdx.x * 100 + threadIdx.x;\n"
                               "  cluster_sync<4>();\n"
                               "  if (threadIdx.x < 4) {\n"
                               "    float4 v = load_peer16(mine + 4 * threadIdx.x, threadIdx.x);\n"
                               "    ((float *)p.out)[blockIdx.x * 4 + threadIdx.x] = v.y;\n"
                               "  }\n"
                               "  cluster_sync<4>();\n"
                               "}"});
    for (int i = 0; i < 32; i++)
        assert_true(out[i] == (float)((i / 16 * 4 + i % 4) * 100 + 4 * (i % 4) + 1));
}

static void test_clusters_when_a_peer_has_ended_then_error(void **state)
{
    (void)state;
    float out[8];
    params p = {.out = out};
    must_fail(&(launch){.ctas = 2,
                        .threads = 32,
                        .cluster = 2,
                        .p = &p,
                        .text = "KERNEL test(const __grid_constant__ Params p) {\n"
                                "  __shared__ __align__(16) float mine[4];\n"
                                "  mine[threadIdx.x % 4] = 1;\n"
                                "  cluster_sync<2>();\n"
                                "  if (blockIdx.x == 1) p.out[0] = (u32)load_peer16(mine, 0).x;\n"
                                "}"},
              "which has ended");
}

/* ---- kernels that run once ---- */

static void test_kernels_when_run_once_then_not_optimised_and_the_same(void **state)
{
    (void)state;
    uint32_t out[2][2] = {{0}};
    params p = {.n = 3};
    launch l = {.ctas = 1,
                .threads = 1,
                .p = &p,
                .text = "KERNEL test(const __grid_constant__ Params p) {\n"
                        "  u32 one = 1;\n"
                        "  p.out[0] = __builtin_constant_p(one);\n"
                        "  p.out[1] = one + p.n;\n}"};
    for (int once = 0; once < 2; once++) {
        p.out = out[once];
        setenv("EMULATOR_ONCE", once ? "1" : "0", 1);
        must_run(&l);
    }
    unsetenv("EMULATOR_ONCE");
    assert_int_equal(out[0][0], 1);
    assert_int_equal(out[1][0], 0);
    assert_int_equal(out[0][1], 4);
    assert_int_equal(out[1][1], 4);
}

/* ---- what is refused ---- */

static void must_not_compile(const char *text, const char *arch, const char *words)
{
    assert_null(emulated_compile(text, arch));
    if (!strstr(emu.message, words))
        fail_msg("said: %s\nbut not: %s", emu.message, words);
}

static void test_ptx_when_unknown_then_the_compiler_names_it(void **state)
{
    (void)state;
    must_not_compile("KERNEL test(const __grid_constant__ int p) {\n"
                     "  asm volatile(\"frobnicate.sync.aligned.u32 %0;\" ::\"r\"(p));\n}",
                     "-arch=sm_90a", "PTX instruction frobnicate.sync.aligned.u32 is not emulated");
}

static void test_ptx_when_an_operand_has_another_size_then_the_compiler_says_so(void **state)
{
    (void)state;
    must_not_compile("KERNEL test(const __grid_constant__ u64 p) {\n"
                     "  asm volatile(\"bar.sync %0;\" ::\"r\"(p));\n}",
                     "-arch=sm_90a", "an asm operand of another size than its constraint");
}

static void test_hopper_when_compiled_for_sm80_then_only_what_is_reached_is_refused(void **state)
{
    (void)state;
    emu_module *m = emulated_compile("KERNEL test(const __grid_constant__ u32 p) {\n"
                                     "  if constexpr (PDL == 0) barrier_init_done();\n}",
                                     "-arch=sm_80");
    if (!m)
        fail_msg("%s", emu.message);
    emu.unload(m);
    must_not_compile("KERNEL test(const __grid_constant__ u32 p) {\n"
                     "  if constexpr (PDL == 1) barrier_init_done();\n}",
                     "-arch=sm_80", "this PTX instruction needs sm_90");
}

static void test_text_when_wrong_then_the_log_has_the_line(void **state)
{
    (void)state;
    must_not_compile("KERNEL test(const __grid_constant__ int p) {\n  int x = y;\n}",
                     "-arch=sm_90a", "test.cu:2");
    assert_non_null(strstr(emu.message, "error"));
}

static void test_hopper_when_the_device_is_sm80_then_error(void **state)
{
    (void)state;
    params p = {0};
    must_fail(&(launch){.ctas = 1,
                        .threads = 32,
                        .p = &p,
                        .level = 80,
                        .text = "KERNEL test(const __grid_constant__ Params p) {\n"
                                "  __shared__ u64 b;\n"
                                "  if (threadIdx.x == 0) barrier_init(&b, 1);\n"
                                "}"},
              "needs sm_90");
}

static void test_mbarrier_when_nobody_arrives_then_error(void **state)
{
    (void)state;
    params p = {0};
    must_fail(&(launch){.ctas = 1,
                        .threads = 32,
                        .p = &p,
                        .text = "KERNEL test(const __grid_constant__ Params p) {\n"
                                "  __shared__ u64 b;\n"
                                "  if (threadIdx.x == 0) barrier_init(&b, 1);\n"
                                "  __syncthreads();\n"
                                "  barrier_wait(&b, 0);\n"
                                "}"},
              "wait for the mbarrier at shared address 0, parity 0");
    must_fail(&(launch){.ctas = 1,
                        .threads = 32,
                        .p = &p,
                        .text = "KERNEL test(const __grid_constant__ Params p) {\n"
                                "  __shared__ u64 b;\n"
                                "  barrier_wait(&b, 0);\n"
                                "}"},
              "no mbarrier at shared address 0");
}

static void test_spinning_when_on_another_cta_then_error(void **state)
{
    (void)state;
    uint32_t in[1] = {0};
    params p = {.in = in};
    must_fail(&(launch){.ctas = 2,
                        .threads = 32,
                        .p = &p,
                        .text = "KERNEL test(const __grid_constant__ Params p) {\n"
                                "  if (blockIdx.x == 1) *p.in = 1;\n"
                                "  while (atomicCAS(p.in, 1u, 2u) == 0u) {}\n"
                                "}"},
              "spins");
}

/* GCC's LeakSanitizer reads a header in front of a library's own thread-local block where that
 * block's address is 16 more than a multiple of 4096. No header is there, and the process dies. */
static void test_thread_locals_then_in_the_static_block(void **state)
{
    (void)state;
    Dl_info info;
    struct link_map *map;
    assert_true(dladdr((void *)(uintptr_t)emu.run, &info));
    void *library = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(library);
    assert_int_equal(dlinfo(library, RTLD_DI_LINKMAP, &map), 0);
    ElfW(Xword) flags = 0;
    for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++)
        if (d->d_tag == DT_FLAGS)
            flags = d->d_un.d_val;
    assert_true(flags & DF_STATIC_TLS);
    dlclose(library);
}

#ifdef __SANITIZE_ADDRESS__
/* A launch ends on the stack that it began on, and the sanitizer knows it: what only that stack
 * points at is no leak. */
static void test_launch_when_it_has_ended_then_the_stack_is_the_threads_again(void **state)
{
    (void)state;
    uint32_t out[1] = {0};
    params p = {.out = out};
    void *volatile only_here = malloc(100);
    must_run(&(launch){.ctas = 2,
                       .threads = 64,
                       .p = &p,
                       .text = "KERNEL test(const __grid_constant__ Params p) {\n"
                               "  __syncthreads();\n"
                               "  if (threadIdx.x == 0 && blockIdx.x == 0) *p.out = 7;\n"
                               "}"});
    assert_int_equal(out[0], 7);
    assert_int_equal(__lsan_do_recoverable_leak_check(), 0);
    free(only_here);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shuffles_when_some_lanes_have_exited_then_the_rest_meet),
        cmocka_unit_test(test_lanes_when_they_call_different_shuffles_then_error),
        cmocka_unit_test(test_barriers_when_warps_come_late_then_shared_memory_is_whole),
        cmocka_unit_test(test_barrier_when_a_lane_is_elsewhere_then_error),
        cmocka_unit_test(test_shared_memory_when_of_templates_then_each_instance_has_its_own),
        cmocka_unit_test(test_shared_memory_when_not_written_then_nan),
#if !VT_SANITIZE
        cmocka_unit_test(test_shared_memory_when_written_behind_its_end_then_error),
#endif
        cmocka_unit_test(test_copies_when_beyond_shared_memory_then_error),
        cmocka_unit_test(test_copies_when_not_waited_for_then_not_there),
        cmocka_unit_test(test_mma_when_fed_by_ldmatrix_then_as_plain_loops),
        cmocka_unit_test(test_wgmma_when_fed_by_tma_then_as_plain_loops),
        cmocka_unit_test(test_wgmma_when_one_thread_hands_the_stage_back_then_sums_are_whole),
        cmocka_unit_test(test_tma_when_a_box_leaves_the_tensor_then_zeros_and_nothing_written),
        cmocka_unit_test(test_clusters_when_they_read_their_peers_then_all_is_seen),
        cmocka_unit_test(test_clusters_when_a_peer_has_ended_then_error),
        cmocka_unit_test(test_kernels_when_run_once_then_not_optimised_and_the_same),
        cmocka_unit_test(test_ptx_when_unknown_then_the_compiler_names_it),
        cmocka_unit_test(test_ptx_when_an_operand_has_another_size_then_the_compiler_says_so),
        cmocka_unit_test(test_hopper_when_compiled_for_sm80_then_only_what_is_reached_is_refused),
        cmocka_unit_test(test_text_when_wrong_then_the_log_has_the_line),
        cmocka_unit_test(test_hopper_when_the_device_is_sm80_then_error),
        cmocka_unit_test(test_mbarrier_when_nobody_arrives_then_error),
        cmocka_unit_test(test_spinning_when_on_another_cta_then_error),
        cmocka_unit_test(test_thread_locals_then_in_the_static_block),
#ifdef __SANITIZE_ADDRESS__
        cmocka_unit_test(test_launch_when_it_has_ended_then_the_stack_is_the_threads_again),
#endif
    };
    return cmocka_run_group_tests(tests, emulated_kernels_open, NULL);
}
