"""Algorithm 3, worked by hand: what is asked, what is chosen, and what is written."""

import re
from collections.abc import Callable, Sequence
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from selfcorrect_rag.prompts.critic import CRITIQUE_PROMPTS, Instance
from selfcorrect_rag.prompts.parts import quoted
from selfcorrect_rag.reflection import CONTROL_TOKENS, TOKENS
from selfcorrect_rag.training.generator import (
    Decisions,
    GeneratorRow,
    Passage,
    augment,
    choose_passage,
)
from tests.training.toys import row

FULL, PART, NO = "[Fully supported]", "[Partially supported]", "[No support / Contradictory]"
REL, IRR = "[Relevant]", "[Irrelevant]"
YES, NONE, GO_ON = "[Retrieval]", "[No Retrieval]", "[Continue to Use Evidence]"
ONE = row("Who?", "It was her.", id="1")


class World:
    """A critic by rule and a retriever by table; both record what they are asked."""

    def __init__(
        self,
        label: Callable[[str, Instance], str],
        found: Callable[[str], Sequence[str]] = lambda query: (),
    ) -> None:
        self._label, self._found = label, found
        self.batches: list[tuple[str, list[Instance]]] = []
        self.queries: list[str] = []

    def decide(self, *rows: GeneratorRow, top_k: int = 10, seed: int = 0) -> list[Decisions]:
        return augment(rows, self._judge, self._retrieve, top_k=top_k, seed=seed)

    def asked(self, prompt: str) -> list[Instance]:
        return [case for name, batch in self.batches for case in batch if name == prompt]

    def _judge(self, prompt: str, cases: list[Instance]) -> list[str]:
        self.batches.append((prompt, cases))
        return [self._label(prompt, case) for case in cases]

    def _retrieve(self, queries: list[str]) -> list[list[Passage]]:
        self.queries += queries
        return [[Passage(n, f"text {n}") for n in self._found(q)] for q in queries]


def rule(
    retrieval: str = YES,
    more: dict[str, str] | str = YES,
    passages: dict[str, tuple[str, str]] | None = None,
    utility: str = "[Utility:5]",
) -> Callable[[str, Instance], str]:
    """Labels by the first word of the sentence, and by the title of the passage."""

    def label(prompt: str, case: Instance) -> str:
        sentence = case.segment.split()[0]
        isrel, issup = (passages or {}).get(case.evidence.split("\n")[0], ("", ""))
        return {
            "retrieval": retrieval,
            "utility": utility,
            "multi_retrieval": more if isinstance(more, str) else more.get(sentence, ""),
            "relevance": isrel,
            "groundness": issup,
        }[prompt]

    return label


def output(one: Decisions) -> str:
    return str(one["augmented"]["output"])


def shown(name: str) -> str:
    return f"[Retrieval]<paragraph>{name}\ntext {name}</paragraph>"


def test_a_row_without_retrieval_is_left_whole() -> None:
    """Official defect: a string compared with False, so that the filter never filtered."""
    world = World(rule(retrieval=NONE, utility="[Utility:2]"))
    [one] = world.decide(row("Sing!", "La la.\nLa la la.\n", "a song", id="7"))
    expected = row("Sing!", "[No Retrieval]La la.\nLa la la.\n[Utility:2]", "a song", id="7")
    assert one["augmented"] == expected.model_dump()
    assert world.queries == []


def test_the_best_retrieved_passage_that_is_relevant_and_supports() -> None:
    """By retrieval score (A.2); the official code looks for full support first."""
    judged = {"a": (IRR, FULL), "b": (REL, NO), "c": (REL, PART), "d": (REL, FULL)}
    world = World(rule(passages=judged), lambda query: "abcd")
    [one] = world.decide(ONE)
    assert output(one) == shown("c") + "[Relevant]It was her.[Partially supported][Utility:5]"
    asked = [case.evidence[0] for case in world.asked("groundness")]
    assert asked == ["b", "c", "d"], "not of an irrelevant passage (3.2.2)"


