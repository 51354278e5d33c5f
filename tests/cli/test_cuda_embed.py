#!/usr/bin/env python3
"""Embeddings and scores of encoders on the emulated GPU, against those of transformers in fp32."""
import json, os

from served import *
from tap import *

BUILD = os.environ.get("VITRINE_BUILD", os.path.abspath("build/release"))
EMULATOR = os.path.join(BUILD, "emulator")
GPU = {"LD_LIBRARY_PATH": EMULATOR, "VITRINE_CACHE": os.path.join(os.path.dirname(BUILD), "emulator-cache")}
SMALL = ["--device", "cuda", "--max-running", "4", "--kv-memory", "4M"]
EMBEDDING, RANK = "tests/golden/embedding/", "tests/golden/rank/"
ENCODERS = {"bert": "mean", "xlm_roberta": "cls", "modernbert": "cls", "embeddinggemma": "mean"}  # and how their files pool
BOUND = 0.06  # of a vector's largest number: activations and KV are BF16 (test_cuda_logits.c has the same bound)


def need_emulator():
    if not os.path.exists(os.path.join(EMULATOR, "libcuda.so.1")):
        skip("no emulator here: make emulator")


def golden(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def vectors(s, ids):
    return [d["embedding"] for d in s.good("/v1/embeddings", {"input": ids}).json["data"]]


def test_vectors_are_near_those_of_transformers():
    """All texts in one request, so that steps hold texts of several lengths."""
    need_emulator()
    for (name, how), level in zip(ENCODERS.items(), ("90", "80", "90", "80")):
        want = golden(f"{EMBEDDING}{name}/vectors.json")
        s = Server(*SMALL, model=EMBEDDING + name, env={**GPU, "VITRINE_EMULATOR": f"cc={level}"})
        for got, w in zip(vectors(s, [w["ids"] for w in want]), want, strict=True):
            far = max(abs(a - b) for a, b in zip(got, w[how], strict=True)) / max(map(abs, w[how]))
            assert far < BOUND, (name, level, len(w["ids"]), far)
        s.stop()


def test_deterministic_vectors_are_the_same_in_any_company():
    need_emulator()
    for name in ("bert", "modernbert"):
        ids = [w["ids"] for w in golden(f"{EMBEDDING}{name}/vectors.json")]
        s = Server(*SMALL, "--deterministic", model=EMBEDDING + name, env=GPU)
        together = vectors(s, ids + ids[::-1])
        same(together, [vectors(s, [i])[0] for i in ids + ids[::-1]], name)
        s.stop()


def test_sizes_of_an_encoder_hold_two_steps():
    """Without options a step has room for many short texts, and there is KV memory for two steps (in whole pieces of the GPU's memory)."""
    need_emulator()
    sizes = ("--device", "cuda", "--page-size", "16", "--kv-memory", "auto")
    s = Server(*sizes, model=EMBEDDING + "bert", env={**GPU, "VITRINE_EMULATOR": "memory=6144"})
    info = s.get("/get_server_info").json
    same((info["max_running_requests"], info["chunked_prefill_size"]), (1024, 16384))
    assert 2 * 16384 // 16 < info["num_pages"] <= 2 * 16384 // 16 + 1024, info["num_pages"]
    s.stop()


def test_scores_are_near_those_of_transformers():
    """BERT tells a pair's texts apart by a vector for each."""
    need_emulator()
    for name in ("bert", "xlm_roberta"):
        pairs = golden(f"{RANK}{name}/pairs.json")
        s = Server(*SMALL, model=RANK + name, env=GPU)
        body = {"text_1": [p["query"] for p in pairs], "text_2": [p["document"] for p in pairs], "use_activation": False}
        for got, p in zip(s.good("/v1/score", body).json["data"], pairs, strict=True):
            assert abs(got["score"] - p["logit"]) < 0.05, (name, got["score"], p["logit"])
        s.stop()


def test_kernels_of_encoders_do_not_race():
    need_emulator()
    for name in ("bert", "modernbert"):
        ids = golden(f"{EMBEDDING}{name}/vectors.json")[-1]["ids"]
        ok("embed", "-m", EMBEDDING + name, *SMALL, "--tokens", ",".join(map(str, ids)), env={**GPU, "VITRINE_EMULATOR": "race,cc=90"})


main(globals())
