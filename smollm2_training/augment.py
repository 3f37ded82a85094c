"""Write the generator's rows (Algorithm 3) with the passages that were retrieved for each question:
``python -m smollm2_training.augment --data FILE --critic FOLDER --out FILE``.

Unlike ``selfcorrect-rag train generator-data`` it does not search with the output in the query, so
the passages are those of inference. The same command resumes.
"""

import argparse
import json
from pathlib import Path

from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda

from selfcorrect_rag.cli.terminal import progress_line
from selfcorrect_rag.journal import read_rows
from selfcorrect_rag.training.generator import GeneratorDataOptions, make_generator_data
from selfcorrect_rag.training.rows import as_document


def given_passages(path: Path) -> RunnableLambda[str, list[Document]]:
    """Return a retriever that finds the documents of the row whose instruction begins the query."""
    documents = {
        row["instruction"].strip(): [as_document(each) for each in row["documents"]]
        for _, row in read_rows(path)
    }
    longest_first = sorted(documents, key=len, reverse=True)

    def find(query: str) -> list[Document]:
        return next((documents[i] for i in longest_first if query.startswith(i)), [])

    return RunnableLambda(find)


def main() -> None:
    """Write the rows, with a line of progress."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--critic", required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    options = GeneratorDataOptions(data=args.data, out=args.out, critic=args.critic)
    show, done = progress_line(), iter(range(1, 10**9))
    report = make_generator_data(
        options,
        retriever=given_passages(args.data),
        progress=lambda _, total: show(f"{next(done)} of {total}"),
    )
    print(json.dumps(report))


if __name__ == "__main__":
    main()
