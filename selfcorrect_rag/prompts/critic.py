"""The prompts for reflection tokens (Self-RAG, appendix D, tables 8 to 12).

Instructions and demonstrations are the paper's to the letter. They label the critic's training
data, and ask a model that has no reflection tokens.
"""

from collections.abc import Mapping
from functools import cache

from selfcorrect_rag.prompts.critique import CritiqueExample, CritiquePrompt, Instance
from selfcorrect_rag.reflection import (
    CONTINUE,
    FULLY_SUPPORTED,
    IRRELEVANT,
    NO_RETRIEVAL,
    NO_SUPPORT,
    PAPER_GROUPS,
    PARTIALLY_SUPPORTED,
    RELEVANT,
    RETRIEVAL,
    UTILITY,
    Group,
    ReflectionGroup,
    registered_groups,
)

RETRIEVE = CritiquePrompt(
    group=Group.RETRIEVE,
    instructions=(
        "Given an instruction, please make a judgment on whether finding some external documents "
        "from the web (e.g., Wikipedia) helps to generate a better response. Please answer [Yes] "
        "or [No] and write an explanation."
    ),
    fields=("instruction", "input"),
    label_heading="Need retrieval?",
    tokens_by_label={"[Yes]": RETRIEVAL, "[No]": NO_RETRIEVAL},
    demonstrations=(
        CritiqueExample(
            Instance("Give three tips for staying healthy."),
            "[Yes]",
            "There might be some online sources listing three tips for staying healthy or some "
            "reliable sources to explain the effects of different behaviors on health. So "
            "retrieving documents is helpful to improve the response to this query.",
        ),
        CritiqueExample(
            Instance("Describe a time when you had to make a difficult decision."),
            "[No]",
            "This instruction is asking about some personal experience and thus it does not "
            "require one to find some external documents.",
        ),
        CritiqueExample(
            Instance(
                "Write a short story in third person narration about a protagonist who has to make "
                "an important career decision."
            ),
            "[No]",
            "This instruction asks us to write a short story, which does not require external "
            "evidence to verify.",
        ),
        CritiqueExample(
            Instance("What is the capital of France?"),
            "[Yes]",
            "While the instruction simply asks us to answer the capital of France, which is a "
            "widely known fact, retrieving web documents for this question can still help.",
        ),
        CritiqueExample(
            Instance("Find the area of a circle given its radius. Radius = 4"),
            "[No]",
            "This is a math question and although we may be able to find some documents describing "
            "a formula, it is unlikely to find a document exactly mentioning the answer.",
        ),
        CritiqueExample(
            Instance(
                "Arrange the words in the given sentence to form a grammatically correct "
                "sentence. quickly the brown fox jumped"
            ),
            "[No]",
            "This task doesn't require any external evidence, as it is a simple grammatical "
            "question.",
        ),
        CritiqueExample(
            Instance("Explain the process of cellular respiration in plants."),
            "[Yes]",
            "This instruction asks for a detailed description of a scientific concept, and is "
            "highly likely that we can find a reliable and useful document to support the "
            "response.",
        ),
    ),
)
"""Table 8: whether evidence helps, from the instruction alone."""

_EMBEDDINGS = Instance(
    "Explain the use of word embeddings in Natural Language Processing.",
    preceding_sentences=(
        "Word embeddings are one of the most powerful tools available for Natural Language "
        "Processing (NLP). They are mathematical representations of words or phrases in a vector "
        "space, allowing similarities between words and the context in which they are used to be "
        "measured."
    ),
    segment=(
        "Word embeddings are useful for tasks such as sentiment analysis, text classification, "
        "predicting the next word in a sequence, and understanding synonyms and analogies."
    ),
    evidence=(
        "Word embedding\nWord embedding is the collective name for a set of language modeling and "
        "feature learning techniques in natural language processing (NLP) where words or phrases "
        "from the vocabulary are mapped to vectors of real numbers. Conceptually it involves a "
        "mathematical embedding from a space with one dimension per word to a continuous vector "
        "space with a much lower dimension."
    ),
)

