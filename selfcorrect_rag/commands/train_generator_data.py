"""``selfcorrect-rag train generator-data``: reflection tokens and passages by Algorithm 3."""

import argparse
import dataclasses
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from langchain_core.documents import Document
from langchain_core.runnables import Runnable

from selfcorrect_rag.commands.actor_options import (
    CALLS,
    opened_actors,
)
from selfcorrect_rag.commands.ray_options import add_ray_options, check_ray_options
from selfcorrect_rag.commands.terminal import as_json, tell
from selfcorrect_rag.commands.training_options import (
    add_calls,
    add_files,
    add_settings,
    count,
    refuse_own_data,
    settings_from,
)
from selfcorrect_rag.errors import require
from selfcorrect_rag.journal import FAILURES, digest_of_ids, digest_of_weights, run_folder
from selfcorrect_rag.models.by_name import find_language_model
from selfcorrect_rag.models.critic import Critic, TransformersCritic
from selfcorrect_rag.models.engines.vllm_critic import VLLMCritic
from selfcorrect_rag.search.index import Index
from selfcorrect_rag.search.open_index import find_embeddings, open_index
from selfcorrect_rag.serving.config import BadOption
from selfcorrect_rag.serving.options import HARDWARE_OPTIONS, add_options, config_from
from selfcorrect_rag.serving.parts import quiet_vllm
from selfcorrect_rag.training.generator_data import (
    CHUNK_SIZE,
    DECISIONS,
    GeneratorDataSettings,
    generator_data_cost,
    make_generator_data,
)
from selfcorrect_rag.training.generator_rows import read_generator_rows


