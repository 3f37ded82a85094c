"""Trains the nano critic on a teacher's labels. It answers as a fine-tuned critic does, and the
prompts of tables 8 to 12, and questions, as a chat model would.

    OMP_WAIT_POLICY=PASSIVE python -m selfcorrect_rag.nano.train_critic --out DIR

The same command goes on from the newest checkpoint after a kill and ends in the same weights.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from selfcorrect_rag.asking_prompts import writing_prompt
from selfcorrect_rag.critic_prompts import ASPECTS
from selfcorrect_rag.extras import require
from selfcorrect_rag.models.critic import critic_prompt
from selfcorrect_rag.nano.batches import Encoded, spans_of
from selfcorrect_rag.nano.completions import Completion, Lessons, Piece, encode
from selfcorrect_rag.nano.embedded import generator_path
from selfcorrect_rag.nano.judgements import WRITING, Labelled, judgements
from selfcorrect_rag.nano.teacher import labelled_by_teacher
from selfcorrect_rag.nano.tokenizer import BOS, EOS, PAD
from selfcorrect_rag.nano.train import Settings, Trainer, export, train_aloud
from selfcorrect_rag.nano.world import World
from selfcorrect_rag.reflection import CONTROL_TOKENS
from selfcorrect_rag.training.critic_data import critic_asked

CRITIC = Settings(steps=4000, hints=0.5, early=0.25, rate=2e-3, flat=0.3, threads=1)
"""The first share reads short passages."""
STAGES = (CRITIC, replace(CRITIC, steps=500, early=0.0, rate=1e-3, flat=0.12, seed=2))
JUDGED = 1.0, 0.25
"""Share of the judgements that each stage learns; answers, which are rare, are learned in both."""
TEMPLATE = "{{ bos_token }}{% for message in messages %}{{ message['content'] + '\n' }}{% endfor %}"
"""A conversation is its texts, a line break after each."""
CASES = 6000
"""Made-up questions that the teacher judges."""
CHAT = 0.4
"""Share that is asked as of a chat model; those prompts are long."""
LABEL = 4.0
"""Weight of a label in the loss; a word of an answer has 1."""
TOGETHER = 16
"""Made-up questions whose judgements share rows."""
ROW = 2048
"""Most tokens of a row: a table's instructions and demonstrations, and what is asked under them."""


class CriticLessons(Lessons):
    """One aspect a row, with what is asked under its instructions as branches: some as a chat
    model is asked, by the paper's tables, and some as a fine-tuned critic is."""

    name = "critic"

    def __init__(
        self,
        settings: Settings,
        tokenizer: PreTrainedTokenizerFast,
        cases: Sequence[Sequence[Labelled]],
        judged: float = 1.0,
    ) -> None:
        """``cases``: what is asked about one made-up question each; ``judged``: share of the
        judgements among it that are learned."""
        super().__init__(settings, tokenizer)
        self._cases, self._judged = cases, judged

    def rows(self, world: World, early: bool) -> list[Encoded]:
        asked: dict[tuple[str, bool], list[Completion]] = defaultdict(list)
        easy = len(self._cases) // 4
        for case in world.random.sample(self._cases[:easy] if early else self._cases, TOGETHER):
            for made in case:
                is_answer = made.aspect == WRITING
                if self._judged < 1 and not is_answer and not world.chance(self._judged):
                    continue
                is_chat = is_answer or world.chance(CHAT)
                asked[made.aspect, is_chat].append(_completion(made, is_chat))
        return [row for texts in asked.values() for row in _rows(self.tokenizer, texts)]


def critic_cases(count: int, seed: int) -> list[list[Labelled]]:
    """What the rule is asked about ``count`` made-up questions; passages of the first quarter are
    short."""
    world = World(f"critic/{seed}")
    return [
        list(judgements(world, 1 if number < count // 4 else world.choice((1, 2, 4))))
        for number in range(count)
    ]


def _completion(made: Labelled, is_chat: bool) -> Completion:
    """A judgement, or an answer, as it is asked for."""
    if made.aspect == WRITING:
        messages = writing_prompt(made.instance, sentence=False)
        text = "".join(f"{message.text}\n" for message in messages)
        return Completion(_told(text, made), [Piece(made.label)])
    aspect = ASPECTS[made.aspect]
    if is_chat:
        text, label = f"{aspect.prompt(made.instance)}\n", made.label
    else:
        text = critic_prompt(critic_asked(aspect, made.instance))
        label = aspect.choices[made.label]
    return Completion(_told(text, made), [Piece(label, LABEL)])


def _told(prompt: str, made: Labelled) -> list[Piece]:
    """A prompt whose evidence is told which of its words answer the question."""
    if made.answer is None:
        return [Piece(prompt)]
    evidence = made.instance.evidence.splitlines()[-1]  # a passage's last line is its text
    start = prompt.rindex(evidence)
    stop = start + len(evidence)
    pieces, last = [Piece(prompt[:start])], start
    for begin, end in spans_of(made.answer, prompt, start, stop):
        pieces += [Piece(prompt[last:begin], hint=0.0), Piece(prompt[begin:end], hint=1.0)]
        last = end
    return [*pieces, Piece(prompt[last:stop], hint=0.0), Piece(prompt[stop:])]


def _rows(tokenizer: PreTrainedTokenizerFast, texts: Sequence[Completion]) -> list[Encoded]:
    made = encode(tokenizer, texts)
    if len(made) <= ROW or len(texts) == 1:
        return [made]
    half = len(texts) // 2
    return [*_rows(tokenizer, texts[:half]), *_rows(tokenizer, texts[half:])]


def main() -> None:
    """Have the cases labelled, train stage by stage, and export to DIR/critic."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for checkpoints and result")
    parser.add_argument("--start", type=Path, default=generator_path(), help="what to begin from")
    args = parser.parse_args()
    folder: Path = args.out
    folder.mkdir(parents=True, exist_ok=True)
    cases = critic_cases(CASES, CRITIC.seed)
    every = [made for case in cases for made in case]
    with require("tqdm", "train").tqdm(desc="labels", unit="") as bar:
        labels = iter(labelled_by_teacher(every, folder / "labels", bar.update))
    cases = [[next(labels) for _ in case] for case in cases]
    start: Path = args.start
    for number, (settings, judged) in enumerate(zip(STAGES, JUDGED, strict=True), start=1):
        stage = folder / f"stage-{number}"
        stage.mkdir(exist_ok=True)
        data = partial(CriticLessons, cases=cases, judged=judged)
        trainer = Trainer(settings, stage, start=start, data=data)
        train_aloud(trainer, f"stage {number} ")
        start = (folder if number == len(STAGES) else stage) / "critic"
        export(trainer.model, chat_tokenizer(trainer.tokenizer), start)


def chat_tokenizer(tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """The generator's tokenizer for a chat model, to which reflection tokens are text."""
    inner = json.loads(tokenizer.backend_tokenizer.to_str())
    for token in inner["added_tokens"]:
        token["special"] = token["content"] not in CONTROL_TOKENS
    made = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=Tokenizer.from_str(json.dumps(inner)),
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=tokenizer.model_max_length,
    )
    made.chat_template = TEMPLATE
    return made


if __name__ == "__main__":
    main()
