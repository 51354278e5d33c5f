/* The race detector over two emulated devices: each runs a kernel that writes its own memory, meets
 * the other one's by flags, and reads the other's memory. Where something of the meeting is missing
 * the race must be reported, with both devices' kernels; where nothing is, none may be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/emulated_gpu.h"
#include "common/emulated_kernel.h"

enum { DEVICES = 2, THREADS = 64, LAUNCH_FAILED = 719 };

/* What the kernels leave out, and what the host does between the devices' launches. */
typedef enum missing {
    NOTHING,
    RELEASE, /* the flag is stored without one */
    ACQUIRE, /* the flag is loaded without one */
    WAIT,    /* the flag is not waited for */
    BARRIER_BEFORE,
    BARRIER_BEHIND,
    LAST_MEETING /* a rank writes again what its peer may still read */
} missing;

typedef enum between { AT_ONCE, HOST_WAITS } between;

typedef struct params {
    uint32_t *mine, *peers, *flag_of_peer, *own_flag, *out;
    uint32_t round;
} params;

static const char kernel_text[] =
    "struct Params { u32 *mine, *peers, *flag_of_peer, *own_flag, *out, round; };\n"
    "INLINE u32 take(const u32 *p) {\n"
    "  u32 v;\n"
    "  if (MISSING == 2)\n"
    "    asm volatile(\"ld.relaxed.sys.global.u32 %0, [%1];\" : \"=r\"(v) : \"l\"(p) : "
    "\"memory\");\n"
    "  else\n"
    "    asm volatile(\"ld.acquire.sys.global.u32 %0, [%1];\" : \"=r\"(v) : \"l\"(p) : "
    "\"memory\");\n"
    "  return v;\n"
    "}\n"
    "INLINE void give(u32 *p, u32 v) {\n"
    "  if (MISSING == 1)\n"
    "    *(volatile u32 *)p = v;\n"
    "  else\n"
    "    asm volatile(\"st.release.sys.global.u32 [%0], %1;\" ::\"l\"(p), \"r\"(v) : \"memory\");\n"
    "}\n"
    "INLINE void meet(const Params &p, u32 number) {\n"
    "  if (MISSING != 4) __syncthreads();\n"
    "  if (threadIdx.x == 0) {\n"
    "    give(p.flag_of_peer, number);\n"
    "    if (FLAGS && MISSING != 3)\n"
    "      for (u32 n = 0; (i32)(take(p.own_flag) - number) < 0 && n < 100000; n++) ;\n"
    "  }\n"
    "  if (MISSING != 5) __syncthreads();\n"
    "}\n"
    "KERNEL exchange(const __grid_constant__ Params p) {\n"
    "  u32 i = threadIdx.x, other = i ^ 32;\n"
    "  if (FLAGS || p.round == 0) p.mine[i] = i;\n"
    "  if (FLAGS) meet(p, 2 * p.round + 1);\n"
    "  if (FLAGS || p.round == 1) p.out[i] = p.peers[other];\n"
    "  if (FLAGS && MISSING != 6) meet(p, 2 * p.round + 2);\n"
    "}\n";

typedef struct device {
    cu_context context;
    cu_stream stream;
    cu_library library;
    cu_kernel kernel;
    cu_ptr block;
} device;

static cuda_driver d;
static char said[4096]; /* what the emulator wrote to stderr */

#define OK(call) assert_int_equal(call, 0)

static int open_devices(void **state)
{
    vt_err err = {0};
    if (emulated_gpu_open(state) != 0 || emulated_kernels_open(state) != 0)
        return 1;
    setenv("VITRINE_EMULATOR", "devices=2,race,memory=16", 1);
    return cuda_driver_open(&d, &err) != VT_OK;
}

static void make_device(device *v, int index, const char *cubin)
{
    OK(d.context_retain(&v->context, index));
    OK(d.context_set(v->context));
    OK(d.stream_create(&v->stream, CU_STREAM_NON_BLOCKING, 0));
    OK(d.library_load(&v->library, cubin, NULL, NULL, 0, NULL, NULL, 0));
    OK(d.library_kernel(&v->kernel, v->library, "exchange"));
    OK(d.mem_alloc(&v->block, 4 * THREADS * sizeof(uint32_t)));
    OK(d.fill8(v->block, 0, 4 * THREADS * sizeof(uint32_t), v->stream));
    OK(d.stream_sync(v->stream));
}