def add_parser(kinds: Any) -> None:
    """Register ``generator-data``."""
    parser = kinds.add_parser(
        "generator-data",
        help="the data of Self-RAG's generator, by a critic and an index",
        description="Put passages and reflection tokens into outputs, as a critic judges them. The "
        "same command goes on after a kill and tries again what failed; the exit code is 1 where "
        "rows are left out because of that.",
    )
    add_files(
        parser,
        'JSONL rows {"instruction": ..., "output": ...}, with or without input, id, dataset_name',
        out="the same rows, augmented, in JSONL",
    )
    parser.add_argument(
        "--critic",
        required=True,
        metavar="NAME|MODULE:ATTRIBUTE|PROVIDER:MODEL",
        help="the folder or hub name of a critic (see train critic); or any LangChain model, a "
        "name with a colon",
    )
    parser.add_argument(
        "--index", required=True, metavar="DIR", help="where passages are (see index)"
    )
    parser.add_argument(
        "--embeddings",
        metavar="minilm|MODULE:ATTRIBUTE",
        help="what a Chroma index was made with; minilm by default",
    )
    add_settings(parser, GeneratorDataSettings)
    parser.add_argument(
        "--chunk-size",
        type=count,
        default=CHUNK_SIZE,
        metavar="ROWS",
        help="rows augmented in lockstep, in common batches; default: %(default)s",
    )
    parser.add_argument(
        "--batch-size",
        type=count,
        metavar="PROMPTS",
        help="prompts of a critic's forward pass; default: 8, with vllm 256. On Ray and with a "
        f"language model: most calls of an actor at a time; default: {CALLS}",
    )
    parser.add_argument(
        "--engine",
        choices=["transformers", "vllm"],
        default="transformers",
        help="what runs a critic; default: %(default)s",
    )
    add_options(parser, HARDWARE_OPTIONS, grouped=False)
    add_calls(parser, "calls of a language model or searches")
    add_ray_options(parser, "processes that hold the models")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Show what it costs, make the rows, and print a report."""
    _check(args)
    refuse_own_data(args)
    rows = read_generator_rows(args.data)
    index = _index(args.index, args.embeddings)
    settings = _settings(args, index)
    tell(as_json(dataclasses.asdict(settings)))
    cost = generator_data_cost(rows, args.out, settings)
    tell(
        f"{cost.rows:,} rows to make: from {cost.fewest:,} labels, if none needs retrieval, to "
        f"{cost.most:,}, if each sentence does",
    )
    if args.estimate:
        return 0
    with (
        _opened(args, index, settings.top_k) as (critic, retriever),
        require("tqdm", "train").tqdm(
            total=cost.rows, desc="rows", unit="", file=sys.stderr
        ) as bar,
    ):
        labels = 0

        def show(more: int) -> None:
            nonlocal labels
            labels += more
            bar.set_postfix(labels=labels, refresh=False)
            bar.update(0)

        report = make_generator_data(
            critic,
            retriever,
            rows,
            args.out,
            settings,
            chunk_size=args.chunk_size,
            max_concurrency=args.max_concurrency,
            on_rows=bar.update,
            on_labels=show,
        )
    tell(as_json(dataclasses.asdict(report), indent=2))
    folder = run_folder(args.out)
    tell(f"the rows are in {args.out}, what was decided about each in {folder / DECISIONS}")
    if report.failed or report.malformed:
        tell(f"rows that are left out, and why: {folder / FAILURES}")
    return int(report.failed > 0)


def _check(args: argparse.Namespace) -> None:
    check_ray_options(args)
    config = config_from(args)
    if _is_language_model(args.critic) and config.engine == "vllm":
        raise BadOption(f"--engine vllm is for a critic, and {args.critic} is any model")


def _settings(args: argparse.Namespace, index: Index) -> GeneratorDataSettings:
    """The settings, where critic and index are named by what they hold: a place may be reused."""
    settings = settings_from(args, GeneratorDataSettings)
    critic, passages = Path(args.critic), index.ids()
    return dataclasses.replace(
        settings,
        critic=f"{critic} ({digest_of_weights(critic)})" if critic.is_dir() else args.critic,
        index=f"{args.index} ({len(passages)} passages, {digest_of_ids(passages)})",
    )


def _index(path: str, embeddings: str | None) -> Index:
    return open_index(path, find_embeddings(embeddings) if embeddings else None)


def _retriever(path: str, embeddings: str | None, top_k: int) -> Runnable[str, list[Document]]:
    return _index(path, embeddings).as_retriever(top_k)


@contextmanager
def _opened(
    args: argparse.Namespace, index: Index, top_k: int
) -> Iterator[tuple[Critic | Runnable[Any, Any], Runnable[str, list[Document]]]]:
    """The critic, and the retriever of ``index``: here or on actors."""
    make, is_model = _make_critic(args), _is_language_model(args.critic)
    if args.on == "ray":
        from selfcorrect_rag.bulk.actors import ActorCritic, ActorRunnable

        parts: dict[str, Callable[[], Any]] = {
            "critic": make,
            "index": partial(_retriever, args.index, args.embeddings, top_k),
        }
        # A fine-tuned critic is not thread-safe; it makes its batches of one call.
        calls = (args.batch_size or CALLS) if is_model else 1
        with opened_actors(args, parts, calls) as actors:
            critic: Critic | Runnable[Any, Any] = (
                ActorRunnable(actors, "critic") if is_model else ActorCritic(actors, "critic")
            )
            yield critic, ActorRunnable(actors, "index")
        return
    made = make()
    with made if isinstance(made, VLLMCritic) else nullcontext():
        yield made, index.as_retriever(top_k)


def _make_critic(args: argparse.Namespace) -> Callable[[], Critic | Runnable[Any, Any]]:
    """What makes the critic, from names alone."""
    config = config_from(args)
    batch = {"batch": args.batch_size} if args.batch_size else {}
    if _is_language_model(args.critic):
        return partial(
            find_language_model,
            args.critic,
            temperature=args.temperature,
            max_tokens=args.max_tokens,
        )
    if config.engine == "vllm":
        return partial(_vllm_critic, args.critic, **batch, **config.engine_arguments)
    return partial(
        TransformersCritic.from_pretrained,
        args.critic,
        device=config.device,
        dtype=config.dtype,
        **batch,
    )


def _vllm_critic(name: str, **options: Any) -> VLLMCritic:
    quiet_vllm()
    return VLLMCritic(name, **options)


def _is_language_model(name: str) -> bool:
    return ":" in name and not Path(name).exists()
