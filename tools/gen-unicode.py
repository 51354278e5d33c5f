#!/usr/bin/env python3
"""Writes src/text/unicode/unicode_tables.c by asking the `tokenizers` package what it knows.

Every answer comes from the package itself (its regex engine, its normalizers, its pre-tokenizers), because our
tokenizers promise its results and its parts follow different Unicode versions: the regex engine is years ahead of
the accent stripper. Run it again when the package moves:

    python3 -m venv v && v/bin/pip install tokenizers && v/bin/python tools/gen-unicode.py > src/text/unicode/unicode_tables.c

What is stored: a two-stage table of property records (category, combining class, flags), script ranges for
\\p{Han} and its like, lower-case mappings, full canonical and compatibility decompositions, canonical pairs, and how
characters join into grapheme clusters.
"""
import struct
import sys
import unicodedata

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co Cn").split()
SCRIPTS = ("Han Hiragana Katakana Hangul Bopomofo Latin Greek Cyrillic Armenian Georgian Hebrew Arabic Devanagari "
           "Bengali Gurmukhi Gujarati Tamil Telugu Kannada Malayalam Sinhala Thai Lao Tibetan Myanmar Khmer "
           "Mongolian Ethiopic Yi Common Inherited").split()
LAST = 0x110000
CODES = [c for c in range(LAST) if not 0xD800 <= c < 0xE000]
EVERY = "".join(map(chr, CODES))
SHIFT = 7  # 128 code points a block: smallest sum of both stages
HANGUL = range(0xAC00, 0xAC00 + 11172)


def matched(pattern):
    """Code points that a one-character regex matches in the package's engine."""
    split = pre_tokenizers.Split(Regex("(?:%s)+" % pattern), "removed", invert=True)
    found = set()
    for piece, _ in split.pre_tokenize_str(EVERY):
        found.update(map(ord, piece))
    return found


def isolated(pre_tokenizer, around="a"):
    """Code points that a pre-tokenizer cuts off from the letters around them."""
    found = set()
    for at in range(0, len(CODES), 4096):
        block = CODES[at:at + 4096]
        text = around + around.join(map(chr, block)) + around
        cuts = {span for _, span in pre_tokenizer.pre_tokenize_str(text)}
        found.update(c for i, c in enumerate(block) if (2 * i + 1, 2 * i + 2) in cuts)
    return found


def each(normalizer):
    """What a normalizer makes of every code point alone, where it changes it. U+E000 keeps neighbours apart."""
    mark = "\ue000"
    changed = {}
    for at in range(0, len(CODES), 4096):
        block = [c for c in CODES[at:at + 4096] if c != 0xE000]
        out = normalizer.normalize_str(mark.join(map(chr, block))).split(mark)
        assert len(out) == len(block)
        changed.update((c, tuple(map(ord, o))) for c, o in zip(block, out) if o != chr(c))
    return changed


def combining_classes(candidates):
    """Canonical combining classes, from the order in which NFD puts two marks."""
    nfd = normalizers.NFD()

    def swaps(first, second):
        return first != second and nfd.normalize_str("a" + first + second) == "a" + second + first

    reference = {1: "\u0334"}  # one mark of each class, among those that the package's older tables know
    for c in CODES:
        x = chr(c)
        if unicodedata.combining(x) > 1 and swaps(x, "\u0334"):
            reference.setdefault(unicodedata.combining(x), x)

    classes = {}
    for c in candidates:
        x = chr(c)
        if nfd.normalize_str(x) != x:
            continue
        after = [v for v, r in reference.items() if swaps(x, r)]
        before = [v for v, r in reference.items() if swaps(r, x)]
        if not after and not before:
            continue
        exact = [v for v in reference if v not in after and v not in before]
        assert len(exact) == 1, hex(c)
        classes[c] = exact[0]
    return classes


def pairs(nfd):
    """(first, second) -> composed, for all that NFC puts together."""
    nfc = normalizers.NFC()
    found = {}
    for c, parts in nfd.items():
        if c in HANGUL or len(parts) < 2 or nfc.normalize_str(chr(c)) != chr(c):
            continue
        first = nfc.normalize_str("".join(map(chr, parts[:-1])))
        assert len(first) == 1 and nfc.normalize_str(first + chr(parts[-1])) == chr(c)
        found[ord(first), parts[-1]] = c
    return found


GRAPHEMES = "OTHER CONTROL EXTEND EXTEND_ONLY SPACING PREPEND PICTURE L V T CONSONANT LINKER ZWJ".split()


