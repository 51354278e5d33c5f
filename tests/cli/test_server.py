#!/usr/bin/env python3
"""`vitrine serve`: what its endpoints honour, refuse and answer, on a tiny model, and others' clients against it."""
import concurrent.futures, math, subprocess, sys

from served import *
from tap import *

ONE = {}


def server():
    if "s" not in ONE:
        ONE["s"] = Server("--served-model-name", "tiny-served")
    return ONE["s"]


def text(**kw):
    return {"prompt": "Hello there", "max_tokens": 6, "temperature": 0, "ignore_eos": True, **kw}


def chat(**kw):
    return {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 6, "temperature": 0, "ignore_eos": True, **kw}


def refused(path, body, field, status=400):
    """An error of the client's in OpenAI's form that names the field."""
    a = server().post(path, body)
    same(a.status, status, f"status of {body}: {a.body[:300]!r}")
    same(set(a.json), {"error"})
    same(a.error["param"], field, f"the field that {a.error['message']!r} is about")
    same(a.error["type"], "invalid_request_error")
    return a.error


# ---- OpenAI's endpoints ----

def test_replies_use_the_served_name():
    for model in ({}, {"model": "tiny-served"}, {"model": "tiny"}):
        same(server().good("/v1/completions", text(**model)).json["model"], "tiny-served")
        same(server().good("/v1/chat/completions", chat(**model)).json["model"], "tiny-served")
    same(server().get("/v1/models").json["data"][0]["id"], "tiny-served")
    same(refused("/v1/completions", text(model="gpt-5"), "model", 404)["code"], "model_not_found")


def test_echo_repeats_the_prompt_in_front_of_the_answer():
    plain = server().good("/v1/completions", text()).json["choices"][0]["text"]
    got = server().good("/v1/completions", text(echo=True)).json["choices"][0]["text"]
    same(got, "Hello there" + plain)
    ids = list(b"Hello there")
    same(server().good("/v1/completions", text(prompt=ids, echo=True)).json["choices"][0]["text"], "Hello there" + plain)
    streamed = server().good("/v1/completions", text(echo=True, stream=True)).events
    same("".join(e["choices"][0]["text"] for e in streamed[:-1]), "Hello there" + plain, "the stream")
    same("echo", refused("/v1/completions", text(echo=True, stream=True, logprobs=1), "echo") and "echo")
    refused("/v1/chat/completions", chat(echo=True), "echo")


def test_echo_with_logprobs_scores_the_prompt_as_score_does():
    """lm-eval's loglikelihood: echo, logprobs and max_tokens 0 or 1. The reference is `vitrine score`, another path."""
    ids = list(b"The quick brown fox")
    want = ok("score", "--json", "--device", "cpu", "-m", server().model, "--tokens", ",".join(map(str, ids)), "--top", "2").json
    for n in (0, 1):
        got = server().good("/v1/completions", text(prompt=ids, max_tokens=n, echo=True, logprobs=2)).json
        c, l = got["choices"][0], got["choices"][0]["logprobs"]
        same({len(v) for v in l.values()}, {len(ids) + n}, "lengths of the lists")
        same([l["token_logprobs"][0], l["top_logprobs"][0]], [None, None], "of the first token")
        same(l["tokens"][:len(ids)], [chr(i) for i in ids])
        same(l["text_offset"][:len(ids)], list(range(len(ids))))
        for a, b in zip(l["token_logprobs"][1:len(ids)], want["logprobs"][1:]):
            assert abs(a - b) < 1e-4, (a, b)
        for t, top, tok in list(zip(l["token_logprobs"], l["top_logprobs"], l["tokens"]))[1:]:
            same(top[tok], t, "the token is among the top")
            assert len(top) in (2, 3), top
        same(got["usage"]["completion_tokens"], n)
        same(c["finish_reason"], "length")
        same(c["text"].startswith("The quick brown fox"), True)
    same(server().good("/v1/completions", text(max_tokens=0, echo=True)).json["choices"][0]["text"], "Hello there")
    one = server().good("/v1/completions", text(prompt=[65], max_tokens=0, echo=True, logprobs=0)).json["choices"][0]
    same([one["text"], one["logprobs"]["token_logprobs"]], ["A", [None]], "a prompt of one token")
    refused("/v1/completions", text(max_tokens=0), "max_tokens")
    refused("/v1/chat/completions", chat(max_completion_tokens=0, max_tokens=5), "max_completion_tokens")


