#!/usr/bin/env python3
"""Encoders: vectors against transformers' (tools/fixtures/make_encoders.py), from folders and GGUF files."""
import json, math, os, shutil, tempfile

from served import *
from tap import *
from tensors_file import f32, read_tensors, write_tensors

GOLDEN = "tests/golden/embedding/"
BERT, XLM, MODERN, GEMMA = (GOLDEN + name for name in ("bert", "xlm_roberta", "modernbert", "embeddinggemma"))
ENCODERS = {BERT: "mean", XLM: "cls", MODERN: "cls", GEMMA: "mean"}  # and how their files pool
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


def test_one_state_needs_one_row_whatever_the_length():
    want = wanted(BERT)[-1]
    got = embed(BERT, *tokens(want["ids"]), "--pooling", "cls", "--max-running", "2")
    assert farthest(got["embedding"], want["cls"]) < 2e-5


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


def test_prompts_and_dense_layers_are_those_of_sentence_transformers():
    for want in wanted(GEMMA):
        if want["text"] is not None:
            got = embed(GEMMA, "--text", "-", "--prompt-name", "query", stdin=want["text"].encode())
            assert farthest(got["embedding"], want["query"]) < 2e-5, want["text"]


def change_json(path, **change):
    with open(path, encoding="utf-8") as f:
        value = json.load(f)
    with open(path, "w", encoding="utf-8") as f:
        json.dump({**value, **change}, f)


def gemma_with(d, modules):
    """A copy of the folder with these modules of its pipeline."""
    folder = shutil.copytree(GEMMA, os.path.join(d, "m"))
    with open(os.path.join(folder, "modules.json"), encoding="utf-8") as f:
        all_ = json.load(f)
    with open(os.path.join(folder, "modules.json"), "w", encoding="utf-8") as f:
        json.dump([all_[i] for i in modules], f)
    return folder


def test_a_dense_layer_may_change_the_size():
    """And may have a bias and a tanh: what numpy-free Python makes of the state before it."""
    ids = wanted(GEMMA)[-1]["ids"]
    with tempfile.TemporaryDirectory() as d:
        state = embed(gemma_with(d, [0, 1]), *tokens(ids))["embedding"]
    with tempfile.TemporaryDirectory() as d:
        folder = gemma_with(d, [0, 1, 2])
        at = os.path.join(folder, "2_Dense")
        change_json(os.path.join(at, "config.json"), bias=True, activation_function="torch.nn.modules.activation.Tanh")
        weight = [[((i * 31 + j * 17) % 13 - 6) / 8 for j in range(24)] for i in range(56)]
        bias = [(i % 7 - 3) / 4 for i in range(56)]
        write_tensors(os.path.join(at, "model.safetensors"),
                      {"linear.weight": f32([56, 24], [x for row in weight for x in row]), "linear.bias": f32([56], bias)})
        got = embed(folder, *tokens(ids))["embedding"]
        want = [math.tanh(sum(w * x for w, x in zip(row, state)) + b) for row, b in zip(weight, bias)]
        assert farthest(got, want) < 1e-5
        same(len(embed(folder, *tokens(ids), "--dimensions", "56")["embedding"]), 56)
        fails(2, "expected 0 (all) to 56", "embed", "-m", folder, *EXACT, *tokens(ids), "--dimensions", "57")


def test_dense_layers_that_cannot_be_are_refused():
    for change, says in (({"activation_function": "torch.nn.modules.activation.ReLU"}, '"activation_function" is torch.nn.modules.activation.ReLU'),
                         ({"in_features": 25}, "has shape [56, 24]; [56, 25] was expected"), ({"out_features": 0}, '"out_features" 0'),
                         ({"bias": True}, "tensor linear.bias is missing"), ({"module_input_name": "token_embeddings"}, '"module_input_name" is token_embeddings')):
        with tempfile.TemporaryDirectory() as d:
            folder = gemma_with(d, range(5))
            change_json(os.path.join(folder, "2_Dense", "config.json"), **change)
            fails(1, says, "embed", "-m", folder, *EXACT, *tokens([5]))
    for modules, says in (([0, 1, 4, 2], "module 3 is Dense"), ([0, 1, 3], "[up to 131072, 24] was expected"),
                          ([0, 1] + [2, 3] * 2 + [2], "more than 4 Dense")):
        with tempfile.TemporaryDirectory() as d:
            fails(1, says, "embed", "-m", gemma_with(d, modules), *EXACT, *tokens([5]))


def test_windows_reach_half_to_each_side():
    """A window of another size, or none, makes other vectors of long texts and the same of short ones."""
    long, short = [3 + i % 300 for i in range(60)], [7, 8, 9]
    for model, key in ((MODERN, "local_attention"), (GEMMA, "sliding_window")):
        with tempfile.TemporaryDirectory() as d:
            for name in ("modules.json", "1_Pooling", "2_Dense", "3_Dense"):
                at = os.path.join(model, name)
                if os.path.exists(at):
                    (shutil.copytree if os.path.isdir(at) else shutil.copy)(at, os.path.join(d, name))
            folder_like(model, d, **{key: 40})
            for ids, differs in ((long, True), (short, False)):
                got, want = (embed(m, *tokens(ids), "--pooling", "mean")["embedding"] for m in (d, model))
                same(farthest(got, want) > 1e-3, differs, (model, len(ids)))


