#!/usr/bin/env python3
"""tests/data/bpe/: small byte-level BPE tokenizers of each kind that tn_tokenizer_read knows, and the ids that Hugging Face's
engine gives under them.

    pip install tokenizers==0.23.3
    python3 tools/golden_bpe.py

The vocabularies are trained on the stories of tests/data and on the texts below; the regular expressions are those of GPT-2, Llama 3
and Qwen2. A line of KIND.jsonl has a text, its ids without added ones, and in the files of BPE with marks what the engine decodes them to, if
that is not the text.
"""
import json
import os
import random
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers as pre, processors, trainers

OUT = os.path.join(os.path.dirname(__file__), "../tests/data/bpe/")
STORIES = open(os.path.join(OUT, "../stories/stories.txt"), encoding="utf-8").read()
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
TEXTS = [
    "", " ", "  ", "\n", "\n\n", " \n ", "\t\tx", "a  b   c", "x \n\n y", "tail   ", "   head", "\r\n\r\nx", "a\u00a0b", "\u3000\u3000a",
    "Hello, World!", "don't DON'T we'll WE'LL I'm I'd they've you're it's IT'S", "'s's 'S 'ſ 'll'", "s'", "''", "' s",
    "1 12 123 1234 12345678", "a1b22c333", "3.14159, 2024-12-31 1,000,000", "½ ² Ⅷ ① १२३ ٣٤", "x²+y²=z²",
    "naïve café e\u0301 CAFÉ Ångström ǅ ﬁ ß ẞ Ω \u0301 a\u0301b", "Здравствуй, мир! Привет", "你好，世界。日本語のテキスト、한국어 문장",
    "ไทย עברית العربية हिन्दी", "😀 😀😀 👩‍👩‍👧 🇩🇪 a😀b 1😀2", "—“quoted” ‘single’ …", "\u200bzero\u200bwidth\u2028line\u2029par\u0085nel",
    "def f(x):\n    return x ** 2  # square\n\n\nclass A:\n\tpass\n", "for (int i = 0; i < n; i++) { a[i] += b[i] * 2.5e-3; }\n",
    "<html><body class=\"x\">&amp;</body></html>", "https://example.com/a?b=c&d=%20#e", "_under_score__ --flag=--no", "$x == @y != ~z",
    "<|endoftext|>", "a<|endoftext|>b", "<|begin_of_text|>a<|end_of_text|>", "<|endoftext|", " <|endoftext|> ", "tool call", "a tool callx",
    "xcally", "a toolx\ny", "\x00\x01\x1f\x7f", "\uffff\ufffd\U0010ffff", "\u1c89\U00010d40", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "the the The THE there thethe", "supercalifragilisticexpialidocious antidisestablishmentarianism",
]
PIECES = ["'s", "'LL", " ", "  ", "\n", "\r\n", "\t", "\u00a0", "a", "Hello", "é", "e\u0301", "中文", "😀", "१२", "½", "12345", "1", "...",
          "<|endoftext|>", "tool call", "call", "_", "{}\n\n", "//", "ß", "Ω", "\u0301", "한국어", "\x00", "\u2028", "the", " the"]
random.seed(5)
MIXTURES = ["".join(random.choice(PIECES) for _ in range(random.randint(2, 9))) for _ in range(60)]
PARTS = [s.strip() for s in STORIES.split("<|endoftext|>")[300:304]]


def train(words, special, vocab=480):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer, t.decoder = words, decoders.ByteLevel()
    t.train_from_iterator([STORIES[:200000]] + TEXTS * 3, trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=special, initial_alphabet=pre.ByteLevel.alphabet(), show_progress=False))
    return t


def split(regex):
    return pre.Sequence([pre.Split(Regex(regex), "isolated"), pre.ByteLevel(add_prefix_space=False, use_regex=False)])


