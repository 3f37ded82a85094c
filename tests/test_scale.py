"""docs/scale.md is what its figures say, and its simulator what queueing theory says."""

import copy
import json
from typing import Any

import pytest

from benchmarks.scale import capacity, here
from benchmarks.scale.__main__ import FIGURES, PAGE, rounded
from benchmarks.scale.capacity import GPU, PUBLISHED, Options, Setup, scenarios
from benchmarks.scale.page import render
from benchmarks.scale.simulate import (
    Ask,
    Call,
    Cpu,
    Model,
    Question,
    Station,
    System,
    limited,
    linear,
    roofline,
    simulate,
)
from tests.test_docs import ROOT

ONE: Question = [Ask("store")]
MANY = 10**6


@pytest.fixture(scope="module")
def made() -> Any:
    return json.loads((ROOT / FIGURES).read_text(encoding="utf-8"))


def mean(values: Any) -> float:
    return float(sum(values) / len(values))


# The simulator against queueing theory


@pytest.mark.parametrize("load", [0.3, 0.6])
def test_a_store_with_random_times_is_the_queue_m_m_1(load: float) -> None:
    system = System(in_flight=MANY, stations={"store": Station(1.0, exponential=True)})
    outcome = simulate(system, [ONE] * 20_000, rate=load)
    assert mean(outcome.latencies) == pytest.approx(1 / (1 - load), rel=0.07)
    assert outcome.use["store"] == pytest.approx(load, rel=0.03)
    # An exponential distribution: its 95th percentile is ln 20 times its mean.
    assert outcome.percentile(0.95) == pytest.approx(2.996 / (1 - load), rel=0.1)


def test_a_store_with_constant_times_is_the_queue_m_d_1() -> None:
    system = System(in_flight=MANY, stations={"store": Station(1.0)})
    outcome = simulate(system, [ONE] * 20_000, rate=0.6)
    assert mean(outcome.latencies) == pytest.approx(1 + 0.6 / (2 * 0.4), rel=0.05)


def test_two_servers_are_the_queue_m_m_2() -> None:
    system = System(in_flight=MANY, stations={"store": Station(1.0, 2, exponential=True)})
    outcome = simulate(system, [ONE] * 20_000, rate=1.2)
    assert mean(outcome.latencies) == pytest.approx(1 / (1 - 0.6**2), rel=0.06)


@pytest.mark.parametrize("in_flight", [1, 3, 8])
def test_a_closed_system_answers_what_mean_value_analysis_says(in_flight: int) -> None:
    stations = {"a": Station(1.0, exponential=True), "b": Station(0.5, exponential=True)}
    system = System(in_flight=in_flight, stations=stations)
    outcome = simulate(system, [[Ask("a"), Ask("b")]] * 6_000)
    rate, waiting = 0.0, (0.0, 0.0)
    for number in range(1, in_flight + 1):
        times = 1.0 * (1 + waiting[0]), 0.5 * (1 + waiting[1])
        rate = number / sum(times)
        waiting = rate * times[0], rate * times[1]
    assert outcome.rate == pytest.approx(rate, rel=0.04)
    assert outcome.rate <= min(1 / 1.0, in_flight / 1.5) * 1.04  # the asymptotic bounds
    assert outcome.saturated == "a"


def test_littles_law_holds_open_and_closed() -> None:
    stations = {"store": Station(1.0, exponential=True)}
    opened = simulate(System(in_flight=MANY, stations=stations), [ONE] * 3_000, rate=0.7)
    closed = simulate(System(in_flight=4, stations=stations), [ONE] * 3_000)
    for outcome in (opened, closed):
        assert outcome.mean_in_flight == pytest.approx(outcome.rate * mean(outcome.latencies))
    assert closed.mean_in_flight == pytest.approx(4, rel=0.01)


def test_a_limit_a_second_is_kept_and_its_latency_delays_nobody_else() -> None:
    system = System(in_flight=100, stations={"web": limited(10, latency=2.0)})
    outcome = simulate(system, [[Ask("web")]] * 100)
    assert outcome.seconds == pytest.approx(100 / 10 + 2)
    assert outcome.latencies[0] == pytest.approx(0.1 + 2)


# The simulator against cases by hand


def test_threads_of_an_actor_take_turns_and_share_the_cores() -> None:
    question: Question = [Cpu("loop", 0.1), Cpu("tools", 0.1)]
    one_core = simulate(System(in_flight=8, cores=1), [question] * 8)
    assert one_core.seconds == pytest.approx(1.6)
    two_cores = simulate(System(in_flight=8, cores=2), [question] * 8)
    assert two_cores.seconds == pytest.approx(0.9)  # a thread each, one question behind the other
    actors = simulate(System(actors=2, in_flight=8, cores=8), [question] * 8)
    assert actors.seconds == pytest.approx(0.5)
    assert actors.use["loop"] == pytest.approx(0.8)


