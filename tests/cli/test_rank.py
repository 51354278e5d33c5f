#!/usr/bin/env python3
"""Scores of pairs of texts against transformers' (tools/fixtures/make_rankers.py): /v1/rerank, /v1/score and vitrine embed."""
import json, math, os, shutil, tempfile

from served import *
from tap import *
from tensors_file import PACKED, matrix_of_codes, read_tensors, write_tensors

GOLDEN = "tests/golden/rank/"
BERT, XLM, QWEN = GOLDEN + "bert", GOLDEN + "xlm_roberta", GOLDEN + "qwen3"
EXACT = ["--kv-memory", "4M", "--kv-dtype", "f32"]


def pairs(model):
    with open(os.path.join(model.removesuffix(".gguf"), "pairs.json"), encoding="utf-8") as f:
        return json.load(f)


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def server(model, *args):
    return Server(*(["--pooling", "rank"] if model == QWEN else []), *args, "--kv-dtype", "f32", model=model)


def texts(model, **kw):
    return {"text_1": [p["query"] for p in pairs(model)], "text_2": [p["document"] for p in pairs(model)], **kw}


def test_scores_are_those_of_transformers():
    """The ids too: the server counts as many tokens, and other ids or types would give other scores."""
    for model in (BERT, XLM, XLM + ".gguf", QWEN):
        s, want = server(model), pairs(model)
        logits = s.good("/v1/score", texts(model, use_activation=False)).json
        same(logits["usage"], {"prompt_tokens": sum(len(p["ids"]) for p in want), "total_tokens": sum(len(p["ids"]) for p in want)})
        same((logits["object"], [d["index"] for d in logits["data"]], {d["object"] for d in logits["data"]}),
             ("list", list(range(len(want))), {"score"}))
        for scores, meant in ((logits["data"], lambda x: x), (s.good("/score", texts(model)).json["data"], sigmoid)):
            far = max(abs(d["score"] - meant(p["logit"])) for d, p in zip(scores, want))
            assert far < 1e-4, (model, far)
        s.stop()


def test_ranks_are_in_the_order_of_scores():
    s = server(XLM)
    documents = [p["document"] for p in pairs(XLM)]
    scores = [d["score"] for d in s.good("/v1/score", {"text_1": "a", "text_2": documents + documents[:1]}).json["data"]]
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    body = {"query": "a", "documents": documents[:-1] + [{"text": documents[-1]}, documents[0]], "model": "xlm_roberta"}
    for path in "/v1/rerank", "/rerank":
        got = s.good(path, body).json
        same([r["index"] for r in got["results"]], order)
        same([r["relevance_score"] for r in got["results"]], [scores[i] for i in order])
        same([r["document"] for r in got["results"]], [{"text": (documents + documents[:1])[i]} for i in order])
        assert got["id"].startswith("rerank-") and got["usage"]["total_tokens"] > 0, got
    same([r["index"] for r in s.good("/rerank", {**body, "top_n": 2}).json["results"]], order[:2])
    same(len(s.good("/rerank", {**body, "top_n": 0}).json["results"]), len(order))
    assert "document" not in s.good("/v1/rerank", {**body, "return_documents": False}).json["results"][0]
    assert "document" not in s.good("/v2/rerank", body).json["results"][0]
    s.stop()


def test_names_and_shapes_of_pairs():
    s = server(BERT)
    one = s.good("/v1/score", {"text_1": "a", "text_2": "b"}).json["data"][0]["score"]
    for first, second in (("queries", "documents"), ("queries", "items"), ("data_1", "data_2")):
        same([d["score"] for d in s.good("/v1/score", {first: ["a"], second: ["b", "b"]}).json["data"]], [one, one])
    for body, param in (({"text_1": "a"}, "text_2"), ({"text_2": "a"}, "text_1"), ({"text_1": ["a", "b"], "text_2": ["c"]}, "text_2"),
                        ({"text_1": "a", "text_2": []}, "text_2"), ({"text_1": "a", "text_2": [1]}, "text_2"),
                        ({"text_1": [1], "text_2": ["a"]}, "text_1"), ({"text_1": "a", "queries": "a", "text_2": "b"}, "queries"),
                        ({"text_1": "a", "text_2": "b", "instruction": "judge"}, "instruction"),
                        ({"text_1": "a", "text_2": "b", "use_activation": 1}, "use_activation"), ({"text_1": "a", "text_2": "b", "top_n": 1}, "top_n")):
        r = s.post("/v1/score", body)
        same((r.status, r.error["param"]), (400, param), str(body))
    for body, param in (({"documents": ["a"]}, "query"), ({"query": "a"}, "documents"), ({"query": ["a"], "documents": ["b"]}, "query"),
                        ({"query": "a", "documents": "b"}, "documents"), ({"query": "a", "documents": [{"text": "b", "title": "c"}]}, "documents"),
                        ({"query": "a", "documents": ["b"], "top_n": -1}, "top_n"), ({"query": "a", "documents": ["b"], "max_tokens_per_doc": 0}, "max_tokens_per_doc")):
        r = s.post("/v1/rerank", body)
        same((r.status, r.error["param"]), (400, param), str(body))
    s.stop()


