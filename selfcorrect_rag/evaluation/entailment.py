"""Entailment models for citations: opened by name, asked in batches, each pair of texts once."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

from selfcorrect_rag.errors import BadArgument, describe_error, find_named, require
from selfcorrect_rag.evaluation.citations import (
    Entails,
    citation_precision,
    official_citation_precision,
)
from selfcorrect_rag.evaluation.progress import Progress
from selfcorrect_rag.evaluation.rows import Outcome, Question
from selfcorrect_rag.models.checkpoints import loading, max_input_tokens, resolve_device
from selfcorrect_rag.models.identity import weights
from selfcorrect_rag.old_journal import Journal, only_run

JUDGED = "entailment.jsonl"
"""In a run's folder: what an entailment model said of each pair."""
MAX_TOKENS, BATCH = 512, 32
"""Most tokens of a pair that a classifier reads, and pairs of one forward pass."""
Pair = tuple[str, str]
"""Premise and hypothesis."""


class EntailmentModel(Protocol):
    """Says of pairs whether the premise entails the hypothesis."""

    identity: str
    """The same for the same answers."""

    def __call__(self, pairs: Sequence[Pair]) -> Iterator[bool]:
        """One truth value a pair, in their order."""


class NLIClassifier:
    """A sequence classifier for natural language inference, which is asked in batches."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        """Read which label means entailment from the model's configuration.

        Raises:
            BadArgument: none is called so.
        """
        labels = {index: str(name).lower() for index, name in model.config.id2label.items()}
        found = [index for index, name in labels.items() if name.startswith("entail")]
        if len(found) != 1:
            raise BadArgument(
                f"no label of the entailment model means entailment: {', '.join(labels.values())}"
            )
        self._model, self._tokenizer, self._label = model.eval(), tokenizer, int(found[0])
        self.identity = weights(model)

    @classmethod
    def load(cls, name: str) -> "NLIClassifier":
        """The classifier in a folder, or of a hub name.

        Raises:
            BadArgument: none of its labels means entailment.
            ModelNotFound: it cannot be read.
            MissingExtra: torch or transformers is not installed.
        """
        transformers = require("transformers", "local")
        device, dtype = resolve_device(None, None)
        with loading(name):
            tokenizer = transformers.AutoTokenizer.from_pretrained(name)
            model = transformers.AutoModelForSequenceClassification.from_pretrained(
                name, dtype=dtype
            )
        return cls(model.to(device), tokenizer)

    def __call__(self, pairs: Sequence[Pair]) -> Iterator[bool]:
        """One truth value a pair: whether entailment is its likeliest label."""
        torch = require("torch", "local")
        for start in range(0, len(pairs), BATCH):
            premises, hypotheses = zip(*pairs[start : start + BATCH], strict=True)
            encoded = self._tokenizer(
                list(premises),
                list(hypotheses),
                truncation=True,
                max_length=max_input_tokens(self._model, MAX_TOKENS),
                padding=True,
                return_tensors="pt",
            ).to(self._model.device)
            with torch.inference_mode():
                likeliest = self._model(**encoded).logits.argmax(-1)
            yield from (likeliest == self._label).tolist()


class EntailmentFunction:
    """A function of a premise and a hypothesis, which is asked one pair at a time."""

    def __init__(self, function: Entails, identity: str) -> None:
        self._function, self.identity = function, identity

    def __call__(self, pairs: Sequence[Pair]) -> Iterator[bool]:
        """One truth value a pair."""
        return (bool(self._function(*pair)) for pair in pairs)


def open_entailment(name: str) -> EntailmentModel:
    """The entailment model called ``name``: ``module:attribute`` of a function of a premise and a
    hypothesis, or the folder or hub name of a classifier.

    Raises:
        BadArgument: there is no such function, or none of the classifier's labels is entailment.
        ModelNotFound: the classifier cannot be read.
        MissingExtra: torch or transformers is not installed.
    """
    if not name.partition(":")[2] or Path(name).exists():
        return NLIClassifier.load(name)
    try:
        function = find_named(name, object)
    except Exception as error:  # any code runs where a module is imported
        raise BadArgument(f"{name} cannot be opened ({describe_error(error)})") from error
    if not callable(function):
        raise BadArgument(f"{name} is no function of a premise and a hypothesis")
    return EntailmentFunction(function, name)


class KeptEntailment:
    """An :data:`~.citations.Entails` whose answers are kept in the folder of a run."""

    def __init__(self, model: EntailmentModel, folder: Path) -> None:
        """Read what ``folder`` has of the model's answers.

        Raises:
            BadRun: its file is of no run.
        """
        self._model, self._folder, self.identity = model, folder, model.identity
        self._kept = Journal(folder / JUDGED)

    def __call__(self, premise: str, hypothesis: str) -> bool:
        """Whether the premise entails the hypothesis; asked where it is not kept."""
        if self._key((premise, hypothesis)) not in self._kept.rows:
            self._ask([(premise, hypothesis)])
        return self._known((premise, hypothesis), guess=False)

    def ask(self, rows: Iterable[tuple[Question, Outcome]]) -> None:
        """Ask in batches, with progress, all that citation metrics of ``rows`` depend on.

        Raises:
            BadRun: another process works in the folder.
        """
        rows = list(rows)
        guess = False
        with only_run(self._folder):
            while missing := self._missing(rows, guess):
                self._ask(missing)
                guess = True

    def _missing(self, rows: Sequence[tuple[Question, Outcome]], guess: bool) -> list[Pair]:
        """Pairs to ask next, longest last. What is not known is guessed so that nothing is asked
        in vain: first that no sentence is entailed, then that each citation alone entails it."""
        missing: dict[Pair, None] = {}

        def entails(premise: str, hypothesis: str) -> bool:
            if self._key((premise, hypothesis)) not in self._kept.rows:
                missing[premise, hypothesis] = None
            return self._known((premise, hypothesis), guess)

        for question, outcome in rows:  # what recall asks, precision asks too
            citation_precision(question, outcome, entails)
            official_citation_precision(question, outcome, entails)
        return sorted(missing, key=lambda pair: sum(map(len, pair)))

    def _ask(self, pairs: Sequence[Pair]) -> None:
        with closing(Progress(len(pairs), "entailment")) as bar:
            for pair, entailed in zip(pairs, self._model(pairs), strict=True):
                self._kept.append(self._key(pair), {"hypothesis": pair[1], "entails": entailed})
                bar.count()

    def _known(self, pair: Pair, guess: bool) -> bool:
        return bool(self._kept.rows.get(self._key(pair), {"entails": guess})["entails"])

    def _key(self, pair: Pair) -> str:
        known = json.dumps([self.identity, *pair])
        return hashlib.sha256(known.encode()).hexdigest()
