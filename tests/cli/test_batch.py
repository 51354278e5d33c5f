#!/usr/bin/env python3
"""vitrine run --batch, bench offline and bench simulate."""
import os, signal, tempfile

from tap import *

N = 14


def line(i, **body):
    b = {"model": "any", "messages": [{"role": "user", "content": f"Say the number {i}."}], "max_tokens": 6 + i % 5,
         "temperature": 0.8}
    b.update(body)
    return json.dumps({"custom_id": f"id-{i}", "method": "POST", "url": "/v1/chat/completions", "body": b})


def write(folder, lines, name="in.jsonl"):
    path = os.path.join(folder, name)
    with open(path, "w") as f:
        f.write("\n".join(lines) + "\n")
    return path


def args(i, o):
    return ["run", "--batch", i, "-o", o, "--quiet", *FAST, *model()]


def results(path):
    with open(path, "rb") as f:
        data = f.read()
    assert data.endswith(b"\n")
    rows = [json.loads(x) for x in data.split(b"\n") if x]
    by_id = {r["custom_id"]: r for r in rows}
    same(len(by_id), len(rows), "a line is there twice: rows")
    return by_id


def count_lines(path):
    if not os.path.exists(path):
        return 0
    with open(path, "rb") as f:
        return f.read().count(b"\n")


def test_batch_answers_every_line_and_then_has_nothing_to_do():
    with tempfile.TemporaryDirectory() as d:
        i, o = write(d, [line(k) for k in range(N)]), os.path.join(d, "out.jsonl")
        same(ok(*args(i, o)).out, b"")
        got = results(o)
        same(sorted(got), sorted(f"id-{k}" for k in range(N)))
        for k in range(N):
            r = got[f"id-{k}"]["response"]
            same((r["status_code"], got[f"id-{k}"]["error"]), (200, None))
            b = r["body"]
            same(b["object"], "chat.completion")
            c = b["choices"][0]
            same(c["message"]["role"], "assistant")
            assert c["finish_reason"] in ("stop", "length") and b["usage"]["completion_tokens"] <= 6 + k % 5
            same(b["usage"]["total_tokens"], b["usage"]["prompt_tokens"] + b["usage"]["completion_tokens"])
        before = open(o, "rb").read()
        ok(*args(i, o))
        same(open(o, "rb").read(), before, "a finished batch, run again")


def test_batch_killed_again_and_again_loses_and_doubles_nothing():
    with tempfile.TemporaryDirectory() as d:
        i, whole, o = write(d, [line(k) for k in range(N)]), os.path.join(d, "whole.jsonl"), os.path.join(d, "o.jsonl")
        ok(*args(i, whole))
        # killed when there are so many new results, in whatever it does then
        for more in (0, 1, 1) if SANITIZED else (0, 1, 1, 0, 1, 1, 1, 1):
            want = count_lines(o) + more
            p = start(*args(i, o))
            wait_until(lambda: p.poll() is not None or count_lines(o) >= want, f"{want} results")
            p.send_signal(signal.SIGKILL)
            p.communicate()
        with open(o, "ab") as f:
            f.write(b'{"id": "batch_req_id-3", "custom_id": "id-')  # as a crash in the middle of a write leaves it
        ok(*args(i, o))
        want, got = results(whole), results(o)
        same(sorted(got), sorted(want))
        for k in want:  # the same answers, interrupted or not; what the cache held differs
            a, b = want[k]["response"]["body"], got[k]["response"]["body"]
            same(b["choices"], a["choices"], k)
            same(b["usage"]["completion_tokens"], a["usage"]["completion_tokens"], k)


def test_batch_line_that_is_wrong_gets_an_error_and_stops_nobody():
    with tempfile.TemporaryDirectory() as d:
        lines = [line(0), line(1, temperature=9), line(2, tools=[]), line(3, messages=[]), line(4, stream=True),
                 line(5, prompt="x"), line(6, stop=["a", 3]), line(7, n=2, logprobs=True, top_logprobs=2),
                 json.dumps({"custom_id": "url", "method": "POST", "url": "/v1/embeddings", "body": {}}),
                 json.dumps({"custom_id": "plain", "method": "POST", "url": "/v1/completions",
                             "body": {"prompt": "One, two,", "max_tokens": 3, "temperature": 0, "logprobs": 1}})]
        i, o = write(d, lines), os.path.join(d, "out.jsonl")
        ok(*args(i, o))
        got = results(o)
        for k, word in (("id-1", "temperature"), ("id-2", "tools"), ("id-3", "messages"), ("id-4", "stream"),
                        ("id-5", "prompt"), ("id-6", "stop"), ("url", "url")):
            same(got[k]["response"]["status_code"], 400, k)
            assert word in got[k]["response"]["body"]["error"]["message"], got[k]
        same(got["id-0"]["response"]["status_code"], 200)
        seven = got["id-7"]["response"]["body"]
        same([c["index"] for c in seven["choices"]], [0, 1])
        for c in seven["choices"]:
            for t in c["logprobs"]["content"]:
                assert t["logprob"] <= 0 and len(t["top_logprobs"]) == 2
        same(seven["usage"]["completion_tokens"], sum(len(c["logprobs"]["content"]) for c in seven["choices"]))
        plain = got["plain"]["response"]["body"]
        same((plain["object"], plain["usage"]["completion_tokens"]), ("text_completion", 3))


