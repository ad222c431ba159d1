"""What the Makefile calls: installing, opening JupyterLab, recording measurements."""
