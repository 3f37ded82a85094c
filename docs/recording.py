"""The README's recording of a terminal: ``python docs/recording.py [FILE]``, with tmux.

What is typed is typed by this program; what is shown, and how long it takes, is as it ran.
"""

import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from html import escape
from itertools import pairwise
from pathlib import Path

from rich.style import Style
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text

ASSETS = Path(__file__).parent / "assets"
NOTES = {
    "staging.md": "# The staging server\n\nThe staging server runs on port 8443. Deployments "
    "happen every Tuesday at 10:00, and Priya Raman\napproves them.\n",
    "office.md": "# The office\n\nThe office is on the third floor of the old brewery. Tom "
    "waters the plants on Mondays.\n",
}
COMMANDS = (
    "selfcorrect-rag index notes/",
    'selfcorrect-rag ask "Who approves the deployments?"',
    'selfcorrect-rag ask "How much is the rent of the office?"',
)
COLUMNS, ROWS = 88, 34
LETTER, LINE, EDGE = 8.43, 19, 16
"""Width of a letter, height of a line, and the border, in pixels."""
TYPING, LOOKING, READING = 0.04, 0.08, 3.0
"""Seconds for a letter that is typed, between two looks at the screen, and to read an answer."""
PROMPT = "$"

Shown = list[tuple[float, list[str]]]
"""Seconds since the beginning, and the rows from then on, with their escape sequences."""


def record(folder: Path) -> Shown:
    """Type the commands in a terminal, and look at its screen until they are done."""
    (folder / "notes").mkdir()
    for name, text in NOTES.items():
        (folder / "notes" / name).write_text(text, encoding="utf-8")
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    shell = f"env -i HOME={folder} PATH={path} TERM=xterm-256color LANG=C.UTF-8 PS1='{PROMPT} ' sh"
    tmux = ("tmux", "-L", f"recording-{time.time_ns()}")
    size = ("-x", str(COLUMNS), "-y", str(ROWS), "-c", str(folder))
    subprocess.run([*tmux, "-f", "/dev/null", "new-session", "-d", *size, shell], check=True)
    try:
        return list(_watched(tmux))
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)


def _watched(tmux: tuple[str, ...]) -> Iterator[tuple[float, list[str]]]:
    began, before = time.monotonic(), [""]

    def look() -> Iterator[tuple[float, list[str]]]:
        nonlocal before
        screen = _rows(tmux, "-e")
        if screen != before:
            before = screen
            yield time.monotonic() - began, screen

    def wait(seconds: float) -> Iterator[tuple[float, list[str]]]:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(LOOKING)
            yield from look()

    def waits() -> bool:
        """Whether the shell asks for a command."""
        return [row for row in _rows(tmux) if row.strip()][-1:] == [PROMPT]

    for command in COMMANDS:
        while not waits():
            time.sleep(LOOKING)
        yield from wait(1.0)
        for letter in command:
            subprocess.run([*tmux, "send-keys", "-l", letter], check=True)
            yield from wait(TYPING)
        subprocess.run([*tmux, "send-keys", "Enter"], check=True)
        while not waits():
            yield from wait(LOOKING)
        yield from wait(READING)


def _rows(tmux: tuple[str, ...], *options: str) -> list[str]:
    looked = [*tmux, "capture-pane", "-p", *options]
    return subprocess.run(looked, check=True, capture_output=True, text=True).stdout.split("\n")


def as_svg(shown: Shown) -> str:
    """An SVG that plays the recording again and again, without a script.

    Each row that changes is drawn once for each thing it showed, and is visible for as long as it
    did. Where nothing may move, the last screen is shown.
    """
    end = shown[-1][0] + READING
    versions: dict[tuple[int, str], list[tuple[float, float]]] = defaultdict(list)
    for (since, rows), until in zip(shown, [*(at for at, _ in shown[1:]), end], strict=True):
        for row, content in enumerate(rows):
            if content.strip():
                times = versions[row, content]
                if times and times[-1][1] == since:
                    since_first = times.pop()[0]
                    times.append((since_first, until))
                else:
                    times.append((since, until))
    drawn, moves = [], []
    for number, ((row, content), times) in enumerate(versions.items()):
        last = " last" if times[-1][1] == end else ""
        y = EDGE + LINE * (row + 0.75)
        text = f'<text class="v{last}" id="v{number}" x="{EDGE}" y="{y:g}">{_spans(content)}</text>'
        drawn.append(text)
        steps = "".join(
            f"{100 * since / end:.2f}%{{visibility:visible}}"
            + (f"{100 * until / end:.2f}%{{visibility:hidden}}" if until < end else "")
            for since, until in times
        )
        moves.append(
            f"@keyframes k{number}{{0%{{visibility:hidden}}{steps}}}"
            f"#v{number}{{animation:k{number} {end:.2f}s step-end infinite}}"
        )
    ink, paper = SVG_EXPORT_THEME.foreground_color.hex, SVG_EXPORT_THEME.background_color.hex
    width, height = 2 * EDGE + COLUMNS * LETTER, 2 * EDGE + ROWS * LINE
    name = f"A terminal: {'; '.join(COMMANDS)}"
    style = (
        "text{font:14px ui-monospace,'SF Mono',Menlo,Consolas,'DejaVu Sans Mono',monospace;"
        f"fill:{ink};white-space:pre}}"
        ".v{visibility:hidden}.last{visibility:visible}"
        f"@media not (prefers-reduced-motion: reduce){{{''.join(moves)}}}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" role="img" aria-label="{escape(name)}">\n'
        f"<style>{style}</style>\n"
        f'<rect width="100%" height="100%" rx="8" fill="{paper}"/>\n'
        + "\n".join(drawn)
        + "\n</svg>\n"
    )


def _spans(row: str) -> str:
    """A row's text with its colours; a letter's place is fixed, whatever the viewer's font."""
    text, parts = Text.from_ansi(row.rstrip()), []
    for start, piece in _pieces(text):
        style = piece.spans[0].style if piece.spans else Style()
        known = style if isinstance(style, Style) else Style.parse(style)
        looks = ""
        if known.color:
            looks += f' fill="{known.color.get_truecolor(SVG_EXPORT_THEME).hex}"'
        looks += ' font-weight="bold"' * bool(known.bold) + ' opacity="0.6"' * bool(known.dim)
        place = f'x="{EDGE + LETTER * start:g}" textLength="{LETTER * len(piece.plain):g}"'
        parts.append(f"<tspan {place}{looks}>{escape(piece.plain)}</tspan>")
    return "".join(parts)


def _pieces(text: Text) -> Iterator[tuple[int, Text]]:
    """The parts of a row between changes of style, with where they begin."""
    edges = sorted({0, len(text), *(edge for s in text.spans for edge in (s.start, s.end))})
    for start, end in pairwise(edges):
        yield start, text[start:end]


if __name__ == "__main__":
    to = Path(sys.argv[1]) if sys.argv[1:] else ASSETS / "terminal.svg"
    with tempfile.TemporaryDirectory() as folder:
        to.write_text(as_svg(record(Path(folder))), encoding="utf-8")
