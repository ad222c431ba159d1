"""Mistakes that exercises share, and how they are recognised."""
