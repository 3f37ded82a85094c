"""The generator's training data (Self-RAG 3.2.2, A.2, Algorithm 3): a critic's reflection tokens
and retrieved passages for outputs."""

import hashlib
import re
import shutil
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Literal, NamedTuple

from langchain_core.documents import Document
from langchain_core.runnables import Runnable
from pydantic import Field, PositiveInt

from selfcorrect_rag.errors import RetrievalFailed, describe_error, require
from selfcorrect_rag.intake import title_of
from selfcorrect_rag.journal import (
    Journal,
    digest,
    open_run,
    refuse_foreign,
    run_folder,
    write_rows,
)
from selfcorrect_rag.models.critic import Critic, critic_input, critic_prompt
from selfcorrect_rag.prompts.critic import CRITIQUE_PROMPTS, Instance
from selfcorrect_rag.prompts.parts import quoted
from selfcorrect_rag.reflection import (
    CONTINUE,
    CONTROL_TOKENS,
    END_PARAGRAPH,
    FULLY_SUPPORTED,
    NO_RETRIEVAL,
    PARAGRAPH,
    PARTIALLY_SUPPORTED,
    RELEVANT,
    RETRIEVAL,
)
from selfcorrect_rag.search import open_index
from selfcorrect_rag.training.generator import GeneratorRow
from selfcorrect_rag.training.labelling import request_key
from selfcorrect_rag.training.rows import Options, Progress, read_rows

DECISIONS = "decisions.jsonl"
"""In the run's folder: what was found, judged and chosen for each row."""
PARTS = "parts"
"""Beside it: the answers for rows that are not decided yet."""


class GeneratorDataOptions(Options):
    """Options of ``train generator-data``, the paper's; rows are {instruction, output} and perhaps
    input, id, dataset_name."""

    run_only = Options.run_only | {"engine", "engine_options", "chunk_size"}

    critic: str = ""
    """Folder or hub name of a critic."""
    index: str = ""
    """Folder of the index that is searched."""
    top_k: PositiveInt = 10
    """Maximum passages of a query (section 4)."""
    seed: int = 0
    """Seed of the choice if no passage supports a sentence."""
    engine: Literal["transformers", "vllm"] = "transformers"
    """The engine that runs the critic."""
    engine_options: dict[str, Any] = Field(default_factory=dict)
    """Arguments of Critic.from_pretrained or Critic.on_vllm."""
    chunk_size: PositiveInt = 64
    """Rows whose labels share batches."""


class Critique(NamedTuple):
    """A judgement that a critic is asked for."""

    prompt: str
    """A key of :data:`~selfcorrect_rag.prompts.critic.CRITIQUE_PROMPTS`."""
    instance: Instance


@dataclass
class Passage:
    """A retrieved passage, and the tokens that a critic gave it."""

    title: str
    text: str
    isrel: str = ""
    issup: str = ""

    @property
    def whole(self) -> str:
        """Title and text as a generator reads them."""
        return f"{self.title}\n{self.text}" if self.title else self.text


Judge = Callable[[list[Critique]], list[str]]
Retrieve = Callable[[list[str]], list[list[Passage]]]
Decisions = dict[str, Any]
"""Everything that was decided about a row, as JSON; ``augmented`` is the row with passages and
reflection tokens in its output."""


def augment(
    rows: Sequence[GeneratorRow], judge: Judge, retrieve: Retrieve, *, top_k: int, seed: int = 0
) -> list[Decisions]:
    """Decide about ``rows`` together, so that critic and retriever get large batches.

    Args:
        rows: rows without reflection tokens.
        judge: returns a reflection token for each request, in their order.
        retrieve: returns passages for each query, best first.
        top_k: maximum passages of a query.
        seed: decides which passage is taken if none supports a sentence.
    """
    steps = [_decide(row, top_k, seed) for row in rows]
    decided: dict[int, Decisions] = {}
    answers: dict[int, list[Any]] = {}
    while len(decided) < len(rows):
        asked = {}
        for i, step in enumerate(steps):
            if i not in decided:
                try:
                    asked[i] = step.send(answers.get(i))
                except StopIteration as ended:
                    decided[i] = ended.value
        requests = [request for of_row in asked.values() for request in of_row]
        critiques = [request for request in requests if isinstance(request, Critique)]
        queries = [request for request in requests if isinstance(request, str)]
        tokens = iter(judge(critiques) if critiques else ())
        found = iter(retrieve(queries) if queries else ())
        for i, of_row in asked.items():
            answers[i] = [next(tokens if isinstance(r, Critique) else found) for r in of_row]
    return [decided[i] for i in range(len(rows))]


