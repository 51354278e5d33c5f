"""What each row of the labs' plan names, item by item, and the knobs that a lab must turn.

NAMED: for each lab the named things of its row, process first, then hardware. A thing is (what the row says, the key of
the item that tells it, words of which one must be in the item). KNOBS: names that must be among a lab's knobs, on any
device."""
import json, re

KERNEL_CARD = [("operation", "operation"), ("how the work is cut", "execution"), ("bytes and FLOPs", "FLOP"),
               ("bandwidth and share of roof", "of its|any roof that was measured|emulated"), ("stalls", "stalls"),
               ("roofline position", "roofline"), ("bottleneck", "bottleneck"), ("opportunity", "opportunity"),
               ("tags", "times measured, shares derived|emulated: no times")]


def card(key):
    return [(f"{what} of the card", key, word) for what, word in KERNEL_CARD]


NAMED = {
    "sglang/00_check_env": [
        ("sockets", "topology", "sockets"), ("NUMA nodes", "topology", "NUMA node"), ("GPUs", "gpus", "GPU"),
        ("free memory of each GPU", "gpus", "free|no GPU"), ("other users of each GPU", "gpus", "user|process|no GPU"),
        ("matrix of links", "links", "NV|PIX|SYS|no GPU|one GPU"), ("pairs and groups for TP", "groups", "GPU"),
        ("NUMA crossings to avoid", "crossings", "NUMA|node"), ("memory hierarchy", "memory_roofs", "L2"),
        ("memory roof", "memory_roofs", "memory"), ("roofs of units", "compute_roofs", "FLOP/s"),
        ("interconnect roofs", "interconnect", "meeting|launch|link"),
        ("rate of links between GPUs", "peer_links", "GPU"), ("profiling tiers allowed", "tiers", "T0")],
    "sglang/01_baseline_perf": [
        ("tokenise", "tokenise", "ids"), ("match", "match", "cache"), ("plan", "plan", "schedule"),
        ("prefill", "prefill", "linear"), ("each layer's ops", "layer_ops", "attention_decode"),
        ("ITL slope per 100 KV tokens", "itl_slope", "per 100 tokens"), ("what its bytes explain", "itl_slope", "100 tokens of K and V"),
        ("batch composition", "batch", "decodes"), ("prefill -> decode", "transition", "attention_decode|no timed step"),
        ("step by step", "steps", "prefill"), ("TTFT and ITL", "latency", "alone"), ("compute share of a phase", "phase_shares", "fp32"),
        ("matrix-unit share", "phase_shares", "bf16"), ("memory share", "phase_shares", "memory"), ("what flips", "flips", "largest share (goes from|stays with)"),
        ("busy SMs, matrix unit, memory of each op", "counted", "SMs"), ("the hardware at each call of a layer", "hardware", "SMs"),
        ("why the warps of each kernel wait", "waits", ".")],
    "sglang/02_radix_cache_analysis": [
        ("transition hit -> miss", "hit_miss", "hit -> miss|token"), ("cold against warm", "cold_warm", "warm"),
        ("prefix length: bytes saved", "length_gain", "bytes saved"), ("FLOPs saved", "length_gain", "FLOP saved"),
        ("ms saved", "length_gain", "saved .modelled"), ("causal: a quarter of the attention", "causal", "25 %"),
        ("in-batch sharing", "concurrent", "computed"), ("eviction under pressure", "eviction", "room for"),
        ("tree before", "tree_before", "pages"), ("tree after", "tree_after", "pages"), ("hits against KV memory", "pressure", "."),
        ("bytes skipped", "skipped", "B and"), ("FLOPs skipped", "skipped", "FLOP"), ("time skipped, measured", "skipped", "measured"),
        ("access pattern of a hit", "access_hit", "pages"), ("bytes copied", "access_hit", "copied"),
        ("runs of contiguous pages", "access_hit", "run"), ("access pattern of a miss", "access_miss", "writes")],
    "sglang/03_backend_comparison": [
        ("which is chosen", "chosen", "attention"), ("why", "chosen", "first row|emulated"), ("plan cost", "plan_cost", "plan|emulated"),
        ("same inputs through each", "same_inputs", "prefill"), ("engines of each", "engines", "backend|emulated"),
        ("whole engines, named so", "whole_engine", "no comparison of attention|emulated"), ("stalls of each", "stalls", "."),
        ("occupancy of each", "occupancy", "worker|registers"), ("roof share of each", "roof_share", "."), ("where each wins", "where_wins", "fastest")],
    "sglang/04_timeline_profile": [
        ("a mixed load", "load", "waits for a place"), ("the whole story", "steps", "decodes"), ("gaps named", "gaps", "for whom"),
        ("the longest step", "slowest_step", "step"), ("CPU/GPU overlap", "overlap", "hidden"), ("kernel order", "kernel_order", "begins at"),
        ("Perfetto", "trace", "perfetto"), ("HTML", "html", "."), ("nsys", "nsys", ".")],
    "sglang/05_attention_deep_dive": [
        ("tiles", "tiles", "tile"), ("work distribution", "work", "item"), ("specialised warps", "roles", "."), *card("card"),
        ("occupancy and its limiter", "occupancy", "worker|limiter"), ("stall reasons with meaning", "stalls", "."),
        ("roofline", "roofline", "FLOP/byte|speed"), ("counters", "counters", ".")],
    "sglang/06_tp_scaling": [
        ("all-reduce in the flow of a layer", "flow", "ALL-REDUCE"), ("predicted time", "prediction", "predicted|--link"),
        ("share of a layer", "share", "two sums|--link"), ("measured on ranks", "scaling", "decode step|thread"), ("skew", "skew", "."), ("transfer", "transfer", "."),
        ("link against its roof", "link_roof", "B/s"), ("sync cost", "sync", "."), ("fast link", "fast_link", "GPUs"),
        ("one rank's copy", "buffers", "8 MiB")],
    "mini-sglang/00_check_env": [
        ("GPUs", "gpus", "GPU"), ("topology", "topology", "cores"), ("compiler", "compiler", "NVRTC|nvcc"), ("JIT readiness", "jit_ready", "."),
        ("place of the cache", "cache_place", "cubin"), ("entries of the cache", "cache", "."), ("template parameters", "template_parameters", "parameters"),
        ("compile flags", "compile_flags", "-arch"), ("dependencies of each kernel", "dependencies", "embed"), ("libraries", "libraries", "nvrtc"),
        ("nsys and ncu", "tools", "nsys.*ncu"), ("troubleshooting", "troubleshooting", "."), ("one run of each kernel", "kernels", "."),
        ("READY", "ready", "READY|missing")],
    "mini-sglang/01_test_kernels": [
        ("in the order of a pass", "order", "prefill"), ("every kernel against its reference", "kernels", "right"),
        ("tolerance and its reason", "tolerance", "rmsnorm"), ("what they take", "state", ".")],
    "mini-sglang/02_profile_index": [
        ("variants against the engine's form", "variants", "engine's"), ("warps and splits per row", "warps_splits", "warp"),
        ("vector width", "vector", "load"), ("bytes", "bytes", "rows read"), ("sweep", "sweep", "4096 x 2 bytes"),
        ("fixed against adaptive thread count", "threads", "thread"), *card("card"), ("coalescing", "coalescing", "lines"),
        ("bandwidth", "bandwidth", "copy roof|emulated"), ("launch floor", "launch_floor", "."), ("counters", "counters", ".")],
    "mini-sglang/03_profile_store": [
        ("one launch against two", "one_launch", "K and V"), ("asynchronous copies", "async_copies", "async|cp.async"),
        ("sequential slots", "patterns", "sequential"), ("random slots", "patterns", "random"), ("sorted slots", "patterns", "sorted"),
        ("64 x 1024", "patterns", "64 x 1024"), ("duplicates refused", "duplicates", "refused"), ("rows and variants", "rows", "engine's"),
        *card("card"), ("coalescing", "coalescing", "lines"), ("bandwidth of each pattern", "bandwidth", "sequential|emulated"),
        ("what sorting costs", "sorting", "."), ("what sorting gains", "sorting_layers", ".")],
    "mini-sglang/04_profile_attention": [
        ("prefill against decode", "compare", "prefill of"), ("when which kernel", "chosen", "attention_prefill"), ("why", "chosen_why", "first row"),
        ("the trail at batch 1, 2, 4", "trail", "FLOP/B|emulated"), *card("card_prefill"), *card("card_decode"), ("occupancy", "occupancy", "."),
        ("matrix unit", "matrix_unit", "roof|emulated"), ("stalls", "stalls", ".")],
    "mini-sglang/05_profile_comm": [
        ("one-shot, two-shot, NCCL over sizes", "sizes", "ring|roofs"),
        ("between ranks that are here", "measured", "registered|ranks|emulated"), ("one-shot", "one_shot", "."), ("two-shot", "two_shot", "."), ("NCCL", "nccl", "."),
        ("copy in and out of a buffer", "buffer_copy", "."), ("how to avoid it", "avoid_copy", "."), ("adaptive threshold", "threshold", "."),
        ("share in a layer", "layer_share", "."), ("communication : compute of a pass", "pass_share", "compute|roofs"), *card("card"),
        ("link use", "link", "."), ("link between devices", "link_peer", "."), ("skew", "skew", "."), ("sync", "sync", ".")],
    "mini-sglang/06_full_pipeline": [
        ("all of the above", "labs", "02 profile_index"), ("a forward pass", "timeline", "prefill|PREFILL"), ("one report", "report", "."),
        ("every kernel's state", "kernels", "linear"), ("the step", "step", "."), ("trace", "trace", "."), ("nsys", "nsys", ".")],
    "mini-sglang/radix_profile_radix": [
        ("length against time", "length", "1024"), ("first mismatch", "first_mismatch", "id 0"), ("vector width", "vector_width", "load"),
        ("portable against vectorised", "rows", "portable"), ("share of a scheduling step", "step_share", "."), ("L1 roof", "l1_roof", "."),
        ("L2 roof", "l2_roof", "."), ("memory roof", "memory_roof", "."), *card("card")],
    "flashinfer/00_check_env": [("JIT readiness", "jit_ready", "."), ("JIT cache state", "jit_cache", ".")],
    "flashinfer/01_test_kernels": [("which variant serves which shape", "variant_selection", ".")],
    "flashinfer/02_profile_prefill": [
        ("online softmax", "online_softmax", "."), ("tiles of Q and K", "tiles", "."), ("items over SMs or cores", "work_distribution", "items"),
        ("roles", "roles", "."), ("wave quantisation", "wave_quantisation", "."), ("a border on an H200", "wave_model", "H200"),
        ("512 tokens, 32 heads", "lengths", "tokens, "), ("occupancy limiter", "occupancy", "."), ("tensor share", "tensor_share", "."),
        ("HBM share", "hbm_share", "."), ("stalls", "stalls", "."), ("roofline position", "roofline", "."), *card("explanation")],
    "flashinfer/03_profile_decode": [
        ("split-K: chunks", "split_k", "chunk"), ("partial outputs", "partial_outputs", "fp32"), ("merge with LSE", "merge_lse", "LSE"),
        ("how the split is chosen", "split_choice", "H200"), ("the rule", "split_rule", "."), ("page layout", "page_layout", "page"),
        ("append", "append", "append"), ("page size", "page_size", "256"), ("bandwidth", "bandwidth", "."), ("long-scoreboard share", "long_scoreboard", "."),
        ("roof", "roof", "."), ("share of the roof", "memory_share", "."), *card("explanation")],
    "flashinfer/04_profile_rmsnorm": [
        ("row reduction", "row_reduction", "row of"), ("vectorisation", "vectorisation", "load"), ("fused against two", "fused_add", "two kernels"),
        ("bytes saved", "bytes_saved", "of two kernels"), ("bandwidth", "bandwidth", "."), ("against the roof", "copy_share", "."), *card("explanation")],
    "flashinfer/05_profile_rope": [
        ("in place", "in_place", "same place"), ("cos/sin cache", "cos_sin_cache", "cos"), ("interleaved against half-split", "interleaved_half_split", "interleaved"),
        ("llama3 scaling", "scaling", "llama3"), ("yarn scaling", "scaling", "yarn"), ("bandwidth", "bandwidth", "."), ("access pattern", "access_pattern", "run"),
        *card("explanation")],
    "flashinfer/06_jit_analysis": [
        ("what is compiled", "what_compiled", "."), ("when", "when", "start"), ("how long", "how_long", "."), ("cached where", "cached_where", "."),
        ("cold against warm", "cold_warm", "."), ("key", "key", "FNV-1a"), ("invalidation", "invalidation", ".")],
}

