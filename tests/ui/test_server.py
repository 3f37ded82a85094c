"""The server over HTTP, as scripts and browsers without scripts use it."""

import json
import os
import re
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from selfcorrect_rag.ui import playing
from selfcorrect_rag.ui.app import make_app
from selfcorrect_rag.ui.run_page import fragment
from selfcorrect_rag.ui.store import Run, RunStore
from tests.ui.conftest import LEE, ROOT, ask, paused

HOSTILE = '<script>alert(1)</script> & "quotes" \u202e <img src=x onerror=alert(1)>'


def events(client: httpx.Client, key: str, since: int = 0) -> list[tuple[int, str, Any]]:
    """All that happens in a run from one entry on, up to its end."""
    found: list[tuple[int, str, Any]] = []
    with client.stream(
        "GET", f"/runs/{key}/events", headers={"last-event-id": str(since)}
    ) as stream:
        number, kind = 0, ""
        for line in stream.iter_lines():
            name, _, value = line.partition(": ")
            if name == "id":
                number = int(value)
            elif name == "event":
                kind = value
            elif name == "data":
                found.append((number, kind, json.loads(value)))
    return found


def start(client: httpx.Client, **form: str) -> str:
    answer = client.post("/ask", data=form, headers={"accept": "application/json"})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def test_a_plain_form_waits_for_its_run(client: httpx.Client) -> None:
    key = ask(client, LEE, "self_crag")
    page = client.get(f"/runs/{key}")
    assert page.status_code == 200
    assert "Monroeville, Alabama" in page.text
    assert "Why this answer" in page.text
    saved = client.get(f"/runs/{key}.json").json()
    assert saved["answer"] == "Monroeville, Alabama"
    assert saved["made"]["graph"] == "self-crag"
    listed = client.get("/runs.json").json()["runs"]
    assert listed[0]["id"] == key
    assert LEE in client.get("/runs").text


