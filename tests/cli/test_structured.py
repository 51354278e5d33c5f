#!/usr/bin/env python3
"""Structured output through the server: what a grammar asked for is what comes, judged by programs that are not ours
(Python's json and re, and jsonschema): whole and streamed, n > 1, with drafts, with little room, under random schemas.

The tiny model answers at random, so it tries what a trained one seldom does. RANDOM_SCHEMAS=1000 makes more of them,
RANDOM_TOKENS=400 gives them less room, and RANDOM_MODEL=FILE takes another model."""
import concurrent.futures, os, random, re

from served import *
from tap import *

ONE = {}
HOT = {"temperature": 1.5, "max_tokens": 300}


def server(*args):
    if args not in ONE:
        ONE[args] = Server(*args)
    return ONE[args]


def judge():
    try:
        import jsonschema
    except ImportError:
        skip("Python's jsonschema is not installed")
    form = jsonschema.FormatChecker(["date", "email", "ipv4", "ipv6", "uuid", "date-time"])  # "time" is an older draft's there
    return lambda schema: jsonschema.Draft202012Validator(schema, format_checker=form)


def strict(text):
    """JSON, without what Python reads besides (NaN)."""
    def no(x):
        raise ValueError(x)
    return json.loads(text, parse_constant=no, object_pairs_hook=members)


def members(pairs):
    """An object. Names that are not listed may come twice (docs/structured.md); so that all are counted, they are told apart."""
    out = {}
    for name, value in pairs:
        while name in out:
            name += "_"
        out[name] = value
    return out


def ask(schema, at=None, **kw):
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    body = {"messages": [{"role": "user", "content": "Hi"}], "response_format": form, "seed": 7, **HOT, **kw}
    return (at or server()).post("/v1/chat/completions", body)


def check(schema, at=None, **kw):
    """Every choice parses and satisfies the schema, or was ended by something else than its schema."""
    a = ask(schema, at, **kw)
    assert a.status == 200, f"{schema}: {a.status} {a.body[:300]}"
    validator = judge()(schema)
    for c in a.json["choices"]:
        text = c["message"]["content"]
        try:
            validator.validate(strict(text))
        except Exception as e:
            raise AssertionError(f"{json.dumps(schema)}: {c['finish_reason']}: {text!r}: {type(e).__name__} {str(e)[:200]}")
    return a.json


TREE = {"$defs": {"t": {"type": "object", "properties": {"v": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/t"}}},
                        "required": ["v"], "additionalProperties": False}}, "$ref": "#/$defs/t"}
PERSON = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
          "required": ["name", "age"], "additionalProperties": False}
