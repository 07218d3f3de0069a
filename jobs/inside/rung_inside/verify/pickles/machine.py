"""Executes a pickle on data only: it builds texts, numbers, lists, dicts and tensors, and a dummy for every class.

It imports and calls nothing that the pickle names. What the pickle would call is judged by `permissions`, and a pickle
that asks for more is refused. Time and memory are counted in steps, so that they do not depend on the machine.
"""

from __future__ import annotations

from typing import Any, Callable

from rung_inside.verify.pickles import keeping
from rung_inside.verify.pickles.objects import Arguments, Bag, Dummy, Name, fill, name_of
from rung_inside.verify.pickles.opcodes import ARGUMENTS, Reader, damaged
from rung_inside.verify.pickles.permissions import NAMED, permission
from rung_inside.verify.pickles.rebuilt import REBUILT
from rung_inside.verify.pickles.states import give_state
from rung_inside.verify.pickles.storages import storage_of
from rung_inside.verify.stored.mapped_file import Window
from rung_inside.verify.stored.tensor import Storage
from rung_inside.verify.stored.verdict import REFUSED, Unfit

# One step stands for about 50 bytes of memory. A checkpoint of 100,000 tensors needs about 6 million.
MOST_STEPS = 20_000_000
# A whole model names about 100 classes.
MOST_NAMES = 1000
MARK = object()


class Machine:
    """Executes one pickle. `names` are the globals that it named, `storages` the numbers that it asked for."""

    def __init__(self, window: Window, at: int = 0, steps: int = MOST_STEPS) -> None:
        self.reader = Reader(window, at)
        self.names: dict[Name, int] = {}
        self.storages: dict[str, Storage] = {}
        self.later: list[Callable[[], None]] = []  # checks of numbers, for when it is known where they are
        self.sealed: dict[int, Any] = {}  # dicts that are the attributes of an object
        self.steps = steps
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._protocol = 0

    def run(self) -> Any:
        """Return what the pickle holds."""
        reader = self.reader
        while True:
            code = reader.byte()
            if code == ord("."):
                keeping.check_kept([self._top()])
                return self._pop()
            cost, argument, action = TABLE[code]
            self.steps -= cost
            if self.steps < 0:
                raise _too_long()
            action(self, argument(reader) if argument else None)

    def charge(self, steps: int) -> None:
        """Count steps, and refuse a pickle that takes too many."""
        self.steps -= steps
        if self.steps < 0:
            raise _too_long()

    def check_later(self) -> None:
        """Make the checks that had to wait for the numbers."""
        for check in self.later:
            check()

    def call(self, name: Any, args: Any) -> Any:
        """Return what a call of a global with these arguments stands for, if it may be called."""
        if type(args) not in (tuple, Arguments):
            raise damaged("arguments that are no tuple")
        if type(name) is not Name:
            raise Unfit(REFUSED, "would call an object that it makes itself when loaded")
        rebuild = REBUILT.get(name)
        if rebuild is not None:
            return rebuild(self, args)
        keeping.check_call(self, name, args)
        return Dummy(name, args)

    def make(self, name: Any, args: Any) -> Any:
        """Return what a new object of a class stands for, without a call of the class."""
        if type(args) not in (tuple, Arguments):
            raise damaged("arguments that are no tuple")
        if type(name) is not Name:
            raise Unfit(REFUSED, "would make an object of a class that it makes itself when loaded")
        if name in REBUILT:
            return self.call(name, args)
        keeping.check_making(self, name, args)
        return Dummy(name, args)

    def make_with_names(self, name: Any, args: Any, named: Any) -> Any:
        """Return the same for a class of the job that takes named arguments."""
        made = self.make(name, args)
        if named and (not keeping.is_of_the_job(made) or not keeping.is_mapping(named)):
            raise Unfit(REFUSED, f"would make an object of {name} in a way that torch.save does not write")
        if named:
            made["<named>"] = named
        return made

    def name(self, module: Any, name: Any) -> Name:
        """Return a global, judged by its exact name, or refuse the pickle."""
        found = name_of(module, name, self._protocol)
        if found not in self.names:
            if len(self.names) == MOST_NAMES:
                raise Unfit(REFUSED, f"names more than {MOST_NAMES} classes and functions")
            self.names[found] = permission(found)
        if self.names[found] < NAMED:
            raise Unfit(REFUSED, f"would run {found} when loaded, and that is not known to be harmless")
        return found

    def _pop(self) -> Any:
        if not self._stack or self._stack[-1] is MARK:
            raise damaged("its stack is empty")
        return self._stack.pop()

    def _top(self) -> Any:
        if not self._stack or self._stack[-1] is MARK:
            raise damaged("its stack is empty")
        return self._stack[-1]

    def _since_mark(self) -> list[Any]:
        """Remove everything down to the last mark, and return it."""
        for at in range(len(self._stack) - 1, -1, -1):
            if self._stack[at] is MARK:
                items = self._stack[at + 1 :]
                del self._stack[at:]
                return items
        raise damaged("no mark")

    def push(self, value: Any) -> None:
        self._stack.append(value)

    def _global(self, pair: tuple[str, str]) -> None:
        self.push(self.name(*pair))

    def _stack_global(self, _: None) -> None:
        name, module = self._pop(), self._pop()
        self.push(self.name(module, name))

    def _coded(self, code: int) -> None:
        raise Unfit(REFUSED, f"names a class by the code {code}, which only a program can know")

    def _reduce(self, _: None) -> None:
        args, name = self._pop(), self._pop()
        self.push(self.call(name, args))

    def _newobj(self, _: None) -> None:
        args = self._pop()
        self.push(self.make(self._pop(), args))

    def _newobj_ex(self, _: None) -> None:
        named, args, name = self._pop(), self._pop(), self._pop()
        self.push(self.make_with_names(name, args, named))

    def _inst(self, pair: tuple[str, str]) -> None:
        self.push(self.call(self.name(*pair), keeping.tuple_of(self._since_mark())))

    def _obj(self, _: None) -> None:
        items = self._since_mark()
        if not items:
            raise damaged("an object without a class")
        self.push(self.call(items[0], keeping.tuple_of(items[1:])))

    def _build(self, _: None) -> None:
        state = self._pop()
        give_state(self, self._top(), state)

    def _append(self, _: None) -> None:
        self._extend([self._pop()])

    def _appends(self, _: None) -> None:
        self._extend(self._since_mark())

    def _add(self, _: None) -> None:
        items = self._since_mark()
        keeping.check_keys(self, items)
        self._extend(items)

    def _extend(self, items: list[Any]) -> None:
        target = self._top()
        keeping.check_items(target, items)
        (target if isinstance(target, list) else target.setdefault("<items>", [])).extend(items)

    def _setitem(self, _: None) -> None:
        value, key = self._pop(), self._pop()
        self._update([key, value])

    def _setitems(self, _: None) -> None:
        self._update(self._since_mark())

    def _update(self, items: list[Any]) -> None:
        target = self._top()
        keeping.check_pairs(self, target, items)
        fill(target, items)

    def _list(self, _: None) -> None:
        items = self._since_mark()
        keeping.check_kept(items)
        self.push(items)

    def _tuple(self, _: None) -> None:
        self.push(keeping.tuple_of(self._since_mark()))

    def _dict(self, _: None) -> None:
        items = self._since_mark()
        self.push({})
        self._update(items)

    def _frozenset(self, _: None) -> None:
        items = self._since_mark()
        keeping.check_keys(self, items)
        self.push(Bag(items))

    def _put(self, index: int) -> None:
        self._memo[index] = self._top()

    def _memoize(self, _: None) -> None:
        self._memo[len(self._memo)] = self._top()

    def _get(self, index: int) -> None:
        if index not in self._memo:
            raise damaged("a value that was never kept")
        self.push(self._memo[index])

    def _pop_one(self, _: None) -> None:
        if not self._stack:
            raise damaged("its stack is empty")
        self._stack.pop()

    def _pop_mark(self, _: None) -> None:
        self._since_mark()

    def _stored(self, key: str | None) -> None:
        self.push(storage_of(self._pop() if key is None else key, self.storages))

    def _set_protocol(self, number: int) -> None:
        if number > 5:
            raise damaged(f"protocol {number}")
        self._protocol = number

    def _duplicate(self, _: None) -> None:
        self.push(self._top())

    def _mark(self, _: None) -> None:
        self.push(MARK)

    def short_tuple(self, count: int) -> None:
        items = [self._pop() for _ in range(count)]
        self.push(keeping.tuple_of(reversed(items)))