def test_what_others_use_is_lost_to_us() -> None:
    question: Question = [Cpu("loop", 0.2)]
    free = simulate(System(actors=2, cores=2), [question] * 20)
    busy = simulate(System(actors=2, cores=2, others=1.0), [question] * 20)
    assert (free.seconds, busy.seconds) == (pytest.approx(2.0), pytest.approx(4.0, rel=0.02))
    idle = simulate(System(actors=1, cores=2, others=1.0), [question] * 20)
    assert idle.seconds == pytest.approx(4.0, rel=0.02)  # the other core is free
    half = simulate(System(actors=2, cores=2, others=0.5), [question] * 20)
    assert half.seconds == pytest.approx(4.0 / 1.5, rel=0.01)


def test_a_model_reads_prompts_and_decodes_in_common_passes() -> None:
    model = Model(linear(1.0, 0.1, 0.01))
    alone = simulate(System(model=model), [[Call(10, (3, 1))]])
    assert alone.seconds == pytest.approx(2.0 + 1.01 + 1.01)  # a prefill, then one row twice
    both = simulate(System(in_flight=2, model=model), [[Call(10, (2,))]] * 2)
    assert both.seconds == pytest.approx((1 + 2.0) + 1.02)
    pruned = simulate(System(model=model), [[Call(10, (1, 1, 1))]])
    assert pruned.seconds == pytest.approx(2.0)


def test_a_prompt_beyond_a_pass_is_read_in_parts() -> None:
    model = Model(linear(1.0, 0.1, 0.0), most_tokens=10)
    assert simulate(System(model=model), [[Call(25, (1,))]]).seconds == pytest.approx(3 + 2.5)


def test_calls_join_a_batch_only_where_it_is_continuous() -> None:
    late: Question = [Ask("store"), Call(1, (1,))]
    early: Question = [Call(1, (10,))]

    def latency(continuous: bool) -> float:
        model = Model(linear(1.0, 0.0, 0.0), continuous=continuous)
        system = System(in_flight=2, model=model, stations={"store": Station(2.5)})
        return simulate(system, [late, early]).latencies[0]

    assert latency(True) == pytest.approx(4.0)  # the pass after the one under way
    assert latency(False) == pytest.approx(10.0)  # both wait for the longer


def test_rows_are_bounded_and_replicas_share_them() -> None:
    calls: list[Question] = [[Call(1, (5,))]] * 4
    cost = linear(1.0, 0.0, 0.0)
    two_at_a_time = simulate(System(in_flight=4, model=Model(cost, most_rows=2)), calls)
    assert 10.0 <= two_at_a_time.seconds <= 11.0  # a call may just miss the first pass
    replicas = simulate(System(in_flight=4, model=Model(cost, most_rows=2, replicas=2)), calls)
    assert 5.0 <= replicas.seconds <= 6.0
    own = simulate(System(actors=2, in_flight=2, model=Model(cost, shared=False)), calls)
    assert 5.0 <= own.seconds <= 6.0


def test_an_actor_ends_a_block_before_the_next() -> None:
    asked: list[Question] = [[Cpu("a", 3.0)], [Cpu("b", 1.0)], [Cpu("c", 1.0)], [Cpu("d", 1.0)]]
    flowing = simulate(System(in_flight=2, cores=4), asked)
    in_blocks = simulate(System(in_flight=2, batch=2, cores=4), asked)
    assert (flowing.seconds, in_blocks.seconds) == (pytest.approx(3.0), pytest.approx(4.0))


def test_the_driver_is_one_for_all_actors() -> None:
    outcome = simulate(System(actors=4, cores=8, driver=1.0), [[Cpu("loop", 0.1)]] * 4)
    assert outcome.seconds == pytest.approx(4.1)
    assert outcome.saturated == "driver"


def test_a_gpu_is_bound_by_memory_or_by_arithmetic() -> None:
    cost = roofline(weights=1.0, row=0.1, token=0.01)
    assert cost(0, 5) == pytest.approx(1.5)
    assert cost(1000, 5) == pytest.approx(10.05)


# On paper