def _decide(row: GeneratorRow, top_k: int, seed: int) -> Generator[list[Any], Any, Decisions]:
    """Decide about a row; yields lists of critiques (answered by tokens) or queries (by passages).

    In the order of Algorithm 3.
    """

    def query(text: str) -> str:
        return " ".join(t.strip() for t in (row.instruction, row.input, text) if t.strip())

    whole = Instance(row.instruction, row.input, row.output, segment=row.output)
    retrieval, utility = yield [Critique("retrieval", whole), Critique("utility", whole)]
    if retrieval != RETRIEVAL:
        return _record(row, utility, NO_RETRIEVAL + quoted(row.output))
    (evidence,) = yield [query(row.output)]
    sentences = split_sentences(row.output)
    cases = [
        whole._replace(segment=sentence, preceding_sentences="".join(sentences[:i]))
        for i, sentence in enumerate(sentences)
    ]
    # What a sentence needs, by the output's first passage (A.2).
    wanted, seen = [RETRIEVAL] * len(cases), ""
    if evidence:
        seen = evidence[0].whole
        wanted = yield [Critique("multi_retrieval", c._replace(evidence=seen)) for c in cases]
    own = [s for s, token in zip(sentences, wanted, strict=True) if token == RETRIEVAL]
    found = iter((yield [query(sentence) for sentence in own]))
    passages: list[list[Passage]] = []
    is_read = False
    for token in wanted:
        passages.append(next(found)[:top_k] if token == RETRIEVAL else [])
        if token == CONTINUE and not is_read:
            # The critic saw this passage; the generator has read another one, or none.
            passages[-1] = [replace(evidence[0])]
        is_read = token == CONTINUE or (is_read and token == NO_RETRIEVAL)
    # ISREL of each passage, and ISSUP of the relevant ones (section 3.2.2).
    each = [(case, p) for case, some in zip(cases, passages, strict=True) for p in some]
    tokens = yield [Critique("relevance", c._replace(evidence=p.whole)) for c, p in each]
    for (_, passage), token in zip(each, tokens, strict=True):
        passage.isrel = token
    each = [(case, passage) for case, passage in each if passage.isrel == RELEVANT]
    tokens = yield [Critique("groundness", c._replace(evidence=p.whole)) for c, p in each]
    for (_, passage), token in zip(each, tokens, strict=True):
        passage.issup = token
    output, last, segments = "", "", []
    for i, (sentence, want, some) in enumerate(zip(sentences, wanted, passages, strict=True)):
        text, chosen = quoted(sentence.rstrip(" ")), None
        if want == CONTINUE and last == seen:
            output += CONTINUE + text
        elif some and want != NO_RETRIEVAL:
            chosen = choose_passage(some, Random(f"{seed}:{row.digest}:{i}"))
            passage, last = some[chosen], some[chosen].whole
            output += f"{RETRIEVAL}{PARAGRAPH}{quoted(last)}{END_PARAGRAPH}"
            output += f"{passage.isrel}{text}{passage.issup}"
        else:
            output += NO_RETRIEVAL + text
        shown = {"passages": list(map(asdict, some)), "chosen": chosen}
        segments.append({"text": sentence, "wanted": want, **shown})
    return _record(row, utility, output, evidence[:top_k], segments)


def _record(
    row: GeneratorRow,
    utility: str,
    output: str,
    evidence: Sequence[Passage] = (),
    segments: Sequence[dict[str, Any]] = (),
) -> Decisions:
    given = {"instruction": quoted(row.instruction), "input": quoted(row.input)}
    augmented = row.model_copy(update={**given, "output": output + utility})
    return {
        "row": row.model_dump(),
        "evidence": list(map(asdict, evidence)),
        "segments": segments,
        "augmented": augmented.model_dump(),
    }


def split_sentences(output: str) -> list[str]:
    """Split an output into sentences, which together are the output (A.2).

    A sentence of one word, such as the number in a list, joins the next one.
    """
    whole: list[str] = []
    begun, start = "", 0
    # Each cut becomes a segment that the generator learns, so a real splitter is used. It cannot
    # read half a surrogate pair, which JSON may hold; lengths stay the same.
    readable = output.encode(errors="replace").decode()
    for found in require("sentencex", "train").segment("en", readable):
        sentence = output[start : start + len(found)]
        start += len(found)
        if whole and not begun and not sentence.strip():
            whole[-1] += sentence
        elif len(sentence.split()) < 2:
            begun += sentence
        else:
            whole.append(begun + sentence)
            begun = ""
    if whole:
        whole[-1] += begun
    return whole or [output]


def choose_passage(passages: Sequence[Passage], random: Random) -> int:
    """Return the passage that a sentence is written from (A.2): the best retrieved one that is
    relevant and supports the sentence, fully or in part; else a random one."""
    for number, passage in enumerate(passages):
        if passage.issup in (FULLY_SUPPORTED, PARTIALLY_SUPPORTED):
            return number
    return random.choice(range(len(passages)))


