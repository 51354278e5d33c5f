/* Grammars (src/grammar): each front end accepts and refuses texts byte by byte; masks allow
 * exactly the tokens that can be taken; what cannot be enforced is refused with its place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "common/grammar_fixture.h"
#include "grammar/internal.h"

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

static void test_examples_when_taken_byte_by_byte_then_accepted_as_they_should(void **state)
{
    (void)state;
    int failed = 0;
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        const example *e = &examples[i];
        vt_grammar *g = compile(e->kind, e->grammar);
        for (int k = 0; k < 12 && e->good[k]; k++)
            if (!accepts(g, e->good[k]))
                failed++, print_error("%s does not accept %s\n", e->grammar, e->good[k]);
        for (int k = 0; k < 12 && e->bad[k]; k++)
            if (accepts(g, e->bad[k]))
                failed++, print_error("%s accepts %s\n", e->grammar, e->bad[k]);
        vt_grammar_unref(g);
    }
    assert_int_equal(failed, 0);
}

static void test_end_token_when_the_text_may_not_end_or_has_ended_then_refused(void **state)
{
    (void)state;
    vt_grammar *g = compile(G, "root ::= \"ab\"");
    vt_matcher *m = vt_matcher_new(g, 0);
    int32_t end = vocab->eos[0];
    vt_matcher_undo(m, 1);                 /* there is nothing to take back */
    assert_false(vt_matcher_take(m, end)); /* "ab" is to come */
    assert_true(vt_matcher_take(m, 'a') && vt_matcher_take(m, 'b'));
    assert_true(vt_matcher_take(m, end));
    assert_false(vt_matcher_take(m, end));
    vt_matcher_undo(m, 1);
    assert_true(vt_matcher_take(m, end));
    vt_matcher_undo(m, 3);
    assert_true(vt_matcher_take(m, 'a'));
    vt_matcher_free(m);
    vt_grammar_unref(g);
}

/* ---- masks ---- */

static bool bit(const uint32_t *words, int32_t id) { return words[id / 32] >> id % 32 & 1; }

/* A token is allowed if and only if its bytes, as tokens of one byte, can be taken one after the
 * other. Writes down those that are, but for the end, and returns how many they are. */
static int32_t check_mask(vt_matcher *m, int step, int32_t allowed[1024])
{
    int32_t n = vt_tokenizer_vocab(tokenizer), n_words = (n + 31) / 32, n_allowed = 0;
    uint32_t words[64] = {0};
    if (!vt_matcher_mask(m, words, n_words))
        fail_msg("nothing is allowed");
    for (int32_t id = 0; id < n; id++) {
        vt_buf piece = {0};
        bool can = id < n - 1;
        if (can)
            vt_tokenizer_piece(tokenizer, id, &piece);
        size_t taken = 0;
        for (; can && taken < piece.len; taken++)
            if (!vt_matcher_take(m, (unsigned char)piece.data[taken]))
                break;
        can = id == n - 1 ? vt_matcher_accepts(m) : taken == piece.len;
        vt_matcher_undo(m, (int32_t)taken);
        if (can != bit(words, id))
            fail_msg("step %d, token %d '%s': mask says %d, its bytes say %d", step, id,
                     piece.len ? piece.data : "", bit(words, id), can);
        vt_buf_release(&piece);
        if (can && id != n - 1)
            allowed[n_allowed++] = id;
    }
    return n_allowed;
}

/* Walks at random through what is allowed. */
static void check_masks(vt_grammar *g, uint64_t draw)
{
    vt_matcher *m = vt_matcher_new(g, 0);
    for (int step = 0; step < 40; step++) {
        int32_t allowed[1024], n = check_mask(m, step, allowed);
        if (n == 0)
            break;
        assert_true(vt_matcher_take(m, allowed[vt_random_next(&draw) % (uint64_t)n]));
    }
    vt_matcher_free(m);
}

static void test_mask_when_walking_at_random_then_exactly_what_can_be_taken(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        vt_grammar *g = compile(examples[i].kind, examples[i].grammar);
        for (uint64_t run = 1; run <= 6; run++)
            check_masks(g, run * 1000 + i);
        vt_grammar_unref(g);
    }
}

/* Walks at random, a byte at a time, so that every count is met, to the end of the text. */
static void check_masks_by_byte(vt_grammar *g, uint64_t draw)
{
    vt_matcher *m = vt_matcher_new(g, 0);
    for (int step = 0; step < 120; step++) {
        int32_t allowed[1024], n = check_mask(m, step, allowed), bytes = 0;
        while (bytes < n && allowed[bytes] < 256)
            bytes++;
        if (bytes == 0)
            break;
        assert_true(vt_matcher_take(m, allowed[vt_random_next(&draw) % (uint64_t)bytes]));
    }
    vt_matcher_free(m);
}

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

