# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's networks for bench/compare-pytorch have in common: their options,
how steps are timed, and what a run prints, one JSON object."""
import argparse
import contextlib
import gc
import json
import os
import statistics
import time

import torch

import torch_settings


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


def described(args, unit):
    """How this run was set up, on one line: what PyTorch says, not the options."""
    precision, layout, compiled = torch_settings.parse(args.setting)
    parts = [torch_settings.PRECISIONS[precision], layout,
             "compiled" if compiled else "not compiled",
             f"{torch.get_num_threads()} thread(s)",
             f"{args.microbatch or args.batch} {unit} at a time"]
    if args.checkpoint_blocks:
        parts.append(f"recomputes {args.checkpoint_blocks} block(s) at a time")
    parts.append("oneDNN " + ("on" if torch.backends.mkldnn.is_available()
                              else "off"))
    parts.append("ATen " + torch.backends.cpu.get_cpu_capability())
    names = ("OMP_NUM_THREADS", "OMP_PROC_BIND", "LD_PRELOAD")
    parts += [f"{name}={os.environ[name]}" for name in names
              if name in os.environ]
    return ", ".join(parts)


def allow_bf16_products(precision):
    """Where the setting says so, products of f32 tensors round their inputs."""
    if precision == "f32-via-bf16":
        torch.backends.mkldnn.conv.fp32_precision = "bf16"
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"


def cast(precision):
    """A context in which operations have the setting's precision."""
    return (torch.autocast("cpu", dtype=torch.bfloat16)
            if precision == "bf16" else contextlib.nullcontext())


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


def run(description, make_step, unit):
    """Times the function that make_step(args) gives, beside the number of
    parameters. Batches are counted in `unit`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--setting", default="f32+channels_last",
                        choices=torch_settings.ALL)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=100, help=unit)
    parser.add_argument("--microbatch", type=int, default=0,
                        help=f"{unit} at a time; 0: the batch")
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
        "setting": described(args, unit),
        "parameters": parameters,
        "seconds_per_step": statistics.median(seconds),
        "rss_base_bytes": base,
        "rss_peak_bytes": status_bytes("VmHWM"),
    }))