def test_modernbert_folders_of_older_transformers():
    """One rule for the layers, ropes by two names, weights beside a head for masked words."""
    want = wanted(MODERN)[-1]
    with open(os.path.join(MODERN, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    ropes = config.pop("rope_parameters")
    config.pop("layer_types")
    config.update(global_attn_every_n_layers=3, global_rope_theta=ropes["full_attention"]["rope_theta"],
                  local_rope_theta=ropes["sliding_attention"]["rope_theta"], architectures=["ModernBertForMaskedLM"])
    old = {"model." + k: t for k, t in read_tensors(os.path.join(MODERN, "model.safetensors")).items()}
    old["head.dense.weight"] = ("BF16", [2], bytes(4))
    with tempfile.TemporaryDirectory() as d:
        with open(os.path.join(d, "config.json"), "w", encoding="utf-8") as f:
            json.dump(config, f)
        write_tensors(os.path.join(d, "model.safetensors"), old)
        got = embed(d, *tokens(want["ids"]))["embedding"]
        assert farthest(got, want["mean"]) < 2e-5


def test_modernbert_that_is_not_computed_is_refused():
    for change, says in (({"attention_bias": True}, '"attention_bias" is true'), ({"mlp_bias": True}, '"mlp_bias" is true'),
                         ({"norm_bias": True}, '"norm_bias" is true'), ({"hidden_activation": "silu"}, "\"hidden_activation\" silu"),
                         ({"architectures": ["ModernBertForSequenceClassification"]}, '"architectures" is ModernBertForSequenceClassification'),
                         ({"local_attention": 0}, '"local_attention" is 0'), ({"layer_types": ["full_attention"]}, '"layer_types" is an array of 1; an array of 5 was expected')):
        with tempfile.TemporaryDirectory() as d:
            fails(1, says, "embed", "-m", folder_like(MODERN, d, **change), *EXACT, *tokens([5]))


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
    old = {"bert." + k.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): t
           for k, t in read_tensors(os.path.join(BERT, "model.safetensors")).items()}
    with tempfile.TemporaryDirectory() as d:
        shutil.copy(os.path.join(BERT, "config.json"), d)
        with open(os.path.join(BERT, "tokenizer.json"), encoding="utf-8") as f:
            vocab = json.load(f)["model"]["vocab"]
        with open(os.path.join(d, "vocab.txt"), "w", encoding="utf-8") as f:
            f.write("".join(w + "\n" for w in sorted(vocab, key=vocab.get)))
        write_tensors(os.path.join(d, "model.safetensors"), old)
        want = wanted(BERT)[2]
        got = embed(d, "--text", "-", stdin=want["text"].encode())
        same((got["tokens"], farthest(got["embedding"], want["mean"]) < 2e-5), (len(want["ids"]), True))


def test_a_batch_changes_no_bit():
    small = ["--token-budget", "64", "--max-running", "3", "--page-size", "4"]
    for model, runs in ((BERT, ([], small, ["--threads", "1"])), (MODERN, (small,)), (GEMMA, (small + ["--threads", "1"],))):
        want = wanted(model)
        alone = [embed(model, *tokens(w["ids"]))["embedding"] for w in want]
        for args in runs:
            s = Server("--kv-dtype", "f32", *args, model=model)
            got = s.good("/v1/embeddings", {"input": [w["ids"] for w in want]}).json
            same([d["embedding"] for d in got["data"]], alone, model + str(args))
            s.stop()


def test_ranks_agree_with_one():
    for model in (BERT, MODERN, GEMMA):
        want = wanted(model)[-1]
        got = embed(model, *tokens(want["ids"]), "--tp", "3", "--threads", "3", "--pooling", "mean")["embedding"]
        assert farthest(got, want["mean"]) < 2e-5, model


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
    fails(2, "which vitrine embed", "run", "-m", BERT, *EXACT, *tokens([5]))
    fails(1, "vitrine embed", "run", "-m", BERT, *EXACT, *tokens([5]), "--pooling", "none")
    fails(1, "embeddings and no text", "run", "-m", GEMMA, *EXACT, *tokens([5]), "--pooling", "none")
    for change, says in (({"position_embedding_type": "relative_key"}, '"position_embedding_type" is relative_key'),
                         ({"is_decoder": True}, '"is_decoder" is true'), ({"hidden_act": "relu"}, "\"hidden_act\" relu"),
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
    text = ok("explain", "-m", "dummy:modernbert-base", "--hardware", "this", "--threads", "1").text
    for op in ("layernorm.embed", "layernorm.final", "rope_store", "gelu"):
        assert op in text, text
    vector = ok("embed", "-m", "dummy:minilm-l6", "--kv-memory", "16M", *tokens([1, 2, 3])).text.split()
    same(len(vector), 384)


main(globals())
