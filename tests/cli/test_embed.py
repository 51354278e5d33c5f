#!/usr/bin/env python3
"""Embeddings: pooled vectors against transformers' (tools/fixtures/make_embedding.py), by the command line and the server."""
import base64, json, math, os, struct, tempfile

from served import *
from tap import *

BUILD = os.environ.get("VITRINE_BUILD", os.path.abspath("build/release"))
EMULATOR = os.path.join(BUILD, "emulator")
GPU = {"LD_LIBRARY_PATH": EMULATOR, "VITRINE_CACHE": os.path.join(os.path.dirname(BUILD), "emulator-cache")}
FOLDER = "tests/golden/embedding/qwen3"
SMALL = ["-m", FOLDER, "--max-context", "128", "--kv-memory", "4M"]
EXACT = [*SMALL, "--kv-dtype", "f32"]
WANT = json.load(open(os.path.join(FOLDER, "vectors.json"), encoding="utf-8"))


def tokens(ids):
    return ["--tokens", ",".join(map(str, ids))]


def embed(*args, **more):
    return ok("embed", *(SMALL if "cuda" in args else EXACT), "--json", *args, **more).json


def f32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def farthest(got, want):
    same(len(got), len(want))
    return max(abs(a - b) for a, b in zip(got, want))


def test_vectors_are_those_of_transformers():
    for want in WANT:
        for how in ("last", "mean", "cls"):
            got = embed(*tokens(want["ids"]), "--pooling", how)
            same(got["tokens"], len(want["ids"]))
            assert farthest(got["embedding"], want[how]) < 2e-5, (how, len(want["ids"]))
        raw = embed(*tokens(want["ids"]), "--pooling", "mean", "--unscaled")["embedding"]
        assert farthest(raw, want["raw"]) < 1e-4 * max(map(abs, want["raw"]))


def test_texts_have_behind_them_what_the_tokenizer_puts_there():
    for want in WANT:
        if want["text"] is not None:
            got = embed("--text", "-", stdin=want["text"].encode())
            same((got["tokens"], farthest(got["embedding"], want["last"]) < 2e-5), (len(want["ids"]), True))
            lines = ok("embed", *EXACT, "--text", "-", stdin=want["text"].encode() + b"\n").text.split()
            same([f32(float(x)) for x in lines], [f32(x) for x in got["embedding"]])


def test_chunks_and_prefix_cache_change_no_bit():
    ids = WANT[-1]["ids"]
    for how in ("last", "mean", "cls"):
        whole = embed(*tokens(ids), "--pooling", how)
        for budget in ("1", "7", "59"):
            same(embed(*tokens(ids), "--pooling", how, "--token-budget", budget, "--max-running", "1"), whole)
        same(embed(*tokens(ids), "--pooling", how, "--no-prefix-cache", "--page-size", "4"), whole)


def test_ranks_agree_with_one():
    ids = WANT[-1]["ids"]
    got = embed(*tokens(ids), "--pooling", "mean", "--tp", "2", "--threads", "2")["embedding"]
    assert farthest(got, WANT[-1]["mean"]) < 2e-5


def test_dimensions_are_cut_before_scaling():
    want = WANT[-1]["raw"][:7]
    length = math.sqrt(sum(x * x for x in want))
    got = embed(*tokens(WANT[-1]["ids"]), "--pooling", "mean", "--dimensions", "7")["embedding"]
    assert farthest(got, [x / length for x in want]) < 2e-5


def sentence_folder(d, modules=("Transformer", "Pooling", "Normalize"), pooling=None, prompts=None, default=None):
    """The model as a sentence-transformers folder in d, which must be empty."""
    for name in os.listdir(FOLDER):
        os.symlink(os.path.abspath(os.path.join(FOLDER, name)), os.path.join(d, name))
    def write(name, what):
        with open(os.path.join(d, name), "w", encoding="utf-8") as f:
            json.dump(what, f)
    write("modules.json", [{"idx": i, "name": str(i), "path": f"{i}_{m}" if i else "", "type": f"sentence_transformers.models.{m}"}
                           for i, m in enumerate(modules)])
    os.mkdir(os.path.join(d, "1_Pooling"))
    flags = {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": False,
             "pooling_mode_mean_sqrt_len_tokens": False, "pooling_mode_lasttoken": False}
    write("1_Pooling/config.json", {"word_embedding_dimension": 40, **(flags if pooling is None else pooling)})
    if prompts is not None:
        write("config_sentence_transformers.json", {"prompts": prompts, "default_prompt_name": default, "similarity_fn_name": "cosine"})
    return [*EXACT, "-m", d]


