#!/usr/bin/env python3
"""Mistakes that users make with a server, and what it tells them: addresses, names, fields, and what can never run."""
import http.client, json, os, re, resource, shutil, subprocess, tempfile, threading

from served import Server
from tap import BIN, CACHE, LIMIT_S, clean_env, have_model, main, same, skip, wait_until
import tiny_model

ONE = {}


def server():
    if "s" not in ONE:
        ONE["s"] = Server("--max-queued", "20", "--max-running", "4", template="{% for m in messages %}"
                          "{{ m['role'] + ': ' + m['content'] }}\n{% endfor %}")
    return ONE["s"]


def message(method, path, body=None, status=404):
    a = server().call(method, path, body)
    same(a.status, status, f"status of {method} {path}: {a.body[:300]!r}")
    return a.error if path.startswith("/api/") else a.error["message"]  # Ollama's form, and OpenAI's


def test_a_wrong_address_names_the_right_one():
    for wrong, right in (("/chat/completions", "/v1/chat/completions"), ("/v1/v1/chat/completions", "/v1/chat/completions"),
                         ("/v1/completions/", "/v1/completions"), ("/v1/chat/completion", "/v1/chat/completions"),
                         ("/v1/health", "/health"), ("/completions//", "/v1/completions")):
        said = message("POST", wrong, {})
        assert said.endswith(f"there is no such page, did you mean {right}?"), said
    assert message("GET", "/v1/models/").endswith("did you mean /v1/models?")
    for wrong in ("/v1/moderations", "/api/push", "/", "/" + "x" * 5000, "/v1/" * 500):
        said = message("POST" if wrong != "/" else "PUT", wrong, {}, 404 if wrong != "/" else 405)
    assert "/v1/chat/completions" in message("GET", "/docs") and "/v1/models" in message("POST", "/v1/moderations", {})


def test_options_without_cors_names_the_option():
    assert "--cors-origin" in message("OPTIONS", "/v1/chat/completions", status=405)
    assert "--cors-origin" not in message("GET", "/v1/chat/completions", status=405)


def test_a_field_that_is_misspelt_is_told_its_name():
    for wrong, right in (("temprature", "temperature"), ("max_token", "max_tokens"), ("stopp", "stop")):
        said = message("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], wrong: 1}, 400)
        same(said, f"{wrong}: not supported, did you mean {right}?")
    same(message("POST", "/generate", {"text": "a", "sampling_params": {"top_pp": 1}}, 400),
         "sampling_params.top_pp: not supported, did you mean top_p?")
    same(message("POST", "/v1/completions", {"prompt": "a", "quux": 1}, 400), "quux: not supported")
    turns = [{"role": "user", "content": "a"}]
    for path, body, wrong, right in (("/v1/messages", {"messages": turns, "max_tokens": 1}, "temprature", "temperature"),
                                     ("/v1/messages", {"messages": turns, "max_tokens": 1}, "stop_sequence", "stop_sequences"),
                                     ("/v1/responses", {"input": "a"}, "max_output_token", "max_output_tokens")):
        said = server().post(path, {**body, wrong: 1})
        same((said.status, said.error["message"]), (400, f"{wrong}: not supported, did you mean {right}?"))
    for body, sentence in (({"options": {"num_predic": 1}}, "options.num_predic: not supported, did you mean num_predict?"),
                           ({"streem": False}, "streem: not supported, did you mean stream?")):
        said = server().post("/api/chat", {"messages": turns, **body})
        same((said.status, said.json["error"]), (400, sentence))
    said = message("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "store": True}, 400)
    same(said, "store: not supported; leave it out, or give one of these, which ask for what is done anyway: false")


def test_an_assistant_message_without_content_is_empty():
    """Templates add contents up: null is what clients send beside a tool's call, and some leave it out."""
    turns = lambda **kw: {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", **kw}, {"role": "user", "content": "b"}]}
    expected = server().good("/tokenize", turns(content="")).json["tokens"]
    for kw in ({"content": None}, {}):
        same(server().good("/tokenize", turns(**kw)).json["tokens"], expected)
    said = message("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": None}]}, 400)
    assert said.startswith("messages[0].content:"), said


