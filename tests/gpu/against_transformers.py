"""A Qwen3-0.6B of random weights (tools/fixtures/random_model.py) here and in transformers, on the same GPU.

The reference is transformers in fp32. Its own bf16 says how far bf16 is from that; ours may be half as far again."""
import json, random, tempfile

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
