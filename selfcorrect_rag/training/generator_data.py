"""The generator's training data (Self-RAG 3.2.2, A.2, Algorithm 3), resumable at each label."""

import dataclasses
import hashlib
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Literal

from langchain_core.documents import Document
from langchain_core.runnables import Runnable, RunnableConfig
from pydantic import Field, PositiveInt

from selfcorrect_rag.errors import RetrievalFailed, describe_error
from selfcorrect_rag.journal import FAILURES, Journal, digest, run_folder, write_rows
from selfcorrect_rag.models.critic import Critic, critic_input, critic_prompt
from selfcorrect_rag.models.from_name import find_language_model
from selfcorrect_rag.prompts.critic import CRITIQUE_PROMPTS
from selfcorrect_rag.reflection import RELEVANT
from selfcorrect_rag.search import open_index
from selfcorrect_rag.training.augmentation import (
    SUPPORTING,
    Critique,
    Label,
    Passage,
    augment,
    split_sentences,
)
from selfcorrect_rag.training.critic_data import critique_request
from selfcorrect_rag.training.generator import GeneratorRow, read_generator_rows
from selfcorrect_rag.training.labelling import (
    MALFORMED,
    LabellingOptions,
    Labels,
    open_labels,
    request_key,
)
from selfcorrect_rag.training.rows import Progress, title_of

DECISIONS = "decisions.jsonl"
"""In the run's folder: what was found, judged and chosen for each row."""
PARTS = "parts"
"""Beside it: the answers for rows that are not decided yet."""
QUERIES = 64
"""Queries of one batch of the retriever."""


class GeneratorDataOptions(LabellingOptions):
    """Options of ``train generator-data``; defaults are the paper's if it has one."""

    run_only = LabellingOptions.run_only | {"engine", "engine_options", "chunk_size"}

    critic: str
    """Folder or hub name of a critic; with a colon, a language model's name."""
    index: str
    """Folder of the index that is searched."""
    top_k: PositiveInt = 10
    """Maximum passages of a query (section 4)."""
    language: str = "en"
    """Language of the outputs, by which sentences are split, in ISO 639-1."""
    seed: int = 0
    """Seed of the choice if no passage supports a sentence."""
    max_tokens: PositiveInt = 200
    """Longest answer of a PROVIDER:MODEL, in tokens."""
    max_attempts: PositiveInt = 2
    """Maximum answers of a language model while they are malformed."""
    engine: Literal["transformers", "vllm"] = "transformers"
    """The engine that runs a critic."""
    engine_options: dict[str, Any] = Field(default_factory=dict)
    """Arguments of Critic.from_pretrained or Critic.on_vllm."""
    chunk_size: PositiveInt = 64
    """Rows whose labels share batches."""


def generator_data_cost(
    rows: Sequence[GeneratorRow], out: Path, options: GeneratorDataOptions
) -> dict[str, int]:
    """The ``rows`` that are left, and bounds of the labels they need: the ``fewest``, if no row
    needs retrieval, and the ``most``, if each sentence does and all passages are relevant."""
    done = Journal(run_folder(out) / DECISIONS).rows
    left = {row.digest: row for row in rows if row.digest not in done}.values()
    sentences = sum(len(split_sentences(row.output, options.language)) for row in left)
    most = 2 * len(left) + sentences * (1 + 2 * options.top_k)
    return {"rows": len(left), "fewest": 2 * len(left), "most": most}


