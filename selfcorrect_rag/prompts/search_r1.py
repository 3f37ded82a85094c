"""Search-R1's prompt, the texts between its turns, and its tags (arXiv 2503.09516, Table 1).

Where paper and official code differ, the text is the code's, with which the checkpoints were
trained.
"""

import re
from collections.abc import Sequence

from langchain_core.documents import Document

from selfcorrect_rag.prompts.parts import passage_title, quoted

PROMPT = (
    "Answer the given question. You must conduct reasoning inside <think> and </think> first every "
    "time you get new information. After reasoning, if you find you lack some knowledge, you can "
    "call a search engine by <search> query </search> and it will return the top searched results "
    "between <information> and </information>. You can search as many times as your want. If you "
    "find no further external knowledge needed, you can directly provide the answer inside "
    "<answer> and </answer>, without detailed illustrations. For example, <answer> Beijing "
    "</answer>. Question: {}\n"
)
INVALID = (
    "\nMy previous action is invalid. If I want to search, I should put the query between <search> "
    "and </search>. If I want to give the final answer, I should put the answer between <answer> "
    "and </answer>. Let me try again.\n"
)
"""The text after a turn that neither searches nor answers."""
LAST = "\nI cannot search again. I should put the final answer between <answer> and </answer>.\n"
"""The text before a last turn. Ours: the official code ends without an answer."""
STOP = ["</search>", "</answer>"]
_OPENING, _CLOSING = re.compile("<(search|answer)>"), re.compile("</(search|answer)>")


def first_prompt(question: str) -> str:
    """Return the prompt; a question ends with a question mark, as in training."""
    return PROMPT.format(quoted(question.strip().rstrip("?") + "?"))


def information(passages: Sequence[Document], characters: int) -> str:
    """Return passages as the model reads them, quoted, each on one line and of so many characters,
    so that no text can begin another passage, end the information, search or answer."""
    lines = [
        f'Doc {number}(Title: "{passage_title(each)}") '
        + " ".join(each.page_content.split())[:characters]
        for number, each in enumerate(passages, start=1)
    ]
    shown = quoted("\n".join(lines))
    return f"\n\n<information>{shown}</information>\n\n"


def read_turn(text: str) -> tuple[str, str, str]:
    """Return a turn's action, ``search``, ``answer`` or none, what it says, and the turn's text up
    to there. The closing tag may be missing, since a model stops before it."""
    end = _CLOSING.search(text)
    before = text[: end.start()] if end else text
    opening = next(reversed(list(_OPENING.finditer(before))), None)
    if opening is None or (end and end[1] != opening[1]):
        return "", "", text[: end.end()] if end else text
    return opening[1], before[opening.end() :].strip(), f"{before}</{opening[1]}>"
