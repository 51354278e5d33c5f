#!/usr/bin/env python3
"""OpenAI's /v1/responses, with a model that answers a script."""
import json, os

import scripted_model
from served import *
from tap import *

ONE = {}
PIECES = ["<think>", "Hm.", "</think>\n\n", "I add", " it.", "\n<tool_call>", "{\"name\": \"add\", \"arguments\": {\"a\": 1}}", "</tool_call>"]
TOOLS = [{"type": "function", "name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {"a": {"type": "number"}}}}]


def server():
    if "s" not in ONE:
        ONE["s"] = Server("--served-model-name", "tiny", model=scripted_model.make(os.path.join(folder(), "m"), PIECES))
    return ONE["s"]


def body(**kw):
    return {"model": "tiny", "max_output_tokens": 40, "temperature": 0, "input": "Hi", "tools": TOOLS, **kw}


def respond(**kw):
    return server().good("/v1/responses", body(**kw)).json


def bare(output):
    """What items say."""
    return [(i["type"], i["arguments"] if i["type"] == "function_call" else i["content"][0]["text"]) for i in output]


WANTED = [("reasoning", "Hm."), ("message", "I add it."), ("function_call", "{\"a\": 1}")]


def test_a_response_has_items_for_thought_text_and_calls():
    r = respond(instructions="Be brief.", metadata={"k": "v"})
    same(bare(r["output"]), WANTED)
    same([c["type"] for i in r["output"] for c in i.get("content", [])], ["reasoning_text", "output_text"])
    same((r["object"], r["status"], r["model"], r["store"], r["instructions"], r["metadata"], r["incomplete_details"], r["error"]),
         ("response", "completed", "tiny", False, "Be brief.", {"k": "v"}, None, None))
    same((r["tools"], r["tool_choice"], r["parallel_tool_calls"]), (TOOLS, "auto", True))
    same(len({i["id"] for i in r["output"]}), 3)
    same((r["usage"]["output_tokens"], r["usage"]["output_tokens_details"]), (len(PIECES) + 1, {"reasoning_tokens": 3}))
    r = respond(max_output_tokens=4)
    same((r["status"], r["incomplete_details"]), ("incomplete", {"reason": "max_output_tokens"}))


def test_the_item_that_is_cut_off_is_incomplete():
    """Whole and streamed, wherever the limit falls; a call that is whole has ended before it."""
    pieces = PIECES[:6] + ["{\"name\": \"add\", ", "\"arguments\": {\"a\":", " 1}}", "</tool_call>"]
    s = Server("--served-model-name", "tiny", model=scripted_model.make(os.path.join(folder(), "m"), pieces))
    seen = set()
    for most in range(1, len(pieces) + 1):
        r = s.good("/v1/responses", body(max_output_tokens=most)).json
        events = s.good("/v1/responses", body(max_output_tokens=most, stream=True)).events
        done = [e["item"] for e in events if e["type"] == "response.output_item.done"]
        statuses = [i["status"] for i in r["output"]]
        same((bare(done), [i["status"] for i in done]), (bare(r["output"]), statuses), str(most))
        same(set(statuses[:-1]) - {"completed"}, set())
        if r["output"] and r["status"] == "incomplete":
            seen.add((r["output"][-1]["type"], statuses[-1]))
        elif r["output"]:
            same(statuses[-1], "completed")
    assert {("reasoning", "incomplete"), ("message", "incomplete"), ("function_call", "incomplete")} <= seen, seen
    s.stop()


def test_instructions_and_developers_are_the_system():
    def tokens(**kw):
        return respond(**kw)["usage"]["input_tokens"]
    user = {"role": "user", "content": "Hi"}
    system, developer, other = ([{"role": r, "content": "Be brief."}, user] for r in ("system", "developer", "user"))
    same(tokens(input=developer), tokens(input=system))
    same(tokens(input=[user], instructions="Be brief."), tokens(input=system))
    assert tokens(input=other) != tokens(input=system) > tokens(input=[user])


def test_events_come_in_order_and_add_up_to_the_response():
    events = server().good("/v1/responses", body(stream=True)).events
    same([e["sequence_number"] for e in events], list(range(len(events))))
    same([e["type"] for e in events if not e["type"].endswith("delta")][:2] + [events[-1]["type"]],
         ["response.created", "response.in_progress", "response.completed"])
    added, done, texts = [], [], {}
    for e in events:
        if e["type"] == "response.output_item.added":
            same(e["output_index"], len(added))
            added.append(e["item"])
        elif e["type"].endswith(".delta"):
            same(e["item_id"], added[e["output_index"]]["id"])
            texts[e["output_index"]] = texts.get(e["output_index"], "") + e["delta"]
        elif e["type"] == "response.output_item.done":
            same((e["output_index"], e["item"]["id"]), (len(done), added[-1]["id"]))
            done.append(e["item"])
    last = events[-1]["response"]
    same((bare(done), done, last["output"]), (WANTED, last["output"], done))
    same([texts[i] for i in range(3)], [t for _, t in WANTED])
    same({e["response"]["id"] for e in events if "response" in e}, {last["id"]})


def test_items_become_messages():
    """Both histories read the same pages of the cache: their prompts are equal."""
    r = respond(include=["reasoning.encrypted_content"])
    items = [{"role": "user", "content": [{"type": "input_text", "text": "A long question. " * 20}]}]
    for hide in False, True:
        output = [{k: v for k, v in i.items() if not (hide and i["type"] == "reasoning" and k == "content")} for i in r["output"]]
        call = output[-1]
        u = respond(input=items + output + [{"type": "function_call_output", "call_id": call["call_id"], "output": "2"}])["usage"]
        chat = [{"role": "user", "content": "A long question. " * 20},
                {"role": "assistant", "content": "I add it.", "reasoning_content": "Hm.",
                 "tool_calls": [{"id": "1", "type": "function", "function": {"name": "add", "arguments": "{\"a\": 1}"}}]},
                {"role": "tool", "content": "2"}]
        tools = [{"type": "function", "function": {k: v for k, v in TOOLS[0].items() if k != "type"}}]
        same(u["input_tokens"], server().good("/tokenize", {"messages": chat, "tools": tools}).json["count"])
    assert u["input_tokens_details"]["cached_tokens"] > 0, u


def test_an_assistants_items_are_one_turn_whatever_they_hold():
    def tokens(*said):
        items = [{"role": "assistant", "content": t} for t in said]
        return respond(input=items + [{"role": "user", "content": "Hi"}], max_output_tokens=1)["usage"]["input_tokens"]
    same(tokens("a\0b", "c\0d"), tokens("aXb", "cXd"))
    same(tokens("ab", "cd"), tokens("abcd"))


def test_many_items_of_the_assistant_take_no_longer_than_their_text():
    """Were the turn copied for each of its items, this would take an hour."""
    items = [{"role": "assistant", "content": "a" * 1000}] * 12000
    r = server().post("/v1/responses", body(input=items + [{"role": "user", "content": "Hi"}]))
    same((r.status, r.error["param"], r.error["code"]), (400, "input", "context_length_exceeded"))


def test_allowed_tools_are_the_only_ones_that_can_be_called():
    """This model always calls add."""
    other = {**TOOLS[0], "name": "sub"}
    choice = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "sub"}, {"type": "web_search"}]}
    r = respond(tools=TOOLS + [other], tool_choice=choice, max_output_tokens=300)
    same({i["name"] for i in r["output"] if i["type"] == "function_call"}, {"sub"})
    same(r["tool_choice"], choice)
    a = server().post("/v1/responses", body(tools=TOOLS, tool_choice=choice))
    same((a.status, a.error["param"], a.error["message"]), (400, "tool_choice", "tool_choice: no tool is called 'sub'"))
    for wrong in {**choice, "mode": "x"}, {**choice, "tools": []}, {**choice, "tools": [{"type": "function"}]}, {"type": "allowed_tools"}:
        a = server().post("/v1/responses", body(tool_choice=wrong))
        same((a.status, a.error["param"]), (400, "tool_choice"), str(a.body))


