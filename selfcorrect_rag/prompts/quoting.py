"""Quotes untrusted text in prompts, so that none of it becomes a control token or a tag.

Servers and tokenizers turn marks such as ``<|im_end|>`` or ``[INST]`` into control tokens anywhere
in a text, and a ``</document>`` in a passage seems to end it. :func:`quoted` replaces a mark's
first character by a look-alike; every prompt applies it once to untrusted text, as the last step.
Pure Python, in time linear in the text.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cache

from selfcorrect_rag.reflection import control_tokens

FAMILIES: Mapping[str, tuple[str, ...]] = {
    family: tuple(tokens.split())
    for family, tokens in {
        "Llama 2": "<s> </s> <unk> [INST] [/INST] <<SYS>> <</SYS>>",
        "Llama 3": (
            "<|begin_of_text|> <|end_of_text|> <|start_header_id|> <|end_header_id|> "
            "<|eot_id|> <|eom_id|> <|python_tag|> <|finetune_right_pad_id|> "
            "<|reserved_special_token_0|> <|image|>"
        ),
        "Llama 4": "<|header_start|> <|header_end|> <|eot|> <|eom|>",
        "Mistral": (
            "<s> </s> <unk> <pad> [INST] [/INST] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] "
            "[TOOL_RESULTS] [/TOOL_RESULTS] [TOOL_CALLS] [TOOL_CONTENT] [ARGS] [CALL_ID] "
            "[SYSTEM_PROMPT] [/SYSTEM_PROMPT] [THINK] [/THINK] [IMG] [IMG_BREAK] [IMG_END] "
            "[AUDIO] [BEGIN_AUDIO] [PREFIX] [MIDDLE] [SUFFIX] [control_8] <SPECIAL_20>"
        ),
        "ChatML and Qwen": (
            "<|im_start|> <|im_end|> <|im_sep|> <|endoftext|> <|object_ref_start|> "
            "<|object_ref_end|> <|box_start|> <|box_end|> <|quad_start|> <|quad_end|> "
            "<|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|> "
            "<|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|> "
            "<|file_sep|> <think> </think> <tools> </tools> <tool_call> </tool_call> "
            "<tool_response> </tool_response>"
        ),
        "Gemma 2 and 3": (
            "<pad> <eos> <bos> <unk> <mask> <start_of_turn> <end_of_turn> <start_of_image> "
            "<end_of_image> <image_soft_token> <unused0>"
        ),
        "Gemma 4": (
            "<|turn> <turn|> <|channel> <channel|> <|think|> <|tool> <tool|> <|tool_call> "
            "<tool_call|> <|tool_response> <tool_response|> <|image> <image|> <|audio> "
            '<audio|> <|"|>'
        ),
        "Phi 3 and 4": (
            "<|system|> <|user|> <|assistant|> <|end|> <|endoftext|> <|placeholder1|> "
            "<|tool|> <|/tool|> <|tool_call|> <|/tool_call|> <|tool_response|> <|im_start|> "
            "<|im_sep|> <|im_end|>"
        ),
        "DeepSeek V3 and R1": (
            "<\uff5cbegin\u2581of\u2581sentence\uff5c> "
            "<\uff5cend\u2581of\u2581sentence\uff5c> <\uff5c\u2581pad\u2581\uff5c> "
            "<\uff5cUser\uff5c> <\uff5cAssistant\uff5c> "
            "<\uff5ctool\u2581calls\u2581begin\uff5c> <\uff5ctool\u2581calls\u2581end\uff5c> "
            "<\uff5ctool\u2581call\u2581begin\uff5c> <\uff5ctool\u2581call\u2581end\uff5c> "
            "<\uff5ctool\u2581outputs\u2581begin\uff5c> "
            "<\uff5ctool\u2581outputs\u2581end\uff5c> "
            "<\uff5ctool\u2581output\u2581begin\uff5c> "
            "<\uff5ctool\u2581output\u2581end\uff5c> <\uff5ctool\u2581sep\uff5c> "
            "<\uff5cfim\u2581begin\uff5c> <\uff5cfim\u2581hole\uff5c> "
            "<\uff5cfim\u2581end\uff5c> <|EOT|> <think> </think>"
        ),
        "Command R": (
            "<PAD> <UNK> <CLS> <SEP> <MASK_TOKEN> <BOS_TOKEN> <EOS_TOKEN> <EOP_TOKEN> "
            "<|START_OF_TURN_TOKEN|> <|END_OF_TURN_TOKEN|> <|SYSTEM_TOKEN|> <|USER_TOKEN|> "
            "<|CHATBOT_TOKEN|> <|START_RESPONSE|> <|END_RESPONSE|> <|START_ACTION|> "
            "<|END_ACTION|> <|START_THINKING|> <|END_THINKING|> <|START_TOOL_RESULT|> "
            "<|END_TOOL_RESULT|>"
        ),
        "GPT-OSS harmony": (
            "<|startoftext|> <|endoftext|> <|endofprompt|> <|start|> <|end|> <|message|> "
            "<|channel|> <|constrain|> <|return|> <|call|> <|reserved_200000|>"
        ),
        "Zephyr": "<s> </s> <unk> <|system|> <|user|> <|assistant|>",
        "Granite": (
            "<|start_of_role|> <|end_of_role|> <|end_of_text|> <|tool_call|> <fim_prefix> "
            "<fim_middle> <fim_suffix> <fim_pad> <filename> <reponame> <gh_stars> "
            "<issue_start> <issue_comment> <issue_closed> <jupyter_start> <jupyter_text> "
            "<jupyter_code> <jupyter_output> <empty_output> <commit_before> <commit_msg> "
            "<commit_after>"
        ),
        "Falcon": (
            ">>TITLE<< >>ABSTRACT<< >>INTRODUCTION<< >>SUMMARY<< >>COMMENT<< >>ANSWER<< "
            ">>QUESTION<< >>DOMAIN<< >>PREFIX<< >>SUFFIX<< >>MIDDLE<< <|system|> <|user|> "
            "<|assistant|> <|endoftext|>"
        ),
        "T5": "<pad> </s> <unk> <extra_id_0>",
        "GLM": (
            "[gMASK] [sMASK] [MASK] <sop> <eop> <|system|> <|user|> <|assistant|> <|observation|>"
        ),
        "EXAONE": "[|system|] [|user|] [|assistant|] [|tool|] [|endofturn|]",
        "BERT": "[CLS] [SEP] [PAD] [UNK] [MASK]",
    }.items()
}
"""Special tokens of the common chat templates, by model family. A number in a token stands for any
number. ``<|name|>`` is a mark whatever its name."""

LOOK_ALIKES: Mapping[str, str] = {"<": "\u2039", ">": "\u203a", "[": "\u2045"}
"""Replacements of a mark's first character, which no Unicode normalisation undoes."""


