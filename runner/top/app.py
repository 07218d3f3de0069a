"""Shows jobs and hosts in the terminal, live, by keyboard; colours are those of the terminal, light or dark."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual import on, work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.events import Resize
from textual.widgets import DataTable, Input, Static
from textual.worker import Worker

from rung.jobs.model.state import JobState
from rung.runner.top.columns import cells, columns, header
from rung.runner.top.host_rows import HEADERS
from rung.runner.top.job_line import JobLine
from rung.runner.top.overview import Overview, OverviewReader
from rung.runner.top.story_screen import StoryScreen
from rung.runner.views.tables import table

# An event is seen within a second.
LOOK_SECONDS = 0.5
KEYS = " enter story   / filter   tab hosts   j k ↑ ↓ move   q quit"
FILTER_KEYS = " enter keep the filter   escape all jobs"


class TopApp(App[None]):
    """The jobs in a table, and the hosts below."""

    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "quit", "Quit"),
        Binding("slash", "filter", "Filter"),
        Binding("j", "move(1)", "Down"),
        Binding("k", "move(-1)", "Up"),
        Binding("escape", "clear_filter", "All jobs"),
    ]
    # `reverse` is readable on every background; a colour of its own for the cursor is not.
    CSS = """
    DataTable { height: 1fr; scrollbar-size-vertical: 1; scrollbar-size-horizontal: 0; }
    DataTable > .datatable--header { background: ansi_default; color: ansi_default; text-style: bold underline; }
    DataTable > .datatable--cursor, DataTable:focus > .datatable--cursor {
        background: ansi_default; color: ansi_default; text-style: reverse;
    }
    #summary, #keys { height: 1; }
    #keys { text-style: dim; }
    #note { height: auto; max-height: 2; color: ansi_red; }
    #hosts { height: auto; max-height: 7; border-top: solid ansi_blue; scrollbar-size-vertical: 1; }
    #hosts:focus { border-top: heavy ansi_blue; }
    #filter { height: 1; border: none; padding: 0 1; display: none; }
    """

    def __init__(self, reader: OverviewReader) -> None:
        super().__init__()
        self.theme = "ansi-dark"
        self._reader, self._wanted = reader, ""
        self._overview: Overview | None = None
        self._width = self.size.width
        self._columns: dict[str, int] = {}
        self._looking: Worker[None] | None = None

    def compose(self) -> ComposeResult:
        yield Static(" reading the store …", id="summary", markup=False)
        yield Static(id="note", markup=False)
        yield DataTable[Text](cursor_type="row", cell_padding=0)
        with VerticalScroll(id="hosts"):
            yield Static(markup=False)
        yield Input(placeholder="words of the id, state, rung, host or reason", id="filter")
        yield Static(KEYS, id="keys", markup=False)

    def on_mount(self) -> None:
        self._table.focus()
        self.set_interval(LOOK_SECONDS, self._tick)
        self._tick()

    def on_resize(self, event: Resize) -> None:
        self._width = event.size.width
        self._show_again()

    @property
    def _table(self) -> DataTable[Text]:
        return self.screen_stack[0].query_one(DataTable)

    def _find(self, name: str) -> Static:
        return self.screen_stack[0].query_one(name, Static)

    # What is shown

    def _tick(self) -> None:
        if self._looking is None or self._looking.is_finished:
            self._looking = self._look()
        if isinstance(self.screen, StoryScreen):
            self.screen.look()

    @work(thread=True)
    def _look(self) -> None:
        """Read the store in a thread, so that no key waits for it."""
        found = self._reader.new_overview()
        if found is not None and found != self._overview and self.is_running:
            self.call_from_thread(self._show, found)

    def _show_again(self) -> None:
        if self._overview is not None:
            self._show(self._overview)

    def _show(self, overview: Overview) -> None:
        self._overview = overview
        self._find("#summary").update(Text(_summary(overview, self._wanted)))
        self._find("#note").update(Text(overview.note))
        self._find("#note").display = bool(overview.note)
        self._find("#hosts Static").update(_hosts(overview, self._width))
        self._show_jobs([job for job in overview.jobs if job.matches(self._wanted)])

    def _show_jobs(self, jobs: list[JobLine]) -> None:
        """Write the rows anew; the cursor stays on its job, wherever that is now."""
        shown, sizes = self._table, columns(jobs, self._width)
        chosen, top = self._chosen(), shown.scroll_y
        shown.clear(columns=sizes != self._columns)
        if sizes != self._columns:
            self._columns = sizes
            for name, size in sizes.items():
                shown.add_column(header(name, size), width=size + 1, key=name)
        for job in jobs:
            shown.add_row(*cells(job, sizes), key=job.id)
        places = {job.id: place for place, job in enumerate(jobs)}
        if chosen in places:
            shown.move_cursor(row=places[chosen], scroll=False)
            shown.scroll_to(y=top, animate=False, force=True)

    def _chosen(self) -> str:
        shown = self._table
        if not shown.is_valid_coordinate(shown.cursor_coordinate):
            return ""
        return str(shown.coordinate_to_cell_key(shown.cursor_coordinate).row_key.value)

    # Keys

    def action_move(self, rows: int) -> None:
        focused = self.focused
        if isinstance(focused, VerticalScroll):
            focused.scroll_relative(y=rows, animate=False)
        else:
            self._table.move_cursor(row=self._table.cursor_row + rows)

    def action_filter(self) -> None:
        if len(self.screen_stack) == 1:
            self.query_one("#filter").display = True
            self.query_one("#filter").focus()
            self._find("#keys").update(FILTER_KEYS)

    def action_clear_filter(self) -> None:
        self.query_one("#filter", Input).value = ""
        self._close_filter()

    @on(Input.Changed)
    def _filter(self, event: Input.Changed) -> None:
        self._wanted = event.value
        self._show_again()

    @on(Input.Submitted)
    def _close_filter(self) -> None:
        self.query_one("#filter").display = False
        self._find("#keys").update(KEYS)
        self._table.focus()

    @on(DataTable.RowSelected)
    def _open_story(self, event: DataTable.RowSelected) -> None:
        self.push_screen(StoryScreen(str(event.row_key.value), self._reader.story))


def _summary(overview: Overview, wanted: str) -> str:
    if not overview.counts:
        return " no jobs yet: `rung launch FILE` submits one"
    counts = [f"{overview.counts[state]} {state.lower()}" for state in JobState if overview.counts.get(state)]
    only = f"   only: {wanted}" if wanted.strip() else ""
    left_out = sum(overview.counts.values()) - len(overview.jobs)
    more = f"   {left_out} older ones: rung queue" if left_out > 0 else ""
    return f" {', '.join(counts)}{more}{only}"


def _hosts(overview: Overview, width: int) -> Text:
    rows = table(HEADERS, overview.hosts, width - 1) if overview.hosts else ""
    about = Text(overview.about_hosts)
    return Text("\n").join(filter(None, (about, Text.from_ansi(rows, no_wrap=True))))
