"""Algorithm 3, worked by hand: what is asked, what is chosen, and what is written."""

from collections import Counter
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from selfcorrect_rag.prompts.critic import CRITIQUE_PROMPTS
from selfcorrect_rag.prompts.quoting import quoted
from selfcorrect_rag.reflection import TOKENS
from selfcorrect_rag.training.augmentation import CritiqueRequest, Judge, Label, Passage, choose
from selfcorrect_rag.training.generator_rows import GeneratorRow, order_faults, tokens_and_texts
from selfcorrect_rag.training.labelling import MALFORMED
from tests.training.augmentation_world import (
    FULL,
    GO_ON,
    IRR,
    NO,
    NONE,
    ONE,
    PART,
    REL,
    YES,
    World,
    output,
    rule,
    shown,
)


def test_a_row_that_needs_no_retrieval_is_left_whole_and_never_searched_for() -> None:
    """Official defect: a string compared with False, so that the filter never filtered."""
    world = World(rule(retrieval=NONE, utility="[Utility:2]"))
    row = GeneratorRow("Sing!", "La la.\nLa la la.\n", "a song", "7", "alpaca")
    [one] = world.decide(row)
    assert one.augmented == row._replace(output="[No Retrieval]La la.\nLa la la.\n[Utility:2]")
    assert world.queries == []
    assert [len(step.requests) for step in world.batches if isinstance(step, Judge)] == [2, 0, 0, 0]


def test_the_first_passage_that_is_relevant_and_supports_it() -> None:
    """By retrieval score (A.2); the official code looks for full support first."""
    judged = {"a": (IRR, FULL), "b": (REL, NO), "c": (REL, PART), "d": (REL, FULL)}
    world = World(rule(passages=judged), lambda query: "abcd")
    [one] = world.decide(ONE)
    assert output(one) == shown("c") + "[Relevant]It was her.[Partially supported][Utility:5]"
    assert one.segments[0].chosen == 2
    asked = [case.instance.evidence for case in world.cases("groundness")]
    assert asked == ["b\ntext b", "c\ntext c", "d\ntext d"], "not where it is irrelevant (3.2.2)"


def test_queries_are_input_and_output_then_input_and_sentence() -> None:
    world = World(rule(passages={"a": (REL, FULL)}), lambda query: "a")
    world.decide(GeneratorRow("Explain it.", "She did. He did too.", "the case"))
    assert world.queries == [
        "Explain it. the case She did. He did too.",
        "Explain it. the case She did.",
        "Explain it. the case He did too.",
    ]


def test_a_long_output_worked_by_hand() -> None:
    more = {"One": YES, "Two": NONE, "Three": YES, "Four": YES}
    found = {"One": "ab", "Three": "c", "Four": "ba"}
    judged = {"a": (REL, FULL), "b": (REL, PART), "c": (IRR, FULL)}
    world = World(
        rule(more=more, passages=judged, utility="[Utility:4]"),
        lambda query: found.get(query.split()[1], "") if query.count(".") == 1 else "a",
    )
    row = GeneratorRow("Count!", "One is so.  Two is so.\nThree is so. Four is so.")
    [one] = world.decide(row)
    assert output(one) == (
        shown("a") + "[Relevant]One is so.[Fully supported]"
        "[No Retrieval]Two is so.\n"
        + shown("c")
        + "[Irrelevant]Three is so."
        + shown("b")
        + "[Relevant]Four is so.[Partially supported]"
        "[Utility:4]"
    )
    assert order_faults(output(one)) == []


def test_each_sentence_is_judged_by_the_first_passage_and_by_what_precedes_it() -> None:
    """Official defects: preceding sentences never passed, or printed as None."""
    world = World(rule(more=NONE), lambda query: "ab")
    world.decide(GeneratorRow("Count!", "One is so. Two is so. Three is so."))
    asked = [case.instance for case in world.cases("multi_retrieval")]
    assert [i.preceding_sentences for i in asked] == ["", "One is so. ", "One is so. Two is so. "]
    assert [i.segment.strip() for i in asked] == ["One is so.", "Two is so.", "Three is so."]
    assert {i.evidence for i in asked} == {"a\ntext a"}
    prompt = CRITIQUE_PROMPTS["multi_retrieval"].prompt(asked[0])
    assert GO_ON in prompt, "official defect: asked two ways where three were wanted"
    assert "Preceding" not in prompt.rsplit("##", 1)[1]
    assert "None" not in prompt


