"""Speed, as ratios against a peer in the same run. `python -m benchmarks` prints the tables."""
