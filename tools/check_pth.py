"""Has PyTorch read the checkpoints that Neurona writes.

    python tools/check_pth.py target/debug/neurona        (needs torch, torchvision, numpy and safetensors)

The command converts files both ways; PyTorch must read what it wrote with weights_only, map it, load it strictly into
the model, and find the same bits. `tests/files/pth/written/seen.pth`, which a test compares byte for byte with what is
written today, is read too.
"""

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torchvision.models import resnet18

command = sys.argv[1]
here = Path(__file__).parent.parent / "crates" / "neurona" / "tests" / "files" / "pth"


def same(a, b):
    assert a.keys() == b.keys(), a.keys() ^ b.keys()
    for name in a:
        assert a[name].dtype == b[name].dtype and a[name].shape == b[name].shape, name
        assert a[name].contiguous().view(-1).view(torch.uint8).equal(b[name].contiguous().view(-1).view(torch.uint8)), name


def read(path):
    assert zipfile.ZipFile(path).testzip() is None
    state = torch.load(path, weights_only=True)
    same(state, torch.load(path, weights_only=True, mmap=True))
    return state


def convert(a, b):
    subprocess.run([command, "convert", str(a), str(b)], check=True)


seen = read(here / "written" / "seen.pth")
assert list(seen) == ["fc.weight", "fc.bias", "bn.num_batches_tracked"] and seen["fc.bias"].tolist() == [0.5, -0.5]
with tempfile.TemporaryDirectory() as folder:
    folder = Path(folder)
    torch.manual_seed(1)
    model = resnet18(num_classes=10)
    model(torch.randn(2, 3, 64, 64))
    torch.save({"epoch": 1, "state_dict": nn.DataParallel(model).state_dict()}, folder / "a.pth")
    convert(folder / "a.pth", folder / "b.safetensors")
    convert(folder / "b.safetensors", folder / "c.pth")
    state = read(folder / "c.pth")
    same(state, dict(model.state_dict()))
    other = resnet18(num_classes=10)
    other.load_state_dict(state, strict=True)
    image = torch.randn(2, 3, 64, 64)
    assert model.eval()(image).equal(other.eval()(image))
    for name in ["kinds", "views", "tied"]:
        expected = load_file(here / f"{name}.safetensors")
        save_file(expected, folder / f"{name}.safetensors")
        convert(folder / f"{name}.safetensors", folder / f"{name}.pth")
        same(read(folder / f"{name}.pth"), expected)
print("PyTorch", torch.__version__, "reads all of it")
