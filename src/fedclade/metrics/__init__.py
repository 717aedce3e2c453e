"""What is told of a run: fairness, cost, and how well the groups were found."""
