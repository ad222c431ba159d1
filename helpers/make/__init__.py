"""What the Makefile calls: installing, opening JupyterLab, recording measurements, making the site."""
