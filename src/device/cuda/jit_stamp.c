#include "device/cuda/jit_stamp.h"

#include <ctype.h>
#include <string.h>

static bool in_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

static const char *skip_space(const char *p)
{
    while (isspace((unsigned char)*p))
        p++;
    return p;
}

static const char *skip_word(const char *p)
{
    while (in_word(*p))
        p++;
    return p;
}

/* The end of the brackets that open at p; NULL: they do not close. */
static const char *skip_brackets(const char *p)
{
    int depth = 0;
    for (; *p; p++) {
        depth += (*p == '(') - (*p == ')');
        if (depth == 0)
            return p + 1;
    }
    return NULL;
}

/* If the word is at p, goes behind it and the space that follows. */
static bool take(const char **p, const char *word)
{
    size_t n = strlen(word);
    if (strncmp(*p, word, n) != 0 || in_word((*p)[n]))
        return false;
    *p = skip_space(*p + n);
    return true;
}

/* An entry's declaration, as places in the text. */
typedef struct entry {
    const char *begin, *name, *parameters; /* KERNEL ... name(...) */
    const char *type, *type_end, *parameter, *parameter_end, *end;
} entry;

/* Reads the declaration that begins with KERNEL at p. */
static bool read_entry(const char *p, const char *kernel, entry *e)
{
    e->begin = p;
    if (!take(&p, "KERNEL"))
        return false;
    if (take(&p, "__launch_bounds__")) {
        if (*p != '(' || !(p = skip_brackets(p)))
            return false;
        p = skip_space(p);
    }
    e->name = p;
    if (!take(&p, kernel) || *p != '(')
        return false;
    e->parameters = p;
    p = skip_space(p + 1);
    if (!take(&p, "const") || !take(&p, "__grid_constant__"))
        return false;
    e->type = p;
    e->type_end = skip_word(p);
    e->parameter = skip_space(e->type_end);
    e->parameter_end = skip_word(e->parameter);
    p = skip_space(e->parameter_end);
    e->end = p + 1;
    return e->type_end > e->type && e->parameter_end > e->parameter && *p == ')' &&
           *skip_space(e->end) == '{'; /* else a comment speaks of it */
}

static bool find_entry(const char *text, const char *kernel, entry *e)
{
    for (const char *p = text; (p = strstr(p, "KERNEL")); p++)
        if ((p == text || !in_word(p[-1])) && read_entry(p, kernel, e))
            return true;
    return false;
}

bool jit_stamp_text(vt_buf *out, const char *text, const char *kernel)
{
    entry e;
    if (!find_entry(text, kernel, &e))
        return false;
    int type = (int)(e.type_end - e.type), parameter = (int)(e.parameter_end - e.parameter);
    vt_buf_printf(out, "%.*s", (int)(e.begin - text), text);
    vt_buf_printf(out, "INLINE void %s_body(const %.*s &%.*s); ", kernel, type, e.type, parameter,
                  e.parameter);
    vt_buf_printf(out, "struct alignas(64) %s_stamped { %.*s p; u64 *at, *ctas; }; ", kernel, type,
                  e.type);
    vt_buf_printf(out,
                  "INLINE void stamp_waited() { u64 *at; asm volatile(\"ld.param.u64 %%0, "
                  "[%s_param_0+%%1];\" : \"=l\"(at) : \"n\"((int)(sizeof(%.*s) + 7) / 8 * 8)); "
                  "stamp_once(at + STAMP_WAITED); } ",
                  kernel, type, e.type);
    vt_buf_puts(out, "STAMPED_");
    for (const char *p = e.begin; p < e.parameters; p++) /* one line of its several */
        vt_buf_printf(out, "%c", *p == '\n' ? ' ' : *p);
    vt_buf_printf(out,
                  "(const __grid_constant__ %s_stamped s) { "
                  "if (STAMPED & STAMP_CTAS && s.ctas) stamp_cta_begin(s.ctas); "
                  "stamp_begin(s.at); %s_body(s.p); if (STAMPED & STAMP_ENDS) stamp_end(s.at); "
                  "if (STAMPED & STAMP_CTAS && s.ctas) stamp_cta_end(s.ctas); } ",
                  kernel, kernel);
    for (const char *p = e.begin; p < e.end; p++)
        if (*p == '\n')
            vt_buf_puts(out, "\n");
    vt_buf_printf(out, "INLINE void %s_body(const %.*s &%.*s)%s", kernel, type, e.type, parameter,
                  e.parameter, e.end);
    return true;
}
