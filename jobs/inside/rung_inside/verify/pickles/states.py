"""Gives objects their state, as the opcode BUILD does: once, and only where the object is one of the pickle's own."""

from __future__ import annotations

from typing import Any

from rung_inside.verify.pickles.keeping import check_attributes, check_kept, is_mapping
from rung_inside.verify.pickles.objects import Arguments, Bag, Dummy, Fixed, Name, Ordered
from rung_inside.verify.pickles.opcodes import damaged
from rung_inside.verify.pickles.permissions import MADE, TABLE
from rung_inside.verify.pickles.rebuilt import RANDOM, STATES
from rung_inside.verify.stored.verdict import REFUSED, Unfit

# Besides the classes that objects are made of, these get a state.
ALSO_BUILT = frozenset(
    {
        RANDOM, Name("numpy.random.bit_generator", "SeedSequence"), Name("random", "Random"), Name("uuid", "UUID"),
        Name("torch", "Generator"), Name("torch._C", "Generator"),
        Name("argparse", "Namespace"), Name("types", "SimpleNamespace"),
    }
)  # fmt: skip


def give_state(machine: Any, made: Any, state: Any) -> None:
    """Give an object its state, or refuse the pickle."""
    _check_may_have_one(made)
    made.built = True
    if isinstance(made, Ordered):
        # That of a state dict has the attribute `_metadata`, which is not needed here.
        _parts(machine, made, state)
        return
    special = STATES.get(made.name)
    if special is not None:
        special(machine, made, state)
        return
    if isinstance(state, (Name, Dummy, Bag)):
        raise Unfit(REFUSED, f"would give an object of {made.name} an object as its state")
    check_kept((state,))
    for part in _parts(machine, made, state):
        if is_mapping(part):
            machine.charge(2 * len(part))  # the same state may be given to many objects
            made.update(part)
        elif part is not None:
            made["<state>"] = state


def _check_may_have_one(made: Any) -> None:
    if isinstance(made, Name):
        raise Unfit(REFUSED, f"would change {made} itself when loaded")
    if not isinstance(made, (Dummy, Ordered)):
        raise damaged("a state for a value that has none")
    if isinstance(made, Dummy):
        known = TABLE.get(made.name, MADE) == MADE or made.name in ALSO_BUILT or made.name in STATES
        if isinstance(made, Fixed) or not known:
            raise Unfit(REFUSED, f"would change {made.name} itself when loaded")
    if made.built:
        raise Unfit(REFUSED, "would give an object a second state when loaded")


def _parts(machine: Any, made: Any, state: Any) -> tuple[Any, ...]:
    """Return the attributes of a state, and those that are set one by one, if it has such. None may be called."""
    parts = tuple(state) if type(state) in (tuple, Arguments) and len(state) == 2 else (state,)
    for part in parts:
        if is_mapping(part):
            _seal(machine, part)
    if len(parts) == 2 and is_mapping(parts[1]):
        _check_slots(made, parts[1])
    return parts


def _seal(machine: Any, state: dict[Any, Any]) -> None:
    """Check attributes, which may not change any more: a class may use the dict itself, or one in it, as its own."""
    check_attributes(state)
    machine.sealed[id(state)] = state
    inner: Any = state.get("__dict__")
    if is_mapping(inner):
        check_attributes(inner)
        machine.sealed[id(inner)] = inner


def _check_slots(made: Any, slots: dict[Any, Any]) -> None:
    """Check attributes that are set one by one, which runs code of the class, and may replace all its attributes."""
    listed = isinstance(made, Ordered) or (made.name in TABLE and not made.name.module.startswith("torch.distributed."))
    if listed or not all(type(key) is str and not key.startswith("__") for key in slots):
        raise Unfit(REFUSED, "would set attributes of an object when loaded that its class does not keep so")
