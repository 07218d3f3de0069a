"""Runs many small trainings as Rung starts them, each in a fork of one process, so that torch is imported only once.

    python forking.py MODULE...    reads [[name, function, knobs, variables], ...], writes {name: result}, all JSON

A MODULE of this folder holds the functions. They do not use Rung: they take a folder to write to and return what JSON
can hold.
"""

from __future__ import annotations

import importlib
import json
import os
import pathlib
import sys
import tempfile
import traceback
import warnings

warnings.simplefilter("ignore")
import torch  # noqa: E402


def train(function, knobs, variables, folder):
    """Run one function with these knobs asked; None runs it without Rung."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    os.environ["RUNG_CHECKPOINT_DIR"] = str(folder)
    os.environ.update({name: text.replace("FOLDER", str(folder)) for name, text in variables.items()})
    if knobs is not None:
        os.environ.update(RUNG_MODE="zero-edit", RUNG_KNOBS=json.dumps(knobs))
        from rung_inside import zero_edit

        zero_edit.start()
    return function(folder)


def forked(function, knobs, variables, folder):
    """Run one training in its own process, and return its result or error, and its output."""
    output, got = folder / "output", folder / "got"
    child = os.fork()
    if not child:
        out = os.open(output, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.dup2(out, 1)
        os.dup2(out, 2)
        try:
            result = {"result": train(function, knobs, variables, folder)}
        except BaseException as error:
            traceback.print_exc()
            result = {"error": f"{type(error).__name__}: {error}"}
        got.write_text(json.dumps(result))
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)
    return {**json.loads(got.read_text()), "output": output.read_text()}


def warm_up():
    """Import what torch imports at the first step of an optimizer, so that the forks need not."""
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
    (weight * weight).sum().backward()
    optimizer.step()


def main():
    torch.set_num_threads(1)
    warm_up()
    functions = {}
    for module in sys.argv[1:]:
        functions.update(vars(importlib.import_module(module)))
    done = {}
    for name, function, knobs, variables in json.load(sys.stdin):
        folder = pathlib.Path(tempfile.mkdtemp())
        done[name] = forked(functions[function], knobs, variables, folder)
    print(json.dumps(done))  # noqa: T201


if __name__ == "__main__":
    main()