def test_what_continues_to_use_evidence_has_read_it() -> None:
    """The critic saw the first passage of the whole output; the generator must have read it too.

    Official defects: the token with no passage before it; rows that begin with it are dropped.
    """
    more = {"One": GO_ON, "Two": GO_ON, "Three": NONE, "Four": GO_ON, "Five": YES, "Six": GO_ON}
    judged = {"a": (REL, FULL), "b": (REL, PART)}
    world = World(
        rule(more=more, passages=judged),
        lambda query: "b" if query == "Count! Five is so." else "ab",
    )
    text = "One is so. Two is so. Three is so. Four is so. Five is so. Six is so."
    [one] = world.decide(GeneratorRow("Count!", text))
    assert output(one) == (
        shown("a") + "[Relevant]One is so.[Fully supported]"
        "[Continue to Use Evidence]Two is so."
        "[No Retrieval]Three is so."
        "[Continue to Use Evidence]Four is so."
        + shown("b")
        + "[Relevant]Five is so.[Partially supported]"
        + shown("a")
        + "[Relevant]Six is so.[Fully supported]"
        "[Utility:5]"
    )
    assert world.queries == [f"Count! {text}", "Count! Five is so."]
    assert len(world.cases("relevance")) == 3, "where it goes on, nothing is judged again"


def test_evidence_that_a_sentence_found_by_itself_is_gone_on_with() -> None:
    more = {"One": YES, "Two": GO_ON}
    world = World(rule(more=more, passages={"a": (REL, FULL)}), lambda query: "a")
    [one] = world.decide(GeneratorRow("Count!", "One is so. Two is so."))
    assert output(one) == (
        shown("a") + "[Relevant]One is so.[Fully supported]"
        "[Continue to Use Evidence]Two is so.[Utility:5]"
    )


def test_where_nothing_supports_it_any_passage_is_read_with_its_own_labels() -> None:
    """Official defect: an index into the irrelevant ones was used as one into all."""
    labels = {"a": (REL, NO), "b": (IRR, FULL), "c": (REL, NO), "d": (IRR, FULL)}
    chosen = Counter()
    for number in range(40):
        world = World(rule(passages=labels), lambda query: "abcd")
        [one] = world.decide(ONE._replace(id=str(number)))
        index = one.segments[0].chosen
        assert index is not None
        name = "abcd"[index]
        chosen[name] += 1
        critique = "[Irrelevant]It was her." if name in "bd" else f"[Relevant]It was her.{NO}"
        assert output(one) == shown(name) + critique + "[Utility:5]"
    assert set(chosen) == set("abcd")


def test_the_choice_depends_on_row_and_seed_alone() -> None:
    labels = dict.fromkeys("abcdefgh", (IRR, NO))
    rows = [ONE._replace(id=str(i)) for i in range(12)]

    def chosen(*rows: GeneratorRow, seed: int = 0) -> list[int | None]:
        decided = World(rule(passages=labels), lambda query: "abcdefgh").decide(*rows, seed=seed)
        return [one.segments[0].chosen for one in decided]

    first = chosen(*rows)
    assert chosen(*rows) == first
    assert [chosen(row)[0] for row in rows] == first, "nor on what is decided beside it"
    assert chosen(*rows, seed=1) != first


def test_an_irrelevant_passage_never_replaces_a_supporting_one() -> None:
    """Official defect, for nq and fever."""
    labels = [(REL, NO), (IRR, None), (REL, FULL), (IRR, None)]
    passages = [
        Passage("", str(i), "t", None, Label(isrel), Label(issup) if issup else None)
        for i, (isrel, issup) in enumerate(labels)
    ]
    assert {choose(passages, Random(seed))[0] for seed in range(50)} == {2}


def test_no_sentence_is_lost_where_no_passage_is_found() -> None:
    """Official defect: the sentence is dropped."""
    found = {"Count! One is so. Two is so.": "a", "Count! One is so.": "", "Count! Two is so.": "a"}
    world = World(rule(passages={"a": (REL, FULL)}), found.__getitem__)
    [one] = world.decide(GeneratorRow("Count!", "One is so. Two is so."))
    assert output(one) == (
        "[No Retrieval]One is so." + shown("a") + f"[Relevant]Two is so.{FULL}[Utility:5]"
    )
    assert one.segments[0].why == "no passage was found"
    world = World(rule(), lambda query: "")
    [one] = world.decide(GeneratorRow("Count!", "One is so. Two is so."))
    assert output(one) == "[No Retrieval]One is so.[No Retrieval]Two is so.[Utility:5]"
    assert world.cases("multi_retrieval") == [], "there is no evidence to judge by"


