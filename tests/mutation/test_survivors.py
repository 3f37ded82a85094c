"""The list of accepted survivors is compared with what a run found, both ways."""

from collections import Counter

import pytest

from tests.mutation.__main__ import MODULES, SURVIVORS, Mutant, check, read_mutant, read_survivors

SHOWN = """\
# selfcorrect_rag.nodes.limits.xǁPromptǁfits__mutmut_3: survived
--- selfcorrect_rag/nodes/limits.py
+++ selfcorrect_rag/nodes/limits.py
@@ -1,3 +1,3 @@
 def fits(self):
-    return self.size <= \\
-        limit
+    return self.size < limit
"""
LISTED = """
[[survivors]]
module = "nodes/limits"
function = "Prompt.fits"
changes = [["return self.size <= \\\\ limit", "return self.size < limit"]]
reason = "equal by construction"
"""
MUTANT = Mutant(
    "nodes/limits", "Prompt.fits", "return self.size <= \\ limit", "return self.size < limit"
)


def test_a_mutant_is_told_by_its_lines_in_what_mutmut_shows_and_in_the_list() -> None:
    assert read_mutant("nodes/limits", SHOWN) == MUTANT
    assert read_survivors(LISTED) == {MUTANT: 1}


@pytest.mark.parametrize(
    ("killed", "survived", "listed", "complaint"),
    [
        (99, [MUTANT], [MUTANT], None),
        (99, [MUTANT, MUTANT], [MUTANT], "Prompt.fits survives and is not listed"),
        (99, [], [MUTANT], "Prompt.fits is listed but killed or gone"),
        (18, [MUTANT], [MUTANT], "less than 95.0 % killed"),
    ],
)
def test_a_run_fails_on_survivors_not_listed_on_a_stale_list_and_on_few_killed(
    killed: int, survived: list[Mutant], listed: list[Mutant], complaint: str | None
) -> None:
    complaints = check(killed, Counter(survived), Counter(listed))
    assert len(complaints) == (complaint is not None)
    assert all(str(complaint) in text for text in complaints)


def test_the_list_is_of_modules_that_are_run() -> None:
    listed = read_survivors(SURVIVORS.read_text(encoding="utf-8"))
    assert {mutant.module for mutant in listed} <= MODULES.keys()