static void test_mask_when_a_repeat_is_counted_then_exact_at_both_bounds(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNTED; i++) {
        vt_grammar *g = compile(counted[i].kind, counted[i].grammar);
        for (uint64_t run = 1; run <= 4; run++)
            check_masks_by_byte(g, run * 1000 + i);
        for (uint64_t run = 1; run <= 4; run++)
            check_masks(g, run * 1000 + i);
        vt_grammar_unref(g);
    }
}

/* The vocabulary is walked once for all of them, and once for each near a bound. */
static void test_mask_when_counts_are_beyond_any_token_then_walked_once(void **state)
{
    (void)state;
    static const char *const pattern[] = {"[a-z ,.]{600}", "([a-z]{1,200} ){1,300}x{700}",
                                          "[a-c]{600,}x|[a-d]{700,900}"};
    for (size_t i = 0; i < sizeof pattern / sizeof *pattern; i++) {
        vt_grammar *g = compile(R, pattern[i]);
        vt_matcher *m = vt_matcher_new(g, 0);
        int32_t allowed[1024], walks = 0;
        for (int step = 0; step < 150; step++) {
            assert_true(check_mask(m, step, allowed) > 0);
            assert_true(vt_matcher_take(m, 'a'));
        }
        for (const split_use *u = g->m.splits; u; u = u->next)
            walks++;
        assert_in_range(walks, 1, 3);
        vt_matcher_free(m);
        vt_grammar_unref(g);
    }
}

/* ---- calls that are broken off ---- */

/* Makes a mask, or takes a token (mask is NULL), three times in a hurry with few steps, and then
 * with as many as it takes. Returns how often it was broken off; *answer is what it said. */
static int hurry(vt_grammar *g, vt_matcher *m, int32_t token, uint32_t *mask, int32_t n_words,
                 uint64_t *draw, bool *answer)
{
    int n_late = 0;
    for (;; n_late++) {
        uint64_t any = vt_random_next(draw);
        g->m.hurried_steps = (int64_t)((any >> 8) & ((1u << any % 16) - 1));
        vt_matcher_hurry(m, n_late < 3);
        if (mask)
            memset(mask, 0, (size_t)n_words * sizeof *mask);
        *answer = mask ? vt_matcher_mask(m, mask, n_words) : vt_matcher_take(m, token);
        if (!vt_matcher_is_late(m))
            return n_late;
        assert_true(!*answer && n_late < 3 && !vt_matcher_is_too_large(m));
    }
}

/* Walks one grammar as it comes and another of the same text in a hurry. Returns how many calls
 * were broken off. */
static int walk_hurried(vt_grammar *calm, vt_grammar *hurried, int32_t most, uint64_t draw)
{
    int32_t n = vt_tokenizer_vocab(tokenizer), n_words = (n + 31) / 32, n_late = 0;
    vt_matcher *a = vt_matcher_new(calm, most), *b = vt_matcher_new(hurried, most);
    for (int step = 0; step < 30; step++) {
        uint32_t one[64] = {0}, two[64];
        int32_t allowed[1024], n_allowed = 0;
        bool some = vt_matcher_mask(a, one, n_words), answer;
        n_late += hurry(hurried, b, 0, two, n_words, &draw, &answer);
        assert_int_equal(answer, some);
        if (some && memcmp(one, two, (size_t)n_words * sizeof *one) != 0)
            fail_msg("step %d: the masks differ", step);
        for (int32_t id = 0; some && id < n; id++)
            if (bit(one, id))
                allowed[n_allowed++] = id;
        if (n_allowed == 0)
            break;
        int32_t id = allowed[vt_random_next(&draw) % (uint64_t)n_allowed];
        assert_true(vt_matcher_take(a, id));
        n_late += hurry(hurried, b, id, NULL, 0, &draw, &answer);
        assert_true(answer);
    }
    vt_matcher_free(a);
    vt_matcher_free(b);
    return n_late;
}