def test_its_json_is_what_ask_again_takes(client: httpx.Client, folder: Path) -> None:
    key = ask(client, LEE, "self_crag", passages="7", weight_isuse="0.25")
    (folder / "saved.json").write_text(client.get(f"/runs/{key}.json").text, encoding="utf-8")
    command = [sys.executable, "-m", "selfcorrect_rag.cli", "ask", "--again", "saved.json"]
    ran = subprocess.run(
        [*command, "--json"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    again, first = json.loads(ran.stdout), client.get(f"/runs/{key}.json").json()
    assert again["answer"] == first["answer"]
    assert again["made"]["settings"] == first["made"]["settings"]
    assert first["made"]["settings"]["passages"] == 7


def test_steps_and_tokens_come_as_they_happen(client: httpx.Client) -> None:
    key = start(client, question="Who discovered penicillin?", graph="self_rag")
    told = events(client, key)
    kinds = [kind for _, kind, _ in told]
    assert kinds[-1] == "over"
    begun = {data["id"]: data["words"] for _, kind, data in told if kind == "begin"}
    assert "Retrieving" in begun.values()
    ended = {data["id"] for _, kind, data in told if kind == "end"}
    assert ended == begun.keys() | ended
    said = " ".join(data["html"] for _, kind, data in told if kind == "said")
    assert "It wants evidence: P(retrieve)" in said
    text = "".join(data["text"] for _, kind, data in told if kind == "text")
    assert text.startswith("Alexander Fleming")
    assert events(client, key)[-1][1] == "over"  # also for who comes late


def test_runs_at_once_never_mix(client: httpx.Client) -> None:
    asked = {"Who discovered penicillin?": "Alexander Fleming", "Who painted Guernica?": "Picasso"}
    ids = [(start(client, question=q, graph="self_rag"), a) for q, a in [*asked.items()] * 3]
    told: dict[str, list[Any]] = {}
    threads = [
        threading.Thread(target=lambda key=key: told.setdefault(key, events(client, key)))
        for key, _ in ids
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for key, answer in ids:
        text = "".join(data["text"] for _, kind, data in told[key] if kind == "text")
        assert answer in text
        assert client.get(f"/runs/{key}.json").json()["answer"] in text
        others = set(asked.values()) - {answer}
        assert not any(other in text for other in others)


@pytest.mark.parametrize(
    ("reply", "query", "failure"),
    [
        ({"approve": "yes", "query": "Harper Lee birthplace"}, "Harper Lee birthplace", ""),
        ({"approve": "no", "query": "Harper Lee"}, "", "the search was not approved"),
        ({}, "", "the search was not approved"),
    ],
)
def test_a_search_waits_for_a_person(
    client: httpx.Client, reply: dict[str, str], query: str, failure: str
) -> None:
    key = paused(client)
    assert client.post(f"/runs/{key}/reply", data=reply).status_code == 303
    result = client.get(f"/runs/{key}.json").json()
    assert result["web_failure"] == failure
    if query:
        assert result["web_query"] == query


def test_an_empty_query_is_no_refusal(client: httpx.Client) -> None:
    key = paused(client)
    refused = client.post(f"/runs/{key}/reply", data={"approve": "yes", "query": "  "})
    assert refused.status_code == 422
    assert "the query is empty" in refused.text
    assert f"/runs/{key}/reply" in client.get(f"/runs/{key}").text  # it still waits
    assert client.post(f"/runs/{key}/reply", data={"approve": "no"}).status_code == 303
    assert client.get(f"/runs/{key}.json").json()["web_failure"] == "the search was not approved"


def test_a_run_is_stopped_and_what_was_done_is_kept(client: httpx.Client) -> None:
    key = paused(client)
    assert client.post(f"/runs/{key}/stop").status_code == 303
    run = next(r for r in client.get("/runs.json").json()["runs"] if r["id"] == key)
    assert run["state"] == "stopped"
    result = client.get(f"/runs/{key}.json").json()
    assert result["passages"]
    assert "stopped by hand" in result["notes"][-1]
    assert client.get(f"/runs/{key}").status_code == 200


class Nothing:
    """In place of indexes and models: whoever wants anything of it is caught."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} is asked for")


def test_weighing_differently_asks_no_model(client: httpx.Client, tmp_path: Path) -> None:
    key = ask(client, "Who discovered penicillin?")
    result = client.get(f"/runs/{key}.json").json()
    store = RunStore(tmp_path / "runs.sqlite")
    store.add(Run(key, 0, result["question"], "self_rag", "i", "done", 1, "", result=result))
    nothing: Any = Nothing()
    page = TestClient(make_app(nothing, store))
    plain = page.get(f"/runs/{key}/weigh.json", params={"played": "1"}).json()
    assert plain == {"result": result, "unknown": []}
    knobs = {"played": "1", "hard_constraints": "[Utility:5]"}
    other = page.get(f"/runs/{key}/weigh.json", params=knobs).json()
    assert other["result"]["answer"] == "The documents do not say."
    part = page.get(f"/runs/{key}/weigh", params=knobs)
    assert "<del>Alexander Fleming</del>" in part.text
    assert part.headers["x-told"] == "3 changes, 0 unknown"
    whole = page.get(f"/runs/{key}", params=knobs)  # a link for every state
    assert "<del>Alexander Fleming</del>" in whole.text
    link = f'href="{part.headers["x-edit"]}"'.replace("&", "&amp;")
    assert link in whole.text  # the form with these
    assert "hard_constraints=%5BUtility%3A5%5D" in link
    assert store.count() == 1


def test_what_cannot_be_weighed_is_refused(client: httpx.Client) -> None:
    key = ask(client, "Who discovered penicillin?")
    for knobs, said in (
        ({"weight_isupp": "2"}, "did you mean weight_issup?"),
        ({"passages": "9"}, "only a new run can tell"),
    ):
        refused = client.get(f"/runs/{key}/weigh.json", params=knobs)
        assert refused.status_code == 422
        assert said in refused.json()["error"]


def test_a_slider_repeats_no_work(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    key = ask(client, "Who discovered penicillin?")
    result = client.get(f"/runs/{key}.json").json()
    run = Run(key, 0, result["question"], "self_rag", "i", "done", 1, "", result=result)
    done: list[str] = []
    for name in ("is_faithful", "differences"):
        work = getattr(playing, name)

        def counted(*given: Any, name: str = name, work: Any = work) -> Any:
            done.append(name)
            return work(*given)

        monkeypatch.setattr(playing, name, counted)
    for weight in ("0.1", "0.2", "0.3"):
        shown = playing.play(replace(run), {"weight_isrel": [weight]})  # as read anew
        assert shown
        assert fragment(run, shown)
        assert shown.changes
    assert sorted(done) == ["differences"] * 3 + ["is_faithful"]


@pytest.mark.parametrize("knobs", [{"weight_isrel": "many"}, {"weight_isrel": "-1"}])
def test_a_bad_weight_is_one_line(client: httpx.Client, knobs: dict[str, str]) -> None:
    key = ask(client, "Who discovered penicillin?")
    refused = client.get(f"/runs/{key}/weigh", params=knobs)
    assert refused.status_code == 422
    assert "Weight of ISREL" in refused.json()["error"]
    page = client.get(f"/runs/{key}", params=knobs)
    assert page.status_code == 422
    assert "Weight of ISREL" in page.text
    assert "Alexander Fleming" in page.text


def test_runs_are_marked_and_exported(client: httpx.Client) -> None:
    key = ask(client, "Who painted Guernica?")
    mark = {"mark": "wrong", "answers": "Pablo Picasso\nPicasso\n", "note": "a painter"}
    assert client.post(f"/runs/{key}/mark", data=mark).status_code == 303
    rows = [json.loads(line) for line in client.get("/export.jsonl").text.splitlines()]
    row = next(row for row in rows if row["question"] == "Who painted Guernica?")
    assert row["answers"] == ["Pablo Picasso", "Picasso"]
    found = client.get("/runs.json", params={"q": "painter", "mark": "wrong"}).json()["runs"]
    assert [run["id"] for run in found] == [key]
    assert client.post(f"/runs/{key}/mark", data={"mark": "odd"}).status_code == 422
    assert client.post(f"/runs/{key}/delete").status_code == 303
    assert client.get(f"/runs/{key}").status_code == 404


def test_two_runs_are_compared(client: httpx.Client) -> None:
    a, b = ask(client, LEE, "self_rag"), ask(client, LEE, "crag", passages="3")
    page = client.get("/compare", params={"a": a, "b": b}).text
    assert "What differs" in page
    differs = client.get("/compare.json", params={"a": a, "b": b}).json()["differs"]
    assert differs["Passages"] == ["5", "3"]
    assert differs["Graph"] == ["Self-RAG", "CRAG"]
    assert differs["Search"][1]
    assert client.get("/compare", params={"a": a}).status_code == 404
    instruct = ask(client, LEE, "instruct_rag", passages="3")
    differs = client.get("/compare.json", params={"a": a, "b": instruct}).json()["differs"]
    assert differs["Passages"] == ["5", "3"]
    assert "Mode" not in differs  # of InstructRAG it is another thing
    page = client.get(f"/runs/{instruct}").text
    assert "InstructRAG has no scores to weigh" in page
    assert "Run again with these" not in page  # there are none


def test_a_link_fills_the_form_in(client: httpx.Client) -> None:
    link = {"graph": "self_crag", "question": HOSTILE, "passages": "8", "refine": "off"}
    page = client.get("/", params=link).text
    assert 'name="self_crag.passages" aria-describedby="knob-self_crag.passages-help"' in page
    assert 'value="8"' in page
    assert "<script>alert" not in page
    assert "<img src=x" not in page
    bad = client.get("/", params={"graph": "crag", "upper": "9"})
    assert "less than or equal to 1" in bad.text
    assert client.get("/", params={"graph": "none"}).status_code == 404


def test_hostile_text_stays_text(client: httpx.Client) -> None:
    key = ask(client, HOSTILE)
    for path in ("/", "/runs", f"/runs/{key}", f"/compare?a={key}&b={key}", f"/runs/{key}.html"):
        page = client.get(path).text
        assert "<script>alert" not in page
        assert "<img src=x" not in page


@pytest.mark.parametrize(
    "form",
    [
        {"question": "  "},
        {"question": "x" * 8_001},
        {"question": "Who?", "graph": "odd"},
        {"question": "Who?", "index": "/etc"},
        {"question": "Who?", "self_rag.passages": "0"},
        {"question": "Who?", "self_rag.passages": "many"},
        {"question": "Who?", "self_rag.hard_constraints": "[Odd]"},
        {"question": "Who?", "self_rag.passagez": "7"},
        {"question": "Who?", "passagez": "7"},
        {"question": "Who?", "upper": "0.5"},  # CRAG's
        {"question": "Who?", "closed_set": "perhaps"},
        {"question": "Who?", "self-ragg.passages": "7"},
        {"question": "Who?", "store": "os:getcwd"},
        {"question": "Who?", "self_rag.store": "os:getcwd"},
    ],
)
def test_what_cannot_be_asked_is_refused_on_one_line(
    client: httpx.Client, form: dict[str, str]
) -> None:
    given = {"graph": "self_rag", **form}
    refused = client.post("/ask", data=given, headers={"accept": "application/json"})
    assert refused.status_code == 422
    error = refused.json()["error"]
    assert error
    assert "\n" not in error
    assert client.post("/ask", data=given).status_code == 422


def test_a_refusal_says_what_was_meant(client: httpx.Client) -> None:
    form = {"question": "Who?", "graph": "self_rag", "passagez": "7"}
    refused = client.post("/ask", data=form, headers={"accept": "application/json"}).json()
    assert refused["knob"] == "passagez"
    assert "did you mean passages?" in refused["error"]
    form = {"question": "Who?", "graph": "sef-rag"}
    refused = client.post("/ask", data=form, headers={"accept": "application/json"}).json()
    assert "there are self_rag, crag" in refused["error"]


@pytest.mark.parametrize(
    "form",
    [
        {"graph": "self-crag", "passages": "7", "refine": "false"},
        {"graph": "self_crag", "self_crag.passages": "7", "self_crag.refine": "off"},
        {"graph": "self-crag", "self-crag.passages": "7", "refine": "off", "crag.passages": "9"},
    ],
)
def test_knobs_are_named_as_in_links_and_as_in_forms(
    client: httpx.Client, form: dict[str, str]
) -> None:
    key = start(client, question="Who painted Guernica?", **form)
    events(client, key)
    made = client.get(f"/runs/{key}.json").json()["made"]
    assert made["graph"] == "self-crag"
    assert made["settings"]["passages"] == 7
    assert made["settings"]["refine"] is False
    assert client.get("/runs.json?graph=self-crag").json()["runs"][0]["id"] == key
    assert client.get("/", params=form).status_code == 200


def test_the_commands_of_the_page_work_as_they_stand(client: httpx.Client) -> None:
    page = (ROOT / "docs" / "ui.md").read_text(encoding="utf-8")
    [commands] = [c for c in re.findall("```bash\n(.*?)```", page, re.DOTALL) if "curl" in c]
    commands = commands.replace("http://127.0.0.1:8765", str(client.base_url).rstrip("/"))
    told = [
        json.loads(subprocess.run(["bash", "-c", c], capture_output=True, check=True).stdout)
        for c in commands.replace("\\\n", " ").splitlines()
    ]
    events(client, told[0]["id"])
    made = client.get(f"/runs/{told[0]['id']}.json").json()["made"]
    assert made["graph"] == "self-crag"
    assert made["settings"]["passages"] == 8
    assert "runs" in told[1]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://localhost:1"}, 403),  # another server of this machine
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "same-origin"}, 422),
        ({}, 422),
    ],
)
def test_other_sites_may_not_post(
    client: httpx.Client, headers: dict[str, str], status: int
) -> None:
    assert client.post("/ask", data={"question": ""}, headers=headers).status_code == status


def test_its_own_pages_may_post(client: httpx.Client) -> None:
    origin = str(client.base_url).rstrip("/")
    refused = client.post("/ask", data={"question": ""}, headers={"origin": origin})
    assert refused.status_code == 422


def test_a_body_is_bounded(client: httpx.Client) -> None:
    def endless() -> Any:
        for _ in range(40):
            yield b"question=" + b"x" * 50_000

    assert client.post("/ask", content=b"x" * 1_100_000).status_code == 413
    assert client.post("/ask", content=endless()).status_code == 413


def test_every_answer_is_guarded(client: httpx.Client) -> None:
    key = ask(client, "Who painted Guernica?")
    for path in ("/", "/runs", f"/runs/{key}", "/static/ui.js", "/nowhere", f"/runs/{key}.json"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'")
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
    file = client.get(f"/runs/{key}.html").headers["content-security-policy"]
    assert "script-src" not in file
    assert client.get("/static/../app.py").status_code == 404
    assert client.get("/static/app.py").status_code == 404
    assert client.delete("/runs").status_code == 405


def test_every_view_has_a_json_twin(client: httpx.Client) -> None:
    found = client.get("/graphs.json").json()
    assert set(found["graphs"]) == {"self_rag", "crag", "self_crag", "instruct_rag"}
    assert found["indexes"] == ["the demo corpus"]
    assert client.get("/runs/nobody.json").json() == {
        "error": "no such run: it was deleted, or it was never there"
    }