def test_what_a_question_takes_is_what_one_counts() -> None:
    found = scenarios(Options())
    short = found["Self-RAG, short"].work(0)
    assert (short.computed, sum(short.prompts)) == (60 + 5 * 150, 60 + 5 * (60 + 150))
    assert short.generated == 1 + 5 * 60
    assert found["… pruning to 2 of 5 passages"].work(0).generated == 1 + 2 * 60 + 3
    long = found["Self-RAG, long"].work(0)
    assert long.requests("store") == 1 + 3 * 2
    assert sum(len(call.generated) for call in long.calls) == 1 + 5 + 3 * 10
    assert long.computed == 60 + 5 * 150 + 3 * 10 * (60 + 150)
    assert sum(long.prompts) == 60 + 5 * 210 + 10 * sum(60 + d * 60 + 150 for d in (1, 2, 3))
    crag = found["CRAG"]
    assert crag.mean(lambda work: work.requests("web")) == 0.5
    assert crag.mean(lambda work: work.requests("evaluator")) == 35 + 12.5
    assert short.context == pytest.approx((60.5 + 5 * 60 * (210 + 30)) / 301)


def test_a_card_does_what_its_limits_allow() -> None:
    gpu = GPU(flops=1e15, bandwidth=1e12, memory=80e9, arithmetic=0.5)
    assert 1 / gpu.token == pytest.approx(0.5e15 / (2 * 6.74e9))
    assert 1 / gpu.weights == pytest.approx(0.77e12 / 13.48e9)
    assert gpu.rows(1000) == int((72e9 - 13.48e9) / (524_288 * 1000))


def test_a_million_questions_and_a_billion_passages_by_hand() -> None:
    assert capacity.gpus_for(10.0) == 5  # 34.7 a second at the peak, 7 of each
    assert capacity.gpus_for(1e6) == 1
    assert capacity.index_bytes(1e9, 384) == pytest.approx(2.304e12)


def test_what_saturates_is_what_helps_if_it_does_more() -> None:
    asked = scenarios(Options())
    front = dict.fromkeys(("self_rag", "crag", "self_crag", "instruct_rag"), 0.02)
    few = Setup(GPU.of("h100"), gpus=1, processes=1, store=5.0)
    found = capacity.first(asked["Self-RAG, short"], few, front)
    assert found["saturated"] == "store"
    assert found["rate"] == pytest.approx(5.0, rel=0.03)
    slow = dict.fromkeys(front, 0.5)
    found = capacity.first(asked["plain RAG"], Setup(GPU.of("h100")), slow)
    assert found["saturated"] == "front end"
    assert found["rate"] == pytest.approx(2.0, rel=0.03)


def test_published_figures_have_a_source_and_a_date() -> None:
    assert len(PUBLISHED) > 10
    for name, found in PUBLISHED.items():
        assert found["source"].startswith("https://"), name
        assert "20" in found["date"], name
        assert found["says"], name


# The page


def test_the_page_is_made_from_the_figures(made: Any) -> None:
    assert (ROOT / PAGE).read_text(encoding="utf-8") == render(made)


def test_its_simulated_figures_come_from_the_simulator(made: Any) -> None:
    front, rows = made["front_end_s"], scenarios(Options())
    kept = made["simulated"]
    for row in ("Self-RAG, short", "CRAG"):
        again = capacity.run(rows[row], capacity.in_plenty(GPU.of("h100")), front).rate
        assert rounded(again) == kept["cards"]["h100"][row]
    setup = capacity.setups()["1 GPU, 1 process"]
    for row in ("Self-RAG, short", "CRAG"):
        assert (
            rounded(capacity.first(rows[row], setup, front))
            == kept["first"][row]["1 GPU, 1 process"]
        )


def test_its_predictions_come_from_one_actor_alone(made: Any) -> None:
    """No figure of two actors has a part in them, but what others used."""
    known = {name: made[name] for name in ("alone", "one_actor")}
    assert here.predicted(known, 2)["rate"] == pytest.approx(made["two_predicted"]["rate"], 0.01)
    for ran in made["two_actors"]:
        again = here.predicted(known, 2, ran["others_cores"])
        assert again["rate"] == pytest.approx(ran["predicted"]["rate"], rel=0.01)


def test_a_miss_is_shown_as_a_miss(made: Any) -> None:
    worse = copy.deepcopy(made)
    ran = worse["two_actors"][0]
    ran["rate"] = 2 * ran["predicted"]["rate"]
    text = render(worse)
    assert "-50.0%" in text
    within = [abs(r["predicted"]["rate"] / r["rate"] - 1) <= 0.15 for r in worse["two_actors"]]
    assert f"{sum(within)} of {len(within)} runs" in text
    assert not all(within)