/* Each walk in a hurry has a vocabulary of its own, so that nothing is there already. */
static int check_hurried(vt_grammar_kind kind, const char *text, uint64_t draw)
{
    enum { WALKS = 4 };
    int n_late = 0;
    vt_grammar *calm = compile(kind, text);
    for (uint64_t run = 1; run <= WALKS; run++) {
        vt_grammar_vocab *own;
        vt_grammar *g = NULL;
        vt_err err;
        assert_int_equal(vt_grammar_vocab_new(tokenizer, INT32_MAX, &own, &err), VT_OK);
        assert_int_equal(vt_grammar_compile(own, kind, text, strlen(text), &g, &err), VT_OK);
        n_late += walk_hurried(calm, g, run % 4 ? 0 : 12, draw + run * 1000);
        vt_grammar_unref(g);
        vt_grammar_vocab_free(own);
    }
    vt_grammar_unref(calm);
    return n_late;
}

/* Writes `many` parts, with their numbers, between a beginning and an end. */
static const char *repeated(char *text, size_t size, const char *begin, const char *part, int many,
                            const char *end)
{
    int n = snprintf(text, size, "%s", begin);
    for (int i = 0; i < many; i++) {
        n += snprintf(text + n, size - (size_t)n, "%s", i > 0 ? (*begin == '{' ? "," : "|") : "");
        n += snprintf(text + n, size - (size_t)n, part, 'a' + i % 26, 1 + i / 26, 3 + i);
    }
    snprintf(text + n, size - (size_t)n, "%s", end);
    return text;
}

/* Many ways at once: unions and intersections of many parts take steps while they are made. */
static int check_hurried_in_many_ways(void)
{
    char text[8192];
    size_t size = sizeof text;
    int n = 0;
    n += check_hurried(S, repeated(text, size, "{\"enum\":[", "\"%c%d the %d\"", 90, "]}"), 1);
    n += check_hurried(S,
                       repeated(text, size, "{\"type\":\"string\",\"not\":{\"enum\":[",
                                "\"%c%d %d\"", 90, "]},\"pattern\":\"^[a-m0-9 ]{3,40}$\"}"),
                       2);
    n += check_hurried(
        S, repeated(text, size, "{\"anyOf\":[", "{\"pattern\":\"^%c{%d,%d}b+$\"}", 60, "]}"), 3);
    n += check_hurried(S,
                       repeated(text, size, "{\"patternProperties\":{",
                                "\"^%c{%d}[ab]{0,%d}$\":{\"type\":\"integer\"}", 12, "}}"),
                       4);
    n += check_hurried(R, repeated(text, size, "(?=[a-f ]{5,60}$)(", "%c{%d}[a-f ]{0,%d}", 50, ")"),
                       5);
    n += check_hurried(
        R, repeated(text, size, "(?!the)(?=[a-z0-9]*e)(", "%c%d[a-f]{2,%d}", 40, ")+"), 6);
    return n;
}

static void test_mask_when_calls_were_broken_off_then_as_without(void **state)
{
    (void)state;
    int n_late = check_hurried_in_many_ways();
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++)
        n_late += check_hurried(examples[i].kind, examples[i].grammar, i);
    for (size_t i = 0; i < COUNTED; i++)
        n_late += check_hurried(counted[i].kind, counted[i].grammar, i);
    print_message("%d calls were broken off\n", n_late);
    assert_true(n_late > 1000);
}

/* ---- the end ---- */

/* Takes at random what masks allow, the end only where nothing else is left. True: it has ended, or
 * could, after at most `most` tokens. */
static bool closes_in_time(vt_grammar *g, int32_t most, uint64_t draw)
{
    int32_t n = vt_tokenizer_vocab(tokenizer), n_words = (n + 31) / 32;
    vt_matcher *m = vt_matcher_new(g, most);
    bool ended = false;
    for (int32_t used = 0; used < most && !ended; used++) {
        uint32_t words[64] = {0};
        int32_t allowed[1024] = {0}, n_allowed = 0;
        assert_true(vt_matcher_mask(m, words, n_words));
        for (int32_t id = 0; id < n; id++)
            if (bit(words, id))
                allowed[n_allowed++] = id;
        int32_t id = allowed[vt_random_next(&draw) % (uint64_t)n_allowed];
        if (id == n - 1 && n_allowed > 1)
            id = allowed[0];
        ended = id == n - 1;
        assert_true(vt_matcher_take(m, id));
    }
    ended |= vt_matcher_accepts(m);
    vt_matcher_free(m);
    return ended;
}

