/* The table of knobs, and reading their environment variables (base/knob.h). */
#include "base/knob.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

const vt_knob_row vt_knobs[VT_N_KNOBS] = {
    [VT_KNOB_ISA] = {.env = "VITRINE_ISA",
                     .choices = "portable|avx2|avx512|amx|neon",
                     .expected = "portable, avx2, avx512, amx or neon",
                     .help = "use no instruction set above this one"},
    [VT_KNOB_CUDA_LEVEL] = {.env = "VITRINE_CUDA_LEVEL",
                            .choices = "80|90",
                            .expected = "80 or 90",
                            .help = "80: kernels of mma.sync and cp.async on a Hopper GPU too"},
    [VT_KNOB_CUDA_PDL] = {.env = "VITRINE_CUDA_PDL",
                          .choices = "0|1",
                          .preset = 1,
                          .expected = "0 or 1",
                          .help = "0: no kernel begins before the one in front of it has ended"},
    [VT_KNOB_CUDA_ONE_GRAPH] = {.env = "VITRINE_CUDA_ONE_GRAPH",
                                .choices = "0|1",
                                .expected = "0 or 1",
                                .help = "1: sampling is part of the forward pass's CUDA graph"},
    [VT_KNOB_CUDA_STEP_LIMIT] = {.env = "VITRINE_CUDA_STEP_LIMIT",
                                 .number = true,
                                 .most = 86400,
                                 .preset = 60,
                                 .expected = "a number of seconds from 0 to 86400",
                                 .help = "a step that takes longer ends its requests with an "
                                         "error; 0: wait for ever"},
    [VT_KNOB_CUBLASLT] = {.env = "VITRINE_CUBLASLT",
                          .choices = "0|all",
                          .path = true,
                          .expected = "0, all or the library's path",
                          .help =
                              "0: never use cuBLASLt; all: wherever it can compute; or its path"},
    [VT_KNOB_NVRTC] = {.env = "VITRINE_NVRTC",
                       .path = true,
                       .expected = "the library's path",
                       .help = "the NVRTC library that compiles kernels"},
    [VT_KNOB_CUPTI] = {.env = "VITRINE_CUPTI",
                       .path = true,
                       .expected = "the library's path",
                       .help = "the CUPTI library that reads a GPU's hardware counters"},
    [VT_KNOB_RANK_LIMIT] = {.env = "VITRINE_RANK_LIMIT",
                            .number = true,
                            .most = 86400,
                            .preset = 60,
                            .expected = "a number of seconds from 0 to 86400",
                            .help = "a rank that others wait for longer has failed; 0: they wait "
                                    "for ever"},
    [VT_KNOB_COMM_TIMES] = {.env = "VITRINE_COMM_TIMES",
                            .choices = "0|1",
                            .preset = 1,
                            .expected = "0 or 1",
                            .help = "0: sums over GPUs take the forms that are fixed for their "
                                    "sizes, and nothing is measured"},
    [VT_KNOB_DISTURBED_LIMIT] = {.env = "VITRINE_DISTURBED_LIMIT",
                                 .number = true,
                                 .most = 86400,
                                 .preset = 60,
                                 .expected = "a number of seconds from 0 to 86400",
                                 .help = "a roof that other programs disturbed is measured again "
                                         "after this time"},
    [VT_KNOB_SPIN_US] = {.env = "VITRINE_SPIN_US",
                         .number = true,
                         .most = 1000000,
                         .preset = 20,
                         .expected = "a number of microseconds from 0 to 1000000",
                         .help =
                             "a thread that waits for others on a CPU spins for this time, lets "
                             "other threads run for 25 times as long, and then sleeps; less "
                             "where other programs want the CPUs"},
};

const char *vt_knob_text(const vt_knob_row *k)
{
    const char *text = getenv(k->env);
    return text && *text ? text : NULL;
}

static bool is_choice(const char *choices, const char *text)
{
    size_t n = strlen(text);
    for (const char *c = choices; c; c = strchr(c, '|')) {
        c += *c == '|';
        if (strcspn(c, "|") == n && strncasecmp(c, text, n) == 0)
            return true;
    }
    return false;
}

static bool is_number(const char *text, int64_t most)
{
    char *end;
    long long n = strtoll(text, &end, 10);
    return end != text && !*end && n >= 0 && n <= most;
}

vt_status vt_knob_check(const vt_knob_row *k, vt_err *err)
{
    const char *text = vt_knob_text(k);
    if (!text || is_choice(k->choices, text) || (k->number && is_number(text, k->most)) ||
        (k->path && (!k->choices || text[0] == '/')))
        return VT_OK;
    return vt_fail(err, VT_ERR_USAGE, "%s=%s: expected %s", k->env, text, k->expected);
}

int64_t vt_knob_int(const vt_knob_row *k)
{
    const char *text = vt_knob_text(k);
    return text ? strtoll(text, NULL, 10) : k->preset;
}
