"""GPUs on paper: what a multiprocessor holds, programs that wait for each other, a GPU that misleads benchmarks."""
