"""What the benchmarks share. Python's standard library alone; figures.py wants matplotlib."""
