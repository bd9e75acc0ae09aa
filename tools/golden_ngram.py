"""The n-gram losses that tests/tn.sh expects: interpolated modified Kneser-Ney (Chen & Goodman 1999), slow and plain, from counts
in dictionaries.   python3 tools/golden_ngram.py TEXT: bytes, the last 5 % held out, stories apart at <|endoftext|>, [BOS] = 256"""
import math
import sys
from collections import Counter, defaultdict


def tokens(text):
    ids = []
    for story in text.split(b"<|endoftext|>"):
        story = story.strip()
        if story:
            ids += [256] + list(story)
    return ids


def loss(train, held, n, vocab):
    seen = [Counter(tuple(train[i - k:i]) for i in range(k, len(train) + 1)) for k in range(n + 1)]
    tables = []
    for k in range(1, n + 1):
        if k == n:
            a = seen[k]
        else:                                   # how many words stand before it; nothing, at the text's beginning, counts as one
            a = Counter(g[1:] for g in seen[k + 1])
            a[tuple(train[:k])] += 1
        m = Counter(a.values())
        y = m[1] / (m[1] + 2 * m[2]) if m[1] + 2 * m[2] else 0.5
        d = [0] + [min(max(j - (j + 1) * y * m[j + 1] / m[j] if m[j] else j / 2, 0.1), j) for j in (1, 2, 3)]
        total, left = defaultdict(int), defaultdict(float)
        for g, c in a.items():
            total[g[:-1]] += c
            left[g[:-1]] += d[min(c, 3)]
        tables.append((a, d, total, left))
    nats = 0
    for i in range(1, len(held)):
        p = 1 / vocab
        for k in range(1, n + 1):
            a, d, total, left = tables[k - 1]
            h = tuple(held[i - k + 1:i])
            if i - k + 1 < 0 or total.get(h, 0) == 0:
                break
            c = a.get(h + (held[i],), 0)
            p = max(c - d[min(c, 3)], 0) / total[h] + left[h] / total[h] * p
        nats -= math.log(p)
    return nats / (len(held) - 1)


text = open(sys.argv[1], "rb").read()
cut = len(text) - int(len(text) * 0.05)
train, held = tokens(text[:cut]), tokens(text[cut:])
print("trigram %.9g\nfivegram %.9g" % (loss(train, held, 3, 258), loss(train, held, 5, 258)))
