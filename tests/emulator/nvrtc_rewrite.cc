/* Rewrites the text of kernels so that g++ can compile it together with device.h:
 *
 *   asm("...")           becomes a C++ expression (nvrtc_ptx.cc)
 *   __shared__ T a[3];   becomes a reference into the CTA's shared memory; module.cc chooses where
 *   __global__ name(P)   is noted for the table that the module exports
 *
 * Everything else is copied. Lines stay where they are, so that g++'s messages name the right ones.
 */
#include "nvrtc_text.h"

#include <cctype>

using std::string;

namespace
{

class Rewriter
{
  public:
    Rewriter(const string &text) : s(text) {}
    string error;
    std::map<string, string> instructions; /* function of device.h -> instruction */

    string rewrite()
    {
        while (at < s.size() && error.empty()) {
            char c = s[at];
            if (c == '\n' && at + 1 < s.size() && s[at + 1] == '#')
                copy(s.find('\n', at + 1)); /* line markers and pragmas */
            else if (c == '"' || c == '\'')
                copy(skip_quoted(s, at));
            else if (word_char(c))
                word();
            else
                copy(at + 1);
        }
        return out;
    }

    string exports(bool races) const
    {
        string x =
            "\n} /* namespace */\n# 1 \"exports\"\n"
            "extern \"C\" { extern emu_slot *__start_emu_slots[] __attribute__((weak, "
            "visibility(\"hidden\")));\n"
            "extern emu_slot *__stop_emu_slots[] __attribute__((weak, visibility(\"hidden\"))); }\n"
            "template <class P> P emu_param(void (*)(P)); template <class P> P emu_param(void "
            "(*)(const P &));\n"
            "static const emu_kernel emu_kernels[] = {\n";
        for (const Kernel &k : kernels)
            x += "{\"" + k.name + "\", [](const void *p) { " + k.name +
                 "(*(const decltype(emu_param(&" + k.name +
                 ")) *)p); }, sizeof(decltype(emu_param(&" + k.name + "))), " + k.threads + "},\n";
        return x +
               "{0, 0, 0, 0}};\nextern \"C\" __attribute__((visibility(\"default\"))) const "
               "emu_exports "
               "emu_module_exports = {emu_kernels, " +
               std::to_string(kernels.size()) + (races ? ", 1" : ", 0") +
               ", __start_emu_slots, __stop_emu_slots};\n";
    }

  private:
    struct Kernel {
        string name, threads;
    };
    const string &s;
    string out;
    size_t at = 0;
    int n_shared = 0, depth = 0;
    std::vector<Kernel> kernels;

    void copy(size_t to)
    {
        to = to > s.size() ? s.size() : to;
        out += s.substr(at, to - at);
        at = to;
    }

    /* Puts `text` in place of s[at, to), with as many newlines as that had, so that messages keep
     * their lines. */
    void replace(size_t to, const string &text)
    {
        out += text;
        for (; at < to; at++)
            if (s[at] == '\n')
                out += '\n';
    }

    void word()
    {
        string w = word_at(s, at);
        size_t next = skip_space(s, at + w.size());
        if (w == "asm" || w == "__asm__")
            rewrite_asm();
        else if (w == "__shared__")
            rewrite_shared(next, false);
        else if ((w == "extern" || w == "static") && word_at(s, next) == "__shared__")
            rewrite_shared(skip_space(s, next + 10), w == "extern");
        else if (w == "__global__")
            rewrite_kernel();
        else
            copy(at + w.size());
    }

    void rewrite_asm()
    {
        size_t open = s.find('(', at), end = skip_brackets(s, open);
        std::vector<string> part = split(s.substr(open + 1, end - open - 2), ':');
        string text;
        for (size_t i = 0; i < part[0].size(); i++)
            if (part[0][i] == '"')
                for (i++; part[0][i] != '"'; i++)
                    text += part[0][i] != '\\'
                                ? part[0][i]
                                : (i++, isalpha((unsigned char)part[0][i]) ? ' ' : part[0][i]);
        std::vector<AsmOperand> operands;
        for (size_t p = 1; p < part.size() && p < 3; p++)
            for (const string &o : split(part[p], ',')) {
                size_t quote = o.find('"'), paren = o.find('(');
                if (quote == string::npos || paren == string::npos)
                    continue;
                operands.push_back(
                    {word_chars(o, quote), trim(o.substr(paren + 1, o.rfind(')') - paren - 1))});
            }
        string why, call = translate_ptx(text, operands, instructions, why);
        if (!why.empty())
            error = why + " in asm(\"" + text + "\")";
        replace(end, call);
    }