RETRIEVE_MORE = CritiquePrompt(
    group=Group.RETRIEVE,
    instructions=(
        "You will be provided with an instruction, evidence, output sentence, and preceding "
        "sentences (optional). If the preceding sentence is given, the output should be the "
        "sentence that follows those preceding sentences. Your task is to determine whether the "
        "information in the output sentence can be fully verified by the evidence or if it "
        "requires further external verification. There are three cases:\n"
        "- If the output sentence can be verified solely with the evidence, then respond with "
        "[Continue to Use Evidence].\n"
        "- If the sentence doesn't require any factual verification (e.g., a subjective sentence "
        "or a sentence about common sense), then respond with [No Retrieval].\n"
        "- If additional information is needed to verify the output sentence, respond with "
        "[Retrieval]. Please provide explanations for your judgments."
    ),
    fields=("instruction", "input", "preceding_sentences", "evidence", "segment"),
    label_heading="Rating:",
    tokens_by_label={token: token for token in (CONTINUE, NO_RETRIEVAL, RETRIEVAL)},
    demonstrations=(
        CritiqueExample(
            _EMBEDDINGS,
            "[Retrieval]",
            "The output discusses the applications of word embeddings, while the evidence only "
            "discusses the definitions of word embeddings and how they work. Therefore, we need to "
            "retrieve other evidence to verify whether the output is correct or not.",
        ),
    ),
)
"""Table 9: whether a sentence needs other evidence, this evidence, or none."""

ISREL = CritiquePrompt(
    group=Group.ISREL,
    instructions=(
        "You'll be provided with an instruction, along with evidence and possibly some preceding "
        "sentences. When there are preceding sentences, your focus should be on the sentence that "
        "comes after them. Your job is to determine if the evidence is relevant to the initial "
        "instruction and the preceding context, and provides useful information to complete the "
        "task described in the instruction. If the evidence meets this requirement, respond with "
        "[Relevant]; otherwise, generate [Irrelevant]."
    ),
    fields=("instruction", "input", "preceding_sentences", "evidence"),
    label_heading="Rating:",
    tokens_by_label={token: token for token in (RELEVANT, IRRELEVANT)},
    demonstrations=(
        CritiqueExample(
            Instance(
                "Given four answer options, A, B, C, and D, choose the best answer.",
                input=(
                    "Earth's rotating causes\nA: the cycling of AM and PM\nB: the creation of "
                    "volcanic eruptions\nC: the cycling of the tides\nD: the creation of gravity"
                ),
                evidence=(
                    "Rotation causes the day-night cycle which also creates a corresponding cycle "
                    "of temperature and humidity creates a corresponding cycle of temperature and "
                    "humidity. Sea level rises and falls twice a day as the earth rotates."
                ),
            ),
            "[Relevant]",
            "The evidence explicitly mentions that the rotation causes a day-night cycle, as "
            "described in the answer option A.",
        ),
        CritiqueExample(
            Instance(
                "age to run for US House of Representatives",
                evidence=(
                    "The Constitution sets three qualifications for service in the U.S. Senate: "
                    "age (at least thirty years of age); U.S. citizenship (at least nine years); "
                    "and residency in the state a senator represents at the time of election."
                ),
            ),
            "[Irrelevant]",
            "The evidence only discusses the ages to run for the US Senate, not for the House of "
            "Representatives.",
        ),
    ),
)
"""Table 10: whether evidence is useful for the instruction."""

ISSUP = CritiquePrompt(
    group=Group.ISSUP,
    instructions=(
        "You will receive an instruction, evidence, and output, and optional preceding sentences. "
        "If the preceding sentence is given, the output should be the sentence that follows those "
        "preceding sentences. Your task is to evaluate if the output is fully supported by the "
        "information provided in the evidence.\n"
        "Use the following entailment scale to generate a score:\n"
        "- [Fully supported] - All information in output is supported by the evidence, or "
        "extractions from the evidence. This is only applicable when the output and part of the "
        "evidence are almost identical.\n"
        "- [Partially supported] - The output is supported by the evidence to some extent, but "
        "there is major information in the output that is not discussed in the evidence. For "
        "example, if an instruction asks about two concepts and the evidence only discusses either "
        "of them, it should be considered a [Partially supported].\n"
        "- [No support / Contradictory] - The output completely ignores evidence, is unrelated to "
        "the evidence, or contradicts the evidence. This can also happen if the evidence is "
        "irrelevant to the instruction.\n"
        "Make sure to not use any external information/knowledge to judge whether the output is "
        "true or not. Only check whether the output is supported by the evidence, and not whether "
        "the output follows the instructions or not."
    ),
    fields=("instruction", "input", "preceding_sentences", "segment", "evidence"),
    label_heading="Score:",
    tokens_by_label={token: token for token in (FULLY_SUPPORTED, PARTIALLY_SUPPORTED, NO_SUPPORT)},
    demonstrations=(
        CritiqueExample(
            _EMBEDDINGS._replace(
                evidence=_EMBEDDINGS.evidence
                + " Methods to generate this mapping include neural networks, dimensionality "
                "reduction on the word co-occurrence matrix, probabilistic models, explainable "
                "knowledge base method, and explicit representation in terms of the context in "
                "which words appear. Word and phrase embeddings, when used as the underlying input "
                "representation, have been shown to boost the performance in NLP tasks such as "
                "syntactic parsing, sentiment analysis, next token predictions as well and analogy "
                "detection."
            ),
            "[Fully supported]",
            "The output sentence discusses the application of word embeddings, and the evidence "
            "mentions all of the applications syntactic parsing, sentiment analysis, next token "
            "predictions as well as analogy detection as the applications. Therefore, the score "
            "should be [Fully supported].",
        ),
    ),
)
"""Table 11: how much of a sentence its evidence supports."""

