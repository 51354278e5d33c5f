/* Regular expressions, part 2: the tree to a small program.
 *
 * Two observations make the patterns of tokenizers fast. Nearly every alternative can be ruled out
 * by its first byte, so an alternation carries a table of 256 masks. And nearly every repetition
 * is of one character set and need never give a character back, because what follows cannot match
 * such a character or cannot fail at all: those become OP_TAKE, which leaves nothing on the
 * backtracking stack.
 */
#include <stdlib.h>
#include <string.h>

#include "text/regex/internal.h"

typedef struct compiler {
    vt_regex *re;
    vt_err *err;
    int depth;
    int32_t work; /* nodes visited so far */
} compiler;

static vt_status emit_node(compiler *c, const regex_node *n);

static vt_status too_large(compiler *c)
{
    return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                   "regex: the pattern compiles to more than %d instructions", REGEX_MAX_INST);
}

static vt_status emit(compiler *c, regex_op op, int32_t a, int32_t b, int32_t *at)
{
    vt_regex *re = c->re;
    if (re->n_inst == re->cap_inst) {
        int32_t cap = re->cap_inst ? re->cap_inst * 2 : 64;
        if (cap > REGEX_MAX_INST * 2)
            return too_large(c);
        regex_inst *grown = realloc(re->inst, (size_t)cap * sizeof *grown);
        if (!grown)
            return vt_fail(c->err, VT_ERR_MEMORY, "regex: out of memory");
        re->inst = grown;
        re->cap_inst = cap;
    }
    if (re->n_inst >= REGEX_MAX_INST)
        return too_large(c);
    if (at)
        *at = re->n_inst;
    re->inst[re->n_inst++] = (regex_inst){.op = op, .a = a, .b = b};
    return VT_OK;
}

/* Adds the bytes that a match of n can begin with. False if n can match the empty string: then a
 * match can also begin with what follows n. */
static bool first_bytes(compiler *c, const regex_node *n, uint8_t first[256])
{
    c->work++;
    switch (n->kind) {
    case RE_SET:
        for (unsigned b = 0; b < 0x80; b++)
            first[b] |= (uint8_t)regex_set_ascii(n->set, b);
        if (!n->set->ascii_only)
            memset(first + 0x80, 1, 0x80);
        return true;
    case RE_CAT:
        for (const regex_node *child = n->child; child; child = child->next)
            if (first_bytes(c, child, first))
                return true;
        return false;
    case RE_ALT: {
        bool all = true;
        for (const regex_node *child = n->child; child; child = child->next)
            all &= first_bytes(c, child, first);
        return all;
    }
    case RE_REPEAT:
        if (n->max == 0)
            return false;
        return first_bytes(c, n->child, first) && n->min > 0;
    case RE_ATOMIC:
        return first_bytes(c, n->child, first);
    default:
        return false;
    }
}

static vt_status emit_alternatives(compiler *c, const regex_node *n)
{
    int32_t count = 0, at, k = 0;
    for (const regex_node *child = n->child; child; child = child->next)
        count++;
    if (count > 64)
        return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                       "regex: %d alternatives in one place, more than 64", count);
    regex_alt *alt = vt_arena_alloc(&c->re->arena, 1, sizeof *alt);
    int32_t *target = vt_arena_alloc(&c->re->arena, (size_t)count * 2, sizeof *target),
            *jump = target + count;
    if (!alt || !target)
        return vt_fail(c->err, VT_ERR_MEMORY, "regex: out of memory");
    alt->n = count;
    alt->target = target;
    TRY(emit(c, OP_ALT, 0, 0, &at));
    c->re->inst[at].alt = alt;
    for (const regex_node *child = n->child; child; child = child->next, k++) {
        uint8_t first[256] = {0};
        if (!first_bytes(c, child, first)) {
            memset(first, 1, sizeof first);
            alt->can[256] |= 1ull << k;
        }
        for (int b = 0; b < 256; b++)
            alt->can[b] |= (uint64_t)first[b] << k;
        target[k] = c->re->n_inst;
        TRY(emit_node(c, child));
        TRY(emit(c, OP_JUMP, 0, 0, &jump[k]));
    }
    for (k = 0; k < count; k++)
        c->re->inst[jump[k]].a = c->re->n_inst;
    return VT_OK;
}

/* Lookaround and atomic groups: a program of their own, emitted in place; the instruction's b leads
 * past it. */
static vt_status emit_sub(compiler *c, regex_op op, const regex_node *child, int32_t *at)
{
    TRY(emit(c, op, 0, 0, at));
    c->re->inst[*at].a = c->re->n_inst;
    TRY(emit_node(c, child));
    TRY(emit(c, OP_MATCH, 0, 0, NULL));
    c->re->inst[*at].b = c->re->n_inst;
    return VT_OK;
}

