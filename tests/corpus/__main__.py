"""Prints how many faults are found: `python -m tests.corpus [COLLECTION] [--by framework] [--lines N] [--seed N]`.

`--strangers` prints another table: what was found in logs that other people wrote (strangers.py), `--own-runs` what is
found in excerpts of own runs, labelled by somebody who does not know the rules (own_runs.py).

COLLECTION is a folder with an expected.json, or a file of JSON lines with `label` and `lines` (and `framework`, `also`,
`id`). Exit code 1 when a log is not as expected.
"""

import argparse
import sys
from collections import Counter, defaultdict
from pathlib import Path

from tests.corpus import own_runs
from tests.corpus.collection import HEALTHY, HERE, Case, Seen, as_expected, load, watch
from tests.corpus.healthy import FORMATS, healthy_log
from tests.corpus.strangers import table


def say(text: str = "") -> None:
    sys.stdout.write(f"{text}\n")


def recall(cases: list[tuple[Case, Seen]]) -> None:
    seen_of: dict[str, list[bool]] = defaultdict(list)
    for case, seen in cases:
        if case.label != HEALTHY:
            seen_of[case.label].append(bool(seen.kinds & ({case.label} | case.also)))
    say(f"{'fault':<18}{'seen':>6}{'logs':>6}{'recall':>9}")
    for label, hits in sorted(seen_of.items()):
        say(f"{label:<18}{sum(hits):>6}{len(hits):>6}{100 * sum(hits) / len(hits):>8.1f}%")
    every = [hit for hits in seen_of.values() for hit in hits]
    if every:
        say(f"{'all':<18}{sum(every):>6}{len(every):>6}{100 * sum(every) / len(every):>8.1f}%")


def confusion(cases: list[tuple[Case, Seen]]) -> None:
    table = Counter((case.label, seen.first) for case, seen in cases)
    columns = sorted({first for _, first in table}, key=lambda kind: (kind == HEALTHY, kind))
    say("expected below, reported first across:")
    say(f"{'':<18}" + "".join(f"{kind[:14]:>15}" for kind in columns))
    for label in sorted({label for label, _ in table}, key=lambda kind: (kind == HEALTHY, kind)):
        say(f"{label:<18}" + "".join(f"{table[label, kind] or '.':>15}" for kind in columns))


def by_framework(cases: list[tuple[Case, Seen]]) -> None:
    groups: dict[str, list[tuple[Case, Seen]]] = defaultdict(list)
    for case, seen in cases:
        groups[case.framework].append((case, seen))
    say(f"{'framework':<18}{'faulty':>6}{'seen':>6}{'healthy':>9}{'alarms':>8}")
    for framework, group in sorted(groups.items()):
        faulty = [(case, seen) for case, seen in group if case.label != HEALTHY]
        well = [(case, seen) for case, seen in group if case.label == HEALTHY]
        hits = sum(bool(seen.kinds & ({case.label} | case.also)) for case, seen in faulty)
        alarms = sum(bool(seen.kinds) for _, seen in well)
        say(f"{framework:<18}{len(faulty):>6}{hits:>6}{len(well):>9}{alarms:>8}")


def false_alarms(cases: list[tuple[Case, Seen]], made_up: int, seed: int) -> int:
    """Print the rate over the healthy logs of the collection and over made-up ones; return the alarms."""
    lines = sum(len(case.data.splitlines()) for case, _ in cases if case.label == HEALTHY)
    alarms = sum(len(seen.listed) for case, seen in cases if case.label == HEALTHY)
    for name in FORMATS if made_up else ():
        each = list(healthy_log(name, made_up // len(FORMATS), seed))
        seen = watch(each)
        lines, alarms = lines + len(each), alarms + len(seen.listed)
        for fault in seen.listed:
            say(f"  a false alarm in made-up {name}: line {fault.line}, {fault.kind}: {fault.evidence[:120]}")
    if lines:
        say(f"{alarms} false alarms in {lines} healthy lines: {100_000 * alarms / lines:.2f} per 100k")
    return alarms


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.corpus", description="How well faults are seen.")
    parser.add_argument("collection", nargs="?", type=Path, default=HERE)
    parser.add_argument("--by", choices=["framework"])
    parser.add_argument("--lines", type=int, default=240_000, help="made-up healthy lines (0: none)")
    parser.add_argument("--seed", type=int, default=0, help="of the made-up lines")
    parser.add_argument("--strangers", action="store_true", help="show what was found in the logs of other people")
    parser.add_argument("--own-runs", action="store_true", help="show what is found in excerpts of own runs")
    asked = parser.parse_args(words)
    if asked.strangers or asked.own_runs:
        say("\n".join(table() if asked.strangers else own_runs.table()))
        return 0
    cases = [(case, watch([case.data])) for case in load(asked.collection)]
    wrong = [(case.name, words) for case, seen in cases if (words := as_expected(case, seen))]
    say(f"{len(cases)} logs, {sum(case.label == HEALTHY for case, _ in cases)} of them healthy\n")
    recall(cases)
    say()
    if asked.by:
        by_framework(cases)
        say()
    confusion(cases)
    say()
    alarms = false_alarms(cases, asked.lines, asked.seed)
    for name, words in wrong:
        say(f"not as expected: {name}: {words}")
    return 1 if wrong or alarms else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
