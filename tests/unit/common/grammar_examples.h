/* Grammars with texts that they accept and refuse. */
#ifndef VT_TESTS_COMMON_GRAMMAR_EXAMPLES_H
#define VT_TESTS_COMMON_GRAMMAR_EXAMPLES_H

#include "grammar/grammar.h"

typedef struct example {
    vt_grammar_kind kind;
    const char *grammar;
    const char *good[12], *bad[12];
} example;

#define S VT_GRAMMAR_JSON_SCHEMA
#define R VT_GRAMMAR_REGEX
#define G VT_GRAMMAR_GBNF

static const example examples[] = {
    {VT_GRAMMAR_JSON_OBJECT,
     "",
     {"{}", "{\"a\": 1}", "{\"a\":[1, {\"b\":null}]}", "{\n  \"a\": \"x\\u00e9\\/\"\n}"},
     {"", "[]", "1", "{\"a\"}", "{\"a\":1,}", "{} ", "{\"a\":01}", "{\"a\":\"\t\"}"}},
    {S, "true", {"1", "\"x\"", "[]", "null", "-0.5e+3", "[[[]]]"}, {"", "01", "1.", "nul", "[,]"}},
    {S,
     "{\"type\":\"string\"}",
     {"\"\"", "\"x\"", "\"\\ud83d\\ude00\"", "\"\xF0\x9F\x98\x80\""},
     {"x", "\"\n\"", "\"\\ud83d\"", "\"\\x\"", "\"\xC0\x80\"", "\"\xED\xA0\x80\""}},
    {S,
     "{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
     {"\"ab\"", "\"abc\"", "\"\xC3\xA9\xC3\xA9\"", "\"\\n\\n\"", "\"\\u0041b\""},
     {"\"a\"", "\"abcd\"", "\"\xC3\xA9\"", "\"\"", "\"a\n\""}},
    {S,
     "{\"type\":\"integer\",\"minimum\":-5,\"maximum\":12}",
     {"-5", "0", "-0", "12", "9", "-1"},
     {"-6", "13", "100", "1.0", "00", "-", "1e0"}},
    {S,
     "{\"type\":\"number\",\"exclusiveMinimum\":0.5,\"maximum\":1.25}",
     {"0.51", "1", "1.25", "1.250", "1.0", "0.500001"},
     {"0.5", "0.50", "1.26", "2", "-1", "1.251"}},
    {S,
     "{\"type\":\"number\",\"multipleOf\":0.01}",
     {"0.01", "1", "-3.10", "1.5", "0.010"},
     {"0.015", "0.001"}},
    {S, "{\"type\":\"integer\",\"multipleOf\":7}", {"0", "7", "-14", "700"}, {"1", "8", "71"}},
    {S,
     "{\"minimum\":9223372036854775807,\"type\":\"integer\"}",
     {"9223372036854775807", "9223372036854775808"},
     {"9223372036854775806", "1"}},
    {S, "{\"type\":\"string\",\"pattern\":\"foo\"}", {"\"foo\"", "\"xfoox\""}, {"\"fo\"", "\"\""}},
    {S, "{\"type\":\"string\",\"pattern\":\"a$\"}", {"\"ba\"", "\"a\""}, {"\"ab\""}},
    {S, "{\"type\":\"string\",\"pattern\":\"^(?!foo)b\"}", {"\"bar\"", "\"b\""}, {"\"foob\""}},
    {S,
     "{\"type\":\"string\",\"pattern\":\"^(?=.*[0-9])(?=.*[a-z]).{3,}$\"}",
     {"\"a1b\"", "\"11z\""},
     {"\"a1\"", "\"abc\"", "\"123\""}},
    {S, "{\"type\":\"string\",\"pattern\":\"^\\\\S+$\"}", {"\"a\\\"b\""}, {"\"a b\"", "\"\\t\""}},
    {S,
     "{\"type\":\"string\",\"pattern\":\"^[a-z]+$\",\"maxLength\":3}",
     {"\"abc\""},
     {"\"abcd\"", "\"\""}},
    {S,
     "{\"type\":\"string\",\"pattern\":\"[0-9]{3}\"}",
     {"\"123\"", "\"12 12345 x\xC3\xA9\"", "\"\\n000\""},
     {"\"12\"", "\"1-2-3\"", "\"\""}},
    {S,
     "{\"type\":\"string\",\"pattern\":\"^[^/]+(/[^/]+)*$\",\"maxLength\":40}",
     {"\"a/b\"", "\"\xC3\xA9 {}/x\""},
     {"\"/a\"", "\"a//b\"", "\"a/\"", "\"\xC3\"", "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\""}},
    {S,
     "{\"type\":\"string\",\"pattern\":\"^[a-z]+(-[a-z]+)*$\",\"minLength\":2,\"maxLength\":20}",
     {"\"ab\"", "\"a-b\"", "\"aaaaaaaaaaaaaaaaaaaa\""},
     {"\"a\"", "\"ab-\"", "\"aaaaaaaaaaaaaaaaaaaaa\"", "\"aaaaaaaaaaaaaaaaaaa-b\""}},
    {S,
     "{\"type\":\"object\",\"patternProperties\":{\".*\":{\"type\":\"null\"}}}",
     {"{}", "{\"\":null}"},
     {"{\"a\":1}"}},
    {S,
     "{\"$defs\":{\"a\":{\"properties\":{\"x\":true}}},\"type\":\"object\",\"allOf\":[{\"$ref\":\"#"
     "/$defs/a\"},"
     "{\"properties\":{\"y\":true}}],\"additionalProperties\":true}",
     {"{\"x\":1,\"y\":2}", "{\"y\":2}"},
     {"{\"y\":2,\"x\":1}"}},
    {S,
     "{\"type\":\"string\",\"format\":\"date\"}",
     {"\"2024-02-29\"", "\"2023-12-31\"", "\"2000-02-29\"", "\"0004-02-29\"", "\"0400-02-29\""},
     {"\"2023-02-29\"", "\"1900-02-29\"", "\"2023-04-31\"", "\"2023-1-01\"", "\"0000-01-01\"",
      "\"0000-02-29\""}},
    {S,
     "{\"type\":\"string\",\"format\":\"time\"}",
     {"\"23:59:59Z\"", "\"00:00:00.5+01:00\""},
     {"\"23:59:60Z\"", "\"24:00:00Z\"", "\"00:00:00\""}},
    {S,
     "{\"type\":\"string\",\"format\":\"uuid\"}",
     {"\"123e4567-e89b-12d3-a456-426614174000\""},
     {"\"123e4567\""}},
    {S,
     "{\"type\":\"string\",\"format\":\"ipv6\"}",
     {"\"::1\"", "\"1:2:3:4:5:6:7:8\"", "\"::\""},
     {"\"1:2\"", "\":::\"", "\"12345::\""}},
    {S, "{\"type\":\"string\",\"format\":\"email\"}", {"\"a@b.com\""}, {"\"a\"", "\"@b\""}},
    {S,
     "{\"enum\":[\"a\",\"b\\\"\",1,null,{\"x\":[1]}]}",
     {"\"a\"", "\"b\\\"\"", "1", "null", "{\"x\": [1]}", "{\"x\":[1]}"},
     {"\"c\"", "2", "{}"}},
    {S, "{\"type\":\"string\",\"enum\":[\"x\",3]}", {"\"x\""}, {"3"}},
    {S, "{\"const\":\"a\\nb\"}", {"\"a\\nb\""}, {"\"ab\""}},
    {VT_GRAMMAR_CALLS,
     "{\"form\":\"hermes\",\"several\":true,\"tools\":[{\"name\":\"f\",\"parameters\":{"
     "\"properties\":"
     "{\"a\":{\"$ref\":\"#/$defs/"
     "n\"}},\"required\":[\"a\"],\"$defs\":{\"n\":{\"type\":\"integer\"}}}},"
     "{\"name\":\"g\"}]}",
     {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>",
      "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>\n"
      "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\":2}}\n</tool_call>"},
     {"", "text", "<tool_call>\n{\"name\": \"h\", \"arguments\": {}}\n</tool_call>",
      "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>",
      "<tool_call>\n{\"name\": \"g\", \"arguments\": 1}\n</tool_call>"}},
    {VT_GRAMMAR_CALLS,
     "{\"form\":\"mistral\",\"tools\":[{\"name\":\"f\",\"parameters\":{\"type\":\"object\"}}]}",
     {"[{\"name\": \"f\", \"arguments\": {}}]"},
     {"[]", "[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"f\", \"arguments\": {}}]"}},
    {VT_GRAMMAR_CALLS,
     "{\"form\":\"mistral\",\"optional\":true,\"tools\":[{\"name\":\"f\",\"parameters\":{}}]}",
     {"[{\"name\": \"f\", \"arguments\": {}}]", " [{\"name\": \"f\", \"arguments\": {}}]"},
     {"[]", "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}]"}},
    {VT_GRAMMAR_CALLS,
     "{\"form\":\"hermes\",\"optional\":true,\"several\":true,\"tools\":[{\"name\":\"g\"}]}",
     {"\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>",
      "\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": \"g\", "
      "\"arguments\": {}}\n</tool_call>"},
     {"<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>", "text"}},
    {S,
     "{\"oneOf\":[{\"type\":\"string\",\"pattern\":\"^a\"},{\"type\":\"string\",\"pattern\":\"^b\"}"
     ","
     "{\"enum\":[\"c\",\"d\"]},{\"type\":\"string\",\"format\":\"date\"}]}",
     {"\"ax\"", "\"b\"", "\"c\"", "\"2024-02-29\""},
     {"\"x\"", "\"ca\""}},
    {S,
     "{\"oneOf\":[{\"type\":\"integer\",\"maximum\":3},{\"type\":\"integer\",\"minimum\":4}]}",
     {"3", "4"},
     {"\"x\""}},
    {S,
     "{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"type\":\"object\",\"properties\":{"
     "\"t\":{"
     "\"const\":1}},\"required\":[\"t\"],\"additionalProperties\":false}},\"required\":[\"k\"],"
     "\"additionalProperties\":false},{\"type\":\"object\",\"properties\":{\"k\":{\"type\":"
     "\"object\","
     "\"properties\":{\"t\":{\"const\":2}},\"additionalProperties\":false}},"
     "\"additionalProperties\":false}]}",
     {"{\"k\":{\"t\":1}}", "{\"k\":{\"t\":2}}", "{}"},
     {"{\"k\":{\"t\":3}}"}},
    {S,
     "{\"oneOf\":[{\"allOf\":[{\"type\":\"string\"}]},{\"anyOf\":[{\"type\":\"null\"},{\"type\":"
     "\"boolean\"}]},{\"type\":\"array\",\"maxItems\":1},{\"type\":\"array\",\"minItems\":2}]}",
     {"\"x\"", "null", "[1,2]", "[]"},
     {"1"}},
    {VT_GRAMMAR_CALLS,
     "{\"form\":\"cohere\",\"several\":true,\"tools\":[{\"name\":\"f\",\"parameters\":{}}]}",
     {"<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": "
      "{}}\n]"
      "<|END_ACTION|>"},
     {"<|START_ACTION|>[\n    {\"tool_call_id\": \"\", \"tool_name\": \"f\", \"parameters\": {}}\n]"
      "<|END_ACTION|>"}},
    {VT_GRAMMAR_CALLS,
     "{\"form\":\"mistral-args\",\"several\":true,\"tools\":[{\"name\":\"f\",\"parameters\":{}}]}",
     {"[TOOL_CALLS]f[ARGS]{}[TOOL_CALLS]f[ARGS]{\"a\":1}"},
     {"[TOOL_CALLS]f{}", "f[ARGS]{}"}},
    {VT_GRAMMAR_CALLS,
     "{\"form\":\"llama3-json\",\"several\":true,\"tools\":[{\"name\":\"f\",\"parameters\":{}}]}",
     {"{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"f\", \"parameters\": {\"x\": [1]}}"},
     {"{}", "{\"name\": \"f\"}"}},
    {S,
     "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":"
     "\"string\"}},\"required\":[\"a\"],\"additionalProperties\":false}",
     {"{\"a\":1}", "{\"a\": 1, \"b\": \"x\"}"},
     {"{}", "{\"b\":\"x\"}", "{\"a\":1,\"c\":1}", "{\"b\":\"x\",\"a\":1}", "{\"a\":1,\"a\":1}"}},
    {S,
     "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}}}",
     {"{}", "{\"a\":1}", "{\"ab\":[]}", "{\"a\":1,\"b\":\"x\",\"c\":{}}", "{\"\":0}"},
     {"{\"a\":\"x\"}", "{\"b\":1,\"a\":\"x\"}"}},
    {VT_GRAMMAR_JSON_STRICT,
     "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}}}",
     {"{}", "{\"a\":1}"},
     {"{\"b\":1}"}},
    {S,
     "{\"type\":\"object\",\"properties\":{\"a\":true,\"b\":true,\"c\":true},\"minProperties\":2,"
     "\"additionalProperties\":false}",
     {"{\"a\":1,\"c\":2}", "{\"a\":1,\"b\":1,\"c\":2}"},
     {"{}", "{\"a\":1}"}},
    {S,
     "{\"type\":\"object\",\"minProperties\":3}",
     {"{\"\":1,\"a\":1,\"bc\":1}", "{\"z\":1,\"y\":1,\"xy\":1,\"\":1}"},
     {"{\"\":1,\"\":1,\"\":1}", "{\"z\":1,\"y\":1}"}},
    {S, "{\"type\":\"object\",\"maxProperties\":1}", {"{}", "{\"z\":1}"}, {"{\"z\":1,\"y\":1}"}},
    {S,
     "{\"type\":\"object\",\"patternProperties\":{\"^n_\":{\"type\":\"integer\"}},"
     "\"additionalProperties\":{\"type\":\"string\"}}",
     {"{\"n_a\":1,\"b\":\"x\"}"},
     {"{\"n_a\":\"x\"}", "{\"b\":1}"}},
    {S,
     "{\"type\":\"object\",\"required\":[\"q\"],\"properties\":{\"a\":true}}",
     {"{\"a\":1,\"q\":2}", "{\"q\":2}"},
     {"{\"a\":1}"}},
    {S,
     "{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":1,\"maxItems\":2}",
     {"[1]", "[1, 2]", "[\n 1,\n 2\n]"},
     {"[]", "[1,2,3]", "[\"x\"]"}},
    {S,
     "{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"string\"}],"
     "\"items\":false}",
     {"[]", "[1]", "[1,\"x\"]"},
     {"[\"x\"]", "[1,\"x\",2]"}},
    {S,
     "{\"$defs\":{\"t\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},\"k\":{"
     "\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/t\"}}},\"required\":[\"v\"],"
     "\"additionalProperties\":false}},\"$ref\":\"#/$defs/t\"}",
     {"{\"v\":1}", "{\"v\":1,\"k\":[{\"v\":2,\"k\":[]}]}"},
     {"{}", "{\"v\":1,\"k\":[1]}"}},
    {S, "{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"null\"}]}", {"1", "null"}, {"\"x\""}},
    {S,
     "{\"type\":\"object\",\"anyOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}",
     {"{\"a\":1}", "{\"b\":1}", "{\"a\":1,\"b\":2}"},
     {"{}", "\"x\"", "{\"c\":1}"}},
    {S, "{\"allOf\":[{\"type\":\"string\"},{\"enum\":[\"y\",42]}]}", {"\"y\""}, {"42"}},
    {S,
     "{\"allOf\":[{\"minimum\":3},{\"maximum\":5}],\"type\":\"integer\"}",
     {"3", "5"},
     {"2", "6"}},
    {S,
     "{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"a\"},\"x\":{\"type\":"
     "\"integer\"}},\"required\":[\"k\",\"x\"]},{\"type\":\"object\",\"properties\":{\"k\":{"
     "\"const\":\"b\"}},\"required\":[\"k\"]}]}",
     {"{\"k\":\"a\",\"x\":1}", "{\"k\":\"b\"}"},
     {"{\"k\":\"a\"}", "{\"k\":\"c\"}"}},
    {S, "{\"type\":\"string\",\"nullable\":true}", {"null", "\"x\""}, {"1"}},
    {S,
     "{\"type\":\"object\",\"properties\":{\"a\":false},\"additionalProperties\":false}",
     {"{}"},
     {"{\"a\":1}"}},
    {R, "[a-z]+(-[0-9]{2,3})?", {"abc", "a-12", "a-123"}, {"", "a-1", "a-1234", "A"}},
    {R, "(foo|bar)*baz|\\d+", {"baz", "foobarbaz", "7"}, {"foo", ""}},
    {R,
     "^a.c$|x$",
     {"abc", "x",
      "a\xC3\xA9"
      "c"},
     {"ac", "a\nc"}},
    {R, "\\w+@\\w+\\.com", {"me@x.com"}, {"me@x.org"}},
    {R, "[^\\x00-\\x7f]{2}", {"\xC3\xA9\xE6\xBC\xA2"}, {"a\xC3\xA9", "\xC3\xA9"}},
    {R, "\\p{Lu}\\p{Ll}*", {"Abc", "\xC3\x89t"}, {"abc", "A1"}},
    {R, "\\p{Letter}+", {"aB\xC3\x89", "\xE4\xB8\xAD"}, {"a1", ""}},
    {R,
     "\\p{General_Category=Decimal_Number}\\p{gc=N}",
     {"12", "9\xC2\xBD"},
     {"\xC2\xBD"
      "9"}},
    {R, "\\P{Uppercase_Letter}\\p{LC}", {"aB", "1a"}, {"Aa", "a1", "a\xE4\xB8\xAD"}},
    {R,
     "\\p{sc=Latn}\\p{Script=Han}",
     {"a\xE4\xB8\xAD"},
     {"\xE4\xB8\xAD"
      "a",
      "ab"}},
    {R,
     "\\p{ASCII}\\p{Any}\\p{punct}",
     {"a\xE4\xB8\xAD!"},
     {"\xC3\x89"
      "a!",
      "aaa"}},
    {R, "\\p{Assigned}", {"a", "\xE4\xB8\xAD"}, {"\xCD\xB8"}},
    {R, "(a?){30}a{30}", {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}, {"a"}},
    {VT_GRAMMAR_CHOICE, "[\"yes\",\"no\",\"not sure\"]", {"yes", "no", "not sure"}, {"not", ""}},
    {G, "root ::= \"a\" b* # note\nb ::= [0-9]{2} | \"x\"", {"a", "a12", "ax12x"}, {"a1", "b"}},
    {G,
     "root ::= item (\",\" item)*\nitem ::= \"(\" root \")\" | [a-z]+\n",
     {"a", "a,b", "(a,(b)),c"},
     {"(a", "a,", ")"}},
    {G, "root ::= [a-z]+ \"x\"", {"ax", "xx", "abxx"}, {"x", "ab"}},
    {G,
     "root ::= \"\\\"\" [^\"\\x00-\\x1F] \"\\\"\"\n",
     {"\"a\"", "\"\xC3\xA9\""},
     {"\"\"", "\"\n\""}},
    {R, "[\xC3\xA9-\xC4\xBF]", {"\xC3\xA9", "\xC3\xBF", "\xC4\x80"}, {"\xC3\xA8", "\xC5\x80"}},
    {S,
     "{\"type\":\"string\",\"pattern\":\"^[\\u001f ]$\"}",
     {"\"\\u001f\"", "\" \""},
     {"\"\x1f\""}},
    {S,
     "{\"enum\":[1,2,3],\"type\":\"number\",\"exclusiveMinimum\":1,\"exclusiveMaximum\":3}",
     {"2"},
     {"1", "3"}},
    {S, "{\"type\":\"number\",\"minimum\":0}", {"0", "-0", "-0.0", "0.1"}, {"-0.1", "-1"}},
    {S, "{\"type\":\"number\",\"maximum\":0}", {"0", "-0", "-0.1"}, {"0.1", "1"}},
    {S, "{\"not\":{\"type\":[\"string\",\"object\"]}}", {"1", "[]", "null"}, {"\"a\"", "{}"}},
    {S, "{\"type\":\"integer\",\"not\":{\"enum\":[3,5,\"x\"]}}", {"2", "4", "6"}, {"3", "5"}},
    {S,
     "{\"type\":\"string\",\"not\":{\"enum\":[\"ab\",\"b\"]}}",
     {"\"a\"", "\"abc\""},
     {"\"ab\"", "\"b\""}},
    {S, "{\"type\":\"number\",\"not\":{\"multipleOf\":0.5}}", {"0.3", "-1.25"}, {"1", "2.5", "0"}},
    {S, "{\"not\":{\"type\":\"integer\"},\"type\":\"number\"}", {"1.5", "-0.25"}, {"1", "1.0"}},
    {S, "{\"type\":\"object\",\"not\":{\"required\":[\"a\"]}}", {"{}", "{\"b\":1}"}, {"{\"a\":1}"}},
    {S,
     "{\"type\":\"object\",\"not\":{\"additionalProperties\":{\"type\":\"string\"}}}",
     {"{\"a\":1}", "{\"a\":\"x\",\"b\":1}"},
     {"{}", "{\"a\":\"x\"}"}},
    {S,
     "{\"type\":\"array\",\"not\":{\"items\":{\"type\":\"string\"}}}",
     {"[1]", "[\"x\",1]"},
     {"[]", "[\"x\"]"}},
    {S,
     "{\"$defs\":{\"t\":{\"anyOf\":[{\"type\":\"null\"},{\"type\":\"array\",\"items\":{\"$ref\":\"#"
     "/$defs"
     "/t\"}}]}},\"not\":{\"$ref\":\"#/$defs/t\"}}",
     {"1", "[1]", "[[],[[2]]]"},
     {"null", "[]", "[[null]]"}},
    {S,
     "{\"type\":\"object\",\"properties\":{\"k\":{\"enum\":[\"a\",\"b\"]},\"n\":{}},\"required\":["
     "\"k\"],\""
     "additionalProperties\":false,\"if\":{\"properties\":{\"k\":{\"const\":\"a\"}}},\"then\":{"
     "\"req"
     "uired\":[\"n\"]},\"else\":{\"properties\":{\"n\":false}}}",
     {"{\"k\":\"a\",\"n\":1}", "{\"k\":\"b\"}"},
     {"{\"k\":\"a\"}", "{\"k\":\"b\",\"n\":1}"}},
    {S,
     "{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"dependentRequired\":{\"a\":[\"b\"]}"
     ",\"a"
     "dditionalProperties\":false}",
     {"{}", "{\"b\":1}", "{\"a\":1,\"b\":1}"},
     {"{\"a\":1}"}},
    {S,
     "{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"dependentSchemas\":{\"a\":{"
     "\"properti"
     "es\":{\"b\":{\"type\":\"null\"}}}}}",
     {"{\"b\":1}", "{\"a\":1,\"b\":null}", "{\"a\":1}"},
     {"{\"a\":1,\"b\":1}"}},
    {S,
     "{\"type\":\"object\",\"patternProperties\":{\"^a\":{\"minimum\":2},\"b$\":{\"type\":"
     "\"integer\"}"
     "}}",
     {"{\"ab\":2,\"a\":2.5}", "{\"b\":1}", "{\"c\":\"x\"}"},
     {"{\"ab\":2.5}", "{\"a\":1}", "{\"b\":0.5}"}},
    {S,
     "{\"type\":\"object\",\"propertyNames\":{\"not\":{\"enum\":[\"b\"]},\"pattern\":\"^[ab]+$\"}}",
     {"{}", "{\"ab\":1,\"a\":1}"},
     {"{\"b\":1}", "{\"c\":1}"}},
    {S,
     "{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"contains\":{\"minimum\":5},"
     "\"minContains"
     "\":2,\"maxContains\":2}",
     {"[5,1,6]", "[9,9]"},
     {"[5,1]", "[5,6,7]"}},
    {S,
     "{\"type\":\"array\",\"items\":{\"enum\":[\"a\",\"b\",1]},\"uniqueItems\":true}",
     {"[]", "[\"b\",\"a\"]", "[1,\"a\",\"b\"]"},
     {"[\"a\",\"a\"]", "[\"a\",1,\"a\"]"}},
    {S,
     "{\"type\":\"array\",\"items\":{\"enum\":[1,2,3,4,5,6,7,8,9,10,11,12]},\"uniqueItems\":true}",
     {"[]", "[12]", "[1, 3,12]", "[1,2,3,4,5,6,7,8,9,10,11,12]"},
     {"[1,1]", "[11,12,12]", "[1,13]", "[1,]"}},
    {S,
     "{\"type\":\"array\",\"items\":{\"enum\":[1,2,3,4,5,6,7,8,9,10,11,\"x\"]},\"uniqueItems\":"
     "true,\"minItems\":2,\"maxItems\":3}",
     {"[1,\"x\"]", "[2,5,11]"},
     {"[]", "[7]", "[1,2,3,4]", "[\"x\",\"x\"]"}},
    {S,
     "{\"type\":\"array\",\"items\":{\"enum\":[1,2,3,4,5,6,7,8,9,10,11,12],\"minimum\":6},"
     "\"uniqueItems\":true,\"minItems\":1}",
     {"[6,12]", "[7]"},
     {"[]", "[5]", "[1,6]"}},
    {S,
     "{\"type\":\"object\",\"allOf\":[{\"properties\":{\"a\":{}}},{\"anyOf\":[{\"properties\":{"
     "\"b\":{"
     "}},\"required\":[\"b\"]},{\"properties\":{\"c\":{}},\"required\":[\"c\"]}]}],\"unevaluatedPro"
     "perties\":false}",
     {"{\"a\":1,\"b\":1}", "{\"b\":1,\"c\":1}"},
     {"{\"a\":1}", "{\"b\":1,\"d\":1}"}},
    {S,
     "{\"type\":\"array\",\"prefixItems\":[{\"type\":\"string\"}],\"if\":{\"prefixItems\":[{"
     "\"const\":"
     "\"x\"}],\"minItems\":1},\"then\":{\"prefixItems\":[true,{\"type\":\"null\"}]},\"unevaluatedIt"
     "ems\":false}",
     {"[]", "[\"a\"]", "[\"x\",null]"},
     {"[\"a\",null]", "[\"x\",1]"}},
    {S,
     "{\"oneOf\":[{\"type\":\"number\"},{\"type\":\"integer\"},{\"type\":\"string\",\"minLength\":"
     "2},{"
     "\"type\":\"string\",\"pattern\":\"^a\"}]}",
     {"1.5", "\"bb\"", "\"a\""},
     {"1", "\"ab\"", "\"b\""}},
    {S,
     "{\"enum\":[{\"a\":1},{\"a\":2,\"b\":[1]},[2],3],\"not\":{\"type\":\"object\",\"properties\":{"
     "\"a\":{\"const\":1}},\"r"
     "equired\":[\"a\"]}}",
     {"{\"a\":2,\"b\":[1]}", "[2]", "3"},
     {"{\"a\":1}", "{\"a\":2}"}},
    {S,
     "{\"$id\":\"https://example.com/s/root\",\"$defs\":{\"x\":{\"$id\":\"../t/"
     "x\",\"$defs\":{\"y\":{\""
     "$anchor\":\"in\",\"type\":\"null\"}},\"anyOf\":[{\"$ref\":\"#in\"},{\"$ref\":\"/s/"
     "root#at\"}]},\"z"
     "\":{\"$anchor\":\"at\",\"type\":\"boolean\"}},\"type\":\"array\",\"items\":{\"$ref\":\"/t/"
     "x\"}}",
     {"[]", "[null,true]"},
     {"[1]"}},
    {S,
     "{\"$dynamicAnchor\":\"node\",\"type\":\"object\",\"properties\":{\"k\":{\"type\":\"array\","
     "\"item"
     "s\":{\"$dynamicRef\":\"#node\"}}},\"additionalProperties\":false}",
     {"{}", "{\"k\":[{},{\"k\":[]}]}"},
     {"{\"k\":[1]}"}},
    /* the document's own schema with the anchor comes before that of what it refers to */
    {S,
     "{\"$id\":\"http://x/"
     "root\",\"$ref\":\"list\",\"$defs\":{\"own\":{\"$dynamicAnchor\":\"t\",\"type\":\"null\"},"
     "\"list\":{\"$id\":\"list\",\"type\":\"array\",\"items\":{\"$dynamicRef\":\"#t\"},\"$defs\":{"
     "\"any\":{\"$dynamicAnchor\":\"t\"}}}}}",
     {"[]", "[null,null]"},
     {"[1]", "[[]]"}},
    /* without an anchor where it leads to at first it is a $ref */
    {S,
     "{\"$ref\":\"list\",\"$defs\":{\"own\":{\"$dynamicAnchor\":\"t\",\"type\":\"null\"},\"list\":{"
     "\"$id\":\"list\",\"type\":\"array\",\"items\":{\"$dynamicRef\":\"#t\"},\"$defs\":{\"one\":{"
     "\"$anchor\":\"t\",\"const\":1}}}}}",
     {"[]", "[1,1]"},
     {"[null]"}},
    {S,
     "{\"$recursiveAnchor\":true,\"$ref\":\"tree\",\"maxItems\":1,\"$defs\":{\"tree\":{\"$id\":"
     "\"tree\",\"$recursiveAnchor\":true,\"type\":\"array\",\"items\":{\"$recursiveRef\":\"#\"}}}}",
     {"[]", "[[[]]]"},
     {"[[],[]]", "[[[],[]]]"}},
    {S,
     "{\"$recursiveAnchor\":true,\"$ref\":\"tree\",\"maxItems\":1,\"$defs\":{\"tree\":{\"$id\":"
     "\"tree\",\"type\":\"array\",\"items\":{\"$recursiveRef\":\"#\"}}}}",
     {"[]", "[[[],[]]]"},
     {"[[],[]]"}},
    {S, "{\"anyOf\":[{\"enum\":[]},{\"const\":1}]}", {"1"}, {"2", "null"}},
    {S,
     "{\"multipleOf\":0.5,\"allOf\":[{\"multipleOf\":0.75}],\"type\":\"number\"}",
     {"1.5", "0", "-3"},
     {"0.5", "0.75"}},
    {S, "{\"enum\":[-5,-3],\"minimum\":-4}", {"-3"}, {"-5"}},
    {S,
     "{\"type\":\"integer\",\"minimum\":1,\"exclusiveMinimum\":1,\"maximum\":3}",
     {"2", "3"},
     {"1", "4"}},
    {S,
     "{\"type\":\"integer\",\"minimum\":-5,\"allOf\":[{\"minimum\":-3}]}",
     {"-3", "0"},
     {"-4", "-5"}},
    {G, "root ::= [^\\x00-\\U0010FFFE]", {"\xF4\x8F\xBF\xBF"}, {"a", "\xF4\x8F\xBF\xBE"}},
    {G, "root ::=\n  one |\n  two\none ::= \"1\"\ntwo ::= \"2\" root?", {"1", "2", "221"}, {"3"}},
};
enum { EXAMPLES = sizeof examples / sizeof *examples };

