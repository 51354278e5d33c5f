#!/usr/bin/env python3
"""All of MaskBench: which schemas are followed, which of their instances are accepted, and what one token takes at most.

    build/bench_grammar must exist (bench/micro/grammar.c says how to build it)
    bench/peers/maskbench.py tokenizer.json|FILE.tiktoken MASKBENCH [--only NAME] [--refused]

MASKBENCH: the folder maskbench/data of github.com/guidance-ai/jsonschemabench. An instance is written as Python's json.dumps does;
those of more than 6,000 characters are left out. Each is followed from its first token to its last, thrice; a schema that comes
again finds the walks of those before it, as in a server. --refused lists the schemas that are refused, with the reasons."""
import argparse, collections, json, os, subprocess, threading


def cases(folder, only):
    """(name, schema, instance, whether it is valid), one for each line of the program."""
    for file in sorted(os.listdir(folder)):
        if only and only not in file:
            continue
        with open(os.path.join(folder, file), encoding="utf-8") as f:
            try:
                one = json.load(f)
            except ValueError as e:
                print(f"left out: {file}: {e}")
                continue
        texts = [(json.dumps(test["data"], ensure_ascii=False), test["valid"]) for test in one["tests"]]
        texts = [t for t in texts if len(t[0]) < 6000]
        for text, valid in texts or [("", None)]:  # a schema without any is compiled
            yield file.removesuffix(".json"), one["schema"], text, valid


def feed(pipe, work):
    with pipe:
        for _, schema, text, _ in work:
            pipe.write(json.dumps({"schema": json.dumps(schema), "instance": text}) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("vocabulary")
    parser.add_argument("folder")
    parser.add_argument("--only", help="files whose name contains this")
    parser.add_argument("--refused", action="store_true")
    args = parser.parse_args()
    work = list(cases(args.folder, args.only))
    p = subprocess.Popen(["build/bench_grammar", args.vocabulary], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    threading.Thread(target=feed, args=(p.stdin, work), daemon=True).start()
    p.stdout.readline()  # of the vocabulary
    seen, refused, limits, steps, states = set(), {}, [], {}, {}
    accepted, of = collections.Counter(), collections.Counter()
    for (name, _, _, valid), line in zip(work, p.stdout):
        row = json.loads(line)
        seen.add(name)
        if row["refused"]:
            refused[name] = row["fault"]
            continue
        of[valid] += 1
        accepted[valid] += "fault" not in row
        if row.get("fault", "") not in ("", "a token of the instance is not allowed", "the instance may not end"):
            limits.append(f"{name}: {row['fault']}")
        steps[name], states[name] = max(steps.get(name, 0), row["steps"]), max(states.get(name, 0), row["states"])
    assert p.wait() == 0 and seen
    print(f"{len(seen)} schemas: {len(seen) - len(refused)} followed, {len(refused)} refused")
    print(f"instances of those that are followed: {accepted[True]} of {of[True]} valid ones accepted, {accepted[False]} of {of[False]} invalid ones")
    print(f"answers that met a limit: {len(limits)}")
    for line in limits:
        print(f"  {line}")
    for what, most in (("steps", steps), ("states", states)):
        if not most:
            continue
        order = sorted(most.values())
        worst = ", ".join(f"{most[n]} {n}" for n in sorted(most, key=most.get)[: -4 : -1])
        quantiles = ", ".join(f"{order[int(len(order) * q)]} ({q:.1%})" for q in (0.5, 0.9, 0.99, 0.999))
        print(f"{what} of a schema's costliest token: {quantiles}; most: {worst}")
    for name, why in sorted(refused.items()) if args.refused else ():
        print(f"refused: {name}: {why}")


if __name__ == "__main__":
    main()
