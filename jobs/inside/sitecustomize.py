"""Starts zero-edit and the measuring of usage: Python imports this file when it starts.

Without RUNG_MODE (zero-edit, or watch: it reads and changes nothing) and RUNG_USAGE it does nothing, except that with
RUNG_MODE (also inside) the process can be asked where it hangs. It always runs the sitecustomize that it hides, if any.
Any Python 3 must be able to read this file, also one that is too old.
"""

import os
import sys

OLDEST = (3, 8)


def _start() -> None:
    if os.environ.get("RUNG_USAGE"):
        _measure()
    mode = os.environ.get("RUNG_MODE")
    if mode in ("zero-edit", "watch", "inside") and sys.version_info >= OLDEST:
        _show_stacks()
    if mode not in ("zero-edit", "watch") or (mode == "watch" and sys.version_info < OLDEST):
        return
    if sys.version_info < OLDEST:
        _write("rung| hands none why=python_too_old python=%d.%d\n" % sys.version_info[:2])
        return
    try:
        from rung_inside import zero_edit

        zero_edit.start()
    except Exception as error:
        if mode == "watch":
            return  # the log is still there to be read
        text = "{}: {}".format(type(error).__name__, error).replace("\\", "/").replace('"', "'")
        _write('rung| hands none why=not_started error="%s"\n' % " ".join(text.split())[:200])


def _measure() -> None:
    """Measure time and memory; a run that cannot be measured goes on."""
    try:
        from rung_inside import usage

        usage.start()
    except Exception as error:
        _write("rung| note usage cannot be measured: {}: {}\n".format(type(error).__name__, error))


def _show_stacks() -> None:
    """Be ready to show where the process hangs; one that cannot do so hangs without."""
    try:
        from rung_inside import stacks

        stacks.start()
    except Exception:  # noqa: S110
        pass


def _write(text: str) -> None:
    """Write to the attempt's log, or to stdout if it is not known; a shell may use the output of this process."""
    try:
        descriptor = os.open(os.environ.get("RUNG_LOG", ""), os.O_WRONLY | os.O_APPEND)
    except OSError:
        sys.stdout.write(text)
        return
    try:
        os.write(descriptor, text.encode("utf-8", "replace"))
    finally:
        os.close(descriptor)


def _run_hidden() -> None:
    """Import the next sitecustomize on the path; what it raises goes to Python as usual."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    here = os.path.dirname(os.path.abspath(__file__))
    path = [folder for folder in sys.path if os.path.abspath(folder) != here]
    spec = PathFinder.find_spec("sitecustomize", path)
    if spec is not None and spec.loader is not None:
        sys.modules["sitecustomize"] = module = module_from_spec(spec)
        spec.loader.exec_module(module)


_start()
_run_hidden()
