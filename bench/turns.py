#!/usr/bin/env python3
"""Conversations of agents on a model with sequence state: what the prefix cache has of each turn's prompt, and the time to the
first token, beside the rule by which vLLM keeps states (`mamba_cache_mode` align, its default with prefix caching).

    bench/turns.py build/vitrine [--model dummy:qwen3.5-0.8b] [--rounds 1] [OPTIONS OF vitrine serve]

All conversations begin with the same system prompt and tools. A turn is what was said so far, the answer as it was generated
(of every other conversation without its thought, which templates leave out of what was said), and a new message or result of a
tool. Conversations take turns; a request waits for the one before it, so times are of a server that does nothing else.

Two servers run the same trace: one by our rule, one that keeps states as vLLM does, at borders of blocks of --block tokens that
a scheduler's step reaches, with steps of 8,192 tokens: `--page-size BLOCK --state-interval` the largest multiple of BLOCK in a
step. (vLLM takes the least block whose keys and values fill a layer's state: 784 tokens for Qwen3.8-27B.) A model of the rule,
written from vllm/v1/core/sched/scheduler.py (_mamba_block_aligned_split), is computed beside them and holds the second server:
it may find states at more places, where two prompts part, and one block earlier where a prompt ends within 8 tokens of a border."""
import argparse, http.client, json, random, re, statistics, subprocess, sys, time

STEP = 8192


def trace(o):
    """[[(message, dropped)] of each conversation]: lists of token ids, and how many tokens of the answer in front are left out."""
    r = random.Random(o.seed)
    ids = lambda n: [r.randrange(5, 70) for _ in range(n)]  # of any vocabulary
    system = ids(o.system)
    return [[(system + ids(r.randrange(o.message // 10, o.message // 2)) if t == 0 else ids(r.randrange(o.message // 5, 2 * o.message)), o.answer // 2 if c % 2 else 0)
             for t in range(o.turns)] for c in range(o.conversations)]


class Served:
    def __init__(self, o, extra):
        self.server = subprocess.Popen([o.vitrine, "serve", "-m", o.model, "--port", "0", *o.serve, *extra], stderr=subprocess.PIPE, text=True)
        for line in self.server.stderr:
            at = re.search(r"http://([\w.]+):(\d+)", line)
            if at:
                self.at = at[1], int(at[2])
                return
        sys.exit("bench/turns.py: the server did not start")

    def ask(self, prompt, n):
        """(tokens of the prompt that were cached, seconds to the first token, the answer's token ids)"""
        c = http.client.HTTPConnection(*self.at)
        body = {"input_ids": prompt, "stream": True, "sampling_params": {"max_new_tokens": n, "temperature": 0, "ignore_eos": True}}
        begin, first, last = time.monotonic(), None, None
        c.request("POST", "/generate", json.dumps(body), {"Content-Type": "application/json"})
        for line in c.getresponse():
            if line.startswith(b"data: {"):
                first = first or time.monotonic()
                last = json.loads(line[6:])
        c.close()
        if not last or "meta_info" not in last:
            sys.exit(f"bench/turns.py: {last}")
        return last["meta_info"]["cached_tokens"], first - begin, last["output_ids"]

    def stop(self):
        self.server.terminate()
        self.server.wait()


class Rule:
    """States at borders of blocks that a step of a prompt, or a token of an answer, reaches."""

    def __init__(self, block):
        self.block, self.kept = block, set()

    def cached(self, prompt, answer):
        border = lambda n: n // self.block * self.block
        hit = border(len(prompt) - 1)
        while hit and tuple(prompt[:hit]) not in self.kept:
            hit -= self.block
        at, end = hit, border(len(prompt))
        while at < end:
            at = min(at + border(STEP), end)
            self.kept.add(tuple(prompt[:at]))
        both = prompt + answer[:-1]  # the last token of an answer is never computed
        self.kept.update(tuple(both[:n]) for n in range(end + self.block, len(both) + 1, self.block))
        return hit


def run(o, extra, rule=None):
    """[(turn, prompt tokens, cached, cached by the rule, seconds)]"""
    s, out, said = Served(o, extra), [], {}
    talks = trace(o)
    s.ask([5] * 40, 4)  # what a first request costs
    for t in range(o.turns):
        for c, talk in enumerate(talks):
            message, dropped = talk[t]
            prompt, answer = said.get(c, ([], []))
            prompt = prompt + answer[dropped if t else 0:] + message
            cached, seconds, answer = s.ask(prompt, o.answer)
            said[c] = prompt, answer
            out.append((t, len(prompt), cached, rule.cached(prompt, answer) if rule else 0, seconds))
    s.stop()
    return out


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("vitrine")
    p.add_argument("--model", default="dummy:qwen3.5-0.8b")
    p.add_argument("--block", type=int, default=784, help="tokens of a block of vLLM's (784)")
    p.add_argument("--rounds", type=int, default=1)
    p.add_argument("--conversations", type=int, default=4)
    p.add_argument("--turns", type=int, default=6)
    p.add_argument("--system", type=int, default=1800, help="tokens that all conversations begin with (1,800)")
    p.add_argument("--message", type=int, default=350, help="tokens of a message, about (350)")
    p.add_argument("--answer", type=int, default=48, help="tokens of an answer, half of them a thought (48)")
    p.add_argument("--seed", type=int, default=31)
    o, o.serve = p.parse_known_args()
    theirs = ["--page-size", str(o.block), "--state-interval", str(STEP // o.block * o.block), "--token-budget", str(STEP)]
    rows = {"ours": [], "blocks": []}
    for _ in range(o.rounds):
        rows["ours"] += run(o, [])
        rows["blocks"] += run(o, theirs, Rule(o.block))
    if any(x[2] < x[3] - o.block for x in rows["blocks"]):
        sys.exit("bench/turns.py: a server with these blocks found less than the model of the rule")
    print(f"| turn | prompt tokens | computed: ours | blocks of {o.block} | vLLM's rule | first token, median ms: ours | blocks of {o.block} |")
    print("|---|---|---|---|---|---|---|")
    for name, turns in [*((str(t + 1), {t}) for t in range(o.turns)), ("all but the first", set(range(1, o.turns)))]:
        a, b = ([x for x in rows[k] if x[0] in turns] for k in ("ours", "blocks"))
        left = lambda list, i: f"{sum(x[1] - x[i] for x in list) / len(list):,.0f}"
        ms = lambda list: f"{1e3 * statistics.median(x[4] for x in list):,.0f}"
        print(f"| {name} | {sum(x[1] for x in a) / len(a):,.0f} | {left(a, 2)} | {left(b, 2)} | {left(b, 3)} | {ms(a)} | {ms(b)} |")
    print(f"cached: ours {sum(x[2] for x in rows['ours']) / sum(x[1] for x in rows['ours']):.1%}, "
          f"blocks {sum(x[2] for x in rows['blocks']) / sum(x[1] for x in rows['blocks']):.1%}, "
          f"vLLM's rule {sum(x[3] for x in rows['blocks']) / sum(x[1] for x in rows['blocks']):.1%}")


if __name__ == "__main__":
    main()
