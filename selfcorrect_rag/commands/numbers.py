"""Numbers that options take."""

import argparse


def count(text: str) -> int:
    """A whole number from 1; for argparse, which names the option that is otherwise."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number
