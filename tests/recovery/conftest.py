"""Lets the tests of this folder share their makers of jobs and attempts."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
