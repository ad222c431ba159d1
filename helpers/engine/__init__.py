"""Where and how a kernel runs: which mode Triton is in, its interpreter, other processes, and the way there."""
