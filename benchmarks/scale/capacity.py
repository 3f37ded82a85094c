"""On paper, past this machine: what a question asks of a 7B model by construction, what a GPU does
by its roofline, and what a million questions a day and a billion passages take."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.scale.simulate import (
    Ask,
    Call,
    Cpu,
    Model,
    Outcome,
    Question,
    Station,
    Step,
    System,
    limited,
    roofline,
    simulate,
)

PUBLISHED: Mapping[str, Any] = tomllib.loads(
    Path(__file__).with_name("published.toml").read_text(encoding="utf-8")
)
PARAMETERS, LAYERS, WIDTH = 6.74e9, 32, 4096
"""Of Llama-2-7B, which Self-RAG's generator is."""
WEIGHT_BYTES, CACHE_BYTES = 2, 2 * LAYERS * WIDTH * 2
"""Of a parameter in 16 bits, and of a token's keys and values."""
EVALUATOR_PARAMETERS = 0.385e9
"""Of the encoder, half of T5-large; the decoder reads one token."""
ARITHMETIC, LOW, HIGH = 0.4, 0.3, 0.5
"""Share of a GPU's arithmetic that a prefill reaches: assumed, and its range."""
FILLED = 0.9
"""Share of a GPU's memory that is used, vLLM's default."""
MEMORY: float = PUBLISHED["a100_decode"]["share"]
"""Share of its bandwidth that decoding reaches, as published for an A100."""
QUESTION, PASSAGE, ANSWER, RATIONALE, STRIP = 60, 150, 60, 200, 50
"""Tokens, assumed: the question with its instruction, a passage of 100 words with its title, an
answer or a segment, a rationale, a strip."""
PASSAGES, GRADED, BEAMS, SEGMENTS = 5, 10, 2, 4
REWRITE, QUERY, DEMONSTRATION = 300, 15, 350
"""Tokens, assumed: of the prompt that rewrites, of the query that it gives, of a demonstration."""
STRIPS = 25
"""Strips graded of ten passages, assumed; web pages take as many again."""
IN_FLIGHT, QUESTIONS = 256, 512
"""Of a GPU at a time, and simulated for each."""
GRAPHS = (
    "plain RAG",
    "Self-RAG, short",
    "Self-RAG, long",
    "CRAG",
    "Self-CRAG",
    "InstructRAG, fine-tuned",
)
"""Rows of the table of what saturates first."""
DAY, PEAK, USE = 86_400, 3.0, 0.7
"""Seconds of a day; the busiest hour over the mean, and how busy a GPU may be: assumed."""


CARDS = ("h100", "a100", "l4")


class Options(NamedTuple):
    """What changes the cost of a question."""

    prefix_cache: bool = True
    kept: int = PASSAGES
    """Passages that pruning leaves of five."""
    retrieves: float = 1.0
    """Share of the questions that want evidence."""
    searches: float = 0.5
    """Share of the questions for which CRAG searches the web."""
    cached: float = 0.0
    """Share of the questions that a cache of results answers."""


class Work(NamedTuple):
    """What a question asks for."""

    steps: Question
    prompts: Sequence[int]
    """Prompt tokens of each call, with what a prefix cache saves."""

    @property
    def calls(self) -> list[Call]:
        """Of the model."""
        return [step for step in self.steps if isinstance(step, Call)]

    @property
    def computed(self) -> int:
        """Prompt tokens that are computed."""
        return sum(call.prefill for call in self.calls)

    @property
    def generated(self) -> int:
        """Tokens."""
        return sum(sum(call.generated) for call in self.calls)

    @property
    def context(self) -> float:
        """Tokens that a decoding row reads, on average: its prompt and half of what it writes."""
        spent = 0.0
        for call, tokens in zip(self.calls, self.prompts, strict=True):
            each = tokens / len(call.generated)
            spent += sum(length * (each + length / 2) for length in call.generated)
        return spent / self.generated

    def requests(self, station: str) -> int:
        """To a station."""
        return sum(s.requests for s in self.steps if isinstance(s, Ask) and s.station == station)


