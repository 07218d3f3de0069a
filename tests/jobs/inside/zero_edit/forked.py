"""Runs many small trainings, each in a fork, so that a framework is imported only once."""

import json
import os
import sys
import traceback


def run(name, action, knobs=None, **env):
    """Run `action` in a fork with these knobs asked (None: without Rung), and write its result as one JSON line."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            if knobs is not None:
                start(knobs, env)
            sys.stdout.write(json.dumps({"name": name, **action()}) + "\n")
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        sys.stdout.flush()
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit(f"{name} failed")


def start(knobs, env):
    from rung_inside import zero_edit

    os.environ.update(env, RUNG_MODE="zero-edit", RUNG_KNOBS=json.dumps(knobs))
    zero_edit.start()


def weights(model):
    return [value.double().flatten().tolist() for value in model.state_dict().values()]


# The runs of an FP16 model, which fails without Rung: name and knobs.
PRECISIONS = {
    "fp32": {"precision": "fp32"},
    "native_fp16": {"precision": "native_fp16"},
    "bf16": {"precision": "bf16"},
    "params": {"params": "fp32"},
}
