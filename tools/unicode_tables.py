#!/usr/bin/env python3
"""The tables of letters in src/text/tables.c (>>tables, tni_letter_runs and tni_category_runs), and the hashes that tests/test_core.c
holds them against.

    python3 tools/unicode_tables.py            prints both; `unicodedata` says which Unicode that is

What NFD, StripAccents and Lowercase do to one character c leaves one letter or none: NFD makes of c a base and marks (a syllable of
Hangul apart, which is arithmetic in C), StripAccents takes all marks (categories Mn, Mc, Me) away, Lowercase is the character's own
(no word has a final sigma here, as in Rust's char::to_lowercase). Every character whose canonical combining class is not zero is
a mark: so the order that NFD puts marks in is never seen. All this is checked below. A letter then is of one class:

    0 other     no letter, no space: runs of it are words
    1 word      \\w of Rust's regex: Alphabetic, M, Nd, Pc, Join_Control; not in class 3
    2 space     White_Space
    3 alone     punctuation (P*, and ASCII's signs) and numbers (N*): each is a word of its own

The code points are cut into runs of one class and one rule: 0 the letter stays, 1 a number is added, 2 the same to the first, third,
fifth ... only, 3 all become one letter (U+0000, and by no other rule: none). A run is the number (length - 1) 16 + rule 4 + class. After
it, but for rule 0, comes what is added, as its difference from that of the run of rule 1 or 2 before, or the letter, as its difference
from that of the run of rule 3 before; a difference d >= 0 is written as 2 d, else as -2 d - 1. Numbers are base 32, the lowest digit
first: the first half of the alphabet is the last digit of a number, the second half the others.

The second table is about characters as they are, for the regular expressions of byte-level BPE: 0 other, 1 \\p{L}, 2 \\p{N}, 3 \\s. A run
of characters of one category is the number (length - 1) 4 + category. It is of the Unicode of the engine in tokenizers 0.23, which is
16: `pip install unicodedata2==16.0.0` first.

The third is for NFC, and as that engine has it (`pip install tokenizers==0.23.3`): its normalizer is of Unicode 9, so what it leaves as
it is is left out. First the decompositions: 3 times the difference from the code point before, plus 0 for a pair that is composed, 1 for a
pair that is not, 2 for one character; then the difference of the first part from that of the entry before, and of a pair that of the
second. Hangul is arithmetic. CJK compatibility ideographs are left out: they would take 4 KB. Then runs of characters of one combining
class that is not 0: the difference from the end of the run before, length - 1, class.
"""
import unicodedata as u
import unicodedata2 as u2
from tokenizers.normalizers import NFC

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-"
SPACES = {9, 10, 11, 12, 13, 32, 0x85, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000} | set(range(0x2000, 0x200B))
OTHER_ALPHABETIC = [(0x24B6, 0x24E9), (0x1F130, 0x1F149), (0x1F150, 0x1F169), (0x1F170, 0x1F189)]   # those that are neither L*, Nl nor M*
HANGUL = range(0xAC00, 0xD7A4)
SURROGATES = range(0xD800, 0xE000)
LAST = 0x110000


def letter_of(c):
    """The letter that c becomes; 0: none. Surrogates are no characters, and U+0000 stays itself."""
    letters = [x.lower() for x in u.normalize("NFD", chr(c)) if u.category(x)[0] != "M"]
    assert len(letters) <= 1 and all(len(x) == 1 for x in letters), hex(c)
    return ord(letters[0]) if letters else 0


def class_of(c):
    category = u.category(chr(c))
    if category[0] in "PN" or 32 < c < 127 and not chr(c).isalnum():
        return 3
    if c in SPACES:
        return 2
    word = category[0] in "LM" or c in (0x200C, 0x200D) or any(a <= c <= b for a, b in OTHER_ALPHABETIC)
    return 1 if word else 0


letters, classes = [], []
for c in range(LAST):
    if c in SURROGATES:
        letters.append(None), classes.append(None)                      # never asked for: any rule will do
        continue
    assert u.combining(chr(c)) == 0 or u.category(chr(c))[0] == "M", hex(c)
    letters.append(c if c in HANGUL else letter_of(c))
    classes.append(None if c > 0 and letters[c] == 0 else class_of(letters[c]))


def run_at(first, rule):
    """How long the rule holds from here on, for letters of which class, and its number."""
    kind = value = None
    for c in range(first, LAST):
        if letters[c] is not None:
            v = [letters[c] - c, letters[c] - c, letters[c] - c, letters[c]][rule]
            fixed = rule == 0 or rule == 2 and (c - first) % 2 == 1
            if fixed and v != 0 or not fixed and value not in (None, v) or rule < 3 and letters[c] == 0 < c:
                return c - first, kind or 0, value
            value = value if fixed else v
        if classes[c] is not None:
            if kind not in (None, classes[c]):
                return c - first, kind, value
            kind = classes[c]
    return LAST - first, kind or 0, value


