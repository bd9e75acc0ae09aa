#!/usr/bin/env python3
"""golden_audit.py - the chain of a run of tn train --audit, computed again by hashlib; and forgeries that tn audit has to find.

    golden_audit.py check RUN               what does not fit, by the log and the files alone; the exit status is 1 if anything
    golden_audit.py forge FILE              changes the last bit of one weight of a checkpoint, and its checksum
    golden_audit.py relink RUN              writes all hashes of a run anew, as a forger can
    golden_audit.py study TN TEXT FOLDER    the experiment of docs/results.md"""

import hashlib
import json
import os
import re
import subprocess
import sys
import time
from math import comb


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def settings_hash(run):
    with open(f"{run}/config.txt", "rb") as file:
        lines = file.read().split(b"\n")[:-1]
    kept = [line for line in lines if not line.startswith((b"data = ", b"val = ", b"# data "))]
    return hashlib.sha256(b"".join(line + b"\n" for line in kept)).hexdigest()


def paths(run):
    """What the first link has hashes of, and where it is."""
    found = {"model": f"{run}/config.json", "tokenizer": f"{run}/tokenizer.json"}
    count = {"data": 0, "val": 0}
    with open(f"{run}/config.txt", encoding="utf-8") as file:
        for line in file:
            key, _, value = line.rstrip("\n").partition(" = ")
            if key in count:
                count[key] += 1
                found[f"{key}.{count[key]}"] = json.loads(value) if value.startswith('"') else value
            elif key in ("from", "teacher"):
                found[key] = json.loads(value) if value.startswith('"') else value
    return found


def links(run):
    """Each link's line, its members, the hash that it has and the one that follows from the lines before it."""
    last, since = b"", b""
    with open(f"{run}/log.jsonl", "rb") as file:
        for number, line in enumerate(file.read().split(b"\n")[:-1]):
            body, mark, rest = line.partition(b',"chain":"')
            if not mark:
                since += re.sub(rb'(,"rate":)[-+.0-9einfa]*,"seconds":[-+.0-9einfa]*}$', rb"\1", line) + b"\n"
                continue
            should = hashlib.sha256(last + b"\n" + since + body + b"\n").hexdigest()
            yield number, json.loads(line), rest[:64].decode(), should
            last, since = rest[:64], b""


def check(run):
    wrong = []
    for number, link, has, should in links(run):
        if has != should:
            wrong.append(f"line {number + 1}: chain {has}, expected {should}")
        if "file" in link:
            wanted = {"sha256": f"{run}/{link['file']}"}
        else:
            wanted = paths(run)
            if link["settings"] != settings_hash(run):
                wrong.append("config.txt was changed")
        for key, path in wanted.items():
            if link[key] != (sha256(path) if os.path.exists(path) else ""):
                wrong.append(f"{path} was changed")
        print(link["step"], has)
    print("\n".join(wrong) if wrong else "the chain holds")
    return wrong


def relink(run):
    with open(f"{run}/log.jsonl", "rb") as file:
        lines = file.read().split(b"\n")[:-1]
    for number, link, _, _ in list(links(run)):
        if "file" in link:
            new = sha256(f"{run}/{link['file']}").encode()
            lines[number] = re.sub(rb'"sha256":"[0-9a-f]*"', b'"sha256":"' + new + b'"', lines[number])
        else:
            new = sha256(f"{run}/config.json").encode()
            lines[number] = re.sub(rb'"model":"[0-9a-f]*"', b'"model":"' + new + b'"', lines[number])
    for number, *_ in list(links(run)):
        with open(f"{run}/log.jsonl", "wb") as file:
            file.write(b"".join(line + b"\n" for line in lines))
        should = next(should for n, _, _, should in links(run) if n == number)
        lines[number] = lines[number].partition(b',"chain":"')[0] + b',"chain":"' + should.encode() + b'"}'
    with open(f"{run}/log.jsonl", "wb") as file:
        file.write(b"".join(line + b"\n" for line in lines))


MASK = (1 << 64) - 1
P1, P2, P3, P4, P5 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def rotated(v, bits):
    return (v << bits | v >> 64 - bits) & MASK


