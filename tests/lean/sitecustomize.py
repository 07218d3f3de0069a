"""Spares the trainings of the tests torch's compiler, which every optimizer loads and none of them uses.

Outside a compiled function `torch._compile._disable_dynamo` hands a function through as it is; here it does so without
loading the compiler first. Nothing else of torch is touched, and the fleet's tests train without this.
"""

import importlib.machinery
import sys


class AfterImport:
    """Finds torch._compile as Python would, and puts the short way in right after it was loaded."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "torch._compile":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def loaded(module):
                load(module)
                module._disable_dynamo = handed_through

            spec.loader.exec_module = loaded
        return spec


def handed_through(function=None, recursive=True):
    return function if function is not None else handed_through


sys.meta_path.insert(0, AfterImport)
