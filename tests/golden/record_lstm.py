#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records tests/golden/lstm.json: two LSTM layers over the rows of small
images in PyTorch, f64.

Run by hand (README.md beside this file); no test runs it. The network is
torch.nn.LSTM and a linear layer on what it gives at the last step. Its gates
are in our order; of its two biases one is ours plus the offset of the forget
gate, the other stays 0.
"""
import math

import torch
import torch.nn.functional as F

from recording import (copy, f32_runs, hash_labels, hash_pixels, loss_records,
                       tensor_record, units, write)

SEED = 1
BATCH, CLASSES, STEPS = 6, 10, 3
LAYERS, HIDDEN, ROWS, FEATURES = 2, 9, 7, 5
FORGET_OFFSET = 1.0
SCALE, SHIFT = 1 / 64, -2.0
LR, MOMENTUM, WEIGHT_DECAY = 0.1, 0.9, 5e-4

# name: (tensor number, shape, offset, scale); value = offset + scale * unit.
PARAMETERS = {
    "lstm1.weight_x": (1, (4 * HIDDEN, FEATURES), 0.0, 0.5),
    "lstm1.weight_h": (2, (4 * HIDDEN, HIDDEN), 0.0, 0.5),
    "lstm1.bias": (3, (4 * HIDDEN,), 0.0, 0.5),
    "lstm2.weight_x": (4, (4 * HIDDEN, HIDDEN), 0.0, 0.5),
    "lstm2.weight_h": (5, (4 * HIDDEN, HIDDEN), 0.0, 0.5),
    "lstm2.bias": (6, (4 * HIDDEN,), 0.0, 0.5),
    "fc.weight": (7, (CLASSES, HIDDEN), 0.0, 0.5),
    "fc.bias": (8, (CLASSES,), 0.0, 0.5),
}
IMAGES, LABELS = 9, 10  # further tensor numbers
IMAGE_SHAPE = (BATCH, 1, ROWS, FEATURES)


def make(name, dtype):
    number, shape, offset, scale = PARAMETERS[name]
    values = offset + scale * units(SEED, number, math.prod(shape))
    return torch.from_numpy(values).reshape(shape).to(dtype)


def images_and_labels():
    return (hash_pixels(SEED, IMAGES, IMAGE_SHAPE),
            hash_labels(SEED, LABELS, BATCH, CLASSES))


def forward(p, x):
    """Logits of rows x [BATCH, ROWS, FEATURES]; p holds our parameters."""
    offset = torch.zeros(4 * HIDDEN, dtype=x.dtype)
    offset[HIDDEN:2 * HIDDEN] = FORGET_OFFSET
    weights = []
    for layer in range(1, LAYERS + 1):
        name = f"lstm{layer}."
        weights += [p[name + "weight_x"], p[name + "weight_h"],
                    p[name + "bias"] + offset, torch.zeros_like(offset)]
    zeros = torch.zeros(LAYERS, BATCH, HIDDEN, dtype=x.dtype)
    given, _, _ = torch.lstm(x, (zeros, zeros), weights, has_biases=True,
                             num_layers=LAYERS, dropout=0.0, train=True,
                             bidirectional=False, batch_first=True)
    return F.linear(given[:, -1], p["fc.weight"], p["fc.bias"])


def normalised(images, dtype):
    return images.to(dtype).reshape(BATCH, ROWS, FEATURES) * SCALE + SHIFT


def run(dtype, reverse=False):
    """STEPS steps of SGD; everything that is recorded, as f64 tensors."""
    p = {n: make(n, dtype).requires_grad_() for n in PARAMETERS}
    images, labels = images_and_labels()
    if reverse:
        images, labels = images.flip(0), labels.flip(0)
    x = normalised(images, dtype)
    sgd = torch.optim.SGD(p.values(), lr=LR, momentum=MOMENTUM, nesterov=True,
                          weight_decay=WEIGHT_DECAY)
    result = {"losses": []}
    for step in range(STEPS + 1):
        loss = F.cross_entropy(forward(p, x), labels)
        result["losses"].append(loss.item())
        sgd.zero_grad()
        loss.backward()
        if step == 0:
            result["gradients"] = {n: copy(t.grad) for n, t in p.items()}
        if step < STEPS:
            sgd.step()
    # The last round made no step: these are the parameters after STEPS steps.
    result["parameters"] = {n: copy(t) for n, t in p.items()}
    return result


def check_directional_derivative(gradients):
    """The f64 gradients against a central difference along themselves."""
    images, labels = images_and_labels()
    x = normalised(images, torch.float64)

    def loss_at(h):
        p = {n: make(n, torch.float64) + h * gradients[n] for n in PARAMETERS}
        return F.cross_entropy(forward(p, x), labels).item()

    h = 1e-6
    want = sum(float((g * g).sum()) for g in gradients.values())
    got = (loss_at(h) - loss_at(-h)) / (2 * h)
    assert abs(got - want) < 1e-6 * want, (got, want)


def main():
    torch.set_num_threads(1)
    exact = run(torch.float64)
    check_directional_derivative(exact["gradients"])
    # Memory formats mean nothing here; each is run, to the same bits.
    f32 = f32_runs(lambda _, reverse: run(torch.float32, reverse))
    images, labels = images_and_labels()

    def record(what, name):
        return tensor_record(SEED, PARAMETERS[name][0], exact[what][name],
                             [r[what][name] for r in f32])

    golden = {
        "torch": torch.__version__,
        "seed": SEED,
        "batch": BATCH,
        "layers": LAYERS,
        "hidden": HIDDEN,
        "input": {"scale": SCALE, "shift": SHIFT},
        "sgd": {"lr": LR, "momentum": MOMENTUM, "nesterov": True,
                "weight_decay": WEIGHT_DECAY},
        "parameters": {
            n: {"tensor": t, "shape": list(shape), "offset": o, "scale": s,
                "first": make(n, torch.float64).reshape(-1)[:2].tolist()}
            for n, (t, shape, o, s) in PARAMETERS.items()},
        "images": {"tensor": IMAGES, "shape": list(IMAGE_SHAPE),
                   "first": images.reshape(-1)[:4].tolist()},
        "labels": {"tensor": LABELS, "all": labels.tolist()},
        "losses": loss_records(exact["losses"], [r["losses"] for r in f32]),
        "gradients": {n: record("gradients", n) for n in PARAMETERS},
        "parameters_after_step_3": {n: record("parameters", n)
                                    for n in PARAMETERS},
    }
    write("lstm.json", golden)


if __name__ == "__main__":
    main()
