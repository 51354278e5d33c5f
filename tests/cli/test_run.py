#!/usr/bin/env python3
"""vitrine run and vitrine chat."""
import fcntl, json, math, re, signal, time

from tap import *


def test_run_json_has_the_documented_form():
    r = run_json("-n", "5", "--ignore-eos", COUNT)
    same(sorted(r), ["finish_reason", "text", "timings", "tokens", "usage"])
    same(sorted(r["usage"]), ["cached_tokens", "completion_tokens", "prompt_tokens"])
    same(sorted(r["timings"]), ["decode_ms", "decode_tokens_per_s", "load_ms", "prefill_ms", "ttft_ms"])
    same((r["finish_reason"], len(r["tokens"]), r["usage"]["completion_tokens"]), ("length", 5, 5))
    assert r["usage"]["prompt_tokens"] > 5 and r["usage"]["cached_tokens"] == 0
    t = r["timings"]
    assert 0 < t["prefill_ms"] <= t["ttft_ms"] and t["load_ms"] > 0 and t["decode_ms"] > 0
    assert math.isclose(t["decode_tokens_per_s"], 4e3 / t["decode_ms"], rel_tol=0.02)


def test_run_few_tokens_have_no_decode_speed():
    for n in (1, 3):
        r = run_json("-n", str(n), "--ignore-eos", COUNT)
        same((len(r["tokens"]), r["timings"]["decode_tokens_per_s"]), (n, None))
    assert "tokens/s" not in ok("run", "-n", "3", "--ignore-eos", *FAST, *model(), COUNT).log


def test_run_text_on_stdout_is_the_json_text():
    want = run_json("-n", "12", COUNT)
    r = ok("run", "-n", "12", *FAST, *model(), COUNT)
    same(r.text, want["text"])
    assert "prompt tokens" in r.log and "tokens/s" in r.log
    q = ok("run", "-n", "12", "--quiet", *FAST, *model(), COUNT)
    same((q.out, q.err), (r.out, b""))


def test_run_greedy_is_the_same_for_any_threads_chunks_and_overlap():
    want = run_json("-n", "16", COUNT)["tokens"]
    for args in (["--threads", "1"], ["--token-budget", "7", "--max-running", "4"], ["--no-overlap"],
                 ["--page-size", "5"], ["--no-prefix-cache"], ["--deterministic"]):
        same(run_json("-n", "16", *args, COUNT)["tokens"], want, f"tokens with {args}")


def test_run_prompt_comes_from_argument_or_stdin():
    want = run_json("-n", "4", COUNT)["tokens"]
    same(run_json("-n", "4", stdin=COUNT)["tokens"], want)
    same(run_json("-n", "4", "-", stdin=COUNT)["tokens"], want)
    same(run_json("-n", "4", "--", COUNT)["tokens"], want)
    fails(2, "the prompt is empty", "run", *FAST, *model(), stdin=b"")


def test_run_raw_tokens_and_system_change_the_prompt():
    need_model()
    ids = ok("tokenize", "--json", stdin="Once upon a time").json["ids"]
    raw = run_json("--raw", "-n", "6", "Once upon a time")
    same(raw["usage"]["prompt_tokens"], len(ids))
    same(run_json("-n", "6", "--tokens", ",".join(map(str, ids)))["tokens"], raw["tokens"])
    chat = run_json("-n", "6", "Once upon a time")
    assert chat["usage"]["prompt_tokens"] > len(ids)
    other = run_json("-n", "6", "--system", "Answer in French.", "Once upon a time")
    assert other["usage"]["prompt_tokens"] != chat["usage"]["prompt_tokens"]
    fails(2, "--system", "run", "--raw", "--system", "x", "y")
    fails(2, "--tokens", "run", "--tokens", "1,2", "and a prompt")


def test_run_stop_ends_before_the_text_and_eos_can_be_ignored():
    need_model()
    whole = run_json("-n", "24", "--raw", "One two three four five six")["text"]
    word = whole.split()[3]
    r = run_json("-n", "24", "--raw", "--stop", "never there", "--stop", word, "One two three four five six")
    same((r["text"], r["finish_reason"]), (whole[:whole.index(word)], "stop"))
    for question in ("What is the capital of France?", "Hi", "What is 2 + 2?", "Why is the sky blue? Be brief."):
        short = run_json("-n", "64", question)
        if short["finish_reason"] == "stop":
            break
    same(short["finish_reason"], "stop", "no answer of four ends within 64 tokens")
    long = run_json("-n", "64", "--ignore-eos", question)
    same((long["finish_reason"], len(long["tokens"])), ("length", 64))
    same(long["tokens"][:len(short["tokens"]) - 1], short["tokens"][:-1], "tokens before the end")


