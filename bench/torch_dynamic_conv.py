#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of bench/compare-pytorch --model dynamicconv: training steps.

The network is that of src/models/dynamic_conv.cc, dynamicconv-iwslt, with the
optimizer of `thimble train`, in a setting of torch_settings.py, whose layouts
make no difference here. One batch of random sentences stays in memory. All of
them have 25 tokens, so that nothing is lost to padding. compare-pytorch sets
the environment.
"""
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import torch_peer
import torch_settings

LENGTH = 25
FEATURES, HIDDEN, HEADS = 512, 1024, 4
SOURCE, TARGET = 8848, 6632
KERNELS = (3, 7, 15, 31, 31, 31, 31)
DROPOUT, INNER_DROPOUT = 0.3, 0.1


class DynamicConv(nn.Module):
    """Taps of each token and head, as the band of a matrix of tokens by tokens:
    faster here than to unfold the tokens."""

    def __init__(self, kernel, causal):
        super().__init__()
        self.kernel = kernel
        self.before = kernel - 1 if causal else (kernel - 1) // 2
        self.enter = nn.Linear(FEATURES, FEATURES)
        self.taps = nn.Linear(FEATURES, HEADS * kernel, bias=False)
        self.leave = nn.Linear(FEATURES, FEATURES)

    def forward(self, x):
        sentences, tokens, _ = x.shape
        u = self.enter(x)
        taps = self.taps(u).view(sentences, tokens, HEADS, self.kernel)
        taps = F.dropout(taps.softmax(-1), INNER_DROPOUT, self.training)
        taps = taps.transpose(1, 2).reshape(-1, tokens, self.kernel)
        width = tokens + self.kernel - 1
        band = u.new_zeros(len(taps), tokens, width)
        # Row t of the band begins one further right than row t - 1.
        band.as_strided(taps.shape, (tokens * width, width + 1, 1)).copy_(taps)
        band = band[:, :, self.before:self.before + tokens]
        heads = u.view(sentences, tokens, HEADS, -1).transpose(1, 2)
        v = torch.bmm(band, heads.reshape(len(taps), tokens, -1))
        v = v.view(sentences, HEADS, tokens, -1).transpose(1, 2)
        return self.leave(v.reshape(x.shape))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(FEATURES, FEATURES)
        self.key_value = nn.Linear(FEATURES, 2 * FEATURES)
        self.leave = nn.Linear(FEATURES, FEATURES)

    def forward(self, x, read):
        def heads(y):
            return y.unflatten(-1, (HEADS, -1)).transpose(1, 2)

        key, value = self.key_value(read).chunk(2, -1)
        made = F.scaled_dot_product_attention(
            heads(self.query(x)), heads(key), heads(value),
            dropout_p=INNER_DROPOUT if self.training else 0.0)
        return self.leave(made.transpose(1, 2).reshape(x.shape))


class Feed(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(FEATURES, HIDDEN)
        self.leave = nn.Linear(HIDDEN, FEATURES)

    def forward(self, x):
        return self.leave(F.relu(self.enter(x), inplace=True))


class Residual(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner, self.norm = inner, nn.LayerNorm(FEATURES)

    def forward(self, x, *more):
        made = F.dropout(self.inner(x, *more), DROPOUT, self.training)
        return self.norm(x + made)


class Translator(nn.Module):
    def __init__(self, recomputes):
        super().__init__()
        self.recomputes = recomputes
        self.source = nn.Embedding(SOURCE, FEATURES)
        self.target = nn.Embedding(TARGET, FEATURES)
        self.encoder = nn.ModuleList(
            Residual(inner) for kernel in KERNELS
            for inner in (DynamicConv(kernel, False), Feed()))
        self.decoder = nn.ModuleList(
            Residual(inner) for kernel in KERNELS[:-1]
            for inner in (DynamicConv(kernel, True), Attention(), Feed()))
        self.logits = nn.Linear(FEATURES, TARGET, bias=False)
        rates = torch.exp(torch.arange(FEATURES // 2) * -math.log(10000) /
                          (FEATURES // 2 - 1))
        angles = torch.arange(2, LENGTH + 2)[:, None] * rates
        self.register_buffer("places", torch.cat([angles.sin(), angles.cos()], 1))

    def embed(self, table, tokens):
        x = math.sqrt(FEATURES) * table(tokens) + self.places
        return F.dropout(x, DROPOUT, self.training)

    def through(self, layer, *inputs):
        if not self.recomputes:
            return layer(*inputs)
        return checkpoint(layer, *inputs, use_reentrant=False)

    def forward(self, source, target):
        read = self.embed(self.source, source)
        for layer in self.encoder:
            read = self.through(layer, read)
        x = self.embed(self.target, target)
        for layer in self.decoder:
            more = (read,) if isinstance(layer.inner, Attention) else ()
            x = self.through(layer, x, *more)
        return self.logits(x)


def make_step(args):
    """A training step as a function, and the number of parameters."""
    precision, _, compiled = torch_settings.parse(args.setting)
    torch_peer.allow_bf16_products(precision)
    net = Translator(recomputes=args.checkpoint_blocks > 0)
    sentences = args.batch // LENGTH
    part = (args.microbatch or args.batch) // LENGTH
    source = torch.randint(4, SOURCE, (sentences, LENGTH))
    labels = torch.randint(4, TARGET, (sentences, LENGTH))
    target = labels.roll(1, 1)
    adam = torch.optim.AdamW(net.parameters(), lr=5e-4, betas=(0.9, 0.98),
                             weight_decay=1e-4, fused=True)
    run = torch.compile(net) if compiled else net

    def step():
        adam.zero_grad(set_to_none=True)
        for i in range(0, sentences, part):
            with torch_peer.cast(precision):
                logits = run(source[i:i + part], target[i:i + part])
            loss = F.cross_entropy(logits.float().flatten(0, 1),
                                   labels[i:i + part].flatten(),
                                   label_smoothing=0.1)
            (loss * (part / sentences)).backward()
        adam.step()

    return step, sum(p.numel() for p in net.parameters())


if __name__ == "__main__":
    torch_peer.run(__doc__.split("\n")[0], make_step, "tokens")
