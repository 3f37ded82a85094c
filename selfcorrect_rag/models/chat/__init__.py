"""Any chat model: choosing labels, writing, and the reflection that prompts ask it for."""
