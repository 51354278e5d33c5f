#!/usr/bin/env python3
"""Ollama's /api/chat, generate, tags, show, ps and version, with a model that answers a script."""
import json, os

import scripted_model
from served import *
from tap import *

ONE = {}
PIECES = ["<think>", "Hm.", "</think>\n\n", "I add", " it.", "\n<tool_call>", "{\"name\": \"add\",\n \"arguments\": {\r\n  \"a\": 1}}",
          "</tool_call>"]  # a call may take several lines, and is one line of a stream
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "number"}}}}}]
CALL = [{"index": 0, "name": "add", "arguments": {"a": 1}}]


def server():
    if "s" not in ONE:
        ONE["s"] = Server("--served-model-name", "tiny", model=scripted_model.make(os.path.join(folder(), "m"), PIECES))
    return ONE["s"]


def chat(stream=False, **kw):
    body = {"model": "tiny:latest", "messages": [{"role": "user", "content": "Hi"}], "options": {"temperature": 0, "num_predict": 40},
            "tools": TOOLS, "stream": stream, **kw}
    a = server().good("/api/chat", body)
    return [json.loads(l) for l in a.body.decode().splitlines()] if stream is not False else a.json


def test_a_chat_has_text_thought_and_calls():
    r = chat()
    m = r["message"]
    same((m["role"], m["content"], m["thinking"], [c["function"] for c in m["tool_calls"]]), ("assistant", "I add it.", "Hm.", CALL))
    same((r["model"], r["done"], r["done_reason"], r["eval_count"]), ("tiny", True, "stop", len(PIECES) + 1))
    assert r["prompt_eval_count"] > 0 and r["total_duration"] > 0, r
    same(chat(options={"num_predict": 4, "temperature": 0})["done_reason"], "length")


def test_a_stream_is_lines_that_add_up():
    for stream in True, None:  # it is the default
        lines = chat(stream=stream)
        same([l["done"] for l in lines], [False] * (len(lines) - 1) + [True])
        m = [l["message"] for l in lines]
        same(("".join(x["content"] for x in m), "".join(x.get("thinking", "") for x in m)), ("I add it.", "Hm."))
        same([c["function"] for x in m for c in x.get("tool_calls", [])], CALL)
        same((lines[-1]["done_reason"], lines[-1]["eval_count"]), ("stop", len(PIECES) + 1))


def test_generate_answers_a_prompt():
    common = {"model": "tiny", "prompt": "Hi", "system": "Be brief.", "options": {"temperature": 0, "num_predict": 5}}
    r = server().good("/api/generate", {**common, "stream": False}).json
    same((r["response"], r["thinking"], r["done_reason"]), ("I add it.", "Hm.", "length"))
    lines = [json.loads(l) for l in server().good("/api/generate", common).body.decode().splitlines()]
    same("".join(l["response"] for l in lines), "I add it.")


def test_a_body_without_a_prompt_loads_the_model_that_is_here():
    for path, empty in ("/api/generate", {}), ("/api/generate", {"prompt": ""}), ("/api/chat", {"messages": []}):
        for name in "tiny", "tiny:latest":
            same(server().good(path, {"model": name, **empty}).json["done_reason"], "load")
        for name, status in ("other", 404), ("tiny:1b", 404), ("x" * 300, 404), (None, 400):
            a = server().post(path, {"model": name, **empty})
            same((a.status, list(a.json)), (status, ["error"]), f"{path} {name} {a.body}")
            assert "model" in a.json["error"], a.body


def test_history_reaches_the_template():
    said = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "c", "thinking": "r", "tool_calls": [{"function": CALL[0]}]},
            {"role": "tool", "tool_name": "add", "content": "2"}]
    as_chat = [said[0], {"role": "assistant", "content": "c", "reasoning_content": "r",
                         "tool_calls": [{"id": "1", "type": "function", "function": {"name": "add", "arguments": {"a": 1}}}]},
               {"role": "tool", "content": "2"}]
    same(chat(messages=said)["prompt_eval_count"], server().good("/tokenize", {"messages": as_chat, "tools": TOOLS}).json["count"])


def test_a_format_holds_and_thinking_can_be_chosen():
    assert json.loads(chat(tools=[], format={"enum": ["a", "b"]})["message"]["content"]) in ("a", "b")
    assert chat(think=False)["prompt_eval_count"] > chat(think=True)["prompt_eval_count"]


def test_the_model_is_told():
    s = server()
    same(s.get("/api/version").json["version"].count("."), 2)
    m = s.get("/api/tags").json["models"][0]
    same((m["name"], len(m["digest"]), m["details"]["family"]), ("tiny", 64, "llama"))
    assert m["size"] > 0 and s.get("/api/ps").json["models"][0]["context_length"] > 0
    r = s.good("/api/show", {"model": "tiny:latest"}).json
    same((r["capabilities"], r["model_info"]["general.architecture"]), (["completion", "tools", "thinking"], "llama"))
    assert r["model_info"]["llama.context_length"] > 0, r
    a = s.post("/api/show", {"model": "other"})
    same((a.status, a.json), (404, {"error": "model 'other' not found"}))
    same(s.post("/api/show", {}).status, 400)


