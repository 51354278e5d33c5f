/* Scanning C text: as much of the language as the rewriting of kernels needs. */
#include "nvrtc_text.h"

#include <cctype>

using std::string;

bool word_char(char c) { return isalnum((unsigned char)c) || c == '_'; }

size_t skip_space(const string &s, size_t at)
{
    while (at < s.size() && isspace((unsigned char)s[at]))
        at++;
    return at;
}

string word_at(const string &s, size_t at)
{
    size_t end = at;
    while (end < s.size() && word_char(s[end]))
        end++;
    return s.substr(at, end - at);
}

size_t skip_quoted(const string &s, size_t at)
{
    char quote = s[at++];
    while (at < s.size() && s[at] != quote)
        at += s[at] == '\\' ? 2 : 1;
    return at + 1;
}

size_t skip_brackets(const string &s, size_t at)
{
    int depth = 0;
    while (at < s.size()) {
        char c = s[at];
        if (c == '"' || c == '\'') {
            at = skip_quoted(s, at);
            continue;
        }
        depth += c == '(' || c == '[' || c == '{';
        depth -= c == ')' || c == ']' || c == '}';
        at++;
        if (depth == 0)
            return at;
    }
    return at;
}

string trim(const string &s)
{
    size_t a = 0, b = s.size();
    while (a < b && isspace((unsigned char)s[a]))
        a++;
    while (b > a && isspace((unsigned char)s[b - 1]))
        b--;
    return s.substr(a, b - a);
}

std::vector<string> split(const string &s, char separator)
{
    std::vector<string> parts(1);
    for (size_t at = 0; at < s.size();) {
        char c = s[at];
        size_t next = c == '"' || c == '\''              ? skip_quoted(s, at)
                      : c == '(' || c == '[' || c == '{' ? skip_brackets(s, at)
                                                         : at + 1;
        if (c == separator)
            parts.emplace_back();
        else
            parts.back() += s.substr(at, next - at);
        at = next;
    }
    return parts;
}