def test_long_documents_are_refused_or_cut():
    for model in (BERT, QWEN):
        s = server(model)
        long = {"query": "fox", "documents": ["fox " * 600]}
        r = s.post("/v1/rerank", long)
        same((r.status, r.error["param"]), (400, "documents"))
        assert "truncate_prompt_tokens" in r.error["message"], r.body
        most = 64 if model == BERT else 512
        for more, n in (({"truncate_prompt_tokens": -1}, most), ({"truncate_prompt_tokens": most - 10}, most - 10)):
            same(s.good("/v1/rerank", {**long, **more}).json["usage"]["prompt_tokens"], n)
        few, fewer = (s.good("/v1/rerank", {**long, "max_tokens_per_doc": n}).json["usage"]["prompt_tokens"] for n in (9, 5))
        same(few - fewer, 4)
        s.stop()


def test_an_instruction_takes_the_place_of_the_usual_one():
    s = server(QWEN)
    body = {"query": "a", "documents": ["b"]}
    usual, same_text, other = (s.good("/v1/rerank", {**body, **more}).json["results"][0]["relevance_score"] for more in (
        {}, {"instruction": "Given a web search query, retrieve relevant passages that answer the query"}, {"instruction": "Judge"}))
    same(usual, same_text)
    assert usual != other
    special = s.good("/v1/rerank", {"query": "a", "documents": ["<|im_end|>"]}).json["usage"]["prompt_tokens"]
    same(special, s.good("/v1/rerank", {"query": "a", "documents": ["x" * len("<|im_end|>")]}).json["usage"]["prompt_tokens"], "text, no marker")
    s.stop()


def test_tokens_of_a_pair_on_the_command_line():
    for model, args in ((XLM, []), (QWEN, ["--pooling", "rank"])):
        want = pairs(model)[1]
        got = ok("embed", "-m", model, *EXACT, *args, "--json", "--unscaled", "--tokens", ",".join(map(str, want["ids"]))).json
        assert len(got["embedding"]) == 1 and abs(got["embedding"][0] - want["logit"]) < 1e-4, (model, got)
    r = run("embed", "-m", XLM, *EXACT, "--text", "-", stdin=b"a")
    assert r.code == 2 and "scores pairs of texts" in r.log, r.log


def changed(d, **change):
    for name in ("model.safetensors", "tokenizer.json"):
        shutil.copy(os.path.join(BERT, name), d)
    with open(os.path.join(BERT, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    with open(os.path.join(d, "config.json"), "w", encoding="utf-8") as f:
        json.dump({**config, **change}, f)
    return d


def test_config_says_what_a_score_is():
    tokens = ["--tokens", ",".join(map(str, pairs(BERT)[0]["ids"]))]
    logit = ok("embed", "-m", BERT, *EXACT, *tokens, "--unscaled").text
    identity = "torch.nn.modules.linear.Identity"
    with tempfile.TemporaryDirectory() as d:
        for change in ({"sentence_transformers": {"activation_fn": identity}}, {"sbert_ce_default_activation_function": identity}):
            same(ok("embed", "-m", changed(d, **change), *EXACT, *tokens).text, logit)
        assert ok("embed", "-m", changed(d), *EXACT, *tokens).text != logit
        for change, says in (({"id2label": {"0": "a", "1": "b"}}, '"id2label" has 2 labels'), ({"id2label": None}, '"id2label" has 2 labels'),
                             ({"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Tanh"}}, '"activation_fn" is torch.nn.modules.activation.Tanh'),
                             ({"architectures": ["BertModel"]}, "tensor classifier.bias has no place")):
            r = run("embed", "-m", changed(d, **change), *EXACT, *tokens)
            assert r.code == 1 and says in r.log, (change, r.log)


def with_head(to, packed):
    """Qwen's folder with a head of its own, of 4-bit codes or of the numbers that they stand for."""
    shutil.copytree(QWEN, to)
    path, config = os.path.join(to, "model.safetensors"), os.path.join(to, "config.json")
    tensors = read_tensors(path)
    rows, cols = tensors["model.embed_tokens.weight"][1]
    write_tensors(path, tensors | matrix_of_codes("lm_head", rows, cols, packed))
    said = json.load(open(config, encoding="utf-8")) | {"tie_word_embeddings": False} | ({"quantization_config": PACKED} if packed else {})
    json.dump(said, open(config, "w", encoding="utf-8"))
    return to


def test_packed_heads_are_there_when_scores_are_read():
    """a head of 4-bit codes, which a folder gives up once a device has it, scores as the numbers that it stands for"""
    with tempfile.TemporaryDirectory() as d:
        ids = ",".join(map(str, pairs(QWEN)[0]["ids"]))
        got = [ok("embed", "-m", with_head(os.path.join(d, str(packed)), packed), *EXACT, "--pooling", "rank", "--json", "--unscaled", "--tokens",
                  ids).json["embedding"][0] for packed in (False, True)]
        assert abs(got[0]) > 1e-3 and abs(got[0] - got[1]) < 1e-4, got


def test_each_engine_does_one_thing():
    s = server(BERT)
    for path, body in (("/v1/embeddings", {"input": "a"}), ("/v1/completions", {"prompt": "a"})):
        r = s.post(path, body)
        assert r.status == 400 and "pooling" in r.error["message"], r.body
    assert s.get("/health_generate").status == 200
    s.stop()
    for says, *args in (("has no classification head", "-m", "tests/golden/embedding/bert", "--pooling", "rank"),
                        ("has no classification head", "-m", "tests/golden/models/llama-gqa8-llama3-f32", "--pooling", "rank")):
        r = run("embed", *args, *EXACT, "--tokens", "5")
        assert r.code == 2 and says in r.log, (args, r.log)


main(globals())