def graphemes():
    """How characters join into clusters (UAX 29), class -> code points, from a Precompiled normalizer, which looks up clusters of
    up to five bytes as a whole and the characters of longer ones one by one. Its map makes an X of all that begins with any byte:
    a cluster becomes one X, or as many as it has characters. U+0301, of two bytes, makes a cluster of three bytes or less short."""
    units = [256 << 10] + [0] * 1023  # a double array: the node of byte b is 256 ^ b, its leaf is node 512
    for b in range(1, 256):
        units[256 ^ b] = (256 ^ b ^ 512) << 10 | 1 << 8 | b
    blob = struct.pack("<%dI" % len(units), *units)
    normalizer = normalizers.Precompiled(struct.pack("<I", len(blob)) + blob + b"X\0")
    n = lambda text: len(normalizer.normalize_str(text))  # noqa: E731
    found = {name: set() for name in GRAPHEMES}

    def kind(x):
        if n("a" + x) == 1:
            if x == "\u200d":
                return "ZWJ"
            if n("\u0915" + x + "\u0915\u0301") == 4:
                return "LINKER"
            if n("\u0915" + x + "\u094d\u0915\u0301") == 5:
                return "EXTEND"
            return "EXTEND_ONLY" if n("\u00a9" + x + "\u200d\u00a9\u0301") == 5 else "SPACING"
        if n(x + "\u0301\u0301") == 2:
            return "CONTROL"
        if n(x + "a") == 1:
            return "PREPEND"
        if n("\u00a9\u200d" + x) == 3:
            return "PICTURE"
        if n(x + "\u1100\u0301") == 3:
            return "L"
        if n(x + "\u11a8\u0301") == 3:
            return "V" if n(x + "\u1160\u0301") == 3 else "T"
        return "CONSONANT" if n(x + "\u094d\u0915\u0301") == 4 else "OTHER"

    for c in CODES:  # a syllable joins as its last jamo: after what, the program knows
        if c not in HANGUL:
            found["CONTROL" if c == 0 else kind(chr(c))].add(c)
    return found


def ranges(codes):
    out = []
    for c in sorted(codes):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def rows(items, width=110):
    line = "   "
    for item in items:
        if len(line) + len(item) + 2 > width:
            print(line)
            line = "   "
        line += " " + item + ","
    if line.strip():
        print(line)


def print_graphemes():
    found = graphemes()
    entries = sorted((a, b, GRAPHEMES.index(name)) for name in GRAPHEMES[1:] for a, b in ranges(found[name]))
    print("\n/* first, last, vt_ugrapheme; sorted, without Hangul syllables */\nconst uint32_t vt_ugraphemes[][3] = {")
    rows("{%d, %d, %d}" % e for e in entries)
    print("};\nconst int32_t vt_ugrapheme_count = %d;" % len(entries))


