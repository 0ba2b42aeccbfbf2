#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records tests/golden/dynamic_conv.json and dynamic_conv_iwslt.json: translation
models of dynamic convolutions in PyTorch, f64, on one batch of sentences of
different lengths.

usage: record_dynamic_conv.py [--choose]
Run by hand (README.md beside this file); no test runs it. The networks are those
of src/models/dynamic_conv.cc without dropout, as one would write them in PyTorch:
sentences are padded to one length, and masked.
"""
import math
import sys

import torch
import torch.nn.functional as F

from recording import (ENTRIES, SIGNS, copy, hashes, loss_records,
                       three_digits, units, write)

SEED = 1
HEADS, SMOOTHING, EPS, EOS = 4, 0.1, 1e-5, 2
KERNELS = (3, 7, 15, 31)
SOURCE, LABELS = 901, 902  # tensor numbers
# name: (offset, scale); value = offset + scale * unit.
NORM_WEIGHT, BIAS = (1.0, 0.25), (0.0, 0.125)
# For the bias before each ReLU, in order, which of VARIANTS tensor numbers it is
# made from: those that keep its layer's values farthest from the kink.
VARIANTS, VARIANT_STRIDE = 1024, 1000
NETWORKS = {
    "dynamic_conv.json": {
        "model": "dynamicconv-64-96-2-2",
        "shape": (64, 96, 2, 2),
        "vocabularies": (120, 104),
        "lengths": ((9, 7), (1, 12), (30, 2), (4, 4), (17, 21)),
        "chosen": (171, 711, 289, 757),  # from --choose
    },
    "dynamic_conv_iwslt.json": {
        "model": "dynamicconv-iwslt",
        "shape": (512, 1024, 7, 6),
        "vocabularies": (8848, 6632),
        "lengths": ((12, 14), (25, 21), (3, 6), (40, 33)),
        "chosen": (83, 887, 293, 398, 388, 753, 955, 964, 508, 330, 594, 785,
                   948),
    },
}


def power_of_two(bound):
    return 2.0 ** round(math.log2(bound))


class Network:
    def __init__(self, about):
        self.about = about
        self.d, self.f, self.encoders, self.decoders = about["shape"]
        self.lengths = about["lengths"]
        self.parameters = {}
        self.variants = iter(about["chosen"])
        vs, vt = about["vocabularies"]
        self.embedding("encoder.embedding", vs)
        for i in range(self.encoders):
            self.conv(f"encoder.layer{i + 1}.conv", self.kernel(i))
            self.feed(f"encoder.layer{i + 1}.feed")
        self.embedding("decoder.embedding", vt)
        for i in range(self.decoders):
            name = f"decoder.layer{i + 1}"
            self.conv(name + ".conv", self.kernel(i))
            for part in ("query", "key", "value"):
                self.linear(f"{name}.attention.{part}", self.d, self.d)
            self.linear(name + ".attention.out", self.d, self.d)
            self.norm(name + ".attention.norm")
            self.feed(name + ".feed")
        self.embedding("output", vt)

    # ---- Parameters, in the order of src/models/dynamic_conv.cc

    @staticmethod
    def kernel(layer):
        return KERNELS[min(layer, len(KERNELS) - 1)]

    def add(self, name, shape, offset, scale, variant=0):
        number = 1 + len(self.parameters) + VARIANT_STRIDE * variant
        self.parameters[name] = (number, shape, offset, scale)

    def embedding(self, name, vocabulary):
        # Uniform of a deviation near 1 / sqrt(d).
        self.add(name + ".weight", (vocabulary, self.d), 0.0,
                 power_of_two(math.sqrt(3 / self.d)))

    def linear(self, name, inputs, outputs, bias=True, variant=0):
        self.add(name + ".weight", (outputs, inputs), 0.0,
                 power_of_two(math.sqrt(6 / (inputs + outputs))))
        if bias:
            self.add(name + ".bias", (outputs,), *BIAS, variant)

    def norm(self, name):
        self.add(name + ".weight", (self.d,), *NORM_WEIGHT)
        self.add(name + ".bias", (self.d,), *BIAS)

    def conv(self, name, kernel):
        self.linear(name + ".in", self.d, self.d)
        self.linear(name + ".taps", self.d, HEADS * kernel, bias=False)
        self.linear(name + ".out", self.d, self.d)
        self.norm(name + ".norm")

    def feed(self, name):
        self.linear(name + ".in", self.d, self.f,
                    variant=next(self.variants, 0))
        self.linear(name + ".out", self.f, self.d)
        self.norm(name + ".norm")

    def make(self, name, dtype):
        number, shape, offset, scale = self.parameters[name]
        values = offset + scale * units(SEED, number, math.prod(shape))
        return torch.from_numpy(values).reshape(shape).to(dtype)

    # ---- Texts

    def words(self, side):
        """The sentences of one side, one after the other."""
        total = sum(pair[side] for pair in self.lengths)
        h = hashes(SEED, (SOURCE, LABELS)[side], total) >> 32
        ids = torch.from_numpy((h % self.about["vocabularies"][side])
                               .astype("int64"))
        return list(ids.split([pair[side] for pair in self.lengths]))

    def batch(self, order):
        """Source, target, labels and the masks of source and target, padded."""
        source, labels = self.words(0), self.words(1)
        target = [torch.cat([torch.tensor([EOS]), s[:-1]]) for s in labels]

        def padded(texts):
            return torch.nn.utils.rnn.pad_sequence(
                [texts[i] for i in order], batch_first=True)

        def mask(texts):
            return padded([torch.ones(len(s), dtype=torch.bool)
                           for s in texts])

        return (padded(source), padded(target), padded(labels), mask(source),
                mask(target))

    # ---- The network

    def loss(self, p, order, unfolds=False, before_relu=None):
        source, target, labels, has_source, has_target = self.batch(order)
        dtype = p["output.weight"].dtype

        def linear(x, name):
            return F.linear(x, p[name + ".weight"], p.get(name + ".bias"))

        def add_and_norm(x, made, name):
            return F.layer_norm(x + made, (self.d,), p[name + ".weight"],
                                p[name + ".bias"], EPS)

        def embed(tokens, name):
            i = torch.arange(self.d // 2, dtype=torch.float64)
            rate = torch.exp(i * -math.log(10000) / (self.d // 2 - 1))
            at = torch.arange(2, 2 + tokens.shape[1], dtype=torch.float64)
            angle = at[:, None] * rate
            places = torch.cat([angle.sin(), angle.cos()], 1).to(dtype)
            return math.sqrt(self.d) * F.embedding(tokens, p[name]) + places

        def conv(x, has, name, kernel, causal):
            b, t, _ = x.shape
            u = linear(x, name + ".in") * has[:, :, None]
            taps = torch.softmax(
                linear(u, name + ".taps").view(b, t, HEADS, kernel), -1)
            before = kernel - 1 if causal else kernel // 2
            width = self.d // HEADS
            if unfolds:
                v = F.pad(u, (0, 0, before, kernel - 1 - before))
                v = v.unfold(1, kernel, 1).reshape(b, t, HEADS, width, kernel)
                v = torch.einsum("bthrk,bthk->bthr", v, taps)
            else:
                band = u.new_zeros(b * HEADS, t, t + kernel - 1)
                band.as_strided((b * HEADS, t, kernel),
                                (t * (t + kernel - 1), t + kernel, 1)).copy_(
                    taps.permute(0, 2, 1, 3).reshape(b * HEADS, t, kernel))
                heads = u.view(b, t, HEADS, width).permute(0, 2, 1, 3)
                v = torch.bmm(band.narrow(2, before, t),
                              heads.reshape(b * HEADS, t, width))
                v = v.view(b, HEADS, t, width).permute(0, 2, 1, 3)
            made = linear(v.reshape(b, t, self.d), name + ".out")
            return add_and_norm(x, made, name + ".norm")

        def attend(x, read, name):
            def heads(y):
                return y.view(*y.shape[:2], HEADS, -1).transpose(1, 2)

            q, k, v = (heads(linear(y, f"{name}.{part}")) for y, part in
                       ((x, "query"), (read, "key"), (read, "value")))
            y = F.scaled_dot_product_attention(
                q, k, v, attn_mask=has_source[:, None, None, :])
            made = linear(y.transpose(1, 2).reshape(x.shape), name + ".out")
            return add_and_norm(x, made, name + ".norm")

        def feed(x, has, name):
            y = linear(x, name + ".in")
            if before_relu is not None:
                y = before_relu(y, has, name + ".in.bias")
            made = linear(F.relu(y), name + ".out")
            return add_and_norm(x, made, name + ".norm")

        read = embed(source, "encoder.embedding.weight")
        for i in range(self.encoders):
            name = f"encoder.layer{i + 1}"
            read = conv(read, has_source, name + ".conv", self.kernel(i), False)
            read = feed(read, has_source, name + ".feed")
        x = embed(target, "decoder.embedding.weight")
        for i in range(self.decoders):
            name = f"decoder.layer{i + 1}"
            x = conv(x, has_target, name + ".conv", self.kernel(i), True)
            x = attend(x, read, name + ".attention")
            x = feed(x, has_target, name + ".feed")
        logits = F.linear(x, p["output.weight"])[has_target]
        return F.cross_entropy(logits, labels[has_target],
                               label_smoothing=SMOOTHING)

    def order(self, reverse=False):
        places = range(len(self.lengths))
        return list(reversed(places)) if reverse else list(places)

    def run(self, dtype, reverse=False, unfolds=False):
        p = {n: self.make(n, dtype).requires_grad_() for n in self.parameters}
        loss = self.loss(p, self.order(reverse), unfolds)
        loss.backward()
        return loss.item(), {n: copy(t.grad) for n, t in p.items()}

    def check(self, loss, gradients):
        """The f64 loss against that of one sentence after the other, which has
        no padding, and the gradients against a central difference."""
        p = {n: self.make(n, torch.float64) for n in self.parameters}
        tokens = sum(pair[1] for pair in self.lengths)
        with torch.no_grad():
            alone = sum(self.loss(p, [i], unfolds=True).item() * pair[1]
                        for i, pair in enumerate(self.lengths)) / tokens
        assert abs(alone - loss) < 1e-12 * loss, (alone, loss)
        want = sum(float((g * g).sum()) for g in gradients.values())
        h = 1e-6 / math.sqrt(want)

        def loss_at(step):
            with torch.no_grad():
                return self.loss({n: t + step * gradients[n]
                                  for n, t in p.items()}, self.order()).item()

        got = (loss_at(h) - loss_at(-h)) / (2 * h)
        print("directional derivative", got, "of", want)
        assert abs(got - want) < 1e-5 * want, (got, want)

    def choose(self):
        """Layer by layer, the variant of each bias with the largest margin."""
        p = {n: self.make(n, torch.float64) for n in self.parameters}
        chosen, margins = [], []

        def before_relu(y, has, name):
            number, shape, offset, scale = self.parameters[name]
            number %= VARIANT_STRIDE
            rows = (y - p[name])[has]
            best = None
            for variant in range(VARIANTS):
                bias = torch.from_numpy(offset + scale * units(
                    SEED, number + VARIANT_STRIDE * variant, *shape))
                margin = (rows + bias).abs().min().item()
                if best is None or margin > best[0]:
                    best = margin, variant, bias
            margins.append(best[0])
            chosen.append(best[1])
            return y - p[name] + best[2]

        with torch.no_grad():
            self.loss(p, self.order(), before_relu=before_relu)
        print(self.about["model"], "chosen", tuple(chosen), "smallest margin",
              min(margins))

    def margin(self):
        margins = []

        def before_relu(y, has, _):
            margins.append(y.detach()[has].abs().min().item())
            return y

        with torch.no_grad():
            self.loss({n: self.make(n, torch.float64)
                       for n in self.parameters}, self.order(),
                      before_relu=before_relu)
        return min(margins)

    def what_is_told(self, gradients):
        """Of each tensor; whole ones of all runs would not fit in memory."""
        told = {}
        for name, gradient in gradients.items():
            flat = gradient.contiguous().reshape(-1).numpy()
            negative = hashes(SEED, SIGNS + self.parameters[name][0],
                              flat.size) >> 63
            chosen = sorted({i * 37 % flat.size
                             for i in range(min(ENTRIES, flat.size))})
            told[name] = {
                "norm": float((flat * flat).sum() ** 0.5),
                "projection": float(flat.sum() - 2 * flat[negative > 0].sum()),
                "entries": [[i, float(flat[i])] for i in chosen],
            }
        return told

    def record(self, file):
        torch.set_num_threads(2)
        loss, gradients = self.run(torch.float64)
        self.check(loss, gradients)
        exact = self.what_is_told(gradients)
        losses = []
        worst = {n: {"length": 0.0, "projection": 0.0, "entries": 0.0}
                 for n in gradients}
        for threads in (1, 2):
            torch.set_num_threads(threads)
            for reverse in (False, True):
                for unfolds in (False, True):
                    f32_loss, f32 = self.run(torch.float32, reverse, unfolds)
                    losses.append([f32_loss])
                    for name, told in self.what_is_told(f32).items():
                        w = worst[name]
                        w["length"] = max(w["length"], (
                            f32[name] - gradients[name]).norm().item())
                        w["projection"] = max(w["projection"], abs(
                            told["projection"] - exact[name]["projection"]))
                        w["entries"] = max([w["entries"]] + [
                            abs(a[1] - b[1]) for a, b in zip(
                                told["entries"], exact[name]["entries"])])

        def record_of(name):
            number, shape, _, _ = self.parameters[name]
            w = worst[name]
            share = w["length"] / math.sqrt(math.prod(shape))
            return {"tensor": number, "shape": list(shape), **exact[name],
                    "f32_error": {
                        "norm": three_digits(w["length"]),
                        "projection": three_digits(
                            max(w["projection"], w["length"])),
                        "entries": three_digits(max(w["entries"], share))}}

        vs, vt = self.about["vocabularies"]
        write(file, {
            "torch": torch.__version__,
            "seed": SEED,
            "model": self.about["model"],
            "kink_margin": three_digits(self.margin()),
            "texts": {
                "lengths": [list(pair) for pair in self.lengths],
                "eos": EOS,
                "source": {"tensor": SOURCE, "words": vs,
                           "first": self.words(0)[0][:3].tolist()},
                "labels": {"tensor": LABELS, "words": vt,
                           "first": self.words(1)[0][:3].tolist()}},
            "sgd": {"lr": 0.1, "momentum": 0.0, "nesterov": False,
                    "weight_decay": 0.0},
            "parameters": {
                n: {"tensor": t, "shape": list(shape), "offset": o, "scale": s,
                    "first": self.make(n, torch.float64).reshape(-1)[:2]
                    .tolist()}
                for n, (t, shape, o, s) in self.parameters.items()},
            "losses": loss_records([loss], losses),
            "gradients": {n: record_of(n) for n in self.parameters},
        })


def main():
    for file, about in NETWORKS.items():
        network = Network(about)
        if sys.argv[1:] == ["--choose"]:
            network.choose()
        else:
            network.record(file)


if __name__ == "__main__":
    main()
