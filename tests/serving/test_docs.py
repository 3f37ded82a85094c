"""docs/studio.md works as written, and names every variable and event."""

import re
from pathlib import Path
from typing import get_args

from selfcorrect_rag.events import Event
from selfcorrect_rag.serving.config import ServingConfig, option_name
from tests.serving.conftest import Server
from tests.test_streams import build

TEXT = (Path(__file__).parents[2] / "docs" / "studio.md").read_text(encoding="utf-8")


def test_the_python_runs_against_the_server(server: Server) -> None:
    names: dict[str, object] = {"graph": build("self_rag")}
    for block in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        source = block.replace("http://127.0.0.1:2024", server.url)
        exec(compile(source, "studio.md", "exec"), names)
    assert names["result"]["answer"].startswith("Segment 0")  # type: ignore[index]
    strict, again = names["strict"], names["again"]
    assert "__interrupt__" in names["paused"]  # type: ignore[operator]
    assert names["refused"]["web_failure"] == "the search was not approved"  # type: ignore[index]
    assert names["refused"]["web_results"] == []  # type: ignore[index]
    assert strict["action"] != "correct"  # type: ignore[index]
    assert again["passages"][0]["metadata"]["title"] == "Novels"  # type: ignore[index]


def test_every_option_is_in_the_table() -> None:
    for name in ServingConfig.model_fields:
        assert f"`{option_name(name)}`" in TEXT


def test_every_event_and_its_fields_are_in_the_table() -> None:
    for kind in get_args(Event):
        rows = [
            next(line for line in TEXT.splitlines() if line.startswith("|") and f"`{name}`" in line)
            for name in get_args(kind.__annotations__["event"])
        ]
        for field in kind.__annotations__:
            assert field == "event" or all(f"`{field}`" in row for row in rows)
