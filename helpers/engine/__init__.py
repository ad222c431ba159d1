"""Where and how a kernel runs: on a GPU or in Triton's interpreter, in this process or in another one."""
