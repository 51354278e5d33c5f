#!/usr/bin/env python3
"""The JSON-Schema-Test-Suite against our grammars: what is valid has to be accepted, what is not has to be refused.

    build/bench_grammar must exist (bench/micro/grammar.c says how to build it)
    bench/peers/schema_suite.py SUITE [--show]

SUITE: the folder tests/draft2020-12 of github.com/json-schema-org/JSON-Schema-Test-Suite. An instance is written as Python's json.dumps does,
its members in the order in which the schema lists them, as answers have them, and becomes tokens of a vocabulary that changes no character. A schema that is refused counts by the keyword that the message
names; one that nothing satisfies is right to be refused where all its instances are invalid."""
import argparse, collections, json, os, subprocess

# Formats are notes to the reader in the files that say so, and enforced here.
NOTES = {"format.json"}


def order(schema, names):
    """The names of members, as the schema's text lists them."""
    if isinstance(schema, dict):
        for key in ("properties", "required"):
            for name in schema.get(key, []) if isinstance(schema.get(key), (dict, list)) else []:
                names.setdefault(name, len(names))
        for name, asked in schema.get("dependentRequired", {}).items() if isinstance(schema.get("dependentRequired"), dict) else ():
            for one in [name, *asked]:
                names.setdefault(one, len(names))
        for value in schema.values():
            order(value, names)
    elif isinstance(schema, list):
        for value in schema:
            order(value, names)
    return names


def sorted_like(value, names):
    if isinstance(value, dict):
        return {k: sorted_like(value[k], names) for k in sorted(value, key=lambda k: names.get(k, len(names)) if isinstance(k, str) else 0)}
    return [sorted_like(v, names) for v in value] if isinstance(value, list) else value


def cases(folder):
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".json") or name in NOTES:
            continue
        with open(os.path.join(folder, name), encoding="utf-8") as f:
            for group in json.load(f):
                for test in group["tests"]:
                    names = order(group["schema"], {})
                    yield (f"{name}: {group['description']}: {test['description']}", group["schema"],
                           json.dumps(sorted_like(test["data"], names), ensure_ascii=False), test["valid"])


def keyword(fault):
    path = fault.split(":")[0]
    return path.rsplit("/", 1)[-1] if "/" in path else path


def main():
    p = argparse.ArgumentParser()
    p.add_argument("suite")
    p.add_argument("--vocabulary", default="tests/golden/embedding/qwen3/tokenizer.json")
    p.add_argument("--show", action="store_true", help="tell each instance that is judged wrongly")
    p.add_argument("--faults", action="store_true", help="tell why each schema is refused")
    a = p.parse_args()
    work = list(cases(a.suite))
    lines = "".join(json.dumps({"schema": json.dumps(s), "instance": t}) + "\n" for _, s, t, _ in work)
    out = subprocess.run(["build/bench_grammar", a.vocabulary], input=lines, capture_output=True, text=True, check=True).stdout
    count, refused, wrong = collections.Counter(), collections.Counter(), []
    for (name, _, text, valid), row in zip(work, map(json.loads, out.splitlines()[1:]), strict=True):
        fault, compiled = row.get("fault"), "first_ns" in row or row.get("fault", "").startswith(("a token of", "the instance may"))
        if not compiled and "no text of finite length" in fault and not valid:
            count["invalid, refused"] += 1
        elif not compiled:
            count["schema refused"] += 1
            refused[keyword(fault)] += 1
            if a.faults:
                print(f"{name}: {fault}")
        else:
            count[f"{'valid' if valid else 'invalid'}, {'refused' if fault else 'accepted'}"] += 1
            if valid == bool(fault):
                wrong.append(f"{'valid, refused' if valid else 'INVALID, ACCEPTED'}: {name}: {text[:100]}")
    print(f"{len(work)} instances: " + "; ".join(f"{k} {n}" for k, n in sorted(count.items())))
    print("refused by: " + ", ".join(f"{k} {n}" for k, n in refused.most_common()))
    if a.show:
        print("\n".join(wrong))


if __name__ == "__main__":
    main()
