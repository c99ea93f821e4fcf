"""The screen of `dc-inject watch`, made with Textual: lines about the campaign, its links, and its last events.

The table has as many columns as fit: what is left out first is what the line below it shows of the chosen link.
The ledger is read in a thread, at most a tenth of the time, so that keys are answered at once however large it is;
where it cannot be read any more, the last figures stay, and a line shows since when and why.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.widgets import DataTable, Footer, Input, Static

from dc_inject.apps.report import live_lines, watch_figures
from dc_inject.apps.report.watch_figures import NAMES, SHORT, Line, Standing
from dc_inject.cli.shared import hangup, summary_output, tables
from dc_inject.model import units
from dc_inject.model.errors import LedgerError
from dc_inject.summary import first_lines

EVERY = 2.0  # seconds between two readings, at least
REST = 10  # times as long as a reading takes nothing is read
NAME = 16  # characters of a name, at least
EVENTS = 6  # lines, where there is room
ROOMY = 40  # lines of a screen
BELOW = 6  # rows for the table's head, the chosen link, a selection, a filter and the keys
LINKS = "link"
GROUPS = (LINKS, "scenario", "source", "destination")
ORDERS = (SHORT, "ratio", "held", "due", "injected", "moved", "scenario", "source", "destination")
_size = summary_output.size
COLUMNS = (
    tables.Column("scenario", "scenario", name=True, spare=4),
    tables.Column("source", "source", name=True),
    tables.Column("destination", "destination", name=True),
    tables.Column("links", "links", right=True),
    tables.Column("target", "target", units.format_rate, right=True, spare=3),
    tables.Column("due", "due", _size, right=True, spare=5),
    tables.Column("injected", "injected", _size, right=True, spare=6),
    tables.Column("moved", "moved", _size, right=True, spare=2),
    tables.Column("ratio", "ratio", right=True),
    tables.Column("trend", "trend", whole=True, spare=1),
    tables.Column("held", "held", whole=True),
    tables.Column("why", "why", name=True, spare=7),
)


class WatchApp(App[None]):
    """The screen; `read` returns how the campaign stands now."""

    ENABLE_COMMAND_PALETTE = False
    TITLE = "dc-inject watch"
    CSS = """
    Screen { layout: vertical; scrollbar-size-vertical: 1; }
    #heading, #events { height: auto; padding: 0 1; }
    #chosen { height: auto; padding: 0 1; background: $panel; }
    DataTable { height: 1fr; scrollbar-size-vertical: 1; scrollbar-size-horizontal: 0; overflow-x: hidden; }
    Input { height: 1; border: none; padding: 0 1; display: none; }
    Input.asked { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c,ctrl+q", "quit", "Quit", key_display="q"),
        Binding("slash", "ask_filter", "Filter", key_display="/"),
        Binding("escape", "drop_filter", "All", show=False),
        Binding("s", "order", "Sort"),
        Binding("r", "turn", "Reverse"),
        Binding("g", "group", "Group"),
        Binding("h", "only_short", "Short only"),
    ]

    def __init__(self, standing: Standing, read: Callable[[], Standing]) -> None:
        """Take how the campaign stands, and what reads it again."""
        super().__init__()
        self._standing, self._read = standing, read
        self._lines: Sequence[Line] = ()
        self._group, self._order, self._reverse, self._only_short = LINKS, SHORT, False, False
        self._trouble: Text | None = None
        self._reading, self._next = False, time.monotonic() + EVERY
        # They are kept here, since messages come also when the screen is taken down, and finds nothing any more.
        self._heading, self._details, self._events = (Static(id=name) for name in ("heading", "chosen", "events"))
        self._table = DataTable[Text](cursor_type="row")
        hint = "words of a scenario, site or hold; Enter keeps them, Esc shows all"
        self._filter = Input(placeholder=hint, id="filter")

    def compose(self) -> ComposeResult:
        """Make the parts of the screen, from above."""
        yield from (self._heading, self._table, self._filter, self._details, self._events, Footer())

    def on_mount(self) -> None:
        """Begin: show what is known, and let a signal end it as q does, with the terminal as it was."""
        self._table.focus()
        self.set_interval(1.0, self._tick)
        if not self.is_headless:
            for number in hangup.signals():
                asyncio.get_running_loop().add_signal_handler(number, self._end)

    def _end(self) -> None:
        hangup.replace_closed_outputs()
        self.exit()

    def on_resize(self, _event: Resize) -> None:
        """Show what fits now."""
        self.call_after_refresh(self._show)

    # ------------------------------------------------------------------ reading

    def _tick(self) -> None:
        if not self._reading and time.monotonic() >= self._next:
            self._reading = True
            self._read_again()

    @work(thread=True)
    def _read_again(self) -> None:
        began = time.monotonic()
        standing, why = None, ""
        try:
            standing = self._read()
        except LedgerError as error:
            why = error.message
        except Exception as error:  # noqa: BLE001  the screen stays, whatever a ledger holds
            why = f"unexpected {type(error).__name__}"
        took = time.monotonic() - began
        self.call_from_thread(self.take, standing, why, max(EVERY, REST * took))

    def take(self, standing: Standing | None, why: str, wait: float) -> None:
        """Show what was read, or since when and why nothing can be read; read again after a while."""
        self._reading, self._next = False, time.monotonic() + wait
        if standing is None:
            since = f"{self._standing.at:%H:%M:%S}Z"
            self._trouble = Text(
                first_lines.one_line(f"! these figures are of {since}: {why}"), live_lines.WARNING
            )
        else:
            self._standing, self._trouble = standing, None
        self._show()

    # ------------------------------------------------------------------ keys

    def action_ask_filter(self) -> None:
        """Ask for words that links have to have."""
        box = self._filter
        box.add_class("asked")
        box.focus()

    def action_drop_filter(self) -> None:
        """Show all links again."""
        box = self._filter
        box.value = ""
        box.remove_class("asked")
        self._table.focus()

    def on_input_changed(self, _event: Input.Changed) -> None:
        """Filter at each letter."""
        self._show()

    def on_input_submitted(self, _event: Input.Submitted) -> None:
        """Let keys work on the table again."""
        self._table.focus()

    def action_order(self) -> None:
        """Sort by the next column."""
        self._order = ORDERS[(ORDERS.index(self._order) + 1) % len(ORDERS)]
        self._show()

    def action_turn(self) -> None:
        """Reverse the order."""
        self._reverse = not self._reverse
        self._show()

    def action_group(self) -> None:
        """Show links, or the sums of scenarios, sources or destinations."""
        self._group = GROUPS[(GROUPS.index(self._group) + 1) % len(GROUPS)]
        self._show()

    def action_only_short(self) -> None:
        """Show only what is short, or all of it again."""
        self._only_short = not self._only_short
        self._show()

    # ------------------------------------------------------------------ showing

    def _show(self) -> None:
        self._show_table()
        self._show_heading()
        self._show_chosen()
        happened = self._standing.status["events"][:EVENTS] if self.size.height >= ROOMY else ()
        events = [tables.cut(event, self.size.width - 2, end=True) for event in happened]
        self._events.update(Text("\n".join(events), "dim"))  # the first lines have the last ones

    def _show_heading(self) -> None:
        free = self.size.height - len(self._lines) - BELOW - (EVENTS if self.size.height >= ROOMY else 0)
        most = max(self.size.height // 3 + 2, 11, free)
        lines = live_lines.heading(self._standing, self.size.width - 2, most)
        if self._trouble is not None:
            lines.insert(1, self._trouble)
        self._heading.update(Text("\n").join(lines[:most]))

    def _show_table(self) -> None:
        table = self._table
        chosen, at = self._chosen(), table.scroll_y
        lines = list(self._standing.links)
        words = self._filter.value
        lines = watch_figures.filter_lines(lines, words)
        if self._group != LINKS:
            lines = watch_figures.grouped(lines, self._group)
        if self._only_short:
            lines = [line for line in lines if line[SHORT]]
        order = self._order if self._group == LINKS or self._order not in NAMES else self._group
        self._lines = watch_figures.ordered(lines, order, reverse=self._reverse)
        self._fill(table)
        keys = [_key(line) for line in self._lines]
        if keys:
            table.move_cursor(row=keys.index(chosen) if chosen in keys else 0, scroll=False)
            table.scroll_to(y=at, animate=False)

    def _fill(self, table: DataTable[Text]) -> None:
        """Write the lines into the table, with the columns that fit."""
        absent = {name for name in NAMES if name != self._group} | {"why"} if self._group != LINKS else {"links"}
        rises = self._order in watch_figures.RISING
        marks = {self._order: "▴" if rises != self._reverse else "▾"}
        columns = [
            replace(column, head=column.head + marks.get(column.key, " "))
            for column in COLUMNS
            if column.key not in absent
        ]
        if self._group != LINKS:  # a group of links has many holds, with their numbers
            columns = [replace(c, whole=False, name=True) if c.key == "held" else c for c in columns]
        width = self.size.width - 1  # of the scroll bar
        steps = 8 if width < 100 else 12 if width < 140 else watch_figures.STEPS
        cells = {column.key: [_plain(column, line, steps) for line in self._lines] for column in columns}
        room = tables.fitted(columns, cells, width - 2, (NAME,))
        table.clear(columns=True)
        for column, given in room.items():
            label = Text(column.head.rstrip(), justify="right" if column.right else "left")
            table.add_column(label, width=given, key=column.key)
        for number, line in enumerate(self._lines):
            table.add_row(
                *(_cell(column, line, cells[column.key][number], given) for column, given in room.items()),
                key=_key(line),
            )

    def _chosen(self) -> str | None:
        row = self._table.cursor_row
        return _key(self._lines[row]) if 0 <= row < len(self._lines) else None

    def on_data_table_row_highlighted(self, _event: DataTable.RowHighlighted) -> None:
        """Show all of the link under the cursor."""
        self._show_chosen()

    def _show_chosen(self) -> None:
        row = self._table.cursor_row
        width = self.size.width - 2
        lines = [Text(tables.cut(selection, width, end=True), "dim")] if (selection := self._selection()) else []
        if 0 <= row < len(self._lines):
            line = self._lines[row]
            ends = " -> ".join(filter(None, (line["source"], line["destination"])))
            name = " ".join(filter(None, (line["scenario"], ends)))
            sizes = ", ".join(f"{name} {_size(line[name])}" for name in ("due", "injected", "moved"))
            held = f"held by {line['held']} {line['why']}" if line["held"] else "not held"
            lines.append(Text(tables.cut(f"{name}: target {units.format_rate(line['target'])}", width)))
            lines.append(Text(tables.cut(f"{sizes}; {held}", width, end=True)))
        self._details.update(Text("\n").join(lines or [Text("no links")]))

    def _selection(self) -> str:
        """Return which lines are shown, and how they are sorted, if a person has chosen that."""
        words = self._filter.value
        chosen = (
            f"with {words!r}" if words else "",
            "short only" if self._only_short else "",
            f"by {self._order}" if self._order != SHORT else "",
            "reversed" if self._reverse else "",
        )
        if not any(chosen):
            return ""
        return ", ".join(filter(None, (units.counted(len(self._lines), f"{self._group}s"), *chosen)))


def _key(line: Line) -> str:
    return "\x1f".join(line[name] for name in NAMES)


def _plain(column: tables.Column, line: Line, steps: int) -> str:
    """Return what stands in a cell."""
    if column.key == "ratio":
        return live_lines.ratio(line).plain
    if column.key == "trend":
        return first_lines.trend(line["trend"], steps)
    if column.key == "held":
        return f"! {line['held']}" if line[SHORT] else line["held"]
    return column.show(line[column.key])


def _cell(column: tables.Column, line: Line, text: str, width: int) -> Text:
    """Return a cell as it is shown."""
    if column.key == "ratio":
        shown = live_lines.ratio(line)
    elif column.key == "held":
        shown = Text(tables.cut(text, width, end=True), "bold yellow" if line[SHORT] else "")
    elif column.key == "trend":
        shown = Text(text, "cyan")
    else:
        shown = Text(tables.cut(text, width, end=column.key == "why"))
    shown.justify = "right" if column.right else "left"
    return shown
