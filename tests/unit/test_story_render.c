/* A story's page in the terminal against pages that people have read: 100 and 80 columns, with
 * colour and without. VITRINE_WRITE_GOLDEN=1 writes the pages anew; read them before committing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "story/story.h"

#define FOLDER "tests/golden/stories/"

static void read_file(const char *path, vt_buf *out)
{
    char block[4096];
    size_t n;
    FILE *f = fopen(path, "rb");
    if (!f)
        fail_msg("%s is not there", path);
    while ((n = fread(block, 1, sizeof block, f)) > 0)
        vt_buf_add(out, block, n);
    fclose(f);
}

static void write_file(const char *path, const vt_buf *b)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(b->data, 1, b->len, f), b->len);
    fclose(f);
}

static void render(const char *name, const vt_term *term, vt_buf *out)
{
    char path[256];
    vt_buf json = {0};
    vt_err err = {0};
    snprintf(path, sizeof path, FOLDER "%s.json", name);
    read_file(path, &json);
    if (story_render(path, json.data, json.len, term, out, &err) != VT_OK)
        fail_msg("%s", err.message);
    vt_buf_release(&json);
}

static void hold_to_golden(const char *name, int32_t width, bool colour)
{
    char path[256];
    vt_term term = {.colour = colour, .width = width};
    vt_buf page = {0}, golden = {0};
    render(name, &term, &page);
    snprintf(path, sizeof path, FOLDER "%s.%d%s.txt", name, width, colour ? ".colour" : "");
    if (getenv("VITRINE_WRITE_GOLDEN"))
        write_file(path, &page);
    read_file(path, &golden);
    if (golden.len != page.len || memcmp(golden.data, page.data, page.len) != 0) {
        size_t at = 0;
        while (at < golden.len && at < page.len && golden.data[at] == page.data[at])
            at++;
        fail_msg("%s: differs at byte %zu: %.60s", path, at, page.data + at);
    }
    for (const char *s = page.data; *s;) {
        size_t n = strcspn(s, "\n");
        if (vt_text_width(s, n) > width)
            fail_msg("%s: a line of %d cells: %.*s", path, vt_text_width(s, n), (int)n, s);
        s += n + (s[n] == '\n');
    }
    vt_buf_release(&page);
    vt_buf_release(&golden);
}

static void test_page_at_every_width_is_the_golden_one(void **state)
{
    (void)state;
    for (int colour = 0; colour < 2; colour++)
        for (int32_t width = 80; width <= 100; width += 20) {
            hold_to_golden("cpu", width, colour);
            hold_to_golden("gpu", width, colour);
            hold_to_golden("batch", width, colour);
        }
}

/* The words of a page without escape sequences. */
static void strip(vt_buf *b)
{
    size_t n = 0;
    for (size_t i = 0; i < b->len; i++) {
        if (b->data[i] == '\033')
            while (i < b->len && b->data[i] != 'm')
                i++;
        else
            b->data[n++] = b->data[i];
    }
    b->len = n;
}

static void test_page_without_colour_has_every_word(void **state)
{
    (void)state;
    vt_term plain = {.width = 100}, ink = {.colour = true, .width = 100};
    vt_buf a = {0}, b = {0};
    render("cpu", &plain, &a);
    render("cpu", &ink, &b);
    assert_true(b.len > a.len);
    strip(&b);
    assert_int_equal(a.len, b.len);
    assert_memory_equal(a.data, b.data, a.len);
    vt_buf_release(&a);
    vt_buf_release(&b);
}

/* The line of the page that begins with this text. */
static const char *line_of(const vt_buf *page, const char *begin, char out[512])
{
    const char *at = strstr(page->data, begin);
    if (!at)
        fail_msg("no line '%s'", begin);
    at += *at == '\n';
    snprintf(out, 512, "%.*s", (int)strcspn(at, "\n"), at);
    return out;
}

static void test_page_when_narrow_then_keeps_roof_and_bound(void **state)
{
    (void)state;
    char line[512];
    for (int32_t width = 80; width <= 100; width += 10) {
        vt_term term = {.width = width};
        vt_buf page = {0};
        render("cpu", &term, &page);
        line_of(&page, "\n op   ", line);
        assert_non_null(strstr(line, "of roof  bound"));
        assert_non_null(strstr(line, "time"));
        bool meas = strstr(line, "meas"), share = strstr(line, "share"),
             expected = strstr(line, "expected");
        assert_true(!meas || (share && expected)); /* meas is the first to go, */
        assert_true(!share || expected);           /* then share, then expected */
        vt_buf_release(&page);
    }
}

/* From the first event to the last one, every line of TIME has the tree's bar in its column. */
static void test_page_tree_has_an_unbroken_bar(void **state)
{
    (void)state;
    static const char *const part[] = {"┌", "├", "│", "╞", "└"};
    vt_term term = {.width = 80};
    vt_buf page = {0};
    int n = 0;
    render("cpu", &term, &page);
    const char *s = strstr(page.data, "┌");
    assert_non_null(s);
    for (s -= 11; strncmp(s, "\n\n", 1) != 0; n++) {
        bool found = false;
        for (size_t i = 0; i < sizeof part / sizeof part[0]; i++)
            found = found || strncmp(s + 11, part[i], strlen(part[i])) == 0;
        if (!found)
            fail_msg("no bar: %.40s", s);
        s += strcspn(s, "\n") + 1;
    }
    assert_true(n > 15);
    vt_buf_release(&page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_page_at_every_width_is_the_golden_one),
        cmocka_unit_test(test_page_without_colour_has_every_word),
        cmocka_unit_test(test_page_when_narrow_then_keeps_roof_and_bound),
        cmocka_unit_test(test_page_tree_has_an_unbroken_bar),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
