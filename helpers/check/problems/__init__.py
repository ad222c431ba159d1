"""What exercises ask, and what is right."""