def _call(shared: int, own: int, lengths: Sequence[int], cache: bool) -> tuple[Call, int]:
    """Prompts with a beginning of ``shared`` tokens that was read before, and ``own`` each."""
    whole = len(lengths) * (shared + own)
    return Call(len(lengths) * own if cache else whole, tuple(lengths)), whole


def rag(options: Options) -> list[Any]:
    """Plain RAG: one prompt with all passages."""
    return [Ask("store"), _call(0, QUESTION + PASSAGES * PASSAGE, [ANSWER], True)]


def self_rag(options: Options) -> list[Any]:
    """The decision, and a whole answer for each passage (Self-RAG's short form)."""
    lengths = [ANSWER] * options.kept + [1] * (PASSAGES - options.kept)
    evidence = _call(QUESTION, PASSAGE, lengths, options.prefix_cache)
    return [_call(0, QUESTION, [1], True), Ask("store"), evidence]


def self_rag_closed(options: Options) -> list[Any]:
    """Self-RAG where the model wants no evidence."""
    return [
        _call(0, QUESTION, [1], True),
        _call(QUESTION, 1, [ANSWER], options.prefix_cache),
    ]


def self_rag_long(options: Options) -> list[Any]:
    """Self-RAG's long form: at each segment every beam retrieves, and writes from each passage."""
    steps: list[Any] = [_call(0, QUESTION, [1], True)]
    for depth in range(SEGMENTS):
        beams = BEAMS if depth else 1
        lengths = ([ANSWER] * options.kept + [1] * (PASSAGES - options.kept)) * beams
        steps += [Ask("store")] * beams
        new, old = (
            (ANSWER + PASSAGE, QUESTION + (depth - 1) * ANSWER) if depth else (PASSAGE, QUESTION)
        )
        steps.append(_call(old, new, lengths, options.prefix_cache))
    return steps


def _corrected(options: Options, searches: bool) -> list[Any]:
    steps: list[Any] = [Ask("store"), Ask("evaluator", GRADED + STRIPS)]
    if searches:
        steps += [
            _call(REWRITE, QUESTION, [QUERY], options.prefix_cache),
            Ask("web"),
            Ask("evaluator", STRIPS),
        ]
    return steps


def crag(options: Options, searches: bool = False) -> list[Any]:
    """Grade, refine, search where the retrieval is bad, and write from the best strips."""
    return [
        *_corrected(options, searches),
        _call(0, QUESTION + PASSAGES * STRIP, [ANSWER], True),
    ]


def self_crag(options: Options, searches: bool = False) -> list[Any]:
    """Decide, correct as CRAG, and write as Self-RAG from the knowledge."""
    return [
        _call(0, QUESTION, [1], True),
        *_corrected(options, searches),
        _call(QUESTION, PASSAGES * STRIP, [ANSWER], options.prefix_cache),
    ]


def instruct_rag(options: Options) -> list[Any]:
    """One prompt with all passages, answered by a rationale."""
    return [Ask("store"), _call(0, QUESTION + PASSAGES * PASSAGE, [RATIONALE], True)]


def instruct_rag_icl(options: Options) -> list[Any]:
    """The same with two demonstrations, drawn anew for each question and so not shared."""
    own = QUESTION + PASSAGES * PASSAGE + 2 * DEMONSTRATION
    return [Ask("store"), _call(0, own, [RATIONALE], True)]


class Scenario(NamedTuple):
    """A graph under some options: its kinds of questions, and the share of each."""

    graph: str
    """Whose front end was measured."""
    mix: Sequence[tuple[float, list[Any]]]
    cached: float = 0.0

    def questions(self, count: int, front: float) -> list[Question]:
        """So many, kinds in turn; ``front`` is the front end's CPU seconds for each."""
        made, due = list[Question](), [0.0] * len(self.mix)
        for i in range(count):
            due = [d + share for d, (share, _) in zip(due, self.mix, strict=True)]
            kind = due.index(max(due))
            due[kind] -= 1
            hit = int((i + 1) * self.cached) > int(i * self.cached)
            made.append([Cpu("front end", front)] if hit else self.work(kind, front).steps)
        return made

    def work(self, kind: int, front: float = 0.0) -> Work:
        """One question of a kind."""
        steps: list[Step] = []
        prompts: list[int] = []
        for step in self.mix[kind][1]:
            if isinstance(step[0], Call):
                prompts.append(step[1])
                steps.append(step[0])
            else:
                steps.append(step)
        return Work([Cpu("front end", front), *steps] if front else steps, prompts)

    def mean(self, of: Any) -> float:
        """The mean of a property of :class:`Work` over the kinds."""
        found = sum(share * of(self.work(kind)) for kind, (share, _) in enumerate(self.mix))
        return float((1 - self.cached) * found)