def make_generator_data(
    options: GeneratorDataOptions,
    critic: Critic | None = None,
    retriever: Runnable[str, list[Document]] | None = None,
    progress: Progress = None,
) -> dict[str, Any]:
    """Add passages and reflection tokens to outputs (Algorithm 3): the generator's data.

    The same call resumes after a kill: only labels and queries in flight are asked for twice. In
    the run's folder, ``decisions.jsonl`` has what was decided about each row. Equal rows are judged
    once.

    Args:
        options: ``critic`` and ``index`` are only names for what is given here.
        critic: a fine-tuned critic; by default the one that the options name.
        retriever: returns passages for a query, best first; by default of the index.
        progress: called for each finished row.

    Returns:
        ``rows``; the ``segments`` of rows with retrieval, those ``read`` from a passage; and the
        control ``tokens`` written.

    Raises:
        RetrievalFailed: the retriever raised; what came before is kept.
        BadRun: ``out`` is another file or a run with other options, or another run writes it.
    """
    rows, folder = read_rows(options.data, GeneratorRow), run_folder(options.out)
    once, names = list({row.digest: row for row in rows}.values()), {}
    refuse_foreign(options.out, DECISIONS)
    with ExitStack() as stack:
        if retriever is None:
            index = stack.enter_context(open_index(options.index))
            retriever = index.as_retriever(options.top_k)
            names["index content"] = digest(sorted(index.finished().items()))
        if critic is None:
            opened = Critic.on_vllm if options.engine == "vllm" else Critic.from_pretrained
            critic = stack.enter_context(opened(options.critic, **options.engine_options))
            names["critic content"] = _fingerprint(Path(options.critic))
        stack.enter_context(open_run(folder, {**options.identity, **names}))
        decided = Journal(folder / DECISIONS)
        for start in range(0, len(once), options.chunk_size):
            chunk = once[start : start + options.chunk_size]
            chunk = [row for row in chunk if row.digest not in decided.rows]
            part = folder / PARTS / str(start)
            part.mkdir(parents=True, exist_ok=True)
            judge = partial(_judge, critic, Journal(part / "labels.jsonl"))
            retrieve = partial(_retrieve, retriever, Journal(part / "passages.jsonl"))
            made = augment(chunk, judge, retrieve, top_k=options.top_k, seed=options.seed)
            for row, decisions in zip(chunk, made, strict=True):
                decided.append(row.digest, decisions)
                if progress:
                    progress(1, len(once))
            shutil.rmtree(part)
        made = [decided.rows[row.digest] for row in rows]
        write_rows(options.out, (row["augmented"] for row in made))
    segments = [segment for row in made for segment in row["segments"]]
    tokens = re.compile("|".join(map(re.escape, CONTROL_TOKENS)))
    return {
        "rows": len(rows),
        "segments": len(segments),
        "read": sum(segment["chosen"] is not None for segment in segments),
        "tokens": dict(
            Counter(t for row in made for t in tokens.findall(row["augmented"]["output"]))
        ),
    }


def _judge(critic: Critic, journal: Journal, cases: list[Critique]) -> list[str]:
    """Label ``cases``; those in the journal are not asked for again."""
    inputs = [critic_input(CRITIQUE_PROMPTS[case.prompt], case.instance) for case in cases]
    keys = [request_key(given.group, critic_prompt(given)) for given in inputs]
    missing = {k: i for k, i in zip(keys, inputs, strict=True) if k not in journal.rows}
    names = list(missing)
    for batch in critic.answers(list(missing.values())):
        for i, answer in batch.items():
            row = {"token": answer.token, "probability": answer.probability}
            journal.append(names[i], row)
    return [journal.rows[key]["token"] for key in keys]


def _retrieve(
    retriever: Runnable[str, list[Document]], found: Journal, queries: list[str]
) -> list[list[Passage]]:
    """Find passages for each query; those in the journal are not looked for again."""
    missing = [query for query in dict.fromkeys(queries) if query not in found.rows]
    for start in range(0, len(missing), 64):
        batch = missing[start : start + 64]
        try:
            results = retriever.batch(batch, {"max_concurrency": 8})
        except Exception as error:
            reason = f"{describe_error(error)}; the same command resumes from here"
            raise RetrievalFailed(reason) from error
        for query, documents in zip(batch, results, strict=True):
            texts = [(title_of(d), d.page_content) for d in documents if d.page_content.strip()]
            found.append(query, {"passages": texts})
    return [[Passage(*texts) for texts in found.rows[query]["passages"]] for query in queries]


def _fingerprint(checkpoint: Path) -> str:
    """A digest of a folder's weights: a place may be reused by another critic."""
    files = sorted([*checkpoint.glob("*.safetensors"), *checkpoint.glob("*.bin")])
    return digest(hashlib.file_digest(path.open("rb"), "sha256").hexdigest() for path in files)
