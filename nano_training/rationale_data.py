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

from nano_training.completions import Completion, Piece
from nano_training.language import Passage, ask, new_entity, passage
from nano_training.questions import WorldQuestion, document, new_question
from nano_training.world import World
from selfcorrect_rag.prompts.instruct_rag import inference_prompt
from selfcorrect_rag.prompts.parts import Part

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
COPIED, JUDGED = 0.5, 2.0
"""Weights in the loss of what is written out from a document, and of what decides: which document,
whether to read on after a sentence, and the answer."""

ABOUT_OFFSET = 8
"""Added to the number of a document, in the hints, where a token is not of it but about it."""


class DocumentQuestion(NamedTuple):
    """A question on shared documents."""

    case: WorldQuestion
    gold: int | None
    """Index of the document that answers; None where none does."""
    close: int | None
    """Index of one on the same subject that does not."""


@dataclass(frozen=True)
class DocumentSet:
    """Documents, and the questions that are asked about them."""

    pages: list[Passage]
    questions: list[DocumentQuestion]

    @property
    def documents(self) -> list[Document]:
        """The pages as a retriever gives them."""
        return [document(page) for page in self.pages]


def new_document_set(
    world: World, count: int = 5, *, most: int = 4, held_out: bool = False
) -> DocumentSet:
    """``count`` documents on subjects that are easily confused, in random order.

    The first question's own document, one of another subject of the same kind, one of a similar
    name, one on the same subject that lacks what is asked, and strangers.
    """
    first = new_question(world, most, held_out)
    other = _like(world, first, None, held_out)
    similar = _like(world, first, world.alike_name(first.entity.name), held_out)
    stranger = new_question(world, most, held_out)
    absent = new_question(world, most, held_out)
    cases = [first, *world.random.sample([other, similar, stranger], 3)][: max(1, count - 1)]
    pages: list[tuple[Passage, WorldQuestion | None]] = [(case.gold, case) for case in cases]
    if count > 1:
        pages.append((first.missing(), None))
    world.random.shuffle(pages)
    close = next((i for i, (_, case) in enumerate(pages) if case is None), None)
    asked = [
        DocumentQuestion(case, i, close if case is first else None)
        for i, (_, case) in enumerate(pages)
        if case
    ]
    return DocumentSet([page for page, _ in pages], [*asked, DocumentQuestion(absent, None, None)])


def _like(world: World, case: WorldQuestion, name: str | None, held_out: bool) -> WorldQuestion:
    """The same relation of another subject of the same kind."""
    while True:
        entity = new_entity(world, case.entity.kind, name)
        gold = passage(world, entity, case.relation, most=case.most)
        value = entity.value(world, case.relation.name)
        if value is not None:
            question = ask(world, entity, case.relation, held_out)
            return WorldQuestion(world, entity, case.relation, question, value, gold, case.most)


def rationale(world: World, shared: DocumentSet, asked: DocumentQuestion) -> list[Piece]:
    """The teacher's rationale, in pieces that spaces join."""
    case, read = asked.case, _documents_read(asked)
    pieces = [Piece(ABOUT.format(subject=_subject(case)), hint=ABOUT_OFFSET + read[0])]
    if asked.gold is None:
        return [*pieces, Piece(NONE, JUDGED)]
    for n in read:
        page, hint = shared.pages[n - 1], ABOUT_OFFSET + n
        pieces.append(Piece(DOCUMENT.format(n=n, title=page.title), JUDGED, hint))
        is_gold = n == asked.gold + 1
        last = _answering(case, page) if is_gold else len(page.sentences) - 1
        pieces += _copied(page.sentences[: last + 1], hint)
        pieces.append(Piece((USEFUL if is_gold else LACKING).format(n=n), JUDGED, hint))
    rest = world.choice(REST)
    conclusion = Piece(CONCLUSION.format(target=case.target), JUDGED, hint)
    return [*pieces, *([Piece(rest)] if rest else []), conclusion]


def _documents_read(asked: DocumentQuestion) -> list[int]:
    """Numbers of those on the subject up to the one that answers; 0 where none does."""
    if asked.gold is None:
        return [0]
    return sorted(n + 1 for n in (asked.gold, asked.close) if n is not None and n <= asked.gold)


def _subject(case: WorldQuestion) -> str:
    """The subject that the question names."""
    return case.entity.name if case.relation.forward else case.value


def _copied(sentences: Sequence[str], hint: float) -> list[Piece]:
    """Sentences of a document; that one follows is decided at its first word."""
    pieces = []
    for sentence in sentences:
        word, _, rest = sentence.partition(" ")
        pieces += [Piece(word, JUDGED, hint), *([Piece(rest, COPIED, hint)] if rest else [])]
    return pieces


def _answering(case: WorldQuestion, page: Passage) -> int:
    """Index of the first sentence of the gold passage that says what is asked."""
    stating = [i for i, sentence in enumerate(page.sentences) if case.value in sentence]
    return stating[0] if stating else len(page.sentences) - 1


def completions(world: World, shared: DocumentSet) -> list[Completion]:
    """The completion of every question; one in five asks for the answer alone."""
    made, documents = [], shared.documents
    for asked in shared.questions:
        briefly = world.chance(0.2)
        target = asked.case.target if asked.gold is not None else NOT_KNOWN
        written = [Piece(f"{target}.")] if briefly else rationale(world, shared, asked)
        text = prompt(asked.case.question, documents, briefly)
        made.append(Completion(_with_hints(text, asked, len(documents)), written))
    return made


def _with_hints(text: str, asked: DocumentQuestion, count: int) -> list[Piece]:
    """A prompt in which each document has its number as a hint, and the question, once its subject
    is named, the number of the document to read first."""
    *lines, query = text.split("\n", count)
    subject = _subject(asked.case)
    known = query.find(subject) + len(subject) if subject in query else len(query) - 1
    return [
        *(Piece(f"{line}\n", hint=n) for n, line in enumerate(lines, start=1)),
        Piece(query[:known]),
        Piece(query[known:], hint=ABOUT_OFFSET + _documents_read(asked)[0]),
    ]


def prompt(question: str, documents: Sequence[Document], briefly: bool) -> str:
    """The prompt as the graph gives it to an LLM: of InstructRAG-FT, or of in-context RALM."""
    made = inference_prompt(
        "ralm" if briefly else "ft", question, documents, (), BRIEFLY if briefly else None
    )
    parts: tuple[Part, ...] = (*made.parts, Part("\n", "trusted"))
    return "".join(part.text for part in parts)
