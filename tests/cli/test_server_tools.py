#!/usr/bin/env python3
"""Tool calls and reasoning of chats, over HTTP, with a model that answers a script: whole answers, streams, history, refusals."""
import json, os

import scripted_model
from served import *
from tap import *

ONE = {}
PIECES = ["<thi", "nk>\nLet me", " think.\n</", "think>\n\nI ", "add <b>.", "\n<tool_", "call>\n{\"name\": \"add\", \"argu",
          "ments\": {\"a\": 1.50, \"s\": \"}</tool_call>\"}}\n</tool_call>\n<tool_call>{\"name\": \"now\"", ", \"arguments\": {}}</tool", "_call>"]
TOOLS = [{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {
    "type": "object", "properties": {"a": {"type": "number"}, "s": {"type": "string"}}}}},
         {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}]
ARGUMENTS = "{\"a\": 1.50, \"s\": \"}</tool_call>\"}"


def server():
    if "s" not in ONE:
        ONE["s"] = Server("--served-model-name", "tiny", model=scripted_model.make(os.path.join(folder(), "m"), PIECES))
    return ONE["s"]


def body(**kw):
    return {"messages": [{"role": "user", "content": "Hi"}], "temperature": 0, "max_tokens": 40, "tools": TOOLS, **kw}


def chat(**kw):
    return server().good("/v1/chat/completions", body(**kw)).json


def calls_of(message):
    return [(c["type"], c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls") or []]


WANTED = [("function", "add", ARGUMENTS), ("function", "now", "{}")]


def test_calls_and_reasoning_stand_in_their_own_members():
    a = chat()
    m = a["choices"][0]["message"]
    same((m["reasoning_content"], m["content"], calls_of(m)), ("Let me think.", "I add <b>.", WANTED))
    same(a["choices"][0]["finish_reason"], "tool_calls")
    same(len({c["id"] for c in m["tool_calls"]}), 2)
    same(a["usage"]["completion_tokens_details"], {"reasoning_tokens": 4})


def gather(events):
    """What a client adds up from a stream, in OpenAI's way."""
    m, finish = {"content": "", "reasoning_content": "", "tool_calls": []}, None
    for e in events:
        for c in e["choices"] if e != "[DONE]" else []:
            d = c["delta"]
            for k in "content", "reasoning_content":
                m[k] += d.get(k) or ""
            for t in d.get("tool_calls", []):
                if "id" in t:  # the first delta of a call, and no other
                    same((t["index"], t["function"]["arguments"]), (len(m["tool_calls"]), ""))
                    m["tool_calls"].append(t)
                else:
                    same((t["index"], sorted(t), list(t["function"])), (len(m["tool_calls"]) - 1, ["function", "index"], ["arguments"]))
                    m["tool_calls"][-1]["function"]["arguments"] += t["function"]["arguments"]
            finish = c["finish_reason"] or finish
    return m, finish


def test_reasoning_has_the_name_that_the_server_is_told():
    for name, members in ("reasoning", {"reasoning"}), ("both", {"reasoning", "reasoning_content"}):
        s = Server("--served-model-name", "tiny", "--reasoning-field", name, model=scripted_model.make(os.path.join(folder(), "m"), PIECES))
        m = s.good("/v1/chat/completions", body()).json["choices"][0]["message"]
        same({k: m[k] for k in m if k.startswith("reasoning")}, dict.fromkeys(members, "Let me think."))
        deltas = [c["delta"] for e in s.good("/v1/chat/completions", body(stream=True)).events if e != "[DONE]" for c in e["choices"]]
        for k in "reasoning", "reasoning_content":
            same("".join(d.get(k, "") for d in deltas), "Let me think." if k in members else "")
        s.stop()


def test_a_stream_adds_up_to_the_whole_answer():
    events = server().good("/v1/chat/completions", body(stream=True, stream_options={"include_usage": True})).events
    m, finish = gather(events)
    whole = chat()["choices"][0]["message"]
    same((m["content"], m["reasoning_content"], calls_of(m), finish),
         (whole["content"], whole["reasoning_content"], calls_of(whole), "tool_calls"))
    same([e["choices"][0]["delta"].get("role") for e in events[:2]], ["assistant", None])
    same(events[-2]["usage"]["completion_tokens_details"], {"reasoning_tokens": 4})
    assert "timings" in events[-3], events[-3]


def test_an_answer_that_is_cut_off_says_length_and_keeps_the_text():
    c = chat(max_tokens=7)["choices"][0]
    same((c["finish_reason"], c["message"]["content"], calls_of(c["message"])),
         ("length", "I add <b>.\n<tool_call>\n{\"name\": \"add\", \"argu", []))


def test_one_call_where_parallel_calls_are_not_wanted():
    same(calls_of(chat(parallel_tool_calls=False)["choices"][0]["message"]), WANTED[:1])


def test_without_calls_or_split_the_answer_stays_text():
    same(chat(tool_choice="none")["choices"][0]["message"]["content"].count("<tool_call>"), 2)
    m = chat(separate_reasoning=False, tools=[])["choices"][0]["message"]
    same(m["content"], "".join(PIECES))


def prompt(**kw):
    s = server()
    tokens = s.good("/tokenize", {"messages": kw.pop("messages"), **kw}).json["tokens"]
    return s.good("/detokenize", {"tokens": tokens}).json["prompt"]


def test_the_template_gets_tools_calls_and_reasoning():
    said = [{"role": "user", "content": "Hi"},
            {"role": "assistant", "content": None, "reasoning": "So.", "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": "{\"a\": 2}"}}]},
            {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "3"}]}]
    text = prompt(messages=said, tools=TOOLS)
    for part in '"name": "add"', "<think>So.</think><tool_call>add [('a', 2)]</tool_call>", "tool\n3":
        assert part in text, (part, text)
    for written, reached in ("{\"a\": ", "[('INVALID_JSON', '{\"a\": ')]"), ("[1]", "[('INVALID_JSON', '[1]')]"), ("", "[]"):  # a model wrote them
        said[1]["tool_calls"][0]["function"]["arguments"] = written
        assert f"<tool_call>add {reached}</tool_call>" in prompt(messages=said), (written, prompt(messages=said))


