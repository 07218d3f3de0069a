"""Says what a pickle may do with a global: nothing, name it, make objects of it, or call it."""

from __future__ import annotations

from rung_inside.verify.pickles import allowed_names, job_classes
from rung_inside.verify.pickles.objects import Name

# May not even be named: naming it imports its module.
REFUSED = 0
# May be named as a value: a type of numbers, a function that is kept as a setting.
NAMED = 1
# A class: a new object may be made of it and given its state, but it is not called.
MADE = 2
# May be called with any arguments: it only rebuilds data.
CALLED = 3


def _table() -> dict[Name, int]:
    found: dict[Name, int] = {}
    for level, modules in (
        (NAMED, allowed_names.NAMED),
        (MADE, allowed_names.MADE),
        (CALLED, allowed_names.CALLED),
    ):
        found.update({Name(module, name): level for module, names in modules.items() for name in names.split()})
    return found


TABLE = _table()
# These are no modules of a job, also where they are not installed.
LIBRARIES = frozenset(name.module.partition(".")[0] for name in TABLE)


def permission(name: Name) -> int:
    """Return what a pickle may do with a global, by the exact list or as a class of the job."""
    known = TABLE.get(name)
    if known is not None:
        return known
    if name.module.partition(".")[0] in LIBRARIES or not job_classes.is_of_the_job(name.module):
        return REFUSED
    kind = job_classes.kind_in_source(name.module, name.name)
    if kind == job_classes.CLASS:
        return CALLED
    return REFUSED if kind == job_classes.FOREIGN else MADE


def is_plain_for_torch(name: Name) -> bool:
    """Return whether torch.load takes a global with weights_only=True, in the torch that is installed here."""
    try:
        from torch._weights_only_unpickler import _get_allowed_globals
    except ImportError:  # torch before 1.13 has no such option
        return False
    return str(name) in _get_allowed_globals()
