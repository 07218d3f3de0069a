"""The folders with the trackers, apart from .venv: frameworks that find a tracker there use it, and tests would too."""

from pathlib import Path

_BUILD = Path(__file__).parents[2] / "build" / "trackers"
TENSORBOARD = _BUILD / "tensorboard"
ALL = _BUILD / "all"
