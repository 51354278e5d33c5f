/* How models of each family mark their calls and their reasoning (answer.h). N is a name, A a JSON
 * object, K and V one argument. Where the same place has several spellings, each is listed. */
#include <string.h>

#include "text/answer/inside.h"

/* <|tool▁calls▁begin|> and its like are spelled with two wide characters. */
#define DS_BAR "\xef\xbd\x9c"
#define DS_BLANK "\xe2\x96\x81"
#define DS(word) "<" DS_BAR word DS_BAR ">"
#define DS_TOOL(what, end) DS("tool" DS_BLANK what DS_BLANK end)
#define DSML "<" DS_BAR "DSML" DS_BAR
#define DSML_CLOSE "</" DS_BAR "DSML" DS_BAR

static const call_syntax syntaxes[VT_CALL_FORMS] = {
    /* <tool_call>{"name": N, "arguments": A}</tool_call> */
    [VT_CALLS_HERMES] = {"hermes", BODY_JSON, .open = {"<tool_call>"}, .end = {"</tool_call>"}},
    /* <tool_call><function=N><parameter=K>V</parameter></function></tool_call> */
    [VT_CALLS_XML] = {"qwen-xml", BODY_KEYED, .open = {"<tool_call>", "<seed:tool_call>"},
                      .call = {"<function="}, .name_end = {">"}, .key = "<parameter=",
                      .key_end = {">"}, .value_end = "</parameter>", .call_end = {"</function>"},
                      .end = {"</tool_call>", "</seed:tool_call>"}, .newlines = true},
    /* {"name": N, "parameters": A}, several with semicolons between */
    [VT_CALLS_LLAMA] = {"llama3-json", BODY_JSON, .open = {"<|python_tag|>"}, .whole = '{',
                        .special = true},
    /* [N(K=V, ...), ...] */
    [VT_CALLS_PYTHONIC] = {"pythonic", BODY_PYTHON, .open = {"<|python_start|>"},
                           .end = {"<|python_end|>"}, .whole = '[', .special = true},
    /* [TOOL_CALLS][{"name": N, "arguments": A}, ...], newer: [TOOL_CALLS]N[ARGS]A, repeated */
    [VT_CALLS_MISTRAL] = {"mistral", BODY_JSON, .open = {"[TOOL_CALLS]"}, .name_end = {"[ARGS]"},
                          .whole = '[', .special = true},
    /* <|tool_call|>[{"name": N, "arguments": A}, ...] */
    [VT_CALLS_GRANITE] = {"granite", BODY_JSON, .open = {"<|tool_call|>", "<tool_call>"},
                          .end = {"</tool_call>"}, .drop = {"<response>", "</response>"},
                          .special = true},
    /* functools[{"name": N, "arguments": A}, ...] */
    [VT_CALLS_PHI] = {"phi4", BODY_JSON, .open = {"functools"}},
    /* <|START_ACTION|>[{"tool_call_id": "0", "tool_name": N, "parameters": A}]<|END_ACTION|> */
    [VT_CALLS_COHERE] = {"cohere", BODY_JSON, .open = {"<|START_ACTION|>"},
                         .end = {"<|END_ACTION|>"},
                         .drop = {"<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>"},
                         .special = true},
    /* <tool_calls>[{"name": N, "arguments": A}]</tool_calls> */
    [VT_CALLS_HUNYUAN] = {"hunyuan", BODY_JSON, .open = {"<tool_calls>"}, .end = {"</tool_calls>"},
                          .drop = {"<answer>\n", "\n</answer>"}},
    /* <TOOLCALL>[{"name": N, "arguments": A}]</TOOLCALL> */
    [VT_CALLS_NEMOTRON] = {"nemotron", BODY_JSON, .open = {"<TOOLCALL>"}, .end = {"</TOOLCALL>"}},
    /* <|tool_call_start|>[N(K=V)]<|tool_call_end|>, or a list of JSON inside */
    [VT_CALLS_LFM] = {"lfm2", BODY_PYTHON, .open = {"<|tool_call_start|>"},
                      .end = {"<|tool_call_end|>"}, .special = true},
    /* <function_calls>N(K=V), a call a line</function_calls> */
    [VT_CALLS_OLMO] = {"olmo3", BODY_PYTHON, .open = {"<function_calls>"},
                       .end = {"</function_calls>"}, .special = true},
    /* the markers of V3.1, "function" in front of N, and A in a block of code */
    [VT_CALLS_DEEPSEEK_V3] = {"deepseek-v3", BODY_NAMED, .open = {DS_TOOL("calls", "begin")},
                              .call = {DS_TOOL("call",
                                               "begin") "function" DS("tool" DS_BLANK "sep")},
                              .name_end = {"\n```json\n"},
                              .call_end = {"```" DS_TOOL("call", "end"), DS_TOOL("call", "end")},
                              .end = {DS_TOOL("calls", "end")}, .special = true},
    /* calls_begin, then for each: call_begin N sep A call_end, then calls_end */
    [VT_CALLS_DEEPSEEK_V31] = {"deepseek-v31", BODY_NAMED, .open = {DS_TOOL("calls", "begin")},
                               .call = {DS_TOOL("call", "begin")},
                               .name_end = {DS("tool" DS_BLANK "sep")},
                               .call_end = {DS_TOOL("call", "end")},
                               .end = {DS_TOOL("calls", "end")}, .special = true},
    /* <DSML function_calls><DSML invoke name="N"><DSML parameter name="K" string="true">V... */
    [VT_CALLS_DSML] = {"deepseek-dsml", BODY_KEYED,
                       .open = {DSML "function_calls>", DSML "tool_calls>"},
                       .call = {DSML "invoke name=\""}, .name_end = {"\">"},
                       .key = DSML "parameter name=\"", .key_end = {">"},
                       .value_end = DSML_CLOSE "parameter>", .call_end = {DSML_CLOSE "invoke>"},
                       .end = {DSML_CLOSE "function_calls>", DSML_CLOSE "tool_calls>"}},
    /* section_begin, then for each: call_begin functions.N:INDEX argument_begin A call_end */
    [VT_CALLS_KIMI_K2] = {"kimi-k2", BODY_NAMED,
                          .open = {"<|tool_calls_section_begin|>", "<|tool_call_section_begin|>"},
                          .call = {"<|tool_call_begin|>"},
                          .name_end = {"<|tool_call_argument_begin|>"},
                          .call_end = {"<|tool_call_end|>"},
                          .end = {"<|tool_calls_section_end|>", "<|tool_call_section_end|>"},
                          .special = true},
    /* <|open|>tools<|sep|><|open|>call tool="N" index="1"<|sep|><|open|>argument key="K" ..., or
     * in place of the arguments <|open|>json type="object"<|sep|>A<|close|>json<|sep|> */
    [VT_CALLS_KIMI_K3] =
        {"kimi-k3", BODY_KEYED, .open = {"<|open|>tools<|sep|>"}, .call = {"<|open|>call tool=\""},
         .name_end = {"<|sep|>"}, .key = "<|open|>argument key=\"", .key_end = {"<|sep|>"},
         .value_end = "<|close|>argument<|sep|>", .json = "<|open|>json type=\"object\"<|sep|>",
         .call_end = {"<|close|>call<|sep|>", "<|close|>json<|sep|><|close|>call<|sep|>"},
         .end = {"<|close|>tools<|sep|>"},
         .drop = {"<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>",
                  "<|end_of_msg|>"},
         .special = true},
    /* <tool_call>N<arg_key>K</arg_key><arg_value>V</arg_value></tool_call>, newlines between */
    [VT_CALLS_GLM] = {"glm", BODY_KEYED, .open = {"<tool_call>"},
                      .name_end = {"\n", "<arg_key>", "</tool_call>"}, .key = "<arg_key>",
                      .key_end = {"<arg_value>"}, .value_end = "</arg_value>",
                      .call_end = {"</tool_call>"}},
    /* <|tool_call>call:N{K:<|"|>V<|"|>,...}<tool_call|> */
    [VT_CALLS_GEMMA] = {"gemma4", BODY_GEMMA, .open = {"<|tool_call>"}, .end = {"<tool_call|>"},
                        .special = true},
    /* <minimax:tool_call><invoke name="N"><parameter name="K">V</parameter></invoke>... */
    [VT_CALLS_MINIMAX] = {"minimax-m2", BODY_KEYED, .open = {"<minimax:tool_call>"},
                          .call = {"<invoke name=\""}, .name_end = {"\">"},
                          .key = "<parameter name=\"", .key_end = {">"},
                          .value_end = "</parameter>", .call_end = {"</invoke>"},
                          .end = {"</minimax:tool_call>"}},
    /* <|channel|>commentary to=functions.N <|constrain|>json<|message|>A<|call|> */
    [VT_CALLS_HARMONY] = {"harmony", BODY_HARMONY, .special = true},
};

