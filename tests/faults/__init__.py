"""Every fault of docs/faults.md, provoked as a user meets it.

The page is the test: each row needs a case (:func:`~tests.faults.cases.fault`), and what the case
saw is compared with what the row says. Cases stand in a file for each section.
"""
