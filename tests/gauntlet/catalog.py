"""The list of the gauntlet's trainings."""

from __future__ import annotations

from tests.gauntlet.case import CASES, Case
from tests.gauntlet.families import FAMILIES
from tests.gauntlet.fifth_list import FIFTH
from tests.gauntlet.fourth_list import FOURTH
from tests.gauntlet.fresh import FRESH
from tests.gauntlet.scripts import SINGLE
from tests.gauntlet.second_list import SECOND
from tests.gauntlet.third_list import THIRD

# The cases import these files; Python finds them in the folder of the script.
SHARED = tuple(CASES / f"{name}.py" for name in ("case", "options", "tasks", "tuned"))
SIDES = ("tune", "blind")
CATALOG: tuple[Case, ...] = (*SINGLE, *FAMILIES, *SECOND, *THIRD, *FOURTH, *FIFTH, *FRESH)


def chosen(
    names: tuple[str, ...], side: str | None = None, family: str | None = None, *, fresh: bool = False
) -> tuple[Case, ...]:
    """Return the named cases, or all, of one side and family or of every one; raise KeyError for an unknown name."""
    known = {case.name: case for case in CATALOG}
    cases = [known[name] for name in names] if names else CATALOG
    cases = [case for case in cases if case.fresh or not fresh]
    return tuple(case for case in cases if side in (None, case.side) and family in (None, case.family))
