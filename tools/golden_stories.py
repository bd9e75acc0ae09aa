#!/usr/bin/env python3
"""The files in tests/data/stories: a slice of TinyStories, a tokenizer trained on it, and the ids of Hugging Face's engine.

    python3 tools/golden_stories.py            writes encodings.jsonl from the other files in tests/data/stories
    python3 tools/golden_stories.py --train    trains tokenizer.json first; each run numbers its pieces in another order
    python3 tools/golden_stories.py --slice PLAIN DAMAGED
          writes stories.txt and damaged.txt first, then does what --train does: PLAIN is TinyStories' training text,
          DAMAGED one in which UTF-8 was read as Windows-1252
    python3 tools/golden_stories.py --count FILE
          trains at 512, 1024, 2048 and 4096 pieces on the stories of FILE, and prints how many tokens they then take

It needs the package tokenizers (0.15.2 made the files). The tokenizer is trained on the first 240 stories and on the
sentences of other languages below. Encoded are edge cases, paragraphs of the stories after those 240, and mixtures of
pieces of words with characters of all scripts. The mixtures take only characters that Unicode 3.2 had, whose properties are
the same since.
"""
import json
import os
import random
import sys
import unicodedata
from tokenizers import Tokenizer, __version__, models, normalizers, pre_tokenizers, processors, trainers

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "data", "stories")
END = "<|endoftext|>"
STORIES, TRAINED, VOCABULARY = 340, 240, 2048
SPECIAL = ["[UNK]", "[BOS]", "[EOS]"]

SENTENCES = [
    "Le garçon naïf a mangé une crêpe près de la forêt où vivait sa mère.",
    "Die Mäuse hörten süße Lieder über große Städte.",
    "El niño soñó con una cigüeña pequeña. ¿Qué más? ¡Nada!", "Příliš žluťoučký kůň úpěl ďábelské ódy.",
    "Zażółć gęślą jaźń.",
    "Кот сидел на окне и смотрел на ёлку. Мой друг ушёл домой.", "Η γάτα κοιμάται στο σπίτι. Ο ήλιος είναι ζεστός.",
    "今天小猫和小狗一起玩球。", "中文的句子没有空格。", "きょうはいいてんきです。ねこがねています。", "カタカナとひらがな", "오늘은 고양이가 공원에서 놀았다. 한국어 문장.",
    "דג קטן שחה בים הגדול.", "القطة الصغيرة تلعب مع الكرة.", "छोटी बिल्ली खेलती है।", "แมวนอนหลับ",
    "Con mèo nhỏ đang ngủ trên ghế.",
    "😀 🎉 ❤ → € £ ½ “quoted” ‘words’ – and — dashes…",
]

EDGES = [
    "", " ", "   ", "\n", "\t\r\n\v\f", "Hello, World!", "UNwantéd,running", "Tom's mom said: \"Don't!\"", "a\tb\nc\r\nd",
    "the the the",
    "It is 2024-12-31, 3.14 and 1,000.", "1234567890", "٠١٢ ४५ ７８", "½ ² ⅷ Ⅷ ① 1½", "...!!!???", "don't can't won't",
    "Mr. O'Neil's 3rd try.",
    "“Hi,” she said… ‘ok’", "‚low‛ „quotes‟ «and» ‹more›", "under_score and CamelCase123abc", "a-b-c d—e f–g",
    "e-mail@site.com #1 $5 50% (a) [b] {c} <d> | \\ ^ ~ ` _ +=/*&;:?",
    # accents, composed and not, and letters that lower-case oddly
    "naïve café Ångström ß", "cafe\u0301 CAFE\u0301", "e\u0323\u0302 e\u0302\u0323 ệ Ệ",
    "\u0301a \u0301 a\u0301\u0301\u0301", "İstanbul ﬁsh Å Å Ω K",
    "ǅ ǆ Ǆ ẞ ß ŉ ſt", "Σσς ΟΔΟΣ ὈΔΥΣΣΕΎΣ", "Ёлка йод Йод", "ＡＢＣ ａｂｃ", "ﬀ ﬃ ﬆ", "Ɐ ɐ Ⱥ ⱥ", "a\u0308\u0323b",
    "x\u20dd y\u0489",
    # other scripts
    "中文 and русский", "中文的句子", "小猫xiao", "きょうはいい", "がぎぐ が ハ゜", "한국어 한국어 각", "דָּג קָטָן", "مَرْحَبًا", "हिन्दी क़ी",
    "แมวน้ำ", "Con mèo nhỏ",
    "ᏣᎳᎩ ꭰꭱ", "Ⴀⴀ Აა", "𝐀𝐁 𝔸 𝟘", "𐐀𐐨", "🄰🅐Ⓐⓐ", "豈 更 車", "〜・ー「」、。",
    # emoji, alone, joined, with a selector, a flag
    "emoji 😀 here", "😀😀", "👩‍👩‍👧", "❤️ ☺ ☺️", "🇩🇪 🇫🇷", "👍🏽", "a😀b",
    # control and format characters, spaces of every kind
    "\u0000", "\u0000null\u0007bell", "a\u0001b\u001fc\u007fd", "a\u0080b\u0085c\u009fd", "zero\u200bwidth",
    "soft\u00adhyphen", "a\u200cb\u200dc\u2060d",
    "\ufeffbom", "a\u200eb\u202ec", "nb\u00a0sp\u2003em", "a\u1680b\u2000c\u200ad\u2028e\u2029f\u202fg\u205fh\u3000i",
    "\ufffd a\ufffdb", "\ue000 private", "\ufffe\uffff",
    # long words: 100 letters are a word, 101 are not; accents do not count once they are stripped
    "x" * 100, "x" * 101, "A" * 100 + "!", "é" * 100, "e\u0301" * 101, "a" * 50 + "\u0301" * 60, "1" * 101, "!" * 101,
    "supercalifragilisticexpialidocious",
    "é" * 101 + " the", "中" * 101, "the" * 33 + "x", "the" * 33 + "xy",
    # special tokens, whole and damaged
    "[BOS] [EOS] [UNK]", "[BOS][BOS]", "a[EOS]b", "[bos] [Eos]", "[ BOS ]", "[BOS", "[[BOS]]", "the[UNK]the", "[UNK]\u0301",
    END, "<|endoftext", "##ing the##s # ## ###",
]


