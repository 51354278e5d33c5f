#!/usr/bin/env python3
"""Encoders: vectors against transformers' (tools/fixtures/make_encoders.py), from folders and GGUF files."""
import json, os, shutil, struct, tempfile

from served import *
from tap import *

GOLDEN = "tests/golden/embedding/"
BERT, XLM = GOLDEN + "bert", GOLDEN + "xlm_roberta"
ENCODERS = {BERT: "mean", XLM: "cls"}  # and how their files pool
EXACT = ["--kv-memory", "4M", "--kv-dtype", "f32"]


def wanted(folder):
    with open(os.path.join(folder, "vectors.json"), encoding="utf-8") as f:
        return json.load(f)


def tokens(ids):
    return ["--tokens", ",".join(map(str, ids))]


def embed(model, *args, **more):
    return ok("embed", "-m", model, *EXACT, "--json", *args, **more).json


def farthest(got, want):
    same(len(got), len(want))
    return max(abs(a - b) for a, b in zip(got, want))


def is_near(model, want):
    for how in ("mean", "cls", "last"):
        got = embed(model, *tokens(want["ids"]), "--pooling", how)
        same(got["tokens"], len(want["ids"]))
        assert farthest(got["embedding"], want[how]) < 2e-5, (model, how, len(want["ids"]))


def test_vectors_are_those_of_transformers():
    for model in ENCODERS:
        for want in wanted(model):
            is_near(model, want)
            is_near(model + ".gguf", want)


def test_files_say_how_to_pool_and_texts_get_their_special_tokens():
    for encoder, how in ENCODERS.items():
        for want in wanted(encoder):
            if want["text"] is None:
                continue
            for model in (encoder, encoder + ".gguf"):
                got = embed(model, "--text", "-", stdin=want["text"].encode())
                same((got["tokens"], farthest(got["embedding"], want[how]) < 2e-5), (len(want["ids"]), True), model)


