#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records tests/golden/wrn_28_2_16.json: how far WRN-28-2's gradients in 16 bits
are from those in f64, per tensor, on the batch of wrn_28_2.json.

Run by hand (README.md beside this file); no test runs it.
"""
import torch
import torch.nn.functional as F

import record_wrn
from record_wrn import (BLOCKS, BN_EPS, PARAMETERS, WIDTHS, images_and_labels,
                        make, normalised)
from recording import copy, three_digits, write

F16_LOSS_SCALE = 1024.0


class Stored(torch.autograd.Function):
    """A tensor and its gradient, each rounded to f16 when it is stored."""

    @staticmethod
    def forward(_, x):
        return x.to(torch.float16).to(x.dtype)

    @staticmethod
    def backward(_, grad):
        return grad.to(torch.float16).to(grad.dtype)


class StoredGradient(torch.autograd.Function):
    """A tensor that is not stored, but whose gradient is."""

    @staticmethod
    def forward(_, x):
        return x.clone()

    @staticmethod
    def backward(_, grad):
        return grad.to(torch.float16).to(grad.dtype)


def forward_stored(p, x):
    """record_wrn.forward with every tensor rounded that a step keeps in memory:
    convolutions' results, sums, features, logits, weights, and the gradients of
    all of them and of what a normalisation gives."""
    def weight(name):
        return Stored.apply(p[name])

    def activated(y, name):
        y = F.batch_norm(y, None, None, p[name + ".weight"],
                         p[name + ".bias"], True, 0.0, BN_EPS)
        return F.relu(StoredGradient.apply(y))

    x = Stored.apply(F.conv2d(x, weight("stem.weight"), padding=1))
    for stage, out in enumerate(WIDTHS):
        for block in range(BLOCKS):
            name = f"stage{stage + 1}.block{block + 1}"
            stride = 2 if stage > 0 and block == 0 else 1
            y = Stored.apply(
                F.conv2d(activated(x, name + ".bn1"),
                         weight(name + ".conv1.weight"), stride=stride,
                         padding=1))
            z = F.conv2d(activated(y, name + ".bn2"),
                         weight(name + ".conv2.weight"), padding=1)
            shortcut = x[:, :, ::stride, ::stride]
            x = Stored.apply(
                z + F.pad(shortcut, (0, 0, 0, 0, 0, out - x.shape[1])))
    features = Stored.apply(activated(x, "bn").mean(dim=(2, 3)))
    return Stored.apply(F.linear(features, weight("fc.weight"), p["fc.bias"]))


def gradients(dtype, logits_of, scale=1.0):
    """{name: gradient in f64} of one step."""
    p = {n: make(n, dtype).requires_grad_() for n in PARAMETERS}
    images, labels = images_and_labels()
    logits = logits_of(p, normalised(images, dtype))
    loss = F.cross_entropy(logits.to(dtype), labels)
    (loss * scale).backward()
    return loss.item(), {n: copy(t.grad) / scale for n, t in p.items()}


def plain(p, x):
    dtype = next(iter(p.values())).dtype
    return record_wrn.forward(p, record_wrn.initial_statistics(dtype), x, [])


def autocast(p, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return plain(p, x)


def main():
    _, exact = gradients(torch.float64, plain)
    runs = {
        "bf16_autocast": gradients(torch.float32, autocast)[1],
        "f16_rounded_once": gradients(torch.float64, forward_stored,
                                      F16_LOSS_SCALE)[1],
    }
    golden = {
        "torch": torch.__version__,
        "loss_scale": F16_LOSS_SCALE,
        "relative_l2": {
            n: {how: three_digits(float((run[n] - exact[n]).norm()
                                        / exact[n].norm()))
                for how, run in runs.items()}
            for n in PARAMETERS},
    }
    write("wrn_28_2_16.json", golden)


if __name__ == "__main__":
    main()
