"""Rows from the manuals of this machine: manual pages, READMEs, changelogs, sources and other
documents of installed packages, read where they stand."""

import ast
import gzip
import logging
import re
import sysconfig
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator
from email.message import Message
from importlib.metadata import Distribution, distributions
from pathlib import Path
from random import Random
from typing import NamedTuple, cast

from nano_training.reader.changelogs import change_questions, changelog
from nano_training.reader.manual_facts import (
    METADATA,
    fact_questions,
    metadata_page,
    metadata_questions,
)
from nano_training.reader.manual_questions import (
    Asked,
    entry_questions,
    example_questions,
    name_questions,
)
from nano_training.reader.pages import Page, cut, located, text_page
from nano_training.reader.roff import manual_page
from nano_training.reader.rows import Row
from nano_training.reader.sources import (
    constant_page,
    constant_questions,
    function_pages,
    function_questions,
    joined,
    option_page,
)
from nano_training.reader.wording import STOP_WORDS, typed

logger = logging.getLogger(__name__)

MANUALS = Path("/usr/share/man")
DOCUMENTS = Path("/usr/share/doc")
NODE = Path("/usr/lib/node_modules")
MOST_ROWS = 12
"""Of a file."""
FAMILY = 160
"""Manual pages whose names begin with the same word."""
SOURCES = 15
"""Source files of a package."""
SHARES = {"options": 3, "functions": 2, "parameters": 2, "changelog: version": 2}
"""Rows for each row of another kind."""
UNANSWERED = 0.2
COLLAPSED = 0.35
LONGEST_FILE = 300_000
CHANGES = re.compile(r"change|history|news|release", re.IGNORECASE)
NO_DOCUMENT = re.compile(
    r"licen[sc]e|copying|copyright|top_level|entry_points|sources|requirements|notice|authors|"
    r"cmakelists|words|vocab|thirdparty|code_of_conduct|record",
    re.IGNORECASE,
)
NO_SOURCE = re.compile(
    r"/(?:tests?|testing|_vendor|vendor|idlelib|lib2to3|site-packages|turtledemo)/|/test_"
)


class Material(NamedTuple):
    """A page and what is asked on it."""

    page: Page
    asked: list[Asked]
    titles: tuple[str, ...]


Ask = Callable[[Page, Random], Iterator[Asked]]


