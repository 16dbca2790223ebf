# SPDX-License-Identifier: Apache-2.0
"""Train the digits example network and write it as ONNX, with its held-out images.

The data are the 1,797 handwritten digits that come with scikit-learn, so nothing is
downloaded. The split is fixed and stratified, and held-out images are used for nothing
but the accuracy printed at the end. The ONNX graph is written node by node
(`build_onnx`), so that every node has a readable name.

Two runs on one machine with the same package versions write the same bytes.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import torch
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn import functional as F

SEED = 0
HELD_OUT_FRACTION = 0.3
EPOCHS = 40
BATCH_SIZE = 32
PEAK_LEARNING_RATE = 1e-2
WEIGHT_DECAY = 1e-2
MIN_HELD_OUT_ACCURACY = 0.97
MAX_DIFFERENCE = 1e-4
IMAGE_SIZE = 8
CLASSES = 10
OPSET = 17
IR_VERSION = 8

Images = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ConvSpec:
    """One convolution with symmetric padding `kernel // 2` and a ReLU behind it."""

    name: str
    in_channels: int
    out_channels: int
    kernel: int
    stride: int
    in_size: int

    @property
    def pad(self) -> int:
        """Padding on each side, in pixels ("same" when the stride is 1)."""
        return self.kernel // 2

    @property
    def out_size(self) -> int:
        """Height and width of the output, in pixels."""
        return (self.in_size + 2 * self.pad - self.kernel) // self.stride + 1

    @property
    def macs(self) -> int:
        """Multiply-accumulates for one image, counting those that meet padding."""
        per_pixel = self.in_channels * self.kernel**2 * self.out_channels
        return per_pixel * self.out_size**2


CONV1 = ConvSpec("conv1", 1, 16, kernel=3, stride=1, in_size=8)
CONV2 = ConvSpec("conv2", 16, 16, kernel=3, stride=1, in_size=8)
# A 2x2 max pool (pool1) stands between these two: 8x8 becomes 4x4.
CONV3 = ConvSpec("conv3_stride2", 16, 32, kernel=3, stride=2, in_size=4)
CONV4 = ConvSpec("conv4_1x1", 32, 32, kernel=1, stride=1, in_size=2)
CONVS = (CONV1, CONV2, CONV3, CONV4)
FEATURES = CONV4.out_channels * CONV4.out_size**2


@dataclass(frozen=True)
class Split:
    """Images float32 [N, 1, 8, 8] in 0..1 with labels int64 [N], in two parts."""

    train_image: Images
    train_label: Labels
    held_out_image: Images
    held_out_label: Labels


def load_split() -> Split:
    """Load scikit-learn's digits (integers 0..16) and split them, the same way each time."""
    raw_image, raw_label = load_digits(return_X_y=True)
    shape = (-1, 1, IMAGE_SIZE, IMAGE_SIZE)
    image = (raw_image / 16.0).astype(np.float32).reshape(shape)
    label = raw_label.astype(np.int64)
    train_image, held_out_image, train_label, held_out_label = train_test_split(
        image, label, test_size=HELD_OUT_FRACTION, stratify=label, random_state=SEED
    )
    return Split(train_image, train_label, held_out_image, held_out_label)


def conv_with_norm(spec: ConvSpec) -> nn.Sequential:
    """A convolution and the batch norm that `fold` later multiplies into it."""
    conv = nn.Conv2d(
        spec.in_channels, spec.out_channels, spec.kernel, spec.stride, spec.pad, bias=False
    )
    return nn.Sequential(conv, nn.BatchNorm2d(spec.out_channels))


class DigitsNet(nn.Module):
    """The network: image float32 [N, 1, 8, 8] to logits float32 [N, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = conv_with_norm(CONV1)
        self.conv2 = conv_with_norm(CONV2)
        self.conv3 = conv_with_norm(CONV3)
        self.conv4 = conv_with_norm(CONV4)
        self.dense = nn.Linear(FEATURES, CLASSES)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Compute logits float32 [N, 10] of image float32 [N, 1, 8, 8]."""
        x = F.relu(self.conv1(image))
        x = F.relu(self.conv2(x))
        x = F.max_pool2d(x, 2)
        x = F.relu(self.conv3(x))
        x = F.relu(self.conv4(x))
        logits: torch.Tensor = self.dense(torch.flatten(x, 1))
        return logits


