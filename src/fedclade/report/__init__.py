"""What a person sees of a plan or a run."""
