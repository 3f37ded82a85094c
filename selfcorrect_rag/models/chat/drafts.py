"""A segment that a chat model writes and criticises in calls of their own."""

from collections.abc import Sequence

from selfcorrect_rag.models.chat.forms import ABSENT, Choice, Form, Slot
from selfcorrect_rag.models.chat.rounds import Cost
from selfcorrect_rag.models.chat.writing import Written
from selfcorrect_rag.prompts.aspect import Aspect, Instance
from selfcorrect_rag.prompts.chat import Asked, joined_prompt, together_prompt, verdict
from selfcorrect_rag.prompts.critic import ISREL, ISSUP, ISUSE, RETRIEVE_MORE, registered_prompts
from selfcorrect_rag.reflection import TOKENS, Group, Reflection, critique_score
from selfcorrect_rag.state.self_rag import Piece, Segment


class Draft:
    """A segment on its way: what is asked for, what was written, and what was said of it."""

    def __init__(self, asked: Asked) -> None:
        """Nothing is written yet."""
        self.asked = asked
        self.text, self.is_pruned = "", False
        self.reflections: list[Reflection] = []
        self.next: Reflection | None = None
        self._written: Written | None = None
        self._cost = Cost()

    @property
    def question(self) -> tuple[str, str]:
        """What passages are judged for: the question, and what stands before the segment."""
        return self.asked.instance.instruction, self.asked.instance.preceding_sentences

    @property
    def has_evidence(self) -> bool:
        """Whether there is a passage to answer from."""
        return bool(self.asked.instance.evidence.strip())

    @property
    def isrel(self) -> float:
        """ISREL's score; one that is absent ranks between relevant and irrelevant ones."""
        return critique_score(self.reflections[0]) if self.reflections else 0.5

    @property
    def aspects(self) -> list[Aspect]:
        """What is asked about it once it is written."""
        support = [ISSUP] if self.has_evidence else []
        is_open = self._written is not None and self._written.is_open
        asks = {"passage": self.has_evidence, "segment": True, "answer": not is_open}
        own = [prompt for group, prompt in registered_prompts() if asks[group.judges]]
        return [*support, RETRIEVE_MORE if is_open else ISUSE, *own]

    @property
    def all_of_it(self) -> Instance:
        """What the critiques are about."""
        instance = self.asked.instance
        whole = f"{instance.preceding_sentences} {self.text}".strip()
        return instance._replace(segment=self.text or whole, output=whole)

    def spend(self, cost: Cost) -> None:
        """Count calls that were made for it."""
        self._cost = self._cost.plus(cost)

    def take(self, aspect: Aspect, choice: Choice | None) -> None:
        """Take a critique, which may be absent."""
        if choice is None:
            return
        before = len(self.reflections) + (self._written.tokens if self._written else 0)
        reflection = _reflection(aspect, choice, before)
        if aspect is RETRIEVE_MORE:
            self.next = reflection
        else:
            self.reflections.append(reflection)

    def take_text(self, written: Written) -> None:
        """Take what the model wrote."""
        self._written, self.text = written, written.text
        self.spend(written.cost)

    def segment(self) -> Segment:
        """The segment, as a model that writes reflection tokens would have given it."""
        written = self._written
        control = [Piece(kind="control", text=r["token"]) for r in self.reflections]
        first = 1 if self.reflections and self.reflections[0]["group"] == Group.ISREL else 0
        text = [Piece(kind="text", text=self.text)] if self.text else []
        mean = None if written is None else written.mean_logprob
        reason = "pruned" if self.is_pruned else written.finish_reason if written else "end"
        tokens = max(self._cost.tokens, written.tokens if written else 0)
        return Segment(
            text=self.text,
            pieces=[*control[:first], *text, *control[first:]],
            reflections=self.reflections,
            next=self.next,
            finish_reason="retrieval" if self.next else reason,
            tokens=tokens,
            logprob=None if mean is None else mean * tokens,
            prompt_tokens=self._cost.prompt_tokens,
            shortened=0,
            requests=self._cost.requests,
        )


def form(aspects: Sequence[Aspect], instance: Instance) -> Form:
    """What asks for these aspects of an instance in one call."""
    if len(aspects) == 1:
        return Form(aspects[0].prompt(instance), (Slot(aspects[0].labels),))
    slots = tuple(Slot(aspect.labels, verdict(aspect)) for aspect in aspects)
    return Form(joined_prompt(aspects, instance), slots)


def relevance(instances: Sequence[Instance]) -> Form:
    """What asks for the ISREL of passages for one question in one call."""
    if len(instances) == 1:
        return form([ISREL], instances[0])
    slots = tuple(Slot(ISREL.labels, str(number)) for number in range(1, len(instances) + 1))
    return Form(together_prompt(ISREL, instances), slots)


def _reflection(aspect: Aspect, choice: Choice, position: int) -> Reflection:
    given = {aspect.choices[label]: value for label, value in choice.logprobs.items()}
    return Reflection(
        group=aspect.group,
        position=position,
        token=aspect.choices[choice.label],
        logprobs={token: given.get(token, ABSENT) for token in TOKENS[aspect.group]},
        prompted="hard" if choice.is_hard else "soft",
    )
