#!/usr/bin/env python3
"""python3 tools/pictures.py NAME... | all: makes pictures of docs/images anew. Without a name it lists them.

It runs in the folder of the repository, after `make tn`. What programs draw needs stb_image_write.h; pages are seen in
Chromium, in a window so narrow that in a text 830 pixels wide their smallest letters are 12 pixels high (`sh tools/setup.sh
--look` installs what is needed). Models and pages are kept in build/pictures; a PNG gets a palette, which makes it small. The
language model learns from STORIES, a file of TinyStories, by default that of the tests; the pictures of docs/images are of the
first 2 MiB of its training set. All of it takes three quarters of an hour on two quiet cores.
"""
import collections
import os
import pathlib
import struct
import subprocess
import sys
import zlib

WORK, IMAGES = pathlib.Path("build/pictures"), pathlib.Path("docs/images")
STORIES = os.environ.get("STORIES", "tests/data/stories/stories.txt")

# What makes the models and pages: file: (what it needs, commands).
PARTS = {
    "demo/regularised.safetensors": ((), ["make -s build/examples/fashion", "sh examples/get_data.sh fashion",
                                          "build/examples/fashion --out {work}/demo"]),
    "gates.png": ((), ["make -s build/examples/studies/gates", "build/examples/studies/gates {work}"]),
    "modifier.png": ((), ["make -s build/examples/studies/modifier", "build/examples/studies/modifier --out {work}"]),
    "scaling/scaling.png": ((), ["make -s build/examples/studies/scaling", "build/examples/studies/scaling --data {stories} "
                                 "--tokens 1000000 --rate 0.04 --sizes 40:2:1,64:2:1,128:2:1 --out {work}/scaling"]),
    "spectra_embedding.png": ((), ["make -s build/examples/studies/spectra",
                                   "build/examples/studies/spectra --widths none --out {work}"]),
    "sentence1.png": ((), ["make -s build/examples/studies/text_mps", "sh examples/get_data.sh kjv",
                           "build/examples/studies/text_mps --sentence 'in the beginning god created the' --out {work}"]),
    "story/model.safetensors": ((), ["build/tn train {stories} --out {work}/story --layers 2 --width 128 --heads 4 "
                                     "--context 128 --vocab 1024 --batch 16 --steps 500 --weights-every 100 --val-every 100"]),
    "similarity.png": ((), [*("build/tn train {stories} --vocab 1024 --layers 2 --width 64 --heads 2 --attention bilinear "
                              "--context 128 --batch 16 --steps 400 --weights-every 100 --threads 1 "
                              f"--seed {seed} --out {{work}}/seed{seed}" for seed in (1, 2, 3)),
                            "build/tn circuits {work}/seed1 similarity {work}/seed2 {work}/seed3 --checkpoints "
                            "--out {work}/similarity.png"]),
    "xor.html": ((), ["build/tn demo xor --out {work}/xor.html"]),
    "digits.html": ((), ["build/tn demo digits --out {work}/digits.html"]),
    "clothes.html": (("demo/regularised.safetensors",), ["build/tn look {work}/demo/regularised.safetensors --title Clothes "
                                                         "--out {work}/clothes.html"]),
    "two.html": (("demo/regularised.safetensors",), ["build/tn look {work}/demo/model.safetensors --against "
                                                     "{work}/demo/regularised.safetensors --out {work}/two.html"]),
    "story.html": (("story/model.safetensors",), ["build/tn look {work}/story --title Stories --text 'once upon a time "
                                                  "there was a little' --out {work}/story.html"]),
}
# Pictures that programs draw: name: (part, file).
DRAWN = {name: ("demo/regularised.safetensors", f"demo/{name}.png")
         for name in ("eigenvectors", "eigenvectors_noisy", "interaction", "spectra", "training")}
DRAWN |= {name: ("gates.png", f"{name}.png") for name in ("gates", "xor", "three")}
DRAWN |= {name: (file, file) for name, file in (("modifier", "modifier.png"), ("regularisation", "spectra_embedding.png"),
                                                ("scaling", "scaling/scaling.png"), ("sentence", "sentence1.png"),
                                                ("similarity", "similarity.png"))}
# Pictures of pages: name: (page, query, selectors of what is shown, width, theme, and selectors of what is left out).
SEEN = {
    "lesson": ("xor.html", "?steps=60", "#learn", 760, "light", "#learn h2, .lead, .body > h4, .figure, .truth, "
               ".xor > :first-child > h4:nth-of-type(2)"),
    "lesson-digits": ("digits.html", "?steps=120", "#learn", 760, "light", "#learn h2, .lead, .body > h4, .figure, .answers, "
                      ".draw, .digits > h4:nth-of-type(n + 2)"),
    "look-pictures": ("clothes.html", "", ".top, #learnt", 760, "light"),
    "look-phone": ("clothes.html", "", ".top, #learnt", 390, "light"),
    "look-compare": ("two.html", "", ".top, #learnt", 760, "light"),
    "look-language": ("story.html", "", ".top, #learnt", 760, "light"),
    "look-live": ("story.html", "", "#live", 760, "light", "nav, .large-pattern, #live h5, #live-steer"),
    "look-tokens": ("story.html", "", "#eigen-1", 760, "dark"),
    "look-matrix": ("story.html", "", "#interactions-1", 760, "light"),
    "look-time": ("story.html", "", "#time", 760, "light"),
}
NAMES = sorted([*DRAWN, *SEEN])