/* Counts below, at and above the lengths of the longest tokens, 20 and 37 bytes. */
static const struct {
    vt_grammar_kind kind;
    const char *grammar;
} counted[] = {
    {R, "[a-z ]{30}"},
    {R, "[a-z\"]{13,30}a\""},
    {R, "[a-z ]{60}"},
    {R, "[ax ]{17,37}b"},
    {R, "[b-e]{16}[a]{16}[ax]{0,21}"},
    {R, "a{11}|[a]{12}x|a{13}y|a{26}|[ab]{28}c{14}"},
    {R, "([a-e]{2,20} ){3,18}the"},
    {R, "([ab]{14,15} ){2}(a{0,13}|\\[{40})"},
    {R, "(aaaa|c){0,20}t?"},
    {R, "(\xC3\xA9|[a-c]){16,20}"},
    {R, "\\P{L}{5,18}"},
    {R, "(?=.*b)[a-c]{14,30}"},
    {R, "(?![a-c]{15})[a-c ]{12,30}"},
    {R, "([ab]?){13,30}c"},
    {S, "{\"type\":\"string\",\"minLength\":14,\"maxLength\":29}"},
    {S, "{\"type\":\"string\",\"pattern\":\"^[a-c ]{14,29}$\"}"},
    {S, "{\"type\":\"string\",\"pattern\":\"^([a-c]{3,} )+$\",\"maxLength\":40}"},
    {S, "{\"type\":\"string\",\"pattern\":\"^[a-c]{0,20} "
        "?[a-c]{15}$\",\"minLength\":18,\"maxLength\":33}"},
    {S, "{\"type\":\"string\",\"pattern\":\"^[a-c]*b$\",\"minLength\":60,\"maxLength\":140}"},
    {S, "{\"type\":\"string\",\"pattern\":\"^[a-c]{0,150}b$\",\"minLength\":45}"},
    {R, "(?=[a-c]{25,160}$)[a-c]{0,150}b"},
    {S, "{\"enum\":[\"aaaaaaaaaaaaaa\",\"aaaaaaaaaaaaab\"]}"},
    /* ASCII strings of which nearly all characters lead to one state */
    {S, "{\"type\":\"string\",\"pattern\":\"^[a-z0-9]+(-[a-z0-9]+)*$\",\"maxLength\":90}"},
    {S, "{\"type\":\"string\",\"pattern\":\"^[a-z]+[:/]{2}[a-zA-Z ]+$\"}"},
    {S, "{\"items\":{\"type\":\"string\",\"pattern\":\"^[a-z ]*\\\"?[a-z,]*$\"}}"},
    {G, "root ::= [a-c]{14,30} (\"the\" | \" \"{13})"},
};
enum { COUNTED = sizeof counted / sizeof *counted };

#endif