def test_a_field_of_the_other_endpoint_is_told_where_it_belongs():
    same(message("POST", "/v1/chat/completions", {"prompt": "a"}, 400), "prompt: not supported here, but by /v1/completions")
    same(message("POST", "/v1/completions", {"messages": []}, 400), "messages: not supported here, but by /v1/chat/completions")


def test_more_answers_than_can_ever_run_are_refused_for_good():
    for body in ({"prompt": "a", "n": 25}, {"prompt": ["a"] * 25}, {"prompt": ["a"] * 5, "n": 5}):
        a = server().post("/v1/completions", {"max_tokens": 1, **body})
        same(a.status, 400, a.body)
        assert "expected at most 24 answers" in a.error["message"], a.body
    server().good("/v1/completions", {"prompt": ["a"] * 4, "n": 5, "max_tokens": 1, "ignore_eos": True})


def test_a_bias_names_a_token_in_one_way_only():
    for key in ("05", " 5", "+6", "5 ", "0x5", "", "-0", "99999999999", "5.0"):
        said = message("POST", "/v1/completions", {"prompt": "a", "max_tokens": 1, "logit_bias": {"5": 1, key: 2}}, 400)
        assert said.startswith(f"logit_bias: '{key}' found, expected a token id"), said
    server().good("/v1/completions", {"prompt": "a", "max_tokens": 1, "logit_bias": {"0": 1, "5": -100}})


def test_a_large_grammar_is_compiled_once_and_not_by_the_loop():
    s = Server()
    s.good("/v1/completions", {"prompt": "a", "max_tokens": 8, "guided_regex": "|".join(f"w{i}" for i in range(5000))})
    count = lambda: [int(l.split()[-1]) for l in s.get("/metrics").body.decode().split("\n") if l.startswith("vitrine:grammars_total{how=")]
    same(count(), [1, 0, 0], "compiled, refused, found")
    said = [s.post("/v1/completions", {"prompt": "a", "guided_regex": "(a"}) for _ in range(3)]
    same([a.status for a in said], [400] * 3)
    same(len({a.error["message"] for a in said}), 1)
    same(count(), [1, 1, 2], "compiled, refused, found")
    s.stop()


def test_costly_grammars_hold_up_no_other_request_and_leave_with_their_clients():
    """One key sends eight schemas of a second each. Another key's requests, with a new schema and without one, are answered meanwhile;
    and schemas whose clients have gone are not compiled."""
    s = Server(env={"VITRINE_API_KEY": "alice,bob"})
    number = lambda name: float(re.search(rf"^vitrine:{re.escape(name)} (\S+)$", s.get("/metrics", headers=bob).body.decode(), re.M)[1])
    bob, waiting = {"X-API-Key": "bob"}, []
    for k in range(8):
        forms = [{"type": "string", "pattern": f"^[a-z]{{{k + 1},{i + 9}}}x{i}.*y{i}$"} for i in range(60)]
        body = json.dumps({"prompt": "a", "max_tokens": 1, "guided_json": {"oneOf": forms}}).encode()
        waiting.append(s.connect())
        waiting[-1].sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nX-API-Key: alice\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    wait_until(lambda: number("requests_open") == 8, "the server has all of them")
    s.good("/v1/completions", {"prompt": "a", "max_tokens": 1}, headers=bob)
    s.good("/v1/completions", {"prompt": "a", "max_tokens": 9, "guided_json": {"enum": [1, 2]}}, headers=bob)
    still = number("requests_open")
    for c in waiting:
        c.close()
    assert still >= 4, still
    wait_until(lambda: number("requests_open") == 0, "none of them is left")
    s.good("/v1/completions", {"prompt": "a", "max_tokens": 9, "guided_json": {"enum": [3, 4]}}, headers=bob)
    compiled = number('grammars_total{how="compiled"}')
    assert 2 <= compiled < 8, compiled
    s.stop()