def test_batch_logprobs_when_a_character_has_several_tokens_then_bytes_are_each_ones_own():
    with tempfile.TemporaryDirectory() as d:
        body = {"prompt": "\U0001f680\U0001f30d\U0001f680\U0001f30d\U0001f680", "max_tokens": 12, "temperature": 0, "logprobs": 0,
                "ignore_eos": True}
        i = write(d, [json.dumps({"custom_id": "x", "method": "POST", "url": "/v1/completions", "body": body})])
        ok(*args(i, os.path.join(d, "out.jsonl")))
        choice = results(os.path.join(d, "out.jsonl"))["x"]["response"]["body"]["choices"][0]
        parts = [bytes(t["bytes"]) for t in choice["logprobs"]["content"]]
        same(b"".join(parts).decode("utf-8", "replace"), choice["text"])
        assert any(p.decode("utf-8", "replace").encode() != p for p in parts), f"no part of a character in {parts}"


def test_batch_seed_when_given_then_the_text_is_its_own_whatever_the_id():
    def plain(k, **body):
        return json.dumps({"custom_id": k, "method": "POST", "url": "/v1/completions",
                           "body": {"prompt": "One", "max_tokens": 8, "temperature": 1.5, "ignore_eos": True, **body}})

    with tempfile.TemporaryDirectory() as d:
        o = os.path.join(d, "out.jsonl")
        ok(*args(write(d, [plain("a", seed=-1), plain("b", seed=-1), plain("c", seed=None), plain("d")]), o))
        text = {k: r["response"]["body"]["choices"][0]["text"] for k, r in results(o).items()}
    same(text["a"], text["b"], "seed -1, of two lines")
    same(len({text["a"], text["c"], text["d"]}), 3, "texts of different seeds")


def test_batch_allowed_token_ids_when_given_then_nothing_else_is_chosen():
    def plain(k, **body):
        return json.dumps({"custom_id": k, "method": "POST", "url": "/v1/completions",
                           "body": {"prompt": "Is it?", "max_tokens": 7, "temperature": 1, "logprobs": 4, **body}})

    ids = [300, 307]
    pieces = [list(ok("tokenize", "--decode", str(i), *model()).out) for i in ids]
    with tempfile.TemporaryDirectory() as d:
        o = os.path.join(d, "out.jsonl")
        lines = [plain("both", allowed_token_ids=ids, n=2), plain("one", allowed_token_ids=ids[:1]),
                 plain("none", allowed_token_ids=[]), plain("text", allowed_token_ids="yes"),
                 plain("word", allowed_token_ids=[1, "yes"]), plain("far", allowed_token_ids=[1 << 30]),
                 plain("null", allowed_token_ids=None)]
        ok(*args(write(d, lines), o))
        got = {k: r["response"] for k, r in results(o).items()}
        for k, may in (("both", pieces), ("one", pieces[:1])):
            for c in got[k]["body"]["choices"]:
                same(c["finish_reason"], "length", "the end token is not allowed")
                same(len(c["logprobs"]["content"]), 7)
                for t in c["logprobs"]["content"]:
                    assert t["bytes"] in may, (k, t)
                    same(sorted(x["bytes"] for x in t["top_logprobs"]), sorted(may), "what could be chosen")
        same(got["one"]["body"]["choices"][0]["logprobs"]["content"][0]["logprob"], 0.0)
        same(len(got["null"]["body"]["choices"][0]["logprobs"]["content"][0]["top_logprobs"]), 4)
        for k, why in (("none", "0 token ids"), ("text", "expected a list"), ("word", "entry 1"), ("far", "entry 0")):
            same(got[k]["status_code"], 400, k)
            message = got[k]["body"]["error"]["message"]
            assert message.startswith("allowed_token_ids: ") and why in message, message


def test_batch_usage():
    with tempfile.TemporaryDirectory() as d:
        i, o = write(d, [line(0), line(0)]), os.path.join(d, "out.jsonl")
        fails(1, ["line 2", "twice"], *args(i, o))
        fails(1, ["line 1", "custom_id"], *args(write(d, ["{}"]), o))
        fails(1, ["line 1", "JSON"], *args(write(d, ["nonsense"]), o))
        fails(2, "-o OUT.jsonl", "run", "--batch", i)
        fails(2, "--batch", "run", "-o", o, "x")
        fails(2, "--raw", "run", "--batch", i, "-o", o, "--raw")
        fails(1, "no batch result", *args(write(d, [line(0)]), write(d, ["{}"], "other.jsonl")))