def make_generator_data(
    critic: Critic | Runnable[Any, Any],
    retriever: Runnable[str, list[Document]],
    rows: Sequence[GeneratorRow],
    out: Path,
    options: GeneratorDataOptions,
    *,
    progress: Progress = None,
) -> dict[str, Any]:
    """Write each row with passages and reflection tokens in its output, in the order of ``rows``.

    The same call resumes after a kill: only labels and queries in flight are asked for twice. In
    the run's folder, ``decisions.jsonl`` has what was decided about each row, ``failures.jsonl``
    the rows that are left out, and why. Equal rows are judged once.

    Args:
        critic: a fine-tuned critic, or a LangChain model, asked with the paper's prompts.
        retriever: returns passages for a query, best first.
        rows: rows without reflection tokens.
        out: the JSONL file, with the official keys.
        options: see :class:`GeneratorDataOptions`; ``critic`` and ``index`` are only names here.
        progress: called for each finished row.

    Returns:
        ``rows``, ``written``, ``failed`` (tried again by the next run), ``malformed`` (left out for
        good); ``labels`` by prompt and token; ``segments`` of rows with retrieval, those ``read``
        from a passage, and how many of these are ``relevant`` and ``supporting``; the ``calls``.

    Raises:
        RetrievalFailed: the retriever raised; what came before is kept. See also
            :func:`~.labelling.open_labels` and :meth:`~.labelling.Labels.ask`.
    """
    folder, once = run_folder(out), {row.digest: row for row in rows}
    calls = 0
    with open_labels(out, options, DECISIONS):
        decided, failed = Journal(folder / DECISIONS), Journal(folder / FAILURES)
        for start in range(0, len(once), options.chunk_size):
            chunk = list(once.values())[start : start + options.chunk_size]
            chunk = [row for row in chunk if row.digest not in decided.rows]
            if not chunk:
                continue
            part = folder / PARTS / str(start)
            part.mkdir(parents=True, exist_ok=True)
            labels = Labels.at(part)
            decisions = augment(
                chunk,
                partial(_judge, critic, labels, options),
                partial(_retrieve, retriever, Journal(part / "passages.jsonl"), options),
                top_k=options.top_k,
                language=options.language,
                seed=options.seed,
            )
            calls += labels.calls
            for one in decisions:
                if one.augmented:
                    dumped = {
                        name: getattr(one, name).model_dump() for name in ("row", "augmented")
                    }
                    decided.append(one.row.digest, dataclasses.asdict(one) | dumped)
                else:
                    row = {"id": one.row.id, "instruction": one.row.instruction}
                    failed.append(one.row.digest, {**row, "reason": one.failure})
                if progress:
                    progress(1, None)
            if all(one.augmented for one in decisions):
                shutil.rmtree(part)
        failed.keep(once.keys() - decided.rows.keys())
        written = [decided.rows[row.digest] for row in rows if row.digest in decided.rows]
        write_rows(out, (row["augmented"] for row in written))
    reasons = [failed.rows[row.digest]["reason"] for row in rows if row.digest in failed.rows]
    malformed = reasons.count(MALFORMED)
    counts = {"rows": len(rows), "written": len(written), "failed": len(reasons) - malformed}
    return {**counts, "malformed": malformed, **_count(written), "calls": calls}


def _judge(
    critic: Critic | Runnable[Any, Any],
    run: Labels,
    options: GeneratorDataOptions,
    cases: list[Critique],
) -> list[Label]:
    """Labels for ``cases``; those in the journal are not asked for again."""
    prompts = [CRITIQUE_PROMPTS[case.prompt] for case in cases]
    if isinstance(critic, Critic):
        inputs = [critic_input(p, case.instance) for p, case in zip(prompts, cases, strict=True)]
        keys = [request_key(given.group, critic_prompt(given)) for given in inputs]
        missing = dict(zip(keys, inputs, strict=True))
        missing = {key: given for key, given in missing.items() if key not in run.labels.rows}
        names = list(missing)
        for batch in critic.answers(list(missing.values())):
            run.calls += 1
            for i, answer in batch.items():
                row = {"token": answer.token, "probability": answer.probability}
                run.labels.append(names[i], row)
    else:
        requests = [
            critique_request(prompt, case.instance, options.max_attempts)
            for prompt, case in zip(prompts, cases, strict=True)
        ]
        run.ask(critic, requests, options.max_concurrency)
        keys = [request.key for request in requests]
    found = ({**run.failures.rows, **run.labels.rows}[key] for key in keys)
    return [Label(row.get("token"), row.get("probability"), row.get("reason", "")) for row in found]


