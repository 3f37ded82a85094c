"""Self-RAG's generator: its data, outputs with a critic's reflection tokens and retrieved passages
(3.2.2, A.2, Algorithm 3), and its fine-tuning on them (Algorithm 2, B.1)."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from random import Random
from typing import Any

from langchain_core.documents import Document
from langchain_core.runnables import Runnable
from pydantic import PositiveInt

from selfcorrect_rag.errors import (
    BadTrainingData,
    PromptTooLong,
    RetrievalFailed,
    require,
    wrap_errors,
)
from selfcorrect_rag.intake import title_of
from selfcorrect_rag.journal import Journal, open_run, refuse_foreign, run_folder, write_rows
from selfcorrect_rag.models.critic import Critic, critic_input
from selfcorrect_rag.models.engines.tokens import ControlledTokenizer
from selfcorrect_rag.prompts.critic import CRITIQUE_PROMPTS, Instance
from selfcorrect_rag.prompts.parts import Part, Prompt, quoted
from selfcorrect_rag.prompts.self_rag import instruction_parts, question_text
from selfcorrect_rag.reflection import (
    CONTINUE,
    CONTROL_TOKENS,
    END_PARAGRAPH,
    FULLY_SUPPORTED,
    GROUP_OF,
    NO_RETRIEVAL,
    PARAGRAPH,
    PARTIALLY_SUPPORTED,
    RELEVANT,
    RETRIEVAL,
)
from selfcorrect_rag.search import open_index
from selfcorrect_rag.training import fine_tuning
from selfcorrect_rag.training.fine_tuning import CausalOptions, Examples
from selfcorrect_rag.training.rows import Filled, Options, Progress, Row, Share, hold_out, read_rows

DECISIONS = "decisions.jsonl"
"""In the run's folder: what was found, judged and chosen for each row."""
CHUNK = 64
"""Rows that are decided together, in large batches; a killed run loses at most their labels."""


class GeneratorDataOptions(Options):
    """Options of ``train generator-data``, the paper's; rows are {instruction, output} and perhaps
    input, id, dataset_name."""

    critic: str = ""
    """Folder or hub name of a critic."""
    index: str = ""
    """Folder of the index that is searched."""
    top_k: PositiveInt = 10
    """Maximum passages of a query (section 4)."""
    seed: int = 0
    """Seed of the choice if no passage supports a sentence."""


class GeneratorOptions(CausalOptions, model="meta-llama/Llama-2-7b-hf"):
    """Options of ``train generator``, Self-RAG's for 7B; rows are {instruction, output, input}, as
    generator-data writes them."""

    held_out_ratio: Share = 0.02
    """Share of the questions held out for the report."""


class GeneratorRow(Row):
    """A row with the official keys, and whether its output is wrong."""

    instruction: Filled
    output: Filled
    input: str = ""
    id: str = ""
    dataset_name: str = ""
    wrong: bool = False
    """Then its tokens are learned, and its text is not."""

    @property
    def question(self) -> str:
        """The instruction as a generator is asked it at inference."""
        return question_text(self.input, self.instruction) if self.input else self.instruction


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


@dataclass
class Segment:
    """A sentence of an output, and what was decided about it."""

    case: Instance
    evidence: Sequence[Passage]
    """Passages found for the whole output."""
    wanted: str = RETRIEVAL
    passages: list[Passage] = field(default_factory=list)
    chosen: int | None = None
    """Index of the passage that the sentence is written from."""


Pair = tuple[Segment, Passage]
Judge = Callable[[str, list[Instance]], list[str]]
Retrieve = Callable[[list[str]], list[list[Passage]]]
Decisions = dict[str, Any]
"""Everything that was decided about a row, as JSON; ``augmented`` is the row with passages and
reflection tokens in its output."""


