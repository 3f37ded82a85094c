"""docs/scale.md, made of page.md and of figures: measured, published and simulated ones."""

from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any

from benchmarks.scale import capacity
from benchmarks.scale.capacity import GPU, PUBLISHED, Options, scenarios

Made = Mapping[str, Any]
TEXT = Path(__file__).with_name("page.md")
BOUND = 0.15
"""What the prediction for two actors may be off."""
INDEXES = (
    ("HNSW in memory, 32 bits", 4.0),
    ("HNSW in memory, 8 bits", 1.0),
    ("on disk, 1 bit in memory", 4.0 / PUBLISHED["opensearch_disk"]["factor"]),
)
MACHINE_GIB, FILLED = 128, 0.75
"""Of a machine of the store, and how much of it the index may fill: assumed."""
EMBEDDING_PARAMETERS, EMBEDDING_SHARE = 22.7e6, 0.2
"""Of all-MiniLM-L6-v2; and what so small a model reaches of a GPU's arithmetic: assumed."""
LLAMA_3, MISTRAL, H100_8_BITS, RTX_4090 = 8.03e9, 7.25e9, 1978.9e12, 165.2e12
"""Parameters, and operations a second, of published runs."""
MEAN = 1e6 / capacity.DAY


def render(made: Made) -> str:
    """The page."""
    values: dict[str, object] = {
        **{name: value for name, value in vars(capacity).items() if name.isupper()},
        **_rates(made),
        **_store(made),
        **_checks(made),
        "MACHINE_GIB": MACHINE_GIB,
        "construction": _construction(),
        "work": _work(made),
        "cards": _cards(made),
        "bounds": _bounds(),
        "first": _first(made),
        "million": _million(made),
        "here": _here(made),
        "published": _published(),
    }
    return TEXT.read_text(encoding="utf-8").format_map(values)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def figure(value: float) -> str:
    """Two digits, or a whole number from 100 on."""
    return f"{round(value):,}" if value >= 100 else f"{float(f'{value:.2g}'):g}"


def _rates(made: Made) -> dict[str, object]:
    """Figures of the text about GPUs, the front end and money."""
    cards, front = made["simulated"]["cards"], made["front_end_s"].values()

    def rates(row: str) -> str:
        return f"{figure(cards['low'][row])} to {figure(cards['high'][row])}"

    def times(row: str, other: str) -> str:
        return f"{cards['h100'][row] / cards['h100'][other]:.2f}"

    short, long, crag = "Self-RAG, short", "Self-RAG, long", "CRAG"
    web = PUBLISHED["tavily_limit"]["a_minute"] / 60
    return {
        "short_range": rates(short),
        "long_range": rates(long),
        "crag_range": rates(crag),
        "short_gpus": capacity.gpus_for(cards["h100"][short]),
        "long_gpus": capacity.gpus_for(cards["h100"][long]),
        "pruned": times("… pruning to 2 of 5 passages", short),
        "prefixed": times(short, "… without a prefix cache"),
        "front_low": figure(1 / max(front)),
        "front_high": figure(1 / min(front)),
        "web": figure(web),
        "web_questions": figure(web / Options().searches),
        "peak": f"{capacity.PEAK:g}",
        "use": f"{capacity.USE:.0%}",
        "mean_rate": f"{MEAN:.1f}",
        "gpu_dollars": PUBLISHED["gpu_price"]["dollars"],
        "web_dollars": PUBLISHED["tavily_price"]["dollars"],
        "cache_kib": figure(capacity.CACHE_BYTES / 1024),
        "trt_share": _share("trt_h100", LLAMA_3, H100_8_BITS),
        "rtx_share": _share("rtx4090", MISTRAL, RTX_4090),
    }


def _share(name: str, parameters: float, flops: float) -> str:
    """What a published run reaches of a GPU's arithmetic."""
    return f"{PUBLISHED[name]['tokens'] * 2 * parameters / flops:.2f}"


