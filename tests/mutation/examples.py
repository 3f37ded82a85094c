"""Hypothesis for mutants: the same examples in each run, and a failing one is not made smaller."""

from hypothesis import HealthCheck, Phase, settings

settings.register_profile(
    "mutants",
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=(Phase.explicit, Phase.generate),
)
settings.load_profile("mutants")
