"""Many questions: on this machine or on Ray Data."""