ISUSE = CritiquePrompt(
    group=Group.ISUSE,
    instructions=(
        "Given an instruction and an output, rate whether the response appears to be a helpful and "
        "informative answer to the query, from 1 (lowest) - 5 (highest). We call this score "
        "perceived utility. The detailed criterion is as follows:\n"
        "5: The response provides a complete, highly detailed, and informative response to the "
        "query, fully satisfying the information needs.\n"
        "4: The response mostly fulfills the need in the query, while there can be some minor "
        "improvements such as discussing more detailed information, having better structure of the "
        "response, or improving coherence.\n"
        "3: The response is acceptable, but some major additions or improvements are needed to "
        "satisfy users' needs.\n"
        "2: The response still addresses the main request, but it is not complete or not relevant "
        "to the query.\n"
        "1: The response is barely on-topic or completely irrelevant."
    ),
    fields=("instruction", "input", "output"),
    label_heading="Perceived utility:",
    tokens_by_label={str(grade): token for grade, token in enumerate(UTILITY, start=1)},
    demonstrations=(
        CritiqueExample(
            Instance(
                "Who is the current prime minister of the UK as of 2023?",
                output="Boris Johnson was the prime minister of the UK from 2019 - 2022.",
            ),
            "2",
            "While the output provides a factually correct statement about the UK prime minister "
            "from 2019 to 2022, this instruction asks who the prime minister is as of 2023, so it "
            "doesn't answer the instruction. Therefore, the utility is 2.",
        ),
        CritiqueExample(
            Instance(
                "Given a description of a travel destination, recommend 10 tourist attractions "
                "with detailed descriptions of each. The travel destination is Tokyo, Japan.",
                output=(
                    "Tokyo is a vibrant city full of exciting tourist attractions. Some must-see "
                    "sights include the Tokyo Skytree, Tokyo Disneyland, Sensoji Temple, Meiji "
                    "Shrine, Tsukiji Fish Market, Harajuku, and Shinjuku Gyoen."
                ),
            ),
            "3",
            "This output doesn't provide descriptions of each attraction and the number of the "
            "attractions is also less than 10. While this output partially answers the "
            "instructions, it doesn't match the instructions strictly.",
        ),
    ),
)
"""Table 12: how useful the whole output looks, from 1 to 5, whether true or not."""

CRITIQUE_PROMPTS: Mapping[str, CritiquePrompt] = {
    "retrieval": RETRIEVE,
    "multi_retrieval": RETRIEVE_MORE,
    "relevance": ISREL,
    "groundness": ISSUP,
    "utility": ISUSE,
}
"""The prompts by their names in the official data."""

_OF_GROUP = {Group.RETRIEVE: RETRIEVE, Group.ISREL: ISREL, Group.ISSUP: ISSUP, Group.ISUSE: ISUSE}
_FIELDS = {
    "passage": ("instruction", "preceding_sentences", "evidence", "segment"),
    "segment": ("instruction", "preceding_sentences", "segment"),
    "answer": ("instruction", "output"),
}


def group_prompt(group: ReflectionGroup) -> CritiquePrompt | None:
    """The prompt for a group's token; None for a registered group without an instruction.

    For Retrieve it is table 8, the decision before the first segment.
    """
    if group.name in PAPER_GROUPS:
        return _OF_GROUP[Group(group.name)]
    return _registered(group) if group.instruction else None


@cache
def _registered(group: ReflectionGroup) -> CritiquePrompt:
    labels = {token: token for token in group.tokens}
    fields = _FIELDS[group.judges]
    return CritiquePrompt(group.name, group.instruction, fields, f"{group.name}:", labels, ())


def registered_prompts() -> list[tuple[ReflectionGroup, CritiquePrompt]]:
    """The registered groups that a chat model is asked for, with their prompts."""
    prompts = ((group, group_prompt(group)) for group in registered_groups())
    return [(group, prompt) for group, prompt in prompts if prompt]


def critique_prompts() -> dict[str, CritiquePrompt]:
    """The paper's prompts by name, and by group those of registered groups with an instruction."""
    return {**CRITIQUE_PROMPTS, **{group.name: prompt for group, prompt in registered_prompts()}}
