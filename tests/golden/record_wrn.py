#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records tests/golden/wrn_28_2.json: WRN-28-2 in PyTorch, f64, on one batch.

Run by hand (README.md beside this file); no test runs it. The network is that
of src/models/wrn.cc; what is recorded and why is said in README.md.
"""
import math
import sys

import torch
import torch.nn.functional as F

from recording import (copy, f32_runs, hash_labels, hash_pixels, loss_records,
                       tensor_record, three_digits, units, write)

SEED = 1
BATCH, CLASSES, STEPS = 8, 10, 10
WIDTHS, BLOCKS = (32, 64, 128), 4
# About those of CIFAR-10; 1 / stddev and mean / stddev are exact in f32.
MEAN, STDDEV = (126.0, 122.0, 114.0), (64.0, 32.0, 128.0)
BN_EPS, BN_MOMENTUM = 1e-5, 0.1
LR, MOMENTUM, WEIGHT_DECAY = 0.01, 0.9, 5e-4
# name: (offset, scale); value = offset + scale * unit.
BN_WEIGHT, BN_BIAS, FC = (1.0, 0.25), (0.0, 0.25), (0.0, 0.0625)
# For each batch norm's bias, in order, which of VARIANTS tensor numbers it is
# made from: those that keep its layer's values farthest from ReLU's kink.
VARIANTS, VARIANT_STRIDE = 1024, 1000
CHOSEN = [  # from --choose
    648, 7, 376, 353, 783, 224, 716, 290, 281, 90, 450, 43, 91, 856, 553, 815,
    668, 847, 549, 324, 45, 404, 51, 397, 832,
]


def conv_scale(channels):
    """A power of two near He's deviation for the fan-out, times sqrt(3) for a
    uniform distribution."""
    return 2.0 ** round(math.log2(math.sqrt(3 * 2 / (9 * channels))))


def parameters():
    """{name: (tensor number, shape, offset, scale)}, in the order of
    src/models/wrn.cc."""
    result = {}
    variants = iter(CHOSEN)

    def add(name, shape, offset, scale, variant=0):
        number = 1 + len(result) + VARIANT_STRIDE * variant
        result[name] = (number, shape, offset, scale)

    def conv(name, channels, out):
        add(name + ".weight", (out, channels, 3, 3), 0.0, conv_scale(out))

    def bn(name, channels):
        add(name + ".weight", (channels,), *BN_WEIGHT)
        add(name + ".bias", (channels,), *BN_BIAS, next(variants, 0))

    conv("stem", 3, 16)
    channels = 16
    for stage, out in enumerate(WIDTHS):
        for block in range(BLOCKS):
            name = f"stage{stage + 1}.block{block + 1}"
            bn(name + ".bn1", channels)
            conv(name + ".conv1", channels, out)
            bn(name + ".bn2", out)
            conv(name + ".conv2", out, out)
            channels = out
    bn("bn", channels)
    add("fc.weight", (CLASSES, channels), *FC)
    add("fc.bias", (CLASSES,), *FC)
    return result


PARAMETERS = parameters()
IMAGES, LABELS = 901, 902  # further tensor numbers


def make(name, dtype):
    number, shape, offset, scale = PARAMETERS[name]
    values = offset + scale * units(SEED, number, math.prod(shape))
    return torch.from_numpy(values).reshape(shape).to(dtype)


def images_and_labels():
    return (hash_pixels(SEED, IMAGES, (BATCH, 3, 32, 32)),
            hash_labels(SEED, LABELS, BATCH, CLASSES))


def forward(p, stats, x, margins, before_bn=None):
    """Logits; updates the running statistics; notes the distance to kinks."""
    def activated(y, name):
        if before_bn is not None:
            before_bn(y, name)
        y = F.batch_norm(y, stats[name + ".running_mean"],
                         stats[name + ".running_var"], p[name + ".weight"],
                         p[name + ".bias"], True, BN_MOMENTUM, BN_EPS)
        margins.append(y.detach().abs().min().item())
        return F.relu(y)

    x = F.conv2d(x, p["stem.weight"], padding=1)
    for stage, out in enumerate(WIDTHS):
        for block in range(BLOCKS):
            name = f"stage{stage + 1}.block{block + 1}"
            stride = 2 if stage > 0 and block == 0 else 1
            y = F.conv2d(activated(x, name + ".bn1"), p[name + ".conv1.weight"],
                         stride=stride, padding=1)
            z = F.conv2d(activated(y, name + ".bn2"), p[name + ".conv2.weight"],
                         padding=1)
            shortcut = x[:, :, ::stride, ::stride]
            x = z + F.pad(shortcut, (0, 0, 0, 0, 0, out - x.shape[1]))
    features = activated(x, "bn").mean(dim=(2, 3))
    return F.linear(features, p["fc.weight"], p["fc.bias"])


def initial_statistics(dtype):
    stats = {}
    for name, (_, shape, *_) in PARAMETERS.items():
        layer, kind = name.rsplit(".", 1)
        if kind == "bias" and layer != "fc":
            stats[layer + ".running_mean"] = torch.zeros(shape, dtype=dtype)
            stats[layer + ".running_var"] = torch.ones(shape, dtype=dtype)
    return stats


def normalised(images, dtype):
    def each(values):
        return torch.tensor(values, dtype=dtype).reshape(1, 3, 1, 1)

    return (images.to(dtype) - each(MEAN)) / each(STDDEV)


def run(dtype, memory_format=torch.contiguous_format, rotation=0):
    """STEPS steps of SGD; everything that is recorded, as f64 tensors."""
    p = {n: make(n, dtype) for n in PARAMETERS}
    p = {n: (t.to(memory_format=memory_format) if t.dim() == 4 else t)
         .requires_grad_() for n, t in p.items()}
    stats = initial_statistics(dtype)
    images, labels = images_and_labels()
    images, labels = images.roll(rotation, 0), labels.roll(rotation, 0)
    x = normalised(images, dtype).to(memory_format=memory_format)
    sgd = torch.optim.SGD(p.values(), lr=LR, momentum=MOMENTUM, nesterov=True,
                          weight_decay=WEIGHT_DECAY)
    result = {"losses": [], "margins": []}
    for step in range(STEPS + 1):
        margins = []
        loss = F.cross_entropy(forward(p, stats, x, margins), labels)
        result["losses"].append(loss.item())
        result["margins"].append(min(margins))
        sgd.zero_grad()
        loss.backward()
        if step == 0:
            result["gradients"] = {n: copy(t.grad) for n, t in p.items()}
        sgd.step()
    return result


def check_directional_derivative(gradients):
    """The f64 gradients against a central difference along themselves."""
    images, labels = images_and_labels()
    x = normalised(images, torch.float64)

    def loss_at(h):
        p = {n: make(n, torch.float64) + h * gradients[n]
             for n in PARAMETERS}
        stats = initial_statistics(torch.float64)
        return F.cross_entropy(forward(p, stats, x, []), labels).item()

    want = sum(float((g * g).sum()) for g in gradients.values())
    h = 1e-6 / want
    got = (loss_at(h) - loss_at(-h)) / (2 * h)
    print("directional derivative", got, "of", want)
    assert abs(got - want) < 1e-5 * want, (got, want)


def choose():
    """Layer by layer, the variant of each bias with the largest margin. An
    element that f32 puts on the other side of the kink changes gradients far
    more than rounding does, and one in a million is that close by chance."""
    p = {n: make(n, torch.float64) for n in PARAMETERS}
    chosen, margins = [], []

    def before_bn(y, name):
        number, shape, offset, scale = PARAMETERS[name + ".bias"]
        number %= VARIANT_STRIDE
        weight = p[name + ".weight"]
        scaled = F.batch_norm(y, None, None, weight, None, True, 0.0, BN_EPS)
        best = None
        for variant in range(VARIANTS):
            bias = torch.from_numpy(offset + scale * units(
                SEED, number + VARIANT_STRIDE * variant, *shape))
            margin = (scaled + bias.reshape(1, -1, 1, 1)).abs().min().item()
            if best is None or margin > best[0]:
                best = margin, variant, bias
        p[name + ".bias"] = best[2]
        chosen.append(best[1])

    with torch.no_grad():
        forward(p, initial_statistics(torch.float64),
                normalised(images_and_labels()[0], torch.float64), margins,
                before_bn)
    print("CHOSEN =", chosen, "smallest margin", min(margins))


def gradient_record(number, exact, approximate):
    """As the other recorder's, but the scale is the error vector of PyTorch
    f32: its length e bounds the error of the norm and is what a projection on
    random signs shows of it; e / sqrt(size) is its share in an entry. One
    number that PyTorch happens to hit says nothing about its accuracy."""
    record = tensor_record(SEED, number, exact, approximate)
    error = record["f32_error"]
    length = error["relative_l2"] * record["norm"]
    share = length / math.sqrt(exact.numel())
    error["norm"] = three_digits(length)
    error["projection"] = three_digits(max(error["projection"], length))
    error["entries"] = three_digits(max(error["entries"], share))
    del record["floor"]
    return record


def running_maximum(losses):
    """A later loss is not known better than the losses before it."""
    worst = 0.0
    for record in losses:
        worst = max(worst, record["f32_error"])
        record["f32_error"] = worst
    return losses


def main():
    if sys.argv[1:] == ["--choose"]:
        choose()
        return
    exact = run(torch.float64)
    check_directional_derivative(exact["gradients"])
    f32 = f32_runs(lambda memory_format, rotation: run(
        torch.float32, memory_format, rotation), orders=range(BATCH))
    images, labels = images_and_labels()
    golden = {
        "torch": torch.__version__,
        "seed": SEED,
        "batch": BATCH,
        "classes": CLASSES,
        "kink_margins": [three_digits(m) for m in exact["margins"]],
        "input": {"mean": MEAN, "stddev": STDDEV},
        "sgd": {"lr": LR, "momentum": MOMENTUM, "nesterov": True,
                "weight_decay": WEIGHT_DECAY},
        "parameters": {
            n: {"tensor": t, "shape": list(shape), "offset": o, "scale": s,
                "first": make(n, torch.float64).reshape(-1)[:2].tolist()}
            for n, (t, shape, o, s) in PARAMETERS.items()},
        "images": {"tensor": IMAGES, "shape": list(images.shape),
                   "first": images.reshape(-1)[:4].tolist()},
        "labels": {"tensor": LABELS, "all": labels.tolist()},
        "losses": running_maximum(
            loss_records(exact["losses"], [r["losses"] for r in f32])),
        "gradients": {
            n: gradient_record(PARAMETERS[n][0], exact["gradients"][n],
                               [r["gradients"][n] for r in f32])
            for n in PARAMETERS},
    }
    write("wrn_28_2.json", golden)


if __name__ == "__main__":
    main()