def test_echo_of_several_prompts_and_choices():
    got = server().good("/v1/completions", text(prompt=["ab", "cde"], n=2, echo=True, logprobs=1, temperature=1, seed=3)).json
    same([c["text"][:3] for c in got["choices"][2:]], ["cde", "cde"])
    for c, n in zip(got["choices"], (2, 2, 3, 3)):
        same(len(c["logprobs"]["tokens"]), n + 6)
        same(c["logprobs"]["token_logprobs"][0], None)
    same(got["choices"][0]["logprobs"]["token_logprobs"][1], got["choices"][1]["logprobs"]["token_logprobs"][1])


def test_prompt_logprobs_in_vllms_form():
    ids = list(b"abcdef")
    echo = server().good("/v1/completions", text(prompt=ids, max_tokens=1, echo=True, logprobs=3)).json["choices"][0]["logprobs"]
    got = server().good("/v1/completions", text(prompt=ids, max_tokens=1, prompt_logprobs=3)).json["choices"][0]
    same(got["logprobs"], None)
    same(len(got["prompt_logprobs"]), 6)
    same(got["prompt_logprobs"][0], None)
    for i, p in enumerate(got["prompt_logprobs"][1:], 1):
        same(p[str(ids[i])]["logprob"], echo["token_logprobs"][i])
        same(p[str(ids[i])]["decoded_token"], chr(ids[i]))
        same(sorted(v["rank"] for v in p.values() if v["rank"]), [1, 2, 3], "ranks")
        best = [v["logprob"] for v in sorted(p.values(), key=lambda v: v["rank"] or 99)]
        same(best, sorted(best, reverse=True), "likelier ones have the lower rank")
    whole = server().good("/v1/chat/completions", chat(prompt_logprobs=0)).json
    same(len(whole["prompt_logprobs"]), whole["usage"]["prompt_tokens"])
    assert all(len(p) == 1 for p in whole["prompt_logprobs"][1:])
    both = server().good("/v1/completions", text(prompt=ids, prompt_logprobs=1, logprobs=2)).json["choices"][0]
    same({len(t) for t in both["logprobs"]["top_logprobs"]}, {2})
    refused("/v1/completions", text(prompt_logprobs=1, stream=True), "prompt_logprobs")
    refused("/v1/completions", text(prompt_logprobs=-1), "prompt_logprobs")


def test_usage_in_streams():
    def usages(**options):
        events = server().good("/v1/completions", text(stream=True, stream_options=options)).events
        same(events[-1], "[DONE]")
        return [e.get("usage", "absent") for e in events[:-1]], events[:-1]
    got, _ = usages()
    same(set(got), {"absent"})
    got, events = usages(include_usage=True)
    same(got[:-1], [None] * (len(got) - 1), "every other chunk says null")
    same(events[-1]["choices"], [])
    same((got[-1]["prompt_tokens"], got[-1]["completion_tokens"], got[-1]["total_tokens"]), (11, 6, 17))
    got, events = usages(include_usage=True, continuous_usage_stats=True)
    counts = [u["completion_tokens"] for u in got]
    same(counts, sorted(counts), "it grows")
    same((counts[0], counts[-1], got[0]["prompt_tokens"]), (1, 6, 11))
    refused("/v1/completions", text(stream=True, stream_options={"other": 1}), "stream_options")
    refused("/v1/completions", text(stream_options={"include_usage": True}), "stream_options")