static const regex_node *unwrap(const regex_node *n)
{
    while (n->kind == RE_CAT && n->child && !n->child->next)
        n = n->child;
    return n;
}

static vt_status emit_repeat(compiler *c, const regex_node *n)
{
    const regex_node *child = unwrap(n->child);
    int32_t at, slot = -1;
    if (child->kind == RE_SET) {
        TRY(emit(c,
                 n->greed == RE_GREEDY ? OP_REPEAT
                 : n->greed == RE_LAZY ? OP_LAZY
                                       : OP_TAKE,
                 0, 0, &at));
        c->re->inst[at].set = child->set;
        c->re->inst[at].min = n->min;
        c->re->inst[at].max = n->max < 0 ? INT32_MAX : n->max;
        return VT_OK;
    }
    if (n->greed == RE_POSSESSIVE) {
        regex_node plain = *n;
        plain.greed = RE_GREEDY;
        plain.next = NULL;
        return emit_sub(c, OP_ATOMIC, &plain, &at);
    }
    for (int32_t i = 0; i < n->min; i++)
        TRY(emit_node(c, child));
    bool lazy = n->greed == RE_LAZY;
    if (n->max < 0) {
        uint8_t first[256] = {0};
        if (!first_bytes(c, child, first)) { /* it may match nothing: such a round ends the loop */
            if (c->re->n_slot == REGEX_MAX_SLOT)
                return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                               "regex: too many repetitions of what may be empty");
            slot = c->re->n_slot++;
        }
        TRY(emit(c, OP_SPLIT, 0, 0, &at));
        int32_t body = c->re->n_inst;
        if (slot >= 0)
            TRY(emit(c, OP_MARK, slot, 0, NULL));
        TRY(emit_node(c, child));
        if (slot >= 0)
            TRY(emit(c, OP_MOVED, slot, 0, NULL));
        TRY(emit(c, OP_JUMP, at, 0, NULL));
        c->re->inst[at].a = lazy ? c->re->n_inst : body;
        c->re->inst[at].b = lazy ? body : c->re->n_inst;
        return VT_OK;
    }
    int32_t optional = n->max - n->min;
    if (optional == 0)
        return VT_OK;
    int32_t *split = vt_arena_alloc(&c->re->arena, (size_t)optional, sizeof *split);
    if (!split)
        return vt_fail(c->err, VT_ERR_MEMORY, "regex: out of memory");
    for (int32_t i = 0; i < optional; i++) {
        TRY(emit(c, OP_SPLIT, 0, 0, &split[i]));
        TRY(emit_node(c, child));
    }
    for (int32_t i = 0; i < optional; i++) {
        regex_inst *s = &c->re->inst[split[i]];
        s->a = lazy ? c->re->n_inst : split[i] + 1;
        s->b = lazy ? split[i] + 1 : c->re->n_inst;
    }
    return VT_OK;
}

/* Returns how many characters every match of n has; -1 if that varies. */
static int32_t fixed_length(compiler *c, const regex_node *n)
{
    c->work++;
    int32_t sum = 0;
    switch (n->kind) {
    case RE_SET:
        return 1;
    case RE_CAT:
        for (const regex_node *child = n->child; child; child = child->next) {
            int32_t one = fixed_length(c, child);
            if (one < 0 || sum > REGEX_MAX_REPEAT)
                return -1;
            sum += one;
        }
        return sum;
    case RE_ALT:
        sum = fixed_length(c, n->child);
        for (const regex_node *child = n->child->next; child; child = child->next)
            if (fixed_length(c, child) != sum)
                return -1;
        return sum;
    case RE_REPEAT: {
        int32_t one = fixed_length(c, n->child);
        return n->min == n->max && one >= 0 && one <= REGEX_MAX_REPEAT ? one * n->min : -1;
    }
    case RE_ATOMIC:
        return fixed_length(c, n->child);
    default:
        return 0;
    }
}

static vt_status emit_behind(compiler *c, const regex_node *n)
{
    int32_t at, back = fixed_length(c, n->child);
    if (back < 0 || back > REGEX_MAX_REPEAT)
        return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                       "regex: lookbehind of varying length is not supported");
    TRY(emit_sub(c, n->kind == RE_BEHIND ? OP_BEHIND : OP_NOT_BEHIND, n->child, &at));
    c->re->inst[at].min = back;
    return VT_OK;
}

