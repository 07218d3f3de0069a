"""Tests that a script with a YAML config recovers with an edited copy of it, and that the original does not change."""

from pathlib import Path

CONFIG = """\
# tuned by hand, do not touch
optimizer: {name: sgd, lr: 0.1}   # peak
train:
  use_amp: yes      # FP16
  resume:           # nothing yet
  dir: .
"""
EDITED = """\
# tuned by hand, do not touch
optimizer: {name: sgd, lr: 0.05}   # peak
train:
  use_amp: false      # FP16
  resume: FOLDER/step_40.pt           # nothing yet
  dir: FOLDER
"""
KEYS = {"lr": "optimizer.lr", "precision": "train.use_amp", "checkpoint": "train.resume", "checkpoint_dir": "train.dir"}
KNOBS = {"lr": 0.05, "precision_text": {"amp_fp16": True, "fp32": False}, "files": {"config.yaml": KEYS}}


def test_the_edited_copy_cures_the_run_and_the_original_does_not_change(lab):
    (lab.folder / "config.yaml").write_text(CONFIG)
    script = Path(__file__).parent / "trainings" / "configured.py"
    success = {"metric": "val_loss", "below": 1.0}
    spec = {"name": "configured", "run": "python configured.py", "knobs": KNOBS, "success": success}
    history = lab.run(lab.write(spec, script))
    first, second = history["attempts"]
    assert history["job"]["state"] == "SUCCEEDED", history["job"]["reason"]
    assert first["fault"]["kind"] == "fp16_overflow"
    assert second["rung"] == "fp32" and second["resumed_step"] == 40
    assert (lab.folder / "config.yaml").read_text() == CONFIG
    assert not (lab.folder / "notes.txt").exists()
    folder = lab.folder / "home" / "jobs" / "configured-1"
    edited = (folder / "attempts" / "2" / "work" / "config.yaml").read_text()
    assert edited == EDITED.replace("FOLDER", str(folder / "checkpoints"))