def test_a_grammar_that_leaves_no_token_is_the_requests_mistake():
    """At the first token (a), and behind it (ba)."""
    for wanted in "a+", "ba+":
        for stream in False, True:
            a = server().post("/v1/completions", {"prompt": "a", "max_tokens": 8, "guided_regex": wanted, "allowed_token_ids": [98], "stream": stream})
            same((a.status, a.error["type"], a.error["param"]), (400, "invalid_request_error", "guided_regex"), str(a.body))
            assert "allow no token" in a.error["message"], a.body


def test_a_grammar_that_can_be_followed_in_too_many_ways_is_the_requests_mistake():
    """The first mask is small; a token takes it over the limit. The answer may not end before."""
    a = server().post("/v1/completions", {"prompt": "a", "max_tokens": 32, "allowed_token_ids": [97, 98], "guided_grammar": "root ::= s\ns ::= . s . | . s s | . s . s | ."})
    same((a.status, a.error["param"]), (400, "guided_grammar"), str(a.body))
    assert "too large to be followed" in a.error["message"], a.body


def test_an_answer_that_takes_too_long_is_a_timeout():
    s = Server("--request-timeout", "0.05", context=1 << 20)
    a = s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "ignore_eos": True, "max_tokens": 1 << 19})
    same((a.status, a.error["type"]), (504, "server_error"))
    ends = lambda: {l for l in s.get("/metrics").body.decode().split("\n") if l.startswith("vitrine:sequence_ends_total") and l.endswith(" 1")}
    wait_until(ends, "the end is counted")
    same(ends(), {'vitrine:sequence_ends_total{reason="timeout"} 1'})
    story = s.get("/story").json["ended"][0]["story"]
    told = s.get(f"/story/{story}").json["request"]
    same((told["finish"], told["end_reason"]), ("error", "timeout"))
    s.stop()


# The model's end token would end an answer soon: what cannot end is a list of texts that it must fill.
ENDLESS = {"type": "array", "items": {"type": "string"}, "minItems": 10000}
LONG = {"messages": [{"role": "user", "content": "Hi"}]}
MESSAGES = {**LONG, "model": "claude", "max_tokens": 1 << 19, "output_config": {"format": {"type": "json_schema", "schema": ENDLESS}}}
RESPONSES = {"input": "Hi", "text": {"format": {"type": "json_schema", "name": "x", "schema": ENDLESS}}}
OLLAMA = {**LONG, "model": "tiny", "format": {"type": "object", "properties": {"a": ENDLESS}, "required": ["a"]}}


def test_an_answer_that_was_aborted_is_not_told_as_whole():
    """Of the forms that have no word for it."""
    s = Server(context=1 << 20)
    for path, body in ("/v1/messages", MESSAGES), ("/v1/responses", RESPONSES), ("/api/chat", OLLAMA):
        for stream in False, True:
            got = []
            t = threading.Thread(target=lambda: got.append(s.post(path, {**body, "stream": stream})))
            t.start()
            wait_until(lambda: s.get("/get_load").json[0]["num_reqs"], "the request runs")
            same(s.post("/abort_request", {"abort_all": True}).json, {"aborted": 1})
            t.join()
            assert b"the request was aborted" in got[0].body and (got[0].status == 499 or stream), got[0].body[-300:]
            wait_until(lambda: s.get("/get_load").json[0]["num_reqs"] == 0, "the request is gone")
    s.stop()


def test_an_answer_is_aborted_by_the_id_that_it_tells():
    s = Server(context=1 << 20)
    for path, body in ("/v1/responses", RESPONSES), ("/v1/messages", MESSAGES):
        c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=LIMIT_S)
        c.request("POST", path, json.dumps({**body, "stream": True}))
        r, name = c.getresponse(), None
        while not name:
            line = r.readline()
            assert line, "the answer ended before it told its id"
            name = re.search(rb'"id":"((?:resp|msg)_[^"]+)"', line)
        same(s.post("/abort_request", {"rid": name[1].decode()}).json, {"aborted": 1}, path)
        assert b"the request was aborted" in r.read()
        c.close()
    s.stop()