static void test_answer_when_tokens_run_out_then_it_has_been_closed(void **state)
{
    (void)state;
    static const char *const schema[] = {
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"object\"},\"b\":{\"type\":"
        "\"array\","
        "\"minItems\":1,\"items\":{\"type\":\"string\",\"minLength\":7}}},\"required\":[\"b\"]}",
        "{\"$defs\":{\"t\":{\"anyOf\":[{\"type\":\"null\"},{\"type\":\"array\",\"minItems\":9,"
        "\"items\":{\"$ref\":\"#/$defs/t\"}}]}},\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/"
        "t\"}}",
        "{}", "{\"type\":\"object\"}", "{\"type\":\"array\",\"items\":{\"type\":\"string\"}}",
        "{\"type\":\"string\",\"pattern\":\"^([a-c]{1,90} ){0,90}x{20}(aaaa){1,50}$\"}",
        "{\"type\":\"string\",\"pattern\":\"^([a-c]{20} |b{30}c{0,200})$\"}",
        /* counts that no token gets to the end of */
        "{\"type\":\"string\",\"pattern\":\"^(x|[7-9]{90})$\"}",
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"minLength\":5},\"b\":{"
        "\"type\":\"array\",\"minItems\":2,\"items\":{\"type\":\"integer\"}}},\"required\":[\"a\","
        "\"b\"],\"additionalProperties\":false}"};
    enum { N = sizeof schema / sizeof *schema };
    for (uint64_t run = 1; run <= 900; run++) {
        vt_grammar *g = compile(VT_GRAMMAR_JSON_SCHEMA, schema[run % N]);
        int32_t most = 40 + (int32_t)(run % 37);
        if (!closes_in_time(g, most, run))
            fail_msg("schema %d: still open after %d tokens", (int)(run % N), most);
        vt_grammar_unref(g);
    }
}

/* A string is longer in bytes than in tokens. */
static void test_answer_when_tokens_are_fewer_than_bytes_then_it_has_been_closed(void **state)
{
    (void)state;
    static const char *const schema[] = {
        "{\"type\":\"object\",\"properties\":{\"the\":{\"type\":\"string\"},\"name the "
        "name\":{\"enum\":[\"the the the the\",\"aaaaaaaaaaaaaaa\"]},\"z\":{\"const\":\"the "
        "name\"}},\"required\":[\"the\",\"name the name\",\"z\"],\"additionalProperties\":false}",
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\",\"items\":{\"type\":"
        "\"string\",\"minLength\":3}},\"the the the the the\":{\"const\":\"the the the\"}},"
        "\"required\":[\"the the the the the\"]}",
        "{\"type\":\"string\",\"pattern\":\"^[a-e]{2,}(the ){9}$\"}"};
    enum { N = sizeof schema / sizeof *schema };
    for (uint64_t run = 1; run <= 120; run++) {
        vt_grammar *g = compile(VT_GRAMMAR_JSON_SCHEMA, schema[run % N]);
        int32_t least = machine_least(&g->m, g->m.start);
        int32_t tokens = machine_tokens(&g->m, g->m.start, least);
        assert_in_range(tokens, 2, least - 4);
        int32_t most = tokens + (int32_t)(run / N % 7);
        if (!closes_in_time(g, most, run))
            fail_msg("schema %d: still open after %d tokens", (int)(run % N), most);
        vt_grammar_unref(g);
    }
}

/* ---- refusals ---- */