def test_a_sentence_transformers_folder_says_how():
    want = WANT[1]
    front, rest = want["text"][:8], want["text"][8:]
    text = {"stdin": rest.encode()}
    with tempfile.TemporaryDirectory() as d:
        args = sentence_folder(d, prompts={"query": front, "document": ""}, default="query")
        got = ok("embed", *args, "--json", *tokens(want["ids"])).json["embedding"]
        assert farthest(got, want["mean"]) < 2e-5
        assert farthest(ok("embed", *args, "--json", *tokens(want["ids"]), "--pooling", "cls").json["embedding"], want["cls"]) < 2e-5
        for more in ([], ["--prompt-name", "query"]):
            got = ok("embed", *args, "--json", "--text", "-", *more, **text).json
            same((got["tokens"], farthest(got["embedding"], want["mean"]) < 2e-5), (len(want["ids"]), True))
        same(ok("embed", *args, "--json", "--text", "-", "--prompt-name", "document", **text).json["tokens"], len(rest) + 1)
        for more, says in ((["--text", "-", "--prompt-name", "quarry"], "no prompt of that name"),
                           ([*tokens([1]), "--prompt-name", "query"], "not of tokens")):
            r = run("embed", *args, *more, **text)
            assert r.code == 2 and says in r.log, r.log
        r = run("run", *args, *tokens([1, 2]))
        assert r.code == 2 and "which vitrine embed" in r.log, r.log
        s = Server("--kv-dtype", "f32", model=d)
        for body in ({"input": rest}, {"input": [rest], "prompt_name": "query"}, {"input": want["text"], "prompt_name": "document"}):
            assert farthest(s.good("/v1/embeddings", body).json["data"][0]["embedding"], want["mean"]) < 2e-5, body
        for body in ({"input": rest, "prompt_name": "quarry"}, {"input": [1], "prompt_name": "query"}, {"input": rest, "prompt_name": 1}):
            r = s.post("/v1/embeddings", body)
            same((r.status, r.error["param"]), (400, "prompt_name"), str(body))
        same(s.get("/health_generate").status, 200)
        s.stop()
    with tempfile.TemporaryDirectory() as d: # no Normalize; the newer way to name a mode
        args = sentence_folder(d, modules=("Transformer", "Pooling"), pooling={"pooling_mode": "mean"})
        got = ok("embed", *args, "--json", *tokens(want["ids"])).json["embedding"]
        assert farthest(got, want["raw"]) < 1e-4 * max(map(abs, want["raw"]))


def test_a_sentence_transformers_folder_is_refused_by_module_and_mode():
    bad = [({"modules": ("Transformer", "Pooling", "LSTM")}, "module 2 is LSTM"),
           ({"modules": ("Transformer",)}, "the Transformer alone; a Pooling module behind it was expected"),
           ({"modules": ("WordEmbeddings", "Pooling")}, "module 0 is WordEmbeddings"),
           ({"pooling": {"pooling_mode": "max"}}, '"max" is not supported'),
           ({"pooling": {"pooling_mode": "median"}}, '"pooling_mode" is median'),
           ({"pooling": {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}}, "2 pooling modes are set"),
           ({"pooling": {"pooling_mode_mean_tokens": True, "include_prompt": False}}, '"include_prompt" is false'),
           ({"prompts": {"query": 1}}, '"query" of "prompts" is a number; a string was expected'),
           ({"prompts": {}, "default": "query"}, "which is none of")]
    for how, says in bad:
        with tempfile.TemporaryDirectory() as d:
            r = run("embed", *sentence_folder(d, **how), *tokens([1]))
            assert r.code == 1 and says in r.log, (how, r.log)


def test_the_emulated_gpu_agrees():
    if not os.path.exists(os.path.join(EMULATOR, "libcuda.so.1")):
        skip("no emulator here: make emulator")
    for want in (WANT[2], WANT[-1]):
        for how in ("last", "mean", "cls"):
            got = embed(*tokens(want["ids"]), "--pooling", how, "--device", "cuda", "--max-running", "4", "--token-budget", "48",
                        env=GPU)["embedding"]
            cosine = sum(a * b for a, b in zip(got, want[how]))
            assert cosine > 0.999, (how, len(want["ids"]), cosine)


def test_the_server_answers_as_openai_does():
    s = Server("--pooling", "mean", "--kv-dtype", "f32", model=FOLDER)
    texts = [w for w in WANT if w["text"] is not None]
    alone = {}
    for want in WANT:
        r = s.good("/v1/embeddings", {"input": want["ids"], "model": "qwen3", "user": "me"}).json
        alone[tuple(want["ids"])] = r["data"][0]["embedding"]
        assert farthest(r["data"][0]["embedding"], want["mean"]) < 2e-5
        same({k: r[k] for k in ("object", "model", "usage")}, {"object": "list", "model": "qwen3",
             "usage": {"prompt_tokens": len(want["ids"]), "total_tokens": len(want["ids"])}})
    r = s.good("/v1/embeddings", {"input": [w["ids"] for w in WANT]}).json
    same([(d["object"], d["index"], d["embedding"]) for d in r["data"]],
         [("embedding", i, alone[tuple(w["ids"])]) for i, w in enumerate(WANT)])
    r = s.good("/v1/embeddings", {"input": [w["text"] for w in texts], "encoding_format": "base64"}).json
    for d, want in zip(r["data"], texts, strict=True):
        vector = struct.unpack("<40f", base64.b64decode(d["embedding"], validate=True))
        same([f32(x) for x in alone[tuple(want["ids"])]], list(vector))
    r = s.good("/v1/embeddings", {"input": texts[0]["text"], "dimensions": 3, "encoding_format": "float"}).json
    same(len(r["data"][0]["embedding"]), 3)
    same(s.get("/health_generate").status, 200)
    s.stop()


