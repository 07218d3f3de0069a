"""Trains a tiny YOLO on eight made-up pictures: `python ultralytics_.py FAULT`."""

import sys
import tempfile
from pathlib import Path

import numpy
from PIL import Image
from tiny import rate
from ultralytics import YOLO

fault = sys.argv[1]
root = Path(tempfile.mkdtemp())
for part in ("images", "labels"):
    (root / part).mkdir()
for index in range(8):
    Image.fromarray(numpy.random.randint(0, 255, (64, 64, 3), dtype=numpy.uint8)).save(root / f"images/{index}.png")
    (root / f"labels/{index}.txt").write_text("0 0.5 0.5 0.4 0.4\n")
(root / "data.yaml").write_text(f"path: {root}\ntrain: images\nval: images\nnames: {{0: thing}}\n")
YOLO("yolov8n.yaml").train(
    data=str(root / "data.yaml"),
    epochs=3,
    imgsz=64,
    batch=2,
    device="cpu",
    workers=0,
    lr0=min(1.0, rate(fault, 0.01)),
    optimizer="SGD",
    warmup_epochs=0,
    project=str(root),
    plots=False,
    exist_ok=True,
    amp=False,
)