def quoted(text: str) -> str:
    """``text`` with a look-alike in place of the first character of every mark.

    Marks are those of :data:`FAMILIES`, reflection tokens, and ``<document`` and ``<paragraph>``,
    which prompts use themselves; also in another case, in other forms of their letters, and with
    invisible characters inside, since tokenizers may normalise. Length and all other characters are
    unchanged. Idempotent.
    """
    if not _OPENING.search(text):
        return text
    opened = [found.start() for found in _POSSIBLE.finditer(_folded(text)) if _is_mark(found)]
    if not opened:
        return text
    characters = list(text)
    places = [place for place, character in enumerate(text) for _ in _fold(character)]
    for place in map(places.__getitem__, opened):
        characters[place] = LOOK_ALIKES[_fold(characters[place])]
    return "".join(characters)


OPENINGS = "<\uff1c\ufe64\u226e>\uff1e\ufe65\u226f[\uff3b\ufe47"
"""Every character that a tokenizer may normalise to the first one of a mark."""
_OPENING = re.compile(f"[{re.escape(OPENINGS)}]")

# Possible marks in folded text. Each alternative ends where the next one may begin, so that each
# character is scanned only a few times.
_POSSIBLE = re.compile(
    r"<(?=\s*+/?\s*+document\b)|<(?=(?P<angle>[^<>]{1,64}>))|<(?=(?P<double><[^<>]{1,16}>>))"
    r"|\[(?=(?P<square>[^\[\]]{1,64}\]))|>(?=(?P<reversed>>[^<>]{1,32}<<))"
)
_BARS = re.compile(r"<\|[^\s<>]+\|>")
_NUMBER = re.compile(r"\d+")
_SPACE = re.compile(r"\s+")


def _is_mark(found: re.Match[str]) -> bool:
    if found.lastgroup is None:
        return True
    name = _SPACE.sub(" ", _NUMBER.sub("0", found[0] + found[found.lastgroup]))
    is_own = name.replace(" ", "") in _own(control_tokens())
    return is_own or name in _TEMPLATES or bool(_BARS.fullmatch(name))


def _folded(text: str) -> str:
    """The text under the strongest normalisation of any tokenizer."""
    if text.isascii() and not _CONTROLS.search(text):
        return text.lower()
    return "".join(map(_fold, text))


_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x0c\x0e-\x1f\x7f]")


class _Folds(dict[str, str]):
    """Characters without invisible ones, case and accents, and in one form."""

    def __missing__(self, character: str) -> str:
        self[character] = folded = "".join(
            " " if part == "\u2581" else part
            for part in unicodedata.normalize("NFKD", character).casefold()
            if part in "\t\n\r" or not (unicodedata.category(part)[0] in "CM" or part in _INVISIBLE)
        )
        return folded


_INVISIBLE = "\ufffd\u115f\u1160\u3164\uffa0\u2800"
_fold = _Folds().__getitem__

_TEMPLATES = frozenset(
    _NUMBER.sub("0", _folded(token)) for tokens in FAMILIES.values() for token in tokens
)


@cache
def _own(tokens: Sequence[str]) -> frozenset[str]:
    return frozenset(_SPACE.sub("", _NUMBER.sub("0", _folded(token))) for token in tokens)
