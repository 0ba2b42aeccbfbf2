# SPDX-License-Identifier: Apache-2.0
"""What the recorders of golden values share: numbers from an integer hash, the
equivalent f32 evaluations, and the record of a tensor (README.md)."""
import json
import pathlib

import numpy as np
import torch

ENTRIES = 16
F32_EPS = 2.0**-23
SIGNS = 100  # the projection of tensor t uses the hash of tensor SIGNS + t


def splitmix64(x):
    """Of an array of uint64; arithmetic is modulo 2^64."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def hashes(seed, tensor, count):
    """hash(tensor, i) for i < count, with i in row-major order."""
    key = splitmix64(np.array([(seed << 32) + tensor], dtype=np.uint64))
    return splitmix64(key + np.arange(count, dtype=np.uint64))


def units(seed, tensor, count):
    """20 bits in [-1, 1): exact in f32, also after offset + scale * unit."""
    h = hashes(seed, tensor, count) >> np.uint64(44)
    return (h.astype(np.float64) - 2**19) / 2**19


def hash_pixels(seed, tensor, shape):
    h = hashes(seed, tensor, int(np.prod(shape))) >> np.uint64(56)
    return torch.from_numpy(h.astype(np.uint8)).reshape(shape)


def hash_labels(seed, tensor, count, classes):
    h = (hashes(seed, tensor, count) >> np.uint64(32)) % np.uint64(classes)
    return torch.from_numpy(h.astype(np.int64))


def copy(t):
    """In f64, and not changed by later steps."""
    return t.detach().to(torch.float64, copy=True)


def three_digits(x):
    return float("%.3g" % x)


def f32_runs(run, orders=(False, True)):
    """run(memory_format, order) in each of the equivalent f32 ways; an order of
    the images is whatever `run` understands, by default whether to reverse."""
    results = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for memory_format in (torch.contiguous_format, torch.channels_last):
            for order in orders:
                results.append(run(memory_format, order))
    return results


def tensor_record(seed, number, exact, approximate):
    """The record of one tensor, and what the f32 evaluations made of it."""
    flat = [t.contiguous().reshape(-1).numpy() for t in [exact] + approximate]
    size = flat[0].size
    negative = hashes(seed, SIGNS + number, size) >> np.uint64(63)
    signs = np.where(negative, -1.0, 1.0)
    # An odd stride, prime to the sizes here, visits different rows and columns.
    chosen = sorted({i * 37 % size for i in range(min(ENTRIES, size))})
    norms = [float(np.linalg.norm(t)) for t in flat]
    dots = [float(t @ signs) for t in flat]
    return {
        "tensor": number,
        "shape": list(exact.shape),
        "norm": norms[0],
        "projection": dots[0],
        "entries": [[i, float(flat[0][i])] for i in chosen],
        "f32_error": {
            "norm": three_digits(max(abs(n - norms[0]) for n in norms[1:])),
            "projection": three_digits(
                max(abs(d - dots[0]) for d in dots[1:])),
            "entries": three_digits(max(np.abs(t - flat[0])[chosen].max()
                                        for t in flat[1:])),
            "relative_l2": three_digits(
                max(np.linalg.norm(t - flat[0]) / norms[0]
                    for t in flat[1:])),
        },
        "floor": three_digits(F32_EPS * norms[0]),
    }


def loss_records(exact, approximate):
    return [{"value": v,
             "f32_error": three_digits(max(abs(a[i] - v)
                                           for a in approximate)),
             "floor": three_digits(F32_EPS * v)}
            for i, v in enumerate(exact)]


def write(name, golden, depth=2):
    """One line per record, which is `depth` keys below the top: short, and a
    change shows as a change of its line."""
    def lines(value, depth):
        if depth == 0 or not isinstance(value, dict):
            return json.dumps(value)
        inner = ",\n".join(json.dumps(k) + ": " + lines(v, depth - 1)
                           for k, v in value.items())
        return "{\n" + inner + "\n}"

    path = pathlib.Path(__file__).with_name(name)
    path.write_text(lines(golden, depth) + "\n")
    print(f"{name}: {path.stat().st_size} bytes, losses",
          [round(r["value"], 6) for r in golden.get("losses", [])])