const call_syntax *answer_syntax(vt_call_form form) { return &syntaxes[form]; }

const char *vt_call_form_name(vt_call_form form)
{
    return form > VT_CALLS_NONE && form < VT_CALL_FORMS ? syntaxes[form].name : NULL;
}

bool vt_call_form_is_special(vt_call_form form, bool calls)
{
    const call_syntax *s = &syntaxes[form];
    return (calls && s->special) || s->drop[0] || form == VT_CALLS_HARMONY;
}

/* ---- templates ---- */

/* Words of a template by which a form is known; the first row all of whose words it has. */
static const struct {
    vt_call_form form;
    const char *words[3];
    const char *without; /* a word that it must not have */
} signs[] = {
    {VT_CALLS_HARMONY, {"<|channel|>", "<|message|>"}, NULL},
    {VT_CALLS_KIMI_K3, {"<|open|>", "<|sep|>", "argument"}, NULL},
    {VT_CALLS_KIMI_K2, {"<|tool_calls_section_begin|>"}, NULL},
    {VT_CALLS_DSML, {DS_BAR "DSML" DS_BAR}, NULL},
    {VT_CALLS_DEEPSEEK_V3, {DS_TOOL("call", "begin"), "```json"}, NULL},
    {VT_CALLS_DEEPSEEK_V31, {DS_TOOL("call", "begin")}, NULL},
    {VT_CALLS_GEMMA, {"<|tool_call>", "call:"}, NULL},
    {VT_CALLS_COHERE, {"<|START_ACTION|>"}, NULL},
    {VT_CALLS_MINIMAX, {"<minimax:tool_call>", "<invoke name="}, NULL},
    {VT_CALLS_LFM, {"<|tool_call_start|>"}, NULL},
    {VT_CALLS_OLMO, {"<function_calls>", "<functions>"}, NULL},
    {VT_CALLS_GRANITE, {"<|tool_call|>"}, NULL},
    {VT_CALLS_GLM, {"<tool_call>", "<arg_key>"}, NULL},
    {VT_CALLS_XML, {"tool_call>", "<function="}, NULL},
    {VT_CALLS_HERMES, {"<tool_call>"}, "]<]minimax[>["},
    {VT_CALLS_HUNYUAN, {"<tool_calls>"}, NULL},
    {VT_CALLS_NEMOTRON, {"<TOOLCALL>"}, NULL},
    {VT_CALLS_MISTRAL, {"[TOOL_CALLS]"}, NULL},
    {VT_CALLS_PHI, {"functools"}, "<|start_header_id|>"},
    {VT_CALLS_PYTHONIC, {"[func_name1("}, NULL},
    {VT_CALLS_PYTHONIC, {"<|python_start|>"}, NULL},
    {VT_CALLS_LLAMA, {"\"parameters\"", "ipython"}, "<function="},
};