def _store(made: Made) -> dict[str, object]:
    """Figures of the text about a billion passages."""
    rows: list[list[object]] = []
    for name, bytes_each in INDEXES:
        rows.append([name])
        for dimensions in (384, 768):
            gib = capacity.index_bytes(1e9, dimensions, bytes_each) / 2**30
            dollars = gib * 24 * PUBLISHED["memory_price"]["dollars_gib"]
            rows[-1] += [f"{gib:,.0f}", ceil(gib / (MACHINE_GIB * FILLED)), f"{dollars:,.0f}"]
    head = ["", "384: GiB", "machines", "dollars a day", "768: GiB", "machines", "dollars a day"]
    store, here = PUBLISHED["store_50m"], made["models"]["embedded"]
    on_gpu = PUBLISHED["h100"]["flops"] * EMBEDDING_SHARE
    on_gpu /= 2 * EMBEDDING_PARAMETERS * capacity.PASSAGE
    retrievals = scenarios(Options())["Self-RAG, long"].mean(lambda work: work.requests("store"))
    wanted = MEAN * capacity.PEAK / store["qdrant"]
    return {
        "indexes": table(head, rows),
        "billion_tib": figure(capacity.index_bytes(1e9, 384) / 2**40),
        "index_factor": PUBLISHED["qdrant_memory"]["factor"],
        "filled": f"{FILLED:.0%}",
        "gib_dollars": PUBLISHED["memory_price"]["dollars_gib"],
        "embedded": figure(here),
        "core_days": figure(1e9 / here / capacity.DAY),
        "embedding_share": f"{EMBEDDING_SHARE:.0%}",
        "gpu_embedded": figure(on_gpu),
        "gpu_hours": figure(1e9 / on_gpu / 3600),
        "build_hours": store["build_hours"],
        "shards": figure(1e9 / store["vectors"]),
        "store_slow": figure(store["qdrant"]),
        "store_fast": figure(store["pgvectorscale"]),
        "replicas": ceil(wanted),
        "long_retrievals": figure(retrievals),
        "long_replicas": ceil(wanted * retrievals),
        "passages": f"{made['passages']:,}",
        "stores": table(
            ["", "queries a CPU second", "passages stored a CPU second"],
            [
                [name, figure(found["queries"]), figure(found["passages"])]
                for name, found in made["stores"].items()
            ],
        ),
    }


def _construction() -> str:
    head = ["a question", "calls", "prompts", "prompt tokens", "computed", "generated"]
    head += ["retrievals", "graded", "searches"]
    rows = [
        [
            name,
            *(
                figure(found.mean(of))
                for of in (
                    lambda work: len(work.calls),
                    lambda work: sum(len(call.generated) for call in work.calls),
                    lambda work: sum(work.prompts),
                    lambda work: work.computed,
                    lambda work: work.generated,
                    lambda work: work.requests("store"),
                    lambda work: work.requests("evaluator"),
                    lambda work: work.requests("web"),
                )
            ),
        ]
        for name, found in scenarios(Options()).items()
    ]
    return table(head, rows)


def _work(made: Made) -> str:
    names = ["model_calls", "prompt_tokens", "generated_tokens", "retrievals", "graded", "searches"]
    head = ["a question", "calls", "prompt tokens", "generated", *names[3:], "CPU ms"]
    rows = [
        [name, *(figure(found[key]) for key in names), figure(1000 * found["cpu_s"])]
        for name, found in made["work"].items()
    ]
    return table(head, rows)


def _bounds() -> str:
    head = ["", "prefill at most, tokens/s", "assumed", "one text at most, tokens/s", "assumed"]
    rows = []
    for name in capacity.CARDS:
        found, gpu = PUBLISHED[name], GPU.of(name)
        most = found["flops"], 1 / gpu.token, found["bandwidth"], 1 / gpu.weights
        operations = 2 * capacity.PARAMETERS  # and as many bytes of weights
        cells = most[0] / operations, most[1], most[2] / operations, most[3]
        rows.append([found["name"], *map(figure, cells)])
    return table(head, rows)


def _cards(made: Made) -> str:
    cards = made["simulated"]["cards"]
    rows = [
        [
            name,
            *(figure(cards[card][name]) for card in capacity.CARDS),
            f"{figure(cards['low'][name])} to {figure(cards['high'][name])}",
        ]
        for name in cards["h100"]
    ]
    return table(["", "H100", "A100", "L4", "H100, range"], rows)


def _first(made: Made) -> str:
    found = made["simulated"]["first"]
    rows = [
        [row, *(f"{figure(cell['rate'])}, {cell['saturated']}" for cell in cells.values())]
        for row, cells in found.items()
    ]
    return table(["", *next(iter(found.values()))], rows)