def test_bench_offline_counts_what_it_ran():
    with tempfile.TemporaryDirectory() as d:
        path = write(d, ["# in out", "10 4", "33 7", "5 1"], "lengths")
        r = ok("bench", "offline", "--lengths", path, "--json", *FAST, *model()).json
        same((r["sequences"], r["input_tokens"], r["output_tokens"]), (3, 48, 12))
        assert r["wall_s"] > 0 and r["output_tokens_per_s"] > 0 and r["total_tokens_per_s"] > r["output_tokens_per_s"]
        a, b = (ok("bench", "offline", "--num", "3", "--input", "5:20", "--output", "2:6", "--seed", "4", "--json",
                   *FAST, *model()).json for _ in "ab")
        same((a["input_tokens"], a["output_tokens"]), (b["input_tokens"], b["output_tokens"]))
        r = ok("bench", "offline", "--num", "6", "--input", "40", "--output", "3", "--shared-prefix", "35", "--max-running", "1",
               "--json", *FAST, *model()).json
        same((a["cached_tokens"], r["cached_tokens"]), (0, 5 * 35), "prompts that begin alike")
        fails(2, ["--input: 'x' found", "100:1024"], "bench", "offline", "--input", "x", *model())
        fails(1, "line 1", "bench", "offline", "--lengths", write(d, ["1"], "bad"), *model())


def trace(folder, n, gap_ms):
    rows = [{"timestamp": k * gap_ms, "input_length": 1000 + k % 7, "output_length": 20, "hash_ids": [1, 100 + k]}
            for k in range(n)]
    return write(folder, [json.dumps(r) for r in rows], "trace.jsonl")


def test_bench_simulate_saturates_later_with_more_gpus():
    with tempfile.TemporaryDirectory() as d:
        base = ["bench", "simulate", "--trace", trace(d, 200, 200), "--hardware", "h200", "-m", "dummy:qwen3-8b"]
        one, four = (ok(*base, "--gpus", g, "--json").json for g in "14")
        assert one["saturates_at_rate"] < four["saturates_at_rate"]
        first = one["rates"][0]
        same((first["done"], first["refused"]), (200, 0))
        assert 0.4 < first["hit_share"] < 0.6, "half of every prompt is shared"
        assert first["ttft_ms"]["p50"] <= first["ttft_ms"]["p90"] <= first["ttft_ms"]["p99"]
        same(ok(*base, "--json").json["rates"], one["rates"], "two simulations")
        cold = ok(*base, "--no-prefix-cache", "--json").json["rates"][0]
        same(cold["hit_share"], 0)
        assert cold["ttft_ms"]["p50"] > first["ttft_ms"]["p50"]
        text = ok(*base).text
        assert "saturates between" in text and max(map(len, text.split("\n"))) <= 100
        fp8 = ok(*base, "--kv-dtype", "fp8", "--json").json
        same(fp8["kv_dtype"], "FP8_E4M3")
        fails(1, "timestamp", "bench", "simulate", "--trace", write(d, ["{}"], "bad"), "--hardware", "h200")
        fails(2, "--trace", "bench", "simulate", "--hardware", "h200")
        fails(2, "leave no room", *base, "--memory", "1G")
        fails(2, "was made for at most 40960", *base, "--max-context", "50000")


def test_bench_simulate_finds_the_border_of_an_overloaded_trace():
    with tempfile.TemporaryDirectory() as d:
        rows = [{"timestamp": k * 10, "input_length": 6000, "output_length": 100} for k in range(100)]
        base = ["bench", "simulate", "--hardware", "h200", "-m", "dummy:qwen3-8b", "--trace"]
        j = ok(*base, write(d, [json.dumps(r) for r in rows], "heavy.jsonl"), "--json").json
        at = [r["rate"] for r in j["rates"]].index(j["saturates_at_rate"])
        assert j["saturates_at_rate"] < 1, "100 requests a second are too many"
        assert j["rates"][at]["served_per_s"] < 0.9 * j["rates"][at]["offered_per_s"]
        below = j["rates"][at - 1]
        assert below["served_per_s"] >= 0.9 * below["offered_per_s"]
        fails(2, "arrive at one moment", *base, write(d, [json.dumps(rows[0])] * 2, "moment.jsonl"))


def test_bench_simulate_says_what_it_leaves_out():
    with tempfile.TemporaryDirectory() as d:
        rows = [{"timestamp": k * 100, "input_length": 40000, "output_length": 5000, "hash_ids": ["a", "b"]}
                if k % 2 else {"timestamp": k * 100, "input_length": 41000 if k == 2 else 100, "output_length": 3}
                for k in range(12)]
        base = ["bench", "simulate", "--hardware", "h200", "-m", "dummy:qwen3-8b", "--trace",
                write(d, [json.dumps(r) for r in rows], "long.jsonl")]
        text = " ".join(ok(*base, "--requests", "10").text.split())
        for sentence in ("Only the first 10 of the trace's 12 requests were replayed (--requests).",
                         "1 of 10 prompts are longer than the context of 40960 tokens: refused.",
                         "5 of 10 outputs are cut, by 20200 tokens in all: with their prompts they are longer than the context.",
                         "5 requests, the first in line 2, have more or fewer hash_ids than blocks of 512 tokens"):
            assert sentence in text, sentence
        text = " ".join(ok(*base, "--memory", "19G").text.split())
        assert "6 of 12 prompts are larger than the KV memory of" in text, text


if __name__ == "__main__":
    main(globals())
