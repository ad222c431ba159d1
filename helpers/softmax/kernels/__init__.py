"""The functions that Triton compiles, and nothing else; the letters that they share are in `helpers.softmax`."""