def test_a_long_output_worked_by_hand() -> None:
    more = {"One": YES, "Two": NONE, "Three": YES, "Four": YES}
    found = {"One": "ab", "Three": "c", "Four": "ba"}
    judged = {"a": (REL, FULL), "b": (REL, PART), "c": (IRR, FULL)}
    world = World(
        rule(more=more, passages=judged, utility="[Utility:4]"),
        lambda query: found.get(query.split()[1], "") if query.count(".") == 1 else "a",
    )
    [one] = world.decide(row("Count!", "One is so.  Two is so.\nThree is so. Four is so."))
    assert output(one) == (
        shown("a") + "[Relevant]One is so.[Fully supported][No Retrieval]Two is so.\n"
        + shown("c") + "[Irrelevant]Three is so."
        + shown("b") + "[Relevant]Four is so.[Partially supported][Utility:4]"
    )  # fmt: skip
    assert world.queries[1:] == ["Count! One is so.", "Count! Three is so.", "Count! Four is so."]


def test_sentences_are_judged_by_the_first_passage_and_by_what_precedes() -> None:
    """Official defects: preceding sentences never passed, or printed as None; two labels of 3."""
    world = World(rule(more=NONE), lambda query: "ab")
    world.decide(row("Count!", "One is so. Two is so. Three is so.", "it"))
    asked = world.asked("multi_retrieval")
    assert [i.preceding_sentences for i in asked] == ["", "One is so. ", "One is so. Two is so. "]
    assert {i.evidence for i in asked} == {"a\ntext a"}
    prompt = CRITIQUE_PROMPTS["multi_retrieval"].prompt(asked[0])
    assert GO_ON in prompt
    assert "None" not in prompt
    assert world.queries[0] == "Count! it One is so. Two is so. Three is so."


def test_continued_evidence_has_been_read() -> None:
    """The critic saw the output's first passage; the generator must have read it too.

    Official defects: the token without a passage before it; rows that begin with it are dropped.
    """
    more = {"One": GO_ON, "Two": GO_ON, "Three": NONE, "Four": GO_ON, "Five": YES, "Six": GO_ON}
    judged = {"a": (REL, FULL), "b": (REL, PART)}
    world = World(
        rule(more=more, passages=judged),
        lambda query: "b" if query == "Count! Five is so." else "ab",
    )
    text = "One is so. Two is so. Three is so. Four is so. Five is so. Six is so."
    [one] = world.decide(row("Count!", text))
    assert output(one) == (
        shown("a") + "[Relevant]One is so.[Fully supported]"
        "[Continue to Use Evidence]Two is so.[No Retrieval]Three is so."
        "[Continue to Use Evidence]Four is so."
        + shown("b") + "[Relevant]Five is so.[Partially supported]"
        + shown("a") + "[Relevant]Six is so.[Fully supported][Utility:5]"
    )  # fmt: skip
    assert len(world.asked("relevance")) == 3, "what goes on is not judged again"


def test_a_random_passage_with_its_own_labels_if_none_supports() -> None:
    """Official defect: an index into the irrelevant ones was used as one into all."""
    labels = {"a": (REL, NO), "b": (IRR, FULL), "c": (REL, NO), "d": (IRR, FULL)}
    rows = [ONE.model_copy(update={"id": str(i)}) for i in range(40)]

    def chosen(*rows: GeneratorRow, seed: int = 0) -> list[str]:
        names = []
        for one in World(rule(passages=labels), lambda query: "abcd").decide(*rows, seed=seed):
            name = "abcd"[one["segments"][0]["chosen"]]
            critique = "[Irrelevant]It was her." if name in "bd" else f"[Relevant]It was her.{NO}"
            assert output(one) == shown(name) + critique + "[Utility:5]"
            names.append(name)
        return names

    first = chosen(*rows)
    assert set(first) == set("abcd")
    assert [chosen(row)[0] for row in rows] == first, "row and seed alone decide"
    assert chosen(*rows, seed=1) != first
    mixed = [Passage("", "t", r, s) for r, s in ((REL, NO), (IRR, ""), (REL, FULL))]
    assert {choose_passage(mixed, Random(seed)) for seed in range(20)} == {2}


