#!/usr/bin/env python3
"""tests/data/hf/: tiny models of Hugging Face's transformers, with random weights, as save_pretrained writes them, and what they say.

    pip install torch transformers==5.23.0 tokenizers==0.23.3
    python3 tools/golden_hf.py                      makes them
    python3 tools/golden_hf.py DIRECTORY TEXT       evaluates a model of transformers, to compare with tn eval and tn generate

    gpt2       GPT-2, tied; two shards; the tokenizer bpe/gpt2.json
    llama      Llama with RoPE scaled as in Llama 3.1, two heads of keys for four of queries, tied; two shards; bpe/llama3.json
    mistral    Mistral with a window of 5 tokens
    qwen2      Qwen2: biases of q, k and v, and 11 ids more than the tokenizer bpe/qwen2.json has

golden.json of each has the ids of a prompt, the 100 ids that follow by greedy decoding in float64, the logits of the last of the
prompt, and the nats per token of text.txt (of Mistral, which has no tokenizer: of the text's bytes b as ids b mod 39 + 1). Weights are
BF16, so that the files are small. Seeds are chosen such that no two logits of a step are nearly equal.

With arguments it prints, in float64 and in float32, the nats per token of a text, whose stories may be separated by <|endoftext|>, and
in float64 the 100 tokens that greedy decoding puts after its first ten.
"""
import json
import os
import shutil
import sys
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from transformers import (AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM,
                          Qwen2Config, Qwen2ForCausalLM)

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/data/hf/")
BPE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/data/bpe/")
TEXT = "Once upon a time"
SCALING = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
           "original_max_position_embeddings": 32}
SMALL = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=128, initializer_range=0.3)

MODELS = {
    "gpt2": (GPT2LMHeadModel, GPT2Config(vocab_size=480, n_positions=128, n_embd=16, n_layer=2, n_head=4, bos_token_id=0,
                                         eos_token_id=0, initializer_range=0.3), "gpt2"),
    "llama": (LlamaForCausalLM, LlamaConfig(vocab_size=480, rope_parameters=SCALING, tie_word_embeddings=True, bos_token_id=0,
                                            eos_token_id=1, **SMALL), "llama3"),
    "mistral": (MistralForCausalLM, MistralConfig(vocab_size=40, sliding_window=5, head_dim=6, **SMALL), None),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(vocab_size=496, tie_word_embeddings=True, use_sliding_window=False, bos_token_id=0,
                                            eos_token_id=0, **SMALL), "qwen2"),
}


def made(kind, config, seed):
    """Random weights, biases and gains too, which transformers would begin with 0 and 1; all of them are BF16 numbers."""
    torch.manual_seed(seed)
    model = kind(config)
    for name, p in model.named_parameters():
        with torch.no_grad():
            p += 0.2 * torch.randn_like(p)
    return model.to(torch.bfloat16).eval()


@torch.no_grad()
def greedy(model, ids, count):
    """The ids, the logits after the prompt, and the least distance of the largest logit to the next."""
    margin, first, ids = 9.0, None, list(ids)
    for _ in range(count):
        logits = model(torch.tensor([ids])).logits[0, -1]
        first = logits if first is None else first
        best = logits.topk(2)
        margin = min(margin, float(best.values[0] - best.values[1]))
        ids.append(int(best.indices[0]))
    return ids, first, margin


@torch.no_grad()
def nats_per_token(model, ids):
    """Of all but the first id, each by a forward pass over one window of the model's context that ends before it. Windows overlap by
    half and only their second halves count, so that a token has at least half a context before it, except at the start."""
    last = len(ids) - 1
    context = min(model.config.max_position_embeddings, last)
    done, nats = 0, 0.0
    while done < last:
        end = min(done + max(context // 2, 1), last) if done else context
        logits = model(torch.tensor([ids[end - context:end]])).logits[0]
        nats += float(F.cross_entropy(logits[done - end:].double(), torch.tensor(ids[done + 1:end + 1]), reduction="sum"))
        done = end
    return nats / last


def evaluate(folder, path):
    t = AutoTokenizer.from_pretrained(folder)
    with open(path, encoding="utf-8", newline="") as f:
        ids = [i for story in f.read().split("<|endoftext|>") for i in t(story)["input_ids"]]
    for dtype in torch.float64, torch.float32:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
        print(f"{dtype}: {len(ids) - 1} tokens, {nats_per_token(model, ids):.7f} nats per token")
        if dtype == torch.float64:
            print(*greedy(model, ids[:10], 100)[0])


if len(sys.argv) == 3:
    evaluate(*sys.argv[1:])
    sys.exit()
if len(sys.argv) != 1:
    sys.exit("usage: golden_hf.py [DIRECTORY TEXT]")
with open(OUT + "text.txt", encoding="utf-8") as f:
    text = f.read()
for name, (kind, config, tokenizer) in MODELS.items():
    folder = OUT + name
    prompt, t = [3, 1, 4, 1, 5, 9, 2, 6], None
    if tokenizer:
        t = Tokenizer.from_file(BPE + tokenizer + ".json")
        prompt = t.encode(TEXT).ids
    for seed in range(1, 200):
        shutil.rmtree(folder, ignore_errors=True)
        made(kind, config, seed).save_pretrained(folder, max_shard_size="14KB" if name in ("gpt2", "llama") else "1MB")
        model = kind.from_pretrained(folder, dtype=torch.float64).eval()
        ids, logits, margin = greedy(model, prompt, 100)
        if margin > 2e-3 and len(set(ids)) > 20 and not set(ids[len(prompt):]) & {0, 1} and (not t or max(ids) < t.get_vocab_size()):
            break
    else:
        sys.exit(f"{name}: no seed will do")
    os.remove(os.path.join(folder, "generation_config.json"))
    golden = {"prompt": prompt, "ids": ids[len(prompt):], "logits": [round(float(v), 9) for v in logits][:40],
              "nats": round(nats_per_token(model, t.encode(text).ids if t else [b % 39 + 1 for b in text.encode()]), 9)}
    if t:
        golden["text"] = t.decode(ids, skip_special_tokens=True)
    with open(os.path.join(folder, "golden.json"), "w", encoding="utf-8") as f:
        json.dump(golden, f, ensure_ascii=False, separators=(",", ":"))
    print(name, "seed", seed, "margin %.4f" % margin, len(set(ids)), "different ids")
