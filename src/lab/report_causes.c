/* What one sees in a result, its likely cause, and what to do: one table, used by INDEX and held by
 * a test. */
#include "lab/report_inside.h"

const report_cause report_causes[] = {
    {"time close to the launch floor, whatever the shape",
     "the call is launch-bound: its bytes take less time than starting it",
     "put more work in a call, fuse it with a neighbour, use one graph and PDL; do not tune its "
     "loads"},
    {"more than 70 % of the measured roof", "near the optimum: the bytes are the time",
     "move fewer bytes (fuse, smaller type); else leave it alone"},
    {"less than 50 % of the roof, although the call is far longer than its launch",
     "accesses are not coalesced, or too few bytes are in flight",
     "look at the access pattern in `cut`; wider vectors or more CTAs; then look at occupancy"},
    {"high bandwidth, low SM use", "memory-bound, as expected of copies, norms and decode",
     "nothing to do in the kernel; reduce bytes"},
    {"low bandwidth, high SM use",
     "local loads and stores: registers are spilled; or the arithmetic itself is the limit",
     "check `spill_bytes` and the counters of local accesses before you call it spilling; then "
     "reduce registers or tile size"},
    {"register spills", "more values live than registers: occupancy or speed is lost",
     "smaller tiles, fewer values held over the loop, another launch bound"},
    {"many barrier stalls", "warps wait for each other: producer and consumer out of step",
     "more stages in the pipeline, asynchronous copies, fewer barriers"},
    {"many long_scoreboard stalls", "warps wait for loads from HBM or L2",
     "more loads in flight: unroll, prefetch with cp.async or TMA, more warps an SM"},
    {"low occupancy limited by shared memory", "one large CTA fills an SM",
     "no fault where it keeps the memory or matrix unit busy; else smaller stages"},
    {"matrix unit idle in prefill", "the tiles are too small or wait for their operands",
     "larger token chunks, deeper pipeline; look at the share of each phase in sglang 01"},
    {"a last wave that is nearly empty", "wave quantisation: one item more than SMs",
     "another tile size, or split the items"},
    {"random slots slower than sequential ones",
     "scattered writes open more memory pages and lines",
     "sort the slots where that is cheaper than what it saves (mini-sglang 03 measures both)"},
    {"gaps between kernels", "the host is late: scheduling, sampling or launching takes too long",
     "CUDA graphs, overlap of planning with the step, fewer launches"},
    {"the gap between tokens grows with the context", "decode attention reads all of K and V",
     "a smaller KV type, fewer KV heads, shared pages; compare the slope with its bytes"},
    {"one token takes far longer than its neighbours",
     "a prefill chunk shared its step, pages were evicted, or the machine was busy",
     "read the cause in the story; a smaller token budget a step"},
    {"a prefix hit saves less time than tokens",
     "attention of new tokens still reads the cached keys and values; the launch stays",
     "compare with bytes and FLOPs saved in sglang 02"},
    {"prefix hits vanish under load", "pages were evicted before the prefix came again",
     "more KV memory, a smaller KV type, longer pages kept; compare the tree before and after"},
    {"more time in all-reduce than its bytes explain", "ranks wait for a slower peer (skew)",
     "look at waiting and transfer apart; balance the ranks before you change the algorithm"},
    {"a copy before and after each all-reduce", "the buffer is not registered with the peers",
     "write into the registered buffer directly, or read the peers' memory"},
    {"the first request is slow, later ones are not",
     "kernels were compiled, or the cache was cold",
     "`vitrine env --jit`; warm the cache at installation (flashinfer 06)"},
    {"results differ from run to run", "the order of sums depends on the batch",
     "--deterministic, at the cost that the labs measure"},
    {"times differ from run to run by more than 10 %", "other programs use the machine",
     "the labs do not grade such runs; run again when it is quiet"},
    {0}};

void report_reading(vt_buf *b)
{
    vt_buf_puts(b, "| observation | likely cause | what to do |\n|---|---|---|\n");
    for (const report_cause *c = report_causes; c->seen; c++)
        vt_buf_printf(b, "| %s | %s | %s |\n", c->seen, c->cause, c->action);
    vt_buf_putc(b, '\n');
}
