"""Real data, and the same in small, written by hand."""

import gzip
import json
import os
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when transformers is imported

import pytest

from nano_training.reader.rows import DATA

PAGES = {
    "Rico Rex": "Rico Rex( born 12 August 1976 in Chemnitz) is a German former pair skater .",
    "Ana Pavel": "Ana Pavel (born 3 May 1901 in Cluj) was a Romanian painter who lived abroad.",
    "Wild Honey (film)": "Wild Honey is a 1918 American silent film directed by Francis J. "
    "Grandon and starring Doris Kenyon.",
    "The Long Tide": "The Long Tide is a 1950 British film directed by Edwin Marsh and starring "
    "Lou Parr.",
    "Kept Away": "Kept Away is a 1950 British film directed by Edwin Marsh.",
}
QUESTIONS = {
    f"who sang {word} first": f"{word.title()} was sung by Jo Dell in 1960. It was a hit at once "
    "and stayed in the charts for some months."
    for word in ("sun", "moon", "star", "rain", "snow", "wind", "fog", "hail", "sleet", "dew")
}


@pytest.fixture(scope="session")
def real() -> Path:
    """The folder of the real data; a test without it is skipped."""
    folder = Path(os.environ.get("SELFCORRECT_DATA", DATA))
    if not folder.is_dir():
        pytest.skip(f"no real data in {folder}: set SELFCORRECT_DATA")
    return folder


@pytest.fixture(scope="session")
def real_text_by_hand(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files in the form of the real data."""
    folder = tmp_path_factory.mktemp("data")
    pages = [{"title": title, "text": text} for title, text in PAGES.items()]
    (folder / "2wikimultihopqa_corpus_6119.json").write_text(json.dumps(pages))
    (folder / "popqa_dev_741.jsonl").write_text(json.dumps({"s_wiki_title": "Kept Away"}) + "\n")
    with gzip.open(folder / "nq_open_oracle_2655.jsonl.gz", "wt") as file:
        for question, text in QUESTIONS.items():
            page = {"title": question, "text": text}
            row = {"question": question, "answers": ["Nobody", "Jo Dell"], "ctxs": [page]}
            file.write(json.dumps(row) + "\n")
    return folder
