#!/usr/bin/env python3
"""Neurona, Keras, Burn and Candle over PyTorch on CPU cores: one picture.

  bench/compare_torch.py --json rows.jsonl
  bench/plot_peers.py rows.jsonl bench/results/2026-11-15-peers.jsonl docs/cpu.svg

The first file has Neurona's and PyTorch's figures of one run, the second those of the other frameworks with PyTorch's of
their machine. Machines differ, so a point is a speed over PyTorch's on the same machine, the best run of each. Needs
nothing but Python."""

import json
import math
import sys

from picture import framed, save

WORKS = {
    "lab_b1": "tutorial's network, 1",
    "lab_b4": "tutorial's network, 4",
    "lab_b128": "tutorial's network, 128",
    "bn_b64": "course CNN, 64",
    "mlp500_b32": "MLP 500-256-10, 32",
    "mlp784_b128": "MLP 784-512-256-10, 128",
    "r18_b1": "ResNet-18 (CIFAR), 1",
    "r18_b32": "ResNet-18 (CIFAR), 32",
}
PEERS = {"keras": "Keras 3.15 on JAX", "burn": "Burn 0.23", "candle": "Candle 0.11", "neurona": "Neurona"}
KINDS = {"train_per_s": "training", "infer_per_s": "inference"}
WIDTH, LEFT, PANEL, GAP, TOP, STEP = 920, 212, 320, 35, 112, 30
FIRST, LAST = math.log10(0.04), math.log10(40)


def best(path):
    """(framework, work, kind) -> images a second of its best run on two threads."""
    speeds = {}
    for line in open(path):
        row = json.loads(line)
        if row.get("work") not in WORKS or "compile" in row["peer"] or row.get("threads", 2) != 2:
            continue
        peer = next((name for name in (*PEERS, "torch") if row["peer"].startswith(name)), None)
        for kind in KINDS:
            place = (peer, row["work"], kind)
            # Keras is timed by train_on_batch and by fit.
            speed = max(row.get(kind) or 0.0, row.get("fit_per_s", 0.0) if kind == "train_per_s" else 0.0)
            speeds[place] = max(speeds.get(place, 0.0), speed)
    return speeds


def ratios(paths):
    """(framework, work, kind) -> times PyTorch's speed, both of one file."""
    over = {}
    for path in paths:
        speeds = best(path)
        for (peer, work, kind), speed in speeds.items():
            torch = speeds.get(("torch", work, kind))
            if peer in PEERS and speed and torch:
                over[peer, work, kind] = speed / torch
    return over


def dots(over):
    bottom = TOP + STEP * len(WORKS)
    x = 24
    for peer, name in reversed(PEERS.items()):
        yield f'<circle class="{peer}" cx="{x + 6}" cy="59" r="{radius(peer)}"/><text x="{x + 20}" y="64">{name}</text>'
        x += 45 + 8 * len(name)
    yield f'<line class="line" x1="{x}" y1="50" x2="{x}" y2="68"/><text x="{x + 12}" y="64">PyTorch 2.15</text>'
    for i, name in enumerate(WORKS.values()):
        yield f'<text x="{LEFT - 12}" y="{TOP + i * STEP + 20}" text-anchor="end">{name}</text>'
    for panel, (kind, title) in enumerate(KINDS.items()):
        left = LEFT + panel * (PANEL + GAP)
        across = lambda times: left + (math.log10(times) - FIRST) / (LAST - FIRST) * PANEL
        yield f'<text class="ratio" x="{left}" y="{TOP - 14}">{title}</text>'
        for times in (0.1, 1, 10):
            shape = "line" if times == 1 else "grid"
            yield f'<line class="{shape}" x1="{across(times):.1f}" y1="{TOP - 6}" x2="{across(times):.1f}" y2="{bottom}"/>'
            yield f'<text class="faint" x="{across(times):.1f}" y="{bottom + 18}" text-anchor="middle">{times}×</text>'
        for i, work in enumerate(WORKS):
            y = TOP + i * STEP + 15
            yield f'<line class="grid" x1="{left}" y1="{y}" x2="{left + PANEL}" y2="{y}"/>'
            for peer in PEERS:
                if times := over.get((peer, work, kind)):
                    yield f'<circle class="{peer}" cx="{across(times):.1f}" cy="{y}" r="{radius(peer)}"/>'
            if times := over.get(("neurona", work, kind)):
                yield f'<text class="ratio" x="{across(times) + 12:.1f}" y="{y + 5}">{times:.1f}×</text>'


def radius(peer):
    return 7 if peer == "neurona" else 5


about = "Speed over PyTorch's on two CPU cores: Neurona, Keras, Burn and Candle"
title = "Two CPU cores: speed over PyTorch's (logarithmic), by network and batch"
over = ratios(sys.argv[1:3])
save(sys.argv[3], framed(WIDTH, TOP + STEP * len(WORKS) + 36, about, title, dots(over)))