def folder_like(model, d, **change):
    """Copies a folder with other values in config.json."""
    for name in ("model.safetensors", "tokenizer.json"):
        shutil.copy(os.path.join(model, name), d)
    with open(os.path.join(model, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    with open(os.path.join(d, "config.json"), "w", encoding="utf-8") as f:
        json.dump({**config, **change}, f)
    return d


def test_roberta_is_computed_as_xlm_roberta():
    """Where the files say nothing of pooling, vectors are means."""
    with tempfile.TemporaryDirectory() as d:
        folder_like(XLM, d, model_type="roberta")
        want = wanted(XLM)[2]
        got = embed(d, "--text", "-", stdin=want["text"].encode())
        same((got["tokens"], farthest(got["embedding"], want["mean"]) < 2e-5), (len(want["ids"]), True))


def test_positions_begin_behind_padding():
    """The table has 66 rows, of which the first two are no text's."""
    whole = embed(XLM, *tokens([5] * 64))
    same(whole["tokens"], 64)
    r = run("embed", "-m", XLM, *EXACT, *tokens([5] * 65))
    assert r.code == 2 and "64" in r.log, r.log
    with tempfile.TemporaryDirectory() as d:
        r = run("embed", "-m", folder_like(XLM, d, pad_token_id=65), *EXACT, *tokens([5]))
        assert r.code == 1 and '"pad_token_id" is 65' in r.log, r.log
        want = wanted(XLM)[-1]
        got = embed(folder_like(XLM, d, pad_token_id=0), *tokens(want["ids"]), "--pooling", "cls")
        assert farthest(got["embedding"], want["cls"]) > 1e-3


def test_names_of_other_folders():
    """The prefix "bert.", gamma and beta, and vocab.txt."""
    with open(os.path.join(BERT, "model.safetensors"), "rb") as f:
        n, = struct.unpack("<Q", f.read(8))
        header, data = json.loads(f.read(n)), f.read()
    meta = header.pop("__metadata__", None)
    old = {"bert." + k.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): v for k, v in header.items()}
    if meta:
        old["__metadata__"] = meta
    with tempfile.TemporaryDirectory() as d:
        shutil.copy(os.path.join(BERT, "config.json"), d)
        with open(os.path.join(BERT, "tokenizer.json"), encoding="utf-8") as f:
            vocab = json.load(f)["model"]["vocab"]
        with open(os.path.join(d, "vocab.txt"), "w", encoding="utf-8") as f:
            f.write("".join(w + "\n" for w in sorted(vocab, key=vocab.get)))
        text = json.dumps(old).encode()
        text += b" " * (-len(text) % 8)
        with open(os.path.join(d, "model.safetensors"), "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text + data)
        want = wanted(BERT)[2]
        got = embed(d, "--text", "-", stdin=want["text"].encode())
        same((got["tokens"], farthest(got["embedding"], want["mean"]) < 2e-5), (len(want["ids"]), True))


def test_a_batch_changes_no_bit():
    want = wanted(BERT)
    alone = [embed(BERT, *tokens(w["ids"]))["embedding"] for w in want]
    for args in ([], ["--token-budget", "64", "--max-running", "3", "--page-size", "4"], ["--threads", "1"]):
        s = Server("--kv-dtype", "f32", *args, model=BERT)
        got = s.good("/v1/embeddings", {"input": [w["ids"] for w in want]}).json
        same([d["embedding"] for d in got["data"]], alone, str(args))
        s.stop()


def test_ranks_agree_with_one():
    want = wanted(BERT)[-1]
    got = embed(BERT, *tokens(want["ids"]), "--tp", "3", "--threads", "3")["embedding"]
    assert farthest(got, want["mean"]) < 2e-5


def test_a_text_is_whole_or_refused():
    s = Server("--max-context", "40", model=BERT)
    r = s.post("/v1/embeddings", {"input": [5] * 41})
    same((r.status, r.error["param"]), (400, "input"))
    s.good("/v1/embeddings", {"input": [5] * 40})
    s.stop()
    for args, says in ((tokens([5] * 65), "64"), ((*tokens([5] * 31), "--token-budget", "30", "--max-running", "2"), "30"),
                       ((*tokens([5]), "--token-budget", "30", "--max-running", "2", "--max-context", "40"), "computes a text in one step")):
        r = run("embed", "-m", BERT, *EXACT, *args)
        assert r.code == 2 and says in r.log, r.log


def test_what_cannot_be_is_refused():
    fails(2, "vitrine embed prints them", "run", "-m", BERT, *EXACT, *tokens([5]))
    fails(1, "vitrine embed", "run", "-m", BERT, *EXACT, *tokens([5]), "--pooling", "none")
    fails(1, "runs on a CPU only", "embed", "-m", BERT, *EXACT, *tokens([5]), "--device", "cuda")
    for change, says in (({"position_embedding_type": "relative_key"}, '"position_embedding_type" is relative_key'),
                         ({"is_decoder": True}, '"is_decoder" is true'), ({"hidden_act": "relu"}, "activation relu"),
                         ({"max_position_embeddings": 65}, "position_embeddings.weight has shape [64, 24]")):
        with tempfile.TemporaryDirectory() as d:
            r = run("embed", "-m", folder_like(BERT, d, **change), *EXACT, *tokens([5]))
            assert r.code == 1 and says in r.log, (change, r.log)


def test_a_published_shape_is_explained():
    text = ok("explain", "-m", "dummy:minilm-l6", "--hardware", "this", "--threads", "1").text
    for op in ("add_position", "layernorm.embed", "attention_prefill", "gelu", "layernorm.post_ffn"):
        assert op in text, text
    fails(2, "--context", "explain", "-m", "dummy:minilm-l6", "--context", "9")
    assert "add_position" in ok("explain", "-m", "dummy:bge-m3", "--hardware", "this", "--threads", "1").text
    vector = ok("embed", "-m", "dummy:minilm-l6", "--kv-memory", "16M", *tokens([1, 2, 3])).text.split()
    same(len(vector), 384)


main(globals())