PLATE = {"type": "string", "pattern": "^[A-Z]{2,4}-[0-9]+$"}
SCHEMAS = [
    True, {}, {"type": "object"}, {"type": "array"}, {"type": "string"}, {"type": "number"}, {"type": "null"}, TREE,
    {"type": ["integer", "boolean"]},
    {"enum": ["a", "b\"\\", 1, None, {"x": [1, {"y": "é"}]}, "\u2028\x00", 1.5]},
    {"const": {"a": ["\t", "\U0001F600"]}},
    {"type": "string", "minLength": 3, "maxLength": 5},
    PLATE,
    {"type": "string", "pattern": "a.c", "maxLength": 12},
    {"type": "string", "pattern": "^(?!x)[a-z]+$", "minLength": 2, "maxLength": 6},
    *({"type": "string", "format": f} for f in ("date", "time", "date-time", "email", "ipv4", "ipv6", "uuid", "hostname", "uri", "duration")),
    {"type": "integer", "minimum": -17, "exclusiveMaximum": 230}, {"type": "integer", "multipleOf": 12, "minimum": 100},
    {"type": "number", "exclusiveMinimum": -0.25, "maximum": 1e3}, {"type": "number", "minimum": 0.1, "maximum": 0.2},
    PERSON,
    {"type": "object", "properties": {c: {"type": "boolean"} for c in "abcdef"}, "minProperties": 2, "maxProperties": 3,
     "additionalProperties": False},
    {"type": "object", "patternProperties": {"^n_": {"type": "integer"}}, "additionalProperties": {"type": "string"}, "minProperties": 1},
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["z", "a"]},
    {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 4},
    {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": {"type": "null"}, "minItems": 1},
    {"anyOf": [{"type": "integer", "minimum": 3}, {"type": "array", "items": {"const": "x"}, "maxItems": 3}]},
    {"oneOf": [{"type": "object", "properties": {"k": {"const": "a"}, "v": {"type": "null"}}, "required": ["k", "v"]},
               {"type": "object", "properties": {"k": {"const": "b"}}, "required": ["k"]}]},
    {"allOf": [{"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
               {"properties": {"b": {"type": "integer"}}, "required": ["b"]}]},
]


def all_at_once(work, items):
    """Eight at a time; tells of every item that fails."""
    def caught(item):
        try:
            work(item)
        except AssertionError as e:
            return str(e)
    judge(), server()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        failed = [e for e in pool.map(caught, items) if e]
    assert not failed, f"{len(failed)} fail:\n" + "\n".join(failed[:20])


def test_answers_satisfy_their_schema_at_a_high_temperature():
    all_at_once(lambda s: check(s, n=3), SCHEMAS)


def test_answers_with_little_room_are_closed_before_it_ends():
    """As many tokens as the shortest answer needs and some: whatever the model wants, what comes is whole."""
    def one(case):
        schema, room = case
        for seed in range(3):
            a = check(schema, max_tokens=room, seed=seed, temperature=2)
            assert a["usage"]["completion_tokens"] == room or a["choices"][0]["finish_reason"] == "stop", a
    all_at_once(one, [(s, room) for s, least in ((TREE, 7), ({"type": "array"}, 2), ({"type": "string"}, 2), (PERSON, 20))
                      for room in (least + 1, least + 3, least + 9, least + 30)])


def test_drafts_change_no_answer():
    judge()
    for schema in (TREE, {"type": "object"}, {"type": "array", "items": {"const": "abc"}, "minItems": 9}):
        plain = check(schema, temperature=0)["choices"][0]
        drafted = check(schema, server("--draft", "lookup"), temperature=0)["choices"][0]
        same(drafted["message"], plain["message"])
        check(schema, server("--draft", "lookup"), n=4)


def test_a_stream_brings_the_same_text_with_log_probabilities():
    for schema in SCHEMAS[:8]:
        whole = check(schema, logprobs=True, top_logprobs=3)["choices"][0]
        events = ask(schema, stream=True, logprobs=True, top_logprobs=3).events[:-1]
        deltas = [e["choices"][0] for e in events if e["choices"]]
        same("".join(d["delta"].get("content") or "" for d in deltas), whole["message"]["content"])
        tokens = [t for d in deltas for t in (d.get("logprobs") or {}).get("content", [])]
        same(len(tokens), len(whole["logprobs"]["content"]))
        for t in tokens:
            assert -1e3 < t["logprob"] <= 0, t
            assert all(p["logprob"] == -9999 or p["logprob"] <= 0 for p in t["top_logprobs"]), t


def metric(name):
    """The sum of a metric's samples. The engine's numbers may be a step behind an answer: two further steps bring the answers before."""
    server().good("/v1/completions", {"prompt": "x", "max_tokens": 2, "ignore_eos": True})
    lines = server().get("/metrics").body.decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if re.match(re.escape(name) + r"[ {]", line))


def shown(story):
    """A story as a terminal shows it."""
    path = os.path.join(folder(), "story.json")
    with open(path, "wb") as f:
        f.write(story)
    return run("story", "show", path).text


