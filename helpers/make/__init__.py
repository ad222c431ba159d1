"""What the Makefile calls: installing the course, keeping a working copy, opening JupyterLab, making the site."""