    static string word_chars(const string &o, size_t quote)
    {
        return o.substr(quote + 1, o.find('"', quote + 1) - quote - 1);
    }

    /* `T a[3], b;` after __shared__ becomes a struct in shared memory with these members, and
     * references to them. */
    void rewrite_shared(size_t from, bool dynamic)
    {
        size_t end = from;
        while (end < s.size() && s[end] != ';')
            end = s[end] == '(' || s[end] == '[' || s[end] == '{' ? skip_brackets(s, end) : end + 1;
        string declaration = s.substr(from, end - from), id = std::to_string(n_shared++);
        string slot = "static emu_slot emu_slot" + id + " = {";
        string names;
        for (const string &part : split(declaration, ',')) {
            size_t stop =
                0; /* the first [ after the name, if any; brackets of an attribute do not count */
            for (size_t i = 0; i < part.size(); i++)
                if (part[i] == '(')
                    i = skip_brackets(part, i) - 1;
                else if (part[i] == '[') {
                    stop = i;
                    break;
                }
            string head = trim(stop ? part.substr(0, stop) : part);
            size_t begin = head.size();
            while (begin > 0 && word_char(head[begin - 1]))
                begin--;
            string name = head.substr(begin);
            names += dynamic ? " auto *" + name + " = &emu_shared" + id + "." + name + "[0];"
                             : " auto &" + name + " = emu_shared" + id + "." + name + ";";
        }
        if (dynamic) {
            size_t empty = declaration.find("[]");
            if (empty == string::npos)
                error = "extern __shared__ without []: " + declaration;
            else
                declaration.replace(empty, 2, "[1]");
        }
        string type = "emu_shared" + id + "_t";
        replace(end, "struct " + type + " { " + declaration + "; }; " + slot +
                         (dynamic ? "0" : "sizeof(" + type + ")") + ", alignof(" + type +
                         "), EMU_NOT_LAID_OUT}; EMU_USE_SLOT(emu_slot" + id + "); " + type +
                         " &emu_shared" + id + " = *(" + type + " *)(emu->shared + emu_slot" + id +
                         ".offset);" + names.substr(0, names.size() - 1));
    }

    /* __global__ void __launch_bounds__(128) name(const __grid_constant__ T p): the parameter
     * becomes a reference, and the kernel is noted for the table. A template is not: nobody makes an
     * instance of it (device/cuda/stamp.cuh). */
    void rewrite_kernel()
    {
        size_t i = at + 10, before = s.find_last_not_of(" \n", at - 1);
        bool is_template = at > 0 && before != string::npos && s[before] == '>';
        Kernel k = {"", "1024"};
        size_t open = 0;
        while (i < s.size() && s[i] != '{' && s[i] != ';') {
            if (s[i] == '(') {
                size_t close = skip_brackets(s, i);
                if (k.name == "__launch_bounds__")
                    k.threads = "(unsigned)(" + split(s.substr(i + 1, close - i - 2), ',')[0] + ")";
                else if (k.name != "__cluster_dims__" && k.name != "__align__") {
                    open = i;
                    break;
                }
                i = close;
            } else if (word_char(s[i])) {
                k.name = word_at(s, i);
                i += k.name.size();
            } else {
                i++;
            }
        }
        if (!open) {
            error = "a __global__ without parameters: " + s.substr(at, 60);
            return;
        }
        size_t end = skip_brackets(s, open);
        string parameters = s.substr(open, end - open);
        if (parameters.find("__grid_constant__") != string::npos) {
            size_t name = parameters.size() - 1;
            while (name > 0 && !word_char(parameters[name - 1]))
                name--;
            while (name > 0 && word_char(parameters[name - 1]))
                name--;
            parameters.insert(name, "&");
        }
        copy(open);
        replace(end, parameters);
        if (s[skip_space(s, end)] != ';' && !is_template)
            kernels.push_back(k);
    }
};

} // namespace

Rewritten rewrite_kernels(const string &text, bool races)
{
    Rewriter r(text);
    Rewritten out;
    out.text = r.rewrite();
    out.exports = r.exports(races);
    out.error = r.error;
    out.instructions = r.instructions;
    return out;
}
