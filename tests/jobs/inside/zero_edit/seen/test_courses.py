"""Tests which optimizers take turns and which begin a new course of the training."""

from rung_inside.zero_edit.telemetry.courses import HELD, NEW, OTHER, REPORTED, Courses


class Parameter:
    pass


class Optimizer:
    def __init__(self, *parameters):
        self.param_groups = [{"params": list(parameters)}]


def places(turns, **optimizers):
    """Follow updates by the letters of their optimizers; return what each was, by one letter, and the courses."""
    letters = {REPORTED: "r", OTHER: "o", HELD: "h", NEW: "N"}
    courses, text, begun = Courses(), "", []
    for step, name in enumerate(turns, 1):
        place = courses.place(courses.source(optimizers[name]), step)
        text += letters[place]
        if place == NEW:
            begun.append((courses.number, courses.start + 1, courses.why))
    return text, begun


def two():
    return {"a": Optimizer(Parameter()), "b": Optimizer(Parameter())}


def test_one_optimizer_is_one_course():
    assert places("a" * 20, **two()) == ("r" * 20, [])


def test_optimizers_that_take_turns_are_one_course():
    assert places("ab" * 10, **two()) == ("rh" + "ro" * 9, [])
    # The critic of a WGAN.
    assert places("abbbbb" * 3, **two()) == ("rhhhhh" + "rooooo" * 2, [])


def test_an_optimizer_alone_for_nine_updates_begins_a_course_at_its_first():
    assert places("a" * 20 + "b" * 10, **two()) == ("r" * 20 + "h" * 8 + "Nr", [(2, 21, "new_model")])


def test_a_new_optimizer_after_one_that_is_gone_begins_a_course_at_once():
    courses, old = Courses(), Optimizer(Parameter())
    assert courses.place(courses.source(old), 1) == REPORTED
    del old
    new = Optimizer(Parameter())
    assert courses.place(courses.source(new), 2) == NEW
    assert (courses.number, courses.start, courses.why) == (2, 1, "new_model")


def test_a_new_optimizer_for_the_same_parameters_is_named_as_such():
    shared = Parameter()
    optimizers = {"a": Optimizer(shared, Parameter()), "b": Optimizer(shared)}
    assert places("a" * 20 + "b" * 9, **optimizers)[1] == [(2, 21, "new_optimizer")]


def test_an_optimizer_that_is_made_anew_in_every_epoch_goes_on_with_its_course():
    body, head = Parameter(), Parameter()
    anew = {name: Optimizer(body, head) for name in "abcd"} | {"e": Optimizer(head), "f": Optimizer(head, Parameter())}
    text, begun = places("".join(name * 20 for name in "abcdef"), **anew)
    # One that also trains a new head begins another course.
    assert begun == [(2, 21, "new_optimizer"), (3, 101, "new_optimizer")]
    assert text[40:100] == "r" * 60


def test_epochs_without_end_leave_no_trace_of_their_optimizers():
    shared, courses = Parameter(), Courses()
    for epoch in range(100):
        optimizer = Optimizer(shared)
        for update in range(10):
            courses.place(courses.source(optimizer), epoch * 10 + update + 1)
    assert courses.number == 2 and len(courses._members) <= 2


def test_two_new_optimizers_that_take_turns_begin_one_course():
    four = {**two(), "c": Optimizer(Parameter()), "d": Optimizer(Parameter())}
    text, begun = places("ab" * 10 + "cd" * 6, **four)
    assert begun == [(2, 21, "new_model")]
    assert text[20:] == "hhhhhhhhNoro"


def test_optimizers_with_long_turns_are_soon_seen_to_take_turns():
    _, begun = places(("a" + "b" * 20) * 5, **two())
    assert begun == [(2, 2, "new_model")]
    inner = {name: Optimizer(Parameter()) for name in "bcdefg"}
    _, begun = places("".join("a" + name * 10 for name in inner), a=two()["a"], **inner)
    assert len(begun) == 1, "an optimizer of its own for each inner loop, as in meta-learning"


def test_a_parameter_that_is_gone_is_shared_with_nobody():
    old = Optimizer(Parameter())
    courses = Courses()
    one = courses.source(old)
    old.param_groups.clear()
    other = courses.source(Optimizer(Parameter()))
    other.parameters = dict.fromkeys(one.parameters, next(iter(other.parameters.values())))
    assert not one.shares(other)
