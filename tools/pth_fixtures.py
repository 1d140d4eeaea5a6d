"""Writes the PyTorch checkpoints and Python pickles that the tests read, with the values they must give.

    python tools/pth_fixtures.py        (needs torch, numpy and safetensors)

Every `pth/<name>.pth` has a `pth/<name>.safetensors` beside it with the names and values to be read from it; files
in `pth/refused/` have none. `pickle/all-<n>.pickle` hold one dict in protocol n.
"""

import collections
import pickle
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

HERE = Path(__file__).parent.parent / "crates" / "neurona" / "tests" / "files"
torch.manual_seed(7)


def write(name, saved, expected, **options):
    torch.save(saved, HERE / "pth" / f"{name}.pth", **options)
    expected = {key: value.detach().clone().contiguous() for key, value in expected.items()}
    save_file(expected, HERE / "pth" / f"{name}.safetensors")


def net():
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3))


def pths():
    model = net()
    model(torch.randn(4, 1, 4, 4))
    state = model.state_dict()
    write("plain", state, state)
    write("data_parallel", nn.DataParallel(model).state_dict(), state)
    write("compiled", {f"_orig_mod.module.{k}": v for k, v in state.items()}, state)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.randn(4, 1, 4, 4)).sum().backward()
    optimizer.step()
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    trained = model.state_dict()
    checkpoint = {
        "epoch": 3,
        "lr": 0.1,
        "losses": [0.5, 0.25],
        "model_state_dict": trained,
        "optimizer_state_dict": optimizer.state_dict(),
        "scheduler": schedule.state_dict(),
    }
    write("checkpoint", checkpoint, trained)
    write("nested", {"model": {"state_dict": trained, "arch": "small"}, "step": 7}, trained)
    write("other_key", {"my_net": trained, "epoch": 1}, trained)
    numbered = {0: torch.arange(3.0), 1: torch.arange(2.0), "name": torch.ones(1)}
    write("int_keys", numbered, {str(k): v for k, v in numbered.items()})
    base = torch.arange(24.0).reshape(2, 3, 4)
    views = {
        "base": base,
        "transposed": base.permute(2, 0, 1),
        "part": base[1:, ::2, 1:3],
        "expanded": torch.tensor([1.0, 2.0]).expand(3, 2),
        "alone": torch.arange(6.0).reshape(2, 3).t(),
        "channels_last": torch.randn(2, 3, 2, 2).to(memory_format=torch.channels_last),
        "row": base[1, 2],
        "scalar": torch.tensor(2.5),
        "empty": torch.zeros(0, 5),
    }
    write("views", views, views)
    kinds = {
        "f64": torch.tensor([1e300, -0.0], dtype=torch.float64),
        "f32": torch.tensor([float("nan"), float("-inf"), 1e-45]),
        "f16": torch.tensor([65504.0, 6e-8], dtype=torch.float16),
        "bf16": torch.tensor([3e38, 1e-40], dtype=torch.bfloat16),
        "i64": torch.tensor([-(2**63), 2**63 - 1]),
        "u8": torch.tensor([0, 255], dtype=torch.uint8),
        "bool": torch.tensor([True, False, True]),
    }
    narrow = {
        "i32": torch.tensor([-(2**31), 2**31 - 1], dtype=torch.int32),
        "i16": torch.tensor([-(2**15), 2**15 - 1], dtype=torch.int16),
        "i8": torch.tensor([-128, 127], dtype=torch.int8),
        "u16": torch.tensor([0, 65535], dtype=torch.uint16),
        "u32": torch.tensor([0, 2**32 - 1], dtype=torch.uint32),
    }
    write("kinds", kinds | narrow, kinds | {k: v.to(torch.int64) for k, v in narrow.items()})
    tied = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Linear(4, 4)})
    tied["b"].weight = tied["a"].weight
    write("tied", dict(tied.named_parameters(remove_duplicate=False)), tied.state_dict())
    torch.serialization.set_crc32_options(False)
    write("no_checksums", {"a": torch.arange(4.0)}, {"a": torch.arange(4.0)})
    torch.serialization.set_crc32_options(True)

    refused = HERE / "pth" / "refused"
    torch.save(state, refused / "old_format.pth", _use_new_zipfile_serialization=False)
    torch.jit.script(nn.Linear(2, 2)).save(str(refused / "torchscript.pt"))
    torch.save(nn.Linear(2, 2), refused / "whole_model.pth")
    torch.save({"generator": {"a": torch.ones(1)}, "critic": {"a": torch.ones(1)}}, refused / "several.pth")
    torch.save(torch.ones(2), refused / "one_tensor.pth")
    torch.save({"a": torch.ones(2, 2).to_sparse()}, refused / "sparse.pth")
    torch.save({"a": torch.ones(2, dtype=torch.complex64)}, refused / "complex.pth")
    torch.save({"epoch": 3, "note": "no tensors"}, refused / "no_tensors.pth")


def pickles():
    values = {
        "none": None,
        "flags": [True, False],
        "ints": [0, -1, 255, 65535, -(2**31), 2**40, -(2**63)],
        "float": [0.5, -1e300, float("inf")],
        "bytes": b"\x00\xff'\"\\\n",
        "text": "ünï\n\\ 漢 \U0001f600",
        "t0": (),
        "t3": (1, 2, 3),
        "t5": (1, 2, 3, 4, 5),
        7: "int key",
        ("a", 1): "tuple key",
        "set": {1},
        "od": collections.OrderedDict([("a", 1), ("b", [2])]),
        "array": np.arange(6, dtype=">i2").reshape(2, 3),
        "fortran": np.asfortranarray(np.arange(6, dtype="u1").reshape(2, 3)),
        "long": "x" * 300,
    }
    values["shared"] = values["ints"]
    for protocol in range(6):
        # Protocols 0 and 1 write integers beyond 64 bits as decimal digits, which are not read.
        more = {"big": 2**80} if protocol > 1 else {}
        (HERE / "pickle" / f"all-{protocol}.pickle").write_bytes(pickle.dumps(values | more, protocol))


for folder in ["pth/refused", "pickle"]:
    (HERE / folder).mkdir(parents=True, exist_ok=True)
pths()
pickles()
