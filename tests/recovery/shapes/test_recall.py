"""Tests which lines are read by their shape, and that a log which has none costs the others nothing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from rung.recovery.logs.line_reader import read
from rung.recovery.shapes import recall
from rung.recovery.shapes.plan import printed
from rung.recovery.shapes.recall import FREE, LINES_EACH, LONGEST, MOST_SHAPES, KnownLines, ShapeStore


def line(step: int, words: str = "") -> str:
    return f"step {step} loss {1 + step % 7 / 8:.4f} lr 1e-4{words}"


def test_a_shape_is_learned_when_it_comes_for_the_second_time():
    store = ShapeStore()
    known = KnownLines(store)
    known.read(line(100))
    assert not store.shapes
    known.read(line(101))
    assert len(store.shapes) == 1 and known.recalled == 0
    for step in range(102, 200):
        assert printed(known.read(line(step))) == printed(read(line(step)))
    assert known.recalled == 98 and known.learned == 1


def test_a_known_line_is_not_read_in_full(monkeypatch):
    known = KnownLines(ShapeStore())
    known.read(line(100)), known.read(line(101))
    monkeypatch.setattr(recall, "read", lambda text: None)
    found = known.read(line(102))
    assert found is not None and (found.step, found.lr) == (102, 1e-4)


def test_what_one_log_teaches_another_knows():
    store = ShapeStore()
    one, other = KnownLines(store), KnownLines(store)
    one.read(line(100)), one.read(line(101))
    other.read(line(102))
    assert other.recalled == 1


def test_a_log_that_has_a_new_shape_on_every_other_line_soon_stops_teaching():
    store = ShapeStore()
    known = KnownLines(store)
    for number in range(600):
        text = line(100, " " + chr(ord("a") + number % 26) * (1 + number // 26))
        known.read(text), known.read(text)
    assert known.learned == FREE == len(store.shapes)
    for step in range(100, 100 + 10 * LINES_EACH):
        known.read(line(step, " a"))
    text = line(100, " new words")
    known.read(text), known.read(text)
    assert known.learned == FREE + 1


def test_the_oldest_shapes_make_room(monkeypatch):
    monkeypatch.setattr(recall, "MOST_SHAPES", 8)
    assert MOST_SHAPES > FREE
    store = ShapeStore()
    known = KnownLines(store)
    for number in range(20):
        text = line(100, " x" * number)
        known.read(text), known.read(text)
    assert len(store.shapes) == 8
    before = known.recalled
    known.read(line(200, " x" * 19))
    assert known.recalled == before + 1
    assert printed(known.read(line(200))) == printed(read(line(200)))


def test_a_long_line_has_no_shape():
    store = ShapeStore()
    known = KnownLines(store)
    text = line(100, " x" * LONGEST)
    for _ in range(3):
        assert printed(known.read(text)) == printed(read(text))
    assert not store.shapes


def test_a_line_without_numbers_is_known_to_have_none():
    known = KnownLines(ShapeStore())
    for shard in range(10, 20):
        assert known.read(f"read part-000{shard}.tar") is None
    assert known.recalled == 8


def test_many_threads_read_at_once():
    """Every thread reads the same as alone, while all of them teach one store that is too small."""
    store, lines = ShapeStore(), [line(10 ** (number % 9), " x" * (number % 40)) for number in range(400)]
    wanted = [printed(read(text)) for text in lines]

    def read_all(_: int) -> list[str]:
        known = KnownLines(store)
        return [printed(known.read(text)) for text in lines]

    with ThreadPoolExecutor(4) as pool:
        assert all(found == wanted for found in pool.map(read_all, range(8)))