def test_a_template_that_looks_for_xml_tools_is_shown_the_functions():
    """SmolLM3's."""
    template = ("{% for t in xml_tools or [] %}<{{ t.name }}>{% endfor %}{% for t in python_tools or [] %}({{ t }}){% endfor %}"
                "{% for m in messages %}{{ m.content }}{% endfor %}{# tools <tool_call> #}")
    s = Server(model=scripted_model.make(os.path.join(folder(), "m"), ["I ", "talk."], template))
    for more, shown in ({}, "<add><now>Hi"), ({"chat_template_kwargs": {"python_tools": ["x"]}}, "(x)Hi"):
        tokens = s.good("/tokenize", {"messages": body()["messages"], "tools": TOOLS, **more}).json["tokens"]
        same(s.good("/detokenize", {"tokens": tokens}).json["prompt"], shown)
    s.stop()


def test_reasoning_effort_none_closes_the_thought():
    same(chat(reasoning_effort="none")["choices"][0]["message"]["content"], "I add <b>.")
    a, b = (server().good("/v1/chat/completions", body(reasoning_effort=e)).json["usage"]["prompt_tokens"] for e in ("none", "high"))
    assert a > b, (a, b)


def test_what_is_not_there_is_refused_by_name():
    for field, value in [("tool_choice", "maybe"), ("tool_choice", {"type": "function", "function": {"name": "other"}}),
                         ("tool_choice", {}), ("response_format", {"type": "json_object"}), ("thinking_token_budget", 0),
                         ("tools", {}), ("tools", [{"type": "web"}]), ("tools", [{"type": "function", "function": {"name": "a b"}}]),
                         ("tools", [{"type": "function", "function": {"name": "a", "parameters": 3}}]),
                         ("tools", [{"type": "function", "function": {"name": "a", "strict": True, "parameters": {"not": {}}}}]),
                         ("tools", TOOLS * 600), ("tools", TOOLS + TOOLS[:1]), ("reasoning_effort", "much"), ("parallel_tool_calls", 1), ("separate_reasoning", "x")]:
        a = server().post("/v1/chat/completions", body(**{field: value}))
        same((a.status, a.error["param"]), (400, field), str(a.body))
    wrong = [{"role": "assistant", "content": "", "tool_calls": 3}, {"role": "assistant", "content": "", "tool_calls": [{}]},
             {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "a", "arguments": 3}}]}]
    for m in wrong:
        a = server().post("/v1/chat/completions", body(messages=[m]))
        same((a.status, a.error["param"]), (400, "messages"), str(a.body))


