"""Makes the trainings of the tests start fast and run fast in FP16. The tests of the fleet do not use this.

Every optimizer loads torch's compiler, which no training here uses and which takes as long to load as torch itself.
Outside a compiled function `torch._compile._disable_dynamo` returns a function unchanged, and a step of an optimizer
only sets whether gradients are recorded; here both do so without loading the compiler first.

`import torch` also registers how every operator finds the shape of its result for tensors without data. Only the
compiler and the device `meta` need that, and it is a quarter of the time: here these modules are empty until a script
loads the compiler. A script that needs them for the device `meta` ends with an error of torch.

On ARM the trainings run without oneDNN, which has no fast code for FP16 products there: two 64x64 matrices take 5 ms,
and 0.2 ms with torch's own code. Both add in FP32 and round the sum to FP16.
"""

import functools
import importlib
import importlib.machinery
import os
import sys


class AfterImport:
    """Finds modules of torch as Python does, and changes them right after their import."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "torch._dynamo":
            fill()
        if name in EMPTY:
            return importlib.machinery.ModuleSpec(name, Nothing)
        if name not in CHANGES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def loaded(module):
                load(module)
                CHANGES[name](module)

            spec.loader.exec_module = loaded
        return spec


class Nothing:
    """Loads a module that is empty."""

    @staticmethod
    def create_module(spec):
        return None

    @staticmethod
    def exec_module(module):
        # torch does this while it fills these modules, and no generator of random numbers can be made before.
        if module.__name__ == "torch._meta_registrations":
            base = importlib.import_module("torch._opaque_base")
            sys.modules["torch._C"]._set_generator_metaclass(base.OpaqueBaseMeta)


def fill():
    """Load what was left empty."""
    while EMPTY:
        name = EMPTY.pop()
        sys.modules.pop(name, None)
        importlib.import_module(name)


def change_compile(module):
    module._disable_dynamo = handed_through
    if os.uname().machine == "aarch64":
        sys.modules["torch._C"]._set_mkldnn_enabled(False)


def handed_through(function=None, recursive=True):
    return function if function is not None else handed_through


def change_optimizer(module):
    module._use_grad_for_differentiable = with_gradients_as_asked


def with_gradients_as_asked(step):
    @functools.wraps(step)
    def stepping(optimizer, *arguments, **named):
        with sys.modules["torch"].set_grad_enabled(optimizer.defaults["differentiable"]):
            return step(optimizer, *arguments, **named)

    return stepping


CHANGES = {"torch._compile": change_compile, "torch.optim.optimizer": change_optimizer}
EMPTY = {"torch._meta_registrations", "torch.distributed._meta_registrations"}
sys.meta_path.insert(0, AfterImport)
