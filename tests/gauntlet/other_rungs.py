"""Compares rungs that Rung does not have with those it has: `python -m tests.gauntlet.other_rungs`.

Each case runs under each rule of gradient_rules.py: from a checkpoint 100 steps before its fault, or from scratch
where the fault comes in the first steps. The table shows the held-out loss against the healthy run's. Blind cases are
refused, since rungs are chosen by this table.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tests.gauntlet import gradient_rules
from tests.gauntlet.case import Case, start_of
from tests.gauntlet.catalog import CATALOG
from tests.gauntlet.families import case_of
from tests.gauntlet.judging import REFERENCE, Result, Verdict, judge, read_results, value_in
from tests.gauntlet.regimens import SECONDS, Trial, reference

RESULTS = Path(__file__).with_name("other_rungs.jsonl")
AS_IT_IS = "as it is"
# Gradients that spike, an lr that is too high late, and one that is too high from the start. The catalog leaves out the
# recurrent net with outliers, because no rung of Rung is sure to cure it: so it is where another rung could win.
NAMES = """
gradient_spikes
gradient_spikes_amp
rnn_without_clip
gpt_adam_outliers_zero_every10
cnn_momentum_outliers_zero_every10
rnn_momentum_outliers_flags_every10
rnn_adam_outliers_zero_silent
recommender_adam_outliers_amp_flags_every10
recommender_momentum_outliers_amp_zero_silent
gpt_adam_burst_zero_every10
rnn_momentum_burst_flags_every10
cnn_momentum_late100_zero_every1
gpt_adam_lr10_zero_every10
gpt_adam_lr100_cosine_flags_every10
cnn_momentum_lr30_zero_silent
recommender_momentum_lr10_zero_every1
rnn_adam_lr30_zero_every10
"""


def case_named(name: str) -> Case:
    """Return the catalog's case of this name, or one that is not listed and that the name describes."""
    return next((case for case in CATALOG if case.name == name), None) or case_of(name)


def run(trial: Trial, rule: str, checkpoint: Path | None) -> Result:
    """Run a case's script under a rule."""
    began = time.monotonic()
    wrapper = [gradient_rules.__file__, rule] if rule != AS_IT_IS else []
    own = [str(trial.case.script), "--steps", str(trial.steps), "--out", str(trial.checkpoints)]
    resume = ["--resume", str(checkpoint)] if checkpoint else []
    command = [sys.executable, *wrapper, *own, *trial.case.flags.split(), *resume]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=env, cwd=trial.folder, stdout=subprocess.PIPE, text=True, timeout=SECONDS)
    return Result(
        case=trial.case.name,
        regimen=rule,
        times=trial.times,
        ended_well=done.returncode == 0,
        val_loss=value_in(done.stdout),
        launches=1,
        steps_lost=0,
        seconds=round(time.monotonic() - began, 1),
        steps=trial.steps,
        half_steps=0,
    )


def results_of(case: Case, folder: Path, known: Sequence[str]) -> Iterator[Result]:
    """Run what is not known of a case: as it is first, since that run writes the checkpoint of the others."""
    wanted = [rule for rule in (AS_IT_IS, *gradient_rules.RULES) if rule not in known]
    if REFERENCE not in known:
        yield reference(_trial(case, folder / REFERENCE))
    if not wanted:
        return
    as_it_is, start = _trial(case, folder / AS_IT_IS), start_of(case)
    if start or AS_IT_IS in wanted:
        yield run(as_it_is, AS_IT_IS, None)
    checkpoint = as_it_is.checkpoints / f"step_{start}.pt" if start else None
    for rule in wanted:
        if rule != AS_IT_IS:
            yield run(_trial(case, folder / rule), rule, checkpoint)


def _trial(case: Case, folder: Path) -> Trial:
    folder.mkdir(parents=True)
    return Trial(case, 1, folder)


def table(verdicts: Sequence[Verdict]) -> str:
    """Return the markdown table: a case is cured where the cell is not bold."""
    rules = (AS_IT_IS, *gradient_rules.RULES)
    found = {(verdict.case.name, verdict.result.regimen): verdict for verdict in verdicts}
    rows = [f"| case | {' | '.join(rules)} |", "| --- " * (len(rules) + 1) + "|"]
    for name in dict.fromkeys(verdict.case.name for verdict in verdicts):
        rows.append(f"| `{name}` | {' | '.join(_cell(found.get((name, rule))) for rule in rules)} |")
    cured = [sum(v.cured for v in verdicts if v.result.regimen == rule) for rule in rules]
    return "\n".join([*rows, f"| cured | {' | '.join(map(str, cured))} |"])


def _cell(verdict: Verdict | None) -> str:
    if verdict is None:
        return ""
    return verdict.off if verdict.cured else f"**{verdict.off}**"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.gauntlet.other_rungs", description=__doc__)
    parser.add_argument("case", nargs="*", help="cases by name")
    parser.add_argument("--steps", type=int, help="shorter runs, as trials are")
    parser.add_argument("--results", type=Path, help="a file with results: what it has is not run")
    args = parser.parse_args()
    cases = [case_named(name) for name in args.case or NAMES.split()]
    if blind := [case.name for case in cases if case.side == "blind"]:
        sys.exit(f"other_rungs: {', '.join(blind)}: a blind case must not decide about rungs")
    cases = [replace(case, steps=args.steps or case.steps) for case in cases]
    results = args.results or (Path(tempfile.mkdtemp()) / "results.jsonl" if args.steps else RESULTS)
    for case in cases:
        known = [result.regimen for result in read_results(results) if result.case == case.name]
        folder = Path(tempfile.mkdtemp())
        for result in results_of(case, folder, known):
            with results.open("a", encoding="utf-8") as stream:
                stream.write(result.to_json() + "\n")
        shutil.rmtree(folder)
    print(table(judge(read_results(results), cases)))


if __name__ == "__main__":
    main()
