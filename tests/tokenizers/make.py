"""Makes the tokenizers and the ids of this folder with transformers 4.36.2, once and for all.

    python -m venv old
    old/bin/pip install transformers==4.36.2 sentencepiece==0.1.99 protobuf "numpy<2"
    old/bin/python tests/tokenizers/make.py

Self-RAG's authors ran their checkpoints on vLLM 0.2.6 with this version's fast tokenizer. For two
small vocabularies, trained here on the demo corpus in the style of Llama 2 and of Mistral, it
writes

- ``STYLE/slow``: what the authors' training script saves, with ``tokenizer.model`` alone;
- ``STYLE/older``: the same as transformers wrote it before 4.34;
- ``STYLE/fast``: what the fast tokenizer saves;
- ``ids.jsonl``: prompts and rows of training data, and their ids under both vocabularies. A text
  stands as parts, of which every second is a control token.

It stops where a layout or a value of ``legacy`` changes an id, and prints for how many texts the
slow tokenizer, which the authors trained with, gives others.
"""

import json
import random
import shutil
import tempfile
from pathlib import Path

import sentencepiece
from transformers import AutoTokenizer, LlamaTokenizer, LlamaTokenizerFast

HERE = Path(__file__).parent
CORPUS = HERE.parents[1] / "selfcorrect_rag" / "nano" / "corpus"
TOKENS = [
    "[No Retrieval]",
    "[Retrieval]",
    "[Continue to Use Evidence]",
    "[Irrelevant]",
    "[Relevant]",
    "<paragraph>",
    "</paragraph>",
    *(f"[Utility:{i}]" for i in range(1, 6)),
    "[Fully supported]",
    "[Partially supported]",
    "[No support / Contradictory]",
]
STYLES = {
    "llama": {"vocab_size": 1000, "split_digits": True},
    "mistral": {"vocab_size": 1200, "split_digits": False},
}
ODD = [
    "",
    " ",
    " leading and trailing ",
    "two  spaces,   three",
    "tab\there",
    "line\nline\n\nlines\n",
    "carriage\r\nreturn",
    "1984 and 3.14159, 1,000,000",
    "٣ ３ Ⅷ ½",
    "漢字かな交じり文",
    "¿Dónde nació José Ñandú?",
    "naïve café, Zoë's coöperation",
    "cafe\u0301 decomposed",
    "emoji 🎈👩‍👩‍👧 and flags 🇨🇭",
    "no\u00a0break and thin\u2009space",
    "dashes ---- ===== .... ....",
    *(" ".join(letter * number for number in (3, 5, 7, 11, 13, 30)) for letter in "-=.a"),
    *(" " * number + "x" for number in (3, 5, 7, 13)),
    "aaaaaaaaaaa bbbbbbb",
    "for i in range(10):\n    print(i)  # x[0]",
    "https://example.org/a?b=c&d=%20",
    "▁ is sentencepiece's space",
    "<unknown> </tag> [brackets] [Relevance]",
    "\u200bzero width\ufeff",
    "العربية עברית",
    "ﬁ ligature, ﬀ, Å Å",
]


def train(style: str, folder: Path) -> Path:
    rows = [json.loads(line) for line in (CORPUS / "passages.jsonl").open(encoding="utf-8")]
    lines = [line for row in rows for line in f"{row['title']}\n{row['text']}".splitlines()]
    # Runs of one letter, whose merges overlap.
    lines += [letter * number for letter in "-=. a" for number in range(1, 33)] * 4
    path = folder / f"{style}.model"
    with path.open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=file,
            model_type="bpe",
            byte_fallback=True,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            allow_whitespace_only_pieces=True,
            character_coverage=0.9995,
            num_threads=1,
            minloglevel=2,
            **STYLES[style],
        )
    return path


