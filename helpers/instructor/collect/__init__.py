"""What was handed out, and what came back: the course directory and the submissions in it."""
