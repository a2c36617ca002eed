"""NVIDIA FLARE: kits, processes and sessions; it moves bytes and promises nothing else."""