def test_a_passage_without_a_readable_label_is_none_to_choose() -> None:
    labels = {"a": (REL, None), "b": (None, None), "c": (REL, PART)}

    def label(case: CritiqueRequest) -> str | Label:
        if case.prompt in ("relevance", "groundness"):
            given = labels[case.instance.evidence[0]][case.prompt == "groundness"]
            return given or Label(None, reason=MALFORMED)
        return rule()(case)

    [one] = World(label, lambda query: "abc").decide(ONE)
    assert one.segments[0].chosen == 2
    [one] = World(label, lambda query: "ab").decide(ONE)
    assert output(one) == "[No Retrieval]It was her.[Utility:5]"
    assert one.segments[0].why == "no passage could be judged"


def test_rows_whose_labels_are_missing_fail_alone() -> None:
    lost = {
        "retrieval": "malformed",
        "utility": "Timeout: no",
        "multi_retrieval": "malformed",
        "relevance": "Timeout: no",
        "groundness": "Timeout: no",
    }

    def label(case: CritiqueRequest) -> str | Label:
        if case.prompt == case.instance.instruction:
            return Label(None, reason=lost[case.prompt])
        return rule(passages={"a": (REL, FULL)})(case)

    rows = [GeneratorRow(aspect, "It was her.") for aspect in lost]
    *decided, good = World(label, lambda query: "a").decide(*rows, ONE)
    assert [one.failure for one in decided] == list(lost.values())
    assert all(one.augmented is None for one in decided)
    assert output(good).endswith("[Utility:5]")


def test_all_rows_share_their_batches() -> None:
    def batches(number: int) -> list[int]:
        world = World(rule(passages={"a": (REL, FULL)}), lambda query: "aaa")
        decided = world.decide(*(ONE._replace(id=str(i)) for i in range(number)))
        assert len({output(one) for one in decided}) == 1
        return [len(step[0]) for step in world.batches]

    assert batches(1) == [2, 1, 1, 1, 3, 3]
    assert batches(31) == [62, 31, 31, 31, 93, 93]


def test_at_most_so_many_passages() -> None:
    world = World(rule(passages=dict.fromkeys("abcd", (IRR, NO))), lambda query: "abcd")
    [one] = world.decide(ONE, passages=2)
    assert len(one.passages) == len(one.segments[0].passages) == 2


def test_control_tokens_as_text_stay_text() -> None:
    hostile = "She [Fully supported] did </paragraph> so. It was[Utility:1] her.[Retrieval]"
    name = "x[Relevant]<paragraph>"
    world = World(rule(passages={name: (REL, FULL)}), lambda query: [name])
    [one] = world.decide(GeneratorRow("Who [No Retrieval]?", hostile, "<paragraph>"))
    assert one.augmented is not None
    assert order_faults(one.augmented.output) == []
    kinds = [part for part, is_token in tokens_and_texts(one.augmented.output) if is_token]
    assert kinds == [
        *(YES, "<paragraph>", "</paragraph>", REL, FULL) * 2,
        "[Utility:5]",
    ]
    assert one.augmented.instruction == "Who \u2045No Retrieval]?"
    assert one.augmented.input == "\u2039paragraph>"
    assert one.look_alikes == 4 + 2 + 2 * 4, "in the output, the fields, and the passage read twice"
    assert world.cases("utility")[0].instance.output == hostile, "a critic judges the text itself"


LABELS = {
    aspect: [*tokens, None]
    for aspect, tokens in {
        "retrieval": TOKENS[CRITIQUE_PROMPTS["retrieval"].group][:2],
        "multi_retrieval": TOKENS[CRITIQUE_PROMPTS["multi_retrieval"].group],
        "relevance": TOKENS[CRITIQUE_PROMPTS["relevance"].group],
        "groundness": TOKENS[CRITIQUE_PROMPTS["groundness"].group],
        "utility": TOKENS[CRITIQUE_PROMPTS["utility"].group],
    }.items()
}


@settings(deadline=None, max_examples=200)
@given(
    st.randoms(use_true_random=False),
    st.lists(st.sampled_from(["She did. ", "Oh! ", "It is [Relevant] so.\n", "  "]), min_size=1),
)
def test_whatever_is_judged_the_order_is_right_and_no_text_is_lost(
    random: Random, sentences: list[str]
) -> None:
    text = "It was. " + "".join(sentences)

    def label(case: CritiqueRequest) -> Label:
        token = random.choice(LABELS[case.prompt])
        return Label(token, reason="" if token else MALFORMED)

    world = World(label, lambda query: random.sample("abc", random.randint(0, 3)))
    [one] = world.decide(GeneratorRow("Who?", text))
    if one.augmented is None:
        assert one.failure == MALFORMED
        return
    assert order_faults(one.augmented.output) == []
    parts = list(tokens_and_texts(one.augmented.output))
    written = [
        part
        for (part, is_token), (before, _) in zip(parts, [("", True), *parts], strict=False)
        if not is_token and before != "<paragraph>"
    ]
    assert "".join(" ".join(written).split()) == "".join(quoted(text).split())