def test_chat_streams_carry_the_role_first_and_the_reason_last():
    events = server().good("/v1/chat/completions", chat(stream=True, n=2, seed=1)).events
    for i in (0, 1):
        mine = [e["choices"][0] for e in events[:-1] if e["choices"][0]["index"] == i]
        same(mine[0]["delta"]["role"], "assistant")
        same([("role" in c["delta"]) for c in mine[1:]], [False] * (len(mine) - 1))
        same([c["finish_reason"] for c in mine], [None] * (len(mine) - 1) + ["length"])
    whole = server().good("/v1/chat/completions", chat(n=2, seed=1)).json
    for i in (0, 1):
        same("".join(e["choices"][0]["delta"]["content"] for e in events[:-1] if e["choices"][0]["index"] == i),
             whole["choices"][i]["message"]["content"], "the stream's text")


def test_the_second_turn_of_a_chat_computes_only_what_is_new():
    """Eight chats at once. Answers are of letters, so that the text of an answer gives its tokens again."""
    s = server()
    def chat(k):
        said, known = [{"role": "system", "content": "Be brief. " * 8}], None
        for turn in range(3):
            said.append({"role": "user", "content": f"Chat {k}, message {turn}. " * 3})
            a = s.good("/v1/chat/completions", {"messages": said, "max_tokens": 30, "ignore_eos": True, "seed": k, "temperature": 1,
                                                "allowed_token_ids": list(range(ord("a"), ord("z") + 1))}).json
            said.append({"role": "assistant", "content": a["choices"][0]["message"]["content"]})
            u = a["usage"]
            same(u["completion_tokens"], 30)
            # the KV of an answer's last token is computed only when something follows it
            if known:
                same(u["prompt_tokens_details"]["cached_tokens"], known - 1, f"chat {k}, turn {turn}: cached tokens")
            known = u["prompt_tokens"] + u["completion_tokens"]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(chat, k) for k in range(8)]:
            done.result()


def test_why_an_answer_ended():
    """stop_reason as in vLLM: the string or the id that was asked for; null at the model's own end."""
    free = server().good("/v1/completions", text(max_tokens=20, logprobs=0)).json["choices"][0]
    same((free["finish_reason"], free["stop_reason"]), ("length", None))
    ids = server().good("/generate", {"text": "Hello there", "sampling_params": {"max_new_tokens": 20, "temperature": 0,
                                                                                "ignore_eos": True}}).json["output_ids"]
    stop = next(i for i in ids if ids.index(i) > 2)
    got = server().good("/v1/completions", text(max_tokens=20, stop_token_ids=[stop])).json
    same((got["choices"][0]["finish_reason"], got["choices"][0]["stop_reason"]), ("stop", stop))
    same(got["usage"]["completion_tokens"], ids.index(stop) + 1, "the end token counts")
    late = server().good("/v1/completions", text(max_tokens=20, stop_token_ids=[stop], min_tokens=ids.index(stop) + 2)).json
    assert late["usage"]["completion_tokens"] >= ids.index(stop) + 2, late
    letters = {"logit_bias": {str(ord(c)): 100 for c in "ab"}, "allowed_token_ids": [ord("a"), ord("b")], "temperature": 1, "seed": 5}
    free = server().good("/v1/completions", text(max_tokens=30, **letters)).json["choices"][0]["text"]
    same(set(free) <= {"a", "b"}, True)
    cut = free[4:7]
    got = server().good("/v1/completions", text(max_tokens=30, stop=["zz", cut], **letters)).json["choices"][0]
    same((got["finish_reason"], got["stop_reason"]), ("stop", cut))
    same(got["text"], free[:free.index(cut)])
    eos = server().good("/v1/completions", text(ignore_eos=False, allowed_token_ids=[258])).json["choices"][0]
    same((eos["finish_reason"], eos["stop_reason"], eos["text"]), ("stop", None, ""))
    for more, reasons in ({}, [None]), ({"stop_token_ids": [256, 257, 258]}, [256, 257, 258]):
        held = server().good("/v1/completions", text(ignore_eos=True, guided_choice=["a"], **more)).json["choices"][0]
        same((held["finish_reason"], held["stop_reason"] in reasons, held["text"]), ("stop", True, "a"), f"an answer that its grammar ends: {held}")
    streamed = server().good("/v1/completions", text(max_tokens=30, stop=["zz", cut], stream=True, **letters)).events[-2]["choices"][0]
    same((streamed["finish_reason"], streamed["stop_reason"]), ("stop", cut))


