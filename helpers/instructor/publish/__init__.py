"""From solutions to the lessons that are handed out: reading notebooks, executing them, taking the answers out."""
