"""Runs trainings of silent.py as Rung starts them, each to its end in a fork of one process that has imported torch.

python forks.py    reads [[name, function, variables], ...] and writes {name: {result, output}}, as JSON
"""

import atexit
import json
import os
import pathlib
import sys
import tempfile
import warnings

warnings.simplefilter("ignore")
import torch  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import as_from_a_gpu  # noqa: E402
import silent  # noqa: E402


def train(function, variables, folder):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with_us, as_on_a_gpu = variables.pop("RUNG_MODE", "zero-edit"), variables.pop("AS_ON_A_GPU", "")
    variables = {name: value.replace("FOLDER", str(folder)) for name, value in variables.items()}
    os.environ.update({"RUNG_KNOBS": "{}", "RUNG_CHECKPOINT_DIR": str(folder), "RUNG_MODE": with_us, **variables})
    from rung_inside import zero_edit

    zero_edit.start()
    if as_on_a_gpu:
        as_from_a_gpu.read_as_from_a_gpu()
    result = getattr(silent, function)(folder)
    (folder / "got").write_text(json.dumps(result))


def forked(function, variables):
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "got").write_text("null")
    child = os.fork()
    if not child:
        out = os.open(folder / "output", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.dup2(out, 1)
        os.dup2(out, 2)
        # As the interpreter ends a script: no traceback for SystemExit, then the exit handlers.
        try:
            train(function, variables, folder)
        except SystemExit:
            pass
        except BaseException:
            sys.excepthook(*sys.exc_info())
        atexit._run_exitfuncs()
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)
    return {"result": json.loads((folder / "got").read_text()), "output": (folder / "output").read_text()}


if __name__ == "__main__":
    # torch prepares FP16 and imports modules at the first use; do it once before the forks.
    torch.set_num_threads(1)
    torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    with torch.autocast("cpu", dtype=torch.float16):
        torch.nn.Linear(8, 16)(torch.randn(4, 8)).sum().backward()
    done = {name: forked(function, variables) for name, function, variables in json.load(sys.stdin)}
    sys.stdout.write(json.dumps(done))
