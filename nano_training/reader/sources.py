"""Python source files as pages, read without importing: functions with their docstrings, options of
command lines, constants."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from random import Random

from nano_training.reader.manual_questions import Asked
from nano_training.reader.pages import Block, Page, entry
from nano_training.reader.wording import clause, keywords, phrase, plain, reworded

Function = ast.FunctionDef | ast.AsyncFunctionDef
GOOGLE = re.compile(
    r"^(Args|Arguments|Parameters|Params|Keyword Args|Attributes|Returns?|Raises|Yields):$"
)
NUMPY = re.compile(
    r"^(Parameters|Other Parameters|Attributes|Returns|Raises|Yields|See Also|Notes|Examples"
    r"|References)$"
)
SPHINX = re.compile(
    r"^:(?:param|arg|keyword|raises?|returns?|rtype|type)\b ?(?:[\w\[\], .|]+ )?"
    r"(?P<head>\*{0,2}\w*): ?(?P<body>.*)$"
)
GOOGLE_ITEM = re.compile(r"^(?P<head>\*{0,2}[\w.]+)(?: ?\((?P<type>.*?)\))?: (?P<body>\S.*)$")
NUMPY_ITEM = re.compile(r"^(?P<head>\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: ?: ?.*)?$")
SIMPLE = re.compile(r"[\w.+%/:@*, ()\[\]{}=-]{1,40}")


def function_pages(
    module: str, tree: ast.Module, lines: list[str]
) -> Iterator[tuple[Page, Function]]:
    """Public functions and methods with a docstring: signature and text."""
    for owner, node in _functions(tree):
        doc = ast.get_docstring(node)
        if not doc or node.name.startswith("_") or len(doc.split()) < 12 or ">>>" in doc[:80]:
            continue
        name = f"{owner}.{node.name}" if owner else node.name
        first = textwrap.dedent("\n".join(lines[node.lineno - 1 : node.body[0].lineno - 1]))
        if not 0 < len(first) < 900:
            continue
        blocks = [Block(first.strip(), "code", head=name), *docstring_blocks(doc)]
        yield Page(name, module, blocks), node


def _functions(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    for node in tree.body:
        if isinstance(node, Function):
            yield "", node
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            for part in node.body:
                if isinstance(part, Function):
                    yield node.name, part


def docstring_blocks(doc: str) -> list[Block]:
    """A docstring's paragraphs and, in Google's, NumPy's and Sphinx's styles, its entries."""
    blocks: list[Block] = []
    section = style = ""
    open_entry = False
    lines = inspect.cleandoc(doc).split("\n")
    for number, line in enumerate(lines):
        following = lines[number + 1] if number + 1 < len(lines) else ""
        google = GOOGLE.match(line)
        if google or (NUMPY.match(line) and following.startswith("---")):
            section, style = line.rstrip(":"), "google" if google else "numpy"
            text = line if google else f"{line}\n{following}"
            blocks.append(Block(text, "heading", section=section))
            open_entry = False
            continue
        if re.fullmatch(r"-{3,}", line):
            continue
        item = _item(line, section, style)
        if item:
            blocks.append(
                Block(
                    line, "entry", item["head"], item.groupdict().get("body") or "", section, "\n"
                )
            )
            open_entry = True
        elif not line.strip():
            open_entry = open_entry and bool(following.startswith(" "))
            if not open_entry:
                blocks.append(Block("", section=section))
        elif open_entry or (blocks and blocks[-1].text and blocks[-1].kind == "text"):
            last = blocks[-1]
            body = f"{last.body} {line.strip()}" if last.kind == "entry" else ""
            blocks[-1] = last._replace(text=f"{last.text}\n{line}", body=body.strip())
        else:
            if style == "google" and not line.startswith(" "):
                section = style = ""
            blocks.append(Block(line, section=section))
    return [block for block in blocks if block.text.strip()]


def _item(line: str, section: str, style: str) -> re.Match[str] | None:
    if line.startswith(":"):
        return SPHINX.match(line)
    if style == "google" and re.match(r"^(?: {4}| {2})\S", line) and section[0] in "APKR":
        return None if section.startswith("Return") else GOOGLE_ITEM.match(line.strip())
    if style == "numpy" and section in ("Parameters", "Other Parameters", "Attributes", "Raises"):
        return NUMPY_ITEM.match(line)
    return None


def function_questions(page: Page, node: Function, random: Random) -> Iterator[Asked]:
    """On what a function does, returns and raises, and on its defaults."""
    name = page.name
    summary = page.blocks[1]
    said = clause(re.split(r"\n\s*\n", summary.text)[0])
    short = name.split(".")[-1]
    if re.match(r"[A-Z][a-z]", said) and "=" not in said and summary.kind == "text":
        forms = [
            f"What does {name} do?",
            f"What does {short}() do?",
            f"what is {name} for",
            f"What does the function {short} do?",
            f"{short} function purpose",
        ]
        yield Asked(random.choice(forms), said, 1, 1, "functions: meaning")
        does = phrase(summary.text)
        if does and not does.negative and len(does.rest.split()) > 1:
            forms = [
                f"Which function {does.third()}?",
                f"What function can I use to {does.base()}?",
                f"How do I {does.base()}?",
                f"function to {does.base()}",
                f"Which method {does.third()}?",
                f"{keywords(does.base(), 6)} function",
            ]
            yield Asked(reworded(random.choice(forms), random), short, 0, 1, "functions")
    yield from _signature_defaults(page, node, random)
    for number, block in enumerate(page.blocks):
        found = re.search(
            r"(?:versionadded::|New in version|Added in) v?(?P<in>\d[\d.]*\d)", block.text
        )
        if found and block.kind == "text":
            forms = [
                f"In which version was {name} added?",
                f"Since which version is there {short}()?",
                f"When was {short} introduced?",
                f"{short} since version",
            ]
            yield Asked(random.choice(forms), found["in"], number, number, "functions: since")
            break
    for number, block in enumerate(page.blocks):
        returned = re.match(r"^:returns?: ?(.+)", block.text, re.DOTALL)
        text = returned[1] if returned else block.text if block.section.startswith("Return") else ""
        if text and block.kind != "heading":
            described = clause(
                re.sub(r"^\s*(?:[\w\[\], .|]+: )?", "", text) if not returned else text
            )
            if described and len(described.split()) > 1:
                forms = [
                    f"What does {name} return?",
                    f"What is the return value of {short}()?",
                    f"{short} return value",
                    f"what do I get back from {short}",
                ]
                yield Asked(random.choice(forms), described, number, number, "functions: return")
            break
    for number, block in enumerate(page.blocks):
        raises = block.section.startswith("Raises") or block.text.startswith(":raise")
        if block.kind == "entry" and raises and re.fullmatch(r"[\w.]+", block.head):
            described = clause(block.body)
            reason = plain(described)
            reason = reason[:1].lower() + reason[1:]
            if re.match(r"(?:if|when) ", reason, re.IGNORECASE):
                pairs = [
                    (f"When does {name} raise {block.head}?", described),
                    (f"When does {short}() raise a {block.head}?", described),
                    (
                        f"Which exception does {short} raise {reason}?",
                        block.head,
                    ),
                    (
                        f"What error do I get from {short} {reason}?",
                        block.head,
                    ),
                ]
                question, answer = random.choice(pairs)
                yield Asked(question, answer, number, number, "functions: error")


def _signature_defaults(page: Page, node: Function, random: Random) -> Iterator[Asked]:
    """On default values in a signature."""
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    pairs = [
        *zip(
            positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True
        ),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    name, short = page.name, page.name.split(".")[-1]
    for argument, default in pairs:
        value = ast.unparse(default) if default else ""
        if value in ("", "None") and random.random() < 0.85:
            continue
        if not value or not SIMPLE.fullmatch(value.strip("'\"")) or value.strip("'\"") == "":
            continue
        value = value.strip("'\"")
        key, words = argument.arg, argument.arg.replace("_", " ")
        forms = [
            f"What is the default {key} of {name}?",
            f"What is the default value of {key} in {short}()?",
            f"What is the default {words} of {short}?",
            f"What does {key} default to in {name}?",
            f"{short} default {words}",
            f"{name} {key} default",
            f"Which {words} does {short} use by default?",
        ]
        yield Asked(random.choice(forms), value, 0, 0, "functions: default")


def joined(pages: list[tuple[Page, list[Asked]]]) -> tuple[Page, list[Asked]]:
    """Functions of a module as one page, so that passages have neighbours."""
    blocks: list[Block] = []
    questions: list[Asked] = []
    for page, asked in pages:
        shift = len(blocks)
        blocks.extend(page.blocks)
        questions.extend(
            one._replace(first=one.first + shift, last=one.last + shift) for one in asked
        )
    return Page("", pages[0][0].title, blocks), questions


def option_page(name: str, title: str, tree: ast.Module, source: str, *, rendered: bool) -> Page:
    """The options of a command line that a source file defines: as ``--help`` shows them, or as
    they stand in the source."""
    blocks = [Block(f"usage: {name} [options]\n\noptions:")] if rendered else []
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_option(node)]
    for call in sorted(calls, key=lambda node: node.lineno):
        names = [str(arg.value) for arg in call.args if isinstance(arg, ast.Constant)]
        names = [name for name in names if name.startswith("-")]
        given = {key.arg: key.value for key in call.keywords}
        said = _text(given.get("help"))
        default = given.get("default")
        if not names or not said or len(said.split()) > 90:
            continue
        value = str(default.value) if isinstance(default, ast.Constant) else ""
        said = " ".join(said.replace("%(default)s", value).replace("%%", "%").split())
        if not rendered:
            text = textwrap.dedent(
                " " * call.col_offset + (ast.get_source_segment(source, call) or "")
            )
            blocks.append(Block(text, "entry", max(names, key=len), said, gap="\n"))
            continue
        if value and value not in ("None", "False", "==SUPPRESS==") and "default" not in said:
            said = f"{said} (default: {value})"
        flag = "action" in given or "is_flag" in given
        variable = "" if flag else " " + max(names, key=len).strip("-").replace("-", "_").upper()
        head = ", ".join(
            name + (variable if number == 0 else "") for number, name in enumerate(names)
        )
        filled = textwrap.fill(said, 60, break_on_hyphens=False)
        blocks.append(entry(head, filled, indent=" " * 24)._replace(gap="\n"))
    return Page(name, title, blocks)


def _is_option(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    return name in ("add_argument", "option", "add_option", "Option")


def _text(node: ast.expr | None) -> str:
    """The string that an expression is; empty for others."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return ""