def slices(plain, damaged):
    with open(plain, "rb") as f:
        stories = f.read().split(END.encode())[:STORIES]
    with open(os.path.join(HERE, "stories.txt"), "wb") as f:
        f.write(b"".join(s + END.encode() for s in stories) + b"\n")
    # Every eighth damaged line, all with damage that is rare, and the line of text before each.
    with open(damaged, "rb") as f:
        lines = f.read().split(b"\n")
    common = {"â€".encode(), "â€œ".encode(), "â€™".encode()}
    chosen, text, seen = [], b"", 0
    for line in lines:
        runs = {bytes(r, "latin-1") for r in "".join(chr(b) if b > 127 else " " for b in line).split()}
        seen += len(runs) > 0
        if runs and (runs - common or seen % 8 == 0):
            chosen += [text, line]
        if line and not runs:
            text = line
    with open(os.path.join(HERE, "damaged.txt"), "wb") as f:
        f.write(b"\n".join(chosen) + b"\n")


def trained(texts, vocabulary):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    t.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Punctuation("isolated"), pre_tokenizers.Whitespace(),
                                               pre_tokenizers.Digits(individual_digits=True)])
    trainer = trainers.WordPieceTrainer(vocab_size=vocabulary, special_tokens=SPECIAL, show_progress=False)
    t.train_from_iterator(texts, trainer)
    return t


def train(stories):
    t = trained(stories[:TRAINED] + [chr(c) + " a" + chr(c) for c in range(33, 127)] + SENTENCES * 3, VOCABULARY)
    t.post_processor = processors.TemplateProcessing(single="[BOS] $A", pair="$A $B:1", special_tokens=[("[BOS]", 1)])
    t.save(os.path.join(HERE, "tokenizer.json"))


def mixtures(stories, vocabulary):
    random.seed(1)
    old = unicodedata.ucd_3_2_0
    characters = [chr(c) for c in range(0x30000) if not 0xD800 <= c < 0xE000 and old.category(chr(c)) not in ("Cn", "Co")]
    blocks = {}
    for c in characters:     # as many of a small block as of a large one
        blocks.setdefault(ord(c) // 128, []).append(c)
    blocks, pieces = list(blocks.values()), [p.replace("##", "") for p in vocabulary if p not in SPECIAL]
    words = " ".join(stories).split()
    for _ in range(240):
        parts = []
        for _ in range(random.randint(2, 14)):
            kind = random.random()
            parts.append(random.choice(random.choice(blocks)) if kind < 0.4 else random.choice(pieces) if kind < 0.7
                         else random.choice(words) if kind < 0.9 else random.choice(SPECIAL + list("\u0301\u0308\u200d'-!")))
            parts.append(random.choice(["", "", " "]))
        yield "".join(parts)


arguments = {"--train": 2, "--slice": 4, "--count": 3}
if len(sys.argv) > 1 and len(sys.argv) != arguments.get(sys.argv[1]):
    sys.exit(__doc__)
if sys.argv[1:2] == ["--count"]:
    with open(sys.argv[2], encoding="utf-8", newline="") as f:
        stories = f.read().split(END)
    for vocabulary in (512, 1024, 2048, 4096):
        engine = trained(stories, vocabulary)
        print(vocabulary, sum(len(engine.encode(s).ids) for s in stories))
    sys.exit()
if sys.argv[1:2] == ["--slice"]:
    slices(sys.argv[2], sys.argv[3])
with open(os.path.join(HERE, "stories.txt"), encoding="utf-8", newline="") as f:
    stories = [s.strip() for s in f.read().split(END) if s.strip()]
if len(sys.argv) > 1:
    train(stories)
engine = Tokenizer.from_file(os.path.join(HERE, "tokenizer.json"))
paragraphs = [p for s in stories[TRAINED:] for p in s.split("\n") if p.strip()]
texts = [("edge", t) for t in EDGES] + [("sentence", t) for t in SENTENCES]
texts += [("story", t) for t in paragraphs[:: max(1, len(paragraphs) // 160)]]
texts += [("mixture", t) for t in mixtures(stories, [p for p, _ in sorted(engine.get_vocab().items())])]
with open(os.path.join(HERE, "encodings.jsonl"), "w", encoding="utf-8", newline="") as f:
    for kind, text in texts:
        line = {"kind": kind, "text": text, "ids": engine.encode(text).ids}
        f.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")
print("tokenizers %s: %d texts, %d pieces" % (__version__, len(texts), engine.get_vocab_size()))
