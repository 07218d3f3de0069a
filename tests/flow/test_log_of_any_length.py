"""Tests that a log of any length is kept completely and read in bounded memory."""

import os

MEGABYTE = 1_000_000
TALK = """
import sys
for i in range({lines}):
    print("some words that nobody will ever read, number", i, "and so on and so forth, at some length")
sys.stdout.write("x" * {endless})
print()
print("step 1 loss 0.5")
"""


def peak_memory_of_the_controller(lab, lines, endless):
    """Return the most memory a controller took while it followed a job with such a log, and the log's size."""
    run = ["python", "-c", TALK.format(lines=lines, endless=endless)]
    name = lab.submit(lab.write({"name": "talk", "run": run}, __file__))
    controller = lab.controller()
    _, status, usage = os.wait4(controller.pid, 0)
    controller.returncode = os.waitstatus_to_exitcode(status)
    assert controller.returncode == 0
    row = lab.row(name)
    assert (row["state"], row["step"]) == ("SUCCEEDED", 1)
    return usage.ru_maxrss * 1024, len(lab.log(name, 1))


def test_thirty_megabytes_and_a_line_without_end_take_no_more_memory_than_a_few_lines(lab):
    little, _ = peak_memory_of_the_controller(lab, lines=3, endless=3)
    much, size = peak_memory_of_the_controller(lab, lines=200_000, endless=12 * MEGABYTE)
    assert size > 30 * MEGABYTE
    assert much < little + 12 * MEGABYTE
