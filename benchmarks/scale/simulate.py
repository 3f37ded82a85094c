"""A discrete-event simulation of many questions: what they wait for, and what saturates first.

A question is a sequence of steps. Actors take batches of questions from a common list and have
some in flight at a time, as Ray Data's do; with a rate, questions arrive by chance instead. Steps
need threads of their actor (on the machine's cores), a model that batches, or a station: a store,
or a web search that allows so many requests a second. Times are in seconds.
"""

import math
import random
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import simpy

QUANTUM = 0.004
"""Seconds that a thread has a core for, where others wait."""
OTHERS, OURS = 0, 1
"""Priorities: what others use of the machine is given, and not ours to take."""
Wait = Generator[simpy.Event, Any, None]


class Cpu(NamedTuple):
    """Work of one thread of the actor, such as its event loop; one question's at a time."""

    thread: str
    seconds: float


class Call(NamedTuple):
    """Prompts sent to the model together."""

    prefill: int
    """Prompt tokens to compute, without those in a prefix cache."""
    generated: tuple[int, ...]
    """Tokens generated for each prompt, at least 1: the first comes with the prefill."""


class Ask(NamedTuple):
    """Requests to a station, one behind the other."""

    station: str
    requests: int = 1


Step = Cpu | Call | Ask
Question = Sequence[Step]
Cost = Callable[[int, int], float]
"""Seconds of one forward pass, by its prompt tokens and its decoding rows."""


def linear(step: float, prefill: float, decode: float) -> Cost:
    """So much for a pass, for each prompt token and for each decoding row: a CPU."""
    return lambda tokens, rows: step + prefill * tokens + decode * rows


def roofline(weights: float, row: float, token: float) -> Cost:
    """The longer of memory and arithmetic: a GPU.

    Args:
        weights: seconds to read the weights once.
        row: to read one decoding row's keys and values.
        token: of arithmetic for one token.
    """
    return lambda tokens, rows: max(weights + row * rows, token * (tokens + rows))


@dataclass(frozen=True)
class Model:
    """A model that batches."""

    cost: Cost
    most_tokens: int = 16_384
    """Most tokens of a forward pass."""
    most_rows: int = 1024
    continuous: bool = True
    """Whether calls join while others decode; else they wait until the batch has ended."""
    on_cores: bool = False
    """Whether it runs on the machine's cores, else on a GPU of its own."""
    shared: bool = True
    """One for all actors, else one each."""
    replicas: int = 1
    """Of a shared one: calls go to the one with the fewest rows."""


@dataclass(frozen=True)
class Station:
    """Something that answers requests."""

    seconds: float
    """Of service for a request."""
    servers: int = 1
    latency: float = 0.0
    """Until the answer is here, while the server serves others."""
    exponential: bool = False
    """Whether the service time is drawn, with ``seconds`` as its mean; else it is constant."""


def limited(per_second: float, latency: float = 0.0) -> Station:
    """A station that takes so many requests a second."""
    return Station(1 / per_second, latency=latency)


@dataclass(frozen=True)
class System:
    """What answers questions."""

    actors: int = 1
    in_flight: int = 1
    """Most questions of an actor at a time."""
    batch: int | None = None
    """Questions that an actor takes at a time, and ends before it takes more; None: one by one."""
    cores: int = 2
    others: float = 0.0
    """Cores that other programs use meanwhile, from 0 to below ``cores``."""
    model: Model | None = None
    stations: Mapping[str, Station] = field(default_factory=dict)
    driver: float = 0.0
    """CPU seconds of the driver and of Ray for a question."""


@dataclass(frozen=True)
class Outcome:
    """What came of a simulation."""

    questions: int
    seconds: float
    latencies: Sequence[float]
    """From taking a question up to its answer, ascending."""
    mean_in_flight: float
    """Over time, counted apart from the latencies."""
    use: Mapping[str, float]
    """Share of the time that each resource was busy; 1 is saturated."""

    @property
    def rate(self) -> float:
        """Questions a second."""
        return self.questions / self.seconds

    def percentile(self, share: float) -> float:
        """The latency that this share of the questions does not exceed."""
        return self.latencies[max(math.ceil(share * len(self.latencies)) - 1, 0)]

    @property
    def saturated(self) -> str:
        """The busiest resource."""
        return max(self.use, key=lambda name: self.use[name])


def simulate(
    system: System, questions: Sequence[Question], *, rate: float | None = None, seed: int = 0
) -> Outcome:
    """Answer all questions, in order.

    Args:
        system: what answers them.
        questions: their steps.
        rate: questions that arrive a second, by chance; by default all are there at once.
        seed: of what is drawn.
    """
    return _Run(system, questions, rate, random.Random(seed)).outcome()


class _Server:
    """A model that works, or a GPU's replica of it."""

    def __init__(self, run: "_Run", model: Model) -> None:
        self._run, self._model = run, model
        self._waiting: deque[tuple[Call, simpy.Event]] = deque()
        self._wake = run.env.event()
        self.rows = 0
        run.env.process(self._work())

    @property
    def load(self) -> int:
        """Rows that decode or wait."""
        return self.rows + sum(len(call.generated) for call, _ in self._waiting)

    def submit(self, call: Call) -> simpy.Event:
        """The event of its last token."""
        done = self._run.env.event()
        self._waiting.append((call, done))
        if not self._wake.triggered:
            self._wake.succeed()
        return done

    def _work(self) -> Wait:
        step, left = 0, 0  # prompt tokens of the first waiting call that are still to be computed
        ending: Counter[int] = Counter()
        done: dict[int, list[simpy.Event]] = defaultdict(list)
        while True:
            if not self.rows and not self._waiting:
                self._wake = self._run.env.event()
                yield self._wake
            tokens, begun = 0, 0
            budget = self._model.most_tokens - self.rows
            if self.rows and not self._model.continuous:
                budget = 0
            while self._waiting and budget > 0:
                call, event = self._waiting[0]
                alone = not self.rows and not begun
                if not alone and self.rows + begun + len(call.generated) > self._model.most_rows:
                    break
                left = left or max(call.prefill, 1)
                part = min(left, budget)
                tokens, budget, left = tokens + part, budget - part, left - part
                if left == 0:
                    self._waiting.popleft()
                    begun += len(call.generated)
                    ending.update(step + length for length in call.generated)
                    done[step + max(call.generated)].append(event)
            seconds = self._model.cost(tokens, self.rows)
            yield from self._run.busy("model", seconds, self._model.on_cores)
            step += 1
            self.rows += begun - ending.pop(step, 0)
            for event in done.pop(step, []):
                event.succeed()