def test_wrong_requests_are_refused_in_ollamas_form():
    for kw, part in [({"raw": True, "prompt": "x"}, "raw"), ({"prompt": "x", "suffix": "y"}, "suffix"), ({"prompt": 3, "messages": [1]}, "messages"),
                     ({"prompt": "x", "options": 3}, "options"), ({"prompt": "x", "options": {"mirostat": 1}}, "mirostat"),
                     ({"prompt": "x", "options": {"other": 1}}, "other"), ({"prompt": "x", "format": 3}, "format"),
                     ({"prompt": "x", "think": 3}, "think"), ({"prompt": "x", "logprobs": True}, "logprobs"),
                     ({"prompt": "x", "images": ["a"]}, "images"), ({"prompt": "x", "template": "t"}, "template"),
                     ({"prompt": "x", "context": [1]}, "context"), ({"prompt": "x", "width": 3}, "width"),
                     ({"prompt": "x", "options": {"temperature": 9}}, "options.temperature: "),
                     ({"prompt": "x", "options": {"num_predict": "x"}}, "options.num_predict: "),
                     ({"prompt": "x", "options": {"repeat_penalty": 1000}}, "options.repeat_penalty: "),
                     ({"prompt": "x", "format": {"type": "array", "uniqueItems": True}}, "in format: "), ({"prompt": "x", "model": "other"}, "model")]:
        a = server().post("/api/generate", {"model": "tiny", **kw})
        assert a.status in (400, 404) and part in a.json["error"], (kw, a.status, a.body)
    for m in ({"role": "user", "content": "x", "images": ["a"]}, {"role": "assistant", "tool_calls": [{}]}, 3):
        a = server().post("/api/chat", {"model": "tiny", "messages": [m]})
        assert a.status == 400 and isinstance(a.json["error"], str), a.body


def test_errors_of_paths_and_keys_have_ollamas_form_too():
    s = Server(env={"VITRINE_API_KEY": "secret"})
    for a in server().post("/api/pull", {}), server().get("/api/chat"), server().post("/api/show", b"{"), s.post("/api/chat", {}):
        assert a.status in (404, 405, 400, 401) and isinstance(a.json["error"], str), a.body
    s.stop()


def test_options_that_samplers_or_loaders_take_are_accepted():
    options = {"temperature": 0.5, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "seed": 1, "repeat_penalty": 1.1, "mirostat_tau": 5.0,
               "mirostat_eta": 0.1, "repeat_last_n": 64, "num_ctx": 4096, "num_gpu": 1, "use_mmap": 1, "use_mlock": 1, "numa": 1}
    for name, value in options.items():
        same(chat(options={"num_predict": 2, name: value})["done_reason"], "length", name)


def test_a_text_of_a_wrong_type_is_refused_by_its_name():
    for kw, name in ({"prompt": 3}, "prompt"), ({"prompt": "x", "system": 3}, "system"):
        a = server().post("/api/generate", {"model": "tiny", **kw})
        same((a.status, a.json["error"]), (400, name + ": 3 found, expected a string"))


def test_vectors_are_those_of_embeddings():
    s = Server("--served-model-name", "tiny", "--pooling", "mean", "--max-context", "64", model=scripted_model.make(os.path.join(folder(), "m"), PIECES))
    texts = ["The sky", "A river"]
    want = s.good("/v1/embeddings", {"input": texts, "dimensions": 8}).json
    for body in {"input": texts}, {"input": texts, "options": {"num_ctx": 64}, "keep_alive": "5m", "truncate": False}:
        got = s.good("/api/embed", {"model": "tiny:latest", "dimensions": 8, **body}).json
        same((got["model"], got["embeddings"], got["prompt_eval_count"]),
             ("tiny", [d["embedding"] for d in want["data"]], want["usage"]["prompt_tokens"]))
    assert got["total_duration"] > 0, got
    same(len(s.good("/api/embed", {"model": "tiny", "input": "one"}).json["embeddings"]), 1)
    long = "a b " * 60  # more than the context holds: cut, unless the client wants it whole
    cut = s.good("/api/embed", {"model": "tiny", "input": long}).json
    same((cut["prompt_eval_count"], cut["embeddings"]), (64, s.good("/api/embed", {"model": "tiny", "input": long[:64]}).json["embeddings"]))
    same(s.good("/v1/embeddings", {"input": long, "truncate": True}).json["usage"]["prompt_tokens"], 64)
    for wrong in {"truncate": False, "input": long}, {"input": [1, 2]}, {"input": []}, {"options": {"temperature": 1}}, {"prompt": "x"}, {"dimensions": 0}:
        a = s.post("/api/embed", {"model": "tiny", "input": "x", **wrong})
        assert a.status == 400 and list(a.json) == ["error"], (wrong, a.body)
    s.stop()
    a = server().post("/api/embed", {"model": "tiny", "input": "x"})
    assert a.status == 400 and "option pooling" in a.json["error"], a.body


def test_the_server_ends_as_it_should():
    server().stop()


main(globals())
