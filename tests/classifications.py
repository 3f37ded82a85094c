"""Forms to choose labels in, and the prediction of a model."""

from typing import Any

from selfcorrect_rag.models.classification import (
    ChatClassifier,
    Classification,
    LabelField,
    Prediction,
)
from selfcorrect_rag.prompts.critic import ISREL, ISSUP, ISUSE

RELEVANCE = Classification("Rating:", (LabelField(ISREL.label_parser),))
SUPPORT = Classification("Score:", (LabelField(ISSUP.label_parser),))
UTILITY = Classification("Perceived utility:", (LabelField(ISUSE.label_parser),))
FULLY, PARTIALLY, NONE = ISSUP.label_parser.labels
RELEVANT, IRRELEVANT = ISREL.label_parser.labels
BOTH = Classification(
    "Both:",
    (LabelField(ISSUP.label_parser, "Score"), LabelField(ISUSE.label_parser, "Perceived utility")),
)


def chosen(model: Any, form: Classification, **options: Any) -> Prediction:
    (answer,) = ChatClassifier(model, **options).classify([form])
    (prediction,) = answer.predictions
    assert prediction is not None
    return prediction