def llama3():
    """With a template, ignore_merges, and some merges gone, so that words are in the vocabulary that merges do not reach."""
    t = train(split(LLAMA3), ["<|begin_of_text|>", "<|end_of_text|>"])
    first = "<|begin_of_text|>"
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single=first + " $A", pair=first + " $A " + first + ":1 $B:1", special_tokens=[(first, t.token_to_id(first))])])
    file = json.loads(t.to_str())
    file["model"]["ignore_merges"] = True
    file["model"]["merges"] = [m for i, m in enumerate(file["model"]["merges"]) if i < 60 or i % 5]
    return Tokenizer.from_str(json.dumps(file))


def qwen2():
    t = train(split(QWEN2), ["<|endoftext|>", "<|im_start|>"])
    t.add_tokens([AddedToken("tool call", normalized=True), AddedToken("call", normalized=False), AddedToken("x\ny", normalized=False)])
    return t


def digits():
    return train(pre.Sequence([pre.Digits(individual_digits=True), pre.ByteLevel(add_prefix_space=False)]), ["<|endoftext|>"], 360)


def gpt2():
    t = train(pre.ByteLevel(add_prefix_space=False), ["<|endoftext|>"])
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    return t


def prefix():
    return train(pre.ByteLevel(add_prefix_space=True), ["<s>", "</s>"], 360)


def nfc():
    """qwen2 with the normalizer of the published file. A letter, marks in any order, jamo, and characters that are replaced."""
    t = Tokenizer.from_file(OUT + "qwen2.json")
    t.normalizer = normalizers.NFC()
    return t


def marks():
    """Texts for NFC"""
    rng, letters = random.Random(7), "aeiouAOyd\u1ea1\u01d5\u00e9\u03b1\u0430\u0915\u09c7\u0bc6\u0d46\u304b\u05d0\u0627 \n1"
    signs = "\u0300\u0301\u0302\u0304\u0308\u030a\u0323\u0327\u0328\u031b\u0345\u0331\u093c\u09be\u0bbe\u0d3e\u3099\u05b7\u05bc\u064b\u0651\u0653"
    jamo = "\u1100\u1112\u1161\u1175\u11a8\u11c2\uac00\uac01\ud7a3"
    single = "\u212b\u2126\u212a\u0340\u0344\u0374\u037e\u0387\u0958\u0f43\u2adc\ufb1d\ufb2a\U0001d15e\u1fef\u2000\u2329"
    texts = ["e\u0301", "x\u0323\u0301", "\u1e9b\u0323", "\ufa0e\ufa29", "call tool e\u0301 tool call<|im_start|>e\u0301", "q\u0307\u0323"]
    for _ in range(120):
        texts.append("".join(rng.choice(letters) + "".join(rng.choice(signs) for _ in range(rng.choice((0, 1, 1, 2, 3, 5))))
                             + rng.choice(("", "", "".join(rng.choice(jamo) for _ in range(4)), rng.choice(single)))
                             for _ in range(rng.randint(1, 8))))
    return texts + [chr(c) + "\u0323\u0301" for c in range(0xC0, 0x180, 3)] + ["".join(map(chr, range(0x300, 0x370)))]


MARK = "\u2581"
REPLACE = normalizers.Replace(" ", MARK)
FIRST = ["<unk>", "<s>", "</s>"]


