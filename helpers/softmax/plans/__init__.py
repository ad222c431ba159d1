"""Only numbers: how a tensor lies in memory, and from shape, strides and dtype to a plan for its launch."""