def normalised(name: str) -> str:
    """A package's name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def is_excluded(names: Iterable[str], exclude: Container[str]) -> bool:
    """Whether one of the names, or its first word, is to be left out."""
    for name in names:
        plain = normalised(name)
        bare = re.sub(r"^(?:python3?|lib|node)-", "", plain)
        if any(form in exclude for form in (name, plain, bare, plain.split("-")[0])):
            return True
    return False


def manual_rows(*, exclude: Container[str], limit: int | None = None, seed: int = 0) -> list[Row]:
    """Rows from every manual of this machine but those of the packages and pages in ``exclude``; at
    most ``limit``."""
    rows: list[Row] = []
    seen: set[str] = set()
    for path, materials in _files(exclude, seed):
        for row in file_rows(materials, Random(f"{seed} {path}")):
            key = f"{row.question} {row.answers}".lower()
            if key not in seen:
                seen.add(key)
                rows.append(row)
    Random(seed).shuffle(rows)
    rows = rows[:limit]
    counts = Counter(row.source for row in rows)
    logger.info("%d rows: %s", len(rows), dict(counts.most_common()))
    return rows


def file_rows(materials: list[Material], random: Random, most: int = MOST_ROWS) -> Iterator[Row]:
    """Rows of one file, of as many kinds as it has."""
    kinds: dict[str, list[tuple[Material, Asked]]] = defaultdict(list)
    for material in materials:
        for asked in material.asked:
            kinds[asked.source].append((material, asked))
    for found in kinds.values():
        random.shuffle(found)
    made = 0
    while made < most and any(kinds.values()):
        for kind, found in kinds.items():
            for material, asked in [found.pop() for _ in found[: SHARES.get(kind, 1)]]:
                row = _row(material, asked, materials, random)
                if row and made < most:
                    made += 1
                    yield row


def _row(material: Material, asked: Asked, materials: list[Material], random: Random) -> Row | None:
    title = random.choice(material.titles) if random.random() < 0.8 else ""
    question = typed(asked.question, random)
    if not re.fullmatch(r"[^\[\]{}<>|\n]{8,160}", question):
        return None
    found = _answered(material.page, asked, random)
    if not found:
        return None
    passage, answer = found
    if random.random() < UNANSWERED:
        other = random.choice(materials).page
        silent = _silent(material.page, asked, answer, random) or _silent(
            other, asked, answer, random
        )
        if not silent:
            return None
        return Row(question, title, silent, (), asked.source)
    return Row(question, title, passage, (answer,), asked.source)


def _answered(page: Page, asked: Asked, random: Random) -> tuple[str, str] | None:
    """A passage and the answer in it, where the answer stands first in the block that is meant."""
    for first in (asked.first, asked.first, max(asked.first, asked.last - 1)):
        piece = cut(page, first, asked.last, random)
        if not piece:
            return None
        passage = _spaced(piece.text, random)
        answer = located(asked.answer, passage)
        before = _spaced(page.blocks[asked.first].text, None).split("\n")[0]
        meant = " ".join(passage.split()).find(" ".join(before.split()))
        place = " ".join(passage.split()).find(" ".join(answer.split()))
        if answer and 0 <= meant <= place:
            return passage, answer
    return None


def _spaced(text: str, random: Random | None) -> str:
    if random and random.random() < COLLAPSED:
        return " ".join(text.split())
    return text


def _silent(page: Page, asked: Asked, answer: str, random: Random) -> str:
    """A passage of the page that does not answer; empty where none is found."""
    for _ in range(4):
        number = random.randrange(len(page.blocks)) if page.blocks else 0
        piece = cut(page, number, number, random) if page.blocks else None
        if not piece or len(piece.text.split()) < 25:
            continue
        text = piece.text.lower()
        words = re.findall(r"\w{3,}", asked.question.lower())
        words = [word for word in words if word not in STOP_WORDS and word not in page.name.lower()]
        known = sum(word in text for word in words)
        if (
            " ".join(answer.lower().split()) not in " ".join(text.split())
            and known < len(words) * 0.75
        ):
            return _spaced(piece.text, random)
    return ""


def _files(exclude: Container[str], seed: int) -> Iterator[tuple[str, list[Material]]]:
    yield from _manual_pages(exclude, seed)
    yield from _documents(exclude, seed)
    for distribution in sorted(distributions(), key=lambda one: one.metadata["Name"] or ""):
        name = distribution.metadata["Name"] or ""
        if name and not is_excluded([name], exclude):
            yield from _distribution(distribution, name, exclude, seed)
    library = Path(sysconfig.get_path("stdlib"))
    yield from _sources("", library, library.rglob("*.py"), exclude, seed, 700)
    if NODE.is_dir():
        for path in sorted(NODE.rglob("*.md")):
            yield from _document(path, "", exclude, seed)


def read_text(path: Path) -> str:
    """A file's text, unpacked if its name ends in ``.gz``; empty where it cannot be read."""
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
    except (OSError, UnicodeDecodeError, EOFError):
        return ""


def _manual_pages(exclude: Container[str], seed: int) -> Iterator[tuple[str, list[Material]]]:
    families: dict[str, list[Path]] = defaultdict(list)
    for section in ("man1", "man5", "man8"):
        for path in sorted((MANUALS / section).glob("*.gz")):
            families[re.split(r"[-_.]", path.name)[0]].append(path)
    for family, paths in families.items():
        random = Random(f"{seed} {family}")
        for path in random.sample(paths, min(FAMILY, len(paths))):
            name, _, section = path.name.removesuffix(".gz").rpartition(".")
            if path.is_symlink() or is_excluded([name], exclude):
                continue
            material = manual_material(name, section, read_text(path), random)
            if material:
                yield str(path), [material]


def manual_material(name: str, section: str, roff: str, random: Random) -> Material | None:
    """A manual page with its questions."""
    spoken = name.replace("_", " ") if name.startswith("gcloud") else name
    spoken = re.sub(r"-\d+$", "", re.sub("^(git|openssl|perf)-", r"\1 ", spoken))
    page = manual_page(spoken, section, roff, width=random.choice([0, 72, 80]))
    if not page or len(page.blocks) < 4:
        return None
    titles = (page.title, page.title, spoken, f"{spoken.upper()}({section})", f"man {spoken}")
    ask = (entry_questions, name_questions, example_questions, fact_questions)
    return material_of(page, ask, titles, random)


def material_of(
    page: Page, ask: Iterable[Ask], titles: tuple[str, ...], random: Random
) -> Material:
    """A page with what is asked on it."""
    return Material(page, [asked for one in ask for asked in one(page, random)], titles)


