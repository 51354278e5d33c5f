/* Why a warp issues no instruction in a cycle: the stall reasons of NVIDIA's GPUs, in words.
 *
 * In every cycle each warp that is on an SM either issues an instruction ("selected") or has one
 * reason why not. So the cycles of all reasons together are the cycles of all warps, and a reason's
 * share of them says what the warps waited for. The names are CUPTI's and ncu's. */
#ifndef VT_DEVICE_CUPTI_STALLS_H
#define VT_DEVICE_CUPTI_STALLS_H

#include <stdbool.h>

#include "base/trace.h"

typedef struct vt_stall_row {
    const char *name;    /* "long_scoreboard" */
    const char *label;   /* for a narrow table: "memory" */
    const char *meaning; /* what the warp does: "waits for data from memory or L2" */
    const char *remedy;  /* what shortens the wait; NULL: it is no wait, or nothing is to be done */
} vt_stall_row;

/* S(name, label, meaning, remedy): what tells most of a kernel comes first. */
#define VT_STALL_ROWS(S)                                                                           \
    S(long_scoreboard, "memory", "waits for data from memory or L2",                               \
      "more loads in flight: more warps, wider loads, copies that run ahead (cp.async, TMA)")      \
    S(short_scoreboard, "shared memory", "waits for shared memory or a special unit",              \
      "values kept in registers, and reads of shared memory begun earlier")                        \
    S(barrier, "barrier", "waits for other warps of its CTA",                                      \
      "fewer barriers, smaller CTAs, or the same work for each warp")                              \
    S(gmma, "tensor cores", "waits for a product of the tensor cores (Hopper)",                    \
      "a second product begun before the first is awaited; where the tensor cores are busy it is " \
      "as it should be")                                                                           \
    S(math_pipe_throttle, "busy unit", "finds its unit busy: good in a matrix product",            \
      "nothing where this unit does the work that counts; else fewer instructions for it")         \
    S(wait, "fixed delay", "waits the fixed time between two dependent instructions",              \
      "more independent instructions: unrolled loops, several sums at once")                       \
    S(mio_throttle, "shared queue", "finds the queue to shared memory full",                       \
      "fewer and wider accesses of shared memory, without bank conflicts")                         \
    S(lg_throttle, "memory queue", "finds the queue to memory full",                               \
      "fewer and wider loads and stores: 16 bytes a thread")                                       \
    S(not_selected, "others' turn", "is ready while another warp is taken: healthy", NULL)         \
    S(no_instruction, "instructions", "waits for instructions",                                    \
      "shorter loops that fit the instruction cache; a very short kernel cannot avoid it")         \
    S(selected, "works", "issues an instruction", NULL)                                            \
    S(membar, "fence", "waits until its writes are seen by others (a fence)",                      \
      "fewer fences, or fences of a smaller scope")                                                \
    S(drain, "last stores", "ends, and waits for its last stores",                                 \
      "stores spread over the kernel instead of all at its end")                                   \
    S(dispatch_stall, "dispatch", "is ready and held back by the dispatcher", NULL)                \
    S(branch_resolving, "branch", "waits to know where a branch goes", "fewer branches in loops")  \
    S(sleeping, "sleep", "sleeps until another warp or GPU is ready (nanosleep)", NULL)            \
    S(imc_miss, "constants", "waits for a constant that its cache did not have",                   \
      "parameters read once into registers")                                                       \
    S(misc, "other", "waits for something else", NULL)                                             \
    S(tex_throttle, "texture queue", "finds the queue to the texture unit full", NULL)

extern const vt_stall_row vt_stalls[VT_STALLS];

/* Returns true if `stall` is a wait: the warp neither worked nor was ready. */
bool vt_stall_waits(vt_stall stall);

#endif
