"""The made-up world, rows, trainers and evaluations that made the models in `selfcorrect_rag.nano`."""
