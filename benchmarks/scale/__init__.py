"""What bulk answering costs, past this machine: constants, a simulator, and docs/scale.md."""
