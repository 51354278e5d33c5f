#!/usr/bin/env python3
"""Anthropic's /v1/messages and /v1/messages/count_tokens, with a model that answers a script."""
import json, os

import scripted_model
from served import *
from tap import *

ONE = {}
PIECES = ["<think>", "Hm.", "</think>\n\n", "I add", " it.", "\n<tool_call>", "{\"name\": \"add\", \"arguments\": {\"a\": 1}}", "</tool_call>"]
TOOLS = [{"name": "add", "description": "Adds.", "input_schema": {"type": "object", "properties": {"a": {"type": "number"}}}}]


def server():
    if "s" not in ONE:
        ONE["s"] = Server("--served-model-name", "tiny", model=scripted_model.make(os.path.join(folder(), "m"), PIECES))
    return ONE["s"]


def body(**kw):
    return {"model": "claude-sonnet-4", "max_tokens": 40, "temperature": 0, "messages": [{"role": "user", "content": "Hi"}],
            "tools": TOOLS, **kw}


def message(**kw):
    return server().good("/v1/messages?beta=true", body(**kw)).json


def bare(blocks):
    """Blocks without what differs from answer to answer."""
    return [{k: v for k, v in b.items() if k not in ("id", "signature", "citations")} for b in blocks]


WANTED = [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "I add it."},
          {"type": "tool_use", "name": "add", "input": {"a": 1}}]


def test_a_message_has_blocks_for_thought_text_and_calls():
    m = message()
    same(bare(m["content"]), WANTED)
    same((m["type"], m["role"], m["stop_reason"], m["stop_sequence"], m["model"]), ("message", "assistant", "tool_use", None, "tiny"))
    assert m["content"][0]["signature"] and m["content"][2]["id"].startswith("toolu_"), m
    u = m["usage"]
    same(u["output_tokens"], len(PIECES) + 1)
    same(server().good("/v1/messages/count_tokens", {k: v for k, v in body().items() if k in ("model", "messages", "tools")}).json,
         {"input_tokens": u["input_tokens"] + u["cache_read_input_tokens"]})


def events(**kw):
    a = server().good("/v1/messages", body(stream=True, **kw))
    lines = a.body.decode().split("\n")
    names = [l[7:] for l in lines if l.startswith("event: ")]
    same(names, [e["type"] for e in a.events])
    return a.events


def test_a_stream_adds_up_to_the_whole_message():
    blocks, sums = [], {}
    all_events = events()
    same(all_events[0]["type"], "message_start")
    for e in all_events:
        if e["type"] == "content_block_start":
            same(e["index"], len(blocks))
            blocks.append(dict(e["content_block"]))
        elif e["type"] == "content_block_delta":
            same(e["index"], len(blocks) - 1)
            d, b = dict(e["delta"]), blocks[-1]
            kind = d.pop("type")
            (key, value), = d.items()
            same(kind, {"text": "text_delta", "thinking": "thinking_delta", "signature": "signature_delta",
                        "partial_json": "input_json_delta"}[key])
            b[key] = b.get(key, "") + value
    for b in blocks:
        if "partial_json" in b:
            b["input"] = json.loads(b.pop("partial_json"))
    same(bare(blocks), WANTED)
    assert blocks[0]["signature"], blocks
    same([e["type"] for e in all_events[-2:]], ["message_delta", "message_stop"])
    same((all_events[-2]["delta"]["stop_reason"], all_events[-2]["usage"]["output_tokens"]), ("tool_use", len(PIECES) + 1))


def test_the_reason_of_the_end_is_told():
    same(message(max_tokens=4)["stop_reason"], "max_tokens")
    m = message(stop_sequences=["add"])
    same((m["stop_reason"], m["stop_sequence"], bare(m["content"])[1]), ("stop_sequence", "add", {"type": "text", "text": "I "}))
    m = message(tools=[])
    same((m["stop_reason"], len(m["content"])), ("end_turn", 2))


def test_a_second_turn_reads_the_cache():
    said = [{"role": "user", "content": "A long story. " * 20}]
    first = message(messages=said, system=[{"type": "text", "text": "x-anthropic-billing-header: 1"}, {"type": "text", "text": "Be brief."}])
    said += [{"role": "assistant", "content": first["content"]},
             {"role": "user", "content": [{"type": "tool_result", "tool_use_id": first["content"][2]["id"], "content": "2"},
                                          {"type": "text", "text": "And?"}]}]
    second = message(messages=said, system=[{"type": "text", "text": "x-anthropic-billing-header: 2"}, {"type": "text", "text": "Be brief."}])
    had = first["usage"]["input_tokens"] + first["usage"]["cache_read_input_tokens"]
    assert second["usage"]["cache_read_input_tokens"] >= had - 64 > 200, (first["usage"], second["usage"])