class _Run:
    """One simulation."""

    def __init__(
        self,
        system: System,
        questions: Sequence[Question],
        rate: float | None,
        drawn: random.Random,
    ) -> None:
        self.env = simpy.Environment()
        self._system, self._questions, self._rate, self._drawn = system, questions, rate, drawn
        self._cores = simpy.PriorityResource(self.env, system.cores)
        self._driver = simpy.Resource(self.env, 1)
        self._stations = {
            name: simpy.Resource(self.env, station.servers)
            for name, station in system.stations.items()
        }
        self._busy: dict[str, float] = defaultdict(float)
        self._latencies: list[float] = []
        self._in_flight, self._area, self._changed = 0, 0.0, 0.0
        self._shared = self._servers(system.model) if system.model and system.model.shared else []

    def _servers(self, model: Model) -> list[_Server]:
        return [_Server(self, model) for _ in range(model.replicas)]

    def outcome(self) -> Outcome:
        """Run to the last answer."""
        whole, part = divmod(self._system.others, 1)
        for share in [1.0] * int(whole) + ([part] if part else []):
            self.env.process(self._other(share))
        waiting = iter(self._questions)
        actors = [self._actor(i, waiting) for i in range(self._system.actors)]
        self.env.run(self.env.all_of([self.env.process(actor) for actor in actors]))
        seconds = self.env.now
        self._count(0)
        system, servers = self._system, 1
        if system.model:
            servers = system.model.replicas if system.model.shared else system.actors
        width = {"cores": system.cores, "model": servers, "driver": 1}
        width |= {name: station.servers for name, station in system.stations.items()}
        use = {
            name: busy / seconds / width.get(name, system.actors)
            for name, busy in self._busy.items()
        }
        number = len(self._latencies)
        return Outcome(number, seconds, sorted(self._latencies), self._area / seconds, use)

    def _other(self, share: float) -> Wait:
        """Another program, which has its share of a core whatever we do; it makes up for waits."""
        used = 0.0
        while True:
            with self._cores.request(priority=OTHERS) as core:
                yield core
                owed = max(share * self.env.now - used, 0.0)
                turn = QUANTUM + owed / (1 - share) if share < 1 else math.inf
                yield self.env.timeout(turn)
            used += turn
            yield self.env.timeout(QUANTUM * (1 / share - 1))

    def _actor(self, number: int, waiting: Iterator[Question]) -> Wait:
        system = self._system
        threads: dict[str, simpy.Resource] = defaultdict(lambda: simpy.Resource(self.env, 1))
        servers = self._shared
        if system.model and not system.model.shared:
            servers = self._servers(system.model)
        places = simpy.Resource(self.env, system.in_flight)
        running: list[simpy.Event] = []
        for question in waiting:
            if self._rate is not None:
                yield self.env.timeout(self._drawn.expovariate(self._rate / system.actors))
            place = places.request()
            if self._rate is None:
                yield place
            running.append(self.env.process(self._answer(question, place, threads, servers)))
            if system.batch and len(running) == system.batch:
                yield self.env.all_of(running)
                running = []
        yield self.env.all_of(running)

    def _answer(
        self,
        question: Question,
        place: Any,
        threads: Mapping[str, simpy.Resource],
        servers: Sequence[_Server],
    ) -> Wait:
        self._count(1)
        started = self.env.now
        with place:
            yield place
            for step in question:
                match step:
                    case Cpu(thread, seconds):
                        with threads[thread].request() as turn:
                            yield turn
                            yield from self.busy(thread, seconds, True)
                    case Call():
                        yield min(servers, key=lambda server: server.load).submit(step)
                    case Ask(station, requests):
                        yield from self._ask(station, requests)
        if self._system.driver:
            with self._driver.request() as turn:
                yield turn
                yield from self.busy("driver", self._system.driver, True)
        self._latencies.append(self.env.now - started)
        self._count(-1)

    def _ask(self, name: str, requests: int) -> Wait:
        station = self._system.stations[name]
        seconds = requests * station.seconds
        if station.exponential:
            seconds = self._drawn.expovariate(1 / seconds)
        with self._stations[name].request() as place:
            yield place
            yield from self.busy(name, seconds, False)
        yield self.env.timeout(station.latency)

    def busy(self, name: str, seconds: float, on_cores: bool) -> Wait:
        """Work for so long; on the cores, in turns with what else wants one."""
        self._busy[name] += seconds
        if not on_cores:
            yield self.env.timeout(seconds)
            return
        self._busy["cores"] += seconds
        while seconds > 1e-12:
            with self._cores.request(priority=OURS) as core:
                yield core
                part = min(QUANTUM, seconds)
                yield self.env.timeout(part)
            seconds -= part

    def _count(self, more: int) -> None:
        now = self.env.now
        self._area += self._in_flight * (now - self._changed)
        self._in_flight, self._changed = self._in_flight + more, now
