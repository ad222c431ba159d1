"""The laboratory: what `make record` times on a GPU, and the tables and charts that are made from its records."""
