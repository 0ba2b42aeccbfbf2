#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records tests/golden/evaluate.json: what PyTorch says of a small residual
network after three steps, f64: running statistics, and the evaluation of other
images with them.

Run by hand (README.md beside this file); no test runs it. Steps are recorded
for several sizes of the groups that batch statistics are taken of: the whole
batch, and parts of it that go forward one after the other, as microbatches and
ghost batches do.
"""
import math
import sys

import torch
import torch.nn.functional as F

from recording import (F32_EPS, copy, f32_runs, hash_labels, hash_pixels,
                       loss_records, tensor_record, three_digits, units, write)

SEED = 42  # from --choose-seed
BATCH, CLASSES, STEPS, EVALUATED = 8, 5, 3, 20
GROUPS = (8, 4, 2)
SCALE, SHIFT = 1 / 64, -2.0
BN_EPS = 1e-5
LR, MOMENTUM, WEIGHT_DECAY = 0.05, 0.9, 5e-4
C, D = 6, 8  # channels before and after the stride

# Of each batch norm: channels, and the momentum of its running statistics.
NORMS = {
    "bn0": (C, 0.1),
    "block1.bn1": (C, 0.25),
    "block1.bn2": (C, 0.1),
    "block2.bn1": (C, 0.1),
    "block2.bn2": (D, 0.25),
    "bn": (D, 0.1),
}


def parameters():
    """name: (tensor number, shape, offset, scale), offset + scale * unit."""
    result = {}

    def add(name, shape, offset, scale):
        result[name] = (len(result) + 1, shape, offset, scale)

    add("stem.weight", (C, 3, 3, 3), 0.0, 0.25)
    add("block1.conv1.weight", (C, C, 3, 3), 0.0, 0.25)
    add("block1.conv2.weight", (C, C, 3, 3), 0.0, 0.25)
    add("block2.conv1.weight", (D, C, 3, 3), 0.0, 0.25)
    add("block2.conv2.weight", (D, D, 3, 3), 0.0, 0.25)
    for name, (channels, _) in NORMS.items():
        add(name + ".weight", (channels,), 1.0, 0.5)
        add(name + ".bias", (channels,), 0.0, 0.5)
    add("fc.weight", (CLASSES, D), 0.0, 0.5)
    add("fc.bias", (CLASSES,), 0.0, 0.5)
    return result


PARAMETERS = parameters()
# Further tensor numbers: those of step k are IMAGES + k and LABELS + k, and
# those behind the last step's are evaluated.
IMAGES, LABELS, LOGITS = 40, 50, 60
IMAGE_SHAPE = (3, 12, 12)


def make(seed, name, dtype):
    number, shape, offset, scale = PARAMETERS[name]
    values = offset + scale * units(seed, number, math.prod(shape))
    return torch.from_numpy(values).reshape(shape).to(dtype)


def batch(seed, k):
    """Images and labels of step k; k = STEPS: those that are evaluated."""
    count = BATCH if k < STEPS else EVALUATED
    return (hash_pixels(seed, IMAGES + k, (count, *IMAGE_SHAPE)),
            hash_labels(seed, LABELS + k, count, CLASSES))


def pool_margin(x):
    """How far the largest of each positive 2x2 window is from the second."""
    windows = F.unfold(x.reshape(-1, 1, *x.shape[2:]), 2, stride=2)
    top = windows.topk(2, dim=1).values
    return (top[:, 0] - top[:, 1])[top[:, 0] > 0].min().item()


def forward(p, stats, x, training, margins=None):
    """Logits; training updates the running statistics."""
    def activated(y, name):
        y = F.batch_norm(y, stats[name + ".running_mean"],
                         stats[name + ".running_var"], p[name + ".weight"],
                         p[name + ".bias"], training, NORMS[name][1], BN_EPS)
        if margins is not None:
            margins.append(y.detach().abs().min().item())
        return F.relu(y)

    def conv(y, name, stride=1):
        return F.conv2d(y, p[name + ".weight"], stride=stride, padding=1)

    x = activated(conv(x, "stem"), "bn0")
    if margins is not None:
        margins.append(pool_margin(x.detach()))
    x = F.max_pool2d(x, 2)
    y = conv(activated(x, "block1.bn1"), "block1.conv1")
    x = x + conv(activated(y, "block1.bn2"), "block1.conv2")
    y = conv(activated(x, "block2.bn1"), "block2.conv1", stride=2)
    shortcut = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, D - C))
    x = shortcut + conv(activated(y, "block2.bn2"), "block2.conv2")
    features = activated(x, "bn").mean(dim=(2, 3))
    return F.linear(features, p["fc.weight"], p["fc.bias"])


def run(seed, group, dtype, memory_format=torch.contiguous_format,
        reverse=False, margins=None):
    """STEPS steps with batch statistics of `group` images each, then the
    evaluation. `reverse` turns the images of each group around, and those that
    are evaluated."""
    p = {n: make(seed, n, dtype) for n in PARAMETERS}
    p = {n: (t.to(memory_format=memory_format) if t.dim() == 4 else t)
         .requires_grad_() for n, t in p.items()}
    stats = {}
    for name, (channels, _) in NORMS.items():
        stats[name + ".running_mean"] = torch.zeros(channels, dtype=dtype)
        stats[name + ".running_var"] = torch.ones(channels, dtype=dtype)
    sgd = torch.optim.SGD(p.values(), lr=LR, momentum=MOMENTUM, nesterov=True,
                          weight_decay=WEIGHT_DECAY)

    def values(images):
        x = images.to(dtype) * SCALE + SHIFT
        return x.to(memory_format=memory_format)

    result = {"losses": []}
    for step in range(STEPS):
        images, labels = batch(seed, step)
        sgd.zero_grad()
        sum_of_losses = 0.0
        for first in range(0, BATCH, group):
            rows = torch.arange(first, first + group)
            rows = rows.flip(0) if reverse else rows
            logits = forward(p, stats, values(images[rows]), True, margins)
            loss = F.cross_entropy(logits, labels[rows], reduction="sum")
            (loss / BATCH).backward()
            sum_of_losses += loss.item()
        result["losses"].append(sum_of_losses / BATCH)
        sgd.step()
    result["statistics"] = {n: copy(t) for n, t in stats.items()}
    images, labels = batch(seed, STEPS)
    if reverse:
        images, labels = images.flip(0), labels.flip(0)
    with torch.no_grad():
        logits = forward(p, stats, values(images), False)
        result["loss"] = F.cross_entropy(logits, labels).item()
        result["correct"] = int((logits.argmax(dim=1) == labels).sum())
    result["logits"] = copy(logits.flip(0) if reverse else logits)
    for name, want in result["statistics"].items():
        assert torch.equal(copy(stats[name]), want), name
    return result


def row_margin(logits):
    """How far the largest logit of each row is from the second."""
    top = logits.topk(2, dim=1).values
    return (top[:, 0] - top[:, 1]).min().item()


def statistics_floor(stats, name, group):
    """f32 eps times the norm; a mean is a sum of terms of the size of the
    standard deviation, however small it comes out."""
    norm = stats[name].norm().item()
    layer, kind = name.rsplit(".", 1)
    if kind == "running_mean":
        old = (1 - NORMS[layer][1])**(STEPS * BATCH // group)
        variance = (stats[layer + ".running_var"] - old) / (1 - old)
        norm += (1 - old) * variance.sqrt().norm().item()
    return three_digits(F32_EPS * norm)


def choose_seed(count=400):
    """The seed whose values stay farthest from the kinks of ReLU and maxpool
    in training, so that no f32 run takes another branch than f64."""
    def margin(seed):
        margins = []
        for group in GROUPS:
            run(seed, group, torch.float64, margins=margins)
        return min(margins)

    return max(range(1, count), key=margin)


def group_record(group):
    margins = []
    exact = run(SEED, group, torch.float64, margins=margins)
    assert min(margins) > 2e-5, min(margins)
    f32 = f32_runs(lambda memory_format, reverse: run(
        SEED, group, torch.float32, memory_format, reverse))
    torch.set_num_threads(1)
    worst = max((r["logits"] - exact["logits"]).abs().max().item()
                for r in f32)
    assert row_margin(exact["logits"]) > 100 * worst
    assert 0 < exact["correct"] < EVALUATED
    evaluation = loss_records([exact["loss"]], [[r["loss"]] for r in f32])[0]
    return {
        "kink_margin": three_digits(min(margins)),
        "losses": loss_records(exact["losses"], [r["losses"] for r in f32]),
        "statistics": {
            n: {"values": t.tolist(),
                "f32_error": three_digits(max(
                    (r["statistics"][n] - t).abs().max().item() for r in f32)),
                "floor": statistics_floor(exact["statistics"], n, group)}
            for n, t in exact["statistics"].items()},
        "evaluation": {
            "loss": evaluation,
            "correct": exact["correct"],
            "logits": tensor_record(SEED, LOGITS, exact["logits"],
                                    [r["logits"] for r in f32]),
        },
    }


def batch_record(k):
    images, labels = batch(SEED, k)
    return {"images": {"tensor": IMAGES + k, "shape": list(images.shape),
                       "first": images.reshape(-1)[:4].tolist()},
            "labels": {"tensor": LABELS + k, "all": labels.tolist()}}


def main():
    torch.set_num_threads(1)
    if sys.argv[1:] == ["--choose-seed"]:
        print(choose_seed())
        return
    golden = {
        "torch": torch.__version__,
        "seed": SEED,
        "batch": BATCH,
        "classes": CLASSES,
        "input": {"scale": SCALE, "shift": SHIFT},
        "bn": {"eps": BN_EPS,
               "momentum": {n: m for n, (_, m) in NORMS.items()}},
        "sgd": {"lr": LR, "momentum": MOMENTUM, "nesterov": True,
                "weight_decay": WEIGHT_DECAY},
        "parameters": {
            n: {"tensor": t, "shape": list(shape), "offset": o, "scale": s,
                "first": make(SEED, n, torch.float64).reshape(-1)[:2].tolist()}
            for n, (t, shape, o, s) in PARAMETERS.items()},
        "steps": [batch_record(k) for k in range(STEPS)],
        "evaluated": batch_record(STEPS),
        "groups": {str(g): group_record(g) for g in GROUPS},
    }
    write("evaluate.json", golden, depth=4)


if __name__ == "__main__":
    main()