def test_run_sampling_is_a_function_of_the_seed():
    args = ["-n", "12", "--temperature", "1.5", "--ignore-eos", "--raw", "Once"]
    a = run_json("--seed", "1", *args)["tokens"]
    same(run_json("--seed", "1", *args)["tokens"], a)
    assert any(run_json("--seed", str(s), *args)["tokens"] != a for s in (2, 3))
    greedy = run_json("-n", "12", "--ignore-eos", "--raw", "Once")["tokens"]
    same(run_json("--seed", "1", "--top-k", "1", *args)["tokens"], greedy, "top-k 1 and greedy")
    same(run_json("--seed", "1", "--top-p", "0", *args)["tokens"], greedy, "top-p 0 and greedy")
    same(run_json("--seed", "1", "--min-p", "1", *args)["tokens"], greedy, "min-p 1 and greedy")


def test_run_refuses_what_cannot_be():
    fails(2, "token", "run", *FAST, *model(), "--tokens", "999999999")
    r = run("run", *FAST, *model(), "--raw", "-n", "4", stdin="word " * 3000)
    assert r.code in (1, 2) and "512" in r.log and r.log.count("\n") == 1, r.log
    r = run("run", *FAST, *model(), stdin=b"\xff\xfe not text")
    assert r.code == 2 and "UTF-8" in r.log, r.log
    r = ok("run", "--json", "--raw", "-n", "2", "--ignore-eos", *FAST, *model(), stdin=b"\xff\x00 bytes")
    same(len(r.json["tokens"]), 2)
    for device in ("tpu", "cuda:", "cuda:x", "cuda:N", "cuda:-1", "cuda:0x", "cuda:0,1", "cuda:1234", "CPU"):
        fails(2, ["--device", device, "auto|cpu|cuda|cuda:N"], "run", "--device", device, "x")


F_SETPIPE_SZ = 1031  # fcntl's, which Python knows from 3.10 on
LONG = ["-n", "2000", "--ignore-eos", "--raw", "--max-context", "2048", "--kv-memory", "64M"]


def ended(p):
    out, err = p.communicate(timeout=LIMIT_S)
    return p.returncode, out, err.decode()


def test_run_ctrl_c_keeps_what_is_there_and_says_130():
    p = start("run", *LONG, *model(), "Once upon a time")
    fcntl.fcntl(p.stdout, F_SETPIPE_SZ, 4096)  # more than that is not read: it cannot end before the signal
    first = p.stdout.read(1)
    p.send_signal(signal.SIGINT)
    code, out, err = ended(p)
    same(code, 130)
    assert first and "interrupted" in err, err
    n = int(re.search(r"(\d+) generated", err).group(1))
    assert 0 < n < 2000, err
    whole = ok("run", "-n", str(n), *LONG[2:], *model(), "Once upon a time").out
    same(whole, first + out, "the same answer, ended by its length: bytes")


def catches_interrupts(p):
    """Whether the program has come to where it installs its handler."""
    with open(f"/proc/{p.pid}/status") as f:
        caught = int(re.search(r"^SigCgt:\s*([0-9a-f]+)", f.read(), re.M).group(1), 16)
    return caught >> (signal.SIGINT - 1) & 1


def test_run_ctrl_c_with_json_prints_an_object():
    delay = 0.1  # until the signal comes after loading: how long that takes depends on the machine
    while True:
        p = start("run", "--json", *LONG, *model(), "Once")
        wait_until(lambda: catches_interrupts(p), "a handler of SIGINT")
        time.sleep(delay)
        p.send_signal(signal.SIGINT)
        code, out, err = ended(p)
        same(code, 130, f"exit status {delay} s after the start")
        if out:
            break
        assert "interrupted" in err, err
        delay *= 1.5
        assert delay < LIMIT_S
    r = json.loads(out)
    same(r["finish_reason"], "abort")
    assert len(r["tokens"]) < 2000


def told_tokens(log, request):
    """(prompt, cached) tokens as the story of a request tells them."""
    m = re.search(rf"REQUEST {request}  .*?(\d+) prompt tokens \((\d+) cached\)", log, re.S)
    return int(m.group(1)), int(m.group(2))


def test_chat_remembers_resets_and_tells():
    need_model()
    lines = "My name is Ada.\n/story\nWhat is my name?\n/story\n/reset\n/nonsense\nMy name is Ada.\n/story\n/exit\nnever\n"
    r = ok("chat", "-n", "12", *FAST, *model(), stdin=lines)
    answers = r.text.split("\n")
    (one, _), (two, cached), (three, _) = (told_tokens(r.log, i) for i in (1, 2, 3))
    assert two > one + 12 and cached >= one, (one, two, cached)
    same((three, answers[2]), (one, answers[0]), "the first turn and the first turn after /reset")
    assert "'/nonsense' is no command" in r.log and "forgotten" in r.log
    same(len(answers), 4)  # three answers; nothing behind /exit


def test_chat_ends_at_the_end_of_input():
    same(ok("chat", *FAST, *model(), stdin=b"").out, b"")
    r = run("chat", *FAST, *model(), stdin="/story\n")
    assert r.code == 0 and "no answer yet" in r.log


main(globals())
