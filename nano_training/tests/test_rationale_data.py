"""What the rationale model is trained on."""

from nano_training.completions import encode
from nano_training.rationale_data import (
    ABOUT_OFFSET,
    COPIED,
    JUDGED,
    DocumentQuestion,
    DocumentSet,
    completions,
    new_document_set,
    rationale,
)
from nano_training.tokenizer import load_tokenizer
from nano_training.world import World
from selfcorrect_rag.evaluation.matching import contains_answer
from selfcorrect_rag.nano import rationale_model_path
from selfcorrect_rag.prompts.rationale.conclusions import final_answer
from selfcorrect_rag.prompts.rationale.documents import read_documents


def titles(shared: DocumentSet) -> list[str]:
    return [page.title for page in shared.pages]


def written(world: World, shared: DocumentSet, asked: DocumentQuestion) -> str:
    return " ".join(piece.text for piece in rationale(world, shared, asked))


def test_the_teacher_is_consistent_and_read_as_it_means() -> None:
    world = World("teacher")
    misread = 0
    for _ in range(100):
        shared = new_document_set(world)
        for asked in shared.questions:
            text = written(world, shared, asked)
            read = read_documents(text, titles(shared))
            if asked.gold is None:
                assert not read.useful
                continue
            assert contains_answer(text, [asked.case.target])
            misread += read.useful != [asked.gold + 1]
            assert not read.missing
            if "." not in asked.case.target:
                # A single letter keeps its full stop: it may be an initial.
                assert final_answer(text).rstrip(".") == asked.case.target
    assert misread <= 3  # words of a verdict that stand in the document that is read out


def test_the_teacher_reads_up_to_the_sentence_that_answers_and_dismisses_what_lacks_it() -> None:
    world = World("reads")
    dismissed = 0
    for _ in range(60):
        shared = new_document_set(world)
        for asked in shared.questions:
            if asked.gold is None:
                continue
            gold = shared.pages[asked.gold]
            text = written(world, shared, asked)
            read = text.split(f"Document [{asked.gold + 1}]")[1]
            last = next(i for i, said in enumerate(gold.sentences) if asked.case.value in said)
            assert gold.sentences[last] in read
            assert not any(said in read for said in gold.sentences[last + 1 :])
            if asked.close is not None and asked.close < asked.gold:
                assert asked.close + 1 in read_documents(text, titles(shared)).dismissed
                dismissed += 1
    assert dismissed > 5


def test_questions_on_shared_documents_are_branches_that_learn_completions_alone() -> None:
    tokenizer = load_tokenizer(rationale_model_path())
    made = completions(World("branches"), new_document_set(World("branches")))
    row = encode(tokenizer, made)
    columns = list(zip(row.ids, row.branch, row.weights, row.positions, row.hints, strict=True))
    for branch, (asked, pieces) in enumerate(made, start=1):
        seen = [column for column in columns if column[1] in (0, branch)]
        prompt = tokenizer("".join(piece.text for piece in asked))["input_ids"]
        assert [column[0] for column in seen][: len(prompt)] == prompt
        assert [column[3] for column in seen] == list(range(len(seen)))
        learned = [(i, weight) for i, _, weight, _, _ in seen if weight]
        completion = " ".join(piece.text for piece in pieces)
        assert tokenizer.decode([i for i, _ in learned]) == f"{completion}</s>"
        for weight in (COPIED, JUDGED):
            counted = tokenizer.decode([i for i, of in learned if of == weight])
            assert counted == " ".join(piece.text for piece in pieces if piece.weight == weight)


def test_tokens_are_told_which_document_they_are_of_or_about() -> None:
    tokenizer = load_tokenizer(rationale_model_path())
    world = World("told")
    shared = new_document_set(world)
    made = completions(world, shared)
    row = encode(tokenizer, made)
    for n, page in enumerate(shared.pages, start=1):
        of = [i for i, hint in zip(row.ids, row.hints, strict=True) if hint == n]
        assert f"Document [{n}] (Title: {page.title})" in tokenizer.decode(of)
    about = {hint - ABOUT_OFFSET for hint in row.hints if hint >= ABOUT_OFFSET}
    gold = {asked.gold + 1 for asked in shared.questions if asked.gold is not None}
    close = {asked.close + 1 for asked in shared.questions if asked.close is not None}
    assert gold | {0} <= about <= gold | close | {0}