def _million(made: Made) -> str:
    cards, found = made["simulated"]["cards"], scenarios(Options())
    rows = []
    for name in cards["h100"]:
        few, gpus, many = (capacity.gpus_for(cards[card][name]) for card in ("high", "h100", "low"))
        front = MEAN * capacity.PEAK * made["front_end_s"][found[name].graph] / capacity.USE
        searches = 1e6 * found[name].mean(lambda work: work.requests("web"))
        at_peak = searches / capacity.DAY * capacity.PEAK
        limit = PUBLISHED["tavily_limit"]["a_minute"] / 60
        too_many = ", above the limit" if at_peak > limit else ""
        rows.append(
            [
                name,
                f"{gpus} ({few} to {many})",
                ceil(front),
                f"{gpus * 24 * PUBLISHED['gpu_price']['dollars']:,.0f}",
                f"{searches * PUBLISHED['tavily_price']['dollars']:,.0f}",
                f"{figure(at_peak)}{too_many}",
            ]
        )
    head = ["", "H100", "front-end cores", "dollars for GPUs", "for searches"]
    return table([*head, "searches a second at the peak"], rows)


def _checks(made: Made) -> dict[str, object]:
    """Figures of the text about the simulator against this machine."""
    two, free, alone = made["two_actors"], made["two_predicted"], made["alone"]
    rows = [_run("1", made["one_actor"], made["one_predicted"])]
    rows += [_run("2", ran, ran["predicted"]) for ran in two]
    errors = [_error(ran, ran["predicted"]) for ran in two]
    head = ["actors", "cores of others", "load", "predicted, questions/s", "measured", "error"]
    head += ["median predicted, s", "measured"]
    return {
        "checked": table(head, rows),
        "inside": sum(abs(error) <= BOUND for error in errors),
        "runs": len(two),
        "bound": f"{BOUND:.0%}",
        "largest": f"{max(errors, key=abs):+.1%}",
        "unknowing": ", ".join(f"{_error(ran, free):+.0%}" for ran in two),
        "free_rate": f"{free['rate']:.1f}",
        "free_saturated": free["saturated"],
        "alone_questions": alone["questions"],
        "in_flight": made["machine"]["in_flight"],
        **{f"{name}_ms": f"{1000 * cost:.2f}" for name, cost in alone["cost_s"].items()},
        "cost_error": f"{alone['cost_error']:.0%}",
        "cores": made["machine"]["cores"],
        "count": next(iter(made["work"].values()))["questions"],
        "days": ", ".join(
            f"{name}: {when['day']}, load {when['load']:g}"
            for name, when in made["measured"].items()
        ),
    }


def _run(actors: str, ran: Made, predicted: Made) -> list[str]:
    return [
        actors,
        f"{ran['others_cores']:.2f}",
        f"{ran['load']:.1f}",
        f"{predicted['rate']:.2f}",
        f"{ran['rate']:.2f}",
        f"{_error(ran, predicted):+.1%}",
        f"{predicted['latency_s'][0]:.2f}",
        f"{ran['latency_s'][0]:.2f}",
    ]


def _error(ran: Made, predicted: Made) -> float:
    return float(predicted["rate"] / ran["rate"] - 1)


def _here(made: Made) -> str:
    alone, one, carriers = made["alone"], made["one_actor"], made["carriers"]
    rows: list[list[object]] = [
        [f"front end of {name} and a search, models that answer at once", f"{1000 * spent:.1f} ms"]
        for name, spent in made["front_end_s"].items()
    ]
    rows += [
        ["a row of asyncio", f"{1e6 * carriers['asyncio_s']:.0f} µs"],
        ["a row of Ray Data", f"{1e6 * carriers['ray_s']:.0f} µs"],
        ["Self-RAG, nano generator, alone: its event loop", f"{1000 * alone['loop_s']:.0f} ms"],
        ["... its retrieval", f"{1000 * alone['tools_s']:.0f} ms"],
        ["... its model, 8 questions in flight", f"{1000 * alone['model_s']:.0f} ms"],
        ["... all of it in one actor", f"{1000 * one['actor_s']:.0f} ms"],
        ["Ray with nothing to do", f"{one['idle_cores']:.2f} cores"],
        ["the reader grades", f"{figure(made['models']['graded'])} passages a CPU second"],
        ["MiniLM embeds", f"{figure(made['models']['embedded'])} passages a CPU second"],
    ]
    return table(["what", "takes"], rows)


def _published() -> str:
    rows = [
        [found["says"], f"[source]({found['source']})", found["date"]]
        for found in PUBLISHED.values()
    ]
    return table(["figure", "", "date"], rows)
