#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of bench/compare-pytorch: training steps of WRN-28-2.

The network is that of src/models/wrn.cc, with the optimizer and batch of
`thimble train wrn-28-2`, in a setting of torch_settings.py. One batch of random
images stays in memory, so data costs nothing. Prints one JSON object.
compare-pytorch sets the environment.
"""
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import torch_peer
import torch_settings


class Block(nn.Module):
    def __init__(self, channels, out, stride):
        super().__init__()
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.stride, self.more = stride, out - channels

    def forward(self, x):
        y = self.conv1(F.relu(self.bn1(x), inplace=True))
        z = self.conv2(F.relu(self.bn2(y), inplace=True))
        if self.stride > 1:
            # x[:, :, ::stride, ::stride], whose backward is slower.
            x = F.avg_pool2d(x, 1, self.stride)
        if self.more > 0:
            x = F.pad(x, (0, 0, 0, 0, 0, self.more))
        return z.add_(x)


class WideResNet(nn.Module):
    def __init__(self, blocks=4, width=2, classes=10, checkpoint_blocks=0,
                 reentrant=True):
        super().__init__()
        self.checkpoint_blocks, self.reentrant = checkpoint_blocks, reentrant
        self.stem = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        layers, channels = [], 16
        for stage in range(3):
            for block in range(blocks):
                out = (16 << stage) * width
                stride = 2 if stage > 0 and block == 0 else 1
                layers.append(Block(channels, out, stride))
                channels = out
        self.blocks = nn.Sequential(*layers)
        self.bn = nn.BatchNorm2d(channels)
        self.fc = nn.Linear(channels, classes)

    def forward(self, x):
        x = self.stem(x)
        n = self.checkpoint_blocks
        for i in range(0, len(self.blocks), n or len(self.blocks)):
            part = self.blocks[i:i + (n or len(self.blocks))]
            x = (checkpoint(part, x, use_reentrant=self.reentrant) if n else
                 part(x))
        return self.fc(F.relu(self.bn(x), inplace=True).mean((2, 3)))


def make_step(args):
    """A training step as a function, and the number of parameters."""
    precision, layout, compiled = torch_settings.parse(args.setting)
    torch_peer.allow_bf16_products(precision)
    # The compiler cannot look into the older, reentrant form of checkpoints.
    net = WideResNet(checkpoint_blocks=args.checkpoint_blocks,
                     reentrant=not compiled)
    x = torch.randn(args.batch, 3, 32, 32)
    y = torch.randint(0, 10, (args.batch,))
    if layout == "channels_last":
        net = net.to(memory_format=torch.channels_last)
        x = x.contiguous(memory_format=torch.channels_last)
    sgd = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9,
                          nesterov=True, weight_decay=5e-4, fused=True)
    run = torch.compile(net) if compiled else net
    part = args.microbatch or args.batch

    def step():
        sgd.zero_grad(set_to_none=True)
        for i in range(0, args.batch, part):
            with torch_peer.cast(precision):
                logits = run(x[i:i + part])
            loss = F.cross_entropy(logits.float(), y[i:i + part])
            (loss * (part / args.batch)).backward()
        sgd.step()

    return step, sum(p.numel() for p in net.parameters())


if __name__ == "__main__":
    torch_peer.run(__doc__.split("\n")[0], make_step, "images")