def test_timings_metrics_and_the_story_tell_of_the_masks():
    schema = {"type": "object", "properties": {"told": {"type": "boolean"}}, "required": ["told"], "additionalProperties": False}
    before = {name: metric(name) for name in ("vitrine:masks_total", "vitrine:mask_seconds_total", "vitrine:grammars_total", "vitrine:slowest_mask_seconds_count",
                                              "vitrine:slowest_mask_seconds_sum")}
    answers = [check(schema, seed=1) for _ in range(2)]
    for i, a in enumerate(answers):
        t, made = a["timings"], a["usage"]["completion_tokens"]
        assert made <= t["masks"] <= made + 1, (t, made)
        assert 0 <= t["slowest_mask_ms"] <= t["masks_ms"], t  # a mask of so small a vocabulary may take less than 0.5 us
        assert t["masks_new"] > 0 if i == 0 else t["masks_new"] == 0, (i, t)
        m = server().get(f"/story/{t['story']}").json["request"]["masks"]
        told = shown(server().get(f"/story/{t['story']}").body)
        assert f"MASKS    {m['count']} masks of the next token, {m['new']} of them new" in told, told
        same((m["count"], m["new"], m["forced_tokens"]), (t["masks"], t["masks_new"], t["forced_tokens"]))
        assert m["slowest_us"]["value"] <= m["total_ms"]["value"] * 1e3 + 1, m
    same(metric("vitrine:masks_total") - before["vitrine:masks_total"], sum(a["timings"]["masks"] for a in answers))
    same(metric("vitrine:grammars_total") - before["vitrine:grammars_total"] >= 2, True)
    assert metric("vitrine:mask_seconds_total") >= before["vitrine:mask_seconds_total"]
    same(metric("vitrine:slowest_mask_seconds_count") - before["vitrine:slowest_mask_seconds_count"], 2)
    slowest = sum(a["timings"]["slowest_mask_ms"] for a in answers) / 1e3
    assert abs(metric("vitrine:slowest_mask_seconds_sum") - before["vitrine:slowest_mask_seconds_sum"] - slowest) < 2e-6, (slowest, before)
    body = {"prompt": "x", "max_tokens": 2, "ignore_eos": True}
    plain = server().good("/v1/completions", body).json["timings"]
    assert "masks" not in plain and "masks" not in server().get(f"/story/{plain['story']}").json["request"], plain


def test_certain_tokens_are_forced_and_counted():
    before = metric("vitrine:forced_tokens_total")
    body = {"prompt": "x", "temperature": 1, "seed": 5, "max_tokens": 40, "guided_regex": "[a-z]#7#8#9#7#8"}
    text = server().good("/v1/completions", body).json["choices"][0]["text"]
    assert re.fullmatch(body["guided_regex"], text), text
    assert metric("vitrine:forced_tokens_total") - before >= 5


def test_stop_ends_a_structured_answer():
    got = ask({"type": "array", "items": {"const": "ab"}, "minItems": 5}, stop=["b"]).json["choices"][0]
    same((re.sub(r"\s", "", got["message"]["content"]), got["finish_reason"]), ('["a', "stop"))


def test_regex_choice_and_gbnf_are_followed():
    def answers(**kw):
        body = {"prompt": "x", "n": 4, "seed": 3, **HOT, **kw}
        return [c["text"] for c in server().good("/v1/completions", body).json["choices"]]
    for pattern in (r"[a-z]+(-[0-9]{2,3})?", r"(foo|bar)*baz|\d+", r"(?:[01]\d|2[0-3]):[0-5]\d", r"\w+@\w+\.(com|org)", r"[^a-z]{3}é+"):
        for text in answers(guided_regex=pattern) + answers(structured_outputs={"regex": pattern}):
            assert re.fullmatch(pattern, text), (pattern, text)
    for text in answers(guided_choice=["yes", "no", "not sure", "nö"]):
        assert text in ("yes", "no", "not sure", "nö"), text
    sums = 'root ::= term ("+" term)*\nterm ::= [0-9]{1,3} | "(" root ")"\n'
    for text in answers(guided_grammar=sums):
        assert re.fullmatch(r"[0-9+()]+", text) and isinstance(eval(re.sub(r"\b0+(?=\d)", "", text)), int), text
    for text in answers(structured_outputs={"json_object": True}):
        assert isinstance(strict(text), dict), text


# ---- random schemas ----