def test_no_sentence_is_lost_if_no_passage_is_found() -> None:
    """Official defect: the sentence is dropped."""
    found = {"Count! One is so. Two is so.": "a", "Count! One is so.": "", "Count! Two is so.": "a"}
    world = World(rule(passages={"a": (REL, FULL)}), found.__getitem__)
    [one] = world.decide(row("Count!", "One is so. Two is so."))
    expected = "[No Retrieval]One is so." + shown("a") + f"[Relevant]Two is so.{FULL}[Utility:5]"
    assert output(one) == expected
    world = World(rule(), lambda query: "")
    [one] = world.decide(row("Count!", "One is so. Two is so."))
    assert output(one) == "[No Retrieval]One is so.[No Retrieval]Two is so.[Utility:5]"


def test_all_rows_share_their_batches() -> None:
    def sizes(number: int) -> list[int]:
        world = World(rule(passages=dict.fromkeys("ab", (REL, FULL))), lambda query: "abab")
        rows = [ONE.model_copy(update={"id": str(i)}) for i in range(number)]
        assert {len(d["segments"][0]["passages"]) for d in world.decide(*rows, top_k=3)} == {3}
        return [len(batch) for _, batch in world.batches]

    assert sizes(1) == [1, 1, 3, 3, 1]
    assert sizes(31) == [31, 31, 93, 93, 31]


def test_control_tokens_as_text_stay_text() -> None:
    hostile = "She [Fully supported] did </paragraph> so. It was[Utility:1] her.[Retrieval]"
    name = "x[Relevant]<paragraph>"
    world = World(rule(passages={name: (REL, FULL)}), lambda query: [name])
    [one] = world.decide(row("Who [No Retrieval]?", hostile, "<paragraph>"))
    tokens = [part for part in split(output(one)) if part in CONTROL_TOKENS]
    assert tokens == [*(YES, "<paragraph>", "</paragraph>", REL, FULL) * 2, "[Utility:5]"]
    assert one["augmented"]["instruction"] == "Who \u2045No Retrieval]?"
    assert one["augmented"]["input"] == "\u2039paragraph>"
    assert world.asked("utility")[0].output == hostile, "a critic judges the text itself"


def split(output: str) -> list[str]:
    pattern = f"({'|'.join(map(re.escape, CONTROL_TOKENS))})"
    return [part for part in re.split(pattern, output) if part]


SEGMENT = re.compile(r"(?:[NC]t|Y<t>(?:It|RtS))*U")
"""Each segment after its decision, ISREL after the passage, then ISSUP; one ISUSE (fig. 2)."""
SIGNS = dict(
    zip((NONE, GO_ON, YES, "<paragraph>", "</paragraph>", REL, IRR), "NCY<>RI", strict=True)
)
LABELS = {name: [*prompt.tokens_by_label.values()] for name, prompt in CRITIQUE_PROMPTS.items()}


@settings(max_examples=100)
@given(
    st.randoms(use_true_random=False),
    st.lists(st.sampled_from(["She did. ", "Oh! ", "It is [Relevant] so.\n", "  "]), min_size=1),
)
def test_the_order_of_tokens_is_right_and_no_text_is_lost(
    random: Random, sentences: list[str]
) -> None:
    text = "It was. " + "".join(sentences)

    def label(prompt: str, case: Instance) -> str:
        return random.choice(LABELS[prompt])

    [one] = World(label, lambda query: random.sample("abc", random.randint(0, 3))).decide(
        row("Who?", text)
    )
    parts = split(output(one))
    signs = "".join(
        SIGNS.get(p, "U" if p in TOKENS["ISUSE"] else "S") if p in CONTROL_TOKENS else "t"
        for p in parts
    )
    assert SEGMENT.fullmatch(signs), signs
    written = [
        part
        for before, part in zip(["", *parts], parts, strict=False)
        if part not in CONTROL_TOKENS and before != "<paragraph>"
    ]
    assert "".join(" ".join(written).split()) == "".join(quoted(text).split())