def test_text_parts_are_one_message():
    parts = [{"type": "text", "text": "Hi"}]
    one = server().good("/v1/chat/completions", chat()).json
    same(server().good("/v1/chat/completions", chat(messages=[{"role": "user", "content": parts}])).json["choices"], one["choices"])
    image = [{"type": "image_url", "image_url": {"url": "http://127.0.0.1/x"}}]
    assert "image_url" in refused("/v1/chat/completions", chat(messages=[{"role": "user", "content": image}]), "messages")["message"]


REFUSED = {
    "response_format": {"type": "xml"}, "tools": [{"type": "function", "function": {"name": "f"}}],
    "functions": [{"name": "f"}], "audio": {"voice": "alloy", "format": "wav"}, "modalities": ["text", "audio"],
    "prediction": {"type": "content", "content": "x"}, "tool_choice": "required", "web_search_options": {}, "store": True,
    "reasoning_effort": "low", "chat_template": "{{ 1 }}", "guided_json": {"not": {}}, "structured_outputs": {"regex": "("},
    "use_beam_search": True, "skip_special_tokens": False, "temprature": 0.5, "best_of": 2, "logit_processors": []}
NUMBERS = {"n": [0, -1, 129, 10**9, 2**62, 1.5, "2", True], "temperature": [-1, 3, 1e300, "hot", True],
           "top_p": [-0.1, 1.1], "top_k": [-2, 10**12, 0.5], "min_p": [2], "max_tokens": [-1, 10**12, 2.5],
           "presence_penalty": [3], "frequency_penalty": [-3], "repetition_penalty": [0, 1e9], "seed": [0.5, "x"],
           "logit_bias": [{"259": 1}, {"-1": 1}, {"1": 101}, {"a": 1}, {"1": "x"}, []], "stop_token_ids": [[259], [-1], ["a"], 7],
           "allowed_token_ids": [[259], [], 7], "stop": [[1], 7, ["a"] * 65, "a" * 1025, "a\0"], "min_tokens": [-1, 7],
           "cache_salt": ["", "a" * 129, 7], "priority": [2**40], "ignore_eos": [1], "stream": ["yes"], "logprobs": [21, -1]}


def test_fields_that_are_not_honoured_are_refused_by_name():
    for name, value in REFUSED.items():
        refused("/v1/chat/completions", chat(**{name: value}), name)
    for name, values in NUMBERS.items():
        for value in values:
            refused("/v1/completions", text(**{name: value}), name)
    for value in (None,):
        for name in [*REFUSED, *NUMBERS]:
            server().good("/v1/chat/completions", chat(**{name: value}))


def test_prompts_that_are_refused():
    for prompt in ([], "", [[]], [259], [-1], [1.5], ["a", 1], [[1], "x", None], 7, {"a": 1}, [True]):
        refused("/v1/completions", text(prompt=prompt), "prompt")
    refused("/v1/completions", text(prompt=["a"] * 4097), "prompt")
    refused("/v1/completions", {"max_tokens": 1}, "prompt")
    for messages in ([], "hi", [{}], [{"role": 1, "content": "x"}], [{"role": "user"}], [7], None):
        refused("/v1/chat/completions", {"messages": messages}, "messages")
    e = refused("/v1/completions", text(prompt="a" * 5000), "prompt")
    same(e["code"], "context_length_exceeded")
    assert e["message"].startswith("the prompt has 5000 tokens; this model's maximum context length is 4096 tokens"), e
    e = refused("/v1/completions", text(prompt="a" * 100000), "prompt")  # its length tells enough
    assert e["message"].startswith("the prompt has more than 4096 tokens; this model's maximum context length is 4096 tokens"), e
    same(e["code"], "context_length_exceeded")
    same(refused("/v1/chat/completions", chat(messages=[{"role": "user", "content": "a" * 5000}]), "messages")["code"],
         "context_length_exceeded")


