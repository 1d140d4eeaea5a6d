#!/usr/bin/env python3
"""Neurona's loader beside PyTorch's DataLoader, both with two workers, in one interleaved run.

    python3 -m venv V && V/bin/pip install torch torchvision numpy pillow
    cargo build --release -p neurona --example bench_loader
    V/bin/python bench/loader.py DATA [--rounds R] [--only cifar10|folder]

DATA holds CIFAR-10 in its binary form. Two workloads, each without any training: CIFAR-10 with RandomCrop(32, 4),
flip, ToTensor and Normalize at batch 128; and a folder of 1,000 JPEGs of 500 x 375 pixels (made here: enlarged
CIFAR images with noise) with RandomResizedCrop(224), flip, ToTensor and Normalize. The best epoch of each counts.
"""
import argparse, json, os, pathlib, subprocess, sys, tempfile, time

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import datasets, transforms

NORMALIZE = transforms.Normalize((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))


class Cifar10(Dataset):
    """CIFAR-10's binary files, read as torchvision reads the pickled ones: an array in memory, a PIL image each."""

    def __init__(self, root, train, transform):
        files = [f"data_batch_{n}.bin" for n in range(1, 6)] if train else ["test_batch.bin"]
        bytes_ = b"".join((pathlib.Path(root) / "cifar-10-batches-bin" / f).read_bytes() for f in files)
        records = np.frombuffer(bytes_, np.uint8).reshape(-1, 3073)
        self.labels = records[:, 0].astype(int).tolist()
        self.data = np.ascontiguousarray(records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
        self.transform = transform

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.transform(Image.fromarray(self.data[i])), self.labels[i]


def make_folder(root, data, count=1000):
    """JPEGs of about the size and the bytes of ImageNet's."""
    random = np.random.default_rng(0)
    small = Cifar10(data, True, None)
    for i in range(count):
        image = Image.fromarray(small.data[i]).resize((500, 375), Image.BICUBIC)
        noisy = np.asarray(image, dtype=np.float32) + random.normal(0, 12, (375, 500, 3))
        folder = pathlib.Path(root) / str(small.labels[i])
        folder.mkdir(exist_ok=True)
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(folder / f"{i}.jpg", quality=90)


def torch_epoch(what, path):
    end = [transforms.RandomHorizontalFlip(), transforms.ToTensor(), NORMALIZE]
    if what == "cifar10":
        images = Cifar10(path, True, transforms.Compose([transforms.RandomCrop(32, padding=4), *end]))
    else:
        images = datasets.ImageFolder(path, transforms.Compose([transforms.RandomResizedCrop(224), *end]))
    loader = DataLoader(images, batch_size=128, shuffle=True, num_workers=2)
    start, count = time.perf_counter(), 0
    for batch, _ in loader:
        count += len(batch)
    return count / (time.perf_counter() - start)


def neurona_epoch(binary, what, path):
    done = subprocess.run([binary, what, path], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"bench_loader failed: {done.stderr}")
    return json.loads(done.stdout)["images_per_s"]


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", choices=["cifar10", "folder"])
    parser.add_argument("--folder", help="where the JPEGs are, or are to be, kept")
    parser.add_argument("--binary", default=str(root / "target/release/examples/bench_loader"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or temporary
        if args.only != "cifar10" and (not os.path.isdir(folder) or not os.listdir(folder)):
            os.makedirs(folder, exist_ok=True)
            make_folder(folder, args.data)
        print(f"torch {torch.__version__}, {os.cpu_count()} cores, two workers each; images a second\n")
        print("| workload | Neurona | PyTorch | times |\n|---|---|---|---|")
        for what, path in (("cifar10", args.data), ("folder", folder)):
            if args.only in (None, what):
                turns = [(neurona_epoch(args.binary, what, path), torch_epoch(what, path)) for _ in range(args.rounds)]
                ours, theirs = (max(side) for side in zip(*turns))
                print(f"| {what} | {ours:,.0f} | {theirs:,.0f} | {ours / theirs:.1f} |", flush=True)


if __name__ == "__main__":
    main()
