"""Prints as JSON what trackers have of the runs in a folder: `read_curves.py tensorboard|wandb|mlflow FOLDER`.

A process of its own, because the trackers are not in the environment of the tests.
"""

import json
import struct
import sys
from pathlib import Path

# A file of W&B: 7 bytes, then blocks of pieces, each with a checksum, a length and a kind (whole, first, middle, last).
HEADER, BLOCK, PIECE = 7, 32768, struct.Struct("<IHB")
WHOLE, FIRST, LAST = 1, 2, 4


def tensorboard(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    curves = {}
    for each in sorted({file.parent for file in folder.glob("curves/**/events.*")}):
        events = EventAccumulator(str(each), size_guidance={"scalars": 0, "tensors": 0}).Reload()
        for kind, read in (("scalars", events.Scalars), ("tensors", events.Tensors)):
            for tag in events.Tags()[kind]:
                values = [(event.step, getattr(event, "value", None)) for event in read(tag)]
                curves[f"{each.relative_to(folder)} {tag}"] = values
    return curves


def wandb(folder):
    return [run_of_wandb(file) for file in sorted(folder.glob("wandb/offline-run-*/run-*.wandb"))]


def run_of_wandb(file):
    from wandb.proto.wandb_internal_pb2 import Record

    run = {"steps": []}
    for data in pieces(file.read_bytes()):
        record = Record.FromString(data)
        if record.HasField("run"):
            run |= {"group": record.run.run_group, "name": record.run.display_name, "tags": list(record.run.tags)}
        elif record.HasField("history"):
            run["steps"].append(record.history.step.num)
    return run


def pieces(data):
    """Yield the records of a file of W&B. A file that was cut off ends with the last whole one."""
    at, record = HEADER, b""
    while at + PIECE.size <= len(data):
        if BLOCK - at % BLOCK < PIECE.size:
            at += BLOCK - at % BLOCK
            continue
        _, length, kind = PIECE.unpack_from(data, at)
        at += PIECE.size
        if kind == 0 or at + length > len(data):
            return
        record = data[at : at + length] if kind in (WHOLE, FIRST) else record + data[at : at + length]
        at += length
        if kind in (WHOLE, LAST):
            yield record


def mlflow(folder):
    from mlflow import MlflowClient

    client = MlflowClient(f"file:{folder}/mlruns")
    experiment = client.get_experiment_by_name("tracked")
    runs = client.search_runs([experiment.experiment_id], order_by=["attributes.start_time ASC"])
    return [{"id": run.info.run_id, "tags": tags_of(run), **metrics_of(client, run)} for run in runs]


def tags_of(run):
    return {name: value for name, value in run.data.tags.items() if name.startswith("rung.")}


def metrics_of(client, run):
    """Return every value that was ever written, in the order of writing."""
    history = {key: client.get_metric_history(run.info.run_id, key) for key in run.data.metrics}
    return {key: [(metric.step, metric.value) for metric in values] for key, values in history.items()}


if __name__ == "__main__":
    reader = {"tensorboard": tensorboard, "wandb": wandb, "mlflow": mlflow}[sys.argv[1]]
    sys.stdout.write(json.dumps(reader(Path(sys.argv[2]))) + "\n")
