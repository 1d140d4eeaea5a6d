"""Writes small networks by both of PyTorch's ONNX exporters, with inputs and logits, for the tests of the importer:

    python tools/onnx_fixtures.py crates/neurona/tests/files/onnx

For each network: NAME_script.onnx (torch.onnx.export(dynamo=False)), NAME_dynamo.onnx (dynamo=True; `vit` keeps its
tensors in a second file), NAME.safetensors with input.N and output.N for batches of N. cnn_training.onnx keeps batch
norm and dropout as they are; train.* is what one step in training mode gives. Made with torch 2.15, onnx 1.22.
"""

import logging
import sys
import warnings
from pathlib import Path

import onnx
import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import save_file

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.depthwise = nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=8)
        self.bn2 = nn.BatchNorm2d(8)
        self.pointwise = nn.Conv2d(8, 8, 1)
        self.dropout = nn.Dropout(0.25)
        self.fc = nn.Linear(8, 5)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu6(self.bn2(self.depthwise(x)))
        x = F.max_pool2d(x + self.pointwise(x), 3, 2, 1, ceil_mode=True)
        x = F.adaptive_avg_pool2d(x, 1)
        return self.fc(self.dropout(torch.flatten(x, 1)))


class Vit(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, 16) * 0.02)
        self.position = nn.Parameter(torch.randn(1, 7, 16) * 0.02)
        self.layer = nn.TransformerEncoderLayer(16, 4, 32, 0.0, "gelu", batch_first=True, norm_first=True)
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        n = x.shape[0]
        x = self.patches(x).reshape(n, 16, 6).permute(0, 2, 1)
        x = torch.cat([self.token.expand(n, -1, -1), x], dim=1) + self.position
        return self.head(self.norm(self.layer(x))[:, 0])


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding="same", dilation=2)
        self.group = nn.GroupNorm(2, 8)
        self.prelu = nn.PReLU(8)
        self.shift = nn.Parameter(torch.randn(8, 1, 1))
        self.linear = nn.Linear(8 * 6, 12, bias=False)
        self.layer = nn.LayerNorm(12)
        self.table = nn.Embedding(6, 12)
        self.fc = nn.Linear(12, 5)

    def forward(self, x):
        x = self.prelu(self.group(self.conv(x)))
        x = F.hardswish(x) + F.silu(x) * F.softplus(x) - F.leaky_relu(x, 0.2) + F.elu(x) + F.hardsigmoid(x)
        x = F.avg_pool2d(F.pad(x, (1, 2, 0, 1), mode="reflect"), 3, 2, 1, count_include_pad=False)
        a, b = x.chunk(2, dim=1)
        x = torch.cat([b, a.flip(3)], dim=1) + self.shift
        x = F.interpolate(x, scale_factor=2, mode="nearest")
        x = F.max_pool2d(x, 2, 1, dilation=2)
        x = x[:, :, 1:, ::2].mean(dim=(2, 3), keepdim=True) * x
        x = F.avg_pool2d(x, (4, 7)).clamp(-0.5, 2.0)
        x = self.layer(self.linear(x.flatten(1)))
        x = x * torch.sigmoid(x) + F.gelu(x) + torch.tanh(x) ** 2 + x.abs().sqrt()
        x = torch.where(x > 0.5, x, x.exp() - 1.0) + self.table(torch.tensor([2, 5])).sum(0)
        x = x - x.amax(1, keepdim=True) + x.var(1, keepdim=True)
        return F.softmax(self.fc(x), dim=1).log()


def without_traces(path):
    """The exporter notes where in whose files each node was made: nobody else's business."""
    model = onnx.load(path, load_external_data=False)
    for things in (model.graph.node, model.graph.initializer, model.graph.value_info, model.graph.input, model.graph.output):
        for thing in things:
            del thing.metadata_props[:]
            thing.doc_string = ""
    onnx.save(model, path)


def export(net, x, path, dynamo, **more):
    if dynamo:
        shapes = ({0: torch.export.Dim("batch")},)
        torch.onnx.export(net, (x,), path, dynamo=True, dynamic_shapes=shapes, verbose=False, **more)
        without_traces(path)
    else:
        names = dict(input_names=["input"], output_names=["logits"], dynamic_axes={"input": {0: "batch"}})
        torch.onnx.export(net, (x,), path, dynamo=False, **names, **more)


def worn(net):
    """Parameters and statistics as after training: equal ones would be written once by the newer exporter."""
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    for name, buffer in net.named_buffers():
        if name.endswith("mean"):
            buffer.normal_(0, 0.2)
        elif name.endswith("var"):
            buffer.uniform_(0.5, 1.5)


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    for name, net, size in [("cnn", Cnn(), (3, 9, 10)), ("vit", Vit(), (3, 8, 12)), ("layers", Layers(), (3, 12, 12))]:
        worn(net)
        net.eval()
        x = torch.randn(2, *size)
        export(net, x, folder / f"{name}_script.onnx", False)
        # Tensors in a second file only where that is what is tested.
        export(net, x, folder / f"{name}_dynamo.onnx", True, external_data=name == "vit")
        cases = {f"input.{n}": torch.randn(n, *size) for n in (1, 4)}
        with torch.no_grad():
            cases |= {f"output.{n}": net(cases[f"input.{n}"]) for n in (1, 4)}
        if name == "cnn":
            training(net, cases, x, folder)
        save_file({k: v.contiguous() for k, v in cases.items()}, folder / f"{name}.safetensors")


def training(net, cases, x, folder):
    state = {k: v.clone() for k, v in net.state_dict().items()}
    net.train()
    mode = torch.onnx.TrainingMode.TRAINING
    export(net, x, folder / "cnn_training.onnx", False, training=mode, do_constant_folding=False)
    # The exporter's own pass went into the statistics.
    net.load_state_dict(state)
    # Dropout draws other numbers elsewhere.
    net.dropout.p = 0.0
    labels = torch.tensor([1, 0, 4, 2])
    loss = F.cross_entropy(net(cases["input.4"]), labels)
    loss.backward()
    cases["train.labels"], cases["train.loss"] = labels, loss.detach()
    cases |= {f"train.grad.{k}": p.grad for k, p in net.named_parameters()}
    cases |= {f"train.after.{k}": v.clone() for k, v in net.named_buffers()}
    cases |= {f"state.{k}": v for k, v in state.items()}
    net.load_state_dict(state)
    net.eval()


if __name__ == "__main__":
    main()
