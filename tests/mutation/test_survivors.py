"""The list of accepted survivors."""

from tests.mutation.__main__ import MODULES, SURVIVORS, read_survivors


def test_the_list_is_of_modules_that_are_run() -> None:
    listed = read_survivors(SURVIVORS.read_text(encoding="utf-8"))
    assert {mutant.module for mutant in listed} <= MODULES.keys()