static vt_status emit_ahead(compiler *c, const regex_node *n)
{
    int32_t at;
    regex_op op = n->kind == RE_AHEAD ? OP_AHEAD : OP_NOT_AHEAD;
    const regex_node *child = unwrap(n->child);
    if (child->kind != RE_SET)
        return emit_sub(c, op, child, &at);
    TRY(emit(c, op, 0, c->re->n_inst + 1, &at)); /* one character: the set itself is looked at */
    c->re->inst[at].set = child->set;
    return VT_OK;
}

static vt_status emit_node(compiler *c, const regex_node *n)
{
    int32_t at;
    if (++c->depth > 4 * REGEX_MAX_DEPTH)
        return vt_fail(c->err, VT_ERR_UNSUPPORTED, "regex: nested too deep");
    if (++c->work > REGEX_MAX_WORK) /* (){1000}{1000}{1000} emits nothing, and takes for ever */
        return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                       "regex: the pattern's repetitions make more than %d parts", REGEX_MAX_WORK);
    switch (n->kind) {
    case RE_EMPTY:
        break;
    case RE_SET:
        TRY(emit(c, OP_SET, 0, 0, &at));
        c->re->inst[at].set = n->set;
        break;
    case RE_CAT:
        for (const regex_node *child = n->child; child; child = child->next)
            TRY(emit_node(c, child));
        break;
    case RE_ALT:
        TRY(emit_alternatives(c, n));
        break;
    case RE_REPEAT:
        TRY(emit_repeat(c, n));
        break;
    case RE_AHEAD:
    case RE_NOT_AHEAD:
        TRY(emit_ahead(c, n));
        break;
    case RE_BEHIND:
    case RE_NOT_BEHIND:
        TRY(emit_behind(c, n));
        break;
    case RE_ATOMIC:
        TRY(emit_sub(c, OP_ATOMIC, n->child, &at));
        break;
    default:
        TRY(emit(c, OP_ASSERT, (int32_t)n->kind, 0, NULL));
        break;
    }
    c->depth--;
    return VT_OK;
}

/* True if the program cannot fail from here on. */
static bool certain(const vt_regex *re, int32_t pc)
{
    for (int32_t hops = 0; hops < 100; hops++) {
        const regex_inst *i = &re->inst[pc];
        if (i->op == OP_MATCH)
            return true;
        if (i->op == OP_JUMP)
            pc = i->a;
        else if ((i->op == OP_REPEAT || i->op == OP_TAKE) && i->min == 0)
            pc++;
        else
            return false;
    }
    return false;
}

static bool disjoint(const regex_set *a, const regex_set *b)
{
    if ((a->ascii[0] & b->ascii[0]) || (a->ascii[1] & b->ascii[1]))
        return false;
    if (a->ascii_only || b->ascii_only)
        return true;
    if (!a->pure || !b->pure)
        return false;
    for (int i = 0; i < 4; i++)
        if (a->record[i] & b->record[i])
            return false;
    return true;
}

/* Where what follows a repetition begins with a character of a set, the repetition either never
 * gives back (it has no such character), or gives back straight to where such a character is. */
static void make_possessive(vt_regex *re)
{
    for (int32_t pc = 0; pc < re->n_inst; pc++) {
        regex_inst *i = &re->inst[pc];
        if (i->op != OP_REPEAT)
            continue;
        const regex_inst *next = &re->inst[pc + 1];
        bool must = next->op == OP_SET ||
                    ((next->op == OP_REPEAT || next->op == OP_TAKE || next->op == OP_LAZY) &&
                     next->min > 0);
        if (certain(re, pc + 1) || (must && disjoint(i->set, next->set)))
            i->op = OP_TAKE;
        else if (must)
            i->then = next->set;
    }
}

vt_status vt_regex_compile(const char *pattern, size_t len, vt_regex **out, vt_err *err)
{
    if (len > 65536)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "regex: a pattern of %zu bytes, more than 65536",
                       len);
    vt_regex *re = calloc(1, sizeof *re);
    if (!re)
        return vt_fail(err, VT_ERR_MEMORY, "regex: out of memory");
    vt_arena_init(&re->arena, REGEX_MAX_ARENA);
    compiler c = {.re = re, .err = err};
    regex_node *root;
    vt_status status;
    TRY_GOTO(status, regex_parse(&re->arena, pattern, len, &root, err), failed);
    TRY_GOTO(status, emit_node(&c, root), failed);
    TRY_GOTO(status, emit(&c, OP_MATCH, 0, 0, NULL), failed);
    if (!first_bytes(&c, root, re->first))
        memset(re->first, 1, sizeof re->first);
    make_possessive(re);
    *out = re;
    return VT_OK;
failed:
    vt_regex_free(re);
    return status;
}

void vt_regex_free(vt_regex *re)
{
    if (!re)
        return;
    vt_arena_release(&re->arena);
    free(re->inst);
    free(re);
}
