"""Let a trained reader label what another one will read: ``python -m reader_training.label``.

The teacher's probabilities, of each token as the answer's start and end and of relevance, are saved
for the first rows of the training's stream, a file for each thousand. A run that was cut resumes.
"""

import argparse
from collections.abc import Iterator
from itertools import islice, repeat
from pathlib import Path

import numpy as np
import torch

from reader_training.examples import Encoder, Example, Labels, collate
from reader_training.mixture import Drawn, all_rows, draw_rows
from reader_training.torch_network import BASES, ReaderNetwork, find_device, load_trained
from selfcorrect_rag.reader.network import split_batches

SEED = 1
SHARD = 1000
"""Rows of a file."""


def label(network: ReaderNetwork, examples: list[Example]) -> list[Labels]:
    """Return the network's probabilities for each example; empty for a question alone."""
    device, found = find_device(), [Labels() for _ in examples]
    for some in split_batches([len(example.ids) for example in examples]):
        batch = collate([examples[i] for i in some])
        with torch.inference_mode(), torch.autocast(device.type, enabled=device.type == "cuda"):
            heads = network(*(batch[name].to(device) for name in ("ids", "types", "mask")))
        for row, i in enumerate(some):
            if at := examples[i].readable:
                start, end = (each[row, at].softmax(0).tolist() for each in heads[:2])
                found[i] = Labels(start, end, float(heads.relevant[row].sigmoid()))
    return found


def write_labels(teacher: Path, out: Path, rows: int) -> None:
    """Label the first rows of the stream with the reader that was trained into ``teacher``."""
    network = load_trained(teacher).to(find_device())
    encoder = Encoder(BASES[network.size])
    out.mkdir(parents=True, exist_ok=True)
    done = len(list(out.glob("*.npz")))
    stream = islice(draw_rows(all_rows(), SEED), done * SHARD, rows)
    while shard := list(islice(stream, SHARD)):
        every = label(network, [encoder.encode(*drawn) for drawn in shard])
        path = out / f"{done:05}.npz"
        unfinished = path.with_suffix(".tmp")
        with unfinished.open("wb") as file:
            np.savez_compressed(
                file,
                lengths=np.array([len(each.start) for each in every], np.int32),
                start=np.array([p for each in every for p in each.start], np.float16),
                end=np.array([p for each in every for p in each.end], np.float16),
                relevant=np.array([each.relevant for each in every], np.float32),
            )
        unfinished.rename(path)
        done += 1
        print(f"{min(done * SHARD, rows)} of {rows} rows", flush=True)


def read_labels(folder: Path) -> Iterator[Labels]:
    """Read the labels of the stream's first rows."""
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as found:
            places = np.cumsum(found["lengths"])[:-1]
            arrays = (np.split(found[name].astype(np.float32), places) for name in ("start", "end"))
            for start, end, relevant in zip(*arrays, found["relevant"], strict=True):
                yield Labels(start.tolist(), end.tolist(), float(relevant))


def labelled_rows(folder: Path | None) -> Iterator[tuple[Drawn, Labels]]:
    """Return the training's stream; with labels, those rows that have them, again and again."""
    rows = all_rows()
    while True:
        labels = read_labels(folder) if folder else repeat(Labels())
        yield from zip(draw_rows(rows, SEED), labels, strict=False)


def main() -> None:
    """Label rows, with a line for each file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--teacher", type=Path, required=True, help="Folder of its training.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    write_labels(args.teacher, args.out, args.rows)


if __name__ == "__main__":
    main()
