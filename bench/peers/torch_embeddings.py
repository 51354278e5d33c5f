#!/usr/bin/env python3
"""Texts a second of BERT encoders in torch on a GPU, beside `vitrine bench offline -m dummy:SHAPE --input T:T`.

    bench/peers/torch_embeddings.py [--shapes bert-base,minilm-l6] [--tokens 32,256] [--budget 4096,16384] [--seconds 3] [--rounds 2]

transformers' BertModel with random weights in bf16 and sdpa. All texts are equally long, so nothing is padded. A batch has as many
texts as the budget of tokens holds. Ids are copied from pinned memory, the mean of a text's states is taken and scaled to length 1
on the GPU, and the vectors are copied to the host, batch by batch, without waiting for one before the next is queued. A line is a
shape, a length, a budget and the texts a second of each round. Needs torch and transformers."""
import argparse, time

SHAPES = {"bert-base": dict(hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072),
          "minilm-l6": dict(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)}


def make(shape, device):
    import torch
    from transformers import BertConfig, BertModel
    model = BertModel(BertConfig(vocab_size=30522, attn_implementation="sdpa", **SHAPES[shape]), add_pooling_layer=False)
    return model.to(device=device, dtype=torch.bfloat16).eval()


def batch_of(model, ids, device):
    """Queues one batch; returns its vectors, which may not be there yet."""
    import torch
    states = model(input_ids=ids.to(device, non_blocking=True)).last_hidden_state
    return torch.nn.functional.normalize(states.float().mean(1), dim=1).to("cpu", non_blocking=True)


def texts_per_s(model, tokens, n_texts, seconds, device):
    """Runs batches for about so many seconds, in groups of eight."""
    import torch
    ids = torch.randint(1000, 30000, (n_texts, tokens))
    if device != "cpu":
        ids = ids.pin_memory()
    wait = torch.cuda.synchronize if device != "cpu" else lambda: None
    for _ in range(3):
        batch_of(model, ids, device)
    wait()
    start, n = time.monotonic(), 0
    while time.monotonic() - start < seconds:
        vectors = [batch_of(model, ids, device) for _ in range(8)]
        wait()
        n += len(vectors)
    return n * n_texts / (time.monotonic() - start)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--shapes", default="bert-base,minilm-l6", help="of " + ", ".join(SHAPES))
    p.add_argument("--tokens", default="32,256", help="lengths of texts")
    p.add_argument("--budget", default="4096,16384", help="tokens of a batch")
    p.add_argument("--seconds", type=float, default=3, help="of a round of one line")
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--device", default="cuda", help="cuda or cpu")
    o = p.parse_args()
    import torch
    with torch.inference_mode():
        for shape in o.shapes.split(","):
            model = make(shape, o.device)
            for tokens in map(int, o.tokens.split(",")):
                for budget in map(int, o.budget.split(",")):
                    rounds = [texts_per_s(model, tokens, budget // tokens, o.seconds, o.device) for _ in range(o.rounds)]
                    print(f"{shape} {tokens} tokens, budget {budget}:", *(f"{r:,.0f}" for r in rounds), "texts/s", flush=True)


if __name__ == "__main__":
    main()