def augment(
    rows: Sequence[GeneratorRow], judge: Judge, retrieve: Retrieve, *, top_k: int, seed: int = 0
) -> list[Decisions]:
    """Decide about ``rows`` in the order of Algorithm 3.

    All rows together, so that ``judge`` (tokens by a prompt of ``CRITIQUE_PROMPTS``) and
    ``retrieve`` (passages for each query, best first) get large batches. ``seed`` decides which
    passage is taken if none supports a sentence.
    """

    def ask(prompt: str, cases: list[Pair]) -> Iterator[tuple[Pair, str]]:
        asked = [s.case._replace(evidence=p.whole) for s, p in cases]
        return zip(cases, judge(prompt, asked), strict=True)

    wholes = [Instance(row.instruction, row.input, row.output, segment=row.output) for row in rows]
    read = [i for i, token in enumerate(judge("retrieval", wholes)) if token == RETRIEVAL]
    found = retrieve([_query(wholes[i]) for i in read])
    segments = {i: _split(wholes[i], passages) for i, passages in zip(read, found, strict=True)}
    every = [segment for of_row in segments.values() for segment in of_row]
    # What a sentence needs, by the output's first passage (A.2).
    seen = [(s, s.evidence[0]) for s in every if s.evidence]
    for (segment, _), token in ask("multi_retrieval", seen):
        segment.wanted = token
    own = [s for s in every if s.wanted == RETRIEVAL]
    found = retrieve([_query(s.case) for s in own])
    for segment, passages in zip(own, found, strict=True):
        segment.passages = passages[:top_k]
    for of_row in segments.values():
        is_read = False
        for segment in of_row:
            if segment.wanted == CONTINUE and not is_read:
                # The critic saw this passage; the generator has read another one, or none.
                segment.passages = [replace(segment.evidence[0])]
            is_read = segment.wanted == CONTINUE or (is_read and segment.wanted == NO_RETRIEVAL)
    # ISREL of each passage, and ISSUP of the relevant ones (section 3.2.2).
    each = [(s, p) for s in every for p in s.passages]
    for (_, passage), token in ask("relevance", each):
        passage.isrel = token
    for (_, passage), token in ask("groundness", [(s, p) for s, p in each if p.isrel == RELEVANT]):
        passage.issup = token
    return [
        _record(row, segments.get(i, []), utility, top_k, seed)
        for i, (row, utility) in enumerate(zip(rows, judge("utility", wholes), strict=True))
    ]


def _record(
    row: GeneratorRow, segments: Sequence[Segment], utility: str, top_k: int, seed: int
) -> Decisions:
    """Choose a passage for each segment, and write the output with passages and tokens."""
    output, last = "" if segments else NO_RETRIEVAL + quoted(row.output), ""
    for i, segment in enumerate(segments):
        text = quoted(segment.case.segment.rstrip(" "))
        if segment.wanted == CONTINUE and last == segment.evidence[0].whole:
            output += CONTINUE + text
        elif segment.passages and segment.wanted != NO_RETRIEVAL:
            segment.chosen = choose_passage(segment.passages, Random(f"{seed}:{row.digest}:{i}"))
            passage = segment.passages[segment.chosen]
            last = passage.whole
            output += f"{RETRIEVAL}{PARAGRAPH}{quoted(last)}{END_PARAGRAPH}"
            output += f"{passage.isrel}{text}{passage.issup}"
        else:
            output += NO_RETRIEVAL + text
    given = {"instruction": quoted(row.instruction), "input": quoted(row.input)}
    augmented = row.model_copy(update={**given, "output": output + utility})
    return {
        "row": row.model_dump(),
        "evidence": [asdict(p) for s in segments[:1] for p in s.evidence[:top_k]],
        "segments": [
            {"text": s.case.segment, "wanted": s.wanted, "passages": passages, "chosen": s.chosen}
            for s in segments
            for passages in [list(map(asdict, s.passages))]
        ],
        "augmented": augmented.model_dump(),
    }


def _query(case: Instance) -> str:
    texts = (case.instruction, case.input, case.segment)
    return " ".join(text.strip() for text in texts if text.strip())


