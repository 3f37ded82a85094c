"""Every prompt that goes to a chat model, with one text in all places where text is untrusted."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, get_args

from langchain_core.documents import Document

from selfcorrect_rag.agents.tool import readable
from selfcorrect_rag.models.critic import critic_input
from selfcorrect_rag.prompts.chat import (
    answer_prompt,
    follow_up_prompt,
    joint_critique_prompt,
    passages_critique_prompt,
)
from selfcorrect_rag.prompts.crag import (
    PromptKind,
    grading_prompt,
    knowledge_prompt,
    rewrite_prompt,
)
from selfcorrect_rag.prompts.critic import CRITIQUE_PROMPTS, ISSUP, ISUSE, RETRIEVE_MORE, Instance
from selfcorrect_rag.prompts.instruct_rag import inference_prompt, rationale_prompt, training_prompt
from selfcorrect_rag.prompts.reading import option_prompt
from selfcorrect_rag.settings import Mode

Builder = Callable[[str, Document], Any]
"""Takes a text, and a document whose title and text may be two halves of one."""


def _instance(text: str, document: Document) -> Instance:
    evidence = f"{document.metadata['title']}\n{document.page_content}"
    return Instance(text, text, text, text, text, evidence)


def _cited(text: str, document: Document) -> str:
    citation = {"number": 1, "title": document.metadata["title"], "source": text, "text": text}
    return readable({"cited_answer": text, "citations": [citation], "notes": [text]})


def _inference(mode: Mode, text: str, document: Document) -> str:
    shown: Any = [{"question": text, "rationale": text, "answers": [text]}]
    return inference_prompt(mode, text, [document, document], shown, text).to_string()


BUILDERS: Mapping[str, Builder] = {
    "rewrite": lambda text, document: rewrite_prompt(text),
    "follow-up": lambda text, document: follow_up_prompt([("user", text)] * 2, text),
    "knowledge": lambda text, document: knowledge_prompt(text, [document, document]),
    "answer": lambda text, document: answer_prompt(_instance(text, document)),
    "critiques": lambda text, document: joint_critique_prompt(
        [RETRIEVE_MORE, ISUSE], _instance(text, document)
    ),
    "passages": lambda text, document: passages_critique_prompt(
        ISSUP, [_instance(text, document)] * 2
    ),
    **{
        name: lambda text, document, aspect=aspect: aspect.prompt(_instance(text, document))
        for name, aspect in CRITIQUE_PROMPTS.items()
    },
    "critic": lambda text, document: critic_input(ISSUP, _instance(text, document)).input,
    **{
        f"{kind} {number}": lambda text, document, kind=kind, number=number: grading_prompt(
            kind, text, [text, document.page_content][:number]
        )
        for kind in get_args(PromptKind)
        for number in (1, 2)
    },
    "option": lambda text, document: option_prompt(text, text, [text, document.page_content]),
    **{f"instruct {mode}": partial(_inference, mode) for mode in get_args(Mode)},
    "rationale": lambda text, document: rationale_prompt(text, [document] * 2, [text], text),
    "training": lambda text, document: training_prompt(text, [document]),
    "agent's tool": _cited,
}


def built(builder: str, text: str, title: str = "A title", passage: str | None = None) -> str:
    """The text of a prompt's messages."""
    document = Document(text if passage is None else passage, metadata={"title": title})
    made = BUILDERS[builder](text, document)
    return made if isinstance(made, str) else "\n".join(str(m.content) for m in made)
