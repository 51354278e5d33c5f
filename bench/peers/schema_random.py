#!/usr/bin/env python3
"""Random schemas over the keywords that depend on each other, against our grammars: Python's jsonschema judges.

    build/bench_grammar must exist (bench/micro/grammar.c says how to build it)
    pip install jsonschema
    bench/peers/schema_random.py --schemas 2000 --seed 1

Each schema has 12 random instances. An object counts as accepted if it is in some order of its members, because the order is the
schema's. Prints what was judged wrongly, and ends with status 1 if an invalid instance was accepted or a valid one was not."""
import argparse, collections, itertools, json, random, subprocess, sys

import jsonschema

NAMES = ["a", "b", "ab"]
VALUES = [None, True, False, 0, 1, 2, 6, -3, 1.5, "", "a", "ab", "b"]


def value(r, depth=2):
    kind = r.random()
    if depth and kind < 0.3:
        return {name: value(r, depth - 1) for name in r.sample(NAMES + ["z"], r.randint(0, 3))}
    if depth and kind < 0.5:
        return [value(r, depth - 1) for _ in range(r.randint(0, 3))]
    return r.choice(VALUES)


def schemas(r, depth, n):
    return [schema(r, depth) for _ in range(n)]


def schema(r, depth):
    """A schema of one to three keywords."""
    if depth == 0 or r.random() < 0.1:
        return r.choice([True, False, {"type": "string"}, {"type": ["integer", "null"]}, {"const": 1}, {"enum": ["a", True, 2]}, {"minimum": 1}])
    down = depth - 1
    make = {
        "type": lambda: r.choice(["object", "array", "string", "integer", "number", ["object", "array"], ["string", "null", "object"]]),
        "const": lambda: value(r, 1), "enum": lambda: [value(r, 1) for _ in range(3)],
        "minimum": lambda: r.choice([-3, 1, 1.5]), "exclusiveMaximum": lambda: r.choice([2, 6]), "multipleOf": lambda: r.choice([2, 3, 0.5]),
        "minLength": lambda: r.randint(0, 2), "maxLength": lambda: r.randint(0, 2), "pattern": lambda: r.choice(["^a", "b$", "a"]),
        "properties": lambda: {name: schema(r, down) for name in r.sample(NAMES, r.randint(1, 2))},
        "patternProperties": lambda: {p: schema(r, down) for p in r.sample(["^a", "b$"], r.randint(1, 2))},
        "additionalProperties": lambda: schema(r, down), "propertyNames": lambda: r.choice([{"pattern": "^a"}, {"maxLength": 1}, {"not": {"const": "b"}}]),
        "required": lambda: r.sample(NAMES, r.randint(1, 2)), "minProperties": lambda: r.randint(0, 2), "maxProperties": lambda: r.randint(0, 2),
        "dependentRequired": lambda: {r.choice(NAMES): [r.choice(NAMES)]}, "dependentSchemas": lambda: {r.choice(NAMES): schema(r, down)},
        "prefixItems": lambda: schemas(r, down, r.randint(1, 2)), "items": lambda: schema(r, down), "contains": lambda: schema(r, down),
        "minContains": lambda: r.randint(0, 2), "maxContains": lambda: r.randint(0, 2), "minItems": lambda: r.randint(0, 2),
        "maxItems": lambda: r.randint(0, 3), "uniqueItems": lambda: True,
        "not": lambda: schema(r, down), "if": lambda: schema(r, down), "then": lambda: schema(r, down), "else": lambda: schema(r, down),
        "anyOf": lambda: schemas(r, down, 2), "oneOf": lambda: schemas(r, down, r.randint(1, 3)), "allOf": lambda: schemas(r, down, 2),
        "unevaluatedProperties": lambda: schema(r, 0), "unevaluatedItems": lambda: schema(r, 0), "$ref": lambda: "#/$defs/x",
    }
    keys = r.sample(sorted(make), r.randint(1, 3))
    if "if" in keys:
        keys += [k for k in ("then", "else") if k not in keys]
    return {k: make[k]() for k in keys}


def orders(v, most=80):
    """The value with the members of its objects in other orders."""
    if isinstance(v, list):
        return [list(x) for x in itertools.islice(itertools.product(*(orders(x, 6) for x in v)), most)]
    if not isinstance(v, dict):
        return [v]
    out = []
    for keys in itertools.permutations(v):
        out += [dict(zip(keys, x)) for x in itertools.islice(itertools.product(*(orders(v[k], 6) for k in keys)), 12)]
    return out[:most]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--schemas", type=int, default=500)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--vocabulary", default="tests/golden/embedding/qwen3/tokenizer.json")
    a = p.parse_args()
    r, work = random.Random(a.seed), []
    for _ in range(a.schemas):
        s = schema(r, 3)
        if isinstance(s, dict):
            s["$defs"] = {"x": schema(r, 2)}
        judge = jsonschema.Draft202012Validator(s)
        for _ in range(12):
            v = value(r)
            try:
                valid = judge.is_valid(v)
            except RecursionError:  # $ref back to itself: ours refuses it
                continue
            work.append((s, v, valid, [json.dumps(x) for x in orders(v)]))
    lines = "".join(json.dumps({"schema": json.dumps(s), "instance": t}) + "\n" for s, _, _, texts in work for t in texts)
    rows = iter(subprocess.run(["build/bench_grammar", a.vocabulary], input=lines, capture_output=True, text=True, check=True).stdout.splitlines()[1:])
    count, why, wrong = collections.Counter(), collections.Counter(), 0
    for s, v, valid, texts in work:
        faults = [json.loads(next(rows)) for _ in texts]
        taken = any("fault" not in f for f in faults)
        fault = faults[0].get("fault", "")
        compiled = taken or "third_ns" in faults[0] or fault.startswith(("a token of", "the instance may"))
        if not compiled and not (fault.startswith("#: ") or "no text of finite length" in fault):
            count["schema refused"] += 1
            why[fault.split(":", 1)[-1][:60] + " " + fault.split(":")[0].rsplit("/", 1)[-1]] += 1
            continue
        count[f"{'valid' if valid else 'invalid'}, {'accepted' if taken else 'not accepted'}"] += 1
        if taken != valid:
            wrong += 1
            if wrong < 20:
                print(f"{'INVALID, ACCEPTED' if taken else 'valid, not accepted'}: {json.dumps(s)} :: {json.dumps(v)}  {fault}")
    print("; ".join(f"{k} {n}" for k, n in sorted(count.items())))
    print("\n".join(f"{n} {k}" for k, n in why.most_common(12)))
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
