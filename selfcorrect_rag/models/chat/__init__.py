"""Any chat model: classification, completion, and prompted reflection."""
