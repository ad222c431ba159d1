"""What the compiler for NVIDIA GPUs, present or not, says of a kernel.

A launch becomes a CompileRequest (request.py), which compile.py compiles. verdict.py asks whether a compiler takes the
launches of an answer, and refusal.py says in words why it does not. store.py keeps what came of a request.
"""
