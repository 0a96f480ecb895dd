"""The terminal view, with Textual: memory, a live table of objects with search and order, the latest event."""

from __future__ import annotations

from typing import ClassVar

from rich.cells import cell_len
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.coordinate import Coordinate
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static

from entrepot_ui.terminal.lines import (
    HEADER,
    SORTS,
    cells_of,
    detail_lines,
    event_line,
    memory_bar,
    memory_line,
    state_line,
)
from entrepot_ui.watch.rows import ObjectRow
from entrepot_ui.watch.snapshot import MAX_QUERY, Query
from entrepot_ui.watch.watcher import StoreWatcher

MAX_SHOWN = 500  # objects that the table holds; a search finds the others


class Detail(ModalScreen[None]):
    """One object.

    Args:
        lines: what is shown.
    """

    DEFAULT_CSS = """
    Detail { align: center middle; }
    Detail VerticalScroll { width: 90%; height: auto; max-height: 80%; border: ascii $primary; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter,q", "dismiss", "Close")]

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self._lines = lines

    def compose(self) -> ComposeResult:
        """Show the lines."""
        with VerticalScroll():
            yield Static(Text("\n".join(self._lines)), id="detail")


class TopApp(App[None]):
    """Shows what a watcher knows.

    Args:
        watcher: of the store; whoever made it closes it.
        refresh: seconds between two looks at it.
    """

    ENABLE_COMMAND_PALETTE = False
    TITLE = "entrepot top"
    CSS = """
    #state, #bar, #memory, #count, #event { height: auto; padding: 0 1; }
    #state.lost { background: $error; color: $text; }
    #search { display: none; border: none; height: 1; }
    #search.shown { display: block; }
    DataTable { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "search", "Search", key_display="/"),
        Binding("s", "sort", "Sort by next column"),
        Binding("r", "reverse", "Reverse"),
        Binding("escape", "clear", "All", show=False),
        Binding("q", "quit", "Quit"),
    ]

    def __init__(self, watcher: StoreWatcher, refresh: float = 1.0) -> None:
        super().__init__(ansi_color=True)
        self._watcher = watcher
        self._seconds = refresh
        self._order = Query()
        self._shown: list[ObjectRow] = []
        self._shown_for: tuple[float, Query] | None = None
        self._cells: list[tuple[str, ...]] = []
        self._widths = [0] * len(HEADER)  # the widest cell of each column since the table was filled
        self._texts: dict[str, str] = {}

    def compose(self) -> ComposeResult:
        """Lay out the lines and the table."""
        yield Static(id="state", markup=False)
        yield Static(id="bar", markup=False)
        yield Static(id="memory", markup=False)
        yield Static(id="count", markup=False)
        yield Input(placeholder="search: ID, name, type, session, set, state", id="search", max_length=MAX_QUERY)
        yield DataTable[Text](id="objects", cursor_type="row", zebra_stripes=False)
        yield Static(id="event", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Begin to look."""
        self._set_columns()
        self._table.focus()
        self.set_interval(self._seconds, self.look)
        self.look()

    @property
    def _table(self) -> DataTable[Text]:
        return self.query_one("#objects", DataTable)

    def look(self) -> None:
        """Show what is known now; what has not changed is not drawn again."""
        if len(self.screen_stack) > 1 or not self.query("#state"):
            return  # an object is being looked at, or the view is being taken down
        view = self._watcher.view()
        self._say("state", state_line(view))
        self.query_one("#state").set_class(view.state == "lost", "lost")
        self._say("bar", memory_bar(view, self.size.width - 2))
        self._say("memory", memory_line(view))
        self._say("event", event_line(self._watcher.events.after(0)))
        asked = (view.snapshot.taken_at, self._order)
        if asked != self._shown_for:
            matches = view.snapshot.matching(self._order)
            self._shown_for, self._shown = asked, matches[:MAX_SHOWN]
            shown = f", of which {MAX_SHOWN} are shown" if len(matches) > MAX_SHOWN else ""
            search = f" match {self._order.search!r}" if self._order.search else ""
            self._say("count", f"{len(matches)} of {len(view.snapshot.rows)} objects{search}{shown}")
        self._fill(self._shown)

    def _say(self, name: str, text: str) -> None:
        if self._texts.get(name) != text:
            # The screen is laid out anew only where the text may take another number of lines.
            self.query_one(f"#{name}", Static).update(Text(text), layout=len(text) != len(self._texts.get(name, "")))
            self._texts[name] = text

    def _set_columns(self) -> None:
        self._table.clear(columns=True)
        self._cells = []
        for title, key in zip(HEADER, SORTS, strict=True):
            mark = ("v" if self._order.descending else "^") if key == self._order.sort else " "
            self._table.add_column(Text(f"{title} {mark}"), key=key)

    def _fill(self, rows: list[ObjectRow]) -> None:
        table, row = self._table, self._table.cursor_row
        if len(rows) == len(self._cells):
            # Only the rows in view: ages change all the time, and others are drawn when somebody scrolls to them.
            top = table.scroll_offset.y
            for index in range(max(0, top - 1), min(len(rows), top + table.size.height + 1)):
                self._update_row(index, cells_of(rows[index]))
        else:
            table.clear()
            self._cells = [cells_of(each) for each in rows]
            self._widths = [max(map(cell_len, column)) for column in zip(*self._cells, strict=True)] or self._widths
            for line in self._cells:
                table.add_row(*(Text(text) for text in line))
            table.move_cursor(row=max(0, min(row, len(rows) - 1)), scroll=True)

    def _update_row(self, index: int, cells: tuple[str, ...]) -> None:
        old = self._cells[index]
        for column, text in enumerate(cells):
            if text != old[column]:
                # For each column that may have become wider, Textual measures all of its cells.
                wider = (width := cell_len(text)) > self._widths[column]
                self._widths[column] = max(width, self._widths[column])
                self._table.update_cell_at(Coordinate(index, column), Text(text), update_width=wider)
        self._cells[index] = cells

    def _ask(self, order: Query) -> None:
        self._order = order
        self.look()

    def action_search(self) -> None:
        """Begin to type a search."""
        search = self.query_one("#search", Input)
        search.add_class("shown")
        search.focus()

    def action_clear(self) -> None:
        """Show all objects again."""
        search = self.query_one("#search", Input)
        search.value = ""
        search.remove_class("shown")
        self._table.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Search while somebody types."""
        self._ask(Query(event.value, self._order.sort, self._order.descending))

    def on_input_submitted(self) -> None:
        """Go to the table, with the search as it is."""
        self._table.focus()

    def action_sort(self) -> None:
        """Sort by the next column."""
        self._sort(SORTS[(SORTS.index(self._order.sort) + 1) % len(SORTS)])

    def action_reverse(self) -> None:
        """Sort the other way round."""
        self._sort(self._order.sort)

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        """Sort by a column that was clicked."""
        self._sort(str(event.column_key.value))

    def _sort(self, key: str) -> None:
        descending = not self._order.descending if key == self._order.sort else key in ("nbytes", "created")
        self._order = Query(self._order.search, key, descending)
        self._set_columns()
        self.look()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Show an object."""
        if event.cursor_row >= len(self._shown):
            return
        row = self._shown[event.cursor_row]
        details_read = self._watcher.view().details
        details = next((each for each in details_read.objects if each["id"] == row.id), None)
        pins = [pin for pin in details_read.pins if pin["id"] == row.id]
        self.push_screen(Detail(detail_lines(details, row, pins)))