def other(pieces):
    """A server whose model says other pieces."""
    s = Server("--served-model-name", "tiny", model=scripted_model.make(os.path.join(folder(), "m"), pieces))
    return s, lambda **kw: s.good("/v1/chat/completions", body(**kw)).json["choices"][0]


def test_a_call_can_be_forced():
    s, ask = other(["I ", "would ", "rather ", "talk."])
    strict = [{"type": "function", "function": {"name": "add", "strict": True, "parameters": {
        "type": "object", "properties": {"a": {"enum": [1, 2]}, "s": {"enum": ["x", "y"]}}, "required": ["a", "s"]}}},
              {"type": "function", "function": {"name": "now", "strict": True, "parameters": {"type": "object", "properties": {}}}}]
    same(ask()["message"]["content"], "I would rather talk.")
    for choice, finish in ("required", "tool_calls"), ({"type": "function", "function": {"name": "add"}}, "stop"):
        for parallel in True, False:
            c = ask(tool_choice=choice, tools=strict, max_tokens=120, parallel_tool_calls=parallel)
            calls = calls_of(c["message"])
            assert c["finish_reason"] in (finish, "length"), c  # this model fills the blanks of JSON
            same((c["message"]["content"], len(calls) >= 1), (None, True))
            for _, name, arguments in calls:
                given = json.loads(arguments)
                assert name in (("add", "now") if choice == "required" else ("add",)), calls
                assert name == "now" or (given["a"] in (1, 2) and given["s"] in ("x", "y") and len(given) == 2), calls
            assert len(calls) == 1 or (parallel and choice == "required"), calls
    s.stop()
    s, ask = other(["<tool_call>\n", "{\"name\": \"add\", \"arguments\": ", "{\"a\": 1, \"s\": \"x\"}", "}\n</tool_call>"])
    for choice, finish in ("required", "tool_calls"), ({"type": "function", "function": {"name": "add"}}, "stop"):
        c = ask(tool_choice=choice, tools=strict, max_tokens=120)
        same((c["finish_reason"], calls_of(c["message"])), (finish, [("function", "add", "{\"a\": 1, \"s\": \"x\"}")]))
    s.stop()


def allowed(mode, *names):
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [{"type": "function", "function": {"name": n}} for n in names]}}


def test_allowed_tools_are_the_only_ones_that_can_be_called():
    three = TOOLS + [{"type": "function", "function": {"name": "sub", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}}]
    s, ask = other(["I call.", "\n<tool_call>\n", "{\"name\": \"", "sub", "\", \"arguments\": ", "{}", "}\n</tool_call>"])
    same([n for _, n, _ in calls_of(ask(tools=three)["message"])], ["sub"])
    same([n for _, n, _ in calls_of(ask(tools=three, tool_choice=allowed("auto", "now", "sub"))["message"])], ["sub"])
    for names in ("now",), ("add", "now"):
        c = ask(tools=three, tool_choice=allowed("auto", *names), max_tokens=200)
        called = [n for _, n, _ in calls_of(c["message"])]
        assert called and set(called) <= set(names) and c["message"]["content"] == "I call.", c
    c = ask(tools=three, tool_choice=allowed("required", "now", "sub"), max_tokens=200)
    called = [n for _, n, _ in calls_of(c["message"])]
    assert called and set(called) <= {"now", "sub"} and c["message"]["content"] is None and c["finish_reason"] in ("tool_calls", "length"), c
    whole = [s.good("/v1/chat/completions", body(tools=three, **more)).json["usage"]["prompt_tokens"] for more in ({}, {"tool_choice": allowed("auto", "now")})]
    same(whole[0], whole[1], "the prompt has all tools")
    s.stop()
    s, ask = other(["I ", "would ", "rather ", "talk."])
    c = ask(tool_choice=allowed("auto", "now"))
    same((c["message"]["content"], c["finish_reason"]), ("I would rather talk.", "stop"))
    s.stop()


