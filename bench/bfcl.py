#!/usr/bin/env python3
"""Calls that a model is forced to make, judged by BFCL's own checker (the Berkeley Function Calling Leaderboard, PyPI's bfcl-eval).

    python3 -m venv build/bfcl && build/bfcl/bin/python -m pip install --no-deps bfcl-eval==2026.3.23
    build/bfcl/bin/python bench/bfcl.py build/vitrine 20 -m SmolLM2-135M-Instruct.Q4_1      cases of each kind, serve's options

Every function is offered with `strict`, and `tool_choice` is required: the grammar must leave no answer that is no JSON or has a wrong
type, whatever the model knows. The program ends with status 1 where there is one. Which values are right is the model's affair."""
import collections, concurrent.futures, json, os, subprocess, sys, time, types, urllib.request

PORT, START_S = 18494, 600
KINDS = "simple_python", "multiple", "parallel"
TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}  # BFCL's names of JSON Schema's types
SYSTEM = ("Call the functions that answer the question. The functions are:\n%s\nA call is written so:\n"
          "<tool_call>\n{\"name\": \"a function\", \"arguments\": {\"a parameter\": \"a value\"}}\n</tool_call>")


def load_checker():
    """Its checker alone: the package's table of models imports the clients of all of them."""
    table = types.ModuleType("bfcl_eval.constants.model_config")
    table.MODEL_CONFIG_MAPPING = {"vitrine": types.SimpleNamespace(underscore_to_dot=False)}
    sys.modules[table.__name__] = table
    import bfcl_eval
    from bfcl_eval.constants.enums import Language
    from bfcl_eval.eval_checker.ast_eval.ast_checker import ast_checker
    data = os.path.join(list(bfcl_eval.__path__)[0], "data")
    return data, lambda functions, calls, right, kind: ast_checker(functions, calls, right, Language.PYTHON, kind, "vitrine")


def schema(v):
    """A schema with JSON Schema's names of types; members of `properties` may be called "type" too."""
    if isinstance(v, list):
        return [schema(x) for x in v]
    if not isinstance(v, dict):
        return v
    out = {k: {name: schema(x) for name, x in value.items()} if k == "properties" else value if k in ("enum", "default") else schema(value)
           for k, value in v.items()}
    if isinstance(out.get("type"), str):
        out["type"] = TYPES.get(out["type"], out["type"])
    return out


def post(path, body):
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=START_S) as answer:
        return json.load(answer)


def start(program, options):
    p = subprocess.Popen([program, "serve", "-q", "--port", str(PORT), "--tool-parser", "hermes", *options])
    end = time.monotonic() + START_S
    while True:
        try:
            post("/tokenize", {"prompt": "x"})
            return p
        except OSError:
            if p.poll() is not None or time.monotonic() > end:
                sys.exit(f"the server of {program} did not start")
            time.sleep(0.2)


def judge(case, right, kind, check):
    """One of: no JSON, a wrong type, cut off, a wrong value or function, right."""
    tools = [{"type": "function", "function": {"name": f["name"], "description": f["description"], "strict": True,
                                               "parameters": schema(f["parameters"])}} for f in case["function"]]
    messages = [{"role": "system", "content": SYSTEM % "\n".join(json.dumps(t["function"]) for t in tools)}, *case["question"][0]]
    body = {"messages": messages, "tools": tools, "tool_choice": "required", "parallel_tool_calls": kind == "parallel", "temperature": 0}
    choice = post("/v1/chat/completions", {**body, "max_tokens": 400})["choices"][0]
    calls = choice["message"].get("tool_calls") or []
    try:
        made = [{c["function"]["name"]: json.loads(c["function"]["arguments"])} for c in calls]
    except ValueError:
        return "no JSON"
    if not made:
        return "no JSON"
    verdict = check(case["function"], made, right, kind)
    if verdict["valid"]:
        return "right"
    reason = json.dumps(verdict.get("error_type")) + json.dumps(verdict["error"])
    if "type_error" in reason:
        print(f"{case['id']}: {made}: {verdict['error']}", file=sys.stderr)
        return "a wrong type"
    return "cut off" if choice["finish_reason"] == "length" else "a wrong value or function"


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    data, check = load_checker()
    n, server = int(sys.argv[2]), start(sys.argv[1], sys.argv[3:])
    outcomes = ["right", "a wrong value or function", "cut off", "a wrong type", "no JSON"]
    wrong = 0
    try:
        print("| kind | cases | " + " | ".join(outcomes) + " |\n|---" + "|---" * (1 + len(outcomes)) + "|")
        for kind in KINDS:
            with open(f"{data}/BFCL_v4_{kind}.json") as f, open(f"{data}/possible_answer/BFCL_v4_{kind}.json") as g:
                pairs = [(json.loads(a), json.loads(b)["ground_truth"]) for a, b in zip(f, g)][:n]
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                found = collections.Counter(pool.map(lambda p: judge(*p, kind, check), pairs))
            print(f"| {kind} | {len(pairs)} | " + " | ".join(str(found[o]) for o in outcomes) + " |", flush=True)
            wrong += found["a wrong type"] + found["no JSON"]
    finally:
        server.terminate()
        server.wait()
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
