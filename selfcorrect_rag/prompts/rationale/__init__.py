"""Which documents a rationale uses, which it dismisses, and what it concludes."""
