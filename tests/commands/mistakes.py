"""The message of a command for a mistake that its user can mend."""

import pytest


def assert_said_in_one_line(capsys: pytest.CaptureFixture[str], message: str) -> None:
    error = capsys.readouterr().err
    assert error.startswith("selfcorrect-rag: ")
    assert error.count("\n") == 1
    assert message in error
