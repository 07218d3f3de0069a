"""Counts the calls that zero-edit adds to an update, and its own bytecodes: they do not depend on the machine's speed.

python counted.py    writes {"cpu reported": {"python": calls, "torch": calls on tensors, ...}, ...} as JSON to stderr:
                     for numbers on the CPU and for numbers that are read as from a GPU, in updates that are all
                     reported and in those of a long run, in which every 32nd is
"""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[5]))
from tests.bench.switching import Switch, records_in_a_file, start

start()
import torch  # noqa: E402
from as_from_a_gpu import copies, read_as_from_a_gpu  # noqa: E402

# A multiple of all that happens every so many updates, up to that of the widest reports.
COUNTED = 64
BEFORE = 80
LONG = 20_000
TENSORS = ("Tensor.", "TensorBase.", "_VariableFunctionsClass.")


class Counter:
    def __init__(self):
        self.python = self.torch = 0

    def take(self, _frame, event, what):
        if event == "call":
            self.python += 1
        elif event == "c_call" and getattr(what, "__qualname__", "").startswith(TENSORS):
            self.torch += 1

    def of(self, step):
        sys.setprofile(self.take)
        for _ in range(COUNTED):
            step()
        sys.setprofile(None)
        return self.python, self.torch


class Bytecodes:
    """Counts what the interpreter does in Rung's own code."""

    def __init__(self):
        self.count = 0

    def take(self, frame, _event, _arg):
        if "rung_inside" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self.inside

    def inside(self, _frame, event, _arg):
        self.count += event == "opcode"
        return self.inside

    def of(self, step):
        sys.settrace(self.take)
        for _ in range(COUNTED):
            step()
        sys.settrace(None)
        return self.count


def training():
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    batch = torch.randn(4, 8)

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = model(batch).float().square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

    return step, model


def main():
    from rung_inside.zero_edit.telemetry import waiting_records
    from rung_inside.zero_edit.telemetry.step_records import recorder

    step, model = training()
    switch, counts = None, {}
    with records_in_a_file() as lines:
        for where in ("cpu", "gpu"):
            for kind in ("reported", "long"):
                for _ in range(BEFORE):
                    step()
                switch = switch or Switch(model)
                if kind == "long":
                    recorder.courses.start -= LONG
                waiting_records.write()
                before, copies[0] = len(lines()), 0
                ours = Counter().of(step)
                waiting_records.write()
                told = {"records": len(lines()) - before, "copies": copies[0]}
                bytecodes = Bytecodes().of(step) / COUNTED
                switch.turn(on=False)
                own = Counter().of(step)
                switch.turn(on=True)
                more = [(mine - without) / COUNTED for mine, without in zip(ours, own, strict=True)]
                counts[f"{where} {kind}"] = {"python": more[0], "torch": more[1], "bytecodes": bytecodes, **told}
            recorder.courses.start += LONG
            read_as_from_a_gpu()
    sys.stderr.write(json.dumps(counts) + "\n")


main()