class Maker:
    """Random schemas that something satisfies, mostly: those without any answer are refused as such."""
    def __init__(self, seed):
        self.r = random.Random(seed)

    def value(self, depth):
        kind = self.r.randrange(5 if depth > 1 else 7)
        return [lambda: None, lambda: self.r.random() < 0.5, lambda: self.r.randint(-999, 999), lambda: round(self.r.uniform(-9, 9), 2),
                self.text, lambda: [self.value(depth + 1) for _ in range(self.r.randrange(3))],
                lambda: {self.text(): self.value(depth + 1) for _ in range(self.r.randrange(3))}][kind]()

    def text(self):
        return "".join(self.r.choice('abcxyz"\\/ é漢\n\x01😀') for _ in range(self.r.randrange(5)))

    def bounds(self, low, high, most, chance=0.5):
        a, b = sorted((self.r.randint(0, most), self.r.randint(0, most)))
        return {**({low: a} if self.r.random() < chance else {}), **({high: b} if self.r.random() < chance else {})}

    def number(self, kind):
        a, b = sorted(round(self.r.uniform(-200, 200), self.r.randrange(3) if kind == "number" else 0) for _ in range(2))
        s = {"type": kind}
        if self.r.random() < 0.6:
            s[self.r.choice(["minimum", "exclusiveMinimum"])] = a
        if self.r.random() < 0.6:
            s[self.r.choice(["maximum", "exclusiveMaximum"])] = b + 3
        if self.r.random() < 0.2:
            s["multipleOf"] = self.r.choice([2, 3, 7, 10] if kind == "integer" else [0.5, 0.25, 3])
        return s

    def string(self):
        s = {"type": "string"}
        how = self.r.randrange(4)
        if how == 0:
            s["pattern"] = self.r.choice(["^[a-z]+$", "[0-9]{2}", "^(ab|cd)*$", "^x?y+z?$", "é", "^.{2,4}$", "\\d+-\\w", "^[^a]*$"])
        elif how == 1:
            s["format"] = self.r.choice(["date", "ipv4", "uuid", "email", "time"])
        else:
            s.update(self.bounds("minLength", "maxLength", 12))
        return s

    def array(self, depth):
        s = {"type": "array", **self.bounds("minItems", "maxItems", 4)}
        if self.r.random() < 0.3:
            s["prefixItems"] = [self.schema(depth + 1) for _ in range(self.r.randint(1, 3))]
        if self.r.random() < 0.8:
            s["items"] = self.schema(depth + 1)
        return s

    def object(self, depth):
        names = list(dict.fromkeys(self.text() or "k" for _ in range(self.r.randrange(5))))
        s = {"type": "object", "properties": {n: self.schema(depth + 1) for n in names}}
        if names and self.r.random() < 0.7:
            s["required"] = self.r.sample(names, self.r.randint(1, len(names)))
        if self.r.random() < 0.6:
            s["additionalProperties"] = self.r.choice([False, False, True, {"type": "integer"}])
        if self.r.random() < 0.2:
            s["maxProperties"] = len(s.get("required", [])) + self.r.randrange(3)
        if self.r.random() < 0.15 and s.get("additionalProperties") is not False:
            s["minProperties"] = self.r.randrange(4)
        return s

    def schema(self, depth=0):
        how = self.r.randrange(14 if depth < 3 else 6)
        if how < 2:
            return self.number(self.r.choice(["number", "integer"]))
        if how < 4:
            return self.string()
        if how == 4:
            return self.r.choice([{"enum": [self.value(0) for _ in range(self.r.randint(1, 4))]}, {"const": self.value(0)}])
        if how == 5:
            return self.r.choice([True, {}, {"type": "null"}, {"type": "boolean"}, {"type": ["string", "null"]}])
        if how < 10:
            return self.object(depth)
        if how < 12:
            return self.array(depth)
        if how == 12:
            return {"anyOf": [self.schema(depth + 1) for _ in range(self.r.randint(1, 3))]}
        return {"allOf": [self.object(depth), {"properties": {"extra": self.schema(depth + 1)}}]}


def test_random_schemas_are_satisfied():
    refused = []

    told = os.environ.get("RANDOM_MODEL")
    at = Server(model=told) if told else server()
    room = int(os.environ.get("RANDOM_TOKENS", "1500"))

    def one(seed):
        schema = Maker(seed).schema()
        a = ask(schema, at, max_tokens=1, seed=seed)
        if a.status == 400:
            assert "no text of finite length" in a.error["message"], (schema, a.error)
            refused.append(seed)
        else:
            check(schema, at, max_tokens=room, seed=seed, n=2)
    n = int(os.environ.get("RANDOM_SCHEMAS", "40"))
    all_at_once(one, range(n))
    assert len(refused) < n / 4, f"{len(refused)} of {n} random schemas are refused"
    print(f"# {n} schemas, {len(refused)} of which nothing satisfies; {2 * (n - len(refused))} answers are valid")


def test_a_trained_model_follows_its_schemas():
    need_model()
    s = Server(model=MODEL)
    for schema in (PERSON, TREE, {"type": "object"}, PLATE, True):
        check(schema, s, temperature=0, max_tokens=60)
        check(schema, s, n=2, max_tokens=60)


main(globals())