def make_deterministic() -> None:
    """Seed torch, keep it to one thread and have it refuse non-deterministic kernels."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)


def shift(image: torch.Tensor) -> torch.Tensor:
    """Move each image [N, 1, 8, 8] by -1, 0 or 1 pixel each way, filling with zeros."""
    count = image.shape[0]
    padded = F.pad(image, (1, 1, 1, 1))
    top, left = torch.randint(0, 3, (2, count, 1, 1))
    rows = top + torch.arange(IMAGE_SIZE).view(1, -1, 1)
    columns = left + torch.arange(IMAGE_SIZE).view(1, 1, -1)
    index = torch.arange(count).view(-1, 1, 1)
    return padded[index, 0, rows, columns].unsqueeze(1)


def train(image: Images, label: Labels) -> DigitsNet:
    """Train on image float32 [N, 1, 8, 8], label int64 [N] for a fixed number of epochs."""
    model = DigitsNet()
    images, labels = torch.from_numpy(image), torch.from_numpy(label)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=WEIGHT_DECAY)
    steps = -(-len(images) // BATCH_SIZE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, PEAK_LEARNING_RATE, epochs=EPOCHS, steps_per_epoch=steps
    )
    for epoch in range(1, EPOCHS + 1):
        model.train()
        total = 0.0
        for batch in torch.split(torch.randperm(len(images)), BATCH_SIZE):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(shift(images[batch])), labels[batch])
            torch.autograd.backward(loss)
            optimizer.step()
            schedule.step()
            total += loss.item() * len(batch)
        if epoch % 10 == 0 or epoch == 1:
            print(f"epoch {epoch:3d}/{EPOCHS}  loss {total / len(images):.4f}", flush=True)
    return model.eval()


def fold(block: nn.Sequential) -> tuple[Images, Images]:
    """Fold a batch norm into its convolution: weight [O, I, K, K] and bias [O], float32."""
    conv, norm = block[0], block[1]
    assert isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d)
    assert norm.running_mean is not None and norm.running_var is not None
    with torch.no_grad():
        scale = norm.weight.double() / torch.sqrt(norm.running_var.double() + norm.eps)
        weight = conv.weight.double() * scale.view(-1, 1, 1, 1)
        bias = norm.bias.double() - norm.running_mean.double() * scale
    return weight.float().numpy(), bias.float().numpy()


def conv_nodes(spec: ConvSpec, source: str, relu: str) -> list[onnx.NodeProto]:
    """The Conv node of `spec` reading `source`, and its Relu node named `relu`."""
    name = spec.name
    conv = helper.make_node(
        "Conv",
        [source, f"{name}.weight", f"{name}.bias"],
        [f"{name}_out"],
        name=name,
        dilations=[1, 1],
        group=1,
        kernel_shape=[spec.kernel, spec.kernel],
        pads=[spec.pad] * 4,
        strides=[spec.stride, spec.stride],
    )
    return [conv, helper.make_node("Relu", [f"{name}_out"], [f"{relu}_out"], name=relu)]


def graph_nodes() -> list[onnx.NodeProto]:
    """All nodes of the ONNX graph, from `image` to `logits`."""
    pool = helper.make_node(
        "MaxPool", ["relu2_out"], ["pool1_out"], name="pool1", kernel_shape=[2, 2], strides=[2, 2]
    )
    flatten = helper.make_node("Flatten", ["relu4_out"], ["flatten_out"], name="flatten", axis=1)
    dense = helper.make_node(
        "Gemm",
        ["flatten_out", "dense.weight", "dense.bias"],
        ["logits"],
        name="dense",
        alpha=1.0,
        beta=1.0,
        transB=1,
    )
    return [
        *conv_nodes(CONV1, "image", "relu1"),
        *conv_nodes(CONV2, "relu1_out", "relu2"),
        pool,
        *conv_nodes(CONV3, "pool1_out", "relu3"),
        *conv_nodes(CONV4, "relu3_out", "relu4"),
        flatten,
        dense,
    ]


def initializers(model: DigitsNet) -> list[onnx.TensorProto]:
    """All weights of `model`, batch norms folded, as float32 ONNX tensors."""
    tensors: dict[str, Images] = {}
    blocks = (model.conv1, model.conv2, model.conv3, model.conv4)
    for spec, block in zip(CONVS, blocks, strict=True):
        tensors[f"{spec.name}.weight"], tensors[f"{spec.name}.bias"] = fold(block)
    tensors["dense.weight"] = model.dense.weight.detach().numpy()
    tensors["dense.bias"] = model.dense.bias.detach().numpy()
    return [numpy_helper.from_array(array, name) for name, array in tensors.items()]


def build_onnx(model: DigitsNet) -> onnx.ModelProto:
    """Write the trained `model` as ONNX; the first dimension is the symbol `batch`."""
    image_shape: list[str | int | None] = ["batch", 1, IMAGE_SIZE, IMAGE_SIZE]
    graph = helper.make_graph(
        graph_nodes(),
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, image_shape)],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", CLASSES])],
        initializers(model),
    )
    proto = helper.make_model(
        graph,
        producer_name="umakit examples/digits/train.py",
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    onnx.checker.check_model(proto, full_check=True)
    return proto


def run_torch(model: DigitsNet, image: Images) -> Images:
    """Logits float32 [N, 10] of image float32 [N, 1, 8, 8], by the torch model."""
    with torch.no_grad():
        logits: Images = model(torch.from_numpy(image)).numpy()
    return logits


def run_onnx(serialized: bytes, image: Images) -> Images:
    """Logits float32 [N, 10] of image float32 [N, 1, 8, 8], by ONNX Runtime."""
    session = ort.InferenceSession(serialized, providers=["CPUExecutionProvider"])
    logits: Images = session.run(["logits"], {"image": image})[0]
    return logits


def report_accuracy(title: str, logits: Images, label: Labels) -> float:
    """Print and return the accuracy of logits float32 [N, 10] against label int64 [N]."""
    right = int((logits.argmax(axis=1) == label).sum())
    print(f"{title:9s} {right}/{len(label)} right, accuracy {right / len(label):.2%}")
    return right / len(label)


def verify(model: DigitsNet, serialized: bytes, split: Split) -> None:
    """Compare ONNX Runtime with torch and check the accuracy; SystemExit if either fails."""
    logits = run_onnx(serialized, split.held_out_image)
    reference = run_torch(model, split.held_out_image)
    difference = float(np.abs(logits - reference).max())
    print(f"ONNX Runtime against torch, held-out: max abs difference {difference:.2e}")
    if not difference < MAX_DIFFERENCE:
        raise SystemExit(f"error: the difference must be below {MAX_DIFFERENCE:g}")
    report_accuracy("train", run_onnx(serialized, split.train_image), split.train_label)
    accuracy = report_accuracy("held-out", logits, split.held_out_label)
    if accuracy < MIN_HELD_OUT_ACCURACY:
        raise SystemExit(f"error: held-out accuracy must be {MIN_HELD_OUT_ACCURACY:.0%} or more")


def print_layers(proto: onnx.ModelProto) -> None:
    """Print the multiply-accumulates per layer and the number of parameters."""
    macs = {spec.name: spec.macs for spec in CONVS} | {"dense": FEATURES * CLASSES}
    for name, count in macs.items():
        print(f"{name:14s} {count:8,d} MACs")
    parameters = sum(int(np.prod(tensor.dims)) for tensor in proto.graph.initializer)
    print(f"{'total':14s} {sum(macs.values()):8,d} MACs per image, {parameters:,d} parameters")


def write_files(output: Path, serialized: bytes, split: Split) -> None:
    """Write `digits.onnx` and `held_out.npz` (image, label) into the folder `output`."""
    output.mkdir(parents=True, exist_ok=True)
    onnx_path, npz_path = output / "digits.onnx", output / "held_out.npz"
    onnx_path.write_bytes(serialized)
    np.savez_compressed(npz_path, image=split.held_out_image, label=split.held_out_label)
    for path in (onnx_path, npz_path):
        print(f"wrote {path} ({path.stat().st_size:,d} bytes)")


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description="Train the digits example network; write digits.onnx and held_out.npz."
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path(__file__).parent,
        metavar="DIR",
        help="folder to write the two files into (default: the folder of this script)",
    )
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Train, verify, and only then write the files."""
    args = parse_args(argv)
    make_deterministic()
    split = load_split()
    print(f"{len(split.train_label)} training images, {len(split.held_out_label)} held out")
    model = train(split.train_image, split.train_label)
    proto = build_onnx(model)
    serialized = proto.SerializeToString(deterministic=True)
    print_layers(proto)
    verify(model, serialized, split)
    write_files(args.output, serialized, split)
    return 0


if __name__ == "__main__":
    sys.exit(main())