def scenarios(options: Options) -> dict[str, Scenario]:
    """All rows of the page's tables."""
    pruned, uncached = options._replace(kept=2), options._replace(prefix_cache=False)
    half = [(0.5, self_rag(options)), (0.5, self_rag_closed(options))]
    return {
        "plain RAG": Scenario("instruct_rag", [(1.0, rag(options))]),
        "Self-RAG, short": Scenario("self_rag", [(1.0, self_rag(options))]),
        "… pruning to 2 of 5 passages": Scenario("self_rag", [(1.0, self_rag(pruned))]),
        "… half of the questions want evidence": Scenario("self_rag", half),
        "… without a prefix cache": Scenario("self_rag", [(1.0, self_rag(uncached))]),
        "… a third answered from a cache": Scenario("self_rag", [(1.0, self_rag(options))], 1 / 3),
        "Self-RAG, long": Scenario("self_rag", [(1.0, self_rag_long(options))]),
        "… long, pruning to 2 of 5": Scenario("self_rag", [(1.0, self_rag_long(pruned))]),
        "… long, without a prefix cache": Scenario("self_rag", [(1.0, self_rag_long(uncached))]),
        "CRAG": Scenario("crag", _searching(crag, options)),
        "Self-CRAG": Scenario("self_crag", _searching(self_crag, options)),
        "InstructRAG, fine-tuned": Scenario("instruct_rag", [(1.0, instruct_rag(options))]),
        "InstructRAG, two demonstrations": Scenario(
            "instruct_rag", [(1.0, instruct_rag_icl(options))]
        ),
    }


def _searching(graph: Any, options: Options) -> list[tuple[float, list[Any]]]:
    share = options.searches
    return [(share, graph(options, True)), (1 - share, graph(options, False))]


class GPU(NamedTuple):
    """A card's limits."""

    flops: float
    bandwidth: float
    memory: float
    arithmetic: float = ARITHMETIC

    @classmethod
    def of(cls, name: str, arithmetic: float = ARITHMETIC) -> "GPU":
        """A published one."""
        found = PUBLISHED[name]
        return cls(found["flops"], found["bandwidth"], found["memory"], arithmetic)

    @property
    def token(self) -> float:
        """Seconds of arithmetic for a token: twice the parameters, at the share reached."""
        return 2 * PARAMETERS / (self.flops * self.arithmetic)

    @property
    def weights(self) -> float:
        """Seconds to read the weights."""
        return PARAMETERS * WEIGHT_BYTES / (self.bandwidth * MEMORY)

    def row(self, context: float) -> float:
        """Seconds to read the keys and values of so many tokens."""
        return CACHE_BYTES * context / (self.bandwidth * MEMORY)

    def rows(self, context: float) -> int:
        """Rows of so many tokens whose keys and values its memory holds beside the weights."""
        room = self.memory * FILLED - PARAMETERS * WEIGHT_BYTES
        return int(room / (CACHE_BYTES * context))

    @property
    def graded(self) -> float:
        """Seconds for T5-large to grade a passage or a strip with its question."""
        tokens = QUESTION + (GRADED * PASSAGE + STRIPS * STRIP) / (GRADED + STRIPS)
        return 2 * EVALUATOR_PARAMETERS * tokens / (self.flops * self.arithmetic)


RESOURCES, MORE, BUSY = ("model", "front end", "store", "web", "evaluator"), 1.25, 0.7
"""What can saturate; how much more one is made to do, to see whether it does; and how busy it is
before it may."""