def _split(whole: Instance, evidence: Sequence[Passage]) -> list[Segment]:
    segments, before = [], ""
    for sentence in split_sentences(whole.output):
        case = whole._replace(segment=sentence, preceding_sentences=before)
        segments.append(Segment(case, evidence))
        before += sentence
    return segments


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

    The same call resumes after a kill. In the run's folder, ``decisions.jsonl`` has what was
    decided about each row. ``critic`` and ``retriever`` are by default those that the options name.
    Returns the number of ``rows``, and the counts of the control ``tokens`` written.
    """
    rows, folder = read_rows(options.data, GeneratorRow), run_folder(options.out)
    once = {row.digest: row for row in rows}
    refuse_foreign(options.out, DECISIONS)
    with ExitStack() as stack:
        if retriever is None:
            retriever = open_index(options.index).as_retriever(options.top_k)
        if critic is None:
            critic = stack.enter_context(Critic.from_pretrained(options.critic))
        stack.enter_context(open_run(folder, options.identity))
        decided = Journal(folder / DECISIONS)
        missing = [row for digest, row in once.items() if digest not in decided.rows]
        judge, retrieve = partial(_judge, critic), partial(_retrieve, retriever)
        for start in range(0, len(missing), CHUNK):
            chunk = missing[start : start + CHUNK]
            made = augment(chunk, judge, retrieve, top_k=options.top_k, seed=options.seed)
            for row, decisions in zip(chunk, made, strict=True):
                decided.append(row.digest, decisions)
                if progress:
                    progress(1, len(missing))
        made = [decided.rows[row.digest] for row in rows]
        write_rows(options.out, (row["augmented"] for row in made))
    written = Counter(t for row in made for t in _CONTROL.findall(row["augmented"]["output"]))
    return {"rows": len(rows), "tokens": dict(written)}


def _judge(critic: Critic, prompt: str, cases: list[Instance]) -> list[str]:
    inputs = [critic_input(CRITIQUE_PROMPTS[prompt], case) for case in cases]
    once = list(dict.fromkeys(inputs))
    tokens = dict(zip(once, critic.judge(once), strict=True))
    return [tokens[given] for given in inputs]


def _retrieve(retriever: Runnable[str, list[Document]], queries: list[str]) -> list[list[Passage]]:
    with wrap_errors(RetrievalFailed, "the retriever"):
        results = retriever.batch(queries, {"max_concurrency": 8})
    return [
        [Passage(title_of(d), d.page_content) for d in found if d.page_content.strip()]
        for found in results
    ]


def train_generator(
    options: GeneratorOptions, progress: Progress = None, *, base: tuple[Any, Any] | None = None
) -> dict[str, Any]:
    """Fine-tune Self-RAG's generator, a causal model that retrieves, writes and criticises.

    Its vocabulary grows by the control tokens that it lacks. The result is ``out / "generator"``;
    :func:`~.fine_tuning.tune_causal` describes the report.
    """
    rows = read_rows(options.data, GeneratorRow)
    if not any(part.text in GROUP_OF for row in rows for part, _ in output_parts(row.output)):
        raise BadTrainingData("no output has a reflection token; `train generator-data` adds them")
    run_id = fine_tuning.prepare(options, rows)
    model, tokenizer, longest = fine_tuning.load_decoder(options, base)
    add_control_tokens(model, tokenizer)
    controlled = ControlledTokenizer(tokenizer)
    parts = hold_out(rows, options.held_out_ratio)
    train, held_out = (generator_examples(part, controlled, longest) for part in parts)
    tokens, out = controlled.control_ids.values(), options.out / "generator"
    _, report = fine_tuning.tune_causal(
        model, tokenizer, train, options, run_id, out, held_out=held_out, tokens=tokens
    )
    return fine_tuning.write_report(options.out, report)


_SPAN = re.compile(f"{re.escape(PARAGRAPH)}(.*?){re.escape(END_PARAGRAPH)}", re.DOTALL)
_CONTROL = re.compile(f"({'|'.join(map(re.escape, CONTROL_TOKENS))})")


def output_parts(output: str, wrong: bool = False) -> Iterator[tuple[Part, bool]]:
    """Yield the parts of an output, and whether each is learned.

    Learned are the text, unless the output is ``wrong``, the reflection tokens and ``<paragraph>``,
    which the model writes after ``[Retrieval]``. Each passage is masked on its own (section 3.2.2),
    with its ``</paragraph>``: the retriever decides where a passage ends, and in it nothing is a
    token.
    """
    for number, stretch in enumerate(_SPAN.split(output.strip())):
        if number % 2:
            yield Part(PARAGRAPH, "control"), True
            yield Part(stretch, "untrusted", shorten=1), False
            yield Part(END_PARAGRAPH, "control"), False
            continue
        for text in filter(None, _CONTROL.split(stretch)):
            if text in (PARAGRAPH, END_PARAGRAPH):
                raise BadTrainingData(f"{text} without its other half in the output {output!r:.80}")
            is_token = text in GROUP_OF
            yield Part(text, "control" if is_token else "untrusted"), is_token or not wrong


def generator_examples(
    rows: Sequence[GeneratorRow], tokenizer: ControlledTokenizer, longest: int
) -> Examples:
    """Encode rows behind the masked prompt of inference, each to at most ``longest`` ids: a longer
    row loses the ends of its passages, the longest first, and is left out if that is not enough."""
    found = Examples()
    for row in rows:
        prompt = [(part._replace(shorten=0), False) for part in instruction_parts(row.question)]
        parts, learned = zip(*prompt, *output_parts(row.output, row.wrong), strict=True)
        try:
            encoded = tokenizer.encode([Prompt(parts=parts)], longest - 1)[0]
        except PromptTooLong:
            found.left_out += 1
            continue
        found.shortened += encoded.shortened > 0
        is_learned = [owner >= 0 and learned[owner] for owner in encoded.owners]
        found.add([*encoded.ids, tokenizer.eos_id or 0], [*is_learned, True])
    return found


def add_control_tokens(model: Any, tokenizer: Any) -> int:
    """Add the control tokens that ``tokenizer`` lacks, and return how many. Their rows of embedding
    and head start as the mean of all earlier rows; spare rows of the model are used first."""
    import torch
    from tokenizers import AddedToken

    known, present = len(tokenizer), tokenizer.get_added_vocab()
    missing = [token for token in CONTROL_TOKENS if token not in present]
    if not missing:
        return 0
    new = [AddedToken(token, special=True, normalized=False) for token in missing]
    tokenizer.add_tokens(new, special_tokens=True)
    if len(tokenizer) > len(model.get_input_embeddings().weight):
        model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    ids = tokenizer.convert_tokens_to_ids(missing)
    with torch.no_grad():
        for end in (model.get_input_embeddings(), model.get_output_embeddings()):
            end.weight[ids] = end.weight[:known].float().mean(0).to(end.weight.dtype)
    return len(missing)