def marked(normalizer, words, strip, byte_pieces, more=(), normalized=False, across=()):
    """BPE as SentencePiece makes it: trained word by word, 48 letters, the pieces of bytes after the first three. across: merges of
    letters with the marks after them, which such training does not give."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre.Metaspace(split=True)
    t.train_from_iterator([STORIES[:200000]] + TEXTS, trainers.BpeTrainer(vocab_size=330, limit_alphabet=48, show_progress=False))
    file = json.loads(t.to_str())
    names = FIRST + ["<0x%02X>" % b for b in range(256)] * byte_pieces + [MARK * 2, MARK * 3, MARK * 4] + [a + b for a, b in across]
    names += [n for n in file["model"]["vocab"] if n not in names]
    merges = list(across) + [(MARK, MARK), (MARK * 2, MARK), (MARK * 2, MARK * 2)] + [tuple(m) for m in file["model"]["merges"]]
    t = Tokenizer(models.BPE(vocab={n: i for i, n in enumerate(names)}, merges=merges, unk_token="<unk>", fuse_unk=True,
                             byte_fallback=True))
    if normalizer:
        t.normalizer = normalizer
    if words:
        t.pre_tokenizer = words
    t.decoder = decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
                                  + [decoders.Strip(" ", 1, 0)] * strip)
    t.add_special_tokens([AddedToken(n, normalized=normalized, special=True) for n in FIRST])
    t.add_tokens([AddedToken(n, normalized=False) for n in more])
    t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    return t


def llama2(normalized=False):
    return marked(normalizers.Sequence([normalizers.Prepend(MARK), REPLACE]), None, True, True, normalized=normalized)


def llama1():
    """Differs from llama2 in normalized, true, and has no file of its own."""
    return llama2(True)


def gemma():
    return marked(REPLACE, pre.Split(" ", "merged_with_previous"), False, True, ["\n\n", MARK * 2, "<table>"],
                  across=[("e", MARK), (".", MARK), ("e" + MARK, "a")])


def metaspace():
    """As in later versions of Mistral; without pieces of bytes."""
    return marked(None, pre.Metaspace(prepend_scheme="first", split=False), True, False, ["[INST]"])


def spaced():
    """Texts for marks."""
    rng = random.Random(9)
    pieces = PIECES + ["<s>", "</s>", " <s>", "<unk>", "<", "s>", MARK, MARK * 2, "[INST]", "<table>", "<0x41>", "Once upon", " a time", "     ",
                       "\U0001f469\u200d\U0001f467", "\u0e44\u0e17", "q\u0307\u0323", "\n\n\n", "zzz"]
    texts = ["<s>", "a<s>b", " <s> ", "<s>a </s> b", MARK, MARK + "a", " " + MARK, "  <s>  a", "<unk>\u00e9<unk>", "\u00e9\u00e9 \u00e9", " " * 70, "a" * 300]
    return texts + ["".join(rng.choice(pieces) for _ in range(rng.randint(1, 12))) for _ in range(150)]


def save_marked(make):
    t, kind = make(), OUT + make.__name__
    if make is not llama1:
        t.save(kind + ".json")
    with open(kind + ".jsonl", "w", encoding="utf-8") as f:
        for text in spaced() + ([] if make is llama1 else TEXTS + PARTS):
            ids = t.encode(text, add_special_tokens=False).ids
            line = {"text": text, "ids": ids}
            back = t.decode([i for i in ids if i != 1 and i != 2], skip_special_tokens=False)
            if back != text:
                line["back"] = back
            f.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    for make in llama2, llama1, gemma, metaspace:
        save_marked(make)
    for make in gpt2, llama3, qwen2, digits, prefix, nfc:
        t, kind = make(), OUT + make.__name__
        t.save(kind + ".json")
        t = Tokenizer.from_file(kind + ".json")
        if make is gpt2:                                # the older form of merges, as in the published file
            with open(kind + ".json", encoding="utf-8") as f:
                file = json.load(f)
            file["model"]["merges"] = [" ".join(m) for m in file["model"]["merges"]]
            with open(kind + ".json", "w", encoding="utf-8") as f:
                json.dump(file, f, ensure_ascii=False, indent=2)
        with open(kind + ".jsonl", "w", encoding="utf-8") as f:
            for text in (marks() if make is nfc else []) + TEXTS + MIXTURES + PARTS:
                ids = t.encode(text, add_special_tokens=False).ids
                f.write(json.dumps({"text": text, "ids": ids}, ensure_ascii=False, separators=(",", ":")) + "\n")