def test_a_compressed_body_is_refused_by_its_header():
    a = server().post("/v1/completions", b"\x1f\x8b\x08\x00", headers={"Content-Encoding": "gzip"})
    same((a.status, a.error["message"][:16]), (415, "Content-Encoding"))
    server().good("/v1/completions", {"prompt": "a", "max_tokens": 1}, headers={"Content-Encoding": "identity"})


def test_the_least_repetition_penalty_is_allowed():
    server().good("/v1/completions", {"prompt": "a", "max_tokens": 2, "repetition_penalty": 0.01})


def test_tokenizer_info_is_what_lm_eval_asks():
    """The requests of lm-eval 0.4.13's RemoteTokenizer, one after the other."""
    info = server().get("/tokenizer_info").json
    assert "eos_token" in info and isinstance(info["chat_template"], str) and "messages" in info["chat_template"], info
    ids = server().good("/tokenize", {"prompt": "test", "add_special_tokens": False}).json["tokens"]
    same(server().good("/detokenize", {"tokens": ids}).json["prompt"], "test")


def test_the_name_that_list_shows_is_a_name_of_the_model():
    if not have_model():
        skip("the default model is not in the cache")
    s = Server("--max-context", "128", model=os.path.join(CACHE, "models", "SmolLM2-135M-Instruct.Q4_1.gguf"),
               env={"VITRINE_CACHE": CACHE})
    names = [m["id"] for m in s.get("/v1/models").json["data"]]
    same(names, ["SmolLM2-135M-Instruct.Q4_1", "smollm2-135m"])
    for name in names:
        same(s.get("/v1/models/" + name).json["id"], name)
        s.good("/v1/completions", {"model": name, "prompt": "a", "max_tokens": 1})
    s.stop()


def test_a_story_measures_nothing_while_others_wait():
    cache = tempfile.mkdtemp()
    try:
        s = Server(env={"VITRINE_CACHE": cache})
        before = sorted(os.listdir(cache))
        assert any(name.startswith("roofs-") for name in before), before
        number = s.good("/v1/completions", {"prompt": "abc", "max_tokens": 8, "ignore_eos": True}).json["timings"]["story"]
        for _ in range(2):
            same(s.get(f"/story/{number}").json["request"]["id"], number)
        same(sorted(os.listdir(cache)), before)
        s.stop()
    finally:
        shutil.rmtree(cache)


def test_a_drain_that_is_cut_off_is_a_failure_not_an_interrupt():
    s = Server("--drain-timeout", "0")
    c = s.connect()
    c.sendall(b'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 87\r\n\r\n'
              b'{"prompt": "a", "max_tokens": 4000, "ignore_eos": true, "stream": true, "stop": ["\xc2\xa0"]}'.ljust(10))
    assert c.recv(4096).startswith(b"HTTP/1.1 200"), "the answer has begun"
    s.process.terminate()
    same(s.process.wait(900), 1, s.log[-500:])
    s.reader.join(900)
    assert b"cut off" in s.log, s.log[-500:]


def test_a_log_that_may_not_grow_ends_nobody():
    d = tempfile.mkdtemp()
    try:
        model = tiny_model.make(os.path.join(d, "tiny"), tiny_model.CHATML)
        out = os.path.join(d, "out")
        with open(out, "wb") as f:
            p = run_limited(["tokenize", "-m", model], b"a" * 400000, f)
        same((p > 0, os.path.getsize(out)), (True, 4096))
    finally:
        shutil.rmtree(d)


def run_limited(args, data, out):
    """The exit status of a program whose files may have 4 KiB at most."""
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    return subprocess.run([BIN, *args], input=data, stdout=out, stderr=subprocess.PIPE, env=clean_env(), preexec_fn=limit).returncode


main(globals())
