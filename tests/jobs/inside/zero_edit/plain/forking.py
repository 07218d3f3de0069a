"""Runs many small trainings as Rung would start each, in forks of one process that has paid for torch's import.

    python forking.py FILE    reads [[name, function, knobs, variables], ...], writes {name: what came of it}, all JSON

FILE holds the functions, written as a stranger would: they take a folder to write to and return what JSON can hold.
"""

from __future__ import annotations

import importlib.util
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
    """Run one function with the knobs asked; None asks for nothing and leaves Rung out."""
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
    """Return what a training came to in a process of its own: its result or error, and what it printed."""
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
    """Have torch import once what it imports at the first step of an optimizer."""
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
    (weight * weight).sum().backward()
    optimizer.step()


def main():
    torch.set_num_threads(1)
    warm_up()
    spec = importlib.util.spec_from_file_location("trainings", sys.argv[1])
    trainings = importlib.util.module_from_spec(spec)
    sys.modules["trainings"] = trainings
    spec.loader.exec_module(trainings)
    done = {}
    for name, function, knobs, variables in json.load(sys.stdin):
        folder = pathlib.Path(tempfile.mkdtemp())
        done[name] = forked(getattr(trainings, function), knobs, variables, folder)
    print(json.dumps(done))  # noqa: T201


if __name__ == "__main__":
    main()