def test_wrong_allowed_tools_are_refused_by_name():
    a = server().post("/v1/chat/completions", body(tool_choice=allowed("auto", "now", "sub", "mul")))
    same((a.status, a.error["param"], a.error["message"]), (400, "tool_choice", "tool_choice: no tool is called 'sub', 'mul'"))
    for choice in (allowed("none", "now"), allowed("auto"), {"type": "allowed_tools"}, {"type": "allowed_tools", "allowed_tools": {"mode": "auto"}},
                   {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "name": "now"}]}},
                   {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "custom", "function": {"name": "now"}}]}},
                   allowed("auto", "no\0w"), {"type": "function", "function": {"name": "no\0w"}}):
        for tools in TOOLS, []:
            a = server().post("/v1/chat/completions", body(tool_choice=choice, tools=tools))
            same((a.status, a.error["param"]), (400, "tool_choice"), str(a.body))
    a = server().post("/v1/chat/completions", body(tool_choice=allowed("auto", "now"), tools=[]))
    same((a.status, a.error["param"]), (400, "tool_choice"), str(a.body))
    a = server().post("/v1/chat/completions", body(tools=TOOLS + TOOLS[:1]))
    same(a.error["message"], "tools[2].function.name: 'add' is the name of tools[0] too")


def test_a_strict_tool_holds_the_calls_that_the_model_chooses():
    def strict(**kw):
        schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}, "s": {"enum": ["x", "y"]}}, "required": ["a", "s"]}
        return [{"type": "function", "function": {"name": "add", "parameters": schema, **kw}}, TOOLS[1]]
    s, ask = other(["Why ", "not? ", "<tool_", "call>", "\n{\"name\": \"", "add", "\", \"arguments\": ", "{\"b\"", ": 3}}\n</tool_call>"])
    free = ask(tools=strict(), max_tokens=80)
    same((free["message"]["content"], calls_of(free["message"])), ("Why not?", [("function", "add", "{\"b\": 3}")]))
    c = ask(tools=strict(strict=True), max_tokens=80)
    (_, name, arguments), *more = calls_of(c["message"])
    given = json.loads(arguments)
    same((c["message"]["content"], name, sorted(given)), ("Why not?", "add", ["a", "s"]))
    assert given["a"] in (1, 2) and given["s"] in ("x", "y"), given
    s.stop()
    s, ask = other(["<think>", "<tool_call>", " is ", "no call ", "here</think>", "It is ", "<tool", " text."])
    c = ask(tools=strict(strict=True))
    same((c["message"]["reasoning_content"], c["message"]["content"], c["finish_reason"]),
         ("<tool_call> is no call here", "It is <tool text.", "stop"))
    s.stop()


