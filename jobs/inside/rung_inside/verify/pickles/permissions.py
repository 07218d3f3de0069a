"""Says what a pickle may do with a global: nothing, name it, make objects of it, or call it; and what it may keep."""

from __future__ import annotations

import sys

from rung_inside.verify.pickles import allowed_names, job_classes
from rung_inside.verify.pickles.objects import Name
from rung_inside.verify.stored.bits import NeedsTorch

# May not even be named: naming it imports its module.
REFUSED = 0
# May be named, in the places where it belongs.
NAMED = 1
# A class: a new object may be made of it and given its state, but it is not called.
MADE = 2
# May be called: it only rebuilds data.
CALLED = 3


def _names(modules: dict[str, str]) -> set[Name]:
    return {Name(module, name) for module, names in modules.items() for name in names.split()}


def _table() -> dict[Name, int]:
    found: dict[Name, int] = {}
    for level, modules in (
        (NAMED, allowed_names.VALUES),
        (NAMED, allowed_names.NAMED),
        (MADE, allowed_names.MADE),
        (CALLED, allowed_names.CALLED),
        (CALLED, allowed_names.ENUMS),
    ):
        found.update(dict.fromkeys(_names(modules), level))
    return found


def _also_values() -> set[Name]:
    """Return the classes that may be kept; of some modules these are all that the list has."""
    modules = allowed_names.ALSO_VALUES
    return {
        Name(module, name) for module in modules for name in (modules[module] or allowed_names.MADE[module]).split()
    }


TABLE = _table()
ENUMS = frozenset(_names(allowed_names.ENUMS))
# What may be kept as a value. Everything else stands only where a class or a function is used.
VALUES = frozenset(_names(allowed_names.VALUES) | _also_values())
# Objects that hold data only: their attributes are no choice of the pickle.
_WITH_ATTRIBUTES = {
    Name("argparse", "Namespace"), Name("types", "SimpleNamespace"), Name("functools", "partial"),
}  # fmt: skip
DATA = frozenset(_names(allowed_names.CALLED) | ENUMS | {Name("numpy", "ndarray")}) - _WITH_ATTRIBUTES
# Classes of dicts whose items are stored in them one by one.
DICTS = frozenset(
    name for name in TABLE if name.name in ("AttributeDict", "ConfigDict") or name.module == "addict.addict"
)
# The methods that frameworks keep: they compute with numbers.
ATTRIBUTES = {
    Name("torch.optim.lr_scheduler", "OneCycleLR"): ("_annealing_cos", "_annealing_linear"),
    Name("torch.optim.lr_scheduler", "CyclicLR"): (
        "_triangular_scale_fn", "_triangular2_scale_fn", "_exp_range_scale_fn",
    ),
    Name("mmengine.logging.history_buffer", "HistoryBuffer"): ("min", "max", "mean", "current"),
}  # fmt: skip
# What nearly every checkpoint names, and every torch that has weights_only takes with it.
PLAIN = _names(
    {
        "collections": "OrderedDict",
        "torch._utils": "_rebuild_tensor_v2 _rebuild_parameter",
        "torch": "Size FloatStorage HalfStorage BFloat16Storage DoubleStorage LongStorage IntStorage ShortStorage "
        "CharStorage ByteStorage BoolStorage ComplexFloatStorage ComplexDoubleStorage",
    }
)
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
    if kind == job_classes.CALLED_CLASS:
        return CALLED
    return REFUSED if kind == job_classes.FOREIGN else MADE


def is_known_class(name: Name) -> bool:
    """Return whether a name is a class in the source of the job."""
    return job_classes.kind_in_source(name.module, name.name) in (job_classes.CLASS, job_classes.CALLED_CLASS)


def is_attribute(kind: Name, attribute: str) -> bool:
    """Return whether an attribute of a class may be taken: a member of an enum, or a method that frameworks keep."""
    if kind in ENUMS:
        return attribute.isidentifier() and attribute.isupper() and not attribute.startswith("_")
    if kind in TABLE:
        return attribute in ATTRIBUTES.get(kind, ())
    return job_classes.is_member(kind.module, kind.name, attribute)


def is_plain_for_torch(name: Name) -> bool:
    """Return whether torch.load takes a global with weights_only=True, in the torch that is installed here."""
    if name in PLAIN:
        return True
    if "torch" not in sys.modules:
        raise NeedsTorch
    try:
        from torch._weights_only_unpickler import _get_allowed_globals
    except ImportError:  # torch before 1.13 has no such option
        return False
    return str(name) in _get_allowed_globals()
