"""Forms to choose labels in, and the choice of a model."""

from typing import Any

from selfcorrect_rag.models.chat.choices import Chooser
from selfcorrect_rag.models.chat.forms import Choice, Form, Slot
from selfcorrect_rag.prompts.critic import ISREL, ISSUP, ISUSE

RELEVANCE = Form("Rating:", (Slot(ISREL.labels),))
SUPPORT = Form("Score:", (Slot(ISSUP.labels),))
UTILITY = Form("Perceived utility:", (Slot(ISUSE.labels),))
FULLY, PARTIALLY, NONE = ISSUP.labels.each
RELEVANT, IRRELEVANT = ISREL.labels.each
BOTH = Form("Both:", (Slot(ISSUP.labels, "Score"), Slot(ISUSE.labels, "Perceived utility")))


def chosen(model: Any, form: Form, **options: Any) -> Choice:
    (answer,) = Chooser(model, **options).choose([form])
    (choice,) = answer.choices
    assert choice is not None
    return choice
