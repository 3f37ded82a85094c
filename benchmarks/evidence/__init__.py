"""What self-correction is worth with the models that ship: ``make evidence`` fills
docs/evidence.md."""
