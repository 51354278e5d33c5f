#!/usr/bin/env python3
"""Adapters (--lora): each verb that takes them, requests that name them, batches that mix them."""
import os, tempfile, threading

import tiny_model
from served import Server, folder
from tap import *

SHARED = {}


def files():
    """The model and two adapters of it."""
    if not SHARED:
        f = folder()
        SHARED["model"] = tiny_model.make(os.path.join(f, "tiny"))
        for i, name in enumerate("ab"):
            SHARED[name] = f"{name}={tiny_model.make_adapter(os.path.join(f, name), 5 + i)}"
    return SHARED


def server():
    f = files()
    if "server" not in SHARED:
        SHARED["server"] = Server("--lora", f["a"], "--lora", f["b"], "--device", "cpu", model=f["model"])
    return SHARED["server"]


def body(**more):
    return {"prompt": "Hello there", "max_tokens": 12, "temperature": 0, "ignore_eos": True, **more}


def text_of(**more):
    return server().good("/v1/completions", body(**more)).json["choices"][0]["text"]


def run_text(*args):
    return ok("run", "--raw", "-n", "12", "--ignore-eos", "--device", "cpu", "--quiet", "-m", files()["model"], *args, "Hello there").text


def test_models_lists_adapters_with_their_parent():
    data = server().get("/v1/models").json["data"]
    same([(m["id"], m["parent"]) for m in data], [("tiny", None), ("a", "tiny"), ("b", "tiny")])
    same(server().get("/v1/models/b").json["parent"], "tiny")
    same(server().get("/v1/models/c").status, 404)


def test_a_request_has_the_adapter_that_it_names_as_the_model():
    texts = {name: text_of(**({"model": name} if name else {})) for name in (None, "tiny", "a", "b")}
    same(texts[None], texts["tiny"])
    same(len(set(texts.values())), 3, "texts that differ")
    same(server().good("/v1/completions", body(model="a")).json["model"], "a")
    chat = {"model": "b", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
    same(server().good("/v1/chat/completions", chat).json["model"], "b")
    same(server().call("POST", "/v1/completions", body(model="c")).status, 404)
    same(server().call("POST", "/v1/completions", body(model="a\0b")).status, 404)


def test_requests_of_several_adapters_at_once_are_as_alone():
    names = ["a", "tiny", "b"] * 4
    alone = {name: text_of(model=name, cache_salt="alone") for name in set(names)}
    got = [None] * len(names)

    def ask(i):
        got[i] = text_of(model=names[i], cache_salt=f"{i}")
    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(names))]
    [t.start() for t in threads]
    [t.join() for t in threads]
    same(got, [alone[name] for name in names])


def test_run_uses_its_only_adapter():
    plain, a, b = run_text(), run_text("--lora", files()["a"]), run_text("--lora", files()["b"])
    same(len({plain, a, b}), 3, "texts that differ")
    same((a, b), (text_of(model="a"), text_of(model="b")))
    same(run_text("--lora", files()["a"], "--draft", "lookup"), a, "the text with drafts")
    fails(2, "names 2 adapters", "run", "--device", "cpu", "-m", files()["model"], "--lora", files()["a"], "--lora", files()["b"], "x")
    fails(2, "NAME=PATH", "run", "--device", "cpu", "-m", files()["model"], "--lora", "nothing", "x")


def test_batches_name_adapters_by_line():
    with tempfile.TemporaryDirectory() as d:
        i, o = os.path.join(d, "in.jsonl"), os.path.join(d, "out.jsonl")
        with open(i, "w") as f:
            for name in ("a", "tiny", "b"):
                f.write(json.dumps({"custom_id": name, "method": "POST", "url": "/v1/completions", "body": body(model=name)}) + "\n")
        ok("run", "--batch", i, "-o", o, "--quiet", "--device", "cpu", "-m", files()["model"], "--lora", files()["a"], "--lora", files()["b"])
        for line in map(json.loads, open(o)):
            same(line["response"]["body"]["choices"][0]["text"], text_of(model=line["custom_id"]))


def test_explain_and_stories_have_the_calls_of_adapters():
    out = ok("explain", "--device", "cpu", "-m", files()["model"], "--lora", files()["a"], "--all").text
    assert "L00.lora.qkv" in out and "L00.lora.down" in out and "L00.lora.o" not in out, out
    assert "lora" not in ok("explain", "--device", "cpu", "-m", files()["model"], "--all").text
    with tempfile.TemporaryDirectory() as d:
        story = os.path.join(d, "s.json")
        run_text("--lora", files()["a"], f"--story={story}")
        lora = [o for p in json.load(open(story))["phases"] for o in p["ops"] if o["op"].startswith("lora")]
        weights = {o["kind"]: o["expected_bytes"]["weights"] for o in lora}
        same(weights, {"lora.qkv": 2 * (32 + 32) * 4, "lora.down": 2 * (48 + 32) * 4}, "bytes of the adapter, once a step")


def test_names_that_clash_are_refused():
    f = files()
    fails(2, "served-model-name", "serve", "--device", "cpu", "--port", "0", "-m", f["model"], "--lora", f["a"], "--served-model-name", "a")


def test_ranks_give_the_same_text():
    same(run_text("--lora", files()["a"], "--threads", "2", "--tp", "2"), run_text("--lora", files()["a"]))


if __name__ == "__main__":
    main(globals())
