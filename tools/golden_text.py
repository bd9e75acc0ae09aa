#!/usr/bin/env python3
"""Ids that Hugging Face's own engine gives, for tests/test_text.c.

    python3 tools/golden_text.py          needs the package tokenizers (0.15.2 made them); prints the test's tokenizer and its table

Two letters of each kind that the table of letters knows, syllables of Hangul, marks in any order, added tokens inside words, words of
6 and 7 letters where 6 are the most, and bytes that are no UTF-8 as Python's errors="replace" reads them.
"""
import json
from tokenizers import Tokenizer

PIECES = list("abcdefghijklmnopqrstuvwxyz!'.-_$0123456789") + ["##" + c for c in "abcdefghijklmnopqrstuvwxyz"]
PIECES += ["the", "##ing", "##in", "ca", "caf", "##fe", "is", "##ta", "\u03c3", "##\u03c3", "##\u03c2", "\u0438", "##\u0438", "\u4e2d", "##\u4e2d",
           "\u8c48", "\u1112\u1161", "##\u11ab", "\u1100", "##\u1100", "##\u1161", "##\u116e", "\u11a8", "##\u11a8", "\u20ac", "##\u20ac",
           "\ufffd", "##\ufffd", "\u00bd", "\u00b2", "\u0660", "\u2167", "\u2170", "\u2160", "\u00df", "\u0131", "\u24d0", "##\u24d0", "\u200d",
           "##\u200d", "\u00a1", "\u2014", "\u3000", "\u0f40", "\u10d0", "\u1c90", "\u13a0", "\uab70", "\u212a", "\u03c9", "\U0001d157", "\u2260", "=", "#"]
SPECIAL = ["[UNK]", "[BOS]", "[EOS]"]
names = SPECIAL + PIECES
added = [{"id": i, "content": s, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
         for i, s in enumerate(SPECIAL)]
added += [{"id": len(names) + i, "content": s, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
          for i, s in enumerate(["<|x|>", "<|x|>y", "Ing"])]
FILE = {
    "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "StripAccents"}, {"type": "Lowercase"}]},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Punctuation", "behavior": "Isolated"}, {"type": "Whitespace"},
                                                            {"type": "Digits", "individual_digits": True}]},
    "post_processor": None, "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 6,
              "vocab": {s: i for i, s in enumerate(names)}},
}
TEXTS = [
    "", " \t\r\n\v\f", "The the THE", "caf\u00e9 cafe\u0301 CAF\u00c9", "e\u0323\u0302 e\u0302\u0323 \u1ec7", "\u0301a \u0301 a\u0301",
    "\u0130s \u0131 I\u0307s", "\u03a3\u03c3\u03c2 \u039f\u03a3 \u03a3", "\u0418\u0439\u0439", "\u4e2d\u4e2d \uf900",
    "\ud55c \ud558\uad6d \uac00\uac01 \ud55c\ud55c", "\u20ac\u20ac \u20aca a\u20ac", "12\u00bd\u00b2 a1b \u0660\u0661", "\u2160\u2170 \u2167",
    "\u00df \u1e9e", "\u24b6\u24d0\u24d0", "a\u200db \u200d", "\u00a1a! \u2014", "a\u00a0b\u3000c\u2028d\u0085e\u1680f\u200bg", "under_score a-b $a",
    "\u10d0\u1c90 \u13a0\uab70", "\u212a \u2126 \u212b", "\U0001d15e \u2260 =", "abcdef abcdefg", "abcdefe\u0301 abcde\u0301", "\ud55c\ud55cab",
    "[BOS]a[EOS] [UNK]", "a<|x|>b <|x|>y<|x|>", "[bos] <|X|>", "Ing ing sIng sing", "ing\u0301 in\u0301g x#y ##ing", "q\u00e9\u0301\u0327. \u0958",
    "\U0001f600 a", "\U0001f130\U0001f170a", "\u0e01\u0e33 \u0f40\u0f90", "\u1100\u1161 \u1100\u1161\u11a8 \uac01", "a\u0000b", "\u0007a",
]
BYTES = [b"\xff", b"\xff\xfe a", b"a\xe2\x82b", b"\xe2\x28\xa1", b"\xf0\x9f\x98", b"\xf0\x9f\x98\x80\x80", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80",
         b"\xe0\x80\x80", b"\xe2\x82\xac\xe2", b"caf\xc3", b"\xf1\x80\x80\x41\xf1\x80\xc3\xa9", b"\xc3\xa9\xa9"]


def literal(data):
    """C's, in octal: no escape runs on into what follows."""
    return '"' + "".join("\\\\" if b == 92 else chr(b) if 32 <= b < 127 and b not in b'"?' else "\\%03o" % b for b in data) + '"'


engine = Tokenizer.from_str(json.dumps(FILE))
text = json.dumps(FILE, separators=(",", ":")).replace('"', "`")
print("/* Made by tools/golden_text.py. In the file a quotation mark is written `. */")
print("static const char small_file[] =")
while text:
    print("    " + literal(text[:100].encode()) + (";" if len(text) <= 100 else ""))
    text = text[100:]
print("static const struct { const char *text; int bytes, n; int32_t id[16]; } golden[] = {")
for data in [t.encode() for t in TEXTS] + BYTES:
    ids = engine.encode(data.decode("utf-8", "replace")).ids
    assert len(ids) <= 16, data
    print("    {%s, %d, %d, {%s}}," % (literal(data), len(data), len(ids), ", ".join(map(str, ids)) or "0"))
print("};")