def xxh64(data):
    """The checksum of a checkpoint. Collet, https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md"""
    def mixed(lane, word):
        return rotated(lane + word * P2 & MASK, 31) * P1 & MASK

    whole = len(data) // 32 * 32
    h = P5
    if whole:
        lane = [P1 + P2 & MASK, P2, 0, -P1 & MASK]
        for at in range(0, whole, 32):
            lane = [mixed(lane[k], int.from_bytes(data[at + 8 * k:at + 8 * k + 8], "little")) for k in range(4)]
        h = sum(rotated(v, bits) for v, bits in zip(lane, (1, 7, 12, 18))) & MASK
        for v in lane:
            h = ((h ^ mixed(0, v)) * P1 + P4) & MASK
    h, at = h + len(data) & MASK, whole
    for at in range(whole, len(data) - 7, 8):
        h = (rotated(h ^ mixed(0, int.from_bytes(data[at:at + 8], "little")), 27) * P1 + P4) & MASK
    at = whole + (len(data) - whole) // 8 * 8
    if len(data) - at >= 4:
        h = (rotated(h ^ int.from_bytes(data[at:at + 4], "little") * P1 & MASK, 23) * P2 + P3) & MASK
        at += 4
    for byte in data[at:]:
        h = rotated(h ^ byte * P5 & MASK, 11) * P1 & MASK
    h = (h ^ h >> 33) * P2 & MASK
    h = (h ^ h >> 29) * P3 & MASK
    return h ^ h >> 32


def forge(path):
    with open(path, "rb") as file:
        data = bytearray(file.read())
    size = int.from_bytes(data[:8], "little")
    entries = json.loads(data[8:8 + size])
    name = min(n for n in entries if n != "__metadata__" and not n.startswith("optim."))
    data[8 + size + entries[name]["data_offsets"][0]] ^= 1
    if "optim.checksum" in entries:
        data[-8:] = xxh64(bytes(data[:-8])).to_bytes(8, "little")
    with open(path, "wb") as file:
        file.write(data)


# ---- the experiment: 20 runs of 20 segments, in each of which one was forged, and the share that is caught ----

def run(tn, *arguments):
    return subprocess.run([tn, *arguments], capture_output=True, text=True, check=False)


def forged_run(tn, text, folder, number, segments, every):
    """Segment `number` ends with one changed bit; honest training goes on from there: all hashes fit, and one replay does not."""
    name, step = f"{folder}/forged-{number}", (number + 1) * every
    options = ("--width 32 --context 32 --batch 4 --no-baseline --val-every 0 --sample-every 0 --audit "
               f"--steps {segments * every} --save-every {every} --seed {number + 1}")
    last = step == segments * every
    run(tn, "train", text, "--out", name, *options.split(), *([] if last else ["--stop-at", str(step)]))
    forge(f"{name}/step-{step:08}.safetensors")
    if last:
        forge(f"{name}/model.safetensors")
    relink(name)
    if not last:
        run(tn, "train", "--resume", name)
    return name


def study(tn, text, folder):
    runs, every, seeds = 20, 10, 20
    os.makedirs(folder, exist_ok=True)
    names = [forged_run(tn, text, folder, n, runs, every) for n in range(runs)]
    assert all(not check(name) for name in names)
    print("segments replayed | caught, of audits | formula")
    for chosen in (1, 5, 10, 20):
        caught, audits, start = 0, 0, time.time()
        for n, name in enumerate(names):
            for seed in range(1 if chosen == 20 else seeds):
                end = run(tn, "audit", name, "--segments", str(chosen), "--seed", str(1000 * n + seed + 1))
                assert end.returncode in (0, 3), end.stdout + end.stderr
                caught, audits = caught + (end.returncode == 3), audits + 1
        formula = 1 - comb(runs - 1, chosen) / comb(runs, chosen)
        seconds = (time.time() - start) / audits
        print(f"{chosen} | {caught} of {audits} = {caught / audits:.3f} | {formula:.3f} | {seconds:.2f} s each", flush=True)


if __name__ == "__main__":
    command, arguments = sys.argv[1], sys.argv[2:]
    if command == "check":
        sys.exit(1 if check(*arguments) else 0)
    elif command == "forge":
        forge(*arguments)
    else:
        {"relink": relink, "study": study}[command](*arguments)
