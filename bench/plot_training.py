#!/usr/bin/env python3
"""Training on a GPU beside PyTorch: one table and one picture.

  neurona bench --device cuda --amp bf16 --json lab bn mlp784 r18 >> rows.jsonl     (and PyTorch's rows of the same works)
  bench/plot_training.py rows.jsonl docs/h200.svg

A row is a line of JSON with `train`, `batch`, `dtype`, `img_per_s`, and `kernels` (Neurona's) or `compile` (PyTorch's). The
table goes to the output: every work, Neurona in f32 and bf16 with automatic and with own kernels, PyTorch's fastest row. Ratios
are of the fastest rows of both, and so is the picture. Needs nothing but Python."""

import json
import math
import sys

from picture import framed, save

WORKS = {"lab": "tutorial's network", "bn": "course CNN", "mlp784": "MLP 784-512-256-10", "r18": "ResNet-18 (CIFAR)"}
TYPES = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}

WIDTH, LEFT, RIGHT, TOP, BAR, GAP = 920, 250, 780, 92, 15, 14

def read(path):
    """(work, batch) -> (Neurona's, PyTorch's) images a second by (type, kernels or mode)."""
    works = {}
    for line in open(path):
        row = json.loads(line)
        neurona, torch = works.setdefault((row["train"], row["batch"]), ({}, {}))
        if "kernels" in row:
            neurona[TYPES[row["dtype"]], row["kernels"]] = row["img_per_s"]
        else:
            torch[TYPES[row["dtype"]], "compiled" if row["compile"] else "eager"] = row["img_per_s"]
    order = {name: i for i, name in enumerate(WORKS)}
    both = ((work, speeds) for work, speeds in works.items() if all(speeds))
    return dict(sorted(both, key=lambda item: (order[item[0][0]], item[0][1])))


def fastest(speeds):
    """(speed, type, kernels or mode) of the fastest row."""
    return max((speed, *how) for how, speed in speeds.items())


def table(works):
    columns = [(dtype, kernels) for dtype in ("f32", "bf16") for kernels in ("auto", "own")]
    yield f"| work | batch | PyTorch | {' | '.join(', '.join(column) for column in columns)} | ratio |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    for (work, batch), (neurona, torch) in works.items():
        best, (peer, *how) = fastest(neurona)[0], fastest(torch)
        cells = [f"{neurona[column]:,.0f}" if column in neurona else "" for column in columns]
        yield f"| {WORKS[work]} | {batch:,} | {peer:,} ({', '.join(how)}) | {' | '.join(cells)} | {ratio(best / peer)} |"


def ratio(times):
    return f"{times:.2f}×" if times < 2 else f"{times:.1f}×"


def picture(works):
    rows = [(f"{WORKS[work]}, {batch:,}", fastest(neurona), fastest(torch)) for (work, batch), (neurona, torch) in works.items()]
    about = "Images a second in training on one NVIDIA H200: Neurona and PyTorch 2.11"
    title = "Training on one H200: images a second (logarithmic), by network and batch"
    return framed(WIDTH, TOP + (2 * BAR + GAP) * len(rows) + 44, about, title, bars(rows))


def bars(rows):
    first = math.floor(math.log10(min(min(a[0], b[0]) for _, a, b in rows)))
    last = math.ceil(math.log10(max(max(a[0], b[0]) for _, a, b in rows)))
    across = lambda speed: LEFT + (math.log10(speed) - first) / (last - first) * (RIGHT - LEFT)
    step = 2 * BAR + GAP
    bottom = TOP + step * len(rows)
    other = "PyTorch 2.11, in the same run; each with its fastest numbers and kernels"
    for x, kind, name in ((24, "neurona", "Neurona"), (130, "torch", other)):
        yield f'<rect class="{kind}" x="{x}" y="52" width="14" height="14"/><text x="{x + 22}" y="64">{name}</text>'
    for power in range(first, last + 1):
        x = across(10**power)
        name = f"{10 ** power // 10**6} million" if power >= 6 else f"{10 ** power:,}"
        yield f'<line class="grid" x1="{x:.1f}" y1="{TOP - 8}" x2="{x:.1f}" y2="{bottom}"/>'
        yield f'<text class="faint" x="{x:.1f}" y="{bottom + 20}" text-anchor="middle">{name}</text>'
    for i, (name, neurona, torch) in enumerate(rows):
        y = TOP + i * step
        yield f'<text x="{LEFT - 12}" y="{y + BAR + 5}" text-anchor="end">{name}</text>'
        for kind, (speed, dtype, _), place in (("neurona", neurona, y), ("torch", torch, y + BAR)):
            yield f'<rect class="{kind}" x="{LEFT}" y="{place}" width="{across(speed) - LEFT:.1f}" height="{BAR - 1}"/>'
            yield f'<text class="faint" x="{across(speed) + 6:.1f}" y="{place + 12}">{speed:,.0f} {dtype}</text>'
        yield f'<text class="ratio" x="{WIDTH - 24}" y="{y + BAR + 5}" text-anchor="end">{ratio(neurona[0] / torch[0])}</text>'


works = read(sys.argv[1])
print("\n".join(table(works)))
if len(sys.argv) > 2:
    save(sys.argv[2], picture(works))