def test_wrong_requests_are_refused_by_name():
    for field, value in [("input", None), ("input", []), ("input", [{"type": "image_generation_call"}]), ("input", [{"role": "x", "content": ""}]),
                         ("input", [{"role": "user", "content": [{"type": "input_image"}]}]), ("input", [{"type": "function_call"}]),
                         ("input", [{"type": "function_call_output"}]), ("previous_response_id", "resp_1"), ("conversation", "c"),
                         ("background", True), ("truncation", "auto"), ("top_logprobs", 2), ("include", ["file_search_call.results"]),
                         ("tools", 3), ("tools", [{"type": "custom"}]), ("tool_choice", {"type": "x"}), ("text", {"verbosity": "low"}),
                         ("text", "x"), ("text", {"forma": {}}), ("include", "x"), ("reasoning", "high"), ("reasoning", {"effort": 3}),
                         ("reasoning", {"effort": "huge"}), ("reasoning", {"eff": "low"}),
                         ("instructions", 3), ("temperature", "x"), ("max_output_tokens", 0), ("max_tokens", 9), ("input", "a" * 9000)]:
        a = server().post("/v1/responses", body(**{field: value}))
        same((a.status, a.error["param"]), (400, field), str(a.body))
    same(server().post("/v1/responses", body(previous_response_id="x")).error["code"], "unsupported_parameter")
    same(bare(respond(tools=TOOLS + [{"type": "web_search"}])["output"]), WANTED)  # a tool that OpenAI would run is left out


def test_a_form_that_is_wrong_is_told_by_the_name_it_has_here():
    for wrong, part in ({"type": "xml"}, "text.format.type: 'xml'"), ({"type": "json_schema", "name": "x"}, "text.format.json_schema.schema: missing"), (
            {"type": "json_schema", "name": "x", "schema": {"type": "array", "uniqueItems": True}}, "Invalid grammar in text.format: #/uniqueItems"):
        a = server().post("/v1/responses", body(tools=[], text={"format": wrong}))
        same((a.status, a.error["param"], part in a.error["message"]), (400, "text", True), str(a.body))


def test_a_form_holds_behind_the_thought():
    r = respond(tools=[], text={"format": {"type": "json_schema", "name": "x", "schema": {"enum": ["a", "b"]}, "strict": True}})
    same((bare(r["output"])[0], bare(r["output"])[1][1] in ('"a"', '"b"')), (("reasoning", "Hm."), True))


def test_the_server_ends_as_it_should():
    server().stop()


main(globals())