def _too_long() -> Unfit:
    return Unfit(REFUSED, "reading it takes more steps than any checkpoint needs")


Action = Callable[[Machine, Any], None]


def _constant(value: Any) -> Action:
    return lambda machine, _: machine.push(value)


def _fresh(make: Callable[[], Any]) -> Action:
    return lambda machine, _: machine.push(make())


def _tuple_of(count: int) -> Action:
    return lambda machine, _: machine.short_tuple(count)


def _nothing(machine: Machine, _: Any) -> None:
    """Do nothing: frames only say how much to read at once."""


def _unknown(machine: Machine, _: Any) -> None:
    raise damaged("an unknown opcode")


ACTIONS: dict[int, Action] = {
    **dict.fromkeys(b"ILFJKMGSTUVXBC\x8a\x8b\x8c\x8d\x8e\x96", Machine.push),
    **dict.fromkeys(b"gjh", Machine._get), **dict.fromkeys(b"prq", Machine._put), 0x94: Machine._memoize,
    ord("N"): _constant(None), 0x88: _constant(True), 0x89: _constant(False), ord(")"): _constant(()),
    ord("]"): _fresh(list), ord("}"): _fresh(dict), 0x8F: _fresh(Bag),
    0x85: _tuple_of(1), 0x86: _tuple_of(2), 0x87: _tuple_of(3),
    ord("t"): Machine._tuple, ord("l"): Machine._list, ord("d"): Machine._dict, 0x91: Machine._frozenset,
    ord("a"): Machine._append, ord("e"): Machine._appends, 0x90: Machine._add,
    ord("s"): Machine._setitem, ord("u"): Machine._setitems,
    ord("("): Machine._mark, ord("0"): Machine._pop_one, ord("1"): Machine._pop_mark, ord("2"): Machine._duplicate,
    ord("c"): Machine._global, 0x93: Machine._stack_global, **dict.fromkeys(b"\x82\x83\x84", Machine._coded),
    ord("R"): Machine._reduce, 0x81: Machine._newobj, 0x92: Machine._newobj_ex, ord("b"): Machine._build,
    ord("i"): Machine._inst, ord("o"): Machine._obj, ord("Q"): Machine._stored, ord("P"): Machine._stored,
    0x80: Machine._set_protocol, 0x95: _nothing,
}  # fmt: skip
# Opcodes that make more than a small value.
COSTS = {
    **dict.fromkeys(b"pqr\x94]lt\x85\x86\x87", 2),
    **dict.fromkeys(b"}d\x8f\x91", 5),
    **dict.fromkeys(b"Rbio\x81\x92Q", 8),
}
TABLE = [(COSTS.get(code, 1), ARGUMENTS.get(code), ACTIONS.get(code, _unknown)) for code in range(256)]
