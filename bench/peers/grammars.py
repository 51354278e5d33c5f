#!/usr/bin/env python3
"""Masks of JSON schemas: ours, llguidance's and xgrammar's, on one vocabulary, the same schemas and tokens, in one run.

    build/bench_grammar must exist (bench/micro/grammar.c says how to build it)
    pip install llguidance xgrammar torch
    bench/peers/grammars.py FILE.tiktoken MASKBENCH [--each 2] [--skip xgrammar]

MASKBENCH: the folder maskbench/data of github.com/guidance-ai/jsonschemabench. --each N takes N schemas of every kind in
it, drawn with a fixed seed, with their first valid instance of 10 to 1,500 tokens, written as Python's json.dumps does,
and four schemas of our own. Each engine gets the tokens that ours makes of the instance. Times are CPU time of the thread;
"compile" is from the schema's text to the first mask; Python's own share of a peer's mask is measured with an empty call
and taken off. Refused: the schema; not accepted: a valid instance."""
import argparse, base64, collections, importlib.metadata, json, multiprocessing, os, random, statistics, subprocess, time

EOS, SPECIAL = "<|endoftext|>", 26
OWN = {
    "own, any object": ({"type": "object"}, {"name": "Ada", "born": 1815, "tags": ["x", "y", None], "more": {"a": True}}),
    "own, tree": ({"$defs": {"t": {"type": "object", "properties": {"v": {"type": "integer"}, "k": {"type": "array", "items": {"$ref": "#/$defs/t"}}},
                                   "required": ["v"], "additionalProperties": False}}, "$ref": "#/$defs/t"},
                  {"v": 1, "k": [{"v": 2, "k": []}, {"v": 30, "k": [{"v": 4}]}]}),
    "own, pattern": ({"type": "object", "properties": {"slug": {"type": "string", "pattern": "^[a-z0-9]+(-[a-z0-9]+)*$", "maxLength": 200}},
                      "required": ["slug"]}, {"slug": "a-rather-long-name-of-a-page-with-4-numbers-in-2024"}),
    "own, enum": ({"type": "object", "properties": {"word": {"enum": [f"value-{i * 7919 % 1000}-{i}" for i in range(500)]}}, "required": ["word"]},
                  {"word": "value-838-2"}),
}


def now():
    return time.thread_time_ns()


def cases(folder, each):
    """(name, schema, instance) by kind; the same ones for everybody."""
    kinds = collections.defaultdict(list)
    for name in sorted(os.listdir(folder)):
        kinds[name.split("---")[0].split("_")[0] if "---" not in name else name.split("---")[0]].append(name)
    for kind, names in sorted(kinds.items()):
        random.Random(kind).shuffle(names)
        found = 0
        for name in names:
            with open(os.path.join(folder, name), encoding="utf-8") as f:
                one = json.load(f)
            for test in one["tests"]:
                text = json.dumps(test["data"], ensure_ascii=False) if test["valid"] else ""
                if 30 < len(text) < 4500:
                    yield name.removesuffix(".json"), one["schema"], text
                    found += 1
                    break
            if found == each:
                break
    for name, (schema, value) in OWN.items():
        yield name, schema, json.dumps(value)


def ours(vocabulary, work):
    lines = "".join(json.dumps({"schema": json.dumps(s), "instance": t}) + "\n" for _, s, t in work)
    out = subprocess.run(["build/bench_grammar", vocabulary], input=lines, capture_output=True, text=True, check=True).stdout
    first, *rows = [json.loads(line) for line in out.splitlines()]
    return first["start_ns"], rows


def tokens_of(path):
    """The bytes of each rank, and the special tokens behind them."""
    with open(path, "rb") as f:
        ranks = [base64.b64decode(line.split()[0]) for line in f if line.strip()]
    return ranks, [EOS.encode()] + [f"<|special_{i}|>".encode() for i in range(SPECIAL - 1)]


