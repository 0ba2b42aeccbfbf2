#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of bench/compare-pytorch: training steps of WRN-28-2.

The network is that of src/models/wrn.cc, with the optimizer and batch of
`thimble train wrn-28-2`, in a setting of torch_settings.py. One batch of random
images stays in memory, so data costs nothing. Prints one JSON object.
compare-pytorch sets the environment.
"""
import argparse
import contextlib
import gc
import json
import os
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

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


def status_bytes(key):
    """A size from /proc/self/status, or None where there is none."""
    try:
        with open("/proc/self/status") as status:
            for line in status:
                if line.startswith(key + ":"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def restart_peak():
    """Lets VmHWM begin again at the present size, where the kernel can."""
    try:
        with open("/proc/self/clear_refs", "w") as refs:
            refs.write("5")
    except OSError:
        pass


def described(args):
    """How this run was set up, on one line: what PyTorch says, not the options."""
    precision, layout, compiled = torch_settings.parse(args.setting)
    parts = [torch_settings.PRECISIONS[precision], layout,
             "compiled" if compiled else "not compiled",
             f"{torch.get_num_threads()} thread(s)",
             f"{args.microbatch or args.batch} images at a time"]
    if args.checkpoint_blocks:
        parts.append(f"recomputes {args.checkpoint_blocks} block(s) at a time")
    parts.append("oneDNN " + ("on" if torch.backends.mkldnn.is_available()
                              else "off"))
    parts.append("ATen " + torch.backends.cpu.get_cpu_capability())
    names = ("OMP_NUM_THREADS", "OMP_PROC_BIND", "LD_PRELOAD")
    parts += [f"{name}={os.environ[name]}" for name in names
              if name in os.environ]
    return ", ".join(parts)


def make_step(args):
    """A training step as a function, and the number of parameters."""
    precision, layout, compiled = torch_settings.parse(args.setting)
    if precision == "f32-via-bf16":
        torch.backends.mkldnn.conv.fp32_precision = "bf16"
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"
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

    def cast():
        return (torch.autocast("cpu", dtype=torch.bfloat16)
                if precision == "bf16" else contextlib.nullcontext())

    def step():
        sgd.zero_grad(set_to_none=True)
        for i in range(0, args.batch, part):
            with cast():
                logits = run(x[i:i + part])
            loss = F.cross_entropy(logits.float(), y[i:i + part])
            (loss * (part / args.batch)).backward()
        sgd.step()

    return step, sum(p.numel() for p in net.parameters())


def step_seconds(step, args):
    """Durations of the steps after the warm-up."""
    seconds = []
    for i in range(args.warmup_steps + args.steps):
        begin = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - begin)
        # The first step compiles and touches memory.
        if i > 0 and args.stop_above and seconds[-1] > args.stop_above:
            return seconds[-1:]
    return seconds[args.warmup_steps:]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--setting", default="f32+channels_last",
                        choices=torch_settings.ALL)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--microbatch", type=int, default=0,
                        help="images at a time; 0: the batch")
    parser.add_argument("--checkpoint-blocks", type=int, default=0,
                        help="recompute every N residual blocks; 0: nothing")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warmup-steps", type=int, default=3)
    parser.add_argument("--stop-above", type=float, default=0, metavar="SECONDS",
                        help="end after a step that takes longer; 0: never")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    gc.collect()
    base = status_bytes("VmRSS")
    restart_peak()
    step, parameters = make_step(args)
    seconds = step_seconds(step, args)
    print(json.dumps({
        "torch": torch.__version__,
        "setting": described(args),
        "parameters": parameters,
        "seconds_per_step": statistics.median(seconds),
        "rss_base_bytes": base,
        "rss_peak_bytes": status_bytes("VmHWM"),
    }))


if __name__ == "__main__":
    main()
