"""How the peers' GPU scripts measure, the same way as bench/gpu_kernels.c: the median of single calls between CUDA events, a
256 MiB write before each so that L2 is cold, and a sleeping kernel in front so that the launch is hidden. One JSON line a
row, with the row's name as bench/gpu has it: append them to bench/gpu's .jsonl file."""
import json, sys, time

import torch

SLEEP_CYCLES = 500_000
_flush = None
only_build = False  # True: call everything once, so that what compiles at a first call does, and time nothing


def time_us(call, runs=40, warm=3):
    """Median, least and most microseconds."""
    global _flush
    if _flush is None:
        _flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    for _ in range(warm):
        call()
    torch.cuda.synchronize()
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(runs)]
    for i, (begin, end) in enumerate(events):
        _flush.fill_(i & 255)
        torch.cuda._sleep(SLEEP_CYCLES)
        begin.record()
        call()
        end.record()
    torch.cuda.synchronize()
    t = sorted(begin.elapsed_time(end) * 1e3 for begin, end in events)
    return t[len(t) // 2], t[0], t[-1]


def row(name, peer, call, bytes=0, flops=0, method="cold", runs=40):
    """Times a call and prints its line; a failure is a line too."""
    if only_build:
        return
    try:
        us, least, most = time_us(call, runs)
    except Exception as e:
        print(json.dumps({"row": name, "method": method, "peer": peer, "error": repr(e)[:300]}), flush=True)
        return
    print(json.dumps({"row": name, "method": method, "peer": peer, "us": round(us, 3), "us_min": round(least, 3),
                      "us_max": round(most, 3), "gb_per_s": round(bytes / us * 1e-3, 1),
                      "tflop_per_s": round(flops / us * 1e-6, 2)}), flush=True)


def first_call(name, peer, call):
    """Seconds of a first call: compiling, where the peer compiles then."""
    begin = time.perf_counter()
    try:
        call()
        torch.cuda.synchronize()
    except Exception as e:
        print(json.dumps({"first_call": name, "peer": peer, "error": repr(e)[:300]}), flush=True)
        return
    print(json.dumps({"first_call": name, "peer": peer, "s": round(time.perf_counter() - begin, 2)}), flush=True)


def need_gpu():
    if not torch.cuda.is_available():
        print("no GPU here", file=sys.stderr)
        sys.exit(77)
    print(json.dumps({"machine": torch.cuda.get_device_name(0), "torch": torch.__version__}), flush=True)


def random(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device="cuda", dtype=dtype)
