# SPDX-License-Identifier: Apache-2.0
"""Compares docs/reference with what the tool says of itself.

usage: reference_pages.py THIMBLE FOLDER
cli.md must name the options that --help lists, json.md the keys of plan --json, and
neither any other. Exits 1 and says what differs.
"""
import json
import pathlib
import re
import subprocess
import sys

COMMANDS = (["plan"], ["train"], ["eval"], ["translate"], ["inspect"], ["export"], ["data"],
            ["data", "list"], ["data", "get"], ["data", "prepare"], ["reproduce"])
OPTION = re.compile(r"^  (?:-\w,)?(--[\w-]+)", re.M)
CODE = re.compile(r"`([^`]+)`")


def printed(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def options(tool):
    for command in COMMANDS:
        yield from OPTION.findall(printed(tool, *command, "--help"))
    yield "--version"


def named_options(page):
    # A fence is no code in a line.
    for code in CODE.findall(page.replace("```", "")):
        yield from re.findall(r"--[a-z][\w-]*", code)


def keys(value, path=""):
    if not isinstance(value, dict):
        yield path
        return
    for key, inner in value.items():
        yield from keys(inner, f"{path}.{key}" if path else key)


def named_keys(page):
    """The first column of the first table; `.b` behind `a.c` stands for a.b."""
    for row in re.search(r"\n\|---.*\n((?:\|.*\n)+)", page)[1].splitlines():
        first = ""
        for code in CODE.findall(row.split("|")[1]):
            first = first if code.startswith(".") else code.split(".")[0]
            yield first + code if code.startswith(".") else code


def differences(path, named, there):
    for name in sorted(there - named):
        yield f"{path}: {name} is missing"
    for name in sorted(named - there):
        yield f"{path}: the tool has no {name}"


def main(tool, folder):
    cli, plan = (pathlib.Path(folder) / name for name in ("cli.md", "json.md"))
    made = json.loads(printed(tool, "plan", "mlp", "--threads", "1", "--json"))
    wrong = [*differences(cli, set(named_options(cli.read_text(encoding="utf-8"))),
                          set(options(tool))),
             *differences(plan, set(named_keys(plan.read_text(encoding="utf-8"))),
                          set(keys(made)))]
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


sys.exit(main(*sys.argv[1:]))