def number(n):
    return ALPHABET[n] if n < 32 else ALPHABET[32 + n % 32] + number(n // 32)


def signed(d):
    return number(2 * d if d >= 0 else -2 * d - 1)


def runs():
    first, last = 0, [0, 0]
    while first < LAST:
        length, rule = max((run_at(first, rule)[0], -rule) for rule in range(4))
        rule = -rule
        _, kind, value = run_at(first, rule)
        text = number((length - 1) * 16 + rule * 4 + kind)
        if rule > 0:
            text += signed(value - last[rule == 3])
            last[rule == 3] = value
        yield text
        first += length


def golden():
    """FNV-1a over the four bytes letter, letter, letter, class (4: none) of every character but the surrogates."""
    h = 0xCBF29CE484222325
    for c in range(LAST):
        if c in SURROGATES:
            continue
        word = letters[c] | (4 if c > 0 and letters[c] == 0 else classes[c]) << 24
        for byte in word.to_bytes(4, "little"):
            h = (h ^ byte) * 0x100000001B3 % 2**64
    return h


lines, count = [""], 0
for text in runs():
    count += 1
    if len(lines[-1]) + len(text) > 118:
        lines.append("")
    lines[-1] += text
print(f"/* Unicode {u.unidata_version} */")
print(f"#define TNI_LETTER_RUNS {count}")
print("static const char *const tni_letter_runs[] = {")
print(",\n".join(f'    "{line}"' for line in lines))
print("};")
print(f"golden hash: 0x{golden():016X}")


def category_of(c):
    return 3 if c in SPACES else {"L": 1, "N": 2}.get(u2.category(chr(c))[0], 0)


categories = [0 if c in SURROGATES else category_of(c) for c in range(LAST)]
texts, first = [], 0
for c in range(1, LAST + 1):
    if c == LAST or categories[c] != categories[first]:
        texts.append(number((c - first - 1) * 4 + categories[first]))
        first = c
lines = [""]
for text in texts:
    if len(lines[-1]) + len(text) > 118:
        lines.append("")
    lines[-1] += text
h = 0xCBF29CE484222325
for c in range(LAST):
    h = (h ^ categories[c]) * 0x100000001B3 % 2**64
print(f"/* Unicode {u2.unidata_version} */")
print(f"#define TNI_CATEGORY_RUNS {len(texts)}")
print("static const char *const tni_category_runs[] = {")
print(",\n".join(f'    "{line}"' for line in lines))
print("};")
print(f"golden hash of the categories: 0x{h:016X}")


def parts_of(c):
    d = u2.decomposition(chr(c))
    return [int(part, 16) for part in d.split()] if d and d[0] != "<" else []


nfc = NFC().normalize_str
parts = {c: parts_of(c) for c in range(LAST) if parts_of(c) and not (len(parts_of(c)) == 1 and (0xF900 <= c < 0xFB00 or 0x2F800 <= c < 0x2FA20))}
parts = {c: p for c, p in parts.items() if nfc(chr(c)) != chr(c) or nfc("".join(map(chr, p))) == chr(c)}
assert not any(parts_of(p[1]) for p in parts.values() if len(p) == 2)
texts, last, a, b = [], 0, 0, 0
for c, p in sorted(parts.items()):
    text = number((c - last) * 3 + (2 if len(p) == 1 else int(nfc(chr(c)) != chr(c)))) + signed(p[0] - a)
    last, a = c, p[0]
    if len(p) == 2:
        text, b = text + signed(p[1] - b), p[1]
    texts.append(text)
classes = [[c, u2.combining(chr(c))] for c in range(0x300, LAST) if c not in SURROGATES and u2.combining(chr(c))]
moves = lambda c, k: nfc("x" + chr(0x345) + chr(c)) != "x" + chr(0x345) + chr(c) if k < 240 else nfc("x" + chr(c) + chr(0x323)) != "x" + chr(c) + chr(0x323)
runs3, end = [], 0
for c, k in classes:
    if not moves(c, k):
        continue
    if runs3 and runs3[-1][0] + runs3[-1][1] == c and runs3[-1][2] == k:
        runs3[-1][1] += 1
    else:
        runs3.append([c, 1, k])
count, last = len(texts), 0
for c, n, k in runs3:
    texts.append(number(c - last) + number(n - 1) + number(k))
    last = c + n
lines = [""]
for text in texts:
    if len(lines[-1]) + len(text) > 118:
        lines.append("")
    lines[-1] += text
print("/* Unicode 9.0.0 */")
print(f"#define TNI_NFC_PARTS {count}")
print("static const char *const tni_nfc_table[] = {")
print(",\n".join(f'    "{line}"' for line in lines))
print("};")
