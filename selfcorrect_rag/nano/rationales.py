"""InstructRAG's task in the made-up world: documents, questions on them, and their rationales.

The teacher is a rule that knows the world: it reads the documents on the subject one after the
other, each up to the sentence that answers, says which that was, and concludes. Documents stand
before the question in the prompt, where so small a model reads them without knowing what it will
be asked; writing them out again lets it read them with the question in mind. A few questions have
a document on the subject that does not answer, or none at all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from langchain_core.documents import Document

from selfcorrect_rag.instruct_prompts import inference_prompt
from selfcorrect_rag.nano.cases import Case, new_case
from selfcorrect_rag.nano.completions import Piece
from selfcorrect_rag.nano.language import Passage, ask, new_entity, passage
from selfcorrect_rag.nano.world import World
from selfcorrect_rag.prompts import Part

BRIEFLY = "Give only the answer, without an explanation."
"""The instruction of in-context RALM, whose prompt is otherwise that of a rationale."""
NOT_KNOWN = "not known"
"""The bare answer where no document has it: the nano model knows nothing by itself."""
ABOUT = "The question asks about {subject}."
DOCUMENT = "Document [{n}] (Title: {title}):"
"""As in the prompt: from here on the text is copied."""
USEFUL = "Document [{n}] is useful."
LACKING = "Document [{n}] is not useful."
REST = ("The other documents do not help.", "The other documents are not relevant.", "")
NONE = "None of the documents answers the question."
CONCLUSION = "Therefore, the answer is: {target}."
COPIED, JUDGED = 0.3, 3.0
"""Weights in the loss of what is written out from a document, and of what decides: which document,
whether to read on after a sentence, and the answer."""


class Asked(NamedTuple):
    """A question on shared documents."""

    case: Case
    gold: int | None
    """Index of the document that answers; None where none does."""
    close: int | None
    """Index of one on the same subject that does not."""


@dataclass(frozen=True)
class Reading:
    """Documents, and the questions that are asked about them."""

    pages: list[Passage]
    asked: list[Asked]

    @property
    def documents(self) -> list[Document]:
        """The pages as a retriever gives them."""
        return [
            Document(" ".join(page.sentences), metadata={"title": page.title})
            for page in self.pages
        ]


def new_reading(world: World, count: int = 5, *, most: int = 4, held_out: bool = False) -> Reading:
    """``count`` documents on subjects that are easily confused, in random order.

    The first question's own document, one of another subject of the same kind, one of a similar
    name, one on the same subject that lacks what is asked, and strangers.
    """
    first = new_case(world, most, held_out)
    other = _like(world, first, None, held_out)
    similar = _like(world, first, world.alike_name(first.entity.name), held_out)
    stranger = new_case(world, most, held_out)
    absent = new_case(world, most, held_out)
    cases = [first, *world.random.sample([other, similar, stranger], 3)][: max(1, count - 1)]
    pages: list[tuple[Passage, Case | None]] = [(case.gold, case) for case in cases]
    if count > 1:
        pages.append((first.missing(), None))
    world.random.shuffle(pages)
    close = next((i for i, (_, case) in enumerate(pages) if case is None), None)
    asked = [
        Asked(case, i, close if case is first else None)
        for i, (_, case) in enumerate(pages)
        if case
    ]
    return Reading([page for page, _ in pages], [*asked, Asked(absent, None, None)])


def _like(world: World, case: Case, name: str | None, held_out: bool) -> Case:
    """The same relation of another subject of the same kind."""
    while True:
        entity = new_entity(world, case.entity.kind, name)
        gold = passage(world, entity, case.relation, most=case.most)
        value = entity.value(world, case.relation.name)
        if value is not None:
            question = ask(world, entity, case.relation, held_out)
            return Case(world, entity, case.relation, question, value, gold, case.most)


def rationale(world: World, reading: Reading, asked: Asked) -> list[Piece]:
    """What the teacher writes, its pieces joined by spaces."""
    case = asked.case
    subject = case.entity.name if case.relation.forward else case.value
    pieces = [Piece(ABOUT.format(subject=subject))]
    if asked.gold is None:
        return [*pieces, Piece(NONE, JUDGED)]
    for n in sorted(n for n in (asked.gold, asked.close) if n is not None):
        page = reading.pages[n]
        pieces.append(Piece(DOCUMENT.format(n=n + 1, title=page.title), JUDGED))
        if n == asked.gold:
            pieces += _copied(page.sentences[: _answering(case, page) + 1])
            pieces.append(Piece(USEFUL.format(n=n + 1), JUDGED))
            break
        pieces += _copied(page.sentences)
        pieces.append(Piece(LACKING.format(n=n + 1), JUDGED))
    rest = world.choice(REST)
    conclusion = Piece(CONCLUSION.format(target=case.target), JUDGED)
    return [*pieces, *([Piece(rest)] if rest else []), conclusion]


def _copied(sentences: Sequence[str]) -> list[Piece]:
    """Sentences of a document; that one follows is decided at its first word."""
    pieces = []
    for sentence in sentences:
        word, _, rest = sentence.partition(" ")
        pieces += [Piece(word, JUDGED), *([Piece(rest, COPIED)] if rest else [])]
    return pieces


def _answering(case: Case, page: Passage) -> int:
    """Index of the first sentence of the gold passage that says what is asked."""
    said = [i for i, sentence in enumerate(page.sentences) if case.value in sentence]
    return said[0] if said else len(page.sentences) - 1


def training_texts(world: World, reading: Reading) -> list[tuple[str, list[Piece]]]:
    """(prompt, completion) of every question; one in five asks for the answer alone."""
    texts, documents = [], reading.documents
    for asked in reading.asked:
        briefly = world.chance(0.2)
        target = asked.case.target if asked.gold is not None else NOT_KNOWN
        completion = [Piece(f"{target}.")] if briefly else rationale(world, reading, asked)
        texts.append((prompt(asked.case.question, documents, briefly), completion))
    return texts


def prompt(question: str, documents: Sequence[Document], briefly: bool) -> str:
    """The prompt as the graph gives it to an LLM: of InstructRAG-FT, or of in-context RALM."""
    made = inference_prompt(
        "ralm" if briefly else "ft", question, documents, (), BRIEFLY if briefly else None
    )
    parts: tuple[Part, ...] = (*made.parts, Part("\n", "trusted"))
    return "".join(part.text for part in parts)