def test_a_batch_answers_as_the_server_does():
    def line(i, url="/v1/embeddings", **body):
        return json.dumps({"custom_id": f"id-{i}", "method": "POST", "url": url, "body": body})
    texts = [w["ids"] for w in WANT]
    lines = [line(0, input=texts[0]), line(1, input=texts, encoding_format="base64"), line(2, input=texts[0], dimensions=3),
             line(3, input=[9999]), line(4, "/v1/completions", prompt=[1, 2]), line(5, "/v1/rerank", query="a")]
    with tempfile.TemporaryDirectory() as d:
        i, o = os.path.join(d, "in.jsonl"), os.path.join(d, "out.jsonl")
        with open(i, "w") as f:
            f.write("\n".join(lines) + "\n")
        run("run", "--batch", i, "-o", o, "--quiet", "--pooling", "mean", *EXACT)
        with open(o) as f:
            got = {r["custom_id"]: r["response"] for r in map(json.loads, f)}
        run("run", "--batch", i, "-o", o + "2", "--quiet", *FAST, *model())
        with open(o + "2") as f:
            one = json.loads(f.readline())["response"]
        assert one["status_code"] == 400 and "pooling" in one["body"]["error"]["message"], one
    same([got[f"id-{k}"]["status_code"] for k in range(6)], [200, 200, 200, 400, 400, 400])
    one = got["id-0"]["body"]
    assert farthest(one["data"][0]["embedding"], WANT[0]["mean"]) < 2e-5
    same(one["usage"], {"prompt_tokens": len(texts[0]), "total_tokens": len(texts[0])})
    for d, want in zip(got["id-1"]["body"]["data"], WANT, strict=True):
        assert farthest(struct.unpack("<40f", base64.b64decode(d["embedding"], validate=True)), want["mean"]) < 2e-5
    same(len(got["id-2"]["body"]["data"][0]["embedding"]), 3)
    assert "/v1/embeddings" in got["id-5"]["body"]["error"]["message"], got["id-5"]


def test_the_server_refuses_by_field():
    s = Server("--pooling", "last", model=FOLDER)
    for body, param in (({}, "input"), ({"input": []}, "input"), ({"input": {"a": 1}}, "input"), ({"input": ["a", [1]], "n": 1}, "n"),
                        ({"input": [9999]}, "input"), ({"input": [1] * 500}, "input"), ({"input": "a", "dimensions": 0}, "dimensions"),
                        ({"input": "a", "dimensions": 41}, "dimensions"), ({"input": "a", "encoding_format": "int8"}, "encoding_format")):
        r = s.post("/v1/embeddings", body)
        same((r.status, r.error["param"]), (400, param), str(body))
    r = s.post("/v1/completions", {"prompt": [1, 2]})
    assert r.status == 400 and "makes embeddings alone" in r.error["message"], r.body
    for path in "/v1/score", "/score", "/v1/rerank", "/v2/rerank", "/rerank":
        r = s.post(path, {"query": "a", "documents": ["b"]})
        assert r.status == 501 and "no classification head" in r.error["message"], r.body
    s.stop()
    s = Server()
    r = s.post("/v1/embeddings", {"input": [1, 2]})
    assert r.status == 400 and "one with option pooling embeds" in r.error["message"], r.body
    s.stop()


def test_what_cannot_be_is_refused():
    def says(text, code, *args):
        r = run(*args)
        assert r.code == code and text in r.log, (args, r.code, r.log)
    says("it makes embeddings and no text", 1, "run", *SMALL, *tokens([1, 2]))
    says("this engine generates text", 2, "embed", *SMALL[2:], "-m", "tests/golden/models/qwen3-gqa2", *tokens([1]), "--pooling", "none")
    says("dimensions is 41, expected 0 (all) to 40", 2, "embed", *SMALL, *tokens([1]), "--dimensions", "41")
    says("draft is lookup", 2, "embed", *SMALL, *tokens([1]), "--draft", "lookup")
    says("one of --text and --tokens", 2, "embed", *SMALL)
    says("give one of the two", 2, "embed", *SMALL, *tokens([1]), "--text", "-")
    says("prompt token 1 is 9999", 2, "embed", *SMALL, *tokens([1, 9999]))


main(globals())