def test_the_documentation_lists_the_fields_of_the_table():
    """Every field that docs/server.md says is honoured is accepted; every other name in it is refused as it says."""
    with open("docs/server.md") as f:
        rows = [l.split("|")[1:-1] for l in f if l.startswith("| `")]
    known = {name.strip().strip("`") for row in rows for name in row[0].split(",")}
    for name in {*REFUSED, *NUMBERS} - {"temprature", "logit_processors"}:
        assert name in known, f"docs/server.md says nothing about {name}"


def test_the_documentation_has_the_table_of_clients_that_its_tests_make():
    """`tests/clients/table.py --write` brings it up to date."""
    made = subprocess.run([sys.executable, "tests/clients/table.py"], stdout=subprocess.PIPE, check=True, timeout=LIMIT_S).stdout.decode()
    with open("docs/server.md", encoding="utf-8") as f:
        assert "table.py -->\n" + made + "<!-- end -->" in f.read(), made


def test_bodies_as_sglang_router_writes_them():
    """The router reads a body into its own type and writes every field that has a default (0.3.2, as it was received)."""
    common = {"stream": False, "no_stop_trim": False, "ignore_eos": False, "skip_special_tokens": True, "return_hidden_states": False}
    server().good("/v1/completions", {"model": "tiny", "prompt": "abc", "echo": False, **common})
    server().good("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "model": "tiny", "logprobs": False,
                                           "continue_final_message": False, "separate_reasoning": True, "stream_reasoning": True,
                                           "max_tokens": 4, **common})
    server().good("/generate", {"text": "a", "model": None, "return_text_in_logprobs": False, "stream": False, "log_metrics": True,
                                "return_hidden_states": False, "background": False, "no_logs": False, "return_bytes": False,
                                "return_entropy": False})


# ---- timings and headers ----

def test_timings_add_up():
    body = text(prompt="A shared beginning of several pages. " * 4, cache_salt="timings")
    first, second = server().good("/v1/completions", body), server().good("/v1/completions", body)
    for a in (first, second):
        t, u = a.json["timings"], a.json["usage"]
        same(t["prompt_n"] + t["cache_n"], u["prompt_tokens"])
        same((t["predicted_n"], t["cache_n"]), (u["completion_tokens"], u["prompt_tokens_details"]["cached_tokens"]))
        assert abs(t["read_ms"] + t["queue_ms"] + t["prompt_ms"] - t["ttft_ms"]) < 0.01, t
        for n, ms, rate, each in ((t["prompt_n"], t["prompt_ms"], t["prompt_per_second"], t["prompt_per_token_ms"]),
                                  (t["predicted_n"] - 1, t["predicted_ms"], t["predicted_per_second"], t["predicted_per_token_ms"])):
            assert abs(rate * ms / 1e3 - n) <= 0.02 * n + 0.01, t
            assert abs(each * n - ms) <= 0.01 + 0.0001 * n, t
        assert t["story"] > 0 and t["chunks"] >= 1, t
        parts = dict(p.split(";dur=") for p in a.headers["Server-Timing"].split(", "))
        same(set(parts), {"read", "queue", "prefill", "decode"})
        assert abs(float(parts["prefill"]) - t["prompt_ms"]) < 0.002 and abs(float(parts["queue"]) - t["queue_ms"]) < 0.002
    assert second.json["timings"]["cache_n"] > 0, second.json
    last = server().good("/v1/completions", text(stream=True)).events[-2]
    same(last["timings"]["predicted_n"], 6, "a stream's last piece has them too")


