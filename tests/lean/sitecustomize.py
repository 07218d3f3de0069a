"""Makes the trainings of the tests start fast and run fast in FP16. The tests of the fleet do not use this.

Every optimizer loads torch's compiler, which no training here uses. Outside a compiled function
`torch._compile._disable_dynamo` returns a function unchanged; here it does so without loading the compiler first.

On ARM the trainings run without oneDNN, which has no fast code for FP16 products there: two 64x64 matrices take 5 ms,
and 0.2 ms with torch's own code. Both add in FP32 and round the sum to FP16.
"""

import importlib.machinery
import os
import sys


class AfterImport:
    """Finds torch._compile as Python does, and changes torch right after its import."""

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
                if os.uname().machine == "aarch64":
                    sys.modules["torch._C"]._set_mkldnn_enabled(False)

            spec.loader.exec_module = loaded
        return spec


def handed_through(function=None, recursive=True):
    return function if function is not None else handed_through


sys.meta_path.insert(0, AfterImport)