static void test_grammar_when_it_cannot_be_enforced_then_refused_with_its_place(void **state)
{
    (void)state;
    static const struct {
        vt_grammar_kind kind;
        const char *text, *says;
    } bad[] = {
        {S, "{\"properties\":{\"a\":{\"not\":{\"unevaluatedItems\":false}}}}",
         "#/properties/a/not/unevaluatedItems"},
        {S, "{\"type\":\"array\",\"uniqueItems\":true}", "#/uniqueItems"},
        {S, "{\"not\":{}}", "no text of finite length"},
        {S, "{\"not\":{\"$ref\":\"#\"}}", ""},
        {S, "{\"dependentRequired\":{\"a\":1}}", "#/dependentRequired"},
        {S, "{\"if\":3,\"then\":{}}", "expected a schema"},
        {S, "{\"not\":{\"format\":\"date\"}}", "#/not/format"},
        {S, "{\"$ref\":\"#x\"}", "leads nowhere"},
        {S,
         "{\"$defs\":{\"a\":{\"$id\":\"a\",\"$dynamicAnchor\":\"t\"},\"b\":{\"$id\":\"b\",\"$"
         "dynamicAnchor\":\"t\"}},\"$dynamicRef\":\"a#t\"}",
         "more than one schema has the $dynamicAnchor 't'"},
        {S,
         "{\"$defs\":{\"a\":{\"$dynamicAnchor\":\"t\"},\"b\":{\"$dynamicAnchor\":\"t\"}},\"$"
         "dynamicRef\":\"#t\"}",
         "more than one schema has the $dynamicAnchor 't'"},
        {S,
         "{\"$defs\":{\"a\":{\"$id\":\"a\",\"$recursiveAnchor\":true,\"items\":{\"$recursiveRef\":"
         "\"#\"}},\"b\":{\"$id\":\"b\",\"$recursiveAnchor\":true}},\"$ref\":\"a\"}",
         "more than one schema has a $recursiveAnchor"},
        {S, "{\"enum\":[]}", "no text of finite length"},
        {S, "{\"enum\":3}", "#/enum: expected a list of values"},
        {S,
         "{\"oneOf\":[{\"type\":\"string\",\"format\":\"date\"},{\"type\":\"string\",\"pattern\":"
         "\"2\"}]}",
         "/not/format: not supported inside of not"},
        {S, "{\"type\":\"strin\"}", "'strin' is no type"},
        {S, "{\"$ref\":\"#/$defs/x\"}", "leads nowhere"},
        {S, "{\"$ref\":\"https://example.com/a.json\"}", "another document"},
        {S, "{\"type\":\"integer\",\"minimum\":5,\"maximum\":3}", "no text of finite length"},
        {S, "{\"type\":\"object\",\"properties\":{\"c\":{\"$ref\":\"#\"}},\"required\":[\"c\"]}",
         "no text of finite length"},
        {S, "{\"type\":\"string\",\"pattern\":\"(a)\\\\1\"}", "#/pattern: pattern (a)\\1"},
        {S, "{\"type\":\"string\",\"pattern\":\"[\"}", "[ without ]"},
        {S, "{\"type\":\"array\",\"minItems\":100000}", "expected at most 10000"},
        {S, "{\"type\":\"array\",\"minItems\":1.5}", "minItems"},
        {S, "{\"type\":\"integer\",\"multipleOf\":-2}", "multipleOf"},
        {S, "{\"a\":", "schema"},
        {S, "{\"additionalProperties\":{\"type\":\"object\",\"divisibleBy\":2}}",
         "#/additionalProperties/divisibleBy"},
        {R, "a{2,1}", "below its beginning"},
        {R, "\\bfoo", "\\b and \\B are not supported"},
        {R, "\\p{letter}", "an unknown property"},
        {R, "\\p{scx=Latn}", "an unknown property"},
        {R, "\\p{gc=}", "an unknown property"},
        {R, "\\p{Script=L}", "an unknown property"},
        {R, "(?<=a)b", "lookbehind"},
        {R, "((((a{1000}){1000}){1000}){1000}){1000}", ""},
        {VT_GRAMMAR_CHOICE, "[]", "1 to"},
        {VT_GRAMMAR_CHOICE, "[\"a\",1]", "entry 1"},
        {G, "root ::= root \"a\" | \"b\"", "root begins with itself"},
        {G, "root ::= a", "rule a is not defined"},
        {G, "a ::= \"x\"", "no rule is called root"},
        {G, "root ::= \"x", "closing quote"},
        {G, "root ::= [b-a]", "line 1"},
        {G, "root ::= \"a\"{2000000,}", "line 1"},
        {G, "root ::= <think>", "tokens such as"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        vt_grammar *g = NULL;
        vt_err err = {0};
        vt_status status = vt_grammar_compile(vocab, bad[i].kind, bad[i].text, strlen(bad[i].text),
                                              &g, &err);
        if (!bad[i].says[0]) { /* either, but it ends */
            vt_grammar_unref(g);
            continue;
        }
        if (status == VT_OK)
            fail_msg("%s is not refused", bad[i].text);
        if (!strstr(err.message, bad[i].says))
            fail_msg("%s: '%s' does not say '%s'", bad[i].text, err.message, bad[i].says);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_examples_when_taken_byte_by_byte_then_accepted_as_they_should),
        cmocka_unit_test(test_end_token_when_the_text_may_not_end_or_has_ended_then_refused),
        cmocka_unit_test(test_mask_when_walking_at_random_then_exactly_what_can_be_taken),
        cmocka_unit_test(test_mask_when_a_repeat_is_counted_then_exact_at_both_bounds),
        cmocka_unit_test(test_mask_when_counts_are_beyond_any_token_then_walked_once),
        cmocka_unit_test(test_mask_when_calls_were_broken_off_then_as_without),
        cmocka_unit_test(test_answer_when_tokens_run_out_then_it_has_been_closed),
        cmocka_unit_test(test_answer_when_tokens_are_fewer_than_bytes_then_it_has_been_closed),
        cmocka_unit_test(test_grammar_when_it_cannot_be_enforced_then_refused_with_its_place),
    };
    return cmocka_run_group_tests(tests, grammar_set_up, grammar_tear_down);
}