vt_call_form vt_call_form_of(const char *t)
{
    for (size_t i = 0; t && strstr(t, "tools") && i < sizeof signs / sizeof *signs; i++) {
        bool all = !signs[i].without || !strstr(t, signs[i].without);
        for (int k = 0; k < 3 && signs[i].words[k]; k++)
            all = all && strstr(t, signs[i].words[k]);
        if (all)
            return signs[i].form;
    }
    return VT_CALLS_NONE;
}

/* ---- reasoning ---- */

static const vt_thought_tags tags[VT_THOUGHT_FORMS] = {
    [VT_THOUGHTS_THINK] = {"<think>", "</think>", false},
    [VT_THOUGHTS_BRACKET] = {"[THINK]", "[/THINK]", true},
    [VT_THOUGHTS_SEED] = {"<seed:think>", "</seed:think>", false},
    [VT_THOUGHTS_COHERE] = {"<|START_THINKING|>", "<|END_THINKING|>", true},
    [VT_THOUGHTS_GEMMA] = {"<|channel>thought", "<channel|>", true},
    [VT_THOUGHTS_KIMI] = {"<|open|>think<|sep|>", "<|close|>think<|sep|>", true},
    [VT_THOUGHTS_HARMONY] = {"<|channel|>analysis<|message|>", "<|end|>", true},
};

vt_thought_tags vt_thought_tags_of(vt_thought_form form) { return tags[form]; }

vt_thought_form vt_thought_form_of(const char *t)
{
    if (!t)
        return VT_THOUGHTS_NONE;
    if (strstr(t, "<|channel|>") && strstr(t, "<|message|>"))
        return VT_THOUGHTS_HARMONY;
    if (strstr(t, "<|open|>") && strstr(t, "<|close|>") && strstr(t, "think"))
        return VT_THOUGHTS_KIMI;
    for (int i = VT_THOUGHTS_THINK; i < VT_THOUGHTS_KIMI; i++)
        if (strstr(t, tags[i].open) || strstr(t, tags[i].close))
            return (vt_thought_form)i;
    return VT_THOUGHTS_NONE;
}

bool vt_text_ends_thinking(vt_thought_form form, const char *text, size_t n)
{
    const char *open = NULL, *at = text, *end = text + n;
    if (form == VT_THOUGHTS_NONE || form == VT_THOUGHTS_HARMONY)
        return false;
    while ((at = memmem(at, (size_t)(end - at), tags[form].open, strlen(tags[form].open))))
        open = ++at;
    return open && !memmem(open, (size_t)(end - open), tags[form].close, strlen(tags[form].close));
}