def tokens_of(**kw):
    return server().good("/v1/messages/count_tokens", {"model": "tiny", **kw}).json["input_tokens"]


def test_blocks_become_messages():
    chat = [{"role": "system", "content": "S"}, {"role": "user", "content": "ab"},
            {"role": "assistant", "content": "c", "reasoning_content": "r",
             "tool_calls": [{"id": "t1", "type": "function", "function": {"name": "add", "arguments": "{\"a\": 1}"}}]},
            {"role": "tool", "tool_call_id": "t1", "content": "2"}, {"role": "user", "content": "d"}]
    blocks = [{"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "b"}]},
              {"role": "assistant", "content": [{"type": "thinking", "thinking": "r", "signature": "x"}, {"type": "text", "text": "c"},
                                                {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1}}]},
              {"role": "user", "content": [{"type": "text", "text": "d"}, {"type": "tool_result", "tool_use_id": "t1",
                                                                          "content": [{"type": "text", "text": "2"}]}]}]
    same(tokens_of(system="S", messages=blocks), server().good("/tokenize", {"messages": chat}).json["count"])


def test_thinking_can_be_turned_off():
    same(bare(message(thinking={"type": "disabled"})["content"])[0]["type"], "thinking")  # this model thinks whatever it is told
    assert tokens_of(messages=body()["messages"], thinking={"type": "disabled"}) > tokens_of(messages=body()["messages"])


def test_only_enabled_thinking_has_a_budget():
    same(bare(message(thinking={"type": "adaptive", "budget_tokens": -7})["content"]), WANTED)
    a = server().post("/v1/messages", body(thinking={"type": "enabled", "budget_tokens": -7}))
    assert a.status == 400 and "budget" in a.error["message"], a.body


def test_wrong_requests_are_refused_in_anthropics_form():
    for kw, part in [({"max_tokens": None}, "max_tokens: missing"), ({"messages": None}, "messages: missing"), ({"messages": []}, "messages"), ({"messages": 3}, "messages"),
                     ({"messages": [{"role": "x", "content": ""}]}, "messages[0].role: 'x' found"), ({"mcp_servers": []}, "mcp_servers"),
                     ({"messages": [{"role": "assistant", "content": "I"}]}, "continued"), ({"system": 3}, "system"),
                     ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "image"),
                     ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, "tool_use_id"),
                     ({"messages": [{"role": "assistant", "content": [{"type": "tool_use"}]}, {"role": "user", "content": ""}]}, "[0].content[0].id: missing"),
                     ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "bash_20250124"), ({"tools": [{"name": "a"}]}, "input_schema"),
                     ({"tool_choice": {"type": "x"}}, "tool_choice.type: 'x' found"), ({"tool_choice": {"type": "tool"}}, "tool_choice.name: missing"),
                     ({"thinking": {"type": "x"}}, "thinking.type: 'x' found"),
                     ({"temperature": "x"}, "temperature"), ({"stop_sequences": ["a"] * 99}, "stop_sequences: "),
                     ({"thinking": {"type": "enabled", "budget_tokens": 0}}, "thinking.budget_tokens: "),
                     ({"tools": [], "output_config": {"format": {"type": "json_schema", "schema": {"type": "array", "uniqueItems": True}}}},
                      "in output_config.format: "), ({"stop": "x"}, "stop: "), ({"output_config": 1}, "output_config"),
                     ({"output_config": {"effort": "x"}}, "output_config.effort: "), ({"model": "other"}, "model")]:
        a = server().post("/v1/messages", body(**kw))
        assert a.status in (400, 404) and a.json["type"] == "error", (kw, a.status, a.body)
        same(a.error["type"], "not_found_error" if "model" in kw else "invalid_request_error")
        assert part in a.error["message"], (kw, a.error)
    a = server().post("/v1/messages", body(messages=[{"role": "user", "content": "a" * 9000}]))
    assert a.status == 400 and a.error["message"].startswith("prompt is too long: "), a.body
    a = server().post("/v1/messages/count_tokens", {"messages": 1})
    same((a.status, a.json["type"]), (400, "error"))
    s = Server(env={"VITRINE_API_KEY": "secret"})
    for a, kind in ((server().post("/v1/messages/batches", {}), "not_found_error"), (server().get("/v1/messages"), "invalid_request_error"),
                    (s.post("/v1/messages", body()), "authentication_error")):
        same((a.json["type"], a.error["type"], a.json["request_id"][:4]), ("error", kind, "req-"), str(a.body))
    s.stop()


def test_the_server_ends_as_it_should():
    server().stop()


main(globals())
