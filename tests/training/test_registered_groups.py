"""Groups of reflection tokens that a user registers are labelled and trained like the paper's."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from selfcorrect_rag.errors import BadRun
from selfcorrect_rag.models import TransformersReflectionLLM
from selfcorrect_rag.models.critic import Critic
from selfcorrect_rag.prompts.critique import Instance
from selfcorrect_rag.reflection import ReflectionGroup, register_group, unregister_group
from selfcorrect_rag.training.critic import CriticSettings, train_critic
from selfcorrect_rag.training.critic_data import (
    CriticDataSettings,
    critic_labelling,
    read_critic_rows,
)
from selfcorrect_rag.training.generator import GeneratorSettings, train_generator
from selfcorrect_rag.training.generator_data import generator_data_cost
from selfcorrect_rag.training.generator_rows import order_faults, read_generator_rows
from tests.conftest import byte_level_tokenizer, random_model
from tests.training.generator_runs import ROWS, SETTINGS, Shelf, make
from tests.training.teacher import LABELS, Teacher
from tests.training.toy_generator import rows, toy

PLAIN = ReflectionGroup("ISPLAIN", ("[Plain]", "[Dense]"), (1, -1), "segment", instruction="Plain?")
NEAR = ReflectionGroup("ISNEAR", ("[Near]", "[Far]"), (1, 0), "passage", instruction="Near?")
KIND = ReflectionGroup("ISKIND", ("[Kind]", "[Rude]"), (1, 0), "answer", instruction="Kind?")


@pytest.fixture(autouse=True)
def _groups(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for group in (PLAIN, NEAR, KIND):
        register_group(group)
        monkeypatch.setitem(LABELS, f"{group.name}:", group.tokens)
    yield
    for group in (PLAIN, NEAR, KIND):
        unregister_group(group.name)


def test_generator_data_has_their_tokens(tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    cost = generator_data_cost(ROWS, out, SETTINGS)
    report = make(out, Teacher(essays=False), Shelf().runnable)
    labels = {name: sum(counts.values()) for name, counts in report.labels.items()}
    assert report.written == len(ROWS) == labels["utility"] == labels["ISKIND"]
    assert cost.fewest <= sum(labels.values()) <= cost.most
    made = read_generator_rows(out)
    assert not [fault for row in made for fault in order_faults(row.output)]
    count = {token: sum(row.output.count(token) for row in made) for token in ("[Far]", "[Near]")}
    assert all(count.values())
    assert sum(count.values()) == report.read == labels["ISNEAR"], "one for each passage read"
    for row in made:
        assert re.search(r"\[Utility:\d\]\[(Kind|Rude)\]$", row.output)
        segments = re.findall(r"\[No Retrieval\]|\[Retrieval\]|\[Continue to Use", row.output)
        assert len(re.findall(r"\[Plain\]|\[Dense\]", row.output)) == len(segments)
    before = out.read_bytes()
    assert make(out, Teacher(essays=False), Shelf().runnable).calls == 0
    assert out.read_bytes() == before
    unregister_group("ISKIND")
    with pytest.raises(BadRun, match=r"other settings \(groups\)"):
        make(out, Teacher(essays=False), Shelf().runnable)
    register_group(KIND)


def test_a_token_out_of_order_is_found() -> None:
    assert not order_faults("[No Retrieval]Yes.[Plain][Kind][Utility:5]")
    for wrong in ("[No Retrieval][Plain]Yes.[Utility:5]", "[No Retrieval]Yes.[Kind]No.[Utility:5]"):
        assert order_faults(wrong)


def test_a_generator_learns_them(tmp_path: Path) -> None:
    """Whether a sentence is plain can be seen from the question."""
    judged = [
        row._replace(
            output=re.sub(
                r"(?=\[Utility)",
                "[Plain]" if row.instruction.startswith("Who") else "[Dense]",
                row.output,
            )
        )
        for row in rows(60)
    ]
    settings = GeneratorSettings(
        model="toy",
        num_train_epochs=12,
        learning_rate=1e-2,
        batch_size=8,
        per_device_batch_size=4,
        max_length=160,
        held_out_ratio=0.2,
        seed=1,
    )
    report = train_generator(judged, tmp_path, settings, base=toy())
    assert report["tokens"]["added"] == 15 + 6
    held_out = report["held_out"]
    assert held_out["tokens"]["ISPLAIN"] == report["rows"]["held_out"]
    assert held_out["accuracy"]["ISPLAIN"] > 0.9 > held_out["base_rate"]["ISPLAIN"]
    assert held_out["accuracy"]["ISKIND"] is None, "no row has one"
    llm = TransformersReflectionLLM.from_pretrained(tmp_path / "generator")
    assert {"ISPLAIN", "ISNEAR", "ISKIND"} <= set(llm.groups)


def test_a_critic_learns_them(tmp_path: Path) -> None:
    instances = [
        Instance(row.instruction, segment=row.output, output=row.output, evidence="A book.")
        for row in ROWS * 3
    ]
    settings = CriticDataSettings("teacher")
    labelling = critic_labelling(
        instances, tmp_path / "labels.jsonl", settings, prompts=["ISPLAIN", "ISKIND"]
    )
    labelling.run(Teacher(essays=False))
    labels = read_critic_rows(tmp_path / "labels.jsonl")
    assert {row.token for row in labels} == {*PLAIN.tokens, *KIND.tokens}
    words = byte_level_tokenizer()
    critic = CriticSettings(
        model="toy", num_train_epochs=0.2, batch_size=4, max_length=200, per_device_batch_size=4
    )
    report = train_critic(labels, tmp_path, critic, base=(random_model(len(words), 400), words))
    assert sum(map(sum, (c.values() for c in report["test"]["confusion"]["ISPLAIN"].values())))
    made = Critic.from_pretrained(tmp_path / "critic", device="cpu")
    assert made.judge([row.critic_input for row in labels[:4]])
