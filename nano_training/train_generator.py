"""Makes the nano generator as the paper makes Self-RAG's (section 3.2.2): outputs and pages of a
made-up world, Algorithm 3 with the nano critic and a Chroma index, fine-tuning.

    python -m nano_training.train_generator --critic DIR --out DIR

The generator begins with the critic's weights, which read, judge in words and answer, as the
paper's begins with Llama 2's. Unlike that they descend from a generator: see its card. Index, data
and fine-tuning are by the functions that users have; each goes on after a kill.
"""

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path

from nano_training.optimizer import precision
from nano_training.real_text import with_real_text
from nano_training.rows import MIXTURE, unlabelled_rows
from selfcorrect_rag.errors import require
from selfcorrect_rag.journal import (
    digest_of_ids,
    digest_of_weights,
    keep_settings,
    run_folder,
)
from selfcorrect_rag.models.critic import TransformersCritic
from selfcorrect_rag.search import ChromaIndex
from selfcorrect_rag.search.index import passage_id
from selfcorrect_rag.training.fine_tuning import RunOptions
from selfcorrect_rag.training.generator import PRESETS, train_generator
from selfcorrect_rag.training.generator_data import (
    GeneratorDataSettings,
    generator_data_identity,
    make_generator_data,
)
from selfcorrect_rag.training.generator_rows import read_generator_rows

ROWS = 8000
PASSAGES = 2
"""Found for a query: the page itself, and one that misleads."""
SEED = 1
GENERATOR = replace(
    PRESETS["nano"], learning_rate=1e-3, num_train_epochs=2.0, batch_size=32, precision=precision()
)


def make_data(critic: Path, out: Path, rows: int = ROWS, data: Path | None = None) -> Path:
    """The generator's data, and beside it the index and what was decided; resumes after a kill.

    Args:
        critic: folder of a critic, see ``train critic``.
        out: a folder.
        rows: how many outputs to begin with.
        data: folder of real text, where some of them are to be of it.

    Raises:
        BadRun: ``out`` is of another critic, or of other pages (``rows``, ``data``).
        ModelNotFound: ``critic`` holds no weights.
    """
    made = list(unlabelled_rows(rows, SEED, with_real_text(MIXTURE, data) if data else MIXTURE))
    pages = {page.page_content: page for one in made for page in one.pages}
    world = digest_of_ids(map(passage_id, pages.values()))
    settings = GeneratorDataSettings(
        digest_of_weights(critic), f"the made-up world ({world})", top_k=PASSAGES
    )
    file = out / "generator-data.jsonl"
    # Before other pages get into the index.
    keep_settings(run_folder(file), generator_data_identity(settings))
    index = ChromaIndex(out / "index")
    if len(index) < len(pages):
        index.add(list(pages.values()))
    with require("tqdm", "train").tqdm(total=len(made), desc="rows", unit="") as bar:
        report = make_generator_data(
            TransformersCritic.from_pretrained(critic, batch=16, dtype=precision()),
            index.as_retriever(PASSAGES),
            [one.row for one in made],
            file,
            settings,
            on_rows=bar.update,
        )
    if report.calls:  # there is something new to report
        (out / "data-report.json").write_text(json.dumps(asdict(report), indent=2) + "\n")
    return file


def main() -> None:
    """Make the data, train, and export to DIR/generator."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--critic", type=Path, required=True, help="as train_critic made it")
    parser.add_argument("--out", type=Path, required=True, help="folder for all that is made")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--data", type=Path, help="folder of real text to learn from too")
    parser.add_argument("--rows-alone", action="store_true", help="make the data, and train later")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    data = read_generator_rows(make_data(args.critic, args.out, args.rows, args.data))
    if not args.rows_alone:
        settings = replace(GENERATOR, model=str(args.critic))
        report = train_generator(data, args.out, settings, RunOptions(save_steps=100))
        print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