static void launch(const device *v, const device *peer, uint32_t round)
{
    uint32_t *own = (uint32_t *)v->block, *others = (uint32_t *)peer->block;
    params p = {.mine = own,
                .peers = others,
                .flag_of_peer = others + THREADS,
                .own_flag = own + THREADS,
                .out = own + 2 * THREADS,
                .round = round};
    cu_launch_config c = {.grid_x = 1,
                          .grid_y = 1,
                          .grid_z = 1,
                          .block_x = THREADS,
                          .block_y = 1,
                          .block_z = 1,
                          .stream = v->stream};
    OK(d.context_set(v->context));
    OK(d.launch(&c, v->kernel, (void *[]){&p}, NULL));
}

/* Two rounds on both devices. Returns the first error of the streams. */
static cu_result run_rounds(device v[DEVICES], between how)
{
    cu_result r = 0;
    for (uint32_t round = 0; round < 2; round++) {
        for (int k = 0; k < DEVICES; k++)
            launch(&v[k], &v[!k], round);
        for (int k = 0; k < DEVICES && (how == HOST_WAITS || round == 1); k++) {
            OK(d.context_set(v[k].context));
            cu_result one = d.stream_sync(v[k].stream);
            r = r ? r : one;
        }
    }
    return r;
}

/* Runs what `text` says and notes what is written to stderr meanwhile. */
static cu_result run(missing m, bool flags, between how)
{
    char text[4096];
    size_t size = 0;
    device v[DEVICES];
    snprintf(text, sizeof text, "#define MISSING %d\n#define FLAGS %d\n#line 1 \"test.cu\"\n%s", m,
             flags, kernel_text);
    char *cubin = emulated_cubin(text, "-arch=sm_90a", &size);
    if (!cubin)
        fail_msg("%s", emu.message);
    for (int k = 0; k < DEVICES; k++)
        make_device(&v[k], k, cubin);
    for (int k = 0; k < DEVICES; k++)
        OK(d.context_set(v[k].context)), OK(d.peer_enable(v[!k].context, 0));
    FILE *file = tmpfile();
    int before = dup(2);
    assert_true(file && before >= 0 && dup2(fileno(file), 2) == 2);
    cu_result r = run_rounds(v, how);
    dup2(before, 2);
    close(before);
    rewind(file);
    said[fread(said, 1, sizeof said - 1, file)] = '\0';
    fclose(file);
    for (int k = 0; k < DEVICES; k++) {
        OK(d.context_set(v[k].context));
        if (r == 0) /* a context that failed only releases */
            OK(d.mem_free(v[k].block));
        OK(d.context_release(k));
    }
    free(cubin);
    return r;
}

static void expect_race(missing m, bool flags, between how, const char *site)
{
    cu_result r = run(m, flags, how);
    if (r != LAUNCH_FAILED || !strstr(said, "a race: ") || !strstr(said, site) ||
        !strstr(said, "by kernel exchange of device ") || !strstr(said, "nothing orders the two"))
        fail_msg("missing %d: result %d, said: %s", (int)m, r, said);
}

static void expect_none(missing m, bool flags, between how)
{
    cu_result r = run(m, flags, how);
    if (r != 0)
        fail_msg("missing %d: result %d, said: %s", (int)m, r, said);
}

static void test_kernels_when_they_meet_by_flags_then_no_race(void **state)
{
    (void)state;
    expect_none(NOTHING, true, AT_ONCE);
}

static void test_kernels_when_a_part_of_the_meeting_is_missing_then_race(void **state)
{
    (void)state;
    for (missing m = RELEASE; m <= BARRIER_BEHIND; m++)
        expect_race(m, true, AT_ONCE, "test.cu:");
}

/* The next round writes what the peer reads in this one. */
static void test_kernels_when_memory_is_written_too_early_then_race(void **state)
{
    (void)state;
    expect_race(LAST_MEETING, true, AT_ONCE, "test.cu:");
    expect_none(LAST_MEETING, true, HOST_WAITS);
}

/* Without flags: the first round writes, the second one reads. */
static void test_launches_when_the_host_does_not_wait_between_them_then_race(void **state)
{
    (void)state;
    expect_race(NOTHING, false, AT_ONCE, "test.cu:");
    expect_none(NOTHING, false, HOST_WAITS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernels_when_they_meet_by_flags_then_no_race),
        cmocka_unit_test(test_kernels_when_a_part_of_the_meeting_is_missing_then_race),
        cmocka_unit_test(test_kernels_when_memory_is_written_too_early_then_race),
        cmocka_unit_test(test_launches_when_the_host_does_not_wait_between_them_then_race),
    };
    return cmocka_run_group_tests(tests, open_devices, NULL);
}