def save(style: str, model: Path) -> None:
    slow = LlamaTokenizer(str(model), legacy=True)
    for number in range(len(TOKENS)):  # one by one: in this version a list is added in no order
        slow.add_special_tokens({"additional_special_tokens": TOKENS[: number + 1]})
    slow.add_special_tokens({"pad_token": "<pad>"})
    folder = HERE / style
    shutil.rmtree(folder, ignore_errors=True)
    slow.save_pretrained(folder / "slow")
    LlamaTokenizerFast.from_pretrained(folder / "slow").save_pretrained(folder / "fast")
    (folder / "fast" / "tokenizer.model").unlink()
    (folder / "older").mkdir()
    shutil.copy(model, folder / "older" / "tokenizer.model")
    shutil.copy(folder / "slow" / "added_tokens.json", folder / "older" / "added_tokens.json")
    named = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    write(
        folder / "older" / "special_tokens_map.json",
        {"additional_special_tokens": TOKENS, **named},
    )
    config = json.loads((folder / "slow" / "tokenizer_config.json").read_text())
    for key in ("added_tokens_decoder", "additional_special_tokens"):
        config.pop(key)
    for key in ("bos_token", "eos_token", "unk_token"):
        token = {"__type": "AddedToken", "content": named[key], "normalized": True}
        config[key] = {**token, "lstrip": False, "rstrip": False, "single_word": False}
    config["pad_token"] = None
    write(folder / "older" / "tokenizer_config.json", config)


def write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def texts() -> "list[dict]":
    """Prompts and training rows; of each, texts and control tokens in turn."""
    rng = random.Random(0)
    rows = [json.loads(line) for line in (CORPUS / "passages.jsonl").open(encoding="utf-8")]
    questions = [json.loads(line) for line in (CORPUS / "questions.jsonl").open(encoding="utf-8")]

    def some() -> str:
        if rng.random() < 0.5:
            return rng.choice(ODD)
        text = rng.choice(rows)["text"]
        return rng.choice(["", "", " "]) + text[: rng.randint(1, 120)] + rng.choice(["", "", " "])

    def passage() -> "list[str]":
        return [
            "[Retrieval]",
            "",
            "<paragraph>",
            f"{rng.choice(rows)['title']}\n{some()}",
            "</paragraph>",
        ]

    def segment() -> "list[str]":
        begun = rng.choice(
            [passage, passage, lambda: ["[No Retrieval]"], lambda: ["[Continue to Use Evidence]"]]
        )()
        critique = (
            rng.choice([["", "[Relevant]"], ["", "[Irrelevant]"], []]) if len(begun) > 1 else []
        )
        support = rng.choice([["[Fully supported]"], ["[Partially supported]"]]) if critique else []
        end = [part for token in (*support, rng.choice(TOKENS[7:12])) for part in (token, "")]
        return [*begun, *critique, some(), *end[:-1]]

    made = []
    for number in range(330):
        question = rng.choice(questions)["question"] if rng.random() < 0.5 else some()
        prompt = f"### Instruction:\n{question}\n\n### Response:\n"
        if number % 5 == 4:  # a row of training data: what is learned follows the prompt
            output = segment() + (["", *segment()] if rng.random() < 0.3 else [])
            made.append(
                {"instruction": question, "output": "".join(output), "parts": [prompt, *output]}
            )
            continue
        parts = [prompt]
        for _ in range(rng.choice([0, 0, 1, 1, 2])):
            parts += [*segment(), ""]
        parts += rng.choice([passage, passage, lambda: ["[No Retrieval]"], list])()
        made.append({"parts": parts})
    return made


def main() -> None:
    made = texts()
    with tempfile.TemporaryDirectory() as temporary:
        for style in STYLES:
            save(style, train(style, Path(temporary)))
            found = {}
            for layout in ("slow", "older", "fast"):
                for legacy in (True, False, None, "missing"):
                    folder = Path(temporary) / f"{style}-{layout}-{legacy}"
                    shutil.copytree(HERE / style / layout, folder)
                    config = json.loads((folder / "tokenizer_config.json").read_text())
                    config["legacy"] = legacy
                    if legacy == "missing":
                        del config["legacy"]
                    write(folder / "tokenizer_config.json", config)
                    write(folder / "config.json", {"model_type": style})
                    fast = AutoTokenizer.from_pretrained(folder)
                    ids = [fast("".join(item["parts"]))["input_ids"] for item in made]
                    found[f"{layout}-{legacy}"] = ids
                    if layout == "slow":
                        slow = AutoTokenizer.from_pretrained(folder, use_fast=False)
                        told = [slow("".join(item["parts"]))["input_ids"] for item in made]
                        others = sum(a != b for a, b in zip(told, ids, strict=True))
                        print(f"{style}, legacy {legacy}: {others} of {len(ids)} differ if slow")
            (ids,) = {json.dumps(ids) for ids in found.values()}
            for item, of_text in zip(made, json.loads(ids), strict=True):
                item[style] = of_text
    with (HERE / "ids.jsonl").open("w", encoding="utf-8") as file:
        for item in made:
            file.write(json.dumps(item, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
