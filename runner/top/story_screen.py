"""Shows the story of one job, live; Escape leads back to the jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Static

from rung.runner.top.overview import JobStory

KEYS = " escape back   j k ↑ ↓ scroll   q quit"
# The scrollbar, and a space before it.
MARGIN = 2
LEAST_WIDTH = 40


class StoryScreen(Screen[None]):
    """The story of a job: what it does now, and what has happened."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,backspace,left,h", "app.pop_screen", "Back"),
        Binding("j", "scroll(1)", "Down", show=False),
        Binding("k", "scroll(-1)", "Up", show=False),
    ]
    CSS = """
    StoryScreen VerticalScroll { height: 1fr; scrollbar-size-vertical: 1; }
    StoryScreen #title { text-style: bold; height: 1; }
    StoryScreen #about { height: auto; max-height: 4; }
    StoryScreen #keys { height: 1; text-style: dim; }
    """

    def __init__(self, job_id: str, read: Callable[[str, int], JobStory]) -> None:
        super().__init__()
        self._job_id, self._read = job_id, read
        self._shown: JobStory | None = None

    def compose(self) -> ComposeResult:
        yield Static(id="title", markup=False)
        yield Static(id="about", markup=False)
        with VerticalScroll():
            yield Static(id="story", markup=False)
        yield Static(KEYS, id="keys", markup=False)

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()

    def on_resize(self) -> None:
        self.look()

    def action_scroll(self, lines: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)

    def look(self) -> None:
        """Read the job again. Whoever is at the end of the story stays there."""
        found = self._read(self._job_id, max(LEAST_WIDTH, self.size.width - MARGIN))
        if found == self._shown:
            return
        scroll, first = self.query_one(VerticalScroll), self._shown is None
        at_end = scroll.is_vertical_scroll_end
        self._shown = found
        self.query_one("#title", Static).update(Text(found.title))
        self.query_one("#about", Static).update(Text("\n".join(filter(None, (found.reason, found.doing)))))
        self.query_one("#story", Static).update(Text.from_ansi("\n".join(found.lines)))
        if first or at_end:
            scroll.scroll_end(animate=False)