def constant_page(name: str, title: str, tree: ast.Module, source: str) -> Page:
    """The statements at the top level of a module."""
    lines = source.split("\n")
    blocks: list[Block] = []
    for node in tree.body:
        last = node.end_lineno or node.lineno
        text = "\n".join(lines[node.lineno - 1 : last])
        if last - node.lineno > 14:
            text = "\n".join(lines[node.lineno - 1 : node.lineno + 8])
        blocks.append(Block(text, "code", gap="\n"))
    return Page(name, title, blocks)


def constant_questions(page: Page, random: Random) -> Iterator[Asked]:
    """On constants: "What is DEFAULT_PORT?"."""
    for number, block in enumerate(page.blocks):
        found = re.fullmatch(
            r"(?P<key>[A-Z][A-Z0-9_]{3,40})(?:: [\w\[\], .]+)? = (?P<value>[\w.'\"/:+*@ -]{1,60})",
            block.text,
        )
        if not found or not re.match(r"[\d'\"-]", found["value"]):
            continue
        key, value = found["key"], found["value"].strip("'\"")
        words = key.lower().replace("_", " ")
        forms = [
            f"What is the value of {key}?",
            f"What is {key} set to?",
            f"What is {key} in {page.name}?",
            f"{key} value",
            f"What is the {words} in {page.name}?",
            f"{page.name} {words}",
        ]
        if value.strip():
            yield Asked(random.choice(forms), value, number, number, "constants")
