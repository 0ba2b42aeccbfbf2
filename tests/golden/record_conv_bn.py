#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records tests/golden/conv_bn.json: a small conv-BN network in PyTorch, f64.

Run by hand (README.md beside this file); no test runs it. Beside each f64
quantity stands the error that PyTorch itself makes in f32, the maximum over
several equivalent evaluations, so that a test can ask for the same accuracy.
Weights, images and labels come from an integer hash and are exact in f32, so
that C++ makes the same network without reading a file.
"""
import math
import sys

import torch
import torch.nn.functional as F

from recording import (F32_EPS, copy, f32_runs, hash_labels, hash_pixels,
                       loss_records, tensor_record, three_digits, units, write)

SEED = 547  # from --choose-seed
BATCH, CLASSES, STEPS = 8, 10, 3
SCALE, SHIFT = 1 / 64, -2.0
BN_EPS, BN_MOMENTUM = 1e-5, 0.1
LR, MOMENTUM, WEIGHT_DECAY = 0.1, 0.9, 5e-4

# name: (tensor number, shape, offset, scale); value = offset + scale * unit.
PARAMETERS = {
    "conv1.weight": (1, (6, 1, 3, 3), 0.0, 0.5),
    "bn1.weight": (2, (6,), 1.0, 0.5),
    "bn1.bias": (3, (6,), 0.0, 0.5),
    "conv2.weight": (4, (8, 6, 3, 3), 0.0, 0.25),
    "bn2.weight": (5, (8,), 1.0, 0.5),
    "bn2.bias": (6, (8,), 0.0, 0.5),
    "linear.weight": (7, (CLASSES, 8), 0.0, 0.5),
    "linear.bias": (8, (CLASSES,), 0.0, 0.5),
}
IMAGES, LABELS, INPUT, LOGITS = 9, 10, 11, 12  # further tensor numbers
IMAGE_SHAPE = (BATCH, 1, 12, 12)


def make(seed, name, dtype):
    number, shape, offset, scale = PARAMETERS[name]
    values = offset + scale * units(seed, number, math.prod(shape))
    return torch.from_numpy(values).reshape(shape).to(dtype)


def images_and_labels(seed):
    return (hash_pixels(seed, IMAGES, IMAGE_SHAPE),
            hash_labels(seed, LABELS, BATCH, CLASSES))


def pool_margin(x):
    """How far the largest of each positive 2x2 window is from the second."""
    windows = F.unfold(x.reshape(-1, 1, *x.shape[2:]), 2, stride=2)
    top = windows.topk(2, dim=1).values
    return (top[:, 0] - top[:, 1])[top[:, 0] > 0].min().item()


def forward(p, stats, x, margins=None):
    """Logits; updates the running statistics; notes the distance to kinks."""
    def bn(y, name):
        return F.batch_norm(y, stats[name + ".mean"], stats[name + ".var"],
                            p[name + ".weight"], p[name + ".bias"],
                            True, BN_MOMENTUM, BN_EPS)

    a = bn(F.conv2d(x, p["conv1.weight"], padding=1), "bn1")
    r = F.relu(a)
    pooled = F.max_pool2d(r, 2)
    b = bn(F.conv2d(pooled, p["conv2.weight"], stride=2, padding=1), "bn2")
    # Shortcut of option A: every second pixel, zero channels appended.
    shortcut = F.pad(pooled[:, :, ::2, ::2], (0, 0, 0, 0, 0, 2))
    c = b + shortcut
    if margins is not None:
        margins += [a.abs().min().item(), c.abs().min().item(),
                    pool_margin(r.detach())]
    features = F.relu(c).mean(dim=(2, 3))
    return F.linear(features, p["linear.weight"], p["linear.bias"])


def run(seed, dtype, memory_format=torch.contiguous_format, reverse=False,
        margins=None):
    """STEPS steps of SGD; everything that is recorded, as f64 tensors."""
    p = {n: make(seed, n, dtype) for n in PARAMETERS}
    p = {n: (t.to(memory_format=memory_format) if t.dim() == 4 else t)
         .requires_grad_() for n, t in p.items()}
    stats = {"bn1.mean": torch.zeros(6), "bn1.var": torch.ones(6),
             "bn2.mean": torch.zeros(8), "bn2.var": torch.ones(8)}
    stats = {n: t.to(dtype) for n, t in stats.items()}
    images, labels = images_and_labels(seed)
    if reverse:
        images, labels = images.flip(0), labels.flip(0)
    sgd = torch.optim.SGD(p.values(), lr=LR, momentum=MOMENTUM, nesterov=True,
                          weight_decay=WEIGHT_DECAY)
    result = {"losses": []}
    for step in range(STEPS + 1):
        x = (images.to(dtype) * SCALE + SHIFT).to(memory_format=memory_format)
        x.requires_grad_()
        logits = forward(p, stats, x, margins)
        loss = F.cross_entropy(logits, labels)
        result["losses"].append(loss.item())
        sgd.zero_grad()
        loss.backward()
        if step == 0:
            unflip = (lambda t: t.flip(0)) if reverse else (lambda t: t)
            result["logits"] = copy(unflip(logits))
            result["gradients"] = {n: copy(t.grad) for n, t in p.items()}
            result["gradients"]["input"] = copy(unflip(x.grad))
            result["statistics"] = {n: copy(t) for n, t in stats.items()}
        if step < STEPS:
            sgd.step()
    # The last round made no step: these are the parameters after STEPS steps.
    result["parameters"] = {n: copy(t) for n, t in p.items()}
    return result


def statistics_floor(stats, name):
    """f32 eps times the norm; a mean is a sum of terms of the size of the
    standard deviation, however small it comes out."""
    norm = stats[name].norm().item()
    layer, kind = name.split(".")
    if kind == "mean":
        variance = (stats[layer + ".var"] - (1 - BN_MOMENTUM)) / BN_MOMENTUM
        norm += BN_MOMENTUM * variance.sqrt().norm().item()
    return three_digits(F32_EPS * norm)


def check_directional_derivative(seed, gradients):
    """The f64 gradients against a central difference along themselves."""
    images, labels = images_and_labels(seed)
    x = images.double() * SCALE + SHIFT

    def loss_at(h):
        p = {n: make(seed, n, torch.float64) + h * gradients[n]
             for n in PARAMETERS}
        stats = {f"bn{i}.{s}": torch.ones(c, dtype=torch.float64)
                 for i, c in ((1, 6), (2, 8)) for s in ("mean", "var")}
        moved = x + h * gradients["input"]
        return F.cross_entropy(forward(p, stats, moved), labels).item()

    h = 1e-6
    want = sum(float((g * g).sum()) for g in gradients.values())
    got = (loss_at(h) - loss_at(-h)) / (2 * h)
    assert abs(got - want) < 1e-6 * want, (got, want)


def choose_seed(count=1000):
    """The seed whose values stay farthest from the kinks of ReLU and maxpool,
    so that no f32 evaluation takes another branch than f64."""
    def margin(seed):
        margins = []
        run(seed, torch.float64, margins=margins)
        return min(margins)

    return max(range(1, count), key=margin)


def main():
    torch.set_num_threads(1)
    if sys.argv[1:] == ["--choose-seed"]:
        print(choose_seed())
        return
    margins = []
    exact = run(SEED, torch.float64, margins=margins)
    assert min(margins) > 1e-4, margins
    check_directional_derivative(SEED, exact["gradients"])
    f32 = f32_runs(lambda memory_format, reverse: run(
        SEED, torch.float32, memory_format, reverse))

    def record(number, get):
        return tensor_record(SEED, number, get(exact), [get(r) for r in f32])

    numbers = {n: p[0] for n, p in PARAMETERS.items()}
    golden = {
        "torch": torch.__version__,
        "seed": SEED,
        "batch": BATCH,
        "kink_margin": three_digits(min(margins)),
        "input": {"scale": SCALE, "shift": SHIFT},
        "bn": {"eps": BN_EPS, "momentum": BN_MOMENTUM},
        "sgd": {"lr": LR, "momentum": MOMENTUM, "nesterov": True,
                "weight_decay": WEIGHT_DECAY},
        "parameters": {
            n: {"tensor": t, "shape": list(shape), "offset": o, "scale": s,
                "first": make(SEED, n, torch.float64).reshape(-1)[:2].tolist()}
            for n, (t, shape, o, s) in PARAMETERS.items()},
        "images": {"tensor": IMAGES, "shape": list(IMAGE_SHAPE),
                   "first": images_and_labels(SEED)[0].reshape(-1)[:4].tolist()},
        "labels": {"tensor": LABELS,
                   "all": images_and_labels(SEED)[1].tolist()},
        "losses": loss_records(exact["losses"], [r["losses"] for r in f32]),
        "logits": record(LOGITS, lambda r: r["logits"]),
        "gradients": {
            n: record(numbers.get(n, INPUT), lambda r, n=n: r["gradients"][n])
            for n in [*PARAMETERS, "input"]},
        "statistics_after_step_1": {
            n: {"values": t.tolist(),
                "f32_error": three_digits(max(
                    (r["statistics"][n] - t).abs().max().item() for r in f32)),
                "floor": statistics_floor(exact["statistics"], n)}
            for n, t in exact["statistics"].items()},
        "parameters_after_step_3": {
            n: record(numbers[n], lambda r, n=n: r["parameters"][n])
            for n in PARAMETERS},
    }
    write("conv_bn.json", golden)


if __name__ == "__main__":
    main()