def _retrieve(
    retriever: Runnable[str, list[Document]],
    found: Journal,
    options: GeneratorDataOptions,
    queries: list[str],
) -> list[list[Passage]]:
    """Passages for each query, best first; those in the journal are not looked for again."""
    config = RunnableConfig(max_concurrency=options.max_concurrency)
    missing = [query for query in dict.fromkeys(queries) if query not in found.rows]
    for start in range(0, len(missing), QUERIES):
        batch = missing[start : start + QUERIES]
        try:
            results = retriever.batch(batch, config)
        except Exception as error:
            reason = f"{describe_error(error)}; the same command resumes from here"
            raise RetrievalFailed(reason) from error
        for query, documents in zip(batch, results, strict=True):
            filled = [document for document in documents if document.page_content.strip()]
            found.append(query, {"passages": list(map(_passage, filled))})
    return [[Passage(**passage) for passage in found.rows[q]["passages"]] for q in queries]


def _passage(document: Document) -> dict[str, Any]:
    score = document.metadata.get("score")
    return {
        "id": str(document.id or ""),
        "title": title_of(document).replace("\n", " "),
        "text": document.page_content,
        "score": float(score) if isinstance(score, int | float) else None,
    }


def _count(written: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Count decisions, as JSON."""
    segments = [segment for row in written for segment in row["segments"]]
    passages = [passage for segment in segments for passage in segment["passages"]]
    read = [s["passages"][s["chosen"]] for s in segments if s["chosen"] is not None]
    labels: dict[str, dict[str, int]] = {}
    for prompt, judged, name in (
        ("retrieval", written, "retrieve"),
        ("multi_retrieval", segments, "retrieve"),
        ("relevance", passages, "isrel"),
        ("groundness", passages, "issup"),
        ("utility", written, "utility"),
    ):
        given = Counter(one[name]["token"] or one[name]["reason"] for one in judged)
        labels[prompt] = {token: n for token, n in sorted(given.items()) if token}
    return {
        "labels": labels,
        "segments": len(segments),
        "read": len(read),
        "relevant": sum(passage["isrel"]["token"] == RELEVANT for passage in read),
        "supporting": sum(passage["issup"]["token"] in SUPPORTING for passage in read),
    }


def _fingerprint(checkpoint: Path) -> str:
    """A digest of a folder's weights: a place may be reused by another critic."""
    files = sorted([*checkpoint.glob("*.safetensors"), *checkpoint.glob("*.bin")])
    return digest(hashlib.file_digest(path.open("rb"), "sha256").hexdigest() for path in files)


def _open_critic(options: GeneratorDataOptions) -> Critic | Runnable[Any, Any]:
    if ":" in options.critic and not Path(options.critic).exists():
        limits = {"temperature": options.temperature, "max_tokens": options.max_tokens}
        return find_language_model(options.critic, **limits)
    if options.engine == "vllm":
        return Critic.on_vllm(options.critic, **options.engine_options)
    return Critic.from_pretrained(options.critic, **options.engine_options)


def run(data: Path, out: Path, options: GeneratorDataOptions, progress: Progress) -> dict[str, Any]:
    """Augment a file with a critic and an index; see :func:`make_generator_data`."""
    rows, checkpoint = read_generator_rows(data), Path(options.critic)
    if options.estimate:
        return dict(generator_data_cost(rows, out, options))
    critic = _open_critic(options)
    is_open = critic if isinstance(critic, Critic) else nullcontext()
    with open_index(options.index) as index, is_open:
        names = {"index": f"{options.index} ({digest(sorted(index.finished().items()))})"}
        if checkpoint.is_dir():
            names["critic"] = f"{checkpoint} ({_fingerprint(checkpoint)})"
        named, retriever = options.model_copy(update=names), index.as_retriever(options.top_k)
        return make_generator_data(critic, retriever, rows, out, named, progress=progress)
