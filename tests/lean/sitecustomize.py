"""Makes the trainings of the tests quick to start and quick in FP16. The fleet's tests train without this.

They are spared torch's compiler, which every optimizer loads and none of them uses: outside a compiled function
`torch._compile._disable_dynamo` hands a function through as it is; here it does so without loading the compiler first.

On ARM they compute without oneDNN. torch gives it the FP16 products there although it has no fast code for them: two
64x64 matrices take 5 ms, and 0.2 ms by torch's own code. Both add up in FP32 and round the sum to FP16.
"""

import importlib.machinery
import os
import sys


class AfterImport:
    """Finds torch._compile, which torch loads with itself, as Python would, and changes torch right after that."""

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
