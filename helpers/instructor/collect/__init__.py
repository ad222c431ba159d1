"""Handing out and getting back: the course directory and the submissions in it."""