class Setup(NamedTuple):
    """Machines that answer."""

    gpu: GPU
    gpus: int = 1
    processes: int = 1
    """Of the front end, a core each."""
    store: float = PUBLISHED["store_50m"]["pgvectorscale"]
    """Queries a second."""
    web: float = PUBLISHED["tavily_limit"]["a_minute"] / 60
    """Searches a second."""
    faster: str = ""
    """A resource that does more than said."""

    def system(self, context: float) -> System:
        """For the simulator."""
        gpu = self.gpu
        more = {name: MORE if name == self.faster else 1.0 for name in RESOURCES}
        costs = gpu.weights, gpu.row(context), gpu.token
        cost = roofline(*(seconds / more["model"] for seconds in costs))
        model = Model(cost, most_rows=gpu.rows(context), replicas=self.gpus)
        return System(
            actors=self.processes,
            in_flight=max(IN_FLIGHT * self.gpus // self.processes, 1),
            cores=self.processes,
            model=model,
            stations={
                "store": limited(self.store * more["store"], 0.01),
                "web": limited(self.web * more["web"], 1.0),
                "evaluator": Station(gpu.graded / more["evaluator"]),
            },
        )


def run(scenario: Scenario, setup: Setup, front: Mapping[str, float]) -> Outcome:
    """Answer many questions, all there at once."""
    context = scenario._replace(cached=0.0).mean(lambda work: work.context)
    seconds = front[scenario.graph] / (MORE if setup.faster == "front end" else 1.0)
    return simulate(setup.system(context), scenario.questions(QUESTIONS * setup.gpus, seconds))


def first(scenario: Scenario, setup: Setup, front: Mapping[str, float]) -> dict[str, Any]:
    """Questions a second, and what saturates first: what raises them most if it does more.

    How busy a resource is does not say it: a model works on whatever it has, however little.
    """
    plain = run(scenario, setup, front)
    busy = [name for name in RESOURCES if plain.use.get(name, 0.0) > BUSY]
    rates = {name: run(scenario, setup._replace(faster=name), front).rate for name in busy}
    return {"rate": plain.rate, "saturated": max(rates, key=lambda name: rates[name])}


def setups() -> dict[str, Setup]:
    """Columns of the table of what saturates first."""
    h100 = GPU.of("h100")
    slow = PUBLISHED["store_50m"]["qdrant"]
    return {
        "1 GPU, 1 process": Setup(h100),
        "4 GPUs, 1 process": Setup(h100, 4),
        "4 GPUs, 8 processes": Setup(h100, 4, 8),
        "4 GPUs, 8 processes, slow store": Setup(h100, 4, 8, slow),
    }


def simulated(front: Mapping[str, float]) -> dict[str, Any]:
    """All figures of the page that come from the simulator."""
    rows = scenarios(Options())
    gpus = {card: GPU.of(card) for card in CARDS}
    gpus |= {"low": GPU.of("h100", LOW), "high": GPU.of("h100", HIGH)}
    return {
        "cards": {
            name: {row: run(found, in_plenty(gpu), front).rate for row, found in rows.items()}
            for name, gpu in gpus.items()
        },
        "first": {
            row: {name: first(rows[row], setup, front) for name, setup in setups().items()}
            for row in GRAPHS
        },
    }


def in_plenty(gpu: GPU) -> Setup:
    """One GPU, and more of all else than it can use."""
    return Setup(gpu, processes=8, store=1e6, web=1e6)


def gpus_for(rate: float, questions_a_day: float = 1e6) -> int:
    """GPUs that answer so many questions a day in the busiest hour, no busier than allowed."""
    wanted = questions_a_day / DAY * PEAK
    return max(-int(-wanted // (rate * USE)), 1)


def index_bytes(passages: float, dimensions: int, bytes_each: float = 4) -> float:
    """Memory of HNSW with all vectors in it, by Qdrant's rule."""
    return float(passages * dimensions * bytes_each * PUBLISHED["qdrant_memory"]["factor"])
