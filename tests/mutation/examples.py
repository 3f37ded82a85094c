"""Hypothesis for mutants: the same examples in each run, and a failing one is not made smaller."""

from hypothesis import Phase, settings

settings.register_profile(
    "mutants",
    derandomize=True,
    database=None,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
)
settings.load_profile("mutants")