KNOBS = {
    "sglang/01_baseline_perf": ["decode together"],
    "sglang/02_radix_cache_analysis": ["prefix cache"],
    "sglang/03_backend_comparison": ["kernel level", "instruction set", "cuBLASLt", "deterministic"],
    "sglang/04_timeline_profile": ["budget"],
    "mini-sglang/02_profile_index": ["dynamic thread count", "L2 hint", "wider vectors", "shared-memory staging",
                                     "warp shuffles", "programmatic dependent launch"],
    "mini-sglang/03_profile_store": ["asynchronous copies", "K and V in two launches", "tokens in order of slots",
                                     "store fused with next norm", "store beside the norm", "KV cache in FP8"],
    "mini-sglang/05_profile_comm": ["direct peer access", "adaptive NCCL threshold"],
    "mini-sglang/06_full_pipeline": ["no overlap", "CUDA graphs", "sampling in the same graph", "programmatic dependent launch"],
    "flashinfer/03_profile_decode": ["page size", "split size", "shared pages", "FP8 KV"],
    "flashinfer/04_profile_rmsnorm": ["fused add + norm"],
    "flashinfer/05_profile_rope": ["rope fused with store"],
}
VERDICTS = {"gains", "loses", "no gain here", "not measured", "not graded"}


def check_named(track, name, result, engine=True):
    """Every named thing of the lab's row is told by its item, and every knob that belongs to it is there with a verdict.
    engine: the lab ran requests too, which an emulated GPU does not."""
    items, lab = result["items"], f"{track}/{name}"
    for what, key, word in NAMED[lab]:
        item = items.get(key)
        assert item, f"{lab}: {what}: no item {key}"
        if "missing" in item:
            assert len(item["missing"]) > 20, f"{lab}: {what}: {item}"
        else:
            assert re.search(word, json.dumps(item, ensure_ascii=False), re.S), f"{lab}: {what}: {word} is not in {item}"
    for knob in KNOBS.get(lab, []) if engine else []:
        assert any(k["name"].startswith(knob) for k in result["knobs"]), f"{lab}: no knob {knob}"
    for k in result["knobs"]:
        assert k["where"] and k["what"] and k["verdict"] in VERDICTS and len(k["why"]) > 20, (lab, k)
        assert (k["gain"] is None) == (k["verdict"] == "not measured"), (lab, k)