class LLGuidance:
    def __init__(self, ranks, special):
        import llguidance, numpy
        self.lib = llguidance

        class Wrapped:
            eos_token_id, bos_token_id = len(ranks), None
            tokens = ranks + special
            special_token_ids = list(range(len(ranks), len(ranks) + len(special)))

            def __call__(self, text):
                return [ranks.index(bytes([b])) for b in (text if isinstance(text, bytes) else text.encode())]
        begin = now()
        self.tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Wrapped()))
        self.start = now() - begin
        self.words = numpy.zeros((len(ranks) + len(special) + 31) // 32, dtype=numpy.int32)
        self.size = self.words.nbytes

    def compile(self, schema):
        m = self.lib.LLMatcher(self.tokenizer, self.lib.LLMatcher.grammar_from_json_schema(schema))
        if m.is_error():
            raise ValueError(m.get_error())
        return m

    def matcher(self, compiled):
        return compiled.deep_copy()

    def mask(self, m):
        m.unsafe_compute_mask_ptr(self.words.ctypes.data, self.size)

    def take(self, m, token):
        return m.consume_token(token)

    def ends(self, m):
        return m.is_accepting()


class XGrammar:
    def __init__(self, ranks, special):
        import xgrammar
        self.lib = xgrammar
        begin = now()
        info = xgrammar.TokenizerInfo(ranks + special, xgrammar.VocabType.RAW, vocab_size=len(ranks) + len(special), stop_token_ids=[len(ranks)])
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self.start = now() - begin
        self.words = xgrammar.allocate_token_bitmask(1, info.vocab_size)
        self.eos = len(ranks)

    def compile(self, schema):
        return self.compiler.compile_json_schema(schema, any_whitespace=True, strict_mode=False)

    def matcher(self, compiled):
        return self.lib.GrammarMatcher(compiled)

    def mask(self, m):
        m.fill_next_token_bitmask(self.words)

    def take(self, m, token):
        return m.accept_token(token)

    def ends(self, m):
        return m.is_terminated() or m.accept_token(self.eos)


def one_pass(engine, compiled, ids, spent):
    """The masks' times, and what was not accepted."""
    m, out = engine.matcher(compiled), []
    for token in ids:
        begin = now()
        engine.mask(m)
        out.append(max(now() - begin - spent, 0))
        if not engine.take(m, token):
            return out, "a token of the instance is not allowed"
    return out, None if engine.ends(m) else "the instance may not end"


def theirs(engine, work, ids, limit):
    class Empty:
        def mask(self, m):
            pass
    empty, spent = Empty(), []
    for _ in range(1000):
        begin = now()
        empty.mask(None)
        spent.append(now() - begin)
    spent = statistics.median(spent)
    return engine.start, [apart(lambda: one_case(engine, json.dumps(schema), tokens, spent), limit) for (_, schema, _), tokens in zip(work, ids)]


def one_case(engine, text, tokens, spent):
    row, begin = {}, now()
    try:
        compiled = engine.compile(text)
        engine.mask(engine.matcher(compiled))
        row["compile_ns"] = now() - begin
        for i in range(3):
            times, fault = one_pass(engine, compiled, tokens, spent)
            row.setdefault("first_ns", times)
            row["third_ns"] = times
            if fault:
                return {**row, "fault": fault}
        return row
    except Exception as e:
        return {"compile_ns": now() - begin, **row, "fault": f"{type(e).__name__}: {e}"[:200]}


def apart(work, limit):
    """What work() returns, in a process of its own: some schemas take minutes, and C++ cannot be interrupted."""
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=lambda: theirs.send(work()))
    child.start()
    theirs.close()
    try:
        return ours.recv() if ours.poll(limit) else {"compile_ns": limit * 10**9, "fault": f"not done after {limit} s"}
    except EOFError:
        return {"compile_ns": 0, "fault": "the process ended"}
    finally:
        child.kill()
        child.join()


def figures(ns):
    s = sorted(ns)
    at = lambda q: s[min(len(s) - 1, int(q * len(s)))] / 1e3
    return " / ".join(f"{x:,.1f}" for x in (sum(s) / len(s) / 1e3, at(0.5), at(0.9), at(0.99), s[-1] / 1e3))


def refused(row):
    return "third_ns" not in row


def table(results, n, common):
    print(f"\n{n} schemas, {len(common)} that all engines compile and follow; their masks: us, mean / p50 / p90 / p99 / worst\n")
    print("| engine | vocabulary ms | compile ms p50 / p90 / worst | first pass | third pass | refused | instance not accepted |\n|---|---|---|---|---|---|---|")
    for name, (start, rows) in results.items():
        c = sorted(rows[i]["compile_ns"] for i in common)
        compile = " / ".join(f"{x / 1e6:,.2f}" for x in (c[len(c) // 2], c[int(len(c) * 0.9)], c[-1]))
        masks = [figures([x for i in common for x in rows[i][k]]) for k in ("first_ns", "third_ns")]
        print(f"| {name} | {start / 1e6:,.0f} | {compile} | {masks[0]} | {masks[1]} | {sum(map(refused, rows))} | "
              f"{sum('fault' in r and not refused(r) for r in rows)} |")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("vocabulary")
    p.add_argument("maskbench")
    p.add_argument("--each", type=int, default=2)
    p.add_argument("--limit", type=int, default=20, help="seconds that a peer may take for one schema, three passes included")
    p.add_argument("--skip", action="append", default=[])
    p.add_argument("--faults", action="store_true", help="tell what each engine refused or did not accept")
    p.add_argument("--slow", type=int, default=0, help="tell the N schemas with our slowest masks")
    a = p.parse_args()
    work = list(cases(a.maskbench, a.each))
    results = {"vitrine": ours(a.vocabulary, work)}
    ids = [r["ids"] for r in results["vitrine"][1]]
    ranks, special = tokens_of(a.vocabulary)
    for name, make in (("llguidance", LLGuidance), ("xgrammar", XGrammar)):
        if name not in a.skip:
            engine = make(ranks, special)
            results[f"{name} {importlib.metadata.version(name)}"] = theirs(engine, work, ids, a.limit)
    common = [i for i in range(len(work)) if not any("fault" in rows[i] for _, rows in results.values())]
    table(results, len(work), common)
    mine = [i for i, r in enumerate(results["vitrine"][1]) if "fault" not in r]
    print(f"\nvitrine over all {len(mine)} schemas that it follows: first pass "
          f"{figures([x for i in mine for x in results['vitrine'][1][i]['first_ns']])}")
    for name, (_, rows) in results.items() if a.faults else ():
        for i, r in enumerate(rows):
            if "fault" in r:
                print(f"{name}: {work[i][0]}: {r['fault']}")
    slow = sorted(mine, key=lambda i: -max(results["vitrine"][1][i]["first_ns"]))[:a.slow]
    for i in slow:
        r = results["vitrine"][1][i]
        print(f"{work[i][0]}: worst {max(r['first_ns']) / 1e3:.0f} us, {len(r['ids'])} tokens, {figures(r['first_ns'])}; compile {r['compile_ns'] / 1e6:.2f} ms")


if __name__ == "__main__":
    main()
