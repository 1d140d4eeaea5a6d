"""Writes tiny files in the pickled form of CIFAR-10 and CIFAR-100, for the tests of their readers.

Pixels and labels follow a rule that the tests know: byte j of image i of part p is (31 i + 7 j + 101 p) mod 256, its
label (3 i + p) mod the number of classes. Protocol 2 is what the published files use, 4 is Python's default.

    python tools/cifar_pickles.py
"""

import pathlib
import pickle

import numpy as np

FILES = pathlib.Path(__file__).parent.parent / "crates/neurona/tests/files"
IMAGES = 2


def data(part):
    i, j = np.arange(IMAGES)[:, None], np.arange(3072)[None]
    return ((31 * i + 7 * j + 101 * part) % 256).astype(np.uint8)


def labels(part, classes):
    return [(3 * i + part) % classes for i in range(IMAGES)]


def write(path, value, protocol):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(value, protocol))


cifar10 = FILES / "cifar-10-batches-py"
for part, name in enumerate([f"data_batch_{n}" for n in range(1, 6)] + ["test_batch"]):
    batch = {"batch_label": name, "labels": labels(part, 10), "data": data(part), "filenames": ["x.png"] * IMAGES}
    write(cifar10 / name, batch, 2 if part % 2 == 0 else 4)
write(cifar10 / "batches.meta", {"num_cases_per_batch": IMAGES, "label_names": [f"class {n}" for n in range(10)]}, 2)

cifar100 = FILES / "cifar-100-python"
for part, name in enumerate(["train", "test"]):
    batch = {"fine_labels": labels(part, 100), "coarse_labels": labels(part + 1, 20), "data": data(part)}
    write(cifar100 / name, batch, 2 if part == 0 else 4)
# No "meta": the names that everybody knows take its place.