def test_request_ids_go_in_and_out():
    a = server().good("/v1/completions", text(), headers={"X-Request-Id": "mine-42"})
    same((a.headers["X-Request-Id"], a.json["id"]), ("mine-42", "cmpl-mine-42"))
    for bad in ("two words", "x" * 129, ""):
        a = server().good("/v1/completions", text(stream=True), headers={"X-Request-Id": bad})
        assert a.headers["X-Request-Id"] not in (bad, None), a.headers
    a = server().post("/v1/completions", text(n=0), headers={"X-Request-Id": "mine-43"})
    same((a.status, a.headers["X-Request-Id"]), (400, "mine-43"))


# ---- the native endpoints ----

GREEDY = {"max_new_tokens": 6, "temperature": 0, "ignore_eos": True}


def test_generate_one():
    want = server().good("/v1/completions", text(logprobs=0)).json["choices"][0]
    for prompt in ({"text": "Hello there"}, {"input_ids": list(b"Hello there")}):
        got = server().good("/generate", {**prompt, "sampling_params": GREEDY, "rid": "r1"}).json
        same(got["text"], want["text"])
        m = got["meta_info"]
        same((m["id"], m["prompt_tokens"], m["completion_tokens"]), ("r1", 11, 6))
        same(m["finish_reason"], {"type": "length", "length": 6})
        assert m["e2e_latency"] > 0 and m["timings"]["predicted_n"] == 6, m
        same(len(got["output_ids"]), 6)
    got = server().good("/generate", {"text": "Hello there", "sampling_params": {**GREEDY, "stop_token_ids": [got["output_ids"][0]]}}).json
    same(got["meta_info"]["finish_reason"], {"type": "stop", "matched": got["output_ids"][0]})


def test_generate_logprobs():
    body = {"text": "abcdef", "sampling_params": GREEDY, "return_logprob": True, "top_logprobs_num": 2, "logprob_start_len": 0,
            "return_text_in_logprobs": True}
    m = server().good("/generate", body).json["meta_info"]
    echo = server().good("/v1/completions", text(prompt="abcdef", echo=True, logprobs=2)).json["choices"][0]["logprobs"]
    rows = m["input_token_logprobs"] + m["output_token_logprobs"]
    same([r[0] for r in rows], echo["token_logprobs"])
    same([r[2] for r in m["input_token_logprobs"]], list("abcdef"))
    same(m["input_top_logprobs"][0], None)
    same({len(t) for t in m["input_top_logprobs"][1:] + m["output_top_logprobs"]}, {2})
    later = server().good("/generate", {**body, "logprob_start_len": 3, "return_text_in_logprobs": False}).json["meta_info"]
    same(later["input_token_logprobs"], [[None, ord("d"), None]] + [[a, b, None] for a, b, _ in m["input_token_logprobs"][4:]])
    scored = server().good("/generate", {**body, "sampling_params": {"max_new_tokens": 0}}).json
    same(scored["meta_info"]["input_token_logprobs"], m["input_token_logprobs"])
    same(scored["output_ids"], [])


def test_generate_batches():
    one = server().good("/generate", {"text": ["ab"], "sampling_params": GREEDY}).json
    same([type(one), len(one)], [list, 1])
    got = server().good("/generate", {"input_ids": [list(b"ab"), list(b"cd")], "sampling_params": {**GREEDY, "n": 2}}).json
    same([g["index"] for g in got], [0, 1, 2, 3])
    same((got[0]["text"], got[1]["text"]), (one[0]["text"], one[0]["text"]))


def test_generate_streams_the_whole_text_so_far():
    want = server().good("/generate", {"text": "Hello there", "sampling_params": GREEDY}).json
    events = server().good("/generate", {"text": "Hello there", "sampling_params": GREEDY, "stream": True}).events
    same(events[-1], "[DONE]")
    same((events[-2]["text"], events[-2]["output_ids"]), (want["text"], want["output_ids"]))
    texts = [e["text"] for e in events[:-1]]
    assert all(b.startswith(a) for a, b in zip(texts, texts[1:])), texts
    same([e["meta_info"]["finish_reason"] for e in events[:-2]], [None] * (len(events) - 2))
    same([e["meta_info"]["completion_tokens"] for e in events[:-1]], list(range(1, 7)))


