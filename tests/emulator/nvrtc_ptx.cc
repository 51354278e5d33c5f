/* Translates PTX to C++. An asm statement of one instruction becomes one call,
 *
 *   "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
 *   ptx_ldmatrix_sync_aligned_m8n8_x4_shared_b16(ptx_out<unsigned>(a), ..., ptx_in<unsigned>(p))
 *
 * and a statement of several instructions, with registers, predicates and labels, becomes a lambda
 * that is called at once. An instruction that device.h does not have is a compile error. */
#include "nvrtc_text.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

using std::string;

static string operand_type(const AsmOperand &o)
{
    switch (o.constraint.back()) {
    case 'r':
        return "unsigned";
    case 'l':
        return "emu_u64";
    case 'f':
        return "float";
    case 'd':
        return "double";
    case 'h':
        return "unsigned short";
    default:
        return "";
    }
}

/* The operand as an argument: ptx_in and ptx_out check its size (device.h). */
static string operand_code(const AsmOperand &o)
{
    string type = operand_type(o);
    if (type.empty())
        return "(" + o.expression + ")";
    return (o.output() ? "ptx_out<" : "ptx_in<") + type + ">(" + o.expression + ")";
}

namespace
{

/* The first parameter of entry `add` is add_param_0. */
bool is_parameter(const string &word)
{
    static const string end = "_param_0";
    return word.size() > end.size() &&
           word.compare(word.size() - end.size(), end.size(), end) == 0;
}

/* Reads the template of one asm statement from left to right. */
class Ptx
{
  public:
    Ptx(const string &text, const std::vector<AsmOperand> &operands,
        std::map<string, string> &names)
        : s(text), operand(operands), names(names)
    {
    }
    string error;

    string translate()
    {
        string body;
        int statements = 0;
        bool plain = true;
        while ((at = skip_space(s, at)) < s.size() && error.empty()) {
            if (s[at] == '{' || s[at] == '}' || s[at] == ';') {
                at++;
                continue;
            }
            string w = word_at(s, at);
            if (!w.empty() && s[skip_space(s, at + w.size())] == ':') { /* a label */
                at = skip_space(s, at + w.size()) + 1;
                body += w + ": ; ";
                plain = false;
                continue;
            }
            body += statement(plain) + "; ";
            statements++;
        }
        if (!plain || statements > 1)
            return "[&]() __attribute__((always_inline)) { " + body + "}()";
        return statements == 0 ? "(void)0" : "(" + body.substr(0, body.size() - 2) + ")";
    }

  private:
    const string &s;
    const std::vector<AsmOperand> &operand;
    std::map<string, string> &names;
    size_t at = 0;

    string statement(bool &plain)
    {
        if (s.compare(at, 4, ".reg") == 0) {
            plain = false;
            return registers();
        }
        string guard;
        if (s[at] == '@') {
            plain = false;
            bool negated = s[at + 1] == '!';
            at += negated ? 2 : 1;
            string w = s[at] == '%' ? argument_operand() : word_at(s, at);
            at += s[at] == '%' ? 0 : w.size();
            guard = string("if (") + (negated ? "!" : "") + w + ") ";
            at = skip_space(s, at);
        }
        string name;
        while (at < s.size() && !isspace((unsigned char)s[at]) && s[at] != ';')
            name += s[at++];
        if (name == "bra" || name == "bra.uni") {
            at = skip_space(s, at);
            string label = word_at(s, at);
            at += label.size();
            return guard + "goto " + label;
        }
        string mangled = "ptx_";
        for (size_t i = 0; i < name.size(); i++)
            mangled += name[i] == '.' || name[i] == ':' ? '_' : name[i];
        names[mangled] = name;
        return guard + "EMU_SITE, " + mangled + "(" + arguments() + ")";
    }

    string registers()
    {
        static const std::map<string, string> types = {
            {".pred", "bool"},    {".b16", "unsigned short"}, {".u16", "unsigned short"},
            {".b32", "unsigned"}, {".u32", "unsigned"},       {".s32", "int"},
            {".f32", "float"},    {".b64", "emu_u64"},        {".u64", "emu_u64"}};
        at = skip_space(s, at + 4);
        string type;
        while (at < s.size() && !isspace((unsigned char)s[at]))
            type += s[at++];
        size_t end = s.find(';', at);
        string list = trim(s.substr(at, end - at));
        at = end;
        auto found = types.find(type);
        if (found == types.end())
            error = "PTX register type " + type + " is not emulated";
        return found == types.end() ? "" : found->second + " " + list;
    }

    /* %3 or %%name, at s[at] == '%' */
    string argument_operand()
    {
        at++;
        if (s[at] == '%') {
            string name;
            for (at++; at < s.size() && (word_char(s[at]) || s[at] == '.'); at++)
                name += s[at] == '.' ? '_' : s[at];
            return "ptx_sreg_" + name + "()";
        }
        size_t number = 0;
        while (at < s.size() && isdigit((unsigned char)s[at]))
            number = number * 10 + (size_t)(s[at++] - '0');
        if (number >= operand.size()) {
            error = "asm names operand %" + std::to_string(number) + " of " +
                    std::to_string(operand.size());
            return "0";
        }
        return operand_code(operand[number]);
    }

    /* Operands in braces, if they are x[0] .. x[n - 1]: then they become an array of n. */
    string span(size_t end)
    {
        string base;
        size_t n = 0;
        for (; at < end && error.empty(); n++) {
            size_t digits = s.find('%', at);
            if (digits == string::npos || digits >= end)
                break;
            size_t number = strtoul(s.c_str() + digits + 1, nullptr, 10);
            at = digits + 1;
            while (isdigit((unsigned char)s[at]))
                at++;
            string e = number < operand.size() ? operand[number].expression : "";
            size_t bracket = e.rfind('[');
            string index = "[" + std::to_string(n) + "]";
            base = n == 0 && bracket != string::npos ? e.substr(0, bracket) : base;
            if (base.empty() || e != base + index || !operand[number].output())
                error = "more than 8 operands in braces must be x[0], x[1] .. in order; found " + e;
        }
        at = end;
        return "*(float (*)[" + std::to_string(n) + "])&(" + base + "[0])";
    }

    string arguments()
    {
        string out, item;
        auto flush = [&] {
            if (!item.empty())
                out += (out.empty() ? "" : ", ") + item;
            item.clear();
        };
        while (at < s.size() && s[at] != ';' && error.empty()) {
            char c = s[at];
            if (c == '{') {
                size_t end = s.find('}', at);
                if (std::count(s.begin() + (long)at, s.begin() + (long)end, '%') > 8)
                    item += span(end);
                at++;
            } else if (c == ',' || c == '}' || c == '[' || c == ']' || c == '|') {
                if (c != '[')
                    flush();
                at++;
            } else if (c == '%') {
                item += argument_operand();
            } else if (isspace((unsigned char)c)) {
                at++;
            } else if (word_char(c)) {
                string w = word_at(s, at);
                at += w.size();
                item += w == "_" ? "ptx_sink()"
                        : w.compare(0, 2, "0f") == 0 && w.size() == 10
                            ? "__uint_as_float(0x" + w.substr(2) + "u)"
                        : is_parameter(w) ? "(emu_u64)emu->params"
                                          : w;
            } else {
                item += c;
                at++;
            }
        }
        flush();
        return out;
    }
};

} // namespace

string translate_ptx(const string &text, const std::vector<AsmOperand> &operands,
                     std::map<string, string> &instructions, string &error)
{
    Ptx ptx(text, operands, instructions);
    string code = ptx.translate();
    error = ptx.error;
    return code;
}