def main():
    category = {}
    for name in CATEGORIES:
        if name not in ("Cs", "Cn"):
            for c in matched(r"\p{%s}" % name):
                assert c not in category
                category[c] = name
    of = lambda *names: {c for c, n in category.items() if n[0] in names or n in names}  # noqa: E731
    space = matched(r"\s")
    regex_word = matched(r"\w")  # has some No, Nl and So beside L, M, Nd and Pc
    class_word = matched(r"[\w]")  # and in brackets six characters fewer
    assert matched(r"\d") == of("Nd"), "regex \\d"
    numeric = isolated(pre_tokenizers.Digits(True))  # a newer Unicode than \p{N}
    removed = set(c for c in CODES) - set().union(*(
        set(map(ord, piece)) for piece, _ in pre_tokenizers.WhitespaceSplit().pre_tokenize_str(EVERY)))
    assert removed == space, "WhitespaceSplit"
    not_word = isolated(pre_tokenizers.Whitespace())
    word = set(CODES) - not_word - space
    punctuation = isolated(pre_tokenizers.Punctuation("isolated"))
    accents = set(each(normalizers.StripAccents()))
    clean, marks = (normalizers.BertNormalizer(clean_text=not strip, handle_chinese_chars=False, strip_accents=strip, lowercase=False)
                    for strip in (False, True))
    bert_drops = {c for c in CODES if clean.normalize_str("a" + chr(c) + "b") == "ab"}
    bert_marks = {c for c in CODES if marks.normalize_str("a" + chr(c)) == "a"}
    lower = each(normalizers.Lowercase())
    nfd, nfkd = each(normalizers.NFD()), each(normalizers.NFKD())
    nfc, nfkc = each(normalizers.NFC()), each(normalizers.NFKC())
    classes = combining_classes(sorted(of("M") | {c for c in CODES if unicodedata.combining(chr(c))}))
    composed = pairs(nfd)
    second = {b for _, b in composed} | set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))

    flags = [("SPACE", space), ("REGEX_WORD", regex_word), ("WORD", word), ("NUMERIC", numeric), ("PUNCTUATION", punctuation),
             ("ACCENT", accents),             ("LOWER", set(lower)),
             ("NFD_STABLE", {c for c in CODES if c not in nfd and c not in classes}),
             ("NFC_STABLE", {c for c in CODES if c not in nfc and c not in classes and c not in second}),
             ("NFKD_STABLE", {c for c in CODES if c not in nfkd and c not in classes}),
             ("NFKC_STABLE", {c for c in CODES if c not in nfkc and c not in classes and c not in second}),
             ("CLASS_WORD", class_word), ("BERT_DROPS", bert_drops), ("BERT_MARK", bert_marks)]
    bits = [0] * LAST
    for i, (_, codes) in enumerate(flags):
        for c in codes:
            bits[c] |= 1 << i
    records, index, blocks, stage1 = {}, [], {}, []
    for c in range(LAST):
        cat = "Cs" if 0xD800 <= c < 0xE000 else category.get(c, "Cn")
        index.append(records.setdefault((CATEGORIES.index(cat), classes.get(c, 0), bits[c]), len(records)))
    for at in range(0, LAST, 1 << SHIFT):
        stage1.append(blocks.setdefault(tuple(index[at:at + (1 << SHIFT)]), len(blocks)))
    assert len(records) < 256 and len(blocks) < 65536

    print("/* GENERATED by tools/gen-unicode.py from tokenizers %s. Do not edit. */" % tokenizers.__version__)
    print("/* clang-format off */")
    print('#include "text/unicode/unicode.h"\n')
    print("const vt_uprop vt_uprop_record[%d] = { /* category, combining class, flags */" % len(records))
    rows("{%d, %d, %d}" % r for r in records)
    print("};\nconst uint16_t vt_uprop_block[%d] = {" % len(stage1))
    rows(map(str, stage1))
    print("};\nconst uint8_t vt_uprop_index[%d][%d] = {" % (len(blocks), 1 << SHIFT))
    for block in blocks:  # equal neighbours as GNU ranges: most blocks are one value
        runs, at = [], 0
        while at < len(block):
            end = at
            while end + 1 < len(block) and block[end + 1] == block[at]:
                end += 1
            runs += ["[%d ... %d] = %d" % (at, end, block[at])] if end - at > 5 else map(str, block[at:end + 1])
            at = end + 1
        print("{" + ",".join(runs) + "},")
    print("};\n")

    print("const vt_uscript vt_uscripts[] = {")
    at, flat = 0, []
    for name in SCRIPTS:
        found = ranges(matched(r"\p{%s}" % name))
        print('    {"%s", %d, %d},' % (name, at, len(found)))
        at += len(found)
        flat += found
    print("    {0, 0, 0},\n};\nconst uint32_t vt_uscript_range[%d][2] = {" % len(flat))
    rows("{%d, %d}" % tuple(r) for r in flat)
    print("};\n")

    longer = {c: m for c, m in lower.items() if len(m) != 1}
    assert longer == {0x130: (0x69, 0x307)}, longer
    one = sorted((c, m[0]) for c, m in lower.items() if len(m) == 1)
    print("/* U+0130 alone becomes two code points; unicode.c knows. */")
    print("const uint32_t vt_ulower[][2] = {")
    rows("{%d, %d}" % p for p in one)
    print("};\nconst int32_t vt_ulower_count = %d;\n" % len(one))

    pool, offset, entries = [], {}, []
    for c in sorted(set(nfd) | set(nfkd)):
        if c in HANGUL:
            continue
        canon, compat = nfd.get(c, ()), nfkd.get(c, ())
        parts = canon + (compat if compat != canon else ())
        if parts not in offset:
            offset[parts] = len(pool)
            pool.extend(parts)
        entries.append("{%d, %d, %d, %d}" % (c, offset[parts], len(canon), len(parts) - len(canon)))
    print("/* code point, offset in the pool, lengths of its canonical decomposition and of the compatibility one that")
    print(" * follows it (0: the same) */")
    print("const vt_udecomp vt_udecomps[] = {")
    rows(entries)
    print("};\nconst int32_t vt_udecomp_count = %d;" % len(entries))
    print("const uint32_t vt_udecomp_pool[%d] = {" % len(pool))
    rows(map(str, pool))
    print("};\n\n/* first, second, composed; sorted */\nconst uint32_t vt_ucompose[][3] = {")
    rows("{%d, %d, %d}" % (a, b, c) for (a, b), c in sorted(composed.items()))
    print("};\nconst int32_t vt_ucompose_count = %d;" % len(composed))
    print_graphemes()
    print("flags:", [n for n, _ in flags], "records", len(records), "blocks", len(blocks), file=sys.stderr)


main()
