"""Asks pip-audit whether a package in `requirements.lock` has a known vulnerability, for `make audit`.

`python -m tests.audit PROGRAM` ends with 1 if one is found, and with 0 otherwise. Where the database cannot be reached,
one line says that it could not be asked.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

LOCK = Path(__file__).resolve().parents[1] / "requirements.lock"
SECONDS = 600
# So many names of packages that could not be asked about are shown.
SHOWN = 10
# pip-audit may ask for each package; it reads the lock file alone and installs nothing.
OPTIONS = ("--no-deps", "--disable-pip", "--progress-spinner", "off", "--format", "json")


def main(words: list[str]) -> int:
    (program,) = words
    said = ask([program, "--requirement", str(LOCK), *OPTIONS])
    if isinstance(said, str):
        sys.stdout.write(f"audit: the database of vulnerabilities could not be asked: {said}\n")
        return 0
    found = [package for package in said if package.get("vulns")]
    skipped = [package for package in said if "skip_reason" in package]
    sys.stdout.writelines(f"audit: {line}\n" for package in found for line in lines_of(package))
    if skipped:
        names = ", ".join(str(package["name"]) for package in skipped[:SHOWN])
        sys.stdout.write(f"audit: could not be asked about {len(skipped)} of {len(said)} packages: {names}\n")
    sys.stdout.write(f"audit: {len(found)} of {len(said) - len(skipped)} packages have a known vulnerability\n")
    return 1 if found else 0


def ask(command: list[str]) -> list[dict[str, Any]] | str:
    """Return what pip-audit says about each package, or why it says nothing."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    # It ends with 1 for a finding and for an error alike; only a finding comes with an answer.
    try:
        packages: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    if all("skip_reason" in package for package in packages):
        return str(packages[0]["skip_reason"]) if packages else "the lock file names no package"
    return packages


def lines_of(package: dict[str, Any]) -> list[str]:
    fixed = "fixed in {}", "no version has a fix yet"
    return [
        f"{package['name']} {package['version']}: {each['id']}, "
        + (fixed[0].format(", ".join(each["fix_versions"])) if each.get("fix_versions") else fixed[1])
        for each in package["vulns"]
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