def make(part):
    """Makes a model or a page, and what it is made of, if it is not there."""
    if (WORK / part).exists():
        return
    needs, commands = PARTS[part]
    for need in needs:
        make(need)
    for command in commands:
        print("+", line := command.format(work=WORK, stories=STORIES), flush=True)
        subprocess.run(line, shell=True, check=True, stdout=subprocess.DEVNULL)


def shot(page, query, shown, width, theme, hidden="nav"):
    """What a browser shows of a page: the file of a PNG. A window is never narrower than 500 pixels, a frame may be."""
    style = (f"nav, footer, .switches, .skip, .top, section.section, {hidden} {{ display: none !important }} "
             f":is({shown}) {{ display: block !important; border: 0 !important; margin-top: 0 !important; "
             "padding-top: 0 !important } #content { padding: 1.4rem 0 !important }")
    # A browser's virtual time does not wait for a worker; without one the page itself answers.
    text = (WORK / page).read_text().replace("<script", "<script>window.Worker = undefined</script><script", 1)
    (WORK / "shot.html").write_text(text + f"""<style>{style}</style><script>
        document.documentElement.dataset.theme = "{theme}"; document.dispatchEvent(new Event("tn-theme"));</script>""")
    (WORK / "frame.html").write_text(f"""<!DOCTYPE html><body style="margin: 0"><iframe src="shot.html{query}"
        style="border: 0; display: block; height: 2600px; width: {width}px"></iframe>""")
    subprocess.run(["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                    f"--user-data-dir={WORK}/profile", f"--window-size={max(width, 500)},2600",
                    "--force-device-scale-factor=1.5", "--virtual-time-budget=20000", f"--screenshot={WORK}/shot.png",
                    f"file://{WORK.resolve()}/frame.html"],
                   check=True, capture_output=True)
    return WORK / "shot.png"


def read(path):
    """A PNG of 8 bits as rows of (r, g, b)."""
    data, at, packed = path.read_bytes(), 8, b""
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + size]
        if kind == b"IHDR":
            width, height, _, colour = struct.unpack(">IIBB", body[:10])
        packed += body if kind == b"IDAT" else b""
        at += size + 12
    n = 4 if colour == 6 else 3
    raw, above, rows = zlib.decompress(packed), bytearray(width * n), []
    for y in range(height):
        start = y * (width * n + 1)
        line, method = bytearray(raw[start + 1:start + 1 + width * n]), raw[start]
        for i in range(len(line)) if method else ():
            a, b, c = line[i - n] if i >= n else 0, above[i], above[i - n] if i >= n else 0
            p = a + b - c
            nearest = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]
            line[i] = line[i] + (0, a, b, (a + b) // 2, nearest)[method] & 255
        rows.append(list(zip(line[0::n], line[1::n], line[2::n])))
        above = line
    return rows


def cropped(rows, room=30):
    """Without what is as the first pixel at the right and below, but for some room."""
    ground = rows[0][0]
    last = max(y for y, row in enumerate(rows) if any(p != ground for p in row))
    most = max(len(row) - next((i for i, p in enumerate(reversed(row)) if p != ground), len(row)) for row in rows)
    return [row[:most + room] for row in rows[:last + 1 + room]]


def palette_of(counts):
    """At most 256 cells of the cube of colours, lists of colours: the widest one is halved until there are as many."""
    def widest(cell):
        weight = sum(counts[p] for p in cell) ** 0.2
        return max(((max(p[i] for p in cell) - min(p[i] for p in cell)) * weight, i) for i in range(3))

    cells = [(*widest(list(counts)), list(counts))]
    while len(cells) < 256 and max(cells, key=lambda c: c[0])[0] > 0:
        cell = max(cells, key=lambda c: c[0])
        cells.remove(cell)
        _, i, colours = cell
        middle = (max(p[i] for p in colours) + min(p[i] for p in colours)) / 2
        for half in ([p for p in colours if p[i] <= middle], [p for p in colours if p[i] > middle]):
            cells.append((*widest(half), half))
    return [colours for _, _, colours in cells]


def write(rows, path):
    """A PNG with a palette: of each cell the commonest colour, if it is most of it, or the mean."""
    counts, palette, of = collections.Counter(p for row in rows for p in row), [], {}
    for cell in palette_of(counts):
        total, most = sum(counts[p] for p in cell), max(cell, key=counts.get)
        palette.append(most if 2 * counts[most] > total else
                       tuple(round(sum(counts[p] * p[i] for p in cell) / total) for i in range(3)))
        of.update((p, len(palette) - 1) for p in cell)

    body = b"".join(b"\0" + bytes(of[p] for p in row) for row in rows)

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 3, 0, 0, 0))
                     + chunk(b"PLTE", bytes(v for p in palette for v in p)) + chunk(b"IDAT", zlib.compress(body, 9))
                     + chunk(b"IEND", b""))
    print(f"{path}: {len(rows[0])} x {len(rows)}, {path.stat().st_size} bytes", flush=True)


def main(names):
    if not names:
        return print("\n".join(NAMES))
    WORK.mkdir(parents=True, exist_ok=True)
    for name in NAMES if names == ["all"] else names:
        if name in DRAWN:
            part, file = DRAWN[name]
            make(part)
            write(read(WORK / file), IMAGES / f"{name}.png")
        elif name in SEEN:
            make(SEEN[name][0])
            rows, width = read(shot(*SEEN[name])), SEEN[name][3] * 3 // 2
            write(cropped([row[:width] for row in rows]), IMAGES / f"{name}.png")
        else:
            sys.exit(f"pictures: {name} is no picture of docs/images; python3 tools/pictures.py lists them")


main(sys.argv[1:])
