"""Tests where a process stands, read from the stacks that it wrote; with real stacks of faulthandler."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from rung.recovery.detect.stacks import standing_at

WAITS = """\
import faulthandler, queue, sys, threading
ready = threading.Event()
def idle():
    ready.set()
    threading.Event().wait()
def next_batch():
    faulthandler.dump_traceback_later(0.01, exit=True, file=sys.stdout)
    queue.Queue().get()
threading.Thread(target=idle, daemon=True).start()
ready.wait()
next_batch()
"""


def test_a_real_stack_shows_the_line_of_the_script_and_what_it_waits_in(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(WAITS)
    text = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False).stdout
    # The watchdog of faulthandler is no thread of the program, so none is the current one.
    main = text[text.rindex("Thread 0x") :].replace("Thread", "Current thread", 1)
    found = standing_at(text[: text.rindex("Thread 0x")] + main)
    assert found.startswith("train.py:8 in next_batch, in ") and " in wait" in found


def test_the_first_of_several_processes_counts() -> None:
    one = 'Thread 0x01 (most recent call first):\n  File "/a/other.py", line 1 in x\n'
    main = 'Current thread 0x02 [python3] (most recent call first):\n  File "/a/{}.py", line 2 in step\n'
    assert standing_at(one + main.format("train") + main.format("worker")) == "train.py:2 in step"
    assert standing_at(one) == "other.py:1 in x"


def test_a_log_without_stacks_shows_nothing() -> None:
    assert standing_at('step 30 loss 1.0\n  File "a.py", line 3 in f\n') == ""
    assert standing_at("") == ""