def _documents(exclude: Container[str], seed: int) -> Iterator[tuple[str, list[Material]]]:
    seen: set[int] = set()
    for folder in sorted(DOCUMENTS.iterdir()) if DOCUMENTS.is_dir() else []:
        if folder.is_symlink() or is_excluded([folder.name], exclude):
            continue
        for path in sorted(folder.iterdir()):
            if path.is_file() and not path.is_symlink() and path.stat().st_size not in seen:
                seen.add(path.stat().st_size)
                yield from _document(path, folder.name, exclude, seed)


def _document(
    path: Path, owner: str, exclude: Container[str], seed: int
) -> Iterator[tuple[str, list[Material]]]:
    """A README, changelog or other text file."""
    kinds = r"\.(?:md|rst|txt|gz)$|^(?:README|NEWS|CHANGES|changelog|HISTORY)[\w.]*$"
    if NO_DOCUMENT.search(path.name) or not re.search(kinds, path.name, re.IGNORECASE):
        return
    parts = list(path.parts)
    name = owner
    if "node_modules" in parts:
        name = parts[len(parts) - parts[::-1].index("node_modules")]
    if is_excluded([name, path.stem, *parts], exclude):
        return
    text = read_text(path)
    if 300 < len(text) < LONGEST_FILE or (text and CHANGES.search(path.name)):
        random = Random(f"{seed} {path}")
        yield str(path), [document_material(name, path.name, text[:LONGEST_FILE], random)]


def document_material(name: str, file: str, text: str, random: Random) -> Material:
    """A text file with its questions."""
    if CHANGES.search(file):
        titles = (f"{name} changelog", f"Changelog of {name}", file, f"{name} {file}", "Changelog")
        page = changelog(name, titles[0], text)
        return material_of(page, (change_questions,), titles, random)
    titles = (name, name, f"README of {name}", f"{name} {file}", file)
    page = text_page(name, titles[0], text)
    ask = (entry_questions, example_questions, fact_questions)
    return material_of(page, ask, titles, random)


def _distribution(
    distribution: Distribution, name: str, exclude: Container[str], seed: int
) -> Iterator[tuple[str, list[Material]]]:
    random = Random(f"{seed} {name}")
    metadata = cast(Message, distribution.metadata)
    fields = {key: str(value) for key, value in metadata.items()}
    chosen = {key: " ".join(fields[key].split()) for key in fields if key in {"Name", *METADATA}}
    page = metadata_page(name, chosen)
    yield (
        f"{name} metadata",
        [material_of(page, (metadata_questions,), (name, "METADATA", f"{name} metadata"), random)],
    )
    text = fields.get("Description") or str(metadata.get_payload() or "")
    if len(text) > 300:
        yield f"{name} README", [document_material(name, "README", text, random)]
    paths = [Path(str(file.locate())) for file in distribution.files or []]
    for path in paths:
        if path.suffix in (".md", ".rst", ".txt"):
            yield from _document(path, name, exclude, seed)
    root = Path(str(distribution.locate_file("")))
    sources = [path for path in paths if path.suffix == ".py"]
    yield from _sources(name, root, sources, exclude, seed, SOURCES)


def _sources(
    name: str, root: Path, paths: Iterable[Path], exclude: Container[str], seed: int, most: int
) -> Iterator[tuple[str, list[Material]]]:
    chosen = [path for path in sorted(paths) if path.is_relative_to(root)]
    chosen = [path for path in chosen if not NO_SOURCE.search(f"/{path.relative_to(root)}")]
    random = Random(f"{seed} {name}")
    for path in random.sample(chosen, min(most, len(chosen))):
        parts = path.relative_to(root).with_suffix("").parts
        if is_excluded(parts, exclude):
            continue
        module = ".".join(part for part in parts if part != "__init__")
        materials = source_materials(module, name or parts[0], read_text(path), random)
        if materials:
            yield str(path), materials


def source_materials(module: str, name: str, source: str, random: Random) -> list[Material]:
    """A Python file's functions, options and constants with their questions."""
    if not 500 < len(source) < LONGEST_FILE:
        return []
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return []
    titles = (module, f"{module.replace('.', '/')}.py", name)
    lines = source.split("\n")
    materials: list[Material] = []
    functions = [
        (page, [*function_questions(page, node, random), *entry_questions(page, random)])
        for page, node in function_pages(module, tree, lines)
    ]
    if functions:
        materials.append(Material(*joined(functions), titles))
    tool = module.split(".")[-1] if module.split(".")[-1] not in ("cli", "main") else name
    options = option_page(tool, module, tree, source, rendered=random.random() < 0.6)
    if len(options.blocks) > 2:
        materials.append(material_of(options, (entry_questions,), titles, random))
    constants = constant_page(name, module, tree, source)
    materials.append(material_of(constants, (constant_questions,), titles, random))
    return [material for material in materials if material.asked]
