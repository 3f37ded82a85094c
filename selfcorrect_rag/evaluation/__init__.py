"""Evaluates methods on the same questions: tasks, metrics, a resumable runner, statistics, a page.

For a command line::

    options = EvalOptions(data="questions.jsonl", out=Path("run"), methods=("rag", "crag"))
    plan = plan_evaluation(options)          # reads and checks all, opens no model
    for row in plan.task.skipped: ...        # place, reason
    total = count_left(plan.task.questions, plan.specs, options.out)
    made = evaluate(options, plan, parts, settings=..., on_done=lambda outcome: bar.update())

``made`` is summary.json: exit with 1 if ``made["stopped"]`` or a method's ``failed``; rows for the
terminal by ``report.format_mean`` and ``report.comparison_row``. Calibrate with
``calibration.read_labelled``, ``calibrate_evaluator``, ``write_thresholds``.
"""
