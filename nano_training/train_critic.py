"""Trains the nano critic on a teacher's labels. It answers as a fine-tuned critic does, and the
prompts of tables 8 to 12, and questions, as a chat model would.

    OMP_WAIT_POLICY=PASSIVE python -m nano_training.train_critic --out DIR

With ``--labels`` the nano critic goes on, to label a generator's data and nothing else.

The same command goes on from the newest checkpoint after a kill and ends in the same weights.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from nano_training.batches import Encoded, spans_of
from nano_training.completions import BranchedBatches, Completion, Piece, encode
from nano_training.models import critic_path
from nano_training.real_text import with_real_text
from nano_training.rows import MAIN, new_row
from nano_training.teacher import WRITING, Labelled, judgements, judgements_of, labelled_by_teacher
from nano_training.tokenizer import BOS, EOS, PAD
from nano_training.trainer import Trainer, TrainingSettings, export, train_and_log
from nano_training.world import World
from selfcorrect_rag.errors import require
from selfcorrect_rag.models.critic import critic_input, critic_prompt
from selfcorrect_rag.nano import generator_path
from selfcorrect_rag.prompts.chat import answer_prompt
from selfcorrect_rag.prompts.critic import CRITIQUE_PROMPTS
from selfcorrect_rag.reflection import CONTROL_TOKENS

TEMPLATE = "{{ bos_token }}{% for message in messages %}{{ message['content'] + '\n' }}{% endfor %}"
"""A conversation is its texts, a line break after each."""
CASES = 6000
"""Questions that the teacher judges."""
LABEL = 4.0
"""Weight of a label in the loss; a word of an answer has 1."""
QUESTIONS_PER_CHUNK = 16
"""Made-up questions whose judgements share rows."""
ROW = 2048
"""Most tokens of a row: a table's instructions and demonstrations, and what is asked under them."""


class Stage(NamedTuple):
    """A part of a training. Of its judgements a share ``judged`` is learned, and of these a share
    ``chat`` asked as of a chat model, in long prompts; answers are so asked alone."""

    settings: TrainingSettings
    judged: float = 1.0
    chat: float = 0.4


CRITIC = TrainingSettings(
    steps=4000, hint_weight=0.5, easy_share=0.25, learning_rate=2e-3, decay_start=0.3, threads=1
)
"""The first share reads short passages."""
STAGES = (
    Stage(CRITIC),
    Stage(
        replace(CRITIC, steps=500, easy_share=0.0, learning_rate=1e-3, decay_start=0.12, seed=2),
        judged=0.25,
    ),
)
"""Answers, which are rare, are learned in both."""
LABELS = (
    Stage(
        replace(CRITIC, steps=500, easy_share=0.0, learning_rate=1.2e-3, decay_start=0.2, seed=3),
        chat=0.0,
    ),
)
"""After them, of a critic that labels a generator's data, and is asked in no other way."""


class CriticBatches(BranchedBatches):
    """One prompt a row, with what is asked under its instructions as branches: some as a chat
    model is asked, by the paper's tables, and some as a fine-tuned critic is."""

    name = "critic"

    def __init__(
        self,
        settings: TrainingSettings,
        tokenizer: PreTrainedTokenizerFast,
        cases: Sequence[Sequence[Labelled]],
        stage: Stage,
    ) -> None:
        """``cases``: the instances of one question each."""
        super().__init__(settings, tokenizer)
        self._cases, self._stage = cases, stage

    def rows(self, world: World, early: bool) -> list[Encoded]:
        stage, asked = self._stage, defaultdict[tuple[str, bool], list[Completion]](list)
        easy = len(self._cases) // 4
        for case in world.random.sample(
            self._cases[:easy] if early else self._cases, QUESTIONS_PER_CHUNK
        ):
            for made in case:
                is_answer = made.prompt == WRITING
                learned = stage.chat if is_answer else stage.judged
                if not learned or (not is_answer and not world.chance(learned)):
                    continue
                is_chat = is_answer or world.chance(stage.chat)
                asked[made.prompt, is_chat].append(_completion(made, is_chat))
        return [row for texts in asked.values() for row in _rows(self.tokenizer, texts)]


def critic_cases(count: int, seed: int, data: Path | None = None) -> list[list[Labelled]]:
    """Instances of ``count`` questions; passages of the first quarter are short.

    Where ``data`` has real text, one in three is instead what three of a generator's rows say, of
    which a third is real.
    """
    world = World(f"critic/{seed}")
    real = with_real_text(MAIN, data) if data else None
    cases = []
    for number in range(count):
        most = 1 if number < count // 4 else world.choice((1, 2, 4))
        if real and number % 3 == 0:
            cases.append([made for _ in range(3) for made in judgements_of(new_row(world, real))])
        else:
            cases.append(list(judgements(world, most)))
    return cases


def _completion(made: Labelled, is_chat: bool) -> Completion:
    """A judgement, or an answer, as it is asked for."""
    if made.prompt == WRITING:
        messages = answer_prompt(made.instance, sentence=False)
        text = "".join(f"{message.text}\n" for message in messages)
        return Completion(_with_hints(text, made), [Piece(made.label)])
    prompt = CRITIQUE_PROMPTS[made.prompt]
    if is_chat:
        text, label = f"{prompt.prompt(made.instance)}\n", made.label
    else:
        text = critic_prompt(critic_input(prompt, made.instance))
        label = prompt.tokens_by_label[made.label]
    return Completion(_with_hints(text, made), [Piece(label, LABEL)])


def _with_hints(prompt: str, made: Labelled) -> list[Piece]:
    """A prompt in whose evidence the words that answer the question have a hint of 1."""
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
    parser.add_argument("--data", type=Path, help="folder of real text to learn from too")
    parser.add_argument(
        "--labels", action="store_true", help="go on from the nano critic, to label"
    )
    args = parser.parse_args()
    folder: Path = args.out
    folder.mkdir(parents=True, exist_ok=True)
    stages = LABELS if args.labels else STAGES
    cases = critic_cases(CASES, CRITIC.seed, args.data)
    every = [made for case in cases for made in case]
    with require("tqdm", "train").tqdm(desc="labels", unit="") as bar:
        labels = iter(labelled_by_teacher(every, folder / "labels", bar.update))
    cases = [[next(labels) for _ in case] for case in cases]
    start = critic_path() if args.labels else generator_path()
    for number, stage in enumerate(stages, start=1):
        part = folder / f"stage-{number}"
        part.mkdir(exist_ok=True)
        data = partial(CriticBatches, cases=cases, stage=stage)
        trainer = Trainer(stage.settings, part, start=start, data=data)
        train_and_log(trainer, f"stage {number} ")
        start = (folder if number == len(stages) else part) / "critic"
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
