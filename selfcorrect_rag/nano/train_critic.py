"""Trains the nano critic, from the nano generator: it answers the prompts of tables 8 to 12, and
questions, as a chat model would.

    OMP_WAIT_POLICY=PASSIVE python -m selfcorrect_rag.nano.train_critic --out DIR

The same command goes on from the newest checkpoint after a kill and ends in the same weights.
"""

import argparse
import json
import re
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from selfcorrect_rag.asking_prompts import writing_prompt
from selfcorrect_rag.critic_prompts import ASPECTS
from selfcorrect_rag.nano.batches import Encoded
from selfcorrect_rag.nano.completions import Completion, Lessons, Piece, encode
from selfcorrect_rag.nano.embedded import generator_path
from selfcorrect_rag.nano.judgements import WRITING, Labelled, judgements
from selfcorrect_rag.nano.tokenizer import BOS, EOS, PAD
from selfcorrect_rag.nano.train import Settings, Trainer, export
from selfcorrect_rag.nano.world import World
from selfcorrect_rag.reflection import CONTROL_TOKENS

CRITIC = Settings(steps=1300, hints=0.3, early=0.15, rate=2e-3, flat=0.3, threads=1)
"""The first share reads short passages."""
TEMPLATE = "{{ bos_token }}{% for message in messages %}{{ message['content'] + '\n' }}{% endfor %}"
"""A conversation is its texts, a line break after each."""
TOGETHER = 6
"""Made-up questions whose judgements share rows."""
ROW = 2048
"""Most tokens of a row: a table's instructions and demonstrations, and what is asked under them."""


class CriticLessons(Lessons):
    """A table a row, with what is asked under it as branches."""

    name = "critic"

    def rows(self, world: World, early: bool) -> list[Encoded]:
        asked: dict[str, list[Completion]] = defaultdict(list)
        for _ in range(TOGETHER):
            for made in judgements(world, 1 if early else world.choice((1, 3, 5))):
                asked[made.aspect].append(_completion(made))
        return [row for texts in asked.values() for row in _rows(self.tokenizer, texts)]


def _completion(made: Labelled) -> Completion:
    """A judgement, or an answer, as a chat model is asked for it."""
    if made.aspect == WRITING:
        messages = writing_prompt(made.instance, sentence=False)
        text = "".join(f"{message.text}\n" for message in messages)
    else:
        text = f"{ASPECTS[made.aspect].prompt(made.instance)}\n"
    return Completion(_told(text, made), [Piece(made.label)])


def _told(prompt: str, made: Labelled) -> list[Piece]:
    """A prompt whose evidence is told which of its words answer the question."""
    if made.answer is None:
        return [Piece(prompt)]
    evidence = made.instance.evidence.splitlines()[-1]
    start = prompt.rindex(evidence)
    stop = start + len(evidence)
    pieces, last = [Piece(prompt[:start])], start
    if made.answer:
        for found in re.finditer(rf"(?<!\w){re.escape(made.answer)}(?!\w)", prompt[:stop], re.I):
            if found.start() >= start:
                pieces.append(Piece(prompt[last : found.start()], hint=0.0))
                pieces.append(Piece(found[0], hint=1.0))
                last = found.end()
    return [*pieces, Piece(prompt[last:stop], hint=0.0), Piece(prompt[stop:])]


def _rows(tokenizer: PreTrainedTokenizerFast, texts: Sequence[Completion]) -> list[Encoded]:
    made = encode(tokenizer, texts)
    if len(made) <= ROW or len(texts) == 1:
        return [made]
    half = len(texts) // 2
    return [*_rows(tokenizer, texts[:half]), *_rows(tokenizer, texts[half:])]


def main() -> None:
    """Train and export to DIR/critic."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for checkpoints and result")
    folder: Path = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    trainer = Trainer(CRITIC, folder, start=generator_path(), data=CriticLessons)
    began, losses = time.time(), []
    for step, _, loss in trainer.run():
        losses.append(loss)
        if step % CRITIC.log_every == 0 or step == CRITIC.steps:
            mean = sum(losses) / len(losses)
            took = time.time() - began
            print(f"step {step}/{CRITIC.steps}  loss {mean:.4f}  {took:.0f} s", flush=True)
            losses.clear()
    export(trainer.model, chat_tokenizer(trainer.tokenizer), folder / "critic")


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
