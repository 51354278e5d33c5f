"""Compares with transformers on the same GPU, and with the error that its own bf16 has.

qwen: a Qwen3-0.6B of random weights (tools/fixtures/random_model.py). The reference is transformers in fp32; ours may be
half as far from it again as transformers' bf16.
smollm2: the greedy text of section `greedy`, as transformers in bf16 would have chosen it."""
import json, os, random, subprocess, sys, tempfile

from device import *
from model_checks import random_model

SLACK = 1.5
NEAR_BEST = 0.25  # how far below the fp32 best a greedy choice may lie


def reference(torch, transformers, path, ids, dtype, device):
    """Log-probabilities [n, vocab] in float64 of transformers in `dtype`."""
    torch.backends.cuda.matmul.allow_tf32 = False
    model = transformers.Qwen3ForCausalLM.from_pretrained(path, dtype=dtype).to(device).eval()
    with torch.no_grad():
        out = torch.log_softmax(model(torch.tensor([ids], device=device)).logits[0].double(), -1).cpu()
    del model
    if device == "cuda":
        torch.cuda.empty_cache()
    return out


def qwen(d, tap, o):
    """A Qwen3-0.6B of random weights against transformers in fp32, and what transformers' own bf16 does."""
    try:
        import torch, transformers
    except ImportError as e:
        tap.skip("qwen3-0.6b against transformers", f"{e.name} is not installed")
        return
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    on = "cuda" if torch.cuda.is_available() else "cpu"
    shape, n_prompt, n_more = ("tiny", 12, 4) if o.tiny else ("qwen3-0.6b", 512, 64)
    vocab = 1000 if o.tiny else 151936
    rng = random.Random(11)
    ids = [rng.randrange(vocab) for _ in range(n_prompt)]
    with tempfile.TemporaryDirectory(dir=o.scratch) as folder:
        path = random_model(shape, "bf16", folder)
        room = ["--kv-memory", "4M", "--max-context", "256"] if o.tiny else ["--kv-memory", "1G", "--max-context", "2048"]
        ours = d.score(ids, "--top", "20", *room, model=path)
        text = json.loads(d.call("run", "--raw", "--tokens", ",".join(map(str, ids[:64])), "-n", str(n_more), "--ignore-eos",
                                 "--json", *room, model=path))["tokens"]
        full, half = (reference(torch, transformers, path, ids, t, on) for t in (torch.float32, torch.bfloat16))
        judged = reference(torch, transformers, path, ids[:64] + text, torch.float32, on)
    us, them, apart = Errors(), Errors(), Errors()
    for i in range(1, len(ids)):
        for id, lp in [(ids[i], ours["logprobs"][i])] + [(t["id"], t["logprob"]) for t in ours["top"][i]]:
            f, h = full[i - 1, id].item(), half[i - 1, id].item()
            us.add(lp - f)
            them.add(h - f)
            apart.add(lp - h)
    tap.note(f"{shape}, {len(ids)} tokens, log-probabilities of each token and the 20 likeliest, transformers on {on}")
    tap.note(f"transformers bf16 to its fp32: {them}")
    tap.note(f"vitrine to transformers bf16: {apart}")
    good = us.mean <= SLACK * them.mean and us.worst <= 2 * SLACK * them.worst
    tap.ok(good, f"qwen3 logits, vitrine to transformers fp32: {us}; {SLACK} times bf16's own mean and {2 * SLACK} its max "
           "allowed")
    rows = judged[len(ids[:64]) - 1:]
    below = [rows[k].max().item() - rows[k, t].item() for k, t in enumerate(text)]
    tap.ok(max(below) <= NEAR_BEST, f"qwen3 greedy decode: {sum(b == 0 for b in below)} of {len(text)} tokens are the fp32 "
           f"best, the others at most {max(below):.4f} below; {NEAR_BEST} allowed")


# ---- greedy text ----

def byte_of():
    """The characters of a byte-level vocabulary, by the byte each stands for."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(others)}


def id_of(folder):
    """Ids of the vocabulary by the tokens' bytes, as Latin-1 text."""
    told = json.load(open(os.path.join(folder, "tokenizer.json"), encoding="utf-8"))
    letter = {c: chr(b) for b, c in byte_of().items()}
    special = {t["content"]: t["id"] for t in told["added_tokens"]}
    return {"".join(letter.get(c, "?") for c in text): i for text, i in told["model"]["vocab"].items()
            if text not in special} | special


def smollm2(d, tap, o):
    """Where transformers in bf16, given the fp32 text so far, would choose another token."""
    gguf = os.path.join(os.environ.get("VITRINE_CACHE", os.path.expanduser("~/.cache/vitrine")),
                        "models/SmolLM2-135M-Instruct.Q4_1.gguf")
    if o.tiny or not os.path.exists(gguf):
        tap.skip("SmolLM2 in transformers", "an emulated GPU has none" if o.tiny else "SmolLM2 is not in the cache")
        return
    try:
        import gguf as _, torch, transformers
    except ImportError as e:
        tap.skip("SmolLM2 in transformers", f"{e.name} is not installed")
        return
    transformers.logging.set_verbosity_error()
    on = "cuda" if torch.cuda.is_available() else "cpu"
    golden = json.load(open(GOLDEN, encoding="utf-8"))["prompts"][::o.every]
    c = Comparison(float("inf"))
    with tempfile.TemporaryDirectory(dir=o.scratch) as folder:
        tool = os.path.join(ROOT, "tools/fixtures/smollm2_fp8.py")
        subprocess.run([sys.executable, tool, gguf, folder, "bf16"], check=True, capture_output=True)
        path = os.path.join(folder, "bf16")
        ids = id_of(path)
        model = transformers.LlamaForCausalLM.from_pretrained(path, dtype=torch.bfloat16).to(on).eval()
        for i, (prompt, g) in enumerate(zip(read_prompts()[::o.every], golden)):
            told = subprocess.run([d.vitrine, "tokenize", "-m", d.model, "--json"], input=prompt.encode(), check=True,
                                  capture_output=True)
            before, text = json.loads(told.stdout)["ids"], [ids[t] for t in g["tokens"]]
            with torch.no_grad():
                best = model(torch.tensor([before + text[:-1]], device=on)).logits[0, len(before) - 1:].argmax(-1).tolist()
            c.add(i * o.every, best, text, g["margins"])
    c.report(tap, f"greedy text, transformers bf16 on {on} and the CPU backend")