def test_generate_stream_that_is_read_late_is_whole():
    """Pieces that say less than the last one are left out; the client is not dropped for its slowness."""
    params = {"max_new_tokens": 3000, "temperature": 0, "ignore_eos": True}
    body = json.dumps({"text": "abc", "sampling_params": params, "stream": True}).encode()
    c = socket.socket()
    c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    c.connect(("127.0.0.1", server().port))
    c.sendall(b"POST /generate HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    want = []
    other = threading.Thread(target=lambda: want.append(server().good("/generate", {"text": "abc", "sampling_params": params}).json))
    other.start()  # takes as long; then that one has ended too
    data = b""
    while other.is_alive():  # a client that reads nothing at all for 30 s is dropped
        data += c.recv(1 << 16)
        other.join(0.25)
    while piece := c.recv(1 << 20):
        data += piece
    c.close()
    assert data.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"), data[-200:]
    same(data.count(b'"finish_reason":{'), 1, "last pieces")
    assert json.dumps(want[0]["output_ids"], separators=(",", ":")).encode() in data.replace(b" ", b""), "the last piece has all"


def test_generate_refuses_by_name():
    for name, value in {"image_data": "x", "lora_path": "/etc/passwd", "rid": "a b", "logprob_start_len": -2, "top_logprobs_num": 1,
                        "return_hidden_states": True, "custom_logit_processor": "gASV"}.items():
        refused("/generate", {"text": "a", name: value}, name)
    for name, value in {"json_schema": "{", "regex": "(a", "temperature": -1, "n": 10**9, "max_new_tokens": -1,
                        "skip_special_tokens": False, "min_new_tokens": 500, "custom_params": {}}.items():
        refused("/generate", {"text": "a", "sampling_params": {name: value}}, name)
    refused("/generate", {"text": "a", "input_ids": [1]}, "text")
    refused("/generate", {"text": [1, 2]}, "text")
    refused("/generate", {"input_ids": "a"}, "input_ids")
    refused("/generate", {"input_ids": []}, "input_ids")
    refused("/generate", {"text": "a", "sampling_params": [{}]}, "sampling_params")
    refused("/generate", {}, "text")
    refused("/generate", {"text": ""}, "text")


def test_tokenize_and_back():
    for prefix in ("", "/v1"):
        got = server().good(prefix + "/tokenize", {"prompt": "héllo", "return_token_strs": True}).json
        same(got["tokens"], list("héllo".encode()))
        same((got["count"], got["max_model_len"]), (6, tiny_model.CONTEXT))
        same(got["token_strs"][0], "h")
        same(server().good(prefix + "/detokenize", {"tokens": got["tokens"]}).json, {"prompt": "héllo"})
    messages = {"messages": [{"role": "user", "content": "Hi"}]}
    got = server().good("/tokenize", messages).json
    same(server().good("/detokenize", {"tokens": got["tokens"]}).json["prompt"],
         "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    same(got["count"], server().good("/v1/chat/completions", chat()).json["usage"]["prompt_tokens"])
    closed = server().good("/tokenize", {**messages, "add_generation_prompt": False}).json
    same(got["tokens"][:closed["count"]], closed["tokens"])
    refused("/tokenize", {"prompt": "a", **messages}, "prompt")
    refused("/tokenize", {"prompt": 7}, "prompt")
    refused("/tokenize", {"prompt": "a", "truncate": 1}, "truncate")
    for tokens in ([259], [-1], ["a"], "a", None, [[1]]):
        refused("/detokenize", {"tokens": tokens}, "tokens")


# ---- others' clients ----

def openai():
    try:
        import openai
    except ImportError:
        skip("the Python package openai is not installed")
    return openai


def client(o=None, **kw):
    return (o or openai().OpenAI)(base_url=server().url + "/v1", api_key="none", max_retries=0, **kw)


def test_openai_client_chats_and_completes():
    c = client()
    same([m.id for m in c.models.list()], ["tiny-served"])
    r = c.chat.completions.create(model="tiny-served", messages=[{"role": "user", "content": "Hi"}], max_tokens=6, temperature=0,
                                  logprobs=True, top_logprobs=2, extra_body={"ignore_eos": True})
    same((r.choices[0].finish_reason, r.usage.completion_tokens, len(r.choices[0].logprobs.content)), ("length", 6, 6))
    pieces = list(c.chat.completions.create(model="tiny-served", messages=[{"role": "user", "content": "Hi"}], max_tokens=6,
                                            temperature=0, stream=True, stream_options={"include_usage": True},
                                            extra_body={"ignore_eos": True}))
    same("".join(p.choices[0].delta.content or "" for p in pieces if p.choices), r.choices[0].message.content)
    same((pieces[0].choices[0].delta.role, pieces[-1].usage.completion_tokens), ("assistant", 6))
    t = c.completions.create(model="tiny-served", prompt="abc", max_tokens=0, echo=True, logprobs=1)
    same((t.choices[0].text, len(t.choices[0].logprobs.token_logprobs)), ("abc", 3))
    same(c.models.retrieve("tiny-served").id, "tiny-served")


def test_openai_client_gets_its_types_of_errors():
    o, c = openai(), client()
    for raises, kw in ((o.BadRequestError, {"n": 999}), (o.NotFoundError, {"model": "other"})):
        try:
            c.completions.create(**{"model": "tiny-served", "prompt": "a", **kw})
            assert False, "no error"
        except o.APIStatusError as e:
            assert isinstance(e, raises) and e.param in ("n", "model"), e
    try:
        c.models.retrieve("none")
        assert False, "no error"
    except o.NotFoundError as e:
        same(e.code, "model_not_found")


def test_openai_async_client_at_once():
    import asyncio
    o = openai()

    async def all():
        async with client(o.AsyncOpenAI) as c:
            async def one(i):
                text = ""
                async for p in await c.completions.create(model="tiny-served", prompt=f"{i}", max_tokens=8, temperature=0, stream=True):
                    text += p.choices[0].text if p.choices else ""
                return text
            return await asyncio.gather(*(one(i) for i in range(16)))
    got = asyncio.run(all())
    same(got[3], server().good("/v1/completions", {"prompt": "3", "max_tokens": 8, "temperature": 0}).json["choices"][0]["text"])


def test_curl():
    try:
        r = subprocess.run(["curl", "-sN", server().url + "/v1/completions", "-H", "Content-Type: application/json", "-d",
                            json.dumps(text(stream=True))], capture_output=True, timeout=LIMIT_S)
    except FileNotFoundError:
        skip("curl is not installed")
    assert r.stdout.endswith(b"data: [DONE]\n\n"), r.stdout


def test_drafts_are_told_by_timings_metrics_and_the_story():
    s = Server("--draft", "lookup")
    body = {"prompt": "AB", "max_tokens": 60, "allowed_token_ids": [65, 66], "temperature": 0, "ignore_eos": True}
    got = s.good("/v1/completions", body).json
    plain = server().good("/v1/completions", body).json
    same(got["choices"][0]["text"], plain["choices"][0]["text"])
    t = got["timings"]
    assert 0 < t["draft_accepted"] <= t["draft_tokens"], t
    same(s.get(f"/story/{t['story']}").json["request"]["drafts"], {"tokens": t["draft_tokens"], "accepted": t["draft_accepted"]})
    lines = s.get("/metrics").body.decode()
    for verdict, n in ("accepted", t["draft_accepted"]), ("rejected", t["draft_tokens"] - t["draft_accepted"]):
        assert f'vitrine:draft_tokens_total{{verdict="{verdict}"}} {n}\n' in lines, (verdict, n)
    s.stop()
    t = plain["timings"]
    assert "draft_tokens" not in t and "drafts" not in server().get(f"/story/{t['story']}").json["request"], t


def test_the_server_ends_as_it_should():
    server().stop()


main(globals())