def test_a_forced_call_comes_behind_the_thought():
    s, ask = other(["<think>", "Hm.", "</think>", "\n\nNo."])
    c = ask(tool_choice="required", max_tokens=120)
    same((c["message"]["reasoning_content"], c["message"]["content"], len(calls_of(c["message"])) >= 1), ("Hm.", None, True))
    c = ask(tools=[], max_tokens=120, response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": ["a", "b"]}}})
    same((c["message"]["reasoning_content"], c["message"]["content"] in ('"a"', '"b"')), ("Hm.", True))
    s.stop()


def test_a_thinking_budget_closes_the_thought():
    pieces = ["<think>", "One. ", "Two. ", "Three. ", "Four. ", "</think>", "\n\nI say."]
    s, ask = other(pieces)
    same(ask(tools=[])["message"]["reasoning_content"], "One. Two. Three. Four.")
    c = ask(tools=[], thinking_token_budget=3)["message"]
    same(c["reasoning_content"], "One. Two.")  # the tag is a token of it
    assert c["content"] is not None, c
    same(ask(tools=[], thinking_token_budget=50)["message"]["content"], "I say.")
    s.stop()


def test_a_template_without_calls_is_refused_by_name():
    s = Server()
    a = s.post("/v1/chat/completions", body())
    same((a.status, a.error["param"]), (400, "tools"), str(a.body))
    s.good("/v1/chat/completions", body(tool_choice="none", max_tokens=2))  # which asks for text alone
    a = s.post("/v1/chat/completions", body(tools=[], reasoning_effort="low"))
    same((a.status, a.error["param"]), (400, "reasoning_effort"), str(a.body))
    a = s.post("/v1/chat/completions", body(tools=[], thinking_token_budget=9))
    same((a.status, a.error["param"]), (400, "thinking_token_budget"), str(a.body))
    s.stop()
    s = Server("--tool-parser", "hermes")
    s.good("/v1/chat/completions", body(max_tokens=2))
    s.stop()


CHATS = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
FAMILIES = {  # what a template knows, an answer whose marked pieces are special tokens, and what it is
    "harmony": ("<|channel|>analysis<|message|>", [" to=functions.add ", "*<|channel|>", "commentary ", "*<|constrain|>", "json", "*<|message|>",
                                                   "{\"a\": ", "1.50, ", "\"s\": \"x\"}"], None),
    "kimi-k2": ("<think></think><|tool_calls_section_begin|>", ["<think>", "Hm.", "*<|tool_calls_section_begin|>", "*<|tool_call_begin|>",
                "functions.add:0", "*<|tool_call_argument_begin|>", "{\"a\": ", "1.50, ", "\"s\": \"x\"}", "*<|tool_call_end|>"], "Hm."),
    "mistral": ("[THINK][TOOL_CALLS][ARGS]", ["*[THINK]", "Hm.", "*[/THINK]", "*[TOOL_CALLS]", "add", "*[ARGS]", "{\"a\": ", "1.50, ",
                                              "\"s\": \"x\"}"], "Hm."),
    "glm": ("<think></think><tool_call><arg_key>", ["<think>", "Hm.", "</think>", "<tool_call>", "ad", "d\n<arg", "_key>a</arg_key>", "<arg_value>",
                                                    "1.50", "</arg_value><arg_", "key>s</arg_key><arg_value>", "x</arg_", "value></tool_call>"], "Hm."),
}


def test_families_are_known_by_their_templates_and_stream_arguments_as_they_are_made():
    for name, (words, marked, thought) in FAMILIES.items():
        pieces = [p.lstrip("*") for p in marked]
        special = {p for p, m in zip(pieces, marked) if m[0] == "*"}
        model = scripted_model.make(os.path.join(folder(), "m"), pieces, CHATS + "{# tools " + words + " #}", special)
        s = Server("--served-model-name", "tiny", model=model)
        whole = s.good("/v1/chat/completions", body()).json["choices"][0]
        m = whole["message"]
        same((m.get("reasoning_content"), m["content"], calls_of(m), whole["finish_reason"]),
             (thought, None, [("function", "add", "{\"a\": 1.50, \"s\": \"x\"}")], "tool_calls"), name)
        events = s.good("/v1/chat/completions", body(stream=True)).events
        got, finish = gather(events)
        same((got["reasoning_content"], calls_of(got), finish), (thought or "", calls_of(m), "tool_calls"), name)
        deltas = [t for e in events if e != "[DONE]" for c in e["choices"] for t in c["delta"].get("tool_calls", [])]
        assert len(deltas) > 3, (name, deltas)
        s.stop()


def test_forced_and_strict_calls_have_the_special_tokens_of_their_form():
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
    tools = [{"type": "function", "function": {"name": "add", "strict": True, "parameters": schema}}]
    section, begin, argument, end = ("<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>")
    pieces = ["I ", "think", "*" + section, "*" + begin, "functions.", "add:", "7", "*" + argument, "{\"a\":", " 3}", "*" + end,
              "*<|tool_calls_section_end|>"]
    names = [p.lstrip("*") for p in pieces]
    model = scripted_model.make(os.path.join(folder(), "m"), names, CHATS + "{# tools " + section + " #}", {p[1:] for p in pieces if p[0] == "*"})
    s = Server("--served-model-name", "tiny", model=model)
    for choice, content in ("required", None), ("auto", "I think"):
        c = s.good("/v1/chat/completions", body(tools=tools, tool_choice=choice, max_tokens=100, parallel_tool_calls=False)).json["choices"][0]
        same((c["message"]["content"], [n for _, n, _ in calls_of(c["message"])]), (content, ["add"]), str(c))
        assert json.loads(calls_of(c["message"])[0][2])["a"] in (1, 2) and c["message"]["tool_calls"][0]["id"].startswith("functions.add:"), c
    s.stop()


PARALLEL = {  # the marker of a form, its special tokens, an answer with two calls, and the ids that these have
    "kimi-k2": ("<|tool_calls_section_begin|>", ["*<|tool_calls_section_begin|>", "*<|tool_call_begin|>", "functions.add:0", "*<|tool_call_argument_begin|>",
                "{\"a\": 1}", "*<|tool_call_end|>", "<|tool_call_begin|>functions.add:", "0<|tool_call_argument_begin|>{\"a\": 2}",
                "<|tool_call_end|><|tool_calls_section_end|>"], ["functions.add:0", "functions.add:1"]),
    "cohere": ("<|START_ACTION|>", ["*<|START_ACTION|>", "[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"add\", ", "\"parameters\": {\"a\": 1}},",
               "\n    {\"tool_call_id\": \"0\", \"tool_name\": ", "\"add\", \"parameters\": {\"a\"", ": 2}}\n]", "*<|END_ACTION|>"], None),
}


def test_parallel_calls_have_ids_and_numbers_of_their_own():
    for name, (words, marked, ids) in PARALLEL.items():
        pieces = [p.lstrip("*") for p in marked]
        model = scripted_model.make(os.path.join(folder(), "m"), pieces, CHATS + "{# tools " + words + " #}", {p[1:] for p in marked if p[0] == "*"})
        s = Server("--served-model-name", "tiny", model=model)
        m = s.good("/v1/chat/completions", body()).json["choices"][0]["message"]
        same([json.loads(a) for _, _, a in calls_of(m)], [{"a": 1}, {"a": 2}], name)
        got, _ = gather(s.good("/v1/chat/completions", body(stream=True)).events)
        same((calls_of(got), [c["index"] for c in got["tool_calls"]]), (calls_of(m), [0, 1]), name)
        for calls in m["tool_calls"], got["tool_calls"]:
            same(len({c["id"] for c in calls}), 2, name)
            assert not ids or [c["id"] for c in calls] == ids, calls
        if ids:  # those of the conversation are taken too
            said = [*body()["messages"], {"role": "assistant", "content": "", "tool_calls": m["tool_calls"]}]
            m = s.good("/v1/chat/completions", body(messages=said + body()["messages"])).json["choices"][0]["message"]
            same([c["id"] for c in m["tool_calls"]], ["functions.add:2", "functions.add:3"])
        s.stop()


BAR = "\uff5c"
FORCED = {  # what a template knows, and the special tokens of the form
    "qwen-xml": ("<think></think><tool_call><function=<parameter=", []),
    "glm": ("<think></think><tool_call><arg_key>", []),
    "minimax-m2": ("<minimax:tool_call><invoke name=", []),
    "deepseek-dsml": (f"<{BAR}DSML{BAR}function_calls>", []),
    "kimi-k3": ("<|open|>tools<|sep|>argument<|close|>", ["<|open|>", "<|close|>", "<|sep|>"]),
    "lfm2": ("<|tool_call_start|>", ["<|tool_call_start|>", "<|tool_call_end|>"]),
    "olmo3": ("<functions></functions><function_calls>", []),
    "gemma4": ("<|tool_call>call:", ["<|tool_call>", "<tool_call|>", "<|\"|>"]),
    "harmony": ("<|channel|>analysis<|message|>", ["<|channel|>", "<|message|>", "<|constrain|>", "<|start|>"]),
    "pythonic": ("no words of a form", []),
}


def test_calls_are_forced_in_every_form():
    schema = {"type": "object", "additionalProperties": False, "required": ["a", "s", "l"], "properties": {
        "a": {"enum": [1, 2]}, "s": {"enum": ["x y", "z"]}, "l": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 1}}}
    tools = [{"type": "function", "function": {"name": "add", "strict": True, "parameters": schema}}]
    for name, (words, special) in FORCED.items():
        model = scripted_model.make(os.path.join(folder(), "m"), ["I ", "think", *special], CHATS + "{# tools " + words + " #}", set(special))
        s = Server("--served-model-name", "tiny", *(["--tool-parser", name] if name == "pythonic" else []), model=model)
        for temperature in 0, 1.5:
            c = s.good("/v1/chat/completions", body(tools=tools, tool_choice="required", max_tokens=400, temperature=temperature, seed=1,
                                                    parallel_tool_calls=False)).json["choices"][0]
            (_, called, arguments), = calls_of(c["message"])
            a = json.loads(arguments)
            same((called, sorted(a), a["a"] in (1, 2), a["s"] in ("x y", "z"), a["l"] in ([True], [False]), c["message"]["content"]),
                 ("add", ["a", "l", "s"], True, True, True, None), f"{name} {c}")
        s.stop()


def test_arguments_that_are_no_json_stay_visible():
    s, ask = other(["<tool_call>", "{\"name\": \"add\", \"arguments\": ", "{\"a\" 1}}", "</tool_call>"])
    c = ask()
    same(calls_of(c["message"]), [("function", "add", "{\"a\" 1}}")])
    a = s.good("/v1/messages", {"max_tokens": 40, "model": "claude-x", "messages": body()["messages"], "temperature": 0,
                                "tools": [{"name": "add", "input_schema": {"type": "object"}}]}).json
    same([b["input"] for b in a["content"]], [{"INVALID_JSON": "{\"a\" 1}}"}])
    s.stop()


def test_the_server_ends_as_it_should():
    server().stop()


main(globals())
