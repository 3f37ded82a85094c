"""Compares methods on the same questions: tasks, metrics, a resumable runner, a report."""
